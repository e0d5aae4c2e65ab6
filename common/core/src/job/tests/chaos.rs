//! Anything at any time: random events in random order, so that no transition is missing and none contradicts another.

use super::*;
use rlaunch_base::capped::Capped;
use rlaunch_protocol::settings::Tier;
use rlaunch_protocol::wire::to_root::{Hello, Started};

/// xorshift64*: enough to shuffle events, and the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = u32::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32).unwrap();
        high % sides
    }
}

fn status(dice: &mut Dice) -> Status {
    match dice.roll(4) {
        0 => exit(3),
        1 => crash(),
        2 => killed(Signal::TERM),
        _ => exit(0),
    }
}

fn step(s: &mut Script, dice: &mut Dice) {
    let rank = dice.roll(4);
    let proc = ProcId::new(rank);
    match dice.roll(22) {
        0 | 1 => s.signal([Signal::INT, Signal::TERM, Signal::USR1][dice.roll(3) as usize]),
        2 => s.event(JobEvent::EdgeClosed { node: NODE, why: CloseReason::Eof }),
        3 => s.event(JobEvent::GuardianEnded { node: NODE, end: GuardianEnd::Silent }),
        4 => s.event(JobEvent::GuardianEnded { node: NODE, end: GuardianEnd::Record { left: rank, named: vec![] } }),
        5 => s.receive(ToRoot::InitLost),
        6 => s.receive(ToRoot::GuardianLost),
        7 => s.done(),
        8 => s.drained(),
        9 => s.event(JobEvent::ReaderClosed(Std::Out)),
        10 => s.event(JobEvent::SinkFailed { std: Std::Err, errno: 28 }),
        11 => {
            let error = SpawnError { step: SpawnStep::Exec, errno: 2, path: OsBytes::default(), found: Found::Nothing };
            s.receive(ToRoot::SpawnFailed { proc, error })
        }
        12 => s.receive(ToRoot::Postmortem { proc, facts: Facts::default() }),
        13 => s.receive(ToRoot::Refused(NodeRefusal::Protocol)),
        14 => s.receive(ToRoot::Hello(Hello { master_port: 1, ..Hello::of(Tier::T3) })),
        15 => {
            let started = Started { proc, pid: 1, at: Mono::default().host_time() };
            s.receive(ToRoot::Started { procs: Capped::chunks([started]).remove(0) })
        }
        16 => s.receive(ToRoot::Draining),
        17 => s.receive(ToRoot::Killing),
        19 => s.event(JobEvent::HungUp(Std::Err)),
        20 => s.event(JobEvent::InputFailed { errno: 5 }),
        21 => s.receive(ToRoot::InputFailed { errno: 28 }),
        _ => {
            let (status, seen) = (status(dice), s.now.saturating_sub(u64::from(dice.roll(9))));
            s.exits(rank, status, (seen / 2, seen))
        }
    };
    s.wait(u64::from(dice.roll(700)));
}

/// The harness checks that nothing follows `Finish` and that no due timeout stays due. Here: output is drained once, the
/// exit code is that of the cause reported, the log ends with it, and whatever happened, the job can be brought to its end.
#[test]
fn any_events_in_any_order() {
    for seed in 1..3000 {
        let mut dice = Dice(seed);
        let on_failure = if seed % 2 == 0 { OnFailure::Kill } else { OnFailure::Continue };
        let timeout = (seed % 3 == 0).then_some(Span::from_secs(6));
        let mut s = Script::new(&spec(3).with(|settings| {
            settings.ending.on_failure = on_failure;
            settings.ending.timeout = timeout;
        }));
        for _ in 0..dice.roll(40) {
            step(&mut s, &mut dice);
        }
        let begun = s
            .log
            .iter()
            .find_map(|what| if let What::Ending { cause, .. } = what { Some(cause.clone()) } else { None });
        if s.finished.is_none() {
            s.signal(Signal::INT).wait(20_000).done().drained();
        }
        let exit = s.finished.unwrap_or_else(|| panic!("seed {seed} does not end"));
        assert!(s.drains <= 1, "seed {seed}");
        let Some(What::JobEnd { cause, exit: logged, .. }) = s.log.last() else { panic!("seed {seed}") };
        let unwritten = s.said.iter().any(|said| matches!(said, What::SinkLost { end: SinkEnd::WriteFailed, .. }));
        assert_eq!((cause.exit(unwritten), *logged), (exit, exit), "seed {seed}");
        let Some(begun) = begun else { continue };
        match (&begun, cause) {
            (Cause::Rank { .. }, Cause::Rank { .. }) => {}
            (begun, cause) => assert_eq!(begun, cause, "seed {seed}: the first cause wins"),
        }
    }
}
