//! ClusterShell's groups in lists of hosts: against nodeset itself, wherever lists are taken, and what is wrong with them.

use crate::case::Case;
use crate::census::{self, Mercy};
use crate::place::{Scratch, rlaunch};
use crate::placement::clustershell;
use crate::plan::Plan;
use crate::watch::Exit;
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The `[local]` that ClusterShell ships, for flat files of old and new, and commands of every kind.
const CONF: &str = r"
# ClusterShell
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

/// ClusterShell's nodeset, if there is one.
fn nodeset() -> Option<PathBuf> {
    clustershell().map(|python| Path::new(&python).with_file_name("nodeset"))
}

/// $PATH with it.
fn path(nodeset: &Path) -> OsString {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let dirs = nodeset.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&own));
    std::env::join_paths(dirs).unwrap()
}

/// rlaunch with these words, where groups are set up in a directory.
fn said(nodeset: &Path, config: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(rlaunch());
    command.args(words).env("CLUSTERSHELL_CFGDIR", config).env("HOME", config).env("PATH", path(nodeset));
    census::output(command.env_remove("XDG_CONFIG_HOME").stdin(Stdio::null()))
}

fn prints(nodeset: &Path, config: &Path, words: &[&str]) -> String {
    let out = said(nodeset, config, words);
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn the_command_knows_groups_as_nodeset_does() {
    let Some(tool) = nodeset() else { return };
    let scratch = Scratch::new();
    site(&scratch);
    let same = |words: &[&str]| {
        let mut nodeset = Command::new(&tool);
        nodeset.args(words).env("CLUSTERSHELL_CFGDIR", scratch.dir()).env("HOME", scratch.dir());
        let expected = census::output(nodeset.env_remove("XDG_CONFIG_HOME").stdin(Stdio::null()));
        assert!(expected.status.success(), "{words:?}: {}", String::from_utf8_lossy(&expected.stderr));
        let ours = prints(&tool, scratch.dir(), &[&["hosts"], words].concat());
        assert_eq!(ours, String::from_utf8_lossy(&expected.stdout), "{words:?}");
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
    ] {
        same(&["-f", list]);
        same(&["-c", list]);
    }
}

#[test]
fn groups_stand_wherever_hosts_do() {
    let Some(tool) = nodeset() else { return };
    let scratch = Scratch::new();
    site(&scratch);
    fs::write(scratch.path("groups.d/here.yaml"), "here:\n  me: localhost\n").unwrap();
    let file = scratch.path("hosts");
    fs::write(&file, "@oss slots=2 # both\n!example5\n").unwrap();
    let (config, file) = (scratch.dir(), file.to_str().unwrap());
    let map = "3 ranks on 2 hosts\n  example4  ranks 0,1\n  n1        rank 2\ncommand: true\nTCPStore: left to rank 0 (it does not run Python)\n";
    assert_eq!(prints(&tool, config, &["map", "-n", "3", "-H", &format!("^{file},n1"), "true"]), map);
    assert_eq!(
        prints(&tool, config, &["map", "--hostfile", file, "true"]),
        "2 ranks on 1 host\n  example4  ranks 0,1\ncommand: true\nTCPStore: left to rank 0 (it does not run Python)\n"
    );
    assert_eq!(
        prints(&tool, config, &["map", "-f", file, "-H", "@oss!example5", "true"]),
        "2 ranks on 1 host\n  example4  ranks 0,1\ncommand: true\nTCPStore: left to rank 0 (it does not run Python)\n"
    );
    assert_eq!(prints(&tool, config, &["hosts", "--hostfile", file, "@adm"]), "example[0,4]\n");
    assert_eq!(prints(&tool, config, &["hosts", "-x", "@oss", "-e", "@io"]), "example6\n");
    let by = |name: &str, value: &str| {
        let plan = Plan::rlaunch(["sh", "-c", "echo $RANK of $WORLD_SIZE"]).env("CLUSTERSHELL_CFGDIR", config);
        plan.env(name, value).env("PATH", path(&tool)).start().code(0).sorted()
    };
    fs::write(scratch.path("here"), "@here:me slots=2\n").unwrap();
    assert_eq!(by("RLAUNCH_HOSTS", "@here:me,localhost:2"), ["0 of 2", "1 of 2"], "a group's host counts once");
    assert_eq!(by("RLAUNCH_HOSTFILE", scratch.path("here").to_str().unwrap()), ["0 of 2", "1 of 2"]);
    let out = said(&tool, config, &["doctor", "--connect-timeout", "20s", "-H", "@none.rlaunch.invalid"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("no such group, or it has no hosts now"), "{out:?}");
    fs::write(scratch.path("groups.d/here.yaml"), "here:\n  not: a.rlaunch.invalid\n").unwrap();
    let out = said(&tool, config, &["doctor", "--connect-timeout", "20s", "-H", "@here:not"]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("a.rlaunch.invalid"), "{out:?}");
}

#[test]
fn group_errors_are_reported() {
    let Some(tool) = nodeset() else { return };
    let scratch = Scratch::new();
    site(&scratch);
    fs::write(
        scratch.path("groups.conf.d/bad.conf"),
        "[bad]\nmap: echo cannot reach the database >&2; exit 3\n[loud]\nmap: yes\n",
    )
    .unwrap();
    let refused = |list: &str| {
        let out = said(&tool, scratch.dir(), &["map", "-H", list, "true"]);
        assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0), "{list}");
        String::from_utf8(out.stderr).unwrap()
    };
    for (list, place, expected) in [
        (
            "n1,@nope",
            "error: -H, column 4: @nope: ",
            "no such group, or it has no hosts now (`nodeset -e '@nope'` printed nothing)",
        ),
        ("@nope:x", "error: -H, column 1: @nope:x: `nodeset -e '@nope:x'` exited with ", "nope"),
        (
            "@oss:4",
            "error: -H, column 1: @oss:4: `nodeset -e '@oss:4'` exited with ",
            "--ppn 4, or the line '@GROUP slots=4' in a hostfile",
        ),
        ("@$(reboot)", "error: -H, column 2: '$' cannot be in the name of a group\n", ""),
    ] {
        let text = refused(list);
        assert!(text.starts_with(place) && text.contains(expected), "{list}: {text}");
    }
    let mut command = Command::new(rlaunch());
    let out = census::output(command.args(["map", "-H", "@adm", "true"]).env("PATH", "/nowhere").stdin(Stdio::null()));
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(text.contains("nodeset, which looks up groups of hosts, is not installed here"), "{text}");
}

/// rlaunch that asks a command which never ends by itself, and has started others.
fn endless(nodeset: &Path, words: &str, mercy: Mercy) -> Case {
    let plan = Plan::shell(&format!("cat \"$DIR/held\" & CLUSTERSHELL_CFGDIR=$DIR exec \"$RL\" {words}"));
    let plan = plan.mercy(mercy).env("PATH", path(nodeset));
    plan.scratch().fifo("held");
    let conf =
        "[Main]\ndefault: e\n[e]\nmap: exec 5>\"$DIR/held\"; (sleep 1000 | sleep 1000) & echo here >&5; sleep 1000\n";
    fs::write(plan.scratch().path("groups.conf"), conf).unwrap();
    let case = plan.start();
    case.says_on_stdout("here", 1);
    case
}

#[test]
fn interrupt_ends_a_group_command_with_its_children() {
    let Some(tool) = nodeset() else { return };
    for (words, signal) in [
        ("hosts @x", Signal::SIGTERM),
        ("map -H @x true", Signal::SIGINT),
        ("-H @x true", Signal::SIGHUP),
        ("doctor -H @x", Signal::SIGTERM),
    ] {
        let case = endless(&tool, words, Mercy::All);
        case.signal(signal);
        case.finish(Exit::Signal(signal));
    }
}

#[test]
fn killed_launcher_takes_a_group_command_along() {
    let Some(tool) = nodeset() else { return };
    for words in ["hosts @x", "-H @x true"] {
        let case = endless(&tool, words, Mercy::LostHosts);
        case.signal(Signal::SIGKILL);
        case.finish(Exit::Signal(Signal::SIGKILL));
    }
}
