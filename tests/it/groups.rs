//! ClusterShell's groups in lists of hosts: against nodeset itself, wherever lists are taken, and what is wrong with them.

use crate::case::Case;
use crate::census::{self, Mercy};
use crate::place::{Random, Scratch, rlaunch};
use crate::placement::{clustershell, nodeset};
use crate::plan::Plan;
use crate::watch::Exit;
use nix::sys::signal::Signal;
use rlaunch_core::hostlist::groups::{Definition, Ground, GroupFault, GroupName, Groups};
use rlaunch_core::hostlist::{self, Fault, Outside};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The `[local]` that ClusterShell ships, for flat files of old and new, and commands of every kind.
const CONF: &str = r"
# theirs
[Main]
default: local
confdir: $CFGDIR/groups.conf.d /no/such/directory
autodir: $CFGDIR/groups.d

[local]
map: [ -f $CFGDIR/groups ] && f=$CFGDIR/groups || f=$CFGDIR/groups.d/local.cfg; sed -n 's/^$GROUP:\(.*\)/\1/p' $f
all: [ -f $CFGDIR/groups ] && f=$CFGDIR/groups || f=$CFGDIR/groups.d/local.cfg; sed -n 's/^all:\(.*\)/\1/p' $f
list: [ -f $CFGDIR/groups ] && f=$CFGDIR/groups || f=$CFGDIR/groups.d/local.cfg; sed -n 's/^\([0-9A-Za-z_-]*\):.*/\1/p' $f
";

/// In a file of its own: run where that file is.
const PART: &str = "[part,p]\nmap: cat ./$GROUP.$SOURCE\nlist: ls *.$SOURCE |\n  sed 's/[.].*//'\n\
                    [table]\nmapall: cat ../groups.d/local.cfg\n";

const YAML: &str = "roles:\n    adm: 'example0'\n    io: '@racks:rack2,example2'\n    compute: '@racks:rack[3-4]'\n    \
                    all: '@io,@compute' # not adm\nracks:\n    rack2: example[4-5]\n    rack3: 'example[32-159]'\n    \
                    rack4: \"example[156-159]\"\n    old: '@rack[2,4]!example156'\n    rack5:\n        - 'example[200-202]'\n        \
                    - example245\n    empty:\n";

const LOCAL: &str =
    "adm: example0\noss: example4 example5\nio: example[4-6]\nboth: @oss&@roles:io\nall: example[4-6,32-159]\n";

/// A directory for CLUSTERSHELL_CFGDIR.
fn site(scratch: &Scratch) {
    let put = |name: &str, text: &str| fs::write(scratch.path(name), text).unwrap();
    for dir in ["groups.conf.d", "groups.d"] {
        fs::create_dir(scratch.path(dir)).unwrap();
    }
    put("groups.conf", CONF);
    put("groups.conf.d/part.conf", PART);
    put("groups.conf.d/one.part", "p1\np2,p3\n");
    put("groups.conf.d/one.p", "q1");
    put("groups.d/cluster.yaml", YAML);
    put("groups.d/local.cfg", LOCAL);
}

/// rlaunch with these words, where groups are set up in a directory.
fn said(config: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(rlaunch());
    command.args(words).env("CLUSTERSHELL_CFGDIR", config).env("HOME", config).env_remove("XDG_CONFIG_HOME");
    census::output(command.env_remove("VIRTUAL_ENV").stdin(Stdio::null()))
}

fn prints(config: &Path, words: &[&str]) -> String {
    let out = said(config, words);
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn refused(config: &Path, list: &str) -> String {
    let out = said(config, &["map", "-H", list, "true"]);
    assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0), "{list}");
    String::from_utf8(out.stderr).unwrap().replace(config.to_str().unwrap(), "CFG")
}

#[test]
fn the_command_knows_groups_as_nodeset_does() {
    let Some(python) = clustershell() else { return };
    let tool = Path::new(&python).with_file_name("nodeset");
    let scratch = Scratch::new();
    site(&scratch);
    let same = |words: &[&str]| {
        let mut nodeset = Command::new(&tool);
        nodeset.args(words).env("CLUSTERSHELL_CFGDIR", scratch.dir()).env("HOME", scratch.dir());
        let theirs = census::output(nodeset.env_remove("XDG_CONFIG_HOME").stdin(Stdio::null()));
        assert!(theirs.status.success(), "{words:?}: {}", String::from_utf8_lossy(&theirs.stderr));
        let ours = prints(scratch.dir(), &[&["hosts"], words].concat());
        assert_eq!(ours, String::from_utf8_lossy(&theirs.stdout), "{words:?}");
    };
    for list in [
        "@adm",
        "@oss,@io",
        "@io!@oss",
        "@local:both",
        "@*",
        "@local:*",
        "@roles:*",
        "@racks:*",
        "@roles:compute",
        "@racks:old",
        "@racks:rack[2-4]",
        "@racks:rack5",
        "@part:one",
        "@p:one",
        "@part:*",
        "@table:io",
        "@table:*",
        "@io&example[5-9]",
        "node1,@adm",
        "@racks:rack3&@racks:rack4!example157",
        "example[1-9]!@io",
        "@racks:empty,n1",
    ] {
        same(&["-f", list]);
        same(&["-c", list]);
    }
    // The flat file of old versions goes before the one in groups.d.
    fs::write(scratch.path("groups"), "adm: old1\n").unwrap();
    same(&["-f", "@adm"]);
}

/// Groups of hosts without rlaunch's own hands.
struct Files(std::path::PathBuf);

impl Ground for Files {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "CLUSTERSHELL_CFGDIR").then(|| self.0.to_str().unwrap().to_owned())
    }

    fn file(&self, path: &str) -> Result<Option<Vec<u8>>, String> {
        Ok(fs::read(path).ok())
    }

    fn directory(&self, path: &str) -> Result<Option<Vec<String>>, String> {
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        Ok(fs::read_dir(path).ok().map(|dir| dir.map(name).collect()))
    }

    fn run(&self, command: &str, directory: &str) -> Result<Vec<u8>, String> {
        Ok(census::output(Command::new("sh").args(["-c", command]).current_dir(directory).stdin(Stdio::null())).stdout)
    }
}

/// The contents of those files.
struct Around(Groups, Files);

impl Outside for Around {
    fn file(&mut self, _path: &str) -> Result<Vec<u8>, String> {
        Err("no files".into())
    }

    fn group(&mut self, name: &GroupName) -> Result<Definition, GroupFault> {
        self.0.definition(name, &self.1)
    }
}

/// A list of hosts and of groups above `from`: those below name these, so that there is no circle.
fn list(random: &mut Random, from: u64) -> String {
    let mut text = String::new();
    for term in 0..1 + random.below(4) {
        if term > 0 {
            text.push_str(random.pick::<&str>(&[",", ",", "!", "&"]));
        }
        let group = from + random.below(20);
        let (one, two) = (1 + random.below(12), 1 + random.below(12));
        match random.below(8) {
            0..3 if group < 11 => {
                // Sources by the group's number; without one it is that of the asking list, or the default.
                text.push_str(&format!("@{}:g{group}", ["a", "b", "c"][usize::try_from(group % 3).unwrap()]));
            }
            3 if from == 0 => text.push_str(random.pick::<&str>(&["@b:*", "@a:*", "@*", "@c:g[2,5]", "@g[0,3]"])),
            4 => text.push_str(&format!("n{one}")),
            _ => text.push_str(&format!("n[{}-{}]", one.min(two), one.max(two))),
        }
    }
    text
}

#[test]
fn random_groups_are_what_nodeset_makes_of_them() {
    let Some(python) = clustershell() else { return };
    let mut random = Random::new(42);
    let (mut empty, mut read) = (0, 0);
    for _ in 0..if crate::place::full() { 40 } else { 6 } {
        let scratch = Scratch::new();
        let files = Files(scratch.dir().to_owned());
        let (mut yaml, mut flat, mut table) = ("a:\n".to_owned(), String::new(), String::new());
        for group in 0..12 {
            let hosts = list(&mut random, group + 1);
            match group % 3 {
                0 => yaml.push_str(&format!("  g{group}: '{hosts}'\n")),
                1 => flat.push_str(&format!("g{group}: {hosts}\n")),
                _ => table.push_str(&format!("g{group}: {hosts}\n")),
            }
        }
        fs::write(scratch.path("x.yaml"), yaml).unwrap();
        fs::write(scratch.path("flat"), flat).unwrap();
        fs::write(scratch.path("table"), table).unwrap();
        let conf = "[Main]\ndefault=a\nautodir=$CFGDIR\n[b]\nmap: sed -n 's/^$GROUP: //p' flat\nlist: cut -d: -f1 flat\n\
                    [c]\nmapall: cat table\n";
        fs::write(scratch.path("groups.conf"), conf).unwrap();
        let lists: Vec<String> = (0..200).map(|_| list(&mut random, 0)).collect();
        let theirs = nodeset(&python, &lists, Some(scratch.dir()));
        let mut outside = Around(Groups::read(&files).unwrap(), files);
        for (list, line) in lists.iter().zip(&theirs) {
            let ours = match hostlist::lists([("-H", list.as_bytes())], &mut outside) {
                Ok(entries) => entries.into_iter().map(|entry| entry.host.name).collect(),
                Err(error) if error.fault == Fault::Nothing => BTreeSet::new(),
                Err(error) => panic!("{list}: nodeset says {line}, we {error}"),
            };
            let skip = if line.starts_with(' ') { 1 } else { 2 };
            let names: BTreeSet<String> = line.split_ascii_whitespace().skip(skip).map(str::to_owned).collect();
            assert_ne!(line, "-", "nodeset refuses {list}");
            assert_eq!(ours, names, "{list}");
            (empty, read) = (empty + usize::from(names.is_empty()), read + 1);
        }
    }
    assert!(empty * 3 < read, "most lists name somebody: {empty} of {read} do not");
}

#[test]
fn groups_stand_wherever_hosts_do() {
    let scratch = Scratch::new();
    site(&scratch);
    fs::write(scratch.path("groups.d/here.yaml"), "here:\n  me: localhost\n").unwrap();
    let file = scratch.path("hosts");
    fs::write(&file, "@oss slots=2 # both\n!example5\n").unwrap();
    let (config, file) = (scratch.dir(), file.to_str().unwrap());
    let map = "3 ranks on 2 hosts\n  example4  ranks 0,1\n  n1        rank 2\ncommand: true\nTCPStore: left to rank 0 (it does not run Python)\n";
    assert_eq!(prints(config, &["map", "-n", "3", "-H", &format!("^{file},n1"), "true"]), map);
    assert_eq!(
        prints(config, &["map", "--hostfile", file, "true"]),
        "2 ranks on 1 host\n  example4  ranks 0,1\ncommand: true\nTCPStore: left to rank 0 (it does not run Python)\n"
    );
    assert_eq!(
        prints(config, &["map", "-f", file, "-H", "@oss!example5", "true"]),
        "2 ranks on 1 host\n  example4  ranks 0,1\ncommand: true\nTCPStore: left to rank 0 (it does not run Python)\n"
    );
    assert_eq!(prints(config, &["hosts", "--hostfile", file, "@adm"]), "example[0,4]\n");
    assert_eq!(prints(config, &["hosts", "-x", "@oss", "-e", "@io"]), "example6\n");
    let by = |name: &str, value: &str| {
        let plan = Plan::rlaunch(["sh", "-c", "echo $RANK of $WORLD_SIZE"]).env("CLUSTERSHELL_CFGDIR", config);
        plan.env(name, value).start().code(0).sorted()
    };
    fs::write(scratch.path("here"), "@here:me slots=2\n").unwrap();
    assert_eq!(by("RLAUNCH_HOSTS", "@here:me,localhost:2"), ["0 of 2", "1 of 2"], "a group's host counts once");
    assert_eq!(by("RLAUNCH_HOSTFILE", scratch.path("here").to_str().unwrap()), ["0 of 2", "1 of 2"]);
    let out = said(config, &["doctor", "--connect-timeout", "20s", "-H", "@none.rlaunch.invalid"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("says nothing of it"), "{out:?}");
    fs::write(scratch.path("groups.d/here.yaml"), "here:\n  not: a.rlaunch.invalid\n").unwrap();
    let out = said(config, &["doctor", "--connect-timeout", "20s", "-H", "@here:not"]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("a.rlaunch.invalid"), "{out:?}");
}

#[test]
fn group_errors_are_reported() {
    let scratch = Scratch::new();
    site(&scratch);
    fs::write(
        scratch.path("groups.conf.d/bad.conf"),
        "[bad]\nmap: echo cannot reach the database >&2; exit 3\n[loud]\nmap: yes\n[dead]\nmap: kill -9 $$$$\n",
    )
    .unwrap();
    fs::write(scratch.path("groups.d/c.yaml"), "circle:\n  a: n1,@b\n  b: '@circle:a'\n  c: 'n1,n[2'\n  d: 'n1;x'\n")
        .unwrap();
    let local = "the source 'local' of CFG/groups.conf";
    for (list, expected) in [
        ("n1,@nope", format!("error: -H, column 4: @nope: {local} says nothing of it: it is unknown there, or has no hosts now (`[ -f CFG/groups ]")),
        ("@racks:rack9", "error: -H, column 1: @racks:rack9: the source 'racks' of CFG/groups.d/cluster.yaml has no group 'rack9'\n     | @racks:rack9\n     | ^\n  try     a group that there is: @racks:empty, @racks:old, @racks:rack2, @racks:rack3, @racks:rack4, @racks:rack5\n".into()),
        ("@nope:x", "error: -H, column 1: @nope:x: CFG/groups.conf has no source of groups called 'nope'\n     | @nope:x\n     | ^\n  try     a source that there is: bad, circle, dead, local, loud, p, part, racks, ...\n".into()),
        ("@oss:4", "error: -H, column 1: @oss:4: CFG/groups.conf has no source of groups called 'oss'\n     | @oss:4\n     | ^\n  try     --ppn 4, or the line '@oss slots=4' in a hostfile\n".into()),
        ("@bad:x", "error: -H, column 1: @bad:x: the source 'bad' of CFG/groups.conf.d/bad.conf: `echo cannot reach the database >&2; exit 3` exited with 3: cannot reach the database\n".into()),
        ("@dead:x", "error: -H, column 1: @dead:x: the source 'dead' of CFG/groups.conf.d/bad.conf: `kill -9 $$` was ended by signal 9\n".into()),
        ("@loud:x", "error: -H, column 1: @loud:x: the source 'loud' of CFG/groups.conf.d/bad.conf: `yes` printed more than 16 MiB\n".into()),
        ("@circle:a", "error: -H, column 1: in @circle:a of CFG/groups.d/c.yaml, column 4: in @circle:b of CFG/groups.d/c.yaml, column 1: @circle:a is being looked up already: a group cannot be a part of itself\n     | @circle:a\n     | ^\n".into()),
        ("@circle:c", "error: -H, column 1: in @circle:c of CFG/groups.d/c.yaml, column 5: this bracket is not closed\n     | @circle:c\n     | ^\n     | n1,n[2\n     |     ^\n".into()),
        ("@circle:d", "error: -H, column 1: in @circle:d of CFG/groups.d/c.yaml, column 3: ';' cannot be in a host name\n".into()),
        ("@$(reboot)", "error: -H, column 2: '$' cannot be in the name of a group\n".into()),
    ] {
        let text = refused(scratch.dir(), list);
        assert!(text.starts_with(&expected), "{list}: {text}");
    }
    fs::write(scratch.path("groups.d/c.yaml"), "circle:\n  a: {n1: n2}\n").unwrap();
    assert!(
        refused(scratch.dir(), "@adm")
            .starts_with("error: -H, column 1: @adm: CFG/groups.d/c.yaml:2: the group 'a' takes hosts")
    );
    let nowhere = refused(&scratch.path("gone"), "@adm");
    assert!(
        nowhere.starts_with("error: -H, column 1: @adm: no groups are set up here: there is no CFG/groups.conf, "),
        "{nowhere}"
    );
}

/// rlaunch that asks a command which never ends by itself, and has started others.
fn endless(words: &str, mercy: Mercy) -> Case {
    let plan = Plan::shell(&format!("cat \"$DIR/held\" & CLUSTERSHELL_CFGDIR=$DIR exec \"$RL\" {words}")).mercy(mercy);
    plan.scratch().fifo("held");
    let conf = "[e]\nmap: exec 5>\"$DIR/held\"; (sleep 1000 | sleep 1000) & echo here >&5; sleep 1000\n";
    fs::write(plan.scratch().path("groups.conf"), conf).unwrap();
    let case = plan.start();
    case.says_on_stdout("here", 1);
    case
}

#[test]
fn an_interrupt_ends_what_was_asked_with_all_that_it_started() {
    for (words, signal) in [
        ("hosts @x", Signal::SIGTERM),
        ("map -H @x true", Signal::SIGINT),
        ("-H @x true", Signal::SIGHUP),
        ("doctor -H @x", Signal::SIGTERM),
    ] {
        let case = endless(words, Mercy::All);
        case.signal(signal);
        case.finish(Exit::Signal(signal));
    }
}

#[test]
fn a_killed_launcher_takes_what_was_asked_along() {
    for words in ["hosts @x", "-H @x true"] {
        let case = endless(words, Mercy::LostHosts);
        case.signal(Signal::SIGKILL);
        case.finish(Exit::Signal(Signal::SIGKILL));
    }
}
