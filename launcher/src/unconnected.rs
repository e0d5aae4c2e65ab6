//! Notes about jobs that would run with a silent wrong answer: ranks of MPI, which nothing connects, and hosts of an allocation that are not used.

use crate::cli::Plan;
use rlaunch_core::allocation::Allocation;
use rlaunch_core::elf;
use rlaunch_core::framework::imports;
use rlaunch_core::master_store::{self, Program};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::shell::quoted;
use rlaunch_core::spec::AppBase;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Note about ranks that MPI would have to connect.
pub(crate) fn mpi(plan: &Plan) -> Option<String> {
    let ranks = plan.job.world_size();
    let uses = || plan.job.apps.iter().any(|app| uses_mpi(&app.base));
    (ranks > 1 && uses()).then(|| {
        format!(
            "rlaunch: rlaunch does not connect MPI ranks yet: each of the {ranks} ranks will be a world of its own\n"
        )
    })
}

/// Note about hosts of the scheduler's job, where none was named.
pub(crate) fn allocation(plan: &Plan) -> Option<String> {
    if plan.names_hosts {
        return None;
    }
    let env = |name: &str| std::env::var(name).ok();
    let read = |path: &str| regular(Path::new(path), 1 << 20).and_then(|text| String::from_utf8(text).ok());
    // A process of an srun step with several tasks is one of many, each with its own rlaunch.
    if env("SLURM_STEP_NUM_TASKS").is_some_and(|tasks| tasks.parse().is_ok_and(|tasks: u32| tasks > 1)) {
        return None;
    }
    let found = match Allocation::find(&env, &read) {
        Ok(found) => found.filter(|found| found.hosts.len() > 1)?,
        Err(error) => return Some(format!("rlaunch: {error}; all ranks run on this host\n")),
    };
    let (scheduler, hosts) = (found.scheduler, found.folded());
    let option = quoted(&OsBytes::from(hosts.as_str()));
    Some(format!(
        "rlaunch: {scheduler} has allocated {hosts}, and all ranks run on this host; -H {option} uses the others\n"
    ))
}

fn uses_mpi(base: &AppBase) -> bool {
    match master_store::program(&base.argv) {
        Program::Script(path) => {
            let text = regular(&place(base, path), master_store::MOST as u64);
            text.is_some_and(|text| imports(&text, b"mpi4py"))
        }
        Program::Code(code) => imports(code, b"mpi4py"),
        Program::Module => false,
        Program::Other => executable(base).is_some_and(|path| needs_mpi(&path)),
    }
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

fn needs_mpi(path: &Path) -> bool {
    // A FIFO or a device would hold us up.
    if !path.is_file() {
        return false;
    }
    let Ok(file) = File::open(path) else { return false };
    let needed = elf::needed(&mut |offset, size| {
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    });
    needed.iter().any(|name| {
        name.starts_with(b"libmpi.so")
            || name.starts_with(b"libmpi_")
            || name.starts_with(b"libmpich")
            || name.starts_with(b"libmpicxx")
    })
}

/// The beginning of a file.
fn regular(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = path.is_file().then(|| File::open(path).ok())??;
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
