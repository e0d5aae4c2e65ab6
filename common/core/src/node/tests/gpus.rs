//! GPUs of their own for ranks, and hosts that have too few.

use super::*;
use crate::node::Processors;
use rlaunch_base::cpu_set::CpuSet;
use rlaunch_plan::gpus::{Devices, Gpu, Share};
use rlaunch_plan::topology::{self, Topology};

fn with(devices: Devices) -> Sandbox {
    Sandbox { gpus: devices, ..sandbox() }
}

const FOUR: Devices = Devices { amd: false, count: Some(4) };

fn start_of(gpus: Share, local_size: u32, apps: u32) -> ToNode {
    ToNode::Start(Start { local_size, apps, ..start() }.with(|settings| settings.gpus = gpus))
}

fn base_with(entries: &[&str]) -> AppBase {
    AppBase { env: entries.iter().collect(), pinned: ["CUDA_VISIBLE_DEVICES"].iter().collect(), ..base() }
}

/// The value that a program would find: the first entry counts.
fn found(actions: &[NodeAction], name: &[u8]) -> Vec<Option<String>> {
    let find = |action: &NodeAction| {
        let NodeAction::Spawn { exec, .. } = action else { return None };
        let all: OsStrings = exec.base.env.iter().chain(exec.shared.iter()).chain(exec.vars.iter()).collect();
        Some(rlaunch_protocol::env::value(&all, name).map(|value| String::from_utf8_lossy(value).into_owned()))
    };
    actions.iter().filter_map(find).collect()
}

fn lists(devices: Devices, each: u32, entries: &[&str], name: &str) -> Vec<Option<String>> {
    let mut rig = Rig::new();
    rig.root(start_of(Share::Each(each), 2, 1));
    rig.root(app_of(0, &base_with(entries)));
    rig.root(spawn(0..2, true));
    found(&rig.receive(NodeEvent::SandboxReady(with(devices))), name.as_bytes())
}

#[test]
fn each_rank_sees_its_own() {
    let some = |words: [&str; 2]| words.map(|word| Some(String::from(word))).to_vec();
    let cuda = |each, entries: &[&str]| lists(FOUR, each, entries, "CUDA_VISIBLE_DEVICES");
    assert_eq!(cuda(1, &[]), some(["0", "1"]));
    assert_eq!(cuda(2, &["A=b"]), some(["0,1", "2,3"]));
    assert_eq!(cuda(1, &["CUDA_VISIBLE_DEVICES=3,1,0"]), some(["3", "1"]), "of the user's, in its order");
    assert_eq!(cuda(1, &["CUDA_VISIBLE_DEVICES=GPU-8f,MIG-2a"]), some(["GPU-8f", "MIG-2a"]));
    assert_eq!(lists(FOUR, 1, &["HIP_VISIBLE_DEVICES=7"], "HIP_VISIBLE_DEVICES"), some(["7", "7"]), "nobody's here");
    let amd = Devices { amd: true, count: Some(8) };
    let entries = ["CUDA_VISIBLE_DEVICES=0", "ROCR_VISIBLE_DEVICES=4,5,6,7", "HIP_VISIBLE_DEVICES=2,3"];
    for name in ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"] {
        assert_eq!(lists(amd, 1, &entries, name), some(["2", "3"]), "{name}");
    }
    assert_eq!(lists(amd, 1, &entries, "ROCR_VISIBLE_DEVICES"), some(["4,5,6,7", "4,5,6,7"]));
}

#[test]
fn without_the_option_nothing_changes() {
    let mut rig = Rig::new();
    rig.root(start_of(Share::Unset, 9, 1));
    rig.root(app_of(0, &base_with(&["CUDA_VISIBLE_DEVICES=3,1"])));
    rig.root(spawn(0..1, true));
    let actions = rig.receive(NodeEvent::SandboxReady(with(Devices::default())));
    assert_eq!(found(&actions, b"CUDA_VISIBLE_DEVICES"), [Some(String::from("3,1"))]);
}

fn refusal(each: u32, needed: u32, has: Option<u32>) -> NodeAction {
    says(ToRoot::Refused(NodeRefusal::Gpus { each, needed, has }))
}

#[test]
fn a_host_that_has_too_few_starts_nothing() {
    let unknown = Devices::default();
    for (devices, entries, each, has) in [
        (FOUR, &[][..], 3, Some(4)),
        (FOUR, &["CUDA_VISIBLE_DEVICES=2"], 1, Some(1)),
        (FOUR, &["CUDA_VISIBLE_DEVICES="], 1, Some(0)),
        (unknown, &[], 1, None),
        (FOUR, &[], u32::MAX, Some(4)),
    ] {
        for program_first in [true, false] {
            let mut rig = Rig::new();
            let mut actions = rig.root(start_of(Share::Each(each), 2, 1));
            let set_up = NodeEvent::SandboxReady(with(devices));
            if !program_first {
                actions.extend(rig.receive(set_up.clone()));
            }
            actions.extend(rig.root(app_of(0, &base_with(entries))));
            actions.extend(rig.root(spawn(0..2, true)));
            if program_first {
                actions.extend(rig.receive(set_up));
            }
            assert!(actions.contains(&refusal(each, each.saturating_mul(2), has)), "{actions:?}");
            assert!(!actions.iter().any(|action| matches!(action, NodeAction::Spawn { .. })), "{actions:?}");
            assert!(actions.contains(&SWEEP), "and ends: {actions:?}");
        }
    }
}

#[test]
fn no_rank_of_one_program_is_started_before_another_is_known_to_have_enough() {
    let mut rig = Rig::new();
    rig.root(start_of(Share::Each(1), 2, 2));
    rig.receive(NodeEvent::SandboxReady(with(FOUR)));
    rig.root(app_of(0, &base_with(&[])));
    assert_eq!(rig.root(spawn(0..2, true)), []);
    let actions = rig.root(app_of(1, &base_with(&["CUDA_VISIBLE_DEVICES=0"])));
    assert!(actions.contains(&refusal(1, 2, Some(1))), "{actions:?}");
    assert!(!actions.iter().any(|action| matches!(action, NodeAction::Spawn { .. })), "{actions:?}");
}

#[test]
fn a_node_that_lacks_some_is_not_ready() {
    let mut rig = Rig::new();
    rig.root(ToNode::Start(
        Start { local_size: 2, sole: false, rendezvous: None, ..start() }
            .with(|settings| settings.gpus = Share::Each(4)),
    ));
    rig.root(app_of(0, &base_with(&[])));
    rig.receive(NodeEvent::Checked { app: AppIndex::new(0), error: None });
    let actions = rig.receive(NodeEvent::SandboxReady(with(FOUR)));
    assert!(actions.contains(&refusal(4, 8, Some(4))) && !actions.contains(&says(ToRoot::Ready)), "{actions:?}");
}

#[test]
fn jax_gets_the_devices_to_take_of_the_visible_ones() {
    let ids = |gpus, local_size| {
        let mut rig = Rig::new();
        let start = Start { local_size, ..start() };
        rig.root(ToNode::Start(start.with(|settings| (settings.gpus, settings.jax) = (gpus, true))));
        rig.root(app_of(0, &base()));
        rig.root(spawn_of(0..1, true, local_size));
        found(&rig.receive(NodeEvent::SandboxReady(with(FOUR))), b"JAX_LOCAL_DEVICE_IDS").remove(0)
    };
    assert_eq!(ids(Share::Each(2), 2).as_deref(), Some("0,1"), "of its own: not its local rank");
    assert_eq!(ids(Share::Each(1), 4).as_deref(), Some("0"));
    assert_eq!(ids(Share::All, 1).as_deref(), Some("0,1,2,3"), "JAX would take the first alone");
    assert_eq!(ids(Share::All, 4), None, "JAX takes that of the local rank");
}

/// Four GPUs, of which the last two are at the second of two packages with four cores each.
fn two_packages() -> Sandbox {
    let gpu = |list| Gpu { uuid: OsBytes::default(), cpus: CpuSet::parse(list).unwrap() };
    let gpus = ["0-3,8-11", "0-3,8-11", "4-7,12-15", "4-7,12-15"].map(gpu).into();
    let packages = ["0-3,8-11", "4-7,12-15"].map(|list| CpuSet::parse(list).unwrap()).to_vec();
    let all: CpuSet = (0..16).collect();
    let topology = Topology::new(&topology::Facts {
        allowed: all.clone(),
        online: all,
        numa_nodes: packages.clone(),
        numa_numbers: vec![0, 1],
        l3_groups: packages.clone(),
        packages,
        cores: (0..8).map(|core| [core, core + 8].into_iter().collect()).collect(),
        kinds: Vec::new(),
    });
    Sandbox { processors: Some(Box::new(Processors { topology, has_quota: false, gpus })), ..with(FOUR) }
}

fn cpus(actions: &[NodeAction]) -> Vec<String> {
    let of = |action: &NodeAction| {
        let NodeAction::Spawn { exec, .. } = action else { return None };
        let cpus = exec.cpus.as_ref()?;
        assert_eq!(exec.memory, Some(u32::from(cpus.contains(4) || cpus.contains(6))), "of {cpus}");
        Some(cpus.to_string())
    };
    actions.iter().filter_map(of).collect()
}

#[test]
fn ranks_are_bound_near_their_gpus() {
    let of = |share, lists: &[&str]| {
        let mut rig = Rig::new();
        rig.root(start_of(share, 2, u32::try_from(lists.len()).unwrap()));
        for (number, list) in (0..).zip(lists) {
            rig.root(app_of(number, &base_with(&[list])));
        }
        rig.root(spawn(0..2, true));
        cpus(&rig.receive(NodeEvent::SandboxReady(two_packages())))
    };
    let [first, second] = ["0-3,8-11", "4-7,12-15"];
    let list = "CUDA_VISIBLE_DEVICES=3,1";
    assert_eq!(of(Share::Each(1), &[list]), [second, first]);
    assert_eq!(of(Share::Each(1), &[list, list]), [second, first]);
    assert_eq!(of(Share::Each(1), &["CUDA_VISIBLE_DEVICES=3,2"]), ["4-5,12-13", "6-7,14-15"]);
    assert_eq!(of(Share::Each(2), &["A=b"]), [first, second]);
    assert_eq!(of(Share::Unset, &[list]), [first, second], "an even share");
    assert_eq!(of(Share::Each(1), &[list, "A=b"]), [first, second], "programs see different GPUs");
}

#[test]
fn another_generation_has_the_same() {
    let mut rig = Rig::new();
    rig.root(ToNode::Start(Start { local_size: 2, can_start_more: true, ..start() }.with(|settings| {
        settings.gpus = Share::Each(1);
        settings.restarts.most = 2;
    })));
    rig.root(app_of(0, &base_with(&["CUDA_VISIBLE_DEVICES=3,2"])));
    rig.root(spawn(0..1, true));
    let cuda = |actions: &[NodeAction]| found(actions, b"CUDA_VISIBLE_DEVICES");
    let actions = rig.receive(NodeEvent::SandboxReady(two_packages()));
    assert_eq!((cuda(&actions), cpus(&actions)), (vec![Some("3".into())], vec!["4-5,12-13".into()]));
    rig.spawned(0);
    rig.root(ToNode::Clear { sig: TERM, grace: Span::from_secs(1), port: PortPlan::None });
    rig.exited(0, by(TERM));
    rig.examined(0, Facts::default());
    rig.left(0);
    rig.streams_end(0);
    rig.receive(NodeEvent::Renewed { port: 0 });
    rig.root(ToNode::Again(Rendezvous { restart: 1, ..start().rendezvous.unwrap_or_default() }));
    let actions = rig.root(spawn(1..2, true));
    assert_eq!(cuda(&actions), [Some("2".into())], "of the user's, too");
    assert_eq!(cpus(&actions), ["6-7,14-15"]);
}
