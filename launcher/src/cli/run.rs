//! Options about what is run.

use super::errors::CliError;
use super::scan::Given;
use super::table::options;
use super::{values, worlds};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::place::MOST_RANKS;

options! {
    Run, "What to run", "program";
    Ranks -b'n' ["n", "np", "ntasks"] One("N"): "start N ranks (default: all slots, else 1)",
        "Also -np N, --ntasks N.";
    Wdir ["wdir", "wd", "chdir"] One("DIR"): "working directory of the ranks (default: this one)",
        "A PROGRAM with a / is looked for from there.",
        "Also -wdir DIR, --chdir DIR.";
    Name ["name", "role"] One("NAME"): "call this program NAME (ROLE_NAME of its ranks)";
    Group ["group"] One("NAME"): "make it a world with its own RANK and MASTER_PORT",
        "Its ranks are called NAME/0, NAME/1.",
        "More: docs/guides/groups.md.";
    Share ["share"] One("NAME"): "run on the slots and devices of the group NAME";
    Tied ["tied"] One("N"): "tie N ranks of the group (RLAUNCH_TIED_RANK)";
    Lead ["lead"] Nothing: "end the job with this program, and with its code",
        "Others get SIGTERM, and SIGKILL after --grace.";
    Programs ["configfile", "app"] One("FILE"): "programs from a file: a line for each, as before ':'";
    MultiProg ["multi-prog"] Nothing: "PROGRAM is srun's file: 0-2,4 PROGRAM ARGS",
        "In ARGS %t is the rank, %o its number in the line.";
}

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
