//! Results.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json1, json};
use slipway_campaign::value::Value;
use slipway_coordinator::store::Store as _;
use slipway_results::objects;
use slipway_results::series as format;
use slipway_study::campaign::{results as study, storage};
use utoipa::{IntoParams, ToSchema};

use crate::app::{Shared, aside};
use crate::body;
use crate::error::ApiError;
use crate::extract::{Asked, At};
use crate::shelf::Id;

/// Most rows of an answer.
const PAGE: usize = 5000;
/// Longest time series that is read, in bytes.
const LONGEST: u64 = 256 << 20;
/// Most values of a series that are sent: more than any screen has columns.
const VALUES: usize = 4000;

/// The part of the results.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    /// Results that came after the one of this number: `next` of the answer before
    #[serde(default)]
    after: u64,
    /// At most so many
    limit: Option<usize>,
}

/// Results, a row for each point.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Table {
    /// Names of the columns: the point, variables, outputs, then resources.
    columns: Vec<String>,
    /// A cell is `null` where it is a time series.
    #[schema(value_type = Vec<Vec<Object>>)]
    rows: Vec<Vec<Option<Value>>>,
    /// `after` of the next part, also of results that are to come.
    next: u64,
    /// Whether there are more results now.
    more: bool,
}

/// Results, in the order in which they came
#[utoipa::path(get, path = "/campaigns/{id}/results", params(("id" = String, Path), Part), responses((status = 200, body = Table), (status = 404)))]
pub(crate) async fn results(
    State(app): State<Shared>,
    At(id): At<Id>,
    Asked(Part { after, limit }): Asked<Part>,
) -> Result<Json<Table>, ApiError> {
    let most = limit.unwrap_or(PAGE).clamp(1, PAGE);
    aside(move || {
        let after = i64::try_from(after).map(|_| after).map_err(|_| ApiError::bad("read `after`: it is too large"))?;
        let item = app.shelf.item(&id)?;
        let store = item.store();
        let page = store.results(after, most)?;
        let (next, more) = (page.last().map_or(after, |row| row.seq), page.len() == most);
        let mut rows = Vec::with_capacity(page.len());
        for row in page {
            rows.extend(study::cells(&item.study, &store, row)?);
        }
        Ok(Json(Table { columns: study::columns(&item.study), rows, next, more }))
    })
    .await
}

/// All results, as CSV
#[utoipa::path(get, path = "/campaigns/{id}/results.csv", params(("id" = String, Path)), responses((status = 200, content_type = "text/csv", body = String), (status = 404)))]
pub(crate) async fn csv(State(app): State<Shared>, At(id): At<Id>) -> Result<Response, ApiError> {
    send(app, id).await
}

/// Sends all results as CSV.
pub(crate) async fn send(app: Shared, id: Id) -> Result<Response, ApiError> {
    let name = format!("attachment; filename=\"{}.csv\"", id.as_str());
    let item = aside(move || app.shelf.item(&id)).await?;
    let body = body::written(move |out| {
        let line = |cells: &mut dyn Iterator<Item = String>| {
            let cells: Vec<String> = cells.map(|cell| quoted(&cell)).collect();
            format!("{}\r\n", cells.join(","))
        };
        out.write_all(line(&mut study::columns(&item.study).into_iter()).as_bytes())?;
        let mut after = 0;
        loop {
            let rows = {
                let store = item.store();
                let page = store.results(after, PAGE).map_err(std::io::Error::other)?;
                let Some(last) = page.last() else { return Ok(()) };
                after = last.seq;
                let cells = |row| study::cells(&item.study, &store, row).transpose();
                page.into_iter().filter_map(cells).collect::<Result<Vec<_>, _>>().map_err(std::io::Error::other)?
            };
            for cells in rows {
                let mut cells = cells.into_iter().map(|cell| cell.map(|cell| cell.to_string()).unwrap_or_default());
                out.write_all(line(&mut cells).as_bytes())?;
            }
        }
    });
    let headers = [(header::CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()), (header::CONTENT_DISPOSITION, name)];
    Ok((headers, body).into_response())
}

/// RFC 4180 section 2.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

/// The measures of one output.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Measured {
    output: String,
    /// Measures of the design: `morris`, `variance`, `fast` or `sample`; `null` where there are none.
    #[schema(value_type = Object)]
    analysis: Json1,
    /// The reason why there are none.
    why: Option<String>,
}

/// How much each variable matters
#[utoipa::path(get, path = "/campaigns/{id}/sensitivity", params(("id" = String, Path)), responses((status = 200, body = Vec<Measured>), (status = 404)))]
pub(crate) async fn sensitivity(State(app): State<Shared>, At(id): At<Id>) -> Result<Json<Vec<Measured>>, ApiError> {
    aside(move || {
        let item = app.shelf.item(&id)?;
        let outputs = &item.study.campaign.outputs;
        let all = outputs.iter().enumerate().map(|(index, output)| {
            let (analysis, why) = match study::analyse(&item.study, index)? {
                Ok(analysis) => (json!(analysis), None),
                Err(error) => (Json1::Null, Some(error.to_string())),
            };
            Ok(Measured { output: output.name.clone(), analysis, why })
        });
        all.collect::<Result<_, ApiError>>().map(Json)
    })
    .await
}

/// A time series.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Series {
    /// Number of values.
    count: usize,
    /// Place of each value that is sent, from 0.
    at: Vec<usize>,
    /// All values, or the least and greatest of each stretch where there are too many to draw. `null`: not finite.
    values: Vec<Option<f64>>,
}

/// A time series of a point
#[utoipa::path(get, path = "/campaigns/{id}/points/{point}/series/{output}", params(("id" = String, Path), ("point" = u64, Path), ("output" = String, Path)), responses((status = 200, body = Series), (status = 404)))]
pub(crate) async fn series(
    State(app): State<Shared>,
    At((id, point, output)): At<(Id, u64, String)>,
) -> Result<Json<Series>, ApiError> {
    aside(move || {
        let item = app.shelf.item(&id)?;
        let missing = || ApiError::missing("the point has no such time series");
        let index = item.study.campaign.outputs.iter().position(|one| one.name == output).ok_or_else(missing)?;
        let point = i64::try_from(point).map(|_| point).map_err(|_| missing())?;
        let row = item.store().result(point)?.ok_or_else(missing)?;
        let (_, digest) = row.record.series.iter().find(|(at, _)| *at == index).ok_or_else(missing)?;
        let mut content = Vec::new();
        let mut reader = objects::read(storage::open(&item.study)?.as_ref(), digest, LONGEST)?;
        std::io::Read::read_to_end(&mut reader, &mut content)?;
        let values = format::decode(&content).map_err(|error| ApiError::internal(&error))?;
        let at = places(&values);
        let chosen = at.iter().map(|&at| Some(values[at]).filter(|value| value.is_finite())).collect();
        Ok(Json(Series { count: values.len(), at, values: chosen }))
    })
    .await
}

/// The values to draw: all, or the least and greatest of each stretch, so that no peak is lost.
fn places(values: &[f64]) -> Vec<usize> {
    if values.len() <= VALUES {
        return (0..values.len()).collect();
    }
    let stretch = values.len().div_ceil(VALUES / 2);
    let mut places = Vec::with_capacity(VALUES);
    for begin in (0..values.len()).step_by(stretch) {
        let part = begin..(begin + stretch).min(values.len());
        let least = part.clone().min_by(|a, b| values[*a].total_cmp(&values[*b]));
        let greatest = part.max_by(|a, b| values[*a].total_cmp(&values[*b]));
        places.extend(least.into_iter().chain(greatest));
        let end = places.len();
        if end >= 2 {
            places[end - 2..].sort_unstable();
        }
    }
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_keeps_its_peaks() {
        let mut values: Vec<f64> = (0..100_000).map(|at| f64::from(at % 10)).collect();
        values[77_777] = 1000.0;
        values[33] = -1000.0;
        let places = places(&values);
        assert!(places.len() <= VALUES && places.contains(&77_777) && places.contains(&33));
        assert!(places.is_sorted());
    }

    #[test]
    fn cells_of_csv_are_quoted() {
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
