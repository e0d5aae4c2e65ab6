//! Help messages of Open MPI are shown once.

use super::{Action, HelpName, Rig, hello, host, world};
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_base::time::Mono;
use rlaunch_keyvalue::store::Answer;
use rlaunch_protocol::wire::frozen::client::write_reply;
use rlaunch_protocol::wire::node_news::MpiNews;

const HELP: &[u8] = include_bytes!("../../../../tests/golden/mpi/openmpi-4.1.4.help");

fn come(rig: &mut Rig) -> Vec<ClientId> {
    let come = |rank| {
        let client = rig.mpi.open();
        rig.send(client, &hello(rank));
        client
    };
    let clients = (0..2).map(come).collect();
    rig.written.clear();
    clients
}

/// Rank 1 of a world on two hosts has sent a message, and the store was asked.
fn asked() -> (Rig, u64) {
    let mut layout = world(2);
    layout.hosts.push(host("other", &[(2, 3)]));
    let mut rig = Rig::new(layout);
    let clients = come(&mut rig);
    rig.send(clients[1], HELP);
    let [(seq, _)] = rig.asked[..] else { panic!("asked once") };
    (rig, seq)
}

fn repeated(count: u32) -> Vec<MpiNews> {
    vec![MpiNews::Help { count, file: "help-mca-base.txt".into(), topic: "find-available:not-valid".into() }]
}

/// The ranks whose message was shown.
fn shown(rig: &Rig) -> Vec<u32> {
    let rank = |action: &Action| {
        let Action::Log { rank, text, .. } = action else { panic!("{action:?}") };
        assert!(text.starts_with(b"-----"), "{action:?}");
        rank.get()
    };
    rig.others.iter().map(rank).collect()
}

#[test]
fn help_message_of_two_ranks_is_shown_once_and_counted() {
    let mut rig = Rig::new(world(2));
    for client in come(&mut rig) {
        rig.send(client, HELP);
        assert!(rig.written.remove(&client).is_some(), "the rank waits for an answer");
    }
    assert_eq!(shown(&rig), [0]);
    assert_eq!(rig.mpi.repeated_help(), repeated(1));
    assert_eq!(rig.mpi.repeated_help(), []);
}

#[test]
fn help_message_of_two_hosts_is_shown_by_the_first_one() {
    for (number, all) in [(1, vec![0]), (2, vec![])] {
        let mut layout = world(2);
        layout.hosts.push(host("other", &[(2, 3)]));
        layout.apps = vec![4];
        let mut rig = Rig::new(layout);
        let clients = come(&mut rig);
        for client in &clients {
            rig.send(*client, HELP);
        }
        assert!(rig.others.is_empty() && rig.written.remove(&clients[0]).is_none(), "the store is asked first");
        let [(seq, _)] = rig.asked[..] else { panic!("asked once") };
        rig.mpi.answered(Mono::from_nanos(2), seq, &write_reply(&Answer::Number(number)));
        rig.drain();
        assert_eq!(shown(&rig), all);
        assert!(rig.written.remove(&clients[0]).is_some());
        assert_eq!(rig.mpi.repeated_help(), repeated(u32::try_from(number).unwrap()));
    }
}

fn name() -> HelpName {
    (b"help-mca-base.txt".to_vec(), b"find-available:not-valid".to_vec())
}

/// The first rank has closed its stderr, or it is full.
#[test]
fn help_message_is_shown_for_the_next_rank_if_it_cannot_be_written() {
    let mut rig = Rig::new(world(3));
    let clients = [0, 1, 2].map(|rank| {
        let client = rig.mpi.open();
        rig.send(client, &hello(rank));
        client
    });
    for (client, is_written) in clients.into_iter().zip([false, true, true]) {
        rig.send(client, HELP);
        rig.mpi.help_written(&name(), is_written);
    }
    rig.drain();
    assert_eq!(shown(&rig), [0, 1]);
    assert!(matches!(&rig.others[0], Action::Log { help: Some(of), .. } if *of == name()));
    assert_eq!(rig.mpi.repeated_help(), repeated(1));
}

/// The second rank has got its answer before the store says that this host shows the message.
#[test]
fn help_message_is_shown_for_another_rank_of_the_host_that_is_to_show_it() {
    for (is_written, all) in [(false, vec![0, 1]), (true, vec![0])] {
        let mut layout = world(2);
        layout.hosts.push(host("other", &[(2, 3)]));
        let mut rig = Rig::new(layout);
        for client in come(&mut rig) {
            rig.send(client, HELP);
        }
        let [(seq, _)] = rig.asked[..] else { panic!("asked once") };
        rig.mpi.answered(Mono::from_nanos(2), seq, &write_reply(&Answer::Number(1)));
        rig.mpi.help_written(&name(), is_written);
        rig.mpi.help_written(&name(), true);
        rig.drain();
        assert_eq!(shown(&rig), all);
        assert_eq!(rig.mpi.repeated_help(), if is_written { repeated(1) } else { vec![] });
    }
}

#[test]
fn help_message_is_shown_if_the_store_is_gone() {
    let (mut rig, seq) = asked();
    rig.mpi.answered(Mono::from_nanos(2), seq, &write_reply(&Answer::Refused(rlaunch_keyvalue::store::Refusal::Gone)));
    rig.drain();
    assert_eq!(rig.others.len(), 1);
    assert!(matches!(rig.others[0], Action::Log { rank, .. } if rank == Rank::new(1)));
}

/// Open MPI 5 exits without waiting for the answer.
#[test]
fn help_message_is_shown_if_the_rank_ends_before_the_store_answers() {
    let (mut rig, seq) = asked();
    for (rank, all) in [(0, vec![]), (1, vec![1])] {
        rig.mpi.show_last(Mono::from_nanos(2), Rank::new(rank));
        rig.drain();
        assert_eq!(shown(&rig), all);
    }
    rig.mpi.answered(Mono::from_nanos(3), seq, &write_reply(&Answer::Number(1)));
    rig.drain();
    assert_eq!(shown(&rig), [1], "it was shown");
}
