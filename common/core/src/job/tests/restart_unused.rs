//! Ranks are to be held back or replaced, and the program knows nothing of rounds.

use super::*;
use rlaunch_base::capped::Capped;
use rlaunch_protocol::rounds::Rounds;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::round::{Enrolled, RoundUp};
use rlaunch_restart::RoundNote;
use rlaunch_restart::remark::{Remark, Unused};

fn asked(ranks: u32) -> JobSpec {
    JobSpec { rounds: Rounds { asked: "--spares 1".into(), ..Rounds::default() }, ..spec(ranks) }
}

/// The reports about it.
fn said(s: &Script) -> Vec<Remark> {
    let remark = |what: &What| {
        let What::Round { note, .. } = what else { return None };
        let RoundNote::Remark(remark) = &**note else { return None };
        Some(remark.clone())
    };
    s.said.iter().filter_map(remark).collect()
}

/// The remark in a job of three ranks.
fn unused(when: Unused) -> Remark {
    Remark::OptionsUnused { options: "--spares 1".into(), when, ranks: 3 }
}

#[test]
fn the_end_of_the_first_rank_shows_it_and_it_is_said_once() {
    let mut s = Script::running(&asked(3));
    s.wait(1).exits(1, Status::Exited(0), (1, 1)).wait(1).exits(0, Status::Exited(0), (2, 2));
    assert_eq!(said(&s).len(), 0, "those who have registered may be on their way");
    s.wait(1_000);
    assert_eq!(said(&s), [unused(Unused::Exited(Rank::new(1)))]);
}

#[test]
fn unregistered_ranks_are_reported_after_a_minute() {
    let mut s = Script::running(&asked(3));
    s.wait(59_000);
    assert_eq!(said(&s).len(), 0);
    s.wait(1_001);
    assert_eq!(said(&s), [unused(Unused::Within(Span::from_secs(60)))]);
    s.wait(1).exits(1, Status::Exited(0), (60_000, 60_000));
    assert_eq!(said(&s).len(), 1);
}

#[test]
fn nothing_is_reported_without_options_or_after_a_registration() {
    let mut plain = Script::running(&spec(2));
    plain.wait(61_000).exits(1, Status::Exited(0), (1, 1));
    assert_eq!(said(&plain).len(), 0);
    let mut s = Script::running(&asked(2));
    joins(&mut s);
    s.wait(61_000);
    assert_eq!(said(&s).len(), 0);
}

fn joins(s: &mut Script) {
    let one = Enrolled { initial: Rank::new(0), proc: ProcId::new(0), keys: Capped::default() };
    let ranks = Capped::chunks([one]).remove(0);
    s.receive_from(NODE, &ToRoot::Round(RoundUp::Joined { call: 0, ranks, terms: OsBytes::default() }));
}

#[test]
fn registrations_are_reported_after_exit_of_unregistered_rank() {
    for status in [Status::Exited(0), Status::Exited(3)] {
        let mut s = Script::running(&asked(2));
        s.wait(1).exits(1, status, (1, 1));
        joins(&mut s);
        s.wait(5_000);
        assert_eq!(said(&s).len(), 0, "the program knows of rounds");
    }
}

#[test]
fn job_that_ends_at_once_reports_unused_options_before() {
    let mut s = Script::running(&asked(1));
    s.wait(1).exits(0, Status::Exited(3), (1, 1)).done().drained();
    assert!(s.finished.is_some());
    assert_eq!(said(&s).len(), 1);
}
