//! SIGKILL for the launcher, the guardian, the agent or a rank of an MPI program, at a random moment: nothing hangs, and nothing is left,
//! in /dev/shm neither.

use crate::case::Case;
use crate::census::{self, Mercy, Proc};
use crate::mpi_programs::{Hello, hellos, spawns};
use crate::own_shm::{self, OwnShm};
use crate::place::{self, Random, Scratch};
use std::sync::Arc;
use std::time::Duration;

/// Programs one after the other: a kill meets the start, a fence or the end of one.
const JOB: &str = "exec \"$RL\" -n \"$RANKS\" sh -c 'for _ in 1 2 3; do \"$0\" || exit; done' \"$PROGRAM\"";

/// Programs of a storm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Hello,
    Spawn,
}

impl Kind {
    const fn ranks(self) -> &'static str {
        match self {
            Self::Hello => "3",
            Self::Spawn => "2",
        }
    }

    /// Lines of a job that nothing has hit.
    const fn lines(self) -> usize {
        match self {
            Self::Hello => 9,
            Self::Spawn => 12,
        }
    }

    /// The kill comes before this time, in µs: as long as a job takes.
    const fn window(self) -> u64 {
        match self {
            Self::Hello => 900_000,
            Self::Spawn => 2_500_000,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Victim {
    Launcher,
    Guardian,
    Agent,
    /// The shell of a rank.
    Shell,
    /// The MPI program of a rank: the shell says that it has failed.
    Program,
    /// A rank that an MPI program has started; else the program.
    Spawned,
}

const VICTIMS: [Victim; 6] =
    [Victim::Launcher, Victim::Guardian, Victim::Agent, Victim::Shell, Victim::Program, Victim::Spawned];

/// A process of the job.
fn find(case: &Case, victim: Victim) -> Option<i32> {
    let all = census::all();
    let child = |of: i32| all.iter().find(|p| p.ppid == of).map(|p| p.pid);
    let launcher = case.pid();
    let guardian = child(launcher);
    let agent = guardian.and_then(child);
    let below =
        |of: Option<i32>| all.iter().filter(move |p: &&Proc| of.is_some() && Some(p.ppid) == of && p.state != 'Z');
    let shell = below(agent).find(|p| p.comm == "sh").map(|p| p.pid);
    let program = below(shell).next().map(|p| p.pid);
    match victim {
        Victim::Launcher => Some(launcher),
        Victim::Guardian => guardian,
        Victim::Agent => agent,
        Victim::Shell => shell,
        Victim::Program => program,
        Victim::Spawned => below(agent).find(|p| p.comm.starts_with("spawn")).map(|p| p.pid).or(program),
    }
}

fn round((kind, hello): (Kind, &Hello), victim: Victim, after: Duration) {
    let plan = own_shm::shell(JOB).env("RANKS", kind.ranks()).env("PROGRAM", hello.program());
    let plan = if kind == Kind::Spawn { hello.network_settings(plan) } else { hello.settings(plan) };
    let mut case = plan.start();
    let shm = OwnShm::of(&mut case);
    // The pause is the fault: its moment.
    std::thread::sleep(after);
    let is_hit = find(&case, victim).is_some_and(census::strike);
    // Programs that wait in a loop have all processors: tests of one job measure how soon the guardian is gone.
    let done = case.end_with(if is_hit { Mercy::LostHosts } else { Mercy::Ours });
    let (own, err, name) = (done.sorted(), done.err(), hello.name());
    assert!(is_hit || own.len() == kind.lines(), "{kind:?} of {name} {victim:?} after {after:?}: {own:?} {err}");
    let left = shm.names();
    assert!(left.is_empty(), "{kind:?} of {name} {victim:?} after {after:?}: {left:?} in /dev/shm: {err}");
}

#[test]
fn nothing_hangs_and_nothing_is_left() {
    let scratch = Scratch::new();
    let hellos = hellos(scratch.dir()).into_iter().map(|hello| (Kind::Hello, hello));
    let programs: Vec<(Kind, Hello)> =
        hellos.chain(spawns(scratch.dir()).into_iter().map(|spawn| (Kind::Spawn, spawn))).collect();
    let programs = Arc::new(programs);
    if programs.is_empty() {
        return;
    }
    let (lanes, rounds) = if place::full() { (4, 50) } else { (2, 6) };
    let lane = |lane: u64| {
        let (mut random, programs) = (Random::new(7_700 + lane), Arc::clone(&programs));
        std::thread::spawn(move || {
            for _ in 0..rounds {
                let (kind, program) = random.pick(&programs);
                let victim = *random.pick(&VICTIMS);
                round((*kind, program), victim, Duration::from_micros(random.below(kind.window())));
            }
        })
    };
    let failed = (0..lanes).map(lane).collect::<Vec<_>>().into_iter().filter_map(|thread| thread.join().err()).count();
    census::say_kills("MPI");
    assert_eq!(failed, 0, "lanes failed; RLAUNCH_TEST_SEED={}", place::seed());
}
