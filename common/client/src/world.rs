//! The identity of this process in its job, as it was started.

use crate::Error;
use crate::state::{Mode, State};
use std::env;
use std::sync::Once;

/// A process among those of its job, from the environment in which it was started. Changes by rounds are in the rounds' own state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct World {
    /// Its number, which it keeps through all rounds.
    pub rank: u32,
    /// How many there are.
    pub world_size: u32,
    /// Its number among those of its host.
    pub local_rank: u32,
    /// How many these are.
    pub local_world_size: u32,
    /// The number of its host.
    pub node_index: u32,
    /// How many hosts there are.
    pub hosts: u32,
    /// The name of the job; empty outside rlaunch.
    pub job_id: String,
    /// How often all processes were started again.
    pub generation: u32,
}

impl World {
    /// The values that rlaunch has set; outside it, a world of one, with one note on stderr.
    ///
    /// # Errors
    /// A variable is no number.
    pub fn from_env() -> Result<Self, Error> {
        let world = Self::quietly()?;
        if world.job_id.is_empty() {
            say_alone();
        }
        Ok(world)
    }

    pub(crate) fn quietly() -> Result<Self, Error> {
        Ok(Self::from(|name| env::var(name).ok())?.unwrap_or_else(Self::alone))
    }

    /// As it is before the first round.
    pub(crate) fn state(&self) -> State {
        State {
            number: 0,
            mode: Mode::Initialized,
            rank: self.rank,
            world_size: self.world_size,
            active_rank: None,
            active_world_size: 0,
            initial_rank: self.rank,
            initial_world_size: self.world_size,
            fault: None,
        }
    }

    fn from(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, Error> {
        let number = |name: &'static str| -> Result<u32, Error> {
            let value = get(name).unwrap_or_default();
            value.parse().map_err(|_| Error::Variable { name, value })
        };
        let Some(job_id) = get("RLAUNCH_JOB_ID").filter(|id| !id.is_empty()) else { return Ok(None) };
        Ok(Some(Self {
            rank: number("RLAUNCH_RANK")?,
            world_size: number("RLAUNCH_WORLD_SIZE")?,
            local_rank: number("RLAUNCH_LOCAL_RANK")?,
            local_world_size: number("RLAUNCH_LOCAL_SIZE")?,
            node_index: number("RLAUNCH_NODE_INDEX")?,
            hosts: number("RLAUNCH_NODES")?,
            job_id,
            generation: number("RLAUNCH_RESTART_COUNT")?,
        }))
    }

    fn alone() -> Self {
        Self {
            rank: 0,
            world_size: 1,
            local_rank: 0,
            local_world_size: 1,
            node_index: 0,
            hosts: 1,
            job_id: String::new(),
            generation: 0,
        }
    }
}

/// Notes once that there is no other rank.
pub(crate) fn say_alone() {
    static SAID: Once = Once::new();
    SAID.call_once(|| eprintln!("rlaunch: this program does not run below rlaunch: it is a world of one"));
}

#[cfg(test)]
mod tests {
    use super::World;

    #[test]
    fn the_environment_says_who_it_is() {
        let all = "RLAUNCH_JOB_ID=ab RLAUNCH_RANK=3 RLAUNCH_WORLD_SIZE=4 RLAUNCH_LOCAL_RANK=1 RLAUNCH_LOCAL_SIZE=2 \
                   RLAUNCH_NODE_INDEX=1 RLAUNCH_NODES=2 RLAUNCH_RESTART_COUNT=5";
        let world = |vars: &str| {
            World::from(|name| {
                let var = vars.split(' ').filter_map(|var| var.split_once('=')).find(|(key, _)| *key == name);
                var.map(|(_, value)| value.to_owned())
            })
        };
        let found = world(all).unwrap().unwrap();
        assert_eq!((found.rank, found.world_size, found.local_rank, found.local_world_size), (3, 4, 1, 2));
        assert_eq!((found.node_index, found.hosts, found.job_id.as_str(), found.generation), (1, 2, "ab", 5));
        assert_eq!(world("RANK=3").unwrap(), None);
        let error = world(&all.replace("RANK=3", "RANK=x")).unwrap_err();
        assert!(error.to_string().contains("RLAUNCH_RANK"), "{error}");
    }
}
