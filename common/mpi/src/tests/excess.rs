//! Ranks that put or ask for more than the machine keeps for them.

use super::{Action, Rig, Writer, hello, request, world};
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_protocol::wire::pmix::{ALL_RANKS, Proc};

#[test]
fn rank_of_pmi_1_that_puts_too_much_is_disconnected() {
    let mut rig = Rig::new(world(2));
    let [a, b] = [0, 1].map(|rank| rig.rank(rank));
    let put = |key: usize| alloc::format!("cmd=put kvsname=k key=k{key} value={}\n", "x".repeat(1000));
    let mut puts = 0;
    while puts < 20_000 && rig.say(a, &put(puts)) == "cmd=put_result rc=0\n" {
        puts += 1;
    }
    assert!((16_000..17_000).contains(&puts), "{puts}: {:?}", rig.closed);
    assert!(rig.closed[0].1.contains("rank 0 has put more than"), "{:?}", rig.closed);
    assert_eq!(rig.say(b, &put(0)), "cmd=put_result rc=0\n", "the others are served");
}

fn come(rig: &mut Rig, rank: u32) -> ClientId {
    let client = rig.mpi.open();
    rig.send(client, &hello(rank));
    client
}

#[test]
fn rank_that_comes_to_too_many_fences_is_disconnected() {
    let mut rig = Rig::new(world(2));
    let client = come(&mut rig, 0);
    for fence in 0..65 {
        assert!(rig.closed.is_empty(), "{fence}");
        let mut body = Writer::new(false);
        body.raw(&[0, 0, 0, 1, 3]);
        body.procs(core::iter::once(Proc { nspace: b"world", rank: ALL_RANKS })).size(0);
        rig.send(client, &request(fence, body));
    }
    let why = "the table of MPI's fences is full: it has 64 entries";
    assert_eq!(rig.closed, [(client, alloc::string::String::from(why))]);
    let text = alloc::format!("rlaunch: {why}").into_bytes();
    assert_eq!(rig.others, [Action::Log { rank: Rank::new(0), text, help: None }], "the user reads it");
}
