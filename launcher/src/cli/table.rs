//! The table of options: the one source for what is accepted, for the help and for "did you mean".
//!
//! The command line stands before the first rank's start, where a whole launch takes two milliseconds. Reading it by a
//! constant table costs about half of what a parser takes that builds its grammar at run time
//! (docs/contribute/decisions/option-table.md has the figures). Much of what other launchers' users type is no grammar of
//! such a parser.

use super::{
    assign, devices, doctor, env, faults, help, hooks, hosts, output_options, place, pool, query, reach, report,
    rounds, run, store_options, torch,
};

/// Which option a row is; each help group has its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Id {
    Run(run::Opt),
    Place(place::Opt),
    Env(env::Opt),
    Output(output_options::Opt),
    Faults(faults::Opt),
    Reach(reach::Opt),
    Store(store_options::Opt),
    Rounds(rounds::Opt),
    Hooks(hooks::Opt),
    Torch(torch::Opt),
    Devices(devices::Opt),
    Help(help::Opt),
    /// An option of `rlaunch hosts`.
    Hosts(hosts::Opt),
    /// An option of `rlaunch store`.
    Ask(query::Opt),
    /// An option of `rlaunch report`.
    Report(report::Opt),
    /// An option of `rlaunch assign`.
    Assign(assign::Opt),
    /// An option of `rlaunch pool`.
    Pool(pool::Opt),
}

/// How many words follow an option, and what the help calls them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Takes {
    Nothing,
    One(&'static str),
    /// `--wait=10m`: no word, or one after `=`.
    Maybe(&'static str),
    /// `-genv NAME VALUE`: read as `NAME=VALUE`.
    Pair(&'static str),
}

/// An option.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: Id,
    /// Its letters after one dash. The help shows the first.
    pub(super) letters: &'static [u8],
    /// Its words after one dash or two, without underscores. The first names its variable, and the first of more than one letter is the one
    /// that the help shows.
    pub(super) names: &'static [&'static str],
    pub(super) takes: Takes,
    /// A line, for `-h`.
    pub(super) brief: &'static str,
    /// Further lines for `--help`.
    pub(super) more: &'static [&'static str],
}

/// A group of the help.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) title: &'static str,
    /// Its word for `rlaunch help TOPIC`.
    pub(super) topic: &'static str,
    pub(super) rows: &'static [Row],
}

/// All options.
pub(super) const GROUPS: [Group; 12] = [
    run::GROUP,
    place::GROUP,
    reach::GROUP,
    store_options::GROUP,
    env::GROUP,
    output_options::GROUP,
    faults::GROUP,
    rounds::GROUP,
    hooks::GROUP,
    devices::GROUP,
    torch::GROUP,
    help::GROUP,
];

static ROWS: [&[Row]; 12] = [
    run::ROWS,
    place::ROWS,
    reach::ROWS,
    store_options::ROWS,
    env::ROWS,
    output_options::ROWS,
    faults::ROWS,
    rounds::ROWS,
    hooks::ROWS,
    devices::ROWS,
    torch::ROWS,
    help::ROWS,
];

/// Defines the options of a group: its `Opt`, and its `GROUP` with a title and a topic, or its `ROWS`.
///
/// An entry is `Opt -b'o' ["name", "alias"] Takes: "brief", "more";` with as many letters, names and further lines as there are.
macro_rules! options {
    ($room:ident, $title:literal, $topic:literal; $($rows:tt)*) => {
        $crate::cli::table::options! { $room; $($rows)* }
        pub(super) const GROUP: $crate::cli::table::Group =
            $crate::cli::table::Group { title: $title, topic: $topic, rows: ROWS };
    };
    ($room:ident; $($opt:ident $(-$letter:literal)* [$($name:literal),+] $takes:ident $(($what:literal))?:
        $brief:expr $(, $more:literal)*;)+) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum Opt {
            $($opt),+
        }

        pub(super) const ROWS: &[$crate::cli::table::Row] = &[$($crate::cli::table::Row {
            id: $crate::cli::table::Id::$room(Opt::$opt),
            letters: &[$($letter),*],
            names: &[$($name),+],
            takes: $crate::cli::table::Takes::$takes $(($what))?,
            brief: $brief,
            more: &[$($more),*],
        }),+];
    };
}
pub(super) use options;

impl Row {
    /// The letter that the help shows.
    pub(super) fn letter(&self) -> Option<u8> {
        self.letters.first().copied()
    }

    /// The variable that stands for the option: `RLAUNCH_` and its first name in capitals. Every option has one that takes a
    /// value and counts once; those that set variables are variables already.
    pub(super) fn variable(&self) -> Option<String> {
        // RLAUNCH_GROUP is a variable of ranks: a rank that starts a job must not make it a group.
        let has_none = matches!(
            self.id,
            Id::Env(_) | Id::Run(run::Opt::Group | run::Opt::Share | run::Opt::Tied | run::Opt::Programs)
        );
        let takes_one = matches!(self.takes, Takes::One(_) | Takes::Maybe(_)) && !has_none;
        let name = self.names.first().filter(|_| takes_one)?;
        Some(format!("RLAUNCH_{}", name.replace('-', "_").to_ascii_uppercase()))
    }

    /// The option as it is typed.
    pub(super) fn typed(&self) -> String {
        self.letter().map_or_else(|| format!("--{}", self.shown()), |letter| format!("-{}", char::from(letter)))
    }

    /// Its word as the help shows it.
    pub(super) fn shown(&self) -> &'static str {
        self.names.iter().copied().find(|name| name.len() > 1).unwrap_or_default()
    }
}

/// The options of one command.
#[derive(Debug)]
pub(super) struct Table {
    rows: &'static [&'static [Row]],
    /// The options that count; `None`: all.
    only: Option<&'static [Id]>,
    /// The command that lists them.
    pub(super) help: &'static str,
}

/// The options of a job, and of `rlaunch map`.
pub(super) static JOB: Table = Table { rows: &ROWS, only: None, help: "rlaunch --help" };
/// The options of `rlaunch hosts`.
pub(super) static HOSTS: Table = Table { rows: &[hosts::ROWS], only: None, help: "rlaunch hosts --help" };
/// The options of `rlaunch store`.
pub(super) static ASK: Table = Table { rows: &[query::ROWS], only: None, help: "rlaunch store --help" };
/// The options of `rlaunch report`.
pub(super) static REPORT: Table = Table { rows: &[report::ROWS], only: None, help: "rlaunch report --help" };
/// The options of `rlaunch assign`.
pub(super) static ASSIGN: Table = Table { rows: &[assign::ROWS], only: None, help: "rlaunch assign --help" };
/// The options of `rlaunch doctor`: some of a job's.
pub(super) static DOCTOR: Table = Table { rows: &ROWS, only: Some(doctor::OPTIONS), help: "rlaunch doctor --help" };

/// The options of `rlaunch clean`: some of a job's.
pub(super) static CLEAN: Table =
    Table { rows: &ROWS, only: Some(devices::CLEAN_OPTIONS), help: "rlaunch clean --help" };

/// The options of `rlaunch pool`: some of a job's, and its own.
pub(super) static POOL: Table = Table {
    rows: &[place::ROWS, reach::ROWS, output_options::ROWS, pool::ROWS, help::ROWS],
    only: Some(pool::OPTIONS),
    help: "rlaunch pool --help",
};

/// The options of a command that has none of its own.
pub(super) static PLAIN: Table =
    Table { rows: &ROWS, only: Some(&[Id::Help(help::Opt::Help)]), help: "rlaunch --help" };
/// The options of `rlaunch version`.
pub(super) static VERSION: Table = Table {
    rows: &ROWS,
    only: Some(&[Id::Output(output_options::Opt::Verbose), Id::Help(help::Opt::Help)]),
    help: "rlaunch version --help",
};

impl Table {
    /// The option with this word.
    pub(super) fn by_name(&self, name: &[u8]) -> Option<&'static Row> {
        self.rows().find(|row| row.names.iter().any(|own| same(own, name)))
    }

    /// The option with this letter.
    pub(super) fn by_letter(&self, letter: u8) -> Option<&'static Row> {
        self.rows().find(|row| row.letters.contains(&letter))
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &'static Row> + use<> {
        let only = self.only;
        self.rows.iter().copied().flatten().filter(move |row| only.is_none_or(|only| only.contains(&row.id)))
    }

    /// Whether it starts a job: only there do the options of other launchers mean something.
    pub(super) fn is_jobs(&self) -> bool {
        std::ptr::eq(self, &raw const JOB)
    }
}

pub(super) fn rows() -> impl Iterator<Item = &'static Row> {
    JOB.rows()
}

/// Whether `typed` spells `name`; underscores are dashes.
pub(super) fn same(name: &str, typed: &[u8]) -> bool {
    name.len() == typed.len() && name.bytes().zip(typed).all(|(a, b)| a == *b || (a == b'-' && *b == b'_'))
}
