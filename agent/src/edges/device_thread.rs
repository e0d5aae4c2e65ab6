//! The `devices` thread: all that has to be found out or done about device files.
//!
//! A search for holders reads /proc of every process. With thousands of processes that takes a large part of a second. The thread searches
//! once for all that wait, then waits for the descriptors of the holders that it found, and searches again when these have exited. If the
//! kernel refuses the thread, the machine's thread frees devices before the first rank. A release is not awaited then.

use crate::devices::{Freed, Freeing, Site, lock_files, lock_news};
use crate::edges::part::{Base, Part, PartName};
use rlaunch_base::id::{JobId, ProcId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_core::node::{DeviceAction, DevicesFreed, NodeEvent};
use rlaunch_protocol::guard::DeviceNews;
use rlaunch_protocol::guard::devices::{CleanPolicy, DeviceKind, DevicePlan, DeviceStep, Kept, Reaped, Treatment};
use rlaunch_protocol::wire::node_news::NodeNews;
use rlaunch_protocol::wire::to_root::NodeRefusal;
use rlaunch_sys::devices::{self, DeviceClaim, Process};
use rlaunch_sys::doorbell::Doorbell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};

/// Most requests, and most answers, that wait between the threads.
const ROOM: usize = 1024;

enum Request {
    Free(Box<DevicePlan>, JobId, Span, DeviceStep),
    Examine(DeviceKind),
    Await(ProcId, JobId, Reaped),
}

/// The way to the thread and back.
#[derive(Default)]
pub(super) struct DeviceThread {
    port: Option<Port>,
    /// Requests for which the thread has no room yet: at most one for each process of this host.
    backlog: VecDeque<Request>,
}

struct Port {
    requests: SyncSender<Request>,
    asked: Doorbell,
    answers: Receiver<NodeEvent>,
    answered: Doorbell,
}

impl Part for DeviceThread {
    type Action = DeviceAction;

    fn perform(&mut self, base: &mut Base, action: DeviceAction) {
        // On a host without any devices the answer is there at once.
        let request = match action {
            DeviceAction::Free { plan, .. } if has_none(plan.kind) => {
                let free = DevicesFreed::Free { skips_lock: false };
                return base.events.push_back(NodeEvent::DevicesFreed(free));
            }
            DeviceAction::Examine { kind } if has_none(kind) => {
                return base.events.push_back(NodeEvent::DevicesExamined);
            }
            DeviceAction::Free { plan, job, grace, step } => Request::Free(Box::new(plan), job, grace, step),
            DeviceAction::Examine { kind } => Request::Examine(kind),
            DeviceAction::AwaitRelease { proc, pid, rank } => {
                Request::Await(proc, base.sandbox.job(), Reaped { session: pid, rank: rank.get() })
            }
        };
        self.ask(base, request);
    }

    /// Takes in the answers. The thread may have room again.
    fn ready(&mut self, base: &mut Base) {
        if let Some(port) = &self.port {
            port.answered.clear();
            base.events.extend(port.answers.try_iter());
        }
        self.pass_on(base);
    }
}

impl DeviceThread {
    fn ask(&mut self, base: &mut Base, request: Request) {
        if self.port.is_none() {
            match Port::start().and_then(|port| base.watch.add_part(&port.answered, PartName::Devices).map(|()| port)) {
                Ok(port) => self.port = Some(port),
                Err(error) => tracing::debug!(%error, "no thread for devices: the machine thread looks at them"),
            }
        }
        self.backlog.push_back(request);
        self.pass_on(base);
    }

    /// Passes requests on, as many as the thread has room for. Without a thread they are performed here.
    fn pass_on(&mut self, base: &mut Base) {
        while let Some(request) = self.backlog.pop_front() {
            let Some(port) = &self.port else {
                let mut work = Work::default();
                work.perform(request, &mut |event| base.events.push_back(event));
                // The machine thread waits for nothing.
                let released = work.waits.into_iter().map(|wait| released(wait.proc));
                base.events.extend(released);
                continue;
            };
            match port.requests.try_send(request) {
                Ok(()) => port.asked.ring(),
                Err(TrySendError::Full(request)) => return self.backlog.push_front(request),
                // The thread is permanent.
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
    }
}

/// Whether it is known without a search that there is nothing to do.
fn has_none(kind: DeviceKind) -> bool {
    match kind {
        DeviceKind::None => true,
        DeviceKind::Auto => !devices::has_accelerators() && !crate::devices::is_tpu_container(),
        DeviceKind::Tpu => false,
    }
}

impl Port {
    fn start() -> io::Result<Self> {
        let (requests, inbox) = sync_channel(ROOM);
        let (outbox, answers) = sync_channel(ROOM);
        let (asked, answered) = (Doorbell::new()?, Doorbell::new()?);
        let (their_asked, their_answered) = (asked.clone(), answered.clone());
        rlaunch_sys::thread::permanent("devices", move || {
            let mut say = |event| {
                let _agent_has_ended = outbox.send(event);
                their_answered.ring();
            };
            Work::default().run(&inbox, (&their_asked, &their_answered), &mut say);
        })?;
        Ok(Self { requests, asked, answers, answered })
    }
}

/// The state of the thread.
struct Work {
    /// The devices whose release is awaited.
    sites: fn() -> Vec<Site>,
    /// The job, as RLAUNCH_JOB_ID names it.
    job: String,
    /// The preparation of this host, once it was ordered, and the time from SIGTERM to SIGKILL.
    plan: Option<(DevicePlan, Span)>,
    /// Held until the agent exits: no other job of rlaunch ends holders of these devices.
    claim: Option<DeviceClaim>,
    waits: Vec<Wait>,
}

/// A wait for the release of devices.
struct Wait {
    proc: ProcId,
    reaped: Reaped,
    /// The holders that were found and have not exited; `None`: they have to be searched for.
    holders: Option<Vec<OwnedFd>>,
}

impl Default for Work {
    fn default() -> Self {
        let sites = || vec![Site::gpus(), Site::of(DeviceKind::Auto).unwrap_or_default()];
        Self { sites, job: String::new(), plan: None, claim: None, waits: Vec::new() }
    }
}

impl Work {
    fn run(
        &mut self,
        inbox: &Receiver<Request>,
        (asked, answered): (&Doorbell, &Doorbell),
        say: &mut impl FnMut(NodeEvent),
    ) {
        loop {
            let fds = self.waits.iter().flat_map(|wait| wait.holders.iter().flatten()).map(OwnedFd::as_fd);
            let fds: Vec<_> = std::iter::once(asked.as_fd()).chain(fds).collect();
            rlaunch_sys::fd::wait_for_any(&fds, None);
            asked.clear();
            loop {
                match inbox.try_recv() {
                    Ok(request) => self.perform(request, say),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            // There is room for requests again.
            answered.ring();
            self.release(say);
        }
    }

    fn perform(&mut self, request: Request, say: &mut impl FnMut(NodeEvent)) {
        match request {
            Request::Free(plan, job, grace, step) => {
                self.job = job.to_string();
                self.plan = Some(((*plan).clone(), grace));
                let freed = self.free(&plan, (grace, step), say);
                say(NodeEvent::DevicesFreed(freed));
            }
            Request::Examine(kind) => {
                let chips = self.plan.as_ref().map_or(&[][..], |(plan, _)| &plan.chips);
                examine_site(kind, chips, say);
                say(NodeEvent::DevicesExamined);
            }
            Request::Await(proc, job, reaped) => {
                self.job = job.to_string();
                self.waits.push(Wait { proc, reaped, holders: None });
            }
        }
    }

    fn free(&mut self, plan: &DevicePlan, how: (Span, DeviceStep), say: &mut impl FnMut(NodeEvent)) -> DevicesFreed {
        let Some(site) = Site::of_chips(plan.kind, &plan.chips) else {
            return DevicesFreed::Free { skips_lock: false };
        };
        self.free_site(&site, plan, how, say)
    }

    fn free_site(
        &mut self,
        site: &Site,
        plan: &DevicePlan,
        (grace, step): (Span, DeviceStep),
        say: &mut impl FnMut(NodeEvent),
    ) -> DevicesFreed {
        if self.claim.is_none() && !plan.is_optional {
            match devices::claim(site.nodes()) {
                Ok(claim) => self.claim = claim,
                Err(error) => return DevicesFreed::Refused(shortage(&error, "claim the devices")),
            }
        }
        let (policy, is_claimed) = (plan.clean, self.claim.is_none() && !plan.is_optional);
        let (grace, is_trial) = (grace.duration(), plan.is_trial);
        // `--devices tpu` asks for each holder, also those by mappings alone.
        let closely = plan.kind == DeviceKind::Tpu && rlaunch_sys::ns::is_root();
        let freeing = Freeing { site, policy, job: &self.job, grace, closely, is_claimed, is_trial, step };
        match freeing.run(&mut *say) {
            Err(error) => return DevicesFreed::Refused(shortage(&error, "look which processes hold devices")),
            Ok(Freed::Held(NodeRefusal::Devices { holders, .. })) if plan.is_optional => {
                let first = holders.into_vec().into_iter().next();
                first.into_iter().for_each(|holder| say(NodeEvent::News(NodeNews::Devices(DeviceNews::Held(holder)))));
                return DevicesFreed::Free { skips_lock: false };
            }
            Ok(Freed::Held(refusal)) => return DevicesFreed::Refused(refusal),
            Ok(Freed::Found) => return DevicesFreed::Found,
            Ok(Freed::Free) => {}
        }
        let found = lock_files(&plan.lock_files, is_trial);
        let skips_lock = found.iter().any(|(_, found)| found.is_in_the_way());
        for (path, found) in found {
            say(NodeEvent::News(lock_news(path, found)));
        }
        DevicesFreed::Free { skips_lock }
    }

    /// Searches once for all waits that have no holder left, and ends those for which there is none.
    fn release(&mut self, say: &mut impl FnMut(NodeEvent)) {
        for wait in &mut self.waits {
            if let Some(holders) = &mut wait.holders {
                holders.retain(|holder| !rlaunch_sys::fd::readable_now(holder));
                if holders.is_empty() {
                    wait.holders = None;
                }
            }
        }
        if self.waits.iter().all(|wait| wait.holders.is_some()) {
            return;
        }
        if !devices::is_own_proc() {
            // Numbers of another PID namespace: none of them can be waited for.
            let all = self.waits.drain(..).map(|wait| released(wait.proc));
            return all.for_each(say);
        }
        let Ok(found) = self.search() else {
            // There is no descriptor left. The machine gives the wait up in time.
            return self.waits.retain(|wait| wait.holders.is_some());
        };
        let mut free = Vec::new();
        self.waits.retain_mut(|wait| {
            if wait.holders.is_none() {
                let holds = |(process, rank): &&(Process, Option<u32>)| wait.reaped.has_left(process.session, *rank);
                let own = found.iter().filter(holds);
                let Ok(holders) = own.filter_map(|(process, _)| open(process.pid).transpose()).collect() else {
                    return false;
                };
                wait.holders = Some(holders);
            }
            let is_free = wait.holders.as_ref().is_some_and(Vec::is_empty);
            if is_free {
                free.push(wait.proc);
            }
            !is_free
        });
        if !free.is_empty() {
            let taken = self.take_back(say);
            free.into_iter().for_each(|proc| say(NodeEvent::DevicesReleased { proc, taken: taken.clone() }));
        }
    }

    /// Ends processes outside the job that have taken a chip, before another process of a rank is started. Names the processes that must
    /// not be ended. Returns the devices of the first of them; empty: the chips are free.
    fn take_back(&mut self, say: &mut impl FnMut(NodeEvent)) -> OsBytes {
        let Some((plan, grace)) = self.plan.clone() else { return OsBytes::default() };
        let DevicesFreed::Refused(refusal) = self.free(&plan, (grace, DeviceStep::Free), say) else {
            return OsBytes::default();
        };
        let NodeRefusal::Devices { holders, hidden, .. } = refusal else { return OsBytes::default() };
        let first = holders.first().map(|holder| holder.devices.clone()).unwrap_or(hidden);
        holders
            .into_vec()
            .into_iter()
            .for_each(|holder| say(NodeEvent::News(NodeNews::Devices(DeviceNews::Held(holder)))));
        first
    }

    /// The holders of all devices of this host, and their ranks, if they belong to this job.
    fn search(&self) -> io::Result<Vec<(Process, Option<u32>)>> {
        let mut found = Vec::new();
        for site in (self.sites)() {
            if !site.nodes().is_empty() {
                found.extend(devices::scan(site.targets())?.found);
            }
        }
        let rank = |process: &Process| process.job.as_ref().filter(|signs| signs.job == self.job.as_bytes())?.rank;
        let read = found.into_iter().filter_map(|found| Process::read(found.pid));
        Ok(read
            .map(|process| {
                let rank = rank(&process);
                (process, rank)
            })
            .collect())
    }
}

fn released(proc: ProcId) -> NodeEvent {
    NodeEvent::DevicesReleased { proc, taken: OsBytes::default() }
}

/// A descriptor of a process; `None`: it has exited.
fn open(pid: u32) -> io::Result<Option<OwnedFd>> {
    let Ok(pid) = i32::try_from(pid) else { return Ok(None) };
    match rlaunch_sys::pidfd::open(pid) {
        Ok(pidfd) => Ok(Some(pidfd)),
        Err(error) if rlaunch_sys::is_shortage(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Names what holds devices after the last rank.
fn examine_site(kind: DeviceKind, chips: &[u32], say: &mut impl FnMut(NodeEvent)) {
    let Some(site) = Site::of_chips(kind, chips) else { return };
    // Processes that this job has left are holders like all others.
    let Ok(look) = site.look("") else { return };
    for holder in look.holders {
        match holder.treatment(CleanPolicy::Off) {
            Treatment::Ignore => {}
            Treatment::Keep(why) => say(NodeEvent::News(NodeNews::Devices(DeviceNews::Held(holder.report(why))))),
            Treatment::End => say(NodeEvent::News(NodeNews::Devices(DeviceNews::Held(holder.report(Kept::Policy))))),
        }
    }
}

fn shortage(error: &io::Error, step: &str) -> NodeRefusal {
    super::sandbox::resource(error, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::process::{Child, Command, Stdio};
    use std::sync::{Mutex, PoisonError};

    fn zero() -> Vec<Site> {
        vec![Site::of_file("/dev/zero")]
    }

    /// A process of a rank that holds /dev/zero until its input ends.
    #[expect(clippy::disallowed_methods, reason = "a process of a test")]
    fn holder(rank: u32) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", "exec 7</dev/zero; echo ready; read line"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("RLAUNCH_JOB_ID", JobId([7; 16]).to_string()).env("RLAUNCH_RANK", rank.to_string());
        let mut child = command.spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        child
    }

    #[test]
    fn release_is_reported_when_the_holders_of_the_rank_have_exited() {
        let mut work = Work { sites: zero, ..Work::default() };
        let (mut own, mut other) = (holder(3), holder(4));
        let mut said = Vec::new();
        for (proc, rank) in [(11, 3), (12, 9)] {
            let request = Request::Await(ProcId::new(proc), JobId([7; 16]), Reaped { session: u32::MAX, rank });
            work.perform(request, &mut |event| said.push(event));
        }
        work.release(&mut |event| said.push(event));
        assert_eq!(said, [released(ProcId::new(12))], "no process has rank 9");
        drop(own.stdin.take());
        let [Wait { holders: Some(holders), .. }] = &work.waits[..] else { panic!("one wait is left") };
        assert_eq!(holders.len(), 1);
        rlaunch_sys::fd::wait_for_any(&[holders[0].as_fd()], None);
        said.clear();
        work.release(&mut |event| said.push(event));
        assert_eq!((said, work.waits.len()), (vec![released(ProcId::new(11))], 0));
        own.wait().unwrap();
        drop(other.stdin.take());
        other.wait().unwrap();
    }

    /// Thrice as many requests as one queue has room for, and no answer is taken in meanwhile.
    #[test]
    fn requests_beyond_the_room_of_the_queue_are_answered() {
        let _runtime = super::super::testing::enter();
        let (edges, _far) = super::super::testing::edges();
        let (mut base, mut devices) = (edges.base, DeviceThread::default());
        let count = 3 * ROOM;
        for proc in (0..).take(count) {
            let reaped = Reaped { session: u32::MAX, rank: proc };
            devices.ask(&mut base, Request::Await(ProcId::new(proc), JobId([7; 16]), reaped));
        }
        assert!(!devices.backlog.is_empty());
        while base.events.len() < count {
            let port = devices.port.as_ref().unwrap();
            rlaunch_sys::fd::wait_for_any(&[port.answered.as_fd()], None);
            devices.ready(&mut base);
        }
        let all = (0..).take(count).map(|proc| released(ProcId::new(proc)));
        assert!(base.events.iter().cloned().eq(all));
    }

    /// No other process has /dev/full open, and one test at a time.
    static FULL: Mutex<()> = Mutex::new(());

    /// A process that holds /dev/full as descriptor 7, and does this on SIGTERM.
    #[expect(clippy::disallowed_methods, reason = "a process of a test")]
    fn holder_of_full(on_term: &str) -> Child {
        let script = format!("trap '{on_term}' TERM; exec 7</dev/full; echo ready; while :; do read line || :; done");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        child
    }

    fn free_full(grace: Span) -> DevicesFreed {
        let plan = DevicePlan { clean: CleanPolicy::Own, ..DevicePlan::default() };
        Work::default().free_site(&Site::of_file("/dev/full"), &plan, (grace, DeviceStep::Free), &mut |_| {})
    }

    #[test]
    fn holder_of_claimed_devices_is_kept() {
        let _turn = FULL.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = holder_of_full("exit 3");
        let other = devices::claim(Site::of_file("/dev/full").nodes()).unwrap().unwrap();
        let DevicesFreed::Refused(NodeRefusal::Devices { holders, .. }) = free_full(Span::from_secs(30)) else {
            panic!("another job has claimed it")
        };
        assert_eq!((holders[0].pid, holders[0].kept), (child.id(), Kept::Claimed));
        drop(other);
        assert_eq!(free_full(Span::from_secs(30)), DevicesFreed::Free { skips_lock: false });
        assert_eq!(child.wait().unwrap().code(), Some(3), "it was ended");
    }

    #[test]
    fn process_that_has_released_the_device_is_not_killed() {
        let _turn = FULL.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = holder_of_full("exec 7<&-");
        assert_eq!(free_full(Span::from_millis(300)), DevicesFreed::Free { skips_lock: false });
        assert_eq!(child.try_wait().unwrap(), None, "it lives");
        child.kill().unwrap();
        child.wait().unwrap();
        let mut deaf = holder_of_full("");
        assert_eq!(free_full(Span::from_millis(300)), DevicesFreed::Free { skips_lock: false });
        assert!(!deaf.wait().unwrap().success(), "it holds the device until SIGKILL");
    }

    #[test]
    fn devices_are_free_on_a_host_without_any() {
        let mut said = Vec::new();
        let plan = DevicePlan { kind: DeviceKind::Tpu, ..DevicePlan::default() };
        let request = Request::Free(Box::new(plan), JobId([7; 16]), Span::from_secs(1), DeviceStep::Look);
        Work::default().perform(request, &mut |event| said.push(event));
        assert_eq!(said, [NodeEvent::DevicesFreed(DevicesFreed::Free { skips_lock: false })]);
    }
}
