//! The link between a device and the machine (PCI Express Base Specification).

use serde::Serialize;

use super::fact::Fact;
use super::source::Source;

/// A device's PCI Express link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PcieLink {
    /// Transfers a second and lane, GT/s.
    pub speed: Fact<f64>,
    /// The most that the device can, GT/s.
    pub max_speed: Fact<f64>,
    /// Lanes.
    pub width: Fact<u32>,
    /// The most lanes that the device has.
    pub max_width: Fact<u32>,
    /// Data a second each way, bit/s: after the line code, before the headers of packets.
    pub rate: Fact<f64>,
    /// The same of a link as fast and wide as the device can, bit/s.
    pub max_rate: Fact<f64>,
}

/// `folder` is the device's own in sysfs.
pub(super) fn gather(source: &Source, folder: &str) -> PcieLink {
    let speed = |name: &str| {
        source.read(&format!("{folder}/{name}")).and_then(|text| {
            let number = text.split_whitespace().next().and_then(|number| number.parse::<f64>().ok());
            match number.filter(|number| (1.0..=256.0).contains(number)) {
                Some(number) => Fact::Known(number),
                None => Fact::unknown(format!("{folder}/{name} tells no speed")),
            }
        })
    };
    let width = |name: &str| {
        source.read(&format!("{folder}/{name}")).parse::<u32>().and_then(|lanes| match lanes {
            1..=32 => Fact::Known(lanes),
            _ => Fact::unknown(format!("{folder}/{name} tells no width")),
        })
    };
    let (now, most) = (speed("current_link_speed"), speed("max_link_speed"));
    let (lanes, most_lanes) = (width("current_link_width"), width("max_link_width"));
    PcieLink {
        rate: rate(&now, &lanes),
        max_rate: rate(&most, &most_lanes),
        speed: now,
        max_speed: most,
        width: lanes,
        max_width: most_lanes,
    }
}

fn rate(speed: &Fact<f64>, lanes: &Fact<u32>) -> Fact<f64> {
    // 8b/10b to generation 2, 128b/130b to 5, flits from 6.
    let coded = |speed: f64| match speed {
        ..6.0 => speed * 0.8,
        ..64.0 => speed * 128.0 / 130.0,
        _ => speed * 242.0 / 256.0,
    };
    speed.clone().and_then(|speed| lanes.clone().map(|lanes| coded(speed) * 1e9 * f64::from(lanes)))
}
