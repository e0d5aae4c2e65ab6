//! Limits of the TCPStore: its wire has no words for them, so rlaunch says which was met.

use crate::case::Done;
use crate::place;
use crate::store::python;

/// Ranks that ask for too much: each time the connection is closed, and the store serves the next one.
const TOO_MUCH: &str = r#"
def ends(ask):
    s = connect()
    try:
        s.sendall(ask)
        return s.recv(1) == b""
    except ConnectionError: return True
if rank == 0:
    s = connect()
    for n in range(3): assert ends(bytes([1]) + text(b"k" * 9000))
    assert ends(bytes([1]) + text(b"model.state") + struct.pack("<Q", 9 << 20))
    assert ends(bytes([10]) + struct.pack("<Q", 200000))
    put(s, b"log", b"x" * (5 << 20))
    assert ends(bytes([9]) + text(b"log") + text(b"x" * (5 << 20)))
    add(connect(), b"n")
    say("served")
"#;

fn count(done: &Done, limit: &str) -> u64 {
    let of = done.named("store.limit").filter(|event| event["limit"] == limit);
    of.map(|event| event["count"].as_u64().unwrap()).sum()
}

#[test]
fn a_limit_that_a_client_of_the_store_meets_is_said_and_counted() {
    if !place::has("python3") {
        return;
    }
    for tier in place::tiers() {
        let done = python(&["-n", "2"], TOO_MUCH).contain(tier).start().code(0);
        assert_eq!(done.out(), "served\n", "{}", done.err());
        let host = done.event("job.start")["hosts"][0].as_str().unwrap().to_owned();
        let closed = format!("the TCPStore on {host} has closed a connection of the job: ");
        let elsewhere = "\n  try     large data in a file or a tensor, and its path in the store";
        done.says(&format!("{closed}a key has 9000 bytes, the longest may have 8192{elsewhere}\n"))
            .says(&format!(
                "{closed}the value of 'model.state' would have 9437184 bytes, the longest may have 8388608{elsewhere}\n"
            ))
            .says(&format!("{closed}a request names 200000 keys, 131072 at most are taken\n  try     ask for fewer keys at a time\n"));
        assert_eq!(done.err().matches("has closed a connection").count(), 3, "each once: {}", done.err());
        assert_eq!(["key", "value", "list"].map(|limit| count(&done, limit)), [3, 2, 1]);
        let last = done.named("store.limit").filter(|event| event["limit"] == "value").last().unwrap();
        assert_eq!(
            (last["key"].as_str(), last["has"].as_u64(), last["node"].as_u64()),
            (Some("log"), Some(10 << 20), Some(0))
        );
    }
}
