//! The short form of many names: `node[01-03,07]`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Digits of the longest number that is folded; longer ones are text.
const DIGITS: usize = 18;

/// A number as it is written: `7` and `07` are two. Sorted by width, then by value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Number {
    width: usize,
    value: u64,
}

impl Number {
    /// Whether there are zeros before it.
    fn is_padded(self) -> bool {
        self.width > digits(self.value)
    }
}

/// The numbers that a place in a name takes.
type Axis = BTreeSet<Number>;

/// All names of a set, folded: numbers that follow each other as ranges, in as many places of a name as there are. Each name appears
/// once. The order is that of the names, and has nothing to do with ranks.
#[must_use]
pub fn fold<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut patterns: BTreeMap<String, BTreeSet<Vec<Number>>> = BTreeMap::new();
    for name in names {
        let (pattern, numbers) = split(name);
        patterns.entry(pattern).or_default().insert(numbers);
    }
    let mut text = String::new();
    for (pattern, vectors) in patterns {
        for axes in products(vectors) {
            if !text.is_empty() {
                text.push(',');
            }
            push(&mut text, &pattern, &axes);
        }
    }
    text
}

/// The names in their order, as Slurm writes a list of nodes: `node[0,2-3],x`. A name that comes again is there again. Only the number at
/// the end of a name is folded: programs read the first name of such a list by its beginning, up to the first number.
#[must_use]
pub fn fold_in_order<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = String::new();
    let mut family: Option<Family<'a>> = None;
    for name in names {
        let member = numbered(name);
        if let (Some(family), Some((stem, number))) = (&mut family, member)
            && family.takes(stem, number)
        {
            family.add(number);
            continue;
        }
        family.take().inspect(|family| family.push(&mut text));
        match member {
            Some((stem, number)) => family = Some(Family { stem, runs: vec![(number, number)] }),
            None => push_name(&mut text, name),
        }
    }
    family.inspect(|family| family.push(&mut text));
    text
}

/// Names that follow each other and differ in the number at their end.
struct Family<'a> {
    stem: &'a str,
    /// First and last of each run of consecutive numbers.
    runs: Vec<(Number, Number)>,
}

impl Family<'_> {
    /// Whether a name can stand in the same brackets. Numbers of different width can if none has zeros before it.
    fn takes(&self, stem: &str, number: Number) -> bool {
        let is_like =
            |(first, _): &(Number, Number)| first.width == number.width || !(first.is_padded() || number.is_padded());
        self.stem == stem && self.runs.first().is_some_and(is_like)
    }

    fn add(&mut self, number: Number) {
        match self.runs.last_mut() {
            Some((first, last)) if follows(*first, *last, number) => *last = number,
            Some(_) | None => self.runs.push((number, number)),
        }
    }

    fn push(&self, text: &mut String) {
        push_name(text, self.stem);
        push_runs(text, &self.runs);
    }
}

fn push_name(text: &mut String, name: &str) {
    if !text.is_empty() {
        text.push(',');
    }
    text.push_str(name);
}

/// A name in its stem and the number at its end.
fn numbered(name: &str) -> Option<(&str, Number)> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = name.get(stem.len()..)?;
    // An address is no family of names.
    if stem.is_empty() || stem.contains(':') || digits.len() > DIGITS {
        return None;
    }
    Some((stem, Number { width: digits.len(), value: digits.parse().ok()? }))
}

/// The placeholder for a number in a pattern: a character that no host name has.
const HOLE: char = '%';

/// A name in its text and its numbers.
fn split(name: &str) -> (String, Vec<Number>) {
    let mut pattern = String::new();
    let mut numbers = Vec::new();
    // An address is no family of names.
    if name.contains([':', HOLE]) {
        return (name.into(), numbers);
    }
    let mut rest = name;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (text, from) = rest.split_at(at);
        let until = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        let (digits, after) = from.split_at(until);
        pattern.push_str(text);
        match digits.parse() {
            Ok(value) if digits.len() <= DIGITS => {
                pattern.push(HOLE);
                numbers.push(Number { width: digits.len(), value });
            }
            Ok(_) | Err(_) => pattern.push_str(digits),
        }
        rest = after;
    }
    pattern.push_str(rest);
    (pattern, numbers)
}

/// Vectors as few products of axes: along each axis, the last first, those that differ in nothing else become one.
fn products(vectors: BTreeSet<Vec<Number>>) -> Vec<Vec<Axis>> {
    let width = vectors.first().map_or(0, Vec::len);
    let mut all: Vec<Vec<Axis>> =
        vectors.into_iter().map(|v| v.into_iter().map(|n| Axis::from([n])).collect()).collect();
    for axis in (0..width).rev() {
        let mut groups: BTreeMap<Vec<Axis>, Axis> = BTreeMap::new();
        for mut product in all {
            let own = product.get_mut(axis).map(core::mem::take).unwrap_or_default();
            groups.entry(product).or_default().extend(own);
        }
        let join = |(mut product, own): (Vec<Axis>, Axis)| {
            if let Some(place) = product.get_mut(axis) {
                *place = own;
            }
            product
        };
        all = groups.into_iter().map(join).collect();
    }
    all.sort();
    all
}

fn push(text: &mut String, pattern: &str, axes: &[Axis]) {
    if axes.is_empty() {
        text.push_str(pattern);
        return;
    }
    let mut parts = pattern.split(HOLE);
    text.push_str(parts.next().unwrap_or_default());
    for (axis, after) in axes.iter().zip(parts) {
        push_axis(text, axis);
        text.push_str(after);
    }
}

/// `7`, `[1-3,7]`.
fn push_axis(text: &mut String, axis: &Axis) {
    let mut runs: Vec<(Number, Number)> = Vec::new();
    for number in axis {
        match runs.last_mut() {
            Some((first, last)) if follows(*first, *last, *number) => *last = *number,
            Some(_) | None => runs.push((*number, *number)),
        }
    }
    push_runs(text, &runs);
}

fn push_runs(text: &mut String, runs: &[(Number, Number)]) {
    let shown = |n: Number| format!("{:0width$}", n.value, width = n.width);
    let ranges: Vec<String> = runs
        .iter()
        .map(|(first, last)| if first == last { shown(*first) } else { format!("{}-{}", shown(*first), shown(*last)) })
        .collect();
    match ranges.as_slice() {
        [one] if runs.iter().all(|(first, last)| first == last) => text.push_str(one),
        ranges => {
            text.push('[');
            text.push_str(&ranges.join(","));
            text.push(']');
        }
    }
}

/// Whether a range from `first` to `last` may continue with `next`, so that it is read back as the same names. A range with
/// zeros before its numbers keeps its width.
fn follows(first: Number, last: Number, next: Number) -> bool {
    let one_more = last.value.checked_add(1) == Some(next.value);
    one_more && (last.width == next.width || !(first.is_padded() || next.is_padded()))
}

fn digits(value: u64) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}
