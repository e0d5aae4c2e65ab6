//! A scripted node on a clock that only the test moves.

use super::*;
use crate::report::Report;
use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use rlaunch_base::capped::Capped;
use rlaunch_base::id::JobId;
use rlaunch_base::os_strings::OsStrings;
use rlaunch_plan::hostlist::Host;
use rlaunch_plan::place::Placement;
use rlaunch_protocol::ended::key;
use rlaunch_protocol::settings::Tier;
use rlaunch_protocol::spec::{AppBase, AppSpec, JobSpec, Role};
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::codec;
use rlaunch_protocol::wire::node_news::{NodeNews, StoreNews};
use rlaunch_protocol::wire::to_root::{Exited, Hello, Started, Usage};
use rlaunch_restart::RoundsEnd;

/// The only node of most jobs here.
pub(super) const NODE: NodeId = NodeId::new(0);
/// The job starts at this reading of the clock, in ms.
pub(super) const START: u64 = 1000;

pub(super) fn spec(ranks: u32) -> JobSpec {
    let base = AppBase {
        argv: ["./train"].iter().collect(),
        env: OsStrings::default(),
        pinned: OsStrings::default(),
        wdir: None,
        role: Role::sole(),
        logs: None,
        filled: false,
    };
    JobSpec::of(JobId([7; 16]), vec![AppSpec { procs: ranks, base }], Placement::here("here", [ranks]))
}

pub(super) fn exit(code: u8) -> Status {
    Status::Exited(code)
}
pub(super) fn crash() -> Status {
    Status::Signaled { sig: Signal::SEGV, core: false }
}
pub(super) fn killed(sig: Signal) -> Status {
    Status::Signaled { sig, core: false }
}

pub(super) struct Script {
    pub(super) job: Job,
    /// Milliseconds since the job's start.
    pub(super) now: u64,
    pub(super) sent: Vec<ToNode>,
    /// To whom.
    pub(super) to: Vec<NodeId>,
    pub(super) asked: Vec<NodeId>,
    /// Hosts that have become known.
    pub(super) known: Vec<(NodeId, Host)>,
    pub(super) given_up: Vec<NodeId>,
    pub(super) closed: Vec<NodeId>,
    pub(super) beats: Vec<(NodeId, Beat)>,
    /// Facts that the user reads while the job runs, as the launcher's view has it.
    pub(super) said: Vec<What>,
    pub(super) log: Vec<What>,
    pub(super) report: Report,
    pub(super) placements: Vec<Arc<Placement>>,
    pub(super) homes: Vec<(NodeId, u32)>,
    /// Keys of ranks that have ended.
    pub(super) ended_keys: Vec<(String, Option<String>)>,
    pub(super) drains: u32,
    pub(super) abandoned: bool,
    pub(super) roused: u32,
    pub(super) severed: u32,
    pub(super) finished: Option<Ending>,
    /// Hosts reach each other at every address; the probing is not under test.
    pub(super) all_reach: bool,
    /// In which network they do.
    pub(super) net: &'static str,
    /// The time at which the node was ordered to end.
    ended: Option<u64>,
}

impl Script {
    /// A job whose first messages were sent; the node has not answered.
    pub(super) fn new(spec: &JobSpec) -> Self {
        Self::with(spec, &Setting::default())
    }

    pub(super) fn with(spec: &JobSpec, setting: &Setting) -> Self {
        let mut spec = spec.clone();
        if spec.placement.is_here() {
            // A test may have changed its programs.
            let worlds = spec.placement.worlds.clone();
            spec.placement = Placement::here("here", spec.apps.iter().map(|app| app.procs));
            spec.placement.worlds = worlds;
        }
        let job = Job::new(Self::at(0), WallNs(5_000_000_000), &Arc::new(spec), setting);
        let mut script = Self {
            job,
            now: 0,
            sent: vec![],
            to: vec![],
            asked: vec![],
            known: vec![],
            given_up: vec![],
            closed: vec![],
            beats: vec![],
            said: vec![],
            log: vec![],
            report: Report::default(),
            placements: vec![],
            homes: vec![],
            ended_keys: vec![],
            drains: 0,
            abandoned: false,
            roused: 0,
            severed: 0,
            finished: None,
            all_reach: true,
            net: "10.0.0",
            ended: None,
        };
        script.collect();
        script
    }

    /// All ranks run; what was sent until then is forgotten.
    pub(super) fn running(spec: &JobSpec) -> Self {
        let mut script = Self::new(spec);
        script.hello();
        let started = (0..spec.world_size()).map(|n| Started {
            proc: ProcId::new(n),
            pid: 100 + n,
            at: Self::at(u64::from(n)).host_time(),
        });
        for procs in Capped::chunks(started) {
            script.receive(ToRoot::Started { procs });
        }
        script.sent.clear();
        script
    }

    pub(super) fn at(ms: u64) -> Mono {
        Mono::from_nanos((START + ms) * 1_000_000)
    }

    pub(super) fn event(&mut self, event: JobEvent) -> &mut Self {
        self.job.handle(Self::at(self.now), event);
        assert_eq!(self.job.check(), Ok(()));
        self.collect();
        self
    }

    /// A message, through the real codec.
    pub(super) fn receive(&mut self, msg: ToRoot) -> &mut Self {
        self.receive_from(NODE, &msg)
    }

    pub(super) fn receive_from(&mut self, node: NodeId, msg: &ToRoot) -> &mut Self {
        let msg = codec::decode(&codec::encode(msg)).unwrap();
        if matches!(msg, ToRoot::InitLost | ToRoot::GuardianLost) {
            // The agent kills the remaining processes before it reports.
            self.ended = Some(0);
        }
        self.event(JobEvent::Message { node, msg })
    }

    pub(super) fn hello(&mut self) -> &mut Self {
        let hello = Hello { master_port: 20_000, agent: 50, init: Some(51), ..Hello::of(Tier::T1) };
        self.receive(ToRoot::Hello(hello))
    }

    /// A rank ended between two times, in ms since the job's start.
    pub(super) fn exits(&mut self, rank: u32, status: Status, between: (u64, u64)) -> &mut Self {
        let (alive_at, at) = between;
        self.receive(ToRoot::Exited(Exited {
            proc: ProcId::new(rank),
            status,
            at: Self::at(at).host_time(),
            alive_at: Self::at(alive_at).host_time(),
            asked: self.ended.is_some_and(|ended| at >= ended),
            usage: Usage::default(),
        }))
    }

    pub(super) fn done(&mut self) -> &mut Self {
        self.receive(ToRoot::Done { left: 0, named: Capped::default() })
    }

    pub(super) fn drained(&mut self) -> &mut Self {
        self.event(JobEvent::OutputDrained { lost: 0, broken: 0 })
    }

    pub(super) fn signal(&mut self, sig: Signal) -> &mut Self {
        self.event(JobEvent::Signal(sig))
    }

    /// Lets time pass, calling the machine when it asks for it.
    pub(super) fn wait(&mut self, ms: u64) -> &mut Self {
        let end = self.now + ms;
        while let Some(due) = self.job.poll_timeout() {
            let due = (due.nanos().div_ceil(1_000_000)).saturating_sub(START);
            if due > end {
                break;
            }
            self.now = self.now.max(due);
            self.job.handle_timeout(Self::at(self.now));
            self.collect();
            assert!(
                self.job.poll_timeout().is_none_or(|next| next > Self::at(self.now)),
                "a timeout that is due stays due"
            );
        }
        self.now = end;
        self
    }

    /// The launcher is stopped, and continues after so many milliseconds.
    pub(super) fn stop(&mut self, ms: u64) -> &mut Self {
        self.now += ms;
        self.job.handle_timeout(Self::at(self.now));
        self.collect();
        self
    }

    /// The only fact that the user has read: a signal began the ending.
    pub(super) fn ending_of(&self) -> (Signal, RanksState) {
        match self.said.as_slice() {
            [What::Ending { cause: Cause::Signal(sig), ranks, .. }] => (*sig, ranks.clone()),
            said => panic!("{said:?}"),
        }
    }

    /// When the machine wants to be called next.
    pub(super) fn due(&self) -> Option<Mono> {
        self.job.poll_timeout()
    }

    fn collect(&mut self) {
        while let Some(action) = self.job.poll_action() {
            assert!(self.finished.is_none(), "{action:?} after Finish");
            match action {
                JobAction::WakeAgent { .. } => self.roused += 1,
                JobAction::Sever { .. } => self.severed += 1,
                JobAction::Send { node, msg: ToNode::Probe(places) } if self.all_reach => {
                    for place in places.into_vec() {
                        let by =
                            alloc::format!("{}.{}", self.net, node.get() + 1).parse::<core::net::IpAddr>().unwrap();
                        let probed = ToRoot::Probed { number: place.number, found: Ok(by.into()) };
                        self.job.handle(Self::at(self.now), JobEvent::Message { node, msg: probed });
                    }
                }
                JobAction::Send { node, msg } => {
                    if matches!(msg, ToNode::End { .. } | ToNode::Kill) {
                        self.ended.get_or_insert(self.now);
                    }
                    self.to.push(node);
                    self.sent.push(codec::decode(&codec::encode(&msg)).unwrap());
                }
                JobAction::Connect { node } => self.asked.push(node),
                JobAction::Know { node, host } => self.known.push((node, host)),
                JobAction::GiveUp { node } => self.given_up.push(node),
                JobAction::Beat { node, beat } => self.beats.push((node, beat)),
                JobAction::CloseEdge { node } => self.closed.push(node),
                JobAction::Place(placement) => self.placements.push(placement),
                JobAction::Home { node, namespace } => self.homes.push((node, namespace)),
                JobAction::Ended { group, rank, ended } => {
                    let value = ended.map(|ended| String::from_utf8_lossy(&ended.write()).into_owned());
                    self.ended_keys.push((OsBytes::new(key(&group, rank.get())).to_string(), value));
                }
                JobAction::Homeless { namespace } => self.homes.retain(|(_, own)| *own != namespace),
                JobAction::Emit(record) => {
                    self.report.add(&record);
                    if is_read(&record.what) {
                        self.said.push(record.what.clone());
                    }
                    self.log.push(record.what);
                }
                JobAction::DrainOutput => self.drains += 1,
                JobAction::AbandonOutput => self.abandoned = true,
                JobAction::Finish(ending) => self.finished = Some(ending),
            }
        }
    }

    /// The node says that nothing is left, output is written: the closing report.
    pub(super) fn report(&mut self) -> Box<Report> {
        self.done().drained();
        self.last_report()
    }

    pub(super) fn last_report(&self) -> Box<Report> {
        assert!(self.report.end.is_some(), "the last record is {:?}", self.log.last());
        Box::new(self.report.clone())
    }

    pub(super) fn cause(&self) -> Cause {
        self.last_report().end.unwrap().cause
    }
}

/// Whether the user reads something of a fact before the closing report.
fn is_read(what: &What) -> bool {
    match what {
        What::HostReady { hello, .. } => !hello.note.is_empty() && !hello.usual,
        What::LeftOut { is_known, .. } => !is_known,
        What::RankFailed { tried, .. } => *tried != Tried::First,
        What::Signal { answer, .. } => !matches!(answer, Answer::Ended | Answer::Forwarded | Answer::Ignored),
        What::Ending { cause: Cause::Signal(_), ranks, .. } => *ranks != RanksState::Exited,
        What::SinkLost { end, .. } => *end != SinkEnd::Unread { ends_job: false },
        What::OutputEnd { lost, broken } => (*lost, *broken) != (0, 0),
        What::RoundsOver(given) => matches!(**given, RoundsEnd::Impossible { .. }),
        What::NodeNews { news, .. } => !matches!(news, NodeNews::Store(StoreNews::Refused { .. })),
        What::Slices(taken) => taken.is_news,
        What::Restart { .. } | What::Round { .. } | What::News(_) => true,
        What::JobStart(_)
        | What::WorldStart(_)
        | What::HostRefused { .. }
        | What::HostFailed { .. }
        | What::HostLost { .. }
        | What::Together { .. }
        | What::FileLost { .. }
        | What::HostDone { .. }
        | What::RankStarted { .. }
        | What::RankExited { .. }
        | What::RankFacts { .. }
        | What::Ending { .. }
        | What::Clearing { .. }
        | What::StreamEnd { .. }
        | What::LogLost { .. }
        | What::JobEnd { .. } => false,
    }
}
