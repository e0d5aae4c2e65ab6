//! Pictures of jobs from lines of their event logs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

use rlaunch_core::timeline::{Bar, Builder, Entry, Fault, Finish, Head, HostFact, How, Phase, Room, Timeline};

const START: &str = r#"{"v":1,"t":0,"ev":"job.start","job":"ab","world_size":2,"apps":[{"procs":2,"argv":["./train"]}],"hosts":["a","b"]}"#;

fn entry(line: &str) -> Entry {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn timeline(lines: &[&str]) -> Timeline {
    let mut builder = Builder::default();
    [START].iter().chain(lines).for_each(|line| builder.add(entry(line)));
    builder.finish()
}

fn started(rank: u32, node: u32, at: u64) -> String {
    format!(r#"{{"v":1,"t":{at},"ev":"rank.started","rank":{rank},"node":{node},"pid":7,"at":{at}}}"#)
}

fn finishes(timeline: &Timeline, key: (u32, u32)) -> Vec<(u64, u64, Finish)> {
    let bars = timeline.rows.get(&key).map(|row| row.bars.as_slice()).unwrap_or_default();
    bars.iter().map(|bar| (bar.from, bar.to, bar.what.finish.clone())).collect()
}

#[test]
fn every_kept_record_is_read() {
    let golden = include_str!("../../../tests/golden/events/v1.ndjson");
    let mut builder = Builder::default();
    let mut shown = 0;
    for line in golden.lines() {
        let head: Head<'_> = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        if Entry::is_shown(&head.ev) {
            shown += 1;
            builder.add(entry(line));
        }
    }
    assert!(shown > 50, "{shown}");
    assert!(builder.finish().end.is_some());
}

#[test]
fn process_has_one_bar_until_it_exits() {
    let exit = |t, rank, end| format!(r#"{{"v":1,"t":{t},"ev":"rank.exited","rank":{rank},{end},"at":{t}}}"#);
    let timeline = timeline(&[
        &started(0, 0, 10),
        &started(1, 1, 20),
        &exit(50, 0, r#""code":3,"asked":false"#),
        &exit(70, 1, r#""signal":"SIGTERM","core":false,"asked":true"#),
        r#"{"v":1,"t":80,"ev":"job.end","cause":{"kind":"rank","rank":0,"code":3},"exit":3}"#,
    ]);
    let failed = How { code: Some(3), signal: None };
    assert_eq!(finishes(&timeline, (0, 0)), [(10, 50, Finish::Failed(failed.clone()))]);
    let term = How { code: None, signal: Some("SIGTERM".into()) };
    assert_eq!(finishes(&timeline, (1, 1)), [(20, 70, Finish::Stopped(term))]);
    assert_eq!(timeline.rows[&(0, 0)].marks[0].what, Fault::Failed(failed));
    let launch = &timeline.phases[0];
    assert_eq!((launch.from, launch.to, &launch.what), (0, 20, &Phase::Launch));
    assert_eq!(timeline.end.map(|end| (end.at, end.exit)), Some((80, 3)));
}

#[test]
fn ranks_of_a_lost_host_end_with_it() {
    let timeline = timeline(&[
        &started(0, 0, 10),
        &started(1, 1, 20),
        r#"{"v":1,"t":60,"ev":"host.lost","node":1,"lost":"unheard"}"#,
        r#"{"v":1,"t":61,"ev":"rank.exited","rank":1,"lost":true,"at":61,"asked":false}"#,
    ]);
    assert_eq!(finishes(&timeline, (1, 1)), [(20, 60, Finish::HostLost)]);
    assert_eq!(finishes(&timeline, (0, 0)), [(10, 61, Finish::Unknown)], "the log ends here");
    assert_eq!(timeline.host_marks[0].what, HostFact::Lost("unheard".into()));
    assert_eq!(timeline.end, None);
}

#[test]
fn round_begins_with_its_first_fault_and_changes_spares() {
    let timeline = timeline(&[
        &started(0, 0, 10),
        &started(1, 1, 20),
        r#"{"v":1,"t":30,"ev":"round","round":0,"faults":[],"world_size":2,"active_world_size":1,"reserve":[1]}"#,
        r#"{"v":1,"t":100,"ev":"round","round":1,"faults":[{"rank":0,"kind":"exception","text":"E: x"}],"world_size":2,"active_world_size":2,"decided":1,"drained":2,"assigned":3,"reserve":[]}"#,
        r#"{"v":1,"t":200,"ev":"job.end","cause":{"kind":"success"},"exit":0}"#,
    ]);
    let spares: Vec<(u64, u64, bool)> =
        timeline.rows[&(1, 1)].bars.iter().map(|bar| (bar.from, bar.to, bar.what.is_spare)).collect();
    assert_eq!(spares, [(20, 30, false), (30, 100, true), (100, 200, false)]);
    let round = timeline.phases.iter().find(|phase| matches!(phase.what, Phase::Round { .. })).unwrap();
    assert_eq!((round.from, round.to), (94, 100));
    let mark = &timeline.rows[&(0, 0)].marks[0];
    assert_eq!((mark.at, &mark.what), (94, &Fault::InRound { kind: "exception".into(), text: "E: x".into() }));
}

#[test]
fn generation_lasts_from_the_stop_to_the_last_start() {
    let timeline = timeline(&[
        &started(0, 0, 10),
        &started(1, 1, 20),
        r#"{"v":1,"t":40,"ev":"clearing","rank":1,"lost":"agent","why":"eof","grace":5}"#,
        r#"{"v":1,"t":50,"ev":"restart","generation":1,"rank":1,"node":1,"lost":"agent","why":"eof","lived":20,"delay":0}"#,
        r#"{"v":1,"t":51,"ev":"hosts.left_out","nodes":[1],"world_size":1,"procs":[1]}"#,
        &started(0, 0, 60),
    ]);
    let phase = timeline.phases.iter().find(|phase| matches!(phase.what, Phase::Generation { .. })).unwrap();
    assert_eq!((phase.from, phase.to), (40, 60));
    assert!(
        matches!(&phase.what, Phase::Generation { number: 1, node: Some(1), is_host_lost: true, left: Some(1), .. }),
        "{phase:?}"
    );
}

/// A job that restarts for weeks.
#[test]
fn long_log_needs_bounded_memory() {
    const ROUNDS: u64 = 300_000;
    let mut builder = Builder::new(Room::of(1_000));
    builder.add(entry(START));
    builder.add(entry(&started(0, 0, 1)));
    builder.add(entry(&started(1, 1, 1)));
    for n in 1..=ROUNDS {
        let spare = if n % 2 == 0 { "[1]" } else { "[]" };
        builder.add(entry(&format!(
            r#"{{"v":1,"t":{},"ev":"round","round":{n},"faults":[{{"rank":0,"kind":"hang","text":""}}],"world_size":2,"active_world_size":2,"decided":1000,"reserve":{spare}}}"#,
            n * 1_000_000
        )));
    }
    let timeline = builder.finish();
    let rows = || timeline.rows.values();
    let things = timeline.phases.len() + rows().map(|row| row.bars.len() + row.marks.len()).sum::<usize>();
    assert!(things < 1_100, "{things}");
    assert!(timeline.quantum > 0);
    let rounds: u64 = timeline.phases.iter().filter(|of| of.what != Phase::Launch).map(|of| u64::from(of.count)).sum();
    assert_eq!(rounds, ROUNDS, "none is lost");
    let bars: u64 = rows().flat_map(|row| &row.bars).map(|bar| u64::from(bar.count)).sum();
    assert!(bars >= ROUNDS, "{bars}");
    assert!(timeline.rows[&(1, 1)].bars.iter().all(|bar: &_| bar.to >= bar.from));
    let _shape: &Bar = &timeline.rows[&(0, 0)].bars[0].what;
}

#[test]
fn strange_numbers_do_no_harm() {
    let timeline = timeline(&[
        r#"{"v":1,"t":18446744073709551615,"ev":"rank.started","rank":4294967295,"node":4294967295,"at":5}"#,
        r#"{"v":1,"t":3,"ev":"round","faults":[{"kind":"hang"}],"decided":18446744073709551615,"drained":9}"#,
        r#"{"v":1,"t":4,"ev":"restart"}"#,
        r#"{"v":1,"t":5,"ev":"rank.exited"}"#,
        r#"{"v":1,"t":6,"ev":"job.end"}"#,
    ]);
    assert_eq!(timeline.last, u64::MAX);
}
