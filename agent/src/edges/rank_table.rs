//! The ranks as descriptors: what was asked for, what runs, and what is still open of it.

use super::pump::Stream;
use super::{convert, logs, renew, watch};
use crate::clock::now;
use crate::edges::part::Base;
use rlaunch_base::errno::ETIMEDOUT;
use rlaunch_base::id::{ProcId, Std, StreamId, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::os_strings::OsStrings;
use rlaunch_base::time::{Mono, Span};
use rlaunch_core::node::{ErrorFile, ExecSpec, NodeEvent};
use rlaunch_protocol::spec::AppBase;
use rlaunch_protocol::stream::cut::{Cutter, Lines};
use rlaunch_protocol::stream::label::{Prefix, Who};
use rlaunch_protocol::wire::node_news::NodeNews;
use rlaunch_protocol::wire::to_node::WorldRank;
use rlaunch_sys::pidfd::Ended;
use rlaunch_sys::spawn::{Launched, Outcome, PreparedApp, PreparedExec, SpawnPort, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How long a rank waits for its directory.
const PATIENCE: Span = Span::from_secs(4);

/// A rank by its world, and its number there.
pub(super) type RankOf = (WorldId, rlaunch_base::id::Rank);

/// A rank that was asked for.
pub(super) struct Rank {
    /// Its number in its world.
    number: rlaunch_base::id::Rank,
    world: WorldId,
    pub(super) pid: i32,
    pub(super) pidfd: Arc<OwnedFd>,
    pub(super) streams: [Option<Stream>; 2],
    pub(super) reaped: bool,
    /// How it ended, if a sweep has reaped it.
    swept: Option<Ended>,
    pub(super) started: Mono,
    pub(super) base: Arc<AppBase>,
    /// Its TORCHELASTIC_ERROR_FILE.
    pub(super) error_file: ErrorFile,
}

impl Rank {
    /// Its number in its world.
    pub(super) const fn number(&self) -> rlaunch_base::id::Rank {
        self.number
    }

    /// Its world.
    pub(super) const fn world(&self) -> WorldId {
        self.world
    }

    /// Whether the process is this rank of this world.
    fn is(&self, (world, number): RankOf) -> bool {
        self.number == number && self.world == world
    }
}

#[derive(Default)]
pub(super) struct Ranks {
    /// Asked for, not known to run.
    asked: BTreeMap<ProcId, ExecSpec>,
    /// Ranks that the spawn thread does not know yet: their directories are being made, since this time.
    unmade: BTreeMap<ProcId, (Mono, PreparedExec)>,
    /// Whether the lack of one was reported.
    reported: bool,
    /// Ranks of which something may still come. Boxed, because the nodes of a map that grows at its end are half empty.
    live: BTreeMap<ProcId, Box<Rank>>,
    /// Programs laid out for exec, by the addresses of their base and of what their ranks share.
    apps: Vec<(Arc<AppBase>, Arc<OsStrings>, Arc<PreparedApp>)>,
    /// Streams that hold the start of a line, by the time at which it has waited long enough.
    held: BTreeSet<(Mono, StreamId)>,
}

impl Ranks {
    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.live.is_empty()
    }

    /// When a rank that waits for its directory is started without it.
    pub(super) fn overdue(&self) -> Option<Mono> {
        self.unmade.values().map(|(since, _)| *since + PATIENCE).min()
    }

    /// Whether the spawn thread has ranks to start.
    pub(super) fn launching(&self) -> bool {
        !self.asked.is_empty()
    }

    pub(super) fn get(&self, proc: ProcId) -> Option<&Rank> {
        self.live.get(&proc).map(|rank| &**rank).filter(|rank| !rank.reaped)
    }

    pub(super) fn stream_mut(&mut self, proc: ProcId, std: Std) -> Option<&mut Stream> {
        self.slot(proc, std)?.as_mut()
    }

    pub(super) fn slot(&mut self, proc: ProcId, std: Std) -> Option<&mut Option<Stream>> {
        let [out, err] = &mut self.live.get_mut(&proc)?.streams;
        match std {
            Std::In => None,
            Std::Out => Some(out),
            Std::Err => Some(err),
        }
    }

    /// The first stream that may send and whose start of a line waits, and until when it does.
    pub(super) fn held(&self, may_send: impl Fn(StreamId) -> bool) -> Option<(Mono, StreamId)> {
        self.held.iter().find(|(_, id)| may_send(*id)).copied()
    }

    /// A stream holds the start of a line until then, or none.
    pub(super) fn hold(&mut self, id: StreamId, until: Option<Mono>) {
        let Some(stream) = self.stream_mut(id.proc(), id.std()) else { return };
        let before = std::mem::replace(&mut stream.flush_at, until);
        if before != until {
            self.held.extend(until.map(|at| (at, id)));
            before.map(|at| self.held.remove(&(at, id)));
        }
    }

    /// Takes a stream that has ended, and whether its rank was reaped before.
    pub(super) fn end_stream(&mut self, id: StreamId) -> Option<(Stream, bool)> {
        self.hold(id, None);
        let stream = self.slot(id.proc(), id.std())?.take()?;
        let reaped = self.live.get(&id.proc()).is_some_and(|rank| rank.reaped);
        self.forget(id.proc());
        Some((stream, reaped))
    }

    /// Ranks that run or wait to be reaped, by process number.
    pub(super) fn by_number(&self) -> BTreeMap<i32, ProcId> {
        self.live.iter().filter(|(_, rank)| !rank.reaped).map(|(proc, rank)| (rank.pid, *proc)).collect()
    }

    /// Whether a process of that rank is being started.
    pub(super) fn is_being_started(&self, (world, number): RankOf) -> bool {
        let mut world_ranks = self.asked.values().map(|exec| exec.delta.world_rank);
        world_ranks.any(|of| of.world == world && of.rank == number)
    }

    /// The world of the rank that one of these processes is the first process of.
    pub(super) fn world_of(&self, processes: &[i32]) -> Option<WorldId> {
        let mut live = self.live.values().filter(|rank| !rank.reaped);
        live.find(|rank| processes.contains(&rank.pid)).map(|rank| rank.world)
    }

    /// Whether no other rank of a world runs here, or is being started.
    pub(super) fn is_last_of_world(&self, world: WorldId, proc: ProcId) -> bool {
        let mut others = self.live.iter().filter(|(other, rank)| **other != proc && !rank.reaped);
        !others.any(|(_, rank)| rank.world == world)
            && !self.asked.values().any(|exec| exec.delta.world_rank.world == world)
    }

    /// Returns the processes of that rank.
    pub(super) fn processes_of(&self, rank_of: RankOf) -> Vec<i32> {
        self.live.values().filter(|rank| rank.is(rank_of) && !rank.reaped).map(|rank| rank.pid).collect()
    }

    /// The first process of a rank of the first world.
    pub(super) fn first_process(&self) -> Option<i32> {
        let first = self.live.values().find(|rank| rank.world == WorldId::new(0) && !rank.reaped);
        first.map(|rank| rank.pid)
    }

    /// Returns the processes of that rank, as the machine knows them.
    pub(super) fn procs_of(&self, rank_of: RankOf) -> Vec<ProcId> {
        self.live.iter().filter(|(_, rank)| rank.is(rank_of) && !rank.reaped).map(|(proc, _)| *proc).collect()
    }

    /// Puts words into the stderr of a rank, as if it had written them. False: it has no room for all of them, or is closed.
    pub(super) fn write_stderr(&self, rank_of: RankOf, words: &[u8]) -> bool {
        let of = self.live.values().rev().find(|rank| rank.is(rank_of) && !rank.reaped);
        let Some([_, Some(stream)]) = of.map(|rank| &rank.streams) else { return false };
        match rlaunch_sys::fd::write_to_pipe(&stream.fd, words) {
            Ok(written) => written == words.len(),
            Err(error) => {
                tracing::debug!(%error, "words for the stderr of rank {} are lost", rank_of.1);
                false
            }
        }
    }

    /// Returns the rank of a process that was not reaped.
    pub(super) fn rank_of(&self, proc: ProcId) -> Option<RankOf> {
        self.get(proc).map(|rank| (rank.world, rank.number))
    }

    /// A rank is about to be reaped by a sweep, maybe before its end was read.
    pub(super) fn keep_end(&mut self, proc: ProcId) {
        if let Some(rank) = self.live.get_mut(&proc) {
            rank.swept = rlaunch_sys::pidfd::ended(&rank.pidfd, false).ok().flatten();
        }
    }

    /// Reaps a rank for good; returns the error file that it may have left, unless it is kept.
    pub(super) fn reap(&mut self, proc: ProcId) -> Option<OsBytes> {
        let rank = self.live.get_mut(&proc).filter(|rank| !rank.reaped)?;
        rank.reaped = true;
        // ECHILD: a sweep has reaped it already.
        let _reaped = rlaunch_sys::pidfd::ended(&rank.pidfd, true);
        let error_file = rank.error_file.directory().is_none().then(|| rank.error_file.path());
        self.forget(proc);
        error_file
    }

    /// Lets go of a rank of which nothing can come any more.
    fn forget(&mut self, proc: ProcId) {
        let is_over = |rank: &Rank| rank.reaped && rank.streams.iter().all(Option::is_none);
        if self.live.get(&proc).is_some_and(|rank| is_over(rank)) {
            self.live.remove(&proc);
        }
    }

    /// Other ranks follow, whose environment is another.
    pub(super) fn forget_programs(&mut self) {
        self.apps.clear();
    }

    /// A world has been closed: programs that no rank can have any more are dropped.
    pub(super) fn forget_unused_programs(&mut self) {
        self.apps.retain(|(base, ..)| Arc::strong_count(base) > 1);
    }

    fn prepared(&mut self, exec: &ExecSpec) -> Arc<PreparedApp> {
        let base = &exec.base;
        let lay_out = || {
            let env = base.env.iter().chain(&*exec.shared);
            Arc::new(PreparedApp::new(&base.argv, env, base.wdir.as_deref()))
        };
        if base.filled {
            // Its arguments are this rank's own.
            return lay_out();
        }
        if let Some(known) = self.apps.iter().position(|(of, ..)| Arc::ptr_eq(of, base)) {
            match self.apps.get(known) {
                Some((_, shared, app)) if Arc::ptr_eq(shared, &exec.shared) => return Arc::clone(app),
                // The shared values of the ranks have changed: the next ones have the new ones.
                Some(_) | None => drop(self.apps.swap_remove(known)),
            }
        }
        let app = lay_out();
        self.apps.push((Arc::clone(base), Arc::clone(&exec.shared), Arc::clone(&app)));
        app
    }
}

impl Rank {
    /// How it ended; `None` while it runs.
    ///
    /// # Errors
    /// Whether it was reaped and its status was not read.
    pub(super) fn ended(&self) -> io::Result<Option<Ended>> {
        // A sweep may have been faster.
        rlaunch_sys::pidfd::ended(&self.pidfd, false).or_else(|error| self.swept.map(Some).ok_or(error))
    }
}

/// Asks the spawn thread for a rank.
pub(super) fn spawn(base: &mut Base, proc: ProcId, mut exec: ExecSpec) {
    // The TCPStore of an agent listens by now. Else a rank binds the port.
    base.sandbox.release_port();
    let app = base.ranks.prepared(&exec);
    let prepared = PreparedExec {
        app,
        vars: exec.vars.iter().collect(),
        stdin: exec.readers > 0,
        cpus: exec.cpus.as_ref().map(|cpus| cpus.words().into()).unwrap_or_default(),
        memory: exec.memory,
        has_session: exec.has_session,
        needed: !exec.is_respawn,
    };
    base.stdin.expect(exec.readers, exec.is_respawn);
    let waits = logs::prepare(base, proc, &mut exec);
    base.ranks.asked.insert(proc, exec);
    base.ranks.unmade.insert(proc, (now(), prepared));
    if !waits {
        go(base, proc);
    }
}

/// Nothing more is started; those that wait for a directory are not, either.
pub(super) fn withhold(base: &mut Base) {
    base.sandbox.spawn_port().into_iter().for_each(SpawnPort::withhold);
    let waiting: Vec<ProcId> = base.ranks.unmade.keys().copied().collect();
    waiting.into_iter().for_each(|proc| go(base, proc));
}

/// A file system that does not answer keeps no rank from its work.
pub(super) fn go_overdue(base: &mut Base) {
    if base.ranks.overdue().is_none_or(|due| due > now()) {
        return;
    }
    let is_due = |since: Mono| since + PATIENCE <= now();
    let waiting = base.ranks.unmade.iter().filter(|(_, (since, _))| is_due(*since));
    let waiting: Vec<ProcId> = waiting.map(|(proc, _)| *proc).collect();
    for proc in waiting {
        let path = base.ranks.asked.get(&proc).and_then(|exec| exec.error_file.directory());
        if let Some(path) = path.filter(|_| !std::mem::replace(&mut base.ranks.reported, true)) {
            base.events.push_back(NodeEvent::News(NodeNews::FileFailed { errno: ETIMEDOUT, path }));
        }
        go(base, proc);
    }
}

/// All that a rank needs is there.
pub(super) fn go(base: &mut Base, proc: ProcId) {
    let Some((_, prepared)) = base.ranks.unmade.remove(&proc) else { return };
    let Some(port) = base.sandbox.spawn_port() else { return };
    if port.submit(proc.get(), prepared).is_err() {
        let error = convert::resource(rlaunch_protocol::wire::to_root::SpawnStep::Clone);
        base.ranks.asked.remove(&proc);
        base.events.push_back(NodeEvent::SpawnFailed { proc, error });
    }
}

/// Takes in what the spawn thread has done.
pub(super) fn drain_outcomes(base: &mut Base) {
    let outcomes: Vec<Outcome> = base.sandbox.spawn_port().map(|port| port.outcomes().collect()).unwrap_or_default();
    let withheld = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Withheld { .. })).count();
    if withheld > 0 {
        tracing::debug!("{withheld} that were asked for are not started");
    }
    for outcome in outcomes {
        match outcome {
            Outcome::Launched(launched) => started(base, *launched),
            Outcome::Failed { proc, failure } => {
                let proc = ProcId::new(proc);
                let exec = base.ranks.asked.remove(&proc);
                tracing::debug!("proc {proc} was not started: {failure:?}");
                // ENOMEM also means a PID namespace whose init is gone: clone(2). Its descriptors were closed before.
                if failure.step == Step::Clone {
                    watch::look_at_init(base);
                }
                let error = convert::failure(*failure, exec.as_ref().map(|exec| &*exec.base));
                base.events.push_back(NodeEvent::SpawnFailed { proc, error });
            }
            Outcome::Withheld { proc } => {
                let proc = ProcId::new(proc);
                base.ranks.asked.remove(&proc);
                base.events.push_back(NodeEvent::Withheld { proc });
            }
            // A process of another generation. For the first generation, `sandbox` takes the answer before there is a rank.
            Outcome::Namespace(init) => renew::on_namespace(base, *init),
        }
    }
}

fn started(base: &mut Base, launched: Launched) {
    let proc = ProcId::new(launched.proc);
    let Some(exec) = base.ranks.asked.remove(&proc) else { return };
    let Launched { pid: number, pidfd, stdout, stderr, stdin, at, .. } = launched;
    let pid = number.cast_unsigned();
    let [out, err] = exec.ways;
    let streams = [(Std::Out, stdout, out), (Std::Err, stderr, err)].map(|(std, fd, way)| {
        let mut stream = Stream::new(fd, cutter(&exec, std, pid, base.sandbox.host()), way);
        if !way.shown {
            logs::adopt(base, StreamId::of(proc, std), &mut stream);
        }
        Some(stream)
    });
    if let Some(stdin) = stdin {
        base.stdin.open(number, stdin, now());
    }
    let started = Mono::from_nanos(at);
    tracing::debug!("proc {proc} runs: pid {number}");
    let ExecSpec { base: program, error_file, delta, .. } = exec;
    let WorldRank { world, rank: number_in_world, .. } = delta.world_rank;
    let rank = Rank {
        number: number_in_world,
        world,
        pid: number,
        pidfd: Arc::new(pidfd),
        streams,
        reaped: false,
        swept: None,
        started,
        base: program,
        error_file,
    };
    base.ranks.live.insert(proc, Box::new(rank));
    base.memory.begin();
    base.events.push_back(NodeEvent::Spawned { proc, pid, at: started });
}

fn cutter(exec: &ExecSpec, std: Std, pid: u32, host: &[u8]) -> Cutter {
    let Some(format) = &exec.label else { return Cutter::Raw };
    let who = Who {
        rank: exec.delta.world_rank.rank,
        group: &exec.base.role.world.group,
        local_rank: exec.delta.world_rank.local_rank,
        app: exec.delta.app,
        host: Some(host),
        pid: Some(pid),
        std,
    };
    // The launcher has parsed the format before; a label that is too long on this host falls back to the rank.
    let label = Prefix::parse(format).and_then(|prefix| prefix.render(&who));
    let label = label.or_else(|_| Prefix::parse(Prefix::DEFAULT.as_bytes()).and_then(|prefix| prefix.render(&who)));
    label.map_or(Cutter::Raw, |label| Cutter::Lines(Box::new(Lines::new(label))))
}
