//! Our own store's wires: what clients of several hosts ask, through their caches and the home, in any order; and frames that are none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rlaunch_base::id::{ClientId, NodeId, Rank};
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::{Mono, Span};
use rlaunch_keyvalue::store::cache::{Cache, CacheAction};
use rlaunch_keyvalue::store::owner::Owner;
use rlaunch_keyvalue::store::{Seq, Ticket};
use rlaunch_protocol::wire::frozen::client::client_round::{AgentMessage, ClientMessage};
use rlaunch_protocol::wire::frozen::client::order::Order;
use rlaunch_protocol::wire::frozen::client::{
    Asked, ClientFrame, FromAgent, HELLO, Reply, Words, frame_len, parse_hello,
};
use rlaunch_protocol::wire::frozen::pool::{PoolReply, PoolRequest};
use rlaunch_protocol::wire::store::{Down, stamped, unstamped};
use std::collections::BTreeSet;

const HOSTS: u32 = 2;

/// Bytes that come from anywhere.
fn any(data: &[u8]) {
    if let Ok(words) = Words::parse(data) {
        assert_eq!(Words::parse(&Words::write(words.ask())).as_ref(), Ok(&words));
    }
    if let Ok(asked) = Asked::parse(data) {
        assert_eq!(Asked::parse(&asked.to_frame()), Ok(asked));
    }
    match ClientFrame::parse(data) {
        Ok(ClientFrame::Ask(asked, words)) => {
            assert_eq!((Asked::parse(data), Words::parse(asked.words)), (Ok(asked), Ok(words)));
        }
        Ok(ClientFrame::Order(_, words)) => {
            if let Ok(order) = Order::parse(words) {
                assert!(Order::parse(&order.write()).is_ok());
            }
        }
        Ok(ClientFrame::Unknown(unknown)) => assert!(Reply::parse(&unknown.reply()).is_ok()),
        Err(_) => {}
    }
    if let Ok((generation, passage)) = unstamped(data) {
        assert_eq!(unstamped(&stamped(generation, passage)), Ok((generation, passage)));
    }
    if let Ok(said) = ClientMessage::parse(data) {
        assert_eq!(ClientMessage::parse(&said.to_frame()), Ok(said));
    }
    if let Ok(message) = AgentMessage::parse(data) {
        assert_eq!(AgentMessage::parse(&message.to_frame()), Ok(message));
    }
    if let Ok(request) = PoolRequest::parse(data) {
        assert_eq!(PoolRequest::parse(&request.to_frame()), Ok(request));
    }
    if let Ok(reply) = PoolReply::parse(data) {
        assert_eq!(PoolReply::parse(&reply.to_frame()), Ok(reply));
    }
    let _read = (Reply::parse(data), FromAgent::parse(data), frame_len(data));
    if let Some(first) = data.first_chunk::<HELLO>() {
        let _hello = parse_hello(first);
    }
}

/// Asks of some clients on two hosts: host and client, how many bytes, what. Each is answered once at most; all, when the home closes.
fn several(mut data: &[u8]) {
    let placements = |host| [Rank::new(host)].into_iter().collect::<RankSet>();
    let mut relays: Vec<Cache> = (0..HOSTS).map(|host| Cache::new(placements(host))).collect();
    let (mut home, mut open, mut seq, mut now) = (Owner::default(), BTreeSet::new(), 0, Mono::from_nanos(1));
    let mut gone: BTreeSet<(usize, ClientId)> = BTreeSet::new();
    while let Some(([who, len], rest)) = data.split_first_chunk::<2>() {
        let (words, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        data = rest;
        let (host, client) = (usize::from(who & 1), ClientId::new(u32::from(who >> 1 & 3) + 1));
        if who & 0x80 != 0 {
            relays[host].gone(client);
            open.retain(|(of, ticket): &(usize, Ticket)| (*of, ticket.client) != (host, client));
            gone.insert((host, client));
        } else if let Ok(parsed) = Words::parse(words)
            && !gone.contains(&(host, client))
        {
            seq += 1;
            let ticket = Ticket { client, seq: Seq(seq) };
            open.insert((host, ticket));
            // The first host has the home beside it.
            if host == 0 && relays[0].is_for_home(client, &parsed) {
                match home.ask_here(now, NodeId::new(0), ticket, words, &parsed) {
                    Some(_) => assert!(open.remove(&(host, ticket))),
                    None => relays[0].waits_at_home(ticket),
                }
            } else if relays[host].ask(now, ticket, words, &parsed) {
                home.ask(now, NodeId::new(host as u32), ticket, words, &parsed);
            }
        }
        now = now + Span::from_millis(u64::from(who >> 5 & 3));
        exchange(&mut relays, &mut home, &mut open, now);
    }
    // Its host is lost.
    relays.iter_mut().for_each(|relay| relay.receive(Down::Closed));
    exchange(&mut relays, &mut home, &mut open, now);
    // An owner may learn only after 1 s that a caller has come to a fence.
    exchange(&mut relays, &mut home, &mut open, now + Span::from_secs(1));
    assert!(open.is_empty(), "nobody waits for ever: {open:?}");
}

fn exchange(relays: &mut [Cache], home: &mut Owner, open: &mut BTreeSet<(usize, Ticket)>, now: Mono) {
    home.handle_timeout(now);
    relays.iter_mut().for_each(|relay| relay.handle_timeout(now));
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for (host, relay) in relays.iter_mut().enumerate() {
            while let Some(action) = relay.poll_action() {
                moved = true;
                if let Some(up) = action.up() {
                    home.receive(now, NodeId::new(host as u32), up);
                } else if let CacheAction::Answer(ticket, words) = action {
                    assert!(Reply::parse(&words).is_ok());
                    assert!(open.remove(&(host, ticket)), "answered twice");
                }
            }
        }
        while let Some((node, action)) = home.poll_action() {
            moved = true;
            relays[node.index()].receive(action.down());
        }
    }
}

fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((0, rest)) => any(rest),
        Some((_, rest)) => several(rest),
        None => {}
    }
});
