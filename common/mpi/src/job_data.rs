//! The facts about its job that a PMIx client asks for first. All ranks of a host get the same.

use super::pmix::Parent;
use super::{Layout, Origin};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_protocol::wire::pmix::{Proc, Writer};

/// The number of a set in a field of 32 bits.
fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Packed key-value pairs.
pub(super) fn write(layout: &Layout, is_described: bool) -> Vec<u8> {
    let mut out = Writer::new(is_described);
    let size = layout.size();
    let lists: Vec<String> = layout.hosts.iter().map(|host| list(host.ranks())).collect();
    let own = layout.hosts.get(layout.here).map_or(0, |host| count(host.ranks().count()));
    for key in [&b"pmix.job.size"[..], b"pmix.univ.size", b"pmix.max.size"] {
        out.key_word(key, size);
    }
    out.key_word(b"pmix.local.size", own).key_word(b"pmix.node.size", own);
    out.key_text(b"pmix.lpeers", lists.get(layout.here).map_or(&b""[..], |list| list.as_bytes()));
    if let Some(Origin::Parent(Parent { world, rank })) = Origin::parse(&layout.origin) {
        out.key_true(b"pmix.spawned").key_proc(b"pmix.parent", Proc { nspace: &world, rank });
    }
    if layout.is_crowded {
        out.key_true(b"pmix.ndosub");
    }
    out.key_word(b"pmix.num.nodes", count(layout.hosts.len()));
    out.key_word(b"pmix.job.napps", count(layout.apps.len()));
    out.key_text(b"pmix.jobid", layout.name.as_bytes());
    if !layout.session_dir.is_empty() {
        // Otherwise Open MPI makes one in /tmp, and leaves it there.
        out.key_text(b"pmix.nsdir", &layout.session_dir);
    }
    let names: Vec<&[u8]> = layout.hosts.iter().map(|host| host.name.as_slice()).collect();
    out.key_text(b"pmix.nlist", &names.join(&b','));
    let mut nodes = out.another();
    nodes.size(layout.hosts.len());
    for (host, list) in layout.hosts.iter().zip(&lists) {
        nodes.key_text(&host.name, list.as_bytes());
    }
    out.key_bytes(b"pmix.mblob", &nodes.into_bytes());
    for (host, node) in layout.hosts.iter().zip(0..) {
        for (rank, local) in host.ranks().zip(0..) {
            let (app, app_rank) = layout.app_of(rank);
            let local = u16::try_from(local).unwrap_or(u16::MAX);
            let mut of = out.another();
            of.rank(rank).key_half(b"pmix.lrank", local).key_half(b"pmix.nrank", local);
            of.key_word(b"pmix.nodeid", node).key_text(b"pmix.hname", &host.name);
            of.key_word(b"pmix.appnum", app).key_rank(b"pmix.grank", rank).key_rank(b"pmix.apprank", app_rank);
            out.key_bytes(b"pmix.pblob", &of.into_bytes());
        }
    }
    out.into_bytes()
}

fn list(ranks: impl Iterator<Item = u32>) -> String {
    let words: Vec<String> = ranks.map(|rank| format!("{rank}")).collect();
    words.join(",")
}
