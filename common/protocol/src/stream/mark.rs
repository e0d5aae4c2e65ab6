//! The mark of a new round in the output of a rank: a line of ours, before the first line of its stream in that round.
//!
//! It is put into the bytes as if the rank had written it, so a label stands before it as before any other, and a log file has it too.
//! Raw output is left alone, as is all that a rank says before its first restart. A stream that says nothing in a round
//! has no mark of it. A line that was begun before stays whole: the mark follows it.

use crate::wire::round::RoundMember;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;
use memchr::memchr;
use rlaunch_base::id::{Rank, Round};

/// The line that says where a rank is from here on; `None`: it takes no part any more.
#[must_use]
pub fn line(generation: u32, round: Round, member: &RoundMember, working: u32) -> Option<Box<[u8]>> {
    let (initial, place) = (member.initial, |active: Rank| format!("rank {active} of {working}"));
    let is = match (member.rank, member.active) {
        (None, _) => return None,
        (Some(_), Some(active)) => place(active),
        (Some(_), None) => "in reserve".into(),
    };
    Some(format!("--- g{generation} r{round}: rank {initial} is {is} ---\n").into_bytes().into_boxed_slice())
}

/// The marks of one stream. Without any it owns no memory.
#[derive(Debug, Default)]
pub struct Marks {
    /// The last byte that passed is inside a line.
    open: bool,
    queue: Option<Box<Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    /// From which byte of the stream on it is another round.
    ahead: VecDeque<(u64, Box<[u8]>)>,
    /// That of the round which runs here, until its first line.
    due: Option<Box<[u8]>>,
}

impl Marks {
    /// Output after the first `at` bytes of the stream belongs to another round.
    pub fn begin(&mut self, at: u64, line: Box<[u8]>) {
        let queue = self.queue.get_or_insert_default();
        // No output belongs to the round in between.
        while queue.ahead.back().is_some_and(|(before, _)| *before >= at) {
            queue.ahead.pop_back();
        }
        queue.ahead.push_back((at, line));
    }

    /// The number of bytes that may be read after the first `total` bytes, of at most `max`: no chunk has two rounds.
    #[must_use]
    pub fn room(&self, total: u64, max: usize) -> usize {
        let next = self.queue.as_ref().and_then(|queue| queue.ahead.iter().find(|(at, _)| *at > total));
        next.map_or(max, |(at, _)| usize::try_from(at.saturating_sub(total)).map_or(max, |left| left.min(max)))
    }

    /// Handles bytes that were read after the first `total` bytes: puts a mark in, if one belongs there.
    pub fn pass(&mut self, total: u64, bytes: &mut Vec<u8>) {
        let Some(&last) = bytes.last() else { return };
        let was_open = core::mem::replace(&mut self.open, last != b'\n');
        let Some(queue) = &mut self.queue else { return };
        while queue.ahead.front().is_some_and(|(at, _)| *at <= total) {
            queue.due = queue.ahead.pop_front().map(|(_, line)| line);
        }
        if queue.due.is_some() {
            let begins = if was_open { memchr(b'\n', bytes).map(|at| at.saturating_add(1)) } else { Some(0) };
            if let Some(at) = begins.filter(|at| *at < bytes.len())
                && let Some(line) = queue.due.take()
            {
                bytes.splice(at..at, line);
            }
        }
        if queue.ahead.is_empty() && queue.due.is_none() {
            self.queue = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use proptest::prelude::*;

    fn mark(round: u32) -> Box<[u8]> {
        let rank = Some(Rank::new(1));
        line(0, Round::new(round), &RoundMember { initial: Rank::new(2), rank, active: rank }, 3).unwrap()
    }

    /// The output of a stream of these chunks, read in pieces of at most `max`, where rounds begin at these bytes.
    fn marked(said: &[u8], begins: &[u64], max: usize) -> String {
        let (mut marks, mut out, mut total) = (Marks::default(), Vec::new(), 0);
        begins.iter().zip(1..).for_each(|(at, round)| marks.begin(*at, mark(round)));
        while total < said.len() {
            let n = marks.room(total as u64, max).min(said.len() - total);
            let mut chunk = said[total..total + n].to_vec();
            marks.pass(total as u64, &mut chunk);
            out.extend(chunk);
            total += n;
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_says_who_it_is_in_which_round() {
        assert_eq!(&*mark(4), b"--- g0 r4: rank 2 is rank 1 of 3 ---\n");
        let member = RoundMember { initial: Rank::new(7), rank: Some(Rank::new(3)), active: None };
        assert_eq!(&*line(2, Round::new(1), &member, 3).unwrap(), b"--- g2 r1: rank 7 is in reserve ---\n");
        assert_eq!(line(0, Round::new(1), &RoundMember { rank: None, ..member }, 3), None, "it is sent home");
    }

    #[test]
    fn mark_is_before_first_line_of_round_for_any_reads() {
        for max in 1..12 {
            assert_eq!(marked(b"one\ntwo\nsix\n", &[8], max), "one\ntwo\n--- g0 r1: rank 2 is rank 1 of 3 ---\nsix\n");
            assert_eq!(marked(b"one\ntwo\n", &[0], max), "--- g0 r1: rank 2 is rank 1 of 3 ---\none\ntwo\n");
            assert_eq!(marked(b"one\ntwo\n", &[5], max), "one\ntwo\n", "a line that was begun before is whole");
            assert_eq!(marked(b"ab\nc\n", &[1], max), "ab\n--- g0 r1: rank 2 is rank 1 of 3 ---\nc\n");
            assert_eq!(marked(b"ab\n", &[3], max), "ab\n", "nothing was said in that round");
        }
    }

    #[test]
    fn a_round_in_which_nothing_was_said_has_no_mark() {
        let text = marked(b"ab\ncd\nef\n", &[3, 3, 6, 9], 64);
        assert_eq!(text, "ab\n--- g0 r2: rank 2 is rank 1 of 3 ---\ncd\n--- g0 r3: rank 2 is rank 1 of 3 ---\nef\n");
    }

    #[test]
    fn without_a_round_nothing_is_touched_or_kept() {
        let mut marks = Marks::default();
        let mut bytes = b"ab\ncd".to_vec();
        marks.pass(0, &mut bytes);
        assert_eq!((bytes.as_slice(), marks.room(5, 9), marks.queue.is_none()), (&b"ab\ncd"[..], 9, true));
        marks.begin(5, mark(1));
        let mut bytes = b"ef\n".to_vec();
        marks.pass(5, &mut bytes);
        assert_eq!(bytes, b"ef\n");
        let mut bytes = b"gh\n".to_vec();
        marks.pass(8, &mut bytes);
        assert!(bytes.starts_with(b"--- g0 r1") && marks.queue.is_none(), "what is done is forgotten");
    }

    proptest! {
        #[test]
        fn marked_stream_keeps_all_bytes_in_order(
            said in "[a\n]{0,40}", begins in proptest::collection::vec(0u64..44, 0..5), max in 1usize..50,
        ) {
            let mut begins = begins;
            begins.sort_unstable();
            let text = marked(said.as_bytes(), &begins, max);
            let rest: String = text.split_inclusive('\n').filter(|line| !line.starts_with('-')).collect();
            prop_assert_eq!(rest, said);
            prop_assert!(text.lines().all(|line| line.starts_with("--- g0 ") || !line.contains('-')), "{:?}", text);
        }
    }
}
