//! From the file to the lab: names become ids, counts become nodes, addresses are given out, nodes placed. Every step
//! goes on after an error with something plausible in its place, so that all errors are found.

mod address;
mod balance;
mod condition;
mod host;
mod image;
mod job;
mod link;
mod mac;
mod machine;
mod mount;
mod network;
mod node;
mod place;
mod policy;
mod program;
mod room;
mod route;
mod scenario;

use std::path::Path;

use slipway_document::de::{self, Spanned};
use slipway_document::errors::{DocumentErrors, Report, Span};
use slipway_document::names::{self, check as check_name};
use slipway_document::tree::Tree;

pub use self::address::{first_ipv4, first_ipv6};
pub use self::host::default_underlay;
pub use self::image::HOST as HOST_IMAGE;
pub use self::mac::derived as derived_mac;
pub use self::network::{DEFAULT as DEFAULT_NETWORK, default_ipv4, default_ipv6};
use crate::file::{File, PolicyDocument};
use crate::kind::LAB_FILE;
use crate::model::{DriverWord, Lab, Machine, Part, ProfileWord};
use crate::policy::Rule;
use crate::scenario::Scenario;

/// Decisions from outside of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The lab's name.
    pub name: Option<String>,
    /// The driver of every network. Settings that only belong to another driver are left aside.
    pub driver: Option<DriverWord>,
    /// The kernel settings of all virtual hosts. `None`: the file's.
    pub tune: Option<TuneChoice>,
    /// The machines that the lab is made on. `None`: the file's.
    pub machines: Option<Vec<Machine>>,
}

/// Kernel settings of all virtual hosts, in place of those that the file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TuneChoice {
    /// The file's, as they are.
    File,
    /// The machine's own: nothing is tuned.
    None,
    /// A profile's. A host that has the same keeps its path, and its own settings.
    Profile(ProfileWord),
}

/// Reads a lab file.
///
/// `file` is its name, for messages and for the lab's own name where the file gives none. Relative paths in it are
/// resolved against `base_dir`, which should be absolute. Nothing is read from disk.
///
/// # Errors
/// Everything that is wrong with the file, at once.
pub fn parse(file: &str, text: &str, base_dir: &Path) -> Result<Lab, DocumentErrors> {
    parse_with(file, text, base_dir, &Overrides::default())
}

/// Like [`parse`], with something decided outside of the file: `slipway compare` resolves one file once for each driver.
///
/// # Errors
/// Everything that is wrong with the file, and whatever in it the overrides make impossible.
pub fn parse_with(file: &str, text: &str, base_dir: &Path, overrides: &Overrides) -> Result<Lab, DocumentErrors> {
    let mut report = Report::default();
    let lab = Tree::parse(LAB_FILE, text, &mut report)
        .and_then(|tree| de::read::<File>(&tree, &mut report))
        .map(|written| lab(&written, file, base_dir, overrides, &mut report));
    match lab {
        Some(lab) if report.is_empty() => Ok(lab),
        _ => Err(report.finish(file, text)),
    }
}

fn lab(file: &File, file_name: &str, base_dir: &Path, overrides: &Overrides, report: &mut Report) -> Lab {
    let name = lab_name(file.lab.as_ref(), file_name, overrides, report);
    let machines = machine::machines(file, overrides.machines.as_deref(), report);
    let mut hosts = host::hosts(file, &machines, report);
    hosts.choose(overrides.tune.unwrap_or(TuneChoice::File));
    let networks = network::networks(file, &hosts, overrides.driver, report);
    let groups = node::groups(file, &networks, &hosts, report);
    let (images, image_of_group) = image::images(file, &groups, base_dir, report);
    let mut nodes = node::nodes(&name, &groups, &image_of_group, &networks, report);
    place::place(file.placement.unwrap_or_default(), &groups, &machines, &hosts, &mut nodes, report);
    balance::balance(&machines, &mut hosts, &nodes, report);
    place::tune(&hosts, &networks.list, &mut nodes);
    mount::mounts(&groups, base_dir, &mut nodes, report);
    route::routes(&networks.list, &mut nodes);
    let mut lab = Lab {
        name,
        seed: file.seed.unwrap_or(0),
        orphaned_after: machine::orphaned_after(file, report),
        machines,
        part: Part::default(),
        hosts: hosts.list,
        machine: hosts.machine,
        underlay: hosts.underlay,
        images,
        networks: networks.list,
        nodes: nodes.into(),
        links: Vec::new(),
        matrices: Vec::new(),
        mechanism: file.mechanism.unwrap_or_default(),
        policy: Vec::new(),
        job: None,
        scenario: None,
    };
    link::links(file.links.as_deref().unwrap_or_default(), base_dir, overrides.driver, &mut lab, report);
    policy::policy(file.policy.as_deref().unwrap_or_default(), overrides.driver, &mut lab, report);
    lab.job = file.job.as_ref().and_then(|written| job::job(written, &lab, report));
    lab.scenario =
        file.scenario.as_ref().map(|written| scenario::scenario(written, &lab, base_dir, overrides.driver, report));
    lab
}

/// Reads a scenario from a file of its own, for a lab.
///
/// `file` is its name, for messages. Relative paths in it are resolved against `base_dir`, which should be absolute. Nothing
/// is read from disk.
///
/// # Errors
/// Everything that is wrong with the file, at once.
pub fn parse_scenario(file: &str, text: &str, base_dir: &Path, lab: &Lab) -> Result<Scenario, DocumentErrors> {
    let mut report = Report::default();
    let says_nothing = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(says_nothing) {
        report.add(Span::default(), "the scenario is empty", "write `events:` and below it what happens");
        return Err(report.finish(file, text));
    }
    let scenario = Tree::parse(LAB_FILE, text, &mut report)
        .and_then(|tree| de::read(&tree, &mut report))
        .map(|written| scenario::scenario(&written, lab, base_dir, None, &mut report));
    match scenario {
        Some(scenario) if report.is_empty() => Ok(scenario),
        _ => Err(report.finish(file, text)),
    }
}

/// Reads a policy for a lab: from a file of rules, or from the `policy` of a lab file, of which the rest is not looked at.
///
/// `file` is its name, for messages. Nothing is read from disk.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn parse_policy(file: &str, text: &str, lab: &Lab) -> Result<Vec<Rule>, DocumentErrors> {
    let mut report = Report::default();
    let document =
        Tree::parse(LAB_FILE, text, &mut report).and_then(|tree| de::read::<PolicyDocument>(&tree, &mut report));
    let mut lab = Lab { policy: Vec::new(), ..lab.clone() };
    match document {
        Some(PolicyDocument::Rules(rules)) => policy::policy(&rules, None, &mut lab, &mut report),
        Some(PolicyDocument::Section(section)) => match section.policy {
            Some(rules) => policy::policy(&rules, None, &mut lab, &mut report),
            None => {
                report.add(Span::default(), "there is no policy in it", "write `policy:` and below it a list of rules");
            }
        },
        None => {}
    }
    if report.is_empty() { Ok(lab.policy) } else { Err(report.finish(file, text)) }
}

fn lab_name(written: Option<&Spanned<String>>, file_name: &str, overrides: &Overrides, report: &mut Report) -> String {
    if let Some(written) = written {
        check_name(written, report);
    }
    let of_file = || written.map_or_else(|| names::from_file(file_name, "lab"), |name| name.value.clone());
    overrides.name.clone().unwrap_or_else(of_file)
}
