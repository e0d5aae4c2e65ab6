//! Groups: worlds besides the first one, and the program with which the job ends.

use super::*;
use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString as _};
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{AppIndex, ClientId, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::place::{World, Worlds};
use rlaunch_protocol::spec::{AppSpec, JobSpec};
use rlaunch_protocol::wire::frozen::client::Reply;
use rlaunch_protocol::wire::frozen::client::order::{Order, Program, Request, Spawned};
use rlaunch_protocol::wire::node_news::{MpiNews, NodeNews};
use rlaunch_protocol::wire::order::{Asker, RankOrder};
use rlaunch_protocol::wire::to_node::{Delta, WORLD_NAMESPACE, WorldStart};
use rlaunch_protocol::wire::to_root::Started;

const GEN: WorldId = WorldId::new(1);
const PORT: u16 = 30_000;

/// A controller, and a group of two.
fn grouped() -> JobSpec {
    let mut spec = spec(1);
    let mut second = spec.apps[0].clone();
    second.procs = 2;
    spec.apps.push(second);
    let mut worlds = Worlds::default();
    worlds.add_program(World::default());
    worlds.add_program(World { agent_store: true, ..World::named("gen".into()) });
    spec.placement.worlds = worlds;
    spec
}

fn led() -> JobSpec {
    JobSpec { lead: Some(AppIndex::new(0)), ..grouped() }
}

fn has_port(s: &mut Script, port: u16) {
    s.receive(ToRoot::WorldPort { world: GEN, port });
}

fn ranks(s: &Script) -> Vec<Delta> {
    let procs = |msg: &ToNode| if let ToNode::Spawn { procs, .. } = msg { procs.to_vec() } else { Vec::new() };
    s.sent.iter().flat_map(procs).collect()
}

fn world(s: &Script) -> WorldStart {
    let world = |msg: &ToNode| if let ToNode::World(start) = msg { Some((**start).clone()) } else { None };
    s.sent.iter().find_map(world).unwrap()
}

/// All of its ranks run; what was sent until then is forgotten.
fn running(spec: &JobSpec) -> Script {
    let mut s = Script::running(spec);
    has_port(&mut s, PORT);
    s.sent.clear();
    s
}

#[test]
fn group_starts_when_its_port_is_reserved() {
    let mut s = Script::new(&grouped());
    s.hello();
    assert_eq!(ranks(&s).iter().map(|delta| delta.rank.get()).collect::<Vec<_>>(), [0], "those of the first world");
    assert!(s.sent.contains(&ToNode::ReserveWorld(GEN)));
    s.sent.clear();
    has_port(&mut s, PORT);
    let WorldStart { world, rendezvous, is_spawned } = world(&s);
    assert_eq!((world, is_spawned, rendezvous.namespace), (GEN, false, WORLD_NAMESPACE + 1));
    assert_eq!((rendezvous.world_size, rendezvous.nodes, rendezvous.node_index), (2, 1, 0));
    assert_eq!((rendezvous.port, rendezvous.ranks_here, rendezvous.addr), (Some(PORT), Some(2), "127.0.0.1".into()));
    let placements: Vec<_> = ranks(&s).iter().map(|delta| (delta.rank.get(), delta.world_rank.rank.get())).collect();
    assert_eq!(placements, [(1, 0), (2, 1)]);
    assert_eq!(s.homes, [(NODE, WORLD_NAMESPACE + 1)]);
    let before = s.sent.len();
    has_port(&mut s, PORT);
    assert_eq!(s.sent.len(), before, "a second answer changes nothing");
}

#[test]
fn group_without_a_port_ends_the_job() {
    let mut s = Script::running(&grouped());
    has_port(&mut s, 0);
    assert_eq!(s.sent, [ToNode::Kill]);
    s.report();
    assert_eq!(s.cause(), Cause::Refused { node: NODE, why: NodeRefusal::NoPort });
}

#[test]
fn job_waits_for_all_its_groups() {
    let mut s = running(&grouped());
    s.now = 20;
    s.exits(0, exit(0), (1, 20));
    assert_eq!(s.sent, []);
    s.exits(1, exit(0), (1, 20)).exits(2, exit(0), (1, 20));
    assert_eq!(s.sent, [ToNode::CloseWorld(GEN), ToNode::Finish]);
    assert_eq!(s.homes, []);
    s.report();
    assert_eq!(s.finished, Some(Ending::Code(0)));
}

#[test]
fn failing_rank_of_a_group_ends_the_job() {
    let mut s = running(&grouped());
    s.now = 20;
    s.exits(1, exit(4), (1, 20));
    s.exits(2, killed(Signal::TERM), (20, 21)).exits(0, killed(Signal::TERM), (20, 21)).report();
    assert_eq!(s.finished, Some(Ending::Code(4)));
}

#[test]
fn job_ends_with_the_program_that_leads_it() {
    for (status, code) in [(exit(0), 0), (exit(3), 3), (killed(Signal::KILL), 137)] {
        let mut s = running(&led());
        s.now = 20;
        s.exits(0, status, (1, 20));
        assert_eq!(s.sent, [ToNode::End { sig: Signal::TERM, grace: Span::from_secs(5) }]);
        s.exits(1, killed(Signal::TERM), (20, 21)).exits(2, exit(9), (20, 21)).report();
        assert_eq!(s.finished, Some(Ending::Code(code)), "{status:?}");
    }
}

#[test]
fn failure_of_the_lead_by_a_passed_on_signal_counts_when_its_others_have_finished() {
    let spec = JobSpec { lead: Some(AppIndex::new(1)), ..grouped() };
    let mut s = running(&spec);
    s.now = 20;
    s.signal(Signal::USR1).exits(1, killed(Signal::USR1), (1, 20));
    s.exits(2, exit(0), (1, 20));
    assert!(s.sent.contains(&ToNode::End { sig: Signal::TERM, grace: Span::from_secs(5) }), "{:?}", s.sent);
    s.exits(0, killed(Signal::TERM), (20, 21)).report();
    assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(1), status: killed(Signal::USR1) });
}

#[test]
fn failure_of_another_program_is_the_leads_business() {
    let mut s = running(&led());
    s.now = 20;
    s.exits(1, exit(4), (1, 20));
    assert_eq!(s.sent, []);
    assert_eq!(s.said, [What::News(JobNews::Continuing { rank: Rank::new(1), status: exit(4) })]);
    s.exits(2, exit(0), (1, 20)).exits(0, exit(0), (1, 20)).report();
    assert_eq!((s.finished, s.cause()), (Some(Ending::Code(0)), Cause::Success));
}

#[test]
fn end_of_a_rank_is_published_with_its_last_words() {
    let mut s = running(&led());
    s.now = 20;
    s.exits(1, exit(4), (1, 20));
    assert_eq!(s.ended_keys, [], "its last words are not known");
    let facts = Facts { tail: "boom\n".into(), ..Facts::default() };
    s.receive(ToRoot::Postmortem { proc: ProcId::new(1), facts });
    let text = "how=exit\ncode=4\nsignal=0\ncore=0\nasked=0\noom=-\nhost=here\npid=101\nerror=\n\nboom\n";
    assert_eq!(s.ended_keys, [("rlaunch/ended/gen/0".into(), Some(text.into()))]);
    s.exits(2, exit(0), (1, 20));
    assert_eq!(s.ended_keys[1].0, "rlaunch/ended/gen/1");
    assert_eq!(s.ended_keys.len(), 2);
}

#[test]
fn last_words_are_waited_for_only_so_long() {
    let mut s = running(&led());
    s.now = 20;
    s.exits(1, crash(), (1, 20));
    s.wait(199);
    assert_eq!(s.ended_keys, []);
    s.wait(1);
    let text = s.ended_keys[0].1.clone().unwrap();
    assert!(text.starts_with("how=signal\ncode=139\nsignal=11\n") && text.ends_with("\nerror=\n\n"), "{text}");
}

/// A rank of the first world asks for two ranks of a program.
fn asks(request: Request) -> RankOrder {
    let asker = Asker { client: ClientId::new(7), seq: 9 };
    RankOrder {
        asker,
        world: WorldId::new(0),
        rank: Some(Rank::new(0)),
        words: Order::Spawn(request).write().as_slice().into(),
    }
}

fn request() -> Request {
    let program =
        Program { ranks: 2, argv: vec!["./w".into()], env: vec![("A".into(), "1".into())], ..Program::default() };
    Request { programs: vec![program], ..Request::default() }
}

fn orders(s: &mut Script, order: RankOrder) {
    s.receive(ToRoot::Order(Box::new(order)));
}

/// The text of the refusal, or of nothing.
fn answers(s: &Script) -> Vec<String> {
    let text = |reply: Reply<'_>| {
        if let Reply::Refused(refused) = reply {
            return OsBytes::from(refused.text).to_string();
        }
        let Reply::Value(Some(value)) = reply else { return format!("{reply:?}") };
        let Spawned { world, group, hosts } = Spawned::parse(value).unwrap();
        format!("{world} {group} {}", hosts.len())
    };
    let reply = |msg: &ToNode| {
        let ToNode::OrderDone { asker, reply } = msg else { return None };
        assert_eq!(*asker, Asker { client: ClientId::new(7), seq: 9 });
        Some(text(Reply::parse(reply).unwrap()))
    };
    s.sent.iter().filter_map(reply).collect()
}

fn started(s: &mut Script, ranks: core::ops::Range<u32>) {
    let started = |n: u32| Started { proc: ProcId::new(n), pid: 100 + n, at: Script::at(u64::from(n)).host_time() };
    for procs in Capped::chunks(ranks.map(started)) {
        s.receive(ToRoot::Started { procs });
    }
}

/// A job of one rank whose order was carried out.
fn spawned(request: Request) -> Script {
    let mut s = Script::running(&spec(1));
    orders(&mut s, asks(request));
    has_port(&mut s, PORT);
    started(&mut s, 1..3);
    s
}

#[test]
fn rank_starts_a_world_while_the_job_runs() {
    let mut s = Script::running(&spec(1));
    orders(&mut s, asks(request()));
    assert_eq!(s.sent, [ToNode::ReserveWorld(GEN)]);
    has_port(&mut s, PORT);
    let WorldStart { rendezvous, is_spawned, .. } = world(&s);
    assert_eq!((is_spawned, rendezvous.world_size, rendezvous.port), (true, 2, Some(PORT)));
    let placements: Vec<_> =
        ranks(&s).iter().map(|delta| (delta.proc.get(), delta.rank.get(), delta.world_rank.rank.get())).collect();
    assert_eq!(placements, [(1, 1, 0), (2, 2, 1)]);
    started(&mut s, 1..2);
    assert_eq!(answers(&s), [""; 0], "not all of them run");
    started(&mut s, 2..3);
    assert_eq!(answers(&s), ["1 world-1 2"]);
    s.sent.clear();
    s.now = 20;
    s.exits(0, exit(0), (1, 20));
    assert_eq!(s.sent, [], "the job waits for the others");
    s.exits(1, exit(0), (1, 20)).exits(2, exit(0), (1, 20));
    assert_eq!(s.sent, [ToNode::CloseWorld(GEN), ToNode::Finish], "the only node waits for that");
    let report = s.report();
    assert_eq!((s.finished, report.ranks.len()), (Some(Ending::Code(0)), 3));
}

#[test]
fn failure_of_a_spawned_rank_counts_unless_it_is_tolerated() {
    let mut s = spawned(request());
    s.now = 20;
    s.exits(1, exit(4), (1, 20)).exits(0, killed(Signal::TERM), (20, 21)).exits(2, killed(Signal::TERM), (20, 21));
    s.report();
    assert_eq!(s.finished, Some(Ending::Code(4)));
    let mut s = spawned(Request { tolerant: true, ..request() });
    s.sent.clear();
    s.now = 20;
    s.exits(1, exit(4), (1, 20));
    assert_eq!((s.sent.len(), s.said.len()), (0, 0));
    s.exits(0, exit(0), (1, 20)).exits(2, exit(0), (1, 20)).report();
    assert_eq!(s.finished, Some(Ending::Code(0)));
}

#[test]
fn world_is_ended_by_order_while_the_job_continues() {
    let mut s = spawned(request());
    s.sent.clear();
    let end = |world| RankOrder { words: Order::EndWorld(world, None).write().as_slice().into(), ..asks(request()) };
    orders(&mut s, end(GEN));
    let sent = ToNode::EndWorld { world: GEN, sig: Signal::TERM, grace: Span::from_secs(5) };
    assert_eq!((s.sent[0].clone(), answers(&s)), (sent, vec!["Done".to_owned()]));
    s.now = 20;
    s.exits(1, killed(Signal::TERM), (1, 20)).exits(2, killed(Signal::KILL), (1, 20));
    s.sent.clear();
    orders(&mut s, end(GEN));
    assert_eq!(answers(&s), ["the job has no world 1 that could be ended"]);
    s.exits(0, exit(0), (1, 20)).report();
    assert_eq!(s.finished, Some(Ending::Code(0)));
}

#[test]
fn bound_world_ends_with_the_rank_that_has_asked_for_it() {
    let mut s = spawned(Request { bound: true, ..request() });
    s.sent.clear();
    s.now = 20;
    s.exits(0, exit(0), (1, 20));
    assert_eq!(s.sent, [ToNode::EndWorld { world: GEN, sig: Signal::TERM, grace: Span::from_secs(5) }]);
    s.exits(1, killed(Signal::TERM), (1, 20)).exits(2, killed(Signal::TERM), (1, 20)).report();
    assert_eq!(s.finished, Some(Ending::Code(0)));
}

#[test]
fn nothing_remains_of_a_world_of_which_one_rank_cannot_be_started() {
    let mut s = Script::running(&spec(1));
    orders(&mut s, asks(request()));
    has_port(&mut s, PORT);
    started(&mut s, 1..2);
    s.sent.clear();
    let error = SpawnError { step: SpawnStep::Exec, errno: 2, path: "./w".into(), found: Found::Nothing };
    s.receive(ToRoot::SpawnFailed { proc: ProcId::new(2), error });
    assert_eq!(answers(&s), ["rank 1 of the new world cannot be started on here: ./w: no such file or directory"]);
    assert!(s.sent.contains(&ToNode::EndWorld { world: GEN, sig: Signal::KILL, grace: Span::ZERO }));
    s.now = 20;
    s.exits(1, killed(Signal::KILL), (1, 20)).exits(0, exit(0), (1, 20)).report();
    assert_eq!(s.finished, Some(Ending::Code(0)));
}

/// Starts a world of two ranks, from this one on. Returns the answer.
fn spawns(s: &mut Script, world: WorldId, first: u32, request: Request) -> String {
    s.sent.clear();
    orders(s, asks(request));
    s.receive(ToRoot::WorldPort { world, port: PORT });
    started(s, first..first + 2);
    answers(s).pop().unwrap_or_default()
}

#[test]
fn nothing_is_kept_of_worlds_that_ended_long_ago() {
    let mut s = Script::running(&spec(1));
    let sizes = |s: &Script| {
        let keys = s.ended_keys.iter().map(|(_, value)| if value.is_some() { 1 } else { -1 }).sum::<i32>();
        let placement = s.job.facts.placement();
        let worlds = placement.worlds.ids().count();
        [
            placement.ranks.len(),
            worlds,
            s.report.ranks.len(),
            usize::try_from(keys).unwrap(),
            s.job.parts.worlds.known(),
            placement.processes.known(),
            placement.worlds.programs(),
        ]
    };
    let mut most = [0; 7];
    for n in 0..300 {
        let (world, first) = (WorldId::new(n + 1), 1 + 2 * n);
        assert_eq!(spawns(&mut s, world, first, request()), format!("{world} world-{world} 2"));
        s.now += 20;
        s.exits(first, exit(0), (1, 20)).exits(first + 1, exit(0), (1, 20));
        let now = sizes(&s);
        if n == 100 {
            most = now;
        }
        assert!(n <= 100 || now == most, "{now:?}, and {most:?} before");
    }
    assert_eq!(most[1], 1 + 65, "the first world, the last 64 before the newest, and that one");
    s.exits(0, exit(0), (1, 20));
    let report = s.report();
    assert_eq!((s.finished, report.all_ranks(), report.finished()), (Some(Ending::Code(0)), 601, 601));
}

#[test]
fn forgotten_ranks_that_failed_are_counted() {
    let mut s = Script::running(&spec(1));
    for n in 0..100 {
        let (world, first) = (WorldId::new(n + 1), 1 + 2 * n);
        spawns(&mut s, world, first, Request { tolerant: true, ..request() });
        s.now += 20;
        s.exits(first, exit(4), (1, 20)).exits(first + 1, exit(0), (1, 20));
    }
    let forgotten = s.report.forgotten;
    assert!(forgotten.ranks >= 60 && forgotten.failed * 2 == forgotten.ranks, "{forgotten:?}");
}

#[test]
fn name_of_a_group_that_has_ended_is_free() {
    let named = || Request { group: "gen".into(), tolerant: true, ..request() };
    let mut s = Script::running(&spec(1));
    assert_eq!(spawns(&mut s, GEN, 1, named()), "1 gen 2");
    s.now = 20;
    s.exits(1, exit(4), (1, 20));
    s.sent.clear();
    orders(&mut s, asks(named()));
    assert_eq!(answers(&s), ["the job has a group gen already"], "one of its ranks runs");
    s.exits(2, exit(0), (1, 20));
    let next = WorldId::new(2);
    assert_eq!(spawns(&mut s, next, 3, named()), "2 gen 2");
    assert_eq!(s.homes, [(NODE, WORLD_NAMESPACE + 2)], "its namespace is its own");
    let removed = ("rlaunch/ended/gen/1".to_owned(), None);
    assert_eq!(s.ended_keys.last(), Some(&removed), "{:?}", s.ended_keys);
    s.wait(1_000);
    assert_eq!(s.ended_keys.last(), Some(&removed), "the end of rank 0 was that of the former group");
    s.exits(3, exit(0), (20, 20));
    assert_eq!(s.ended_keys.last().map(|(key, _)| key.as_str()), Some("rlaunch/ended/gen/0"));
    assert_eq!(s.job.facts.placement().name_of(Rank::new(4)), "gen/1");
    assert_eq!(s.report.in_group(Rank::new(4)), Some((&b"gen"[..], Rank::new(1))));
}

#[test]
fn name_of_the_first_group_is_free_after_its_ranks_have_ended() {
    let mut spec = spec(2);
    spec.apps.push(AppSpec { procs: 1, ..spec.apps[0].clone() });
    spec.placement.worlds.add_program(World::named("gen".into()));
    spec.placement.worlds.add_program(World::named("ctl".into()));
    let mut s = running(&JobSpec { lead: Some(AppIndex::new(1)), ..spec });
    let order = || RankOrder { world: GEN, ..asks(Request { group: "gen".into(), ..request() }) };
    s.now = 20;
    s.exits(0, exit(0), (1, 20));
    orders(&mut s, order());
    assert_eq!(answers(&s), ["the job has a group gen already"], "one of its ranks runs");
    s.exits(1, exit(0), (1, 20)).sent.clear();
    orders(&mut s, order());
    s.receive(ToRoot::WorldPort { world: WorldId::new(2), port: PORT });
    started(&mut s, 3..5);
    assert_eq!(answers(&s), ["2 gen 2"]);
    assert_eq!(s.ended_keys.last(), Some(&("rlaunch/ended/gen/1".to_owned(), None)), "{:?}", s.ended_keys);
}

#[test]
fn workers_of_a_controller_with_an_mpi_library_are_no_ranks_of_mpi() {
    let loaded = || ToRoot::News(NodeNews::Mpi(MpiNews::Loaded { library: "libmpi.so.12".into() }));
    let apart = |s: &Script| s.log.iter().any(|what| matches!(what, What::News(JobNews::MpiApart { .. })));
    let mut s = Script::running(&self::spec(1).with(|settings| settings.mpi.served = true));
    spawns(&mut s, GEN, 1, request());
    s.now = 20;
    s.receive(loaded()).exits(1, exit(0), (1, 20)).exits(2, exit(0), (1, 20)).exits(0, exit(0), (1, 20)).report();
    assert!(!apart(&s), "the controller is the only rank of its world");
    let mut s = Script::running(&self::spec(2).with(|settings| settings.mpi.served = true));
    s.now = 20;
    s.receive(loaded()).exits(0, exit(0), (1, 20)).exits(1, exit(0), (1, 20)).report();
    assert!(apart(&s));
}

#[test]
fn ranks_that_live_count_for_the_most_that_a_job_can_have() {
    let mut too_many = request();
    too_many.programs[0].ranks = u32::MAX;
    let mut s = spawned(request());
    s.sent.clear();
    orders(&mut s, asks(too_many.clone()));
    assert_eq!(answers(&s), ["4294967295 ranks are asked for: 1 to 1048573 can be started"]);
    s.now = 20;
    s.exits(1, exit(0), (1, 20)).exits(2, exit(0), (1, 20)).sent.clear();
    orders(&mut s, asks(too_many));
    assert_eq!(answers(&s), ["4294967295 ranks are asked for: 1 to 1048575 can be started"]);
}

#[test]
fn world_without_a_port_is_refused() {
    let mut s = Script::running(&spec(1));
    orders(&mut s, asks(request()));
    has_port(&mut s, 0);
    assert_eq!(answers(&s), ["no port is free for MASTER_PORT on here"]);
    s.exits(0, exit(0), (1, 20)).report();
    assert_eq!(s.finished, Some(Ending::Code(0)));
}

#[test]
fn orders_that_make_no_sense_are_refused() {
    let said = |request: Request| {
        let mut s = Script::running(&spec(1));
        orders(&mut s, asks(request));
        answers(&s).pop().unwrap_or_default()
    };
    let of = |change: fn(&mut Request)| {
        let mut request = request();
        change(&mut request);
        said(request)
    };
    assert_eq!(of(|request| request.programs.clear()), "a program of the order is empty");
    assert_eq!(of(|request| request.programs[0].argv.clear()), "a program of the order is empty");
    assert_eq!(of(|request| request.programs[0].ranks = 0), "0 ranks are asked for: 1 to 1048575 can be started");
    assert_eq!(
        of(|request| request.programs[0].env.push(("A=B".into(), "1".into()))),
        "'A=B' is no name for an environment variable"
    );
    assert_eq!(of(|request| request.tied = 3), "2 ranks cannot be tied in groups of 3");
    assert_eq!(of(|request| request.share = "x".into()), "the job has no group x whose slots could be shared");
    assert_eq!(
        of(|request| request.group = "a b".into()),
        "'a b' is no name for a group: up to 64 letters, digits, '-', '_' and '.'"
    );
    assert_eq!(
        of(|request| request.programs[0].hosts.push("x".into())),
        "x is no host of this job that can take more ranks"
    );
    let mut s = Script::running(&spec(1));
    orders(&mut s, RankOrder { words: "?".into(), ..asks(request()) });
    assert_eq!(answers(&s), ["the order cannot be read"]);
    let mut s = running(&grouped());
    orders(&mut s, asks(Request { group: "gen".into(), ..request() }));
    assert_eq!(answers(&s), ["the job has a group gen already"]);
}
