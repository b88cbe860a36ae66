//! Campaigns.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use slipway_coordinator::store::Tally;
use utoipa::ToSchema;

use crate::answers::{Detail, Summary};
use crate::app::{Shared, aside};
use crate::body;
use crate::error::ApiError;
use crate::extract::{At, Said};
use crate::shelf::{Brought, Id};

/// All campaigns, the latest change first
#[utoipa::path(get, path = "/campaigns", responses((status = 200, body = Vec<Summary>)))]
pub(crate) async fn list(State(app): State<Shared>) -> Result<Json<Vec<Summary>>, ApiError> {
    aside(move || {
        let mut all = Vec::new();
        for id in app.shelf.ids()? {
            // One that is damaged, or goes away meanwhile, hides no other.
            let summary = app.shelf.item(&id).and_then(|item| Summary::of(&id, &item, &app.shelf.look(&id, &item)?));
            match summary {
                Ok(summary) => all.push(summary),
                Err(error) => tracing::warn!("list campaign {}: {error:?}", id.as_str()),
            }
        }
        Ok(Json(all))
    })
    .await
}

/// A campaign to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCampaign {
    /// Text of the campaign file.
    file: String,
}

/// Name of a campaign.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Made {
    id: String,
}

/// Makes a campaign
///
/// The body is JSON with the file's text, or a tar archive (gzip may compress it) with `campaign.yaml` and the inputs that it
/// names. The campaign waits for its start.
#[utoipa::path(
    post, path = "/campaigns",
    request_body(content((NewCampaign = "application/json"), (String = "application/x-tar"))),
    responses((status = 201, body = Made), (status = 409), (status = 413), (status = 422))
)]
pub(crate) async fn create(State(app): State<Shared>, request: Request) -> Result<Response, ApiError> {
    let is_archive = request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/x-tar");
    let id = if is_archive {
        let archive = body::keep(request.into_body().into_data_stream(), body::ARCHIVE).await?;
        aside(move || app.shelf.add(None, &Brought::Tar(archive.path()), None)).await?
    } else {
        let Said(NewCampaign { file }) = Said::from_request(request, &app).await?;
        aside(move || app.shelf.add(None, &Brought::Nothing, Some(file))).await?
    };
    let place = format!("/api/v1/campaigns/{}", id.as_str());
    let made = Made { id: id.as_str().to_owned() };
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(made)).into_response())
}

/// A campaign
#[utoipa::path(get, path = "/campaigns/{id}", params(("id" = String, Path)), responses((status = 200, body = Detail), (status = 404)))]
pub(crate) async fn show(State(app): State<Shared>, At(id): At<Id>) -> Result<Json<Detail>, ApiError> {
    aside(move || {
        let item = app.shelf.item(&id)?;
        let look = app.shelf.look(&id, &item)?;
        Ok(Json(Detail::of(&id, &item, look)?))
    })
    .await
}

/// Deletes a campaign with its results
#[utoipa::path(delete, path = "/campaigns/{id}", params(("id" = String, Path)), responses((status = 204), (status = 404), (status = 409)))]
pub(crate) async fn delete(State(app): State<Shared>, At(id): At<Id>) -> Result<StatusCode, ApiError> {
    aside(move || app.shelf.delete(&id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The campaign file, as it was at the begin
#[utoipa::path(get, path = "/campaigns/{id}/file", params(("id" = String, Path)), responses((status = 200, content_type = "text/plain", body = String), (status = 404)))]
pub(crate) async fn file(State(app): State<Shared>, At(id): At<Id>) -> Result<Response, ApiError> {
    let text = aside(move || Ok(Bytes::from(std::fs::read(app.shelf.item(&id)?.folder.file())?))).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}

/// The share of a worker.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Worker {
    #[serde(rename = "worker")]
    number: u32,
    /// Results that it gave.
    done: u64,
    /// Points that failed at it.
    failed: u64,
    /// Seconds of the attempts that gave results.
    seconds: f64,
    /// The point that it has now.
    point: Option<u64>,
}

/// Workers that had points
#[utoipa::path(get, path = "/campaigns/{id}/workers", params(("id" = String, Path)), responses((status = 200, body = Vec<Worker>), (status = 404)))]
pub(crate) async fn workers(State(app): State<Shared>, At(id): At<Id>) -> Result<Json<Vec<Worker>>, ApiError> {
    aside(move || {
        let workers = app.shelf.item(&id)?.store().workers()?;
        let worker =
            |Tally { worker, done, seconds, failed, point }| Worker { number: worker, done, failed, seconds, point };
        Ok(Json(workers.into_iter().map(worker).collect()))
    })
    .await
}
