"""Kills parts of a pool and of its jobs at random moments: storm.py KILLS JOBS SEED. Runs on the login host of a testbed with two hosts."""

import os
import random
import subprocess
import sys
import time

RL = os.environ["RL"]
KILLS, JOBS = int(sys.argv[1]), int(sys.argv[2])
HOSTS = ["node0", "node1"]
PROGRAM = "sleep 600.25"
chance = random.Random(int(sys.argv[3]))


def run(*words):
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)


def say(what):
    """The test does not wait for long without a word."""
    print(what, file=sys.stderr, flush=True)


def on(host, script):
    return run("ssh", host, script).stdout


def until(what, found):
    end = time.monotonic() + 60
    while not found():
        if time.monotonic() > end:
            sys.exit(f"storm: {what} did not happen within 60 s")
        time.sleep(0.05)


def remaining():
    """Processes of jobs on the hosts."""
    script = f"pgrep -fx '{PROGRAM}'; pgrep -x rlaunch-agent; pgrep -x rlaunch-guard; grep -o '@rlaunch-job-.*' /proc/net/unix; true"
    return "".join(on(host, script) for host in HOSTS)


def files():
    return [on(host, "ls -A /tmp /dev/shm") for host in HOSTS]


def pid_of_pool():
    found = [line for line in run(RL, "pool", "status", "p").stdout.splitlines() if line.startswith("p: ")]
    return int(found[0].split(", pid ")[1].split(",")[0]) if found else None


def up():
    if pid_of_pool() is None:
        done = run(RL, "pool", "up", "p", "-H", "node[0-1]")
        if done.returncode != 0:
            sys.exit(f"storm: pool up: {done.stdout}")


def kill_there(comm):
    host = chance.choice(HOSTS)
    on(host, f"pid=$(pgrep -n -x {comm}) && kill -9 $pid")


def strike(job):
    part = chance.choice(["job", "pool", "rlaunch-agent", "rlaunch-guard"])
    if part == "job":
        job.kill()
    elif part == "pool":
        pid = pid_of_pool()
        if pid is not None:
            os.kill(pid, 9)
    else:
        kill_there(part)
    return part


def storm():
    for number in range(KILLS):
        up()
        words = [RL, "--pool", "p", "--wait=60s", "--lease", "2s", "--grace", "1s", "sh", "-c", f"exec {PROGRAM}"]
        job = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        time.sleep(chance.uniform(0, 1.2))
        part = strike(job)
        say(f"kill {number}: {part}")
        if job.poll() is None and part != "job":
            # The part may not have been there yet.
            try:
                job.wait(8)
            except subprocess.TimeoutExpired:
                job.terminate()
        job.wait(60)
        until(f"kill {number} of {part}: the end of {remaining()!r}", lambda: remaining() == "")
    up()
    for number in range(JOBS):
        say(f"job {number}")
        done = run(RL, "--pool", "p", "--wait=60s", "true")
        if done.returncode != 0:
            sys.exit(f"storm: job {number}: {done.stdout}")


before = files()
storm()
down = run(RL, "pool", "down", "p")
if down.returncode != 0:
    sys.exit(f"storm: pool down: {down.stdout}")
if remaining() or files() != before or os.path.exists("/tmp/rlaunch-0"):
    sys.exit(f"storm: left: {remaining()} {before} {files()}")
print(f"{KILLS} kills, {JOBS} jobs: nothing is left")
