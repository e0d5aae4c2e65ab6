//! rlaunch's standard input on its way to the ranks that read it. A thread of its own reads it, since a read of a terminal or a pipe may
//! block. Nothing is read before a rank waits for it: see [`Intake`].
//!
//! A terminal is read only while our process group is in its foreground. While it is not, this is asked every 200 ms:
//! bash's `fg` of a running job sends no signal. All signals are blocked, SIGTTIN too, so a read that comes too late
//! fails with EIO instead of stopping us.

use super::nodes::Nodes;
use rlaunch_base::errno::EIO;
use rlaunch_base::id::{NodeId, ProcId, Std, StreamId};
use rlaunch_net::Connection;
use rlaunch_plan::place::Placement;
use rlaunch_protocol::settings::StdinPlan;
use rlaunch_protocol::stream::intake::{Intake, Pace};
use rlaunch_protocol::wire::frame::{Flags, MAX_DATA};
use rlaunch_protocol::wire::to_root::{InputNews, ToRoot};
use rlaunch_sys::doorbell::Doorbell;
use rlaunch_sys::fd::{self, Kind};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

const STDIN: i32 = 0;
/// How often a terminal in whose background we are is asked.
const FOREGROUND_EVERY: Duration = Duration::from_millis(200);
/// Chunks that are read ahead of what was sent.
const AHEAD: usize = 4;

/// Edges by node.
pub(super) trait Links {
    /// The edge of a node that can be written under the runtime.
    fn live(&mut self, node: NodeId) -> Option<&mut Connection<ToRoot>>;
}

impl Links for Nodes {
    fn live(&mut self, node: NodeId) -> Option<&mut Connection<ToRoot>> {
        Self::live(self, node)
    }
}

pub(super) struct Input {
    plan: StdinPlan,
    intake: Intake,
    source: Source,
    /// Whether the thread was started.
    is_reading: bool,
    pace: Pace,
    shared: Arc<Shared>,
    bell: Doorbell,
}

/// Kind of standard input: whether it can be waited for.
enum Source {
    /// Not looked at yet.
    Unknown,
    /// A terminal or a pipe.
    Stream(AsyncFd<OwnedFd>),
    /// A file: always ready.
    File,
}

#[derive(Default)]
struct Shared {
    slot: Mutex<Slot>,
    wanted: Condvar,
}

#[derive(Default)]
struct Slot {
    /// Bytes that the thread may still read.
    room: u64,
    /// The chunks that it has read; an empty chunk is the end.
    got: VecDeque<Vec<u8>>,
    /// errno of the read that ended it, or of the thread that cannot be had.
    failed: Option<i32>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Input {
    pub(super) fn new(plan: StdinPlan, placement: &Placement, bell: Doorbell) -> Self {
        let pace = if rlaunch_sys::tty::is_terminal(STDIN) { Pace::Line } else { Pace::Stream };
        let intake = Intake::new(pace, readers(plan, placement));
        Self { plan, intake, source: Source::Unknown, is_reading: false, pace, shared: Arc::default(), bell }
    }

    /// Ranks run there from now on.
    pub(super) fn place(&mut self, placement: &Placement) {
        self.intake.place(readers(self.plan, placement));
    }

    /// The ranks of a host take input up to this offset.
    pub(super) fn grant(&mut self, node: NodeId, up_to: u64) {
        self.intake.grant(node, up_to);
    }

    /// News of a host's ranks.
    pub(super) fn receive(&mut self, node: NodeId, news: InputNews) {
        match news {
            InputNews::Wanted => self.intake.want(),
            InputNews::Closed => self.intake.close(node),
        }
    }

    /// A host is lost.
    pub(super) fn lose(&mut self, node: NodeId) {
        self.intake.close(node);
    }

    /// errno of the failure that ended the input early; returned once.
    pub(super) fn take_failure(&self) -> Option<i32> {
        self.shared.lock().failed.take()
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>, links: &mut impl Links) {
        if self.plan == StdinPlan::None {
            return;
        }
        self.pass_on(cx, links);
        if !self.intake.is_ended() {
            self.announce(cx, links);
            self.allow();
        }
    }

    /// Lets the thread read what it may, and starts it for that.
    fn allow(&mut self) {
        let more = self.intake.allow();
        if more == 0 {
            return;
        }
        self.shared.lock().room += more;
        self.shared.wanted.notify_one();
        if !std::mem::replace(&mut self.is_reading, true) {
            self.start();
        }
    }

    fn start(&self) {
        let (shared, bell, pace) = (Arc::clone(&self.shared), self.bell.clone(), self.pace);
        if let Err(error) = rlaunch_sys::thread::permanent("in", move || read_all(&shared, &bell, pace)) {
            // The rank must not wait for an end that is never read.
            let mut slot = self.shared.lock();
            slot.failed = Some(error.raw_os_error().unwrap_or(0));
            slot.got.push_back(Vec::new());
            self.bell.ring();
        }
    }

    /// Sends what was read.
    fn pass_on(&mut self, cx: &mut Context<'_>, links: &mut impl Links) {
        while self.is_reading && !self.intake.is_ended() && self.have_room(cx, links) {
            let Some(chunk) = self.next_chunk() else { break };
            if chunk.is_empty() {
                self.intake.end();
                break;
            }
            let len = u64::try_from(chunk.len()).unwrap_or(0);
            self.send(links, chunk);
            self.intake.pass(len);
        }
        while let Some(node) = self.intake.take_end() {
            if let Some(link) = links.live(node) {
                link.data(node, stream(), Flags::END, Vec::new());
            }
        }
    }

    /// Announces to the ranks that there is something to read.
    fn announce(&mut self, cx: &mut Context<'_>, links: &mut impl Links) {
        if self.intake.can_announce() && self.is_readable(cx) && self.have_room(cx, links) {
            self.send(links, Vec::new());
            self.intake.announced();
        }
    }

    /// Sends a chunk to all hosts that read. An empty chunk announces that there is something to read.
    fn send(&self, links: &mut impl Links, mut chunk: Vec<u8>) {
        let mut nodes = self.intake.open().peekable();
        while let Some(node) = nodes.next() {
            let copy = if nodes.peek().is_some() { chunk.clone() } else { std::mem::take(&mut chunk) };
            if let Some(link) = links.live(node) {
                link.data(node, stream(), Flags::NONE, copy);
            }
        }
    }

    /// Whether the edges to all hosts that read have room.
    fn have_room(&self, cx: &mut Context<'_>, links: &mut impl Links) -> bool {
        self.intake.open().all(|node| {
            let Some(link) = links.live(node) else { return false };
            // The event that frees room must be seen here: the thread's bell may have rung already, and nothing else would wake us.
            link.has_room() || (link.poll_flush(cx).is_ready() && link.has_room())
        })
    }

    /// Whether standard input has something to read, or has ended.
    fn is_readable(&mut self, cx: &mut Context<'_>) -> bool {
        if let Source::Unknown = self.source {
            self.source = open();
        }
        let Source::Stream(waited) = &self.source else { return true };
        loop {
            match waited.poll_read_ready(cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(_)) if fd::readable_now(waited.get_ref()) => return true,
                Poll::Ready(Ok(mut guard)) => guard.clear_ready(),
                Poll::Ready(Err(_)) => return true,
            }
        }
    }

    /// Returns bytes that were read and not sent, if all hosts take them.
    fn next_chunk(&self) -> Option<Vec<u8>> {
        let room = self.intake.room();
        let mut slot = self.shared.lock();
        let got = slot.got.pop_front_if(|chunk| u64::try_from(chunk.len()).is_ok_and(|len| len <= room));
        if slot.got.len() + 1 == AHEAD {
            self.shared.wanted.notify_one();
        }
        got
    }
}

/// The hosts whose ranks read.
fn readers(plan: StdinPlan, placement: &Placement) -> Vec<NodeId> {
    match plan {
        StdinPlan::Rank0 => vec![placement.head()],
        StdinPlan::All => placement.used().collect(),
        StdinPlan::None => Vec::new(),
    }
}

fn stream() -> StreamId {
    StreamId::of(ProcId::new(0), Std::In)
}

fn open() -> Source {
    if matches!(fd::kind(STDIN), Ok(Kind::Stream | Kind::Terminal))
        && let Ok(copy) = fd::duplicate(STDIN)
        && let Ok(waited) = rlaunch_net::ready::readable(copy)
    {
        return Source::Stream(waited);
    }
    Source::File
}

/// The thread.
fn read_all(shared: &Shared, bell: &Doorbell, pace: Pace) {
    loop {
        let mut slot = shared.lock();
        while slot.room == 0 || slot.got.len() >= AHEAD {
            slot = shared.wanted.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
        let most = usize::try_from(slot.room.min(u64::from(MAX_DATA))).unwrap_or(0);
        drop(slot);
        let (chunk, failed) = match read_some(most) {
            Ok(chunk) => (chunk, None),
            Err(error) => (Vec::new(), Some(error.raw_os_error().unwrap_or(0))),
        };
        let ended = chunk.is_empty();
        let mut slot = shared.lock();
        slot.failed = failed;
        slot.room = match pace {
            Pace::Line => 0,
            Pace::Stream => slot.room - u64::try_from(chunk.len()).unwrap_or(0),
        };
        slot.got.push_back(chunk);
        drop(slot);
        bell.ring();
        if ended {
            return;
        }
    }
}

/// A read; empty: the end.
fn read_some(max: usize) -> io::Result<Vec<u8>> {
    let mut chunk = Vec::new();
    loop {
        while rlaunch_sys::tty::is_terminal(STDIN) && !rlaunch_sys::tty::in_foreground(STDIN) {
            std::thread::sleep(FOREGROUND_EVERY);
        }
        match fd::read_onto(STDIN, &mut chunk, max) {
            Ok(_) => return Ok(chunk),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Another process that shares the descriptor has made it non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => fd::wait_readable(STDIN),
            Err(error) if error.raw_os_error() == Some(EIO) && rlaunch_sys::tty::is_terminal(STDIN) => {
                std::thread::sleep(FOREGROUND_EVERY);
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_net::Early;
    use std::future::poll_fn;
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    struct One(Connection<ToRoot>);

    impl Links for One {
        fn live(&mut self, _node: NodeId) -> Option<&mut Connection<ToRoot>> {
            Some(&mut self.0)
        }
    }

    /// The rest was forgotten until the rank asked for more. Near the end of the input a rank does not ask.
    #[test]
    fn input_read_while_edge_was_full_is_sent() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (a, mut b) = UnixStream::pair().unwrap();
        b.set_nonblocking(true).unwrap();
        let mut input = Input {
            plan: StdinPlan::Rank0,
            intake: Intake::new(Pace::Stream, [NodeId::new(0)]),
            source: Source::File,
            is_reading: true,
            pace: Pace::Stream,
            shared: Arc::default(),
            bell: Doorbell::new().unwrap(),
        };
        input.grant(NodeId::new(0), 1 << 20);
        runtime.block_on(async {
            let mut links = One(Early::<ToRoot>::new(a).into_connection().unwrap());
            let link = &mut links.0;
            while link.has_room() {
                link.data(NodeId::new(0), StreamId::of(ProcId::new(0), Std::In), Flags::NONE, vec![0; 64 << 10]);
                poll_fn(|cx| Poll::Ready(link.poll_flush(cx).is_ready())).await;
            }
            input.shared.lock().got.push_back(vec![1; 64 << 10]);
            poll_fn(|cx| {
                input.poll(cx, &mut links);
                Poll::Ready(())
            })
            .await;
            assert!(!input.shared.lock().got.is_empty(), "the edge is full");
            let mut taken = vec![0; 1 << 20];
            while b.read(&mut taken).is_ok() {}
            tokio::time::sleep(Duration::from_millis(1)).await;
            poll_fn(|cx| {
                input.poll(cx, &mut links);
                Poll::Ready(())
            })
            .await;
            assert!(input.shared.lock().got.is_empty(), "the edge has room again");
        });
    }
}
