//! Places of models and weather files, and how far they are apart.

use crate::idf::Idf;

/// Mean radius of the earth in km.
const RADIUS: f64 = 6371.0;

/// A place on earth.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Degrees north.
    latitude: f64,
    /// Degrees east.
    longitude: f64,
}

impl Place {
    /// The place of a weather file: fields 2, 7 and 8 of its first line (`LOCATION`). `None` where it gives no position.
    #[must_use]
    pub fn of_weather(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.lines().next()?.split(',').map(str::trim).collect();
        Self::new(words.get(1)?, words.get(6)?, words.get(7)?)
    }

    /// The place of a model: its `Site:Location`. EnergyPlus takes the weather file's instead, with a warning.
    #[must_use]
    pub fn of_model(model: &Idf) -> Option<Self> {
        let site = model.of_class("Site:Location").next()?;
        let field = |number| model.field(site, number);
        Self::new(field(1)?, field(2)?, field(3)?)
    }

    fn new(name: &str, latitude: &str, longitude: &str) -> Option<Self> {
        let degrees = |text: &str, most: f64| text.parse().ok().filter(|degrees: &f64| degrees.abs() <= most);
        let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
        Some(Self { name, latitude: degrees(latitude, 90.0)?, longitude: degrees(longitude, 180.0)? })
    }

    /// Distance along the earth's surface in km, by the haversine formula.
    #[must_use]
    pub fn km_to(&self, other: &Self) -> f64 {
        let [here, there] = [self.latitude, other.latitude].map(f64::to_radians);
        let half = |degrees: f64| (degrees.to_radians() / 2.0).sin().powi(2);
        let chord =
            half(self.latitude - other.latitude) + here.cos() * there.cos() * half(self.longitude - other.longitude);
        2.0 * RADIUS * chord.clamp(0.0, 1.0).sqrt().asin()
    }
}
