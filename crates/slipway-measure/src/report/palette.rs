//! A colour and a mark for each driver, the same in every plot of every report.
//!
//! Colours are those of M. Okabe and K. Ito, *Color Universal Design* (2008), told apart with any kind of colour
//! vision; marks differ too, for print in grey. The style sheet holds a light and a dark shade of each.

use super::svg::Svg;

/// Half the size of a mark.
const R: f64 = 4.2;

/// Drivers with a colour of their own. `host` is drawn in the colour of text.
const KNOWN: [&str; 6] = ["host", "bridge", "ovs", "macvlan", "vxlan", "sriov"];

/// Colours in the style sheet: `.c0` to `.c7`.
const COLOURS: usize = 8;

/// Colour and mark of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    colour: usize,
    mark: usize,
}

impl Look {
    /// The looks of all `drivers`, in their order. Drivers that are not [`KNOWN`] get what is left, in order.
    pub(super) fn of_all(drivers: &[String]) -> Vec<Self> {
        let own = |driver: &String| KNOWN.iter().position(|known| known == driver);
        let taken: Vec<usize> = drivers.iter().filter_map(own).collect();
        let mut free = (0..).map(|place| KNOWN.len() + place).filter(|place| !taken.contains(&(place % COLOURS)));
        drivers
            .iter()
            .map(|driver| own(driver).or_else(|| free.next()).unwrap_or_default())
            .map(|place| Self { colour: place % COLOURS, mark: place % MARKS })
            .collect()
    }

    /// The style sheet's class for the driver's colour.
    pub(super) fn class(self) -> String {
        format!("c{}", self.colour)
    }

    /// The driver's mark at a place; hollow for a run that does not count.
    pub(super) fn draw(self, svg: &mut Svg, at: (f64, f64), counted: bool, hint: &str) {
        let kind = if counted { "mark" } else { "mark hollow" };
        svg.shape(&format!("{kind} {}", self.class()), at, &self.path(), hint);
    }

    /// The mark alone, for the legend.
    pub(super) fn swatch(self, name: &str) -> String {
        let mut svg = Svg::new(14.0, 14.0, name);
        self.draw(&mut svg, (7.0, 7.0), true, name);
        svg.finish()
    }

    /// Circle, square, diamond, triangle, triangle down, plus; of about the same area.
    fn path(self) -> String {
        match self.mark {
            0 => format!("M{R} 0A{R} {R} 0 1 1 -{R} 0A{R} {R} 0 1 1 {R} 0Z"),
            1 => "M-3.7-3.7H3.7V3.7H-3.7Z".into(),
            2 => "M0-5.3L5.3 0L0 5.3L-5.3 0Z".into(),
            3 => "M0-5L5 3.7H-5Z".into(),
            4 => "M0 5L5-3.7H-5Z".into(),
            _ => "M-1.7-5H1.7V-1.7H5V1.7H1.7V5H-1.7V1.7H-5V-1.7H-1.7Z".into(),
        }
    }
}

const MARKS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_drivers_look_the_same_in_every_report() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let one = Look::of_all(&names(&["host", "vxlan"]));
        let other = Look::of_all(&names(&["vxlan", "mine", "host"]));
        assert_eq!((one[0], one[1]), (other[2], other[0]));
    }

    #[test]
    fn eight_drivers_have_eight_colours() {
        let drivers: Vec<String> =
            ["a", "host", "b", "ovs", "bridge", "vxlan", "macvlan", "sriov"].map(String::from).into();
        let mut colours: Vec<usize> = Look::of_all(&drivers).iter().map(|look| look.colour).collect();
        colours.sort_unstable();
        assert_eq!(colours, (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn more_drivers_than_colours_still_get_one() {
        let drivers: Vec<String> = (0..40).map(|i| format!("d{i}")).collect();
        assert_eq!(Look::of_all(&drivers).len(), 40);
        let all: Vec<String> = KNOWN.iter().map(|&k| k.to_owned()).chain(drivers).collect();
        assert_eq!(Look::of_all(&all).len(), 46);
    }
}
