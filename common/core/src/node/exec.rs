//! From a rank's numbers to everything needed to start it.

use super::{ExecSpec, Ground};
use crate::env::{self, Block, Host, Seat};
use crate::id::ProcId;
use crate::os_bytes::OsBytes;
use crate::spec::{AppBase, Role};
use crate::wire::to_node::{Delta, Meeting, Start};
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;

/// A program that is complete, and the variables that its ranks on this host share once they are known.
pub(super) struct Program {
    base: Arc<AppBase>,
    shared: Option<Arc<Block>>,
}

impl Program {
    pub(super) fn new(base: Arc<AppBase>) -> Self {
        Self { base, shared: None }
    }

    /// Made when the rank's turn has come and not before: the variables of a thousand ranks are memory.
    pub(super) fn exec(&mut self, start: &Start, meeting: &Meeting, ground: &Ground, delta: Delta) -> Box<ExecSpec> {
        let pinned = &self.base.pinned;
        let role = &self.base.role;
        let shared =
            self.shared.get_or_insert_with(|| Arc::new(env::common(&host(start, meeting, ground, delta, role), pinned)));
        let error_file = error_file(start, ground, delta.proc);
        let app_rank = delta.rank.get().saturating_sub(self.base.role.first.get());
        let seat = Seat { rank: delta.rank, local_rank: delta.local_rank, app_rank, error_file: &error_file };
        let mut vars = Block::default();
        env::of_rank(&seat, pinned, &mut vars);
        let (base, shared) = (Arc::clone(&self.base), Arc::clone(shared));
        Box::new(ExecSpec { base, shared, vars, delta, label: start.label.clone(), error_file })
    }
}

fn host<'a>(start: &'a Start, meeting: &'a Meeting, ground: &Ground, delta: Delta, role: &'a Role) -> Host<'a> {
    Host {
        job: start.job,
        world_size: start.world_size,
        local_size: start.local_size,
        node_index: start.node_index,
        nodes: start.nodes,
        app: delta.app,
        app_name: &role.name,
        app_size: role.size,
        apps: role.apps,
        master_addr: &meeting.addr,
        master_port: meeting.port.unwrap_or(ground.master_port),
        cpus: Some(ground.cpus).filter(|cpus| *cpus > 0),
        tier: ground.tier,
    }
}

/// No two processes of this host share one, and nobody else can foresee it: the job's name is random.
fn error_file(start: &Start, ground: &Ground, proc: ProcId) -> OsBytes {
    let mut path = ground.error_dir.to_vec();
    path.extend_from_slice(format!("/rlaunch-{}-{proc}.error.json", start.job).as_bytes());
    OsBytes::new(path)
}
