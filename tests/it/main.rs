//! Drives the built `rlaunch` as its users do: every case is real processes, and leaves none behind.
//!
//! The programs under test: the binary is `RLAUNCH_BIN`, else the one that cargo built; `RLAUNCH_TEST_ROOT` is a tree with `examples`,
//! else the checkout. `RLAUNCH_TEST_FULL=1` runs the long counts, `RLAUNCH_TEST_SEED` repeats a random run, `RLAUNCH_REQUIRE_TIERS=t1,t3`
//! and `RLAUNCH_REQUIRE_TORCH=1` make an absence a failure; `RLAUNCH_CLUSTERSHELL` is a Python that has ClusterShell, `RLAUNCH_TORCH` one
//! that has a newer torch than Debian's, and NVRx, `RLAUNCH_CLIENT` our own package for Python,
//! `RLAUNCH_MPI_WHEELS` a directory of MPI libraries.
#![allow(clippy::disallowed_methods, reason = "drives programs and watches them with threads of its own")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at what it did not expect")]

mod bed;
mod case;
mod census;
mod mpi_programs;
mod own_shm;
mod place;
mod plan;
mod probing;
mod watch;

mod ask;
mod assign;
mod bad_input;
mod binding;
mod colour;
mod crowd;
mod diagnostics;
mod elsewhere;
mod events;
mod examples;
mod exits;
mod faults;
mod fewer;
mod files;
mod first_bytes;
mod gpus;
mod group_storm;
mod groups;
mod guard;
mod harness;
mod hooks;
mod hosts;
mod input;
mod jax;
mod launch;
mod launcher;
mod leftovers;
mod libtpu;
mod limits;
mod many;
mod mpi;
mod mpi_storm;
mod output;
mod placement;
mod pmix;
mod pool;
mod pool_faults;
mod preemption;
mod python;
mod reach;
mod remote;
mod rendezvous;
mod report;
mod respawn;
mod restarts;
mod round_trouble;
mod rounds;
mod rounds_hosts;
mod several;
mod shapes;
mod shells;
mod signals;
mod slices;
mod slurm;
mod slurm_cgroup;
mod slurm_programs;
mod soak;
mod ssh;
mod ssh_words;
mod sshd;
mod stopped;
mod store;
mod storm;
mod storm_hosts;
mod strangers;
mod terminal;
mod tiers;
mod torch;
mod torchrun;
mod tpu_devices;
mod tpu_environment;
mod tpu_hosts;
mod travel;
mod unready;
mod worker_groups;
mod worlds;
