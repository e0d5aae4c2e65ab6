//! An edge, both directions: headers, messages and programs from any bytes. An accepted message must be the one that is sent back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rlaunch_net::Early;
use rlaunch_protocol::spec::AppBase;
use rlaunch_protocol::wire::codec::{WireMessage, decode, encode};
use rlaunch_protocol::wire::frame::{HEADER, parse_header};
use rlaunch_protocol::wire::to_node::ToNode;
use rlaunch_protocol::wire::to_root::ToRoot;
use std::io::Write as _;
use std::os::unix::net::UnixStream;

fn message<M: WireMessage + PartialEq + std::fmt::Debug>(body: &[u8]) {
    if let Ok(message) = decode::<M>(body) {
        assert_eq!(decode::<M>(&encode(&message)).as_ref(), Ok(&message));
    }
}

/// Reads a whole stream of frames as the process at its other end would.
fn stream<M: WireMessage>(bytes: &[u8]) {
    let Ok((here, mut there)) = UnixStream::pair() else { return };
    // A socket takes far more than this at once, and nothing more can come afterwards.
    if there.write_all(bytes.get(..32 << 10).unwrap_or(bytes)).is_err() {
        return;
    }
    drop(there);
    let mut edge = Early::<M>::new(here);
    while let Ok(frame) = edge.recv() {
        drop(frame);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind % 6 {
        0 => stream::<ToNode>(rest),
        1 => stream::<ToRoot>(rest),
        2 => message::<ToNode>(rest),
        3 => message::<ToRoot>(rest),
        4 => message::<AppBase>(rest),
        _ => {
            let header = rest.first_chunk::<HEADER>();
            if let Some((bytes, Ok(header))) = header.map(|bytes| (bytes, parse_header(bytes))) {
                assert_eq!(&header.to_bytes(), bytes);
                assert!(header.len <= header.lane.max());
            }
        }
    }
});
