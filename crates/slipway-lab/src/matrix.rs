//! Matrices of delays: a CSV file whose first row and first column name nodes. The node of the row sends.
//!
//! ```text
//! ms,a,b,c
//! a,,20,80
//! b,20,,75.5
//! c,80,-,
//! ```
//!
//! A cell is a time such as `20ms`; or a plain number, where the corner cell has its unit. An empty cell, or `-`, says
//! nothing about its pair.

use std::collections::HashMap;

use slipway_document::suggest;
use slipway_document::units::{Seconds, shortened};

use crate::check::LONGEST_DELAY;
use crate::id::NodeId;
use crate::model::Lab;

/// Delays between nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// Senders, one for each row, each once.
    pub senders: Vec<NodeId>,
    /// Receivers, one for each column, each once.
    pub receivers: Vec<NodeId>,
    /// Row by row, `senders.len() * receivers.len()` of them. Nothing between a node and itself.
    pub delays: Vec<Option<Seconds>>,
}

impl Matrix {
    /// The receivers of what a node sends about which the matrix says something, and the delay.
    pub fn from(&self, sender: NodeId) -> impl Iterator<Item = (NodeId, Seconds)> {
        let width = self.receivers.len();
        let row = self.senders.iter().position(|node| *node == sender);
        let cells = row.and_then(|row| self.delays.get(row * width..(row + 1) * width)).unwrap_or_default();
        self.receivers.iter().zip(cells).filter_map(|(receiver, delay)| Some((*receiver, (*delay)?)))
    }
}

/// Why a text is no matrix, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}; {help}")]
pub struct MatrixError {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The fault.
    pub what: String,
    /// The next step.
    pub help: String,
}

/// A cell, and where it stands.
#[derive(Clone, Copy)]
struct Cell<'t> {
    text: &'t str,
    line: usize,
    /// The line that it is in, and the byte of it where the cell begins.
    whole: &'t str,
    start: usize,
}

impl Cell<'_> {
    fn error(self, what: impl Into<String>, help: impl Into<String>) -> MatrixError {
        let column = self.whole[..self.start].chars().count() + 1;
        MatrixError { line: self.line, column, what: what.into(), help: help.into() }
    }
}

/// Units that the corner cell may name.
const UNITS: &str = "`us`, `ms`, `s`, `min` or `h`";

/// Reads a matrix about nodes of `lab`.
pub fn parse(text: &str, lab: &Lab) -> Result<Matrix, MatrixError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let Some((number, line)) = lines.next() else {
        let help = "write node names in the first row and the first column, and delays where they meet";
        return Err(MatrixError { line: 1, column: 1, what: "the matrix is empty".into(), help: help.into() });
    };
    let names = Names::of(lab);
    let mut header = cells(number + 1, line);
    let unit = header.next().map_or(Ok(""), unit)?;
    let receivers = header.try_fold(Vec::new(), |receivers, cell| names.add(cell, receivers))?;
    if receivers.is_empty() {
        let cell = Cell { text: line, line: number + 1, whole: line, start: line.len() };
        return Err(cell.error("no node is named here", "name nodes after the first cell, with commas between"));
    }
    let mut matrix = Matrix { senders: Vec::new(), receivers, delays: Vec::new() };
    for (number, line) in lines {
        let mut row = cells(number + 1, line);
        let Some(first) = row.next() else { continue };
        matrix.senders = names.add(first, matrix.senders)?;
        row_of(&mut matrix, first, row, unit)?;
    }
    Ok(matrix)
}

/// Cells of a line, without the space and the quotes around them.
fn cells(line: usize, whole: &str) -> impl Iterator<Item = Cell<'_>> {
    let mut start = 0;
    whole.split(',').map(move |written| {
        let spaces = written.len() - written.trim_start().len();
        let cell = Cell { text: unquoted(written.trim()), line, whole, start: start + spaces };
        start += written.len() + 1;
        cell
    })
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}

/// The unit of plain numbers; empty where there is none.
fn unit(corner: Cell<'_>) -> Result<&str, MatrixError> {
    let is_word = corner.text.chars().all(char::is_alphabetic);
    let is_unit = corner.text.is_empty() || is_word && format!("1{}", corner.text).parse::<Seconds>().is_ok();
    let help = || format!("leave it empty, or write the unit of plain numbers: {UNITS}; commas stand between cells");
    if is_unit { Ok(corner.text) } else { Err(corner.error("the first cell is no unit of time", help())) }
}

/// The lab's nodes by name.
struct Names<'l> {
    lab: &'l Lab,
    index: HashMap<&'l str, NodeId>,
}

impl<'l> Names<'l> {
    fn of(lab: &'l Lab) -> Self {
        Self { lab, index: lab.nodes.enumerate().map(|(index, node)| (node.name.as_str(), index)).collect() }
    }

    /// The nodes that were named before, and this one.
    fn add(&self, cell: Cell<'_>, mut before: Vec<NodeId>) -> Result<Vec<NodeId>, MatrixError> {
        let Some(&node) = self.index.get(cell.text) else {
            let known: Vec<_> = self.lab.nodes.iter().map(|node| &node.name).collect();
            let what = format!("there is no node `{}`", shortened(cell.text));
            return Err(cell.error(what, suggest(cell.text, &known)));
        };
        if before.contains(&node) {
            return Err(cell.error(format!("`{}` is here twice", cell.text), "name every node once"));
        }
        before.push(node);
        Ok(before)
    }
}

/// Reads the cells of the row that `first` begins.
fn row_of<'t>(
    matrix: &mut Matrix,
    first: Cell<'t>,
    row: impl Iterator<Item = Cell<'t>>,
    unit: &str,
) -> Result<(), MatrixError> {
    let sender = matrix.senders.last().copied();
    let width = matrix.receivers.len();
    let mut count = 0;
    for cell in row {
        let Some(receiver) = matrix.receivers.get(count) else {
            let what = format!("the row has more cells than the {width} nodes of the first row");
            return Err(cell.error(what, "take it out, or name one more node in the first row"));
        };
        let delay = delay(cell, unit)?;
        let itself = sender == Some(*receiver);
        if itself && delay.is_some_and(|delay| delay.0 > 0.0) {
            return Err(cell.error("a node has no link to itself", "leave the cell empty, or write `-` or 0"));
        }
        matrix.delays.push(delay.filter(|_| !itself));
        count += 1;
    }
    if count < width {
        let end = Cell { start: first.whole.len(), ..first };
        let what = format!("the row has {count} of {width} cells");
        return Err(end.error(what, "write `-` in a cell that says nothing"));
    }
    Ok(())
}

fn delay(cell: Cell<'_>, unit: &str) -> Result<Option<Seconds>, MatrixError> {
    if matches!(cell.text, "" | "-") {
        return Ok(None);
    }
    let plain = cell.text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let read = match (plain, unit) {
        // Nothing needs no unit.
        (true, "") if cell.text == "0" => Ok(Seconds(0.0)),
        (true, unit) => format!("{}{unit}", cell.text).parse(),
        (false, _) => cell.text.parse::<Seconds>(),
    };
    match read {
        Ok(delay) if delay > LONGEST_DELAY => {
            Err(cell.error(format!("a delay of {delay} is longer than any link's"), "write at most `1h`"))
        }
        Ok(delay) => Ok(Some(delay)),
        Err(error) => {
            let text = error.to_string();
            let what = text.split_once("; ").map_or(text.as_str(), |(what, _)| what);
            let help = if plain {
                format!("write for example `20ms`, or the unit of all numbers in the first cell: {UNITS}")
            } else {
                "write a time such as `20ms` or `1.5s`, or `-` for none".to_owned()
            };
            Err(cell.error(what, help))
        }
    }
}
