//! Text of others in tables of Markdown.

use slipway_document::text::is_hidden;

/// A row of a table.
pub(crate) fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Text that cannot end a cell or a line, nor start HTML or emphasis.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' => escaped.extend(['\\', c]),
            '<' => escaped += "&lt;",
            '&' => escaped += "&amp;",
            c if is_hidden(c) => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
