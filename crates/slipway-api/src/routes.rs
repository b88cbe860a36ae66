//! Routes of the native API, below `/api/v1`.

mod campaigns;
mod control;
mod events;
mod files;
mod results;
mod session;

use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::Shared;
use crate::error::ApiError;
use crate::guard;

pub(crate) use files::send as file_of;
pub(crate) use results::send as csv_of;

/// All routes of the API, with their description.
fn api() -> (Router<Shared>, OpenApi) {
    #[derive(utoipa::OpenApi)]
    #[openapi(
        info(
            title = "Slipway campaigns",
            description = "Campaigns of one program at many points: start them, watch them, read their results.\n\nSend `Authorization: Bearer TOKEN`. GET needs the role `read`, POST `run`, DELETE and all of `/tokens` `admin`.",
            license(name = "Apache-2.0 OR MIT")
        ),
        servers((url = "/api/v1"))
    )]
    struct Description;
    OpenApiRouter::with_openapi(<Description as utoipa::OpenApi>::openapi())
        .routes(routes!(campaigns::list, campaigns::create))
        .routes(routes!(campaigns::show, campaigns::delete))
        .routes(routes!(campaigns::file))
        .routes(routes!(campaigns::workers))
        .routes(routes!(control::start))
        .routes(routes!(control::pause))
        .routes(routes!(control::resume))
        .routes(routes!(control::cancel))
        .routes(routes!(control::retry))
        .routes(routes!(control::extend))
        .routes(routes!(control::prioritise))
        .routes(routes!(events::events))
        .routes(routes!(results::results))
        .routes(routes!(results::csv))
        .routes(routes!(results::sensitivity))
        .routes(routes!(results::series))
        .routes(routes!(files::points))
        .routes(routes!(files::point))
        .routes(routes!(files::log))
        .routes(routes!(files::file))
        .routes(routes!(session::tokens, session::add_token))
        .routes(routes!(session::remove_token))
        .routes(routes!(session::show, session::end))
        .split_for_parts()
}

/// The description of the API (`OpenAPI` 3.1).
#[must_use]
pub(crate) fn description() -> OpenApi {
    api().1
}

/// The API, for callers with a token. Beginning a session and the API's description need none.
pub(crate) fn routes(app: &Shared) -> Router<Shared> {
    let (api, description) = api();
    let inner = middleware::from_fn_with_state(app.clone(), guard::inner);
    let open = Router::new()
        .route("/openapi.json", get(move || async move { Json(description) }))
        .route("/login", post(session::begin));
    let nowhere = || async { ApiError::missing("there is no such route\nHint: /api/v1/openapi.json lists them") };
    Router::new().nest("/api/v1", api.route_layer(inner).merge(open).fallback(nowhere))
}
