//! The ways in which a job ends.

use super::*;
use rlaunch_base::errno::EIO;

fn end(sig: Signal) -> ToNode {
    ToNode::End { sig, grace: Span::from_secs(5) }
}

#[test]
fn success() {
    let mut s = Script::running(&spec(2));
    s.now = 50;
    s.exits(0, exit(0), (1, 40)).exits(1, exit(0), (1, 50));
    assert_eq!((s.drains, s.finished), (0, None), "only the node knows whether descendants go on");
    s.done();
    assert_eq!((s.drains, s.finished), (1, None), "output first");
    s.drained();
    assert_eq!(s.finished, Some(Ending::Code(0)));
    assert_eq!(s.sent, []);
    let report = s.last_report();
    assert_eq!((report.left, report.began), (Some(0), None));
    assert_eq!(report.end.unwrap().launch, Some(Span::from_millis(1)));
}

#[test]
fn the_first_failure_ends_the_job() {
    let mut s = Script::running(&spec(3));
    s.now = 20;
    s.exits(2, exit(3), (1, 20));
    assert_eq!(s.sent, [end(Signal::TERM)]);
    s.now = 22;
    s.exits(0, killed(Signal::TERM), (20, 21)).exits(1, killed(Signal::KILL), (20, 22));
    let report = s.report();
    assert_eq!(s.finished, Some(Ending::Code(3)));
    let others: Vec<_> = report.others().into_iter().map(|g| (g.became, g.ranks[0].get(), g.after.millis())).collect();
    assert_eq!(others, [(Became::Stopped(Signal::TERM), 0, 1), (Became::Killed, 1, 2)]);
}

#[test]
fn a_rank_killed_by_a_signal_gives_128_plus_it() {
    let mut s = Script::running(&spec(1));
    s.exits(0, crash(), (0, 0)).report();
    assert_eq!(s.finished, Some(Ending::Code(139)));
}

#[test]
fn others_have_the_grace_after_a_rank_was_killed_by_a_signal_that_was_passed_on() {
    let passed_on = || {
        let mut s = Script::running(&spec(4));
        s.signal(Signal::USR1);
        s.sent.clear();
        s.now = 20;
        s.exits(1, killed(Signal::USR1), (1, 20));
        assert_eq!((s.sent.len(), s.said.len()), (0, 0), "the others may be saving");
        s
    };
    let mut s = passed_on();
    s.exits(0, exit(0), (1, 20));
    // A rank that fails in another way ends the job.
    s.exits(2, exit(3), (1, 20));
    assert_eq!(s.sent, [end(Signal::TERM)]);
    let mut s = passed_on();
    s.wait(4_000);
    assert!(matches!(s.said.as_slice(), [What::News(JobNews::EndingDeferred { .. })]), "{:?}", s.said);
    assert_eq!(s.sent, []);
    s.wait(2_000);
    assert_eq!(s.sent, [end(Signal::TERM)]);
}

#[test]
fn other_ranks_continue_when_on_failure_is_continue() {
    let mut s = Script::running(&spec(3).with(|settings| settings.ending.on_failure = OnFailure::Continue));
    s.now = 90;
    s.exits(1, exit(4), (1, 20)).exits(0, exit(5), (1, 30));
    assert_eq!(s.sent, []);
    let continuing = JobNews::Continuing { rank: Rank::new(1), status: exit(4) };
    assert_eq!(s.said, [What::News(continuing)], "one line, not one per rank");
    s.exits(2, exit(0), (1, 90));
    let report = s.report();
    assert_eq!(s.finished, Some(Ending::Code(4)), "the first failure's");
    assert_eq!(report.others()[0].became, Became::Failed(exit(5)));
}

#[test]
fn a_failed_start_rolls_the_launch_back() {
    for (on_failure, step, errno, code) in [
        (OnFailure::Kill, SpawnStep::Exec, 2, 127),
        (OnFailure::Continue, SpawnStep::Exec, 13, 126),
        (OnFailure::Kill, SpawnStep::Clone, 11, 125),
    ] {
        let mut s = Script::new(&spec(2).with(|settings| settings.ending.on_failure = on_failure));
        s.hello();
        s.sent.clear();
        let error = SpawnError { step, errno, path: OsBytes::from("./tran"), found: Found::Nothing };
        s.receive(ToRoot::SpawnFailed { proc: ProcId::new(1), error });
        assert_eq!(s.sent, [ToNode::Kill], "no grace for an incomplete job");
        s.report();
        assert_eq!(s.finished, Some(Ending::Code(code)));
    }
}

#[test]
fn refused() {
    let mut s = Script::new(&spec(2));
    s.receive(ToRoot::Refused(NodeRefusal::NoPort)).report();
    assert_eq!(s.finished, Some(Ending::Code(125)));
    assert_eq!(s.cause(), Cause::Refused { node: NODE, why: NodeRefusal::NoPort });
}

#[test]
fn timeout() {
    let mut s = Script::running(&spec(1).with(|settings| settings.ending.timeout = Some(Span::from_secs(10))));
    s.wait(9_999);
    assert_eq!(s.sent, []);
    s.wait(1);
    assert_eq!(s.sent, [end(Signal::TERM)]);
    s.exits(0, killed(Signal::TERM), (9_000, 10_001)).report();
    assert_eq!(s.finished, Some(Ending::Code(124)));
}

/// We were stopped when the limit came: what had arrived until then is read first.
#[test]
fn ranks_that_were_over_in_time_are_no_timeout() {
    let mut s = Script::running(&spec(1).with(|settings| settings.ending.timeout = Some(Span::from_secs(10))));
    s.now = 12_000;
    s.exits(0, exit(0), (8_999, 9_000)).done().wait(1_000).drained();
    assert_eq!(s.finished, Some(Ending::Code(0)));

    // A reader that takes nothing does not hold a job with a limit.
    let mut s = Script::running(&spec(1).with(|settings| settings.ending.timeout = Some(Span::from_secs(10))));
    s.now = 12_000;
    s.exits(0, exit(0), (8_999, 9_000)).done().wait(4_000);
    assert!(s.abandoned);
    s.drained();
    assert_eq!(s.finished, Some(Ending::Code(124)));
}

/// A reader that was suspended with the launcher has not been slow.
#[test]
fn output_is_not_given_up_for_time_of_a_suspension() {
    let mut s = Script::running(&spec(1));
    s.signal(Signal::INT).exits(0, exit(0), (0, 0)).done().wait(1_000);
    s.now = 3_600_000;
    s.wait(749);
    assert!(!s.abandoned);
    s.wait(1);
    assert!(s.abandoned);
}

#[test]
fn nothing_after_the_beginning_of_the_ending_changes_it() {
    let mut s = Script::running(&spec(3).with(|settings| settings.ending.timeout = Some(Span::from_secs(10))));
    s.wait(10_000);
    s.signal(Signal::INT).exits(0, crash(), (1, 9_000)).exits(1, exit(9), (1, 10_500));
    s.event(JobEvent::ReaderClosed(Std::Out)).receive(ToRoot::InitLost).exits(2, exit(0), (1, 10_600)).report();
    assert_eq!(s.finished, Some(Ending::Code(124)));
}

const fn sink_lost(std: Std, errno: Option<i32>, end: SinkEnd) -> What {
    What::SinkLost { std, errno, end }
}

#[test]
fn closed_reader() {
    let mut s = Script::running(&spec(1));
    s.event(JobEvent::ReaderClosed(Std::Out)).event(JobEvent::ReaderClosed(Std::Out));
    assert_eq!(s.sent, [end(Signal::TERM)]);
    assert_eq!(s.said, [sink_lost(Std::Out, None, SinkEnd::Unread { ends_job: true })], "one line");
    s.exits(0, killed(Signal::TERM), (0, 1)).report();
    assert_eq!(s.finished, Some(Ending::Signal(Signal::PIPE)));
}

#[test]
fn a_terminal_that_hangs_up_is_a_reader_that_leaves() {
    let mut s = Script::running(&spec(1));
    s.event(JobEvent::HungUp(Std::Out)).event(JobEvent::ReaderClosed(Std::Out));
    assert_eq!(s.sent, [end(Signal::TERM)]);
    assert_eq!(s.said, [sink_lost(Std::Out, Some(EIO), SinkEnd::Unread { ends_job: true })]);
    s.exits(0, killed(Signal::TERM), (0, 1)).report();
    assert_eq!(s.finished, Some(Ending::Signal(Signal::PIPE)));
}

#[test]
fn a_job_under_nohup_outlives_its_terminal() {
    let mut s = Script::with(&spec(1), &Setting { nohup: true, ..Setting::default() });
    s.hello();
    s.sent.clear();
    s.event(JobEvent::HungUp(Std::Out)).event(JobEvent::HungUp(Std::Out)).event(JobEvent::HungUp(Std::Err));
    let hung_up = [Std::Out, Std::Err].map(|std| sink_lost(std, Some(EIO), SinkEnd::HungUp));
    assert_eq!((&s.said[..], &s.sent[..]), (&hung_up[..], &[][..]));
    s.exits(0, exit(0), (0, 0)).report();
    assert_eq!(s.finished, Some(Ending::Code(0)));
}

#[test]
fn a_reader_may_leave_after_the_last_rank() {
    let mut s = Script::running(&spec(1));
    s.exits(0, exit(0), (0, 0)).done().event(JobEvent::ReaderClosed(Std::Out)).drained();
    assert_eq!(s.finished.map(Ending::shell_code), Some(141));
}

#[test]
fn a_failed_sink_is_noted_once_and_makes_a_success_a_failure() {
    let mut s = Script::running(&spec(1));
    for _ in 0..2 {
        s.event(JobEvent::SinkFailed { std: Std::Out, errno: 28 });
    }
    assert_eq!(s.said, [sink_lost(Std::Out, Some(28), SinkEnd::WriteFailed)]);
    s.exits(0, exit(0), (0, 0)).done().event(JobEvent::OutputDrained { lost: 9, broken: 2 });
    assert_eq!(s.finished, Some(Ending::Code(125)));
    assert_eq!(s.said[1..], [What::OutputEnd { lost: 9, broken: 2 }]);
    assert_eq!(s.last_report().lost, 9);
}

#[test]
fn a_failed_sink_does_not_replace_the_exit_code_of_a_rank() {
    let mut s = Script::running(&spec(1));
    s.event(JobEvent::SinkFailed { std: Std::Out, errno: 28 });
    s.exits(0, exit(3), (0, 0)).done().event(JobEvent::OutputDrained { lost: 9, broken: 0 });
    assert_eq!(s.finished, Some(Ending::Code(3)));
}

#[test]
fn bytes_missing_in_a_log_file_make_a_success_a_failure() {
    let mut s = Script::running(&spec(1));
    s.receive(ToRoot::FileLost { proc: ProcId::new(0), which: Std::Out, bytes: 7 });
    s.exits(0, exit(0), (0, 0)).report();
    assert_eq!(
        (s.finished, &s.said[..]),
        (Some(Ending::Code(125)), &[What::News(JobNews::FilesLost { bytes: 7 })][..])
    );
}

#[test]
fn undelivered_input_is_reported_once_and_the_job_continues() {
    let mut s = Script::running(&spec(1));
    s.receive(ToRoot::InputFailed { errno: 28 }).event(JobEvent::InputFailed { errno: 5 });
    let undelivered = sink_lost(Std::In, Some(28), SinkEnd::Undelivered);
    assert_eq!((&s.said[..], &s.sent[..]), (&[undelivered][..], &[][..]));
    s.exits(0, exit(0), (0, 0)).report();
    assert_eq!(s.finished, Some(Ending::Code(0)));
}

#[test]
fn an_ending_that_takes_a_while_says_what_it_waits_for() {
    let mut s = Script::running(&spec(2));
    s.exits(0, exit(3), (0, 0)).wait(4_000);
    let cause = Cause::Rank { rank: Rank::new(0), status: exit(3) };
    assert_eq!(s.said, [What::News(JobNews::EndingAwaits { cause, kill_in: Span::from_secs(4) })]);
    let mut s = Script::running(&spec(2));
    s.exits(0, exit(3), (0, 0)).wait(900).exits(1, exit(0), (0, 900)).wait(4_000);
    assert_eq!(s.said, []);
}

#[test]
fn a_rank_that_exits_in_its_own_way_after_our_signal_was_not_stopped_by_it() {
    let mut s = Script::running(&spec(5));
    s.exits(0, exit(3), (0, 1));
    for (rank, status) in [(1, exit(4)), (2, exit(143)), (3, killed(Signal::TERM)), (4, exit(0))] {
        s.exits(rank, status, (0, 9));
    }
    let others: Vec<_> = s.report().others().into_iter().map(|group| (group.became, group.ranks.len())).collect();
    assert_eq!(others, [(Became::After(exit(4), Signal::TERM), 1), (Became::Stopped(Signal::TERM), 3)]);
}
