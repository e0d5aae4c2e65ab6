//! Bring-up: the first message, the ground the ranks will stand on, and the programs they run.
//!
//! The launcher sends everything at once and waits for no answer, so ranks arrive before the node is ready for them. What
//! it sends is still checked: a launcher that breaks the order of messages, or sends more than it may, is refused.

use super::{Cx, Ground, GroundPlan, NodeAction, Notice};
use crate::id::AppIndex;
use crate::spec::AppBase;
use crate::wire::codec;
use crate::wire::to_node::{APP_PART, Delta, Start};
use crate::wire::to_root::{Hello, Refusal, ToRoot};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Most bytes of all programs of a job together: far above what a kernel lets a process start with, far below what hurts.
const MAX_APPS: usize = 16 << 20;

#[derive(Default)]
pub(super) struct BringUp {
    step: Step,
    /// Programs that are not complete; `None`: complete.
    apps: BTreeMap<AppIndex, Option<Vec<u8>>>,
    received: usize,
    refused: bool,
}

#[derive(Default)]
enum Step {
    /// Nothing was heard.
    #[default]
    Idle,
    /// The ground is being laid.
    Grounding,
    /// It was laid, or cannot be.
    Settled,
}

impl BringUp {
    pub(super) fn on_start(&mut self, cx: &mut Cx<'_>, start: Start) {
        match self.step {
            Step::Idle => {
                let plan = GroundPlan { contain: start.contain, choose_port: start.master_port.is_none() };
                self.step = Step::Grounding;
                cx.tell(Notice::Begun(Box::new(start)));
                cx.act(NodeAction::Ground(plan));
            }
            Step::Grounding | Step::Settled => self.refuse(cx, Refusal::Protocol),
        }
    }

    pub(super) fn on_part(&mut self, cx: &mut Cx<'_>, app: AppIndex, last: bool, part: &[u8]) {
        self.received = self.received.saturating_add(part.len());
        let known = self.apps.entry(app).or_insert_with(|| Some(Vec::new()));
        let fits = part.len() <= APP_PART && self.received <= MAX_APPS;
        let Some(bytes) = known.as_mut().filter(|_| fits && !matches!(self.step, Step::Idle)) else {
            return self.refuse(cx, Refusal::Protocol);
        };
        bytes.extend_from_slice(part);
        if last {
            let base = codec::decode::<AppBase>(bytes);
            *known = None;
            match base {
                Ok(base) => cx.tell(Notice::Program(app, Arc::new(base))),
                Err(_) => self.refuse(cx, Refusal::Protocol),
            }
        }
    }

    pub(super) fn on_spawn(&mut self, cx: &mut Cx<'_>, procs: Vec<Delta>, last: bool) {
        match self.step {
            Step::Idle => self.refuse(cx, Refusal::Protocol),
            Step::Grounding | Step::Settled => cx.tell(Notice::Queue(procs, last)),
        }
    }

    pub(super) fn on_grounded(&mut self, cx: &mut Cx<'_>, ground: Ground) {
        match self.step {
            Step::Grounding => {
                self.step = Step::Settled;
                cx.act(NodeAction::ToRoot(ToRoot::Hello(Hello {
                    tier: ground.tier,
                    note: ground.note.clone(),
                    usual: ground.usual,
                    master_port: ground.master_port,
                    port_reserved: ground.port_reserved,
                    agent: ground.agent,
                    init: ground.init,
                })));
                cx.tell(Notice::Ready(Box::new(ground)));
            }
            Step::Idle | Step::Settled => {}
        }
    }

    pub(super) fn on_refused(&mut self, cx: &mut Cx<'_>, refusal: Refusal) {
        match self.step {
            Step::Grounding => {
                self.step = Step::Settled;
                cx.tell(Notice::Unready);
                self.refuse(cx, refusal);
            }
            Step::Idle | Step::Settled => {}
        }
    }

    /// Says why, once, and takes back what was begun.
    pub(super) fn refuse(&mut self, cx: &mut Cx<'_>, refusal: Refusal) {
        if !self.refused {
            self.refused = true;
            cx.act(NodeAction::ToRoot(ToRoot::Refused(refusal)));
            cx.tell(Notice::Destroy);
        }
    }
}
