//! `rlaunch pool up`: the process that starts a pool, and waits until its hosts were reached.

use super::client;
use super::detach::Caller;
use super::events::Events;
use super::links::Links;
use super::pool_directory::{self, Owner, PoolDirectory};
use super::server::Server;
use crate::cli::{PoolUp, slots_of};
use crate::edges::now;
use crate::print::{fail, say};
use crate::view::phrases;
use rlaunch_base::exit;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Mono;
use rlaunch_plan::bootstrap::{Carrier, SshOptions};
use rlaunch_plan::hostlist::Entry;
use rlaunch_protocol::wire::frozen::pool::{PoolReply, PoolRequest};
use rlaunch_sys::background::{self, Side};
use rlaunch_sys::origin::Origin;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;

/// Everything, to the exit code.
pub(super) fn run(name: &str, plan: &PoolUp, (hosts, sizes): (Vec<Entry>, Vec<u32>), origin: Origin) -> u8 {
    if let Some(wrong) = origin.interruptibly(|| in_other_pool(name, &hosts)) {
        return fail(&wrong);
    }
    let mut caller = Caller::default();
    if !plan.is_foreground {
        caller = match background::split() {
            Ok(Side::Front { news, .. }) => return origin.interruptibly(|| wait(name, news)),
            Ok(Side::Back { news }) => Caller(Some(news)),
            Err(error) => return fail(&format!("the pool {name} cannot be started: {}", phrases::shortage(&error))),
        };
    }
    match serve((name, plan), (hosts, sizes), origin, &mut caller) {
        Ok(code) => code,
        Err(why) => {
            report_to(&mut caller, &format!("error: {why}\n"), false);
            exit::LAUNCH
        }
    }
}

/// Reports the outcome to the user: by the process that was called, or here. Returns whether it was read.
fn report_to(caller: &mut Caller, text: &str, is_up: bool) -> bool {
    if !caller.is_elsewhere() {
        say(text);
    }
    caller.report(text, is_up)
}

/// The caller's process: prints what the other one reports, until that is up or has failed.
fn wait(name: &str, news: OwnedFd) -> u8 {
    let mut text = Vec::new();
    let _cut = File::from(news).read_to_end(&mut text);
    match text.split_last() {
        Some((0, text)) => {
            say(&String::from_utf8_lossy(text));
            0
        }
        Some((1, text)) => {
            say(&String::from_utf8_lossy(text));
            exit::LAUNCH
        }
        Some(_) | None => fail(&format!("the process of the pool {name} was killed while it reached its hosts")),
    }
}

/// The pool's life. The errors are those of its start.
fn serve(
    (name, plan): (&str, &PoolUp),
    (hosts, sizes): (Vec<Entry>, Vec<u32>),
    origin: Origin,
    caller: &mut Caller,
) -> Result<u8, String> {
    let directory = PoolDirectory::of(name);
    let cannot = |error: io::Error| format!("the pool {name} cannot be started: {}", rlaunch_sys::reason(&error));
    let lock = match directory.take(now().nanos()) {
        Ok(Ok(lock)) => lock,
        Ok(Err(owner)) => return Err(taken(name, owner)),
        Err(error) if error.kind() == io::ErrorKind::Other => {
            let why = rlaunch_sys::reason(&error);
            return Err(super::described(&client::PoolError::Unsafe { name: name.to_owned(), why }));
        }
        Err(error) => return Err(cannot(error)),
    };
    if caller.is_elsewhere() {
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(directory.log()).map_err(cannot)?;
        background::write_to(&log.into()).map_err(cannot)?;
    }
    let events = Events::open(plan.events.as_ref()).map_err(|error| {
        let path = plan.events.clone().unwrap_or_default();
        format!("cannot open the event log {path}: {}", rlaunch_sys::reason(&error))
    })?;
    rlaunch_sys::origin::raise_nofile(&origin);
    let options = match plan.reach.carrier(plan.reach.fast) {
        Carrier::Ssh(options) => options,
        Carrier::Srun(_) | Carrier::Exec(_) => SshOptions::default(),
    };
    let links = Links::new(options, plan.reach.limit, origin).map_err(cannot)?;
    let parts = (directory.clone(), lock, events);
    let mut server = Server::new(parts, links, (plan.idle, sizes), &origin.watched()).map_err(cannot)?;
    server.add(hosts).map_err(|refusal| format!("the pool {name} {}", super::show::refusal(&refusal)))?;
    server.run(true);
    server.log_up();
    let (count, lost) = server.reached();
    let text = report(name, (count, server.slice_count()), &lost, &directory);
    let is_up = count > 0;
    // Without a reader the user has left, and knows nothing of the pool.
    if !report_to(caller, &text, is_up) || !is_up {
        server.end(true);
    }
    server.run(false);
    server.finish();
    Ok(if is_up { 0 } else { exit::LAUNCH })
}

/// The error about a pool that is up already.
fn taken(name: &str, Owner { pid, began }: Owner) -> String {
    let age = now().since(Mono::from_nanos(began));
    format!(
        "the pool {name} is up already: pid {pid}, for {age}\n  try     rlaunch pool status {name}\n          rlaunch pool down {name}"
    )
}

/// The outcome for the user.
fn report(
    name: &str,
    (count, slices): (usize, usize),
    lost: &[(OsBytes, OsBytes)],
    directory: &PoolDirectory,
) -> String {
    let mut text = match count {
        0 => format!("error: the pool {name} has no host: none was reached\n"),
        _ => {
            let (hosts, pid) = (phrases::count(count as u64, "host"), std::process::id());
            let of =
                if slices == 0 { String::new() } else { format!(" of {}", phrases::count(slices as u64, "slice")) };
            format!("rlaunch: the pool {name} is up with {hosts}{of} (pid {pid})\n")
        }
    };
    for (host, why) in lost {
        text += &format!("  {host}: lost: {why}\n");
    }
    if !lost.is_empty() && count > 0 {
        text += "  lost hosts are dialled again until they are there\n";
    }
    if count > 0 && pool_directory::ends_with_session(directory) {
        text += "rlaunch: the pool ends with your last login session here\n  try     loginctl enable-linger\n";
    }
    text
}

/// Why hosts cannot join those that a pool has: slices join as a whole, and have one size.
pub(super) fn wrong_addition<'a>(has: impl Iterator<Item = &'a Entry>, new: &[Entry]) -> Option<String> {
    let has: Vec<&Entry> = has.collect();
    let of = |slice: &str| has.iter().copied().filter(|entry| entry.slice() == Some(slice)).collect::<Vec<_>>();
    if let Some(slice) = new.iter().filter_map(Entry::slice).find(|slice| !of(slice).is_empty()) {
        return Some(format!(
            "the pool has other hosts of slice {slice}\n  try     rlaunch pool remove for these, then add with all hosts of the slice"
        ));
    }
    let way_out = "try     slice=NAME id=N in the hostfiles of all hosts, alike for all slices, or of none";
    // Other slices of the pool may have lost hosts.
    let largest = has.iter().filter_map(|entry| entry.slice()).max_by_key(|slice| of(slice).len());
    let sliced = new.iter().find(|entry| entry.slice().is_some());
    let wrong = match (largest, sliced) {
        (None, None) => return None,
        (None, Some(entry)) if !has.is_empty() => {
            format!("{} has a slice, and the hosts of the pool have none", entry.host)
        }
        (slice, _) => slots_of(slice.map(of).unwrap_or_default().into_iter().chain(new)).err()?.to_string(),
    };
    Some(format!("{wrong}\n  {way_out}"))
}

/// A host that another pool of the user has.
fn in_other_pool(name: &str, hosts: &[Entry]) -> Option<String> {
    let others = PoolDirectory::names().into_iter().filter(|other| other != name);
    others.into_iter().find_map(|other| {
        let report = match client::request(&other, &PoolRequest::Status) {
            Ok(PoolReply::Report(report)) => report,
            // That pool may have one of the hosts.
            Err(error @ client::PoolError::Stopped { .. }) => return Some(super::described(&error)),
            Ok(_) | Err(_) => return None,
        };
        let has = |entry: &&Entry| report.hosts.iter().any(|host| host.name.to_string() == entry.host.to_string());
        let host = &hosts.iter().find(has)?.host;
        Some(format!("{host} is in the pool {other}\n  try     rlaunch pool remove {other} {host}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_plan::hostlist::{Alone, files};

    fn hosts(text: &str) -> Vec<Entry> {
        files([("hosts", text.as_bytes())], &mut Alone).unwrap()
    }

    #[test]
    fn slices_join_a_pool_as_a_whole_and_have_one_size() {
        // A host of slice b has left.
        let has = hosts("n[0-1] slice=a id=0 devices=4\nn2 slice=b id=0 devices=4\n");
        let wrong = |text: &str| wrong_addition(has.iter(), &hosts(text)).unwrap_or_default();
        assert_eq!(wrong("n[4-5] slice=c id=0 devices=4"), "");
        for (text, why) in [
            ("n3 slice=b id=0 devices=4", "the pool has other hosts of slice b\n  try     rlaunch pool remove"),
            ("n4 slice=c id=0 devices=4", "slice c has 1 host, and slice a has 2"),
            ("n[4-5] slice=c id=0 devices=8", "slice c has 8 chips on a host, and slice a has 4"),
            ("n4", "n4 has no slice"),
            ("n[4-5] slice=c id=0 devices=4 slots=4", "slice c has 4 ranks on a host, and slice a has 1"),
        ] {
            assert!(wrong(text).contains(why), "{text}: {}", wrong(text));
        }
        let plain = hosts("n0\nn1\n");
        assert_eq!(wrong_addition(plain.iter(), &hosts("n2")), None);
        let sliced = wrong_addition(plain.iter(), &hosts("n2 slice=a id=0")).unwrap();
        assert!(sliced.starts_with("n2 has a slice, and the hosts of the pool have none"), "{sliced}");
        assert_eq!(wrong_addition([].iter(), &hosts("n2 slice=a id=0")), None);
    }
}
