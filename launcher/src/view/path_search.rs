//! The surroundings of a program that does not exist, as the file system of this host shows them. Its agent has seen the path itself.

use rlaunch_core::events::Cause;
use rlaunch_core::id::Rank;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::report::Report;
use rlaunch_core::wire::to_root::{Found, SpawnError, SpawnStep};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Most entries of a directory that are compared with a missing name.
const ENTRIES: usize = 10_000;

/// The findings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Around {
    /// The directory from which relative paths were searched.
    pub(crate) dir: String,
    /// A program that is nearly called like that.
    pub(crate) near: Option<String>,
    /// The interpreter that a script names in its first line, with the line end that is part of it.
    pub(crate) interpreter: Option<OsBytes>,
    /// The option of a working directory that cannot be entered.
    pub(crate) wdir: &'static str,
}

/// Looks around, if the job ended with a launch error.
pub(crate) fn look(report: &Report) -> Around {
    match report.end.as_ref().map(|end| &end.cause) {
        Some(Cause::Spawn { rank, error: error @ SpawnError { step: SpawnStep::Exec, .. } }) => {
            look_for(&start_dir(report, *rank), error)
        }
        Some(Cause::Spawn { error: SpawnError { step: SpawnStep::ChangeDir, path, .. }, .. }) => {
            // The option goes first: if both name the same directory, either is right.
            let named = std::env::var_os("RLAUNCH_WDIR").is_some_and(|dir| dir.as_bytes() == path.as_slice());
            Around { wdir: if named { "RLAUNCH_WDIR (environment)" } else { "--wdir" }, ..Around::default() }
        }
        Some(_) | None => Around::default(),
    }
}

fn start_dir(report: &Report, rank: Rank) -> PathBuf {
    let cwd = std::env::current_dir().unwrap_or_default();
    match report.app(rank).and_then(|app| app.wdir.as_ref()) {
        Some(wdir) => cwd.join(OsStr::from_bytes(wdir)),
        None => cwd,
    }
}

fn look_for(dir: &Path, error: &SpawnError) -> Around {
    let name = Path::new(OsStr::from_bytes(&error.path));
    let in_path = !error.path.contains(&b'/');
    let near = match (error.found, in_path) {
        // As in a shell, what is not on the PATH is not found even where it lies in front of us.
        (Found::Nothing, true) if is_program(&dir.join(name)) => Some(format!("./{}", name.display())),
        (Found::Nothing, false) => nearest(dir, name),
        (Found::Nothing | Found::Dir | Found::Empty | Found::File, _) => None,
    };
    let interpreter = (error.found == Found::File).then(|| interpreter(&dir.join(name))).flatten();
    Around { dir: dir.display().to_string(), near, interpreter, ..Around::default() }
}

/// The program after `#!`, as the kernel reads it: up to a blank or the newline.
fn interpreter(script: &Path) -> Option<OsBytes> {
    let mut begin = Vec::new();
    File::open(script).and_then(|file| file.take(256).read_to_end(&mut begin)).ok()?;
    let line = begin.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let words = line.trim_ascii_start().split(|b| matches!(b, b' ' | b'\t'));
    words.into_iter().next().filter(|word| !word.is_empty()).map(OsBytes::from)
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| !meta.is_dir() && meta.len() > 0)
}

/// The executable beside the missing one whose name differs least, by at most two letters.
fn nearest(dir: &Path, name: &Path) -> Option<String> {
    let wanted = name.file_name()?.to_str()?;
    let parent = name.parent()?;
    let entries = fs::read_dir(dir.join(parent)).ok()?.take(ENTRIES).filter_map(Result::ok);
    let names = entries
        .filter(|entry| fs::metadata(entry.path()).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0))
        .filter_map(|entry| entry.file_name().into_string().ok());
    let limit = 2.min(wanted.chars().count().saturating_sub(1));
    let (_, best) = names.map(|n| (distance(wanted, &n), n)).filter(|(d, _)| *d <= limit).min()?;
    Some(parent.join(best).display().to_string())
}

/// Letters to insert, remove or change until `a` is `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (above, y) in row.iter_mut().skip(1).zip(&b) {
            let changed = diagonal + usize::from(x != *y);
            diagonal = *above;
            left = changed.min(left + 1).min(*above + 1);
            *above = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(["tran", "train", "trian", "", "xxxxx"].map(|a| distance(a, "train")), [1, 0, 2, 5, 5]);
    }

    #[test]
    fn sees_what_is_there() {
        let dir = std::env::temp_dir().join(format!("rlaunch-around-{}", std::process::id()));
        fs::create_dir_all(dir.join("sub")).unwrap();
        fs::write(dir.join("train"), "x").unwrap();
        fs::set_permissions(dir.join("train"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.join("empty"), "").unwrap();
        let see = |path: &str, found| {
            let error = SpawnError { step: SpawnStep::Exec, errno: 2, path: OsBytes::from(path), found };
            look_for(&dir, &error).near
        };
        assert_eq!(see("./tran", Found::Nothing), Some("./train".into()));
        assert_eq!(see("train", Found::Nothing), Some("./train".into()));
        assert_eq!(see("./tran", Found::File), None);
        for (text, expected) in [
            ("#!/bin/sh\r\necho\r\n", Some("/bin/sh\r")),
            ("#! /nosuch/python3 -u\nx", Some("/nosuch/python3")),
            ("#!\n", None),
            ("echo\n", None),
        ] {
            fs::write(dir.join("train"), text).unwrap();
            let error = SpawnError { step: SpawnStep::Exec, errno: 2, path: "./train".into(), found: Found::File };
            assert_eq!(look_for(&dir, &error).interpreter, expected.map(OsBytes::from), "{text:?}");
        }
        for path in ["./other", "sub", "empty", ""] {
            assert_eq!(see(path, Found::Nothing), None, "{path}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
