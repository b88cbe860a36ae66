//! The results of a campaign, as rows and in figures.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use serde::Serialize;
use slipway_campaign::model::Output;
use slipway_campaign::sensitivity::{self, Analysis, SensitivityError};
use slipway_campaign::value::Value;
use slipway_coordinator::Folder;
use slipway_coordinator::store::{Filter, History as _, Point, PointState, Row, Sqlite, Store as _};
use slipway_results::Digest;
use slipway_results::objects::{self, Manifest, ObjectError, Storage, Swept};

use super::{CampaignError, Study, storage};

/// Rows that are read at once.
const PAGE: usize = 1000;
/// Largest output of a program that is shown, in bytes.
const MOST: u64 = 256 << 20;

/// An output's values over all results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The output.
    pub name: String,
    /// Its unit; empty without one.
    pub unit: String,
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the sample; 0 for one value.
    pub deviation: f64,
    /// Least value.
    pub least: f64,
    /// Greatest value.
    pub greatest: f64,
}

/// A contradiction between queue and storage. None means that all is well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The point, if it is about one.
    pub point: Option<u64>,
    /// The fault, in a sentence.
    pub what: String,
}

/// Storage, and the list of a point's files in it.
pub type Kept = (Box<dyn Storage>, Digest);
/// Count, mean, sum of squared differences from it, least and greatest value.
type Sums = (u64, f64, f64, f64, f64);

/// Opens the queue of a campaign, for other commands beside the coordinator.
///
/// # Errors
/// Where there is none, or it is damaged.
pub fn store(study: &Study) -> Result<Sqlite, CampaignError> {
    Ok(Sqlite::open(&Folder::open(study.folder())?.store())?)
}

/// Names of the columns of [`rows`].
#[must_use]
pub fn columns(study: &Study) -> Vec<String> {
    let variables = study.campaign.variables.iter().map(|variable| variable.name.clone());
    let outputs = study.campaign.outputs.iter().map(|output| output.name.clone());
    let own = ["seconds", "cpu_seconds", "peak_bytes", "worker", "attempts", "seed"];
    let own = own.into_iter().chain(study.campaign.baseline.is_some().then_some("baseline"));
    std::iter::once("point".to_owned()).chain(variables).chain(outputs).chain(own.map(str::to_owned)).collect()
}

/// Calls `see` with each result, in the order in which they came. A value that is no scalar is `None`.
///
/// # Errors
/// Of the queue, and of `see`.
pub fn rows<E: From<CampaignError>>(
    study: &Study,
    see: &mut dyn FnMut(Vec<Option<Value>>) -> Result<(), E>,
) -> Result<(), E> {
    let store = store(study)?;
    let mut after = 0;
    loop {
        let page = store.results(after, PAGE).map_err(CampaignError::from)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.seq;
        for row in page {
            if let Some(cells) = cells(study, &store, row)? {
                see(cells)?;
            }
        }
    }
}

/// A result under [`columns`]. `None` for a point beyond the end of a design that became shorter.
///
/// # Errors
/// Of the queue.
pub fn cells(study: &Study, store: &Sqlite, row: Row) -> Result<Option<Vec<Option<Value>>>, CampaignError> {
    let Some(values) = values(study, store, row.point)? else { return Ok(None) };
    let whole = |number: u64| Some(Value::Integer(i64::try_from(number).unwrap_or(i64::MAX)));
    let mut cells = vec![whole(row.point)];
    cells.extend(values.into_iter().map(Some));
    cells.extend(row.record.values);
    cells.push(Some(Value::Number(row.usage.seconds)));
    cells.push(Some(Value::Number(row.usage.cpu_seconds)));
    cells.push(whole(row.usage.peak_bytes));
    cells.push(whole(row.worker.into()));
    cells.push(whole(row.attempts.into()));
    cells.push(whole(study.plan.seed(row.point)));
    if study.campaign.baseline.is_some() {
        cells.push(Some(Value::Bool(row.point < study.plan.lead())));
    }
    Ok(Some(cells))
}

/// The values of a point. `None` where the design became shorter, or a search has not chosen the point yet.
///
/// # Errors
/// Of the queue.
pub fn values(study: &Study, store: &Sqlite, point: u64) -> Result<Option<Vec<Value>>, CampaignError> {
    if study.plan.is_search() {
        return Ok(store.values(point)?);
    }
    Ok((point < study.plan.len()).then(|| study.plan.point(point)))
}

/// As [`rows`], without the baseline, which is no part of the design's sample.
///
/// # Errors
/// As [`rows`].
pub fn sample<E: From<CampaignError>>(
    study: &Study,
    see: &mut dyn FnMut(Vec<Option<Value>>) -> Result<(), E>,
) -> Result<(), E> {
    let has_baseline = study.campaign.baseline.is_some();
    rows(study, &mut |cells| {
        let is_baseline = has_baseline && cells.first() == Some(&Some(Value::Integer(0)));
        if is_baseline { Ok(()) } else { see(cells) }
    })
}

/// The numbers of the baseline's outputs, in the campaign's order. `None`: it has no result yet.
///
/// # Errors
/// Of the queue.
pub fn baseline(study: &Study) -> Result<Option<Vec<Option<f64>>>, CampaignError> {
    if study.campaign.baseline.is_none() {
        return Ok(None);
    }
    let numbers = |row: Row| row.record.values.iter().map(|value| value.as_ref().and_then(Value::number)).collect();
    Ok(store(study)?.result(0)?.map(numbers))
}

/// Each output that has numbers, over all results of the design.
///
/// # Errors
/// Of the queue.
pub fn figures(study: &Study) -> Result<Vec<Figure>, CampaignError> {
    let first = 1 + study.campaign.variables.len();
    let outputs = &study.campaign.outputs;
    // Welford's sums: one pass, and no loss where values are large and alike.
    let mut sums: Vec<Sums> = vec![(0, 0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY); outputs.len()];
    sample::<CampaignError>(study, &mut |cells| {
        for (sum, cell) in sums.iter_mut().zip(&cells[first..]) {
            let Some(value) = cell.as_ref().and_then(Value::number) else { continue };
            sum.0 += 1;
            let before = value - sum.1;
            sum.1 += before / sum.0 as f64;
            sum.2 += before * (value - sum.1);
            sum.3 = sum.3.min(value);
            sum.4 = sum.4.max(value);
        }
        Ok(())
    })?;
    let figure = |(output, (count, mean, squares, least, greatest)): (&Output, Sums)| Figure {
        name: output.name.clone(),
        unit: output.unit.clone(),
        count,
        mean,
        deviation: if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 },
        least,
        greatest,
    };
    Ok(outputs.iter().zip(sums).map(figure).filter(|figure: &Figure| figure.count > 0).collect())
}

/// How much each variable matters for an output, as far as the design can tell.
///
/// # Errors
/// Of the queue. The inner error says why the design, or the results so far, tell nothing.
pub fn analyse(study: &Study, output: usize) -> Result<Result<Analysis, SensitivityError>, CampaignError> {
    let count = usize::try_from(study.plan.len()).unwrap_or(usize::MAX);
    let mut results = vec![None; count];
    let at = 1 + study.campaign.variables.len() + output;
    rows::<CampaignError>(study, &mut |cells| {
        if let (Some(Value::Integer(point)), Some(value)) = (&cells[0], &cells[at])
            && let Some(place) = usize::try_from(*point).ok().and_then(|point| results.get_mut(point))
        {
            *place = value.number();
        }
        Ok(())
    })?;
    Ok(sensitivity::analyse(&study.campaign, &study.plan, &results))
}

/// The files of a point: of its result, or of its last attempt that failed. `None` where the campaign kept none.
///
/// # Errors
/// Of the queue and of storage.
pub fn files(study: &Study, point: u64) -> Result<Option<Kept>, CampaignError> {
    let digest = manifest(&store(study)?, point)?;
    let storage = storage::open(study)?;
    Ok(digest.map(|digest| (storage, digest)))
}

/// The list of a point's files: of its result, or of its last attempt that failed.
///
/// # Errors
/// Of the queue.
pub fn manifest(store: &Sqlite, point: u64) -> Result<Option<Digest>, CampaignError> {
    Ok(match store.point(point)? {
        Some(Point { state: PointState::Done, .. }) => store.result(point)?.and_then(|row| row.record.manifest),
        Some(Point { manifest, .. }) => manifest,
        None => None,
    })
}

/// A file of a point.
///
/// # Errors
/// Of storage.
pub fn file(storage: &dyn Storage, manifest: &Digest, name: &str) -> Result<Option<Vec<u8>>, CampaignError> {
    let manifest = Manifest::read(storage, manifest)?;
    let Some(entry) = manifest.files.iter().find(|entry| entry.path == name) else { return Ok(None) };
    let mut content = Vec::new();
    let mut reader = objects::read(storage, &entry.digest, MOST)?;
    std::io::Read::read_to_end(&mut reader, &mut content).map_err(ObjectError::reading(&entry.digest))?;
    Ok(Some(content))
}

/// Removes objects that no result names: those of attempts that came too late, or of results that were dropped.
///
/// # Errors
/// Where a coordinator runs the campaign, or objects of results are damaged.
pub fn collect(study: &Study, dry_run: bool) -> Result<Swept, CampaignError> {
    let folder = Folder::open(study.folder())?;
    // No attempt may end meanwhile, so that no clock has to say which objects are young.
    let _lock = folder.lock()?;
    let (store, storage) = (store(study)?, storage::begin(study)?);
    let (mut manifests, mut series) = (Vec::new(), Vec::new());
    let mut after = 0;
    loop {
        let page = store.results(after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for row in page {
            manifests.extend(row.record.manifest);
            series.extend(row.record.series.into_iter().map(|(_, digest)| digest));
        }
    }
    let mut from = 0;
    loop {
        let page = store.points(&Filter::default(), from, PAGE)?;
        let Some(last) = page.last() else { break };
        from = last.point + 1;
        manifests.extend(page.into_iter().filter_map(|point| point.manifest));
    }
    Ok(objects::gc(storage.as_ref(), manifests, series, Duration::ZERO, dry_run)?)
}

/// Has points with damaged results run again. Returns how many.
///
/// # Errors
/// Of the queue.
pub fn redo(study: &Study, faults: &[Fault]) -> Result<u64, CampaignError> {
    let mut points: Vec<u64> = faults.iter().filter_map(|fault| fault.point).collect();
    points.dedup();
    Ok(store(study)?.redo(&points)?)
}

/// Compares queue and storage: each result's objects are there, and are what their names say. An object that is damaged is
/// a fault of each point that has it.
///
/// # Errors
/// Where the queue cannot be read, or storage gives no answer.
pub fn verify(study: &Study) -> Result<Vec<Fault>, CampaignError> {
    let store = store(study)?;
    let storage = storage::open(study)?;
    let mut faults: Vec<Fault> = store.verify()?.into_iter().map(|what| Fault { point: None, what }).collect();
    let mut seen: HashMap<Digest, Option<String>> = HashMap::new();
    let mut after = 0;
    loop {
        let page = store.results(after, PAGE)?;
        let Some(last) = page.last() else { return Ok(faults) };
        after = last.seq;
        for row in page {
            let mut named: Vec<Digest> = row.record.series.iter().map(|(_, digest)| *digest).collect();
            if let Some(manifest) = row.record.manifest {
                named.push(manifest);
                match Manifest::read(storage.as_ref(), &manifest) {
                    Ok(manifest) => named.extend(manifest.files.iter().map(|entry| entry.digest)),
                    // The same is said below of the object itself.
                    Err(ObjectError::Gone(_) | ObjectError::Content { .. }) => {}
                    Err(error @ ObjectError::Service(_)) => return Err(error.into()),
                    Err(error) => faults.push(Fault { point: Some(row.point), what: plain(&error) }),
                }
            }
            for digest in named {
                let damage = match seen.entry(digest) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(place) => place.insert(damage(storage.as_ref(), &digest)?),
                };
                if let Some(what) = damage {
                    faults.push(Fault { point: Some(row.point), what: what.clone() });
                }
            }
        }
    }
}

/// The fault of an object, if it has one.
///
/// # Errors
/// Where storage gives no answer, which says nothing about the object.
fn damage(storage: &dyn Storage, digest: &Digest) -> Result<Option<String>, ObjectError> {
    match objects::verify(storage, digest) {
        Ok(_) => Ok(None),
        Err(error @ ObjectError::Service(_)) => Err(error),
        Err(error) => Ok(Some(plain(&error))),
    }
}

/// An error without its next step, which would be the command that met it.
fn plain(error: &ObjectError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
