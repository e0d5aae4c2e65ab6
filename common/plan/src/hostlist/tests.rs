//! The meaning of the grammars, and the place of each fault.

mod member;

use super::*;
use crate::bootstrap::Target;
use alloc::string::ToString as _;
use alloc::{format, vec};
use member::Around;
use proptest::prelude::*;
use rlaunch_base::error::Hint as _;

fn of_list(text: &str) -> Result<Vec<Entry>, HostlistError> {
    lists([("-H", text.as_bytes())], &mut Around)
}

fn of_file(text: &str) -> Result<Vec<Entry>, HostlistError> {
    files([("hosts", text.as_bytes())], &mut Around)
}

/// `user@host:slots/max` of each entry; the port after `p`.
fn shown(entries: &[Entry]) -> String {
    let one = |e: &Entry| {
        let user = e.host.user.as_ref().map_or_else(String::new, |user| format!("{user}@"));
        let port = e.host.port.map_or_else(String::new, |port| format!("p{port}"));
        let max = e.max_slots.map_or_else(String::new, |max| format!("/{max}"));
        format!("{user}{}{port}:{}{max}", e.host.name, e.slots())
    };
    entries.iter().map(one).collect::<Vec<_>>().join(" ")
}

type Read = fn(&str) -> Result<Vec<Entry>, HostlistError>;

/// Each of these names these hosts.
fn all_mean(read: Read, cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(shown(&read(text).unwrap_or_else(|e| panic!("{text}: {e}"))), *expected, "{text}");
    }
}

/// Each of these is refused in these words.
fn all_are_refused(read: Read, cases: &[(&str, impl AsRef<str>)]) {
    for (text, expected) in cases {
        let error = read(text).map(|e| shown(&e)).expect_err(text);
        assert_eq!(fault(&error), expected.as_ref(), "{text}");
    }
}

fn names(text: &str) -> String {
    of_list(text)
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .iter()
        .map(|e| e.host.name.clone())
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn lists_of_all_kinds() {
    all_mean(
        of_list,
        &[
            ("a", "a:1"),
            ("a,b", "a:1 b:1"),
            ("a:4,b:2", "a:4 b:2"),
            ("a,b,a", "a:2 b:1"),
            ("a:2,a:3,a", "a:6"),
            ("bob@a:2", "bob@a:2"),
            ("bob@n[1-2],n1", "bob@n1:1 bob@n2:1 n1:1"),
            ("[fe80::1]:4,[::1]", "fe80::1:4 ::1:1"),
            ("fe80::1%eth0,::1", "fe80::1%eth0:1 ::1:1"),
            ("10.0.0.[1-2]:8", "10.0.0.1:8 10.0.0.2:8"),
            (" a b,c\td ", "a:1 b:1 c:1 d:1"),
            ("a , b", "a:1 b:1"),
            ("n[1-3]!n2", "n1:1 n3:1"),
            ("n[1-3],!n2,n2", "n1:1 n3:1 n2:1"),
            ("n[1-9]!n[2-8]!n9,m", "n1:1 m:1"),
            ("a,^more", "a:1 x1:2 x2:1"),
            ("x1,y,!^more", "y:1"),
            ("n[1-4]&n[3-9]", "n3:1 n4:1"),
            ("n[1-4]&n[3-9]!n3,m", "n4:1 m:1"),
        ],
    );
}

#[test]
fn brackets_of_all_kinds() {
    for (text, expected) in [
        ("node[01-04,07]", "node01 node02 node03 node04 node07"),
        ("n[1-3]c[0-1]", "n1c0 n1c1 n2c0 n2c1 n3c0 n3c1"),
        ("a[1-9/2]", "a1 a3 a5 a7 a9"),
        ("a[0-10/5]", "a0 a5 a10"),
        ("n[8-11]", "n8 n9 n10 n11"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[000]", "n000"),
        ("n[3,1-2,1]", "n3 n1 n2"),
        ("n[ 1 - 2 , 4 ]-ib.cluster", "n1-ib.cluster n2-ib.cluster n4-ib.cluster"),
        ("n[1-2]5[0-1]", "n150 n151 n250 n251"),
        ("n[100000000000000000]", "n100000000000000000"),
    ] {
        assert_eq!(names(text), expected, "{text}");
    }
}

#[test]
fn hostfiles_of_all_launchers() {
    all_mean(
        of_file,
        &[
            ("# ours\n\nnode01\n node02 # two\nnode01\n", "node01:2 node02:1"),
            ("a slots=4 max_slots=8\nb max-slots=2", "a:4/8 b:1/2"),
            ("a slots = 4\nb slots= 2 port =2222\nc SLOTS=1", "a:4 bp2222:2 c:1"),
            ("a:4\nb:2\na:1\r\n", "a:5 b:2"),
            ("a slots=2\na slots=2", "a:4"),
            ("a slots=2\na:3\na", "a:6"),
            ("n[1-2],m slots=3", "n1:3 n2:3 m:3"),
            ("n[1-3]!n2 slots=2", "n1:2 n3:2"),
            ("n1\nn[1-3]!n1 slots=2", "n2:2 n3:2"),
            ("n[1-4]\n!n[2-3]", "n1:1 n4:1"),
            ("bob@a port=22 slots=2\nb user=eve", "bob@ap22:2 eve@b:1"),
            ("\u{feff}a\nb", "a:1 b:1"),
            ("[fe80::1]:4\n[fe80::2] slots=2 port=5", "fe80::1:4 fe80::2p5:2"),
            ("worker-0 slots=8\nworker-1 slots=8", "worker-0:8 worker-1:8"),
            ("^more max_slots=4\na", "x1:2/4 x2:1/4 a:1"),
            ("n[1, 2] slots=2", "n1:2 n2:2"),
            ("a port=1\na port=2", "ap1:1 ap2:1"),
        ],
    );
}

/// The place and the fault, then the hint.
fn fault(error: &HostlistError) -> String {
    let hint = error.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
    format!("{}{hint}", error.summary())
}

#[test]
fn faults_of_lists() {
    all_are_refused(
        of_list,
        &[
            ("", "-H, column 1: a host name is missing here"),
            ("a,,b", "-H, column 3: a host name is missing here"),
            ("a,", "-H, column 3: a host name is missing here"),
            ("a!", "-H, column 3: a host name is missing here"),
            ("a!!b", "-H, column 3: a host name is missing here"),
            (
                "!a",
                "-H: there is no host in it (HOST,...: '!' takes hosts out of those before it, as in node[01-08]!node05)",
            ),
            ("a,b[1-2", "-H, column 4: this bracket is not closed"),
            ("a,[fe80::1", "-H, column 3: this bracket is not closed"),
            ("a]b[1:x", "-H, column 4: this bracket is not closed"),
            ("b[1-[2]]", "-H, column 2: this bracket is not closed"),
            ("a,b1]", "-H, column 5: this bracket was not opened"),
            ("a[]", "-H, column 3: between brackets stand numbers and ranges like 01-04 or 1-9/2, got ''"),
            ("a[1,x]", "-H, column 5: between brackets stand numbers and ranges like 01-04 or 1-9/2, got 'x'"),
            ("a[1-2/0]", "-H, column 3: between brackets stand numbers and ranges like 01-04 or 1-9/2, got '1-2/0'"),
            ("a[1/2]", "-H, column 3: between brackets stand numbers and ranges like 01-04 or 1-9/2, got '1/2'"),
            ("a[-1]", "-H, column 3: between brackets stand numbers and ranges like 01-04 or 1-9/2, got '-1'"),
            ("a[1-2-3]", "-H, column 3: between brackets stand numbers and ranges like 01-04 or 1-9/2, got '1-2-3'"),
            ("a[9-3]", "-H, column 3: the range 9-3 goes backwards"),
            ("a[09-100]", "-H, column 3: the ends of the range 09-100 do not have the same width (009-100)"),
            ("a[1-100000]", "-H, column 3: more than 65536 hosts"),
            (
                "a[1-18446744073709551615]",
                "-H, column 3: between brackets stand numbers and ranges like 01-04 or 1-9/2, got '1-18446744073709551615'",
            ),
            ("a[1-999]b[1-999]", "-H, column 10: more than 65536 hosts"),
            ("a[1-40000],b[1-40000]", "-H, column 12: more than 65536 hosts"),
            ("a:x", "-H, column 3: HOST:N takes a whole number of slots above 0, got 'x'"),
            ("a:0", "-H, column 3: HOST:N takes a whole number of slots above 0, got '0'"),
            ("a:", "-H, column 3: HOST:N takes a whole number of slots above 0, got ''"),
            ("a:+1", "-H, column 3: HOST:N takes a whole number of slots above 0, got '+1'"),
            (":4", "-H, column 1: a host name is missing here"),
            ("-oProxyCommand=x", "-H, column 1: a host or user name cannot begin with '-'"),
            ("-l@a", "-H, column 1: a host or user name cannot begin with '-'"),
            ("a@-b", "-H, column 3: a host or user name cannot begin with '-'"),
            ("&a", "-H, column 1: a host name is missing here"),
            ("a&", "-H, column 3: a host name is missing here"),
            ("a,b&b:2", "-H, column 5: a host that is taken out has no slots"),
            ("b@", "-H, column 3: a host name is missing here"),
            ("a;reboot", "-H, column 2: ';' cannot be in a host name"),
            (
                "./hosts",
                "-H, column 2: '/' cannot be in a host name (--hostfile FILE, for hosts that are listed in a file)",
            ),
            ("h\u{f6}st", "-H, column 2: '\u{f6}' cannot be in a host name"),
            ("1:2:3", "-H, column 1: '1:2:3' is no IPv6 address ([ADDRESS] or [ADDRESS]:SLOTS)"),
            ("[fe80::g]", "-H, column 1: 'fe80::g' is no IPv6 address ([ADDRESS] or [ADDRESS]:SLOTS)"),
            ("[fe80::1%;]", "-H, column 1: 'fe80::1%;' is no IPv6 address ([ADDRESS] or [ADDRESS]:SLOTS)"),
            ("a,!a:2", "-H, column 4: a host that is taken out has no slots"),
            ("a,^gone", "-H, column 3: cannot read gone: no such file"),
            ("^", "-H, column 2: a host name is missing here"),
            ("^loop", "loop:1:1: loop is being read already: a hostfile cannot name itself"),
        ],
    );
}

#[test]
fn faults_of_files() {
    let words = "slots=N, max_slots=N, port=N, user=NAME, and for TPUs slice=NAME id=N devices=N, may follow a host";
    all_are_refused(
        of_file,
        &[
        ("", "hosts: there is no host in it (one host on each line, for example: node01 slots=4)".to_string()),
        ("# a\n\n", "hosts: there is no host in it (one host on each line, for example: node01 slots=4)".into()),
        ("a\nb slots=four", "hosts:2:9: slots takes a whole number above 0, got 'four'".into()),
        ("a slots=", "hosts:1:9: slots takes a whole number above 0, got ''".into()),
        ("a max_slots=0", "hosts:1:13: max_slots takes a whole number above 0, got '0'".into()),
        ("a port=65536", "hosts:1:8: port takes a number from 1 to 65535, got '65536'".into()),
        ("a 4", format!("hosts:1:3: '4' means nothing here: {words} (slots=4)")),
        ("a slot=2", format!("hosts:1:3: 'slot=2' means nothing here: {words} (slots=2)")),
        ("a Max-slot=2", format!("hosts:1:3: 'Max-slot=2' means nothing here: {words} (max_slots=2)")),
        ("a devise", format!("hosts:1:3: 'devise' means nothing here: {words} (devices=N)")),
        ("a colour=red", format!("hosts:1:3: 'colour=red' means nothing here: {words}")),
        ("a slots=1 slots=2", "hosts:1:11: slots is there twice".into()),
        ("a:2 slots=2", "hosts:1:1: the number of slots is there twice".into()),
        ("a slice=x", "hosts:1:3: slice= needs id= beside it (node01 slice=a id=0 devices=4)".into()),
        ("a id=1", "hosts:1:3: id= needs slice= beside it (node01 slice=a id=0 devices=4)".into()),
        ("a slice= id=1", "hosts:1:9: the name of the slice is missing here".into()),
        ("a slice=x/y id=1", "hosts:1:10: '/' cannot be in the name of a slice".into()),
        ("a devices=0", "hosts:1:11: devices takes the number of TPU chips of the host, from 1 to 64, got '0'".into()),
        ("a slice=x id=-1", "hosts:1:14: id takes the number of the host in its slice, from 0 on, got '-1'".into()),
        ("bob@a user=eve", "hosts:1:1: the user is there twice".into()),
        ("a user=", "hosts:1:8: a user name is missing here".into()),
        ("a user=-x", "hosts:1:8: a host or user name cannot begin with '-'".into()),
        (
            "a slots=2\nb\na slots=4",
            "hosts:3:1: a has slots=4 here, but slots=2 at hosts:1:1 (one line for each host, or HOST:N on both to add them up)".into(),
        ),
        (
            "a max_slots=2\na max_slots=4",
            "hosts:2:1: a has max_slots=4 here, but max_slots=2 at hosts:1:1 (one line for each host, or HOST:N on both to add them up)".into(),
        ),
        ("a slots=4 max_slots=2", "hosts:1:1: a has 4 slots, but max_slots=2".into()),
        ("a max_slots=1\na", "hosts:2:1: a has 2 slots, but max_slots=1".into()),
        ("\t n[1-2", "hosts:1:4: this bracket is not closed".into()),
    ]);
    let error = files([("hosts", &b"ok\nh\xc3\xb6\xff"[..])], &mut Around).unwrap_err();
    assert_eq!(fault(&error), "hosts:2:3: this byte is no text");
}

/// With the lines that show where.
fn whole(read: Result<Vec<Entry>, HostlistError>) -> String {
    read.unwrap_err().to_string()
}

#[test]
fn a_caret_points_at_the_fault() {
    assert_eq!(
        whole(of_file("ok\n\tn1\tslots=four # x")),
        "hosts:2:11: slots takes a whole number above 0, got 'four'\n   2 |  n1 slots=four # x\n     |           ^"
    );
    assert_eq!(whole(of_list("a,b[1-2")), "-H, column 4: this bracket is not closed\n     | a,b[1-2\n     |    ^");
    assert_eq!(
        whole(of_file("a slots=2\n\u{1b}\na slots=3")),
        "hosts:2:1: '\\u{1b}' cannot be in a host name\n   2 | ?\n     | ^"
    );
    let shown = whole(of_list("a[0\u{3}]"));
    assert!(shown.contains("got '0\\u{3}'") && shown.contains("a[0?]"), "{shown}");
    assert_eq!(
        whole(of_file("a slots=2\na slots=3")),
        "hosts:2:1: a has slots=3 here, but slots=2 at hosts:1:1\n   1 | a slots=2\n     | ^\n   2 | a slots=3\n     | ^"
    );
    let long = format!("{}b[", "a,".repeat(1000));
    let error = whole(of_list(&long));
    let lines: Vec<&str> = error.lines().collect();
    assert!(lines.iter().all(|line| line.len() < 100), "{error}");
    assert_eq!(lines[1].chars().nth(lines[2].find('^').unwrap()), Some('['), "{error}");
}

#[test]
fn a_long_list_costs_no_time() {
    let list: String = (0..60_000).map(|n| format!("host{n}:2,")).collect();
    assert_eq!(of_list(list.trim_end_matches(',')).unwrap().len(), 60_000);
    let file: String = (0..60_000).map(|n| format!("host{n} slots=2\n")).collect();
    assert_eq!(of_file(&file).unwrap().len(), 60_000);
}

#[test]
fn a_choice_beside_a_hostfile() {
    let all = of_file("a slots=4 max_slots=5\nb slots=2 port=22\nc").unwrap();
    let chosen = |text: &str| select(&all, of_list(text).unwrap());
    assert_eq!(shown(&chosen("c,a").unwrap()), "c:1 a:4/5");
    assert_eq!(shown(&chosen("a:2,bob@b").unwrap()), "a:2/5 bob@bp22:2");
    assert_eq!(chosen("a,d").unwrap_err(), Host::named("d"));
    // One name for several hosts: all of them.
    let all = of_file("c port=2201\nd\nc port=2202 slots=3\nbob@e slots=2\neve@e").unwrap();
    let chosen = |text: &str| shown(&select(&all, of_list(text).unwrap()).unwrap());
    assert_eq!(chosen("c"), "cp2201:1 cp2202:3");
    assert_eq!(chosen("d,c:2"), "d:1 cp2201:2 cp2202:2");
    assert_eq!(chosen("e"), "bob@e:2 eve@e:1");
    assert_eq!(chosen("eve@e"), "eve@e:1");
    assert_eq!(chosen("joe@e"), "joe@e:2");
    assert_eq!(chosen("joe@c"), "joe@cp2201:1 joe@cp2202:3");
}

#[test]
fn names_fold() {
    for (list, expected) in [
        ("node01,node02,node03,node07", "node[01-03,07]"),
        ("n2,n1,n1", "n[1-2]"),
        ("n1,n2,n01", "n[1-2,01]"),
        ("n01,n1", "n[1,01]"),
        ("n9,n10,n99,n100", "n[9-10,99-100]"),
        ("n099,n100", "n[099-100]"),
        ("n09,n10,n99,n100", "n[09-10,99-100]"),
        ("n[09-99],n100", "n[09-99,100]"),
        ("n0,n00,n000", "n[0,00,000]"),
        ("b1,a2,a1,c,b", "a[1-2],b,b1,c"),
        ("n1c0,n1c1,n2c0", "n1c[0-1],n2c0"),
        ("n[1-3]c[0-1]", "n[1-3]c[0-1]"),
        ("foo[1-2]bar[3,5]x", "foo[1-2]bar[3,5]x"),
        ("n[0-3]0", "n[00,10,20,30]"),
        ("n1.x,n2.x", "n[1-2].x"),
        ("n5", "n5"),
        ("::1,fe80::2", "::1,fe80::2"),
        ("n1234567890123456789012,n1234567890123456789013", "n1234567890123456789012,n1234567890123456789013"),
    ] {
        let entries = of_list(list).unwrap();
        assert_eq!(fold(entries.iter().map(|e| e.host.name.as_str())), expected, "{list}");
    }
    assert_eq!(fold([]), "");
}

fn any_name() -> impl Strategy<Value = String> {
    let part = proptest::sample::select(vec!["n", "rack-", "a.b", "x"]);
    let number = prop_oneof!["[0-9]{1,2}", "0[0-9]{1,3}", "1[0-9]{0,2}", "[0-9]{17,20}"];
    let pair = (part, proptest::option::weighted(0.9, number));
    proptest::collection::vec(pair, 1..4).prop_map(|parts| {
        parts.into_iter().map(|(text, number)| format!("{text}{}", number.unwrap_or_default())).collect()
    })
}

proptest! {
    #[test]
    fn folded_names_are_read_back(names in proptest::collection::vec(any_name(), 1..40)) {
        let folded = fold(names.iter().map(String::as_str));
        let read: BTreeSet<String> = of_list(&folded).unwrap().into_iter().map(|e| e.host.name).collect();
        prop_assert_eq!(&read, &names.iter().cloned().collect::<BTreeSet<_>>(), "{}", folded);
        // Folded again it is the same: the form does not depend on how the set was written.
        prop_assert_eq!(fold(read.iter().map(String::as_str)), folded);
    }

    #[test]
    fn any_bytes_are_read_or_refused(text in proptest::collection::vec(any::<u8>(), 0..60)) {
        let error = |result: Result<Vec<Entry>, HostlistError>| result.map_err(|e| (e.to_string(), e.hint()));
        let listed = error(lists([("-H", text.as_slice())], &mut Around));
        let filed = error(files([("hosts", text.as_slice())], &mut Around));
        for entry in listed.into_iter().flatten().chain(filed.into_iter().flatten()) {
            prop_assert!(!entry.host.name.is_empty() && !entry.host.name.starts_with('-'));
        }
    }

    /// Else a job would end after its launch has begun, or a list refuse what ssh takes.
    #[test]
    fn list_and_ssh_accept_the_same_names(
        user in proptest::option::of("[a-zé0-9@$\\\\.+~=%:_-]{0,6}"), host in "[a-c0-9:%.~_$-]{1,8}", port in any::<Option<u16>>(),
    ) {
        let word = user.map_or(host.clone(), |user| format!("{user}@{host}"));
        let target = Target::parse(word.as_bytes(), None);
        match of_file(&format!("{word} {}", port.filter(|p| *p > 0).map(|p| format!("port={p}")).unwrap_or_default())) {
            Ok(entries) => for entry in entries {
                prop_assert_eq!(Target::of(&entry.host).map(|t| t.to_string()), Ok(entry.host.to_string()), "{}", word);
            },
            // `^file`, `host:4` and comments are of lists alone.
            Err(error) => prop_assert!(target.is_err() || word.starts_with('@'), "{word}: {error}"),
        }
    }

    #[test]
    fn list_like_words_are_read_or_refused(text in "[a-c0-9\\[\\]\\-,/:!&@^* ]{0,40}") {
        if let Ok(entries) = of_list(&text) {
            prop_assert!(!entries.is_empty() && entries.iter().all(|e| e.slots() > 0));
        }
    }
}

#[test]
fn hosts_of_a_line_follow_each_other_in_their_slice() {
    let text = b"n[1-2] slice=a id=0 devices=4\nn3 slice=b id=0\nn4 devices=8\nn5\n";
    let all = files([("hosts", &text[..])], &mut Alone).unwrap();
    let chips = |slice: &str, id, devices, hosts| Some(Chips { hosts, ..Chips::of(slice, id, devices) });
    let expected = [chips("a", 0, 4, 2), chips("a", 1, 4, 2), chips("b", 0, 0, 1), chips("", 0, 8, 0), None];
    assert_eq!(all.into_iter().map(|entry| entry.chips).collect::<Vec<_>>(), expected);
}
