//! The order of starts, by example and against a look at all hosts.

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
    fanout.on_way(NodeId::new(8), Way::Direct);
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
    fanout.on_way(NodeId::new(8), Way::Jump("bastion".into()));
    assert_eq!(fanout.pop(), None, "the others may be behind it, too");
    fanout.on_way(NodeId::new(20), Way::Direct);
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
        fanout.on_way(NodeId::new(n), Way::Jump("bastion".into()));
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

/// A row of hosts without power took every place for as long as one host may take, and the others waited for them.
#[test]
fn silent_host_delays_no_other() {
    let mut fanout = Fanout::default();
    of(0..30, "n").for_each(|(node, kind)| fanout.push(node, kind));
    all(&mut fanout);
    fanout.on_way(NodeId::new(8), Way::Jump("bastion".into()));
    assert_eq!(fanout.pop(), None);
    (0..8).for_each(|n| fanout.silent(NodeId::new(n)));
    assert_eq!(all(&mut fanout), starts(8..16));
    // The silent host has no place that it could give back.
    fanout.done(NodeId::new(0));
    fanout.silent(NodeId::new(1));
    fanout.silent(NodeId::new(20));
    assert_eq!(fanout.pop(), None);
    fanout.done(NodeId::new(8));
    assert_eq!(all(&mut fanout), starts(16..17));
}

#[test]
fn only_so_many_may_be_silent() {
    let mut fanout = Fanout::default();
    of(0..2_000, "n").for_each(|(node, kind)| fanout.push(node, kind));
    all(&mut fanout);
    fanout.on_way(NodeId::new(8), Way::Direct);
    let mut open = 8;
    loop {
        let more = all(&mut fanout).len();
        if more == 0 {
            break;
        }
        open += more;
        (0..u32::try_from(open).unwrap()).for_each(|n| fanout.silent(NodeId::new(n)));
    }
    assert_eq!(open, SILENT + DIRECT);
    // Each that is given up makes room for another's silence, and so for another.
    for n in 0..3 {
        fanout.done(NodeId::new(n));
        assert_eq!(all(&mut fanout), starts(576 + n..577 + n));
    }
}

#[test]
fn password_prompt_has_no_deadline() {
    let mut fanout = Fanout::one_by_one();
    of(0..2, "n").for_each(|(node, kind)| fanout.push(node, kind));
    all(&mut fanout);
    fanout.silent(NodeId::new(0));
    assert_eq!(fanout.pop(), None);
}

/// The same rules, by a look at all hosts.
#[derive(Default)]
struct Simple {
    waiting: Vec<(NodeId, Kind)>,
    under_way: Vec<(NodeId, Kind)>,
    silent: Vec<NodeId>,
    asked: Vec<(NodeId, Kind)>,
    ways: BTreeMap<Kind, Way>,
}

impl Simple {
    fn pop(&mut self) -> Option<Turn> {
        let may_start = |(_, kind): &(NodeId, Kind)| {
            let way = self.ways.get(kind);
            let beside = |other: Option<&Way>| match way {
                Some(Way::Direct) => false,
                Some(Way::Jump(_)) => other == way,
                None => other != Some(&Way::Direct),
            };
            self.under_way.iter().filter(|(_, other)| beside(self.ways.get(other))).count() < JUMPED
        };
        if self.under_way.len() >= DIRECT {
            return None;
        }
        if let Some(at) = self.waiting.iter().position(may_start) {
            self.under_way.push(self.waiting.remove(at));
            return self.under_way.last().map(|(node, _)| Turn::Start(*node));
        }
        let is_open = |kind| !self.ways.contains_key(kind) && self.asked.iter().all(|(_, asked)| asked != kind);
        let open = self.waiting.iter().find(|(_, kind)| self.asked.len() < ASKED && is_open(kind)).cloned()?;
        self.asked.push(open.clone());
        Some(Turn::Ask(open.0))
    }

    fn on_way(&mut self, node: NodeId, way: Way) {
        if let Some(at) = self.asked.iter().position(|(asked, _)| *asked == node) {
            self.ways.insert(self.asked.remove(at).1, way);
        }
    }

    fn silent(&mut self, node: NodeId) {
        if let Some(at) = self.under_way.iter().position(|(other, _)| *other == node) {
            self.silent.push(self.under_way.remove(at).0);
        }
    }

    fn done(&mut self, node: NodeId) {
        self.silent.retain(|other| *other != node);
        self.waiting.retain(|(other, _)| *other != node);
        self.under_way.retain(|(other, _)| *other != node);
    }
}

proptest! {
    /// Hosts come, go, answer, fall silent, and are given up in any order; what is counted is what a look at all of them shows.
    #[test]
    fn turns_are_those_of_a_look_at_everybody(
        steps in proptest::collection::vec((0u8..9, any::<u16>(), 0usize..8), 0..300),
    ) {
        let (mut fanout, mut simple, mut came) = (Fanout::default(), Simple::default(), 0u32);
        for (what, which, name) in steps {
            match what {
                0..4 => for _ in 0..=which % 5 {
                    let kind = kind(["n", "m", "o", "p", "q", "r", "s", "t"][name]);
                    fanout.push(NodeId::new(came), kind.clone());
                    simple.waiting.push((NodeId::new(came), kind));
                    came += 1;
                },
                4 => if let Some((node, _)) = simple.asked.get(usize::from(which) % simple.asked.len().max(1)).cloned() {
                    let way = if name < 3 { Way::Direct } else { Way::Jump(["a", "b"][name % 2].into()) };
                    fanout.on_way(node, way.clone());
                    simple.on_way(node, way);
                },
                5 => {
                    let node = NodeId::new(u32::from(which) % came.max(1));
                    fanout.silent(node);
                    simple.silent(node);
                }
                _ => {
                    let node = NodeId::new(u32::from(which) % came.max(1));
                    fanout.done(node);
                    simple.done(node);
                }
            }
            loop {
                let turn = simple.pop();
                prop_assert_eq!(fanout.pop(), turn);
                if turn.is_none() {
                    break;
                }
            }
            prop_assert_eq!(fanout.is_idle(), simple.waiting.is_empty() && simple.under_way.is_empty() && simple.silent.is_empty());
        }
    }

    #[test]
    fn everybody_gets_a_turn_and_no_limit_is_passed(
        kinds in proptest::collection::vec(0usize..6, 1..200),
        order in proptest::collection::vec(any::<u16>(), 400),
    ) {
        // Kinds 0 to 2 use the same jump host, 3 uses another.
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
            // Hosts that started before anything was known come on top.
            for jump in &ways {
                prop_assert!(active.iter().filter(|n| way(**n) == *jump).count() <= 2 * JUMPED);
            }
            let next = usize::from(order.next().unwrap_or(0));
            if next.is_multiple_of(2) && !asked.is_empty() {
                let node = asked.swap_remove(next / 2 % asked.len());
                fanout.on_way(node, way(node));
            } else if !active.is_empty() {
                fanout.done(active.swap_remove(next % active.len()));
            } else if asked.is_empty() {
                break;
            }
        }
        prop_assert!(seen == kinds.len() && fanout.is_idle());
    }
}
