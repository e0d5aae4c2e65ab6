//! Pages for contributors agree with the code: tests and files that they name exist.

use crate::root;
use std::fs;

/// Names of tests on a page: `file::test` in a code span.
fn tests_named(text: &str) -> Vec<(&str, &str)> {
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let words = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    words.filter_map(|word| word.split_once("::")).filter(|(_, name)| !name.is_empty()).collect()
}

#[test]
fn tables_of_faults_and_promises_name_tests_that_exist() {
    let text = fs::read_to_string(root().join("docs/contribute/faults.md")).unwrap();
    let named = tests_named(&text);
    for (file, name) in &named {
        let source = fs::read_to_string(root().join(format!("tests/it/{file}.rs"))).unwrap_or_default();
        assert!(
            source.contains(&format!("#[test]\nfn {name}() {{")),
            "the page names {file}::{name}, which is no test"
        );
    }
    assert!(named.len() > 60, "{} tests are few", named.len());
    let faults = text.lines().filter(|line| line.starts_with("| ") && line.matches('|').count() == 6);
    let numbers = faults.filter_map(|row| row[2..].split(' ').next()?.parse::<u32>().ok());
    let wanted = [1u32..=10, 13..=19, 21..=21, 23..=25, 33..=33, 35..=36].into_iter().flatten();
    assert!(numbers.eq(wanted), "rows of faults are missing");
}

/// Paths in the table of features: `{a,b}` stands for two of them.
fn paths_named(text: &str) -> Vec<String> {
    let table = text.split_once("\n| Feature |").map_or("", |(_, table)| table);
    let rows = table.lines().take_while(|line| !line.starts_with('#')).filter(|line| line.starts_with("| "));
    let cells = rows.flat_map(|row| row.split('|').skip(2));
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let spread = |word: &str| -> Vec<String> {
        let Some((head, rest)) = word.split_once('{') else { return vec![word.to_owned()] };
        let (inner, tail) = rest.split_once('}').unwrap();
        inner.split(',').map(|part| format!("{head}{part}{tail}")).collect()
    };
    words.flat_map(spread).collect()
}

#[test]
fn the_code_map_names_files_that_exist() {
    let text = fs::read_to_string(root().join("docs/contribute/code-map.md")).unwrap();
    let paths = paths_named(&text);
    assert!(paths.len() > 200, "only {} paths", paths.len());
    let inside = |path: &str| match path.split_once('/') {
        Some((crate_name @ ("sys" | "net" | "client" | "restart" | "mpi"), rest)) => {
            format!("common/{crate_name}/src/{rest}")
        }
        Some(("it", rest)) => format!("tests/it/{rest}"),
        _ => path.to_owned(),
    };
    let pure = crate::crates::PURE.iter().flat_map(|pure| [format!("common/{pure}/src/"), format!("common/{pure}/")]);
    let bases: Vec<String> = pure.chain(["", "launcher/src/", "common/"].map(str::to_owned)).collect();
    for path in &paths {
        let found = bases.iter().any(|base| {
            let file = format!("{base}{}", inside(path));
            root().join(&file).exists() || root().join(format!("{file}.rs")).exists()
        });
        assert!(found, "the code map names {path}, which does not exist");
    }
}
