//! Variables of ranks on TPU hosts. Hosts are agents on this machine with the variables of GKE's containers, or lines of a hostfile:
//! no chip is needed to say who is who.

use crate::jax;
use crate::place;
use crate::plan::Plan;
use crate::watch::Exit;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;

type Variables = BTreeMap<String, String>;

/// tests/golden/tpu/environment.json, or the file that RLAUNCH_TPU_VECTORS names.
fn cases() -> Vec<Value> {
    let path = std::env::var("RLAUNCH_TPU_VECTORS")
        .map_or_else(|_| place::root().join("tests/golden/tpu/environment.json"), Into::into);
    let all: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    all["cases"].as_array().unwrap().clone()
}

fn is_of_tpu(name: &str) -> bool {
    ["TPU_", "MEGASCALE_", "EXECUTOR_CALL_", "CLOUD_TPU_"].iter().any(|start| name.starts_with(start))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The command that stands for a connection to a host: it has the variables of a container there, and stale ones.
fn container(case: &Value) -> String {
    let mut script = String::from("#!/bin/sh\nexport MEGASCALE_NUM_SLICES=9 MEGASCALE_SLICE_ID=8\ncase $1 in\n");
    let mut number = 0;
    for slice in case["slices"].as_array().unwrap() {
        let hosts: Vec<&str> = slice["hosts"].as_array().unwrap().iter().map(text).collect();
        for worker in 0..hosts.len() {
            let pairs = [
                ("TPU_WORKER_ID", worker.to_string()),
                ("TPU_WORKER_HOSTNAMES", hosts.join(",")),
                ("TPU_NAME", text(&slice["name"]).to_owned()),
                ("TPU_CHIPS_PER_HOST_BOUNDS", text(&case["chips_per_host_bounds"]).to_owned()),
                ("TPU_HOST_BOUNDS", text(&case["host_bounds"]).to_owned()),
                ("TPU_ACCELERATOR_TYPE", text(&case["accelerator_type"]).to_owned()),
            ];
            write!(script, "h{number}) export").unwrap();
            for (name, value) in pairs {
                write!(script, " {name}={value}").unwrap();
            }
            script.push_str(" ;;\n");
            number += 1;
        }
    }
    script.push_str("esac\nshift\nexec \"$@\"\n");
    script
}

/// A job on the hosts of a case. Each rank runs these words.
fn job(case: &Value, words: &[&str]) -> Plan {
    let ranks = case["ranks_per_host"].as_u64().unwrap().to_string();
    let hosts: usize =
        case["slices"].as_array().unwrap().iter().map(|slice| slice["hosts"].as_array().unwrap().len()).sum();
    let plan = if case["facts_from"] == "hostfile" {
        let plan = Plan::rlaunch(["--hostfile", "hosts", "--ppn", &ranks]);
        let line = format!("localhost slots=8 slice=a id=0 devices={}\n", case["chips_per_host"]);
        std::fs::write(plan.scratch().path("hosts"), line).unwrap();
        plan
    } else {
        let all = (0..hosts).map(|n| format!("h{n}")).collect::<Vec<_>>().join(",");
        let plan = Plan::rlaunch(["-H", &all, "--ppn", &ranks]);
        let on = plan.scratch().path("on");
        std::fs::write(&on, container(case)).unwrap();
        std::fs::set_permissions(&on, std::fs::Permissions::from_mode(0o755)).unwrap();
        plan.args(["--launcher", &format!("exec:{} {{host}}", on.display())])
    };
    let dir = plan.scratch().dir().to_owned();
    let plan = plan.cwd(dir);
    // Values of the login host must not travel, and a preemption leaves stale ones.
    let plan = plan.env("TPU_WORKER_ID", "7").env("MEGASCALE_COORDINATOR_ADDRESS", "gone:8081");
    // On the login host itself, the shape of its slice is that of its ranks.
    let plan = if case["facts_from"] == "hostfile" { plan } else { plan.env("TPU_TOPOLOGY", "9x9x9") };
    plan.args(words)
}

#[test]
fn ranks_have_the_variables_of_the_vectors_and_no_others() {
    let mut compared = 0;
    for case in cases() {
        let plan = job(&case, &["sh", "-c", "env > env.$RANK"]);
        let dir = plan.scratch().dir().to_owned();
        let done = plan.start().code(0);
        for rank in case["ranks"].as_array().unwrap() {
            let expected: Variables = rank["env"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, value)| (name.clone(), text(value).to_owned()))
                .collect();
            let all = std::fs::read_to_string(dir.join(format!("env.{}", rank["rank"]))).unwrap();
            let pairs = all.lines().filter_map(|line| line.split_once('=')).filter(|(name, _)| is_of_tpu(name));
            let has: Variables = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            // GKE's variables name the hosts; where the vectors take the address of another source, they are the same.
            assert_eq!(has, expected, "{}: {rank}\n{}", case["name"], done.err());
            compared += 1;
        }
    }
    place::say(&format!("{compared} ranks compared with the vectors"));
    assert!(compared > 0);
}

/// JAX's own detector, asked in the ranks.
#[test]
fn jax_finds_the_processes_by_these_variables() {
    let Some(python) = jax::python() else { return };
    const ASK: &str = "import os, sys\nfrom jax._src.clusters.cloud_tpu_cluster import GkeTpuCluster as c\n\
                       os.write(1, f'{c.get_process_id()} {c.get_process_count()} {c.get_coordinator_address(5, None)} {os.environ[\"RANK\"]}\\n'.encode())\n";
    for case in cases().into_iter().filter(|case| text(&case["name"]).starts_with("4 slices")) {
        let plan = job(&case, &[python.to_str().unwrap(), "-c", ASK]);
        let done = plan.env("JAX_PLATFORMS", "cpu").start().code(0);
        let expected: Vec<String> = (0..8).map(|n| format!("{n} 8 10.0.1.1:8482 {n}")).collect();
        assert_eq!(done.sorted(), expected, "{}", done.err());
    }
}

#[test]
fn variables_of_the_user_take_precedence_and_other_jobs_keep_their_variables() {
    let case = cases().into_iter().find(|case| text(&case["name"]).starts_with("one slice of 4")).unwrap();
    let done = job(&case, &["-x", "TPU_NAME=mine", "sh", "-c", "echo $RANK $TPU_NAME $TPU_SLICE_NAME $TPU_WORKER_ID"]);
    let expected: Vec<String> = (0..4).map(|n| format!("{n} mine a {n}")).collect();
    assert_eq!(done.start().code(0).sorted(), expected);
    let plan = Plan::rlaunch(["-n", "1", "sh", "-c", "echo $TPU_WORKER_ID $MEGASCALE_NUM_SLICES"]);
    let done = plan.env("TPU_WORKER_ID", "3").env("MEGASCALE_NUM_SLICES", "2").start().code(0);
    assert_eq!(done.out(), "3 2\n", "this is no TPU host");
}

#[test]
fn part_of_a_slice_is_refused_unless_allowed() {
    let alone = |words: &[&str]| {
        let plan = Plan::rlaunch(words.iter().chain(&["sh", "-c", "echo $TPU_WORKER_ID $TPU_WORKER_HOSTNAMES"]));
        plan.env("TPU_WORKER_ID", "1").env("TPU_WORKER_HOSTNAMES", "a,b,c,d").env("TPU_NAME", "pod")
    };
    let done = alone(&["-n", "1"]).start().code(125);
    done.says("slice pod has 4 hosts, and the job has 1 of them: libtpu would wait for the others for ever");
    done.says("--allow-partial");
    assert_eq!(done.out(), "");
    assert_eq!(alone(&["-n", "1", "--allow-partial"]).start().code(0).out(), "0 localhost\n");
}

#[test]
fn hosts_that_do_not_fit_are_refused_by_name() {
    let refused = |file: &str, words: &[&str], said: &str| {
        let plan = Plan::rlaunch(["--launcher", "exec:env NAME={host}", "--hostfile", "hosts"].iter().chain(words));
        std::fs::write(plan.scratch().path("hosts"), file).unwrap();
        let dir = plan.scratch().dir().to_owned();
        let done = plan.cwd(dir).args(["echo", "never"]).start().end();
        assert!(matches!(done.exit, Exit::Code(2 | 125)), "{file}: {}", done.err());
        assert_eq!(done.out(), "", "{file}");
        done.says(said);
    };
    refused("a slice=x id=0 devices=4\nb slice=x id=0 devices=4\n", &[], "two hosts are number 0 of slice x");
    refused("a slice=x id=0 devices=4\nb slice=x id=2 devices=4\n", &[], "number 2 of slice x, which has 2 hosts");
    refused("a slice=x id=0 devices=4\n", &["--ppn", "3"], "3 ranks cannot share the 4 chips of a host");
    refused("a slice=x devices=4\n", &[], "slice= needs id= beside it");
    refused("a devices=0\n", &[], "devices takes the number of TPU chips of the host, from 1 to 64, got '0'");
}

#[test]
fn hosts_of_the_own_slice_are_a_group() {
    let hosts = |plan: Plan| plan.env("TPU_WORKER_ID", "1").env("TPU_WORKER_HOSTNAMES", "h0,h1,h2");
    let ask = || Plan::tool(place::rlaunch(), place::Scratch::new());
    assert_eq!(hosts(ask()).args(["hosts", "-e", "@tpu:slice!h1"]).start().code(0).out(), "h0 h2\n");
    // Agents here are no TPU hosts: all of them would have the same number.
    let on = "exec:env -u TPU_WORKER_ID NAME={host}";
    let done = hosts(Plan::rlaunch(["--launcher", on, "-H", "@tpu:slice", "echo", "ran"])).start().code(0);
    assert_eq!(done.out(), "ran\nran\nran\n");
    done.says("h0, h1 and h2 are names of one machine");
    let none = ask().args(["hosts", "@tpu:slice"]).start().code(2);
    none.says("this host is on no TPU slice whose hosts are known");
}

/// Both hosts of a slice are active, or neither: GKE's variables on the hosts name the slices.
#[test]
fn slices_that_hosts_know_are_keys_of_a_policy() {
    let Some(train) = place::example("train") else { return };
    let case = cases().into_iter().find(|case| text(&case["name"]).starts_with("4 slices")).unwrap();
    let policy = ["--assign", "all,shift,group(slice)==2", "--min-world", "2"];
    let words = [train.to_str().unwrap(), "--resilient", "--epochs", "1000000"];
    let running = job(&case, &[&policy[..], &words[..]].concat()).start();
    running.says_on_stdout("epoch   3", 1);
    let pid = running.event_of("rank.started", 5)["pid"].as_i64().unwrap();
    kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGKILL).unwrap();
    running.says_on_stderr("continuing with 6 ranks");
    running.signal(Signal::SIGTERM);
    running.end().says("0 left running");
}
