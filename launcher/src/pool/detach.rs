//! `rlaunch pool exec --detach`: a job in the background, whose output is left in a directory.
//!
//! The process splits before anything else, and the new process becomes the launcher. The process that was called prints the name of the
//! job once the job has its hosts, or waits for them. If the job gets none, its error is printed, and its directory removed.

use super::client;
use crate::began::Began;
use crate::cli;
use crate::print::{answer, fail, say};
use crate::view::phrases;
use rlaunch_base::exit;
use rlaunch_base::id::JobId;
use rlaunch_protocol::wire::frozen::pool::PoolRequest;
use rlaunch_sys::background::{self, Side};
use rlaunch_sys::fd;
use rlaunch_sys::origin::Origin;
use rlaunch_sys::pidfd::{self, How};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, IntoRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The process that was called, while it waits for the outcome of a detached job, or of the start of a pool.
#[derive(Debug, Default)]
pub(crate) struct Caller(pub(super) Option<OwnedFd>);

impl Caller {
    /// In a process of ours that has closed all descriptors but its own, by their numbers.
    pub(crate) fn forget(self) {
        let _closed = self.0.map(IntoRawFd::into_raw_fd);
    }

    pub(super) const fn is_elsewhere(&self) -> bool {
        self.0.is_some()
    }

    /// Reports once that the pool is up, or that the job has its hosts, or why it waits for them. Returns whether that was read.
    pub(crate) fn report(&mut self, text: &str, is_well: bool) -> bool {
        let end = if is_well { '\0' } else { '\u{1}' };
        self.0.take().is_none_or(|news| fd::write(news.as_raw_fd(), format!("{text}{end}").as_bytes()).is_ok())
    }
}

/// A launcher: its words, its start, and the process that waits for its hosts.
type Split = (Vec<OsString>, Began, Caller);

/// Splits off the launcher of a detached job. Returns its words; those of any other command as they are. `Err`: the exit code of the
/// process that was called.
pub(crate) fn split(args: Vec<OsString>, began: Began, origin: &Origin) -> Result<Split, u8> {
    if !cli::is_exec(&args) {
        return Ok((args, began, Caller::default()));
    }
    // Mistakes are reported where the words are read for a job.
    let Ok(Some(plan)) = cli::pool_exec(args.clone()) else { return Ok((args, began, Caller::default())) };
    if !plan.is_detached {
        return Ok((args, began, Caller::default()));
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
        Side::Front { pid, news } => Err(origin.interruptibly(|| wait(job, &directory, pid, news))),
        Side::Back { news } => {
            let log = OpenOptions::new().create(true).append(true).open(directory.join("log"));
            log.and_then(|log| background::write_to(&log.into())).map_err(|error| {
                let text = format!("error: the log of the job cannot be written: {}\n", rlaunch_sys::reason(&error));
                // Without a reader the user has left.
                let _unread = fd::write(news.as_raw_fd(), text.as_bytes());
                exit::LAUNCH
            })?;
            let mut words: Vec<OsString> = plan.job_words();
            for (option, name) in [("-o", "out"), ("-e", "err"), ("--events", "events")] {
                words.extend([option.into(), directory.join(name).into()]);
            }
            words.push("-l".into());
            Ok((plan.with_command(words), Began { job: Some(job), ..began }, Caller(Some(news))))
        }
    }
}

/// The outcome, for the user. Returns the exit code.
fn wait(job: JobId, directory: &Path, pid: u32, news: OwnedFd) -> u8 {
    let mut text = Vec::new();
    let _cut = File::from(news).read_to_end(&mut text);
    if let Some((0, text)) = text.split_last() {
        say(&String::from_utf8_lossy(text));
        say(&format!("rlaunch: output of job {} goes to {}\n", job.short(), directory.display()));
        return answer(format!("{}\n", job.short()).as_bytes());
    }
    say(&String::from_utf8_lossy(&text));
    say(&String::from_utf8_lossy(&fs::read(directory.join("log")).unwrap_or_default()));
    let _kept = fs::remove_dir_all(directory);
    let process = i32::try_from(pid).ok().and_then(|pid| pidfd::open(pid).ok());
    let ended = process.and_then(|process| {
        fd::wait_for_any(&[process.as_fd()], None);
        pidfd::ended(&process, true).ok().flatten()
    });
    match ended.map(|ended| ended.how) {
        Some(How::Code(code @ 1..)) => code,
        Some(How::Signal { number, .. }) => fail(&format!("the launcher of the job was killed by signal {number}")),
        Some(How::Code(0)) | None => exit::LAUNCH,
    }
}
