//! Progress, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{Stream, stream};

use crate::answers::Progress;
use crate::app::{Shared, aside};
use crate::error::ApiError;
use crate::extract::At;
use crate::shelf::Id;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// A watcher of one campaign.
struct Watch {
    app: Shared,
    id: Id,
    last: Option<Progress>,
}

/// Progress, whenever it changes
///
/// Events are named `progress`, and their data is a `Progress`. The stream ends when the campaign is deleted.
#[utoipa::path(get, path = "/campaigns/{id}/events", params(("id" = String, Path)), responses((status = 200, content_type = "text/event-stream", body = Progress), (status = 404)))]
pub(crate) async fn events(
    State(app): State<Shared>,
    At(id): At<Id>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let watch = Watch { app, id, last: None };
    // A campaign that is not there is answered as such.
    let (watch, first) = look(watch).await?;
    let events = stream::unfold((watch, Some(first)), |(mut watch, first)| async move {
        let mut found = first;
        let progress = loop {
            match found.take() {
                Some(progress) if watch.last.as_ref() != Some(&progress) => break progress,
                _ => tokio::time::sleep(LOOK).await,
            }
            let (same, progress) = look(watch).await.ok()?;
            (watch, found) = (same, Some(progress));
        };
        let event = Event::default().event("progress").json_data(&progress).ok()?;
        watch.last = Some(progress);
        Some((Ok(event), (watch, None)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

async fn look(watch: Watch) -> Result<(Watch, Progress), ApiError> {
    aside(move || {
        let item = watch.app.shelf.item(&watch.id)?;
        let look = watch.app.shelf.look(&watch.id, &item)?;
        let progress = Progress::of(&item, &look)?;
        Ok((watch, progress))
    })
    .await
}
