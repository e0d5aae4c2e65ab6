//! Accepted connections whose peers have not proved themselves.
//!
//! A stranger can open many. The oldest silent connection is closed if there are too many: a peer of ours sends its proof at once, and
//! its connection is read when it is accepted. So a flood closes few of its connections, and such a peer connects again.

use alloc::collections::BTreeMap;

/// Connections without a complete proof, by number.
#[derive(Debug)]
pub struct Unproven<T> {
    /// The most silent connections, and the most that were answered.
    most: usize,
    next: u64,
    pending: BTreeMap<u64, Pending<T>>,
}

#[derive(Debug)]
struct Pending<T> {
    connection: T,
    is_answered: bool,
}

impl<T> Unproven<T> {
    /// For so many silent connections, and as many that were answered.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { most, next: 0, pending: BTreeMap::new() }
    }

    /// Adds a connection that was accepted. Returns its number, which is never used again.
    pub fn add(&mut self, connection: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.pending.insert(number, Pending { connection, is_answered: false });
        number
    }

    /// The peer has sent its proof and was answered: silent connections do not displace it.
    pub fn set_answered(&mut self, number: u64) {
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.is_answered = true;
        }
    }

    /// Whether the peer was answered.
    #[must_use]
    pub fn is_answered(&self, number: u64) -> bool {
        self.pending.get(&number).is_some_and(|pending| pending.is_answered)
    }

    /// The connection with this number.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&T> {
        Some(&self.pending.get(&number)?.connection)
    }

    /// The connection with this number.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        Some(&mut self.pending.get_mut(&number)?.connection)
    }

    /// Takes a connection out.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        Some(self.pending.remove(&number)?.connection)
    }

    /// The connection to be closed because there are too many: the oldest silent one, or the oldest one that was answered.
    #[must_use]
    pub fn surplus(&self) -> Option<u64> {
        [false, true].into_iter().find_map(|is_answered| {
            let mut alike = self.pending.iter().filter(|(_, pending)| pending.is_answered == is_answered);
            let (oldest, _) = alike.next()?;
            (alike.count() >= self.most).then_some(*oldest)
        })
    }

    /// The oldest connection, if any.
    #[must_use]
    pub fn oldest(&self) -> Option<u64> {
        self.pending.first_key_value().map(|(number, _)| *number)
    }

    /// Drops the connections that do not suit.
    pub fn retain(&mut self, suits: impl Fn(&T) -> bool) {
        self.pending.retain(|_, pending| suits(&pending.connection));
    }

    /// All connections with their numbers, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.pending.iter().map(|(number, pending)| (*number, &pending.connection))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn oldest_silent_connection_is_surplus_and_answered_one_is_spared() {
        let mut queue = Unproven::new(3);
        let peer = queue.add('p');
        queue.set_answered(peer);
        let silent: Vec<u64> = (0..3).map(|_| queue.add('s')).collect();
        assert_eq!(queue.surplus(), None);
        let newest = queue.add('n');
        assert_eq!(queue.surplus(), Some(silent[0]));
        assert_eq!((queue.remove(silent[0]), queue.surplus()), (Some('s'), None));
        // A stranger repeats the first message of a peer.
        let repeated: Vec<u64> = (0..3).map(|_| queue.add('r')).collect();
        repeated.iter().for_each(|number| queue.set_answered(*number));
        assert_eq!((queue.surplus(), queue.oldest()), (Some(peer), Some(peer)));
        assert!(queue.is_answered(peer) && !queue.is_answered(newest));
        assert_eq!(queue.get(newest), Some(&'n'));
        assert_eq!(queue.get_mut(silent[0]), None);
        queue.retain(|connection| *connection == 'n');
        assert_eq!(queue.iter().collect::<Vec<_>>(), [(newest, &'n')]);
    }
}
