//! Resources of this host for the next round, beside those of the present one: a port, and a listener there.
//!
//! The host of a rendezvous is known only with the round itself. All hosts have a port ready: that costs less than another question to one
//! of them. An agent that holds the TCPStore listens at once, so that ranks of other hosts that learn of the round sooner wait in the
//! kernel.

use super::{sandbox, tcpstore_listener};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_sys::port::Port;
use std::net::{SocketAddr, TcpListener};

/// The held resources.
#[derive(Debug, Default)]
pub(super) struct NextPort {
    port: Option<Port>,
    listener: Option<TcpListener>,
}

impl NextPort {
    /// The one that listens there, if there is one.
    pub(super) fn listener(&mut self, at: SocketAddr) -> Option<TcpListener> {
        self.listener.take().filter(|listener| listener.local_addr().is_ok_and(|own| own == at))
    }

    /// Chooses a port, and listens at this address. Returns the port; 0: none can be had.
    pub(super) fn reserve(&mut self, listen: Option<&OsBytes>) -> u16 {
        let chosen = sandbox::choose_port();
        let mut port =
            chosen.inspect_err(|refusal| tracing::warn!(?refusal, "no port can be had for another round")).ok();
        let number = port.as_ref().map_or(0, |port| port.number);
        let listener = listen.zip(port.as_mut()).and_then(|(addr, port)| {
            let listener = tcpstore_listener::address(addr, number).and_then(|at| port.listen(at));
            // A client that comes early is refused then, and comes again, as clients of that store do.
            listener
                .inspect_err(|error| tracing::debug!(%error, "there is no listener at {addr}, port {number} yet"))
                .ok()
        });
        *self = Self { port, listener };
        number
    }

    /// The port, which is used from now on in place of the one before; or it is dropped.
    pub(super) fn take(&mut self, is_used: bool) -> Option<Port> {
        let Some(mut port) = self.port.take().filter(|_| is_used) else {
            *self = Self::default();
            return None;
        };
        // Rank 0 is there already, and may bind it.
        port.release();
        Some(port)
    }
}
