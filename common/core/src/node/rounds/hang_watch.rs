//! Ranks that hang, and sessions that end without a message.

use super::{LocalMember, LocalState, Rounds};
use crate::node::{Cx, NodeAction};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::id::{ProcId, Rank};
use rlaunch_base::machine::earliest;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::rank_fault::FaultKind;
use rlaunch_protocol::wire::round::RoundUp;
use rlaunch_protocol::wire::to_root::ToRoot;
use rlaunch_restart::detect::{Due, HangLimits};

/// Largest delay of a look at ranks on a host that is awake.
const LATE: Span = Span::from_secs(5);

/// Why a process is ended.
fn too_long(part: LocalState, section: Option<Span>, limits: &HangLimits) -> String {
    let what = match part {
        LocalState::Ready => return format!("no round has begun within {} of its being ready", limits.barrier),
        LocalState::Working | LocalState::Returned | LocalState::Lost(_) | LocalState::Ending => {
            "function and the hooks behind it"
        }
        // It was interrupted, or its hooks have begun; in its last round, or after it.
        LocalState::Reserve | LocalState::Joined | LocalState::Absent | LocalState::Out => "hooks",
    };
    let within = section.unwrap_or(limits.hard);
    format!("it has not come out of its {what} within {within}")
}

impl Rounds {
    pub(in crate::node) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        let late = |member: &LocalMember| matches!(member.part, LocalState::Lost(until) if until <= cx.now);
        let lost: Vec<Rank> = self.members.values().filter(|member| late(member)).map(LocalMember::initial).collect();
        for rank in &lost {
            self.give_up(cx, *rank);
        }
        if self.soonest.is_over(cx.now) {
            let ranks: Vec<Rank> = self.members.keys().copied().collect();
            ranks.into_iter().for_each(|rank| self.look(cx, rank));
        }
        if !lost.is_empty() {
            self.report_progress(cx);
        }
        self.notify_awaited(cx);
    }

    /// Before anything else is done with what has happened: the clock counts on while the host sleeps, or the agent is stopped.
    pub(in crate::node) fn observe_clock(&mut self, now: Mono) {
        let slept = now.since(core::mem::replace(&mut self.seen, now));
        if self.soonest.deadline().is_some_and(|at| now > at + LATE) {
            self.members.values_mut().for_each(|member| member.watch.slept(slept));
        }
    }

    /// Records that SIGKILL is on its way to a dismissed process.
    pub(in crate::node) fn on_killed(&mut self, now: Mono, proc: ProcId) {
        let rank = self.procs.get(&proc);
        if let Some(member) = rank.and_then(|rank| self.members.get_mut(rank)).filter(|member| member.proc() == proc) {
            member.watch.dies(now);
            self.soonest.mind(&member.watch, &self.limits);
        }
    }

    /// Gives up a rank whose process has closed its session, and continues.
    fn give_up(&mut self, cx: &mut Cx<'_>, rank: Rank) {
        let Some(member) = self.members.get_mut(&rank) else { return };
        member.put_out();
        // Its process continues, or takes long to end: then another may follow it. Also where the launcher does not know of it yet: the
        // ranks of other hosts would wait for it.
        let text = OsBytes::from("its session has ended without a word");
        self.report_fault(cx, rank, FaultKind::Ended(Status::Lost), &text);
        if self.state.is_open()
            && let Some(member) = self.members.get_mut(&rank)
        {
            // It would continue beside those that continue without it, with its devices. Or it is about to end, and cannot.
            let proc = member.proc();
            member.watch.ends(cx.now, &self.limits);
            self.soonest.mind(&member.watch, &self.limits);
            cx.act(NodeAction::Signal { proc, sig: Signal::CONT });
            cx.act(NodeAction::Signal { proc, sig: Signal::TERM });
        }
    }

    fn look(&mut self, cx: &mut Cx<'_>, rank: Rank) {
        let limits = self.limits;
        let section = self.members.get(&rank).and_then(|member| member.watch.section_limit());
        while let Some(member) = self.members.get_mut(&rank)
            && let Some(due) = member.watch.due(cx.now, &limits)
        {
            let proc = member.proc();
            match due {
                Due::Hang => {
                    let text = OsBytes::from(match section {
                        Some(most) => format!("nothing was heard of it for {most}, which is what its section may take"),
                        None => format!("nothing was heard of it for {}", limits.soft),
                    });
                    self.report_fault(cx, rank, FaultKind::Hang, &text);
                }
                Due::Alone => self.report_late(cx, rank),
                Due::Terminate => {
                    let text = OsBytes::from(too_long(member.part, section, &limits));
                    if member.part.is_in() {
                        member.part = LocalState::Ending;
                    }
                    let status = Status::Signaled { sig: Signal::TERM, core: false };
                    self.report_fault(cx, rank, FaultKind::Overdue(status), &text);
                    // A suspended process would end only when it continues.
                    cx.act(NodeAction::Signal { proc, sig: Signal::CONT });
                    cx.act(NodeAction::Signal { proc, sig: Signal::TERM });
                }
                Due::Stuck => self.report_stuck(cx, rank),
                Due::Kill => {
                    cx.act(NodeAction::Signal { proc, sig: Signal::CONT });
                    cx.act(NodeAction::Signal { proc, sig: Signal::KILL });
                }
            }
        }
        if let Some(member) = self.members.get(&rank) {
            self.soonest.mind(&member.watch, &self.limits);
        }
    }

    /// SIGKILL has not ended it. The others continue without it: they cannot help it.
    fn report_stuck(&mut self, cx: &mut Cx<'_>, rank: Rank) {
        let Some(member) = self.members.get_mut(&rank).filter(|member| member.lives) else { return };
        member.put_out();
        let proc = member.proc();
        cx.act(NodeAction::ToRoot(ToRoot::Round(RoundUp::Stuck { proc })));
        self.report_progress(cx);
    }

    /// The function of this rank, here or on another host, has returned, and that of others does not. Where one of them is here it is late;
    /// who it is on other hosts only they know.
    pub(super) fn report_late(&mut self, cx: &mut Cx<'_>, rank: Rank) {
        let after = format!(
            "it has not returned after rank {rank} did, within {} (completion_timeout)",
            self.limits.completion
        );
        match self.members.values().find(|member| member.part == LocalState::Working) {
            Some(late) => self.report_fault(cx, late.initial(), FaultKind::Hang, &OsBytes::from(after)),
            // One of them is enough: others are late for all.
            None if self.members.contains_key(&rank) && !core::mem::replace(&mut self.alone, true) => {
                self.report_alone(cx, rank);
            }
            // A rank that was late here has returned meanwhile, or its end is about to be reported.
            None => {}
        }
    }

    pub(in crate::node) fn deadline(&self) -> Option<Mono> {
        let lost = self.members.values().filter_map(|member| match member.part {
            LocalState::Lost(until) => Some(until),
            LocalState::Absent
            | LocalState::Joined
            | LocalState::Working
            | LocalState::Reserve
            | LocalState::Returned => None,
            LocalState::Ready | LocalState::Ending | LocalState::Out => None,
        });
        self.awaited_deadline(earliest(lost.min(), self.soonest.deadline()))
    }
}
