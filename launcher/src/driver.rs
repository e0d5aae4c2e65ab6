//! The launcher's driver: one wait, `handle`, drain the actions.

use crate::edges::{Edges, Setup, now};
use anyhow::Context as _;
use rlaunch_base::exit::Ending;
use rlaunch_base::machine::Machine;
use rlaunch_core::job::Job;
use std::mem::ManuallyDrop;

/// Events that are handled before the actions they caused are looked at again.
const BURST: usize = 256;

pub(crate) fn run(job: Job, setup: Setup<'_>) -> anyhow::Result<Ending> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .context("cannot build the launcher's event loop")?;
    // Never dropped: the process ends with this, and the kernel gives everything back at once.
    ManuallyDrop::new(runtime).block_on(async {
        let (mut job, mut edges) = (ManuallyDrop::new(job), ManuallyDrop::new(Edges::new(setup)?));
        while let Some(action) = job.poll_action() {
            edges.perform(action);
        }
        loop {
            edges.wait(job.poll_timeout()).await;
            // All messages that have arrived come first: after a suspension they happened before the deadlines that are due only now.
            while let Some(first) = edges.take() {
                job.handle(now(), first);
                for event in std::iter::from_fn(|| edges.take()).take(BURST) {
                    job.handle(now(), event);
                }
                while let Some(action) = job.poll_action() {
                    edges.perform(action);
                }
            }
            job.handle_timeout(now());
            while let Some(action) = job.poll_action() {
                edges.perform(action);
            }
            if let Some(ending) = edges.finished() {
                break Ok(ending);
            }
        }
    })
}
