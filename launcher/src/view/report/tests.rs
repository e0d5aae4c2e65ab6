//! Whole reports, compared with files: `RLAUNCH_BLESS=1` writes them anew, for review.

mod hosts;

use super::*;
use crate::view::log_view::LogView;
use crate::view::notices::By;
use crate::view::path_search::Around;
use hosts::on_hosts;
use rlaunch_base::id::{JobId, LocalRank, NodeId, Round, Std};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::signal::Signal;
use rlaunch_base::time::WallNs;
use rlaunch_core::events::{
    Answer, AppLine, CloseReason, JobNews, JobStart, RanksState, Record, RestartCause, Tried, What,
};
use rlaunch_core::report::fold;
use rlaunch_plan::allocation::Scheduler;
use rlaunch_plan::bootstrap::{CarrierEnd, HostFailure};
use rlaunch_protocol::master_store::{ForRank0, Holder};
use rlaunch_protocol::rank_fault::{Fault, FaultKind, Leave};
use rlaunch_protocol::settings::{Contain, OnFailure};
use rlaunch_protocol::wire::to_root::{Found, HostUse, Leftover, NodeRefusal, SpawnError, SpawnStep, Usage};
use rlaunch_restart::{EndReason, RoundNote, RoundsEnd, SetLimit};

struct Log(Vec<Record>);

impl Log {
    /// All ranks started, at 6 ms.
    fn running(ranks: u32) -> Self {
        let mut log = Self::empty(ranks);
        for n in 0..ranks {
            let (rank, local_rank) = (Rank::new(n), LocalRank::new(n));
            let at = Span::from_millis(6);
            log.at(7, What::RankStarted { rank, node: NodeId::new(0), local_rank, group: None, pid: 40_910 + n, at });
        }
        log
    }

    fn empty(ranks: u32) -> Self {
        let group = OsBytes::default();
        let argv = ["./train", "--lr", "1e-4"].iter().collect();
        let start = JobStart {
            version: OsBytes::from("0.1.0"),
            job: JobId([0x7f; 16]),
            host: OsBytes::from("node03"),
            world_size: ranks,
            hosts: vec![OsBytes::from("node03")],
            apps: vec![AppLine { procs: ranks, group, argv, wdir: None, bytes: 310 << 10, longest: 300 << 10 }],
            contain: Contain::Auto,
            on_failure: OnFailure::Kill,
            grace: Span::from_secs(5),
            timeout: None,
            restarts: Default::default(),
            min_hosts: None,
            master_store: Holder::Rank0(ForRank0::NotPython),
        };
        let mut log = Self(vec![]);
        log.at(0, What::JobStart(Box::new(start)));
        log
    }

    fn at(&mut self, ms: u64, what: What) {
        self.0.push(Record { t: Span::from_millis(ms), wall: WallNs(0), generation: 0, round: None, what });
    }

    fn exits(&mut self, rank: u32, status: Status, ms: u64) {
        let (rank, at) = (Rank::new(rank), Span::from_millis(ms));
        let usage = Usage { max_rss_kib: 3 << 19, ..Usage::default() };
        let asked = self.0.iter().any(|record| matches!(record.what, What::Ending { .. }));
        self.at(ms, What::RankExited { rank, status, at, alive_at: at, asked, usage });
    }

    /// All ranks run, in a round.
    fn in_round(ranks: u32) -> Self {
        let mut log = Self::running(ranks);
        log.round(8, 0, None, (ranks, &[]));
        log
    }

    /// A round begins because this rank has ended.
    fn round(&mut self, ms: u64, round: u32, fault: Option<Fault>, (world_size, home): (u32, &[u32])) {
        let note = RoundNote::Began {
            round: Round::new(round),
            faults: fault.into_iter().collect(),
            world_size,
            active_world_size: world_size,
            discarded: home.iter().copied().map(Rank::new).collect::<RankSet>(),
            reserve: RankSet::new(),
            phases: [Span::ZERO, Span::from_millis(2), Span::ZERO],
        };
        self.at(ms, What::Round { node: None, note: Box::new(note) });
    }

    /// Another process of a rank.
    fn again(&mut self, ms: u64, initial: u32) {
        let (rank, local_rank, at) = (Rank::new(initial), LocalRank::new(initial), Span::from_millis(ms));
        let (node, group, pid) = (NodeId::new(0), None, 50_000 + initial);
        self.at(ms, What::RankStarted { rank, node, local_rank, group, pid, at });
        let note = RoundNote::Respawned { round: Round::new(1), initial: rank, pid: 50_000 + initial };
        self.at(ms, What::Round { node: None, note: Box::new(note) });
    }

    fn begins(&mut self, ms: u64, cause: &Cause, sent: Option<Signal>) {
        let ranks = RanksState::Running;
        self.at(ms, What::Ending { cause: cause.clone(), sent, grace: Span::from_secs(5), ranks });
    }

    fn ends(&mut self, ms: u64, cause: Cause, left: Option<u32>) -> Report {
        let exit = cause.exit(false);
        let launch = fold(&self.0).launch();
        self.at(ms, What::JobEnd { cause, exit, left, launch, never_started: Some(0) });
        for record in &self.0 {
            let line: serde_json::Value = serde_json::from_str(&rlaunch_core::events::line(record)).unwrap();
            assert_eq!(line["v"], 1);
        }
        fold(&self.0)
    }
}

fn rank(rank: u32, status: Status) -> Cause {
    Cause::Rank { rank: Rank::new(rank), status }
}

const TERM: Status = Status::Signaled { sig: Signal::TERM, core: false };
const KILL: Status = Status::Signaled { sig: Signal::KILL, core: false };

fn check(name: &str, text: &str) {
    let path = format!("{}/../tests/golden/report/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("RLAUNCH_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap_or_default(), "{name}");
}

fn shows(name: &str, report: &Report) {
    check(name, &render(report, &Around::default()));
}

fn launch(name: &str, step: SpawnStep, errno: i32, path: &str, found: Found, around: &Around) {
    let mut log = Log::empty(4);
    let error = SpawnError { step, errno, path: OsBytes::from(path), found };
    let cause = Cause::Spawn { rank: Rank::new(0), error };
    log.begins(5, &cause, None);
    check(name, &render(&log.ends(9, cause, Some(0)), around));
}

#[test]
fn success() {
    let mut log = Log::running(4);
    (0..4).for_each(|n| log.exits(n, Status::Exited(0), 12_390));
    let report = log.ends(12_400, Cause::Success, Some(0));
    shows("success", &report);
    assert!(is_shown(&report, Tone::Normal, true) && is_shown(&report, Tone::Verbose, false));
    assert!(!is_shown(&report, Tone::Normal, false) && !is_shown(&report, Tone::Quiet, true));
}

#[test]
fn rank_that_ran_and_failed_to_restart_has_run() {
    let mut log = Log::running(2);
    log.exits(1, KILL, 9_000);
    let error = SpawnError { step: SpawnStep::Exec, errno: 2, path: OsBytes::from("./train"), found: Found::Nothing };
    log.at(9_010, What::RankFailed { rank: Rank::new(1), node: NodeId::new(0), error, tried: Tried::First });
    log.begins(9_500, &Cause::Signal(Signal::TERM), Some(Signal::TERM));
    log.exits(0, TERM, 9_600);
    let shown = render(&log.ends(9_610, Cause::Signal(Signal::TERM), Some(0)), &Around::default());
    assert!(!shown.contains("never started"), "{shown}");
}

#[test]
fn a_crash() {
    let status = Status::Signaled { sig: Signal::SEGV, core: true };
    let mut log = Log::running(4);
    log.exits(2, status, 8_106);
    log.begins(8_107, &rank(2, status), Some(Signal::TERM));
    let tail = "step 41 loss nan\n/dev/vfio/73: Device or resource busy\nSegmentation fault\n";
    let core = Some(OsBytes::from("/var/crash/core.40912"));
    let facts = Facts { tail: OsBytes::from(tail), core, ..Facts::default() };
    log.at(8_110, What::RankFacts { rank: Rank::new(2), facts });
    [0, 1, 3].into_iter().for_each(|n| log.exits(n, TERM, 8_307));
    let report = log.ends(8_310, rank(2, status), Some(0));
    shows("crash", &report);
    assert!(is_shown(&report, Tone::Quiet, false));
}

#[test]
fn signal_that_was_passed_on_has_a_handler_in_the_language_of_the_program() {
    let report = |argv: &[&str]| {
        let mut log = Log::running(1);
        if let What::JobStart(start) = &mut log.0[0].what {
            start.apps[0].argv = argv.iter().collect();
        }
        let status = Status::Signaled { sig: Signal::USR1, core: false };
        log.at(50, What::Signal { sig: Signal::USR1, answer: Answer::Forwarded });
        log.exits(0, status, 106);
        render(&log.ends(107, rank(0, status), Some(0)), &Around::default())
    };
    let python = report(&["python3", "-u", "t.py"]);
    assert!(python.contains("try      faulthandler.register(signal.SIGUSR1) in the program"), "{python}");
    let script = report(&["./run.sh"]);
    assert!(script.contains("(trap : USR1)") && !script.contains("faulthandler"), "{script}");
}

#[test]
fn one_rank_exits() {
    let mut log = Log::running(1);
    log.exits(0, Status::Exited(3), 106);
    shows("exit", &log.ends(107, rank(0, Status::Exited(3)), Some(0)));
}

#[test]
fn out_of_memory() {
    let mut log = Log::running(3);
    log.exits(1, KILL, 2_006);
    log.begins(2_006, &rank(1, KILL), Some(Signal::TERM));
    let use_of =
        |available| HostUse { available, total: 24 << 30, swap_free: 1 << 30, swap_total: 2 << 30, load: 1234 };
    let host = Some(use_of(3 << 29));
    let facts = Facts { oom_limit: Some(512 << 20), host, ..Facts::default() };
    // The memory is shown where it may explain the end of the rank.
    let low = Facts { host: Some(use_of((3 << 29) - 1)), ..Facts::default() };
    assert_eq!(memory(&Facts { host, ..Facts::default() }, Status::Exited(1), Some(&1)), None);
    assert!(
        memory(&low, Status::Exited(1), None)
            .is_some_and(|line| line.starts_with("then free on the host: 1.4 GiB of 24 GiB"))
    );
    log.at(2_007, What::RankFacts { rank: Rank::new(1), facts });
    log.exits(0, TERM, 2_010);
    log.exits(2, KILL, 7_006);
    shows("out_of_memory", &log.ends(7_010, rank(1, KILL), Some(0)));
}

#[test]
fn the_error_file_speaks() {
    let mut log = Log::running(2);
    log.exits(0, Status::Exited(1), 506);
    let tail = OsBytes::new([&b"x".repeat(TAIL - 9)[..], b"\nlast\x1b[2m"].concat());
    let file = br#"{"message":{"message":"RuntimeError: boom\nmore","extraInfo":{"timestamp":"1"}}}"#;
    let facts = Facts { tail, error_file: Some(OsBytes::from(&file[..])), ..Facts::default() };
    log.at(507, What::RankFacts { rank: Rank::new(0), facts });
    log.exits(1, Status::Exited(1), 600);
    shows("error_file", &log.ends(601, rank(0, Status::Exited(1)), Some(0)));
    assert_eq!(message(br#"{"message":"plain","timestamp":1}"#).as_deref(), Some("plain"));
    assert_eq!(message(b"no json\nat all").as_deref(), Some("no json"));
}

#[test]
fn interrupted() {
    let mut log = Log::running(4);
    log.begins(3_200, &Cause::Signal(Signal::INT), Some(Signal::INT));
    (0..4).for_each(|n| log.exits(n, Status::Exited(130), 3_206));
    shows("interrupted", &log.ends(3_210, Cause::Signal(Signal::INT), Some(0)));
    let cause = Cause::Signal(Signal::INT);
    let mut log = Log::empty(4);
    log.begins(900, &cause, None);
    shows("interrupted_before_the_start", &log.ends(910, cause.clone(), Some(0)));
    let mut log = Log::running(2);
    log.exits(1, Status::Exited(3), 506);
    let (rank, node, lived) = (Rank::new(1), NodeId::new(0), Span::from_millis(500));
    log.at(
        600,
        What::Restart {
            restart: 1,
            why: RestartCause::of_rank(rank, node, Status::Exited(3)),
            lived,
            delay: Span::from_secs(1),
            fewer: None,
        },
    );
    log.begins(900, &cause, None);
    shows("interrupted_in_a_pause", &log.ends(910, cause, Some(0)));
}

#[test]
fn timed_out_with_leftovers() {
    let cause = Cause::Timeout { limit: Span::from_secs(10) };
    let mut log = Log::running(2);
    log.begins(10_000, &cause, Some(Signal::TERM));
    log.exits(0, KILL, 15_000);
    let leftover = |pid| Leftover { pid, comm: OsBytes::from("train"), wchan: OsBytes::from("vfio_release") };
    let named = vec![leftover(40_911), Leftover { wchan: OsBytes::default(), ..leftover(40_999) }];
    log.at(15_500, What::HostDone { node: NodeId::new(0), left: Some(2), named });
    shows("timeout", &log.ends(15_600, cause, Some(2)));
}

#[test]
fn losses() {
    for (name, lost, left) in [
        ("lost_agent", Lost::Agent(CloseReason::Eof), Some(0)),
        ("lost_both", Lost::Agent(CloseReason::Eof), None),
        ("lost_guardian", Lost::Guardian, Some(0)),
    ] {
        let cause = Cause::Lost { node: NodeId::new(0), lost };
        let mut log = Log::running(4);
        log.begins(3_000, &cause, None);
        shows(name, &log.ends(3_010, cause, left));
    }
    let cause = Cause::Lost { node: NodeId::new(0), lost: Lost::Init };
    let mut log = Log::running(2);
    log.begins(3_000, &cause, None);
    (0..2).for_each(|n| log.exits(n, KILL, 2_999 + u64::from(n)));
    shows("lost_init", &log.ends(3_010, cause, Some(0)));
}

/// All of its ranks run.
fn running_on_hosts() -> Log {
    let mut log = on_hosts(None);
    for n in 0..8 {
        let (rank, node, local_rank) = (Rank::new(n), NodeId::new(n / 2), LocalRank::new(n % 2));
        log.at(7, What::RankStarted { rank, node, local_rank, group: None, pid: 4_710, at: Span::from_millis(6) });
    }
    log
}

/// A job on four hosts that ends because some of them were lost.
fn loses_hosts(name: &str, lost: Lost, nodes: &[u32], others: Lost) {
    let (first, nodes) = (NodeId::new(2), nodes.iter().copied().map(NodeId::new).collect::<Vec<_>>());
    let cause = Cause::Lost { node: first, lost };
    let mut log = running_on_hosts();
    log.at(9_500, What::HostLost { node: first, lost });
    log.begins(9_500, &cause, Some(Signal::TERM));
    (0..8).filter(|n| !nodes.contains(&NodeId::new(n / 2))).for_each(|n| log.exits(n, TERM, 9_600));
    for node in nodes.iter().copied().filter(|node| *node != first) {
        log.at(10_900, What::HostLost { node, lost: others });
    }
    if nodes.len() > 1 {
        log.at(10_900, What::Together { nodes });
    }
    shows(name, &log.ends(11_000, cause, None));
}

#[test]
fn hosts_that_were_lost_together_are_named_together() {
    let starved = Lost::Starved(Span::from_millis(9_030));
    let cut = Lost::Agent(CloseReason::Carrier(rlaunch_plan::bootstrap::CarrierKind::Ssh, CarrierEnd::Code(255)));
    loses_hosts("host_unheard", Lost::NoHeartbeat, &[2], cut);
    loses_hosts("hosts_unheard", Lost::NoHeartbeat, &[1, 2, 3], Lost::NoHeartbeat);
    loses_hosts("hosts_unheard_and_cut_off", Lost::NoHeartbeat, &[1, 2, 3], cut);
    loses_hosts("hosts_starved", starved, &[0, 1, 2, 3], starved);
    loses_hosts("hosts_cut_off", cut, &[0, 2, 3], cut);
}

/// The pool has ended, and its connections to the hosts with it.
#[test]
fn hosts_of_a_pool_that_is_gone_are_lost_for_that() {
    let cause = Cause::Lost { node: NodeId::new(2), lost: Lost::NoHeartbeat };
    let mut log = running_on_hosts();
    log.at(9_000, What::News(JobNews::PoolLost { pool: "p".into() }));
    log.at(9_500, What::HostLost { node: NodeId::new(2), lost: Lost::NoHeartbeat });
    log.begins(9_500, &cause, Some(Signal::TERM));
    log.at(10_900, What::Together { nodes: vec![NodeId::new(2), NodeId::new(3)] });
    shows("pool_gone", &log.ends(11_000, cause, None));
}

/// The facts about each host: also of those that were lost when the job was ending already.
#[test]
fn hosts_that_are_lost_one_after_the_other_are_all_named() {
    let mut log = running_on_hosts();
    let cause = Cause::Lost { node: NodeId::new(1), lost: Lost::NoHeartbeat };
    log.at(9_500, What::HostLost { node: NodeId::new(1), lost: Lost::NoHeartbeat });
    log.begins(9_500, &cause, Some(Signal::TERM));
    (0..2).for_each(|n| log.exits(n, TERM, 9_600));
    let mut over = |node, lost, left| {
        let node = NodeId::new(node);
        log.at(12_000, What::HostLost { node, lost });
        log.at(12_000, What::HostDone { node, left, named: vec![] });
    };
    over(1, Lost::NoHeartbeat, None);
    over(2, Lost::Agent(CloseReason::Eof), Some(0));
    over(3, Lost::NoHeartbeat, None);
    log.at(12_000, What::HostDone { node: NodeId::new(0), left: Some(0), named: vec![] });
    shows("hosts_lost_in_turn", &log.ends(12_000, cause, None));
}

#[test]
fn host_that_was_silent_when_a_rank_failed_is_reported_with_the_rank() {
    let cause = Cause::Rank { rank: Rank::new(0), status: Status::Exited(1) };
    let mut log = running_on_hosts();
    log.exits(0, Status::Exited(1), 9_500);
    log.begins(9_500, &cause, Some(Signal::TERM));
    (1..6).for_each(|n| log.exits(n, TERM, 9_600));
    log.at(15_500, What::HostLost { node: NodeId::new(3), lost: Lost::AgentMute });
    log.at(40_000, What::Together { nodes: vec![NodeId::new(3)] });
    shows("rank_after_silence", &log.ends(40_000, cause, None));
}

#[test]
fn report_is_not_shown_when_reader_has_left() {
    let cause = Cause::ReaderClosed(Std::Out);
    let mut log = Log::running(1);
    log.begins(3, &cause, Some(Signal::TERM));
    log.exits(0, TERM, 4);
    let report = log.ends(5, cause, Some(0));
    assert!(!is_shown(&report, Tone::Normal, true));
    shows("reader_closed", &report);
}

#[test]
fn launch_errors() {
    let near = Around { dir: "/home/u/p".into(), near: Some("./train".into()), ..Around::default() };
    let exec = |name, errno, path, found| launch(name, SpawnStep::Exec, errno, path, found, &Around::default());
    launch("no_such_file", SpawnStep::Exec, 2, "./tran", Found::Nothing, &near);
    let odd = Around { near: Some("./my train's".into()), ..near };
    launch("no_such_file_near_an_odd_one", SpawnStep::Exec, 2, "./my trains", Found::Nothing, &odd);
    exec("not_in_path", 2, "tran", Found::Nothing);
    exec("no_interpreter", 2, "./x.py", Found::File);
    exec("not_executable", 13, "./my train", Found::File);
    exec("directory", 13, "./data", Found::Dir);
    exec("empty", 8, "./empty", Found::Empty);
    exec("too_long", 7, "./train", Found::File);
    let wdir = Around { wdir: "--wdir", ..Around::default() };
    launch("no_wdir", SpawnStep::ChangeDir, 2, "/no/dir", Found::Nothing, &wdir);
    launch("no_descriptors", SpawnStep::Pipes, 24, "./train", Found::Nothing, &Around::default());
}

/// Other hosts describe a program with the words of this one.
#[test]
fn a_program_that_other_hosts_cannot_start() {
    let mut text = String::new();
    for (errno, path, found) in [
        (2, "./train", Found::Nothing),
        (2, "train", Found::Nothing),
        (2, "train.py", Found::Nothing),
        (2, "./train.py", Found::Nothing),
        (2, "", Found::Nothing),
        (13, "/etc/passwd", Found::File),
        (13, "./x.py", Found::File),
        (13, "/tmp", Found::Dir),
        (13, "/opt/train", Found::Nothing),
    ] {
        let error = SpawnError { step: SpawnStep::Exec, errno, path: OsBytes::from(path), found };
        let said = refusal(NodeRefusal::Program { app: rlaunch_base::id::AppIndex::new(0), error });
        text.push_str(&said.replace("  try     --min-hosts 3, to continue without it\n", ""));
    }
    check("programs_elsewhere", &text);
}

#[test]
fn an_interface_that_will_not_do() {
    let not = |has: &str| refusal(NodeRefusal::NoInterface { name: "lo".into(), has: has.into() });
    let said = [not("eth0 eth1"), not("")].concat();
    assert!(!said.contains("--min-hosts"), "that the next host has it, nobody knows");
    check("interfaces", &said);
}

#[test]
fn a_host_with_too_few_gpus() {
    let lacks = |each, needed, has| refusal(NodeRefusal::Gpus { each, needed, has });
    let said = [lacks(2, 8, Some(4)), lacks(1, 1, Some(0)), lacks(8, 8, Some(1)), lacks(1, 2, None)].concat();
    check("gpus", &said);
}

fn refusal(why: NodeRefusal) -> String {
    let (mut log, node) = (on_hosts(None), NodeId::new(1));
    log.at(210, What::HostRefused { node, why: why.clone() });
    let cause = Cause::Refused { node, why };
    log.begins(300, &cause, None);
    render(&log.ends(400, cause, Some(0)), &Around::default())
}

#[test]
fn a_launch_that_was_rolled_back() {
    let mut log = Log::running(3);
    let error = SpawnError { step: SpawnStep::Clone, errno: 11, path: OsBytes::from("./train"), found: Found::Nothing };
    let cause = Cause::Spawn { rank: Rank::new(2), error };
    log.begins(8, &cause, None);
    log.exits(0, KILL, 10);
    log.exits(1, KILL, 11);
    shows("pid_limit", &log.ends(12, cause, Some(0)));
}

#[test]
fn refusals() {
    let contain = NodeRefusal::Contain { errno: 1, step: OsBytes::from("unshare") };
    for (name, why) in [("no_namespace", contain), ("no_port", NodeRefusal::NoPort)] {
        let cause = Cause::Refused { node: NodeId::new(0), why };
        let mut log = Log::empty(2);
        log.begins(1, &cause, None);
        shows(name, &log.ends(2, cause, Some(0)));
    }
}

fn ended(initial: u32, status: Status) -> Fault {
    Fault { initial: Rank::new(initial), kind: FaultKind::Ended(status), text: OsBytes::default() }
}

/// A rank that failed in a round that another made good has not failed the job.
#[test]
fn a_loss_that_was_made_good_is_no_failure_at_the_end() {
    let mut log = Log::in_round(5);
    log.exits(1, Status::Exited(4), 1_000);
    log.round(1_002, 1, Some(ended(1, Status::Exited(4))), (3, &[4]));
    log.exits(4, Status::Exited(1), 1_100);
    log.exits(0, Status::Exited(5), 2_000);
    log.exits(2, Status::Exited(5), 2_000);
    let reason = EndReason::MinWorld { healthy: 1, limit: SetLimit { value: 2, is_option: true } };
    log.at(2_001, What::RoundsOver(Box::new(RoundsEnd::Impossible { fault: ended(0, Status::Exited(5)), reason })));
    log.begins(2_001, &rank(0, Status::Exited(5)), Some(Signal::TERM));
    log.exits(3, TERM, 2_010);
    shows("rounds", &log.ends(2_020, rank(0, Status::Exited(5)), Some(0)));
}

/// A program that catches `RestartAbort` may exit with 0. The job has failed all the same.
#[test]
fn report_shows_the_exit_code_of_the_rank() {
    let text = |kind, own| {
        let mut log = Log::in_round(1);
        let fault = Fault { initial: Rank::new(0), kind, text: OsBytes::default() };
        let given = RoundsEnd::Impossible { fault, reason: EndReason::NoHealthyRank };
        log.at(1_000, What::RoundsOver(Box::new(given)));
        log.exits(0, own, 2_000);
        log.begins(2_001, &rank(0, Status::Exited(1)), None);
        let report = log.ends(2_020, rank(0, Status::Exited(1)), Some(0));
        render(&report, &Around::default())
    };
    let left = text(FaultKind::Left(Leave::Abort), Status::Exited(0));
    assert!(left.starts_with("rlaunch: rank 0 failed: wants no restart, then exit 0 after "), "{left}");
    let early = text(FaultKind::Ended(Status::Exited(0)), Status::Exited(0));
    assert!(early.starts_with("rlaunch: rank 0 failed: exit 0 within its function after "), "{early}");
    let raised = text(FaultKind::Exception, Status::Exited(1));
    assert!(raised.starts_with("rlaunch: rank 0 failed: exit 1 after "), "{raised}");
}

#[test]
fn respawned_rank_that_succeeded_is_not_lost() {
    let mut log = Log::in_round(5);
    for n in [0, 1] {
        log.exits(n, Status::Exited(3), 1_000 + 10 * u64::from(n));
        log.round(1_002 + 10 * u64::from(n), n + 1, Some(ended(n, Status::Exited(3))), (4, &[]));
        log.again(1_005 + 10 * u64::from(n), n);
    }
    log.exits(1, Status::Exited(3), 1_500);
    (2..5).chain([0]).for_each(|n| log.exits(n, Status::Exited(0), 2_000));
    shows("rounds_came_back", &log.ends(2_020, Cause::Success, Some(0)));
    // A host is lost with its ranks, and one of them comes back on another host.
    let mut log = Log::in_round(4);
    if let Record { what: What::JobStart(start), .. } = &mut log.0[0] {
        start.hosts = ["node03", "node04"].map(OsBytes::from).to_vec();
    }
    let node = NodeId::new(1);
    for initial in [2, 3] {
        let (rank, local_rank, at) = (Rank::new(initial), LocalRank::new(initial - 2), Span::from_millis(6));
        log.at(9, What::RankStarted { rank, node, local_rank, group: None, pid: 4000 + initial, at });
    }
    log.at(1_000, What::HostLost { node, lost: Lost::NoHeartbeat });
    log.at(1_000, What::HostDone { node, left: None, named: Vec::new() });
    let lost = |initial| Fault { initial: Rank::new(initial), kind: FaultKind::HostLost, text: OsBytes::default() };
    log.round(1_002, 1, Some(lost(2)), (2, &[]));
    log.at(1_003, What::Round { node: None, note: Box::new(RoundNote::NoRoundNeeded { fault: lost(3) }) });
    log.again(1_005, 2);
    [0, 1, 2].into_iter().for_each(|n| log.exits(n, Status::Exited(0), 2_000));
    shows("rounds_host_lost", &log.ends(2_020, Cause::Success, Some(0)));
    // Whether rank 1 had come to take part is not known.
    let mut log = Log::in_round(2);
    log.exits(0, Status::Exited(3), 1_000);
    log.round(1_002, 1, Some(ended(0, Status::Exited(3))), (1, &[]));
    log.again(1_005, 0);
    log.begins(1_500, &Cause::Signal(Signal::TERM), Some(Signal::TERM));
    [0, 1].into_iter().for_each(|n| log.exits(n, TERM, 1_510));
    shows("rounds_started_again", &log.ends(1_520, Cause::Signal(Signal::TERM), Some(0)));
}

#[test]
fn usage_of_numactl_names_the_binding() {
    assert!(is_of_numactl(b"the old argument is deprecated.\nuse --cpunodebind or --physcpubind instead\nuse"));
    assert!(!is_of_numactl(b"numactl --physcpubind=1"));
}

#[test]
fn report_of_a_job_that_slurm_ended_names_the_commands_that_know_why() {
    let mut log = Log::running(2);
    let cause = Cause::Scheduler { scheduler: Scheduler::Slurm, sig: Signal::TERM };
    log.begins(1_000, &cause, None);
    [0, 1].into_iter().for_each(|n| log.exits(n, TERM, 1_010));
    let text = render(&log.ends(1_020, cause, Some(0)), &Around::default());
    assert!(text.starts_with("rlaunch: Slurm ended the job by SIGTERM after 1.0s"), "{text}");
    assert!(text.contains("  try      sacct -j $SLURM_JOB_ID"), "{text}");
}
