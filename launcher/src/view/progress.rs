//! Progress of a launch on other hosts: one line that is drawn anew on a terminal, a line every ten seconds elsewhere. Launches of less
//! than a second show nothing. A world that is started while the job runs always gets a line every ten seconds: output of other ranks
//! would break a drawn line.

use super::phrases;
use rlaunch_base::id::{NodeId, Rank};
use rlaunch_base::time::{Mono, Span};
use rlaunch_core::events::What;
use rlaunch_plan::bootstrap::Stage;
use rlaunch_plan::hostlist::fold;
use rlaunch_protocol::wire::to_node::WORLD_NAMESPACE;
use std::collections::BTreeMap;

/// Time before which no progress is shown.
const PATIENCE: Span = Span::from_secs(1);
/// After this it is worth knowing for whom one waits.
const NAMED: Span = Span::from_secs(5);
/// Hosts that are named then, of those that are equally far.
const SOME: usize = 3;
/// From one drawing to the next.
const FRAME: Span = Span::from_millis(200);
/// From one line to the next.
const LINES: Span = Span::from_secs(10);
/// Longest list of hosts.
const LIST: usize = 60;
/// The width of the bar.
const WIDTH: usize = 10;
/// Begins the line of a terminal anew (ECMA-48: carriage return, erase in line).
const WIPE: &str = "\r\x1b[K";

/// The display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Onto {
    /// A terminal with so many columns.
    Terminal(usize),
    /// Anything else.
    Lines,
}

/// How far a host is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum At {
    Ready,
    Starting,
    Sending,
    Retrying,
    Connecting,
    Queued,
    Failed,
}

impl At {
    const fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Starting => "starting agent",
            Self::Sending => "sending agent",
            Self::Retrying => "retrying",
            Self::Connecting => "connecting",
            Self::Queued => "queued",
            Self::Failed => "failed",
        }
    }

    const fn is_open(self) -> bool {
        !matches!(self, Self::Ready | Self::Failed)
    }
}

/// The last world that was started while the job runs.
#[derive(Debug)]
struct World {
    /// The number of its namespace, by which its end is known.
    namespace: u32,
    group: String,
    /// Its first rank, by the number in the job.
    first: Rank,
    ranks: u32,
    started: u32,
}

/// A launch on several hosts.
#[derive(Debug)]
pub(crate) struct Progress {
    hosts: Vec<(String, At)>,
    /// How many of them are neither ready nor failed.
    open: usize,
    onto: Onto,
    began: Mono,
    /// When something is shown next; `None`: never again.
    next: Option<Mono>,
    /// A line stands on the terminal.
    drawn: bool,
    world: Option<World>,
}

impl Progress {
    pub(crate) fn new(hosts: impl IntoIterator<Item = String>, onto: Onto, now: Mono) -> Self {
        let first = match onto {
            Onto::Terminal(_) => PATIENCE,
            Onto::Lines => LINES,
        };
        let hosts: Vec<_> = hosts.into_iter().map(|name| (name, At::Queued)).collect();
        let next = (!hosts.is_empty()).then(|| now + first);
        Self { open: hosts.len(), hosts, onto, began: now, next, drawn: false, world: None }
    }

    /// Takes the stage of a host from the bootstrap.
    pub(crate) fn stage(&mut self, node: NodeId, stage: Stage) {
        let at = match stage {
            Stage::Pausing => At::Retrying,
            Stage::Connecting => At::Connecting,
            Stage::Sending(_) => At::Sending,
            Stage::Starting(_) => At::Starting,
        };
        self.set(node, at);
    }

    /// Takes a record of the event log.
    pub(crate) fn record(&mut self, what: &What, now: Mono) {
        match what {
            What::WorldStart(line) => {
                let ranks = line.apps.iter().fold(0_u32, |sum, app| sum.saturating_add(app.procs));
                let namespace = WORLD_NAMESPACE.saturating_add(line.world.get());
                self.world =
                    Some(World { namespace, group: line.group.to_string(), first: line.first, ranks, started: 0 });
                (self.began, self.next) = (now, Some(now + LINES));
            }
            What::RankStarted { rank, .. } if let Some(world) = &mut self.world => {
                world.started += u32::from(*rank >= world.first);
                if world.started >= world.ranks {
                    self.next = None;
                }
            }
            What::RankFailed { rank, .. } if self.world.as_ref().is_some_and(|world| *rank < world.first) => {}
            What::HostReady { node, .. } => self.set(*node, At::Ready),
            What::HostFailed { node, .. } | What::HostRefused { node, .. } | What::HostLost { node, .. } => {
                self.set(*node, At::Failed);
            }
            // Ranks run, or never will.
            What::RankStarted { .. } | What::RankFailed { .. } | What::Ending { .. } | What::JobEnd { .. } => {
                self.next = None
            }
            _ => {}
        }
    }

    /// Takes the end of a world, by its namespace: ranks of it that have not started never will.
    pub(crate) fn on_world_end(&mut self, namespace: u32) {
        if self.world.as_ref().is_some_and(|world| world.namespace == namespace) {
            self.next = None;
        }
    }

    fn set(&mut self, node: NodeId, at: At) {
        if let Some((_, own)) = self.hosts.get_mut(node.index()).filter(|(_, own)| own.is_open()) {
            *own = at;
            self.open -= usize::from(!at.is_open());
        }
        if self.open == 0 && self.world.is_none() {
            self.next = None;
        }
    }

    /// When `poll` wants to be called.
    pub(crate) const fn deadline(&self) -> Option<Mono> {
        self.next
    }

    /// Returns the text to be written now. `free`: all that was written before has left us.
    pub(crate) fn poll(&mut self, now: Mono, free: bool) -> Option<String> {
        let Some(at) = self.next else { return self.wipe() };
        if now < at {
            return None;
        }
        let is_drawn = matches!(self.onto, Onto::Terminal(_)) && self.world.is_none();
        let pause = if is_drawn { FRAME } else { LINES };
        self.next = Some(now + pause);
        free.then(|| match self.onto {
            Onto::Terminal(columns) if self.world.is_none() => {
                self.drawn = true;
                format!("{WIPE}{}", self.drawing(now, columns))
            }
            Onto::Terminal(_) | Onto::Lines => self.line(now),
        })
    }

    /// Returns the text that has to be written before any other.
    pub(crate) fn wipe(&mut self) -> Option<String> {
        std::mem::take(&mut self.drawn).then(|| WIPE.to_owned())
    }

    fn counts(&self) -> BTreeMap<At, usize> {
        let mut counts = BTreeMap::new();
        for (_, at) in &self.hosts {
            *counts.entry(*at).or_insert(0) += 1;
        }
        counts
    }

    /// The hosts at that stage, in short.
    fn names(&self, is: impl Fn(At) -> bool) -> String {
        let folded = fold(self.hosts.iter().filter(|(_, at)| is(*at)).map(|(name, _)| name.as_str()));
        match folded.get(..LIST) {
            Some(start) if folded.len() > LIST => format!("{start}..."),
            Some(_) | None => folded,
        }
    }

    /// The first of those that are so far.
    fn some(&self, is: At) -> String {
        let mut names = self.hosts.iter().filter(|(_, at)| *at == is).map(|(name, _)| name.as_str());
        let some = fold(names.by_ref().take(SOME));
        if names.next().is_some() { format!("{some},...") } else { some }
    }

    fn drawing(&self, now: Mono, columns: usize) -> String {
        let all = self.hosts.len();
        let counts = self.counts();
        let ready = counts.get(&At::Ready).copied().unwrap_or(0);
        let full = ready * WIDTH / all.max(1);
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDTH - full));
        let mut text = format!("launching {}  [{bar}]", phrases::count(all as u64, "host"));
        for (at, count) in &counts {
            text.push_str(&format!("  {count} {}", at.word()));
            if *at == At::Failed {
                text.push_str(&format!(": {}", self.names(|at| at == At::Failed)));
            } else if at.is_open() && now.since(self.began) >= NAMED {
                text.push_str(&format!(": {}", self.some(*at)));
            }
        }
        text.push_str(&format!("  {}", now.since(self.began)));
        // The last column stays free: a terminal may wrap there.
        text.truncate(text.char_indices().nth(columns.saturating_sub(1)).map_or(text.len(), |(at, _)| at));
        text
    }

    fn line(&self, now: Mono) -> String {
        if let Some(World { group, ranks, started, .. }) = &self.world {
            let (all, after) = (phrases::count((*ranks).into(), "rank"), phrases::wait(now.since(self.began)));
            return format!("rlaunch: {started} of {all} of group {group} started after {after}\n");
        }
        let counts = self.counts();
        let ready = counts.get(&At::Ready).copied().unwrap_or(0);
        let rest: Vec<String> = counts
            .iter()
            .filter(|(at, _)| **at != At::Ready)
            .map(|(at, count)| format!("{count} {}: {}", at.word(), self.names(|own| own == *at)))
            .collect();
        let (all, after) = (phrases::count(self.hosts.len() as u64, "host"), phrases::wait(now.since(self.began)));
        format!("rlaunch: {ready} of {all} ready after {after}; {}\n", rest.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_base::id::WorldId;
    use rlaunch_base::os_bytes::OsBytes;
    use rlaunch_base::os_strings::OsStrings;
    use rlaunch_base::rank_set::RankSet;
    use rlaunch_core::events::{AppLine, Lost, Tried, WorldLine};
    use rlaunch_plan::bootstrap::{HostFailure, Place};
    use rlaunch_protocol::wire::to_root::{Found, SpawnError, SpawnStep};

    fn at(ms: u64) -> Mono {
        Mono::from_nanos(ms * 1_000_000)
    }

    fn launch(onto: Onto) -> Progress {
        let mut progress = Progress::new((0..8).map(|n| format!("n{n}")), onto, at(0));
        progress.stage(NodeId::new(0), Stage::Connecting);
        progress.stage(NodeId::new(1), Stage::Sending(Place::Cache));
        for node in [2, 5].map(NodeId::new) {
            progress.record(&What::HostFailed { node, why: HostFailure::default() }, at(0));
        }
        progress
    }

    fn started(rank: u32) -> What {
        What::RankStarted {
            rank: Rank::new(rank),
            node: NodeId::new(0),
            local_rank: rlaunch_base::id::LocalRank::new(0),
            group: None,
            pid: 1,
            at: Span::ZERO,
        }
    }

    fn fails(progress: &mut Progress, nodes: impl IntoIterator<Item = u32>) {
        for node in nodes.into_iter().map(NodeId::new) {
            progress.record(&What::HostFailed { node, why: HostFailure::default() }, at(0));
        }
    }

    #[test]
    fn a_terminal_has_one_line_that_is_drawn_anew() {
        let mut progress = launch(Onto::Terminal(200));
        assert_eq!(progress.poll(at(999), true), None, "nobody wonders yet");
        let line =
            "\r\x1b[Klaunching 8 hosts  [----------]  1 sending agent  1 connecting  4 queued  2 failed: n[2,5]  1.0s";
        assert_eq!(progress.poll(at(1000), true).as_deref(), Some(line));
        assert_eq!(progress.poll(at(1001), true), None);
        assert_eq!(progress.deadline(), Some(at(1200)));
        assert_eq!(progress.poll(at(1200), false), None, "the terminal has not taken the last one");
        assert!(progress.poll(at(1400), true).is_some());
        assert_eq!(progress.wipe().as_deref(), Some(WIPE), "somebody else says something");
        assert_eq!(progress.wipe(), None);
        assert!(progress.poll(at(1600), true).is_some(), "it comes back");
        fails(&mut progress, 0..8);
        assert_eq!(progress.deadline(), None);
        assert_eq!(progress.poll(at(1601), true).as_deref(), Some(WIPE), "all is known");
        assert_eq!(progress.poll(at(9000), true), None);
    }

    #[test]
    fn awaited_hosts_are_named_after_a_while() {
        let mut progress = launch(Onto::Terminal(200));
        let line = progress.poll(at(4_999), true).unwrap();
        assert!(line.ends_with("1 sending agent  1 connecting  4 queued  2 failed: n[2,5]  4.9s"), "{line}");
        let line = progress.poll(at(5_200), true).unwrap();
        let named = "1 sending agent: n1  1 connecting: n0  4 queued: n[3-4,6],...  2 failed: n[2,5]  5.2s";
        assert!(line.ends_with(named), "{line}");
    }

    #[test]
    fn a_line_is_no_longer_than_the_terminal() {
        let mut progress = launch(Onto::Terminal(20));
        assert_eq!(progress.poll(at(1000), true).as_deref(), Some("\r\x1b[Klaunching 8 hosts  "));
    }

    #[test]
    fn elsewhere_a_line_is_written_every_ten_seconds() {
        let mut progress = launch(Onto::Lines);
        assert_eq!((progress.poll(at(9_999), true), progress.deadline()), (None, Some(at(10_000))));
        let line = "rlaunch: 0 of 8 hosts ready after 10s; 1 sending agent: n1; 1 connecting: n0; 4 queued: n[3-4,6-7]; \
                    2 failed: n[2,5]\n";
        assert_eq!(progress.poll(at(10_000), true).as_deref(), Some(line));
        assert_eq!(progress.deadline(), Some(at(20_000)));
        fails(&mut progress, 0..8);
        assert_eq!(progress.poll(at(20_000), true), None);
    }

    #[test]
    fn a_job_that_begins_or_ends_has_no_progress_any_more() {
        let what = [What::OutputEnd { lost: 0, broken: 0 }, started(0)];
        let over = what.map(|what| {
            let mut progress = launch(Onto::Lines);
            progress.record(&what, at(0));
            progress.deadline().is_none()
        });
        assert_eq!(over, [false, true]);
    }

    /// A world of four ranks, of which the first one is the job's rank 1.
    fn world() -> What {
        let app = AppLine {
            procs: 2,
            group: OsBytes::default(),
            argv: OsStrings::default(),
            wdir: None,
            bytes: 0,
            longest: 0,
        };
        What::WorldStart(Box::new(WorldLine {
            world: WorldId::new(1),
            group: "gen".into(),
            first: Rank::new(1),
            apps: vec![app; 2],
            asker: None,
            is_crowded: false,
            forgotten: RankSet::default(),
        }))
    }

    #[test]
    fn ranks_of_a_world_that_start_slowly_are_counted_every_ten_seconds() {
        for onto in [Onto::Lines, Onto::Terminal(80)] {
            let mut progress = Progress::new([], onto, at(0));
            assert_eq!((progress.deadline(), progress.poll(at(20_000), true)), (None, None), "a job on this host");
            progress.record(&world(), at(30_000));
            [0, 1].into_iter().for_each(|rank| progress.record(&started(rank), at(30_001)));
            assert_eq!((progress.poll(at(39_999), true), progress.deadline()), (None, Some(at(40_000))));
            let line = "rlaunch: 1 of 4 ranks of group gen started after 10s\n";
            assert_eq!(progress.poll(at(40_000), true).as_deref(), Some(line));
            (2..5).for_each(|rank| progress.record(&started(rank), at(40_001)));
            assert_eq!((progress.deadline(), progress.poll(at(50_000), true)), (None, None));
        }
    }

    #[test]
    fn world_is_counted_until_it_has_started_or_ended() {
        let failed = |rank: u32| What::RankFailed {
            rank: Rank::new(rank),
            node: NodeId::new(0),
            error: SpawnError { step: SpawnStep::Exec, errno: 2, path: "x".into(), found: Found::Nothing },
            tried: Tried::First,
        };
        let lost = What::HostLost { node: NodeId::new(0), lost: Lost::Guardian };
        let is_counted = |what: &What| {
            let mut progress = Progress::new(["a".to_owned()], Onto::Lines, at(0));
            progress.record(&started(0), at(1));
            progress.record(&world(), at(2));
            progress.record(what, at(3));
            progress.deadline().is_some()
        };
        assert_eq!([failed(0), failed(2), lost].map(|what| is_counted(&what)), [true, false, true]);
        let mut progress = Progress::new([], Onto::Lines, at(0));
        progress.record(&world(), at(0));
        let ended = [2, 1].map(|world| {
            progress.on_world_end(WORLD_NAMESPACE + world);
            progress.deadline()
        });
        assert_eq!(ended, [Some(at(10_000)), None]);
    }
}
