//! `rlaunch pool`, and the options of a job about a pool.

use super::errors::CliError;
use super::place::{self, Own, PerNode};
use super::scan::{self, Given};
use super::site::Site;
use super::table::{Id, POOL, options};
use super::{Command, Reach, Run, help, nearest, output_options, reach, slices, values};
use rlaunch_base::duration;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_plan::bootstrap::Target;
use rlaunch_plan::hostlist::{self, Alone, Entry, Host};
use rlaunch_protocol::wire::frozen::pool::Need;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

pub(super) const USAGE: &str = "\
Usage: rlaunch pool up NAME -H LIST | -f FILE [--slices N[,N]] [OPTIONS]
       rlaunch pool status [NAME] [--json]
       rlaunch pool add NAME -H LIST | -f FILE
       rlaunch pool remove|drain NAME HOST|SLICE...
       rlaunch pool exec NAME [--by-slice] [--json] [--detach] [--wdir DIR]
                         [--stdin all] [--wait[=TIME]] COMMAND [ARGS...]
       rlaunch pool down NAME [--now]

A pool keeps an open connection to each of its hosts, in the background. A job
gets hosts of it with rlaunch --pool NAME, and starts without a login.

";

/// Longest name: the path of a socket has little room.
const LONGEST: usize = 32;

options! {
    Pool;
    Idle ["idle"] One("TIME"): "up: end after so long without a job (default: never)";
    Foreground ["foreground"] Nothing: "up: stay in the foreground, and print each change";
    Now ["now"] Nothing: "down: jobs get no time to end";
}

/// The options of a job that it has too.
pub(super) const OPTIONS: &[Id] = &[
    Id::Place(place::Opt::Hosts),
    Id::Place(place::Opt::Hostfile),
    Id::Place(place::Opt::Slices),
    Id::Place(place::Opt::Json),
    Id::Reach(reach::Opt::Connect),
    Id::Reach(reach::Opt::Fast),
    Id::Output(output_options::Opt::Events),
    Id::Pool(Opt::Idle),
    Id::Pool(Opt::Foreground),
    Id::Pool(Opt::Now),
    Id::Help(help::Opt::Help),
];

/// Something about a pool.
#[derive(Debug)]
pub(crate) struct PoolCommand {
    /// The pool; `None`: all.
    pub(crate) name: Option<String>,
    /// The action.
    pub(crate) action: PoolVerb,
}

/// An action.
#[derive(Debug)]
pub(crate) enum PoolVerb {
    /// A pool starts.
    Up(Box<PoolUp>),
    /// Its hosts and jobs.
    Status {
        /// For programs to read.
        json: bool,
    },
    /// Hosts join.
    Add(PoolHosts),
    /// Hosts without a job leave.
    Remove(Vec<OsBytes>),
    /// Hosts leave once they are empty.
    Drain(Vec<OsBytes>),
    /// The pool ends.
    Down {
        /// Jobs get no time to end.
        is_now: bool,
    },
}

/// The start of a pool.
#[derive(Debug)]
pub(crate) struct PoolUp {
    pub(crate) hosts: PoolHosts,
    /// `--slices`.
    slices: slices::Args,
    pub(crate) reach: Reach,
    /// `--idle`.
    pub(crate) idle: Option<Span>,
    /// `--foreground`.
    pub(crate) is_foreground: bool,
    /// `--events`.
    pub(crate) events: Option<OsBytes>,
}

/// Hosts as they were named.
#[derive(Debug)]
pub(crate) struct PoolHosts(Own);

impl PoolHosts {
    /// The hosts, each once.
    ///
    /// # Errors
    /// A list or a file cannot be understood, or names what ssh does not reach.
    pub(crate) fn entries(&self, site: &Site<'_>) -> Result<Vec<Entry>, CliError> {
        let all = self.reachable(site)?;
        slices::Args::default().numbers_for_pool(&all, &self.option())?;
        Ok(all)
    }

    /// The first option that names hosts.
    fn option(&self) -> OsBytes {
        self.0.lists.iter().chain(&self.0.files).next().map(|said| said.option.clone()).unwrap_or_default()
    }

    fn reachable(&self, site: &Site<'_>) -> Result<Vec<Entry>, CliError> {
        let option = self.option();
        let all = site.hosts(&self.0)?;
        for entry in &all {
            if site.here.is(&entry.host) {
                return Err(CliError::Value {
                    option,
                    takes: "hosts that ssh reaches; this machine needs no connection".into(),
                    got: entry.host.to_string().into(),
                    hint: Some("rlaunch without --pool, for ranks on this machine".into()),
                });
            }
            Target::of(&entry.host)
                .map_err(|source| CliError::Host { option: option.clone(), source: Box::new(source) })?;
        }
        Ok(all)
    }
}

impl PoolUp {
    /// The hosts, each once, and the numbers of slices for jobs that name none.
    ///
    /// # Errors
    /// As of [`PoolHosts::entries`], or the hosts form no such slices.
    pub(crate) fn entries(&self, site: &Site<'_>) -> Result<(Vec<Entry>, Vec<u32>), CliError> {
        let all = self.hosts.reachable(site)?;
        let numbers = self.slices.numbers_for_pool(&all, &self.hosts.option())?;
        Ok((all, numbers))
    }
}

/// The words of the actions.
const ACTIONS: [&str; 6] = ["up", "status", "add", "remove", "drain", "down"];

/// Reads the words after `pool`.
pub(super) fn parse(words: Vec<OsBytes>) -> Result<Command, CliError> {
    let words = scan::mixed(words.into_iter(), &POOL)?;
    if words.given.iter().any(|given| matches!(given.row.id, Id::Help(_))) {
        return Ok(Command::text(help::command_named("pool")));
    }
    let of = OsBytes::from("rlaunch pool");
    let mut argv = words.argv.into_iter();
    let action = argv.next().ok_or_else(|| CliError::missing(&of, "an action, as up or status", &POOL))?;
    let Some(verb) = ACTIONS.into_iter().find(|verb| action.as_slice() == verb.as_bytes()) else {
        // `exec` is a job, and is read as one.
        let meant = nearest::nearest(&action, ACTIONS.into_iter().chain(["exec"])).unwrap_or("status");
        return Err(CliError::Value {
            option: of,
            takes: "up, status, add, remove, drain, down or exec".into(),
            got: action,
            hint: Some(format!("rlaunch pool {meant}").into()),
        });
    };
    let of = OsBytes::from(format!("rlaunch pool {verb}"));
    let name = argv.next().map(|word| name(&of, &word)).transpose()?;
    if name.is_none() && verb != "status" {
        return Err(CliError::missing(&of, "NAME, the name of a pool", &POOL));
    }
    let hosts: Vec<OsBytes> = argv.collect();
    let given = Options::take(words.given)?;
    let action = given.action(verb, hosts, &of)?;
    Ok(Command::Pool(Box::new(PoolCommand { name, action })))
}

/// The options that were given.
struct Options {
    hosts: Own,
    slices: slices::Args,
    reach: reach::Args,
    json: bool,
    idle: Option<Span>,
    is_foreground: bool,
    is_now: bool,
    events: Option<OsBytes>,
    /// Options that only one action has: the option and the action.
    only: Vec<(OsBytes, &'static str)>,
}

impl Options {
    fn take(given: Vec<Given>) -> Result<Self, CliError> {
        let mut all = Self {
            hosts: Own::default(),
            slices: slices::Args::default(),
            reach: reach::Args::default(),
            json: false,
            idle: None,
            is_foreground: false,
            is_now: false,
            events: None,
            only: Vec::new(),
        };
        for given in given {
            let (spelled, id) = (given.spelled.clone(), given.row.id);
            let only = match id {
                Id::Place(place::Opt::Json) => {
                    all.json = true;
                    "status"
                }
                Id::Place(place::Opt::Slices) => {
                    all.slices.take_sizes(&given.spelled, &given.value)?;
                    "up"
                }
                Id::Place(opt) => {
                    all.hosts.take(opt, given)?;
                    "up or add"
                }
                Id::Reach(opt) => {
                    all.reach.take(opt, given)?;
                    "up"
                }
                Id::Output(output_options::Opt::Events)
                    if given.value.is_empty() || given.value.starts_with(b"fd:") =>
                {
                    let takes = "a file".into();
                    return Err(CliError::Value { option: given.spelled, takes, got: given.value, hint: None });
                }
                Id::Output(output_options::Opt::Events) => {
                    all.events = Some(given.value.clone());
                    "up"
                }
                Id::Pool(Opt::Idle) => {
                    all.idle = Some(values::span_from(&given.spelled, &given.value, Span::from_secs(1))?);
                    "up"
                }
                Id::Pool(Opt::Foreground) => {
                    all.is_foreground = true;
                    "up"
                }
                Id::Pool(Opt::Now) => {
                    all.is_now = true;
                    "down"
                }
                _ => continue,
            };
            all.only.push((spelled, only));
        }
        Ok(all)
    }

    fn action(self, verb: &'static str, hosts: Vec<OsBytes>, of: &OsBytes) -> Result<PoolVerb, CliError> {
        let takes_words = matches!(verb, "remove" | "drain");
        if let Some(said) = self.hosts.lists.first().filter(|_| takes_words) {
            let (takes, hint) = ("names without an option".into(), Some(format!("{of} NAME {}", said.value).into()));
            return Err(CliError::Value { option: of.clone(), takes, got: said.option.clone(), hint });
        }
        if let Some((option, only)) = self.only.iter().find(|(_, only)| only.split(" or ").all(|word| word != verb)) {
            return Err(CliError::Alone { option: option.clone(), needs: format!("rlaunch pool {only}") });
        }
        match hosts.first() {
            Some(word) if !takes_words => {
                let is_host = matches!(verb, "up" | "add");
                let hint = Some(if is_host { format!("{of} NAME -H {word}") } else { format!("{of} {word}") }.into());
                return Err(CliError::Value { option: of.clone(), takes: "one name".into(), got: word.clone(), hint });
            }
            None if takes_words => return Err(CliError::missing(of, "HOST, a host or a slice of the pool", &POOL)),
            Some(_) | None => {}
        }
        if matches!(verb, "up" | "add") && !self.hosts.names_hosts() {
            return Err(CliError::missing(of, "-H LIST or -f FILE, its hosts", &POOL));
        }
        Ok(match verb {
            "up" => PoolVerb::Up(Box::new(PoolUp {
                hosts: PoolHosts(self.hosts),
                slices: self.slices,
                reach: self.reach.reach(),
                idle: self.idle,
                is_foreground: self.is_foreground,
                events: self.events,
            })),
            "add" => PoolVerb::Add(PoolHosts(self.hosts)),
            "remove" => PoolVerb::Remove(members(hosts)?),
            "drain" => PoolVerb::Drain(members(hosts)?),
            "down" => PoolVerb::Down { is_now: self.is_now },
            _ => PoolVerb::Status { json: self.json },
        })
    }
}

/// The members of a pool that words name: `node[1-4]` is four hosts.
fn members(words: Vec<OsBytes>) -> Result<Vec<OsBytes>, CliError> {
    let mut all = Vec::new();
    for word in words {
        if !word.contains(&b'[') && !word.contains(&b',') {
            all.push(word);
            continue;
        }
        let entries = hostlist::lists([("HOST", word.as_slice())], &mut Alone);
        let entries = entries.map_err(CliError::hostlist)?;
        all.extend(entries.iter().map(|entry| entry.host.to_string().into()));
    }
    Ok(all)
}

/// A command on each host of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PoolExec {
    pub(crate) name: String,
    /// Results for programs.
    pub(crate) json: bool,
    /// Results slice by slice.
    pub(crate) by_slice: bool,
    /// In the background, with its output in files.
    pub(crate) is_detached: bool,
    /// `--wait`, `--evict`.
    pub(crate) options: Vec<OsString>,
    /// The command.
    pub(crate) argv: Vec<OsString>,
}

impl PoolExec {
    /// The words of its job, up to the options for its output.
    pub(crate) fn job_words(&self) -> Vec<OsString> {
        let words = ["run", "--pool", &self.name, "--ppn", "1", "--on-failure", "continue", "--stdin", "none", "-q"];
        words.iter().map(OsString::from).collect()
    }

    /// These words, and those of the command.
    pub(crate) fn with_command(&self, mut words: Vec<OsString>) -> Vec<OsString> {
        words.extend(self.options.iter().cloned());
        words.push("--".into());
        words.extend(self.argv.iter().cloned());
        words
    }
}

/// Whether these words are `pool exec …`, which starts a job.
pub(crate) fn is_exec(args: &[OsString]) -> bool {
    args.first().is_some_and(|word| word == "pool") && args.get(1).is_some_and(|word| word == "exec")
}

/// Reads the words of `pool exec`; `None`: its help is wanted.
///
/// # Errors
/// There is no name or no command, or an option is unknown.
pub(crate) fn exec(args: Vec<OsString>) -> Result<Option<PoolExec>, CliError> {
    let of = OsBytes::from("rlaunch pool exec");
    let mut words = args.into_iter().skip(2).peekable();
    let mut plan = PoolExec {
        name: String::new(),
        json: false,
        by_slice: false,
        is_detached: false,
        options: Vec::new(),
        argv: Vec::new(),
    };
    let mut shown = None;
    while let Some(word) = words.next_if(|word| word.as_bytes().starts_with(b"-") || plan.name.is_empty()) {
        match word.as_bytes() {
            b"-h" | b"--help" => return Ok(None),
            b"--json" => (plan.json, shown) = (true, Some(word)),
            b"--by-slice" => (plan.by_slice, shown) = (true, Some(word)),
            b"--detach" => plan.is_detached = true,
            b"--stdin" => {
                plan.options.extend([Some(word.clone()), words.next()].into_iter().flatten());
                shown = Some(word);
            }
            stdin if stdin.starts_with(b"--stdin=") => {
                plan.options.push(word.clone());
                shown = Some(word);
            }
            b"--flat" => plan.by_slice = false,
            b"--evict" | b"--wait" => plan.options.push(word),
            wait if wait.starts_with(b"--wait=") || wait.starts_with(b"--wdir=") => plan.options.push(word),
            b"--wdir" => plan.options.extend([Some(word), words.next()].into_iter().flatten()),
            b"--" => break,
            option if option.starts_with(b"-") => return Err(CliError::unknown(&option.into(), &POOL)),
            value => plan.name = name(&of, &value.into())?,
        }
    }
    plan.argv = words.collect();
    if let Some(with) = shown.filter(|_| plan.is_detached) {
        return Err(CliError::Detached { with: with.as_bytes().into() });
    }
    if plan.name.is_empty() {
        return Err(CliError::missing(&of, "NAME, the name of a pool", &POOL));
    }
    if plan.argv.is_empty() {
        return Err(CliError::missing(&of, "COMMAND, for each host", &POOL));
    }
    Ok(Some(plan))
}

/// The name of a pool: a part of a path.
pub(super) fn name(option: &OsBytes, value: &OsBytes) -> Result<String, CliError> {
    let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_name = (1..=LONGEST).contains(&value.len())
        && value.iter().all(is_good)
        && value.first().is_some_and(u8::is_ascii_alphanumeric);
    match std::str::from_utf8(value) {
        Ok(name) if is_name => Ok(name.to_owned()),
        _ => Err(CliError::Value {
            option: option.clone(),
            takes: format!("a name of up to {LONGEST} letters, digits and . _ -").into(),
            got: value.clone(),
            hint: Some(match option.starts_with(b"rlaunch ") {
                true => format!("{option} train").into(),
                false => values::spell(option, "train").into(),
            }),
        }),
    }
}

/// `--pool`, `--wait` and `--evict` of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Args {
    pool: Option<(OsBytes, String)>,
    /// As it was typed, and for how long; `None`: without an end.
    wait: Option<(OsBytes, Option<Span>)>,
    evict: Option<OsBytes>,
    /// The control sockets of the hosts that the pool has given, by their names.
    pub(crate) controls: BTreeMap<String, OsBytes>,
}

/// The request of a job to a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PoolChoice {
    pub(crate) name: String,
    pub(crate) need: Need,
    /// `None`: without an end.
    pub(crate) wait: Option<Span>,
    pub(crate) evict: bool,
    /// The job takes the numbers of slices that the pool has for such jobs.
    pub(crate) takes_sizes: bool,
}

impl PoolChoice {
    /// The hosts that are free now: a map neither waits for jobs nor ends them.
    pub(crate) fn for_map(self) -> Self {
        Self { wait: Some(Span::ZERO), evict: false, ..self }
    }
}

impl Args {
    pub(super) fn take_pool(&mut self, option: &OsBytes, value: &OsBytes) -> Result<(), CliError> {
        self.pool = Some((option.clone(), name(option, value)?));
        Ok(())
    }

    pub(super) fn take_wait(&mut self, option: &OsBytes, value: &OsBytes) -> Result<(), CliError> {
        let wait = if value.is_empty() { None } else { Some(values::span(option, value)?) };
        self.wait = Some((option.clone(), wait));
        Ok(())
    }

    pub(super) fn take_evict(&mut self, option: &OsBytes) {
        self.evict = Some(option.clone());
    }
}

impl Run {
    /// The pool that the job has its hosts of.
    ///
    /// # Errors
    /// Another option names hosts too, or options for a pool are given without one.
    pub(crate) fn pool(&self) -> Result<Option<PoolChoice>, CliError> {
        let args = &self.reach.pool;
        let Some((option, name)) = &args.pool else {
            let alone = args.wait.as_ref().map(|(option, _)| option).or(args.evict.as_ref());
            return match alone {
                Some(option) => Err(CliError::Alone { option: option.clone(), needs: "--pool NAME".into() }),
                None => Ok(None),
            };
        };
        let named = self.programs.iter().flat_map(|program| program.place.lists.iter().chain(&program.place.files));
        let launcher = (self.reach.launcher != super::allocation::Launcher::Auto
            && self.reach.launcher != super::allocation::Launcher::Ssh)
            .then(|| OsBytes::from("--launcher"));
        if let Some(with) = named.map(|said| said.option.clone()).next().or(launcher) {
            return Err(CliError::Beside { option: option.clone(), with });
        }
        let word = self.programs.first().and_then(|program| program.argv.first());
        if let (Some((wait, None)), Some(word)) = (&args.wait, word)
            && duration::parse(word).is_some()
        {
            let (takes, hint) = ("its time after =".into(), Some(values::spell(wait, &word.to_string()).into()));
            return Err(CliError::Value { option: wait.clone(), takes, got: word.clone(), hint });
        }
        let wait = args.wait.as_ref().map_or(Some(Span::ZERO), |(_, wait)| *wait);
        let (need, evict, takes_sizes) = (self.need(), args.evict.is_some(), self.takes_sizes());
        Ok(Some(PoolChoice { name: name.clone(), need, wait, evict, takes_sizes }))
    }

    /// Whether the job says nothing of the number of its hosts, slices or ranks.
    fn takes_sizes(&self) -> bool {
        let is_plain = |program: &super::Program| program.n.is_none() && program.place.ppn.is_none();
        matches!(self.programs.as_slice(), [only] if is_plain(only)) && self.whole.slices.goes_with(&self.whole)
    }

    /// The numbers of slices that the pool has for jobs that name none. Returns the need.
    pub(crate) fn use_sizes(&mut self, sizes: &[u32]) -> Need {
        self.whole.slices.use_sizes(sizes);
        self.need()
    }

    /// The hosts that its placement needs.
    fn need(&self) -> Need {
        if let Some(sizes) = self.whole.slices.wanted_of_pool() {
            return Need::Slices(sizes);
        }
        if let Some(nodes) = self.whole.nnodes {
            return Need::Hosts(nodes.max);
        }
        if self.lead().is_some() {
            return Need::All;
        }
        let counts: Option<Vec<u32>> = self.programs.iter().map(|program| program.n).collect();
        let Some(ranks) = counts.map(|counts| counts.iter().copied().fold(0, u32::saturating_add)) else {
            return Need::All;
        };
        match self.programs.as_slice() {
            [only] => match only.place.ppn {
                Some(PerNode::Ranks(each)) => Need::Hosts(ranks.div_ceil(each.max(1))),
                Some(PerNode::Counted(..)) => Need::All,
                None => Need::Ranks(ranks),
            },
            _ => Need::Ranks(ranks),
        }
    }

    /// Whether the pool may have more hosts than it gives this job.
    pub(super) fn has_part_of_pool(&self) -> bool {
        self.reach.pool.pool.is_some() && matches!(self.need(), Need::Ranks(_))
    }

    /// The job has these hosts, each with the control socket of its connection; empty: it has none.
    pub(crate) fn use_pool(&mut self, hosts: Vec<(Entry, OsBytes)>) {
        self.reach.launcher = super::allocation::Launcher::Ssh;
        let controls = hosts.iter().filter(|(_, control)| !control.is_empty());
        self.reach.pool.controls = controls.map(|(entry, control)| (entry.host.to_string(), control.clone())).collect();
        let entries: Vec<Entry> = hosts.into_iter().map(|(entry, _)| entry).collect();
        for program in &mut self.programs {
            program.place.granted.clone_from(&entries);
        }
    }
}

impl Reach {
    /// A host, over its open connection if it has one.
    pub(crate) fn over(&self, host: &Host, target: Target) -> Target {
        match self.pool.controls.get(&host.to_string()) {
            Some(control) => target.over(control.clone()),
            None => target,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Result<Command, String> {
        let args = line.split_whitespace().map(OsString::from).collect();
        super::super::parse(args, &|_| None, super::super::NO_FILES).map_err(|error| error.render())
    }

    fn refused(line: &str) -> String {
        let said = command(line).map(|command| format!("{command:?}"));
        said.unwrap_err()
    }

    fn choice(line: &str) -> Result<PoolChoice, String> {
        match command(line)? {
            Command::Run(run) => run.pool().map(Option::unwrap).map_err(|error| error.render()),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn options_of_each_action_are_read() {
        let shown = |line: &str| match command(line).unwrap() {
            Command::Pool(command) => format!("{:?} {:?}", command.name, command.action),
            other => format!("{other:?}"),
        };
        assert_eq!(shown("pool status"), "None Status { json: false }");
        assert_eq!(shown("pool status p --json"), "Some(\"p\") Status { json: true }");
        assert_eq!(shown("pool down p --now"), "Some(\"p\") Down { is_now: true }");
        assert!(shown("pool drain p a b").starts_with("Some(\"p\") Drain(["));
        assert_eq!(shown("pool drain p n[1-2],c 0"), shown("pool drain p n1 n2 c 0"));
        let up = shown("pool up p -H a,b --idle 30m --foreground --ssh-fast");
        assert!(up.contains("is_foreground: true") && up.contains("idle: Some("), "{up}");
        assert!(
            matches!(command("pool --help"), Ok(Command::Answer(crate::cli::Answer::Text(text))) if text.contains("--idle TIME"))
        );
    }

    #[test]
    fn invalid_calls_are_refused_with_a_way_out() {
        for (line, expected) in [
            ("pool", "error: rlaunch pool needs a value: an action"),
            ("pool upp p", "error: rlaunch pool takes up, status, add, remove, drain, down or exec, got 'upp'"),
            ("pool exce p", "error: rlaunch pool takes up, status, add, remove, drain, down or exec, got 'exce'"),
            ("pool up", "error: rlaunch pool up needs a value: NAME"),
            ("pool up p", "error: rlaunch pool up needs a value: -H LIST or -f FILE"),
            ("pool up ../p -H a", "error: rlaunch pool up takes a name of up to 32 letters"),
            ("pool up p a", "error: rlaunch pool up takes one name, got 'a'"),
            ("pool remove p", "error: rlaunch pool remove needs a value: HOST, a host or a slice of the pool"),
            ("pool up p -f hosts --slices 0", "error: --slices takes numbers of slices above 0"),
            ("pool up p -f hosts --slices=-1", "error: --slices takes numbers of slices above 0"),
            ("pool up p -f hosts --slices two", "error: --slices takes numbers of slices"),
            ("pool add p -f hosts --slices 2", "error: --slices has no effect without rlaunch pool up"),
            ("pool status p --now", "error: --now has no effect without rlaunch pool down"),
            ("pool down p --idle 5m", "error: --idle has no effect without rlaunch pool up"),
            ("pool status -H a", "error: -H has no effect without rlaunch pool up or add"),
            ("pool drain p -H a", "error: rlaunch pool drain takes names without an option, got '-H'"),
        ] {
            let said = refused(line);
            assert!(said.starts_with(expected) && said.contains("\n  try "), "{line}: {said}");
        }
        assert!(refused("pool upp p").contains("try     rlaunch pool up\n"));
        assert!(refused("pool up p/q -H a").contains("try     rlaunch pool up train\n"));
        assert!(refused("pool drain p a[1-").starts_with("error: HOST, column 2: this bracket is not closed"));
        assert!(refused("pool down p q").contains("try     rlaunch pool down q\n"));
        assert!(refused("--pool p/q ./train").contains("--pool takes a name"));
    }

    #[test]
    fn words_after_the_command_of_exec_are_not_read_as_options() {
        let read = |line: &str| exec(line.split_whitespace().map(OsString::from).collect());
        let plan = read("pool exec --by-slice p --json --wait=5s ls --json -l").unwrap().unwrap();
        assert_eq!((plan.name.as_str(), plan.json, plan.by_slice), ("p", true, true));
        assert_eq!(
            (plan.options, plan.argv),
            (vec!["--wait=5s".into()], ["ls", "--json", "-l"].map(OsString::from).to_vec())
        );
        assert!(matches!(read("pool exec p --help"), Ok(None)));
        let fed = read("pool exec --stdin all p cat").unwrap().unwrap();
        assert_eq!((fed.options, fed.argv), (vec!["--stdin".into(), "all".into()], vec!["cat".into()]));
        let there = read("pool exec p --wdir /tmp ls").unwrap().unwrap();
        assert_eq!((there.options.len(), there.argv), (2, vec!["ls".into()]));
        let detached = ["pool exec p --detach --json ls", "pool exec p --detach --stdin all cat"];
        for line in ["pool exec", "pool exec p", "pool exec p --slcie a"].into_iter().chain(detached) {
            assert!(read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn job_needs_as_many_hosts_as_its_placement() {
        let need = |line: &str| choice(&format!("--pool p {line} ./train")).unwrap().need;
        assert_eq!(need(""), Need::All);
        assert_eq!(need("-n 8"), Need::Ranks(8));
        assert_eq!(need("--nnodes 2"), Need::Hosts(2));
        assert_eq!(need("-n 9 --ppn 4"), Need::Hosts(3));
        assert_eq!(need("--ppn 4"), Need::All);
        assert_eq!(need("--slices 2,4"), Need::Slices(vec![2, 4]));
        assert_eq!(need("--slices 2,4 --spare-slices 1"), Need::Slices(vec![3, 5]));
        assert_eq!(need("-n 2 a : -n 3"), Need::Ranks(5));
        assert_eq!(need("-n 1 --lead"), Need::All, "all hosts are hosts of such a job");
        assert_eq!(need("-n 1 --lead --nnodes 2"), Need::Hosts(2));
    }

    #[test]
    fn job_without_a_number_takes_the_numbers_of_the_pool() {
        for (line, takes) in [
            ("", true),
            ("--spare-slices 1 --map-by slot", true),
            ("--slices 2", false),
            ("-n 4", false),
            ("--nnodes 2", false),
            ("--ppn 1", false),
            ("--map-by node", false),
            ("a :", false),
        ] {
            assert_eq!(choice(&format!("--pool p {line} ./train")).unwrap().takes_sizes, takes, "{line}");
        }
        let Ok(Command::Run(mut run)) = command("--pool p --spare-slices 1 ./train") else { panic!("no job") };
        assert_eq!(run.use_sizes(&[2, 4]), Need::Slices(vec![3, 5]));
    }

    #[test]
    fn job_waits_only_if_asked_to() {
        let wait = |line: &str| choice(&format!("--pool p {line} ./train")).unwrap();
        assert_eq!((wait("").wait, wait("").evict), (Some(Span::ZERO), false));
        assert_eq!(wait("--wait").wait, None);
        assert_eq!(wait("--wait=5s --evict").wait, Some(Span::from_secs(5)));
        assert!(wait("--evict").evict);
        let said = |line: &str| match command(line).unwrap() {
            Command::Run(run) => run.pool().unwrap_err().render(),
            other => format!("{other:?}"),
        };
        assert_eq!(said("--wait ./train"), "error: --wait has no effect without --pool NAME\n  try     --pool NAME\n");
        assert_eq!(
            said("--pool p -H a ./train"),
            "error: --pool and -H both name the hosts\n  try     one of the two\n"
        );
        assert_eq!(
            said("--pool p --wait 10 ./train"),
            "error: --wait takes its time after =, got '10'\n  try     --wait=10\n"
        );
        assert!(said("--pool p --launcher slurm ./train").contains("--pool and --launcher both name the hosts"));
    }
}
