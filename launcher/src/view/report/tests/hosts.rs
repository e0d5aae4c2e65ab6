//! Reports of jobs that lack hosts.

use super::*;

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
    let why = NodeRefusal::Program { app: rlaunch_core::id::AppIndex::new(0), error };
    log.at(210, What::HostRefused { node: NodeId::new(node), why });
}

fn loses(log: &mut Log, node: u32) {
    log.at(220, What::HostLost { node: NodeId::new(node), lost: Lost::Agent(CloseReason::Eof) });
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
    assert_eq!([step(Lost::Unheard), step(Lost::Agent(CloseReason::Slow))], [is_up, is_up]);
    assert_eq!(step(Lost::Agent(CloseReason::Malformed)), "ssh node2 true, which must print nothing");
    assert!(step(Lost::Expired).starts_with("a longer --lease"));
    let mut here = report.clone();
    here.start.as_mut().unwrap().host = "node2".into();
    assert!(lost::next_step(&here, NodeId::new(1), Lost::Init).unwrap().starts_with("dmesg -T, for"));
}
