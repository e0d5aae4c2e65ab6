//! Bytes of other hosts, of ssh and of Slurm, before and after the edge: answers among noise, the preamble, hellos over TCP, a guardian's
//! last words, messages of ssh about its configuration and its troubles, lines of srun, and the settings of a cluster.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rlaunch_base::id::{JobId, NodeId};
use rlaunch_base::time::Span;
use rlaunch_plan::allocation::SlurmConfig;
use rlaunch_plan::bootstrap::srun_messages::{TaskExit, TaskExits};
use rlaunch_plan::bootstrap::ssh_messages::{KEPT, Words};
use rlaunch_plan::bootstrap::tcp_hello::{FACTS, HELLO, STEP_PREAMBLE};
use rlaunch_plan::bootstrap::{
    AgentFacts, EdgeKeys, Finding, Hash, Hello, PREAMBLE, Preamble, Scanner, Secret, StepPreamble, Sums, Way,
};
use rlaunch_protocol::wire::frame::{Flags, Header, Lane};
use rlaunch_protocol::wire::guardian_count::{LAST, LAST_STREAM, Last};
use rlaunch_protocol::wire::to_root::NAMED;

/// The first byte says in pieces of which length the others arrive.
fn pieces(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (cut, rest) = data.split_first().unwrap_or((&1, data));
    rest.chunks(usize::from(*cut).max(1))
}

/// Scanner of answers: it reports no answer twice, and keeps little of the noise.
fn scanner(data: &[u8]) {
    let mut scanner = Scanner::new(JobId([7; 16]));
    let mut received = 0;
    for piece in pieces(data) {
        scanner.push(piece);
        while let Finding::Answer(_) | Finding::Garbled(_) = scanner.next_finding() {
            received += 1;
        }
    }
    assert!(received <= data.len() && scanner.noise().len() <= 1 << 10);
}

fn preamble(data: &[u8]) {
    if let Some(Ok(preamble)) = data.first_chunk::<PREAMBLE>().map(Preamble::parse) {
        drop(preamble.proof());
    }
    // Hardly any bytes carry their own hash: so the fields are chosen, too.
    let Some((numbers, rest)) = data.split_first_chunk::<16>() else { return };
    let Some((names, rest)) = rest.split_first_chunk::<48>() else { return };
    let Some(hash) = rest.first_chunk::<32>() else { return };
    let word = |at: usize| u64::from_le_bytes(numbers[at..at + 8].try_into().unwrap_or_default());
    let sent = Preamble {
        job: JobId(names[..16].try_into().unwrap_or_default()),
        node: NodeId::new(u32::try_from(word(0) >> 32).unwrap_or(0)),
        secret: Secret(names[16..].try_into().unwrap_or_default()),
        lease: Span::from_millis(word(8) >> 24),
        len: word(0),
        hash: Hash(*hash),
    };
    assert_eq!(Preamble::parse(&sent.to_bytes()), Ok(sent));
}

/// The first bytes of a stranger, and what agents of a step read.
fn hello(data: &[u8]) {
    if let Some(bytes) = data.first_chunk::<HELLO>()
        && let Some(hello) = Hello::parse(bytes)
    {
        assert_eq!(&hello.to_bytes(), bytes);
        let [one, other] = [1, 2].map(|byte| EdgeKeys::derive(&Secret([byte; 32]), &hello).shared);
        assert_ne!(one, other);
    }
    if let Some(bytes) = data.first_chunk::<STEP_PREAMBLE>() {
        let own = StepPreamble::parse(bytes).map(|step| step.to_bytes());
        assert!(own.is_none_or(|own| own == *bytes));
    }
    if let Some(facts) = data.get(..FACTS).and_then(AgentFacts::parse) {
        assert_eq!(data.get(..FACTS), Some(&facts.to_bytes()[..]));
    }
    let ends = data.first_chunk::<{ Sums::LENGTH }>().and_then(Sums::ends_of);
    assert!(ends.is_none_or(|ends| Hash::parse(ends.to_string().as_bytes()) == Some(ends)));
}

/// The result does not depend on the cuts, and each exit has a host.
fn srun_lines(data: &[u8]) {
    let whole = TaskExits::default().push(data.get(1..).unwrap_or_default());
    let mut lines = TaskExits::default();
    let cut: Vec<TaskExit> = pieces(data).flat_map(|piece| lines.push(piece)).collect();
    assert_eq!(cut, whole);
    assert!(cut.iter().all(|exit| !exit.host.is_empty()));
}

fn config(data: &[u8]) {
    let SlurmConfig { ports, .. } = SlurmConfig::parse(&String::from_utf8_lossy(data));
    assert!(ports.is_none_or(|(first, last)| first > 0 && first <= last));
}

fn last(data: &[u8]) {
    drop(Last::at_the_end_of(data));
    let Some(last) = Last::parse(data) else { return };
    assert!(last.named.len() <= NAMED && last.named.iter().all(|n| n.comm.len() <= 16 && n.wchan.len() <= 40));
    let len = u32::try_from(LAST).unwrap_or(0);
    let head = Header { len, lane: Lane::Control, flags: Flags::NONE, node: NodeId::new(0), stream: LAST_STREAM };
    assert_eq!(Last::at_the_end_of(&[&head.to_bytes(), data].concat()), Some(last));
}

fn way(data: &[u8]) {
    if let Way::Jump(jump) = Way::parse(data) {
        assert!(!jump.is_empty() && !jump.contains(&b'\n'));
    }
}

/// The result does not depend on the cuts.
fn words(data: &[u8]) {
    let (mut whole, mut cut) = (Words::default(), Words::default());
    whole.push(data.get(1..).unwrap_or_default());
    pieces(data).for_each(|piece| cut.push(piece));
    assert_eq!((cut.trouble(), cut.shown()), (whole.trouble(), whole.shown()));
    assert!(cut.shown().len() <= KEPT);
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind {
        b's' => scanner(rest),
        b'h' => hello(rest),
        b'x' => srun_lines(rest),
        b'c' => config(rest),
        b'p' => preamble(rest),
        b'l' => last(rest),
        b'w' => way(rest),
        b't' => words(rest),
        _ => {}
    }
});
