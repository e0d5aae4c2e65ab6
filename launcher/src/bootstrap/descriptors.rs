//! Whether there are descriptors for all hosts: found out before the first of them is reached.

use rlaunch_base::error::Hint;
use rlaunch_sys::origin::Origin;
use std::borrow::Cow;

/// Descriptors of a host that is up: its edge, the same for when it is full, its carrier's stderr and pidfd. A host that is being reached
/// takes no more.
const EACH: u64 = 4;
/// Descriptors that the launcher may open beside them: readiness sets, signals, the event log, the binary, both ends of a carrier's streams.
const OTHERS: u64 = 64;

/// More hosts than descriptors may be had for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{hosts} hosts take {need} open files here, and the limit cannot be raised beyond {most}")]
pub(crate) struct TooFewDescriptors {
    hosts: u64,
    need: u64,
    most: u64,
}

impl Hint for TooFewDescriptors {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let Self { need, .. } = self;
        Some(format!("fewer hosts, or a hard limit that allows ulimit -n {need} (limits.conf, LimitNOFILE=)").into())
    }
}

/// For so many hosts that are reached by a carrier. The soft limit is raised for them.
pub(crate) fn check(hosts: usize, origin: &Origin) -> Result<(), TooFewDescriptors> {
    // If /proc is missing, `OTHERS` covers the inherited descriptors.
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    fits(hosts as u64, open as u64, origin.nofile.rlim_max)
}

const fn fits(hosts: u64, open: u64, most: u64) -> Result<(), TooFewDescriptors> {
    let need = hosts * EACH + open + OTHERS;
    if need > most { Err(TooFewDescriptors { hosts, need, most }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_hosts_fit_where_limits_are_low() {
        assert_eq!(fits(1_000, 10, 4_096), Ok(()));
        let error = fits(1_000, 10, 1_024).unwrap_err();
        assert_eq!(
            error.to_string(),
            "1000 hosts take 4074 open files here, and the limit cannot be raised beyond 1024"
        );
        assert!(error.hint().is_some_and(|hint| hint.contains("ulimit -n 4074")));
    }
}
