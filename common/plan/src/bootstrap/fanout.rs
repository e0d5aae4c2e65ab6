//! The number of hosts that are being reached at a time. sshd drops connections when too many log in at once (MaxStartups), and a jump
//! host takes the logins of all its hosts.
//!
//! Whether there is one is asked of ssh, but only when it matters: as many hosts as one jump host may take start without a
//! question, and the others wait for the answer.

use super::ssh_route::{Kind, Way};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;

/// At a time, in all.
pub const DIRECT: usize = 64;
/// At a time, behind one jump host, and while it is not known whether there is one.
pub const JUMPED: usize = 8;
/// Most hosts that may be silent at a time, beside those that hold a place: each is a process, or two.
pub const SILENT: usize = 512;
/// Questions at a time.
const ASKED: usize = 4;

/// The next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// A host starts.
    Start(NodeId),
    /// The way of ssh to a host has to be found out.
    Ask(NodeId),
}

/// Against which limit a host counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Lane {
    /// The jump host is not known: it may be any.
    Unknown,
    /// Only that of all.
    Direct,
    /// That of this jump host.
    Jump(usize),
}

/// The hosts of one lane.
#[derive(Clone, Debug, Default)]
struct Queue {
    /// By their number in the order in which all came.
    waiting: BTreeMap<u64, NodeId>,
    under_way: usize,
    /// Its place in [`Fanout::heads`].
    head: Option<u64>,
}

/// The hosts of one kind.
#[derive(Clone, Debug)]
struct Group {
    lane: Lane,
    /// While the lane is unknown: the numbers of those that wait, and of some that do no more.
    members: VecDeque<u64>,
    under_way: usize,
    asked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Host {
    number: u64,
    group: usize,
    turn: Place,
}

/// The place of a host in the fan-out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// The host waits for its turn.
    Waits,
    /// The host holds one of the places.
    Holds,
    /// The host holds none any more: a host that does not answer is no load.
    Silent,
}

/// The hosts that may start now. A place is held from the start until the host has answered, was given up, or has been silent for a
/// while: hosts that are off must not delay the others. An event of one host does not cost a look at all: it costs the logarithm of their
/// number.
#[derive(Clone, Debug)]
pub struct Fanout {
    hosts: BTreeMap<NodeId, Host>,
    /// Number of hosts that have come.
    came: u64,
    kinds: BTreeMap<Kind, usize>,
    groups: Vec<Group>,
    jumps: BTreeMap<OsBytes, usize>,
    lanes: BTreeMap<Lane, Queue>,
    /// The first waiting host of each lane that has room.
    heads: BTreeSet<(u64, Lane)>,
    under_way: usize,
    silent: usize,
    /// Hosts that are silent, too, and hold their places until there are fewer; and some that are gone.
    hushed: VecDeque<NodeId>,
    /// Groups of which nothing is known and nothing was asked: none of their hosts that wait has a lower number.
    unasked: BTreeMap<u64, usize>,
    asked: BTreeMap<NodeId, usize>,
    most: usize,
}

impl Default for Fanout {
    fn default() -> Self {
        Self {
            hosts: BTreeMap::new(),
            came: 0,
            kinds: BTreeMap::new(),
            groups: Vec::new(),
            jumps: BTreeMap::new(),
            lanes: BTreeMap::new(),
            heads: BTreeSet::new(),
            under_way: 0,
            silent: 0,
            hushed: VecDeque::new(),
            unasked: BTreeMap::new(),
            asked: BTreeMap::new(),
            most: DIRECT,
        }
    }
}

impl Fanout {
    /// Reaches one host at a time: ssh may ask for a password.
    #[must_use]
    pub fn one_by_one() -> Self {
        Self { most: 1, ..Self::default() }
    }

    /// A host that waits for its turn.
    pub fn push(&mut self, node: NodeId, kind: Kind) {
        let (number, new) = (self.came, self.groups.len());
        self.came += 1;
        let at = *self.kinds.entry(kind).or_insert(new);
        if at == new {
            self.groups.push(Group { lane: Lane::Unknown, members: VecDeque::new(), under_way: 0, asked: false });
        }
        let Some(group) = self.groups.get_mut(at) else { return };
        if group.lane == Lane::Unknown {
            if group.members.is_empty() && !group.asked {
                self.unasked.insert(number, at);
            }
            group.members.push_back(number);
        }
        let lane = group.lane;
        self.hosts.insert(node, Host { number, group: at, turn: Place::Waits });
        self.lanes.entry(lane).or_default().waiting.insert(number, node);
        self.look_at(lane);
    }

    /// Returns the next host, if one may start: in the order in which they came, except that no host waits for a jump host that it does
    /// not need.
    pub fn pop(&mut self) -> Option<Turn> {
        if self.under_way >= self.most {
            return None;
        }
        let Some((number, lane)) = self.heads.first().copied() else { return self.ask() };
        let node = self.lanes.get_mut(&lane)?.waiting.remove(&number)?;
        let host = self.hosts.get_mut(&node)?;
        host.turn = Place::Holds;
        let at = host.group;
        self.count(at, |under_way| under_way + 1);
        Some(Turn::Start(node))
    }

    /// All that wait do so for a jump host; or for the news that there is none.
    fn ask(&mut self) -> Option<Turn> {
        if self.asked.len() >= ASKED {
            return None;
        }
        let waiting = &self.lanes.get(&Lane::Unknown)?.waiting;
        while let Some((number, at)) = self.unasked.pop_first() {
            let group = self.groups.get_mut(at)?;
            while group.members.front().is_some_and(|member| !waiting.contains_key(member)) {
                group.members.pop_front();
            }
            match group.members.front().and_then(|first| waiting.get_key_value(first)) {
                Some((first, _)) if *first > number => {
                    self.unasked.insert(*first, at);
                }
                Some((_, node)) => {
                    group.asked = true;
                    self.asked.insert(*node, at);
                    return Some(Turn::Ask(*node));
                }
                // The group comes back with the next host of its kind.
                None => {}
            }
        }
        None
    }

    /// Counts one host more, or fewer, of this group as under way.
    fn count(&mut self, at: usize, change: fn(usize) -> usize) {
        let Some(group) = self.groups.get_mut(at) else { return };
        let lane = group.lane;
        for under_way in [&mut group.under_way, &mut self.lanes.entry(lane).or_default().under_way, &mut self.under_way]
        {
            *under_way = change(*under_way);
        }
        self.look_at(lane);
        self.look_at(Lane::Unknown);
    }

    /// A host of which nothing is known may be behind any jump host.
    fn has_room(&self, lane: Lane) -> bool {
        let under_way = |lane| self.lanes.get(&lane).map_or(0, |queue| queue.under_way);
        match lane {
            Lane::Direct => true,
            Lane::Jump(_) => under_way(lane) < JUMPED,
            Lane::Unknown => self.under_way - under_way(Lane::Direct) < JUMPED,
        }
    }

    /// Lists the first waiting host of a lane among the heads exactly while there is room.
    fn look_at(&mut self, lane: Lane) {
        let has_room = self.has_room(lane);
        let Some(queue) = self.lanes.get_mut(&lane) else { return };
        let head = queue.waiting.keys().next().copied().filter(|_| has_room);
        if head == queue.head {
            return;
        }
        if let Some(before) = core::mem::replace(&mut queue.head, head) {
            self.heads.remove(&(before, lane));
        }
        self.heads.extend(head.map(|head| (head, lane)));
    }

    /// Records the way of ssh to this host, and to all of its kind. The host may have been given up meanwhile.
    pub fn on_way(&mut self, node: NodeId, way: Way) {
        let Some(group) = self.asked.remove(&node).and_then(|at| self.groups.get_mut(at)) else { return };
        let next = self.jumps.len();
        group.lane = match way {
            Way::Direct => Lane::Direct,
            Way::Jump(jump) => Lane::Jump(*self.jumps.entry(jump).or_insert(next)),
        };
        let (lane, under_way, members) = (group.lane, group.under_way, core::mem::take(&mut group.members));
        let unknown = self.lanes.entry(Lane::Unknown).or_default();
        unknown.under_way -= under_way;
        let waiting: Vec<_> = members.iter().filter_map(|number| unknown.waiting.remove_entry(number)).collect();
        let queue = self.lanes.entry(lane).or_default();
        queue.under_way += under_way;
        queue.waiting.extend(waiting);
        self.look_at(lane);
        self.look_at(Lane::Unknown);
    }

    /// Records that no output of this host has arrived for a while since its turn began: another may have its place. With a single place
    /// nothing changes: a user may be typing a password.
    pub fn silent(&mut self, node: NodeId) {
        if self.most > 1 && self.hosts.get(&node).is_some_and(|host| host.turn == Place::Holds) {
            self.hushed.push_back(node);
            self.hush();
        }
    }

    fn hush(&mut self) {
        while self.silent < SILENT
            && let Some(node) = self.hushed.pop_front()
        {
            let Some(host) = self.hosts.get_mut(&node).filter(|host| host.turn == Place::Holds) else { continue };
            host.turn = Place::Silent;
            let at = host.group;
            self.silent += 1;
            self.count(at, |under_way| under_way - 1);
        }
    }

    /// Records that this host has answered, or was given up.
    pub fn done(&mut self, node: NodeId) {
        let Some(Host { number, group: at, turn }) = self.hosts.remove(&node) else { return };
        match turn {
            Place::Holds => self.count(at, |under_way| under_way - 1),
            Place::Silent => {
                self.silent -= 1;
                self.hush();
            }
            Place::Waits => {
                let Some(lane) = self.groups.get(at).map(|group| group.lane) else { return };
                if let Some(queue) = self.lanes.get_mut(&lane) {
                    queue.waiting.remove(&number);
                }
                self.look_at(lane);
            }
        }
    }

    /// Whether no host waits and none is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.hosts.is_empty()
    }
}

#[cfg(test)]
mod tests;
