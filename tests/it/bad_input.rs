//! Bad input: a clear error with a way out and the right code, or what the documentation says; never a job half started.

use crate::case::Case;
use crate::place;
use crate::plan::Plan;

#[test]
fn bad_options_are_refused_before_anything_starts() {
    for (words, named) in [
        (&["-n", "abc", "true"][..], "'abc'"),
        (&["-n", "0", "true"], "'0'"),
        (&["-n", "-3", "true"], "'-3'"),
        (&["-n", "99999999", "true"], "'99999999'"),
        (&["-N", "8", "true"], "--ppn 8"),
        (&["--lable", "true"], "--label"),
        (&["--grace", "soon", "true"], "'soon'"),
        (&["--contain", "t9", "true"], "'t9'"),
        (&["-n", "4"], "no program given"),
        (&["--prefix", "%z", "true"], "%z"),
        (&["-x", "=1", "true"], "'=1'"),
    ] {
        let done = Case::start(words).code(2);
        done.says("error: ").says(named).says("try");
        assert!(done.out.is_empty() && done.events.is_empty(), "{words:?}");
    }
    let done = Plan::rlaunch(["true"]).env("RLAUNCH_GRACE", "soon").start().code(2);
    done.says("RLAUNCH_GRACE");
}

#[test]
fn a_program_that_was_meant_as_something_else() {
    for (words, hint) in [
        (&["4", "true"][..], "-n 4 PROGRAM"),
        (&["sleep 5"], "sleep 5 (without quotes), or sh -c 'sleep 5'"),
        (&["A=1", "true"], "-x A=1 PROGRAM"),
        (&["", "true"], "empty"),
        (&["gone.py"], "the path of gone.py"),
    ] {
        Case::start(words).code(127).says("no such file").says("  try     ").says(hint);
    }
}

#[test]
fn a_default_of_the_users_is_not_the_ranks_own() {
    let nested =
        "echo N=$RLAUNCH_N PREFIX=$RLAUNCH_PREFIX GRACE=$RLAUNCH_GRACE TIER=$RLAUNCH_TIER; exec \"$RL\" echo inner";
    let plan = Plan::shell(&format!(
        "RLAUNCH_N=2 RLAUNCH_PREFIX='%r> ' RLAUNCH_GRACE=9s \"$RL\" --contain t3 sh -c '{nested}'"
    ));
    let done = plan.start().code(0);
    let line = |rank, text| format!("{rank}> {text}");
    let variables = "N= PREFIX= GRACE=9s TIER=t3";
    // The ranks' own variables are no options: a tier in RLAUNCH_TIER has no effect, and each inner job has one rank.
    assert_eq!(done.sorted(), [line(0, variables), line(0, "inner"), line(1, variables), line(1, "inner")]);
}

#[test]
fn help_and_version_go_to_stdout() {
    for words in [["--help"], ["-h"], ["--version"], ["-V"]] {
        let done = Case::start(words).code(0);
        assert!(!done.out.is_empty() && done.err().is_empty(), "{words:?}");
    }
    Plan::shell("\"$RL\" --help | head -n 1").start().code(0);
}

const ANSWERS: [&str; 7] =
    ["--help", "-h", "--version", "help", "hosts n1", "map -n 2 true", "-n 2 --dry-run --json true"];

#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
    for words in ANSWERS {
        let done = Plan::shell(&format!("\"$RL\" {words} >/dev/full; echo $?")).start().code(0);
        let said = "error: cannot write to stdout: no space left on device\n";
        assert_eq!((done.out().as_str(), done.err().as_str()), ("1\n", said), "{words}");
    }
}

#[test]
fn an_answer_whose_reader_left_ends_as_a_job_does() {
    for words in ANSWERS.into_iter().chain(["-n 1 echo ran"]) {
        // In a pipeline of a shell, the shell itself may have the reader's end for a moment.
        let script = format!(
            "mkfifo \"$DIR/out\"; (exec 3<\"$DIR/out\") & exec 4>\"$DIR/out\"; wait; \
             \"$RL\" {words} 2>\"$DIR/err\" >&4 4>&-; echo $?"
        );
        let done = Plan::shell(&script).start().code(0);
        assert_eq!(done.out(), "141\n", "{words}");
        let err = std::fs::read_to_string(done.scratch.path("err")).unwrap();
        assert_eq!(err.is_empty(), !words.contains("echo"), "{words}: {err}");
    }
}

#[test]
fn an_event_log_that_cannot_be_written_is_an_error() {
    let done = Plan::shell("\"$RL\" --events /nowhere/log -n 1 echo ran; echo $?").start().code(0);
    assert_eq!(done.out().lines().last(), Some("125"), "{}", done.err());
    done.says("/nowhere/log");
    let done = Plan::shell("\"$RL\" --events fd:77 -n 1 echo ran; echo $?").start().code(0);
    assert_eq!(done.out().lines().last(), Some("125"), "{}", done.err());
    done.says("77");
    // Low numbers are ours once we run: what the caller did not open is never written to.
    for fd in 3..9 {
        let script = format!("exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&-; \"$RL\" --events fd:{fd} -n 1 echo ran; echo $?");
        assert_eq!(Plan::shell(&script).start().code(0).out(), "125\n", "{fd}");
    }
}

#[test]
fn a_name_of_any_length_is_a_name() {
    let script = "h=$(head -c 70000 /dev/zero | tr '\\0' h); \"$RL\" map -H $h x | awk -v h=$h 'index($0, h)' | wc -l";
    assert_eq!(Plan::shell(script).start().code(0).out(), "1\n");
}

#[test]
fn many_words_travel() {
    // 300 KB in words of 100 bytes, and one of the longest that the kernel takes.
    let long = "y".repeat(131_000);
    let mut words: Vec<String> = (0..3_000).map(|i| format!("{i:0>100}")).collect();
    words.push(long);
    let mut all = vec!["-n".to_owned(), "2".into(), "sh".into(), "-c".into(), "echo $#; shift 3000; echo ${#1}".into()];
    all.push("sh".into());
    all.extend(words);
    let done = Case::start(all).code(0);
    assert_eq!(done.sorted(), ["131000", "131000", "3001", "3001"]);
}

#[test]
fn too_long_arguments_are_reported_with_figures() {
    // NAME=VALUE is one string to the kernel, and longer than any may be; VALUE alone is not.
    let value = "v".repeat(131_060);
    let done = Case::start(["-n", "2", "-genv", "A_LONG_NAME", &value, "true"]).code(126);
    let err = done.err();
    assert!(err.len() < 2_000, "{} bytes", err.len());
    assert!(err.chars().filter(char::is_ascii_digit).count() >= 6, "figures: {err}");
}

#[test]
fn a_working_directory_that_is_gone() {
    let done = Plan::shell("mkdir \"$DIR/d\"; cd \"$DIR/d\"; rmdir \"$DIR/d\"; \"$RL\" -n 2 echo ran; echo $?")
        .start()
        .code(0);
    assert_eq!(done.out(), "ran\nran\n0\n", "as any shell would: {}", done.err());
    let done = Case::start(["-n", "2", "--wdir", "/nowhere/at-all", "true"]).code(125);
    done.says("/nowhere/at-all").says("o such file");
    Case::start(["-n", "2", "--wdir", "/etc/passwd", "true"]).code(125).says("/etc/passwd");
}

#[test]
fn few_descriptors_are_enough_for_few_ranks() {
    for tier in place::tiers() {
        let script = "ulimit -n 64; \"$RL\" -n 4 -l sh -c 'ulimit -n'; echo $?";
        let done = Plan::shell(script).contain(tier).start().code(0);
        assert_eq!(done.out().lines().last(), Some("0"), "{tier}: {}", done.err());
        assert_eq!(done.sorted()[..4], ["0", "0: 64", "1: 64", "2: 64"]);
    }
}

#[test]
fn a_limit_on_descriptors_is_named() {
    for tier in place::tiers() {
        let script = "ulimit -n 64; \"$RL\" -n 200 sleep 990; echo $?";
        let done = Plan::shell(script).contain(tier).start().code(0);
        assert_eq!(done.out(), "125\n", "{tier}: {}", done.err());
        done.says("oo many open files");
    }
}

#[test]
fn a_job_that_has_started_needs_no_more_descriptors_for_its_output() {
    // In bulk, so that the agent wants a pipe of its own for it, and waits for room.
    for tier in place::tiers() {
        let script = "for n in $(seq 16 34); do (ulimit -n $n; \"$RL\" -n 1 head -c 32M /dev/zero; echo $? >\"$DIR/code\") \
                      2>\"$DIR/err\" | wc -c; cat \"$DIR/code\"; done";
        let done = Plan::shell(script).contain(tier).start().code(0);
        let out = done.out();
        let lines: Vec<&str> = out.lines().collect();
        let ends: Vec<_> = lines.chunks(2).map(|pair| (pair[0], pair[1])).collect();
        let whole = ("33554432", "0");
        assert!(ends.iter().all(|end| [("0", "125"), whole].contains(end)), "{tier}: {ends:?}");
        assert_eq!((ends.first(), ends.last()), (Some(&("0", "125")), Some(&whole)), "{tier}: {ends:?}");
    }
}

#[test]
fn limit_on_descriptors_is_named_wherever_the_launch_reaches_the_limit() {
    for tier in place::tiers() {
        let script = "for n in $(seq 4 40); do (ulimit -n $n; exec \"$RL\" -n 2 true) 2>&1; echo \"end $n $?\"; done";
        let done = Plan::shell(script).contain(tier).start().code(0);
        let mut text = String::new();
        let mut refused = 0;
        for line in done.out().lines() {
            match line.strip_prefix("end ").and_then(|end| end.split_once(' ')) {
                None => text.push_str(line),
                Some((_, "0")) => assert_eq!(text, "", "{tier}: {line}"),
                Some((n, code)) => {
                    let named =
                        text.contains("oo many open files") && text.contains("try     ") && text.contains("ulimit -n");
                    assert!(code == "125" && named, "{tier}, ulimit -n {n}: {code}, {text}");
                    refused += 1;
                }
            }
            if line.starts_with("end ") {
                text.clear();
            }
        }
        assert!((10..37).contains(&refused), "{tier}: {refused} of 37 were refused");
    }
}

/// Program that runs its arguments under a kernel that refuses one system call (seccomp(2)). `start`: the clone with the flags of init.
/// `watch`: pidfd_open of processes that start after guardian and agent; no other process may start meanwhile. `subreaper`:
/// prctl(PR_SET_CHILD_SUBREAPER).
const REFUSE: &str = r#"
import ctypes, errno, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
last = os.fork() or os._exit(0)
os.waitpid(last, 0)
load, equal, above, answer = 0x20, 0x15, 0x25, 0x06
clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
prctl = {"x86_64": 157, "aarch64": 167}[os.uname().machine]
pidfd_open, clone_of_init = 434, 0x100 | 0x200000 | 17
call, test, value = {"start": (clone, equal, clone_of_init), "watch": (pidfd_open, above, last + 2),
                     "subreaper": (prctl, equal, 36)}[sys.argv[1]]
code = [(load, 0, 0, 0), (equal, 0, 3, call), (load, 0, 0, 16), (test, 0, 1, value),
        (answer, 0, 0, 0x00050000 | errno.EAGAIN), (answer, 0, 0, 0x7fff0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters)))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    raise OSError(ctypes.get_errno(), "seccomp")
os.execvp(sys.argv[2], sys.argv[2:])
"#;

#[test]
fn an_init_that_cannot_be_started_is_rolled_back() {
    if !place::tiers().contains(&"t1") || !place::has("python3") {
        return;
    }
    // Its namespace exists already, and the next child would be its first process: no rank may be started there.
    for tier in ["t1", "auto"] {
        let script = "exec python3 -c \"$REFUSE\" start \"$RL\" -n 2 echo ran";
        let case = Plan::shell(script).env("REFUSE", REFUSE).contain(tier).with_events().start();
        if tier == "auto" && !place::is_root() {
            // T3, where there is no init.
            assert_eq!(case.code(0).out(), "ran\nran\n");
            continue;
        }
        let done = case.code(125);
        assert_eq!(done.out(), "", "{tier}");
        assert_eq!(done.event("job.end")["left"], 0, "{tier}");
        done.says("(start init: the limit on processes is reached)");
    }
}

/// The count of what is left was believed, although orphans went elsewhere.
#[test]
fn refused_subreapers_are_reported() {
    if !place::has("python3") {
        return;
    }
    for tier in place::tiers() {
        let script = "exec python3 -c \"$REFUSE\" subreaper \"$RL\" -n 2 echo ran";
        let done = Plan::shell(script).env("REFUSE", REFUSE).contain(tier).start().code(0);
        let note = "containment t3: this host refuses subreapers (prctl: resource temporarily unavailable)";
        assert_eq!(done.err().contains(note), *tier == "t3", "{tier}: {}", done.err());
    }
}

#[test]
fn unknown_init_is_ended_before_the_runtime_exists() {
    if !place::tiers().contains(&"t1") || !["python3", "unshare"].into_iter().all(place::has) {
        return;
    }
    let unshare = if place::is_root() { "unshare -pf" } else { "unshare -Urpf" };
    // Often its end takes longer than a look: then the agent must wait for it, and not for the launcher.
    for _ in 0..8 {
        let script =
            format!("exec {unshare} --mount-proc --kill-child python3 -c \"$REFUSE\" watch \"$RL\" -n 2 echo ran");
        let done = Plan::shell(&script).env("REFUSE", REFUSE).contain("t1").with_events().start().code(125);
        assert_eq!(done.event("job.end")["left"], 0);
        done.says("(watch init: the limit on processes is reached)");
    }
}

#[test]
fn a_limit_on_processes_in_mid_launch_is_rolled_back() {
    if place::is_root() {
        return place::absent("a limit on processes", "needs an ordinary user");
    }
    if !place::has("prlimit") {
        return;
    }
    for tier in place::tiers() {
        let count = "$(ps -L -u \"$(id -u)\" -o lwp= | wc -l)";
        let script = format!("exec prlimit --nproc=$(({count} + 25)) \"$RL\" -n 500 sleep 989");
        // The limit counts the processes of other cases too: it may be met earlier than meant.
        let launched = (0..50).any(|_| {
            let done = Plan::shell(&script).contain(tier).with_events().start().code(125);
            if done.named("rank.started").next().is_none() {
                return false;
            }
            done.says("the limit on processes").says("0 left running");
            assert_eq!(done.event("job.end")["left"], 0);
            true
        });
        assert!(launched, "{tier}: it always failed before the first rank");
    }
}

#[test]
fn a_limit_on_processes_before_the_launch_is_an_error() {
    if place::is_root() {
        return place::absent("a limit on processes", "needs an ordinary user");
    }
    if !place::has("prlimit") {
        return;
    }
    for room in 0..4 {
        let script = format!("\"$RL\" --version >/dev/null; exec prlimit --nproc={room} \"$RL\" -n 1 true");
        let done = Plan::shell(&script).start().code(125);
        assert_ne!(done.err(), "");
    }
}

#[test]
fn a_launch_that_failed_starts_nothing_more() {
    // One program after another: the second has one rank, and the third's 200 are asked for before it is known to fail.
    let done = Case::start(["true", ":", "./nope", ":", "-n", "200", "sleep", "77"]).code(127);
    assert!(done.named("rank.started").count() <= 1, "{:?}", done.err());
    assert_eq!(done.event("job.end")["never_started"], 200);
    done.says("./nope: no such file").says("ranks 2-201 never started").says("0 left running");
}

#[test]
fn command_with_a_typing_error_is_reported_only_if_no_such_program_exists() {
    let mapp = Case::start(["mapp", "-n", "4", "true"]).code(127);
    assert!(mapp.err().starts_with("error: mapp: no such file"), "a note before it: {}", mapp.err());
    mapp.says("  try     rlaunch map, if a command of rlaunch was meant");
    let plan = Plan::shell(
        "printf '#!/bin/sh\\necho mine' >\"$DIR/mapp\"; chmod +x \"$DIR/mapp\"; PATH=\"$DIR:$PATH\" \"$RL\" mapp",
    );
    assert_eq!(plan.start().code(0).sorted(), ["mine"]);
}

#[test]
fn source_of_wrong_value_is_named() {
    let set = |name: &str, value: &str| Plan::rlaunch(["true"]).env(name, value).start();
    set("RLAUNCH_WDIR", "/nope").code(125).says("error: RLAUNCH_WDIR (environment) /nope on ");
    set("RLAUNCH_NNODES", "3").code(2).says("error: RLAUNCH_NNODES (environment) asks for 3 hosts");
    Case::start(["--wdir", "/nope", "true"]).code(125).says("error: --wdir /nope on ");
    Plan::tool(place::rlaunch(), place::Scratch::new())
        .args(["--events", "/nope/x", "true"])
        .start()
        .code(125)
        .says("error: cannot write the event log /nope/x: no such file or directory\n  try     mkdir -p /nope\n");
}

#[test]
fn a_note_for_options_that_change_nothing() {
    let options = ["--mem-bind", "none", "--allow-run-as-root", "true"];
    assert!(!Case::start(options).code(0).err().contains("mem-bind"));
    let plan = Plan::rlaunch(["-v"]).args(options);
    plan.start().code(0).says("rlaunch: --mem-bind none has no effect: rlaunch does this by default\n");
}

#[test]
fn ranks_that_share_processors_are_reported_on_a_pipe_too() {
    let plan = Plan::shell("\"$RL\" map -n 9000 true >/dev/null");
    plan.start().code(0).says("rlaunch: 9000 ranks share ");
    let plan = Plan::shell("\"$RL\" map -q -n 9000 true >/dev/null");
    assert_eq!(plan.start().code(0).err(), "");
    let plan = Plan::shell("\"$RL\" map --strict -n 9000 true");
    plan.start().code(2).says("error: --strict: 9000 ranks on ");
}

#[test]
fn commands_have_help_too() {
    for words in ["version", "help", "doctor --help", "doctor -h", "hosts --help", "map --help"] {
        let done = Plan::shell(&format!("\"$RL\" {words}")).start().code(0);
        assert!(done.out().to_lowercase().contains("rlaunch") && done.err().is_empty(), "{words}: {}", done.err());
    }
}
