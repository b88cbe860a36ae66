//! Functions of formulas.

use super::{Node, Value};

/// A function, with what it makes of its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Min,
    Max,
    Clamp,
    RoundUpPow2,
    RoundUp,
    Floor,
    Word,
    Join,
    Has,
    If,
    Known,
    Or,
}

impl Call {
    /// Each function with its name, and the fewest and the most arguments.
    pub(super) const ALL: [(&str, Self, usize, usize); 12] = [
        ("min", Self::Min, 2, 8),
        ("max", Self::Max, 2, 8),
        ("clamp", Self::Clamp, 3, 3),
        ("round_up_pow2", Self::RoundUpPow2, 1, 1),
        ("round_up", Self::RoundUp, 2, 2),
        ("floor", Self::Floor, 1, 1),
        ("word", Self::Word, 2, 2),
        ("join", Self::Join, 1, 8),
        ("has", Self::Has, 2, 2),
        ("if", Self::If, 3, 3),
        ("known", Self::Known, 1, 1),
        ("default", Self::Or, 2, 2),
    ];

    pub(super) fn value(self, of: &[Node], fact: &dyn Fn(&str) -> Value) -> Value {
        self.try_value(of, fact).unwrap_or_else(Value::Unknown)
    }

    fn try_value(self, of: &[Node], fact: &dyn Fn(&str) -> Value) -> Result<Value, String> {
        let value =
            |at: usize| of.get(at).map_or_else(|| Value::unknown("an argument is missing"), |node| node.value(fact));
        let number = |at: usize| value(at).number();
        Ok(match self {
            Self::Min => of.iter().try_fold(Value::Number(f64::MAX), |least, node| {
                Ok::<_, String>(Value::of(least.number()?.min(node.value(fact).number()?)))
            })?,
            Self::Max => of.iter().try_fold(Value::Number(f64::MIN), |most, node| {
                Ok::<_, String>(Value::of(most.number()?.max(node.value(fact).number()?)))
            })?,
            // Unlike `f64::clamp`, for any bounds: the upper one is stronger.
            Self::Clamp => Value::of(number(0)?.max(number(1)?).min(number(2)?)),
            Self::RoundUpPow2 => Value::of(number(0)?.max(1.0).log2().ceil().exp2()),
            Self::RoundUp => Value::of((number(0)? / number(1)?).ceil() * number(1)?),
            Self::Floor => Value::of(number(0)?.floor()),
            Self::Word => {
                let (text, nth) = (value(0).text()?, number(1)?);
                // Fractions are rounded up.
                let word = text.split_whitespace().zip(1_u32..).find(|(_, at)| f64::from(*at) >= nth);
                word.map_or_else(
                    || Value::unknown(format!("`{text}` has no word {nth}")),
                    |(word, _)| Value::read(word),
                )
            }
            Self::Join => {
                let words: Result<Vec<String>, String> = of.iter().map(|node| node.value(fact).text()).collect();
                Value::Text(words?.join(" "))
            }
            Self::Has => {
                let (text, wanted) = (value(0).text()?, value(1).text()?);
                Value::Truth(text.split_whitespace().any(|word| word == wanted))
            }
            Self::If => value(if value(0).truth()? { 1 } else { 2 }),
            Self::Known => Value::Truth(!matches!(value(0), Value::Unknown(_))),
            Self::Or => match value(0) {
                Value::Unknown(_) => value(1),
                known => known,
            },
        })
    }
}
