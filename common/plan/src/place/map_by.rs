//! The words of `--map-by`, as Open MPI has them: `slot`, `numa:PE=2`, `ppr:2:l3`, `rankfile:FILE=hosts.rf`.

use super::By;
use crate::bind::Spread;
use crate::topology::Level;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::cpu_set;

/// More cores or ranks than a host has are a typing error.
const MOST: u32 = 65_536;

/// How ranks are mapped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MapBy {
    /// Which unit takes the next rank.
    pub order: Order,
    /// `PE=N`: cores of each rank.
    pub cores: Option<u32>,
    /// `SPAN`: units of all hosts take turns, as if they were one host's.
    pub span: bool,
    /// `HWTCPUS`: hardware threads are counted, not cores.
    pub threads: bool,
}

/// The unit that takes the next rank.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// Nothing was asked for: as by slot, and binding spreads ranks over the host.
    #[default]
    Default,
    /// Hosts are filled one after the other.
    Slot,
    /// Hosts take turns.
    Node,
    /// Hosts are filled one after the other, and units of a host take turns.
    Unit(Level),
    /// Each host gets this number of ranks.
    EachHost(u32),
    /// Each unit of each host gets this number of ranks.
    Each(u32, Level),
    /// The hosts of a file, one line for each rank; `None`: the hosts in the order in which they were given.
    Sequence(Option<String>),
    /// A file that names host and cores of each rank.
    Rankfile(String),
    /// By slot; every rank has these cores of its host.
    Cores(Vec<u32>),
}

/// Words that are no mapping.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapByError {
    /// No such unit.
    #[error("there is no unit {0:?}")]
    Unit(String),
    /// No such modifier, or one that this unit does not take.
    #[error("there is no modifier {0:?}")]
    Modifier(String),
    /// `ppr:0:node`
    #[error("{0:?} is no whole number above 0")]
    Number(String),
    /// `pe-list=`
    #[error("the list of cores: {0}")]
    List(#[from] cpu_set::CpuListError),
    /// `rankfile` without `FILE=`.
    #[error("no file is named (FILE=PATH)")]
    NoFile,
}

impl MapBy {
    /// Reads the words.
    ///
    /// # Errors
    /// The words are no mapping.
    pub fn parse(text: &str) -> Result<Self, MapByError> {
        // A path may hold colons and capitals.
        let (words, file) = match split_file(text) {
            Some((words, file)) => (words, Some(String::from(file))),
            None => (text, None),
        };
        let words = words.to_ascii_lowercase();
        let mut words = words.split(':');
        let mut map = Self::default();
        let first = words.next().unwrap_or_default();
        map.order = match first {
            "" | "slot" => Order::Slot,
            "node" => Order::Node,
            "ppr" => {
                let each = number(words.next().unwrap_or_default())?;
                match words.next().unwrap_or_default() {
                    "node" => Order::EachHost(each),
                    unit => Order::Each(each, level(unit)?),
                }
            }
            "seq" => Order::Sequence(file.clone()),
            "rankfile" | "rf" => Order::Rankfile(file.clone().ok_or(MapByError::NoFile)?),
            other => match other.strip_prefix("pe-list=") {
                Some(list) => Order::Cores(cpu_set::numbers(list)?),
                None => Order::Unit(level(other)?),
            },
        };
        if file.is_some() && !matches!(map.order, Order::Sequence(_) | Order::Rankfile(_)) {
            return Err(MapByError::Modifier("FILE=".into()));
        }
        for word in words.filter(|word| !word.is_empty()) {
            match word {
                "span" => map.span = true,
                "hwtcpus" => map.threads = true,
                // No change: the default.
                "oversubscribe" | "corecpus" | "noinherit" => {}
                other => match other.strip_prefix("pe=") {
                    Some(cores) => map.cores = Some(number(cores)?),
                    None => return Err(MapByError::Modifier(other.into())),
                },
            }
        }
        Ok(map)
    }

    /// The order of hosts.
    #[must_use]
    pub const fn by(&self) -> By {
        match self.order {
            Order::Node => By::Node,
            Order::Unit(level) => By::Unit(level),
            Order::Default
            | Order::Slot
            | Order::EachHost(_)
            | Order::Each(_, _)
            | Order::Sequence(_)
            | Order::Rankfile(_)
            | Order::Cores(_) => By::Slot,
        }
    }

    /// The same for the ranks of one host.
    #[must_use]
    pub const fn spread(&self) -> Spread {
        match self.order {
            Order::Default => Spread::Blocks,
            Order::Unit(level) => Spread::Deal(level),
            Order::Each(each, level) => Spread::Each(each, level),
            Order::Slot
            | Order::Node
            | Order::EachHost(_)
            | Order::Sequence(_)
            | Order::Rankfile(_)
            | Order::Cores(_) => Spread::Fill,
        }
    }

    /// The units below a host by whose number ranks are placed.
    #[must_use]
    pub const fn counts(&self) -> Option<Level> {
        match self.order {
            // Ranks beyond the cores of a host begin again at its first: their order is that of the slots.
            Order::Unit(level @ (Level::Package | Level::Numa | Level::L3)) | Order::Each(_, level) => Some(level),
            Order::Unit(Level::Core | Level::Hwthread)
            | Order::Default
            | Order::Slot
            | Order::Node
            | Order::EachHost(_)
            | Order::Sequence(_)
            | Order::Rankfile(_)
            | Order::Cores(_) => None,
        }
    }
}

/// The words before `:FILE=`, and the path after it.
fn split_file(text: &str) -> Option<(&str, &str)> {
    const FILE: &str = ":file=";
    let at = (0..text.len())
        .find(|at| text.get(*at..at.saturating_add(FILE.len())).is_some_and(|word| word.eq_ignore_ascii_case(FILE)))?;
    let (words, rest) = text.split_at_checked(at)?;
    let path = rest.get(FILE.len()..).filter(|path| !path.is_empty())?;
    Some((words, path))
}

fn level(word: &str) -> Result<Level, MapByError> {
    match word {
        "package" | "socket" => Ok(Level::Package),
        "numa" => Ok(Level::Numa),
        "l3" | "l3cache" => Ok(Level::L3),
        "core" => Ok(Level::Core),
        "hwthread" => Ok(Level::Hwthread),
        other => Err(MapByError::Unit(other.into())),
    }
}

fn number(word: &str) -> Result<u32, MapByError> {
    let digits = word.bytes().all(|b| b.is_ascii_digit());
    let number = word.parse::<u32>().ok().filter(|n| digits && (1..=MOST).contains(n));
    number.ok_or_else(|| MapByError::Number(word.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn words_of_open_mpi() {
        let of = |text| MapBy::parse(text).unwrap();
        let order = |order| MapBy { order, ..MapBy::default() };
        assert_eq!(of("Slot:OVERSUBSCRIBE"), order(Order::Slot));
        assert_eq!(of("l3cache:PE=8"), MapBy { cores: Some(8), ..order(Order::Unit(Level::L3)) });
        assert_eq!(of(":pe=2"), MapBy { cores: Some(2), ..order(Order::Slot) });
        assert_eq!(of("package:span"), MapBy { span: true, ..order(Order::Unit(Level::Package)) });
        assert_eq!(of("slot:HWTCPUS"), MapBy { threads: true, ..order(Order::Slot) });
        assert_eq!(
            (of("ppr:2:node"), of("ppr:1:numa")),
            (order(Order::EachHost(2)), order(Order::Each(1, Level::Numa)))
        );
        assert_eq!(of("seq"), order(Order::Sequence(None)));
        assert_eq!(of("rankfile:File=/A:b"), order(Order::Rankfile("/A:b".into())));
        assert_eq!(of("pe-list=0,2-3"), order(Order::Cores([0, 2, 3].into())));
        for (text, error) in [
            ("board", "there is no unit \"board\""),
            ("slot:nolocal", "there is no modifier \"nolocal\""),
            ("ppr:0:node", "\"0\" is no whole number above 0"),
            ("ppr:2", "there is no unit \"\""),
            ("slot:pe=+2", "\"+2\" is no whole number above 0"),
            ("rankfile", "no file is named (FILE=PATH)"),
            ("core:file=x", "there is no modifier \"FILE=\""),
            ("pe-list=1-0", "the list of cores: the range 1-0 ends before it begins"),
        ] {
            assert_eq!(MapBy::parse(text).map_err(|error| error.to_string()), Err(error.into()), "{text}");
        }
    }
}
