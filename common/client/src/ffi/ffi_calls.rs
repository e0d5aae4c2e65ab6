//! Connections between a controller and its workers, for C.
#![forbid(unsafe_code)]
#![expect(non_camel_case_types, reason = "they are named as in the header")]

use super::ffi_error::{Failure, TIMEOUT, guarded};
use super::ffi_store::rl_buffer;
use super::given::Given;
use super::types::{rl_bytes, time};
use crate::Store;
use crate::calls::record::Record;
use crate::calls::{Calls, Event, Frame, Head};
use rlaunch_protocol::wire::frozen::calls::{Header, Kind, Part};
use std::ffi::{c_char, c_int};
use std::sync::Arc;

type Handle<'a> = Given<'a, (*mut rl_calls,)>;
type Bytes<'a> = Given<'a, (*const c_char, usize)>;

/// Room for the name of a host.
const HOST: usize = 256;
/// The kind of an event: a controller has connected.
const OPENED: u32 = 256;
/// The kind of an event: the connection has ended.
const CLOSED: u32 = 257;

/// The connections of a process, as C holds them.
pub struct rl_calls(Calls);

/// A worker that was connected to.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rl_peer {
    peer: u32,
    size: u32,
    pid: u32,
    world: u32,
    is_near: u32,
    host: [c_char; HOST],
}

/// The numbers of a frame.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rl_frame {
    kind: u32,
    codec: u32,
    count: u32,
    call: u64,
}

/// A part of a frame: bytes, or a region of the shared memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rl_part {
    pub(super) place: u32,
    pub(super) offset: u64,
    pub(super) data: *const c_char,
    pub(super) len: usize,
}

/// Something that happened on a connection.
#[repr(C)]
pub struct rl_event {
    peer: u32,
    kind: u32,
    codec: u32,
    count: u32,
    is_plain: u32,
    text_len: u32,
    call: u64,
    body_len: u64,
    bytes: rl_buffer,
}

impl rl_event {
    const EMPTY: Self = Self {
        peer: 0,
        kind: 0,
        codec: 0,
        count: 0,
        is_plain: 0,
        text_len: 0,
        call: 0,
        body_len: 0,
        bytes: rl_buffer { data: std::ptr::null_mut(), len: 0 },
    };

    fn of(event: Event, room: &Given<'_, (*mut u8, usize)>) -> Self {
        match event {
            Event::Opened(peer) => Self { peer, kind: OPENED, bytes: rl_buffer::of(Some(Vec::new())), ..Self::EMPTY },
            Event::Closed(peer, why) => {
                Self { peer, kind: CLOSED, bytes: rl_buffer::of(Some(why.into_bytes())), ..Self::EMPTY }
            }
            Event::Frame(peer, frame) => Self::of_frame(peer, frame, room),
        }
    }

    fn of_frame(peer: u32, frame: Frame, room: &Given<'_, (*mut u8, usize)>) -> Self {
        let Header { kind, codec, count, call, body, .. } = frame.header;
        let (kind, codec) = (u32::from(kind.raw()), u32::from(codec));
        let event = Self { peer, kind, codec, count, call, body_len: body, ..Self::EMPTY };
        let given = |len| rl_buffer { data: std::ptr::null_mut(), len };
        if let Some((text, part)) = plain(&frame)
            && let Ok(text_len) = u32::try_from(text.len())
            && room.fill([text, part])
        {
            return Self { is_plain: 1, text_len, bytes: given(text.len() + part.len()), ..event };
        }
        if room.fill([&frame.body, &frame.description]) {
            return Self { bytes: given(frame.body.len() + frame.description.len()), ..event };
        }
        let mut bytes = frame.body;
        bytes.extend_from_slice(&frame.description);
        Self { bytes: rl_buffer::of(Some(bytes)), ..event }
    }
}

/// The text and the part of a frame that has no more of either. Without one of them, it is empty.
fn plain(frame: &Frame) -> Option<(&[u8], &[u8])> {
    let (text, part) = crate::calls::plain::parse(&frame.description, frame.header.body)?;
    let part = match part {
        None => b"",
        Some(Part { offset, len, .. }) => {
            let begin = usize::try_from(offset).ok()?;
            frame.body.get(begin..begin.checked_add(usize::try_from(len).ok()?)?).filter(|part| !part.is_empty())?
        }
    };
    text.is_none_or(|text| !text.is_empty()).then(|| (text.unwrap_or_default(), part))
}

fn with(calls: Result<Arc<rl_calls>, Failure>, body: impl FnOnce(&Calls) -> Result<(), Failure>) -> c_int {
    guarded(|| body(&calls?.0))
}

fn byte(number: u32) -> Result<u8, Failure> {
    u8::try_from(number).map_err(|_| Failure::argument(format!("{number} is no byte")))
}

fn text(bytes: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(bytes).map_err(|_| Failure::argument("a name is no UTF-8"))
}

pub(super) fn rl_calls_open(calls: Given<'_, (*mut *mut rl_calls,)>) -> c_int {
    guarded(|| calls.give_share(Arc::new(rl_calls(Calls::new().map_err(crate::Error::Io)?))))
}

pub(super) fn rl_calls_close(calls: Handle<'_>) -> c_int {
    guarded(|| {
        drop(calls.take().ok_or_else(|| Failure::argument("a set of connections is needed, and NULL was given"))?);
        Ok(())
    })
}

pub(super) fn rl_calls_fd(calls: Handle<'_>, fd: Given<'_, (*mut c_int,)>) -> c_int {
    with(calls.share(), |calls| fd.give(calls.fd()))
}

pub(super) fn rl_calls_serve(
    calls: Handle<'_>,
    group: Bytes<'_>,
    host: Bytes<'_>,
    rank: u32,
    size: u32,
    world: u32,
    is_far: c_int,
) -> c_int {
    with(calls.share(), |calls| {
        let host = String::from_utf8_lossy(host.bytes()?).into_owned();
        let identity = Record { rank, size, world, pid: std::process::id(), host, ..Record::default() };
        Ok(calls.serve(&Store::of_job()?, text(group.bytes()?)?, identity, is_far != 0)?)
    })
}

pub(super) fn rl_calls_attach(
    calls: Handle<'_>,
    group: Bytes<'_>,
    rank: u32,
    timeout: i64,
    peer: Given<'_, (*mut rl_peer,)>,
) -> c_int {
    with(calls.share(), |calls| {
        let attached = calls.attach(&Store::of_job()?, text(group.bytes()?)?, rank, time(timeout))?;
        let record = attached.record;
        let mut host = [0; HOST];
        let name = super::types::text(record.host.as_bytes());
        host.iter_mut().zip(name).take(HOST - 1).for_each(|(to, from)| *to = from);
        peer.give(rl_peer {
            peer: attached.peer,
            size: record.size,
            pid: record.pid,
            world: record.world,
            is_near: u32::from(attached.is_near),
            host,
        })
    })
}

pub(super) fn rl_calls_detach(calls: Handle<'_>, peer: u32) -> c_int {
    with(calls.share(), |calls| {
        calls.close(peer);
        Ok(())
    })
}

pub(super) fn rl_calls_send(
    calls: Handle<'_>,
    peers: Given<'_, (*const u32, usize)>,
    frame: Given<'_, (*const rl_frame,)>,
    texts: Given<'_, (*const rl_bytes, usize)>,
    parts: Given<'_, (*const rl_part, usize)>,
) -> c_int {
    with(calls.share(), |calls| {
        let (frame, texts) = (frame.frame()?, texts.many()?);
        let (kind, codec) = (Kind::from_raw(byte(frame.kind)?), byte(frame.codec)?);
        let head = Head { kind, codec, count: frame.count, call: frame.call, texts: &texts };
        Ok(calls.send(peers.list()?, head, &parts.parts()?)?)
    })
}

pub(super) fn rl_calls_post(
    calls: Handle<'_>,
    peers: Given<'_, (*const u32, usize)>,
    frame: Given<'_, (*const c_char, usize)>,
) -> c_int {
    with(calls.share(), |calls| post(calls, peers.list()?, frame.bytes()?))
}

fn post(calls: &Calls, peers: &[u32], frame: &[u8]) -> Result<(), Failure> {
    let posted = Posted::parse(frame).ok_or_else(|| Failure::argument("a frame is cut off"))?;
    let Posted { kind, codec, count, call, text, part } = posted;
    let texts: &[&[u8]] = if text.is_empty() { &[] } else { &[text] };
    let head = Head { kind: Kind::from_raw(byte(kind)?), codec: byte(codec)?, count, call, texts };
    Ok(calls.post(peers, head, part)?)
}

/// A frame with at most one text and one part, as C gives it.
struct Posted<'a> {
    kind: u32,
    codec: u32,
    count: u32,
    call: u64,
    text: &'a [u8],
    part: &'a [u8],
}

impl<'a> Posted<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        fn word(bytes: &mut &[u8]) -> Option<u32> {
            let (first, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(u32::from_le_bytes(*first))
        }
        let mut rest = bytes;
        let (kind, codec, count) = (word(&mut rest)?, word(&mut rest)?, word(&mut rest)?);
        let text_len = usize::try_from(word(&mut rest)?).ok()?;
        let (call, rest) = rest.split_first_chunk()?;
        let (text, part) = rest.split_at_checked(text_len)?;
        Some(Self { kind, codec, count, call: u64::from_le_bytes(*call), text, part })
    }
}

pub(super) fn rl_calls_next(
    calls: Handle<'_>,
    timeout: i64,
    event: Given<'_, (*mut rl_event,)>,
    room: Given<'_, (*mut u8, usize)>,
) -> c_int {
    with(calls.share(), |calls| next(calls, timeout, &event, &room))
}

fn next(
    calls: &Calls,
    timeout: i64,
    event: &Given<'_, (*mut rl_event,)>,
    room: &Given<'_, (*mut u8, usize)>,
) -> Result<(), Failure> {
    if event.is_null() {
        return Err(Failure::argument("a place for the event is needed, and NULL was given"));
    }
    match calls.next(time(timeout)).map_err(crate::Error::Io)? {
        Some(came) => event.give_event(rl_event::of(came, room)),
        None => Err(nothing()),
    }
}

fn nothing() -> Failure {
    Failure::new(TIMEOUT, "nothing came in time")
}

pub(super) fn rl_calls_answer(
    calls: Handle<'_>,
    peer: u32,
    frame: Given<'_, (*const c_char, usize)>,
    timeout: i64,
    event: Given<'_, (*mut rl_event,)>,
    room: Given<'_, (*mut u8, usize)>,
) -> c_int {
    with(calls.share(), |calls| {
        post(calls, &[peer], frame.bytes()?)?;
        next(calls, timeout, &event, &room)
    })
}

pub(super) fn rl_calls_gather(
    calls: Handle<'_>,
    timeout: i64,
    call: u64,
    wanted: usize,
    last: u32,
    room: Given<'_, (*mut u8, usize)>,
) -> c_int {
    with(calls.share(), |calls| {
        if !room.has_room(COUNT) {
            return Err(Failure::argument("room for a number is needed"));
        }
        calls.await_answers(call, wanted, last, time(timeout)).map_err(crate::Error::Io)?;
        let mut len = COUNT;
        let frames = calls.take_frames(|frame| {
            let Some((text, part)) = plain(frame) else { return false };
            let after = len + NUMBERS + text.len() + part.len();
            let has_room = room.has_room(after);
            len = if has_room { after } else { len };
            has_room
        });
        if frames.is_empty() && !calls.has_event() {
            return Err(nothing());
        }
        // It fits: that was looked at one by one.
        room.fill([&gathered(&frames), &[]]);
        Ok(())
    })
}

/// Length of a number of entries.
const COUNT: usize = 8;
/// Most bytes of an entry for one frame, without its text and part.
const NUMBERS: usize = 36;

/// Plain frames as C is given them: those that follow one another and differ by their peer only are one entry.
fn gathered(frames: &[(u32, Frame)]) -> Vec<u8> {
    let mut bytes = vec![0; COUNT];
    let mut count = 0_u64;
    for same in
        frames.chunk_by(|(_, a), (_, b)| a.header == b.header && a.description == b.description && a.body == b.body)
    {
        let Some((_, first)) = same.first() else { continue };
        let Some((text, part)) = plain(first) else { continue };
        let Header { kind, codec, count: items, call, .. } = first.header;
        // Lengths of what fits into the room of a caller in C.
        let len = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let numbers = [kind.raw().into(), codec.into(), items, len(text.len()), len(part.len()), len(same.len())];
        numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        bytes.extend_from_slice(&call.to_le_bytes());
        same.iter().for_each(|(peer, _)| bytes.extend_from_slice(&peer.to_le_bytes()));
        bytes.extend_from_slice(text);
        bytes.extend_from_slice(part);
        count += 1;
    }
    bytes.splice(..COUNT, count.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_protocol::wire::frozen::calls::{Description, Place};

    fn frame(texts: &[&[u8]], parts: &[Part]) -> Frame {
        let description = Description { texts: texts.to_vec(), parts: parts.to_vec() }.to_bytes();
        let described = u32::try_from(description.len()).unwrap();
        let header = Header { kind: Kind::Call, codec: 0, count: 0, call: 1, description: described, body: 4 };
        Frame { header, description, body: b"body".to_vec() }
    }

    #[test]
    fn frame_with_one_text_and_one_part_at_most_is_plain() {
        let part = |place, len| Part { place, offset: 0, len };
        let body = part(Place::Body, 3);
        assert_eq!(plain(&frame(&[b"name"], &[body])), Some((&b"name"[..], &b"bod"[..])));
        assert_eq!(plain(&frame(&[], &[body])), Some((&b""[..], &b"bod"[..])));
        assert_eq!(plain(&frame(&[b"name"], &[])), Some((&b"name"[..], &b""[..])));
        for (texts, parts) in [
            (&[&b"a"[..], b"b"][..], &[body][..]),
            (&[b""], &[body]),
            (&[], &[body, body]),
            (&[], &[part(Place::Arena, 3)]),
            (&[], &[part(Place::Body, 0)]),
        ] {
            assert_eq!(plain(&frame(texts, parts)), None, "{texts:?} {parts:?}");
        }
    }

    #[test]
    fn frames_that_differ_by_their_peer_only_are_one_entry() {
        let part = Part { place: Place::Body, offset: 0, len: 4 };
        let (same, other) = (|| frame(&[b"n"], &[part]), frame(&[b"other"], &[part]));
        let bytes = gathered(&[(3, same()), (1, same()), (2, other)]);
        let entry = |text_len: u32, peers: &[u32], text: &[u8]| {
            let numbers = [1, 0, 0, text_len, 4, u32::try_from(peers.len()).unwrap()].map(u32::to_le_bytes).concat();
            let peers: Vec<u8> = peers.iter().flat_map(|peer| peer.to_le_bytes()).collect();
            [&numbers[..], &1_u64.to_le_bytes(), &peers, text, b"body"].concat()
        };
        let expected = [&2_u64.to_le_bytes()[..], &entry(1, &[3, 1], b"n"), &entry(5, &[2], b"other")].concat();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn posted_frame_that_is_cut_off_is_refused() {
        let numbers = [1_u32, 2, 3, 4].map(u32::to_le_bytes).concat();
        let whole = [&numbers[..], &7_u64.to_le_bytes(), b"name", b"value"].concat();
        let posted = Posted::parse(&whole).unwrap();
        assert_eq!((posted.kind, posted.codec, posted.count, posted.call), (1, 2, 3, 7));
        assert_eq!((posted.text, posted.part), (&b"name"[..], &b"value"[..]));
        for cut in 0..numbers.len() + 8 + 4 {
            assert!(Posted::parse(&whole[..cut]).is_none(), "cut at {cut}");
        }
    }
}
