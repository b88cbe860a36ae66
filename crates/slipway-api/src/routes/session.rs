//! Sessions of pages, and tokens.

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::Shared;
use crate::error::ApiError;
use crate::extract::{At, Said};
use crate::guard::Caller;
use crate::tokens::{Key, Role, TokenError};

/// The caller.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Session {
    /// Name of the token.
    name: String,
    role: Role,
    /// The proof to send as `X-CSRF-Token`; empty for a caller with a token.
    csrf: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    token: String,
}

/// Begins a session: the answer sets its cookie.
pub(crate) async fn begin(State(app): State<Shared>, Said(login): Said<Login>) -> Result<Response, ApiError> {
    let key = app.tokens.find(&login.token).ok_or_else(ApiError::unknown)?;
    let cookie = app.sessions.begin(key, app.is_secure).ok_or_else(ApiError::unknown)?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

/// The caller, and the proof that a page needs
#[utoipa::path(get, path = "/session", responses((status = 200, body = Session)))]
pub(crate) async fn show(Extension(caller): Extension<Caller>) -> Json<Session> {
    Json(Session { name: caller.key.name, role: caller.key.role, csrf: caller.csrf })
}

/// Ends the session
#[utoipa::path(delete, path = "/session", responses((status = 204)))]
pub(crate) async fn end(State(app): State<Shared>, headers: HeaderMap) -> Response {
    let cookie = app.sessions.end(&headers, app.is_secure);
    let mut response = StatusCode::NO_CONTENT.into_response();
    response.headers_mut().extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
    response
}

/// Tokens, without secrets
#[utoipa::path(get, path = "/tokens", responses((status = 200, body = Vec<Key>)))]
pub(crate) async fn tokens(State(app): State<Shared>) -> Json<Vec<Key>> {
    Json(app.tokens.list())
}

/// A token to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewToken {
    name: String,
    role: Role,
}

/// A token, once.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MadeToken {
    name: String,
    role: Role,
    /// The secret. Nothing keeps it.
    token: String,
}

/// Makes a token
#[utoipa::path(post, path = "/tokens", request_body = NewToken, responses((status = 201, body = MadeToken)))]
pub(crate) async fn add_token(
    State(app): State<Shared>,
    Said(NewToken { name, role }): Said<NewToken>,
) -> Result<(StatusCode, Json<MadeToken>), ApiError> {
    let token = app.tokens.add(&name, role).map_err(|error| match error {
        TokenError::Name(_) => ApiError::conflict(&error.to_string()),
        other => ApiError::internal(&other),
    })?;
    Ok((StatusCode::CREATED, Json(MadeToken { name, role, token })))
}

/// Revokes a token, and ends its sessions
#[utoipa::path(delete, path = "/tokens/{name}", params(("name" = String, Path)), responses((status = 204), (status = 404)))]
pub(crate) async fn remove_token(State(app): State<Shared>, At(name): At<String>) -> Result<StatusCode, ApiError> {
    if app.tokens.remove(&name).map_err(|error| ApiError::internal(&error))? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(ApiError::missing("there is no such token"))
}
