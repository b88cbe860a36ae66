//! The experiments of `examples/`, as short as they can be: each still goes from labs to a report. Needs root and the packages of
//! `scripts/setup.sh test`.

mod common;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use common::{Place, entries, told};

/// Runs an experiment's `run --quick`, which must succeed and leave no lab; gives its report.
#[track_caller]
fn quick(name: &str, options: &[&str]) -> String {
    quick_within(&[], name, options).0
}

/// The same through another program, such as `unshare`; with what it printed.
#[track_caller]
fn quick_within(outer: &[&str], name: &str, options: &[&str]) -> (String, String) {
    let place = Place::new();
    let slipway = Path::new(env!("CARGO_BIN_EXE_slipway")).parent().expect("it is in a folder");
    let path = std::env::var("PATH").expect("there is a PATH");
    let out = place.path().join("out");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).join("run");
    let words: Vec<&OsStr> = outer.iter().map(OsStr::new).chain([script.as_os_str()]).collect();
    let mut run = Command::new(words[0]);
    run.args(&words[1..]);
    place.furnish(&mut run);
    run.arg("--quick").args(options).arg("--out").arg(&out).env("PATH", format!("{}:{path}", slipway.display()));
    let output = run.output().expect("the experiment can be started");
    assert!(output.status.success(), "{name}: {}", told(&output));
    let labs = entries(&place.path().join("state")).filter(|path| !path.ends_with(".locks"));
    assert_eq!(labs.collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new(), "{name} takes its labs down");
    (std::fs::read_to_string(out.join("report.md")).expect("there is a report"), told(&output))
}

/// How many cells of a report's table have a figure or a word in them.
fn filled(report: &str, row: &str) -> usize {
    let row = report.lines().find(|line| line.starts_with(&format!("| {row}")));
    let cells = row.unwrap_or_else(|| panic!("{report}has a row {row:?}")).split('|').map(str::trim);
    cells.skip(2).filter(|cell| !cell.is_empty() && *cell != "–").count()
}

#[test]
fn load_balancing() {
    let report = quick("load-balancing", &[]);
    for platform in ["homogeneous", "heterogeneous", "changing"] {
        // Static, adaptive, their ratio, how often rows moved.
        assert!(filled(&report, platform) >= 4, "{report}");
    }
}

#[test]
#[ignore = "a minute"]
fn network_and_processors() {
    let report = quick("network-and-processors", &[]);
    for network in ["100 Mbit/s, 1 ms", "unshaped"] {
        assert_eq!(filled(&report, network), 2, "{report}");
    }
}

#[test]
#[ignore = "20 s, and for that long it changes which congestion control the whole machine allows"]
fn bbr_and_cubic() {
    let report = quick("bbr-and-cubic", &["--allow"]);
    for loss in ["0 %", "0.1 %"] {
        assert!(filled(&report, loss) >= 1, "{report}");
    }
}

#[test]
#[ignore = "a minute, most of it waiting for what hangs"]
fn failure_detection() {
    let report = quick("failure-detection", &[]);
    let said = |row: &str| report.lines().find(|line| line.starts_with(row)).unwrap_or_default().to_owned();
    assert_eq!(said("| Open MPI, by the agent").matches("detected, aborted").count(), 2, "{report}");
    // Nothing tells of a node that vanished.
    assert!(said("| Open MPI, by ssh").ends_with("**not** detected, hangs beyond 20 s |"), "{report}");
}

#[test]
fn dtn() {
    let report = quick("dtn", &["buffers", "journal"]);
    for row in ["1 stream, buffers 384KiB, cubic", "fdatasync, 256KiB"] {
        // The figure, its ratio to the limit, what was saturated.
        assert_eq!(filled(&report, row), 3, "{report}");
    }
}

/// Both of these run where they can, and say why not elsewhere. In a process namespace of its own, the kernel parameters of the
/// machine are not this shell's to change.
#[test]
fn dtn_leaves_out_what_this_machine_cannot() {
    let nodes = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let nodes = nodes.filter(|node| node.file_name().to_string_lossy().starts_with("node")).count();
    let (_, told) = quick_within(&["unshare", "--pid", "--fork", "--mount-proc"], "dtn", &["dirty"]);
    assert!(told.contains("dirty is left out: the kernel parameters of this machine are not"), "{told}");
    let (report, told) = quick_within(&[], "dtn", &["placement"]);
    if nodes < 2 {
        assert!(told.contains("placement is left out: this machine has one NUMA node"), "{told}");
    } else {
        assert!(report.contains("## placement"), "{report}");
    }
}

#[test]
#[ignore = "for some seconds it changes vm.dirty_ratio and vm.dirty_background_ratio of the whole machine"]
fn dtn_dirty() {
    let before = dirty_ratios();
    let report = quick("dtn", &["dirty"]);
    assert!(report.contains("vm.dirty_ratio"), "{report}");
    assert_eq!(dirty_ratios(), before, "the former values are back");
}

fn dirty_ratios() -> [String; 2] {
    ["dirty_ratio", "dirty_background_ratio"]
        .map(|name| std::fs::read_to_string(format!("/proc/sys/vm/{name}")).expect("a parameter"))
}
