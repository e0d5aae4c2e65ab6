//! Documents that are generated from the code say what the code says.

use crate::root;
use std::fs;

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
