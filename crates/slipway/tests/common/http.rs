//! A client of HTTP/1.1 that sends whatever bytes a test wants.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use super::{PATIENCE, Place};

/// `slipway campaign serve`, until it is dropped.
pub struct Served {
    child: Child,
    pub address: String,
    pub url: String,
    /// The token that it printed; empty with a file of tokens.
    pub token: String,
}

impl Served {
    /// Starts it at a free port of this machine.
    #[track_caller]
    pub fn new(place: &Place, more: &[&str]) -> Self {
        let words = ["--json", "campaign", "serve", "slipway-campaigns", "--listen", "127.0.0.1:0"];
        let mut command = place.slipway(words.iter().chain(more));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("slipway can be started");
        let mut text = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        while serde_json::from_str::<Value>(&text).is_err() {
            assert_ne!(out.read_line(&mut text).expect("it can be read"), 0, "it ended: {text}");
        }
        let told: Value = serde_json::from_str(&text).expect("JSON");
        let url = told["url"].as_str().expect("an address").to_owned();
        let token = url.split_once("?token=").map(|(_, token)| token.to_owned()).unwrap_or_default();
        Self { child, address: told["address"].as_str().expect("an address").to_owned(), url, token }
    }

    /// One call with the printed token.
    #[track_caller]
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.call_as(&self.token, method, path, body)
    }

    /// One call with a token.
    #[track_caller]
    pub fn call_as(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let mut headers = vec![format!("Authorization: Bearer {token}")];
        let body = body.map(ToString::to_string).unwrap_or_default();
        if !body.is_empty() {
            headers.push("Content-Type: application/json".to_owned());
        }
        self.send(method, path, &headers, body.as_bytes())
    }

    /// One request with these headers, besides those that HTTP needs.
    #[track_caller]
    pub fn send(&self, method: &str, path: &str, headers: &[String], body: &[u8]) -> Answer {
        let mut lines = vec![
            format!("{method} {path} HTTP/1.1"),
            "Connection: close".to_owned(),
            format!("Content-Length: {}", body.len()),
        ];
        if !headers.iter().any(|header| header.to_lowercase().starts_with("host:")) {
            lines.push(format!("Host: {}", self.address));
        }
        let head = [&lines, headers].concat().join("\r\n");
        self.raw(&[head.as_bytes(), b"\r\n\r\n", body].concat())
    }

    /// Sends bytes, and reads the answer to its end.
    #[track_caller]
    pub fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect();
        // A server that refuses a request early does not read all of it.
        let _ = stream.write_all(request);
        Answer::read(BufReader::new(stream))
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        stream
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    #[track_caller]
    fn read(mut stream: BufReader<TcpStream>) -> Self {
        let mut line = || {
            let mut text = String::new();
            stream.read_line(&mut text).expect("the answer can be read");
            text.trim_end().to_owned()
        };
        let first = line();
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer: {first:?}"));
        let mut headers = BTreeMap::new();
        while let Some((name, value)) = line().split_once(": ") {
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        let mut body = Vec::new();
        if headers.get("transfer-encoding").is_some_and(|kind| kind == "chunked") {
            loop {
                let mut size = String::new();
                stream.read_line(&mut size).expect("a chunk");
                let size = u64::from_str_radix(size.trim(), 16).expect("its size");
                stream.by_ref().take(size).read_to_end(&mut body).expect("its bytes");
                stream.read_line(&mut String::new()).expect("its end");
                if size == 0 {
                    break;
                }
            }
        } else {
            // The connection may be reset after an early refusal.
            let _ = stream.read_to_end(&mut body);
        }
        Self { status, headers, body }
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The code of an error.
    pub fn code(&self) -> String {
        let value: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        value["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}
