//! Groups in lists and hostfiles.

use super::*;
use crate::hostlist::groups::{Commands, hosts};
use alloc::borrow::ToOwned as _;
use alloc::string::String;
use rlaunch_base::error::Hint as _;

/// Three files, and groups of the sources `s` (the default) and `t`.
pub(super) struct Around;

impl Outside for Around {
    fn file(&mut self, path: &str) -> Result<Vec<u8>, String> {
        match path {
            "more" => Ok(b"x1 slots=2\nx2\n".to_vec()),
            "grouped" => Ok(b"@s:ab slots=2\n".to_vec()),
            "loop" => Ok(b"^loop".to_vec()),
            _ => Err("no such file".into()),
        }
    }

    fn group(&mut self, name: &GroupName) -> Result<String, GroupFault> {
        let hosts = match (name.source.as_deref().unwrap_or("s"), name.group.as_str()) {
            ("s", "ab") => "a b a",
            ("s", "bc") => "b c",
            ("s", "r1") => "r1",
            ("s", "r2") => "r2",
            ("s", "*") => "a b c d",
            ("t", "ab") => "tab",
            ("s", "wide") => return Ok((0..40_000).map(|n| format!("w{n} ")).collect()),
            (_, "none") => "",
            _ => return Err(GroupFault::NoNodeset),
        };
        Ok(hosts.into())
    }
}

#[test]
fn hosts_of_groups_in_lists() {
    all_mean(
        of_list,
        &[
            ("@ab", "a:1 b:1"),
            ("@s:ab,@t:ab", "a:1 b:1 tab:1"),
            ("@:bc", "b:1 c:1"),
            ("@ab,@bc", "a:1 b:1 c:1"),
            ("@ab,b", "a:1 b:1"),
            ("b,@ab", "b:1 a:1"),
            ("@ab,b,b:2", "a:1 b:3"),
            ("b:4,@ab", "b:4 a:1"),
            ("@r[1-2]", "r1:1 r2:1"),
            ("@*", "a:1 b:1 c:1 d:1"),
            ("@s:*!@bc", "a:1 d:1"),
            ("@ab&@bc,e", "b:1 e:1"),
            ("e!@none", "e:1"),
            ("e,^grouped,@bc", "e:1 a:2 b:2 c:1"),
        ],
    );
}

#[test]
fn hosts_of_groups_in_files() {
    all_mean(
        of_file,
        &[
            ("@ab slots=4\n@bc slots=4 # twice b", "a:4 b:4 c:4"),
            ("b\n@ab slots=4", "b:4 a:4"),
            ("e\n@ab&b slots=2 max-slots=8", "e:1 b:2/8"),
            ("@ab\n!@bc", "a:1"),
        ],
    );
    let (text, expected) = (
        "b slots=2\n@ab slots=4",
        "hosts:2:1: b has slots=4 here, but slots=2 at hosts:1:1 (one line for each host, or HOST:N on both to add them up)",
    );
    assert_eq!(fault(&of_file(text).unwrap_err()), expected);
}

/// Few hosts are left of so many names that it took a quarter of a minute to find that out.
#[test]
fn names_over_names_of_which_few_are_left() {
    all_are_refused(
        of_list,
        &[(
            &["w[1-60000]", &"!w[1-2000]".repeat(100)].concat(),
            "-H, column 362: more than 262144 names to go through",
        )],
    );
}

#[test]
fn faults_of_groups() {
    all_are_refused(
        of_list,
        &[
            (
                "@gpu",
                "-H, column 1: @gpu: nodeset, which looks up groups of hosts, is not installed here (ClusterShell (pip install ClusterShell), or the names of the hosts)",
            ),
            (
                "a,!@t:[1-2]",
                "-H, column 4: @t:1: nodeset, which looks up groups of hosts, is not installed here (ClusterShell (pip install ClusterShell), or the names of the hosts)",
            ),
            ("a,@", "-H, column 4: a host name is missing here"),
            ("@s:", "-H, column 4: a host name is missing here"),
            ("@@s", "-H, column 1: @@s lists names of groups, not of hosts (@s:*)"),
            ("@a;reboot", "-H, column 3: ';' cannot be in the name of a group"),
            ("@s:$x", "-H, column 4: '$' cannot be in the name of a group"),
            ("@ab*", "-H, column 4: '*' cannot be in the name of a group"),
            ("@-x", "-H, column 2: a host or user name cannot begin with '-'"),
            ("@s:-x", "-H, column 4: a host or user name cannot begin with '-'"),
            ("@r[1-", "-H, column 3: this bracket is not closed"),
            ("@r]", "-H, column 3: this bracket was not opened"),
            (
                "x,@none",
                "-H, column 3: @none: no such group, or it has no hosts now (`nodeset -e '@none'` printed nothing) (nodeset -L   lists the groups)",
            ),
            ("@wide,v[1-30000]", "-H, column 7: more than 65536 hosts"),
            ("v[1-30000],@wide", "-H, column 12: more than 65536 hosts"),
            (
                "n[1-4] & ^more",
                "-H: there is no host in it (HOST,...: '!' takes hosts out of those before it, as in node[01-08]!node05)",
            ),
        ],
    );
}

/// A machine whose commands print this.
struct Prints(Result<&'static str, &'static str>);

impl Commands for Prints {
    fn run(&self, command: &str, _directory: &str) -> Result<Vec<u8>, String> {
        assert_eq!(command, "nodeset -e '@s:4'");
        self.0.map(|text| text.as_bytes().to_vec()).map_err(str::to_owned)
    }
}

#[test]
fn hosts_of_a_group_are_what_nodeset_prints() {
    let name = GroupName { source: Some("s".into()), group: "4".into() };
    let said = |commands: Prints| hosts(&name, &commands).map_err(|fault| (fault.to_string(), fault.hint().unwrap()));
    assert_eq!(said(Prints(Ok("n1  n2\n"))), Ok("n1 n2".into()));
    assert_eq!(said(Prints(Ok("\n"))), Ok(String::new()));
    let hint = "--ppn 4, or the line '@GROUP slots=4' in a hostfile";
    for (commands, why) in [
        (Prints(Err("exited with 1: no such source")), "exited with 1: no such source"),
        (Prints(Ok("n1 -V")), "prints '-V', which is no host name"),
        (Prints(Ok("n1 n2;x")), "prints 'n2;x', which is no host name"),
    ] {
        assert_eq!(said(commands), Err((format!("`nodeset -e '@s:4'` {why}"), hint.into())));
    }
    let absent = said(Prints(Err("exited with 127: sh: 1: nodeset: not found"))).unwrap_err();
    assert!(absent.0.contains("is not installed here"), "{absent:?}");
}
