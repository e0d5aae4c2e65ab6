//! Length of files, copies of clippy.toml, and things that must not land.

use crate::root;
use std::fs;
use std::path::{Path, PathBuf};

/// No file has more lines than this before its tests.
const MAX_LINES: usize = 600;

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && !name.starts_with("target") {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// All source files below a directory.
pub(crate) fn sources_in(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    sources(dir, &mut found);
    found
}

fn all_sources() -> Vec<PathBuf> {
    let found = sources_in(&root());
    assert!(found.len() > 10, "found only {} source files", found.len());
    found
}

/// Lines up to the inline tests.
fn lines_without_tests(text: &str) -> usize {
    text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count()
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<_> = all_sources()
        .into_iter()
        .map(|path| (lines_without_tests(&fs::read_to_string(&path).unwrap()), path))
        .filter(|(lines, _)| *lines > MAX_LINES)
        .collect();
    assert!(long.is_empty(), "files above {MAX_LINES} lines without tests; split by reason to change: {long:?}");
}

#[test]
fn nothing_unfinished_lands() {
    let words = [concat!("to", "do!("), concat!("unimplement", "ed!("), concat!("#[ign", "ore"), concat!("FIX", "ME")];
    for path in all_sources() {
        let text = fs::read_to_string(&path).unwrap();
        for word in words {
            assert!(!text.contains(word), "{} contains {word}", path.display());
        }
    }
}

/// Copies of them drift apart; those of libc are its own.
#[test]
fn errnos_are_defined_once() {
    let named = |line: &str| {
        let name = line
            .trim_start()
            .trim_start_matches("pub ")
            .strip_prefix("const E")
            .and_then(|rest| rest.split_once(": i32 ="));
        name.is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()))
    };
    let home = root().join("common/base/src/errno.rs");
    for path in all_sources() {
        let text = fs::read_to_string(&path).unwrap();
        let found = text.lines().filter(|line| named(line)).count();
        assert_eq!(found > 0, path == home, "{}: errnos are in {}", path.display(), home.display());
        for line in text.lines().filter(|line| named(line)) {
            let (name, number) = line.trim_start_matches("pub const ").split_once(": i32 = ").unwrap();
            let number: i32 = number.trim_end_matches(';').parse().unwrap();
            assert_eq!(format!("{:?}", nix::errno::Errno::from_raw(number)), name);
        }
    }
}

#[test]
fn every_source_has_module_documentation() {
    for path in all_sources() {
        let text = fs::read_to_string(&path).unwrap();
        let first = text.lines().find(|line| !line.starts_with("#!")).unwrap_or_default();
        assert!(first.starts_with("//!"), "{} has no module documentation", path.display());
    }
}

#[test]
fn every_crate_has_the_same_clippy_rules() {
    let table = fs::read_to_string(root().join("clippy.toml")).unwrap();
    for dir in crate::crates::member_dirs() {
        let copy = dir.join("clippy.toml");
        assert_eq!(fs::read_to_string(&copy).unwrap_or_default(), table, "{} differs from clippy.toml", copy.display());
    }
}

#[test]
fn unsafe_code_stays_in_its_room() {
    for dir in crate::crates::member_dirs() {
        let name = dir.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let allowed = ["common/sys", "common/sys/client"].contains(&name.as_str());
        // Functions that C calls cannot be written without; the rest of that crate can.
        let has_room = name == "common/client";
        for top in ["src/lib.rs", "src/main.rs"] {
            let Ok(text) = fs::read_to_string(dir.join(top)) else { continue };
            assert_eq!(text.contains("#![forbid(unsafe_code)]"), !allowed && !has_room, "{name}/{top}");
        }
        if has_room {
            // One file, with its tests, which do what C does.
            let (room, inner) = (dir.join("src/ffi.rs"), dir.join("src/ffi"));
            for path in sources_in(&dir.join("src")).into_iter().filter(|path| *path != room) {
                let text = fs::read_to_string(&path).unwrap().replace(concat!("un", "safe_code"), "");
                let word = concat!("un", "safe");
                assert!(!text.contains(word), "{}: what is {word} belongs into {}", path.display(), room.display());
            }
            // The file of the room allows it for what is below, too.
            for path in sources_in(&inner) {
                let text = fs::read_to_string(&path).unwrap();
                assert!(
                    text.contains("#![forbid(unsafe_code)]"),
                    "{}: #![forbid(unsafe_code)] is missing",
                    path.display()
                );
            }
        }
        let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name} does not take the workspace's lints");
    }
    for pure in crate::crates::PURE {
        let lib = fs::read_to_string(root().join("common").join(pure).join("src/lib.rs")).unwrap();
        assert!(lib.contains("#![no_std]") && lib.contains("#![deny(clippy::wildcard_enum_match_arm)]"), "{pure}");
    }
}

/// The simulator gives every machine its time; a loop that does not looks like it there, and is silent where it should speak.
#[test]
fn event_time_reaches_the_machine() {
    let product = ["agent/src", "launcher/src", "common/net/src"].map(|room| root().join(room));
    let mut drivers = 0;
    for path in all_sources().into_iter().filter(|path| product.iter().any(|room| path.starts_with(room))) {
        let text = fs::read_to_string(&path).unwrap();
        let code: Vec<&str> = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).collect();
        let says = |what: &str| code.iter().any(|line| line.contains(what));
        if says(".handle(") {
            drivers += 1;
            for also in [".handle_timeout(", ".poll_timeout()"] {
                assert!(says(also), "{}: a machine is handed events, and there is no {also}", path.display());
            }
        }
    }
    assert!(drivers >= 4, "found only {drivers} drivers");
}

/// A sub-machine changes only itself. Only the router changes several of them, in a file or a directory of that name.
#[test]
fn only_the_router_of_a_machine_changes_several_of_its_parts() {
    let routers = ["job/mod.rs", "job/router.rs", "node/ends.rs", "node/mod.rs"];
    let core = root().join("common/core/src");
    for path in ["job", "node"].into_iter().flat_map(|machine| sources_in(&core.join(machine))) {
        let name = path.strip_prefix(&core).unwrap().to_string_lossy().into_owned();
        let acts = fs::read_to_string(&path).unwrap().lines().any(|line| line.starts_with("impl Parts"));
        assert_eq!(
            acts,
            routers.contains(&name.as_str()) || name.starts_with("job/router/"),
            "{name}: `impl Parts` belongs into the router of its machine"
        );
    }
}
