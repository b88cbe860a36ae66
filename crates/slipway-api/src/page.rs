//! The page: files in the program, which load nothing from elsewhere.

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde::Deserialize;

use crate::app::Shared;

const HTML: &str = "text/html; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

/// All files but the first one: name, type, content.
const FILES: &[(&str, &str, &str)] = &[
    ("/page/style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("/page/main.js", JS, include_str!("page/main.js")),
    ("/page/api.js", JS, include_str!("page/api.js")),
    ("/page/dom.js", JS, include_str!("page/dom.js")),
    ("/page/list.js", JS, include_str!("page/list.js")),
    ("/page/campaign.js", JS, include_str!("page/campaign.js")),
    ("/page/table.js", JS, include_str!("page/table.js")),
    ("/page/plot.js", JS, include_str!("page/plot.js")),
    ("/page/parallel.js", JS, include_str!("page/parallel.js")),
    ("/page/scatter.js", JS, include_str!("page/scatter.js")),
    ("/page/series.js", JS, include_str!("page/series.js")),
    ("/page/sensitivity.js", JS, include_str!("page/sensitivity.js")),
    ("/page/failures.js", JS, include_str!("page/failures.js")),
];

pub(crate) fn routes() -> Router<Shared> {
    FILES.iter().fold(Router::new().route("/", get(first)), |routes, &(name, kind, content)| {
        routes.route(name, get(move || async move { ([(header::CONTENT_TYPE, kind)], content) }))
    })
}

#[derive(Debug, Deserialize)]
struct Ask {
    token: Option<String>,
}

/// The page itself. With a token in its address, it begins a session, and the address loses the token.
async fn first(State(app): State<Shared>, Query(Ask { token }): Query<Ask>) -> Response {
    let Some(token) = token else {
        return ([(header::CONTENT_TYPE, HTML)], include_str!("page/index.html")).into_response();
    };
    let cookie = app.tokens.find(&token).and_then(|key| app.sessions.begin(key, app.is_secure));
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, "/")]).into_response();
    response.headers_mut().extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
    response
}
