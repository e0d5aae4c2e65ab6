//! Options about what is run.

use super::errors::CliError;
use super::scan::Given;
use super::table::{Group, Id, Row, Takes};
use super::values;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::place::MOST_RANKS;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opt {
    Ranks,
    Wdir,
    Name,
}

pub(super) const GROUP: Group = Group {
    title: "What to run",
    topic: "program",
    rows: &[
        Row {
            id: Id::Run(Opt::Ranks),
            short: Some(b'n'),
            names: &["n", "np", "ntasks"],
            takes: Takes::One("N"),
            brief: "start N ranks (default: all slots, else 1)",
            more: &["Also -np N, --ntasks N."],
        },
        Row {
            id: Id::Run(Opt::Wdir),
            short: None,
            names: &["wdir", "wd", "chdir"],
            takes: Takes::One("DIR"),
            brief: "working directory of the ranks (default: this one)",
            more: &["A PROGRAM with a / is looked for from there.", "Also -wdir DIR, --chdir DIR."],
        },
        Row {
            id: Id::Run(Opt::Name),
            short: None,
            names: &["name", "role"],
            takes: Takes::One("NAME"),
            brief: "call this program NAME (ROLE_NAME of its ranks)",
            more: &[],
        },
    ],
};

#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) n: Option<u32>,
    pub(super) wdir: Option<OsBytes>,
    pub(super) name: Option<OsBytes>,
}

impl Args {
    pub(super) fn take(&mut self, opt: Opt, given: Given) -> Result<(), CliError> {
        match opt {
            Opt::Ranks => self.n = Some(values::count(&given.spelled, &given.value, MOST_RANKS)?),
            Opt::Wdir if given.value.is_empty() => {
                return Err(CliError::Value {
                    option: given.spelled,
                    takes: "a directory".into(),
                    got: given.value,
                    hint: Some("leave it out for this one".into()),
                });
            }
            Opt::Wdir => self.wdir = Some(given.value),
            Opt::Name if !is_name(&given.value) => {
                return Err(CliError::Value {
                    option: given.spelled,
                    takes: "up to 64 letters, digits, '-', '_' and '.'".into(),
                    got: given.value,
                    hint: None,
                });
            }
            Opt::Name => self.name = Some(given.value),
        }
        Ok(())
    }
}

fn is_name(value: &OsBytes) -> bool {
    (1..=64).contains(&value.len()) && value.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}
