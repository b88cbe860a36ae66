//! The standard normal distribution, with the same digits on every machine.
//!
//! Libraries of distributions call the platform's logarithm, whose last digit differs between C libraries.

use std::f64::consts::FRAC_1_SQRT_2;

/// Probabilities are kept this far from 0 and 1 where the distribution has no end there: 8.2 standard deviations.
const EDGE: f64 = 1.0 / (1_u64 << 53) as f64;

/// Beyond this many standard deviations from the mean, tail probabilities lose digits.
const FAR: f64 = 37.0;

/// The probability of a value below `x`. To full precision in the lower tail.
#[must_use]
pub(crate) fn cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// The value below which a share `p` of 0 to 1 lies, to 16 digits. Infinite at 0 and 1.
///
/// Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution", Applied Statistics 37 (1988).
#[must_use]
#[expect(clippy::excessive_precision, reason = "digits as in the paper")]
pub(crate) fn quantile(p: f64) -> f64 {
    const A: [f64; 8] = [
        3.387_132_872_796_366_608_0,
        133.141_667_891_784_377_45,
        1_971.590_950_306_551_442_7,
        13_731.693_765_509_461_125,
        45_921.953_931_549_871_457,
        67_265.770_927_008_700_853,
        33_430.575_583_588_128_105,
        2_509.080_928_730_122_672_7,
    ];
    const B: [f64; 8] = [
        1.0,
        42.313_330_701_600_911_252,
        687.187_007_492_057_908_30,
        5_394.196_021_424_751_107_7,
        21_213.794_301_586_595_867,
        39_307.895_800_092_710_610,
        28_729.085_735_721_942_674,
        5_226.495_278_852_854_561_0,
    ];
    const C: [f64; 8] = [
        1.423_437_110_749_683_577_34,
        4.630_337_846_156_545_295_90,
        5.769_497_221_460_691_405_50,
        3.647_848_324_763_204_605_04,
        1.270_458_252_452_368_382_58,
        0.241_780_725_177_450_611_770,
        0.022_723_844_989_269_184_583_3,
        7.745_450_142_783_414_076_40e-4,
    ];
    const D: [f64; 8] = [
        1.0,
        2.053_191_626_637_758_821_87,
        1.676_384_830_183_803_849_40,
        0.689_767_334_985_100_004_550,
        0.148_103_976_427_480_074_590,
        0.015_198_666_563_616_457_196_6,
        5.475_938_084_995_344_946_00e-4,
        1.050_750_071_644_416_843_24e-9,
    ];
    const E: [f64; 8] = [
        6.657_904_643_501_103_777_20,
        5.463_784_911_164_114_369_90,
        1.784_826_539_917_291_335_80,
        0.296_560_571_828_504_891_230,
        0.026_532_189_526_576_123_093_0,
        1.242_660_947_388_078_438_60e-3,
        2.711_555_568_743_487_578_15e-5,
        2.010_334_399_292_288_132_65e-7,
    ];
    const F: [f64; 8] = [
        1.0,
        0.599_832_206_555_887_937_690,
        0.136_929_880_922_735_805_310,
        0.014_875_361_290_850_614_852_5,
        7.868_691_311_456_132_591_00e-4,
        1.846_318_317_510_054_681_80e-5,
        1.421_511_758_316_445_888_70e-7,
        2.044_263_103_389_939_785_64e-15,
    ];
    let ratio = |above: &[f64; 8], below: &[f64; 8], x| polynomial(above, x) / polynomial(below, x);
    let centred = p - 0.5;
    if centred.abs() <= 0.425 {
        return centred * ratio(&A, &B, 0.180_625 - centred * centred);
    }
    let tail = libm::sqrt(-libm::log(p.min(1.0 - p)));
    let distance = match tail {
        f64::INFINITY => tail,
        ..=5.0 => ratio(&C, &D, tail - 1.6),
        _ => ratio(&E, &F, tail - 5.0),
    };
    distance.copysign(centred)
}

/// The value at probability `u` of the standard normal distribution that is cut to `low..=high`. Finite.
///
/// It works in the nearer tail, so that a cut far from the mean costs no digits. Where both ends are more than 37
/// deviations on one side, the tail is Rayleigh's, with a relative error below 1/37².
#[must_use]
pub(crate) fn truncated(u: f64, low: f64, high: f64) -> f64 {
    if low > 0.0 {
        return -truncated(1.0 - u, -high, -low);
    }
    if high < -FAR {
        let reach = -libm::expm1((high * high - low * low) / 2.0);
        let squared = high * high - 2.0 * libm::log1p((u - 1.0) * reach);
        return (-libm::sqrt(squared)).clamp(low, high);
    }
    let u = u.max(if low.is_finite() { 0.0 } else { EDGE }).min(if high.is_finite() { 1.0 } else { 1.0 - EDGE });
    let (below, until) = (cdf(low), cdf(high));
    let p = below + u * (until - below);
    let value = if p <= 0.5 {
        quantile(p)
    } else {
        let (above, from) = (cdf(-high), cdf(-low));
        -quantile(above + (1.0 - u) * (from - above))
    };
    value.clamp(low, high)
}

fn polynomial(coefficients: &[f64; 8], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantile_undoes_the_distribution_function() {
        for step in -370..=370 {
            let x = f64::from(step) / 10.0;
            // The upper tail by symmetry: near 1, a probability has no digits left.
            let back = if x < 0.0 { quantile(cdf(x)) } else { -quantile(cdf(-x)) };
            assert!((back - x).abs() <= 2e-14 * x.abs().max(1.0), "{x} {back}");
        }
    }

    #[test]
    fn a_cut_in_the_tail_keeps_its_digits() {
        // Medians of the tail beyond 10, by scipy.stats.truncnorm.ppf(0.5, 10, inf), and its mirror image.
        assert!((truncated(0.5, 10.0, f64::INFINITY) - 10.068_412_4).abs() < 1e-6);
        assert!((truncated(0.5, f64::NEG_INFINITY, -10.0) + 10.068_412_4).abs() < 1e-6);
        // Beyond a, the tail is nearly exponential with rate a.
        let median = truncated(0.5, 100.0, f64::INFINITY);
        assert!((median - 100.0 - std::f64::consts::LN_2 / 100.0).abs() < 1e-5, "{median}");
        for u in [0.0, 0.3, 1.0] {
            assert!((50.0..=50.1).contains(&truncated(u, 50.0, 50.1)));
            assert!(truncated(u, f64::NEG_INFINITY, f64::INFINITY).is_finite());
        }
    }
}
