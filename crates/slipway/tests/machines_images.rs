//! Images and shared folders on the machines of a lab.
//!
//! Needs root, iproute2, openssh-server and a static busybox.

use std::fs;
use std::path::PathBuf;

mod common;

use common::machines::Machines;
use common::told;

/// Folders of images that other machines sent to machine `name`.
fn carried(machines: &Machines, name: &str) -> Vec<PathBuf> {
    let store = machines.path().join(name).join("images/carried");
    let all = fs::read_dir(store).into_iter().flatten().flatten();
    all.map(|entry| entry.path()).collect()
}

#[test]
fn images_reach_each_machine_once() {
    let machines = Machines::new(4);
    // Only the first machine sees these files: the others' `/srv` is their own.
    let own = machines.path().join("only");
    for number in 1..4 {
        machines.hide(number, &own);
    }
    let bin = own.join("small/bin");
    fs::create_dir_all(&bin).expect("made");
    fs::copy("/bin/busybox", bin.join("busybox")).expect("busybox is there (busybox-static)");
    for name in ["sh", "cat", "sleep"] {
        std::os::unix::fs::symlink("busybox", bin.join(name)).expect("linked");
    }
    fs::create_dir(own.join("small/etc")).expect("made");
    fs::write(own.join("small/etc/made"), "here\n").expect("written");
    let archive = own.join("small.tar.gz");
    let tar =
        std::process::Command::new("tar").arg("-czf").arg(&archive).arg("-C").arg(own.join("small")).arg(".").status();
    assert!(tar.expect("tar runs").success());
    let text = format!(
        "images: {{folder: {0}/small, archive: {0}/small.tar.gz}}\nnetworks: {{net: bridge}}\nnodes:\n  f: {{count: 4, image: folder}}\n  t: {{count: 4, image: archive}}\n",
        own.display()
    );
    let file = machines.file("carried", &text);
    let up = machines.slipway(0, ["up", file.to_str().expect("plain")]).output().expect("slipway runs");
    // Machine d has it from b.
    assert!(up.status.success() && !told(&up).contains("from here instead"), "{}", told(&up));
    for node in ["f1", "f2", "f3", "f4", "t1", "t2", "t3", "t4"] {
        assert_eq!(machines.run(0, ["exec", "carried", node, "--", "cat", "/etc/made"]), "here\n");
    }
    assert!(carried(&machines, "a").is_empty(), "it has them already");
    for name in ["b", "c", "d"] {
        assert_eq!(carried(&machines, name).len(), 2);
        assert!(carried(&machines, name).iter().all(|folder| folder.join(".whole").exists()));
    }
    machines.run(0, ["down", "--quiet", "carried"]);
    assert!(machines.remains().is_empty(), "{:?}", machines.remains());

    // Half of an image, as a cut leaves it: what is missing comes, and another lab finds it.
    let folder = carried(&machines, "c").into_iter().find(|folder| folder.join("small").is_dir()).expect("sent");
    fs::remove_file(folder.join(".whole")).expect("removed");
    fs::write(folder.join("small/etc/made"), "els").expect("written");
    machines.run(0, ["up", "--quiet", file.to_str().expect("plain")]);
    assert_eq!(machines.run(0, ["exec", "carried", "f3", "--", "cat", "/etc/made"]), "here\n");
    assert_eq!(carried(&machines, "c").len(), 2);
    machines.run(0, ["down", "--quiet", "carried"]);
}

#[test]
fn an_image_that_cannot_be_sent_is_one_error_and_nothing_is_made() {
    let machines = Machines::new(3);
    let own = machines.path().join("only");
    for number in 1..3 {
        machines.hide(number, &own);
    }
    fs::create_dir(own.join("root")).expect("made");
    // A machine without room: a file lies where its store would keep images.
    fs::create_dir_all(machines.path().join("b/images")).expect("made");
    fs::write(machines.path().join("b/images/carried"), "").expect("written");
    let text = format!("images: {{i: {}/root}}\nnodes:\n  n: {{count: 3, image: i}}\n", own.display());
    let file = machines.file("unsent", &text);
    let said = machines.fails(0, 1, ["up", "--quiet", file.to_str().expect("plain")]);
    assert!(said.contains("machine b") && said.contains("images/carried"), "{said}");
    assert!(machines.remains().is_empty(), "{:?}", machines.remains());
}

#[test]
fn a_shared_folder_is_the_same_on_all_machines_or_nothing_is_made() {
    let machines = Machines::new(3);
    let home = machines.path().join("home");
    fs::create_dir(&home).expect("made");
    let text =
        format!("nodes:\n  n: {{count: 3, mounts: [{{source: {}, target: /home, shared: true}}]}}\n", home.display());
    let file = machines.file("homes", &text);
    let file = file.to_str().expect("plain");
    machines.run(0, ["up", "--quiet", file]);
    machines.run(1, ["exec", "homes", "n1", "--", "sh", "-c", "echo seen > /home/by-all"]);
    assert_eq!(machines.run(1, ["exec", "homes", "n3", "--", "cat", "/home/by-all"]), "seen\n");
    machines.run(2, ["down", "--quiet", "homes"]);

    machines.hide(2, &home);
    let said = machines.fails(0, 1, ["up", "--quiet", file]);
    assert!(said.contains("is not the same folder on c\n"), "{said}");
    assert!(machines.remains().is_empty(), "{:?}", machines.remains());
    let left: Vec<_> = fs::read_dir(&home).expect("there").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["by-all"]);
}
