//! Hosts of which nothing is heard: what is said while they are waited for.

use super::hosts::{MS, OTHER, done, exits, running};
use super::*;
use crate::wire::beat::Beat;

/// What a node says that knows our clock.
fn answers(s: &mut Script, node: NodeId) {
    let echo = (harness::START + s.now) * MS;
    s.event(JobEvent::Beat { node, beat: Beat { own: echo, echo } });
}

/// Both are heard of for so many seconds.
fn heard(s: &mut Script, seconds: u64) {
    for _ in 0..seconds {
        s.wait(1_000);
        answers(s, NODE);
        answers(s, OTHER);
    }
}

fn silent(s: &Script) -> Vec<&Sentence> {
    let is = |said: &&Sentence| matches!(said, Sentence::Silent { .. } | Sentence::Awaited { .. });
    s.said.iter().filter(is).collect()
}

#[test]
fn a_host_that_does_not_answer_is_named_when_it_is_all_that_is_waited_for() {
    let mut s = running();
    heard(&mut s, 1);
    s.signal(Signal::INT);
    exits(&mut s, 0, killed(Signal::TERM), 6);
    exits(&mut s, 1, killed(Signal::TERM), 6);
    done(&mut s, NODE, 0);
    s.wait(2_999);
    assert_eq!(silent(&s), Vec::<&Sentence>::new(), "it may answer");
    s.wait(1);
    let within = Span::from_millis(33_300);
    let said = [Sentence::Silent { hosts: "two".into(), within }];
    assert_eq!(silent(&s), said.iter().collect::<Vec<_>>(), "until its lease has surely ended");
    s.wait(33_299);
    assert_eq!((s.drains, silent(&s).len()), (0, 1), "once");
    s.wait(1);
    assert_eq!(s.drains, 1);
}

#[test]
fn so_it_is_once_the_grace_is_over() {
    let mut s = running();
    heard(&mut s, 1);
    s.signal(Signal::INT);
    for _ in 0..5 {
        s.wait(1_000);
        answers(&mut s, NODE);
    }
    assert_eq!(silent(&s).len(), 0, "the others may still use their grace");
    s.wait(1_000);
    let said = [Sentence::Silent { hosts: "two".into(), within: Span::from_millis(30_300) }];
    assert_eq!(silent(&s), said.iter().collect::<Vec<_>>());
}

#[test]
fn a_host_that_was_told_of_is_not_told_of_again() {
    let mut s = running();
    let why = CloseReason::Ssh(crate::bootstrap::SshEnd::Code(255));
    s.event(JobEvent::EdgeClosed { node: OTHER, why }).wait(20_000);
    let said = [Sentence::Awaited { host: "two".into(), within: Span::from_millis(36_300) }];
    assert_eq!(silent(&s)[..1], said.iter().collect::<Vec<_>>());
    let again = |said: &&&Sentence| matches!(said, Sentence::Silent { hosts, .. } if *hosts != OsBytes::from("one"));
    assert_eq!(silent(&s).iter().filter(again).count(), 0, "{:?}", silent(&s));
}

#[test]
fn nobody_is_waited_for_while_the_job_runs() {
    let mut s = running();
    s.wait(20_000);
    assert_eq!(silent(&s).len(), 0);
}

#[test]
fn of_hosts_that_answer_nothing_is_said() {
    let mut s = running();
    heard(&mut s, 1);
    s.signal(Signal::INT);
    heard(&mut s, 12);
    assert_eq!(silent(&s).len(), 0, "their ranks may take long to end");
}
