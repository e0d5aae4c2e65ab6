//! Properties of every message, and of every garbage in its place.
#![allow(clippy::arithmetic_side_effects, reason = "bounds of a test")]

use super::codec::{WireMessage, decode, encode};
use super::limit::{self, Met};
use super::node_news::NodeNews;
use super::probe::Key;
use super::to_node::{Delta, Find, MpiWorld, PortPlan, Rendezvous, Start, ToNode, WorldRank};
use super::to_root::{Exited, Facts, Leftover, Started, ToRoot, Usage};
use crate::guard::devices::{CleanPolicy, DeviceKind, DevicePlan, DeviceStep};
use crate::logs::{Logs, Which};
use crate::master_store::Guard;
use crate::settings::{Contain, Settings, StdinPlan};
use crate::spec::{AppBase, Role};
use crate::travel::{Limit, Resource, Travel};
use crate::wire::node_news::StoreNews;
use crate::wire::to_node::HostRanks;
use alloc::boxed::Box;
use alloc::vec::Vec;
use proptest::collection::vec;
use proptest::prelude::*;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{AppIndex, JobId, LocalRank, ProcId, Rank, Std, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::{HostTime, Span};
use rlaunch_plan::allocation::{HostStep, StepLayout};
use rlaunch_plan::gpus::Share;
use rlaunch_plan::place::World;

fn bytes() -> impl Strategy<Value = OsBytes> {
    vec(any::<u8>(), 0..40).prop_map(OsBytes::new)
}

fn signal() -> impl Strategy<Value = Signal> {
    (1u8..=64).prop_map(|n| Signal::new(n).unwrap())
}

fn delta() -> impl Strategy<Value = Delta> {
    any::<([u32; 6], bool)>().prop_map(|([proc, app, rank, local_rank, app_rank, app_size], stdin)| Delta {
        proc: ProcId::new(proc),
        app: AppIndex::new(app),
        rank: Rank::new(rank),
        local_rank: LocalRank::new(local_rank),
        app_rank,
        app_size,
        stdin: if stdin { StdinPlan::All } else { StdinPlan::None },
        world_rank: WorldRank {
            world: WorldId::new(app),
            rank: Rank::new(app_rank),
            local_rank: LocalRank::new(app_size),
        },
    })
}

fn logs() -> impl Strategy<Value = Logs> {
    let texts = ["0", "3", "0:1,7:2"].map(|text| Which::parse(text.as_bytes()).unwrap());
    (proptest::option::of(bytes()), bytes(), proptest::sample::select(texts.to_vec())).prop_map(|(dir, run, which)| {
        let shown = dir.as_ref().and_then(|_| crate::logs::shown(b"0,5"));
        Logs {
            dir,
            private: shown.is_some(),
            run,
            redirects: which.clone(),
            tee: which,
            shown,
            files: [Some("/o.%t".into()), None],
        }
    })
}

fn program() -> impl Strategy<Value = AppBase> {
    let strings = || vec(vec(1u8.., 0..20), 0..20).prop_map(|texts| texts.iter().collect());
    let role = (bytes(), any::<u32>()).prop_map(|(name, apps)| Role { world: World::named(name.clone()), name, apps });
    (strings(), strings(), strings(), proptest::option::of(bytes()), role, proptest::option::of(logs())).prop_map(
        |(argv, env, pinned, wdir, role, logs)| AppBase { argv, env, pinned, wdir, role, filled: logs.is_some(), logs },
    )
}

fn start() -> impl Strategy<Value = ToNode> {
    (
        any::<[u8; 16]>(),
        any::<[u32; 3]>(),
        proptest::option::of(bytes()),
        rendezvous(),
        any::<(Option<u16>, bool, u64)>(),
    )
        .prop_map(|(job, n, label, rendezvous, (given, sole, linger))| {
            ToNode::Start(Start {
                scheduler_grace: sole.then(|| Span::from_nanos(linger / 3)),
                chips: sole.then(|| Box::new(rlaunch_plan::tpu::TpuFacts::of_hostfile("a", n[1], n[2]))),
                job: JobId(job),
                settings: Box::new(settings(n, label, sole, linger)),
                nodes: n[0],
                local_size: n[1],
                rendezvous: Some(rendezvous).filter(|_| linger % 2 == 0),
                port: given.map_or(PortPlan::Choose, PortPlan::Claim),
                find: sole.then(|| Find { probe_key: Some(Key::new([3; 32])) }),
                addresses: sole,
                travel: travel(linger).map(Box::new),
                sole,
                has_lease: !sole,
                can_start_more: false,
                has_worlds: false,
                apps: n[2],
                awaits: Span::from_nanos(linger / 5),
            })
        })
}

fn settings(n: [u32; 3], text: Option<OsBytes>, sole: bool, span: u64) -> Settings {
    let devices = DevicePlan {
        chips: Capped::chunks([2, 3]).remove(0),
        is_optional: true,
        kind: DeviceKind::Tpu,
        clean: CleanPolicy::Own,
        lock_files: Capped::chunks([OsBytes::from("/tmp/a")]).pop().unwrap(),
        is_trial: true,
        allow_partial: sole,
    };
    let (mut settings, some) =
        (Settings { devices, jax: sole, ..Settings::default() }, text.clone().unwrap_or_default());
    settings.ending.contain = Contain::T3;
    settings.ending.grace = Span::from_nanos(span / 7);
    settings.ending.timeout = sole.then_some(Span::from_nanos(span));
    (settings.warnings.grace, settings.warnings.probe) = (Span::from_nanos(span / 7), some.clone());
    (settings.restarts.most, settings.restarts.delay) = (n[0], Span::from_nanos(span));
    (settings.hosts.lease, settings.hosts.interface) = (Span::from_nanos(span / 3), some.clone());
    settings.hosts.scheduler = n[0].is_multiple_of(2).then_some(rlaunch_plan::allocation::Scheduler::Slurm);
    settings.store.guard = if sole { Guard::Hosts } else { Guard::Job };
    (settings.mpi.served, settings.mpi.library, settings.trace) = (sole, some.clone(), some);
    settings.gpus = if sole { Share::Each(n[2]) } else { Share::All };
    settings.bind.cores = sole.then_some(n[2]);
    settings.output.label = text;
    settings
}

fn travel(n: u64) -> Option<Travel> {
    let limit = |on| Limit { on, soft: Some(n).filter(|n| n % 2 == 0) };
    let limits = Capped::chunks(Resource::ALL.map(limit)).remove(0);
    (!n.is_multiple_of(3)).then(|| Travel { umask: 0o27, limits, dir: "/data".into() })
}

fn host_step(text: &OsBytes, most_tasks: u32) -> Box<HostStep> {
    let layout = StepLayout { hosts: text.clone(), tasks: text.clone(), most_tasks };
    Box::new(HostStep { layout, task_ids: text.clone() })
}

fn rendezvous() -> impl Strategy<Value = Rendezvous> {
    let numbers = any::<(Option<u16>, u32, u32, u32, bool)>();
    (bytes(), numbers).prop_map(|(addr, (port, world_size, nodes, node_index, agent_store))| Rendezvous {
        slurm: agent_store.then(|| host_step(&addr, nodes)),
        addr,
        port,
        world_size,
        nodes,
        node_index,
        agent_store,
        restart: world_size,
        namespace: nodes,
        mpi: (nodes % 2 == 0).then(|| {
            let host = HostRanks { name: "a".into(), ranges: [(0, world_size), (nodes, nodes)].into() };
            Box::new(MpiWorld { apps: [world_size].into(), hosts: [host].into(), origin: "1".into() })
        }),
        ranks_here: (nodes % 5 == 0).then_some(nodes),
        tpu: (nodes % 3 == 0).then(|| Box::new(rlaunch_plan::tpu::TpuHost::example())),
    })
}

fn to_node() -> impl Strategy<Value = ToNode> {
    prop_oneof![
        start(),
        rendezvous().prop_map(ToNode::Rendezvous),
        Just(ToNode::Finish),
        (any::<u32>(), any::<bool>(), bytes()).prop_map(|(app, last, part)| ToNode::App {
            app: AppIndex::new(app),
            last,
            part: part.as_slice().into(),
        }),
        (vec(delta(), 1..50), any::<bool>()).prop_map(|(procs, last)| ToNode::Spawn {
            procs: Capped::chunks(procs).remove(0),
            last,
            local_size: 3
        }),
        signal().prop_map(|sig| ToNode::Signal { sig }),
        (signal(), any::<u64>(), 0..3).prop_map(|(sig, ns, kind)| {
            let grace = Span::from_nanos(ns);
            match kind {
                0 => ToNode::End { sig, grace },
                1 => ToNode::SchedulerEnds { sig, grace },
                _ => ToNode::HoldLease(grace),
            }
        }),
        (signal(), any::<(u64, Option<u16>)>()).prop_map(|(sig, (ns, given))| ToNode::Clear {
            sig,
            grace: Span::from_nanos(ns),
            port: given.map_or(PortPlan::None, PortPlan::Claim),
        }),
        rendezvous().prop_map(ToNode::Again),
        prop_oneof![Just(ToNode::Kill), Just(ToNode::Devices(DeviceStep::Look))],
    ]
}

fn to_root() -> impl Strategy<Value = ToRoot> {
    let started =
        any::<(u32, u32, u64)>().prop_map(|(proc, pid, at)| Started { proc: ProcId::new(proc), pid, at: HostTime(at) });
    let leftover = || (any::<u32>(), bytes(), bytes()).prop_map(|(pid, comm, wchan)| Leftover { pid, comm, wchan });
    prop_oneof![
        vec(started, 1..50).prop_map(|procs| ToRoot::Started { procs: Capped::chunks(procs).remove(0) }),
        (any::<(u32, u64, u64, bool)>(), signal()).prop_map(|((proc, at, alive_at, core), sig)| {
            let (at, alive_at) = (HostTime(at), HostTime(alive_at));
            let status = Status::Signaled { sig, core };
            ToRoot::Exited(Exited {
                proc: ProcId::new(proc),
                status,
                at,
                alive_at,
                asked: core,
                usage: Usage::default(),
            })
        }),
        (any::<u32>(), bytes(), proptest::option::of(bytes()), any::<Option<u64>>()).prop_map(
            |(proc, tail, core, oom_limit)| ToRoot::Postmortem {
                proc: ProcId::new(proc),
                facts: Facts { tail, core, oom_limit, error_file: None, late: true, host: None },
            }
        ),
        Just(ToRoot::InitLost),
        (any::<i32>(), bytes()).prop_map(|(errno, path)| ToRoot::News(NodeNews::FileFailed { errno, path })),
        (proptest::sample::select(&limit::Limit::ALL[..]), bytes(), any::<(u64, u64, u32)>()).prop_map(
            |(limit, key, (has, most, count))| ToRoot::News(NodeNews::Store(StoreNews::Limit {
                met: Met { limit, key, has, most },
                count
            }))
        ),
        any::<(u32, u64)>().prop_map(|(proc, bytes)| ToRoot::FileLost {
            proc: ProcId::new(proc),
            which: Std::Err,
            bytes
        }),
        any::<Option<bool>>().prop_map(|held| held.map_or(ToRoot::Ready, |held| ToRoot::Devices { held })),
        (any::<u32>(), any::<u16>(), vec(leftover(), 1..16)).prop_map(|(left, port, named)| ToRoot::Cleared {
            left,
            named: Capped::chunks(named).remove(0),
            port,
        }),
        (any::<u32>(), vec(leftover(), 1..16))
            .prop_map(|(left, named)| ToRoot::Done { left, named: Capped::chunks(named).remove(0) }),
    ]
}

/// Decoding allocates at most 16 times its input, whatever that is: lengths are declared, not believed.
fn allocates_little<M: WireMessage>(input: &[u8]) {
    let info = allocation_counter::measure(|| {
        let _decoded = decode::<M>(input);
    });
    let most = 16 * u64::try_from(input.len()).unwrap() + 256;
    assert!(info.bytes_max <= most, "{} bytes for an input of {}", info.bytes_max, input.len());
}

proptest! {
    #[test]
    fn sent_frames_are_received(down in to_node(), up in to_root(), program in program()) {
        prop_assert_eq!(decode::<ToNode>(&encode(&down)), Ok(down));
        prop_assert_eq!(decode::<ToRoot>(&encode(&up)), Ok(up));
        prop_assert_eq!(decode::<AppBase>(&encode(&program)), Ok(program));
    }

    #[test]
    fn a_rest_is_refused(down in to_node(), rest in vec(any::<u8>(), 1..9)) {
        let mut body = encode(&down);
        body.extend_from_slice(&rest);
        prop_assert!(decode::<ToNode>(&body).is_err());
    }

    #[test]
    fn garbage_is_cheap(input in vec(any::<u8>(), 0..2000)) {
        allocates_little::<ToNode>(&input);
        allocates_little::<ToRoot>(&input);
        allocates_little::<AppBase>(&input);
    }

    #[test]
    fn a_damaged_message_is_cheap(
        (up, down, program) in (to_root(), to_node(), program()),
        at in any::<prop::sample::Index>(),
        with: u8,
    ) {
        for mut body in [encode(&up), encode(&down), encode(&program)] {
            let at = at.index(body.len());
            body[at] = with;
            allocates_little::<ToRoot>(&body);
            allocates_little::<ToNode>(&body);
            allocates_little::<AppBase>(&body);
        }
    }
}

#[test]
fn a_declared_length_reserves_nothing() {
    // A Spawn that declares 2^32 - 1 ranks and brings none; a Done that declares as many leftovers.
    let tag = |body: Vec<u8>| body[0];
    let spawn = tag(encode(&ToNode::Spawn { procs: Capped::default(), last: true, local_size: 1 }));
    let done = tag(encode(&ToRoot::Done { left: 0, named: Capped::default() }));
    for body in [&[spawn, 0xff, 0xff, 0xff, 0xff, 0x0f][..], &[done, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]] {
        allocates_little::<ToNode>(body);
        allocates_little::<ToRoot>(body);
    }
}

#[test]
fn a_program_of_empty_strings_is_cheap() {
    // A declared length and that many zeros: as few bytes on the wire per string as any encoding can have.
    for strings in [100u32, 10_000, 200_000] {
        let mut body = postcard::to_allocvec(&strings).unwrap();
        body.resize(body.len() + usize::try_from(strings).unwrap() + 3, 0);
        allocates_little::<AppBase>(&body);
    }
}

#[test]
fn a_declared_number_of_hosts_reserves_nothing() {
    // 187 and 2^32 - 1 hosts or ranges, and none of them.
    for body in [&[0xbb, 0x01][..], &[0xff, 0xff, 0xff, 0xff, 0x0f]] {
        let world = [&[0], body].concat();
        let host = [&[0], body].concat();
        let info = allocation_counter::measure(|| {
            assert!(postcard::from_bytes::<MpiWorld>(&world).is_err());
            assert!(postcard::from_bytes::<MpiWorld>(body).is_err());
            assert!(postcard::from_bytes::<HostRanks>(&host).is_err());
        });
        assert!(info.bytes_max <= 256, "{} bytes", info.bytes_max);
    }
}

#[test]
fn more_elements_than_allowed_are_refused() {
    let many: Vec<u32> = (0..9).collect();
    let body = postcard::to_allocvec(&many).unwrap();
    assert!(postcard::from_bytes::<Capped<u32, 9>>(&body).is_ok());
    assert!(postcard::from_bytes::<Capped<u32, 8>>(&body).is_err());
}
