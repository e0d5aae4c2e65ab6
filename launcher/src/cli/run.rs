//! Options about what is run.

use super::errors::CliError;
use super::scan::Given;
use super::table::{Group, Id, Row, Takes};
use super::values;
use super::worlds;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::place::MOST_RANKS;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opt {
    Ranks,
    Wdir,
    Name,
    Group,
    Share,
    Tied,
    Lead,
    Programs,
    MultiProg,
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
        Row {
            id: Id::Run(Opt::Group),
            short: None,
            names: &["group"],
            takes: Takes::One("NAME"),
            brief: "make it a world with its own RANK and MASTER_PORT",
            more: &["Its ranks are called NAME/0, NAME/1.", "More: docs/guides/groups.md."],
        },
        Row {
            id: Id::Run(Opt::Share),
            short: None,
            names: &["share"],
            takes: Takes::One("NAME"),
            brief: "run on the slots and devices of the group NAME",
            more: &[],
        },
        Row {
            id: Id::Run(Opt::Tied),
            short: None,
            names: &["tied"],
            takes: Takes::One("N"),
            brief: "tie N ranks of the group (RLAUNCH_TIED_RANK)",
            more: &[],
        },
        Row {
            id: Id::Run(Opt::Lead),
            short: None,
            names: &["lead"],
            takes: Takes::Nothing,
            brief: "end the job with this program, and with its code",
            more: &["Others get SIGTERM, and SIGKILL after --grace."],
        },
        Row {
            id: Id::Run(Opt::Programs),
            short: None,
            names: &["configfile", "app"],
            takes: Takes::One("FILE"),
            brief: "programs from a file: a line for each, as before ':'",
            more: &[],
        },
        Row {
            id: Id::Run(Opt::MultiProg),
            short: None,
            names: &["multi-prog"],
            takes: Takes::Nothing,
            brief: "PROGRAM is srun's file: 0-2,4 PROGRAM ARGS",
            more: &["In ARGS %t is the rank, %o its number in the line."],
        },
    ],
};

#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) n: Option<u32>,
    pub(super) wdir: Option<OsBytes>,
    pub(super) name: Option<OsBytes>,
    pub(super) world: worlds::Own,
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
            Opt::Name if !is_name(&given.value) => return Err(no_name(given)),
            Opt::Group | Opt::Share if !is_name(&given.value) => return Err(no_name(given)),
            Opt::Group => self.world.group = Some((given.spelled, given.value)),
            Opt::Share => self.world.share = Some((given.spelled, given.value)),
            Opt::Tied => {
                let tied = values::count(&given.spelled, &given.value, MOST_RANKS)?;
                self.world.tied = Some((given.spelled, tied));
            }
            // The first one of a line has been replaced by the words of its file.
            Opt::Programs | Opt::MultiProg => {
                let (at, what) = (given.spelled.to_string(), "a command line has one file of programs".into());
                return Err(CliError::Assign { at, what, hint: Some("all programs in that file".into()) });
            }
            Opt::Lead => self.world.lead = Some(given.spelled),
            Opt::Name => self.name = Some(given.value),
        }
        Ok(())
    }
}

fn no_name(Given { spelled: option, value: got, .. }: Given) -> CliError {
    let hint = Some(values::spell(&option, "worker").into());
    CliError::Value { option, takes: "up to 64 letters, digits, '-', '_' and '.'".into(), got, hint }
}

fn is_name(value: &OsBytes) -> bool {
    (1..=64).contains(&value.len()) && value.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}
