//! Lines on stderr, record by record.

mod features;

use super::*;
use crate::view::notices::no_message;
use rlaunch_base::exit::Ending;
use rlaunch_base::id::{AppIndex, JobId, LocalRank, Rank, Round, Std, WorldId};
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Span, WallNs};
use rlaunch_base::warnings::{Response, WarningNote, WarningSource};
use rlaunch_core::events::{
    Answer, AppLine, Fewer, JobNews, JobStart, NoRestart, Obstacle, RanksState, RestartCause, SinkEnd, SliceNews,
    SlicesTaken, WorldLine,
};
use rlaunch_plan::allocation::Scheduler;
use rlaunch_plan::bind::{BindingNews, Unbound};
use rlaunch_plan::bootstrap::{CarrierEnd, CarrierNews, FallBack, HostFailure, Refusal};
use rlaunch_plan::discover::{DiscoverFault, Ignored};
use rlaunch_plan::topology::Level;
use rlaunch_protocol::guard::DeviceNews;
use rlaunch_protocol::guard::devices::{DeviceHolder, Kept, LockFound};
use rlaunch_protocol::master_store::{ForAgent, ForRank0, Holder};
use rlaunch_protocol::rank_fault::{Fault, FaultKind};
use rlaunch_protocol::settings::{Contain, OnFailure, Tier};
use rlaunch_protocol::travel::{Lowered, Resource};
use rlaunch_protocol::wire::limit::{Limit, Met};
use rlaunch_protocol::wire::node_news::{MpiNews, MpiWire, NodeNews, StoreNews};
use rlaunch_protocol::wire::to_root::{Facts, Found, Hello, NodeRefusal, SpawnError, SpawnStep, Usage};
use rlaunch_restart::remark::Remark;
use rlaunch_restart::{EndReason, RoundNote, Step};
use std::collections::BTreeSet;

const RANK: Rank = Rank::new(2);
const NODE: NodeId = NodeId::new(0);
const SECOND: Span = Span::from_secs(1);

fn record(what: What) -> Record {
    Record { t: Span::ZERO, wall: WallNs(0), generation: 0, round: Some(Round::new(4)), what }
}

fn start() -> What {
    let hosts = ["u@h0", "h1", "h2", "h3", "h4", "h5"].map(OsBytes::from).to_vec();
    let app = AppLine {
        procs: 6,
        group: OsBytes::default(),
        argv: ["./train"].iter().collect(),
        wdir: None,
        bytes: 8,
        longest: 8,
    };
    What::JobStart(Box::new(JobStart {
        version: OsBytes::from("0.1.0"),
        job: JobId([7; 16]),
        host: OsBytes::from("login"),
        world_size: 6,
        hosts,
        apps: vec![app],
        contain: Contain::Auto,
        on_failure: OnFailure::Continue,
        grace: Span::from_secs(5),
        timeout: None,
        restarts: Default::default(),
        min_hosts: Some(2),
        master_store: Holder::Rank0(ForRank0::NotPython),
    }))
}

/// A view that knows the job and its hosts.
fn log_view(tone: Tone) -> LogView {
    let names = (0..6).map(|n| format!("h{n}"));
    let mut view = LogView::new(names, tone, false);
    assert_eq!(view.text(&record(start()), By::Sender), "");
    view
}

/// The lines of these facts, of a job each.
fn said(facts: impl IntoIterator<Item = What>, tone: Tone, by: By) -> String {
    facts.into_iter().map(|what| log_view(tone).text(&record(what), by)).collect()
}

fn hello(note: &str, usual: bool) -> Hello {
    Hello { note: note.into(), usual, port_reserved: false, ..Hello::of(Tier::T3) }
}

fn interrupted(sig: Signal, grace: Span, ranks: RanksState) -> What {
    What::Ending { cause: Cause::Signal(sig), sent: Some(sig), grace, ranks }
}

fn signal(sig: Signal, answer: Answer) -> What {
    What::Signal { sig, answer }
}

fn sink(std: Std, errno: Option<i32>, end: SinkEnd) -> What {
    What::SinkLost { std, errno, end }
}

fn awaits(cause: Cause) -> What {
    What::News(JobNews::EndingAwaits { cause, kill_in: Span::from_secs(4) })
}

fn nodes(nodes: &[u32]) -> Vec<NodeId> {
    nodes.iter().copied().map(NodeId::new).collect()
}

fn slices(is_news: bool) -> What {
    What::Slices(Box::new(SlicesTaken {
        slices: ["a", "e"].map(OsBytes::from).to_vec(),
        spares: Vec::new(),
        wanted_spares: 1,
        world_size: 4,
        procs: vec![4],
        is_news,
    }))
}

fn one_machine(hosts: &[u32], more: u32) -> What {
    What::News(JobNews::OneMachine { nodes: nodes(hosts), more })
}

#[test]
fn lines_read_as_before() {
    let (grace, ms) = (Span::from_secs(5), Span::from_millis);
    let unread = SinkEnd::Unread { ends_job: true };
    let passed_on = Status::Signaled { sig: Signal::USR1, core: false };
    let facts = [
        interrupted(Signal::INT, grace, RanksState::Running),
        interrupted(Signal::TERM, ms(1500), RanksState::Running),
        interrupted(Signal::INT, grace, RanksState::NotStarted { awaited: nodes(&[3]) }),
        signal(Signal::INT, Answer::Noted { kill_in: Some(ms(3900)) }),
        signal(Signal::INT, Answer::Killed),
        What::News(JobNews::HostAwaited { node: NodeId::new(2), within: Span::from_secs(36) }),
        What::News(JobNews::HostsSilent { nodes: nodes(&[1, 2, 3]), within: ms(30_300) }),
        awaits(Cause::Timeout { limit: Span::from_secs(60) }),
        awaits(Cause::Rank { rank: RANK, status: Status::Exited(3) }),
        signal(Signal::INT, Answer::Left),
        signal(Signal::HUP, Answer::Unwritten { patience: Span::from_secs(2) }),
        sink(Std::Out, None, unread),
        sink(Std::Out, Some(5), SinkEnd::HungUp),
        sink(Std::In, Some(21), SinkEnd::ReadFailed),
        sink(Std::In, Some(28), SinkEnd::Undelivered),
        sink(Std::Out, Some(28), SinkEnd::WriteFailed),
        What::OutputEnd { lost: 2048, broken: 1 },
        What::News(JobNews::Continuing { rank: RANK, status: Status::Exited(3) }),
        What::HostReady { node: NODE, hello: hello("no right to unshare", false) },
        one_machine(&[0, 1], 0),
        one_machine(&[0, 1, 2, 3, 4, 5], 2),
        What::News(JobNews::LeadContinues {
            node: NODE,
            lost: rlaunch_core::events::Lost::Agent(rlaunch_core::events::CloseReason::Eof),
        }),
        What::News(JobNews::EndingDeferred { rank: RANK, status: passed_on, end_in: Span::from_secs(4) }),
    ];
    assert_eq!(said(facts, Tone::Normal, By::Key), include_str!("../../../../tests/golden/report/lines.txt"));
}

#[test]
fn malformed_message_is_quoted() {
    for (bytes, quoted) in [
        (&b"tick 1\ntick 2\n"[..], "'tick 1\\ntick 2'"),
        (&b"tick\n\x10\0\0\0\x05\0"[..], "'tick'"),
        (&b"\0\x01\xff"[..], "'\\u{0}\\u{1}\\xff'"),
    ] {
        let said = no_message("node1", bytes);
        assert!(
            said.starts_with(&format!(
                "rlaunch: node1 printed unexpected text among the messages of its agent: {quoted}\n  try "
            )),
            "{said}"
        );
    }
}

#[test]
fn a_signal_that_no_key_made_is_named() {
    let facts = [
        interrupted(Signal::INT, Span::from_secs(5), RanksState::Running),
        signal(Signal::QUIT, Answer::Killed),
        signal(Signal::INT, Answer::Left),
    ];
    assert_eq!(
        said(facts, Tone::Normal, By::Sender),
        include_str!("../../../../tests/golden/report/lines_of_a_sender.txt")
    );
}

#[test]
fn each_limit_of_the_store_is_reported_once() {
    let mut view = log_view(Tone::Quiet);
    let mut lines = |limit| {
        let met = Met::at(limit, b"model", 9, 8);
        view.text(&record(node_news(NodeNews::Store(StoreNews::Limit { met, count: 1 }))), By::Sender).lines().count()
    };
    assert_eq!([Limit::Value, Limit::Value, Limit::Keys].map(&mut lines), [2, 0, 2]);
}

#[test]
fn unwritten_output_is_no_news_to_a_reader_that_left() {
    for (cause, lines) in [(Cause::ReaderClosed(Std::Out), 0), (Cause::Timeout { limit: SECOND }, 1)] {
        let mut view = log_view(Tone::Normal);
        let ending = What::Ending { cause, sent: None, grace: SECOND, ranks: RanksState::Running };
        assert_eq!(view.text(&record(ending), By::Sender), "");
        let text = view.text(&record(What::OutputEnd { lost: 9, broken: 0 }), By::Sender);
        assert_eq!(text.lines().count(), lines);
    }
}

#[test]
fn restart_names_the_lost_host_and_the_remaining_ranks() {
    let restart = |lost, fewer| What::Restart {
        restart: 1,
        why: RestartCause::Failed { rank: RANK, node: NODE, status: Status::Exited(3), lost },
        lived: SECOND,
        delay: Span::ZERO,
        fewer,
    };
    let fewer = || Some(Box::new(Fewer { without: nodes(&[0, 1]), ranks: 4 }));
    let lost = rlaunch_core::events::Lost::NoHeartbeat;
    let facts = [restart(None, None), restart(Some(lost), fewer()), restart(None, fewer())];
    assert_eq!(
        said(facts, Tone::Quiet, By::Sender),
        include_str!("../../../../tests/golden/report/lines_of_restarts.txt")
    );
}

fn node_news(news: NodeNews) -> What {
    What::NodeNews { node: NODE, news }
}

fn error() -> SpawnError {
    SpawnError { step: SpawnStep::Exec, errno: 2, path: "./tran".into(), found: Found::Nothing }
}

/// Facts that have no line, each with its name in the log.
fn without_a_line() -> Vec<What> {
    let rank_started = What::RankStarted {
        rank: RANK,
        node: NODE,
        local_rank: LocalRank::new(2),
        group: None,
        pid: 7,
        at: Span::ZERO,
    };
    let (at, alive_at, usage) = (Span::ZERO, Span::ZERO, Usage::default());
    let timeout = Cause::Timeout { limit: SECOND };
    vec![
        start(),
        What::HostReady { node: NODE, hello: hello("", false) },
        What::HostReady { node: NODE, hello: hello("was asked for", true) },
        What::HostRefused { node: NODE, why: NodeRefusal::NoPort },
        What::HostFailed { node: NODE, why: HostFailure::default() },
        What::HostLost { node: NODE, lost: rlaunch_core::events::Lost::NoHeartbeat },
        What::HostDone { node: NODE, left: Some(0), named: vec![] },
        What::LeftOut { nodes: nodes(&[1]), world_size: 4, procs: vec![4], is_known: true },
        What::Together { nodes: nodes(&[0, 1]) },
        node_news(NodeNews::Store(StoreNews::Refused { from: "10.0.0.9:1".into(), count: 1 })),
        node_news(NodeNews::Mpi(MpiNews::Used { wire: MpiWire::Pmi1 })),
        node_news(NodeNews::Mpi(MpiNews::Loaded { library: "libmpi.so.40".into() })),
        node_news(NodeNews::Mpi(MpiNews::Help { count: 3, file: "help-mpi.txt".into(), topic: "no route".into() })),
        What::FileLost { rank: RANK, std: Std::Out, bytes: 1 },
        rank_started,
        What::RankFailed { rank: RANK, node: NODE, error: error(), tried: Tried::First },
        What::RankExited { rank: RANK, status: Status::Exited(0), at, alive_at, asked: false, usage },
        What::RankFacts { rank: RANK, facts: Facts::default() },
        signal(Signal::INT, Answer::Ended),
        signal(Signal::USR1, Answer::Forwarded),
        signal(Signal::INT, Answer::Ignored),
        What::Ending { cause: timeout, sent: None, grace: SECOND, ranks: RanksState::Running },
        interrupted(Signal::INT, SECOND, RanksState::Exited),
        What::Clearing { why: RestartCause::of_rank(RANK, NODE, Status::Exited(1)), grace: SECOND },
        slices(false),
        What::RoundsOver(Box::new(RoundsEnd::Done)),
        What::StreamEnd { rank: RANK, std: Std::Out, total: 1 },
        sink(Std::Out, None, SinkEnd::Unread { ends_job: false }),
        What::OutputEnd { lost: 0, broken: 0 },
        What::LogLost { records: 1 },
    ]
}

fn crowded_world() -> What {
    What::WorldStart(Box::new(WorldLine {
        world: WorldId::new(1),
        group: "gen".into(),
        first: RANK,
        apps: Vec::new(),
        asker: None,
        is_crowded: true,
        forgotten: RankSet::new(),
    }))
}

/// Facts with a line that explains how a job runs: `-q` leaves it out.
fn lock_of(user: u32) -> NodeNews {
    let (path, found) = ("/tmp/a".into(), LockFound::Foreign { uid: user });
    NodeNews::Devices(DeviceNews::LockFile { path, found, user: OsBytes::default(), command: OsBytes::default() })
}

const fn carrier(news: CarrierNews) -> What {
    What::News(JobNews::Carrier(news))
}

fn fell_back(why: FallBack) -> What {
    carrier(CarrierNews::FellBack { nodes: nodes(&[1]), why })
}

fn notes() -> Vec<What> {
    let addr = || OsBytes::from("10.0.0.1");
    let fault = || Fault { initial: RANK, kind: FaultKind::Hang, text: OsBytes::default() };
    let round = |note| What::Round { node: None, note: Box::new(note) };
    let began = RoundNote::Began {
        round: Round::new(1),
        faults: vec![fault()],
        world_size: 6,
        active_world_size: 6,
        discarded: RankSet::new(),
        reserve: RankSet::new(),
        phases: [SECOND; 3],
    };
    vec![
        crowded_world(),
        node_news(NodeNews::WarningNote(WarningNote::Planned(WallNs(0)))),
        node_news(NodeNews::WarningNote(WarningNote::NoProbe(127))),
        What::HostReady { node: NODE, hello: hello("no right to unshare", false) },
        round(began),
        round(RoundNote::NoRoundNeeded { fault: fault() }),
        round(RoundNote::Respawned { round: Round::new(1), initial: RANK, pid: 7 }),
        round(RoundNote::Awaited { round: None, step: Step::Register, ranks: [RANK].into_iter().collect() }),
        round(RoundNote::Remark(Remark::MoreEnded)),
        What::OutputEnd { lost: 0, broken: 1 },
        What::News(JobNews::PortUnreserved { port: 20_000 }),
        What::News(JobNews::LimitLowered { lowered: Lowered { on: Resource::Core, to: 0 }, nodes: nodes(&[0]) }),
        one_machine(&[0, 1], 0),
        What::News(JobNews::AddrDetour { addr: addr(), instead_of: addr(), node: NODE, missed_by: nodes(&[1]) }),
        What::News(JobNews::StoreLeft { addr: addr() }),
        fell_back(FallBack::Unconnected { reason: "10.0.0.1:4000: no".into() }),
        carrier(CarrierNews::StepWaits {
            words: "srun: error: x\nsrun: Job step creation temporarily disabled, retrying".into(),
        }),
        fell_back(FallBack::Silent { waited: SECOND, words: OsBytes::default() }),
        fell_back(FallBack::Silent { waited: SECOND, words: "srun: queued\n".into() }),
        node_news(NodeNews::Store(StoreNews::Unused { at: addr() })),
        node_news(NodeNews::Store(StoreNews::Foreign { from: addr() })),
        node_news(NodeNews::Binding(BindingNews::NotBound(Unbound { ranks: 4, units: 2, level: Level::Core }))),
        node_news(NodeNews::Binding(BindingNews::OneCpu { ranks: 2, cpu: 0, online: 8 })),
        node_news(NodeNews::Mpi(MpiNews::Waits { waiting: vec![(0, 0)], missing: vec![(1, 2)], apart: vec![] })),
        node_news(NodeNews::Mpi(MpiNews::LookupWaits { rank: Rank::new(0), name: "1.0:2:accept".into() })),
        node_news(NodeNews::Devices(DeviceNews::HolderEnded {
            devices: "/dev/vfio/0".into(),
            pid: 7,
            user: "alice".into(),
            command: "python3 a.py".into(),
            killed: true,
        })),
        node_news(lock_of(9)),
        node_news(NodeNews::LeftEnded { count: 2, pid: 7, comm: "sleep".into() }),
        What::News(JobNews::Slices(SliceNews::Larger { size: 4, running: 2, restarts: false })),
        What::News(JobNews::Slices(SliceNews::Larger { size: 4, running: 2, restarts: true })),
        What::News(JobNews::Slices(SliceNews::Found {
            slice: "f".into(),
            nodes: nodes(&[1]),
            hosts: vec!["n9".into()],
        })),
        What::News(JobNews::Slices(SliceNews::HostBack { node: NODE })),
    ]
}

fn holder() -> DeviceHolder {
    DeviceHolder {
        devices: "/dev/vfio/0".into(),
        pid: 7,
        user: "alice".into(),
        command: "python3 a.py".into(),
        age: Span::from_secs(1),
        unit: OsBytes::default(),
        job: OsBytes::default(),
        kept: Kept::Policy,
        state: b'D',
        wchan: "vfio_release".into(),
    }
}

/// Facts with a line that every user has to read.
fn messages() -> Vec<What> {
    let fault = Fault { initial: RANK, kind: FaultKind::Hang, text: OsBytes::default() };
    let given = RoundsEnd::Impossible { fault, reason: EndReason::NoHealthyRank };
    let status = Status::Exited(3);
    let (rank, within) = (RANK, SECOND);
    let refused = NodeRefusal::Program { app: AppIndex::new(0), error: error() };
    let end = What::JobEnd {
        cause: Cause::Refused { node: NODE, why: refused },
        exit: Ending::Code(125),
        left: Some(0),
        launch: None,
        never_started: Some(0),
    };
    let why = RestartCause::of_rank(rank, NODE, status);
    let restart = What::Restart { restart: 1, why, lived: SECOND, delay: SECOND, fewer: None };
    let mut all = vec![
        What::LeftOut { nodes: nodes(&[1]), world_size: 4, procs: vec![4], is_known: false },
        What::RankFailed { rank, node: NODE, error: error(), tried: Tried::Again { several_hosts: false } },
        signal(Signal::INT, Answer::Noted { kill_in: None }),
        signal(Signal::INT, Answer::Unwritten { patience: SECOND }),
        signal(Signal::INT, Answer::Killed),
        signal(Signal::INT, Answer::Left),
        interrupted(Signal::INT, Span::ZERO, RanksState::Running),
        interrupted(Signal::INT, SECOND, RanksState::Between),
        interrupted(Signal::INT, SECOND, RanksState::NotStarted { awaited: nodes(&[1]) }),
        restart,
        What::Round { node: None, note: Box::new(RoundNote::Refused { text: "no".into() }) },
        What::RoundsOver(Box::new(given)),
        sink(Std::Out, None, SinkEnd::Unread { ends_job: true }),
        sink(Std::Out, Some(5), SinkEnd::HungUp),
        sink(Std::Out, Some(5), SinkEnd::WriteFailed),
        sink(Std::In, Some(5), SinkEnd::ReadFailed),
        sink(Std::In, Some(5), SinkEnd::Undelivered),
        What::OutputEnd { lost: 1, broken: 0 },
        What::News(JobNews::SchedulerSignal { scheduler: Scheduler::Slurm, sig: Signal::USR1, node: NODE }),
        warned_host(),
        carrier(CarrierNews::StrangerRefused { address: "10.0.0.9".into(), why: Refusal::Twice }),
        carrier(CarrierNews::SrunEnded { nodes: nodes(&[0]), end: CarrierEnd::Signal(9), words: "srun: x".into() }),
        What::News(JobNews::Continuing { rank, status }),
        What::News(JobNews::LeadContinues { node: NODE, lost: rlaunch_core::events::Lost::Init }),
        What::News(JobNews::EndingDeferred { rank, status, end_in: SECOND }),
        awaits(Cause::Success),
        What::News(JobNews::NoProgress { rank, alike: 5 }),
        What::News(JobNews::NotClear),
        What::News(JobNews::NotStartedAgain { why: NoRestart::UsedUp }),
        What::News(JobNews::HostAwaited { node: NODE, within }),
        What::News(JobNews::HostsSilent { nodes: nodes(&[1]), within }),
        What::News(JobNews::FilesLost { bytes: 7 }),
        What::News(JobNews::PoolLost { pool: "p".into() }),
        end,
    ];
    all.extend(features::of_hosts());
    all.extend(features::of_slices(within));
    all.extend(features::of_discovery());
    all.extend(features::of_mpi());
    all
}

fn warned_host() -> What {
    let (source, response) = (WarningSource::Preempted, Response::Ends { grace: SECOND });
    What::News(JobNews::HostWarned { node: NODE, source, response })
}

/// The match in [`LogView::lines`] has every fact. This list says for each of them what the user reads.
#[test]
fn every_fact_has_a_line_or_is_listed_without_one() {
    let lines = |what: &What, tone| said([what.clone()], tone, By::Sender).matches("rlaunch: ").count().min(1);
    let tones = [Tone::Quiet, Tone::Normal, Tone::Verbose];
    for (facts, expected) in [(without_a_line(), [0, 0, 0]), (notes(), [0, 1, 1])] {
        for what in facts {
            assert_eq!(tones.map(|tone| lines(&what, tone)), expected, "{what:?}");
        }
    }
    for what in messages() {
        let texts = tones.map(|tone| said([what.clone()], tone, By::Sender));
        assert!(texts.iter().all(|text| !text.is_empty()), "{what:?}: {texts:?}");
    }
    // docs/reference/events.md names all of them.
    let named = names(&[without_a_line(), notes(), messages()].concat());
    let page = include_str!("../../../../docs/reference/events.md");
    let rows = page
        .lines()
        .skip_while(|line| *line != "## Records")
        .take_while(|line| !line.starts_with("## Fields by record"));
    let documented: BTreeSet<String> =
        rows.filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned())).collect();
    assert_eq!(named, documented);
}

/// Names of these facts in the log.
fn names(facts: &[What]) -> BTreeSet<String> {
    let name = |what: &What| {
        let line: serde_json::Value = serde_json::from_str(&rlaunch_core::events::line(&record(what.clone()))).unwrap();
        line["ev"].as_str().unwrap().to_owned()
    };
    facts.iter().map(name).collect()
}

/// A program that imports for longer is not misled: the line has what was observed, and a condition.
#[test]
fn unused_store_has_one_line_per_job_with_the_port_of_the_arguments() {
    let unused = |view: &mut LogView| {
        let news = NodeNews::Store(StoreNews::Unused { at: "127.0.0.1:20000".into() });
        view.text(&record(node_news(news)), By::Sender)
    };
    let head = "rlaunch: no rank has connected to the TCPStore at 127.0.0.1:20000 within 10s\n  try     --master-store rank0, if the program";
    let mut view = log_view(Tone::Normal);
    assert_eq!(unused(&mut view), format!("{head} opens a store of its own\n"));
    assert_eq!(unused(&mut view), "", "the next start of all ranks");
    let begun = |words: &[&str]| {
        let What::JobStart(mut begun) = start() else { unreachable!() };
        begun.apps[0].argv = words.iter().collect();
        begun.master_store = Holder::Agent(ForAgent::WithoutTorch);
        let mut view = LogView::new(["h0".to_owned()], Tone::Normal, false);
        view.text(&record(What::JobStart(begun)), By::Sender);
        view
    };
    assert_eq!(unused(&mut begun(&["python3", "t.py"])), "", "it may need no store");
    let mut view = begun(&["python3", "t.py", "--dist-url", "tcp://127.0.0.1:23456"]);
    assert_eq!(unused(&mut view), format!("{head} meets at port 23456 instead\n"));
}

#[test]
fn repeated_help_messages_of_all_hosts_are_one_line_before_the_report() {
    let help = |count, topic: &str| {
        node_news(NodeNews::Mpi(MpiNews::Help { count, file: "help.txt".into(), topic: topic.into() }))
    };
    let end = || messages().into_iter().find(|what| matches!(what, What::JobEnd { .. })).unwrap();
    let text = |tone| {
        let mut view = log_view(tone);
        let records = [help(1, "a"), help(1, "b"), help(2, "a"), end()];
        records.map(|what| view.text(&record(what), By::Sender)).concat()
    };
    let expected = "rlaunch: Open MPI sent the help message help.txt / a 3 more times\n\
                    rlaunch: Open MPI sent the help message help.txt / b 1 more time\n";
    assert!(text(Tone::Normal).starts_with(expected), "{}", text(Tone::Normal));
    assert!(!text(Tone::Quiet).contains("help.txt"));
}

#[test]
fn rank_that_ended_in_the_middle_of_mpi_is_named_once_for_each_start() {
    let unfinished = |rank| node_news(NodeNews::Mpi(MpiNews::Unfinished { rank: Rank::new(rank), pid: 4711 }));
    let mut view = log_view(Tone::Quiet);
    let text = [3, 1].map(|rank| view.text(&record(unfinished(rank)), By::Sender));
    let line = |rank: u32| format!("rlaunch: rank {rank} exited after MPI_Init and before MPI_Finalize\n");
    assert!(text.concat().starts_with(&line(3)) && text[1].is_empty(), "{text:?}");
    let restart = messages().into_iter().find(|what| matches!(what, What::Restart { .. })).unwrap();
    view.text(&record(restart), By::Sender);
    let text = view.text(&record(unfinished(1)), By::Sender);
    assert!(text.starts_with(&line(1)), "{text}");
}

#[test]
fn worlds_without_free_slots_are_named_once_and_with_the_option_that_gives_more() {
    let mut view = log_view(Tone::Normal).of_job(false, true);
    assert!(view.text(&record(crowded_world()), By::Sender).contains("\n  try     --lead, with which all hosts"));
    let mut view = log_view(Tone::Normal);
    let text = [crowded_world(), crowded_world()].map(|what| view.text(&record(what), By::Sender));
    assert!(text[0].ends_with(" has more ranks than there are free slots: ranks share processors\n"), "{text:?}");
    assert_eq!(text[1], "");
}

#[test]
fn processes_that_ranks_have_left_running_are_named_once() {
    let left = node_news(NodeNews::LeftEnded { count: 1, pid: 7, comm: "sleep".into() });
    let lines = |tone| {
        let mut view = log_view(tone);
        let text = [0, 1].map(|_| view.text(&record(left.clone()), By::Sender)).concat();
        text.matches("that a rank had left running: sleep, pid 7").count()
    };
    assert_eq!([Tone::Quiet, Tone::Normal, Tone::Verbose].map(lines), [0, 1, 2]);
}
