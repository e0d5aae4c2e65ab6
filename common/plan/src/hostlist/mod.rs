//! Which hosts: every hostfile grammar that users bring, `-H` lists, and their folded form.
//!
//! There is no shared grammar for hostfiles: what one launcher calls a slot another takes for a port. So all of them are read,
//! and what cannot be understood is an error that points at the character. Files are read, and groups looked up, by the caller
//! ([`Outside`]).

mod brackets;
mod entry_line;
mod fold;
pub mod groups;
mod hostfile;
mod hostlist_error;
mod list;
mod member;
pub(crate) mod name;
mod slice_words;
#[cfg(test)]
mod tests;
mod words;

pub use fold::{fold, fold_in_order};
pub use hostlist_error::{Fault, HostlistError, Hosts, Spot};
pub use words::words;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use groups::{GroupFault, GroupName};

/// Most hosts of a list: more are a typing error, and must not cost memory.
pub const MOST_HOSTS: usize = 1 << 16;
/// Names that are gone through at most until it is known which hosts there are: a fifth of a second or so.
const MOST_NAMES: usize = MOST_HOSTS << 2;
/// To look at a name that is there already costs a part of what it costs to make one.
const LOOKS: usize = 16;

/// A host as ssh is to reach it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Host {
    /// Its name or address.
    pub name: String,
    /// The user there; `None`: ssh decides.
    pub user: Option<String>,
    /// The port of its sshd; `None`: what ssh decides.
    pub port: Option<u16>,
}

impl Host {
    /// A host of this name, reached as ssh decides.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: name.into(), user: None, port: None }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match (self.port, self.name.contains(':')) {
            (None, _) => f.write_str(&self.name),
            (Some(port), false) => write!(f, "{} (port {port})", self.name),
            (Some(port), true) => write!(f, "[{}] (port {port})", self.name),
        }
    }
}

/// The TPU chips of a host, as a hostfile has them: `slice=a id=0 devices=4`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chips {
    /// The name of its slice; empty: a slice of its own.
    pub slice: String,
    /// Its number in the slice.
    pub id: u32,
    /// How many they are; 0: not given.
    pub devices: u32,
    /// Hosts of the slice in all hostfiles, whether the job uses them or not; 0: not known.
    pub hosts: u32,
}

impl Chips {
    /// The words of a hostfile about a host. How many hosts the slice has is not known yet.
    #[must_use]
    pub fn of(slice: &str, id: u32, devices: u32) -> Self {
        Self { slice: slice.into(), id, devices, hosts: 0 }
    }
}

/// A host of a list, with what the list says about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Which.
    pub host: Host,
    /// The number of ranks that it takes before it is oversubscribed. `None`: not given, which counts as 1 for each time that it is
    /// named.
    pub slots: Option<u32>,
    /// How often it was named.
    pub named: u32,
    /// The places of the host in the list of names, for `--map-by seq`; empty: it was named once, in the order of the entries.
    pub turns: Vec<usize>,
    /// How many ranks it never gets more than.
    pub max_slots: Option<u32>,
    /// Its TPU chips, where they are given.
    pub chips: Option<Chips>,
}

impl Entry {
    /// A host that was named once, and nothing more.
    #[must_use]
    pub const fn plain(host: Host) -> Self {
        Self { host, slots: None, named: 1, turns: Vec::new(), max_slots: None, chips: None }
    }

    /// Its slots, one where none were given.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots.unwrap_or(self.named)
    }

    /// Its slice, if it is one of a slice.
    #[must_use]
    pub fn slice(&self) -> Option<&str> {
        self.chips.as_ref().map(|chips| chips.slice.as_str()).filter(|slice| !slice.is_empty())
    }
}

/// Names beside hosts that a list may have.
pub trait Outside {
    /// Reads a file.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn file(&mut self, path: &str) -> Result<Vec<u8>, String>;

    /// Looks up the hosts of a group, as a list. Empty: it has none now, or is unknown.
    ///
    /// # Errors
    /// Why it cannot be looked up.
    fn group(&mut self, name: &GroupName) -> Result<String, GroupFault>;
}

/// For lists that name nothing but hosts.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Outside for Alone {
    fn file(&mut self, _path: &str) -> Result<Vec<u8>, String> {
        Err("files are not read here".into())
    }

    fn group(&mut self, _name: &GroupName) -> Result<String, GroupFault> {
        Err(GroupFault::NotHere)
    }
}

/// The hosts of `-H` lists, in their order, each once, as if the lists were one. Each comes with the option that it was given
/// by, for messages.
///
/// # Errors
/// One of them is not a list of hosts, or they name none.
pub fn lists<'a>(
    lists: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    outside: &mut dyn Outside,
) -> Result<Vec<Entry>, HostlistError> {
    read(lists, outside, Reader::read_list)
}

/// The hosts of hostfiles, in their order, each once.
///
/// # Errors
/// One of them is no hostfile, or they name no host.
pub fn files<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    outside: &mut dyn Outside,
) -> Result<Vec<Entry>, HostlistError> {
    read(files, outside, Reader::read_file)
}

fn read<'a, 'l>(
    texts: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    outside: &'l mut dyn Outside,
    one: impl Fn(&mut Reader<'l>, &str, &[u8]) -> Result<(), HostlistError>,
) -> Result<Vec<Entry>, HostlistError> {
    let mut reader = Reader::new(outside);
    let mut last = "";
    for (name, text) in texts {
        one(&mut reader, name, text)?;
        last = name;
    }
    reader.finish(last)
}

/// The hosts of `all` that `chosen` names, in the order of `chosen`: what `-H` means beside a hostfile. A count in `chosen`
/// goes before that of `all`. A name stands for all that are called so there, at whichever port or as whichever user; with a
/// user for that one's, if there are any.
///
/// # Errors
/// A chosen host is not in `all`.
pub fn select(all: &[Entry], chosen: Vec<Entry>) -> Result<Vec<Entry>, Host> {
    let mut by_name: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in all {
        by_name.entry(&entry.host.name).or_default().push(entry);
    }
    let (mut out, mut taken) = (Vec::new(), BTreeSet::new());
    for choice in chosen {
        let known = by_name.get(choice.host.name.as_str()).ok_or_else(|| choice.host.clone())?;
        let is_of_that_user = |entry: &&&Entry| choice.host.user.is_some() && entry.host.user == choice.host.user;
        let any_of_that_user = known.iter().any(|entry| is_of_that_user(&entry));
        for entry in known.iter().filter(|entry| !any_of_that_user || is_of_that_user(entry)) {
            let mut entry = Entry::clone(entry);
            entry.slots = choice.slots.or_else(|| Some(entry.slots()));
            entry.turns.clone_from(&choice.turns);
            entry.host.user = choice.host.user.clone().or(entry.host.user);
            // Two users of one host, of whom the choice makes one; or `a,bob@a`.
            if taken.insert(entry.host.clone()) {
                out.push(entry);
            }
        }
    }
    Ok(out)
}

/// How many slots something says a host has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Count {
    /// No slots are given.
    Unsaid,
    /// `host:4`: may be repeated, and is summed.
    Colon(u32),
    /// `slots=4`: a fact about the host, which cannot be two.
    Key(u32),
}

/// A host of one term.
#[derive(Clone, Debug)]
struct Item {
    host: Host,
    count: Count,
    max: Option<u32>,
    chips: Option<Chips>,
    spot: Spot,
    /// The line that it came from, counted over all files.
    line: u32,
    /// Whether it is named as one of a group.
    in_group: bool,
}

impl Item {
    fn of(host: Host, count: Count, spot: &Spot, line: u32) -> Self {
        Self { host, count, max: None, chips: None, spot: spot.clone(), line, in_group: false }
    }
}

/// A list that is being read.
struct Reader<'a> {
    outside: &'a mut dyn Outside,
    /// The files that are being read, each named by the one before.
    inside: Vec<String>,
    /// Lines read so far.
    line: u32,
    items: Vec<Item>,
    /// The hosts of groups.
    members: BTreeMap<GroupName, Vec<Host>>,
    /// Names that were gone through so far.
    names: usize,
    /// The numbers of the hosts of each TPU slice, also of hosts that were taken out again.
    slices: BTreeMap<String, BTreeSet<u32>>,
}

impl<'a> Reader<'a> {
    fn new(outside: &'a mut dyn Outside) -> Self {
        let (items, members, slices) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { outside, inside: Vec::new(), line: 0, items, members, names: 0, slices }
    }

    /// Counts names that are visited: lists of few hosts can name many more, and take them out again.
    fn goes_through(&mut self, names: usize, term: &list::Text<'_>) -> Result<(), HostlistError> {
        self.names = self.names.saturating_add(names);
        if self.names > MOST_NAMES { Err(term.fault(0, Fault::TooMuch)) } else { Ok(()) }
    }

    /// Takes hosts of these names out of all that was read so far.
    fn exclude(&mut self, from: usize) {
        let out: BTreeSet<String> = self.items.drain(from..).map(|item| item.host.name).collect();
        self.items.retain(|item| !out.contains(&item.host.name));
    }

    /// Takes out of what was read since a line whatever was not read again. The lines before that are another list.
    fn intersect(&mut self, from: usize, line: u32) {
        let both: BTreeSet<String> = self.items.drain(from..).map(|item| item.host.name).collect();
        self.items.retain(|item| item.line < line || both.contains(&item.host.name));
    }

    fn finish(self, name: &str) -> Result<Vec<Entry>, HostlistError> {
        let mut merged = Merged::default();
        for (turn, item) in self.items.iter().enumerate() {
            merged.add(item, turn)?;
        }
        merged.check_slices(&self.slices)?;
        for entry in &mut merged.entries {
            entry.named = entry.named.max(1);
        }
        if merged.entries.is_empty() { Err(Spot::whole(name).fault(Fault::Nothing)) } else { Ok(merged.entries) }
    }
}

/// Hosts, each once.
#[derive(Default)]
struct Merged<'a> {
    entries: Vec<Entry>,
    /// The index of each host, and the first items that gave its `slots=` and `max_slots=`.
    index: BTreeMap<&'a Host, (usize, Option<&'a Item>, Option<&'a Item>)>,
    /// The items that gave the chips of entries.
    chips_by: BTreeMap<usize, &'a Item>,
}

impl<'a> Merged<'a> {
    fn add(&mut self, item: &'a Item, turn: usize) -> Result<(), HostlistError> {
        let next = self.entries.len();
        let (at, slots_by, max_by) = self.index.entry(&item.host).or_insert((next, None, None));
        if *at == next {
            self.entries.push(Entry { named: 0, ..Entry::plain(item.host.clone()) });
        }
        let Some(entry) = self.entries.get_mut(*at) else { return Ok(()) };
        if let Count::Key(here) = item.count {
            match slots_by.map(|other| (other, other.count)) {
                Some((other, Count::Key(there))) if there != here => {
                    return Err(contradiction("slots", item, (here, there), other));
                }
                Some(_) => {}
                None => *slots_by = Some(item),
            }
        }
        if let Some(here) = item.max {
            match max_by.map(|other| (other, other.max)) {
                Some((other, Some(there))) if there != here => {
                    return Err(contradiction("max_slots", item, (here, there), other));
                }
                Some(_) => {}
                None => *max_by = Some(item),
            }
            entry.max_slots = Some(here);
        }
        if let Some(chips) = &item.chips {
            let other = self.chips_by.entry(*at).or_insert(item);
            slice_words::check_same(item, chips, other)?;
            entry.chips.get_or_insert_with(|| chips.clone());
        }
        entry.turns.push(turn);
        let before = entry.slots();
        // A group is a set: it adds nothing to a host that is there already, and a term that names the host counts alone.
        entry.named = entry.named.saturating_add(u32::from(!item.in_group));
        match item.count {
            Count::Unsaid if item.in_group => {}
            Count::Colon(n) | Count::Key(n) if item.in_group => entry.slots = entry.slots.or(Some(n)),
            Count::Unsaid => entry.slots = entry.slots.map(|sum| sum.saturating_add(1)),
            Count::Colon(n) | Count::Key(n) => entry.slots = Some(before.saturating_add(n)),
        }
        match entry.max_slots {
            Some(max) if entry.slots() > max => {
                let host = item.host.name.clone();
                Err(item.spot.fault(Fault::AboveMax { host, slots: entry.slots(), max }))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn contradiction(key: &'static str, item: &Item, (here, there): (u32, u32), other: &Item) -> HostlistError {
    let host = item.host.name.clone();
    item.spot.fault(Fault::Contradiction { key, host, here, there, other: other.spot.clone() })
}
