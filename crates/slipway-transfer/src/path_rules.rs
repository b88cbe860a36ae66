//! How TCP is set for a path: by the rules that `slipway tune` holds a machine against.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, socket, sockopt};
use slipway_host::check::{Advice, Target, Verdict, check};
use slipway_host::facts::{Facts, Source};
use slipway_host::rules::{Profile, Rules};
use slipway_sys::sockopt::{Name, set};

use crate::report::{Choice, Setting};

/// Rules that a program can follow by options of its own sockets.
const RULES: [&str; 5] =
    ["congestion-control", "congestion-control-module", "tcp-send-buffer", "tcp-receive-buffer", "pacing"];
/// Streams at the beginning.
const FIRST: u32 = 2;
/// The same over a long path. A stream's congestion window doubles in a round trip, so more of them fill it sooner.
const FIRST_FAR: u32 = 8;
/// Round-trip time of a long path, from which on a doubling takes a while.
const FAR: Duration = Duration::from_millis(5);
/// Streams in all. More only compete for the same path.
pub(crate) const MOST: u32 = 16;
/// Percent of `--limit` that a stream is paced to. Headers of TCP and IP, and records of TLS, take a part of it.
const PACED: u64 = 110;

/// The part that an end has in a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Sends,
    Receives,
}

/// The options of a path's streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathRules {
    /// A congestion control to set; `None` leaves the kernel's default.
    wanted: Option<String>,
    /// Bytes per second that a stream is paced to.
    pace: Option<u64>,
    /// Streams at the beginning.
    pub(crate) first: u32,
    /// The congestion control in force.
    pub(crate) congestion_control: String,
    /// The choices with their reasons.
    pub(crate) choices: Vec<Choice>,
}

/// Chooses for a path from this machine, or to it. `limit` is in bits per second.
pub(crate) fn choose(part: Part, rtt: Duration, limit: Option<u64>) -> PathRules {
    match Source::machine() {
        Ok(source) => decide(&Facts::gather(&source), part, rtt, limit, may_choose),
        Err(error) => {
            tracing::warn!("failed to look at this machine, so TCP keeps its defaults: {error}");
            let pace = limit.map(pace);
            PathRules { wanted: None, pace, first: fewest(rtt), congestion_control: String::new(), choices: Vec::new() }
        }
    }
}

/// Whether this process may choose a congestion control: only those that an administrator allowed are everyone's (`tcp(7)`).
fn may_choose(wanted: &str) -> io::Result<()> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    Ok(sockopt::set_tcp_congestion(&socket, wanted)?)
}

fn fewest(rtt: Duration) -> u32 {
    if rtt < FAR { FIRST } else { FIRST_FAR }
}

/// Bytes per second that a stream is paced to under a limit in bits per second.
fn pace(limit: u64) -> u64 {
    (limit / 8).saturating_mul(PACED) / 100
}

/// Chooses by facts about this machine.
fn decide(
    facts: &Facts,
    part: Part,
    rtt: Duration,
    limit: Option<u64>,
    may: impl Fn(&str) -> io::Result<()>,
) -> PathRules {
    let rate = limit.map_or_else(|| Target::usual_rate(facts), |limit| limit as f64);
    let target = Target { profile: Profile::Dtn, rtt: rtt.as_secs_f64(), rate };
    let rules = Rules::named(&RULES).unwrap_or_else(|error| {
        tracing::warn!("{error}");
        Rules(Vec::new())
    });
    let checked = check(facts, &rules, &target);
    let find = |rule: &str| checked.advices.iter().find(|advice| advice.rule == rule);
    let mut choices = Vec::new();
    let buffer = if part == Part::Sends { "tcp-send-buffer" } else { "tcp-receive-buffer" };
    let (first, of_buffer) = streams(find(buffer), part, rtt);
    let sysctl = |name: &str| facts.sysctls.get(name).and_then(|fact| fact.known().cloned()).unwrap_or_default();
    let mut chosen = PathRules {
        wanted: None,
        pace: None,
        first,
        congestion_control: sysctl("net.ipv4.tcp_congestion_control"),
        choices: Vec::new(),
    };
    if part == Part::Sends {
        let (wanted, choice) =
            congestion(find("congestion-control"), find("congestion-control-module"), &chosen.congestion_control, may);
        choices.push(choice);
        chosen.wanted = wanted;
    }
    choices.extend(of_buffer);
    if part == Part::Sends {
        chosen.pace = limit.map(pace);
        choices.push(pacing(checked.advices.iter().filter(|advice| advice.rule == "pacing"), limit));
    }
    if let Some(wanted) = &chosen.wanted {
        chosen.congestion_control.clone_from(wanted);
    }
    chosen.choices = choices;
    chosen
}

/// True for the advice of a rule that is for this path.
fn applies(advice: &Advice) -> bool {
    matches!(advice.verdict, Verdict::Advised | Verdict::Good)
}

fn reason(advice: &Advice) -> String {
    advice.reason.clone().unwrap_or_else(|| advice.why.clone())
}

/// The congestion control to set, where the rule is for this path and the kernel offers it.
fn congestion(
    rule: Option<&Advice>,
    module: Option<&Advice>,
    default: &str,
    may: impl Fn(&str) -> io::Result<()>,
) -> (Option<String>, Choice) {
    let choice = |value: &str, rule: Option<&Advice>, why: String| Choice {
        setting: Setting::CongestionControl,
        value: value.to_owned(),
        rule: rule.map(|advice| advice.rule.clone()),
        why,
    };
    let Some(advice) = rule else { return (None, choice(default, None, "no rule is about it".to_owned())) };
    let Some(wanted) = advice.want.as_ref().filter(|_| applies(advice)) else {
        return (None, choice(default, rule, format!("the kernel's default: {}", reason(advice))));
    };
    if module.is_some_and(|module| module.verdict == Verdict::Good) {
        return match may(wanted) {
            Ok(()) => (Some(wanted.clone()), choice(wanted, rule, advice.why.clone())),
            Err(error) => {
                (None, choice(default, rule, format!("the kernel's default: failed to choose {wanted}: {error}")))
            }
        };
    }
    let why = format!(
        "the kernel's default: it does not offer {wanted}, which `slipway tune apply 'module tcp_{wanted}=loaded'` loads"
    );
    (None, choice(default, module, why))
}

/// Streams at the beginning: as many as have the buffer together that the path takes. And why.
fn streams(rule: Option<&Advice>, part: Part, rtt: Duration) -> (u32, Vec<Choice>) {
    let fewest = fewest(rtt);
    let largest = |words: &Option<String>| {
        words.as_ref()?.split_whitespace().nth(2)?.parse::<u64>().ok().filter(|&bytes| bytes > 0)
    };
    let Some((advice, has, needs)) =
        rule.and_then(|advice| Some((advice, largest(&advice.is)?, largest(&advice.want)?)))
    else {
        return (fewest, Vec::new());
    };
    let together = u32::try_from(needs.div_ceil(has)).unwrap_or(MOST).clamp(fewest, MOST);
    let setting = if part == Part::Sends { Setting::SendBuffer } else { Setting::ReceiveBuffer };
    let mib = |bytes: u64| format!("{} MiB", bytes.div_ceil(1 << 20));
    let is_small = advice.verdict == Verdict::Advised;
    let hint = format!("{} The rule asks for {}.", advice.why, mib(needs));
    let buffer = Choice {
        setting,
        value: format!("the kernel's, which grows to {}", mib(has)),
        rule: Some(advice.rule.clone()),
        why: if is_small { hint } else { advice.why.clone() },
    };
    let (why, rule) = match () {
        () if together > fewest => ("together they have the buffer that the path takes", Some(advice.rule.clone())),
        () if rtt < FAR => ("more open while that makes the transfer faster", None),
        () => ("on a long path windows grow slowly, and more open while that makes the transfer faster", None),
    };
    let streams =
        Choice { setting: Setting::Streams, value: format!("{together} at the beginning"), rule, why: why.to_owned() };
    (together, vec![buffer, streams])
}

/// Pacing takes a rate of the path, which `--limit` alone gives.
fn pacing<'a>(mut rules: impl Iterator<Item = &'a Advice>, limit: Option<u64>) -> Choice {
    let choice =
        |value: String, rule: Option<String>, why: String| Choice { setting: Setting::Pacing, value, rule, why };
    let Some(limit) = limit else {
        return choice("none".to_owned(), None, "nobody said what the path takes (--limit)".to_owned());
    };
    let value = format!("{:.1} Mbit/s a stream", pace(limit) as f64 * 8.0 / 1e6);
    match rules.find(|advice| applies(advice)) {
        Some(advice) => choice(value, Some(advice.rule.clone()), advice.why.clone()),
        None => choice(value, None, "no stream sends bursts above --limit".to_owned()),
    }
}

impl PathRules {
    /// Sets the options of a stream. An option that the kernel refuses is left as it was.
    pub(crate) fn apply(&self, socket: &TcpStream) {
        if let Some(wanted) = &self.wanted
            && let Err(error) = sockopt::set_tcp_congestion(socket, wanted)
        {
            tracing::warn!("failed to choose congestion control {wanted}: {error}");
        }
        if let Some(pace) = self.pace {
            let name = Name { level: libc::SOL_SOCKET, name: libc::SO_MAX_PACING_RATE };
            if let Err(error) = set(socket, name, &pace.to_ne_bytes()) {
                tracing::debug!("failed to pace a stream: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The choices for a recorded machine, setting by setting.
    fn on(machine: &str, part: Part, rtt: u64, limit: Option<u64>) -> (PathRules, Vec<String>) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../slipway-host/tests/machines").join(machine);
        let facts = Facts::gather(&Source::open(&path).expect("a recording"));
        let rules = decide(&facts, part, Duration::from_millis(rtt), limit, |_| Ok(()));
        let each = |choice: &Choice| {
            format!("{}: {} ({})", choice.setting, choice.value, choice.rule.as_deref().unwrap_or("-"))
        };
        let choices = rules.choices.iter().map(each).collect();
        (rules, choices)
    }

    #[test]
    fn a_long_path_has_what_tune_advises() {
        let (far, choices) = on("vm.txt", Part::Sends, 80, None);
        assert!(choices.iter().all(|choice| !choice.starts_with("pacing: none (pacing")), "{choices:?}");
        assert!(far.first >= FIRST_FAR && far.first <= MOST, "{choices:?}");
        assert_eq!(far.pace, None);
        assert!(far.choices.iter().all(|choice| !choice.why.is_empty()));
        let (near, choices) = on("vm.txt", Part::Sends, 0, None);
        assert_eq!((near.wanted, near.first), (None, FIRST), "{choices:?}");
    }

    #[test]
    fn a_limit_below_the_interface_is_paced_by_the_rule() {
        let (rules, choices) = on("dtn-100g.txt", Part::Sends, 80, Some(5_000_000_000));
        assert_eq!(rules.pace, Some(687_500_000));
        assert!(choices.contains(&"pacing: 5500.0 Mbit/s a stream (pacing)".to_owned()), "{choices:?}");
        let (_, choices) = on("vm.txt", Part::Receives, 80, Some(5_000_000_000));
        assert!(
            choices.iter().all(|choice| choice.starts_with("receive buffer") || choice.starts_with("streams")),
            "{choices:?}"
        );
    }

    #[test]
    fn a_stream_is_paced() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        choose(Part::Sends, Duration::ZERO, Some(80_000_000)).apply(&stream);
        let name = Name { level: libc::SOL_SOCKET, name: libc::SO_MAX_PACING_RATE };
        let mut rate = [0; 8];
        assert_eq!(slipway_sys::sockopt::get(&stream, name, &mut rate).expect("asked"), 8);
        assert_eq!(u64::from_ne_bytes(rate), 11_000_000);
    }
}
