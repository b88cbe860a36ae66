//! Addresses out of a subnet: those that the file names, then the others in node order from the first free one.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use slipway_document::errors::{Report, Span};

/// The addresses that interfaces of a subnet may have, as numbers.
pub(super) struct Pool {
    first: u128,
    last: u128,
    subnet: String,
    show: fn(u128) -> String,
}

/// A run of addresses, one for each node of a group.
pub(super) struct Claim<'f> {
    pub(super) who: &'f str,
    pub(super) count: usize,
    /// Where the file says where the run begins.
    pub(super) first: Option<(u128, Span)>,
}

pub(super) fn to_v4(bits: u128) -> Ipv4Addr {
    // A pool of IPv4 addresses holds nothing wider.
    Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or_default())
}

/// The first address that a subnet has for a node.
#[must_use]
pub fn first_ipv4(net: Ipv4Net) -> u128 {
    Pool::v4(net).first
}

/// The first IPv6 address that a subnet has for a node.
#[must_use]
pub fn first_ipv6(net: Ipv6Net) -> u128 {
    Pool::v6(net).first
}

impl Pool {
    pub(super) fn v4(net: Ipv4Net) -> Self {
        let (first, last) = (net.network().to_bits().into(), net.broadcast().to_bits().into());
        // A point-to-point subnet has no network and broadcast addresses (RFC 3021).
        let edge = u128::from(net.prefix_len() < 31);
        Self::new(first, last, edge, edge, net, |bits| to_v4(bits).to_string())
    }

    pub(super) fn v6(net: Ipv6Net) -> Self {
        let (first, last) = (net.network().to_bits(), net.broadcast().to_bits());
        // The first is every router's (RFC 4291, 2.6.1).
        let edge = u128::from(net.prefix_len() < 127);
        Self::new(first, last, edge, 0, net, |bits| Ipv6Addr::from_bits(bits).to_string())
    }

    fn new(first: u128, last: u128, before: u128, after: u128, net: impl Display, show: fn(u128) -> String) -> Self {
        Self { first: first + before, last: last - after, subnet: net.to_string(), show }
    }

    /// One address for each node of each claim, in order; never two the same unless that is reported.
    /// `at` is where the subnet is written.
    pub(super) fn assign(&self, claims: &[Claim], at: Span, report: &mut Report) -> Vec<u128> {
        let taken = self.asked_for(claims, report);
        let mut free = (self.first..=self.last).filter(|address| !taken.contains_key(address));
        let mut addresses = Vec::new();
        let mut short = 0usize;
        for claim in claims {
            match claim.first {
                Some((first, _)) => addresses.extend((0..claim.count).map(|i| first.wrapping_add(i as u128))),
                None => addresses.extend((0..claim.count).map(|_| {
                    free.next().unwrap_or_else(|| {
                        short += 1;
                        self.first
                    })
                })),
            }
        }
        if short > 0 {
            let message = format!("{} is too small: {short} more addresses are needed", self.subnet);
            report.add(at, message, "write a shorter prefix, or put the nodes on more networks");
        }
        addresses
    }

    /// Addresses that the file names, and for whom.
    fn asked_for<'f>(&self, claims: &[Claim<'f>], report: &mut Report) -> HashMap<u128, &'f str> {
        let mut taken = HashMap::new();
        for claim in claims {
            let Some((first, at)) = claim.first else { continue };
            let last = first.saturating_add(claim.count as u128 - 1);
            if first < self.first || last > self.last {
                let outside = (self.show)(if first < self.first { first } else { last });
                let message = format!("{outside} is no address for a node of {}", self.subnet);
                let range = format!("write one from {} to {}", (self.show)(self.first), (self.show)(self.last));
                report.add(at, message, if claim.count > 1 { range + ", all of the group" } else { range });
                continue;
            }
            for address in first..=last {
                if let Some(other) = taken.insert(address, claim.who) {
                    let message = format!("{} is already {other}'s", (self.show)(address));
                    report.add(at, message, "write another, or leave it out to be given one");
                    break;
                }
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(who: &str, count: usize, first: Option<u32>) -> Claim<'_> {
        let first = first.map(|first| (first.into(), Span::default()));
        Claim { who, count, first }
    }

    fn assign(net: &str, claims: &[Claim]) -> (Vec<u32>, bool) {
        let mut report = Report::default();
        let found = Pool::v4(net.parse().unwrap()).assign(claims, Span::default(), &mut report);
        (found.into_iter().map(|bits| to_v4(bits).octets()[3].into()).collect(), report.is_empty())
    }

    const BASE: u32 = 0x0a00_0000;

    #[test]
    fn in_order_around_what_is_asked_for() {
        let claims = [claim("a", 2, None), claim("b", 2, Some(BASE + 2)), claim("c", 2, None)];
        assert_eq!(assign("10.0.0.0/24", &claims), (vec![1, 4, 2, 3, 5, 6], true));
    }

    #[test]
    fn network_and_broadcast_are_no_nodes() {
        assert_eq!(assign("10.0.0.0/30", &[claim("a", 2, None)]), (vec![1, 2], true));
        assert!(!assign("10.0.0.0/30", &[claim("a", 3, None)]).1);
        assert!(!assign("10.0.0.0/30", &[claim("a", 1, Some(BASE))]).1);
        assert!(!assign("10.0.0.0/30", &[claim("a", 1, Some(BASE + 3))]).1);
        assert_eq!(assign("10.0.0.0/31", &[claim("a", 2, None)]), (vec![0, 1], true));
        assert_eq!(assign("10.0.0.0/32", &[claim("a", 1, None)]), (vec![0], true));
    }

    #[test]
    fn no_address_follows_the_last() {
        let mut report = Report::default();
        let top = (u128::MAX, Span::default());
        let claims = [Claim { who: "a", count: 2, first: Some(top) }];
        Pool::v6("fd00::/64".parse().unwrap()).assign(&claims, Span::default(), &mut report);
        assert!(!report.is_empty());
    }
}
