//! Connections of the carrier, from an order or a stranger's connection to the tunnel.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::rdmacm::{Library, Socket};
use super::tunnel::{End, Stream, Tunnel};
use super::{FALLS_BACK, Order, Token};
use libc::{POLLIN, POLLOUT, c_short};
use rustix::io::Errno;

/// Longest time until two ends are joined.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most connections that have not named a token. Anyone on the network of the device may open one.
const NAMELESS: usize = 64;
/// Most connections to begin one by the device. Each has a few descriptors.
const MOST: usize = 8192;
/// The byte by which a carrier says that it knows the token.
const KNOWN: u8 = 1;

/// A connection's way to an open tunnel.
#[derive(Debug)]
enum State {
    /// Another carrier will name this token, or the brokers' connection will fall back.
    Expected {
        token: Token,
        near: Stream,
        asker: Stream,
    },
    /// The device connects.
    Connecting {
        token: Token,
        near: Stream,
        far: Socket,
    },
    /// The other carrier has to say that it knows the token.
    Named {
        near: Stream,
        far: Socket,
    },
    /// The caller has to name a token, of which so many bytes have come.
    Nameless {
        far: Socket,
        token: Token,
        got: usize,
    },
    Open(Tunnel),
}

#[derive(Debug)]
struct Connection {
    /// The broker's end; none where nobody has asked yet.
    cookie: Option<u64>,
    is_held: bool,
    /// Time at which it ends if it is not open.
    due: Instant,
    state: State,
}

impl Connection {
    /// Time at which it ends, if nothing happens. A tunnel has one while it drains.
    fn ends(&self) -> Option<Instant> {
        if let State::Open(tunnel) = &self.state { tunnel.due() } else { Some(self.due) }
    }
}

/// A state to enter. A tunnel that opens behind a cut is held.
fn entered(mut state: State, is_held: bool) -> State {
    if let (State::Open(tunnel), true) = (&mut state, is_held) {
        tunnel.hold(true);
    }
    state
}

/// The next state of a connection, or its end and what to log of that.
enum Next {
    Stays(State),
    Ends(Option<String>),
}

#[derive(Debug)]
pub(super) struct Table {
    library: &'static Library,
    own: Ipv4Addr,
    all: BTreeMap<u64, Connection>,
    next: u64,
}

impl Table {
    pub(super) fn new(library: &'static Library, own: Ipv4Addr) -> Self {
        Self { library, own, all: BTreeMap::new(), next: 0 }
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    fn add(&mut self, cookie: Option<u64>, state: State) {
        let connection = Connection { cookie, is_held: false, due: Instant::now() + PATIENCE, state };
        self.all.insert(self.next, connection);
        self.next += 1;
    }

    /// Carries out an order. An error says why that one failed; its descriptors are closed then, which the broker sees.
    pub(super) fn obey(&mut self, order: Order, fds: Vec<OwnedFd>) -> Result<(), String> {
        let mut fds = fds.into_iter().map(Stream::new);
        match (order, fds.next(), fds.next()) {
            (Order::Expect { token, cookie }, Some(near), Some(asker)) => {
                self.add(Some(cookie), State::Expected { token, near, asker });
            }
            (Order::Connect { token, cookie, at }, Some(near), None) => {
                if self.all.len() >= MOST {
                    return Err(format!("reach the carrier at {at}: {MOST} connections are there"));
                }
                let far = self.library.connect(self.own, at).map_err(|errno| unreached(at, errno))?;
                self.add(Some(cookie), State::Connecting { token, near, far });
            }
            (Order::Hold { cookie, is_held }, None, None) => {
                for connection in self.all.values_mut().filter(|it| it.cookie == Some(cookie)) {
                    connection.is_held = is_held;
                    if let State::Open(tunnel) = &mut connection.state {
                        tunnel.hold(is_held);
                    }
                }
            }
            _ => return Err("understand an order: its descriptors are others".to_owned()),
        }
        Ok(())
    }

    /// Takes up a connection of the device. It is closed where too many have not said what they want.
    pub(super) fn met(&mut self, far: Socket) {
        let nameless = self.all.values().filter(|it| matches!(it.state, State::Nameless { .. })).count();
        if nameless < NAMELESS {
            self.add(None, State::Nameless { far, token: [0; 16], got: 0 });
        }
    }

    /// Descriptors to wait for, the events, and the connection's number.
    pub(super) fn waits_for(&self) -> Vec<(u64, RawFd, c_short)> {
        let mut all = Vec::new();
        for (&id, connection) in &self.all {
            match &connection.state {
                State::Expected { asker, .. } => all.push((id, asker.number(), POLLIN)),
                State::Connecting { far, .. } => all.push((id, far.number(), POLLOUT)),
                State::Named { far, .. } | State::Nameless { far, .. } => all.push((id, far.number(), POLLIN)),
                State::Open(tunnel) => all.extend(tunnel.waits_for().map(|(fd, events)| (id, fd, events))),
            }
        }
        all
    }

    /// When the next connection ends by itself.
    pub(super) fn due(&self) -> Option<Instant> {
        self.all.values().filter_map(Connection::ends).min()
    }

    /// Ends those that have waited in vain, for an end or for room.
    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        self.all.retain(|_, it| it.ends().is_none_or(|ends| now < ends));
    }

    /// Has a connection go on, of which something has happened. Gives what to log.
    pub(super) fn turn(&mut self, id: u64) -> Option<String> {
        let mut connection = self.all.remove(&id)?;
        let next = match connection.state {
            State::Open(mut tunnel) => {
                if tunnel.turn() {
                    Next::Stays(State::Open(tunnel))
                } else {
                    Next::Ends(None)
                }
            }
            State::Expected { token, near, asker } => heard(token, near, asker),
            State::Connecting { token, near, far } => name(token, near, far),
            State::Named { near, far } => told(near, far),
            State::Nameless { far, token, got } => self.named(far, token, got),
        };
        match next {
            Next::Stays(state) => {
                connection.state = entered(state, connection.is_held);
                self.all.insert(id, connection);
                None
            }
            Next::Ends(why) => why,
        }
    }

    /// Reads the token of whoever has connected, and joins the end that waits for it.
    fn named(&mut self, far: Socket, mut token: Token, mut got: usize) -> Next {
        match far.receive(&mut token[got..]) {
            Ok(Some(0)) | Err(_) => return Next::Ends(None),
            Ok(more) => got += more.unwrap_or(0),
        }
        if got < token.len() {
            return Next::Stays(State::Nameless { far, token, got });
        }
        let is_it = |it: &Connection| matches!(&it.state, State::Expected { token: known, .. } if *known == token);
        let found = self.all.iter().find(|(_, it)| is_it(it)).map(|(id, _)| *id);
        let Some(mut expected) = found.and_then(|id| self.all.remove(&id)) else {
            // A stranger, or one that came too late. The log is not theirs to fill.
            return Next::Ends(None);
        };
        if let State::Expected { near, .. } = expected.state {
            if !matches!(far.send(&[KNOWN]), Ok(Some(1))) {
                return Next::Ends(Some("answer another carrier: the device takes nothing".to_owned()));
            }
            let open = State::Open(Tunnel::new(near, End::Device(far)));
            expected.state = entered(open, expected.is_held);
            self.all.insert(self.next, expected);
            self.next += 1;
        }
        Next::Ends(None)
    }
}

fn unreached(at: SocketAddrV4, errno: Errno) -> String {
    format!("reach the carrier at {at} by the device: {errno}")
}

/// The brokers' connection has a word: it takes the place of the device, or its end has no use for either.
fn heard(token: Token, near: Stream, asker: Stream) -> Next {
    let mut word = [0];
    let asker = End::Stream(asker);
    match asker.receive(&mut word) {
        Ok(None) => match asker {
            End::Stream(asker) => Next::Stays(State::Expected { token, near, asker }),
            End::Device(_) => Next::Ends(None),
        },
        Ok(Some(1)) if word == [FALLS_BACK] => Next::Stays(State::Open(Tunnel::new(near, asker))),
        _ => Next::Ends(None),
    }
}

fn name(token: Token, near: Stream, far: Socket) -> Next {
    match far.outcome().and_then(|()| far.send(&token)) {
        // A new connection has room for more than that.
        Ok(Some(sent)) if sent == token.len() => Next::Stays(State::Named { near, far }),
        Ok(_) => Next::Ends(Some("name a connection of the device: it takes too little".to_owned())),
        Err(errno) => Next::Ends(Some(format!("reach another carrier by the device: {errno}"))),
    }
}

fn told(near: Stream, far: Socket) -> Next {
    let mut word = [0];
    match far.receive(&mut word) {
        Ok(None) => Next::Stays(State::Named { near, far }),
        Ok(Some(1)) if word == [KNOWN] => {
            let near = End::Stream(near);
            match (near.send(&[KNOWN]), near) {
                (Ok(Some(1)), End::Stream(near)) => Next::Stays(State::Open(Tunnel::new(near, End::Device(far)))),
                _ => Next::Ends(None),
            }
        }
        _ => Next::Ends(Some("join two ends by the device: the other carrier does not know the token".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use super::*;

    /// A stream, and its other end.
    fn pair() -> (Stream, OwnedFd) {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        (Stream::new(one), other)
    }

    #[test]
    fn a_connection_takes_the_devices_place_when_its_broker_says_so_alone() {
        let ((asker, other), (near, program)) = (pair(), pair());
        let Next::Stays(State::Expected { token, near, asker }) = heard([7; 16], near, asker) else {
            panic!("it waits on")
        };
        send(&other, &[FALLS_BACK, 1, 2], SendFlags::empty()).unwrap();
        let Next::Stays(State::Open(mut tunnel)) = heard(token, near, asker) else { panic!("it is open") };
        assert!(tunnel.turn());
        let mut there = [0; 3];
        assert_eq!(rustix::net::recv(&program, &mut there[..], rustix::net::RecvFlags::DONTWAIT).unwrap().1, 2);
        assert_eq!(there, [1, 2, 0]);

        let ((asker, other), (near, _program)) = (pair(), pair());
        send(&other, &[9], SendFlags::empty()).unwrap();
        assert!(matches!(heard([7; 16], near, asker), Next::Ends(None)));
    }
}
