//! The ways to end ranks: politely, with a deadline, or at once.

use super::generation_change::Between;
use super::{Census, Cx, NodeAction, Notice, Send};
use rlaunch_base::signal::Signal;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::wire::to_root::ToRoot;

/// The order that ends ranks.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Order {
    /// None, or its time has expired and the kill is on its way.
    #[default]
    None,
    /// Ranks have until then to end, and other ranks may follow.
    Clear(Mono),
    /// The same, and no rank follows.
    End(Mono),
    /// Everything was killed.
    Destroyed,
}

impl Order {
    const fn deadline(self) -> Option<Mono> {
        match self {
            Self::Clear(at) | Self::End(at) => Some(at),
            Self::None | Self::Destroyed => None,
        }
    }
}

#[derive(Default)]
pub(super) struct Grace {
    order: Order,
    /// No rank remains.
    gone: bool,
}

impl Grace {
    pub(super) fn on_signal(&mut self, cx: &mut Cx<'_>, sig: Signal) {
        cx.notify(Notice::Send(Send::Forward(sig)));
    }

    /// A second request shortens the time that is left and never lengthens it.
    pub(super) fn on_end(&mut self, cx: &mut Cx<'_>, ending: Send, grace: Span) {
        if self.order == Order::Destroyed {
            return;
        }
        cx.notify(Notice::Send(ending));
        let deadline = cx.now + grace;
        self.order = Order::End(self.order.deadline().map_or(deadline, |earlier| earlier.min(deadline)));
        self.on_timeout(cx);
        self.answer_if_gone(cx);
    }

    /// The same where others may follow.
    pub(super) fn on_clear(&mut self, cx: &mut Cx<'_>, sig: Signal, grace: Span) {
        if self.order == Order::Destroyed {
            return;
        }
        cx.notify(Notice::Between(Between::Clearing(sig)));
        self.order = Order::Clear(cx.now + grace);
        self.on_timeout(cx);
    }

    /// Records that no rank remains.
    pub(super) fn on_cleared(&mut self) {
        self.expire();
    }

    /// Other ranks follow.
    pub(super) const fn on_next_generation(&mut self) {
        self.gone = false;
    }

    /// The answer is given each time: the launcher waits for it.
    pub(super) fn on_kill(&mut self, cx: &mut Cx<'_>) {
        cx.act(NodeAction::ToRoot(ToRoot::Killing));
        if self.order != Order::Destroyed {
            cx.notify(Notice::Destroy);
        }
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.deadline().is_some_and(|deadline| deadline <= cx.now) {
            let is_clear = matches!(self.order, Order::Clear(_));
            self.expire();
            cx.act(NodeAction::ToRoot(ToRoot::Killing));
            cx.notify(if is_clear { Notice::Between(Between::TearDown) } else { Notice::Destroy });
        }
    }

    /// Whether an order ends the ranks, and no rank follows.
    pub(super) const fn is_ending(&self) -> bool {
        matches!(self.order, Order::End(_) | Order::Destroyed)
    }

    pub(super) fn on_destroy(&mut self) {
        self.order = Order::Destroyed;
    }

    /// Ends the patience once no rank remains: other processes are killed from here on.
    pub(super) fn on_census(&mut self, cx: &mut Cx<'_>, census: Census) {
        self.gone = census.gone;
        self.answer_if_gone(cx);
    }

    /// An order for ranks that are gone is answered at once. The launcher may not know of ranks that were never started.
    fn answer_if_gone(&mut self, cx: &mut Cx<'_>) {
        if self.gone && self.order.deadline().is_some() {
            self.expire();
            cx.act(NodeAction::ToRoot(ToRoot::Killing));
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        if self.gone { None } else { self.order.deadline() }
    }

    /// The order is done with: its time has expired, or no rank remains.
    fn expire(&mut self) {
        match self.order {
            Order::Clear(_) | Order::End(_) => self.order = Order::None,
            Order::None | Order::Destroyed => {}
        }
    }
}
