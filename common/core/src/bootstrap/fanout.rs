//! How many hosts are being reached at a time. sshd drops connections when too many log in at once (MaxStartups), and a jump
//! host takes the logins of all hosts behind it.
//!
//! Whether there is one is asked of ssh, but only when it matters: as many hosts as one jump host may take start without a
//! question, and the others wait for the answer.

use super::way::{Kind, Way};
use crate::id::NodeId;
use crate::os_bytes::OsBytes;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// At a time, in all.
pub const DIRECT: usize = 64;
/// At a time, behind one jump host, and while it is not known whether there is one.
pub const JUMPED: usize = 8;
/// Questions at a time.
const ASKED: usize = 4;

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// This host starts.
    Start(NodeId),
    /// Which way ssh takes to this host has to be found out.
    Ask(NodeId),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known<'a> {
    Nothing,
    Direct,
    Jump(&'a OsBytes),
}

/// Who may start now. A place is held from the start until the host has answered or was given up.
#[derive(Clone, Debug)]
pub struct Fanout {
    waiting: VecDeque<NodeId>,
    kinds: BTreeMap<NodeId, Kind>,
    under_way: BTreeMap<NodeId, Kind>,
    asked: BTreeMap<NodeId, Kind>,
    ways: BTreeMap<Kind, Way>,
    most: usize,
    /// Nothing has happened since nobody could start.
    stuck: bool,
}

impl Default for Fanout {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            kinds: BTreeMap::new(),
            under_way: BTreeMap::new(),
            asked: BTreeMap::new(),
            ways: BTreeMap::new(),
            most: DIRECT,
            stuck: false,
        }
    }
}

impl Fanout {
    /// One at a time: ssh may ask for a password.
    #[must_use]
    pub fn one_by_one() -> Self {
        Self { most: 1, ..Self::default() }
    }

    /// A host that waits for its turn.
    pub fn push(&mut self, node: NodeId, kind: Kind) {
        self.kinds.insert(node, kind);
        self.waiting.push_back(node);
        self.stuck = false;
    }

    /// Whose turn it is, if anybody's. In the order in which they came, except that nobody waits for a jump host that he
    /// does not need.
    pub fn pop(&mut self) -> Option<Turn> {
        if self.stuck || self.under_way.len() >= self.most {
            return None;
        }
        if let Some(node) = self.first_with_room().and_then(|at| self.waiting.remove(at)) {
            if let Some(kind) = self.kinds.remove(&node) {
                self.under_way.insert(node, kind);
            }
            return Some(Turn::Start(node));
        }
        let ask = self.ask();
        self.stuck = ask.is_none();
        ask
    }

    fn first_with_room(&self) -> Option<usize> {
        let mut full: Vec<&Kind> = Vec::new();
        self.waiting.iter().position(|node| {
            let Some(kind) = self.kinds.get(node).filter(|kind| !full.contains(kind)) else { return false };
            let has_room = self.has_room(kind);
            if !has_room {
                full.push(kind);
            }
            has_room
        })
    }

    /// All that wait do so for a jump host; or for the news that there is none.
    fn ask(&mut self) -> Option<Turn> {
        if self.asked.len() >= ASKED {
            return None;
        }
        let open = |kind: &Kind| self.known(kind) == Known::Nothing && !self.asked.values().any(|asked| asked == kind);
        let (node, kind) = self.waiting.iter().find_map(|node| {
            let kind = self.kinds.get(node).filter(|kind| open(kind))?;
            Some((*node, kind.clone()))
        })?;
        self.asked.insert(node, kind);
        Some(Turn::Ask(node))
    }

    fn known(&self, kind: &Kind) -> Known<'_> {
        match self.ways.get(kind) {
            None => Known::Nothing,
            Some(Way::Direct) => Known::Direct,
            Some(Way::Jump(jump)) => Known::Jump(jump),
        }
    }

    /// A kind of which nothing is known may be behind any jump host.
    fn has_room(&self, kind: &Kind) -> bool {
        let known = self.known(kind);
        let beside = |other: &&Kind| match known {
            Known::Direct => false,
            Known::Jump(_) => self.known(other) == known,
            Known::Nothing => self.known(other) != Known::Direct,
        };
        self.under_way.values().filter(beside).count() < JUMPED
    }

    /// Which way ssh takes to this host, and to all of its kind. It may have been given up meanwhile.
    pub fn told(&mut self, node: NodeId, way: Way) {
        if let Some(kind) = self.asked.remove(&node) {
            self.ways.insert(kind, way);
            self.stuck = false;
        }
    }

    /// This host has answered, or was given up.
    pub fn done(&mut self, node: NodeId) {
        self.under_way.remove(&node);
        self.kinds.remove(&node);
        self.waiting.retain(|other| *other != node);
        self.stuck = false;
    }

    /// Nobody waits and nobody is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::argv::Target;
    use super::*;
    use alloc::format;
    use proptest::prelude::*;

    fn kind(name: &str) -> Kind {
        Kind::of(&Target::parse(name.as_bytes(), None).unwrap())
    }

    fn of(hosts: core::ops::Range<u32>, name: &str) -> impl Iterator<Item = (NodeId, Kind)> {
        hosts.map(move |n| (NodeId::new(n), kind(&format!("{name}{n}"))))
    }

    fn all(fanout: &mut Fanout) -> Vec<Turn> {
        core::iter::from_fn(|| fanout.pop()).collect()
    }

    fn starts(hosts: impl IntoIterator<Item = u32>) -> Vec<Turn> {
        hosts.into_iter().map(|n| Turn::Start(NodeId::new(n))).collect()
    }

    #[test]
    fn a_few_hosts_start_without_a_question() {
        let mut fanout = Fanout::default();
        of(0..8, "n").for_each(|(node, kind)| fanout.push(node, kind));
        assert_eq!(all(&mut fanout), starts(0..8));
    }

    #[test]
    fn sixty_four_at_a_time_once_it_is_known_that_nobody_is_between() {
        let mut fanout = Fanout::default();
        of(0..100, "n").for_each(|(node, kind)| fanout.push(node, kind));
        let ask = Turn::Ask(NodeId::new(8));
        assert_eq!(all(&mut fanout), [starts(0..8), [ask].into()].concat());
        assert_eq!(fanout.pop(), None, "asked once");
        fanout.told(NodeId::new(8), Way::Direct);
        assert_eq!(all(&mut fanout), starts(8..64));
        fanout.done(NodeId::new(17));
        assert_eq!(all(&mut fanout), starts(64..65));
    }

    #[test]
    fn eight_behind_a_jump_and_nobody_waits_for_them() {
        let mut fanout = Fanout::default();
        of(0..20, "n").for_each(|(node, kind)| fanout.push(node, kind));
        of(20..30, "m").for_each(|(node, kind)| fanout.push(node, kind));
        let asks = [8, 20].map(|n| Turn::Ask(NodeId::new(n)));
        assert_eq!(all(&mut fanout), [starts(0..8), asks.into()].concat());
        fanout.told(NodeId::new(8), Way::Jump("bastion".into()));
        assert_eq!(fanout.pop(), None, "the others may be behind it, too");
        fanout.told(NodeId::new(20), Way::Direct);
        assert_eq!(all(&mut fanout), starts(20..30));
        fanout.done(NodeId::new(3));
        assert_eq!(all(&mut fanout), starts(8..9));
    }

    #[test]
    fn two_kinds_behind_one_jump_share_its_places() {
        let mut fanout = Fanout::default();
        of(0..20, "n").chain(of(20..40, "m")).for_each(|(node, kind)| fanout.push(node, kind));
        all(&mut fanout);
        for n in [8, 20] {
            fanout.told(NodeId::new(n), Way::Jump("bastion".into()));
        }
        assert_eq!(fanout.pop(), None);
        // The host that was asked about was given up: the answer still holds for its kind.
        fanout.done(NodeId::new(0));
        assert_eq!(all(&mut fanout), starts(8..9));
    }

    #[test]
    fn one_by_one_with_prompts() {
        let mut fanout = Fanout::one_by_one();
        of(0..2, "n").for_each(|(node, kind)| fanout.push(node, kind));
        assert_eq!(all(&mut fanout), starts(0..1));
        fanout.done(NodeId::new(0));
        assert_eq!(all(&mut fanout), starts(1..2));
    }

    proptest! {
        #[test]
        fn everybody_gets_a_turn_and_no_limit_is_passed(
            kinds in proptest::collection::vec(0usize..6, 1..200),
            order in proptest::collection::vec(any::<u16>(), 400),
        ) {
            // Kinds 0 to 2 are behind the same jump host, 3 behind another.
            let ways = ["a", "a", "a", "b"].map(|jump| Way::Jump(jump.into()));
            let way = |n: NodeId| ways.get(kinds[n.index()]).cloned().unwrap_or(Way::Direct);
            let mut fanout = Fanout::default();
            for (n, at) in (0u32..).zip(&kinds) {
                fanout.push(NodeId::new(n), kind(["n", "m", "o", "p", "q", "r"][*at]));
            }
            let (mut active, mut asked, mut seen): (Vec<NodeId>, Vec<NodeId>, usize) = (Vec::new(), Vec::new(), 0);
            let mut order = order.into_iter();
            loop {
                while let Some(turn) = fanout.pop() {
                    match turn {
                        Turn::Start(node) => {
                            active.push(node);
                            seen += 1;
                        }
                        Turn::Ask(node) => asked.push(node),
                    }
                }
                prop_assert!(active.len() <= DIRECT && asked.len() <= ASKED);
                // What started before anything was known comes on top.
                for jump in &ways {
                    prop_assert!(active.iter().filter(|n| way(**n) == *jump).count() <= 2 * JUMPED);
                }
                let next = usize::from(order.next().unwrap_or(0));
                if next.is_multiple_of(2) && !asked.is_empty() {
                    let node = asked.swap_remove(next / 2 % asked.len());
                    fanout.told(node, way(node));
                } else if !active.is_empty() {
                    fanout.done(active.swap_remove(next % active.len()));
                } else if asked.is_empty() {
                    break;
                }
            }
            prop_assert!(seen == kinds.len() && fanout.is_idle());
        }
    }
}
