//! Making ready for other ranks, when nothing is left of those before: what was theirs alone is let go, and what ends with them is made
//! anew.

use super::{Edges, port, sandbox, tcpstore_listener};
use rlaunch_core::node::NodeEvent;
use rlaunch_core::wire::to_node::PortPlan;
use rlaunch_core::wire::to_root::NodeRefusal;
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
    edges.preempt_probe.resume();
    // A process that connects now is none of the job.
    tcpstore_listener::close(edges);
    edges.logs.reopen();
    edges.ranks.forget_programs();
    edges.stdin.renew(&mut edges.link);
    // Init ends with all that is in its namespace.
    let wanted = edges.watch.let_go_of_init();
    let namespace = if wanted { Namespace::Requested } else { Namespace::Unwanted };
    match sandbox::another_thread(edges, wanted) {
        Ok(()) => edges.sandbox.renewing = Some(Renewing { port, namespace }),
        Err(refusal) => edges.events.push_back(NodeEvent::Refused(refusal)),
    }
}

/// Notes the answer to the request for a PID namespace.
pub(super) fn on_namespace(edges: &mut Edges, init: Result<Init, NsError>) {
    if let Some(renewing) = &mut edges.sandbox.renewing {
        renewing.namespace = Namespace::Made(init);
    }
}

/// Completes the preparation as soon as the namespace is there. Never waits for it.
pub(super) fn finish(edges: &mut Edges) {
    let made = |renewing: &mut Renewing| !matches!(renewing.namespace, Namespace::Requested);
    let Some(Renewing { port, namespace }) = edges.sandbox.renewing.take_if(made) else { return };
    let event = match complete(edges, port, namespace) {
        Ok(port) => NodeEvent::Renewed { port },
        Err(refusal) => NodeEvent::Refused(refusal),
    };
    edges.events.push_back(event);
}

fn complete(edges: &mut Edges, port: PortPlan, namespace: Namespace) -> Result<u16, NodeRefusal> {
    // The one before is still held: a port that ranks have had is never used again as long as a process may remember it.
    let new = if edges.sandbox.has_claimed(port) { Ok(None) } else { port::prepare(port, edges.sandbox.job()) };
    if let Namespace::Made(init) = namespace {
        sandbox::adopt_init(edges, init).map_err(sandbox::refused)?;
    }
    let Some(new) = new? else { return Ok(0) };
    let number = if port == PortPlan::Choose { new.number } else { 0 };
    edges.sandbox.hold(new);
    Ok(number)
}
