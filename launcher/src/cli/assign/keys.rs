//! Keys that ranks have in common, where no job gives them.

use crate::cli::errors::CliError;
use rlaunch_base::error::Hint as _;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::os_strings::OsStrings;
use rlaunch_plan::place::{MOST_RANKS, Placement};
use rlaunch_plan::rank_assign::{Key, Keys, Numbers, Source, parse};
use rlaunch_protocol::env;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Hosts by name, and how many ranks share something else.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// The host of each initial rank.
    pub(super) hosts: Vec<String>,
    per: BTreeMap<Source, u32>,
}

impl Named {
    /// `--ranks-per KEY=N`
    pub(super) fn per(&mut self, option: &OsBytes, value: &OsBytes) -> Result<(), CliError> {
        let text = String::from_utf8_lossy(value);
        let refuse = |hint: String| CliError::Value {
            option: option.clone(),
            takes: "host, slice, rack, numa or env:NAME and a number above 0, as rack=16".into(),
            got: value.clone(),
            hint: Some(hint.into()),
        };
        let Some((key, n)) = text.rsplit_once('=') else { return Err(refuse(format!("{option} rack=16"))) };
        let digits = !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
        let n = n.parse::<u32>().ok().filter(|n| digits && (1..=MOST_RANKS).contains(n));
        match (parse::key(key), n) {
            (Ok(Key::Of(source)), Some(n)) => {
                self.per.insert(source, n);
                Ok(())
            }
            (Ok(Key::Of(source)), None) => Err(refuse(format!("{option} {source}=16"))),
            (Err(error), _) => {
                // Only a similar word is a hint, not a list of all words.
                let near = error.hint().filter(|hint| !hint.contains(' '));
                Err(refuse(near.map_or_else(|| format!("{option} rack=16"), |hint| format!("{option} {hint}=16"))))
            }
            (Ok(_), _) => Err(refuse(format!("{option} rack=16   (leave out the others)"))),
        }
    }

    /// `--ranks-per-host N`
    pub(super) fn per_host(&mut self, n: Option<u32>) {
        self.per.extend(n.map(|n| (Source::Host, n)));
    }

    /// The host of a rank, if there are any.
    pub(super) fn host(&self, initial: u32) -> Option<String> {
        let named = self.hosts.get(initial as usize).cloned();
        named.or_else(|| self.per.get(&Source::Host).map(|n| format!("host{}", initial / (*n).max(1))))
    }
}

impl Keys for Named {
    fn value(&self, source: &Source, who: Numbers) -> Option<Cow<'_, str>> {
        let initial = who.initial.get();
        match source {
            Source::Host => self.host(initial).map(Cow::Owned),
            Source::Slice | Source::Rack | Source::Numa | Source::Env(_) | Source::Script(_) => {
                self.per.get(source).map(|n| (initial / (*n).max(1)).to_string().into())
            }
        }
    }
}

/// Facts about a job before it has begun.
pub(in crate::cli) struct Placed<'a> {
    /// The placement of its ranks.
    pub(in crate::cli) placement: &'a Placement,
    /// The environment that all of them get.
    pub(in crate::cli) env: &'a OsStrings,
}

impl Keys for Placed<'_> {
    fn value(&self, source: &Source, who: Numbers) -> Option<Cow<'_, str>> {
        match source {
            Source::Host => {
                let placed = self.placement.ranks.get(who.initial.index())?;
                self.placement.nodes.get(placed.node.index()).map(|node| node.host.name.as_str().into())
            }
            Source::Env(name) => env::value(self.env, name.as_bytes()).map(String::from_utf8_lossy),
            Source::Slice => {
                let placed = self.placement.ranks.get(who.initial.index())?;
                self.placement.slice(placed.node).map(Cow::Borrowed)
            }
            Source::Rack | Source::Numa | Source::Script(_) => None,
        }
    }
}
