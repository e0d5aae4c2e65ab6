//! Documents that are generated from the code say what the code says.

use crate::generated::compare;
use crate::prose::documents;
use crate::root;
use rlaunch_base::exit;
use rlaunch_base::id::{NodeId, Rank, Std};
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::Span;
use rlaunch_core::events::{Cause, Lost};
use rlaunch_plan::allocation::Scheduler;
use std::fs;
use std::path::PathBuf;

/// A page of docs/reference.
fn reference(name: &str) -> PathBuf {
    root().join("docs/reference").join(format!("{name}.md"))
}

/// Words of a page that are read from the first to the last: those outside of tables and programs.
fn words_of_page(text: &str) -> usize {
    let prose = text.split("```").step_by(2).flat_map(str::lines).filter(|line| !line.starts_with('|'));
    prose.map(|line| line.split_whitespace().count()).sum()
}

#[test]
fn no_page_has_more_than_a_thousand_words() {
    assert_eq!(words_of_page("# A page\n\n| a | b |\n\n```sh\nls -l\n```\nTwo words.\n"), 5);
    for page in documents(&root().join("docs")) {
        let words = words_of_page(&fs::read_to_string(&page).unwrap());
        assert!(
            words <= 1_000,
            "{} has {words} words outside of tables and programs: cut it, or make two",
            page.display()
        );
    }
}

/// The first programs of these pages are files that are built with the tests.
#[test]
fn programs_on_pages_are_built() {
    for (page, language, file) in
        [("rust", "rust", "common/client/examples/restart.rs"), ("c", "c", "examples/c/restart.c")]
    {
        let text = fs::read_to_string(reference(page)).unwrap();
        let program = text.split(&format!("```{language}\n")).nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let built = fs::read_to_string(root().join(file)).unwrap();
        assert!(built.ends_with(program), "docs/reference/{page}.md has another program than {file}");
    }
}

#[test]
fn environment_page_has_all_variables() {
    compare(&reference("environment"), "variables", &rlaunch_protocol::env::document());
}

#[test]
fn signals_page_has_the_answer_to_each_signal() {
    compare(&reference("signals"), "signals", &rlaunch_core::job::signals_document());
}

#[test]
fn exit_codes_page_has_the_code_of_each_cause() {
    compare(&reference("exit-codes"), "codes", &exit_codes());
}

fn exit_codes() -> String {
    let shell = |cause: Cause| cause.exit(false).shell_code();
    let rank = |status| shell(Cause::Rank { rank: Rank::new(0), status });
    let killed = |sig| rank(Status::Signaled { sig, core: false });
    let lost = |lost| Cause::Lost { node: NodeId::new(0), lost };
    let preempted = Cause::Preempted { node: NodeId::new(0), lost: Lost::NoHeartbeat };
    let kills: Vec<String> =
        [Signal::KILL, Signal::SEGV, Signal::TERM].map(|sig| format!("{} for {sig}", killed(sig))).into();
    let rows = [
        (shell(Cause::Success).to_string(), "every rank exited with 0".to_owned()),
        (format!("N, as {}", rank(Status::Exited(3))), "a rank exited with N, and N is not 0".to_owned()),
        ("128 + N".to_owned(), format!("signal N killed a rank: {}", kills.join(", "))),
        (
            exit::UNWRITTEN.to_string(),
            "the output of help, `map`, `hosts`, `assign` or `doctor` cannot be written".to_owned(),
        ),
        (exit::USAGE.to_string(), "an option, a value or a hostfile is wrong; no rank was started".to_owned()),
        (
            shell(preempted).to_string(),
            "a host was warned, or lost with all N of `--preempt-retries N` used up; or too few slices are up"
                .to_owned(),
        ),
        (shell(Cause::Timeout { limit: Span::ZERO }).to_string(), "`--timeout` expired".to_owned()),
        (
            shell(lost(Lost::NoHeartbeat)).to_string(),
            "the launch failed, a host was lost without a warning, or a part of rlaunch was lost".to_owned(),
        ),
        (
            Cause::Success.exit(true).shell_code().to_string(),
            "every rank exited with 0, but output was lost".to_owned(),
        ),
        (exit::NOT_EXECUTABLE.to_string(), "the program exists but cannot be executed".to_owned()),
        (exit::NOT_FOUND.to_string(), "the program does not exist".to_owned()),
        (shell(Cause::Signal(Signal::HUP)).to_string(), "rlaunch got SIGHUP: the terminal closed".to_owned()),
        (shell(Cause::Signal(Signal::INT)).to_string(), "rlaunch got SIGINT: Ctrl-C".to_owned()),
        (shell(Cause::Signal(Signal::QUIT)).to_string(), "rlaunch got SIGQUIT: Ctrl-\\".to_owned()),
        (shell(Cause::ReaderClosed(Std::Out)).to_string(), "the reader of stdout or stderr closed it".to_owned()),
        (
            shell(Cause::Scheduler { scheduler: Scheduler::Slurm, sig: Signal::TERM }).to_string(),
            "rlaunch got SIGTERM, or Slurm ended its job (time limit, `scancel`, requeue, a failed node)".to_owned(),
        ),
    ];
    let row = |(code, cause): (String, String)| format!("| {code} | {cause} |\n");
    format!("| code | first cause |\n|---|---|\n{}", rows.map(row).concat())
}

/// The golden log has a line for each record, in each of its forms.
#[test]
fn events_page_has_the_fields_of_each_record() {
    let log = fs::read_to_string(root().join("tests/golden/events/v1.ndjson")).unwrap();
    let mut records: Vec<(String, Vec<String>)> = Vec::new();
    for line in log.lines() {
        let serde_json::Value::Object(fields) = serde_json::from_str(line).unwrap() else { panic!("{line}") };
        let name = fields["ev"].as_str().unwrap().to_owned();
        let at = records.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            records.push((name, Vec::new()));
            records.len() - 1
        });
        for field in fields.keys().filter(|field| !["v", "t", "wall", "ev"].contains(&field.as_str())) {
            if !records[at].1.contains(field) {
                records[at].1.push(field.clone());
            }
        }
    }
    records.sort();
    let page = reference("events");
    let text = fs::read_to_string(&page).unwrap();
    let mut table = String::from("| record | fields |\n|---|---|\n");
    for (name, mut fields) in records {
        fields.sort();
        for field in &fields {
            let explained = text
                .lines()
                .any(|line| line.split('|').nth(1).is_some_and(|cell| cell.split('`').any(|word| word == field)));
            assert!(explained, "docs/reference/events.md has no row for the field {field} of {name}");
        }
        let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
        table += &format!("| `{name}` | {} |\n", fields.join(", "));
    }
    compare(&page, "fields", &table);
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
