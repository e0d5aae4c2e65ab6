//! Outside rlaunch: a world of one, without any other rank.

use crate::state::{Cause, State};
use rlaunch_base::backoff::{self, ALIKE, GIVE_UP_AFTER, QUICK, Streak};
use rlaunch_base::id::{Rank, Round};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Mono;
use rlaunch_protocol::rank_fault::Fault;
use rlaunch_protocol::wire::frozen::client::client_round::{AgentMessage, Begin, Dismissal};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

const MASTER_PORT: &str = "MASTER_PORT";

type Variables = Vec<(OsBytes, Option<OsBytes>)>;

#[derive(Debug)]
pub(super) struct Alone {
    /// Most rounds.
    most: Option<u32>,
    opened: Instant,
    /// The begin of the round.
    began: Mono,
    /// Rounds in a row that failed soon.
    quick: Option<Streak>,
    /// The end of the pause before the next round.
    resume_at: Mono,
}

impl Alone {
    pub(super) fn new(most: Option<u32>, inbox: &mut VecDeque<AgentMessage>) -> Self {
        let (began, resume_at) = (Mono::default(), Mono::default());
        let alone = Self { most, opened: Instant::now(), began, quick: None, resume_at };
        inbox.push_back(AgentMessage::Begin(begin(0, None)));
        alone
    }

    pub(super) fn returned(&mut self, inbox: &mut VecDeque<AgentMessage>) {
        inbox.push_back(AgentMessage::Finish(Round::new(0)));
    }

    /// Begins the next round, as the root of a job does.
    pub(super) fn ready(&mut self, state: &State, cause: Option<&Cause>, inbox: &mut VecDeque<AgentMessage>) {
        let (next, now) = (state.number.saturating_add(1), self.now());
        self.quick = (now.since(self.began) <= QUICK).then(|| Streak::with(self.quick, now));
        let why = match self.most {
            Some(most) if next >= most => {
                Some(format!("{next} rounds have begun, and max_rounds {most} allows no more"))
            }
            _ => self.quick.filter(|quick| quick.is_enough(ALIKE, GIVE_UP_AFTER, now)).map(|quick| {
                format!(
                    "{} rounds in a row have failed in {GIVE_UP_AFTER}, each within {QUICK} of its begin",
                    quick.failures
                )
            }),
        };
        if let (None, Some(quick)) = (&why, self.quick) {
            self.resume_at = now + backoff::pause(quick.failures).min(quick.rest(GIVE_UP_AFTER, now));
        }
        self.began = self.resume_at.max(now);
        inbox.push_back(match why {
            Some(why) => AgentMessage::Dismissed(Dismissal::GivenUp, why.into()),
            None => AgentMessage::Begin(begin(next, cause.and_then(Cause::fault).cloned())),
        });
    }
}

impl Alone {
    fn now(&self) -> Mono {
        Mono::from_nanos(u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The rest of the pause before the next round.
    pub(super) fn pause(&self) -> Duration {
        self.resume_at.since(self.now()).duration()
    }
}

fn begin(round: u32, fault: Option<Fault>) -> Begin {
    crate::own_store::begin_round();
    let zero = Rank::new(0);
    Begin {
        round: Round::new(round),
        rank: zero,
        world_size: 1,
        active_rank: Some(zero),
        active_world_size: 1,
        initial_rank: zero,
        initial_world_size: 1,
        fault,
        env: next_variables(),
    }
}

/// The port that an earlier round has set, of this process or of the one that it was forked from: all variables but the port are always
/// the same. 0: none.
static PORT: AtomicU16 = AtomicU16::new(0);

/// For a world of one that meets at a port of its own.
fn next_variables() -> Variables {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    // The program reports if there is none.
    let port = port.map_or(0, |address| address.port());
    let all = variables(port, PORT.load(Ordering::Acquire), |name| std::env::var_os(name));
    if !all.is_empty() {
        PORT.store(port, Ordering::Release);
    }
    all
}

/// The variables that torch reads. If a part of them is set, such as MASTER_ADDR below srun, the program knows its world in another way,
/// and none is made up. LOCAL_RANK is also set by who only chooses a device: that one stays, beside the rest.
fn variables(port: u16, before: u16, now: impl Fn(&str) -> Option<OsString>) -> Variables {
    let (port, before) = (port.to_string(), (before != 0).then(|| before.to_string()));
    let is_free = |name: &str, value: &str| {
        now(name).is_none_or(|now| {
            before.as_ref().is_some_and(|port| now == *if name == MASTER_PORT { port } else { value })
        })
    };
    let world = [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), (MASTER_PORT, port.as_str())];
    if !world.iter().all(|(name, value)| is_free(name, value)) {
        return Vec::new();
    }
    let place =
        [("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1")].into_iter().filter(|(name, value)| is_free(name, value));
    world.into_iter().chain(place).map(|(name, value)| (name.into(), Some(value.into()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(port: u16, before: u16, now: &[(&str, &str)]) -> Vec<String> {
        let found = |name: &str| now.iter().find(|(other, _)| *other == name).map(|(_, value)| OsString::from(value));
        let text = |(name, value): (OsBytes, Option<OsBytes>)| format!("{name}={}", value.unwrap());
        variables(port, before, found).into_iter().map(text).collect()
    }

    const WORLD: [&str; 4] = ["RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=7"];

    #[test]
    fn variables_of_others_are_never_overwritten() {
        let all = [&WORLD[..], &["LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1"]].concat();
        assert_eq!(set(7, 0, &[]), all);
        for one in [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")] {
            assert_eq!(set(7, 0, &[one]), [""; 0], "{one:?}");
        }
        assert_eq!(set(7, 0, &[("LOCAL_RANK", "1")]), [&WORLD[..], &["LOCAL_WORLD_SIZE=1"]].concat());
    }

    #[test]
    fn variable_of_earlier_round_is_replaced_unless_changed() {
        let all = [&WORLD[..], &["LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1"]].concat();
        let own = [
            ("RANK", "0"),
            ("WORLD_SIZE", "1"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", "6"),
            ("LOCAL_RANK", "0"),
            ("LOCAL_WORLD_SIZE", "1"),
        ];
        assert_eq!(set(7, 6, &own), all);
        for at in 0..4 {
            let mut changed = own;
            changed[at].1 = "3";
            assert_eq!(set(7, 6, &changed), [""; 0], "{changed:?}");
        }
    }
}
