//! Options about the notification of restarts and of the job's end: the user's commands.

use super::errors::CliError;
use super::scan::Given;
use super::table::options;
use super::values;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_core::hooks::Wanted;

/// No shell starts in less.
const SHORTEST: Span = Span::from_millis(100);

options! {
    Hooks, "Commands at restarts and at the end (docs/guides/resilient-training.md)", "hooks";
    OnRestart ["on-restart"] One("CMD"): "sh -c CMD on this host at each restart",
        "Of a function or of all ranks; beside the job.",
        "RLAUNCH_HOOK_KIND and others say what happened.";
    OnExit ["on-exit"] One("CMD"): "the same when the job is over";
    Timeout ["hook-timeout"] One("TIME"): "how long such a CMD may take (default: 30s)";
}

#[derive(Debug, Default)]
pub(super) struct Args {
    on_restart: Option<OsBytes>,
    on_exit: Option<OsBytes>,
    timeout: Option<Span>,
}

impl Args {
    pub(super) fn take(&mut self, opt: Opt, given: &Given) -> Result<(), CliError> {
        let (option, value) = (&given.spelled, &given.value);
        match opt {
            Opt::OnRestart => self.on_restart = Some(command(option, value)?),
            Opt::OnExit => self.on_exit = Some(command(option, value)?),
            Opt::Timeout => self.timeout = Some(values::span_from(option, value, SHORTEST)?),
        }
        Ok(())
    }

    pub(super) fn wanted(self) -> Wanted {
        let Self { on_restart, on_exit, timeout } = self;
        Wanted { on_restart, on_exit, within: timeout.unwrap_or(Wanted::WITHIN) }
    }
}

/// The command for a shell.
fn command(option: &OsBytes, value: &OsBytes) -> Result<OsBytes, CliError> {
    if value.trim_ascii().is_empty() {
        return Err(CliError::Value {
            option: option.clone(),
            takes: "a command for sh -c".into(),
            got: value.clone(),
            hint: Some(values::spell(option, "'echo $RLAUNCH_HOOK_KIND >> log'").into()),
        });
    }
    Ok(value.clone())
}
