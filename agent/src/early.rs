//! From the launcher's first byte to the first rank, before a runtime exists: a rank does not wait for ours to be built.

use crate::AgentSetup;
use crate::clock::now;
use crate::edges::Edges;
use rlaunch_core::env::of_login;
use rlaunch_core::machine::Machine;
use rlaunch_core::node::{Node, NodeEvent};
use rlaunch_core::os_strings::OsStrings;
use rlaunch_core::time::Mono;
use rlaunch_core::wire::to_node::ToNode;
use rlaunch_net::Body;
use rlaunch_sys::origin::environment;
use std::io;

/// How the early phase ends.
pub(crate) enum Outcome {
    /// There was nothing to do.
    Over(u8),
    /// Ranks are being started.
    Live(Box<(Node, Edges)>),
}

pub(crate) fn run(setup: AgentSetup) -> io::Result<Outcome> {
    let login = if setup.lease.is_some() { of_login(environment()) } else { OsStrings::default() };
    let mut edges = Edges::new(setup)?;
    let_go(&mut edges, &[0, 1])?;
    let mut node = Node::of_login(login);
    while !edges.has_work() {
        // While the sandbox is being set up, what has come with the order for it is unpacked.
        if !edges.set_up_sandbox() {
            edges.flush_early();
            if !receive(&mut edges, node.poll_timeout())? {
                // Other hosts may need longer to be reached than a lease lasts: the launcher has to hear of this one.
                node.handle_timeout(now());
            }
        }
        loop {
            while let Some(action) = node.poll_action() {
                edges.perform(action);
            }
            let Some(event) = edges.take() else { break };
            node.handle(now(), event);
        }
        if let Some(code) = edges.finished() {
            edges.flush_last();
            edges.wake_guardian();
            return Ok(Outcome::Over(code));
        }
    }
    Ok(Outcome::Live(Box::new((node, edges))))
}

/// Waits for something from the launcher until then; false if nothing came. Messages that have arrived come first, as in the driver.
fn receive(edges: &mut Edges, deadline: Option<Mono>) -> io::Result<bool> {
    match edges.recv_early(deadline) {
        Ok(None) => return Ok(false),
        Ok(Some(Body::Message(message))) => {
            if let ToNode::Start(start) = &message {
                edges.settle_down();
                diagnostics(edges, &start.settings.trace)?;
            }
            edges.happened(NodeEvent::FromRoot(message));
        }
        Ok(Some(Body::Credit(up_to))) => edges.granted(up_to),
        Ok(Some(Body::Data { bytes, flags, .. })) => edges.stdin_arrived(bytes, flags),
        Ok(Some(Body::Broken(broken))) => edges.line_broken(broken),
        Ok(Some(Body::Beat(beat))) => edges.happened(NodeEvent::Beat(beat)),
        // No rank has asked yet.
        Ok(Some(Body::Last(_) | Body::Store(_))) => {}
        // sshd closes our input when the guardian is gone. Nothing runs yet, and the launcher shall know which of us it was.
        Err(_) if edges.is_unguarded() => edges.happened(NodeEvent::GuardianLost),
        Err(_) => edges.happened(NodeEvent::EdgeLost),
    }
    Ok(true)
}

/// Without diagnostics the agent lets go of the user's stderr too.
fn diagnostics(edges: &mut Edges, filter: &[u8]) -> io::Result<()> {
    if filter.is_empty() {
        return let_go(edges, &[2]);
    }
    rlaunch_net::diagnostics::start(filter);
    Ok(())
}

fn let_go(edges: &mut Edges, streams: &[i32]) -> io::Result<()> {
    rlaunch_sys::fd::release_stdio(streams).inspect_err(|error| edges.give_up("open /dev/null", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Edge;
    use rlaunch_core::id::NodeId;
    use rlaunch_core::wire::to_root::{NodeRefusal, ToRoot};
    use rlaunch_net::Early;
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_agent_that_cannot_begin_says_why() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let setup = AgentSetup {
            node: NodeId::new(0),
            edge: Edge::Socket(theirs.into()),
            // A regular file cannot be waited for (epoll_ctl(2)): not permitted.
            guardian: File::open("/proc/self/exe").unwrap().into(),
            origin: rlaunch_sys::origin::capture().unwrap(),
            temp_files: rlaunch_sys::guardian::TempFiles::new().unwrap(),
            no_subreaper: None,
            lease: None,
        };
        assert!(run(setup).is_err());
        let mut launcher = Early::<ToRoot>::new(ours);
        let Body::Message(ToRoot::Refused(NodeRefusal::Resource { errno, step })) = launcher.recv().unwrap().body
        else {
            panic!("no refusal")
        };
        assert_eq!((errno, step), (1, "watch what happens".into()));
        assert!(launcher.recv().is_err(), "and ends");
    }
}
