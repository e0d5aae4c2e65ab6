//! The guarantees for a reader of labelled output, for any bytes in any chunks.

use super::*;
use crate::stream::label::{Prefix, Who};
use alloc::string::String;
use alloc::vec;
use proptest::prelude::*;
use rlaunch_base::id::{AppIndex, LocalRank, Rank, Std};

fn lines(format: &str) -> Cutter {
    let who = Who {
        group: b"",
        rank: Rank::new(3),
        local_rank: LocalRank::new(3),
        app: AppIndex::new(0),
        host: None,
        pid: None,
        std: Std::Out,
    };
    Cutter::Lines(Box::new(Lines::new(Prefix::parse(format.as_bytes()).unwrap().render(&who).unwrap())))
}

fn memory(cutter: &Cutter) -> usize {
    match cutter {
        Cutter::Raw => 0,
        Cutter::Lines(lines) => lines.held.capacity(),
    }
}

/// The frames of a pump, with their MORE flag.
struct Sent {
    max: usize,
    out: Vec<u8>,
    frames: Vec<(Vec<u8>, bool)>,
    held: Held,
}

impl Sent {
    fn new(max: usize) -> Self {
        Self { max, out: Vec::new(), frames: vec![], held: Held::Nothing }
    }

    fn all(&mut self, mut call: impl FnMut(&mut Vec<u8>, usize) -> Cut) {
        loop {
            let cut = call(&mut self.out, self.max);
            assert!(self.out.len() <= self.max.max(MIN_FRAME));
            if !self.out.is_empty() {
                self.frames.push((core::mem::take(&mut self.out), cut.more));
            }
            self.held = cut.held;
            if !cut.full {
                return;
            }
            assert!(self.frames.len() < 1_000_000, "no progress");
        }
    }

    fn push(&mut self, cutter: &mut Cutter, mut chunk: &[u8]) {
        self.all(|out, max| cutter.push(&mut chunk, out, max));
        assert!(chunk.is_empty());
    }

    /// As a pump that reads into frames, where it can.
    fn read(&mut self, cutter: &mut Cutter, mut chunk: &[u8]) {
        while !chunk.is_empty() {
            if !cutter.reads_frames() || SHORT >= self.max {
                return self.push(cutter, chunk);
            }
            let max = self.max;
            let mut begun = false;
            self.all(|out, _| {
                assert!(!core::mem::replace(&mut begun, true));
                let ((), cut) = cutter.read(out, |out| {
                    let room = max - out.len();
                    out.extend_from_slice(take(&mut chunk, room));
                });
                cut
            });
        }
    }

    fn flush(&mut self, cutter: &mut Cutter) {
        self.all(|out, max| cutter.flush(out, max));
    }

    fn end(&mut self, cutter: &mut Cutter) {
        self.all(|out, max| cutter.end(out, max));
    }

    fn take(&mut self) -> Vec<(String, bool)> {
        self.frames.drain(..).map(|(bytes, more)| (String::from_utf8(bytes).unwrap(), more)).collect()
    }
}

fn frame(text: &str, more: bool) -> (String, bool) {
    (text.into(), more)
}

#[test]
fn whole_lines_get_labels_and_a_partial_line_waits() {
    let (mut cutter, mut sent) = (lines("%r: "), Sent::new(1 << 16));
    sent.push(&mut cutter, b"one\n\ntw");
    assert_eq!((sent.take(), sent.held), (vec![frame("3: one\n3: \n", false)], Held::Begun));
    sent.push(&mut cutter, b"o");
    assert_eq!((sent.take(), sent.held), (vec![], Held::Still));
    sent.push(&mut cutter, b"\nthr");
    assert_eq!((sent.take(), sent.held), (vec![frame("3: two\n", false)], Held::Begun));
    sent.push(&mut cutter, b"ee\n");
    assert_eq!((sent.take(), sent.held), (vec![frame("3: three\n", false)], Held::Nothing));
    assert_eq!(memory(&cutter), 0);
}

#[test]
fn a_prompt_is_flushed_and_its_rest_is_bare() {
    let (mut cutter, mut sent) = (lines("%r: "), Sent::new(1 << 16));
    sent.push(&mut cutter, b"name? ");
    sent.flush(&mut cutter);
    assert_eq!((sent.take(), sent.held), (vec![frame("3: name? ", true)], Held::Nothing));
    assert_eq!(memory(&cutter), 0);
    sent.flush(&mut cutter);
    assert_eq!(sent.take(), vec![]);
    sent.push(&mut cutter, b"Eve");
    assert_eq!(sent.take(), vec![frame("Eve", true)]);
    sent.push(&mut cutter, b"!\nnext\n");
    assert_eq!(sent.take(), vec![frame("!\n3: next\n", false)]);
}

#[test]
fn the_end_completes_a_partial_line_once() {
    let (mut cutter, mut sent) = (lines("%r: "), Sent::new(1 << 16));
    sent.end(&mut cutter);
    assert_eq!(sent.take(), vec![]);
    sent.push(&mut cutter, b"bye");
    sent.end(&mut cutter);
    sent.end(&mut cutter);
    assert_eq!((sent.take(), sent.held), (vec![frame("3: bye\n", false)], Held::Nothing));
    sent.push(&mut cutter, b"prompt");
    sent.flush(&mut cutter);
    sent.end(&mut cutter);
    assert_eq!(sent.take(), vec![frame("3: prompt", true), frame("\n", false)]);
}

#[test]
fn a_line_of_64_kib_is_held_and_a_longer_one_is_not() {
    let (mut cutter, mut sent) = (lines("%r: "), Sent::new(1 << 16));
    sent.push(&mut cutter, &vec![b'x'; LINE_MAX - 1]);
    assert_eq!((sent.frames.len(), sent.held), (0, Held::Begun));
    sent.push(&mut cutter, b"\n");
    let shape: Vec<_> = sent.frames.drain(..).map(|(bytes, more)| (bytes.len(), more)).collect();
    assert_eq!(shape, [(1 << 16, true), (3, false)]);

    sent.push(&mut cutter, &vec![b'x'; LINE_MAX]);
    sent.push(&mut cutter, b"yy");
    let shape: Vec<_> = sent.frames.iter().map(|(bytes, more)| (bytes.len(), *more)).collect();
    assert_eq!((shape, sent.held), (vec![(1 << 16, true), (3, true), (2, true)], Held::Nothing));
    assert_eq!(memory(&cutter), 0);
}

#[test]
fn a_frame_is_filled_to_its_last_byte_and_not_beyond() {
    let shape = |chunk: &[u8]| {
        let (mut cutter, mut sent) = (lines("%r: "), Sent::new(300));
        sent.push(&mut cutter, chunk);
        sent.frames.iter().map(|(bytes, more)| (bytes.len(), *more)).collect::<Vec<_>>()
    };
    let line = |len: usize| [&vec![b'x'; len - 4][..], b"\n"].concat();
    assert_eq!(shape(&line(300)), [(300, false)]);
    assert_eq!(shape(&line(301)), [(300, true), (1, false)]);
    assert_eq!(shape(&[line(100), line(200)].concat()), [(300, false)]);
    assert_eq!(shape(&[line(100), line(201)].concat()), [(100, false), (201, false)]);
}

#[test]
fn raw_passes_everything() {
    let (mut cutter, mut sent) = (Cutter::Raw, Sent::new(300));
    assert!(cutter.is_raw() && !lines("").is_raw());
    sent.push(&mut cutter, &[7; 700]);
    sent.flush(&mut cutter);
    sent.end(&mut cutter);
    let shape: Vec<_> = sent.frames.iter().map(|(bytes, more)| (bytes.len(), *more)).collect();
    assert_eq!(shape, [(300, false), (300, false), (100, false)]);
}

#[test]
fn a_carriage_return_ends_a_line_and_a_newline_after_it_belongs_to_it() {
    let (mut cutter, mut sent) = (lines("%r: "), Sent::new(1 << 16));
    sent.push(&mut cutter, b"10%\r20%\rdos\r\nhalf\r");
    assert_eq!((sent.take(), sent.held), (vec![frame("3: 10%\r3: 20%\r3: dos\r\n3: half\r", false)], Held::Nothing));
    sent.push(&mut cutter, b"\nnext\r");
    assert_eq!(sent.take(), vec![frame("\n3: next\r", false)]);
    sent.push(&mut cutter, b"on");
    assert_eq!((sent.take(), sent.held), (vec![], Held::Begun));
    sent.flush(&mut cutter);
    sent.push(&mut cutter, b"e\rtwo\n");
    assert_eq!(sent.take(), vec![frame("3: on", true), frame("e\r3: two\n", false)]);
    sent.push(&mut cutter, b"100%\r");
    sent.end(&mut cutter);
    assert_eq!(sent.take(), vec![frame("3: 100%\r", false), frame("\n", false)]);
}

#[test]
fn without_a_label_lines_are_whole_and_not_a_byte_is_added() {
    let (mut cutter, mut sent) = (lines(""), Sent::new(1 << 16));
    sent.push(&mut cutter, b"one\ntwo\r\nthr");
    assert_eq!((sent.take(), sent.held), (vec![frame("one\ntwo\r\n", false)], Held::Begun));
    sent.push(&mut cutter, b"ee\nfour");
    sent.flush(&mut cutter);
    assert_eq!(sent.take(), vec![frame("three\n", false), frame("four", true)]);
    sent.end(&mut cutter);
    assert_eq!(sent.take(), vec![]);
    let mut cutter = lines("");
    sent.push(&mut cutter, b"bye");
    sent.end(&mut cutter);
    sent.end(&mut cutter);
    assert_eq!((sent.take(), sent.held), (vec![frame("bye", false)], Held::Nothing));
}

#[test]
fn lines_without_a_label_are_read_into_a_frame_and_the_last_one_is_held_back() {
    let (mut cutter, mut sent) = (lines(""), Sent::new(1 << 16));
    sent.read(&mut cutter, b"one\ntwo\nthr");
    assert_eq!((sent.take(), sent.held), (vec![frame("one\ntwo\n", false)], Held::Begun));
    sent.read(&mut cutter, b"e");
    assert_eq!((sent.take(), sent.held), (vec![], Held::Still));
    sent.read(&mut cutter, b"e\nfour\r");
    assert_eq!((sent.take(), sent.held), (vec![frame("three\nfour\r", false)], Held::Nothing));
    sent.read(&mut cutter, b"\nfi");
    assert_eq!((sent.take(), sent.held), (vec![frame("\n", false)], Held::Begun));
    // The end of the stream, or a read that failed.
    let ((), cut) = cutter.read(&mut sent.out, |_| ());
    assert_eq!((sent.out.len(), cut), (0, Cut { full: false, more: false, held: Held::Still }));
    sent.end(&mut cutter);
    assert_eq!(sent.take(), vec![frame("fi", false)]);
    assert!(!lines("%r: ").reads_frames() && !Cutter::Raw.reads_frames());
    let mut cutter = lines("");
    sent.read(&mut cutter, &[b'x'; SHORT + 1]);
    assert!(!cutter.reads_frames(), "a long start of a line is not copied for each read");
}

/// Bytes with short lines, long lines, and none at all.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        8 => prop::collection::vec(prop_oneof![4 => any::<u8>(), 4 => Just(b'\n'), 1 => Just(b'\r')], 0..200),
        2 => (0usize..3000).prop_map(|n| vec![b'x'; n]),
        1 => (LINE_MAX - 600..LINE_MAX + 600).prop_map(|n| vec![b'y'; n]),
        1 => (0usize..200_000).prop_map(|n| vec![b'z'; n]),
    ];
    prop::collection::vec((part, any::<bool>()), 0..12).prop_map(|parts| {
        let mut all = vec![];
        for (mut bytes, newline) in parts {
            all.append(&mut bytes);
            all.extend(newline.then_some(b'\n'));
        }
        all
    })
}

/// The chunks of the input, and for each whether 200 ms pass after it.
fn chunks() -> impl Strategy<Value = Vec<(usize, bool)>> {
    prop::collection::vec((prop_oneof![1usize..100, 1usize..70_000], prop::bool::weighted(0.1)), 1..40)
}

/// All lines, the last one completed where lines have labels.
fn completed(input: &[u8], labelled: bool) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = vec![];
    for (at, &byte) in input.iter().enumerate() {
        let begins = match at.checked_sub(1).map(|before| input[before]) {
            None | Some(b'\n') => true,
            Some(b'\r') => byte != b'\n',
            Some(_) => false,
        };
        if begins {
            lines.push(vec![]);
        }
        lines.last_mut().unwrap().push(byte);
    }
    if let Some(last) = lines.last_mut()
        && labelled
        && last.last() != Some(&b'\n')
    {
        last.push(b'\n');
    }
    lines
}

fn run(cutter: &mut Cutter, input: &[u8], chunks: &[(usize, bool)], max: usize) -> Sent {
    let mut sent = Sent::new(max);
    let mut rest = input;
    for &(len, flush) in chunks.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        sent.read(cutter, take(&mut rest, len));
        if flush && sent.held != Held::Nothing {
            sent.flush(cutter);
            assert_eq!(sent.held, Held::Nothing);
        }
        assert_eq!(memory(cutter) == 0, sent.held == Held::Nothing);
        assert!(memory(cutter) <= 2 * LINE_MAX);
    }
    sent.end(cutter);
    assert_eq!(memory(cutter), 0);
    sent
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Labels and their last newline apart, what comes out is what went in; MORE says exactly where a line is unfinished.
    #[test]
    fn loses_and_adds_nothing(
        input in input(),
        chunks in chunks(),
        max in prop_oneof![Just(1usize << 16), 257usize..70_000],
        format in prop_oneof![Just("%r: "), Just(""), Just("[%40r] ")],
    ) {
        let mut cutter = lines(format);
        let label = match &cutter {
            Cutter::Raw => vec![],
            Cutter::Lines(lines) => lines.label.as_slice().to_vec(),
        };
        let sent = run(&mut cutter, &input, &chunks, max);
        let expected: Vec<u8> = completed(&input, !label.is_empty()).iter().flat_map(|line| [&label[..], line].concat()).collect();
        let got: Vec<u8> = sent.frames.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        prop_assert!(got == expected);
        // The last frame of a stream without labels may end anywhere.
        let last = sent.frames.len() - usize::from(label.is_empty() && !sent.frames.is_empty());
        for (bytes, more) in &sent.frames[..last] {
            prop_assert_eq!(*more, !matches!(bytes.last(), Some(b'\n' | b'\r')));
        }
    }

    /// Without a flush, a line of up to 64 KiB that fits into a frame lies in one frame.
    #[test]
    fn never_splits_a_line_that_fits(mut input in input(), chunks in chunks(), max in 257usize..70_000) {
        // A newline that comes later than its carriage return is sent later.
        input.retain(|byte| *byte != b'\r');
        let chunks: Vec<_> = chunks.into_iter().map(|(len, _)| (len, false)).collect();
        let mut cutter = lines("%r: ");
        let sent = run(&mut cutter, &input, &chunks, max);
        let mut ends = vec![0];
        for (bytes, _) in &sent.frames {
            ends.push(ends[ends.len() - 1] + bytes.len());
        }
        let mut at = 0;
        for line in completed(&input, true) {
            let end = at + 3 + line.len();
            if end - at <= max.min(LINE_MAX) {
                prop_assert!(!ends.iter().any(|&cut| at < cut && cut < end), "the line at {at}..{end} is split");
            }
            at = end;
        }
    }
}
