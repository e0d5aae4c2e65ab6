//! `rlaunch doctor`: reaches every host as a job would, starts the agent there, and dismisses it. This machine is examined without ssh.

mod count;
mod json;
mod show;

use crate::bootstrap::{Bootstrap, BootstrapEvent, Setting};
pub(crate) use count::count;

use crate::cli::{self, Reach};
use crate::edges::now;
use anyhow::Context as _;
use rlaunch_base::exit;
use rlaunch_base::id::{JobId, NodeId};
use rlaunch_base::machine::earliest;
use rlaunch_base::os_bytes::{OsBytes, Visible};
use rlaunch_base::signal::Signal;
use rlaunch_base::time::{Mono, Span};
use rlaunch_net::Alarm;
use rlaunch_plan::bootstrap::{CarrierEnd, CarrierEvent, CarrierKind, Failure, Secret, Target, Up};
use rlaunch_sys::origin::Origin;
use rlaunch_sys::signals::SignalFd;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// How long an agent that was let go may take to end.
const GOODBYE: Span = Span::from_secs(5);

/// The findings about one host.
#[derive(Debug)]
enum Finding {
    Open,
    Up {
        up: Up,
        at: Mono,
        facts: OsBytes,
    },
    Good {
        up: Up,
        at: Mono,
        facts: OsBytes,
    },
    Failed(Box<Failure>),
    /// The host was up, and its agent did not end as it should.
    Ended {
        end: Option<CarrierEnd>,
        words: OsBytes,
    },
}

/// Everything, to the exit code.
pub(crate) fn run(here: bool, hosts: &[Target], plan: &cli::Doctor, origin: Origin) -> u8 {
    // While there are no threads: the containment of a job is tried.
    let own = here.then(crate::serve::facts::line);
    match examine(own, hosts, plan, origin) {
        Ok(Outcome::Report(text, code)) => {
            let written = crate::print::answer(text.as_bytes());
            // A host that cannot be had is worth more than a report that was lost.
            if code == 0 { written } else { code }
        }
        Ok(Outcome::Interrupted(sig)) => {
            rlaunch_sys::signals::die_of(sig.get());
            sig.exit_code()
        }
        Err(error) => crate::print::broken(&error),
    }
}

enum Outcome {
    Report(String, u8),
    Interrupted(Signal),
}

/// The common values of all rounds of one call.
struct Rounds<'a> {
    reach: &'a Reach,
    origin: Origin,
    runtime: tokio::runtime::Runtime,
    signals: AsyncFd<SignalFd>,
}

/// The results of one round's hosts, and the time of its begin.
struct Round {
    findings: BTreeMap<NodeId, Finding>,
    began: Mono,
}

fn examine(own: Option<OsBytes>, hosts: &[Target], plan: &cli::Doctor, origin: Origin) -> anyhow::Result<Outcome> {
    let reach = &plan.reach;
    if hosts.is_empty() {
        let text =
            if plan.json { json::text(own.as_ref(), std::iter::empty(), None) } else { show::here(own.as_ref()) };
        return Ok(Outcome::Report(text, 0));
    }
    let mut rounds = Rounds::new(reach, origin)?;
    let round = match rounds.run(hosts, reach.fast, true)? {
        Ok(round) => round,
        Err(sig) => return Ok(Outcome::Interrupted(sig)),
    };
    let failed = round.findings.values().any(|finding| !matches!(finding, Finding::Good { .. }));
    // A user who types a password for each login should not be asked four times more.
    let first = round.findings.values().position(|finding| matches!(finding, Finding::Good { .. }));
    let is_ssh = reach.carrier(false).kind() == CarrierKind::Ssh;
    let saving = match first.and_then(|at| hosts.get(at)).filter(|_| is_ssh && !reach.fast && !reach.prompt) {
        Some(target) => match rounds.compare(target)? {
            Ok(saving) => saving,
            Err(sig) => return Ok(Outcome::Interrupted(sig)),
        },
        None => None,
    };
    let found = hosts.iter().zip(round.findings.values().map(|finding| (finding, round.began)));
    let text = match plan.json {
        true => json::text(own.as_ref(), found, saving.as_ref()),
        false => show::all(own.as_ref(), found, saving.as_ref()),
    };
    Ok(Outcome::Report(text, if failed { exit::LAUNCH } else { 0 }))
}

/// The time to reach a host by itself, without --ssh-fast and with it.
#[derive(Debug)]
struct Saving {
    host: String,
    without: Span,
    with: Span,
}

impl<'a> Rounds<'a> {
    fn new(reach: &'a Reach, origin: Origin) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.context("cannot build an event loop")?;
        let entered = runtime.enter();
        let signals = SignalFd::new(&origin.watched()).context("cannot listen to signals")?;
        let signals = rlaunch_net::ready::readable(signals).context("cannot listen to signals")?;
        drop(entered);
        Ok(Self { reach, origin, runtime, signals })
    }

    /// Reaches hosts, and lets them go again.
    fn run(&mut self, hosts: &[Target], fast: bool, examine: bool) -> anyhow::Result<Result<Round, Signal>> {
        let _entered = self.runtime.enter();
        let setting = Setting {
            job: JobId(rlaunch_sys::random::bytes().context("cannot get random bytes")?),
            secret: Secret(rlaunch_sys::random::bytes().context("cannot get random bytes")?),
            // Longer than the wait for an agent: an agent that does not receive its dismissal ends by itself.
            lease: self.reach.limit + GOODBYE,
            carrier: self.reach.carrier(fast),
            agent_path: self.reach.agent_path.clone(),
            limit: self.reach.limit,
        };
        let mut bootstrap =
            Bootstrap::new(setting, self.origin, hosts.len()).context("cannot get ready to start agents")?;
        if examine {
            bootstrap.examine();
        }
        let began = now();
        let mut findings = BTreeMap::new();
        for (n, target) in (0..).zip(hosts) {
            let jitter = u64::from_ne_bytes(rlaunch_sys::random::bytes().context("cannot get random bytes")?);
            bootstrap.connect(NodeId::new(n), target.clone(), jitter);
            findings.insert(NodeId::new(n), Finding::Open);
        }
        let (mut alarm, signals) = (Alarm::default(), &self.signals);
        let interrupted = self.runtime.block_on(poll_fn(|cx| {
            while let Poll::Ready(Ok(mut guard)) = signals.poll_read_ready(cx) {
                match guard.get_inner().next().and_then(Signal::new) {
                    Some(sig) => return Poll::Ready(Some(sig)),
                    None => guard.clear_ready(),
                }
            }
            while let Poll::Ready(event) = bootstrap.poll(cx, now()) {
                note(&mut findings, &bootstrap, event);
            }
            let goodbye = part(&mut bootstrap, &mut findings);
            if findings.values().all(Finding::is_final) && !bootstrap.is_busy() {
                return Poll::Ready(None);
            }
            wait(&mut alarm, cx, earliest(bootstrap.deadline(), goodbye));
            Poll::Pending
        }));
        bootstrap.dismiss();
        Ok(interrupted.map_or(Ok(Round { findings, began }), Err))
    }

    /// Measures the gain of --ssh-fast: a host by itself with and without it, twice each, the better of the two.
    fn compare(&mut self, target: &Target) -> anyhow::Result<Result<Option<Saving>, Signal>> {
        let mut best = [None, None];
        for fast in [false, true, false, true] {
            let round = match self.run(std::slice::from_ref(target), fast, false)? {
                Ok(round) => round,
                Err(sig) => return Ok(Err(sig)),
            };
            let Some(Finding::Good { at, .. }) = round.findings.values().next() else { return Ok(Ok(None)) };
            let took = at.since(round.began);
            let [without, with] = &mut best;
            let slot = if fast { with } else { without };
            *slot = Some(slot.map_or(took, |before: Span| before.min(took)));
        }
        let [Some(without), Some(with)] = best else { return Ok(Ok(None)) };
        Ok(Ok(Some(Saving { host: target.to_string(), without, with })))
    }
}

impl Finding {
    const fn is_final(&self) -> bool {
        !matches!(self, Self::Open | Self::Up { .. })
    }
}

/// Sees to it that there is another round at this time, at once if it has passed meanwhile.
fn wait(alarm: &mut Alarm, cx: &mut Context<'_>, until: Option<Mono>) {
    if until.is_some_and(|at| alarm.poll(cx, at.since(now())).is_ready()) {
        cx.waker().wake_by_ref();
    }
}

fn note(findings: &mut BTreeMap<NodeId, Finding>, bootstrap: &Bootstrap, event: BootstrapEvent) {
    match event {
        BootstrapEvent::Carrier(CarrierEvent::KillWait(_) | CarrierEvent::News(_)) => {}
        BootstrapEvent::Stage { node, stage } => tracing::debug!(%node, %stage, "progress"),
        BootstrapEvent::Said { node, bytes } => tracing::debug!(%node, said = %Visible(&bytes), "stderr"),
        // The edge ends with this, and so does the agent.
        BootstrapEvent::Up { node, edge, up } => {
            drop(edge);
            let facts = bootstrap.facts(node).cloned().unwrap_or_default();
            findings.insert(node, Finding::Up { up, at: now(), facts });
        }
        BootstrapEvent::Carrier(CarrierEvent::Failed { node, failure }) => {
            drop(findings.insert(node, Finding::Failed(failure)))
        }
        BootstrapEvent::Ended { node, end, words } => {
            let finding = match findings.remove(&node) {
                Some(Finding::Up { up, at, facts }) if end == CarrierEnd::Code(0) => Finding::Good { up, at, facts },
                _ => Finding::Ended { end: Some(end), words },
            };
            findings.insert(node, finding);
        }
    }
}

/// Gives up agents that do not end; when the next one is due.
fn part(bootstrap: &mut Bootstrap, findings: &mut BTreeMap<NodeId, Finding>) -> Option<Mono> {
    let mut next = None;
    for (node, finding) in findings {
        let Finding::Up { at, .. } = finding else { continue };
        if *at + GOODBYE > now() {
            next = earliest(next, Some(*at + GOODBYE));
            continue;
        }
        bootstrap.cancel(now(), *node);
        *finding = Finding::Ended { end: None, words: OsBytes::default() };
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// The report came before the hosts had answered.
    #[test]
    fn a_deadline_that_passes_between_two_looks_is_looked_at_again() {
        for (until, expected) in [(None, false), (Some(now()), true)] {
            let woken = Arc::new(Woken::default());
            let waker = Waker::from(Arc::clone(&woken));
            wait(&mut Alarm::default(), &mut Context::from_waker(&waker), until);
            assert_eq!(woken.0.load(Ordering::Relaxed), expected);
        }
    }
}
