use std::ffi::OsString;

use slipway_sys::process::ProcessId;

use super::entry::Entry;
use super::image::Image;
use super::program::Program;
use super::running::Exit;

fn entry() -> Entry {
    Entry {
        node: "n1".to_owned(),
        init: ProcessId { pid: i32::MAX, start: 1 },
        group: None,
        env: [("A", "node"), ("B", "node")].map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        capabilities: Vec::new(),
        supervised: None,
    }
}

fn program(words: &[&str]) -> Program {
    Program { argv: words.iter().map(OsString::from).collect(), ..Program::default() }
}

fn env_of(program: &Program, terminal: bool) -> Vec<String> {
    let image = Image::prepare(&entry(), program, terminal).expect("fine");
    image.env.iter().map(|one| one.to_string_lossy().into_owned()).collect()
}

#[test]
fn a_name_is_looked_up_in_the_path_of_its_environment() {
    let mut sh = program(&["sh", "-c", "true"]);
    sh.env.insert("PATH".to_owned(), "/x::/y".to_owned());
    let image = Image::prepare(&entry(), &sh, false).expect("fine");
    assert_eq!(image.paths, [c"/x/sh".to_owned(), c"/y/sh".to_owned()]);
    let image = Image::prepare(&entry(), &program(&["./sh"]), false).expect("fine");
    assert_eq!(image.paths, [c"./sh".to_owned()]);
}

#[test]
fn the_environment_is_the_nodes_then_the_programs_and_never_the_callers() {
    let mut sh = program(&["sh"]);
    sh.env.insert("B".to_owned(), "program".to_owned());
    let env = env_of(&sh, false);
    assert!(env.contains(&"A=node".to_owned()) && env.contains(&"B=program".to_owned()), "{env:?}");
    assert!(env.contains(&"HOSTNAME=n1".to_owned()) && env.contains(&"HOME=/root".to_owned()), "{env:?}");
    assert_eq!(env.len(), 5, "{env:?}");
    assert_eq!(env_of(&sh, true).len(), 6, "with a terminal there is TERM too");
}

#[test]
fn what_cannot_be_executed_is_refused_before_anything_happens() {
    for wrong in [program(&[]), program(&["a\0b"]), program(&["sh", "a\0b"])] {
        let Err(error) = Image::prepare(&entry(), &wrong, false) else { panic!("{wrong:?}") };
        assert_eq!(error.code(), 125);
    }
}

#[test]
fn exit_codes_are_a_shells() {
    assert_eq!(Exit::Code(3).code(), 3);
    assert_eq!(Exit::Signal(9).code(), 137);
}
