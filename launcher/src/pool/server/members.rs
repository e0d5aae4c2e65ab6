//! The hosts and slices of a pool: those that join, those that leave, and their part of a report.

use super::super::show;
use super::{Named, Server};
use crate::edges::now;
use rlaunch_base::id::{JobId, NodeId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_core::pool::{PoolEvent, PoolHost};
use rlaunch_plan::bootstrap::Target;
use rlaunch_plan::hostlist::{Entry, fold};
use rlaunch_protocol::wire::frozen::pool::{HostReport, HostWord, PoolReply, Refusal, Report, SliceReport, Slices};

/// Longest list of names in a line.
const LONGEST: usize = 120;
/// The number of names in place of a longer one.
const NAMED: usize = 4;

impl Server {
    /// Hosts join.
    pub(in super::super) fn add(&mut self, entries: Vec<Entry>) -> Result<(), Refusal> {
        let has = |entry: &Entry| self.hosts.values().any(|named| named.entry.host == entry.host);
        if let Some(entry) = entries.iter().find(|entry| has(entry)) {
            return Err(Refusal::HasHost(entry.host.to_string().into()));
        }
        if let Some(wrong) = super::super::up::wrong_addition(self.hosts.values().map(|named| &named.entry), &entries) {
            return Err(Refusal::Lines(wrong.as_str().into()));
        }
        let target = |entry: &Entry| Target::of(&entry.host).map_err(|error| Refusal::Lines(error.to_string().into()));
        let targets = entries.iter().map(target).collect::<Result<Vec<_>, _>>()?;
        for (entry, target) in entries.into_iter().zip(targets) {
            let count = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
            let slice = entry.slice().map(|slice| *self.slots.entry(slice.to_owned()).or_insert(count));
            let node = self.pool.add(entry.slots(), slice);
            self.links.add(node, target, self.directory.control(node.get()));
            let name = entry.host.to_string().into();
            self.hosts.insert(node, Named { entry, name });
            self.opening.insert(node);
        }
        Ok(())
    }

    /// Hosts and slices get no new job. All of them are checked first.
    pub(super) fn drain(&mut self, names: &[OsBytes], is_remove: bool) -> Result<(), Refusal> {
        let mut nodes = Vec::new();
        for name in names {
            let members = self.members(name);
            if members.is_empty() {
                return Err(self.no_member(name));
            }
            let has_job = |node: &NodeId| self.pool.host(*node).is_some_and(|host| host.holder().is_some());
            if is_remove && members.iter().any(has_job) {
                return Err(Refusal::HasJob(name.clone()));
            }
            nodes.extend(members);
        }
        for node in nodes {
            self.log(&format!("{} gets no new job, and leaves", self.name(node)));
            self.notify(PoolEvent::Drain(node));
        }
        Ok(())
    }

    /// A host leaves, perhaps with processes of this job.
    pub(super) fn take_leave(&mut self, node: NodeId, job: Option<JobId>) {
        let Some(Named { name, .. }) = self.hosts.get(&node) else { return };
        let host = HostReport {
            name: name.clone(),
            slice: self.slice(node),
            state: HostWord::Emptying,
            job,
            note: OsBytes::default(),
        };
        let what = if job.is_some() { show::remains(core::slice::from_ref(&host)) } else { "leaves".to_owned() };
        self.log(&format!("{}: {what}", host.name));
        self.event(
            "host.left",
            [("host", host.name.to_string().into()), ("job", job.map(|job| job.to_string()).into())],
        );
        self.unchecked.extend(job.map(|_| host));
        self.hosts.remove(&node);
        self.opening.remove(&node);
        self.links.close(node);
    }

    /// Reports the hosts that may not be empty to the commands that end the pool.
    pub(super) fn report_unchecked(&mut self) {
        if self.unchecked.is_empty() {
            return;
        }
        let reply = PoolReply::Report(Report { hosts: std::mem::take(&mut self.unchecked), ..self.report() });
        let ending = self.clients.iter().filter(|(_, client)| client.awaits_end).map(|(hold, _)| *hold);
        ending.collect::<Vec<_>>().into_iter().for_each(|hold| self.reply(hold, &reply));
    }

    /// The hosts that a name means: a host, else the hosts of a slice, by its name or its slot.
    fn members(&self, name: &OsBytes) -> Vec<NodeId> {
        let mut hosts = self.pool.hosts().filter(|(node, _)| self.name(*node) == *name);
        if let Some((node, _)) = hosts.next() {
            return vec![node];
        }
        let text = name.to_string();
        // A name that has left means no slot: the same command again would hit another slice.
        let Some(slot) = self.slots.get(&text).copied().or_else(|| text.parse().ok()) else { return Vec::new() };
        self.pool.hosts().filter(|(_, host)| host.slice() == Some(slot)).map(|(node, _)| node).collect()
    }

    fn no_member(&self, name: &OsBytes) -> Refusal {
        let hosts: Vec<String> = self.pool.hosts().map(|(node, _)| self.name(node).to_string()).collect();
        let slices: Vec<String> = self.slices().slices.iter().map(|slice| slice.name.to_string()).collect();
        Refusal::NoMember { name: name.clone(), hosts: some(&hosts).into(), slices: some(&slices).into() }
    }

    /// The slices that are left, in slot order.
    pub(super) fn slices(&self) -> Slices {
        let name = |slot: u32| self.slots.iter().find(|(_, of)| **of == slot).map(|(name, _)| name.as_str().into());
        let slice =
            |(slot, state)| SliceReport { slot, name: name(slot).unwrap_or_default(), state: show::of_slice(state) };
        Slices { sizes: self.sizes.clone(), slices: self.pool.slices().into_iter().map(slice).collect() }
    }

    /// A word about a host for people: why it is lost, how jobs reach it, or what follows its job.
    fn note(&self, node: NodeId, host: &PoolHost) -> OsBytes {
        let note = self.links.note(node);
        let is_used = host.holder().is_some() || host.last_job().is_some();
        match (note.is_empty() && is_used, host.is_draining(), host.is_warned()) {
            (true, true, _) => "leaves when it is empty".into(),
            (true, false, true) => "is about to be taken away".into(),
            (true, false, false) | (false, _, _) => note,
        }
    }

    pub(super) fn report(&self) -> Report {
        let job_of = |hold| self.pool.holds().find(|(id, _)| *id == hold).map(|(_, hold)| hold.job);
        let host = |(node, host): (NodeId, &PoolHost)| HostReport {
            name: self.name(node),
            slice: self.slice(node),
            state: show::word(host.state()),
            job: host.holder().and_then(job_of).or(host.last_job()),
            note: self.note(node, host),
        };
        Report {
            pid: std::process::id(),
            age: now().since(self.began),
            hosts: self.pool.hosts().map(host).collect(),
            jobs: self.holders(),
            waiting: self.pool.waiting(),
        }
    }
}

/// Names in a line, or the first of them.
fn some(names: &[String]) -> String {
    let folded = |names: &[String]| fold(names.iter().map(String::as_str));
    let all = folded(names);
    match names.get(..NAMED) {
        Some(first) if all.len() > LONGEST => format!("{} and {} more", folded(first), names.len() - NAMED),
        Some(_) | None => all,
    }
}
