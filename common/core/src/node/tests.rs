//! The rules of a node, one by one.

mod devices;
mod early;
mod generations;
mod gpus;
mod host_signals;
mod hosts;
mod launch;
mod probing;
mod rounds;
mod serve;
mod worlds;

use super::*;
use NodeAction::{CloseStreams, Finish, Reap, Sweep};
use alloc::string::{String, ToString};
use alloc::{format, vec};
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{JobId, LocalRank, Rank, Std};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::os_strings::OsStrings;
use rlaunch_base::time::Span;
use rlaunch_protocol::settings::{StdinPlan, Tier};
use rlaunch_protocol::spec::Role;
use rlaunch_protocol::wire::codec;
use rlaunch_protocol::wire::to_node::{APP_PART, PortPlan, WorldRank};
use rlaunch_protocol::wire::to_root::{Exited, Facts, Found, Hello, Leftover, SpawnError, SpawnStep, Usage};

const HUP: Signal = Signal::HUP;
const TERM: Signal = Signal::TERM;
const KILL: Signal = Signal::KILL;

fn p(n: u32) -> ProcId {
    ProcId::new(n)
}

fn at(ms: u64) -> Mono {
    Mono::from_nanos(ms * 1_000_000)
}

fn start() -> Start {
    Start {
        rendezvous: Some(Rendezvous {
            addr: "127.0.0.1".into(),
            port: None,
            world_size: 300,
            nodes: 1,
            node_index: 0,
            ..Rendezvous::default()
        }),
        ..Start::of(JobId([0xab; 16]), 300)
    }
}

fn sandbox() -> Sandbox {
    let hello = Hello { master_port: 20000, agent: 10, init: Some(11), ..Hello::of(Tier::T1) };
    Sandbox { error_dir: "/run/x".into(), socket: "/run/x/s".into(), ..Sandbox::of(hello) }
}

fn base() -> AppBase {
    AppBase {
        argv: ["true"].iter().collect(),
        env: OsStrings::default(),
        pinned: ["RANK"].iter().collect(),
        wdir: None,
        role: Role::sole(),
        logs: None,
        filled: false,
    }
}

fn app_of(number: u32, base: &AppBase) -> ToNode {
    ToNode::App { app: AppIndex::new(number), last: true, part: codec::encode(base).as_slice().into() }
}

fn spawn(procs: core::ops::Range<u32>, last: bool) -> ToNode {
    spawn_of(procs, last, 2)
}

fn spawn_of(procs: core::ops::Range<u32>, last: bool, local_size: u32) -> ToNode {
    let delta = |n| Delta {
        proc: p(n),
        app: AppIndex::new(0),
        rank: Rank::new(n),
        local_rank: LocalRank::new(n),
        app_rank: n,
        app_size: 4,
        stdin: StdinPlan::Rank0.of(Rank::new(n)),
        world_rank: WorldRank::sole(Rank::new(n), LocalRank::new(n)),
    };
    ToNode::Spawn { procs: Capped::chunks(procs.map(delta)).pop().unwrap_or_default(), last, local_size }
}

/// A node and its clock.
struct Rig {
    node: Node,
    now: Mono,
}

impl Rig {
    fn new() -> Self {
        Self { node: Node::new(), now: at(1000) }
    }

    /// A node whose `count` ranks run.
    fn running(count: u32) -> Self {
        Self::running_by(start(), count)
    }

    fn running_by(start: Start, count: u32) -> Self {
        let mut rig = Self::new();
        rig.root(ToNode::Start(start));
        rig.receive(NodeEvent::SandboxReady(sandbox()));
        rig.root(app_of(0, &base()));
        rig.root(spawn(0..count, true));
        for n in 0..count {
            rig.spawned(n);
        }
        rig
    }

    fn drain(&mut self) -> Vec<NodeAction> {
        core::iter::from_fn(|| self.node.poll_action()).collect()
    }

    fn receive(&mut self, event: NodeEvent) -> Vec<NodeAction> {
        self.node.handle(self.now, event);
        assert_eq!(self.node.check(), Ok(()));
        self.drain()
    }

    fn root(&mut self, message: ToNode) -> Vec<NodeAction> {
        let actions = self.receive(NodeEvent::FromRoot(message));
        // The consequence is seen later.
        self.now = self.now + Span::from_nanos(1);
        actions
    }

    fn spawned(&mut self, n: u32) -> Vec<NodeAction> {
        self.receive(NodeEvent::Spawned { proc: p(n), pid: 100 + n, at: self.now })
    }

    fn spawn_failed(&mut self, n: u32) -> Vec<NodeAction> {
        let error = SpawnError { step: SpawnStep::Exec, errno: 2, path: "x".into(), found: Found::Nothing };
        self.receive(NodeEvent::SpawnFailed { proc: p(n), error })
    }

    fn exited(&mut self, n: u32, status: Status) -> Vec<NodeAction> {
        let usage = Usage::default();
        self.receive(NodeEvent::Exited { proc: p(n), status, at: self.now, alive_at: self.now, usage })
    }

    fn examined(&mut self, n: u32, facts: Facts) -> Vec<NodeAction> {
        self.receive(NodeEvent::Examined { proc: p(n), facts })
    }

    fn streams_end(&mut self, n: u32) -> Vec<NodeAction> {
        let mut actions = self.receive(NodeEvent::StreamEnd { proc: p(n), which: Std::Out, total: 0 });
        actions.extend(self.receive(NodeEvent::StreamEnd { proc: p(n), which: Std::Err, total: 0 }));
        actions
    }

    fn left(&mut self, count: u32) -> Vec<NodeAction> {
        let one = Leftover { pid: 7, comm: "d".into(), wchan: OsBytes::default() };
        self.receive(NodeEvent::Left { count, named: vec![one; count as usize] })
    }

    fn wait(&mut self, ms: u64) -> Vec<NodeAction> {
        self.now = self.now + Span::from_millis(ms);
        self.node.handle_timeout(self.now);
        self.drain()
    }
}

fn exit(code: u8) -> Status {
    Status::Exited(code)
}

fn by(sig: Signal) -> Status {
    Status::Signaled { sig, core: false }
}

fn group(n: u32, sig: Signal) -> NodeAction {
    NodeAction::Signal { proc: p(n), sig }
}

fn done(left: u32) -> NodeAction {
    let one = Leftover { pid: 7, comm: "d".into(), wchan: OsBytes::default() };
    let named = Capped::chunks(vec![one; left as usize]).pop().unwrap_or_default();
    NodeAction::ToRoot(ToRoot::Done { left, named })
}

fn says(message: ToRoot) -> NodeAction {
    NodeAction::ToRoot(message)
}

/// The same, seen after the end had begun.
fn asked(action: NodeAction) -> NodeAction {
    let NodeAction::ToRoot(ToRoot::Exited(exited)) = action else { panic!("{action:?}") };
    says(ToRoot::Exited(Exited { asked: true, ..exited }))
}

fn says_exit(rig: &Rig, n: u32, status: Status) -> NodeAction {
    let at = rig.now.host_time();
    says(ToRoot::Exited(Exited { proc: p(n), status, at, alive_at: at, asked: false, usage: Usage::default() }))
}

const SWEEP: NodeAction = Sweep;
/// Before it, after a success.
const NAME_LEFT: NodeAction = NodeAction::NameLeft;
const HERE: NodeAction = NodeAction::Store(StoreAction::Open { here: true, number: 0, ranks: None });

#[test]
fn a_rank_lives_from_the_first_message_to_the_last() {
    let mut rig = Rig::new();
    let start = start();
    let set_up = NodeAction::SetUpSandbox(Arc::new(start.clone()));
    assert_eq!(rig.root(ToNode::Start(start)), [set_up]);
    assert_eq!(rig.root(app_of(0, &base())), []);
    assert_eq!(rig.root(spawn(0..1, true)), [], "ranks wait for the sandbox");
    let actions = rig.receive(NodeEvent::SandboxReady(sandbox()));
    let [NodeAction::ToRoot(ToRoot::Hello(hello)), HERE, NodeAction::Spawn { proc, exec }] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((hello.master_port, hello.init, *proc), (20000, Some(11), p(0)));
    let entries: Vec<String> =
        exec.shared.iter().chain(exec.vars.iter()).map(|e| String::from_utf8_lossy(e).into_owned()).collect();
    let file = format!("/run/x/rlaunch-{}-0.error.json", "ab".repeat(16));
    for entry in ["MASTER_PORT=20000", "WORLD_SIZE=300", "LOCAL_RANK=0", &format!("TORCHELASTIC_ERROR_FILE={file}")] {
        assert!(entries.iter().any(|e| e == entry), "{entry} in {entries:?}");
    }
    assert!(!entries.iter().any(|e| e.starts_with("RANK=")), "the user pinned it");
    assert_eq!(exec.error_file.path().to_string(), file);
    let actions = rig.spawned(0);
    assert!(matches!(&actions[..], [NodeAction::ToRoot(ToRoot::Started { procs })] if procs[0].pid == 100));
    assert_eq!(rig.streams_end(0), []);
    let said = says_exit(&rig, 0, exit(0));
    assert_eq!(
        rig.exited(0, exit(0)),
        [said, Reap { proc: p(0) }, NAME_LEFT, SWEEP],
        "reaped for good before the sweep"
    );
    assert_eq!(rig.left(0), [done(0), Finish(0)]);
    assert_eq!(rig.receive(NodeEvent::EdgeLost), []);
    assert_eq!(rig.node.poll_timeout(), None);
}

fn is_refused(rig: &mut Rig, message: ToNode) {
    let actions = rig.root(message);
    assert!(actions.contains(&says(ToRoot::Refused(NodeRefusal::Protocol))), "{actions:?}");
}

#[test]
fn a_launcher_that_breaks_the_order_is_refused() {
    is_refused(&mut Rig::new(), spawn(0..1, true));
    is_refused(&mut Rig::new(), app_of(0, &base()));
    is_refused(&mut Rig::running(1), ToNode::Start(start()));
    is_refused(&mut Rig::running(1), app_of(0, &base()));
    is_refused(&mut Rig::running(1), spawn(5..6, true));
    let begun = || {
        let mut rig = Rig::new();
        rig.root(ToNode::Start(start()));
        rig
    };
    let mut rig = begun();
    rig.root(spawn(0..2, false));
    is_refused(&mut rig, spawn(1..2, false));
    let part = |bytes: usize| rlaunch_protocol::wire::to_node::Part::from(vec![0; bytes].as_slice());
    let app = AppIndex::new(0);
    is_refused(&mut begun(), ToNode::App { app, last: false, part: part(APP_PART + 1) });
    is_refused(&mut begun(), ToNode::App { app, last: true, part: part(3) });
    let mut rig = begun();
    for _ in 0..64 {
        assert_eq!(rig.root(ToNode::App { app, last: false, part: part(APP_PART) }), []);
    }
    is_refused(&mut rig, ToNode::App { app, last: false, part: part(1) });
}

#[test]
fn a_node_that_cannot_give_what_was_asked_for_says_why_and_ends() {
    let mut rig = Rig::new();
    rig.root(ToNode::Start(start()));
    assert_eq!(
        rig.receive(NodeEvent::Refused(NodeRefusal::NoPort)),
        [says(ToRoot::Refused(NodeRefusal::NoPort)), NAME_LEFT, SWEEP]
    );
    assert_eq!(rig.left(0), [done(0), Finish(0)]);
}

#[test]
fn the_spawn_port_is_bounded() {
    let mut rig = Rig::new();
    rig.root(ToNode::Start(start()));
    rig.receive(NodeEvent::SandboxReady(sandbox()));
    rig.root(app_of(0, &base()));
    assert_eq!(rig.root(spawn(0..300, true)).len(), 256);
    let actions = rig.spawned(0);
    assert!(matches!(&actions[..], [NodeAction::Spawn { proc, .. }, NodeAction::ToRoot(_)] if *proc == p(256)));
}

#[test]
fn starts_travel_together_but_before_what_follows_them() {
    let mut rig = Rig::new();
    rig.root(ToNode::Start(start()));
    rig.receive(NodeEvent::SandboxReady(sandbox()));
    rig.root(app_of(0, &base()));
    rig.root(spawn(0..3, true));
    for n in 0..3 {
        rig.node.handle(rig.now, NodeEvent::Spawned { proc: p(n), pid: n, at: rig.now });
    }
    let said = says_exit(&rig, 1, exit(0));
    let actions = rig.exited(1, exit(0));
    assert!(matches!(&actions[0], NodeAction::ToRoot(ToRoot::Started { procs }) if procs.len() == 3), "{actions:?}");
    assert_eq!(actions[1..], [said, Reap { proc: p(1) }]);
}

#[test]
fn an_end_that_is_seen_before_the_start_waits_for_it() {
    let mut rig = Rig::new();
    rig.root(ToNode::Start(start()));
    rig.receive(NodeEvent::SandboxReady(sandbox()));
    rig.root(app_of(0, &base()));
    rig.root(spawn(0..1, true));
    assert_eq!(rig.streams_end(0), []);
    assert_eq!(rig.exited(0, exit(0)), []);
    let actions = rig.spawned(0);
    let said = says_exit(&rig, 0, exit(0));
    assert!(matches!(actions[0], NodeAction::ToRoot(ToRoot::Started { .. })), "{actions:?}");
    assert_eq!(actions[1..], [said, Reap { proc: p(0) }, NAME_LEFT, SWEEP]);
}

#[test]
fn the_end_is_polite_until_its_deadline() {
    let mut rig = Rig::running(2);
    let end = |s| ToNode::End { sig: TERM, grace: Span::from_secs(s) };
    let began = rig.now;
    assert_eq!(rig.root(end(5)), [group(0, TERM), group(1, TERM)]);
    assert_eq!(rig.node.poll_timeout(), Some(began + Span::from_secs(5)));
    rig.wait(1000);
    rig.root(end(60));
    assert_eq!(rig.node.poll_timeout(), Some(began + Span::from_secs(5)), "never later");
    let again = rig.now;
    rig.root(end(1));
    assert_eq!(rig.node.poll_timeout(), Some(again + Span::from_secs(1)), "but sooner");
    assert_eq!(rig.wait(999), []);
    assert_eq!(rig.wait(1), [says(ToRoot::Killing), group(0, KILL), group(1, KILL), SWEEP]);
    assert_eq!(rig.root(end(1)), [], "nothing is polite after that");
    assert_eq!(rig.root(ToNode::Kill), [says(ToRoot::Killing)], "but every question is answered");
}

#[test]
fn no_grace_is_a_kill() {
    let mut rig = Rig::running(1);
    let end = ToNode::End { sig: TERM, grace: Span::ZERO };
    assert_eq!(rig.root(end), [says(ToRoot::Killing), group(0, TERM), group(0, KILL), SWEEP]);
}

#[test]
fn sandbox_that_is_never_set_up_is_not_waited_for() {
    let mut rig = Rig::new();
    rig.root(ToNode::Start(start()));
    assert_eq!(rig.receive(NodeEvent::EdgeLost), []);
    assert_eq!(rig.wait(1999), []);
    assert_eq!(rig.wait(1), [SWEEP]);
    assert_eq!(rig.left(0), [Finish(1)]);
}

#[test]
fn signals_are_passed_on_to_groups() {
    let mut rig = Rig::running(2);
    rig.exited(0, exit(0));
    assert_eq!(rig.root(ToNode::Signal { sig: Signal::USR1 }), [group(1, Signal::USR1)]);
}

#[test]
fn failed_rank_is_reported_at_once_and_examined_before_it_is_reaped() {
    let mut rig = Rig::running(2);
    let status = by(Signal::SEGV);
    let said = says_exit(&rig, 1, status);
    assert_eq!(
        rig.exited(1, status),
        [said, NodeAction::Examine(ExamineAction { proc: p(1), status, depth: Depth::Full })]
    );
    assert_eq!(rig.exited(1, status), [], "once");
    assert_eq!(rig.root(ToNode::Signal { sig: HUP }), [group(0, HUP), group(1, HUP)], "its group still exists");
    let facts = Facts { tail: "oh".into(), ..Facts::default() };
    let report = says(ToRoot::Postmortem { proc: p(1), facts: facts.clone() });
    assert_eq!(rig.examined(1, facts.clone()), [report, Reap { proc: p(1) }]);
    assert_eq!(rig.examined(1, facts), [], "once");
}

#[test]
fn ranks_ended_by_us_are_summarised() {
    let mut rig = Rig::running(3);
    rig.root(ToNode::End { sig: TERM, grace: Span::from_secs(5) });
    let depth_of = |actions: &[NodeAction]| {
        let NodeAction::Examine(ExamineAction { depth, .. }) = actions[1] else { panic!("{actions:?}") };
        depth
    };
    assert_eq!(depth_of(&rig.exited(0, by(TERM))), Depth::ErrorFile);
    assert_eq!(depth_of(&rig.exited(1, by(KILL))), Depth::Full, "we have not sent that");
    assert_eq!(depth_of(&rig.exited(2, exit(1))), Depth::Full);
    assert_eq!(rig.examined(0, Facts::default()), [Reap { proc: p(0) }], "nothing found, nothing said");
    let facts = Facts { error_file: Some("{}".into()), ..Facts::default() };
    let report = says(ToRoot::Postmortem { proc: p(1), facts: facts.clone() });
    assert_eq!(rig.examined(1, facts), [report, Reap { proc: p(1) }]);
}

#[test]
fn descendants_may_write_for_a_while_after_success() {
    let mut rig = Rig::running(2);
    rig.streams_end(1);
    rig.exited(0, exit(0));
    rig.exited(1, exit(0));
    (0..6).for_each(|_| assert_eq!(rig.wait(250), []));
    assert_eq!(rig.wait(3_600_000), [], "the host was suspended, and they with it");
    assert_eq!(rig.wait(249), []);
    assert_eq!(rig.wait(1), [NAME_LEFT, SWEEP]);
    assert_eq!(rig.left(0), [says(ToRoot::Draining), CloseStreams { proc: p(0) }]);
    assert_eq!(rig.streams_end(0), [done(0), Finish(0)]);

    let mut rig = Rig::running(1);
    assert_eq!(rig.exited(0, exit(0)).len(), 2);
    assert_eq!(rig.streams_end(0), [NAME_LEFT, SWEEP], "no longer than they need");

    let mut rig = Rig::running(1);
    rig.exited(0, exit(0));
    let end = ToNode::End { sig: TERM, grace: Span::from_secs(5) };
    assert_eq!(rig.root(end), [says(ToRoot::Killing), SWEEP], "nor than we want");
}

#[test]
fn after_anything_else_they_are_killed_at_once() {
    let mut rig = Rig::running(1);
    rig.exited(0, exit(3));
    assert_eq!(rig.examined(0, Facts::default())[1..], [Reap { proc: p(0) }, SWEEP]);

    let mut rig = Rig::running(1);
    rig.root(ToNode::End { sig: TERM, grace: Span::from_secs(5) });
    assert_eq!(rig.exited(0, exit(0))[1..], [Reap { proc: p(0) }, says(ToRoot::Killing), SWEEP]);
}

#[test]
fn remaining_processes_are_counted_until_none() {
    let mut rig = Rig::running(1);
    rig.streams_end(0);
    rig.exited(0, exit(0));
    let mut pauses = vec![];
    for _ in 0..8 {
        assert_eq!(rig.left(2), []);
        pauses.push(rig.node.poll_timeout().unwrap().since(rig.now).millis());
        assert_eq!(rig.wait(*pauses.last().unwrap()), [SWEEP]);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 50, 50]);
    assert_eq!(rig.left(0), [done(0), Finish(0)]);
}

#[test]
fn unkillable_process_is_named_and_not_waited_for() {
    let mut rig = Rig::running(1);
    rig.exited(0, exit(3));
    assert_eq!(rig.examined(0, Facts::default()).last(), Some(&SWEEP));
    assert_eq!(rig.left(1), []);
    rig.wait(990);
    assert_eq!(rig.left(1), []);
    rig.wait(1000);
    assert_eq!(rig.left(1), []);
    assert_eq!(rig.wait(10), [says(ToRoot::Draining), CloseStreams { proc: p(0) }]);
    assert_eq!(rig.streams_end(0), [done(1), Finish(1)]);
}

#[test]
fn a_rank_that_cannot_be_killed_does_not_keep_the_job() {
    let mut rig = Rig::running(1);
    assert_eq!(rig.root(ToNode::Kill), [says(ToRoot::Killing), group(0, KILL), SWEEP]);
    assert_eq!(rig.left(1), []);
    rig.wait(999);
    rig.left(1);
    rig.wait(1000);
    rig.left(1);
    assert_eq!(rig.wait(1), [says(ToRoot::Draining), CloseStreams { proc: p(0) }]);
    assert_eq!(rig.streams_end(0), [done(1), Finish(1)]);
}

#[test]
fn a_node_that_was_stopped_has_not_used_up_its_patience() {
    let mut rig = Rig::running(1);
    rig.root(ToNode::Kill);
    rig.left(1);
    rig.now = rig.now + Span::from_secs(60);
    rig.node.handle_timeout(rig.now);
    assert_eq!(rig.node.poll_action(), Some(SWEEP), "what it could not look at is not given up");
    rig.left(1);
    for _ in 0..2 {
        assert_eq!(rig.wait(999), [SWEEP]);
        rig.left(1);
    }
    assert_eq!(rig.wait(2), [says(ToRoot::Draining), CloseStreams { proc: p(0) }]);
}

#[test]
fn count_before_last_rank_is_reaped_decides_nothing() {
    let mut rig = Rig::running(1);
    rig.root(ToNode::Kill);
    assert_eq!(rig.left(0), []);
    rig.exited(0, by(KILL));
    assert_eq!(rig.examined(0, Facts::default()), [Reap { proc: p(0) }, SWEEP], "at once, without the pause");
    assert_eq!(rig.left(0), [says(ToRoot::Draining), CloseStreams { proc: p(0) }]);
}

#[test]
fn everything_is_killed_without_a_report_when_launcher_is_lost() {
    for event in [NodeEvent::EdgeLost, NodeEvent::Signal { sig: Signal::HUP, to: SignalledPart::Agent }] {
        let mut rig = Rig::running(2);
        assert_eq!(rig.receive(event.clone()), [group(0, KILL), group(1, KILL), SWEEP]);
        assert_eq!(rig.receive(event), []);
        assert_eq!(rig.exited(0, by(KILL)), [Reap { proc: p(0) }]);
        assert_eq!(rig.exited(1, by(KILL)), [Reap { proc: p(1) }]);
        assert_eq!(rig.left(3), [SWEEP]);
        assert_eq!(rig.left(0), [Finish(1)], "nobody reads the streams");
    }
}

#[test]
fn lost_guardian_is_reported_before_ranks_are_killed() {
    let mut rig = Rig::running(1);
    assert_eq!(rig.receive(NodeEvent::GuardianLost), [says(ToRoot::GuardianLost), group(0, KILL), SWEEP]);
    assert_eq!(rig.receive(NodeEvent::GuardianLost), []);
    rig.streams_end(0);
    rig.exited(0, by(KILL));
    rig.examined(0, Facts::default());
    assert_eq!(rig.left(0), [SWEEP]);
    assert_eq!(rig.left(0), [done(0), Finish(1)], "nobody watches over a clean end");
}

#[test]
fn lost_init_is_reported_once_unless_the_agent_ended_it() {
    let mut rig = Rig::running(1);
    assert_eq!(rig.receive(NodeEvent::InitLost), [says(ToRoot::InitLost), group(0, KILL), SWEEP]);
    assert_eq!(rig.receive(NodeEvent::InitLost), []);
    let said = says_exit(&rig, 0, by(KILL));
    assert_eq!(rig.exited(0, by(KILL))[0], asked(said), "reported, and explained by the message before");

    let mut rig = Rig::running(1);
    rig.root(ToNode::Kill);
    assert_eq!(rig.receive(NodeEvent::InitLost), []);
}

#[test]
fn nothing_follows_the_last_action() {
    let mut rig = Rig::running(1);
    rig.root(ToNode::Kill);
    rig.left(1);
    rig.wait(1);
    rig.left(1);
    let mut actions = rig.wait(900);
    rig.left(1);
    actions.extend(rig.wait(900));
    rig.left(1);
    actions.extend(rig.wait(900));
    assert_eq!(actions.last(), Some(&CloseStreams { proc: p(0) }), "given up, and draining");
    assert_eq!(rig.receive(NodeEvent::EdgeLost), [Finish(1)]);
}
