//! Worlds: programs whose ranks have numbers, a rendezvous and a namespace of the store of their own (`--group`, spawned programs).
//!
//! Inside the machines ranks keep their numbers in the job. Ranks and users see the numbers in a world.

use super::{AppRequest, PlaceError, Placement, Processes};
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::by_rank::ByRank;
use rlaunch_base::id::{AppIndex, LocalRank, NodeId, Rank, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use serde::{Deserialize, Serialize};

/// A world, as its ranks know it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct World {
    /// Its name; empty: it has none.
    pub group: OsBytes,
    /// Ranks that are tied together, as one engine; 0: none are.
    pub tied: u32,
    /// The agent of its first host holds its `TCPStore`. Not used for the first world.
    pub agent_store: bool,
}

impl World {
    /// A world with this name.
    #[must_use]
    pub fn named(group: OsBytes) -> Self {
        Self { group, tied: 0, agent_store: false }
    }

    /// The key of a group in the job's store. Its value has lines `NAME=VALUE`.
    #[must_use]
    pub fn store_key(group: &[u8]) -> Vec<u8> {
        [b"rlaunch/groups/", group].concat()
    }

    /// The keys of its workers in the job's store begin like this: their clients write them.
    #[must_use]
    pub fn worker_keys(group: &[u8]) -> Vec<u8> {
        [Self::WORKERS, group, b"/"].concat()
    }

    /// The keys of the workers of all groups begin like this. The secrets of the groups are among them.
    pub const WORKERS: &[u8] = b"rlaunch-groups/";
}

/// The world of each program. Nothing at all: all programs are one world without a name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Worlds {
    by_app: BTreeMap<AppIndex, WorldId>,
    /// The same by world: a rank's number in its world is needed at each event of the rank.
    programs: BTreeSet<(WorldId, AppIndex)>,
    all: BTreeMap<WorldId, World>,
    /// The number of the next world: no number is given twice.
    next: u32,
}

impl Worlds {
    /// Adds the next program of the command line, which forms a world with all others of this name.
    pub fn add_program(&mut self, world: World) -> WorldId {
        let app = AppIndex::new(u32::try_from(self.by_app.len()).unwrap_or(u32::MAX));
        let id = self.named(&world.group).unwrap_or_else(|| self.add_world(world));
        self.enter(app, id);
        id
    }

    /// The number of programs that are known.
    pub fn programs(&self) -> usize {
        self.by_app.len()
    }

    fn enter(&mut self, app: AppIndex, world: WorldId) {
        self.by_app.insert(app, world);
        self.programs.insert((world, app));
    }

    /// Adds a world.
    fn add_world(&mut self, world: World) -> WorldId {
        let id = WorldId::new(self.next);
        self.next = self.next.saturating_add(1);
        self.all.insert(id, world);
        id
    }

    /// Adds a world of the next programs, which starts while the job runs.
    pub fn spawn(&mut self, world: World, apps: impl IntoIterator<Item = AppIndex>) -> WorldId {
        let mut apps = apps.into_iter().peekable();
        if self.all.is_empty() {
            let first = self.add_world(World::default());
            let known = apps.peek().map_or(0, |app| app.get());
            (0..known).for_each(|app| self.enter(AppIndex::new(app), first));
        }
        let id = self.add_world(world);
        apps.for_each(|app| self.enter(app, id));
        id
    }

    /// The world with this name: of several the last one, as the others have ended.
    #[must_use]
    pub fn named(&self, group: &[u8]) -> Option<WorldId> {
        self.all.iter().rev().find(|(_, world)| world.group.as_slice() == group).map(|(id, _)| *id)
    }

    /// The number of the next world.
    #[must_use]
    pub fn next(&self) -> WorldId {
        WorldId::new(self.next.max(1))
    }

    /// The world of a program.
    #[must_use]
    pub fn of_app(&self, app: AppIndex) -> WorldId {
        self.by_app.get(&app).copied().unwrap_or(WorldId::new(0))
    }

    /// The facts of a world.
    #[must_use]
    pub fn get(&self, world: WorldId) -> Option<&World> {
        self.all.get(&world)
    }

    /// Says whether the agent of its first host holds the `TCPStore` of a world.
    pub fn hold_store(&mut self, world: WorldId, is_held: bool) {
        if let Some(world) = self.all.get_mut(&world) {
            world.agent_store = is_held;
        }
    }

    /// The name of a world; empty: it has none.
    #[must_use]
    pub fn group(&self, world: WorldId) -> &[u8] {
        self.get(world).map_or(b"", |world| world.group.as_slice())
    }

    /// All of them; at least one.
    pub fn ids(&self) -> impl Iterator<Item = WorldId> + '_ {
        let first = self.all.is_empty().then_some(WorldId::new(0));
        first.into_iter().chain(self.all.keys().copied())
    }

    /// All ranks of the job are one world, and always were.
    #[must_use]
    pub const fn is_one(&self) -> bool {
        self.next < 2
    }

    /// A world has a name.
    #[must_use]
    pub fn has_groups(&self) -> bool {
        self.all.values().any(|world| !world.group.is_empty())
    }
}

impl Placement {
    /// The world of a rank.
    #[must_use]
    pub fn world_of(&self, rank: Rank) -> WorldId {
        let app = self.ranks.get(rank.index()).map(|placed| placed.app);
        app.map_or(WorldId::new(0), |app| self.worlds.of_app(app))
    }

    /// The number of a rank in its world.
    #[must_use]
    pub fn in_world(&self, rank: Rank) -> Rank {
        let Some(own) = self.ranks.get(rank.index()).filter(|_| !self.worlds.is_one()) else { return rank };
        let world = self.worlds.of_app(own.app);
        let before = self.worlds.programs.range((world, AppIndex::new(0))..(world, own.app));
        let before = before.fold(0_u32, |sum, (_, app)| sum.saturating_add(self.share(*app).size));
        let number = rank.get().saturating_sub(self.share(own.app).first.get());
        Rank::new(before.saturating_add(number))
    }

    /// The ranks of a world, in their order.
    pub fn members(&self, world: WorldId) -> impl Iterator<Item = Rank> + '_ {
        let own = self.ranks.with_ranks().filter(move |(_, placed)| self.worlds.of_app(placed.app) == world);
        own.map(|(rank, _)| rank)
    }

    /// Removes worlds that have ended, with their programs and ranks. Returns the ranks.
    pub fn forget(&mut self, worlds: &BTreeSet<WorldId>) -> BTreeSet<Rank> {
        let Self { ranks, worlds: Worlds { by_app, programs, all, .. }, processes, .. } = self;
        let is_one = |app| by_app.get(&app).is_some_and(|world| worlds.contains(world));
        let gone: BTreeSet<Rank> =
            ranks.with_ranks().filter(|(_, placed)| is_one(placed.app)).map(|(rank, _)| rank).collect();
        ranks.remove(|rank| gone.contains(&rank));
        processes.forget(&gone);
        by_app.retain(|_, world| !worlds.contains(world));
        programs.retain(|(world, _)| !worlds.contains(world));
        all.retain(|world, _| !worlds.contains(world));
        gone
    }

    /// The name that people read: `3`, or `policy/3`.
    #[must_use]
    pub fn name_of(&self, rank: Rank) -> String {
        match self.worlds.group(self.world_of(rank)) {
            b"" => format!("{}", self.in_world(rank)),
            group => format!("{}/{}", OsBytes::from(group), self.in_world(rank)),
        }
    }

    /// A world, as if there were no other: its ranks with their numbers in it, and their local ranks among its own.
    #[must_use]
    pub fn only(&self, world: WorldId) -> Cow<'_, Self> {
        if self.worlds.is_one() {
            return Cow::Borrowed(self);
        }
        let mut nodes = self.nodes.clone();
        nodes.iter_mut().for_each(|node| node.ranks = 0);
        let mut ranks = ByRank::default();
        for rank in self.members(world) {
            let Some(mut placed) = self.ranks.get(rank.index()).copied() else { continue };
            if let Some(node) = nodes.get_mut(placed.node.index()) {
                placed.local_rank = LocalRank::new(node.ranks);
                node.add_rank();
            }
            ranks.push(placed);
        }
        // Which process of rank 0 came first is a question of jobs with one world.
        let (processes, worlds) = (Processes::default(), Worlds::default());
        Cow::Owned(Self { nodes, ranks, notes: Vec::new(), processes, order: Vec::new(), worlds })
    }

    /// The number of slots of a host that ranks sit on: ranks that share a slot count once.
    #[must_use]
    pub fn slots_used(&self, node: NodeId) -> u32 {
        let own = self.ranks.iter().filter(|placed| placed.node == node);
        own.map(|placed| placed.local_rank.get().saturating_add(1)).max().unwrap_or(0)
    }
}

/// The placements of a program on those of another: its ranks run there in the same order.
pub(super) fn shared(
    placements: &[(usize, LocalRank, AppIndex)],
    base: AppIndex,
    app: &AppRequest,
    index: AppIndex,
) -> Result<Vec<(usize, LocalRank, AppIndex)>, PlaceError> {
    let own: Vec<(usize, LocalRank)> =
        placements.iter().filter(|(_, _, app)| *app == base).map(|(host, local, _)| (*host, *local)).collect();
    let has = u32::try_from(own.len()).unwrap_or(u32::MAX);
    let n = app.n.unwrap_or(has);
    if n > has {
        return Err(PlaceError::Share { app: index, n, has });
    }
    Ok(own.into_iter().take(n as usize).map(|(host, local)| (host, local, index)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::RankPlacement;
    use alloc::vec;

    fn named(names: &[&str]) -> Worlds {
        let mut worlds = Worlds::default();
        for name in names {
            worlds.add_program(World::named((*name).into()));
        }
        worlds
    }

    /// Programs of 1, 2, 1 and 2 ranks on one host.
    fn placed(names: [&str; 4]) -> Placement {
        Placement { worlds: named(&names), ..Placement::here("here", [1, 2, 1, 2]) }
    }

    #[test]
    fn ranks_are_numbered_in_their_worlds() {
        let placement = placed(["", "gen", "", "policy"]);
        let names: Vec<String> = (0..6).map(|n| placement.name_of(Rank::new(n))).collect();
        assert_eq!(names, ["0", "gen/0", "gen/1", "1", "policy/0", "policy/1"]);
        let members: Vec<u32> = placement.members(WorldId::new(0)).map(Rank::get).collect();
        assert_eq!(members, [0, 3]);
        assert!(!placement.worlds.is_one() && placement.worlds.has_groups());
        assert_eq!(placement.worlds.ids().count(), 3);
    }

    #[test]
    fn world_is_a_placement_of_its_own() {
        let placement = placed(["", "gen", "", "policy"]);
        let only = placement.only(WorldId::new(1));
        assert_eq!((only.world_size(), only.nodes[0].ranks), (2, 2));
        assert_eq!(only.ranks.iter().map(|placed| placed.local_rank.get()).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(only.ranks[0].app, AppIndex::new(1));
        let all = Placement::here("here", [3]);
        assert_eq!(*all.only(WorldId::new(0)), all);
    }

    #[test]
    fn job_without_names_is_one_world() {
        let placement = Placement::here("here", [1, 2]);
        assert!(placement.worlds.is_one() && !placement.worlds.has_groups());
        assert_eq!(placement.worlds.ids().collect::<Vec<_>>(), [WorldId::new(0)]);
        assert_eq!(placement.in_world(Rank::new(2)), Rank::new(2));
    }

    /// The last number of a program: a walk over all programs before it would take minutes.
    #[test]
    fn number_in_a_world_does_not_depend_on_programs_that_are_forgotten() {
        let mut placement = Placement::here("here", [2, 1]);
        let placed = placement.ranks[0];
        let mut spawn = |group: &str, apps: [u32; 3]| {
            let placements = apps.map(|app| RankPlacement { app: AppIndex::new(app), ..placed });
            let apps = BTreeSet::from(placements.map(|placed| placed.app));
            placement.ranks.extend(placements);
            placement.worlds.spawn(World::named(group.into()), apps)
        };
        let (old, last) = (spawn("old", [2, 2, 2]), u32::MAX - 1);
        spawn("gen", [last - 1, last - 1, last]);
        let gone = placement.forget(&[old].into());
        assert_eq!(gone.into_iter().map(Rank::get).collect::<Vec<_>>(), [3, 4, 5]);
        let names: Vec<String> = [0, 1, 2, 6, 7, 8].map(|n| placement.name_of(Rank::new(n))).into();
        assert_eq!(names, ["0", "1", "2", "gen/0", "gen/1", "gen/2"]);
    }

    #[test]
    fn shared_ranks_sit_on_the_first_slots() {
        let app = AppIndex::new;
        let placements =
            vec![(0, LocalRank::new(0), app(0)), (0, LocalRank::new(1), app(1)), (1, LocalRank::new(0), app(1))];
        let request = |n| AppRequest { n, share: Some(app(1)), ..AppRequest::default() };
        let all = shared(&placements, app(1), &request(None), app(2)).unwrap();
        assert_eq!(all, [(0, LocalRank::new(1), app(2)), (1, LocalRank::new(0), app(2))]);
        assert_eq!(shared(&placements, app(1), &request(Some(1)), app(2)).unwrap().len(), 1);
        let refused = shared(&placements, app(1), &request(Some(3)), app(2)).unwrap_err();
        assert_eq!(refused, PlaceError::Share { app: app(2), n: 3, has: 2 });
    }
}
