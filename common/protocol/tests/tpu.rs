//! The variables of ranks on TPU hosts, and the facts of a TPU VM, beside what is expected of them.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test stops at what it did not expect"
)]
#![allow(clippy::disallowed_methods, reason = "reads files of expected results")]
#![allow(clippy::print_stdout, reason = "says how many ranks were compared")]

use rlaunch_base::capped::Capped;
use rlaunch_base::id::{AppIndex, JobId, LocalRank, NodeId, Rank, WorldId};
use rlaunch_base::os_strings::OsStrings;
use rlaunch_plan::tpu::{Attributes, Bounds, FactsSource, SliceHost, TpuFacts, TpuHost, plan};
use rlaunch_protocol::env::{self, Host, RankVariables};
use rlaunch_protocol::settings::Tier;
use serde_json::Value;
use std::collections::BTreeMap;

type Variables = BTreeMap<String, String>;

fn golden(name: &str) -> Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/tpu");
    let other = std::env::var("RLAUNCH_TPU_VECTORS").ok().filter(|_| name == "environment.json");
    let path = other.unwrap_or_else(|| format!("{folder}/{name}"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

/// The facts that a host of a case would send.
fn facts_of(case: &Value, slice: &Value, worker: u32) -> TpuFacts {
    let mut facts = TpuFacts::of_hostfile(&text(&slice["name"]), worker, number(&case["chips_per_host"]));
    facts.accelerator_type = text(&case["accelerator_type"]).as_str().into();
    facts.chips_bounds = Bounds::parse(&text(&case["chips_per_host_bounds"]));
    facts.host_bounds = Bounds::parse(&text(&case["host_bounds"]));
    facts.address = text(&slice["hosts"][worker as usize]).as_str().into();
    if case["facts_from"] == "metadata" {
        facts.source = FactsSource::Metadata;
        let peers = slice["hosts"].as_array().unwrap().iter().map(|host| text(host).as_str().into());
        facts.peers = Capped::chunks(peers).remove(0);
    }
    facts
}

fn is_of_tpu(name: &str) -> bool {
    ["TPU_", "MEGASCALE_", "EXECUTOR_CALL_", "CLOUD_TPU_"].iter().any(|start| name.starts_with(start))
}

/// The variables of the contract that a rank of the host gets.
fn variables(host: &TpuHost, local_rank: u32) -> Variables {
    let chips = host.rank(LocalRank::new(local_rank));
    let all = Host {
        job: JobId([7; 16]),
        world_size: 1,
        local_size: host.ranks,
        node_index: 0,
        nodes: 1,
        app: AppIndex::new(0),
        app_name: b"default",
        app_size: 1,
        apps: 1,
        group: b"",
        world: WorldId::new(0),
        master_addr: b"127.0.0.1",
        master_port: 20_000,
        agent_store: false,
        cpus: None,
        tier: Tier::T1,
        socket: b"",
        interface: None,
        interface_asked: false,
        jax: false,
        mpi: None,
        local_devices: None,
        restart: 0,
        max_restarts: 0,
        healthy: 1,
        round: 0,
        slurm: None,
        tpu: Some(host),
        skips_tpu_lock: false,
    };
    let values = RankVariables {
        rank: Rank::new(0),
        healthy: Rank::new(0),
        initial: Rank::new(0),
        local_rank: LocalRank::new(local_rank),
        app_rank: 0,
        tied: 0,
        error_file: b"",
        gpus: None,
        slurm: false,
        threads: None,
        mpi: false,
        tpu: Some(&chips),
    };
    let pinned = OsStrings::default();
    let mut own = OsStrings::default();
    env::of_rank(&values, &pinned, &mut own);
    let shared = env::common(&all, &pinned);
    let entries = shared.iter().chain(own.iter()).map(|entry| String::from_utf8(entry.to_vec()).unwrap());
    let pairs =
        entries.map(|entry| entry.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap());
    pairs.filter(|(name, _)| is_of_tpu(name)).collect()
}

#[test]
fn ranks_have_the_variables_of_the_vectors() {
    let all = golden("environment.json");
    let mut compared = 0;
    for case in all["cases"].as_array().unwrap() {
        let ranks = number(&case["ranks_per_host"]);
        let mut facts = vec![];
        for slice in case["slices"].as_array().unwrap() {
            let count = u32::try_from(slice["hosts"].as_array().unwrap().len()).unwrap();
            facts.extend((0..count).map(|worker| facts_of(case, slice, worker)));
        }
        let hosts = facts.iter().zip(0..).map(|(facts, n)| SliceHost { node: NodeId::new(n), facts, ranks });
        let parts = plan(&hosts.collect::<Vec<_>>(), false).unwrap();
        let per_slice = u32::try_from(case["slices"][0]["hosts"].as_array().unwrap().len()).unwrap();
        for rank in case["ranks"].as_array().unwrap() {
            let node = NodeId::new(number(&rank["slice"]) * per_slice + number(&rank["host"]));
            let (_, part) = parts.iter().find(|(own, _)| *own == node).unwrap();
            let expected: Variables =
                rank["env"].as_object().unwrap().iter().map(|(name, value)| (name.clone(), text(value))).collect();
            assert_eq!(variables(part, number(&rank["local_rank"])), expected, "{}: {rank}", case["name"]);
            compared += 1;
        }
    }
    println!("{compared} ranks compared");
    assert!(compared > 0);
}

#[test]
fn attributes_of_a_tpu_vm_say_it_in_two_formats() {
    let all = golden("metadata.json");
    let of = |name: &str| -> Vec<String> {
        let path = format!("instance/attributes/{name}");
        let good = all["good"].as_array().unwrap().iter().filter(|row| row["path"] == path && row["status"] == 200);
        good.map(|row| text(&row["body"])).collect()
    };
    let mut attributes = Attributes {
        worker_number: of("agent-worker-number").pop(),
        instance_id: of("instance-id").pop(),
        accelerator_type: of("accelerator-type").pop(),
        tpu_env: of("tpu-env").pop(),
        endpoints: None,
    };
    let names = |facts: &TpuFacts| facts.peers.iter().map(|peer| peer.to_string()).collect::<Vec<_>>();
    let expected = [["10.0.1.1", "10.0.1.2"], ["t1v-n-1-w-0", "t1v-n-1-w-1"]];
    for (endpoints, expected) in of("worker-network-endpoints").into_iter().zip(expected) {
        attributes.endpoints = Some(endpoints);
        let facts = TpuFacts::of_attributes(&attributes).unwrap();
        assert_eq!(names(&facts), expected);
        assert_eq!((facts.worker, facts.chips, facts.slice.to_string()), (1, 4, "pod-a".to_owned()));
        assert_eq!((facts.chips_bounds, facts.host_bounds), (Bounds::parse("2,2,1"), Bounds::parse("1,1,2")));
    }
    let only_env = Attributes { tpu_env: of("tpu-env").pop(), ..Attributes::default() };
    let facts = TpuFacts::of_attributes(&only_env).unwrap();
    assert_eq!((facts.worker, facts.slice.to_string(), names(&facts).len()), (1, "pod-a".to_owned(), 0));
    assert_eq!(facts.accelerator_type.to_string(), "v4-16");
    assert_eq!(TpuFacts::of_attributes(&Attributes::default()), None);
}
