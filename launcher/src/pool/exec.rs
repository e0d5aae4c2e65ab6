//! `rlaunch pool exec`: a job with one rank on each host of a pool, whose results are printed in the order of slots.
//!
//! The job is an ordinary one. Its output goes to files without a name, and is printed at its end.

use super::client;
use crate::cli::{self, PoolExec};
use crate::print::{answer, fail, refuse, say};
use rlaunch_base::exit::Ending;
use rlaunch_protocol::stream::label::Prefix;
use rlaunch_protocol::wire::frozen::pool::{PoolReply, PoolRequest};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;

/// The files of a job's output. They have no names, so nothing is left of them however this process ends.
struct Capture([File; 3]);

impl Capture {
    fn new() -> io::Result<Self> {
        Ok(Self([unnamed()?, unnamed()?, unnamed()?]))
    }

    /// The words of the job.
    fn words(&self, plan: &PoolExec) -> Vec<OsString> {
        let mut words = plan.job_words();
        for (option, file) in ["-o", "-e", "--events"].into_iter().zip(&self.0) {
            words.extend([option.into(), format!("/proc/self/fd/{}", file.as_raw_fd()).into()]);
        }
        words.extend(["--prefix".into(), "%r\t".into()]);
        plan.with_command(words)
    }

    /// The content of standard output, standard error and the event log.
    fn texts(self) -> [String; 3] {
        self.0.map(|mut file| {
            let mut bytes = Vec::new();
            let _cut = file.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
}

/// A file without a name.
fn unnamed() -> io::Result<File> {
    let name: String = rlaunch_sys::random::bytes::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = std::env::temp_dir().join(format!("rlaunch-exec-{name}"));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// The lines of a stream, by ranks.
fn lines(text: &str) -> BTreeMap<u64, String> {
    let mut all: BTreeMap<u64, String> = BTreeMap::new();
    for line in text.split_inclusive('\n') {
        if let Some((rank, line)) = line.split_once('\t')
            && let Ok(rank) = rank.parse()
        {
            all.entry(rank).or_default().push_str(line);
        }
    }
    all
}

/// The result of a host.
struct Outcome {
    rank: u64,
    host: String,
    slice: String,
    code: Option<i64>,
    signal: Option<String>,
    /// In milliseconds.
    took: Option<u64>,
}

/// Runs a job by its words. For `pool exec` those are made here, and its results are printed, also if a signal has ended the job.
pub(crate) fn around(args: Vec<OsString>, launch: impl FnOnce(Vec<OsString>) -> Ending) -> Ending {
    if !cli::is_exec(&args) {
        return launch(args);
    }
    let plan = match cli::pool_exec(args) {
        Ok(Some(plan)) => plan,
        Ok(None) => return Ending::Code(answer(cli::pool_help().as_bytes())),
        Err(error) => return Ending::Code(refuse(&error)),
    };
    let slices = match client::request(&plan.name, &PoolRequest::Status) {
        Ok(PoolReply::Report(report)) => {
            report.hosts.into_iter().map(|host| (host.name.to_string(), host.slice.to_string())).collect()
        }
        Ok(_) => BTreeMap::new(),
        Err(error) => return Ending::Code(super::explain(&error)),
    };
    let capture = match Capture::new() {
        Ok(capture) => capture,
        Err(error) => {
            let dir = std::env::temp_dir();
            let why =
                format!("cannot make a file for the results in {}: {}", dir.display(), rlaunch_sys::reason(&error));
            return Ending::Code(fail(&format!("{why}\n  try     TMPDIR with another directory")));
        }
    };
    let ending = launch(capture.words(&plan));
    let [out, err, events] = capture.texts();
    let outcomes = outcomes(&events, &slices);
    let (out, err) = (lines(&out), lines(&err));
    let text = match plan.json {
        true => json_text(&outcomes, &out, &err, plan.by_slice),
        false => text(&outcomes, &out, plan.by_slice),
    };
    if !plan.json {
        say(&errors(&outcomes, &err));
    }
    let written = answer(text.as_bytes());
    if ending == Ending::Code(0) { Ending::Code(written) } else { ending }
}

/// The results in an event log, in the order of ranks, which is that of slots.
fn outcomes(events: &str, slices: &BTreeMap<String, String>) -> Vec<Outcome> {
    let mut hosts: Vec<String> = Vec::new();
    let mut found: BTreeMap<u64, (Outcome, u64)> = BTreeMap::new();
    for event in events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let number = |name: &str| event.get(name).and_then(Value::as_u64);
        let kind = event.get("ev").and_then(Value::as_str).unwrap_or_default();
        let (Some(time), rank) = (number("t"), number("rank")) else { continue };
        match (kind, rank) {
            ("job.start", _) => {
                let names = event.get("hosts").and_then(Value::as_array).into_iter().flatten();
                hosts = names.filter_map(|name| Some(name.as_str()?.to_owned())).collect();
            }
            ("rank.started", Some(rank)) => {
                let node = number("node").and_then(|node| usize::try_from(node).ok());
                let host = node.and_then(|node| hosts.get(node)).cloned().unwrap_or_default();
                let slice = slices.get(&host).cloned().unwrap_or_default();
                found.insert(rank, (Outcome { rank, host, slice, code: None, signal: None, took: None }, time));
            }
            ("rank.exited", Some(rank)) => {
                let Some((outcome, began)) = found.get_mut(&rank) else { continue };
                outcome.code = event.get("code").and_then(Value::as_i64);
                outcome.signal = event.get("signal").and_then(Value::as_str).map(str::to_owned);
                outcome.took = Some(time.saturating_sub(*began) / 1_000_000);
            }
            _ => {}
        }
    }
    found.into_values().map(|(outcome, _)| outcome).collect()
}

/// Labelled lines, as of `rlaunch -l`, host by host.
fn labelled(rank: u64, lines: &str) -> String {
    let label = Prefix::DEFAULT.replace("%r", &rank.to_string());
    lines.lines().map(|line| format!("{label}{line}\n")).collect()
}

fn text(outcomes: &[Outcome], out: &BTreeMap<u64, String>, by_slice: bool) -> String {
    let mut text = String::new();
    let mut slice = None;
    for outcome in outcomes {
        if by_slice && !outcome.slice.is_empty() && slice != Some(&outcome.slice) {
            slice = Some(&outcome.slice);
            text += &format!("slice {}\n", outcome.slice);
        }
        text += &labelled(outcome.rank, out.get(&outcome.rank).map_or("", String::as_str));
    }
    text
}

/// The lines of standard error, and hosts whose command failed.
fn errors(outcomes: &[Outcome], err: &BTreeMap<u64, String>) -> String {
    let lines = |outcome: &Outcome| labelled(outcome.rank, err.get(&outcome.rank).map_or("", String::as_str));
    let end = |outcome: &Outcome| match (&outcome.signal, outcome.code) {
        (Some(signal), _) => format!("{}: {signal}\n", outcome.host),
        (None, Some(0)) => String::new(),
        (None, Some(code)) => format!("{}: exit {code}\n", outcome.host),
        (None, None) => format!("{}: lost\n", outcome.host),
    };
    outcomes.iter().map(lines).chain(outcomes.iter().map(end)).collect()
}

fn json_text(outcomes: &[Outcome], out: &BTreeMap<u64, String>, err: &BTreeMap<u64, String>, by_slice: bool) -> String {
    let to_json = |outcome: &Outcome| {
        let Outcome { rank, host, slice, code, signal, took } = outcome;
        let [output, errors] = [out, err].map(|all| all.get(rank).cloned().unwrap_or_default());
        json!({ "rank": rank, "host": host, "slice": slice, "code": code, "signal": signal, "ms": took, "output": output, "errors": errors })
    };
    if !by_slice {
        return format!("{}\n", json!({ "results": outcomes.iter().map(to_json).collect::<Vec<_>>() }));
    }
    let mut slices: Vec<Value> = Vec::new();
    for group in outcomes.chunk_by(|a, b| a.slice == b.slice) {
        let name = group.first().map(|outcome| outcome.slice.clone());
        let results: Vec<Value> = group.iter().map(to_json).collect();
        slices.push(Value::from(Map::from_iter([
            ("slice".to_owned(), json!(name)),
            ("results".to_owned(), json!(results)),
        ])));
    }
    format!("{}\n", json!({ "slices": slices }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = r#"{"t":0,"ev":"job.start","hosts":["n0","n1"]}
{"t":1000000,"ev":"rank.started","rank":1,"node":1}
{"t":2000000,"ev":"rank.started","rank":0,"node":0}
{"t":5000000,"ev":"rank.exited","rank":1,"code":3}
{"t":5000000,"ev":"rank.exited","rank":0,"code":0}
"#;

    #[test]
    fn results_are_in_slot_order_flat_and_by_slice() {
        let slices = [("n0", "a"), ("n1", "b")].map(|(host, slice)| (host.to_owned(), slice.to_owned())).into();
        let all = outcomes(EVENTS, &slices);
        let out: BTreeMap<u64, String> = [(0, "x\ny\n".to_owned()), (1, "z\n".to_owned())].into();
        assert_eq!(text(&all, &out, false), "0: x\n0: y\n1: z\n");
        assert_eq!(text(&all, &out, true), "slice a\n0: x\n0: y\nslice b\n1: z\n");
        assert_eq!(errors(&all, &BTreeMap::new()), "n1: exit 3\n");
        let flat: Value = serde_json::from_str(&json_text(&all, &out, &BTreeMap::new(), false)).unwrap();
        let second = &flat["results"][1];
        assert_eq!((&second["host"], &second["code"], &second["ms"]), (&json!("n1"), &json!(3), &json!(4)));
        let sliced: Value = serde_json::from_str(&json_text(&all, &out, &BTreeMap::new(), true)).unwrap();
        assert_eq!(
            (&sliced["slices"][0]["slice"], &sliced["slices"][1]["results"][0]["rank"]),
            (&json!("a"), &json!(1))
        );
    }
}
