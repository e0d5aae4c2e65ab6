//! Errors in a list of hosts, with their place: file, line, column and a caret.

use super::groups::GroupFault;
use super::{MOST_HOSTS, MOST_NAMES, hostfile};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use rlaunch_base::error::Hint;
use rlaunch_base::os_bytes::Visible;

/// Most characters of a line that are shown.
const WIDTH: usize = 72;

/// A place in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spot {
    /// The file, or the option.
    source: Arc<str>,
    /// The whole line.
    text: Arc<str>,
    /// From 1; 0: the list is no file.
    line: u32,
    /// In bytes; `None`: the list as a whole.
    offset: Option<usize>,
}

impl Spot {
    /// A line of a source.
    pub(super) fn line(source: &Arc<str>, text: &str, line: u32) -> Self {
        Self { source: Arc::clone(source), text: text.into(), line, offset: None }
    }

    /// No line in particular.
    pub(super) fn whole(source: &str) -> Self {
        Self { source: source.into(), text: "".into(), line: 0, offset: None }
    }

    /// Place in the line, so many bytes from its begin.
    pub(super) fn at(&self, offset: usize) -> Self {
        Self { offset: Some(offset), ..self.clone() }
    }

    /// In characters from 1. It is computed only for the message: a list may have ten thousands of terms in one line.
    fn column(&self) -> Option<usize> {
        let offset = self.offset?;
        Some(self.text.char_indices().take_while(|(at, _)| *at < offset).count().saturating_add(1))
    }

    pub(super) fn fault(&self, fault: Fault) -> HostlistError {
        HostlistError { spot: Box::new(self.clone()), fault, next: None }
    }

    /// The line with a caret below the column; nothing where there is no column.
    fn excerpt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(before) = self.column().map(|column| column.saturating_sub(1)) else { return Ok(()) };
        // A tab would put the caret elsewhere, and other control characters would drive the terminal.
        let shown = |c: char| match c {
            '\t' => ' ',
            c if c.is_control() => '?',
            c => c,
        };
        let skip = if before < WIDTH { 0 } else { before.saturating_sub(WIDTH / 2) };
        let text: String = self.text.chars().skip(skip).take(WIDTH).map(shown).collect();
        let number = if self.line == 0 { String::new() } else { format!("{}", self.line) };
        let cut = if skip == 0 { "" } else { "..." };
        let room = before.saturating_sub(skip).saturating_add(cut.len());
        let gutter = number.len().max(4);
        write!(f, "\n{number:>gutter$} | {cut}{}\n{:gutter$} | {:room$}^", text.trim_end(), "", "")
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Visible(self.source.as_bytes()).fmt(f)?;
        match (self.line, self.column()) {
            (0, None) => Ok(()),
            (0, Some(column)) => write!(f, ", column {column}"),
            (line, None) => write!(f, ":{line}"),
            (line, Some(column)) => write!(f, ":{line}:{column}"),
        }
    }
}

/// A list that cannot be understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct HostlistError {
    spot: Box<Spot>,
    /// The error.
    pub fault: Fault,
    /// The error of a later line of the file.
    pub(super) next: Option<Box<Self>>,
}

impl HostlistError {
    /// The message without the lines that show the place.
    #[must_use]
    pub fn summary(&self) -> String {
        // A message may quote any text of the list.
        let fault = format!("{}", self.fault);
        format!("{}: {}", self.spot, Visible(fault.as_bytes()))
    }
}

impl fmt::Display for HostlistError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())?;
        if let Fault::Contradiction { other, .. } = &self.fault {
            other.excerpt(f)?;
        }
        self.spot.excerpt(f)?;
        self.next.iter().try_for_each(|next| write!(f, "\n{next}"))
    }
}

/// An error in a list.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// Bytes that are no UTF-8.
    #[error("this byte is no text")]
    NotText,
    /// No host at all.
    #[error("there is no host in it")]
    Nothing,
    /// Nothing between two commas, or after a sign.
    #[error("a host name is missing here")]
    MissingName,
    /// Nothing before `@`, or after `user=`.
    #[error("a user name is missing here")]
    MissingUser,
    /// A character that no host name has.
    #[error("{0:?} cannot be in a host name")]
    Character(char),
    /// A character that no user name has, or not there.
    #[error("{0:?} cannot be here in a user name")]
    UserCharacter(char),
    /// ssh would take the name for an option.
    #[error("a host or user name cannot begin with '-'")]
    Dash,
    /// `n[1-3`
    #[error("this bracket is not closed")]
    Open,
    /// `n1-3]`
    #[error("this bracket was not opened")]
    Closed,
    /// The text between the brackets.
    #[error("between brackets stand numbers and ranges like 01-04 or 1-9/2, got '{0}'")]
    Range(String),
    /// `[3-1]`
    #[error("the range {0} goes backwards")]
    Backwards(String),
    /// `[09-100]`
    #[error("the ends of the range {0} do not have the same width")]
    Padding(String),
    /// Not in brackets, yet with more than one colon.
    #[error("'{0}' is no IPv6 address")]
    Address(String),
    /// Too many.
    #[error("more than {MOST_HOSTS} hosts")]
    TooMany,
    /// Names over names, of which few are left.
    #[error("more than {MOST_NAMES} names to go through")]
    TooMuch,
    /// `host:x`, `slots=x`
    #[error("{key} takes {takes}, got '{got}'")]
    Number {
        /// The key.
        key: &'static str,
        /// The accepted values.
        takes: &'static str,
        /// The given value.
        got: String,
    },
    /// A word after a host that means nothing.
    #[error(
        "'{0}' means nothing here: slots=N, max_slots=N, port=N, user=NAME, and for TPUs slice=NAME id=N devices=N, may follow a host"
    )]
    Word(String),
    /// Nothing after `slice=`.
    #[error("the name of the slice is missing here")]
    MissingSlice,
    /// A character that no slice has.
    #[error("{0:?} cannot be in the name of a slice")]
    SliceCharacter(char),
    /// `slice=a` and no number.
    #[error("{key}= needs {other}= beside it")]
    Without {
        /// The word that is there.
        key: &'static str,
        /// The word that is missing.
        other: &'static str,
    },
    /// The same fact twice.
    #[error("{0} is there twice")]
    Twice(&'static str),
    /// Two lines that cannot both be true.
    #[error("{host} has {key}={here} here, but {key}={there} at {other}")]
    Contradiction {
        /// `slots` or `max_slots`.
        key: &'static str,
        /// The host.
        host: String,
        /// Here.
        here: u32,
        /// There.
        there: u32,
        /// The other place.
        other: Spot,
    },
    /// The same about the chips of a host.
    #[error("{host} has {here} here, but {there} at {other}")]
    OtherChips {
        /// The host.
        host: Box<str>,
        /// Here.
        here: Box<str>,
        /// There.
        there: Box<str>,
        /// The other place.
        other: Box<Spot>,
    },
    /// Two hosts of a slice have one number.
    #[error("two hosts are number {id} of slice {slice}: {host} here, and {one} at {other}")]
    SameId {
        /// The slice.
        slice: Box<str>,
        /// The number.
        id: u32,
        /// The host here.
        host: Box<str>,
        /// The other host.
        one: Box<str>,
        /// The other place.
        other: Box<Spot>,
    },
    /// A number that the slice of a host does not have.
    #[error("{host} is number {id} of slice {slice}, which has {}, from 0 on", Hosts(*hosts))]
    HighId {
        /// The slice.
        slice: String,
        /// The number.
        id: u32,
        /// The host.
        host: String,
        /// Hosts of the slice.
        hosts: u32,
    },
    /// More slots than `max_slots` allows.
    #[error("{host} has {slots} slots, but max_slots={max}")]
    AboveMax {
        /// Which host.
        host: String,
        /// Its slots in all.
        slots: u32,
        /// Their bound.
        max: u32,
    },
    /// `@group`
    #[error("{name}: {fault}")]
    Group {
        /// Which.
        name: String,
        /// Why it cannot be looked up.
        fault: Box<GroupFault>,
    },
    /// `@@source`
    #[error("{0} lists names of groups, not of hosts")]
    GroupNames(String),
    /// A character that no group has.
    #[error("{0:?} cannot be in the name of a group")]
    GroupCharacter(char),
    /// `!host:4`
    #[error("a host that is taken out has no slots")]
    Excluded,
    /// `^file`
    #[error("cannot read {path}: {why}")]
    File {
        /// Which.
        path: String,
        /// Why.
        why: String,
    },
    /// A file that names itself, or one that names it.
    #[error("{0} is being read already: a hostfile cannot name itself")]
    Itself(String),
    /// Files that name files that name files; or groups.
    #[error("{0} name each other too deep")]
    Deep(&'static str),
}

/// `1 host`, `4 hosts`
#[derive(Clone, Copy, Debug)]
pub struct Hosts(pub u32);

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} host{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

impl Hint for HostlistError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(match &self.fault {
            Fault::Nothing if self.spot.source.starts_with(['-', 'R']) => {
                "HOST,...: '!' takes hosts out of those before it, as in node[01-08]!node05".into()
            }
            Fault::Nothing => "one host on each line, for example: node01 slots=4".into(),
            Fault::Character('/') => "--hostfile FILE, for hosts that are listed in a file".into(),
            Fault::Padding(range) => {
                let (start, end) = range.split_once('-').unwrap_or_default();
                let width = start.len().max(end.len());
                format!("{start:0>width$}-{end:0>width$}").into()
            }
            Fault::Word(word) if word.contains(':') => "HOST:N is N slots; HOST port=N is a port of ssh".into(),
            Fault::Word(word) => return hostfile::meant(word).map(Cow::Owned),
            Fault::OtherChips { .. } => "one line for each host".into(),
            Fault::SameId { .. } | Fault::HighId { .. } => {
                "node[0-3] slice=a id=0 devices=4, which numbers the hosts of a line from 0 on".into()
            }
            Fault::Contradiction { .. } => "one line for each host, or HOST:N on both to add them up".into(),
            Fault::Group { fault, .. } => return fault.hint(),
            Fault::GroupNames(names) => format!("@{}:*", names.trim_start_matches('@')).into(),
            Fault::Without { .. } => "node01 slice=a id=0 devices=4".into(),
            Fault::Address(_) => "[ADDRESS] or [ADDRESS]:SLOTS".into(),
            Fault::NotText
            | Fault::MissingName
            | Fault::MissingUser
            | Fault::MissingSlice
            | Fault::SliceCharacter(_)
            | Fault::Character(_)
            | Fault::UserCharacter(_)
            | Fault::Dash
            | Fault::Open
            | Fault::Closed
            | Fault::Range(_)
            | Fault::Backwards(_)
            | Fault::TooMany
            | Fault::TooMuch
            | Fault::Number { .. }
            | Fault::Twice(_)
            | Fault::AboveMax { .. }
            | Fault::Excluded
            | Fault::File { .. }
            | Fault::GroupCharacter(_)
            | Fault::Itself(_)
            | Fault::Deep(_) => return None,
        })
    }
}
