//! Programs in the form that the kernel takes.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt as _;

use super::entry::Entry;
use super::error::ExecError;
use super::program::{Program, User};

/// Where programs are looked for when the node's environment does not say.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program in the form that the kernel takes.
pub(super) struct Image {
    pub(super) name: String,
    pub(super) argv: Vec<CString>,
    pub(super) env: Vec<CString>,
    /// Tried in order.
    pub(super) paths: Vec<CString>,
    pub(super) workdir: CString,
    pub(super) user: Option<User>,
}

impl Image {
    pub(super) fn prepare(entry: &Entry, program: &Program, terminal: bool) -> Result<Self, ExecError> {
        let bad = |doing: &str, detail: &str| ExecError::Start {
            doing: doing.to_owned(),
            node: entry.node.clone(),
            detail: detail.to_owned(),
        };
        let c = |bytes: Vec<u8>| {
            CString::new(bytes).map_err(|_| bad("pass the arguments", "one contains a zero byte, which ends a string"))
        };
        let Some(first) = program.argv.first() else { return Err(bad("read the command", "it is empty")) };
        let env = environment(entry, program, terminal);
        let name = first.clone().into_vec();
        let paths = if name.contains(&b'/') {
            vec![c(name.clone())?]
        } else {
            let path = env.get("PATH").map_or(PATH, String::as_str);
            let beside = |folder: &str| [folder.as_bytes(), b"/", &name].concat();
            path.split(':')
                .filter(|folder| !folder.is_empty())
                .map(|folder| c(beside(folder)))
                .collect::<Result<_, _>>()?
        };
        let workdir = program.workdir.clone().unwrap_or_else(|| "/".into());
        Ok(Self {
            name: first.to_string_lossy().into_owned(),
            argv: program.argv.iter().map(|word| c(word.clone().into_vec())).collect::<Result<_, _>>()?,
            env: env
                .into_iter()
                .map(|(key, value)| c(format!("{key}={value}").into_bytes()))
                .collect::<Result<_, _>>()?,
            paths,
            workdir: c(workdir.into_os_string().into_vec())?,
            user: program.user,
        })
    }
}

/// The defaults, the node's own, then the program's; never the caller's, but for the kind of terminal that it sits at.
fn environment(entry: &Entry, program: &Program, terminal: bool) -> BTreeMap<String, String> {
    let home = if program.user.is_none_or(|user| user.uid == 0) { "/root" } else { "/" };
    let mut env: BTreeMap<String, String> = [("PATH", PATH), ("HOME", home), ("HOSTNAME", &entry.node)]
        .map(|(key, value)| (key.into(), value.into()))
        .into();
    if terminal {
        let kind = std::env::var("TERM").unwrap_or_else(|_| "xterm".to_owned());
        env.insert("TERM".to_owned(), kind);
    }
    env.extend(entry.env.clone());
    env.extend(program.env.clone());
    env
}
