//! `slipway graph`

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use slipway_lab::graph::{dot, mermaid, svg};
use slipway_lab::model::Lab;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{datapath, labs};

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
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (lab, format, graph) = if self.devices { self.devices(context)? } else { self.topology(context)? };
        if let Some(file) = &self.output {
            fs::write(file, &graph).map_err(Failure::io(format!("write {}", file.display())))?;
            let drawn = Drawn { lab: lab.name, format, graph: None, file: self.output.clone() };
            context.tell(&drawn, |drawn| format!("drew lab {} in {}\n", drawn.lab, file.display()))?;
        } else {
            let drawn = Drawn { lab: lab.name, format, graph: Some(graph), file: None };
            context.answer(&drawn, |drawn| drawn.graph.clone().unwrap_or_default())?;
        }
        Ok(Exit::Success)
    }

    fn topology(&self, context: &Context) -> Result<(Lab, &'static str, String), Failure> {
        let lab = if labs::is_file(&self.lab) {
            labs::read(Some(Path::new(&self.lab)))?
        } else {
            labs::running(&context.root, Some(&self.lab))?.lab
        };
        let (format, graph) = match (self.dot, self.mermaid) {
            (true, _) => ("dot", dot(&lab)),
            (_, true) => ("mermaid", mermaid(&lab)),
            _ => ("svg", svg(&lab)),
        };
        Ok((lab, format, graph))
    }

    fn devices(&self, context: &Context) -> Result<(Lab, &'static str, String), Failure> {
        let running = labs::running(&context.root, Some(&self.lab))?;
        let graph = running.graph()?;
        let (format, graph) = if self.mermaid {
            ("mermaid", datapath::mermaid(&running.lab, &graph))
        } else {
            ("dot", datapath::dot(&running.lab, &graph))
        };
        Ok((running.lab, format, graph))
    }
}
