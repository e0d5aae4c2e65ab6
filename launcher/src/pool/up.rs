//! `rlaunch pool up`: the process that starts a pool, and waits until its hosts were reached.

use super::client;
use super::events::Events;
use super::links::Links;
use super::room::{self, Owner, Room};
use super::server::Server;
use crate::cli::PoolUp;
use crate::edges::now;
use crate::start::{fail, say};
use crate::view::phrases;
use rlaunch_core::bootstrap::{Carrier, SshOptions};
use rlaunch_core::exit;
use rlaunch_core::hostlist::Entry;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::time::Mono;
use rlaunch_core::wire::frozen::pool::{PoolReply, PoolRequest};
use rlaunch_sys::background::{self, Side};
use rlaunch_sys::fd;
use rlaunch_sys::origin::Origin;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;

/// Everything, to the exit code.
pub(super) fn run(name: &str, plan: &PoolUp, hosts: Vec<Entry>, origin: Origin) -> u8 {
    if let Some(wrong) = wrong_slices(&hosts).or_else(|| origin.interruptibly(|| in_other_pool(name, &hosts))) {
        return fail(&wrong);
    }
    let mut caller = Caller(None);
    if !plan.is_foreground {
        caller = match background::split() {
            Ok(Side::Front { news, .. }) => return origin.interruptibly(|| wait(name, news)),
            Ok(Side::Back { news }) => Caller(Some(news)),
            Err(error) => return fail(&format!("the pool {name} cannot be started: {}", phrases::shortage(&error))),
        };
    }
    match serve(name, plan, hosts, origin, &mut caller) {
        Ok(code) => code,
        Err(why) => {
            caller.tell(&format!("error: {why}\n"), false);
            exit::LAUNCH
        }
    }
}

/// The user at the start of a pool: by a pipe to the process that was called, or here.
struct Caller(Option<OwnedFd>);

impl Caller {
    const fn is_elsewhere(&self) -> bool {
        self.0.is_some()
    }

    /// Reports the outcome, once. Returns whether it was read.
    fn tell(&mut self, text: &str, is_up: bool) -> bool {
        let Some(news) = self.0.take() else {
            say(text);
            return true;
        };
        let text = format!("{text}{}", if is_up { '\0' } else { '\u{1}' });
        fd::write(news.as_raw_fd(), text.as_bytes()).is_ok()
    }
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
fn serve(name: &str, plan: &PoolUp, hosts: Vec<Entry>, origin: Origin, caller: &mut Caller) -> Result<u8, String> {
    let room = Room::of(name);
    let cannot = |error: io::Error| format!("the pool {name} cannot be started: {}", rlaunch_sys::reason(&error));
    let _lock = match room.take(now().nanos()).map_err(cannot)? {
        Ok(lock) => lock,
        Err(owner) => return Err(taken(name, owner)),
    };
    if caller.is_elsewhere() {
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(room.log()).map_err(cannot)?;
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
    let mut server = Server::new((room.clone(), events), links, plan.idle, &origin.watched()).map_err(cannot)?;
    server.add(hosts).map_err(|refusal| format!("the pool {name} {}", super::show::refusal(&refusal)))?;
    server.run(true);
    server.log_up();
    let (count, lost) = server.reached();
    let text = report(name, count, &lost, &room);
    let is_up = count > 0;
    // Without a reader the user has left, and knows nothing of the pool.
    if !caller.tell(&text, is_up) || !is_up {
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
fn report(name: &str, count: usize, lost: &[(OsBytes, OsBytes)], room: &Room) -> String {
    let mut text = match count {
        0 => format!("error: the pool {name} has no host: none was reached\n"),
        _ => {
            let (hosts, pid) = (phrases::count(count as u64, "host"), std::process::id());
            format!("rlaunch: the pool {name} is up with {hosts} (pid {pid})\n")
        }
    };
    for (host, why) in lost {
        text += &format!("  {host}: lost: {why}\n");
    }
    if !lost.is_empty() && count > 0 {
        text += "  lost hosts are dialled again until they are there\n";
    }
    if count > 0 && room::ends_with_session(room) {
        text += "rlaunch: the pool ends with your last login session here\n  try     loginctl enable-linger\n";
    }
    text
}

/// Slices that differ in their number of hosts or chips.
fn wrong_slices(hosts: &[Entry]) -> Option<String> {
    let mut sizes: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for chips in hosts.iter().filter_map(|entry| entry.chips.as_ref()).filter(|chips| !chips.slice.is_empty()) {
        let (hosts, devices) = sizes.entry(&chips.slice).or_default();
        *hosts += 1;
        *devices += chips.devices;
    }
    let mut sizes = sizes.into_iter();
    let (first, size) = sizes.next()?;
    let (other, differs) = sizes.find(|(_, other)| *other != size)?;
    let words = |(hosts, chips): (u32, u32)| format!("{} and {chips} chips", phrases::count(hosts.into(), "host"));
    Some(format!(
        "slices of a pool have the same size, but {first} has {}, and {other} has {}\n  try     the same number of hosts for each slice",
        words(size),
        words(differs)
    ))
}

/// A host that another pool of the user has.
fn in_other_pool(name: &str, hosts: &[Entry]) -> Option<String> {
    let others = Room::names().into_iter().filter(|other| other != name);
    others.into_iter().find_map(|other| {
        let Ok(PoolReply::Report(report)) = client::request(&other, &PoolRequest::Status) else { return None };
        let has = |entry: &&Entry| report.hosts.iter().any(|host| host.name.to_string() == entry.host.to_string());
        let host = &hosts.iter().find(has)?.host;
        Some(format!("{host} is in the pool {other}\n  try     rlaunch pool remove {other} {host}"))
    })
}
