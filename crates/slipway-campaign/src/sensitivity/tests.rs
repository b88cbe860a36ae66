//! Analyses of whole campaigns.

use std::path::Path;

use super::*;

const VARIABLES: &str = "{x: {uniform: [0, 1]}, same: 3, y: {integer: [0, 9]}, z: [red, green, blue]}";

fn campaign(design: &str) -> (Campaign, Plan) {
    let text = format!("campaign: c\nrun: x\nvariables: {VARIABLES}\ndesign: {design}\n");
    let campaign = crate::parse("c.yaml", &text, Path::new(".")).expect("a campaign");
    let plan = Plan::new(&campaign, None).expect("a plan");
    (campaign, plan)
}

/// Results of x + y, with no influence of z.
fn results(plan: &Plan) -> Vec<Option<f64>> {
    let sum = |point: Vec<Value>| Some(point[0].number()? + point[2].number()?);
    (0..plan.len()).map(|index| sum(plan.point(index))).collect()
}

#[test]
fn failed_points_drop_their_unit_and_are_counted() {
    for (design, unit) in [
        ("{morris: 20}", 4),
        ("{saltelli: {samples: 64, second_order: true}}", 8),
        ("{saltelli: {samples: 64, second_order: false}}", 5),
        ("{fast: 65}", 65),
        ("{random: 100}", 1),
    ] {
        let (campaign, plan) = campaign(design);
        let mut results = results(&plan);
        let all = analyse(&campaign, &plan, &results).expect("all points");
        assert_eq!((all.used, all.dropped), (plan.len(), 0), "{design}");
        results[3] = None;
        results[unit * 2 - 1] = Some(f64::NAN);
        let some = analyse(&campaign, &plan, &results).expect("enough points");
        assert_eq!((some.used, some.dropped), (plan.len() - 2 * unit as u64, 2 * unit as u64), "{design}");
        // A report that is made again from its text is the same.
        let text = serde_json::to_string(&some).expect("JSON");
        assert_eq!(serde_json::from_str::<Analysis>(&text).expect("an analysis"), some);
    }
}

#[test]
fn the_variable_that_matters_most_comes_out() {
    for (design, least) in [("{morris: 20}", 1.0), ("{saltelli: 256}", 0.8), ("{fast: 257}", 0.8), ("{lhs: 300}", 0.8)]
    {
        let (campaign, plan) = campaign(design);
        let analysis = analyse(&campaign, &plan, &results(&plan)).expect("all points");
        let share: Vec<(String, f64)> = match analysis.measures {
            Measures::Morris(of) => of.into_iter().map(|named| (named.name, named.of.mu_star.value)).collect(),
            Measures::Variance { variables: of, .. } => {
                of.into_iter().map(|named| (named.name, named.of.total.value)).collect()
            }
            Measures::Fast(of) => of.into_iter().map(|named| (named.name, named.of.total)).collect(),
            Measures::Sample { variables: of, r_squared } => {
                assert!((r_squared.expect("independent variables") - 1.0).abs() < 1e-9);
                of.into_iter().map(|named| (named.name, named.of.first.value)).collect()
            }
        };
        let [(x, of_x), (y, of_y), (z, of_z)] = &share[..] else { panic!("three vary: {share:?}") };
        assert_eq!([x, y, z], ["x", "y", "z"]);
        assert!(*of_y > least && of_y > of_x && of_x + 0.05 > *of_z && of_z.abs() < 0.1, "{design}: {share:?}");
    }
}

#[test]
fn results_that_say_nothing_are_refused() {
    let refused = |design, results: &dyn Fn(&Plan) -> Vec<Option<f64>>| {
        let (campaign, plan) = campaign(design);
        analyse(&campaign, &plan, &results(&plan)).expect_err("nothing to say")
    };
    assert_eq!(refused("{repeat: 10}", &results), SensitivityError::Design);
    let same = |plan: &Plan| (0..plan.len()).map(|_| Some(2.0)).collect();
    assert_eq!(refused("{saltelli: 8}", &same), SensitivityError::Constant);
    assert_eq!(refused("{fast: 65}", &same), SensitivityError::Constant);
    assert_eq!(refused("{lhs: 100}", &same), SensitivityError::Constant);
    let none = |_: &Plan| vec![None; 4];
    let few = |needed, unit| SensitivityError::Few { there: 0, needed, unit };
    assert_eq!(refused("{morris: 20}", &none), few(2, "trajectories"));
    assert_eq!(refused("{saltelli: 8}", &none), few(2, "base samples"));
    assert_eq!(refused("{fast: 65}", &none), few(1, "curves"));
    assert_eq!(refused("{lhs: 100}", &none), few(41, "points"));
}

#[test]
fn the_baseline_is_no_part_of_the_sample() {
    for design in ["{morris: 20}", "{saltelli: 64}", "{fast: 65}", "{random: 100}"] {
        let (campaign, plan) = campaign(design);
        let alone = analyse(&campaign, &plan, &results(&plan)).expect("all points");
        let text = format!("{{campaign: c, run: x, variables: {VARIABLES}, design: {design}, baseline: {{x: 1000}}}}");
        let campaign = crate::parse("c.yaml", &text, Path::new(".")).expect("a campaign");
        let plan = Plan::new(&campaign, None).expect("a plan");
        assert_eq!(analyse(&campaign, &plan, &results(&plan)).expect("all points"), alone, "{design}");
    }
}
