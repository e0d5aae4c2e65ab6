//! Standard input: rank 0 reads it byte for byte and to its end, no other rank does.

use crate::case::Case;
use crate::place;
use crate::plan::Plan;
use std::io::Write as _;

#[test]
fn rank_0_reads_input_byte_for_byte() {
    let size = if place::full() { "1G" } else { "64M" };
    let script = format!(
        "mkfifo \"$DIR/p\"; sha256sum <\"$DIR/p\" >\"$DIR/want\" & \
         head -c {size} /dev/urandom | tee \"$DIR/p\" | \"$RL\" -n 2 -l sha256sum; echo $?; wait; \
         sed 's/^/0: /' \"$DIR/want\"; sha256sum </dev/null | sed 's/^/1: /'"
    );
    for tier in place::tiers() {
        let out = Plan::shell(&script).contain(tier).start().code(0).out();
        let mut lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.remove(2), "0", "{out}");
        lines[..2].sort_unstable();
        assert_eq!(lines[..2], lines[2..], "{tier}: {out}");
    }
}

#[test]
fn from_a_file_and_from_nowhere() {
    let script = "head -c 3M /dev/urandom >\"$DIR/f\"; \"$RL\" -n 2 sh -c '[ $RANK = 1 ] || exec cat' <\"$DIR/f\" | cmp - \"$DIR/f\" \
                  && \"$RL\" -n 2 wc -c </dev/null";
    assert_eq!(Plan::shell(script).start().code(0).out(), "0\n0\n");
}

#[test]
fn unreadable_input_is_reported() {
    let done = Plan::shell("\"$RL\" -n 2 cat <\"$DIR\"").start().code(0);
    let said = "rlaunch: standard input cannot be read: is a directory; rank 0 gets end of file\n";
    assert_eq!((done.out(), done.err()), (String::new(), said.to_owned()));
}

#[test]
fn input_that_no_rank_waits_for_is_left_for_the_next_program() {
    // The pause is what is asked for: there is time to read ahead.
    let script = "printf 'a\nb\n' >\"$DIR/f\"; ( \"$RL\" -n 2 sleep 0.2; cat ) <\"$DIR/f\"
         { \"$RL\" -n 1 sleep 0.2; cat; } <<END
hello
END
         echo piped | { \"$RL\" -n 1 sleep 0.2; cat; }";
    for tier in place::tiers() {
        assert_eq!(Plan::shell(script).contain(tier).start().code(0).out(), "a\nb\nhello\npiped\n", "{tier}");
    }
}

/// The rank never got its input, and the job never ended.
#[test]
fn input_reaches_ranks_without_proc() {
    if !place::is_root() || !place::has("unshare") {
        return;
    }
    let script = "echo in >\"$DIR/f\"; exec unshare -m sh -c 'umount -l /proc; \"$RL\" -n 1 cat <\"$DIR/f\"
         echo piped | \"$RL\" -n 1 cat; echo both | \"$RL\" -n 2 --stdin all cat'";
    for tier in place::tiers() {
        let done = Plan::shell(script).contain(tier).start().code(0);
        assert_eq!(done.out(), "in\npiped\nboth\nboth\n", "{tier}: {}", done.err());
    }
}

#[test]
fn rank_that_reads_late_or_by_a_child_gets_its_input() {
    let script = "printf 'a\nb\n' | \"$RL\" -n 1 sh -c 'sleep 0.2; (cat; exit 3); echo $?'";
    assert_eq!(Plan::shell(script).start().code(0).out(), "a\nb\n3\n");
}

#[test]
fn each_rank_reads_all_input_at_its_own_pace() {
    let script = "head -c 5M /dev/urandom >\"$DIR/f\"; want=$(sha256sum <\"$DIR/f\")
         \"$RL\" -n 3 --stdin all sh -c '[ $RANK = 1 ] && read x <\"$DIR/go\"; exec sha256sum' <\"$DIR/f\" | grep -c \"$want\"
         \"$RL\" -n 3 --stdin all sh -c '[ $RANK = 1 ] && exec head -c 1 >\"$DIR/one\"; exec wc -c' <\"$DIR/f\"; wc -c <\"$DIR/one\"
         echo 'echo rank $RANK' | \"$RL\" -n 2 --stdin all sh -s | sort
         \"$RL\" -n 2 --stdin all wc -c </dev/null";
    let plan = Plan::shell(script);
    let go = plan.scratch().fifo("go");
    let case = plan.start();
    std::fs::write(go, "\n").unwrap();
    assert_eq!(case.code(0).out(), "3\n5242880\n5242880\n1\nrank 0\nrank 1\n0\n0\n");
}

#[test]
fn program_that_only_rank_0_would_get_is_refused() {
    let done = Plan::shell("echo 'echo no' | \"$RL\" -n 2 sh -s").start().code(2);
    assert_eq!(done.out(), "");
    done.says("--stdin all");
}

#[test]
fn stdin_none_is_read_by_no_rank() {
    let script = "echo data | { \"$RL\" -n 2 --stdin none wc -c; cat; }";
    assert_eq!(Plan::shell(script).start().code(0).out(), "0\n0\ndata\n");
}

#[test]
fn a_conversation_works() {
    let mut case = Plan::rlaunch(["-n", "2", "cat"]).stdin_pipe().start();
    let mut stdin = case.take_stdin();
    for word in ["one\n", "two\n", "three"] {
        stdin.write_all(word.as_bytes()).unwrap();
        case.says_on_stdout(word, 1);
    }
    drop(stdin);
    assert_eq!(case.code(0).out(), "one\ntwo\nthree");
}

#[test]
fn a_rank_need_not_read() {
    // The writer learns that there is no reader: `yes` would write for ever.
    let done = Plan::shell("yes | \"$RL\" -n 2 head -n 1; echo $?").start().code(0);
    assert_eq!(done.out(), "y\n0\n");
    let done = Plan::shell("yes | \"$RL\" -n 1 true; echo $?").start().code(0);
    assert_eq!(done.out(), "0\n");
    let script = "yes | \"$RL\" -n 1 sh -c 'exec <&-; echo closed; read x <\"$DIR/go\"; echo on'";
    let plan = Plan::shell(script);
    let go = plan.scratch().fifo("go");
    let case = plan.start();
    case.says_on_stdout("closed\n", 1);
    std::fs::write(go, "\n").unwrap();
    assert_eq!(case.code(0).out(), "closed\non\n");
}

#[test]
fn a_silent_writer_does_not_hold_the_job() {
    let mut case = Plan::rlaunch(["-n", "2", "true"]).stdin_pipe().start();
    let silent = case.take_stdin();
    case.until("the end", |seen| seen.exit);
    drop(silent);
    case.code(0);
}

#[test]
fn a_rank_that_reads_slowly_loses_nothing() {
    let script = "head -c 4M /dev/urandom >\"$DIR/f\"; \"$RL\" -n 1 sh -c 'read x <\"$DIR/go\"; exec cat' <\"$DIR/f\" | cmp - \"$DIR/f\" && echo same";
    let plan = Plan::shell(script).with_events();
    let go = plan.scratch().fifo("go");
    let case = plan.start();
    case.event("rank.started");
    std::fs::write(go, "\n").unwrap();
    assert_eq!(case.code(0).out(), "same\n");
}

#[test]
fn unread_input_is_left_for_the_next_program() {
    // As with any program that does not read: nothing was taken from a file that others share.
    let script = "printf 'a\\nb\\n' >\"$DIR/f\"; { \"$RL\" -n 1 --stdin none true; cat; } <\"$DIR/f\"";
    assert_eq!(Plan::shell(script).start().code(0).out(), "a\nb\n");
    assert_eq!(Case::start(["-n", "1", "cat"]).code(0).out(), "");
}

/// The kernel shows the calls of a zombie to root only. A rank with one counted as one that waits, and its input was lost.
#[test]
fn an_ordinary_user_loses_no_input_by_processes_that_have_ended() {
    let user = match place::is_root() {
        true if place::has("setpriv") => "setpriv --reuid 61404 --regid 61404 --clear-groups",
        true => return place::absent("input of an ordinary user", "there is no setpriv"),
        false => "",
    };
    // The zombie is a child of the program that the rank has become.
    let job = "\"$RL\" -q -n 1 sh -c 'true & exec sleep 0.3'";
    let script = format!(
        "chmod 1777 \"$DIR\" \"$TMPDIR\"; cd /; for i in 1 2 3 4 5 6; do printf x | {user} sh -c '{}; cat'; done",
        job.replace('\'', "'\\''")
    );
    assert_eq!(Plan::shell(&script).start().code(0).out(), "xxxxxx");
}
