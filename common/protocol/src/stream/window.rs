//! Credit: how much output may be under way from a node, so that a slow reader stops the ranks instead of filling our
//! memory. Offsets are absolute, counted from the start of the edge: repeating a grant is harmless, and a grant is also
//! the acknowledgement of what was written.
//!
//! The unit is [`cost`], not bytes alone: a rank that writes single bytes must not hold more of our memory than one that writes blocks.
//!
//! Nothing gets stuck: the launcher keeps back less than a quarter of the window, and the agent's frames cost at most
//! a quarter ([`frame_max`]). So an agent may wait until a whole frame has room, instead of splitting a line where its
//! credit happens to end. And what waits for its turn to be written takes at most half of the window ([`has_plenty`],
//! [`super::lines`]): the rest is for the line that has the turn, or it would never come to its end.

use crate::wire::frame::MAX_DATA;

/// Most bytes that all nodes together may have under way.
const TOTAL: u32 = 8 << 20;
const SMALLEST: u32 = 16 << 10;
const LARGEST: u32 = 1 << 20;
/// Roughly what a queued piece needs beside its bytes.
const PER_FRAME: u32 = 64;

/// The window of each of `nodes` nodes, in bytes of cost.
#[must_use]
pub const fn size(nodes: u32) -> u32 {
    let Some(share) = TOTAL.checked_div(nodes) else { return LARGEST };
    if share < SMALLEST {
        SMALLEST
    } else if share > LARGEST {
        LARGEST
    } else {
        share
    }
}

/// The longest body of a data frame on an edge with a window of `size`.
#[must_use]
pub const fn frame_max(size: u32) -> u32 {
    let most = (size / 4).saturating_sub(PER_FRAME);
    if most < MAX_DATA { most } else { MAX_DATA }
}

/// Whether the longest frame leaves half of a window of `size` free. Always so where all that was sent is written.
#[must_use]
pub const fn has_plenty(size: u32, room: u64) -> bool {
    room >= cost(frame_max(size)) + (size / 2) as u64
}

/// The part of the window that a frame takes.
#[must_use]
pub const fn cost(body: u32) -> u64 {
    body as u64 + PER_FRAME as u64
}

/// The sender's side: what may still be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    granted: u64,
    used: u64,
}

impl Window {
    /// Nothing sent, `initial` granted: the window's size where both sides know it from the start, else 0.
    #[must_use]
    pub const fn new(initial: u32) -> Self {
        Self { granted: initial as u64, used: 0 }
    }

    /// The other side allows everything up to this offset. Never goes back: a late or repeated grant does nothing.
    pub const fn grant(&mut self, up_to: u64) {
        if up_to > self.granted {
            self.granted = up_to;
        }
    }

    /// Returns the number of bytes that may be sent now.
    #[must_use]
    pub const fn room(&self) -> u64 {
        self.granted - self.used
    }

    /// Takes `cost` out of the window; `false`, and nothing is taken, where there is not enough room.
    #[must_use]
    pub const fn spend(&mut self, cost: u64) -> bool {
        let fits = cost <= self.room();
        if fits {
            self.used += cost;
        }
        fits
    }

    /// All that was ever taken.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }
}

/// The receiver's side: what was written and how much more was promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grants {
    size: u32,
    written: u64,
    promised: u64,
}

impl Grants {
    /// For a window of `size`, of which the sender was given `initial` at its start.
    #[must_use]
    pub const fn new(size: u32, initial: u32) -> Self {
        Self { size, written: 0, promised: initial as u64 }
    }

    /// The first grant, where the sender started with less than a window.
    #[must_use]
    pub const fn first(&mut self) -> Option<u64> {
        self.written(0)
    }

    /// `cost` more was written. `Some(up_to)` is a grant to be sent: only once a quarter of the window is free again, so
    /// that a grant answers many lines.
    #[must_use]
    pub const fn written(&mut self, cost: u64) -> Option<u64> {
        self.written += cost;
        if self.freed() == 0 || self.missing() > 0 {
            return None;
        }
        self.promised = self.written + self.size as u64;
        Some(self.promised)
    }

    /// Returns the number that could be granted now.
    const fn freed(&self) -> u64 {
        (self.written + self.size as u64).saturating_sub(self.promised)
    }

    /// Returns how much more must be written before the next grant: a smaller amount need not be announced.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        (self.size as u64 / 4).saturating_sub(self.freed())
    }

    /// The offset up to which the sender was allowed to send: more than that breaks the protocol.
    #[must_use]
    pub const fn promised(&self) -> u64 {
        self.promised
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn windows_share_8_mib() {
        assert_eq!(
            [0, 1, 8, 9, 100, 512, 513, u32::MAX].map(size),
            [1 << 20, 1 << 20, 1 << 20, 932_067, 83_886, 16 << 10, 16 << 10, 16 << 10]
        );
        assert_eq!(frame_max(1 << 20), 64 << 10);
        assert_eq!(frame_max(16 << 10), (4 << 10) - 64);
        assert_eq!(frame_max(0), 0);
    }

    #[test]
    fn a_grant_never_goes_back() {
        let mut w = Window::new(0);
        assert!(!w.spend(1));
        w.grant(100);
        w.grant(100);
        w.grant(40);
        assert_eq!(w.room(), 100);
        assert!(w.spend(100));
        assert_eq!((w.room(), w.used()), (0, 100));
        assert!(!w.spend(1));
        assert!(w.spend(0));
    }

    #[test]
    fn a_grant_is_not_sent_per_line() {
        let mut g = Grants::new(1000, 1000);
        assert_eq!(g.first(), None);
        assert_eq!(g.written(249), None);
        assert_eq!(g.written(1), Some(1250));
        assert_eq!(g.written(0), None);
        assert_eq!(g.written(999), Some(2249));
        assert_eq!(g.promised(), 2249);
        assert_eq!(Grants::new(1000, 0).first(), Some(1000));
    }

    proptest! {
        /// Whatever is sent, late grants and repeated ones included: never more under way than a window, and an agent
        /// that waits for room for a whole frame never waits for ever.
        #[test]
        fn never_more_than_granted_and_never_stuck(
            nodes in 1u32..2000,
            frames in prop::collection::vec((any::<prop::sample::Index>(), 0u8..4), 1..400),
        ) {
            let size = size(nodes);
            let (mut window, mut grants) = (Window::new(size), Grants::new(size, size));
            let (mut queue, mut old) = (VecDeque::new(), Vec::new());
            let (mut sent, mut written) = (0u64, 0u64);
            for (body, drain) in frames {
                let cost = cost(u32::try_from(body.index(frame_max(size) as usize)).unwrap() + 1);
                let mut drain = usize::from(drain);
                while !window.spend(cost) {
                    prop_assert!(!queue.is_empty(), "{cost} do not fit into {} though all is written", window.room());
                    drain = drain.max(1);
                    for done in queue.drain(..drain.min(queue.len())) {
                        written += done;
                        if let Some(up_to) = grants.written(done) {
                            window.grant(up_to);
                            old.push(up_to);
                            window.grant(old[old.len() / 2]);
                        }
                    }
                }
                sent += cost;
                queue.push_back(cost);
                prop_assert_eq!(window.used(), sent);
                prop_assert!(sent <= grants.promised());
                prop_assert!(sent - written <= u64::from(size));
            }
        }
    }
}
