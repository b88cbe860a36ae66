//! The state that all requests share.

use std::sync::Arc;

use crate::convert::Convert;
use crate::error::ApiError;
use crate::sessions::Sessions;
use crate::shelf::Shelf;
use crate::tokens::Tokens;

pub(crate) type Shared = Arc<App>;

/// The server's state.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) shelf: Shelf,
    /// Makes campaigns of analyses of `OpenStudio`, where the program has it.
    pub(crate) converter: Option<Arc<dyn Convert>>,
    pub(crate) tokens: Tokens,
    pub(crate) sessions: Sessions,
    /// Names that the server is called by, besides addresses and `localhost`.
    pub(crate) names: Vec<String>,
    /// Whether the server speaks TLS.
    pub(crate) is_secure: bool,
}

/// Runs what may block, such as a query, beside the event loop.
pub(crate) async fn aside<T, F>(work: F) -> Result<T, ApiError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, ApiError> + Send + 'static,
{
    tokio::task::spawn_blocking(work).await.map_err(|error| ApiError::internal(&error))?
}
