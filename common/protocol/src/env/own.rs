//! rlaunch's own names: what a rank can ask about itself, and what a user can set instead of an option.

use super::block::{Host, RankVariables, Sink};
use super::{Contract, Role, Var};
use crate::settings::Tier;
use alloc::format;
use rlaunch_base::id::WorldId;

const fn var(name: &'static str, role: Role, doc: &'static str) -> Var {
    Var::new(name, role, doc)
}

pub(super) const CONTRACT: Contract = Contract {
    title: "rlaunch",
    about: "Variables with the use *set* identify a rank. The others are options. Every option that takes a value has a \
            variable: `RLAUNCH_` and the name of the option in capitals. An option on the command line overrides its \
            variable, and an empty value counts as unset. A nested `rlaunch` never reads a *set* variable as an option. \
            Options for all your jobs (`RLAUNCH_GRACE`, …) pass on to a nested `rlaunch`. Options for one job (number of \
            ranks, hosts, input, output) do not: their use is *read, removed*.",
    vars: &[
        var(
            "GCE_METADATA_HOST",
            Role::Read,
            "Address of the [metadata server](../guides/preemption.md), with or without a port. Host names are \
             ignored.",
        ),
        var(
            "PATH",
            Role::Read,
            "Of the rank's environment: rlaunch searches it for a program without `/` in its name.",
        ),
        var("RLAUNCH_AGENT_PATH", Role::Read, "As `--agent-path`."),
        var("RLAUNCH_APP", Role::Set, "Index of the rank's program on the command line, from 0."),
        var("RLAUNCH_APPS", Role::Set, "Number of programs of the job."),
        var("RLAUNCH_APP_NAME", Role::Set, "Name of the rank's program (`--name`), or `default`."),
        var("RLAUNCH_APP_RANK", Role::Set, "Rank among the ranks of its program, from 0."),
        var("RLAUNCH_APP_SIZE", Role::Set, "Number of ranks of the program."),
        var("RLAUNCH_ASSIGN", Role::ReadOnce, "As `--assign`."),
        var("RLAUNCH_BIND_TO", Role::ReadOnce, "As `--bind-to`."),
        var("RLAUNCH_CLEAN_DEVICES", Role::Read, "As `--clean-devices`."),
        var("RLAUNCH_COLOR", Role::Read, "As `--color`."),
        var("RLAUNCH_CONNECT_TIMEOUT", Role::Read, "As `--connect-timeout`."),
        var("RLAUNCH_CONTAIN", Role::Read, "As `--contain`."),
        var("RLAUNCH_CPUS_PER_RANK", Role::ReadOnce, "As `--cpus-per-rank`."),
        var("RLAUNCH_DEVICES", Role::Read, "As `--devices`."),
        var("RLAUNCH_DISCOVER", Role::ReadOnce, "As `--discover`."),
        var("RLAUNCH_ERROR", Role::ReadOnce, "As `--error`."),
        var("RLAUNCH_EVENTS", Role::ReadOnce, "As `--events`."),
        var("RLAUNCH_FAULT_WINDOW", Role::Read, "As `--fault-window`."),
        var("RLAUNCH_FRAMEWORK", Role::Read, "As `--framework`."),
        var("RLAUNCH_GIVE_UP_AFTER", Role::Read, "As `--give-up-after`."),
        var("RLAUNCH_GPUS_PER_RANK", Role::ReadOnce, "As `--gpus-per-rank`."),
        var("RLAUNCH_GRACE", Role::Read, "As `--grace`."),
        var("RLAUNCH_GROUP", Role::Set, "Name of the rank's group (`--group`), if it has one."),
        var("RLAUNCH_GROW", Role::ReadOnce, "As `--grow`: `next` or `now`."),
        var("RLAUNCH_HOOK_TIMEOUT", Role::Read, "As `--hook-timeout`."),
        var("RLAUNCH_HOSTFILE", Role::ReadOnce, "As `--hostfile`, if no program has hosts."),
        var("RLAUNCH_HOSTS", Role::ReadOnce, "As `--hosts`, if no program has hosts."),
        var(
            "RLAUNCH_INITIAL_RANK",
            Role::Set,
            "Rank with which the process was started. It never changes, even if RANK does.",
        ),
        var("RLAUNCH_INTERFACE", Role::Read, "As `--interface`."),
        var("RLAUNCH_JOB_ID", Role::Set, "Name of the job: 32 hexadecimal digits."),
        var(
            "RLAUNCH_LABEL",
            Role::ReadOnce,
            "`1`: as `--label`; `0`: no labels. The outer job already labels the lines of a nested job.",
        ),
        var("RLAUNCH_LAUNCHER", Role::ReadOnce, "As `--launcher`."),
        var("RLAUNCH_LEASE", Role::Read, "As `--lease`."),
        var(
            "RLAUNCH_LOCAL_RANK",
            Role::Set,
            "Rank among the ranks of the host, from 0. It never changes, even if LOCAL_RANK does.",
        ),
        var("RLAUNCH_LOCAL_RANKS_FILTER", Role::ReadOnce, "As `--local-ranks-filter`."),
        var("RLAUNCH_LOCAL_SIZE", Role::Set, "Number of ranks on the host."),
        var("RLAUNCH_LOCK_FILES", Role::Read, "As `--lock-files`."),
        var("RLAUNCH_LOG", Role::Read, "Filter of rlaunch's own diagnostics, finer than `-vv`."),
        var("RLAUNCH_LOG_DIR", Role::ReadOnce, "As `--log-dir`."),
        var("RLAUNCH_MAP_BY", Role::ReadOnce, "As `--map-by`."),
        var("RLAUNCH_MASTER_ADDR", Role::ReadOnce, "As `--master-addr`."),
        var("RLAUNCH_MASTER_PORT", Role::ReadOnce, "As `--master-port`."),
        var("RLAUNCH_MASTER_STORE", Role::Read, "As `--master-store`."),
        var("RLAUNCH_MAX_RANK_FAULTS", Role::ReadOnce, "As `--max-rank-faults`."),
        var("RLAUNCH_MAX_RESTARTS", Role::ReadOnce, "As `--max-restarts`."),
        var("RLAUNCH_MAX_ROUNDS", Role::ReadOnce, "As `--max-rounds`."),
        var("RLAUNCH_MIN_ACTIVE", Role::ReadOnce, "As `--min-active`."),
        var("RLAUNCH_MIN_HOSTS", Role::ReadOnce, "As `--min-hosts`."),
        var("RLAUNCH_MIN_WORLD", Role::ReadOnce, "As `--min-world`."),
        var("RLAUNCH_MPI", Role::Read, "As `--mpi`."),
        var("RLAUNCH_N", Role::ReadOnce, "As `-n`."),
        var("RLAUNCH_NAME", Role::ReadOnce, "As `--name`."),
        var("RLAUNCH_NNODES", Role::ReadOnce, "As `--nnodes`."),
        var("RLAUNCH_NODES", Role::Set, "Number of hosts of the job."),
        var("RLAUNCH_NODE_INDEX", Role::Set, "Index of the host, from 0."),
        var("RLAUNCH_ON_EXIT", Role::ReadOnce, "As `--on-exit`."),
        var("RLAUNCH_ON_FAILURE", Role::Read, "As `--on-failure`."),
        var("RLAUNCH_ON_RESTART", Role::ReadOnce, "As `--on-restart`."),
        var("RLAUNCH_ON_WARNING", Role::ReadOnce, "As `--on-warning`."),
        var("RLAUNCH_OUTPUT", Role::ReadOnce, "As `--output`."),
        var("RLAUNCH_POOL", Role::ReadOnce, "As `--pool`."),
        var("RLAUNCH_PPN", Role::ReadOnce, "As `--ppn`."),
        var("RLAUNCH_PREEMPT_PROBE", Role::ReadOnce, "As `--preempt-probe`."),
        var("RLAUNCH_PREEMPT_RETRIES", Role::ReadOnce, "As `--preempt-retries`."),
        var("RLAUNCH_PREFIX", Role::ReadOnce, "As `--prefix`."),
        var("RLAUNCH_PROPAGATE_LIMITS", Role::Read, "As `--propagate-limits`."),
        var(
            "RLAUNCH_RANK",
            Role::Set,
            "Rank, from 0. In a round: among all healthy ranks. RANK counts the active ranks only.",
        )
        .each_round(),
        var("RLAUNCH_RANK_BY", Role::ReadOnce, "As `--rank-by`."),
        var("RLAUNCH_RAW", Role::ReadOnce, "`1`: as `--raw`."),
        var("RLAUNCH_RDZV_ID", Role::ReadOnce, "As `--rdzv-id`."),
        var("RLAUNCH_REDIRECTS", Role::ReadOnce, "As `--redirects`."),
        var("RLAUNCH_RESPAWN_TIMEOUT", Role::Read, "As `--respawn-timeout`."),
        var("RLAUNCH_RESTART_COUNT", Role::Set, "Number of restarts of all ranks so far (`--max-restarts`)."),
        var("RLAUNCH_RESTART_DELAY", Role::Read, "As `--restart-delay`."),
        var(
            "RLAUNCH_ROUND",
            Role::Set,
            "Number of restarts of the wrapped function since the processes started, from 0.",
        )
        .each_round(),
        var("RLAUNCH_SCALE_TIMEOUT", Role::ReadOnce, "As `--scale-timeout`."),
        var("RLAUNCH_SLICES", Role::ReadOnce, "As `--slices`."),
        var("RLAUNCH_SOCKET", Role::Set, "Path of the agent's socket for `rlaunch store` and the client libraries."),
        var("RLAUNCH_SPARES", Role::ReadOnce, "As `--spares`."),
        var("RLAUNCH_SPARE_HOSTS", Role::ReadOnce, "As `--spare-hosts`."),
        var("RLAUNCH_SPARE_SLICES", Role::ReadOnce, "As `--spare-slices`."),
        var("RLAUNCH_STDIN", Role::ReadOnce, "As `--stdin`."),
        var("RLAUNCH_STORE_GUARD", Role::Read, "As `--store-guard`."),
        var("RLAUNCH_SUSPEND_LIMIT", Role::Read, "As `--suspend-limit`."),
        var("RLAUNCH_TEE", Role::ReadOnce, "As `--tee`."),
        var("RLAUNCH_TIED_GROUP", Role::Set, "Index of the rank's tied ranks (`--tied`), from 0."),
        var("RLAUNCH_TIED_RANK", Role::Set, "Rank among the tied ranks, from 0. Rank 0 leads them."),
        var("RLAUNCH_TIED_SIZE", Role::Set, "Number of ranks that are tied together."),
        var(
            "RLAUNCH_TIER",
            Role::Set,
            "Containment of the processes: `t1` or `t3` ([containment](../explain/containment.md)).",
        ),
        var("RLAUNCH_TIMEOUT", Role::Read, "As `--timeout`."),
        var("RLAUNCH_TRANSPORT", Role::Read, "As `--transport`."),
        var("RLAUNCH_WAIT", Role::ReadOnce, "As `--wait`."),
        var("RLAUNCH_WARNING_GRACE", Role::Read, "As `--warning-grace`."),
        var("RLAUNCH_WDIR", Role::ReadOnce, "As `--wdir`."),
        var("RLAUNCH_WORLD", Role::Set, "Number of the rank's world, if that is not the world of the first program."),
        var("RLAUNCH_WORLD_SIZE", Role::Set, "Number of ranks of the job. In a round: number of healthy ranks.")
            .each_round(),
        var("RLAUNCH_YIELD_WITHIN", Role::Read, "As `--yield-within`."),
    ],
    families: &[],
};

pub(super) fn common(host: &Host<'_>, out: &mut Sink<'_>) {
    out.text("RLAUNCH_JOB_ID", format!("{}", host.job).as_bytes());
    out.number("RLAUNCH_WORLD_SIZE", host.healthy);
    out.number("RLAUNCH_ROUND", host.round);
    out.number("RLAUNCH_LOCAL_SIZE", host.local_size);
    out.number("RLAUNCH_NODE_INDEX", host.node_index);
    out.number("RLAUNCH_NODES", host.nodes);
    out.number("RLAUNCH_APP", host.app.get());
    out.text("RLAUNCH_APP_NAME", host.app_name);
    out.number("RLAUNCH_APP_SIZE", host.app_size);
    out.number("RLAUNCH_APPS", host.apps);
    if !host.group.is_empty() {
        out.text("RLAUNCH_GROUP", host.group);
    }
    if host.world > WorldId::new(0) {
        out.number("RLAUNCH_WORLD", host.world.get());
    }
    out.number("RLAUNCH_RESTART_COUNT", host.restart);
    let tier: &[u8] = match host.tier {
        Tier::T1 => b"t1",
        Tier::T3 => b"t3",
    };
    out.text("RLAUNCH_TIER", tier);
    if !host.socket.is_empty() {
        out.text("RLAUNCH_SOCKET", host.socket);
    }
}

pub(super) fn of_rank(values: &RankVariables<'_>, out: &mut Sink<'_>) {
    out.number("RLAUNCH_RANK", values.healthy.get());
    out.number("RLAUNCH_INITIAL_RANK", values.initial.get());
    out.number("RLAUNCH_LOCAL_RANK", values.local_rank.get());
    out.number("RLAUNCH_APP_RANK", values.app_rank);
    let rank = values.rank.get();
    if let Some((group, own)) = rank.checked_div(values.tied).zip(rank.checked_rem(values.tied)) {
        out.number("RLAUNCH_TIED_GROUP", group);
        out.number("RLAUNCH_TIED_RANK", own);
        out.number("RLAUNCH_TIED_SIZE", values.tied);
    }
}
