//! The optimiser's process: Python, with a library that chooses points.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use slipway_campaign::model::{Campaign, Method, Search};
use slipway_campaign::score;
use slipway_campaign::search::{self, Dimension, Space};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe;

use crate::helper::Helper;
use crate::store::Learnt;

const SCRIPT: &str = include_str!("asker/asker.py");
/// Longest answer in bytes.
const LARGEST: u64 = 64 << 20;
/// Bytes of the optimiser's last words in an error.
const WORDS: usize = 2048;

/// An optimiser that runs.
#[derive(Debug)]
pub(crate) struct Asker {
    _helper: Helper,
    input: pipe::Sender,
    output: BufReader<pipe::Receiver>,
    log: PathBuf,
}

/// An optimiser that gives no answer, or a wrong one.
#[derive(Debug)]
pub(crate) struct Silent(pub(crate) String);

/// The first line of the protocol, which `asker.py` describes.
#[derive(Debug, Serialize)]
struct Settings<'a> {
    method: Method,
    seed: u64,
    dimensions: &'a [Dimension],
    objectives: usize,
    constraints: usize,
    population: u64,
    at_once: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Points {
    points: Vec<Vec<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Volume {
    volume: Option<f64>,
}

impl Asker {
    /// Starts the optimiser of a campaign, without any history. `log` gets what it prints.
    pub(crate) async fn start(
        python: &Path,
        log: &Path,
        campaign: &Campaign,
        plan: &Search,
        space: &Space,
    ) -> Result<Self, Silent> {
        let failed = |error: io::Error| Silent(format!("{}: {error}", python.display()));
        let words = File::create(log).map_err(|error| Silent(format!("{}: {error}", log.display())))?;
        let mut command = Command::new(python);
        command
            .args(["-I", "-c", SCRIPT])
            // More threads would take workers' processors, and add numbers in another order.
            .envs(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"].map(|name| (name, "1")))
            .stderr(words);
        let (helper, input, output) = Helper::start(&mut command).map_err(failed)?;
        let mut asker = Self { _helper: helper, input, output, log: log.to_owned() };
        let settings = Settings {
            method: plan.method,
            seed: search::seed(campaign),
            dimensions: space.dimensions(),
            objectives: score::count(&campaign.objectives),
            constraints: campaign.constraints.len(),
            population: plan.first,
            at_once: plan.batch,
        };
        asker.say(&settings).await?;
        Ok(asker)
    }

    /// Asks for the next points. There may be fewer, and none where the optimiser has tried all that there are.
    pub(crate) async fn ask(&mut self, count: u64) -> Result<Vec<Vec<f64>>, Silent> {
        let Points { points } = self.call(&json!({"ask": count})).await?;
        Ok(points)
    }

    /// Tells the scores of the points that were asked for last. Returns the volume so far.
    pub(crate) async fn tell(&mut self, points: &[Vec<f64>], scores: &[Learnt]) -> Result<Option<f64>, Silent> {
        let Volume { volume } = self.call(&json!({"tell": {"points": points, "scores": scores}})).await?;
        Ok(volume)
    }

    async fn call<T: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<T, Silent> {
        self.say(request).await?;
        let mut line = Vec::new();
        let read = (&mut self.output).take(LARGEST).read_until(b'\n', &mut line).await;
        if let Err(error) = read {
            return Err(self.silent(&error.to_string()));
        }
        if line.last() != Some(&b'\n') {
            return Err(self.silent("it ended"));
        }
        serde_json::from_slice(&line).map_err(|error| self.silent(&format!("its answer is none: {error}")))
    }

    async fn say(&mut self, request: &impl Serialize) -> Result<(), Silent> {
        let mut line = serde_json::to_vec(request).map_err(|error| self.silent(&error.to_string()))?;
        line.push(b'\n');
        let sent = self.input.write_all(&line).await;
        sent.map_err(|error| self.silent(&error.to_string()))
    }

    /// An error with the optimiser's last words.
    pub(crate) fn silent(&self, why: &str) -> Silent {
        let words = std::fs::read(&self.log).unwrap_or_default();
        let last = String::from_utf8_lossy(&words[words.len().saturating_sub(WORDS)..]).trim().to_owned();
        let last = slipway_document::text::printable(&last);
        Silent(if last.is_empty() { why.to_owned() } else { format!("{why}; its last words:\n{last}") })
    }
}
