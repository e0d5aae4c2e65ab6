//! Log files of ranks: their streams go to the `file` thread, and some of them only there.
//!
//! Streams that are not shown are watched in a set of their own: the reader of rlaunch's output does not hold them up. The bytes that the
//! thread has not written are bounded. Beyond that nothing more is read, and ranks wait as they would for a slow file. Only where the job
//! ends, and a file system that does not answer is all that is waited for, it is given up after [`PATIENCE`]; what it has not taken is
//! lost then, and counted.

mod writer;

use super::pump::Stream;
use super::rank_table;
use crate::clock::now;
use crate::edges::live_set::LiveSet;
use crate::edges::part::Base;
use crate::edges::pump::LastWords;
use crate::edges::watch::Source;
use rlaunch_base::file_pattern::Writer;
use rlaunch_base::id::{ProcId, Std, StreamId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_core::node::{ExecSpec, NodeEvent};
use rlaunch_protocol::logs::Way;
use rlaunch_protocol::wire::node_news::NodeNews;
use rlaunch_sys::doorbell::Doorbell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::mpsc::TrySendError;
use std::task::Context;
use writer::{Answer, Port, Request};

/// Time that a file system may hang while the job ends. The launcher waits longer for us: it does not end an agent that has no rank left
/// to wait for within 6 s (`closing` and `kill_watchdog` of `rlaunch_core::job`).
const PATIENCE: Span = Span::from_secs(4);
/// Most bytes that wait to be written.
const ROOM: usize = 4 << 20;
/// Read at once.
const CHUNK: usize = 64 << 10;
/// Read before others have their turn.
const BURST: usize = 64;

/// All of it; nothing where a job has no such streams.
#[derive(Default)]
pub(super) struct Logs(Option<Box<Inner>>);

struct Inner {
    /// `None`: the bell cannot be watched, and all output is lost.
    port: Option<Port>,
    /// Requests that the thread has no room for yet: a host may have hundreds of ranks, and its file system may be slow. Bytes are
    /// bounded by [`ROOM`], and of everything else there are a few for each rank.
    backlog: VecDeque<Request>,
    /// Streams that are not shown.
    set: LiveSet,
    turn: VecDeque<StreamId>,
    /// Streams with a file.
    open: BTreeMap<StreamId, File>,
    /// Requests and bytes that were not answered.
    under_way: (usize, usize),
    /// Since when nothing was.
    silent_since: Option<Mono>,
    /// Streams that are shown too, and wait for room here.
    starved: Vec<StreamId>,
    /// Whether the ranks are not waited for any more.
    closing: bool,
}

#[derive(Default)]
struct File {
    unwritten: usize,
    lost: u64,
    /// Its stream has ended, after so many bytes.
    ended: Option<u64>,
}

impl Inner {
    fn new(watch: impl FnOnce(&Doorbell) -> io::Result<()>) -> io::Result<Self> {
        let port = Port::start().and_then(|port| watch(&port.bell).map(|()| port));
        let port = port.inspect_err(|error| tracing::error!(%error, "log files cannot be written")).ok();
        Ok(Self {
            port,
            backlog: VecDeque::new(),
            set: LiveSet::with_room(64)?,
            turn: VecDeque::new(),
            open: BTreeMap::new(),
            under_way: (0, 0),
            silent_since: None,
            starved: Vec::new(),
            closing: false,
        })
    }

    fn has_room(&self) -> bool {
        let (requests, bytes) = self.under_way;
        // Directories, files and their ends are asked for besides.
        requests < writer::ROOM / 2 && bytes < ROOM
    }

    /// Nothing is to be waited for any more.
    fn is_stuck(&self) -> bool {
        self.closing && self.silent_since.is_some_and(|since| since + PATIENCE <= now())
    }

    fn ask(&mut self, request: Request, bytes: usize) -> bool {
        self.backlog.push_back(request);
        let asked = self.hand_over();
        if asked && bytes > 0 {
            self.under_way.0 += 1;
            self.under_way.1 += bytes;
            self.silent_since.get_or_insert_with(now);
        }
        asked
    }

    /// Gives the thread what it has room for. False: there is no thread.
    fn hand_over(&mut self) -> bool {
        while let Some(request) = self.backlog.pop_front() {
            match self.port.as_mut().map(|port| port.ask(request)) {
                Some(Ok(())) => {}
                Some(Err(TrySendError::Full(request))) => {
                    self.backlog.push_front(request);
                    break;
                }
                Some(Err(TrySendError::Disconnected(_))) | None => {
                    self.backlog.clear();
                    return false;
                }
            }
        }
        true
    }

    fn write(&mut self, id: StreamId, bytes: Vec<u8>) {
        let len = bytes.len();
        let asked = self.has_room() && self.ask(Request::Write(id, bytes), len);
        if let Some(file) = self.open.get_mut(&id) {
            if asked {
                file.unwritten += len;
            } else {
                file.lost = file.lost.saturating_add(len as u64);
            }
        }
    }

    /// A stream has ended. True: and so has its file.
    fn end(&mut self, id: StreamId, total: u64) -> bool {
        let asked = self.ask(Request::Close(id), 0);
        let Some(file) = self.open.get_mut(&id) else { return true };
        file.ended = Some(total);
        !asked || self.is_stuck()
    }

    fn next_ready(&mut self, cx: &mut Context<'_>) -> Option<StreamId> {
        if !self.has_room() && !self.is_stuck() {
            return None;
        }
        super::pump::next_ready(&mut self.set, &mut self.turn, cx)
    }
}

impl Logs {
    /// Whether more may be read for a file.
    pub(super) fn has_room(&self) -> bool {
        self.0.as_ref().is_none_or(|inner| inner.has_room() || inner.is_stuck())
    }

    /// When a file system that does not answer is given up.
    pub(super) fn deadline(&self) -> Option<Mono> {
        let inner = self.0.as_ref().filter(|inner| inner.closing && !inner.is_stuck())?;
        inner.silent_since.map(|since| since + PATIENCE)
    }

    /// A stream that is shown as well has said this.
    pub(super) fn write(&mut self, id: StreamId, bytes: Vec<u8>) {
        if let Some(inner) = &mut self.0 {
            inner.write(id, bytes);
        }
    }

    /// A stream that is shown as well waits for room here.
    pub(super) fn starve(&mut self, id: StreamId) {
        if let Some(inner) = &mut self.0 {
            inner.starved.push(id);
        }
    }

    /// Closes streams that are not shown, once ranks are not waited for any more: the bytes that they hold now are all.
    pub(super) fn close(&mut self, hidden: impl Iterator<Item = StreamId>) {
        if let Some(inner) = &mut self.0 {
            inner.closing = true;
            inner.turn.extend(hidden);
        }
    }
}

impl Logs {
    /// Other ranks follow, and are waited for.
    pub(super) fn reopen(&mut self) {
        if let Some(inner) = &mut self.0 {
            inner.closing = false;
        }
    }
}

/// A rank will be started: its files are made meanwhile. True: it has to wait for its directory, where it may leave something of its
/// own, and [`rank_table::go`] starts it.
pub(super) fn prepare(base: &mut Base, proc: ProcId, exec: &mut ExecSpec) -> bool {
    let directory = exec.error_file.directory();
    if directory.is_none() && exec.ways.iter().all(|way| way.shown) {
        return false;
    }
    if base.logs.0.is_none() {
        let watch = &base.watch;
        match Inner::new(|bell| watch.add(bell, Source::Logs)) {
            Ok(inner) => base.logs.0 = Some(Box::new(inner)),
            Err(error) => {
                // Output that would only go into a file is shown instead: nothing is lost.
                exec.ways = [Way::SHOWN; 2];
                let (errno, path) = (error.raw_os_error().unwrap_or(0), directory.unwrap_or_default());
                base.events.push_back(NodeEvent::News(NodeNews::FileFailed { errno, path }));
                return false;
            }
        }
    }
    let (Some(inner), Some(logs)) = (&mut base.logs.0, &exec.base.logs) else { return false };
    let make = |directory: &OsBytes| Request::Make { proc, path: directory.to_vec(), private: logs.private };
    let waits = directory.as_ref().is_some_and(|directory| inner.ask(make(directory), 0));
    let mut failed = directory.clone().filter(|_| !waits);
    let group = exec.base.role.world.group.as_slice();
    let writer = Writer { group, rank: exec.delta.world_rank.rank, node: exec.node, host: base.sandbox.host() };
    let names = logs.names(directory.as_ref().map(|directory| directory.as_slice()), &writer);
    for ((std, way), name) in [Std::Out, Std::Err].into_iter().zip(exec.ways).zip(names) {
        let Some(name) = name.filter(|_| way.file) else { continue };
        let id = StreamId::of(proc, std);
        inner.open.insert(id, File::default());
        if !inner.ask(Request::Open(id, name.to_vec()), 0) {
            failed.get_or_insert(name);
        }
    }
    if let Some(path) = failed {
        base.events.push_back(NodeEvent::News(NodeNews::FileFailed { errno: rlaunch_base::errno::EAGAIN, path }));
    }
    waits
}

/// Moves a new stream that is not shown to the set of such streams. If that set cannot take the stream, it is shown instead.
pub(super) fn adopt(base: &Base, id: StreamId, stream: &mut Stream) {
    let watched = base.logs.0.as_ref().map_or(Ok(()), |inner| inner.set.add(&stream.fd, u64::from(id.get())));
    match watched {
        Ok(()) => base.pump.set.remove(&stream.fd),
        Err(error) => {
            tracing::error!(%error, "a stream cannot be watched apart from those that are shown");
            stream.way.shown = true;
        }
    }
}

/// Reads what there is while there is room for it.
pub(super) fn poll(base: &mut Base, cx: &mut Context<'_>, last_words: LastWords<'_>) {
    give_up(base);
    for _ in 0..BURST {
        let Some(id) = base.logs.0.as_mut().and_then(|inner| inner.next_ready(cx)) else { return };
        read(base, id, last_words);
    }
    cx.waker().wake_by_ref();
}

fn read(base: &mut Base, id: StreamId, last_words: LastWords<'_>) {
    let Base { ranks, logs, .. } = base;
    let Some(inner) = &mut logs.0 else { return };
    let Some(stream) = ranks.stream_mut(id.proc(), id.std()) else { return };
    if stream.closing && !rlaunch_sys::fd::readable_now(&stream.fd) {
        return end(base, id);
    }
    let mut bytes = Vec::new();
    match rlaunch_sys::fd::read_onto(stream.fd.as_raw_fd(), &mut bytes, stream.marks.room(stream.total, CHUNK)) {
        Ok(0) => {
            let has_more = last_words(base, id);
            return if has_more { read(base, id, last_words) } else { end(base, id) };
        }
        Ok(n) => {
            let before = stream.total;
            stream.total = stream.total.saturating_add(n as u64);
            if id.std() == Std::Err {
                stream.tail.push(&bytes);
            }
            if stream.way.file {
                stream.marks.pass(before, &mut bytes);
                bytes.shrink_to_fit();
                inner.write(id, bytes);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(_) => return end(base, id),
    }
    if stream.closing {
        // A process that still holds it may never write again, so that nothing would bring it back to its turn.
        inner.turn.push_back(id);
    }
}

/// A stream that is not shown has ended.
fn end(base: &mut Base, id: StreamId) {
    let Some((stream, reaped)) = base.ranks.end_stream(id) else { return };
    if let Some(inner) = &base.logs.0 {
        inner.set.remove(&stream.fd);
    }
    let total = stream.total;
    if id.std() == Std::Err && !reaped {
        base.pump.keep_tail(id.proc(), stream.tail);
    }
    ended(base, id, total);
}

/// Records that a stream has ended, and its bytes were sent: the end is reported when its file has all of it too.
pub(super) fn ended(base: &mut Base, id: StreamId, total: u64) {
    let closed = base.logs.0.as_mut().is_none_or(|inner| inner.end(id, total));
    if closed {
        closed_file(base, id, total);
    }
}

fn closed_file(base: &mut Base, id: StreamId, total: u64) {
    let file = base.logs.0.as_mut().and_then(|inner| inner.open.remove(&id)).unwrap_or_default();
    let (proc, which) = (id.proc(), id.std());
    let bytes = file.lost.saturating_add(file.unwritten as u64);
    if bytes > 0 {
        base.events.push_back(NodeEvent::FileLost { proc, which, bytes });
    }
    base.events.push_back(NodeEvent::StreamEnd { proc, which, total });
}

/// Takes in what the thread has done.
pub(super) fn receive_answers(base: &mut Base) {
    let Some(inner) = &mut base.logs.0 else { return };
    let answers: Vec<Answer> = inner.port.as_mut().map(|port| port.answers().collect()).unwrap_or_default();
    inner.hand_over();
    let (mut over, mut made) = (Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            Answer::Made(proc) => made.push(proc),
            Answer::Took { id, bytes, lost } => {
                inner.under_way = (inner.under_way.0.saturating_sub(1), inner.under_way.1.saturating_sub(bytes));
                inner.silent_since = (inner.under_way.0 > 0).then(now);
                if let Some(file) = inner.open.get_mut(&id) {
                    file.unwritten = file.unwritten.saturating_sub(bytes);
                    file.lost = file.lost.saturating_add(lost as u64);
                }
            }
            Answer::Failed { errno, path } => {
                base.events.push_back(NodeEvent::News(NodeNews::FileFailed { errno, path: OsBytes::new(path) }));
            }
            Answer::Closed(id) => over.extend(inner.open.get(&id).and_then(|file| file.ended).map(|total| (id, total))),
        }
    }
    made.into_iter().for_each(|proc| rank_table::go(base, proc));
    over.into_iter().for_each(|(id, total)| closed_file(base, id, total));
    feed(base);
}

/// Gives up a file system that does not answer, where it is the only thing that is waited for.
fn give_up(base: &mut Base) {
    let Some(inner) = base.logs.0.as_ref().filter(|inner| inner.is_stuck()) else { return };
    let ended = |(id, file): (&StreamId, &File)| file.ended.map(|total| (*id, total));
    let over: Vec<(StreamId, u64)> = inner.open.iter().filter_map(ended).collect();
    over.into_iter().for_each(|(id, total)| closed_file(base, id, total));
    feed(base);
}

/// Streams that waited for room continue.
fn feed(base: &mut Base) {
    if !base.logs.has_room() {
        return;
    }
    let Some(inner) = &mut base.logs.0 else { return };
    for id in std::mem::take(&mut inner.starved) {
        let Some(stream) = base.ranks.stream_mut(id.proc(), id.std()) else { continue };
        base.pump.wake(id, stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::sync::mpsc::sync_channel;

    fn long_ago() -> Mono {
        Mono::from_nanos(now().nanos().saturating_sub(2 * PATIENCE.nanos()))
    }

    /// However long it takes: bytes of a rank that runs are given up for no file system.
    #[test]
    fn a_file_system_that_does_not_answer_is_waited_for_while_ranks_run() {
        let _runtime = super::super::testing::enter();
        let mut inner = Inner::new(|_| Ok(())).unwrap();
        (inner.under_way, inner.silent_since) = ((1, ROOM), Some(long_ago()));
        let id = StreamId::of(ProcId::new(0), Std::Out);
        inner.open.insert(id, File::default());
        assert!(!inner.end(id, 1), "its end waits for its file");
        let mut logs = Logs(Some(Box::new(inner)));
        assert!(!logs.has_room() && logs.deadline().is_none());
        logs.close(std::iter::empty());
        assert!(logs.has_room() && logs.deadline().is_none(), "nobody waits for the ranks any more");
        assert!(logs.0.as_mut().unwrap().end(id, 1));
    }

    /// A file system that does not answer: ranks wait for it while they are waited for, and nothing waits longer.
    #[test]
    fn a_file_system_that_does_not_answer_is_given_up_only_at_the_end() {
        let _runtime = super::super::testing::enter();
        let (_answer, held) = sync_channel::<()>(0);
        let port = Port::over(move |_| {
            let _ended = held.recv();
            Ok(io::sink())
        });
        let mut inner = Inner { port: Some(port.unwrap()), ..Inner::new(|_| Ok(())).unwrap() };
        for rank in 1..writer::ROOM {
            let id = StreamId::of(ProcId::new(u32::try_from(rank).unwrap()), Std::Out);
            assert!(
                inner.ask(Request::Make { proc: id.proc(), path: b"/".to_vec(), private: false }, 0)
                    && inner.ask(Request::Open(id, b"/".to_vec()), 0)
            );
        }
        assert!(inner.backlog.len() >= writer::ROOM - 4, "more ranks than the thread has room for");
        let id = StreamId::of(ProcId::new(0), Std::Out);
        inner.open.insert(id, File::default());
        assert!(inner.ask(Request::Open(id, b"/a".to_vec()), 0));
        while inner.has_room() {
            inner.write(id, vec![0; CHUNK]);
        }
        let began = now();
        assert_eq!(inner.open[&id].unwritten, ROOM, "so much waits and no more");
        let mut logs = Logs(Some(Box::new(inner)));
        assert!(!logs.has_room() && logs.deadline().is_none(), "a rank that runs can wait");
        logs.close(std::iter::empty());
        let until = logs.deadline().unwrap();
        while !logs.has_room() {
            let bell = logs.0.as_ref().unwrap().port.as_ref().unwrap().bell.clone();
            rlaunch_sys::fd::wait_for_any(&[bell.as_fd()], Some(until.since(now()).duration()));
        }
        let took = now().since(began);
        assert!(took + Span::from_millis(100) >= PATIENCE, "{took}");
        assert_eq!(logs.deadline(), None, "it has passed, and nothing is waited for any more");
        let inner = logs.0.as_mut().unwrap();
        inner.write(id, vec![0; 7]);
        assert!(inner.end(id, 9), "its end is reported at once");
        assert_eq!((inner.open[&id].unwritten, inner.open[&id].lost), (ROOM, 7));
    }
}
