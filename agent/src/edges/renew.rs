//! Making ready for other ranks, when nothing is left of those before: what was theirs alone is let go, and what ends with them is made
//! anew.

use super::{Edges, front, ground};
use rlaunch_core::node::NodeEvent;
use rlaunch_core::wire::to_root::NodeRefusal;
use rlaunch_sys::ns::{Init, NsError};

/// Preparation of another generation.
pub(super) struct Renewing {
    choose_port: bool,
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
pub(super) fn begin(edges: &mut Edges, choose_port: bool) {
    // Whoever asks it now is nobody of the job.
    front::close(edges);
    edges.logs.reopen();
    edges.ranks.forget_programs();
    edges.stdin.renew(&mut edges.link);
    // Init ends with all that is in its namespace.
    let wanted = edges.watch.let_go_of_init();
    let namespace = if wanted { Namespace::Requested } else { Namespace::Unwanted };
    match ground::another_thread(edges, wanted) {
        Ok(()) => edges.ground.renewing = Some(Renewing { choose_port, namespace }),
        Err(refusal) => edges.events.push_back(NodeEvent::Refused(refusal)),
    }
}

/// Notes the answer to the request for a PID namespace.
pub(super) fn on_namespace(edges: &mut Edges, init: Result<Init, NsError>) {
    if let Some(renewing) = &mut edges.ground.renewing {
        renewing.namespace = Namespace::Made(init);
    }
}

/// Completes the preparation as soon as the namespace is there. Never waits for it.
pub(super) fn finish(edges: &mut Edges) {
    let made = |renewing: &mut Renewing| !matches!(renewing.namespace, Namespace::Requested);
    let Some(Renewing { choose_port, namespace }) = edges.ground.renewing.take_if(made) else { return };
    let event = match complete(edges, choose_port, namespace) {
        Ok(port) => NodeEvent::Renewed { port },
        Err(refusal) => NodeEvent::Refused(refusal),
    };
    edges.events.push_back(event);
}

fn complete(edges: &mut Edges, choose_port: bool, namespace: Namespace) -> Result<u16, NodeRefusal> {
    // The one before is still held: what ranks were told once they are never told again as long as somebody may remember it.
    let port = if choose_port { ground::choose_port().map(Some) } else { Ok(None) };
    if let Namespace::Made(init) = namespace {
        ground::adopt_init(edges, init).map_err(ground::refused)?;
    }
    let Some(port) = port? else { return Ok(0) };
    let number = port.number;
    edges.ground.hold(port);
    Ok(number)
}
