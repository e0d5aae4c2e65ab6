//! Code outside of the library reports the abort of a round.

use super::*;
use std::thread::JoinHandle;

#[test]
fn foreign_abort_comes_before_all_threads_are_notified() {
    let (session, mut agent) = opened(Options { foreign: true, on_abort: None });
    inside(&session, &mut agent, 0);
    let other = session.clone();
    let (sender, receiver) = mpsc::sync_channel(1);
    let waiting: JoinHandle<()> = std::thread::Builder::new()
        .spawn(move || {
            let cause = other.wait_interrupt().unwrap();
            assert!(other.interrupted() && !other.due());
            sender.send(cause).unwrap();
            assert!(matches!(other.wait_interrupt(), Err(Error::Closed(_))));
        })
        .unwrap();
    agent.interrupts(0);
    assert_eq!(receiver.recv().unwrap(), Cause::Fault(fault(5)));
    assert!(!session.token().unwrap().wait(Duration::from_millis(20)));
    session.aborted().unwrap();
    assert!(session.token().unwrap().wait(SOON) && session.due());
    assert!(is_interrupted(session.exit()));
    session.wait_aborted().unwrap();
    session.close();
    waiting.join().unwrap();
}

#[test]
fn a_foreign_abort_is_waited_for_only_where_there_may_be_one() {
    let (session, mut agent) = opened(Options { foreign: true, on_abort: None });
    session.foreign_abort(false).unwrap();
    inside(&session, &mut agent, 0);
    agent.interrupts(0);
    assert!(session.token().unwrap().wait(SOON) && session.due());
    // A late abort has no effect.
    session.aborted().unwrap();
    assert!(is_interrupted(session.exit()));
    session.wait_aborted().unwrap();
    session.close();
}
