//! Start-up, output and the event log of an ordinary run.

use super::*;
use rlaunch_base::capped::Capped;
use rlaunch_protocol::framework::MpiService;
use rlaunch_protocol::rounds::Rounds;
use rlaunch_protocol::settings::StdinPlan::{None as Null, Rank0};
use rlaunch_protocol::settings::Tier;
use rlaunch_protocol::spec::AppBase;
use rlaunch_protocol::wire::to_node::PortPlan;
use rlaunch_protocol::wire::to_root::{Hello, Started};

fn starts(s: &Script) -> Vec<Option<u16>> {
    s.sent
        .iter()
        .filter_map(|m| match m {
            ToNode::Start(start) => Some(start.rendezvous.as_ref().and_then(|rendezvous| rendezvous.port)),
            ToNode::App { .. }
            | ToNode::Rendezvous(_)
            | ToNode::Probe(_)
            | ToNode::FindOwners(_)
            | ToNode::OwnersFound(_)
            | ToNode::Spawn { .. }
            | ToNode::Signal { .. }
            | ToNode::End { .. }
            | ToNode::SchedulerEnds { .. }
            | ToNode::HoldLease(_)
            | ToNode::Clear { .. }
            | ToNode::Again(_)
            | ToNode::Round(_)
            | ToNode::ReserveWorld(_)
            | ToNode::World(_)
            | ToNode::EndWorld { .. }
            | ToNode::OrderDone { .. }
            | ToNode::CloseWorld(_)
            | ToNode::Devices(_)
            | ToNode::Kill
            | ToNode::Finish => None,
        })
        .collect()
}

#[test]
fn start_comes_first_then_programs_then_ranks() {
    let mut spec = spec(2).with(|settings| settings.mpi.served = true);
    let mut second = spec.apps[0].clone();
    second.procs = 1;
    second.base.argv.push(b"\xff");
    spec.apps.push(second.clone());
    spec.placement = rlaunch_plan::place::Placement::here("here", [2, 1]);
    let s = Script::new(&spec);
    let ToNode::Start(start) = &s.sent[0] else { panic!("{:?}", s.sent[0]) };
    assert_eq!((start.sole, start.local_size, start.nodes), (true, 3, 1));
    assert_eq!(start.settings.mpi.service(), MpiService::Yielding, "the MPI library is not known");
    let rendezvous = start.rendezvous.as_ref().unwrap();
    assert_eq!((rendezvous.world_size, rendezvous.nodes, rendezvous.node_index), (3, 1, 0));
    assert_eq!((&*rendezvous.addr, rendezvous.port, start.port), (&b"127.0.0.1"[..], None, PortPlan::Choose));
    let ToNode::App { app, last: true, part } = &s.sent[2] else { panic!("{:?}", s.sent[2]) };
    assert_eq!((app.get(), postcard::from_bytes::<AppBase>(part).unwrap()), (1, second.base));
    let ToNode::Spawn { procs, last: true, .. } = &s.sent[3] else { panic!("{:?}", s.sent[3]) };
    let ranks: Vec<_> = procs.iter().map(|d| (d.rank.get(), d.app.get(), d.local_rank.get(), d.stdin)).collect();
    assert_eq!(ranks, [(0, 0, 0, Rank0), (1, 0, 1, Null), (2, 1, 2, Null)]);
    let of_app: Vec<_> = procs.iter().map(|d| (d.app_rank, d.app_size)).collect();
    assert_eq!(of_app, [(0, 2), (1, 2), (0, 1)]);
}

/// A round of a job that can lose no host waits only for more faults.
#[test]
fn nodes_know_how_long_a_round_may_wait_for_others() {
    let secs = Span::from_secs;
    let window = JobSpec { rounds: Rounds { fault_window: secs(3), ..Rounds::default() }, ..spec(2) };
    let mut far = window.clone();
    far.placement.nodes[0].local = false;
    let awaits = |spec: &JobSpec| {
        let s = super::hosts::starts(&Script::new(spec));
        s.first().map(|(_, start)| start.awaits)
    };
    assert_eq!(awaits(&window), Some(secs(3)));
    let mut s = Script::new(&far);
    s.event(JobEvent::EdgeUp { node: NODE });
    // A lease of 30 s, which may be 1 % longer there, and a fifth for the guardian.
    let limit = super::hosts::starts(&s)[0].1.awaits;
    assert_eq!(limit, Span::from_millis(30_300 + 6_000 + 3_000));
}

#[test]
fn large_program_is_sent_in_parts() {
    let mut spec = spec(u32::try_from(SPAWN_BATCH).unwrap() + 1);
    spec.apps[0].base.env.push(&vec![b'x'; 600 << 10]);
    let s = Script::new(&spec);
    let mut bytes = Vec::new();
    let mut lasts = Vec::new();
    for msg in &s.sent {
        match msg {
            ToNode::App { part, last, .. } => {
                bytes.extend_from_slice(part);
                lasts.push(*last);
            }
            ToNode::Spawn { last, .. } => lasts.push(*last),
            ToNode::Start(_)
            | ToNode::Rendezvous(_)
            | ToNode::Probe(_)
            | ToNode::FindOwners(_)
            | ToNode::OwnersFound(_)
            | ToNode::Signal { .. }
            | ToNode::End { .. }
            | ToNode::SchedulerEnds { .. }
            | ToNode::HoldLease(_)
            | ToNode::Clear { .. }
            | ToNode::Again(_)
            | ToNode::Round(_)
            | ToNode::ReserveWorld(_)
            | ToNode::World(_)
            | ToNode::EndWorld { .. }
            | ToNode::OrderDone { .. }
            | ToNode::CloseWorld(_)
            | ToNode::Devices(_)
            | ToNode::Kill
            | ToNode::Finish => {}
        }
    }
    assert_eq!(lasts, [false, false, true, false, true]);
    assert_eq!(postcard::from_bytes::<AppBase>(&bytes).unwrap(), spec.apps[0].base);
}

#[test]
fn a_pinned_port_is_used_if_it_is_one() {
    for (value, expected) in [("5000", Some(5000)), ("0", None), ("70000", None), ("port", None)] {
        let mut spec = spec(1);
        spec.apps[0].base.env = ["MASTER_PORT=1", &alloc::format!("MASTER_PORT={value}")].iter().collect();
        assert_eq!(starts(&Script::new(&spec)), [None], "not the user's");
        spec.apps[0].base.pinned = ["MASTER_PORT"].iter().collect();
        let s = Script::new(&spec);
        assert_eq!(starts(&s), [expected], "{value}");
        let plan = expected.map_or(PortPlan::Choose, PortPlan::Claim);
        assert!(s.sent.iter().any(|msg| matches!(msg, ToNode::Start(start) if start.port == plan)), "{value}");
    }
}

#[test]
fn notes_of_the_node_are_said() {
    let mut s = Script::new(&spec(1));
    let note = OsBytes::from("no user namespace");
    let hello = Hello { note, master_port: 40_000, port_reserved: false, ..Hello::of(Tier::T3) };
    s.receive(ToRoot::Hello(hello.clone())).receive(ToRoot::Hello(hello.clone()));
    let port = What::News(JobNews::PortUnreserved { port: 40_000 });
    assert_eq!(s.said, [port, What::HostReady { node: NODE, hello }]);
}

#[test]
fn expected_restrictions_are_only_logged() {
    let mut s = Script::new(&spec(1));
    let note = OsBytes::from("not permitted");
    s.receive(ToRoot::Hello(Hello { note: note.clone(), usual: true, master_port: 20_000, ..Hello::of(Tier::T3) }));
    assert_eq!(s.said, []);
    assert!(matches!(s.log.last(), Some(What::HostReady { hello, .. }) if hello.note == note), "{:?}", s.log);
}

#[test]
fn log_records_the_whole_launch() {
    let mut s = Script::running(&spec(1));
    s.now = 7;
    s.event(JobEvent::StreamEnd { stream: StreamId::of(ProcId::new(0), Std::Out), total: 12 });
    s.exits(0, exit(0), (0, 7)).report();
    let text: alloc::string::String = s
        .log
        .iter()
        .map(|what| {
            crate::events::line(&crate::events::Record {
                t: Span::ZERO,
                wall: WallNs(0),
                generation: 0,
                round: None,
                what: what.clone(),
            })
        })
        .collect();
    let names: Vec<_> = text.lines().map(|l| l.split('"').nth(9).unwrap()).collect();
    let expected =
        ["job.start", "host.ready", "rank.started", "stream.end", "rank.exited", "host.done", "output.end", "job.end"];
    assert_eq!(names, expected);
}

#[test]
fn messages_out_of_order_change_nothing() {
    let mut s = Script::running(&spec(1));
    s.exits(9, exit(1), (0, 0)).exits(0, exit(0), (0, 0)).exits(0, exit(9), (0, 0));
    s.receive(ToRoot::Postmortem { proc: ProcId::new(9), facts: Facts::default() });
    s.event(JobEvent::OutputDrained { lost: 0, broken: 0 }).report();
    assert_eq!(s.finished, Some(Ending::Code(0)));
    // After the end no message comes any more.
    s.signal(Signal::INT).done().wait(60_000);
}

/// A stream does not wait for the report of the start, and may be complete before it.
#[test]
fn a_stream_ends_in_the_log_after_its_rank_has_started() {
    let ends = |rank, std| JobEvent::StreamEnd { stream: StreamId::of(ProcId::new(rank), std), total: 3 };
    let mut s = Script::new(&spec(2));
    s.hello();
    s.event(ends(0, Std::Out)).event(ends(1, Std::Err));
    let logged = |s: &Script| {
        let name = |what: &What| {
            let started = if let What::RankStarted { rank, .. } = what { Some(('s', rank.get())) } else { None };
            let ended = if let What::StreamEnd { rank, .. } = what { Some(('e', rank.get())) } else { None };
            started.or(ended).or(matches!(what, What::JobEnd { .. }).then_some(('j', 0)))
        };
        s.log.iter().filter_map(name).collect::<Vec<_>>()
    };
    assert_eq!(logged(&s), []);
    let at = Script::at(0).host_time();
    s.receive(ToRoot::Started { procs: Capped::chunks([Started { proc: ProcId::new(0), pid: 7, at }]).remove(0) });
    s.event(ends(0, Std::Err));
    assert_eq!(logged(&s), [('s', 0), ('e', 0), ('e', 0)]);
    // The other one sends nothing any more.
    s.event(JobEvent::EdgeClosed { node: NODE, why: CloseReason::Eof });
    s.event(JobEvent::GuardianEnded { node: NODE, end: GuardianEnd::Record { left: 0, named: vec![] } }).drained();
    assert_eq!(logged(&s), [('s', 0), ('e', 0), ('e', 0), ('e', 1), ('j', 0)]);
}
