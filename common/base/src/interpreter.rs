//! Command lines of Python and of shells: the place of the program's text. If the text is standard input, as with `python3 -` and `sh -s`,
//! only rank 0 would run it. The other ranks would read an empty program and succeed.

/// Interpreter, by the way in which its options take values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interpreter {
    /// CPython 3.9 to 3.14, and PyPy. The value of an option is the rest of the word, or the next word.
    Python,
    /// bash, dash, and the ash of busybox. The value of an option is the next word, and the rest of the word has further options.
    Bash,
    /// zsh and ksh. The value of an option is the rest of the word, or the next word.
    Zsh,
}

/// Place of the text that an interpreter runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source<'a> {
    /// The command line itself: `-c`.
    Command(&'a [u8]),
    /// A module of Python: `-m`.
    Module(&'a [u8]),
    /// A file.
    Script(&'a [u8]),
    /// Standard input.
    StandardInput {
        /// Whether a word asks for it, such as `-` and `-s`. Otherwise the command line names no other source.
        is_asked: bool,
    },
}

impl Interpreter {
    /// Names such as `python`, `python3.12`, `python3.13t` (free-threaded) and `pypy3` are Python's.
    fn of(program: &[u8]) -> Option<Self> {
        match program.rsplit(|b| *b == b'/').next()? {
            b"sh" | b"bash" | b"dash" | b"ash" => Some(Self::Bash),
            b"zsh" | b"ksh" | b"mksh" => Some(Self::Zsh),
            name => {
                let version = name.strip_prefix(b"python").or_else(|| name.strip_prefix(b"pypy"))?;
                version.iter().all(|b| b"0123456789.dt".contains(b)).then_some(Self::Python)
            }
        }
    }
}

/// Finds the interpreter of a command line, and its source. None: another program, or nothing is run, as by `python3 -V`.
#[must_use]
pub fn parse<'a>(argv: impl IntoIterator<Item = &'a [u8]>) -> Option<(Interpreter, Source<'a>)> {
    let mut words = argv.into_iter();
    let interpreter = Interpreter::of(words.next()?)?;
    let (mut is_command, mut is_asked) = (false, false);
    let operand = loop {
        let Some(word) = words.next() else { break None };
        match word {
            b"--" => break words.next(),
            // A dash ends the options of a shell.
            b"-" if interpreter != Interpreter::Python => break words.next().or(Some(word)),
            b"--version" | b"--help" | b"--help-all" | b"--help-env" | b"--help-xoptions" | b"--info" => return None,
            b"--rcfile" | b"--init-file" | b"--emulate" | b"--check-hash-based-pycs" | b"--jit" => drop(words.next()),
            [b'-', b'-', ..] => {}
            [b'-' | b'+', letters @ ..] if !letters.is_empty() => {
                let mut letters = letters;
                while let [letter, rest @ ..] = letters {
                    letters = rest;
                    match (interpreter, *letter) {
                        (Interpreter::Python, b'h' | b'?' | b'V') => return None,
                        (Interpreter::Python, b'c' | b'm' | b'W' | b'X') | (Interpreter::Zsh, b'o') => {
                            let value = if rest.is_empty() { words.next() } else { Some(rest) };
                            match *letter {
                                b'c' => return Some((interpreter, Source::Command(value?))),
                                b'm' => return Some((interpreter, Source::Module(value.unwrap_or_default()))),
                                _ => break,
                            }
                        }
                        (Interpreter::Bash, b'o' | b'O') => drop(words.next()),
                        (Interpreter::Bash | Interpreter::Zsh, b'c') => is_command = true,
                        (Interpreter::Bash | Interpreter::Zsh, b's') => is_asked = true,
                        _ => {}
                    }
                }
            }
            _ => break Some(word),
        }
    };
    let source = match operand {
        Some(text) if is_command => Source::Command(text),
        None if is_command => return None,
        Some(b"-") => Source::StandardInput { is_asked: true },
        Some(path) if !is_asked => Source::Script(path),
        Some(_) | None => Source::StandardInput { is_asked },
    };
    Some((interpreter, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(line: &str) -> Option<Source<'_>> {
        parse(line.split(' ').map(str::as_bytes)).map(|(_, source)| source)
    }

    #[test]
    fn program_is_standard_input_if_a_word_asks_for_it() {
        for line in [
            "python3 -",
            "/usr/bin/python3.11 -u -W ignore - a b",
            "python3 -Wignore::DeprecationWarning -",
            "python3 -Ximporttime -",
            "python3 --check-hash-based-pycs never -",
            "python3.13t -uX dev -- -",
            "pypy3 -",
            "sh -",
            "sh -s",
            "/bin/bash -es x",
            "bash --norc -s -- x",
            "bash --rcfile F -s",
            "bash -o pipefail -s",
            "bash -oe pipefail -s",
            "zsh -s",
            "zsh -oerrexit -",
            "zsh --emulate sh -s",
        ] {
            assert_eq!(source(line), Some(Source::StandardInput { is_asked: true }), "{line}");
        }
    }

    #[test]
    fn program_is_standard_input_if_no_other_source_is_named() {
        for line in [
            "sh",
            "/bin/bash",
            "bash -e",
            "bash --norc -o pipefail +x",
            "bash --rcfile F",
            "zsh -oerrexit",
            "python3",
            "python3 -u",
            "python3 --",
            "python3.12 -u -W ignore",
            "python3 -Xfaulthandler -uWerror",
            "python3 -Ximporttime",
        ] {
            assert_eq!(source(line), Some(Source::StandardInput { is_asked: false }), "{line}");
        }
    }

    #[test]
    fn script_command_and_module_are_found_after_the_options() {
        for line in
            ["python3 x -", "python3 -Wignore x", "python3 -- x", "sh x -s", "sh - x", "bash -e -- x", "zsh -O x"]
        {
            assert_eq!(source(line), Some(Source::Script(b"x")), "{line}");
        }
        for line in ["python3 -c x -", "python3 -ucx", "sh -c x", "bash -ec x -s", "bash -oc errexit x", "zsh -oa -c x"]
        {
            assert_eq!(source(line), Some(Source::Command(b"x")), "{line}");
        }
        assert_eq!(source("python3 -c - -"), Some(Source::Command(b"-")));
        assert_eq!(source("sh -- -s"), Some(Source::Script(b"-s")));
        assert_eq!(source("python3 -m json.tool -"), Some(Source::Module(b"json.tool")));
        assert_eq!(source("python3 -umx"), Some(Source::Module(b"x")));
    }

    #[test]
    fn other_programs_and_command_lines_that_run_nothing_have_no_source() {
        for line in [
            "bash --version",
            "sh -c -s",
            "python3 -V",
            "python3 -uV x.py",
            "python3 -h -",
            "python3 -c",
            "python3-config",
            "pythonic -",
            "cat -",
            "./train -s",
            "",
        ] {
            assert_eq!(source(line), None, "{line}");
        }
        assert_eq!(parse([]), None);
    }
}
