//! `rlaunch store`: the store of a job, for scripts in it and for people.

use super::errors::CliError;
use super::nearest::nearest;
use super::scan::{self, Given};
use super::table::{ASK, Id, options};
use super::values::span;
use super::{Answer, Command, help};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;

pub(super) const USAGE: &str = "\
Usage: rlaunch store [OPTIONS] ACTION [WORD...]

Asks the key-value store of the job in which it runs:
  get KEY            print the value; exit code 1 if there is none
  set KEY VALUE      give a key a value; -: all of stdin
  append KEY VALUE   add to the end of a value
  add KEY [N]        add N (default: 1; -- -1) to a number, and print the sum
  delete KEY         remove it; exit code 1 if there is none
  wait KEY...        until all of them have a value
  ls [PREFIX]        the keys, one a line
  dump [PREFIX]      keys and values, a TAB between them
  fence NAME         until all ranks of the job have come to it

";

options! {
    Ask;
    Generation -b'g' ["generation"] Nothing: "the store of these processes, on rank 0's host";
    Raw -b'r' ["raw"] Nothing: "get: the value as it is, without a newline";
    Timeout -b't' ["timeout"] One("TIME"): "wait, fence: exit code 124 after TIME (0: never)";
    Help -b'h' ["help"] Nothing: "print this";
}

/// The action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Get,
    Set,
    Append,
    Add,
    Delete,
    Wait,
    List,
    Dump,
    Fence,
}

impl Action {
    const ALL: [(&'static str, Self); 9] = [
        ("get", Self::Get),
        ("set", Self::Set),
        ("append", Self::Append),
        ("add", Self::Add),
        ("delete", Self::Delete),
        ("wait", Self::Wait),
        ("ls", Self::List),
        ("dump", Self::Dump),
        ("fence", Self::Fence),
    ];

    const fn may_wait(self) -> bool {
        matches!(self, Self::Wait | Self::Fence)
    }

    /// How many words it takes, and what they are.
    const fn words(self) -> (usize, usize, &'static str) {
        match self {
            Self::Get | Self::Delete => (1, 1, "KEY"),
            Self::Set | Self::Append => (2, 2, "KEY VALUE"),
            Self::Add => (1, 2, "KEY [N]"),
            Self::Wait => (1, usize::MAX, "KEY..."),
            Self::List | Self::Dump => (0, 1, "[PREFIX]"),
            Self::Fence => (1, 1, "NAME"),
        }
    }
}

/// The names of the actions.
pub(super) fn actions() -> impl Iterator<Item = &'static str> {
    Action::ALL.into_iter().map(|(name, _)| name)
}

/// The request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) action: Action,
    pub(crate) words: Vec<OsBytes>,
    pub(crate) generation: bool,
    pub(crate) raw: bool,
    pub(crate) timeout: Option<Span>,
}

/// Reads the words after `store`.
pub(super) fn parse(words: Vec<OsBytes>) -> Result<Command, CliError> {
    let words = scan::mixed(words.into_iter(), &ASK).map_err(below_zero)?;
    let (mut generation, mut raw, mut timeout) = (false, None, None);
    for Given { row, spelled, value, .. } in &words.given {
        let Id::Ask(opt) = row.id else { continue };
        match opt {
            Opt::Generation => generation = true,
            Opt::Raw => raw = Some(spelled),
            Opt::Timeout => timeout = Some((spelled, span(spelled, value)?)),
            Opt::Help => return Ok(Command::text(help::command_named("store"))),
        }
    }
    let of = OsBytes::from("rlaunch store");
    let mut words = words.argv.into_iter();
    let word = words.next().ok_or_else(|| CliError::missing(&of, "ACTION, as get or set", &ASK))?;
    let named = Action::ALL.iter().find(|(name, _)| name.as_bytes() == word.as_slice());
    let Some((_, action)) = named.copied() else {
        let near = nearest(&word, Action::ALL.iter().map(|(name, _)| *name)).unwrap_or("--help");
        return Err(CliError::Value {
            option: of,
            takes: "get, set, append, add, delete, wait, ls, dump or fence".into(),
            got: word,
            hint: Some(format!("rlaunch store {near}").into()),
        });
    };
    let words: Vec<OsBytes> = words.collect();
    let (least, most, what) = action.words();
    let of = OsBytes::from(format!("rlaunch store {word}"));
    if words.len() < least {
        return Err(CliError::missing(&of, what, &ASK));
    }
    if let Some(more) = words.get(most) {
        return Err(CliError::Value {
            option: of.clone(),
            takes: what.into(),
            got: more.clone(),
            hint: Some("words with blanks in quotes".into()),
        });
    }
    let idle = raw.filter(|_| action != Action::Get).map(|option| (option, "get"));
    let idle = idle.or(timeout.filter(|_| !action.may_wait()).map(|(option, _)| (option, "wait and fence")));
    if let Some((option, with)) = idle {
        let takes = format!("only {with}").into();
        return Err(CliError::Value { option: option.clone(), takes, got: of, hint: None });
    }
    let timeout = timeout.map(|(_, time)| time).filter(|time| *time > Span::ZERO);
    Ok(Command::Answer(Answer::Ask(Box::new(Request { action, words, generation, raw: raw.is_some(), timeout }))))
}

/// A number below 0 looks like an option.
fn below_zero(error: CliError) -> CliError {
    let number = |word: &OsBytes| word.len() > 1 && word.iter().skip(1).all(u8::is_ascii_digit);
    match error {
        CliError::Unknown { option, .. } if number(&option) => {
            let hint = format!("rlaunch store add KEY -- {option}");
            let takes = "numbers below 0 behind --".into();
            CliError::Value { option: "rlaunch store add".into(), takes, got: option, hint: Some(hint.into()) }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Vec<OsBytes>, String> {
        match parse(line.split(' ').map(OsBytes::from).collect()).map_err(|error| error.render())? {
            Command::Answer(Answer::Ask(request)) => Ok(request.words),
            _ => Ok(Vec::new()),
        }
    }

    #[test]
    fn number_below_zero_is_accepted_after_two_dashes() {
        assert_eq!(parsed("add a -- -7"), Ok(["a", "-7"].map(OsBytes::from).to_vec()));
        let said = parsed("add a -7").unwrap_err();
        assert!(said.contains("got '-7'") && said.contains("rlaunch store add KEY -- -7"), "{said}");
        assert!(parsed("add a -7x").unwrap_err().contains("unknown option"));
    }
}
