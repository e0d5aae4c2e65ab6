//! A MASTER_ADDR and a MASTER_PORT that the user gave: where ranks could not meet, or would meet those of another job, nothing starts.

use crate::bed::Bed;
use crate::case::{Case, Done};
use crate::place;
use crate::plan::Plan;
use crate::watch::Exit;
use nix::sys::signal::Signal;
use std::net::TcpListener;

/// A job on hosts of the testbed, from its login host: `$RL` with these words after the variables.
fn on_login(bed: &Bed, vars: &str, words: &str) -> Plan {
    let script = format!("{vars} exec \"$RL\" --ssh-fast {words} sh -c 'echo $RANK $MASTER_ADDR'");
    bed.plan("tester", "login", ["sh", "-c", &script]).with_events()
}

fn is_refused(done: &Done) {
    assert_eq!((done.out(), done.named("rank.started").count()), (String::new(), 0), "{}", done.err());
}

#[test]
fn a_master_addr_that_does_not_lead_to_rank_0s_host_is_refused_before_ranks_start() {
    let Some(bed) = Bed::up(2) else { return };
    let two = "-H node0,node1";
    for (vars, words) in [
        ("MASTER_ADDR=localhost MASTER_PORT=29500", ""),
        ("", "--master-addr localhost"),
        ("", "-x MASTER_ADDR=localhost"),
        ("", "-x MASTER_ADDR=localhost --master-store rank0"),
    ] {
        let done = on_login(&bed, vars, &format!("{two} {words}")).start().code(125);
        is_refused(&done);
        done.says(
            "error: MASTER_ADDR=localhost is a different machine on each host; rank 0 runs on node0 (10.77.1.1)\n  \
             try     leave MASTER_ADDR out",
        );
        assert!(!done.err().contains("--min-hosts"), "{}", done.err());
    }
    for addr in ["127.0.1.1", "::1"] {
        is_refused(&on_login(&bed, "", &format!("{two} -x MASTER_ADDR={addr}")).start().code(125));
    }
    for addr in ["10.77.1.2", "node1", "192.0.2.9"] {
        let done = on_login(&bed, "", &format!("{two} -x MASTER_ADDR={addr}")).start().code(125);
        is_refused(&done);
        done.says(&format!("error: MASTER_ADDR={addr} is no address of node0 (10.77.1.1), where rank 0 runs\n"));
        done.says("--master-store rank0, if that address is translated (NAT)");
    }
    let goes = |words: &str, lines: &[&str]| {
        assert_eq!(on_login(&bed, "", words).start().code(0).sorted(), lines, "{words}");
    };
    goes("-H node0,node1 --master-addr 10.77.1.1", &["0 10.77.1.1", "1 10.77.1.1"]);
    goes("-H node0,node1 --master-addr node0", &["0 node0", "1 node0"]);
    goes("-H node0,node1 --master-addr 192.0.2.9 --master-store rank0", &["0 192.0.2.9", "1 192.0.2.9"]);
    let note = "rlaunch: MASTER_ADDR=nosuchname cannot be resolved on this host\n";
    let (option, given) = ("--master-addr nosuchname", "-x MASTER_ADDR=nosuchname");
    for words in [format!("{two} {option}"), format!("{two} {given}"), format!("-H node0 -n 2 {option}")] {
        on_login(&bed, "", &words).start().code(0).says(note);
    }
    for words in [format!("-H node0 -n 1 {option}"), format!("{two} --master-addr node0")] {
        let done = on_login(&bed, "", &words).start().code(0);
        assert!(!done.err().contains("cannot be resolved"), "{}", done.err());
    }
    goes("-H node0 -n 1 --master-addr localhost", &["0 localhost"]);
    bed.clean(2);
    bed.down();
}

/// Rank 0 runs until its input ends.
const HOLDS: [&str; 3] = ["sh", "-c", "echo $RANK $MASTER_PORT; [ $RANK != 0 ] || exec cat"];

/// A port of this host that was free a moment ago.
fn a_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A job of two ranks whose MASTER_PORT was given, in one of three ways.
fn given<'a>(way: &str, port: u16, words: impl IntoIterator<Item = &'a str>) -> Plan {
    let pair = format!("MASTER_PORT={port}");
    let options = match way {
        "option" => vec![format!("--master-port={port}")],
        "-x" => vec!["-x".to_owned(), pair],
        _ => vec![],
    };
    let words = options.into_iter().chain(words.into_iter().map(str::to_owned));
    let plan = Plan::rlaunch(["-n".to_owned(), "2".to_owned()].into_iter().chain(words));
    if way == "variable" { plan.env("MASTER_PORT", port.to_string()) } else { plan }
}

/// The end of a job whose port is another's; that one is named.
fn is_refused_for(second: Case, first: &Case) {
    let done = second.code(125);
    is_refused(&done);
    let (job, agent) = (first.event("job.start")["job"].clone(), first.event("host.ready")["agent"].clone());
    let owner = format!("belongs to another job of rlaunch {} (its agent is process {agent})\n", job.as_str().unwrap());
    done.says(&owner).says("  try     another port, or leave MASTER_PORT out");
}

fn lets_go(mut first: Case) -> Done {
    drop(first.take_stdin());
    first.code(0)
}

#[test]
fn a_given_port_belongs_to_one_job_at_a_time() {
    let ways = ["option", "variable", "-x"];
    for way in ways {
        let port = a_port();
        let first = given(way, port, HOLDS).stdin_pipe().start();
        first.events("rank.started", 2);
        for second in ways {
            is_refused_for(given(second, port, ["true"]).start(), &first);
        }
        // Another port of the same block.
        given(way, port ^ 1, ["true"]).start().code(0);
        assert_eq!(lets_go(first).sorted(), [format!("0 {port}"), format!("1 {port}")]);
        for _ in 0..4 {
            given(way, port, ["true"]).start().code(0);
        }
    }
}

#[test]
fn given_port_that_another_job_has_chosen_is_refused() {
    let first = Plan::rlaunch(["-n", "2"].into_iter().chain(HOLDS)).stdin_pipe().start();
    let chosen = u16::try_from(first.event("host.ready")["master_port"].as_u64().unwrap()).unwrap();
    for port in [chosen, chosen + 7] {
        let done = given("option", port, ["true"]).start().code(125);
        is_refused(&done);
        done.says(" belongs to another job of rlaunch\n");
    }
    given("option", chosen + 8, ["true"]).start().code(0);
    lets_go(first);
    // A job within a job may use the outer one's port.
    let nested = "\"$RL\" -n 1 sh -c 'echo $MASTER_PORT; \"$RL\" -n 2 -x MASTER_PORT printenv MASTER_PORT'";
    let out = Plan::shell(nested).start().code(0).out();
    let mut ports: Vec<&str> = out.lines().collect();
    assert_eq!(ports.len(), 3);
    ports.dedup();
    assert_eq!(ports.len(), 1, "{out}");
}

/// A service of Kubernetes that is called `master` sets it so for every pod.
#[test]
fn a_master_port_that_is_no_port_is_noted() {
    let ranks = |n: &str| Plan::rlaunch(["-n", n, "printenv", "MASTER_PORT"]);
    for port in ["abc", "0", "99999", "tcp://10.0.0.1:80"] {
        let done = ranks("2").env("MASTER_PORT", port).start().code(0);
        done.says(&format!("rlaunch: MASTER_PORT={port} is no port (1 to 65535); the ranks get it unchanged"));
        assert_eq!(done.sorted(), [port, port]);
    }
    let option = Plan::rlaunch(["-n", "2", "-x", "MASTER_PORT=x y", "true"]).start().code(0);
    option.says("rlaunch: MASTER_PORT='x y' is no port");
    for (n, port) in [("1", "abc"), ("2", "29500")] {
        assert_eq!(ranks(n).env("MASTER_PORT", port).start().code(0).err(), "");
    }
}

#[test]
fn a_given_port_stays_with_its_job_when_all_ranks_are_started_again() {
    for tier in place::tiers() {
        let port = a_port();
        let script = "[ $RLAUNCH_RESTART_COUNT$RANK != 01 ] || exit 3; exec sleep 1000";
        let words = ["--max-restarts", "1", "--restart-delay", "0", "sh", "-c", script];
        let first = given("option", port, words).contain(tier).start();
        first.until("a rank of the second generation", |seen| {
            (seen.named("rank.started").filter(|e| e["generation"] == 1).count() == 2).then_some(())
        });
        is_refused_for(given("-x", port, ["true"]).start(), &first);
        first.signal(Signal::SIGINT);
        first.finish(Exit::Signal(Signal::SIGINT));
        given("option", port, ["true"]).contain(tier).start().code(0);
    }
}

#[test]
fn a_given_port_is_claimed_on_rank_0s_host() {
    let Some(bed) = Bed::up(2) else { return };
    let job = |user: &str, host: &str, options: &[&str], program: &[&str]| {
        let words = ["rlaunch", "--ssh-fast", "-x", "MASTER_PORT=29541"].iter().chain(options).chain(program).copied();
        bed.plan(user, host, words).with_events()
    };
    let first = job("tester", "login", &["-H", "node0,node1"], &HOLDS).stdin_pipe().start();
    first.events("rank.started", 2);
    let first_ready = first.events("host.ready", 2);
    let name = first.event("job.start")["job"].as_str().unwrap().to_owned();
    let agent = first_ready.iter().find(|e| e["node"] == 0).unwrap()["agent"].clone();
    for (user, host, options) in [
        ("tester", "login", &["-H", "node0,node1"][..]),
        ("tester", "login", &["-H", "node0,node1", "--max-restarts", "2"]),
        ("tester", "node0", &["-n", "2"]),
    ] {
        let done = job(user, host, options, &["true"]).start().code(125);
        is_refused(&done);
        done.says(&format!(
            "error: MASTER_PORT=29541 on node0 belongs to another job of rlaunch {name} (its agent is process {agent})\n"
        ));
        assert!(!done.err().contains("--min-hosts"), "{}", done.err());
    }
    // Any user can take the name of a port: it refuses no other user.
    job("root", "login", &["-H", "node0"], &["true"]).start().code(0);
    // Rank 0 is on the other host: there the port is free.
    job("tester", "login", &["-H", "node1,node0"], &["true"]).start().code(0);
    assert_eq!(lets_go(first).sorted(), ["0 29541", "1 29541"]);
    job("tester", "login", &["-H", "node0,node1"], &["true"]).start().code(0);
    bed.clean(2);
    bed.down();
}
