//! A pool: hosts that stay reached between jobs, and the decision which job has which of them.
//!
//! A host is one job's at a time. It is free again only when nothing of its last job is left there. Hosts are handed out in the order of
//! their slots. Jobs that wait have their turn in the order in which they came, but an evicting job goes first.

mod host_table;
#[cfg(test)]
mod tests;

pub use host_table::{HostState, PoolHost, SliceState};

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use host_table::HostTable;
use rlaunch_base::id::{HoldId, JobId, NodeId};
use rlaunch_base::machine::earliest_of;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::wire::frozen::pool::{Need, Refusal, Want};

/// Jobs that may wait.
pub const MOST_WAITING: usize = 1024;
/// How long a job without `--wait`, and a pool that ends, wait for hosts on which the last job has just ended.
pub const EMPTY_WITHIN: Span = Span::from_secs(15);

/// How long the first hosts are waited for, while they get empty and later ones are free. Mostly they take a few milliseconds.
const ORDER_WITHIN: Span = Span::from_secs(5);

/// How long a job may take to end that has not said how long.
pub const END_WITHIN: Span = Span::from_secs(60);

/// News for a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PoolEvent {
    /// The connection of a host is open.
    Up(NodeId),
    /// The connection of a host has ended, or could not be made.
    Lost(NodeId),
    /// A host is about to be taken away, or not any more.
    Warned(NodeId, bool),
    /// Nothing of this job is left on a host.
    Empty(NodeId, JobId),
    /// A job wants hosts. The process that asks, and what it asks for.
    Want(HoldId, u32, Want),
    /// A job that wants or has hosts may take so long to end after SIGTERM.
    EndsWithin(HoldId, Span),
    /// The connection of a job has ended.
    Closed(HoldId),
    /// A host gets no new job, and leaves when it is empty.
    Drain(NodeId),
    /// The pool ends. Whether jobs get no time to end.
    Down(bool),
}

/// Something that a pool wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PoolAction {
    /// The job has these hosts, in slot order.
    Grant(HoldId, Vec<NodeId>),
    /// The job waits; so many are before it.
    Queued(HoldId, u32),
    /// Other jobs have the hosts.
    Busy(HoldId),
    /// The job cannot have what it wants.
    Refuse(HoldId, Refusal),
    /// The job of this connection is to end: by SIGTERM, or at once (SIGKILL).
    End(HoldId, bool),
    /// Report when nothing of this job is left on a host.
    Watch(NodeId, JobId),
    /// A host has left: its connection is to be closed. The job of which processes may be left there.
    Close(NodeId, Option<JobId>),
    /// The pool has ended.
    Over,
}

/// A job that has hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    /// The job.
    pub job: JobId,
    /// The process of its launcher.
    pub pid: u32,
    /// The user's command.
    pub command: OsBytes,
    /// Since when it has its hosts.
    pub since: Mono,
    /// The pool has asked the job to end.
    pub is_ending: bool,
    /// How long it may take then.
    ends_within: Span,
    /// When it is ended by force.
    ends_by: Option<Mono>,
}

/// A job that waits.
#[derive(Clone, Debug)]
struct Waiting {
    hold: HoldId,
    pid: u32,
    want: Want,
    /// Until when it waits; `None`: without an end.
    until: Option<Mono>,
    /// The job has read that it waits.
    is_informed: bool,
    /// How long it may take to end.
    ends_within: Span,
}

/// Whether a job can have its hosts.
enum Chance {
    /// These.
    Now(Vec<NodeId>),
    /// When hosts are empty on which a job has ended, or is about to.
    Soon,
    /// When other jobs end.
    Later,
    /// Not with the hosts that can be used.
    Never(Refusal),
}

/// The pool.
#[derive(Debug)]
pub struct Pool {
    hosts: HostTable,
    holds: BTreeMap<HoldId, Hold>,
    queue: VecDeque<Waiting>,
    /// Without a job for so long, the pool ends.
    idle: Option<Span>,
    idle_since: Option<Mono>,
    ending: Option<bool>,
    /// Until when hosts that are not empty yet have their turn in the order of slots.
    orderly_until: Option<Mono>,
    is_over: bool,
    out: VecDeque<PoolAction>,
}

impl Pool {
    /// A pool without hosts.
    #[must_use]
    pub const fn new(now: Mono, idle: Option<Span>) -> Self {
        Self {
            hosts: HostTable::new(),
            holds: BTreeMap::new(),
            queue: VecDeque::new(),
            idle,
            idle_since: Some(now),
            ending: None,
            orderly_until: None,
            is_over: false,
            out: VecDeque::new(),
        }
    }

    /// A host joins, in the slot after the last. Its connection is still to be opened.
    pub fn add(&mut self, slots: u32, slice: Option<u32>) -> NodeId {
        self.hosts.add(slots, slice)
    }

    /// Its hosts, in slot order.
    pub fn hosts(&self) -> impl Iterator<Item = (NodeId, &PoolHost)> {
        self.hosts.iter()
    }

    /// A host, unless it has left.
    #[must_use]
    pub fn host(&self, node: NodeId) -> Option<&PoolHost> {
        self.hosts.get(node)
    }

    /// Its slices, in slot order, each with its state as a whole.
    #[must_use]
    pub fn slices(&self) -> BTreeMap<u32, SliceState> {
        self.hosts.slice_states()
    }

    /// The jobs that have hosts.
    pub fn holds(&self) -> impl Iterator<Item = (HoldId, &Hold)> {
        self.holds.iter().map(|(id, hold)| (*id, hold))
    }

    /// The number of jobs that wait.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }

    /// Takes one event.
    pub fn handle(&mut self, now: Mono, event: PoolEvent) {
        match event {
            PoolEvent::Up(node) => {
                if let Some(job) = self.hosts.on_up(node) {
                    self.out.push_back(PoolAction::Watch(node, job));
                }
            }
            PoolEvent::Lost(node) => self.hosts.on_lost(node),
            PoolEvent::Warned(node, is_warned) => self.hosts.on_warned(node, is_warned),
            PoolEvent::Empty(node, job) => self.hosts.on_empty(node, job),
            PoolEvent::Want(hold, pid, want) => self.want(now, hold, pid, want),
            PoolEvent::EndsWithin(hold, within) => self.limit_end(hold, within),
            PoolEvent::Closed(hold) => self.close(now, hold),
            PoolEvent::Drain(node) => self.hosts.drain(node),
            PoolEvent::Down(is_now) => self.end(now, is_now),
        }
        self.apply_decisions(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Mono) {
        if self.idle_end().is_some_and(|at| at <= now) {
            self.end(now, false);
        }
        for (id, hold) in &mut self.holds {
            if hold.ends_by.is_some_and(|at| at <= now) {
                hold.ends_by = None;
                self.out.push_back(PoolAction::End(*id, true));
            }
        }
        self.apply_decisions(now);
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<PoolAction> {
        self.out.pop_front()
    }

    /// When `handle_timeout` is to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        let orderly = self.orderly_until.filter(|_| !self.queue.is_empty());
        let ends = self.holds.values().map(|hold| hold.ends_by);
        let empty_by = self.ending.and_then(|_| self.hosts.empty_by());
        let others = [orderly, self.idle_end(), empty_by];
        earliest_of(self.queue.iter().map(|waiting| waiting.until).chain(ends).chain(others))
    }

    fn idle_end(&self) -> Option<Mono> {
        let idle = self.idle.filter(|_| self.ending.is_none())?;
        Some(self.idle_since? + idle)
    }

    fn want(&mut self, now: Mono, hold: HoldId, pid: u32, want: Want) {
        let refusal = match &want.need {
            _ if self.ending.is_some() => Some(Refusal::Ending),
            _ if self.queue.len() >= MOST_WAITING => Some(Refusal::QueueFull),
            Need::Hosts(0) | Need::Ranks(0) => Some(Refusal::BadNumber),
            Need::Slices(sizes) if sizes.is_empty() || sizes.contains(&0) => Some(Refusal::BadNumber),
            Need::Slices(_) if !self.hosts.has_slices() => Some(Refusal::NoSlices),
            Need::All | Need::Hosts(_) | Need::Ranks(_) | Need::Slices(_) => None,
        };
        if let Some(refusal) = refusal {
            return self.out.push_back(PoolAction::Refuse(hold, refusal));
        }
        let is_first = want.evict;
        let until = match want.wait {
            Some(_) if want.evict => None,
            Some(Span::ZERO) => Some(now + EMPTY_WITHIN),
            Some(wait) => Some(now + wait),
            None => None,
        };
        let waiting = Waiting { hold, pid, want, until, is_informed: false, ends_within: END_WITHIN };
        if is_first { self.queue.push_front(waiting) } else { self.queue.push_back(waiting) }
    }

    fn limit_end(&mut self, id: HoldId, within: Span) {
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.ends_within = within;
        }
        self.queue.iter_mut().filter(|waiting| waiting.hold == id).for_each(|waiting| waiting.ends_within = within);
    }

    fn close(&mut self, now: Mono, hold: HoldId) {
        self.queue.retain(|waiting| waiting.hold != hold);
        let Some(Hold { job, ends_within, .. }) = self.holds.remove(&hold) else { return };
        self.orderly_until = Some(now + ORDER_WITHIN);
        // Without its launcher, a job takes its own time to end on its hosts.
        let empty_within = if self.ending == Some(true) { EMPTY_WITHIN } else { ends_within };
        for node in self.hosts.on_closed(hold, job, now + empty_within) {
            self.out.push_back(PoolAction::Watch(node, job));
        }
    }

    fn end(&mut self, now: Mono, is_now: bool) {
        let is_news = self.ending != Some(true) && self.ending != Some(is_now);
        if !is_news {
            return;
        }
        self.ending = Some(is_now);
        self.hosts.on_end(now + EMPTY_WITHIN, is_now);
        for waiting in core::mem::take(&mut self.queue) {
            self.out.push_back(PoolAction::Refuse(waiting.hold, Refusal::Ending));
        }
        for (id, hold) in &mut self.holds {
            hold.is_ending = true;
            hold.ends_by = hold.ends_by.or(Some(now + hold.ends_within)).filter(|_| !is_now);
            self.out.push_back(PoolAction::End(*id, is_now));
        }
    }

    /// Hands hosts out, and answers the jobs that get none.
    fn apply_decisions(&mut self, now: Mono) {
        self.orderly_until = self.orderly_until.filter(|until| *until > now);
        while let Some(first) = self.queue.front() {
            match self.chance(&first.want.need) {
                Chance::Now(hosts) => self.grant(now, hosts),
                Chance::Later if first.want.evict => {
                    let need = first.want.need.clone();
                    self.evict(now, &need);
                    break;
                }
                Chance::Soon | Chance::Later | Chance::Never(_) => break,
            }
        }
        self.answer_the_rest(now);
        for (node, job) in self.hosts.leaving(self.ending.map(|_| now)) {
            self.out.push_back(PoolAction::Close(node, job));
        }
        self.idle_since = match self.holds.is_empty() && self.queue.is_empty() {
            true => self.idle_since.or(Some(now)),
            false => None,
        };
        let is_over = self.ending.is_some() && self.holds.is_empty() && self.hosts.iter().next().is_none();
        if is_over && !core::mem::replace(&mut self.is_over, true) {
            self.out.push_back(PoolAction::Over);
        }
    }

    /// The hosts that cannot be used now, if a job with these hosts does without them: it wants all hosts, or more slots than it has.
    #[must_use]
    pub fn left_out(&self, need: &Need, granted: &[NodeId]) -> Vec<NodeId> {
        let slots = granted.iter().filter_map(|node| self.hosts.get(*node)).map(|host| u64::from(host.slots));
        let lacks_some = match need {
            Need::All => true,
            Need::Ranks(count) => slots.sum::<u64>() < u64::from(*count),
            Need::Hosts(_) | Need::Slices(_) => false,
        };
        self.hosts().filter(|(_, host)| lacks_some && !host.is_usable()).map(|(node, _)| node).collect()
    }

    fn grant(&mut self, now: Mono, hosts: Vec<NodeId>) {
        let Some(Waiting { hold, pid, want, ends_within, .. }) = self.queue.pop_front() else { return };
        self.hosts.hold(&hosts, hold);
        let Want { job, command, .. } = want;
        self.holds.insert(hold, Hold { job, pid, command, since: now, is_ending: false, ends_within, ends_by: None });
        self.out.push_back(PoolAction::Grant(hold, hosts));
    }

    /// Jobs that do not wait, or have waited long enough, are answered. The others are informed once that they wait.
    fn answer_the_rest(&mut self, now: Mono) {
        let mut before = 0;
        for mut waiting in core::mem::take(&mut self.queue) {
            let is_patient = waiting.want.evict || waiting.want.wait != Some(Span::ZERO);
            let is_late = waiting.until.is_some_and(|until| until <= now);
            let answer = match self.chance(&waiting.want.need) {
                // Hosts that do not exist come with no patience.
                Chance::Never(refusal) if !is_patient || is_late || self.is_hopeless(&waiting.want.need) => {
                    Some(PoolAction::Refuse(waiting.hold, refusal))
                }
                Chance::Now(_) | Chance::Soon | Chance::Later | Chance::Never(_) if is_late => {
                    Some(PoolAction::Busy(waiting.hold))
                }
                Chance::Later if !is_patient => Some(PoolAction::Busy(waiting.hold)),
                Chance::Now(_) | Chance::Soon if !is_patient && before > 0 => Some(PoolAction::Busy(waiting.hold)),
                Chance::Now(_) | Chance::Soon | Chance::Later | Chance::Never(_) => None,
            };
            if let Some(answer) = answer {
                self.out.push_back(answer);
                continue;
            }
            if is_patient && !core::mem::replace(&mut waiting.is_informed, true) {
                self.out.push_back(PoolAction::Queued(waiting.hold, before));
            }
            before += 1;
            self.queue.push_back(waiting);
        }
    }

    /// Ends jobs, those on the first slots first, until the need can be met.
    fn evict(&mut self, now: Mono, need: &Need) {
        let mut ending: Vec<HoldId> = self.holds().filter(|(_, hold)| hold.is_ending).map(|(id, _)| id).collect();
        for hold in self.hosts.holders() {
            let is_enough = self.hosts.choose(need, |host| host.is_free_after(&ending)).is_some();
            if is_enough {
                return;
            }
            if ending.contains(&hold) {
                continue;
            }
            ending.push(hold);
            if let Some(held) = self.holds.get_mut(&hold) {
                held.is_ending = true;
                held.ends_by = Some(now + held.ends_within);
                self.out.push_back(PoolAction::End(hold, false));
            }
        }
    }

    fn chance(&self, need: &Need) -> Chance {
        let is_free = |node: &NodeId| self.hosts.get(*node).is_some_and(PoolHost::is_free);
        match self.hosts.choose(need, |host| host.is_free_after(&[])).filter(|_| self.orderly_until.is_some()) {
            Some(hosts) if hosts.iter().all(is_free) => return Chance::Now(hosts),
            Some(_) => return Chance::Soon,
            None => {}
        }
        if let Some(hosts) = self.hosts.choose(need, PoolHost::is_free) {
            return Chance::Now(hosts);
        }
        let ending: Vec<HoldId> = self.holds().filter(|(_, hold)| hold.is_ending).map(|(id, _)| id).collect();
        if self.hosts.choose(need, |host| host.is_free_after(&ending)).is_some() {
            return Chance::Soon;
        }
        if self.hosts.choose(need, PoolHost::is_usable).is_some() {
            return Chance::Later;
        }
        let Need::Slices(sizes) = need else {
            let (usable, hosts) = self.hosts.counts(false);
            return Chance::Never(Refusal::TooFew { usable, hosts });
        };
        let (usable, slices) = self.hosts.counts(true);
        Chance::Never(Refusal::TooFewSlices { wanted: sizes.iter().copied().min().unwrap_or(0), usable, slices })
    }

    /// Whether the need cannot be met even when all hosts that stay can be used.
    fn is_hopeless(&self, need: &Need) -> bool {
        self.hosts.choose_of(need, PoolHost::stays, PoolHost::stays).is_none()
    }
}
