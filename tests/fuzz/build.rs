//! The version, for the modules of the launcher that are included by path.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=RLAUNCH_VERSION=0.0.0");
}
