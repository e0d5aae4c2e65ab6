//! A policy as a TOML file: `[assign]`, and `[[assign.tree.layer]]` for each layer of a tree, root first.

use rlaunch_base::error::Hint;
use rlaunch_base::nearest::nearest;
use rlaunch_base::os_bytes::Visible;
use rlaunch_plan::rank_assign::{Flags, Layer, Policy, Stage, Tree, parse};
use std::fmt::Display;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Longest file: more is a mistake, and must not cost time.
const LONGEST: usize = 1 << 20;

/// An error in a file, and its place.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) line: Option<usize>,
    pub(super) what: String,
    pub(super) hint: Option<String>,
}

/// An error at an offset of the text.
struct At {
    at: Option<usize>,
    what: String,
    hint: Option<String>,
}

type Value<'a> = Spanned<DeValue<'a>>;

/// The tables of `[assign]`.
const PARTS: [&str; 3] = ["policy", "regrow", "tree"];

/// Reads a file.
pub(super) fn policy(text: &str) -> Result<Policy, Fault> {
    read(text).map_err(|At { at, what, hint }| {
        let line = at.map(|at| 1 + text.bytes().take(at).filter(|b| *b == b'\n').count());
        Fault { line, what, hint }
    })
}

fn read(text: &str) -> Result<Policy, At> {
    if text.len() > LONGEST {
        let what = format!("a policy takes at most {LONGEST} bytes, and this has {}", text.len());
        return Err(At { at: None, what, hint: None });
    }
    let all = DeTable::parse(text).map_err(|error| At {
        at: error.span().map(|span| span.start),
        what: Visible(error.message().lines().next().unwrap_or_default().as_bytes()).to_string(),
        hint: Some("TOML, as [[assign.tree.layer]] and key = \"host\"".into()),
    })?;
    if let Some((name, _)) = all.get_ref().iter().find(|(name, _)| PARTS.contains(&name.get_ref().as_ref())) {
        let what = format!("'{}' stands above any table", name.get_ref());
        return Err(At { at: Some(name.span().start), what, hint: Some("a line [assign] before it".into()) });
    }
    let mut assign = None;
    each(all.get_ref(), "the file", &["assign"], |_, value| {
        assign = Some(table(value, "assign")?);
        Ok(())
    })?;
    let Some(assign) = assign else {
        let hint = Some("[assign], with policy = \"max=64,shift\" or [[assign.tree.layer]]".into());
        return Err(At { at: None, what: "there is no [assign]".into(), hint });
    };
    let mut policy = Policy::default();
    let (mut regrow, mut tree) = (false, None);
    each(assign, "[assign]", &PARTS, |name, value| {
        match name {
            "policy" => policy = chain(value)?,
            "regrow" => regrow = truth(value, name)?,
            _ => tree = Some(self::tree(value)?),
        }
        Ok(())
    })?;
    policy.stages.extend(tree.map(Stage::Tree));
    policy.regrow |= regrow;
    policy.check().map_err(|error| of(None, &error))?;
    Ok(policy)
}

/// Hands each entry of a table over; there are no others than these.
fn each<'t, 'i>(
    table: &'t DeTable<'i>,
    of: &str,
    known: &[&str],
    mut take: impl FnMut(&str, &'t Value<'i>) -> Result<(), At>,
) -> Result<(), At> {
    for (name, value) in table {
        let (at, name) = (name.span().start, name.get_ref().as_ref());
        if !known.contains(&name) {
            let lower = name.to_ascii_lowercase().replace('-', "_");
            let near = nearest(lower.as_bytes(), known.iter().copied());
            let hint = Some(near.map_or_else(|| known.join(", "), str::to_owned));
            return Err(At { at: Some(at), what: format!("{of} has no '{}'", Visible(name.as_bytes())), hint });
        }
        take(name, value)?;
    }
    Ok(())
}

/// An error about a value.
fn of(value: Option<&Value<'_>>, error: &(impl Display + Hint)) -> At {
    let hint = error.hint().map(|hint| hint.into_owned());
    At { at: value.map(|value| value.span().start), what: error.to_string(), hint }
}

fn wrong(value: &Value<'_>, name: &str, takes: &str, hint: &str) -> At {
    let got = value.get_ref().type_str();
    At {
        at: Some(value.span().start),
        what: format!("{name} takes {takes}, got a value of type {got}"),
        hint: Some(hint.into()),
    }
}

fn table<'t, 'i>(value: &'t Value<'i>, name: &str) -> Result<&'t DeTable<'i>, At> {
    value.get_ref().as_table().ok_or_else(|| wrong(value, name, "a table", &format!("[{name}]")))
}

fn word<'t>(value: &'t Value<'_>, name: &str, hint: &str) -> Result<&'t str, At> {
    value.get_ref().as_str().ok_or_else(|| wrong(value, name, "a text", hint))
}

fn truth(value: &Value<'_>, name: &str) -> Result<bool, At> {
    value.get_ref().as_bool().ok_or_else(|| wrong(value, name, "true or false", &format!("{name} = true")))
}

fn number(value: &Value<'_>, name: &str) -> Result<u32, At> {
    let integer = value.get_ref().as_integer();
    let integer = integer.ok_or_else(|| wrong(value, name, "a number of ranks", &format!("{name} = 8")))?;
    u32::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| At {
        at: Some(value.span().start),
        what: format!("{name} takes a number of ranks, got {}", integer.as_str()),
        hint: Some(format!("{name} = 8")),
    })
}

/// Texts, or one.
fn words<'t>(value: &'t Value<'_>, name: &str, hint: &str) -> Result<Vec<&'t str>, At> {
    match value.get_ref().as_array() {
        Some(all) => all.iter().map(|item| word(item, name, hint)).collect(),
        None => word(value, name, hint).map(|text| vec![text]),
    }
}

fn chain(value: &Value<'_>) -> Result<Policy, At> {
    let all = words(value, "policy", "policy = \"max=64,shift\"")?;
    parse::policy(&all.join(",")).map_err(|error| of(Some(value), &error))
}

fn tree(value: &Value<'_>) -> Result<Tree, At> {
    let mut tree = Tree::default();
    each(
        table(value, "assign.tree")?,
        "[assign.tree]",
        &["layer", "filter", "max_ranks", "backfill"],
        |name, value| {
            match name {
                "layer" => {
                    let layers = value.get_ref().as_array();
                    let layers = layers.ok_or_else(|| wrong(value, name, "tables", "[[assign.tree.layer]]"))?;
                    tree.layers = layers.iter().map(layer).collect::<Result<_, _>>()?;
                }
                "filter" => {
                    let text = word(value, name, "filter = \"multiple=8\"")?;
                    tree.filter = Some(parse::filter(text).map_err(|error| of(Some(value), &error))?);
                }
                "max_ranks" => tree.strict = choice(value, name, "strict")?,
                _ => tree.minimal = choice(value, name, "minimal")?,
            }
            Ok(())
        },
    )?;
    Ok(tree)
}

/// An option of ours: one word, or `nvrx` for what NVRx does.
fn choice(value: &Value<'_>, name: &str, own: &str) -> Result<bool, At> {
    let hint = format!("{name} = \"{own}\"");
    match word(value, name, &hint)? {
        got if got == own => Ok(true),
        "nvrx" => Ok(false),
        got => {
            let what = format!("{name} takes {own} or nvrx, got '{}'", Visible(got.as_bytes()));
            Err(At { at: Some(value.span().start), what, hint: Some(hint) })
        }
    }
}

fn layer(value: &Value<'_>) -> Result<Layer, At> {
    let mut layer = Layer::default();
    let known = ["key", "min_ranks", "max_ranks", "flags"];
    each(table(value, "[assign.tree.layer]")?, "[[assign.tree.layer]]", &known, |name, value| {
        match name {
            "key" => {
                let text = word(value, name, "key = \"host\"")?;
                layer.key = parse::key(text).map_err(|error| of(Some(value), &error))?;
            }
            "min_ranks" => layer.min_ranks = number(value, name)?,
            "max_ranks" => layer.max_ranks = Some(number(value, name)?),
            _ => {
                layer.flags = Flags::default();
                for text in words(value, name, "flags = [\"reserve\", \"backfill\"]")? {
                    parse::flag(text, &mut layer.flags).map_err(|error| of(Some(value), &error))?;
                }
            }
        }
        Ok(())
    })?;
    Ok(layer)
}
