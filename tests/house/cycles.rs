//! Import cycles between the top modules of a crate.

use crate::files::without_tests;
use crate::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Imports = BTreeMap<String, BTreeSet<String>>;

/// The modules that a text names after `crate::`, without those of its tests.
fn named(text: &str) -> impl Iterator<Item = String> + '_ {
    let code = without_tests(text);
    code.match_indices("crate::").map(move |(at, found)| {
        let rest = code[at + found.len()..].trim_start_matches('{');
        rest.chars().take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_').collect()
    })
}

fn add_imports(dir: &Path, top: Option<&str>, imports: &mut Imports) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let module = top.unwrap_or(&name).to_owned();
        if path.is_dir() {
            if name != "tests" {
                add_imports(&path, Some(&module), imports);
            }
        } else if path.extension().is_some_and(|end| end == "rs") && !["lib", "main", "tests"].contains(&name.as_str())
        {
            let text = fs::read_to_string(&path).unwrap();
            let others = named(&text).filter(|other| !other.is_empty() && *other != module);
            imports.entry(module.clone()).or_default().extend(others);
        }
    }
}

fn is_in_cycle(module: &str, imports: &Imports) -> bool {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut left: Vec<&str> = vec![module];
    while let Some(next) = left.pop() {
        for other in imports.get(next).into_iter().flatten() {
            if seen.insert(other) {
                left.push(other);
            }
        }
    }
    seen.contains(module)
}

#[test]
fn no_module_stands_in_an_import_cycle() {
    let mut modules = 0;
    for dir in crate::crates::member_dirs().iter().filter(|dir| !dir.starts_with(root().join("tests"))) {
        let source = dir.join("src");
        if !source.exists() {
            continue;
        }
        let mut imports = Imports::new();
        add_imports(&source, None, &mut imports);
        let found: Vec<&String> = imports.keys().filter(|module| is_in_cycle(module, &imports)).collect();
        assert!(found.is_empty(), "{}: these modules import each other in a circle: {found:?}", dir.display());
        modules += imports.len();
    }
    assert!(modules > 200, "found only {modules} modules");
}

#[test]
fn cycles_are_found() {
    let texts =
        [("a", "use crate::b::X;"), ("b", "let x = crate::{c::Y};"), ("c", "use crate::a;"), ("d", "crate::a::f()")];
    let imports: Imports = texts.map(|(name, text)| (name.to_owned(), named(text).collect())).into();
    assert_eq!(["a", "b", "c", "d"].map(|module| is_in_cycle(module, &imports)), [true, true, true, false]);
}
