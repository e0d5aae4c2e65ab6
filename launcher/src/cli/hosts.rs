//! `rlaunch hosts`: folds, expands and counts lists of hosts, with the manners of ClusterShell's nodeset.

use super::errors::CliError;
use super::nearest::nearest;
use super::place::Said;
use super::site::Site;
use rlaunch_core::hostlist::{self, Entry};
use rlaunch_core::os_bytes::OsBytes;
use std::collections::BTreeSet;
use std::io;

const HELP: &str = "\
Usage: rlaunch hosts [-f|-e|-c] [OPTIONS] [LIST...]

Folds, expands or counts hosts. LIST is what -H takes: node[01-08], a:4, ^FILE.
Without a LIST, or where it is -, hosts are read from stdin like a hostfile.

  -f, --fold           the short form, sorted: node[01-03,07] (default)
  -e, --expand         all names, in their order
  -c, --count          how many there are
  -S, --separator SEP  between expanded names (default: a blank; \\n: a line)
  -x, --exclude LIST   without these
      --hostfile FILE  hosts of a file too
";

const NAMES: [&str; 7] = ["count", "exclude", "expand", "fold", "help", "hostfile", "separator"];

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Form {
    #[default]
    Fold,
    Expand,
    Count,
}

/// What is asked.
#[derive(Debug)]
pub(crate) struct Query {
    form: Form,
    separator: OsBytes,
    lists: Vec<Said>,
    files: Vec<Said>,
    without: Vec<Said>,
    stdin: bool,
    help: bool,
}

/// Reads the words after `hosts`.
pub(super) fn parse(words: impl IntoIterator<Item = OsBytes>) -> Result<Query, CliError> {
    let mut query = Query {
        form: Form::Fold,
        separator: " ".into(),
        lists: Vec::new(),
        files: Vec::new(),
        without: Vec::new(),
        stdin: false,
        help: false,
    };
    let mut rest = words.into_iter();
    let mut options = true;
    while let Some(word) = rest.next() {
        match word.as_slice() {
            b"--" if options => options = false,
            b"-" => query.stdin = true,
            [b'-', b'-', long @ ..] if options => query.named(&word, long, &mut rest)?,
            [b'-', letters @ ..] if options => query.letters(&word, letters, &mut rest)?,
            _ => query.lists.push(Said { option: "hosts".into(), value: word }),
        }
    }
    query.stdin |= query.lists.is_empty() && query.files.is_empty();
    Ok(query)
}

impl Query {
    fn named(&mut self, word: &OsBytes, long: &[u8], rest: &mut impl Iterator<Item = OsBytes>) -> Result<(), CliError> {
        let until = long.iter().position(|b| *b == b'=').unwrap_or(long.len());
        let (name, value) = long.split_at(until);
        let attached = value.strip_prefix(b"=");
        let spelled = OsBytes::from(word.get(..name.len() + 2).unwrap_or_default());
        let letter = match name {
            b"fold" => b'f',
            b"expand" => b'e',
            b"count" => b'c',
            b"separator" => b'S',
            b"exclude" => b'x',
            b"hostfile" => b'F',
            b"help" => b'h',
            _ => {
                let nearest = nearest(name, NAMES.into_iter()).map(|name| format!("--{name}"));
                return Err(CliError::Unknown { option: spelled, nearest });
            }
        };
        match (self.flag(letter), attached) {
            (true, None) => Ok(()),
            (true, Some(got)) => Err(CliError::Unwanted { option: spelled, got: got.into() }),
            (false, attached) => self.value(letter, spelled, attached, rest),
        }
    }

    fn letters(&mut self, word: &OsBytes, letters: &[u8], rest: &mut impl Iterator<Item = OsBytes>) -> Result<(), CliError> {
        let mut letters = letters;
        while let Some((letter, more)) = letters.split_first() {
            if !self.flag(*letter) {
                if !matches!(letter, b'S' | b'x') {
                    return Err(CliError::Unknown { option: word.clone(), nearest: None });
                }
                let attached = (!more.is_empty()).then_some(more);
                return self.value(*letter, OsBytes::new(vec![b'-', *letter]), attached, rest);
            }
            letters = more;
        }
        Ok(())
    }

    /// An option without a value; `false`: it has one.
    fn flag(&mut self, letter: u8) -> bool {
        match letter {
            b'f' => self.form = Form::Fold,
            b'e' => self.form = Form::Expand,
            b'c' => self.form = Form::Count,
            b'h' => self.help = true,
            _ => return false,
        }
        true
    }

    fn value(
        &mut self,
        letter: u8,
        option: OsBytes,
        attached: Option<&[u8]>,
        rest: &mut impl Iterator<Item = OsBytes>,
    ) -> Result<(), CliError> {
        let value = attached.map(OsBytes::from).or_else(|| rest.next());
        match (letter, value) {
            (b'S', Some(value)) => self.separator = unescaped(&value),
            (b'S', None) => return Err(CliError::missing(&option, "SEP")),
            (b'F', Some(value)) => self.files.push(Said { option, value }),
            (b'F', None) => return Err(CliError::missing(&option, "FILE")),
            (_, Some(value)) => self.without.push(Said { option, value }),
            (_, None) => return Err(CliError::missing(&option, "LIST")),
        }
        Ok(())
    }

    /// The answer, with its newline.
    ///
    /// # Errors
    /// A list or a file cannot be understood.
    pub(crate) fn answer(&self, site: &Site<'_>, stdin: &dyn Fn() -> io::Result<Vec<u8>>) -> Result<Vec<u8>, CliError> {
        if self.help {
            return Ok(HELP.into());
        }
        let mut hosts: Vec<Entry> = Vec::new();
        if !self.files.is_empty() {
            hosts.extend(site.files(&self.files)?);
        }
        if !self.lists.is_empty() {
            hosts.extend(site.lists(&self.lists)?);
        }
        if self.stdin {
            let read = |_: &OsBytes| stdin();
            let piped = Site { here: site.here.clone(), gpus: site.gpus, read: &read, is_file: site.is_file };
            hosts.extend(piped.files(&[Said { option: "hosts".into(), value: "stdin".into() }])?);
        }
        let without = if self.without.is_empty() { Vec::new() } else { site.lists(&self.without)? };
        let mut seen: BTreeSet<&str> = without.iter().map(|entry| entry.host.name.as_str()).collect();
        let names: Vec<&str> = hosts.iter().map(|entry| entry.host.name.as_str()).filter(|name| seen.insert(name)).collect();
        let mut text = match self.form {
            Form::Fold => hostlist::fold(names).into_bytes(),
            Form::Expand => names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>().join(self.separator.as_slice()),
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
    use super::*;
    use rlaunch_core::place::Here;

    fn answer(line: &str, stdin: &str) -> Result<String, String> {
        let site = Site {
            here: Here { name: "me".into(), cpus: 2 },
            gpus: &|| 0,
            read: &|path| match path.as_slice() {
                b"file" => Ok(b"f1 slots=2\nf2\n".to_vec()),
                _ => Err(io::Error::from_raw_os_error(2)),
            },
            is_file: &|path| path.as_slice() == b"file",
        };
        let words = line.split_whitespace().map(OsBytes::from);
        let query = parse(words).map_err(|error| error.render())?;
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
            ("^file", "f[1-2]\n"),
            ("-e a:4,bob@b", "a b\n"),
            ("-c -- n1", "1\n"),
            ("", "s[1-2]\n"),
            ("a -", "a,s[1-2]\n"),
        ] {
            assert_eq!(answer(line, "s1\ns2 # two\n").as_deref(), Ok(expected), "{line}");
        }
        assert!(answer("-h", "").is_ok_and(|text| text == HELP));
        assert!(HELP.lines().all(|line| line.len() <= 80));
    }

    #[test]
    fn what_is_no_question() {
        for (line, expected) in [
            ("--cuont", "error: unknown option '--cuont'\n  try     --count\n"),
            ("-Z", "error: unknown option '-Z'\n  try     rlaunch --help lists all options\n"),
            ("-x", "error: -x needs a value: LIST\n  try     rlaunch --help\n"),
            ("--fold=x a", "error: --fold takes no value, got 'x'\n  try     --fold\n"),
            ("--hostfile gone", "error: cannot read the hostfile gone: no such file or directory\n"),
            ("a,", "error: hosts, column 3: a host name is missing here\n     | a,\n     |   ^\n"),
        ] {
            assert_eq!(answer(line, "").unwrap_err(), expected, "{line}");
        }
    }
}
