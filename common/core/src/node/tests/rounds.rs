//! Rounds, as a node and its ranks go through them.

mod awaited;
mod calls;
mod early;
mod hooks;
mod marks;
mod respawn;
mod slurm_variables;
mod watch;

use super::*;
use NodeAction::{Sessions, Store, TcpStores};
use SessionAction::{End, Send};
use rlaunch_base::id::{Round, SessionId};
use rlaunch_protocol::rank_fault::{Fault, FaultKind, Leave};
use rlaunch_protocol::wire::frozen::client::client_round::{AgentMessage, Begin, ClientMessage, Dismissal};
use rlaunch_protocol::wire::round::{Enrolled, RoundDown, RoundMember, RoundRendezvous, RoundUp};

const R0: Round = Round::new(0);
const R1: Round = Round::new(1);
const CONT: Signal = Signal::CONT;

fn s(n: u32) -> SessionId {
    SessionId::new(n)
}

fn r(n: u32) -> Rank {
    Rank::new(n)
}

fn terms(text: &str) -> Vec<(OsBytes, OsBytes)> {
    let pair = |term: &str| {
        let (name, value) = term.split_once('=').expect("NAME=value");
        (OsBytes::from(name), OsBytes::from(value))
    };
    text.split_whitespace().map(pair).collect()
}

fn enrolled(n: u32, keys: &[&str]) -> Enrolled {
    let keys = Capped::chunks(keys.iter().map(|key| OsBytes::from(*key))).pop().unwrap_or_default();
    Enrolled { initial: r(n), proc: p(n), keys }
}

fn enroll<const N: usize>(ranks: &[u32]) -> Capped<Enrolled, N> {
    Capped::chunks(ranks.iter().map(|n| enrolled(*n, &[]))).pop().unwrap_or_default()
}

fn up(up: RoundUp) -> NodeAction {
    says(ToRoot::Round(up))
}

fn joined(ranks: &[u32], terms: &str) -> NodeAction {
    up(RoundUp::Joined { call: 0, ranks: enroll(ranks), terms: terms.into() })
}

fn ready(round: Round, ranks: &[u32], port: u16) -> NodeAction {
    up(RoundUp::Ready { round, ranks: enroll(ranks), last: true, port, pinged: false })
}

fn reserve_port(listen: Option<&str>) -> NodeAction {
    TcpStores(TcpStoreAction::ReservePort { listen: listen.map(OsBytes::from) })
}

fn fault(initial: u32, kind: FaultKind, text: &str) -> Fault {
    Fault { initial: r(initial), kind, text: text.into() }
}

fn notify(n: u32, order: AgentMessage) -> NodeAction {
    Sessions(Send { session: s(n), message: Box::new(order) })
}

fn round_member(initial: u32, rank: Option<u32>, active: Option<u32>) -> RoundMember {
    RoundMember { initial: r(initial), rank: rank.map(r), active: active.map(r) }
}

/// The rendezvous of the first round: where all have met at their start.
fn first_place(count: u32) -> RoundRendezvous {
    RoundRendezvous {
        addr: "127.0.0.1".into(),
        port: 20000,
        here: true,
        namespace: 1,
        world_size: count,
        active_world_size: count,
        initial_world_size: count,
        first: R0,
        nodes: 1,
        node_index: Some(0),
        fault: None,
        slurm: None,
    }
}

impl Rig {
    /// A node whose ranks have registered, and are in their first round.
    pub(super) fn in_round(count: u32) -> Self {
        Self::in_round_by(start(), count, "")
    }

    fn in_round_by(start: Start, count: u32, asked: &str) -> Self {
        let mut rig = Self::running_by(start, count);
        for n in 0..count {
            rig.registers(n, asked);
        }
        let members: Vec<RoundMember> = (0..count).map(|n| round_member(n, Some(n), Some(n))).collect();
        rig.begins(R0, first_place(count), &members);
        rig
    }

    /// By a session of its rank's number.
    fn registers(&mut self, n: u32, asked: &str) -> Vec<NodeAction> {
        self.receive(NodeEvent::SessionBegun { session: s(n), rank: Some(r(n)), terms: terms(asked) })
    }

    fn says(&mut self, n: u32, said: ClientMessage) -> Vec<NodeAction> {
        self.receive(NodeEvent::SessionMessage { session: s(n), said })
    }

    fn is_ready(&mut self, n: u32, round: Round) -> Vec<NodeAction> {
        self.says(n, ClientMessage::Ready(round, Vec::new()))
    }

    fn down(&mut self, down: RoundDown) -> Vec<NodeAction> {
        self.root(ToNode::Round(down))
    }

    fn begins(&mut self, round: Round, place: RoundRendezvous, members: &[RoundMember]) -> Vec<NodeAction> {
        let members = Capped::chunks(members.iter().copied()).pop().unwrap_or_default();
        self.down(RoundDown::Begin { round, place, members, last: true })
    }

    fn interrupt(&mut self, round: Round) -> Vec<NodeAction> {
        self.down(RoundDown::Interrupt { round, fault: fault(0, FaultKind::Exception, "x"), within: None })
    }
}

fn interrupted(n: u32, round: Round) -> NodeAction {
    notify(n, AgentMessage::Interrupt(round, fault(0, FaultKind::Exception, "x"), None))
}

fn began(actions: &[NodeAction]) -> Vec<(u32, Begin)> {
    let begin = |action: &NodeAction| {
        let Sessions(Send { session, message: order }) = action else { return None };
        let AgentMessage::Begin(begin) = &**order else { panic!("{order:?}") };
        Some((session.get(), begin.clone()))
    };
    actions.iter().filter_map(begin).collect()
}

fn var(begin: &Begin, name: &str) -> Option<Option<String>> {
    let (_, value) = begin.env.iter().find(|(own, _)| **own == *name.as_bytes())?;
    Some(value.as_ref().map(|value| String::from_utf8(value.to_vec()).unwrap()))
}

fn is(text: &str) -> Option<Option<String>> {
    Some(Some(text.into()))
}

#[test]
fn ranks_are_reported_together_once_all_live_ranks_have_registered() {
    let mut rig = Rig::running(4);
    assert_eq!(rig.registers(1, "soft_timeout=9s"), []);
    assert_eq!(rig.registers(0, "soft_timeout=9s"), []);
    assert_eq!(rig.registers(3, "soft_timeout=9s"), [], "rank 2 may still come");
    let actions = rig.exited(2, exit(0));
    assert!(actions.contains(&joined(&[0, 1, 3], "soft_timeout=9s\n")), "{actions:?}");
    let mut rig = Rig::new();
    rig.root(ToNode::Start(start()));
    rig.receive(NodeEvent::SandboxReady(sandbox()));
    rig.root(app_of(0, &base()));
    rig.root(spawn(0..1, false));
    assert_eq!(rig.registers(0, ""), [], "others may come that are not known yet");
    rig.root(spawn(1..2, true));
    assert_eq!(rig.registers(1, ""), [joined(&[0, 1], "keys=0\n")], "even what is said before it is known to run");
}

#[test]
fn silent_program_without_restart_options_gets_no_warning() {
    let mut rig = Rig::running(2);
    assert!(!rig.exited(0, exit(0)).iter().any(|action| matches!(action, NodeAction::ToRoot(ToRoot::Round(_)))));
    assert!(!rig.exited(1, exit(1)).iter().any(|action| matches!(action, NodeAction::ToRoot(ToRoot::Round(_)))));
}

#[test]
fn different_terms_of_ranks_are_reported() {
    let mut rig = Rig::running(3);
    rig.registers(0, "keys=1");
    rig.registers(1, "keys=2");
    assert_eq!(rig.registers(2, "keys=1"), [joined(&[0, 2], "keys=1\n"), joined(&[1], "keys=2\n")]);
    let text = OsBytes::from("they differ");
    let all = rig.down(RoundDown::Refuse { ranks: Capped::default(), text: text.clone() });
    let refused = AgentMessage::Dismissed(Dismissal::Refused, text);
    assert_eq!(all, [0, 1, 2].map(|n| notify(n, refused.clone())));
}

#[test]
fn keys_are_a_ranks_own_and_not_what_many_ask_for() {
    let mut rig = Rig::running(2);
    rig.registers(0, "keys=1 key.0=a");
    let ranks = Capped::chunks([enrolled(0, &["a"]), enrolled(1, &["b"])]).pop().unwrap();
    assert_eq!(rig.registers(1, "keys=1 key.0=b"), [up(RoundUp::Joined { call: 0, ranks, terms: "keys=1\n".into() })]);
}

#[test]
fn refused_rank_gets_the_reason() {
    let refused = |actions: &[NodeAction], words: &str| {
        let [Sessions(Send { session, message: order }), Sessions(End { session: ended })] = actions else {
            panic!("{actions:?}")
        };
        let AgentMessage::Dismissed(Dismissal::Refused, text) = &**order else { panic!("{order:?}") };
        assert_eq!(session, ended);
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(text.contains(words), "{text}");
    };
    let after_report = |mut actions: Vec<NodeAction>| {
        let NodeAction::ToRoot(ToRoot::Round(RoundUp::Refused { text })) = actions.remove(0) else { panic!() };
        assert!(text.to_string().contains("soft_timeout"), "{text}");
        actions
    };
    let mut rig = Rig::running(2);
    let begun = |session: u32, rank: Option<u32>, asked: &str| NodeEvent::SessionBegun {
        session: s(session),
        rank: rank.map(r),
        terms: terms(asked),
    };
    refused(&rig.receive(begun(7, None, "")), "RLAUNCH_RANK");
    refused(&rig.receive(begun(7, Some(9), "")), "no rank 9 of this job runs on this host");
    refused(&after_report(rig.receive(begun(7, Some(0), "soft_timout=3s"))), "soft_timeout");
    refused(&rig.receive(begun(7, Some(0), "soft_timeout=100s")), "hard_timeout");
    rig.registers(0, "");
    refused(&rig.receive(begun(8, Some(0), "")), "another process or thread of rank 0 takes part already");
    rig.exited(1, exit(0));
    refused(&rig.receive(begun(9, Some(1), "")), "no rank 1");
    rig.down(RoundDown::GiveUp { text: "enough".into() });
    refused(&rig.receive(begun(8, Some(0), "")), "are over");
    refused(&Rig::running_by(Start { apps: 2, ..start() }, 0).receive(begun(1, Some(0), "")), "no rank 0");
    let mut several = Rig::new();
    several.root(ToNode::Start(Start { apps: 2, ..start() }));
    several.root(spawn(0..1, true));
    refused(&several.receive(begun(1, Some(0), "")), "jobs of one program, and this one has 2");
}

#[test]
fn a_round_begins_with_what_a_process_would_be_started_with() {
    let mut rig = Rig::running(3);
    (0..3).for_each(|n| drop(rig.registers(n, "")));
    let place =
        RoundRendezvous { active_world_size: 2, fault: Some(fault(9, FaultKind::HostLost, "")), ..first_place(4) };
    let members = [round_member(0, Some(2), Some(1)), round_member(1, Some(3), None), round_member(2, None, None)];
    let actions = rig.begins(R0, place, &members);
    let namespace = Store(StoreAction::Open { here: true, number: 1, ranks: Some([r(1)].into_iter().collect()) });
    assert_eq!(actions.first(), Some(&namespace), "the namespace of the active ranks here, before they are notified");
    let discarded = notify(2, AgentMessage::Dismissed(Dismissal::Discarded, OsBytes::default()));
    assert_eq!(actions.last(), Some(&discarded));
    let [(0, active), (1, reserve)] = &began(&actions[..3])[..] else { panic!("{actions:?}") };
    assert_eq!((active.rank, active.active_rank, active.world_size), (r(2), Some(r(1)), 4));
    assert_eq!((active.initial_rank, active.initial_world_size, active.active_world_size), (r(0), 4, 2));
    assert_eq!(active.fault, Some(fault(9, FaultKind::HostLost, "")));
    assert_eq!(var(active, "RANK"), None, "the user pinned it");
    for (name, value) in [
        ("WORLD_SIZE", "2"),
        ("LOCAL_WORLD_SIZE", "1"),
        ("ROLE_RANK", "1"),
        ("GROUP_RANK", "0"),
        ("GROUP_WORLD_SIZE", "1"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "20000"),
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("RLAUNCH_RANK", "2"),
        ("RLAUNCH_WORLD_SIZE", "4"),
        ("RLAUNCH_ROUND", "0"),
    ] {
        assert_eq!(var(active, name), is(value), "{name}");
    }
    for kept in ["LOCAL_RANK", "RLAUNCH_INITIAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "RLAUNCH_JOB_ID"] {
        assert_eq!(var(active, kept), None, "{kept} stays");
    }
    assert_eq!(reserve.active_rank, None);
    for (name, value) in [("WORLD_SIZE", None), ("ROLE_RANK", None), ("MASTER_PORT", None), ("NODE_RANK", None)] {
        assert_eq!(var(reserve, name), Some(value), "{name}");
    }
    assert_eq!((var(reserve, "RLAUNCH_RANK"), var(reserve, "RLAUNCH_WORLD_SIZE")), (is("3"), is("4")));
}

#[test]
fn fault_is_reported_at_once_and_ranks_are_ready_together() {
    let mut rig = Rig::in_round(3);
    let at = rig.now.host_time();
    let report = up(RoundUp::Fault { round: R0, fault: fault(1, FaultKind::Exception, "ValueError: no"), at });
    assert_eq!(rig.says(1, ClientMessage::Fault(R0, "ValueError: no".into())), [report]);
    assert_eq!(rig.says(1, ClientMessage::Fault(R0, "again".into())), [], "once");
    assert_eq!(rig.is_ready(1, R0), []);
    assert_eq!(rig.interrupt(R0), [interrupted(0, R0), interrupted(2, R0)], "a rank that is out gets nothing");
    assert_eq!(rig.says(2, ClientMessage::Ready(R0, vec!["a".into(), "b".into()])), []);
    assert_eq!(rig.is_ready(0, R0), [reserve_port(None)]);
    let actions = rig.receive(NodeEvent::PortReserved { port: 21000 });
    let ranks = Capped::chunks([enrolled(0, &[]), enrolled(1, &[]), enrolled(2, &["a", "b"])]).pop().unwrap();
    assert_eq!(actions, [up(RoundUp::Ready { round: R0, ranks, last: true, port: 21000, pinged: false })]);
}

#[test]
fn the_next_round_meets_at_the_port_that_was_held_or_lets_go_of_it() {
    for here in [true, false] {
        let mut rig = Rig::in_round(2);
        rig.interrupt(R0);
        (0..2).for_each(|n| drop(rig.is_ready(n, R0)));
        rig.receive(NodeEvent::PortReserved { port: 21000 });
        let port = if here { 21000 } else { 31000 };
        let place = RoundRendezvous { here, port, namespace: 2, ..first_place(2) };
        let members = [round_member(0, Some(1), Some(1)), round_member(1, Some(0), Some(0))];
        let actions = rig.begins(R1, place, &members);
        let namespace = Store(StoreAction::Open { here, number: 2, ranks: Some([r(0), r(1)].into_iter().collect()) });
        assert_eq!(actions[..2], [TcpStores(TcpStoreAction::UsePort(here)), namespace]);
        let begun = began(&actions[2..]);
        assert_eq!(var(&begun[0].1, "MASTER_PORT"), is(&port.to_string()));
        assert_eq!(var(&begun[0].1, "OMPI_COMM_WORLD_RANK"), is("1"));
        assert_eq!(var(&begun[1].1, "RLAUNCH_ROUND"), is("1"));
    }
}

#[test]
fn the_store_of_a_round_is_where_the_round_meets() {
    let agent_store = || {
        let rendezvous = Rendezvous { agent_store: true, ..start().rendezvous.unwrap_or_default() };
        Start { rendezvous: Some(rendezvous), ..start() }
    };
    let next = |here: bool, port: u16| RoundRendezvous { here, port, namespace: 2, ..first_place(1) };
    let mut rig = Rig::in_round_by(agent_store(), 1, "");
    rig.interrupt(R0);
    assert_eq!(rig.is_ready(0, R0), [reserve_port(Some("127.0.0.1"))]);
    rig.receive(NodeEvent::PortReserved { port: 21000 });
    let actions = rig.begins(R1, next(true, 21000), &[round_member(0, Some(0), Some(0))]);
    let [
        TcpStores(TcpStoreAction::UsePort(true)),
        Store(StoreAction::Open { .. }),
        TcpStores(TcpStoreAction::Open(TcpStorePlan { addr, port, .. })),
        Sessions(Send { .. }),
    ] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!((addr, *port), (&"127.0.0.1".into(), 21000));
    let mut rig = Rig::in_round_by(agent_store(), 1, "");
    rig.interrupt(R0);
    rig.is_ready(0, R0);
    rig.receive(NodeEvent::PortReserved { port: 21000 });
    let actions = rig.begins(R1, next(false, 31000), &[round_member(0, Some(0), Some(0))]);
    let [
        TcpStores(TcpStoreAction::UsePort(false)),
        Store(StoreAction::Open { here: false, .. }),
        TcpStores(TcpStoreAction::Close),
        Sessions(Send { .. }),
    ] = &actions[..]
    else {
        panic!("{actions:?}")
    };
}

#[test]
fn the_first_round_changes_nothing_of_where_ranks_meet() {
    let rendezvous = Rendezvous { agent_store: true, ..start().rendezvous.unwrap_or_default() };
    let mut rig = Rig::running_by(Start { rendezvous: Some(rendezvous), ..start() }, 1);
    rig.registers(0, "");
    let actions = rig.begins(R0, first_place(1), &[round_member(0, Some(0), Some(0))]);
    assert!(matches!(&actions[..], [Store(StoreAction::Open { .. }), Sessions(Send { .. })]), "{actions:?}");
}

#[test]
fn exited_rank_is_not_waited_for_and_children_end() {
    let mut rig = Rig::in_round(3);
    let said = says_exit(&rig, 2, by(KILL));
    let actions = rig.exited(2, by(KILL));
    assert_eq!(actions[..2], [said, group(2, KILL)]);
    assert_eq!(rig.receive(NodeEvent::SessionLost { session: s(2) }), []);
    rig.interrupt(R0);
    rig.is_ready(0, R0);
    let actions = rig.exited(1, by(KILL));
    assert!(actions.contains(&reserve_port(None)), "{actions:?}");
    let actions = rig.exited(0, exit(1));
    assert_eq!(actions[1], group(0, KILL), "ready, and gone: {actions:?}");
    assert_eq!(rig.receive(NodeEvent::PortReserved { port: 5 }), [ready(R0, &[], 5)]);
}

#[test]
fn a_node_without_anybody_left_says_so() {
    let mut rig = Rig::in_round(1);
    rig.exited(0, by(KILL));
    assert_eq!(rig.interrupt(R0), [ready(R0, &[], 0)]);
}

#[test]
fn the_end_of_a_session_waits_for_that_of_its_process() {
    let mut rig = Rig::in_round(2);
    rig.receive(NodeEvent::SessionLost { session: s(1) });
    rig.interrupt(R0);
    assert_eq!(rig.is_ready(0, R0), [], "it may be about to end: then its exit is reported");
    let mut closed = Rig::in_round(2);
    let actions = rig.exited(1, by(KILL));
    assert!(!actions.iter().any(|action| matches!(action, NodeAction::ToRoot(ToRoot::Round(RoundUp::Fault { .. })))));
    assert!(actions.contains(&reserve_port(None)));
    closed.receive(NodeEvent::SessionLost { session: s(1) });
    assert_eq!(closed.node.poll_timeout(), Some(closed.now + Span::from_secs(2)));
    let actions = closed.wait(2000);
    let [NodeAction::ToRoot(ToRoot::Round(RoundUp::Fault { round: R0, fault, .. })), ended @ ..] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((fault.initial, fault.kind), (r(1), FaultKind::Ended(Status::Lost)));
    assert_eq!(ended, [group(1, Signal::CONT), group(1, TERM)], "the others go on without it");
    closed.interrupt(R0);
    assert_eq!(closed.is_ready(0, R0), [reserve_port(None)]);
}

#[test]
fn leaving_rank_is_reported_and_continues() {
    let mut rig = Rig::in_round(2);
    let at = rig.now.host_time();
    let left = fault(1, FaultKind::Left(Leave::Unhealthy), "no GPU");
    let actions = rig.says(1, ClientMessage::Leave(Leave::Unhealthy, "no GPU".into()));
    assert_eq!(actions, [up(RoundUp::Fault { round: R0, fault: left, at })]);
    assert_eq!(rig.receive(NodeEvent::SessionLost { session: s(1) }), []);
    assert_eq!(rig.interrupt(R0), [interrupted(0, R0)]);
    let actions = rig.exited(1, exit(3));
    assert!(!actions.contains(&group(1, KILL)), "what it does now is its own matter: {actions:?}");
    assert_eq!(rig.is_ready(0, R0), [reserve_port(None)]);
}

#[test]
fn the_work_is_done_when_it_is_done_everywhere() {
    let mut rig = Rig::in_round(2);
    assert_eq!(rig.says(0, ClientMessage::Returned(R0)), []);
    assert_eq!(rig.says(1, ClientMessage::Returned(R0)), [up(RoundUp::Returned { round: R0, ranks: 2 })]);
    let actions = rig.down(RoundDown::Finish { call: 0, round: R0 });
    assert_eq!(actions, [0, 1].map(|n| notify(n, AgentMessage::Finish(R0))));
    assert_eq!(rig.wait(500_000), [], "nobody is watched any more");
    assert_eq!(rig.node.poll_timeout(), None);
    let actions = rig.exited(0, exit(0));
    assert!(!actions.contains(&group(0, KILL)));
}

#[test]
fn returned_ranks_run_again_after_a_fault() {
    let mut rig = Rig::in_round(2);
    rig.says(0, ClientMessage::Returned(R0));
    rig.says(1, ClientMessage::Fault(R0, "x".into()));
    assert_eq!(rig.interrupt(R0), [interrupted(0, R0), interrupted(1, R0)]);
    rig.is_ready(1, R0);
    assert_eq!(rig.is_ready(0, R0), [reserve_port(None)]);
}

#[test]
fn message_of_another_round_is_dropped() {
    let mut rig = Rig::in_round(1);
    for said in [
        ClientMessage::Fault(R1, "x".into()),
        ClientMessage::Ready(R1, Vec::new()),
        ClientMessage::Returned(R1),
        ClientMessage::Alive(R1, true),
        ClientMessage::Section(R1, None),
    ] {
        assert_eq!(rig.says(0, said), []);
    }
    assert_eq!(rig.interrupt(R1), []);
    assert_eq!(rig.says(5, ClientMessage::Leave(Leave::Abort, OsBytes::default())), [], "of nobody");
    assert_eq!(rig.interrupt(R0), [interrupted(0, R0)]);
}

#[test]
fn hook_variables_fit_into_a_message() {
    use rlaunch_protocol::wire::codec::encode;
    use rlaunch_protocol::wire::frame::MAX_CONTROL;
    let mut rig = Rig::in_round(120);
    rig.interrupt(R0);
    let key = |len: usize| OsBytes::new(vec![b'x'; len]);
    let actions = rig.says(119, ClientMessage::Ready(R0, vec![key(4097)]));
    let text = "a key of the policy has a value of more than 4096 bytes";
    let left = fault(119, FaultKind::Left(Leave::Unhealthy), text);
    let refused = notify(119, AgentMessage::Dismissed(Dismissal::Refused, text.into()));
    assert_eq!(actions, [refused, up(RoundUp::Fault { round: R0, fault: left, at: rig.now.host_time() })]);
    (0..119).for_each(|n| drop(rig.says(n, ClientMessage::Ready(R0, vec![key(4096); 16]))));
    let mut all = Vec::new();
    for action in rig.receive(NodeEvent::PortReserved { port: 9 }) {
        let NodeAction::ToRoot(msg @ ToRoot::Round(RoundUp::Ready { .. })) = action else { panic!("{action:?}") };
        assert!(encode(&msg).len() < MAX_CONTROL as usize / 2);
        let ToRoot::Round(RoundUp::Ready { ranks, last, .. }) = msg else { continue };
        all.extend(ranks.iter().map(|one| (one.initial.get(), false)));
        all.last_mut().unwrap().1 = last;
    }
    let wanted: Vec<(u32, bool)> = (0..119).map(|n| (n, n == 118)).collect();
    assert_eq!(all, wanted);
    let mut late = Rig::running(1);
    let actions = late.registers(0, &alloc::format!("keys=1 key.0={}", "x".repeat(4097)));
    assert!(matches!(&actions[..], [.., Sessions(End { .. })]), "{actions:?}");
}

#[test]
fn reserves_may_be_silent_and_get_interrupts() {
    let mut rig = Rig::running(2);
    (0..2).for_each(|n| drop(rig.registers(n, "")));
    let place = RoundRendezvous { active_world_size: 1, ..first_place(2) };
    rig.begins(R0, place, &[round_member(0, Some(0), Some(0)), round_member(1, Some(1), None)]);
    for _ in 0..10 {
        rig.says(0, ClientMessage::Alive(R0, false));
        assert_eq!(rig.wait(50_000), []);
    }
    assert_eq!(
        rig.says(0, ClientMessage::Returned(R0)),
        [up(RoundUp::Returned { round: R0, ranks: 1 })],
        "they do not count"
    );
    assert_eq!(rig.interrupt(R0), [interrupted(0, R0), interrupted(1, R0)]);
}

#[test]
fn a_planned_round_may_become_an_urgent_one() {
    let mut rig = Rig::in_round(1);
    let within = Some(Span::from_secs(30));
    let warned = fault(0, FaultKind::Warned, "");
    let planned = RoundDown::Interrupt { round: R0, fault: warned.clone(), within };
    assert_eq!(rig.down(planned), [notify(0, AgentMessage::Interrupt(R0, warned, within))]);
    assert_eq!(rig.interrupt(R0), [interrupted(0, R0)]);
    rig.is_ready(0, R0);
    assert_eq!(rig.interrupt(R0), []);
}

#[test]
fn no_further_round_is_the_end_of_all_calls() {
    let mut rig = Rig::in_round(2);
    let text = OsBytes::from("no healthy rank is left");
    let actions = rig.down(RoundDown::GiveUp { text: text.clone() });
    assert_eq!(actions, [0, 1].map(|n| notify(n, AgentMessage::Dismissed(Dismissal::GivenUp, text.clone()))));
    assert_eq!(rig.interrupt(R0), []);
    assert_eq!(rig.says(0, ClientMessage::Fault(R0, "x".into())), []);
}

#[test]
fn the_end_of_the_job_goes_before_rounds() {
    let mut rig = Rig::in_round(2);
    rig.interrupt(R0);
    (0..2).for_each(|n| drop(rig.is_ready(n, R0)));
    rig.receive(NodeEvent::PortReserved { port: 9 });
    let end = rig.root(ToNode::End { sig: TERM, grace: Span::from_secs(500) });
    assert!(end.contains(&TcpStores(TcpStoreAction::UsePort(false))), "{end:?}");
    assert_eq!(rig.begins(R1, first_place(2), &[round_member(0, Some(0), Some(0))]), []);
    assert_eq!(rig.wait(400_000), [], "who is to end has the grace for it");
}

/// A rank of the next generation runs, of a host on which this has happened before.
fn another_generation(before: impl FnOnce(&mut Rig)) -> Rig {
    let mut rig =
        Rig::in_round_by(Start { can_start_more: true, ..start() }.with(|settings| settings.restarts.most = 2), 1, "");
    before(&mut rig);
    rig.root(ToNode::Clear { sig: TERM, grace: Span::from_secs(1), port: PortPlan::None });
    rig.exited(0, by(TERM));
    rig.receive(NodeEvent::SessionLost { session: s(0) });
    rig.examined(0, Facts::default());
    rig.streams_end(0);
    rig.left(0);
    rig.receive(NodeEvent::Renewed { port: 0 });
    rig.root(ToNode::Again(Rendezvous { namespace: 2, restart: 1, ..start().rendezvous.unwrap_or_default() }));
    rig.root(another(300, 0));
    rig
}

#[test]
fn another_generation_begins_anew() {
    let mut rig = another_generation(|_| {});
    let ranks = Capped::chunks([Enrolled { proc: p(300), ..enrolled(0, &[]) }]).pop().unwrap();
    assert_eq!(rig.registers(0, ""), [up(RoundUp::Joined { call: 0, ranks, terms: "keys=0\n".into() })]);
    let begun =
        rig.begins(R0, RoundRendezvous { namespace: 3, ..first_place(1) }, &[round_member(0, Some(0), Some(0))]);
    assert_eq!(began(&begun).len(), 1);
}

/// Another process for a rank.
pub(super) fn another(proc: u32, rank: u32) -> ToNode {
    let delta = Delta {
        proc: p(proc),
        app: AppIndex::new(0),
        rank: r(rank),
        local_rank: LocalRank::new(rank),
        app_rank: rank,
        app_size: 4,
        stdin: StdinPlan::None,
        world_rank: rlaunch_protocol::wire::to_node::WorldRank::sole(r(rank), LocalRank::new(rank)),
    };
    ToNode::Spawn { procs: Capped::chunks([delta]).pop().unwrap(), last: true, local_size: 2 }
}
