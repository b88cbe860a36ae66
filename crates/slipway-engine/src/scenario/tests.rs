//! The player on a platform that is only pretended, with a clock of its own.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use slipway_document::units::Seconds;
use slipway_lab::id::{List, NodeId};
use slipway_lab::model::Lab;
use slipway_lab::scenario::{Action, Direction, Due, Event, Kill, LinkAction, Order, Schedule};
use slipway_measure::play::{self, Change, Line};

use super::{Account, Act, ActError, Begun, Ends, Happening, Outcome, Part, Platform, Player};

const NODES: usize = 4;

/// What the world does beside the player.
#[derive(Debug, Clone)]
enum Chance {
    Dies(NodeId),
    Pauses,
    Resumes,
    Stops,
    JobEnds,
}

/// A platform that keeps account of what it was asked for.
#[derive(Debug, Default, Clone)]
struct Pretended {
    now: u64,
    changes: BTreeSet<usize>,
    programs: BTreeSet<usize>,
    frozen: BTreeSet<NodeId>,
    dead: BTreeSet<NodeId>,
    /// What ends when, and what comes of it.
    under_way: BTreeMap<(u64, usize), Pending>,
    chances: Vec<(u64, Chance)>,
    /// How long slow things take; the next is taken from the end.
    durations: Vec<u64>,
    /// Numbers of events that fail.
    failing: BTreeSet<usize>,
    /// Ended by SIGKILL, in a manner of speaking, at this time.
    killed_at: Option<u64>,
}

#[derive(Debug, Clone)]
enum Pending {
    Killed(Vec<NodeId>),
    Started(Vec<NodeId>),
}

fn pretended() -> ActError {
    Account("pretended".to_owned()).into()
}

const KILLED: &str = "killed";

impl Platform for Pretended {
    fn now(&self) -> u64 {
        self.now
    }

    fn wait(&mut self, until: Option<u64>) -> std::io::Result<Vec<Happening>> {
        let ends = self.under_way.keys().next().map(|(at, _)| *at);
        let chance = self.chances.first().map(|(at, _)| *at);
        let first = [until, ends, chance, self.killed_at].into_iter().flatten().min();
        let Some(first) = first else { panic!("the player waits for ever: {self:?}") };
        self.now = self.now.max(first);
        if self.killed_at.is_some_and(|at| self.now >= at) {
            return Err(std::io::Error::other(KILLED));
        }
        if ends.is_some_and(|at| at <= self.now) {
            let ((_, number), pending) = self.under_way.pop_first().expect("looked at");
            if self.failing.contains(&number) {
                return Ok(vec![Happening::Finished(number, Err(pretended()))]);
            }
            match pending {
                Pending::Killed(nodes) => self.end(&nodes),
                Pending::Started(nodes) => {
                    for node in nodes {
                        assert!(self.dead.remove(&node), "a node that runs is not started");
                    }
                }
            }
            return Ok(vec![Happening::Finished(number, Ok(()))]);
        }
        if chance.is_some_and(|at| at <= self.now) {
            let happening = match self.chances.remove(0).1 {
                Chance::Dies(node) if !self.dead.contains(&node) => {
                    self.end(&[node]);
                    Happening::NodeEnded(node, Change::Died)
                }
                Chance::Dies(_) => return Ok(Vec::new()),
                Chance::Pauses => Happening::Pause,
                Chance::Resumes => Happening::Resume,
                Chance::Stops => Happening::Stop("interrupted".to_owned()),
                Chance::JobEnds => Happening::JobEnded,
            };
            return Ok(vec![happening]);
        }
        Ok(Vec::new())
    }

    fn begin(&mut self, number: usize, act: &Act<'_>) -> Begun {
        self.now += 1;
        let slow = |order: &Order| matches!(order, Order::Kill { .. } | Order::Start { .. });
        let quick = !matches!(act, Act::Order(order) if slow(order));
        if quick && self.failing.contains(&number) {
            return Begun::Failed(pretended());
        }
        let order = match act {
            Act::Order(order) => &**order,
            Act::Undo(change) => return done(self.changes.remove(change)),
            Act::Run(..) => return done(self.programs.insert(number)),
            Act::EndPrograms(run) => return done(self.programs.remove(run)),
        };
        let pending = match order {
            Order::Links(_) | Order::Node { .. } => return done(self.changes.insert(number)),
            Order::Freeze { nodes } => {
                self.frozen.extend(nodes);
                return Begun::Done;
            }
            Order::Thaw { nodes } => {
                self.frozen.retain(|node| !nodes.contains(node));
                return Begun::Done;
            }
            Order::Kill { nodes, how: Kill::Hard | Kill::Soft } if !self.failing.contains(&number) => {
                self.end(nodes);
                return Begun::Done;
            }
            Order::Kill { nodes, .. } => Pending::Killed(nodes.clone()),
            Order::Start { nodes } => Pending::Started(nodes.clone()),
        };
        let duration = self.durations.pop().unwrap_or(1);
        self.under_way.insert((self.now + duration, number), pending);
        Begun::UnderWay
    }

    fn forget(&mut self, changes: &[usize]) {
        self.changes.retain(|change| !changes.contains(change));
    }

    fn alarms(&mut self) -> Vec<String> {
        Vec::new()
    }
}

impl Pretended {
    fn end(&mut self, nodes: &[NodeId]) {
        self.dead.extend(nodes);
        self.frozen.retain(|node| !nodes.contains(node));
    }

    fn alive(&self) -> List<NodeId, bool> {
        (0..NODES).map(|node| !self.dead.contains(&NodeId(node))).collect()
    }
}

/// Asked for twice, or never made: the player has lost count. What is done again after a crash is not new.
fn done(_new: bool) -> Begun {
    Begun::Done
}

fn lab() -> Lab {
    let text = format!("lab: pretended\nnodes: {{n: {{count: {NODES}}}}}\n");
    slipway_lab::parse("lab.yaml", &text, std::path::Path::new("/")).expect("a lab")
}

/// Plays, and gives what came of it and the log. A player that is to be killed restores nothing.
fn play(schedule: &Schedule, ends: Ends, platform: &mut Pretended, log: &mut Vec<Line>) -> std::io::Result<Outcome> {
    let lab = lab();
    let part = Part { lab: &lab, schedule, ends, keep: platform.killed_at.is_some() };
    let earlier = log.clone();
    let alive = platform.alive();
    let mut write = |line: &Line| {
        log.push(line.clone());
        Ok(())
    };
    let player = Player::new(part, platform, alive, &mut write);
    if earlier.is_empty() { player.play() } else { player.play_on(&earlier, None) }
}

fn events(log: &[Line]) -> Vec<&play::Event> {
    log.iter().filter_map(|line| if let Line::Event(event) = line { Some(event) } else { None }).collect()
}

fn nodes() -> impl Strategy<Value = Vec<NodeId>> {
    proptest::sample::subsequence((0..NODES).map(NodeId).collect::<Vec<_>>(), 1..=NODES)
}

/// Any action; `number` is that of its event, for restores of what is before it.
fn action(number: usize) -> BoxedStrategy<Action> {
    let interfaces = || nodes().prop_map(|nodes| nodes.into_iter().map(|node| (node, 0)).collect::<Vec<_>>());
    let link = interfaces().prop_map(|interfaces| {
        let change = slipway_lab::change::Change::parse(&["delay=20ms"]).expect("right");
        LinkAction::Link { interfaces, direction: Direction::Egress, change }.into()
    });
    let how = prop_oneof![Just(Kill::Soft), Just(Kill::Hard), Just(Kill::Graceful { grace: Seconds(0.1) })];
    prop_oneof![
        3 => link,
        1 => interfaces().prop_map(|interfaces| LinkAction::Cut { interfaces }.into()),
        1 => nodes().prop_map(|group| LinkAction::Partition { groups: vec![group] }.into()),
        2 => (nodes(), how).prop_map(|(nodes, how)| Order::Kill { nodes, how }.into()),
        2 => nodes().prop_map(|nodes| Order::Start { nodes }.into()),
        2 => nodes().prop_map(|nodes| Order::Freeze { nodes }.into()),
        1 => nodes().prop_map(|nodes| Order::Thaw { nodes }.into()),
        1 => nodes().prop_map(|nodes| Action::Run { nodes, command: vec!["true".to_owned()] }),
        4 => (0..number.max(1)).prop_map(|event| Action::Restore { event }),
    ]
    .boxed()
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let events = (1..40usize).prop_flat_map(|count| {
        let actions: Vec<_> = (0..count).map(action).collect();
        (vec(0..2_000u64, count), actions)
    });
    (events, 0..3_000u64).prop_map(|((mut due, actions), length)| {
        due.sort_unstable();
        let last = due.last().copied().unwrap_or(0);
        let events: Vec<Event> = due
            .into_iter()
            .zip(actions)
            .enumerate()
            .map(|(number, (due, action))| Event { number, due: Due(due), entry: 0, action })
            .collect();
        // A schedule has no restore of a restore, nor of itself.
        let fits = |event: &Event| match event.action {
            Action::Restore { event: other } => {
                other < event.number && !matches!(events[other].action, Action::Restore { .. })
            }
            _ => true,
        };
        let mut events: Vec<Event> =
            events
                .iter()
                .map(|event| {
                    if fits(event) { event.clone() } else { Event { action: LinkAction::Join.into(), ..event.clone() } }
                })
                .collect();
        events.sort_by_key(|event| event.number);
        Schedule { seed: 1, length: Due(length.max(last)), events }
    })
}

fn chance() -> impl Strategy<Value = Chance> {
    prop_oneof![
        4 => (0..NODES).prop_map(|node| Chance::Dies(NodeId(node))),
        2 => Just(Chance::Pauses),
        2 => Just(Chance::Resumes),
    ]
}

fn world() -> impl Strategy<Value = Pretended> {
    let chances = vec((0..2_500u64, chance()), 0..8);
    let durations = vec(0..500u64, 40);
    let failing = proptest::collection::btree_set(0..40usize, 0..4);
    let stop = proptest::option::weighted(0.3, 0..3_000u64);
    (chances, durations, failing, stop).prop_map(|(mut chances, durations, failing, stop)| {
        // Whatever was paused goes on at last, and the job beside it ends.
        chances.extend([(3_000, Chance::Resumes), (4_000, Chance::JobEnds)]);
        chances.extend(stop.map(|at| (at, Chance::Stops)));
        chances.sort_by_key(|(at, _)| *at);
        Pretended { chances, durations, failing, ..Pretended::default() }
    })
}

/// Every event is accounted for once, nothing acts before it is due, and nothing is left.
fn check(schedule: &Schedule, platform: &Pretended, log: &[Line]) {
    let told = events(log);
    let numbers: BTreeSet<usize> = told.iter().map(|event| event.number).collect();
    assert_eq!(numbers.len(), told.len(), "an event is in the log twice");
    assert_eq!(numbers.len(), schedule.events.len(), "an event is not in the log");
    for event in told {
        assert_eq!(event.due, schedule.events[event.number].due.0);
        assert!(event.begun.is_none_or(|begun| begun >= event.due), "{event:?}");
        assert!(event.done.is_none_or(|done| event.begun.is_some_and(|begun| begun <= done)), "{event:?}");
        assert_eq!(event.late.is_some(), event.done.is_some(), "{event:?}");
    }
    assert!(matches!(log.last(), Some(Line::End(_))));
    let failed: Vec<usize> = log
        .iter()
        .filter_map(|line| {
            if let Line::Restored(restored) = line { restored.failed.as_ref().map(|_| restored.number) } else { None }
        })
        .collect();
    let left = |left: &BTreeSet<usize>| {
        left.iter().all(|number| failed.contains(number) || restore_failed(schedule, platform, *number))
    };
    assert!(left(&platform.changes) && left(&platform.programs), "{platform:?} after {log:#?}");
    if platform.failing.is_empty() {
        assert!(platform.frozen.is_empty(), "{platform:?} after {log:#?}");
    }
}

/// True where the schedule's own restore of event `number` was made to fail.
fn restore_failed(schedule: &Schedule, platform: &Pretended, number: usize) -> bool {
    let restores = |event: &&Event| matches!(event.action, Action::Restore { event } if event == number);
    schedule.events.iter().filter(restores).any(|event| platform.failing.contains(&event.number))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_log_accounts_for_everything_and_nothing_is_left(
        schedule in schedule(),
        mut platform in world(),
        ends in prop_oneof![Just(Ends::WithScenario), Just(Ends::WithJob), Just(Ends::WithBoth)],
    ) {
        let mut log = Vec::new();
        let outcome = play(&schedule, ends, &mut platform, &mut log).expect("played");
        check(&schedule, &platform, &log);
        let summary = &outcome.summary;
        prop_assert_eq!(summary.done + summary.failed + summary.skipped + summary.unplayed, schedule.events.len());
    }

    #[test]
    fn a_player_that_was_killed_goes_on(schedule in schedule(), platform in world(), at in 0..2_500u64) {
        let mut platform = Pretended { killed_at: Some(at), ..platform };
        platform.chances.retain(|(_, chance)| !matches!(chance, Chance::Stops));
        let mut log = Vec::new();
        let killed = play(&schedule, Ends::WithScenario, &mut platform, &mut log);
        prop_assume!(killed.is_err());
        platform.killed_at = None;
        // What it had under way goes on without it.
        for (_, pending) in std::mem::take(&mut platform.under_way) {
            match pending {
                Pending::Killed(nodes) => platform.end(&nodes),
                Pending::Started(nodes) => platform.dead.retain(|node| !nodes.contains(node)),
            }
        }
        play(&schedule, Ends::WithScenario, &mut platform, &mut log).expect("played on");
        check(&schedule, &platform, &log);
    }
}

fn event(number: usize, due: u64, action: Action) -> Event {
    Event { number, due: Due(due), entry: 0, action }
}

fn of(events: Vec<Event>, length: u64) -> Schedule {
    Schedule { seed: 1, length: Due(length), events }
}

#[test]
fn a_graceful_kill_delays_nothing_but_its_own_node() {
    let graceful = Kill::Graceful { grace: Seconds(1.0) };
    let schedule = of(
        vec![
            event(0, 100, Order::Kill { nodes: vec![NodeId(0)], how: graceful }.into()),
            event(1, 110, Order::Start { nodes: vec![NodeId(0)] }.into()),
            event(2, 120, Order::Freeze { nodes: vec![NodeId(1)] }.into()),
        ],
        130,
    );
    let mut platform = Pretended { durations: vec![10, 500], ..Pretended::default() };
    let mut log = Vec::new();
    play(&schedule, Ends::WithScenario, &mut platform, &mut log).expect("played");
    let order: Vec<(usize, Option<u64>)> = events(&log).iter().map(|event| (event.number, event.begun)).collect();
    assert_eq!(order, [(2, Some(120)), (0, Some(100)), (1, Some(601))]);
    assert!(platform.dead.is_empty());
}

#[test]
fn the_clock_stands_still_while_it_is_paused() {
    let schedule = of(vec![event(0, 100, LinkAction::Join.into())], 100);
    let chances = vec![(50, Chance::Pauses), (1_050, Chance::Resumes)];
    let mut platform = Pretended { chances, ..Pretended::default() };
    let mut log = Vec::new();
    play(&schedule, Ends::WithScenario, &mut platform, &mut log).expect("played");
    assert_eq!((events(&log)[0].begun, platform.now), (Some(100), 1_102));
    assert_eq!(log.iter().filter(|line| matches!(line, Line::Clock(clock) if clock.at == 50)).count(), 2);
}

/// What takes a thaw back freezes, and is itself taken back at the end, also by a player that knows of it from the log alone.
#[test]
fn a_thaw_taken_back_by_a_killed_player_is_thawed_at_the_end() {
    let schedule = of(
        vec![event(0, 0, Order::Thaw { nodes: vec![NodeId(2)] }.into()), event(1, 0, Action::Restore { event: 0 })],
        100,
    );
    let mut platform = Pretended { killed_at: Some(50), ..Pretended::default() };
    let mut log = Vec::new();
    play(&schedule, Ends::WithScenario, &mut platform, &mut log).expect_err("killed");
    assert_eq!(platform.frozen, BTreeSet::from([NodeId(2)]));
    platform.killed_at = None;
    play(&schedule, Ends::WithScenario, &mut platform, &mut log).expect("played on");
    assert!(platform.frozen.is_empty());
}

#[test]
fn a_node_that_dies_by_itself_is_news_and_is_not_killed_again() {
    let schedule = of(vec![event(0, 100, Order::Kill { nodes: vec![NodeId(2)], how: Kill::Soft }.into())], 100);
    let mut platform = Pretended { chances: vec![(50, Chance::Dies(NodeId(2)))], ..Pretended::default() };
    let mut log = Vec::new();
    play(&schedule, Ends::WithScenario, &mut platform, &mut log).expect("played");
    assert!(log.iter().any(|line| matches!(line, Line::Node(news) if news.name == "n3" && news.at == 50)));
    let expected = play::Outcome::Skipped { reason: "not running: n3".to_owned() };
    assert_eq!(events(&log)[0].outcome, expected);
}

#[test]
fn what_a_job_runs_under_holds_until_it_ends() {
    let cut = Action::from(LinkAction::Cut { interfaces: vec![(NodeId(0), 0)] });
    let schedule = of(vec![event(0, 10, cut)], 10);
    let mut platform = Pretended { chances: vec![(500, Chance::JobEnds)], ..Pretended::default() };
    let mut log = Vec::new();
    let outcome = play(&schedule, Ends::WithJob, &mut platform, &mut log).expect("played");
    assert!(!outcome.stopped);
    assert!(
        log.iter().any(|line| matches!(line, Line::Restored(restored) if restored.number == 0 && restored.at >= 500))
    );
}
