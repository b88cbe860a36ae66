//! Whatever is asked of the server of campaigns, it answers, and never that it failed; nothing half-made remains.
//!
//! An input has some requests, with a line `%%` between two of them. The first line of each has method, path and the body's
//! type. The body follows.
//!
//! `@` in a path stands for the id that the last answer to a POST told.
#![cfg_attr(fuzzing, no_main)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use slipway_api::{Convert, Converted, Files, Options, Server};
use tempfile::TempDir;

/// Most requests of an input.
const MOST: usize = 8;
/// Longest wait for an answer: a server that lives needs a small part of it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of an answer that may tell an id.
const ANSWER: u64 = 4096;

struct Served {
    room: TempDir,
    address: SocketAddr,
    token: String,
}

static SERVED: LazyLock<Served> = LazyLock::new(|| {
    let room = TempDir::with_prefix("slipway-fuzz-").expect("a folder");
    let server = Server::open(Options {
        folder: room.path().join("campaigns"),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        tls: None,
        tokens: None,
        names: Vec::new(),
        // Campaigns that start end at once.
        program: "/bin/true".into(),
        converter: Some(Arc::new(Importer)),
    });
    let server = server.expect("a server");
    let (address, url) = (server.address(), server.url());
    let token = url.split_once("?token=").expect("a token").1.to_owned();
    std::thread::spawn(move || server.run().expect("it serves"));
    Served { room, address, token }
});

/// As that of `slipway campaign serve`.
#[derive(Debug)]
struct Importer;

impl Convert for Importer {
    fn convert(&self, analysis: &str, files: &Files) -> Result<Converted, String> {
        let Files { names, data_points } = files.clone();
        let files = slipway_openstudio::Files { names, data_points };
        let made = slipway_openstudio::read(analysis, &files).map_err(|error| error.to_string())?;
        Ok(Converted { campaign: made.campaign, files: made.files })
    }
}

slipway_fuzz::target!(|bytes: &[u8]| {
    let (mut rest, mut id) = (Some(bytes), String::new());
    for _ in 0..MOST {
        let Some(input) = rest else { break };
        let (one, more) = split(input, b"\n%%\n").map_or((input, None), |(one, more)| (one, Some(more)));
        rest = more;
        ask(one, &mut id);
    }
    clean(&SERVED.room.path().join("campaigns"));
});

fn split<'a>(bytes: &'a [u8], at: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let found = bytes.windows(at.len()).position(|window| window == at)?;
    Some((&bytes[..found], &bytes[found + at.len()..]))
}

/// Sends a request, and reads the answer's first line.
fn ask(request: &[u8], id: &mut String) {
    let (head, body) = split(request, b"\n").unwrap_or((request, b""));
    let Ok(head) = std::str::from_utf8(head) else { return };
    let mut words = head.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return };
    let path = path.replace('@', id);
    // Without its token, all that follows would be refused.
    if path.contains("tokens") && method != "GET" {
        return;
    }
    let kind = words.collect::<Vec<_>>().join(" ");
    let kind = if kind.is_empty() { String::new() } else { format!("Content-Type: {kind}\r\n") };
    let Served { address, token, .. } = &*SERVED;
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n{kind}Content-Length: {}\r\n\r\n",
        body.len()
    );
    // A server that refuses a request early does not read all of it.
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
    let mut line = String::new();
    let mut stream = BufReader::new(stream);
    let read = stream.read_line(&mut line);
    let status = line.split(' ').nth(1).and_then(|word| word.parse::<u16>().ok());
    let status = status.unwrap_or_else(|| panic!("no answer to {head}: {line:?}, {read:?}"));
    assert!(status < 500 && status != 401, "{head}: {line}");
    // Answers to GET may have no end: events.
    if method == "POST" {
        let mut answer = Vec::new();
        let _ = stream.take(ANSWER).read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        if let Some((told, _)) = answer.split_once("\"_id\":\"").and_then(|(_, rest)| rest.split_once('"')) {
            told.clone_into(id);
        }
    }
}

/// Removes all campaigns, by the API where it knows them.
fn clean(folder: &Path) {
    let entries: Vec<_> = std::fs::read_dir(folder).expect("listed").flatten().collect();
    for entry in entries {
        let name = entry.file_name().into_string().expect("a name");
        let half_made = [".new-", ".gone-"].iter().any(|prefix| name.starts_with(prefix));
        assert!(!half_made, "{name} is left");
        if !name.starts_with('.') {
            ask(format!("DELETE /api/v1/campaigns/{name}").as_bytes(), &mut String::new());
        }
        // One that has just been started stays, and so do the analyses of OpenStudio.
        let _ = std::fs::remove_dir_all(entry.path());
    }
}
