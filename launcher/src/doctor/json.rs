//! `rlaunch doctor --json`: the findings for programs.

use super::show::{Facts, Holder, Process, Slice, offset};
use super::{Finding, Saving};
use rlaunch_base::error::Hint as _;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_plan::bootstrap::Target;
use serde_json::{Map, Value, json};

/// A line: this machine, if it was examined, then the hosts in their order.
pub(super) fn text<'a>(
    own: Option<&OsBytes>,
    found: impl Iterator<Item = (&'a Target, (&'a Finding, Mono))>,
    saving: Option<&Saving>,
) -> String {
    let here = own.map(|line| json!({ "host": null, "ok": true, "facts": facts(line) }));
    let hosts: Vec<Value> = here.into_iter().chain(found.map(|(target, finding)| host(target, finding))).collect();
    let fast = saving.map(|Saving { host, without, with }| {
        json!({ "host": host, "seconds_without": seconds(*without), "seconds_with": seconds(*with) })
    });
    format!("{}\n", json!({ "hosts": hosts, "ssh_fast": fast }))
}

/// With nine decimals at most.
fn seconds(span: Span) -> Value {
    Value::from(span.duration().as_secs_f64())
}

fn host(target: &Target, (finding, began): (&Finding, Mono)) -> Value {
    let name = target.to_string();
    match finding {
        Finding::Good { up, at, facts: line } => {
            let (ahead, error) = offset(up);
            json!({
                "host": name,
                "ok": true,
                "ready_seconds": seconds(at.since(began)),
                "agent": { "place": up.place.to_string(), "was_sent": up.cold },
                "clock_ms": ahead,
                "clock_error_ms": error,
                "facts": facts(line),
            })
        }
        Finding::Failed(failure) => json!({
            "host": name,
            "ok": false,
            "error": failure.to_string(),
            "ssh": failure.words.to_string(),
            "try": failure.hint(),
        }),
        Finding::Ended { end, words } => {
            let how = end.map_or("it did not end when it was let go".to_owned(), |end| end.to_string());
            let error = format!("{name}: the agent started, and ended badly: {how}");
            json!({ "host": name, "ok": false, "error": error, "ssh": words.to_string(), "try": null })
        }
        Finding::Open | Finding::Up { .. } => json!({ "host": name, "ok": false }),
    }
}

/// Limits of a process, by their names in the facts.
const LIMITS: [&str; 5] = ["nofile", "nproc", "memlock", "stack", "core"];

/// Facts of an agent, with numbers as numbers. An agent of another build may have others, or fewer.
fn facts(line: &OsBytes) -> Value {
    let line = line.to_string();
    let facts = Facts(&line);
    let mut all = Map::new();
    let mut put = |name: &str, value: Option<Value>| value.map(|value| all.insert(name.to_owned(), value));
    let number = |word: &str| word.parse::<u64>().map_or(Value::Null, Value::from);
    let pair = |name: &str, keys: [&str; 2]| {
        let (first, second) = facts.value(name)?.split_once('/')?;
        Some(Value::from(Map::from_iter(keys.map(str::to_owned).into_iter().zip([first, second].map(number)))))
    };
    for name in ["cpus", "gpus"] {
        put(name, facts.value(name).map(number));
    }
    for name in ["memory", "swap"] {
        put(name, pair(name, ["free_bytes", "all_bytes"]));
    }
    let loads = facts.value("load").map(|value| value.split('/').filter_map(|load| load.parse::<f64>().ok()).collect());
    put("load", loads);
    put("containment", facts.value("tier").map(Value::from));
    let limits = LIMITS.into_iter().filter_map(|name| Some((name.to_owned(), pair(name, ["soft", "hard"])?)));
    put("limits", Some(Value::from(limits.collect::<Map<_, _>>())));
    let names = |value: &str| value.split(',').filter(|name| !name.is_empty()).map(Value::from).collect();
    put("noexec", facts.value("noexec").map(names));
    let tpu = facts.value("chips").and_then(|value| value.split_once('/'));
    put("tpu_chips", tpu.map(|(count, _)| number(count)));
    put("tpu_type", tpu.filter(|(_, of)| !of.is_empty()).map(|(_, of)| Value::from(of.replace('_', " "))));
    put("tpu_lock", facts.value("lock").map(|lock| Value::from(lock.replace('_', " "))));
    let slice = facts
        .slice()
        .map(|Slice { name, worker, hosts }| json!({ "name": name, "worker": number(worker), "hosts": number(hosts) }));
    put("tpu_slice", slice);
    put("held", Some(facts.holders().map(|held| holder(&held)).collect()));
    Value::from(all)
}

fn holder(Holder { devices, process }: &Holder<'_>) -> Value {
    let number = |word: &str| word.parse::<u64>().ok();
    let process = process.as_ref().map(|Process { pid, user, memory, seconds, command }| {
        json!({
            "pid": number(pid), "user": user, "command": command,
            "memory_bytes": number(memory), "seconds": number(seconds),
        })
    });
    json!({ "devices": devices, "process": process })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_for_programs() {
        let line = OsBytes::from(
            "cpus=2 gpus=? memory=3/4 swap=0/0 load=0.50/0.25/0.10 tier=T1 nofile=1024/- noexec=/tmp,/dev/shm chips=4/v5e \
             lock=locked_by_7 slice=a_b/1/4 holder=/dev/vfio/0:7:alice:1024:60:python3_a.py holder=/dev/vfio/5:?:?:?",
        );
        let expected = json!({
            "cpus": 2, "gpus": null, "memory": { "free_bytes": 3, "all_bytes": 4 },
            "swap": { "free_bytes": 0, "all_bytes": 0 }, "load": [0.5, 0.25, 0.1], "containment": "T1",
            "limits": { "nofile": { "soft": 1024, "hard": null } }, "noexec": ["/tmp", "/dev/shm"], "tpu_chips": 4,
            "tpu_type": "v5e", "tpu_lock": "locked by 7", "tpu_slice": { "name": "a_b", "worker": 1, "hosts": 4 },
            "held": [
                { "devices": "/dev/vfio/0", "process": {
                    "pid": 7, "user": "alice", "command": "python3_a.py", "memory_bytes": 1024, "seconds": 60,
                } },
                { "devices": "/dev/vfio/5", "process": null },
            ],
        });
        assert_eq!(facts(&line), expected);
        assert_eq!(facts(&OsBytes::default()), json!({ "limits": {}, "held": [] }), "an agent of another build");
        let own = text(Some(&line), std::iter::empty(), None);
        assert!(own.starts_with("{\"hosts\":[{\"facts\":{") && own.ends_with("\n"), "{own}");
    }
}
