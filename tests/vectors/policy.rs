//! Policies as the vectors write them.

use rlaunch_base::id::Rank;
use rlaunch_plan::rank_assign::{
    Condition, Filter, Flags, Group, Key, Keys, Layer, Numbers, Policy, Source, Stage, Tree,
};
use serde_json::Value;
use std::borrow::Cow;
use std::num::NonZeroU32;

/// Largest world of a table.
const WORLD: u32 = 1 << 12;

/// Keys that a scenario lists for each rank.
#[derive(Default)]
pub(crate) struct Lists(Vec<Vec<String>>);

impl Keys for Lists {
    fn value(&self, source: &Source, who: Numbers) -> Option<Cow<'_, str>> {
        let Source::Script(n) = source else { return None };
        self.0.get(*n as usize)?.get(who.initial.index()).map(|key| Cow::Borrowed(key.as_str()))
    }
}

fn number(value: &Value) -> Result<u32, String> {
    value.as_u64().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| format!("{value} is no number of ranks"))
}

fn divisor(value: &Value) -> Result<NonZeroU32, String> {
    NonZeroU32::new(number(value)?).ok_or_else(|| format!("{value} divides nothing"))
}

/// The value of a name, if it is there and not null.
fn given<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.get(name).filter(|value| !value.is_null())
}

fn key(value: Option<&Value>, lists: &mut Lists) -> Result<Key, String> {
    let Some(value) = value else { return Ok(Key::Same(String::new())) };
    if let Some(word) = value.as_str() {
        return Ok(Key::Same(word.into()));
    }
    if let Some(list) = value["list"].as_array() {
        lists.0.push(list.iter().map(|key| key.as_str().unwrap_or_default().to_owned()).collect());
        return Ok(Key::Of(Source::Script(u32::try_from(lists.0.len() - 1).unwrap_or(u32::MAX))));
    }
    let current = value["var"] == "rank";
    Ok(match (given(value, "div"), given(value, "mod"), current) {
        (Some(n), _, true) => Key::RankBy(divisor(n)?),
        (Some(n), _, false) => Key::InitialBy(divisor(n)?),
        (None, Some(n), true) => Key::RankEvery(divisor(n)?),
        (None, Some(n), false) => Key::InitialEvery(divisor(n)?),
        (None, None, _) => return Err(format!("no such key: {value}")),
    })
}

fn condition(value: &Value) -> Result<Condition, String> {
    let (name, n) = value.as_object().and_then(|one| one.iter().next()).ok_or("a condition is missing")?;
    Ok(match name.as_str() {
        "eq" => Condition::Equal(number(n)?),
        "ge" => Condition::AtLeast(number(n)?),
        "le" => Condition::AtMost(number(n)?),
        "mod" => Condition::MultipleOf(divisor(n)?),
        "in" => {
            let all: Vec<u32> = n.as_array().into_iter().flatten().map(number).collect::<Result<_, _>>()?;
            Condition::Table((0..WORLD).map(|n| all.contains(&n)).collect())
        }
        _ => return Err(format!("no such condition: {value}")),
    })
}

fn filter(value: &Value) -> Result<Filter, String> {
    let (name, n) = value.as_object().and_then(|one| one.iter().next()).ok_or("a filter is missing")?;
    Ok(match name.as_str() {
        "multiple" => Filter::MultipleOf(divisor(n)?),
        "cap" => Filter::AtMost(number(n)?),
        "pow2" => Filter::PowerOfTwo,
        "sub" => Filter::AllBut(number(n)?),
        "add" => {
            let more = number(n)?;
            Filter::table((0..WORLD).map(|of| of + more).collect()).map_err(|error| error.to_string())?
        }
        _ => return Err(format!("no such filter: {value}")),
    })
}

fn layer(value: &Value, lists: &mut Lists) -> Result<Layer, String> {
    let flags = value["flag"].as_array().into_iter().flatten();
    let flags: Vec<&str> = flags.filter_map(Value::as_str).collect();
    Ok(Layer {
        key: key(given(value, "key"), lists)?,
        min_ranks: given(value, "min_ranks").map_or(Ok(1), number)?,
        max_ranks: given(value, "max_ranks").map(number).transpose()?,
        flags: Flags { reserve: flags.contains(&"RESERVE"), backfill: flags.contains(&"BACKFILL") },
    })
}

fn stages(value: &Value, lists: &mut Lists) -> Result<Vec<Stage>, String> {
    if let Some(parts) = value["compose"].as_array() {
        return parts.iter().map(|part| stages(part, lists)).collect::<Result<Vec<_>, _>>().map(|all| all.concat());
    }
    Ok(vec![match value["type"].as_str().unwrap_or_default() {
        "ActivateAllRanks" => Stage::ActivateAll,
        "MaxActiveWorldSize" => Stage::MaxActive(given(value, "max").map(number).transpose()?),
        "ActiveWorldSizeDivisibleBy" => Stage::Divisible(divisor(&value["divisor"])?),
        "ShiftRanks" => Stage::Shift,
        "FillGaps" => Stage::Fill,
        "FilterCountGroupedByKey" => {
            Stage::Group(Group { key: key(given(value, "key"), lists)?, condition: condition(&value["condition"])? })
        }
        "Tree" => Stage::Tree(Tree {
            layers: value["layers"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|one| layer(one, lists))
                .collect::<Result<_, _>>()?,
            filter: given(value, "world_size_filter").map(filter).transpose()?,
            strict: value["max_ranks"] == "strict",
            minimal: value["backfill"] == "minimal",
        }),
        other => return Err(format!("no such policy: {other}")),
    }])
}

/// The policy of a scenario, or why it is refused.
pub(crate) fn read(value: &Value) -> Result<(Policy, Lists), String> {
    let mut lists = Lists::default();
    let stages = stages(value, &mut lists)?;
    Ok((Policy { stages, regrow: value["regrow"] == true }, lists))
}

/// A list of ranks.
pub(crate) fn ranks(value: &Value) -> Vec<Rank> {
    value.as_array().into_iter().flatten().filter_map(|n| number(n).ok()).map(Rank::new).collect()
}
