//! Colour on terminals: errors are red, `try` is cyan, labels have the colours of their ranks. Texts are composed without
//! colour and get it at the edge. A file or a pipe has no colour unless the user asks for it.

use crate::cli::When;
use anstyle::{AnsiColor, Style};
use std::sync::atomic::{AtomicU8, Ordering};

/// The value of `--color`, from the moment when it is known.
static WHEN: AtomicU8 = AtomicU8::new(When::Auto as u8);

/// Sets the value for the whole process.
pub(crate) fn set(when: When) {
    WHEN.store(when as u8, Ordering::Relaxed);
}

/// Whether text to this descriptor has colour.
pub(crate) fn is_on(fd: i32) -> bool {
    let when = WHEN.load(Ordering::Relaxed);
    if when != When::Auto as u8 {
        return when == When::Always as u8;
    }
    // https://no-color.org and https://bixense.com/clicolors, which rank in this order.
    if anstyle_query::no_color() {
        false
    } else if anstyle_query::clicolor_force() {
        true
    } else {
        anstyle_query::clicolor().unwrap_or(true)
            && anstyle_query::term_supports_ansi_color()
            && rlaunch_sys::tty::is_terminal(fd)
    }
}

const ERROR: Style = AnsiColor::Red.on_default().bold();
const TRY: Style = AnsiColor::Cyan.on_default();

/// The text as this descriptor gets it.
pub(crate) fn painted(text: String, fd: i32) -> String {
    if is_on(fd) { paint(&text) } else { text }
}

/// A text of ours with its colours.
fn paint(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 32);
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let (words, end) = line.strip_suffix('\n').map_or((line, ""), |words| (words, "\n"));
        // The head of the closing report, after a failure.
        let is_head = lines.peek().is_some_and(|next| next.starts_with("  ") && !next.starts_with("  try "));
        if let Some(rest) = words.strip_prefix("error:") {
            out.push_str(&format!("{ERROR}error:{ERROR:#}{rest}{end}"));
        } else if words.starts_with("  try ") {
            out.push_str(&format!("{TRY}{words}{TRY:#}{end}"));
        } else if let Some(rest) = words.strip_prefix("rlaunch: ").filter(|rest| is_head && !is_success(rest)) {
            out.push_str(&format!("rlaunch: {ERROR}{rest}{ERROR:#}{end}"));
        } else {
            out.push_str(line);
        }
    }
    out
}

/// Whether the head of a closing report is that of a job without a failure, whatever happened before.
fn is_success(head: &str) -> bool {
    head.contains(" finished in ") && !head.contains("could not be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_red_and_ways_out_cyan() {
        let text = "error: no program given\n  try     rlaunch -n 4\nrlaunch: error: as it is\nlast";
        let wanted = "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m no program given\n\u{1b}[36m  try     rlaunch -n 4\u{1b}[0m\n\
                      rlaunch: error: as it is\nlast";
        assert_eq!(paint(text), wanted);
        let report = "rlaunch: rank 0 failed first: exit 1 after 9.4s\n  exit     1\n";
        let wanted = "rlaunch: \u{1b}[1m\u{1b}[31mrank 0 failed first: exit 1 after 9.4s\u{1b}[0m\n  exit     1\n";
        assert_eq!(paint(report), wanted);
        let success = "rlaunch: 2 ranks on 2 of 3 hosts finished in 9.4s\n  restart  1: node3 was taken away\n";
        assert_eq!(paint(success), success);
    }
}
