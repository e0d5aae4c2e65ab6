//! Which lines of a node are open on the edge, and so which of its streams may use the last of its credit: the agent's view
//! of the launcher's [`super::turn`].
//!
//! Pieces of a line whose turn has not come wait in the launcher and keep their part of the window. If they could take all
//! of it, the line that has the turn would get no credit to continue, and would have to be broken for that alone. So half of
//! the window is kept for it. Lines get their turn in the order in which they were begun on the edge: the agent knows it,
//! and only a broken line is news to it.

use crate::stream::turn::Broken;
use crate::wire::frame::Flags;
use alloc::collections::VecDeque;
use rlaunch_base::id::{Std, StreamId};

/// The open lines of stdout and of stderr, in the order in which they get their turn.
#[derive(Debug, Default)]
pub struct OpenLines {
    out: VecDeque<StreamId>,
    err: VecDeque<StreamId>,
}

impl OpenLines {
    /// A frame of a labelled stream was sent.
    pub fn sent(&mut self, stream: StreamId, flags: Flags, body: usize) {
        let Some(lines) = self.of(stream) else { return };
        let more = flags.has(Flags::MORE) && !flags.has(Flags::END);
        let at = lines.iter().position(|open| *open == stream);
        match at {
            None if more => lines.push_back(stream),
            Some(at) if !more && (body > 0 || flags.has(Flags::END)) => drop(lines.remove(at)),
            None | Some(_) => {}
        }
    }

    /// The launcher has broken this stream's line: all others go first.
    pub fn broken(&mut self, broken: Broken) {
        let Broken { stream, waits } = broken;
        let Some(lines) = self.of(stream) else { return };
        if let Some(at) = lines.iter().position(|open| *open == stream) {
            lines.remove(at);
            if waits {
                lines.push_back(stream);
            }
        }
    }

    /// Whether a frame of this stream would not wait for the end of another stream's line.
    #[must_use]
    pub fn has_turn(&self, stream: StreamId) -> bool {
        let lines = match stream.std() {
            Std::In => return true,
            Std::Out => &self.out,
            Std::Err => &self.err,
        };
        lines.front().is_none_or(|first| *first == stream)
    }

    fn of(&mut self, stream: StreamId) -> Option<&mut VecDeque<StreamId>> {
        match stream.std() {
            Std::In => None,
            Std::Out => Some(&mut self.out),
            Std::Err => Some(&mut self.err),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::turn::{Pace, Turn, Write};
    use crate::stream::window::{Grants, Window, cost, frame_max, has_plenty, size};
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use rlaunch_base::id::ProcId;
    use rlaunch_base::time::Mono;

    fn id(n: u32) -> StreamId {
        StreamId::of(ProcId::new(n), Std::Out)
    }

    #[test]
    fn the_first_line_that_is_open_has_the_turn() {
        let mut lines = OpenLines::default();
        let err = StreamId::of(ProcId::new(1), Std::Err);
        assert!(lines.has_turn(id(1)) && lines.has_turn(err));
        lines.sent(id(0), Flags::NONE, 5);
        assert!(lines.has_turn(id(1)));
        lines.sent(id(0), Flags::MORE, 5);
        lines.sent(id(1), Flags::MORE, 5);
        lines.sent(id(0), Flags::MORE, 5);
        lines.sent(id(0), Flags::NONE, 0);
        assert_eq!([0, 1, 2].map(|n| lines.has_turn(id(n))), [true, false, false]);
        assert!(lines.has_turn(err), "stderr is another matter");
        lines.broken(Broken { stream: id(0), waits: true });
        lines.broken(Broken { stream: id(7), waits: true });
        assert_eq!([0, 1].map(|n| lines.has_turn(id(n))), [false, true]);
        lines.sent(id(1), Flags::END, 0);
        assert_eq!([0, 3].map(|n| lines.has_turn(id(n))), [true, false]);
        lines.broken(Broken { stream: id(0), waits: false });
        assert!(lines.has_turn(id(3)), "it takes part again with its next piece");
        lines.sent(id(0), Flags::MORE, 5);
        assert!(!lines.has_turn(id(3)));
        lines.sent(id(0), Flags::END.and(Flags::MORE), 5);
        assert!(lines.has_turn(id(3)));
    }

    /// Ranks that write lines of these lengths as fast as they can, through one window, to a reader that takes all at once.
    /// Rank 0 begins with a prompt that it never finishes. Returns how many lines were broken.
    fn play(nodes: u32, lengths: &[Vec<usize>], prompt: bool) -> Result<u64, TestCaseError> {
        let size = size(nodes);
        let frame = frame_max(size) as usize;
        let (mut window, mut grants) = (Window::new(size), Grants::new(size, size));
        let (mut lines, mut turn) = (OpenLines::default(), Turn::<Vec<u8>>::new());
        let mut ranks: Vec<Vec<usize>> = lengths.to_vec();
        let mut now = 0;
        let mut sent_prompt = !prompt;
        while !turn.is_empty() || ranks.iter().any(|rank| !rank.is_empty()) {
            let mut moved = false;
            for (n, rank) in (0..).zip(&mut ranks) {
                let Some(left) = rank.first_mut() else { continue };
                if prompt && n == 0 && sent_prompt {
                    rank.clear();
                    continue;
                }
                let body = if n == 0 && prompt { 3 } else { frame.min(*left) };
                let may = has_plenty(size, window.room()) || lines.has_turn(id(n));
                if !may || window.room() < cost(frame_max(size)) {
                    continue;
                }
                prop_assert!(window.spend(cost(u32::try_from(body).unwrap())));
                *left -= body.min(*left);
                let more = *left > 0 || (n == 0 && prompt);
                sent_prompt |= n == 0;
                let flags = if more { Flags::MORE } else { Flags::NONE };
                if *left == 0 {
                    rank.remove(0);
                }
                lines.sent(id(n), flags, body);
                turn.push(id(n), flags, vec![b'x'; body]);
                moved = true;
            }
            turn.sink(Mono::from_nanos(now), Pace::Idle);
            while let Some(write) = turn.pop(Mono::from_nanos(now)) {
                turn.sink(Mono::from_nanos(now), Pace::Idle);
                if let Write::Piece(_, piece) = write
                    && let Some(up_to) = grants.written(cost(u32::try_from(piece.len()).unwrap()))
                {
                    window.grant(up_to);
                }
                moved = true;
            }
            while let Some(broken) = turn.take_broken() {
                lines.broken(broken);
            }
            if !moved {
                let Some(at) = turn.poll_timeout() else {
                    prop_assert!(false, "stuck");
                    return Ok(0);
                };
                now = at.nanos();
            }
        }
        Ok(turn.broken())
    }

    proptest! {
        /// Pieces that wait used to take all the credit, and lines were broken because nothing could come of them.
        #[test]
        fn no_line_is_broken_for_want_of_credit(
            nodes in prop_oneof![Just(1u32), 1u32..1000],
            lengths in prop::collection::vec(prop::collection::vec(1usize..400_000, 1..6), 1..24),
            prompt: bool,
        ) {
            let broken = play(nodes, &lengths, prompt && lengths.len() > 1)?;
            prop_assert!(broken <= u64::from(prompt), "{} lines", broken);
        }
    }
}
