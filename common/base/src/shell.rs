//! Words of a command that a message advises the user to type.

use crate::os_bytes::Visible;
use alloc::format;
use alloc::string::{String, ToString as _};

/// A word for a POSIX shell. Bytes that a terminal must not see are shown as escapes, in quotes.
#[must_use]
pub fn quoted(word: &[u8]) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(b);
    if !word.is_empty() && word.iter().all(plain) {
        Visible(word).to_string()
    } else {
        format!("'{}'", Visible(word).to_string().replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_characters_are_quoted() {
        for (word, typed) in [
            ("./train", "./train"),
            ("[node1]:2222", "'[node1]:2222'"),
            ("my train", "'my train'"),
            ("o'neil", r"'o'\''neil'"),
            ("", "''"),
            ("~", "'~'"),
            ("a\x1b", r"'a\u{1b}'"),
        ] {
            assert_eq!(quoted(word.as_bytes()), typed);
        }
    }
}
