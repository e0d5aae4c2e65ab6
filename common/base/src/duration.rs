//! Lengths of time as people write them: `90`, `90s`, `1m30s`, `1h`, `250ms`, `0.5s`.

use crate::time::Span;

/// The format of a duration.
pub const TAKES: &str = "a duration like 90, 90s, 1m30s, 1h or 250ms";

/// Units in the order in which they may follow one another.
const UNITS: [(&[u8], u64); 5] = [
    (b"d", 86_400_000_000_000),
    (b"h", 3_600_000_000_000),
    (b"m", 60_000_000_000),
    (b"s", 1_000_000_000),
    (b"ms", 1_000_000),
];
/// A number without a unit counts seconds.
const SECOND: u64 = 1_000_000_000;

/// Reads a length of time: numbers, decimals allowed, each with a unit and larger units first, or one number alone, which
/// counts seconds. `None`: it is none, or longer than 584 years.
#[must_use]
pub fn parse(text: &[u8]) -> Option<Span> {
    let (first, unit) = number(text)?;
    if unit.is_empty() {
        return first.times(SECOND).map(Span::from_nanos);
    }
    let mut rest = text;
    let mut total: u64 = 0;
    let mut larger = UNITS.as_slice();
    while !rest.is_empty() {
        let (count, after) = number(rest)?;
        let letters = after.iter().take_while(|b| b.is_ascii_alphabetic()).count();
        let (unit, after) = after.split_at_checked(letters)?;
        let at = larger.iter().position(|(name, _)| *name == unit)?;
        let (_, nanos) = larger.get(at)?;
        total = total.checked_add(count.times(*nanos)?)?;
        larger = larger.get(at + 1..)?;
        rest = after;
    }
    Some(Span::from_nanos(total))
}

/// `whole + part / scale`.
struct Decimal {
    whole: u64,
    part: u64,
    scale: u64,
}

impl Decimal {
    fn times(&self, nanos: u64) -> Option<u64> {
        let part = u128::from(self.part) * u128::from(nanos) / u128::from(self.scale);
        self.whole.checked_mul(nanos)?.checked_add(u64::try_from(part).ok()?)
    }
}

/// A number at the start of a text, and what follows it. Digits below a billionth change nothing and are dropped.
fn number(text: &[u8]) -> Option<(Decimal, &[u8])> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (whole, mut rest) = text.split_at_checked(digits)?;
    let mut decimal = Decimal { whole: read(whole)?, part: 0, scale: 1 };
    let mut decimals = 0;
    if let Some(after) = rest.strip_prefix(b".") {
        decimals = after.iter().take_while(|b| b.is_ascii_digit()).count();
        let part = after.get(..decimals.min(9))?;
        decimal.part = read(part)?;
        decimal.scale = part.iter().fold(1, |scale, _| scale * 10);
        rest = after.get(decimals..)?;
    }
    (digits + decimals > 0).then_some((decimal, rest))
}

fn read(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |sum, b| sum.checked_mul(10)?.checked_add(u64::from(b.checked_sub(b'0')?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_durations_are_read() {
        for (text, ms) in [
            ("90", 90_000),
            ("90s", 90_000),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("250ms", 250),
            ("0.5s", 500),
            (".5", 500),
            ("1.", 1000),
            ("1.5h", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("0", 0),
            ("0.0000000019s", 0),
        ] {
            assert_eq!(parse(text.as_bytes()).map(Span::millis), Some(ms), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        for text in [
            "",
            ".",
            "s",
            "-1",
            "1x",
            "1s1m",
            "1s2s",
            "1m30",
            "1 s",
            "1e3",
            "99999999999999999999",
            "600000d",
            "\u{664}",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
