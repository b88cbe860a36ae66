//! `slipway graph`

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use slipway_engine::network::graph::Graph;
use slipway_lab::graph::{dot, mermaid, svg};
use slipway_lab::model::Lab;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{datapath, labs, parts};

/// Draw a lab's topology
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  slipway graph lab.yaml > lab.svg           a picture that any browser opens
  slipway graph demo -o demo.svg             of a running lab
  slipway graph lab.yaml --dot | dot -Tpdf > lab.pdf
  slipway graph lab.yaml --mermaid           for Markdown
  slipway graph demo --devices | dot -Tsvg   bridges, veth pairs and tunnels of a running lab")]
pub(crate) struct Args {
    /// Lab file, or the name of a running lab
    #[arg(value_name = "FILE|LAB")]
    lab: String,
    /// Draw in Graphviz's language instead of SVG
    #[arg(long, conflicts_with = "mermaid")]
    dot: bool,
    /// Draw as a Mermaid flowchart instead of SVG
    #[arg(long)]
    mermaid: bool,
    /// Draw the devices of a running lab, in Graphviz's language or as a Mermaid flowchart
    #[arg(long)]
    devices: bool,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Serialize)]
struct Drawn {
    lab: String,
    format: &'static str,
    /// `None` where it went into a file.
    graph: Option<String>,
    file: Option<PathBuf>,
    /// With `--devices`, those of each machine that makes a part of the lab.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<Devices>,
}

/// The devices of a machine's part of a lab.
#[derive(Serialize, Deserialize)]
struct Devices {
    /// The machine's name, where the lab names its machines.
    machine: Option<String>,
    graph: Graph,
}

/// The answer of another machine, as far as it is needed.
#[derive(Deserialize)]
struct Answer {
    devices: Vec<Devices>,
}

/// A picture of a lab.
struct Picture {
    lab: Lab,
    format: &'static str,
    text: String,
    devices: Vec<Devices>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let picture = if self.devices { self.devices(context)? } else { self.topology(context)? };
        let Picture { lab, format, text, devices } = picture;
        if let Some(file) = &self.output {
            fs::write(file, &text).map_err(Failure::io(format!("write {}", file.display())))?;
            let drawn = Drawn { lab: lab.name, format, graph: None, file: self.output.clone(), devices };
            context.tell(&drawn, |drawn| format!("drew lab {} in {}\n", drawn.lab, file.display()))?;
        } else {
            let drawn = Drawn { lab: lab.name, format, graph: Some(text), file: None, devices };
            context.answer(&drawn, |drawn| drawn.graph.clone().unwrap_or_default())?;
        }
        Ok(Exit::Success)
    }

    fn topology(&self, context: &Context) -> Result<Picture, Failure> {
        let lab = if labs::is_file(&self.lab) {
            labs::read(Some(Path::new(&self.lab)))?
        } else {
            labs::running(&context.root, Some(&self.lab))?.lab
        };
        let (format, text) = match (self.dot, self.mermaid) {
            (true, _) => ("dot", dot(&lab)),
            (_, true) => ("mermaid", mermaid(&lab)),
            _ => ("svg", svg(&lab)),
        };
        Ok(Picture { lab, format, text, devices: Vec::new() })
    }

    fn devices(&self, context: &Context) -> Result<Picture, Failure> {
        let running = labs::running(&context.root, Some(&self.lab))?;
        let mut graphs = vec![running.graph()?];
        let words = ["graph", "--devices", &running.lab.name];
        for (_, answer) in parts::answers::<Answer>(context, &running.lab, &words)? {
            graphs.extend(answer.devices.into_iter().map(|of| of.graph));
        }
        graphs.sort_by_key(|graph| graph.machine);
        let lab = running.lab;
        let (format, text) = if self.mermaid {
            ("mermaid", datapath::mermaid(&lab, &graphs))
        } else {
            ("dot", datapath::dot(&lab, &graphs))
        };
        let named = |graph: Graph| Devices {
            machine: lab.machines.get(graph.machine).map(|machine| machine.name.clone()),
            graph,
        };
        let devices = graphs.into_iter().map(named).collect();
        Ok(Picture { lab, format, text, devices })
    }
}
