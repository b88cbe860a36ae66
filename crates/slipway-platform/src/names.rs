//! Names as a lab file takes them.

use std::collections::HashSet;

/// With room for a number behind it.
const LONGEST: usize = 27;

/// Names that are in use.
#[derive(Debug, Default)]
pub(super) struct Names(HashSet<String>);

impl Names {
    /// A name of its own for what is called `wanted` elsewhere: itself where that will do.
    pub(super) fn give(&mut self, wanted: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let name: String = wanted.chars().map(plain).take(LONGEST).collect();
        let mut name = name.trim_matches('-').to_owned();
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) || name == "localhost" {
            name.insert_str(0, if name.is_empty() { "n" } else { "n-" });
        }
        let again = (2u32..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone()).chain(again).find(|name| self.0.insert(name.clone()));
        free.unwrap_or(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_host_names() {
        let mut names = Names::default();
        let given = ["n1", "Tremblay", "node-0.simgrid.org", "node_0 simgrid org", "9", "", "localhost", "é"];
        let given = given.map(|name| names.give(name));
        let expected =
            ["n1", "tremblay", "node-0-simgrid-org", "node-0-simgrid-org-2", "n-9", "n", "n-localhost", "n-2"];
        assert_eq!(given, expected);
    }
}
