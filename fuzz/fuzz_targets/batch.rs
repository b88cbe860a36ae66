//! Whatever a batch system's list of machines holds, it is a bounded number of names that no remote shell takes for an option,
//! or the reason is told.
#![cfg_attr(fuzzing, no_main)]

use std::path::Path;

use slipway_machines::batch::{hostfile, list, named};

slipway_fuzz::target!(|text: &str| {
    if let Ok(hosts) = list::hosts(text) {
        assert!((1..=list::MOST).contains(&hosts.len()));
        assert!(hosts.iter().all(|host| !host.is_empty() && !host.starts_with('-') && !host.contains([',', ' ', '['])));
        assert_eq!(list::hosts(&hosts.join(",")).ok(), Some(hosts));
    }
    if let Ok(counts) = list::counts(text) {
        assert!(counts.len() <= list::MOST);
    }
    let offers = [named(text), hostfile::offers(Path::new("hosts"), text)];
    for offer in offers.into_iter().flatten().flatten() {
        assert!(!offer.host.is_empty() && !offer.host.starts_with('-'));
    }
});
