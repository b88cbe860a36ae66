use proptest::prelude::*;

use super::*;

fn value(text: &str) -> Value {
    let formula: Formula = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    formula.value(&|name| match name {
        "bdp" => Value::Number(1e8),
        "rmem" => Value::read("4096\t131072\t6291456"),
        "governor" => Value::Text("powersave".to_owned()),
        _ => Value::unknown("no such file"),
    })
}

#[test]
fn formulas_have_values() {
    assert_eq!(value("1 + 2 * 3"), Value::Number(7.0));
    assert_eq!(value("(1 + 2) * 3 - 10 / 5"), Value::Number(7.0));
    assert_eq!(value("round_up_pow2(2 * bdp)"), Value::Number(f64::from(1 << 28)));
    assert_eq!(value("clamp(2 * bdp, 4MiB, 64MiB) == 64MiB"), Value::Truth(true));
    assert_eq!(value("word(rmem, 3) >= 2 * bdp"), Value::Truth(false));
    assert_eq!(value("join(word(rmem, 1), 'x', 2MiB)"), Value::Text("4096 x 2097152".to_owned()));
    assert_eq!(value("governor == 'performance' or has('a b', 'b')"), Value::Truth(true));
    assert_eq!(value("if(governor == 'powersave', 20ms, 1s)"), Value::Number(0.02));
    assert_eq!(value("round_up(4097, 4096)"), Value::Number(8192.0));
    assert_eq!(value("not on"), Value::Truth(false));
}

#[test]
fn the_unknown_stays_unknown_where_it_matters() {
    assert_eq!(value("2 * nothing"), Value::unknown("no such file"));
    assert_eq!(value("nothing and off"), Value::Truth(false));
    assert_eq!(value("on or nothing"), Value::Truth(true));
    assert_eq!(value("on and nothing"), Value::unknown("no such file"));
    assert_eq!(value("default(nothing, 7)"), Value::Number(7.0));
    assert_eq!(value("known(nothing)"), Value::Truth(false));
    assert!(matches!(value("1 / 0"), Value::Unknown(_)));
    assert!(matches!(value("governor + 1"), Value::Unknown(_)));
    assert!(matches!(value("word(rmem, 9)"), Value::Unknown(_)));
}

#[test]
fn faults_are_told_with_their_place() {
    let fault = |text: &str| {
        let FormulaError { message, at, help } = text.parse::<Formula>().expect_err(text);
        format!("{at}: {message}; {help}")
    };
    assert_eq!(fault("2 * (bdp"), "8: a `)` is missing here; close each `(`");
    assert_eq!(
        fault("5 lightyears"),
        "2: an operator is missing here; join values with + - * / < <= > >= == != and or"
    );
    assert!(fault("5gbits").starts_with("0: `gbits` is no unit; did you mean `gbit`?"));
    assert!(fault("mix(1, 2)").starts_with("0: there is no function `mix`; did you mean `min`?"));
    assert_eq!(fault("clamp(1, 2)"), "0: `clamp` with 2 arguments; it takes 3");
    assert!(fault(&"(".repeat(900)).contains("nested too deep"));
}

proptest! {
    #[test]
    fn any_text_is_a_formula_or_a_fault(text in "[a-z0-9_.'()<>=!+*/, -]{0,60}") {
        match text.parse::<Formula>() {
            Ok(formula) => match formula.value(&|_| Value::Number(0.0)) {
                Value::Number(number) => prop_assert!(number.is_finite()),
                value => drop(value.to_string()),
            },
            Err(error) => prop_assert!(error.at <= text.len() && !error.help.is_empty()),
        }
    }
}
