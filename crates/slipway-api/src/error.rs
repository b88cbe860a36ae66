//! Errors, as answers.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use slipway_coordinator::FolderError;
use slipway_coordinator::store::StoreError;
use slipway_document::errors::DocumentErrors;
use slipway_results::objects::ObjectError;
use slipway_study::campaign::CampaignError;
use utoipa::ToSchema;

/// An answer that is no success. Its text names no path of this machine.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    error: Account,
}

/// The body of such an answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Failed {
    error: Account,
}

/// An error.
#[derive(Debug, Default, Serialize, ToSchema)]
struct Account {
    /// A word for programs.
    code: &'static str,
    /// A sentence for people.
    message: String,
    /// The next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Faults of a campaign file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<Problem>,
}

/// A fault of a campaign file.
#[derive(Debug, Serialize, ToSchema)]
struct Problem {
    /// From 1.
    line: usize,
    /// From 1.
    column: usize,
    message: String,
    help: String,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, text: &str) -> Self {
        let (message, hint) = match text.split_once("\nHint: ") {
            Some((message, hint)) => (message, Some(hint.to_owned())),
            None => (text, None),
        };
        Self { status, error: Account { code, message: message.to_owned(), hint, problems: Vec::new() } }
    }

    /// The request says something impossible.
    pub(crate) fn bad(text: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", text)
    }

    /// There is no such thing.
    pub(crate) fn missing(text: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", text)
    }

    /// The state of things does not allow it now.
    pub(crate) fn conflict(text: &str) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", text)
    }

    /// The body is too large.
    pub(crate) fn large(text: &str) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", text)
    }

    /// The caller is unknown.
    pub(crate) fn unknown() -> Self {
        let text = "say who you are\nHint: send `Authorization: Bearer TOKEN`; the server printed a token, or has a file of them";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", text)
    }

    /// The caller may not.
    pub(crate) fn forbidden(text: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", text)
    }

    /// The request was meant for another server.
    pub(crate) fn misdirected(text: &str) -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, "wrong-host", text)
    }

    /// It took too long.
    pub(crate) fn late() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "time-out", "the request took too long")
    }

    /// With the status that the HTTP library found fitting.
    pub(crate) fn rejected(status: StatusCode, text: &str) -> Self {
        let code = if status == StatusCode::PAYLOAD_TOO_LARGE { "too-large" } else { "bad-request" };
        Self::new(status, code, text)
    }

    /// A fault of the server: its log has the details.
    pub(crate) fn internal(error: &dyn std::fmt::Display) -> Self {
        tracing::error!("{error}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server failed; its log says why")
    }

    /// A campaign file that is wrong.
    pub(crate) fn file(errors: &DocumentErrors) -> Self {
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "campaign-file", "the campaign file is wrong");
        let problem = |one: &slipway_document::errors::DocumentError| Problem {
            line: one.line,
            column: one.column,
            message: one.message.clone(),
            help: one.help.clone(),
        };
        error.error.problems = errors.errors().iter().map(problem).collect();
        error
    }
}

impl From<CampaignError> for ApiError {
    fn from(error: CampaignError) -> Self {
        match error {
            CampaignError::File(errors) => Self::file(&errors),
            CampaignError::Plan(error) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "design", &error.to_string()),
            CampaignError::List(_) => Self::bad("read the list of points: it is missing or wrong"),
            CampaignError::Folder(error) => error.into(),
            other => Self::internal(&other),
        }
    }
}

impl From<FolderError> for ApiError {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::Missing(_) => Self::missing("there is no such campaign"),
            FolderError::Taken { .. } => Self::conflict("the campaign runs"),
            FolderError::Other(_) => Self::conflict("there is another campaign of this name"),
            FolderError::File(_) => Self::internal(&error),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::internal(&error)
    }
}

impl From<ObjectError> for ApiError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Gone(_) => Self::missing("storage no longer has the file"),
            other => Self::internal(&other),
        }
    }
}

impl From<std::io::Error> for ApiError {
    fn from(error: std::io::Error) -> Self {
        Self::internal(&error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(Failed { error: self.error })).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let how = axum::http::HeaderValue::from_static("Bearer, Basic realm=\"slipway\"");
            response.headers_mut().insert(axum::http::header::WWW_AUTHENTICATE, how);
        }
        response
    }
}
