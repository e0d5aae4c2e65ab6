//! The `TCPStore` of a job, where the agent of its first host holds it: from when this node has to, and what is worth a word about
//! who asks it.

use super::rate_limited_counter::RateLimitedCounter;
use super::{Cx, NodeAction, Sandbox, TcpStorePlan, WorldPlan};
use crate::node::{StoreAction, TcpStoreAction};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use rlaunch_base::id::JobId;
use rlaunch_base::machine::earliest_of;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::{Mono, Span};
use rlaunch_mpi::Layout;
use rlaunch_protocol::master_store::Guard;
use rlaunch_protocol::wire::limit::{Limit, Met};
use rlaunch_protocol::wire::node_news::{NodeNews, StoreNews};
use rlaunch_protocol::wire::round::RoundRendezvous;
use rlaunch_protocol::wire::to_node::{Rendezvous, Start, WorldStart};
use rlaunch_protocol::wire::to_root::ToRoot;

/// The time after which an unused store is reported. A program that meets at another port hangs, and its user waits for a reason. Time in
/// which ranks are busy does not count: they may import, or load data.
pub const UNUSED: Span = Span::from_secs(10);
/// Processor time in that time from which ranks are busy: so much, and so much more for each rank. Ranks that wait in turns for a connection
/// use less.
const BUSY: Span = Span::from_millis(50);
const BUSY_OF_RANK: Span = Span::from_millis(5);

/// A host with a listener for MPI libraries.
struct MpiHost {
    name: OsBytes,
    cpus: u32,
}

/// The state of the store on this node.
#[derive(Default)]
pub(super) struct Serve {
    rendezvous: Option<Rendezvous>,
    ranks: u32,
    /// The port that this node has chosen; 0: another has.
    chosen: Option<u16>,
    /// The address at which this node holds it; empty: it does not.
    at: OsBytes,
    /// The number of the namespace that ranks share.
    namespace: u32,
    /// The job, and this host with a listener for MPI libraries.
    job: Option<JobId>,
    /// The clients that the store serves.
    guard: Guard,
    mpi: Option<MpiHost>,
    /// The time after which an unused store is reported.
    unused_at: Option<Mono>,
    /// Processor time of the ranks at the last look. `None`: the store was used, or was reported.
    cpu: Option<Span>,
    /// Strangers, and where the last came from.
    refused: RateLimitedCounter<OsBytes>,
    /// The launcher knows of one from an address that no host has.
    foreign: bool,
    /// Limits that clients have met.
    limits: BTreeMap<Limit, RateLimitedCounter<Met>>,
}

impl Serve {
    pub(super) fn on_begun(&mut self, start: &Start) {
        self.rendezvous.clone_from(&start.rendezvous);
        self.ranks = start.local_size;
        (self.job, self.guard) = (Some(start.job), start.settings.store.guard);
    }

    pub(super) fn on_met(&mut self, cx: &mut Cx<'_>, rendezvous: &Rendezvous) {
        self.rendezvous = Some(rendezvous.clone());
        self.begin(cx);
    }

    pub(super) fn on_ready(&mut self, cx: &mut Cx<'_>, sandbox: &Sandbox) {
        self.chosen = Some(sandbox.hello.master_port);
        self.mpi = sandbox.mpi.as_ref().map(|mpi| MpiHost { name: mpi.host.clone(), cpus: sandbox.cpus });
        self.begin(cx);
    }

    /// The sandbox is set up for other ranks: this port was chosen for them; 0: none.
    pub(super) const fn on_renewed(&mut self, port: u16) {
        if port > 0 {
            self.chosen = Some(port);
        }
    }

    /// Before the first rank, which may ask at once.
    fn begin(&mut self, cx: &mut Cx<'_>) {
        let (Some(rendezvous), Some(chosen)) = (&self.rendezvous, self.chosen) else { return };
        self.namespace = rendezvous.namespace;
        cx.act(NodeAction::Store(StoreAction::Open {
            here: rendezvous.node_index == 0,
            number: rendezvous.namespace,
            ranks: None,
        }));
        // The MPI machine asks that namespace for data of other hosts.
        if let (Some(host), Some(job)) = (&self.mpi, self.job) {
            let is_crowded = host.cpus > 0 && self.ranks > host.cpus;
            cx.act(NodeAction::ServeMpi(Box::new(Layout::new(job, rendezvous, &host.name, is_crowded))));
        }
        if rendezvous.agent_store && rendezvous.node_index == 0 {
            let port = rendezvous.port.unwrap_or(chosen);
            self.at = at(&rendezvous.addr, port);
            (self.unused_at, self.cpu) = (Some(cx.now + UNUSED), Some(Span::ZERO));
            let (addr, ranks) = (rendezvous.addr.clone(), self.ranks);
            cx.act(NodeAction::TcpStores(TcpStoreAction::Open(TcpStorePlan { addr, port, guard: self.guard, ranks })));
        }
    }

    /// A world besides the first one begins.
    pub(super) fn on_world(&self, cx: &mut Cx<'_>, start: &WorldStart) {
        let WorldStart { world, rendezvous, .. } = start;
        let here = rendezvous.node_index == 0;
        let ranks = rendezvous.ranks_here.unwrap_or(self.ranks);
        let is_held = here && rendezvous.agent_store;
        let store = rendezvous.port.filter(|_| is_held).map(|port| {
            let (addr, guard) = (rendezvous.addr.clone(), self.guard);
            TcpStorePlan { addr, port, guard, ranks }
        });
        let mpi = self.mpi.as_ref().zip(self.job).map(|(host, job)| {
            let is_crowded = host.cpus > 0 && self.ranks > host.cpus;
            Box::new(Layout::new(job, rendezvous, &host.name, is_crowded))
        });
        let plan = WorldPlan { world: *world, namespace: rendezvous.namespace, here, store, mpi };
        cx.act(NodeAction::OpenWorld(Box::new(plan)));
    }

    /// A round begins. Where it meets as the one before, or as all have met at their start, nothing changes.
    pub(super) fn on_round(&mut self, cx: &mut Cx<'_>, place: &RoundRendezvous, ranks: RankSet) {
        let Some(rendezvous) = &self.rendezvous else { return };
        if core::mem::replace(&mut self.namespace, place.namespace) != place.namespace {
            cx.act(NodeAction::Store(StoreAction::Open {
                here: place.here,
                number: place.namespace,
                ranks: Some(ranks),
            }));
        }
        if !rendezvous.agent_store {
            return;
        }
        let before = core::mem::take(&mut self.at);
        match place.here {
            true => {
                self.at = at(&place.addr, place.port);
                if self.at != before {
                    let (addr, port) = (place.addr.clone(), place.port);
                    cx.act(NodeAction::TcpStores(TcpStoreAction::Open(TcpStorePlan {
                        addr,
                        port,
                        guard: self.guard,
                        ranks: self.ranks,
                    })));
                }
            }
            false if before.is_empty() => {}
            false => cx.act(NodeAction::TcpStores(TcpStoreAction::Close)),
        }
        self.on_used();
    }

    pub(super) const fn on_used(&mut self) {
        (self.unused_at, self.cpu) = (None, None);
    }

    /// The processor time of the ranks is known.
    pub(super) fn on_measured(&mut self, cx: &mut Cx<'_>, cpu: Span) {
        let Some(before) = self.cpu.take() else { return };
        let idle = BUSY.nanos().saturating_add(BUSY_OF_RANK.nanos().saturating_mul(self.ranks.into()));
        if cpu >= before + Span::from_nanos(idle) {
            (self.unused_at, self.cpu) = (Some(cx.now + UNUSED), Some(cpu));
        } else {
            cx.act(NodeAction::ToRoot(ToRoot::News(NodeNews::Store(StoreNews::Unused { at: self.at.clone() }))));
        }
    }

    pub(super) fn on_refused(&mut self, cx: &mut Cx<'_>, from: OsBytes, count: u32, foreign: Option<OsBytes>) {
        if let Some(from) = foreign.filter(|_| !core::mem::replace(&mut self.foreign, true)) {
            cx.act(NodeAction::ToRoot(ToRoot::News(NodeNews::Store(StoreNews::Foreign { from }))));
        }
        let report = self.refused.add(cx.now, from, count);
        report_refused(cx, report);
    }

    /// A client has met a limit, which its wire cannot report to it.
    pub(super) fn on_limit(&mut self, cx: &mut Cx<'_>, met: Met, count: u32) {
        let report = self.limits.entry(met.limit).or_default().add(cx.now, met, count);
        report_limit(cx, report);
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.unused_at.is_some_and(|at| at <= cx.now) {
            self.unused_at = None;
            cx.act(NodeAction::MeasureRanks);
        }
        report_refused(cx, self.refused.on_timeout(cx.now));
        self.limits.values_mut().for_each(|tally| report_limit(cx, tally.on_timeout(cx.now)));
    }

    /// Reports everything that is known when the end has begun, or when remaining processes are swept, which may be the end of a job that
    /// was not ordered.
    pub(super) fn on_ending(&mut self, cx: &mut Cx<'_>) {
        self.on_used();
        report_refused(cx, self.refused.on_ending(cx.now));
        self.limits.values_mut().for_each(|tally| report_limit(cx, tally.on_ending(cx.now)));
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        let limits = self.limits.values().map(RateLimitedCounter::deadline);
        earliest_of([self.unused_at, self.refused.deadline()].into_iter().chain(limits))
    }
}

fn report_refused(cx: &mut Cx<'_>, report: Option<(OsBytes, u32)>) {
    if let Some((from, count)) = report {
        cx.act(NodeAction::ToRoot(ToRoot::News(NodeNews::Store(StoreNews::Refused { from, count }))));
    }
}

fn report_limit(cx: &mut Cx<'_>, report: Option<(Met, u32)>) {
    if let Some((met, count)) = report {
        cx.act(NodeAction::ToRoot(ToRoot::News(NodeNews::Store(StoreNews::Limit { met, count }))));
    }
}

fn at(addr: &OsBytes, port: u16) -> OsBytes {
    OsBytes::from(format!("{addr}:{port}"))
}
