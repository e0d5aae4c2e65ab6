//! Links of documents lead to files and headings that exist. So do names of documents in code. The network is not used.

use crate::root;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The anchor that web pages of repositories give to a heading: letters, digits, `-` and `_` stay, spaces become `-`.
fn slug(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading.trim();
    // A link in a heading counts by its words.
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

/// Lines outside of fenced blocks, with code spans blanked.
fn prose_lines(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let parts = line.split('`').enumerate();
            lines.push(parts.map(|(at, part)| if at % 2 == 0 { part } else { "X" }).collect());
        }
    }
    lines
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && line.starts_with('#') {
            let base = slug(line.trim_start_matches('#'));
            let twice = (1..).map(|n| format!("{base}-{n}")).find(|name| !found.contains(name));
            found.insert(if found.contains(&base) { twice.unwrap() } else { base });
        }
        if let Some((_, rest)) = line.split_once("<a id=\"") {
            found.extend(rest.split('"').next().map(str::to_owned));
        }
    }
    found
}

/// Targets of the links and pictures of a text.
fn targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose_lines(text) {
        found.extend(line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()).map(str::to_owned));
        for attribute in ["src=\"", "href=\""] {
            found.extend(line.split(attribute).skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
    }
    found
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = out.pop(),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => out.push(part),
        }
    }
    out
}

/// The reason if a link of a document leads nowhere.
fn broken(document: &Path, target: &str) -> Option<String> {
    if ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() { document.to_owned() } else { normal(&document.parent().unwrap().join(path)) };
    if !file.starts_with(root()) || !file.exists() {
        return Some("there is no such file".into());
    }
    let is_page = file.extension().is_some_and(|extension| extension == "md");
    if anchor.is_empty() || is_page && anchors(&fs::read_to_string(&file).unwrap()).contains(anchor) {
        return None;
    }
    Some("there is no such heading".into())
}

/// Names of documents as code writes them: `docs/guides/x.md`.
fn named(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let paths = text.match_indices("docs/").filter_map(|(at, _)| {
        let path = text[at..].split(|c| !is_part(c)).next()?.trim_end_matches('.');
        let begins = !text[..at].ends_with(|c| is_part(c) || c == '}');
        (begins && path.ends_with(".md")).then_some(path)
    });
    paths.collect()
}

fn documents() -> Vec<PathBuf> {
    let dirs = [root(), root().join("docs"), root().join("examples")];
    dirs.iter().flat_map(|dir| crate::prose::documents(dir)).collect()
}

/// Sources, scripts and other files that name documents. Links of documents are checked as such.
fn sources() -> Vec<PathBuf> {
    let mut files = crate::files::files_in(&root());
    files.retain(|path| path.extension().is_none_or(|extension| extension != "md"));
    files
}

#[test]
fn links_and_names_of_documents_lead_somewhere() {
    let mut faults = Vec::new();
    let show = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    for document in documents() {
        for target in targets(&fs::read_to_string(&document).unwrap()) {
            faults.extend(broken(&document, &target).map(|why| format!("{}: {target}: {why}", show(&document))));
        }
    }
    for source in sources().iter().filter(|path| !path.ends_with("tests/house/links.rs")) {
        // Binary files name nothing.
        let Ok(text) = fs::read_to_string(source) else { continue };
        let missing = named(&text).into_iter().filter(|path| !root().join(path).exists());
        faults.extend(missing.map(|path| format!("{}: {path}: there is no such file", show(source))));
    }
    assert!(faults.is_empty(), "{} links lead nowhere:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn slugs_equal_the_slugs_of_web_pages() {
    for (heading, anchor) in [
        ("How `0 left running` is counted", "how-0-left-running-is-counted"),
        ("The TCPStore", "the-tcpstore"),
        ("`--events`, and more", "--events-and-more"),
        ("See [Slurm](slurm.md)", "see-slurm"),
        ("LOCAL_RANK stays", "local_rank-stays"),
    ] {
        let plain: String = heading.chars().filter(|c| *c != '`').collect();
        assert_eq!((slug(heading), slug(&plain)), (anchor.to_owned(), anchor.to_owned()));
    }
    let page = "# A\n```\n# no heading\n[no](link)\n```\n## B b\n## B b\n[x](y.md#z) `[c](d)` ![p](q.svg)\n";
    assert_eq!(anchors(page), ["a", "b-b", "b-b-1"].map(str::to_owned).into());
    assert_eq!(targets(page), ["y.md#z", "q.svg"]);
    assert_eq!(named("see docs/a.md, and (docs/b/c.md)."), ["docs/a.md", "docs/b/c.md"].into());
}
