//! The store that the agent of the first host holds.

use super::*;
use crate::node::sandbox::MpiPort;
use rlaunch_protocol::framework::MpiPlan;
use rlaunch_protocol::wire::limit::{Limit, Met};
use rlaunch_protocol::wire::node_news::{NodeNews, StoreNews};
use rlaunch_protocol::wire::to_node::Rendezvous;

fn rendezvous(node_index: u32, port: Option<u16>) -> Rendezvous {
    Rendezvous {
        addr: "10.0.0.1".into(),
        port,
        world_size: 2,
        nodes: 2,
        node_index,
        agent_store: true,
        ..Rendezvous::default()
    }
}

/// The only node of its job, whose agent holds the store.
fn sole(port: Option<u16>) -> (Rig, Vec<NodeAction>) {
    begun(Start { rendezvous: Some(rendezvous(0, port)), ..start() })
}

fn begun(start: Start) -> (Rig, Vec<NodeAction>) {
    let mut rig = Rig::new();
    let mut actions = rig.root(ToNode::Start(start));
    actions.extend(rig.root(app_of(0, &base())));
    actions.extend(rig.root(spawn(0..2, true)));
    actions.extend(rig.receive(NodeEvent::SandboxReady(sandbox())));
    (rig, actions)
}

fn serve(port: u16) -> NodeAction {
    NodeAction::TcpStores(TcpStoreAction::Open(TcpStorePlan {
        addr: "10.0.0.1".into(),
        port,
        guard: Default::default(),
        ranks: start().local_size,
    }))
}

fn place(actions: &[NodeAction], is: impl Fn(&NodeAction) -> bool) -> Option<usize> {
    actions.iter().position(is)
}

fn refused(from: &str, count: u32) -> ToRoot {
    ToRoot::News(NodeNews::Store(StoreNews::Refused { from: from.into(), count }))
}

#[test]
fn store_listens_at_master_port_before_the_first_rank() {
    for (given, port) in [(None, 20000), (Some(7000), 7000)] {
        let (_, actions) = sole(given);
        let held = place(&actions, |action| *action == serve(port)).expect("held");
        let spawned = place(&actions, |action| matches!(action, NodeAction::Spawn { .. })).expect("spawned");
        assert!(held < spawned, "{actions:?}");
        let NodeAction::Spawn { exec, .. } = &actions[spawned] else { unreachable!() };
        let vars: Vec<_> = exec.shared.iter().map(<[u8]>::to_vec).collect();
        assert!(vars.contains(&format!("MASTER_PORT={port}").into_bytes()));
        assert!(vars.contains(&b"TORCHELASTIC_USE_AGENT_STORE=True".to_vec()));
    }
}

#[test]
fn first_of_several_nodes_holds_the_store() {
    for (index, holds) in [(0, true), (1, false)] {
        let mut rig = Rig::new();
        rig.root(ToNode::Start(Start { sole: false, rendezvous: None, ..start() }));
        rig.receive(NodeEvent::SandboxReady(sandbox()));
        let actions = rig.root(ToNode::Rendezvous(rendezvous(index, Some(7000))));
        assert_eq!(actions.contains(&serve(7000)), holds);
    }
}

#[test]
fn node_refuses_if_store_cannot_listen() {
    let (mut rig, _) = sole(None);
    let (errno, at) = (98, OsBytes::from("10.0.0.1:20000"));
    let actions = rig.receive(NodeEvent::Unserved { errno, at: at.clone() });
    assert_eq!(actions[0], NodeAction::ToRoot(ToRoot::Refused(NodeRefusal::NoStore { errno, at })));
}

#[test]
fn unused_store_is_reported_once() {
    let (mut rig, _) = sole(None);
    let unused = NodeAction::ToRoot(ToRoot::News(NodeNews::Store(StoreNews::Unused { at: "10.0.0.1:20000".into() })));
    assert_eq!(rig.wait(9_000), []);
    assert_eq!(rig.wait(1_000), [NodeAction::MeasureRanks]);
    let measured = |ms| NodeEvent::RanksMeasured { cpu: Span::from_millis(ms) };
    assert_eq!(rig.receive(measured(0)), core::slice::from_ref(&unused));
    assert_eq!(rig.wait(600_000), []);
    // Ranks that import, or load data from a slow disk, are busy.
    let (mut rig, _) = begun(Start { local_size: 2, rendezvous: Some(rendezvous(0, None)), ..start() });
    for busy in [9_000, 10_000, 10_060] {
        assert_eq!(rig.wait(10_000), [NodeAction::MeasureRanks]);
        assert_eq!(rig.receive(measured(busy)), []);
    }
    assert_eq!(rig.wait(10_000), [NodeAction::MeasureRanks]);
    assert_eq!(rig.receive(measured(10_119)), [unused]);
    let (mut rig, _) = sole(None);
    assert_eq!(rig.receive(NodeEvent::StoreUsed), []);
    assert_eq!(rig.wait(600_000), []);
}

/// Each limit is reported by itself.
#[test]
fn limits_are_reported_at_once_and_then_rate_limited() {
    let (mut rig, _) = sole(None);
    rig.receive(NodeEvent::StoreUsed);
    let met = |limit, key: &str| Met::at(limit, key.as_bytes(), 9, 8);
    let meets = |limit, key, count| NodeEvent::StoreLimit { met: met(limit, key), count };
    let says = |limit, key, count| {
        vec![NodeAction::ToRoot(ToRoot::News(NodeNews::Store(StoreNews::Limit { met: met(limit, key), count })))]
    };
    assert_eq!(rig.receive(meets(Limit::Value, "a", 2)), says(Limit::Value, "a", 2));
    assert_eq!(rig.receive(meets(Limit::Value, "b", 1)), []);
    assert_eq!(rig.receive(meets(Limit::Keys, "c", 1)), says(Limit::Keys, "c", 1));
    assert_eq!(rig.receive(meets(Limit::Value, "d", 3)), []);
    assert_eq!(rig.wait(10_000), says(Limit::Value, "d", 4));
    assert_eq!(rig.wait(20_000), [], "nobody met one");
}

/// A job that succeeds gets no order to end.
#[test]
fn pending_reports_are_sent_before_a_successful_end() {
    let (mut rig, _) = sole(None);
    let comes = |from: &str| NodeEvent::StoreRefused { from: from.into(), count: 1, foreign: None };
    let meets = |key: &str| NodeEvent::StoreLimit { met: Met::at(Limit::Key, key.as_bytes(), 9, 8), count: 1 };
    for event in [comes("a:1"), meets("k"), comes("a:2"), comes("a:3"), meets("l")] {
        rig.receive(event);
    }
    let mut said = Vec::new();
    for proc in 0..2 {
        said.extend(rig.spawned(proc));
        said.extend(rig.exited(proc, exit(0)));
        said.extend(rig.streams_end(proc));
    }
    said.extend(rig.left(0));
    let at = |message| place(&said, |action| *action == NodeAction::ToRoot(ToRoot::clone(&message))).expect("said");
    let done = place(&said, |action| matches!(action, NodeAction::ToRoot(ToRoot::Done { .. }))).expect("the end");
    assert!(at(refused("a:3", 2)) < done, "{said:?}");
    assert!(
        at(ToRoot::News(NodeNews::Store(StoreNews::Limit { met: Met::at(Limit::Key, b"l", 9, 8), count: 1 }))) < done,
        "{said:?}"
    );
}

#[test]
fn strangers_are_reported_at_once_and_then_rate_limited() {
    let (mut rig, _) = sole(None);
    rig.receive(NodeEvent::StoreUsed);
    let says = |message| vec![NodeAction::ToRoot(message)];
    let comes = |from: &str, count| NodeEvent::StoreRefused { from: from.into(), count, foreign: None };
    assert_eq!(rig.receive(comes("a:1", 2)), says(refused("a:1", 2)));
    assert_eq!(rig.receive(comes("a:2", 1)), []);
    assert_eq!(rig.receive(comes("b:3", 4)), []);
    assert_eq!(rig.wait(10_000), says(refused("b:3", 5)));
    assert_eq!(rig.wait(10_000), [], "nobody came");
    assert_eq!(rig.receive(comes("c:1", 1)), says(refused("c:1", 1)));
    assert_eq!(rig.receive(comes("c:2", 1)), []);
    let actions = rig.root(ToNode::Kill);
    assert!(actions.contains(&NodeAction::ToRoot(refused("c:2", 1))), "the rest at the end: {actions:?}");
}

/// Ranks of Open MPI that are more than the processors share the session of the agent.
#[test]
fn ranks_of_mpi_lead_sessions_unless_they_share_processors() {
    let has_session = |library: &str, has_worlds, cpus| {
        let mut rig = Rig::new();
        rig.root(ToNode::Start(
            Start { has_worlds, ..start() }
                .with(|settings| settings.mpi = MpiPlan { served: true, library: library.into() }),
        ));
        rig.root(app_of(0, &base()));
        rig.root(spawn_of(0..1, true, 2));
        let port = MpiPort { port: 7, host: "a".into() };
        let actions = rig.receive(NodeEvent::SandboxReady(Sandbox { mpi: Some(Box::new(port)), cpus, ..sandbox() }));
        let spawned = actions.iter().find_map(|action| {
            let NodeAction::Spawn { exec, .. } = action else { return None };
            Some(exec.has_session)
        });
        spawned.expect("a rank is started")
    };
    assert!(!has_session("libmpi.so.40", false, 1));
    assert!(has_session("libmpi.so.40", false, 2), "each rank has a processor");
    assert!(has_session("libmpi.so.40", false, 0), "the number of processors is not known");
    assert!(has_session("libmpi.so.12", false, 1), "the library sleeps");
    assert!(has_session("libmpi.so.40", true, 1), "the end of a world kills sessions");
}
