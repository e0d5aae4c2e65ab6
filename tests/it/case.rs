//! A running case: a guard that must be finished, and that leaves no process.

use crate::census::{self, Mercy};
use crate::place::Scratch;
use crate::plan::Plan;
use crate::watch::{Exit, Seen, Watch};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, ChildStdin};
use std::time::Duration;

/// Signals that follow each other faster are one.
pub(crate) const ECHO: Duration = Duration::from_millis(60);

/// A running case. Dropped without `finish`, it fails.
pub(crate) struct Case {
    child: Child,
    watch: Watch,
    tag: String,
    scratch: Scratch,
    words: String,
    has_events: bool,
    mercy: Mercy,
    finished: bool,
    /// The signals that were sent.
    signals: RefCell<Vec<Signal>>,
}

/// A case that has ended and left nothing behind.
pub(crate) struct Done {
    pub(crate) exit: Exit,
    pub(crate) out: Vec<u8>,
    err: Vec<u8>,
    pub(crate) events: Vec<Value>,
    pub(crate) scratch: Scratch,
}

impl Done {
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }
    /// The lines of stdout, sorted: ranks come in any order.
    pub(crate) fn sorted(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.out().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.err).into_owned()
    }
    /// Stderr without the note about ranks that share processors: whether it is there depends on the machine.
    pub(crate) fn err_of_any_machine(&self) -> String {
        let note = |line: &&str| line.starts_with("rlaunch: ") && line.contains(" ranks share ");
        self.err().split_inclusive('\n').filter(|line| !note(line)).collect()
    }
    pub(crate) fn named<'a>(&'a self, ev: &str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |e| e["ev"] == *ev)
    }
    /// The only event of this name.
    pub(crate) fn event(&self, ev: &str) -> &Value {
        let found: Vec<_> = self.named(ev).collect();
        assert!(found.len() == 1, "{} events {ev} in {:#?}", found.len(), self.events);
        found[0]
    }
    /// Whether stderr says this; shows it if not.
    pub(crate) fn says(&self, what: &str) -> &Self {
        assert!(self.err().contains(what), "stderr does not say {what:?}:\n{}", self.err());
        self
    }
}

impl Case {
    pub(crate) fn new(
        child: Child,
        watch: Watch,
        tag: String,
        scratch: Scratch,
        words: String,
        (has_events, mercy): (bool, Mercy),
    ) -> Self {
        Self { child, watch, tag, scratch, words, has_events, mercy, finished: false, signals: RefCell::default() }
    }

    /// rlaunch with these words and nothing on stdin.
    pub(crate) fn start<I: IntoIterator<Item: AsRef<OsStr>>>(words: I) -> Self {
        Plan::rlaunch(words).start()
    }

    /// The process that the test started: the launcher, or a shell around it.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Its living processes, without the one that the test started.
    pub(crate) fn all_processes(&self) -> Vec<census::Proc> {
        census::tagged(&self.tag)
    }

    /// A process of the case by its name.
    pub(crate) fn ours(&self, comm: &str) -> Option<i32> {
        self.all_processes().into_iter().find(|p| p.comm == comm).map(|p| p.pid)
    }

    pub(crate) fn take_stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("a case with a piped stdin")
    }

    pub(crate) fn signal(&self, sig: Signal) {
        // Not reaped before `finish`: the number is still its own.
        kill(Pid::from_raw(self.pid()), sig).unwrap();
        self.signals.borrow_mut().push(sig);
    }

    /// The same signal again, after the time in which it would be taken for an echo of the first.
    pub(crate) fn signal_again(&self, sig: Signal) {
        let sent = self.signals.borrow().iter().filter(|earlier| **earlier == sig).count();
        self.until(&format!("{sig} for the {sent}th time"), |seen| {
            (seen.named("signal").filter(|e| e["signal"] == sig.as_str()).count() >= sent).then_some(())
        });
        // The pause is what is asked for: rlaunch counts it from the moment at which it took the first.
        std::thread::sleep(ECHO);
        self.signal(sig);
    }

    /// Waits until `found` finds something; shows everything seen if it does not.
    pub(crate) fn until<T>(&self, what: &str, found: impl FnMut(&Seen) -> Option<T>) -> T {
        self.watch.until(found).unwrap_or_else(|| panic!("nothing new while waiting for {what}"))
    }

    /// The first event of this name.
    pub(crate) fn event(&self, ev: &str) -> Value {
        self.until(&format!("the event {ev}"), |seen| seen.named(ev).next().cloned())
    }

    /// The first event of this name that is about this rank.
    pub(crate) fn event_of(&self, ev: &str, rank: u32) -> Value {
        self.until(&format!("the event {ev} of rank {rank}"), |seen| {
            seen.named(ev).find(|e| e["rank"] == rank).cloned()
        })
    }

    /// Waits until so many events of this name were seen.
    pub(crate) fn events(&self, ev: &str, count: usize) -> Vec<Value> {
        self.until(&format!("{count} events {ev}"), |seen| {
            let found: Vec<Value> = seen.named(ev).cloned().collect();
            (found.len() >= count).then_some(found)
        })
    }

    /// Waits until stdout holds this text so many times.
    pub(crate) fn says_on_stdout(&self, text: &str, times: usize) {
        self.until(&format!("{times} times {text:?} on stdout"), |seen| {
            (String::from_utf8_lossy(&seen.out).matches(text).count() >= times).then_some(())
        });
    }

    /// Whether stdout holds this text by now.
    pub(crate) fn has_said_on_stdout(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.watch.seen().out).contains(text)
    }

    /// Waits until stderr holds this text.
    pub(crate) fn says_on_stderr(&self, text: &str) {
        self.until(&format!("{text:?} on stderr"), |seen| {
            String::from_utf8_lossy(&seen.err).contains(text).then_some(())
        });
    }

    /// The end, exactly this one. Nothing may be left.
    pub(crate) fn finish(self, exit: Exit) -> Done {
        let words = self.words.clone();
        let done = self.end();
        let (out, err) = (done.out(), done.err());
        let tail = |text: &str| text[text.floor_char_boundary(text.len().saturating_sub(2_000))..].to_owned();
        assert!(
            done.exit == exit,
            "{words}\nended with {:?}, not {exit:?}\nstdout: {}\nstderr: {}\nevents: {}",
            done.exit,
            tail(&out),
            tail(&err),
            show(&done.events)
        );
        done
    }

    pub(crate) fn code(self, code: i32) -> Done {
        self.finish(Exit::Code(code))
    }

    /// Ends it, where the place does not allow more.
    pub(crate) fn signal_to_end(self, sig: Signal) {
        self.signal(sig);
        self.signal_again(sig);
        self.finish(Exit::Signal(sig));
    }

    /// The end with one of these codes.
    pub(crate) fn code_of_any(self, codes: &[i32]) -> Done {
        let done = self.end();
        assert!(codes.iter().any(|code| done.exit == Exit::Code(*code)), "{:?}: {}", done.exit, done.err());
        done
    }

    /// The end, whichever. Nothing may be left.
    pub(crate) fn end(self) -> Done {
        let mercy = self.mercy;
        self.end_with(mercy)
    }

    pub(crate) fn end_with(mut self, mercy: Mercy) -> Done {
        let (exit, at) = self.until("its end", |seen| seen.exit);
        let leaks = census::leaks(&self.tag, at, mercy);
        assert!(leaks.is_empty(), "{} ended with {exit:?} and left behind:\n{}", self.words, leaks.join("\n"));
        self.child.stdin.take();
        self.close_events();
        self.until("the end of its output", |seen| seen.is_closed().then_some(()));
        census::reap(&mut self.child);
        self.finished = true;
        let mut seen = self.watch.seen();
        assert!(seen.named("unreadable").next().is_none(), "the event log does not parse: {}", show(&seen.events));
        assert!(seen.rest.is_empty(), "the event log ends in mid-line: {}", String::from_utf8_lossy(&seen.rest));
        Done {
            exit,
            out: std::mem::take(&mut seen.out),
            err: std::mem::take(&mut seen.err),
            events: std::mem::take(&mut seen.events),
            scratch: self.scratch.take(),
        }
    }

    /// A reader of events that no writer ever came to would wait for ever.
    fn close_events(&self) {
        if self.has_events {
            let path = self.scratch.path("events");
            // Fails if the reader has gone, which is as good.
            drop(OpenOptions::new().write(true).custom_flags(nix::libc::O_NONBLOCK).open(path));
        }
    }

    fn dump(&self) {
        let seen = self.watch.seen();
        let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(4_000)..]).into_owned();
        let left = census::tagged(&self.tag);
        eprintln!(
            "--- {}\n--- exit: {:?}\n--- stdout ({} bytes): {}\n--- stderr: {}\n--- events:\n{}\n--- running: {left:#?}",
            self.words,
            seen.exit.map(|(exit, _)| exit),
            seen.out.len(),
            text(&seen.out),
            text(&seen.err),
            show(&seen.events),
        );
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        self.dump();
        kill(Pid::from_raw(self.pid()), Signal::SIGKILL).unwrap_or_default();
        census::kill_all(&self.tag);
        census::reap(&mut self.child);
        self.close_events();
        if !std::thread::panicking() {
            panic!("a case was dropped before it was finished");
        }
    }
}

fn show(events: &[Value]) -> String {
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}
