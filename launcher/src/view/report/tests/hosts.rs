//! Reports of jobs that lack hosts.

use super::*;
use rlaunch_base::capped::Capped;
use rlaunch_base::warnings::{Response, WarningSource};
use rlaunch_core::events::JobNews;
use rlaunch_plan::allocation::Scheduler;
use rlaunch_protocol::guard::devices::{DeviceHolder, Kept};

/// A job with two ranks on each of four hosts, of which so many have to be ready.
pub(super) fn on_hosts(least: Option<u32>) -> Log {
    let mut log = Log::empty(8);
    if let What::JobStart(start) = &mut log.0[0].what {
        start.hosts = (1..=4).map(|n| OsBytes::from(format!("node{n}"))).collect();
        start.min_hosts = least;
    }
    log
}

fn fails(log: &mut Log, node: u32) {
    let why = HostFailure {
        why: "nothing listens there".into(),
        words: format!("ssh: connect to host node{} port 22: Connection refused", node + 1).into(),
        hint: "start sshd there, or name its port".into(),
    };
    log.at(200, What::HostFailed { node: NodeId::new(node), why });
}

fn refuses(log: &mut Log, node: u32) {
    let error = SpawnError { step: SpawnStep::Exec, errno: 2, path: "/opt/train".into(), found: Found::Nothing };
    let why = NodeRefusal::Program { app: rlaunch_base::id::AppIndex::new(0), error };
    log.at(210, What::HostRefused { node: NodeId::new(node), why });
}

fn loses(log: &mut Log, node: u32) {
    log.at(220, What::HostLost { node: NodeId::new(node), lost: Lost::Agent(CloseReason::Eof) });
}

fn holds(log: &mut Log, node: u32) {
    let holder = DeviceHolder {
        devices: "/dev/vfio/0".into(),
        pid: 70 + node,
        user: "alice".into(),
        command: "python3 a.py".into(),
        age: Span::from_secs(65),
        unit: OsBytes::default(),
        job: OsBytes::default(),
        kept: Kept::Policy,
        state: b'S',
        wchan: OsBytes::default(),
    };
    let holders = Capped::chunks([holder]).pop().unwrap();
    let why = NodeRefusal::Devices { holders, more: 0, hidden: OsBytes::default() };
    log.at(210, What::HostRefused { node: NodeId::new(node), why });
}

/// The report of a job on these hosts, of which the first holds its TPU.
fn held_on(hosts: &[&str], cleans: bool) -> String {
    let mut log = on_hosts(None);
    if let What::JobStart(start) = &mut log.0[0].what {
        start.hosts = hosts.iter().map(|name| OsBytes::from(*name)).collect();
    }
    holds(&mut log, 0);
    let Some(What::HostRefused { why, .. }) = log.0.last().map(|record| record.what.clone()) else { panic!() };
    let cause = Cause::Refused { node: NodeId::new(0), why };
    log.begins(300, &cause, None);
    render(&log.ends(400, cause, Some(0)), &Around { cleans, ..Around::default() })
}

/// The rank of the host that was taken away was drained, and did not finish.
#[test]
fn drained_host_is_not_counted_among_finished_hosts() {
    let mut log = on_hosts(None);
    for n in 0..8 {
        let (rank, node, local_rank) = (Rank::new(n), NodeId::new(n / 2), LocalRank::new(n % 2));
        log.at(7, What::RankStarted { rank, node, local_rank, group: None, pid: 4_710, at: Span::from_millis(6) });
    }
    for node in [1, 3] {
        let (node, source, response) = (NodeId::new(node), WarningSource::Signal, Response::Drains);
        log.at(100, What::News(JobNews::HostWarned { node, source, response }));
    }
    (6..8).for_each(|n| log.exits(n, TERM, 200));
    (0..6).for_each(|n| log.exits(n, Status::Exited(0), 900));
    let text = render(&log.ends(1_000, Cause::Success, Some(0)), &Around::default());
    assert!(text.contains("on 3 of 4 hosts finished in"), "{text}");
}

/// The command is copied to the launcher's host, which is node03.
#[test]
fn command_that_ends_a_holder_names_the_host_unless_the_host_is_the_launchers() {
    for (hosts, at) in [(&["node1"][..], " -H node1"), (&["node03"], ""), (&["node03", "node1"], " -H node03")] {
        let text = held_on(hosts, false);
        assert!(text.contains(&format!("  try     rlaunch clean{at} --clean-devices own, to end it")), "{text}");
        assert!(text.contains("in use; nothing was started\n"), "{text}");
    }
}

#[test]
fn report_of_clean_names_no_option_that_clean_does_not_have() {
    let text = held_on(&["node1", "node2"], true);
    let row = "  node1   /dev/vfio/0  pid 70  alice  python3 a.py  for 1m 5s";
    let hint = "  try     rlaunch clean -H node1 --clean-devices own, to end it";
    assert_eq!(text, format!("error: the TPU of 1 of 2 hosts is in use\n{row}\n{hint}\n"));
    let mut log = on_hosts(None);
    fails(&mut log, 1);
    let text = render(&unreachable(log, 1), &Around { cleans: true, ..Around::default() });
    assert!(text.starts_with("error: 1 of 4 hosts cannot be reached\n") && !text.contains("--min-hosts"), "{text}");
}

#[test]
fn holders_on_hosts_that_a_job_does_without_are_named_in_a_line() {
    let mut log = on_hosts(Some(1));
    holds(&mut log, 0);
    holds(&mut log, 1);
    let nodes = [0, 1].map(NodeId::new).to_vec();
    log.at(300, What::LeftOut { nodes, world_size: 4, procs: vec![4], is_known: false });
    let mut notices = LogView::new([], Tone::Quiet, false);
    let text: String = log.0.iter().map(|record| notices.text(record, By::Sender)).collect();
    let of = |node, pid| format!("the TPU of {node} is in use (process {pid} of alice: python3 a.py)");
    let reasons = format!("{}; {}", of("node1", 70), of("node2", 71));
    assert_eq!(text, format!("rlaunch: continuing with 4 ranks on 2 of 4 hosts, without node[1-2]: {reasons}\n"));
    let mut log = on_hosts(None);
    holds(&mut log, 0);
    fails(&mut log, 1);
    let text = render(&unreachable(log, 2), &Around::default());
    assert_eq!(text.matches("nothing was started").count(), 1, "{text}");
    assert!(text.contains("  try     rlaunch clean -H node1 --clean-devices own"), "{text}");
}

fn unreachable(mut log: Log, failed: u32) -> Report {
    let cause = Cause::Unreachable { node: NodeId::new(1), failed, asked: 4 };
    log.begins(300, &cause, None);
    log.ends(400, cause, Some(0))
}

#[test]
fn hosts_that_are_missing_are_named_with_a_way_on() {
    let mut log = on_hosts(None);
    fails(&mut log, 1);
    shows("host_missing", &unreachable(log, 1));
    let mut log = on_hosts(Some(3));
    fails(&mut log, 1);
    loses(&mut log, 0);
    refuses(&mut log, 3);
    shows("too_few_hosts", &unreachable(log, 3));
    let mut log = on_hosts(Some(3));
    fails(&mut log, 1);
    shows("program_without_hosts", &unreachable(log, 1));
    let mut log = on_hosts(None);
    (0..4).for_each(|node| fails(&mut log, node));
    shows("no_host", &unreachable(log, 4));
}

#[test]
fn hosts_that_refuse_are_named_with_a_way_on() {
    for (name, least) in [("host_refuses", None), ("too_many_refuse", Some(3))] {
        let mut log = on_hosts(least);
        refuses(&mut log, 2);
        refuses(&mut log, 3);
        let Some(What::HostRefused { why, .. }) = log.0.last().map(|record| record.what.clone()) else { panic!() };
        let cause = Cause::Refused { node: NodeId::new(2), why };
        log.begins(300, &cause, None);
        shows(name, &log.ends(400, cause, Some(0)));
    }
}

#[test]
fn a_job_without_hosts_says_so_at_its_start_and_at_its_end() {
    let said = |log: &Log| {
        let mut notices = LogView::new([], Tone::Quiet, false);
        log.0.iter().map(|record| notices.text(record, By::Sender)).collect::<String>()
    };
    let mut log = on_hosts(Some(1));
    fails(&mut log, 1);
    fails(&mut log, 2);
    log.at(
        300,
        What::LeftOut { nodes: [1, 2].map(NodeId::new).to_vec(), world_size: 4, procs: vec![4], is_known: false },
    );
    let mut text = said(&log);
    let mut log = on_hosts(Some(1));
    fails(&mut log, 1);
    loses(&mut log, 0);
    refuses(&mut log, 3);
    log.at(
        300,
        What::LeftOut { nodes: [0, 1, 3].map(NodeId::new).to_vec(), world_size: 2, procs: vec![2], is_known: false },
    );
    text.push_str(&said(&log));
    check("left_out", &text);
    for n in 0..2 {
        let (rank, local_rank, at) = (Rank::new(n), LocalRank::new(n), Span::from_millis(310));
        log.at(310, What::RankStarted { rank, node: NodeId::new(2), local_rank, group: None, pid: 40_910 + n, at });
    }
    log.exits(0, Status::Exited(0), 900);
    let failed = Log(log.0.clone());
    log.exits(1, Status::Exited(0), 1_000);
    shows("left_out_success", &log.ends(1_001, Cause::Success, Some(0)));
    let mut log = failed;
    log.exits(1, Status::Exited(3), 1_000);
    shows("left_out_failure", &log.ends(1_001, rank(1, Status::Exited(3)), Some(0)));
}

#[test]
fn next_step_is_a_command_for_the_host_that_was_lost() {
    let report = fold(&on_hosts(None).0);
    let step = |lost| lost::next_step(&report, NodeId::new(1), lost).unwrap_or_default();
    let by_kernel = "ssh node2 dmesg -T, for processes that the kernel killed";
    assert_eq!([step(Lost::AgentEarly), step(Lost::Guardian)], [by_kernel, by_kernel]);
    let is_up = "ssh node2 uptime, to see whether the host is up, and since when";
    assert_eq!([step(Lost::NoHeartbeat), step(Lost::Agent(CloseReason::Slow))], [is_up, is_up]);
    assert_eq!(step(Lost::Agent(CloseReason::Malformed)), "ssh node2 true, which must print nothing");
    assert!(step(Lost::Expired).starts_with("a longer --lease"));
    let starved = Lost::Starved(Span::from_secs(8));
    assert!(lost::on_host(&report, NodeId::new(1), starved).contains("longer than --lease allows"));
    let mut log = on_hosts(None);
    let suspends = JobNews::SchedulerSignal { scheduler: Scheduler::Slurm, sig: Signal::TSTP, node: NodeId::new(0) };
    log.at(50, What::News(suspends));
    let suspended = fold(&log.0);
    let said = lost::on_host(&suspended, NodeId::new(1), starved);
    assert!(said.contains("longer than --suspend-limit allows"), "{said}");
    assert_eq!(lost::next_step(&suspended, NodeId::new(1), starved).unwrap(), "a longer --suspend-limit");
    let mut here = report.clone();
    here.start.as_mut().unwrap().host = "node2".into();
    assert!(lost::next_step(&here, NodeId::new(1), Lost::Init).unwrap().starts_with("dmesg -T, for"));
}
