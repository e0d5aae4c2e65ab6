//! Trials as they are typed, and the messages about wrong ones.

use super::super::site::{Known, NoNodeset};
use super::*;
use crate::view::assign::{json, text};
use rlaunch_plan::place::Here;
use std::io;

const FILE: &str = "
[assign]
regrow = false
[assign.tree]
filter = 'multiple=2'
[[assign.tree.layer]]
flags = 'reserve'
[[assign.tree.layer]]
key = 'host'
min_ranks = 2
max_ranks = 3
flags = ['reserve', 'backfill']
";

/// `file:TEXT` stands for a file with that text, in which `_` is a blank and `|` a new line.
fn play(line: &str) -> Result<RankFates, String> {
    let site = Site {
        here: Here { name: "me".into(), cpus: 2 },
        units: &|_| 1,
        gpus: &|| Some(0),
        ask: &|_, _| Ok(Vec::new()),
        read: &|path| match path.strip_prefix(b"file:") {
            Some(b"tree") => Ok(FILE.into()),
            Some(text) => {
                Ok(String::from_utf8_lossy(text).replace('|', "\n").replace('_', " ").replace('~', "_").into())
            }
            None if path.as_slice() == b"hosts" => Ok(b"n1 slots=2\nn2 slots=3\n".to_vec()),
            None => Err(io::Error::from_raw_os_error(2)),
        },
        is_file: &|path| path.as_slice() == b"hosts",
        near: &|_| None,
        runs: &|_| None,
        has_input: &|| false,
        directory: &|| None,
        env: &|_| None,
        groups: &Known::new(&NoNodeset),
        turn: &|_| Err(std::io::ErrorKind::Unsupported.into()),
    };
    let words = line.split_whitespace().map(OsBytes::from);
    match parse(words.collect()).map_err(|error| error.render())? {
        Command::Answer(Answer::Assign(trial)) => trial.fates(&site).map_err(|error| error.render()),
        other => panic!("{other:?}"),
    }
}

fn shown(line: &str) -> Result<String, String> {
    play(line).map(|fates| text(&fates, false))
}

#[test]
fn a_policy_is_shown_round_by_round() {
    assert_eq!(
        shown("--world 8 --policy max=6,shift,group(host)>=2 --ranks-per-host 2 --lose 1 --lose none --join 0,1")
            .unwrap(),
        "\
max=6,shift,group(host)>=2

round  lost  back  discarded  healthy  active  reserve
0      -     -     -          8        6       2
1      1     -     0          6        6       0
2      -     -     -          6        6       0
3      -     0,1   -          8        6       2

initial rank  host   round 0      round 1    round 2  round 3
0             host0  0            discarded  -        reserve (6)
1             host0  1            lost       -        reserve (7)
2             host1  2            0          0        0
3             host1  3            1          1        1
4             host2  4            2          2        2
5             host2  5            3          3        3
6             host3  reserve (6)  4          4        4
7             host3  reserve (7)  5          5        5

In brackets: the number among all healthy ranks, where it is not RANK. --lose means that one.
"
    );
    let few = shown("-n 2 --assign fill --lose 0-1").unwrap();
    assert!(few.contains("note: no rank is left; a job ends here\n") && !few.contains("brackets"), "{few}");
    let many = shown("-n 100 --assign shift --lose 0,2,4-98").unwrap();
    assert!(many.ends_with("\n100 ranks have a line each with --all-ranks\n"), "{many}");
    assert_eq!(text(&play("-n 100 --assign shift").unwrap(), true).lines().count(), 106);
}

#[test]
fn a_tree_is_read_from_a_file() {
    let fates = play("--assign @file:tree -H a:4,b:4 --lose 1 --lose 1,2").unwrap();
    assert_eq!(fates.policy.to_string(), "a tree of 2 layers");
    let lines: Vec<String> = text(&fates, false).lines().skip(7).take(8).map(str::to_owned).collect();
    assert_eq!(
        lines,
        [
            "initial rank  host  round 0      round 1      round 2",
            "0             a     0            0            discarded",
            "1             a     1            lost         -",
            "2             a     2            2 (1)        lost",
            "3             a     reserve (3)  1 (2)        lost",
            "4             b     3 (4)        3            1 (0)",
            "5             b     4 (5)        4            2 (1)",
            "6             b     5 (6)        5            3 (2)",
        ]
    );
    // From a chain in a file, for programs.
    let fates = fates_of("[assign]|policy_=_[\"max=1\",\"shift\"]|regrow_=_true").unwrap();
    assert_eq!(
        json(&fates),
        "{\"note\":null,\"policy\":\"max=1,shift,regrow\",\"rounds\":[{\"active_rank\":[0,null],\"active_world_size\":1,\
         \"discarded\":[],\"joined\":[],\"lost\":[],\"rank\":[0,1],\"world_size\":2},{\"active_rank\":[null,0],\
         \"active_world_size\":1,\"discarded\":[],\"joined\":[],\"lost\":[0],\"rank\":[null,0],\"world_size\":1}]}\n"
    );
    let mixed = "[assign.tree]|layer_=_[{},{key='rank%2'}]";
    assert!(
        text(&fates_of(mixed).unwrap(), false).contains("\n\ninitial rank"),
        "two ranks are in the order of their tree"
    );
    let note = fates_with(mixed, "-n 4").unwrap().note.unwrap();
    assert!(note.starts_with("the order of the ranks is not that of the tree, by which 2 of 4"), "{note}");
}

/// Fates by a policy file for two ranks, of which the first is lost.
fn fates_of(file: &str) -> Result<RankFates, String> {
    fates_with(file, "-n 2 --lose 0")
}

fn fates_with(file: &str, words: &str) -> Result<RankFates, String> {
    play(&format!("--policy=@file:{file} {words}"))
}

#[test]
fn error_in_policy_file_is_reported_with_line() {
    for (file, error) in [
        (
            "",
            "file:: there is no [assign]\n  try     [assign], with policy = \"max=64,shift\" or [[assign.tree.layer]]\n",
        ),
        ("|[assing]", "file:|[assing], line 2: the file has no 'assing'\n  try     assign\n"),
        ("[assign]", "file:[assign]: a policy has no part\n  try     all,shift\n"),
        (
            "policy='all,shift'|[assign]",
            "file:policy='all,shift'|[assign], line 1: 'policy' stands above any table\n  try     a line [assign] before it\n",
        ),
        ("[assign]|police=1", "file:[assign]|police=1, line 2: [assign] has no 'police'\n  try     policy\n"),
        (
            "[assign]|policy=1",
            "file:[assign]|policy=1, line 2: policy takes a text, got a value of type integer\n  try     policy = \"max=64,shift\"\n",
        ),
        (
            "[assign]|policy='max=4'",
            "file:[assign]|policy='max=4', line 2: max=4 is there, but neither shift nor fill: nothing takes out ranks that are lost\n  try     max=4,shift\n",
        ),
        (
            "[assign]|regrow='x'",
            "file:[assign]|regrow='x', line 2: regrow takes true or false, got a value of type string\n  try     regrow = true\n",
        ),
        (
            "[assign|",
            "file:[assign|, line 1: unclosed table, expected `]`\n  try     TOML, as [[assign.tree.layer]] and key = \"host\"\n",
        ),
        (
            "[assign]|[assign.tree]",
            "file:[assign]|[assign.tree]: a tree has no layer\n  try     [[assign.tree.layer]], the root's first\n",
        ),
    ] {
        assert_eq!(fates_of(file).unwrap_err(), format!("error: {error}"), "{file}");
    }
}

#[test]
fn error_in_policy_tree_is_reported_with_line() {
    for (file, error) in [
        (
            "[[assign.tree.layer]]|keey='host'",
            "file:[[assign.tree.layer]]|keey='host', line 2: [[assign.tree.layer]] has no 'keey'\n  try     key\n",
        ),
        (
            "[[assign.tree.layer]]|key='hots'",
            "file:[[assign.tree.layer]]|key='hots', line 2: 'hots' is no key of ranks\n  try     host\n",
        ),
        (
            "[[assign.tree.layer]]|min-ranks=1",
            "file:[[assign.tree.layer]]|min-ranks=1, line 2: [[assign.tree.layer]] has no 'min-ranks'\n  try     min_ranks\n",
        ),
        (
            "[[assign.tree.layer]]|min~ranks=-1",
            "file:[[assign.tree.layer]]|min~ranks=-1, line 2: min_ranks takes a number of ranks, got -1\n  try     min_ranks = 8\n",
        ),
        (
            "[[assign.tree.layer]]|max~ranks=99999999999999999999",
            "file:[[assign.tree.layer]]|max~ranks=99999999999999999999, line 2: max_ranks takes a number of ranks, got 99999999999999999999\n  try     max_ranks = 8\n",
        ),
        (
            "[[assign.tree.layer]]|flags=['resrve']",
            "file:[[assign.tree.layer]]|flags=['resrve'], line 2: 'resrve' is no flag of a layer\n  try     reserve\n",
        ),
        (
            "[assign.tree]|layer=1",
            "file:[assign.tree]|layer=1, line 2: layer takes tables, got a value of type integer\n  try     [[assign.tree.layer]]\n",
        ),
        (
            "[assign.tree]|filter='multipl=2'",
            "file:[assign.tree]|filter='multipl=2', line 2: 'multipl=2' is no filter\n  try     multiple=8\n",
        ),
        (
            "[assign.tree]|max~ranks='hard'",
            "file:[assign.tree]|max~ranks='hard', line 2: max_ranks takes strict or nvrx, got 'hard'\n  try     max_ranks = \"strict\"\n",
        ),
        (
            "[assign]|policy='shift'|[[assign.tree.layer]]",
            "file:[assign]|policy='shift'|[[assign.tree.layer]]: a tree of 1 layer numbers and chooses ranks by itself, and cannot be combined with all\n  try     max_ranks or filter of the tree, instead of all\n",
        ),
        (
            "[[assign.tree.layer]]|key='rank/1'",
            "--assign: all ranks must share one key at the root of the tree, but they have 2: 0 (rank 0), 1 (rank 1)\n  try     key = \"\" in the first layer: it is the root, above all others\n",
        ),
    ] {
        assert_eq!(fates_of(file).unwrap_err(), format!("error: {error}"), "{file}");
    }
}

#[test]
fn trial_without_policy_uses_the_default_policy() {
    let line = "--world 4 --lose 0";
    let shown = shown(line).unwrap();
    assert!(shown.starts_with("all,shift\n"), "{shown}");
    assert_eq!(Ok(shown), self::shown(&format!("{line} --assign all,shift")));
}

/// The replacement that was offered let no rank work either.
#[test]
fn policy_without_active_ranks_is_refused() {
    let error = "error: --assign: max takes a whole number above 0, got '0'\n  try     max=64\n";
    assert_eq!(play("--assign max=0 --world 4").map(|_| ()), Err(error.into()));
}

#[test]
fn assign_refuses_invalid_options() {
    for (line, error) in [
        ("", "rlaunch assign needs a value: --world N, or hosts\n  try     rlaunch assign --help\n"),
        ("--assign shift", "rlaunch assign needs a value: --world N, or hosts\n  try     rlaunch assign --help\n"),
        ("--assign shift --world 0", "--world takes a whole number above 0, got '0'\n  try     --world 4\n"),
        (
            "--assign shift --world 99999999",
            "--world takes at most 1048576, got '99999999'\n  try     a smaller number\n",
        ),
        ("--polcy shift --world 4", "unknown option '--polcy'\n  try     --policy\n"),
        (
            "--assign shift -n 4 3",
            "rlaunch assign takes options only, got '3'\n  try     --lose RANKS   or   --assign POLICY\n",
        ),
        ("--assign shfit -n 4", "--assign: 'shfit' is no policy\n  try     shift\n"),
        (
            "--assign shift,max=4 -n 8",
            "--assign: max=4 runs before shift (the last one runs first), which changes the numbers by which max=4 has chosen\n  try     max=4,shift\n",
        ),
        ("--assign @gone -n 4", "--assign: cannot read gone: no such file or directory\n"),
        ("--assign shift -n 4 --lose x", "--lose takes ranks, as 3,7 or 0-7 or none, got 'x'\n  try     --lose 3,7\n"),
        (
            "--assign shift -n 4 --lose 3-1",
            "--lose takes ranks, as 3,7 or 0-7 or none, got '3-1'\n  try     --lose 3,7\n",
        ),
        (
            "--assign shift -n 4 --lose 0-4000000000",
            "--lose takes ranks, as 3,7 or 0-7 or none, got '0-4000000000'\n  try     --lose 3,7\n",
        ),
        (
            "--assign shift -n 4 --lose 0 --lose 3",
            "--lose, round 2: there is no rank 3 to be lost: the ranks are 0 to 2\n  try     the numbers of that round, not the initial ones: those in brackets, or alone\n",
        ),
        (
            "--assign shift -n 4 --join 0",
            "--join, round 1: initial rank 0 cannot join: it is in the world, as rank 0\n  try     initial ranks that are gone, or the next new one\n",
        ),
        (
            "--assign fill,group(host)==2 -n 4",
            "--assign: the policy groups ranks by host, which is not known of initial rank 0\n  try     --ranks-per-host 8   or   -H node[0-3]:8\n",
        ),
        (
            "--assign fill,group(env:POD)==2 -n 4",
            "--assign: the policy groups ranks by env:POD, which is not known of initial rank 0\n  try     --ranks-per env:POD=16\n",
        ),
        (
            "--assign fill -n 4 --ranks-per rak=2",
            "--ranks-per takes host, slice, rack, numa or env:NAME and a number above 0, as rack=16, got 'rak=2'\n  try     --ranks-per rack=16\n",
        ),
        (
            "--assign fill -n 4 --ranks-per rack=0",
            "--ranks-per takes host, slice, rack, numa or env:NAME and a number above 0, as rack=16, got 'rack=0'\n  try     --ranks-per rack=16\n",
        ),
    ] {
        assert_eq!(play(line).unwrap_err(), format!("error: {error}"), "{line}");
    }
    let fates =
        play("--assign fill,group(switch)==2,group(env:POD)>=1 -f hosts -n 5 --ranks-per rack=2 --ranks-per env:POD=3")
            .unwrap();
    assert_eq!(fates.hosts, ["n1", "n1", "n2", "n2", "n2"].map(|name| Some(name.to_owned())));
    assert_eq!(fates.rounds[0].discarded, [Rank::new(4)]);
}

#[test]
fn help_of_assign_fits_a_screen() {
    let Ok(Command::Answer(Answer::Assign(_))) = parse(vec!["--assign=shift".into(), "-n4".into()]) else {
        panic!("no trial")
    };
    let Ok(Command::Answer(Answer::Text(text))) = parse(vec!["-h".into()]) else { panic!("no help") };
    assert!(text.starts_with(USAGE) && text.contains("--ranks-per KEY=N"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
}
