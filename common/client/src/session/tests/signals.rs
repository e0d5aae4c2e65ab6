//! The signals in a thread of the library's, as the program's own code finds them.

use super::{Options, SOON, inside, opened};
use nix::sys::signal::{SigSet, Signal};
use std::sync::mpsc::sync_channel;

#[test]
fn an_abort_hook_has_the_signals_of_who_has_registered() {
    let (sender, receiver) = sync_channel(1);
    let on_abort = Box::new(move |_: &_, _: &_| sender.send(SigSet::thread_get_mask().unwrap()).unwrap());
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGWINCH);
    blocked.thread_set_mask().unwrap();
    let (session, mut agent) = opened(Options { foreign: false, on_abort: Some(on_abort) });
    inside(&session, &mut agent, 0);
    agent.interrupts(0);
    let seen: SigSet = receiver.recv_timeout(SOON).unwrap();
    assert_eq!(seen.iter().collect::<Vec<_>>(), [Signal::SIGWINCH]);
    session.close();
}
