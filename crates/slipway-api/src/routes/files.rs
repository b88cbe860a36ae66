//! Points, and their files. A file is found in the list that its worker made, never by its path on disk.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json1, json};
use slipway_coordinator::store::{FailureKind, Filter, Point as Found, PointState, Store as _};
use slipway_document::text::printable;
use slipway_results::Digest;
use slipway_results::objects::{self, Manifest, Storage};
use slipway_study::campaign::{results, storage};
use utoipa::{IntoParams, ToSchema};

use crate::answers::word;
use crate::app::{Shared, aside};
use crate::body;
use crate::error::ApiError;
use crate::extract::{Asked, At};
use crate::shelf::{Id, Item};

/// Most points of an answer.
const PAGE: usize = 1000;
/// Bytes of a log that are shown: its end.
const LOG: u64 = 256 << 10;

/// Storage, and the files of a point in it.
type Files = (Box<dyn Storage>, Manifest);
/// Storage, and a file in it: its object, and its plain size in bytes.
type Content = (Box<dyn Storage>, Digest, u64);

/// Points to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Choice {
    /// In this state: waiting, running, done or failed
    #[param(value_type = Option<String>)]
    state: Option<PointState>,
    /// With a last failure of this kind
    #[param(value_type = Option<String>)]
    failure: Option<FailureKind>,
    /// From this number
    #[serde(default)]
    from: u64,
    /// At most so many
    limit: Option<usize>,
}

/// A point that some worker had.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Point {
    #[serde(rename = "point")]
    number: u64,
    /// waiting, running, done or failed
    state: String,
    attempts: u32,
    worker: u32,
    /// Kind of the last failure.
    failure: Option<String>,
    /// The reason of it, in the program's own words where it has some.
    message: Option<String>,
}

impl From<Found> for Point {
    fn from(found: Found) -> Self {
        let Found { point, state, attempts, worker, failure, message, .. } = found;
        let (state, failure) = (word(json!(state)), failure.map(|failure| word(json!(failure))));
        Self { number: point, state, attempts, worker, failure, message: message.map(|text| printable(&text)) }
    }
}

/// Points that workers had
#[utoipa::path(get, path = "/campaigns/{id}/points", params(("id" = String, Path), Choice), responses((status = 200, body = Vec<Point>), (status = 404)))]
pub(crate) async fn points(
    State(app): State<Shared>,
    At(id): At<Id>,
    Asked(choice): Asked<Choice>,
) -> Result<Json<Vec<Point>>, ApiError> {
    let filter = Filter { state: choice.state, failure: choice.failure, points: Vec::new() };
    let most = choice.limit.unwrap_or(PAGE).clamp(1, PAGE);
    aside(move || {
        let found = app.shelf.item(&id)?.store().points(&filter, number(choice.from)?, most)?;
        Ok(Json(found.into_iter().map(Point::from).collect()))
    })
    .await
}

/// A number that SQLite can hold.
fn number(number: u64) -> Result<u64, ApiError> {
    i64::try_from(number).map(|_| number).map_err(|_| ApiError::bad("read the number of a point: it is too large"))
}

/// A point with its files.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Whole {
    #[serde(flatten)]
    point: Point,
    /// Seed of its program.
    seed: u64,
    /// Values of the variables, by name.
    #[schema(value_type = Object)]
    values: Json1,
    /// Values of the outputs, by name.
    #[schema(value_type = Object)]
    outputs: Json1,
    /// Files that the campaign keeps.
    files: Vec<Entry>,
}

/// A file.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Entry {
    path: String,
    size: u64,
}

/// A point, its values, and its files
#[utoipa::path(get, path = "/campaigns/{id}/points/{point}", params(("id" = String, Path), ("point" = u64, Path)), responses((status = 200, body = Whole), (status = 404)))]
pub(crate) async fn point(State(app): State<Shared>, At((id, point)): At<(Id, u64)>) -> Result<Json<Whole>, ApiError> {
    aside(move || {
        let item = app.shelf.item(&id)?;
        let (campaign, plan) = (&item.study.campaign, &item.study.plan);
        if point >= plan.len() {
            return Err(ApiError::missing("the design has no such point"));
        }
        let point = number(point)?;
        let (found, result, values) = {
            let store = item.store();
            let values = results::values(&item.study, &store, point)?;
            (store.point(point)?, store.result(point)?, values)
        };
        let waiting =
            Point { number: point, state: "waiting".into(), attempts: 0, worker: 0, failure: None, message: None };
        let values = campaign.variables.iter().zip(values.into_iter().flatten());
        let values = values.map(|(variable, value)| (variable.name.clone(), json!(value))).collect();
        let of = result.map(|row| row.record.values).unwrap_or_default();
        let outputs = campaign.outputs.iter().zip(of).map(|(output, value)| (output.name.clone(), json!(value)));
        let files = match manifest(&item, point)? {
            Some((_, manifest)) => {
                manifest.files.into_iter().map(|file| Entry { path: file.path, size: file.size }).collect()
            }
            None => Vec::new(),
        };
        let (point, seed) = (found.map_or(waiting, Point::from), plan.seed(point));
        Ok(Json(Whole { point, seed, values: Json1::Object(values), outputs: Json1::Object(outputs.collect()), files }))
    })
    .await
}

fn manifest(item: &Item, point: u64) -> Result<Option<Files>, ApiError> {
    let digest = results::manifest(&item.store(), number(point)?)?;
    let Some(digest) = digest else { return Ok(None) };
    let storage = storage::open(&item.study)?;
    let manifest = Manifest::read(storage.as_ref(), &digest)?;
    Ok(Some((storage, manifest)))
}

/// The file of this path, if the campaign keeps it.
fn entry(item: &Item, point: u64, path: &str) -> Result<Option<Content>, ApiError> {
    let Some((storage, manifest)) = manifest(item, point)? else { return Ok(None) };
    let entry = manifest.files.into_iter().find(|file| file.path == path);
    Ok(entry.map(|entry| (storage, entry.digest, entry.size)))
}

/// The program's output.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Log {
    /// Standard output: its end, where it is long.
    stdout: String,
    /// Standard error likewise.
    stderr: String,
}

/// The output of a point's program
#[utoipa::path(get, path = "/campaigns/{id}/points/{point}/log", params(("id" = String, Path), ("point" = u64, Path)), responses((status = 200, body = Log), (status = 404)))]
pub(crate) async fn log(State(app): State<Shared>, At((id, point)): At<(Id, u64)>) -> Result<Json<Log>, ApiError> {
    aside(move || {
        let item = app.shelf.item(&id)?;
        let read = |path| {
            let Some((storage, digest, size)) = entry(&item, point, path)? else { return Ok(None) };
            tail(storage.as_ref(), &digest, size).map(Some)
        };
        match (read("slipway.stdout")?, read("slipway.stderr")?) {
            (None, None) => Err(ApiError::missing("the campaign keeps no output of this point")),
            (stdout, stderr) => {
                Ok(Json(Log { stdout: stdout.unwrap_or_default(), stderr: stderr.unwrap_or_default() }))
            }
        }
    })
    .await
}

/// The end of a text.
fn tail(storage: &dyn Storage, digest: &Digest, size: u64) -> Result<String, ApiError> {
    let mut reader = objects::read(storage, digest, size)?;
    let skipped = size.saturating_sub(LOG);
    std::io::copy(&mut std::io::Read::take(&mut reader, skipped), &mut std::io::sink())?;
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut reader, &mut bytes)?;
    let cut = if skipped > 0 { format!("[{skipped} bytes before]\n") } else { String::new() };
    Ok(cut + &printable(&String::from_utf8_lossy(&bytes)))
}

/// A file of a point
#[utoipa::path(get, path = "/campaigns/{id}/points/{point}/files/{path}", params(("id" = String, Path), ("point" = u64, Path), ("path" = String, Path, description = "Path in the point's folder; slashes may stand as they are")), responses((status = 200, content_type = "application/octet-stream", body = String), (status = 404)))]
pub(crate) async fn file(
    State(app): State<Shared>,
    At((id, point, path)): At<(Id, u64, String)>,
) -> Result<Response, ApiError> {
    send(app, id, point, path).await
}

/// Sends a file of a point, as a download: a page that a program wrote must not run here.
pub(crate) async fn send(app: Shared, id: Id, point: u64, path: String) -> Result<Response, ApiError> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect();
    let (storage, digest, size) = aside(move || {
        let item = app.shelf.item(&id)?;
        let missing = || ApiError::missing("the campaign keeps no such file of this point");
        let (storage, digest, size) = entry(&item, point, &path)?.ok_or_else(missing)?;
        // One that is gone is told before the answer begins.
        drop(storage.open(&digest)?);
        Ok((storage, digest, size))
    })
    .await?;
    let body = body::written(move |out| {
        let mut reader = objects::read(storage.as_ref(), &digest, size).map_err(std::io::Error::other)?;
        std::io::copy(&mut reader, out).map(drop)
    });
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}
