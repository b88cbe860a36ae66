//! Faults on the way, or on purpose: after each, the same command goes on, and both trees end up equal.

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Ends, noise, tree};
use rand::{RngExt as _, SeedableRng as _};
use slipway_transfer::TransferError;
use slipway_transfer::send::send;

/// Passes connections on to `server`. After so many bytes to it, in all, `fault` decides about each piece.
fn proxy(server: SocketAddr, after: u64, fault: fn(&mut [u8]) -> bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("bound");
    let passed = Arc::new(AtomicU64::new(0));
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(server) else { return };
            let back = (server.try_clone().expect("cloned"), client.try_clone().expect("cloned"));
            std::thread::spawn(move || {
                let (mut from, mut to) = back;
                drop(std::io::copy(&mut from, &mut to));
                drop(to.shutdown(Shutdown::Both));
            });
            let passed = passed.clone();
            std::thread::spawn(move || {
                let (mut client, mut server) = (client, server);
                let mut buffer = vec![0; 64 << 10];
                while let Ok(length @ 1..) = client.read(&mut buffer) {
                    let piece = &mut buffer[..length];
                    let now = passed.fetch_add(length as u64, Ordering::Relaxed) + length as u64;
                    if (now > after && !fault(piece)) || server.write_all(piece).is_err() {
                        drop(client.shutdown(Shutdown::Both));
                        break;
                    }
                }
                drop(server.shutdown(Shutdown::Both));
            });
        }
    });
    address
}

fn furnish(ends: &Ends) {
    for number in 0..40 {
        fs::write(ends.from().join(format!("small {number}")), noise(number, 5000)).expect("written");
    }
    for number in 0..3 {
        fs::write(ends.from().join(format!("large {number}")), noise(number, 12 << 20)).expect("written");
    }
}

/// Every connection is cut, a random number of bytes further on each time.
#[test]
fn a_transfer_goes_on_after_every_cut() {
    let ends = Ends::new();
    furnish(&ends);
    let mut random = rand::rngs::StdRng::seed_from_u64(5);
    let mut kept = 0;
    for _ in 0..6 {
        let cut = proxy(ends.address, random.random_range(1000..12 << 20), |_| false);
        match send(&ends.request(), cut, &ends.token, |_| {}) {
            Ok(report) => kept = report.kept,
            Err(
                TransferError::Lost(_)
                | TransferError::Io { .. }
                | TransferError::Refused(_)
                | TransferError::Identity(_),
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let report = ends.complete();
    assert!(kept > 0 || report.kept > 0, "what was there is not sent again: {report:?}");
}

/// In clear there is no TLS to notice: the frame's own tag does.
#[test]
fn a_bit_flipped_on_the_way_is_noticed() {
    let ends = Ends::new();
    furnish(&ends);
    let flips = proxy(ends.address, 3 << 20, |piece| {
        let middle = piece.len() / 2;
        piece[middle] ^= 4;
        true
    });
    for clear in [true, false] {
        let mut request = ends.request();
        request.clear = clear;
        send(&request, flips, &ends.token, |_| {}).expect_err("noticed");
        for (path, there) in tree(&ends.to()) {
            let mut here = tree(&ends.from());
            let name = path.to_string_lossy().into_owned();
            assert!(name.starts_with(".slipway-part") || here.remove(&path) == Some(there), "{name} has a wrong byte");
        }
    }
    ends.complete();
}

/// A destination that holds 8 MiB is given 36.
#[test]
fn a_full_disk_is_named_and_room_is_enough_to_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    fs::create_dir(&root).expect("made");
    let mount = |options: &str| {
        let status =
            std::process::Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(&root).status();
        assert!(status.expect("mount is installed").success(), "mounting takes root");
    };
    mount("size=8m");
    let ends = Ends::with_root(folder, |folder| folder.join("root"));
    furnish(&ends);
    let error = ends.send(&ends.request()).expect_err("no room").to_string();
    mount("remount,size=200m");
    let report = ends.send(&ends.request());
    let equal = tree(&ends.from()) == tree(&ends.to());
    drop(std::process::Command::new("umount").arg("-l").arg(&root).status());
    assert!(error.contains("No space left"), "{error}");
    assert!(report.expect("transferred").is_complete() && equal);
}

/// A file grows while it is read: its name is in the answer, no version of it arrives, and the others do.
#[test]
fn a_file_that_changes_is_named() {
    let ends = Ends::new();
    furnish(&ends);
    let moving = ends.from().join("large 1");
    let mut request = ends.request();
    // Time enough for a writer that never stops.
    request.limit = Some(400_000_000);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let mut file = fs::OpenOptions::new().append(true).open(moving).expect("opened");
            while !stop.load(Ordering::Relaxed) {
                file.write_all(b"more").expect("written");
            }
        })
    };
    let report = ends.send(&request).expect("transferred");
    stop.store(true, Ordering::Relaxed);
    writer.join().expect("ended");
    assert_eq!(report.changed.iter().map(|named| named.path.as_str()).collect::<Vec<_>>(), ["large 1"], "{report:?}");
    assert!(!ends.to().join("large 1").exists());
    assert_eq!(fs::read(ends.to().join("large 2")).expect("there"), noise(2, 12 << 20));
    ends.complete();
}
