//! The parts of the edges, and the base that they share.

use super::device_thread::DeviceThread;
use super::examine::Examinations;
use super::files::Files;
use super::lease::LeaseLine;
use super::link::Link;
use super::logs::Logs;
use super::memory::MemoryWatch;
use super::metadata::Watching;
use super::mpi::MpiListener;
use super::preempt_probe::PreemptProbe;
use super::probe::Probes;
use super::proc_searches::ProcSearches;
use super::pump::Pump;
use super::rank_table::Ranks;
use super::sandbox::Held;
use super::session_kills::SessionKills;
use super::sessions::Sessions;
use super::socket_searches::SocketSearches;
use super::stdin::Stdin;
use super::store::Store;
use super::tcpstores::TcpStores;
use super::watch::Watch;
use rlaunch_base::id::NodeId;
use rlaunch_base::machine::earliest_of;
use rlaunch_base::time::Mono;
use rlaunch_core::node::NodeEvent;
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::to_root::ToRoot;
use rlaunch_sys::guardian::TempFiles;
use rlaunch_sys::origin::Origin;
use std::collections::VecDeque;
use std::task::{Context, Poll};

/// A concern of the edges with its own state. A part uses the base and no other part. `Edges` does what needs two parts.
pub(super) trait Part {
    /// Orders of the machine for it.
    type Action;

    /// Does it. Nothing waits here: outcomes are events.
    fn perform(&mut self, base: &mut Base, action: Self::Action);

    /// A descriptor that it has added to the watch is ready.
    fn ready(&mut self, _base: &mut Base) {}

    /// Takes in what has happened, and has the task woken for more.
    fn poll(&mut self, _base: &mut Base, _cx: &mut Context<'_>) {}

    /// When [`Self::poll`] is due at the latest.
    fn deadline(&self) -> Option<Mono> {
        None
    }
}

/// A part that exists only where it is needed.
impl<P: Part> Part for Option<P> {
    type Action = P::Action;

    fn perform(&mut self, base: &mut Base, action: P::Action) {
        if let Some(part) = self {
            part.perform(base, action);
        }
    }

    fn ready(&mut self, base: &mut Base) {
        if let Some(part) = self {
            part.ready(base);
        }
    }

    fn poll(&mut self, base: &mut Base, cx: &mut Context<'_>) {
        if let Some(part) = self {
            part.poll(base, cx);
        }
    }

    fn deadline(&self) -> Option<Mono> {
        self.as_ref().and_then(P::deadline)
    }
}

impl<P: Part> Part for Box<P> {
    type Action = P::Action;

    fn perform(&mut self, base: &mut Base, action: P::Action) {
        (**self).perform(base, action);
    }

    fn ready(&mut self, base: &mut Base) {
        (**self).ready(base);
    }

    fn poll(&mut self, base: &mut Base, cx: &mut Context<'_>) {
        (**self).poll(base, cx);
    }

    fn deadline(&self) -> Option<Mono> {
        (**self).deadline()
    }
}

/// The list of parts, in the order in which they are polled.
macro_rules! parts {
    ($($(#[$doc:meta])* $name:ident $field:ident: $part:ty,)*) => {
        /// All parts.
        #[derive(Default)]
        pub(super) struct Parts {
            $($(#[$doc])* pub(super) $field: $part,)*
        }

        /// A part, as the watch knows it.
        #[derive(Clone, Copy)]
        pub(super) enum PartName {
            $($name,)*
        }

        impl Parts {
            /// A descriptor of this part is ready.
            pub(super) fn ready(&mut self, base: &mut Base, name: u64) {
                $(if name == PartName::$name as u64 {
                    self.$field.ready(base);
                })*
            }

            /// Has all of them take in what has happened.
            pub(super) fn poll(&mut self, base: &mut Base, cx: &mut Context<'_>) {
                $(self.$field.poll(base, cx);)*
            }

            /// When one of them is due.
            pub(super) fn deadline(&self) -> Option<Mono> {
                earliest_of([$(self.$field.deadline(),)*])
            }
        }
    };
}

parts! {
    /// Sessions of processes that take part in rounds.
    Sessions sessions: Option<Sessions>,
    /// The watch over the metadata server.
    Metadata metadata: Watching,
    /// The command that warns.
    PreemptProbe preempt_probe: PreemptProbe,
    /// The tries to reach rank 0's host, or the wait there for such tries.
    Probes probes: Probes,
    /// Device files, and who holds them.
    Devices devices: DeviceThread,
    /// The listener for MPI libraries.
    Mpi mpi: Option<Box<MpiListener>>,
    /// `TCPStore`s of this host.
    TcpStores tcp_stores: TcpStores,
    /// Our own listener, and the namespaces that it serves.
    Store store: Option<Store>,
    /// Looks at ranks that have failed.
    Examine examine: Examinations,
    /// Ends of all in the sessions of ranks.
    SessionKills session_kills: SessionKills,
}

/// The base of all parts: the ranks of this host with their streams, the stream to the launcher, and what wakes the machine thread.
pub(super) struct Base {
    pub(super) link: Link,
    pub(super) origin: Origin,
    pub(super) node: NodeId,
    /// Held, so that its end is ours.
    pub(super) lease: Option<LeaseLine>,
    pub(super) watch: Watch,
    pub(super) ranks: Ranks,
    pub(super) pump: Pump,
    pub(super) stdin: Stdin,
    pub(super) sandbox: Held,
    pub(super) files: Files,
    pub(super) proc_searches: ProcSearches,
    pub(super) socket_searches: SocketSearches,
    pub(super) logs: Logs,
    pub(super) memory: MemoryWatch,
    pub(super) temp_files: TempFiles,
    /// Why the guardian or the agent is no subreaper: an errno.
    pub(super) no_subreaper: Option<i32>,
    /// Events that were not handled yet.
    pub(super) events: VecDeque<NodeEvent>,
}

impl Base {
    /// Queues a message for the launcher.
    pub(super) fn send(&mut self, message: &ToRoot) {
        if self.link.as_mut().is_some_and(|link| link.send(self.node, message).is_err()) {
            self.lose_link();
        }
    }

    /// Queues a heartbeat for the launcher.
    pub(super) fn beat(&mut self, beat: Beat) {
        if self.link.as_mut().is_some_and(|link| link.beat(self.node, beat).is_err()) {
            self.lose_link();
        }
    }

    /// Writes what the stream to the launcher takes.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) {
        if let Some(link) = &mut self.link
            && let Poll::Ready(Err(error)) = link.poll_flush(cx)
        {
            tracing::debug!(%error, "the edge to the launcher cannot be written");
            self.lose_link();
        }
    }

    /// The stream to the launcher has ended.
    pub(super) fn lose_link(&mut self) {
        self.link = None;
        self.events.push_back(NodeEvent::EdgeLost);
    }
}
