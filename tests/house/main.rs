//! The rules of the house that no compiler checks: who may import whom, which features are switched on, how long a file
//! may get, and that every crate lives under the same lints.
#![allow(clippy::disallowed_methods, reason = "asks cargo for the resolved graph")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at what it did not expect")]

mod binary;
mod contribute;
mod crates;
mod cycles;
mod docs;
mod files;
mod generated;
mod links;
mod messages;
mod pictures;
mod prose;

use std::path::PathBuf;

/// The root of the checkout.
fn root() -> PathBuf {
    let mut dir = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    dir.pop();
    dir
}
