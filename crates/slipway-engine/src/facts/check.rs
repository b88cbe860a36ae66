//! From facts to advice.

use serde::{Deserialize, Serialize};
use slipway_sys::cgroup::{Controller, Mode};

use super::{Facts, Tool};
use crate::condition::LinkMeans;
use crate::lack::Lack;

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The subject, such as `control groups`.
    pub subject: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The finding.
    pub found: String,
    /// The next step, where there is one.
    pub hint: Option<String>,
}

/// The verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing to do.
    Good,
    /// Labs run, with something left out.
    Partial,
    /// No lab runs.
    Missing,
}

/// `clone3(2)` into a control group came with 5.7, `mount_setattr(2)` with 5.12.
const OLDEST_KERNEL: (u32, u32) = (5, 12);

pub(super) fn all(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![kernel(facts), privileges(facts), cgroups(facts), shared(facts), frequency(facts)];
    checks.push(required("overlay file systems", "can be mounted", &facts.overlay));
    checks.push(required("system-call filters", "available", &facts.seccomp));
    checks.extend(facts.drivers.iter().map(|driver| match driver {
        Ok(probed) => good(&format!("driver {}", probed.driver), &with_notes(&probed.mechanism, &probed.notes)),
        Err(why) => check(&format!("driver {}", why.driver), Verdict::Partial, &why.missing, Some(&why.hint)),
    }));
    checks.extend(links(&facts.links));
    checks.push(resets(facts));
    checks.extend(facts.tools.iter().map(tool));
    checks
}

/// The means for conditions of links.
fn links(means: &LinkMeans) -> [Check; 4] {
    let one = |subject: &str, serves: &str, without: &str, state: &Result<(), Lack>| match state {
        Ok(()) => good(subject, serves),
        Err(Lack { missing, hint }) => {
            check(subject, Verdict::Partial, &format!("{missing}: {without}"), hint.as_deref())
        }
    };
    let no_netem = if means.wire.is_ok() { "the wire serves instead" } else { "no delay, loss or jitter" };
    [
        one("links by gate", "cuts and partitions, in BPF", "no cuts and partitions, and no wire", &means.gate),
        one("links by wire", "everything, also by peer", "no conditions between pairs of nodes", &means.wire),
        one("links by netem", "everything but conditions by peer", no_netem, &means.netem),
        one("links by tbf", "rates alone", "other mechanisms serve rates too", &means.tbf),
    ]
}

/// A soft kill resets connections.
fn resets(facts: &Facts) -> Check {
    let subject = "resets of connections";
    match &facts.resets {
        Ok(()) => good(subject, "a soft kill resets what was open"),
        Err(Lack { missing, hint }) => {
            let found = format!("{missing}: peers of a node killed softly see ends, as after a graceful kill");
            check(subject, Verdict::Partial, &found, hint.as_deref())
        }
    }
}

fn tool(tool: &Tool) -> Check {
    if let Some(path) = &tool.path {
        return good(&tool.program, &path.display().to_string());
    }
    let found = format!("not found; needed for {}", tool.purpose);
    check(&tool.program, Verdict::Partial, &found, Some(&format!("apt-get install {}", tool.package)))
}

fn check(subject: &str, verdict: Verdict, found: &str, hint: Option<&str>) -> Check {
    Check { subject: subject.to_owned(), verdict, found: found.to_owned(), hint: hint.map(str::to_owned) }
}

fn good(subject: &str, found: &str) -> Check {
    check(subject, Verdict::Good, found, None)
}

fn with_notes(mechanism: &str, notes: &[String]) -> String {
    let all: Vec<&str> = std::iter::once(mechanism).chain(notes.iter().map(String::as_str)).collect();
    all.join("; ")
}

fn required(subject: &str, found: &str, state: &Result<(), Lack>) -> Check {
    match state {
        Ok(()) => good(subject, found),
        Err(Lack { missing, hint }) => check(subject, Verdict::Missing, missing, hint.as_deref()),
    }
}

fn kernel(facts: &Facts) -> Check {
    let mut numbers = facts.kernel.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let found = format!("{} on {}", facts.kernel, facts.architecture);
    if version >= OLDEST_KERNEL {
        return good("kernel", &found);
    }
    let (major, minor) = OLDEST_KERNEL;
    check("kernel", Verdict::Missing, &found, Some(&format!("boot Linux {major}.{minor} or newer")))
}

fn privileges(facts: &Facts) -> Check {
    if !facts.root {
        let hint = "run as root; or, for what the kernel allows without, in a namespace of your own: unshare --user --map-root-user slipway ...";
        return check("privileges", Verdict::Missing, "not root", Some(hint));
    }
    if !facts.missing_capabilities.is_empty() {
        let found = format!("root without {}", facts.missing_capabilities.join(", "));
        let hint = "give the container or service that this runs in these capabilities";
        return check("privileges", Verdict::Missing, &found, Some(hint));
    }
    if facts.user_namespace {
        let found = "root of a user namespace: no control groups unless some are delegated, and with them no limits, freeze and thaw; no real network cards; no device files but the usual ones";
        return check("privileges", Verdict::Partial, found, Some("run as the machine's root for these"));
    }
    good("privileges", "root")
}

/// A share of a processor is a share of whatever speed it has just then.
fn frequency(facts: &Facts) -> Check {
    let subject = "processor frequency";
    match &facts.frequency {
        None => good(subject, "the kernel does not change it"),
        Some(found) if found.governor == "performance" => {
            good(subject, &format!("kept high ({}, {})", found.driver, found.governor))
        }
        Some(found) => {
            let said = format!(
                "changes with the load ({}, {}), and with it what a share of a core is",
                found.driver, found.governor
            );
            check(
                subject,
                Verdict::Partial,
                &said,
                Some("for measurements: cpupower frequency-set --governor performance"),
            )
        }
    }
}

/// Limits of the kernel that nodes have together, or that hold for one of them without being asked for.
fn shared(facts: &Facts) -> Check {
    let processes = facts.processes.map_or_else(
        || "processes without bound where `pids` is not set (before Linux 6.14)".to_owned(),
        |most| format!("at most {most} processes"),
    );
    let (subject, instances) = ("shared by nodes", facts.inotify);
    let (missing, hint) = match &facts.bounded {
        Ok(()) => {
            let found = format!("a node has {processes}, {instances} inotify instances, message queues of its own");
            return good(subject, &found);
        }
        Err(Lack { missing, hint }) => (missing.as_str(), hint.as_deref()),
    };
    let found = format!(
        "{missing}: {instances} inotify instances and one sum of message queues for all nodes and root; a node has {processes}"
    );
    check(subject, Verdict::Partial, &found, hint)
}

fn cgroups(facts: &Facts) -> Check {
    let subject = "control groups";
    let found = match &facts.cgroups {
        Ok(found) => found,
        Err(Lack { missing, hint }) => {
            return check(subject, Verdict::Partial, missing, hint.as_deref());
        }
    };
    let mode = match found.mode {
        Mode::V1 => "version 1",
        Mode::V2 => "version 2",
        Mode::Hybrid => "version 2 for membership, version 1 controllers",
    };
    let lacking: Vec<&str> =
        Controller::LIMITING.iter().filter(|one| !found.controllers.contains(one)).map(|one| one.name()).collect();
    if lacking.is_empty() {
        return good(subject, mode);
    }
    let said = format!("{mode}; no limits by {}", lacking.join(", "));
    check(subject, Verdict::Partial, &said, Some("mount these controllers, or boot with cgroup_enable=NAME"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Cgroups, Frequency};

    fn facts() -> Facts {
        Facts {
            kernel: "6.1.0-13-amd64".to_owned(),
            architecture: "x86_64".to_owned(),
            system: String::new(),
            processor: String::new(),
            cpus: 2,
            frequency: None,
            memory: 1 << 30,
            root: true,
            user_namespace: false,
            missing_capabilities: Vec::new(),
            cgroups: Ok(Cgroups { mode: Mode::V2, controllers: Controller::LIMITING.to_vec() }),
            overlay: Ok(()),
            seccomp: Ok(()),
            drivers: Vec::new(),
            links: LinkMeans { gate: Ok(()), wire: Ok(()), netem: Ok(()), tbf: Ok(()) },
            resets: Ok(()),
            tools: Vec::new(),
            bounded: Ok(()),
            inotify: 128,
            processes: Some(16384),
        }
    }

    #[test]
    fn a_good_machine_has_nothing_to_say() {
        let checks = facts().checks();
        assert!(checks.iter().all(|check| check.verdict == Verdict::Good && check.hint.is_none()), "{checks:?}");
    }

    #[test]
    fn each_thing_that_is_missing_says_what_to_do() {
        let wrong = [
            ("kernel", Facts { kernel: "4.19.0".to_owned(), ..facts() }),
            ("privileges", Facts { root: false, ..facts() }),
            ("privileges", Facts { user_namespace: true, ..facts() }),
            ("privileges", Facts { missing_capabilities: vec!["CAP_NET_ADMIN".to_owned()], ..facts() }),
            ("control groups", Facts { cgroups: Err(Lack::new("none is mounted").with_hint("mount")), ..facts() }),
            ("control groups", Facts { cgroups: Ok(Cgroups { mode: Mode::V1, controllers: Vec::new() }), ..facts() }),
            (
                "processor frequency",
                Facts {
                    frequency: Some(Frequency { driver: "acpi-cpufreq".to_owned(), governor: "ondemand".to_owned() }),
                    ..facts()
                },
            ),
            (
                "links by netem",
                Facts {
                    links: LinkMeans {
                        netem: Err(Lack::new("the kernel has none").with_hint("modprobe")),
                        ..facts().links
                    },
                    ..facts()
                },
            ),
            ("resets of connections", Facts { resets: Err(Lack::new("no").with_hint("boot")), ..facts() }),
            ("shared by nodes", Facts { bounded: Err(Lack::new("no").with_hint("sysctl")), ..facts() }),
            ("overlay file systems", Facts { overlay: Err(Lack::new("no").with_hint("modprobe overlay")), ..facts() }),
            ("system-call filters", Facts { seccomp: Err(Lack::new("no").with_hint("boot")), ..facts() }),
        ];
        for (subject, facts) in wrong {
            let bad: Vec<Check> = facts.checks().into_iter().filter(|check| check.verdict != Verdict::Good).collect();
            assert_eq!(bad.len(), 1, "{bad:?}");
            assert_eq!(bad[0].subject, subject);
            assert!(bad[0].hint.as_ref().is_some_and(|hint| !hint.is_empty()), "{bad:?}");
            assert!(!bad[0].found.contains("Hint"), "{bad:?}");
        }
    }
}
