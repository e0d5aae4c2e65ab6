//! A suspended agent: stopped by a signal, which we take back when the job has to end, or frozen for good.

use crate::case::Case;
use crate::census::{self, Mercy};
use crate::place;
use crate::plan::Plan;
use crate::watch::Exit;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::io::PipeWriter;
use std::os::fd::AsFd as _;
use std::thread::JoinHandle;

/// Ignores every polite request, and leaves processes that got away.
const DEAF: &str = "trap '' INT TERM HUP QUIT; setsid sleep 999 & echo ready; while :; do sleep 100; done";
/// Says what it gets.
const TALKER: &str = "trap 'echo got INT; exit 0' INT; echo ready; while :; do sleep 100 & wait; done";

/// An agent whose main thread is held by a debugger: SIGCONT does not wake it.
pub(crate) struct Frozen {
    /// Closed: it continues.
    until: Option<PipeWriter>,
    tracer: Option<JoinHandle<()>>,
}

impl Frozen {
    /// `None` where tracing is not allowed.
    pub(crate) fn agent(agent: i32) -> Option<Self> {
        let pid = Pid::from_raw(agent);
        let (ended, until) = std::io::pipe().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        // A process that one thread traces cannot be released by another.
        let tracer = std::thread::spawn(move || {
            let seized = ptrace::seize(pid, ptrace::Options::empty()).and_then(|()| ptrace::interrupt(pid));
            if let Err(error) = seized {
                return sender.send(Err(error)).unwrap();
            }
            waitpid(pid, Some(WaitPidFlag::__WALL)).unwrap();
            sender.send(Ok(())).unwrap();
            let agent = rlaunch_sys::pidfd::open(agent).unwrap();
            let mut fds =
                [PollFd::new(agent.as_fd(), PollFlags::POLLIN), PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::NONE).unwrap();
            if ptrace::detach(pid, None).is_err() {
                // The agent is dead. Its parent is notified after this thread.
                waitpid(pid, Some(WaitPidFlag::__WALL)).unwrap();
            }
        });
        match receiver.recv().unwrap() {
            Ok(()) => Some(Self { until: Some(until), tracer: Some(tracer) }),
            Err(error) => {
                place::absent("an agent that is frozen", &format!("ptrace: {error}"));
                None
            }
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.until.take();
        if let Some(tracer) = self.tracer.take() {
            let ended = tracer.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the tracer failed");
        }
    }
}

/// A job whose ranks run, its agent, and its guardian.
fn running(tier: &str, words: &[&str]) -> (Case, i32, i32) {
    let case = Plan::rlaunch(words).contain(tier).start();
    case.says_on_stdout("ready", 2);
    let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
    let guardian = census::parent(agent).unwrap();
    (case, agent, guardian)
}

fn send(pid: i32, sig: Signal) {
    kill(Pid::from_raw(pid), sig).unwrap();
}

#[test]
fn job_continues_when_its_agent_continues() {
    for tier in place::tiers() {
        let script = "trap '' USR1; echo ready; read x <\"$DIR/go\"; echo late; echo >\"$DIR/over\"";
        let plan = Plan::rlaunch(["-n", "1", "sh", "-c", script]).contain(tier);
        let (go, over) = (plan.scratch().fifo("go"), plan.scratch().fifo("over"));
        let case = plan.start();
        case.says_on_stdout("ready", 1);
        let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
        send(agent, Signal::SIGSTOP);
        // Not before it is given a processor.
        census::wait_stopped(agent, true);
        std::fs::write(go, "\n").unwrap();
        std::fs::read(over).unwrap();
        // A signal that does not end the job does not wake it either.
        case.signal(Signal::SIGUSR1);
        case.event("signal");
        assert_eq!(census::state(agent), Some('T'), "{tier}");
        send(agent, Signal::SIGCONT);
        assert_eq!(case.code(0).out(), "ready\nlate\n", "{tier}");
    }
}

#[test]
fn a_stopped_guardian_ends_with_its_job() {
    for tier in place::tiers() {
        let plan = Plan::rlaunch(["-n", "1", "sh", "-c", "echo ready; read x <\"$DIR/go\""]).contain(tier);
        let go = plan.scratch().fifo("go");
        let case = plan.start();
        case.says_on_stdout("ready", 1);
        let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
        let guardian = census::parent(agent).unwrap();
        send(guardian, Signal::SIGSTOP);
        census::wait_stopped(guardian, true);
        std::fs::write(go, "\n").unwrap();
        // And nothing of it is left.
        case.code(0);
    }
}

/// Without the wake-up no process ended its ranks or counted them.
#[test]
fn a_stopped_guardian_wakes_when_its_agent_is_killed() {
    for tier in place::tiers() {
        let (case, agent, guardian) = running(tier, &["-n", "2", "sh", "-c", DEAF]);
        send(guardian, Signal::SIGSTOP);
        census::wait_stopped(guardian, true);
        send(agent, Signal::SIGKILL);
        let done = case.code(125);
        let end = done.event("job.end");
        assert_eq!((&end["cause"]["lost"], &end["left"]), (&"agent".into(), &0.into()), "{tier}");
        done.says("0 left running");
    }
}

#[test]
fn the_first_interrupt_wakes_a_stopped_agent() {
    for tier in place::tiers() {
        let (case, agent, _) = running(tier, &["-n", "2", "--grace", "600s", "sh", "-c", TALKER]);
        send(agent, Signal::SIGSTOP);
        case.signal(Signal::SIGINT);
        let done = case.finish(Exit::Signal(Signal::SIGINT));
        assert_eq!(done.out().matches("got INT").count(), 2, "{tier}: {}", done.out());
        done.says("0 left running");
    }
}

#[test]
fn the_second_interrupt_kills_although_the_agent_was_stopped() {
    for tier in place::tiers() {
        let (case, agent, _) = running(tier, &["-n", "2", "--grace", "600s", "sh", "-c", DEAF]);
        send(agent, Signal::SIGSTOP);
        case.signal(Signal::SIGINT);
        case.event("ending");
        // Again: a user who stops it does not want the job to live for ever.
        send(agent, Signal::SIGSTOP);
        case.signal_again(Signal::SIGINT);
        let done = case.finish(Exit::Signal(Signal::SIGINT));
        assert_eq!((&done.event("job.end")["left"], done.named("host.lost").count()), (&0.into(), 0), "{tier}");
        assert_eq!(done.named("rank.exited").filter(|e| e["signal"] == "SIGKILL").count(), 2, "{tier}");
        done.says("0 left running");
    }
}

#[test]
fn the_guardian_kills_where_the_agent_does_not_answer() {
    for tier in place::tiers() {
        let (case, agent, _) = running(tier, &["-n", "2", "--grace", "600s", "sh", "-c", DEAF]);
        let Some(_frozen) = Frozen::agent(agent) else { return case.signal_to_end(Signal::SIGTERM) };
        case.signal(Signal::SIGINT);
        case.event("ending");
        case.signal_again(Signal::SIGINT);
        let done = case.finish(Exit::Signal(Signal::SIGINT));
        assert_eq!((&done.event("job.end")["left"], &done.event("host.lost")["why"]), (&0.into(), &"mute".into()));
        done.says("0 left running");
    }
}

#[test]
fn agent_ends_after_grace_too() {
    for tier in place::tiers() {
        let words = ["-n", "2", "--grace", "100ms", "--timeout", "1s", "sh", "-c", DEAF];
        let (case, agent, _) = running(tier, &words);
        let Some(_frozen) = Frozen::agent(agent) else { return case.signal_to_end(Signal::SIGTERM) };
        let done = case.code(124);
        assert_eq!((&done.event("job.end")["left"], &done.event("host.lost")["why"]), (&0.into(), &"mute".into()));
    }
}

#[test]
fn a_stopped_agent_wakes_when_its_guardian_is_lost() {
    for tier in place::tiers() {
        let (case, agent, guardian) = running(tier, &["-n", "2", "sh", "-c", DEAF]);
        send(agent, Signal::SIGSTOP);
        send(guardian, Signal::SIGKILL);
        let done = case.code(125);
        let end = done.event("job.end");
        assert_eq!((&end["cause"]["lost"], &end["left"]), (&"guardian".into(), &0.into()), "{tier}");
        done.says("0 left running");
    }
}

#[test]
fn without_guardian_and_agent_no_count_is_made() {
    for tier in place::tiers() {
        let (case, agent, guardian) = running(tier, &["-n", "2", "sh", "-c", DEAF]);
        let Some(frozen) = Frozen::agent(agent) else { return case.signal_to_end(Signal::SIGTERM) };
        send(guardian, Signal::SIGKILL);
        case.until("its end", |seen| seen.exit);
        // The processes that the frozen agent keeps end when it continues.
        drop(frozen);
        let done = case.end_with(Mercy::All);
        assert_eq!(done.exit, Exit::Code(125), "{tier}");
        let end = done.event("job.end");
        assert_eq!((&end["cause"]["lost"], end["left"].is_null()), (&"guardian".into(), true), "{tier}");
        done.says("could not be counted");
    }
}

#[test]
fn init_may_die_behind_a_stopped_agent() {
    if !place::tiers().contains(&"t1") {
        return;
    }
    // Its ranks are dead. The agent reports it when it continues, or the user has waited long enough.
    for (wakes, exit) in [(true, Exit::Code(125)), (false, Exit::Signal(Signal::SIGINT))] {
        let (case, agent, _) = running("t1", &["-n", "2", "--grace", "600s", "sh", "-c", DEAF]);
        let init = i32::try_from(case.event("host.ready")["init"].as_i64().unwrap()).unwrap();
        send(agent, Signal::SIGSTOP);
        send(init, Signal::SIGKILL);
        if wakes {
            send(agent, Signal::SIGCONT);
        } else {
            case.signal(Signal::SIGINT);
        }
        let done = case.finish(exit);
        assert_eq!((&done.event("host.lost")["lost"], &done.event("job.end")["left"]), (&"init".into(), &0.into()));
        done.says("0 left running");
    }
}
