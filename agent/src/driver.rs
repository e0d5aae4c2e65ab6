//! The agent's driver: one wait, `handle`, drain the actions.

use crate::clock::now;
use crate::edges::Edges;
use rlaunch_core::machine::Machine;
use rlaunch_core::node::Node;
use std::io;
use std::mem::ManuallyDrop;

/// Events that are handled before the actions they caused are looked at again.
const BURST: usize = 256;
/// The step without which an agent cannot continue.
const LOOP: &str = "build its event loop";

pub(crate) fn run(node: Node, edges: Edges) -> io::Result<u8> {
    // Never dropped: the process ends with this, and the kernel gives everything back at once.
    let (mut node, mut edges) = (ManuallyDrop::new(node), ManuallyDrop::new(edges));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.inspect_err(|error| edges.give_up(LOOP, error))?;
    ManuallyDrop::new(runtime).block_on(async {
        let live = edges.go_live();
        live.inspect_err(|error| edges.give_up(LOOP, error))?;
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
