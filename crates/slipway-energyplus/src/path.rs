//! Paths of fields in a model: `Class/Object/Field`.

use std::fmt;

/// A field of one object or of several.
///
/// `Material/Insulation/Thickness` is a field of the object with this name. `Lights/*/Watts per Floor Area` is the field of
/// all objects of the class, and `SimulationControl/Timestep` that of a class's only object. The field is a name, as the
/// model's comments have it, or a number from 1, where the name counts as the first field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// The class, as in `Material`.
    pub class: String,
    /// The objects.
    pub object: Which,
    /// The field.
    pub field: Field,
}

/// Objects of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The class's only object.
    Only,
    /// All objects of the class.
    All,
    /// The object with this name.
    Named(String),
}

/// A field of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// By its number, from 1.
    Number(usize),
    /// By the name in the model's comments.
    Name(String),
}

impl Path {
    /// Reads a path. An object's name may contain `/`: the class ends at the first, and the field begins after the last.
    ///
    /// # Errors
    /// Where a part is missing or could not be in a model; the error is a clause for a message.
    pub fn read(text: &str) -> Result<Self, &'static str> {
        if text.contains([',', ';', '!', '\n', '\r']) {
            return Err("a path has no `,`, `;` or `!`");
        }
        let (class, rest) = text.split_once('/').ok_or("a path is `Class/Object/Field`")?;
        let (object, field) = match rest.rsplit_once('/') {
            None => (Which::Only, rest),
            Some((object, field)) if object.trim() == "*" => (Which::All, field),
            Some((object, field)) => (Which::Named(object.trim().to_owned()), field),
        };
        let (class, field) = (class.trim().to_owned(), field.trim());
        if class.is_empty() || field.is_empty() || object == Which::Named(String::new()) {
            return Err("a path is `Class/Object/Field`, and no part is empty");
        }
        let field = match field.parse() {
            Ok(0) => return Err("fields count from 1"),
            Ok(number) => Field::Number(number),
            Err(_) => Field::Name(field.to_owned()),
        };
        Ok(Self { class, object, field })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.class)?;
        match &self.object {
            Which::Only => {}
            Which::All => f.write_str("*/")?,
            Which::Named(name) => write!(f, "{name}/")?,
        }
        match &self.field {
            Field::Number(number) => write!(f, "{number}"),
            Field::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_back() {
        for text in ["Material/Wall / outer/Thickness", "Lights/*/11", "SimulationControl/Do Zone Sizing Calculation"] {
            assert_eq!(Path::read(text).expect("a path").to_string(), text);
        }
        for text in ["Material", "/a/b", "a/", "a//b", "a/b/0", "a/b/c;d"] {
            assert!(Path::read(text).is_err(), "{text}");
        }
    }
}
