//! Models of EnergyPlus and OpenStudio at a point: fields of their objects have the point's values.

use std::ops::Range;

use slipway_energyplus::add_reports;
use slipway_energyplus::idf::{Idf, IdfError, check_value};
use slipway_energyplus::path::Path;

use crate::model::Model;
use crate::template::Template;
use crate::value::Value;

/// A model that has all of its reports, and the places of the fields that points change.
#[derive(Debug, Clone)]
pub struct Edit {
    model: Idf,
    /// A field's path, its value, and its places in the model.
    fields: Vec<(Path, Template, Vec<Range<usize>>)>,
}

impl Edit {
    /// Finds the fields that points change.
    ///
    /// # Errors
    /// Where the model has no such field, or cannot have a report.
    pub fn new(mut model: Idf, changes: &Model) -> Result<Self, IdfError> {
        if let Some(reports) = &changes.reports {
            model = add_reports(&model, &reports.wanted, reports.reporting, reports.all)?;
        }
        let places = model.find_all(changes.fields.iter().map(|(path, _)| path))?;
        let fields = changes.fields.iter().cloned().zip(places).map(|((path, value), places)| (path, value, places));
        Ok(Self { fields: fields.collect(), model })
    }

    /// The model's text at a point with these values.
    ///
    /// # Errors
    /// Where a value cannot be in a field.
    pub fn text(&self, values: &[Value]) -> Result<String, IdfError> {
        let mut changes = Vec::new();
        for (path, value, places) in &self.fields {
            let value = value.fill(values);
            check_value(path, &value)?;
            changes.extend(places.iter().map(|place| (place.clone(), value.clone())));
        }
        Ok(self.model.with(changes))
    }
}
