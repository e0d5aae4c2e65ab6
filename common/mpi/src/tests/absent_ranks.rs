//! Ranks that wait in `MPI_Init` for ranks that do not come.

use super::{Hosts, Rig, Writer, hello, request, world};
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::time::Mono;
use rlaunch_protocol::wire::node_news::{MpiNews, MpiWire};
use rlaunch_protocol::wire::pmix::{ALL_RANKS, Proc};

fn begin(now: u64) -> Mono {
    Mono::from_nanos(1) + rlaunch_base::time::Span::from_secs(now)
}

fn waits(waiting: &[(u32, u32)], missing: &[(u32, u32)]) -> MpiNews {
    MpiNews::Waits { waiting: waiting.to_vec(), missing: missing.to_vec(), apart: Vec::new() }
}

const USED: MpiNews = MpiNews::Used { wire: MpiWire::Pmi1 };

#[test]
fn ranks_that_do_not_come_are_named_once() {
    let mut rig = Rig::new(world(4));
    let first = rig.rank(1);
    rig.pass(begin(29));
    assert_eq!(rig.news, [USED]);
    rig.say(first, "cmd=barrier_in\n");
    rig.pass(begin(30));
    assert_eq!(rig.news, [USED, waits(&[(1, 1)], &[(0, 0), (2, 3)])]);
    rig.rank(2);
    assert_eq!(rig.mpi.poll_timeout(), None);
}

/// Both have come, and neither meets the other.
#[test]
fn ranks_with_libraries_of_different_wires_are_named() {
    for is_lines_first in [true, false] {
        let mut rig = Rig::new(world(2));
        let other = rig.mpi.open();
        let lines = is_lines_first.then(|| rig.rank(0));
        rig.send(other, &hello(1));
        let lines = lines.unwrap_or_else(|| rig.rank(0));
        rig.say(lines, "cmd=barrier_in\n");
        rig.pass(begin(30));
        let expected = MpiNews::Waits { waiting: vec![(0, 0)], missing: vec![(1, 1)], apart: vec![(1, 1)] };
        assert_eq!(rig.news.last(), Some(&expected));
    }
}

#[test]
fn rank_that_has_left_mpi_waits_for_no_other() {
    let mut rig = Rig::new(world(2));
    let client = rig.rank(0);
    rig.say(client, "cmd=finalize\n");
    rig.pass(begin(30));
    assert_eq!(rig.news, [USED]);
}

#[test]
fn later_barriers_may_take_long() {
    let mut rig = Rig::new(world(2));
    let [a, b] = [0, 1].map(|rank| rig.rank(rank));
    [a, b].iter().for_each(|client| _ = rig.say(*client, "cmd=barrier_in\n"));
    rig.say(a, "cmd=barrier_in\n");
    assert_eq!(rig.mpi.poll_timeout(), None);
}

#[test]
fn host_of_first_waiting_rank_names_those_of_all_hosts() {
    let mut hosts = Hosts::new();
    for rank in [1, 3] {
        let client = hosts.rig(rank).rank(rank);
        hosts.rig(rank).say(client, "cmd=barrier_in\n");
    }
    for now in [5, 30] {
        hosts.rigs.iter_mut().for_each(|rig| rig.pass(begin(now)));
        hosts.exchange();
    }
    assert_eq!(hosts.rigs[0].news, [USED, waits(&[(1, 1), (3, 3)], &[(0, 0), (2, 2)])]);
    assert_eq!(hosts.rigs[1].news, [USED], "the other host reports");
    assert!(hosts.rigs.iter().all(|rig| rig.mpi.poll_timeout().is_none()));
}

/// Ranks of one host speak PMI-1, those of the other one PMIx.
#[test]
fn library_of_another_host_that_speaks_another_wire_is_named() {
    let mut hosts = Hosts::new();
    for rank in [0, 1] {
        hosts.rig(rank).rank(rank);
    }
    for rank in [2, 3] {
        let rig = hosts.rig(rank);
        let client = rig.mpi.open();
        rig.send(client, &hello(rank));
        let mut fence = Writer::new(false);
        fence.raw(&[0, 0, 0, 1, 3]);
        fence.procs(core::iter::once(Proc { nspace: b"world", rank: ALL_RANKS })).size(0);
        rig.send(client, &request(1, fence));
    }
    for now in [5, 30] {
        hosts.rigs.iter_mut().for_each(|rig| rig.pass(begin(now)));
        hosts.exchange();
    }
    let apart = |waiting: (u32, u32), apart: (u32, u32)| MpiNews::Waits {
        waiting: vec![waiting],
        missing: vec![apart],
        apart: vec![apart],
    };
    assert_eq!(hosts.rigs[0].news.last(), Some(&apart((0, 1), (2, 3))));
    assert_eq!(hosts.rigs[1].news.last(), Some(&apart((2, 3), (0, 1))));
}
