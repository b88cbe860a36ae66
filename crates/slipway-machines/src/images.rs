//! Images of a lab on the machines that do not have them yet.
//!
//! An image is known by its [identity](slipway_image::identity()), so it reaches a machine once. The coordinator sends it to two
//! machines, each of those to two more, and so on. `slipway transfer` carries it. Parts of an image that
//! arrived before a cut are not sent again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use slipway_engine::rsh::{Rsh, is_here};
use slipway_image::{ImageError, Store, identity};
use slipway_lab::model::{Image, ImageSource, Lab, Machine};

use crate::ask::{all, each};
use crate::channel::Channel;
use crate::error::MachineError;
use crate::message::{Answer, Order};

/// Marks a folder of the store whose image is whole.
const WHOLE: &str = ".whole";
/// Machines that one machine sends an image to.
const FAN: usize = 2;

/// Looks for an image on this machine: where another machine sent it, and at the lab file's path.
pub(crate) fn look(store: &Store, path: &Path, name: &str, wanted: &str) -> Result<Answer, ImageError> {
    let place = store.carried(wanted)?;
    let sent = place.join(Path::new(name).file_name().unwrap_or_default());
    let is_wanted = |path: &Path| identity(path).is_ok_and(|found| found == wanted);
    let is_whole = place.join(WHOLE).exists();
    let found = if is_whole && sent.exists() {
        Some(sent)
    } else if is_wanted(&sent) {
        // Only spares reading the image once more.
        let _ = fs::write(place.join(WHOLE), "");
        Some(sent)
    } else {
        is_wanted(path).then(|| path.to_owned())
    };
    Ok(Answer::Image { found, place })
}

/// A machine's part, and where it has an image.
struct Receiver<'a> {
    machine: &'a Machine,
    channel: &'a mut Channel,
    place: PathBuf,
}

/// An image on its way.
struct Carried<'a> {
    rsh: &'a Rsh,
    image: &'a Image,
    /// The image's path, as the lab file has it.
    path: &'a Path,
    /// The image's path on this machine, free of symbolic links.
    source: PathBuf,
    name: String,
    identity: String,
}

/// The paths that a machine has a lab's images at, in the order of the lab's. Those without a path are left out.
pub(crate) type Places = Vec<PathBuf>;

/// Brings all images to all machines, and gives where each machine has them.
pub(crate) fn bring(rsh: &Rsh, lab: &Lab, channels: &mut [Channel]) -> Result<Vec<Places>, MachineError> {
    let mut all = vec![Places::new(); channels.len()];
    for image in &lab.images {
        let ImageSource::Path { path, .. } = &image.source else { continue };
        let found = Carried::new(rsh, image, path)?.carry(lab, channels)?;
        all.iter_mut().zip(found).for_each(|(places, found)| places.push(found));
    }
    Ok(all)
}

/// Has a lab's images be where its machine has them.
pub(crate) fn place(lab: &mut Lab, places: &[PathBuf]) {
    let paths = lab.images.iter_mut().filter_map(|image| match &mut image.source {
        ImageSource::Path { path, .. } => Some(path),
        ImageSource::Host => None,
    });
    paths.zip(places).for_each(|(path, place)| path.clone_from(place));
}

impl<'a> Carried<'a> {
    fn new(rsh: &'a Rsh, image: &'a Image, path: &'a Path) -> Result<Self, MachineError> {
        let source =
            path.canonicalize().map_err(|source| MachineError::Here { doing: "find an image of the lab", source })?;
        let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let identity = identity(&source).map_err(MachineError::Image)?;
        Ok(Self { rsh, image, path, source, name, identity })
    }

    /// Gives where each machine has the image.
    fn carry(&self, lab: &Lab, channels: &mut [Channel]) -> Result<Vec<PathBuf>, MachineError> {
        let machines: Vec<&Machine> = lab.machines.iter().collect();
        let looked = all(each(machines.iter().zip(&mut *channels).collect(), |(machine, channel)| {
            if is_here(machine) { Ok((Some(self.path.to_owned()), PathBuf::new())) } else { self.look(channel) }
        }))?;
        let (mut found, places): (Vec<_>, Vec<_>) = looked.into_iter().unzip();
        let mut lacking: Vec<(usize, Receiver<'_>)> = machines
            .into_iter()
            .zip(channels)
            .zip(places)
            .map(|((machine, channel), place)| Receiver { machine, channel, place })
            .enumerate()
            .filter(|(number, _)| found[*number].is_none())
            .collect();
        // This machine first, which may be none of the lab's.
        let mut senders: Vec<Option<(&Machine, PathBuf)>> = vec![None];
        while !lacking.is_empty() {
            let rest = lacking.split_off(lacking.len().min(FAN * senders.len()));
            let pairs = senders.iter().flat_map(|sender| [sender; FAN]).zip(std::mem::replace(&mut lacking, rest));
            let sent = all(each(pairs.collect(), |(sender, (number, receiver))| {
                self.send(sender.as_ref(), receiver).map(|sender| (number, sender))
            }))?;
            found.iter_mut().enumerate().for_each(|(number, found)| {
                if let Some((_, (_, path))) = sent.iter().find(|(other, _)| *other == number) {
                    *found = Some(path.clone());
                }
            });
            senders = sent.into_iter().map(|(_, sender)| Some(sender)).collect();
        }
        Ok(found.into_iter().flatten().collect())
    }

    fn look(&self, channel: &mut Channel) -> Result<(Option<PathBuf>, PathBuf), MachineError> {
        let (path, name, identity) = (self.path.to_owned(), self.name.clone(), self.identity.clone());
        match channel.have_done("look for an image", &Order::Image { path, name, identity }, &mut |_| ())? {
            Answer::Image { found, place } => Ok((found, place)),
            other => Err(channel.lost(format!("asked for an image, it answered {other:?}"))),
        }
    }

    /// Sends the image from one machine to another, or from here where the other machine cannot.
    fn send<'m>(
        &self,
        sender: Option<&(&Machine, PathBuf)>,
        receiver: Receiver<'m>,
    ) -> Result<(&'m Machine, PathBuf), MachineError> {
        let Receiver { machine, channel, place } = receiver;
        match self.transfer(sender, machine, &place) {
            Err(error) if sender.is_some() => {
                tracing::warn!("send image `{}` from here instead: {error}", self.image.name);
                self.transfer(None, machine, &place)?;
            }
            other => other?,
        }
        match self.look(channel)? {
            (Some(path), _) => Ok((machine, path)),
            (None, _) => Err(self.failed(machine, "it arrived with another content".to_owned())),
        }
    }

    fn transfer(&self, sender: Option<&(&Machine, PathBuf)>, to: &Machine, place: &Path) -> Result<(), MachineError> {
        let destination = format!("{}:{}", to.ssh, place.display());
        let words =
            |source: &Path| ["--quiet".into(), "transfer".into(), source.display().to_string(), destination.clone()];
        let mut command = match sender {
            Some((machine, path)) => self.rsh.slipway(machine, false, words(path)),
            None => self.rsh.here(words(&self.source)),
        };
        let output = command.stdin(Stdio::null()).output().map_err(|error| self.failed(to, error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(self.failed(to, String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    fn failed(&self, machine: &Machine, reason: String) -> MachineError {
        let (image, machine, path) = (self.image.name.clone(), machine.name.clone(), self.path.to_owned());
        MachineError::Carry { image, machine, path, reason }
    }
}
