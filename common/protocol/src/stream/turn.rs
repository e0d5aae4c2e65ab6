//! Whose turn it is to write: the launcher's half of "a line is never torn". There is one [`Turn`] for each descriptor to
//! which labelled streams are written; raw streams need none.
//!
//! A piece with the flag MORE leaves a line open, and until that line is complete only its own stream is written. All others wait in the
//! order of their arrival. They do not wait for ever: a line that keeps others waiting for too long is broken. The reader sees `…` and a
//! newline there, and where the line continues its label and `…` again.
//!
//! The meaning of "too long" depends on the cause. A rank that does not finish its line has [`PATIENCE`] of the time in which the sink
//! had nothing else to write. A slow reader (a pager, Ctrl-S) uses up none of it: otherwise lines would be torn just because the terminal
//! was stopped. A line that is longer than any that is promised to be whole (more than [`LONG`] pieces) has `PATIENCE` of the time in
//! which the sink took anything. So the sink's state has to be reported: [`Turn::sink`].

use crate::wire::frame::Flags;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use rlaunch_base::id::StreamId;
use rlaunch_base::time::{Mono, Span};

/// How long an unfinished line may keep others waiting.
pub const PATIENCE: Span = Span::from_millis(200);
/// Pieces of a line after which its stream is no longer waited for. A line of 64 KiB has fewer, even where frames are as
/// short as the smallest window makes them.
pub const LONG: u32 = 32;

/// The next write of the sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write<P> {
    /// A piece of a stream, possibly empty.
    Piece(StreamId, P),
    /// The open line is broken: write `…` and a newline.
    BreakMark,
    /// The next piece continues a line that was broken: write the stream's label and `…`.
    ContinueMark(StreamId),
    /// The stream ended inside a line (its node was lost): write a newline.
    LineEnd,
}

/// The order of writes to one descriptor. `P` is what the sink calls a piece.
#[derive(Debug)]
pub struct Turn<P> {
    /// Decided, to be written in this order.
    ready: VecDeque<Write<P>>,
    waiting: BTreeMap<StreamId, Queue<P>>,
    /// A ticket for each waiting piece, in the order of arrival.
    tickets: VecDeque<StreamId>,
    /// Pieces in `waiting`.
    count: usize,
    /// The stream whose line is open after all that is ready.
    line: Option<Line>,
    /// Streams whose line was broken and did not continue yet.
    torn: BTreeSet<StreamId>,
    broken: u64,
    /// Streams whose line was broken since it was asked.
    news: Vec<Broken>,
    pace: Pace,
    /// When `sink` was called last.
    seen: Mono,
}

/// A line that was broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken {
    /// Whose.
    pub stream: StreamId,
    /// Whether more of it is here already, and waits for the others.
    pub waits: bool,
}

/// The state of the sink.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pace {
    /// The sink has written all that it was given.
    #[default]
    Idle,
    /// The sink writes.
    Writing,
    /// The sink has not written all, and nothing since the last call: its reader takes nothing.
    Stuck,
}

#[derive(Debug)]
struct Queue<P> {
    pieces: VecDeque<(Flags, P)>,
    /// Tickets whose pieces went out of turn, since they belonged to the open line.
    void: usize,
}

#[derive(Debug)]
struct Line {
    stream: StreamId,
    /// Since others wait for it.
    patience: Option<Patience>,
}

/// How much longer others wait for an open line.
#[derive(Debug)]
struct Patience {
    /// Since when they wait, later by the time in which the sink was stuck.
    since: Mono,
    /// Pieces of the line written meanwhile.
    pieces: u32,
    /// Time that the line's stream may still waste.
    left: Span,
    /// When it is wasted; runs while the sink has nothing to write.
    until: Option<Mono>,
}

impl<P> Default for Turn<P> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            waiting: BTreeMap::new(),
            tickets: VecDeque::new(),
            count: 0,
            line: None,
            torn: BTreeSet::new(),
            broken: 0,
            news: Vec::new(),
            pace: Pace::Idle,
            seen: Mono::from_nanos(0),
        }
    }
}

impl<P: AsRef<[u8]>> Turn<P> {
    /// Nothing to write.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A frame came in. Where a stream ends without a frame (its node was lost), push an empty piece with END.
    pub fn push(&mut self, stream: StreamId, flags: Flags, piece: P) {
        if self.count == 0 && self.line.as_ref().is_none_or(|line| line.stream == stream) {
            return self.admit(stream, flags, piece);
        }
        self.count += 1;
        self.tickets.push_back(stream);
        let queue = self.waiting.entry(stream).or_insert_with(|| Queue { pieces: VecDeque::new(), void: 0 });
        queue.pieces.push_back((flags, piece));
    }

    /// Sets the state of the sink. Before asking what to write next, and as soon as it has become idle. Matters only while
    /// [`Self::is_kept_waiting`].
    pub fn sink(&mut self, now: Mono, pace: Pace) {
        if let Some(patience) = self.line.as_mut().and_then(|line| line.patience.as_mut()) {
            if pace == Pace::Stuck {
                patience.since = patience.since + now.since(self.seen);
            }
            if pace != Pace::Idle {
                patience.pause(now);
            }
        }
        (self.pace, self.seen) = (pace, now);
    }

    /// Returns the next write. `None`: nothing before the next `push`, [`Self::poll_timeout`], or change of the sink's pace.
    #[must_use]
    pub fn pop(&mut self, now: Mono) -> Option<Write<P>> {
        if self.ready.is_empty() {
            self.advance(now);
        }
        let write = self.ready.pop_front();
        if write.is_some() && self.pace == Pace::Idle {
            self.pace = Pace::Writing;
        }
        write
    }

    /// When to ask again although nothing came and the sink is as idle as before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.line.as_ref()?.patience.as_ref()?.until
    }

    /// A line that was broken, once each: its node has to know that others go first now.
    #[must_use]
    pub fn take_broken(&mut self) -> Option<Broken> {
        self.news.pop()
    }

    /// Whether a stream waits for the end of another's line: the sink's state matters only then.
    #[must_use]
    pub const fn is_kept_waiting(&self) -> bool {
        self.line.is_some() && self.count > 0
    }

    /// How many lines were broken.
    #[must_use]
    pub const fn broken(&self) -> u64 {
        self.broken
    }

    /// Whether all that was pushed was popped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.count == 0
    }

    /// Makes the next piece ready, if there is one whose turn it is.
    fn advance(&mut self, now: Mono) {
        let Some(line) = &mut self.line else {
            if let Some(stream) = self.next_ticket() {
                self.take(stream, false);
            }
            return;
        };
        let stream = line.stream;
        let own = self.waiting.get(&stream).map(|queue| &queue.pieces);
        let own_count = own.map_or(0, VecDeque::len);
        let closes = own.and_then(VecDeque::front).is_some_and(|(flags, _)| !flags.has(Flags::MORE));
        let others = self.count > own_count;
        if others && !closes && !line.may_go_on(now, own_count > 0, self.pace == Pace::Idle) {
            self.break_line(stream);
        } else if own_count > 0 {
            self.take(stream, true);
        }
    }

    /// Breaks the open line of `stream`, as other streams wait. Its next pieces go to the end, even those that came before other streams'
    /// pieces. Otherwise an endless line would be broken once for each stream.
    fn break_line(&mut self, stream: StreamId) {
        self.line = None;
        self.torn.insert(stream);
        self.broken += 1;
        let waits = self.waiting.get(&stream).is_some_and(|queue| !queue.pieces.is_empty());
        self.news.push(Broken { stream, waits });
        self.ready.push_back(Write::BreakMark);
        self.tickets.retain(|ticket| *ticket != stream);
        if let Some(queue) = self.waiting.get_mut(&stream) {
            queue.void = 0;
            self.tickets.extend(queue.pieces.iter().map(|_| stream));
            if queue.pieces.is_empty() {
                self.waiting.remove(&stream);
            }
        }
    }

    /// The stream whose piece waits longest.
    fn next_ticket(&mut self) -> Option<StreamId> {
        while let Some(stream) = self.tickets.pop_front() {
            let Some(queue) = self.waiting.get_mut(&stream) else { continue };
            if queue.void == 0 {
                return Some(stream);
            }
            queue.void -= 1;
            if queue.pieces.is_empty() && queue.void == 0 {
                self.waiting.remove(&stream);
            }
        }
        None
    }

    /// Makes the first waiting piece of `stream` ready; without its ticket if it goes out of turn.
    fn take(&mut self, stream: StreamId, out_of_turn: bool) {
        let Some(queue) = self.waiting.get_mut(&stream) else { return };
        let Some((flags, piece)) = queue.pieces.pop_front() else { return };
        queue.void += usize::from(out_of_turn);
        if queue.pieces.is_empty() && queue.void == 0 {
            self.waiting.remove(&stream);
        }
        self.count -= 1;
        if self.count == 0 {
            self.waiting.clear();
            self.tickets.clear();
        }
        self.admit(stream, flags, piece);
    }

    /// Admits this piece: no other stream's line is open.
    fn admit(&mut self, stream: StreamId, flags: Flags, piece: P) {
        let last = piece.as_ref().last().copied();
        let open = if last.is_some() { flags.has(Flags::MORE) } else { self.line.is_some() };
        if last.is_some() && self.torn.remove(&stream) {
            self.ready.push_back(Write::ContinueMark(stream));
        }
        self.ready.push_back(Write::Piece(stream, piece));
        if flags.has(Flags::END) {
            self.torn.remove(&stream);
            if open {
                self.ready.push_back(Write::LineEnd);
            }
            self.line = None;
        } else if !open {
            self.line = None;
        } else if self.line.is_none() {
            self.line = Some(Line { stream, patience: None });
        }
    }
}

impl Line {
    /// Asked when others wait: whether the line stays open. `own`: a piece of it is there, and goes out if it may.
    fn may_go_on(&mut self, now: Mono, own: bool, idle: bool) -> bool {
        let new = Patience { since: now, pieces: 0, left: PATIENCE, until: None };
        let patience = self.patience.get_or_insert(new);
        if own {
            patience.pause(now);
            patience.pieces = patience.pieces.saturating_add(1);
            return patience.pieces <= LONG || now < patience.since + PATIENCE;
        }
        if !idle {
            return true;
        }
        now < *patience.until.get_or_insert(now + patience.left)
    }
}

impl Patience {
    /// Counts the time that was wasted up to now.
    fn pause(&mut self, now: Mono) {
        if let Some(until) = self.until.take() {
            self.left = until.since(now);
        }
    }
}

#[cfg(test)]
mod tests;
