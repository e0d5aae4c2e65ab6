//! docs/reference/command-line.md has every option and every sub-command, as the tables of options have them.

#[path = "../../../../tests/house/generated.rs"]
mod generated;

use super::super::commands::COMMANDS;
use super::super::table::{GROUPS, Group, Row, Takes};
use super::super::{Answer, Command};
use super::with;
use std::fmt::Write as _;
use std::path::PathBuf;

#[test]
fn command_line_page_has_all_options_and_commands() {
    let mut text = String::new();
    for group in &GROUPS {
        write_group(&mut text, group);
    }
    text.push_str("## Sub-commands\n");
    // Commands that take a program have the options of a job.
    for name in COMMANDS.iter().filter(|sub| !sub.takes_program()).map(|sub| sub.name) {
        write!(text, "\n### rlaunch {name}\n\n```text\n{}\n```\n", help_of(name).trim_end()).unwrap();
    }
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/command-line.md");
    generated::compare(&page, "options", &text);
}

fn help_of(name: &str) -> String {
    match with(&format!("{name} --help"), &[]) {
        Ok(Command::Answer(Answer::Text(text))) => text,
        other => panic!("{name}: {other:?}"),
    }
}

/// A heading, the document that the title names, and a table.
fn write_group(text: &mut String, group: &Group) {
    let (title, document) = match group.title.split_once(" (") {
        Some((title, document)) => (title, Some(document.trim_end_matches(')'))),
        None => (group.title, None),
    };
    write!(text, "## {title}\n\n").unwrap();
    if let Some(document) = document {
        write!(text, "See {}.\n\n", link(document).unwrap_or_else(|| document.to_owned())).unwrap();
    }
    text.push_str("| option | meaning |\n|---|---|\n");
    for row in group.rows {
        let more = if row.more.is_empty() { String::new() } else { format!("<br>{}", plain(&row.more.join(" "))) };
        let variable = row.variable().map_or_else(String::new, |name| format!("<br>`{name}`"));
        writeln!(text, "| {}{variable} | {}{more} |", typed(row), plain(row.brief)).unwrap();
    }
    text.push('\n');
}

fn typed(row: &Row) -> String {
    let dash = if matches!(row.takes, Takes::Pair(_)) { "-" } else { "--" };
    let value = match row.takes {
        Takes::Nothing => String::new(),
        Takes::One(value) | Takes::Pair(value) => format!(" {value}"),
        Takes::Maybe(value) => format!("[={value}]"),
    };
    let short = row.letter().map_or_else(String::new, |letter| format!("`-{}`, ", char::from(letter)));
    format!("{short}`{dash}{}{value}`", row.shown()).replace('|', "\\|")
}

/// Text of a terminal as a cell of a table.
fn plain(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let name = word.trim_matches(|c: char| "().,:".contains(c));
        match link(name) {
            Some(link) => word.replace(name, &link),
            None => word.replace('<', "&lt;").replace('|', "\\|").replace('*', "\\*").replace('$', "&#36;"),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A link from docs/reference to a document that is named from the root.
fn link(path: &str) -> Option<String> {
    let name = path.strip_prefix("docs/")?.strip_suffix(".md")?;
    let (dir, file) = name.rsplit_once('/').unwrap_or(("", name));
    Some(match dir {
        "reference" => format!("[{file}]({file}.md)"),
        _ => format!("[{file}](../{name}.md)"),
    })
}
