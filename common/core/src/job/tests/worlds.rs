//! Groups: worlds besides the first one, and the program with which the job ends.

use super::*;
use crate::id::{AppIndex, WorldId};
use crate::place::{World, Worlds};
use crate::spec::JobSpec;
use crate::wire::to_node::{Delta, WORLD_NAMESPACE, WorldStart};

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
    s.hears(ToRoot::WorldPort { world: GEN, port });
}

fn ranks(s: &Script) -> Vec<Delta> {
    let procs = |msg: &ToNode| match msg {
        ToNode::Spawn { procs, .. } => procs.to_vec(),
        _ => Vec::new(),
    };
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
    let seats: Vec<_> = ranks(&s).iter().map(|delta| (delta.rank.get(), delta.seat.rank.get())).collect();
    assert_eq!(seats, [(1, 0), (2, 1)]);
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
    s.hears(ToRoot::Postmortem { proc: ProcId::new(1), facts });
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
