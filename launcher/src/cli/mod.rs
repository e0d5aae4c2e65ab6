//! The command line: from words to a job, or to one clear error.
//!
//! Pure: the caller's environment is asked through a function, and nothing is printed here.

mod allocation;
mod assign;
mod binding;
mod commands;
mod contradictions;
mod devices;
mod doctor;
mod env;
mod errors;
mod faults;
mod files;
mod foreign;
mod help;
mod hooks;
mod hosts;
mod job_options;
mod man;
mod mapping;
mod output_options;
mod place;
mod plan;
mod planned_options;
mod pool;
mod program_files;
mod python;
mod query;
mod reach;
mod report;
mod rounds;
mod run;
mod scan;
mod shells;
mod site;
mod slices;
mod srun;
mod store_options;
mod table;
#[cfg(test)]
mod tests;
mod torch;
mod values;
mod worlds;

pub(crate) use allocation::{AllocationUseError, InAllocation};
pub(crate) use assign::{Trial, read_policy};
pub(crate) use doctor::Doctor;
pub(crate) use errors::CliError;
pub(crate) use files::Directory;
pub(crate) use hosts::Query;
pub(crate) use output_options::{Events, Style, Verbosity, When};
pub(crate) use place::Whole;
pub(crate) use plan::Plan;
pub(crate) use pool::{PoolChoice, PoolCommand, PoolExec, PoolUp, PoolVerb, exec as pool_exec, is_exec};
#[cfg(test)]
use program_files::NO_FILES;
pub(crate) use program_files::Read;
pub(crate) use query::{Action, Request};
pub(crate) use reach::Reach;
pub(crate) use report::{Picture, ReportRequest};
pub(crate) use site::{Has, Known, LARGEST, Runs, Silent, Site, why};
pub(crate) use slices::slots_of;
pub(crate) use srun::excluded;
pub(crate) use values::Lookup;

use job_options::{Scope, collect, from_variables};
use rlaunch_base::nearest;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_core::hooks::Wanted;
use rlaunch_plan::place::Note;
use rlaunch_protocol::env::Export;
use rlaunch_protocol::framework::{Framework, Mpi};
use rlaunch_protocol::master_store::Asked;
use rlaunch_protocol::settings::Settings;
use rlaunch_sys::slots::Turn;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use table::Id;

/// A command of the user.
#[derive(Debug)]
pub(crate) enum Command {
    /// A job.
    Run(Box<Run>),
    /// Something about a pool.
    Pool(Box<PoolCommand>),
    /// Examine hosts.
    Doctor(Box<Doctor>),
    /// Print an answer, and nothing else.
    Answer(Answer),
}

/// A command that only prints.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A text to print.
    Text(String),
    /// The version, and the path of each rlaunch that a shell would find.
    Installed(String),
    /// The placement of a job.
    Map {
        /// The job.
        run: Box<Run>,
        /// For programs to read.
        json: bool,
    },
    /// Something about lists of hosts.
    Hosts(Box<Query>),
    /// The store of a job.
    Ask(Box<Request>),
    /// A job after its end.
    Report(Box<ReportRequest>),
    /// The effect of losses under a policy.
    Assign(Box<Trial>),
}

impl Command {
    fn text(text: String) -> Self {
        Self::Answer(Answer::Text(text))
    }
}

/// A job as it was asked for.
#[derive(Debug)]
pub(crate) struct Run {
    /// Its programs, at least one.
    pub(crate) programs: Vec<Program>,
    /// The placement options that are the same for all programs.
    pub(crate) whole: place::Whole,
    /// Options that variables stood for, and which.
    variables: Vec<(String, OsBytes)>,
    /// `-o`, `-e`.
    files: files::Both,
    /// `-l`, `--prefix`, `--raw`.
    pub(crate) style: Style,
    /// The values of options that need neither the placement nor the programs.
    pub(crate) settings: Settings,
    /// `--preempt-retries` was given.
    is_preempt_given: bool,
    /// How other hosts are reached.
    pub(crate) reach: Reach,
    /// The scheduler's allocation, if the job uses it.
    pub(crate) in_allocation: Option<InAllocation>,
    /// The turn to choose slots there.
    pub(crate) turn: Option<Turn>,
    /// The note about other jobs there.
    beside: Option<Note>,
    /// `--master-store`.
    pub(crate) master_store: Asked,
    /// The restart options.
    rounds: rounds::Args,
    /// torchrun's options are used.
    torchrun: bool,
    /// torchrun's options for the whole job.
    torch: torch::Args,
    /// `--framework`.
    pub(crate) framework: Framework,
    /// `--mpi`.
    pub(crate) mpi: Mpi,
    /// `--on-restart`, `--on-exit`, `--hook-timeout`.
    pub(crate) hooks: Wanted,
    /// Options that concern only the launcher.
    pub(crate) presentation: Presentation,
}

/// A program as the user gave it.
#[derive(Debug)]
pub(crate) struct Program {
    /// `-n`.
    pub(crate) n: Option<u32>,
    /// Program and arguments, byte for byte.
    pub(crate) argv: Vec<OsBytes>,
    /// `--wdir`.
    pub(crate) wdir: Option<OsBytes>,
    /// `--name`.
    pub(crate) name: Option<OsBytes>,
    /// `-genv` of all programs, then `-x` and `-env`, in their order.
    pub(crate) exports: Vec<Export>,
    /// Its placement options.
    pub(crate) place: place::Own,
    /// `-m`, `--no-python`.
    pub(crate) python: python::Said,
    /// `--group` and what belongs to it.
    pub(crate) world: worlds::Own,
}

/// The launcher's output, and its destinations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Presentation {
    /// `-v`, `-q`.
    pub(crate) verbosity: Verbosity,
    /// `--color`.
    pub(crate) color: When,
    /// `--events`.
    pub(crate) events: Option<Events>,
    /// `rlaunch clean`: removed files are the answer to the user.
    pub(crate) cleans: bool,
    /// `rlaunch map` without a program.
    pub(crate) is_bare_map: bool,
    /// With `--lead` the job would have more hosts.
    pub(crate) lead_has_more: bool,
    /// Other launchers' options that ask for what happens anyway.
    pub(crate) same: Vec<OsBytes>,
    /// Programs that Python runs, in words.
    pub(crate) interpreted: Vec<OsBytes>,
    /// Files that the launcher writes, instead of its standard output and standard error, with what ranks write there.
    pub(crate) files: [Option<OsBytes>; 2],
    /// Directories of the files that agents write.
    pub(crate) directories: Vec<files::Directory>,
}

/// A first word that asks for neither a job nor its help; decided before anything else is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Apart {
    /// `agent`: this process is to be the guardian of a remote host.
    Agent,
    /// `doctor`.
    Doctor,
    /// `pool`.
    Pool,
}

/// The first word, if it is one of those.
pub(crate) fn apart(args: &[OsString]) -> Option<Apart> {
    match args.first()?.as_encoded_bytes() {
        b"agent" => Some(Apart::Agent),
        b"doctor" => Some(Apart::Doctor),
        b"pool" if !is_exec(args) => Some(Apart::Pool),
        _ => None,
    }
}

/// The help of `rlaunch pool`.
pub(crate) fn pool_help() -> String {
    help::command_named("pool")
}

/// Whether the first of these words (without the command's own name) asks for a job. For a job, guardian and agent are forked before
/// anything is parsed.
pub(crate) fn is_job(args: &[OsString]) -> bool {
    let first = args.first().map(|word| word.as_encoded_bytes());
    apart(args).is_none()
        && first.is_some_and(|word| {
            let is_job = word == b"run" || word == b"clean" || is_exec(args);
            let is_command = !is_job && commands::by_name(word).is_some();
            !is_command
                && !matches!(word, b"-h" | b"--help" | b"-V" | b"--version")
                && !planned_options::is_command(word)
        })
}

/// Reads a command line, without the command's own name.
///
/// # Errors
/// It is not one, or asks for what this version does not do; nothing was started.
pub(crate) fn parse(args: Vec<OsString>, env: Lookup<'_>, read: Read<'_>) -> Result<Command, CliError> {
    let mut words: Vec<OsBytes> = args.into_iter().map(|word| OsBytes::new(word.into_vec())).collect();
    let first = words.first().ok_or(CliError::Nothing)?;
    if let Some(sub) = commands::by_name(first) {
        return (sub.parse)(words.split_off(1), env, read);
    }
    errors::refuse_command(first)?;
    job(words, Form::Bare, env, read)
}

/// The first word of a command line for a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// An option, or the program.
    Bare,
    /// `run`.
    Run,
    /// `map`.
    Map,
}

/// Reads the words of a job.
fn job(words: Vec<OsBytes>, form: Form, env: Lookup<'_>, read: Read<'_>) -> Result<Command, CliError> {
    let (long_form, map) = (form == Form::Run, form == Form::Map);
    let mut parts = if map { programs_of_map(words, read)? } else { programs(words, long_form, read)? };
    if form == Form::Bare {
        refuse_late_command(parts.first(), env)?;
    }
    let asked = parts.iter().flat_map(|part| &part.given).find_map(|given| {
        let Id::Help(opt) = given.row.id else { return None };
        Some((opt, given.spelled.as_slice() == b"-h"))
    });
    let is_loud = parts.iter().flat_map(|part| &part.given).any(is_verbose);
    match asked {
        Some((help::Opt::Help, _)) if long_form => return Ok(Command::text(help::command_named("run"))),
        Some((help::Opt::Help, _)) if map => return Ok(Command::text(help::command_named("map"))),
        Some((help::Opt::Help, true)) => return Ok(Command::text(help::brief())),
        Some((help::Opt::Help, false)) => return Ok(Command::text(help::full())),
        Some((help::Opt::Version, _)) if is_loud => return Ok(Command::Answer(Answer::Installed(help::version()))),
        Some((help::Opt::Version, _)) => return Ok(Command::text(help::version())),
        None => {}
    }
    let is_bare = map && fill_bare_map(&mut parts);
    if let Some(at) = parts.iter().position(|part| part.argv.is_empty()) {
        let missing = match parts.get(at) {
            Some(part) if at == 0 => no_program(part.given.last()),
            Some(_) | None => CliError::NoNextProgram,
        };
        // A value that is wrong says more than that nothing follows it.
        return collect(parts, env).and(Err(missing));
    }
    let mut run = Box::new(collect(parts, env)?);
    run.presentation.is_bare_map = is_bare;
    match (map || run.whole.dry_run, run.whole.json) {
        (true, json) => Ok(Command::Answer(Answer::Map { run, json })),
        (false, true) => Err(CliError::Json),
        (false, false) => Ok(Command::Run(run)),
    }
}

/// The name of the program for `rlaunch map` without one.
const ANY_PROGRAM: &str = "PROGRAM";

/// Options come after a command. A command after options would be run as a program, and fail there.
fn refuse_late_command(part: Option<&scan::Words>, env: Lookup<'_>) -> Result<(), CliError> {
    let word = part.filter(|part| !part.given.is_empty() && !part.after_dashes).and_then(|part| part.argv.first());
    let Some(sub) = word.and_then(|word| commands::by_name(word)) else { return Ok(()) };
    let Some(path) = env("PATH") else { return Ok(()) };
    if std::env::split_paths(&path).any(|dir| dir.join(sub.name).is_file()) {
        return Ok(());
    }
    Err(CliError::LateCommand { name: sub.name })
}

fn is_verbose(given: &scan::Given) -> bool {
    given.row.id == Id::Output(output_options::Opt::Verbose)
}

/// `rlaunch version`.
fn version(words: Vec<OsBytes>) -> Result<Command, CliError> {
    let words = scan::mixed(words.into_iter(), &table::VERSION)?;
    match words.argv.first() {
        Some(got) => Err(CliError::Value {
            option: "rlaunch version".into(),
            takes: "options only".into(),
            got: got.clone(),
            hint: Some("rlaunch version -v".into()),
        }),
        None if words.given.iter().any(|given| matches!(given.row.id, Id::Help(_))) => {
            Ok(Command::text(help::command_named("version")))
        }
        None if words.given.iter().any(is_verbose) => Ok(Command::Answer(Answer::Installed(help::version()))),
        None => Ok(Command::text(help::version())),
    }
}

/// `rlaunch clean`: a job that frees devices before its processes start.
fn clean(words: Vec<OsBytes>, env: Lookup<'_>, read: Read<'_>) -> Result<Command, CliError> {
    match devices::clean(words, env)? {
        devices::Clean::Help(text) => Ok(Command::text(text)),
        devices::Clean::Job { words, is_trial } => {
            let mut run = Box::new(collect(programs(words, true, read)?, env)?);
            run.settings.devices.is_trial = is_trial;
            // Hosts are freed one by one.
            run.whole.allow_partial = true;
            run.presentation.cleans = true;
            Ok(Command::Run(run))
        }
    }
}

/// The programs of a command line: a word `:` begins another, except after `run --`.
fn programs(words: Vec<OsBytes>, long_form: bool, read: Read<'_>) -> Result<Vec<scan::Words>, CliError> {
    let mut parts = Vec::new();
    let mut rest = Some(words);
    while let Some(words) = rest.take() {
        let mut part = scan::split(words.into_iter())?;
        if let Some(programs) = program_files::programs_of(&mut part, read)? {
            for words in programs {
                let mut next = scan::split(words.into_iter())?;
                next.given.splice(0..0, part.given.drain(..));
                next.same.append(&mut part.same);
                next.refused.append(&mut part.refused);
                parts.push(next);
            }
            break;
        }
        let first = parts.is_empty();
        if !(first && long_form && part.after_dashes)
            && let Some(colon) = part.argv.iter().position(|word| word.as_slice() == b":")
        {
            let mut next = part.argv.split_off(colon);
            next.remove(0);
            rest = Some(next);
        }
        parts.push(part);
    }
    Ok(parts)
}

/// The programs of `rlaunch map`, which has a short name for `--report-bindings`. A job has none: its `--bind` would look like `--bind-to`.
fn programs_of_map(mut words: Vec<OsBytes>, read: Read<'_>) -> Result<Vec<scan::Words>, CliError> {
    let first = programs(words.clone(), false, read);
    let is_short = matches!(&first, Err(CliError::Unknown { option, .. }) if option.as_slice() == b"--bind");
    match words.iter_mut().find(|word| is_short && word.as_slice() == b"--bind") {
        Some(word) => {
            *word = "--report-bindings".into();
            programs(words, false, read)
        }
        None => first,
    }
}

/// Gives `rlaunch map` a program if it shows the hosts alone, and returns whether it does. A path is the program, which the option before
/// it has taken for its value.
fn fill_bare_map(parts: &mut [scan::Words]) -> bool {
    let [scan::Words { given, argv, .. }] = parts else { return false };
    let is_host = |given: &scan::Given| given.names_hosts() && !given.value.contains(&b'/');
    let is_bare = argv.is_empty()
        && (given.last().is_some_and(is_host) || matches!(no_program(given.last()), CliError::NoProgram));
    argv.extend(is_bare.then(|| OsBytes::from(ANY_PROGRAM)));
    is_bare
}

/// The error for a missing program: it may have become the value of an option that takes any word.
fn no_program(last: Option<&scan::Given>) -> CliError {
    match last {
        Some(scan::Given { row, spelled, value, apart: true })
            if matches!(
                row.id,
                Id::Env(env::Opt::Export)
                    | Id::Run(run::Opt::Wdir | run::Opt::Name | run::Opt::Group | run::Opt::Share)
                    | Id::Place(place::Opt::Hosts | place::Opt::Hostfile)
                    | Id::Output(
                        output_options::Opt::Prefix
                            | output_options::Opt::Output
                            | output_options::Opt::Error
                            | output_options::Opt::Events
                    )
                    | Id::Rounds(rounds::Opt::Assign)
                    | Id::Hooks(hooks::Opt::OnRestart | hooks::Opt::OnExit)
                    | Id::Torch(torch::Opt::LogDir | torch::Opt::MasterAddr | torch::Opt::RunId)
            ) && !value.contains(&b'=') =>
        {
            let what = match row.takes {
                table::Takes::One(what) | table::Takes::Maybe(what) | table::Takes::Pair(what) => what,
                table::Takes::Nothing => "",
            };
            CliError::Swallowed { option: spelled.clone(), what, word: value.clone() }
        }
        Some(_) | None => CliError::NoProgram,
    }
}
