//! A search: an optimiser chooses points, workers run them, and the optimiser learns from their scores.
//!
//! The queue has the history. An optimiser that starts is told all of it first, by the same steps that made it. So a search
//! goes on where it was, whether the optimiser ended or the coordinator did.

use std::path::PathBuf;
use std::sync::Arc;

use slipway_campaign::model::{Campaign, Search};
use slipway_campaign::score::{Score, count, score};
use slipway_campaign::search::Space;

use crate::asker::{Asker, Silent};
use crate::serve::Office;
use crate::store::{Batch, Learnt, StoreError};

/// Ends of the optimiser in a row, without any progress between, before the campaign stops.
const SILENT: u32 = 3;
/// The score of a point that failed before any point succeeded.
const WORST: f64 = 1e18;

/// A search to carry out.
#[derive(Debug, Clone)]
pub(crate) struct Quest {
    pub(crate) campaign: Campaign,
    pub(crate) plan: Search,
    /// The interpreter, which has the library of the method.
    pub(crate) python: PathBuf,
    /// The file for what the optimiser prints.
    pub(crate) log: PathBuf,
}

/// The reason why a search does not go on.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The queue.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The optimiser.
    #[error(
        "choose points: the optimiser gave no answer {SILENT} times in a row: {0}\nHint: results stay; `slipway campaign run` goes on"
    )]
    Silent(String),
}

/// Carries a search out to its end.
pub(crate) async fn search(office: Arc<Office>, quest: Quest) -> Result<(), SearchError> {
    let mut silent = 0;
    let mut known = 0;
    loop {
        let Silent(why) = match converse(&office, &quest).await {
            Ok(()) => return Ok(()),
            Err(Broken::Store(error)) => return Err(error.into()),
            Err(Broken::Silent(silent)) => silent,
        };
        let now = office.desk().store().steps()?.len();
        silent = if now > known { 1 } else { silent + 1 };
        known = now;
        if silent == SILENT {
            return Err(SearchError::Silent(why));
        }
        tracing::warn!("the optimiser starts again: {why}");
    }
}

/// The end of a conversation with an optimiser.
enum Broken {
    Store(StoreError),
    Silent(Silent),
}

impl From<StoreError> for Broken {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Silent> for Broken {
    fn from(silent: Silent) -> Self {
        Self::Silent(silent)
    }
}

/// Starts an optimiser, tells it the history, and goes on until all points are chosen.
async fn converse(office: &Office, quest: &Quest) -> Result<(), Broken> {
    let Quest { campaign, plan, python, log } = quest;
    let space = Space::new(campaign);
    let mut asker = Asker::start(python, log, campaign, plan, &space).await?;
    let mut lessons = Lessons::new(campaign);
    let mut chosen = 0;
    for number in 0.. {
        let recorded = office.desk().store().batch(number)?;
        let size = if number == 0 { plan.first } else { plan.batch }.min(plan.points.saturating_sub(chosen));
        let size = recorded.as_ref().map_or(size, |batch| batch.coordinates.len() as u64);
        if size == 0 {
            return Ok(());
        }
        let answer = asker.ask(size).await?;
        let batch = match recorded {
            Some(batch) => {
                if batch.coordinates != answer {
                    tracing::warn!("batch {number}: the optimiser would choose other points now; those of before stay");
                }
                batch
            }
            None if answer.is_empty() => return Ok(office.desk().store().exhaust()?),
            None => choose(office, &space, answer, size, &asker)?,
        };
        chosen += batch.coordinates.len() as u64;
        let scores = if let Some(scores) = batch.scores {
            lessons.take(&scores);
            scores
        } else {
            ended(office, &batch).await?;
            let scores = lessons.complete(scores(office, campaign, &batch)?, plan.failed);
            lessons.take(&scores);
            office.desk().store().learn(number, &scores, lessons.least)?;
            scores
        };
        let volume = asker.tell(&batch.coordinates, &scores).await?;
        office.desk().store().measure(number, volume)?;
        office.progress.notify_one();
    }
    Ok(())
}

/// Records points that the optimiser chose, and gives them out.
fn choose(office: &Office, space: &Space, answer: Vec<Vec<f64>>, most: u64, asker: &Asker) -> Result<Batch, Broken> {
    if answer.len() as u64 > most {
        return Err(asker.silent(&format!("it chose {} points instead of {most}", answer.len())).into());
    }
    let mut points = Vec::with_capacity(answer.len());
    for coordinates in answer {
        let Some(values) = space.values(&coordinates) else {
            return Err(asker.silent(&format!("it chose {coordinates:?}, which is no point")).into());
        };
        points.push((coordinates, values));
    }
    let batch = office.desk().store().choose(&points)?;
    office.changed.notify_waiters();
    office.progress.notify_one();
    Ok(batch)
}

/// Waits until all points of a batch have a result or have failed.
async fn ended(office: &Office, batch: &Batch) -> Result<(), StoreError> {
    loop {
        let changed = office.changed.notified();
        if office.desk().store().pending(&batch.points)? == 0 {
            return Ok(());
        }
        changed.await;
    }
}

/// Scores of a batch; `None` for points that failed, or whose results are no numbers.
fn scores(office: &Office, campaign: &Campaign, batch: &Batch) -> Result<Vec<Option<Score>>, StoreError> {
    let mut desk = office.desk();
    let store = desk.store();
    let row = |point| Ok(store.result(point)?.and_then(|row| score(campaign, &row.record.values)));
    batch.points.clone().map(row).collect()
}

/// The scores so far, as far as further ones depend on them.
#[derive(Debug)]
struct Lessons {
    /// The worst score by each objective, and the greatest excess of each constraint.
    worst: Score,
    /// The least score within all constraints, where there is one objective.
    least: Option<f64>,
}

impl Lessons {
    fn new(campaign: &Campaign) -> Self {
        let nothing = |count| vec![f64::NEG_INFINITY; count];
        let (objectives, excess) = (count(&campaign.objectives), campaign.constraints.len());
        Self { worst: Score { objectives: nothing(objectives), excess: nothing(excess) }, least: None }
    }

    /// Gives points that failed a score: `failed` for each objective, or the worst so far, this batch included.
    fn complete(&mut self, scores: Vec<Option<Score>>, failed: Option<f64>) -> Vec<Learnt> {
        for score in scores.iter().flatten() {
            self.worsen(score);
        }
        let or = |known: f64, other| if known.is_finite() { known } else { other };
        let bad = Score {
            objectives: self.worst.objectives.iter().map(|worst| failed.unwrap_or(or(*worst, WORST))).collect(),
            excess: self.worst.excess.iter().map(|excess| or(*excess, 1.0).max(0.0)).collect(),
        };
        let learnt = |score: Option<Score>| match score {
            Some(score) => Learnt { score, failed: false },
            None => Learnt { score: bad.clone(), failed: true },
        };
        scores.into_iter().map(learnt).collect()
    }

    /// Takes the scores of a batch in.
    fn take(&mut self, scores: &[Learnt]) {
        for Learnt { score, .. } in scores.iter().filter(|learnt| !learnt.failed) {
            self.worsen(score);
            if let ([objective], true) = (&score.objectives[..], score.is_feasible()) {
                self.least = Some(self.least.map_or(*objective, |least| least.min(*objective)));
            }
        }
    }

    fn worsen(&mut self, score: &Score) {
        for (worst, one) in self.worst.objectives.iter_mut().zip(&score.objectives) {
            *worst = worst.max(*one);
        }
        for (worst, one) in self.worst.excess.iter_mut().zip(&score.excess) {
            *worst = worst.max(*one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(objective: f64) -> Score {
        Score { objectives: vec![objective], excess: vec![-1.0] }
    }

    #[test]
    fn points_that_failed_count_as_the_worst() {
        let text = "run: 'true'\noutputs: {a: '(a)', b: '(b)'}\nobjectives: {a: minimize}\nconstraints: {b: {max: 1}}";
        let campaign = slipway_campaign::parse("x.yaml", text, std::path::Path::new("/")).unwrap();
        let mut lessons = Lessons::new(&campaign);
        let of = |learnt: &[Learnt]| learnt.iter().map(|one| one.score.objectives[0]).collect::<Vec<_>>();
        assert_eq!(of(&lessons.complete(vec![None], None)), [WORST]);
        let learnt = lessons.complete(vec![None, Some(score(3.0)), Some(score(1.0))], None);
        assert_eq!(of(&learnt), [3.0, 3.0, 1.0]);
        lessons.take(&learnt);
        assert_eq!(lessons.least, Some(1.0));
        let learnt = lessons.complete(vec![Some(score(2.0)), None], None);
        assert_eq!((of(&learnt), learnt[1].failed), (vec![2.0, 3.0], true));
        assert_eq!(of(&lessons.complete(vec![None], Some(9.0))), [9.0]);
    }
}
