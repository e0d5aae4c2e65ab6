//! The version that `rlaunch --version` prints: of a build in a git repository with the commit and its date.
#![expect(clippy::disallowed_methods, reason = "a build script runs git, and has no rank or signal to care for")]

use std::path::Path;
use std::process::Command;

/// The output of git, in one line.
fn git(words: &[&str]) -> Option<String> {
    let done = Command::new("git").args(words).output().ok().filter(|done| done.status.success())?;
    String::from_utf8(done.stdout).ok().map(|text| text.trim().to_owned())
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION");
    // Debug builds are not released. With a commit, each of them would be built again after each commit.
    let is_debug = std::env::var_os("PROFILE").is_some_and(|profile| profile == "debug");
    let commit = git(&["show", "-s", "--abbrev=10", "--format=%h %cs", "HEAD"]).filter(|_| !is_debug);
    let Some(commit) = commit else {
        println!("cargo::rustc-env=RLAUNCH_VERSION={version}");
        return;
    };
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rustc-env=RLAUNCH_VERSION={version} ({commit})");
}
