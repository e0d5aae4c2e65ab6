//! The processes that remain after the ranks: waited for, killed, counted, and named where they cannot be killed.

use super::generation_change::Between;
use super::{Census, Cx, NodeAction, Notice};
use crate::node::DeviceAction;
use alloc::vec::Vec;
use rlaunch_base::capped::Capped;
use rlaunch_base::machine::earliest;
use rlaunch_base::patience::Patience;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::guard::devices::DeviceKind;
use rlaunch_protocol::wire::to_node::Start;
use rlaunch_protocol::wire::to_root::{Leftover, NAMED, ToRoot};

/// From the first SIGKILL until what still exists is named and not waited for: only a process that the kernel cannot
/// kill takes this long.
const PATIENCE: Span = Span::from_secs(2);
/// Pauses between counts double from the first to the second.
const FIRST_PAUSE: Span = Span::from_millis(1);
const LONGEST_PAUSE: Span = Span::from_millis(50);
/// No pause and no count takes this long: we were stopped, or the whole host slept.
const ASLEEP: Span = Span::from_secs(1);

/// How long descendants of a successful job's ranks may continue writing.
const LINGER: Span = Span::from_secs(2);

#[derive(Default)]
pub(super) struct Leftovers {
    state: State,
    census: Census,
    sole: bool,
    grace: Span,
    setting_up: bool,
    end: End,
    launcher_lost: bool,
    orphaned: bool,
    /// When what still exists is given up.
    limit: Option<Mono>,
    /// The devices that ranks are to use.
    plan: DeviceKind,
    /// The devices that are looked at after the last rank.
    devices: DeviceKind,
    examined: Examined,
}

/// The look at devices after the last rank.
#[derive(Clone, Copy, Default)]
enum Examined {
    /// The look was not asked for.
    #[default]
    No,
    /// The look is awaited until then.
    Until(Mono),
    /// The look was reported.
    Yes,
}

/// How far the ranks are to end, whatever they do by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum End {
    /// The ranks run as long as they like.
    #[default]
    None,
    /// The ranks are to end, and other ranks may follow.
    Clearing,
    /// The same, and the ranks have had their time.
    TornDown,
    /// The ranks are to end, and no rank follows.
    Ending,
    /// The same, and everything was killed.
    Destroyed,
}

impl End {
    /// Whether other ranks may follow those that end.
    const fn is_clearing(self) -> bool {
        match self {
            Self::Clearing | Self::TornDown => true,
            Self::None | Self::Ending | Self::Destroyed => false,
        }
    }

    /// Whether no rank is waited for any more.
    const fn is_due(self) -> bool {
        match self {
            Self::TornDown | Self::Destroyed => true,
            Self::None | Self::Clearing | Self::Ending => false,
        }
    }
}

#[derive(Default)]
enum State {
    /// Ranks run or may come.
    #[default]
    Idle,
    /// All ranks succeeded, but their descendants still write; or one was killed by a signal that was passed on, and they save.
    Lingering(Patience),
    /// Remaining processes are killed and counted until none remains.
    Sweeping(Sweep),
    /// The count is known; what is in the streams is still passed on.
    Closing(Count),
    Over,
}

struct Sweep {
    waits: Waits,
    /// Every rank was gone when the last count was asked for: it is the whole truth.
    whole: bool,
    pause: Span,
    /// When the last step was taken.
    stepped: Mono,
    /// The last answer.
    count: Count,
}

enum Waits {
    /// For a count. However long it takes: what is left is counted, never assumed.
    Answer,
    /// For the next.
    Until(Mono),
}

#[derive(Default)]
struct Count {
    left: u32,
    named: Vec<Leftover>,
}

impl Sweep {
    /// Takes a step. Returns the limit, moved by the time in which no step could be taken: a process that would have died in that time
    /// must not be named as one that cannot be killed.
    fn awake(&mut self, now: Mono, limit: Option<Mono>) -> Option<Mono> {
        let gap = now.since(self.stepped);
        self.stepped = now;
        limit.map(|limit| if gap > ASLEEP { limit + gap } else { limit })
    }
}

impl Leftovers {
    pub(super) fn on_begun(&mut self, start: &Start) {
        self.sole = start.sole && !start.can_start_more;
        self.grace = start.settings.ending.grace;
        self.setting_up = true;
        self.plan = start.settings.devices.kind;
    }

    /// Ranks may follow the last one: the launcher says when the job has ended.
    pub(super) const fn expect_more(&mut self) {
        self.sole = false;
    }

    /// The devices are free for ranks: what holds them after the last rank is looked at.
    pub(super) const fn on_devices_free(&mut self) {
        self.devices = self.plan;
    }

    /// The devices have been looked at after the last rank.
    pub(super) fn on_devices_examined(&mut self, cx: &mut Cx<'_>) {
        if let Examined::Until(_) = self.examined {
            self.examined = Examined::Yes;
            self.advance(cx);
        }
    }

    /// Whether devices are still being looked at.
    fn is_examining(&mut self, cx: &mut Cx<'_>) -> bool {
        match (self.examined, self.devices) {
            (Examined::No, DeviceKind::Auto | DeviceKind::Tpu) if !self.launcher_lost => {
                self.examined = Examined::Until(cx.now + PATIENCE);
                cx.act(NodeAction::Devices(DeviceAction::Examine { kind: self.devices }));
                true
            }
            (Examined::Until(until), _) => until > cx.now && !self.launcher_lost,
            (Examined::No | Examined::Yes, _) => false,
        }
    }

    /// The ranks of the other nodes have ended too.
    pub(super) fn on_finish(&mut self, cx: &mut Cx<'_>) {
        self.sole = true;
        self.advance(cx);
    }

    pub(super) fn on_set_up_ended(&mut self, cx: &mut Cx<'_>) {
        self.setting_up = false;
        self.advance(cx);
    }

    /// The ranks are to end, and others may follow.
    pub(super) fn on_clearing(&mut self, cx: &mut Cx<'_>) {
        self.end = End::Clearing;
        if self.setting_up {
            self.limit = self.limit.or(Some(cx.now + PATIENCE));
        }
        self.advance(cx);
    }

    pub(super) fn on_tear_down(&mut self, cx: &mut Cx<'_>) {
        if self.end == End::Clearing {
            self.end = End::TornDown;
        }
        self.limit = self.limit.or(Some(cx.now + PATIENCE));
        self.advance(cx);
    }

    /// The sandbox is being set up for those that follow.
    pub(super) const fn on_renewing(&mut self) {
        self.setting_up = true;
    }

    /// Begins again for the next generation.
    pub(super) fn on_next_generation(&mut self) {
        self.census = Census::default();
    }

    pub(super) fn on_ending(&mut self, cx: &mut Cx<'_>) {
        if self.end != End::Destroyed {
            self.end = End::Ending;
        }
        if self.setting_up {
            self.limit = self.limit.or(Some(cx.now + PATIENCE));
        }
        self.advance(cx);
    }

    pub(super) fn on_destroy(&mut self, cx: &mut Cx<'_>) {
        self.end = End::Destroyed;
        self.limit = self.limit.or(Some(cx.now + PATIENCE));
        self.on_ending(cx);
    }

    pub(super) fn on_launcher_lost(&mut self, cx: &mut Cx<'_>) {
        self.launcher_lost = true;
        self.advance(cx);
    }

    pub(super) fn on_orphaned(&mut self) {
        self.orphaned = true;
    }

    pub(super) fn on_census(&mut self, cx: &mut Cx<'_>, census: Census) {
        self.census = census;
        self.advance(cx);
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        self.advance(cx);
    }

    pub(super) fn on_left(&mut self, cx: &mut Cx<'_>, left: u32, named: Vec<Leftover>) {
        let State::Sweeping(sweep) = &mut self.state else { return };
        let Waits::Answer = sweep.waits else { return };
        self.limit = sweep.awake(cx.now, self.limit);
        sweep.waits = Waits::Until(cx.now + sweep.pause);
        sweep.pause = Span::from_nanos(sweep.pause.nanos() * 2).min(LONGEST_PAUSE);
        sweep.count = Count { left, named };
        if sweep.whole && left == 0 {
            self.close(cx);
        } else {
            self.advance(cx);
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        match &self.state {
            State::Idle => self.limit,
            State::Lingering(patience) => Some(patience.deadline()),
            State::Sweeping(sweep) => match sweep.waits {
                Waits::Answer => None,
                Waits::Until(next) => earliest(Some(next), self.limit),
            },
            State::Closing(_) => match self.examined {
                Examined::Until(until) => Some(until),
                Examined::No | Examined::Yes => None,
            },
            State::Over => None,
        }
    }

    fn advance(&mut self, cx: &mut Cx<'_>) {
        if let State::Sweeping(sweep) = &mut self.state
            && let Waits::Until(_) = sweep.waits
        {
            self.limit = sweep.awake(cx.now, self.limit);
        }
        let given_up = self.limit.is_some_and(|limit| limit <= cx.now);
        match &mut self.state {
            State::Idle => {
                let ends = self.sole || self.end != End::None;
                let ready = self.end.is_due() || (self.census.gone && ends);
                // While the sandbox is being set up, init may be about to exist.
                if !ready || (self.setting_up && !given_up) {
                    return;
                }
                let Census { open, failed, passed_on, .. } = self.census;
                if open && (!failed || passed_on) && self.end == End::None {
                    let linger = if passed_on { self.grace } else { LINGER };
                    self.state = State::Lingering(Patience::new(cx.now, linger));
                } else {
                    self.sweep(cx);
                }
            }
            State::Lingering(patience) => {
                if patience.is_out(cx.now) || self.end != End::None || !self.census.open {
                    self.sweep(cx);
                }
            }
            State::Sweeping(sweep) => match sweep.waits {
                Waits::Answer => {}
                Waits::Until(_) if given_up => self.close(cx),
                Waits::Until(next) => {
                    if next <= cx.now || (self.census.gone && !sweep.whole) {
                        sweep.waits = Waits::Answer;
                        sweep.whole = self.census.gone;
                        cx.act(NodeAction::Sweep);
                    }
                }
            },
            State::Closing(_) => self.finish(cx),
            State::Over => {}
        }
    }

    fn sweep(&mut self, cx: &mut Cx<'_>) {
        self.limit = self.limit.or(Some(cx.now + PATIENCE));
        let whole = self.census.gone;
        self.state = State::Sweeping(Sweep {
            waits: Waits::Answer,
            whole,
            pause: FIRST_PAUSE,
            stepped: cx.now,
            count: Count::default(),
        });
        cx.notify(Notice::Sweeping);
        // Ranks that have failed, or are ended, could not take care of it.
        if whole && !self.census.failed && self.end == End::None && !self.launcher_lost {
            cx.act(NodeAction::NameLeft);
        }
        cx.act(NodeAction::Sweep);
    }

    fn close(&mut self, cx: &mut Cx<'_>) {
        if let State::Sweeping(sweep) = &mut self.state {
            self.state = State::Closing(core::mem::take(&mut sweep.count));
            if self.census.open && !self.launcher_lost {
                // The launcher must not take a reader that is slow for an agent that is stuck.
                cx.act(NodeAction::ToRoot(ToRoot::Draining));
                cx.notify(Notice::CloseStreams);
            }
            self.finish(cx);
        }
    }

    /// Finishes. The last bytes are waited for as long as a reader may want them: a slow reader is not dead.
    fn finish(&mut self, cx: &mut Cx<'_>) {
        let State::Closing(_) = &self.state else { return };
        if self.census.open && !self.launcher_lost {
            return;
        }
        if !self.end.is_clearing() && self.is_examining(cx) {
            return;
        }
        let State::Closing(count) = &mut self.state else { return };
        let Count { left, named } = core::mem::take(count);
        if self.end.is_clearing() {
            (self.state, self.limit, self.end) = (State::Idle, None, End::None);
            return cx.notify(Notice::Between(Between::Cleared(left, named)));
        }
        let clean = left == 0 && !self.launcher_lost && !self.orphaned;
        self.state = State::Over;
        let named = Capped::<_, NAMED>::chunks(named.into_iter().take(NAMED)).pop().unwrap_or_default();
        cx.act(NodeAction::ToRoot(ToRoot::Done { left, named }));
        cx.act(NodeAction::Finish(u8::from(!clean)));
        // Pending notices would only ask for more, as a loss does: everything was killed before the count.
        cx.notice.clear();
        cx.notify(Notice::Done);
    }
}
