//! `rlaunch completions SHELL`: scripts for bash, zsh and fish, made from the tables of options.
//!
//! By hand: clap_complete reads the grammar of clap, which has no place for a program whose words are its own, nor for
//! `:` between programs. The scripts are short, as they hold little beside the tables.

use super::commands::{COMMANDS, Sub};
use super::errors::CliError;
use super::table::{self, PLAIN, Row, Table, Takes};
use super::{Command, help, query, scan};
use rlaunch_base::os_bytes::OsBytes;
use std::fmt::Write as _;

pub(super) const USAGE: &str = "\
Usage: rlaunch completions bash|zsh|fish

Prints a script that completes options, commands and programs.
Write it to the file where the shell finds it:

  bash  ~/.local/share/bash-completion/completions/rlaunch
  zsh   _rlaunch in a directory of $fpath
  fish  ~/.config/fish/completions/rlaunch.fish

";

/// Reads the words after `completions`.
pub(super) fn parse(words: Vec<OsBytes>) -> Result<Command, CliError> {
    let words = scan::mixed(words.into_iter(), &PLAIN)?;
    if !words.given.is_empty() {
        return Ok(Command::text(help::command_named("completions")));
    }
    let of = OsBytes::from("rlaunch completions");
    let refused = |got: &OsBytes| CliError::Value {
        option: of.clone(),
        takes: "bash, zsh or fish".into(),
        got: got.clone(),
        hint: Some("rlaunch completions --help".into()),
    };
    match words.argv.as_slice() {
        [] => Err(CliError::missing(&of, "bash, zsh or fish", &PLAIN)),
        [shell] => match shell.as_slice() {
            b"bash" => Ok(Command::text(bash())),
            b"zsh" => Ok(Command::text(zsh())),
            b"fish" => Ok(Command::text(fish())),
            _ => Err(refused(shell)),
        },
        [_, more, ..] => Err(refused(more)),
    }
}

/// The values of an option.
enum Values {
    Any,
    Files,
    Dirs,
    Hosts,
    Words(String),
}

fn values(row: &Row) -> Values {
    match row.takes {
        Takes::One("FILE" | "FILE|fd:N") => Values::Files,
        Takes::One("DIR") => Values::Dirs,
        Takes::One("LIST") if row.names.contains(&"hosts") => Values::Hosts,
        Takes::One(what) if what.contains('|') => Values::Words(what.replace('|', " ")),
        Takes::Nothing | Takes::One(_) | Takes::Maybe(_) | Takes::Pair(_) => Values::Any,
    }
}

/// The words of a command that are no options.
fn words_of(sub: &Sub) -> String {
    match sub.name {
        "completions" => "bash zsh fish".to_owned(),
        "store" => query::actions().collect::<Vec<_>>().join(" "),
        "help" => COMMANDS.iter().map(|sub| sub.name).chain(help::topics()).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    }
}

/// The options of a table that are completed: of an option with several names the one that the help shows.
fn options(table: &'static Table) -> impl Iterator<Item = &'static Row> {
    table.rows().filter(|row| !matches!(row.takes, Takes::Pair(_)))
}

/// Every word that names an option, with its dashes.
fn spellings(row: &Row) -> impl Iterator<Item = String> + use<'_> {
    let short = row.letter().map(|letter| format!("-{}", char::from(letter)));
    short.into_iter().chain(row.names.iter().filter(|name| name.len() > 1).map(|name| format!("--{name}")))
}

/// The tables by name: those of a job, then those of the commands without a program.
fn tables() -> impl Iterator<Item = (&'static str, &'static Table)> {
    let own = COMMANDS.iter().filter(|sub| !sub.takes_program()).map(|sub| (sub.name, sub.table));
    std::iter::once(("job", &table::JOB)).chain(own)
}

/// Names of commands, for a `case`.
fn names(takes_program: bool) -> String {
    let names = COMMANDS.iter().filter(|sub| sub.takes_program() == takes_program).map(|sub| sub.name);
    names.collect::<Vec<_>>().join("|")
}

/// A word for bash and zsh.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn bash() -> String {
    let mut text = String::from("# Completes rlaunch in bash: made by `rlaunch completions bash`.\n");
    text.push_str("declare -gA _rlaunch_options _rlaunch_values _rlaunch_words\n");
    for (name, table) in tables() {
        let all: Vec<String> =
            options(table).flat_map(|row| spellings(row).take(1 + usize::from(row.letter().is_some()))).collect();
        // Writing to a String cannot fail.
        writeln!(text, "_rlaunch_options[{name}]={}", quoted(&all.join(" "))).unwrap_or_default();
        for row in table.rows().filter(|row| matches!(row.takes, Takes::One(_))) {
            let how = match values(row) {
                Values::Any => "-W ''".to_owned(),
                Values::Files => "-f".to_owned(),
                Values::Dirs => "-d".to_owned(),
                Values::Hosts => "-A hostname".to_owned(),
                Values::Words(words) => format!("-W '{words}'"),
            };
            for word in spellings(row) {
                writeln!(text, "_rlaunch_values[{name}{word}]={}", quoted(&how)).unwrap_or_default();
            }
        }
    }
    for sub in &COMMANDS {
        let words = words_of(sub);
        if !words.is_empty() {
            writeln!(text, "_rlaunch_words[{}]={}", sub.name, quoted(&words)).unwrap_or_default();
        }
    }
    let all = COMMANDS.iter().map(|sub| sub.name).collect::<Vec<_>>().join(" ");
    text.push_str(&BASH.replace("@OWN@", &names(false)).replace("@JOB@", &names(true)).replace("@ALL@", &all));
    text
}

const BASH: &str = include_str!("shells/rlaunch.bash");

/// A text in the brackets of a specification of zsh's `_arguments`.
fn bracketed(text: &str) -> String {
    text.replace('\\', r"\\").replace('[', r"\[").replace(']', r"\]").replace(':', r"\:")
}

/// The specifications of a table for zsh's `_arguments`.
fn specifications(table: &'static Table) -> String {
    let mut text = String::new();
    for row in options(table) {
        let value = |what: &str| {
            let action = match values(row) {
                Values::Any => " ".to_owned(),
                Values::Files => "_files".to_owned(),
                Values::Dirs => "_files -/".to_owned(),
                Values::Hosts => "_hosts".to_owned(),
                Values::Words(words) => format!("({words})"),
            };
            format!(":{}:{action}", bracketed(what))
        };
        let (equals, value) = match row.takes {
            Takes::One(what) => ("=", value(what)),
            Takes::Maybe(what) => ("=-", format!(":{}", value(what))),
            Takes::Nothing | Takes::Pair(_) => ("", String::new()),
        };
        for word in spellings(row).take(1 + usize::from(row.letter().is_some())) {
            let how = match (word.starts_with("--"), equals) {
                (true, equals) => equals,
                (false, "=") => "+",
                (false, _) => "",
            };
            let value = if how.is_empty() { "" } else { &value };
            let spec = format!("*{word}{how}[{}]{value}", bracketed(row.brief));
            // Writing to a String cannot fail.
            writeln!(text, "        {} \\", quoted(&spec)).unwrap_or_default();
        }
    }
    text
}

fn zsh() -> String {
    let mut text = String::from("#compdef rlaunch\n# Completes rlaunch in zsh: made by `rlaunch completions zsh`.\n");
    text.push_str("\n_rlaunch_start() {\n    local -a commands=(\n");
    for sub in &COMMANDS {
        writeln!(text, "        {}", quoted(&format!("{}:{}", sub.name, sub.brief.replace(':', r"\:"))))
            .unwrap_or_default();
    }
    text.push_str("    )\n    (( rlaunch_is_first )) && _describe command commands\n    _command_names -e\n}\n");
    text.push_str("\n_rlaunch() {\n    local rlaunch_is_first=$(( CURRENT == 2 )) name=\n");
    write!(
        text,
        "    if (( CURRENT > 2 )) && [[ $words[2] == ({}|{}) ]]; then\n        name=$words[2]\n        shift words\n        (( CURRENT-- ))\n    fi\n    case $name in\n",
        names(true), names(false)
    ).unwrap_or_default();
    for sub in COMMANDS.iter().filter(|sub| !sub.takes_program()) {
        let specs = specifications(sub.table);
        let words = words_of(sub);
        write!(text, "    ({})\n        _arguments -s -S \\\n{specs}        '*: :({words})' ;;\n", sub.name)
            .unwrap_or_default();
    }
    let specs = specifications(&table::JOB);
    write!(
        text,
        "    (*)\n        _arguments -s -S -A '-*' \\\n{specs}        '(-): :_rlaunch_start' '*:: :_normal' ;;\n    esac\n}}\n"
    ).unwrap_or_default();
    text.push_str("\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n    _rlaunch \"$@\"\nelse\n    compdef _rlaunch rlaunch\nfi\n");
    text
}

fn fish() -> String {
    let fish = |word: &str| format!("'{}'", word.replace('\\', r"\\").replace('\'', r"\'"));
    let with_value = |(name, table): (&str, &'static Table)| {
        let rows = table.rows().filter(|row| matches!(row.takes, Takes::One(_)));
        let words: Vec<String> = rows.flat_map(|row| spellings(row).collect::<Vec<_>>()).collect();
        format!("    set -l {name}_values {}\n", words.join(" "))
    };
    let lists: String = tables().map(with_value).collect();
    let mut text = FISH
        .replace("@LISTS@", &lists)
        .replace("@OWN@", &names(false).replace('|', " "))
        .replace("@JOB@", &names(true).replace('|', " "));
    for sub in &COMMANDS {
        let (name, brief) = (sub.name, fish(sub.brief));
        writeln!(text, "complete -c rlaunch -n __rlaunch_is_first -a {name} -d {brief}").unwrap_or_default();
        let words = words_of(sub);
        if !words.is_empty() {
            writeln!(text, "complete -c rlaunch -n '__rlaunch_in {name}' -a {}", fish(&words)).unwrap_or_default();
        }
    }
    for (name, table) in tables() {
        for row in options(table) {
            let how = match (row.takes, values(row)) {
                (Takes::Nothing | Takes::Maybe(_) | Takes::Pair(_), _) => String::new(),
                (_, Values::Files) => " -rF".to_owned(),
                (_, Values::Dirs) => " -xa '(__fish_complete_directories)'".to_owned(),
                (_, Values::Hosts) => " -xa '(__fish_print_hostnames)'".to_owned(),
                (_, Values::Words(words)) => format!(" -xa {}", fish(&words)),
                (_, Values::Any) => " -x".to_owned(),
            };
            let short = row.letter().map_or_else(String::new, |letter| format!(" -s {}", char::from(letter)));
            let (long, brief) = (row.shown(), fish(row.brief));
            writeln!(text, "complete -c rlaunch -n '__rlaunch_in {name}'{short} -l {long}{how} -d {brief}")
                .unwrap_or_default();
        }
    }
    text
}

const FISH: &str = include_str!("shells/rlaunch.fish");
