//! Files of nodes on other machines.

mod common;

use std::fs;

use common::machines::Machines;

#[test]
fn files_go_to_nodes_of_other_machines_and_back() {
    let machines = Machines::new(3);
    let file = machines.file("files", "nodes: {n: {count: 3}}\n");
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    let path = |name: &str| machines.path().join(name).display().to_string();
    fs::create_dir(path("data")).expect("made");
    let content: Vec<u8> = (0..2_000_000_u32).map(|number| u8::try_from(number % 251).expect("small")).collect();
    fs::write(path("data/a  b"), &content).expect("written");
    machines.run(0, ["copy", &path("data"), "files:n3:/root/data"]);
    machines.run(1, ["copy", "files:n3:/root/data", &path("back")]);
    assert!(fs::read(path("back/a  b")).expect("it is there") == content);
    let said = machines.fails(0, 1, ["copy", "files:n2:/no/such", &path("nothing")]);
    assert!(said.contains("in node `n2`: open folder /no"), "{said}");

    let saved = machines.run(0, ["save", "files", "n3", &path("new.tar")]);
    assert!(saved.contains("saved 4 changes"), "{saved}");
    let archive = fs::read(path("new.tar")).expect("it is there");
    assert!(archive.windows(9).any(|bytes| bytes == b"data/a  b"), "the file that was copied");
    std::os::unix::fs::symlink(machines.path(), path("link")).expect("linked");
    let said = machines.fails(0, 1, ["save", "files", "n3", &path("link/new.tar.gz")]);
    assert!(said.contains("a symbolic link lies on the way"), "{said}");
    assert!(!machines.path().join("new.tar.gz").exists());
    let said = machines.fails(0, 1, ["save", "files", "n3", &path("small.tar"), "--max-size", "1MiB"]);
    assert!(said.contains("it becomes larger than"), "{said}");
    assert!(!machines.path().join("small.tar").exists());
    machines.run(0, ["down", "files"]);
    assert_eq!(machines.remains(), [""; 0]);
}
