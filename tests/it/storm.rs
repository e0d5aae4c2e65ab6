//! SIGKILL for the launcher, the guardian, the agent, init or a rank, at a random moment: nothing is left, nothing hangs, and
//! the exit code is that of the first cause.

use crate::case::{Case, Done};
use crate::census::{self, Mercy, Proc};
use crate::place::{self, Random};
use crate::plan::Plan;
use crate::watch::Exit;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;

/// The job of the acceptance: every rank leaves a process behind, and the job lasts as long as its last rank.
const JOB: &str = "setsid sleep 999 & exec sleep $RANK";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Launcher,
    Guardian,
    Agent,
    Init,
    Rank,
    /// Several of ours at once, a bit for each: the kernel itself must clean up.
    Ours(u8),
}

/// The processes of a job, as far as they exist.
struct Parts {
    launcher: i32,
    guardian: Option<i32>,
    agent: Option<i32>,
    init: Option<i32>,
    ranks: Vec<i32>,
}

impl Parts {
    fn of(launcher: i32) -> Self {
        let all = census::all();
        let child = |of: Option<i32>| all.iter().find(|p| Some(p.ppid) == of).map(|p| p.pid);
        let guardian = child(Some(launcher));
        let agent = child(guardian);
        let below = |p: &&Proc| agent.is_some() && Some(p.ppid) == agent;
        let init = all.iter().filter(below).find(|p| p.comm == "rlaunch-init").map(|p| p.pid);
        let ranks = all.iter().filter(below).filter(|p| p.comm == "sleep" && p.state != 'Z').map(|p| p.pid).collect();
        Self { launcher, guardian, agent, init, ranks }
    }

    fn pids(&self, victim: Victim) -> Vec<i32> {
        match victim {
            Victim::Launcher => vec![self.launcher],
            Victim::Guardian => self.guardian.into_iter().collect(),
            Victim::Agent => self.agent.into_iter().collect(),
            Victim::Init => self.init.into_iter().collect(),
            Victim::Rank => self.ranks.first().copied().into_iter().collect(),
            Victim::Ours(bits) => [Some(self.launcher), self.guardian, self.agent, self.init]
                .into_iter()
                .enumerate()
                .filter(|(bit, _)| bits & (1 << bit) != 0)
                .filter_map(|(_, pid)| pid)
                .collect(),
        }
    }
}

/// Lets a job run for a moment, kills a process, and returns which. A victim that does not exist (yet) is spared.
fn strike(case: &Case, victim: Victim, after: Duration) -> bool {
    // The pause is the fault: its moment.
    std::thread::sleep(after);
    let pids = Parts::of(case.pid()).pids(victim);
    // All at once: none of them sees another one die before it is dead itself.
    let hit = pids.iter().filter(|pid| census::strike(**pid)).count();
    hit > 0
}

fn judge(done: &Done, victim: Victim, hit: bool, story: &str) {
    let ranks_done = done.named("rank.exited").filter(|e| e["code"] == 0).count();
    // A kill after the last rank has ended changes nothing, or is noticed in time.
    let over = done.exit == Exit::Code(0) && ranks_done == 3;
    let expected = match victim {
        _ if !hit => Exit::Code(0),
        Victim::Ours(bits) if bits & 1 == 0 => Exit::Code(125),
        Victim::Launcher | Victim::Ours(_) => Exit::Signal(Signal::SIGKILL),
        Victim::Guardian | Victim::Agent | Victim::Init => Exit::Code(125),
        Victim::Rank => Exit::Code(137),
    };
    assert!(
        done.exit == expected || over,
        "{story}: {:?}, not {expected:?}\n{}\n{:#?}",
        done.exit,
        done.err(),
        done.events
    );
    if let Some(end) = done.named("job.end").next() {
        // An agent that loses its guardian while it comes up may not live to count.
        let counted = end["left"] == 0 && done.err().contains("0 left running");
        let uncounted = end["left"].is_null() && done.err().contains("could not be counted");
        assert!(done.exit == Exit::Code(0) || counted || uncounted, "{story}: {}", done.err());
    }
}

/// One round; a lane of the storm runs many after each other.
fn round(tier: &str, victim: Victim, after: Duration) {
    let story = format!("{tier}, {victim:?} after {after:?}");
    let case = Plan::rlaunch(["-n", "3", "sh", "-c", JOB]).contain(tier).start();
    let hit = strike(&case, victim, after);
    let done = case.end_with(if hit { Mercy::All } else { Mercy::Ours });
    judge(&done, victim, hit, &story);
}

fn storm(tier: &'static str, victims: Vec<Victim>, stream: u64) {
    if !place::tiers().contains(&tier) {
        return;
    }
    let (lanes, rounds) = if place::full() { (16, 13) } else { (5, 4) };
    let threads: Vec<_> = (0..lanes)
        .map(|lane| {
            let mut random = Random::new(stream * 100 + lane);
            let victims = victims.clone();
            std::thread::spawn(move || {
                for _ in 0..rounds {
                    let victim = *random.pick(&victims);
                    // Half of them while the job is started, the others at any moment of its life.
                    let span = if random.below(2) == 0 { 20_000 } else { 2_100_000 };
                    round(tier, victim, Duration::from_micros(random.below(span)));
                }
            })
        })
        .collect();
    let failed = threads.into_iter().filter_map(|thread| thread.join().err()).count();
    census::say_kills(tier);
    assert_eq!(failed, 0, "lanes failed; RLAUNCH_TEST_SEED={}", place::seed());
}

#[test]
fn in_a_pid_namespace() {
    use Victim::{Agent, Guardian, Init, Launcher, Ours, Rank};
    let sets = [0b0011, 0b0110, 0b0111, 0b1011, 0b1101, 0b1110, 0b1111].map(Ours);
    storm("t1", [&[Launcher, Guardian, Agent, Init, Rank][..], &sets].concat(), 1);
}

/// A PID namespace takes no process any more when its init is gone, and the kernel says that of memory.
#[test]
fn init_is_named_if_ranks_cannot_start_without_init() {
    if !place::tiers().contains(&"t1") {
        return;
    }
    for _ in 0..30 {
        let case = Plan::rlaunch(["-n", "64", "sleep", "99"]).contain("t1").start();
        let init = (0..100_000).find_map(|_| Parts::of(case.pid()).init);
        kill(Pid::from_raw(init.unwrap()), Signal::SIGKILL).unwrap();
        let done = case.code(125);
        done.says("the first process of the PID namespace");
        assert!(!done.err().contains("memory"), "{}", done.err());
    }
}

#[test]
fn under_subreapers() {
    use Victim::{Agent, Guardian, Launcher, Ours, Rank};
    storm("t3", vec![Launcher, Guardian, Agent, Rank, Ours(0b0011), Ours(0b0101)], 2);
}

/// When the launcher was killed, the guardian killed the agent first. If the guardian was killed in the next millisecond, ranks
/// remained, or the directory of the store's socket.
#[test]
fn nothing_remains_while_guardian_or_agent_lives() {
    let delays = [0, 200, 500, 1_000, 2_000].map(Duration::from_micros);
    for (delay, also_agent) in delays.iter().flat_map(|delay| [(delay, false), (delay, false), (delay, true)]) {
        let case = Plan::rlaunch(["-n", "16", "sh", "-c", "trap '' TERM; setsid sleep 999 & sleep 99"]);
        let case = case.contain("t3").start();
        case.events("rank.started", 16);
        let parts = Parts::of(case.pid());
        let second = if also_agent { parts.agent } else { parts.guardian };
        kill(Pid::from_raw(parts.launcher), Signal::SIGKILL).unwrap();
        // The pause is the fault: its moment.
        std::thread::sleep(*delay);
        // It may be done by then.
        kill(Pid::from_raw(second.unwrap()), Signal::SIGKILL).unwrap_or_default();
        let done = case.end_with(Mercy::All);
        let left: Vec<_> = std::fs::read_dir(done.scratch.temporary()).unwrap().collect();
        assert!(left.is_empty(), "{delay:?}, {second:?}: {left:?}");
    }
}
