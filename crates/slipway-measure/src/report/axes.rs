//! Parts that plots share: size, axes, and labels at the ends of lines.

use super::scale::Scale;
use super::svg::{Anchor, Svg, shorten};
use crate::format;

/// Width of every plot. A column of the page at 1280 px is a little wider, a phone a little narrower: text stays
/// readable on both.
pub(super) const WIDTH: f64 = 480.0;

/// Characters of a driver's name that a plot has room for.
pub(super) const NAME: usize = 11;

/// Height of a line of text.
const LINE: f64 = 15.0;

/// The part of a drawing that holds marks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// Vertical grid lines with numbers below.
    pub(super) fn x_axis(&self, svg: &mut Svg, scale: &Scale, ticks: &[f64], label: impl Fn(f64) -> String) {
        for &tick in ticks {
            let x = scale.at(tick);
            svg.line("grid", (x, self.top), (x, self.bottom));
            svg.text("tick", (x, self.bottom + 16.0), Anchor::Middle, &label(tick));
        }
    }

    /// Horizontal grid lines with numbers at the left.
    pub(super) fn y_axis(&self, svg: &mut Svg, scale: &Scale) {
        for tick in scale.ticks() {
            let y = scale.at(tick);
            svg.line("grid", (self.left, y), (self.right, y));
            svg.text("tick", (self.left - 6.0, y + 4.0), Anchor::End, &tick_label(tick));
        }
    }

    /// Draws the title of the horizontal axis, below its numbers.
    pub(super) fn x_title(&self, svg: &mut Svg, title: &str) {
        svg.text("axis", (f64::midpoint(self.left, self.right), self.bottom + 34.0), Anchor::Middle, title);
    }

    /// Draws the title of the vertical axis, above it.
    pub(super) fn y_title(&self, svg: &mut Svg, title: &str) {
        svg.text("axis", (4.0, self.top - 12.0), Anchor::Start, title);
    }

    /// Names at the right of the frame, near the ends of their lines, none over another.
    pub(super) fn end_labels(&self, svg: &mut Svg, labels: &[(String, String, f64)]) {
        let wanted: Vec<f64> = labels.iter().map(|(_, _, y)| *y).collect();
        let places = spread(&wanted, LINE, self.top + 4.0, self.bottom);
        for ((class, name, _), y) in labels.iter().zip(places) {
            svg.text(&format!("end {class}"), (self.right + 9.0, y + 4.0), Anchor::Start, &shorten(name, NAME));
        }
    }
}

/// `Gb/s · logarithmic axis`.
pub(super) fn axis_title(unit: &str, scale: &Scale) -> String {
    let unit = if unit.is_empty() { "count" } else { unit };
    scale.note().map_or_else(|| unit.to_owned(), |note| format!("{unit} · {note}"))
}

/// A tick's number without needless zeros.
pub(super) fn tick_label(value: f64) -> String {
    let label = format::number(value);
    if !label.contains('.') || label.contains('e') {
        return label;
    }
    label.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Places as near to those wanted as a distance of `gap` allows, within `low` to `high` as long as there is room.
fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut places = wanted.to_vec();
    let mut next = low;
    for &i in &order {
        places[i] = places[i].max(next);
        next = places[i] + gap;
    }
    // A label that was pushed over the end comes back, and pushes its neighbours.
    let mut limit = high.max(low + gap * (wanted.len().saturating_sub(1)) as f64);
    for &i in order.iter().rev() {
        places[i] = places[i].min(limit);
        limit = places[i] - gap;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_have_no_needless_zeros() {
        assert_eq!([0.0, 5.0, 12.5, 0.05, 100.0, 1e12].map(tick_label), ["0", "5", "12.5", "0.05", "100", "1.00e12"]);
    }

    proptest! {
        #[test]
        fn labels_never_overlap(wanted in proptest::collection::vec(0.0..200.0_f64, 0..12)) {
            let mut places = spread(&wanted, 15.0, 0.0, 200.0);
            places.sort_by(f64::total_cmp);
            prop_assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 15.0 - 1e-9));
            prop_assert!(places.iter().all(|&place| (-1e-9..=200.0 + 1e-9).contains(&place)));
        }
    }
}
