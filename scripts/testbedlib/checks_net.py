"""Checks of the cables: a cut is silent, and a healed connection continues."""

import time

from .selftest import Bed, Talk, expect


def check_nothing_leads_outside():
    """No default route, no other network, no name server."""
    with Bed(1) as bed:
        expect(bed.sh("node0", "ip -o route") .startswith("10.77.0.0/16 dev eth0"), bed.sh("node0", "ip route"))
        expect(bed.sh("node0", "ip -o route | wc -l; ip -6 -o addr | wc -l; ip -o link | wc -l") == "1\n0\n2")
        for there in ("1.1.1.1", "127.0.0.53"):
            said = bed.sh("node0", f"timeout 5 bash -c 'exec 3<>/dev/tcp/{there}/53' 2>&1 || true")
            expect("nreachable" in said or "refused" in said, said)
        expect(bed.call("exec", "node0", "getent", "hosts", "example.org").returncode == 2)


def check_a_partition_is_silent():
    """An open connection hangs, a new one times out; healed, every byte arrives."""
    with Bed(2) as bed:
        talk = Talk(bed, "login", "node1")
        expect(talk.connect() == "connected" and talk.echo("one")[0] == "one")
        for way in ([], ["--in"], ["--out"], ["--arp"]):
            bed.run("partition", *way, "node1")
            expect(talk.echo("two", 0.3)[0] == "timeout", way)
            expect(talk.connect(0.3) == "timeout", way)
            if not way:
                expect(bed.run("exec", "login", "ssh", "node0", "hostname") == "node0")
            bed.run("heal", "node1")
            expect(talk.ask("recv 10")[0] == "two", way)
            expect(talk.connect() == "connected", way)
        expect(bed.run("exec", "login", "ssh", "node1", "hostname") == "node1")


RECEIVE = """
import socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("", 7778))
print("listening", flush=True)
while True:
    print(receiver.recv(100).decode().strip(), flush=True)
"""


def check_one_way_is_one_way():
    """Data that is cut or lost in one direction passes in the other. The word after the healing arrives first."""
    with Bed(1) as bed:
        ears = {host: bed.python(host, RECEIVE) for host in ("login", "node0")}
        expect(all(ear.stdout.readline() == "listening\n" for ear in ears.values()))
        bed.sh("login", "ssh node0 true")  # neighbours know each other
        for fault, more, cure in (("partition", [], ["heal", "node0"]), ("delay", ["0", "100%"], ["delay", "node0", "0"])):
            for way, deaf, other in (("--in", "node0", "login"), ("--out", "login", "node0")):
                bed.run(fault, way, "node0", *more)
                for to, sender in ((deaf, other), (other, deaf)):
                    bed.sh(sender, f"bash -c 'echo {fault} {way} >/dev/udp/{to}/7778'")
                expect(ears[other].stdout.readline() == f"{fault} {way}\n")
                bed.run(*cure)
                bed.sh(other, f"bash -c 'echo after >/dev/udp/{deaf}/7778'")
                expect(ears[deaf].stdout.readline() == "after\n", fault, way)


def check_a_pair_is_parted():
    """The others still see both."""
    with Bed(2) as bed:
        talk, other = Talk(bed, "node0", "node1"), Talk(bed, "node1", "login")
        expect(talk.connect() == other.connect() == "connected")
        bed.run("partition", "node1", "node0")
        expect(talk.echo("x", 0.3)[0] == "timeout" and other.echo("y")[0] == "y")
        bed.run("heal")
        expect(talk.ask("recv 10")[0] == "x")


def check_without_arp_there_is_no_route():
    """The kernel of the peer reports the missing route after some seconds, as after a power cut."""
    with Bed(2) as bed:
        talk = Talk(bed, "login", "node1")
        bed.run("partition", "--arp", "node1")
        expect(talk.connect(20) == "EHOSTUNREACH")


def check_a_power_cut_is_silent():
    """No end of connections is seen; with --fin it is. Power again is another boot of the same host."""
    with Bed(2) as bed:
        ids = "cat /etc/machine-id /sys/class/net/eth0/address /proc/sys/kernel/random/boot_id"
        before = bed.sh("node1", f"echo disk >/etc/disk; echo home >~/home; touch /tmp/x; {ids}").splitlines()
        talk = Talk(bed, "login", "node1")
        expect(talk.connect() == "connected")
        bed.run("kill-host", "node1")
        expect(talk.echo("x", 0.5)[0] == "timeout" and talk.connect(0.3) in ("timeout", "EHOSTUNREACH"))
        expect(bed.call("exec", "node1", "true").returncode == 125 and "off" in bed.run("ps", "node1"))
        bed.run("start-host", "node1")
        after = bed.sh("node1", f"cat /etc/disk ~/home; test ! -e /tmp/x && {ids}").splitlines()
        expect(after[:4] == ["disk", "home", *before[:2]] and after[4] != before[2], before, after)
        expect(bed.run("exec", "login", "ssh", "node1", "hostname") == "node1")
        talk = Talk(bed, "login", "node1")
        expect(talk.connect() == "connected")
        bed.run("kill-host", "--fin", "node1")
        expect(talk.ask("recv 5")[0] in ("end", "ECONNRESET"))
        bed.run("start-host", "node1")
        bed.run("strays", "node1")


def _round_trip(talk, count=20):
    """The quickest: a busy machine makes others slower, but none quicker than the cable."""
    def once():
        # By one clock from end to end: what passes between the two words is a part of the way.
        begun = time.monotonic()
        talk.ask("send x")
        talk.ask("recv 5")
        return time.monotonic() - begun

    return min(once() for _ in range(count))


def check_a_slow_cable():
    """Each way so many milliseconds, or one way; 0 is as before. Other cables are as they were."""
    with Bed(2) as bed:
        talk, other = Talk(bed, "login", "node1"), Talk(bed, "login", "node0")
        expect(talk.connect() == other.connect() == "connected")
        for words, least, most in ((("node1", "20"), 0.040, 0.08), (("--in", "node1", "0"), 0.020, 0.04), (("node1", "0"), 0, 0.015)):
            bed.run("delay", *words)
            seconds = _round_trip(talk)
            # The relay waits in whole milliseconds, and may be one early each way.
            expect(least - 0.002 <= seconds <= most, words, seconds)
            expect(_round_trip(other) < 0.015)
        expect("side-" not in bed.sh("login", "ip -o link"))


def check_a_lossy_cable():
    """Everything lost one way is a cut one way; some lost is slow, and whole in the end."""
    with Bed(1) as bed:
        talk = Talk(bed, "login", "node0")
        expect(talk.connect() == "connected")
        bed.run("delay", "--out", "node0", "0", "100%")
        expect(talk.echo("lost", 0.4)[0] == "timeout")
        bed.run("delay", "node0", "1", "10%")
        expect(talk.ask("recv 20")[0] == "lost")
        expect(talk.ask("bulk 200000")[0] == "done")
        bed.run("partition", "node0")
        expect(talk.echo("cut", 0.3)[0] == "timeout", "a slow cable cannot be cut")
        bed.run("delay", "node0", "0")
        expect(talk.ask("recv 0.3")[0] == "timeout", "a cut was lost with the delay")
        bed.run("heal")
        expect(talk.ask("recv 20")[0] == "cut")


def check_a_narrow_cable():
    """So many megabits a second."""
    with Bed(1) as bed:
        talk = Talk(bed, "login", "node0")
        expect(talk.connect() == "connected")
        bed.run("rate", "node0", "100")
        said, seconds = talk.ask("bulk 10000000")
        expect(said == "done" and 0.75 <= seconds <= 10, said, seconds)
        bed.run("rate", "node0", "0")
        seconds = min(float(talk.ask("bulk 10000000")[1]) for _ in range(5))
        expect(seconds < 0.7, seconds)


def _states(bed, word=""):
    """The states of the processes of node1 that show this word."""
    return {line[25] for line in bed.run("ps", "node1").splitlines()[1:] if word in line}


def check_a_frozen_host_is_suspended():
    """The kernel still accepts connections, and no process answers. Processes that were stopped before stay stopped."""
    with Bed(2) as bed:
        talk = Talk(bed, "login", "node1")
        expect(talk.connect() == "connected")
        bed.sh("node1", "setsid sleep 47.25 >/dev/null 2>&1 </dev/null & until grep -q sleep /proc/$!/comm; do :; done; kill -STOP $!")
        bed.run("freeze", "node1")
        expect(talk.connect(1) == "connected" and talk.echo("x", 0.4)[0] == "timeout")
        start = time.monotonic()
        expect(bed.call("exec", "node1", "true").returncode == 125 and time.monotonic() - start < 5)
        expect(_states(bed) <= {"T", "t"}, _states(bed))
        bed.run("thaw", "node1")
        expect(talk.ask("recv 5")[0] == "x")
        expect(_states(bed, "47.25") == {"T"} and _states(bed, "sshd:") == {"S"}, bed.run("ps", "node1"))
        bed.run("freeze", "node1")
        bed.run("kill-host", "node1")
        bed.run("start-host", "node1")
        expect(bed.run("exec", "login", "ssh", "node1", "hostname") == "node1")
