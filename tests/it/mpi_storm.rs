//! SIGKILL for the launcher, the guardian, the agent or a rank of an MPI program, at a random moment: nothing hangs, and nothing is left.

use crate::case::Case;
use crate::census::{self, Mercy, Proc};
use crate::mpi::{Hello, hellos};
use crate::place::{self, Random, Scratch};
use crate::plan::Plan;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::sync::Arc;
use std::time::Duration;

/// Programs one after the other: a kill meets the start, a fence or the end of one.
const JOB: &str = "for _ in 1 2 3; do \"$0\" || exit; done";

#[derive(Clone, Copy, Debug)]
enum Victim {
    Launcher,
    Guardian,
    Agent,
    /// The shell of a rank.
    Shell,
    /// The MPI program of a rank: the shell says that it has failed.
    Program,
}

const VICTIMS: [Victim; 5] = [Victim::Launcher, Victim::Guardian, Victim::Agent, Victim::Shell, Victim::Program];

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
    match victim {
        Victim::Launcher => Some(launcher),
        Victim::Guardian => guardian,
        Victim::Agent => agent,
        Victim::Shell => shell,
        Victim::Program => below(shell).next().map(|p| p.pid),
    }
}

fn round(hello: &Hello, victim: Victim, after: Duration) {
    let program = hello.program().to_str().unwrap();
    let case = hello.settings(Plan::rlaunch(["-n", "3", "sh", "-c", JOB, program])).start();
    // The pause is the fault: its moment.
    std::thread::sleep(after);
    let is_hit = find(&case, victim).is_some_and(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok());
    let done = case.end_with(if is_hit { Mercy::All } else { Mercy::Ours });
    let (own, err) = (done.sorted(), done.err());
    assert!(is_hit || own.len() == 9, "{} {victim:?} after {after:?}: {own:?} {err}", hello.package());
}

#[test]
fn nothing_hangs_and_nothing_is_left() {
    let scratch = Scratch::new();
    let programs = Arc::new(hellos(scratch.dir()));
    if programs.is_empty() {
        return;
    }
    let (lanes, rounds) = if place::full() { (4, 50) } else { (2, 6) };
    let lane = |lane: u64| {
        let (mut random, programs) = (Random::new(7_700 + lane), Arc::clone(&programs));
        std::thread::spawn(move || {
            for _ in 0..rounds {
                let hello = random.pick(&programs);
                let victim = *random.pick(&VICTIMS);
                round(hello, victim, Duration::from_micros(random.below(900_000)));
            }
        })
    };
    let failed = (0..lanes).map(lane).collect::<Vec<_>>().into_iter().filter_map(|thread| thread.join().err()).count();
    assert_eq!(failed, 0, "lanes failed; RLAUNCH_TEST_SEED={}", place::seed());
}
