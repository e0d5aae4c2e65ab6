//! A host with very many processes.

use crate::place;
use crate::plan::Plan;

/// Starts so many processes that do nothing, then a program, and ends with it. They are all of its PID namespace.
const CROWD: &str = "import os, signal, subprocess, sys\n\
                     count = int(sys.argv[1])\nreading, writing = os.pipe()\n\
                     for _ in range(count // 100):\n    if os.fork() == 0:\n\
                     \x20       any(os.fork() == 0 for _ in range(99))\n        os.write(writing, b'x')\n        signal.pause()\n\
                     \x20   print('.', file=sys.stderr)\n\
                     came = 0\nwhile came < count:\n    came += len(os.read(reading, 4096))\n\
                     sys.exit(subprocess.run(sys.argv[2:]).returncode)\n";
/// Connects to the `TCPStore`, starts a group of workers that end at once, and fails.
const RANK: &str = "exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT; printf '\\0\\345\\024\\146\\074' >&3; \
                    \"$SPAWN\" n=4 group=workers -- true || exit 9; \
                    \"$RL\" store wait -t 60s rlaunch/ended/workers/{0,1,2,3}; kill -SEGV $$";

/// On such a host a list of all processes takes a large part of a second. On the machine thread it would hold up heartbeats: a host could be
/// lost because workers of it have ended. The bound is in time of the processor, which is the same on a busy host.
#[test]
fn the_machine_thread_never_looks_through_all_processes() {
    let Some(spawn) = place::example("spawn_rank") else { return };
    if !place::tiers().contains(&"t1") || !["python3", "unshare"].into_iter().all(place::has) {
        return;
    }
    let unshare = if place::is_root() { "unshare -pf" } else { "unshare -Urpf" };
    let count = if place::full() { 20_000 } else { 3_000 };
    for tier in ["t1", "t3"] {
        let job = format!("\"$RL\" -n 1 --contain {tier} --master-store agent bash -c \"$RANK\"");
        let script = format!("exec {unshare} --mount-proc --kill-child python3 -c \"$CROWD\" {count} {job}");
        let plan = Plan::shell(&script).env("RL", place::rlaunch()).env("CROWD", CROWD).env("RANK", RANK);
        let done = plan.env("SPAWN", &spawn).env("RLAUNCH_LOG", "rlaunch_agent=trace").start().code(139);
        assert!(done.err().contains("KillSessions"), "sessions of workers are searched for:\n{}", done.err());
        let busy: Vec<String> =
            done.err().lines().filter(|line| line.contains("the machine thread was busy")).map(str::to_owned).collect();
        assert_eq!(busy, [""; 0], "{tier}");
    }
}
