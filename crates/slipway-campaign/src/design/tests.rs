//! All designs, as a campaign has them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use proptest::prelude::*;
use slipway_document::units::{Cores, Seconds};

use super::*;
use crate::model::{Attempts, Keep, Run, Workers};

fn campaign(design: Design, variables: &[Distribution]) -> Campaign {
    let named = |(number, distribution): (usize, &Distribution)| Variable {
        name: format!("x{number}"),
        distribution: distribution.clone(),
    };
    Campaign {
        name: "c".into(),
        seed: 7,
        inputs: Vec::new(),
        variables: variables.iter().enumerate().map(named).collect(),
        design,
        baseline: None,
        run: Run { command: Vec::new(), env: BTreeMap::default(), engine: None },
        outputs: Vec::new(),
        objectives: Vec::new(),
        constraints: Vec::new(),
        attempts: Attempts { most: 1, timeout: None, pause: Seconds(0.0) },
        workers: Workers {
            place: crate::model::Place::Here,
            most: None,
            cpus: Cores(1.0),
            memory: None,
            image: "host".into(),
            network: false,
            idle: Seconds(0.0),
        },
        storage: crate::model::Storage::default(),
        keep: Keep::All,
    }
}

fn variables() -> Vec<Distribution> {
    vec![
        Distribution::Uniform { low: -1.0, high: 1.0 },
        Distribution::Fixed(Value::Text("same".into())),
        Distribution::Integer { low: 1, high: 3 },
        Distribution::Normal { mean: 0.0, deviation: 1.0, low: f64::NEG_INFINITY, high: f64::INFINITY },
        Distribution::Choices(vec![(Value::Bool(true), 1.0), (Value::Bool(false), 1.0)]),
    ]
}

/// Each design, with its number of points for [`variables`], of which four vary.
fn designs() -> Vec<(Design, u64)> {
    vec![
        (Design::Grid { levels: 5 }, 5 * 3 * 5 * 2),
        (Design::Random { points: 100 }, 100),
        (Design::Lhs { blocks: vec![100], maximin: false }, 100),
        (Design::Lhs { blocks: vec![100, 20], maximin: true }, 120),
        (Design::Sobol { points: 64 }, 64),
        (Design::Halton { points: 100 }, 100),
        (Design::Morris { trajectories: 10, levels: 4 }, 50),
        (Design::Saltelli { samples: 8, second_order: false }, 8 * 6),
        (Design::Saltelli { samples: 8, second_order: true }, 8 * 10),
        (Design::Fast { samples: 65, harmonics: 4 }, 4 * 65),
        (Design::Oat { levels: 5 }, 1 + 5 + 3 + 5 + 2),
        (Design::Repeat { points: 10 }, 10),
    ]
}

fn plan(design: Design) -> Plan {
    Plan::new(&campaign(design, &variables()), None).expect("a design that fits")
}

fn points(plan: &Plan) -> Vec<Vec<Value>> {
    (0..plan.len()).map(|index| plan.point(index)).collect()
}

#[test]
fn each_design_has_its_points_with_finite_values_in_order() {
    for (design, count) in designs() {
        let plan = plan(design.clone());
        assert_eq!(plan.len(), count, "{design:?}");
        for point in points(&plan) {
            assert!((-1.0..=1.0).contains(&point[0].number().expect("a number")), "{design:?}");
            assert_eq!(point[1], Value::Text("same".into()));
            assert!(matches!(point[2], Value::Integer(1..=3)));
            assert!(point[3].number().expect("a number").abs() < 9.0);
            assert!(matches!(point[4], Value::Bool(_)));
        }
    }
}

#[test]
fn an_extension_keeps_the_points_that_there_were() {
    for (design, _) in designs() {
        let Some(size) = design.size().filter(|_| !matches!(design, Design::Fast { .. })) else {
            assert_eq!(design.extended(1000), Err(PlanError::Closed));
            continue;
        };
        let before = plan(design.clone());
        let after = plan(design.extended(size + 37).expect("it has an extension"));
        assert!(after.len() > before.len());
        for index in 0..before.len() {
            assert_eq!(before.point(index), after.point(index), "{design:?}");
            assert_eq!(before.seed(index), after.seed(index));
        }
        assert_eq!(design.extended(size), Ok(design.clone()));
        assert_eq!(design.extended(size - 1), Err(PlanError::Smaller { before: size, size: size - 1 }));
    }
}

/// A point far into a large design is found as fast as the first: no test would end otherwise.
#[test]
fn the_last_of_many_points_is_found_at_once() {
    let billion = 1 << 30;
    let large = [
        Design::Grid { levels: 1 << 15 },
        Design::Random { points: billion },
        Design::Lhs { blocks: vec![billion, billion], maximin: false },
        Design::Sobol { points: billion },
        Design::Halton { points: billion },
        Design::Morris { trajectories: billion, levels: 4 },
        Design::Saltelli { samples: billion, second_order: true },
        Design::Fast { samples: billion, harmonics: 4 },
        Design::Repeat { points: billion },
    ];
    for design in large {
        let plan = plan(design);
        assert!(plan.len() >= billion);
        assert_eq!(plan.point(plan.len() - 1).len(), 5);
    }
}

#[test]
fn a_grid_counts_as_numbers_do_and_one_at_a_time_moves_one() {
    let grid = points(&plan(Design::Grid { levels: 2 }));
    let text = |point: &[Value]| point.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!(text(&grid[0]), "-0.5 same 1 -0.6744897501960817 true");
    assert_eq!(text(&grid[1]), "-0.5 same 1 -0.6744897501960817 false");
    assert_eq!(text(&grid[23]), "0.5 same 3 0.6744897501960817 false");
    let oat = points(&plan(Design::Oat { levels: 2 }));
    assert_eq!(text(&oat[0]), "0 same 2 0 false");
    assert_eq!(text(&oat[1]), "-0.5 same 2 0 false");
    assert_eq!(text(&oat[3]), "0 same 1 0 false");
    assert_eq!(text(&oat[8]), "0 same 2 0 true");
}

#[test]
fn a_list_gives_its_rows_in_the_variables_order() {
    let list = Design::List { source: PathBuf::from("points.csv") };
    let of = |columns: &[&str], rows: Vec<Vec<Value>>| {
        let rows = Rows { columns: columns.iter().map(ToString::to_string).collect(), rows };
        Plan::new(&campaign(list.clone(), &variables()[..3]), Some(rows))
    };
    let row = || vec![Value::Text("a".into()), Value::Integer(2), Value::Number(0.5)];
    let plan = of(&["remark", "x2", "x0"], vec![row(), row()]).expect("columns for all");
    assert_eq!((plan.len(), plan.coordinates(1)), (2, None));
    assert_eq!(plan.point(1), [Value::Number(0.5), Value::Text("same".into()), Value::Integer(2)]);
    assert_eq!(of(&["remark", "x0", "y"], vec![row()]).err(), Some(PlanError::NoColumn("x2".into())));
    let short = Some(PlanError::RowLength { row: 2, values: 1, columns: 3 });
    assert_eq!(of(&["remark", "x2", "x0"], vec![row(), vec![Value::Integer(1)]]).err(), short);
    assert_eq!(Plan::new(&campaign(list.clone(), &[]), None).err(), Some(PlanError::NoRows));
}

#[test]
fn a_design_that_does_not_fit_is_refused() {
    let refused =
        |design, variables: &[Distribution]| Plan::new(&campaign(design, variables), None).expect_err("wrong");
    let all = variables();
    let wide = vec![Distribution::Integer { low: i64::MIN, high: i64::MAX }; 2];
    let many = vec![Distribution::Uniform { low: 0.0, high: 1.0 }; 501];
    assert_eq!(refused(Design::Grid { levels: 2 }, &wide), PlanError::TooMany);
    assert_eq!(refused(Design::Oat { levels: 2 }, &wide), PlanError::TooMany);
    let too_long = PlanError::Sequence { asked: 1 << 33, most: 1 << 32 };
    assert_eq!(refused(Design::Sobol { points: 1 << 33 }, &all), too_long);
    assert_eq!(refused(Design::Halton { points: 1 << 33 }, &all), too_long);
    assert_eq!(refused(Design::Morris { trajectories: u64::MAX, levels: 4 }, &all), PlanError::TooMany);
    assert_eq!(refused(Design::Morris { trajectories: 4, levels: 3 }, &all), PlanError::Levels(3));
    assert_eq!(refused(Design::Morris { trajectories: 4, levels: 4 }, &all[1..2]), PlanError::NothingVaries);
    let saltelli = Design::Saltelli { samples: 8, second_order: false };
    assert_eq!(refused(saltelli, &many), PlanError::Dimensions { dimensions: 1002, most: 1000 });
    let curve = PlanError::Curve { samples: 64, harmonics: 4, least: 65 };
    assert_eq!(refused(Design::Fast { samples: 64, harmonics: 4 }, &all), curve);
    let lhs = Design::Lhs { blocks: vec![2001], maximin: true };
    assert_eq!(refused(lhs, &all), PlanError::Maximin { points: 2001, most: 2000 });
}

proptest! {
    #[test]
    fn seeds_are_small_and_differ(one in 0_u64..1 << 31, other in 0_u64..1 << 31) {
        let plan = plan(Design::Repeat { points: 1 });
        prop_assert!(plan.seed(one) < 1 << 31);
        prop_assert_eq!(plan.seed(one) == plan.seed(other), one == other);
    }
}

/// A digest (FNV-1a) of every design's digits. Where it changes, campaigns that exist would get other points.
#[test]
fn points_stay_as_they_are() {
    let points = designs().into_iter().flat_map(|(design, _)| points(&plan(design))).flatten();
    let digest = points.fold(0xcbf2_9ce4_8422_2325_u64, |digest, value| {
        let text = format!("{value} ");
        text.bytes().fold(digest, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    });
    assert_eq!(digest, 5_317_293_253_160_120_068);
}

#[test]
fn a_baseline_is_point_0_and_moves_the_others_by_one() {
    for (design, count) in designs() {
        let alone = plan(design.clone());
        let baseline = vec![Value::Integer(5); 5];
        let with = Campaign { baseline: Some(baseline.clone()), ..campaign(design.clone(), &variables()) };
        let with = Plan::new(&with, None).expect("a design that fits");
        assert_eq!((with.len(), with.lead(), alone.lead()), (count + 1, 1, 0), "{design:?}");
        assert_eq!((with.point(0), with.coordinates(0)), (baseline, None), "{design:?}");
        for index in 0..count {
            assert_eq!(with.point(index + 1), alone.point(index), "{design:?}");
            assert_eq!(with.coordinates(index + 1), alone.coordinates(index), "{design:?}");
        }
    }
}

#[test]
fn ends_have_the_least_and_the_greatest_value_of_each_variable() {
    let method = crate::model::Method::Nsga2;
    let searched = Design::Search(crate::model::Search { method, first: 4, batch: 4, points: 8, failed: None });
    for (design, known) in [(Design::Random { points: 100 }, true), (searched, false)] {
        let texts = Distribution::Choices(["a", "b", "c"].map(|text| (Value::Text(text.into()), 1.0)).to_vec());
        let distributions = [variables(), vec![texts]].concat();
        let plan = Plan::new(&campaign(design, &distributions), None).expect("a plan");
        let ends = plan.ends();
        assert_eq!(ends.len(), 3, "as many rows as the variable with the most values has: {ends:?}");
        for (variable, distribution) in distributions.iter().enumerate() {
            let column = |rows: &[Vec<Value>]| {
                let mut numbers: Vec<f64> = rows.iter().filter_map(|row| row[variable].number()).collect();
                numbers.sort_by(f64::total_cmp);
                (numbers.first().copied(), numbers.last().copied())
            };
            if known {
                let points: Vec<_> = (0..plan.len()).map(|point| plan.point(point)).collect();
                assert_eq!(column(&ends), column(&points));
            } else if let Distribution::Uniform { low, high } = *distribution {
                assert_eq!(column(&ends), (Some(low), Some(high)));
            }
        }
    }
}
