//! A page over HTTP (RFC 9112), for as long as it is wanted: no more than a scraper needs.
//!
//! Each client has a few seconds and 4 KiB for a request, gets one answer, and is disconnected. All are waited for at
//! once, so that one who says nothing keeps nobody.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipway_sys::signals::Taken;

/// Longest request, bytes.
const LONGEST: usize = 4096;
/// How long one may take to ask and to hear the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many may be there at once; one more makes the oldest go.
const MOST: usize = 32;

/// A page, or why there is none now.
pub(super) type Page = Result<String, String>;

/// Serves `page`, of this media type, at `/metrics` until SIGINT or SIGTERM.
pub(super) fn serve(
    listener: &TcpListener,
    interrupt: &Taken,
    media_type: &str,
    mut page: impl FnMut() -> Page,
) -> io::Result<Signal> {
    listener.set_nonblocking(true)?;
    let mut guests: Vec<Guest> = Vec::new();
    loop {
        wait(listener, interrupt, &guests)?;
        if let Some(signal) = interrupt.take()? {
            return Ok(signal);
        }
        // Those who hung up before they were accepted, and a lack of descriptors, are the guests' trouble.
        while let Ok((stream, _)) = listener.accept() {
            if guests.len() >= MOST {
                guests.remove(0);
            }
            guests.extend(Guest::new(stream));
        }
        let now = Instant::now();
        guests.retain_mut(|guest| now < guest.deadline && guest.go_on(media_type, &mut page).unwrap_or(false));
    }
}

fn wait(listener: &TcpListener, interrupt: &Taken, guests: &[Guest]) -> io::Result<()> {
    let mut waiting = vec![PollFd::new(listener, PollFlags::IN), PollFd::new(interrupt, PollFlags::IN)];
    waiting.extend(guests.iter().map(|guest| {
        let event = if guest.answer.is_empty() { PollFlags::IN } else { PollFlags::OUT };
        PollFd::new(&guest.stream, event)
    }));
    let next = guests.iter().map(|guest| guest.deadline).min();
    let left = next.map(|next| next.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
    let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
    match poll(&mut waiting, left.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Somebody who asks.
struct Guest {
    stream: TcpStream,
    deadline: Instant,
    asked: Vec<u8>,
    /// The rest of the answer; empty until the request is complete.
    answer: Vec<u8>,
}

impl Guest {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, deadline: Instant::now() + PATIENCE, asked: Vec::new(), answer: Vec::new() })
    }

    /// Does what can be done now. False where it is done.
    fn go_on(&mut self, media_type: &str, page: &mut impl FnMut() -> Page) -> io::Result<bool> {
        if self.answer.is_empty() {
            let mut room = [0; LONGEST];
            match self.stream.read(&mut room[..LONGEST - self.asked.len()]) {
                Ok(0) => return Ok(false),
                Ok(read) => self.asked.extend(&room[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
            let Some(asked) = request(&self.asked) else { return Ok(true) };
            self.answer = answer(asked, media_type, page).into_bytes();
        }
        match self.stream.write(&self.answer) {
            Ok(written) => drop(self.answer.drain(..written)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(!self.answer.is_empty())
    }
}

/// The resource that a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// The page, or only its header.
    Page { whole: bool },
    /// Something else.
    Other,
    /// Nothing that is known of.
    Method,
    /// It is no request, or too long.
    Bad,
}

/// The request, once it is there whole.
fn request(bytes: &[u8]) -> Option<Asked> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let full = bytes.len() >= LONGEST;
    if end.is_none() && !full {
        return None;
    }
    let line = bytes.split(|byte| *byte == b'\r').next().filter(|_| end.is_some()).unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    Some(match words[..] {
        [method, target, version] if version.starts_with(b"HTTP/1.") && target.starts_with(b"/") => {
            match (method, target.split(|byte| *byte == b'?').next()) {
                (b"GET" | b"HEAD", Some(b"/metrics")) => Asked::Page { whole: method == b"GET" },
                (b"GET" | b"HEAD", _) => Asked::Other,
                _ => Asked::Method,
            }
        }
        _ => Asked::Bad,
    })
}

fn answer(asked: Asked, media_type: &str, page: &mut impl FnMut() -> Page) -> String {
    let plain = |text: &str| ("text/plain; charset=utf-8".to_owned(), format!("{text}\n"));
    let (status, (media_type, body)) = match asked {
        Asked::Page { .. } => match page() {
            Ok(page) => ("200 OK", (media_type.to_owned(), page)),
            Err(account) => ("503 Service Unavailable", plain(&account)),
        },
        Asked::Other => ("404 Not Found", plain("metrics are at /metrics")),
        Asked::Method => ("405 Method Not Allowed\r\nAllow: GET, HEAD", plain("only GET and HEAD are answered")),
        Asked::Bad => ("400 Bad Request", plain("this is no HTTP request, or too long a one")),
    };
    let length = body.len();
    let body = if asked == (Asked::Page { whole: false }) { String::new() } else { body };
    format!("HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_when_they_are_whole() {
        assert_eq!(request(b"GET /metrics HTTP/1.1\r\nHost: x\r\n"), None);
        assert_eq!(request(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Some(Asked::Page { whole: true }));
        assert_eq!(request(b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n"), Some(Asked::Page { whole: false }));
        assert_eq!(request(b"GET / HTTP/1.1\r\n\r\n"), Some(Asked::Other));
        assert_eq!(request(b"POST /metrics HTTP/1.1\r\n\r\n"), Some(Asked::Method));
        for bad in [&b"\r\n\r\n"[..], b"GET /metrics\r\n\r\n", b"\xff\xfe \r\n\r\n", b"GET metrics HTTP/1.1\r\n\r\n"] {
            assert_eq!(request(bad), Some(Asked::Bad), "{bad:?}");
        }
        assert_eq!(request(&[b'a'; LONGEST]), Some(Asked::Bad));
    }

    #[test]
    fn answers_say_how_long_they_are() {
        let mut page = || Ok("a 1\n".to_owned());
        let said = answer(Asked::Page { whole: true }, "text/plain", &mut page);
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("Content-Length: 4\r\nConnection: close\r\n\r\na 1\n"));
        assert!(answer(Asked::Page { whole: false }, "text/plain", &mut page).ends_with("\r\n\r\n"));
        let none = answer(Asked::Page { whole: true }, "text/plain", &mut || Err("gone".to_owned()));
        assert!(none.starts_with("HTTP/1.1 503"), "{none}");
    }
}
