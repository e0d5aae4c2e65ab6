//! Words of a line, as a shell separates them.

use alloc::string::String;
use alloc::vec::Vec;

/// Words between blanks; quotes and backslashes as in a shell.
///
/// # Errors
/// A quote is not closed, or a backslash is the last character.
pub fn words(text: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('"') | None, '\\') => {
                let next = chars.next().ok_or("a backslash at the end")?;
                let word = word.get_or_insert_default();
                if quote.is_some() && !matches!(next, '"' | '\\') {
                    word.push('\\');
                }
                word.push(next);
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            (None, c) if c.is_whitespace() => found.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote that is not closed".into());
    }
    found.extend(word);
    Ok(found)
}
