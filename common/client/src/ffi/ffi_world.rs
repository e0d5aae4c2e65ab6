//! The identity of this process, for C.
#![forbid(unsafe_code)]

use super::ffi_error::{Failure, guarded};
use super::given::Given;
use super::run::is_running;
use super::types::text;
use crate::{Error, World};
use std::ffi::{c_char, c_int};
use std::sync::{Mutex, PoisonError};

static WORLD: Mutex<Option<World>> = Mutex::new(None);
const ID: usize = 36;

/// A process among those of its job.
#[repr(C)]
pub struct rl_world {
    rank: u32,
    world_size: u32,
    local_rank: u32,
    local_world_size: u32,
    node_index: u32,
    hosts: u32,
    generation: u32,
    job_id: [c_char; ID],
}

/// Finds out who this process is.
pub(super) fn rl_init(world: Given<'_, (*mut rl_world,)>) -> c_int {
    guarded(|| {
        let mut known = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match known.take() {
            Some(found) => found,
            None => World::from_env()?,
        };
        let mut job_id = [0; ID];
        let id = text(found.job_id.as_bytes());
        job_id.iter_mut().zip(id).take(ID - 1).for_each(|(to, from)| *to = from);
        if !world.is_null() {
            let value = rl_world {
                rank: found.rank,
                world_size: found.world_size,
                local_rank: found.local_rank,
                local_world_size: found.local_world_size,
                node_index: found.node_index,
                hosts: found.hosts,
                generation: found.generation,
                job_id,
            };
            world.give(value)?;
        }
        *known = Some(found);
        Ok(())
    })
}

/// Forgets it.
pub(super) fn rl_finalize() -> c_int {
    guarded(|| {
        if is_running() {
            return Err(Failure::from(Error::Order("rl_run has not returned")));
        }
        *WORLD.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    })
}
