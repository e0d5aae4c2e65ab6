//! Cuts what a rank writes into pieces that may be mixed with other ranks' pieces: the agent's half of "a line is never
//! torn".
//!
//! A *raw* stream is not cut: the pump sends each chunk as it was read, and nothing here touches the bytes. Every other stream goes
//! through [`Lines`]: a line of up to [`LINE_MAX`] bytes is held until it is complete, and gets its rank's label if there is one. A
//! carriage return ends a line, too: at a terminal the next text, with its label, overwrites the line. Three things leave a line
//! unfinished on the wire. Each sets [`Cut::more`] (the frame flag MORE), so that the launcher keeps other streams out of it:
//!
//! - the line is longer than `LINE_MAX`, or its label and itself are longer than a frame;
//! - it is a prompt: nothing came after it for [`PATIENCE`], and a user may be waiting to read it;
//! - the process ended without a newline. If lines have labels, a newline is added, or the next rank's line would be glued to it.
//!   Without labels no byte is added: the output is exactly what the rank wrote.

use crate::stream::label::{Label, MAX_LABEL};
use alloc::boxed::Box;
use alloc::vec::Vec;
use memchr::{memchr2, memrchr2};
use rlaunch_base::time::Span;

/// The longest line, with its newline, that is held until it is complete.
pub const LINE_MAX: usize = 64 << 10;
/// How long a partial line is held.
pub const PATIENCE: Span = Span::from_millis(200);
/// Progress needs room for a label and a byte of its line. Every window allows much longer frames.
const MIN_FRAME: usize = MAX_LABEL + 1;
/// The longest start of a line that is copied into the next frame before more is read: reads of few bytes shall not copy it often.
const SHORT: usize = 1 << 10;

/// The processing of one stream of a rank.
#[derive(Debug)]
pub enum Cutter {
    /// Bytes pass as they are.
    Raw,
    /// Whole lines, with or without a label. Boxed: a raw stream of an idle rank pays nothing for it.
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

/// The start of a line that is held back until its end comes, or until [`PATIENCE`] has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// No: no timer is needed.
    Nothing,
    /// The start of a line came in this call: start the timer anew.
    Begun,
    /// The start of a line was held before this call: a running timer continues.
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

    /// Whether [`Self::read`] may be called: lines have no label, none is unfinished on the wire, and little is held.
    #[must_use]
    pub fn reads_frames(&self) -> bool {
        match self {
            Self::Raw => false,
            Self::Lines(lines) => !lines.is_labelled() && !lines.open && lines.held.len() <= SHORT,
        }
    }

    /// Has `read` append bytes to `out`, an empty frame, after the start of a line that is held: so whole lines are not copied. Bytes after
    /// the last whole line are held.
    #[must_use]
    pub fn read<R>(&mut self, out: &mut Vec<u8>, read: impl FnOnce(&mut Vec<u8>) -> R) -> (R, Cut) {
        match self {
            Self::Raw => (read(out), Cut { full: false, more: false, held: Held::Nothing }),
            Self::Lines(lines) => lines.read(out, read),
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

    /// Whether a label stands before each line.
    #[must_use]
    pub fn is_labelled(&self) -> bool {
        match self {
            Self::Raw => false,
            Self::Lines(lines) => lines.is_labelled(),
        }
    }

    /// The stream is at its end: gives out what is held, and completes a partial line with a label by a newline.
    #[must_use]
    pub fn end(&mut self, out: &mut Vec<u8>, max: usize) -> Cut {
        match self {
            Self::Raw => Cut { full: false, more: false, held: Held::Nothing },
            Self::Lines(lines) => lines.end(out, max),
        }
    }
}

/// Whole lines. Owns memory only for its label and for a line that is not complete.
#[derive(Debug)]
pub struct Lines {
    label: Label,
    /// The start of a line that was not sent. Where the line is `open`, what is left of it to be sent.
    held: Vec<u8>,
    /// How much of `held` was sent.
    sent: usize,
    /// The last byte sent is inside a line.
    open: bool,
    /// The last byte taken was a carriage return: a newline that follows belongs to the same line.
    cr: bool,
}

impl Lines {
    /// A stream whose lines begin with `label`, which may be empty.
    #[must_use]
    pub const fn new(label: Label) -> Self {
        Self { label, held: Vec::new(), sent: 0, open: false, cr: false }
    }

    fn is_labelled(&self) -> bool {
        !self.label.as_slice().is_empty()
    }

    fn push(&mut self, chunk: &mut &[u8], out: &mut Vec<u8>, max: usize) -> Cut {
        let max = max.max(MIN_FRAME);
        if self.cr && !self.finish_cr(chunk, out, max) {
            return self.cut(true, Held::Still);
        }
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
            let in_chunk = line_end(chunk);
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

    fn read<R>(&mut self, out: &mut Vec<u8>, read: impl FnOnce(&mut Vec<u8>) -> R) -> (R, Cut) {
        let before = self.held.len();
        out.extend_from_slice(&self.held);
        let done = read(out);
        let new = out.get(before..).unwrap_or_default();
        if new.is_empty() {
            out.clear();
            return (done, self.cut(false, Held::Still));
        }
        let (end, held) = match memrchr2(b'\n', b'\r', new) {
            Some(at) => (before + at + 1, Held::Begun),
            None if out.len() >= LINE_MAX => (out.len(), Held::Nothing),
            None => (0, if before == 0 { Held::Begun } else { Held::Still }),
        };
        let tail = out.get(end..).unwrap_or_default();
        self.held.clear();
        self.held.extend_from_slice(tail);
        if tail.is_empty() {
            self.held = Vec::new();
        }
        out.truncate(end);
        self.cr = self.held.is_empty() && out.last() == Some(&b'\r');
        self.open = !matches!(out.last(), None | Some(b'\n' | b'\r'));
        (done, self.cut(false, held))
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
        // A repeated call finds the line complete, or where it stopped.
        if !self.is_labelled() {
            let cut = self.flush(out, max);
            self.open &= cut.full;
            Cut { more: self.open, ..cut }
        } else if self.open || self.cr || !self.held.is_empty() {
            self.push(&mut &b"\n"[..], out, max)
        } else {
            self.cut(false, Held::Nothing)
        }
    }

    /// Takes the newline of a line that ended by a carriage return in the chunk before, if it is one. `false`: the frame is full.
    fn finish_cr(&mut self, chunk: &mut &[u8], out: &mut Vec<u8>, max: usize) -> bool {
        if chunk.first() == Some(&b'\n') {
            if out.len() >= max {
                return false;
            }
            out.extend_from_slice(take(chunk, 1));
            self.cr = false;
        }
        self.cr &= chunk.is_empty();
        true
    }

    const fn cut(&self, full: bool, held: Held) -> Cut {
        let nothing = self.open || self.held.is_empty();
        Cut { full, more: self.open, held: if nothing { Held::Nothing } else { held } }
    }

    /// The common case: takes lines that are complete in `chunk` and fit into what is left of the frame.
    fn whole_lines(&mut self, chunk: &mut &[u8], out: &mut Vec<u8>, max: usize) {
        if !self.is_labelled() {
            let room = chunk.get(..max.saturating_sub(out.len())).unwrap_or(chunk);
            let lines = take(chunk, memrchr2(b'\n', b'\r', room).map_or(0, |at| at + 1));
            out.extend_from_slice(lines);
            return self.ended_by(lines, chunk);
        }
        let label = self.label.as_slice();
        let mut last: &[u8] = b"";
        while let Some(len) = line_end(chunk) {
            if label.len() + len > max.saturating_sub(out.len()) {
                break;
            }
            out.extend_from_slice(label);
            last = take(chunk, len);
            out.extend_from_slice(last);
        }
        self.ended_by(last, chunk);
    }

    /// Lines were taken whose last byte is the last of these; `rest` follows.
    fn ended_by(&mut self, lines: &[u8], rest: &[u8]) {
        if let Some(last) = lines.last() {
            self.cr = *last == b'\r' && rest.is_empty();
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

    /// Continues an open line; `true` once its newline was appended.
    fn finish_line(&mut self, chunk: &mut &[u8], out: &mut Vec<u8>, max: usize) -> bool {
        if !self.send_held(out, max) {
            return false;
        }
        let mut room = chunk.get(..max.saturating_sub(out.len())).unwrap_or(chunk);
        let end = line_end(room);
        let part = take(&mut room, end.unwrap_or(usize::MAX));
        out.extend_from_slice(take(chunk, part.len()));
        // A newline that has no room in this frame belongs to the line, too.
        self.open = end.is_none() || (part.ends_with(b"\r") && chunk.starts_with(b"\n"));
        self.ended_by(part, chunk);
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

/// Length of the first line, with what ends it: a newline, a carriage return, or both.
fn line_end(bytes: &[u8]) -> Option<usize> {
    let at = memchr2(b'\n', b'\r', bytes)?;
    let both = bytes.get(at..at + 2) == Some(b"\r\n");
    Some(at + 1 + usize::from(both))
}

/// Takes up to `n` bytes from the front.
fn take<'a>(from: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (front, rest) = from.split_at(n.min(from.len()));
    *from = rest;
    front
}

#[cfg(test)]
mod tests;
