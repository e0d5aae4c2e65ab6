//! Values that ranks have in common: a host, a rack, an environment variable.

use super::assign_error::AssignError;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::num::NonZeroU32;
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::Visible;

/// A property by which ranks are grouped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Key {
    /// A property that has to be looked up.
    Of(Source),
    /// `rank/N`: N ranks that follow each other, by their numbers at that moment.
    RankBy(NonZeroU32),
    /// `rank%N`: every N-th rank, by its number at that moment.
    RankEvery(NonZeroU32),
    /// `initial/N`: the same, by the numbers that they had first.
    InitialBy(NonZeroU32),
    /// `initial%N`.
    InitialEvery(NonZeroU32),
    /// `const:WORD`: all are alike.
    Same(String),
}

/// The source of a property.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// The host.
    Host,
    /// The slice of accelerators.
    Slice,
    /// The switch or rack.
    Rack,
    /// The NUMA node.
    Numa,
    /// A variable of the rank's environment.
    Env(String),
    /// A function of the script, by its place among those of a policy.
    Script(u32),
}

/// The value of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// The value of a computed key.
    Number(u32),
    /// The value of a key that is looked up.
    Text(Cow<'a, str>),
}

/// The rank in question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// The process.
    pub initial: Rank,
    /// Its rank at that moment.
    pub rank: Rank,
}

/// Looks properties up.
pub trait Keys {
    /// The value of a rank; `None`: unknown.
    fn value(&self, source: &Source, who: Numbers) -> Option<Cow<'_, str>>;
}

/// For policies that look nothing up.
impl Keys for () {
    fn value(&self, _source: &Source, _who: Numbers) -> Option<Cow<'_, str>> {
        None
    }
}

impl Key {
    pub(super) fn of<'a>(&'a self, who: Numbers, keys: &'a dyn Keys) -> Result<Value<'a>, AssignError> {
        Ok(match self {
            Self::Of(source) => match keys.value(source, who) {
                Some(text) => Value::Text(text),
                None => return Err(AssignError::UnknownKey { key: self.clone(), initial: who.initial }),
            },
            Self::RankBy(n) => Value::Number(who.rank.get() / n.get()),
            Self::RankEvery(n) => Value::Number(who.rank.get() % n.get()),
            Self::InitialBy(n) => Value::Number(who.initial.get() / n.get()),
            Self::InitialEvery(n) => Value::Number(who.initial.get() % n.get()),
            Self::Same(word) => Value::Text(Cow::Borrowed(word)),
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(source) => source.fmt(f),
            Self::RankBy(n) => write!(f, "rank/{n}"),
            Self::RankEvery(n) => write!(f, "rank%{n}"),
            Self::InitialBy(n) => write!(f, "initial/{n}"),
            Self::InitialEvery(n) => write!(f, "initial%{n}"),
            Self::Same(word) => write!(f, "const:{word}"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Slice => f.write_str("slice"),
            Self::Rack => f.write_str("rack"),
            Self::Numa => f.write_str("numa"),
            Self::Env(name) => write!(f, "env:{name}"),
            Self::Script(n) => write!(f, "script/{n}"),
        }
    }
}

impl Value<'_> {
    /// Whether two are equal. Those of a group are mostly the same text in the same place.
    pub(super) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => core::ptr::eq::<str>(&**a, &**b) || a == b,
            (Self::Number(a), Self::Number(b)) => a == b,
            (Self::Number(_), Self::Text(_)) | (Self::Text(_), Self::Number(_)) => false,
        }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => n.fmt(f),
            Self::Text(text) => write!(f, "'{}'", Visible(text.as_bytes())),
        }
    }
}

/// A value that is kept.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Owned {
    Number(u32),
    Text(Box<str>),
}

impl Owned {
    pub(super) fn is(&self, value: &Value<'_>) -> bool {
        match (self, value) {
            (Self::Number(a), Value::Number(b)) => a == b,
            (Self::Text(a), Value::Text(b)) => **a == **b,
            (Self::Number(_), Value::Text(_)) | (Self::Text(_), Value::Number(_)) => false,
        }
    }
}

impl From<Value<'_>> for Owned {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Number(n) => Self::Number(n),
            Value::Text(text) => Self::Text(text.into()),
        }
    }
}

impl fmt::Display for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => n.fmt(f),
            Self::Text(text) => write!(f, "'{}'", Visible(text.as_bytes())),
        }
    }
}
