//! The schema is frozen: every record in every shape, compared with a file. A line that differs breaks a user's parser.

mod fields;

use super::*;
use crate::events::{
    Answer, AppLine, Cause, CloseReason, JobNews, JobStart, Lost, NoRestart, Obstacle, RanksState, RestartCause,
    SinkEnd, SliceNews, SlicesTaken, Tried,
};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{AppIndex, JobId, LocalRank, NodeId, Rank, Round, Std};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Span, WallNs};
use rlaunch_base::warnings::{Response, WarningNote, WarningSource};
use rlaunch_plan::allocation::Scheduler;
use rlaunch_plan::bind::{BindError, BindingNews, Unbound};
use rlaunch_plan::bootstrap::{CarrierEnd, CarrierKind, CarrierNews, FallBack, HostFailure, Refusal};
use rlaunch_plan::discover::{DiscoverFault, Ignored};
use rlaunch_plan::topology::Level;
use rlaunch_plan::tpu::SliceError;
use rlaunch_protocol::guard::DeviceNews;
use rlaunch_protocol::guard::devices::{DeviceHolder, Kept, LockFound, OddFile};
use rlaunch_protocol::master_store::{ForAgent, ForRank0, Holder};
use rlaunch_protocol::rank_fault::{Fault, FaultKind, Leave};
use rlaunch_protocol::settings::{Contain, OnFailure};
use rlaunch_protocol::travel::{Lowered, Resource};
use rlaunch_protocol::wire::limit::{Limit, Met};
use rlaunch_protocol::wire::node_news::{MpiNews, MpiWire, NodeNews, StoreNews};
use rlaunch_protocol::wire::to_root::{Facts, Found, HostUse, Leftover, NodeRefusal, SpawnError, SpawnStep, Usage};
use rlaunch_restart::remark::Remark;
use rlaunch_restart::{EndReason, RoundNote, RoundsEnd, Step};

const NODE: NodeId = NodeId::new(0);
const RANK: Rank = Rank::new(2);

fn bytes(text: &str) -> OsBytes {
    OsBytes::from(text)
}

fn starts() -> Vec<What> {
    let start = JobStart {
        version: bytes("0.1.0"),
        job: JobId([0xab; 16]),
        host: bytes("node03"),
        world_size: 4,
        hosts: vec![bytes("node03")],
        apps: vec![
            AppLine {
                procs: 3,
                group: OsBytes::default(),
                argv: [&b"./train"[..], b"a\\\xff"].iter().collect(),
                wdir: Some(bytes("/w")),
                bytes: 30,
                longest: 8,
            },
            AppLine {
                procs: 1,
                group: bytes("log"),
                argv: ["./log"].iter().collect(),
                wdir: None,
                bytes: 6,
                longest: 6,
            },
        ],
        contain: Contain::Auto,
        on_failure: OnFailure::Kill,
        grace: Span::from_secs(5),
        timeout: None,
        restarts: Default::default(),
        min_hosts: None,
        master_store: Holder::Rank0(ForRank0::NotPython),
    };
    let other = JobStart {
        contain: Contain::Strict,
        on_failure: OnFailure::Continue,
        timeout: Some(Span::from_secs(60)),
        restarts: rlaunch_protocol::restarts::Restarts { most: 3, ..Default::default() },
        min_hosts: Some(2),
        master_store: Holder::Agent(ForAgent::Python),
        apps: vec![],
        ..start.clone()
    };
    let hello = |tier, init| Hello { master_port: 20_000, agent: 50, init, ..Hello::of(tier) };
    vec![
        What::JobStart(Box::new(start)),
        What::JobStart(Box::new(other)),
        What::HostReady { node: NODE, hello: hello(Tier::T1, Some(51)) },
        What::HostReady { node: NODE, hello: hello(Tier::T3, None) },
    ]
}

fn ranks() -> Vec<What> {
    let exited = |status| What::RankExited {
        rank: RANK,
        status,
        at: Span::from_nanos(9),
        alive_at: Span::from_nanos(8),
        asked: true,
        usage: Usage { user_us: 1, system_us: 2, max_rss_kib: 3 },
    };
    let facts = Facts {
        tail: bytes("\"last\"\nwords\n"),
        core: Some(bytes("/core")),
        oom_limit: Some(512),
        error_file: Some(bytes("{}")),
        late: true,
        host: Some(HostUse { available: 1, total: 2, swap_free: 3, swap_total: 4, load: 5 }),
    };
    vec![
        What::RankStarted {
            rank: RANK,
            node: NODE,
            local_rank: LocalRank::new(2),
            group: None,
            pid: 7,
            at: Span::from_nanos(3),
        },
        What::RankFailed { rank: RANK, node: NODE, error: error(), tried: Tried::First },
        exited(Status::Exited(3)),
        exited(Status::Signaled { sig: Signal::SEGV, core: true }),
        exited(Status::Lost),
        What::RankFacts { rank: RANK, facts },
        What::RankFacts { rank: RANK, facts: Facts::default() },
    ]
}

fn error() -> SpawnError {
    SpawnError { step: SpawnStep::Exec, errno: 2, path: bytes("./tran"), found: Found::Nothing }
}

fn causes() -> Vec<Cause> {
    let refused = |why| Cause::Refused { node: NODE, why };
    let lost = |lost| Cause::Lost { node: NODE, lost };
    vec![
        Cause::Success,
        Cause::Rank { rank: RANK, status: Status::Exited(3) },
        Cause::Spawn { rank: RANK, error: error() },
        refused(NodeRefusal::Contain { errno: 1, step: bytes("unshare") }),
        refused(NodeRefusal::Resource { errno: 24, step: bytes("epoll") }),
        refused(NodeRefusal::NoPort),
        refused(NodeRefusal::NoStore { errno: 98, at: "127.0.0.1:20000".into() }),
        refused(NodeRefusal::PortTaken { port: 29500, job: "ab".into(), agent: Some(7) }),
        refused(NodeRefusal::MasterAddr { addr: "localhost".into(), is_loopback: true, has: "10.0.0.1".into() }),
        refused(NodeRefusal::Gpus { each: 2, needed: 8, has: Some(4) }),
        refused(NodeRefusal::Gpus { each: 1, needed: 1, has: None }),
        refused(NodeRefusal::Bind(BindError::TooFewCores { each: 9, ranks: 1, has: 8, unit: Level::Core })),
        refused(NodeRefusal::Protocol),
        Cause::Signal(Signal::INT),
        Cause::Timeout { limit: Span::from_secs(60) },
        Cause::ReaderClosed(Std::Out),
        lost(Lost::Agent(CloseReason::Eof)),
        lost(Lost::Agent(CloseReason::Malformed)),
        lost(Lost::Agent(CloseReason::Slow)),
        lost(Lost::Agent(CloseReason::Failed { errno: 5 })),
        lost(Lost::AgentEarly),
        lost(Lost::AgentMute),
        lost(Lost::Guardian),
        lost(Lost::Init),
    ]
}

fn rest() -> Vec<What> {
    let named = vec![Leftover { pid: 9, comm: bytes("cat"), wchan: bytes("vfio_release") }];
    let signal = |answer| What::Signal { sig: Signal::INT, answer };
    let began = Cause::Timeout { limit: Span::from_secs(60) };
    vec![
        What::HostRefused { node: NODE, why: NodeRefusal::NoPort },
        What::HostLost { node: NODE, lost: Lost::Init },
        What::HostDone { node: NODE, left: Some(1), named },
        What::HostDone { node: NODE, left: None, named: vec![] },
        signal(Answer::Forwarded),
        signal(Answer::Ended),
        signal(Answer::Killed),
        signal(Answer::Left),
        signal(Answer::Ignored),
        ending(began.clone(), Some(Signal::TERM), Span::from_secs(5)),
        ending(began, None, Span::ZERO),
        What::StreamEnd { rank: RANK, std: Std::Err, total: 12 },
        from_node(NodeNews::Store(StoreNews::Refused { from: bytes("10.0.0.9:4711"), count: 3 })),
        from_node(NodeNews::Store(StoreNews::Limit {
            met: Met::at(Limit::Value, b"model", 9 << 20, 8 << 20),
            count: 2,
        })),
        from_node(NodeNews::FileFailed { errno: 28, path: bytes("/logs/none_7f3a_0/attempt_0/0/stdout.log") }),
        What::FileLost { rank: RANK, std: Std::Out, bytes: 4096 },
        What::SinkLost { std: Std::Out, errno: None, end: SinkEnd::Unread { ends_job: true } },
        What::SinkLost { std: Std::Out, errno: Some(28), end: SinkEnd::WriteFailed },
        What::OutputEnd { lost: 1, broken: 2 },
        What::LogLost { records: 3 },
    ]
}

/// Events of other hosts.
fn hosts() -> Vec<What> {
    let error = SpawnError { step: SpawnStep::Exec, errno: 2, path: bytes("./train"), found: Found::Nothing };
    let program = NodeRefusal::Program { app: AppIndex::new(1), error };
    let failure = HostFailure { why: bytes("name does not resolve"), words: bytes("ssh: …"), hint: bytes("fix it") };
    let seen =
        |found| NodeRefusal::Program { app: AppIndex::new(0), error: SpawnError { errno: 13, found, ..self::error() } };
    let refused = |why| What::HostRefused { node: NODE, why };
    let unreachable = Cause::Unreachable { node: NODE, failed: 1, asked: 8 };
    vec![
        What::HostFailed { node: NODE, why: failure },
        What::HostRefused { node: NODE, why: program },
        What::LeftOut { nodes: [1, 3].map(NodeId::new).to_vec(), world_size: 5, procs: vec![4, 1], is_known: false },
        What::HostLost { node: NODE, lost: Lost::NoHeartbeat },
        What::HostLost { node: NODE, lost: Lost::Expired },
        What::HostLost { node: NODE, lost: Lost::Agent(CloseReason::Carrier(CarrierKind::Ssh, CarrierEnd::Code(255))) },
        What::HostLost { node: NODE, lost: Lost::Agent(CloseReason::Carrier(CarrierKind::Ssh, CarrierEnd::Signal(9))) },
        ending(unreachable, None, Span::ZERO),
        What::HostLost { node: NODE, lost: Lost::Starved(Span::from_secs(9)) },
        What::Together { nodes: [1, 3].map(NodeId::new).to_vec() },
        refused(seen(Found::Dir)),
        refused(seen(Found::Empty)),
        refused(seen(Found::File)),
        What::Clearing { why: RestartCause::of_rank(RANK, NODE, Status::Exited(3)), grace: Span::from_secs(5) },
        What::Restart {
            restart: 2,
            why: RestartCause::of_rank(RANK, NODE, Status::Signaled { sig: Signal::SEGV, core: true }),
            lived: Span::from_secs(70),
            delay: Span::from_secs(1),
            fewer: None,
        },
        What::Restart {
            restart: 3,
            why: RestartCause::Failed { rank: RANK, node: NODE, status: Status::Lost, lost: Some(Lost::NoHeartbeat) },
            lived: Span::from_secs(7),
            delay: Span::ZERO,
            fewer: None,
        },
    ]
}

fn rounds() -> Vec<What> {
    let fault = |kind| Fault { initial: RANK, kind, text: bytes("E: x") };
    let status = Status::Signaled { sig: Signal::KILL, core: false };
    let all = [
        FaultKind::Exception,
        FaultKind::Hang,
        FaultKind::Ended(Status::Exited(3)),
        FaultKind::Overdue(status),
        FaultKind::Left(Leave::BaseException),
        FaultKind::Left(Leave::Abort),
        FaultKind::Left(Leave::Unhealthy),
        FaultKind::HostLost,
        FaultKind::Warned,
        FaultKind::Joined,
    ];
    let began = RoundNote::Began {
        round: Round::new(4),
        faults: all.map(fault).to_vec(),
        world_size: 6,
        active_world_size: 5,
        discarded: [3, 4, 7].map(Rank::new).into_iter().collect(),
        reserve: [5].map(Rank::new).into_iter().collect(),
        phases: [1, 2, 3].map(Span::from_nanos),
    };
    let up = RoundsEnd::Impossible { fault: fault(FaultKind::Hang), reason: EndReason::NoHealthyRank };
    let note = |note| What::Round { node: None, note: Box::new(note) };
    vec![
        note(began),
        note(RoundNote::NoRoundNeeded { fault: fault(FaultKind::HostLost) }),
        note(RoundNote::Respawned { round: Round::new(4), initial: RANK, pid: 4242 }),
        note(RoundNote::Awaited { round: Some(Round::new(4)), step: Step::Yield, ranks: [RANK].into_iter().collect() }),
        note(RoundNote::Refused { text: bytes("no") }),
        note(RoundNote::Remark(Remark::WaitsForRound { initial: Rank::new(1) })),
        What::RoundsOver(Box::new(RoundsEnd::Done)),
        What::RoundsOver(Box::new(up)),
    ]
}

fn ending(cause: Cause, sent: Option<Signal>, grace: Span) -> What {
    What::Ending { cause, sent, grace, ranks: RanksState::Running }
}

fn from_node(news: NodeNews) -> What {
    What::NodeNews { node: NODE, news }
}

fn lock(found: LockFound) -> NodeNews {
    let (user, command) = match found {
        LockFound::Locked { .. } => (bytes("alice"), bytes("python3 train.py")),
        LockFound::Removed
        | LockFound::Unlocked
        | LockFound::Foreign { .. }
        | LockFound::Odd(_)
        | LockFound::Unknown { .. } => (OsBytes::default(), OsBytes::default()),
    };
    NodeNews::Devices(DeviceNews::LockFile { path: bytes("/tmp/libtpu_lockfile"), found, user, command })
}

fn holder() -> DeviceHolder {
    DeviceHolder {
        devices: bytes("/dev/vfio/0-3"),
        pid: 4242,
        user: bytes("alice"),
        command: bytes("python3 train.py"),
        age: Span::from_secs(7_800),
        unit: bytes("train.service"),
        job: OsBytes::default(),
        kept: Kept::Unit,
        state: b'S',
        wchan: bytes("futex_wait_queue"),
    }
}

fn news() -> Vec<What> {
    let nodes = || [0, 2].map(NodeId::new).to_vec();
    let (addr, within) = (|| bytes("10.0.0.1"), Span::from_secs(9));
    let status = Status::Signaled { sig: Signal::USR1, core: false };
    vec![
        What::News(JobNews::PortUnreserved { port: 20_000 }),
        What::News(JobNews::LimitLowered { lowered: Lowered { on: Resource::Nofile, to: 1024 }, nodes: nodes() }),
        What::News(JobNews::OneMachine { nodes: nodes(), more: 1 }),
        What::News(JobNews::AddrDetour { addr: addr(), instead_of: bytes("10.1.0.1"), node: NODE, missed_by: nodes() }),
        What::News(JobNews::StoreLeft { addr: addr() }),
        from_node(NodeNews::Store(StoreNews::Unused { at: bytes("10.0.0.1:29500") })),
        from_node(NodeNews::Store(StoreNews::Foreign { from: bytes("10.9.9.9:4711") })),
        from_node(NodeNews::Binding(BindingNews::RankBound {
            rank: RANK,
            bound: true,
            cpus: bytes("0-3,8"),
            cores: bytes("0-3"),
            numa: bytes("0"),
        })),
        from_node(NodeNews::Binding(BindingNews::NotBound(Unbound { ranks: 4, units: 2, level: Level::Core }))),
        from_node(NodeNews::Binding(BindingNews::OneCpu { ranks: 2, cpu: 0, online: 8 })),
        What::News(JobNews::Continuing { rank: RANK, status: Status::Exited(3) }),
        What::News(JobNews::LeadContinues { node: NODE, lost: Lost::NoHeartbeat }),
        What::News(JobNews::EndingDeferred { rank: RANK, status, end_in: within }),
        What::News(JobNews::EndingAwaits { cause: Cause::Timeout { limit: Span::from_secs(60) }, kill_in: within }),
        What::News(JobNews::NoProgress { rank: RANK, alike: 5 }),
        What::News(JobNews::NotClear),
        What::News(JobNews::NotStartedAgain { why: NoRestart::NoLimit { hosts: 3, of: 4, ranks: 3 } }),
        What::News(JobNews::NotStartedAgain {
            why: NoRestart::Slices { reason: SliceError::Partial { slice: "a".into(), has: 3, of: 4 } },
        }),
        What::News(JobNews::HostAwaited { node: NODE, within }),
        What::News(JobNews::HostsSilent { nodes: nodes(), within }),
        What::News(JobNews::FilesLost { bytes: 4096 }),
        from_node(NodeNews::Mpi(MpiNews::Used { wire: MpiWire::Pmix })),
        from_node(NodeNews::Mpi(MpiNews::Loaded { library: "libmpi.so.40".into() })),
        from_node(NodeNews::Mpi(MpiNews::Waits {
            waiting: vec![(0, 1), (3, 3)],
            missing: vec![(2, 2)],
            apart: vec![(2, 2)],
        })),
        from_node(NodeNews::Mpi(MpiNews::LookupWaits { rank: RANK, name: "1.0:2:accept".into() })),
        from_node(NodeNews::Mpi(MpiNews::Unfinished { rank: RANK, pid: 4711 })),
        from_node(NodeNews::Mpi(MpiNews::Help { count: 3, file: "help-mpi.txt".into(), topic: "no route".into() })),
        What::News(JobNews::MpiApart { ranks: 4, library: "libmpi.so.40".into(), is_served: true }),
        What::News(JobNews::SchedulerSignal { scheduler: Scheduler::Slurm, sig: Signal::USR1, node: NodeId::new(1) }),
        ending(Cause::Scheduler { scheduler: Scheduler::Slurm, sig: Signal::TERM }, Some(Signal::TERM), within),
        What::News(JobNews::Carrier(CarrierNews::FellBack { nodes: nodes(), why: FallBack::Absent })),
        What::News(JobNews::Carrier(CarrierNews::FellBack {
            nodes: nodes(),
            why: FallBack::Unconnected { reason: "10.0.0.1:4000: refused".into() },
        })),
        What::News(JobNews::Carrier(CarrierNews::FellBack {
            nodes: nodes(),
            why: FallBack::Silent { waited: Span::from_secs(15), words: OsBytes::default() },
        })),
        What::News(JobNews::Carrier(CarrierNews::StrangerRefused {
            address: "10.0.0.9".into(),
            why: Refusal::WrongKey,
        })),
    ]
}

/// Facts about hosts that are taken away, and about their devices.
fn news_of_hosts() -> Vec<What> {
    let nodes = || [0, 2].map(NodeId::new).to_vec();
    let within = Span::from_secs(9);
    vec![
        What::News(JobNews::Carrier(CarrierNews::StepWaits { words: bytes("srun: job 7 queued") })),
        What::News(JobNews::Carrier(CarrierNews::SrunEnded {
            nodes: [NODE].into(),
            end: CarrierEnd::Code(137),
            words: bytes("srun: Killed"),
        })),
        What::News(JobNews::Carrier(CarrierNews::FellBack {
            nodes: nodes(),
            why: FallBack::Silent { waited: Span::from_secs(15), words: bytes("srun: job 7 queued") },
        })),
        warned(WarningSource::Preempted, Response::Ends { grace: within }),
        warned(WarningSource::Signal, Response::Noted),
        warned(WarningSource::Maintenance, Response::Drains),
        from_node(NodeNews::WarningNote(WarningNote::Planned(WallNs(9)))),
        from_node(NodeNews::WarningNote(WarningNote::Unknown { path: "instance/preempted".into(), word: "X".into() })),
        ending(
            Cause::Preempted { node: NODE, lost: Lost::Warned(WarningSource::Preempted) },
            Some(Signal::TERM),
            within,
        ),
        from_node(NodeNews::Devices(DeviceNews::HolderEnded {
            devices: bytes("/dev/vfio/0-3"),
            pid: 4242,
            user: bytes("alice"),
            command: bytes("python3 train.py"),
            killed: false,
        })),
        from_node(lock(LockFound::Removed)),
        from_node(lock(LockFound::Locked { pid: 4242 })),
        from_node(lock(LockFound::Foreign { uid: 1001 })),
        from_node(lock(LockFound::Odd(OddFile::Link))),
        from_node(lock(LockFound::Unknown { errno: 13 })),
        from_node(NodeNews::Devices(DeviceNews::Held(holder()))),
        from_node(NodeNews::LeftEnded { count: 3, pid: 4242, comm: bytes("sleep") }),
        What::HostRefused {
            node: NODE,
            why: NodeRefusal::Devices {
                holders: Capped::chunks([holder()]).pop().unwrap(),
                more: 1,
                hidden: bytes("/dev/vfio/7"),
            },
        },
        warned(WarningSource::Probe, Response::Ends { grace: within }),
        from_node(NodeNews::WarningNote(WarningNote::NoProbe(127))),
    ]
}

/// Facts about the slices of a job.
fn news_of_slices() -> Vec<What> {
    let within = Span::from_secs(9);
    vec![
        What::Slices(Box::new(SlicesTaken {
            slices: [bytes("a"), bytes("e")].into(),
            spares: [bytes("f")].into(),
            wanted_spares: 1,
            world_size: 4,
            procs: vec![4],
            is_news: true,
        })),
        What::News(JobNews::Slices(SliceNews::Awaited { wanted: 4, up: 3, within })),
        What::News(JobNews::Slices(SliceNews::Missing {
            slice: bytes("b"),
            node: NODE,
            why: Box::new(Obstacle::Awaited),
        })),
        What::News(JobNews::Slices(SliceNews::Larger { size: 4, running: 2, restarts: false })),
        What::Clearing { why: RestartCause::Grown { size: 4, running: 2 }, grace: Span::from_secs(5) },
        What::Restart {
            restart: 4,
            why: RestartCause::Grown { size: 4, running: 2 },
            lived: Span::from_secs(61),
            delay: Span::ZERO,
            fewer: None,
        },
        ending(Cause::TooFewSlices { asked: vec![2, 4], up: 1 }, None, Span::ZERO),
        What::News(JobNews::Slices(SliceNews::Found {
            slice: bytes("f"),
            nodes: vec![NODE],
            hosts: vec![bytes("n9")],
        })),
        ignored(Ignored::Hosts { has: 3, of: 2 }),
        ignored(Ignored::Chips { has: 8, of: 4 }),
        ignored(Ignored::Name),
        ignored(Ignored::NoSlot { most: 20 }),
        What::News(JobNews::Slices(SliceNews::HostBack { node: NODE })),
        undiscovered(DiscoverFault::Unstarted { errno: 2 }),
        undiscovered(DiscoverFault::Failed(Status::Exited(3))),
        undiscovered(DiscoverFault::Late),
        undiscovered(DiscoverFault::TooMuch),
        undiscovered(DiscoverFault::NoList { text: bytes("--discover names no hosts") }),
        warned(WarningSource::Discovery, Response::Noted),
        What::News(JobNews::PoolLost { pool: bytes("p") }),
    ]
}

fn ignored(why: Ignored) -> What {
    What::News(JobNews::Slices(SliceNews::Ignored { slice: bytes("f"), why }))
}

const fn undiscovered(why: DiscoverFault) -> What {
    What::News(JobNews::Slices(SliceNews::DiscoverFailed { why }))
}

fn warned(source: WarningSource, response: Response) -> What {
    What::News(JobNews::HostWarned { node: NODE, source, response })
}

#[test]
fn version_1_is_frozen() {
    let ends = causes().into_iter().map(|cause| {
        let exit = cause.exit(false);
        What::JobEnd { cause, exit, left: Some(0), launch: Some(Span::from_millis(6)), never_started: Some(0) }
    });
    let unknown =
        What::JobEnd { cause: Cause::Success, exit: Ending::Code(0), left: None, launch: None, never_started: None };
    let all =
        starts().into_iter().chain(ranks()).chain(rest()).chain(ends).chain([unknown]).chain(hosts()).chain(rounds());
    let record = |what| Record { t: Span::from_millis(6), wall: WallNs(7), generation: 3, round: None, what };
    let text: String = all.map(|what| line(&record(what))).collect();
    let status = Status::Exited(3);
    let in_round = What::RankExited {
        rank: RANK,
        status,
        at: Span::ZERO,
        alive_at: Span::ZERO,
        asked: false,
        usage: Usage::default(),
    };
    let news: String =
        news().into_iter().chain(news_of_hosts()).chain(news_of_slices()).map(|what| line(&record(what))).collect();
    let text = text + &line(&Record { round: Some(Round::new(4)), ..record(in_round) }) + &news;
    let frozen = include_str!("../../../../../tests/golden/events/v1.ndjson");
    for (actual, expected) in text.lines().zip(frozen.lines()) {
        assert_eq!(actual, expected);
    }
    assert_eq!(text.lines().count(), frozen.lines().count(), "{text}");
}
