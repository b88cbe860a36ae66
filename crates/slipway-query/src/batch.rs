//! Values of campaigns as columns of Arrow.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use slipway_campaign::model::{Design, Distribution, Output, Pick};
use slipway_campaign::value::Value;
use slipway_study::campaign::Study;

/// The kind of a column's values. A column whose values differ in kind has the least kind that holds all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Integer,
    Number,
    Text,
}

impl Kind {
    fn of(value: &Value) -> Self {
        match value {
            Value::Bool(_) => Self::Bool,
            Value::Integer(_) => Self::Integer,
            Value::Number(_) => Self::Number,
            Value::Text(_) => Self::Text,
        }
    }

    /// The least kind that holds the values of both.
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Integer | Self::Number, Self::Integer | Self::Number) => Self::Number,
            _ => Self::Text,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Integer => DataType::Int64,
            Self::Number => DataType::Float64,
            Self::Text => DataType::Utf8,
        }
    }

    fn read(data_type: &DataType) -> Option<Self> {
        [Self::Bool, Self::Integer, Self::Number, Self::Text].into_iter().find(|kind| kind.data_type() == *data_type)
    }

    /// The values as an array.
    fn array<'a>(self, values: impl Iterator<Item = Option<&'a Value>>) -> ArrayRef {
        match self {
            Self::Bool => {
                let truth = |value: &Value| if let Value::Bool(truth) = value { Some(*truth) } else { None };
                Arc::new(values.map(|value| value.and_then(truth)).collect::<BooleanArray>())
            }
            Self::Integer => {
                let whole = |value: &Value| if let Value::Integer(whole) = value { Some(*whole) } else { None };
                Arc::new(values.map(|value| value.and_then(whole)).collect::<Int64Array>())
            }
            Self::Number => Arc::new(values.map(|value| value.and_then(Value::number)).collect::<Float64Array>()),
            Self::Text => Arc::new(values.map(|value| value.map(ToString::to_string)).collect::<StringArray>()),
        }
    }
}

/// A column, before its kind is known for certain.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// `None`: no value was seen yet.
    pub(crate) kind: Option<Kind>,
}

impl Column {
    pub(crate) fn new(name: impl Into<String>, kind: Option<Kind>) -> Self {
        Self { name: name.into(), kind }
    }

    /// Widens the kind to hold this value.
    fn see(&mut self, value: &Value) {
        self.kind = Some(self.kind.map_or(Kind::of(value), |kind| kind.with(Kind::of(value))));
    }

    fn field(&self) -> Field {
        Field::new(&self.name, self.kind.unwrap_or(Kind::Number).data_type(), true)
    }
}

/// The columns of variables, in the file's order.
pub(crate) fn of_variables(study: &Study) -> Vec<Column> {
    let variables = &study.campaign.variables;
    let mut columns: Vec<Column> = variables.iter().map(|variable| Column::new(&variable.name, None)).collect();
    if let Design::List { .. } = study.campaign.design {
        for point in 0..study.plan.len() {
            columns.iter_mut().zip(study.plan.point(point)).for_each(|(column, value)| column.see(&value));
        }
        return columns;
    }
    if let Some(baseline) = &study.campaign.baseline {
        columns.iter_mut().zip(baseline).for_each(|(column, value)| column.see(value));
    }
    for (column, variable) in columns.iter_mut().zip(variables) {
        match &variable.distribution {
            Distribution::Fixed(value) => column.see(value),
            Distribution::Choices(choices) => choices.iter().for_each(|(value, _)| column.see(value)),
            Distribution::Integer { .. } => column.kind = Some(Kind::Integer),
            _ => column.kind = Some(Kind::Number),
        }
    }
    columns
}

/// The column of an output; its kind shows with its values. `None`: a time series.
pub(crate) fn of_output(output: &Output) -> Option<Column> {
    match output.pick {
        Pick::Series(_) => None,
        Pick::Size => Some(Column::new(&output.name, Some(Kind::Integer))),
        _ => Some(Column::new(&output.name, None)),
    }
}

/// The schema of columns.
pub(crate) fn schema(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(Column::field).collect::<Vec<_>>()))
}

/// Takes kinds from a schema that was written before. Returns whether it has these columns.
pub(crate) fn adopt(columns: &mut [Column], schema: &Schema) -> bool {
    let kinds: Vec<Option<Kind>> = schema.fields().iter().map(|field| Kind::read(field.data_type())).collect();
    let fits = schema.fields().len() == columns.len()
        && columns.iter().zip(schema.fields()).all(|(column, field)| column.name == *field.name())
        && kinds.iter().all(Option::is_some);
    if fits {
        columns.iter_mut().zip(kinds).for_each(|(column, kind)| column.kind = kind);
    }
    fits
}

/// Whether columns hold what other ones do: variables may have got other bounds since.
pub(crate) fn hold(columns: &[Column], others: &[Column]) -> bool {
    let holds =
        |(had, now): (&Column, &Column)| now.kind.is_none_or(|now| had.kind.is_some_and(|had| had.with(now) == had));
    columns.iter().zip(others).all(holds)
}

/// Widens kinds to hold these rows too. Returns whether a kind that values were written with became another.
pub(crate) fn widen(columns: &mut [Column], rows: &[Vec<Option<Value>>]) -> bool {
    let mut wider = false;
    for (at, column) in columns.iter_mut().enumerate() {
        for value in rows.iter().filter_map(|row| row[at].as_ref()) {
            let before = column.kind;
            column.see(value);
            wider |= before.is_some() && before != column.kind;
        }
    }
    wider
}

/// Rows as a batch. Each row has a cell for each column.
pub(crate) fn batch(columns: &[Column], rows: &[Vec<Option<Value>>]) -> Result<RecordBatch, ArrowError> {
    let array = |(at, column): (usize, &Column)| {
        column.kind.unwrap_or(Kind::Number).array(rows.iter().map(move |row| row[at].as_ref()))
    };
    RecordBatch::try_new(schema(columns), columns.iter().enumerate().map(array).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Option<Value>> {
        prop_oneof![
            Just(None),
            any::<bool>().prop_map(|truth| Some(Value::Bool(truth))),
            any::<i32>().prop_map(|whole| Some(Value::Integer(whole.into()))),
            (-1e9..1e9).prop_map(|number| Some(Value::Number(number))),
            "[a-z]{0,3}".prop_map(|text| Some(Value::Text(text))),
        ]
    }

    proptest! {
        /// A widened column loses no value, and a second look at the same rows changes nothing.
        #[test]
        fn a_column_holds_all_of_its_values(values in prop::collection::vec(value(), 1..20)) {
            let rows: Vec<Vec<Option<Value>>> = values.iter().map(|value| vec![value.clone()]).collect();
            let mut columns = [Column::new("x", None)];
            widen(&mut columns, &rows);
            let batch = batch(&columns, &rows).unwrap();
            for (row, value) in values.iter().enumerate() {
                prop_assert_eq!(batch.column(0).is_null(row), value.is_none());
            }
            prop_assert!(!widen(&mut columns, &rows));
            let mut again = [Column::new("x", None)];
            prop_assert!(adopt(&mut again, &batch.schema()));
            prop_assert_eq!(again[0].kind, Some(columns[0].kind.unwrap_or(Kind::Number)));
        }
    }
}
