//! A token bucket's options (`struct tc_tbf_qopt`, `include/uapi/linux/pkt_sched.h`; `tbf_change`, `net/sched/sch_tbf.c`).

use super::Tbf;
use super::attribute::{attribute, numbers};

const PARMS: u16 = 1;
const RATE64: u16 = 4;
const BURST: u16 = 6;
/// `TC_LINKLAYER_ETHERNET`: the kernel then takes the rate itself, and no table of sending times computed from it.
const ETHERNET: u8 = 1;

pub(super) fn options(tbf: &Tbf) -> Vec<u8> {
    let short = u32::try_from(tbf.rate).unwrap_or(u32::MAX);
    // Two `struct tc_ratespec`: the rate, and a peak rate that is not there.
    let mut parms = vec![0, ETHERNET, 0, 0, 0, 0, 0, 0];
    parms.extend(short.to_ne_bytes());
    parms.extend([0; 12]);
    // Burst and packet size would be in ticks here; the burst follows in bytes.
    parms.extend(numbers([tbf.limit, 0, 0]));
    let mut bytes = Vec::new();
    attribute(&mut bytes, PARMS, &parms);
    if short == u32::MAX {
        attribute(&mut bytes, RATE64, &tbf.rate.to_ne_bytes());
    }
    attribute(&mut bytes, BURST, &tbf.burst.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        let bytes = options(&Tbf { rate: 0x0102_0304, burst: 0x0506_0708, limit: 0x090a_0b0c });
        let mut expected = vec![40, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1];
        expected.extend([0; 12]);
        expected.extend([0x0c, 0x0b, 0x0a, 0x09, 0, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([8, 0, 6, 0, 8, 7, 6, 5]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_rate_beyond_32_bits_has_its_own_attribute() {
        let bytes = options(&Tbf { rate: 1 << 33, burst: 1, limit: 1 });
        assert_eq!(bytes[12..16], [0xff; 4]);
        assert_eq!(bytes[40..52], [12, 0, 4, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
    }
}
