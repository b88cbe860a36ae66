//! One lab's or one node's folders, over all hierarchies that it needs.

use std::collections::BTreeSet;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::control::{Folder, check_name};
use super::{CgroupError, Controller, Limits, Usage, failed, usage};

/// How long freezing and ending may take. A process that takes longer hangs in the kernel: hundreds that end at once on an
/// emulated machine have been seen to take more than ten seconds.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks at a state that version 1 does not announce.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Between two looks whether a group is still there. Its last events are lost where another process removes it at once:
/// `kernfs_notify` wakes its readers from a work queue, and removing a file wakes none (`fs/kernfs/file.c`).
const LOOK_WHETHER_GONE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// A hierarchy's share in the work.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) version: Version,
    pub(super) controllers: BTreeSet<Controller>,
}

impl Part {
    pub(super) fn unified(controllers: BTreeSet<Controller>) -> Self {
        Self { version: Version::V2, controllers }
    }

    pub(super) fn legacy(controller: Controller) -> Self {
        Self { version: Version::V1, controllers: BTreeSet::from([controller]) }
    }

    pub(super) fn at(self, folder: Folder) -> Place {
        Place { part: self, folder }
    }

    /// Lets the children of `folder` use the controllers: version 2 asks for that at every level.
    pub(super) fn prepare_children(&self, folder: &Folder) -> Result<(), CgroupError> {
        if self.version == Version::V1 || self.controllers.is_empty() {
            return Ok(());
        }
        let file = "cgroup.subtree_control";
        let on = folder.read(file)?;
        let on: Vec<_> = on.split_whitespace().collect();
        for controller in self.controllers.iter().filter(|one| !on.contains(&one.name())) {
            folder.write(file, &format!("+{}", controller.name()))?;
        }
        Ok(())
    }

    /// Fills a fresh folder with what it needs before a process may join: a version 1 cpuset starts out empty.
    pub(super) fn adopt(&self, parent: &Folder, child: &Folder) -> Result<(), CgroupError> {
        if self.version == Version::V1 && self.controllers.contains(&Controller::Cpuset) {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if child.read(file)?.trim().is_empty() {
                    child.write(file, parent.read(file)?.trim())?;
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct Place {
    pub(super) part: Part,
    pub(super) folder: Folder,
}

/// A lab's or a node's control group. The processes in it are those of its membership record, the first place.
#[derive(Debug)]
pub struct Group {
    pub(super) places: Vec<Place>,
    /// Folders that were not there when the group was opened. A limit that the group gets while it is in use makes one.
    absent: Vec<PathBuf>,
}

impl Group {
    /// `places` begins with the membership record.
    pub(super) fn new(places: Vec<Place>) -> Self {
        Self { places, absent: Vec::new() }
    }

    /// As [`Group::new`], with the folders that are not there.
    pub(super) fn opened(places: Vec<Place>, absent: Vec<PathBuf>) -> Self {
        Self { places, absent }
    }

    /// Whether the lab whose group this is has one for this node, wherever its limits are.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn has_node(&self, node: &str) -> Result<bool, CgroupError> {
        check_name(node)?;
        self.record().map_or(Ok(false), |place| Ok(place.folder.child(node)?.is_some()))
    }

    /// Makes the group of a node below its lab's, in the membership record and where its limits need a controller.
    ///
    /// # Errors
    /// When the kernel refuses a limit (such as processors that the machine does not have).
    pub fn create_node(&self, node: &str, limits: &Limits) -> Result<Self, CgroupError> {
        check_name(node)?;
        let needed: BTreeSet<Controller> = limits.needs().map(|(controller, _)| controller).collect();
        let mut places = Vec::with_capacity(self.places.len());
        for (index, Place { part, folder }) in self.places.iter().enumerate() {
            let own: BTreeSet<Controller> = part.controllers.intersection(&needed).copied().collect();
            if index > 0 && own.is_empty() {
                continue;
            }
            let gone = || failed("make", &folder.path().join(node))(io::ErrorKind::NotFound.into());
            let child = folder.make(node)?.ok_or_else(gone)?;
            part.adopt(folder, &child)?;
            for &controller in &own {
                limits.write(&child, part.version, controller)?;
            }
            places.push(Part { version: part.version, controllers: own }.at(child));
        }
        Ok(Self::new(places))
    }

    /// Makes a group within this one, in the membership record alone: a job's programs, to be ended together without
    /// touching the rest of the node. Limits stay the node's; a program joins them by [`Group::join_others`] of that.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn create_within(&self, name: &str) -> Result<Self, CgroupError> {
        check_name(name)?;
        let mut places = Vec::new();
        if let Some(Place { part, folder }) = self.record() {
            let gone = || failed("make", &folder.path().join(name))(io::ErrorKind::NotFound.into());
            let child = folder.make(name)?.ok_or_else(gone)?;
            places.push(Part { version: part.version, controllers: BTreeSet::new() }.at(child));
        }
        Ok(Self::new(places))
    }

    /// The folder to clone a process into (`CLONE_INTO_CGROUP`), where the membership record is version 2.
    /// The process then calls [`Group::join_others`].
    #[must_use]
    pub fn clone_target(&self) -> Option<BorrowedFd<'_>> {
        self.record().filter(|place| place.part.version == Version::V2).map(|place| place.folder.fd())
    }

    /// The descriptors that [`Group::join_others`] takes.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.places.iter().map(|place| place.folder.fd().as_raw_fd()).collect()
    }

    /// Takes the calling process into every hierarchy that [`Group::clone_target`] does not cover.
    ///
    /// Looks for folders that came since the group was opened, once the process is in the membership record. The maker
    /// of a folder moves every process in the record there, so none is missed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn join_others(&self) -> Result<(), CgroupError> {
        let born = usize::from(self.clone_target().is_some());
        let join = |folder: &Folder| folder.write("cgroup.procs", "0");
        self.places.iter().skip(born).try_for_each(|place| join(&place.folder))?;
        self.absent.iter().try_for_each(|path| Folder::open(path)?.map_or(Ok(()), |folder| join(&folder)))
    }

    /// Moves a process into the group, in every hierarchy.
    ///
    /// # Errors
    /// `ESRCH` when it is gone.
    pub fn add(&self, pid: Pid) -> Result<(), CgroupError> {
        let pid = pid.as_raw_nonzero().to_string();
        self.places.iter().try_for_each(|place| place.folder.write("cgroup.procs", &pid))
    }

    /// Every process in the group and below, as numbered in the caller's PID namespace.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn pids(&self) -> Result<Vec<i32>, CgroupError> {
        self.record().map_or(Ok(Vec::new()), |place| pids(&place.folder))
    }

    /// Stops every process where it stands and waits until all are stopped.
    ///
    /// # Errors
    /// [`CgroupError::Stuck`] when one hangs in the kernel.
    pub fn freeze(&self) -> Result<(), CgroupError> {
        self.set_frozen(true)
    }

    /// Lets every process go on and waits until that is done.
    ///
    /// # Errors
    /// As [`Group::freeze`].
    pub fn thaw(&self) -> Result<(), CgroupError> {
        self.set_frozen(false)
    }

    fn set_frozen(&self, frozen: bool) -> Result<(), CgroupError> {
        let Some(Place { part, folder }) = self.record() else {
            return Ok(());
        };
        let action = if frozen { "freeze" } else { "thaw" };
        if part.version == Version::V2 {
            folder.write("cgroup.freeze", if frozen { "1" } else { "0" })?;
            return wait_event(folder, if frozen { "frozen 1" } else { "frozen 0" }, action);
        }
        let state = if frozen { "FROZEN" } else { "THAWED" };
        folder.write("freezer.state", state)?;
        // Version 1 tells nobody when the last process has stopped: the state is worked out when it is read.
        let deadline = Instant::now() + PATIENCE;
        while folder.read("freezer.state")?.trim() != state {
            if Instant::now() > deadline {
                return Err(stuck(folder, action));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// True if the group is frozen.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn is_frozen(&self) -> Result<bool, CgroupError> {
        let Some(Place { part, folder }) = self.record() else {
            return Ok(false);
        };
        Ok(match part.version {
            Version::V1 => folder.read("freezer.state")?.trim() == "FROZEN",
            Version::V2 => folder.read("cgroup.events")?.lines().any(|line| line == "frozen 1"),
        })
    }

    /// Ends every process in the group and below, and waits until they are gone. Removed already is fine.
    ///
    /// No process can be cloned into the group afterwards: Linux ends, from 6.14 on, a process that is cloned into a group
    /// whose `cgroup.kill` was ever written (`cgroup_css_set_fork` compares with
    /// another group's count).
    ///
    /// # Errors
    /// [`CgroupError::Stuck`] when one hangs in the kernel.
    pub fn kill(&self) -> Result<(), CgroupError> {
        let Some(Place { part, folder }) = self.record() else {
            return Ok(());
        };
        let is_one_write = part.version == Version::V2 && folder.has("cgroup.kill");
        unless_gone(if is_one_write { folder.write("cgroup.kill", "1") } else { self.begin_to_kill() })?;
        self.places.iter().try_for_each(wait_empty)
    }

    /// Ends every process in the group and below, without waiting, and so that others can follow: none of them does anything
    /// any more, frozen or not.
    ///
    /// # Errors
    /// As [`Group::freeze`].
    pub fn begin_to_kill(&self) -> Result<(), CgroupError> {
        let Some(Place { part, folder }) = self.record() else {
            return Ok(());
        };
        // Stopped processes cannot fork, so one round of signals reaches all.
        self.freeze()?;
        for pid in pids(folder)?.into_iter().filter_map(Pid::from_raw) {
            match kill_process(pid, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => {
                    return Err(failed("end the processes of", folder.path())(error.into()));
                }
            }
        }
        match part.version {
            Version::V1 => thaw_below(folder),
            Version::V2 => folder.write("cgroup.freeze", "0"),
        }
    }

    /// Removes the group with everything below it, waiting for processes that are ending. Removed already is fine.
    ///
    /// # Errors
    /// [`CgroupError::Stuck`] when a process is left; all hierarchies are tried before.
    pub fn remove(self) -> Result<(), CgroupError> {
        let results: Vec<_> = self.places.iter().rev().map(remove).collect();
        results.into_iter().collect()
    }

    /// Resources that the group has used.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn usage(&self) -> Result<Usage, CgroupError> {
        let folders = self.places.iter().map(|place| &place.folder);
        Ok(usage::read(&folders, &self.pids()?))
    }

    fn record(&self) -> Option<&Place> {
        self.places.first()
    }
}

pub(super) fn pids(folder: &Folder) -> Result<Vec<i32>, CgroupError> {
    let mut found: Vec<i32> = folder.read("cgroup.procs")?.lines().filter_map(|line| line.parse().ok()).collect();
    for child in children(folder)? {
        found.extend(unless_gone(pids(&child))?);
    }
    Ok(found)
}

fn children(folder: &Folder) -> Result<Vec<Folder>, CgroupError> {
    folder.children()?.iter().filter_map(|name| folder.child(name).transpose()).collect()
}

/// Nothing, of a group that was removed meanwhile: a job's groups go with the job, whatever else goes on in the node.
fn unless_gone<T: Default>(found: Result<T, CgroupError>) -> Result<T, CgroupError> {
    match found {
        Err(CgroupError::Io { source, .. }) if is_gone(&source) => Ok(T::default()),
        found => found,
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// Thaws a version 1 folder and each one below, which may have been frozen for itself: a stopped process cannot end.
fn thaw_below(folder: &Folder) -> Result<(), CgroupError> {
    folder.write("freezer.state", "THAWED")?;
    children(folder)?.iter().try_for_each(|child| unless_gone(thaw_below(child)))
}

fn wait_empty(place: &Place) -> Result<(), CgroupError> {
    let Place { part, folder } = place;
    if part.version == Version::V2 {
        return wait_event(folder, "populated 0", "empty");
    }
    // Version 1 announces nothing about a group; each process announces its own end.
    let deadline = Instant::now() + PATIENCE;
    while let Some(&pid) = unless_gone(pids(folder))?.first() {
        if Instant::now() > deadline {
            return Err(stuck(folder, "empty"));
        }
        if let Some(pidfd) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) {
            wait(&mut [PollFd::new(&pidfd, PollFlags::IN)], deadline);
        }
        // A process leaves its group a moment after it is reported dead.
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

fn remove(place: &Place) -> Result<(), CgroupError> {
    remove_below(place)?;
    let path = place.folder.path();
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(());
    };
    let Some(parent) = Folder::open(parent)? else {
        return Ok(());
    };
    let deadline = Instant::now() + PATIENCE;
    while !parent.remove(name)? {
        if Instant::now() > deadline {
            return Err(stuck(&place.folder, "remove"));
        }
        wait_empty(place)?;
        // Empty and still busy: the last process is between its report and its leaving, or a group was made below meanwhile.
        std::thread::sleep(LOOK_AGAIN);
        remove_below(place)?;
    }
    Ok(())
}

fn remove_below(place: &Place) -> Result<(), CgroupError> {
    let below = |folder| Place { part: place.part.clone(), folder };
    unless_gone(children(&place.folder))?.into_iter().try_for_each(|folder| remove(&below(folder)))
}

/// Waits until `cgroup.events` has the line, woken by the kernel at each change. A folder that is gone had no processes.
fn wait_event(folder: &Folder, line: &str, action: &'static str) -> Result<(), CgroupError> {
    let deadline = Instant::now() + PATIENCE;
    let error = |error| failed("read", &folder.path().join("cgroup.events"))(error);
    let mut events = match folder.open_file("cgroup.events", OFlags::RDONLY) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(error)?,
    };
    loop {
        let mut text = String::new();
        match events.rewind().and_then(|()| events.read_to_string(&mut text)) {
            Err(gone) if is_gone(&gone) => return Ok(()),
            read => read.map_err(error)?,
        };
        if text.lines().any(|have| have == line) {
            return Ok(());
        }
        let now = Instant::now();
        if now > deadline {
            return Err(stuck(folder, action));
        }
        wait(&mut [PollFd::new(&events, PollFlags::PRI)], deadline.min(now + LOOK_WHETHER_GONE));
    }
}

/// Until an event, a signal or the deadline: the caller looks again.
fn wait(descriptors: &mut [PollFd<'_>], deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).ok();
    let _ = poll(descriptors, left.as_ref());
}

pub(super) fn stuck(folder: &Folder, action: &'static str) -> CgroupError {
    let left = pids(folder).unwrap_or_default().into_iter().take(10).collect();
    CgroupError::Stuck { action, path: folder.path().to_owned(), seconds: PATIENCE.as_secs(), left }
}
