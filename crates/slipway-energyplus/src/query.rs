//! Results in words, as queries of EnergyPlus' database `eplusout.sql`.

use crate::reports::Reporting;

/// The database in a point's folder.
pub const DATABASE: &str = "eplusout.sql";
/// Units of energy, each with its size in joules.
pub const ENERGY: [(&str, f64); 7] =
    [("J", 1.0), ("kJ", 1e3), ("MJ", 1e6), ("GJ", 1e9), ("Wh", 3600.0), ("kWh", 3.6e6), ("MWh", 3.6e9)];

/// The value to take of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The least.
    Least,
    /// The greatest.
    Greatest,
    /// All of them: a time series.
    Series,
}

impl Take {
    fn of(self, value: &str) -> String {
        match self {
            Self::Sum => format!("sum({value})"),
            Self::Mean => format!("avg({value})"),
            Self::Least => format!("min({value})"),
            Self::Greatest => format!("max({value})"),
            Self::Series => value.to_owned(),
        }
    }
}

/// Values of a meter in the run periods of the weather file, each divided by `unit`.
#[must_use]
pub fn meter(name: &str, reporting: Reporting, take: Take, unit: f64) -> String {
    reported(name, None, true, reporting, take, unit)
}

/// Values of a variable. `object`: of this object alone; otherwise of all that report it.
#[must_use]
pub fn variable(name: &str, object: Option<&str>, reporting: Reporting, take: Take) -> String {
    reported(name, object, false, reporting, take, 1.0)
}

fn reported(name: &str, object: Option<&str>, meter: bool, reporting: Reporting, take: Take, unit: f64) -> String {
    let value = if unit.to_bits() == 1f64.to_bits() { "Value".to_owned() } else { format!("Value / {unit:?}") };
    let frequencies: Vec<String> = reporting.stored().iter().map(|word| quoted(word)).collect();
    let of = object.map_or_else(String::new, |object| format!(" and KeyValue = {} collate nocase", quoted(object)));
    // 3: a run period of the weather file. Design days are 1 and 2, and a sum over them means nothing.
    format!(
        "select {} from ReportData join ReportDataDictionary using (ReportDataDictionaryIndex) join Time using (TimeIndex) \
         join EnvironmentPeriods using (EnvironmentPeriodIndex) where Name = {} collate nocase and IsMeter = {}{of} \
         and ReportingFrequency in ({}) and EnvironmentType = 3 and coalesce(WarmupFlag, 0) = 0{}",
        take.of(&value),
        quoted(name),
        u8::from(meter),
        frequencies.join(", "),
        if take == Take::Series { " order by TimeIndex" } else { "" },
    )
}

/// A cell of the summary tables: `Table/Row/Column`, or `Report/Table/Row/Column` where several reports have the table.
///
/// # Errors
/// Where the words are not three or four; the error is a clause for a message.
pub fn table(words: &str) -> Result<String, &'static str> {
    let parts: Vec<&str> = words.split('/').map(str::trim).collect();
    let (report, cell) = match parts[..] {
        [table, row, column] => (None, [table, row, column]),
        [report, table, row, column] => (Some(report), [table, row, column]),
        _ => return Err("a cell of a table is `Table/Row/Column`"),
    };
    if parts.iter().any(|part| part.is_empty()) {
        return Err("a cell of a table is `Table/Row/Column`, and no part is empty");
    }
    let of = report.map_or_else(String::new, |report| format!(" and ReportName = {} collate nocase", quoted(report)));
    let [table, row, column] = cell.map(quoted);
    Ok(format!(
        "select case when trim(Value) glob '*[0-9]*' and not trim(Value) glob '*[^-+0-9.eE]*' then cast(Value as real) else trim(Value) end \
         from TabularDataWithStrings where TableName = {table} collate nocase and RowName = {row} collate nocase \
         and ColumnName = {column} collate nocase{of}"
    ))
}

/// A text in SQL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_others_stay_texts() {
        let query = variable("a' or 1 = 1 --", Some("b'"), Reporting::Hourly, Take::Mean);
        assert!(query.contains("Name = 'a'' or 1 = 1 --' collate") && query.contains("KeyValue = 'b'''"), "{query}");
        assert!(table("a/b").is_err() && table("a//b").is_err());
    }
}
