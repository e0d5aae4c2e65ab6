//! The `TCPStore`s that this host holds for PyTorch, and the ports for them: of the first world, of other worlds, of the next round.

use super::next_port::NextPort;
use super::part::{Base, Part};
use super::socket_searches::Owner;
use super::tcpstore_listener::{Asker, Authorizer, News, SILENT, SilentConnections, TcpStoreListener, address, most};
use super::{rank_table, sandbox};
use crate::clock::now;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{NodeId, WorldId};
use rlaunch_base::machine::earliest_of;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Mono;
use rlaunch_core::node::{NodeEvent, TcpStoreAction, TcpStorePlan};
use rlaunch_keyvalue::listener::tcpstore::Peer;
use rlaunch_protocol::wire::peer_identity::{Answer, Comer, Question, Verdict};
use rlaunch_protocol::wire::to_root::ToRoot;
use rlaunch_sys::port::Port;
use std::collections::BTreeMap;
use std::io;
use std::task::Context;

/// The stores and ports.
#[derive(Debug, Default)]
pub(super) struct TcpStores {
    /// The store of the first world, where this agent holds it.
    listener: Option<TcpStoreListener>,
    /// The authorizer for this store, or for another host's.
    authorizer: Option<Authorizer>,
    /// Remaining connections of earlier listeners.
    silent: SilentConnections,
    next: NextPort,
    /// Reserved ports of other worlds.
    ports: BTreeMap<WorldId, Port>,
    /// Stores of other worlds that this agent holds.
    worlds: BTreeMap<WorldId, Served>,
}

/// A store, and the authorizer of its connections.
#[derive(Debug)]
struct Served {
    listener: TcpStoreListener,
    authorizer: Authorizer,
}

impl Part for TcpStores {
    type Action = TcpStoreAction;

    fn perform(&mut self, base: &mut Base, action: TcpStoreAction) {
        match action {
            TcpStoreAction::Open(plan) => self.open(base, &plan),
            TcpStoreAction::Close => self.close(base),
            TcpStoreAction::ReservePort { listen } => {
                let port = self.next.reserve(listen.as_ref());
                base.events.push_back(NodeEvent::PortReserved { port });
            }
            TcpStoreAction::UsePort(is_used) => {
                self.next.take(is_used).into_iter().for_each(|port| base.sandbox.hold(port))
            }
            TcpStoreAction::ReserveWorldPort { world } => {
                let chosen = sandbox::choose_port();
                let port =
                    chosen.inspect_err(|refusal| tracing::warn!(?refusal, "no port can be had for world {world}")).ok();
                let number = port.as_ref().map_or(0, |port| port.number);
                self.ports.extend(port.map(|port| (world, port)));
                base.events.push_back(NodeEvent::WorldReserved { world, port: number });
            }
        }
    }

    fn poll(&mut self, base: &mut Base, cx: &mut Context<'_>) {
        let mut news = News::default();
        for (owner, listener, authorizer) in self.all() {
            listener.serve(authorizer, cx);
            news.hosts.extend(listener.admit_known(authorizer.take_known(owner, base)));
            listener.report(base.node, &mut news);
        }
        // Connections may be asked about when this host holds no store.
        if let (None, Some(authorizer)) = (&self.listener, &mut self.authorizer) {
            let of_host = |(asker, peer)| match asker {
                Asker::Host(node, comer) => Some((node, comer, peer)),
                Asker::Queue(_) => None,
            };
            news.hosts.extend(authorizer.take_known(Owner::TcpStore, base).into_iter().filter_map(of_host));
        }
        let News { events, questions, hosts } = news;
        base.events.extend(events);
        questions.into_iter().for_each(|question| base.send(&ToRoot::FindOwners(question)));
        report_owners(base, hosts);
    }

    /// When the next connection is given up of which another host says nothing.
    fn deadline(&self) -> Option<Mono> {
        let worlds = self
            .worlds
            .values()
            .flat_map(|Served { listener, authorizer }| [listener.deadline(), authorizer.deadline()]);
        let first = [
            self.listener.as_ref().and_then(TcpStoreListener::deadline),
            self.authorizer.as_ref().and_then(Authorizer::deadline),
        ];
        earliest_of(worlds.chain(first))
    }
}

impl TcpStores {
    /// Holds the store there. Where that cannot be, nothing is started.
    fn open(&mut self, base: &mut Base, plan: &TcpStorePlan) {
        // An earlier round may have left one open.
        self.close(base);
        let TcpStorePlan { addr, port, guard, ranks } = plan;
        let opened = self.authorizer().map(|_| ()).and_then(|()| address(addr, *port)).and_then(|at| {
            // Connections that came early wait there.
            let early = self.next.listener(at);
            let listener = early.map_or_else(|| base.sandbox.listen(at), Ok)?;
            TcpStoreListener::open(listener, *guard, most(&base.origin, *ranks))
        });
        match opened {
            Ok(mut listener) => {
                listener.number_from(self.silent.came);
                self.listener = Some(listener);
            }
            Err(error) => {
                rank_table::withhold(base);
                unserved(base, plan, &error);
            }
        }
    }

    /// Holds it no more: its ranks are gone, and so is what they have stored.
    pub(super) fn close(&mut self, base: &Base) {
        if let Some(listener) = self.listener.take() {
            let (_, descriptors) = base.origin.nofile_limits();
            let most = usize::try_from(descriptors / SILENT).unwrap_or(usize::MAX);
            let (came, silent) = listener.end();
            self.silent.came = came;
            self.silent.keep(silent, most);
        }
    }

    /// Holds the store of another world, or leaves its port to the rank that does.
    pub(super) fn open_world(&mut self, base: &mut Base, world: WorldId, plan: Option<&TcpStorePlan>) {
        let Some(plan) = plan else {
            return self.ports.get_mut(&world).into_iter().for_each(Port::release);
        };
        match self.serve_world(base, world, plan) {
            Ok(served) => drop(self.worlds.insert(world, served)),
            Err(error) => unserved(base, plan, &error),
        }
    }

    fn serve_world(&mut self, base: &Base, world: WorldId, plan: &TcpStorePlan) -> io::Result<Served> {
        let TcpStorePlan { addr, port, guard, ranks } = plan;
        let at = address(addr, *port)?;
        let chosen = self.ports.get_mut(&world).filter(|chosen| chosen.number == *port);
        let listener = chosen.map_or_else(|| rlaunch_sys::port::listen(at), |chosen| chosen.listen(at))?;
        let mut listener = TcpStoreListener::open(listener, *guard, most(&base.origin, *ranks))?;
        // Answers of other hosts name a connection by its number: no two stores give the same.
        listener.number_from(u64::from(world.get()) << 40);
        Ok(Served { listener, authorizer: Authorizer::new(now())? })
    }

    /// Lets go of all that belongs to another world.
    pub(super) fn close_world(&mut self, world: WorldId) {
        self.ports.remove(&world);
        self.worlds.remove(&world);
    }

    /// Lets go of the ports and stores of all other worlds: the next job may be given the same.
    pub(super) fn close_worlds(&mut self) {
        self.ports.clear();
        self.worlds.clear();
    }

    /// Another host's agent asks whose connections of this host's are.
    pub(super) fn asked(&mut self, base: &mut Base, question: &Question) {
        let to = question.to.into();
        let Some(authorizer) = self
            .authorizer()
            .inspect_err(|error| tracing::warn!(%error, "the kernel cannot be asked whose a connection is"))
            .ok()
        else {
            let no_owners = question.comers.iter().map(|comer| (*comer, None));
            return report_owner(base, question.asker, no_owners.collect());
        };
        authorizer.expect(question.comers.len());
        for comer in &*question.comers {
            let asker = Asker::Host(question.asker, *comer);
            match authorizer.judge(to, comer.from.into()) {
                Ok(peer) => authorizer.notify(asker, peer),
                Err(inode) => authorizer.look_for(asker, inode),
            }
        }
    }

    /// Passes on the answer of another host.
    pub(super) fn answered(&mut self, answer: &Answer) {
        self.all().for_each(|(_, listener, authorizer)| listener.answered(answer, authorizer));
    }

    fn all(&mut self) -> impl Iterator<Item = (Owner, &mut TcpStoreListener, &mut Authorizer)> {
        let first = self.listener.as_mut().zip(self.authorizer.as_mut());
        let first = first.map(|(listener, authorizer)| (Owner::TcpStore, listener, authorizer));
        let others = self.worlds.iter_mut().map(|(world, served)| {
            let Served { listener, authorizer } = served;
            (Owner::World(*world), listener, authorizer)
        });
        first.into_iter().chain(others)
    }

    fn authorizer(&mut self) -> io::Result<&mut Authorizer> {
        match self.authorizer {
            Some(ref mut authorizer) => Ok(authorizer),
            None => Ok(self.authorizer.insert(Authorizer::new(now())?)),
        }
    }
}

fn unserved(base: &mut Base, TcpStorePlan { addr, port, .. }: &TcpStorePlan, error: &io::Error) {
    tracing::debug!(%error, "a TCPStore cannot be held at {addr}, port {port}");
    let at = OsBytes::from(format!("{addr}:{port}"));
    base.events.push_back(NodeEvent::Unserved { errno: error.raw_os_error().unwrap_or(0), at });
}

fn report_owner(base: &mut Base, asker: NodeId, verdicts: Vec<(Comer, Option<Peer>)>) {
    // Processes of two hosts may have the same number.
    let here = u64::from(base.node.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let verdict =
        |(comer, member): (Comer, Option<Peer>)| Verdict { comer, member: member.map(|p| p.0 ^ here), foreign: false };
    for verdicts in Capped::chunks(verdicts.into_iter().map(verdict)) {
        base.send(&ToRoot::OwnersFound(Answer { asker, verdicts }));
    }
}

fn report_owners(base: &mut Base, answers: Vec<(NodeId, Comer, Option<Peer>)>) {
    let mut asked: BTreeMap<NodeId, Vec<(Comer, Option<Peer>)>> = BTreeMap::new();
    answers.into_iter().for_each(|(node, comer, peer)| asked.entry(node).or_default().push((comer, peer)));
    asked.into_iter().for_each(|(node, verdicts)| report_owner(base, node, verdicts));
}
