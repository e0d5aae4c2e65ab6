//! Our standard input on its way to rank 0. A thread of its own reads it, since a read of a terminal or a pipe may block,
//! and only while there is credit for it.
//!
//! A terminal is read only while our process group is in its foreground. While it is not, this is asked every 200 ms:
//! bash's `fg` of a running job sends no signal. All signals are blocked, SIGTTIN too, so a read that comes too late
//! fails with EIO instead of stopping us.

use rlaunch_core::errno::EIO;
use rlaunch_core::id::{NodeId, ProcId, Std, StreamId};
use rlaunch_core::place::Placement;
use rlaunch_core::stream::window::Window;
use rlaunch_core::wire::frame::{Flags, MAX_DATA};
use rlaunch_core::wire::to_root::ToRoot;
use rlaunch_net::Connection;
use rlaunch_sys::doorbell::Doorbell;
use rlaunch_sys::fd::{self, Kind};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

const STDIN: i32 = 0;
/// How often a terminal in whose background we are is asked.
const FOREGROUND_EVERY: Duration = Duration::from_millis(200);
/// Chunks that are read ahead of what was sent.
const AHEAD: usize = 4;

pub(super) struct Input {
    state: State,
    /// Rank 0's host.
    node: NodeId,
    window: Window,
    shared: Arc<Shared>,
    bell: Doorbell,
}

enum State {
    /// No rank reads it, or it has ended.
    Unused,
    /// A rank may read it; it has not asked yet.
    Idle,
    /// There is credit, and nothing to read yet.
    Waiting(AsyncFd<OwnedFd>),
    /// The thread reads.
    Reading,
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
    pub(super) fn new(used: bool, node: NodeId, bell: Doorbell) -> Self {
        let state = if used { State::Idle } else { State::Unused };
        Self { state, node, window: Window::new(0), shared: Arc::default(), bell }
    }

    pub(super) const fn node(&self) -> NodeId {
        self.node
    }

    /// Ranks run there from now on.
    pub(super) fn place(&mut self, placement: &Placement) {
        self.node = placement.head();
    }

    /// The rank takes input up to this offset.
    pub(super) fn grant(&mut self, up_to: u64) {
        let before = self.window.room();
        self.window.grant(up_to);
        self.shared.lock().room += self.window.room() - before;
        self.shared.wanted.notify_one();
        if let State::Idle = self.state {
            self.state = self.wait_for_the_first_byte();
        }
    }

    /// A thread is worth its start only once there is something to read. A file always has.
    fn wait_for_the_first_byte(&self) -> State {
        if matches!(fd::kind(STDIN), Ok(Kind::Stream | Kind::Terminal))
            && let Ok(copy) = fd::duplicate(STDIN)
            && let Ok(ready) = rlaunch_net::ready::readable(copy)
        {
            return State::Waiting(ready);
        }
        self.start()
    }

    fn start(&self) -> State {
        let (shared, bell) = (Arc::clone(&self.shared), self.bell.clone());
        match rlaunch_sys::thread::permanent("in", move || read_all(&shared, &bell)) {
            Ok(()) => {}
            Err(error) => {
                // The rank must not wait for an end that is never read.
                let mut slot = self.shared.lock();
                slot.failed = Some(error.raw_os_error().unwrap_or(0));
                slot.got.push_back(Vec::new());
            }
        }
        State::Reading
    }

    /// errno of what ended the input before its end; told once.
    pub(super) fn take_failure(&self) -> Option<i32> {
        self.shared.lock().failed.take()
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>, link: &mut Connection<ToRoot>) {
        if let State::Waiting(ready) = &self.state {
            if ready.poll_read_ready(cx).is_pending() {
                return;
            }
            self.state = self.start();
        }
        while let State::Reading = self.state {
            // The event that frees room must be seen here: the thread's bell may have rung already, and nothing else would wake us.
            if !link.has_room() && (link.poll_flush(cx).is_pending() || !link.has_room()) {
                return;
            }
            let Some(chunk) = self.next_chunk() else { return };
            let ended = chunk.is_empty();
            let within = self.window.spend(u64::try_from(chunk.len()).unwrap_or(0));
            debug_assert!(within, "more was read than the rank takes");
            let stream = StreamId::of(ProcId::new(0), Std::In);
            link.data(self.node, stream, if ended { Flags::END } else { Flags::NONE }, chunk);
            if ended {
                self.state = State::Unused;
            }
        }
    }

    /// Returns bytes that were read and not sent.
    fn next_chunk(&self) -> Option<Vec<u8>> {
        let mut slot = self.shared.lock();
        let got = slot.got.pop_front();
        if slot.got.len() + 1 == AHEAD {
            self.shared.wanted.notify_one();
        }
        got
    }
}

/// The thread.
fn read_all(shared: &Shared, bell: &Doorbell) {
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
        slot.room -= u64::try_from(chunk.len()).unwrap_or(0);
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
            // Somebody we share it with has made it non-blocking.
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
    use std::task::Poll;

    /// It was forgotten until the rank asked for more, and near the end of the input a rank does not.
    #[test]
    fn what_was_read_while_the_edge_was_full_goes_out_with_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (a, mut b) = UnixStream::pair().unwrap();
        b.set_nonblocking(true).unwrap();
        let mut input = Input::new(true, NodeId::new(0), Doorbell::new().unwrap());
        input.window.grant(1 << 20);
        input.state = State::Reading;
        runtime.block_on(async {
            let mut link = Early::<ToRoot>::new(a).into_connection().unwrap();
            while link.has_room() {
                link.data(NodeId::new(0), StreamId::of(ProcId::new(0), Std::In), Flags::NONE, vec![0; 64 << 10]);
                poll_fn(|cx| Poll::Ready(link.poll_flush(cx).is_ready())).await;
            }
            input.shared.lock().got.push_back(vec![1; 64 << 10]);
            poll_fn(|cx| {
                input.poll(cx, &mut link);
                Poll::Ready(())
            })
            .await;
            assert!(!input.shared.lock().got.is_empty(), "the edge is full");
            let mut taken = vec![0; 1 << 20];
            while b.read(&mut taken).is_ok() {}
            tokio::time::sleep(Duration::from_millis(1)).await;
            poll_fn(|cx| {
                input.poll(cx, &mut link);
                Poll::Ready(())
            })
            .await;
            assert!(input.shared.lock().got.is_empty(), "the edge has room again");
        });
    }
}
