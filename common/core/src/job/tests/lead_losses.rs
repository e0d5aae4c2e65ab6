//! Hosts that are lost in a job that a program leads.

use super::hosts::{OTHER, exits, hello, two};
use super::*;
use crate::events::Lost;
use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{AppIndex, ClientId, NodeId, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::HostTime;
use rlaunch_plan::place::{World, Worlds};
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::frozen::client::Reply;
use rlaunch_protocol::wire::frozen::client::order::{Order, Program, Request};
use rlaunch_protocol::wire::order::{Asker, RankOrder};
use rlaunch_protocol::wire::to_root::Started;

const GEN: WorldId = WorldId::new(1);
const NEXT: WorldId = WorldId::new(2);

/// The program that leads on one host, and a group of two on the other.
fn led(lead: u32) -> JobSpec {
    let mut spec = two(false);
    spec.apps[0].procs = 2;
    spec.apps.push(spec.apps[0].clone());
    let mut worlds = Worlds::default();
    worlds.add_program(World::default());
    worlds.add_program(World { agent_store: true, ..World::named("gen".into()) });
    spec.placement.worlds = worlds;
    for placed in spec.placement.ranks.iter_mut().skip(2) {
        placed.app = AppIndex::new(1);
    }
    JobSpec { lead: Some(AppIndex::new(lead)), ..spec }
}

fn started(s: &mut Script, node: NodeId, n: u32) {
    let started = Started { proc: ProcId::new(n), pid: 100 + n, at: HostTime(1) };
    s.receive_from(node, &ToRoot::Started { procs: Capped::chunks([started]).remove(0) });
}

fn running(lead: u32) -> Script {
    let mut s = Script::new(&led(lead));
    for node in [NODE, OTHER] {
        s.event(JobEvent::EdgeUp { node });
        s.receive_from(node, &hello("10.0.0.1", "10.0.0.9", 20_000)).receive_from(node, &ToRoot::Ready);
    }
    s.receive_from(OTHER, &ToRoot::WorldPort { world: GEN, port: 30_000 });
    (0..4).for_each(|n| started(&mut s, NodeId::new(n / 2), n));
    s.to.clear();
    s.sent.clear();
    s
}

fn loses(s: &mut Script, node: NodeId) {
    s.event(JobEvent::EdgeClosed { node, why: CloseReason::Eof });
    s.event(JobEvent::GuardianEnded { node, end: GuardianEnd::Record { left: 0, named: vec![] } });
}

#[test]
fn lost_host_is_the_business_of_the_program_that_leads() {
    let mut s = running(0);
    loses(&mut s, OTHER);
    let ended: Vec<String> = s.ended_keys.iter().filter_map(|(_, text)| text.clone()).collect();
    assert_eq!(ended.len(), 2, "{ended:?}");
    assert!(
        ended[0].starts_with("how=host_lost\ncode=-1\n") && ended[0].contains("\nhost=two\npid=102\n"),
        "{ended:?}"
    );
    let lost = Lost::Agent(CloseReason::Eof);
    assert!(s.said.contains(&What::News(JobNews::LeadContinues { node: OTHER, lost })), "{:?}", s.said);
    assert!(!s.sent.iter().any(|msg| matches!(msg, ToNode::End { .. })), "{:?}", s.sent);
    exits(&mut s, 0, exit(0), 20);
    exits(&mut s, 1, exit(0), 20);
    s.report();
    assert_eq!(s.finished, Some(Ending::Code(0)));
}

#[test]
fn lost_host_of_the_program_that_leads_ends_the_job() {
    let mut s = running(1);
    loses(&mut s, OTHER);
    assert!(s.sent.iter().any(|msg| matches!(msg, ToNode::End { .. })), "{:?}", s.sent);
}

#[test]
fn host_is_not_missed_after_its_ranks_have_ended() {
    let mut s = running(0);
    exits(&mut s, 2, exit(0), 20);
    exits(&mut s, 3, exit(0), 20);
    let before = s.ended_keys.len();
    loses(&mut s, OTHER);
    assert_eq!(s.ended_keys.len(), before);
    exits(&mut s, 0, exit(3), 20);
    exits(&mut s, 1, killed(Signal::TERM), 21);
    s.report();
    assert_eq!(s.finished, Some(Ending::Code(3)));
}

/// The refusals of orders.
fn answers(s: &Script) -> Vec<String> {
    let text = |msg: &ToNode| {
        let ToNode::OrderDone { reply, .. } = msg else { return None };
        let Ok(Reply::Refused(refused)) = Reply::parse(reply) else { panic!("it is a refusal") };
        Some(OsBytes::from(refused.text).to_string())
    };
    s.sent.iter().filter_map(text).collect()
}

#[test]
fn world_that_does_not_run_yet_is_refused_when_its_host_is_lost() {
    for stage in 0..3 {
        let mut s = running(0);
        // Rank 0 on the host that stays, unless the head is to be lost.
        let hosts = if stage == 0 { ["two", "one"] } else { ["one", "two"] };
        let program = Program {
            ranks: 2,
            argv: vec!["./w".into()],
            hosts: hosts.map(OsBytes::from).to_vec(),
            ..Program::default()
        };
        let request = Request { programs: vec![program], tolerant: true, ..Request::default() };
        let asker = Asker { client: ClientId::new(7), seq: 9 };
        let words = Order::Spawn(request).write().as_slice().into();
        let order = RankOrder { asker, world: WorldId::new(0), rank: Some(Rank::new(0)), words };
        s.receive_from(NODE, &ToRoot::Order(Box::new(order)));
        if stage == 2 {
            s.receive_from(NODE, &ToRoot::WorldPort { world: NEXT, port: 31_000 });
            started(&mut s, NODE, 4);
        }
        s.sent.clear();
        loses(&mut s, OTHER);
        if stage == 1 {
            assert_eq!(answers(&s), [""; 0], "its port is not known yet");
            s.receive_from(NODE, &ToRoot::WorldPort { world: NEXT, port: 31_000 });
            assert_eq!(answers(&s), ["the world was ended before all of its ranks ran"]);
        } else {
            assert_eq!(answers(&s), ["two was lost before all ranks ran"], "stage {stage}");
        }
        if stage == 2 {
            exits(&mut s, 0, exit(0), 20);
            let at = HostTime(20);
            let (proc, status) = (ProcId::new(4), killed(Signal::KILL));
            let usage = rlaunch_protocol::wire::to_root::Usage::default();
            let exited = rlaunch_protocol::wire::to_root::Exited { proc, status, at, alive_at: at, asked: true, usage };
            s.receive_from(NODE, &ToRoot::Exited(exited));
        } else {
            exits(&mut s, 0, exit(0), 20);
        }
        exits(&mut s, 1, exit(0), 20);
        s.report();
        assert_eq!(s.finished, Some(Ending::Code(0)), "stage {stage}");
    }
}

/// The lease of the host runs on: it is not known yet whether its ranks run.
#[test]
fn name_of_a_group_on_a_lost_host_is_free_at_once() {
    let mut s = running(0);
    let asks_for_gen = |s: &mut Script| {
        let program = Program { ranks: 1, argv: vec!["./w".into()], hosts: vec!["one".into()], ..Program::default() };
        let request = Request { group: "gen".into(), programs: vec![program], ..Request::default() };
        let words = Order::Spawn(request).write().as_slice().into();
        let asker = Asker { client: ClientId::new(7), seq: 9 };
        let order = RankOrder { asker, world: WorldId::new(0), rank: Some(Rank::new(0)), words };
        s.sent.clear();
        s.receive_from(NODE, &ToRoot::Order(Box::new(order)));
        answers(s)
    };
    assert_eq!(asks_for_gen(&mut s), ["the job has a group gen already"]);
    s.event(JobEvent::EdgeClosed { node: OTHER, why: CloseReason::Eof });
    assert_eq!(asks_for_gen(&mut s), [""; 0]);
}
