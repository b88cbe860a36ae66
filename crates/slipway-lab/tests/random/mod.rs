//! Random lab files and edits, for property tests here and in `slipway-platform`.

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// The texts of a folder's files, by name.
pub(super) fn files_below(folder: impl AsRef<Path>) -> Vec<String> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

/// A change of a text.
#[derive(Debug, Clone)]
pub(super) enum Edit {
    Delete(usize),
    Insert(usize, String),
    SwapLines(usize, usize),
    CopyLine(usize, usize),
}

pub(super) fn edit() -> impl Strategy<Value = Edit> {
    let snippet = prop_oneof![
        "[ -~]{1,4}",
        prop::sample::select(vec![
            "\t",
            "\n",
            "  ",
            "- ",
            ": ",
            "{",
            "}",
            "[",
            "]",
            "&a ",
            "*a",
            "!!str ",
            "? ",
            "\"",
            "'",
            "|\n",
            ">\n",
            "---\n",
            "\u{feff}",
            "\0",
            "é",
            "null",
            "~",
            "-1",
            "99999999999",
            "1e9",
            "0x10",
            "10.0.0.0/8",
            "::/0",
            "%YAML 1.2\n",
            "<<: ",
        ])
        .prop_map(str::to_owned),
    ];
    prop_oneof![
        any::<usize>().prop_map(Edit::Delete),
        (any::<usize>(), snippet).prop_map(|(at, text)| Edit::Insert(at, text)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Edit::SwapLines(a, b)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Edit::CopyLine(a, b)),
    ]
}

pub(super) fn apply(text: &str, edit: &Edit) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    match edit {
        Edit::Delete(at) if !letters.is_empty() => {
            letters.remove(at % letters.len());
            letters.into_iter().collect()
        }
        Edit::Insert(at, snippet) => {
            let at = at % (letters.len() + 1);
            letters[..at].iter().chain(&snippet.chars().collect::<Vec<_>>()).chain(&letters[at..]).collect()
        }
        Edit::SwapLines(a, b) if !lines.is_empty() => {
            let (a, b) = (a % lines.len(), b % lines.len());
            lines.swap(a, b);
            lines.concat()
        }
        Edit::CopyLine(from, to) if !lines.is_empty() => {
            let (from, to) = (from % lines.len(), to % lines.len());
            lines.insert(to, lines[from]);
            lines.concat()
        }
        _ => text.to_owned(),
    }
}

/// A right lab of bridges and vxlans over a few hosts. JSON, which is YAML too.
pub(super) fn right_lab() -> impl Strategy<Value = Value> {
    let drivers = prop::sample::select(vec!["bridge", "ovs", "vxlan", "macvlan"]);
    let networks = vec((drivers, any::<bool>()), 1..4);
    (networks, 1u32..5, prop::sample::select(vec!["spread", "pack"]), vec(any::<(u8, u8, bool, u8)>(), 1..8)).prop_map(
        |(networks, hosts, placement, groups)| {
            let network = |(i, (driver, ipv6)): (usize, &(&str, bool))| {
                (format!("net{i}"), json!({"driver": driver, "ipv6": ipv6}))
            };
            let declared: Map<String, Value> = networks.iter().enumerate().map(network).collect();
            let group = |(i, (count, on, gateway, address)): (usize, (u8, u8, bool, u8))| {
                let mut on: Vec<usize> = (0..networks.len()).filter(|n| on >> n & 1 == 1).collect();
                if on.is_empty() {
                    on.push(0);
                }
                let mut members = Map::new();
                for network in &on {
                    // Far apart, so that groups do not meet: a group may go on into the next /24.
                    let asked = format!("10.{}.{}.{}", 64 + network, 100 + 2 * i, address.max(1));
                    let member = if address % 3 == 0 { json!({"ipv4": asked}) } else { Value::Null };
                    members.insert(format!("net{network}"), member);
                }
                let mut node = json!({"networks": members, "gateway": gateway && on.len() > 1});
                if count % 4 > 0 {
                    node["count"] = json!(count % 20 + 1);
                }
                (format!("g{}-", char::from(b'a' + u8::try_from(i).unwrap())), node)
            };
            let nodes: Map<String, Value> = groups.into_iter().enumerate().map(group).collect();
            json!({"lab": "random", "hosts": hosts, "placement": placement, "networks": declared, "nodes": nodes})
        },
    )
}

/// Keys that need no other, some of them with `none`.
pub(super) fn some_conditions() -> impl Strategy<Value = Map<String, Value>> {
    let values = [
        ("delay", vec![json!("20ms"), json!("1.5s"), json!("none")]),
        (
            "loss",
            vec![json!("0.05%"), json!("gemodel 1% 10% 70% 0.1%"), json!("state 1% 10% 5% 50% 0.1%"), json!("none")],
        ),
        ("corrupt", vec![json!("1%"), json!("none")]),
        ("duplicate", vec![json!("2%"), json!("none")]),
        ("rate", vec![json!("10mbit"), json!("1gbit"), json!("none")]),
        ("limit", vec![json!(5), json!(1000), json!("none")]),
    ];
    let key = |(key, values): (&'static str, Vec<Value>)| {
        proptest::option::of(prop::sample::select(values)).prop_map(move |value| Some((key.to_owned(), value?)))
    };
    values.map(key).to_vec().prop_map(|keys| keys.into_iter().flatten().collect())
}
