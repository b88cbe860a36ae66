//! Both ends, on loopback.

use std::io;

use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::{Gate, Invitation, JoinError, Joined, News, join};
use crate::folder::Folder;

/// Joins, on a thread of its own: a worker's machine has its own event loop.
async fn ask(invitation: &Invitation, worker: u32, start: u64) -> Result<Joined, JoinError> {
    let invitation = invitation.clone();
    spawn_blocking(move || join(&invitation, worker, start)).await.expect("it does not panic")
}

#[test]
fn a_machine_joins_once_for_the_start_that_is_expected_and_with_the_token() -> io::Result<()> {
    let room = tempfile::tempdir()?;
    let folder = Folder::create(&room.path().join("c"), "run: 'true'\n").expect("a folder");
    let gate = Gate::open(Some(([127, 0, 0, 1], 0).into())).expect("a gate");
    let invitation = gate.invitation();
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async {
        let (news, mut heard) = mpsc::unbounded_channel();
        let seats = gate.serve(&folder, news)?;
        seats.expect(3, 7);
        let stranger = Invitation { token: "00".repeat(32), ..invitation.clone() };
        assert!(matches!(ask(&stranger, 3, 7).await, Err(JoinError::Unreachable(_))));
        for (worker, start) in [(3, 6), (4, 7)] {
            assert!(matches!(ask(&invitation, worker, start).await, Err(JoinError::Refused(_))));
        }
        let joined = ask(&invitation, 3, 7).await.expect("it is expected");
        assert!(matches!(heard.recv().await, Some(News::Joined { worker: 3, start: 7 })));
        assert!(matches!(ask(&invitation, 3, 7).await, Err(JoinError::Refused(_))), "it has joined");
        spawn_blocking(move || joined.leave("no\x1broom")).await?;
        let Some(News::Left { worker: 3, start: 7, words }) = heard.recv().await else { panic!("it left") };
        assert!(words.starts_with("no") && !words.contains('\x1b'), "{words:?}");
        seats.remove(3);
        assert!(matches!(ask(&invitation, 3, 7).await, Err(JoinError::Refused(_))), "nobody expects it");
        Ok(())
    })
}
