//! Pings: their reports, and the wait of a planned round for one.

use super::*;

#[test]
fn a_planned_round_waits_for_a_ping_or_for_its_time() {
    let (session, mut agent) = plain();
    inside(&session, &mut agent, 0);
    agent.send(&AgentMessage::Interrupt(Round::new(0), fault(5), Some(Span::from_secs(3600))));
    let began = Instant::now();
    while session.ping().is_ok() {
        assert!(began.elapsed() < SOON && !session.interrupted());
        std::thread::yield_now();
    }
    assert!(is_interrupted(session.exit()));
    while let ClientMessage::Alive(..) = agent.receive() {}
    session.ready(Vec::new()).unwrap();
    assert!(matches!(agent.receive(), ClientMessage::Ready(..)));
    inside(&session, &mut agent, 1);
    agent.send(&AgentMessage::Interrupt(Round::new(1), fault(5), Some(Span::from_millis(20))));
    assert!(session.token().unwrap().wait(SOON));
    assert!(is_interrupted(session.exit()));
    session.ready(Vec::new()).unwrap();
    // Out of the function there is no ping to be waited for.
    inside(&session, &mut agent, 2);
    agent.send(&AgentMessage::Interrupt(Round::new(2), fault(5), Some(Span::from_secs(3600))));
    while !session.0.is(inner::PLANNED) {
        std::thread::yield_now();
    }
    session.exit().unwrap();
    assert!(matches!(session.next().unwrap(), Next::Interrupt(..)));
}

#[test]
fn pings_are_reported_once_in_an_interval_and_then_not_at_all() {
    let (session, mut agent) = plain();
    inside(&session, &mut agent, 0);
    session.ping().unwrap();
    assert!(matches!(agent.receive(), ClientMessage::Alive(_, true)));
    // Four intervals of these tests.
    assert!(!session.token().unwrap().wait(Duration::from_millis(200)));
    let _section = session.section_begin(Some(Duration::from_secs(9))).unwrap();
    let next = agent.receive();
    assert!(matches!(next, ClientMessage::Section(..)), "nothing has pinged: {next:?}");
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(220) {
        session.ping().unwrap();
    }
    session.exit().unwrap();
    session.returned().unwrap();
    let mut reported = 0;
    loop {
        match agent.receive() {
            ClientMessage::Alive(_, true) => reported += 1,
            ClientMessage::Section(_, None) => {}
            ClientMessage::Returned(_) => break,
            other => panic!("{other:?}"),
        }
    }
    // The machine may be slow, but never faster than the interval.
    assert!((1..=5).contains(&reported), "{reported}");
}

#[test]
fn ping_in_a_round_that_ends_at_once_is_reported() {
    let (session, mut agent) = plain();
    for round in 0..20 {
        inside(&session, &mut agent, round);
        session.ping().unwrap();
        session.exit().unwrap();
        session.fault(b"at once").unwrap();
        let first = agent.receive();
        assert!(matches!(&first, ClientMessage::Alive(of, true) if of.get() == round), "{first:?}");
        loop {
            match agent.receive() {
                ClientMessage::Alive(..) => {}
                ClientMessage::Fault(..) => break,
                other => panic!("{other:?}"),
            }
        }
        agent.interrupts(round);
        session.ready(Vec::new()).unwrap();
        assert!(matches!(agent.receive(), ClientMessage::Ready(..)));
    }
}

#[test]
fn pings_of_a_round_are_not_reported_for_the_next() {
    let (session, mut agent) = plain();
    inside(&session, &mut agent, 0);
    session.ping().unwrap();
    assert!(matches!(agent.receive(), ClientMessage::Alive(of, true) if of.get() == 0));
    // Within the interval no report is made; then the round ends.
    session.ping().unwrap();
    agent.interrupts(0);
    assert!(session.token().unwrap().wait(Duration::from_secs(9)));
    session.exit().unwrap_err();
    session.ready(Vec::new()).unwrap();
    assert!(matches!(agent.receive(), ClientMessage::Ready(..)));
    inside(&session, &mut agent, 1);
    // The interval of these tests is 50 ms.
    assert!(!session.token().unwrap().wait(Duration::from_millis(200)));
    session.exit().unwrap();
    session.returned().unwrap();
    let first = agent.receive();
    assert!(matches!(first, ClientMessage::Returned(_)), "{first:?}");
}

#[test]
fn from_the_ping_on_at_which_a_planned_round_begins_silence_does_not_count() {
    let (session, mut agent) = plain();
    inside(&session, &mut agent, 0);
    let open = session.section_begin(Some(Duration::from_secs(9))).unwrap();
    assert!(matches!(agent.receive(), ClientMessage::Section(_, Some(_))));
    agent.send(&AgentMessage::Interrupt(Round::new(0), fault(5), Some(Span::from_secs(3600))));
    while session.ping().is_ok() {
        std::thread::yield_now();
    }
    assert!(session.token().unwrap().wait(SOON));
    // As a `with` does on the way out.
    session.section_end(Some(open)).unwrap();
    assert!(is_interrupted(session.exit()));
    session.ready(Vec::new()).unwrap();
    let mut said = Vec::new();
    while said.last().is_none_or(|last| !matches!(last, ClientMessage::Ready(..))) {
        said.push(agent.receive());
    }
    said.retain(|said| !matches!(said, ClientMessage::Alive(..)));
    assert_eq!(said, [ClientMessage::Section(Round::new(0), None), ClientMessage::Ready(Round::new(0), Vec::new())]);
    // A round that was not planned needs no report.
    inside(&session, &mut agent, 1);
    agent.interrupts(1);
    assert!(session.token().unwrap().wait(SOON));
    session.exit().unwrap_err();
    session.ready(Vec::new()).unwrap();
    assert_eq!(agent.receive(), ClientMessage::Ready(Round::new(1), Vec::new()));
}

/// Two processes that are started again join one after the other: the round of the first is interrupted as soon as it has begun, by the
/// round of the second. Ranks that have entered the function wait in it for all others of the round, and ping only afterwards.
#[test]
fn a_planned_interrupt_that_comes_before_the_function_is_entered_waits_for_a_ping_too() {
    let (session, mut agent) = plain();
    let planned = |round, within| AgentMessage::Interrupt(Round::new(round), fault(5), Some(within));
    agent.send(&planned(0, Span::from_secs(3600)));
    agent.begins(0, Some(1));
    assert!(matches!(session.next().unwrap(), Next::Begin(..)));
    assert!(!session.token().unwrap().wait(Duration::from_millis(100)), "interrupted before the function was entered");
    session.enter().unwrap();
    assert!(!session.token().unwrap().wait(Duration::from_millis(100)), "interrupted without a ping");
    assert!(is_interrupted(session.ping()));
    assert!(is_interrupted(session.exit()));
    session.ready(Vec::new()).unwrap();
    while let ClientMessage::Alive(..) | ClientMessage::Section(..) = agent.receive() {}
    // Also before the function its time is kept.
    agent.begins(1, Some(1));
    assert!(matches!(session.next().unwrap(), Next::Begin(..)));
    agent.send(&planned(1, Span::from_millis(20)));
    assert!(session.token().unwrap().wait(SOON));
    assert!(is_interrupted(session.enter()));
    assert!(matches!(session.next().unwrap(), Next::Interrupt(..)));
    session.ready(Vec::new()).unwrap();
    while let ClientMessage::Alive(..) | ClientMessage::Section(..) = agent.receive() {}
    // A reserve has no function in which others could wait for it.
    agent.begins(2, None);
    assert!(matches!(session.next().unwrap(), Next::Begin(..)));
    agent.send(&planned(2, Span::from_secs(3600)));
    while !session.0.is(inner::PLANNED) {
        std::thread::yield_now();
    }
    session.enter().unwrap();
    let _interrupted_or_not = session.exit();
    assert!(matches!(session.next().unwrap(), Next::Interrupt(..)));
}
