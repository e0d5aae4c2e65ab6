//! The picture in the trace format of Chrome, which Perfetto shows: hosts are processes, ranks are threads.

use crate::view::timeline::words;
use rlaunch_core::timeline::{Bar, Phase, Row, RowKey, Stretch, Timeline};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Microseconds, the unit of the format.
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1_000.0
}

/// The text of the file.
pub(crate) fn text(timeline: &Timeline) -> String {
    let mut text = String::from("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    let mut is_first = true;
    let mut push = |event: Value| {
        if !std::mem::replace(&mut is_first, false) {
            text.push_str(",\n");
        }
        text.push_str(&event.to_string());
    };
    push(named(0, None, &format!("job: {}", words::command(timeline))));
    timeline.phases.iter().for_each(|stretch| phase(timeline, stretch, &mut push));
    for of in &timeline.host_marks {
        let what = format!("{} {}", words::host(timeline, of.node), words::host_fact(&of.what));
        push(json!({"name": what, "ph": "i", "s": "g", "ts": micros(of.at), "pid": 0, "tid": 0}));
    }
    let nodes: BTreeSet<u32> = timeline.rows.keys().map(|(node, _)| *node).collect();
    nodes.into_iter().for_each(|node| push(named(host(node), None, &words::host(timeline, node))));
    timeline.rows.iter().for_each(|(key, of)| row(*key, of, &mut push));
    let at = timeline.end.as_ref().map_or(timeline.last, |end| end.at);
    push(json!({"name": words::end(timeline), "ph": "i", "s": "g", "ts": micros(at), "pid": 0, "tid": 0}));
    text.push_str("\n],\"otherData\":");
    text.push_str(&json!({"job": timeline.job, "notes": words::gaps(timeline)}).to_string());
    text.push_str("}\n");
    text
}

/// Number of a host: 0 is the job's.
const fn host(node: u32) -> u64 {
    node as u64 + 1
}

fn named(pid: u64, tid: Option<u32>, name: &str) -> Value {
    let of = if tid.is_some() { "thread_name" } else { "process_name" };
    json!({"name": of, "ph": "M", "pid": pid, "tid": tid.unwrap_or(0), "args": {"name": name}})
}

fn stretch<T>(of: &Stretch<T>, name: &str, (pid, tid): (u64, u32), args: &Value) -> Value {
    let dur = micros(of.to.saturating_sub(of.from));
    json!({"name": name, "ph": "X", "ts": micros(of.from), "dur": dur, "pid": pid, "tid": tid, "args": args})
}

fn phase(timeline: &Timeline, of: &Stretch<Phase>, push: &mut impl FnMut(Value)) {
    let what = words::phase(timeline, of);
    push(stretch(of, &words::name(of), (0, 0), &json!({"what": what, "count": of.count})));
}

fn row((node, rank): RowKey, row: &Row, push: &mut impl FnMut(Value)) {
    let place = (host(node), rank);
    push(named(place.0, Some(rank), &format!("rank {rank}")));
    for of in &row.bars {
        let Bar { pid, is_spare, finish } = &of.what;
        let name = if *is_spare { format!("rank {rank}, spare") } else { format!("rank {rank}") };
        let args = json!({"pid": pid, "end": words::finish(finish), "count": of.count});
        push(stretch(of, &name, place, &args));
    }
    for mark in &row.marks {
        let (name, at) = (format!("rank {rank} {}", words::mark(&mark.what)), micros(mark.at));
        let args = json!({"count": mark.count});
        push(json!({"name": name, "ph": "i", "s": "t", "ts": at, "pid": place.0, "tid": rank, "args": args}));
    }
}
