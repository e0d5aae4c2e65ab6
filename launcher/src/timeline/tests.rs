//! Pictures and summaries of logs in tests/golden/timeline. RLAUNCH_BLESS=1 writes them anew.

use super::{chrome, svg};
use crate::view::timeline::summary;
use rlaunch_core::timeline::{Builder, Entry, Head, Timeline};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/timeline").join(name)
}

fn golden(name: &str, text: &str) {
    if std::env::var_os("RLAUNCH_BLESS").is_some() {
        fs::write(path(name), text).unwrap();
    }
    let kept = fs::read_to_string(path(name)).unwrap_or_default();
    assert!(text == kept, "tests/golden/timeline/{name}: RLAUNCH_BLESS=1 cargo test -p rlaunch writes it anew");
}

fn read(text: &str) -> Timeline {
    let mut builder = Builder::default();
    for line in text.lines() {
        let head: Head<'_> = serde_json::from_str(line).unwrap();
        if Entry::is_shown(&head.ev) {
            builder.add(serde_json::from_str(line).unwrap());
        }
    }
    builder.finish()
}

#[test]
fn pictures_of_kept_logs() {
    for name in ["plain", "failure", "rounds", "generations", "lost_host"] {
        let timeline = read(&fs::read_to_string(path(&format!("{name}.ndjson"))).unwrap());
        golden(&format!("{name}.svg"), &svg::text(&timeline));
        golden(&format!("{name}.json"), &chrome::text(&timeline));
        golden(&format!("{name}.txt"), &summary::text(&timeline));
    }
}

/// As in the line that is printed while the job runs.
#[test]
fn restart_for_rejoining_ranks_is_not_named_after_the_rank_that_left() {
    let mut log =
        String::from("{\"v\":1,\"t\":0,\"ev\":\"job.start\",\"world_size\":4,\"hosts\":[\"a\"],\"apps\":[]}\n");
    let joined = |rank: u32| format!("{{\"rank\":{rank},\"kind\":\"joined\",\"text\":\"\"}}");
    let failed = "{\"rank\":2,\"kind\":\"exception\",\"text\":\"closed\"}";
    writeln!(
        log,
        "{{\"v\":1,\"t\":5000000,\"ev\":\"round\",\"round\":2,\"faults\":[{},{failed},{}],\"world_size\":4,\
         \"active_world_size\":4,\"decided\":0,\"drained\":1000000,\"assigned\":0,\"generation\":0}}",
        joined(1),
        joined(3)
    )
    .unwrap();
    let text = summary::text(&read(&log));
    assert!(text.contains("restart 2: rank 1 has rejoined and 1 more rank; continued with 4 ranks"), "{text}");
}

/// Job of so many ranks on so many hosts, of which one fails.
fn large(ranks: u32, hosts: u32) -> Timeline {
    let names: Vec<String> = (0..hosts).map(|n| format!("\"node{n:04}\"")).collect();
    let mut log = format!(
        "{{\"v\":1,\"t\":0,\"ev\":\"job.start\",\"world_size\":{ranks},\"hosts\":[{}],\"apps\":[{{\"argv\":[\"./train\"]}}]}}\n",
        names.join(",")
    );
    for rank in 0..ranks {
        let (node, at) = (rank * hosts / ranks, 1_000_000 + u64::from(rank) * 10_000);
        writeln!(log, "{{\"v\":1,\"t\":{at},\"ev\":\"rank.started\",\"rank\":{rank},\"node\":{node},\"at\":{at}}}")
            .unwrap();
    }
    for rank in 0..ranks {
        let (code, t) = if rank == 7 { (3, 90_000_000) } else { (0, 99_000_000) };
        writeln!(log, "{{\"v\":1,\"t\":{t},\"ev\":\"rank.exited\",\"rank\":{rank},\"code\":{code},\"at\":{t}}}")
            .unwrap();
    }
    log.push_str("{\"v\":1,\"t\":100000000,\"ev\":\"job.end\",\"cause\":{\"kind\":\"success\"},\"exit\":0}\n");
    read(&log)
}

/// Height of a picture.
fn height(svg: &str) -> f64 {
    let (_, rest) = svg.split_once(" height=\"").unwrap();
    rest.split('"').next().unwrap().parse().unwrap()
}

#[test]
fn picture_stays_small_with_many_ranks() {
    for (ranks, hosts) in [(1, 1), (8, 1), (100, 1), (1_000, 8), (1_000, 125), (1_000, 1_000), (60_000, 7_500)] {
        let picture = svg::text(&large(ranks, hosts));
        assert!(height(&picture) < 1_200.0, "{ranks} ranks on {hosts} hosts: {}", height(&picture));
        assert!(picture.len() < 2_000_000, "{ranks} ranks on {hosts} hosts: {} bytes", picture.len());
        assert_eq!(ranks > 7, picture.contains("rank 7 failed (exit code 3)"), "{ranks} ranks on {hosts} hosts");
    }
}

#[test]
fn words_of_the_job_cannot_break_the_picture() {
    let mut timeline = large(1, 1);
    timeline.hosts = vec!["a<b&\"c\u{1b}[2J".into()];
    timeline.programs[0].argv = vec!["</text><script>".into(), "\u{0}\u{fffe}".into()];
    let picture = svg::text(&timeline);
    assert!(
        !picture.contains("<script>") && picture.contains("&lt;script&gt;") && picture.contains("a&lt;b&amp;&quot;c")
    );
    assert!(!picture.contains(['\u{1b}', '\u{0}', '\u{fffe}']));
    serde_json::from_str::<serde_json::Value>(&chrome::text(&timeline)).unwrap();
}

/// A log of nothing but its first record.
#[test]
fn job_without_time_has_a_picture() {
    let mut timeline = read("{\"v\":1,\"t\":0,\"ev\":\"job.start\",\"world_size\":2,\"hosts\":[\"a\"]}");
    assert!(svg::text(&timeline).contains("the log ends before the job does"));
    timeline.last = u64::MAX;
    let picture = svg::text(&timeline);
    assert!(picture.len() < 10_000 && !picture.contains("NaN") && !picture.contains("inf"), "{picture}");
}
