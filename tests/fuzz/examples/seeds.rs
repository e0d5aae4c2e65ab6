//! Writes the seeds that are messages or words, after a change of the wire: `cargo run --example seeds` in this directory.

use rlaunch_base::capped::Capped;
use rlaunch_base::id::{AppIndex, JobId, LocalRank, NodeId, ProcId, Rank, Round};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::{HostTime, Span};
use rlaunch_keyvalue::store::{Ask, Expected, Revision};
use rlaunch_plan::allocation::{HostStep, StepLayout};
use rlaunch_plan::bootstrap::answer::marker;
use rlaunch_plan::bootstrap::{Answer, Hash, Place, Preamble, Secret};
use rlaunch_protocol::guard::devices::DeviceStep;
use rlaunch_protocol::rank_fault::{Fault, FaultKind, Leave};
use rlaunch_protocol::settings::{StdinPlan, Tier};
use rlaunch_protocol::spec::{AppBase, Role};
use rlaunch_protocol::travel::{Limit, Lowered, Resource, Travel};
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::codec::{WireMessage, encode};
use rlaunch_protocol::wire::frame::{Flags, HEADER, Header, Lane};
use rlaunch_protocol::wire::frozen::client::Words;
use rlaunch_protocol::wire::frozen::client::client_round::{AgentMessage, Begin, ClientMessage, Dismissal};
use rlaunch_protocol::wire::probe::Key;
use rlaunch_protocol::wire::round::{RoundDown, RoundMember, RoundRendezvous};
use rlaunch_protocol::wire::to_node::{Delta, Find, Rendezvous, Start, ToNode, WorldRank};
use rlaunch_protocol::wire::to_root::{
    Exited, Facts, Found, Hello, NodeRefusal, Reached, SpawnError, SpawnStep, Started, ToRoot, Usage,
};
use rlaunch_sys::children::Named;
use std::io;

fn app() -> AppBase {
    let strings = |words: &[&str]| words.iter().map(|word| word.as_bytes()).collect();
    AppBase {
        argv: strings(&["./train", "-x"]),
        env: strings(&["PATH=/bin", "A=b"]),
        pinned: strings(&["A"]),
        wdir: Some("/tmp".into()),
        role: Role::sole(),
        logs: None,
        filled: false,
    }
}

fn layout() -> StepLayout {
    StepLayout::new([("node3", 1), ("node0", 2)])
}

fn down() -> Vec<Vec<u8>> {
    let limits = Capped::chunks([Limit { on: Resource::Core, soft: None }]).remove(0);
    let travel = Travel { umask: 0o22, limits, dir: "/home/eve".into() };
    let start = Start {
        find: Some(Find { probe_key: Some(Key::new([5; 32])) }),
        addresses: true,
        travel: Some(Box::new(travel)),
        sole: false,
        has_lease: true,
        awaits: Span::from_secs(36),
        ..Start::of(JobId([7; 16]), 2)
    }
    .with(|settings| {
        settings.gpus = rlaunch_plan::gpus::Share::Each(1);
        settings.output.label = Some("[%r] ".into());
        settings.hosts.interface = "eth0".into();
    });
    let delta = |n| Delta {
        proc: ProcId::new(n),
        app: AppIndex::new(0),
        rank: Rank::new(n),
        local_rank: LocalRank::new(n),
        app_rank: n,
        app_size: 2,
        stdin: StdinPlan::Rank0.of(Rank::new(n)),
        world_rank: WorldRank::sole(Rank::new(n), LocalRank::new(n)),
    };
    let procs = Capped::chunks((0..2).map(delta)).remove(0);
    let meeting = Rendezvous {
        addr: "10.0.0.1".into(),
        port: Some(10_000),
        world_size: 2,
        nodes: 1,
        node_index: 0,
        agent_store: false,
        restart: 0,
        namespace: 0,
        tpu: None,
        mpi: None,
        ranks_here: None,
        slurm: Some(Box::new(HostStep { layout: layout(), task_ids: "0,1".into() })),
    };
    let end = ToNode::End { sig: Signal::TERM, grace: Span::from_secs(5) };
    let part = encode(&app()).as_slice().into();
    [
        ToNode::Start(start),
        ToNode::App { app: AppIndex::new(0), last: true, part },
        ToNode::Rendezvous(meeting),
        ToNode::Spawn { procs, last: true, local_size: 1 },
        ToNode::Signal { sig: Signal::USR1 },
        end,
        ToNode::Devices(DeviceStep::Free),
        ToNode::Kill,
        ToNode::Finish,
    ]
    .iter()
    .map(encode)
    .collect()
}

fn up() -> Vec<Vec<u8>> {
    let at = HostTime(9);
    let at_host = Capped::chunks([OsBytes::from("10.0.0.1")]).remove(0);
    let hello = Hello {
        master_port: 10_000,
        agent: 2,
        init: Some(3),
        reached: Some(Reached {
            from: "10.0.0.9".into(),
            at: at_host,
            probe_ports: Capped::chunks([10_000]).remove(0),
            has: OsBytes::default(),
        }),
        lowered: Capped::chunks([Lowered { on: Resource::Stack, to: 8 << 20 }]).remove(0),
        machine: "boot uts:[1] net:[2] node0".into(),
        ..Hello::of(Tier::T1)
    };
    let started = |n| Started { proc: ProcId::new(n), pid: 100 + n, at };
    let error = SpawnError { step: SpawnStep::Exec, errno: 2, path: "./train".into(), found: Found::Nothing };
    let exited = |n, status| {
        ToRoot::Exited(Exited { proc: ProcId::new(n), status, at, alive_at: at, asked: false, usage: Usage::default() })
    };
    let facts = Facts {
        tail: "a\nb\n".into(),
        core: Some("core".into()),
        oom_limit: Some(0),
        error_file: Some("{\"message\": \"x\"}".into()),
        late: false,
        host: None,
    };
    [
        ToRoot::Hello(hello),
        ToRoot::Ready,
        ToRoot::Devices { held: true },
        ToRoot::Probed { number: 3, found: Err(111) },
        ToRoot::Started { procs: Capped::chunks((0..2).map(started)).remove(0) },
        ToRoot::SpawnFailed { proc: ProcId::new(2), error },
        exited(0, Status::Exited(3)),
        exited(1, Status::Signaled { sig: Signal::SEGV, core: true }),
        ToRoot::Postmortem { proc: ProcId::new(0), facts },
        ToRoot::Refused(NodeRefusal::NoInterface { name: "ib0".into(), has: "lo eth0".into() }),
        ToRoot::InputFailed { errno: 28 },
        ToRoot::InitLost,
        ToRoot::GuardianLost,
        ToRoot::Killing,
        ToRoot::Draining,
        ToRoot::Done { left: 0, named: Capped::chunks([]).into_iter().next().unwrap_or_default() },
    ]
    .iter()
    .map(encode)
    .collect()
}

/// The conversation of a process that takes part in rounds: sent and received messages.
fn session() -> (Vec<ClientMessage>, Vec<AgentMessage>) {
    let round = Round::new(0);
    let fault = Fault { initial: Rank::new(1), kind: FaultKind::Ended(Status::Exited(3)), text: "no".into() };
    let begin = Begin {
        round,
        rank: Rank::new(0),
        world_size: 2,
        active_rank: Some(Rank::new(0)),
        active_world_size: 2,
        initial_rank: Rank::new(0),
        initial_world_size: 2,
        fault: Some(fault.clone()),
        env: vec![("RANK".into(), Some("0".into())), ("A".into(), None)],
    };
    let said = vec![
        ClientMessage::Register(vec![("soft_timeout".into(), "1s".into()), ("keys".into(), "1".into())]),
        ClientMessage::Alive(round, true),
        ClientMessage::Section(round, Some(Span::from_secs(9))),
        ClientMessage::Fault(round, "no".into()),
        ClientMessage::Ready(round, vec!["a".into()]),
        ClientMessage::Returned(round),
        ClientMessage::Leave(Leave::Abort, "no".into()),
    ];
    let received = vec![
        AgentMessage::Begin(begin),
        AgentMessage::Interrupt(round, fault, None),
        AgentMessage::Finish(round),
        AgentMessage::Dismissed(Dismissal::Discarded, "no".into()),
        AgentMessage::Unsupported(99),
    ];
    (said, received)
}

/// Two ranks in a round that one of them ends: of each frame, who says it.
fn rounds(down: &[Vec<u8>], said: &[ClientMessage]) -> Vec<Vec<u8>> {
    let members =
        [0, 1].map(|n| RoundMember { initial: Rank::new(n), rank: Some(Rank::new(n)), active: Some(Rank::new(n)) });
    let begin = |round| {
        let place = RoundRendezvous {
            addr: "".into(),
            port: 0,
            here: false,
            first: Round::new(0),
            namespace: 0,
            world_size: 2,
            active_world_size: 2,
            initial_world_size: 2,
            nodes: 0,
            node_index: None,
            fault: None,
            slurm: Some(layout()),
        };
        let members = Capped::chunks(members).remove(0);
        encode(&ToNode::Round(RoundDown::Begin { round: Round::new(round), place, members, last: true }))
    };
    let fault = Fault { initial: Rank::new(1), kind: FaultKind::Exception, text: "no".into() };
    let interrupt = ToNode::Round(RoundDown::Interrupt { round: Round::new(0), fault, within: None });
    let says = |who: u8, n: usize| [&[0xfe, who << 3 | who], said[n].to_frame().as_slice()].concat();
    let mut all = down.to_vec();
    all.extend([says(0, 0), says(1, 0), begin(0), says(0, 1), says(1, 2), says(1, 3), encode(&interrupt)]);
    all.extend([says(0, 4), says(1, 4), begin(1), says(0, 5), says(1, 6)]);
    all
}

/// Two bytes of length, the body: as the target `machines` reads it.
fn parts(direction: u8, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![direction];
    for message in messages {
        out.extend(u16::try_from(message.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend(message);
    }
    out
}

fn frames(direction: u8, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![direction];
    let mut frame = |lane, flags, body: &[u8]| {
        let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
        out.extend(Header { len, lane, flags, node: NodeId::new(0), stream: 1 }.to_bytes());
        out.extend(body);
    };
    messages.iter().for_each(|message| frame(Lane::Control, Flags::NONE, message));
    frame(Lane::Data, Flags::END, b"some output\n");
    frame(Lane::Credit, Flags::NONE, &9u64.to_le_bytes());
    frame(Lane::Beat, Flags::NONE, &Beat { own: 7, echo: 9 }.to_bytes());
    out
}

fn one<M: WireMessage>(direction: u8, message: &M) -> Vec<u8> {
    [vec![direction], encode(message)].concat()
}

/// Input of the target `remote_words`: a letter, and for a stream the length of its pieces.
fn words() -> Vec<(&'static str, Vec<u8>)> {
    let job = JobId([7; 16]);
    let line = |answer: Answer| format!("{}{}\n", marker(job), answer.to_line());
    let up = Answer::Up { proof: "00112233".into(), pid: 7, wall: 9 };
    let answers =
        ["s\x10Welcome!\n".to_owned(), line(Answer::Need(Place::Tmp)), line(Answer::Ready(Place::Tmp)), line(up)];
    let others = ["s\x40".to_owned(), line(Answer::Nowhere("cache:noexec".into())), marker(job), "HELLO\n".to_owned()];
    let preamble = Preamble {
        job,
        node: NodeId::new(3),
        secret: Secret([9; 32]),
        lease: Span::from_secs(30),
        len: 2_316_608,
        hash: Hash([1; 32]),
    };
    let named = Named { pid: 4711, comm: *b"stuck\0\0\0\0\0\0\0\0\0\0\0", wchan: [b'w'; 40] };
    let left = rlaunch_sys::guardian::example_frame(0, 3, true, &[named]);
    let body = left.get(HEADER..).unwrap_or_default();
    vec![
        ("answers", answers.concat().into_bytes()),
        ("others", others.concat().into_bytes()),
        ("preamble", [b"p", &preamble.to_bytes()[..]].concat()),
        ("last", [b"l", body].concat()),
        ("last-frame", [&b"lhalf a frame"[..], &left].concat()),
        ("jump", b"wuser eve\nproxyjump me@b:22,c\nport 22\n".to_vec()),
        ("proxy", b"wproxyjump none\nproxycommand exec \"/usr/bin/ssh\" -W %h:%p b\n".to_vec()),
        ("denied", b"t\x07eve@node7: Permission denied (publickey).\r\n".to_vec()),
        ("throttled", b"t\x20kex_exchange_identification: Connection closed by remote host\n".to_vec()),
    ]
}

/// The bytes of torch's clients: 1.13, and 2.15.
fn tcpstore() -> Vec<(&'static str, Vec<u8>)> {
    let string = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let op = |code: u8, words: &[&str]| [vec![code], words.iter().flat_map(|word| string(word)).collect()].concat();
    let n = |number: i64| number.to_le_bytes().to_vec();
    let old = [
        [op(3, &["init/"]), n(1)].concat(),
        op(0, &["/k1", "v1"]),
        [vec![5], n(1), string("/k1")].concat(),
        op(2, &["/k1"]),
        op(1, &["/k1", "v1", "v2"]),
        vec![6],
        op(8, &["/k1"]),
    ];
    let new = [
        vec![0, 0xCE, 0xF7, 0x85, 0x3C, 13, 0xE2, 0x69, 0, 0],
        [op(4, &["init/"]), n(1)].concat(),
        op(1, &["/k1", "v1"]),
        [vec![6], n(1), string("/never")].concat(),
        vec![12, 7],
        op(9, &["/k3", "abc"]),
        [vec![11], n(2), string("/m1"), string("a"), string("/m2"), string("b")].concat(),
        [vec![10], n(2), string("/m1"), string("/m2")].concat(),
        op(14, &["/q", "x"]),
        op(15, &["/q"]),
        [op(18, &["/b1"]), n(1)].concat(),
        vec![17],
    ];
    let several: Vec<u8> = (old.iter().map(|piece| (0, piece)))
        .chain(new.iter().map(|piece| (1, piece)))
        .flat_map(|(who, piece)| [&[who, u8::try_from(piece.len()).unwrap_or(u8::MAX)], piece.as_slice()].concat())
        .chain([2, 12, 7, 3, 0, 0, 0, 0, 0, 0, 0, b'/', b'k', b'1', 0x80, 0])
        .collect();
    vec![
        ("torch-1.13", [b"c\x05".to_vec(), old.concat()].concat()),
        ("torch-2.15", [b"c\x09".to_vec(), new.concat()].concat()),
        ("several", [b"s".to_vec(), several].concat()),
    ]
}

/// Every kind of ask of our own store.
fn asks() -> Vec<Vec<u8>> {
    let (all, who) = (RankSet::world(2), RankSet::world(1));
    let within = Some(Span::from_millis(2));
    [
        Ask::Get(b"k"),
        Ask::GetAll(&[b"k", b"l"]),
        Ask::Set(b"k", b"1"),
        Ask::SetAll(&[(b"k", b"1"), (b"l", b"2")]),
        Ask::Add(b"k", -2),
        Ask::Append(b"k", b"3"),
        Ask::CompareSet { key: b"k", expected: Expected::AbsentOr(b"1"), desired: b"4" },
        Ask::Delete(b"k"),
        Ask::Check(&[b"k"]),
        Ask::Wait { keys: &[b"k"], within },
        Ask::Wait { keys: &[b"k", b"l"], within: None },
        Ask::Count,
        Ask::List { prefix: b"", after: None, most: 9 },
        Ask::Push(b"q", b"1"),
        Ask::Pop(b"q"),
        Ask::Take { key: b"q", within },
        Ask::Len(b"q"),
        Ask::Watch { key: b"k", since: Some(Revision(1)), within },
        Ask::Gather { key: b"n", until: 2, within },
        Ask::Fence { name: b"f", all: &all, who: &who, within },
        Ask::Arrive { name: b"f", all: &all, who: &who },
    ]
    .map(Words::write)
    .into()
}

fn main() -> io::Result<()> {
    let (down, up) = (down(), up());
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let dir = format!("{}/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
        std::fs::create_dir_all(&dir)?;
        std::fs::write(format!("{dir}/{name}"), bytes)
    };
    write("machines", "agent", &parts(0, &down))?;
    write("machines", "launcher", &parts(1, &up))?;
    let (said, received) = session();
    // The plan up to the start of the ranks.
    write("machines", "rounds", &parts(0, &rounds(&down[..4], &said)))?;
    let both = said.iter().map(ClientMessage::to_frame).chain(received.iter().map(AgentMessage::to_frame));
    for (n, frame) in both.enumerate() {
        write("spaces", &format!("session-{n}"), &[&[0], frame.as_slice()].concat())?;
    }
    write("edge", "to-node", &frames(0, &down))?;
    write("edge", "to-root", &frames(1, &up))?;
    write("edge", "app", &one(4, &app()))?;
    for (n, message) in down.iter().enumerate() {
        write("edge", &format!("node-{n}"), &[&[2], message.as_slice()].concat())?;
    }
    for (n, message) in up.iter().enumerate() {
        write("edge", &format!("root-{n}"), &[&[3], message.as_slice()].concat())?;
    }
    for (name, bytes) in tcpstore() {
        write("tcpstore", name, &bytes)?;
    }
    for (n, words) in asks().iter().enumerate() {
        let len = u8::try_from(words.len()).unwrap_or(u8::MAX);
        write("spaces", &format!("words-{n}"), &[&[0], words.as_slice()].concat())?;
        write("spaces", &format!("ask-{n}"), &[&[1, 3, len], words.as_slice(), &[4, len], words.as_slice()].concat())?;
    }
    for (name, bytes) in words() {
        write("remote_words", name, &bytes)?;
    }
    write("edge", "header", &frames(5, &[]))
}
