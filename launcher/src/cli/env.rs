//! Options about the environment of the ranks.

use super::errors::CliError;
use super::scan::Given;
use super::table::options;
use rlaunch_protocol::env::Export;

options! {
    Env, "Environment", "environment";
    Export -b'x' ["env", "export"] One("VAR[=VALUE]"): "set a variable, or keep yours where rlaunch sets it",
        "Your environment travels, except for what rlaunch",
        "sets for each rank and what would make ranks of ours",
        "take themselves for those of an outer launcher.",
        "-x VAR and -x 'VAR*' keep yours of these names.";
    Pair ["genv"] Pair("VAR VALUE"): "the same as -x VAR=VALUE, for all programs",
        "-env VAR VALUE: for the program after it (Hydra).";
}

#[derive(Debug, Default)]
pub(super) struct Args {
    /// `-x`, `-env`.
    pub(super) exports: Vec<Export>,
    /// `-genv`: for all programs.
    pub(super) shared: Vec<Export>,
}

impl Args {
    pub(super) fn take(&mut self, opt: Opt, given: Given) -> Result<(), CliError> {
        match opt {
            // srun's --export=ALL is what happens anyway; its NONE is not.
            Opt::Export if given.spelled.as_slice() == b"--export" && given.value.as_slice() == b"ALL" => {}
            Opt::Export if given.spelled.as_slice() == b"--export" && given.value.as_slice() == b"NONE" => {
                return Err(CliError::NotYet { what: "--export NONE".into(), hint: Some("env -i rlaunch ...".into()) });
            }
            Opt::Export | Opt::Pair => {
                let export = Export::parse(&given.value)
                    .map_err(|source| CliError::Export { option: given.spelled.clone(), source })?;
                // Hydra's -env, which takes two words as well, is for its program.
                let is_shared = opt == Opt::Pair && given.spelled.as_slice() != b"-env";
                if is_shared { &mut self.shared } else { &mut self.exports }.push(export);
            }
        }
        Ok(())
    }
}
