//! Planning large labs: `slipway up --dry-run`, which reads, resolves and checks a lab file.
//! `cargo bench -p slipway --bench bench -- plan`.

use std::fmt::Write as _;

use nix::sys::resource::{UsageWho, getrusage};

use slipway_machines::packed::Packed;

use super::common::{Slipway, Way, arg, compare, less, seconds};

/// Distem's published record: 40,000 nodes on 168 machines.
const MACHINES: usize = 168;

pub(super) fn run() {
    let slipway = Slipway::new();
    let mut files = Vec::new();
    for nodes in [1_000, 10_000, 40_000] {
        // The first is this one: a lab is planned on one of its machines.
        let mut text = String::from("machines:\n  m0: 127.0.0.1\n");
        for number in 1..MACHINES {
            let _ = writeln!(text, "  m{number}: 198.18.{}.{}", number / 200, number % 200 + 1);
        }
        let _ = write!(text, "networks: {{net: vxlan}}\nnodes:\n  n: {{count: {nodes}}}\n");
        files.push((format!("{nodes} nodes"), slipway.lab(&format!("plan{nodes}"), &text)));
    }
    let mut ways: Vec<Way<'_>> = Vec::new();
    for (name, file) in &files {
        let slipway = &slipway;
        ways.push(Way::new(name, move || {
            let took = seconds(|| drop(slipway.run(&["up", "--quiet", "--dry-run", arg(file)])));
            vec![less("time", "s", took)]
        }));
    }
    compare(&format!("Planning a lab over {MACHINES} machines"), 5, &mut ways);
    for (name, file) in &files {
        let text = std::fs::read_to_string(file).expect("the file is there");
        let lab = slipway_lab::parse("lab.yaml", &text, std::path::Path::new("/")).expect("a lab");
        let (mut bytes, mut back) = (0, 0);
        let packing = seconds(|| bytes = Packed::new(&lab).expect("a lab is packed").bytes());
        let packed = Packed::new(&lab).expect("a lab is packed");
        let unpacking = seconds(|| back = packed.lab().expect("it comes out").nodes.len());
        println!(
            "{name}: {} KiB to each machine, packed once in {packing:.2} s, unpacked in {unpacking:.2} s ({back} nodes).",
            bytes / 1024
        );
    }
    let most = getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| usage.max_rss());
    println!("The largest took {} MiB of memory at most.", most / 1024);
}
