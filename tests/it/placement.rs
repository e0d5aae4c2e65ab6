//! Hosts and places: `rlaunch hosts` against ClusterShell's nodeset, `rlaunch map`, and jobs whose hosts are this machine.

use crate::census;
use crate::place::{Random, Scratch, absent, rlaunch};
use crate::plan::Plan;
use rlaunch_plan::hostlist;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn said(words: &[&str]) -> Output {
    census::output(Command::new(rlaunch()).args(words).stdin(Stdio::null()))
}

/// The output for these words.
fn prints(words: &[&str]) -> String {
    let out = said(words);
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// The error for these words.
fn refused(words: &[&str]) -> String {
    let out = said(words);
    assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0), "{words:?}");
    String::from_utf8(out.stderr).unwrap()
}

/// A Python that has ClusterShell. scripts/test installs it from PyPI; elsewhere its absence is noted.
pub(crate) fn clustershell() -> Option<String> {
    let python = std::env::var("RLAUNCH_CLUSTERSHELL").ok();
    if python.is_none() {
        assert!(std::env::var_os("CI").is_none(), "RLAUNCH_CLUSTERSHELL names no Python with ClusterShell");
        absent("nodeset", "RLAUNCH_CLUSTERSHELL names no Python with ClusterShell (scripts/test installs it)");
    }
    python
}

/// Prints a line for each list of the input: the folded list, its count and all names. `-`: ClusterShell refuses the list.
const NODESET: &str = "
import sys
from ClusterShell.NodeSet import NodeSet
from ClusterShell.NodeUtils import GroupResolver
none = GroupResolver()
for line in sys.stdin:
    try:
        nodes = NodeSet(line.strip(), resolver=none)
        print(str(nodes), len(nodes), *nodes)
    except Exception:
        print('-')
";

fn nodeset(python: &str, lists: &[String]) -> Vec<String> {
    let scratch = Scratch::new();
    let file = scratch.path("lists");
    std::fs::write(&file, lists.join("\n") + "\n").unwrap();
    let mut command = Command::new(python);
    command.args(["-c", NODESET]).stdin(std::fs::File::open(file).unwrap());
    let out = census::output(&mut command);
    assert!(out.status.success(), "{python}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn number(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => 0,
        1..5 => random.below(12),
        5 | 6 => random.below(120),
        _ => random.below(3000),
    }
}

fn range(random: &mut Random) -> String {
    let start = number(random);
    let width = usize::try_from(random.below(4)).unwrap();
    let shown = |n: u64| if random_width(width, start) { format!("{n:0width$}") } else { n.to_string() };
    let end = start + random.below(9);
    match random.below(8) {
        0..4 => shown(start),
        4..7 => format!("{}-{}", shown(start), shown(end)),
        _ => format!("{}-{}/{}", shown(start), shown(end), 1 + random.below(4)),
    }
}

/// Zeros are put before a number only where they are more than it needs.
fn random_width(width: usize, start: u64) -> bool {
    width > start.to_string().len()
}

fn term(random: &mut Random) -> String {
    let mut text = (*random.pick(&["n", "node", "rack-", "a.b", "x0y"])).to_owned();
    for part in 0..random.below(3) {
        if part > 0 {
            text.push_str(random.pick::<&str>(&["c", "-", ".z"]));
        }
        match random.below(4) {
            // A range outside of brackets is text, in which a step has no place.
            0 => text.push_str(&range(random).replace('/', "-")),
            _ => {
                let ranges: Vec<String> = (0..1 + random.below(4)).map(|_| range(random)).collect();
                text.push_str(&format!("[{}]", ranges.join(",")));
            }
        }
    }
    text.push_str(random.pick::<&str>(&["", "", "", "-ib", ".cluster"]));
    text
}

fn lists(random: &mut Random, count: usize) -> Vec<String> {
    let list = |random: &mut Random| {
        let mut text = term(random);
        for _ in 0..random.below(5) {
            text.push_str(random.pick::<&str>(&[",", ",", ",", "!"]));
            text.push_str(&term(random));
        }
        text
    };
    (0..count).map(|_| list(random)).collect()
}

/// Our result for a list: all names, in order.
fn names(list: &str) -> Option<Vec<String>> {
    match hostlist::lists([("-H", list.as_bytes())], &mut hostlist::Alone) {
        Ok(entries) => Some(entries.into_iter().map(|entry| entry.host.name).collect()),
        Err(error) if error.fault == hostlist::Fault::Nothing => Some(Vec::new()),
        Err(_) => None,
    }
}

#[test]
fn nodeset_agrees() {
    let Some(python) = clustershell() else { return };
    let mut random = Random::new(41);
    let lists = lists(&mut random, if crate::place::full() { 50_000 } else { 4_000 });
    let expected = nodeset(&python, &lists);
    assert_eq!(expected.len(), lists.len());
    let mut folded = Vec::new();
    let (mut read, mut same) = (0, 0usize);
    for (list, line) in lists.iter().zip(&expected) {
        let ours = names(list);
        let mut words = line.split_ascii_whitespace();
        // An empty set is an empty word.
        let fold = if line.starts_with(' ') { "" } else { words.next().unwrap_or_default() };
        if fold == "-" {
            assert_eq!(ours, None, "nodeset refuses {list}");
            continue;
        }
        let ours = ours.unwrap_or_else(|| panic!("nodeset takes {list}: {line}"));
        let count: usize = words.next().unwrap().parse().unwrap();
        let set: BTreeSet<&str> = ours.iter().map(String::as_str).collect();
        assert_eq!((set.len(), set.clone()), (count, words.collect()), "{list}");
        let own = hostlist::fold(ours.iter().map(String::as_str));
        (read, same) = (read + 1, same + usize::from(own == fold));
        // With one number in a name there is one short form only; nodeset ends a range at 99 where another name has zeros.
        let is_plain = |name: &&str| {
            let mut runs = name.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
            runs.next().is_none_or(|digits| digits.len() == 1 || !digits.starts_with('0')) && runs.next().is_none()
        };
        assert!(own == fold || !set.iter().all(is_plain), "{list}: {own}, nodeset: {fold}");
        folded.push((own, set.into_iter().map(str::to_owned).collect::<BTreeSet<_>>()));
    }
    assert!(read > lists.len() / 2, "most lists are to be read: {read}");
    assert!(same * 10 > read * 9, "the short forms are nearly always the same: {same} of {read}");
    // nodeset reads what we fold.
    let texts: Vec<String> = folded.iter().filter(|(text, _)| !text.is_empty()).map(|(text, _)| text.clone()).collect();
    let again = nodeset(&python, &texts);
    let sets = folded.iter().filter(|(text, _)| !text.is_empty()).map(|(_, set)| set);
    for ((text, line), set) in texts.iter().zip(&again).zip(sets) {
        let expected: BTreeSet<String> = line.split_ascii_whitespace().skip(2).map(str::to_owned).collect();
        assert_eq!(&expected, set, "{text}");
    }
}

#[test]
fn the_command_prints_the_same_as_nodeset() {
    let Some(python) = clustershell() else { return };
    let tool = Path::new(&python).with_file_name("nodeset");
    for words in [
        &["-f", "n3", "n1,n2"][..],
        &["-f", "node[01-20]", "-x", "node[05-06]"],
        &["-e", "n[08-11]c[0-1]"],
        &["-c", "n[1-100/3]"],
        &["-S", ",", "-e", "a[1-3]-ib"],
        &["-eS\\n", "a[1-3]"],
        &["-e", "a[1-5]!a3"],
        &["-f", "b1", "a2", "a1", "c", "b"],
    ] {
        let expected = census::output(Command::new(&tool).args(words).stdin(Stdio::null()));
        let ours = [&["hosts"], words].concat();
        assert_eq!(prints(&ours), String::from_utf8_lossy(&expected.stdout), "{words:?}");
    }
}

#[test]
fn hosts_are_read_from_stdin_and_files() {
    let scratch = Scratch::new();
    let file = scratch.path("hosts");
    std::fs::write(&file, "n1 slots=4\nn2 slots=4 # two\n").unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(prints(&["hosts", "--hostfile", file]), "n[1-2]\n");
    assert_eq!(prints(&["hosts", "-e", &format!("^{file},m")]), "n1 n2 m\n");
    let piped = std::fs::File::open(file).unwrap();
    assert_eq!(census::output(Command::new(rlaunch()).args(["hosts", "-e"]).stdin(piped)).stdout, b"n1 n2\n");
    assert!(refused(&["hosts", "n[1"]).starts_with("error: hosts, column 2: this bracket is not closed\n     | n[1\n"));
}

#[test]
fn a_question_that_waits_for_stdin_can_be_interrupted() {
    let mut child = census::spawn(Command::new(rlaunch()).arg("hosts").stdin(Stdio::piped()).stdout(Stdio::null()));
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    // Its stdin stays open for as long as it lives.
    let stdin = child.stdin.take();
    census::reap(&mut child);
    drop(stdin);
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
}

#[test]
fn a_map_shows_every_rank() {
    assert_eq!(
        prints(&["map", "--json", "-n", "3", "-H", "node[0-1]:2", "./train"]),
        "{\"ranks\":[{\"rank\":0,\"host\":\"node0\",\"local_rank\":0,\"node_index\":0,\"app\":0},\
         {\"rank\":1,\"host\":\"node0\",\"local_rank\":1,\"node_index\":0,\"app\":0},\
         {\"rank\":2,\"host\":\"node1\",\"local_rank\":0,\"node_index\":1,\"app\":0}],\
         \"store\":{\"by\":\"rank0\",\"why\":\"not_python\"},\
         \"hosts\":[{\"host\":\"node0\",\"slots\":2,\"ranks\":2},{\"host\":\"node1\",\"slots\":2,\"ranks\":1}],\
         \"apps\":[{\"argv\":[\"./train\"]}]}\n"
    );
    let text = "4 ranks on 2 hosts\n  a  rank 0\n  b  ranks 1-3\n  rank 0     ./x\n  ranks 1-3  ./y 1\n\
                TCPStore: left to rank 0 (it does not run Python)\n";
    for words in [
        &["map", "-H", "a", "./x", ":", "-H", "b:3", "./y", "1"][..],
        &["--dry-run", "-H", "a", "./x", ":", "-H", "b:3", "./y", "1"],
    ] {
        assert_eq!(prints(words), text);
    }
    let json: serde_json::Value = serde_json::from_str(&prints(&["map", "--json", "-n", "2", "x"])).unwrap();
    let host = String::from_utf8(std::fs::read("/proc/sys/kernel/hostname").unwrap()).unwrap();
    assert_eq!(json["ranks"][1]["host"], host.trim());
}

#[test]
fn a_hostfile_that_is_not_there_is_fatal() {
    let gone = Scratch::new().path("gone");
    let gone = gone.to_str().unwrap();
    let expected = format!(
        "error: cannot read the hostfile {gone}: no such file or directory\n  \
         try     -H HOST,...   or a file with a host on each line, as: node01 slots=4\n"
    );
    assert_eq!(refused(&["--hostfile", gone, "true"]), expected);
    assert_eq!(refused(&["map", "--hostfile", gone, "true"]), expected);
    let out = census::output(Command::new(rlaunch()).arg("true").env("RLAUNCH_HOSTFILE", gone).stdin(Stdio::null()));
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn a_hostfile_may_come_from_a_pipe_and_be_wrong() {
    let scratch = Scratch::new();
    let file = scratch.path("hosts");
    std::fs::write(&file, "a\nb slots=four\n").unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(
        refused(&["-f", file, "true"]),
        format!(
            "error: {file}:2:9: slots takes a whole number above 0, got 'four'\n   2 | b slots=four\n     |         ^\n"
        )
    );
    let hint = format!("--hostfile {file}\n");
    assert!(refused(&["-H", file, "true"]).contains(&hint));
    let out = Plan::shell("echo localhost slots=3 | \"$RL\" -f /dev/stdin sh -c 'echo $RANK'").start().code(0);
    assert_eq!(out.sorted(), ["0", "1", "2"]);
}

#[test]
fn this_machine_by_all_its_names_is_one_host() {
    let host = String::from_utf8(std::fs::read("/proc/sys/kernel/hostname").unwrap()).unwrap();
    let list = format!("localhost:2,{},127.0.0.1", host.trim());
    let script = "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $RLAUNCH_NODES";
    let done = Plan::rlaunch(["-H", &list, "sh", "-c", script]).start().code(0);
    assert_eq!(done.sorted(), ["0 0 4 0 1 1", "1 1 4 0 1 1", "2 2 4 0 1 1", "3 3 4 0 1 1"]);
    let done = Plan::rlaunch(["--ppn", "3", "sh", "-c", "echo $RANK of $WORLD_SIZE"]).start().code(0);
    assert_eq!(done.sorted(), ["0 of 3", "1 of 3", "2 of 3"]);
}

#[test]
fn programs_of_one_job() {
    let script = "echo $RANK/$WORLD_SIZE $RLAUNCH_APP:$RLAUNCH_APP_NAME $RLAUNCH_APP_RANK/$RLAUNCH_APP_SIZE of $RLAUNCH_APPS \
                  $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $X$Y$0 $(basename \"$PWD\")";
    let words = [
        "-n", "1", "--name", "server", "-genv", "X", "g", "-x", "Y=1", "--wdir", "/", "sh", "-c", script, "one", ":",
        "-n", "2", "-x", "Y=2", "--wdir", "/proc", "sh", "-c", script, "two",
    ];
    let done = Plan::rlaunch(words).start().code(0);
    assert_eq!(
        done.sorted(),
        [
            "0/3 0:server 0/1 of 2 server 0/1 0/3 g1one /",
            "1/3 1:default 0/2 of 2 default 0/2 1/3 g2two proc",
            "2/3 1:default 1/2 of 2 default 1/2 2/3 g2two proc",
        ]
    );
    let done = Plan::rlaunch(["-l", "--prefix", "%a.%r ", "echo", "a", ":", "-n", "2", "echo", "b"]).start().code(0);
    assert_eq!(done.sorted(), ["0.0 a", "1.1 b", "1.2 b"]);
    let apps = done.event("job.start")["apps"].as_array().unwrap();
    assert_eq!((apps[0]["procs"].as_u64(), apps[1]["procs"].as_u64()), (Some(1), Some(2)));
}

#[test]
fn the_second_program_fails_by_its_own_name() {
    let done = Plan::rlaunch(["sleep", "100", ":", "-n", "2", "sh", "-c", "exit $RANK"]).start().end();
    assert!(!done.exit.is_success());
    done.says("  command  sh -c 'exit $RANK'\n");
    let done = Plan::rlaunch(["sleep", "100", ":", "./not-there-at-all"]).start().code(127);
    done.says("error: ./not-there-at-all: no such file");
}

#[test]
fn more_ranks_than_slots_is_a_note() {
    let done = Plan::rlaunch(["-n", "3", "-H", "localhost:2", "true"]).start().code(0);
    assert_eq!(done.err(), "rlaunch: 3 ranks share 2 slots of localhost\n");
    let done = Plan::rlaunch(["-v", "-n", "300", "true"]).start().code(0);
    done.says("rlaunch: 300 ranks share ");
    let done = Plan::rlaunch(["-q", "-n", "3", "-H", "localhost:2", "true"]).start().code(0);
    assert_eq!(done.err(), "");
    assert!(
        refused(&["--strict", "-n", "3", "-H", "localhost:2", "true"])
            .starts_with("error: --strict: 3 ranks on 2 slots")
    );
}

#[test]
fn hosts_that_cannot_be_reached_are_all_named() {
    let hosts = "one.rlaunch.invalid,localhost,two.rlaunch.invalid";
    let done = Plan::rlaunch(["-n", "3", "-H", hosts, "true"]).start().code(125);
    done.says("error: 2 of 3 hosts cannot be reached; nothing was started\n");
    done.says("  one.rlaunch.invalid,two.rlaunch.invalid the name does not resolve  (ssh: ");
}
