//! From the ranks' pipes to the edge: round robin, one frame under way, and nothing is read without credit for it.
//!
//! A stream that has to leave the credit there is to another one ([`rlaunch_protocol::stream::lines`]) is *parked*: paused in
//! the set, which would report it again and again.

use super::rank_table::Ranks;
use super::{Link, logs};
use crate::clock::now;
use crate::edges::live_set::LiveSet;
use crate::edges::part::Base;
use rlaunch_base::id::{NodeId, ProcId, Std, StreamId};
use rlaunch_base::time::Mono;
use rlaunch_core::node::NodeEvent;
use rlaunch_protocol::logs::Way;
use rlaunch_protocol::stream::cut::{Cutter, Held, PATIENCE};
use rlaunch_protocol::stream::lines::OpenLines;
use rlaunch_protocol::stream::mark::Marks;
use rlaunch_protocol::stream::tail::Tail;
use rlaunch_protocol::stream::window::{self, Window};
use rlaunch_protocol::wire::frame::Flags;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::Context;

/// Read at once from a stream that is cut into lines: with labels of usual length it still fills one frame.
const LINES_CHUNK: usize = 60 << 10;

/// From here on moving pages is cheaper than copying them.
const BULKY: usize = 32 << 10;

/// A rank's stdout or stderr.
pub(super) struct Stream {
    pub(super) fd: OwnedFd,
    cutter: Cutter,
    pub(super) total: u64,
    pub(super) tail: Tail,
    /// The begins of rounds in it.
    pub(super) marks: Marks,
    /// Its destination.
    pub(super) way: Way,
    /// When the start of a line that is held has waited long enough.
    pub(super) flush_at: Option<Mono>,
    /// The last read brought much: the next one is worth more system calls than a copy.
    bulky: bool,
    /// Whether it ends where it has nothing more to read, even if a process still holds it.
    pub(super) closing: bool,
    parked: bool,
}

impl Stream {
    pub(super) fn new(fd: OwnedFd, cutter: Cutter, way: Way) -> Self {
        let (tail, marks) = (Tail::new(), Marks::default());
        Self { fd, cutter, total: 0, tail, marks, way, flush_at: None, bulky: false, closing: false, parked: false }
    }
}

/// The frame that is being made.
struct Work {
    id: StreamId,
    phase: Phase,
    /// The bytes that were read.
    chunk: Vec<u8>,
    /// How much of it was cut.
    done: usize,
}

impl Work {
    const fn new(id: StreamId, phase: Phase) -> Self {
        Self { id, phase, chunk: Vec::new(), done: 0 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Push,
    Flush,
    End,
}

pub(super) struct Pump {
    node: NodeId,
    pub(super) set: LiveSet,
    pub(super) window: Window,
    pub(super) lines: OpenLines,
    turn: VecDeque<StreamId>,
    /// Memory for the next chunk.
    chunk: Vec<u8>,
    work: Option<Work>,
    parked: VecDeque<(StreamId, Option<Work>)>,
    /// The stream whose last frame is being written, its bytes in all, and whether it has a file.
    ending: Option<(StreamId, u64, bool)>,
    /// Last words of ranks whose stderr has ended, until they are reaped.
    tails: BTreeMap<ProcId, Tail>,
    size: u32,
    frame_max: usize,
}

impl Pump {
    pub(super) fn new(node: NodeId) -> io::Result<Self> {
        let size = window::size(1);
        let frame_max = usize::try_from(window::frame_max(size)).unwrap_or(usize::MAX);
        Ok(Self {
            node,
            set: LiveSet::with_room(64)?,
            window: Window::new(0),
            lines: OpenLines::default(),
            turn: VecDeque::new(),
            chunk: Vec::new(),
            work: None,
            parked: VecDeque::new(),
            ending: None,
            tails: BTreeMap::new(),
            size,
            frame_max,
        })
    }

    /// The launcher's memory is shared between so many nodes: frames are as long as this one's share allows.
    pub(super) fn share(&mut self, nodes: u32) {
        self.size = window::size(nodes);
        self.frame_max = usize::try_from(window::frame_max(self.size)).unwrap_or(usize::MAX);
    }

    fn has_credit(&self) -> bool {
        self.window.room() >= window::cost(window::frame_max(self.size))
    }

    /// Whether the credit there is may be used by this stream.
    fn may_send(&self, id: StreamId) -> bool {
        window::has_plenty(self.size, self.window.room()) || self.lines.has_turn(id)
    }

    /// Takes a frame out of the window.
    fn spend(&mut self, body: usize) {
        let within = self.window.spend(window::cost(u32::try_from(body).unwrap_or(u32::MAX)));
        debug_assert!(within, "a frame was read without credit for it");
    }

    /// The last bytes of a rank's stderr.
    pub(super) fn last_words(&mut self, ranks: &mut Ranks, proc: ProcId) -> Vec<u8> {
        match ranks.stream_mut(proc, Std::Err) {
            Some(stream) => stream.tail.take(),
            None => self.tails.remove(&proc).map(|mut tail| tail.take()).unwrap_or_default(),
        }
    }

    /// The last words of a rank whose stderr has ended.
    pub(super) fn keep_tail(&mut self, proc: ProcId, tail: Tail) {
        self.tails.insert(proc, tail);
    }

    /// A stream that had waited for its file may be read again.
    pub(super) fn wake(&mut self, id: StreamId, stream: &mut Stream) {
        stream.parked = false;
        self.set.resume(&stream.fd, u64::from(id.get()));
        self.turn.push_back(id);
    }

    /// Forgets the last words of a process: they are not needed any more.
    pub(super) fn forget(&mut self, proc: ProcId) {
        self.tails.remove(&proc);
    }

    /// The next stream that has something to read.
    fn next_ready(&mut self, cx: &mut Context<'_>) -> Option<StreamId> {
        next_ready(&mut self.set, &mut self.turn, cx)
    }
}

/// The next stream of a set that has something to read; `turn` holds those of the last look.
pub(super) fn next_ready(set: &mut LiveSet, turn: &mut VecDeque<StreamId>, cx: &mut Context<'_>) -> Option<StreamId> {
    loop {
        if let Some(id) = turn.pop_front() {
            return Some(id);
        }
        turn.extend(set.poll(cx)?.into_iter().filter_map(|t| u32::try_from(t).ok().and_then(StreamId::from_raw)));
    }
}

/// Writes the last words of MPI into a stderr that is about to end; whether there are some to read.
pub(super) type LastWords<'a> = &'a mut dyn FnMut(&mut Base, StreamId) -> bool;

/// Moves bytes while the edge takes frames and there is credit.
pub(super) fn poll(base: &mut Base, cx: &mut Context<'_>, last_words: LastWords<'_>) {
    loop {
        report_end(base);
        // An edge that is gone takes everything: the ranks must not block on a full pipe while they are being ended.
        let (room, lost) = match &base.link {
            Some(link) => (link.has_room(), false),
            None => (true, true),
        };
        if !room {
            base.poll_flush(cx);
            if matches!(&base.link, Some(link) if !link.has_room()) {
                return;
            }
            continue;
        }
        if !(lost || base.pump.has_credit()) {
            return;
        }
        unpark(base, lost);
        if !step(base, cx, lost, last_words) {
            return;
        }
    }
}

/// Pauses a stream until it may send.
fn park(base: &mut Base, id: StreamId, work: Option<Work>) {
    let Base { ranks, pump, .. } = base;
    if let Some(stream) = ranks.stream_mut(id.proc(), id.std()) {
        pump.set.pause(&stream.fd, u64::from(id.get()));
        stream.parked = true;
        pump.parked.push_back((id, work));
    }
}

/// Continues with a parked stream that may send by now.
fn unpark(base: &mut Base, lost: bool) {
    let Base { ranks, pump, .. } = base;
    if pump.work.is_some() {
        return;
    }
    let Some(at) = pump.parked.iter().position(|(id, _)| lost || pump.may_send(*id)) else { return };
    let Some((id, work)) = pump.parked.remove(at) else { return };
    let Some(stream) = ranks.stream_mut(id.proc(), id.std()) else { return };
    stream.parked = false;
    pump.set.resume(&stream.fd, u64::from(id.get()));
    if work.is_none() || stream.closing {
        pump.turn.push_back(id);
    }
    pump.work = work;
}

/// Reports the end of a stream once no later message can overtake its last frame.
fn report_end(base: &mut Base) {
    let under_way = matches!(&base.link, Some(link) if link.has_data());
    if !under_way && let Some((id, total, file)) = base.pump.ending.take() {
        if file {
            return logs::ended(base, id, total);
        }
        base.events.push_back(NodeEvent::StreamEnd { proc: id.proc(), which: id.std(), total });
    }
}

/// When a line that is held has waited long enough; `None` also while it could not be sent: what will make that possible
/// wakes us, and a deadline that has passed would keep us from sleeping, and the runtime from hearing of it.
pub(super) fn deadline(base: &Base) -> Option<Mono> {
    if !is_able(base) {
        return None;
    }
    let lost = base.link.is_none();
    base.ranks.held(|id| lost || base.pump.may_send(id)).map(|(at, _)| at)
}

/// An edge that is gone takes everything: the ranks must not block on a full pipe while they are being ended.
fn has_room(base: &Base) -> bool {
    match &base.link {
        Some(link) => link.has_room(),
        None => true,
    }
}

fn is_able(base: &Base) -> bool {
    has_room(base) && (base.link.is_none() || base.pump.has_credit())
}

/// Makes one frame; false if there is none.
fn step(base: &mut Base, cx: &mut Context<'_>, lost: bool, last_words: LastWords<'_>) -> bool {
    if base.pump.work.is_none() {
        let held = base.ranks.held(|id| lost || base.pump.may_send(id));
        base.pump.work = held.filter(|(at, _)| *at <= now()).map(|(_, id)| Work::new(id, Phase::Flush));
    }
    if base.pump.work.is_none() {
        let Some(id) = base.pump.next_ready(cx) else { return false };
        if base.ranks.stream_mut(id.proc(), id.std()).is_some_and(|stream| stream.parked || !stream.way.shown) {
            return true;
        }
        if !(lost || base.pump.may_send(id)) {
            park(base, id, None);
            return true;
        }
        read(base, id);
        if base.pump.work.as_ref().is_some_and(|work| matches!(work.phase, Phase::End)) && last_words(base, id) {
            base.pump.work = None;
            read(base, id);
        }
    }
    let Some(work) = base.pump.work.take() else { return true };
    if lost || base.pump.may_send(work.id) {
        cut(base, work);
    } else {
        park(base, work.id, Some(work));
    }
    true
}

/// Reads once from a stream: a chunk to cut, a frame to send as it is, or the end.
fn read(base: &mut Base, id: StreamId) {
    let Base { ranks, pump, link, logs, .. } = base;
    let Some(stream) = ranks.stream_mut(id.proc(), id.std()) else {
        // Not known yet, or ended meanwhile.
        super::rank_table::drain_outcomes(base);
        if base.ranks.stream_mut(id.proc(), id.std()).is_none() {
            std::thread::yield_now();
        }
        return;
    };
    let end = Some(Work::new(id, Phase::End));
    if stream.closing && !rlaunch_sys::fd::readable_now(&stream.fd) {
        pump.work = end;
        return;
    }
    if stream.way.file && !logs.has_room() {
        pump.set.pause(&stream.fd, u64::from(id.get()));
        stream.parked = true;
        return logs.starve(id);
    }
    if stream.cutter.reads_frames() && link.is_some() {
        return read_lines(base, id);
    }
    let raw = stream.cutter.is_raw();
    let max = stream.marks.room(stream.total, if raw { pump.frame_max } else { LINES_CHUNK });
    // Last words are taken from copies, and there is little of them.
    if raw && stream.bulky && id.std() == Std::Out && !stream.way.file && splice(stream, pump, link, id) {
        return;
    }
    let mut buf = match link {
        Some(link) if raw => link.spare(),
        Some(_) | None => std::mem::take(&mut pump.chunk),
    };
    buf.clear();
    match rlaunch_sys::fd::read_onto(stream.fd.as_raw_fd(), &mut buf, max) {
        Ok(0) => pump.work = end,
        Ok(n) => {
            took(stream, pump, id, n);
            copy_bytes(stream, logs, id, &mut buf);
            if raw {
                stream.bulky = n >= BULKY;
                return send(base, id, Flags::NONE, buf);
            }
            pump.work = Some(Work { chunk: buf, ..Work::new(id, Phase::Push) });
            return;
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(_) => pump.work = end,
    }
    pump.chunk = buf;
}

/// Copies what was just read for the last words of the rank and for its log file. The marks are taken out of output with labels.
fn copy_bytes(stream: &mut Stream, logs: &mut logs::Logs, id: StreamId, bytes: &mut Vec<u8>) {
    let before = stream.total.saturating_sub(u64::try_from(bytes.len()).unwrap_or(0));
    if id.std() == Std::Err {
        stream.tail.push(bytes);
    }
    match (stream.cutter.is_labelled(), stream.way.file) {
        (false, false) => {}
        // Output without labels is exactly what the rank wrote.
        (false, true) => {
            let mut copy = bytes.clone();
            stream.marks.pass(before, &mut copy);
            logs.write(id, copy);
        }
        (true, file) => {
            stream.marks.pass(before, bytes);
            file.then(|| logs.write(id, bytes.clone()));
        }
    }
}

/// Reads whole lines without labels right into a frame.
fn read_lines(base: &mut Base, id: StreamId) {
    let Base { ranks, pump, link, logs, .. } = base;
    let (Some(stream), Some(link)) = (ranks.stream_mut(id.proc(), id.std()), link) else { return };
    let Stream { fd, cutter, total, tail, marks, way, .. } = stream;
    let (mut buf, max) = (link.spare(), pump.frame_max);
    let (done, cut) = cutter.read(&mut buf, |buf| -> io::Result<usize> {
        let held = buf.len();
        let n = rlaunch_sys::fd::read_onto(fd.as_raw_fd(), buf, marks.room(*total, max.saturating_sub(held)))?;
        let new = buf.get(held..).unwrap_or_default();
        if id.std() == Std::Err {
            tail.push(new);
        }
        if way.file && n > 0 {
            let mut copy = new.to_vec();
            marks.pass(*total, &mut copy);
            logs.write(id, copy);
        }
        Ok(n)
    });
    match done {
        Ok(0) => pump.work = Some(Work::new(id, Phase::End)),
        Ok(n) => took(stream, pump, id, n),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(_) => pump.work = Some(Work::new(id, Phase::End)),
    }
    hold(ranks, id, cut.held);
    let more = if cut.more { Flags::MORE } else { Flags::NONE };
    if buf.is_empty() {
        pump.chunk = buf;
    } else {
        send(base, id, more, buf);
    }
}

/// Starts or stops the timer of a line that is held.
fn hold(ranks: &mut Ranks, id: StreamId, held: Held) {
    match held {
        Held::Nothing => ranks.hold(id, None),
        Held::Begun => ranks.hold(id, Some(now() + PATIENCE)),
        Held::Still => {}
    }
}

/// Sends what a stream holds without copying it; false if it has to be read.
fn splice(stream: &mut Stream, pump: &mut Pump, link: &mut Link, id: StreamId) -> bool {
    let Some(link) = link else { return false };
    // Reading finds out the meaning of an error or an end.
    let len = rlaunch_sys::fd::unread(&stream.fd).min(pump.frame_max);
    let n = if len < BULKY { 0 } else { link.splice(pump.node, id, &stream.fd, len).unwrap_or(0) };
    stream.bulky = n > 0;
    if n == 0 {
        return false;
    }
    took(stream, pump, id, n);
    pump.spend(n);
    true
}

/// Counts bytes that were taken from a stream.
fn took(stream: &mut Stream, pump: &mut Pump, id: StreamId, n: usize) {
    stream.total = stream.total.saturating_add(u64::try_from(n).unwrap_or(0));
    if stream.closing {
        // A process that still holds it may never write again, so that nothing would bring it back to its turn.
        pump.turn.push_back(id);
    }
}

/// Makes one frame out of what was read or held.
fn cut(base: &mut Base, mut work: Work) {
    let Base { ranks, pump, link, .. } = base;
    let Some(stream) = ranks.stream_mut(work.id.proc(), work.id.std()) else { return };
    let mut out = match link {
        Some(link) => link.spare(),
        None => Vec::new(),
    };
    let max = pump.frame_max;
    let cut = match work.phase {
        Phase::Push => {
            let mut rest = work.chunk.get(work.done..).unwrap_or_default();
            let before = rest.len();
            let cut = stream.cutter.push(&mut rest, &mut out, max);
            work.done += before - rest.len();
            cut
        }
        Phase::Flush => stream.cutter.flush(&mut out, max),
        Phase::End => stream.cutter.end(&mut out, max),
    };
    let last = work.phase == Phase::End && !cut.full;
    let id = work.id;
    if cut.full {
        pump.work = Some(work);
    } else if work.phase == Phase::Push {
        pump.chunk = work.chunk;
    }
    hold(ranks, id, cut.held);
    let more = if cut.more { Flags::MORE } else { Flags::NONE };
    if last {
        end(base, id, out);
    } else if !out.is_empty() {
        send(base, id, more, out);
    }
}

fn send(base: &mut Base, id: StreamId, flags: Flags, body: Vec<u8>) {
    if let Some(link) = &mut base.link {
        base.pump.spend(body.len());
        base.pump.lines.sent(id, flags, body.len());
        link.data(base.pump.node, id, flags, body);
    }
}

/// The last frame of a stream.
fn end(base: &mut Base, id: StreamId, body: Vec<u8>) {
    send(base, id, Flags::END, body);
    let Some((stream, reaped)) = base.ranks.end_stream(id) else { return };
    base.pump.set.remove(&stream.fd);
    base.pump.ending = Some((id, stream.total, stream.way.file));
    if id.std() == Std::Err && !reaped {
        base.pump.tails.insert(id.proc(), stream.tail);
    }
}

/// Treats what a rank's streams hold now as all of it.
pub(super) fn close_streams(base: &mut Base, proc: ProcId) {
    base.logs.close(std::iter::empty());
    for std in [Std::Out, Std::Err] {
        if let Some(stream) = base.ranks.stream_mut(proc, std) {
            stream.closing = true;
            let (id, hidden) = (StreamId::of(proc, std), !stream.way.shown);
            base.logs.close(hidden.then_some(id).into_iter());
            base.pump.turn.extend((!hidden).then_some(id));
        }
    }
}

/// Marks a new round: the output of a rank until now is of the round before, which this line ends. Output without labels, which goes
/// nowhere else, has no marks.
pub(super) fn mark(base: &mut Base, proc: ProcId, line: &[u8]) {
    for std in [Std::Out, Std::Err] {
        let Some(stream) = base.ranks.stream_mut(proc, std) else { continue };
        if stream.way.file || stream.cutter.is_labelled() {
            let unread = u64::try_from(rlaunch_sys::fd::unread(&stream.fd)).unwrap_or(0);
            stream.marks.begin(stream.total.saturating_add(unread), line.into());
        }
    }
}

/// How far a rank's stderr has to be read until all is read that is in it now.
pub(super) fn written_by_now(base: &mut Base, proc: ProcId) -> u64 {
    let Some(stream) = base.ranks.stream_mut(proc, Std::Err) else { return 0 };
    stream.total.saturating_add(u64::try_from(rlaunch_sys::fd::unread(&stream.fd)).unwrap_or(0))
}

/// Whether a rank's stderr will be read up to there and is not yet.
pub(super) fn will_be_read(base: &mut Base, proc: ProcId, up_to: u64) -> bool {
    let lost = base.link.is_none();
    let can = lost || (base.pump.has_credit() && base.pump.may_send(StreamId::of(proc, Std::Err)));
    let (hidden, room) = (lost || base.logs.has_room(), can);
    let stream = base.ranks.stream_mut(proc, Std::Err);
    let can = stream.as_ref().is_some_and(|stream| if stream.way.shown { room } else { hidden });
    can && stream.is_some_and(|stream| stream.total < up_to && rlaunch_sys::fd::readable_now(&stream.fd))
}
