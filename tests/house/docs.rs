//! Documents that are generated from the code say what the code says.

use crate::root;
use std::fs;

#[test]
fn the_table_of_faults_names_tests_that_exist() {
    let text = fs::read_to_string(root().join("docs/contribute/faults.md")).unwrap();
    let rows: Vec<&str> =
        text.lines().filter(|line| line.starts_with("| ") && line.matches('|').count() == 6).collect();
    let mut named = 0;
    for row in &rows {
        for test in row.split('`').filter(|word| word.matches("::").count() == 1 && !word.contains(' ')) {
            let (file, name) = test.split_once("::").unwrap();
            let source = fs::read_to_string(root().join(format!("tests/it/{file}.rs"))).unwrap_or_default();
            assert!(
                source.contains(&format!("#[test]\nfn {name}() {{")),
                "docs/contribute/faults.md names {test}, which is no test"
            );
            named += 1;
        }
    }
    let numbers = rows.iter().filter_map(|row| row[2..].split(' ').next()?.parse::<u32>().ok());
    let wanted = [1u32..=10, 13..=19, 21..=21, 23..=25, 33..=33, 35..=36].into_iter().flatten();
    assert!(numbers.eq(wanted) && named > 24, "rows are missing, or {named} tests are few");
}

#[test]
fn environment_is_documented() {
    let path = root().join("docs/environment.md");
    let generated = rlaunch_core::env::document();
    if std::env::var_os("RLAUNCH_BLESS").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == generated,
        "docs/environment.md is out of date: RLAUNCH_BLESS=1 cargo test -p rlaunch --test house"
    );
}

#[test]
fn every_fuzz_target_has_seeds() {
    let targets = fs::read_dir(root().join("tests/fuzz/targets")).unwrap();
    for target in targets.map(|entry| entry.unwrap().path()) {
        let seeds = root().join("tests/fuzz/corpus").join(target.file_stem().unwrap());
        let count = fs::read_dir(&seeds).map_or(0, Iterator::count);
        assert!(count > 0, "{} has no file: `cargo run --example seeds` in tests/fuzz", seeds.display());
    }
}
