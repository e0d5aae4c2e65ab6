//! No line is torn without a mark, nothing is lost or reordered within a stream, and no stream waits for ever.

use super::*;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, string::ToString};
use proptest::prelude::*;
use rlaunch_base::id::{ProcId, Std};

fn id(n: u32) -> StreamId {
    StreamId::of(ProcId::new(n), Std::Out)
}

fn ms(n: u64) -> Mono {
    Mono::from_nanos(n * 1_000_000)
}

/// A sink that shows what it writes: `0<text` for a piece of stream 0, and the marks.
#[derive(Default)]
struct Sink {
    turn: Turn<String>,
}

impl Sink {
    /// A piece; MORE unless it ends with a newline.
    fn push(&mut self, n: u32, text: &str) {
        let flags = if text.ends_with('\n') { Flags::NONE } else { Flags::MORE };
        self.turn.push(id(n), flags, text.into());
    }

    fn end(&mut self, n: u32, text: &str) {
        self.turn.push(id(n), Flags::END, text.into());
    }

    /// One batch for a sink that still writes the batch before.
    fn batch(&mut self, at: u64) -> String {
        self.turn.sink(ms(at), Pace::Writing);
        self.all(at)
    }

    fn all(&mut self, at: u64) -> String {
        let mut all = String::new();
        while let Some(write) = self.turn.pop(ms(at)) {
            all += &match write {
                Write::Piece(stream, text) => format!("{}<{} ", stream.proc(), text.trim_end()),
                Write::BreakMark => "… ".to_string(),
                Write::ContinueMark(stream) => format!("{}:… ", stream.proc()),
                Write::LineEnd => "; ".to_string(),
            };
        }
        all.trim_end().to_string()
    }

    /// The actions of an idle sink: it asks again after it has written.
    fn idle(&mut self, at: u64) -> String {
        self.turn.sink(ms(at), Pace::Idle);
        let all = self.all(at);
        self.turn.sink(ms(at), Pace::Idle);
        assert_eq!(self.all(at), "");
        all
    }

    /// A sink whose reader takes nothing.
    fn stuck(&mut self, at: u64) -> String {
        self.turn.sink(ms(at), Pace::Stuck);
        self.all(at)
    }
}

#[test]
fn others_wait_for_the_end_of_a_line_in_the_order_of_arrival() {
    let mut s = Sink::default();
    s.push(0, "a");
    s.push(1, "b\n");
    s.push(2, "c\n");
    s.push(1, "d\n");
    assert_eq!(s.idle(0), "0<a");
    assert!(!s.turn.is_empty());
    s.push(0, "A");
    s.push(0, "!\n");
    s.push(0, "z\n");
    assert_eq!(s.idle(1), "0<A 0<! 1<b 2<c 1<d 0<z");
    assert!(s.turn.is_empty());
    assert_eq!((s.turn.broken(), s.turn.poll_timeout()), (0, None));
}

#[test]
fn a_line_that_is_not_finished_is_broken_with_marks() {
    let mut s = Sink::default();
    s.push(0, "prompt");
    assert_eq!((s.idle(0), s.turn.poll_timeout()), ("0<prompt".into(), None));
    s.push(1, "b\n");
    assert_eq!((s.idle(1000), s.turn.poll_timeout()), (String::new(), Some(ms(1200))));
    assert_eq!(s.idle(1199), "");
    assert_eq!(s.idle(1200), "… 1<b");
    assert_eq!((s.turn.broken(), s.turn.poll_timeout()), (1, None));
    s.push(2, "c\n");
    s.push(0, "rest\n");
    s.push(0, "next\n");
    assert_eq!(s.idle(1300), "2<c 0:… 0<rest 0<next");
}

#[test]
fn a_trickle_does_not_renew_the_patience() {
    let mut s = Sink::default();
    s.push(0, "a");
    s.push(1, "b\n");
    assert_eq!(s.idle(0), "0<a");
    for at in [50, 100, 150] {
        s.push(0, ".");
        assert_eq!(s.idle(at), "0<.");
    }
    assert_eq!(s.turn.poll_timeout(), Some(ms(200)));
    assert_eq!(s.idle(200), "… 1<b");
}

#[test]
fn a_slow_reader_breaks_no_line() {
    let mut s = Sink::default();
    s.push(0, "a");
    s.push(1, "b\n");
    // Each batch takes 10 s to write; the rest of the line comes as soon as its credit is back.
    for n in 0..u64::from(LONG) {
        assert_eq!(s.batch(n * 10_000), if n == 0 { "0<a" } else { "0<." });
        assert_eq!(s.batch(n * 10_000 + 9_999), "");
        s.push(0, ".");
    }
    s.push(0, "!\n");
    assert_eq!(s.batch(u64::from(LONG) * 10_000), "0<. 0<! 1<b");
    assert_eq!(s.turn.broken(), 0);
}

/// A terminal that was stopped: what is open there could not be written out, let alone be answered.
#[test]
fn patience_does_not_run_while_the_sink_has_something_to_write() {
    let mut s = Sink::default();
    s.push(0, "prompt");
    assert_eq!(s.batch(0), "0<prompt");
    s.push(1, "b\n");
    for at in [1, 300, 60_000] {
        assert_eq!((s.stuck(at), s.turn.poll_timeout()), (String::new(), None));
    }
    // The prompt is written now.
    assert_eq!((s.idle(60_001), s.turn.poll_timeout()), (String::new(), Some(ms(60_201))));
    // Something else is written for a while.
    assert_eq!((s.batch(60_101), s.turn.poll_timeout()), (String::new(), None));
    assert_eq!((s.idle(70_000), s.turn.poll_timeout()), (String::new(), Some(ms(70_100))));
    assert_eq!(s.idle(70_100), "… 1<b");
    assert_eq!((s.turn.take_broken(), s.turn.take_broken()), (Some(Broken { stream: id(0), waits: false }), None));
}

#[test]
fn a_very_long_line_is_not_broken_by_a_reader_that_takes_nothing() {
    let mut s = Sink::default();
    s.push(0, "a");
    s.push(1, "b\n");
    for _ in 0..LONG {
        s.push(0, ".");
    }
    assert_eq!(s.batch(0).matches("0<").count(), 1 + LONG as usize);
    for at in [1, 50_000, 60_000] {
        s.push(0, ".");
        assert_eq!(s.stuck(at), "0<.");
    }
    s.push(0, ".");
    assert_eq!(s.batch(60_100), "0<.");
    s.push(0, ".");
    assert_eq!(s.batch(60_200), "… 1<b 0:… 0<.");
}

#[test]
fn a_line_without_end_is_broken_though_it_never_pauses() {
    let mut s = Sink::default();
    s.push(0, "a");
    s.push(1, "b\n");
    for _ in 0..LONG + 10 {
        s.push(0, ".");
    }
    s.push(2, "c\n");
    let pop = |s: &mut Sink, at| s.turn.pop(ms(at)).unwrap();
    assert_eq!(pop(&mut s, 0), Write::Piece(id(0), "a".into()));
    for n in 0..LONG + 5 {
        assert_eq!(pop(&mut s, if n < LONG { 500 } else { 699 }), Write::Piece(id(0), ".".into()));
    }
    // Its own pieces came before rank 2's line: all the same, who waited goes first.
    assert_eq!(s.batch(700), "… 1<b 2<c 0:… 0<. 0<. 0<. 0<. 0<.");
    assert_eq!(s.turn.take_broken(), Some(Broken { stream: id(0), waits: true }));
}

#[test]
fn a_break_serves_those_for_whom_it_was_made() {
    let mut s = Sink::default();
    s.push(1, "x");
    s.push(0, "a");
    for _ in 0..LONG + 3 {
        s.push(0, ".");
    }
    s.push(2, "c\n");
    s.push(1, "y\n");
    for _ in 0..LONG + 3 {
        assert!(s.turn.pop(ms(0)).is_some());
    }
    // The rest of the long line came before rank 2's, which has waited all the same.
    assert_eq!(s.batch(200), "… 2<c 0:… 0<. 0<. 0<.");
}

#[test]
fn the_end_of_a_stream_closes_its_line() {
    let mut s = Sink::default();
    s.push(0, "a");
    s.push(1, "b\n");
    s.end(0, "");
    assert_eq!(s.idle(0), "0<a 0< ; 1<b");
    // The agent completes a last line itself.
    s.push(0, "a");
    s.end(0, "\n");
    s.push(0, "a");
    s.end(0, "!");
    s.end(2, "raw");
    s.turn.push(id(3), Flags::END.and(Flags::MORE), "cut".into());
    assert_eq!(s.idle(0), "0<a 0< 0<a 0<! 2<raw 3<cut ;");
}

#[test]
fn a_broken_stream_that_ends_leaves_no_mark() {
    let mut s = Sink::default();
    s.push(0, "a");
    s.push(1, "b\n");
    s.idle(0);
    assert_eq!(s.idle(200), "… 1<b");
    s.end(0, "");
    s.push(0, "new\n");
    assert_eq!(s.idle(201), "0< 0<new");
}

#[derive(Clone, Debug)]
enum Op {
    Push { stream: u32, newline: bool, end: bool, empty: bool },
    Pop(u8),
    Sink(Pace),
    Wait(u64),
    Timer,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let push = (0u32..4, prop::bool::weighted(0.4), prop::bool::weighted(0.03), prop::bool::weighted(0.05))
        .prop_map(|(stream, newline, end, empty)| Op::Push { stream, newline, end, empty });
    let pace = prop_oneof![Just(Pace::Idle), Just(Pace::Writing), Just(Pace::Stuck)];
    let op = prop_oneof![
        6 => push,
        3 => (1u8..6).prop_map(Op::Pop),
        2 => pace.prop_map(Op::Sink),
        1 => (0u64..150).prop_map(Op::Wait),
        1 => Just(Op::Timer),
    ];
    prop::collection::vec(op, 0..300)
}

/// The view of the reader, checked write by write.
#[derive(Default)]
struct Reader {
    inside: Option<StreamId>,
    torn: BTreeSet<StreamId>,
    /// Pushed and not yet written, by arrival.
    due: Vec<(StreamId, String)>,
    breaks: u64,
    marked: Option<StreamId>,
}

impl Reader {
    fn write(&mut self, write: Write<String>) -> Result<(), TestCaseError> {
        let marked = self.marked.take();
        match write {
            Write::Piece(stream, text) => {
                prop_assert!(
                    self.inside.is_none_or(|open| open == stream),
                    "{text} is in the line of {:?}",
                    self.inside
                );
                let at = self.due.iter().position(|(due, _)| *due == stream).unwrap();
                if self.breaks == 0 && self.inside.is_none() {
                    prop_assert_eq!(at, 0, "out of turn");
                }
                prop_assert_eq!(&self.due.remove(at).1, &text);
                if !text.is_empty() {
                    prop_assert_eq!(marked.is_some(), self.torn.remove(&stream));
                    self.inside = (!text.ends_with('\n')).then_some(stream);
                }
            }
            Write::BreakMark => {
                prop_assert!(self.due.iter().any(|(due, _)| Some(*due) != self.inside), "nobody waits");
                self.torn.insert(self.inside.take().unwrap());
                self.breaks += 1;
            }
            Write::ContinueMark(stream) => {
                prop_assert!(self.inside.is_none() && self.torn.contains(&stream));
                self.marked = Some(stream);
            }
            Write::LineEnd => prop_assert!(self.inside.take().is_some()),
        }
        Ok(())
    }
}

fn play(ops: &[Op], time: bool) -> Result<u64, TestCaseError> {
    let (mut turn, mut reader, mut now) = (Turn::<String>::new(), Reader::default(), 0);
    let mut ended = BTreeSet::new();
    for (n, op) in ops.iter().enumerate() {
        match *op {
            Op::Push { stream, newline, end, empty } if !ended.contains(&stream) => {
                let text =
                    if empty { String::new() } else { format!("{stream}.{n}{}", if newline { "\n" } else { "" }) };
                let more = if newline || empty { Flags::NONE } else { Flags::MORE };
                let flags = more.and(if end { Flags::END } else { Flags::NONE });
                ended.extend(end.then_some(stream));
                reader.due.push((id(stream), text.clone()));
                turn.push(id(stream), flags, text);
            }
            Op::Push { .. } => {}
            Op::Pop(times) => {
                for _ in 0..times {
                    let Some(write) = turn.pop(ms(now)) else { break };
                    reader.write(write)?;
                }
            }
            Op::Sink(pace) => turn.sink(ms(now), pace),
            Op::Wait(by) => now += if time { by } else { 0 },
            Op::Timer if time => now = turn.poll_timeout().map_or(now, |at| now.max(at.nanos() / 1_000_000)),
            Op::Timer => {}
        }
    }
    // With time, everything comes out, without any stream's help.
    let mut timers = 0;
    while !turn.is_empty() {
        turn.sink(ms(now), Pace::Idle);
        while let Some(write) = turn.pop(ms(now)) {
            reader.write(write)?;
        }
        if !time {
            break;
        }
        // The given bytes are written.
        turn.sink(ms(now), Pace::Idle);
        while let Some(write) = turn.pop(ms(now)) {
            reader.write(write)?;
        }
        now = turn.poll_timeout().map_or(now, |at| now.max(at.nanos() / 1_000_000));
        timers += 1;
        prop_assert!(timers < 1000, "stuck");
    }
    prop_assert_eq!(turn.is_empty(), reader.due.is_empty());
    prop_assert!(!time || turn.is_empty());
    prop_assert_eq!(turn.broken(), reader.breaks);
    if turn.is_empty() {
        prop_assert_eq!((turn.count, turn.tickets.len(), turn.waiting.len()), (0, 0, 0));
    }
    Ok(reader.breaks)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn tears_nothing_without_marks_and_loses_nothing(ops in ops()) {
        play(&ops, true)?;
    }

    #[test]
    fn breaks_nothing_while_no_time_passes(ops in ops()) {
        prop_assert_eq!(play(&ops, false)?, 0);
    }
}
