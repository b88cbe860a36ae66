use proptest::prelude::*;

use super::*;

#[test]
fn reads_what_people_write() {
    assert_eq!("50%".parse(), Ok(Cores(0.5)));
    assert_eq!("0.5 core".parse(), Ok(Cores(0.5)));
    assert_eq!(" 2 cores ".parse(), Ok(Cores(2.0)));
    assert_eq!("1.5GiB".parse(), Ok(Bytes(3 << 29)));
    assert_eq!("512 MiB".parse(), Ok(Bytes(512 << 20)));
    assert_eq!("1GB".parse(), Ok(Bytes(1_000_000_000)));
    assert_eq!("20ms".parse(), Ok(Seconds(0.02)));
    assert_eq!("10min".parse(), Ok(Seconds(600.0)));
}

#[test]
fn prints_the_readable_unit() {
    assert_eq!(Cores(0.5).to_string(), "0.5 core");
    assert_eq!(Cores(2.0).to_string(), "2 cores");
    assert_eq!(Bytes(1 << 30).to_string(), "1GiB");
    assert_eq!(Bytes(1500).to_string(), "1500B");
    assert_eq!(Bytes(0).to_string(), "0B");
    assert_eq!(Seconds(0.02).to_string(), "20ms");
    assert_eq!(Seconds(90.0).to_string(), "90s");
    assert_eq!("0.05%".parse::<Fraction>().unwrap().to_string(), "0.05%");
    assert_eq!(Fraction(0.07).to_string(), "7%");
    assert_eq!(Rate(1_500_000_000).to_string(), "1500mbit");
}

#[test]
fn a_bare_number_is_told_the_units() {
    let error = "20".parse::<Seconds>().unwrap_err();
    assert_eq!(error.to_string(), "`20` has no unit; write `20ms` or `1.5s` (units: us, ms, s, min, h)");
}

#[test]
fn refuses_what_is_no_quantity() {
    for text in ["", "-1s", "1e3s", ".5s", "5.s", "1..2s", "s", "1sec", "１s", "infs", "NaNs"] {
        assert!(text.parse::<Seconds>().is_err(), "{text}");
    }
    for text in ["0.5B", "99999999TiB", "1K", "1 gib", "0.0000001KiB"] {
        assert!(text.parse::<Bytes>().is_err(), "{text}");
    }
    assert!("2".parse::<Cores>().is_err());
    assert!("2 core s".parse::<Cores>().is_err());
}

#[test]
fn serde_uses_the_written_form() {
    assert_eq!(serde_json::to_string(&Bytes(1 << 20)).unwrap(), "\"1MiB\"");
    assert_eq!(serde_json::from_str::<Cores>("\"50%\"").unwrap(), Cores(0.5));
    assert!(serde_json::from_str::<Seconds>("\"5\"").is_err());
}

proptest! {
    #[test]
    fn cores_round_trip(value in 0.0..1e6) {
        prop_assert_eq!(Cores(value).to_string().parse(), Ok(Cores(value)));
    }

    #[test]
    fn bytes_round_trip(value: u64) {
        prop_assert_eq!(Bytes(value).to_string().parse(), Ok(Bytes(value)));
    }

    #[test]
    fn seconds_round_trip(mantissa in 0.0..10.0, exponent in -7..6) {
        let value = mantissa * 10f64.powi(exponent);
        prop_assert_eq!(Seconds(value).to_string().parse(), Ok(Seconds(value)));
    }

    #[test]
    fn fractions_round_trip(percent in 0.0..=100.0) {
        let text = format!("{percent}%");
        let value: Fraction = text.parse().unwrap();
        prop_assert_eq!(value.to_string().parse(), Ok(value));
        let value = Fraction(percent / 100.0);
        prop_assert_eq!(value.to_string().parse(), Ok(value));
    }

    #[test]
    fn any_share_round_trips(share in 0.0..=1.0) {
        prop_assert_eq!(Fraction(share).to_string().parse(), Ok(Fraction(share)));
    }

    #[test]
    fn rates_round_trip(value: u64) {
        prop_assert_eq!(Rate(value).to_string().parse(), Ok(Rate(value)));
    }

    #[test]
    fn byte_rates_round_trip(value: u64) {
        prop_assert_eq!(ByteRate(value).to_string().parse(), Ok(ByteRate(value)));
    }

    #[test]
    fn any_text_is_a_value_or_an_error(text in ".{0,20}") {
        let _ = (text.parse::<Cores>(), text.parse::<Bytes>(), text.parse::<Seconds>());
        let _ = (text.parse::<Fraction>(), text.parse::<Rate>(), text.parse::<ByteRate>());
    }
}
