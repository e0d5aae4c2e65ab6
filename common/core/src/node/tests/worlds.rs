//! Worlds besides the first one: what their ranks leave, and when they are reaped.

use super::*;
use rlaunch_base::id::WorldId;
use rlaunch_protocol::wire::to_node::WorldStart;

const GEN: WorldId = WorldId::new(1);

/// A node with a rank of the first world and two of another one, which runs.
fn rig(is_spawned: bool) -> Rig {
    let mut rig = Rig::running(1);
    let rendezvous = start().rendezvous.unwrap();
    rig.root(ToNode::World(Box::new(WorldStart { world: GEN, is_spawned, rendezvous })));
    let ToNode::Spawn { procs, last, local_size } = spawn(1..3, true) else { panic!("it is one") };
    let of_world = |delta: &Delta| Delta { world_rank: WorldRank { world: GEN, ..delta.world_rank }, ..*delta };
    let procs = Capped::chunks(procs.iter().map(of_world)).pop().unwrap();
    rig.root(ToNode::Spawn { procs, last, local_size });
    rig.spawned(1);
    rig.spawned(2);
    rig
}

fn kills(procs: &[u32]) -> NodeAction {
    NodeAction::KillSessions { procs: procs.iter().map(|n| p(*n)).collect() }
}

#[test]
fn order_to_end_a_world_ends_what_exited_ranks_have_left() {
    let mut rig = rig(false);
    let said = says_exit(&rig, 1, exit(0));
    assert_eq!(rig.exited(1, exit(0)), [said], "it is reaped when its world is closed");
    let end = ToNode::EndWorld { world: GEN, sig: TERM, grace: Span::from_secs(5) };
    assert_eq!(rig.root(end), [group(2, TERM), kills(&[1])]);
    let said = asked(says_exit(&rig, 2, by(TERM)));
    let actions = rig.exited(2, by(TERM));
    assert_eq!(actions[..2], [kills(&[2]), said]);
    rig.examined(2, Facts::default());
    let closed = [kills(&[1, 2]), Reap { proc: p(1) }, Reap { proc: p(2) }, NodeAction::CloseWorld { world: GEN }];
    assert_eq!(rig.root(ToNode::CloseWorld(GEN)), closed);
}

#[test]
fn world_that_a_rank_has_asked_for_ends_with_its_sessions() {
    for is_spawned in [true, false] {
        let mut rig = rig(is_spawned);
        rig.exited(1, exit(0));
        rig.exited(2, exit(0));
        let actions = rig.root(ToNode::CloseWorld(GEN));
        assert_eq!(actions.contains(&kills(&[1, 2])), is_spawned, "{actions:?}");
        assert!(actions.contains(&Reap { proc: p(1) }) && actions.contains(&Reap { proc: p(2) }), "{actions:?}");
    }
}

#[test]
fn end_of_the_job_waits_for_no_world() {
    let mut rig = rig(true);
    rig.exited(1, exit(0));
    let actions = rig.root(ToNode::End { sig: TERM, grace: Span::from_secs(5) });
    assert!(actions.contains(&Reap { proc: p(1) }), "{actions:?}");
}

#[test]
fn world_that_does_not_end_is_killed_and_what_it_has_started_is_searched_for() {
    let mut rig = rig(true);
    rig.root(ToNode::EndWorld { world: GEN, sig: TERM, grace: Span::from_secs(5) });
    assert_eq!(rig.wait(5000), [group(1, KILL), group(2, KILL), kills(&[1, 2])], "the search may take a while");
}

#[test]
fn nothing_is_kept_of_ten_thousand_workers_that_have_ended_nor_of_their_programs() {
    let mut rig = Rig::running(1);
    let known = |rig: &Rig| (rig.node.parts.procs.known(), rig.node.parts.start.known());
    let ready = known(&rig);
    for n in 0..200 {
        let (world, procs) = (WorldId::new(n + 1), 1 + 50 * n..51 + 50 * n);
        let rendezvous = start().rendezvous.unwrap();
        rig.root(app_of(n + 1, &base()));
        rig.root(ToNode::World(Box::new(WorldStart { world, is_spawned: true, rendezvous })));
        let ToNode::Spawn { procs: all, last, local_size } = spawn(procs.clone(), true) else { panic!("it is one") };
        let of_world = |delta: &Delta| Delta {
            world_rank: WorldRank { world, ..delta.world_rank },
            app: rlaunch_base::id::AppIndex::new(n + 1),
            ..*delta
        };
        let all = Capped::chunks(all.iter().map(of_world)).pop().unwrap();
        rig.root(ToNode::Spawn { procs: all, last, local_size });
        for proc in procs.clone() {
            rig.spawned(proc);
            rig.exited(proc, exit(0));
        }
        // Streams may end before or after the world is closed.
        let (before, after) = if n % 2 == 0 { (0..0, procs) } else { (procs, 0..0) };
        before.for_each(|proc| drop(rig.streams_end(proc)));
        rig.root(ToNode::CloseWorld(world));
        assert!(n > 0 || known(&rig).0 > ready.0, "its streams are open");
        after.for_each(|proc| drop(rig.streams_end(proc)));
        assert_eq!(known(&rig), ready);
    }
}
