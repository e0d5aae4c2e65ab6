//! Facts about jobs that would run with a silent wrong answer: unconnected ranks of MPI, a rendezvous that ranks cannot reach, and
//! variables without effect.

use crate::cli::Plan;
use rlaunch_base::elf;
use rlaunch_base::id::AppIndex;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::shell::quoted;
use rlaunch_protocol::framework::{Mpi, MpiPlan, imports, is_mpi_library};
use rlaunch_protocol::master_store::{self, Program};
use rlaunch_protocol::spec::AppBase;
use rlaunch_sys::helper_command::{Answer, HelperCommands, Limits};
use rlaunch_sys::origin::Origin;
use rlaunch_sys::pidfd::How;
use rlaunch_sys::signals;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Use of MPI by a job, as far as its programs show. `auto` serves it if a rank may need it. A job with one rank needs no service.
pub(crate) fn mpi(plan: &Plan) -> MpiPlan {
    let needs: Vec<Needs> = plan.job.apps.iter().map(|app| Needs::of(&app.base)).collect();
    // A rank alone is a world without help, but its program may start others, or a program that does.
    let is_needed = |needs: &Needs| needs.may_use_mpi && (plan.job.world_size() > 1 || !needs.is_plain);
    let served = match plan.mpi {
        Mpi::On => true,
        Mpi::None => false,
        Mpi::Auto => needs.iter().any(is_needed),
    };
    MpiPlan { served, library: needs.into_iter().find_map(|needs| needs.library).unwrap_or_default() }
}

/// A program and MPI.
struct Needs {
    /// Static programs have no MPI library. A script of torch or JAX that does not import mpi4py is connected by its framework.
    may_use_mpi: bool,
    /// An executable without a library and without arguments, so that it is no wrapper of another program.
    is_plain: bool,
    library: Option<OsBytes>,
}

impl Needs {
    fn of(base: &AppBase) -> Self {
        let unknown = Self { may_use_mpi: true, is_plain: false, library: None };
        let of_script = |text: &[u8]| Self::of_script(base, text);
        match master_store::program(&base.argv) {
            Program::Script(path) => {
                regular(&place(base, path), master_store::MOST as u64).map_or(unknown, |text| of_script(&text))
            }
            Program::Code(code) => of_script(code),
            // `-m mpi4py.futures script.py`.
            Program::Module(name) if name.split(|b| *b == b'.').next() == Some(b"mpi4py") => {
                Self { library: Some(mpi4py(base)), ..unknown }
            }
            Program::Module(_) => unknown,
            Program::Other => {
                let of = executable(base).and_then(|path| with_elf(&path, Self::of_elf)).unwrap_or(unknown);
                Self { is_plain: of.is_plain && base.argv.iter().nth(1).is_none(), ..of }
            }
        }
    }

    fn of_script(base: &AppBase, text: &[u8]) -> Self {
        let has_mpi = imports(text, b"mpi4py");
        let is_framework = !has_mpi && (imports(text, b"torch") || imports(text, b"jax"));
        Self { may_use_mpi: !is_framework, is_plain: false, library: has_mpi.then(|| mpi4py(base)) }
    }

    fn of_elf(read: &mut elf::Read<'_>) -> Self {
        if elf::is_static(read) {
            return Self { may_use_mpi: false, is_plain: true, library: None };
        }
        let needed = elf::needed(read);
        let library: Option<OsBytes> =
            needed.iter().find(|name| is_mpi_library(name)).map(|name| name.as_slice().into());
        // A shell script needs no library either.
        Self { may_use_mpi: true, is_plain: library.is_none() && !needed.is_empty(), library }
    }
}

/// mpi4py, with the library beside its interpreter: that of a wheel or of conda. Any other library is not known.
fn mpi4py(base: &AppBase) -> OsBytes {
    let home = executable(base).and_then(|python| Some(python.parent()?.parent()?.join("lib")));
    match home.is_some_and(|lib| lib.join("libmpi.so.12").exists()) {
        true => "mpi4py with libmpi.so.12".into(),
        false => "mpi4py".into(),
    }
}

/// Whether this host, on which all ranks are to run, has no file for a program.
pub(crate) fn is_missing(plan: &Plan, app: AppIndex) -> bool {
    let base = plan.job.apps.get(app.index()).map(|app| &app.base);
    let is_here = || base.and_then(executable).is_some_and(|path| path.exists());
    plan.job.placement.remote().is_none() && !is_here()
}

/// Note about a name in MASTER_ADDR that this host cannot resolve, if several ranks are to meet there. A note and no refusal:
/// a name may be known on the hosts of the ranks and not here, on a login node. An address is judged by rank 0's host.
pub(crate) fn master_addr(plan: &Plan, origin: &Origin) -> Option<String> {
    let ranks = &plan.job.placement.ranks;
    let first = plan.job.apps.iter().find(|app| app.procs > 0)?;
    let addr = first.base.pinned(b"MASTER_ADDR").filter(|_| ranks.len() > 1)?;
    let name = host_name(addr)?;
    if resolves(name, origin) {
        return None;
    }
    Some(format!(
        "rlaunch: MASTER_ADDR={name} cannot be resolved on this host\n  try     leave MASTER_ADDR out, unless the hosts of the ranks resolve it\n"
    ))
}

/// Note about a MASTER_PORT that is no number of a port, if several ranks are to meet there. A note and no refusal: Kubernetes
/// sets it to an address where a service is called `master`, and a program need not read it.
pub(crate) fn master_port(plan: &Plan) -> Option<String> {
    let first = plan.job.apps.iter().find(|app| app.procs > 0)?;
    let port = first.base.pinned(b"MASTER_PORT").filter(|_| plan.job.placement.ranks.len() > 1)?;
    let is_port = std::str::from_utf8(port).is_ok_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    (!is_port).then(|| {
        let given = quoted(&OsBytes::from(port));
        format!("rlaunch: MASTER_PORT={given} is no port (1 to 65535); the ranks get it unchanged\n  try     leave MASTER_PORT out\n")
    })
}

/// The name of a host. Text that is an address, or that would be more than one word to a shell, is none.
fn host_name(text: &[u8]) -> Option<&str> {
    let is_known = |b: &u8| b.is_ascii_alphanumeric() || b"-._".contains(b);
    let is_name = text.first().is_some_and(u8::is_ascii_alphanumeric) && text.iter().all(is_known);
    let name = std::str::from_utf8(text).ok().filter(|_| is_name)?;
    name.parse::<IpAddr>().is_err().then_some(name)
}

/// Whether the system finds an address for a name. True if `getent` is missing or takes too long.
fn resolves(name: &str, origin: &Origin) -> bool {
    /// The code with which getent(1) exits if a name is not found.
    const UNKNOWN: u8 = 2;
    const LIMITS: Limits = Limits { time: Duration::from_secs(3), bytes: 1 << 16 };
    let Ok(commands) = HelperCommands::new(origin) else { return true };
    let answer = commands.run(format!("exec getent ahosts {name}").as_bytes(), b"/", LIMITS);
    commands.end();
    match answer {
        Ok(Answer::Ended { how, .. }) => how != How::Code(UNKNOWN),
        Ok(Answer::Signal(signal)) => {
            signals::die_of(signal);
            // A signal does not end process 1.
            rlaunch_sys::origin::exit_now(signal.saturating_add(128))
        }
        Ok(Answer::Late | Answer::TooMuch) | Err(_) => true,
    }
}

/// Note about variables that look like rlaunch's and are not, each with the nearest known name.
pub(crate) fn variables(unknown: &[(OsBytes, Option<String>)]) -> Option<String> {
    const MOST: usize = 8;
    let named = unknown.iter().take(MOST).map(|(name, meant)| match meant {
        Some(meant) => format!("{name} ({meant}?)"),
        None => name.to_string(),
    });
    let named = named.collect::<Vec<_>>().join(", ");
    match unknown.len() {
        0 => None,
        1 => Some(format!("rlaunch: not a variable of rlaunch, and ignored: {named}\n")),
        2..=MOST => Some(format!("rlaunch: not variables of rlaunch, and ignored: {named}\n")),
        all => Some(format!("rlaunch: not variables of rlaunch, and ignored: {named} and {} more\n", all - MOST)),
    }
}

/// Note about a TMPDIR in which other users can replace files.
pub(crate) fn temp_dir() -> Option<String> {
    let dir = OsBytes::new(rlaunch_sys::facts::error_file::untrusted_dir()?);
    Some(format!(
        "rlaunch: TMPDIR={dir} is not used: another user can replace files there or above; /tmp is used\n  try     TMPDIR with a directory of your own, or chmod +t\n"
    ))
}

/// A path from the directory that the ranks work in.
fn place(base: &AppBase, path: &[u8]) -> PathBuf {
    let directory = base.wdir.as_ref().map_or(Path::new(""), |dir| Path::new(OsStr::from_bytes(dir)));
    directory.join(OsStr::from_bytes(path))
}

/// The file that is executed, as the ranks will find it.
fn executable(base: &AppBase) -> Option<PathBuf> {
    let name = base.argv.iter().next()?;
    if name.contains(&b'/') {
        return Some(place(base, name));
    }
    let path = base.env.iter().filter_map(|entry| entry.strip_prefix(b"PATH=")).last()?;
    path.split(|b| *b == b':')
        .map(|dir| Path::new(OsStr::from_bytes(dir)).join(OsStr::from_bytes(name)))
        .find(|file| file.is_file())
}

/// Looks at an executable file.
fn with_elf<T>(path: &Path, look: fn(&mut elf::Read<'_>) -> T) -> Option<T> {
    // A FIFO or a device would hold us up.
    let file = path.is_file().then(|| File::open(path).ok())??;
    Some(look(&mut |offset, size| {
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }))
}

/// The beginning of a file.
fn regular(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = path.is_file().then(|| File::open(path).ok())??;
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Such a name is a word of a command line.
    #[test]
    fn only_plain_names_of_hosts_are_looked_up() {
        for name in ["node1", "gpu-7.cluster_a.example"] {
            assert_eq!(host_name(name.as_bytes()), Some(name));
        }
        for text in ["", "10.0.0.1", "::1", "-h", "a b", "a;b", "$(a)", "a\nb", "`a`", "h\u{f6}st"] {
            assert_eq!(host_name(text.as_bytes()), None, "{text}");
        }
    }
}
