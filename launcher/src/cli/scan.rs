//! From words to options: where rlaunch's own end and the program's begin, and which word is whose value.

use super::errors::CliError;
use super::planned_options::{self, Later, Same};
use super::table::{Id, JOB, Row, Table, Takes};
use rlaunch_base::os_bytes::OsBytes;
use std::vec::IntoIter;

/// An option as it was given.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) row: &'static Row,
    /// As it was typed, for messages.
    pub(super) spelled: OsBytes,
    /// Its value; empty where it takes none.
    pub(super) value: OsBytes,
    /// Its value was a word of its own.
    pub(super) apart: bool,
}

impl Given {
    /// Whether it says which hosts there are.
    pub(super) fn names_hosts(&self) -> bool {
        matches!(self.row.id, Id::Place(opt) if opt.names_hosts())
    }
}

/// A command line, split.
#[derive(Debug)]
pub(super) struct Words {
    /// Which options there are.
    pub(super) table: &'static Table,
    pub(super) given: Vec<Given>,
    /// The program and its arguments, byte for byte.
    pub(super) argv: Vec<OsBytes>,
    /// Other launchers' options that ask for what happens anyway, with their values.
    pub(super) same: Vec<OsBytes>,
    /// The program came after `--`.
    pub(super) after_dashes: bool,
    /// Options of other launchers that ask for what rlaunch does not do.
    pub(super) refused: Vec<CliError>,
}

/// Splits a command line. The first word that is no option, nor an option's value, is the program.
pub(super) fn split(args: IntoIter<OsBytes>) -> Result<Words, CliError> {
    Words::of(&JOB).read(args, true)
}

/// Splits a command line that names no program: options may stand anywhere, and a dash alone is a word. After `--` there are
/// words only.
pub(super) fn mixed(args: IntoIter<OsBytes>, table: &'static Table) -> Result<Words, CliError> {
    Words::of(table).read(args, false)
}

/// The word after an en dash, em dash or minus sign, as documents show `-`.
fn after_odd_dash(word: &[u8]) -> Option<&str> {
    std::str::from_utf8(word)
        .ok()?
        .strip_prefix(['\u{2010}', '\u{2011}', '\u{2012}', '\u{2013}', '\u{2014}', '\u{2212}'])
}

/// Passes over the value of an option that is not ours: a word between it and another option, which is no path.
fn skip_value(has_value: bool, rest: &mut IntoIter<OsBytes>) {
    let mut words = rest.as_slice().iter();
    let is_value = |word: &OsBytes| !word.starts_with(b"-") && !word.contains(&b'/');
    if !has_value && words.next().is_some_and(is_value) && words.next().is_some_and(|word| word.starts_with(b"-")) {
        rest.next();
    }
}

impl Words {
    const fn of(table: &'static Table) -> Self {
        Self { table, given: Vec::new(), argv: Vec::new(), same: Vec::new(), after_dashes: false, refused: Vec::new() }
    }

    /// `program`: the first word that is none of ours ends them.
    fn read(mut self, mut rest: IntoIter<OsBytes>, program: bool) -> Result<Self, CliError> {
        while let Some(word) = rest.next() {
            let has_value = word.contains(&b'=');
            let taken = match word.as_slice() {
                b"--" => {
                    self.after_dashes = true;
                    break;
                }
                [b'-', b'-', long @ ..] => self.named(&word, long, &mut rest),
                [b'-', first, more @ ..] => self.dashed(&word, *first, more, &mut rest),
                text if let Some(rest) = after_odd_dash(text) => Err(CliError::no_dash(&word, rest)),
                _ => {
                    self.argv.reserve(rest.len() + 1);
                    self.argv.push(word);
                    if program {
                        break;
                    }
                    Ok(())
                }
            };
            match taken {
                Ok(()) => {}
                // All such options of a line are worth one answer, with wrong values of others.
                Err(error @ (CliError::NotYet { .. } | CliError::AmbiguousN { .. })) => {
                    skip_value(has_value, &mut rest);
                    self.refused.push(error);
                }
                Err(error) => {
                    self.refused.push(error);
                    return Err(CliError::all(self.refused));
                }
            }
        }
        self.argv.extend(rest);
        if program || self.refused.is_empty() { Ok(self) } else { Err(CliError::all(self.refused)) }
    }

    /// The error for an option that is not in the table.
    fn refuse(&self, spelled: &OsBytes, typed: &OsBytes, later: Option<&'static Later>) -> CliError {
        match later.filter(|_| self.table.is_jobs()) {
            Some(later) => CliError::NotYet { what: format!("{spelled}"), hint: later.hint.map(Into::into) },
            None => CliError::unknown(typed, self.table),
        }
    }

    /// `-word`, as other launchers spell their long options, or letters together.
    fn dashed(&mut self, word: &OsBytes, first: u8, more: &[u8], rest: &mut IntoIter<OsBytes>) -> Result<(), CliError> {
        let name = word.get(1..).unwrap_or_default();
        let until = name.iter().position(|b| *b == b'=').unwrap_or(name.len());
        let known = |name| {
            self.table.by_name(name).is_some() || (self.table.is_jobs() && planned_options::by_name(name).is_some())
        };
        if until > 1 && name.get(..until).is_some_and(known) {
            return self.named(word, name, rest);
        }
        if let Some(apart) = self.unjoined(first, name) {
            return Err(CliError::joined(word, apart));
        }
        let mut letter = first;
        let mut more = more;
        loop {
            let spelled = OsBytes::new(vec![b'-', letter]);
            if letter == b'N' && self.table.is_jobs() {
                let value = if more.is_empty() { rest.next().unwrap_or_default() } else { more.into() };
                return Err(CliError::AmbiguousN { value });
            }
            let Some(row) = self.table.by_letter(letter) else {
                return Err(self.refuse(&spelled, word, planned_options::by_letter(letter)));
            };
            if !matches!(row.takes, Takes::Nothing | Takes::Maybe(_)) {
                let attached = (!more.is_empty()).then(|| more.strip_prefix(b"=").unwrap_or(more));
                return self.push(row, spelled, attached, rest);
            }
            if let Some(got) = more.strip_prefix(b"=") {
                return Err(CliError::Unwanted { option: spelled, got: got.into() });
            }
            self.given.push(Given { row, spelled, value: OsBytes::default(), apart: false });
            let Some((next, after)) = more.split_first() else { return Ok(()) };
            (letter, more) = (*next, after);
        }
    }

    /// The spelling of a number that stands without a gap after other letters than its own: `-np 2` for `-np2`, `-l -n N` for `-nl`.
    fn unjoined(&self, first: u8, name: &[u8]) -> Option<String> {
        let takes_number = |row: &Row| row.takes == Takes::One("N");
        let digits = name.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        let (word, number) = name.split_at_checked(name.len() - digits)?;
        if word.len() > 1 && !number.is_empty() && self.table.by_name(word).is_some_and(takes_number) {
            return Some(format!("-{} {}", OsBytes::from(word), OsBytes::from(number)));
        }
        let are_flags = |letters: &[u8]| letters.iter().all(|letter| self.is_flag(*letter));
        if self.table.is_jobs() && !word.is_empty() && !number.is_empty() && are_flags(word) {
            return Some(format!("-{} -n {}", OsBytes::from(word), OsBytes::from(number)));
        }
        let letters = word.get(1..).filter(|letters| !letters.is_empty() && self.table.is_jobs())?;
        let number = if number.is_empty() { "N".into() } else { OsBytes::from(number) };
        (self.table.by_letter(first).is_some_and(takes_number) && are_flags(letters))
            .then(|| format!("-{} -{} {number}", OsBytes::from(letters), char::from(first)))
    }

    fn is_flag(&self, letter: u8) -> bool {
        self.table.by_letter(letter).is_some_and(|row| row.takes == Takes::Nothing)
    }

    /// An option in the place of another one's value.
    fn is_option(&self, word: &[u8]) -> bool {
        word.strip_prefix(b"--").is_some_and(|name| name.len() > 1 && self.table.by_name(name).is_some())
    }

    /// `name` or `name=value`, after its dashes.
    fn named(&mut self, word: &OsBytes, text: &[u8], rest: &mut IntoIter<OsBytes>) -> Result<(), CliError> {
        let until = text.iter().position(|b| *b == b'=').unwrap_or(text.len());
        let (name, value) = text.split_at(until);
        let spelled = OsBytes::from(word.get(..word.len() - value.len()).unwrap_or_default());
        // Hydra's -env takes two words; our --env, as elsewhere, takes one.
        let hydras = word.as_slice() == b"-env" && self.table.is_jobs();
        let Some(row) = self.table.by_name(if hydras { b"genv" } else { name }) else {
            return match planned_options::by_name(name).filter(|_| self.table.is_jobs()) {
                Some(later) => self.foreign(later, &spelled, value.strip_prefix(b"="), rest),
                None => Err(self.refuse(&spelled, &spelled, None)),
            };
        };
        self.push(row, spelled, value.strip_prefix(b"="), rest)
    }

    /// Another launcher's option: taken if it asks for what happens anyway.
    fn foreign(
        &mut self,
        later: &Later,
        spelled: &OsBytes,
        attached: Option<&[u8]>,
        rest: &mut IntoIter<OsBytes>,
    ) -> Result<(), CliError> {
        let refused = |what: String| CliError::NotYet { what, hint: later.hint.map(Into::into) };
        let Some(same) = later.same else { return Err(refused(format!("{spelled}"))) };
        let value = match (same, attached) {
            (Same::Flag, Some(got)) => {
                return Err(CliError::Unwanted { option: spelled.clone(), got: got.into() });
            }
            (Same::Flag | Same::Attached(_), None) => {
                self.same.push(spelled.clone());
                return Ok(());
            }
            (Same::Any | Same::Only(_) | Same::Attached(_), Some(value)) => OsBytes::from(value),
            (Same::Any | Same::Only(_), None) => {
                rest.next().ok_or_else(|| CliError::missing(spelled, "VALUE", self.table))?
            }
        };
        let whole = format!("{spelled} {value}");
        if !same.allows(&value) {
            return Err(refused(whole));
        }
        self.same.push(whole.into());
        Ok(())
    }

    fn push(
        &mut self,
        row: &'static Row,
        spelled: OsBytes,
        attached: Option<&[u8]>,
        rest: &mut IntoIter<OsBytes>,
    ) -> Result<(), CliError> {
        let value = match (row.takes, attached) {
            (Takes::Nothing | Takes::Maybe(_), None) => OsBytes::default(),
            (Takes::Maybe(_), Some(value)) => value.into(),
            (Takes::Nothing, Some(got)) => return Err(CliError::Unwanted { option: spelled, got: got.into() }),
            (Takes::One(_), Some(value)) => value.into(),
            (Takes::One(what), None) => match rest.next() {
                Some(got) if self.is_option(&got) => {
                    let hint = format!("{spelled} {what} {got}   or   {spelled}={got}, if that is the value");
                    return Err(CliError::Value { option: spelled, takes: what.into(), got, hint: Some(hint.into()) });
                }
                value => value.ok_or_else(|| CliError::missing(&spelled, what, self.table))?,
            },
            (Takes::Pair(what), attached) => {
                let name = attached.map(OsBytes::from).or_else(|| rest.next());
                match (name, rest.next()) {
                    (Some(name), Some(value)) => OsBytes::new([name.as_slice(), b"=", value.as_slice()].concat()),
                    _ => return Err(CliError::missing(&spelled, what, self.table)),
                }
            }
        };
        let apart = attached.is_none() && !matches!(row.takes, Takes::Nothing | Takes::Maybe(_));
        self.given.push(Given { row, spelled, value, apart });
        Ok(())
    }
}
