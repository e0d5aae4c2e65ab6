//! `rlaunch pool exec --detach`: a job in the background, whose output is left in a directory.
//!
//! The process splits before anything else: the one that was called prints the name of the job, and the other one becomes its launcher.

use super::client;
use crate::cli;
use crate::start::{Began, answer, fail, say};
use crate::view::phrases;
use rlaunch_core::id::JobId;
use rlaunch_core::wire::frozen::pool::PoolRequest;
use rlaunch_sys::background::{self, Side};
use rlaunch_sys::origin::Origin;
use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

/// Splits off the launcher of a detached job. Returns its words; those of any other command as they are. `Err`: the exit code of the
/// process that was called.
pub(crate) fn split(args: Vec<OsString>, began: Began, origin: &Origin) -> Result<(Vec<OsString>, Began), u8> {
    if !cli::is_exec(&args) {
        return Ok((args, began));
    }
    // Mistakes are reported where the words are read for a job.
    let Ok(Some(plan)) = cli::pool_exec(args.clone()) else { return Ok((args, began)) };
    if !plan.is_detached {
        return Ok((args, began));
    }
    origin
        .interruptibly(|| client::request(&plan.name, &PoolRequest::Status))
        .map_err(|error| super::explain(&error))?;
    let cannot =
        |error: io::Error| fail(&format!("cannot start a job in the background: {}", phrases::shortage(&error)));
    let job = rlaunch_sys::random::bytes().map(JobId).map_err(cannot)?;
    let directory = PathBuf::from(format!("rlaunch-{}", job.short()));
    DirBuilder::new().mode(0o700).create(&directory).map_err(|error| {
        fail(&format!("cannot make the directory {}: {}", directory.display(), rlaunch_sys::reason(&error)))
    })?;
    match background::split().map_err(cannot)? {
        Side::Front { .. } => {
            say(&format!("rlaunch: output of job {} goes to {}\n", job.short(), directory.display()));
            Err(answer(format!("{}\n", job.short()).as_bytes()))
        }
        Side::Back { .. } => {
            let log = OpenOptions::new().create(true).append(true).open(directory.join("log"));
            log.and_then(|log| background::write_to(&log.into())).map_err(cannot)?;
            let mut words: Vec<OsString> = plan.job_words();
            for (option, name) in [("-o", "out"), ("-e", "err"), ("--events", "events")] {
                words.extend([option.into(), directory.join(name).into()]);
            }
            words.push("-l".into());
            Ok((plan.with_command(words), Began { job: Some(job), ..began }))
        }
    }
}
