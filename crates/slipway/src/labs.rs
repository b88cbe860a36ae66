//! Labs, nodes and files: from command-line words to values of the engine.

use std::path::Path;

use rustix::thread::{CapabilitySet, capabilities};
use slipway_engine::lab::Running;
use slipway_engine::state::StateRoot;
use slipway_lab::id::NodeId;
use slipway_lab::model::Lab;
use slipway_study::Source;

use crate::exit::Exit;
use crate::failure::Failure;

/// Looked for in the current folder, in this order.
const FILES: [&str; 2] = ["slipway.yaml", "lab.yaml"];

/// Refuses where this process may not make namespaces, before anything is tried.
pub(crate) fn need_privilege() -> Result<(), Failure> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    let effective =
        capabilities(None).map_err(|error| Failure::io("read this process's capabilities")(error.into()))?;
    if effective.effective.contains(needed) {
        return Ok(());
    }
    let why = if rustix::process::geteuid().is_root() {
        "root here lacks the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN\nHint: a container needs both (--privileged gives them)"
    } else {
        "that takes root\nHint: `sudo slipway …`\nHint: without root, `unshare -Urnmpf --mount-proc` opens a shell where most of it works once SLIPWAY_STATE, SLIPWAY_IMAGES and SLIPWAY_SCRATCH name folders of yours; `slipway doctor` there lists the losses"
    };
    Err(Failure::new(Exit::Unable, &format!("work with namespaces: {why}")))
}

/// Warns of limits that are shorter than the data under way.
pub(crate) fn warn(source: &Source, lab: &Lab) {
    for slipway_document::errors::DocumentError { file, line, message, help, .. } in source.short_limits(lab) {
        tracing::warn!("{file}:{line}: {message}; {help}");
    }
}

/// Reads a lab file and the lab in it; the current folder's where none is named.
pub(crate) fn read(file: Option<&Path>) -> Result<Lab, Failure> {
    Ok(source(file)?.lab()?)
}

/// Reads a lab file; the current folder's where none is named.
pub(crate) fn source(file: Option<&Path>) -> Result<Source, Failure> {
    let path = match file {
        Some(path) => path,
        None => FILES.iter().map(Path::new).find(|path| path.exists()).ok_or_else(|| {
            Failure::usage(format!(
                "find a lab file: there is no {} in this folder\nHint: name one (`slipway up FILE`), or write one with `slipway init`",
                FILES.join(" or ")
            ))
        })?,
    };
    Ok(Source::read(path)?)
}

/// Whether a word is a lab file's path rather than a lab's name, which has neither dots nor slashes.
pub(crate) fn is_file(word: &str) -> bool {
    word.contains(['.', '/'])
}

/// The name of the lab that `word` means: itself, or that of the lab in the file.
pub(crate) fn name(word: &str) -> Result<String, Failure> {
    if is_file(word) { Ok(read(Some(Path::new(word)))?.name) } else { Ok(word.to_owned()) }
}

/// The lab that `word` means, or the only one that runs.
pub(crate) fn running(root: &StateRoot, word: Option<&str>) -> Result<Running, Failure> {
    need_privilege()?;
    let name = match word {
        Some(word) => name(word)?,
        None => only(root)?,
    };
    Ok(Running::open(root, &name)?)
}

fn only(root: &StateRoot) -> Result<String, Failure> {
    let names: Vec<String> = root.labs()?.into_iter().filter(|name| root.lab(name).exists()).collect();
    match <[String; 1]>::try_from(names) {
        Ok([name]) => Ok(name),
        Err(names) if names.is_empty() => {
            Err(Failure::new(Exit::NotFound, &"find a running lab: none is up\nHint: `slipway up FILE` starts one"))
        }
        Err(names) => {
            Err(Failure::usage(format!("choose a lab: {} are up\nHint: name one of {}", names.len(), names.join(", "))))
        }
    }
}

/// The running lab that a process is in.
pub(crate) fn of_process(root: &StateRoot, pid: i32) -> Result<Running, Failure> {
    need_privilege()?;
    let names = root.labs()?.into_iter().filter(|name| root.lab(name).exists());
    // One that goes down meanwhile has no processes.
    let mut labs = names.filter_map(|name| Running::open(root, &name).ok());
    labs.find(|lab| lab.node_of(pid).is_some()).ok_or_else(|| {
        let account = format!(
            "find the lab of process {pid}: it is in no node of a running lab\nHint: `slipway inspect LAB NODE --json` lists those of a node"
        );
        Failure::new(Exit::NotFound, &account)
    })
}

/// A running lab and its nodes from `[LAB] NODE…`. The first word is a lab where one of that name runs, or where it is
/// a file. Otherwise all words are nodes of the only lab.
pub(crate) fn nodes(root: &StateRoot, words: &[String]) -> Result<(Running, Vec<NodeId>), Failure> {
    let (lab, words) = match words.split_first() {
        Some((first, rest)) if is_file(first) || root.lab(first).exists() => (running(root, Some(first))?, rest),
        _ => (running(root, None)?, words),
    };
    if words.is_empty() {
        let name = &lab.lab.name;
        return Err(Failure::usage(format!(
            "choose nodes of lab `{name}`: no node is named\nHint: name nodes, groups or patterns, as in `{name} web,n1` or `{name} 'n*'`"
        )));
    }
    let chosen = lab.lab.select(words)?;
    Ok((lab, chosen))
}

/// A running lab and one node of it, from `[LAB] NODE`.
pub(crate) fn node(root: &StateRoot, words: &[String]) -> Result<(Running, NodeId), Failure> {
    let (lab, node) = match words {
        [node] => (running(root, None)?, node),
        [lab, node] => (running(root, Some(lab))?, node),
        _ => return Err(Failure::usage("find the node: write LAB NODE, or NODE where one lab runs")),
    };
    let index = one(&lab.lab, node)?;
    Ok((lab, index))
}

/// The node named `word`.
pub(crate) fn one(lab: &Lab, word: &str) -> Result<NodeId, Failure> {
    match lab.select(&[word])?.as_slice() {
        [index] => Ok(*index),
        several => Err(Failure::usage(format!(
            "choose one node: `{word}` means {} of them\nHint: name one, as in {}",
            several.len(),
            lab.nodes[several[0]].name
        ))),
    }
}

/// Names of nodes, for messages.
pub(crate) fn names(lab: &Lab, nodes: &[NodeId]) -> Vec<String> {
    nodes.iter().map(|&node| lab.nodes[node].name.clone()).collect()
}
