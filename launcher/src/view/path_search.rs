//! The surroundings of a program that does not exist, as the file system of this host shows them. Its agent has seen the path itself.

use rlaunch_base::id::Rank;
use rlaunch_base::nearest::nearest;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_core::events::Cause;
use rlaunch_core::report::Report;
use rlaunch_protocol::master_store::{self, Program};
use rlaunch_protocol::wire::to_root::{Found, SpawnError, SpawnStep};
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
    /// A program there that is nearly called like that.
    pub(crate) near: Option<String>,
    /// The same in the directories of PATH.
    pub(crate) known: Option<String>,
    /// The interpreter that a script names in its first line, with the line end that is part of it.
    pub(crate) interpreter: Option<OsBytes>,
    /// A script that is on this host, and that Python did not find on the host of the rank.
    pub(crate) script: Option<OsBytes>,
    /// The option of a working directory that cannot be entered.
    pub(crate) wdir: &'static str,
    /// The standard error of the rank that failed stands above the report.
    pub(crate) has_stderr: bool,
    /// The report is that of `rlaunch clean`.
    pub(crate) cleans: bool,
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
        Some(Cause::Rank { rank, .. }) => Around { script: script(report, *rank), ..Around::default() },
        Some(_) | None => Around::default(),
    }
}

/// The script of a rank on another host, if it exists here and Python did not find it there.
fn script(report: &Report, rank: Rank) -> Option<OsBytes> {
    const WORDS: [&[u8]; 2] = [b"can't open file ", b"[Errno 2]"];
    let Program::Script(path) = master_store::program(&report.app(rank)?.argv) else { return None };
    let tail = &report.facts.get(&rank)?.tail;
    let was_missing = WORDS.iter().all(|words| tail.windows(words.len()).any(|part| part == *words));
    let is_here = || start_dir(report, rank).join(OsStr::from_bytes(path)).is_file();
    (was_missing && is_here()).then(|| path.into())
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
        (Found::Nothing, _) => nearest_file(dir, name, &|path| is_executable(path) || is_script(path))
            .map(|near| if in_path && is_executable(&dir.join(&near)) { Path::new(".").join(near) } else { near })
            .map(|near| near.display().to_string()),
        (Found::Dir | Found::Empty | Found::File, _) => None,
    };
    let known = (error.found == Found::Nothing && in_path).then(|| nearest_known(name)).flatten();
    let interpreter = (error.found == Found::File).then(|| interpreter(&dir.join(name))).flatten();
    Around { dir: dir.display().to_string(), near, known, interpreter, ..Around::default() }
}

/// The file beside a missing one whose name is nearly the same.
pub(crate) fn near_file(missing: &OsBytes) -> Option<OsBytes> {
    let near = nearest_file(Path::new(""), Path::new(OsStr::from_bytes(missing)), &Path::is_file)?;
    Some(near.as_os_str().as_bytes().into())
}

/// The program in the directories of PATH whose name is nearly the same, and begins with the same letter.
fn nearest_known(name: &Path) -> Option<String> {
    let wanted = name.to_str()?;
    let directories = std::env::var_os("PATH")?;
    let names = std::env::split_paths(&directories).flat_map(|dir| {
        let is_meant = |name: &str| name.chars().next() == wanted.chars().next() && is_executable(&dir.join(name));
        names_in(&dir).into_iter().filter(|name| is_meant(name)).collect::<Vec<_>>()
    });
    let names: Vec<String> = names.take(ENTRIES).collect();
    nearest(wanted.as_bytes(), names.iter().map(String::as_str)).map(str::to_owned)
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

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// A program that Python runs.
fn is_script(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "py") && path.is_file()
}

/// The file beside a missing one that is accepted and whose name differs least.
fn nearest_file(dir: &Path, name: &Path, is_meant: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
    let wanted = name.file_name()?.to_str()?;
    let parent = name.parent()?;
    let place = dir.join(parent);
    let place = if place.as_os_str().is_empty() { Path::new(".") } else { &place };
    let names: Vec<String> = names_in(place).into_iter().filter(|name| is_meant(&place.join(name))).collect();
    nearest(wanted.as_bytes(), names.iter().map(String::as_str)).map(|near| parent.join(near))
}

/// Names of a directory, in order.
fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().take(ENTRIES).filter_map(Result::ok);
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_file_and_interpreter_are_found_in_directory() {
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
        fs::write(dir.join("eval.py"), "x").unwrap();
        for (path, near) in
            [("tran", "./train"), ("eval.yp", "eval.py"), ("./evla.py", "./eval.py"), ("eval", "eval.py")]
        {
            assert_eq!(see(path, Found::Nothing).as_deref(), Some(near).filter(|_| path != "eval"), "{path}");
        }
        assert_eq!(
            near_file(&dir.join("emty").as_os_str().as_bytes().into()).unwrap().len(),
            dir.join("empty").as_os_str().len()
        );
        assert_eq!(near_file(&dir.join("gone/x").as_os_str().as_bytes().into()), None);
        fs::remove_dir_all(&dir).unwrap();
    }
}
