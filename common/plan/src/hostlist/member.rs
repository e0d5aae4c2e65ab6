//! `@group`, `@source:group`, `@rack[1-3]`, `@*`: the hosts of groups.

use super::groups::{GroupFault, GroupName, command, is_of_group};
use super::list::{Sign, Text};
use super::{Count, Fault, Host, HostlistError, Item, MOST_HOSTS, Reader, brackets};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

impl Reader<'_> {
    /// A term that begins with `@`.
    pub(super) fn read_groups(&mut self, term: &Text<'_>, sign: Sign) -> Result<(), HostlistError> {
        let name = term.part(1, term.text.len());
        check(&name, term)?;
        for one in brackets::expand(name.text, name.spot, name.from)? {
            let (source, group) = one.split_once(':').unwrap_or(("", &one));
            let source = Some(String::from(source)).filter(|source| !source.is_empty());
            self.read_group(term, &GroupName { source, group: group.into() }, sign)?;
            if self.items.len() > MOST_HOSTS {
                return Err(term.fault(0, Fault::TooMany));
            }
        }
        Ok(())
    }

    fn read_group(&mut self, term: &Text<'_>, name: &GroupName, sign: Sign) -> Result<(), HostlistError> {
        if !self.members.contains_key(name) {
            let members = self.look_up(term, name)?;
            self.members.insert(name.clone(), members);
        }
        let members = self.members.get(name).map(Vec::as_slice).unwrap_or_default();
        if members.is_empty() && sign == Sign::Join {
            // A term that is taken out may be empty today; a term that is to take part may not.
            let nothing = GroupFault::Nothing { command: command(name) };
            return Err(term.fault(0, Fault::Group { name: name.to_string(), fault: Box::new(nothing) }));
        }
        let (spot, line) = (term.spot.at(term.from), self.line);
        let item = |host: &Host| Item { in_group: true, ..Item::of(host.clone(), Count::Unsaid, &spot, line) };
        let items: Vec<Item> = members.iter().map(item).collect();
        self.goes_through(items.len(), term)?;
        self.items.extend(items);
        Ok(())
    }

    /// The hosts of a group.
    fn look_up(&mut self, term: &Text<'_>, name: &GroupName) -> Result<Vec<Host>, HostlistError> {
        let refuse = |fault| term.fault(0, Fault::Group { name: name.to_string(), fault: Box::new(fault) });
        let hosts = self.outside.group(name).map_err(refuse)?;
        let mut seen = BTreeSet::new();
        Ok(hosts.split_whitespace().filter(|host| seen.insert(*host)).map(Host::named).collect())
    }
}

/// Checks the name of a group, with its source.
fn check(name: &Text<'_>, term: &Text<'_>) -> Result<(), HostlistError> {
    let text = name.text;
    let group = text.split_once(':').map_or(text, |(_, group)| group);
    if text.starts_with('@') {
        return Err(term.fault(0, Fault::GroupNames(term.text.into())));
    }
    if group.is_empty() {
        return Err(name.fault(text.len(), Fault::MissingName));
    }
    let at = text.len() - group.len();
    if group.starts_with('-') || text.starts_with('-') {
        return Err(name.fault(if text.starts_with('-') { 0 } else { at }, Fault::Dash));
    }
    let mut depth = 0u32;
    for (offset, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            // The reader of the numbers reports that.
            _ if depth > 0 => {}
            '*' if group == "*" && offset == at => {}
            c if is_of_group(c) => {}
            c => return Err(name.fault(offset, Fault::GroupCharacter(c))),
        }
    }
    Ok(())
}
