//! The cost of a round of many ranks, in messages. Time is measured by `tests/speed/rounds.rs`.

use super::hosts::{enrolled, register};
use super::*;
use rlaunch_base::id::{ProcId, Rank};
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;

const HOSTS: u32 = 2_048;
const PER: u32 = 8;

#[derive(Default, PartialEq, Eq, Debug)]
struct Said {
    interrupts: u32,
    begins: u32,
    members: usize,
    others: u32,
}

fn said(machine: &mut Restart) -> Said {
    let mut said = Said::default();
    while let Some(action) = machine.poll_action() {
        match action {
            RestartAction::Send { msg: RoundDown::Interrupt { .. }, .. } => said.interrupts += 1,
            RestartAction::Send { msg: RoundDown::Begin { members, .. }, .. } => {
                said.begins += 1;
                said.members += members.len();
            }
            RestartAction::Send {
                msg:
                    RoundDown::Finish { .. }
                    | RoundDown::GiveUp { .. }
                    | RoundDown::End { .. }
                    | RoundDown::Refuse { .. }
                    | RoundDown::Late { .. },
                ..
            }
            | RestartAction::Opened
            | RestartAction::Closed(_)
            | RestartAction::Respawn { .. }
            | RestartAction::End { .. }
            | RestartAction::Note(_) => said.others += 1,
        }
    }
    said
}

#[test]
fn a_round_costs_the_root_as_much_as_there_are_hosts() {
    let mut machine = Restart::new(setup(HOSTS, PER, "all,shift"));
    register(&mut machine, HOSTS, PER, &[]);
    let all = usize::try_from(HOSTS * PER).unwrap();
    assert_eq!(said(&mut machine), Said { interrupts: 0, begins: HOSTS, members: all, others: 2 });

    let status = Status::Signaled { sig: Signal::KILL, core: false };
    let ended = |rank: u32| RestartEvent::Ended {
        initial: Rank::new(rank),
        proc: ProcId::new(rank),
        status,
        at: Mono::default(),
    };
    machine.handle(Mono::default(), ended(5));
    assert_eq!(said(&mut machine), Said { interrupts: HOSTS, ..Said::default() });
    // Many more faults: no report is made about them.
    for rank in (6..HOSTS * PER).step_by(16) {
        machine.handle(Mono::default(), ended(rank));
    }
    assert_eq!(said(&mut machine), Said::default());
    let dead = |rank: u32| rank == 5 || (rank >= 6 && (rank - 6).is_multiple_of(16));
    for host in 0..HOSTS {
        let ranks = (host * PER..(host + 1) * PER).filter(|rank| !dead(*rank)).map(|rank| enrolled(rank, rank, &[]));
        let event = RestartEvent::Ready {
            node: NodeId::new(host),
            round: Round::new(0),
            ranks: ranks.collect(),
            last: true,
            port: 7001,
            pinged: false,
        };
        assert_eq!(said(&mut machine), Said::default(), "nothing before the last host is ready");
        machine.handle(Mono::default(), event);
    }
    let left = (0..HOSTS * PER).filter(|rank| !dead(*rank)).count();
    assert_eq!(said(&mut machine), Said { interrupts: 0, begins: HOSTS, members: left, others: 1 });
}

/// More ranks on one host than a message holds.
#[test]
fn round_is_sent_in_parts_to_a_large_host() {
    let mut machine = Restart::new(setup(1, 2_500, "all,shift"));
    let ranks: Vec<_> = (0..2_500).map(|rank| enrolled(rank, rank, &[])).collect();
    for part in ranks.chunks(1_024) {
        let event =
            RestartEvent::Joined { call: 0, node: NodeId::new(0), ranks: part.to_vec(), terms: OsBytes::default() };
        machine.handle(Mono::default(), event);
    }
    let mut parts = Vec::new();
    while let Some(action) = machine.poll_action() {
        if let RestartAction::Send { msg: RoundDown::Begin { members, last, .. }, .. } = action {
            parts.push((members.len(), last));
        }
    }
    assert_eq!(parts, [(1_024, false), (1_024, false), (452, true)]);
}
