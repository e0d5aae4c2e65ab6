//! `rlaunch man`: the manual page, made from the tables of options.

use super::commands::COMMANDS;
use super::errors::CliError;
use super::table::{GROUPS, PLAIN, Row, Takes};
use super::{Command, help, scan};
use rlaunch_base::os_bytes::OsBytes;
use std::fmt::Write as _;

pub(super) const USAGE: &str = "\
Usage: rlaunch man

Prints the manual page. To read it: rlaunch man | man -l -

";

/// Reads the words after `man`.
pub(super) fn parse(words: Vec<OsBytes>) -> Result<Command, CliError> {
    let words = scan::mixed(words.into_iter(), &PLAIN)?;
    match words.argv.first() {
        _ if !words.given.is_empty() => Ok(Command::text(help::command_named("man"))),
        None => Ok(Command::text(page())),
        Some(got) => Err(CliError::Value {
            option: "rlaunch man".into(),
            takes: "no further word".into(),
            got: got.clone(),
            hint: Some("rlaunch help TOPIC".into()),
        }),
    }
}

/// A text for roff: no dash, backslash or begin of a line is a command of it.
fn plain(text: &str) -> String {
    let text = text.replace('\\', r"\e").replace('-', r"\-").replace('\'', r"\(aq").replace('`', r"\`");
    let safe = |line: &str| if line.starts_with(['.', ' ']) { format!("\\&{line}") } else { line.to_owned() };
    text.lines().map(safe).collect::<Vec<_>>().join("\n")
}

/// An option in bold, its value in italics.
fn option(row: &Row) -> String {
    let dash = if matches!(row.takes, Takes::Pair(_)) { "-" } else { "--" };
    let short = row.letter().map_or_else(String::new, |letter| format!("\\fB\\-{}\\fR, ", char::from(letter)));
    let value = match row.takes {
        Takes::Nothing => String::new(),
        Takes::One(what) | Takes::Pair(what) => format!(" \\fI{}\\fR", plain(what)),
        Takes::Maybe(what) => format!("[=\\fI{}\\fR]", plain(what)),
    };
    format!("{short}\\fB{}{}\\fR{value}", plain(dash), plain(row.shown()))
}

fn options<'a>(text: &mut String, rows: impl Iterator<Item = &'a Row>) {
    for row in rows {
        let more: String = row.more.iter().map(|line| format!("\n{}", plain(line))).collect();
        // The brief is no sentence: the next line begins one.
        let end = if row.more.is_empty() { "" } else { "." };
        // Writing to a String cannot fail.
        write!(text, ".TP\n{}\n{}{end}{more}\n", option(row), plain(row.brief)).unwrap_or_default();
    }
}

/// Lines as they are.
fn verbatim(text: &mut String, lines: &str) {
    write!(text, ".PP\n.nf\n{}\n.fi\n", plain(lines.trim_end())).unwrap_or_default();
}

fn page() -> String {
    let mut text = format!(".TH RLAUNCH 1 \"\" \"rlaunch {}\" \"User Commands\"\n", plain(env!("CARGO_PKG_VERSION")));
    text.push_str(".SH NAME\nrlaunch \\- starts the processes of a parallel job and ends them\n.SH SYNOPSIS\n");
    text.push_str(".B rlaunch\n[\\fIOPTIONS\\fR] \\fIPROGRAM\\fR [\\fIARGS\\fR...] [: [\\fIOPTIONS\\fR] \\fIPROGRAM\\fR [\\fIARGS\\fR...]]...\n.br\n");
    text.push_str(".B rlaunch\n\\fICOMMAND\\fR [\\fIWORDS\\fR...]\n.SH DESCRIPTION\n");
    text.push_str(&plain(help::DESCRIPTION));
    text.push_str("\n.SH COMMANDS\n");
    for sub in &COMMANDS {
        let shape = plain(sub.shape);
        write!(text, ".TP\n\\fBrlaunch {}\\fR {shape}\n{}\n", sub.name, plain(sub.brief)).unwrap_or_default();
    }
    text.push_str(".SH OPTIONS\n");
    for group in GROUPS {
        writeln!(text, ".SS {}", plain(group.title)).unwrap_or_default();
        options(&mut text, group.rows.iter());
    }
    for sub in COMMANDS.iter().filter(|sub| !sub.takes_program() && sub.table.rows().nth(1).is_some()) {
        writeln!(text, ".SH RLAUNCH {}", sub.name.to_ascii_uppercase()).unwrap_or_default();
        verbatim(&mut text, sub.usage);
        options(&mut text, sub.table.rows());
    }
    text.push_str(".SH EXIT STATUS\n");
    verbatim(&mut text, help::EXIT_CODES);
    text.push_str(".SH ENVIRONMENT\n");
    verbatim(&mut text, &help::variables());
    text.push_str(".SH EXAMPLES\n");
    verbatim(&mut text, help::EXAMPLES);
    text
}
