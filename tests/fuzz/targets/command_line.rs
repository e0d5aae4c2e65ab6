//! Any words as a command line, with any environment behind them: a job, a text, or an error that fits a terminal.
#![no_main]
#![allow(dead_code, unused_imports, reason = "the launcher's own modules, of which not all is used here")]

#[path = "../../../launcher/src/view/assign.rs"]
mod assigned;
#[path = "../../../launcher/src/cli/mod.rs"]
mod cli;
#[path = "../../../launcher/src/view/phrases.rs"]
mod phrases;
mod view {
    pub(crate) use crate::{assigned as assign, phrases};
}

use libfuzzer_sys::fuzz_target;
use rlaunch_base::error::Hint as _;
use rlaunch_base::id::JobId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::hostlist::groups::Commands;
use rlaunch_plan::place::Here;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

/// Files have the names of variables; none of their commands prints anything.
struct Given<'a>(&'a dyn Fn(&str) -> Option<OsString>);

impl Commands for Given<'_> {
    fn run(&self, _command: &str, _directory: &str) -> Result<Vec<u8>, String> {
        Err("exits with 1".to_owned())
    }
}

fuzz_target!(|data: &[u8]| {
    let words: Vec<OsString> = data.split(|b| *b == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
    // Words with a tab before them are variables.
    let (variables, words): (Vec<_>, Vec<_>) =
        words.into_iter().partition(|word| word.as_encoded_bytes().starts_with(b"\t"));
    let lookup = |name: &str| {
        let start = [b"\t", name.as_bytes(), b"="].concat();
        let found = variables.iter().find_map(|word| word.as_encoded_bytes().strip_prefix(start.as_slice()));
        found.map(|value| OsString::from_vec(value.to_vec()))
    };
    let _forks = cli::is_job(&words);
    // A file that a word names has the text of a variable.
    let read = |_: &OsBytes| Ok(variables.first().map(|word| word.as_encoded_bytes().to_vec()).unwrap_or_default());
    match cli::parse(words, &lookup, &read) {
        Ok(cli::Command::Run(run)) => {
            let caller = variables.iter().filter_map(|word| word.as_encoded_bytes().get(1..));
            let given = Given(&lookup);
            let site = cli::Site {
                units: &|_| 1,
                here: Here { name: "here".to_owned(), cpus: 2 },
                gpus: &|| Some(0),
                ask: &|_, _| Ok(Vec::new()),
                read: &|_| Ok(b"node[01-02] slots=2\n".to_vec()),
                is_file: &|_| false,
                near: &|_| None,
                runs: &|_| None,
                has_input: &|| true,
                directory: &|| Some("/home".into()),
                env: &lookup,
                groups: &cli::Known::new(&given),
                turn: &|_| Err(std::io::ErrorKind::Unsupported.into()),
            };
            if let Ok(plan) = run.into_plan(JobId([1; 16]), caller, &site) {
                assert!(plan.job.world_size() > 0 && plan.job.apps.iter().all(|app| !app.base.argv.is_empty()));
                assert_eq!(plan.job.placement.ranks.len(), plan.job.world_size() as usize);
            }
        }
        // Policies have a target of their own.
        Ok(cli::Command::Doctor(_) | cli::Command::Pool(_)) => {}
        Ok(cli::Command::Answer(cli::Answer::Text(text))) => assert!(text.ends_with('\n')),
        Ok(cli::Command::Answer(_)) => {}
        Err(error) => {
            let text = format!("{error}{}", error.hint().unwrap_or_default());
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "a terminal must not see {text:?}");
        }
    }
});
