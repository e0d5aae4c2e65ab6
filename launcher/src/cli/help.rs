//! The help, made from the table when it is asked for.

use super::commands::{self, COMMANDS, Sub};
use super::errors::CliError;
use super::nearest::nearest;
use super::table::{self, GROUPS, Group, Id, Row, Takes, options};
use super::{devices, env, faults, output_options, place, run, torch};
use rlaunch_base::os_bytes::OsBytes;
use std::fmt::Write as _;

options! {
    Help, "Help", "help";
    Help -b'h' ["help"] Nothing: "-h: this on one screen; --help: with explanations";
    Version -b'V' ["version"] Nothing: "print the version; with -v: where each rlaunch is";
}

const USAGE: &str = "Usage: rlaunch [OPTIONS] PROGRAM [ARGS...] [: [OPTIONS] PROGRAM [ARGS...]]...\n";
const COLUMN: usize = 27;
const WIDTH: usize = 80;

/// The options of `-h`, in its order: what most people use, on one screen.
const COMMON: &[Id] = &[
    Id::Run(run::Opt::Ranks),
    Id::Place(place::Opt::Hosts),
    Id::Place(place::Opt::Hostfile),
    Id::Place(place::Opt::PerNode),
    Id::Place(place::Opt::Gpus),
    Id::Env(env::Opt::Export),
    Id::Run(run::Opt::Wdir),
    Id::Output(output_options::Opt::Label),
    Id::Torch(torch::Opt::LogDir),
    Id::Output(output_options::Opt::Events),
    Id::Output(output_options::Opt::Quiet),
    Id::Faults(faults::Opt::MaxRestarts),
    Id::Faults(faults::Opt::OnFailure),
    Id::Faults(faults::Opt::Timeout),
    Id::Place(place::Opt::DryRun),
    Id::Help(Opt::Help),
    Id::Help(Opt::Version),
];

pub(super) const EXIT_CODES: &str = "\
Exit code: that of the rank that failed first, 128 + the signal that killed it;
2 bad option, 124 --timeout, 125 launch failed, 126 program not executable,
127 program not found.
";

pub(super) const DESCRIPTION: &str = "\
The first word that is no option is the program. All words after it are its own,
up to a ':'. There another program begins, with its own -n, --ppn, -H, -f, -x,
--wdir and --name. After 'rlaunch run --' a ':' is a word like others.
Underscores in options are dashes. Of an option given twice the last one counts;
-H, -f and -x add up.
";

pub(super) const EXAMPLES: &str = "  rlaunch -n 4 ./train --lr 0.1
  rlaunch -n 4 -l sh -c 'echo $RANK of $WORLD_SIZE'
  rlaunch -n 8 --timeout 1h -x NCCL_DEBUG=INFO python3 train.py
  rlaunch -n 1 --name server ./serve : -n 3 --name worker ./work
";

/// Topics of `rlaunch help` that are no group of options.
const TEXTS: [&str; 2] = ["exit-codes", "variables"];

/// `-h`.
pub(super) fn brief() -> String {
    let mut text = format!("{USAGE}\n");
    common(&mut text);
    let names = COMMANDS.iter().map(|sub| sub.name).collect::<Vec<_>>().join(" ");
    text.push('\n');
    text.push_str(&wrapped(&format!("Commands: {names}")));
    text.push_str("All options: rlaunch --help. One command or topic: rlaunch help TOPIC.\n");
    text
}

fn common(text: &mut String) {
    let first = |id: &Id| table::rows().find(|row| row.id == *id);
    COMMON.iter().filter_map(first).for_each(|row| line(text, row));
}

/// `--help`.
pub(super) fn full() -> String {
    let mut text = String::from(
        "rlaunch starts cooperating processes (ranks) and stays with them until the last\none is gone.\n\n",
    );
    text.push_str(USAGE);
    for sub in &COMMANDS {
        entry(&mut text, &format!("       rlaunch {} {}", sub.name, sub.shape), 41, sub.brief);
    }
    text.push('\n');
    text.push_str(DESCRIPTION);
    for group in GROUPS {
        text.push('\n');
        text.push_str(&self::group(&group));
    }
    text.push('\n');
    text.push_str(EXIT_CODES);
    text.push('\n');
    text.push_str(&variables());
    text.push_str("docs/reference/environment.md lists the variables of each rank.\n\nExamples:\n");
    text.push_str(EXAMPLES);
    text.push('\n');
    text.push_str(&wrapped(&format!("Topics of rlaunch help: {}", topics().collect::<Vec<_>>().join(" "))));
    text
}

/// The words of `rlaunch help` that are neither a command nor an option.
pub(super) fn topics() -> impl Iterator<Item = &'static str> {
    GROUPS.into_iter().map(|group| group.topic).filter(|topic| *topic != GROUP.topic).chain(TEXTS)
}

/// `rlaunch help TOPIC`.
pub(super) fn about(words: &[OsBytes]) -> Result<String, CliError> {
    let (first, more) = match words {
        [] => return Ok(full()),
        [only] if matches!(only.as_slice(), b"-h" | b"--help") => return Ok(command_named("help")),
        [first, more @ ..] => (first, more.first()),
    };
    let word: Vec<u8> = first.iter().copied().skip_while(|b| *b == b'-').collect();
    let is_option = first.starts_with(b"-");
    let sub = commands::by_name(&word).filter(|_| !is_option);
    let group = GROUPS.into_iter().find(|group| !is_option && group.topic.as_bytes() == word);
    let own = match word.as_slice() {
        b"exit-codes" => Some(EXIT_CODES.to_owned()),
        b"variables" => Some(variables()),
        _ => None,
    };
    let letter = if let [letter] = word.as_slice() { table::JOB.by_letter(*letter) } else { None };
    let row = table::JOB.by_name(&word).or(letter);
    match (more, sub, group, own, row) {
        (None, Some(sub), ..) => Ok(command(sub)),
        (None, _, Some(found), ..) => Ok(self::group(&found)),
        (None, _, _, Some(text), _) => Ok(text),
        (None, .., Some(row)) => Ok(option(row)),
        (more, ..) => {
            let near = if more.is_none() { near(&word) } else { Vec::new() };
            let near: Vec<String> = near.into_iter().map(|name| format!("rlaunch help {name}")).collect();
            let hint = match near.as_slice() {
                [] => "rlaunch help help lists the topics".to_owned(),
                near => near.join("   or   "),
            };
            Err(CliError::Value {
                option: "rlaunch help".into(),
                takes: "a command, an option or a topic".into(),
                got: more.unwrap_or(first).clone(),
                hint: Some(hint.into()),
            })
        }
    }
}

/// Commands, topics and options that have a word in their name or their title; else the one that is spelled most like it.
fn near(word: &[u8]) -> Vec<&'static str> {
    const SHORTEST: usize = 3;
    const MOST: usize = 3;
    let has = |text: &str| {
        let text = text.to_ascii_lowercase();
        word.len() >= SHORTEST && text.as_bytes().windows(word.len()).any(|part| part == word)
    };
    let topics = GROUPS.into_iter().filter(|group| has(group.title) || has(group.topic)).map(|group| group.topic);
    let rows = || table::rows();
    let named = rows().filter(|row| row.names.iter().any(|name| has(name))).map(Row::shown);
    let near: Vec<&str> = topics.chain(named).take(MOST).collect();
    if !near.is_empty() {
        return near;
    }
    let options = table::rows().flat_map(|row| row.names.iter().copied()).filter(|name| name.len() > 1);
    let names = COMMANDS.iter().map(|sub| sub.name).chain(self::topics()).chain(options);
    nearest(word, names).into_iter().collect()
}

/// A group of options, with explanations.
fn group(group: &Group) -> String {
    let mut text = format!("{}:\n", group.title);
    group.rows.iter().for_each(|row| text.push_str(&option(row)));
    text
}

/// An option, with explanations.
fn option(row: &'static Row) -> String {
    // A letter more of another row.
    let row = table::rows().find(|own| own.id == row.id).unwrap_or(row);
    let mut text = String::new();
    line(&mut text, row);
    for more in row.more {
        // Writing to a String cannot fail.
        writeln!(text, "{:COLUMN$}{more}", "").unwrap_or_default();
    }
    text
}

/// `--help` of a command.
pub(super) fn command(sub: &Sub) -> String {
    let mut text = String::from(sub.usage);
    match sub.name {
        "run" => {
            common(&mut text);
            text.push_str("\nAll options: rlaunch --help\n");
        }
        "map" => text.push_str(&group(&place::GROUP)),
        "help" => text.push_str(&wrapped(&topics().collect::<Vec<_>>().join(" "))),
        _ => sub.table.rows().for_each(|row| line(&mut text, row)),
    }
    // Its trial is of another kind than that of a job.
    if sub.name == "clean" { text.replace(place::DRY_RUN, devices::DRY_RUN) } else { text }
}

/// `--help` of the command with this name.
pub(super) fn command_named(name: &str) -> String {
    commands::by_name(name.as_bytes()).map(command).unwrap_or_default()
}

/// The variables that stand for options.
pub(super) fn variables() -> String {
    let own = table::rows().filter_map(Row::variable).map(|name| name + ", ").collect::<String>();
    wrapped(&format!("Variables that stand for options: {own}RLAUNCH_LABEL=0|1 too; an option goes first."))
}

/// Words in lines.
fn wrapped(words: &str) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for word in words.split(' ') {
        if column + 1 + word.len() > WIDTH {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        column += word.len();
        text.push_str(word);
    }
    text.push('\n');
    text
}

/// `--version`: of a build in a git repository with the commit and its date.
pub(super) fn version() -> String {
    concat!("rlaunch ", env!("RLAUNCH_VERSION"), "\n").to_owned()
}

fn line(text: &mut String, row: &Row) {
    entry(text, &spelled(row), COLUMN, row.brief);
}

/// An option with its letter and its value, as the help shows it.
pub(super) fn spelled(row: &Row) -> String {
    let (short, dash) = match row.letter() {
        Some(letter) => (format!("-{}, ", char::from(letter)), "--"),
        None if matches!(row.takes, Takes::Pair(_)) => ("    ".to_owned(), "-"),
        None => ("    ".to_owned(), "--"),
    };
    let value = match row.takes {
        Takes::Nothing => String::new(),
        Takes::One(what) | Takes::Pair(what) => format!(" {what}"),
        Takes::Maybe(what) => format!("[={what}]"),
    };
    format!("  {short}{dash}{}{value}", row.shown())
}

/// A line of two columns.
fn entry(text: &mut String, left: &str, column: usize, right: &str) {
    let gap = if left.len() + 1 < column { column } else { left.len() + 2 };
    // Writing to a String cannot fail.
    writeln!(text, "{left:gap$}{right}").unwrap_or_default();
}
