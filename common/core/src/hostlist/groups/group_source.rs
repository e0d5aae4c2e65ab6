//! The groups of one source: from a table, or from commands.

use super::conf::substitute;
use super::yaml::Table;
use super::{Ground, GroupFault, Source, configuration_fault, is_of_group};
use crate::hostlist::{Fault, Spot, brackets};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

/// A question to one source.
pub(super) struct Ask<'a> {
    pub(super) name: &'a str,
    pub(super) source: &'a Source,
    pub(super) printed: &'a mut BTreeMap<(String, String), String>,
    pub(super) ground: &'a dyn Ground,
}

/// Hosts; and where a command has printed none, what that may mean.
pub(super) type Said = (String, Option<GroupFault>);

impl Ask<'_> {
    fn place(&self) -> String {
        format!("the source '{}' of {}", self.name, self.source.file())
    }

    fn unknown<'b>(&self, group: &str, known: impl Iterator<Item = &'b String>) -> GroupFault {
        let known = known.map(|known| format!("@{}:{known}", self.name)).collect();
        GroupFault::Unknown { group: group.to_string(), place: self.place(), known }
    }

    pub(super) fn group(&mut self, group: &str) -> Result<Said, GroupFault> {
        match self.source {
            Source::Table { table, .. } => match table.get(group) {
                Some(hosts) => Ok((hosts.clone(), None)),
                None => Err(self.unknown(group, table.keys())),
            },
            Source::Upcalls { calls, .. } => {
                let table = self.mapall()?;
                match table.as_ref().and_then(|table| table.get(group)) {
                    Some(hosts) => Ok((hosts.clone(), None)),
                    None if calls.contains_key("map") => self.printed("map", group),
                    None => Err(self.unknown(group, table.iter().flat_map(BTreeMap::keys))),
                }
            }
        }
    }

    pub(super) fn all(&mut self) -> Result<Said, GroupFault> {
        let (names, nothing): (Vec<String>, _) = match self.source {
            Source::Table { table, .. } => match table.get("all") {
                Some(hosts) => return Ok((hosts.clone(), None)),
                None => return Ok((table.values().map(String::as_str).collect::<Vec<_>>().join(" "), None)),
            },
            Source::Upcalls { calls, .. } if calls.contains_key("all") => return self.printed("all", "*"),
            Source::Upcalls { calls, .. } => match self.mapall()? {
                Some(table) => (table.into_keys().collect(), None),
                None if !calls.contains_key("list") => return Err(GroupFault::NoAll { place: self.place() }),
                None => {
                    let (names, nothing) = self.printed("list", "*")?;
                    (names.split_whitespace().map(String::from).collect(), nothing)
                }
            },
        };
        let mut hosts = Vec::new();
        for name in names.iter().map(|name| self.listed(name)).collect::<Result<Vec<_>, _>>()?.concat() {
            hosts.push(self.group(&name)?.0);
        }
        Ok((hosts.join(" "), nothing))
    }

    /// The groups of a name that a command lists: Slurm names the jobs of an array in brackets.
    fn listed(&self, name: &str) -> Result<Vec<String>, GroupFault> {
        let wrong = |why: String| configuration_fault(self.place(), format!("lists the group '{name}': {why}"));
        let names = brackets::expand(name, &Spot::whole(""), 0).map_err(|error| wrong(error.fault.to_string()))?;
        match names.iter().flat_map(|name| name.chars()).find(|c| !is_of_group(*c)) {
            None => Ok(names),
            Some(c) => Err(wrong(Fault::GroupCharacter(c).to_string())),
        }
    }

    /// All groups, where one command tells them.
    fn mapall(&mut self) -> Result<Option<Table>, GroupFault> {
        let Source::Upcalls { calls, .. } = self.source else { return Ok(None) };
        if !calls.contains_key("mapall") {
            return Ok(None);
        }
        let mut table = Table::new();
        for line in self.run("mapall", "")?.1.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let parts = line.split_once(':').map(|(group, hosts)| (group.trim(), hosts.trim()));
            let (group, hosts) =
                parts.filter(|(group, _)| !group.is_empty() && !group.contains(char::is_whitespace)).ok_or_else(
                    || configuration_fault(self.place(), format!("'mapall' takes lines 'GROUP: HOSTS', got '{line}'")),
                )?;
            let known = table.entry(group.to_string()).or_default();
            known.push(' ');
            known.push_str(hosts);
        }
        Ok(Some(table))
    }

    fn printed(&mut self, call: &str, group: &str) -> Result<Said, GroupFault> {
        let (command, hosts) = self.run(call, group)?;
        let list = match self.source {
            Source::Upcalls { calls, .. } => calls.get("list").cloned(),
            Source::Table { .. } => None,
        };
        let nothing = GroupFault::Nothing { place: self.place(), command, list };
        Ok((hosts.clone(), hosts.is_empty().then_some(nothing)))
    }

    /// Runs a command and returns its output.
    fn run(&mut self, call: &str, group: &str) -> Result<(String, String), GroupFault> {
        let Source::Upcalls { calls, directory, .. } = self.source else { return Ok(<_>::default()) };
        let values = [("GROUP", group), ("SOURCE", self.name), ("CFGDIR", directory.as_str())];
        // $GROUP is for 'map' alone; elsewhere it is the shell's.
        let known = if call == "map" { &values[..] } else { &values[1..] };
        let command = substitute(calls.get(call).map_or("", String::as_str), known);
        let key = (directory.clone(), command.clone());
        if let Some(printed) = self.printed.get(&key) {
            return Ok((command, printed.clone()));
        }
        let fault = |why| GroupFault::Command { place: self.place(), command: command.clone(), why };
        let bytes = self.ground.run(&command, directory).map_err(fault)?;
        let text = String::from_utf8(bytes).map_err(|_| fault("prints what is no text".into()))?.trim().to_string();
        self.printed.insert(key, text.clone());
        Ok((command, text))
    }
}
