//! Both machines with arbitrary input from the other side. Neither panics or requests actions without end, and each record of the job
//! is a line of JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rlaunch_base::id::{JobId, NodeId, Rank, SessionId, Std};
use rlaunch_base::machine::Machine;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::os_strings::OsStrings;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Mono, WallNs};
use rlaunch_core::events::{CloseReason, line};
use rlaunch_core::job::{Job, JobAction, JobEvent, Setting};
use rlaunch_core::node::{
    DeviceAction, DevicesFreed, ExamineAction, Node, NodeAction, NodeEvent, ProbeAction, Sandbox, TcpStoreAction,
};
use rlaunch_core::report::fold;
use rlaunch_plan::place::Placement;
use rlaunch_protocol::guard::devices::DeviceStep;
use rlaunch_protocol::master_store::{ForAgent, Guard, Holder};
use rlaunch_protocol::settings::Tier;
use rlaunch_protocol::spec::{AppBase, AppSpec, JobSpec, Role};
use rlaunch_protocol::wire::codec::decode;
use rlaunch_protocol::wire::frozen::client::client_round::ClientMessage;
use rlaunch_protocol::wire::to_root::{Facts, Hello, Usage};
use std::sync::Arc;

/// More than a machine may ask for after one event of a job of this size.
const MOST: usize = 20_000;

fn strings(words: &[&str]) -> OsStrings {
    words.iter().map(|word| word.as_bytes()).collect()
}

fn spec(ranks: u32) -> JobSpec {
    let (argv, role) = (strings(&["./train"]), Role::sole());
    let base = AppBase { argv, env: strings(&[]), pinned: strings(&[]), wdir: None, role, logs: None, filled: false };
    JobSpec::of(JobId([7; 16]), vec![AppSpec { procs: ranks, base }], Placement::here("here", [ranks])).with(
        |settings| {
            settings.store.holder = Holder::Agent(ForAgent::Asked);
            settings.store.guard = Guard::Job;
        },
    )
}

fn actions<M: Machine>(machine: &mut M, mut each: impl FnMut(M::Action)) {
    for n in 0.. {
        let Some(action) = machine.poll_action() else { return };
        assert!(n < MOST, "a machine that asks without end");
        each(action);
    }
}

/// Messages: two bytes of length, the body.
fn parts(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, rest) = data.split_first_chunk::<2>()?;
        let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
        let (part, rest) = rest.split_at(len);
        data = rest;
        Some(part)
    })
}

fn agent(data: &[u8]) {
    let mut node = Node::new();
    for (n, part) in (1u64..).zip(parts(data)) {
        let now = Mono::from_nanos(n * 50_000_000);
        let event = match part {
            // No message of the launcher begins so: a frame of a process that takes part in rounds.
            [0xfe, who, frame @ ..] => session(*who, frame),
            part => decode(part).map_or(NodeEvent::EdgeLost, NodeEvent::FromRoot),
        };
        node.handle(now, event);
        node.handle_timeout(now);
        assert_eq!(node.check(), Ok(()));
        let mut answers = Vec::new();
        actions(&mut node, |action| answers.extend(answer(action, now)));
        for answer in answers {
            node.handle(now, answer);
            actions(&mut node, drop);
        }
    }
}

/// A frame of one of a few sessions of a few ranks.
fn session(who: u8, frame: &[u8]) -> NodeEvent {
    let (session, rank) = (SessionId::new(u32::from(who & 7)), Some(Rank::new(u32::from(who >> 3 & 3))));
    match ClientMessage::parse(frame) {
        Ok(ClientMessage::Register(terms)) => NodeEvent::SessionBegun { session, rank, terms },
        Ok(said) => NodeEvent::SessionMessage { session, said },
        Err(_) => NodeEvent::SessionLost { session },
    }
}

/// The answers of a kernel without surprises.
fn answer(action: NodeAction, now: Mono) -> Option<NodeEvent> {
    Some(match action {
        NodeAction::SetUpSandbox(_) => NodeEvent::SandboxReady(Sandbox {
            devices: true,
            ..Sandbox::of(Hello { master_port: 10_000, agent: 3, init: Some(4), ..Hello::of(Tier::T1) })
        }),
        NodeAction::Spawn { proc, .. } => NodeEvent::Spawned { proc, pid: proc.get(), at: now },
        NodeAction::Signal { proc, sig, .. } => {
            let status = Status::Signaled { sig, core: false };
            NodeEvent::Exited { proc, status, at: now, alive_at: now, usage: Usage::default() }
        }
        NodeAction::Examine(ExamineAction { proc, .. }) => NodeEvent::Examined { proc, facts: Facts::default() },
        NodeAction::CloseStreams { proc } => NodeEvent::StreamEnd { proc, which: Std::Out, total: 0 },
        NodeAction::Sweep => NodeEvent::Left { count: 0, named: Vec::new() },
        NodeAction::Probes(ProbeAction::Call(place)) => {
            NodeEvent::Probed { number: place.number, found: Ok([10, 0, 0, 1].into()) }
        }
        NodeAction::Renew { port } => NodeEvent::Renewed {
            port: if port == rlaunch_protocol::wire::to_node::PortPlan::Choose { 21_000 } else { 0 },
        },
        NodeAction::Check { app, .. } => NodeEvent::Checked { app, error: None },
        NodeAction::Devices(DeviceAction::Free { step: DeviceStep::Look, .. }) => {
            NodeEvent::DevicesFreed(DevicesFreed::Found)
        }
        NodeAction::Devices(DeviceAction::Free { .. }) => {
            NodeEvent::DevicesFreed(DevicesFreed::Free { skips_lock: true })
        }
        NodeAction::Devices(DeviceAction::Examine { .. }) => NodeEvent::DevicesExamined,
        NodeAction::Devices(DeviceAction::AwaitRelease { proc, .. }) => {
            NodeEvent::DevicesReleased { proc, taken: OsBytes::default() }
        }
        NodeAction::TcpStores(TcpStoreAction::ReservePort { .. }) => NodeEvent::PortReserved { port: 22_000 },
        NodeAction::TcpStores(TcpStoreAction::ReserveWorldPort { world }) => {
            NodeEvent::WorldReserved { world, port: 23_000 }
        }
        NodeAction::Store(_) => return None,
        NodeAction::OpenWorld(_) | NodeAction::CloseWorld { .. } | NodeAction::KillSessions { .. } => return None,
        NodeAction::Sessions(_)
        | NodeAction::Mark { .. }
        | NodeAction::TcpStores(TcpStoreAction::UsePort(_) | TcpStoreAction::Close | TcpStoreAction::Open(_))
        | NodeAction::MeasureRanks
        | NodeAction::NameLeft
        | NodeAction::WatchPreemption { .. }
        | NodeAction::Lease(_)
        | NodeAction::Beat(_)
        | NodeAction::ServeMpi(_) => return None,
        NodeAction::Withhold
        | NodeAction::Probes(ProbeAction::End)
        | NodeAction::Reap { .. }
        | NodeAction::ToRoot(_)
        | NodeAction::Finish(_) => return None,
    })
}

fn launcher(data: &[u8]) {
    let id = NodeId::new(0);
    let mut job = Job::new(Mono::default(), WallNs(5), &Arc::new(spec(3)), &Setting::default());
    let mut records = Vec::new();
    for (n, part) in (1u64..).zip(parts(data)) {
        let now = Mono::from_nanos(n * 50_000_000);
        let event = match decode(part) {
            Ok(msg) => JobEvent::Message { node: id, msg },
            Err(_) => JobEvent::EdgeClosed { node: id, why: CloseReason::Malformed },
        };
        job.handle(now, event);
        job.handle_timeout(now);
        assert_eq!(job.check(), Ok(()));
        actions(&mut job, |action| {
            if let JobAction::Emit(record) = action {
                let text = line(&record);
                assert!(text.ends_with('\n') && !text.trim_end().contains('\n'), "{text:?}");
                let parsed = serde_json::from_str::<serde_json::Value>(&text);
                assert!(parsed.is_ok(), "{text}: {parsed:?}");
                records.push(record);
            }
        });
    }
    drop(fold(&records));
}

fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((0, rest)) => agent(rest),
        Some((1, rest)) => launcher(rest),
        Some(_) | None => {}
    }
});
