//! Edges between two ends in one process.
#![allow(clippy::disallowed_methods, reason = "the peer of a test is a thread of its own")]

use super::*;
use crate::{Body, Early};
use rlaunch_base::id::{AppIndex, ProcId, Std};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_protocol::wire::frame::Header;
use rlaunch_protocol::wire::guardian_count::Last;
use rlaunch_protocol::wire::to_node::{Part, ToNode};
use std::future::poll_fn;
use std::io::Write as _;
use std::time::{Duration, Instant};

fn pair() -> (StdStream, StdStream) {
    StdStream::pair().unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn early_frames_are_not_lost_by_the_change_to_the_runtime() {
    let (a, b) = pair();
    let (mut a, mut b) = (Early::<ToNode>::new(a), Early::<ToNode>::new(b));
    a.send(NodeId::new(0), &ToNode::Kill).unwrap();
    a.send(NodeId::new(0), &ToNode::Signal { sig: Signal::USR1 }).unwrap();
    a.grant(NodeId::new(0), 77).unwrap();
    a.flush().unwrap();
    assert!(matches!(b.recv().unwrap().body, Body::Message(ToNode::Kill)));
    runtime().block_on(async {
        let mut b = b.into_connection().unwrap();
        let next = poll_fn(|cx| b.poll_recv(cx)).await.unwrap();
        assert!(matches!(next.body, Body::Message(ToNode::Signal { sig: Signal::USR1 })));
        assert!(matches!(poll_fn(|cx| b.poll_recv(cx)).await.unwrap().body, Body::Credit(77)));
        drop(a);
        assert!(matches!(poll_fn(|cx| b.poll_recv(cx)).await, Err(Closed::Eof)));
    });
}

#[test]
fn bytes_read_earlier_from_an_edge_come_first() {
    let (writer, mut reader) = pair();
    let mut a = Early::<ToNode>::new(writer);
    a.send(NodeId::new(0), &ToNode::Kill).unwrap();
    a.grant(NodeId::new(0), 77).unwrap();
    a.flush().unwrap();
    let mut begun = [0; 20];
    std::io::Read::read_exact(&mut reader, &mut begun).unwrap();
    let mut b = Early::<ToNode>::begun(reader, &begun);
    assert!(matches!(b.recv().unwrap().body, Body::Message(ToNode::Kill)));
    assert!(matches!(b.recv().unwrap().body, Body::Credit(77)));
}

/// All signals are blocked while there is no runtime: a wait for a peer that reads nothing never ends.
#[test]
fn a_peer_that_reads_nothing_holds_up_nobody_before_there_is_a_runtime() {
    let (here, there) = pair();
    let (input, output) = std::io::pipe().unwrap();
    let (back, answers) = std::io::pipe().unwrap();
    let halves =
        || (Early::<ToNode>::from_halves(back.into(), output.into()), Early::from_halves(input.into(), answers.into()));
    for (mut a, mut b) in [(Early::<ToNode>::new(here), Early::<ToNode>::new(there)), halves()] {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let part = ToNode::App { app: AppIndex::new(0), last: false, part: Part(OsBytes::new(vec![7; 256 << 10])) };
        let writer = std::thread::spawn(move || {
            (0..16).for_each(|_| a.send(NodeId::new(0), &part).unwrap());
            let began = Instant::now();
            let taken = (a.flush().unwrap(), a.flush_within(Duration::from_millis(50)).unwrap());
            sender.send((taken, began.elapsed())).unwrap();
            // The answer comes only once the rest was written.
            assert!(matches!(a.recv().unwrap().body, Body::Message(ToNode::Kill)));
            assert!(a.flush().unwrap());
        });
        let (taken, took) = receiver.recv_timeout(Duration::from_secs(20)).expect("it waits for us");
        assert_eq!(taken, (false, false));
        assert!(took >= Duration::from_millis(50), "{took:?}");
        for _ in 0..16 {
            assert!(matches!(b.recv().unwrap().body, Body::Message(ToNode::App { .. })));
        }
        b.send(NodeId::new(0), &ToNode::Kill).unwrap();
        assert!(b.flush_within(Duration::from_secs(20)).unwrap());
        writer.join().unwrap();
    }
}

#[test]
fn unsent_bytes_continue_under_the_runtime() {
    let (a, b) = pair();
    let mut a = Early::<ToNode>::new(a);
    let part = ToNode::App { app: AppIndex::new(0), last: false, part: Part(OsBytes::new(vec![7; 256 << 10])) };
    (0..16).for_each(|_| a.send(NodeId::new(0), &part).unwrap());
    assert!(!a.flush().unwrap());
    let reader = std::thread::spawn(move || {
        let mut b = Early::<ToNode>::new(b);
        (0..16).for_each(|_| assert!(matches!(b.recv().unwrap().body, Body::Message(ToNode::App { .. }))));
    });
    runtime().block_on(async {
        let mut a = a.into_connection().unwrap();
        poll_fn(|cx| a.poll_flush(cx)).await.unwrap();
        assert!(a.is_flushed());
    });
    reader.join().unwrap();
}

#[test]
fn data_arrives_whole_and_in_order() {
    let (a, b) = pair();
    let stream = StreamId::of(ProcId::new(3), Std::Err);
    runtime().block_on(async {
        let mut a = Early::<ToNode>::new(a).into_connection().unwrap();
        let mut b = Early::<ToNode>::new(b).into_connection().unwrap();
        let mut received = Vec::new();
        let mut sent: u8 = 0;
        while received.len() < 20 * 65_536 {
            if a.has_room() && sent < 20 {
                a.data(NodeId::new(0), stream, Flags::MORE, vec![sent; 65_536]);
                sent += 1;
            }
            let frame = poll_fn(|cx| {
                let _written = a.poll_flush(cx)?;
                match b.poll_recv(cx) {
                    Poll::Ready(frame) => Poll::Ready(frame.map(Some)),
                    Poll::Pending if a.has_room() && sent < 20 => Poll::Ready(Ok(None)),
                    Poll::Pending => Poll::Pending,
                }
            });
            if let Some(Frame { body: Body::Data { bytes, flags, .. }, .. }) = frame.await.unwrap() {
                assert!(flags.has(Flags::MORE) && !flags.has(Flags::END));
                received.extend_from_slice(&bytes);
            }
        }
        let expected: Vec<u8> = (0..20u8).flat_map(|n| std::iter::repeat_n(n, 65_536)).collect();
        assert!(received == expected);
    });
}

#[test]
fn a_small_frame_does_not_hold_what_came_with_it() {
    let (mut a, b) = pair();
    let stream = StreamId::of(ProcId::new(3), Std::Out);
    let mut header = Header { len: 1, lane: Lane::Data, flags: Flags::NONE, node: NodeId::ROOT, stream: stream.get() };
    a.write_all(&[&header.to_bytes()[..], b"x"].concat()).unwrap();
    header.len = 8_000;
    a.write_all(&[&header.to_bytes()[..], &[b'y'; 8_000]].concat()).unwrap();
    let mut b = Early::<ToNode>::new(b);
    let Body::Data { bytes: small, .. } = b.recv().unwrap().body else { panic!("no data") };
    let Body::Data { bytes: big, .. } = b.recv().unwrap().body else { panic!("no data") };
    assert_eq!((&small[..], big.len()), (&b"x"[..], 8_000));
    assert!(small.is_unique(), "it shares its memory");
}

#[test]
fn broken_line_is_reported() {
    let (a, b) = pair();
    let stream = StreamId::of(ProcId::new(3), Std::Err);
    runtime().block_on(async {
        let mut a = Early::<ToNode>::new(a).into_connection().unwrap();
        let mut b = Early::<ToNode>::new(b).into_connection().unwrap();
        for waits in [true, false] {
            a.broken(NodeId::new(0), Broken { stream, waits }).unwrap();
            poll_fn(|cx| a.poll_flush(cx)).await.unwrap();
            let Body::Broken(received) = poll_fn(|cx| b.poll_recv(cx)).await.unwrap().body else { panic!("no news") };
            assert_eq!(received, Broken { stream, waits });
        }
    });
}

/// An agent whose guardian was killed early ends before it has read all, but not without its count.
#[test]
fn bytes_before_end_are_read_after_write_failure() {
    let (a, b) = pair();
    let (mut a, mut b) = (Early::<ToNode>::new(a), Early::<ToNode>::new(b));
    a.send(NodeId::new(0), &ToNode::Signal { sig: Signal::USR1 }).unwrap();
    a.flush().unwrap();
    b.send(NodeId::new(0), &ToNode::Kill).unwrap();
    b.flush().unwrap();
    drop(b);
    a.send(NodeId::new(0), &ToNode::Kill).unwrap();
    assert!(a.flush().is_err());
    runtime().block_on(async {
        let mut a = a.into_connection().unwrap();
        assert!(matches!(poll_fn(|cx| a.poll_recv(cx)).await.unwrap().body, Body::Message(ToNode::Kill)));
        assert!(matches!(poll_fn(|cx| a.poll_recv(cx)).await, Err(Closed::Io(_) | Closed::Eof)));
    });
}

#[test]
fn garbage_closes_the_edge() {
    let (mut a, b) = pair();
    a.write_all(&[0xff; 64]).unwrap();
    let closed = Early::<ToNode>::new(b).recv();
    // The begin of the bytes is reported.
    assert!(matches!(&closed, Err(Closed::Frame { begins, .. }) if *begins == [0xff; 64]), "{closed:?}");
}

#[test]
fn end_inside_a_frame_is_distinguished_from_an_end() {
    let (mut a, b) = pair();
    a.write_all(&Header { len: 9, lane: Lane::Control, flags: Flags::NONE, node: NodeId::ROOT, stream: 0 }.to_bytes())
        .unwrap();
    drop(a);
    assert!(matches!(Early::<ToNode>::new(b).recv(), Err(Closed::Truncated)));
}

/// A pipe that holds `bytes` in pieces of `piece`, each on a page of its own.
fn pipe_of(bytes: &[u8], piece: usize) -> (OwnedFd, OwnedFd) {
    let (outlet, inlet) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
    fcntl(&inlet, FcntlArg::F_SETPIPE_SZ(1 << 20)).unwrap();
    for piece in bytes.chunks(piece) {
        let (from, to) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
        assert_eq!(nix::unistd::write(&to, piece), Ok(piece.len()));
        assert_eq!(splice(&from, None, &inlet, None, piece.len(), SpliceFFlags::empty()), Ok(piece.len()));
    }
    (outlet, inlet)
}

#[test]
fn spliced_frames_arrive_whole_between_messages() {
    let stream = StreamId::of(ProcId::new(3), Std::Out);
    // Full pages fit behind their header; of small pieces the edge's pipe holds fewer than were promised.
    for piece in [4_096, 2_500, 1_000] {
        // The pipe has room for 256 pieces.
        let all: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).take(250 * piece).collect();
        let (a, b) = pair();
        let (outlet, inlet) = pipe_of(&all, piece);
        drop(inlet);
        runtime().block_on(async {
            let mut a = Early::<ToNode>::new(a).into_connection().unwrap();
            let mut b = Early::<ToNode>::new(b).into_connection().unwrap();
            let (mut received, mut sent, mut asked, mut messages) = (Vec::new(), 0, 0, 0);
            while received.len() < all.len() || messages < asked {
                if a.has_room() && sent < all.len() {
                    sent += a.splice(NodeId::new(0), stream, &outlet, (all.len() - sent).min(65_536)).unwrap();
                }
                if asked < 2_000 {
                    a.send(NodeId::new(0), &ToNode::Kill).unwrap();
                    asked += 1;
                }
                // Whichever comes first: a frame, or room for bytes that are still to be sent.
                let frame = poll_fn(|cx| {
                    let flushed = a.poll_flush(cx)?.is_ready();
                    match b.poll_recv(cx) {
                        Poll::Ready(frame) => Poll::Ready(frame.map(Some)),
                        Poll::Pending if flushed && (sent < all.len() || asked < 2_000) => Poll::Ready(Ok(None)),
                        Poll::Pending => Poll::Pending,
                    }
                });
                match frame.await.unwrap().map(|frame| frame.body) {
                    Some(Body::Data { bytes, .. }) => received.extend_from_slice(&bytes),
                    Some(Body::Message(ToNode::Kill)) => messages += 1,
                    Some(other) => panic!("{other:?}"),
                    None => {}
                }
            }
            assert!(received == all, "pieces of {piece}");
        });
    }
}

#[test]
fn the_end_of_what_is_spliced_is_no_frame() {
    let (a, _b) = pair();
    let (outlet, inlet) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
    let stream = StreamId::of(ProcId::new(3), Std::Out);
    runtime().block_on(async {
        let mut a = Early::<ToNode>::new(a).into_connection().unwrap();
        assert_eq!(a.splice(NodeId::new(0), stream, &outlet, 9).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(inlet);
        assert_eq!(a.splice(NodeId::new(0), stream, &outlet, 9).unwrap(), 0);
        assert!(a.is_flushed());
        let mut left = [0; 1];
        let (outlet, _) = a.pipe.as_ref().unwrap();
        fcntl(outlet, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        assert!(nix::unistd::read(outlet, &mut left).is_err(), "a header was left behind");
    });
}

/// A guardian's frame, as `rlaunch-sys` writes it.
fn last_words() -> Vec<u8> {
    let len = u32::try_from(rlaunch_protocol::wire::guardian_count::LAST).unwrap();
    let stream = rlaunch_protocol::wire::guardian_count::LAST_STREAM;
    let head = Header { len, lane: Lane::Control, flags: Flags::NONE, node: NodeId::new(1), stream };
    let mut frame = head.to_bytes().to_vec();
    [0x6e6c_7267u32, 2, 0, 0].iter().for_each(|word| frame.extend_from_slice(&word.to_le_bytes()));
    frame.resize(HEADER + rlaunch_protocol::wire::guardian_count::LAST, 0);
    frame
}

#[test]
fn last_words_are_received_after_whole_frames_and_after_half_a_frame() {
    let half = Header { len: 9_000, lane: Lane::Control, flags: Flags::NONE, node: NodeId::ROOT, stream: 0 };
    for before in [Vec::new(), [&half.to_bytes()[..], b"cut off"].concat()] {
        let (mut a, b) = pair();
        a.write_all(&[before, last_words()].concat()).unwrap();
        drop(a);
        let mut b = Early::<ToNode>::new(b);
        assert!(matches!(b.recv().unwrap().body, Body::Last(Last { left: 2, .. })));
        assert!(matches!(b.recv(), Err(Closed::Eof)));
    }
}

#[test]
fn two_halves_are_as_good_as_one_socket() {
    let sockets = || {
        let (near, far) = pair();
        let copy = far.try_clone().unwrap();
        (OwnedFd::from(near.try_clone().unwrap()), OwnedFd::from(near), OwnedFd::from(copy), OwnedFd::from(far))
    };
    let pipes = || {
        let (down, up) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        (OwnedFd::from(up.0), OwnedFd::from(down.1), OwnedFd::from(down.0), OwnedFd::from(up.1))
    };
    for (our_input, our_output, input, output) in [sockets(), pipes()] {
        let mut launcher = Early::<ToNode>::from_halves(our_input, our_output);
        let mut agent = Early::<ToNode>::from_halves(input, output);
        launcher.send(NodeId::new(0), &ToNode::Kill).unwrap();
        launcher.grant(NodeId::new(0), 7).unwrap();
        launcher.flush().unwrap();
        assert!(matches!(agent.recv().unwrap().body, Body::Message(ToNode::Kill)));
        runtime().block_on(async {
            let mut agent = agent.into_connection().unwrap();
            let mut launcher = launcher.into_connection().unwrap();
            assert!(matches!(poll_fn(|cx| agent.poll_recv(cx)).await.unwrap().body, Body::Credit(7)));
            // More than a pipe holds: both ends have to continue while the other does.
            let stream = StreamId::of(ProcId::new(1), Std::Out);
            for round in 0..8u8 {
                agent.data(NodeId::new(0), stream, Flags::NONE, vec![round; 65_536]);
                let frame = poll_fn(|cx| {
                    let _written = agent.poll_flush(cx)?;
                    launcher.poll_recv(cx)
                });
                let Body::Data { bytes, .. } = frame.await.unwrap().body else { panic!("no data") };
                assert!(bytes.len() == 65_536 && bytes.iter().all(|b| *b == round));
                poll_fn(|cx| agent.poll_flush(cx)).await.unwrap();
            }
            drop(agent);
            assert!(matches!(poll_fn(|cx| launcher.poll_recv(cx)).await, Err(Closed::Eof)));
        });
    }
}

/// A caller that knows of the end of the other side must not rely on the runtime for bytes that are there.
#[test]
fn bytes_since_the_last_poll_are_read() {
    let (a, b) = pair();
    let mut a = Early::<ToNode>::new(a);
    runtime().block_on(async {
        let mut b = Early::<ToNode>::new(b).into_connection().unwrap();
        poll_fn(|cx| {
            assert!(b.poll_recv(cx).is_pending());
            a.send(NodeId::new(0), &ToNode::Kill).unwrap();
            a.flush().unwrap();
            assert!(b.poll_recv(cx).is_pending(), "the runtime has not looked");
            assert!(matches!(b.recv_now().unwrap().unwrap().body, Body::Message(ToNode::Kill)));
            assert!(b.recv_now().unwrap().is_none());
            std::task::Poll::Ready(())
        })
        .await;
        drop(a);
        assert!(matches!(b.recv_now(), Err(Closed::Eof)));
    });
}
