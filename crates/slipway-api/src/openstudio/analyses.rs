//! Analyses.

use std::fs;

use axum::Json;
use axum::extract::{Multipart, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use slipway_coordinator::store::{State as Course, Store as _};
use slipway_study::campaign::results;

use super::drawer::{Drawer, id};
use super::points::{self, Whose};
use crate::app::{Shared, aside};
use crate::body;
use crate::convert::Files;
use crate::error::ApiError;
use crate::extract::{Asked, At, Said};
use crate::shelf::{Brought, Id, Item, names};

/// Rows of results that are read at once.
const PAGE: usize = 1000;
/// Most rows of an answer.
const MOST: usize = 10_000;

pub(super) async fn add(
    State(app): State<Shared>,
    At(project): At<String>,
    Said(said): Said<Value>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let (project, of) = (id(&project)?, &said["analysis"]);
    if !of.is_object() {
        return Err(ApiError::bad("read the analysis: the document has no `analysis`"));
    }
    let own = of["uuid"].as_str().or(of["_id"].as_str()).map(str::to_owned);
    let analysis = id(&own.unwrap_or_else(|| crate::tokens::secret()[..32].to_owned()))?;
    let name = of["display_name"].as_str().or(of["name"].as_str()).unwrap_or(analysis.as_str()).to_owned();
    aside(move || {
        let drawer = Drawer::new(&app);
        drawer.get("project", &project)?;
        if drawer.get("analysis", &analysis).is_ok() || app.shelf.item(&analysis).is_ok() {
            return Err(ApiError::conflict("there is an analysis of this id"));
        }
        let word = analysis.as_str();
        let value = json!({
            "_id": word, "project": project.as_str(), "name": name, "document": said, "points": [], "types": [],
        });
        drawer.put("analysis", word, &value)?;
        Ok((StatusCode::CREATED, Json(json!({"_id": word, "id": word, "name": name}))))
    })
    .await
}

pub(super) async fn upload(
    State(app): State<Shared>,
    At(name): At<String>,
    mut parts: Multipart,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let analysis = id(&name)?;
    let wrong =
        |error: axum::extract::multipart::MultipartError| ApiError::rejected(error.status(), &error.body_text());
    while let Some(part) = parts.next_field().await.map_err(wrong)? {
        if part.name() != Some("file") {
            continue;
        }
        let kept = body::keep(part, body::ARCHIVE).await?;
        return aside(move || {
            let drawer = Drawer::new(&app);
            drawer.get("analysis", &analysis)?;
            // One that is no archive is refused now, and not at the start.
            names(kept.path())?;
            fs::copy(kept.path(), drawer.archive(&analysis))?;
            Ok((StatusCode::CREATED, Json(json!({"_id": analysis.as_str()}))))
        })
        .await;
    }
    Err(ApiError::bad("read the upload: it has no part `file`"))
}

/// Starts or stops. A client starts twice: by the analysis' own type, which makes points, then by `batch_run`.
pub(super) async fn act(
    State(app): State<Shared>,
    At(name): At<String>,
    Said(said): Said<Value>,
) -> Result<Json<Value>, ApiError> {
    let analysis = id(&name)?;
    aside(move || {
        let drawer = Drawer::new(&app);
        let mut value = drawer.get("analysis", &analysis)?;
        match said["analysis_action"].as_str() {
            Some("start") => {
                let own = value["document"]["analysis"]["problem"]["analysis_type"].as_str().unwrap_or("single_run");
                let kind = said["analysis_type"].as_str().unwrap_or(own).to_owned();
                if app.shelf.item(&analysis).is_err() {
                    make(&app, &drawer, &analysis, &value)?;
                }
                // An analysis that makes its own points waits for `batch_run`; others run at once.
                if kind.starts_with("batch") || matches!(kind.as_str(), "single_run" | "repeat_run") {
                    app.shelf.start(&analysis, None)?;
                }
                if let Some(types) = value["types"].as_array_mut() {
                    types.push(kind.into());
                }
                drawer.put("analysis", analysis.as_str(), &value)?;
            }
            Some("stop") => app.shelf.item(&analysis)?.store().set_state(Course::Cancelled)?,
            _ => return Err(ApiError::bad("act: `analysis_action` is `start` or `stop`")),
        }
        Ok(Json(json!({"code": 200, "analysis": head(&app, &value)?})))
    })
    .await
}

fn make(app: &Shared, drawer: &Drawer, analysis: &Id, value: &Value) -> Result<(), ApiError> {
    let converter = app.converter.as_ref();
    let converter = converter.ok_or_else(|| ApiError::conflict("this server makes no campaigns of analyses"))?;
    let archive = drawer.archive(analysis);
    let archive = archive.exists().then_some(archive.as_path());
    let points = value["points"].as_array().map(|all| all.iter().map(Value::to_string).collect());
    let files =
        Files { names: archive.map(names).transpose()?.unwrap_or_default(), data_points: points.unwrap_or_default() };
    let made = converter.convert(&value["document"].to_string(), &files).map_err(|why| ApiError::bad(&why))?;
    let brought = Brought::Zip { archive, more: &made.files };
    app.shelf.add(Some(analysis.clone()), &brought, Some(made.campaign)).map(drop)
}

/// An analysis without its points.
fn head(app: &Shared, value: &Value) -> Result<Value, ApiError> {
    let analysis = id(value["_id"].as_str().unwrap_or_default())?;
    let kind = &value["document"]["analysis"]["problem"]["analysis_type"];
    let (status, total) = match app.shelf.item(&analysis) {
        Err(_) => ("na", 0),
        Ok(item) => {
            let look = app.shelf.look(&analysis, &item)?;
            let status = match look.word {
                "new" | "interrupted" => "queued",
                "running" | "paused" => "started",
                _ => "completed",
            };
            (status, look.counts.points)
        }
    };
    let types = value["types"].as_array().cloned().unwrap_or_default();
    let last = types.len().saturating_sub(1);
    let jobs = types.iter().enumerate().map(|(index, kind)| {
        let status = if index < last { "completed" } else { status };
        json!({"index": index, "analysis_type": kind, "status": status, "status_message": ""})
    });
    Ok(json!({
        "_id": value["_id"], "id": value["_id"], "name": value["name"], "display_name": value["name"],
        "project_id": value["project"], "analysis_type": types.last().unwrap_or(kind), "status": status,
        "run_flag": status == "started", "total_datapoints": total, "jobs": jobs.collect::<Vec<_>>(),
    }))
}

pub(super) async fn show(State(app): State<Shared>, At(name): At<String>) -> Result<Json<Value>, ApiError> {
    let analysis = id(&name)?;
    aside(move || {
        let value = Drawer::new(&app).get("analysis", &analysis)?;
        let mut answer = head(&app, &value)?;
        answer["problem"] = value["document"]["analysis"]["problem"].clone();
        Ok(Json(json!({"analysis": answer})))
    })
    .await
}

/// The points that a client wants.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    /// In this state: queued, started, completed or na.
    jobs: Option<String>,
}

fn whole(app: &Shared, value: &Value, wanted: Option<&str>) -> Result<Value, ApiError> {
    let mut answer = head(app, value)?;
    let analysis = id(value["_id"].as_str().unwrap_or_default())?;
    answer["data_points"] = match app.shelf.item(&analysis) {
        Err(_) => json!([]),
        Ok(item) => points::all(&analysis, &item, wanted)?,
    };
    Ok(answer)
}

pub(super) async fn status(
    State(app): State<Shared>,
    At(name): At<String>,
    Asked(Wanted { jobs }): Asked<Wanted>,
) -> Result<Json<Value>, ApiError> {
    let analysis = id(&name)?;
    aside(move || {
        let value = Drawer::new(&app).get("analysis", &analysis)?;
        Ok(Json(json!({"analysis": whole(&app, &value, jobs.as_deref())?})))
    })
    .await
}

/// All analyses; one alone is no list, as its clients expect.
pub(super) async fn all(
    State(app): State<Shared>,
    Asked(Wanted { jobs }): Asked<Wanted>,
) -> Result<Json<Value>, ApiError> {
    aside(move || {
        let all = Drawer::new(&app).all("analysis")?;
        let all = all.iter().map(|value| whole(&app, value, jobs.as_deref())).collect::<Result<Vec<_>, _>>()?;
        Ok(Json(match <[Value; 1]>::try_from(all) {
            Ok([one]) => json!({"analysis": one}),
            Err(all) => json!({"analyses": all}),
        }))
    })
    .await
}

pub(super) async fn data(State(app): State<Shared>, At(name): At<String>) -> Result<Json<Value>, ApiError> {
    let analysis = id(&name)?;
    aside(move || {
        let item = app.shelf.item(&analysis)?;
        let (columns, mut rows, mut after) = (results::columns(&item.study), Vec::new(), 0);
        while rows.len() < MOST {
            let store = item.store();
            let page = store.results(after, PAGE)?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for row in page {
                let Some(cells) = results::cells(&item.study, &store, row)? else { continue };
                let mut row: serde_json::Map<String, Value> =
                    columns.iter().cloned().zip(cells.iter().map(|cell| json!(cell))).collect();
                let number = row.get("point").and_then(Value::as_u64).unwrap_or_default();
                row.insert("_id".to_owned(), Whose { analysis: analysis.clone(), point: number }.word().into());
                row.insert("name".to_owned(), format!("Point {number}").into());
                rows.push(Value::Object(row));
            }
        }
        Ok(Json(json!({"variables": variables_of(&item), "data": rows})))
    })
    .await
}

fn variables_of(item: &Item) -> Vec<Value> {
    let campaign = &item.study.campaign;
    let inputs = campaign.variables.iter().map(|of| json!({"name": of.name, "perturbable": true, "output": false}));
    let outputs = campaign.outputs.iter().map(|of| json!({"name": of.name, "units": of.unit, "output": true}));
    inputs.chain(outputs).collect()
}

pub(super) async fn csv(State(app): State<Shared>, At(name): At<String>) -> Result<Response, ApiError> {
    crate::routes::csv_of(app, id(&name)?).await
}

pub(super) async fn variables(State(app): State<Shared>, At(name): At<String>) -> Result<Response, ApiError> {
    let analysis = id(&name)?;
    let place = format!("attachment; filename=\"{}_variables.csv\"", analysis.as_str());
    let text = aside(move || {
        let item = app.shelf.item(&analysis)?;
        // Names are words, and units of a campaign file hold no line; a quote is doubled.
        let line = |of: &Value| {
            let unit = of["units"].as_str().unwrap_or_default().replace('"', "\"\"");
            format!("{},{},\"{unit}\"\r\n", of["name"].as_str().unwrap_or_default(), of["output"])
        };
        Ok(format!("name,output,units\r\n{}", variables_of(&item).iter().map(line).collect::<String>()))
    })
    .await?;
    let headers = [(header::CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()), (header::CONTENT_DISPOSITION, place)];
    Ok((headers, text).into_response())
}
