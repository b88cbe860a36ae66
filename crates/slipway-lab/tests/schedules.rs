//! What holds for every schedule, found by random scenarios.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use slipway_lab::model::Lab;
use slipway_lab::parse_scenario;
use slipway_lab::plan::PlanError;
use slipway_lab::scenario::{Action, Event, LinkAction, Order, Scenario, Schedule, Traces};

/// `before` nodes of one group, then `n` of another: what stands before moves the others' indices.
fn lab(before: usize, n: usize) -> Lab {
    let text = format!("nodes: {{a: {{count: {before}}}, n: {{count: {n}}}, z: {{}}}}");
    slipway_lab::parse("lab.yaml", &text, Path::new("/")).unwrap_or_else(|errors| panic!("{}", errors.plain()))
}

fn scenario(file: &Value, lab: &Lab) -> Scenario {
    parse_scenario("random.yaml", &file.to_string(), Path::new("/"), lab)
        .unwrap_or_else(|errors| panic!("{file:#}\n{}", errors.plain()))
}

fn plan(file: &Value, lab: &Lab, seed: u64) -> Schedule {
    scenario(file, lab).plan(lab, Some(seed), &Traces::new()).unwrap()
}

/// A duration from 10 ms to some seconds, fixed or drawn.
fn amount() -> impl Strategy<Value = Value> {
    let time = || (10u32..5000).prop_map(|ms| format!("{ms}ms"));
    prop_oneof![
        time().prop_map(Value::from),
        (10u32..2000, 0u32..3000)
            .prop_map(|(least, more)| json!({"uniform": [format!("{least}ms"), format!("{}ms", least + more)]})),
        (100u32..5000).prop_map(|ms| json!({"exponential": {"mean": format!("{ms}ms")}})),
        (5u32..30, time())
            .prop_map(|(shape, scale)| { json!({"weibull": {"shape": f64::from(shape) / 10.0, "scale": scale}}) }),
        (time(), 1u32..15)
            .prop_map(|(median, sigma)| { json!({"lognormal": {"median": median, "sigma": f64::from(sigma) / 10.0}}) }),
        (5u32..30, time())
            .prop_map(|(shape, least)| { json!({"pareto": {"shape": f64::from(shape) / 10.0, "minimum": least}}) }),
        (500u32..3000, 0u32..1000).prop_map(|(mean, deviation)| {
            json!({"normal": {"mean": format!("{mean}ms"), "deviation": format!("{deviation}ms")}})
        }),
    ]
}

/// Somebody: always the same kinds of nodes, so that a lab may have more of them.
fn action() -> impl Strategy<Value = Value> {
    let delay = prop_oneof![Just(json!("20ms")), amount()];
    prop_oneof![
        Just(json!({"kill": "n*"})),
        Just(json!({"stop": "n*"})),
        Just(json!({"freeze": "n*"})),
        Just(json!({"cut": "n*"})),
        Just(json!({"partition": ["n", "z"]})),
        delay.prop_map(|delay| json!({"set": {"delay": delay}, "nodes": "n*"})),
        amount().prop_map(|delay| json!({"set": {"delay": delay, "loss": "1%"}, "between": ["n", "z"]})),
        Just(json!({"set": {"cpu": {"uniform": ["10%", "90%"]}}, "nodes": "n*"})),
    ]
}

fn with_hold(mut event: Value, hold: Option<Value>) -> Value {
    if let Some(hold) = hold {
        event["for"] = hold;
    }
    event
}

fn event() -> impl Strategy<Value = Value> {
    let once = (action(), amount(), prop::option::of(amount())).prop_map(|(mut event, at, hold)| {
        event["at"] = at;
        with_hold(event, hold)
    });
    let again =
        (action(), amount(), prop::option::of(amount()), 1u32..20).prop_map(|(mut event, every, hold, times)| {
            event["every"] = every;
            event["times"] = times.into();
            with_hold(event, hold)
        });
    let goes = (amount(), amount(), any::<bool>()).prop_map(|(up, down, flap)| {
        if flap {
            json!({"flap": "n*", "up": up, "down": down, "times": 20})
        } else {
            json!({"churn": "n*", "availability": up, "unavailability": down, "times": 20})
        }
    });
    prop_oneof![once, again, goes]
}

/// Events with a name each.
fn file() -> impl Strategy<Value = Value> {
    vec(event(), 1..8).prop_map(|mut events| {
        for (i, event) in events.iter_mut().enumerate() {
            event["name"] = format!("event {i}").into();
        }
        json!({"length": "30s", "events": events})
    })
}

/// What happens when, with names for indices and without the numbers that are others' places.
fn told(schedule: &Schedule, lab: &Lab, only: impl Fn(&Event) -> bool) -> Vec<(u64, usize, String)> {
    let words = |event: &Event| match &event.action {
        Action::Restore { event } => format!("restore {}", schedule.events[*event].action.words(lab)),
        action => action.words(lab),
    };
    let events = schedule.events.iter().filter(|event| only(event));
    events.map(|event| (event.due.0, event.entry, words(event))).collect()
}

/// What happens to one node alone.
fn to_node(schedule: &Schedule, lab: &Lab, name: &str) -> Vec<(u64, usize, String)> {
    let (node, _) = lab.node(name).unwrap();
    let about = |action: &Action| match action {
        Action::Order(Order::Links(
            LinkAction::Link { interfaces, .. } | LinkAction::Cut { interfaces } | LinkAction::Heal { interfaces },
        )) => {
            matches!(interfaces.as_slice(), [(only, _)] if *only == node)
        }
        Action::Order(order) => order.nodes() == [node],
        _ => false,
    };
    told(schedule, lab, |event| match &event.action {
        Action::Restore { event } => about(&schedule.events[*event].action),
        action => about(action),
    })
}

fn is_set(action: &Action) -> bool {
    let Action::Order(order) = action else { return false };
    matches!(order, Order::Links(LinkAction::Link { .. } | LinkAction::Pair(_)) | Order::Node { .. })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_schedule_is_in_order_and_within_its_length(file in file(), seed: u64) {
        let lab = lab(1, 4);
        let schedule = plan(&file, &lab, seed);
        for (number, event) in schedule.events.iter().enumerate() {
            prop_assert_eq!(event.number, number);
            prop_assert!(event.due <= schedule.length);
            if let Action::Restore { event: restored } = event.action {
                let begun = &schedule.events[restored];
                prop_assert!(restored < number && begun.due <= event.due && begun.entry == event.entry);
                prop_assert!(is_set(&begun.action));
            }
        }
        prop_assert!(schedule.events.windows(2).all(|pair| pair[0].due <= pair[1].due));
    }

    #[test]
    fn what_lasts_for_a_time_is_taken_back(file in file(), seed: u64) {
        let lab = lab(1, 4);
        let schedule = plan(&file, &lab, seed);
        let restored: BTreeSet<usize> = schedule.events.iter().filter_map(|event| match event.action {
            Action::Restore { event } => Some(event),
            _ => None,
        }).collect();
        for (i, written) in file["events"].as_array().unwrap().iter().enumerate() {
            let lasts = written.get("for").is_some() || written.get("flap").is_some() || written.get("churn").is_some();
            let of_entry: Vec<&Event> = schedule.events.iter().filter(|event| event.entry == i).collect();
            let count = |of: fn(&Order) -> bool| {
                of_entry.iter().filter(|event| matches!(&event.action, Action::Order(order) if of(order))).count()
            };
            let link = |of: fn(&LinkAction) -> bool| {
                let fits = |action: &Action| matches!(action, Action::Order(Order::Links(action)) if of(action));
                of_entry.iter().filter(|event| fits(&event.action)).count()
            };
            let pairs = [
                (count(|a| matches!(a, Order::Kill { .. })), count(|a| matches!(a, Order::Start { .. }))),
                (link(|a| matches!(a, LinkAction::Cut { .. })), link(|a| matches!(a, LinkAction::Heal { .. }))),
                (count(|a| matches!(a, Order::Freeze { .. })), count(|a| matches!(a, Order::Thaw { .. }))),
                (link(|a| matches!(a, LinkAction::Partition { .. })), link(|a| matches!(a, LinkAction::Join))),
            ];
            for (begun, ended) in pairs {
                prop_assert_eq!(ended, if lasts { begun } else { 0 }, "{}", written);
            }
            for event in of_entry {
                prop_assert_eq!(restored.contains(&event.number), is_set(&event.action) && lasts);
            }
        }
    }

    #[test]
    fn the_same_seed_is_the_same_schedule(file in file(), seed: u64) {
        let lab = lab(1, 4);
        let schedule = plan(&file, &lab, seed);
        prop_assert_eq!(&plan(&file, &lab, seed), &schedule);
        let written = serde_json::to_string(&scenario(&file, &lab)).unwrap();
        let saved: Scenario = serde_json::from_str(&written).unwrap();
        prop_assert_eq!(saved.plan(&lab, Some(seed), &Traces::new()).unwrap(), schedule);
    }

    /// More nodes, before and after, change nothing for the others.
    #[test]
    fn a_node_more_changes_no_others_draw(file in file(), seed: u64, before in 1usize..3, more in 1usize..3) {
        let (small, large) = (lab(1, 4), lab(before, 4 + more));
        let (of_small, of_large) = (plan(&file, &small, seed), plan(&file, &large, seed));
        // With one node alone, what is fixed is about all of them at once: those events are not its own.
        for name in ["n1", "n2", "n4"] {
            prop_assert_eq!(to_node(&of_small, &small, name), to_node(&of_large, &large, name));
        }
    }

    /// An event more, before the others, changes nothing for them either.
    #[test]
    fn an_event_more_changes_no_others_draw(file in file(), more in event(), seed: u64) {
        let lab = lab(1, 4);
        let mut longer = file.clone();
        longer["events"].as_array_mut().unwrap().insert(0, more);
        let before = told(&plan(&file, &lab, seed), &lab, |_| true);
        let after = told(&plan(&longer, &lab, seed), &lab, |event| event.entry > 0);
        prop_assert_eq!(before, after.into_iter().map(|(due, entry, words)| (due, entry - 1, words)).collect::<Vec<_>>());
    }

    /// One more to choose from takes at most one other's place.
    #[test]
    fn choices_stay(seed: u64, count in 1usize..4) {
        let file = json!({"events": [{"every": "1s", "times": 20, "kill": {"choose": count, "of": "n*"}}]});
        let (small, large) = (lab(1, 5), lab(1, 6));
        let chosen = |lab: &Lab| {
            let killed = |event: &Event| match &event.action {
                Action::Order(Order::Kill { nodes, .. }) => nodes.iter().map(|node| lab.nodes[*node].name.clone()).collect(),
                other => panic!("{other:?}"),
            };
            plan(&file, lab, seed).events.iter().map(killed).collect::<Vec<BTreeSet<String>>>()
        };
        for (few, many) in chosen(&small).iter().zip(chosen(&large)) {
            prop_assert_eq!(few.len(), count);
            prop_assert_eq!(many.len(), count);
            prop_assert!(few.difference(&many).count() <= usize::from(many.contains("n6")));
        }
    }
}

/// The text of every scenario under `scenarios/`.
fn written() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let files = ["right", "wrong"].into_iter().flat_map(|kind| std::fs::read_dir(folder.join(kind)).unwrap());
    let mut paths: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is written, the answer is a scenario that can be planned or refused, or errors that can be shown.
    #[test]
    fn a_scenario_with_some_edits_has_an_answer(
        file in prop::sample::select(written()),
        edits in vec((any::<prop::sample::Index>(), 0usize..3, "[ -~]{0,3}|\n|: |- |[{}]|0|none|always|n\\*|9999999999s"), 1..5),
    ) {
        let mut letters: Vec<char> = file.chars().collect();
        for (at, gone, more) in edits {
            let at = at.index(letters.len() + 1);
            letters.splice(at..(at + gone).min(letters.len()), more.chars());
        }
        let text: String = letters.into_iter().collect();
        let lab = lab(1, 4);
        match parse_scenario("random.yaml", &text, Path::new("/"), &lab) {
            Ok(scenario) => drop(scenario.plan(&lab, None, &Traces::new())),
            Err(errors) => {
                prop_assert!((1..=50).contains(&errors.errors().len()));
                for error in errors.errors() {
                    prop_assert!(!error.message.is_empty() && !error.help.is_empty(), "{}", errors.plain());
                }
            }
        }
    }
}

#[test]
fn every_node_draws_for_itself_unless_together() {
    let lab = lab(1, 4);
    let draw = |together: bool| {
        let file = json!({"events": [{"at": {"uniform": ["0s", "1h"]}, "kill": "n*", "together": together}]});
        plan(&file, &lab, 1).events.len()
    };
    assert_eq!((draw(false), draw(true)), (4, 1));
}

#[test]
fn seeds_hold_over_each_other() {
    let lab = slipway_lab::parse("lab.yaml", "seed: 3\nnodes: {n: }", Path::new("/")).unwrap();
    let seed = |text: &str, given| {
        let scenario = parse_scenario("s.yaml", text, Path::new("/"), &lab).unwrap();
        scenario.plan(&lab, given, &Traces::new()).unwrap().seed
    };
    assert_eq!(seed("events: []", None), 3);
    assert_eq!(seed("{seed: 4, events: []}", None), 4);
    assert_eq!(seed("{seed: 4, events: []}", Some(5)), 5);
}

#[test]
fn what_is_drawn_without_end_is_refused_by_its_name() {
    let lab = lab(1, 4);
    let refusal = |events: Value| {
        let file = json!({"length": "24h", "events": events});
        scenario(&file, &lab).plan(&lab, None, &Traces::new()).unwrap_err()
    };
    let often = json!({"name": "often", "every": {"exponential": {"mean": "1us"}}, "freeze": "n1"});
    assert_eq!(refusal(json!([{"at": "1s", "kill": "n1"}, often])), PlanError::TooMany { entry: "often".into() });
    // Who draws nothing plans nothing, and must end too.
    let nobody = json!({"every": {"uniform": ["0s", "1us"]}, "freeze": {"share": "1%", "of": "n*"}});
    assert_eq!(refusal(json!([nobody])), PlanError::TooMany { entry: "1".into() });
    let churn = json!({"churn": "n*", "availability": {"uniform": ["0s", "1us"]}, "unavailability": {"uniform": ["0s", "1us"]}});
    assert_eq!(refusal(json!([churn])), PlanError::TooMany { entry: "1".into() });
}

#[test]
fn many_events_for_many_nodes_are_refused_before_they_fill_memory() {
    let lab = lab(1, 9000);
    let file = json!({"events": [{"every": "1ms", "times": 900_000, "freeze": "n*"}]});
    let error = scenario(&file, &lab).plan(&lab, None, &Traces::new()).unwrap_err();
    assert_eq!(error, PlanError::TooMany { entry: "1".into() });
}

#[test]
fn traces_that_are_missing_or_wrong_are_named() {
    let lab = lab(1, 4);
    let text = "events: [{trace: {file: x.csv, format: csv, of: rate}, nodes: n1}]";
    let scenario = parse_scenario("s.yaml", text, Path::new("/traces"), &lab).unwrap();
    assert_eq!(scenario.files(), [Path::new("/traces/x.csv")]);
    let with = |text: &str| {
        let traces = Traces::from([("/traces/x.csv".into(), text.to_owned())]);
        scenario.plan(&lab, None, &traces).map(|schedule| schedule.events.len()).map_err(|error| error.to_string())
    };
    assert_eq!(with("time,rate\n0,1mbit\n1,2mbit\n"), Ok(2));
    let none = scenario.plan(&lab, None, &Traces::new()).unwrap_err().to_string();
    assert_eq!(none, "the text of /traces/x.csv is missing; read the files that the scenario names");
    assert_eq!(
        with("time,rate\n0,1mbit\n1,fast\n").unwrap_err(),
        "/traces/x.csv:3: rate: `fast` is not a plain decimal number with a unit; write `10mbit` or `1.5gbit` (units: bit, \
         kbit, mbit, gbit, tbit, bits per second)"
    );
    assert!(with("time,rate\n0,0bit\n").unwrap_err().starts_with("/traces/x.csv:2: no link sends at 0bit"));
}

#[test]
fn changes_of_links_are_written_like_other_actions() {
    for text in [
        r#"{"cut":{"interfaces":[[0,1]]}}"#,
        r#"{"link":{"interfaces":[[0,0]],"direction":"egress","change":{"set":{"delay":"20ms"},"clear":["loss"]}}}"#,
        r#"{"pair":{"from":[0],"to":[1,2],"network":null,"change":{"set":{"rate":"1mbit"}}}}"#,
        r#"{"partition":{"groups":[[0],[1,2]]}}"#,
        r#""join""#,
        r#"{"kill":{"nodes":[3],"how":{"graceful":{"grace":"5s"}}}}"#,
        r#"{"start":{"nodes":[3]}}"#,
    ] {
        let action: Action = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&action).unwrap(), text);
    }
}
