//! A host that tries to reach that of rank 0, or is tried itself.

use super::*;
use core::net::IpAddr;
use rlaunch_base::address::Interface;
use rlaunch_protocol::wire::probe::{Key, Place, Places};
use rlaunch_protocol::wire::to_node::{Find, Rendezvous};

fn place(number: u32) -> Place {
    Place { number, addr: format!("10.0.0.{number}").into(), port: 7000, key: Key::new([1; 32]) }
}

fn probe(numbers: impl IntoIterator<Item = u32>) -> ToNode {
    ToNode::Probe(Places::chunks(numbers.into_iter().map(place)).remove(0))
}

fn tries(number: u32) -> NodeAction {
    NodeAction::Probes(ProbeAction::Call(place(number)))
}

const BY: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 168, 0, 2));

fn probed(number: u32, found: Result<IpAddr, i32>) -> NodeAction {
    says(ToRoot::Probed { number, found: found.map(Into::into) })
}

fn reached(number: u32) -> NodeEvent {
    NodeEvent::Probed { number, found: Ok(BY) }
}

fn missed(number: u32, errno: i32) -> NodeEvent {
    NodeEvent::Probed { number, found: Err(errno) }
}

fn rendezvous(addr: &str) -> ToNode {
    let port = Some(7000);
    ToNode::Rendezvous(Rendezvous {
        addr: addr.into(),
        port,
        world_size: 6,
        nodes: 3,
        node_index: 2,
        ..Rendezvous::default()
    })
}

/// An agent of several hosts after its hello. `may_be_first`: its host may have rank 0.
fn rig_after_hello(may_be_first: bool) -> Rig {
    let mut rig = Rig::new();
    let key = may_be_first.then(|| Key::new([2; 32]));
    let find = may_be_first.then_some(Find { probe_key: key });
    rig.root(ToNode::Start(Start { sole: false, rendezvous: None, find, ..start() }));
    rig.root(app_of(0, &base()));
    let interface = |(name, addr): (&str, [u8; 4])| Interface {
        name: name.into(),
        addr: addr.into(),
        default: name == "eth0",
        prefix: 24,
    };
    let interfaces = [("eth0", [10, 0, 0, 9]), ("eth1", [192, 168, 0, 2])].map(interface).to_vec();
    rig.receive(NodeEvent::SandboxReady(Sandbox { interfaces, ..sandbox() }));
    rig
}

#[test]
fn node_tries_places_and_reports_results() {
    let mut rig = rig_after_hello(false);
    assert_eq!(rig.root(probe([1, 2])), [tries(1), tries(2)]);
    assert_eq!(rig.receive(missed(2, 111)), [probed(2, Err(111))]);
    assert_eq!(rig.receive(reached(1)), [probed(1, Ok(BY))]);
    // Sent twice, or about a place that was not asked for.
    for number in [1, 2, 3] {
        assert_eq!(rig.receive(reached(number)), []);
        assert_eq!(rig.receive(missed(number, 5)), []);
    }
    assert_eq!(rig.root(probe([3])), [tries(3)]);
}

#[test]
fn its_ranks_use_the_interface_by_which_it_has_reached_where_they_meet() {
    for (addr, carrier) in [("10.0.0.1", "eth1"), ("10.0.0.2", "eth0")] {
        let mut rig = rig_after_hello(false);
        rig.root(probe([1, 2]));
        rig.receive(reached(1));
        assert_eq!(rig.root(rendezvous(addr))[0], NodeAction::Probes(ProbeAction::End));
        let actions = rig.root(spawn(0..1, true));
        let [NodeAction::Spawn { exec, .. }] = &actions[..] else { panic!("{actions:?}") };
        for name in ["GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"] {
            let var = format!("{name}={carrier}").into_bytes();
            assert!(exec.shared.iter().any(|entry| *entry == var), "{addr} {name}");
        }
    }
}

#[test]
fn probes_end_at_the_rendezvous_or_at_the_begin_of_the_end() {
    type End = fn(&mut Rig) -> Vec<NodeAction>;
    let ends: [End; 4] = [
        |rig| rig.root(rendezvous("10.0.0.1")),
        |rig| rig.root(ToNode::Kill),
        |rig| rig.root(ToNode::End { sig: TERM, grace: Span::from_secs(5) }),
        |rig| rig.receive(NodeEvent::EdgeLost),
    ];
    for end in ends {
        let mut rig = rig_after_hello(true);
        assert!(end(&mut rig).contains(&NodeAction::Probes(ProbeAction::End)), "its probe listeners are closed");
        let mut rig = rig_after_hello(false);
        assert!(!end(&mut rig).contains(&NodeAction::Probes(ProbeAction::End)), "there is nothing to close");
        let mut rig = rig_after_hello(false);
        rig.root(probe([1, 2]));
        assert!(end(&mut rig).contains(&NodeAction::Probes(ProbeAction::End)));
        assert_eq!(rig.receive(reached(1)), []);
        assert_eq!(rig.receive(missed(2, 5)), []);
        assert_eq!(rig.root(probe([3])), []);
    }
}
