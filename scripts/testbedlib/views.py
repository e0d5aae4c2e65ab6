"""Processes on the hosts, and strays among them."""

import os
import re
import time

from . import channel, inside

STEP = re.compile(r"slurmstepd: \[(\d+)[.+]")
"""The process that holds a step of a job on its node."""


def _hosts(name, chosen):
    if chosen:
        return [chosen]
    return [state["name"] for state in channel.ask(name, do="look", names=[])[0]["hosts"]]


def processes(name, chosen):
    """(state of the host, its processes), host by host; a host that is off has none."""
    for each in _hosts(name, chosen):
        answer, pidfd = channel.ask(name, do="look", names=[each])
        state = answer["hosts"][0]
        rows = []
        if pidfd is not None:
            try:
                rows = inside.call(pidfd, inside.census)
            finally:
                os.close(pidfd)
        yield state, rows


def _line(host, row):
    return f"{host:<8} {row[0]:>6} {row[1]:<8} {row[2]} {row[3]}"


def show(name, chosen):
    """`ps`."""
    print(f"{'HOST':<8} {'PID':>6} {'USER':<8} S COMMAND")
    for state, rows in processes(name, chosen):
        if not state["up"]:
            print(f"{state['name']:<8} off")
        for row in rows:
            print(_line(state["name"], row))


def strays(name, chosen):
    """Lines for everything that lives but for init and the daemons of each host."""
    found, jobs = [], None
    for state, rows in processes(name, chosen):
        own = {1, *state["daemons"].values()}
        for row in rows:
            # slurmctld has a child that runs scripts for it.
            if row[0] in own or row[4] in own and row[3].endswith("slurmscriptd"):
                continue
            step = STEP.match(row[3])
            if step:
                jobs = _running_jobs(name) if jobs is None else jobs
                if int(step[1]) in jobs:
                    continue
            found.append(_line(state["name"], row))
    if not chosen:
        found += [_line("fabric", row) for row in channel.ask(name, do="strays")[0]["strays"]]
    return found


def _running_jobs(name):
    """Jobs of Slurm that run; none if slurmctld cannot be asked."""
    # Loaded here, because it would be most of the time of `ps` and `strays`.
    from . import slurm  # pylint: disable=import-outside-toplevel
    answer, pidfd = channel.ask(name, do="look", names=["login"])
    if pidfd is None:
        return []
    try:
        return inside.call(pidfd, slurm.running_jobs) or [] if "slurmctld" in answer["hosts"][0]["daemons"] else []
    finally:
        os.close(pidfd)


def strays_within(name, chosen, seconds):
    """Strays, as soon as there are none, or after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        found = strays(name, chosen)
        if not found or time.monotonic() >= end:
            return found
        time.sleep(0.01)
