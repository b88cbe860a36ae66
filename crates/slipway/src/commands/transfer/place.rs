//! Where a transfer comes from and goes to, as the command line writes it.

use std::path::Path;

use slipway_engine::state::StateRoot;

use crate::failure::Failure;
use crate::labs;

/// An end of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Side {
    /// This process.
    Here,
    /// Another machine, as `HOST:PATH` names it.
    Host(String),
    /// A node of a lab, as `LAB:NODE:PATH` names it.
    Node([String; 2]),
}

/// A transfer as it was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Course {
    /// The end that opens connections. It is here, or in a node.
    pub(super) client: Side,
    /// The end that listens. It is another machine, or a node.
    pub(super) server: Side,
    /// The client receives.
    pub(super) fetches: bool,
    /// Paths at the sender.
    pub(super) sources: Vec<String>,
    /// The directory at the receiver.
    pub(super) directory: String,
}

impl Course {
    pub(super) fn read(sources: &[String], destination: &str, root: &StateRoot) -> Result<Self, Failure> {
        let is_lab = |word: &str| Path::new(word).is_file() || !labs::is_file(word) && root.lab(word).exists();
        // A wrong lab's name is no host's where both ends are written as nodes.
        let only_nodes = sources.iter().map(String::as_str).chain([destination]).all(|word| node(word).is_some());
        let place = |word: &str| match node(word) {
            Some((lab, name, path)) if only_nodes || is_lab(lab) => {
                (Side::Node([lab.to_owned(), name.to_owned()]), path.to_owned())
            }
            _ => match split(word) {
                Some((host, path)) => (Side::Host(host.to_owned()), path.to_owned()),
                None => (Side::Here, word.to_owned()),
            },
        };
        let (receiver, directory) = place(destination);
        let mut from: Vec<(Side, String)> = sources.iter().map(|source| place(source)).collect();
        if matches!(receiver, Side::Host(_)) && from.iter().any(|(side, _)| matches!(side, Side::Host(_))) {
            // One side is a host already: names with colons are files of this machine.
            from = sources.iter().map(|source| (Side::Here, source.clone())).collect();
        }
        let sender = from.first().map_or(Side::Here, |(side, _)| side.clone());
        if from.iter().any(|(side, _)| *side != sender) {
            return Err(Failure::usage(
                "transfer from several machines\nHint: one command has one host or node; write each source as HOST:PATH or LAB:NODE:PATH",
            ));
        }
        let sources: Vec<String> = from.into_iter().map(|(_, path)| path).collect();
        from_root(&sender, &sources)?;
        from_root(&receiver, std::slice::from_ref(&directory))?;
        let (client, server, fetches) = match (sender, receiver) {
            (Side::Here, Side::Here) => {
                return Err(Failure::usage(format!(
                    "transfer to {destination}: neither side names a host\nHint: write HOST:PATH or LAB:NODE:PATH; `cp` copies within a machine"
                )));
            }
            // This process may be on the node's network; the node knows nothing of this machine's files.
            (server @ Side::Node(_), Side::Here) => (Side::Here, server, true),
            (client @ (Side::Here | Side::Node(_)), server) => (client, server, false),
            (server, client) => (client, server, true),
        };
        Ok(Self { client, server, fetches, sources, directory })
    }
}

/// Refuses paths in a node that depend on a folder to begin with.
fn from_root(side: &Side, paths: &[String]) -> Result<(), Failure> {
    match paths.iter().find(|path| matches!(side, Side::Node(_)) && !path.starts_with('/')) {
        Some(path) => Err(Failure::usage(format!(
            "find `{path}` in a node\nHint: write the path from /, as in LAB:NODE:/data"
        ))),
        None => Ok(()),
    }
}

/// Lab, node and path of `LAB:NODE:PATH`.
fn node(word: &str) -> Option<(&str, &str, &str)> {
    let (lab, rest) = word.split_once(':')?;
    let (node, path) = rest.split_once(':')?;
    (!lab.is_empty() && !node.is_empty() && !node.contains('/')).then_some((lab, node, path))
}

/// Host and directory of `HOST:DIRECTORY` and `[IPV6]:DIRECTORY`.
fn split(word: &str) -> Option<(&str, &str)> {
    let (host, directory) = match word.strip_prefix('[') {
        Some(rest) => rest.split_once("]:")?,
        None => word.split_once(':')?,
    };
    (!host.is_empty() && !host.contains('/')).then_some((host, directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_names_its_host() {
        assert_eq!(split("dtn2:/data"), Some(("dtn2", "/data")));
        assert_eq!(split("user@dtn2:in"), Some(("user@dtn2", "in")));
        assert_eq!(split("dtn2:"), Some(("dtn2", "")));
        assert_eq!(split("[fd00::1]:a:b"), Some(("fd00::1", "a:b")));
        for wrong in ["/data", "./a:b", "dir/a:b", ":x", "data"] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_lab_that_is_there_makes_a_node() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("demo")).expect("made");
        let root = StateRoot::at(folder.path());
        let read = |from: &str, to: &str| match Course::read(&[from.to_owned()], to, &root) {
            Ok(course) => format!("{:?} {:?} {}", course.client, course.server, course.fetches),
            Err(failure) => format!("{:?}", failure.exit()),
        };
        assert_eq!(read("a", "dtn2:in"), r#"Here Host("dtn2") false"#);
        assert_eq!(read("dtn2:out", "."), r#"Here Host("dtn2") true"#);
        assert_eq!(read("a:b", "dtn2:in"), r#"Here Host("dtn2") false"#);
        assert_eq!(read("dtn2:n1:/x", "."), r#"Here Host("dtn2") true"#);
        assert_eq!(read("demo:n1:/x", "demo:n2:/y"), r#"Node(["demo", "n1"]) Node(["demo", "n2"]) false"#);
        assert_eq!(read("gone:n1:/x", "gone:n2:/y"), r#"Node(["gone", "n1"]) Node(["gone", "n2"]) false"#);
        assert_eq!(read("demo:n1:/x", "dtn2:in"), r#"Node(["demo", "n1"]) Host("dtn2") false"#);
        assert_eq!(read("dtn2:x", "demo:n1:/y"), r#"Node(["demo", "n1"]) Host("dtn2") true"#);
        assert_eq!(read("x", "demo:n1:/y"), r#"Here Node(["demo", "n1"]) false"#);
        assert_eq!(read("demo:n1:/x", "y"), r#"Here Node(["demo", "n1"]) true"#);
        for wrong in [("x", "y"), ("demo:n1:x", "demo:n2:/y")] {
            assert_eq!(read(wrong.0, wrong.1), "Usage", "{wrong:?}");
        }
    }
}
