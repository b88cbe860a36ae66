//! A writer of plain SVG: shapes, lines and text, every text and attribute escaped.
//!
//! The drawing is embedded in the page, so colours come from the page's style sheet by class, and follow its dark and
//! light modes.

use slipway_document::text::is_hidden;
use std::fmt::Write;

/// A drawing in the making. Lengths are in user units; the page scales the drawing to its column.
#[derive(Debug)]
pub(super) struct Svg {
    width: f64,
    height: f64,
    label: String,
    body: String,
}

/// Where a text stands relative to its point.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// `label` is what a screen reader says.
    pub(super) fn new(width: f64, height: f64, label: &str) -> Self {
        Self { width, height, label: label.to_owned(), body: String::new() }
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#));
    }

    pub(super) fn rect(&mut self, class: &str, corner: (f64, f64), size: (f64, f64), radius: f64) {
        let ((x, y), (w, h)) = (corner, size);
        self.push(format_args!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{w:.1}" height="{h:.1}" rx="{radius:.1}"/>"#
        ));
    }

    pub(super) fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut list = String::new();
        // Writing to a String cannot fail.
        for (x, y) in points {
            let _ = write!(list, "{x:.1},{y:.1} ");
        }
        self.push(format_args!(r#"<polyline class="{class}" points="{}"/>"#, list.trim_end()));
    }

    /// Many dots as one path: a small page, whatever their number.
    pub(super) fn dots(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        // Writing to a String cannot fail.
        for (x, y) in points {
            let _ = write!(path, "M{x:.1} {y:.1}h0");
        }
        self.push(format_args!(r#"<path class="{class}" d="{path}"/>"#));
    }

    /// A closed path around the origin, moved to `at`, with a text that appears when it is pointed at.
    pub(super) fn shape(&mut self, class: &str, at: (f64, f64), path: &str, hint: &str) {
        let hint = escape(hint);
        self.push(format_args!(
            r#"<path class="{class}" transform="translate({:.1} {:.1})" d="{path}"><title>{hint}</title></path>"#,
            at.0, at.1
        ));
    }

    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        self.push(format_args!(
            r#"<text class="{class}" x="{:.1}" y="{:.1}" text-anchor="{anchor}">{text}</text>"#,
            at.0, at.1
        ));
    }

    /// The drawing as an element for an HTML page.
    pub(super) fn finish(self) -> String {
        let Self { width, height, label, body } = self;
        let label = escape(&label);
        format!(r#"<svg viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="{label}">{body}</svg>"#)
    }

    fn push(&mut self, element: std::fmt::Arguments) {
        // Writing to a String cannot fail.
        let _ = self.body.write_fmt(element);
    }
}

/// Text that is text wherever it stands in HTML or SVG.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            // Not allowed in HTML text, whatever the escape.
            c if is_hidden(c) => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// At most `length` characters, the last one an ellipsis where some were cut.
pub(super) fn shorten(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    let kept: String = text.chars().take(length.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_its_text() {
        let mut svg = Svg::new(10.0, 10.0, "\"><script>");
        svg.text("t", (0.0, 0.0), Anchor::Start, "</text><script>");
        svg.shape("m", (0.0, 0.0), "M0 0", "</title>&\u{1}'");
        let drawn = svg.finish();
        assert!(!drawn.contains("<script>"));
        assert!(drawn.contains("&lt;/title&gt;&amp; &#39;"));
    }

    #[test]
    fn long_names_are_shortened() {
        assert_eq!(shorten("macvlan", 7), "macvlan");
        assert_eq!(shorten("möglichkeiten", 5), "mögl…");
    }
}
