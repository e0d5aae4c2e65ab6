//! SIGKILL for the controller of worker groups, the agent or the launcher. The moment is random: a group may start, work or end.
//! Nothing is left, and nothing hangs.

use crate::census::{self, Mercy};
use crate::place::{self, Random};
use crate::plan::Plan;
use crate::python::{client, with_client};
use crate::watch::Exit;
use nix::sys::signal::Signal;
use std::path::Path;
use std::time::Duration;

const PYTHON: &str = "/usr/bin/python3";
/// Groups of a controller that is spared. Each takes about 0.4 s.
const TIMES: &str = "3";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    /// The controller ends its groups, and then itself.
    Nothing,
    Launcher,
    Agent,
    Controller,
}

const VICTIMS: [Victim; 4] = [Victim::Controller, Victim::Agent, Victim::Launcher, Victim::Nothing];

/// The process of a part of the job, if it is there.
fn pid_of(launcher: i32, victim: Victim) -> Option<i32> {
    let all = census::all();
    let child = |of: Option<i32>| all.iter().find(|p| of.is_some() && Some(p.ppid) == of).map(|p| p.pid);
    let agent = child(child(Some(launcher)));
    match victim {
        Victim::Nothing => None,
        Victim::Launcher => Some(launcher),
        Victim::Agent => agent,
        // The first of the ranks: workers come later. Their numbers may be lower, where the kernel has used all once.
        Victim::Controller => {
            let ranks = all.iter().filter(|p| Some(p.ppid) == agent && p.comm.starts_with("python"));
            ranks.min_by_key(|p| p.start).map(|p| p.pid)
        }
    }
}

fn round(client: &Path, victim: Victim, after: Duration) {
    let story = format!("{victim:?} after {after:?}");
    let scripts = place::root().join("tests/groups");
    let script = scripts.join("storm.py");
    let words = ["--grace", "2s", "-n", "1", "--lead", PYTHON, script.to_str().unwrap(), TIMES];
    let plan = with_client(Plan::rlaunch(words), client);
    let case = plan.env("PYTHONPATH", format!("{}:{}", client.display(), scripts.display())).start();
    // The pause is the fault: its moment.
    std::thread::sleep(after);
    let pid = pid_of(case.pid(), victim);
    let hit = pid.is_some_and(census::strike);
    let done = case.end_with(if hit { Mercy::All } else { Mercy::Ours });
    let expected = match victim {
        _ if !hit => Exit::Code(0),
        Victim::Nothing => Exit::Code(0),
        Victim::Launcher => Exit::Signal(Signal::SIGKILL),
        Victim::Agent => Exit::Code(125),
        Victim::Controller => Exit::Code(137),
    };
    let is_late = done.exit == Exit::Code(0);
    assert!(done.exit == expected || is_late, "{story}: {:?}, not {expected:?}\n{}", done.exit, done.err());
}

/// The files of groups in shared memory. A directory for error files stays after another test has killed all processes of a job.
fn in_shared_memory() -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_of_groups = |name: &str| name.contains("rlaunch") && !name.ends_with(".errors");
    entries.filter(|name| is_of_groups(&name.to_string_lossy())).collect()
}

#[test]
fn nothing_is_left_of_groups_whatever_is_killed() {
    let Some(client) = client() else { return };
    let before = in_shared_memory();
    let (lanes, rounds) = if place::full() { (4, 50) } else { (2, 4) };
    let threads: Vec<_> = (0..lanes)
        .map(|lane| {
            let (mut random, client) = (Random::new(7_300 + lane), client.clone());
            std::thread::spawn(move || {
                for n in 0..rounds {
                    round(&client, VICTIMS[n % VICTIMS.len()], Duration::from_millis(random.below(1_400)));
                }
            })
        })
        .collect();
    for thread in threads {
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
    census::say_kills("groups");
    // Sockets of other tests come and go there.
    census::wait_until("nothing new in /dev/shm", || in_shared_memory().iter().all(|name| before.contains(name)));
}
