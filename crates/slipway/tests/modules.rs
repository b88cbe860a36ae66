//! The modules of each crate form layers: at no level do siblings import each other in a circle.
//!
//! The test reads sources. Paths that begin with `crate`, `self` or `super` lead to modules, also by way of names that a
//! module imports. Code for tests alone does not count, and neither does what a module shares with those inside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Circles that there are still: a crate, the module whose parts they are (empty for the crate itself), and those parts.
/// Take out what you break. Nothing is added.
const STILL: &[(&str, &str, &str)] = &[];

/// Crates whose modules are being put in order, and are not looked at yet.
const NOT_YET: &[&str] = &[];

/// Path of a module from its crate's root.
type Module = Vec<String>;

/// A crate's modules.
#[derive(Default)]
struct Sources {
    /// Without comments, literals and tests.
    texts: BTreeMap<Module, String>,
    /// What a name in a module stands for, where it imports it.
    imports: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
}

#[test]
fn no_circles() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of crates");
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(crates).expect("the crates") {
        let folder = entry.expect("a crate").path();
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        if NOT_YET.contains(&name.as_str()) {
            continue;
        }
        for (level, parts) in Sources::read(&folder.join("src")).circles() {
            found.insert((name.clone(), level.join("::"), parts.into_iter().collect::<Vec<_>>().join(" ")));
        }
    }
    let still: BTreeSet<(String, String, String)> =
        STILL.iter().map(|&(name, level, parts)| (name.to_owned(), level.to_owned(), parts.to_owned())).collect();
    let within = |parts: &str, all: &str| parts.split(' ').all(|part| all.split(' ').any(|one| one == part));
    let known = |(name, level, parts): &&(String, String, String)| {
        still.iter().any(|of| (&of.0, &of.1) == (name, level) && within(parts, &of.2))
    };
    let new: Vec<_> = found.iter().filter(|circle| !known(circle)).collect();
    assert!(new.is_empty(), "modules import each other in a circle: {new:#?}");
    let is_there = |(name, level, parts): &&(String, String, String)| {
        found.iter().any(|of| (&of.0, &of.1) == (name, level) && within(&of.2, parts))
    };
    let gone: Vec<_> = still.iter().filter(|circle| !is_there(circle)).collect();
    assert!(gone.is_empty(), "take these out of the list, they are broken: {gone:#?}");
}

#[test]
fn a_circle_is_found_whichever_way_it_is_written() {
    let circles = |texts: &[(&str, &str)]| {
        let mut sources = Sources::default();
        for (module, text) in texts {
            let module: Module = module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
            sources.texts.insert(module, plain(text));
        }
        sources.link();
        sources.circles().into_iter().map(|(_, parts)| parts.into_iter().collect::<String>()).collect::<Vec<_>>()
    };
    let both = |a, b| circles(&[("", ""), ("a", a), ("b", b)]);
    assert_eq!(both("use crate::b::X;", "fn f() -> super::a::Y {}"), ["ab"]);
    assert_eq!(both("use crate::{c, b::{X, Y}};", "use super::{a as z};"), ["ab"]);
    assert_eq!(both("use crate::b;", "// crate::a\n/* crate::a */ const T: &str = \"crate::a\";"), [""; 0]);
    assert_eq!(both("use crate::b;", "#[cfg(test)]\nmod tests { use crate::a; }"), [""; 0]);
    let shared =
        [("", "pub use a::X;"), ("a", "use crate::b;"), ("b", "use crate::X;"), ("b::c", "use super::super::X;")];
    assert_eq!(circles(&shared), ["ab"]);
    let inside =
        [("", ""), ("a", "use a::b;"), ("a::b", "use super::c::X; use super::Y;"), ("a::c", "use crate::a::b;")];
    assert_eq!(circles(&inside), ["bc"]);
}

impl Sources {
    fn read(folder: &Path) -> Self {
        let mut sources = Self::default();
        sources.read_folder(folder, &Vec::new());
        sources.link();
        sources
    }

    fn read_folder(&mut self, folder: &Path, within: &Module) {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let mut module = within.clone();
            if !matches!(stem.as_str(), "lib" | "main" | "mod") {
                module.push(stem.clone());
            }
            if path.is_dir() && stem == "tests" {
                // Parts of modules for tests.
            } else if path.is_dir() {
                self.read_folder(&path, &module);
            } else if path.extension().is_some_and(|extension| extension == "rs") && stem != "tests" {
                let text = fs::read_to_string(&path).expect("a source");
                self.texts.insert(module, plain(&text));
            }
        }
    }

    /// Notes what modules import.
    fn link(&mut self) {
        for (module, text) in &self.texts {
            let names = self.imports.entry(module.clone()).or_default();
            for (at, _) in text.match_indices("use ") {
                let starts_a_word = text[..at].chars().next_back().is_none_or(|before| !is_of_name(before));
                if starts_a_word {
                    for (path, name) in tree(&text[at + 4..]) {
                        names.insert(name, absolute(module, &path, |child| is_child(&self.texts, module, child)));
                    }
                }
            }
        }
    }

    /// The module that a path leads to.
    fn target(&self, path: &[String], depth: usize) -> Module {
        let mut module = Module::new();
        for (at, part) in path.iter().enumerate() {
            if is_child(&self.texts, &module, part) {
                module.push(part.clone());
                continue;
            }
            let import = self.imports.get(&module).and_then(|names| names.get(part));
            return match import.filter(|import| depth > 0 && import.first() != Some(&"?".to_owned())) {
                Some(import) => self.target(&[import, &path[at + 1..]].concat(), depth - 1),
                None => module,
            };
        }
        module
    }

    /// Parts of a module that import each other in a circle, with that module.
    fn circles(&self) -> Vec<(Module, BTreeSet<String>)> {
        let mut edges: BTreeMap<Module, BTreeSet<(String, String)>> = BTreeMap::new();
        for (module, text) in &self.texts {
            for start in ["crate::", "super::", "self::"] {
                for (at, _) in text.match_indices(start) {
                    if text[..at].chars().next_back().is_some_and(|before| is_of_name(before) || before == ':') {
                        continue;
                    }
                    for (path, _) in tree(&text[at..]) {
                        let path = absolute(module, &path, |_| false);
                        let target = self.target(&path, 8);
                        let common = module.iter().zip(&target).take_while(|(one, other)| one == other).count();
                        if let (Some(from), Some(to)) = (module.get(common), target.get(common)) {
                            let level = edges.entry(module[..common].to_vec()).or_default();
                            level.insert((from.clone(), to.clone()));
                        }
                    }
                }
            }
        }
        edges
            .into_iter()
            .flat_map(|(level, edges)| circles(&edges).into_iter().map(move |c| (level.clone(), c)))
            .collect()
    }
}

/// Sets of those that reach each other.
fn circles(edges: &BTreeSet<(String, String)>) -> BTreeSet<BTreeSet<String>> {
    let all: BTreeMap<&str, BTreeSet<&str>> =
        edges.iter().map(|(from, _)| (from.as_str(), reached(edges, from))).collect();
    let own = all.iter().filter(|(from, reached)| reached.contains(*from));
    own.map(|(from, reached)| {
        let back = |to: &&&str| all.get(**to).is_some_and(|further| further.contains(from));
        reached.iter().filter(back).map(|to| (*to).to_owned()).collect()
    })
    .collect()
}

fn reached<'e>(edges: &'e BTreeSet<(String, String)>, from: &'e str) -> BTreeSet<&'e str> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(one) = next.pop() {
        let further = edges.iter().filter(|(of, _)| of == one).map(|(_, to)| to.as_str());
        next.extend(further.filter(|to| seen.insert(*to)));
    }
    seen
}

fn is_child(texts: &BTreeMap<Module, String>, module: &Module, name: &str) -> bool {
    let mut child = module.clone();
    child.push(name.to_owned());
    texts.contains_key(&child)
}

/// A path from the crate's root. That of another crate begins with `?`.
fn absolute(module: &Module, path: &[String], is_child: impl Fn(&str) -> bool) -> Vec<String> {
    let mut base = module.clone();
    let mut rest = path;
    match rest.first().map(String::as_str) {
        Some("crate") => (base, rest) = (Module::new(), &rest[1..]),
        Some("self" | "super") => {}
        Some(first) if is_child(first) => {}
        _ => return vec!["?".to_owned()],
    }
    while let Some(first) = rest.first() {
        match first.as_str() {
            "self" => {}
            "super" => drop(base.pop()),
            _ => break,
        }
        rest = &rest[1..];
    }
    [&base, rest].concat()
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The paths of a `use` tree, or of an expression, at the beginning of a text; each with the name that it is imported as.
fn tree(text: &str) -> Vec<(Vec<String>, String)> {
    let mut paths = Vec::new();
    branch(text.trim_start(), &[], &mut paths);
    paths
}

/// Reads one branch and gives what follows it.
fn branch<'t>(mut text: &'t str, before: &[String], paths: &mut Vec<(Vec<String>, String)>) -> &'t str {
    let mut path = before.to_vec();
    loop {
        if let Some(mut inside) = text.strip_prefix('{') {
            loop {
                inside = branch(inside.trim_start(), &path, paths).trim_start();
                match inside.chars().next() {
                    Some(',') => inside = inside[1..].trim_start(),
                    Some('}') => return &inside[1..],
                    _ => return inside,
                }
                if let Some(rest) = inside.strip_prefix('}') {
                    return rest;
                }
            }
        }
        let end = text.find(|character| !is_of_name(character)).unwrap_or(text.len());
        if end > 0 {
            path.push(text[..end].to_owned());
        }
        let rest = &text[end..];
        match rest.strip_prefix("::") {
            Some(more) if end > 0 => text = more,
            _ => {
                if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
                    path.pop();
                }
                let renamed = rest.trim_start().strip_prefix("as ").map(str::trim_start);
                let name = renamed.map(|name| name[..name.find(|c| !is_of_name(c)).unwrap_or(name.len())].to_owned());
                let rest = renamed.map_or(rest, |name| &name[name.find(|c| !is_of_name(c)).unwrap_or(name.len())..]);
                if path.len() > before.len() || end > 0 {
                    let last = path.last().cloned().unwrap_or_default();
                    paths.push((path, name.unwrap_or(last)));
                }
                return rest;
            }
        }
    }
}

/// A source without comments, literals and modules of tests.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after_name = plain.chars().next_back().is_some_and(is_of_name);
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if !after_name && (rest.starts_with("r\"") || rest.starts_with("r#")) && raw(rest).is_some() {
            raw(rest).unwrap_or(1)
        } else if first == '"' {
            quoted(rest)
        } else if rest.starts_with("'\\") {
            // The escaped character may itself be a quotation mark.
            rest.get(3..).and_then(|rest| rest.find('\'')).map_or(1, |end| end + 4)
        } else if first == '\'' && rest.chars().nth(2) == Some('\'') {
            rest.char_indices().nth(3).map_or(rest.len(), |(end, _)| end)
        } else {
            plain.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        rest = &rest[skip..];
    }
    while let Some(at) = plain.find("#[cfg(test)]") {
        let after = at + "#[cfg(test)]".len();
        let end = match (plain[after..].find('{'), plain[after..].find(';')) {
            (Some(open), semicolon) if semicolon.is_none_or(|semicolon| open < semicolon) => {
                closing(&plain, after + open)
            }
            (_, Some(semicolon)) => after + semicolon + 1,
            _ => plain.len(),
        };
        plain.replace_range(at..end, "");
    }
    plain
}

fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of a raw string; `None` for a raw name.
fn raw(text: &str) -> Option<usize> {
    let marks = text[1..].bytes().take_while(|&byte| byte == b'#').count();
    let begin = 1 + marks;
    let end = format!("\"{}", "#".repeat(marks));
    let content = text[begin..].strip_prefix('"')?;
    Some(content.find(&end).map_or(text.len(), |at| begin + 1 + at + end.len()))
}

/// Where the block that opens at `open` has ended.
fn closing(text: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, character) in text[open..].char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 1 => return open + at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}
