//! A launch that failed, as text: what is missing or refused, and what to try.

use super::path_search::Around;
use super::phrases;
use super::report::{Block, host_of};
use crate::command_names;
use rlaunch_base::errno::{E2BIG, EACCES, EAGAIN, ENOENT, ENOEXEC};
use rlaunch_base::error::Hint;
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::{OsBytes, Visible};
use rlaunch_base::shell::quoted;
use rlaunch_core::report::{Became, Report};
use rlaunch_protocol::wire::to_root::{Found, SpawnError, SpawnStep};
use std::borrow::Cow;
use std::fmt::Write;

/// Longest single string that execve(2) takes: MAX_ARG_STRLEN.
const STRING: u64 = 128 << 10;
/// The advice where hosts differ.
const ELSEWHERE: &str = "--wdir, or a path that all hosts have";

/// The advice for a name that PATH does not have.
const BY_PATH: &str = "its path, or -x PATH=...";

/// Words and advice.
struct Said {
    what: String,
    hint: Option<Cow<'static, str>>,
}

impl Hint for Said {
    fn hint(&self) -> Option<Cow<'static, str>> {
        self.hint.clone()
    }
}

/// A rank could not be started.
pub(crate) fn not_started(report: &Report, rank: Rank, error: &SpawnError, around: &Around) -> String {
    let said = match error.step {
        SpawnStep::Exec => exec(report, rank, error, around),
        SpawnStep::ChangeDir => Said {
            what: format!(
                "{} {} on {}: {}",
                around.wdir,
                error.path,
                host_of(report, rank),
                phrases::errno(error.errno)
            ),
            hint: Some(match error.errno {
                ENOENT => format!("mkdir -p {}", quoted(&error.path)).into(),
                _ => format!("{} with a directory that you may enter", around.wdir).into(),
            }),
        },
        SpawnStep::Clone if error.errno == EAGAIN => Said {
            what: format!(
                "rank {rank} cannot be started: the limit on processes of {} is reached",
                host_of(report, rank)
            ),
            hint: Some("fewer ranks, or a higher limit: ulimit -u, the cgroup's pids.max, kernel.pid_max".into()),
        },
        _ => Said {
            what: format!("rank {rank} cannot be started: {}: {}", step(error.step), phrases::errno(error.errno)),
            hint: phrases::way_out(error.errno).map(|hint| format!("fewer ranks, or {hint}").into()),
        },
    };
    text(&said, report)
}

fn text(said: &Said, report: &Report) -> String {
    let mut block = Block::new(format!("error: {}\n", said.what));
    if let Some(hint) = said.hint() {
        let _infallible = writeln!(block.text, "  try     {hint}");
    }
    // If nothing had been started there is nothing to report.
    let started = report.others().iter().any(|group| group.became != Became::NeverStarted);
    if started || report.left != Some(0) {
        if let Some(end) = &report.end {
            block.also(report, &end.cause);
        }
        block.fates("job", report);
    }
    block.text
}

/// The source of the message that a program cannot be started.
pub(super) enum Place<'a> {
    /// The host of a rank that was to be started.
    Here {
        /// The places where a program was looked for.
        searched: String,
        /// The file that is nearly called like that.
        near: Option<&'a str>,
        /// The same in the directories of PATH.
        known: Option<&'a str>,
        /// The interpreter that the program names.
        interpreter: Option<&'a OsBytes>,
    },
    /// These hosts, before anything was started.
    There(&'a str),
}

/// The likely meaning of a program that does not exist; and whether it was looked for here.
fn misread(program: &[u8], here: bool) -> Option<String> {
    let shown = quoted(program);
    if program.is_empty() {
        return Some("is a variable of your command line empty?".to_owned());
    }
    if program.iter().all(u8::is_ascii_digit) {
        return Some(format!("-n {shown} PROGRAM, if it is the number of ranks"));
    }
    match program {
        b"cd" => return Some("--wdir DIR PROGRAM, to start it in another directory".to_owned()),
        b"launch" | b"start" | b"submit" | b"exec" => return Some("leave it out: rlaunch PROGRAM".to_owned()),
        b"status" | b"list" | b"restart" | b"stop" | b"cancel" | b"log" | b"config" => {
            return Some(format!("./{shown}, if it is your program; rlaunch --help lists the commands"));
        }
        _ => {}
    }
    if !program.contains(&b'/') && program.contains(&b'=') {
        return Some(format!("-x {shown} PROGRAM, if it is a variable"));
    }
    // A quote that has no other is part of a name.
    let paired = |quote| program.iter().filter(|b| **b == quote).count().is_multiple_of(2);
    if program.contains(&b' ') && paired(b'\'') && paired(b'"') {
        return Some(format!("{} (without quotes), or sh -c {shown}", Visible(program)));
    }
    // Python runs what is in the directory itself; what has a path and is not there it would not find either.
    if !program.contains(&b'/') && program.ends_with(b".py") {
        return Some(if here {
            format!("the path of {shown}: it is not in this directory")
        } else {
            format!("python3 {shown}")
        });
    }
    if !program.contains(&b'/')
        && let Some(command) = command_names::like(program)
    {
        return Some(format!("rlaunch {command}, if a command of rlaunch was meant"));
    }
    None
}

fn exec(report: &Report, rank: Rank, error: &SpawnError, around: &Around) -> Said {
    if error.errno == E2BIG {
        let what = format!("{}: {}", path_of(error), too_long(report, rank));
        return Said { what, hint: Some("pass it by a file".into()) };
    }
    let place = Place::Here {
        searched: searched(error, report, rank, around),
        near: around.near.as_deref(),
        known: around.known.as_deref(),
        interpreter: around.interpreter.as_ref(),
    };
    let (what, hint) = program(error, &place);
    Said { what, hint }
}

/// The error of a program, and the advice: the same of every host, as far as its agent has seen it.
pub(super) fn program(error: &SpawnError, place: &Place<'_>) -> (String, Option<Cow<'static, str>>) {
    let (why, hint) = match (error.errno, error.found) {
        (ENOENT, Found::File | Found::Empty) => no_interpreter(error, place),
        (ENOENT, Found::Nothing | Found::Dir) => missing(error, place),
        (EACCES, Found::Dir) => ("is a directory".into(), None),
        (EACCES, Found::File | Found::Empty) => {
            ("may not be executed (permission denied)".into(), Some(executable(&error.path)))
        }
        (ENOEXEC, Found::Empty) => ("is empty".into(), None),
        (ENOEXEC, Found::Nothing | Found::Dir | Found::File) => {
            ("no program for this machine, nor a script that begins with #!".into(), Some(language_advice(&error.path)))
        }
        (errno, Found::Nothing | Found::Dir | Found::Empty | Found::File) => {
            let elsewhere = matches!(place, Place::There(_)).then(|| ELSEWHERE.to_owned());
            (phrases::errno(errno), elsewhere)
        }
    };
    let on = match place {
        Place::Here { .. } => String::new(),
        Place::There(hosts) => format!(" on {hosts}"),
    };
    (format!("{}{on}: {why}", path_of(error)), hint.map(Cow::Owned))
}

/// A script whose interpreter does not exist. A script from Windows asks for `sh` with a carriage return.
fn no_interpreter(error: &SpawnError, place: &Place<'_>) -> (String, Option<String>) {
    let Place::Here { interpreter: Some(name), .. } = place else {
        return ("its interpreter does not exist".into(), None);
    };
    match name.strip_suffix(b"\r") {
        Some(plain) => (
            format!("its lines end with CR LF, so its interpreter would be {}\\r", Visible(plain)),
            Some(format!("sed -i 's/\\r$//' {}", quoted(&error.path))),
        ),
        None => (format!("its interpreter {name} does not exist"), Some(language_advice(&error.path))),
    }
}

fn path_of(error: &SpawnError) -> String {
    if error.path.is_empty() { "''".to_owned() } else { error.path.to_string() }
}

/// A program that does not exist.
fn missing(error: &SpawnError, place: &Place<'_>) -> (String, Option<String>) {
    let by_look = || misread(&error.path, matches!(place, Place::Here { .. }));
    match place {
        Place::Here { searched, near, known, .. } => {
            let hint = near.map(|near| quoted(near.as_bytes())).or_else(by_look);
            let hint = hint.or_else(|| known.map(|known| quoted(known.as_bytes())));
            (format!("no such file ({searched})"), hint.or_else(|| Some(elsewhere(&error.path))))
        }
        Place::There(_) if error.path.is_empty() || error.path.contains(&b'/') => {
            (phrases::errno(ENOENT), by_look().or_else(|| Some(ELSEWHERE.to_owned())))
        }
        Place::There(_) => {
            let why = format!("{} (searched in PATH, which is that of this host)", phrases::errno(ENOENT));
            (why, by_look().or_else(|| Some(BY_PATH.to_owned())))
        }
    }
}

/// The advice for a program that is not where it was looked for.
fn elsewhere(path: &[u8]) -> String {
    match path.iter().rposition(|b| *b == b'/') {
        None => BY_PATH.to_owned(),
        Some(0) => "ls /   to see what is there".to_owned(),
        Some(end) if path.starts_with(b"/") => {
            format!("ls {}   to see what is there", quoted(path.get(..end).unwrap_or_default()))
        }
        Some(_) => "--wdir DIR, if it is in another directory".to_owned(),
    }
}

/// How a script runs whose first line does not help.
fn language_advice(path: &[u8]) -> String {
    let interpreter = if path.ends_with(b".py") { "python3" } else { "sh" };
    format!("{interpreter} {}   if it is a script", quoted(path))
}

/// How a file becomes a program.
fn executable(path: &[u8]) -> String {
    let shown = quoted(path);
    let python = if path.ends_with(b".py") { format!("python3 {shown}   or   ") } else { String::new() };
    format!("{python}chmod +x {shown}")
}

/// The places where a program was looked for.
fn searched(error: &SpawnError, report: &Report, rank: Rank, around: &Around) -> String {
    let host = host_of(report, rank);
    match error.path.as_slice() {
        [b'/', ..] => format!("on {host}"),
        path if !path.contains(&b'/') => format!("searched in PATH on {host}"),
        _ if around.dir.is_empty() => format!("searched from a directory that is gone on {host}"),
        _ => format!("searched from {} on {host}", around.dir),
    }
}

/// Both figures, of which one is above its limit.
fn too_long(report: &Report, rank: Rank) -> String {
    let Some(app) = report.app(rank) else { return phrases::errno(E2BIG) };
    if app.longest > STRING {
        let longest = phrases::bytes(app.longest);
        format!("one argument or variable has {longest}, the kernel takes {}", phrases::bytes(STRING))
    } else {
        let all = phrases::bytes(app.bytes);
        format!(
            "arguments and environment have {all}, the kernel takes a quarter of the stack limit (ulimit -s), 6 MiB at most"
        )
    }
}

pub(crate) const fn step(step: SpawnStep) -> &'static str {
    match step {
        SpawnStep::Pipes => "pipes for its output",
        SpawnStep::Clone => "a new process",
        SpawnStep::MountProc => "its /proc",
        SpawnStep::Session => "its session",
        SpawnStep::Streams => "its standard streams",
        SpawnStep::ChangeDir => "its working directory",
        SpawnStep::Limits => "its limits",
        SpawnStep::LogDirectory => "its log files",
        SpawnStep::Gpus => "its GPUs",
        SpawnStep::Devices => "its devices",
        SpawnStep::Exec => "its program",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_other_launchers_are_no_mistyped_programs() {
        for word in ["cd", "launch", "status", "list", "restart", "stop"] {
            assert!(misread(word.as_bytes(), true).is_some(), "{word}");
        }
        assert_eq!(misread(b"statu", true), None);
    }

    #[test]
    fn advice_for_quoted_line_is_a_valid_command() {
        assert_eq!(misread(b"./d ir's/nope", true), None, "its quote is part of a name");
        assert_eq!(misread(b"python t.py", true).unwrap(), "python t.py (without quotes), or sh -c 'python t.py'");
        let offered = misread(b"./t --x 'a b'", true).unwrap();
        assert_eq!(offered, r"./t --x 'a b' (without quotes), or sh -c './t --x '\''a b'\'''");
    }
}
