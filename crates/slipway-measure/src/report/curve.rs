//! A figure over message sizes, a line for each driver, both axes logarithmic.

use super::axes::{Frame, WIDTH};
use super::palette::Look;
use super::scale::Scale;
use super::svg::{Anchor, Svg};
use crate::format;

const HEIGHT: f64 = 340.0;

/// A driver's line: (bytes, value).
#[derive(Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) look: Look,
    pub(super) points: Vec<(f64, f64)>,
}

/// The plot of `title` in `unit` over message sizes.
pub(super) fn draw(title: &str, unit: &str, curves: &[Curve]) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, &format!("{title} over message sizes"));
    let frame = Frame { left: 50.0, right: WIDTH - 82.0, top: 34.0, bottom: HEIGHT - 44.0 };
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let sizes: Vec<f64> = all().map(|point| point.0).collect();
    let values: Vec<f64> = all().map(|point| point.1).collect();
    let x = Scale::log(&sizes, frame.left, frame.right);
    let y = Scale::log(&values, frame.bottom, frame.top);
    frame.x_axis(&mut svg, &x, &x.size_ticks(), format::bytes);
    frame.y_axis(&mut svg, &y);
    frame.x_title(&mut svg, "message size");
    svg.text("title", (4.0, 14.0), Anchor::Start, &format!("{title}, {unit}"));
    let mut labels = Vec::new();
    for curve in curves {
        let line: Vec<(f64, f64)> = curve.points.iter().map(|point| (x.at(point.0), y.at(point.1))).collect();
        let Some(&(_, end)) = line.last() else { continue };
        svg.polyline(&format!("curve {}", curve.look.class()), &line);
        // A mark at every point would hide the lines: about ten on each.
        let every = curve.points.len().div_ceil(10).max(1);
        for (point, &at) in curve.points.iter().zip(&line).rev().step_by(every) {
            let hint = format!("{}, {}: {}", curve.name, format::bytes(point.0), format::quantity(point.1, unit));
            curve.look.draw(&mut svg, at, true, &hint);
        }
        labels.push((curve.look.class(), curve.name.clone(), end));
    }
    frame.end_labels(&mut svg, &labels);
    svg.finish()
}
