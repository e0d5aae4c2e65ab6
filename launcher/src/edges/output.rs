//! The output of the ranks, on its way to our stdout and stderr, and the credit for it.

use super::ledger::Ledger;
use super::now;
use super::sink::{Sink, Target};
use bytes::Bytes;
use rlaunch_base::errno::{EIO, EPIPE};
use rlaunch_base::id::{AppIndex, LocalRank, NodeId, Rank, Std, StreamId};
use rlaunch_base::machine::earliest;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_core::job::JobEvent;
use rlaunch_plan::place::Placement;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::stream::label::{Prefix, Who};
use rlaunch_protocol::stream::turn::{Broken, Pace, Turn, Write};
use rlaunch_protocol::stream::window::{self, Grants};
use rlaunch_protocol::wire::frame::Flags;
use rlaunch_sys::doorbell::Doorbell;
use rlaunch_sys::fd;
use rlaunch_sys::origin::Origin;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

/// How long rlaunch's own last words may take to be written.
const PATIENCE: Span = Span::from_secs(2);
/// The same where a reader was given up already.
const ABANDONED_PATIENCE: Span = Span::from_millis(100);

pub(super) struct Output {
    /// Our stdout, our stderr, and files.
    sides: Vec<Side>,
    routes: Routes,
    /// The label of each line, which may be empty; `None`: bytes pass as they come.
    label: Option<Prefix>,
    ledger: Ledger,
    /// The grants of each node.
    grants: Vec<Grants>,
    /// Bytes of streams that have not ended.
    totals: BTreeMap<StreamId, u64>,
    placement: Arc<Placement>,
    draining: bool,
    abandoned: bool,
}

/// Which side takes what.
struct Routes {
    /// Sides for the output of ranks to stdout and stderr. If both lead to the same place (`2>&1`), there is one side for both: a line
    /// of one must not interrupt a line of the other.
    ranks: [usize; 2],
    /// Words of our own.
    own: usize,
}

impl Routes {
    const fn of(&self, std: Std) -> usize {
        match std {
            Std::Out => self.ranks[0],
            Std::In | Std::Err => self.ranks[1],
        }
    }
}

/// Files that take what ranks write.
#[derive(Default)]
pub(super) struct Files {
    pub(super) out: Option<OwnedFd>,
    pub(super) err: Option<OwnedFd>,
    /// Whether one file takes both.
    pub(super) shared: bool,
}

impl Files {
    /// Makes or empties the files with these names.
    ///
    /// # Errors
    /// One of them cannot be written.
    pub(super) fn open(names: &[Option<OsBytes>; 2], origin: &Origin) -> Result<Self, CannotWrite> {
        let [out, err] = names;
        let shared = out.is_some() && out == err;
        let open = |name: &OsBytes| {
            // The file may be on a file system that does not answer.
            let file = origin.interruptibly(|| File::create(OsStr::from_bytes(name)));
            file.map(OwnedFd::from)
                .map_err(|error| CannotWrite { name: name.clone(), why: rlaunch_sys::reason(&error) })
        };
        let err = err.as_ref().filter(|_| !shared);
        Ok(Self { out: out.as_ref().map(open).transpose()?, err: err.map(open).transpose()?, shared })
    }
}

/// File of `-o` or `-e` that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {name}: {why}")]
pub(super) struct CannotWrite {
    name: OsBytes,
    why: String,
}

/// A descriptor.
struct Side {
    std: Std,
    fd: i32,
    sink: Sink,
    turn: Turn<Piece>,
    reported: bool,
}

/// Bytes of a rank of this node; the cost is the frame's.
struct Piece(Bytes, NodeId);

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
    /// `files` take what ranks write, instead of our stdout and stderr.
    pub(super) fn new(job: &JobSpec, files: Files, bell: &Doorbell) -> Self {
        let nodes = job.placement.nodes.len();
        let ledger = Ledger::new(bell.clone(), nodes);
        let side = |std, name, target: Target| Side {
            std,
            fd: target.raw(),
            sink: Sink::new(name, target, ledger.clone()),
            turn: Turn::new(),
            reported: false,
        };
        let mut sides = vec![side(Std::Out, "out", Target::Shared(1)), side(Std::Err, "err", Target::Shared(2))];
        let own = if is_one_place() { 0 } else { 1 };
        let mut ranks = [0, own];
        let Files { out, err, shared } = files;
        if let Some(file) = out {
            ranks[0] = sides.len();
            sides.push(side(Std::Out, "out-file", file.into()));
        }
        if let Some(file) = err {
            ranks[1] = sides.len();
            sides.push(side(Std::Err, "err-file", file.into()));
        }
        if shared {
            ranks[1] = ranks[0];
        }
        Self {
            sides,
            routes: Routes { ranks, own },
            ledger,
            label: job.settings.output.label.as_ref().and_then(|format| Prefix::parse(format).ok()),
            grants: vec![Grants::new(window::size(u32::try_from(nodes).unwrap_or(u32::MAX)), 0); nodes],
            placement: Arc::new(job.placement.clone()),
            totals: BTreeMap::new(),
            draining: false,
            abandoned: false,
        }
    }

    /// Ranks run there. Ranks that have moved have not written anything yet, and nothing more comes of their earlier processes.
    pub(super) fn place(&mut self, placement: Arc<Placement>) {
        self.placement = placement;
    }

    /// Returns the bytes that each node may send before any of them is written.
    pub(super) fn first_grants(&mut self) -> Vec<u64> {
        let first: Vec<u64> = self.grants.iter_mut().map(|grants| grants.first().unwrap_or(0)).collect();
        for node in (0..).map(NodeId::new).take(first.len()) {
            let _nothing_was_written = self.grant_credit(node);
        }
        first
    }

    /// Returns the bytes that a node may send before any of them is written. Bytes of an earlier agent there do not count.
    pub(super) fn first_grant(&mut self, node: NodeId) -> u64 {
        let nodes = u32::try_from(self.grants.len()).unwrap_or(u32::MAX);
        let Some(grants) = self.grants.get_mut(node.index()) else { return 0 };
        *grants = Grants::new(window::size(nodes), 0);
        let first = grants.first().unwrap_or(0);
        let _of_the_past = self.ledger.take(node);
        let _nothing_was_written = self.grant_credit(node);
        first
    }

    /// A frame of output.
    pub(super) fn arrived(
        &mut self,
        node: NodeId,
        id: StreamId,
        flags: Flags,
        bytes: Bytes,
        events: &mut VecDeque<JobEvent>,
    ) {
        let total = self.totals.entry(id).or_default();
        *total += u64::try_from(bytes.len()).unwrap_or(0);
        if flags.has(Flags::END) {
            let total = self.totals.remove(&id).unwrap_or(0);
            events.push_back(JobEvent::StreamEnd { stream: id, total });
        }
        let Self { sides, routes, label, ledger, placement, .. } = self;
        let Some(side) = sides.get_mut(routes.of(id.std())) else { return };
        let piece = Piece(bytes, node);
        match label {
            Some(label) => {
                side.turn.push(id, flags, piece);
                side.write(Some((label, placement)), ledger);
            }
            None => side.put(piece, ledger),
        }
    }

    /// Side for words of our own: stdout, once stderr cannot be written. If the reader of stderr has left, these words are dropped.
    fn own(&self) -> usize {
        let fails = |side: &Side| side.sink.failed().is_some_and(|errno| errno != EPIPE);
        if self.sides.get(self.routes.own).is_some_and(fails) { 0 } else { self.routes.own }
    }

    /// The descriptor for words of our own.
    pub(super) fn own_fd(&self) -> i32 {
        self.sides.get(self.own()).map_or(2, |side| side.fd)
    }

    /// Nothing more comes from a node: lines that were begun are ended, or the next one would be glued to them.
    pub(super) fn cut_off(&mut self, node: NodeId) {
        let of_node = |id: &StreamId| self.node_of(*id) == node;
        let begun: Vec<StreamId> = self.totals.keys().copied().filter(of_node).collect();
        for id in begun {
            self.totals.remove(&id);
            if self.label.is_some()
                && let Some(side) = self.sides.get_mut(self.routes.of(id.std()))
            {
                side.turn.push(id, Flags::END, Piece(Bytes::new(), node));
            }
        }
    }

    fn node_of(&self, id: StreamId) -> NodeId {
        let rank = self.placement.rank_of(id.proc());
        rank.and_then(|rank| self.placement.node_of(rank)).unwrap_or(NodeId::new(0))
    }

    /// Returns a line that was broken; its node has to know.
    pub(super) fn take_broken(&mut self) -> Option<(NodeId, Broken)> {
        let broken = self.sides.iter_mut().find_map(|side| side.turn.take_broken())?;
        Some((self.node_of(broken.stream), broken))
    }

    /// Words of our own, on stderr.
    pub(super) fn say(&mut self, text: String) {
        let (abandoned, own) = (self.abandoned, self.own());
        let Some(side) = self.sides.get_mut(own) else { return };
        if abandoned {
            side.sink.resume();
        }
        side.sink.say(Bytes::from(text));
    }

    /// Whether all that we have said was taken.
    pub(super) fn is_free(&self) -> bool {
        self.sides.get(self.own()).is_none_or(|side| side.sink.is_idle())
    }

    /// `OutputDrained` is wanted.
    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    /// Gives up unwritten output, and output that still comes.
    pub(super) fn abandon(&mut self) {
        self.abandoned = true;
        self.sides.iter_mut().for_each(|side| side.sink.abandon());
    }

    /// Whether all is written that will be: after `abandon`, our own words.
    pub(super) fn is_idle(&self) -> bool {
        let own = || self.sides.get(self.own()).is_none_or(|side| side.sink.is_idle());
        if self.abandoned { own() } else { self.is_drained() }
    }

    fn is_drained(&self) -> bool {
        // All sinks are asked, so that each of them rings when it becomes idle.
        self.sides.iter().fold(true, |drained, side| side.turn.is_empty() & side.sink.is_idle() & drained)
    }

    /// Limit for the time that our last words take: rlaunch exits without a writer that is blocked then.
    pub(super) const fn patience(&self) -> Span {
        if self.abandoned { ABANDONED_PATIENCE } else { PATIENCE }
    }

    /// When a line that others wait for has to be broken, or a sink without a thread has to be written again.
    pub(super) fn deadline(&self) -> Option<Mono> {
        let due = |side: &Side| earliest(side.turn.poll_timeout(), side.sink.deadline());
        self.sides.iter().fold(None, |first, side| earliest(first, due(side)))
    }

    /// Writes what has come, and takes in what the writers have done. Returns grants of credit that are due.
    pub(super) fn advance(&mut self, events: &mut VecDeque<JobEvent>) -> Vec<(NodeId, u64)> {
        for side in &mut self.sides {
            side.write_due(self.label.as_ref().map(|label| (label, &*self.placement)), &self.ledger);
            if let Some(errno) = side.sink.failed().filter(|_| !side.reported) {
                side.reported = true;
                events.push_back(match errno {
                    EPIPE => JobEvent::ReaderClosed(side.std),
                    EIO if rlaunch_sys::tty::has_hung_up(side.fd) => JobEvent::HungUp(side.std),
                    errno => JobEvent::SinkFailed { std: side.std, errno },
                });
            }
        }
        if self.draining && (self.abandoned || self.is_drained()) {
            self.draining = false;
            let lost = self.sides.iter().map(|side| side.sink.lost()).sum();
            // Without labels nothing marks where a line was broken.
            let is_marked = self.label.as_ref().is_some_and(|label| !label.is_empty());
            let broken = if is_marked { self.sides.iter().map(|side| side.turn.broken()).sum() } else { 0 };
            events.push_back(JobEvent::OutputDrained { lost, broken });
        }
        let due = self.ledger.take_due();
        due.into_iter().filter_map(|node| Some((node, self.grant_credit(node)?))).collect()
    }

    fn grant_credit(&mut self, node: NodeId) -> Option<u64> {
        let grants = self.grants.get_mut(node.index())?;
        let mut grant = None;
        loop {
            grant = grants.written(self.ledger.take(node)).or(grant);
            if !self.ledger.want(node, grants.missing().max(1)) {
                return grant;
            }
        }
    }
}

/// Whether stdout and stderr lead to the same place. A stream that was closed at the start leads nowhere.
fn is_one_place() -> bool {
    fd::is_same(1, 2) && fd::is_writable(1) == fd::is_writable(2)
}

impl Side {
    /// Hands a piece to the writer. A piece that holds nothing to write wakes no thread.
    fn put(&mut self, piece: Piece, ledger: &Ledger) {
        let (cost, Piece(bytes, node)) = (piece.cost(), piece);
        if bytes.is_empty() {
            let _looked_at_anyway = ledger.add_silently(node, cost);
        } else {
            self.sink.push(bytes, node, cost);
        }
    }

    /// Writes all that has come and whose turn it is.
    fn write_due(&mut self, label: Option<(&Prefix, &Placement)>, ledger: &Ledger) {
        loop {
            self.sink.flush();
            // A thread is asked for its pace only where a stream waits for it.
            let pace = if self.turn.is_kept_waiting() { self.sink.pace() } else { Pace::Writing };
            self.turn.sink(now(), pace);
            if !self.write(label, ledger) {
                return;
            }
        }
    }

    /// Writes everything whose turn it is; false if there was nothing.
    fn write(&mut self, label: Option<(&Prefix, &Placement)>, ledger: &Ledger) -> bool {
        let mut any = false;
        // Without labels no byte is added.
        let marks = label.filter(|(label, _)| !label.is_empty());
        while let Some(write) = self.turn.pop(now()) {
            any = true;
            match write {
                Write::Piece(_, piece) => self.put(piece, ledger),
                Write::BreakMark | Write::ContinueMark(_) | Write::LineEnd if marks.is_none() => {}
                Write::BreakMark => self.sink.say(Bytes::from_static("…\n".as_bytes())),
                Write::ContinueMark(id) => {
                    let mut mark = marks.map(|(label, at)| continued(label, at, id)).unwrap_or_default();
                    mark.extend_from_slice("…".as_bytes());
                    self.sink.say(Bytes::from(mark));
                }
                Write::LineEnd => self.sink.say(Bytes::from_static(b"\n")),
            }
        }
        any
    }
}

/// The label of a line that continues.
fn continued(label: &Prefix, at: &Placement, id: StreamId) -> Vec<u8> {
    let rank = at.rank_of(id.proc()).unwrap_or(Rank::new(0));
    let n = rank.get();
    let placed = at.ranks.get(rank.index());
    let host = placed.and_then(|placed| at.nodes.get(placed.node.index())).map(|node| node.host.name.as_bytes());
    let subject = Who {
        rank: at.in_world(rank),
        group: at.worlds.group(at.world_of(rank)),
        local_rank: placed.map_or(LocalRank::new(n), |placed| placed.local_rank),
        app: placed.map_or(AppIndex::new(0), |placed| placed.app),
        host,
        pid: None,
        std: id.std(),
    };
    label.render(&subject).map(|label| label.as_slice().to_vec()).unwrap_or_default()
}
