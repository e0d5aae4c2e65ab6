//! Groups: programs of one job whose ranks are worlds of their own (`--group`, `--share`, `--tied`, `--lead`).

use crate::bed::Bed;
use crate::case::Done;
use crate::plan::Plan;
use crate::torch::pythons;
use crate::watch::Exit;
use nix::sys::signal::Signal;

/// Command that prints the place of a rank from its environment.
const PLACE: &str = "echo ${RLAUNCH_GROUP-none} $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK/$GROUP_WORLD_SIZE \
                     ${RLAUNCH_TIED_GROUP-}.${RLAUNCH_TIED_RANK-}.${RLAUNCH_TIED_SIZE-}";
/// All ranks of a group add up their numbers.
const REDUCE: &str = "import os, torch, torch.distributed as dist\ndist.init_process_group('gloo')\n\
                      t = torch.ones(1) * (dist.get_rank() + 1)\ndist.all_reduce(t)\ndist.barrier()\n\
                      os.write(1, f\"{os.environ['RLAUNCH_GROUP']} {dist.get_rank()} of {dist.get_world_size()}: {t.tolist()}\\n\".encode())\n\
                      dist.destroy_process_group()\n";

fn refused(words: &[&str]) -> String {
    let done = Plan::rlaunch(words).start().code(2);
    assert_eq!(done.out(), "");
    done.err()
}

#[test]
fn each_group_is_a_world_of_its_own() {
    let plan = Plan::rlaunch(["-n", "1", "sh", "-c", PLACE, ":", "--group", "gen", "-n", "2", "sh", "-c", PLACE]);
    let plan = plan.args([":", "--group", "policy", "--share", "gen", "--tied", "2", "sh", "-c", PLACE]);
    let done = plan.start().code(0);
    let expected = [
        "gen 0/2 0/2 0/1 ..",
        "gen 1/2 1/2 0/1 ..",
        "none 0/1 0/1 0/1 ..",
        "policy 0/2 0/2 0/1 0.0.2",
        "policy 1/2 1/2 0/1 0.1.2",
    ];
    assert_eq!(done.sorted(), expected, "{}", done.err());
    let started = done.events.iter().filter(|event| event["ev"] == "rank.started" && event["group"] == "policy");
    let mut numbers: Vec<_> =
        started.map(|event| (event["group_rank"].as_u64(), event["local_rank"].as_u64())).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [(Some(0), Some(1)), (Some(1), Some(2))], "they sit on the slots of gen");
}

#[test]
fn labels_name_group_and_rank() {
    let words = ["-l", "-n", "1", "echo", "x", ":", "--group", "gen", "-n", "2", "echo", "y"];
    assert_eq!(Plan::rlaunch(words).start().code(0).sorted(), ["0: x", "gen/0: y", "gen/1: y"]);
}

#[test]
fn files_of_a_group_have_its_name() {
    let words = ["-o", "out.%t", "-n", "1", "echo", "x", ":", "--group", "gen", "-n", "2", "sh", "-c", "echo $RANK"];
    let plan = Plan::rlaunch(words);
    let dir = plan.scratch().path("files");
    std::fs::create_dir(&dir).unwrap();
    // Until it is dropped, the directory is there.
    let _done = plan.cwd(&dir).start().code(0);
    let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!([text("out.0"), text("out.gen-0"), text("out.gen-1")], ["x\n", "0\n", "1\n"]);
}

#[test]
fn map_counts_ranks_that_share_a_slot_once() {
    let map = |slots: &str| {
        let words =
            ["map", "-H", slots, "-n", "1", "a", ":", "--group", "gen", "-n", "2", "b", ":", "--group", "policy"];
        Plan::tool(crate::place::rlaunch(), crate::place::Scratch::new())
            .args(words)
            .args(["--share", "gen", "c"])
            .start()
            .end()
            .out()
    };
    assert!(map("node0:3").contains("node0  ranks 0, gen/0,1, policy/0,1\n"), "{}", map("node0:3"));
    assert!(map("node0:2").contains("policy/0,1  (3 on 2 slots)\n"), "{}", map("node0:2"));
}

#[test]
fn groups_do_not_see_each_others_keys() {
    let script = "\"$RL\" store --generation set key $RLAUNCH_GROUP; \"$RL\" store --generation fence all; \
                  \"$RL\" store --generation get key";
    let words = ["--group", "a", "-n", "2", "sh", "-c", script, ":", "--group", "b", "-n", "2", "sh", "-c", script];
    assert_eq!(Plan::rlaunch(words).start().code(0).sorted(), ["a", "a", "b", "b"]);
}

fn reduces(plan: Plan, python: &std::path::Path, ranks: &str) -> Done {
    let path = plan.scratch().path("reduce.py");
    std::fs::write(&path, REDUCE).unwrap();
    let of = |name: &str| -> Vec<std::ffi::OsString> {
        let words = ["--group", name, "-n", ranks].map(std::ffi::OsString::from);
        words.into_iter().chain([python.into(), path.clone().into()]).collect()
    };
    let words = [of("a"), vec![":".into()], of("b")].concat();
    plan.args(words).start().code(0)
}

fn sums(ranks: u32) -> Vec<String> {
    let sum: u32 = (1..=ranks).sum();
    ["a", "b"].iter().flat_map(|name| (0..ranks).map(move |n| format!("{name} {n} of {ranks}: [{sum}.0]"))).collect()
}

#[test]
fn two_groups_reduce_side_by_side() {
    for python in pythons() {
        for store in ["agent", "rank0"] {
            let done = reduces(Plan::rlaunch(["--master-store", store]), &python, "2");
            assert_eq!(done.sorted(), sums(2), "{store}: {}", done.err());
        }
    }
}

#[test]
fn two_groups_on_two_hosts() {
    let Some(bed) = Bed::up(2) else { return };
    for user in ["root", "tester"] {
        let words = ["rlaunch", "--ssh-fast", "-H", "node[0-1]:2", "--map-by", "node"];
        let plan = bed.plan(user, "login", words).with_events();
        let all = ["--group", "a", "-n", "2", "sh", "-c", PLACE, ":", "--group", "b", "-n", "2", "sh", "-c", PLACE];
        let done = plan.args(all).start().code(0);
        let place = |name: &str, n: u32| format!("{name} {n}/2 0/1 {n}/2 ..");
        assert_eq!(done.sorted(), [place("a", 0), place("a", 1), place("b", 0), place("b", 1)], "{}", done.err());
        bed.clean(2);
    }
    for python in pythons().iter().take(1) {
        let words = ["rlaunch", "--ssh-fast", "-H", "node[0-1]:2", "--map-by", "node"];
        let done = reduces(bed.plan("tester", "login", words).with_events(), python, "2");
        assert_eq!(done.sorted(), sums(2), "{}", done.err());
        bed.clean(2);
    }
    // A group has a host of its own.
    let words = ["rlaunch", "--ssh-fast", "-H", "node0", "--lead", "sh", "-c", "sleep 1; exit 3"];
    let group = [":", "--group", "gen", "-H", "node1", "-n", "2", "sleep", "60"];
    let done = bed.plan("tester", "login", words).with_events().args(group).start().code(3);
    assert!(done.err().contains("ranks gen/0,1 stopped by rlaunch (SIGTERM"), "{}", done.err());
    bed.clean(2);
    bed.down();
}

#[test]
fn job_ends_with_its_leading_program() {
    let group = [":", "--group", "gen", "-n", "2", "sleep", "60"];
    for code in [0, 3] {
        let lead = format!("sleep 0.2; exit {code}");
        let done = Plan::rlaunch(["-n", "1", "--lead", "sh", "-c", &lead]).args(group).start().code(code);
        assert_eq!(done.event("job.end")["cause"]["kind"], if code == 0 { "lead" } else { "rank" });
    }
    let done = Plan::rlaunch(["-n", "1", "--lead", "sh", "-c", "kill -9 $$"]).args(group).start().code(137);
    assert!(done.err().contains("rank 0 failed first"), "{}", done.err());
}

#[test]
fn failure_of_another_program_is_the_leads_business() {
    let words = ["-n", "1", "--lead", "sh", "-c", "sleep 1; exit 0", ":", "--group", "gen", "sh", "-c", "exit 4"];
    let done = Plan::rlaunch(words).start().code(0);
    assert!(
        done.err().contains("rlaunch: rank gen/0 failed: exit 4; the others continue (--lead)\n"),
        "{}",
        done.err()
    );
}

#[test]
fn signal_ends_all_groups() {
    let case = Plan::rlaunch(["-n", "1", "sleep", "60", ":", "--group", "gen", "-n", "2", "sleep", "60"]).start();
    case.events("rank.started", 3);
    case.signal(Signal::SIGTERM);
    case.finish(Exit::Signal(Signal::SIGTERM));
}

#[test]
fn contradictions_are_refused() {
    for (words, text) in [
        (
            &["--group", "a", "-n", "1", "x", ":", "--group", "a", "y"][..],
            "--group takes a name that no other program has",
        ),
        (&["--share", "b", "x"], "--share takes the name of a group before it, got 'b'"),
        (&["-n", "4", "--group", "a", "--tied", "3", "x"], "--tied takes a number that divides the 4 ranks"),
        (&["--lead", "-n", "1", "x", ":", "--lead", "y"], "--lead: one program leads a job"),
        (&["--group", "a", "--max-restarts", "3", "x"], "--group: such a job is not started again"),
        (&["--group", "a", "--spares", "1", "x"], "--group: a function is not restarted within the processes"),
        (&["-n", "1", "--group", "a", "x", ":", "-n", "2", "--group", "b", "--share", "a", "y"], "-n 2 does not fit"),
        (&["--tied", "2", "x"], "--tied: the program has no group"),
    ] {
        let said = refused(words);
        assert!(said.starts_with(&format!("error: {text}")) && said.lines().count() <= 2, "{said}");
    }
}

#[test]
fn store_has_why_a_rank_has_ended() {
    let watch = "\"$RL\" store wait --timeout 30s rlaunch/ended/gen/0 rlaunch/ended/gen/1; \"$RL\" store get rlaunch/ended/gen/0; \
                 echo; \"$RL\" store get rlaunch/ended/gen/1; \"$RL\" store ls rlaunch/";
    let words = ["-n", "1", "--lead", "sh", "-c", watch, ":", "--group", "gen", "-n", "2", "sh", "-c"];
    let end = "echo broken >&2; [ $RANK = 0 ] && exit 4; kill -9 $$";
    let done = Plan::rlaunch(words).args([end]).start().code(0);
    let out = done.out();
    assert!(out.starts_with("how=exit\ncode=4\nsignal=0\ncore=0\nasked=0\noom=-\nhost="), "{out}");
    assert!(out.contains("\nerror=\n\nbroken\n"), "{out}");
    assert!(out.contains("how=signal\ncode=137\nsignal=9\n"), "{out}");
    assert!(out.ends_with("rlaunch/ended/gen/0\nrlaunch/ended/gen/1\nrlaunch/groups/gen\n"), "{out}");
}

#[test]
fn ended_rank_of_a_job_without_groups_has_a_key() {
    let words = ["-n", "2", "--on-failure", "continue", "sh", "-c"];
    let script = "[ $RANK = 1 ] && exit 3; \"$RL\" store wait --timeout 30s rlaunch/ended/1; \"$RL\" store get rlaunch/ended/1 | head -n 2";
    let done = Plan::rlaunch(words).args([script]).start().code(3);
    assert_eq!(done.out(), "how=exit\ncode=3\n");
}

#[test]
fn clients_cannot_change_keys_of_rlaunch() {
    let script = "\"$RL\" store set rlaunch/x y; echo $?; \"$RL\" store delete rlaunch/ended/0; echo $?; \
                  \"$RL\" store append rlaunch/x y; \"$RL\" store add rlaunch/n; \"$RL\" store ls rlaunch/";
    let done = Plan::rlaunch(["-n", "1", "sh", "-c", script]).start().code(0);
    assert_eq!(done.out(), "125\n125\n");
    assert_eq!(
        done.err().matches("cannot be changed: keys that begin with rlaunch/ are rlaunch's own").count(),
        4,
        "{}",
        done.err()
    );
}

/// A rank that starts another program: these options for the example, and the program.
fn spawns(options: &[&str], spawn: &[&str], program: &[&str]) -> Option<Plan> {
    let rank = crate::place::example("spawn_rank")?;
    let plan = Plan::rlaunch(options).args([rank.as_os_str()]).args(spawn).args(["--"]).args(program);
    Some(plan)
}

#[test]
fn rank_starts_a_program_as_a_world_of_its_job() {
    let script = format!("{PLACE}; echo $GIVEN; [ $MASTER_PORT != 1 ]");
    let options = ["-n", "1", "-x", "MASTER_PORT=1"];
    let Some(plan) = spawns(&options, &["n=2", "group=gen"], &["sh", "-c", &script]) else { return };
    // The order replaces a variable of the rank that asks, and its identity is not taken over.
    let done = plan.env("GIVEN", "by the caller").start().code(0);
    let out = done.sorted();
    let host = out.iter().find_map(|line| line.strip_prefix("world 1 gen on ")).unwrap_or_else(|| panic!("{out:?}"));
    let names: Vec<&str> = host.split(' ').collect();
    assert!(names.len() == 2 && names[0] == names[1], "{host}");
    assert_eq!(out[..4], ["by the order", "by the order", "gen 0/2 0/2 0/1 ..", "gen 1/2 1/2 0/1 .."]);
    let start = done.event("world.start");
    assert_eq!((&start["group"], &start["first"], &start["rank"]), (&"gen".into(), &1.into(), &0.into()));
    assert_eq!(done.events.iter().filter(|event| event["ev"] == "rank.exited").count(), 3);
}

#[test]
fn spawned_group_reduces() {
    for python in pythons() {
        let Some(rank) = crate::place::example("spawn_rank") else { return };
        let plan = Plan::rlaunch(["-n", "1"]).args([rank.as_os_str()]).args(["n=2", "group=a", "--"]);
        let path = plan.scratch().path("reduce.py");
        std::fs::write(&path, REDUCE).unwrap();
        let done = plan.args([python.as_path(), &path]).start().code(0);
        let sums: Vec<String> = done.sorted().into_iter().filter(|line| line.starts_with("a ")).collect();
        assert_eq!(sums, ["a 0 of 2: [3.0]", "a 1 of 2: [3.0]"], "{}", done.err());
    }
}

#[test]
fn nothing_is_started_where_one_rank_cannot_be() {
    for (spawn, program, text) in [
        (&["n=2"][..], &["./absent"][..], "rank 0 of the new world cannot be started on "),
        (&["group=a/b"], &["true"], "'a/b' is no name for a group"),
        (&["host=elsewhere"], &["true"], "elsewhere is no host of this job that can take more ranks"),
        (&["share=gen"], &["true"], "the job has no group gen whose slots could be shared"),
        (&["n=0"], &["true"], "0 ranks are asked for"),
        (&["n=3", "tied=2"], &["true"], "3 ranks cannot be tied in groups of 2"),
        (&[], &[], "a program of the order is empty"),
    ] {
        let Some(plan) = spawns(&["-n", "1"], spawn, program) else { return };
        let done = plan.start().code(0);
        let out = done.out();
        assert!(out.starts_with("refused: ") && out.contains(text) && out.lines().count() == 1, "{spawn:?}: {out}");
    }
    let Some(plan) = spawns(&["-n", "1", "--max-restarts", "1"], &[], &["true"]) else { return };
    let out = plan.start().code(0).out();
    assert!(out.contains("a job whose ranks can be started again starts no other program"), "{out}");
}

#[test]
fn failure_of_a_spawned_rank_ends_the_job_unless_tolerated() {
    for (spawn, code) in [(&["hold"][..], 4), (&["tolerant"], 0)] {
        let Some(plan) = spawns(&["-n", "1"], spawn, &["sh", "-c", "exit 4"]) else { return };
        plan.start().code(code);
    }
}

#[test]
fn world_is_ended_by_order_with_its_sessions() {
    let script = "(trap '' TERM; sleep 60) & trap '' TERM; \"$RL\" store set ready 1; while :; do sleep 0.1; done";
    let Some(plan) = spawns(&["-n", "1"], &["group=gen", "end"], &["sh", "-c", script]) else { return };
    let done = plan.start().code(0);
    let out = done.out();
    assert!(out.contains("how=signal code=137 signal=9 core=0 asked=1\n"), "{out}");
    assert!(out.contains("the job has no world 1 that could be ended"), "{out}");
}

#[test]
fn bound_world_ends_with_the_rank_that_has_started_the_world() {
    let Some(plan) = spawns(&["-n", "1"], &["n=2", "bound"], &["sleep", "60"]) else { return };
    let done = plan.start().code(0);
    assert!(done.out().starts_with("world 1 world-1 on "), "{}", done.out());
}

#[test]
fn spawned_ranks_run_on_other_hosts() {
    let Some(rank) = crate::place::example("spawn_rank") else { return };
    let Some(bed) = Bed::up(2) else { return };
    let words = ["rlaunch", "--ssh-fast", "-H", "node[0-1]:3", "--ppn", "1", "sh", "-c"];
    let own = rank.display();
    let script = format!("[ $RANK = 1 ] || exec '{own}' n=4 group=gen -- sh -c '{PLACE}'");
    let done = bed.plan("tester", "login", words).with_events().args([script]).start().code(0);
    let out = done.sorted();
    assert!(out.contains(&"world 1 gen on node0 node0 node1 node1".to_owned()), "{out:?} {}", done.err());
    let places: Vec<&String> = out.iter().filter(|line| line.starts_with("gen ")).collect();
    assert_eq!(places, ["gen 0/4 0/2 0/2 ..", "gen 1/4 1/2 0/2 ..", "gen 2/4 0/2 1/2 ..", "gen 3/4 1/2 1/2 .."]);
    bed.clean(2);
    bed.down();
}

/// All hosts of the list are hosts of the job, also those where no rank has started.
#[test]
fn lead_starts_workers_on_hosts_without_ranks() {
    let Some(rank) = crate::place::example("spawn_rank") else { return };
    let Some(bed) = Bed::up(3) else { return };
    let own = rank.display().to_string();
    let hosts = ["-H", "node0:1,node1:2,node2:1", "-n", "1", "--lead"];
    // The job ends with the first rank, which waits until all others have printed.
    let place = format!("{PLACE}; [ $(\"$RL\" store add placed) != $WORLD_SIZE ] || \"$RL\" store set go 1");
    let run = |spawn: &[&str]| {
        let words = ["rlaunch", "--ssh-fast"].iter().chain(&hosts).copied().chain([own.as_str(), "hold"]);
        let words = words.chain(spawn.iter().copied()).chain(["--", "sh", "-c", &place]);
        let done = bed.plan("tester", "login", words).with_events().start().code(0);
        bed.clean(2);
        done.sorted()
    };
    let out = run(&["n=3", "group=gen"]);
    assert!(out.contains(&"world 1 gen on node1 node1 node2".to_owned()), "{out:?}");
    assert!(out.contains(&"gen 2/3 0/1 1/2 ..".to_owned()), "{out:?}");
    assert!(run(&["host=node2"]).contains(&"world 1 world-1 on node2".to_owned()));
    let map = ["rlaunch", "map"].iter().chain(&hosts).copied().chain(["true"]);
    let map = bed.plan("tester", "login", map).start().end().out();
    assert!(map.contains("  node1  no ranks yet, 2 slots\n"), "{map}");
    bed.down();
}
