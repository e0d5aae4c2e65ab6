//! The start of a rank: its identity, words, environment, directory, descriptors, limits and signals.

use crate::case::Case;
use crate::place;
use crate::plan::Plan;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// Text that is no UTF-8, with blanks and quotes.
const ODD: &[u8] = b"a\xff\xfe b'\"\n\t$x";

#[test]
fn ranks_know_their_identity() {
    let identity = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT";
    let done = Case::start(["-n", "4", "-l", "sh", "-c", identity]).code(0);
    let port = done.event("host.ready")["master_port"].as_u64().unwrap();
    let expected: Vec<String> = (0..4).map(|r| format!("{r}: {r}/4 {r}/4 127.0.0.1:{port}")).collect();
    assert_eq!(done.sorted(), expected);
    assert_eq!(done.err_of_any_machine(), "", "success is silent");
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let range: Vec<u64> = range.split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert!(port.is_multiple_of(8) && (port + 7 < range[0] || port > range[1]), "{port} lies within {range:?}");
}

#[test]
fn every_contract_has_the_same_identity() {
    let script = "echo $RANK $OMPI_COMM_WORLD_RANK $RLAUNCH_RANK of $WORLD_SIZE $OMPI_COMM_WORLD_SIZE \
                  $RLAUNCH_WORLD_SIZE on $LOCAL_RANK $OMPI_COMM_WORLD_LOCAL_RANK $MPI_LOCALRANKID $RLAUNCH_LOCAL_RANK \
                  of $LOCAL_WORLD_SIZE $MPI_LOCALNRANKS $TORCHELASTIC_USE_AGENT_STORE $GROUP_RANK";
    let done = Case::start(["-n", "3", "sh", "-c", script]).code(0);
    let expected: Vec<String> =
        (0..3).map(|r| format!("{r} {r} {r} of 3 3 3 on {r} {r} {r} {r} of 3 3 False 0")).collect();
    assert_eq!(done.sorted(), expected);
}

#[test]
fn words_are_passed_byte_for_byte() {
    let words = [b"-n".as_slice(), b"1", b"sh", b"-c", b"cat /proc/$$/cmdline", ODD, b"", b"-n", b"--", b":x"];
    let done = Plan::rlaunch(words.map(OsStr::from_bytes)).start().code(0);
    let mut expected = words[2..].join(&0);
    expected.push(0);
    assert_eq!(done.out, expected);
}

#[test]
fn environment_and_directory_are_passed_byte_for_byte() {
    let odd = OsStr::from_bytes(ODD);
    let script = "cat /proc/$$/environ; printf '=%s=' \"$(pwd -P)\"; readlink -n /proc/$$/cwd";
    let plan = Plan::rlaunch(["-n", "1", "sh", "-c", script]).env("ODD", odd);
    let dir = plan.scratch().dir().join(odd);
    std::fs::create_dir(&dir).unwrap();
    let done = plan.cwd(&dir).start().code(0);
    let mut end = [b"=", dir.as_os_str().as_bytes(), b"="].concat();
    end.extend_from_slice(dir.as_os_str().as_bytes());
    assert!(done.out.ends_with(&end), "{}", done.out());
    assert!(done.out.split(|b| *b == 0).any(|entry| entry == [b"ODD=", ODD].concat()), "{}", done.out());
}

#[test]
fn wdir_is_where_a_program_with_a_slash_is_found() {
    let plan = Plan::rlaunch(["--wdir", "in there", "-n", "2", "./say it"]);
    let dir = plan.scratch().path("in there");
    std::fs::create_dir(&dir).unwrap();
    std::fs::copy("/bin/pwd", dir.join("say it")).unwrap();
    let base = plan.scratch().dir().to_owned();
    let done = plan.cwd(base).start().code(0);
    assert_eq!(done.sorted(), [dir.to_str().unwrap(); 2]);
}

#[test]
fn a_bare_name_is_looked_up_in_the_path_of_the_rank() {
    let plan = Plan::rlaunch(["-n", "1", "-x", "PATH=./bin:/usr/bin:/bin", "mine"]);
    let dir = plan.scratch().dir().to_owned();
    std::fs::create_dir(dir.join("bin")).unwrap();
    std::fs::write(dir.join("bin/mine"), "#!/bin/sh\necho found\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.join("bin/mine"), mode).unwrap();
    assert_eq!(plan.cwd(dir).start().code(0).out(), "found\n");
}

#[test]
fn exports_set_and_keep() {
    let words = ["-n", "1", "-x", "A=1", "-genv", "B", "2 3", "--env", "C=", "-x", "RANK", "-x", "OMPI_*"];
    let script = "echo \"$A|$B|${C-none}|$RANK|$WORLD_SIZE|$OMPI_COMM_WORLD_RANK|$PMI_RANK $PMI_LOCAL_RANK $MV2_COMM_WORLD_RANK|$SLURM_PROCID|$SLURM_JOB_ID\"";
    let plan = Plan::rlaunch(words.into_iter().chain(["sh", "-c", script]));
    let others = [
        ("RANK", "77"),
        ("WORLD_SIZE", "99"),
        ("OMPI_COMM_WORLD_RANK", "5"),
        ("PMI_RANK", "4"),
        ("MV2_COMM_WORLD_RANK", "4"),
    ];
    let slurm = [("SLURM_PROCID", "3"), ("SLURM_JOB_ID", "123")];
    let plan = others.into_iter().chain(slurm).fold(plan, |plan, (name, value)| plan.env(name, value));
    assert_eq!(plan.start().code(0).out(), "1|2 3||77|1|5|0 0 0|0|123\n");
}

#[test]
fn every_rank_leads_a_session_of_its_own() {
    let script =
        "read -r pid comm state parent group session rest </proc/$$/stat; echo $((pid == group && pid == session))";
    for tier in place::tiers() {
        // Ranks that may be MPI's share a session where they are more than the processors.
        let done = Plan::rlaunch(["--mpi", "none", "-n", "3", "sh", "-c", script]).contain(tier).start().code(0);
        assert_eq!(done.out(), "1\n1\n1\n", "{tier}");
    }
}

#[test]
fn ranks_get_no_descriptor_but_the_first_three() {
    // 3 is the one with which ls reads the directory.
    let script = "exec 3</dev/null 7</dev/null 9>\"$DIR/log\"; exec \"$RL\" --events fd:9 -n 2 ls /proc/self/fd";
    for tier in place::tiers() {
        let done = Plan::shell(script).contain(tier).start().code(0);
        assert_eq!(done.sorted(), ["0", "0", "1", "1", "2", "2", "3", "3"], "{tier}");
    }
}

/// Everything that a process inherits besides words, environment and descriptors. The masks are grep's own: a shell changes
/// its.
const INHERITED: [&str; 3] = [
    "grep -E '^(Sig(Blk|Ign)|Cpus_allowed|NoNewPrivs|CapEff|Groups|Umask)' /proc/self/status",
    "sh -c 'umask; ulimit -S -a; ulimit -H -a; cat /proc/$$/oom_score_adj; nice'",
    "cut -d' ' -f18,19,40,41 /proc/self/stat",
];

#[test]
fn streams_of_many_ranks_are_separate_and_end_with_their_ranks() {
    // So many at once that the agent's descriptors are no longer near enough for a child to take as they are.
    let ranks = 60;
    for tier in place::tiers() {
        let script = "echo out; echo err >&2; read x <\"$DIR/go$RANK\"; echo OUT; echo ERR >&2";
        let plan = Plan::rlaunch(["-n", &ranks.to_string(), "sh", "-c", script]).contain(tier);
        let go: Vec<_> = (0..ranks).map(|rank| plan.scratch().fifo(&format!("go{rank}"))).collect();
        let case = plan.start();
        case.says_on_stdout("out\n", ranks);
        // The rank that was started last: its streams end while the others still run.
        std::fs::write(go.last().unwrap(), "\n").unwrap();
        let rank = u32::try_from(ranks - 1).unwrap();
        case.event_of("rank.exited", rank);
        case.until("the ends of its streams", |seen| {
            (seen.named("stream.end").filter(|e| e["rank"] == rank).count() == 2).then_some(())
        });
        for go in go.iter().rev().skip(1) {
            std::fs::write(go, "\n").unwrap();
        }
        let done = case.code(0);
        for (text, words) in [(done.out(), ["OUT", "out"]), (done.err(), ["ERR", "err"])] {
            let count = |word| text.lines().filter(|line| *line == word).count();
            assert_eq!(words.map(count), [ranks, ranks], "{tier}: {text}");
        }
    }
}

#[test]
fn limits_masks_and_priorities_are_the_callers() {
    let caller = "umask 027; ulimit -S -n 300; ulimit -H -n 4000; ulimit -S -c 0; exec nice -n 3 env \
                  --ignore-signal=HUP,USR1 --block-signal=USR2,CHLD --default-signal=PIPE";
    for (tier, what) in place::tiers().iter().flat_map(|tier| INHERITED.map(|what| (tier, what))) {
        let probe = |launcher: &str| {
            let done = Plan::shell(&format!("{caller} {launcher} {what}")).contain(tier).start().code(0);
            // A user namespace costs supplementary groups and grants capabilities inside: documented.
            let same = |line: &&str| place::is_root() || *tier == "t3" || !line.starts_with("CapEff");
            let same = |line: &&str| same(line) && (place::is_root() || *tier == "t3" || !line.starts_with("Groups"));
            done.out().lines().filter(same).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(probe("\"$RL\" -n 1"), probe(""), "{tier}");
    }
}

#[test]
fn a_caller_that_ignores_the_ends_of_its_children_changes_nothing_for_us() {
    for tier in place::tiers() {
        let probe = |launcher: &str| {
            let script = format!("exec env --ignore-signal=CHLD {launcher} grep SigIgn /proc/self/status");
            Plan::shell(&script).contain(tier).start().code(0).out()
        };
        assert_eq!(probe("\"$RL\" -n 1"), probe(""), "{tier}: ranks ignore it, as without us");
    }
}

#[test]
fn broken_pipe_ends_a_rank_as_without_rlaunch() {
    // std ignores SIGPIPE in rlaunch itself; in a rank it must be what the caller had.
    let script = "\"$RL\" -n 1 sh -c 'yes | head -n 1; grep SigIgn /proc/self/status'";
    let done = Plan::shell(script).start().code(0);
    let ignored =
        done.out().lines().nth(1).unwrap().rsplit('\t').next().map(|hex| u64::from_str_radix(hex, 16).unwrap());
    assert_eq!(ignored.unwrap() & (1 << 12), 0, "{}", done.out());
    let script = "env --ignore-signal=PIPE \"$RL\" -n 1 grep SigIgn /proc/self/status";
    let done = Plan::shell(script).start().code(0);
    let ignored = u64::from_str_radix(done.out().trim().rsplit('\t').next().unwrap(), 16).unwrap();
    assert_ne!(ignored & (1 << 12), 0, "{}", done.out());
}

#[test]
fn without_a_number_there_is_one_rank_and_a_note() {
    let done = Case::start(["sh", "-c", "echo $RANK/$WORLD_SIZE"]).code(0);
    assert_eq!(done.out(), "0/1\n");
    assert!(done.err().lines().count() == 1 && done.err().contains("-n"), "{}", done.err());
    assert_eq!(Case::start(["-q", "true"]).code(0).err(), "");
}

#[test]
fn a_nested_rlaunch_starts_a_world_of_its_own() {
    let script = "\"$RL\" -n 2 -l \"$RL\" -n 3 sh -c 'echo $RANK/$WORLD_SIZE $MASTER_PORT'; echo $?";
    for tier in place::tiers() {
        let done = Plan::shell(script).contain(tier).start().code(0);
        let out = done.out();
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!((lines.len(), lines[6]), (7, "0"), "{out}");
        for outer in ["0: ", "1: "] {
            let inner: BTreeSet<_> = lines.iter().filter_map(|line| line.strip_prefix(outer)).collect();
            let ports: BTreeSet<_> = inner.iter().map(|line| line.split(' ').nth(1).unwrap()).collect();
            let ranks: Vec<_> = inner.iter().map(|line| line.split(' ').next().unwrap()).collect();
            assert_eq!((ranks, ports.len()), (vec!["0/3", "1/3", "2/3"], 1), "{out}");
        }
    }
}

#[test]
fn jobs_at_the_same_time_have_ports_of_their_own() {
    let count = if place::full() { 200 } else { 60 };
    let cases: Vec<Case> = (0..count)
        .map(|_| Plan::rlaunch(["-q", "sh", "-c", "echo $MASTER_PORT; read x"]).stdin_pipe().start())
        .collect();
    let ports: BTreeSet<u64> = cases
        .iter()
        .map(|case| {
            let ready = case.event("host.ready");
            assert_eq!(ready["port_reserved"], true, "{ready}");
            ready["master_port"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(ports.len(), count, "{ports:?}");
    for mut case in cases {
        let port = case.event("host.ready")["master_port"].to_string();
        drop(case.take_stdin());
        // `read` meets the end of its input.
        assert_eq!(case.code(1).out().trim(), port);
    }
}

/// Starts jobs at the same time where few ports are left to choose from, until the test lets go.
const CROWD: &str = "ip link set lo up; echo 10000 65200 >/proc/sys/net/ipv4/ip_local_port_range; pids=; \
     for i in $(seq 24); do \"$RL\" -q sh -c 'echo $MASTER_PORT; exec sleep 100' & pids=\"$pids $!\"; done; \
     read x; kill $pids; wait";

#[test]
fn jobs_share_no_port_where_few_are_left() {
    let unshare = if place::is_root() { "unshare -n" } else { "unshare -Urn" };
    if !["unshare", "ip"].into_iter().all(place::has) {
        return;
    }
    if !Plan::shell(&format!("{unshare} ip link set lo up")).start().end().exit.is_success() {
        return place::absent("jobs in a crowd", "no network namespace can be made");
    }
    let plan = Plan::shell(&format!("exec {unshare} sh -c \"$CROWD\"")).env("CROWD", CROWD).stdin_pipe();
    let mut case = plan.start();
    case.says_on_stdout("\n", 24);
    drop(case.take_stdin());
    let done = case.code(0);
    let ports: BTreeSet<_> = done.out().lines().map(str::to_owned).collect();
    assert_eq!(ports.len(), 24, "{}", done.out());
}
