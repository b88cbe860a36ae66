//! Points from a file.

use serde::{Deserialize, Serialize};

use crate::model::{Distribution, Variable};
use crate::value::Value;

use super::PlanError;

/// The rows of a file of points, as its reader found them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows, each with a value for each column.
    pub rows: Vec<Vec<Value>>,
}

impl Rows {
    /// The rows with a column for each variable, in the variables' order. A fixed variable needs no column, and columns
    /// without a variable are left out.
    pub(super) fn in_order(self, variables: &[Variable]) -> Result<Vec<Vec<Value>>, PlanError> {
        if let Some(at) = self.rows.iter().position(|row| row.len() != self.columns.len()) {
            return Err(PlanError::RowLength { row: at + 1, values: self.rows[at].len(), columns: self.columns.len() });
        }
        let source = |variable: &Variable| {
            let column = self.columns.iter().position(|column| *column == variable.name);
            match (column, &variable.distribution) {
                (Some(column), _) => Ok(Source::Column(column)),
                (None, Distribution::Fixed(value)) => Ok(Source::Fixed(value.clone())),
                (None, _) => Err(PlanError::NoColumn(variable.name.clone())),
            }
        };
        let sources = variables.iter().map(source).collect::<Result<Vec<_>, _>>()?;
        let value = |row: &[Value], source: &Source| match source {
            Source::Column(column) => row[*column].clone(),
            Source::Fixed(value) => value.clone(),
        };
        Ok(self.rows.iter().map(|row| sources.iter().map(|source| value(row, source)).collect()).collect())
    }
}

enum Source {
    Column(usize),
    Fixed(Value),
}
