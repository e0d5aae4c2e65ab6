//! Sealed edges between two ends in one process.

use super::*;
use crate::{Body, Early};
use rlaunch_base::id::{JobId, NodeId, ProcId, Std, StreamId};
use rlaunch_base::time::Span;
use rlaunch_plan::bootstrap::{Hash, Hello, Secret};
use rlaunch_protocol::wire::frame::{Flags, Header, Lane};
use rlaunch_protocol::wire::guardian_count::LAST_STREAM;
use rlaunch_protocol::wire::to_node::ToNode;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

fn keys(secret: u8) -> EdgeKeys {
    EdgeKeys::derive(&Secret([secret; 32]), &Hello { job: JobId([1; 16]), epoch: 0, host: Hash::of(b"node1") })
}

fn preamble() -> Preamble {
    Preamble {
        job: JobId([1; 16]),
        node: NodeId::new(3),
        secret: Secret([0; 32]),
        lease: Span::from_secs(30),
        len: 7,
        hash: Hash([2; 32]),
    }
}

/// The launcher's and the agent's side.
fn seals() -> (Seal, Seal) {
    let keys = keys(5);
    let facts = AgentFacts { pid: 7, wall: 99 };
    let (agent, first) = AgentHandshake::begin(&keys, facts).unwrap();
    let (received, launcher) = receive(&keys, &first).unwrap();
    assert_eq!(received, facts);
    let (answer, mut launcher) = launcher.answer(&keys, &preamble()).unwrap();
    let (bytes, confirmation, agent) = agent.finish(&keys, &answer).unwrap();
    assert_eq!(Preamble::parse(&bytes), Ok(preamble()));
    launcher.confirm(&confirmation).unwrap();
    (launcher, agent)
}

#[test]
fn side_without_the_key_is_refused() {
    let (agent, first) = AgentHandshake::begin(&keys(5), AgentFacts { pid: 1, wall: 2 }).unwrap();
    assert!(receive(&keys(6), &first).is_err());
    let (_, stranger) = receive(&keys(5), &first).unwrap();
    let mut answer = stranger.answer(&keys(5), &preamble()).unwrap().0;
    answer[SECOND_MESSAGE - 1] ^= 1;
    assert!(agent.finish(&keys(5), &answer).is_err());
}

/// An observer has the first message and the confirmation of an earlier handshake, and repeats both.
#[test]
fn repeated_handshake_is_not_confirmed() {
    let keys = keys(5);
    let (agent, first) = AgentHandshake::begin(&keys, AgentFacts { pid: 1, wall: 2 }).unwrap();
    let answered = || receive(&keys, &first).unwrap().1.answer(&keys, &preamble()).unwrap();
    let ((answer, mut launcher), (_, mut again)) = (answered(), answered());
    let (_, confirmation, _) = agent.finish(&keys, &answer).unwrap();
    assert!(again.confirm(&confirmation).is_err());
    launcher.confirm(&confirmation).unwrap();
}

/// As srun carries them: the confirmation is part of the stream, and some of it was read with the line before.
#[test]
fn frames_after_a_beginning_that_was_read_arrive() {
    let keys = keys(5);
    let (agent, first) = AgentHandshake::begin(&keys, AgentFacts { pid: 1, wall: 2 }).unwrap();
    let (answer, launcher) = receive(&keys, &first).unwrap().1.answer(&keys, &preamble()).unwrap();
    let (_, confirmation, agent) = agent.finish(&keys, &answer).unwrap();
    let (near, mut far) = UnixStream::pair().unwrap();
    let (read, unread) = confirmation.split_at(5);
    far.write_all(unread).unwrap();
    let mut launcher = Early::<ToNode>::begun(near, read).sealed(launcher);
    let mut agent = Early::<ToNode>::new(far).sealed(agent);
    agent.grant(NodeId::new(3), 77).unwrap();
    agent.flush().unwrap();
    assert!(matches!(launcher.recv().unwrap().body, Body::Credit(77)));
}

#[test]
fn frames_of_both_directions_arrive() {
    let (launcher, agent) = seals();
    let (near, far) = UnixStream::pair().unwrap();
    let mut launcher = Early::<ToNode>::new(near).sealed(launcher);
    let mut agent = Early::<ToNode>::new(far).sealed(agent);
    launcher.send(NodeId::new(3), &ToNode::Kill).unwrap();
    launcher.flush().unwrap();
    assert!(matches!(agent.recv().unwrap().body, Body::Message(ToNode::Kill)));
    agent.grant(NodeId::new(3), 77).unwrap();
    agent.flush().unwrap();
    assert!(matches!(launcher.recv().unwrap().body, Body::Credit(77)));
}

/// Far more than a record and than a socket holds.
#[test]
fn bulk_is_whole_and_in_order() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (launcher, agent) = seals();
    let (near, far) = UnixStream::pair().unwrap();
    runtime.block_on(async {
        let mut launcher = Early::<ToNode>::new(near).sealed(launcher).into_connection().unwrap();
        let mut agent = Early::<ToNode>::new(far).sealed(agent).into_connection().unwrap();
        let stream = StreamId::of(ProcId::new(1), Std::Out);
        let all: Vec<u8> = (0..8 << 20).map(|at: u32| u8::try_from(at % 251).unwrap()).collect();
        let (mut rest, mut received) = (all.as_slice(), Vec::new());
        poll_fn(|cx| {
            while agent.has_room() && !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(64 << 10));
                agent.data(NodeId::new(3), stream, Flags::NONE, now.to_vec());
                rest = later;
                assert!(!agent.poll_flush(cx).map(Result::unwrap).is_ready() || agent.is_flushed());
            }
            let flushed = agent.poll_flush(cx).map(Result::unwrap);
            while let std::task::Poll::Ready(frame) = launcher.poll_recv(cx) {
                let Body::Data { bytes, .. } = frame.unwrap().body else { panic!("another frame") };
                received.extend_from_slice(&bytes);
            }
            let is_done = received.len() == all.len() && flushed.is_ready();
            if is_done {
                return std::task::Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        })
        .await;
        assert!(received == all);
    });
}

/// The bytes of a message as the agent's side seals it.
fn sealed(agent: Seal) -> (Vec<u8>, [u8; 32]) {
    let last_words = agent.opener.last_words;
    let (near, mut far) = UnixStream::pair().unwrap();
    let mut agent = Early::<ToNode>::new(near).sealed(agent);
    agent.send(NodeId::new(3), &ToNode::Kill).unwrap();
    agent.flush().unwrap();
    drop(agent);
    let mut bytes = Vec::new();
    far.read_to_end(&mut bytes).unwrap();
    (bytes, last_words)
}

/// The frames that the launcher reads from these bytes.
fn received(launcher: Seal, bytes: &[u8]) -> Vec<Result<Body<ToNode>, Closed>> {
    let (near, mut far) = UnixStream::pair().unwrap();
    far.write_all(bytes).unwrap();
    drop(far);
    let mut launcher = Early::<ToNode>::new(near).sealed(launcher);
    let mut all = Vec::new();
    while !matches!(all.last(), Some(Err(_) | Ok(Body::Last(_)))) {
        all.push(launcher.recv().map(|frame| frame.body));
    }
    all
}

#[test]
fn changed_repeated_and_missing_records_are_refused() {
    let (launcher, agent) = seals();
    let (bytes, _) = sealed(agent);
    let mut changed = bytes.clone();
    *changed.last_mut().unwrap() ^= 1;
    assert!(matches!(received(launcher, &changed)[..], [Err(Closed::Seal)]));
    let (launcher, agent) = seals();
    let (bytes, _) = sealed(agent);
    let twice = [&bytes[..], &bytes].concat();
    assert!(matches!(received(launcher, &twice)[..], [Ok(Body::Message(ToNode::Kill)), Err(Closed::Seal)]));
    let (launcher, agent) = seals();
    let (bytes, _) = sealed(agent);
    assert!(matches!(received(launcher, &bytes[..bytes.len() - 1])[..], [Err(Closed::Truncated)]));
}

/// A launcher's side and a sealed message that does not end with this byte.
///
/// A record that lacks its last byte is whole again where the bytes that follow begin with just this byte.
/// A key in 256 seals such a record.
fn sealed_unlike(byte: u8) -> (Seal, Vec<u8>, [u8; 32]) {
    loop {
        let (launcher, agent) = seals();
        let (bytes, key) = sealed(agent);
        if bytes.last() != Some(&byte) {
            return (launcher, bytes, key);
        }
    }
}

/// The guardian's last words: two processes are left.
fn last_words() -> Vec<u8> {
    let len = u32::try_from(LAST).unwrap();
    let head = Header { len, lane: Lane::Control, flags: Flags::NONE, node: NodeId::new(3), stream: LAST_STREAM };
    let mut body = [0x6e6c_7267_u32, 2, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    body.resize(LAST, 0);
    [&head.to_bytes()[..], &body].concat()
}

#[test]
fn last_words_are_taken_with_their_tag_alone() {
    let words = last_words();
    for cut_off in [0, 1, 5] {
        for is_right in [true, false] {
            let (launcher, bytes, key) = sealed_unlike(words[0]);
            let key = if is_right { key } else { [0; 32] };
            let rest = bytes.len() - cut_off;
            let stream = [&bytes[..rest], &words, &last_words_tag(&key, &words)].concat();
            let all = received(launcher, &stream);
            match all.last() {
                Some(Ok(Body::Last(last))) => assert!(is_right && last.left == 2),
                end => assert!(!is_right && matches!(end, Some(Err(Closed::Seal))), "{end:?}"),
            }
            assert_eq!(all.len(), if cut_off == 0 { 2 } else { 1 });
        }
    }
}

#[test]
fn last_words_without_their_whole_tag_are_refused() {
    let words = last_words();
    for tag_len in [0, 31] {
        let (launcher, bytes, key) = sealed_unlike(words[0]);
        let tag = last_words_tag(&key, &words);
        let stream = [&bytes[..bytes.len() - 5], &words, &tag[..tag_len]].concat();
        let all = received(launcher, &stream);
        assert!(matches!(all.last(), Some(Err(Closed::Seal | Closed::Truncated))), "{tag_len}: {all:?}");
    }
}
