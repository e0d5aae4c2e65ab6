//! Command lines as users type them, and the messages about wrong ones. The texts are kept in tests/golden/cli.

mod allocation;
mod other_launchers;
mod place;
mod programs;
mod reach;
mod reference;
mod refused;
mod torch;

use super::site::{Known, NoNodeset, Runs};
use super::{Answer, Command, Events, Program, Run, Site, Verbosity, is_job, parse, planned_options, table};
use rlaunch_base::id::JobId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_plan::place::{By, Here, Nodes};
use rlaunch_plan::slices::Grow;
use rlaunch_protocol::env::{Export, Role as VarRole};
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::settings::{Contain, EndingPlan, OnFailure, StdinPlan};
use rlaunch_protocol::spec::{AppBase, Role};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(|word| OsString::from(if word == "''" { "" } else { word })).collect()
}

fn with(line: &str, variables: &[(&str, &str)]) -> Result<Command, super::CliError> {
    let env = |name: &str| variables.iter().find(|(own, _)| *own == name).map(|(_, value)| OsString::from(*value));
    let found = |path: &OsBytes| FILES.iter().find(|(name, _)| path.as_slice() == name.as_bytes());
    let read = |path: &OsBytes| {
        found(path).map(|(_, text)| text.as_bytes().to_vec()).ok_or(std::io::Error::from_raw_os_error(2))
    };
    parse(words(line), &env, &read)
}

pub(super) fn run_with(line: &str, variables: &[(&str, &str)]) -> Run {
    match with(line, variables).unwrap_or_else(|error| panic!("{line}: {}", error.render())) {
        Command::Run(run) => *run,
        other => panic!("{line}: {other:?}"),
    }
}

fn run(line: &str) -> Run {
    run_with(line, &[])
}

fn error(line: &str) -> String {
    with(line, &[]).err().map_or_else(|| panic!("{line} is accepted"), |error| error.render())
}

/// The only program.
fn sole(run: &Run) -> &Program {
    assert_eq!(run.programs.len(), 1);
    &run.programs[0]
}

fn argv(run: &Run) -> Vec<String> {
    sole(run).argv.iter().map(ToString::to_string).collect()
}

/// A machine with two processors, on which these files exist.
const FILES: [(&str, &str); 10] = [
    (
        "slices",
        "node[4-5] slice=c id=0 devices=4\nnode[0-1] slice=a id=0 devices=4\nnode3 slice=b id=1 devices=4\nnode2 slice=b id=0 devices=4\n",
    ),
    ("uneven", "node[0-1] slice=a id=0 devices=4\nnode2 slice=b id=0 devices=4\n"),
    ("hosts", "a slots=2\nb slots=2 # two\n"),
    ("broken", "a slots=2\nb slots=four\n"),
    ("conf", "-n 1 echo ping 20\n\n# second\n-n 2 -x A=1 echo 'pong pong'\n"),
    ("nested", "-n 1 a\n-configfile conf\n"),
    ("multi", "0-1,3 echo one %o\n2 two\n"),
    ("faults", "a slots=two\nb slots=2\n\nc slots=3 foo=1\n"),
    ("turns", "a\nb\na\nb\n"),
    ("twice", "a slots=2\n\na slots=4\n"),
];

pub(super) fn at_site<T>(gpus: impl Into<Option<u32>>, ask: impl FnOnce(&Site<'_>) -> T) -> T {
    at_site_with(&[], gpus.into(), ask)
}

/// The same with these variables.
fn at_site_with<T>(variables: &[(&str, &str)], gpus: Option<u32>, ask: impl FnOnce(&Site<'_>) -> T) -> T {
    let found = |path: &OsBytes| FILES.iter().find(|(name, _)| path.as_slice() == name.as_bytes());
    ask(&Site {
        here: Here { name: "me".into(), cpus: 2 },
        units: &|_| 1,
        gpus: &|| gpus,
        ask: &|hosts, _| Ok(hosts.iter().map(place::has).collect()),
        read: &|path| found(path).map(|(_, text)| text.as_bytes().to_vec()).ok_or(std::io::Error::from_raw_os_error(2)),
        is_file: &|path| found(path).is_some(),
        near: &|path| (path.as_slice() == b"hots").then(|| "hosts".into()),
        runs: &|path| found(path).map(|_| Runs::Never),
        has_input: &|| true,
        directory: &|| Some("/home/u".into()),
        env: &|name| variables.iter().find(|(own, _)| *own == name).map(|(_, value)| OsString::from(value)),
        groups: &Known::new(&NoNodeset),
        turn: &|_| Err(std::io::ErrorKind::Unsupported.into()),
    })
}

/// The error for this command line, from whatever part of us.
pub(super) fn refused(line: &str, variables: &[(&str, &str)]) -> Option<String> {
    let run = match with(line, variables) {
        Ok(Command::Run(run) | Command::Answer(Answer::Map { run, .. })) => run,
        Ok(_) => return None,
        Err(error) => return Some(error.render()),
    };
    let tried = |site: &Site<'_>| {
        let placement = run.place(site)?;
        run.check_input(&placement, site)?;
        run.rounds(&placement, &[], site).and(run.files(JobId([0xab; 16]), site).map(drop))
    };
    at_site(0, tried).err().map(|error| {
        assert_eq!(error.exit_code(), if matches!(error, super::CliError::Uncounted { .. }) { 125 } else { 2 });
        error.render()
    })
}

/// Compares with tests/golden/cli/NAME.txt; RLAUNCH_BLESS=1 writes it.
pub(super) fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/cli").join(format!("{name}.txt"));
    if std::env::var_os("RLAUNCH_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, kept, "tests/golden/cli/{name}.txt: RLAUNCH_BLESS=1 cargo test -p rlaunch writes it anew");
}

/// The text that this command line asks for.
fn text(line: &str) -> String {
    match with(line, &[]) {
        Ok(Command::Answer(Answer::Text(text))) => text,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn help_and_version() {
    let (brief, full) = (text("-h"), text("--help"));
    golden("help-brief", &brief);
    golden("help-full", &full);
    assert!(brief.lines().count() <= 24, "-h is more than one screen");
    for line in brief.lines().chain(full.lines()) {
        assert!(line.len() <= 80, "wider than a terminal: {line}");
    }
    assert_eq!(text("help"), full);
    assert_eq!(text("-n 4 -lh"), brief);
    assert_eq!(text("-n abc --help"), full);
    assert!(text("-V").starts_with(concat!("rlaunch ", env!("CARGO_PKG_VERSION"))));
    assert_eq!(text("--version"), text("-V"));
    assert_eq!(text("version"), text("-V"));
    for line in ["-V -v", "-vV", "--version --verbose", "version -v"] {
        assert!(
            matches!(with(line, &[]), Ok(Command::Answer(Answer::Installed(version))) if version == text("-V")),
            "{line}"
        );
    }
    assert_eq!(error(""), brief, "rlaunch alone shows the short help");
}

#[test]
fn each_topic_has_a_separate_help() {
    let full = text("--help");
    let mut all = Vec::new();
    for sub in &super::commands::COMMANDS {
        let own = text(&format!("help {}", sub.name));
        assert!(own.starts_with(&format!("Usage: rlaunch {}", sub.name)) && own.ends_with('\n'), "{own}");
        assert_eq!(text(&format!("{} --help", sub.name)), own, "{}", sub.name);
        all.push(own);
    }
    for topic in super::help::topics() {
        let own = text(&format!("help {topic}"));
        assert!(full.contains(&own) && own.len() * 2 < full.len(), "{topic}: {own}");
        all.push(own);
    }
    for line in all.iter().flat_map(|text| text.lines()) {
        assert!(line.len() <= 80, "wider than a terminal: {line}");
    }
    let restarts = text("help max-restarts");
    assert!(restarts.starts_with("      --max-restarts N ") && restarts.lines().count() == 1, "{restarts}");
    assert_eq!(text("help --max-restarts"), restarts);
    assert_eq!(text("help -w"), text("help --hosts"));
    let near = error("help max-restart");
    assert!(near.contains("takes a command, an option or a topic") && near.contains("rlaunch help max-restarts"));
    let restart = error("help restart");
    assert!(restart.contains("try     rlaunch help in-process   or   ") && restart.contains("help max-restarts\n"));
    assert!(error("help gpu").contains("try     rlaunch help gpus-per-rank\n"), "{}", error("help gpu"));
    assert!(error("help zzz").contains("rlaunch help help lists the topics"));
    assert!(error("help map doctor").contains("got 'doctor'"));
}

#[test]
fn scripts_for_shells_and_the_manual_page_have_every_option() {
    for (line, dashes) in
        [("completions bash", "--"), ("completions zsh", "--"), ("completions fish", "-l "), ("man", "\\fB\\-\\-")]
    {
        let own = text(line);
        for row in table::rows().filter(|row| !matches!(row.takes, table::Takes::Pair(_))) {
            let name = if line == "man" { row.shown().replace('-', "\\-") } else { row.shown().to_owned() };
            assert!(own.contains(&format!("{dashes}{name}")), "{line} has no {name}");
        }
    }
    assert!(error("completions").contains("needs a value: bash, zsh or fish"));
    assert!(error("completions tcsh").contains("takes bash, zsh or fish, got 'tcsh'"));
    assert!(error("completions bash zsh").contains("got 'zsh'"));
    assert!(error("man rlaunch").contains("got 'rlaunch'"));
    for line in ["completions --help", "man -h", "version -h"] {
        assert!(text(line).starts_with("Usage: rlaunch "), "{line}");
    }
}

#[test]
fn each_error_has_a_text() {
    let mut text = String::new();
    for line in refused::LINES {
        let message = refused(line, &[]).unwrap_or_else(|| panic!("{line} is accepted"));
        assert!(message.starts_with("error: ") && message.ends_with('\n'), "{line}: {message}");
        text.push_str(&format!("$ rlaunch {line}\n{message}\n"));
    }
    for (name, value) in [
        ("RLAUNCH_GRACE", "soon"),
        ("RLAUNCH_CONTAIN", "x"),
        ("RLAUNCH_ON_FAILURE", "kil"),
        ("RLAUNCH_LABEL", "yes"),
        ("MPIEXEC_TIMEOUT", "abc"),
        ("RLAUNCH_N", "four"),
        ("RLAUNCH_STDIN", "1"),
        ("RLAUNCH_STDIN", "nobody"),
        ("RLAUNCH_PREFIX", "%x"),
        ("RLAUNCH_PREFIX", "/opt/rlaunch"),
        ("RLAUNCH_EVENTS", "fd:x"),
        ("RLAUNCH_TIMEOUT", "never"),
        ("RLAUNCH_HOSTFILE", "gone"),
        ("HYDRA_HOST_FILE", "gone"),
        ("RLAUNCH_HOSTS", "a["),
        ("RLAUNCH_PPN", "x"),
        ("RLAUNCH_NNODES", "0"),
        ("RLAUNCH_NNODES", "abc"),
        ("RLAUNCH_NNODES", "3"),
        ("RLAUNCH_MIN_HOSTS", "2"),
        ("RLAUNCH_MAP_BY", "board"),
    ] {
        let error = refused("./train", &[(name, value)]).unwrap();
        text.push_str(&format!("$ {name}={value} rlaunch ./train\n{error}\n"));
    }
    for (line, name, value) in
        [("-n 4 ./train", "RLAUNCH_PPN", "1"), ("--standalone -n 4 ./train", "PET_NPROC_PER_NODE", "1")]
    {
        let error = refused(line, &[(name, value)]).unwrap();
        text.push_str(&format!("$ {name}={value} rlaunch {line}\n{error}\n"));
    }
    golden("errors", &text);
}

#[test]
fn a_message_shows_no_control_bytes_and_no_novel() {
    let bytes = |word: &[u8]| OsString::from_vec(word.to_vec());
    let shown = |args: Vec<OsString>| parse(args, &|_| None, super::NO_FILES).unwrap_err().render();
    let escape = shown(vec!["-n".into(), bytes(b"\x1b[2J\xff"), "./a".into()]);
    assert!(escape.starts_with("error: -n takes a whole number above 0, got '\\u{1b}[2J\\xff'\n"), "{escape}");
    let long = shown(vec!["-n".into(), "9".repeat(300_000).into(), "./a".into()]);
    assert!(long.len() < 300, "{}", long.len());
}

#[test]
fn the_number_of_ranks_in_all_spellings() {
    for line in
        ["-n 4 a", "-n4 a", "-n=4 a", "-np 4 a", "-np=4 a", "--np 4 a", "--np=4 a", "--ntasks=4 a", "-ntasks 4 a"]
    {
        let run = run(line);
        assert_eq!(sole(&run).n, Some(4), "{line}");
        assert_eq!(argv(&run), ["a"]);
    }
    assert_eq!(sole(&run("-n 2 -n 3 a")).n, Some(3), "the last one counts");
    assert_eq!(sole(&run("a")).n, None);
}

#[test]
fn words_after_the_program_are_not_read_as_options() {
    for line in
        ["-n 2 /bin/echo -n 5 --foo -- -h", "run -n 2 /bin/echo -n 5 --foo -- -h", "-n 2 -- /bin/echo -n 5 --foo -- -h"]
    {
        let run = run(line);
        assert_eq!(argv(&run), ["/bin/echo", "-n", "5", "--foo", "--", "-h"], "{line}");
        assert_eq!(sole(&run).n, Some(2));
    }
    assert_eq!(argv(&run("run -- a : b")), ["a", ":", "b"]);
    assert_eq!(argv(&run("run doctor")), ["doctor"]);
    assert_eq!(argv(&run("run run")), ["run"]);
    assert_eq!(argv(&run("-l doctor")), ["doctor"], "a command is the first word or none");
    assert_eq!(argv(&run("-- -x")), ["-x"]);
    assert_eq!(argv(&run("a a:b :c")), ["a", "a:b", ":c"]);
    assert_eq!(argv(&run("-")), ["-"]);
    let odd = OsString::from_vec(b"\xff\xfe".to_vec());
    let Ok(Command::Run(run)) = parse(vec![odd.clone(), odd.clone(), "".into()], &|_| None, super::NO_FILES) else {
        panic!()
    };
    assert_eq!(sole(&run).argv, [OsBytes::from(&b"\xff\xfe"[..]), OsBytes::from(&b"\xff\xfe"[..]), OsBytes::default()]);
}

#[test]
fn output_options() {
    let prefix = |line: &str| run(line).style.label(1).map(|format| format.to_string());
    assert_eq!(prefix("a"), None);
    for line in ["-l a", "--label a", "-label a", "--tag-output a", "--tag_output a", "-tag-output a"] {
        assert_eq!(prefix(line).as_deref(), Some("%r: "), "{line}");
    }
    assert_eq!(prefix("-l --prefix %h/%r> a").as_deref(), Some("%h/%r>"));
    assert_eq!(prefix("--prefix=%r a").as_deref(), Some("%r"));
    let loud = |line: &str| run(line).presentation.verbosity;
    assert_eq!(loud("a"), Verbosity::Normal);
    assert_eq!(
        (loud("-v a"), loud("-vv a"), loud("-v -vv a")),
        (Verbosity::Verbose, Verbosity::Debug, Verbosity::Debug)
    );
    assert_eq!((loud("-q a"), loud("-qq a")), (Verbosity::Quiet, Verbosity::Quiet));
    let stdin = |line| run(line).settings.output.stdin;
    assert_eq!((stdin("--stdin none a"), stdin("--stdin=0 a")), (StdinPlan::None, StdinPlan::Rank0));
    assert_eq!((stdin("a"), stdin("--stdin all a")), (StdinPlan::Rank0, StdinPlan::All));
    assert_eq!(run("--events e.ndjson a").presentation.events, Some(Events::File("e.ndjson".into())));
    assert_eq!(run("--events fd:3 a").presentation.events, Some(Events::Fd(3)));
    let together = run("-lvn2 a");
    assert_eq!(
        (sole(&together).n, together.presentation.verbosity, together.style.clone().label(1).is_some()),
        (Some(2), Verbosity::Verbose, true)
    );
}

#[test]
fn environment_options() {
    let set = |name: &str, value: &str| Export::Set { name: name.into(), value: value.into() };
    let run = run("-x A -xB=1 --env C=x=y,z -x D* -genv E 5 --export=F -genv G -1 --export ALL a");
    assert_eq!(
        sole(&run).exports,
        [
            set("E", "5"),
            set("G", "-1"),
            Export::Take("A".into()),
            set("B", "1"),
            set("C", "x=y,z"),
            Export::Glob("D*".into()),
            Export::Take("F".into()),
        ]
    );
    assert_eq!(argv(&run), ["a"]);
}

fn ending(contain: Contain, on_failure: OnFailure, grace_ms: u64, timeout: Option<u64>) -> EndingPlan {
    EndingPlan { contain, on_failure, grace: Span::from_millis(grace_ms), timeout: timeout.map(Span::from_secs) }
}

#[test]
fn fault_options() {
    let plain = run("a");
    assert_eq!(plain.settings.ending, ending(Contain::Auto, OnFailure::Kill, 5_000, None));
    let all = run("--contain=T3 --on_failure continue --grace 250ms -timeout 1m30s -wdir /tmp a");
    assert_eq!(all.settings.ending, ending(Contain::T3, OnFailure::Continue, 250, Some(90)));
    assert_eq!(sole(&all).wdir, Some("/tmp".into()));
    assert_eq!(plain.settings.restarts, Restarts::of(0, Span::from_secs(1)));
    let again = run("--max_restarts=3 --restart-delay 250ms a");
    assert_eq!(again.settings.restarts, Restarts::of(3, Span::from_millis(250)));
    assert_eq!(run("--give-up-after 5m a").settings.restarts.give_up_after, Span::from_secs(300));
    assert_eq!(run("--max-restarts 0 --on-failure continue a").settings.restarts.most, 0);
    assert_eq!(run_with("--standalone a", &[("PET_MAX_RESTARTS", "2")]).settings.restarts.most, 2);
    assert_eq!(
        run_with("--standalone a", &[("PET_MAX_RESTARTS", "2"), ("RLAUNCH_MAX_RESTARTS", "5")]).settings.restarts.most,
        5
    );
    for line in ["-wd d a", "--wdir=d a", "--chdir d a"] {
        assert_eq!(sole(&run(line)).wdir, Some("d".into()), "{line}");
    }
}

#[test]
fn a_flag_goes_before_a_variable() {
    let variables = [
        ("RLAUNCH_CONTAIN", "strict"),
        ("RLAUNCH_ON_FAILURE", "continue"),
        ("RLAUNCH_GRACE", "1s"),
        ("RLAUNCH_TIMEOUT", "2m"),
        ("MPIEXEC_TIMEOUT", "7"),
        ("RLAUNCH_EVENTS", "fd:9"),
        ("RLAUNCH_LABEL", "1"),
    ];
    let run = run_with("a", &variables);
    assert_eq!(run.settings.ending, ending(Contain::Strict, OnFailure::Continue, 1_000, Some(120)));
    assert_eq!(run.presentation.events, Some(Events::Fd(9)));
    assert_eq!(run.style.label(1), Some("%r: ".into()));
    let flags = "--contain t1 --on-failure kill --grace 3 --timeout 0 --events f --prefix > a";
    let run = run_with(flags, &variables);
    assert_eq!(run.settings.ending, ending(Contain::T1, OnFailure::Kill, 3_000, None));
    assert_eq!(run.presentation.events, Some(Events::File("f".into())));
    assert_eq!(run.style.label(1), Some(">".into()));
    assert_eq!(run_with("a", &[("MPIEXEC_TIMEOUT", "7")]).settings.ending.timeout, Some(Span::from_secs(7)));
    assert_eq!(run_with("a", &[("RLAUNCH_GRACE", "")]).settings.ending.grace, Span::from_secs(5), "empty is not set");
    run_with("--grace 1 a", &[("RLAUNCH_GRACE", "nonsense")]);
}

#[test]
fn every_option_with_a_value_has_a_variable() {
    let variables = [("RLAUNCH_N", "3"), ("RLAUNCH_WDIR", "d"), ("RLAUNCH_PREFIX", "%h "), ("RLAUNCH_STDIN", "none")];
    let run = run_with("a", &variables);
    assert_eq!((sole(&run).n, &sole(&run).wdir), (Some(3), &Some("d".into())));
    assert_eq!((run.style.clone().label(1), run.settings.output.stdin), (Some("%h ".into()), StdinPlan::None));
    let run = run_with("-n 2 --chdir e --prefix %r --stdin 0 a", &variables);
    assert_eq!((sole(&run).n, &sole(&run).wdir), (Some(2), &Some("e".into())));
    assert_eq!((run.style.label(1), run.settings.output.stdin), (Some("%r".into()), StdinPlan::Rank0));
    assert_eq!(sole(&run_with("a", &[("RLAUNCH_N", "")])).n, None, "empty is not set");
    run_with("-n 1 a", &[("RLAUNCH_N", "nonsense")]);
    // All of them, by one rule; none is a name that ranks get.
    let Ok(Command::Answer(Answer::Text(help))) = with("--help", &[]) else { panic!() };
    let mut names = BTreeSet::new();
    for name in table::rows().filter_map(table::Row::variable) {
        assert!(help.contains(&name), "--help does not name {name}");
        let role = rlaunch_protocol::env::lookup(name.as_bytes()).map(|var| var.role);
        assert!(matches!(role, Some(VarRole::Read | VarRole::ReadOnce)), "{name} is {role:?}");
        assert!(names.insert(name));
    }
    assert_eq!(names.len(), 72);
}

#[test]
fn clap_spellings_are_accepted() {
    for line in ["--grace=2 a", "--grace 2 a", "--grace 9 --grace=2 a", "-n4 --grace=2 -- a", "-lqn4 --grace=2 a"] {
        let run = run(line);
        assert_eq!((run.settings.ending.grace, argv(&run)), (Span::from_secs(2), vec!["a".to_owned()]), "{line}");
    }
    assert_eq!(sole(&run("-x A=b=c a")).exports.len(), 1);
    assert_eq!(sole(&run("-env A 1 a")).exports, sole(&run("-genv A 1 a")).exports, "Hydra's takes two words");
    let exports = |line: &str| run(line).programs.iter().map(|program| program.exports.len()).collect::<Vec<_>>();
    assert_eq!((exports("-env A 1 a : b"), exports("-genv A 1 a : b")), (vec![1, 0], vec![1, 1]));
    assert_eq!(exports("a : -genv A 1 b"), [1, 1], "Hydra's -genv is for the programs before it too");
    assert_eq!(sole(&run("--env A a")).exports, [Export::Take("A".into())]);
}

#[test]
fn every_variable_that_is_read_is_registered() {
    let asked = std::cell::RefCell::new(BTreeSet::new());
    let ask = |name: &str| {
        asked.borrow_mut().insert(name.to_owned());
        None
    };
    let command = parse(words("a"), &ask, super::NO_FILES);
    assert!(command.is_ok() && asked.borrow().len() >= 18);
    for name in asked.borrow().iter() {
        let role = rlaunch_protocol::env::lookup(name.as_bytes()).map(|var| var.role);
        assert!(role.is_some_and(|role| format!("{role:?}").starts_with("Read")), "{name} is {role:?}");
    }
}

#[test]
fn the_table_is_unambiguous() {
    let mut names = BTreeSet::new();
    for name in table::rows().flat_map(|row| row.names.iter().copied()).chain(planned_options::all_names()) {
        assert!(names.insert(name), "--{name} is there twice");
        assert!(!name.contains('_') && !name.contains('='));
    }
    let mut letters = BTreeSet::from([b'N']);
    for letter in table::rows().flat_map(|row| row.letters.iter().copied()).chain(planned_options::all_letters()) {
        assert!(letters.insert(letter), "-{} is there twice", char::from(letter));
    }
    // `-word` must not also be letters together.
    let flags: BTreeSet<u8> =
        table::rows().filter(|row| row.takes == table::Takes::Nothing).filter_map(|row| row.letter()).collect();
    for name in names.iter().filter(|name| name.len() > 1) {
        assert!(!name.bytes().all(|b| flags.contains(&b)), "-{name} has two meanings");
    }
}

#[test]
fn first_word_decides_whether_command_line_is_a_job() {
    for line in ["-n 2 a", "a", "run a", "-x A", "--", "-N 8"] {
        assert!(is_job(&words(line)), "{line}");
    }
    for line in
        ["", "-h", "--help", "-V", "--version", "help", "doctor", "ps", "map -n 2 a", "hosts a", "man", "rapidfire"]
    {
        assert!(!is_job(&words(line)), "{line}");
    }
}

fn plan(line: &str) -> super::Plan {
    let caller: [&[u8]; 4] = [b"HOME=/h", b"RANK=3", b"odd", b"B=\xff"];
    at_site(0, |site| run(line).into_plan(JobId([1; 16]), caller, site)).unwrap_or_else(|e| panic!("{}", e.render()))
}

#[test]
fn job_that_would_have_more_hosts_with_lead_is_known() {
    let has_more = |line: &str| plan(line).presentation.lead_has_more;
    let lines = [
        "-n 1 -H b,c a",
        "--pool p -n 1 a",
        "-n 1 --lead -H b,c a",
        "-n 2 -H b,c a",
        "-n 1 a",
        "--pool p --lead -n 1 a",
    ];
    assert_eq!(lines.map(has_more), [true, true, false, false, false, false]);
}

#[test]
fn a_plan_is_the_job_that_was_asked_for() {
    let plan = plan("-n 3 -x RANK -x GONE -l --wdir w a b");
    assert_eq!((plan.job.world_size(), plan.job.apps.len()), (3, 1));
    let base = &plan.job.apps[0].base;
    assert_eq!(base.env, [&b"HOME=/h"[..], b"RANK=3", b"odd", b"B=\xff"].iter().collect());
    assert_eq!((&base.pinned, &plan.absent[..]), (&["RANK"].iter().collect(), &["GONE".into()][..]));
    assert_eq!((&base.argv, &base.wdir), (&["a", "b"].iter().collect(), &Some("w".into())));
    assert_eq!(base.role, Role::sole());
    assert_eq!(self::plan("a").job.world_size(), 1);
}

#[test]
fn ranks_go_slice_by_slice_and_host_by_host() {
    let plan = plan("--slices 1,2 --spare-slices 1 --scale-timeout 5m --grow now -f slices --ppn 2 x");
    let slices = plan.job.slices.clone().unwrap();
    assert_eq!((slices.sizes.as_slice(), slices.spares, slices.timeout), (&[1, 2][..], 1, Span::from_secs(300)));
    assert_eq!(slices.grow, Grow::Now);
    let names: Vec<&str> = slices.slots.iter().map(|slot| slot.name.as_str()).collect();
    assert_eq!(names, ["c", "a", "b"]);
    let host = |node: u32| plan.job.placement.nodes[node as usize].host.to_string();
    let hosts: Vec<String> = plan.job.placement.ranks.iter().map(|placed| host(placed.node.get())).collect();
    assert_eq!(hosts.join(" "), "node4 node4 node5 node5 node0 node0 node1 node1 node2 node2 node3 node3");
    assert_eq!(plan.job.settings.restarts.preempt, 1_000_000, "slices come back");
    assert_eq!(self::plan("--slices 2 --preempt-retries 0 -f slices x").job.settings.restarts.preempt, 0);
}

#[test]
fn programs_have_separate_settings() {
    let plan = plan("-n 2 -genv A 1 -x B=1 --wdir w --name s a x : -n 3 -x A=2 -x C=1 -x NO b : -x NO -- c -n 9 ::");
    let shown: Vec<String> = plan
        .job
        .apps
        .iter()
        .map(|app| {
            let AppBase { argv, env, wdir, role, .. } = &app.base;
            let argv: Vec<_> = argv.iter().map(String::from_utf8_lossy).collect();
            let own: Vec<_> =
                env.iter().map(|e| String::from_utf8_lossy(e).into_owned()).filter(|e| e.len() == 3).collect();
            format!("{}: {argv:?} {own:?} {wdir:?} {} {}", app.procs, role.name, role.apps)
        })
        .collect();
    assert_eq!(
        shown,
        [
            r#"2: ["a", "x"] ["odd", "A=1", "B=1"] Some("w") s 3"#,
            r#"3: ["b"] ["odd", "A=2", "C=1"] None default 3"#,
            r#"1: ["c", "-n", "9", "::"] ["odd", "A=1"] None default 3"#,
        ]
    );
    assert_eq!(plan.absent, ["NO".into()]);
    let app = |n: usize| plan.job.placement.ranks[n].app.get();
    assert_eq!([0, 1, 2, 4, 5].map(app), [0, 0, 1, 1, 2]);
}

#[test]
fn a_colon_separates_programs() {
    let words = |line: &str| -> Vec<Vec<String>> {
        run(line).programs.iter().map(|p| p.argv.iter().map(ToString::to_string).collect()).collect()
    };
    assert_eq!(words("a : b"), [["a"], ["b"]]);
    assert_eq!(words("-n 2 -- a : b"), [["a"], ["b"]]);
    assert_eq!(words("run a : -- b"), [["a"], ["b"]]);
    assert_eq!(words("run -- a : b"), [["a", ":", "b"]]);
    assert_eq!(words("a b:c : d :e"), [["a", "b:c"], ["d", ":e"]]);
    assert_eq!(words("--prefix : a"), [["a"]], "the value of an option is no separator");
}

#[test]
fn a_map_is_no_job() {
    let map = |line: &str| match with(line, &[]) {
        Ok(Command::Answer(Answer::Map { json, .. })) => json,
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(["map a", "map --json a", "--dry-run a", "--json --dry_run a"].map(map), [false, true, false, true]);
    // `rlaunch map` takes the options of a job, and options of other launchers as a job does.
    assert!(!map("map --ntasks-per-node 2 -w a,b --machinefile=hosts a"));
    // A placement needs no program.
    assert_eq!(["map", "map --json -H node2"].map(map), [false, true]);
    assert!(error("map -n 1 a : -n 2").contains("no program given after ':'"));
    let reports = |line: &str| matches!(with(line, &[]), Ok(Command::Answer(Answer::Map { run, .. })) if run.whole.bound().report);
    assert!(reports("map --bind -H node2") && reports("map --bind a --bind") && !reports("map a --bind"));
    assert!(error("--bind a").contains("--bind-to"), "{}", error("--bind a"));
    assert!(refused("map -H node[1", &[]).unwrap().contains("node[1"));
    assert!(error("map --nnode 2 a").contains("--nnodes"), "{}", error("map --nnode 2 a"));
    assert!(error("map -N 2 a").contains("--ppn 2"));
    assert!(matches!(with("map --help", &[]), Ok(Command::Answer(Answer::Text(_)))));
    assert_eq!(run("--strict --nnodes 1:2 a").whole.nnodes, Some(Nodes { min: 1, max: 2 }));
    assert_eq!((run("a").whole.by(), run("--map-by NODE a").whole.by()), (By::Slot, By::Node));
}
