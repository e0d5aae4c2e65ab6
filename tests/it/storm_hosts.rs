//! The storm on several hosts: SIGKILL for the launcher, an ssh, or any host's guardian, agent, init or rank, at a random
//! moment. Nothing is left on any host, nothing hangs, and the exit code is that of the first cause.

use crate::bed::Bed;
use crate::case::Done;
use crate::census::{self, Mercy, Proc};
use crate::place::{self, Random};
use crate::several::job;
use crate::watch::Exit;
use std::time::Duration;

/// The job of the acceptance: it lasts as long as its last rank.
const JOB: &str = "setsid sleep 999 & exec sleep $RANK";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Launcher,
    Ssh,
    Guardian,
    Agent,
    Init,
    Rank,
}

const VICTIMS: [Victim; 6] =
    [Victim::Launcher, Victim::Ssh, Victim::Guardian, Victim::Agent, Victim::Init, Victim::Rank];

impl Victim {
    /// The processes of a job that exist now.
    fn find(self, bed: &Bed) -> Vec<Proc> {
        let all = bed.processes();
        let named = |name: &str| all.iter().filter(|(_, p)| p.comm == name).map(|(_, p)| p.pid).collect::<Vec<i32>>();
        let (agents, launchers) = (named("rlaunch-agent"), named("rlaunch"));
        let stray = |p: &Proc| {
            let words = std::fs::read(format!("/proc/{}/cmdline", p.pid)).unwrap_or_default();
            words.is_empty() || words.ends_with(b"999\0")
        };
        let is = |host: &str, p: &Proc| match self {
            // Its children have its name until they are ssh.
            Self::Launcher => host == "login" && p.comm == "rlaunch" && !launchers.contains(&p.ppid),
            Self::Ssh => host == "login" && p.comm == "ssh",
            Self::Guardian => host != "login" && p.comm == "rlaunch-guard",
            Self::Agent => host != "login" && p.comm == "rlaunch-agent",
            Self::Init => p.comm == "rlaunch-init",
            Self::Rank => agents.contains(&p.ppid) && p.comm == "sleep" && p.state != 'Z' && !stray(p),
        };
        all.into_iter().filter(|(host, p)| is(host, p)).map(|(_, p)| p).collect()
    }
}

/// Lets a job run for a moment and kills a process; returns whether there was one.
fn strike(bed: &Bed, victim: Victim, random: &mut Random, after: Duration) -> bool {
    // The pause is the fault: its moment.
    std::thread::sleep(after);
    let found = victim.find(bed);
    // It may have ended since.
    !found.is_empty() && census::strike(random.pick(&found).pid)
}

fn judge(done: &Done, victim: Victim, hit: bool, story: &str) {
    // A kill after the last rank has ended changes nothing, or is noticed in time.
    let over = done.exit == Exit::Code(0) && done.named("rank.exited").filter(|e| e["code"] == 0).count() == 8;
    let expected = match victim {
        _ if !hit => Exit::Code(0),
        Victim::Launcher | Victim::Rank => Exit::Code(137),
        Victim::Ssh | Victim::Guardian | Victim::Agent | Victim::Init => Exit::Code(125),
    };
    let shown = || format!("{story}: {:?}, not {expected:?}\n{}\n{:#?}", done.exit, done.err(), done.events);
    assert!(done.exit == expected || over, "{}", shown());
}

fn round(bed: &Bed, user: &str, random: &mut Random) {
    let victim = *random.pick(&VICTIMS);
    // Half of them while the hosts are being reached and the ranks started.
    let span = if random.below(2) == 0 { 1_000_000 } else { 8_000_000 };
    let after = Duration::from_micros(random.below(span));
    let story = format!("{user}, {victim:?} after {after:?}");
    let case = job(bed, user, &["--lease", "4s", "sh", "-c", JOB]).start();
    let hit = strike(bed, victim, random, after);
    let killed = hit && victim == Victim::Launcher;
    let done = case.end_with(if killed { Mercy::LostHosts } else { Mercy::Hosts });
    judge(&done, victim, hit, &story);
    bed.clean(5);
}

#[test]
fn any_part_of_a_job_on_four_hosts() {
    let (lanes, rounds) = if place::full() { (4, 50) } else { (2, 4) };
    let threads: Vec<_> = (0..lanes)
        .map(|lane| {
            let mut random = Random::new(9_000 + lane);
            let user = if lane % 2 == 0 { "root" } else { "tester" };
            std::thread::spawn(move || {
                let Some(bed) = Bed::up(4) else { return };
                (0..rounds).for_each(|_| round(&bed, user, &mut random));
                bed.down();
            })
        })
        .collect();
    let failed = threads.into_iter().filter_map(|thread| thread.join().err()).count();
    census::say_kills("hosts");
    assert_eq!(failed, 0, "lanes failed; RLAUNCH_TEST_SEED={}", place::seed());
}
