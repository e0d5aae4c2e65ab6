//! `rlaunch hosts`: folds, expands and counts lists of hosts, with the manners of ClusterShell's nodeset. Its options are a
//! table of their own, read as those of a job are.

use super::errors::CliError;
use super::place::Said;
use super::scan::{self, Given};
use super::site::Site;
use super::table::{HOSTS, Id, options};
use super::{Answer, Command, help};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::hostlist::{self, Entry};
use std::collections::BTreeSet;
use std::io;

pub(super) const USAGE: &str = "\
Usage: rlaunch hosts [-f|-e|-c] [OPTIONS] [LIST...]

Folds, expands or counts hosts. LIST is what -H takes: n[01-08], @GROUP, ^FILE.
Without a LIST, or where it is -, hosts are read from stdin like a hostfile.

";

options! {
    Hosts;
    Fold -b'f' ["fold"] Nothing: "the short form, sorted: node[01-03,07] (default)";
    Expand -b'e' ["expand"] Nothing: "all names, in their order";
    Count -b'c' ["count"] Nothing: "how many there are";
    Separator -b'S' ["separator"] One("SEP"): "between names (default: a blank; \\n: a line)";
    Exclude -b'x' ["exclude"] One("LIST"): "without these";
    Hosts -b'H' -b'w' ["hosts", "host", "nodelist"] One("LIST"): "these too, as a LIST alone";
    Hostfile ["hostfile", "machinefile", "default-hostfile"] One("FILE"): "hosts of a file too";
    Help -b'h' ["help"] Nothing: "print this";
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Form {
    #[default]
    Fold,
    Expand,
    Count,
}

/// The query.
#[derive(Debug)]
pub(crate) struct Query {
    form: Form,
    separator: OsBytes,
    lists: Vec<Said>,
    files: Vec<Said>,
    without: Vec<Said>,
    stdin: bool,
}

/// Reads the words after `hosts`.
pub(super) fn parse(words: Vec<OsBytes>) -> Result<Command, CliError> {
    let words = scan::mixed(words.into_iter(), &HOSTS)?;
    let mut query = Query {
        form: Form::Fold,
        separator: " ".into(),
        lists: Vec::new(),
        files: Vec::new(),
        without: Vec::new(),
        stdin: false,
    };
    for Given { row, spelled: option, value, .. } in words.given {
        let Id::Hosts(opt) = row.id else { continue };
        match opt {
            Opt::Fold => query.form = Form::Fold,
            Opt::Expand => query.form = Form::Expand,
            Opt::Count => query.form = Form::Count,
            Opt::Separator => query.separator = unescaped(&value),
            Opt::Exclude => query.without.push(Said { option, value }),
            Opt::Hosts => query.lists.push(Said { option, value }),
            Opt::Hostfile if value.as_slice() == b"-" => query.stdin = true,
            Opt::Hostfile => query.files.push(Said { option, value }),
            Opt::Help => return Ok(Command::text(help::command_named("hosts"))),
        }
    }
    for value in words.argv {
        match value.as_slice() {
            b"-" => query.stdin = true,
            _ => query.lists.push(Said { option: "hosts".into(), value }),
        }
    }
    query.stdin |= query.lists.is_empty() && query.files.is_empty();
    Ok(Command::Answer(Answer::Hosts(Box::new(query))))
}

impl Query {
    /// The answer, with its newline.
    ///
    /// # Errors
    /// A list or a file cannot be understood.
    pub(crate) fn answer(&self, site: &Site<'_>, stdin: &dyn Fn() -> io::Result<Vec<u8>>) -> Result<Vec<u8>, CliError> {
        let mut hosts: Vec<Entry> = Vec::new();
        if !self.files.is_empty() {
            hosts.extend(site.files(&self.files)?);
        }
        if !self.lists.is_empty() {
            hosts.extend(site.lists(&self.lists)?);
        }
        if self.stdin {
            let read = |_: &OsBytes| stdin();
            let piped = Site { here: site.here.clone(), read: &read, ..*site };
            hosts.extend(piped.files(&[Said { option: "hosts".into(), value: "stdin".into() }])?);
        }
        let without = if self.without.is_empty() { Vec::new() } else { site.lists(&self.without)? };
        let mut seen: BTreeSet<&str> = without.iter().map(|entry| entry.host.name.as_str()).collect();
        let names: Vec<&str> =
            hosts.iter().map(|entry| entry.host.name.as_str()).filter(|name| seen.insert(name)).collect();
        let mut text = match self.form {
            Form::Fold => hostlist::fold(names).into_bytes(),
            Form::Expand => {
                names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>().join(self.separator.as_slice())
            }
            Form::Count => names.len().to_string().into_bytes(),
        };
        text.push(b'\n');
        Ok(text)
    }
}

/// `\n` and `\t` as shells leave them.
fn unescaped(text: &OsBytes) -> OsBytes {
    let mut bytes = Vec::new();
    let mut rest = text.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        bytes.push(match (byte, rest.peek()) {
            (b'\\', Some(b'n')) => {
                rest.next();
                b'\n'
            }
            (b'\\', Some(b't')) => {
                rest.next();
                b'\t'
            }
            (byte, _) => byte,
        });
    }
    OsBytes::new(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::site::{Known, NoNodeset};
    use super::*;
    use rlaunch_plan::place::Here;

    fn answer(line: &str, stdin: &str) -> Result<String, String> {
        let site = Site {
            here: Here { name: "me".into(), cpus: 2 },
            units: &|_| 1,
            gpus: &|| Some(0),
            ask: &|_, _| Ok(Vec::new()),
            read: &|path| match path.as_slice() {
                b"file" => Ok(b"f1 slots=2\nf2\n".to_vec()),
                _ => Err(io::Error::from_raw_os_error(2)),
            },
            is_file: &|path| path.as_slice() == b"file",
            near: &|_| None,
            runs: &|_| None,
            has_input: &|| false,
            directory: &|| None,
            env: &|_| None,
            groups: &Known::new(&NoNodeset),
            turn: &|_| Err(std::io::ErrorKind::Unsupported.into()),
        };
        let words = line.split_whitespace().map(OsBytes::from);
        let query = match parse(words.collect()).map_err(|error| error.render())? {
            Command::Answer(Answer::Hosts(query)) => query,
            Command::Answer(Answer::Text(text)) => return Ok(text),
            other => panic!("{other:?}"),
        };
        let text = query.answer(&site, &|| Ok(stdin.into())).map_err(|error| error.render())?;
        Ok(String::from_utf8(text).unwrap())
    }

    #[test]
    fn lists_in_three_forms() {
        for (line, expected) in [
            ("n3 n1,n2", "n[1-3]\n"),
            ("-f n3 n1,n2", "n[1-3]\n"),
            ("-e n3 n1,n2 n3", "n3 n1 n2\n"),
            ("-eS, n[1-3]", "n1,n2,n3\n"),
            ("-S \\n --expand n[1-2]", "n1\nn2\n"),
            ("--separator=\\t -e n[1-2]", "n1\tn2\n"),
            ("-c n[1-3]c[0-1] n1c0", "6\n"),
            ("-x n2 n[1-3]", "n[1,3]\n"),
            ("--exclude=n[1-3] -c n[1-3]", "0\n"),
            ("--hostfile file -e a", "f1 f2 a\n"),
            ("--machinefile=file -e -H a", "f1 f2 a\n"),
            ("-expand -w n[1-2] n3", "n1 n2 n3\n"),
            ("--default_hostfile file -ec", "2\n"),
            ("^file", "f[1-2]\n"),
            ("-e a:4,bob@b", "a b\n"),
            ("-c -- n1", "1\n"),
            ("", "s[1-2]\n"),
            ("a -", "a,s[1-2]\n"),
            ("--hostfile - -e a", "a s1 s2\n"),
        ] {
            assert_eq!(answer(line, "s1\ns2 # two\n").as_deref(), Ok(expected), "{line}");
        }
        for words in ["-h", "--help", "n1 --help -e"] {
            let text = answer(words, "").unwrap();
            assert!(text.starts_with(USAGE) && text.contains("--separator SEP"), "{words}: {text}");
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        }
    }

    #[test]
    fn invalid_host_queries_are_refused() {
        for (line, expected) in [
            ("--cuont", "error: unknown option '--cuont'\n  try     --count\n"),
            ("-Z", "error: unknown option '-Z'\n  try     rlaunch hosts --help lists all options\n"),
            ("-x", "error: -x needs a value: LIST\n  try     rlaunch hosts --help\n"),
            ("--fold=x a", "error: --fold takes no value, got 'x'\n  try     --fold\n"),
            ("--Count=x", "error: unknown option '--Count'\n  try     --count\n"),
            ("-N 4", "error: unknown option '-N'\n  try     rlaunch hosts --help lists all options\n"),
            ("-efx", "error: -x needs a value: LIST\n  try     rlaunch hosts --help\n"),
            (
                "\u{2013}e n1",
                "error: unknown option '\u{2013}e'\n  try     -e   (the dash that was typed is another character)\n",
            ),
            (
                "--hostfile gone",
                "error: cannot read the hostfile gone: no such file or directory\n  try     -H HOST,...   or a file with a host on each line, as: node01 slots=4\n",
            ),
            ("a,", "error: hosts, column 3: a host name is missing here\n     | a,\n     |   ^\n"),
        ] {
            assert_eq!(answer(line, "").unwrap_err(), expected, "{line}");
        }
    }
}
