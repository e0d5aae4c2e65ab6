//! Length of files, copies of clippy.toml, and things that must not land.

use crate::root;
use std::fs;
use std::path::{Path, PathBuf};

/// No file has more lines than this before its tests.
const MAX_LINES: usize = 600;

fn add_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !path.is_dir() {
            found.push(path);
        } else if !name.starts_with('.') && !name.starts_with("target") {
            add_files(&path, found);
        }
    }
}

/// All files below a directory, without those in hidden directories and in directories of cargo.
pub(crate) fn files_in(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    add_files(dir, &mut found);
    found
}

/// All source files below a directory.
pub(crate) fn sources_in(dir: &Path) -> Vec<PathBuf> {
    let mut found = files_in(dir);
    found.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    found
}

fn all_sources() -> Vec<PathBuf> {
    let found = sources_in(&root());
    assert!(found.len() > 10, "found only {} source files", found.len());
    found
}

/// The text of a source before its inline tests, which are a module `tests` at its end. Other items for tests are no end of it.
pub(crate) fn without_tests(text: &str) -> &str {
    const MARK: &str = "\n#[cfg(test)]\n";
    let is_last_module = |item: &str| {
        let head = item.lines().find(|line| !line.starts_with("#["));
        head.is_some_and(|line| line.ends_with("mod tests {"))
            && item.lines().skip_while(|line| *line != "}").count() == 1
    };
    let begin = text.match_indices(MARK).map(|(at, _)| at).find(|at| is_last_module(&text[at + MARK.len()..]));
    begin.map_or(text, |at| &text[..=at])
}

#[test]
fn inline_tests_are_a_module_at_the_end_of_a_file() {
    let code = "//! A file.\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nfn f() {\n}\n";
    let tests = "#[cfg(test)]\n#[expect(dead_code)]\npub(crate) mod tests {\n    fn g() {\n    }\n}\n";
    for text in [format!("{code}{tests}"), format!("{code}{tests}").trim_end().to_owned(), code.to_owned()] {
        assert_eq!(without_tests(&text), code);
    }
    let middle = format!("{code}{tests}fn h() {{\n}}\n");
    assert_eq!(without_tests(&middle), middle);
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<_> = all_sources()
        .into_iter()
        .map(|path| (without_tests(&fs::read_to_string(&path).unwrap()).lines().count(), path))
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
        let code = without_tests(&text);
        if code.contains(".handle(") {
            drivers += 1;
            for also in [".handle_timeout(", ".poll_timeout()"] {
                assert!(code.contains(also), "{}: a machine is handed events, and there is no {also}", path.display());
            }
        }
    }
    assert!(drivers >= 4, "found only {drivers} drivers");
}

/// A sub-machine changes only itself. Only the router changes several of them, in a file or a directory of that name.
#[test]
fn only_the_router_of_a_machine_changes_several_of_its_parts() {
    let routers = ["job/mod.rs", "job/router.rs", "node/begins.rs", "node/ends.rs", "node/mod.rs", "node/timers.rs"];
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
