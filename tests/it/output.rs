//! Output: byte-exact when raw, whole lines when labelled, and never a reason to hang, to grow, or to lose bytes.

use crate::case::Case;
use crate::census;
use crate::place;
use crate::plan::Plan;
use crate::watch::{Exit, Into};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Writes lines `RANK-NUMBER-xxx…`, in pieces of `$SIZE` bytes whatever the lines are.
const LINES: &str = "awk -v r=$RANK -v n=$COUNT 'BEGIN { x = \"x\"; while (length(x) < 60) x = x x; \
     for (i = 0; i < n; i++) printf \"%d-%d-%s\\n\", r, i, substr(x, 1, (i * 7) % 61) }' | dd obs=$SIZE status=none";

/// Without labels no byte is added, whether lines are kept whole or not.
#[test]
fn output_without_labels_is_byte_exact() {
    let size = if place::full() { "1G" } else { "64M" };
    let script = format!(
        "head -c {size} /dev/urandom >\"$DIR/data\"; head -c 8M /dev/urandom >\"$DIR/other\"; \
         \"$RL\" -n 2 $STYLE sh -c 'if [ $RANK = 0 ]; then cat \"$DIR/data\"; else cat \"$DIR/other\" >&2; fi' \
         2>\"$DIR/err\" | cmp - \"$DIR/data\" && cmp \"$DIR/err\" \"$DIR/other\" && echo same"
    );
    for tier in place::tiers() {
        for style in ["", "--raw"] {
            let done = Plan::shell(&script).contain(tier).env("STYLE", style).start().code(0);
            assert_eq!(done.out(), "same\n", "{tier} {style}");
        }
    }
}

/// Two ranks write their lines in halves, in turn.
const HALVES: &str = "n=0; while [ $n -lt 50 ]; do \
    if [ $RANK = 0 ]; then printf \"0-$n-\"; echo >\"$DIR/1\"; read x <\"$DIR/0\"; \
    else read x <\"$DIR/1\"; printf \"1-$n-\"; echo >\"$DIR/0\"; fi; echo end; n=$((n + 1)); done";

#[test]
fn lines_of_several_ranks_are_whole_without_labels() {
    let halves = |style: &str| {
        let run = format!("\"$RL\" -n 2 {style} sh -c '{HALVES}'");
        let plan = Plan::shell(&run);
        for name in ["0", "1"] {
            plan.scratch().fifo(name);
        }
        plan.start().code(0).out()
    };
    let whole = |out: &str| {
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        let mut want: Vec<String> = (0..2).flat_map(|r| (0..50).map(move |n| format!("{r}-{n}-end"))).collect();
        want.sort_unstable();
        lines == want
    };
    let out = halves("");
    assert!(whole(&out), "{out}");
    let out = halves("--raw");
    assert!(!whole(&out) && out.len() == halves("").len(), "the halves of lines mix: {out}");
}

#[test]
fn the_last_line_of_a_rank_is_not_completed_without_labels() {
    let done = Case::start(["-n", "2", "sh", "-c", "[ $RANK = 0 ] && printf one || printf two >&2"]).code(0);
    assert_eq!((done.out(), done.err()), ("one".into(), "two".into()));
}

/// A prompt, and a line of another rank that came while it was open.
#[test]
fn a_partial_line_is_seen_after_a_moment_without_labels() {
    let script = "if [ $RANK = 0 ]; then printf 'name? '; read x <\"$DIR/go\"; echo Eve; else read x <\"$DIR/say\"; echo hello; fi";
    let plan = Plan::rlaunch(["-n", "2", "sh", "-c", script]);
    let (go, say) = (plan.scratch().fifo("go"), plan.scratch().fifo("say"));
    let case = plan.start();
    case.says_on_stdout("name? ", 1);
    std::fs::write(say, "\n").unwrap();
    case.says_on_stdout("hello\n", 1);
    std::fs::write(go, "\n").unwrap();
    assert_eq!(case.code(0).out(), "name? hello\nEve\n");
}

/// A progress bar, whose next step comes only when this one was seen.
#[test]
fn carriage_return_ends_a_line_and_is_followed_by_a_label() {
    let script = "printf '1%%\r2%%\r'; read x <\"$DIR/go\"; printf '3%%\r\ndone\n'";
    for (label, want) in [("-l", "0: 1%\r0: 2%\r0: 3%\r\n0: done\n"), ("--prefix=", "1%\r2%\r3%\r\ndone\n")] {
        let plan = Plan::rlaunch(["-n", "1", label, "sh", "-c", script]);
        let go = plan.scratch().fifo("go");
        let case = plan.start();
        case.says_on_stdout("2%\r", 1);
        std::fs::write(go, "\n").unwrap();
        assert_eq!(case.code(0).out(), want);
    }
}

#[test]
fn labelled_lines_are_whole_and_in_order() {
    for size in [1_u32, 7, 997, 4_096, 65_536] {
        let count = if size == 1 { 200_u32 } else { 5_000 };
        let plan = Plan::rlaunch(["-n", "4", "-l", "sh", "-c", LINES]);
        let done = plan.env("SIZE", size.to_string()).env("COUNT", count.to_string()).start().code(0);
        let mut next = [0_u32; 4];
        for line in done.out().lines() {
            let (label, rest) = line.split_once(": ").unwrap();
            let rank: usize = label.parse().unwrap();
            let filling = "x".repeat(usize::try_from((next[rank] * 7) % 61).unwrap());
            assert_eq!(rest, format!("{rank}-{}-{filling}", next[rank]), "size {size}");
            next[rank] += 1;
        }
        assert_eq!(next, [count; 4], "size {size}");
        assert_eq!(done.event("output.end")["lost"], 0);
    }
}

#[test]
fn raw_writes_of_a_page_are_whole() {
    // Lines of 80 bytes, 51 of them in each write.
    let script = "awk -v r=$RANK 'BEGIN { x = \"\"; while (length(x) < 77) x = x \"x\"; \
                  for (i = 0; i < 20000; i++) print r \"-\" x }' | dd obs=4080 status=none";
    let done = Case::start(["-n", "4", "--raw", "sh", "-c", script]).code(0);
    let mut count = [0; 4];
    for line in done.out().lines() {
        let rank: usize = line[..1].parse().unwrap();
        assert!(line.len() == 79 && line[2..].bytes().all(|b| b == b'x'), "torn: {line}");
        count[rank] += 1;
    }
    assert_eq!(count, [20_000; 4]);
}

#[test]
fn lines_of_64_kib_are_whole() {
    let script = "awk -v r=$RANK 'BEGIN { x = r; while (length(x) < 65535) x = x x; x = substr(x, 1, 65535); \
                  for (i = 0; i < 40; i++) print x }'";
    let done = Case::start(["-n", "4", "-l", "sh", "-c", script]).code(0);
    assert_eq!(done.event("output.end")["broken"], 0);
    let expected: Vec<String> = (0..4).map(|r| format!("{r}: {}", r.to_string().repeat(65_535))).collect();
    for (rank, lines) in done.sorted().chunks(40).enumerate() {
        assert!(lines.len() == 40 && lines.iter().all(|line| *line == expected[rank]), "lines of rank {rank}");
    }
}

#[test]
fn long_lines_are_not_mixed() {
    let script =
        "awk -v r=$RANK 'BEGIN { x = r; while (length(x) < 200000) x = x x; for (i = 0; i < 8; i++) print x }'";
    let done = Case::start(["-n", "4", "-l", "sh", "-c", script]).code(0);
    let broken = done.event("output.end")["broken"].as_u64().unwrap();
    for line in done.out().lines() {
        let rank = &line[..1];
        let text = line.strip_prefix(&format!("{rank}: ")).unwrap();
        let own = text.chars().all(|c| c.to_string() == *rank || (broken > 0 && c == '…'));
        assert!(own, "a line of rank {rank} holds bytes of others");
        assert!(broken > 0 || text.len() == 262_144, "{} bytes", text.len());
    }
    let bytes = done.out.iter().filter(|b| b.is_ascii_digit()).count();
    assert!(bytes >= 4 * 8 * 262_144, "{bytes} bytes");
}

/// Pieces of lines that wait for their turn took all the credit: the line that had the turn could not continue.
#[test]
fn many_very_long_lines_at_once_are_whole() {
    let script = "awk -v r=$RANK 'BEGIN { c = substr(\"abcdefgh\", r + 1, 1); x = c; while (length(x) < 150000) x = x x; \
                  for (i = 0; i < 12; i++) print x }'";
    let done = Case::start(["-n", "8", "-l", "sh", "-c", script]).code(0);
    assert_eq!(done.event("output.end")["broken"], 0);
    let mut count = [0; 8];
    for line in done.out().lines() {
        let (rank, text) = line.split_once(": ").unwrap();
        let rank: usize = rank.parse().unwrap();
        let own = b"abcdefgh"[rank];
        assert!(text.len() == 262_144 && text.bytes().all(|b| b == own), "a line of rank {rank}");
        count[rank] += 1;
    }
    assert_eq!(count, [12; 8]);
}

/// A terminal stopped by Ctrl-S: the line could not have been finished visibly.
#[test]
fn a_line_is_not_broken_while_the_reader_takes_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    let script = "if [ $RANK = 0 ]; then head -c 70000 /dev/zero | tr '\\0' a; read x <\"$DIR/go\"; echo end; \
                  else read x <\"$DIR/say\"; echo hello; echo said >&2; fi";
    let plan = Plan::rlaunch(["-n", "2", "-l", "sh", "-c", script]).stdout(writer.try_clone().unwrap());
    let (go, say) = (plan.scratch().fifo("go"), plan.scratch().fifo("say"));
    let case = plan.start();
    is_full(&writer);
    drop(writer);
    std::fs::write(say, "\n").unwrap();
    case.says_on_stderr("said\n");
    // The pause is the fault: longer than others would have to wait.
    std::thread::sleep(Duration::from_millis(300));
    std::fs::write(go, "\n").unwrap();
    case.events("rank.exited", 2);
    let mut out = String::new();
    (&reader).read_to_string(&mut out).unwrap();
    assert_eq!(out, format!("0: {}end\n1: hello\n", "a".repeat(70_000)));
    assert_eq!(case.code(0).event("output.end")["broken"], 0);
}

/// A terminal that hangs up is like any reader that leaves; under nohup the job outlives its terminal.
#[test]
fn a_terminal_that_hangs_up_is_a_reader_that_leaves() {
    for nohup in [false, true] {
        // No child of another test may hold it.
        let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave =
            File::options().write(true).custom_flags(OFlag::O_NOCTTY.bits()).open(ptsname_r(&master).unwrap()).unwrap();
        let script = "echo begun >&2; read x <\"$DIR/go$RANK\"; echo word; echo more >&2";
        let words = ["-c", "[ $NOHUP = 0 ] || trap '' HUP; exec \"$RL\" --events \"$DIR/log\" -n 2 sh -c \"$SCRIPT\""];
        let plan = Plan::shell(words[1]).env("SCRIPT", script).env("NOHUP", if nohup { "1" } else { "0" });
        let probe = slave.try_clone().unwrap();
        let plan = plan.stdout(slave);
        let go = [plan.scratch().fifo("go0"), plan.scratch().fifo("go1")];
        let case = plan.start();
        case.until("both", |seen| (String::from_utf8_lossy(&seen.err).matches("begun").count() == 2).then_some(()));
        drop(master);
        // A child that another test is about to start may hold it until its exec.
        poll(&mut [PollFd::new(probe.as_fd(), PollFlags::empty())], PollTimeout::from(10_000_u16)).unwrap();
        // Both are open before one of them continues: it may end the job, and the other would never be opened.
        let go = go.map(|path| File::options().write(true).open(path).unwrap());
        let written = go.map(|mut go| go.write_all(b"\n"));
        assert!(written[0].is_ok(), "rank 0 reads");
        let done = case.finish(if nohup { Exit::Code(0) } else { Exit::Signal(Signal::SIGPIPE) });
        let log = std::fs::read_to_string(done.scratch.path("log")).unwrap();
        assert!(log.contains(r#""ev":"sink.lost","stream":"stdout","errno":5"#), "{log}");
        done.says(if nohup {
            "the terminal of stdout has hung up; the job continues"
        } else {
            "the reader of stdout has closed it"
        });
    }
}

/// The next line, or the shell's prompt, would be glued to it.
#[test]
fn a_line_that_was_begun_is_ended_if_the_agent_is_lost() {
    let script = "printf 'name? '; echo out >&2; read x <\"$DIR/never\"";
    let plan = Plan::rlaunch(["-n", "2", "-l", "sh", "-c", script]);
    plan.scratch().fifo("never");
    let case = plan.start();
    let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
    case.says_on_stdout("name? ", 1);
    kill(Pid::from_raw(agent), Signal::SIGKILL).unwrap();
    let out = case.code(125).out();
    assert!(out.ends_with("name? \n") || out.ends_with("name? …\n"), "{out:?}");
}

#[test]
fn a_line_that_keeps_others_waiting_is_broken_visibly() {
    let script = "if [ $RANK = 0 ]; then head -c 100000 /dev/zero | tr '\\0' a; read x <\"$DIR/go\"; echo end; \
                  else read x <\"$DIR/say\"; echo hello; fi";
    let plan = Plan::rlaunch(["-n", "2", "-l", "sh", "-c", script]);
    let (go, say) = (plan.scratch().fifo("go"), plan.scratch().fifo("say"));
    let case = plan.start();
    case.until("the long line", |seen| (seen.out.len() > 100_000).then_some(()));
    std::fs::write(say, "\n").unwrap();
    case.says_on_stdout("1: hello\n", 1);
    std::fs::write(go, "\n").unwrap();
    let done = case.code(0);
    assert_eq!(done.event("output.end")["broken"], 1);
    let long = "a".repeat(100_000);
    assert_eq!(done.out(), format!("0: {long}…\n1: hello\n0: …end\n"));
    assert_ne!(done.err(), "", "it is said");
}

#[test]
fn an_unfinished_line_is_shown_soon() {
    for label in [&["-n", "1"][..], &["-n", "1", "-l"]] {
        let words = label.iter().copied().chain(["sh", "-c", "printf 'name? '; read x; echo \"hello $x\""]);
        let mut case = Plan::rlaunch(words).stdin_pipe().start();
        case.says_on_stdout("name? ", 1);
        case.take_stdin().write_all(b"you\n").unwrap();
        assert!(case.code(0).out().ends_with("name? hello you\n"));
    }
}

#[test]
fn a_missing_last_newline_is_not_invented_in_raw_output() {
    assert_eq!(Case::start(["-n", "1", "printf", "a\\nb"]).code(0).out(), "a\nb");
    assert_eq!(Case::start(["-n", "2", "-l", "printf", "x"]).code(0).sorted(), ["0: x", "1: x"]);
}

#[test]
fn prefixes_follow_their_format() {
    let script = "echo out; echo err >&2";
    let done = Case::start(["-n", "2", "--prefix", "[%2r/%s] ", "sh", "-c", script]).code(0);
    assert_eq!(done.sorted(), ["[ 0/out] out", "[ 1/out] out"]);
    done.says("[ 0/err] err\n").says("[ 1/err] err\n");
}

#[test]
fn lines_of_both_streams_stay_whole_at_one_destination() {
    let script = "o=$(head -c 5000 /dev/zero | tr '\\0' o); e=$(head -c 5000 /dev/zero | tr '\\0' e); export o e; \
                  \"$RL\" -n 2 -l sh -c 'i=0; while [ $i -lt 300 ]; do echo $o; echo $e >&2; i=$((i+1)); done' 2>&1 | cat";
    let out = Plan::shell(script).start().code(0).out();
    let whole = |line: &str, letter| line.len() == 5003 && line[3..].chars().all(|c| c == letter);
    let torn: Vec<_> = out.lines().filter(|line| !whole(line, 'o') && !whole(line, 'e')).map(str::len).collect();
    assert_eq!((out.lines().count(), torn), (1200, vec![]));
}

#[test]
fn a_reader_that_leaves_ends_the_job() {
    for stream in ["", " >&2"] {
        let (reader, writer) = std::io::pipe().unwrap();
        let script = format!("exec yes{stream}");
        let plan = Plan::rlaunch(["-n", "4", "sh", "-c", &script]);
        let plan = if stream.is_empty() { plan.stdout(writer) } else { plan.stderr(writer) };
        let case = plan.start();
        read_some(&reader, 10);
        drop(reader);
        let done = case.finish(Exit::Signal(Signal::SIGPIPE));
        assert_eq!(done.event("job.end")["cause"]["kind"], "reader_closed");
    }
}

#[test]
fn a_full_disk_makes_a_success_a_failure_and_ends_no_rank() {
    let script = "echo hello; : >\"$DIR/ran$RANK\"";
    let run = format!("\"$RL\" -n 2 sh -c '{script}' >/dev/full; echo $? >&2; ls \"$DIR\"/ran*");
    let done = Plan::shell(&run).start().code(0);
    assert!(done.err().ends_with("\n125\n"), "{}", done.err());
    assert_eq!(done.out().lines().count(), 2, "both ranks ran to their end");
    done.says("cannot write to stdout: no space left on device").says("12 bytes of output could not be written");
    done.says("2 ranks on").says("; some of their output could not be written\n").says("exit     125");
}

fn read_some(mut from: &PipeReader, bytes: usize) {
    from.read_exact(&mut vec![0; bytes]).unwrap();
}

/// Waits until the pipe takes nothing more.
fn is_full(pipe: &PipeWriter) {
    for _ in 0..2_000 {
        let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)];
        if poll(&mut fds, PollTimeout::ZERO).unwrap() == 0 {
            return;
        }
        // poll(2) reports room in the pipe, and not the end of it.
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the pipe never fills");
}

#[test]
fn a_blocked_reader_does_not_block_signals() {
    for words in [&["-n", "4", "yes"][..], &["-n", "4", "-l", "yes"], &["-n", "4", "sh", "-c", "exec yes >&2"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        let plan = Plan::rlaunch(words);
        let probe = writer.try_clone().unwrap();
        let plan = if words.contains(&"sh") { plan.stderr(writer) } else { plan.stdout(writer) };
        let case = plan.start();
        is_full(&probe);
        case.signal(Signal::SIGINT);
        case.finish(Exit::Signal(Signal::SIGINT));
        drop((reader, probe));
    }
}

#[test]
fn a_slow_reader_costs_little_memory() {
    let (reader, writer) = std::io::pipe().unwrap();
    let probe = writer.try_clone().unwrap();
    let plan = Plan::rlaunch(["-n", "4", "sh", "-c", "read x <\"$DIR/go$RANK\"; exec yes $RANK"]).stdout(writer);
    let go: Vec<_> = (0..4).map(|r| plan.scratch().fifo(&format!("go{r}"))).collect();
    let case = plan.start();
    case.events("rank.started", 4);
    let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
    let memory = |field: &str| memory(case.pid(), field) + memory(agent, field);
    let before = memory("VmRSS");
    for path in go {
        std::fs::write(path, "\n").unwrap();
    }
    for _ in 0..8 {
        read_some(&reader, 1 << 20);
        is_full(&probe);
        // The pause is the load: a reader that reads now and then.
        std::thread::sleep(Duration::from_millis(40));
    }
    let grown = memory("VmHWM").saturating_sub(before);
    assert!(grown <= 8 << 10, "grew by {grown} KiB");
    case.signal(Signal::SIGTERM);
    drop(probe);
    std::io::copy(&mut &reader, &mut std::io::sink()).unwrap();
    case.finish(Exit::Signal(Signal::SIGTERM));
}

/// A number of KiB from /proc/PID/status.
fn memory(pid: i32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_socket_is_as_good_as_a_pipe() {
    let (ours, output) = UnixStream::pair().unwrap();
    let plan =
        Plan::rlaunch(["-n", "4", "-l", "seq", "1", "1000"]).stdout(OwnedFd::from(output)).reads(ours, Into::Out);
    assert_eq!(plan.start().code(0).out().lines().count(), 4_000);
}

#[test]
fn foreign_non_blocking_pipe_loses_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_WRONLY | OFlag::O_NONBLOCK)).unwrap();
    let plan = Plan::rlaunch(["-n", "1", "seq", "1", "1000000"]);
    let done = plan.stdout(writer).reads(reader, Into::Out).start().code(0);
    let mut expected = String::new();
    (1..=1_000_000).for_each(|n| writeln!(expected, "{n}").unwrap());
    assert!(done.out == expected.as_bytes(), "{} bytes instead of {}", done.out.len(), expected.len());
}

#[test]
fn output_may_go_where_input_comes_from() {
    let script = "echo data >\"$DIR/f\"; \"$RL\" -n 2 cat <\"$DIR/f\" >\"$DIR/f\"; echo $?; wc -c <\"$DIR/f\"";
    assert_eq!(Plan::shell(script).start().code(0).out(), "0\n0\n");
}

#[test]
fn missing_descriptors_are_not_taken_for_something_else() {
    for closed in ["0<&-", "1>&-", "2>&-", "0<&- 1>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"] {
        let script = format!(
            "\"$RL\" --events \"$DIR/log\" -n 2 sh -c 'ls -l /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2 \
             >\"$DIR/$RANK\"; cat >/dev/null; echo words; echo more >&2' {closed}"
        );
        let done = Plan::shell(&script).start().code(if closed == "0<&-" { 0 } else { 125 });
        for rank in ["0", "1"] {
            let fds = std::fs::read_to_string(done.scratch.path(rank)).unwrap();
            assert_eq!(fds.lines().count(), 3, "{closed}: {fds}");
        }
        let log = std::fs::read_to_string(done.scratch.path("log")).unwrap();
        assert!(log.lines().all(|line| line.starts_with("{\"v\":1,")), "{closed}: {log}");
        assert_eq!(done.out().contains("words"), !closed.contains('1'), "{closed}");
        assert_eq!(done.err().contains("more"), !closed.contains('2'), "{closed}");
    }
}

#[test]
fn output_into_a_closed_stream_is_reported_on_the_other_and_is_no_success() {
    let lost = |std| format!("rlaunch: cannot write to {std}: bad file descriptor; the job continues without it\n");
    for (words, closed, said) in [
        ("echo words", ">&-", Some("stdout")),
        ("sh -c 'echo words >&2'", "2>&-", Some("stderr")),
        ("sh -c 'echo words >&2'", "2>/dev/full", None),
        ("sh -c 'echo words >&2'", "2>&- >/dev/null", None),
    ] {
        let done = Plan::shell(&format!("\"$RL\" -n 1 {words} {closed}")).start().code(125);
        if let Some(std) = said {
            let other = if std == "stdout" { done.err() } else { done.out() };
            assert!(other.contains(&lost(std)), "{words} {closed}: {other}");
        }
    }
    // A stream that takes nothing misses nothing, and /dev/null takes everything.
    for quiet in ["true >&-", "true 2>&-", "true >&- 2>&-", "echo words 2>&-", "sh -c 'echo words >&2' >&- 2>/dev/null"]
    {
        Plan::shell(&format!("\"$RL\" -n 1 {quiet}")).start().code(0);
    }
    for words in ["--help", "--version", "map -n 2 true"] {
        let done = Plan::shell(&format!("\"$RL\" {words} >&-")).start().code(1);
        assert_eq!(done.err(), "error: cannot write to stdout: bad file descriptor\n", "{words}");
    }
}

#[test]
fn flags_of_shared_descriptors_are_left_alone() {
    for killed in [false, true] {
        let ((r0, w0), (r1, w1), (r2, w2)) =
            (std::io::pipe().unwrap(), std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let shared =
            [OwnedFd::from(r0.try_clone().unwrap()), w1.try_clone().unwrap().into(), w2.try_clone().unwrap().into()];
        let flags = || shared.each_ref().map(|fd| OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL).unwrap()));
        let before = flags();
        let plan = Plan::rlaunch(["-n", "2", "sh", "-c", "cat; echo said >&2; read x <\"$DIR/go$RANK\""]);
        let go = [plan.scratch().fifo("go0"), plan.scratch().fifo("go1")];
        let case = plan.stdin(r0).stdout(w1).stderr(w2).reads(r1, Into::Out).reads(r2, Into::Err).start();
        (&w0).write_all(b"text\n").unwrap();
        case.says_on_stdout("text\n", 1);
        case.says_on_stderr("said\n");
        assert_eq!(flags(), before, "while it runs");
        drop(w0);
        if killed {
            case.signal(Signal::SIGKILL);
        } else {
            go.iter().for_each(|path| std::fs::write(path, "\n").unwrap());
        }
        case.until("the end", |seen| seen.exit);
        assert_eq!(flags(), before, "afterwards; killed: {killed}");
        assert!(!before.iter().any(|flags| flags.contains(OFlag::O_NONBLOCK)));
        drop(shared);
        if killed {
            assert_eq!(case.end_with(census::Mercy::All).exit, Exit::Signal(Signal::SIGKILL));
        } else {
            case.code(0);
        }
    }
}

/// The launcher may start no further thread once its rank runs `$PROGRAM`: the limit on processes is met (RLIMIT_NPROC).
const WITHOUT_THREADS: &str = "\
    chmod 777 \"$DIR\"; cat >\"$DIR/go\" <<'EOF'\necho $$ >\"$DIR/launcher\"; eval \"set -- $WORDS\"; exec \"$RL\" \"$@\" sh -c \
    'prlimit --pid $(cat \"$DIR/launcher\") --nproc=1 && eval \"$PROGRAM\"'\nEOF\n\
    if [ $(id -u) = 0 ]; then set -- setpriv --reuid 61403 --regid 61403 --clear-groups; fi; cd /; \"$@\" sh \"$DIR/go\"";

fn without_threads(words: &str, program: &str, redirected: &str) -> Option<Plan> {
    let usable = ["prlimit", "setpriv"].into_iter().all(place::has);
    let plan = || Plan::shell(&format!("({WITHOUT_THREADS}) {redirected}"));
    usable.then(|| plan().contain("t3").env("WORDS", words).env("PROGRAM", program))
}

/// Files cannot be written without blocking, so a thread makes each write.
#[test]
fn output_into_files_is_complete_where_the_writer_thread_cannot_start() {
    let script = "seq 1 20000; seq 1 30000 >&2; exit 0";
    let written =
        ">\"$DIR/out\" 2>\"$DIR/err\"; echo $?; seq 1 20000 | cmp - \"$DIR/out\"; seq 1 30000 | cmp - \"$DIR/err\"";
    let Some(plan) = without_threads("-n 1", script, written) else { return };
    let done = plan.start().code(0);
    assert_eq!((done.out(), done.err()), ("0\n".into(), String::new()));
}

/// More than a pipe holds waits in rlaunch when its reader begins.
#[test]
fn output_into_a_slow_pipe_is_complete_where_the_writer_thread_cannot_start() {
    let read = "| { mkfifo -m 666 \"$DIR/reader\"; : >\"$DIR/made\"; read x <\"$DIR/reader\"; cmp - \"$DIR/want\" && echo same; }";
    let program = "until [ -e \"$DIR/made\" ]; do :; done; seq 1 30000; echo >\"$DIR/reader\"";
    let Some(plan) = without_threads("-n 1", program, read) else { return };
    let want: String = (1..=30_000).fold(String::new(), |all, n| all + &format!("{n}\n"));
    std::fs::write(plan.scratch().path("want"), want).unwrap();
    assert_eq!(plan.start().code(0).out(), "same\n");
}

#[test]
fn own_words_and_the_event_log_are_complete_where_their_threads_cannot_start() {
    let written = "2>\"$DIR/err\"; echo $?; cat \"$DIR/err\"; tail -n 1 \"$DIR/events\"";
    let Some(plan) = without_threads("-n 1 --events $DIR/events", "echo why >&2; exit 3", written) else { return };
    let out = plan.start().code(0).out();
    assert!(out.starts_with("3\nwhy\nrlaunch: rank 0 failed: exit 3 after "), "{out}");
    assert!(out.contains("exit     3\n") && out.contains("\"ev\":\"job.end\""), "{out}");
}

#[test]
fn a_blocked_pipe_without_a_writer_thread_does_not_block_signals() {
    let (reader, writer) = std::io::pipe().unwrap();
    let Some(plan) = without_threads("-n 1", "seq 1 300000; sleep 77", "") else { return };
    let launcher = plan.scratch().path("launcher");
    let case = plan.stdout(writer.try_clone().unwrap()).start();
    is_full(&writer);
    drop(writer);
    let launcher = std::fs::read_to_string(launcher).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(launcher), Signal::SIGTERM).unwrap();
    case.until("the end", |seen| seen.exit);
    drop(reader);
    assert!(!case.end().exit.is_success());
}
