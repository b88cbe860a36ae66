//! The course of a campaign.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use slipway_campaign::condition::Condition;
use slipway_coordinator::store::{FailureKind, Filter, State as Course, Store as _};
use slipway_study::campaign::Study;
use slipway_study::campaign::priority::{self, MOST, Wanted};
use utoipa::ToSchema;

use crate::app::{Shared, aside};
use crate::error::ApiError;
use crate::extract::{At, Said};
use crate::shelf::Id;

/// Most workers that a caller may ask for.
const MOST_WORKERS: u32 = 10_000;

/// A start.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Begin {
    /// Most workers at once, instead of the file's number.
    workers: Option<u32>,
}

/// Starts a campaign, or goes on with it
///
/// A process of its own runs it, which outlives the server.
#[utoipa::path(post, path = "/campaigns/{id}/start", params(("id" = String, Path)), request_body = Begin, responses((status = 202), (status = 404), (status = 409)))]
pub(crate) async fn start(
    State(app): State<Shared>,
    At(id): At<Id>,
    Said(Begin { workers }): Said<Begin>,
) -> Result<StatusCode, ApiError> {
    if workers.is_some_and(|workers| !(1..=MOST_WORKERS).contains(&workers)) {
        return Err(ApiError::bad(&format!("have so many workers\nHint: 1 to {MOST_WORKERS}")));
    }
    aside(move || app.shelf.start(&id, workers)).await?;
    Ok(StatusCode::ACCEPTED)
}

async fn set(app: Shared, id: Id, course: Course) -> Result<StatusCode, ApiError> {
    aside(move || Ok(app.shelf.item(&id)?.store().set_state(course)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives out no more points; those that run end
#[utoipa::path(post, path = "/campaigns/{id}/pause", params(("id" = String, Path)), responses((status = 204), (status = 404)))]
pub(crate) async fn pause(State(app): State<Shared>, At(id): At<Id>) -> Result<StatusCode, ApiError> {
    set(app, id, Course::Paused).await
}

/// Gives out points again, after a pause or a cancellation
#[utoipa::path(post, path = "/campaigns/{id}/resume", params(("id" = String, Path)), responses((status = 204), (status = 404)))]
pub(crate) async fn resume(State(app): State<Shared>, At(id): At<Id>) -> Result<StatusCode, ApiError> {
    set(app, id, Course::Running).await
}

/// Gives the campaign up: points that run are ended. Results stay
#[utoipa::path(post, path = "/campaigns/{id}/cancel", params(("id" = String, Path)), responses((status = 204), (status = 404)))]
pub(crate) async fn cancel(State(app): State<Shared>, At(id): At<Id>) -> Result<StatusCode, ApiError> {
    set(app, id, Course::Cancelled).await
}

/// The points to run again: all that failed, or some of them.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Again {
    /// With a last failure of this kind.
    #[schema(value_type = Option<String>)]
    failure: Option<FailureKind>,
    /// One of these.
    #[serde(default)]
    points: Vec<u64>,
}

/// Points that will run again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Retried {
    retried: u64,
}

/// Has points that failed run again, with all their attempts
#[utoipa::path(post, path = "/campaigns/{id}/retry", params(("id" = String, Path)), request_body = Again, responses((status = 200, body = Retried), (status = 404)))]
pub(crate) async fn retry(
    State(app): State<Shared>,
    At(id): At<Id>,
    Said(Again { failure, points }): Said<Again>,
) -> Result<Json<Retried>, ApiError> {
    let filter = Filter { state: None, failure, points };
    aside(move || Ok(Json(Retried { retried: app.shelf.item(&id)?.store().retry(&filter)? }))).await
}

/// A larger design.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Larger {
    /// The new size in the design's own unit, such as generations or points.
    size: u64,
}

/// Points of a design.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Extended {
    /// All points now.
    points: u64,
}

/// Gives a campaign more points; those that it has stay as they are
///
/// The campaign must not run meanwhile. Grids, one at a time and fast have no extension.
#[utoipa::path(post, path = "/campaigns/{id}/extend", params(("id" = String, Path)), request_body = Larger, responses((status = 200, body = Extended), (status = 404), (status = 409), (status = 422)))]
pub(crate) async fn extend(
    State(app): State<Shared>,
    At(id): At<Id>,
    Said(Larger { size }): Said<Larger>,
) -> Result<Json<Extended>, ApiError> {
    aside(move || {
        let study = Study::open(app.shelf.item(&id)?.folder.path())?.extended(size)?;
        Ok(Json(Extended { points: study.plan.len() }))
    })
    .await
}

/// The points that get a priority: those that meet everything that is said.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Preferred {
    /// From -1000 to 1000. Each point has 0 before; the greatest runs first.
    priority: i32,
    /// One of these.
    #[serde(default)]
    points: Vec<u64>,
    /// Conditions on variables, such as `speed > 3`.
    #[serde(default, rename = "where")]
    conditions: Vec<String>,
    /// With a last failure of this kind.
    #[schema(value_type = Option<String>)]
    failure: Option<FailureKind>,
}

/// Points that have the priority now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Prioritised {
    prioritised: u64,
}

/// Has points run before others, or after them
///
/// Points that run are not interrupted. A campaign that runs takes it up with the next point.
#[utoipa::path(post, path = "/campaigns/{id}/prioritise", params(("id" = String, Path)), request_body = Preferred, responses((status = 200, body = Prioritised), (status = 400), (status = 404)))]
pub(crate) async fn prioritise(
    State(app): State<Shared>,
    At(id): At<Id>,
    Said(Preferred { priority, points, conditions, failure }): Said<Preferred>,
) -> Result<Json<Prioritised>, ApiError> {
    if !(-MOST..=MOST).contains(&priority) {
        return Err(ApiError::bad(&format!("give this priority\nHint: -{MOST} to {MOST}")));
    }
    if points.is_empty() && conditions.is_empty() && failure.is_none() {
        return Err(ApiError::bad("find the points\nHint: name `points`, `where` or `failure`"));
    }
    aside(move || {
        let item = app.shelf.item(&id)?;
        let conditions = Condition::read_all(&conditions, &item.study.campaign.variables);
        let conditions = conditions.map_err(|error| ApiError::bad(&error.to_string()))?;
        let points = points.into_iter().map(|point| point..=point).collect();
        let wanted = Wanted { points, conditions, failure };
        Ok(Json(Prioritised { prioritised: priority::prioritise(&item.study, &wanted, priority)? }))
    })
    .await
}
