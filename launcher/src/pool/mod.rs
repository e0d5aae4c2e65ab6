//! `rlaunch pool`: hosts whose connections stay open between jobs, and the jobs that get them.
//!
//! A pool is a process in the background. It holds one open ssh connection for each host, and hands hosts to jobs over a unix socket. The
//! decisions are those of `core::pool`.

pub(crate) mod client;
mod connection;
pub(crate) mod detach;
mod events;
pub(crate) mod exec;
mod links;
mod pool_directory;
mod server;
mod show;
mod up;

use crate::cli::{PoolCommand, PoolVerb};
use crate::print::{answer, fail, refuse, say};
use crate::this_machine::with_site;
use crate::view::phrases;
use client::PoolError;
use pool_directory::PoolDirectory;
use rlaunch_base::error::Hint as _;
use rlaunch_protocol::wire::frozen::pool::PoolRequest;
use rlaunch_sys::origin::Origin;

/// `rlaunch pool`. Returns the exit code.
pub(crate) fn run(PoolCommand { name, action }: PoolCommand, origin: Origin) -> u8 {
    let asked = |name: &str, request: &PoolRequest| origin.interruptibly(|| client::ask(name, request));
    let done = match (name, action) {
        (Some(name), PoolVerb::Up(plan)) => {
            return match with_site(&origin, |site| plan.entries(site)) {
                Ok(hosts) => up::run(&name, &plan, hosts, origin),
                Err(error) => refuse(&error),
            };
        }
        (Some(name), PoolVerb::Status { json }) => return status(&[name], json, &origin),
        (None, PoolVerb::Status { json }) => {
            return match PoolDirectory::safe_names() {
                Ok(names) => status(&names, json, &origin),
                Err(error) => explain(&PoolError::AllUnsafe { why: rlaunch_sys::reason(&error) }),
            };
        }
        (Some(name), PoolVerb::Add(hosts)) => match with_site(&origin, |site| hosts.entries(site)) {
            Ok(entries) => {
                let lines: Vec<String> = entries.iter().map(|entry| entry.to_line(true)).collect();
                let added = asked(&name, &PoolRequest::Add(lines.join("\n").into()));
                if added.is_ok() {
                    let hosts = phrases::count(entries.len() as u64, "host");
                    say(&format!("rlaunch: the pool {name} dials {hosts}; see rlaunch pool status {name}\n"));
                }
                added
            }
            Err(error) => return refuse(&error),
        },
        (Some(name), PoolVerb::Remove(hosts)) => asked(&name, &PoolRequest::Remove(hosts)),
        (Some(name), PoolVerb::Drain(hosts)) => asked(&name, &PoolRequest::Drain(hosts)),
        (Some(name), PoolVerb::Down { is_now }) => origin.interruptibly(|| client::down(&name, is_now)),
        (None, _) => Ok(String::new()),
    };
    match done {
        Ok(text) => answer(text.as_bytes()),
        Err(error) => explain(&error),
    }
}

/// Prints the state of pools, also where one of them does not answer. Returns the exit code.
fn status(names: &[String], json: bool, origin: &Origin) -> u8 {
    let mut all = Vec::new();
    let mut code = 0;
    for name in names {
        match origin.interruptibly(|| client::status(name)) {
            Ok((report, slices)) => all.push((name.as_str(), report, slices)),
            Err(error) => code = explain(&error),
        }
    }
    let text = match (json, all.as_slice()) {
        (true, all) => show::json(all),
        (false, []) if code == 0 => show::no_pool(),
        (false, all) => show::text(all),
    };
    match answer(text.as_bytes()) {
        0 => code,
        unwritten => unwritten,
    }
}

/// Prints an error of a pool. Returns the exit code.
pub(crate) fn explain(error: &PoolError) -> u8 {
    fail(&described(error));
    error.code()
}

/// An error of a pool, with what to try.
fn described(error: &PoolError) -> String {
    let hint = error.hint().unwrap_or_default();
    let tries = hint.lines().zip(["try", ""].into_iter().chain(std::iter::repeat("")));
    let hint: String = tries.map(|(line, key)| format!("\n  {key:<7} {line}")).collect();
    format!("{error}{hint}")
}
