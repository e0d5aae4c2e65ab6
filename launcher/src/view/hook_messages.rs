//! Messages about the commands of `--on-restart` and `--on-exit`, and their own output.

use super::phrases;
use rlaunch_base::os_bytes::{OsBytes, Visible};
use rlaunch_core::hooks::{HookNote, On};

const fn name(on: On) -> &'static str {
    match on {
        On::Restart => "on-restart",
        On::Exit => "on-exit",
    }
}

/// A line that a command wrote.
pub(crate) fn line(on: On, line: &[u8]) -> String {
    format!("{}: {}\n", name(on), Visible(&OsBytes::from(line)))
}

/// The message that no more output is shown.
pub(crate) fn too_much(on: On, shown: usize) -> String {
    format!("rlaunch: --{} writes more than {}: the rest is not shown\n", name(on), phrases::bytes(shown as u64))
}

/// The message about the outcome of a command. Nothing of it changes what becomes of the job.
pub(crate) fn note(note: HookNote) -> String {
    let text = match note {
        HookNote::Unstarted(on, errno) => format!("--{} cannot be started: {}", name(on), phrases::errno(errno)),
        HookNote::Failed(on, status) => {
            format!("--{} has failed ({status}); the result of the job stays the same", name(on))
        }
        HookNote::Late(on, limit) => {
            format!("--{} took longer than {limit} (--hook-timeout) and is killed", name(on))
        }
        HookNote::Stuck(on) => format!("--{} cannot be killed; its process may remain", name(on)),
        HookNote::Skipped(n) => {
            format!(
                "--on-restart was not run for {}: its earlier runs took too long",
                phrases::count(n.into(), "restart")
            )
        }
    };
    format!("rlaunch: {text}\n")
}
