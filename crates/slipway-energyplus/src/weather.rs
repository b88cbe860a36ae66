//! Weather files (EPW).

/// The reason why a text is no weather file. Each is a clause for a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WeatherError {
    /// The first line is not that of a weather file.
    #[error("it is no weather file: its first line does not begin with `LOCATION`\nHint: name an EPW file")]
    NoLocation,
    /// The header does not end.
    #[error("it is no weather file: it has no line `DATA PERIODS`")]
    NoPeriods,
    /// There are fewer hours than a year has.
    #[error("it has {0} hours, and a year has 8760\nHint: write `annual: false`, and the model's run period is taken")]
    Short(usize),
}

/// Looks at a weather file. `annual`: it must have a year.
///
/// # Errors
/// Where EnergyPlus would refuse it.
pub fn check(text: &str, annual: bool) -> Result<(), WeatherError> {
    let begins = |line: &str, word: &str| line.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let mut lines = text.lines();
    if !lines.next().is_some_and(|line| begins(line.trim_start_matches('\u{feff}'), "LOCATION,")) {
        return Err(WeatherError::NoLocation);
    }
    if !lines.any(|line| begins(line, "DATA PERIODS,")) {
        return Err(WeatherError::NoPeriods);
    }
    let hours = lines.filter(|line| line.contains(',')).count();
    if annual && hours < 8760 { Err(WeatherError::Short(hours)) } else { Ok(()) }
}
