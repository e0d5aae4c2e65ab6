//! Steps of srun, each for several hosts, whose agents connect to us.

use super::reception::{Arrival, Reception, Visit};
use super::source::Source;
use super::ssh::{Part, Ssh};
use super::{BootstrapEvent, Setting, line_plan, preamble_for};
use rlaunch_base::id::NodeId;
use rlaunch_base::machine::{Machine as _, earliest_of};
use rlaunch_base::time::{Mono, Span};
use rlaunch_net::Early;
use rlaunch_plan::allocation::SlurmConfig;
use rlaunch_plan::bootstrap::{
    Carrier, CarrierEnd, CarrierEvent, CarrierNews, FallBack, Hash, Program, Purpose, Secret, SrunPlan, StepAction,
    StepDial, StepEvent, StepPlan, StepPreamble, Target, Transport,
};
use rlaunch_sys::epoll::ReadySet;
use rlaunch_sys::origin::Origin;
use rlaunch_sys::ssh_reaper::SshReaper;
use std::collections::BTreeMap;
use std::io;

/// A host that is to be reached by an srun of its own, within this time.
pub(super) struct Alone {
    pub(super) node: NodeId,
    pub(super) target: Target,
    pub(super) limit: Span,
}

/// Things that all steps share.
pub(super) struct Common<'a> {
    pub(super) setting: &'a Setting,
    pub(super) source: &'a Source,
    pub(super) origin: &'a Origin,
    pub(super) reaper: &'a SshReaper,
    pub(super) set: &'a ReadySet,
}

/// One step.
struct Step {
    dial: StepDial,
    targets: BTreeMap<NodeId, Target>,
    /// Whether a shell on each host looks for the binary.
    has_shell: bool,
    srun: Option<Ssh>,
    /// Agents are sent it, once it is known where to listen.
    preamble: Option<StepPreamble>,
    /// While a host is waited for.
    reception: Option<Reception>,
    /// Agents that have connected, until their host is up.
    arrived: BTreeMap<NodeId, Arrival>,
}

/// The hosts of a step that is to be started, and how long they may take.
struct Wanted {
    targets: BTreeMap<NodeId, Target>,
    limit: Span,
}

impl Wanted {
    const fn within(limit: Span) -> Self {
        Self { targets: BTreeMap::new(), limit }
    }
}

/// All steps of a job.
#[derive(Default)]
pub(super) struct Steps {
    /// Hosts for the next steps, by the component of the job.
    wanted: BTreeMap<Option<u32>, Wanted>,
    /// The same, of hosts on which srun cannot start the binary.
    wanted_by_shell: BTreeMap<Option<u32>, Wanted>,
    list: Vec<Step>,
    events: Vec<BootstrapEvent>,
    /// Hosts that no step reaches.
    alone: Vec<Alone>,
}

const fn news(fact: CarrierNews) -> BootstrapEvent {
    BootstrapEvent::Carrier(CarrierEvent::News(fact))
}

/// Steps have node numbers of their own in tokens, from the highest on.
fn number(index: usize) -> NodeId {
    NodeId::new(u32::MAX - u32::try_from(index).unwrap_or(0))
}

/// How srun is called, where hosts share a step.
pub(super) const fn plan(carrier: &Carrier) -> Option<&SrunPlan> {
    match carrier {
        Carrier::Srun(plan) if !matches!(plan.transport, Transport::Stdio) => Some(plan),
        Carrier::Srun(_) | Carrier::Ssh(_) | Carrier::Exec(_) => None,
    }
}

/// The component of a heterogeneous job that a host belongs to.
fn component(plan: &SrunPlan, target: &Target) -> Option<u32> {
    plan.component(&format!("{}", target.host()))
}

impl Steps {
    /// The index of the step that a token is about.
    pub(super) fn of_token(&self, node: NodeId) -> Option<usize> {
        let index = usize::try_from(u32::MAX - node.get()).ok()?;
        (index < self.list.len()).then_some(index)
    }

    /// A host for the next step.
    pub(super) fn connect(&mut self, node: NodeId, target: Target, plan: &SrunPlan, limit: Span) {
        let wanted = self.wanted.entry(component(plan, &target)).or_insert(Wanted::within(limit));
        wanted.targets.insert(node, target);
    }

    /// Starts steps for the hosts that have come since the last call. `config`, once known, says where to listen.
    pub(super) fn start_some(&mut self, now: Mono, config: Option<SlurmConfig>, common: &Common<'_>) {
        self.open_some(now, common);
        let Some(SlurmConfig { ports, .. }) = config else { return };
        for index in 0..self.list.len() {
            let Some(preamble) = self.list.get_mut(index).and_then(|step| step.preamble.take()) else { continue };
            let event = match self.listen(index, &preamble, ports, common) {
                Ok(port) => StepEvent::Listening(port, self.has_shell(index).then(|| common.source.sums())),
                Err(error) => StepEvent::NoListener(rlaunch_sys::reason(&error).into()),
            };
            self.handle(now, index, event, common);
        }
    }

    fn listen(
        &mut self,
        index: usize,
        preamble: &StepPreamble,
        ports: Option<(u16, u16)>,
        common: &Common<'_>,
    ) -> io::Result<u16> {
        let of_host = |(node, target): (&NodeId, &Target)| {
            let name = format!("{}", target.host());
            // The key of the edge is the proof, so the secret of the job has no use there. The agent has compared itself.
            let hash = if self.has_shell(index) { common.source.sums().hash } else { common.source.ends() };
            let preamble = preamble_for(common.setting, common.source, *node, Secret([0; 32]), hash);
            (Hash::of(name.as_bytes()), preamble)
        };
        let hosts = self.list.get(index).map(|step| step.targets.iter().map(of_host).collect()).unwrap_or_default();
        let reception = Reception::open(preamble, hosts, ports)?;
        common.set.add(&reception.bell, super::ssh::token(number(index), Part::Arrived))?;
        let port = reception.port;
        if let Some(step) = self.list.get_mut(index) {
            step.reception = Some(reception);
        }
        Ok(port)
    }

    fn open_some(&mut self, now: Mono, common: &Common<'_>) {
        let Some(srun) = plan(&common.setting.carrier).filter(|_| self.is_wanted()) else { return };
        let first = std::mem::take(&mut self.wanted).into_values().map(|wanted| (wanted, false));
        let again = std::mem::take(&mut self.wanted_by_shell).into_values().map(|wanted| (wanted, true));
        for (wanted, by_shell) in first.chain(again).collect::<Vec<_>>() {
            match self.open(srun, &wanted, by_shell, common) {
                Ok(()) => self.handle(now, self.list.len() - 1, StepEvent::Start, common),
                Err(error) => {
                    let why = FallBack::Unconnected { reason: rlaunch_sys::reason(&error).into() };
                    let limit = wanted.limit;
                    for (node, target) in wanted.targets {
                        self.fall_back(Alone { node, target, limit }, why.clone());
                    }
                }
            }
        }
    }

    fn is_wanted(&self) -> bool {
        !self.wanted.is_empty() || !self.wanted_by_shell.is_empty()
    }

    fn has_shell(&self, index: usize) -> bool {
        self.list.get(index).is_some_and(|step| step.has_shell)
    }

    fn open(&mut self, srun: &SrunPlan, wanted: &Wanted, by_shell: bool, common: &Common<'_>) -> io::Result<()> {
        let Wanted { targets, limit } = wanted;
        let epoch = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let secret = Secret(rlaunch_sys::random::bytes()?);
        let preamble = StepPreamble { job: common.setting.job, epoch, port: 0, secret };
        let number = number(self.list.len());
        let guarded = common.source.guarded_path().filter(|_| !by_shell && common.setting.agent_path.is_none());
        let program = match guarded {
            Some(path) => Program::Binary { path: path.clone(), ends: common.source.ends() },
            None => Program::Shell(line_plan(common.setting, common.source, number, Purpose::Step)),
        };
        let has_shell = matches!(program, Program::Shell(_));
        let plan = StepPlan { hosts: targets.clone(), srun: srun.clone(), program, preamble, limit: *limit };
        self.list.push(Step {
            dial: StepDial::new(plan),
            targets: targets.clone(),
            has_shell,
            srun: None,
            preamble: Some(preamble),
            reception: None,
            arrived: BTreeMap::new(),
        });
        Ok(())
    }

    /// The events since the last call, and the hosts that are to be reached alone.
    pub(super) fn take_events(&mut self) -> (Vec<BootstrapEvent>, Vec<Alone>) {
        (std::mem::take(&mut self.events), std::mem::take(&mut self.alone))
    }

    /// Hosts that fall back one after the other for the same reason are one fact.
    fn fall_back(&mut self, host: Alone, why: FallBack) {
        match self.events.last_mut() {
            Some(BootstrapEvent::Carrier(CarrierEvent::News(CarrierNews::FellBack { nodes, why: before })))
                if *before == why =>
            {
                nodes.push(host.node);
            }
            _ => self.events.push(news(CarrierNews::FellBack { nodes: vec![host.node], why })),
        }
        self.alone.push(host);
    }

    /// Whether an srun still runs, or will.
    pub(super) fn is_busy(&self) -> bool {
        self.is_wanted() || self.has_srun()
    }

    /// Whether an srun still runs.
    pub(super) fn has_srun(&self) -> bool {
        self.list.iter().any(|step| step.srun.is_some())
    }

    /// Ends each srun that still runs.
    pub(super) fn end(&self, hard: bool) {
        self.list.iter().filter_map(|step| step.srun.as_ref()).for_each(|srun| srun.end(hard));
    }

    /// When [`Self::pass_time`] wants to be called.
    pub(super) fn deadline(&self) -> Option<Mono> {
        earliest_of(self.list.iter().map(|step| step.dial.poll_timeout()))
    }

    /// Time in which we stood still is taken from no host.
    pub(super) fn exclude_suspension(&mut self, missed: Span) {
        self.list.iter_mut().for_each(|step| step.dial.exclude_suspension(missed));
    }

    pub(super) fn pass_time(&mut self, now: Mono, common: &Common<'_>) {
        for index in 0..self.list.len() {
            if let Some(step) = self.list.get_mut(index) {
                step.dial.handle_timeout(now);
            }
            self.perform_all(now, index, common);
        }
    }

    /// A host is not needed any more.
    pub(super) fn cancel(&mut self, now: Mono, node: NodeId, common: &Common<'_>) {
        for wanted in [&mut self.wanted, &mut self.wanted_by_shell] {
            wanted.values_mut().for_each(|wanted| drop(wanted.targets.remove(&node)));
            wanted.retain(|_, wanted| !wanted.targets.is_empty());
        }
        for index in 0..self.list.len() {
            if self.list.get(index).is_some_and(|step| step.targets.contains_key(&node)) {
                self.handle(now, index, StepEvent::Cancel(node), common);
            }
        }
    }

    /// A token of a step is ready.
    pub(super) fn serve(&mut self, now: Mono, index: usize, part: Part, common: &Common<'_>) {
        match part {
            Part::Arrived => self.receive(now, index, common),
            Part::Out | Part::Err => self.take_in(now, index, part, common),
            Part::Writable => {
                if let Some(srun) = self.list.get_mut(index).and_then(|step| step.srun.as_mut()) {
                    srun.flush(common.source, common.set);
                }
            }
            Part::End => {
                // Agents that have connected before srun ended are here.
                self.receive(now, index, common);
                self.take_in(now, index, Part::Err, common);
                self.take_in(now, index, Part::Out, common);
                let Some(step) = self.list.get_mut(index) else { return };
                let Some(end) = step.srun.as_mut().and_then(Ssh::ended) else { return };
                if let Some(srun) = step.srun.take() {
                    srun.forget(common.set);
                }
                self.ended(now, index, end, common);
            }
            Part::Route | Part::Config => {}
        }
    }

    fn ended(&mut self, now: Mono, index: usize, end: CarrierEnd, common: &Common<'_>) {
        tracing::debug!(index, %end, "the srun of a step has ended");
        self.handle(now, index, StepEvent::Ended(end), common);
    }

    fn receive(&mut self, now: Mono, index: usize, common: &Common<'_>) {
        loop {
            let Some(step) = self.list.get_mut(index) else { return };
            let Some(reception) = &step.reception else { return };
            reception.bell.clear();
            match reception.next() {
                None => return,
                Some(Visit::Refused(address, why)) => {
                    let address = address.to_string().into();
                    self.events.push(news(CarrierNews::StrangerRefused { address, why }));
                }
                Some(Visit::Arrived(arrival)) => {
                    let (node, facts) = (arrival.node, arrival.facts);
                    step.arrived.insert(node, *arrival);
                    self.handle(now, index, StepEvent::Connected(node, facts), common);
                    // The agent of a host that is not needed any more ends with its connection.
                    if let Some(step) = self.list.get_mut(index) {
                        step.arrived.remove(&node);
                    }
                }
            }
        }
    }

    fn take_in(&mut self, now: Mono, index: usize, part: Part, common: &Common<'_>) {
        let srun = self.list.get_mut(index).and_then(|step| step.srun.as_mut());
        let bytes = srun.map(|srun| srun.read(part, common.set)).unwrap_or_default();
        if !bytes.is_empty() {
            let event = if part == Part::Out { StepEvent::Out(bytes) } else { StepEvent::Err(bytes) };
            self.handle(now, index, event, common);
        }
    }

    fn handle(&mut self, now: Mono, index: usize, event: StepEvent, common: &Common<'_>) {
        if let Some(step) = self.list.get_mut(index) {
            step.dial.handle(now, event);
        }
        self.perform_all(now, index, common);
    }

    fn perform_all(&mut self, now: Mono, index: usize, common: &Common<'_>) {
        while let Some(action) = self.list.get_mut(index).and_then(|step| step.dial.poll_action()) {
            self.perform(now, index, action, common);
        }
        let Some(step) = self.list.get_mut(index) else { return };
        if !step.dial.is_waiting()
            && let Some(reception) = step.reception.take()
        {
            // Its listener ends with it.
            common.set.remove(&reception.bell);
        }
    }

    fn perform(&mut self, now: Mono, index: usize, action: StepAction, common: &Common<'_>) {
        let Some(step) = self.list.get_mut(index) else { return };
        match action {
            StepAction::Start(words) => {
                match Ssh::start(number(index), &words, false, common.reaper, common.origin, common.set) {
                    Ok(srun) => step.srun = Some(srun),
                    Err(error) => {
                        let (errno, said) = (error.raw_os_error().unwrap_or(0), rlaunch_sys::reason(&error).into());
                        step.dial.handle(now, StepEvent::NoStart { errno, said });
                    }
                }
            }
            StepAction::Write(bytes) => {
                if let Some(srun) = &mut step.srun {
                    srun.write(bytes, common.source, common.set);
                }
            }
            StepAction::Kill { hard } => {
                if let Some(srun) = &step.srun {
                    srun.end(hard);
                }
            }
            StepAction::News(fact) => self.events.push(news(fact)),
            StepAction::Stage(node, stage) => self.events.push(BootstrapEvent::Stage { node, stage }),
            StepAction::Up(node, up) => {
                if let Some(Arrival { socket, seal, .. }) = step.arrived.remove(&node) {
                    let edge = Box::new(Early::new(socket).sealed(seal));
                    self.events.push(BootstrapEvent::Up { node, edge, up });
                }
            }
            StepAction::Failed(node, failure) => {
                self.events.push(BootstrapEvent::Carrier(CarrierEvent::Failed { node, failure }));
            }
            StepAction::WithShell(node, left) => {
                tracing::debug!(%node, "srun cannot start the binary there: a shell is to look for it");
                if let (Some(target), Some(srun)) = (step.targets.remove(&node), plan(&common.setting.carrier)) {
                    let wanted = self.wanted_by_shell.entry(component(srun, &target));
                    wanted.or_insert(Wanted::within(left)).targets.insert(node, target);
                }
            }
            StepAction::FallBack(node, why, limit) => {
                if let Some(target) = step.targets.get(&node).cloned() {
                    self.fall_back(Alone { node, target, limit }, why);
                }
            }
        }
    }
}
