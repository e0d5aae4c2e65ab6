"""The rows of the benchmark: a name, and the function that makes its cases. A new row is a new file and a line here."""

from . import devices, failure, groups, hangs, launch, memory, mpi, pool, programs, rounds, rounds_python, rounds_root, slices, slurm, ssh, ssh_failure, ssh_memory, ssh_streams, stdin, stdout, store, strangers

ROWS = {
    "launch": launch.cases,
    "rss": memory.idle_cases,
    "stdout": stdout.cases,
    "slow": memory.slow_cases,
    "stdin": stdin.cases,
    "fail": failure.cases,
    "hangs": hangs.cases,
    "rounds": rounds.cases,
    "rounds-python": rounds_python.cases,
    "rounds-root": rounds_root.cases,
    "groups": groups.cases,
    "store": store.cases,
    "store-own": store.own_cases,
    "strangers": strangers.cases,
    "devices": devices.cases,
    "mpi": mpi.cases,
    "programs": programs.cases,
    "ssh": ssh.cases,
    "ssh-fail": ssh_failure.cases,
    "pool": pool.cases,
    "slices": slices.cases,
    "ssh-programs": programs.ssh_cases,
    "ssh-stdout": ssh_streams.stdout_cases,
    "ssh-stdin": ssh_streams.stdin_cases,
    "ssh-rss": ssh_memory.cases,
    "slurm": slurm.launch_cases,
    "slurm-stdout": slurm.stdout_cases,
    "slurm-fence": slurm.fence_cases,
}
