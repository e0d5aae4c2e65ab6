//! Preparation for other ranks, when nothing is left of those before. Resources of those ranks alone are released, and resources that end
//! with the ranks are made anew.

use super::{Edges, port, sandbox};
use crate::edges::part::Base;
use rlaunch_core::node::NodeEvent;
use rlaunch_protocol::wire::to_node::PortPlan;
use rlaunch_protocol::wire::to_root::NodeRefusal;
use rlaunch_sys::ns::{Init, NsError};

/// Preparation of another generation.
pub(super) struct Renewing {
    port: PortPlan,
    namespace: Namespace,
}

/// The PID namespace of another generation.
enum Namespace {
    /// The generation before had none either.
    Unwanted,
    /// The thread that starts ranks makes it.
    Requested,
    /// The answer of that thread.
    Made(Result<Init, NsError>),
}

/// Begins: the thread that starts ranks works meanwhile.
pub(super) fn begin(edges: &mut Edges, port: PortPlan) {
    edges.parts.preempt_probe.resume();
    // A process that connects now is none of the job.
    edges.parts.tcp_stores.close(&edges.base);
    edges.base.logs.reopen();
    edges.base.ranks.forget_programs();
    edges.base.stdin.renew(&mut edges.base.link);
    // Init ends with all that is in its namespace.
    let wanted = edges.base.watch.let_go_of_init();
    let namespace = if wanted { Namespace::Requested } else { Namespace::Unwanted };
    match sandbox::another_thread(&mut edges.base, wanted) {
        Ok(()) => edges.base.sandbox.renewing = Some(Renewing { port, namespace }),
        Err(refusal) => edges.base.events.push_back(NodeEvent::Refused(refusal)),
    }
}

/// Notes the answer to the request for a PID namespace.
pub(super) fn on_namespace(base: &mut Base, init: Result<Init, NsError>) {
    if let Some(renewing) = &mut base.sandbox.renewing {
        renewing.namespace = Namespace::Made(init);
    }
}

/// Completes the preparation as soon as the namespace is there. Never waits for it.
pub(super) fn finish(base: &mut Base) {
    let made = |renewing: &mut Renewing| !matches!(renewing.namespace, Namespace::Requested);
    let Some(Renewing { port, namespace }) = base.sandbox.renewing.take_if(made) else { return };
    let event = match complete(base, port, namespace) {
        Ok(port) => NodeEvent::Renewed { port },
        Err(refusal) => NodeEvent::Refused(refusal),
    };
    base.events.push_back(event);
}

fn complete(base: &mut Base, port: PortPlan, namespace: Namespace) -> Result<u16, NodeRefusal> {
    // The one before is still held: a port that ranks have had is never used again as long as a process may remember it.
    let new = if base.sandbox.has_claimed(port) { Ok(None) } else { port::prepare(port, base.sandbox.job()) };
    if let Namespace::Made(init) = namespace {
        sandbox::adopt_init(base, init).map_err(sandbox::refused)?;
    }
    let Some(new) = new? else { return Ok(0) };
    let number = if port == PortPlan::Choose { new.number } else { 0 };
    base.sandbox.hold(new);
    Ok(number)
}
