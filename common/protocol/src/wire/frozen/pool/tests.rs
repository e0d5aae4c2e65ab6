//! The wire is frozen. Bytes that were written once are read as they were meant.

use super::*;
use alloc::vec;
use proptest::prelude::*;

const JOB: JobId = JobId([0xab; 16]);

fn holder() -> Holder {
    let (command, age) = ("./train".into(), Span::from_secs(1));
    Holder { job: JOB, pid: 7, command, age, hosts: 2, is_ending: true }
}

fn requests() -> Vec<PoolRequest> {
    let want = |need, wait, evict| PoolRequest::Want(Want { job: JOB, need, wait, evict, command: "./train".into() });
    vec![
        PoolRequest::Hello { min: 1, max: 2 },
        want(Need::All, Some(Span::ZERO), false),
        want(Need::Hosts(2), None, true),
        want(Need::Ranks(8), Some(Span::from_secs(1)), false),
        want(Need::Slices(vec![2, 4]), None, false),
        PoolRequest::Status,
        PoolRequest::Drain(vec!["a".into(), "b".into()]),
        PoolRequest::Remove(vec!["a".into()]),
        PoolRequest::Add("a slots=2".into()),
        PoolRequest::Down { is_now: true },
        PoolRequest::Warned("a".into()),
        PoolRequest::Slices,
        PoolRequest::EndsWithin(Span::from_secs(9)),
    ]
}

fn replies() -> Vec<PoolReply> {
    let host = |state, job| HostReport { name: "a".into(), slice: "s".into(), state, job, note: "n".into() };
    let hosts = vec![host(HostWord::Free, None), host(HostWord::Held, Some(JOB))];
    let slice = SliceReport { slot: 1, name: "s".into(), state: HostWord::Incomplete };
    let granted = GrantedHost { line: "a slots=2".into(), facts: "f".into(), control: "/c".into() };
    vec![
        PoolReply::Hello { min: 1, max: 1 },
        PoolReply::Queued { before: 1, holders: vec![holder()] },
        PoolReply::Granted(Granted { job: JOB, hosts: vec![granted], left_out: vec!["b".into()] }),
        PoolReply::Busy { holders: vec![holder()], waiting: 3 },
        PoolReply::Refused(Refusal::TooFew { usable: 1, hosts: 2 }),
        PoolReply::Refused(Refusal::HasJob("a".into())),
        PoolReply::Refused(Refusal::Ending),
        PoolReply::Report(Report { pid: 1, age: Span::from_secs(2), hosts, jobs: vec![holder()], waiting: 0 }),
        PoolReply::Done,
        PoolReply::Unsupported,
        PoolReply::Refused(Refusal::TooFewSlices { wanted: 6, usable: 4, slices: 5 }),
        PoolReply::Refused(Refusal::NoMember { name: "x".into(), hosts: "a,b".into(), slices: "s".into() }),
        PoolReply::Slices(Slices { sizes: vec![2, 4], slices: vec![slice] }),
    ]
}

#[test]
fn bytes_are_as_they_were() {
    let golden = include_str!("golden.txt");
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| alloc::format!("{byte:02x}")).collect::<alloc::string::String>();
    let request_frames: Vec<_> = requests().iter().map(|request| hex(request.to_frame())).collect();
    let reply_frames: Vec<_> = replies().iter().map(|reply| hex(reply.to_frame())).collect();
    let all: Vec<_> = request_frames.into_iter().chain(reply_frames).collect();
    assert_eq!(golden.lines().collect::<Vec<_>>(), all, "the new file:\n{}", all.join("\n"));
}

#[test]
fn every_message_is_read_as_it_was_written_and_no_cut_one_is() {
    for request in requests() {
        let frame = request.to_frame();
        assert_eq!(PoolRequest::parse(&frame), Ok(request));
        for cut in 0..frame.len() {
            assert_eq!(PoolRequest::parse(&frame[..cut]), Err(Malformed), "cut at {cut}");
        }
        assert_eq!(PoolRequest::parse(&[frame.as_slice(), b"\0"].concat()), Err(Malformed));
    }
    for reply in replies() {
        let frame = reply.to_frame();
        assert_eq!(PoolReply::parse(&frame), Ok(reply));
        for cut in 0..frame.len() {
            assert_eq!(PoolReply::parse(&frame[..cut]), Err(Malformed), "cut at {cut}");
        }
    }
}

#[test]
fn later_kinds_are_known_as_such() {
    assert_eq!(PoolRequest::parse(b"\x03\0\0\0\x63xy"), Ok(PoolRequest::Unknown));
    assert_eq!(PoolReply::parse(b"\x03\0\0\0\x63xy"), Ok(PoolReply::Unknown));
    assert_eq!(PoolReply::parse(b"\x03\0\0\0\x04\x63y"), Ok(PoolReply::Refused(Refusal::Other)));
    let slices = b"\x07\0\0\0\x08\0\x01\x01\x01s\x63";
    let state = HostWord::Other;
    let later = Slices { sizes: Vec::new(), slices: vec![SliceReport { slot: 1, name: "s".into(), state }] };
    assert_eq!(PoolReply::parse(slices), Ok(PoolReply::Slices(later)));
    assert_eq!((common_version(1, 9), common_version(2, 9), common_version(0, 0)), (Some(1), None, None));
}

#[test]
fn request_above_the_limit_is_refused_by_its_header() {
    let of = |len: u32| body_len(len.to_le_bytes(), MAX_REQUEST);
    assert_eq!((of(1 << 20), of((1 << 20) + 1)), (Ok(1 << 20), Err(Malformed)));
}

/// A list that declares 4,000 million hosts reserves nothing for them.
#[test]
fn declared_number_of_hosts_reserves_nothing() {
    assert_eq!(PoolRequest::parse(b"\x06\0\0\0\x03\xff\xff\xff\xff\x0f"), Err(Malformed));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, kind in 0u8..12) {
        let mut framed = [&[0, 0, 0, 0, kind][..], &bytes].concat();
        set_length(&mut framed);
        for bytes in [&bytes, &framed] {
            if let Ok(request) = PoolRequest::parse(bytes) {
                prop_assert_eq!(PoolRequest::parse(&request.to_frame()), Ok(request));
            }
            let _read = PoolReply::parse(bytes);
        }
    }
}
