//! The file of a rule.

use serde::Deserialize;
use slipway_document::de::{self, Named, Spanned};
use slipway_document::errors::{DocumentErrors, Report, Span};
use slipway_document::suggest;
use slipway_document::tree::{FileKind, Tree};

use super::{Apply, Effect, Origin, Per, Profile, Rule};
use crate::formula::Formula;
use crate::kernel::Range;
use crate::names;
use crate::setting::Key;

const RULE: FileKind = FileKind {
    max_bytes: 64 << 10,
    max_depth: 8,
    too_long: "a file holds one rule",
    too_deep: "check the brackets",
    empty: "write a rule; `slipway tune rules ID --yaml` shows one",
    repeated: "write the value out where it is used",
    second: "put the other rule in its own file",
    unfit: "compare with a rule that `slipway tune rules ID --yaml` shows",
};

/// Longest name of a rule or a group.
const LONGEST: usize = 60;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a rule: a map of `id`, `title`, `is`, `want` and others")]
struct File {
    id: Spanned<String>,
    title: String,
    group: Spanned<String>,
    effect: Effect,
    profiles: Vec<Profile>,
    #[serde(default = "machine")]
    per: Per,
    kernel: Option<Spanned<String>>,
    drivers: Option<Vec<String>>,
    when: Option<Vec<When>>,
    #[serde(rename = "let")]
    lets: Option<Named<Spanned<String>>>,
    is: Spanned<String>,
    want: Spanned<String>,
    good: Option<Spanned<String>>,
    why: Spanned<String>,
    gain: String,
    risk: String,
    source: Origin,
    apply: Spanned<How>,
    verify: String,
    persist: String,
    replaces: Option<bool>,
}

fn machine() -> Per {
    Per::Machine
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a condition: a map of `if` and `else`")]
struct When {
    #[serde(rename = "if")]
    condition: Spanned<String>,
    #[serde(rename = "else")]
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a way: a map of `key`, or of `advice`")]
struct How {
    key: Option<String>,
    advice: Option<String>,
}

/// Reads a rule, and whether it replaces one of the same name.
///
/// # Errors
/// Everything that is wrong with it, each with its line.
pub fn parse(file: &str, text: &str) -> Result<(Rule, bool), Box<DocumentErrors>> {
    let mut report = Report::default();
    let read: Option<File> = Tree::parse(RULE, text, &mut report).and_then(|tree| de::read(&tree, &mut report));
    let rule = read.and_then(|read| {
        let replaces = read.replaces.unwrap_or(false);
        Resolver { report: &mut report, per: read.per, lets: Vec::new() }.rule(read).map(|rule| (rule, replaces))
    });
    match rule {
        Some(rule) if report.is_empty() => Ok(rule),
        _ => Err(Box::new(report.finish(file, text))),
    }
}

struct Resolver<'a> {
    report: &'a mut Report,
    per: Per,
    lets: Vec<String>,
}

impl Resolver<'_> {
    /// `None` where a part that everything needs is wrong, which is then reported.
    fn rule(mut self, file: File) -> Option<Rule> {
        self.word(&file.id);
        self.word(&file.group);
        let mut lets = Vec::new();
        for entry in file.lets.map(|lets| lets.0).unwrap_or_default() {
            let formula = self.formula(&entry.value, &[]);
            lets.extend(formula.map(|formula| (entry.name.value.clone(), formula)));
            self.lets.push(entry.name.value);
        }
        let when = file.when.unwrap_or_default();
        let when = when.into_iter().map(|when| Some((self.formula(&when.condition, &[])?, when.reason)));
        let when: Vec<_> = when.collect();
        let (is, want) = (self.formula(&file.is, &[]), self.formula(&file.want, &["is"]));
        let good = file.good.as_ref().map(|good| self.formula(good, &["is", "want"]));
        let kernel = file.kernel.map_or_else(|| Some(Range::default()), |range| self.range(&range));
        self.places(&file.why);
        let apply = self.apply(file.apply);
        Some(Rule {
            id: file.id.value,
            title: file.title,
            group: file.group.value,
            effect: file.effect,
            profiles: file.profiles,
            per: file.per,
            kernel: kernel?,
            drivers: file.drivers.unwrap_or_default(),
            when: when.into_iter().collect::<Option<_>>()?,
            lets,
            is: is?,
            want: want?,
            good: good.map_or(Some(None), |good| good.map(Some))?,
            why: file.why.value,
            gain: file.gain,
            risk: file.risk,
            source: file.source,
            apply: apply?,
            verify: file.verify,
            persist: file.persist,
        })
    }

    fn word(&mut self, word: &Spanned<String>) {
        let sound = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if word.value.is_empty() || word.value.len() > LONGEST || !word.value.bytes().all(sound) {
            self.report.add(
                word.at,
                format!("`{}` is no name", word.value),
                "use small letters, digits and `-`, as in tcp-buffers",
            );
        }
    }

    fn formula(&mut self, text: &Spanned<String>, also: &[&str]) -> Option<Formula> {
        let formula: Formula = match text.value.parse() {
            Ok(formula) => formula,
            Err(error) => {
                // Where the text stands in the file as it is, its places are the file's.
                let plain = text.at.end - text.at.start == text.value.len();
                let start = text.at.start + if plain { error.at } else { 0 };
                let at = if plain { Span { start, end: text.at.end.max(start + 1) } } else { text.at };
                self.report.add(at, error.message, error.help);
                return None;
            }
        };
        for name in formula.names() {
            self.name(name, also, text.at);
        }
        Some(formula)
    }

    fn name(&mut self, name: &str, also: &[&str], at: Span) {
        if also.contains(&name) || self.lets.iter().any(|known| known == name) || names::is_known(self.per, name) {
            return;
        }
        let mut known: Vec<&str> = names::all(self.per);
        known.extend(self.lets.iter().map(String::as_str));
        let help = match slipway_document::closest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`slipway tune rules --names` lists the facts that rules can read".to_owned(),
        };
        self.report.add(at, format!("there is no fact `{name}` here"), help);
    }

    fn range(&mut self, text: &Spanned<String>) -> Option<Range> {
        match text.value.parse() {
            Ok(range) => Some(range),
            Err(fault) => {
                self.report.add(text.at, fault, "write `>= 4.20`, `< 6.11` or both with a comma between");
                None
            }
        }
    }

    /// Places such as `{rate:rate}` in a text.
    fn places(&mut self, text: &Spanned<String>) {
        for place in names::places(&text.value) {
            let (name, form) = place.split_once(':').unwrap_or((place, ""));
            self.name(name, &["is", "want"], text.at);
            if !form.is_empty() && !names::FORMS.contains(&form) {
                let help = suggest(form, &names::FORMS);
                self.report.add(text.at, format!("`{form}` is no form of a value"), help);
            }
        }
    }

    fn apply(&mut self, how: Spanned<How>) -> Option<Apply> {
        match (how.value.key, how.value.advice) {
            (Some(key), None) => {
                let example = key.replace("{nic}", "eth0").replace("{irq}", "1").replace("{block}", "sda");
                if let Err(error) = example.parse::<Key>() {
                    let (fault, help) = error.to_string().split_once("\nHint: ").map_or_else(
                        || (error.to_string(), "name a setting that Slipway sets, or write `advice`".to_owned()),
                        |(fault, help)| (fault.to_owned(), help.to_owned()),
                    );
                    self.report.add(how.at, format!("failed to {fault}"), help);
                    return None;
                }
                Some(Apply::Key(key))
            }
            (None, Some(advice)) => Some(Apply::Advice(advice)),
            _ => {
                self.report.add(
                    how.at,
                    "`apply` needs one of `key` and `advice`",
                    "write the setting as `key`, or what to do by hand as `advice`",
                );
                None
            }
        }
    }
}
