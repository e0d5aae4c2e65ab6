//! `@group`, `@source:group`, `@rack[1-3]`, `@*`: the hosts of groups, which may name groups in turn.

use super::groups::{Definition, GroupName, is_of_group};
use super::list::{Sign, Text};
use super::{Count, Fault, Host, HostlistError, Item, MOST_HOSTS, Reader, Spot, brackets};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

/// Groups in groups in groups.
const DEEPEST: usize = 32;

impl Reader<'_> {
    /// A term that begins with `@`.
    pub(super) fn read_groups(&mut self, term: &Text<'_>, sign: Sign) -> Result<(), HostlistError> {
        let name = term.part(1, term.text.len());
        check(&name, term)?;
        for one in brackets::expand(name.text, name.spot, name.from)? {
            let (source, group) = one.split_once(':').unwrap_or(("", &one));
            // Groups that a group names are of its own source.
            let own = || self.within.last().map(|(source, _)| source.clone());
            let source = Some(String::from(source)).filter(|source| !source.is_empty()).or_else(own);
            self.read_group(term, &GroupName { source, group: group.into() }, sign)?;
            if self.items.len() > MOST_HOSTS {
                return Err(term.fault(0, Fault::TooMany));
            }
        }
        Ok(())
    }

    fn read_group(&mut self, term: &Text<'_>, name: &GroupName, sign: Sign) -> Result<(), HostlistError> {
        let refuse = |fault| term.fault(0, Fault::Group { name: name.to_string(), fault: Box::new(fault) });
        let definition = self.outside.group(name).map_err(refuse)?;
        if let Some(nothing) = definition.nothing.as_ref().filter(|_| sign == Sign::Join) {
            // A term that is taken out may be empty today; a term that is to take part may not.
            return Err(refuse(nothing.clone()));
        }
        let key = (definition.source.clone(), name.group.clone());
        if !self.members.contains_key(&key) {
            let members = self.read_definition(term, &definition, &key)?;
            self.members.insert(key.clone(), members);
        }
        self.goes_through(self.members.get(&key).map_or(0, Vec::len), term)?;
        let (spot, line) = (term.spot.at(term.from), self.line);
        let item =
            |(host, count): &(Host, Count)| Item { in_group: true, ..Item::of(host.clone(), *count, &spot, line) };
        self.items.extend(self.members.get(&key).into_iter().flatten().map(item));
        Ok(())
    }

    /// The hosts of a group: a list of its own, whose signs are about nothing else.
    fn read_definition(
        &mut self,
        term: &Text<'_>,
        definition: &Definition,
        key: &(String, String),
    ) -> Result<Vec<(Host, Count)>, HostlistError> {
        if self.within.contains(key) {
            return Err(term.fault(0, Fault::GroupItself(format!("@{}:{}", key.0, key.1))));
        }
        if self.within.len() >= DEEPEST {
            return Err(term.fault(0, Fault::Deep("groups")));
        }
        if definition.hosts.is_empty() {
            return Ok(Vec::new());
        }
        let source: Arc<str> = definition.place.as_str().into();
        let spot = Spot::line(&source, &definition.hosts, 0);
        let outer = mem::take(&mut self.items);
        self.within.push(key.clone());
        let read = self.read_terms(&Text { spot: &spot, text: &definition.hosts, from: 0 });
        self.within.pop();
        let inner = mem::replace(&mut self.items, outer);
        match read {
            Ok(()) => {
                let mut seen = BTreeSet::new();
                let first = inner.into_iter().filter(|item| seen.insert(item.host.clone()));
                Ok(first.map(|item| (item.host, item.count)).collect())
            }
            Err(error) => Err(term.fault(0, Fault::InGroup(Box::new(error)))),
        }
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
