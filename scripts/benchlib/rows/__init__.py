"""The rows of the benchmark: a name, and the function that makes its cases. A new row is a new file and a line here."""

from . import failure, hangs, launch, memory, ssh, stdin, stdout, strangers

ROWS = {
    "launch": launch.cases,
    "rss": memory.idle_cases,
    "stdout": stdout.cases,
    "slow": memory.slow_cases,
    "stdin": stdin.cases,
    "fail": failure.cases,
    "hangs": hangs.cases,
    "strangers": strangers.cases,
    "ssh": ssh.cases,
}
