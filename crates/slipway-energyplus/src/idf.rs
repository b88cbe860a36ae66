//! Objects and fields of a model's text, where they stand.
//!
//! An object is its class and its fields, with `,` between them and `;` at the end. `!` begins a comment that ends with the
//! line. A comment `!- Thickness {m}` after the one field of a line is the field's name: EnergyPlus' own editor, OpenStudio
//! and most other programs write these. Both IDF (EnergyPlus) and OSM (OpenStudio) have this form.

use std::ops::Range;

use slipway_document::suggest;

use crate::path::{Field, Path, Which};

/// Largest model in bytes.
pub const LARGEST: usize = 64 << 20;
/// Most names that an error lists.
const SHOWN: usize = 8;

/// The reason why a model cannot be read or edited. Each is a clause for a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdfError {
    /// The text is larger than any model.
    #[error("it is larger than {} MiB", LARGEST >> 20)]
    Large,
    /// An object does not end.
    #[error("line {line}: the object `{class}` has no `;` at its end")]
    Open {
        /// The object's first line, from 1.
        line: usize,
        /// Its class, as far as it is one.
        class: String,
    },
    /// An object without class.
    #[error("line {0}: an object without class")]
    NoClass(usize),
    /// There is no object of the class.
    #[error("`{path}`: the model has no `{class}`{hint}")]
    Class {
        /// The path.
        path: String,
        /// The class.
        class: String,
        /// A line with the next step.
        hint: String,
    },
    /// There is no such object.
    #[error("`{path}`: the model has no `{class}` of that name{hint}")]
    Object {
        /// The path.
        path: String,
        /// The class.
        class: String,
        /// A line with the next step.
        hint: String,
    },
    /// Several objects where one was meant.
    #[error("`{path}`: the model has {count} `{class}`\nHint: name one (`{class}/NAME/…`), or all (`{class}/*/…`)")]
    Several {
        /// The path.
        path: String,
        /// The class.
        class: String,
        /// Their number.
        count: usize,
    },
    /// There is no such field.
    #[error("`{path}`: line {line}: the object has no such field{hint}")]
    Field {
        /// The path.
        path: String,
        /// The object's line.
        line: usize,
        /// A line with the next step.
        hint: String,
    },
    /// A field that another path sets too.
    #[error("`{0}`: another path sets the same field\nHint: keep one of the two")]
    Twice(String),
    /// A value that would not be one field.
    #[error("`{path}`: the value `{value}` cannot be in a model: it has a comma, a semicolon, a comment or a new line")]
    Value {
        /// The path.
        path: String,
        /// The value.
        value: String,
    },
}

/// A model's text with its objects.
#[derive(Debug, Clone)]
pub struct Idf {
    text: String,
    objects: Vec<Object>,
}

/// An object of a model: places in its text.
#[derive(Debug, Clone)]
pub struct Object {
    class: Range<usize>,
    fields: Vec<Place>,
    line: usize,
    /// Behind the `;`.
    end: usize,
}

/// A field of an object.
#[derive(Debug, Clone)]
struct Place {
    value: Range<usize>,
    /// The name that a comment gives.
    name: Option<Range<usize>>,
}

impl Idf {
    /// Reads a model.
    ///
    /// # Errors
    /// With the line of an object that is none.
    pub fn parse(text: String) -> Result<Self, IdfError> {
        if text.len() > LARGEST {
            return Err(IdfError::Large);
        }
        let objects = objects(&text)?;
        Ok(Self { text, objects })
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The objects of a class, whatever its case.
    pub fn of_class<'a>(&'a self, class: &'a str) -> impl Iterator<Item = &'a Object> {
        self.objects.iter().filter(move |object| same(&self.text[object.class.clone()], class))
    }

    /// The field of an object by its number, from 1.
    #[must_use]
    pub fn field(&self, object: &Object, number: usize) -> Option<&str> {
        Some(&self.text[object.fields.get(number.checked_sub(1)?)?.value.clone()])
    }

    /// The version that the model is written for: `25.2`.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        let version = self.of_class("Version").next()?;
        self.field(version, 1)
    }

    /// The places of the fields that a path names: at least one.
    ///
    /// # Errors
    /// Where the model has no such field.
    pub fn find(&self, path: &Path) -> Result<Vec<Range<usize>>, IdfError> {
        let shown = || path.to_string();
        let class = || path.class.clone();
        let all: Vec<&Object> = self.of_class(&path.class).collect();
        if all.is_empty() {
            let classes = self.objects.iter().map(|object| self.text[object.class.clone()].to_owned());
            return Err(IdfError::Class { path: shown(), class: class(), hint: next(&path.class, classes) });
        }
        let found: Vec<&Object> = match &path.object {
            Which::All => all,
            Which::Only if all.len() == 1 => all,
            Which::Only => return Err(IdfError::Several { path: shown(), class: class(), count: all.len() }),
            Which::Named(name) => {
                let named: Vec<&Object> =
                    all.iter().copied().filter(|object| self.name(object).is_some_and(|own| same(own, name))).collect();
                match named.len() {
                    0 => {
                        let known = all.iter().filter_map(|object| self.name(object)).map(str::to_owned);
                        return Err(IdfError::Object { path: shown(), class: class(), hint: next(name, known) });
                    }
                    1 => named,
                    count => return Err(IdfError::Several { path: shown(), class: class(), count }),
                }
            }
        };
        found.into_iter().map(|object| self.place(path, object)).collect()
    }

    /// The places of each path's fields.
    ///
    /// # Errors
    /// Where the model has no such field, or two paths lead to one.
    pub fn find_all<'a>(&self, paths: impl Iterator<Item = &'a Path>) -> Result<Vec<Vec<Range<usize>>>, IdfError> {
        let mut found: Vec<Vec<Range<usize>>> = Vec::new();
        for path in paths {
            let places = self.find(path)?;
            // An empty field's place is empty, and still the field's own.
            if found.iter().flatten().any(|place| places.contains(place)) {
                return Err(IdfError::Twice(path.to_string()));
            }
            found.push(places);
        }
        Ok(found)
    }

    /// The text with other values at some places of it. Places do not overlap.
    #[must_use]
    pub fn with(&self, mut changes: Vec<(Range<usize>, String)>) -> String {
        changes.sort_by_key(|(place, _)| place.start);
        let mut text = String::with_capacity(self.text.len() + 64);
        let mut done = 0;
        for (place, value) in changes {
            text.push_str(&self.text[done..place.start]);
            text.push_str(&value);
            done = place.end;
        }
        text.push_str(&self.text[done..]);
        text
    }

    /// The place of a whole object, from its class to its `;`.
    pub(crate) fn whole(object: &Object) -> Range<usize> {
        object.class.start..object.end
    }

    pub(crate) fn value_place(object: &Object, number: usize) -> Option<Range<usize>> {
        object.fields.get(number.checked_sub(1)?).map(|field| field.value.clone())
    }

    /// The object's name: the field that a comment calls so, or else its first. OpenStudio's first is a handle.
    fn name(&self, object: &Object) -> Option<&str> {
        let called = |field: &&Place| field.name.clone().is_some_and(|name| same(plain(&self.text[name]), "Name"));
        let field = object.fields.iter().find(called).or_else(|| object.fields.first())?;
        Some(&self.text[field.value.clone()])
    }

    fn place(&self, path: &Path, object: &Object) -> Result<Range<usize>, IdfError> {
        let named = |field: &Place| field.name.clone().map(|name| plain(&self.text[name]));
        let found = match &path.field {
            Field::Number(number) => object.fields.get(number - 1),
            Field::Name(name) => object.fields.iter().find(|field| named(field).is_some_and(|own| same(own, name))),
        };
        found.map(|field| field.value.clone()).ok_or_else(|| {
            let known: Vec<String> = object.fields.iter().filter_map(named).map(str::to_owned).collect();
            let hint = match &path.field {
                Field::Name(_) if known.is_empty() => {
                    "\nHint: the model has no comments with names here; write the field's number".to_owned()
                }
                Field::Name(name) => next(name, known.into_iter()),
                Field::Number(_) => format!("\nHint: it has {}", object.fields.len()),
            };
            IdfError::Field { path: path.to_string(), line: object.line, hint }
        })
    }
}

/// Whether a text can be a field's value: it has nothing that ends one.
#[must_use]
pub fn is_value(text: &str) -> bool {
    !text.contains([',', ';', '!']) && !text.contains(char::is_control)
}

/// Checks a value for the fields that a path names.
///
/// # Errors
/// With the path, where the value would end the field.
pub fn check_value(path: &impl ToString, value: &str) -> Result<(), IdfError> {
    if is_value(value) {
        return Ok(());
    }
    Err(IdfError::Value { path: path.to_string(), value: value.escape_debug().take(80).collect() })
}

/// The next step after a name that is not there.
fn next(name: &str, known: impl Iterator<Item = String>) -> String {
    let mut known: Vec<String> = known.collect();
    known.sort_unstable();
    known.dedup();
    if known.len() <= SHOWN {
        return format!("\nHint: it has {}", known.join(", "));
    }
    // Names that share a word come first where nothing is near.
    let near = suggest(name, &known);
    format!("\nHint: {near}")
}

/// Class and names do not depend on case.
fn same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// A comment's name without its unit.
fn plain(name: &str) -> &str {
    name.split('{').next().unwrap_or(name).trim()
}

fn objects(text: &str) -> Result<Vec<Object>, IdfError> {
    let mut objects = Vec::new();
    let mut open: Option<Object> = None;
    // Where the text of the class or field that is being read begins and ends, without spaces around it.
    let mut current: Option<Range<usize>> = None;
    let mut start = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let (code, comment) = match line.find('!') {
            Some(at) => (&line[..at], Some(start + at)),
            None => (line, None),
        };
        let mut ended = 0;
        let mut at = start;
        for piece in code.split_inclusive([',', ';']) {
            let ends = piece.ends_with([',', ';']);
            let content = if ends { &piece[..piece.len() - 1] } else { piece };
            let trimmed = content.trim();
            if !trimmed.is_empty() {
                let from = at + (content.len() - content.trim_start().len());
                let begins = current.as_ref().map_or(from, |current| current.start);
                current = Some(begins..from + trimmed.len());
            }
            if ends {
                // An empty field stands right before its separator.
                let place = current.take().unwrap_or(at + content.len()..at + content.len());
                match &mut open {
                    None if place.is_empty() => return Err(IdfError::NoClass(number + 1)),
                    None => open = Some(Object { class: place, fields: Vec::new(), line: number + 1, end: 0 }),
                    Some(object) => {
                        object.fields.push(Place { value: place, name: None });
                        ended += 1;
                    }
                }
                if piece.ends_with(';')
                    && let Some(object) = open.take()
                {
                    objects.push(Object { end: at + piece.len(), ..object });
                }
            }
            at += piece.len();
        }
        if ended == 1
            && let Some(comment) = comment
            && let Some(name) = text[comment..start + line.len()].strip_prefix("!-")
        {
            let from = comment + 2 + (name.len() - name.trim_start().len());
            let of = if open.as_ref().is_some_and(|object| !object.fields.is_empty()) {
                open.as_mut()
            } else {
                objects.last_mut()
            };
            if let Some(field) = of.and_then(|object| object.fields.last_mut()) {
                field.name = Some(from..from + name.trim().len());
            }
        }
        start += line.len();
    }
    let left = |class: &Range<usize>| text[class.clone()].chars().take(40).collect::<String>();
    match (open, current) {
        (Some(object), _) => Err(IdfError::Open { line: object.line, class: left(&object.class) }),
        (None, Some(rest)) => {
            let line = text[..rest.start].matches('\n').count() + 1;
            Err(IdfError::Open { line, class: left(&rest) })
        }
        (None, None) => Ok(objects),
    }
}
