//! The watch over a host of a pool that no job has: without an agent, and for the first warning only.

use super::watching::watch_host;
use rlaunch_base::warnings::WarningSource;
use rlaunch_plan::metadata::Report;
use std::io;
use std::os::fd::OwnedFd;
use tokio::sync::mpsc::channel;

/// Reports that may wait.
const WAITING: usize = 16;

/// Waits until the metadata server of this host warns. `None`: the host has no server, the server refuses it, or `caller` has ended.
///
/// # Errors
/// There is no room for an event loop.
pub fn wait_for_warning(caller: OwnedFd) -> io::Result<Option<WarningSource>> {
    let Some(server) = super::server() else { return Ok(None) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async {
        let caller = rlaunch_net::ready::readable(caller)?;
        let (sender, mut reports) = channel(WAITING);
        let first = async {
            while let Some(report) = reports.recv().await {
                if let Report::Warning(source) = report {
                    return Some(source);
                }
            }
            None
        };
        let watch = async {
            watch_host(server, sender).await;
            None
        };
        // Whichever is first is all that is wanted; a caller sends nothing, and ends.
        Ok(tokio::select! {
            warned = first => warned,
            refused = watch => refused,
            _ended = caller.readable() => None,
        })
    })
}
