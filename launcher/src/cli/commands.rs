//! The commands of rlaunch: the one source for the help, the completions, the man page and "did you mean".

use super::table::{self, Table};
use super::{
    CliError, Command, Form, Lookup, Read, assign, devices, doctor, help, hosts, job, man, pool, query, report, shells,
};
use rlaunch_base::os_bytes::OsBytes;

/// A command.
#[derive(Debug)]
pub(super) struct Sub {
    pub(super) name: &'static str,
    /// Its words, for the list of commands.
    pub(super) shape: &'static str,
    /// A line, for the list of commands.
    pub(super) brief: &'static str,
    /// The first part of its own help.
    pub(super) usage: &'static str,
    pub(super) table: &'static Table,
    /// Reads the words after its name.
    pub(super) parse: Parse,
}

type Parse = fn(Vec<OsBytes>, Lookup<'_>, Read<'_>) -> Result<Command, CliError>;

impl Sub {
    /// Whether its words end with a program.
    pub(super) fn takes_program(&self) -> bool {
        self.table.is_jobs()
    }
}

const RUN: &str = "\
Usage: rlaunch run [OPTIONS] [--] PROGRAM [ARGS...]

Starts a job, as rlaunch without 'run'. PROGRAM may have the name of a command.
After 'run --' a ':' is an argument of the program.

";

const MAP: &str = "\
Usage: rlaunch map [--json] [--bind] [OPTIONS] [PROGRAM [ARGS...] [: ...]...]

Prints where the ranks of a job would run, and starts nothing. All options of a
job are accepted. The same as --dry-run. --bind: as --report-bindings. These
options decide:

";

const HELP: &str = "\
Usage: rlaunch help [TOPIC]

TOPIC is a command, an option, or one of these:

";

const VERSION: &str = "\
Usage: rlaunch version [-v]

Prints the version. -v: also the path of this rlaunch, and of others in PATH.

";

/// All commands, in the order of the help.
pub(super) static COMMANDS: [Sub; 13] = [
    Sub {
        name: "run",
        shape: "[--] PROGRAM",
        brief: "a job, as without 'run'",
        usage: RUN,
        table: &table::JOB,
        parse: |words, env, read| job(words, Form::Run, env, read),
    },
    Sub {
        name: "map",
        shape: "[PROGRAM]",
        brief: "where its ranks would run",
        usage: MAP,
        table: &table::JOB,
        parse: |words, env, read| job(words, Form::Map, env, read),
    },
    Sub {
        name: "doctor",
        shape: "[-H LIST]",
        brief: "examines this machine, or hosts by ssh",
        usage: doctor::USAGE,
        table: &table::DOCTOR,
        parse: |words, env, _| doctor::parse(words, env),
    },
    Sub {
        name: "pool",
        shape: "ACTION NAME",
        brief: "hosts that stay ready between jobs",
        usage: pool::USAGE,
        table: &table::POOL,
        parse: |words, _, _| pool::parse(words),
    },
    Sub {
        name: "hosts",
        shape: "[LIST...]",
        brief: "lists of hosts: fold, expand, count",
        usage: hosts::USAGE,
        table: &table::HOSTS,
        parse: |words, _, _| hosts::parse(words),
    },
    Sub {
        name: "report",
        shape: "EVENTS",
        brief: "a job after its end, and a picture",
        usage: report::USAGE,
        table: &table::REPORT,
        parse: |words, _, _| report::parse(words),
    },
    Sub {
        name: "assign",
        shape: "--world N",
        brief: "ranks after losses: policies, tried",
        usage: assign::USAGE,
        table: &table::ASSIGN,
        parse: |words, _, _| assign::parse(words),
    },
    Sub {
        name: "store",
        shape: "ACTION",
        brief: "the store of a job, from within it",
        usage: query::USAGE,
        table: &table::ASK,
        parse: |words, _, _| query::parse(words),
    },
    Sub {
        name: "clean",
        shape: "[-H LIST]",
        brief: "frees the TPU chips of hosts",
        usage: devices::USAGE,
        table: &table::CLEAN,
        parse: super::clean,
    },
    Sub {
        name: "completions",
        shape: "SHELL",
        brief: "completions for bash, zsh or fish",
        usage: shells::USAGE,
        table: &table::PLAIN,
        parse: |words, _, _| shells::parse(words),
    },
    Sub {
        name: "man",
        shape: "",
        brief: "the manual page: rlaunch man | man -l -",
        usage: man::USAGE,
        table: &table::PLAIN,
        parse: |words, _, _| man::parse(words),
    },
    Sub {
        name: "help",
        shape: "[TOPIC]",
        brief: "a command, an option or a topic",
        usage: HELP,
        table: &table::PLAIN,
        parse: |words, _, _| help::about(&words).map(Command::text),
    },
    Sub {
        name: "version",
        shape: "[-v]",
        brief: "the version",
        usage: VERSION,
        table: &table::VERSION,
        parse: |words, _, _| super::version(words),
    },
];

/// The command with this name.
pub(super) fn by_name(word: &[u8]) -> Option<&'static Sub> {
    COMMANDS.iter().find(|sub| sub.name.as_bytes() == word)
}
