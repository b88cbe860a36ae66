//! Python packages that a file asks for, each with its version.

/// Longest requirement in bytes.
const LONGEST: usize = 256;

/// Whether a text is a Python package with exactly one version, as in `numpy==2.4.0` or `dask[array]==2026.1.0` (PEP 508).
/// An index gives the same package for it tomorrow. Options of pip, addresses and paths are none.
#[must_use]
pub fn is_pinned(text: &str) -> bool {
    let Some((package, version)) = text.split_once("==") else { return false };
    let (name, extras) = match package.split_once('[') {
        Some((name, rest)) => match rest.strip_suffix(']') {
            Some(extras) => (name, extras.split(',').all(is_name)),
            None => return false,
        },
        None => (package, true),
    };
    // `*` would be any version with that beginning.
    let is_version = |c: char| c.is_ascii_alphanumeric() || ".!+_-".contains(c);
    let starts = version.starts_with(|c: char| c.is_ascii_alphanumeric());
    text.len() <= LONGEST && is_name(name) && extras && starts && version.chars().all(is_version)
}

/// Whether a text is the name of a package: letters and digits, with `-`, `_` and `.` between them.
fn is_name(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    ends(text.chars().next()) && ends(text.chars().next_back()) && text.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_version_of_a_named_package_is_pinned() {
        for text in ["numpy==2.4.0", "dask[array,dataframe]==2026.1.0", "a==1!2.0+local.1", "ruamel.yaml==0.18.6"] {
            assert!(is_pinned(text), "{text}");
        }
        let wrong =
            ["numpy", "numpy>=2", "numpy==", "==2", "numpy==2.*", "-r==x", "numpy == 2", "a==1 --pre", "a[b==1"];
        let wild = ["a @ file:///x==1", "../a==1", "a==1\n-e .", "a[]==1", "a==1;os_name=='x'", "a===1"];
        for text in wrong.iter().chain(&wild) {
            assert!(!is_pinned(text), "{text}");
        }
        assert!(!is_pinned(&format!("a=={}", "1".repeat(LONGEST))));
    }
}
