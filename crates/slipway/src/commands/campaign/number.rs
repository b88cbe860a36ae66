//! Numbers in tables.

/// Six significant digits, as far as they say something.
pub(super) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = value.abs().log10().floor();
    if !(-5.0..9.0).contains(&digits) {
        return format!("{value:.5e}");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 10")]
    let decimals = (5.0 - digits).clamp(0.0, 10.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
