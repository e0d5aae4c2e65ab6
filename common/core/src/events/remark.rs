//! Remarks about rounds, as fields of an event.

use crate::id::Rank;
use crate::json::{Object, push_number};
use crate::os_bytes::OsBytes;
use crate::rank_assign::Misplaced;
use crate::rank_set::RankSet;
use crate::restart::remark::{FaultLimit, Override, Remark, Unused};
use crate::time::Span;
use alloc::string::{String, ToString as _};

/// `kind`, and what belongs to it.
pub(super) fn fields(o: &mut Object<'_>, remark: &Remark) {
    o.text("kind", kind(remark));
    match remark {
        Remark::Overrides { options } => o.array("options", options, push_override),
        Remark::OptionsUnused { options, when, ranks } => unused(o, options, *when, *ranks),
        Remark::FaultWindow { initial, kind, window } => {
            rank(o, *initial);
            o.text("fault", &kind.to_string());
            span(o, "window", *window);
        }
        Remark::Ended { initial, reason } => {
            rank(o, *initial);
            o.bytes("reason", reason);
        }
        Remark::MoreEnded => {}
        Remark::Paused { pause } => span(o, "pause", *pause),
        Remark::Repeats { initial, rounds } => counted(o, *initial, ("rounds", *rounds)),
        Remark::Excluded { initial, faults, limit } | Remark::NotRestarted { initial, faults, limit } => {
            limited(o, *initial, *faults, *limit);
        }
        Remark::StartsFailed { initial, tries } => counted(o, *initial, ("tries", *tries)),
        Remark::StartDelayed { initial, exits, pause } => {
            counted(o, *initial, ("exits", *exits));
            span(o, "pause", *pause);
        }
        Remark::ExitedEarly { initial, status } => {
            rank(o, *initial);
            super::json_line::status(o, *status);
        }
        Remark::FailedEarly { initial, kind } => {
            rank(o, *initial);
            o.text("fault", &kind.to_string());
        }
        Remark::RegisteredLate { initial, within } => {
            rank(o, *initial);
            span(o, "within", *within);
        }
        Remark::Stuck { initial, host } => {
            rank(o, *initial);
            o.bytes("host", host);
        }
        Remark::NoRoom { ranks, hosts, lacks_gpus } => {
            all(o, ranks);
            o.bytes("hosts", hosts);
            o.flag("lacks_gpus", *lacks_gpus);
        }
        Remark::WaitsForRound { initial } => rank(o, *initial),
        Remark::Unusable { ranks, reason } => {
            all(o, ranks);
            o.bytes("reason", reason);
        }
        Remark::Unchanged { reason } | Remark::KeepsWarned { reason } => o.bytes("reason", reason),
        Remark::Misplaced(misplaced) => renumbered(o, *misplaced),
        Remark::NoPort { host } => o.bytes("host", host),
    }
}

fn unused(o: &mut Object<'_>, options: &OsBytes, when: Unused, ranks: u32) {
    o.bytes("options", options);
    match when {
        Unused::Exited(initial) => rank(o, initial),
        Unused::Within(within) => span(o, "within", within),
    }
    o.number("world_size", ranks.into());
}

fn limited(o: &mut Object<'_>, initial: Rank, faults: u32, limit: FaultLimit) {
    counted(o, initial, ("faults", faults));
    o.number("limit", limit.most.into());
    o.flag("option", limit.is_option);
}

fn renumbered(o: &mut Object<'_>, misplaced: Misplaced) {
    let Misplaced { count, world, first, place } = misplaced;
    rank(o, first);
    o.number("becomes", place.get().into());
    o.number("count", count.into());
    o.number("world_size", world.into());
}

/// The name of a kind of remark.
const fn kind(remark: &Remark) -> &'static str {
    match remark {
        Remark::Overrides { .. } => "overrides",
        Remark::OptionsUnused { .. } => "options_unused",
        Remark::FaultWindow { .. } => "fault_window",
        Remark::Ended { .. } => "rank_ended",
        Remark::MoreEnded => "more_ranks_ended",
        Remark::Paused { .. } => "paused",
        Remark::Repeats { .. } => "rank_repeats",
        Remark::Excluded { .. } => "rank_excluded",
        Remark::NotRestarted { .. } => "rank_not_restarted",
        Remark::StartsFailed { .. } => "starts_failed",
        Remark::StartDelayed { .. } => "start_delayed",
        Remark::ExitedEarly { .. } => "exited_early",
        Remark::FailedEarly { .. } => "failed_early",
        Remark::RegisteredLate { .. } => "registered_late",
        Remark::Stuck { .. } => "process_stuck",
        Remark::NoRoom { .. } => "no_room",
        Remark::WaitsForRound { .. } => "rank_waits",
        Remark::Unusable { .. } => "ranks_unusable",
        Remark::Unchanged { .. } => "unchanged",
        Remark::KeepsWarned { .. } => "keeps_warned",
        Remark::Misplaced(_) => "misplaced",
        Remark::NoPort { .. } => "no_port",
    }
}

fn rank(o: &mut Object<'_>, rank: Rank) {
    o.number("rank", rank.get().into());
}

fn counted(o: &mut Object<'_>, initial: Rank, (name, count): (&str, u32)) {
    rank(o, initial);
    o.number(name, count.into());
}

fn span(o: &mut Object<'_>, name: &str, span: Span) {
    o.number(name, span.nanos());
}

fn all(o: &mut Object<'_>, ranks: &RankSet) {
    o.array("ranks", ranks.ranges().flat_map(|(first, last)| first..=last), push_number);
}

fn push_override(text: &mut String, option: &Override) {
    let mut o = Object::open(text);
    match option {
        Override::Policy { option, program } => {
            o.text("name", "policy");
            o.bytes("option", option);
            o.bytes("program", program.as_ref().unwrap_or(&OsBytes::default()));
        }
        Override::Limit { name, option, program } => {
            o.text("name", name);
            o.number("option", (*option).into());
            o.number("program", (*program).into());
        }
    }
    o.close();
}
