//! The known word that a mistyped one probably meant.

use alloc::vec;
use alloc::vec::Vec;

/// The candidate with the fewest typing errors, if there are few enough of them to be sure of it.
#[must_use]
pub fn nearest<'a>(typed: &[u8], candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (typed.len() / 3).clamp(1, 3);
    if typed.len() > 32 {
        return None;
    }
    candidates
        .map(|candidate| (distance(typed, candidate.as_bytes()), candidate))
        .filter(|(errors, candidate)| *errors <= allowed && *errors < candidate.len())
        .min_by_key(|(errors, _)| *errors)
        .map(|(_, candidate)| candidate)
}

/// Letters inserted, left out, changed, or swapped with their neighbour.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, right) in b.iter().enumerate() {
            let at = |line: &[usize], column: usize| line.get(column).copied().unwrap_or(usize::MAX - 1);
            let mut best = at(&above, j) + usize::from(left != right);
            best = best.min(at(&above, j + 1) + 1).min(at(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(right) && b.get(j - 1) == Some(left);
            if swapped {
                best = best.min(at(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = core::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or(a.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_counted() {
        for (a, b, errors) in
            [("", "abc", 3), ("abc", "", 3), ("lable", "label", 1), ("kitten", "sitting", 3), ("np", "np", 0)]
        {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), errors, "{a} {b}");
        }
    }

    #[test]
    fn a_far_word_is_not_proposed() {
        assert_eq!(nearest(b"timout", ["grace", "timeout"].into_iter()), Some("timeout"));
        assert_eq!(nearest(b"frobnicate", ["grace", "timeout"].into_iter()), None);
        assert_eq!(nearest(b"z", ["n", "np"].into_iter()), None);
    }
}
