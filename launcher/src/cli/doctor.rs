//! The words behind `rlaunch doctor`.

use super::errors::CliError;
use super::{reach, table, values};
use rlaunch_core::bootstrap::Target;
use rlaunch_core::hostlist;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::time::Span;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

/// Hosts to be examined, and how they are reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Doctor {
    /// `-H`.
    pub(crate) hosts: Vec<Target>,
    /// `--ssh-prompt`.
    pub(crate) prompt: bool,
    /// `--ssh-fast`.
    pub(crate) fast: bool,
    /// `--agent-path`.
    pub(crate) agent_path: Option<OsBytes>,
    /// `--connect-timeout`.
    pub(crate) limit: Span,
}

/// Reads them.
pub(crate) fn doctor(words: Vec<OsString>) -> Result<Doctor, CliError> {
    let mut doctor = Doctor { hosts: Vec::new(), prompt: false, fast: false, agent_path: None, limit: reach::CONNECT };
    let mut words = words.into_iter().map(|word| OsBytes::new(word.into_vec()));
    while let Some(word) = words.next() {
        let until = word.iter().position(|b| *b == b'=').filter(|_| word.starts_with(b"--")).unwrap_or(word.len());
        let (name, attached) = word.split_at(until);
        let name = OsBytes::from(name);
        let dashed: Vec<u8> = name.iter().map(|b| if *b == b'_' { b'-' } else { *b }).collect();
        let attached = attached.strip_prefix(b"=").map(OsBytes::from);
        let mut value =
            |what| attached.clone().or_else(|| words.next()).ok_or_else(|| CliError::missing(&name, what, &table::JOB));
        match dashed.as_slice() {
            b"-H" | b"--host" | b"--hosts" => add_hosts(&mut doctor.hosts, &name, &value("HOST,...")?)?,
            b"--ssh-prompt" => doctor.prompt = true,
            b"--ssh-fast" => doctor.fast = true,
            b"--agent-path" => doctor.agent_path = Some(value("PATH")?),
            b"--connect-timeout" => doctor.limit = values::span(&name, &value("TIME")?)?,
            _ => return Err(CliError::unknown(&name, &table::JOB)),
        }
    }
    if doctor.hosts.is_empty() {
        return Err(CliError::missing(&OsBytes::from("doctor"), "-H HOST,...", &table::JOB));
    }
    Ok(doctor)
}

fn add_hosts(hosts: &mut Vec<Target>, option: &OsBytes, list: &OsBytes) -> Result<(), CliError> {
    let spelled = option.to_string();
    let mut read = |path: &str| std::fs::read(path).map_err(|error| rlaunch_sys::reason(&error));
    let entries = hostlist::lists([(spelled.as_str(), list.as_slice())], &mut read).map_err(CliError::hostlist)?;
    for entry in entries {
        let target = Target::of(&entry.host)
            .map_err(|source| CliError::Host { option: option.clone(), source: Box::new(source) })?;
        hosts.push(target);
    }
    Ok(())
}
