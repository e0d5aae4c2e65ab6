//! Which rank was first.

use super::*;

fn first(s: &mut Script) -> u32 {
    s.report();
    let Cause::Rank { rank, .. } = s.cause() else { panic!("{:?}", s.cause()) };
    rank.get()
}

fn explains(s: &mut Script, rank: u32) {
    let facts = Facts { error_file: Some(OsBytes::from("{}")), ..Facts::default() };
    s.receive(ToRoot::Postmortem { proc: ProcId::new(rank), facts });
}

#[test]
fn the_earliest_is_first_however_late_it_is_reported() {
    let mut s = Script::running(&spec(3));
    s.now = 30;
    s.exits(1, exit(1), (20, 25));
    s.exits(2, exit(7), (10, 15)).exits(0, killed(Signal::TERM), (25, 31));
    assert_eq!(first(&mut s), 2);
    assert_eq!(s.finished, Some(Ending::Code(7)), "the code follows the verdict");
}

#[test]
fn rank_that_we_ended_is_never_first() {
    let mut s = Script::running(&spec(3));
    s.now = 30;
    s.exits(1, exit(1), (20, 29));
    s.exits(2, crash(), (10, 31)).exits(0, killed(Signal::TERM), (10, 30));
    assert_eq!(first(&mut s), 1);
}

#[test]
fn crash_is_first_of_ends_in_one_instant() {
    let mut s = Script::running(&spec(3));
    s.now = 30;
    s.exits(0, exit(1), (10, 20)).exits(1, crash(), (10, 20)).exits(2, exit(1), (10, 20));
    explains(&mut s, 2);
    assert_eq!(first(&mut s), 1);
    assert_eq!(s.finished, Some(Ending::Code(139)));
}

#[test]
fn a_crash_is_first_only_where_times_leave_it_open() {
    for (between, expected) in [((20, 22), 0), ((19, 22), 1)] {
        let mut s = Script::running(&spec(2));
        s.now = 30;
        s.exits(0, exit(1), (10, 20)).exits(1, crash(), between);
        assert_eq!(first(&mut s), expected);
    }
}

#[test]
fn then_one_that_wrote_why() {
    let mut s = Script::running(&spec(3));
    s.now = 30;
    s.exits(0, exit(1), (10, 20)).exits(1, exit(2), (10, 20)).exits(2, exit(3), (10, 21));
    explains(&mut s, 2);
    assert_eq!(first(&mut s), 2);
}

#[test]
fn then_the_earlier_then_the_lower() {
    let mut s = Script::running(&spec(3));
    s.now = 30;
    s.exits(2, exit(3), (10, 21)).exits(1, exit(2), (10, 20)).exits(0, exit(1), (10, 20));
    assert_eq!(first(&mut s), 0);
}

#[test]
fn a_signal_that_we_passed_on_is_not_unexpected() {
    let mut s = Script::running(&spec(2));
    s.now = 30;
    s.signal(Signal::USR1).exits(1, killed(Signal::USR1), (10, 20)).exits(0, exit(1), (10, 20));
    assert_eq!(first(&mut s), 0);
}

#[test]
fn facts_are_kept_of_ranks_that_failed_by_themselves() {
    let mut s = Script::running(&spec(2));
    s.now = 30;
    s.exits(0, exit(1), (10, 20)).exits(1, killed(Signal::TERM), (10, 31));
    explains(&mut s, 0);
    explains(&mut s, 1);
    let report = s.report();
    assert_eq!(report.facts.keys().map(|r| r.get()).collect::<Vec<_>>(), [0]);
}

/// Times alone do not decide: the agent killed rank 1 before the launcher had begun the ending for rank 0.
#[test]
fn a_rank_that_is_killed_because_init_or_guardian_is_lost_did_not_fail_first() {
    for loss in [ToRoot::InitLost, ToRoot::GuardianLost] {
        let mut s = Script::running(&spec(2));
        s.now = 20;
        s.exits(0, exit(3), (1, 10)).receive(loss).exits(1, killed(Signal::KILL), (1, 12)).report();
        assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(0), status: exit(3) });
    }
}
