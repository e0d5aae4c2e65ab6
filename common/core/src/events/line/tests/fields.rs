//! Shapes of records that the frozen file does not have.

use super::*;
use crate::events::{RankInGroup, WorldLine};
use alloc::format;
use alloc::string::String;
use rlaunch_base::id::WorldId;
use rlaunch_base::rank_set::RankSet;
use rlaunch_plan::rank_assign::Misplaced;
use rlaunch_protocol::wire::to_root;
use rlaunch_restart::remark::{FaultLimit, Override, Unused};

/// The fields of a line after its time.
fn shown(what: What) -> String {
    let record = Record { t: Span::ZERO, wall: WallNs(0), generation: 3, round: None, what };
    let text = line(&record);
    let fields = text.strip_prefix(r#"{"v":1,"t":0,"wall":0,"ev":"#).and_then(|text| text.strip_suffix("}\n"));
    fields.unwrap_or_else(|| panic!("{text}")).into()
}

#[test]
fn each_remark_has_its_fields() {
    let (initial, faults, status) = (RANK, 5, Status::Exited(3));
    let limit = FaultLimit { most: 4, is_option: true };
    let ranks: RankSet = [3, 4, 7].map(Rank::new).into_iter().collect();
    let second = Span::from_nanos(9);
    let options = vec![
        Override::Policy { option: bytes("fill"), program: Some(bytes("shrink")) },
        Override::Policy { option: bytes("fill"), program: None },
        Override::Limit { name: "max-restarts", option: 1, program: 2 },
    ];
    let named = bytes("--spares 1");
    let all = [
        (
            Remark::Overrides { options },
            r#""overrides","options":[{"name":"policy","option":"fill","program":"shrink"},{"name":"policy","option":"fill","program":""},{"name":"max-restarts","option":1,"program":2}]"#,
        ),
        (
            Remark::OptionsUnused { options: named.clone(), when: Unused::Exited(RANK), ranks: 4 },
            r#""options_unused","options":"--spares 1","rank":2,"world_size":4"#,
        ),
        (
            Remark::OptionsUnused { options: named, when: Unused::Within(second), ranks: 4 },
            r#""options_unused","options":"--spares 1","within":9,"world_size":4"#,
        ),
        (
            Remark::FaultWindow { initial, kind: FaultKind::Ended(status), window: second },
            r#""fault_window","rank":2,"fault":"exit 3","window":9"#,
        ),
        (Remark::Ended { initial, reason: bytes("x") }, r#""rank_ended","rank":2,"reason":"x""#),
        (Remark::MoreEnded, r#""more_ranks_ended""#),
        (Remark::Paused { pause: second }, r#""paused","pause":9"#),
        (Remark::Repeats { initial, rounds: 6 }, r#""rank_repeats","rank":2,"rounds":6"#),
        (Remark::Excluded { initial, faults, limit }, r#""rank_excluded","rank":2,"faults":5,"limit":4,"option":true"#),
        (
            Remark::NotRestarted { initial, faults, limit },
            r#""rank_not_restarted","rank":2,"faults":5,"limit":4,"option":true"#,
        ),
        (Remark::StartsFailed { initial, tries: 3 }, r#""starts_failed","rank":2,"tries":3"#),
        (Remark::StartDelayed { initial, exits: 3, pause: second }, r#""start_delayed","rank":2,"exits":3,"pause":9"#),
        (Remark::ExitedEarly { initial, status }, r#""exited_early","rank":2,"code":3"#),
        (Remark::FailedEarly { initial, kind: FaultKind::Exception }, r#""failed_early","rank":2,"fault":"exception""#),
        (Remark::RegisteredLate { initial, within: second }, r#""registered_late","rank":2,"within":9"#),
        (Remark::Stuck { initial, host: bytes("n1") }, r#""process_stuck","rank":2,"host":"n1""#),
        (
            Remark::NoRoom { ranks: ranks.clone(), hosts: bytes("n1"), lacks_gpus: false },
            r#""no_room","ranks":[3,4,7],"hosts":"n1","lacks_gpus":false"#,
        ),
        (Remark::WaitsForRound { initial }, r#""rank_waits","rank":2"#),
        (Remark::Unusable { ranks, reason: bytes("x") }, r#""ranks_unusable","ranks":[3,4,7],"reason":"x""#),
        (Remark::Unchanged { reason: bytes("x") }, r#""unchanged","reason":"x""#),
        (Remark::KeepsWarned { reason: bytes("x") }, r#""keeps_warned","reason":"x""#),
        (
            Remark::Misplaced(Misplaced { first: RANK, place: Rank::new(4), count: 3, world: 8 }),
            r#""misplaced","rank":2,"becomes":4,"count":3,"world_size":8"#,
        ),
        (Remark::NoPort { host: bytes("n1") }, r#""no_port","host":"n1""#),
    ];
    for (remark, fields) in all {
        let what = What::Round { node: None, note: Box::new(RoundNote::Remark(remark)) };
        assert_eq!(shown(what), format!(r#""round.note","kind":{fields},"generation":3"#));
    }
}

#[test]
fn facts_of_groups_and_of_warned_hosts() {
    let started = What::RankStarted {
        rank: RANK,
        node: NODE,
        local_rank: LocalRank::new(1),
        group: Some(RankInGroup { group: bytes("gen"), rank: Rank::new(0) }),
        pid: 7,
        at: Span::from_nanos(3),
    };
    let world = WorldLine {
        world: WorldId::new(1),
        group: bytes("gen"),
        first: RANK,
        asker: None,
        apps: vec![],
        is_crowded: true,
        forgotten: RankSet::new(),
    };
    let warned = RestartCause::Failed {
        rank: RANK,
        node: NODE,
        status: Status::Exited(3),
        lost: Some(Lost::Warned(WarningSource::Probe)),
    };
    for (what, fields) in [
        (
            What::Clearing { why: warned, grace: Span::ZERO },
            r#""clearing","rank":2,"node":0,"lost":"warned","source":"probe","grace":0"#,
        ),
        (
            started,
            r#""rank.started","rank":2,"node":0,"local_rank":1,"group":"gen","group_rank":0,"pid":7,"at":3,"generation":3"#,
        ),
        (What::WorldStart(Box::new(world)), r#""world.start","world":1,"group":"gen","first":2,"rank":null,"apps":[]"#),
    ] {
        assert_eq!(shown(what), fields);
    }
}

#[test]
fn hosts_that_do_not_reach_each_other() {
    let tried = || Capped::chunks([to_root::Tried { at: bytes("n1:9"), errno: 113 }]).remove(0);
    let refused = |why| What::HostRefused { node: NODE, why };
    for (what, fields) in [
        (
            refused(NodeRefusal::NoInterface { name: bytes("ib0"), has: bytes("lo") }),
            r#""host.refused","node":0,"why":"no_interface","name":"ib0","has":"lo""#,
        ),
        (
            refused(NodeRefusal::NoWay { to: bytes("n1"), interface: bytes(""), tried: tried() }),
            r#""host.refused","node":0,"why":"no_way","to":"n1","interface":"","tried":[{"at":"n1:9","errno":113}]"#,
        ),
        (
            refused(NodeRefusal::Alone { interface: bytes(""), tried: tried() }),
            r#""host.refused","node":0,"why":"alone","interface":"","tried":[{"at":"n1:9","errno":113}]"#,
        ),
        (
            refused(NodeRefusal::DevicesUnknown { limit: Span::from_nanos(9) }),
            r#""host.refused","node":0,"why":"devices_unknown","waited":9"#,
        ),
        (
            What::JobEnd {
                cause: Cause::Lead { rank: RANK },
                exit: Ending::Code(0),
                left: None,
                launch: None,
                never_started: None,
            },
            r#""job.end","cause":{"kind":"lead","rank":2},"exit":0,"raise":null,"left":null,"launch":null,"never_started":null"#,
        ),
    ] {
        assert_eq!(shown(what), fields);
    }
}
