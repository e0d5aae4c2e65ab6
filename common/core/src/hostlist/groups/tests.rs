//! Which configuration counts, and what its sources say.

use super::*;
use crate::error::Hint as _;
use alloc::boxed::Box;
use core::cell::RefCell;
use proptest::prelude::*;

/// Variables, files, and the commands that were run.
#[derive(Default)]
struct Place {
    variables: &'static [(&'static str, &'static str)],
    files: &'static [(&'static str, &'static str)],
    ran: RefCell<Vec<String>>,
}

impl Ground for Place {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
    }

    fn file(&self, path: &str) -> Result<Option<Vec<u8>>, String> {
        match self.files.iter().find(|(known, _)| *known == path) {
            Some((_, "EIO")) => Err("input/output error".into()),
            Some((_, "bytes")) => Ok(Some(vec![0xff])),
            Some((_, text)) => Ok(Some(text.as_bytes().to_vec())),
            None => Ok(None),
        }
    }

    fn directory(&self, path: &str) -> Result<Option<Vec<String>>, String> {
        if self.files.iter().any(|(known, _)| *known == path) {
            return Err("not a directory".into());
        }
        let below = |known: &str| known.strip_prefix(path)?.strip_prefix('/').map(String::from);
        let names: Vec<String> = self.files.iter().rev().filter_map(|(known, _)| below(known)).collect();
        Ok((!names.is_empty()).then_some(names))
    }

    /// Returns the text of the first word, which the others print.
    fn run(&self, command: &str, directory: &str) -> Result<Vec<u8>, String> {
        self.ran.borrow_mut().push(format!("{directory}: {command}"));
        match command.split_once(' ') {
            Some(("echo", text)) => Ok(format!("{text}\n").into_bytes()),
            Some(("lines", text)) => Ok(text.replace(';', "\n").into_bytes()),
            Some(("only", text)) => {
                let (known, asked) = text.split_once(' ').unwrap();
                Ok(if known == asked { b" n1\n n2 \n".to_vec() } else { b"\n".to_vec() })
            }
            Some(("bytes", _)) => Ok(vec![0xff]),
            Some(_) | None => Err("exited with 1: no such thing".into()),
        }
    }
}

const MAIN_CONF: &str = "/etc/clustershell/groups.conf";

/// The definition of a group with this groups.conf, and its origin.
fn asked(place: &Place, name: &str) -> Result<String, String> {
    let shown = |fault: GroupFault| {
        let hint = fault.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
        format!("{fault}{hint}")
    };
    let mut groups = Groups::read(place).map_err(shown)?;
    let (source, group) = name.split_once(':').map_or((None, name), |(source, group)| (Some(source.into()), group));
    let definition = groups.definition(&GroupName { source, group: group.into() }, place).map_err(shown)?;
    let nothing = definition.nothing.map_or_else(String::new, |fault| format!(" / {}", shown(fault)));
    Ok(format!("{} [{}]{nothing}", definition.hosts, definition.place))
}

fn with(conf: &'static str) -> Place {
    let files: &'static [(&'static str, &'static str)] = Box::leak(Box::new([(MAIN_CONF, conf)]));
    Place { files, ..Place::default() }
}

#[test]
fn the_first_configuration_goes_before_the_others() {
    let home: &[(&str, &str)] = &[("HOME", "/home/u"), ("VIRTUAL_ENV", "/venv")];
    let xdg: &[(&str, &str)] = &[("HOME", "/home/u"), ("XDG_CONFIG_HOME", "/xdg/"), ("CLUSTERSHELL_CFGDIR", "/cfg/.")];
    let files: &[(&str, &str)] = &[
        (
            MAIN_CONF,
            "[Main]\ndefault: a\nconfdir: $CFGDIR/d\n[a]\nmap: echo etc $CFGDIR\nall: echo all\n[b]\nmap: echo b",
        ),
        ("/home/u/.local/etc/clustershell/groups.conf", "[a]\nmap: echo local $CFGDIR"),
        ("/venv/etc/clustershell/groups.conf", "[a]\nmap: echo venv $CFGDIR"),
        ("/home/u/.config/clustershell/groups.conf", "[a]\nmap: echo home $CFGDIR"),
        ("/xdg/clustershell/groups.conf", "[a]\nmap: echo xdg $CFGDIR"),
        ("/cfg/groups.conf", "[a]\nmap: echo cfg $CFGDIR"),
        ("/cfg/d/x.conf", "[x]\nmap: echo x"),
    ];
    for (variables, shown, expected) in [
        (xdg, files, "cfg /cfg [@a:g of /cfg/groups.conf]"),
        (xdg, &files[..5], "xdg /xdg/clustershell [@a:g of /xdg/clustershell/groups.conf]"),
        (home, files, "home /home/u/.config/clustershell [@a:g of /home/u/.config/clustershell/groups.conf]"),
        (home, &files[..3], "venv /venv/etc/clustershell [@a:g of /venv/etc/clustershell/groups.conf]"),
        (
            home,
            &files[..2],
            "local /home/u/.local/etc/clustershell [@a:g of /home/u/.local/etc/clustershell/groups.conf]",
        ),
        (&[], files, "etc /etc/clustershell [@a:g of /etc/clustershell/groups.conf]"),
    ] {
        let place = Place { variables, files: shown, ..Place::default() };
        assert_eq!(asked(&place, "g").as_deref(), Ok(expected));
        // A key that only a later file has still counts.
        assert_eq!(asked(&place, "a:*").unwrap().split(' ').next(), Some("all"));
        assert!(asked(&place, "b:g").is_ok());
        assert_eq!(asked(&place, "x:g").is_ok(), expected.starts_with("cfg"), "its directory is that of the first");
    }
    let none = Place { variables: xdg, ..Place::default() };
    assert_eq!(
        asked(&none, "g").unwrap_err(),
        "no groups are set up here: there is no /cfg/groups.conf, /xdg/clustershell/groups.conf, \
         /home/u/.local/etc/clustershell/groups.conf, /etc/clustershell/groups.conf \
         (groups are ClusterShell's (man groups.conf); CLUSTERSHELL_CFGDIR names another directory)"
    );
}

#[test]
fn sources_come_from_all_files() {
    let files: &[(&str, &str)] = &[
        (
            MAIN_CONF,
            "[Main]\nconfdir: \"/c d\" $CFGDIR/gone /etc/x/../clustershell/c\nautodir: '/auto' /auto/.\n[own]\nmap: echo own",
        ),
        ("/c d/b.conf", "# theirs\n[p,pp]\nmap = echo $SOURCE-$GROUP in $CFGDIR\n[Main]\ndefault: none\n"),
        ("/c d/a.conf", "[first]\nmap: echo first"),
        ("/c d/.a.conf", "["),
        ("/c d/a.conf.example", "["),
        ("/etc/clustershell/c/c.conf", "[c]\nmap: echo c"),
        (
            "/auto/y.yaml",
            "roles:\n  io: 'n1,@racks:r1'\n  all: '@io'\nracks: {r1: 'n[2-3]', \"r2\": [n4, \"n5 n6\"], none: }\n",
        ),
        ("/auto/y.yml", "["),
    ];
    let place = Place { files, ..Place::default() };
    for (name, expected) in [
        ("p:g", "p-g in /c d [@p:g of /c d/b.conf]"),
        ("pp:g", "pp-g in /c d [@pp:g of /c d/b.conf]"),
        ("c:g", "c [@c:g of /etc/clustershell/c/c.conf]"),
        ("own:g", "own [@own:g of /etc/clustershell/groups.conf]"),
        ("roles:io", "n1,@racks:r1 [@roles:io of /auto/y.yaml]"),
        ("roles:*", "@io [@roles:* of /auto/y.yaml]"),
        ("racks:r2", "n4,n5 n6 [@racks:r2 of /auto/y.yaml]"),
        ("racks:none", " [@racks:none of /auto/y.yaml]"),
        ("racks:*", "n[2-3] n4,n5 n6 [@racks:* of /auto/y.yaml]"),
        // Nothing says which is the default: the first.
        ("g", "first [@first:g of /c d/a.conf]"),
    ] {
        assert_eq!(asked(&place, name).as_deref(), Ok(expected), "{name}");
    }
    for (name, expected) in [
        (
            "racks:r3",
            "the source 'racks' of /auto/y.yaml has no group 'r3' (a group that there is: @racks:none, @racks:r1, @racks:r2)",
        ),
        (
            "gpu:4",
            "/etc/clustershell/groups.conf has no source of groups called 'gpu' (--ppn 4, or the line '@gpu slots=4' in a hostfile)",
        ),
        (
            "x:y",
            "/etc/clustershell/groups.conf has no source of groups called 'x' (a source that there is: c, first, own, p, pp, racks, roles)",
        ),
    ] {
        assert_eq!(asked(&place, name).unwrap_err(), expected, "{name}");
    }
}

#[test]
fn commands_say_what_groups_are() {
    let place = with(
        "[Main]\ndefault: all\n[all]\nmap: only g $GROUP\nall: echo $GROUP ${CFGDIR} ${SOURCE}s $$x $SOURCES $11 ${x\nlist: echo g\n\
         [list]\nmap: echo of-$GROUP\nlist: lines a b;c c[1-2]\n[map]\nmap: echo x\n[every]\nmapall: lines a: n1 n2;;b:n3;a: n4;c:\n\
         [mixed]\nmapall: lines a: n1\nmap: only g $GROUP\n[wrong]\nmap: false\nmapall: lines a n1\n[bad]\nmap: bytes $GROUP\n\
         list: echo a;b\nall:\n[fails]\nmap: false $GROUP\n",
    );
    for (name, expected) in [
        ("g", "n1 n2 [@all:g of /etc/clustershell/groups.conf]"),
        ("all:*", "$GROUP /etc/clustershell alls $x $SOURCES $11 ${x [@all:* of /etc/clustershell/groups.conf]"),
        (
            "h",
            " [@all:h of /etc/clustershell/groups.conf] / the source 'all' of /etc/clustershell/groups.conf says nothing of it: it \
             is unknown there, or has no hosts now (`only g h` printed nothing) (echo g   lists its groups)",
        ),
        ("list:*", "of-a of-b of-c of-c1 of-c2 [@list:* of /etc/clustershell/groups.conf]"),
        ("every:a", "n1 n2 n4 [@every:a of /etc/clustershell/groups.conf]"),
        ("every:c", " [@every:c of /etc/clustershell/groups.conf]"),
        ("every:*", "n1 n2 n4 n3 [@every:* of /etc/clustershell/groups.conf]"),
        ("mixed:a", "n1 [@mixed:a of /etc/clustershell/groups.conf]"),
        ("mixed:g", "n1 n2 [@mixed:g of /etc/clustershell/groups.conf]"),
    ] {
        assert_eq!(asked(&place, name).as_deref(), Ok(expected), "{name}");
    }
    let of = "of /etc/clustershell/groups.conf";
    for (name, expected) in [
        ("map:*", format!("the source 'map' {of} cannot tell all its hosts: it has neither 'all' nor 'list'")),
        (
            "every:d",
            format!("the source 'every' {of} has no group 'd' (a group that there is: @every:a, @every:b, @every:c)"),
        ),
        ("wrong:a", format!("the source 'wrong' {of}: 'mapall' takes lines 'GROUP: HOSTS', got 'a n1'")),
        ("bad:x", format!("the source 'bad' {of}: `bytes x` prints what is no text (run it by hand: bytes x)")),
        ("bad:*", format!("the source 'bad' {of}: lists the group 'a;b': ';' cannot be in the name of a group")),
        (
            "fails:x",
            format!("the source 'fails' {of}: `false x` exited with 1: no such thing (run it by hand: false x)"),
        ),
    ] {
        assert_eq!(asked(&place, name).unwrap_err(), expected, "{name}");
    }
}

#[test]
fn a_command_is_run_once_where_its_file_is() {
    let place = with("[a]\nmap: echo $GROUP\nlist: lines x y\n");
    let mut groups = Groups::read(&place).unwrap();
    for group in ["x", "*", "y", "x", "*"] {
        groups.definition(&GroupName { source: None, group: group.into() }, &place).unwrap();
    }
    let here = |command: &str| format!("/etc/clustershell: {command}");
    assert_eq!(*place.ran.borrow(), [here("echo x"), here("lines x y"), here("echo y")]);
}

#[test]
fn values_go_on_as_configparser_has_them() {
    let place = with(
        "\u{feff}; c\n[DEFAULT]\nlist = echo d\n[a]\nMAP : echo g\n   # not this\n\n   \t$GROUP\n\nall= echo a=b: c # d\n [x]\n\n[c]\n  map: echo c\n  all:\n",
    );
    let commands = |name: &str| {
        let _answer = asked(&place, name);
        place.ran.borrow_mut().pop().unwrap()
    };
    assert_eq!(commands("a:g"), "/etc/clustershell: echo g\n\ng");
    assert_eq!(commands("a:*"), "/etc/clustershell: echo a=b: c # d\n[x]");
    // Indented alike: another key, not more of the value. An empty command is none.
    assert_eq!(commands("c:*"), "/etc/clustershell: echo c");
}

#[test]
fn invalid_line_is_named_with_its_number() {
    for (conf, expected) in [
        ("map: x", ":1: a value before the first [SECTION]"),
        ("[a]\nmap: x\nmap: y", ":3: map is there twice"),
        ("[a]\nmap: x\n[a]", ":3: the section [a] is there twice"),
        ("[a]\nmap x", ":2: neither [SECTION] nor KEY: VALUE"),
        ("[a]\nlist: x", ": the section [a] has neither 'map' nor 'mapall'"),
        ("[a,b]\nmap: x\n[b]\nmap: y", ": the source 'b' is there twice, also in /etc/clustershell/groups.conf"),
        ("[Main]\ndefault: b\n[a]\nmap: x", ": the default source 'b' is none of: a"),
        ("[Main]\nconfdir: 'x\n[a]\nmap: x", ": confdir: a quote that is not closed"),
        ("[Main]\nautodir: x\\\n[a]\nmap: x", ": autodir: a backslash at the end"),
        ("[Main]\nautodir: $CFGDIR/groups.conf\n", ": autodir /etc/clustershell/groups.conf: not a directory"),
        ("EIO", ": input/output error"),
        ("bytes", ": this is no text"),
    ] {
        assert_eq!(asked(&with(conf), "g").unwrap_err(), format!("{MAIN_CONF}{expected}"), "{conf}");
    }
    assert_eq!(asked(&with("[Main]\ndefault:\n"), "g").unwrap_err(), format!("{MAIN_CONF} has no source of groups"));
}

#[test]
fn group_file_syntax() {
    for (text, expected) in [
        ("", Ok("")),
        ("# nothing\n---\n...\n", Ok("")),
        ("s:\n  g: n1 # one\n", Ok("s:g=n1")),
        ("\u{feff}s: {'g': \"n[1-2]\", 1: ~, h: null, i: '~', k: [ ]}", Ok("s:1= s:g=n[1-2] s:h= s:i=~ s:k=")),
        ("s:\n  g:\n  - n1\n  - 'n[2,3]'\n  -\n", Ok("s:g=n1,n[2,3],")),
        ("s:\n  g: >\n    n1\n    n2\nt: {g: &x n3, h: *x, i: [*x, n4]}", Ok("s:g=n1 n2\n t:g=n3 t:h=n3 t:i=n3,n4")),
        ("s: {}\n", Ok("")),
        ("- a", Err((1, "here stand sources of groups: 'SOURCE:'"))),
        ("a", Err((1, "here stand sources of groups: 'SOURCE:'"))),
        ("s: n1", Err((1, "the source 's' has no groups: 'GROUP: HOSTS'"))),
        ("s:\n  g: {a: b}", Err((2, "the group 'g' takes hosts, or a list of hosts"))),
        ("s:\n  g: [[a]]", Err((2, "the group 'g' takes hosts, or a list of hosts"))),
        ("s: &s\n  g: a\nt:\n  h: *s", Err((4, "the group 'h' takes hosts, or a list of hosts"))),
        ("s: &s\n  g: a\nt: *s", Err((3, "the source 't' has no groups: 'GROUP: HOSTS'"))),
        ("s: &s\n  g: a\nt:\n  <<: *s", Err((4, "'<<' is not supported: name the groups again"))),
        ("s:\n  g: a\n  g: b", Err((3, "the group 'g' is there twice"))),
        ("s:\n  g: a\ns:\n  h: b", Err((3, "the source 's' is there twice"))),
        ("s:\n  ? [a]\n  : b", Err((2, "a name is missing here"))),
        ("s: {}\n---\nt: {}", Err((2, "one document only"))),
        ("s: {g: 'a", Err((1, ""))),
        ("s:\n\tg: a", Err((2, ""))),
        ("s: {g: *x}", Err((1, ""))),
    ] {
        let shown = |sources: Vec<(String, Table)>| {
            let one = |(source, table): &(String, Table)| {
                table.iter().map(|(group, hosts)| format!("{source}:{group}={hosts}")).collect::<Vec<_>>()
            };
            sources.iter().flat_map(one).collect::<Vec<_>>().join(" ")
        };
        match (yaml::parse(text).map(shown), expected) {
            (Ok(read), Ok(expected)) => assert_eq!(read, expected, "{text}"),
            // The message of the parser is its own.
            (Err((line, why)), Err((at, expected))) => {
                assert!(
                    line == at && (why == expected || expected.is_empty()) && !why.is_empty(),
                    "{text}: {line}: {why}"
                );
            }
            (read, expected) => panic!("{text}: {read:?}, not {expected:?}"),
        }
    }
    let many = (0..40).map(|n| format!("  g{}: &g{} [*g{n}, *g{n}]\n", n + 1, n + 1)).collect::<String>();
    let (line, why) = yaml::parse(&format!("s:\n  g0: &g0 aaaaaaaa\n{many}")).unwrap_err();
    assert!(line > 20 && why == "its groups have more than 64 MiB", "{line}: {why}");
}

proptest! {
    #[test]
    fn any_file_is_read_or_refused(
        conf in "[\\[\\]a-cM:= \t\n$#;'\"\\\\]{0,60}",
        yaml in "[a-c\\[\\]{}:,&*!|>%@#'\"\\\\?~< \t\n-]{0,60}",
        list in "[@a-c:*,!&\\[\\]1]{1,12}",
    ) {
        let conf = format!("[Main]\nautodir: /d\n{conf}");
        let texts: &[(&str, &str)] = &[(MAIN_CONF, &conf), ("/d/g.yaml", &yaml)];
        let _either = (Conf::parse(&conf), yaml::parse(&yaml), conf::words(&conf), substitute(&conf, &[("a", "b")]));
        let ground = Texts(texts);
        if let Ok(mut groups) = Groups::read(&ground) {
            let (source, group) = list.split_once(':').map_or((None, &*list), |(s, group)| (Some(s.into()), group));
            let _either = groups.definition(&GroupName { source, group: group.into() }, &ground);
        }
    }
}

/// Files only.
struct Texts<'a>(&'a [(&'a str, &'a str)]);

impl Ground for Texts<'_> {
    fn variable(&self, _name: &str) -> Option<String> {
        None
    }

    fn file(&self, path: &str) -> Result<Option<Vec<u8>>, String> {
        Ok(self.0.iter().find(|(known, _)| *known == path).map(|(_, text)| text.as_bytes().to_vec()))
    }

    fn directory(&self, _path: &str) -> Result<Option<Vec<String>>, String> {
        Ok(Some(vec!["g.yaml".into()]))
    }

    fn run(&self, command: &str, _directory: &str) -> Result<Vec<u8>, String> {
        Ok(command.into())
    }
}

/// A host of a TPU slice.
struct OfSlice(&'static [&'static str]);

impl Ground for OfSlice {
    fn variable(&self, _: &str) -> Option<String> {
        None
    }
    fn file(&self, _: &str) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }
    fn directory(&self, _: &str) -> Result<Option<Vec<String>>, String> {
        Ok(None)
    }
    fn run(&self, _: &str, _: &str) -> Result<Vec<u8>, String> {
        Err("runs nothing".into())
    }
    fn slice(&self) -> Vec<String> {
        self.0.iter().map(|host| (*host).into()).collect()
    }
}

#[test]
fn hosts_of_the_own_slice_are_a_group_without_configuration() {
    let name = |source: &str, group: &str| GroupName { source: Some(source.into()), group: group.into() };
    let slice = name("tpu", "slice");
    let hosts = built_in(&slice, &OfSlice(&["10.0.1.1", "t1v-n-1-w-1"])).unwrap().unwrap();
    assert_eq!((hosts.hosts.as_str(), hosts.place.as_str()), ("10.0.1.1 t1v-n-1-w-1", "@tpu:slice of this host"));
    for bad in [&[][..], &["10.0.1.1", "@all"], &["^/etc/passwd"], &["a,b"], &[""]] {
        assert_eq!(built_in(&slice, &OfSlice(bad)), Some(Err(GroupFault::NoSlice)), "{bad:?}");
    }
    assert_eq!(built_in(&name("tpu", "all"), &OfSlice(&["a"])), None);
    assert_eq!(built_in(&GroupName { source: None, group: "slice".into() }, &OfSlice(&["a"])), None);
}
