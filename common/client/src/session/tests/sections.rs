//! Silence that is no hang, one within another.

use super::*;

#[test]
fn behind_a_section_within_another_the_outer_limit_holds_again() {
    let (session, mut agent) = plain();
    inside(&session, &mut agent, 0);
    let mut says = |limit: Option<u64>| {
        assert_eq!(agent.receive(), ClientMessage::Section(Round::new(0), limit.map(Span::from_millis)));
    };
    let outer = session.section_begin(Some(Duration::from_secs(9))).unwrap();
    says(Some(9000));
    let other = session.section_begin(None).unwrap();
    says(None);
    session.section_begin(Some(Duration::ZERO)).unwrap();
    says(Some(1));
    // Of another thread: what is not the last counts no more, and changes nothing.
    session.section_end(Some(other)).unwrap();
    session.section_end(None).unwrap();
    says(Some(9000));
    session.section_end(Some(outer)).unwrap();
    says(Some(0));
    session.section_end(Some(outer)).unwrap();
    session.section_end(None).unwrap();
    session.section_begin(None).unwrap();
    says(None);
    agent.interrupts(0);
    assert!(session.token().unwrap().wait(SOON));
    session.exit().unwrap_err();
    assert!(matches!(session.next().unwrap(), Next::Interrupt(..)));
    session.ready(Vec::new()).unwrap();
    assert_eq!(agent.receive(), ClientMessage::Ready(Round::new(0), Vec::new()));
    inside(&session, &mut agent, 1);
    session.section_end(None).unwrap();
    session.returned().unwrap_err();
    session.exit().unwrap();
    session.returned().unwrap();
    assert_eq!(
        agent.receive(),
        ClientMessage::Returned(Round::new(1)),
        "sections that a round has left open end with it"
    );
}
