//! All nodes of a job, wherever they are, and programs in them.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::process::Signal;
use slipway_lab::id::{MachineId, NodeId};

use super::JobError;
use super::far::Wanted;
use super::local::{Local, Locals};
use super::parts::{Far, Parts};
use crate::exec::pump::{is_null, never_block};
use crate::exec::{Child, Launcher, Program, Stdio};
use crate::lab::Running;

/// A node of the job.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) name: String,
    node: NodeId,
    addresses: Vec<IpAddr>,
    at: At,
}

#[derive(Debug, Clone, Copy)]
enum At {
    /// On this machine, by its position among the local ones.
    Here(usize),
    There(MachineId),
}

impl Place {
    /// The place of a node in a job of this name. One of this machine is prepared, and joins `locals`.
    pub(super) fn open(lab: &Running, node: NodeId, job: &str, locals: &mut Locals) -> Result<Self, JobError> {
        let at = if lab.lab.has_here(node) {
            locals.all.push(Local::open(lab, node, job)?);
            At::Here(locals.all.len() - 1)
        } else {
            At::There(lab.lab.machine_of(node))
        };
        let model = &lab.lab.nodes[node];
        let v4 = model.interfaces.iter().map(|interface| interface.ipv4.into());
        let v6 = model.interfaces.iter().filter_map(|interface| interface.ipv6.map(Into::into));
        Ok(Self { name: model.name.clone(), node, addresses: v4.chain(v6).collect(), at })
    }

    /// Whether the node is on this machine.
    pub(super) fn is_here(&self) -> bool {
        matches!(self.at, At::Here(_))
    }

    fn is_called(&self, host: &str) -> bool {
        self.name == host || host.parse().is_ok_and(|address| self.addresses.contains(&address))
    }
}

/// A program of the job.
#[derive(Debug)]
pub(super) enum Process {
    /// On this machine.
    Here(Child),
    /// On another.
    There(Far),
}

impl Process {
    /// Whether it is this one, of another machine.
    pub(super) fn is(&self, far: Far) -> bool {
        matches!(self, Self::There(own) if *own == far)
    }
}

/// All nodes of the job, and the ways into them.
#[derive(Debug)]
pub(super) struct Nodes<'a> {
    pub(super) launcher: &'a Launcher,
    pub(super) places: &'a [Place],
    pub(super) locals: &'a [Local],
    pub(super) parts: Parts,
}

impl Nodes<'_> {
    /// The place with this name or address.
    pub(super) fn called(&self, host: &str) -> Option<usize> {
        self.places.iter().position(|place| place.is_called(host))
    }

    /// Starts a program. `stdio` are pipes, or the null device. Nobody trusts them: they may be a node's.
    pub(super) fn start(
        &mut self,
        place: usize,
        program: &Program,
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<Process, JobError> {
        let Place { node, at, .. } = &self.places[place];
        match *at {
            At::Here(at) => {
                let Local { entry, group, .. } = &self.locals[at];
                Ok(Process::Here(self.launcher.spawn(entry, program, Stdio::Descriptors(stdio), group.as_ref())?))
            }
            At::There(machine) => {
                let ends = || -> io::Result<_> {
                    let input = if is_null(&fstat(stdio[0])?) { None } else { Some(again(stdio[0], OFlags::RDONLY)?) };
                    Ok((input, [again(stdio[1], OFlags::WRONLY)?, again(stdio[2], OFlags::WRONLY)?]))
                };
                let ends = ends().map_err(JobError::io("pass standard input and output on"))?;
                Ok(Process::There(self.parts.start((machine, *node), Wanted::of(program), ends)?))
            }
        }
    }

    /// Sends a signal to a program and to whatever it started in its process group.
    pub(super) fn signal(&mut self, process: &Process, signal: Signal) -> io::Result<()> {
        match process {
            Process::Here(child) => child.signal_group(signal),
            Process::There(far) => self.parts.signal(*far, signal.as_raw()),
        }
    }

    /// Bytes that a place sent over its networks, once the job is over. `before`: the counts of the local ones before it.
    pub(super) fn sent(&self, place: &Place, before: &[u64]) -> u64 {
        match place.at {
            At::Here(at) => self.locals[at].sent().saturating_sub(before[at]),
            At::There(_) => self.parts.sent(place.node),
        }
    }
}

/// Opens an end of a pipe anew. Its flags are then this process's alone, whoever has the end too: it never blocks.
fn again(pipe: BorrowedFd<'_>, flags: OFlags) -> io::Result<OwnedFd> {
    if FileType::from_raw_mode(fstat(pipe)?.st_mode) != FileType::Fifo {
        return Err(io::Error::other("it is no pipe"));
    }
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let opened = open(path, flags | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    never_block(&opened)?;
    Ok(opened)
}
