//! Connections that are not in use.
//!
//! A program may fork while another of its threads is in here: the child has a copy of a lock whose holder it has not. So no thread waits
//! for a connection: a place that is locked is skipped, in a child for ever. Without a free place a connection is opened or closed.

use crate::connection::Connection;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// How many connections are kept: as many threads as this find one when they ask at the same time.
const PLACES: usize = 16;

/// Each with the process that has made it. Those of the parent are not a forked child's: both would read the same answers.
#[derive(Debug, Default)]
pub(crate) struct Idle([Mutex<Option<(u32, Connection)>>; PLACES]);

impl Idle {
    pub(crate) fn take(&self) -> Option<Connection> {
        let own = std::process::id();
        let mut all = self.0.iter().filter_map(free).filter_map(|mut place| place.take());
        all.find_map(|(maker, connection)| (maker == own).then_some(connection))
    }

    /// A connection without a free place is closed.
    pub(crate) fn put_back(&self, connection: Connection) {
        if let Some(mut place) = self.0.iter().filter_map(free).find(|place| place.is_none()) {
            *place = Some((std::process::id(), connection));
        }
    }
}

fn free<T>(place: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match place.try_lock() {
        Ok(place) => Some(place),
        Err(TryLockError::Poisoned(place)) => Some(place.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn connection() -> Connection {
        Connection::over(UnixStream::pair().unwrap().0)
    }

    #[test]
    fn idle_connections_are_reused_and_bounded() {
        let idle = Idle::default();
        assert!(idle.take().is_none());
        (0..=PLACES).for_each(|_| idle.put_back(connection()));
        assert_eq!(std::iter::from_fn(|| idle.take()).count(), PLACES);
    }

    /// As a child finds them that was forked while threads were in here.
    #[test]
    fn idle_connections_never_block() {
        let idle = Idle::default();
        idle.put_back(connection());
        let first = idle.0[0].lock().unwrap();
        assert!(idle.take().is_none());
        idle.put_back(connection());
        assert!(idle.take().is_some(), "there are others");
        let rest: Vec<_> = idle.0[1..].iter().map(|place| place.lock().unwrap()).collect();
        idle.put_back(connection());
        assert!(idle.take().is_none());
        drop((first, rest));
        assert!(idle.take().is_some());
    }

    #[test]
    fn idle_connections_of_another_process_are_closed() {
        let idle = Idle::default();
        *idle.0[0].lock().unwrap() = Some((std::process::id() + 1, connection()));
        idle.put_back(connection());
        assert!(idle.take().is_some());
        assert!(idle.take().is_none() && idle.0.iter().all(|place| place.lock().unwrap().is_none()));
    }
}
