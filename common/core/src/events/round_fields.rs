//! Records about rounds, as lines.

use super::json_line::status;
use crate::json::{Object, push_number};
use crate::restart::rank_fault::{Fault, FaultKind};
use crate::restart::{RoundNote, RoundsEnd, Step};
use alloc::string::{String, ToString as _};

pub(super) fn round(o: &mut Object<'_>, note: &RoundNote) {
    match note {
        RoundNote::Began { round, faults, world_size, active_world_size, discarded, reserve, phases } => {
            o.text("ev", "round");
            o.number("round", round.get().into());
            o.array("faults", faults, push_fault);
            o.number("world_size", (*world_size).into());
            o.number("active_world_size", (*active_world_size).into());
            o.array("discarded", discarded.ranges().flat_map(|(first, last)| first..=last), push_number);
            for (name, phase) in ["decided", "drained", "assigned"].into_iter().zip(phases) {
                o.number(name, phase.nanos());
            }
            o.array("reserve", reserve.ranges().flat_map(|(first, last)| first..=last), push_number);
        }
        RoundNote::NoRoundNeeded { fault } => {
            o.text("ev", "round.spared");
            fields(o, fault);
        }
        RoundNote::Respawned { round, initial, pid } => {
            o.text("ev", "round.again");
            o.number("round", round.get().into());
            o.number("rank", initial.get().into());
            o.number("pid", (*pid).into());
        }
        RoundNote::Awaited { round, step, ranks } => {
            o.text("ev", "round.awaits");
            o.maybe("round", round.map(|round| round.get().into()));
            o.text(
                "for",
                match step {
                    Step::Register => "registration",
                    Step::Yield => "ping",
                    Step::Leave => "exit",
                },
            );
            o.array("ranks", ranks.ranges().flat_map(|(first, last)| first..=last), push_number);
        }
        RoundNote::Refused { text } => {
            o.text("ev", "round.refused");
            o.bytes("text", text);
        }
        RoundNote::Remark(remark) => {
            o.text("ev", "round.note");
            super::remark::fields(o, remark);
        }
    }
}

pub(super) fn over(o: &mut Object<'_>, given: &RoundsEnd) {
    o.text("ev", "rounds.over");
    match given {
        RoundsEnd::Done => o.text("how", "done"),
        RoundsEnd::Impossible { fault, reason } => {
            o.text("how", "given_up");
            o.object("fault", |o| fields(o, fault));
            o.text("text", &reason.to_string());
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
    o.text("kind", fault.kind.word());
    match fault.kind {
        FaultKind::Ended(how) | FaultKind::Overdue(how) => status(o, how),
        FaultKind::Exception
        | FaultKind::Hang
        | FaultKind::Left(_)
        | FaultKind::HostLost
        | FaultKind::Warned
        | FaultKind::Joined => {}
    }
    o.bytes("text", &fault.text);
}
