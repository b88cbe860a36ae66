//! Data points. The id of a point is its analysis' one, `_`, and its number.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use slipway_coordinator::store::{Filter, PointState, State as Course, Store as _};

use super::drawer::{Drawer, id};
use crate::app::{Shared, aside};
use crate::error::ApiError;
use crate::extract::{Asked, At, Said};
use crate::shelf::{Id, Item};

/// Most points of an answer.
const MOST: u64 = 10_000;

/// A point of an analysis.
pub(super) struct Whose {
    pub(super) analysis: Id,
    pub(super) point: u64,
}

impl Whose {
    fn read(word: &str) -> Result<Self, ApiError> {
        let parts = word.strip_suffix(".json").unwrap_or(word).rsplit_once('_');
        let read = parts.and_then(|(analysis, point)| Some((id(analysis).ok()?, point.parse::<u32>().ok()?)));
        let (analysis, point) = read.ok_or_else(|| ApiError::missing("there is no such data point"))?;
        Ok(Self { analysis, point: point.into() })
    }

    pub(super) fn word(&self) -> String {
        format!("{}_{}", self.analysis.as_str(), self.point)
    }
}

fn words(state: PointState, is_cancelled: bool) -> (&'static str, &'static str) {
    match state {
        PointState::Waiting if is_cancelled => ("completed", "datapoint canceled"),
        PointState::Waiting => ("queued", ""),
        PointState::Running => ("started", ""),
        PointState::Done => ("completed", "completed normal"),
        PointState::Failed => ("completed", "datapoint failure"),
    }
}

fn told(whose: &Whose, (status, message): (&str, &str)) -> Value {
    let (word, name) = (whose.word(), format!("Point {}", whose.point));
    json!({
        "_id": word, "id": word, "name": name, "analysis_id": whose.analysis.as_str(),
        "status": status, "status_message": message,
    })
}

/// Points of an analysis, in one state where that is asked for.
pub(super) fn all(analysis: &Id, item: &Item, wanted: Option<&str>) -> Result<Value, ApiError> {
    let count = item.study.plan.len().min(MOST);
    let store = item.store();
    let is_cancelled = store.state()? == Course::Cancelled;
    let found = store.points(&Filter::default(), 0, usize::try_from(MOST).unwrap_or(usize::MAX))?;
    let states: BTreeMap<u64, PointState> = found.into_iter().map(|found| (found.point, found.state)).collect();
    let point = |point| {
        let words = words(states.get(&point).copied().unwrap_or(PointState::Waiting), is_cancelled);
        let whose = Whose { analysis: analysis.clone(), point };
        wanted.is_none_or(|wanted| wanted == words.0).then(|| told(&whose, words))
    };
    Ok((0..count).filter_map(point).collect())
}

pub(super) async fn show(State(app): State<Shared>, At(word): At<String>) -> Result<Json<Value>, ApiError> {
    let whose = Whose::read(&word)?;
    aside(move || {
        let item = app.shelf.item(&whose.analysis)?;
        let (campaign, plan) = (&item.study.campaign, &item.study.plan);
        if whose.point >= plan.len() {
            return Err(ApiError::missing("there is no such data point"));
        }
        let store = item.store();
        let found = store.point(whose.point)?;
        let state = found.as_ref().map_or(PointState::Waiting, |found| found.state);
        let mut answer = told(&whose, words(state, store.state()? == Course::Cancelled));
        let values = campaign.variables.iter().zip(plan.point(whose.point));
        answer["set_variable_values"] =
            values.map(|(of, value)| (of.name.clone(), json!(value))).collect::<serde_json::Map<_, _>>().into();
        let record = store.result(whose.point)?.map(|row| row.record.values).unwrap_or_default();
        let outputs = campaign.outputs.iter().zip(record);
        answer["results"] =
            outputs.map(|(of, value)| (of.name.clone(), json!(value))).collect::<serde_json::Map<_, _>>().into();
        answer["sdp_log_file"] = json!(
            found.and_then(|found| found.message).map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        );
        Ok(Json(json!({"data_point": answer})))
    })
    .await
}

/// A file of a point.
#[derive(Debug, Deserialize)]
pub(super) struct Named {
    filename: String,
}

pub(super) async fn file(
    State(app): State<Shared>,
    At(word): At<String>,
    Asked(Named { filename }): Asked<Named>,
) -> Result<Response, ApiError> {
    let whose = Whose::read(&word)?;
    crate::routes::file_of(app, whose.analysis, whose.point, filename).await
}

/// Runs a point again that failed.
pub(super) async fn run(State(app): State<Shared>, At(word): At<String>) -> Result<Json<Value>, ApiError> {
    let whose = Whose::read(&word)?;
    aside(move || {
        let item = app.shelf.item(&whose.analysis)?;
        let again = item.store().retry(&Filter { points: vec![whose.point], ..Filter::default() })?;
        if again > 0 && !app.shelf.look(&whose.analysis, &item)?.is_running {
            app.shelf.start(&whose.analysis, None)?;
        }
        Ok(Json(json!({"_id": whose.word(), "again": again > 0})))
    })
    .await
}

/// Files come from workers, and go with their campaign.
pub(super) async fn keep() -> ApiError {
    ApiError::conflict("change files of a data point: workers store them, and they go with the analysis")
}

pub(super) async fn add(
    State(app): State<Shared>,
    At(analysis): At<String>,
    Said(said): Said<Value>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    put(app, analysis, vec![said]).await
}

pub(super) async fn add_batch(
    State(app): State<Shared>,
    At(analysis): At<String>,
    Said(said): Said<Value>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let points = said["data_points"].as_array().cloned();
    put(app, analysis, points.ok_or_else(|| ApiError::bad("read the batch: it has no `data_points`"))?).await
}

async fn put(app: Shared, name: String, more: Vec<Value>) -> Result<(StatusCode, Json<Value>), ApiError> {
    let analysis = id(&name)?;
    aside(move || {
        let drawer = Drawer::new(&app);
        let mut value = drawer.get("analysis", &analysis)?;
        if app.shelf.item(&analysis).is_ok() {
            return Err(ApiError::conflict("add a data point: the analysis was started"));
        }
        let points = value["points"].as_array_mut().ok_or_else(|| ApiError::bad("add a data point"))?;
        let first = points.len() as u64;
        let words = (first..).zip(&more).map(|(point, _)| Whose { analysis: analysis.clone(), point }.word());
        let words: Vec<Value> = words.map(|word| json!({"_id": word, "id": word, "status": "na"})).collect();
        points.extend(more);
        drawer.put("analysis", analysis.as_str(), &value)?;
        Ok((
            StatusCode::CREATED,
            Json(match <[Value; 1]>::try_from(words) {
                Ok([one]) => one,
                Err(all) => json!({"data_points": all}),
            }),
        ))
    })
    .await
}
