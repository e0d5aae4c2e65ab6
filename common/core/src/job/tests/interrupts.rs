//! The effects of the user's signals.

use super::hosts::{hello, two};
use super::*;

#[test]
fn once_sends_it_and_counts_down() {
    for sig in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let mut s = Script::running(&spec(1));
        s.signal(sig);
        assert_eq!(s.sent, [ToNode::End { sig, grace: Span::from_secs(5) }]);
        assert_eq!(s.ending_of(), (sig, RanksState::Running));
        s.exits(0, exit(0), (0, 1)).report();
        assert_eq!(s.finished, Some(Ending::Signal(sig)));
    }
}

/// A host is ready, and the other is still being reached.
#[test]
fn interrupt_before_ranks_start_reports_the_awaited_hosts() {
    let mut s = Script::new(&two(false));
    s.event(JobEvent::EdgeUp { node: NODE });
    s.receive_from(NODE, &hello("10.0.0.1", "10.0.0.9", 20_000)).receive_from(NODE, &ToRoot::Ready).signal(Signal::INT);
    assert_eq!(s.ending_of(), (Signal::INT, RanksState::NotStarted { awaited: vec![NodeId::new(1)] }));
}

#[test]
fn twice_kills_thrice_leaves() {
    let mut s = Script::running(&spec(1));
    s.signal(Signal::INT).wait(300).signal(Signal::TERM);
    assert_eq!(s.sent[1..], [ToNode::Kill]);
    assert_eq!(s.said[1..], [What::Signal { sig: Signal::TERM, answer: Answer::Killed }]);
    s.wait(300).signal(Signal::INT);
    assert_eq!(s.finished, Some(Ending::Signal(Signal::INT)), "of the first one");
    assert_eq!(s.last_report().left, None, "nobody counted");
}

/// timeout(1) signals its child, then the group that the child is in.
#[test]
fn an_echo_is_no_second_signal() {
    let mut s = Script::running(&spec(1));
    s.signal(Signal::TERM).wait(5).signal(Signal::TERM);
    assert_eq!(s.sent.len(), 1);
    assert!(s.log.contains(&What::Signal { sig: Signal::TERM, answer: Answer::Ignored }));
    s.wait(50).signal(Signal::TERM);
    assert_eq!(s.sent.len(), 2);
}

#[test]
fn first_signal_in_another_ending_is_only_reported() {
    let mut s = Script::running(&spec(2));
    s.exits(0, exit(3), (0, 0)).wait(999).signal(Signal::INT);
    let answer = Answer::Noted { kill_in: Some(Span::from_millis(4_001)) };
    assert_eq!(s.said, [What::Signal { sig: Signal::INT, answer }]);
    assert_eq!(s.sent.len(), 1);
    s.wait(100).signal(Signal::INT);
    assert_eq!(s.sent[1..], [ToNode::Kill]);
    s.exits(1, killed(Signal::KILL), (1_100, 1_101)).report();
    assert_eq!(s.finished, Some(Ending::Code(3)));
}

#[test]
fn usr1_and_usr2_are_passed_on() {
    let mut s = Script::running(&spec(1));
    s.signal(Signal::USR1).signal(Signal::USR2).signal(Signal::USR1);
    assert_eq!(s.sent.len(), 3);
    assert_eq!(s.sent[1], ToNode::Signal { sig: Signal::USR2 });
    s.exits(0, exit(0), (0, 0)).report();
    assert_eq!(s.finished, Some(Ending::Code(0)));
}

#[test]
fn other_signals_do_nothing() {
    let mut s = Script::running(&spec(1));
    s.signal(Signal::PIPE);
    assert_eq!((s.sent.len(), s.said.len()), (0, 0));
}

#[test]
fn an_interrupt_before_the_node_answers() {
    let mut s = Script::new(&spec(2));
    s.signal(Signal::INT).report();
    assert_eq!(s.finished, Some(Ending::Signal(Signal::INT)));
    assert_eq!(s.last_report().others()[0].became, Became::NeverStarted);
}

#[test]
fn a_sink_that_takes_nothing_holds_an_interrupted_job_for_two_seconds() {
    let mut s = Script::running(&spec(1));
    s.signal(Signal::INT).wait(4_000).exits(0, exit(0), (0, 4_000)).wait(1_999);
    assert!(!s.abandoned);
    s.wait(1);
    assert!(s.abandoned, "also before Done: the node has no credit for its last bytes");
    s.done();
    assert_eq!(s.drains, 1);
    s.event(JobEvent::OutputDrained { lost: 7, broken: 0 });
    assert_eq!(s.finished, Some(Ending::Signal(Signal::INT)));
}

#[test]
fn success_and_failure_wait_for_their_reader_until_the_user_has_enough() {
    for (status, code) in [(exit(0), 130), (exit(3), 3)] {
        let mut s = Script::running(&spec(1));
        s.exits(0, status, (0, 0)).done().wait(3_600_000);
        assert!(!s.abandoned);
        s.signal(Signal::INT);
        let answer = Answer::Unwritten { patience: Span::from_secs(2) };
        assert_eq!(s.said, [What::Signal { sig: Signal::INT, answer }]);
        s.wait(2_000);
        assert!(s.abandoned);
        s.drained();
        assert_eq!(s.finished.map(Ending::shell_code), Some(code));
    }
}

#[test]
fn thrice_waits_for_nothing() {
    let mut s = Script::running(&spec(1));
    s.signal(Signal::INT).wait(100).signal(Signal::INT).wait(100).signal(Signal::INT);
    assert!(s.abandoned, "nor for a reader that takes nothing");
    assert_eq!(s.finished, Some(Ending::Signal(Signal::INT)));
}

#[test]
fn twice_while_only_output_is_waited_for_gives_it_up_at_once() {
    let mut s = Script::running(&spec(1));
    s.exits(0, exit(0), (0, 0)).done().signal(Signal::INT).wait(100).signal(Signal::INT);
    assert!(s.abandoned);
}
