//! Jobs on slices: five of a testbed with two hosts each. Hosts lose their power and come back, and the job continues on whole slices.

use crate::bed::Bed;
use crate::case::{Case, Done};
use crate::census::Proc;
use crate::faults::part;
use crate::jax;
use crate::place;
use crate::plan::Plan;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Five slices of two hosts: `node0` is host 0 of slice a.
const HOSTS: &str = "node[0-1] slice=a id=0 devices=4\nnode[2-3] slice=b id=0 devices=4\nnode[4-5] slice=c id=0 devices=4\n\
                     node[6-7] slice=d id=0 devices=4\nnode[8-9] slice=e id=0 devices=4\n";

/// Prints the place of the rank. A rank ends when there is a file for its generation.
const PROGRAM: &str = "echo gen $RLAUNCH_RESTART_COUNT rank $RANK of $WORLD_SIZE slice $MEGASCALE_SLICE_ID/$MEGASCALE_NUM_SLICES \
                       $TPU_NAME $TPU_WORKER_ID $TPU_WORKER_HOSTNAMES at $MEGASCALE_COORDINATOR_ADDRESS; \
                       while ! [ -e go$RLAUNCH_RESTART_COUNT ]; do sleep 0.1; done";

/// A job on slices of these hosts.
fn plan(bed: &Bed, hosts: &str, options: &str, program: &[&str]) -> Plan {
    let all = ["rlaunch", "--ssh-fast", "-f", "hosts", "--lease", "4s"];
    let words = all.into_iter().chain(options.split(' ')).chain(program.iter().copied());
    let plan = bed.plan("root", "login", words).with_events();
    std::fs::write(plan.scratch().path("hosts"), hosts).unwrap();
    plan
}

fn job(bed: &Bed, options: &str) -> Plan {
    plan(bed, HOSTS, options, &["sh", "-c", PROGRAM])
}

/// The lines of the ranks of a generation, in the order of ranks, without the generation.
fn ranks(out: &str, generation: u32) -> Vec<String> {
    let begin = format!("gen {generation} ");
    let mut lines: Vec<String> = out.lines().filter_map(|line| line.strip_prefix(&begin)).map(str::to_owned).collect();
    lines.sort_by_key(|line| line.split(' ').nth(1).and_then(|rank| rank.parse::<u32>().ok()));
    lines
}

/// The same as it has to be: `slices` are the letters of their names.
fn expected(slices: &str) -> Vec<String> {
    let address = |letter: u8, worker: u8| format!("10.77.1.{}", 2 * (letter - b'a') + worker + 1);
    let (count, first) = (slices.len(), address(slices.as_bytes()[0], 0));
    let rank = |(place, letter): (usize, u8), worker: u8| {
        format!(
            "rank {} of {} slice {place}/{count} {} {worker} {},{} at {first}:8081",
            2 * place + usize::from(worker),
            2 * count,
            char::from(letter),
            address(letter, 0),
            address(letter, 1)
        )
    };
    slices.bytes().enumerate().flat_map(|slice| [rank(slice, 0), rank(slice, 1)]).collect()
}

/// All ranks of a generation have printed their place.
fn says(case: &Case, generation: u32, count: usize) {
    case.says_on_stdout(&format!("gen {generation} rank "), count);
}

/// Lets the ranks of a generation end.
fn go(dir: &Path, generation: u32) {
    std::fs::write(dir.join(format!("go{generation}")), "").unwrap();
}

/// Starts a job; its directory.
fn start(plan: Plan) -> (Case, PathBuf) {
    let dir = plan.scratch().dir().to_owned();
    (plan.start(), dir)
}

fn agents(bed: &Bed, hosts: &[&str]) -> Vec<[i32; 2]> {
    hosts.iter().map(|host| ["rlaunch-agent", "rlaunch-guard"].map(|comm| part(bed, host, comm))).collect()
}

fn slices_of(done: &Done) -> Vec<&Value> {
    done.named("slices").collect()
}

#[test]
fn slice_whose_host_loses_its_power_is_replaced_and_the_others_keep_their_agents() {
    let Some(bed) = Bed::up(10) else { return };
    // The second host of the second slice, and the first host of the first one.
    for (slice, host) in [(1, 1), (0, 0)] {
        let (case, dir) = start(job(&bed, "--slices 4 --spare-slices 1 --preempt-retries 5"));
        says(&case, 0, 8);
        // The spare slice is up, or will be soon.
        case.events("host.ready", 10);
        let taken = case.events("slices", 1)[0]["slices"].clone();
        let letter = taken[slice].as_str().unwrap();
        let lost = &format!("node{}", 2 * (letter.as_bytes()[0] - b'a') + host);
        let all: Vec<String> = (0..10).map(|n| format!("node{n}")).filter(|host| host != lost).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let before = agents(&bed, &all);
        bed.run(["kill-host", lost]);
        says(&case, 1, 8);
        assert_eq!(agents(&bed, &all), before, "agents and guardians of healthy hosts are the same");
        bed.start_host(lost);
        case.events("host.ready", 11);
        go(&dir, 1);
        let done = case.code(0);
        // The first four slices that are up are taken.
        let mut taken: Vec<char> =
            ranks(&done.out(), 0).iter().filter_map(|line| line.split(' ').nth(6)?.chars().next()).collect();
        taken.dedup();
        let first: String = taken.iter().collect();
        let spare: String = "abcde".chars().filter(|slice| !taken.contains(slice)).collect();
        let order = first.replace(letter, &spare);
        assert_eq!(ranks(&done.out(), 0), expected(&first), "{}", done.err());
        assert_eq!(ranks(&done.out(), 1), expected(&order), "{}", done.err());
        let slices = slices_of(&done);
        assert_eq!((slices.len(), slices[1]["spares"].as_array().unwrap().len()), (2, 0));
        let names = order.chars().map(String::from).collect::<Vec<_>>().join(", ");
        done.says(&format!("rlaunch: ranks run on 4 slices: {names} (0 of 1 spare slice up)"));
        bed.clean(5);
    }
    bed.down();
}

#[test]
fn fewer_slices_start_at_the_deadline_and_a_host_that_comes_back_makes_a_slice_whole() {
    let Some(bed) = Bed::up(10) else { return };
    bed.run(["kill-host", "node5"]);
    let four: String = HOSTS.lines().take(4).map(|line| format!("{line}\n")).collect();
    let options = "--slices 2,4 --scale-timeout 10s --connect-timeout 3s";
    let (case, dir) = start(plan(&bed, &four, options, &["sh", "-c", PROGRAM]));
    says(&case, 0, 4);
    case.says_on_stderr("rlaunch: ranks run on 2 slices: a, b (");
    bed.start_host("node5");
    case.events("host.ready", 8);
    // The next start of ranks takes what is up then.
    bed.run(["kill-host", "node1"]);
    says(&case, 1, 4);
    go(&dir, 1);
    let done = case.code(0);
    assert_eq!(ranks(&done.out(), 0), expected("ab"), "{}", done.err());
    assert_eq!(ranks(&done.out(), 1), expected("cb"), "{}", done.err());
    bed.start_host("node1");
    bed.clean(5);
    bed.down();
}

#[test]
fn slices_that_do_not_come_are_named_and_the_exit_code_is_75() {
    let Some(bed) = Bed::up(4) else { return };
    bed.run(["kill-host", "node3"]);
    let two: String = HOSTS.lines().take(2).map(|line| format!("{line}\n")).collect();
    let case = plan(&bed, &two, "--slices 2 --scale-timeout 6s --connect-timeout 2s", &["true"]).start();
    let done = case.code(75);
    done.says("rlaunch: waiting up to ").says("rlaunch: slice b is missing: node3: ");
    done.says("rlaunch: too few slices: 1 slice is up, and --slices asks for 2");
    assert_eq!(done.event("job.end")["cause"]["kind"], "too_few_slices");
    assert_eq!(done.named("rank.started").count(), 0);
    bed.start_host("node3");
    // A program that no host has is not waited for.
    let case = plan(&bed, &two, "--slices 2", &["./gone"]).start();
    case.code(127).says("./gone");
    bed.clean(5);
    bed.down();
}

#[test]
fn rank_that_fails_is_a_failure_and_no_preemption() {
    let Some(bed) = Bed::up(4) else { return };
    let two: String = HOSTS.lines().take(2).map(|line| format!("{line}\n")).collect();
    let case = plan(&bed, &two, "--slices 2 --preempt-retries 5", &["sh", "-c", "exit $((3 * (RANK == 1)))"]).start();
    let done = case.code(3);
    assert_eq!((done.named("restart").count(), &done.event("job.end")["cause"]["kind"]), (0, &"rank".into()));
    bed.clean(5);
    bed.down();
}

/// JAX on four slices: its processes save, and continue on the spare slice.
#[test]
fn jax_job_continues_on_the_spare_slice() {
    let Some(python) = jax::python() else { return };
    let Some(bed) = Bed::up(10) else { return };
    // The second host of the second slice, and the coordinator.
    let losses = [(1, 1), (0, 0)];
    for (slice, host) in losses.into_iter().skip(usize::from(!place::full())) {
        let program = ["jax_multihost.py", "--steps", "400", "--step-time", "0.05"];
        let words: Vec<&str> = [python.to_str().unwrap()].into_iter().chain(program).collect();
        let options = "--slices 4 --spare-slices 1 --preempt-retries 5";
        let plan = plan(&bed, HOSTS, options, &words).env("JAX_PLATFORMS", "cpu");
        let example = place::root().join("examples/jax_multihost.py");
        std::fs::copy(example, plan.scratch().path("jax_multihost.py")).unwrap();
        let case = plan.start();
        case.says_on_stdout("step 10 of 8 processes", 1);
        case.events("host.ready", 10);
        let names = |event: &Value| -> String {
            event["slices"].as_array().unwrap().iter().filter_map(Value::as_str).collect()
        };
        let first = names(&case.events("slices", 1)[0]);
        assert_eq!(places_of_jax(&bed), expected(&first));
        let lost = &format!("node{}", 2 * (first.as_bytes()[slice] - b'a') + host);
        let all: Vec<String> = (0..10).map(|n| format!("node{n}")).filter(|host| host != lost).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let before = agents(&bed, &all);
        bed.run(["kill-host", lost]);
        let second = names(&case.events("slices", 2)[1]);
        case.says_on_stdout("of 8 starts at step", 16);
        let spare: String = "abcde".chars().filter(|slice| !first.contains(*slice)).collect();
        assert_eq!(second, first.replace(&first[slice..=slice], &spare));
        assert_eq!(places_of_jax(&bed), expected(&second));
        assert_eq!(agents(&bed, &all), before, "agents and guardians of healthy hosts are the same");
        let done = case.code(0);
        let out = done.out();
        let steps: Vec<u32> = out
            .lines()
            .filter_map(|line| line.split_once(" of 8 starts at step ")?.1.parse().ok())
            .filter(|step| *step > 0)
            .collect();
        assert!(steps.len() == 8 && steps.iter().all(|step| *step == steps[0]), "{out}{}", done.err());
        assert_eq!(out.matches("is done: [1.0, 2.0, 3.0, 4.0]").count(), 8, "{out}");
        assert!(!done.event("restart")["lost"].is_null(), "a preemption, and no failure of a rank");
        bed.start_host(lost);
        bed.clean(5);
    }
    bed.down();
}

/// The places of the processes of JAX by their environments, in the order of ranks, as [`expected`] has them.
fn places_of_jax(bed: &Bed) -> Vec<String> {
    let of = |(host, p): (String, Proc)| {
        let environ = std::fs::read(format!("/proc/{}/environ", p.pid)).ok()?;
        let all: Vec<_> = environ.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let value = |name: &str| all.iter().find_map(|var| var.strip_prefix(&format!("{name}="))).map(str::to_owned);
        let (rank, name, worker) = (value("RANK")?, value("TPU_NAME")?, value("TPU_WORKER_ID")?);
        let coordinator = value("MEGASCALE_COORDINATOR_ADDRESS")?;
        let at = coordinator.strip_suffix(":8081").unwrap();
        assert!(value("JAX_COORDINATOR_ADDRESS")?.starts_with(&format!("{at}:")), "{all:?}");
        assert_eq!(host, format!("node{}", 2 * (name.as_bytes()[0] - b'a') + worker.parse::<u8>().unwrap()));
        let (slice, slices) = (value("MEGASCALE_SLICE_ID")?, value("MEGASCALE_NUM_SLICES")?);
        let (world, hosts) = (value("WORLD_SIZE")?, value("TPU_WORKER_HOSTNAMES")?);
        let line = format!("rank {rank} of {world} slice {slice}/{slices} {name} {worker} {hosts} at {coordinator}");
        Some((rank.parse::<u32>().unwrap(), line))
    };
    let pythons = bed.processes().into_iter().filter(|(_, p)| p.comm.starts_with("python"));
    pythons.filter_map(of).collect::<BTreeMap<u32, String>>().into_values().collect()
}

/// The fourth slice comes late: discovered, or by a host that has its power again. Ranks run for a minute before.
#[test]
fn job_grows_when_more_slices_are_up() {
    if !place::full() {
        return place::absent("a job on slices that grows", "it takes more than a minute (RLAUNCH_TEST_FULL=1)");
    }
    let Some(bed) = Bed::up(8) else { return };
    let four: String = HOSTS.lines().take(4).map(|line| format!("{line}\n")).collect();
    let three: String = HOSTS.lines().take(3).map(|line| format!("{line}\n")).collect();
    for (options, hosts, growth) in [
        ("--grow now", &four, "all ranks are ended, to start on more"),
        ("--grow next", &four, "the next start of ranks takes 4"),
        ("--grow now --discover ./printed", &three, "all ranks are ended, to start on more"),
    ] {
        bed.run(["kill-host", "node7"]);
        let options = format!("--slices 2,4 --scale-timeout 10s --connect-timeout 3s {options}");
        // A case does not wait for as long as this job is silent.
        let program = PROGRAM.replace("sleep 0.1;", "sleep 0.1; n=$((n + 1)); [ $((n % 50)) != 0 ] || echo tick;");
        let plan = plan(&bed, hosts, &options, &["sh", "-c", &program]);
        let script = plan.scratch().path("printed");
        std::fs::write(&script, "#!/bin/sh\ncat hosts\n").unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let (case, dir) = start(plan);
        says(&case, 0, 4);
        bed.start_host("node7");
        std::fs::write(dir.join("hosts"), &four).unwrap();
        case.says_on_stderr(&format!("rlaunch: 4 slices are up, and the job runs on 2; {growth}"));
        let last = u32::from(options.contains("now"));
        says(&case, last, if last == 1 { 8 } else { 4 });
        go(&dir, last);
        let done = case.code(0);
        assert_eq!(ranks(&done.out(), 0), expected("ab"), "{}", done.err());
        if last == 1 {
            assert_eq!(ranks(&done.out(), 1), expected("abcd"), "{}", done.err());
            assert_eq!(done.event("restart")["size"], 4);
        }
        bed.clean(5);
    }
    bed.down();
}

/// The command of `--discover` prints the first hosts, other hosts, nothing and nonsense, fails and hangs.
#[test]
fn discovered_slices_join_and_missing_hosts_are_drained() {
    let Some(bed) = Bed::up(6) else { return };
    let three: Vec<String> = HOSTS.lines().take(3).map(|line| format!("{line}\n")).collect();
    let (two, all) = (three[..2].concat(), three.concat());
    let options = "--slices 2 --discover ./printed --preempt-retries 5";
    let words = ["rlaunch", "--ssh-fast", "--lease", "4s"].into_iter().chain(options.split(' '));
    let plan = bed.plan("root", "login", words.chain(["sh", "-c", PROGRAM])).with_events();
    let dir = plan.scratch().dir().to_owned();
    let prints = |text: &str| {
        // At once, because the command may run now.
        std::fs::write(dir.join("next"), format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(dir.join("next"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::rename(dir.join("next"), dir.join("printed")).unwrap();
    };
    let list = |hosts: &str| format!("cat <<E\n{hosts}E");
    prints(&list(&two));
    let case = plan.start();
    says(&case, 0, 4);
    prints(&list(&all));
    case.says_on_stderr("rlaunch: --discover prints the new slice c: node[4-5]");
    case.events("host.ready", 6);
    prints("echo '<html>'");
    case.says_on_stderr("rlaunch: --discover gives no list of hosts, so the last list stays: --discover:1:");
    prints("echo no >&2; exit 3");
    case.events("discover.failed", 2);
    prints(":");
    case.events("discover.failed", 3);
    // The second host of slice a is missing, and c takes its place.
    prints(&list(&all.replace("node[0-1]", "node0")));
    says(&case, 1, 4);
    prints(&list(&all));
    case.events("host.back", 1);
    prints("sleep 600");
    go(&dir, 1);
    let done = case.code(0);
    assert_eq!(ranks(&done.out(), 0), expected("ab"), "{}", done.err());
    assert_eq!(ranks(&done.out(), 1), expected("cb"), "{}", done.err());
    assert_eq!(done.event("host.warned")["source"], "discovery");
    assert_eq!(done.named("restart").count(), 1);
    bed.clean(5);
    bed.down();
}
