//! Every run as a dot, a row for each driver, with median and interval.

use super::axes::{Frame, NAME, WIDTH, axis_title, tick_label};
use super::palette::Look;
use super::scale::Scale;
use super::svg::{Anchor, Svg, shorten};
use crate::format;
use crate::stats::Estimate;

const ROW: f64 = 40.0;
/// Room for the title of the axis, as in the plot beside it.
const TOP: f64 = 30.0;

/// A driver's row.
#[derive(Debug)]
pub(super) struct Strip {
    pub(super) name: String,
    pub(super) look: Look,
    /// Counted values, in the order they ran.
    pub(super) values: Vec<f64>,
    pub(super) estimate: Estimate,
}

/// The height of a plot with so many rows; other plots beside it take the same.
pub(super) fn height(rows: usize) -> f64 {
    rows as f64 * ROW + TOP + 44.0
}

/// The plot. `reference` is the baseline's median, drawn through all rows.
pub(super) fn draw(title: &str, unit: &str, strips: &[Strip], reference: Option<f64>) -> String {
    let mut svg = Svg::new(WIDTH, height(strips.len()), &format!("{title}: every run under each driver"));
    let frame = Frame { left: 92.0, right: WIDTH - 74.0, top: TOP, bottom: TOP + strips.len() as f64 * ROW };
    let all: Vec<f64> = strips.iter().flat_map(|strip| &strip.values).copied().collect();
    let scale = Scale::fit(&all, frame.left + 6.0, frame.right - 6.0);
    frame.x_axis(&mut svg, &scale, &scale.ticks(), tick_label);
    frame.x_title(&mut svg, &axis_title(unit, &scale));
    svg.text("axis", (WIDTH - 2.0, frame.top - 12.0), Anchor::End, "median");
    if let Some(reference) = reference {
        let x = scale.at(reference);
        svg.line("reference", (x, frame.top), (x, frame.bottom));
    }
    for (number, strip) in strips.iter().enumerate() {
        let middle = frame.top + (number as f64 + 0.5) * ROW;
        draw_row(&mut svg, &frame, &scale, strip, unit, middle);
    }
    svg.finish()
}

fn draw_row(svg: &mut Svg, frame: &Frame, scale: &Scale, strip: &Strip, unit: &str, middle: f64) {
    let class = strip.look.class();
    let Estimate { median, low, high } = strip.estimate;
    svg.text(&format!("end {class}"), (frame.left - 10.0, middle + 4.0), Anchor::End, &shorten(&strip.name, NAME));
    let (from, to) = (scale.at(low), scale.at(high));
    svg.rect(&format!("band {class}"), (from - 1.0, middle - 14.0), (to - from + 2.0, 28.0), 3.0);
    for (run, &value) in strip.values.iter().enumerate() {
        // Equal values must not hide each other: the golden ratio spreads runs over the height of the row.
        let offset = ((run as f64 * 0.618_034).fract() - 0.5) * 16.0;
        let hint = format!("{}, run {}: {}", strip.name, run + 1, format::quantity(value, unit));
        strip.look.draw(svg, (scale.at(value), middle + offset), true, &hint);
    }
    let x = scale.at(median);
    svg.line(&format!("median {class}"), (x, middle - 16.0), (x, middle + 16.0));
    svg.text("value", (WIDTH - 2.0, middle + 4.0), Anchor::End, &format::number(median));
}
