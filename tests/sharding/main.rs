//! Compares the dispatch of worker groups with recorded results of NeMo-RL's own code (`named_sharding.json`).
//!
//! `RLAUNCH_SHARDING_VECTORS=FILE` compares another file of the kind. A program and no list of tests: it prints how much it compared.
#![allow(clippy::print_stdout, reason = "prints its result")]

use rlaunch_plan::dispatch::workers::{Request, RequestError, Worker, WorkersPerNode};
use rlaunch_plan::dispatch::{self, DispatchError, Plan, Sharded, Share};
use rlaunch_plan::sharding::{NamedSharding, Selected, ShardingError};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/vectors/named_sharding.json");
    let file = std::env::var_os("RLAUNCH_SHARDING_VECTORS").map_or(golden, PathBuf::from);
    match compare(&file) {
        Ok((compared, failed)) => {
            println!("{}: {compared} scenarios compared; failed: {}", file.display(), failed.len());
            failed.iter().take(20).for_each(|failure| println!("  {failure}"));
            if failed.is_empty() && compared > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(why) => {
            println!("{}: {why}", file.display());
            ExitCode::FAILURE
        }
    }
}

fn compare(file: &Path) -> Result<(usize, Vec<String>), String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let all: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let scenarios = all["scenarios"].as_array().ok_or("no scenarios")?;
    let failed = scenarios.iter().filter_map(|scenario| {
        let expected = &scenario["expect"];
        let got = match play(scenario) {
            Ok(got) => got,
            Err(why) => return Some(format!("{}: {why}", scenario["id"])),
        };
        let keys = expected.as_object().into_iter().flatten();
        // No worker is called before an error: that is what differs from upstream.
        let mut wrong = keys.filter(|(key, value)| *key != "calls_before_error" && !is_same(&got[key.as_str()], value));
        wrong.next().map(|(key, value)| format!("{}: {key}: expected {value}, got {}", scenario["id"], got[key]))
    });
    let failed: Vec<String> = failed.collect();
    Ok((scenarios.len(), failed))
}

/// Whether two values are equal: 1 and 1.0 are.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| is_same(a, b)))
        }
        _ => a == b,
    }
}

/// The result of a scenario in the form of the vectors. An outer error is an error of the file.
fn play(scenario: &Value) -> Result<Value, String> {
    if scenario["kind"] == "worker_group" {
        return worker_group(scenario);
    }
    let sharding = match scenario.get("layout").map(|layout| sharding(layout, &scenario["names"])) {
        None => None,
        Some(Ok(sharding)) => Some(sharding),
        Some(Err(error)) => return Ok(json!({ "error": error.class().name(), "message": error.to_string() })),
    };
    let outcome = match scenario["kind"].as_str().unwrap_or_default() {
        "sharded" => sharded(scenario, sharding.as_ref()).map_err(described),
        "single_data" => single_data(scenario, sharding.as_ref()).map_err(described),
        "multiple_data" => multiple_data(scenario, sharding.as_ref()).map_err(described),
        "named_sharding" => {
            let sharding = sharding.ok_or("no layout")?;
            query(&scenario["query"], &sharding)
                .map(|ok| json!({ "ok": ok }))
                .map_err(|error| json!({ "error": error.class().name(), "message": error.to_string() }))
        }
        kind => return Err(format!("no such kind: {kind:?}")),
    };
    Ok(outcome.unwrap_or_else(|error| error))
}

fn described(error: DispatchError) -> Value {
    json!({ "error": error.class().name(), "message": error.to_string() })
}

/// Sizes and ranks of nested lists.
fn flat(layout: &Value, depth: usize, sizes: &mut Vec<usize>, ranks: &mut Vec<i64>) {
    match layout.as_array() {
        Some(all) => {
            if sizes.len() == depth {
                sizes.push(all.len());
            }
            all.iter().for_each(|part| flat(part, depth + 1, sizes, ranks));
        }
        None => ranks.push(number(layout)),
    }
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(i64::MIN)
}

fn size(value: &Value) -> usize {
    value.as_u64().and_then(|size| usize::try_from(size).ok()).unwrap_or_default()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn sharding(layout: &Value, names: &Value) -> Result<NamedSharding, ShardingError> {
    let (mut sizes, mut ranks) = (Vec::new(), Vec::new());
    flat(layout, 0, &mut sizes, &mut ranks);
    NamedSharding::new(sizes, ranks, texts(names).into_iter().map(String::from).collect())
}

/// Nested lists of a layout.
fn nested(sizes: &[usize], ranks: &[i64]) -> Value {
    match sizes.split_first() {
        None => ranks.first().map_or(Value::Null, |rank| json!(rank)),
        Some((first, rest)) => {
            let width = ranks.len() / (*first).max(1);
            Value::Array(ranks.chunks(width.max(1)).map(|part| nested(rest, part)).collect())
        }
    }
}

fn query(query: &Value, sharding: &NamedSharding) -> Result<Value, ShardingError> {
    let coords = |value: &Value| -> Vec<(String, i64)> {
        value.as_object().into_iter().flatten().map(|(name, at)| (name.clone(), number(at))).collect()
    };
    let named = coords(&query[1]);
    let named: Vec<(&str, i64)> = named.iter().map(|(name, at)| (name.as_str(), *at)).collect();
    let with_names = |values: Vec<usize>| -> Value {
        let named = sharding.names().iter().zip(values).map(|(name, value)| (name.clone(), json!(value)));
        Value::Object(named.collect::<Map<_, _>>())
    };
    Ok(match query[0].as_str().unwrap_or_default() {
        "shape" => with_names(sharding.sizes().to_vec()),
        "coords" => with_names(sharding.coords(number(&query[1]))?.collect()),
        "by_coord" => json!(sharding.ranks_by_coord(&named)?),
        "axis_zero" => json!(sharding.is_axis_zero(number(&query[1]), &texts(&query[2]))?),
        "get_ranks" => match sharding.select(&named)? {
            Selected::Rank(rank) => json!(rank),
            Selected::Part(part) => json!({ "layout": nested(part.sizes(), part.ranks()), "names": part.names() }),
        },
        other => json!(format!("no such query: {other}")),
    })
}

fn calls(plan: &Plan) -> Vec<Value> {
    let share = |share: &Share| match share {
        Share::Slice(at) => json!(at),
        Share::Dummy => Value::Null,
    };
    plan.calls.iter().map(|call| json!([call.worker, share(&call.share)])).collect()
}

fn called(plan: &Plan) -> Vec<usize> {
    plan.calls.iter().map(|call| call.worker).collect()
}

fn sharded(scenario: &Value, sharding: Option<&NamedSharding>) -> Result<Value, DispatchError> {
    let opts = &scenario["opts"];
    let (split, same, once) =
        (texts(&opts["in_sharded_axes"]), texts(&opts["replicate_on_axes"]), texts(&opts["output_is_replicated"]));
    let data: Vec<usize> = scenario["data_dims"].as_array().into_iter().flatten().map(size).collect();
    let options = Sharded {
        in_sharded_axes: &split,
        replicate_on_axes: &same,
        output_is_replicated: &once,
        dummy_calls: opts["make_dummy_calls_to_free_axes"] == true,
        data: Some(&data),
    };
    let plan = options.plan(sharding, size(&scenario["num_workers"]))?;
    let called = called(&plan);
    let returned: Vec<usize> = plan.returned().into_iter().filter_map(|at| called.get(at).copied()).collect();
    let results = if scenario["generators"] == true {
        // A generator anywhere: all that was yielded, in order of the calls.
        json!(called.iter().flat_map(|worker| [json!([worker, 0]), json!([worker, 1])]).collect::<Vec<_>>())
    } else {
        json!(returned)
    };
    Ok(json!({
        "calls": calls(&plan), "called_workers": called, "return_from_workers": plan.return_from,
        "results": results, "proxies": returned,
    }))
}

fn single_data(scenario: &Value, sharding: Option<&NamedSharding>) -> Result<Value, DispatchError> {
    let only = texts(&scenario["opts"]["run_rank_0_only_axes"]);
    let plan = dispatch::single_data(sharding, size(&scenario["num_workers"]), &only)?;
    Ok(json!({ "called_workers": called(&plan) }))
}

fn multiple_data(scenario: &Value, sharding: Option<&NamedSharding>) -> Result<Value, DispatchError> {
    let only = scenario["opts"].get("run_rank_0_only_axes").filter(|axes| !axes.is_null()).map(texts);
    let (workers, data) = (size(&scenario["num_workers"]), size(&scenario["data_len"]));
    let plan = dispatch::multiple_data(sharding, workers, only.as_deref(), data)?;
    let value = |share: &Share| match share {
        Share::Slice(at) => json!(at.first()),
        Share::Dummy => Value::Null,
    };
    let calls: Vec<Value> = plan.calls.iter().map(|call| json!([call.worker, value(&call.share)])).collect();
    Ok(json!({ "calls": calls }))
}

fn request(scenario: &Value) -> Result<Request, RequestError> {
    let sizes = |value: &Value| -> Vec<usize> { value.as_array().into_iter().flatten().map(size).collect() };
    let per_node = match &scenario["workers_per_node"] {
        Value::Null => WorkersPerNode::All,
        Value::Number(_) => WorkersPerNode::Each(size(&scenario["workers_per_node"])),
        Value::Array(_) => WorkersPerNode::Listed(sizes(&scenario["workers_per_node"])),
        Value::Bool(_) | Value::String(_) | Value::Object(_) => return Err(RequestError::Kind),
    };
    let tied = scenario["bundle_indices_list"]
        .as_array()
        .map(|groups| groups.iter().map(|group| (size(&group[0]), sizes(&group[1]))).collect());
    Ok(Request { slots: sizes(&scenario["bundles_per_pg"]), workers_per_node: per_node, tied, name_prefix: "w".into() })
}

fn worker_group(scenario: &Value) -> Result<Value, String> {
    let workers = match request(scenario).and_then(|request| request.workers()) {
        Ok(workers) => workers,
        Err(error) => return Ok(json!({ "error": error.class().name(), "message": error.to_string() })),
    };
    let colocated = scenario["max_colocated"].as_f64().ok_or("no max_colocated")?;
    let gpus = if scenario["use_gpus"] == true { 1.0 / colocated } else { 0.0 };
    let user = scenario["env_vars"].as_object();
    let describe = |(rank, worker): (usize, &Worker)| {
        // Variables of the driver, then of the user, then the identity.
        let mut env = Map::new();
        env.insert("USERVAR".into(), json!("os"));
        env.insert("PATHX".into(), json!("os"));
        env.extend(user.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        let identity = [
            ("RANK", rank.to_string()),
            ("LOCAL_RANK", worker.slot.to_string()),
            ("WORLD_SIZE", workers.len().to_string()),
            ("NODE_RANK", worker.host.to_string()),
            ("MASTER_ADDR", "10.0.0.1".into()),
            ("MASTER_PORT", "1400".into()),
        ];
        env.extend(identity.map(|(name, value)| (name.to_owned(), json!(value))));
        json!({
            "name": worker.name, "bundle": worker.slot, "bundle_indices": worker.bundle_indices,
            "num_gpus": (gpus * 1e6).round() / 1e6,
            "dp_shard_idx": worker.shard, "local_rank_in_group": worker.rank_in_shard, "env": env,
        })
    };
    let leaders: Vec<usize> =
        workers.iter().enumerate().filter(|(_, worker)| worker.rank_in_shard == 0).map(|(rank, _)| rank).collect();
    Ok(json!({
        "world_size": workers.len(), "dp_size": leaders.len(), "dp_leader_worker_indices": leaders,
        "workers": workers.iter().enumerate().map(describe).collect::<Vec<_>>(),
    }))
}
