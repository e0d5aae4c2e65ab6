//! The messages of other hosts about a directory, a program or an interface: as precise as this one's. ssh is a stand-in.

use crate::case::Done;
use crate::place;
use crate::plan::Plan;
use crate::ssh::script;

/// In a directory that is no more.
const GONE: &str = "mkdir \"$DIR/gone\"; cd \"$DIR/gone\"; rmdir \"$DIR/gone\"";

/// These words on hosts, and whether any of them was called for.
fn on_hosts(before: &str, words: &str) -> Plan {
    let job =
        format!("\"$RL\" --agent-path \"$RL\" {words}; code=$?; [ ! -e \"$DIR/calls\" ] || echo called; exit $code");
    script(&format!("{before}\n{job}"))
}

#[test]
fn a_directory_that_is_gone_has_no_name_for_other_hosts() {
    let said = "error: ranks on other hosts start from the current directory, and it does not exist any more\n  \
                try     cd to another one, or --wdir with an absolute path\n";
    for words in [
        "-n 1 -H h true",
        "-n 2 -H localhost,h true",
        "-n 1 --wdir / -H h true : -n 1 -H h true",
        "-n 1 --wdir sub -H h true",
    ] {
        let done = on_hosts(GONE, words).start().code(125);
        assert_eq!((error_of(&done).as_str(), done.out().as_str()), (said, ""), "nothing was started: {words}");
    }
    let done = on_hosts(GONE, "-n 1 --wdir / -H h pwd").start().code(0);
    assert_eq!(done.out(), "/\ncalled\n");
    // Ranks of this host inherit it, also beside others.
    let done = on_hosts(GONE, "-n 1 -H localhost echo here : -n 1 -H h --wdir / pwd").start().code(0);
    assert_eq!(done.sorted(), ["/", "called", "here"], "{}", done.err());
}

#[test]
fn ranks_of_this_host_inherit_a_directory_that_is_gone() {
    let run = |words: &str| Plan::shell(&format!("{GONE}; exec \"$RL\" -n 1 {words}")).start();
    assert_eq!(run("echo up").code(0).out(), "up\n");
    assert_eq!(run("--wdir / pwd").code(0).out(), "/\n");
    // As the kernel sees it.
    assert_eq!(run("--wdir .. sh -c '[ -d gone ] || echo up'").code(0).out(), "up\n");
    run("--wdir sub true").code(125).says("error: --wdir sub on ");
}

#[test]
fn the_loopback_is_no_place_to_meet_where_there_are_others() {
    for (hosts, first) in [("a,b", "a"), ("localhost,b", "localhost")] {
        let done = on_hosts("", &format!("-n 2 -H {hosts} --interface lo echo up")).start().code(125);
        done.says(&format!(
            "error: --interface lo: there is no such interface with an address that others can use on {first}"
        ));
        assert_eq!(done.out(), "called\n");
        suggests_no_loopback(&done);
    }
    let done = on_hosts("", "-n 2 -H a,b --interface none9 true").start().code(125);
    done.says("error: --interface none9: there is no such interface");
    suggests_no_loopback(&done);
    // Continuing without a host does not help either.
    on_hosts("", "-n 2 -H a,b --min-hosts 1 --interface lo true").start().code(125).says("there is no such interface");
    let done = on_hosts("", "-n 1 -H a --interface none9 true").start().code(125);
    done.says("error: --interface none9: there is no such interface with an address on a, where rank 0 runs\n");
    let done = on_hosts("", "-n 1 -H a --interface lo sh -c 'echo $MASTER_ADDR'").start().code(0);
    assert_eq!(done.out(), "127.0.0.1\ncalled\n");
}

fn suggests_no_loopback(done: &Done) {
    let tried = done.err().lines().any(|line| line.starts_with("  try ") && line.split(' ').any(|word| word == "lo"));
    assert!(!tried, "{}", done.err());
}

/// Only the user knows whether that was meant.
#[test]
fn a_machine_under_two_names_is_said() {
    for hosts in ["a,b", "localhost,b"] {
        let done = on_hosts("", &format!("-n 2 -H {hosts} true")).start().code(0);
        let (first, second) = hosts.split_once(',').unwrap();
        done.says(&format!(
            "rlaunch: {first} and {second} are names of one machine; the ranks of each name begin with "
        ));
    }
    assert!(!on_hosts("", "-n 2 -H a true").start().code(0).err().contains("one machine"));
    if !place::is_root() {
        return place::absent("a container beside its machine", "needs namespaces");
    }
    for own in ["-u", "-n"] {
        let contained =
            format!("behave <<'EOF'\ncase \"$*\" in *' -- b '*) exec unshare {own} sh -c \"$line\";; esac\nEOF");
        // Without a network no host can find another.
        let done =
            on_hosts(&contained, "-n 2 -x MASTER_ADDR=192.0.2.9 --master-store rank0 -H a,b true").start().code(0);
        assert!(!done.err().contains("one machine"), "unshare {own}: {}", done.err());
    }
}

/// Without notes about the machine.
fn error_of(done: &Done) -> String {
    done.err().split_inclusive('\n').skip_while(|line| !line.starts_with("error: ")).collect()
}

#[test]
fn a_program_that_cannot_be_started_is_the_same_mistake_everywhere() {
    let here = "cd \"$DIR\"; echo >x.py; chmod 644 x.py; cp x.py 'a b'";
    for (program, code, why, hint) in [
        ("/etc/passwd", 126, "may not be executed (permission denied)", Some("chmod +x /etc/passwd")),
        ("'./a b'", 126, "may not be executed (permission denied)", Some("chmod +x './a b'")),
        ("/tmp", 126, "is a directory", None),
        ("./", 126, "is a directory", None),
    ] {
        let local = on_hosts(here, &format!("-n 1 {program} word")).start().code(code);
        let hint = hint.map(|hint| format!("  try     {hint}\n")).unwrap_or_default();
        let named = program.trim_matches('\'');
        assert_eq!(error_of(&local), format!("error: {named}: {why}\n{hint}"));
        let remote = on_hosts(here, &format!("-n 1 -H h {program} word")).start().code(code);
        assert_eq!(error_of(&remote), format!("error: {named} on h: {why}\n{hint}"));
    }
    // Python reads this one, wherever it runs.
    for hosts in ["", "-H h"] {
        on_hosts(here, &format!("-n 1 {hosts} ./x.py word")).start().code(0);
    }
    let path = "the path of no-such.py: it is not in this directory";
    let script = [("", path), ("-H h", "python3 no-such.py")];
    let nothing = ["", "-H h", "-H localhost,h"].map(|hosts| (hosts, "is a variable of your command line empty?"));
    for (program, all) in [("''", nothing.as_slice()), ("no-such.py", &script)] {
        for (hosts, hint) in all {
            let done = on_hosts(here, &format!("-n 2 {hosts} {program} word")).start().code(127);
            done.says(&format!("error: {program}")).says("no such file").says(&format!("\n  try     {hint}\n"));
        }
    }
}
