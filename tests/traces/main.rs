//! The restart machine, step by step: each file here is a script (lines that begin with `>`), with the output that has to follow from
//! each of its lines. `RLAUNCH_BLESS=1 cargo test -p rlaunch-core --test traces` writes the answers anew, for review.

#![allow(clippy::unwrap_used, reason = "a test")]

mod play;
mod words;

use play::Play;
use std::fs;
use std::path::PathBuf;

fn traces() -> Vec<PathBuf> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces");
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = files.filter(|path| path.extension().is_some_and(|ext| ext == "txt")).collect();
    found.sort();
    found
}

/// The script with the answers of the machine.
fn played(text: &str) -> Result<String, String> {
    let mut play = None;
    let mut answered = String::new();
    for (line, at) in text.lines().zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            answered.push_str(line);
            answered.push('\n');
        } else if let Some(step) = line.strip_prefix("> ") {
            answered.push_str(line);
            answered.push('\n');
            let answers = Play::step(&mut play, step).map_err(|error| format!("line {at}: {error}"))?;
            answers.iter().for_each(|answer| answered.push_str(&format!("    {answer}\n")));
        } else if !line.starts_with("    ") {
            return Err(format!("line {at} is neither a step (> ), an answer (4 blanks), nor a remark (#)"));
        }
    }
    Ok(answered)
}

#[test]
fn every_script_is_answered_as_written() {
    let all = traces();
    assert!(all.len() >= 20, "only {} traces were found", all.len());
    let mut wrong = Vec::new();
    for path in all {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let answered = played(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        if std::env::var_os("RLAUNCH_BLESS").is_some() {
            fs::write(&path, answered).unwrap();
        } else if answered != text {
            let differ = answered.lines().zip(text.lines()).zip(1..).find(|((answered, text), _)| answered != text);
            wrong.push(match differ {
                Some(((answered, text), at)) => format!("{name}:{at}\n  wanted {text}\n  got    {answered}"),
                None => format!("{name}: one of them is longer"),
            });
        }
    }
    assert!(wrong.is_empty(), "RLAUNCH_BLESS=1 writes them anew:\n{}", wrong.join("\n"));
}
