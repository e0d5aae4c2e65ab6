//! The rlaunch that runs and others in PATH: several packages install a program of this name.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Which program `PATH` has, beside the one that runs.
const NAME: &str = "rlaunch";

/// The version, the path of this program, and of others in PATH.
pub(crate) fn text(version: &str) -> String {
    let this = std::env::current_exe().unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    listed(version, &this, std::env::split_paths(&path))
}

fn listed(version: &str, this: &Path, dirs: impl Iterator<Item = PathBuf>) -> String {
    let own = fs::metadata(this).ok();
    let mut text = format!("{version}  this    {}\n", this.display());
    let mut found: Vec<(PathBuf, bool)> = Vec::new();
    for path in dirs.map(|dir| dir.join(NAME)) {
        let Some(meta) = fs::metadata(&path).ok().filter(is_program) else { continue };
        if found.iter().all(|(known, _)| *known != path) {
            found.push((path, own.as_ref().is_some_and(|own| (own.dev(), own.ino()) == (meta.dev(), meta.ino()))));
        }
    }
    for (path, is_same) in found.iter().filter(|(path, _)| path != this) {
        text.push_str(&format!("  other   {}{}\n", path.display(), if *is_same { " (the same file)" } else { "" }));
    }
    if let Some((first, _)) = found.first().filter(|(_, is_same)| !is_same) {
        text.push_str(&format!("  note    'rlaunch' in a shell is {}\n", first.display()));
    }
    text
}

fn is_program(meta: &Metadata) -> bool {
    meta.is_file() && meta.permissions().mode() & 0o111 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_programs_in_path_are_listed() {
        let root = std::env::temp_dir().join(format!("rlaunch-installed-{} x", std::process::id()));
        let dirs = ["a", "b", "c", "d"].map(|name| root.join(name));
        for dir in &dirs {
            fs::create_dir_all(dir).unwrap();
        }
        let [first, this, link, plain] = dirs.each_ref().map(|dir| dir.join(NAME));
        for (path, mode) in [(&first, 0o755), (&this, 0o755), (&plain, 0o644)] {
            fs::write(path, "").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::symlink(&this, &link).unwrap();
        let text = listed("v\n", &this, dirs.iter().cloned());
        let alone = listed("v\n", &this, dirs[1..2].iter().cloned());
        fs::remove_dir_all(&root).unwrap();
        let [first, this, link] = [first, this, link].map(|path| path.display().to_string());
        assert_eq!(
            text,
            format!(
                "v\n  this    {this}\n  other   {first}\n  other   {link} (the same file)\n  note    'rlaunch' in a shell is {first}\n"
            )
        );
        assert_eq!(alone, format!("v\n  this    {this}\n"));
    }
}
