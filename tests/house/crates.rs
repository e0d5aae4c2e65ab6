//! The edges between our crates and the resolved features of the libraries whose features start threads or I/O.

use crate::root;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The permitted imports between crates (normal dependencies), by their names after `rlaunch-`. A crate that is not here imports none
/// of ours.
const EDGES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("plan", &["base"]),
    ("protocol", &["base", "plan"]),
    ("keyvalue", &["base", "protocol"]),
    ("restart", &["base", "plan", "protocol"]),
    ("mpi", &["base", "keyvalue", "protocol"]),
    ("core", &["base", "keyvalue", "mpi", "plan", "protocol", "restart"]),
    ("sys", &[]),
    ("sys-client", &[]),
    ("client", &["base", "keyvalue", "plan", "protocol", "restart", "sys-client"]),
    ("net", &["base", "plan", "protocol"]),
    ("agent", &["base", "core", "keyvalue", "mpi", "net", "plan", "protocol", "sys"]),
    ("rlaunch", &["agent", "base", "client", "core", "keyvalue", "mpi", "net", "plan", "protocol", "restart", "sys"]),
    ("sim", &["base", "core", "plan", "protocol", "restart"]),
    ("example-train", &["client"]),
];

/// The crates without I/O, in the folders of these names below `common`.
pub(crate) const PURE: &[&str] = &["base", "plan", "protocol", "keyvalue", "restart", "mpi", "core"];

/// The permitted features of tokio. `fs`, `io-std`, `process` and `rt-multi-thread` would start threads of their own.
const TOKIO: &[&str] = &[
    "bytes",
    "io-util",
    "libc",
    "macros",
    "mio",
    "net",
    "rt",
    "socket2",
    "sync",
    "time",
    "tokio-macros",
    "windows-sys",
];

fn metadata() -> &'static Value {
    static METADATA: OnceLock<Value> = OnceLock::new();
    METADATA.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let out = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    })
}

fn members() -> BTreeMap<String, &'static Value> {
    let ids: BTreeSet<&str> =
        metadata()["workspace_members"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    let packages = metadata()["packages"].as_array().unwrap();
    packages
        .iter()
        .filter(|p| ids.contains(p["id"].as_str().unwrap()))
        .map(|p| (p["name"].as_str().unwrap().to_owned(), p))
        .collect()
}

/// The folders of all crates of the workspace.
pub(crate) fn member_dirs() -> Vec<PathBuf> {
    let manifests = members();
    manifests
        .values()
        .map(|p| PathBuf::from(p["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned())
        .collect()
}

fn short(name: &str) -> &str {
    name.strip_prefix("rlaunch-").unwrap_or(name)
}

#[test]
fn crates_import_only_the_allowed_crates() {
    let members = members();
    for (name, package) in &members {
        let ours: Vec<&str> = package["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|d| d["kind"].is_null())
            .map(|d| d["name"].as_str().unwrap())
            .filter(|dep| members.contains_key(*dep))
            .collect();
        let allowed = EDGES.iter().find(|(from, _)| *from == short(name)).map_or(&[][..], |(_, to)| *to);
        for dep in ours {
            assert!(allowed.contains(&short(dep)), "{name} must not import {dep}");
        }
    }
}

/// The launcher is no user of the agent's insides: it hands over to it where a process becomes one, and nowhere else.
#[test]
fn the_launcher_hands_over_to_the_agent_and_that_is_all() {
    let dir = root().join("launcher/src");
    let names = |path: &PathBuf| std::fs::read_to_string(path).unwrap().contains("rlaunch_agent");
    let joints: BTreeSet<PathBuf> = crate::files::sources_in(&dir).into_iter().filter(names).collect();
    assert_eq!(joints, ["serve/mod.rs", "serve/step.rs", "start.rs"].map(|file| dir.join(file)).into());
}

#[test]
fn tokio_starts_no_threads() {
    let nodes = metadata()["resolve"]["nodes"].as_array().unwrap();
    let tokio = nodes.iter().find(|n| n["id"].as_str().unwrap().contains("#tokio@")).unwrap();
    for feature in tokio["features"].as_array().unwrap() {
        let feature = feature.as_str().unwrap();
        assert!(TOKIO.contains(&feature), "tokio's feature {feature} is switched on");
    }
}

#[test]
fn pure_crates_are_built_without_std() {
    let nodes = metadata()["resolve"]["nodes"].as_array().unwrap();
    let normal = |d: &&Value| d["dep_kinds"].as_array().unwrap().iter().any(|k| k["kind"].is_null());
    let libraries = ["blake3", "bytes", "crc", "httparse", "memchr", "postcard", "serde", "serde_json", "thiserror"];
    let is_allowed = |name: &str| {
        libraries.contains(&name) || name.strip_prefix("rlaunch_").is_some_and(|ours| PURE.contains(&ours))
    };
    for pure in PURE {
        let id = members()[&format!("rlaunch-{pure}")]["id"].as_str().unwrap().to_owned();
        let node = nodes.iter().find(|n| n["id"] == id.as_str()).unwrap();
        for dep in node["deps"].as_array().unwrap().iter().filter(normal) {
            assert!(is_allowed(dep["name"].as_str().unwrap()), "rlaunch-{pure} imports {}", dep["name"]);
        }
    }
}
