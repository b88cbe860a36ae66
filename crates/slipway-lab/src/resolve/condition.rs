//! Conditions of interfaces: a network's, and over them those of a node's place on it.

use slipway_document::de::Spanned;
use slipway_document::errors::{Report, Span};

use crate::change::Keys;
use crate::condition::{Conditions, LinkConditions};
use crate::file::{Conditions as Written, Placed};
use crate::model::DriverWord;

/// Conditions of an interface that has those of `under`, changed by those `written` for it.
pub(super) fn over(written: &Spanned<Written>, under: &Conditions, report: &mut Report) -> Conditions {
    let egress = direction(&written.value.change(), &under.egress, written.at, report);
    let ingress = match &written.value.ingress {
        Some(ingress) => direction(&ingress.value.change(), &under.ingress, ingress.at, report),
        None => under.ingress.clone(),
    };
    Conditions { egress, ingress }
}

fn direction(
    written: &Placed<LinkConditions>,
    under: &LinkConditions,
    at: Span,
    report: &mut Report,
) -> LinkConditions {
    let merged = written.change.apply(under);
    // Errors of the network's conditions were reported there.
    let known = under.problems();
    for problem in merged.problems().into_iter().filter(|problem| !known.contains(problem)) {
        report.add(written.place(problem.key).unwrap_or(at), problem.message, problem.help);
    }
    merged
}

/// Nodes of driver host have no interface whose packets something could be done to.
pub(super) fn refuse_on_host(network: &str, replaced: Option<DriverWord>, at: Span, report: &mut Report) {
    let message = format!("driver host cannot make conditions: nodes of `{network}` use their host's own interfaces");
    let help = match replaced {
        Some(_) => "leave driver host out of the comparison, or take the conditions out of the file",
        None => "take another driver, such as bridge, or leave the conditions out",
    };
    report.add(at, message, help);
}
