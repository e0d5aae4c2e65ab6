//! Hosts: each drives its node machine, and answers its actions after a while.

use super::client::{Client, Place};
use super::{Ev, World};
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{NodeId, ProcId, SessionId, Std};
use rlaunch_base::machine::Machine as _;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::Mono;
use rlaunch_core::events::CloseReason;
use rlaunch_core::job::{GuardianEnd, JobEvent};
use rlaunch_core::node::{
    DeviceAction, ExamineAction, ExecSpec, LeaseAction, Node, NodeAction, NodeEvent, ProbeAction, Sandbox,
    SessionAction, StoreAction, TcpStoreAction, TcpStorePlan,
};
use rlaunch_protocol::settings::Tier;
use rlaunch_protocol::wire::codec;
use rlaunch_protocol::wire::frozen::client::client_round::AgentMessage;
use rlaunch_protocol::wire::to_node::{Delta, PortPlan, Start};
use rlaunch_protocol::wire::to_root::{Facts, Found, Hello, Reached, SpawnError, SpawnStep, ToRoot};
use std::net::{IpAddr, Ipv4Addr};

/// A host.
#[derive(Default)]
pub(super) struct Host {
    pub(super) node: Node,
    pub(super) local: bool,
    /// Its agent is there.
    pub(super) begun: bool,
    /// Whether it is gone, with all others.
    pub(super) gone: bool,
    /// Nothing comes from it, or gets there.
    pub(super) cut: bool,
    /// Either side knows that the edge has ended.
    pub(super) closed: bool,
    /// The node was notified of that.
    pub(super) is_notified: bool,
    pub(super) lease: Option<Mono>,
    /// When the last message arrives: later ones come later.
    pub(super) up: u64,
    pub(super) down: u64,
    pub(super) ports: u16,
    /// Its spawn thread starts nothing more.
    pub(super) withheld: bool,
}

impl World {
    /// An event for the agent of a process.
    pub(super) fn for_node(&mut self, proc: ProcId, event: NodeEvent) {
        if let Some(host) = self.procs.get(&proc).map(|client| client.host) {
            self.soon(host, event);
        }
    }

    /// Lets it happen there a little later, but in order.
    pub(super) fn soon(&mut self, host: usize, event: NodeEvent) {
        let delay = self.rng.micros(0, self.plan.local);
        let at = (self.now + delay).max(self.queued.get(&host).copied().unwrap_or(0));
        self.queued.insert(host, at);
        self.at(at, Ev::Node(host, Box::new(event)));
    }

    /// Its streams have no holder any more, or its agent has let go of them.
    pub(super) fn streams_end(&mut self, proc: ProcId) {
        let Some(client) = self.procs.get_mut(&proc) else { return };
        if std::mem::replace(&mut client.is_silent, true) {
            return;
        }
        for which in [Std::Out, Std::Err] {
            self.for_node(proc, NodeEvent::StreamEnd { proc, which, total: 0 });
        }
    }

    pub(super) fn node(&mut self, host: usize, event: NodeEvent) {
        if self.hosts[host].gone || !self.hosts[host].begun {
            return;
        }
        self.note("> node", || format!("{host}: {event:?}").chars().take(300).collect());
        let now = self.mono();
        self.hosts[host].node.handle(now, event);
        self.drain_node(host);
    }

    pub(super) fn node_timeout(&mut self, host: usize) {
        let now = self.mono();
        self.hosts[host].node.handle_timeout(now);
        self.drain_node(host);
    }

    fn drain_node(&mut self, host: usize) {
        let records = self.hosts[host].node.check();
        self.check(records.is_ok(), || format!("the node's records do not agree: {records:?}"));
        while let Some(action) = self.hosts[host].node.poll_action() {
            self.perform(host, action);
            if self.hosts[host].gone {
                return;
            }
        }
    }

    fn perform(&mut self, host: usize, action: NodeAction) {
        match action {
            NodeAction::SetUpSandbox(start) => self.set_up_sandbox(host, &start),
            NodeAction::Check { app, .. } => self.soon(host, NodeEvent::Checked { app, error: None }),
            NodeAction::Probes(ProbeAction::Call(place)) => {
                let by = IpAddr::V4(Ipv4Addr::new(10, 0, 0, u8::try_from(host).unwrap_or(0)));
                self.soon(host, NodeEvent::Probed { number: place.number, found: Ok(by) });
            }
            NodeAction::Beat(beat) => self.up(host, JobEvent::Beat { node: id(host), beat }),
            NodeAction::Lease(LeaseAction::Until(until)) => {
                self.hosts[host].lease = Some(until);
                self.at(until.nanos(), Ev::LeaseEnds(host));
            }
            NodeAction::Renew { .. } => {
                self.hosts[host].withheld = false;
                let port = self.port(host);
                self.soon(host, NodeEvent::Renewed { port });
            }
            NodeAction::TcpStores(TcpStoreAction::ReservePort { .. }) => {
                let port = self.port(host);
                self.soon(host, NodeEvent::PortReserved { port });
            }
            NodeAction::Sessions(SessionAction::Send { session, message }) => self.sends(session, message),
            NodeAction::Spawn { proc, exec } => self.spawns(host, proc, &exec),
            NodeAction::Signal { proc, sig } => self.signalled(proc, sig),
            NodeAction::Examine(ExamineAction { proc, .. }) => self.soon(host, examined(proc)),
            NodeAction::NameLeft => {}
            NodeAction::Sweep => self.sweeps(host),
            NodeAction::ToRoot(msg) => {
                let msg: Option<ToRoot> = codec::decode(&codec::encode(&msg)).ok();
                self.check_hang(msg.as_ref());
                match msg {
                    Some(msg) => self.up(host, JobEvent::Message { node: id(host), msg }),
                    None => self.fail("a message cannot be read".to_owned()),
                }
            }
            NodeAction::Finish(_) => self.vanishes(host, CloseReason::Eof),
            NodeAction::Sessions(SessionAction::End { session }) => self.soon(host, NodeEvent::SessionLost { session }),
            NodeAction::Devices(DeviceAction::AwaitRelease { proc, .. }) => self.soon(host, released(proc)),
            NodeAction::Withhold => self.hosts[host].withheld = true,
            NodeAction::CloseStreams { proc } => self.streams_end(proc),
            NodeAction::Probes(ProbeAction::End)
            | NodeAction::Devices(DeviceAction::Free { .. })
            | NodeAction::WatchPreemption { .. }
            | NodeAction::Lease(LeaseAction::Spare(_))
            | NodeAction::Lease(LeaseAction::HoldAfterCut(_))
            | NodeAction::Devices(DeviceAction::Examine { .. })
            | NodeAction::TcpStores(TcpStoreAction::UsePort(_))
            | NodeAction::Store(StoreAction::OrderDone { .. })
            | NodeAction::TcpStores(TcpStoreAction::ReserveWorldPort { .. })
            | NodeAction::OpenWorld(_)
            | NodeAction::CloseWorld { .. }
            | NodeAction::KillSessions { .. }
            | NodeAction::Mark { .. }
            | NodeAction::TcpStores(TcpStoreAction::Close)
            | NodeAction::MeasureRanks
            | NodeAction::ServeMpi(_)
            | NodeAction::Store(StoreAction::Open { .. })
            | NodeAction::TcpStores(TcpStoreAction::Open(TcpStorePlan { .. }))
            | NodeAction::Reap { .. } => {}
        }
    }

    fn sweeps(&mut self, host: usize) {
        self.kill_all(host);
        let left = self.living(host).len();
        let count = u32::try_from(left).unwrap_or(u32::MAX);
        self.soon(host, NodeEvent::Left { count, named: vec![] });
    }

    fn sends(&mut self, session: SessionId, message: Box<AgentMessage>) {
        let owner = self.procs.iter().find(|(_, client)| client.session == Some(session)).map(|(proc, _)| *proc);
        if let Some(proc) = owner {
            let delay = self.rng.micros(0, self.plan.local);
            let at = (self.now + delay).max(self.messages_until.get(&proc).copied().unwrap_or(0));
            self.messages_until.insert(proc, at);
            self.at(at, Ev::Message(proc, message));
        }
    }

    fn port(&mut self, host: usize) -> u16 {
        self.hosts[host].ports += 1;
        20_000 + 1000 * u16::try_from(host).unwrap_or(0) + self.hosts[host].ports
    }

    fn set_up_sandbox(&mut self, host: usize, start: &Start) {
        let address = format!("10.0.0.{host}");
        let hello = Hello {
            usual: true,
            master_port: if start.port == PortPlan::Choose { self.port(host) } else { 0 },
            reached: start.find.is_some().then(|| Reached {
                from: "10.0.0.99".into(),
                at: Capped::chunks([address.as_str().into()]).pop().unwrap_or_default(),
                probe_ports: Capped::chunks([1]).pop().unwrap_or_default(),
                has: Default::default(),
            }),
            ..Hello::of(Tier::T3)
        };
        let sandbox = Sandbox { devices: true, socket: "/s".into(), ..Sandbox::of(hello) };
        self.soon(host, NodeEvent::SandboxReady(sandbox));
    }

    fn spawns(&mut self, host: usize, proc: ProcId, exec: &ExecSpec) {
        let Delta { rank, local_rank, .. } = exec.delta;
        if self.hosts[host].withheld {
            return self.soon(host, NodeEvent::Withheld { proc });
        }
        let generation = self.generation;
        self.check_room(host, rank, local_rank);
        let of_rank = |client: &Client| client.rank == rank && client.generation == generation;
        let before: Vec<bool> = self.procs.values().filter(|one| of_rank(one)).map(|one| self.runs(one)).collect();
        let again = !before.is_empty();
        self.check(!before.contains(&true), || format!("rank {rank} is started while a process of it runs"));
        let world = self.plan.spec.world_size().max(1);
        self.check(proc.get() % world == rank.get(), || format!("{proc} is no number for rank {rank}"));
        self.check(exec.is_respawn || !again, || {
            format!("{proc} follows no process, and a process of rank {rank} has run")
        });
        if exec.is_respawn && self.rng.chance(self.plan.unstartable) {
            let error = SpawnError { step: SpawnStep::Exec, errno: 2, path: "rank".into(), found: Found::Nothing };
            return self.soon(host, NodeEvent::SpawnFailed { proc, error });
        }
        let (session, place) = (None, Place::Before);
        let client = Client {
            rank,
            host,
            local_rank,
            generation,
            session,
            place,
            since: self.now,
            round: None,
            turn: 0,
            then: None,
            is_to_yield: false,
            has_not_entered: false,
            took_part: false,
            calls: 0,
            hooks: false,
            is_stuck: false,
            is_silent: false,
            ended: None,
        };
        let twice = self.procs.insert(proc, client).is_some();
        self.check(!twice, || format!("{proc} is started twice"));
        self.check_generation(generation);
        let at = self.mono();
        self.soon(host, NodeEvent::Spawned { proc, pid: 100 + proc.get(), at });
        self.starts(proc, again);
    }

    fn living(&self, host: usize) -> Vec<ProcId> {
        let here = |client: &Client| client.host == host && client.lives();
        self.procs.iter().filter(|(_, client)| here(client)).map(|(proc, _)| *proc).collect()
    }

    /// Whatever runs there ends, if the kernel can end it.
    fn kill_all(&mut self, host: usize) {
        self.living(host).into_iter().for_each(|proc| self.is_killed(proc));
    }

    /// Agent and guardian are gone, and with them all else.
    fn vanishes(&mut self, host: usize, why: CloseReason) {
        self.kill_all(host);
        self.up(host, JobEvent::EdgeClosed { node: id(host), why });
        self.hosts[host].gone = true;
    }

    /// The guardian checks whether the lease has expired.
    pub(super) fn lease_ends(&mut self, host: usize) {
        let over = self.hosts[host].lease.is_some_and(|until| until <= self.mono());
        if over && !self.hosts[host].gone {
            self.note("guardian", || format!("{host}: the lease has expired"));
            self.kill_all(host);
            let end = GuardianEnd::Expired { left: 0, named: vec![] };
            self.up(host, JobEvent::GuardianEnded { node: id(host), end });
            self.vanishes(host, CloseReason::Eof);
        }
    }

    /// Its power fails.
    pub(super) fn power_fails(&mut self, host: usize) {
        self.hosts[host].cut = true;
        let killed = Status::Signaled { sig: Signal::KILL, core: false };
        self.living(host).into_iter().for_each(|proc| self.dies(proc, killed));
        self.hosts[host].gone = true;
    }

    /// To the launcher, in order.
    pub(super) fn up(&mut self, host: usize, event: JobEvent) {
        let one = &self.hosts[host];
        if one.cut || one.closed || one.gone {
            return;
        }
        let (up, low) = (one.up, if one.local { 1 } else { self.plan.wire / 4 });
        let high = if one.local { 20 } else { self.plan.wire };
        let at = (self.now + self.rng.micros(low, high)).max(up);
        self.hosts[host].up = at;
        self.at(at, Ev::ToJob(host, Box::new(event)));
    }
}

pub(super) fn id(host: usize) -> NodeId {
    NodeId::new(u32::try_from(host).unwrap_or(u32::MAX))
}

fn examined(proc: ProcId) -> NodeEvent {
    NodeEvent::Examined { proc, facts: Facts::default() }
}

fn released(proc: ProcId) -> NodeEvent {
    NodeEvent::DevicesReleased { proc, taken: OsBytes::default() }
}
