//! The two processes on the other side of ssh, addressed as the launcher will: the events that end a job there, and their reports.

use crate::census::{self, Mercy};
use crate::place;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{AppIndex, JobId, LocalRank, NodeId, ProcId, Rank};
use rlaunch_base::os_strings::OsStrings;
use rlaunch_base::time::Span;
use rlaunch_plan::bootstrap::answer::marker;
use rlaunch_plan::bootstrap::{Answer, Finding, Hash, PREAMBLE, Preamble, Scanner, Secret};
use rlaunch_protocol::settings::{Contain, StdinPlan};
use rlaunch_protocol::spec::{AppBase, Role};
use rlaunch_protocol::wire::codec::{WireMessage, decode, encode};
use rlaunch_protocol::wire::frame::{Flags, HEADER, Header, Lane, parse_header};
use rlaunch_protocol::wire::guardian_count::{LAST_STREAM, Last};
use rlaunch_protocol::wire::to_node::{Delta, Rendezvous, Start, ToNode, WorldRank};
use rlaunch_protocol::wire::to_root::ToRoot;
use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

const NODE: NodeId = NodeId::new(5);

/// A message on the edge.
enum Said {
    Message(ToRoot),
    Last(Last),
}

/// A guardian with its agent, and the tag of all that they start.
struct Remote {
    guardian: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    tag: String,
    agent: i32,
}

fn preamble(lease: Span) -> Preamble {
    let secret = Secret([3; 32]);
    Preamble { job: JobId([0x1f; 16]), node: NODE, secret, lease, len: 0, hash: Hash([0; 32]) }
}

/// `rlaunch agent`, with these bytes on its stdin.
fn agent(first: &[u8]) -> Remote {
    let tag = place::unique();
    let mut command = Command::new(place::rlaunch());
    command.args(["agent", "/"]).env(census::TAG, &tag).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut guardian = census::spawn(&mut command);
    let mut input = guardian.stdin.take().unwrap();
    input.write_all(first).unwrap();
    let output = guardian.stdout.take().unwrap();
    Remote { guardian, input: Some(input), output, tag, agent: 0 }
}

impl Remote {
    /// A host that is up, with one rank that waits.
    fn running(contain: Contain, lease: Span) -> Self {
        let preamble = preamble(lease);
        let mut remote = agent(&preamble.to_bytes());
        let mut scanner = Scanner::new(preamble.job);
        let Answer::Up { proof, pid, .. } = remote.answer(&mut scanner) else { panic!("not up") };
        assert_eq!(proof.as_slice(), preamble.proof().as_bytes());
        assert_eq!(pid, remote.guardian.id());
        remote.start(contain);
        while !matches!(remote.next(), Some(Said::Message(ToRoot::Started { .. }))) {}
        remote
    }

    /// The next answer, read byte by byte: what follows belongs to the edge.
    fn answer(&mut self, scanner: &mut Scanner) -> Answer {
        loop {
            let mut byte = [0];
            self.output.read_exact(&mut byte).expect("an answer");
            scanner.push(&byte);
            if let Finding::Answer(answer) = scanner.next_finding() {
                return answer;
            }
        }
    }

    fn send(&mut self, message: &impl WireMessage) {
        self.frame(Lane::Control, &encode(message));
    }

    fn frame(&mut self, lane: Lane, body: &[u8]) {
        let len = u32::try_from(body.len()).unwrap();
        let head = Header { len, lane, flags: Flags::NONE, node: NODE, stream: 0 };
        self.input.as_mut().unwrap().write_all(&[&head.to_bytes()[..], body].concat()).unwrap();
    }

    fn start(&mut self, contain: Contain) {
        // Without credit the ends of the rank's streams would never be read.
        self.frame(Lane::Credit, &1_048_576u64.to_le_bytes());
        let start = Start {
            rendezvous: Some(Rendezvous { addr: "127.0.0.1".into(), world_size: 1, nodes: 1, ..Rendezvous::default() }),
            sole: false,
            ..Start::of(JobId([0x1f; 16]), 1)
        };
        self.send(&ToNode::Start(start.with(|settings| settings.ending.contain = contain)));
        // A rank, and a descendant that has left its session.
        let argv = ["sh", "-c", "setsid sleep 999 & exec sleep 999"].into_iter().collect();
        let env = [format!("{}={}", census::TAG, self.tag), format!("PATH={}", std::env::var("PATH").unwrap())];
        let base = AppBase {
            argv,
            env: env.iter().collect(),
            pinned: OsStrings::default(),
            wdir: None,
            role: Role::sole(),
            logs: None,
            filled: false,
        };
        self.send(&ToNode::App { app: AppIndex::new(0), last: true, part: encode(&base).as_slice().into() });
        let (proc, app) = (ProcId::new(0), AppIndex::new(0));
        let (rank, local_rank) = (Rank::new(0), LocalRank::new(0));
        let world_rank = WorldRank::sole(rank, local_rank);
        let rank = Delta { proc, app, rank, local_rank, app_rank: 0, app_size: 1, stdin: StdinPlan::None, world_rank };
        self.send(&ToNode::Spawn { procs: Capped::chunks([rank]).remove(0), last: true, local_size: 1 });
    }

    /// The next message; `None`: the end.
    fn next(&mut self) -> Option<Said> {
        let mut head = [0; HEADER];
        self.output.read_exact(&mut head).ok()?;
        let header = parse_header(&head).unwrap();
        let mut body = vec![0; usize::try_from(header.len).unwrap()];
        self.output.read_exact(&mut body).unwrap();
        if header.stream == LAST_STREAM {
            assert_eq!((header.node, header.lane), (NODE, Lane::Control));
            return Some(Said::Last(Last::parse(&body).expect("last words")));
        }
        if header.lane == Lane::Data {
            // The end of a stream; the ranks say nothing.
            return self.next();
        }
        let message: ToRoot = decode(&body).unwrap();
        if let ToRoot::Hello(hello) = &message {
            self.agent = i32::try_from(hello.agent).unwrap();
        }
        Some(Said::Message(message))
    }

    /// All that comes until the end, and how the guardian ended. Nothing may be left.
    fn end(mut self) -> (Vec<Said>, Option<i32>) {
        let said: Vec<Said> = std::iter::from_fn(|| self.next()).collect();
        census::reap(&mut self.guardian);
        let code = self.guardian.wait().unwrap().code();
        let leaks = census::leaks(&self.tag, Instant::now(), Mercy::All);
        assert!(leaks.is_empty(), "left behind:\n{}", leaks.join("\n"));
        (said, code)
    }

    /// Waits for the end that the guardian reports: it has counted, and nothing is left.
    /// Returns whether the lease had expired.
    fn ends_with_last_words(self) -> bool {
        let (said, code) = self.end();
        let Some(Said::Last(last)) = said.last() else { panic!("no last words") };
        assert_eq!((last.left, last.named.len(), code), (0, 0, Some(0)));
        last.expired
    }
}

/// A test that failed leaves nothing behind.
impl Drop for Remote {
    fn drop(&mut self) {
        let _reaped_already = self.guardian.kill();
    }
}

fn tiers() -> Vec<Contain> {
    if place::is_root() { vec![Contain::T1, Contain::T3] } else { vec![Contain::T3] }
}

#[test]
fn the_launchers_end_is_the_jobs_end() {
    for contain in tiers() {
        let mut remote = Remote::running(contain, Span::ZERO);
        drop(remote.input.take());
        let (_, code) = remote.end();
        assert_eq!(code, Some(0));
    }
}

#[test]
fn killed_agent_is_reported_by_its_guardian() {
    for contain in tiers() {
        let remote = Remote::running(contain, Span::ZERO);
        kill(Pid::from_raw(remote.agent), Signal::SIGKILL).unwrap();
        assert!(!remote.ends_with_last_words());
    }
}

#[test]
fn a_stopped_agent_keeps_nothing_alive() {
    for contain in tiers() {
        let mut remote = Remote::running(contain, Span::ZERO);
        kill(Pid::from_raw(remote.agent), Signal::SIGSTOP).unwrap();
        drop(remote.input.take());
        assert!(!remote.ends_with_last_words());
    }
}

#[test]
fn a_stopped_guardian_does_not_stay_behind() {
    for contain in tiers() {
        let mut remote = Remote::running(contain, Span::ZERO);
        let guardian = i32::try_from(remote.guardian.id()).unwrap();
        kill(Pid::from_raw(guardian), Signal::SIGSTOP).unwrap();
        census::wait_stopped(guardian, true);
        drop(remote.input.take());
        census::wait_stopped(guardian, false);
        let (_, code) = remote.end();
        assert_eq!(code, Some(0), "{contain:?}");
    }
}

#[test]
fn unrenewed_lease_ends_the_job() {
    for contain in tiers() {
        let began = Instant::now();
        let remote = Remote::running(contain, Span::from_secs(1));
        // Stopped or not: the timer is the guardian's.
        kill(Pid::from_raw(remote.agent), Signal::SIGSTOP).unwrap();
        assert!(remote.ends_with_last_words(), "it says why");
        assert!(began.elapsed().as_millis() >= 1_000, "before its time: {:?}", began.elapsed());
    }
}

#[test]
fn killed_guardian_is_reported_by_its_agent() {
    for contain in tiers() {
        let mut remote = Remote::running(contain, Span::ZERO);
        remote.guardian.kill().unwrap();
        let (said, _) = remote.end();
        assert!(said.iter().any(|said| matches!(said, Said::Message(ToRoot::GuardianLost))));
        assert!(matches!(said.last(), Some(Said::Message(ToRoot::Done { left: 0, .. }))));
    }
}

#[test]
fn only_a_launcher_of_this_version_is_served() {
    let mut changed = preamble(Span::ZERO).to_bytes();
    changed[40] ^= 1;
    let other_length = Preamble { len: 12, ..preamble(Span::ZERO) };
    for first in [[b'x'; PREAMBLE], changed] {
        let (said, code) = agent(&first).end();
        assert!(said.is_empty() && code == Some(125));
    }
    let mut remote = agent(&other_length.to_bytes());
    let Answer::Refused(why) = remote.answer(&mut Scanner::new(other_length.job)) else { panic!("not refused") };
    assert!(why.ends_with(b"and one of 12 was meant"), "{why}");
    assert_eq!(remote.end().1, Some(125));
    assert!(marker(other_length.job).starts_with('@'));
}

#[test]
fn record_is_read_as_written() {
    let named = rlaunch_sys::children::Named { pid: 7, comm: *b"stuck\0\0\0\0\0\0\0\0\0\0\0", wchan: [b'w'; 40] };
    let frame = rlaunch_sys::guardian::example_frame(NODE.get(), 2, true, &[named]);
    let last = Last::at_the_end_of(&[b"cut off", &frame[..]].concat()).expect("a frame");
    assert_eq!((last.left, last.expired, last.named[0].pid, last.named[0].wchan.len()), (2, true, 7, 40));
    let header = parse_header(frame.first_chunk().unwrap()).unwrap();
    assert!(header.is_last_words() && header.node == NODE);
}
