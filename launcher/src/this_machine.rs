//! Facts about this machine for the command line, and the files that a user names.

use crate::cli::{self, Runs, Site};
use crate::commands::LocalCommands;
use crate::view::path_search;
use crate::{bindings, doctor};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::gpus::Devices;
use rlaunch_plan::place::Here;
use rlaunch_sys::fd::{self, Kind};
use rlaunch_sys::origin::{self, Origin};
use rlaunch_sys::slots::Turn;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

/// Asks something about this machine.
pub(crate) fn with_site<T>(origin: &Origin, ask: impl FnOnce(&Site<'_>) -> T) -> T {
    let name = String::from_utf8_lossy(&rlaunch_sys::facts::host::hostname()).into_owned();
    let commands = LocalCommands::new(origin);
    let env = &|name: &str| std::env::var_os(name);
    let done = ask(&Site {
        here: Here { name, cpus: rlaunch_sys::facts::host::cpus() },
        gpus: &|| gpus(env),
        units: &|level| bindings::processors().topology.count(level),
        ask: &|hosts, reach| doctor::count(hosts, reach, origin, env),
        read: &|path| read_file(path, origin),
        is_file: &|path| std::fs::metadata(OsStr::from_bytes(path)).is_ok_and(|meta| meta.is_file()),
        near: &|path| path_search::near_file(path),
        runs: &|path| runs(path),
        has_input: &has_input,
        directory: &|| origin::directory().ok().map(OsBytes::new),
        env,
        groups: &cli::Known::new(&commands),
        turn: &Turn::take,
    });
    commands.end();
    done
}

/// The content of a file that the user names. It may be a FIFO that waits for its writer.
pub(crate) fn read_file(path: &OsBytes, origin: &Origin) -> io::Result<Vec<u8>> {
    origin.interruptibly(|| std::fs::File::open(OsStr::from_bytes(path)).and_then(read_all))
}

/// Whether standard input can bring a program. At a terminal a person types, and `/dev/null` is empty for all ranks alike.
fn has_input() -> bool {
    fd::kind(0).is_ok_and(|kind| matches!(kind, Kind::Stream | Kind::File))
}

/// How many GPUs a program sees that is started here.
fn gpus(env: cli::Lookup<'_>) -> Option<u32> {
    let rlaunch_sys::facts::host::Gpus { amd, count } = rlaunch_sys::facts::host::gpus();
    let seen = Devices { amd, count }.seen(|name| env(name).map(OsString::into_encoded_bytes))?;
    u32::try_from(seen.len()).ok()
}

/// Whether the kernel would run a file: it may, and its first bytes say how. Other files need a program that reads them.
fn runs(path: &OsBytes) -> Option<Runs> {
    let path = OsStr::from_bytes(path);
    let meta = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let may = meta.permissions().mode() & 0o111 != 0;
    let known = |mut file: std::fs::File| {
        let mut begin = [0; 4];
        file.read(&mut begin).is_ok() && (begin.starts_with(b"#!") || begin.as_slice() == b"\x7fELF")
    };
    // A file that may be executed and not be read is no script.
    Some(if may && std::fs::File::open(path).map_or(true, known) { Runs::Itself } else { Runs::Never })
}

pub(crate) fn read_all(from: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = from.take(cli::LARGEST + 1).read_to_end(&mut bytes)?;
    if read as u64 > cli::LARGEST {
        return Err(io::Error::other("it has more than 16 MiB"));
    }
    Ok(bytes)
}
