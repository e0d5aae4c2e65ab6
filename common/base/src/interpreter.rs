//! Programs that read their own text from standard input, such as `python3 -` and `sh -s`. Only rank 0 would run the text; the other
//! ranks would read an empty program and succeed.

/// Options of Python that take the next word as their value.
const PYTHON_VALUES: &[u8] = b"WX";
/// Options of shells that take the next word as their value.
const SHELL_VALUES: &[u8] = b"oO";

/// Whether a command line makes an interpreter read its program from standard input because the command line asks for it.
#[must_use]
pub fn reads_program<'a>(argv: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let mut words = argv.into_iter();
    let Some(program) = words.next() else { return false };
    let name = program.rsplit(|b| *b == b'/').next().unwrap_or_default();
    match name {
        b"sh" | b"bash" | b"dash" | b"ash" | b"ksh" | b"mksh" | b"zsh" => shell(words),
        name if name.starts_with(b"python") || name.starts_with(b"pypy") => python(words),
        _ => false,
    }
}

/// Whether a command line is an interpreter with no script and no code. It reads its program from standard input.
#[must_use]
pub fn is_bare<'a>(argv: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let mut words = argv.into_iter();
    let Some(program) = words.next() else { return false };
    let name = program.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let (valued, others): (_, &[u8]) = match name {
        b"sh" | b"bash" | b"dash" | b"ash" | b"ksh" | b"mksh" | b"zsh" => (SHELL_VALUES, b"c"),
        name if is_python(name) => (PYTHON_VALUES, b"cmVh?"),
        _ => return false,
    };
    while let Some(word) = words.next() {
        match word {
            b"--version" | b"--help" | b"--help-all" | b"--help-env" | b"--help-xoptions" => return false,
            // These options of shells take a file.
            b"--rcfile" | b"--init-file" | b"--check-hash-based-pycs" => drop(words.next()),
            [b'-', b'-', ..] => {}
            [b'-' | b'+', options @ ..] if !options.is_empty() => {
                // The letters after an option with a value are its value.
                let end = options.iter().position(|b| valued.contains(b));
                let letters = options.get(..end.unwrap_or(options.len())).unwrap_or_default();
                if letters.iter().any(|b| others.contains(b)) {
                    return false;
                }
                if end.is_some_and(|end| end + 1 == options.len()) {
                    words.next();
                }
            }
            _ => return false,
        }
    }
    true
}

/// `python`, `python3`, `python3.12`, and those of PyPy.
fn is_python(name: &[u8]) -> bool {
    let version = name.strip_prefix(b"python").or_else(|| name.strip_prefix(b"pypy"));
    version.is_some_and(|version| version.iter().all(|b| b.is_ascii_digit() || *b == b'.'))
}

fn python<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> bool {
    while let Some(word) = words.next() {
        match word {
            b"-" => return true,
            [b'-', b'-', ..] => {}
            [b'-', options @ ..] => {
                if options.iter().any(|b| b"cm".contains(b)) {
                    return false;
                }
                if options.last().is_some_and(|b| PYTHON_VALUES.contains(b)) {
                    words.next();
                }
            }
            _ => return false,
        }
    }
    false
}

fn shell<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut is_asked = false;
    while let Some(word) = words.next() {
        match word {
            b"-" | b"--" => return is_asked,
            [b'-', b'-', ..] => {}
            [b'-', options @ ..] => {
                if options.contains(&b'c') {
                    return false;
                }
                is_asked |= options.contains(&b's');
                if options.last().is_some_and(|b| SHELL_VALUES.contains(b)) {
                    words.next();
                }
            }
            _ => return is_asked,
        }
    }
    is_asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_from_standard_input_is_recognised_by_the_words_that_ask_for_it() {
        let reads = |line: &str| reads_program(line.split(' ').map(str::as_bytes));
        for line in [
            "python3 -",
            "/usr/bin/python3.11 -u -W ignore - a b",
            "pypy3 -",
            "sh -s",
            "/bin/bash -es x",
            "bash --norc -s -- x",
            "bash -o pipefail -s",
            "zsh -s",
        ] {
            assert!(reads(line), "{line}");
        }
        for line in [
            "python3 x.py -",
            "python3 -c - -",
            "python3 -m json.tool -",
            "python3 -Wignore x.py",
            "python3 -u",
            "sh -c -s",
            "sh x.sh -s",
            "sh -- -s",
            "bash -ec true -s",
            "cat -",
            "./train -s",
            "python3",
            "sh",
        ] {
            assert!(!reads(line), "{line}");
        }
        assert!(!reads_program([]));
    }

    #[test]
    fn interpreter_without_a_script_is_bare() {
        let bare = |line: &str| is_bare(line.split(' ').map(str::as_bytes));
        for line in [
            "sh",
            "/bin/bash",
            "bash -e",
            "bash --norc -o pipefail +x",
            "python3",
            "python3.12 -u -W ignore",
            "python3 -Xfaulthandler -uWerror",
        ] {
            assert!(bare(line), "{line}");
        }
        for line in [
            "sh x.sh",
            "sh -c true",
            "bash --version",
            "python3 -V",
            "python3 -c pass",
            "python3 -m pkg",
            "python3 x.py",
            "python3 -u x.py",
            "python3-config",
            "cat",
            "",
        ] {
            assert!(!bare(line), "{line}");
        }
        assert!(!is_bare([]));
    }
}
