//! `rlaunch report`, done: reads an event log record by record, and writes its picture or its course.

use crate::cli::{Picture, ReportRequest};
use crate::query_commands::{Failure, Outcome};
use crate::timeline::{chrome, svg};
use crate::view::timeline::summary;
use rlaunch_base::exit;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_core::events::VERSION;
use rlaunch_core::timeline::{Builder, Entry, Head, Timeline};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The longest line that is read. rlaunch writes none that is nearly as long.
const LONGEST: u64 = 64 << 20;

/// Contents of a log.
struct Log {
    timeline: Timeline,
    /// Lines that are no records.
    strange: u64,
    /// Number of the last line, where its end is missing.
    cut_off: Option<u64>,
}

/// Reads the log, and writes the picture or returns the course. Notes about the log are for stderr.
pub(crate) fn run(request: &ReportRequest) -> Result<(Outcome, Vec<String>), Failure> {
    let path = path(&request.events);
    let file = File::open(&path).map_err(|error| unread(&request.events, &error))?;
    if let Some((target, _)) = &request.timeline {
        not_itself(&file, target)?;
    }
    let log = read(BufReader::with_capacity(1 << 18, file), &request.events)?;
    let notes = notes(&log, &request.events);
    let output = match &request.timeline {
        Some((target, picture)) => {
            let text = match picture {
                Picture::Svg => svg::text(&log.timeline),
                Picture::Json => chrome::text(&log.timeline),
            };
            write(target, text.as_bytes())?;
            Vec::new()
        }
        None => summary::text(&log.timeline).into_bytes(),
    };
    Ok((Outcome { output, code: 0 }, notes))
}

fn path(name: &OsBytes) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(name))
}

fn notes(log: &Log, name: &OsBytes) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(line) = log.cut_off {
        notes.push(format!("{name} is cut off in line {line}; the rest of the job is missing"));
    } else if log.timeline.end.is_none() {
        notes.push(format!("{name} has no job.end: the job still runs, or its log is cut off"));
    }
    match log.strange {
        0 => {}
        1 => notes.push(format!("a line of {name} is no record and is left out")),
        lines => notes.push(format!("{lines} lines of {name} are no records and are left out")),
    }
    notes
}

/// Reads all lines. The first must be the beginning of an event log.
fn read(mut from: impl BufRead, name: &OsBytes) -> Result<Log, Failure> {
    let mut builder = Builder::default();
    let (mut line, mut number, mut strange, mut cut_off) = (Vec::new(), 0_u64, 0_u64, None);
    loop {
        line.clear();
        let read = from.by_ref().take(LONGEST).read_until(b'\n', &mut line).map_err(|error| unread(name, &error))?;
        if read == 0 {
            break;
        }
        number += 1;
        let is_whole = line.ends_with(b"\n");
        if !is_whole && read as u64 == LONGEST {
            skip_line(&mut from).map_err(|error| unread(name, &error))?;
        }
        match entry(&line) {
            Found::Entry(entry) if number == 1 && entry.ev != "job.start" => return Err(no_log(name)),
            Found::Entry(entry) => builder.add(*entry),
            Found::Other if number == 1 => return Err(no_log(name)),
            Found::Other => {}
            Found::Version(v) => return Err(newer(name, v)),
            Found::Nothing if number == 1 => return Err(no_log(name)),
            Found::Nothing if is_whole => strange += 1,
            Found::Nothing => cut_off = Some(number),
        }
    }
    if number == 0 {
        return Err(failure(format!("{name} is empty: rlaunch has written no record to it"), Some(HOW)));
    }
    Ok(Log { timeline: builder.finish(), strange, cut_off })
}

/// Reads the rest of a line that is too long.
fn skip_line(from: &mut impl BufRead) -> io::Result<()> {
    loop {
        let room = from.fill_buf()?;
        let (used, is_end) = match room.iter().position(|b| *b == b'\n') {
            Some(at) => (at + 1, true),
            None => (room.len(), room.is_empty()),
        };
        from.consume(used);
        if is_end {
            return Ok(());
        }
    }
}

/// A line of a log.
enum Found {
    /// A record that a picture shows.
    Entry(Box<Entry>),
    /// Another record.
    Other,
    /// A record of another version.
    Version(u32),
    /// No record.
    Nothing,
}

fn entry(line: &[u8]) -> Found {
    match serde_json::from_slice::<Head<'_>>(line) {
        Err(_) => Found::Nothing,
        Ok(head) if head.v != VERSION => Found::Version(head.v),
        Ok(head) if !Entry::is_shown(&head.ev) => Found::Other,
        Ok(_) => serde_json::from_slice(line).map_or(Found::Nothing, |entry| Found::Entry(Box::new(entry))),
    }
}

const HOW: &str = "rlaunch --events FILE PROGRAM, which writes an event log";

fn failure(text: String, hint: Option<&'static str>) -> Failure {
    Failure { text, hint, code: exit::USAGE }
}

fn no_log(name: &OsBytes) -> Failure {
    failure(format!("{name} is no event log: its first line is no job.start record"), Some(HOW))
}

fn newer(name: &OsBytes, version: u32) -> Failure {
    let hint = Some("the rlaunch that has written the log");
    failure(format!("{name} has version {version} of the event log; this rlaunch reads version {VERSION}"), hint)
}

fn unread(name: &OsBytes, error: &io::Error) -> Failure {
    let hint = (error.kind() == io::ErrorKind::NotFound).then_some(HOW);
    failure(format!("cannot read the event log {name}: {}", rlaunch_sys::reason(error)), hint)
}

fn unwritten(name: &OsBytes, error: &io::Error) -> Failure {
    let text = format!("cannot write {name}: {}", rlaunch_sys::reason(error));
    Failure { text, hint: None, code: exit::UNWRITTEN }
}

/// The picture must not replace the log.
fn not_itself(log: &File, target: &OsBytes) -> Result<(), Failure> {
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    match (log.metadata(), fs::metadata(path(target))) {
        (Ok(log), Ok(there)) if same(&log, &there) => {
            Err(failure(format!("{target} is the event log itself"), Some("--timeline with the name of a new file")))
        }
        _ => Ok(()),
    }
}

/// Writes a file as a whole: another reader finds the old one or the new one.
fn write(name: &OsBytes, text: &[u8]) -> Result<(), Failure> {
    let target = path(name);
    let number = format!(".{}.part", std::process::id()).into_bytes();
    let own = target.file_name().map(|file| [b".".as_slice(), file.as_bytes(), &number].concat()).unwrap_or_default();
    let part = target.with_file_name(OsStr::from_bytes(&own));
    let done = fill(&part, text).and_then(|()| fs::rename(&part, &target));
    done.map_err(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            // A file that was never made cannot be removed.
            let _absent = fs::remove_file(&part);
        }
        unwritten(name, &error)
    })
}

fn fill(part: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(part)?;
    file.write_all(text)
}
