//! `rlaunch doctor -H HOSTS`: reaches every host as a job would, starts the agent there, and lets it go again.

use crate::bootstrap::{Bootstrap, Setting, Step};
use crate::cli::Doctor;
use crate::edges::now;
use anyhow::Context as _;
use rlaunch_core::bootstrap::{Failure, Place, Secret, SshEnd, SshOptions, Up};
use rlaunch_core::error::Hint as _;
use rlaunch_core::exit;
use rlaunch_core::id::{JobId, NodeId};
use rlaunch_core::machine::earliest;
use rlaunch_core::os_bytes::{OsBytes, Visible};
use rlaunch_core::signal::Signal;
use rlaunch_core::time::{Mono, Span};
use rlaunch_net::Alarm;
use rlaunch_sys::origin::Origin;
use rlaunch_sys::signals::SignalFd;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::task::Poll;

/// How long an agent that was let go may take to end.
const GOODBYE: Span = Span::from_secs(5);

/// What is found out about one host.
#[derive(Debug)]
enum Finding {
    Open,
    Up {
        up: Up,
        at: Mono,
    },
    Good {
        up: Up,
        at: Mono,
    },
    Failed(Box<Failure>),
    /// It was up, and its agent did not end as it should.
    Ended {
        end: Option<SshEnd>,
        words: OsBytes,
    },
}

/// Everything, to the exit code.
pub(crate) fn run(doctor: &Doctor, origin: Origin) -> u8 {
    match examine(doctor, origin) {
        Ok(Outcome::Report(text, code)) => {
            let written = crate::start::answer(text.as_bytes());
            // A host that cannot be had is worth more than a report that was lost.
            if code == 0 { written } else { code }
        }
        Ok(Outcome::Interrupted(sig)) => {
            rlaunch_sys::signals::die_of(sig.get());
            sig.exit_code()
        }
        Err(error) => crate::start::fail(&format!("{error:#}")),
    }
}

enum Outcome {
    Report(String, u8),
    Interrupted(Signal),
}

fn examine(doctor: &Doctor, origin: Origin) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.context("cannot build an event loop")?;
    let _entered = runtime.enter();
    let signals = SignalFd::new(&origin.watched()).context("cannot listen to signals")?;
    let signals = rlaunch_net::ready::readable(signals).context("cannot listen to signals")?;
    let setting = Setting {
        job: JobId(rlaunch_sys::random::bytes().context("cannot get random bytes")?),
        secret: Secret(rlaunch_sys::random::bytes().context("cannot get random bytes")?),
        lease: Span::ZERO,
        options: SshOptions { prompt: doctor.prompt, fast: doctor.fast, no_master: false },
        agent_path: doctor.agent_path.clone(),
        limit: doctor.limit,
    };
    let mut bootstrap = Bootstrap::new(setting, origin).context("cannot get ready to start agents")?;
    let began = now();
    let mut findings = BTreeMap::new();
    for (n, target) in (0..).zip(&doctor.hosts) {
        let jitter = u64::from_ne_bytes(rlaunch_sys::random::bytes().context("cannot get random bytes")?);
        bootstrap.connect(NodeId::new(n), target.clone(), jitter);
        findings.insert(NodeId::new(n), Finding::Open);
    }
    let mut alarm = Alarm::default();
    let interrupted = runtime.block_on(poll_fn(|cx| {
        while let Poll::Ready(Ok(mut guard)) = signals.poll_read_ready(cx) {
            match guard.get_inner().next().and_then(Signal::new) {
                Some(sig) => return Poll::Ready(Some(sig)),
                None => guard.clear_ready(),
            }
        }
        while let Poll::Ready(step) = bootstrap.poll(cx, now()) {
            note(&mut findings, step);
        }
        let goodbye = part(&mut bootstrap, &mut findings);
        if findings.values().all(Finding::is_settled) && !bootstrap.is_busy() {
            return Poll::Ready(None);
        }
        let at = earliest(bootstrap.deadline(), goodbye);
        // A deadline that has passed is dealt with in the next round.
        at.map_or(Poll::Pending, |at| alarm.poll(cx, at.since(now())).map(|()| cx.waker().wake_by_ref())).map(|()| None)
    }));
    if let Some(sig) = interrupted {
        return Ok(Outcome::Interrupted(sig));
    }
    let failed = findings.values().any(|finding| !matches!(finding, Finding::Good { .. }));
    let text = doctor.hosts.iter().zip(findings.values()).map(|(target, finding)| show(target.host(), finding, began));
    Ok(Outcome::Report(text.collect(), if failed { exit::LAUNCH } else { 0 }))
}

impl Finding {
    const fn is_settled(&self) -> bool {
        !matches!(self, Self::Open | Self::Up { .. })
    }
}

fn note(findings: &mut BTreeMap<NodeId, Finding>, step: Step) {
    match step {
        Step::Progress { node, stage } => tracing::debug!(%node, %stage, "progress"),
        Step::Said { node, bytes } => tracing::debug!(%node, said = %Visible(&bytes), "stderr"),
        // The edge ends with this, and so does the agent.
        Step::Up { node, edge, up } => {
            drop(edge);
            findings.insert(node, Finding::Up { up, at: now() });
        }
        Step::Failed { node, failure } => drop(findings.insert(node, Finding::Failed(failure))),
        Step::Ended { node, end, words } => {
            let finding = match findings.remove(&node) {
                Some(Finding::Up { up, at }) if end == SshEnd::Code(0) => Finding::Good { up, at },
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

fn show(host: &OsBytes, finding: &Finding, began: Mono) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    match finding {
        Finding::Good { up, at } => {
            let how = if up.cold { "was sent" } else { "was there" };
            let offset = offset_ms(up);
            // Only a binary that the user named can be for another machine than ours.
            let arch = if up.place == Place::Named { "" } else { architecture() };
            writeln!(
                text,
                "{host}: ready in {}; agent in {} ({how}){arch}; clock {offset:+} ms",
                at.since(began),
                up.place
            )
            .unwrap_or_default();
        }
        Finding::Failed(failure) => {
            text.push_str(&format!("{failure}\n"));
            for (key, value) in [("ssh", failure.words.to_string()), ("try", failure.hint().unwrap_or_default().into())]
            {
                if !value.is_empty() {
                    writeln!(text, "  {key:<7} {value}").unwrap_or_default();
                }
            }
        }
        Finding::Ended { end, words } => {
            let how = end.map_or("it did not end when it was let go".to_owned(), |end| end.to_string());
            writeln!(text, "{host}: the agent started, and ended badly: {how}").unwrap_or_default();
            if !words.is_empty() {
                writeln!(text, "  {:<7} {words}", "ssh").unwrap_or_default();
            }
        }
        Finding::Open | Finding::Up { .. } => {}
    }
    text
}

const fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "; aarch64" } else { "; x86_64" }
}

/// How far the host's clock is ahead of ours, in milliseconds, by the middle of question and answer.
fn offset_ms(up: &Up) -> i64 {
    let middle = rlaunch_sys::clock::wall()
        .saturating_sub(now().since(up.answered).nanos())
        .saturating_sub(up.answered.since(up.asked).nanos() / 2);
    let ahead = i128::from(up.wall) - i128::from(middle);
    i64::try_from(ahead / 1_000_000).unwrap_or(i64::MAX)
}
