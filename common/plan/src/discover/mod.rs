//! The command of `--discover`, which prints the hosts that there are: when it runs, how long, and which of its lists count.
//!
//! A list that cannot be used changes nothing: the hosts of the last good one stay. The same trouble is reported once.

mod found;

pub use found::{Change, FoundSlice, Ignored, Known, compare};

use crate::hostlist::{self, Alone, Entry};
use alloc::borrow::ToOwned as _;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use rlaunch_base::machine::Machine;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::patience::Patience;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Mono, Span};
use serde::Serialize;

/// From one start of the command to the next.
pub const EVERY: Span = Span::from_secs(10);
/// How long the command may take.
pub const WITHIN: Span = Span::from_secs(30);
/// Most bytes of a list.
pub const MOST: usize = 1 << 20;
/// How long a killed command may take to be gone.
const GONE: Span = Span::from_secs(1);

/// Why a list cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiscoverFault {
    /// The command cannot be started.
    Unstarted {
        /// errno of the attempt.
        errno: i32,
    },
    /// The command failed.
    Failed(Status),
    /// The command took longer than [`WITHIN`].
    Late,
    /// The command printed more than [`MOST`].
    TooMuch,
    /// The output is no list of hosts.
    NoList {
        /// Why not.
        text: OsBytes,
    },
}

/// An event of the discovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiscoverEvent {
    /// The command has ended, and has printed this.
    Ended(Status, Vec<u8>),
    /// The command has printed more than [`MOST`].
    TooMuch,
    /// The command could not be started: errno.
    Unstarted(i32),
    /// No other list is wanted.
    Stop,
}

/// An action for the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiscoverAction {
    /// Start the command; answered by `Ended` or `Unstarted`.
    Start,
    /// Kill the command and all that it has started.
    Kill,
    /// Wait for the command no more: the kernel does not end it.
    Leave,
    /// The hosts of a good list.
    Hosts(Vec<Entry>),
    /// A list that cannot be used, unless the user knows of that.
    Fault(DiscoverFault),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The command starts then.
    Idle(Mono),
    /// The command runs, since then.
    Runs(Mono, Patience),
    /// The command was killed; it had run since then.
    Killed(Mono, Patience),
    /// No other list is wanted.
    Off,
}

/// The lists of a job.
#[derive(Debug)]
pub struct Discovery {
    state: State,
    /// The trouble that the user knows of.
    known: Option<DiscoverFault>,
    actions: VecDeque<DiscoverAction>,
}

/// The hosts of a list.
///
/// # Errors
/// Why it is none.
pub fn read(output: &[u8]) -> Result<Vec<Entry>, String> {
    hostlist::files([("--discover", output)], &mut Alone)
        .map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())
}

impl Discovery {
    /// The first list was read now.
    #[must_use]
    pub const fn new(now: Mono) -> Self {
        Self {
            state: State::Idle(Mono::from_nanos(now.nanos().saturating_add(EVERY.nanos()))),
            known: None,
            actions: VecDeque::new(),
        }
    }

    fn fault(&mut self, fault: DiscoverFault) {
        if self.known.as_ref() != Some(&fault) {
            self.known = Some(fault.clone());
            self.actions.push_back(DiscoverAction::Fault(fault));
        }
    }

    fn rest(&mut self, now: Mono, since: Mono) {
        // At least a moment, also after a command that took long.
        self.state = State::Idle((since + EVERY).max(now + GONE));
    }

    fn kill(&mut self, now: Mono, since: Mono, fault: DiscoverFault) {
        self.fault(fault);
        self.state = State::Killed(since, Patience::new(now, GONE));
        self.actions.push_back(DiscoverAction::Kill);
    }

    fn ended(&mut self, status: Status, output: &[u8]) {
        if !status.is_success() {
            return self.fault(DiscoverFault::Failed(status));
        }
        match read(output) {
            Ok(hosts) => {
                self.known = None;
                self.actions.push_back(DiscoverAction::Hosts(hosts));
            }
            Err(text) => self.fault(DiscoverFault::NoList { text: text.into() }),
        }
    }

    fn stop(&mut self) {
        if matches!(self.state, State::Runs(..)) {
            self.actions.push_back(DiscoverAction::Kill);
        }
        self.state = State::Off;
    }
}

impl Machine for Discovery {
    type Event = DiscoverEvent;
    type Action = DiscoverAction;

    fn handle(&mut self, now: Mono, event: DiscoverEvent) {
        match (self.state, event) {
            (_, DiscoverEvent::Stop) => self.stop(),
            (State::Runs(since, _), DiscoverEvent::Ended(status, output)) => {
                self.rest(now, since);
                self.ended(status, &output);
            }
            (State::Runs(since, _), DiscoverEvent::TooMuch) => self.kill(now, since, DiscoverFault::TooMuch),
            (State::Runs(since, _), DiscoverEvent::Unstarted(errno)) => {
                self.rest(now, since);
                self.fault(DiscoverFault::Unstarted { errno });
            }
            (State::Killed(since, _), DiscoverEvent::Ended(..) | DiscoverEvent::Unstarted(_)) => self.rest(now, since),
            (State::Killed(..), DiscoverEvent::TooMuch)
            | (
                State::Idle(_) | State::Off,
                DiscoverEvent::Ended(..) | DiscoverEvent::TooMuch | DiscoverEvent::Unstarted(_),
            ) => {}
        }
    }

    fn handle_timeout(&mut self, now: Mono) {
        match &mut self.state {
            State::Idle(at) if *at <= now => {
                self.state = State::Runs(now, Patience::new(now, WITHIN));
                self.actions.push_back(DiscoverAction::Start);
            }
            State::Runs(since, patience) => {
                let (since, out) = (*since, patience.is_out(now));
                if out {
                    self.kill(now, since, DiscoverFault::Late);
                }
            }
            State::Killed(since, patience) => {
                let (since, out) = (*since, patience.is_out(now));
                if out {
                    self.actions.push_back(DiscoverAction::Leave);
                    self.rest(now, since);
                }
            }
            State::Idle(_) | State::Off => {}
        }
    }

    fn poll_action(&mut self) -> Option<DiscoverAction> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        match &self.state {
            State::Idle(at) => Some(*at),
            State::Runs(_, patience) | State::Killed(_, patience) => Some(patience.deadline()),
            State::Off => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Mono {
        Mono::from_nanos(seconds * SECOND)
    }

    fn actions(discovery: &mut Discovery) -> Vec<DiscoverAction> {
        core::iter::from_fn(|| discovery.poll_action()).collect()
    }

    fn passes(discovery: &mut Discovery, from: u64, to: u64) {
        (from * 10..=to * 10).for_each(|tenth| discovery.handle_timeout(Mono::from_nanos(tenth * SECOND / 10)));
    }

    /// Running, since 10 s.
    fn running() -> Discovery {
        let mut discovery = Discovery::new(at(0));
        discovery.handle_timeout(at(9));
        assert_eq!(actions(&mut discovery), []);
        discovery.handle_timeout(at(10));
        assert_eq!(actions(&mut discovery), [DiscoverAction::Start]);
        discovery
    }

    #[test]
    fn good_list_is_passed_on_every_ten_seconds() {
        let mut discovery = running();
        discovery.handle(at(11), DiscoverEvent::Ended(Status::Exited(0), b"a:2\nb slice=s id=0\n".to_vec()));
        let found = actions(&mut discovery);
        let [DiscoverAction::Hosts(hosts)] = found.as_slice() else { panic!("{found:?}") };
        let shown: Vec<_> =
            hosts.iter().map(|host| (host.host.name.as_str(), host.slots(), host.chips.is_some())).collect();
        assert_eq!(shown, [("a", 2, false), ("b", 1, true)]);
        assert_eq!(discovery.poll_timeout(), Some(at(20)));
        discovery.handle_timeout(at(20));
        assert_eq!(actions(&mut discovery), [DiscoverAction::Start]);
    }

    #[test]
    fn same_trouble_is_reported_once_until_a_list_is_good() {
        let fault = |output: &[u8]| {
            let mut discovery = running();
            discovery.handle(at(11), DiscoverEvent::Ended(Status::Exited(0), output.to_vec()));
            actions(&mut discovery)
        };
        for output in [&b""[..], b"# nothing\n", b"\xff\xfe", b"a b c", b"<html>", b"@file", b"a slice=s id=4"] {
            assert!(
                matches!(fault(output)[..], [DiscoverAction::Fault(DiscoverFault::NoList { text: _ })]),
                "{output:?}"
            );
        }
        let mut discovery = running();
        let mut seen = vec![];
        for (round, code) in [(1, 3), (2, 3), (3, 0), (4, 3)] {
            let now = at(10 * round + 1);
            discovery.handle(now, DiscoverEvent::Ended(Status::Exited(code), b"a".to_vec()));
            seen.push(actions(&mut discovery).into_iter().filter(|a| *a != DiscoverAction::Start).count());
            discovery.handle_timeout(at(10 * round + 10));
            actions(&mut discovery);
        }
        assert_eq!(seen, [1, 0, 1, 1]);
    }

    #[test]
    fn command_that_hangs_or_floods_is_killed_and_tried_again() {
        let mut discovery = running();
        passes(&mut discovery, 10, 42);
        let late = [DiscoverAction::Fault(DiscoverFault::Late), DiscoverAction::Kill];
        assert_eq!(actions(&mut discovery)[..2], late);
        let mut discovery = running();
        discovery.handle(at(11), DiscoverEvent::TooMuch);
        assert_eq!(actions(&mut discovery), [DiscoverAction::Fault(DiscoverFault::TooMuch), DiscoverAction::Kill]);
        // The kernel does not end it.
        passes(&mut discovery, 11, 13);
        assert_eq!(actions(&mut discovery), [DiscoverAction::Leave]);
        passes(&mut discovery, 13, 20);
        assert_eq!(actions(&mut discovery), [DiscoverAction::Start]);
        discovery.handle(at(20), DiscoverEvent::Stop);
        assert_eq!((actions(&mut discovery), discovery.poll_timeout()), (vec![DiscoverAction::Kill], None));
    }
}
