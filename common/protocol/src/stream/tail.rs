//! A rank's last words: the end of its standard error, kept by the agent so that the report can quote it even where the
//! output itself went to a file, a pager or nowhere.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use rlaunch_base::os_bytes::Visible;

/// How much is kept of a rank's standard error.
pub const TAIL: usize = 2 << 10;
/// The longest line of a report, in characters.
const MAX_CHARS: usize = 200;

/// The last [`TAIL`] bytes of a stream. A rank that never writes costs no memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tail {
    /// Grows up to `TAIL` bytes; from then on a ring.
    ring: Vec<u8>,
    /// The index of the oldest byte of a full ring.
    oldest: usize,
}

impl Tail {
    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { ring: Vec::new(), oldest: 0 }
    }

    /// Takes what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        let Some(first) = bytes.len().checked_sub(TAIL) else { return self.push_short(bytes) };
        self.ring.clear();
        self.ring.extend_from_slice(bytes.get(first..).unwrap_or_default());
        self.oldest = 0;
    }

    /// Fewer bytes than the ring holds.
    fn push_short(&mut self, bytes: &[u8]) {
        let (new, over) = bytes.split_at(bytes.len().min(TAIL - self.ring.len()));
        self.ring.extend_from_slice(new);
        let (end, start) = over.split_at(over.len().min(TAIL - self.oldest));
        for (at, part) in [(self.oldest, end), (0, start)] {
            if let Some(place) = self.ring.get_mut(at..at + part.len()) {
                place.copy_from_slice(part);
            }
        }
        self.oldest = (self.oldest + over.len()) % TAIL;
    }

    /// Returns the kept bytes, oldest first. Frees the memory.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        let mut ring = core::mem::take(&mut self.ring);
        ring.rotate_left(core::mem::take(&mut self.oldest));
        ring
    }
}

/// The last `n` lines of a tail that are not blank, as a report shows them: of a line that was overwritten by carriage
/// returns (a progress bar) what was left standing, at most 200 characters, nothing that could drive a terminal.
#[must_use]
pub fn last_lines(bytes: &[u8], n: usize) -> Vec<String> {
    let mut lines: Vec<_> = bytes.rsplit(|&b| b == b'\n').filter_map(visible_line).take(n).collect();
    lines.reverse();
    lines
}

fn visible_line(line: &[u8]) -> Option<String> {
    let standing = line.rsplit(|&b| b == b'\r').find(|part| !part.trim_ascii().is_empty())?;
    let mut short = Short { text: String::new(), chars: 0 };
    // `Short` stops the rendering of a longer line by an error, which is the expected end here.
    if write!(short, "{}", Visible(standing.trim_ascii_end())).is_err() {
        short.text.push('…');
    }
    Some(short.text)
}

/// Takes characters up to a limit, with one kept free for the mark of a cut.
struct Short {
    text: String,
    chars: usize,
}

impl Write for Short {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        for c in s.chars() {
            if self.chars == MAX_CHARS {
                self.text.pop();
                return Err(core::fmt::Error);
            }
            self.text.push(c);
            self.chars += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn an_unused_tail_owns_nothing() {
        let mut tail = Tail::new();
        tail.push(b"");
        assert_eq!(tail.ring.capacity(), 0);
        tail.push(b"x");
        assert_eq!(tail.take(), b"x");
        assert_eq!((tail.ring.capacity(), tail.take()), (0, vec![]));
    }

    #[test]
    fn the_last_lines_of_a_traceback() {
        let bytes = b"one\n\nTraceback:\n  File \"a.py\"\r\nValueError: \x1b[31mbad\xff\xc3\xa9\n  \n";
        assert_eq!(last_lines(bytes, 3), ["Traceback:", "  File \"a.py\"", "ValueError: \\u{1b}[31mbad\\xffé"]);
        assert_eq!(last_lines(b"no newline", 3), ["no newline"]);
        assert_eq!(last_lines(b"a\nb", 0), [""; 0]);
        assert_eq!(last_lines(b"10%\r20%\r30%\rdone\r\nend\n", 2), ["done", "end"]);
    }

    #[test]
    fn long_lines_are_cut_with_a_mark() {
        let of = |len: usize| last_lines("é".repeat(len).as_bytes(), 1).remove(0);
        assert_eq!(of(200), "é".repeat(200));
        assert_eq!(of(201), "é".repeat(199) + "…");
    }

    proptest! {
        #[test]
        fn keeps_the_end_for_any_chunking(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 0..12)) {
            let mut tail = Tail::new();
            for chunk in &chunks {
                tail.push(chunk);
            }
            let all = chunks.concat();
            prop_assert_eq!(tail.take(), &all[all.len().saturating_sub(TAIL)..]);
        }

        #[test]
        fn shows_nothing_that_drives_a_terminal(bytes: Vec<u8>, n in 0usize..5) {
            let lines = last_lines(&bytes, n);
            prop_assert!(lines.len() <= n);
            for line in lines {
                prop_assert!(!line.is_empty() && line.chars().count() <= MAX_CHARS && !line.contains(char::is_control));
            }
        }
    }
}
