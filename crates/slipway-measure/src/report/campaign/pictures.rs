//! The drawings of a campaign's page.

use super::{Bars, Campaign, Output, Scatter, Time, Unit};
use crate::report::axes::{Frame, NAME, WIDTH, axis_title, tick_label};
use crate::report::scale::Scale;
use crate::report::svg::{Anchor, Svg, shorten};

const HEIGHT: f64 = 270.0;
/// Space for names at the left of bars.
const NAMES: f64 = 130.0;
const ROW: f64 = 22.0;
/// Bars of a histogram.
const MOST_BINS: usize = 40;
/// Rows of bars; more are in the table.
const MOST_ROWS: usize = 30;

fn frame() -> Frame {
    Frame { left: 52.0, right: WIDTH - 14.0, top: 34.0, bottom: HEIGHT - 44.0 }
}

/// Results over time.
pub(super) fn progress(campaign: &Campaign, unit: Unit) -> String {
    let label = format!("{}: results over time", campaign.name);
    let mut svg = Svg::new(WIDTH, HEIGHT, &label);
    let frame = frame();
    let times: Vec<f64> = campaign.progress.iter().map(|(at, _)| at / unit.seconds).collect();
    let x = Scale::fit_linear(&with_zero(&times), frame.left, frame.right);
    let counts: Vec<f64> = campaign.progress.iter().map(|(_, count)| *count).collect();
    let y = Scale::fit_linear(&with_zero(&counts), frame.bottom, frame.top);
    frame.x_axis(&mut svg, &x, &x.ticks(), tick_label);
    frame.y_axis(&mut svg, &y);
    frame.y_title(&mut svg, "results");
    frame.x_title(&mut svg, &format!("{} of runs", unit.name));
    for at in &campaign.breaks {
        let at = x.at(at / unit.seconds);
        svg.line("reference", (at, frame.top), (at, frame.bottom));
    }
    let line: Vec<(f64, f64)> =
        campaign.progress.iter().map(|(at, count)| (x.at(at / unit.seconds), y.at(*count))).collect();
    svg.polyline("curve c1", &line);
    svg.finish()
}

/// Time of workers beside that of a fixed number of them.
pub(super) fn time(time: Time, unit: Unit) -> String {
    let mut svg = Svg::new(WIDTH, 150.0, "Time of workers: for results, lost and idle, beside that of a fixed number");
    let frame = Frame { left: NAMES, right: WIDTH - 14.0, top: 20.0, bottom: 106.0 };
    let all = time.used + time.lost + time.idle;
    let x = Scale::fit_linear(&[0.0, all.max(time.fixed) / unit.seconds], frame.left, frame.right);
    frame.x_axis(&mut svg, &x, &x.ticks(), tick_label);
    frame.x_title(&mut svg, &format!("{} of workers", unit.name));
    let mut from = 0.0;
    for (class, seconds) in [("fill c3", time.used), ("fill c4", time.lost), ("fill c2", time.idle)] {
        let to = from + seconds / unit.seconds;
        svg.rect(class, (x.at(from), 30.0), (x.at(to) - x.at(from), 26.0), 0.0);
        from = to;
    }
    svg.rect("fill c7", (x.at(0.0), 70.0), (x.at(time.fixed / unit.seconds) - x.at(0.0), 26.0), 0.0);
    svg.text("value", (NAMES - 8.0, 48.0), Anchor::End, "these workers");
    svg.text("value", (NAMES - 8.0, 88.0), Anchor::End, "a fixed number");
    svg.finish()
}

/// Points that failed, by kind.
pub(super) fn failures(kinds: &[(String, u64)]) -> String {
    if kinds.is_empty() {
        return String::new();
    }
    let values: Vec<f64> = kinds.iter().map(|(_, count)| *count as f64).collect();
    let mut svg = Svg::new(WIDTH, kinds.len() as f64 * ROW + 64.0, "Points that failed, by kind of failure");
    let frame = Frame { left: NAMES, right: WIDTH - 50.0, top: 14.0, bottom: 20.0 + kinds.len() as f64 * ROW };
    let x = Scale::fit_linear(&with_zero(&values), frame.left, frame.right);
    frame.x_axis(&mut svg, &x, &x.ticks(), tick_label);
    frame.x_title(&mut svg, "points");
    for (row, (kind, count)) in kinds.iter().enumerate() {
        let y = 18.0 + row as f64 * ROW;
        let end = x.at(*count as f64);
        svg.rect("fill c4", (frame.left, y), ((end - frame.left).max(1.0), ROW - 8.0), 2.0);
        svg.text("value", (frame.left - 8.0, y + 11.0), Anchor::End, &shorten(kind, NAME + 6));
        svg.text("value", (end + 6.0, y + 11.0), Anchor::Start, &count.to_string());
    }
    svg.finish()
}

/// How often an output has which values.
pub(super) fn histogram(output: &Output) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, &format!("{}: how often each value came", output.name));
    let frame = frame();
    let (low, high) = output
        .values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)));
    let bins = bins(&output.values, low, high);
    let most = bins.iter().copied().max().unwrap_or(0) as f64;
    let x = Scale::fit_linear(&[low, high], frame.left, frame.right);
    let y = Scale::fit_linear(&[0.0, most], frame.bottom, frame.top);
    frame.x_axis(&mut svg, &x, &x.ticks(), tick_label);
    frame.y_axis(&mut svg, &y);
    frame.y_title(&mut svg, "results");
    frame.x_title(&mut svg, &named(&output.name, &output.unit));
    let width = (high - low) / bins.len() as f64;
    for (number, count) in bins.iter().enumerate() {
        let (from, to) = (x.at(low + number as f64 * width), x.at(low + (number + 1) as f64 * width));
        let top = y.at(*count as f64);
        svg.rect("fill c1", (from, top), ((to - from - 1.0).max(1.0), frame.bottom - top), 0.0);
    }
    svg.finish()
}

/// Counts of values in intervals of equal width. Their number follows Rice's rule: twice the cube root.
fn bins(values: &[f64], low: f64, high: f64) -> Vec<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cube root, from 0")]
    let wanted = (2.0 * (values.len() as f64).cbrt()).ceil() as usize;
    let mut bins = vec![0; wanted.clamp(1, MOST_BINS)];
    let last = bins.len() - 1;
    for value in values {
        let share = (value - low) / (high - low);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a saturating cast of a share")]
        let bin = (share * (last + 1) as f64) as usize;
        bins[bin.min(last)] += 1;
    }
    bins
}

/// An output against a variable.
pub(super) fn scatter(output: &Output, scatter: &Scatter, most: usize) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, &format!("{} against {}", output.name, scatter.variable));
    let frame = frame();
    let values: Vec<f64> = scatter.points.iter().map(|(_, result)| *result).collect();
    let inputs: Vec<f64> = scatter.points.iter().map(|(input, _)| *input).collect();
    let y = Scale::near(&values, frame.bottom, frame.top);
    let x = if scatter.words.is_empty() {
        let x = Scale::near(&inputs, frame.left, frame.right);
        frame.x_axis(&mut svg, &x, &x.ticks(), tick_label);
        x
    } else {
        let last = scatter.words.len() as f64 - 0.5;
        let x = Scale::exactly(-0.5, last, frame.left, frame.right);
        let ticks: Vec<f64> = (0..scatter.words.len()).map(|word| word as f64).collect();
        frame.x_axis(&mut svg, &x, &ticks, |tick| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the list")]
            shorten(&scatter.words[tick as usize], NAME)
        });
        x
    };
    frame.y_axis(&mut svg, &y);
    frame.y_title(&mut svg, &axis_title(&named(&output.name, &output.unit), &y));
    frame.x_title(&mut svg, &scatter.variable);
    let every = scatter.points.len().div_ceil(most).max(1);
    let dots = scatter.points.iter().step_by(every).map(|(input, result)| (x.at(*input), y.at(*result)));
    svg.dots("dots c1", dots);
    svg.finish()
}

/// Measures of sensitivity, the greatest first.
pub(super) fn bars(name: &str, bars: &Bars) -> String {
    let rows: Vec<_> = bars.rows.iter().take(MOST_ROWS).collect();
    let each = ROW * bars.measures.len().max(1) as f64 * 0.7 + 8.0;
    let bottom = 24.0 + rows.len() as f64 * each;
    let mut svg = Svg::new(WIDTH, bottom + 44.0, &format!("{name}: how much each variable matters"));
    let frame = Frame { left: NAMES, right: WIDTH - 14.0, top: 18.0, bottom };
    let all = rows.iter().flat_map(|(_, row)| row.iter().flatten());
    let ends = all.flat_map(|(value, interval)| {
        let (low, high) = interval.unwrap_or((*value, *value));
        [*value, low, high]
    });
    let x = Scale::fit_linear(&with_zero(&ends.collect::<Vec<_>>()), frame.left, frame.right);
    frame.x_axis(&mut svg, &x, &x.ticks(), tick_label);
    frame.x_title(&mut svg, "value, with its 95 % interval");
    for (number, (variable, row)) in rows.iter().enumerate() {
        let top = 22.0 + number as f64 * each;
        svg.text("value", (NAMES - 8.0, top + each / 2.0), Anchor::End, &shorten(variable, NAME + 6));
        for (measure, bar) in row.iter().enumerate() {
            let Some((value, interval)) = bar else { continue };
            let y = top + measure as f64 * ROW * 0.7;
            let (zero, end) = (x.at(0.0), x.at(*value));
            let class = format!("fill c{}", 1 + measure % 2 * 2);
            svg.rect(&class, (zero.min(end), y), ((end - zero).abs().max(1.0), ROW * 0.55), 1.0);
            if let Some((low, high)) = interval {
                let middle = y + ROW * 0.275;
                svg.line("whisker", (x.at(*low), middle), (x.at(*high), middle));
            }
        }
    }
    svg.line("reference", (x.at(0.0), frame.top), (x.at(0.0), frame.bottom));
    svg.finish()
}

fn named(name: &str, unit: &str) -> String {
    if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") }
}

fn with_zero(values: &[f64]) -> Vec<f64> {
    values.iter().copied().chain([0.0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_bin() {
        for values in [vec![], vec![3.0], vec![2.0; 9], (0..1000).map(f64::from).collect()] {
            let (low, high) =
                values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high): (f64, f64), value| {
                    (low.min(*value), high.max(*value))
                });
            let bins = bins(&values, low, high);
            assert_eq!(bins.iter().sum::<u64>(), values.len() as u64);
            assert!(bins.len() <= MOST_BINS);
        }
    }
}
