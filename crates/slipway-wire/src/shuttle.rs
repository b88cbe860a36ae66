//! The loop: frames in, frames out when they are due, and what the anchor asks in between.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};
use slipway_sys::tap::{FRAME_BYTES, Tap};

use crate::clock::{now, timespec};
use crate::pool::Pool;
use crate::port::{Port, Read, Store};
use crate::protocol::{Answer, LONGEST, PORTS, Request, hear, say};
use crate::spec::Spec;
use crate::wheel::Wheel;

/// Frames that a port may bring before what is due goes out, and before the other ports.
const BATCH: usize = 16;
/// Events taken at once.
const EVENTS: usize = 64;
/// Above every port's number.
const CONTROL: u64 = 1 << 32;
const TIMER: u64 = CONTROL + 1;

/// Everything that the wire's process has.
#[derive(Debug)]
pub(crate) struct Shuttle<'a> {
    control: BorrowedFd<'a>,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// The time that the timer is set to.
    armed: Option<u64>,
    /// Devices without conditions yet: nothing is read from them.
    attached: BTreeMap<u32, Tap>,
    /// Conditions of which peers are still to come.
    begun: Option<(u32, Box<Spec>)>,
    ports: BTreeMap<u32, Port>,
    store: Store,
    frame: Box<[u8]>,
    message: Box<[u8]>,
}

impl<'a> Shuttle<'a> {
    /// # Errors
    /// When the kernel refuses a descriptor.
    pub(crate) fn new(control: BorrowedFd<'a>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, control, epoll::EventData::new_u64(CONTROL), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), epoll::EventFlags::IN)?;
        Ok(Self {
            control,
            epoll,
            timer,
            armed: None,
            attached: BTreeMap::new(),
            begun: None,
            ports: BTreeMap::new(),
            store: Store { wheel: Wheel::new(now()), pool: Pool::default() },
            frame: vec![0; FRAME_BYTES].into(),
            message: vec![0; LONGEST].into(),
        })
    }

    /// Runs until the anchor is gone.
    ///
    /// # Errors
    /// When the kernel refuses what it always grants.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let timeout = self.rest()?;
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let since = self.since();
            for event in &events {
                // Between the ports too: many busy ones take longer than a frame may be late.
                self.deliver()?;
                match u32::try_from(event.data.u64()) {
                    Ok(port) => self.pump(port, since)?,
                    Err(_) if event.data.u64() == CONTROL && !self.serve()? => return Ok(()),
                    Err(_) => {}
                }
            }
            self.deliver()?;
        }
    }

    /// Sets the timer. How long to wait: for an event, or not at all.
    fn rest(&mut self) -> io::Result<Option<rustix::time::Timespec>> {
        let next = self.store.wheel.next_due();
        if next.is_some_and(|next| next <= now()) {
            return Ok(Some(timespec(0)));
        }
        if next != self.armed {
            // Setting it anew also takes back that it went off. Zero is never.
            let value = Itimerspec { it_interval: timespec(0), it_value: timespec(next.unwrap_or(0)) };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &value)?;
            self.armed = next;
        }
        Ok(None)
    }

    /// When this round ought to have begun: when the first frame was due, or else now.
    fn since(&mut self) -> u64 {
        let now = now();
        self.store.wheel.next_due().map_or(now, |due| due.min(now))
    }

    /// Sends what is due. Frames that come due meanwhile wait for the next round, so that reading goes on.
    fn deliver(&mut self) -> io::Result<()> {
        let now = now();
        while let Some((due, waiting)) = self.store.wheel.pop(now) {
            let Some(port) = self.ports.get_mut(&waiting.port) else { continue };
            let (number, was_blocked) = (waiting.port, port.is_blocked());
            port.deliver(due, waiting, &mut self.store.pool);
            if port.is_blocked() != was_blocked {
                self.watch(number)?;
            }
        }
        Ok(())
    }

    fn pump(&mut self, number: u32, since: u64) -> io::Result<()> {
        let Some(port) = self.ports.get_mut(&number) else { return Ok(()) };
        let was_blocked = port.is_blocked();
        port.flush(&mut self.store.pool);
        port.look(since);
        for _ in 0..BATCH {
            match port.read(&mut self.frame, &mut self.store) {
                Read::Frame => {}
                Read::Nothing => break,
                Read::Gone => {
                    epoll::delete(&self.epoll, port.tap())?;
                    return Ok(());
                }
            }
        }
        if port.is_blocked() == was_blocked { Ok(()) } else { self.watch(number) }
    }

    /// Waits for a port's frames and, where some wait for it, for its room.
    fn watch(&self, number: u32) -> io::Result<()> {
        let Some(port) = self.ports.get(&number) else { return Ok(()) };
        let room = if port.is_blocked() { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(number.into());
        match epoll::modify(&self.epoll, port.tap(), data, epoll::EventFlags::IN | room) {
            // Its device is gone.
            Err(Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Does what the anchor asks. False where it is gone.
    fn serve(&mut self) -> io::Result<bool> {
        let answer = match hear(self.control, &mut self.message) {
            Ok(None) => return Ok(false),
            Ok(Some((request, descriptor))) => {
                let _span = tracing::debug_span!("wire").entered();
                tracing::debug!(?request, "taken");
                self.obey(request, descriptor).unwrap_or_else(|error| {
                    tracing::warn!("refused: {error}");
                    Answer::Failed(error.to_string())
                })
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Answer::Failed(error.to_string()),
            Err(error) => return Err(error),
        };
        say(self.control, &answer, None)?;
        Ok(true)
    }

    fn obey(&mut self, request: Request, descriptor: Option<OwnedFd>) -> io::Result<Answer> {
        match request {
            Request::Attach { port } => {
                let descriptor = descriptor.ok_or_else(|| io::Error::other("no descriptor came along"))?;
                self.attach(port, descriptor)?;
            }
            Request::Set { port, spec, more: true } => self.begun = Some((port, spec)),
            Request::Set { port, spec, more: false } => self.set(port, &spec)?,
            Request::Peers { port, peers, more } => {
                let Some((begun, mut spec)) = self.begun.take().filter(|(begun, _)| *begun == port) else {
                    return Err(io::Error::other("peers of conditions that were not begun"));
                };
                spec.peers.extend(peers);
                if more {
                    self.begun = Some((begun, spec));
                } else {
                    self.set(port, &spec)?;
                }
            }
            Request::Detach { port } => self.detach(port)?,
            Request::Stats { from } => {
                let mut ports = self.ports.range(from..);
                let stats = ports.by_ref().take(PORTS).map(|(_, port)| port.stats()).collect();
                return Ok(Answer::Stats(stats, ports.next().map(|(number, _)| *number)));
            }
        }
        Ok(Answer::Done)
    }

    fn attach(&mut self, port: u32, descriptor: OwnedFd) -> io::Result<()> {
        if self.ports.contains_key(&port) || self.attached.contains_key(&port) {
            return Err(io::Error::other("the port is in use"));
        }
        // One that blocks would hold all the others.
        let flags = rustix::fs::fcntl_getfl(&descriptor)?;
        rustix::fs::fcntl_setfl(&descriptor, flags | rustix::fs::OFlags::NONBLOCK)?;
        self.attached.insert(port, Tap::from(descriptor));
        Ok(())
    }

    fn set(&mut self, number: u32, spec: &Spec) -> io::Result<()> {
        if let Some(port) = self.ports.get_mut(&number) {
            return port.set(spec, &mut self.store);
        }
        let tap = self.attached.remove(&number).ok_or_else(|| io::Error::other("there is no such port"))?;
        let port = Port::new(number, tap, spec)?;
        epoll::add(&self.epoll, port.tap().as_fd(), epoll::EventData::new_u64(number.into()), epoll::EventFlags::IN)?;
        self.ports.insert(number, port);
        Ok(())
    }

    fn detach(&mut self, number: u32) -> io::Result<()> {
        if self.attached.remove(&number).is_some() {
            return Ok(());
        }
        let port = self.ports.remove(&number).ok_or_else(|| io::Error::other("there is no such port"))?;
        self.store.forget(number);
        // Where its device is gone, it is no longer watched.
        match epoll::delete(&self.epoll, port.tap()) {
            Err(Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }
}
