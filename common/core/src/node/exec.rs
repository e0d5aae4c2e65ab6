//! From a rank's numbers to everything needed to start it.

use super::rounds::RoundStart;
use super::{ErrorFile, ExecSpec, Sandbox, gpu_check};
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use rlaunch_base::address;
use rlaunch_base::cpu_set::CpuSet;
use rlaunch_base::id::{LocalRank, Round, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::os_strings::OsStrings;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::template::filled;
use rlaunch_mpi::is_this_host;
use rlaunch_plan::allocation::task_ids;
use rlaunch_plan::gpus::{Share, SharedOut, of_rank};
use rlaunch_plan::tpu::TpuHost;
use rlaunch_protocol::env::{self, Host, MpiHost, OfRound, RankVariables, SlurmStep};
use rlaunch_protocol::framework::MpiService;
use rlaunch_protocol::logs::{Logs, Way};
use rlaunch_protocol::settings::StdinPlan;
use rlaunch_protocol::spec::AppBase;
use rlaunch_protocol::wire::frozen::client::client_round::Begin;
use rlaunch_protocol::wire::round::RoundMember;
use rlaunch_protocol::wire::to_node::{Delta, Rendezvous, Start, WorldRank};

/// A program that is complete, and the variables that its ranks on this host share once they are known.
pub(super) struct Program {
    base: Arc<AppBase>,
    shared: Option<(u32, Arc<OsStrings>)>,
    error_stem: Option<Arc<OsBytes>>,
    /// The GPUs that its ranks share, where each has its own.
    gpus: Option<Gpus>,
}

struct Gpus {
    names: &'static [&'static str],
    seen: Vec<OsBytes>,
    each: u32,
}

impl Program {
    pub(super) fn new(base: Arc<AppBase>) -> Self {
        Self { base, shared: None, error_stem: None, gpus: None }
    }

    /// Its ranks are started again: what they share is not what those before have shared.
    pub(super) fn renew(&mut self) {
        (self.shared, self.error_stem) = (None, None);
    }

    /// Whether there are GPUs for a rank: one that has come from another host is more than those that they were counted for.
    pub(super) fn has_gpus(&self, local_rank: LocalRank) -> bool {
        let has = |Gpus { seen, each, .. }: &Gpus| {
            (each.saturating_mul(local_rank.get().saturating_add(1))) as usize <= seen.len()
        };
        self.gpus.as_ref().is_none_or(has)
    }

    /// Made when the rank's turn has come and not before: the variables of a thousand ranks are memory. Where all meet stands
    /// with the address of this host by which it has reached that.
    pub(super) fn exec(
        &mut self,
        start: &Start,
        met: Met<'_>,
        sandbox: &Sandbox,
        delta: Delta,
        cpus: Option<CpuSet>,
    ) -> Box<ExecSpec> {
        if self.shared.is_none() {
            self.share_out(start, sandbox);
            self.drop_foreign_slices(met, sandbox);
        }
        let Met { rendezvous, local_size, ranks, .. } = met;
        let pinned = &self.base.pinned;
        let threads = cpus.as_ref().map(CpuSet::len);
        let make = || {
            let host = host(start, met, sandbox, delta, &self.base);
            // Each bound rank has its own number of threads.
            Arc::new(env::common(&Host { cpus: host.cpus.filter(|_| threads.is_none()), ..host }, pinned))
        };
        // Where ranks of another host have come they are more than before.
        let known = self.shared.take().filter(|(size, _)| *size == local_size);
        let shared = Arc::clone(&self.shared.insert(known.unwrap_or_else(|| (local_size, make()))).1);
        let logs = self.base.logs.as_ref();
        let kept = logs.is_some_and(|logs| logs.dir.is_some());
        let stem = self.error_stem.get_or_insert_with(|| {
            let kept = logs.and_then(|logs| logs.stem(rendezvous.node_index, rendezvous.restart));
            let kept = kept.map(|stem| in_group(stem, &self.base.role.world.group));
            Arc::new(kept.unwrap_or_else(|| error_stem(start, sandbox)))
        });
        let world_rank = delta.world_rank;
        let error_file = match kept {
            true => ErrorFile::kept(Arc::clone(stem), world_rank.local_rank),
            false => ErrorFile::new(Arc::clone(stem), delta.proc),
        };
        let path = error_file.path();
        let ways = logs.map_or([Way::SHOWN; 2], |logs| logs.ways(world_rank.local_rank));
        let vars = self.variables(met, sandbox, &delta, &path, threads);
        Box::new(ExecSpec {
            base: self.base_of(world_rank.local_rank),
            shared,
            vars,
            delta,
            label: start.settings.output.label.clone(),
            error_file,
            ways,
            node: rendezvous.node_index,
            readers: readers(delta.stdin, ranks),
            memory: None,
            cpus,
            has_session: !yields_to_others(start, met, sandbox, world_rank),
            is_respawn: false,
        })
    }

    /// The variables of a rank.
    fn variables(
        &self,
        met: Met<'_>,
        sandbox: &Sandbox,
        delta: &Delta,
        error_file: &[u8],
        threads: Option<u32>,
    ) -> OsStrings {
        let Delta { local_rank, app_rank, world_rank, .. } = *delta;
        let own = self.gpus_of(local_rank);
        let gpus = own.as_ref().map(|(names, list)| (*names, list.as_slice()));
        let slurm = met.rendezvous.slurm.is_some();
        let chips = tpu(met, sandbox).map(|host| host.rank(local_rank));
        let variables = RankVariables {
            rank: world_rank.rank,
            healthy: world_rank.rank,
            initial: world_rank.rank,
            local_rank: world_rank.local_rank,
            app_rank,
            tied: self.base.role.world.tied,
            error_file,
            gpus,
            slurm,
            threads,
            mpi: sandbox.mpi.is_some(),
            tpu: chips.as_ref(),
        };
        let mut vars = OsStrings::default();
        env::of_rank(&variables, &self.base.pinned, &mut vars);
        vars
    }

    /// The GPUs of a rank, and the variables that name them.
    fn gpus_of(&self, local_rank: LocalRank) -> Option<(&'static [&'static str], OsBytes)> {
        self.gpus.as_ref().map(|gpus| (gpus.names, of_rank(&gpus.seen, gpus.each, local_rank)))
    }

    /// The values of all ranks. Arguments that ask for it have the number of this one.
    fn base_of(&self, local_rank: LocalRank) -> Arc<AppBase> {
        match self.base.filled {
            true => Arc::new(AppBase { argv: filled(&self.base.argv, local_rank), ..AppBase::clone(&self.base) }),
            false => Arc::clone(&self.base),
        }
    }

    /// Whether rounds are marked in the output of its ranks: the output has labels, or goes into files.
    pub(super) fn is_marked(&self, start: &Start) -> bool {
        start.settings.output.label.as_ref().is_some_and(|label| !label.is_empty())
            || self.base.logs.as_ref().is_some_and(Logs::has_files)
    }

    /// The message about a new round for each of these ranks.
    pub(super) fn begins(
        &self,
        start: &Start,
        met: Met<'_>,
        sandbox: &Sandbox,
        round_start: &RoundStart,
    ) -> Vec<Option<Begin>> {
        let RoundStart { round, place, numbers, who, marked: _ } = round_start;
        let Some(&(_, first, _)) = who.first() else { return Vec::new() };
        let step = place.slurm.as_ref().map(|layout| (layout, task_ids(in_order(numbers))));
        let host = Host {
            world_size: place.active_world_size,
            app_size: place.active_world_size,
            local_size: u32::try_from(numbers.len()).unwrap_or(u32::MAX),
            nodes: place.nodes,
            node_index: place.node_index.unwrap_or_default(),
            master_addr: &place.addr,
            master_port: place.port,
            healthy: place.world_size,
            round: round.get(),
            slurm: step.as_ref().map(|(layout, task_ids)| SlurmStep::of(layout, task_ids)),
            ..host(start, met, sandbox, first, &self.base)
        };
        let mut env = OfRound::new(&host, &self.base.pinned);
        let mut begin = |(_, delta, member): &(_, Delta, RoundMember)| {
            let Delta { rank: initial, local_rank, .. } = *delta;
            let (rank, active) = (member.rank?, member.active);
            let of = RankVariables {
                rank: active.unwrap_or(rank),
                healthy: rank,
                initial,
                local_rank,
                app_rank: active.unwrap_or(rank).get(),
                tied: 0,
                error_file: b"",
                gpus: None,
                slurm: step.is_some(),
                threads: None,
                mpi: false,
                tpu: None,
            };
            Some(Begin {
                // As the program counts.
                round: Round::new(round.get().saturating_sub(place.first.get())),
                rank,
                world_size: place.world_size,
                active_rank: active,
                active_world_size: place.active_world_size,
                initial_rank: initial,
                initial_world_size: place.initial_world_size,
                fault: place.fault.clone(),
                env: env.of(&of, active.is_some()),
            })
        };
        who.iter().map(&mut begin).collect()
    }

    /// Removes the variables of TPU slices from the environment: they are left over from another job.
    fn drop_foreign_slices(&mut self, met: Met<'_>, sandbox: &Sandbox) {
        if tpu(met, sandbox).is_some() {
            let env = env::without_tpu(&self.base.env, &self.base.pinned);
            self.base = Arc::new(AppBase { env, ..AppBase::clone(&self.base) });
        }
    }

    /// The caller's list becomes that of all ranks, of which each has its part.
    fn share_out(&mut self, start: &Start, sandbox: &Sandbox) {
        let Share::Each(each) = start.settings.gpus else { return };
        if self.gpus.is_some() {
            // Its list was taken out of its environment then; another generation has the same.
            return;
        }
        let names = sandbox.gpus.names();
        let seen = gpu_check::seen(sandbox.gpus, &self.base).unwrap_or_default();
        self.gpus = Some(Gpus { names, seen, each });
        let env = env::without(&self.base.env, names);
        self.base = Arc::new(AppBase { env, ..AppBase::clone(&self.base) });
    }
}

/// The CPUs near the GPUs of each rank of this host; none: unknown, or programs see different GPUs.
pub(super) fn near_gpus<'a>(
    programs: impl Iterator<Item = &'a mut Program>,
    (start, sandbox): (&Start, &Sandbox),
    ranks: u32,
) -> Vec<CpuSet> {
    let Some(processors) = sandbox.processors.as_ref().filter(|processors| !processors.gpus.is_empty()) else {
        return Vec::new();
    };
    let mut all = programs.map(|program| {
        program.share_out(start, sandbox);
        let Some(Gpus { seen, each, .. }) = &program.gpus else { return Vec::new() };
        let variable = |name: &str| env::value(&program.base.env, name.as_bytes()).map(<[u8]>::to_vec);
        sandbox.gpus.near(&processors.gpus, SharedOut { seen, each: *each, ranks }, variable)
    });
    let first = all.next().unwrap_or_default();
    if all.all(|near| near == first) { first } else { Vec::new() }
}

/// The ranks of a set, in their order.
fn in_order(ranks: &RankSet) -> impl Iterator<Item = u32> {
    ranks.ranges().flat_map(|(first, last)| first..=last)
}

/// How many ranks of a host read rlaunch's standard input, if one that has this plan does.
const fn readers(stdin: StdinPlan, local_size: u32) -> u32 {
    match stdin {
        StdinPlan::Rank0 => 1,
        StdinPlan::All => local_size,
        StdinPlan::None => 0,
    }
}

/// The rendezvous, the address of this host by which it has reached that, and the number of its ranks.
#[derive(Clone, Copy)]
pub(super) struct Met<'a> {
    pub(super) rendezvous: &'a Rendezvous,
    pub(super) by: Option<IpAddr>,
    /// Ranks of the world on this host.
    pub(super) local_size: u32,
    /// All ranks on this host.
    pub(super) ranks: u32,
}

fn host<'a>(start: &'a Start, met: Met<'a>, sandbox: &'a Sandbox, delta: Delta, base: &'a AppBase) -> Host<'a> {
    let Met { rendezvous, by, local_size, ranks } = met;
    let reached = sandbox.hello.reached.as_ref().and_then(|reached| reached.at.first());
    let carrier = || {
        let reached = reached.map(|at| at.as_slice());
        address::carrier(&sandbox.interfaces, &start.settings.hosts.interface, by, &rendezvous.addr, reached)
    };
    let interface = (rendezvous.nodes > 1).then(carrier).flatten();
    let interface_asked = !start.settings.hosts.interface.is_empty();
    let network = interface.filter(|_| interface_asked).and_then(|name| address::network(&sandbox.interfaces, name));
    Host {
        job: start.job,
        world_size: rendezvous.world_size,
        local_size,
        node_index: rendezvous.node_index,
        nodes: rendezvous.nodes,
        app: delta.app,
        app_name: &base.role.name,
        app_size: delta.app_size,
        apps: base.role.apps,
        group: &base.role.world.group,
        world: delta.world_rank.world,
        master_addr: &rendezvous.addr,
        master_port: rendezvous.port.unwrap_or(sandbox.hello.master_port),
        agent_store: rendezvous.agent_store,
        cpus: Some(share_of_cpus(sandbox.cpus, local_size, ranks)).filter(|cpus| *cpus > 0),
        tier: sandbox.hello.tier,
        skips_tpu_lock: sandbox.skips_tpu_lock,
        socket: &sandbox.socket,
        interface: interface.map(|name| name.as_slice()),
        interface_asked,
        jax: start.settings.jax,
        mpi: mpi(met, sandbox, network),
        local_devices: local_devices(start, local_size, sandbox, base),
        restart: rendezvous.restart,
        max_restarts: start.settings.restarts.most,
        healthy: rendezvous.world_size,
        round: 0,
        slurm: rendezvous.slurm.as_ref().map(|step| SlurmStep::of(&step.layout, &step.task_ids)),
        tpu: tpu(met, sandbox),
    }
}

/// The CPUs of the ranks of a world, where other worlds have ranks on the host as well.
fn share_of_cpus(cpus: u32, local_size: u32, ranks: u32) -> u32 {
    if local_size == ranks { cpus } else { cpus.saturating_mul(local_size) / ranks.max(1) }
}

/// The directory of a group, below that of the host.
fn in_group(stem: OsBytes, group: &[u8]) -> OsBytes {
    if group.is_empty() { stem } else { OsBytes::new([stem.as_slice(), group, b"/"].concat()) }
}

/// The listener for MPI libraries.
fn mpi<'a>(
    Met { rendezvous, ranks, .. }: Met<'a>,
    sandbox: &'a Sandbox,
    network: Option<(Ipv4Addr, u8)>,
) -> Option<MpiHost<'a>> {
    let hosts = rendezvous.mpi.as_ref().map(|world| world.hosts.as_slice());
    let named = hosts.and_then(|hosts| hosts.get(rendezvous.node_index as usize)).map(|host| &host.name);
    sandbox.mpi.as_ref().map(|mpi| MpiHost {
        port: mpi.port,
        namespace: rendezvous.namespace,
        name: named.filter(|name| !is_this_host(name)).unwrap_or(&mpi.host),
        is_crowded: sandbox.cpus > 0 && ranks > sandbox.cpus,
        is_spawned: rendezvous.mpi.as_ref().is_some_and(|world| !world.origin.is_empty()),
        network,
    })
}

/// Whether a rank is in the session of the agent. The kernel may share out processors by session (`sched_autogroup_enabled`): a rank of Open
/// MPI that yields while it waits would then let its own session run only. That matters where ranks are more than processors. Other libraries
/// sleep while they wait. Each of their ranks leads a session, because one session has the share of one rank on a busy host.
/// A rank of another world has its own session, which is killed at the end of that world.
fn yields_to_others(start: &Start, met: Met<'_>, sandbox: &Sandbox, world_rank: WorldRank) -> bool {
    let is_crowded = mpi(met, sandbox, None).is_some_and(|mpi| mpi.is_crowded);
    start.settings.mpi.service() == MpiService::Yielding
        && is_crowded
        && !start.has_worlds
        && world_rank.world == WorldId::new(0)
}

/// The part of this host in the slices of the job.
fn tpu<'a>(met: Met<'a>, sandbox: &'a Sandbox) -> Option<&'a TpuHost> {
    met.rendezvous.tpu.as_deref().or(sandbox.tpu_alone.as_deref())
}

/// How many devices a rank takes, where its framework would take another, or one only.
fn local_devices(start: &Start, local_size: u32, sandbox: &Sandbox, base: &AppBase) -> Option<u32> {
    match start.settings.gpus {
        Share::Each(each) => Some(each),
        Share::All if local_size == 1 => {
            let seen = gpu_check::seen(sandbox.gpus, base).and_then(|seen| u32::try_from(seen.len()).ok());
            seen.filter(|count| *count > 1)
        }
        Share::All | Share::Unset => None,
    }
}

/// How the error files of a job begin; empty: this host has no directory for them. No two processes of this host share one.
fn error_stem(start: &Start, sandbox: &Sandbox) -> OsBytes {
    let mut path = sandbox.error_dir.to_vec();
    if !path.is_empty() {
        path.extend_from_slice(format!("/rlaunch-{}-", start.job).as_bytes());
    }
    OsBytes::new(path)
}
