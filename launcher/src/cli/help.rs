//! The help, made from the table when it is asked for.

use super::table::{self, GROUPS, Group, Id, Row, Table, Takes};
use super::{devices, faults, hooks, output_options, place, reach, rounds, run, store_options, torch};
use std::fmt::Write as _;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opt {
    Help,
    Version,
}

pub(super) const GROUP: Group = Group {
    title: "Help",
    rows: &[
        Row {
            id: Id::Help(Opt::Help),
            short: Some(b'h'),
            names: &["help"],
            takes: Takes::Nothing,
            brief: "-h: this on one screen; --help: with explanations",
            more: &[],
        },
        Row {
            id: Id::Help(Opt::Version),
            short: Some(b'V'),
            names: &["version"],
            takes: Takes::Nothing,
            brief: "print the version",
            more: &[],
        },
    ],
};

const USAGE: &str = "Usage: rlaunch [OPTIONS] PROGRAM [ARGS...] [: [OPTIONS] PROGRAM [ARGS...]]...\n";
const COLUMN: usize = 27;

/// Options that `-h` leaves out, so that it stays on one screen.
const RARE: &[Id] = &[
    Id::Run(run::Opt::Name),
    Id::Output(output_options::Opt::Output),
    Id::Output(output_options::Opt::Error),
    Id::Torch(torch::Opt::Module),
    Id::Torch(torch::Opt::NoPython),
    Id::Torch(torch::Opt::LogDir),
    Id::Torch(torch::Opt::Redirects),
    Id::Torch(torch::Opt::Tee),
    Id::Torch(torch::Opt::Filter),
    Id::Torch(torch::Opt::MasterAddr),
    Id::Torch(torch::Opt::MasterPort),
    Id::Torch(torch::Opt::RunId),
    Id::Place(place::Opt::Nodes),
    Id::Place(place::Opt::MinHosts),
    Id::Place(place::Opt::MapBy),
    Id::Place(place::Opt::RankBy),
    Id::Place(place::Opt::Strict),
    Id::Place(place::Opt::AllowPartial),
    Id::Place(place::Opt::DryRun),
    Id::Place(place::Opt::Json),
    Id::Reach(reach::Opt::Transport),
    Id::Reach(reach::Opt::SuspendLimit),
    Id::Reach(reach::Opt::Lease),
    Id::Reach(reach::Opt::Connect),
    Id::Reach(reach::Opt::Prompt),
    Id::Output(output_options::Opt::Raw),
    Id::Reach(reach::Opt::Fast),
    Id::Reach(reach::Opt::AgentPath),
    Id::Reach(reach::Opt::Interface),
    Id::Reach(reach::Opt::Limits),
    Id::Store(store_options::Opt::Guard),
    Id::Place(place::Opt::Gpus),
    Id::Place(place::Opt::CpusPerRank),
    Id::Place(place::Opt::BindTo),
    Id::Place(place::Opt::ReportBindings),
    Id::Store(store_options::Opt::Framework),
    Id::Store(store_options::Opt::Mpi),
    Id::Faults(faults::Opt::MaxRestarts),
    Id::Faults(faults::Opt::RestartDelay),
    Id::Faults(faults::Opt::PreemptRetries),
    Id::Faults(faults::Opt::OnWarning),
    Id::Faults(faults::Opt::WarningGrace),
    Id::Rounds(rounds::Opt::Assign),
    Id::Rounds(rounds::Opt::Spares),
    Id::Rounds(rounds::Opt::SpareHosts),
    Id::Rounds(rounds::Opt::MaxRounds),
    Id::Rounds(rounds::Opt::MinWorld),
    Id::Rounds(rounds::Opt::MinActive),
    Id::Rounds(rounds::Opt::MaxRankFaults),
    Id::Rounds(rounds::Opt::FaultWindow),
    Id::Rounds(rounds::Opt::YieldWithin),
    Id::Rounds(rounds::Opt::Respawn),
    Id::Rounds(rounds::Opt::RespawnTimeout),
    Id::Rounds(rounds::Opt::Relocal),
    Id::Hooks(hooks::Opt::OnRestart),
    Id::Hooks(hooks::Opt::OnExit),
    Id::Hooks(hooks::Opt::Timeout),
    Id::Hooks(hooks::Opt::Nested),
    Id::Reach(reach::Opt::Launcher),
    Id::Devices(devices::Opt::Devices),
    Id::Devices(devices::Opt::Clean),
    Id::Devices(devices::Opt::LockFiles),
];

/// `-h`.
pub(super) fn brief() -> String {
    let mut text = String::from(USAGE);
    text.push('\n');
    for group in GROUPS {
        for row in group.rows.iter().filter(|row| !row.names.is_empty() && !RARE.contains(&row.id)) {
            line(&mut text, row);
        }
    }
    text.push_str("\nrlaunch --help explains them, and has more.\n");
    text
}

/// `--help`.
pub(super) fn full() -> String {
    let mut text = String::from(
        "rlaunch starts cooperating processes (ranks) and stays with them until the last\none is gone.\n\n",
    );
    text.push_str(USAGE);
    text.push_str(
        "       rlaunch run [OPTIONS] [--] PROGRAM [ARGS...]
       rlaunch map [--json] ...  where the ranks of that command line would run
       rlaunch hosts LIST...     lists of hosts: folded, expanded, counted
       rlaunch store ACTION ...  the store of a job, from within it
       rlaunch assign ...        who is which rank after losses: policies, tried
       rlaunch doctor [-H LIST]  what jobs would find here, or on hosts by ssh\n
The first word that is no option is the program; all words after it are its own,
up to a ':', behind which another program begins, with its own -n, --ppn, -H,
-f, -x, --wdir and --name. Behind 'rlaunch run --' a ':' is a word like others.
Underscores in options are dashes. Of an option given twice the last one counts;
-H, -f and -x add up.\n",
    );
    for group in GROUPS {
        text.push('\n');
        text.push_str(group.title);
        text.push_str(":\n");
        for row in group.rows.iter().filter(|row| !row.names.is_empty()) {
            line(&mut text, row);
            for more in row.more {
                // Writing to a String cannot fail.
                writeln!(text, "{:COLUMN$}{more}", "").unwrap_or_default();
            }
        }
    }
    text.push_str(
        "
Exit code: that of the rank that failed first, 128 + the signal that killed it;
2 bad option, 124 --timeout, 125 launch failed, 126 program not executable,
127 program not found.

",
    );
    text.push_str(&variables());
    text.push_str(
        "docs/environment.md lists the variables of each rank.

Examples:
  rlaunch -n 4 ./train --lr 0.1
  rlaunch -n 4 -l sh -c 'echo $RANK of $WORLD_SIZE'
  rlaunch -n 8 --timeout 1h -x NCCL_DEBUG=INFO python3 train.py
  rlaunch -n 1 --name server ./serve : -n 3 --name worker ./work
",
    );
    text
}

/// The variables that stand for options.
fn variables() -> String {
    const WIDTH: usize = 80;
    let own = table::rows().filter_map(Row::variable);
    let last = "RLAUNCH_LABEL=0|1 too; an option goes first.";
    let words = "Variables that stand for options:".split(' ').map(str::to_owned);
    let words = words.chain(own.map(|name| name + ",")).chain(last.split(' ').map(str::to_owned));
    let (mut text, mut column) = (String::new(), 0);
    for word in words {
        if column + 1 + word.len() > WIDTH {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        column += word.len();
        text.push_str(&word);
    }
    text.push('\n');
    text
}

/// `--version`.
pub(super) fn version() -> String {
    concat!("rlaunch ", env!("CARGO_PKG_VERSION"), "\n").to_owned()
}

/// `--help` of a command that has a table of its own.
pub(super) fn of(usage: &str, table: &Table) -> String {
    let mut text = String::from(usage);
    table.rows().filter(|row| !row.names.is_empty()).for_each(|row| line(&mut text, row));
    text
}

fn line(text: &mut String, row: &Row) {
    let (short, dash) = match row.short {
        Some(letter) => (format!("-{}, ", char::from(letter)), "--"),
        None if matches!(row.takes, Takes::Pair(_)) => ("    ".to_owned(), "-"),
        None => ("    ".to_owned(), "--"),
    };
    let value = match row.takes {
        Takes::Nothing => String::new(),
        Takes::One(what) | Takes::Pair(what) => format!(" {what}"),
        Takes::Maybe(what) => format!("[={what}]"),
    };
    let left = format!("  {short}{dash}{}{value}", row.shown());
    let gap = if left.len() + 1 < COLUMN { COLUMN } else { left.len() + 2 };
    // Writing to a String cannot fail.
    writeln!(text, "{left:gap$}{}", row.brief).unwrap_or_default();
}
