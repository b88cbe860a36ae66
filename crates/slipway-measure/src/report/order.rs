//! Values in the order the runs were made: shows that drivers took turns, and whether the machine drifted.

use super::axes::{Frame, WIDTH, axis_title};
use super::palette::Look;
use super::scale::Scale;
use super::svg::{Anchor, Svg};
use crate::format;

/// One run of the figure's job.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// Index into the drivers.
    pub(super) driver: usize,
    pub(super) round: u32,
    pub(super) counted: bool,
    pub(super) value: f64,
}

/// The plot. `runs`: in the order they ran.
pub(super) fn draw(title: &str, unit: &str, drivers: &[(String, Look)], runs: &[Run], height: f64) -> String {
    let mut svg = Svg::new(WIDTH, height, &format!("{title}: values in the order of the runs"));
    let frame = Frame { left: 50.0, right: WIDTH - 82.0, top: 30.0, bottom: height - 44.0 };
    let values: Vec<f64> = runs.iter().map(|run| run.value).collect();
    let scale = Scale::fit(&values, frame.bottom - 6.0, frame.top + 6.0);
    let step = (frame.right - frame.left) / runs.len().max(1) as f64;
    let x = |place: usize| frame.left + (place as f64 + 0.5) * step;
    draw_rounds(&mut svg, &frame, runs, step);
    frame.y_axis(&mut svg, &scale);
    frame.y_title(&mut svg, &axis_title(unit, &scale));
    frame.x_title(&mut svg, "rounds, in the order of the runs; hollow: warm-up");
    let mut labels = Vec::new();
    for (index, (name, look)) in drivers.iter().enumerate() {
        let own: Vec<(usize, &Run)> = runs.iter().enumerate().filter(|(_, run)| run.driver == index).collect();
        let line: Vec<(f64, f64)> = own.iter().map(|(place, run)| (x(*place), scale.at(run.value))).collect();
        let Some(&(_, end)) = line.last() else { continue };
        svg.polyline(&format!("thread {}", look.class()), &line);
        for ((_, run), at) in own.iter().zip(line) {
            let hint = format!("{name}, round {}: {}", run.round, format::quantity(run.value, unit));
            look.draw(&mut svg, at, run.counted, &hint);
        }
        labels.push((look.class(), name.clone(), end));
    }
    frame.end_labels(&mut svg, &labels);
    svg.finish()
}

/// Every other round on a darker ground, with its number below as long as there is room.
fn draw_rounds(svg: &mut Svg, frame: &Frame, runs: &[Run], step: f64) {
    let mut start = 0;
    for (number, round) in runs.chunk_by(|a, b| a.round == b.round).enumerate() {
        let (from, width) = (frame.left + start as f64 * step, round.len() as f64 * step);
        if number % 2 == 0 {
            svg.rect("round", (from, frame.top), (width, frame.bottom - frame.top), 0.0);
        }
        if width >= 14.0 {
            svg.text("tick", (from + width / 2.0, frame.bottom + 16.0), Anchor::Middle, &round[0].round.to_string());
        }
        start += round.len();
    }
}
