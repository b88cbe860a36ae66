//! The errors of a file: all at once, each with its place, the line and the next step.

use std::fmt;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, NamedSource, Severity, SourceCode};
use serde::Serialize;

use crate::text::is_hidden;

/// A range of bytes of the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

/// Errors as they are found, before they have the file's text beside them.
#[derive(Debug, Default)]
pub struct Report(Vec<Found>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    at: Span,
    message: String,
    help: String,
}

impl Report {
    /// Enough to repair a file by; a file of another kind ends here too.
    const MOST: usize = 50;

    /// `message` says what is wrong, `help` what to do about it.
    pub fn add(&mut self, at: Span, message: impl Into<String>, help: impl Into<String>) {
        if !self.is_full() {
            self.0.push(Found { at, message: message.into(), help: help.into() });
        }
    }

    /// True where there is no error.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of errors so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether further errors are left out.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.len() >= Self::MOST
    }

    /// Whether an error lies within `whole`, so that what was read there is not what was written.
    #[must_use]
    pub fn touches(&self, whole: Span) -> bool {
        self.0.iter().any(|found| whole.start <= found.at.start && found.at.start < whole.end)
    }

    /// The finished errors, in file order, each once.
    #[must_use]
    pub fn finish(mut self, file: &str, text: &str) -> DocumentErrors {
        self.0.sort();
        self.0.dedup();
        let text: String = text.chars().map(harmless).collect();
        let lines = LineStarts::of(&text);
        let source = Arc::new(NamedSource::new(file, text.clone()).with_language("yaml"));
        let errors = self.0.into_iter().map(|found| DocumentError::new(found, file, &text, &lines, &source)).collect();
        DocumentErrors { file: file.to_owned(), errors }
    }
}

/// All errors of a file, in the order of their places.
///
/// As a [`Diagnostic`] they render with the file's text around them; [`plain`](Self::plain) is for logs; serialised they
/// are a list.
#[derive(Debug, Clone, Serialize)]
pub struct DocumentErrors {
    file: String,
    errors: Vec<DocumentError>,
}

impl DocumentErrors {
    /// The errors; at least one.
    #[must_use]
    pub fn errors(&self) -> &[DocumentError] {
        &self.errors
    }
}

/// One error of a file.
#[derive(Debug, Clone, Serialize)]
pub struct DocumentError {
    /// The file's name as given to [`Report::finish`].
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The line, shortened around the column where it is very long.
    pub text: String,
    /// The fault.
    pub message: String,
    /// The next step.
    pub help: String,
    /// Characters of `text` before the place, and characters that are meant.
    #[serde(skip)]
    caret: (usize, usize),
    #[serde(skip)]
    span: Span,
    #[serde(skip)]
    source: Arc<NamedSource<String>>,
}

impl DocumentError {
    /// A shown line is at most this long (characters); the rest of a longer one says nothing about the error.
    const WIDTH: usize = 120;

    fn new(mut found: Found, file: &str, text: &str, lines: &LineStarts, source: &Arc<NamedSource<String>>) -> Self {
        // A place may have been reckoned, and letters are longer than a byte.
        found.at.start = text.floor_char_boundary(found.at.start);
        found.at.end = text.ceil_char_boundary(found.at.end.max(found.at.start));
        let (line, start) = lines.before(found.at.start);
        let whole = text[start..].split(['\n', '\r']).next().unwrap_or("");
        let column = text[start..found.at.start].chars().count();
        let is_long = whole.chars().nth(Self::WIDTH).is_some();
        let first = if is_long { column.saturating_sub(Self::WIDTH / 2) } else { 0 };
        let shown: String = whole.chars().skip(first).take(Self::WIDTH).collect();
        let meant = text[found.at.start..found.at.end].split(['\n', '\r']).next().unwrap_or("").chars().count();
        let length = meant.min(shown.chars().count().saturating_sub(column - first)).max(1);
        Self {
            file: file.to_owned(),
            line,
            column: column + 1,
            text: shown,
            message: found.message.chars().map(harmless).collect(),
            help: found.help.chars().map(harmless).collect(),
            caret: (column - first, length),
            span: found.at,
            source: Arc::clone(source),
        }
    }
}

/// A file cannot steer the reader's terminal through an error message. The replacement has the same length in bytes, so
/// that places stay.
fn harmless(c: char) -> char {
    match c {
        '\n' | '\r' | '\t' => c,
        c if !is_hidden(c) => c,
        c => match c.len_utf8() {
            1 => '?',
            2 => '¿',
            3 => '\u{fffd}',
            _ => '🚫',
        },
    }
}

impl DocumentErrors {
    /// For logs and pipes: `file:line:column: message`, the line with a caret, the help; a blank line between errors.
    #[must_use]
    pub fn plain(&self) -> String {
        self.errors.iter().map(DocumentError::plain).collect::<Vec<_>>().join("\n")
    }
}

impl DocumentError {
    fn plain(&self) -> String {
        let Self { file, line, column, text, message, help, .. } = self;
        let (before, length) = self.caret;
        // Tabs stay tabs, so that the caret stands under its character whatever the terminal makes of them.
        let pad: String = text.chars().take(before).map(|c| if c == '\t' { c } else { ' ' }).collect();
        let gutter = " ".repeat(line.to_string().len());
        let caret = "^".repeat(length);
        format!("{file}:{line}:{column}: {message}\n  {line} | {text}\n  {gutter} | {pad}{caret}\n  help: {help}\n")
    }
}

impl fmt::Display for DocumentErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors.len() {
            1 => write!(f, "{} has an error", self.file),
            n => write!(f, "{} has {n} errors", self.file),
        }
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DocumentErrors {}
impl std::error::Error for DocumentError {}

impl Diagnostic for DocumentErrors {
    fn severity(&self) -> Option<Severity> {
        Some(Severity::Error)
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(self.errors.iter().map(|error| error as &dyn Diagnostic)))
    }
}

impl Diagnostic for DocumentError {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.help))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&*self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let length = self.span.end - self.span.start;
        Some(Box::new(std::iter::once(LabeledSpan::new(None, self.span.start, length))))
    }
}

/// Where lines begin, so that many errors in one file do not scan it once each.
struct LineStarts(Vec<usize>);

impl LineStarts {
    fn of(text: &str) -> Self {
        Self(std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }

    /// The line that holds byte `at`: its number from 1, and its first byte.
    fn before(&self, at: usize) -> (usize, usize) {
        let line = self.0.partition_point(|start| *start <= at);
        (line, self.0[line - 1])
    }
}
