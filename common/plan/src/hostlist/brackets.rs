//! `node[01-04,07]`, `n[1-3]c[0-1]`, `a[1-9/2]`: one pattern that stands for many names.

use super::{Fault, HostlistError, MOST_HOSTS, Spot};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;

/// Digits of the longest number.
const DIGITS: usize = 18;

/// All names of a pattern: the last bracket runs fastest. `from` is where the pattern begins in its line.
pub(super) fn expand(pattern: &str, spot: &Spot, from: usize) -> Result<Vec<String>, HostlistError> {
    let mut names = vec![String::new()];
    let mut rest = pattern;
    let mut at = from;
    while let Some(open) = rest.find(['[', ']']) {
        let (text, bracket) = rest.split_at(open);
        let inner = bracket.strip_prefix('[').ok_or_else(|| spot.at(at + open).fault(Fault::Closed))?;
        let close = inner.find([']', '[']).filter(|close| inner.as_bytes().get(*close) == Some(&b']'));
        let close = close.ok_or_else(|| spot.at(at + open).fault(Fault::Open))?;
        let (set, after) = inner.split_at(close);
        let numbers = numbers(set, spot, at + open + 1)?;
        if names.len().saturating_mul(numbers.len()) > MOST_HOSTS {
            return Err(spot.at(at + open).fault(Fault::TooMany));
        }
        let with = |name: &String| numbers.iter().map(|n| format!("{name}{text}{n}")).collect::<Vec<_>>();
        names = names.iter().flat_map(with).collect();
        rest = after.get(1..).unwrap_or_default();
        at += open + close + 2;
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

/// The numbers between two brackets, each once, in their order.
fn numbers(set: &str, spot: &Spot, from: usize) -> Result<Vec<String>, HostlistError> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut at = from;
    for piece in set.split(',') {
        let here = spot.at(at + piece.len() - piece.trim_start().len());
        let range = range(piece.trim(), &here)?;
        if range.count().saturating_add(found.len()) > MOST_HOSTS {
            return Err(here.fault(Fault::TooMany));
        }
        let mut value = range.start;
        while value <= range.end {
            let number = format!("{value:0width$}", width = range.width);
            if seen.insert(number.clone()) {
                found.push(number);
            }
            value = value.saturating_add(range.step);
        }
        at += piece.len() + 1;
    }
    Ok(found)
}

struct Range {
    start: u64,
    end: u64,
    step: u64,
    /// Zeros are put before a number up to this width.
    width: usize,
}

impl Range {
    fn count(&self) -> usize {
        let steps = self.end.saturating_sub(self.start).checked_div(self.step).unwrap_or(0);
        usize::try_from(steps).unwrap_or(usize::MAX).saturating_add(1)
    }
}

fn range(text: &str, spot: &Spot) -> Result<Range, HostlistError> {
    let refuse = || spot.fault(Fault::Range(text.to_string()));
    let (span, step) = text.split_once('/').map_or((text, None), |(span, step)| (span, Some(step)));
    let (start, end) = span.split_once('-').map_or((span, None), |(start, end)| (start.trim(), Some(end.trim())));
    let first = number(start).ok_or_else(refuse)?;
    let Some(end) = end else {
        // A step without a range leads nowhere.
        return match step {
            Some(_) => Err(refuse()),
            None => Ok(Range { start: first, end: first, step: 1, width: start.len() }),
        };
    };
    let last = number(end).ok_or_else(refuse)?;
    let step = step.map_or(Some(1), |step| number(step.trim())).filter(|step| *step > 0).ok_or_else(refuse)?;
    let padded = |digits: &str| digits.len() > 1 && digits.starts_with('0');
    if (padded(start) || padded(end)) && start.len() != end.len() {
        return Err(spot.fault(Fault::Padding(span.to_string())));
    }
    if last < first {
        return Err(spot.fault(Fault::Backwards(span.to_string())));
    }
    Ok(Range { start: first, end: last, step, width: if padded(start) { start.len() } else { 0 } })
}

fn number(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.len() <= DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}
