//! Things of clients, found by the client's number in one step: each request of a saturated server looks for its client a dozen times.
//!
//! A client has the place that the low bits of its number say, and numbers are given such that no two have the same.

use alloc::vec::Vec;
use rlaunch_base::id::ClientId;

/// Things by client. The places are a power of two, twice as many as the clients at most; none while there is no client.
#[derive(Debug)]
pub struct Table<T> {
    places: Vec<Option<(ClientId, T)>>,
    len: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { places: Vec::new(), len: 0 }
    }
}

impl<T> Table<T> {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn place(&self, client: ClientId) -> usize {
        client.index() & self.places.len().wrapping_sub(1)
    }

    /// Returns the value of a client.
    #[must_use]
    pub fn get(&self, client: ClientId) -> Option<&T> {
        let (of, what) = self.places.get(self.place(client))?.as_ref()?;
        (*of == client).then_some(what)
    }

    /// Returns the value of a client for changes.
    #[must_use]
    pub fn get_mut(&mut self, client: ClientId) -> Option<&mut T> {
        let place = self.place(client);
        let (of, what) = self.places.get_mut(place)?.as_mut()?;
        (*of == client).then_some(what)
    }

    /// The first number from this one on that a new client may have.
    #[must_use]
    pub fn free_from(&mut self, number: u32) -> ClientId {
        self.make_room();
        let mut client = ClientId::new(number);
        while self.places.get(self.place(client)).is_some_and(Option::is_some) {
            client = ClientId::new(client.get().wrapping_add(1));
        }
        client
    }

    /// Sets the value of a client. Another client at its place means more places: the code that gives numbers by a table which holds all
    /// clients of this one, and more, has them.
    pub fn insert(&mut self, client: ClientId, what: T) {
        self.make_room();
        while self.places.get(self.place(client)).and_then(Option::as_ref).is_some_and(|(of, _)| *of != client) {
            self.resize(self.places.len().saturating_mul(2));
        }
        let place = self.place(client);
        if let Some(there) = self.places.get_mut(place)
            && there.replace((client, what)).is_none()
        {
            self.len = self.len.saturating_add(1);
        }
    }

    /// A client has nothing any more. With the last one all room is given back.
    pub fn remove(&mut self, client: ClientId) -> Option<T> {
        let place = self.place(client);
        let there = self.places.get_mut(place)?;
        let (_, what) = there.take_if(|(of, _)| *of == client)?;
        self.len = self.len.saturating_sub(1);
        if self.len == 0 {
            self.places = Vec::new();
        }
        Some(what)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (ClientId, &T)> {
        self.places.iter().flatten().map(|(client, what)| (*client, what))
    }

    /// All things, of whomever.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.places.into_iter().flatten().map(|(_, what)| what)
    }

    /// That of a client which may have none yet.
    pub fn get_or(&mut self, client: ClientId, first: impl FnOnce() -> T) -> Option<&mut T> {
        if self.get(client).is_none() {
            self.insert(client, first());
        }
        self.get_mut(client)
    }

    fn make_room(&mut self) {
        if self.len.saturating_mul(2) >= self.places.len() {
            self.resize(self.places.len().saturating_mul(2).max(8));
        }
    }

    /// More places. Clients with different low bits differ in more bits too.
    fn resize(&mut self, places: usize) {
        let mut more = Vec::new();
        more.resize_with(places, || None);
        let old = core::mem::replace(&mut self.places, more);
        for (client, what) in old.into_iter().flatten() {
            let place = self.place(client);
            if let Some(there) = self.places.get_mut(place) {
                *there = Some((client, what));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn table_is_a_map_with_any_clients() {
        let (mut table, mut smaller, mut map) = (Table::default(), Table::default(), BTreeMap::new());
        let (mut next, mut state) = (u32::MAX - 40, 7_u32);
        for turn in 0..4000_u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Grows first, then shrinks, and grows again.
            if (state >> 16) % 100 < if turn / 700 % 2 == 0 { 70 } else { 30 } {
                let client = table.free_from(next);
                next = client.get().wrapping_add(1);
                table.insert(client, turn);
                map.insert(client, turn);
                if turn % 3 > 0 {
                    smaller.insert(client, turn);
                }
            } else if let Some(client) = map.keys().nth(state as usize % map.len().max(1)).copied() {
                assert_eq!(table.remove(client), map.remove(&client));
                smaller.remove(client);
                assert!(table.get(client).is_none() && table.remove(client).is_none());
            }
            assert_eq!((table.len(), table.is_empty()), (map.len(), map.is_empty()));
            assert!(map.iter().all(|(client, what)| table.get(*client) == Some(what)), "turn {turn}");
            assert_eq!(table.iter().map(|(client, what)| (client, *what)).collect::<BTreeMap<_, _>>(), map);
            assert!(smaller.places.len() <= table.places.len().max(8));
        }
        map.keys().for_each(|client| *table.get_or(*client, || 0).unwrap() += 1);
        let other = table.free_from(next);
        assert_eq!(table.get_or(other, || 9), Some(&mut 9));
        assert_eq!(table.remove(other), Some(9));
        assert!(map.into_iter().all(|(client, what)| table.remove(client) == Some(what + 1)));
        assert!(table.is_empty() && table.places.is_empty());
    }
}
