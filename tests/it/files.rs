//! `-o` and `-e`: files with what ranks write, named as srun names them.

use crate::bed::Bed;
use crate::place;
use crate::plan::Plan;
use crate::several::job;
use std::fs;
use std::path::Path;

/// Files of a directory, sorted, with what is in them.
fn files(dir: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let read =
        |entry: fs::DirEntry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap());
    let mut files: Vec<_> = entries.filter(|entry| entry.path().is_file()).map(read).collect();
    files.sort();
    files
}

fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Runs it in a directory of its own; what is on its stdout and stderr, and in the files there.
fn run(words: &[&str], tier: &str) -> (String, String, Vec<(String, String)>) {
    let script = "echo out $RANK; echo err $RANK >&2";
    let plan = Plan::rlaunch(words.iter().copied().chain(["sh", "-c", script])).contain(tier);
    let dir = plan.scratch().path("files");
    fs::create_dir(&dir).unwrap();
    let done = plan.cwd(&dir).start().code(0);
    (done.out(), done.err_of_any_machine(), files(&dir))
}

#[test]
fn each_rank_writes_the_file_with_its_name() {
    for tier in place::tiers() {
        let (out, err, found) = run(&["-n", "3", "-o", "out.%2t", "-e", "err.%t"], tier);
        assert_eq!((out.as_str(), err.as_str()), ("", ""), "{tier}");
        let expected = [
            ("err.0", "err 0\n"),
            ("err.1", "err 1\n"),
            ("err.2", "err 2\n"),
            ("out.00", "out 0\n"),
            ("out.01", "out 1\n"),
            ("out.02", "out 2\n"),
        ];
        assert_eq!(found, expected.map(|(name, text)| (name.to_owned(), text.to_owned())), "{tier}");
    }
}

#[test]
fn one_file_takes_the_output_of_all_ranks_and_no_message_of_rlaunch() {
    let (out, err, found) = run(&["-v", "-n", "2", "-o", "all.out"], place::tiers()[0]);
    assert_eq!(out, "");
    assert!(err.contains("rlaunch: ") && !err.contains("err 0"), "{err}");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "all.out");
    assert_eq!(lines(&found[0].1), ["err 0", "err 1", "out 0", "out 1"], "standard error too, as in srun");

    let (out, err, found) = run(&["-n", "2", "--error=only.err"], place::tiers()[0]);
    assert_eq!((lines(&out), err.as_str()), (vec!["out 0", "out 1"], ""));
    assert_eq!((found.len(), lines(&found[0].1)), (1, vec!["err 0", "err 1"]));

    let (out, err, found) = run(&["-n", "2", "-o", "none", "-e", "all"], place::tiers()[0]);
    assert_eq!((out.as_str(), lines(&err), found), ("", vec!["err 0", "err 1"], vec![]));
}

#[test]
fn ranks_of_a_host_share_the_file_of_the_host_and_lose_nothing() {
    let script = "i=0; while [ $i -lt 2000 ]; do echo $RANK $i; i=$((i + 1)); done";
    let plan = Plan::rlaunch(["-n", "3", "-o", "logs/%j/host-%n.%N", "sh", "-c", script]);
    let dir = plan.scratch().dir().to_owned();
    fs::create_dir(dir.join("logs")).unwrap();
    let _kept = plan.env("SLURM_JOB_ID", "77").cwd(&dir).start().code(0);
    let found = files(&dir.join("logs/77"));
    assert_eq!(found.len(), 1, "{:?}", found.iter().map(|(name, _)| name).collect::<Vec<_>>());
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(found[0].0, format!("host-0.{}", name.trim().split('.').next().unwrap()));
    assert_eq!(found[0].1.lines().count(), 6_000);
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_before_ranks_start() {
    let plan = Plan::rlaunch(["-n", "2", "-o", "gone/out", "touch", "started"]);
    let dir = plan.scratch().dir().to_owned();
    let done = plan.cwd(&dir).start().code(125);
    done.says("cannot write gone/out: no such file or directory");
    assert!(!dir.join("started").exists());
}

/// The files of each rank are refused as one file for all ranks is. Root can write everywhere but on a read-only file system.
#[test]
fn directory_that_is_missing_or_cannot_be_written_is_an_error_before_ranks_start() {
    let run = |words: &str| {
        let job = format!("exec \"$RL\" -n 2 {words} touch started");
        let script = format!(
            "mkdir ro; chmod 555 ro; : >plain; [ $(id -u) != 0 ] || exec unshare -m sh -c 'mount --bind ro ro && \
             mount -o remount,bind,ro ro && {job}'\n{job}"
        );
        let plan = Plan::shell(&script);
        let dir = plan.scratch().dir().to_owned();
        let done = plan.cwd(&dir).start().code(125);
        assert!(!dir.join("started").exists() && !dir.join("nodir").exists(), "{}", done.err());
        done
    };
    run("-o nodir/x.%t").says("error: cannot write nodir/x.%t: no such file or directory\n  try     mkdir -p nodir\n");
    run("-e plain/x.%t").says("error: cannot write plain/x.%t: not a directory\n");
    run("-o ro/x.%t").says("error: cannot write ro/x.%t: ");
    run("--log-dir ro -r 3").says("/ro: ");
    run("--log-dir ro").says("error: --log-dir ");
}

#[test]
fn ranks_that_start_again_continue_their_files() {
    let script = "echo try $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ]";
    let plan =
        Plan::rlaunch(["-n", "1", "--max-restarts", "1", "--restart-delay", "0s", "-o", "out.%t", "sh", "-c", script]);
    let dir = plan.scratch().dir().to_owned();
    let _kept = plan.cwd(&dir).start().code(0);
    assert_eq!(fs::read_to_string(dir.join("out.0")).unwrap(), "try 0\ntry 1\n");
}

#[test]
fn ranks_of_other_hosts_write_files_there() {
    let Some(bed) = Bed::up(4) else { return };
    let done = job(&bed, "root", &["-o", "logs/%N.%n.%t", "sh", "-c", "hostname"]).start().code(0);
    bed.clean(2);
    let expected = (0..8).map(|n| (format!("node{0}.{0}.{n}", n / 2), format!("node{}\n", n / 2)));
    assert_eq!(files(&done.scratch.path("logs")), expected.collect::<Vec<_>>());
    bed.down();
}

/// A pod of a training operator has these variables for whatever runs in it.
#[test]
fn variables_of_torchrun_do_not_count_without_its_options() {
    let plan = || Plan::rlaunch(["-n", "2", "sh", "-c", "echo $RANK of $WORLD_SIZE"]).env("PET_NPROC_PER_NODE", "1");
    assert_eq!(plan().start().code(0).sorted(), ["0 of 2", "1 of 2"]);
    let done = Plan::rlaunch(["--standalone", "-n", "2", "true"]).env("PET_NPROC_PER_NODE", "1").start().code(2);
    done.says("PET_NPROC_PER_NODE");
    plan()
        .env("RLAUNCH_TIMOUT", "1m")
        .start()
        .code(0)
        .says("rlaunch: not a variable of rlaunch, and ignored: RLAUNCH_TIMOUT (RLAUNCH_TIMEOUT?)\n");
    let several = plan().env("RLAUNCH_NP", "3").env("RLAUNCH_XYZZY", "1").env("RLAUNCH_QUIET", "1").start().code(0);
    for name in ["RLAUNCH_NP (RLAUNCH_N?)", "RLAUNCH_QUIET (-q?)", "RLAUNCH_XYZZY"] {
        several.says(name);
    }
    assert_eq!(several.err().matches("ignored").count(), 1);
    // A nested rlaunch gets no note for what the outer one has set.
    let nested = Plan::shell("exec \"$RL\" -n 2 \"$RL\" -n 1 true").start().code(0);
    assert_eq!(nested.err(), "");
}

#[test]
fn ranks_of_mpi_that_nothing_connects_are_named_at_the_end() {
    const MESSAGE: &str = "rlaunch: the 2 ranks were 2 programs of one rank each: ";
    const CODE: &str = "if 0:\n    import mpi4py";
    // Has a file with the name of a library mapped until its standard input ends.
    const LOADS: &str = "import mmap, sys\nf = open('libmpi.so.40', 'w+b')\nf.write(b' ')\nf.flush()\n\
                         m = mmap.mmap(f.fileno(), 0)\nsys.stdin.read()";
    if !place::has("python3") {
        return;
    }
    let path = format!("PATH={}", std::env::var("PATH").unwrap());
    for wrapper in [&["sh", "-c", "\"$@\"; exit $?", "-"][..], &["env", "-i", &path]] {
        let plan = Plan::rlaunch(["-n", "2"]).args(wrapper).args(["python3", "-c", LOADS]);
        let dir = plan.scratch().dir().to_owned();
        let mut case = plan.cwd(dir).stdin_pipe().start();
        case.event("mpi.loaded");
        drop(case.take_stdin());
        let done = case.code(0);
        done.says(&format!("{MESSAGE}libmpi.so.40 has not asked"));
        let apart = done.event("mpi.apart");
        let expected = (&2.into(), &"libmpi.so.40".into(), &true.into());
        assert_eq!((&apart["ranks"], &apart["library"], &apart["served"]), expected);
    }
    let job = |words: &[&str]| Plan::rlaunch(words).start().code(0).err();
    let none = job(&["-q", "--mpi", "none", "-n", "2", "python3", "-c", CODE]);
    assert!(none.contains(MESSAGE) && none.contains("mpi4py finds no others with --mpi none"), "{none}");
    for words in [["-n", "1", "python3", "-c", CODE], ["-n", "2", "python3", "-c", CODE]] {
        assert!(!job(&words).contains("programs of one rank"), "no rank has loaded a library: {words:?}");
    }
}

/// No ssh is started: there is none in this PATH.
#[test]
fn this_machine_is_examined_without_ssh() {
    for words in ["doctor", "doctor -H localhost"] {
        let done = Plan::shell(&format!("PATH=/nonexistent exec \"$RL\" {words}")).start().code(0);
        assert!(
            done.out().starts_with("this machine:\n  has     ") && done.out().contains("contain tier T"),
            "{}",
            done.out()
        );
    }
}

/// Open MPI's `--prefix` became a label.
#[test]
fn a_directory_is_no_label() {
    let done = Plan::rlaunch(["-n", "2", "--prefix", "/opt/openmpi", "echo", "4.2e-3"]).start().code(2);
    assert_eq!(done.out(), "");
    done.says("try     leave it out");
}
