//! Ranks that wait for a public name of PMIx, which no rank publishes.

use super::{Rig, Words, Writer, hello, request, world};
use alloc::vec;
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_base::time::{Mono, Span};
use rlaunch_keyvalue::store::{Absent, Answer, Ask, Refusal};
use rlaunch_protocol::wire::frozen::client::write_reply;
use rlaunch_protocol::wire::node_news::{MpiNews, MpiWire};

const NAME: &[u8] = b"1.0:2:accept";
const USED: MpiNews = MpiNews::Used { wire: MpiWire::Pmix };

/// A rank that looks up the name and waits for it.
fn waiting() -> (Rig, ClientId) {
    waiting_for(&[NAME])
}

fn waiting_for(names: &[&[u8]]) -> (Rig, ClientId) {
    let mut rig = Rig::new(world(1));
    let client = rig.mpi.open();
    rig.send(client, &hello(0));
    rig.written.clear();
    let mut lookup = Writer::new(false);
    lookup.raw(&[0, 0, 0, 1, 7]).raw(&[0, 0, 0, 1, 0, 0, 0, 0]).size(names.len());
    for name in names {
        lookup.string(name);
    }
    lookup.size(1).raw(b"\0\0\0\x01\0\0\0\x0apmix.wait\0\0\0\0\0\0\x01\x01");
    rig.send(client, &request(1, lookup));
    (rig, client)
}

/// The number of the request to wait for the name, and how long the store waits.
fn asked(rig: &mut Rig) -> (u64, Option<Span>) {
    let waits = rig.asked.iter().find_map(|(seq, words)| {
        let Ask::Wait { within, .. } = Words::parse(words).unwrap().ask() else { return None };
        Some((*seq, within))
    });
    rig.asked.clear();
    waits.unwrap()
}

fn answer_that_time_is_over(rig: &mut Rig, seq: u64) {
    let late = Refusal::TimedOut { within: Span::ZERO, missing: Absent::Keys(vec![NAME.into()], 1) };
    rig.mpi.answered(Mono::from_nanos(1), seq, &write_reply(&Answer::Refused(late)));
    rig.drain();
}

#[test]
fn long_wait_for_a_name_is_reported_once_and_continues() {
    let (mut rig, _) = waiting();
    let (seq, within) = asked(&mut rig);
    assert_eq!(within, Some(Span::from_secs(30)));
    answer_that_time_is_over(&mut rig, seq);
    assert_eq!(rig.news, [USED, MpiNews::LookupWaits { rank: Rank::new(0), name: NAME.into() }]);
    assert_eq!(asked(&mut rig).1, None);
    assert!(rig.written.is_empty() && rig.closed.is_empty());
}

/// A rank can ask for thousands of names.
#[test]
fn long_wait_names_eight_names_of_a_lookup() {
    let (mut rig, _) = waiting_for(&[&b"n"[..]; 9]);
    let (seq, _) = asked(&mut rig);
    answer_that_time_is_over(&mut rig, seq);
    let name = "n, n, n, n, n, n, n, n".into();
    assert_eq!(rig.news, [USED, MpiNews::LookupWaits { rank: Rank::new(0), name }]);
}

#[test]
fn long_wait_of_a_closed_connection_is_not_reported() {
    let (mut rig, client) = waiting();
    let (seq, _) = asked(&mut rig);
    rig.mpi.closed(client);
    answer_that_time_is_over(&mut rig, seq);
    assert!(rig.news == [USED] && rig.asked.is_empty());
}
