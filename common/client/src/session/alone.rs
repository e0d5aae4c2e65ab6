//! Outside rlaunch: a world of one, which nobody else decides about.

use crate::state::{Cause, State};
use rlaunch_core::id::{Rank, Round};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::restart::fault::Fault;
use rlaunch_core::restart::limits::{ALIKE, QUICK};
use rlaunch_core::wire::frozen::client::round::{Begin, Dismissal, Heard};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::OnceLock;
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Alone {
    /// Most rounds.
    most: Option<u32>,
    began: Instant,
    quick: u32,
    /// Nobody else has said which rank this is: what programs read is set here.
    is_named: bool,
}

impl Alone {
    pub(super) fn new(most: Option<u32>, inbox: &mut VecDeque<Heard>) -> Self {
        let alone = Self { most, began: Instant::now(), quick: 0, is_named: is_named() };
        inbox.push_back(Heard::Begin(alone.begin(0, None)));
        alone
    }

    pub(super) fn returned(&mut self, inbox: &mut VecDeque<Heard>) {
        inbox.push_back(Heard::Finish(Round::new(0)));
    }

    /// Begins the next round, as the root of a job does.
    pub(super) fn ready(&mut self, state: &State, cause: Option<&Cause>, inbox: &mut VecDeque<Heard>) {
        let next = state.number.saturating_add(1);
        self.quick = if self.began.elapsed().as_nanos() <= u128::from(QUICK.nanos()) { self.quick + 1 } else { 0 };
        self.began = Instant::now();
        let why = match self.most {
            Some(most) if next >= most => {
                Some(format!("{next} rounds have begun, and max_rounds {most} allows no more"))
            }
            _ if self.quick >= ALIKE => {
                Some(format!("{ALIKE} rounds in a row have failed, each within {QUICK} of its begin"))
            }
            _ => None,
        };
        inbox.push_back(match why {
            Some(why) => Heard::Dismissed(Dismissal::GivenUp, why.into()),
            None => Heard::Begin(self.begin(next, cause.and_then(Cause::fault).cloned())),
        });
    }

    fn begin(&self, round: u32, fault: Option<Fault>) -> Begin {
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
            env: if self.is_named { Vec::new() } else { variables() },
        }
    }
}

/// Whether somebody else has. What an earlier call has set does not count.
fn is_named() -> bool {
    static NAMED: OnceLock<bool> = OnceLock::new();
    *NAMED.get_or_init(|| std::env::var_os("RANK").is_some())
}

/// What torch reads of a world of one that meets at a port of its own.
fn variables() -> Vec<(OsBytes, Option<OsBytes>)> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    // Where there is none the program says so.
    let port = port.map_or(0, |address| address.port()).to_string();
    let all = [
        ("RANK", "0"),
        ("WORLD_SIZE", "1"),
        ("LOCAL_RANK", "0"),
        ("LOCAL_WORLD_SIZE", "1"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", &port),
    ];
    all.map(|(name, value)| (name.into(), Some(value.into()))).to_vec()
}
