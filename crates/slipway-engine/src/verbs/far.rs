//! Brokers of different virtual hosts. They talk as routers do: by authenticated connections of the hosts' network, one session
//! for all queue pairs of two hosts. A connection that was accepted becomes the queue pairs' own.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::sockopt;
use slipway_fast::channel::{Acceptor, ChannelError, Hello, Key, Limits, Open, OpenRequest, Pool, Refusal};
use slipway_fast::setup;
use slipway_sys::sockopt as filter;
use slipway_verbs::broker::{Broker, Join, Membership, Name, Question, Still, Way};
use slipway_verbs::carrier::{FALLS_BACK, Invitation, SILENCE, hold_out, leads_there};
use slipway_verbs::wire::{Gid, Transport};

use super::carrier::Ferry;

/// The port at which brokers accept each other, beside that of routers. It is not registered with IANA.
pub(super) const PORT: u16 = setup::PORT + 1;

/// Connections kept ready for each other host: programs make fewer queue pairs than sockets.
const WARM: usize = 8;
/// Longest wait for another broker, which may just be replaced. Then the program reads an error.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest wait for its answer. A broker that has just replaced another hears of queue pairs for five seconds.
const ANSWER: Duration = Duration::from_secs(6);
/// Pause before another try, where no connection to the other broker is ready.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a device is not tried after it has not reached another machine.
const IDLE: Duration = Duration::from_secs(30);

/// Bits of a queue pair's number.
const NUMBER: u32 = 24;

/// The start of a broker's connections with others.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) hello: Hello,
    /// The broker's own address on the hosts' network.
    pub(super) at: SocketAddr,
    /// The brokers of other hosts.
    pub(super) peers: Vec<(u32, SocketAddr)>,
    /// The way to the machine's RDMA device, where it has one.
    pub(super) ferry: Option<Ferry>,
    /// Addresses of the other machines that hosts are on.
    pub(super) machines: BTreeMap<u32, Ipv4Addr>,
}

enum News {
    Answered(u64, Result<OwnedFd, Errno>),
    Asked(Box<OpenRequest>),
}

/// Gives news to the broker's thread.
#[derive(Clone)]
struct Post {
    news: Sender<News>,
    bell: Arc<OwnedFd>,
}

impl Post {
    fn send(&self, news: News) {
        // A broker that is gone needs no news.
        let _ = self.news.send(news);
        let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
    }
}

/// The connections of a broker with others.
pub(super) struct Links {
    news: Receiver<News>,
    bell: Arc<OwnedFd>,
    ferry: Option<Ferry>,
    /// Questions about queue pairs that may have yet to be named. Each host asks one after the other, so these are few.
    early: Vec<OpenRequest>,
    _acceptor: Acceptor,
}

impl Links {
    /// Accepts other brokers from now on. Gives the way to them too.
    pub(super) fn start(setup: Setup, key: Key) -> io::Result<(Self, Way)> {
        let Setup { hello, at, peers, ferry, machines } = setup;
        let (sender, news) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let post = Post { news: sender, bell: Arc::clone(&bell) };
        let pool = Arc::new(Pool::start(key.clone(), hello, peers, WARM)?);
        let asked = post.clone();
        let acceptor = Acceptor::start(TcpListener::bind(at)?, key, hello, Limits::default(), move |open| {
            asked.send(News::Asked(Box::new(open)));
        })?;
        let device = ferry.clone().map(|ferry| (ferry, machines));
        Ok((Self { news, bell, ferry, early: Vec::new(), _acceptor: acceptor }, way(pool, post, device)))
    }

    /// Notes that the carrier of this machine runs, or does not.
    pub(super) fn set_carrier(&self, is_up: bool) {
        if let Some(ferry) = &self.ferry {
            ferry.set(is_up);
        }
    }

    /// Brings the broker what other brokers say. Call it after each turn of the broker too.
    pub(super) fn serve(&mut self, broker: &mut Broker) {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        for open in std::mem::take(&mut self.early) {
            self.early.extend(asked(broker, self.ferry.as_ref(), open));
        }
        while let Ok(news) = self.news.try_recv() {
            match news {
                News::Answered(ticket, answer) => broker.answered(ticket, answer),
                News::Asked(open) => self.early.extend(asked(broker, self.ferry.as_ref(), *open)),
            }
        }
    }
}

/// Readable where there is news.
impl AsFd for Links {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// The way to other brokers: a thread for each, so that one that does not answer delays no other.
fn way(pool: Arc<Pool>, post: Post, device: Option<(Ferry, BTreeMap<u32, Ipv4Addr>)>) -> Way {
    let mut threads: BTreeMap<u32, Sender<(u64, Open, bool)>> = BTreeMap::new();
    Box::new(move |host, ticket, question| {
        let open = write(question);
        // A question for news has no stream.
        let is_join = matches!(question, Question::Join(_));
        let thread = match threads.entry(host) {
            std::collections::btree_map::Entry::Occupied(thread) => thread.into_mut(),
            std::collections::btree_map::Entry::Vacant(vacant) => {
                let (sender, questions) = channel::<(u64, Open, bool)>();
                let (pool, post) = (Arc::clone(&pool), post.clone());
                let device = device.as_ref().and_then(|(ferry, all)| Some((ferry.clone(), *all.get(&host)?)));
                let mut device = device.map(|(ferry, machine)| Device { ferry, machine, idle: None });
                let ask = move || {
                    for (ticket, open, is_join) in questions {
                        let device = device.as_mut().filter(|_| is_join);
                        post.send(News::Answered(ticket, ask(&pool, host, open, device)));
                    }
                };
                let made = std::thread::Builder::new().name(format!("asks-{host}")).spawn(ask);
                made.map_err(|_| Errno::AGAIN)?;
                vacant.insert(sender)
            }
        };
        thread.send((ticket, open, is_join)).map_err(|_| Errno::HOSTUNREACH)
    })
}

/// The way to another machine by the device of this one.
struct Device {
    ferry: Ferry,
    machine: Ipv4Addr,
    /// It has not reached the other machine, and is not tried before then.
    idle: Option<Instant>,
}

impl Device {
    fn is_idle(&self) -> bool {
        self.idle.is_some_and(|until| Instant::now() < until)
    }

    /// Takes up the other broker's invitation, which comes first on its connection.
    fn follow(&mut self, mut connection: TcpStream) -> Result<OwnedFd, Errno> {
        let failed = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::CONNRESET);
        connection.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let (mut first, mut rest) = ([0], [0; Invitation::REST]);
        connection.read_exact(&mut first).map_err(failed)?;
        if Invitation::has_rest(first[0]).ok_or(Errno::PROTO)? {
            connection.read_exact(&mut rest).map_err(failed)?;
            let Invitation::Device { port, token } = Invitation::of_rest(rest) else { return Err(Errno::PROTO) };
            match self.ferry.connect(SocketAddrV4::new(self.machine, port), token) {
                Ok(own) => return Ok(own),
                // Both sides know that it is the connection's turn now.
                Err(_) => connection.write_all(&[FALLS_BACK]).map_err(failed)?,
            }
            self.idle = Some(Instant::now() + IDLE);
        }
        connection.set_read_timeout(None).map_err(failed)?;
        ready(connection.into())
    }
}

fn ask(pool: &Pool, host: u32, mut open: Open, device: Option<&mut Device>) -> Result<OwnedFd, Errno> {
    let device = device.filter(|device| device.ferry.is_up() && !device.is_idle());
    open.flow |= if device.is_some() { BY_DEVICE } else { 0 };
    let until = Instant::now() + PATIENCE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match pool.ask(host, &open, left).and_then(|asked| asked.wait(Instant::now() + ANSWER)) {
            Ok(stream) => match device {
                Some(device) => return device.follow(stream),
                None => return ready(stream.into()),
            },
            Err(ChannelError::Refused(refusal)) => return Err(errno(refusal)),
            Err(ChannelError::NotReady { .. } | ChannelError::Gone) if !left.is_zero() => std::thread::sleep(PAUSE),
            Err(ChannelError::TimedOut) => return Err(Errno::TIMEDOUT),
            Err(_) => return Err(Errno::HOSTUNREACH),
        }
    }
}

/// Accepts a question, and says by which way its queue pairs go where the other broker can take both.
fn accept(open: OpenRequest, is_by_device: bool, ferry: Option<&Ferry>) -> Result<OwnedFd, Errno> {
    let mut connection = open.accept().map_err(|_| Errno::CONNRESET)?;
    if !is_by_device {
        return ready(connection.into());
    }
    let own = ready(connection.try_clone().map_err(|_| Errno::MFILE)?.into())?;
    let (own, invitation) = match ferry.map(|ferry| ferry.expect(own.as_fd())) {
        Some(Ok(by_device)) => by_device,
        _ => (own, Invitation::Stream),
    };
    connection.write_all(&invitation.to_bytes()).map_err(|_| Errno::CONNRESET)?;
    Ok(own)
}

/// Puts a question to the broker. Gives back one that comes too early.
fn asked(broker: &mut Broker, ferry: Option<&Ferry>, open: OpenRequest) -> Option<OpenRequest> {
    let is_by_device = open.open.flow & BY_DEVICE != 0;
    // The answer repeats the number as it came.
    let host = open.host;
    let heard = match read(&Open { flow: open.open.flow & !BY_DEVICE, ..open.open }) {
        Some(Question::Join(join)) => {
            let mut open = Some(open);
            let refused = broker.asked(host, &join, || accept(open.take().ok_or(Errno::INVAL)?, is_by_device, ferry));
            if let (Err(errno), Some(open)) = (refused, open) {
                if errno == Errno::AGAIN {
                    return Some(open);
                }
                let _ = open.refuse(refusal(errno));
            }
            return None;
        }
        Some(Question::Group(news)) => broker.told(host, &news),
        Some(Question::Groups) => {
            broker.asked_for_groups(host);
            Ok(())
        }
        None => Err(Errno::PERM),
    };
    // A stream is not wanted, so there is none in any case.
    let _ = open.refuse(heard.map_or_else(refusal, |()| Refusal::Crowded));
    None
}

/// Has a stream's end hear nothing, as if its link was cut, or hear again. It drops what comes, so TCP sends that again later. A
/// carrier moves nothing.
pub(super) fn still(ferry: Option<Ferry>) -> Still {
    Box::new(move |stream, is_still| match &ferry {
        Some(ferry) if leads_there(stream) => ferry.hold(stream, is_still),
        _ => deafen(stream, is_still),
    })
}

fn deafen(stream: BorrowedFd<'_>, is_still: bool) {
    // A stream that has ended takes no option, and is still anyway.
    let _ = filter::set_deaf(stream, is_still);
    let _ = hold_out(stream, is_still);
}

/// Sets options up that the programs at both ends cannot.
fn ready(stream: OwnedFd) -> Result<OwnedFd, Errno> {
    sockopt::set_tcp_nodelay(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, Duration::from_secs(15))?;
    sockopt::set_tcp_keepintvl(&stream, SILENCE)?;
    sockopt::set_tcp_keepcnt(&stream, 3)?;
    hold_out(&stream, false)?;
    Ok(stream)
}

/// A question whose asker can go by a device too: the answer is an invitation.
const BY_DEVICE: u64 = 1 << 63;

/// Numbers of questions, beside those of transports.
const JOINS_GROUP: u64 = 3;
const LEAVES_GROUP: u64 = 4;
const ASKS_FOR_GROUPS: u64 = 5;

/// Stands where a question names no queue pair.
const NOBODY: Name = Name { gid: [0; 16], number: 0 };

/// A question as routers' messages carry it: its kind and queue pairs' numbers stand in the place of the flow's number.
fn write(question: &Question) -> Open {
    let (kind, from, to) = match question {
        Question::Join(join) => {
            let transport = match join.transport {
                Transport::Reliable => 0,
                Transport::Unreliable => 1,
                Transport::Datagram => 2,
            };
            (transport, join.from, join.to)
        }
        Question::Group(news) => {
            let kind = if news.is_member { JOINS_GROUP } else { LEAVES_GROUP };
            (kind, news.member, Name { gid: news.group, number: 0 })
        }
        Question::Groups => (ASKS_FOR_GROUPS, NOBODY, NOBODY),
    };
    let flow = kind << (2 * NUMBER) | u64::from(from.number) << NUMBER | u64::from(to.number);
    let at = |gid: &Gid| {
        let ip = Ipv6Addr::from(*gid);
        SocketAddr::new(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4), 0)
    };
    Open { flow, server: at(&to.gid), client: at(&from.gid) }
}

/// The question of a message; none where it has bits that [`write()`] does not write.
fn read(open: &Open) -> Option<Question> {
    let number = |shift: u32| u32::try_from(open.flow >> shift & ((1 << NUMBER) - 1)).ok();
    let name = |at: SocketAddr, number: u32| {
        (at.port() == 0).then(|| Name { gid: slipway_verbs::broker::gid(at.ip()), number })
    };
    let (from, to) = (name(open.client, number(NUMBER)?)?, name(open.server, number(0)?)?);
    let join = |transport| Some(Question::Join(Join { transport, from, to }));
    match open.flow >> (2 * NUMBER) {
        0 => join(Transport::Reliable),
        1 => join(Transport::Unreliable),
        2 => join(Transport::Datagram),
        kind @ (JOINS_GROUP | LEAVES_GROUP) if to.number == 0 => {
            let is_member = kind == JOINS_GROUP;
            Some(Question::Group(Membership { group: to.gid, member: from, is_member }))
        }
        ASKS_FOR_GROUPS if (from, to) == (NOBODY, NOBODY) => Some(Question::Groups),
        _ => None,
    }
}

/// Errors of a broker, and the refusals that stand for them between hosts.
const ERRORS: [(Errno, Refusal); 7] = [
    (Errno::CONNREFUSED, Refusal::NobodyListens),
    (Errno::ACCESS, Refusal::Policy),
    (Errno::OPNOTSUPP, Refusal::NotServed),
    (Errno::HOSTUNREACH, Refusal::NoSuchNode),
    (Errno::NOBUFS, Refusal::Limit),
    (Errno::ALREADY, Refusal::Crowded),
    (Errno::PERM, Refusal::Options),
];

fn refusal(errno: Errno) -> Refusal {
    ERRORS.iter().find(|it| it.0 == errno).map_or(Refusal::Resources, |it| it.1)
}

fn errno(refusal: Refusal) -> Errno {
    ERRORS.iter().find(|it| it.1 == refusal).map_or(Errno::NOMEM, |it| it.0)
}

#[cfg(test)]
mod tests {
    use rustix::net::RecvFlags;
    use slipway_verbs::carrier::Order;
    use slipway_verbs::wire::receive;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_error_is_the_same_on_both_hosts() {
        for (error, _) in ERRORS {
            assert_eq!(errno(refusal(error)), error);
        }
        assert_eq!(errno(refusal(Errno::MFILE)), Errno::NOMEM);
    }

    #[test]
    fn a_device_that_does_not_reach_leaves_the_pair_to_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut asked, _) = listener.accept().unwrap();
        let (ferry, orders) = Ferry::to_nobody(7);
        let (_own, invitation) = ferry.expect(asked.as_fd()).unwrap();
        asked.write_all(&invitation.to_bytes()).unwrap();
        drop(receive::<Order>(orders.as_fd(), RecvFlags::empty()).unwrap());
        // The carrier closes the end that it was to join.
        let carrier = std::thread::spawn(move || receive::<Order>(orders.as_fd(), RecvFlags::empty()).unwrap().0);
        let mut device = Device { ferry, machine: Ipv4Addr::LOCALHOST, idle: None };
        let stream = device.follow(connection).unwrap();
        let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7);
        assert!(matches!(carrier.join().unwrap(), Order::Connect { at: there, .. } if there == at));
        assert!(device.is_idle() && !leads_there(stream.as_fd()));
        let mut word = [0];
        asked.read_exact(&mut word).unwrap();
        assert_eq!(word, [FALLS_BACK]);
    }

    #[test]
    fn a_machine_without_a_device_says_so_and_the_connection_carries_the_pair() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut asked, _) = listener.accept().unwrap();
        asked.write_all(&Invitation::Stream.to_bytes()).unwrap();
        let (ferry, _orders) = Ferry::to_nobody(7);
        let mut device = Device { ferry, machine: Ipv4Addr::LOCALHOST, idle: None };
        assert!(!leads_there(device.follow(connection).unwrap().as_fd()) && !device.is_idle());
    }

    proptest! {
        #[test]
        fn a_question_is_read_as_it_was_written_or_not_at_all(
            flow: u64, ports: (bool, bool), v4: [u8; 4], v6: [u8; 16],
        ) {
            let at = |ip: IpAddr, is_odd: bool| SocketAddr::new(ip, is_odd.into());
            let v6 = Ipv6Addr::from(v6);
            prop_assume!(v6.to_ipv4_mapped().is_none());
            for flow in [flow, flow >> 15, flow >> 14, flow >> 13, flow >> 13 & !0xff_ffff] {
                let open = Open { flow, server: at(v4.into(), ports.0), client: at(v6.into(), ports.1) };
                if let Some(question) = read(&open) {
                    prop_assert_eq!(write(&question), open);
                }
            }
        }
    }
}
