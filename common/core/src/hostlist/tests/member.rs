//! Groups in lists and hostfiles.

use super::*;

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

    fn group(&mut self, name: &GroupName) -> Result<Definition, GroupFault> {
        let source = name.source.clone().unwrap_or_else(|| "s".into());
        let hosts = match (source.as_str(), name.group.as_str()) {
            ("s", "ab") => "a,b",
            ("s", "bc") => "b c",
            ("s", "r1" | "r2") => "r[1-2]",
            ("s", "r3") => "r3:4",
            ("s", "*") => "@ab,@bc d",
            ("s", "both") => "@ab&@bc",
            ("s", "not") => "@*!@bc!@t:x",
            ("s", "mixed") => "x,@t:in",
            ("t", "in") => "@ab,y",
            ("t", "ab") => "tab",
            ("t", "x") => "x",
            ("s", "self") => "n1,@other",
            ("s", "other") => "@s:self",
            ("s", "circle") => "@circle",
            ("s", "wrong") => "n1,n[",
            ("s", "file") => "^more",
            ("s", "wide") => "w[1-40000]",
            ("s", few) if few.starts_with("few") => "n1,u[1-9999]!u[1-9999]",
            ("s", "none" | "now") => "",
            ("s", many) if many.starts_with("deep") => {
                let depth: u32 = many.trim_start_matches("deep").parse().unwrap();
                // Twice each, so that a repeated look-up of every one would take 2^40 steps.
                let hosts = if depth == 0 { "z".into() } else { format!("@deep{0},@deep{0}", depth - 1) };
                return Ok(Definition { source, hosts, place: name.to_string(), nothing: None });
            }
            (_, group) => {
                return Err(GroupFault::Unknown { group: group.into(), place: source, known: vec!["@s:ab".into()] });
            }
        };
        let maybe = GroupFault::Nothing { place: source.clone(), command: "sinfo".into(), list: None };
        let nothing = (name.group == "now").then_some(maybe);
        Ok(Definition { source, hosts: hosts.into(), place: name.to_string(), nothing })
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
            ("@r[1-3]", "r1:1 r2:1 r3:4"),
            ("@*", "a:1 b:1 c:1 d:1"),
            ("@s:*!@bc", "a:1 d:1"),
            ("@both", "b:1"),
            ("@ab&@bc,e", "b:1 e:1"),
            ("x,@not", "x:1 a:1 d:1"),
            ("@mixed", "x:1 tab:1 y:1"),
            ("b,e!@now&@*", "b:1"),
            ("@none,e", "e:1"),
            ("e,^grouped,@bc", "e:1 a:2 b:2 c:1"),
            ("@deep30", "z:1"),
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
    assert_eq!(shown(&of_list("@few[1-10]").unwrap()), "n1:1");
    all_are_refused(
        of_list,
        &[
            ("a,@few[1-100]", "-H, column 3: in @few13, column 14: more than 262144 names to go through"),
            (
                &["w[1-60000]", &"!w[1-2000]".repeat(100)].concat(),
                "-H, column 362: more than 262144 names to go through",
            ),
        ],
    );
}

#[test]
fn faults_of_groups() {
    all_are_refused(
        of_list,
        &[
            ("@gpu", "-H, column 1: @gpu: s has no group 'gpu' (a group that there is: @s:ab)"),
            ("a,!@t:[1-2]", "-H, column 4: @t:1: t has no group '1' (a group that there is: @s:ab)"),
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
                "x,@now",
                "-H, column 3: @now: s says nothing of it: it is unknown there, or has no hosts now (`sinfo` printed nothing)",
            ),
            (
                "@none",
                "-H: there is no host in it (HOST,...: '!' takes hosts out of those before it, as in node[01-08]!node05)",
            ),
            (
                "@self",
                "-H, column 1: in @self, column 4: in @s:other, column 1: @s:self is being looked up already: a group cannot be a part of itself",
            ),
            ("m,@s:wrong", "-H, column 3: in @s:wrong, column 5: this bracket is not closed"),
            ("@file", "-H, column 1: in @file, column 1: '^' cannot be in a host name"),
            ("@wide,v[1-30000]", "-H, column 7: more than 65536 hosts"),
            ("v[1-30000],@wide", "-H, column 12: more than 65536 hosts"),
            (
                "n[1-4] & ^more",
                "-H: there is no host in it (HOST,...: '!' takes hosts out of those before it, as in node[01-08]!node05)",
            ),
        ],
    );
    let deep = of_list("@deep40").unwrap_err();
    assert!(deep.summary().ends_with("groups name each other too deep"), "{deep}");
    assert_eq!(deep.to_string().lines().count(), 5, "the first and the last place are shown: {deep}");
    assert_eq!(
        whole(of_list("@circle")),
        "-H, column 1: in @circle, column 1: @s:circle is being looked up already: a group cannot be a part of itself\n     \
         | @circle\n     | ^",
        "where it is asked for as it asks for itself its line is shown once"
    );
    assert_eq!(
        whole(of_list("m,@s:wrong")),
        "-H, column 3: in @s:wrong, column 5: this bracket is not closed\n     | m,@s:wrong\n     |   ^\n     | n1,n[\n     |     ^"
    );
}
