//! Arguments in which torchrun puts a rank's number: `--device cuda:${local_rank}`. The rules are those of Python's
//! `string.Template`, as torchrun uses it: `$local_rank` without braces is replaced, too, `$$` is one `$`, and what else begins
//! with `$` stays.

use crate::id::LocalRank;
use crate::os_strings::OsStrings;
use alloc::format;
use alloc::vec::Vec;

/// Whether something in these could be replaced.
#[must_use]
pub fn is_in(words: &[impl AsRef<[u8]>]) -> bool {
    words.iter().any(|word| word.as_ref().contains(&b'$'))
}

/// The words of a rank. The first is the program, which is no argument.
#[must_use]
pub fn filled(argv: &OsStrings, rank: LocalRank) -> OsStrings {
    let number = format!("{}", rank.get());
    let mut words = OsStrings::with_capacity(argv.as_bytes().len());
    for (at, word) in argv.iter().enumerate() {
        match at {
            0 => words.push(word),
            _ => words.push(&word_of(word, number.as_bytes())),
        }
    }
    words
}

fn word_of(word: &[u8], number: &[u8]) -> Vec<u8> {
    let mut filled = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = memchr::memchr(b'$', rest) {
        let (before, from) = rest.split_at(at);
        filled.extend_from_slice(before);
        let behind = from.get(1..).unwrap_or_default();
        if let Some(left) = behind.strip_prefix(b"$") {
            filled.push(b'$');
            rest = left;
        } else if let Some(left) = behind_name(behind) {
            filled.extend_from_slice(number);
            rest = left;
        } else {
            filled.push(b'$');
            rest = behind;
        }
    }
    filled.extend_from_slice(rest);
    filled
}

/// The text after the name, if it is this one and no longer one.
fn behind_name(text: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b"local_rank";
    if let Some(inner) = text.strip_prefix(b"{") {
        return inner.strip_prefix(NAME)?.strip_prefix(b"}");
    }
    let left = text.strip_prefix(NAME)?;
    let goes_on = left.first().is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    (!goes_on).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of Python 3.11 for the same words.
    #[test]
    fn arguments_are_filled_in_as_python_does() {
        for (word, expected) in [
            ("--device=cuda:${local_rank}", "--device=cuda:3"),
            ("$local_rank", "3"),
            ("${local_rank}${local_rank}-$local_rank.log", "33-3.log"),
            ("$local_ranks ${local_rank", "$local_ranks ${local_rank"),
            ("${rank} $HOME ${LOCAL_RANK}", "${rank} $HOME ${LOCAL_RANK}"),
            ("$$local_rank $$$local_rank 5$ $", "$local_rank $3 5$ $"),
            ("plain", "plain"),
            ("", ""),
        ] {
            let argv: OsStrings = ["x", word].iter().collect();
            let filled = filled(&argv, LocalRank::new(3));
            assert_eq!(filled.iter().collect::<Vec<_>>(), [b"x", expected.as_bytes()], "{word}");
        }
        let odd: OsStrings = [&b"$local_rank"[..], b"\xff$local_rank"].iter().collect();
        let of_odd = filled(&odd, LocalRank::new(10));
        assert_eq!(of_odd.iter().collect::<Vec<_>>(), [&b"$local_rank"[..], b"\xff10"], "the program stays");
    }
}
