//! `slipway export`

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use slipway_engine::condition::{InterfaceReport, read_matrices};
use slipway_engine::lab::Running;
use slipway_lab::condition::Conditions;
use slipway_lab::model::Lab;
use slipway_platform::{self as platform, LiveInterface};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::labs;

/// Write a lab as a file, with the conditions and limits that hold now
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Slipway's own format has all of the lab and reads back equal. The others have
words for a part; the command lists the losses.

Examples:
  slipway export demo -o demo.yaml           as it is now; `slipway up demo.yaml`
                                             makes it again
  slipway export lab.yaml                    the full meaning of a lab file
  slipway export demo --format simgrid -o platform.xml
  slipway export demo --format distem -o platform.json")]
pub(crate) struct Args {
    /// Lab (name), or a lab file [default: the only lab]
    #[arg(value_name = "LAB|FILE")]
    lab: Option<String>,
    /// slipway, simgrid (XML) or distem (JSON)
    #[arg(long, value_name = "FORMAT", default_value = "slipway", hide_possible_values = true)]
    format: Format,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// A lab file
    Slipway,
    /// SimGrid's XML, version 4.1
    Simgrid,
    /// Distem's JSON
    Distem,
}

#[derive(Serialize)]
struct Exported {
    format: Format,
    lab: String,
    /// `None` where it went into a file.
    text: Option<String>,
    file: Option<PathBuf>,
    /// Parts of the lab that the file cannot express.
    lost: Vec<String>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (lab, mut lost) = match &self.lab {
            Some(word) if labs::is_file(word) => (labs::read(Some(Path::new(word)))?, Vec::new()),
            word => as_it_is(&labs::running(&context.root, word.as_deref())?)?,
        };
        let text = match self.format {
            Format::Slipway => platform::to_slipway(&lab, &lost).map_err(|error| Failure::new(Exit::Failed, &error))?,
            Format::Simgrid => {
                let matrices = read_matrices(&lab).map_err(|error| Failure::new(Exit::Failed, &error))?;
                let exported = platform::to_simgrid(&lab, &matrices).map_err(Failure::usage)?;
                lost.extend(exported.lost);
                exported.text
            }
            Format::Distem => {
                let exported = platform::to_distem(&lab);
                lost.extend(exported.lost);
                exported.text
            }
        };
        let mut exported = Exported { format: self.format, lab: lab.name, text: None, file: self.output, lost };
        super::import::told(context, &exported.lost);
        if let Some(file) = exported.file.clone() {
            fs::write(&file, &text).map_err(Failure::io(format!("write {}", file.display())))?;
            context.tell(&exported, |exported| format!("wrote lab {} to {}\n", exported.lab, file.display()))?;
        } else {
            exported.text = Some(text);
            context.answer(&exported, |exported| exported.text.clone().unwrap_or_default())?;
        }
        Ok(Exit::Success)
    }
}

/// A running lab with what holds now, and what of that no lab file says.
fn as_it_is(running: &Running) -> Result<(Lab, Vec<String>), Failure> {
    let links = running.links()?;
    let limits = running.all_limits()?;
    let interfaces: Vec<LiveInterface> = links.interfaces.iter().map(live).collect();
    let matrices = read_matrices(&running.lab).map_err(|error| Failure::new(Exit::Failed, &error))?;
    let lab = platform::with_live(&running.lab, &matrices, limits, &interfaces);

    let mut lost = Vec::new();
    let cut: Vec<String> = links
        .interfaces
        .iter()
        .filter(|at| at.cut)
        .map(|at| running.lab.port_name((at.node, at.slot)))
        .collect();
    if !cut.is_empty() {
        lost.push(format!("cut now, and not in a lab that this file makes: {}", cut.join(", ")));
    }
    if !links.partitions.is_empty() {
        lost.push(format!("{} partitions hold now, and not in a lab that this file makes", links.partitions.len()));
    }
    if !links.overlays.is_empty() {
        lost.push("a scenario plays: conditions that hold for a time are written as if they held for good".to_owned());
    }
    Ok((lab, lost))
}

fn live(at: &InterfaceReport) -> LiveInterface {
    LiveInterface {
        node: at.node,
        slot: at.slot,
        conditions: Conditions { egress: at.egress.now.clone(), ingress: at.ingress.now.clone() },
        peers: at.egress.peers.iter().map(|peer| (peer.node, peer.conditions.clone())).collect(),
    }
}
