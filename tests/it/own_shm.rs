//! A /dev/shm of a case alone: what is left there was left by the case.

use crate::case::Case;
use crate::census;
use crate::place;
use crate::plan::Plan;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

/// The directory, open: it can be read when all processes of the case are gone. `None`: this host does not allow that.
pub(crate) struct OwnShm(Option<File>);

/// Words that run `$JOB` with a /dev/shm of its own, as the same user; empty: this host does not allow that.
fn words() -> &'static str {
    static WORDS: OnceLock<&str> = OnceLock::new();
    WORDS.get_or_init(|| {
        let words = match place::is_root() {
            true => "exec unshare -m sh -c 'mount -t tmpfs -o mode=1777 shm /dev/shm && { read go; eval \"$JOB\"; }'",
            false => {
                "exec unshare -Urm sh -c 'mount -t tmpfs -o mode=1777 shm /dev/shm && { read go;
                 exec unshare -U --map-user=\"$OWN_UID\" --map-group=\"$OWN_GID\" sh -c \"$JOB\"; }'"
            }
        };
        let may = with_job(Plan::shell(words), "exec true").start().end().exit.is_success();
        if !may {
            place::absent("a mount namespace", "none can be made: files that are left in /dev/shm are not looked for");
        }
        if may { words } else { "" }
    })
}

fn with_job(plan: Plan, job: &str) -> Plan {
    let (user, group) = (nix::unistd::getuid(), nix::unistd::getgid());
    plan.env("JOB", job).env("OWN_UID", user.to_string()).env("OWN_GID", group.to_string())
}

/// A shell script with a /dev/shm of its own, if this host allows that. It begins when that is looked at.
pub(crate) fn shell(script: &str) -> Plan {
    let words = words();
    with_job(Plan::shell(if words.is_empty() { "read go; eval \"$JOB\"" } else { words }), script).stdin_pipe()
}

impl OwnShm {
    /// The /dev/shm of a case, which begins now.
    pub(crate) fn of(case: &mut Case) -> Self {
        let shm = Self((!words().is_empty()).then(|| Self::find(case)));
        case.take_stdin().write_all(b"\n").unwrap();
        shm
    }

    fn find(case: &Case) -> File {
        let path = format!("/proc/{}/root/dev/shm", case.pid());
        let device = |path: &str| fs::metadata(path).map(|it| it.dev()).ok();
        let all = device("/dev/shm");
        census::wait_until("a /dev/shm of the case", || device(&path).is_some_and(|own| Some(own) != all));
        File::open(path).unwrap()
    }

    /// The names in it.
    pub(crate) fn names(&self) -> Vec<String> {
        let Some(dir) = &self.0 else { return Vec::new() };
        let entries = fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd())).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}
