//! Functions and hooks that do not do what they should when their round ends.

use super::*;

#[test]
fn open_atomic_section_ends_with_the_function() {
    let (session, mut agent) = plain();
    inside(&session, &mut agent, 0);
    session.atomic_begin().unwrap();
    agent.interrupts(0);
    while session.0.lock().leaving == Leaving::No {
        std::thread::yield_now();
    }
    assert!(!session.interrupted());
    assert!(is_interrupted(session.exit()));
    assert!(matches!(session.next().unwrap(), Next::Interrupt(..)));
    session.ready(Vec::new()).unwrap();
    assert_eq!(agent.receive(), ClientMessage::Ready(Round::new(0), Vec::new()));
    inside(&session, &mut agent, 1);
    session.atomic_begin().unwrap();
    session.atomic_end().unwrap();
    session.close();
}

#[test]
fn a_health_check_that_the_rounds_end_breaks_is_no_bad_health() {
    let (session, mut agent) = plain();
    std::thread::scope(|scope| {
        let token = session.clone();
        let (checks, checking) = mpsc::sync_channel(1);
        let restart = move || {
            Restart::builder().health_check(move |state| {
                if state.number > 0 || state.fault.is_some() {
                    return Ok(());
                }
                checks.send(()).unwrap();
                let token = token.token()?;
                assert!(token.wait(SOON));
                Err("the round has ended".into())
            })
        };
        let running = run(scope, &session, restart, |round| Ok(round.number()));
        agent.begins(0, Some(1));
        checking.recv_timeout(SOON).unwrap();
        agent.interrupts(0);
        assert_eq!(agent.receive(), ClientMessage::Ready(Round::new(0), Vec::new()));
        agent.begins(1, Some(1));
        assert_eq!(agent.receive(), ClientMessage::Returned(Round::new(1)));
        agent.finishes();
        assert_eq!(running.join().unwrap().unwrap(), Some(1));
    });
}

/// The agent waits for others then, and would not read the fault: the process would wait for a round that never comes.
#[test]
fn returned_function_cannot_fail() {
    let (session, mut agent) = plain();
    inside(&session, &mut agent, 0);
    session.exit().unwrap();
    session.returned().unwrap();
    assert_eq!(agent.receive(), ClientMessage::Returned(Round::new(0)));
    assert!(matches!(session.fault(b"late"), Err(Error::Order(_))));
    assert!(!session.interrupted());
    agent.finishes();
    assert_eq!(session.next().unwrap(), Next::Finish);
    session.close();
}
