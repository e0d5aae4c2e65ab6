//! What the ranks write, on its way to our stdout and stderr, and the credit for it.

use super::ledger::Ledger;
use super::now;
use super::sink::{Sink, Target};
use bytes::Bytes;
use rlaunch_core::errno::{EIO, EPIPE};
use rlaunch_core::id::{AppIndex, LocalRank, ProcId, Rank, Std, StreamId};
use rlaunch_core::job::JobEvent;
use rlaunch_core::machine::earliest;
use rlaunch_core::spec::JobSpec;
use rlaunch_core::stream::label::{Prefix, Who};
use rlaunch_core::stream::turn::{Broken, Pace, Turn, Write};
use rlaunch_core::stream::window::{self, Grants};
use rlaunch_core::time::{Mono, Span};
use rlaunch_core::wire::frame::Flags;
use rlaunch_sys::doorbell::Doorbell;
use std::collections::{BTreeMap, VecDeque};

/// How long rlaunch's own last words may take to be written.
const PATIENCE: Span = Span::from_secs(2);
/// The same where a reader was given up already.
const ABANDONED_PATIENCE: Span = Span::from_millis(100);

pub(super) struct Output {
    sides: [Side; 2],
    /// Both descriptors lead to the same place (`2>&1`): all goes through the first side, or a line of one could come to
    /// stand in a line of the other.
    joined: bool,
    label: Option<Prefix>,
    ledger: Ledger,
    grants: Grants,
    totals: BTreeMap<StreamId, u64>,
    draining: bool,
    abandoned: bool,
    /// Cost of frames that held nothing to write and was not granted again yet.
    empty: u64,
}

/// One descriptor.
struct Side {
    std: Std,
    fd: i32,
    sink: Sink,
    turn: Turn<Piece>,
    told: bool,
}

/// Bytes of a rank; the cost is the frame's.
struct Piece(Bytes);

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Piece {
    fn cost(&self) -> u64 {
        window::cost(u32::try_from(self.0.len()).unwrap_or(u32::MAX))
    }
}

impl Output {
    pub(super) fn new(job: &JobSpec, bell: &Doorbell) -> Self {
        let ledger = Ledger::new(bell.clone());
        let side = |std, name, fd| Side {
            std,
            fd,
            sink: Sink::new(name, Target::Shared(fd), ledger.clone()),
            turn: Turn::new(),
            told: false,
        };
        Self {
            sides: [side(Std::Out, "out", 1), side(Std::Err, "err", 2)],
            joined: rlaunch_sys::fd::is_same(1, 2),
            ledger,
            label: job.label.as_ref().and_then(|format| Prefix::parse(format).ok()),
            grants: Grants::new(window::size(1), 0),
            totals: BTreeMap::new(),
            draining: false,
            abandoned: false,
            empty: 0,
        }
    }

    pub(super) fn first_grant(&mut self) -> Option<u64> {
        self.grants.first()
    }

    /// A frame of output.
    pub(super) fn arrived(&mut self, id: StreamId, flags: Flags, bytes: Bytes, events: &mut VecDeque<JobEvent>) {
        let total = self.totals.entry(id).or_default();
        *total += u64::try_from(bytes.len()).unwrap_or(0);
        if flags.has(Flags::END) {
            let total = self.totals.remove(&id).unwrap_or(0);
            events.push_back(JobEvent::StreamEnd { stream: id, total });
        }
        let Self { sides: [out, err], joined, label, .. } = self;
        let side = if id.std() == Std::Err && !*joined { err } else { out };
        let piece = Piece(bytes);
        self.empty += match label {
            Some(label) => {
                side.turn.push(id, flags, piece);
                side.write(Some(label)).unwrap_or(0)
            }
            None => side.put(piece),
        };
    }

    /// Where the bytes of a stream, and words of our own, are written.
    fn side(&mut self, std: Std) -> &mut Side {
        let Self { sides: [out, err], joined, .. } = self;
        if std == Std::Err && !*joined { err } else { out }
    }

    /// Nothing more comes: lines that were begun are ended, or the next one would be glued to them.
    pub(super) fn cut_off(&mut self) {
        let labelled = self.label.is_some();
        for id in std::mem::take(&mut self.totals).into_keys().filter(|_| labelled) {
            self.side(id.std()).turn.push(id, Flags::END, Piece(Bytes::new()));
        }
    }

    /// A line that was broken; its node is to be told.
    pub(super) fn take_broken(&mut self) -> Option<Broken> {
        self.sides.iter_mut().find_map(|side| side.turn.take_broken())
    }

    /// Words of our own, on stderr.
    pub(super) fn say(&mut self, text: String) {
        let abandoned = self.abandoned;
        let side = self.side(Std::Err);
        if abandoned {
            side.sink.resume();
        }
        side.sink.push(Bytes::from(text), 0);
    }

    /// `OutputDrained` is wanted.
    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    /// What is not written is given up, and what still comes.
    pub(super) fn abandon(&mut self) {
        self.abandoned = true;
        self.sides.iter_mut().for_each(|side| side.sink.abandon());
    }

    /// Whether all is written that will be: after `abandon`, our own words.
    pub(super) fn is_idle(&self) -> bool {
        let [out, err] = &self.sides;
        let own = if self.joined { out } else { err };
        if self.abandoned { own.sink.is_idle() } else { self.is_drained() }
    }

    fn is_drained(&self) -> bool {
        // Both are asked, so that both tell.
        let [out, err] = self.sides.each_ref().map(|side| side.turn.is_empty() && side.sink.is_idle());
        out && err
    }

    /// How long our last words may take: a writer that is blocked then is left behind.
    pub(super) const fn patience(&self) -> Span {
        if self.abandoned { ABANDONED_PATIENCE } else { PATIENCE }
    }

    /// When a line that others wait for has to be broken.
    pub(super) fn deadline(&self) -> Option<Mono> {
        let [out, err] = &self.sides;
        earliest(out.turn.poll_timeout(), err.turn.poll_timeout())
    }

    /// Writes what has come, and takes in what the writers have done. Returns a grant of credit that is due.
    pub(super) fn settle(&mut self, events: &mut VecDeque<JobEvent>) -> Option<u64> {
        for side in &mut self.sides {
            self.empty += side.settle(self.label.as_ref());
            if let Some(errno) = side.sink.failed().filter(|_| !side.told) {
                side.told = true;
                events.push_back(match errno {
                    EPIPE => JobEvent::ReaderClosed(side.std),
                    EIO if rlaunch_sys::tty::has_hung_up(side.fd) => JobEvent::HungUp(side.std),
                    errno => JobEvent::SinkFailed { std: side.std, errno },
                });
            }
        }
        if self.draining && (self.abandoned || self.is_drained()) {
            self.draining = false;
            let [out, err] = &self.sides;
            let (lost, broken) = (out.sink.lost() + err.sink.lost(), out.turn.broken() + err.turn.broken());
            events.push_back(JobEvent::OutputDrained { lost, broken });
        }
        self.settle_credit()
    }

    fn settle_credit(&mut self) -> Option<u64> {
        let mut grant = None;
        loop {
            let done = std::mem::take(&mut self.empty) + self.ledger.take();
            grant = self.grants.written(done).or(grant);
            if !self.ledger.want(self.grants.missing().max(1)) {
                return grant;
            }
        }
    }
}

impl Side {
    /// Hands a piece to the writer. Returns the cost of a piece that holds nothing to write: it wakes nobody.
    fn put(&mut self, piece: Piece) -> u64 {
        let cost = piece.cost();
        if piece.0.is_empty() {
            return cost;
        }
        self.sink.push(piece.0, cost);
        0
    }

    /// Writes all that has come and whose turn it is. Returns what [`Self::put`] does.
    fn settle(&mut self, label: Option<&Prefix>) -> u64 {
        let mut done = 0;
        loop {
            self.sink.flush();
            // A thread is asked to tell of its pace only where somebody waits for it.
            let pace = if self.turn.is_kept_waiting() { self.sink.pace() } else { Pace::Writing };
            self.turn.sink(now(), pace);
            let Some(empty) = self.write(label) else { return done };
            done += empty;
        }
    }

    /// Writes everything whose turn it is. Returns what [`Self::put`] does; `None` if there was nothing.
    fn write(&mut self, label: Option<&Prefix>) -> Option<u64> {
        let mut empty = None;
        while let Some(write) = self.turn.pop(now()) {
            let empty = empty.get_or_insert(0);
            match write {
                Write::Piece(_, piece) => *empty += self.put(piece),
                Write::BreakMark => self.sink.push(Bytes::from_static("…\n".as_bytes()), 0),
                Write::ContinueMark(id) => {
                    let mut mark = label.map(|label| continued(label, id)).unwrap_or_default();
                    mark.extend_from_slice("…".as_bytes());
                    self.sink.push(Bytes::from(mark), 0);
                }
                Write::LineEnd => self.sink.push(Bytes::from_static(b"\n"), 0),
            }
        }
        empty
    }
}

/// The label of a line that goes on. On a single host ranks, local ranks and process numbers are the same.
fn continued(label: &Prefix, id: StreamId) -> Vec<u8> {
    let n = ProcId::get(id.proc());
    let who = Who {
        rank: Rank::new(n),
        local_rank: LocalRank::new(n),
        app: AppIndex::new(0),
        host: None,
        pid: None,
        std: id.std(),
    };
    label.render(&who).map(|label| label.as_slice().to_vec()).unwrap_or_default()
}
