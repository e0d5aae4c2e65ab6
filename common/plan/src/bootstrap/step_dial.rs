//! A step of srun for several hosts: one srun starts an agent on each, and each agent connects to the launcher.
//!
//! srun starts the binary itself where it may: that costs a host no shell. A host on which that is not possible is in the next step, in
//! which a shell looks for the binary.
//!
//! A host that this way does not reach falls back to an srun of its own, over whose stdin and stdout a binary can be sent.

use super::answer::{Answer, Finding, Place, Scanner};
use super::argv::Target;
use super::carrier::{CarrierEnd, CarrierKind};
use super::carrier_event::CarrierNews;
use super::dial::{Stage, Up};
use super::failure::{Failure, Why};
use super::hash::Hash;
use super::preamble::Secret;
use super::remote_line::{LineError, LinePlan, line};
use super::srun::{SrunPlan, Transport, shell};
use super::srun_messages::{TaskExit, TaskExits};
use super::ssh_messages::Words;
use super::sum::Sums;
use super::tcp_hello::{AgentFacts, StepPreamble};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::machine::{Machine, earliest_of};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use serde::Serialize;

/// How long srun may take to end when it is asked to.
const PATIENCE: Span = Span::from_secs(1);
/// Part of the time that a host has, after which the step is given up if no agent has connected.
const FALL_BACK_AFTER: u64 = 4;
/// How long srun's words may be those of a start that takes its time; after that they are shown, if no agent has connected.
const QUIET: Span = Span::from_secs(5);

/// The program of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Program {
    /// Our binary, which compares itself.
    Binary {
        /// Its path here and there.
        path: OsBytes,
        /// The hash of its ends.
        ends: Hash,
    },
    /// A shell, which looks for the binary.
    Shell(LinePlan),
}

impl Program {
    fn words(&self, step: &StepPreamble) -> Result<Vec<OsBytes>, LineError> {
        match self {
            Self::Binary { path, ends } => Ok([
                path.clone(),
                "agent".into(),
                "direct".into(),
                format!("{}", step.job).into(),
                format!("{ends}").into(),
            ]
            .into()),
            Self::Shell(plan) => line(plan, &[]).map(|line| shell(line.as_bytes()).into()),
        }
    }
}

/// Facts about the hosts before srun is started.
#[derive(Clone, Debug)]
pub struct StepPlan {
    /// The hosts, which are of one component of the job.
    pub hosts: BTreeMap<NodeId, Target>,
    /// How srun is called.
    pub srun: SrunPlan,
    /// The program on each host.
    pub program: Program,
    /// All agents read it on stdin.
    pub preamble: StepPreamble,
    /// How long a host may take.
    pub limit: Span,
}

/// An event of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StepEvent {
    /// The step may start.
    Start,
    /// The launcher listens on this port, and this is its binary, if a shell looks for it. Agents are sent both.
    Listening(u16, Option<Sums>),
    /// The launcher cannot listen, for this reason.
    NoListener(OsBytes),
    /// srun could not be started.
    NoStart {
        /// The system's number for the reason.
        errno: i32,
        /// Its words.
        said: OsBytes,
    },
    /// Bytes on srun's stdout: lines of all hosts.
    Out(Vec<u8>),
    /// Bytes on srun's stderr.
    Err(Vec<u8>),
    /// srun has ended, and all that it had printed was delivered.
    Ended(CarrierEnd),
    /// The agent of a node has connected, and knows the key of its host.
    Connected(NodeId, AgentFacts),
    /// The host is not needed any more.
    Cancel(NodeId),
}

/// Why a host falls back to an srun of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FallBack {
    /// The binary is not there.
    Absent,
    /// Its agent cannot connect to this host.
    Unconnected {
        /// Why not.
        reason: OsBytes,
    },
    /// No agent of the step has connected.
    Silent {
        /// For so long.
        waited: Span,
        /// srun's last words; empty: it has printed nothing.
        #[serde(skip_serializing_if = "OsBytes::is_empty")]
        words: OsBytes,
    },
}

/// An action for a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StepAction {
    /// Start srun with these words.
    Start(Vec<OsBytes>),
    /// Write this to its stdin.
    Write(Vec<u8>),
    /// End it and its agents: politely, or for good.
    Kill {
        /// For good.
        hard: bool,
    },
    /// A fact for the job's log: srun waits, or has ended before the job.
    News(CarrierNews),
    /// How far a host is.
    Stage(NodeId, Stage),
    /// The connection of a node is its edge.
    Up(NodeId, Up),
    /// A host could not be had.
    Failed(NodeId, Box<Failure>),
    /// srun cannot start the binary on a host: a shell is to look for it, in another step, within the time that is left.
    WithShell(NodeId, Span),
    /// A host is to be reached by an srun of its own, within the time that is left.
    FallBack(NodeId, FallBack, Span),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    New,
    Open,
    /// srun is being ended.
    Closing {
        hard_at: Option<Mono>,
    },
    Over,
}

/// A step that brings agents to several hosts.
#[derive(Debug)]
pub struct StepDial {
    plan: StepPlan,
    state: State,
    /// Hosts without an outcome.
    waiting: BTreeMap<NodeId, Target>,
    /// Hosts whose agent has connected.
    up: BTreeSet<NodeId>,
    scanner: Scanner,
    words: Words,
    exits: TaskExits,
    started: Mono,
    deadline: Option<Mono>,
    /// When all hosts fall back, if no agent has connected.
    fall_back_at: Option<Mono>,
    /// When srun's words are shown, if no agent has connected.
    words_at: Option<Mono>,
    actions: VecDeque<StepAction>,
}

impl StepDial {
    /// A step that was not started yet.
    #[must_use]
    pub fn new(plan: StepPlan) -> Self {
        Self {
            scanner: Scanner::of_many(plan.preamble.job),
            waiting: plan.hosts.clone(),
            plan,
            state: State::New,
            up: BTreeSet::new(),
            words: Words::default(),
            exits: TaskExits::default(),
            started: Mono::default(),
            deadline: None,
            fall_back_at: None,
            words_at: None,
            actions: VecDeque::new(),
        }
    }

    /// Whether srun runs, or will.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        !matches!(self.state, State::Over)
    }

    /// Whether a host waits for its agent to connect.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::New | State::Open) && !self.waiting.is_empty()
    }

    /// Excludes a span in which the launcher was suspended: it is not the hosts' time.
    pub fn exclude_suspension(&mut self, span: Span) {
        for at in [&mut self.deadline, &mut self.fall_back_at, &mut self.words_at] {
            *at = at.map(|at| at + span);
        }
    }

    fn start(&mut self, now: Mono) {
        let program = match self.plan.program.words(&self.plan.preamble) {
            Ok(program) => program,
            Err(error) => return self.fail_all(&Why::Unquotable(error)),
        };
        let Self { plan: StepPlan { hosts, srun, limit, .. }, actions, .. } = self;
        let names: Vec<String> = hosts.values().map(|target| format!("{}", target.host())).collect();
        actions.push_back(StepAction::Start(srun.step_argv(&names, program)));
        actions.extend(hosts.keys().map(|node| StepAction::Stage(*node, Stage::Connecting)));
        self.started = now;
        self.deadline = Some(now + *limit);
        self.words_at = Some(now + QUIET);
        self.state = State::Open;
    }

    /// The secret is not needed here any more.
    fn send_preamble(&mut self, now: Mono, port: u16, sums: Option<Sums>) {
        let quarter = Span::from_nanos(self.plan.limit.nanos() / FALL_BACK_AFTER);
        self.fall_back_at = (self.plan.srun.transport == Transport::Auto).then(|| now + quarter);
        let preamble = &mut self.plan.preamble;
        preamble.port = port;
        let mut bytes = sums.map(|sums| sums.to_line().into_bytes()).unwrap_or_default();
        bytes.extend(preamble.to_bytes());
        self.actions.push_back(StepAction::Write(bytes));
        preamble.secret = Secret([0; 32]);
    }

    fn connected(&mut self, now: Mono, node: NodeId, facts: AgentFacts) {
        // An agent of a host that was given up ends with its connection.
        if self.waiting.remove(&node).is_none() {
            return;
        }
        self.up.insert(node);
        (self.fall_back_at, self.words_at) = (None, None);
        let AgentFacts { pid, wall } = facts;
        let by = (self.deadline.unwrap_or(now), self.plan.limit);
        let (asked, place) = (self.started, Place::Same);
        self.actions.push_back(StepAction::Up(
            node,
            Up { place, cold: false, pid, wall, asked, answered: now, by, rest: Vec::new() },
        ));
    }

    fn read_answers(&mut self, now: Mono) {
        loop {
            let (host, why, back) = match self.scanner.next_finding() {
                Finding::Nothing | Finding::Noise => return,
                Finding::Answer(Answer::Absent(host)) => (host, Why::Absent, FallBack::Absent),
                Finding::Answer(Answer::Unconnected { host, why }) => {
                    (host, Why::Unconnected(why.clone()), FallBack::Unconnected { reason: why })
                }
                Finding::Garbled(_)
                | Finding::Answer(
                    Answer::Ready(_)
                    | Answer::Need(_)
                    | Answer::Arch(_)
                    | Answer::Nowhere(_)
                    | Answer::Unusable(_)
                    | Answer::Spoiled(_)
                    | Answer::Facts(_)
                    | Answer::Seal(_)
                    | Answer::Up { .. }
                    | Answer::Refused(_),
                ) => continue,
            };
            let named = |target: &Target| target.host().as_slice() == host.as_slice();
            let node = self.waiting.iter().find(|(_, target)| named(target)).map(|(node, _)| *node);
            let Some(node) = node else { continue };
            self.miss(now, node, why, back);
        }
    }

    /// srun has ended. Edges of agents that have connected do not need it, and yet Slurm ends the step of an srun that was killed.
    fn ended(&mut self, end: CarrierEnd) {
        self.fail_all(&Why::Carrier(end));
        self.state = State::Over;
        if !self.up.is_empty() && end != CarrierEnd::Code(0) {
            let nodes = self.up.iter().copied().collect();
            let news = CarrierNews::SrunEnded { nodes, end, words: self.words.shown() };
            self.actions.push_back(StepAction::News(news));
        }
    }

    /// A task has exited. If its host was not up, our agent's own reason comes on stdout, so another code is that of another program, or of
    /// slurmstepd, which cannot execute the file.
    fn task_exited(&mut self, now: Mono, TaskExit { host, code }: &TaskExit) {
        let named = |target: &Target| target.host().as_slice() == host.as_bytes();
        let node = self.waiting.iter().find(|(_, target)| named(target)).map(|(node, _)| *node);
        if let (Some(node), Program::Binary { .. }) = (node, &self.plan.program)
            && *code != rlaunch_base::exit::LAUNCH
        {
            self.with_shell(now, node);
        }
    }

    fn with_shell(&mut self, now: Mono, node: NodeId) {
        let left = self.time_left(now);
        self.waiting.remove(&node);
        self.actions.push_back(StepAction::WithShell(node, left));
    }

    fn time_left(&self, now: Mono) -> Span {
        self.deadline.map_or(self.plan.limit, |deadline| deadline.since(now))
    }

    /// Handles a host that this way does not reach.
    fn miss(&mut self, now: Mono, node: NodeId, why: Why, back: FallBack) {
        if let (Program::Binary { .. }, FallBack::Absent) = (&self.plan.program, &back) {
            return self.with_shell(now, node);
        }
        match self.plan.srun.transport {
            Transport::Tcp => self.fail(node, why),
            Transport::Auto | Transport::Stdio => self.fall_back(now, node, back),
        }
    }

    fn unconnected_all(&mut self, now: Mono, why: &OsBytes) {
        let nodes: Vec<NodeId> = self.waiting.keys().copied().collect();
        for node in nodes {
            self.miss(now, node, Why::Unconnected(why.clone()), FallBack::Unconnected { reason: why.clone() });
        }
    }

    fn fall_back(&mut self, now: Mono, node: NodeId, why: FallBack) {
        if self.waiting.remove(&node).is_some() {
            let left = self.time_left(now);
            self.actions.push_back(StepAction::FallBack(node, why, left));
        }
    }

    fn fail(&mut self, node: NodeId, why: Why) {
        let Some(target) = self.waiting.remove(&node) else { return };
        let words = self.words.shown();
        let failure = Failure { target, carrier: CarrierKind::Srun, why, words, attempts: 1, asked: false };
        self.actions.push_back(StepAction::Failed(node, Box::new(failure)));
    }

    fn fail_all(&mut self, why: &Why) {
        let nodes: Vec<NodeId> = self.waiting.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.fail(node, why.clone()));
    }

    fn show_words(&mut self) {
        self.words_at = None;
        let words = self.words.shown();
        if !words.is_empty() {
            self.actions.push_back(StepAction::News(CarrierNews::StepWaits { words }));
        }
    }

    /// Ends srun if it has brought no agent and none is waited for.
    fn close_if_vain(&mut self, now: Mono) {
        if self.state == State::Open && self.waiting.is_empty() && self.up.is_empty() {
            self.actions.push_back(StepAction::Kill { hard: false });
            self.state = State::Closing { hard_at: Some(now + PATIENCE) };
        }
    }
}

impl Machine for StepDial {
    type Event = StepEvent;
    type Action = StepAction;

    fn handle(&mut self, now: Mono, event: StepEvent) {
        match (self.state, event) {
            (State::New, StepEvent::Start) => self.start(now),
            (State::Open, StepEvent::Listening(port, sums)) => self.send_preamble(now, port, sums),
            (State::Open, StepEvent::NoListener(why)) => self.unconnected_all(now, &why),
            (State::Open | State::Closing { .. }, StepEvent::NoStart { errno, said }) => {
                self.fail_all(&Why::NoCarrier { errno, said });
                self.state = State::Over;
            }
            (State::Open, StepEvent::Out(bytes)) => {
                self.scanner.push(&bytes);
                self.read_answers(now);
            }
            (State::Open | State::Closing { .. }, StepEvent::Err(bytes)) => {
                self.words.push(&bytes);
                self.exits.push(&bytes).iter().for_each(|exit| self.task_exited(now, exit));
            }
            (State::Open, StepEvent::Connected(node, facts)) => self.connected(now, node, facts),
            (State::Open | State::Closing { .. }, StepEvent::Ended(end)) => self.ended(end),
            (State::New | State::Open, StepEvent::Cancel(node)) => {
                self.waiting.remove(&node);
            }
            // Not its turn, or too late: srun prints until it ends.
            (State::Open | State::Closing { .. } | State::Over, StepEvent::Start)
            | (State::New | State::Over, StepEvent::NoStart { .. } | StepEvent::Err(_) | StepEvent::Ended(_))
            | (
                State::New | State::Closing { .. } | State::Over,
                StepEvent::Out(_) | StepEvent::Connected(..) | StepEvent::Listening(..) | StepEvent::NoListener(_),
            )
            | (State::Closing { .. } | State::Over, StepEvent::Cancel(_)) => {}
        }
        self.close_if_vain(now);
    }

    fn handle_timeout(&mut self, now: Mono) {
        let is_due = |at: Option<Mono>| at.is_some_and(|at| at <= now);
        match &mut self.state {
            State::Open if is_due(self.deadline) => {
                self.deadline = None;
                let (port, limit) = (self.plan.preamble.port, self.plan.limit);
                self.fail_all(&Why::NoConnection { port, limit });
            }
            State::Open if is_due(self.fall_back_at) => {
                self.fall_back_at = None;
                let waited = now.since(self.started);
                let nodes: Vec<NodeId> = self.waiting.keys().copied().collect();
                let why = FallBack::Silent { waited, words: self.words.shown() };
                nodes.into_iter().for_each(|node| self.fall_back(now, node, why.clone()));
            }
            State::Open if is_due(self.words_at) => self.show_words(),
            State::Closing { hard_at, .. } if is_due(*hard_at) => {
                *hard_at = None;
                self.actions.push_back(StepAction::Kill { hard: true });
            }
            State::New | State::Open | State::Closing { .. } | State::Over => {}
        }
        self.close_if_vain(now);
    }

    fn poll_action(&mut self) -> Option<StepAction> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        match self.state {
            State::New | State::Over => None,
            State::Open if self.waiting.is_empty() => None,
            State::Open => earliest_of([self.fall_back_at, self.deadline, self.words_at]),
            State::Closing { hard_at } => hard_at,
        }
    }
}

#[cfg(test)]
mod tests;
