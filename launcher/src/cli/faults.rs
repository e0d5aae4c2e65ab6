//! Options about faults, and about how a job ends.

use super::errors::CliError;
use super::scan::Given;
use super::table::options;
use super::values::{self, Lookup};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_base::warnings::{self, OnWarning, WarningPlan};
use rlaunch_protocol::restarts::{self, Restarts};
use rlaunch_protocol::settings::{Contain, EndingPlan, OnFailure};

const CONTAIN: [(&str, Contain); 4] =
    [("auto", Contain::Auto), ("t1", Contain::T1), ("t3", Contain::T3), ("strict", Contain::Strict)];
const ON_WARNING: [(&str, OnWarning); 2] = [("term", OnWarning::Term), ("note", OnWarning::Note)];
const ON_FAILURE: [(&str, OnFailure); 2] = [("kill", OnFailure::Kill), ("continue", OnFailure::Continue)];

options! {
    Faults, "Faults and ending", "failures";
    OnFailure ["on-failure"] One("WHAT"): "a rank fails: kill the others (default) or continue";
    MaxRestarts ["max-restarts"] One("N"): "a rank fails: start all again, N times (default: 0)";
    RestartDelay ["restart-delay"] One("TIME"): "pause before that (default: 1s); it doubles, to 1m";
    PreemptRetries ["preempt-retries"] One("N"): "the same when a host was warned or lost, N times",
        "Default: 1000000 with --max-restarts or --slices,",
        "else 0. All N are used up: exit code 75.",
        "To continue with the other hosts, give --min-world.";
    GiveUpAfter ["give-up-after"] One("TIME"): "equal failures end the job after TIME (default: 60s)",
        "Also for restarts within processes.";
    OnWarning ["on-warning"] One("WHAT"): "a host is warned: term all ranks (default) or note",
        "Warnings come from the cloud's metadata server, and",
        "from SIGTERM to an agent (docs/guides/preemption.md).";
    WarningGrace ["warning-grace"] One("TIME"): "from that SIGTERM to SIGKILL (default: 25s)";
    PreemptProbe ["preempt-probe"] One("CMD"): "sh -c CMD on each host; it warns by exiting with 0",
        "Otherwise it runs again after 5s. none: no command.";
    Grace ["grace", "shutdown-timeout"] One("TIME"): "from asking ranks to end to SIGKILL (default: 5s)",
        "TIME: 90 (seconds), 90s, 1m30s, 1h, 250ms, 0.5s.";
    Timeout ["timeout"] One("TIME"): "end the job after TIME, with exit code 124 (0: never)",
        "Also from MPIEXEC_TIMEOUT, in seconds.";
    Contain ["contain"] One("HOW"): "how nothing is left behind: auto, t1, t3 or strict",
        "t1: a PID namespace, of a user inside a user",
        "namespace. t3: subreapers. auto: t1 for root, else",
        "t3. strict: no start without the kernel's guarantee.";
}

#[derive(Debug, Default)]
pub(super) struct Args {
    ending: EndingPlan,
    /// As it was typed.
    max_restarts: Option<(OsBytes, u32)>,
    restart_delay: Option<Span>,
    give_up_after: Option<Span>,
    preempt_retries: Option<u32>,
    warnings: WarningPlan,
}

impl Args {
    pub(super) fn take(&mut self, opt: Opt, given: Given) -> Result<(), CliError> {
        let (option, value) = (&given.spelled, &given.value);
        match opt {
            Opt::Contain => self.ending.contain = values::choice(option, value, &CONTAIN)?,
            Opt::OnFailure => self.ending.on_failure = values::choice(option, value, &ON_FAILURE)?,
            Opt::MaxRestarts => {
                let most = values::count_or_none(option, value, restarts::MOST)?;
                self.max_restarts = Some((option.clone(), most));
            }
            Opt::RestartDelay => self.restart_delay = Some(values::span(option, value)?),
            Opt::GiveUpAfter => self.give_up_after = Some(values::span(option, value)?),
            Opt::PreemptRetries => {
                self.preempt_retries = Some(values::count_or_none(option, value, restarts::MOST_PREEMPT)?);
            }
            Opt::OnWarning => self.warnings.on_warning = values::choice(option, value, &ON_WARNING)?,
            Opt::WarningGrace => self.warnings.grace = values::span(option, value)?,
            Opt::PreemptProbe => self.warnings.probe = probe(option, value)?,
            Opt::Grace => self.ending.grace = values::span(option, value)?,
            Opt::Timeout => self.ending.timeout = Some(values::span(option, value)?),
        }
        Ok(())
    }

    /// Fills in values that neither a flag nor a variable of ours gave, and checks values that cannot go together.
    pub(super) fn fill(&mut self, env: Lookup<'_>) -> Result<(), CliError> {
        if let Some((option, 1..)) = &self.max_restarts
            && self.ending.on_failure == OnFailure::Continue
        {
            return Err(CliError::RestartOrContinue { option: option.clone() });
        }
        const VARIABLE: &str = "MPIEXEC_TIMEOUT";
        if self.ending.timeout.is_none()
            && let Some(value) = values::variable(env, VARIABLE)
        {
            self.ending.timeout = Some(values::span(&OsBytes::from(VARIABLE), &value)?);
        }
        // `--timeout 0` is no limit, also against a variable.
        self.ending.timeout = self.ending.timeout.filter(|limit| *limit != Span::ZERO);
        Ok(())
    }

    pub(super) const fn ending(&self) -> EndingPlan {
        self.ending
    }

    pub(super) fn restarts(&self) -> Restarts {
        let most = self.max_restarts.as_ref().map_or(0, |(_, most)| *most);
        let usual = Restarts::of(most, self.restart_delay.unwrap_or(Restarts::DELAY));
        let give_up_after = self.give_up_after.unwrap_or(usual.give_up_after);
        Restarts { preempt: self.preempt_retries.unwrap_or(usual.preempt), give_up_after, ..usual }
    }

    pub(super) const fn is_preempt_given(&self) -> bool {
        self.preempt_retries.is_some()
    }

    pub(super) fn warnings(self) -> WarningPlan {
        self.warnings
    }
}

/// A command for a shell on each host; `none`: no command.
fn probe(option: &OsBytes, value: &OsBytes) -> Result<OsBytes, CliError> {
    if value.eq_ignore_ascii_case(b"none") {
        return Ok(OsBytes::default());
    }
    let command = value.trim_ascii();
    if !command.is_empty() && command.len() <= warnings::PROBE_ROOM && !command.contains(&0) {
        return Ok(OsBytes::from(command));
    }
    Err(CliError::Value {
        option: option.clone(),
        takes: format!("a command for sh -c, of at most {} bytes, or none", warnings::PROBE_ROOM).into(),
        got: OsBytes::from(value.get(..64).unwrap_or(value)),
        hint: Some(values::spell(option, "'test -e /run/preempted'").into()),
    })
}
