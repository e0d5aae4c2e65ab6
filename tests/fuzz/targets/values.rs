//! Values of options: lengths of time, prefixes, exports, patterns, lists of hosts with groups, and any bytes made visible.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rlaunch_base::duration;
use rlaunch_base::error::Hint as _;
use rlaunch_base::id::{AppIndex, LocalRank, Rank, Std};
use rlaunch_base::os_bytes::{OsBytes, Visible};
use rlaunch_plan::hostlist::groups::{self, Commands, GroupFault, GroupName};
use rlaunch_plan::hostlist::{self, Outside};
use rlaunch_protocol::env::{Export, base};
use rlaunch_protocol::stream::label::{MAX_LABEL, Prefix, Who};
use std::time::Duration;

fn prefix(format: &[u8]) {
    match Prefix::parse(format) {
        Ok(prefix) => {
            for host in [None, Some(&b"a-host"[..]), Some(&[0xff; 300])] {
                let ids = (Rank::new(u32::MAX), LocalRank::new(7), AppIndex::new(0));
                let (rank, local_rank, app) = ids;
                let who = Who { rank, local_rank, app, host, pid: Some(1), std: Std::Err, group: b"" };
                if let Ok(label) = prefix.render(&who) {
                    assert!(label.as_slice().len() <= MAX_LABEL);
                }
            }
        }
        Err(error) => drop(format!("{error}{}", error.hint().unwrap_or_default())),
    }
}

/// Exports against an environment, none of which may take long.
fn exports(data: &[u8]) {
    let mut words = data.split(|b| *b == b'\n');
    let export = words.next().map(Export::parse);
    if let Some(Err(error)) = &export {
        drop(format!("{error}{}", error.hint().unwrap_or_default()));
    }
    let exports: Vec<Export> = export.into_iter().flatten().collect();
    let start = run_time();
    drop(base(words, &exports));
    assert!((run_time() - start) < Duration::from_secs(2), "a pattern that takes for ever");
}

/// A list of hosts, and the output of nodeset for each group.
struct Site<'a>(&'a [u8]);

impl Commands for Site<'_> {
    fn run(&self, _command: &str, _directory: &str) -> Result<Vec<u8>, String> {
        Ok(self.0.to_vec())
    }
}

impl Outside for Site<'_> {
    fn file(&mut self, _path: &str) -> Result<Vec<u8>, String> {
        Ok(b"@g\nn1".to_vec())
    }

    fn group(&mut self, name: &GroupName) -> Result<String, GroupFault> {
        groups::hosts(name, self)
    }
}

fn lists_with_groups(data: &[u8]) {
    let mut parts = data.splitn(2, |b| *b == 0);
    let mut next = || parts.next().unwrap_or_default();
    let (list, mut site) = (next(), Site(next()));
    let start = run_time();
    if let Err(error) = hostlist::lists([("-H", list)], &mut site) {
        drop(format!("{error}{}", error.hint().unwrap_or_default()));
    }
    assert!(run_time() - start < Duration::from_secs(2), "groups that take for ever");
}

/// How long this thread has run (proc_pid_schedstat): however busy the machine is with something else.
fn run_time() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(schedstat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind {
        b'd' => {
            if let Some(span) = duration::parse(rest) {
                drop(span.to_string());
            }
        }
        b'g' => lists_with_groups(rest),
        b'p' => prefix(rest),
        b'x' => exports(rest),
        b'v' => {
            let shown = format!("{}{}", Visible(rest), OsBytes::from(rest));
            assert!(!shown.chars().any(char::is_control), "a terminal must not see {shown:?}");
        }
        _ => {}
    }
});
