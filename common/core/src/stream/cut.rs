//! Cuts what a rank writes into pieces that may be mixed with other ranks' pieces: the agent's half of "a line is never
//! torn".
//!
//! A *raw* stream is not cut: the pump sends each chunk as it was read, and nothing here touches the bytes. A *labelled* stream goes
//! through [`Lines`]: every line gets its rank's label, and a line of up to [`LINE_MAX`] bytes is held until it is complete. Three things
//! leave a line unfinished on the wire. Each sets [`Cut::more`] (the frame flag MORE), so that the launcher keeps other streams out of
//! it:
//!
//! - the line is longer than `LINE_MAX`, or its label and itself are longer than a frame;
//! - it is a prompt: nothing came after it for [`PATIENCE`], and a user may be waiting to read it;
//! - the process ended without a newline. Then one is added, or the next rank's line would be glued to it. This is the
//!   only byte, labels apart, that the rank did not write.

use crate::stream::label::{Label, MAX_LABEL};
use crate::time::Span;
use alloc::boxed::Box;
use alloc::vec::Vec;
use memchr::memchr;

/// The longest line, with its newline, that is held until it is complete.
pub const LINE_MAX: usize = 64 << 10;
/// How long a partial line is held.
pub const PATIENCE: Span = Span::from_millis(200);
/// Progress needs room for a label and a byte of its line. Every window allows much longer frames.
const MIN_FRAME: usize = MAX_LABEL + 1;

/// The processing of one stream of a rank.
#[derive(Debug)]
pub enum Cutter {
    /// Bytes pass as they are.
    Raw,
    /// Whole lines with labels. Boxed: a raw stream of an idle rank pays nothing for it.
    Lines(Box<Lines>),
}

/// The bytes that a call left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// `out` is full: send it, clear it, and make the same call again.
    pub full: bool,
    /// The last byte that was ever appended is inside a line: the frame that ends here carries the flag MORE.
    pub more: bool,
    /// Whether the start of a line is held back.
    pub held: Held,
}

/// The start of a line that is held back until its end comes, or until [`PATIENCE`] is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// No: no timer is needed.
    Nothing,
    /// They came in this call: start the timer anew.
    Begun,
    /// They were held before this call: a running timer continues.
    Still,
}

impl Cutter {
    /// Whether the pump can send what it reads without asking.
    #[must_use]
    pub const fn is_raw(&self) -> bool {
        matches!(self, Self::Raw)
    }

    /// Takes bytes from the front of `chunk` and appends to `out`, whose length stays within `max`, what can be sent now.
    /// Unless the answer is `full`, all of `chunk` was taken; if it is, the same call comes next. `out` may hold what earlier
    /// calls appended. `max` is a frame's body, at least 257.
    ///
    /// ```text
    /// loop {
    ///     let cut = cutter.push(&mut chunk, &mut out, max);
    ///     if !out.is_empty() { send(&out, cut.more); out.clear() }
    ///     if !cut.full { break cut.held }
    /// }
    /// ```
    #[must_use]
    pub fn push(&mut self, chunk: &mut &[u8], out: &mut Vec<u8>, max: usize) -> Cut {
        match self {
            Self::Raw => {
                let max = max.max(MIN_FRAME);
                out.extend_from_slice(take(chunk, max.saturating_sub(out.len())));
                Cut { full: !chunk.is_empty(), more: false, held: Held::Nothing }
            }
            Self::Lines(lines) => lines.push(chunk, out, max),
        }
    }

    /// A partial line was held for [`PATIENCE`]: gives it out. The rest of that line follows without a label.
    #[must_use]
    pub fn flush(&mut self, out: &mut Vec<u8>, max: usize) -> Cut {
        match self {
            Self::Raw => Cut { full: false, more: false, held: Held::Nothing },
            Self::Lines(lines) => lines.flush(out, max),
        }
    }

    /// The stream is at its end: gives out what is held, and completes a partial line by a newline.
    #[must_use]
    pub fn end(&mut self, out: &mut Vec<u8>, max: usize) -> Cut {
        match self {
            Self::Raw => Cut { full: false, more: false, held: Held::Nothing },
            Self::Lines(lines) => lines.end(out, max),
        }
    }
}

/// Whole lines with a label. Owns memory only for its label and for a line that is not complete.
#[derive(Debug)]
pub struct Lines {
    label: Label,
    /// The start of a line that was not sent. Where the line is `open`, what is left of it to be sent.
    held: Vec<u8>,
    /// How much of `held` was sent.
    sent: usize,
    /// The last byte sent is inside a line.
    open: bool,
}

impl Lines {
    /// A stream whose lines begin with `label`.
    #[must_use]
    pub const fn new(label: Label) -> Self {
        Self { label, held: Vec::new(), sent: 0, open: false }
    }

    fn push(&mut self, chunk: &mut &[u8], out: &mut Vec<u8>, max: usize) -> Cut {
        let max = max.max(MIN_FRAME);
        loop {
            if self.open && !self.finish_line(chunk, out, max) {
                return self.cut(!chunk.is_empty(), Held::Still);
            }
            if self.held.is_empty() {
                self.whole_lines(chunk, out, max);
            }
            if chunk.is_empty() {
                return self.cut(false, Held::Still);
            }
            let in_chunk = memchr(b'\n', chunk).map(|at| at + 1);
            let len = self.held.len() + in_chunk.unwrap_or(chunk.len());
            if in_chunk.is_none() && len < LINE_MAX {
                let held = if self.held.is_empty() { Held::Begun } else { Held::Still };
                self.held.extend_from_slice(take(chunk, usize::MAX));
                return self.cut(false, held);
            }
            if !self.begin_line(len, out, max) {
                return self.cut(true, Held::Still);
            }
        }
    }

    fn flush(&mut self, out: &mut Vec<u8>, max: usize) -> Cut {
        let max = max.max(MIN_FRAME);
        if self.held.is_empty() {
            return self.cut(false, Held::Nothing);
        }
        let full = !(self.open || self.begin_line(self.held.len(), out, max)) || !self.send_held(out, max);
        self.cut(full, Held::Still)
    }

    fn end(&mut self, out: &mut Vec<u8>, max: usize) -> Cut {
        if self.open || !self.held.is_empty() {
            // A repeated call finds the line complete, or where it stopped.
            self.push(&mut &b"\n"[..], out, max)
        } else {
            self.cut(false, Held::Nothing)
        }
    }

    const fn cut(&self, full: bool, held: Held) -> Cut {
        let nothing = self.open || self.held.is_empty();
        Cut { full, more: self.open, held: if nothing { Held::Nothing } else { held } }
    }

    /// The common case: takes lines that are complete in `chunk` and fit into what is left of the frame.
    fn whole_lines(&self, chunk: &mut &[u8], out: &mut Vec<u8>, max: usize) {
        let label = self.label.as_slice();
        while let Some(at) = memchr(b'\n', chunk) {
            if label.len() + at >= max.saturating_sub(out.len()) {
                return;
            }
            out.extend_from_slice(label);
            out.extend_from_slice(take(chunk, at + 1));
        }
    }

    /// Begins a line of which `len` bytes are known. `false`: not in this frame, because it fits into one of its own, or
    /// because a line that fits into none begins with as much of it as possible.
    fn begin_line(&mut self, len: usize, out: &mut Vec<u8>, max: usize) -> bool {
        let needed = (self.label.as_slice().len() + len).min(max);
        if needed > max.saturating_sub(out.len()) {
            return false;
        }
        out.extend_from_slice(self.label.as_slice());
        self.open = true;
        true
    }

    /// Goes on with an open line; `true` once its newline was appended.
    fn finish_line(&mut self, chunk: &mut &[u8], out: &mut Vec<u8>, max: usize) -> bool {
        if !self.send_held(out, max) {
            return false;
        }
        let mut room = chunk.get(..max.saturating_sub(out.len())).unwrap_or(chunk);
        let newline = memchr(b'\n', room);
        let part = take(&mut room, newline.map_or(usize::MAX, |at| at + 1));
        out.extend_from_slice(take(chunk, part.len()));
        self.open = newline.is_none();
        !self.open
    }

    /// Sends what was held of an open line; `true` once nothing is left of it and its memory is free.
    fn send_held(&mut self, out: &mut Vec<u8>, max: usize) -> bool {
        let mut rest = self.held.get(self.sent..).unwrap_or_default();
        let part = take(&mut rest, max.saturating_sub(out.len()));
        out.extend_from_slice(part);
        self.sent += part.len();
        if rest.is_empty() {
            self.held = Vec::new();
            self.sent = 0;
        }
        self.held.is_empty()
    }
}

/// Takes up to `n` bytes from the front.
fn take<'a>(from: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (front, rest) = from.split_at(n.min(from.len()));
    *from = rest;
    front
}

#[cfg(test)]
mod tests;
