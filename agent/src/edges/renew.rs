//! Making ready for other ranks, when nothing is left of those before: what was theirs alone is let go, and what ends with them is made
//! anew.

use super::{Edges, front, ground};
use rlaunch_core::node::NodeEvent;
use rlaunch_core::wire::to_root::NodeRefusal;

/// What was begun.
pub(super) struct Renewing {
    choose_port: bool,
    /// The thread that starts ranks was asked for a PID namespace.
    namespace: bool,
}

/// Begins: the thread that starts ranks works meanwhile.
pub(super) fn begin(edges: &mut Edges, choose_port: bool) {
    // Whoever asks it now is nobody of the job.
    front::close(edges);
    edges.logs.reopen();
    edges.ranks.forget_programs();
    edges.stdin.renew(&mut edges.link);
    // Init ends with all that is in its namespace.
    let namespace = edges.watch.let_go_of_init();
    match ground::another_thread(edges, namespace) {
        Ok(()) => edges.ground.renewing = Some(Renewing { choose_port, namespace }),
        Err(refusal) => edges.events.push_back(NodeEvent::Refused(refusal)),
    }
}

/// Waits until it is done, if it was begun.
pub(super) fn finish(edges: &mut Edges) {
    let Some(Renewing { choose_port, namespace }) = edges.ground.renewing.take() else { return };
    let event = match complete(edges, choose_port, namespace) {
        Ok(port) => NodeEvent::Renewed { port },
        Err(refusal) => NodeEvent::Refused(refusal),
    };
    edges.events.push_back(event);
}

fn complete(edges: &mut Edges, choose_port: bool, namespace: bool) -> Result<u16, NodeRefusal> {
    // The one before is still held: what ranks were told once they are never told again as long as somebody may remember it.
    let port = if choose_port { ground::choose_port().map(Some) } else { Ok(None) };
    ground::enter(edges, namespace).map_err(ground::refused)?;
    let Some(port) = port? else { return Ok(0) };
    let number = port.number;
    edges.ground.hold(port);
    Ok(number)
}
