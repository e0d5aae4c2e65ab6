//! Records about rounds, as lines.

use super::json::{Object, push_number};
use super::line::status;
use crate::restart::fault::{Fault, FaultKind, Leave};
use crate::restart::{Given, RoundNote};
use alloc::string::String;

pub(super) fn round(o: &mut Object<'_>, note: &RoundNote) {
    match note {
        RoundNote::Began { round, faults, world_size, active_world_size, discarded, phases } => {
            o.text("ev", "round");
            o.number("round", round.get().into());
            o.array("faults", faults, push_fault);
            o.number("world_size", (*world_size).into());
            o.number("active_world_size", (*active_world_size).into());
            let sent_home = discarded.ranges().flat_map(|(first, last)| first..=last);
            o.array("discarded", sent_home, push_number);
            for (name, phase) in ["decided", "drained", "assigned"].into_iter().zip(phases) {
                o.number(name, phase.nanos());
            }
        }
        RoundNote::Spared { fault } => {
            o.text("ev", "round.spared");
            fields(o, fault);
        }
        RoundNote::Refused { text } => {
            o.text("ev", "round.refused");
            o.bytes("text", text);
        }
        RoundNote::Policy { text } => {
            o.text("ev", "round.note");
            o.bytes("text", text);
        }
    }
}

pub(super) fn over(o: &mut Object<'_>, given: &Given) {
    o.text("ev", "rounds.over");
    match given {
        Given::Done => o.text("how", "done"),
        Given::Up { fault, text } => {
            o.text("how", "given_up");
            o.object("fault", |o| fields(o, fault));
            o.bytes("text", text);
        }
    }
}

fn push_fault(text: &mut String, fault: &Fault) {
    let mut o = Object::open(text);
    fields(&mut o, fault);
    o.close();
}

fn fields(o: &mut Object<'_>, fault: &Fault) {
    o.number("rank", fault.initial.get().into());
    match fault.kind {
        FaultKind::Exception => o.text("kind", "exception"),
        FaultKind::Hang => o.text("kind", "hang"),
        FaultKind::Ended(how) => {
            o.text("kind", "ended");
            status(o, how);
        }
        FaultKind::Overdue(how) => {
            o.text("kind", "overdue");
            status(o, how);
        }
        FaultKind::Left(Leave::BaseException) => o.text("kind", "base_exception"),
        FaultKind::Left(Leave::Abort) => o.text("kind", "abort"),
        FaultKind::Left(Leave::Unhealthy) => o.text("kind", "unhealthy"),
        FaultKind::HostLost => o.text("kind", "host_lost"),
        FaultKind::Warned => o.text("kind", "warned"),
        FaultKind::Joined => o.text("kind", "joined"),
    }
    o.bytes("text", &fault.text);
}
