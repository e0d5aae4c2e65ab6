//! ClusterShell's groups of hosts, `@group` in a list: which sources of groups there are, and what they say.
//!
//! A site that has them has written down what its hosts are for, in `groups.conf`, and uses it with `nodeset` and `clush`: it
//! shall not have to write it down again. Files are read and commands run by the caller ([`Ground`]); what they mean is decided
//! here. Where ClusterShell takes what it does not know for a group without hosts, this is an error.

mod conf;
mod group_error;
mod group_source;
#[cfg(test)]
mod tests;
mod yaml;

pub use conf::words;
pub use group_error::GroupFault;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use conf::{Conf, substitute};
use core::fmt;
use group_source::Ask;
use yaml::Table;

/// The section that is no source.
const MAIN: &str = "Main";

/// The caller's file system and commands. Paths that cannot be read count as missing, as for ClusterShell.
pub trait Ground {
    /// A variable of the environment, if it is set and not empty.
    fn variable(&self, name: &str) -> Option<String>;

    /// A file, if it is there.
    ///
    /// # Errors
    /// It cannot be read: why.
    fn file(&self, path: &str) -> Result<Option<Vec<u8>>, String>;

    /// The names in a directory, if it is there.
    ///
    /// # Errors
    /// It cannot be read: why.
    fn directory(&self, path: &str) -> Result<Option<Vec<String>>, String>;

    /// The output of a shell command that runs in a directory.
    ///
    /// # Errors
    /// It failed: "exits with 1", and what it complained of.
    fn run(&self, command: &str, directory: &str) -> Result<Vec<u8>, String>;

    /// Names or addresses of the hosts of the TPU slice that this host belongs to, by their numbers. Empty: no slice is known.
    fn slice(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The group that needs no configuration: the hosts of the TPU slice that this host belongs to.
const SLICE: (&str, &str) = ("tpu", "slice");

/// The definition of a group that needs no configuration. `None`: the group is another one.
#[must_use]
pub fn built_in(name: &GroupName, ground: &dyn Ground) -> Option<Result<Definition, GroupFault>> {
    if (name.source.as_deref(), name.group.as_str()) != (Some(SLICE.0), SLICE.1) {
        return None;
    }
    let hosts = ground.slice();
    // Another machine has sent them: nothing in a list of hosts but names and addresses.
    let is_name =
        |host: &String| !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    if hosts.is_empty() || !hosts.iter().all(is_name) {
        return Some(Err(GroupFault::NoSlice));
    }
    let place = format!("{name} of this host");
    Some(Ok(Definition { source: SLICE.0.to_string(), hosts: hosts.join(" "), place, nothing: None }))
}

/// `source:group`; `*` are all hosts of the source.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GroupName {
    /// The source; `None`: the default.
    pub source: Option<String>,
    /// The group.
    pub group: String,
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "@{source}:{}", self.group),
            None => write!(f, "@{}", self.group),
        }
    }
}

/// The definition of a group by its source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definition {
    /// The source that was asked: groups that it names are its own.
    pub source: String,
    /// Hosts and groups, as in a list.
    pub hosts: String,
    /// The place that it comes from.
    pub place: String,
    /// A command that printed nothing: whether there is such a group, it does not say.
    pub nothing: Option<GroupFault>,
}

/// The origin of the groups of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Source {
    /// A file of groups.
    Table { table: Table, file: String },
    /// Commands.
    Upcalls { calls: BTreeMap<&'static str, String>, directory: String, file: String },
}

/// The commands of a source that are of use here.
const CALLS: [&str; 4] = ["map", "mapall", "all", "list"];

/// All sources.
#[derive(Debug)]
pub struct Groups {
    sources: BTreeMap<String, Source>,
    default: Option<String>,
    /// The files that were read.
    configuration: String,
    /// The output of commands: each runs once.
    printed: BTreeMap<(String, String), String>,
}

fn configuration_fault(place: impl Into<String>, why: impl Into<String>) -> GroupFault {
    GroupFault::Configuration { place: place.into(), why: why.into() }
}

impl Groups {
    /// Finds and reads the configuration.
    ///
    /// # Errors
    /// There is none, or it cannot be understood.
    pub fn read(ground: &dyn Ground) -> Result<Self, GroupFault> {
        let files: Vec<String> = directories(ground).iter().map(|dir| format!("{dir}/groups.conf")).collect();
        let (mut conf, mut found) = (Conf::default(), Vec::new());
        // Each goes before those that were read already.
        for file in files.iter().rev() {
            if let Some(own) = conf_file(ground, file)? {
                conf.overlay(own);
                found.insert(0, file.as_str());
            }
        }
        let Some(main) = found.first().copied() else { return Err(GroupFault::NoConfiguration { looked: files }) };
        let directory = main.strip_suffix("/groups.conf").unwrap_or_default();
        let mut groups =
            Self { sources: BTreeMap::new(), default: None, configuration: found.join(", "), printed: BTreeMap::new() };
        let key = if conf.value(MAIN, "groupsdir").is_some() { "groupsdir" } else { "confdir" };
        for (path, part) in parts(ground, main, &conf, key, ".conf", directory)? {
            if let Some(own) = conf_file(ground, &path)? {
                groups.add_commands(&own, &path, &part)?;
            }
        }
        for (path, _) in parts(ground, main, &conf, "autodir", ".yaml", directory)? {
            groups.add_tables(ground, &path)?;
        }
        groups.add_commands(&conf, main, directory)?;
        if let Some(default) = conf.value(MAIN, "default").filter(|default| !default.is_empty()) {
            if !groups.sources.contains_key(default) {
                let known = groups.sources.keys().cloned().collect::<Vec<_>>().join(", ");
                return Err(configuration_fault(main, format!("the default source '{default}' is none of: {known}")));
            }
            groups.default = Some(default.to_string());
        }
        Ok(groups)
    }

    fn add(&mut self, name: &str, source: Source) -> Result<(), GroupFault> {
        let file = source.file().to_string();
        self.default.get_or_insert_with(|| name.to_string());
        match self.sources.insert(name.to_string(), source) {
            None => Ok(()),
            Some(other) => {
                let why = format!("the source '{name}' is there twice, also in {}", other.file());
                Err(configuration_fault(file, why))
            }
        }
    }

    /// The sources of a `.conf`; their commands run in `directory`.
    fn add_commands(&mut self, conf: &Conf, file: &str, directory: &str) -> Result<(), GroupFault> {
        for section in conf.sections(MAIN) {
            let calls: BTreeMap<&'static str, String> = CALLS
                .iter()
                .filter_map(|call| Some((*call, conf.value(&section.name, call)?.to_string())))
                .filter(|(_, command)| !command.is_empty())
                .collect();
            if !calls.contains_key("map") && !calls.contains_key("mapall") {
                let why = format!("the section [{}] has neither 'map' nor 'mapall'", section.name);
                return Err(configuration_fault(file, why));
            }
            // [slurmpart,sp] has two names.
            for name in section.name.split(',').map(str::trim) {
                let (calls, directory) = (calls.clone(), directory.to_string());
                self.add(name, Source::Upcalls { calls, directory, file: file.to_string() })?;
            }
        }
        Ok(())
    }

    /// The sources of a `.yaml`.
    fn add_tables(&mut self, ground: &dyn Ground, path: &str) -> Result<(), GroupFault> {
        let Some(text) = text(ground, path)? else { return Ok(()) };
        let tables = yaml::parse(&text).map_err(|(line, why)| configuration_fault(format!("{path}:{line}"), why))?;
        for (name, table) in tables {
            self.add(&name, Source::Table { table, file: path.to_string() })?;
        }
        Ok(())
    }

    /// The definition of a group.
    ///
    /// # Errors
    /// There is no such source or group, or its command failed.
    pub fn definition(&mut self, name: &GroupName, ground: &dyn Ground) -> Result<Definition, GroupFault> {
        let asked = name.source.as_ref().or(self.default.as_ref());
        let asked = asked.ok_or_else(|| GroupFault::Empty { configuration: self.configuration.clone() })?.clone();
        let source = self.sources.get(&asked).ok_or_else(|| GroupFault::NoSource {
            source_name: asked.clone(),
            group: name.group.clone(),
            configuration: self.configuration.clone(),
            known: self.sources.keys().cloned().collect(),
        })?;
        let mut ask = Ask { name: &asked, source, printed: &mut self.printed, ground };
        let (hosts, nothing) = if name.group == "*" { ask.all()? } else { ask.group(&name.group)? };
        let whole = GroupName { source: Some(asked.clone()), group: name.group.clone() };
        let place = format!("{whole} of {}", source.file());
        Ok(Definition { source: asked, hosts: hosts.split_whitespace().collect::<Vec<_>>().join(" "), place, nothing })
    }
}

impl Source {
    fn file(&self) -> &str {
        match self {
            Self::Table { file, .. } | Self::Upcalls { file, .. } => file,
        }
    }
}

/// Whether a character may be in the name of a group. A shell is going to read it: nothing that it takes for more than a word.
pub(super) fn is_of_group(c: char) -> bool {
    c.is_alphanumeric() || "-_.+=%/:".contains(c)
}

/// The directories of ClusterShell's configuration; the first goes before all others.
fn directories(ground: &dyn Ground) -> Vec<String> {
    let home = ground.variable("HOME");
    let below = |base: Option<String>, path: &str| base.map(|base| normal(&format!("{base}/{path}")));
    let config = ground.variable("XDG_CONFIG_HOME").or_else(|| below(home.clone(), ".config"));
    let all = [
        ground.variable("CLUSTERSHELL_CFGDIR").map(|dir| normal(&dir)),
        below(config, "clustershell"),
        below(ground.variable("VIRTUAL_ENV"), "etc/clustershell"),
        below(home, ".local/etc/clustershell"),
        Some("/etc/clustershell".to_string()),
    ];
    let mut found: Vec<String> = vec![];
    for dir in all.into_iter().flatten() {
        if !found.contains(&dir) {
            found.push(dir);
        }
    }
    found
}

/// A path without `//`, `.` and `..`, as `os.path.normpath` makes it.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match (part, parts.last()) {
            ("..", Some(last)) if *last != ".." => {
                parts.pop();
            }
            ("..", None) if path.starts_with('/') => {}
            (part, _) => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    let text = format!("{root}{}", parts.join("/"));
    if text.is_empty() { ".".to_string() } else { text }
}

fn text(ground: &dyn Ground, path: &str) -> Result<Option<String>, GroupFault> {
    let bytes = ground.file(path).map_err(|why| configuration_fault(path, why))?;
    bytes.map(|bytes| String::from_utf8(bytes).map_err(|_| configuration_fault(path, "this is no text"))).transpose()
}

fn conf_file(ground: &dyn Ground, path: &str) -> Result<Option<Conf>, GroupFault> {
    let Some(text) = text(ground, path)? else { return Ok(None) };
    let conf = Conf::parse(&text).map_err(|(line, why)| configuration_fault(format!("{path}:{line}"), why))?;
    Ok(Some(conf))
}

/// The files of the directories that `[Main]` names by `key`, each with its directory.
fn parts(
    ground: &dyn Ground,
    main: &str,
    conf: &Conf,
    key: &str,
    suffix: &str,
    directory: &str,
) -> Result<Vec<(String, String)>, GroupFault> {
    let words = conf::words(conf.value(MAIN, key).unwrap_or_default());
    let words = words.map_err(|why| configuration_fault(main, format!("{key}: {why}")))?;
    let (mut seen, mut files): (Vec<String>, _) = (Vec::new(), Vec::new());
    for word in words {
        let path = normal(&substitute(&word, &[("CFGDIR", directory)]));
        if seen.contains(&path) {
            continue;
        }
        let names = ground.directory(&path).map_err(|why| configuration_fault(main, format!("{key} {path}: {why}")))?;
        let mut names = names.unwrap_or_default();
        names.retain(|name| name.ends_with(suffix) && !name.starts_with('.'));
        names.sort_unstable();
        files.extend(names.into_iter().map(|name| (format!("{path}/{name}"), path.clone())));
        seen.push(path);
    }
    Ok(files)
}
