//! The address of the rendezvous, where hosts do not reach each other at every address that they have.

use crate::bed::Bed;
use crate::case::Done;

/// A network between the hosts beside the one by which ssh goes, as many clusters have one.
const DATA: &str = "ip link add link eth0 name data0 type macvlan mode bridge && ip addr add 10.88.0.$N/24 dev data0 && \
                    ip link set data0 up";
/// Nothing but ssh, and that from login only, gets in by the addresses that ssh uses.
const SHUT: &str = "nft add table inet m && nft add chain inet m i '{ type filter hook input priority 0; }' && \
                    nft add rule inet m i ip saddr != 10.77.0.1 ip daddr 10.77.0.0/16 'tcp flags & (syn|ack) == syn'";

/// torch's own server looks up the name of each client: five seconds each where no server answers.
const SWIFT: &str = "RES_OPTIONS=timeout:1 attempts:1";

fn on(bed: &Bed, node: u32, script: &str) {
    let (host, script) = (format!("node{node}"), format!("N={}; {script}", node + 1));
    bed.run(["exec", "--cwd", "/", &host, "sh", "-c", &script]);
}

fn runs(bed: &Bed, words: &[&str], code: i32) -> Done {
    let all = ["rlaunch", "--ssh-fast"].iter().chain(words).copied();
    let done = bed.plan("tester", "login", all).with_events().start().code(code);
    bed.clean(2);
    done
}

const PRINT_ADDRESSES: [&str; 3] =
    ["sh", "-c", "echo $MASTER_ADDR $GLOO_SOCKET_IFNAME $TP_SOCKET_IFNAME ${NCCL_SOCKET_IFNAME-none}"];

fn printed(bed: &Bed, options: &[&str]) -> (Vec<String>, Done) {
    let words: Vec<&str> = options.iter().chain(&PRINT_ADDRESSES).copied().collect();
    let done = runs(bed, &words, 0);
    let mut lines = done.sorted();
    lines.dedup();
    (lines, done)
}

#[test]
fn ranks_meet_where_all_hosts_reach_that_of_rank_0() {
    let Some(bed) = Bed::up(3) else { return };
    for node in 0..3 {
        on(&bed, node, DATA);
    }
    // The address of the ssh connection goes first.
    let (lines, done) = printed(&bed, &["-H", "node[0-2]"]);
    assert_eq!((lines, done.err()), (vec!["10.77.1.1 eth0 eth0 none".to_owned()], String::new()));
    let (lines, _) = printed(&bed, &["-H", "node[0-2]", "--interface", "data0"]);
    assert_eq!(lines, ["10.88.0.1 data0 data0 =data0"]);
    for (verdict, hosts) in [("drop", "node[0-2]:2"), ("reject with tcp reset", "node[0-1]:2")] {
        for node in 0..3 {
            on(&bed, node, &format!("nft delete table inet m 2>/dev/null; {SHUT} {verdict}"));
        }
        let (lines, done) = printed(&bed, &["-H", hosts]);
        assert_eq!(lines, ["10.88.0.1 data0 data0 none"], "{}", done.err());
        done.says("rlaunch: MASTER_ADDR is 10.88.0.1, because node");
        // An address that was asked for is not replaced, and the user's own word is not doubted.
        let done = runs(&bed, &["-H", hosts, "--interface", "eth0", "true"], 125);
        done.says("cannot reach node0, where rank 0 runs: tried 10.77.1.1:").says("another --interface");
        let (lines, _) = printed(&bed, &["-H", hosts, "-x", "MASTER_ADDR=10.77.1.1", "-x", "GLOO_SOCKET_IFNAME=x"]);
        assert!(lines.iter().all(|line| line.starts_with("10.77.1.1 x ")), "{lines:?}");
    }
    for python in crate::torch::pythons() {
        let program = "import torch, torch.distributed as d; d.init_process_group('gloo'); t = torch.ones(3); \
                       d.all_reduce(t); print('sum', int(t[0])); d.destroy_process_group()";
        let python = python.to_str().unwrap();
        for store in ["agent", "rank0"] {
            let words = ["-H", "node[0-1]", "--master-store", store, "-x", SWIFT, python, "-c", program];
            assert_eq!(runs(&bed, &words, 0).sorted(), vec!["sum 2"; 2], "{python} {store}");
        }
    }
    bed.down();
}

#[test]
fn a_job_whose_hosts_do_not_reach_each_other_is_refused_in_words() {
    let Some(bed) = Bed::up(3) else { return };
    on(&bed, 2, &format!("{SHUT} reject with tcp reset"));
    // A bridge that every host has leads to oneself, and is not offered.
    let bridge = "ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up";
    for node in 0..3 {
        on(&bed, node, bridge);
    }
    let words = ["sh", "-c", "echo $RANK $MASTER_ADDR"];
    let with = |options: &[&str], code: i32| {
        let all: Vec<&str> = options.iter().chain(&words).copied().collect();
        runs(&bed, &all, code)
    };
    let done = with(&["-H", "node2,node[0-1]"], 125);
    assert_eq!(done.out(), "");
    done.says("node[0-1] cannot reach node2, where rank 0 runs: tried 10.77.1.3:").says("(connection refused)");
    done.says("\n  try     --interface NAME, for a network that all hosts have in common");
    // An address that answers is not enough: 172.17.0.1 is everybody's own.
    with(&["-H", "node2,node0", "--interface", "docker0"], 125)
        .says("node0 cannot reach node2")
        .says("tried 172.17.0.1:");
    // It reaches the others, and none of them reaches it.
    assert_eq!(with(&["-H", "node0,node2"], 0).sorted(), ["0 10.77.1.1", "1 10.77.1.1"]);
    // Where the others are enough another host has rank 0.
    let done = with(&["-H", "node2,node[0-1]", "--min-hosts", "2"], 0);
    assert_eq!(done.sorted(), ["0 10.77.1.1", "1 10.77.1.1"]);
    done.says("continuing with 2 ranks on 2 of 3 hosts, without node2: no other host can reach node2");
    bed.down();
}

#[test]
fn the_launchers_own_host_is_found_from_behind_a_jump_host_too() {
    let Some(bed) = Bed::up(2) else { return };
    let config = "mkdir -p -m 700 ~/.ssh; printf 'Host node1\\n ProxyJump node0\\n' >~/.ssh/config";
    bed.run(["exec", "--user", "tester", "--cwd", "/", "login", "sh", "-c", config]);
    for (hosts, addr) in [("login,node1", "10.77.0.1"), ("node1,login", "10.77.1.2")] {
        let (lines, done) = printed(&bed, &["-H", hosts]);
        assert_eq!((lines, done.err()), (vec![format!("{addr} eth0 eth0 none")], String::new()));
    }
    bed.down();
}
