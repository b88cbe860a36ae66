//! Exit codes, and how they are documented.

use std::fmt::Write as _;

/// How slipway ends. The numbers are a promise to scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command succeeded.
    Success,
    /// The command failed.
    Failed,
    /// The arguments or the lab file are wrong; nothing was done.
    Usage,
    /// This machine or this user cannot do it.
    Unable,
    /// There is no such lab or node, or it does not run.
    NotFound,
    /// It did, but the machine could not keep up or a link was not as asked, and that was to be told (`--strict`).
    Strained,
    /// As the program that slipway ran ended, or 125 to 127 where it did not come to run.
    Program(u8),
}

impl Exit {
    const OWN: [(Self, &str); 6] = [
        (Self::Success, "done"),
        (Self::Failed, "failed"),
        (Self::Usage, "the arguments or the lab file are wrong; nothing was done"),
        (Self::Unable, "this machine lacks a privilege, driver or package"),
        (Self::NotFound, "no such lab or node, or it does not run"),
        (
            Self::Strained,
            "done, but the machine could not keep up, a link was not as asked (`--strict`), or points or files failed",
        ),
    ];

    /// The process's exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unable => 3,
            Self::NotFound => 4,
            Self::Strained => 5,
            Self::Program(code) => code,
        }
    }

    /// The table of all codes, for help and manual.
    pub(crate) fn table() -> String {
        let mut text = String::new();
        for (exit, meaning) in Self::OWN {
            let _ = writeln!(text, "  {:<7}  {meaning}", exit.code());
        }
        text.push_str(
            "  130,143  ended by Ctrl-C or SIGTERM; `up`, `run`, `play` and `compare` undo what they began\n",
        );
        text.push_str("A program in a node passes on its own code, or 128 and the number of the signal that ended\n");
        text.push_str("it. 127: there is no such program. 126: it cannot be executed. 125: Slipway cannot enter\n");
        text.push_str("the node.");
        text
    }
}
