//! Peers that mean harm, over real sockets and TLS. They know the token: without it nobody gets this far.

mod client;
mod server;

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::error::TransferError;
use crate::link::{Dialer, Link, Session};
use crate::message::{self, Entry, Kind, Meta, Order};
use crate::path::Relative;
use crate::send::Request;

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn open(dialer: &Dialer) -> Result<(Link, Session), TransferError> {
    dialer.open(dialer.tcp()?.0)
}

fn stream(dialer: &Dialer, session: &Session, number: u32) -> Result<Link, TransferError> {
    Dialer::join(dialer.dial(false, |_| {})?, session, number)
}

fn relative(path: &str) -> Relative {
    Relative::try_from(path.as_bytes().to_vec()).expect("a good path")
}

fn begin(verify: bool) -> Order {
    Order::Begin { destination: b"to".to_vec(), verify, sync: false }
}

fn entry(id: u64, path: &str, kind: Kind) -> Order {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let meta = Meta { mode: 0o700, uid, gid, ..Meta::default() };
    Order::Entry(Entry { id, path: relative(path), kind, meta })
}

fn encoded<T: serde::Serialize>(messages: &[T]) -> Vec<u8> {
    let mut body = Vec::new();
    for message in messages {
        message::put(message, &mut body).expect("written");
    }
    body
}

/// `body` with the bytes `from` replaced by as many others, which no honest end would write.
fn forged(mut body: Vec<u8>, from: &str, to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = body.windows(from.len()).position(|window| window == from.as_bytes()).expect("in the body");
    body[at..at + to.len()].copy_from_slice(to);
    body
}

pub(crate) fn request(source: PathBuf, verify: bool) -> Request {
    Request { sources: vec![source], destination: b"to".to_vec(), verify, clear: false, limit: None, sync: false }
}
