//! Messages of the launcher about failures and warnings, and the page that explains each of them.

use crate::files::sources_in;
use crate::prose::literals;
use crate::root;
use std::fs;
use std::path::Path;

const PAGE: &str = "docs/guides/troubleshooting.md";

/// The file of the answer to `rlaunch assign`.
const OTHER_TEXTS: &str = "assign.rs";

/// Fewest words of a message, without names and numbers.
const FEWEST_WORDS: usize = 5;

/// Texts that name no failure and no warning: hints, ends of sentences, answers to a signal, progress. `…` stands for names and numbers.
const ORDINARY: &[&str] = &[
    "in Slurm, more CPUs for the allocation or for srun --exact: -c N (--cpus-per-task)",
    // The text itself is by Open MPI.
    "rlaunch: Open MPI sent the help message … / … …",
    // Hints.
    "sacct -j $SLURM_JOB_ID or scontrol show job $SLURM_JOB_ID, for the state and the reason",
    "in a rank of another rlaunch, --bind-to none or -c N there",
    "./…, if it is your program; rlaunch --help lists the commands",
    "a newer container runtime, or its option --security-opt seccomp=unconfined",
    "leave it out: rlaunch PROGRAM",
    "a higher limit",
    "large data in a file",
    "see whether",
    "ask for fewer keys",
    "delete keys that are not read any more",
    "wait for several keys with one request",
    "another port, or leave MASTER_PORT out",
    "a MASTER_ADDR that is an address of that host",
    "leave MASTER_ADDR out",
    "for a network that all hosts have in common",
    "a directory that",
    "if a script starts the program: exec it there",
    "rlaunch clean…--clean-devices",
    "end that job of rlaunch, or wait for its end",
    "close the TPU in process",
    "if that process uses the TPU",
    "the same again in a minute; if the process stays, restart the host",
    "restart the container of process 1",
    "would be ended, if no other holder were kept",
    "to see what is there",
    "for processes that the kernel killed",
    "if the network or a host pauses",
    "in the program, which prints stacks",
    "rlaunch…, if a command of rlaunch was meant",
    "the path of …: it is not in this directory",
    "is a variable of your command line empty?",
    "hosts with GPUs, or leave --gpus-per-rank out",
    "CUDA_VISIBLE_DEVICES, with the GPUs of the host",
    "fewer ranks on this host, or a higher memory limit",
    "the same without --dry-run",
    // Parts of messages that have a row.
    "that others can use",
    "it has no address that could be tried",
    "is not known which was lost first",
    "it has ended before its hello",
    "it does not know the key of its host",
    "it is no agent of this job",
    "it has sent no complete hello within 2 s",
    "it names a host that is not in this job",
    "the agent of its host has connected before",
    "newer connections have taken its place",
    "opens a store of its own",
    "the next start of ranks takes",
    "all ranks are ended, to start on more",
    "slices were up instead of",
    "it has…, and the other slices have",
    "its hosts have…chips, and those of the other slices have",
    "the job has a slice of this name with other hosts",
    "slices, and takes no more",
    "it did not end within",
    "before the ranks were started again",
    "before any rank was started",
    "without a heartbeat by then",
    "ranks are active",
    "a free slot, and GPUs for it",
    "killed, and still there",
    "it was killed or crashed",
    "the program's max_rank_faults",
    "no other rank was started",
    "by a process that you may not see",
    "rlaunch was started by it",
    "ended, or were never started",
    "ranks get ALLOW_MULTIPLE_LIBTPU_LOAD=1",
    // Answers to a signal, and how the ending is going.
    "SIGKILL in …",
    "waiting for ranks to end",
    "waiting for the others to end",
    "nothing was started; was waiting for",
    "the job is ending already",
    "output without a reader is dropped after",
    "sent SIGKILL; … again to leave at once",
    "leaving now; the guardian ends the remaining processes",
    // Steps that were asked for.
    "the restart continues without its ranks",
    "it gets no other ranks",
    "is started again",
    "decided in …, all out in …, assigned in …",
    "more faults within … join this restart",
    "rlaunch is not installed there; sending it by one srun per host",
    "has rejoined and waits for the next restart",
    "no process had locked it",
    "would be removed: no process has locked it",
    // The answer to `rlaunch map`, and what `-v` shows of it.
    "hosts of …, whose agents … starts",
    "held by rlaunch at MASTER_PORT",
    "as rlaunch does this anyway",
    "more ranks than slots",
    "log files: …",
    "local_rank\":",
    // Parts of `rlaunch report`, and its picture.
    "ended by rlaunch (exit code …)",
    "its end is not in the log",
    "the log ends before the job does",
    "are missing in the log",
    "of ranks are not shown",
    "events within … are shown as one",
    "did not leave the function and …",
    "is about to be taken away (…)",
    "was lost: its lease has expired",
    "was lost: rlaunch itself was suspended",
    "was lost: its … is gone",
    "rank … could not be started",
    // Diagnostics of `-vv`.
];

/// Whether the parts of a pattern stand in a text, one after the other.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut rest = text;
    pattern.split('…').all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// Messages of a file, by lines: `…` in the place of each value, one space between words. Lines of what to try are left out.
fn messages_of(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let literals = literals(&code.join("\n"));
    let lines = literals.iter().flat_map(|literal| literal.lines()).map(without_values);
    lines.filter(|line| line != "try" && !line.starts_with("try ")).collect()
}

fn without_values(literal: &str) -> String {
    let mut parts = literal.split('{');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push('…');
        text.push_str(part.split_once('}').map_or(part, |(_, after)| after));
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn words(text: &str) -> usize {
    let is_word = |word: &&str| word.len() > 1 && word.bytes().all(|b| b.is_ascii_alphabetic());
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_word).count()
}

/// Messages in the first cells of the tables of the page.
fn rows() -> Vec<String> {
    let text = fs::read_to_string(root().join(PAGE)).unwrap();
    let cells = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
    let named = cells.flat_map(|(cell, _)| cell.split('`').step_by(2).map(str::to_owned));
    named.collect()
}

fn is_other(path: &Path) -> bool {
    let is_test = path.ends_with("tests.rs") || path.parent().is_some_and(|folder| folder.ends_with("tests"));
    path.ends_with(OTHER_TEXTS) || is_test
}

#[test]
fn each_message_about_a_failure_has_a_row_in_troubleshooting() {
    let rows = rows();
    let files = sources_in(&root().join("launcher/src/view")).into_iter().filter(|path| !is_other(path));
    let messages: Vec<String> = files.flat_map(|path| messages_of(&path)).collect();
    let is_hint = |text: &str| text.starts_with('-');
    let checked = messages.iter().filter(|text| words(text) >= FEWEST_WORDS && !is_hint(text));
    let is_known = |text: &str| {
        rows.iter().map(String::as_str).chain(ORDINARY.iter().copied()).any(|pattern| is_like(pattern, text))
    };
    let missing: Vec<&String> = checked.filter(|text| !is_known(text)).collect();
    assert!(
        missing.is_empty(),
        "{PAGE} has no row for these messages (add one; a text that names no failure and no warning goes into \
         ORDINARY of tests/house/messages.rs): {missing:#?}"
    );
    let stale: Vec<_> = ORDINARY.iter().filter(|pattern| !messages.iter().any(|text| is_like(pattern, text))).collect();
    assert!(stale.is_empty(), "no message has these words any more: remove them from ORDINARY: {stale:#?}");
}

#[test]
fn each_row_of_troubleshooting_is_a_message_of_the_program() {
    let pure = crate::crates::PURE.iter().map(|pure| root().join("common").join(pure).join("src"));
    let rooms = pure.chain([root().join("launcher/src")]);
    let messages: Vec<String> = rooms.flat_map(|room| sources_in(&room)).flat_map(|path| messages_of(&path)).collect();
    let rows = rows();
    assert!(rows.len() > 100, "found only {} messages in {PAGE}", rows.len());
    let stale: Vec<&String> = rows.iter().filter(|row| !messages.iter().any(|text| is_like(row, text))).collect();
    assert!(stale.is_empty(), "{PAGE} has rows for messages that the program does not print: {stale:#?}");
    let vague: Vec<&String> = rows.iter().filter(|row| words(row) < 3).collect();
    assert!(vague.is_empty(), "these rows of {PAGE} fit nearly every message; give them three words: {vague:#?}");
}

#[test]
fn a_row_matches_its_message_with_any_names() {
    let text = without_values("rank {rank} was lost with {} on\n   {host:?}: {why}");
    assert_eq!(text, "rank … was lost with … on …: …");
    assert!(is_like("rank … was lost with … on", &text) && is_like("was lost", &text));
    assert!(
        !is_like("rank … w … s", &text) && !is_like("was lost … rank", &text) && !is_like("rank … was found", &text)
    );
    assert_eq!(words(&text), 5);
}
