//! The order of a start. The caller's settings are read first. Guardian and agent are forked before anything big exists. The command line
//! is understood last.

use crate::began::Began;
use crate::bootstrap::{self};
use crate::cli::{self, Answer, Apart, Command, Plan, Reach, Verbosity};
use crate::directory::{self, NoDirectory};
use crate::edges::Setup;
use crate::edges::pool::Warner;
use crate::pool::detach::Caller;
use crate::print::{answer, broken, fail, refuse, say};
use crate::this_machine::{read_all, read_file, with_site};
use crate::view::{self, map, phrases};
use crate::{bindings, colour, doctor, driver, installed, pool, query_commands, report_command, serve, unconnected};
use anyhow::Context as _;
use rlaunch_agent::{AgentSetup, Edge};
use rlaunch_base::capped::Capped;
use rlaunch_base::exit::{self, Ending};
use rlaunch_base::id::{AppIndex, JobId, NodeId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, WallNs};
use rlaunch_core::job::{Job, Setting};
use rlaunch_net::diagnostics::Filter;
use rlaunch_plan::bootstrap::{Secret, Target};
use rlaunch_plan::place::{Node, Note};
use rlaunch_protocol::rounds::PolicyReader;
use rlaunch_protocol::settings::StdinPlan;
use rlaunch_protocol::stream::label::Prefix;
use rlaunch_protocol::travel::{Limit, Resource, Travel};
use rlaunch_protocol::wire::probe::Key;
use rlaunch_sys::fd::{self, Kind};
use rlaunch_sys::guardian::{self, Lifeline, Role, TempFiles};
use rlaunch_sys::origin::{self, Origin};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Everything, from the first instruction to the exit code.
pub(crate) fn run() -> u8 {
    let began = Began {
        job: None,
        mono: Mono::from_nanos(rlaunch_sys::clock::boottime()),
        wall: WallNs(rlaunch_sys::clock::wall()),
    };
    let origin = match origin::capture() {
        Ok(origin) => origin,
        Err(error) => return fail(&format!("cannot open /dev/null: {}", rlaunch_sys::reason(&error))),
    };
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (args, began, caller) = match pool::detach::split(args, began, &origin) {
        Ok(split) => split,
        Err(code) => return code,
    };
    match cli::apart(&args) {
        Some(Apart::Agent) => return serve::run(args.get(1..).unwrap_or_default(), origin),
        Some(Apart::Doctor | Apart::Pool) => return on_hosts(args, origin),
        None => {}
    }
    if !cli::is_job(&args) {
        // Nothing is started that would have to be ended in order: a signal ends this, also while stdin is awaited.
        return origin.interruptibly(|| match command(args, &origin) {
            Ok(_) => fail("this command line starts something where an answer was expected"),
            Err(code) => code,
        });
    }
    if let Some(refused) = phrases::refused_call() {
        return fail(&format!("{refused}\n  try     {}", phrases::NEWER_CONTAINER));
    }
    match guardian::split(&origin) {
        Ok(Role::Agent { edge, guardian, temp_files, no_subreaper }) => {
            caller.forget();
            let (node, edge) = (NodeId::new(0), Edge::Socket(edge));
            rlaunch_agent::run(AgentSetup { node, edge, guardian, origin, temp_files, no_subreaper, lease: None })
        }
        Ok(Role::NoAgent { edge, lifeline, error }) => {
            caller.forget();
            rlaunch_agent::refuse(NodeId::new(0), Edge::Socket(edge), &error);
            guardian::report_nothing_left(&lifeline);
            exit::LAUNCH
        }
        Ok(Role::Launcher { edge, lifeline, temp_files }) => {
            let launch = |args| launch(args, began, &origin, (lifeline, edge, temp_files), caller);
            let ending = pool::exec::around(args, launch);
            if let Ending::Signal(sig) = ending {
                rlaunch_sys::signals::die_of(sig.get());
            }
            ending.shell_code()
        }
        Err(error) => broken(&anyhow::Error::new(error).context("cannot start the guardian of the job")),
    }
}

/// The command of these words. A command that only prints is done here. Its exit code is returned as the error, as for a mistake.
fn command(args: Vec<OsString>, origin: &Origin) -> Result<Command, u8> {
    match cli::parse(args, &|name| std::env::var_os(name), &|path| read_file(path, origin)) {
        Ok(Command::Answer(asked)) => Err(answered(asked, origin)),
        Ok(command) => Ok(command),
        Err(error) => Err(refuse(&error)),
    }
}

/// A command that examines or holds hosts: with signals of its own, and without a job.
fn on_hosts(args: Vec<OsString>, origin: Origin) -> u8 {
    match command(args, &origin) {
        Ok(Command::Doctor(mut plan)) => match with_site(&origin, |site| plan.targets(site)) {
            Ok((here, hosts)) => {
                diagnostics(Verbosity::Normal);
                doctor::run(here, &hosts, &plan, origin)
            }
            Err(error) => refuse(&error),
        },
        Ok(Command::Pool(command)) => pool::run(*command, origin),
        Ok(Command::Run(_) | Command::Answer(_)) => fail("this command line starts a job where none was expected"),
        Err(code) => code,
    }
}

/// Prints an answer. Returns the exit code.
fn answered(asked: Answer, origin: &Origin) -> u8 {
    match asked {
        Answer::Text(text) => answer(text.as_bytes()),
        Answer::Installed(version) => answer(installed::text(&version).as_bytes()),
        Answer::Hosts(query) => match with_site(origin, |site| query.answer(site, &|| read_all(io::stdin()))) {
            Ok(text) => answer(&text),
            Err(error) => refuse(&error),
        },
        Answer::Map { run, json } => map(*run, json, origin),
        Answer::Ask(request) => ask(&request),
        Answer::Report(request) => report(&request),
        Answer::Assign(trial) => assign(*trial, origin),
    }
}

/// The store of the job in which we run.
fn ask(request: &cli::Request) -> u8 {
    match query_commands::run(request, || read_all(io::stdin())) {
        // That a key is missing is another thing than that its value cannot be written.
        Ok(query_commands::Outcome { output, code: 0 }) => match answer(&output) {
            exit::UNWRITTEN => exit::LAUNCH,
            code => code,
        },
        Ok(query_commands::Outcome { code, .. }) => code,
        Err(failure) => failed(&failure),
    }
}

/// A job after its end.
fn report(request: &cli::ReportRequest) -> u8 {
    match report_command::run(request) {
        Ok((done, notes)) => {
            notes.iter().for_each(|note| say(&format!("rlaunch: {note}\n")));
            answer(&done.output)
        }
        Err(failure) => failed(&failure),
    }
}

fn failed(query_commands::Failure { text, hint, code }: &query_commands::Failure) -> u8 {
    let hint = hint.map_or_else(String::new, |hint| format!("  try     {hint}\n"));
    say(&format!("error: {text}\n{hint}"));
    *code
}

/// Prints the ranks after losses.
fn assign(trial: cli::Trial, origin: &Origin) -> u8 {
    let (all, json) = (trial.all, trial.json);
    match with_site(origin, |site| trial.fates(site)) {
        Ok(fates) if json => answer(view::assign::json(&fates).as_bytes()),
        Ok(fates) => answer(view::assign::text(&fates, all).as_bytes()),
        Err(error) => refuse(&error),
    }
}

/// Prints the placement of a job.
fn map(mut run: cli::Run, json: bool, origin: &Origin) -> u8 {
    // The hosts are the map's until it is printed.
    let _held = match of_pool(&mut run, None, origin, Caller::default()) {
        Ok(held) => held,
        Err(code) => return code,
    };
    let caller: Vec<&[u8]> = origin::environment().collect();
    let placed = with_site(origin, |site| {
        run.use_allocation(site)?;
        run.interpret(site)?;
        run.read_map_file(site)?;
        let placement = run.place(site)?;
        let holder = run.holder(&placement, &caller, site)?;
        let _can_be = run.rounds(&placement, &caller, site)?;
        let slices = run.slice_plan(&placement)?;
        Ok::<_, cli::CliError>((placement, holder, slices))
    });
    colour::set(run.presentation.color);
    let (mut placement, holder, slices) = match placed {
        Ok(placed) => placed,
        Err(error) => return refuse(&error),
    };
    if let Some(plan) = &slices {
        placement = placement.of_hosts(&plan.first_hosts());
    }
    let by_slice = || slices.as_ref().map(|plan| map::slices(&placement, plan)).unwrap_or_default();
    place_notes(&placement.notes, run.presentation.verbosity, run.programs.len());
    let is_bare = run.presentation.is_bare_map;
    let argv = |program: &cli::Program| if is_bare { Vec::new() } else { program.argv.clone() };
    let argvs: Vec<Vec<OsBytes>> = run.programs.iter().map(argv).collect();
    let programs: Vec<&[OsBytes]> = argvs.iter().map(Vec::as_slice).collect();
    let settings = map::Settings { restarts: run.restart_words(), same: &run.presentation.same };
    let source = run.in_allocation.as_ref().map(|found| (&found.allocation, run.reach.carrier(run.reach.fast).kind()));
    let env = |name: &str| std::env::var_os(name);
    let bound = || bindings::text(&run.whole, &placement, &env);
    let text = match json {
        true => {
            let line = map::json(&placement, &programs, holder, source, slices.as_ref());
            map::with_bindings(line, bindings::json(&run.whole, &placement, &env))
        }
        false => map::text(&placement, &programs, holder, source, &settings) + &by_slice() + &bound(),
    };
    answer(text.as_bytes())
}

/// Gets hosts of the pool that a job names; without a job, for its map. An error is printed, and its exit code returned.
fn of_pool(
    run: &mut cli::Run,
    job: Option<JobId>,
    origin: &Origin,
    mut caller: Caller,
) -> Result<Option<pool::client::Held>, u8> {
    match run.pool() {
        Ok(None) => Ok(None),
        Ok(Some(choice)) => {
            let say = |text: &str| {
                say(text);
                caller.report(text, true)
            };
            let choice = if job.is_some() { choice } else { choice.for_map() };
            let held = origin.interruptibly(|| pool::client::hold(run, choice, job.unwrap_or(JobId([0; 16])), say));
            let held = held.map_err(|error| pool::explain(&error))?;
            // Without its caller the user would not know of the job.
            if caller.report("", true) { Ok(Some(held)) } else { Err(exit::LAUNCH) }
        }
        Err(error) => Err(refuse(&error)),
    }
}

/// The connections to agent and guardian. The edge is closed before the lifeline, whose end waits for the guardian: so the agent exits by
/// itself.
type Below = (Lifeline, OwnedFd, TempFiles);

/// The launcher's part. A mistake just exits: the lifeline's end is the guardian's end, and the agent's.
fn launch(
    args: Vec<OsString>,
    began: Began,
    origin: &Origin,
    (lifeline, edge, temp_files): Below,
    caller: Caller,
) -> Ending {
    let mut run = match command(args, origin) {
        Ok(Command::Run(run)) => run,
        Ok(Command::Doctor(_) | Command::Pool(_) | Command::Answer(_)) => {
            return Ending::Code(fail("this command line starts no job where one was expected"));
        }
        Err(code) => return Ending::Code(code),
    };
    let job = match began.job.map_or_else(|| rlaunch_sys::random::bytes().map(JobId), Ok) {
        Ok(job) => job,
        Err(error) => {
            let why = format!("cannot get random bytes for the job's name: {}", rlaunch_sys::reason(&error));
            return Ending::Code(fail(&why));
        }
    };
    let held = match of_pool(&mut run, Some(job), origin, caller) {
        Ok(held) => held,
        Err(code) => return Ending::Code(code),
    };
    let mut plan = match with_site(origin, |site| run.into_plan(job, origin::environment(), site)) {
        Ok(plan) => plan,
        Err(error) => return Ending::Code(refuse(&error)),
    };
    colour::set(plan.presentation.color);
    Arc::make_mut(&mut plan.job).settings.mpi = unconnected::mpi(&plan);
    notes(&plan, origin);
    let slots = map::slots_of(&plan.job.placement);
    let _slots = plan.turn.take().and_then(|turn| turn.leave(&slots).ok());
    let warner = held.as_ref().and_then(|held| held.warner(&plan.job.placement));
    let ended = drive(plan, began, origin, (lifeline, edge), warner);
    // If both processes that would remove it were killed.
    temp_files.sweep();
    ended.unwrap_or_else(|error| Ending::Code(broken(&error)))
}

fn drive(
    mut plan: Plan,
    began: Began,
    origin: &Origin,
    (lifeline, edge): (Lifeline, OwnedFd),
    pool: Option<Warner>,
) -> anyhow::Result<Ending> {
    if fd::kind(0).is_ok_and(|kind| kind == Kind::Null) {
        // The rank gets /dev/null itself: the same bytes, without a pipe.
        Arc::make_mut(&mut plan.job).settings.output.stdin = StdinPlan::None;
    }
    const FDS: [i32; 2] = [1, 2];
    // Labels of both streams have colours, or none: a stream that goes to a file must stay plain.
    let is_file = |at: usize| plan.presentation.files.get(at).is_some_and(Option::is_some);
    if let Some(label) =
        plan.job.settings.output.label.as_ref().filter(|_| (0..2).all(|at| !is_file(at) && colour::is_on(FDS[at])))
    {
        let label = Prefix::coloured(label);
        Arc::make_mut(&mut plan.job).settings.output.label = Some(label);
    }
    directory::for_files(&plan.job, &plan.presentation.directories, origin)?;
    Arc::make_mut(&mut plan.job).settings.trace = diagnostics(plan.presentation.verbosity);
    let setting = Setting {
        version: OsBytes::from(env!("CARGO_PKG_VERSION")),
        host: OsBytes::new(rlaunch_sys::facts::host::hostname()),
        nohup: origin.ignores(rlaunch_sys::signals::HUP),
        travel: plan.job.placement.remote().map(|_| travel(&plan, origin)).transpose()?.unwrap_or_default(),
        read_policy: PolicyReader(cli::read_policy),
        secret: match plan.job.placement.remote() {
            Some(_) => Key::new(rlaunch_sys::random::bytes().context("cannot get random bytes for the job's secret")?),
            None => Key::default(),
        },
    };
    let job = Job::new(began.mono, began.wall, &plan.job, &setting);
    let remote = match plan.job.placement.remote() {
        Some(_) => {
            let hosts = plan.job.placement.nodes.iter().filter(|node| !node.local).count();
            bootstrap::descriptors::check(hosts, origin)?;
            Some((targets(&plan)?, reach(&plan)?))
        }
        None => None,
    };
    let setup = Setup { edge, lifeline, plan: &plan, origin, remote, pool };
    driver::run(job, setup)
}

/// The settings that ranks of other hosts get of this place.
fn travel(plan: &Plan, origin: &Origin) -> Result<Travel, NoDirectory> {
    let limit = |on: &Resource| Some(Limit { on: *on, soft: origin.soft_limit(on.name())? });
    Ok(Travel {
        umask: origin::creation_mask(),
        limits: Capped::chunks(plan.reach.limits.iter().filter_map(limit)).pop().unwrap_or_default(),
        dir: directory::name(&plan.job)?,
    })
}

/// How each host is called.
fn targets(plan: &Plan) -> anyhow::Result<Vec<Option<Target>>> {
    let target = |node: &Node| {
        let target = (!node.local && !node.is_unknown()).then(|| Target::of(&node.host)).transpose()?;
        Ok(target.map(|target| plan.reach.over(&node.host, target)))
    };
    plan.job.placement.nodes.iter().map(target).collect()
}

/// How the other hosts are reached. The secret is made only where there are any.
fn reach(plan: &Plan) -> anyhow::Result<bootstrap::Setting> {
    let Reach { fast, agent_path, limit, .. } = &plan.reach;
    Ok(bootstrap::Setting {
        job: plan.job.job,
        secret: Secret(rlaunch_sys::random::bytes().context("cannot get random bytes for the job's secret")?),
        lease: plan.job.settings.hosts.lease,
        carrier: plan.reach.carrier(*fast),
        agent_path: agent_path.clone(),
        limit: *limit,
    })
}

/// Diagnostics for us, off by default: `RLAUNCH_LOG`, or `-vv`. Returns what the agents are to do.
fn diagnostics(verbosity: Verbosity) -> OsBytes {
    let wanted = std::env::var_os("RLAUNCH_LOG").map(OsString::into_encoded_bytes).unwrap_or_default();
    let Filter { mut right, wrong } = rlaunch_net::diagnostics::read(&wanted);
    if !wrong.is_empty() {
        let (wrong, takes) = (wrong.join(","), rlaunch_net::diagnostics::takes());
        say(&format!("rlaunch: RLAUNCH_LOG (environment): '{}' is left out; it takes {takes}\n", OsBytes::from(wrong)));
    }
    if right.is_empty() && verbosity == Verbosity::Debug {
        right.push_str("debug");
    }
    if !right.is_empty() {
        rlaunch_net::diagnostics::start(right.as_bytes());
    }
    OsBytes::from(right)
}

/// Prints notes before anything is started.
fn notes(plan: &Plan, origin: &Origin) {
    // The error of a program that does not exist has no note before it.
    let is_missing = |app: &AppIndex| unconnected::is_missing(plan, *app);
    let is_worth_it = |note: &&Note| !matches!(note, Note::OneRank(app) | Note::PassedOn(app, _) if is_missing(app));
    let placed = plan.job.placement.notes.iter().filter(is_worth_it);
    place_notes(placed, plan.presentation.verbosity, plan.job.apps.len());
    if plan.presentation.verbosity == Verbosity::Quiet {
        return;
    }
    if plan.presentation.verbosity >= Verbosity::Verbose {
        for option in &plan.presentation.same {
            say(&format!("rlaunch: {option} has no effect: rlaunch does this by default\n"));
        }
        for program in &plan.presentation.interpreted {
            say(&format!("rlaunch: {program}\n"));
        }
        for name in &plan.given {
            say(&format!("rlaunch: {name} is taken from your environment\n"));
        }
        for name in &plan.others {
            say(&format!(
                "rlaunch: {name} of your environment is not used: RANK is set, so it belongs to another job\n  try     -x {name}, to use it\n"
            ));
        }
        if plan.job.world_size() > 1 || plan.job.settings.store.holder.is_agent() {
            say(&format!("rlaunch: {}\n", map::store(plan.job.settings.store.holder)));
        }
    }
    if let Some(note) = map::logs(&plan.job, plan.presentation.verbosity >= Verbosity::Verbose) {
        say(&note);
    }
    if let Some(note) = map::beyond(&plan.job) {
        say(&note);
    }
    let known = plan.job.placement.nodes.iter().filter(|node| !node.is_unknown()).count();
    if let Some(note) = map::short_lease(plan.job.settings.hosts.lease, known) {
        say(&note);
    }
    for note in [unconnected::master_addr(plan, origin), unconnected::master_port(plan)].into_iter().flatten() {
        say(&note);
    }
    for note in unconnected::variables(&plan.unknown).into_iter().chain(unconnected::temp_dir()) {
        say(&note);
    }
    for name in &plan.absent {
        let in_slurm = std::env::var_os("SLURM_JOB_ID").is_some();
        let hosts = cli::excluded(name, in_slurm).map_or_else(String::new, |hosts| format!("; {hosts}"));
        say(&format!("rlaunch: -x {name}: not set here; the ranks do not get it{hosts}\n"));
    }
}

fn place_notes<'a>(notes: impl IntoIterator<Item = &'a Note>, verbosity: Verbosity, programs: usize) {
    if verbosity > Verbosity::Quiet {
        notes.into_iter().filter(|note| map::is_news(note)).for_each(|note| say(&map::note(note, programs)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_that_can_be_asked_for_can_be_set() {
        for on in Resource::ALL {
            let name = on.name();
            let mut carried = rlaunch_sys::facts::limits::Carried::default();
            carried.carry(name, Some(0));
            assert_ne!(carried, rlaunch_sys::facts::limits::Carried::default(), "{name}");
        }
    }
}
