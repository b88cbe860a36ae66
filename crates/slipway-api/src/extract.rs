//! Parts of requests, whose faults are answered in JSON as all others.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::error::ApiError;

/// Parameters in the path.
pub(crate) struct At<T>(pub(crate) T);

/// Parameters in the query.
pub(crate) struct Asked<T>(pub(crate) T);

/// A JSON body. A request without a body, and without a type of it, stands for an empty object.
pub(crate) struct Said<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for At<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(value) = Path::from_request_parts(parts, state)
            .await
            .map_err(|error: PathRejection| ApiError::rejected(error.status(), &error.body_text()))?;
        Ok(Self(value))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Query(value) = Query::from_request_parts(parts, state)
            .await
            .map_err(|error: QueryRejection| ApiError::rejected(error.status(), &error.body_text()))?;
        Ok(Self(value))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Said<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let is_empty = request.headers().get("content-length").is_none_or(|length| length == "0")
            && !request.headers().contains_key("content-type")
            && !request.headers().contains_key("transfer-encoding");
        if is_empty {
            let empty = serde_json::from_str("{}").map_err(|error| ApiError::bad(&error.to_string()));
            return empty.map(Self);
        }
        let Json(value) = Json::from_request(request, state)
            .await
            .map_err(|error: JsonRejection| ApiError::rejected(error.status(), &error.body_text()))?;
        Ok(Self(value))
    }
}
