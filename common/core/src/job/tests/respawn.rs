//! Processes that are started again for ranks whose own have ended: when, and which.

use super::rounds::{begun, fault, heard, ready};
use super::*;
use crate::restart::Respawn;
use crate::restart::fault::FaultKind;
use crate::rounds::Rounds;
use crate::spec::JobSpec;
use alloc::vec;

/// The processes that were asked for since the last look.
fn started(s: &mut Script) -> Vec<u32> {
    let procs = |msg: &ToNode| {
        let procs = if let ToNode::Spawn { procs, .. } = msg { Some(procs) } else { None };
        procs.into_iter().flat_map(|procs| procs.iter().map(|delta| delta.proc.get())).collect::<Vec<u32>>()
    };
    let all = s.sent.iter().flat_map(procs).collect();
    heard(s);
    all
}

/// A round can begin before its host has told how a rank has ended: what is said of that process has to be over before another has its
/// place.
#[test]
fn another_process_is_started_when_the_end_of_the_one_before_is_known() {
    let rounds = Rounds { respawn: Respawn::Now, ..Rounds::default() };
    let mut s = begun(&JobSpec { rounds, ..spec(3) });
    heard(&mut s);
    fault(&mut s, NODE, 0, 1, FaultKind::Exception);
    ready(&mut s, NODE, 0, &[0, 1]);
    assert_eq!(started(&mut s), vec![0; 0], "how rank 2 has ended is not known");
    s.wait(1).exits(2, killed(Signal::KILL), (1, 2));
    assert_eq!(started(&mut s), [5]);
}
