//! Packets that an interface lost, by place.

use std::collections::BTreeMap;

use serde::Serialize;

use super::fact::Fact;

/// Packets that an interface lost since its driver was loaded, by place. Drivers count one packet under several names, so each
/// is the largest of its place's counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// Packets that arrived.
    pub received: Fact<u64>,
    /// No descriptor of the receive ring was free.
    pub ring: Fact<u64>,
    /// The buffer of the card itself was full, before the slot.
    pub port: Fact<u64>,
    /// They came damaged from the wire.
    pub wire: Fact<u64>,
    /// The send queue dropped them.
    pub send: Fact<u64>,
}

/// A place where packets are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Ring,
    Port,
    Wire,
    Send,
}

/// The kernel's own counters (Documentation/ABI/testing/sysfs-class-net-statistics).
const STANDARD: [(&str, Place); 6] = [
    ("rx_missed_errors", Place::Ring),
    ("rx_fifo_errors", Place::Ring),
    ("rx_crc_errors", Place::Wire),
    ("rx_frame_errors", Place::Wire),
    ("tx_dropped", Place::Send),
    ("tx_fifo_errors", Place::Send),
];

/// Parts of names that drivers have for them, such as `rx_out_of_buffer`, `rx_no_dma_resources` and `rx_discards_phy`. Of several
/// that fit, the first decides. For mlx5, see `counters.rst` in
/// `Documentation/networking/device_drivers/ethernet/mellanox/mlx5`.
const PARTS: [(&str, Place); 16] = [
    ("tx_drop", Place::Send),
    ("tx_discard", Place::Send),
    ("missed_err", Place::Ring),
    ("no_buf", Place::Ring),
    ("out_of_buf", Place::Ring),
    ("no_dma", Place::Ring),
    ("rx_fifo_err", Place::Ring),
    ("rx_over_err", Place::Ring),
    ("discards_phy", Place::Port),
    ("rx_discard", Place::Port),
    ("buf_discard", Place::Port),
    ("pci_buffer_overflow", Place::Port),
    ("crc_err", Place::Wire),
    ("symbol_err", Place::Wire),
    ("align_err", Place::Wire),
    ("fcs_err", Place::Wire),
];

/// Counters that have such names, and count something else: symbols on the wire, and packets of queues that the card keeps to itself.
const OTHERS: [&str; 2] = ["pcs_symbol", "dev_out_of_buf"];

/// Whether a driver's counter is one of lost packets.
pub(super) fn is_loss(name: &str) -> bool {
    place(name).is_some()
}

fn place(name: &str) -> Option<Place> {
    let name = name.to_ascii_lowercase();
    if OTHERS.iter().any(|other| name.contains(other)) {
        return None;
    }
    PARTS.iter().find(|(part, _)| name.contains(part)).map(|(_, place)| *place)
}

/// `read` gives the kernel's counter of that name, and `told` are counters of the interface's driver.
pub(super) fn gather(read: impl Fn(&str) -> Fact<u64>, told: &Fact<BTreeMap<String, u64>>) -> Losses {
    let standard: Vec<(Place, Fact<u64>)> = STANDARD.iter().map(|(file, place)| (*place, read(file))).collect();
    let of = |wanted: Place| {
        let standard =
            standard.iter().filter(|(place, _)| *place == wanted).filter_map(|(_, count)| count.known().copied());
        let told = told.known().into_iter().flatten().filter(|(name, _)| place(name) == Some(wanted));
        let most = standard.chain(told.map(|(_, count)| *count)).max();
        most.map_or_else(|| Fact::unknown("neither the kernel nor the driver counts it"), Fact::Known)
    };
    Losses {
        received: read("rx_packets"),
        ring: of(Place::Ring),
        port: of(Place::Port),
        wire: of(Place::Wire),
        send: of(Place::Send),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of mlx5, ixgbe and the kernel's documents.
    #[test]
    fn counters_of_drivers_are_of_the_place_that_their_documents_say() {
        let places = [
            ("rx_out_of_buffer", Some(Place::Ring)),
            ("rx_no_dma_resources", Some(Place::Ring)),
            ("rx_discards_phy", Some(Place::Port)),
            ("rx_prio3_buf_discard", Some(Place::Port)),
            ("outbound_pci_buffer_overflow", Some(Place::Port)),
            ("tx_discards_phy", Some(Place::Send)),
            ("tx_queue_dropped", None),
            ("rx_crc_errors_phy", Some(Place::Wire)),
            ("rx_symbol_err_phy", Some(Place::Wire)),
            ("rx_pcs_symbol_err_phy", None),
            ("dev_out_of_buffer", None),
            ("rx_packets", None),
        ];
        for (name, expected) in places {
            assert_eq!(place(name), expected, "{name}");
        }
    }
}
