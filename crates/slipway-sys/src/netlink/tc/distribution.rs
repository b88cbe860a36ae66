//! Shapes of jitter as the kernel takes them: a table of the inverse distribution function, from which it draws by a uniform
//! random index (`tabledist`, `net/sched/sch_netem.c`). An entry of 8192 is one jitter's worth.
//!
//! The values are those that tc(8) reads from its `.dist` files, computed here so that those need not be installed.

/// A shape of jitter (tc-netem(8), `distribution`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Normal; the jitter is its standard deviation.
    Normal,
    /// Pareto with shape 3, shifted to mean 0.
    Pareto,
    /// A quarter of the normal value and three quarters of the Pareto value of the same quantile.
    ParetoNormal,
}

/// Entries of a table.
const ENTRIES: u16 = 4096;
/// `NETEM_DIST_SCALE` (`include/uapi/linux/pkt_sched.h`).
const SCALE: f64 = 8192.0;

impl Distribution {
    /// The table, in rising order. The kernel's numbers have 16 bits, so no value is beyond 4 times the jitter.
    #[must_use]
    pub fn table(self) -> Vec<i16> {
        match self {
            Self::Normal => normal_quantiles().into_iter().map(clipped).collect(),
            Self::Pareto => (0..ENTRIES).map(|i| clipped(pareto(i))).collect(),
            Self::ParetoNormal => {
                let mixed = |(i, normal)| clipped((normal + 3.0 * f64::from(clipped(pareto(i))) / SCALE) / 4.0);
                (0..ENTRIES).zip(normal_quantiles()).map(mixed).collect()
            }
        }
    }
}

/// Fits a table: the kernel's scale, and 16 bits.
#[allow(clippy::cast_possible_truncation)]
fn clipped(value: f64) -> i16 {
    // In range by the clamp.
    (value * SCALE).round().clamp(f64::from(i16::MIN), f64::from(i16::MAX)) as i16
}

/// The i-th of [`ENTRIES`] quantiles: x = u^(−1/3) has mean 3/2; 4/3 is what tc's generator scales it by.
fn pareto(i: u16) -> f64 {
    let above = 1.0 - f64::from(i) / f64::from(ENTRIES);
    (above.powf(-1.0 / 3.0) - 1.5) * (4.0 / 3.0)
}

/// The quantiles of the standard normal distribution at (i + 1/8) / [`ENTRIES`]. The eighth comes from tc's generator:
/// it makes four times as many entries, each at its middle, and keeps every fourth.
///
/// The density is integrated in steps (Simpson's rule) and each quantile interpolated within its step; the error is below
/// 10⁻⁶, a hundredth of what an entry can tell.
fn normal_quantiles() -> Vec<f64> {
    const STEP: f64 = 1.0 / 1024.0;
    let density = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let (mut x, mut below, mut step) = (-8.0 - STEP, 0.0, 0.0);
    let mut quantile = |i: u16| {
        let wanted = (f64::from(i) + 0.125) / f64::from(ENTRIES);
        while below + step < wanted {
            (x, below) = (x + STEP, below + step);
            step = (density(x) + 4.0 * density(x + STEP / 2.0) + density(x + STEP)) * STEP / 6.0;
        }
        x + STEP * (wanted - below) / step
    };
    (0..ENTRIES).map(&mut quantile).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the tables that Debian's iproute2 6.1 installs. Its generator walks the normal distribution in steps, which
    /// leaves its entries up to one beside the exact ones.
    #[test]
    fn as_tcs_tables() {
        let close = |distribution: Distribution, expected: [(usize, i16); 5]| {
            let table = distribution.table();
            assert_eq!(table.len(), 4096);
            assert!(table.is_sorted());
            for (entry, value) in expected {
                assert!((table[entry] - value).abs() <= 1, "{distribution:?} {entry}: {} for {value}", table[entry]);
            }
        };
        close(Distribution::Normal, [(0, -32_768), (100, -16_135), (2048, 0), (3500, 8651), (4095, 28_858)]);
        close(Distribution::Pareto, [(0, -5461), (100, -5371), (2048, -2622), (3500, 4383), (4095, 32_767)]);
        close(Distribution::ParetoNormal, [(0, -12_305), (100, -8062), (2048, -1966), (3500, 5450), (4095, 31_789)]);
    }
}
