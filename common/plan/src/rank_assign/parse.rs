//! Policies as words: `max=64,divisible=8,shift,group(host)==8`, and the words of a tree's layers.

use super::chain::{IllFormed, Policy, Stage};
use super::group::{Condition, Group};
use super::key::{Key, Source};
use super::tree::{Filter, Flags};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::num::NonZeroU32;
use rlaunch_base::error::Hint;
use rlaunch_base::nearest::nearest;
use rlaunch_base::os_bytes::Visible;

/// Longest chain: more is a mistake, and must not cost time.
const LONGEST: usize = 4096;
/// Longest word that a message shows whole.
const SHOWN: usize = 60;

/// Words that are no policy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpecError {
    /// A name that nothing has.
    #[error("'{word}' is no {what}")]
    Unknown {
        /// The word.
        word: String,
        /// The expected form.
        what: &'static str,
        /// The text that was probably meant.
        try_: String,
    },
    /// A number that is none.
    #[error("{name} takes {takes}, got '{got}'")]
    Number {
        /// Whose.
        name: String,
        /// Which numbers there are.
        takes: &'static str,
        /// The given text.
        got: String,
        /// The right text.
        try_: String,
    },
    /// Too many words.
    #[error("a policy has at most {LONGEST} characters, and this one has {length}")]
    Long {
        /// How many.
        length: usize,
    },
    /// All words are known, and they do not fit.
    #[error("{0}")]
    IllFormed(IllFormed),
}

impl Hint for SpecError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Unknown { try_, .. } | Self::Number { try_, .. } => Some(try_.clone().into()),
            Self::Long { .. } => Some("groups as a tree in a file: --assign @FILE".into()),
            Self::IllFormed(source) => source.hint(),
        }
    }
}

/// The words of a chain, and what NVRx calls them.
const STAGES: [(&str, &str, &str); 6] = [
    ("all", "ActivateAllRanks", "all"),
    ("max", "MaxActiveWorldSize", "max=64"),
    ("divisible", "ActiveWorldSizeDivisibleBy", "divisible=8"),
    ("shift", "ShiftRanks", "shift"),
    ("fill", "FillGaps", "fill"),
    ("group", "FilterCountGroupedByKey", "group(host)==8"),
];

/// Reads a chain. If no stage of it activates ranks, `all` comes before the others.
///
/// # Errors
/// It is none, or none that can work.
pub fn policy(text: &str) -> Result<Policy, SpecError> {
    if text.len() > LONGEST {
        return Err(SpecError::Long { length: text.len() });
    }
    let mut policy = Policy::default();
    for word in parts(text) {
        match word.trim() {
            "regrow" => policy.regrow = true,
            word => policy.stages.push(stage(word)?),
        }
    }
    let activates = |stage: &Stage| matches!(stage, Stage::ActivateAll | Stage::MaxActive(_) | Stage::Divisible(_));
    if (policy.regrow || !policy.stages.is_empty()) && !policy.stages.iter().any(activates) {
        policy.stages.insert(0, Stage::ActivateAll);
    }
    policy.check().map_err(SpecError::IllFormed)?;
    Ok(policy)
}

/// The parts between commas that are in no parentheses.
fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

fn stage(word: &str) -> Result<Stage, SpecError> {
    if let Some(rest) = word.strip_prefix("group") {
        return group(word, rest.trim_start());
    }
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (word, None),
    };
    match (name, value) {
        ("all", None) => Ok(Stage::ActivateAll),
        ("shift", None) => Ok(Stage::Shift),
        ("fill", None) => Ok(Stage::Fill),
        ("max", None) => Ok(Stage::MaxActive(None)),
        // No rank would work.
        ("max", Some(value)) => above_zero("max", value, "max=64").map(|n| Stage::MaxActive(Some(n.get()))),
        ("divisible", value) => above_zero("divisible", value.unwrap_or_default(), "divisible=8").map(Stage::Divisible),
        ("all" | "shift" | "fill", Some(got)) => {
            let (name, got) = (name.to_string(), shown(got));
            Err(SpecError::Number { try_: name.clone(), name, takes: "no value", got })
        }
        _ => Err(no_stage(word, name, value)),
    }
}

/// The stage that was probably meant, with the given number.
fn no_stage(word: &str, name: &str, value: Option<&str>) -> SpecError {
    let lower = name.to_ascii_lowercase();
    let nvrx = |(_, nvrx_name, _): &&(&str, &str, &str)| nvrx_name.to_ascii_lowercase() == lower;
    let own = STAGES.iter().find(nvrx).map(|(own, _, _)| *own);
    let own = own.or_else(|| nearest(lower.as_bytes(), STAGES.iter().map(|(own, _, _)| *own).chain(["regrow"])));
    let example = own.and_then(|own| STAGES.iter().find(|(name, _, _)| *name == own));
    let try_ = match (lower.as_str(), own, value) {
        ("tree", _, _) => "a file with [[assign.tree.layer]]: --assign @FILE".into(),
        (_, Some(own @ ("max" | "divisible")), Some(value)) if is_number(value) => format!("{own}={value}"),
        (_, Some(own), _) => example.map_or_else(|| own.to_string(), |(_, _, example)| (*example).into()),
        (_, None, _) => "all, max=N, divisible=N, shift, fill, group(KEY)==N or regrow".into(),
    };
    SpecError::Unknown { word: shown(word), what: "policy", try_ }
}

fn is_number(value: &str) -> bool {
    (1..=9).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_digit())
}

fn group(word: &str, rest: &str) -> Result<Stage, SpecError> {
    let unknown = || SpecError::Unknown {
        word: shown(word),
        what: "policy",
        try_: "group(host)==8   or   group(host)>=6   or   group(host)%2".into(),
    };
    if let Some((name, ranges)) = among(rest) {
        return Ok(Stage::Group(Group { key: key(name)?, condition: Condition::Among(self::ranges(ranges)?) }));
    }
    let (name, condition) = rest.strip_prefix('(').and_then(|rest| rest.rsplit_once(')')).ok_or_else(unknown)?;
    if name.trim().is_empty() {
        // In one group are all: that is no group, but for the root of a tree.
        return Err(unknown());
    }
    let condition = condition.trim();
    // Longer operators come before those with the same begin.
    let forms = ["==", ">=", "<=", "%"].into_iter();
    let Some((form, value)) = forms.filter_map(|form| Some((form, condition.strip_prefix(form)?.trim()))).next() else {
        return Err(unknown());
    };
    let of = format!("group(...){form}");
    let condition = match form {
        "==" => Condition::Equal(number(&of, value, "group(host)==8")?),
        ">=" => Condition::AtLeast(number(&of, value, "group(host)>=6")?),
        "<=" => Condition::AtMost(number(&of, value, "group(host)<=8")?),
        _ => Condition::MultipleOf(above_zero(&of, value, "group(host)%2")?),
    };
    Ok(Stage::Group(Group { key: key(name.trim())?, condition }))
}

/// `(KEY) in(2,4-8)`: the key, and the ranges.
fn among(rest: &str) -> Option<(&str, &str)> {
    let (name, ranges) = rest.strip_suffix(')')?.rsplit_once("in(")?;
    Some((name.trim().strip_prefix('(')?.strip_suffix(')')?.trim(), ranges))
}

fn ranges(text: &str) -> Result<Vec<(u32, u32)>, SpecError> {
    let of = "group(...) in";
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let try_ = "group(host) in(2,4-8)";
        match (number(of, first.trim(), try_)?, number(of, last.trim(), try_)?) {
            (first, last) if first <= last => Ok((first, last)),
            _ => Err(SpecError::Number {
                name: of.into(),
                takes: "ranges that begin with the smaller number",
                got: shown(word),
                try_: try_.into(),
            }),
        }
    };
    text.split(',').map(range).collect()
}

/// Parses the key that ranks have in common.
///
/// # Errors
/// It is nothing that is known.
pub fn key(text: &str) -> Result<Key, SpecError> {
    const NAMES: [&str; 10] =
        ["host", "slice", "rack", "switch", "numa", "env:", "rank/", "initial/", "const:", "script/"];
    let computed = |make: fn(NonZeroU32) -> Key, n: &str, of: &str| above_zero(of, n, "rank/8").map(make);
    Ok(match text {
        "host" => Key::Of(Source::Host),
        "slice" => Key::Of(Source::Slice),
        "rack" | "switch" => Key::Of(Source::Rack),
        "numa" => Key::Of(Source::Numa),
        // The root of a tree, as NVRx has it.
        "" => Key::Same(String::new()),
        _ => match (text.split_once(':'), text.split_once('/'), text.split_once('%')) {
            _ if text.chars().any(char::is_control) => {
                let try_ = "the name without what is no letter".into();
                return Err(SpecError::Unknown { word: shown(text), what: "key of ranks", try_ });
            }
            (Some(("env", name)), _, _) if !name.is_empty() && !name.contains('=') => Key::Of(Source::Env(name.into())),
            (Some(("const", word)), _, _) => Key::Same(word.into()),
            (_, Some(("rank", n)), _) => computed(Key::RankBy, n, "rank/")?,
            (_, _, Some(("rank", n))) => computed(Key::RankEvery, n, "rank%")?,
            // A value that a program gives for each of its processes, by its index among the values.
            (_, Some(("script", n)), _) => Key::Of(Source::Script(number("script/", n, "script/0")?)),
            (_, Some(("initial", n)), _) => computed(Key::InitialBy, n, "initial/")?,
            (_, _, Some(("initial", n))) => computed(Key::InitialEvery, n, "initial%")?,
            _ => {
                let try_ = match nearest(text.to_ascii_lowercase().as_bytes(), NAMES.into_iter()) {
                    Some("env:") => "env:NAME".into(),
                    Some(near) if near.ends_with('/') => format!("{near}8"),
                    Some("const:") => "const:WORD".into(),
                    Some(near) => near.into(),
                    None => "host, slice, rack, switch, numa, env:NAME, rank/N, initial/N or const:WORD".into(),
                };
                return Err(SpecError::Unknown { word: shown(text), what: "key of ranks", try_ });
            }
        },
    })
}

/// How many of those that could work do: `multiple=8`, `cap=64`, `pow2` or `spare=1`.
///
/// # Errors
/// It is none of these.
pub fn filter(text: &str) -> Result<Filter, SpecError> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let (name, value) = (name.trim(), value.trim());
    Ok(match name {
        "multiple" => Filter::MultipleOf(above_zero(name, value, "multiple=8")?),
        "cap" => Filter::AtMost(number(name, value, "cap=64")?),
        "spare" => Filter::AllBut(number(name, value, "spare=1")?),
        "pow2" if !text.contains('=') => Filter::PowerOfTwo,
        _ if name.starts_with("table(") => table(name)?,
        _ => {
            let near = nearest(name.as_bytes(), ["multiple", "cap", "spare", "pow2"].into_iter());
            let try_ = match near {
                Some("multiple") => "multiple=8",
                Some("cap") => "cap=64",
                Some("spare") => "spare=1",
                Some(_) => "pow2",
                None => "multiple=N, cap=N, spare=N or pow2",
            };
            return Err(SpecError::Unknown { word: shown(text), what: "filter", try_: try_.into() });
        }
    })
}

/// `table(0,0,2,2)`: the values for 0, 1, 2 and 3 ranks, of which the last stands for all larger worlds.
fn table(text: &str) -> Result<Filter, SpecError> {
    let wrong =
        |takes| SpecError::Number { name: "table".into(), takes, got: shown(text), try_: "table(0,0,2,2)".into() };
    let values = text.strip_prefix("table(").and_then(|rest| rest.strip_suffix(')'));
    let values = values.ok_or_else(|| wrong("whole numbers in parentheses"))?.split(',');
    let values = values.map(|value| number("table", value.trim(), "table(0,0,2,2)")).collect::<Result<_, _>>()?;
    Filter::table(values).map_err(|_| wrong("for each number of ranks no more than that"))
}

/// Adds a flag of a layer.
///
/// # Errors
/// It is none.
pub fn flag(text: &str, flags: &mut Flags) -> Result<(), SpecError> {
    match text {
        "reserve" | "RESERVE" => flags.reserve = true,
        "backfill" | "BACKFILL" => flags.backfill = true,
        _ => {
            let lower = text.to_ascii_lowercase();
            let near = nearest(lower.as_bytes(), ["reserve", "backfill"].into_iter()).unwrap_or("reserve or backfill");
            return Err(SpecError::Unknown { word: shown(text), what: "flag of a layer", try_: near.into() });
        }
    }
    Ok(())
}

fn number(name: &str, value: &str, example: &str) -> Result<u32, SpecError> {
    let refuse = |takes| Err(SpecError::Number { name: name.into(), takes, got: shown(value), try_: example.into() });
    let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    match value.parse::<u32>().ok().filter(|_| digits) {
        Some(n) => Ok(n),
        None if digits => refuse("at most 4294967295"),
        None => refuse("a whole number"),
    }
}

fn above_zero(name: &str, value: &str, example: &str) -> Result<NonZeroU32, SpecError> {
    let n = match value {
        "" => None,
        value => NonZeroU32::new(number(name, value, example)?),
    };
    n.ok_or_else(|| SpecError::Number {
        name: name.into(),
        takes: "a whole number above 0",
        got: shown(value),
        try_: example.into(),
    })
}

/// A word of the user, cut where it is too long to be read.
fn shown(word: &str) -> String {
    match word.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{}...", Visible(word.as_bytes().get(..cut).unwrap_or_default())),
        None => Visible(word.as_bytes()).to_string(),
    }
}
