//! `include/rlaunch.h` says what the library does: names and types of all functions, members of all structures, numbers of all results.
#![expect(clippy::disallowed_methods, reason = "the example is compiled and run as a user would")]
#![expect(clippy::unwrap_used, reason = "as in all tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn header() -> String {
    let text = fs::read_to_string(root().join("common/client/include/rlaunch.h")).unwrap();
    // Without comments, and on one line each.
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("/*") {
        plain.push_str(before);
        rest = after.split_once("*/").unwrap().1;
    }
    plain + rest
}

fn code() -> String {
    let dir = root().join("common/client/src/ffi");
    let mut files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.is_file() && !file.ends_with("tests.rs"));
    files.extend(["common/client/src/ffi.rs", "common/sys/client/src/gloo.rs"].map(|file| root().join(file)));
    files.sort();
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

/// One blank between words, none before a bracket or comma.
fn squeezed(text: &str) -> String {
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (from, to) in [("( ", "("), (" )", ")"), (" ,", ","), ("* ", "*"), (",)", ")"), (" (", "("), ("[ ", "[")] {
        text = text.replace(from, to);
    }
    text
}

/// Parts between commas that are in no brackets.
fn split(list: &str) -> Vec<String> {
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in list.replace("->", "").chars() {
        depth += match c {
            '(' | '[' | '<' => 1,
            ')' | ']' | '>' => -1,
            _ => 0,
        };
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else {
            parts.last_mut().unwrap().push(c);
        }
    }
    parts.iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// A type of C, as Rust writes it.
fn in_rust(c: &str) -> String {
    let c = c.trim();
    if let Some(to) = c.strip_suffix('*') {
        let to = to.trim();
        let (constant, plain) = match to.strip_suffix("*const").or_else(|| to.strip_prefix("const ")) {
            Some(plain) if !to.contains('*') => (true, plain),
            _ => (false, to),
        };
        return format!("*{} {}", if constant { "const" } else { "mut" }, in_rust(plain));
    }
    match c {
        "int" => "c_int",
        "char" => "c_char",
        "void" => "c_void",
        "size_t" => "usize",
        "uint8_t" => "u8",
        "uint32_t" => "u32",
        "int32_t" => "i32",
        "uint64_t" => "u64",
        "int64_t" => "i64",
        // A pointer to a function may be NULL.
        "rl_function" => "Option<Function>",
        "rl_key_function" => "Option<KeyFunction>",
        other => other,
    }
    .to_owned()
}

/// A parameter or member: its name, and its type as Rust writes it. Of pointers to functions only that they are.
fn named(c: &str) -> (String, String) {
    if let Some((_, after)) = c.split_once("(*") {
        return (after.split_once(')').unwrap().0.to_owned(), "a function".to_owned());
    }
    let at = c.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap() + 1;
    let (kind, name) = c.split_at(at);
    (name.to_owned(), in_rust(kind))
}

fn of_rust(rust: &str) -> (String, String) {
    let (name, kind) = rust.split_once(": ").unwrap();
    let is_function = kind.contains(" fn(") || kind == "Option<AddPending>" || kind == "Option<Each>";
    (name.to_owned(), if is_function { "a function".to_owned() } else { kind.replace("std::ffi::", "") })
}

type Signature = (String, Vec<(String, String)>);

fn functions_of_c(header: &str) -> BTreeMap<String, Signature> {
    let mut found = BTreeMap::new();
    for line in squeezed(&header.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join(" ")).split(';')
    {
        let line = line.trim().trim_start_matches("extern \"C\" {").trim();
        let Some((head, list)) = line.split_once('(') else { continue };
        if line.starts_with("typedef") || !head.contains("rl_") || head.contains('{') {
            continue;
        }
        let at = head.find("rl_").unwrap();
        let (kind, name) = head.split_at(at);
        let list = list.strip_suffix(')').unwrap();
        let list = if list == "void" { Vec::new() } else { split(list).iter().map(|one| named(one)).collect() };
        found.insert(name.to_owned(), (in_rust(kind), list));
    }
    found
}

/// The functions in the list that C can call.
fn functions_of_rust(code: &str) -> BTreeMap<String, Signature> {
    let list = code.split_once("$with! {\n").unwrap().1.split_once("\n}\n    };\n").unwrap().0;
    let mut found = BTreeMap::new();
    for part in squeezed(list).split("fn rl_").skip(1) {
        let (name, rest) = part.split_once('(').unwrap();
        let (list, kind) = rest.rsplit_once(") ->").unwrap();
        let kind = kind.split_once(';').unwrap().0.trim();
        let kind = if kind == "()" { "c_void" } else { kind };
        let list = split(&list.replace(';', ",")).iter().map(|one| of_rust(one)).collect();
        found.insert(format!("rl_{name}"), (kind.to_owned(), list));
    }
    found
}

#[test]
fn functions_are_as_the_header_says() {
    let (said, done) = (functions_of_c(&header()), functions_of_rust(&code()));
    assert!(said.len() > 50, "{}", said.len());
    for (name, signature) in &said {
        assert_eq!(Some(signature), done.get(name), "{name}");
    }
    assert_eq!(said.keys().collect::<Vec<_>>(), done.keys().collect::<Vec<_>>());
}

#[test]
fn structures_are_as_the_header_says() {
    let code = squeezed(&code());
    let header = squeezed(&header());
    let mut seen = 0;
    for part in header
        .split("typedef struct ")
        .skip(1)
        .filter(|part| part.split(' ').nth(1).is_some_and(|w| w.starts_with('{')))
    {
        let (name, rest) = part.split_once(" {").unwrap();
        let members = rest.split_once('}').unwrap().0;
        let said: Vec<String> = members
            .split(';')
            .filter(|member| !member.trim().is_empty())
            .map(|member| match member.trim().split_once('[') {
                Some((array, _)) => format!("{}: [c_char]", named(array).0),
                None => {
                    let (name, kind) = named(member.trim());
                    format!("{name}: {kind}")
                }
            })
            .collect();
        let (_, rest) = code.split_once(&format!("pub struct {name} {{")).unwrap_or_else(|| panic!("no {name}"));
        let done: Vec<String> = split(rest.split_once('}').unwrap().0)
            .iter()
            .map(|member| member.trim_start_matches("pub(super) ").trim_start_matches("pub(crate) ").trim())
            .map(|member| member.split_once("; ").map_or_else(|| member.to_owned(), |(array, _)| format!("{array}]")))
            .map(|member| member.replace("Option<Abort>", "a function"))
            .collect();
        assert_eq!(said, done, "{name}");
        seen += 1;
    }
    assert!(seen >= 9, "{seen}");
}

#[test]
fn results_are_as_the_header_says() {
    let code = code();
    for line in header().lines().filter(|line| line.starts_with("#define RL_E_")) {
        let mut words = line.split_whitespace().skip(1);
        let (name, number) = (words.next().unwrap(), words.next().unwrap().trim_matches(['(', ')']));
        let rust = format!("const {}: c_int = {number};", name.trim_start_matches("RL_E_"));
        assert!(code.contains(&rust), "{rust}");
        assert!(code.contains(&format!("(\"{name}\", {},", name.trim_start_matches("RL_E_"))), "{name} has no text");
    }
}

fn run(command: &mut Command) -> Output {
    let out = command.output().unwrap();
    let output = [&out.stdout, &out.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(out.status.success(), "{command:?}: {}{}", output[0], output[1]);
    out
}

/// Sizes and offsets too: whatever both sides think that a member is, they find it in the same place.
#[test]
fn a_c_program_runs_its_function_again() {
    let out = root().join("target/client-test");
    let script = root().join("scripts/build-client");
    run(Command::new(script).args(["--profile", "ci", "--out"]).arg(&out));
    let program = out.join("resilient");
    let source = root().join("examples/c/resilient.c");
    let rpath = format!("-Wl,-rpath,{}", out.canonicalize().unwrap().display());
    let flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-lrlaunch", &rpath];
    let page_flags = ["-Wall", "-Wextra", "-Werror", "-lrlaunch", &rpath];
    let paths = [format!("-I{}", out.display()), format!("-L{}", out.display())];
    run(Command::new("cc").arg("-o").arg(&program).arg(source).args(&paths).args(flags));
    let page = out.join("restart");
    run(Command::new("cc").arg("-o").arg(&page).arg(root().join("examples/c/restart.c")).args(&paths).args(page_flags));
    let ran = run(Command::new(&page).env_clear());
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "round 0: rank 0 of 1\n");
    let ran = run(Command::new(&program).env_clear().env("RESILIENT_FAIL", "0:4"));
    let lines = "round 0: 1 ranks go on at step 0\n\
                 initial rank 0: round 0 has ended behind step 4: told to fail\n\
                 round 1: 1 ranks go on at step 4\n\
                 initial rank 0: all 10 steps are done\n";
    assert_eq!(String::from_utf8_lossy(&ran.stdout), lines);
    assert_eq!(String::from_utf8_lossy(&ran.stderr).matches("world of one").count(), 1, "said once");
    // Below rlaunch, where that was built.
    let rlaunch = std::env::current_exe().unwrap().parent().unwrap().with_file_name("rlaunch");
    if !rlaunch.is_file() {
        return eprintln!("skipped below rlaunch: {} was not built", rlaunch.display());
    }
    for (fault, left) in [("RESILIENT_DIE", ["0", "2"].as_slice()), ("RESILIENT_FAIL", &["0", "1", "2"])] {
        let ran = run(Command::new(&rlaunch).args(["-n", "3"]).arg(&program).env(fault, "1:4"));
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        let mut done: Vec<&str> = out.lines().filter(|line| line.ends_with("all 10 steps are done")).collect();
        done.sort_unstable();
        let wanted: Vec<String> =
            left.iter().map(|rank| format!("initial rank {rank}: all 10 steps are done")).collect();
        assert_eq!(done, wanted, "{out}{err}");
        assert!(out.contains(&format!("round 1: {} ranks go on at step 4", left.len())), "{out}{err}");
        assert!(err.contains("restart 1: rank 1 "), "{err}");
    }
}
