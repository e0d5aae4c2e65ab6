//! The search for the address of rank 0's host that the other hosts reach: ranks get no address that was not tried.
//!
//! The agents try it, each from its host, while others are still getting ready. First all try the likely address, so that a launch costs
//! one connection. The other addresses are tried only if a host does not reach it. The first in the order offered that all reach is
//! taken, however fast it answers: where several work, launches shall not differ.

use super::{Cx, JobAction};
use crate::id::NodeId;
use crate::machine::earliest;
use crate::os_bytes::OsBytes;
use crate::time::{Mono, Span};
use crate::wire::capped::Capped;
use crate::wire::probe::{Key, Place, Probe};
use crate::wire::to_node::ToNode;
use crate::wire::to_root::{Reached, Tried};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

/// How long the first place may take, once all hosts are ready, before the others are tried too: a lost packet is sent again after 1 s.
const FIRST: Span = Span::from_millis(1500);
/// How long the better of two may take when the other was reached by all.
const BETTER: Span = Span::from_millis(250);
/// How long all of it may take.
const ALL: Span = Span::from_secs(10);

/// The outcome of the tries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// It is not known yet.
    Open,
    /// All reach it there.
    Found(OsBytes),
    /// There is no place that all reach: who does not reach the one that most do.
    Closed(Vec<NodeId>),
}

/// The tries of a job.
#[derive(Debug, Default)]
pub(super) struct Probing {
    secret: Key,
    /// Numbers that places of earlier ones have had.
    used: u32,
    head: Option<Head>,
    /// By which addresses of their own the others have reached it where the ranks meet.
    faces: BTreeMap<NodeId, OsBytes>,
}

/// The host that is tried.
#[derive(Debug)]
struct Head {
    node: NodeId,
    key: Key,
    /// Its first place's number.
    first: u32,
    places: Vec<Place>,
    /// All places are tried, and not only the first.
    wide: bool,
    asked: BTreeMap<NodeId, Answers>,
    /// By place: by how many it was reached.
    reached: Vec<usize>,
    /// How many answers are still to come.
    open: usize,
    /// The number of hosts that have to reach it, when that was asked last.
    needed: usize,
    clock: Clock,
}

/// The findings of one host. A bit for each place.
#[derive(Debug, Default)]
struct Answers {
    reached: u32,
    failed: u32,
    errnos: Vec<(usize, i32)>,
    /// By which addresses of its own.
    by: Vec<(usize, OsBytes)>,
}

/// Times by which something has to be known. They begin when nothing else is waited for.
#[derive(Debug, Default)]
struct Clock {
    first: Option<Mono>,
    better: Option<Mono>,
    all: Option<Mono>,
    /// The wait for the first place has expired, or for a better one, or for anything.
    first_over: bool,
    better_over: bool,
    all_over: bool,
}

impl Probing {
    pub(super) fn new(secret: Key) -> Self {
        Self { secret, ..Self::default() }
    }

    /// The host that is tried.
    pub(super) fn head(&self) -> Option<NodeId> {
        self.head.as_ref().map(|head| head.node)
    }

    /// Begins with a host: where it waits for others, those first that `likely` says.
    pub(super) fn begin(&mut self, node: NodeId, reached: Option<&Reached>, likely: impl Fn(&OsBytes) -> bool) {
        if self.head() == Some(node) {
            return;
        }
        let first = self.used;
        let open = reached.into_iter().flat_map(|reached| reached.at.iter().zip(reached.probe_ports.iter()));
        let mut open: Vec<(&OsBytes, u16)> =
            open.map(|(addr, port)| (addr, *port)).filter(|(_, port)| *port != 0).collect();
        open.sort_by_key(|(addr, _)| !likely(addr));
        let place = |((addr, port), number): ((&OsBytes, u16), u32)| Place { number, addr: addr.clone(), port };
        let places: Vec<Place> = open.into_iter().zip(first..).map(place).collect();
        self.used = first.saturating_add(u32::try_from(places.len()).unwrap_or(u32::MAX));
        let (key, reached) = (self.secret.of(node), places.iter().map(|_| 0).collect());
        let asked = BTreeMap::new();
        let clock = Clock::default();
        self.head = Some(Head { node, key, first, places, wide: false, asked, reached, open: 0, needed: 0, clock });
    }

    /// Has a host try.
    pub(super) fn ask(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let Some(head) = self.head.as_mut().filter(|head| head.node != node) else { return };
        if head.asked.contains_key(&node) {
            return;
        }
        head.asked.insert(node, Answers::default());
        let until = if head.wide { head.places.len() } else { 1 };
        head.send(cx, node, 0, until);
    }

    /// Records the findings of a host; true if they may decide.
    pub(super) fn answered(&mut self, cx: &mut Cx<'_>, node: NodeId, number: u32, found: (i32, OsBytes)) -> bool {
        let Some(head) = &mut self.head else { return false };
        let at =
            number.checked_sub(head.first).and_then(|at| usize::try_from(at).ok()).filter(|at| *at < head.places.len());
        let (Some(at), Some(answers)) = (at, head.asked.get_mut(&node)) else { return false };
        // Said twice, or of what was not asked: it changes nothing.
        let (bit, asked) = (1 << at, if head.wide { head.places.len() } else { 1 });
        if (answers.reached | answers.failed) & bit != 0 || at >= asked {
            return false;
        }
        head.open = head.open.saturating_sub(1);
        let (errno, by) = found;
        if errno == 0 {
            answers.reached |= bit;
            answers.by.push((at, by));
            head.reached.iter_mut().skip(at).take(1).for_each(|count| *count += 1);
        } else {
            answers.failed |= bit;
            answers.errnos.push((at, errno));
            head.widen(cx);
        }
        head.open == 0 || head.reached.get(at).is_some_and(|count| *count >= head.needed)
    }

    /// The outcome for these hosts, all that have to reach it. They are ready, and nothing else is waited for.
    pub(super) fn way(&mut self, cx: &mut Cx<'_>, others: &[NodeId]) -> Way {
        others.iter().for_each(|node| self.ask(cx, *node));
        let Some(head) = &mut self.head else { return Way::Closed(others.to_vec()) };
        head.needed = others.len();
        head.clock.begin(cx.now);
        let way = head.way(cx, others);
        if let Way::Found(addr) = &way {
            self.faces = head.faces(addr);
        }
        way
    }

    /// By which of its addresses a host has reached that of rank 0, where the ranks have met at first.
    pub(super) fn faces(&self, node: NodeId) -> Option<&OsBytes> {
        self.faces.get(&node)
    }

    /// The places that were tried from that host, and the reasons of failure.
    pub(super) fn tried(&self, node: NodeId) -> Capped<Tried, { crate::wire::to_root::ADDRESSES }> {
        let of = |head: &Head| {
            let errno = |at: usize| {
                let answers = head.asked.get(&node)?;
                answers.errnos.iter().find(|(of, _)| *of == at).map(|(_, errno)| *errno)
            };
            let missed = |at: &usize| head.asked.get(&node).is_none_or(|answers| answers.reached & (1 << at) == 0);
            let tried = |(place, at): (&Place, usize)| {
                missed(&at).then(|| Tried { at: place.text(), errno: errno(at).unwrap_or(0) })
            };
            head.places.iter().zip(0..).filter_map(tried).collect::<Vec<_>>()
        };
        Capped::chunks(self.head.as_ref().map(of).unwrap_or_default()).pop().unwrap_or_default()
    }

    /// The place that goes first, where another was taken, and who does not reach it.
    pub(super) fn missed(&self, addr: &OsBytes, others: &[NodeId]) -> Option<(OsBytes, Vec<NodeId>)> {
        let head = self.head.as_ref()?;
        let first = head.places.first().filter(|first| first.addr != *addr)?;
        let misses = |node: &&NodeId| head.asked.get(node).is_none_or(|answers| answers.reached & 1 == 0);
        Some((first.addr.clone(), others.iter().filter(misses).copied().collect()))
    }

    /// Hosts that have not found a way yet.
    pub(super) fn awaited(&self) -> Vec<NodeId> {
        let asked = self.head.iter().flat_map(|head| &head.asked);
        asked.filter(|(_, answers)| answers.reached == 0).map(|(node, _)| *node).collect()
    }

    /// A host is lost, and may be reached again. Then it listens elsewhere, and is asked again.
    pub(super) fn forget(&mut self, node: NodeId) {
        if self.head() == Some(node) {
            self.head = None;
        }
        let Some(head) = &mut self.head else { return };
        let Some(Answers { reached, failed, .. }) = head.asked.remove(&node) else { return };
        let asked = if head.wide { head.places.len() } else { head.places.len().min(1) };
        let answers = usize::try_from((reached | failed).count_ones()).unwrap_or(0);
        head.open = head.open.saturating_sub(asked.saturating_sub(answers));
        for (count, at) in head.reached.iter_mut().zip(0_u32..) {
            *count = count.saturating_sub(usize::from(reached & (1 << at) != 0));
        }
    }

    /// Stops the search.
    pub(super) fn stop(&mut self) {
        self.head = None;
    }

    /// True if that decides something.
    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(head) = &mut self.head else { return false };
        let due = head.clock.pass(cx.now);
        if head.clock.first_over {
            head.widen(cx);
        }
        due
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        let clock = &self.head.as_ref()?.clock;
        earliest(clock.first, earliest(clock.better, clock.all))
    }
}

impl Head {
    fn send(&mut self, cx: &mut Cx<'_>, node: NodeId, from: usize, until: usize) {
        let places = self.places.iter().take(until).skip(from).cloned();
        for places in Capped::chunks(places) {
            self.open = self.open.saturating_add(places.len());
            cx.act(JobAction::Send { node, msg: ToNode::Probe(Probe { key: self.key.clone(), places }) });
        }
    }

    /// Has everybody try the other places too.
    fn widen(&mut self, cx: &mut Cx<'_>) {
        if core::mem::replace(&mut self.wide, true) {
            return;
        }
        self.clock.first = None;
        let all: Vec<NodeId> = self.asked.keys().copied().collect();
        all.into_iter().for_each(|node| self.send(cx, node, 1, self.places.len()));
    }

    fn way(&mut self, cx: &Cx<'_>, others: &[NodeId]) -> Way {
        let whole = (1_u32 << self.places.len()).wrapping_sub(1);
        let (mut by_all, mut by_none, mut answered) = (whole, 0, whole);
        for answers in others.iter().filter_map(|node| self.asked.get(node)) {
            by_all &= answers.reached;
            by_none |= answers.failed;
            answered &= answers.reached | answers.failed;
        }
        let best = by_all.trailing_zeros();
        let found = usize::try_from(best).ok().and_then(|best| self.places.get(best)).map(|place| place.addr.clone());
        let Some(addr) = found else {
            let over = self.clock.all_over || answered == whole;
            return if over { Way::Closed(self.misses(others)) } else { Way::Open };
        };
        // Better ones that may still be reached by all.
        let better = whole & !by_none & ((1 << best) - 1) & !u32::from(self.clock.first_over);
        if better == 0 || self.clock.better_over || self.clock.all_over {
            return Way::Found(addr);
        }
        self.clock.better.get_or_insert(cx.now + BETTER);
        Way::Open
    }

    fn faces(&self, addr: &OsBytes) -> BTreeMap<NodeId, OsBytes> {
        let Some(place) = self.places.iter().position(|place| place.addr == *addr) else { return BTreeMap::new() };
        let by = |answers: &Answers| answers.by.iter().find(|(at, _)| *at == place).map(|(_, by)| by.clone());
        self.asked.iter().filter_map(|(node, answers)| Some((*node, by(answers)?))).collect()
    }

    /// Hosts that do not reach the place that most hosts reach.
    fn misses(&self, others: &[NodeId]) -> Vec<NodeId> {
        let reach =
            |at: usize, node: &NodeId| self.asked.get(node).is_some_and(|answers| answers.reached & (1 << at) != 0);
        let count = |at: usize| others.iter().filter(|node| reach(at, node)).count();
        // Of several the last is taken that is the greatest.
        let Some(best) = (0..self.places.len()).rev().max_by_key(|at| count(*at)) else { return others.to_vec() };
        others.iter().filter(|node| !reach(best, node)).copied().collect()
    }
}

impl Clock {
    fn begin(&mut self, now: Mono) {
        if self.all.is_none() && !self.all_over {
            (self.first, self.all) = (Some(now + FIRST), Some(now + ALL));
        }
    }

    /// Whether a time has come.
    fn pass(&mut self, now: Mono) -> bool {
        let due = |at: &mut Option<Mono>| at.take_if(|at| *at <= now).is_some();
        let (first, better, all) = (due(&mut self.first), due(&mut self.better), due(&mut self.all));
        self.first_over |= first;
        self.better_over |= better;
        self.all_over |= all;
        first || better || all
    }
}

impl Place {
    fn text(&self) -> OsBytes {
        if self.addr.contains(&b':') {
            return OsBytes::from(format!("[{}]:{}", self.addr, self.port));
        }
        OsBytes::from(format!("{}:{}", self.addr, self.port))
    }
}
