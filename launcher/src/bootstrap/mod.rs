//! Agents on other hosts: the edges of `rlaunch_plan::bootstrap`. All hosts at a time, without a task or a thread for any of them:
//! one readiness set, and a machine per host.

mod cluster_config;
pub(crate) mod descriptors;
mod opening;
mod query;
mod reception;
pub(crate) mod source;
mod ssh;
mod steps;

use opening::{answer, line_plan, preamble_for};
use query::Query;
use rlaunch_base::deadlines::Deadlines;
use rlaunch_base::id::{JobId, NodeId};
use rlaunch_base::machine::{Machine as _, earliest};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::patience::Looks;
use rlaunch_base::time::{Mono, Span};
use rlaunch_net::Early;
use rlaunch_net::seal::Seal;
use rlaunch_plan::allocation::SlurmConfig;
use rlaunch_plan::bootstrap::{
    Carrier, CarrierEnd, CarrierEvent, CarrierKind, Dial, DialAction, DialEvent, DialPlan, Fanout, Kind, Purpose,
    Secret, Stage, Target, Turn, Up, Way, question,
};
use rlaunch_protocol::wire::to_root::ToRoot;
use rlaunch_sys::epoll::{Batch, ReadySet};
use rlaunch_sys::origin::Origin;
use rlaunch_sys::ssh_reaper::SshReaper;
use source::Source;
use ssh::{Part, Ssh};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use steps::{Alone, Common, Steps};
use tokio::io::unix::AsyncFd;

/// Settings for all hosts of a job.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) job: JobId,
    pub(crate) secret: Secret,
    /// How long a host may continue without word from us; zero: for ever.
    pub(crate) lease: Span,
    /// The carrier of the agents.
    pub(crate) carrier: Carrier,
    /// `--agent-path`.
    pub(crate) agent_path: Option<OsBytes>,
    /// How long one host may take.
    pub(crate) limit: Span,
}

/// An event of a host, or of the carriers.
#[derive(Debug)]
pub(crate) enum BootstrapEvent {
    /// How far it is.
    Stage { node: NodeId, stage: Stage },
    /// Its edge.
    Up { node: NodeId, edge: Box<Early<ToRoot>>, up: Up },
    /// Diagnostics of an agent that is up.
    Said { node: NodeId, bytes: Vec<u8> },
    /// The carrier of a host that was up has ended, with its last words: nothing more will come on the edge.
    Ended { node: NodeId, end: CarrierEnd, words: OsBytes },
    /// An event of the carriers.
    Carrier(CarrierEvent),
}

impl BootstrapEvent {
    /// Whether it is news of this host.
    fn is_about(&self, host: NodeId) -> bool {
        match self {
            Self::Up { node, .. }
            | Self::Stage { node, .. }
            | Self::Said { node, .. }
            | Self::Ended { node, .. }
            | Self::Carrier(CarrierEvent::Failed { node, .. }) => *node == host,
            Self::Carrier(CarrierEvent::KillWait(_) | CarrierEvent::News(_)) => false,
        }
    }
}

struct Host {
    dial: Dial,
    ssh: Option<Ssh>,
    /// After the handshake on its streams, until they are the edge.
    seal: Option<Seal>,
    up: bool,
}

impl Host {
    /// Its carrier is up, and has no edge.
    fn has_no_edge(&mut self, now: Mono) {
        self.dial.handle(now, DialEvent::NoEdge);
        if self.ssh.is_none() {
            // Cannot be: a host that is up has a carrier.
            self.dial.handle(now, DialEvent::Ended(CarrierEnd::Code(255)));
        }
    }
}

/// How much later than its agents an srun may end.
const SRUN_END: Span = Span::from_secs(1);

/// Descriptors that starting a host takes: the three streams of its carrier, the pidfd, and what is made meanwhile.
const OF_HOST: usize = 8;

/// The settings of the Slurm cluster.
enum Config {
    New,
    Asked(Query),
    /// With what is not known left out.
    Known(SlurmConfig),
}

/// All hosts that are being reached, and those that were.
pub(crate) struct Bootstrap {
    set: Arc<ReadySet>,
    live: AsyncFd<Arc<ReadySet>>,
    batch: Batch,
    setting: Setting,
    source: Source,
    origin: Origin,
    ssh_reaper: SshReaper,
    examine: bool,
    fanout: Fanout,
    asking: Vec<Query>,
    hosts: BTreeMap<NodeId, Host>,
    due: Deadlines,
    looks: Looks,
    config: Config,
    /// Hosts that share an srun.
    shared: Steps,
    events: VecDeque<BootstrapEvent>,
}

impl Bootstrap {
    /// For so many nodes, under a runtime that was entered.
    ///
    /// # Errors
    /// The kernel refuses a descriptor, or our own file.
    pub(crate) fn new(setting: Setting, origin: Origin, nodes: usize) -> io::Result<Self> {
        rlaunch_sys::origin::raise_nofile(&origin);
        let set = Arc::new(ReadySet::new()?);
        rlaunch_sys::fd::make_room(&set, i32::try_from(nodes.saturating_mul(OF_HOST)).unwrap_or(i32::MAX));
        let fanout = if setting.carrier.may_prompt() { Fanout::one_by_one() } else { Fanout::default() };
        Ok(Self {
            live: rlaunch_net::ready::readable(Arc::clone(&set))?,
            set,
            batch: Batch::with_room(64),
            source: Source::new()?,
            setting,
            origin,
            ssh_reaper: SshReaper::start()?,
            examine: false,
            fanout,
            asking: Vec::new(),
            hosts: BTreeMap::new(),
            due: Deadlines::new(nodes),
            looks: Looks::new(Mono::default()),
            config: Config::New,
            shared: Steps::default(),
            events: VecDeque::new(),
        })
    }

    /// When no carrier is left, and none will be started.
    pub(crate) fn dismiss(&mut self) {
        self.ssh_reaper.dismiss();
    }

    /// Hosts that are reached from now on say what they find there.
    pub(crate) fn examine(&mut self) {
        self.examine = true;
    }

    /// The facts that a host has sent.
    pub(crate) fn facts(&self, node: NodeId) -> Option<&OsBytes> {
        self.hosts.get(&node).and_then(|host| host.dial.facts())
    }

    /// Reaches a host, when it is its turn. `jitter` is any number.
    pub(crate) fn connect(&mut self, node: NodeId, target: Target, jitter: u64) {
        match steps::plan(&self.setting.carrier).filter(|_| !self.examine) {
            Some(plan) => self.shared.connect(node, target, plan, self.setting.limit),
            None => self.connect_alone(node, target, jitter, self.setting.limit),
        }
    }

    /// By a carrier for this host alone.
    fn connect_alone(&mut self, node: NodeId, target: Target, jitter: u64, limit: Span) {
        let kind = Kind::of(&target);
        let purpose = match &self.setting.carrier {
            _ if self.examine => Purpose::Examine,
            Carrier::Srun(_) => Purpose::Sealed,
            Carrier::Ssh(_) | Carrier::Exec(_) => Purpose::Job,
        };
        let line = line_plan(&self.setting, &self.source, node, purpose);
        let preamble = preamble_for(&self.setting, &self.source, node, self.setting.secret, self.source.sums().hash);
        let carrier = self.setting.carrier.clone();
        let dial = Dial::new(DialPlan { target, carrier, line, preamble, limit, jitter });
        self.forget(node);
        self.hosts.insert(node, Host { dial, ssh: None, seal: None, up: false });
        self.fanout.push(node, kind);
    }

    /// Ends what is left of an earlier attempt to reach a host.
    fn forget(&mut self, node: NodeId) {
        if let Some(ssh) = self.hosts.remove(&node).and_then(|host| host.ssh) {
            ssh.end(true);
            ssh.forget(&self.set);
        }
        self.events.retain(|event| !event.is_about(node));
    }

    /// Does something with the steps, which need what all carriers need.
    fn with_shared<T>(&mut self, act: impl FnOnce(&mut Steps, &Common<'_>) -> T) -> T {
        let Self { shared, setting, source, origin, ssh_reaper, set, .. } = self;
        act(shared, &Common { setting, source, origin, reaper: ssh_reaper, set })
    }

    /// Takes in the events of steps.
    fn take_events(&mut self) {
        let (events, alone) = self.shared.take_events();
        self.events.extend(events);
        for Alone { node, target, limit } in alone {
            // srun alone has no limit of logins, so hosts need not differ.
            self.connect_alone(node, target, u64::from(node.get()), limit);
        }
    }

    /// Gives a host up; no more reports about it follow.
    pub(crate) fn cancel(&mut self, now: Mono, node: NodeId) {
        self.fanout.done(node);
        self.with_shared(|shared, common| shared.cancel(now, node, common));
        self.dial(now, node, DialEvent::Cancel);
    }

    /// When `poll` wants to be called next, at the latest.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        let due = earliest(self.due.next(), self.shared.deadline()).map(|at| at.min(self.looks.deadline()));
        let config = if let Config::Asked(query) = &self.config { query.deadline() } else { None };
        self.asking.iter().fold(earliest(due, config), |at, asking| earliest(at, asking.deadline()))
    }

    /// The carrier that runs for this host alone, if one does. Its end is that of the edge.
    pub(crate) fn keeper(&self, node: NodeId) -> Option<CarrierKind> {
        self.hosts.get(&node).filter(|host| host.ssh.is_some()).map(|_| self.setting.carrier.kind())
    }

    /// Whether a carrier runs: of a host, or of several.
    pub(crate) fn has_carriers(&self) -> bool {
        self.shared.has_srun() || self.hosts.values().any(|host| host.ssh.is_some())
    }

    /// How long they may take to end by themselves after the job. Slurm records an srun that was ended as cancelled; an ssh
    /// has nothing more to do.
    pub(crate) const fn carrier_patience(&self) -> Span {
        match self.setting.carrier {
            Carrier::Srun(_) => SRUN_END,
            Carrier::Ssh(_) | Carrier::Exec(_) => Span::ZERO,
        }
    }

    /// Asks those to end that outlive the job, or ends them.
    pub(crate) fn end_carriers(&self, hard: bool) {
        self.hosts.values().filter_map(|host| host.ssh.as_ref()).for_each(|ssh| ssh.end(hard));
        self.shared.end(hard);
    }

    /// Whether some carrier still runs, or will.
    pub(crate) fn is_busy(&self) -> bool {
        !self.fanout.is_idle() || !self.asking.is_empty() || self.shared.is_busy() || self.has_carriers()
    }

    /// Returns the next event. Cancel-safe: all state is here.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, now: Mono) -> Poll<BootstrapEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(event);
            }
            self.look(now);
            // An srun takes longer than the question.
            self.start_steps(now);
            self.start_some(now);
            self.ask_for_config(now);
            // Messages that have arrived come first: after a suspension they came before the deadlines that are due only now.
            self.poll_ready(cx, now);
            self.pass_time(now);
            self.start_steps(now);
            self.start_some(now);
            if self.events.is_empty() {
                return Poll::Pending;
            }
        }
    }

    /// Reads the settings of the cluster, or asks for them, while srun starts. The question takes a part of the time that srun takes.
    fn ask_for_config(&mut self, now: Mono) {
        let Carrier::Srun(plan) = &self.setting.carrier else { return };
        if self.examine || !matches!(self.config, Config::New) {
            return;
        }
        if let Some(config) = cluster_config::read(plan) {
            return self.know_config(config);
        }
        let subject = (NodeId::ROOT, ssh::token(NodeId::ROOT, Part::Config));
        let query = Query::start(subject, &plan.config_argv(), &self.ssh_reaper, &self.origin, &self.set, now);
        self.config = query.map_or(Config::Known(SlurmConfig::default()), Config::Asked);
    }

    fn take_config(&mut self) {
        let Config::Asked(query) = std::mem::replace(&mut self.config, Config::New) else { return };
        let config = SlurmConfig::parse(&String::from_utf8_lossy(&query.answer(&self.set)));
        self.know_config(config);
    }

    fn know_config(&mut self, config: SlurmConfig) {
        tracing::debug!(?config, "the settings of the cluster");
        let event = |span| BootstrapEvent::Carrier(CarrierEvent::KillWait(span));
        self.events.extend(config.kill_wait.map(event));
        self.config = Config::Known(config);
    }

    fn start_steps(&mut self, now: Mono) {
        let config = if let Config::Known(config) = self.config { Some(config) } else { None };
        self.with_shared(|shared, common| shared.start_some(now, config, common));
        self.take_events();
    }

    /// Time in which we stood still is taken from no host.
    fn look(&mut self, now: Mono) {
        let missed = self.looks.missed(now);
        // While no host has a deadline no look is due.
        if missed == Span::ZERO || earliest(self.due.next(), self.shared.deadline()).is_none() {
            return;
        }
        self.shared.exclude_suspension(missed);
        tracing::debug!(?missed, "stood still while hosts were being reached");
        for (node, host) in &mut self.hosts {
            host.dial.exclude_suspension(missed);
            self.due.set(*node, host.dial.poll_timeout());
        }
    }

    fn start_some(&mut self, now: Mono) {
        while let Some(turn) = self.fanout.pop() {
            match turn {
                Turn::Start(node) => self.dial(now, node, DialEvent::Start),
                Turn::Ask(node) => self.ask(now, node),
            }
        }
    }

    fn ask(&mut self, now: Mono, node: NodeId) {
        let words = self.hosts.get(&node).map(|host| question(host.dial.target()));
        match words.map(|words| {
            Query::start((node, ssh::token(node, Part::Route)), &words, &self.ssh_reaper, &self.origin, &self.set, now)
        }) {
            Some(Ok(asking)) => self.asking.push(asking),
            // The ssh that is started will report the error.
            Some(Err(_)) | None => self.fanout.on_way(node, Way::Direct),
        }
    }

    fn on_way(&mut self, now: Mono, node: NodeId) {
        let Some(at) = self.asking.iter().position(|asking| asking.node() == node) else { return };
        // Without an answer no host has to wait: ssh itself will report the error.
        let way = Way::parse(&self.asking.swap_remove(at).answer(&self.set));
        tracing::debug!(%node, ?way, "the way there, and to hosts of like names");
        self.fanout.on_way(node, way);
        self.start_some(now);
    }

    fn pass_time(&mut self, now: Mono) {
        self.asking.iter_mut().for_each(|asking| asking.pass(now));
        if let Config::Asked(query) = &mut self.config {
            query.pass(now);
        }
        self.with_shared(|shared, common| shared.pass_time(now, common));
        while let Some(node) = self.due.pop(now) {
            if let Some(host) = self.hosts.get_mut(&node) {
                host.dial.handle_timeout(now);
            }
            self.perform_all(now, node);
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>, now: Mono) {
        loop {
            let Poll::Ready(Ok(mut guard)) = self.live.poll_read_ready(cx) else { return };
            if self.set.ready(&mut self.batch) == 0 {
                guard.clear_ready();
                continue;
            }
            let tokens: Vec<u64> = self.batch.tokens().collect();
            for token in tokens {
                let (node, part) = ssh::of_token(token);
                self.serve(now, node, part);
            }
        }
    }

    fn serve(&mut self, now: Mono, node: NodeId, part: Part) {
        match part {
            Part::Route => return self.on_way(now, node),
            Part::Config => return self.take_config(),
            Part::Out | Part::Err | Part::Writable | Part::End | Part::Arrived => {}
        }
        if let Some(index) = self.shared.of_token(node) {
            return self.with_shared(|shared, common| shared.serve(now, index, part, common));
        }
        let Some(ssh) = self.hosts.get_mut(&node).and_then(|host| host.ssh.as_mut()) else { return };
        match part {
            Part::Out | Part::Err => self.take_in(now, node, part),
            Part::Route | Part::Arrived | Part::Config => {}
            Part::Writable => ssh.flush(&self.source, &self.set),
            Part::End => {
                // All that it had said is there to be read, though others may still hold the other ends.
                self.take_in(now, node, Part::Err);
                self.take_in(now, node, Part::Out);
                let Some(host) = self.hosts.get_mut(&node) else { return };
                let Some(end) = host.ssh.as_mut().and_then(Ssh::ended) else { return };
                if let Some(ssh) = host.ssh.take() {
                    ssh.pass_on(end);
                    ssh.forget(&self.set);
                }
                self.dial(now, node, DialEvent::Ended(end));
            }
        }
    }

    fn take_in(&mut self, now: Mono, node: NodeId, part: Part) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let Some(ssh) = &mut host.ssh else { return };
        let bytes = ssh.read(part, &self.set);
        if bytes.is_empty() {
            return;
        }
        if part == Part::Out {
            return self.dial(now, node, DialEvent::Out(bytes));
        }
        if !host.up && self.setting.carrier.may_prompt() {
            // "Permission denied, please try again": belongs to what is being asked on the terminal.
            let _nobody_reads = rlaunch_sys::fd::write(2, &bytes);
        }
        if host.up {
            self.events.push_back(BootstrapEvent::Said { node, bytes: bytes.clone() });
        }
        self.dial(now, node, DialEvent::Err(bytes));
    }

    fn dial(&mut self, now: Mono, node: NodeId, event: DialEvent) {
        if let Some(host) = self.hosts.get_mut(&node) {
            host.dial.handle(now, event);
        }
        self.perform_all(now, node);
    }

    fn perform_all(&mut self, now: Mono, node: NodeId) {
        while let Some(action) = self.hosts.get_mut(&node).and_then(|host| host.dial.poll_action()) {
            self.perform(now, node, action);
        }
        self.due.set(node, self.hosts.get(&node).and_then(|host| host.dial.poll_timeout()));
    }

    fn perform(&mut self, now: Mono, node: NodeId, action: DialAction) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        match action {
            DialAction::Start(words) => {
                let prompt = self.setting.carrier.may_prompt();
                match Ssh::start(node, &words, prompt, &self.ssh_reaper, &self.origin, &self.set) {
                    Ok(ssh) => host.ssh = Some(ssh),
                    Err(error) => {
                        let (errno, said) = (error.raw_os_error().unwrap_or(0), rlaunch_sys::reason(&error).into());
                        host.dial.handle(now, DialEvent::NoStart { errno, said });
                    }
                }
            }
            DialAction::Write(bytes) => {
                if let Some(ssh) = &mut host.ssh {
                    ssh.write(bytes, &self.source, &self.set);
                }
            }
            DialAction::SendBinary => host.ssh.iter_mut().for_each(|ssh| ssh.send_binary(&self.source, &self.set)),
            DialAction::Seal(first) => match answer(&self.setting, &self.source, node, &first) {
                Ok((answer, seal)) => {
                    host.seal = Some(seal);
                    host.ssh.iter_mut().for_each(|ssh| ssh.write(answer.to_vec(), &self.source, &self.set));
                }
                Err(error) => {
                    tracing::debug!(%node, %error, "the streams cannot be sealed");
                    host.dial.handle(now, DialEvent::WrongKey);
                }
            },
            DialAction::Kill { hard } => host.ssh.iter().for_each(|ssh| ssh.end(hard)),
            DialAction::Stage(stage) => {
                if let Some(ssh) = host.ssh.as_mut().filter(|_| stage != Stage::Connecting) {
                    ssh.take_terminal();
                }
                self.events.push_back(BootstrapEvent::Stage { node, stage });
            }
            DialAction::Silent => {
                tracing::debug!(%node, "nothing is heard of it: another may have its place");
                self.fanout.silent(node);
            }
            DialAction::Up(up) => {
                self.fanout.done(node);
                match host.ssh.as_mut().and_then(|ssh| ssh.take_edge(&self.set)) {
                    Some(edge) => {
                        host.up = true;
                        let edge = Early::begun(edge, &up.rest);
                        let edge = Box::new(match host.seal.take() {
                            Some(seal) => edge.sealed(seal),
                            None => edge,
                        });
                        self.events.push_back(BootstrapEvent::Up { node, edge, up });
                    }
                    None => host.has_no_edge(now),
                }
            }
            DialAction::Failed(failure) => {
                self.fanout.done(node);
                self.events.push_back(BootstrapEvent::Carrier(CarrierEvent::Failed { node, failure }));
            }
            DialAction::Ended(end, words) => self.events.push_back(BootstrapEvent::Ended { node, end, words }),
        }
    }
}
