//! The command: reads its words, starts the job, and ends as the job did.
#![forbid(unsafe_code)]

#[expect(dead_code, unused_imports, reason = "the start-up that runs what was parsed comes with the driver")]
mod cli;

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = std::env::args_os().skip(1).collect();
    match cli::parse(args, &|name| std::env::var_os(name)) {
        Ok(cli::Command::Help(text) | cli::Command::Version(text)) => {
            // A reader that closes early has what it wanted.
            std::io::stdout().write_all(text.as_bytes()).map_or(ExitCode::from(1), |()| ExitCode::SUCCESS)
        }
        Ok(cli::Command::Run(_)) => ExitCode::from(rlaunch_core::exit::LAUNCH),
        Err(error) => {
            // Where stderr is closed the exit code has to do.
            std::io::stderr().write_all(error.render().as_bytes()).unwrap_or_default();
            ExitCode::from(error.exit_code())
        }
    }
}
