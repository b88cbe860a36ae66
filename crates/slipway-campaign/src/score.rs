//! Points compared by the campaign's objectives.

use serde::{Deserialize, Serialize};

use crate::model::{Campaign, Goal, Objective};
use crate::value::Value;

/// A point by its objectives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// A number for each objective or group of objectives; less is better.
    pub objectives: Vec<f64>,
    /// For each constraint the distance from its limits; 0 and less is within.
    pub excess: Vec<f64>,
}

impl Score {
    /// Whether the point keeps all constraints.
    #[must_use]
    pub fn is_feasible(&self) -> bool {
        self.excess.iter().all(|excess| *excess <= 0.0)
    }

    /// Whether this is nowhere worse than another, and somewhere better. All is better than to break a constraint.
    #[must_use]
    pub fn dominates(&self, other: &Self) -> bool {
        if !(self.is_feasible() && other.is_feasible()) {
            let broken = |score: &Self| score.excess.iter().map(|excess| excess.max(0.0)).sum::<f64>();
            return broken(self) < broken(other);
        }
        let mut pairs = self.objectives.iter().zip(&other.objectives);
        pairs.clone().all(|(one, other)| one <= other) && pairs.any(|(one, other)| one < other)
    }
}

/// Number of objectives, where a group counts as one.
#[must_use]
pub fn count(objectives: &[Objective]) -> usize {
    groups(objectives).len()
}

/// Names of the objectives: those of the outputs, and of the groups.
#[must_use]
pub fn names(campaign: &Campaign) -> Vec<String> {
    let groups = groups(&campaign.objectives).into_iter();
    let name = |group: Vec<&Objective>| {
        group[0].group.clone().unwrap_or_else(|| campaign.outputs[group[0].output].name.clone())
    };
    groups.map(name).collect()
}

/// The score of a point with these results, one for each output. `None` where a result that counts is no number.
#[must_use]
pub fn score(campaign: &Campaign, results: &[Option<Value>]) -> Option<Score> {
    let number = |output: usize| {
        let number = results.get(output)?.as_ref()?.number()?;
        number.is_finite().then_some(number)
    };
    let mut objectives = Vec::new();
    for group in groups(&campaign.objectives) {
        let (mut sum, mut squares) = (0.0, None);
        for objective in &group {
            let number = number(objective.output)?;
            match objective.goal {
                Goal::Minimize => sum += number / objective.scale,
                Goal::Maximize => sum -= number / objective.scale,
                Goal::Target(target) => {
                    *squares.get_or_insert(0.0) += ((number - target) / objective.scale).powi(2);
                }
            }
        }
        let value: f64 = squares.map_or(sum, f64::sqrt);
        objectives.push(Some(value).filter(|value| value.is_finite())?);
    }
    let mut excess = Vec::new();
    for constraint in &campaign.constraints {
        let number = number(constraint.output)?;
        excess.push((constraint.min - number).max(number - constraint.max));
    }
    Some(Score { objectives, excess })
}

/// Indices of the scores that no other dominates, in order: the Pareto front, or the best ones by one objective.
#[must_use]
pub fn front(scores: &[Score]) -> Vec<usize> {
    // A point is dominated by one before it in this order, if by any: each compares only with the front so far.
    let mut order: Vec<usize> = (0..scores.len()).collect();
    let broken = |score: &Score| score.excess.iter().map(|excess| excess.max(0.0)).sum::<f64>();
    order.sort_by(|&one, &other| {
        let (one, other) = (&scores[one], &scores[other]);
        let by_objectives = || {
            let mut pairs = one.objectives.iter().zip(&other.objectives).map(|(one, other)| one.total_cmp(other));
            pairs.find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
        };
        broken(one).total_cmp(&broken(other)).then_with(by_objectives)
    });
    let mut front: Vec<usize> = Vec::new();
    for index in order {
        if !front.iter().any(|&better| scores[better].dominates(&scores[index])) {
            front.push(index);
        }
    }
    front.sort_unstable();
    front
}

/// Objectives by their groups, in the order of the first of each.
fn groups(objectives: &[Objective]) -> Vec<Vec<&Objective>> {
    let mut groups: Vec<Vec<&Objective>> = Vec::new();
    for objective in objectives {
        let same = |group: &&mut Vec<&Objective>| objective.group.is_some() && group[0].group == objective.group;
        match groups.iter_mut().find(same) {
            Some(group) => group.push(objective),
            None => groups.push(vec![objective]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn score_of((objectives, excess): ([i8; 2], i8)) -> Score {
        Score { objectives: objectives.map(f64::from).to_vec(), excess: vec![f64::from(excess)] }
    }

    proptest! {
        #[test]
        fn the_front_is_what_nothing_dominates(points in prop::collection::vec(([-4..4_i8, -4..4_i8], -2..2_i8), 0..40)) {
            let scores: Vec<Score> = points.into_iter().map(score_of).collect();
            let slow: Vec<usize> = (0..scores.len())
                .filter(|&index| !scores.iter().any(|other| other.dominates(&scores[index])))
                .collect();
            prop_assert_eq!(front(&scores), slow);
        }
    }

    #[test]
    fn groups_and_targets_are_joined() {
        let text = "
run: 'true'
outputs: {a: '(a)', b: '(b)', c: '(c)', d: '(d)'}
objectives: {a: {target: 3, group: fit}, c: {goal: maximize, scale: 2}, b: {target: 4, scale: 2, group: fit}}
constraints: {d: {min: 0, max: 9}}
";
        let campaign = crate::parse("x.yaml", text, std::path::Path::new("/")).unwrap();
        assert_eq!(names(&campaign), ["fit", "c"]);
        let results = |d| [0.0, 12.0, 6.0, d].map(|number| Some(Value::Number(number)));
        let score = |d| score(&campaign, &results(d));
        assert_eq!(score(11.0), Some(Score { objectives: vec![5.0, -3.0], excess: vec![2.0] }));
        assert!(score(9.0).unwrap().is_feasible());
        assert_eq!(score(f64::NAN), None);
    }
}
