//! A suspended agent.

use super::*;

const GUARDIAN: Lost = Lost::Guardian;

fn ended(s: &mut Script, end: GuardianEnd) -> &mut Script {
    s.event(JobEvent::GuardianEnded { node: NODE, end })
}
fn record(s: &mut Script, left: u32) -> &mut Script {
    ended(s, GuardianEnd::Record { left, named: vec![] })
}
fn closed(s: &mut Script) -> &mut Script {
    s.event(JobEvent::EdgeClosed { node: NODE, why: CloseReason::Eof })
}
fn lost(s: &Script) -> Vec<Lost> {
    s.log.iter().filter_map(|what| if let What::HostLost { lost, .. } = what { Some(*lost) } else { None }).collect()
}

#[test]
fn request_to_end_wakes_the_agent() {
    let mut s = Script::running(&spec(1));
    s.signal(Signal::USR1);
    assert_eq!(s.roused, 0, "a stopped job may be meant to stand still");
    s.signal(Signal::INT);
    assert_eq!(s.roused, 1);
    s.wait(100).signal(Signal::INT);
    assert_eq!(s.roused, 2);
    let mut s = Script::running(&spec(1).with(|settings| settings.ending.timeout = Some(Span::from_secs(10))));
    s.wait(10_000);
    assert_eq!(s.roused, 1);
    let mut s = Script::running(&spec(1));
    s.event(JobEvent::ReaderClosed(Std::Out));
    assert_eq!(s.roused, 1);
    let mut s = Script::running(&spec(2));
    s.exits(0, exit(3), (0, 0));
    assert_eq!(s.roused, 0, "it has just spoken");
}

#[test]
fn a_second_signal_is_answered_within_a_second_or_the_guardian_kills() {
    let mut s = Script::running(&spec(2));
    s.signal(Signal::INT).wait(300).signal(Signal::INT).wait(999);
    assert_eq!(s.severed, 0);
    s.wait(1);
    assert_eq!((s.severed, s.drains), (1, 0), "the guardian counts");
    closed(&mut s);
    record(&mut s, 0).drained();
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Signal(Signal::INT)), Some(0)));
    assert_eq!(lost(&s), [Lost::AgentMute], "and its end is no second loss");
}

#[test]
fn end_of_grace_is_reported() {
    let mut s = Script::running(&spec(1));
    s.signal(Signal::INT).wait(5_999);
    assert_eq!(s.severed, 0);
    s.wait(1);
    assert_eq!(s.severed, 1);
    s.wait(4_999);
    assert_eq!(s.drains, 0);
    s.wait(1).drained();
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Signal(Signal::INT)), None), "nobody has counted");
}

#[test]
fn earlier_message_is_no_answer() {
    let mut s = Script::running(&spec(2));
    s.signal(Signal::INT).wait(4_999).exits(0, exit(0), (4_999, 4_999)).wait(1_001);
    assert_eq!(s.severed, 1);
}

#[test]
fn an_agent_that_answered_has_longer_than_it_needs_to_name_what_cannot_be_killed() {
    let mut s = Script::running(&spec(1));
    s.signal(Signal::INT).wait(100).signal(Signal::INT).receive(ToRoot::Killing).wait(3_999);
    assert_eq!(s.severed, 0);
    s.wait(1);
    assert_eq!(s.severed, 1);
}

#[test]
fn each_word_gives_it_as_long_again() {
    let mut s = Script::running(&spec(3));
    s.signal(Signal::INT).wait(100).signal(Signal::INT).receive(ToRoot::Killing).wait(3_000);
    s.exits(0, killed(Signal::KILL), (100, 3_100)).wait(3_000);
    let stream = StreamId::of(ProcId::new(1), Std::Out);
    s.event(JobEvent::StreamEnd { stream, total: 0 }).wait(3_999);
    assert_eq!(s.severed, 0);
    s.wait(1);
    assert_eq!(s.severed, 1);
}

#[test]
fn repeated_request_does_not_extend_the_wait() {
    let mut s = Script::running(&spec(1));
    // The guardian is gone, and with its second the grace.
    ended(&mut s, GuardianEnd::Silent).wait(1_800).signal(Signal::INT).wait(100).signal(Signal::INT).wait(99);
    assert_eq!(s.drains, 0);
    s.wait(1);
    assert_eq!((s.drains, lost(&s)), (1, vec![GUARDIAN, Lost::AgentMute]));
}

#[test]
fn an_agent_that_has_counted_owes_nothing() {
    let mut s = Script::running(&spec(1));
    s.receive(ToRoot::GuardianLost).done();
    assert_eq!(s.due(), None, "a reader may be slow, and then nobody is to be woken for that");
}

#[test]
fn woken_guardian_may_count() {
    let mut s = Script::running(&spec(1));
    s.signal(Signal::INT).wait(6_000);
    assert_eq!(s.severed, 1);
    // The guardian found it gone, cleanly, and leaves no record: its own word is on its way.
    ended(&mut s, GuardianEnd::Silent);
    assert_eq!(s.drains, 0);
    s.exits(0, killed(Signal::KILL), (6_000, 6_001)).done().drained();
    assert_eq!(s.last_report().left, Some(0));

    let mut s = Script::running(&spec(1));
    s.signal(Signal::INT).wait(6_000);
    ended(&mut s, GuardianEnd::Silent);
    closed(&mut s).drained();
    assert_eq!(s.last_report().left, None, "it was gone before it could");
}

#[test]
fn a_reader_that_is_slow_is_no_silence_until_output_is_given_up() {
    // The job failed by itself: it waits for its reader.
    let mut s = Script::running(&spec(1));
    s.exits(0, exit(3), (0, 0)).wait(3_600_000);
    assert_eq!(s.severed, 0);
    s.signal(Signal::INT).wait(2_000);
    assert!(s.abandoned);
    s.wait(3_999);
    assert_eq!(s.severed, 0);
    s.wait(1);
    assert_eq!(s.severed, 1);
    record(&mut s, 0).drained();
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(3)), Some(0)));

    // It was ordered to end, and its agent stopped between the last rank's end and its own.
    let mut s = Script::running(&spec(1));
    s.signal(Signal::INT).exits(0, exit(0), (0, 0)).wait(5_999);
    assert_eq!((s.abandoned, s.severed), (true, 0));
    s.wait(1);
    assert_eq!(s.severed, 1);
}

#[test]
fn suspended_agent_is_not_asked_while_job_runs() {
    let mut s = Script::running(&spec(1));
    s.wait(3_600_000).exits(0, exit(0), (0, 3_600_000)).wait(3_600_000).report();
    assert_eq!((s.severed, s.roused, s.finished), (0, 0, Some(Ending::Code(0))));
}

#[test]
fn the_guardians_end_wakes_it() {
    let mut s = Script::running(&spec(1));
    ended(&mut s, GuardianEnd::Silent);
    assert_eq!((s.roused, s.sent.len()), (1, 0));
    s.wait(10).receive(ToRoot::GuardianLost).exits(0, killed(Signal::KILL), (0, 10)).wait(4_500).report();
    assert_eq!((s.finished, s.cause()), (Some(Ending::Code(125)), Cause::Lost { node: NODE, lost: GUARDIAN }));
    assert_eq!(lost(&s), [GUARDIAN]);
}

#[test]
fn agent_may_know_first() {
    let mut s = Script::running(&spec(1));
    s.receive(ToRoot::GuardianLost);
    ended(&mut s, GuardianEnd::Silent).exits(0, killed(Signal::KILL), (0, 10)).wait(4_500).report();
    assert_eq!(lost(&s), [GUARDIAN]);
}

#[test]
fn or_say_what_we_have_concluded() {
    let mut s = Script::running(&spec(1));
    ended(&mut s, GuardianEnd::Silent).wait(1_000).receive(ToRoot::GuardianLost);
    assert_eq!((s.sent.as_slice(), lost(&s)), ([ToNode::Kill].as_slice(), vec![GUARDIAN]));
}

#[test]
fn agent_is_not_given_up_when_guardian_is_lost_and_reader_is_slow() {
    let mut s = Script::running(&spec(1));
    s.exits(0, exit(3), (0, 0)).receive(ToRoot::GuardianLost);
    // It is awake: it answers whenever it is asked.
    for _ in 0..900 {
        s.receive(ToRoot::Killing).wait(4_000);
    }
    assert_eq!((lost(&s), s.severed, s.drains), (vec![GUARDIAN], 0, 0));
    s.report();
    assert_eq!(s.finished, Some(Ending::Code(3)));
}

#[test]
fn end_of_guardian_after_its_agent_may_be_reported_before_done() {
    let mut s = Script::running(&spec(1));
    s.exits(0, exit(0), (0, 0));
    ended(&mut s, GuardianEnd::Silent).wait(999).report();
    assert_eq!((s.finished, lost(&s)), (Some(Ending::Code(0)), vec![]));
}

/// The agent was suspended, and its time has almost expired when it continues.
#[test]
fn messages_before_guardians_end_are_waited_for() {
    let mut s = Script::running(&spec(1));
    s.signal(Signal::INT).wait(5_990);
    ended(&mut s, GuardianEnd::Silent).wait(100);
    s.receive(ToRoot::Killing).exits(0, killed(Signal::INT), (0, 5_990)).report();
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Signal(Signal::INT)), Some(0)));
    assert_eq!((lost(&s), s.severed), (vec![], 0));
}

#[test]
fn suspended_agent_without_guardian_is_given_up() {
    let mut s = Script::running(&spec(1));
    ended(&mut s, GuardianEnd::Silent).wait(999);
    assert_eq!(s.sent, []);
    s.wait(1);
    assert_eq!((s.sent.as_slice(), s.drains), ([ToNode::Kill].as_slice(), 0));
    s.wait(1_000).drained();
    assert_eq!((s.finished, s.last_report().left, s.severed), (Some(Ending::Code(125)), None, 0));
    assert_eq!(lost(&s), [GUARDIAN, Lost::AgentMute]);
}

#[test]
fn a_guardian_lost_during_the_grace_ends_the_grace() {
    let hour = spec(2).with(|settings| settings.ending.grace = Span::from_secs(3600));
    let mut s = Script::running(&hour);
    s.exits(0, exit(3), (0, 0)).sent.clear();
    ended(&mut s, GuardianEnd::Silent).wait(999);
    assert_eq!(s.sent, []);
    s.wait(1);
    assert_eq!(s.sent, [ToNode::Kill], "nobody else can end the ranks");
    s.signal(Signal::INT);
    assert!(
        matches!(s.said.last(), Some(What::Signal { answer: Answer::Noted { kill_in: None }, .. })),
        "{:?}",
        s.said.last()
    );
    s.wait(1_000).drained();
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(3)), None), "it does not answer");
    assert_eq!(lost(&s), [GUARDIAN, Lost::AgentMute]);

    // An agent that answers continues as always.
    let mut s = Script::running(&hour);
    s.exits(0, exit(3), (0, 0)).sent.clear();
    s.receive(ToRoot::GuardianLost);
    assert_eq!(s.sent, [ToNode::Kill]);
    s.receive(ToRoot::Killing);
    // The end of the guardian is reported last, and makes no time shorter.
    ended(&mut s, GuardianEnd::Silent).wait(3_000).exits(1, killed(Signal::KILL), (0, 3_000)).report();
    assert_eq!((s.finished, lost(&s)), (Some(Ending::Code(3)), vec![GUARDIAN]));
}

/// No other part could end the node: whether its ranks are gone makes no difference.
#[test]
fn suspended_agent_without_guardian_is_given_up_after_its_ranks() {
    // The ranks had ended before the guardian was lost, well or not.
    for (code, ending) in [(0, Ending::Code(125)), (3, Ending::Code(3))] {
        let mut s = Script::running(&spec(1));
        s.exits(0, exit(code), (0, 0)).wait(3_600_000);
        s.sent.clear();
        ended(&mut s, GuardianEnd::Silent).wait(1_000);
        assert_eq!((s.sent.as_slice(), s.drains, s.roused), ([ToNode::Kill].as_slice(), 0, 1));
        s.wait(999);
        assert_eq!(s.drains, 0);
        s.wait(1).drained();
        assert_eq!((s.finished, s.last_report().left, s.severed), (Some(ending), None, 0));
        assert_eq!(lost(&s), [GUARDIAN, Lost::AgentMute]);
    }

    // The ranks ended after that.
    let mut s = Script::running(&spec(1));
    s.receive(ToRoot::GuardianLost).receive(ToRoot::Killing);
    ended(&mut s, GuardianEnd::Silent).exits(0, killed(Signal::KILL), (0, 0)).wait(4_999);
    assert_eq!((s.drains, s.roused), (0, 2), "it is asked once more");
    s.wait(1).drained();
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(125)), None));
    assert_eq!(lost(&s), [GUARDIAN, Lost::AgentMute]);
}

#[test]
fn without_a_guardian_it_may_wait_for_a_slow_reader_as_long_as_it_says_so() {
    let mut s = Script::running(&spec(1));
    s.exits(0, exit(3), (0, 0)).receive(ToRoot::Draining).receive(ToRoot::GuardianLost);
    ended(&mut s, GuardianEnd::Silent).receive(ToRoot::Killing);
    for _ in 0..100 {
        s.sent.clear();
        s.wait(4_500);
        assert_eq!(s.sent, [ToNode::Kill]);
        s.receive(ToRoot::Killing);
    }
    s.report();
    assert_eq!((s.finished, s.last_report().left, lost(&s)), (Some(Ending::Code(3)), Some(0), vec![GUARDIAN]));
}

/// The host was suspended, or rlaunch was stopped: the clock continues meanwhile.
#[test]
fn time_of_a_suspension_is_not_counted() {
    // During the grace.
    let mut s = Script::running(&spec(1));
    s.signal(Signal::INT).wait(4_000);
    s.now = 3_600_000;
    s.wait(1_749);
    assert_eq!(s.severed, 0, "it may have learned of the end only now, and its grace has not expired");
    s.wait(1);
    assert_eq!(s.severed, 1);

    // While an answer was due.
    let mut s = Script::running(&spec(1));
    s.signal(Signal::INT).wait(100).signal(Signal::INT).wait(100);
    s.now = 3_600_000;
    s.wait(600);
    assert_eq!(s.severed, 0);
    s.receive(ToRoot::Killing).exits(0, killed(Signal::KILL), (0, 200)).report();
    assert_eq!((s.finished, lost(&s)), (Some(Ending::Signal(Signal::INT)), vec![]));

    // While the guardian counted.
    let mut s = Script::running(&spec(1));
    closed(&mut s).wait(100);
    s.now = 3_600_000;
    s.wait(4_000);
    assert_eq!(s.drains, 0);
    record(&mut s, 0).drained();
    assert_eq!(s.last_report().left, Some(0));
}

/// The launcher alone was stopped: by the agent's clock the grace had expired long before.
#[test]
fn that_it_kills_is_an_answer_also_before_we_expect_it() {
    let mut s = Script::running(&spec(1));
    s.signal(Signal::INT).wait(1_000);
    s.now = 10_000;
    // It names what cannot be killed, which takes it a while.
    s.receive(ToRoot::Killing).wait(3_999);
    assert_eq!(s.severed, 0);
    s.wait(1);
    assert_eq!(s.severed, 1);
}
