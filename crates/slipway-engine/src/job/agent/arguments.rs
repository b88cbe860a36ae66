//! The part of ssh's command line that launchers use.

use super::error::AgentError;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) host: String,
    /// For `sh -c`: the words joined by spaces, as `ssh(1)` joins them.
    pub(super) command: String,
    /// `-n`: the command reads nothing.
    pub(super) no_input: bool,
}

/// Options of `ssh(1)` that take a value. All others stand alone.
const WITH_VALUE: &str = "BbcDEeFIiJLlmOoPpQRSWw";

/// Reads a command line, program name first. Options may come before the host and, as `charmrun` writes them, after it.
pub(super) fn parse(argv: &[String]) -> Result<Call, AgentError> {
    let mut words = argv.iter().skip(1).map(String::as_str).peekable();
    let mut no_input = false;
    let mut host = None;
    let mut command = Vec::new();
    while let Some(word) = words.next() {
        match word.strip_prefix('-') {
            Some("-") => {
                command.extend(words.by_ref());
                break;
            }
            Some(letters) if !letters.is_empty() => {
                let mut letters = letters.chars();
                while let Some(letter) = letters.next() {
                    no_input |= letter == 'n';
                    if WITH_VALUE.contains(letter) {
                        // The value is the rest of the word (`-oBatchMode=yes`), or the next one.
                        if letters.as_str().is_empty() && words.next().is_none() {
                            return Err(AgentError::NoValue(letter));
                        }
                        break;
                    }
                }
            }
            _ if host.is_none() => host = Some(word),
            _ => {
                command.push(word);
                command.extend(words.by_ref());
            }
        }
    }
    let mut command = command.into_iter();
    // After `--` the host may still be to come.
    let Some(host) = host.or_else(|| command.next()) else {
        return Err(AgentError::NoHost);
    };
    let command = command.collect::<Vec<_>>().join(" ");
    if command.is_empty() {
        return Err(AgentError::NoCommand(host.to_owned()));
    }
    let host = host.rsplit_once('@').map_or(host, |(_user, host)| host);
    Ok(Call { host: host.to_owned(), command, no_input })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(line: &str) -> Result<Call, AgentError> {
        parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    fn call(host: &str, command: &str, no_input: bool) -> Call {
        Call { host: host.to_owned(), command: command.to_owned(), no_input }
    }

    #[test]
    fn launchers_are_understood() {
        for (line, expected) in [
            // Open MPI.
            ("agent n2 PATH=/x ; orted -mca ess env", call("n2", "PATH=/x ; orted -mca ess env", false)),
            // MPICH's hydra.
            (
                "agent -x n2 \"/usr/bin/hydra_pmi_proxy\" --control-port n1:4",
                call("n2", "\"/usr/bin/hydra_pmi_proxy\" --control-port n1:4", false),
            ),
            // Charm++.
            (
                "agent n2 -l root -o KbdInteractiveAuthentication=no -o StrictHostKeyChecking=no /bin/bash -f",
                call("n2", "/bin/bash -f", false),
            ),
            ("agent -nqoBatchMode=yes -p 22 root@n3 true", call("n3", "true", true)),
            ("agent -q -- n3 ls -l", call("n3", "ls -l", false)),
        ] {
            assert_eq!(parsed(line).expect(line), expected);
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        for line in ["agent", "agent -x", "agent n2", "agent -l", "agent n2 -l root"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_command_line_is_too_strange(argv in prop::collection::vec("[-a-z@ ]{0,4}", 0..8)) {
            let _ = parse(&argv);
        }
    }
}
