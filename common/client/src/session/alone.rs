//! Outside rlaunch: a world of one, which nobody else decides about.

use crate::state::{Cause, State};
use rlaunch_core::id::{Rank, Round};
use rlaunch_core::restart::fault::Fault;
use rlaunch_core::restart::limits::{ALIKE, QUICK};
use rlaunch_core::wire::frozen::client::round::{Begin, Dismissal, Heard};
use std::collections::VecDeque;
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Alone {
    /// Most rounds.
    most: Option<u32>,
    began: Instant,
    quick: u32,
}

impl Alone {
    pub(super) fn new(most: Option<u32>, inbox: &mut VecDeque<Heard>) -> Self {
        inbox.push_back(Heard::Begin(begin(0, None)));
        Self { most, began: Instant::now(), quick: 0 }
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
            None => Heard::Begin(begin(next, cause.and_then(Cause::fault).cloned())),
        });
    }
}

/// Variables are as they are: who has set them is not known.
fn begin(round: u32, fault: Option<Fault>) -> Begin {
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
        env: Vec::new(),
    }
}
