//! Settings in files that outlive a reboot, and other tools' files beside them.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;

use slipway_sys::ns::with_net;

use crate::net::{Net, WISHES, kill_at};

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

#[test]
fn files_outlive_a_reboot_and_name_who_wrote_them() {
    let net = Net::new();
    let root = net.place.path().join("root");
    let at = |path: &str| root.join(path);
    let words = |more: &[&'static str]| [&["apply", "--yes", "--persist", "--root", "root"], more].concat();
    write(&at("etc/sysctl.d/50-other.conf"), "-net/ipv4/tcp_rmem = 1 2 3\n");
    write(&at("etc/tuned/active_profile"), "mine\n");
    write(&at("etc/tuned/mine/tuned.conf"), "[main]\ninclude=theirs\n");
    write(&at("usr/lib/tuned/theirs/tuned.conf"), "[net]\nmtu=1400\n");
    let told = net.fails(2, &words(&[WISHES[0], WISHES[2]]));
    assert!(told.contains("net.ipv4.tcp_rmem (sysctl.d)") && told.contains("(tuned, profile theirs)"), "{told}");
    assert_eq!(net.journal(), "");

    let answer = net.json(&words(&["--override", WISHES[0], WISHES[2], WISHES[5]]));
    assert_eq!(answer["plan"]["changes"][0]["owners"][0]["value"], "1 2 3");
    let sysctl = fs::read_to_string(at("etc/sysctl.d/90-slipway.conf")).expect("written");
    assert!(
        sysctl.starts_with("# Slipway wrote this file at ")
            && sysctl.ends_with("\nnet.ipv4.tcp_rmem = 4096 65536 7340032\n")
    );
    let udev = fs::read_to_string(at("etc/udev/rules.d/90-slipway.rules")).expect("written");
    assert!(udev.contains(r#"ACTION=="add|move", SUBSYSTEM=="net", NAME=="v0", ATTR{mtu}="9000""#), "{udev}");
    let status = net.json(&["status", "--root", "root"]);
    assert_eq!(status["files"].as_array().map(Vec::len), Some(3), "the third is for tuned: {status}");

    net.json(&["rollback", "nic v0 mtu", "--root", "root"]);
    let udev = fs::read_to_string(at("etc/udev/rules.d/90-slipway.rules")).expect("still there");
    assert!(!udev.contains("mtu") && udev.contains("qdisc"), "{udev}");
    net.json(&["rollback", "--root", "root"]);
    assert!(!at("etc/sysctl.d/90-slipway.conf").exists() && !at("etc/udev/rules.d/90-slipway.rules").exists());
    assert!(at("etc/sysctl.d/50-other.conf").exists());
}

#[test]
fn tuned_gets_a_profile_and_others_whose_word_comes_later_are_named() {
    let net = Net::new();
    let root = net.place.path().join("root");
    let at = |path: &str| root.join(path);
    let words =
        |more: &[&'static str]| [&["apply", "--yes", "--persist", "--override", "--root", "root"], more].concat();
    write(&at("etc/tuned/active_profile"), "theirs\n");
    write(&at("etc/tuned/tuned-main.conf"), "reapply_sysctl = 1\n");
    write(&at("usr/lib/tuned/theirs/tuned.conf"), "[sysctl]\nnet.ipv4.tcp_rmem=\"1 2 3\"\n[net]\nmtu=1400\n");
    write(&at("usr/lib/sysctl.d/10-early.conf"), "net.ipv4.tcp_slow_start_after_idle = 1\n");
    write(&at("usr/lib/sysctl.d/99-late.conf"), "net.ipv4.tcp_slow_start_after_idle = 1\n");
    let connection = "[connection]\ninterface-name=v0\n[ethtool]\nfeature-tso=true\n";
    write(&at("etc/NetworkManager/system-connections/v0.nmconnection"), connection);

    let told = net.output(&words(&[WISHES[0], WISHES[1], WISHES[2], WISHES[6]]));
    let told = String::from_utf8(told.stdout).expect("UTF-8");
    let later: Vec<&str> = told.lines().filter(|line| line.starts_with("after a reboot")).collect();
    assert_eq!(later.len(), 3, "{told}");
    assert!(later[0].contains("tcp_slow_start_after_idle to `1`") && later[0].ends_with("99-late.conf"), "{told}");
    assert!(later[1].contains("tuned, profile theirs sets nic v0 mtu to `1400`"), "{told}");
    assert!(later[2].contains("NetworkManager sets nic v0 feature"), "{told}");
    assert!(told.contains("tuned-adm profile slipway"), "{told}");
    let profile = at("etc/tuned/slipway/tuned.conf");
    let text = fs::read_to_string(&profile).expect("written");
    assert!(text.starts_with("# Slipway wrote this file at "), "{text}");
    let body: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = "[main]\nsummary=Settings that slipway tune applied\ninclude=theirs\n\n[sysctl]\n\
        net.ipv4.tcp_rmem=4096 65536 7340032\nnet.ipv4.tcp_slow_start_after_idle=0\n\n\
        [net_v0]\ntype=net\ndevices=v0\nmtu=9000";
    assert_eq!(body.join("\n"), expected);

    // Once tuned uses it, the profile that it includes stays the same, and what that sets is tuned's still.
    write(&at("etc/tuned/active_profile"), "slipway\n");
    let answer = net.json(&words(&[WISHES[3]]));
    assert_eq!(answer["tuned"], "active", "{answer}");
    let text = fs::read_to_string(&profile).expect("written");
    assert!(text.contains("\ninclude=theirs\n") && text.contains("\ntxqueuelen=5000\n"), "{text}");
    let again = net.json(&["apply", "--dry-run", "--root", "root", "nic v0 mtu=1300"]);
    assert_eq!(again["plan"]["changes"][0]["owners"][0]["who"], "tuned, profile theirs", "{again}");
    let answer = net.json(&["rollback", "--root", "root"]);
    assert_eq!(answer["tuned"], "lost", "{answer}");
    assert!(!profile.exists() && !at("etc/tuned/slipway").exists() && at("etc/tuned/tuned-main.conf").exists());
}

#[test]
fn after_a_reboot_settings_in_files_come_back_exactly_and_the_others_are_gone() {
    let mut net = Net::new();
    let before = net.values();
    let root = net.place.path().join("root");
    let at = |path: &str| root.join(path);
    write(&at("etc/sysctl.d/90-slipway.conf"), "net.ipv4.tcp_syn_retries = 5\n");
    net.json(&["apply", "--yes", "--persist", "--override", "--root", "root", WISHES[0], WISHES[1], WISHES[4]]);
    net.json(&["apply", "--yes", WISHES[2]]);
    let kept = fs::read_to_string(at("etc/sysctl.d/90-slipway.conf")).expect("written");

    net.reboot();
    assert_eq!(net.values(), before, "a reboot ends what no file sets");
    net.boot_with(&at("etc/sysctl.d/90-slipway.conf"));
    let status = net.json(&["status", "--root", "root"]);
    assert_eq!(
        (status["rebooted"].clone(), status["files"].as_array().map(Vec::len)),
        (true.into(), Some(2)),
        "{status}"
    );
    let standings: Vec<_> =
        status["settings"].as_array().expect("settings").iter().map(|one| one["standing"].clone()).collect();
    assert_eq!(standings, ["kept", "kept", "former", "former"], "udev has not run here: {status}");
    assert!(net.fails(1, &["apply", "--yes", WISHES[3]]).contains("before the last reboot"));
    assert_eq!(fs::read_to_string(at("etc/sysctl.d/90-slipway.conf")).expect("still there"), kept);

    // Somebody sets one of them to a third value: the boot ended Slipway's word on it.
    with_net(net.namespace.as_fd(), || fs::write("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "2"))
        .expect("entering works")
        .expect("written");
    let answer = net.json(&["rollback", "--root", "root"]);
    let fates: Vec<_> =
        answer["outcomes"].as_array().expect("outcomes").iter().map(|one| one["fate"].clone()).collect();
    assert_eq!(fates, ["already", "already", "rebooted", "restored"], "{answer}");
    let now = net.values();
    assert_eq!((&now[0], &now[2..]), (&before[0], &before[2..]));
    assert_eq!(now[1], "2");
    assert_eq!(fs::read_to_string(at("etc/sysctl.d/90-slipway.conf")).expect("back"), "net.ipv4.tcp_syn_retries = 5\n");
    assert!(!at("etc/udev/rules.d/90-slipway.rules").exists());
    assert_eq!(net.journal(), "");
}

#[test]
fn a_reboot_after_a_crash_in_the_middle_leaves_nothing_to_restore() {
    let mut net = Net::new();
    let before = net.values();
    kill_at(&net, &[&["apply", "--yes"], &WISHES[..]].concat(), |journal| journal.matches("\"former\"").count() > 2);
    net.reboot();
    net.json(&["rollback"]);
    assert_eq!((net.values(), net.journal()), (before, String::new()));
    net.json(&["apply", "--yes", WISHES[0]]);
    net.json(&["rollback"]);
}
