//! Options of other launchers that rlaunch does not have, each with a replacement. The launchers are Open MPI's mpirun 5, Hydra, srun,
//! torchrun, deepspeed and accelerate.
//!
//! The file `tests/other_launchers.rs` lists all options of those launchers. Each is in this table or is an option of rlaunch. The nearest option of
//! rlaunch is never a hint for another launcher's option, because its meaning is another.

use super::planned_options::{Later, Same, later, same};

const BINDING: Option<&str> = Some("--bind-to none|hwthread|core|l3|numa|package   or   --cpus-per-rank N");
const TRAVELS: Option<&str> = Some("leave it out: the whole environment travels; -x VAR=VALUE changes it");
const SHOWN: Option<&str> = Some("rlaunch map ... shows where ranks run");
const LABELS: Option<&str> = Some("-l   or   --prefix FMT");
const CONTINUE: Option<&str> = Some("--on-failure continue");
const MCA: Option<&str> = Some("-x OMPI_MCA_name=value");
const DEBUG: Option<&str> = Some("-v, -vv or --events FILE show what rlaunch does");
const DEBUGGER: Option<&str> =
    Some("leave it out: a debugger is started as the program, as in: rlaunch -n 4 gdbserver ...");
const FILES: Option<&str> = Some("-o out.%t -e err.%t   with %t rank, %N host, %n its index, %j job");
const LOCAL_FILES: Option<&str> =
    Some("leave it out: files are not copied; the program and its files have to be on every host");
const ALLOCATION: Option<&str> = Some("sbatch or salloc with it, and rlaunch inside: it allocates no resources");
const LIMITS: Option<&str> = Some("leave it out: rlaunch starts ranks and sets no limits on what they use");
const ONE_RLAUNCH: Option<&str> = Some("leave it out: one rlaunch starts the ranks of all hosts");
const PRIVATE: Option<&str> = Some("leave it out: rlaunch connects its hosts by itself");
const NO_SERVER: Option<&str> = Some("leave it out: rlaunch serves the MPI libraries of its ranks by itself (--mpi)");
const NOT_NEEDED: Option<&str> = Some("leave it out: rlaunch does not need it");
const ACCELERATE: Option<&str> =
    Some("set it in the script (Accelerator(...)), or -x with the variable that accelerate launch sets");
const MEETING: Option<&str> =
    Some("leave it out: rlaunch finds address and port; or --master-addr ADDR --master-port PORT");
const HOSTS: Option<&str> = Some("-H HOST,...   or, to choose from a hostfile, --hostfile FILE -H HOST,...");
const WITHOUT: Option<&str> = Some("-H 'node[01-08]!node05'   takes hosts out of a list");
const NODES: Option<&str> = Some("--nnodes N   or   --nnodes MIN:MAX");
const ALL_LOCAL: Option<&str> = Some("-H without this host's name");
const NUMBERS: Option<&str> = Some("--map-by slot|node   or   --rank-by slot|node");
const PER_NODE: Option<&str> = Some("--ppn N");
const NEAR: Option<&str> = Some("leave it out: a rank is bound near its GPU");
const GPUS: Option<&str> = Some("sbatch or salloc with it; --gpus-per-rank N gives each rank N GPUs of its host");
const EXIT: Option<&str> =
    Some("leave it out: the report names each rank that failed, and --events FILE has all exit codes");

/// torchrun's default, and what its documentation adds to it for Slurm: ranks get all of them.
const SIGNALS: &[&str] = &[
    "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
    "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1",
    "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2",
];

pub(super) static OPTIONS: &[Later] = &[
    // Default behaviour of rlaunch.
    same(&["oversubscribe", "allow-run-as-root", "standalone", "run-path", "use-env"], Same::Flag, None),
    same(&["unbuffered", "enable-auto-cleanup", "genvall", "envall"], Same::Flag, None),
    same(&["noprefix", "disable-recovery", "overcommit", "enable-hostname-propagation"], Same::Flag, None),
    same(&["no-ssh-check", "force-multi", "no-local-rank", "multi-gpu", "same-network"], Same::Flag, None),
    same(&["disable-x"], Same::Flag, None),
    // Ranks of one job find each other, and are not polled.
    same(&["rdzv-backend", "rdzv-endpoint", "rdzv-conf", "monitor-interval"], Same::Any, None),
    same(&["mem-bind", "nic-bind", "numa-binding", "binding", "membind"], Same::Only(&["none", "no"]), BINDING),
    same(&["gpu-bind"], Same::Only(&["none", "no", "closest"]), NEAR),
    same(&["node-rank", "machine-rank"], Same::Only(&["0"]), ONE_RLAUNCH),
    same(&["distribution"], Same::Only(&["block"]), NUMBERS),
    same(&["kill-on-bad-exit"], Same::Attached(&["1"]), CONTINUE),
    same(&["start-method"], Same::Only(&["spawn", "fork", "forkserver"]), None),
    same(&["event-log-handler"], Same::Only(&["null"]), Some("--events FILE")),
    same(&["logs-specs"], Same::Only(&["default"]), Some("--log-dir DIR -r 3   or   --log-dir DIR -t 3")),
    same(
        &["signals-to-handle"],
        Same::Only(SIGNALS),
        Some("leave it out: docs/reference/signals.md lists what ranks get"),
    ),
    same(&["with-ft"], Same::Only(&["no", "false", "0"]), CONTINUE),
    // Placement of ranks.
    later(None, &["rankmap", "arbitrary"], NUMBERS),
    later(None, &["rankfile", "rf"], Some("--map-by rankfile:FILE=PATH")),
    later(None, &["ppr", "npersocket"], Some("--map-by ppr:N:package")),
    later(None, &["bycore", "bysocket"], Some("--map-by core   or   --map-by package")),
    later(None, &["bynode"], Some("--map-by node")),
    later(None, &["byslot"], Some("leave it out: --map-by slot is the default")),
    later(None, &["nooversubscribe", "no-oversubscribe"], Some("--strict")),
    later(None, &["nolocal", "skip-launch-node"], ALL_LOCAL),
    later(None, &["pernode"], Some("--ppn 1")),
    later(
        None,
        &["tasks-per-node", "ntasks-per-gpu", "ntasks-per-core", "ntasks-per-socket", "ntasks-per-tres"],
        PER_NODE,
    ),
    later(
        None,
        &["num-gpus", "num-accelerators"],
        Some("--ppn N   where each rank has a GPU of its own; --gpus-per-rank 1"),
    ),
    later(None, &["num-nodes", "num-machines"], Some("--nnodes N")),
    later(
        None,
        &["min-elastic-nodes", "max-elastic-nodes", "elastic-training"],
        Some("--nnodes MIN:MAX --max-restarts N"),
    ),
    later(None, &["num-processes"], Some("-n N")),
    later(Some(b'i'), &[], Some("-H HOST,... (deepspeed)   or   < FILE, which rank 0 reads (srun)")),
    later(None, &["include"], HOSTS),
    later(Some(b'D'), &[], Some("--wdir DIR")),
    later(None, &["exclude"], WITHOUT),
    later(None, &["hostlist", "machines", "machinelist", "machine"], Some("-H HOST,...")),
    later(Some(b'F'), &["nodefile", "deepspeed-hostfile", "mpirun-hostfile"], Some("--hostfile FILE")),
    later(None, &["deepspeed-inclusion-filter", "deepspeed-exclusion-filter"], HOSTS),
    later(None, &["het-group"], Some("-H HOST,...   with the hosts of that component")),
    later(None, &["order-nodes"], Some("-H HOST,...   in the order that you want")),
    later(None, &["relative", "use-min-nodes"], NODES),
    later(None, &["use-hwthread-cpus", "cpu-set", "cpu-list", "bind-to-core", "bind-to-socket", "topolib"], BINDING),
    later(None, &["bind-cores-to-rank", "bind-core-list", "enable-cpu-affinity", "accel-bind", "hint"], BINDING),
    later(
        Some(b'B'),
        &["extra-node-info", "threads-per-core", "cores-per-socket", "sockets-per-node", "threads"],
        BINDING,
    ),
    later(Some(b'S'), &["core-spec", "thread-spec", "cpus-per-gpu", "exact", "whole"], BINDING),
    later(Some(b'T'), &[], NOT_NEEDED),
    later(Some(b'g'), &["gpus-per-proc", "gpu-subdevs-per-proc"], Some("--gpus-per-rank N")),
    later(
        Some(b'G'),
        &["gpus", "gpus-per-node", "gpus-per-socket", "gres", "gres-flags", "tres-per-task", "tres-bind", "gpu-freq"],
        GPUS,
    ),
    later(None, &["gpu-ids"], Some("-x CUDA_VISIBLE_DEVICES=0,1")),
    later(None, &["display-map", "display-allocation", "print-rank-map"], SHOWN),
    later(None, &["display-devel-map", "display-devel-allocation", "display-topo", "display-comm"], SHOWN),
    later(None, &["display", "display-comm-finalize", "output-proctable", "show-progress"], SHOWN),
    later(None, &["do-not-launch", "test-only", "dryrun"], Some("--dry-run")),
    // Input and output.
    later(None, &["prepend-rank", "prepend-pattern", "timestamp-output", "xml"], LABELS),
    later(None, &["merge-stderr-to-stdout"], Some("2>&1 after the command line")),
    later(
        None,
        &["output-filename", "output-directory", "outfile-pattern", "errfile-pattern", "outfile", "errfile"],
        FILES,
    ),
    later(None, &["output-from"], Some("--local-ranks-filter 0   shows the output of these local ranks only")),
    later(None, &["enable-each-rank-log"], Some("--log-dir DIR -r 3")),
    later(None, &["input"], Some("< FILE, which rank 0 reads; --stdin all for all ranks")),
    later(Some(b'O'), &[], Some("leave it out: ranks may be more than processors, unless --strict is given")),
    later(None, &["open-mode"], Some("-o FILE empties FILE first; >> FILE appends")),
    later(Some(b'u'), &[], Some("leave it out: what a rank writes is passed on at once")),
    later(
        None,
        &["stream-buffering", "demux", "disable-stdin"],
        Some("leave it out: what a rank writes is passed on at once"),
    ),
    later(None, &["log-line-prefix-template"], Some("--prefix FMT   with %r rank, %l local rank, %h host")),
    later(None, &["duplicate-stdout-filters", "duplicate-stderr-filters"], Some("-t 3, and grep in the files")),
    later(None, &["pty"], Some("leave it out: ranks get no terminal")),
    // The environment.
    later(None, &["genvnone", "genvlist", "envnone", "envlist", "unset-env", "export-file"], TRAVELS),
    later(
        Some(b'E'),
        &["preserve-env", "propagate", "get-user-env"],
        Some("leave it out: the environment travels; --propagate-limits LIST for limits"),
    ),
    later(
        None,
        &["mca", "gmca", "pmixmca", "prtemca", "omca", "gomca", "tune", "am", "amca", "gpmixmca", "gprtemca"],
        MCA,
    ),
    later(None, &["path"], Some("-x PATH=DIR:$PATH   or the program's path")),
    later(None, &["virtual-local-rank"], Some("--gpus-per-rank 1, where LOCAL_RANK stays and the device is 0")),
    later(None, &["num-cpu-threads-per-process"], Some("-x OMP_NUM_THREADS=N")),
    later(None, &["mpirun-ccl"], Some("-x CCL_WORKER_COUNT=N")),
    // Failures and the end of a job.
    later(None, &["enable-recovery", "disable-auto-cleanup", "no-kill", "continuous", "notify-errors"], CONTINUE),
    later(Some(b'k'), &["recoverable", "autorestart"], CONTINUE),
    later(Some(b'K'), &[], Some("leave it out: a rank that fails ends the job (--on-failure kill)")),
    later(None, &["time"], Some("--timeout 10m   (srun's --time counts minutes)")),
    later(
        Some(b'W'),
        // srun: its long form is an option about pools here.
        &[],
        Some("leave it out: --on-failure kill ends the job at the first failure, --grace is the time to end"),
    ),
    later(
        None,
        &["report-state-on-timeout", "get-stack-traces"],
        Some("--timeout TIME, whose report names the ranks that still ran"),
    ),
    later(
        None,
        &["spawn-timeout", "msg-timeout", "time-min"],
        Some("--connect-timeout TIME for hosts, --timeout TIME for the job"),
    ),
    later(
        Some(b'X'),
        &["disable-status", "quit-on-interrupt", "signal"],
        Some("leave it out: an interrupt ends the job; docs/reference/signals.md"),
    ),
    later(None, &["forward-signals"], Some("leave it out: docs/reference/signals.md lists what ranks get")),
    later(None, &["print-all-exitcodes", "report-child-jobs-separately", "error-nonzero-status"], EXIT),
    later(None, &["test-suicide", "initial-errhandler", "soft", "arch", "file"], NOT_NEEDED),
    // How hosts and ranks are reached.
    later(
        None,
        &["launcher-exec", "bootstrap-exec", "launch-agent", "exec-agent", "rsh"],
        Some("leave it out: other hosts are reached by ssh, as ~/.ssh/config says; --agent-path PATH"),
    ),
    later(None, &["launcher-args", "ssh-port"], Some("Port and other settings in ~/.ssh/config")),
    later(None, &["no-ssh"], ONE_RLAUNCH),
    later(None, &["deepspeed-multinode-launcher", "rmk"], Some("leave it out: other hosts are reached by ssh")),
    later(None, &["enable-x", "x11"], Some("leave it out: no X11 display is forwarded")),
    later(None, &["iface"], Some("--interface NAME")),
    later(None, &["local-addr", "localhost"], Some("--interface NAME, if other hosts find rank 0 at a wrong address")),
    later(None, &["main-process-ip", "main-process-port"], MEETING),
    later(None, &["disable-hostname-propagation", "hybrid-hosts", "dvm", "dvm-uri", "max-vm-size", "tmpdir"], PRIVATE),
    later(
        None,
        &["leave-session-attached", "keepalive", "singleton", "fwd-mpirun-port", "personality", "hetero-nodes"],
        PRIVATE,
    ),
    later(None, &["set-cwd-to-session-dir", "stdin-target", "no-app-prefix", "app-prefix", "pmix-prefix"], PRIVATE),
    later(None, &["preload-files", "preload-binary", "bcast", "bcast-exclude", "send-libs", "compress"], LOCAL_FILES),
    later(Some(b's'), &[], Some("leave it out: hosts may be shared (srun), and files are not copied (Open MPI)")),
    later(
        None,
        &["ompi-server", "nameserver", "pmi-port", "pmi-args", "usize", "pset", "resv-ports", "network"],
        NO_SERVER,
    ),
    later(None, &["rtos", "ilp64", "runtime-options", "memory-alloc-kinds"], NO_SERVER),
    // horovodrun.
    later(
        None,
        &["start-timeout", "elastic-timeout"],
        Some("--connect-timeout TIME for hosts, --timeout TIME for the job"),
    ),
    later(None, &["min-np", "max-np", "min-num-proc", "max-num-proc"], Some("--nnodes MIN:MAX --max-restarts N")),
    later(None, &["host-discovery-script"], Some("--discover CMD --slices N   for slices of TPUs")),
    later(None, &["network-interfaces", "nics"], Some("--interface NAME")),
    // Diagnostics.
    later(Some(b'd'), &[], Some("sbatch or salloc with it (srun)   or   -v (Open MPI)")),
    later(None, &["debug-devel", "debug-daemons", "debug-daemons-file", "debug", "info", "slurmd-debug"], DEBUG),
    later(None, &["parseable", "parsable"], Some("--events FILE, or rlaunch map --json")),
    later(None, &["xterm", "tv", "stop-on-exec", "stop-in-init", "stop-in-app", "prolog", "epilog"], DEBUGGER),
    later(
        None,
        &["task-prolog", "task-epilog"],
        Some("sh -c 'BEFORE; PROGRAM; AFTER' as the program; --on-exit COMMAND on this host"),
    ),
    later(None, &["profile", "acctg-freq", "power", "cpu-freq", "autotuning", "save-pid"], NOT_NEEDED),
    later(None, &["report-pid", "report-uri"], Some("--events FILE has the process ids")),
    // An allocation of a scheduler.
    later(
        Some(b'A'),
        &["account", "charge", "wckey", "comment", "admin-comment", "extra", "container", "container-id"],
        ALLOCATION,
    ),
    later(Some(b'b'), &["begin", "deadline", "dependency", "immediate", "hold", "no-allocate", "jobid"], ALLOCATION),
    later(
        Some(b'C'),
        &[
            "constraint",
            "cluster-constraint",
            "batch",
            "prefer",
            "contiguous",
            "switches",
            "switch",
            "partition",
            "qos",
            "licenses",
        ],
        ALLOCATION,
    ),
    later(Some(b'I'), &["exclusive", "reservation", "reboot", "requeue", "no-requeue", "priority", "nice"], ALLOCATION),
    later(
        Some(b'J'),
        &["job-name", "mail-type", "mail-user", "delay-boot", "spread-job", "clusters", "cluster"],
        ALLOCATION,
    ),
    later(
        Some(b'L'),
        &["bb", "bbf", "burst-buffer", "uid", "gid", "mcs-label", "segment", "stepmgr", "oom-kill-step"],
        ALLOCATION,
    ),
    later(Some(b'M'), &["external-launcher", "external", "interactive", "resv", "treewidth", "no-shell"], ALLOCATION),
    later(None, &["overlap", "mincpus", "mem", "mem-per-cpu", "mem-per-gpu", "mem-per-task", "tmp"], LIMITS),
    later(Some(b'Z'), &["consolidate-segments"], ALLOCATION),
    later(Some(b'p'), &[], ALLOCATION),
    later(Some(b'Q'), &[], Some("-q")),
    // Settings that accelerate passes to its scripts by variables.
    later(None, &["config-file", "cpu", "tpu", "ipex", "mixed-precision", "use-deepspeed", "use-fsdp"], ACCELERATE),
    later(None, &["use-megatron-lm", "use-xpu", "zero-stage", "zero3-init-flag", "zero3-save-16bit-model"], ACCELERATE),
    later(
        None,
        &["gradient-accumulation-steps", "gradient-clipping", "main-training-function", "downcast-bf16"],
        ACCELERATE,
    ),
    later(None, &["no-tpu-cluster", "use-parallelism-config", "use-cpu"], ACCELERATE),
    // Planned for rlaunch.
    later(None, &["fold", "exit-code", "show-config", "as"], None),
    later(None, &["tier"], None),
];

/// How families of options begin that accelerate hands on to its scripts.
pub(super) static FAMILIES: &[Later] = &[later(
    None,
    &["fsdp-", "deepspeed-", "megatron-lm-", "fp8-", "dynamo-", "tpu-", "offload-", "aws-", "parallelism-config-"],
    ACCELERATE,
)];
