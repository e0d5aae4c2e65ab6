//! Why a failed rank failed: its last words, its core file, the kernel's out-of-memory killer, its own error file.

use super::{Edges, pump};
use rlaunch_core::id::ProcId;
use rlaunch_core::node::{Depth, NodeEvent};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::status::Status;
use rlaunch_core::wire::to_root::Facts;

#[derive(Default)]
pub(super) struct Examinations {
    asked: Vec<(ProcId, Status, Depth)>,
}

impl Examinations {
    pub(super) fn ask(&mut self, proc: ProcId, status: Status, depth: Depth) {
        self.asked.push((proc, status, depth));
    }
}

/// Answers the examinations that need not wait any more: a rank's last words are in its pipe when it dies, so they are
/// read first, unless the reader of our output holds everything up.
pub(super) fn settle(edges: &mut Edges) {
    if edges.examine.asked.is_empty() {
        return;
    }
    let asked = std::mem::take(&mut edges.examine.asked);
    for (proc, status, depth) in asked {
        if depth == Depth::Full && pump::has_unread(edges, proc) {
            edges.examine.asked.push((proc, status, depth));
            continue;
        }
        let facts = facts(edges, proc, status, depth);
        edges.events.push_back(NodeEvent::Examined { proc, facts });
    }
}

fn facts(edges: &mut Edges, proc: ProcId, _status: Status, depth: Depth) -> Facts {
    let error_file = edges.ranks.errors.get(&proc).and_then(|path| rlaunch_sys::facts::error_file::read(path));
    let mut facts = Facts { error_file: error_file.map(OsBytes::new), ..Facts::default() };
    if depth == Depth::Full {
        let tail = edges.pump.last_words(&mut edges.ranks, proc);
        facts.tail = OsBytes::new(tail);
    }
    facts
}
