//! The agent's driver: one wait, `handle`, drain the actions.

use crate::AgentSetup;
use crate::clock::now;
use crate::edges::Edges;
use crate::edges::link::last_word;
use rlaunch_base::machine::Machine;
use rlaunch_base::os_strings::OsStrings;
use rlaunch_core::node::Node;
use rlaunch_protocol::env::of_login;
use rlaunch_sys::origin::environment;
use std::io;
use std::mem::ManuallyDrop;
use tokio::runtime::Builder;

/// Events that are handled before the actions they caused are looked at again.
const BURST: usize = 256;

/// Runs until the job has ended on this host. Returns the exit code.
pub(crate) fn run(setup: AgentSetup) -> io::Result<u8> {
    let login = if setup.lease.is_some() { of_login(environment()) } else { OsStrings::default() };
    let runtime = match Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            last_word(setup.node, &mut setup.edge.early(), "build its event loop", &error);
            return Err(error);
        }
    };
    // Never dropped: the process ends with this, and the kernel gives everything back at once.
    ManuallyDrop::new(runtime).block_on(async {
        let (mut node, mut edges) = (ManuallyDrop::new(Node::of_login(login)), ManuallyDrop::new(Edges::new(setup)?));
        edges.release_stdio(&[0, 1]);
        loop {
            edges.wait(node.poll_timeout()).await;
            // All messages that have arrived come first: after a suspension they happened before the deadlines that are due only now.
            while let Some(first) = edges.take() {
                node.handle(now(), first);
                for event in std::iter::from_fn(|| edges.take()).take(BURST) {
                    node.handle(now(), event);
                }
                while let Some(action) = node.poll_action() {
                    edges.perform(action);
                }
            }
            node.handle_timeout(now());
            while let Some(action) = node.poll_action() {
                edges.perform(action);
            }
            if let Some(code) = edges.finished() {
                edges.wake_guardian();
                break Ok(code);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Edge;
    use rlaunch_base::id::NodeId;
    use rlaunch_net::{Body, Early};
    use rlaunch_protocol::wire::to_root::{NodeRefusal, ToRoot};
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_agent_that_cannot_begin_says_why() {
        let (launcher_end, agent_end) = UnixStream::pair().unwrap();
        let setup = AgentSetup {
            node: NodeId::new(0),
            edge: Edge::Socket(agent_end.into()),
            // A regular file cannot be waited for (epoll_ctl(2)): not permitted.
            guardian: File::open("/proc/self/exe").unwrap().into(),
            origin: rlaunch_sys::origin::capture().unwrap(),
            temp_files: rlaunch_sys::guardian::TempFiles::new().unwrap(),
            no_subreaper: None,
            lease: None,
        };
        assert!(run(setup).is_err());
        let mut launcher = Early::<ToRoot>::new(launcher_end);
        let Body::Message(ToRoot::Refused(NodeRefusal::Resource { errno, step })) = launcher.recv().unwrap().body
        else {
            panic!("no refusal")
        };
        assert_eq!((errno, step), (1, "watch what happens".into()));
        assert!(launcher.recv().is_err(), "and ends");
    }
}
