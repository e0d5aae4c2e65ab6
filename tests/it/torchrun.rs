//! torchrun's command line: what Python runs, and log files in torchrun's layout.

use crate::bed::Bed;
use crate::case::Done;
use crate::place;
use crate::plan::Plan;
use crate::several::job;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The files below a directory, by their paths there; of the first directory only those that name neither job nor host.
fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    let top = open.len();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let name: Vec<_> = path.strip_prefix(dir).unwrap().iter().map(|part| part.to_str().unwrap()).collect();
            let host = name[0].rsplit('_').next().unwrap();
            let name = if top > 1 { format!("{host}/{}", name[1..].join("/")) } else { name[1..].join("/") };
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}

fn text(files: &BTreeMap<String, Vec<u8>>) -> Vec<(&str, String)> {
    files.iter().map(|(name, bytes)| (name.as_str(), String::from_utf8_lossy(bytes).into_owned())).collect()
}

/// The output of a script's ranks, and the program.
const SAYS: &str = "import os, sys\n\
    words = [os.environ['RANK'], *sys.argv[1:], os.environ['TORCHELASTIC_USE_AGENT_STORE']]\n\
    os.write(1, (' '.join(words) + '\\n').encode())\n";

#[test]
fn a_script_is_run_by_python_without_buffering() {
    if !place::has("python3") {
        return;
    }
    let start = |words: &[&str]| {
        let plan = Plan::rlaunch(words);
        fs::write(plan.scratch().path("say.py"), SAYS).unwrap();
        let dir = plan.scratch().dir().to_owned();
        plan.cwd(dir).start().code(0)
    };
    assert_eq!(start(&["-n", "2", "say.py", "-m", "x"]).sorted(), ["0 -m x True", "1 -m x True"]);
    assert_eq!(start(&["--nproc_per_node=2", "--standalone", "./say.py"]).sorted(), ["0 True", "1 True"]);
    assert_eq!(start(&["-n", "1", "say.py"]).sorted(), ["0 False"], "nobody else is there");
    assert_eq!(start(&["--nproc-per-node", "1", "say.py"]).sorted(), ["0 True"], "as torchrun");
    assert_eq!(start(&["-m", "say", "y"]).sorted(), ["0 y True"]);
    start(&["-v", "-n", "1", "say.py"]).says("rlaunch: say.py is run by python3 -u (/");
    let given = start(&["-n", "2", "--master-port", "29511", "say.py"]);
    assert_eq!(given.event("job.start")["store"]["why"], "port_given");
}

#[test]
fn log_files_have_the_output_of_ranks_in_the_layout_of_torchrun() {
    // All ranks write more than waits for a writer; what is shown is only what is teed.
    let script = "head -c 6000000 /dev/zero | tr '\\0' $RANK; echo err $RANK >&2; echo \"$TORCHELASTIC_ERROR_FILE\" >>\"$DIR/paths\"";
    for tier in place::tiers() {
        let words = ["-n", "3", "-r", "1", "-t", "0:2,2:3", "--log-dir", "logs", "sh", "-c", script];
        let plan = Plan::rlaunch(words).contain(tier);
        let dir = plan.scratch().dir().to_owned();
        let done = plan.env("DIR", &dir).cwd(&dir).start().code(0);
        assert_eq!(done.out, [b'2'; 6_000_000], "{tier}: rank 2's stdout, and no other");
        let lines = done.err_of_any_machine();
        let mut lines: Vec<&str> = lines.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["err 0", "err 1", "err 2"], "{tier}");
        let files = tree(&dir.join("logs"));
        let names: Vec<&str> = files.keys().map(String::as_str).collect();
        let expected = ["0/stderr.log", "0/stdout.log", "1/stdout.log", "2/stderr.log", "2/stdout.log"];
        assert_eq!(names, expected.map(|name| format!("attempt_0/{name}")), "{tier}");
        for rank in 0..3_u8 {
            let all = &files[&format!("attempt_0/{rank}/stdout.log")];
            assert!(all.len() == 6_000_000 && all.iter().all(|b| *b == b'0' + rank), "{tier}: {}", all.len());
        }
        assert_eq!(files["attempt_0/2/stderr.log"], b"err 2\n");
        let paths = fs::read_to_string(dir.join("paths")).unwrap();
        let own = format!("{}/logs/", dir.display());
        assert!(paths.lines().all(|path| path.starts_with(&own) && path.ends_with("/error.json")), "{paths}");
        assert!(!done.err().contains("could not be written"));
    }
}

#[test]
fn a_rank_that_fails_leaves_its_error_file_and_its_last_words() {
    let script = "if [ $RANK = 1 ]; then echo last words >&2; \
         echo '{\"message\":{\"message\":\"E: broken\"}}' >\"$TORCHELASTIC_ERROR_FILE\"; exit 7; fi; cat";
    for tier in place::tiers() {
        let plan = Plan::rlaunch(["-n", "2", "-r", "3", "--log-dir", "l", "sh", "-c", script]).contain(tier);
        let dir = plan.scratch().dir().to_owned();
        // The directory is there before the rank, or it cannot leave anything.
        let done = plan.stdin_pipe().cwd(&dir).start().code(7);
        done.says("last words");
        assert_eq!(done.out(), "");
        assert_eq!(text(&tree(&dir.join("l")))[3].0, "attempt_0/1/stderr.log", "{tier}");
        let files = tree(&dir.join("l"));
        assert!(files["attempt_0/1/error.json"].starts_with(b"{"), "{tier}: it is kept");
        let facts = done.event("rank.facts");
        assert!(facts["error_file"].as_str().is_some_and(|text| text.contains("broken")), "{tier}: {facts}");
    }
}

/// Ends at once: 9 where its error file could not be written.
const AT_ONCE: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    char *path = strdup(getenv("TORCHELASTIC_ERROR_FILE"));
    *strrchr(path, '/') = 0;
    return access(path, F_OK) ? 9 : 0;
}
"#;

/// However fast a rank is, and however slow the thread that makes its directory meanwhile. Without that every third of these jobs fails.
#[test]
fn directory_of_a_rank_exists_before_its_start() {
    let script = "cd \"$DIR\" && echo \"$AT_ONCE\" >look.c && cc -O2 -static -o look look.c || exit 99
        for job in 1 2 3 4 5 6 7 8 9 10; do \"$RL\" -n 64 -r 3 --log-dir \"l $job\" ./look || exit; done";
    Plan::shell(script).env("AT_ONCE", AT_ONCE).start().code(0);
}

fn lost(done: &Done) -> u64 {
    let events = done.out();
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["ev"] == "file.lost").map(|event| event["bytes"].as_u64().unwrap()).sum()
}

/// A limit on the size of files has the same effect as a full disk.
#[test]
fn full_disk_is_reported_once_and_makes_a_success_a_failure() {
    for tier in place::tiers() {
        let script = "ulimit -f 8; exec \"$RL\" --events fd:1 -n 2 -r 1 --log-dir \"$DIR/l\" \
             sh -c 'head -c 20000 /dev/zero; head -c 1000 /dev/zero; exit 0'";
        let plan = Plan::bash(script).contain(tier);
        let done = plan.start().code(125);
        let files = tree(&done.scratch.path("l"));
        let kept: usize = files.values().map(Vec::len).sum();
        assert_eq!((files.len(), kept), (2, 2 * 8192), "{tier}");
        assert_eq!(lost(&done), 2 * (21_000 - 8192), "{tier}");
        let complaints = done.err();
        assert_eq!(complaints.matches("rlaunch: cannot write ").count(), 1, "{tier}: {complaints}");
        assert!(complaints.contains("/stdout.log on ") && complaints.contains("file too large"), "{complaints}");
        assert!(complaints.contains("could not be written to log files"), "{complaints}");
    }
}

/// A reader of rlaunch's output that takes nothing holds up neither streams that it does not get, nor their files.
#[test]
fn streams_that_are_not_shown_do_not_wait_for_the_reader_of_others() {
    let script =
        "if [ $RANK = 0 ]; then exec yes; fi; head -c 3000000 /dev/zero; echo done >\"$DIR/done\"; exec sleep 1000";
    let plan = Plan::rlaunch(["-n", "2", "-r", "1:1", "--log-dir", "l", "sh", "-c", script]);
    let (dir, done) = (plan.scratch().dir().to_owned(), plan.scratch().fifo("done"));
    let (reader, writer) = std::io::pipe().unwrap();
    let case = plan.env("DIR", &dir).stdout(writer).cwd(&dir).start();
    assert_eq!(fs::read(done).unwrap(), b"done\n");
    case.signal(Signal::SIGTERM);
    drop(reader);
    let _scratch = case.end().scratch;
    assert_eq!(tree(&dir.join("l"))["attempt_0/1/stdout.log"].len(), 3_000_000);
}

#[test]
fn a_log_directory_that_cannot_be_made_is_an_error_before_anything_starts() {
    let plan = Plan::rlaunch(["-n", "1", "--log-dir", "/dev/null/x", "-r", "3", "sh", "-c", "echo no"]);
    let done = plan.start().code(125);
    done.says("error: --log-dir /dev/null/x: not a directory");
    assert_eq!(done.out(), "");
}

#[test]
fn each_host_writes_its_own_files() {
    let Some(bed) = Bed::up(4) else { return };
    for user in ["root", "tester"] {
        // Of the directory in which rlaunch was started, which all hosts have.
        let words = ["--log-dir", "logs", "-t", "1", "sh", "-c", "echo $RANK $(hostname)"];
        let done = job(&bed, user, &words).start().code(0);
        bed.clean(2);
        assert_eq!(done.sorted(), (0..8).map(|n| format!("{n} node{}", n / 2)).collect::<Vec<_>>(), "{}", done.err());
        let files = tree(&done.scratch.path("logs"));
        let expected =
            (0..8).map(|n| (format!("{0}/attempt_0/{1}/stdout.log", n / 2, n % 2), format!("{n} node{}\n", n / 2)));
        let found = text(&files).into_iter().map(|(name, text)| (name.to_owned(), text));
        assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        let nowhere = ["--log-dir", "/proc/nowhere", "-r", "3", "true"];
        let done = job(&bed, user, &nowhere).start().code(125);
        bed.clean(2);
        done.says("--log-dir /proc/nowhere on ");
    }
    bed.down();
}

#[test]
fn each_rank_finds_its_number_in_its_arguments() {
    let start = |words: &[&str]| Plan::rlaunch(words).start().code(0).sorted();
    let command = ["sh", "-c", "echo \"$1\" \"$2\"", "sh", "cuda:${local_rank}", "$$HOME"];
    assert_eq!(
        start(&[&["--nproc-per-node", "3"], &command[..]].concat()),
        ["cuda:0 $HOME", "cuda:1 $HOME", "cuda:2 $HOME"]
    );
    let as_it_is = start(&[&["-n", "2"], &command[..]].concat());
    assert_eq!(as_it_is, ["cuda:${local_rank} $$HOME", "cuda:${local_rank} $$HOME"]);
}
