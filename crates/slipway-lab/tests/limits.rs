//! Files that are too much are refused at once; the largest lab is not.

use std::path::Path;

use slipway_document::errors::DocumentErrors;
use slipway_lab::id::NodeId;
use slipway_lab::parse;

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

fn refusal(text: &str) -> DocumentErrors {
    parse("big.yaml", text, Path::new("/")).expect_err("accepted")
}

#[test]
fn ten_megabytes_of_garbage() {
    let errors = refusal(&"x\u{0}[{&*%\n".repeat(10 << 20 >> 3));
    assert_eq!(errors.errors().len(), 1);
    assert!(errors.errors()[0].message.contains("more than such a file can have"), "{}", errors.plain());
}

#[test]
fn depth_bombs() {
    for opening in ["[", "{a: ", "- "] {
        let errors = refusal(&format!("nodes: {}", opening.repeat(100_000)));
        assert_eq!(errors.errors().len(), 1, "{}", errors.plain());
    }
}

#[test]
fn alias_bomb() {
    let bomb = "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nnodes: [*b,*b,*b,*b,*b,*b,*b,*b]\n";
    let errors = refusal(bomb);
    assert_eq!(errors.errors().len(), 1);
    assert_eq!((errors.errors()[0].line, errors.errors()[0].column), (1, 4));
}

#[test]
fn errors_without_end_end_at_fifty() {
    let unknown: String = lines(30_000, |i| format!("k{i}: 1\n"));
    assert_eq!(refusal(&unknown).errors().len(), 50);
    let wrong: String = lines(30_000, |i| format!("  n{i}: {{cpu: 1}}\n"));
    assert_eq!(refusal(&format!("nodes:\n{wrong}")).errors().len(), 50);
}

#[test]
fn the_largest_lab() {
    let networks: String = lines(128, |i| format!("  net{i}: {{driver: vxlan}}\n"));
    let gateways: String = lines(127, |i| format!("  r{i}: {{gateway: true, networks: [net{i}, net{}]}}\n", i + 1));
    let text = format!("hosts: 1000\nnetworks:\n{networks}nodes:\n{gateways}  n: {{count: 9873}}\n");
    let lab = parse("big.yaml", &text, Path::new("/")).unwrap_or_else(|errors| panic!("{}", errors.plain()));
    assert_eq!(lab.nodes.len(), 10_000);
    assert_eq!(lab.nodes[NodeId(9_999)].routes.len(), 2 * 127);
    assert!(slipway_lab::graph::svg(&lab).len() > 10_000);
}

#[test]
fn rules_without_end_are_refused() {
    let rules = |count, rule: &str| {
        format!("nodes: {{n: {{count: 10000}}}}\nlinks:\n{}", lines(count, |_| format!("  - {rule}\n")))
    };
    let everybody = refusal(&rules(1000, "{between: [n, n], delay: 1s}"));
    let many = refusal(&rules(20_000, "{from: n1, to: n2, jitter: 1s, delay: 1s}"));
    for errors in [everybody, many] {
        assert_eq!(errors.errors().len(), 1, "{}", errors.plain());
        assert!(errors.errors()[0].message.contains("more rules than a lab can have"), "{}", errors.plain());
    }
}

/// Every rule needs what only the first one says.
#[test]
fn as_many_rules_as_may_be() {
    let rules = lines(1999, |i| format!("  - {{from: 'n*', to: n{}, jitter: 1ms}}\n", i % 900 + 1));
    let text = format!("nodes: {{n: {{count: 900}}}}\nlinks:\n  - {{between: [n, n], delay: 1s}}\n{rules}");
    let lab = parse("rules.yaml", &text, Path::new("/")).unwrap_or_else(|errors| panic!("{}", errors.plain()));
    assert_eq!(lab.links.len(), 2000);
}
