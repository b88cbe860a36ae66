//! Names of hosts and labs.

use slipway_document::de::Spanned;
use slipway_document::errors::Report;
use slipway_document::names::check;

/// Reports a name that cannot be a host's: programs take `12` or `0x7f` for an IPv4 address (`inet_aton(3)`).
pub(crate) fn check_host(name: &Spanned<String>, report: &mut Report) {
    if name.value.starts_with(|c: char| c.is_ascii_digit()) {
        report.add(name.at, "a host name that starts with a digit reads as an address", "begin it with a letter");
    } else if name.value == "localhost" {
        report.add(name.at, "`localhost` is every node's name for itself", "choose another name");
    } else {
        check(name, report);
    }
}
