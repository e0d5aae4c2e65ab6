//! Messages about the store of a host.
//!
//! A client of torch's wire that meets a limit sees only that its connection was closed. The message names the limit, and the way out.

use super::log_view::{Line, Names};
use super::{Tone, phrases};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_core::node::UNUSED;
use rlaunch_protocol::wire::limit::{Limit, Met};
use rlaunch_protocol::wire::node_news::StoreNews;
use std::collections::BTreeSet;

/// Facts of which the user knows.
#[derive(Debug, Default)]
pub(super) struct Reported {
    limits: BTreeSet<Limit>,
    /// No rank had connected to the store.
    unused: bool,
}

/// The line of a fact, and the least verbose tone in which it is printed. `None`: only the log has it.
pub(super) fn news(news: &StoreNews, host: &OsBytes, names: &Names, reported: &mut Reported) -> Option<Line> {
    match news {
        StoreNews::Unused { at } => {
            let is_first = !core::mem::replace(&mut reported.unused, true);
            let tone = if names.may_use_store() { Tone::Normal } else { Tone::Verbose };
            is_first.then(|| (tone, unused(at, names.port_of_arguments())))
        }
        StoreNews::Foreign { from } => Some((Tone::Normal, foreign(from))),
        StoreNews::Refused { .. } => None,
        StoreNews::Limit { met: limit, count: _ } => {
            reported.limits.insert(limit.limit).then(|| (Tone::Quiet, met(host, limit)))
        }
    }
}

/// `port`: another, which the program's arguments name.
fn unused(at: &OsBytes, port: Option<u16>) -> String {
    let within = phrases::wait(UNUSED);
    let own =
        port.map_or_else(|| "opens a store of its own".to_owned(), |port| format!("meets at port {port} instead"));
    format!(
        "no rank has connected to the TCPStore at {at} within {within}\n  try     --master-store rank0, if the program {own}"
    )
}

fn foreign(from: &OsBytes) -> String {
    format!(
        "refused a connection to the store from {from}: no host of the job has that address\n  \
         try     --master-store rank0 or --store-guard off, if NAT translates addresses between hosts"
    )
}

const ELSEWHERE: &str = "large data in a file or a tensor, and its path in the store";
const READ: &str = "read each answer before the next request; see whether the client is stopped";
const FEWER: &str = "ask for fewer keys at a time";
const STOPPED: &str = "see whether clients stop in the middle of a request, or leave answers unread";
const DELETE: &str = "delete keys that are not read any more, or let rank 0 hold the store: --master-store rank0";

/// That a connection was closed, which limit that was, and the way out.
fn met(host: &OsBytes, met: &Met) -> String {
    let (has, most) = (met.has, met.most);
    let of =
        |what: &str| if met.key.as_slice().is_empty() { what.to_owned() } else { format!("{what} of '{}'", met.key) };
    let at = || if met.key.as_slice().is_empty() { "another key".to_owned() } else { format!("'{}'", met.key) };
    let (what, hint) = match met.limit {
        Limit::Key => (format!("{} has {has} bytes, the longest may have {most}", of("a key")), ELSEWHERE),
        Limit::Value => (format!("{} would have {has} bytes, the longest may have {most}", of("the value")), ELSEWHERE),
        Limit::List => (format!("a request names {has} keys, {most} at most are taken"), FEWER),
        Limit::Request => (format!("a request has {has} bytes, the longest may have {most}"), FEWER),
        Limit::Answer => (format!("an answer would have {has} bytes, the longest may have {most}"), FEWER),
        Limit::Unread => (format!("{has} bytes of answers wait for it, {most} at most are kept"), READ),
        Limit::Keys => (format!("there is no room for {}: {most} keys and items of queues are there", at()), DELETE),
        Limit::Bytes if met.key.as_slice().is_empty() => {
            (format!("there is no room for a request or an answer: {has} of {most} bytes are in use"), STOPPED)
        }
        Limit::Bytes => (format!("there is no room for {}: {has} of {most} bytes are in use", at()), DELETE),
        Limit::Waits => (format!("{most} requests wait already"), "wait for several keys with one request"),
    };
    format!("the TCPStore on {host} has closed a connection of the job: {what}\n  try     {hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_said_with_a_way_out() {
        let say = |limit, key: &[u8], has, most| met(&OsBytes::from("n1"), &Met::at(limit, key, has, most));
        assert_eq!(
            say(Limit::Value, b"model", 9 << 20, 8 << 20),
            "the TCPStore on n1 has closed a connection of the job: the value of 'model' would have 9437184 bytes, the longest \
             may have 8388608\n  try     large data in a file or a tensor, and its path in the store"
        );
        assert_eq!(
            say(Limit::Keys, b"k", 1 << 20, 1 << 20),
            "the TCPStore on n1 has closed a connection of the job: there is no room for 'k': 1048576 keys and items of queues are \
             there\n  try     delete keys that are not read any more, or let rank 0 hold the store: --master-store rank0"
        );
        for limit in Limit::ALL {
            let said = say(limit, b"", 9, 8);
            assert!(said.contains("\n  try     ") && !said.contains("''"), "{said}");
        }
    }
}
