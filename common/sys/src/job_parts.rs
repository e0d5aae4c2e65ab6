//! The parts of a job on this host: guardian and agent hold an abstract unix name until nothing of the job is left.
//!
//! The name is that of a listener that accepts no connection. A connection to it waits there, and the kernel ends it together with the
//! last holder of the name. So the end of a job is an event. A name has a random end: a stranger cannot take it first.

use crate::{abstract_name, fd};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

/// Connections that may wait: the pools of a user, and strangers.
const QUEUE: i32 = 64;
/// From look to look at a part to which too many have connected.
const LATER: Duration = Duration::from_millis(50);

/// Takes the name of a part of a job.
pub(crate) fn hold(part: &str) -> io::Result<OwnedFd> {
    let listener = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let end = u64::from_ne_bytes(crate::random::bytes()?);
    bind(listener.as_raw_fd(), &UnixAddr::new_abstract(format!("rlaunch-job-{part}-{end:016x}").as_bytes())?)?;
    listen(&listener, Backlog::new(QUEUE)?)?;
    Ok(listener)
}

/// Waits until nothing of a job is left here. Returns whether that is so: not after this time, and not once `stop` has something to read or
/// has ended.
///
/// # Errors
/// The table of sockets cannot be read.
pub fn wait_for_end(job: &str, within: Duration, stop: &impl AsFd) -> io::Result<bool> {
    let until = Instant::now() + within;
    loop {
        let names = abstract_name::held(&format!("rlaunch-job-{job}-"))?;
        let left = until.saturating_duration_since(Instant::now());
        if names.is_empty() || left.is_zero() {
            return Ok(names.is_empty());
        }
        let parts: Vec<io::Result<OwnedFd>> = names.iter().map(|name| attach(name)).collect();
        let is_blind = parts.iter().any(Result::is_err);
        let parts: Vec<OwnedFd> = parts.into_iter().filter_map(Result::ok).collect();
        let all: Vec<_> = parts.iter().map(AsFd::as_fd).chain([stop.as_fd()]).collect();
        fd::wait_for_any(&all, Some(if is_blind { left.min(LATER) } else { left }));
        if fd::readable_now(stop) {
            return Ok(false);
        }
    }
}

/// Connects to a name, and never waits for that.
fn attach(name: &str) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let stream = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(stream.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job of a test.
    fn job(name: &str) -> String {
        format!("test-{name}-{}", std::process::id())
    }

    /// Reads an end of a pipe that stays open.
    fn never() -> (io::PipeReader, io::PipeWriter) {
        io::pipe().unwrap()
    }

    #[test]
    fn end_of_a_job_is_seen_when_the_last_holder_of_the_last_part_has_ended() {
        let job = job("parts");
        let (stop, _open) = never();
        assert!(wait_for_end(&job, Duration::ZERO, &stop).unwrap(), "there is none");
        let (first, second) = (hold(&format!("{job}-0")).unwrap(), hold(&format!("{job}-1")).unwrap());
        let _other = hold(&format!("{job}x-0")).unwrap();
        let agent = first.try_clone().unwrap();
        assert!(!wait_for_end(&job, Duration::ZERO, &stop).unwrap());
        crate::thread::permanent("ends", move || {
            drop((first, second));
            drop(agent);
        })
        .unwrap();
        assert!(wait_for_end(&job, Duration::from_secs(60), &stop).unwrap());
    }

    #[test]
    fn part_with_too_many_connections_is_looked_at_again() {
        let job = job("blind");
        let (stop, _open) = never();
        let listener = hold(&format!("{job}-0")).unwrap();
        let name = &abstract_name::held(&format!("rlaunch-job-{job}-")).unwrap()[0];
        let many: Vec<OwnedFd> = std::iter::from_fn(|| attach(name).ok()).take(500).collect();
        assert!(attach(name).is_err() && !many.is_empty());
        assert!(!wait_for_end(&job, Duration::from_millis(1), &stop).unwrap());
        drop(listener);
        assert!(wait_for_end(&job, Duration::ZERO, &stop).unwrap());
    }

    #[test]
    fn name_of_another_user_keeps_no_job_alive() {
        let job = job("squat");
        let (stop, _open) = never();
        let Some(mut child) = abstract_name::tests::stranger(&format!("rlaunch-job-{job}-99")) else { return };
        assert!(wait_for_end(&job, Duration::ZERO, &stop).unwrap());
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn wait_ends_with_its_caller() {
        let job = job("stop");
        let _held = hold(&format!("{job}-0")).unwrap();
        let (stop, open) = never();
        drop(open);
        assert!(!wait_for_end(&job, Duration::from_secs(60), &stop).unwrap());
    }
}
