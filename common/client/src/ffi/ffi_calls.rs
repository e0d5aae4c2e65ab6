//! Connections between a controller and its workers, for C.
#![forbid(unsafe_code)]
#![expect(non_camel_case_types, reason = "they are named as in the header")]

use super::ffi_error::{Failure, TIMEOUT, guarded};
use super::ffi_store::rl_buffer;
use super::given::Given;
use super::types::{rl_bytes, time};
use crate::Store;
use crate::calls::record::Record;
use crate::calls::{Calls, Event, Head, Sent};
use rlaunch_core::wire::frozen::calls::Kind;
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
    call: u64,
    body_len: u64,
    bytes: rl_buffer,
}

impl rl_event {
    fn of(event: Event, room: &Given<'_, (*mut u8, usize)>) -> Self {
        let bare = |peer, kind, bytes: Vec<u8>| Self {
            peer,
            kind,
            codec: 0,
            count: 0,
            call: 0,
            body_len: 0,
            bytes: rl_buffer::of(Some(bytes)),
        };
        match event {
            Event::Opened(peer) => bare(peer, OPENED, Vec::new()),
            Event::Closed(peer, why) => bare(peer, CLOSED, why.into_bytes()),
            Event::Frame(peer, frame) => {
                let header = frame.header;
                let bytes = if room.fill([&frame.body, &frame.description]) {
                    rl_buffer { data: std::ptr::null_mut(), len: frame.body.len() + frame.description.len() }
                } else {
                    let mut bytes = frame.body;
                    bytes.extend_from_slice(&frame.description);
                    rl_buffer::of(Some(bytes))
                };
                Self {
                    peer,
                    kind: u32::from(header.kind.raw()),
                    codec: u32::from(header.codec),
                    count: header.count,
                    call: header.call,
                    body_len: header.body,
                    bytes,
                }
            }
        }
    }
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

#[expect(clippy::too_many_arguments, reason = "a call in plain arguments is what it is for")]
pub(super) fn rl_calls_post(
    calls: Handle<'_>,
    peers: Given<'_, (*const u32, usize)>,
    kind: u32,
    codec: u32,
    count: u32,
    call: u64,
    text: Bytes<'_>,
    data: Given<'_, (*const c_char, usize)>,
) -> c_int {
    with(calls.share(), |calls| {
        let (text, data) = (text.bytes()?, data.bytes()?);
        let head = Head { kind: Kind::from_raw(byte(kind)?), codec: byte(codec)?, count, call, texts: &[text] };
        let head = if text.is_empty() { Head { texts: &[], ..head } } else { head };
        let part = [Sent::Bytes(data)];
        Ok(calls.send(peers.list()?, head, if data.is_empty() { &[] } else { &part })?)
    })
}

pub(super) fn rl_calls_next(
    calls: Handle<'_>,
    timeout: i64,
    event: Given<'_, (*mut rl_event,)>,
    room: Given<'_, (*mut u8, usize)>,
) -> c_int {
    with(calls.share(), |calls| {
        if event.is_null() {
            return Err(Failure::argument("a place for the event is needed, and NULL was given"));
        }
        match calls.next(time(timeout)).map_err(crate::Error::Io)? {
            Some(came) => event.give_event(rl_event::of(came, &room)),
            None => Err(Failure::new(TIMEOUT, "nothing came in time")),
        }
    })
}
