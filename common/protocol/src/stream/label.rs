//! `--prefix FMT`: what stands before each line. It is parsed by the launcher, so that a typo is an error before anything
//! starts, and rendered once per stream: a line costs a copy, never a format.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use rlaunch_base::error::Hint;
use rlaunch_base::id::{AppIndex, LocalRank, Rank, Std};
use rlaunch_base::os_bytes::{OsBytes, Visible};

/// The longest label. Every frame has room for it and more.
pub const MAX_LABEL: usize = 256;
/// The widest field.
const MAX_WIDTH: usize = 99;
/// Characters of a format (SHIFT OUT, SHIFT IN) between which a label has the colour of its rank.
const COLOUR: [u8; 2] = [0x0e, 0x0f];
/// Colours of ranks, one after the other (ECMA-48, SGR). Red is for errors.
const COLOURS: [u8; 11] = [36, 32, 33, 35, 34, 96, 92, 93, 95, 94, 90];
/// The text for a fact that is not known (yet).
const UNKNOWN: &str = "?";

/// Whose line it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who<'a> {
    /// `%r`, after the group
    pub rank: Rank,
    /// The group of the rank; empty: none.
    pub group: &'a [u8],
    /// `%l`
    pub local_rank: LocalRank,
    /// `%a`
    pub app: AppIndex,
    /// `%h`; unknown is shown as `?`.
    pub host: Option<&'a [u8]>,
    /// `%p`; unknown is shown as `?`.
    pub pid: Option<u32>,
    /// `%s`
    pub std: Std,
}

/// A rendered label, of at most [`MAX_LABEL`] bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label(Box<[u8]>);

impl Label {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

/// A parsed format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prefix {
    text: OsBytes,
    parts: Vec<Part>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(Vec<u8>),
    /// The colour of the rank begins, or ends.
    Colour {
        begins: bool,
    },
    Field {
        what: Field,
        width: usize,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Rank,
    LocalRank,
    App,
    Host,
    Pid,
    Std,
}

/// Why a format is refused. Columns count characters from 1.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PrefixError {
    /// A letter after `%` that means nothing.
    #[error("'{format}': unknown escape '{escape}' at column {column}")]
    Unknown {
        /// The whole format.
        format: OsBytes,
        /// The escape, from `%`.
        escape: OsBytes,
        /// The column of its first character.
        column: usize,
    },
    /// The format ends after `%` or after a width.
    #[error("'{format}': the escape '{escape}' at column {column} is not finished")]
    Unfinished {
        /// The whole format.
        format: OsBytes,
        /// The escape, from `%`.
        escape: OsBytes,
        /// The column of its first character.
        column: usize,
    },
    /// A width of 0, with a leading 0, above 99, or before `%`.
    #[error("'{format}': bad width in '{escape}' at column {column}")]
    Width {
        /// The whole format.
        format: OsBytes,
        /// The escape, from `%`.
        escape: OsBytes,
        /// The column of its first character.
        column: usize,
    },
    /// A label is part of a line.
    #[error("'{format}': line break at column {column}")]
    LineBreak {
        /// The whole format.
        format: OsBytes,
        /// Its column.
        column: usize,
    },
    /// More than [`MAX_LABEL`] bytes.
    #[error("'{format}' makes a label of at least {len} bytes; {MAX_LABEL} are allowed")]
    TooLong {
        /// The whole format.
        format: OsBytes,
        /// Length of the label.
        len: usize,
    },
}

impl Hint for PrefixError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Unknown { .. } | Self::Unfinished { .. } => {
                "%r rank, %l local rank, %a app index, %h host, %p pid, %s out or err, %% percent (width: %4r)"
            }
            Self::Width { .. } => "a width is a number from 1 to 99 before r, l, a, h, p or s, as in %4r",
            Self::LineBreak { .. } => "keep the prefix on one line",
            Self::TooLong { .. } => "shorten the text or the widths",
        }))
    }
}

impl Prefix {
    /// Whether nothing stands before a line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The label of `-l`.
    pub const DEFAULT: &'static str = "%r: ";

    /// Parses a format.
    ///
    /// # Errors
    /// An escape that does not exist or is not finished, a line break, or more than [`MAX_LABEL`] bytes for any rank.
    pub fn parse(format: &[u8]) -> Result<Self, PrefixError> {
        let mut parts = Vec::new();
        let mut rest = format;
        while let Some(&first) = rest.first() {
            let at = format.len() - rest.len();
            if first == b'%' {
                let (part, after) = escape(format, at, rest)?;
                parts.push(part);
                rest = after;
            } else if COLOUR.contains(&first) {
                parts.push(Part::Colour { begins: first == COLOUR[0] });
                rest = rest.get(1..).unwrap_or_default();
            } else {
                let [begin, end] = COLOUR;
                let (text, after) = rest.split_at(memchr::memchr3(b'%', begin, end, rest).unwrap_or(rest.len()));
                if let Some(offset) = memchr::memchr2(b'\n', b'\r', text) {
                    return Err(PrefixError::LineBreak { format: format.into(), column: column(format, at + offset) });
                }
                parts.push(Part::Text(text.to_vec()));
                rest = after;
            }
        }
        let least = parts.iter().map(Part::least).sum();
        if least > MAX_LABEL {
            return Err(PrefixError::TooLong { format: format.into(), len: least });
        }
        Ok(Self { text: format.into(), parts })
    }

    /// The format whose label has the colour of its rank. A label without bytes stays so.
    #[must_use]
    pub fn coloured(format: &[u8]) -> OsBytes {
        let [begin, end] = COLOUR;
        if format.is_empty() { OsBytes::default() } else { OsBytes::new([&[begin], format, &[end]].concat()) }
    }

    /// The label of one stream.
    ///
    /// # Errors
    /// It would be longer than [`MAX_LABEL`] bytes (a long host name).
    pub fn render(&self, who: &Who<'_>) -> Result<Label, PrefixError> {
        let mut out = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Colour { begins: true } => {
                    let colour = COLOURS.get(who.rank.index() % COLOURS.len()).copied().unwrap_or_default();
                    out.extend_from_slice(format!("\x1b[{colour}m").as_bytes());
                }
                Part::Colour { begins: false } => out.extend_from_slice(b"\x1b[0m"),
                Part::Field { what, width } => {
                    out.extend_from_slice(format!("{:>width$}", what.shown(who)).as_bytes());
                }
            }
        }
        if out.len() > MAX_LABEL {
            return Err(PrefixError::TooLong { format: self.text.clone(), len: out.len() });
        }
        Ok(Label(out.into_boxed_slice()))
    }
}

impl Part {
    /// The fewest bytes it can become.
    const fn least(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Colour { .. } => 0,
            Self::Field { width, .. } => *width,
        }
    }
}

impl Field {
    fn shown(self, who: &Who<'_>) -> String {
        let unknown = || String::from(UNKNOWN);
        match self {
            Self::Rank if who.group.is_empty() => who.rank.to_string(),
            Self::Rank => format!("{}/{}", Visible(who.group), who.rank),
            Self::LocalRank => who.local_rank.to_string(),
            Self::App => who.app.to_string(),
            // A host's name comes from a file or another machine: it must not end the line or drive the terminal.
            Self::Host => who.host.map_or_else(unknown, |host| Visible(host).to_string()),
            Self::Pid => who.pid.map_or_else(unknown, |pid| pid.to_string()),
            Self::Std => String::from(match who.std {
                Std::In => "in",
                Std::Out => "out",
                Std::Err => "err",
            }),
        }
    }
}

/// The escape at the start of `rest`, which lies at `at` in `format`, and what follows it.
fn escape<'a>(format: &[u8], at: usize, rest: &'a [u8]) -> Result<(Part, &'a [u8]), PrefixError> {
    let body = rest.get(1..).unwrap_or_default();
    let digits = body.iter().take_while(|b| b.is_ascii_digit()).count();
    let (number, after) = body.split_at(digits);
    let subject = |len: usize| (format.into(), rest.get(..len).unwrap_or(rest).into(), column(format, at));
    let Some((&letter, after)) = after.split_first() else {
        let (format, escape, column) = subject(rest.len());
        return Err(PrefixError::Unfinished { format, escape, column });
    };
    let what = match letter {
        b'%' => None,
        b'r' => Some(Field::Rank),
        b'l' => Some(Field::LocalRank),
        b'a' => Some(Field::App),
        b'h' => Some(Field::Host),
        b'p' => Some(Field::Pid),
        b's' => Some(Field::Std),
        _ => {
            // The whole character, or the message would show half of it.
            let tail = after.iter().take_while(|&&b| letter >= 0x80 && b & 0xC0 == 0x80).count();
            let (format, escape, column) = subject(2 + digits + tail);
            return Err(PrefixError::Unknown { format, escape, column });
        }
    };
    match (what, width(number)) {
        (None, _) if number.is_empty() => Ok((Part::Text(b"%".to_vec()), after)),
        (Some(what), Some(width)) => Ok((Part::Field { what, width }, after)),
        (None, _) | (Some(_), None) => {
            let (format, escape, column) = subject(2 + digits);
            Err(PrefixError::Width { format, escape, column })
        }
    }
}

/// A width; none given is 0. A leading zero is refused: it would mean zeros to those who know printf.
fn width(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() {
        return Some(0);
    }
    let number = digits.iter().try_fold(0usize, |sum, &d| sum.checked_mul(10)?.checked_add(usize::from(d - b'0')))?;
    (digits.first() != Some(&b'0') && number <= MAX_WIDTH).then_some(number)
}

/// The column of byte `at`, in characters as the user sees them.
fn column(format: &[u8], at: usize) -> usize {
    1 + String::from_utf8_lossy(format.get(..at).unwrap_or(format)).chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WHO: Who<'_> = Who {
        group: b"",
        rank: Rank::new(12),
        local_rank: LocalRank::new(4),
        app: AppIndex::new(1),
        host: Some(b"node7"),
        pid: Some(4711),
        std: Std::Err,
    };

    fn label(format: &str, who: &Who<'_>) -> String {
        String::from_utf8(Prefix::parse(format.as_bytes()).unwrap().render(who).unwrap().0.into_vec()).unwrap()
    }

    #[test]
    fn every_escape() {
        assert_eq!(label(Prefix::DEFAULT, &WHO), "12: ");
        assert_eq!(label("[%a/%r.%l@%h:%p %s] 100%% ", &WHO), "[1/12.4@node7:4711 err] 100% ");
        assert_eq!(label("%4r|%1r|%8h|", &WHO), "  12|12|   node7|");
        assert_eq!(label("", &WHO), "");
    }

    #[test]
    fn coloured_label_has_the_colour_of_its_rank() {
        let coloured = String::from_utf8(Prefix::coloured(b"[%r] ").to_vec()).unwrap();
        assert_eq!(label(&coloured, &WHO), "\u{1b}[32m[12] \u{1b}[0m");
        assert_eq!(label(&coloured, &Who { rank: Rank::new(0), ..WHO }), "\u{1b}[36m[0] \u{1b}[0m");
        assert!(Prefix::coloured(b"").is_empty());
    }

    #[test]
    fn unknown_label_fact_is_a_question_mark() {
        let who = Who { host: None, pid: None, ..WHO };
        assert_eq!(label("%h %3p ", &who), "?   ? ");
    }

    #[test]
    fn a_hosts_name_cannot_end_the_line() {
        let who = Who { host: Some(b"a\nb\xff"), ..WHO };
        assert_eq!(label("%h: ", &who), "a\\nb\\xff: ");
    }

    #[test]
    fn errors_name_the_escape_and_its_column() {
        let message = |format: &str| Prefix::parse(format.as_bytes()).unwrap_err().to_string();
        assert_eq!(message("é%r %x"), "'é%r %x': unknown escape '%x' at column 5");
        assert_eq!(message("%3é"), "'%3é': unknown escape '%3é' at column 1");
        assert_eq!(message("ab%"), "'ab%': the escape '%' at column 3 is not finished");
        assert_eq!(message("%r%12"), "'%r%12': the escape '%12' at column 3 is not finished");
        for bad in ["%0r", "%04r", "%100r", "%99999999999999999999999r", "%3%"] {
            assert_eq!(message(bad), format!("'{bad}': bad width in '{bad}' at column 1"));
        }
        assert_eq!(message("a\nb"), "'a\\nb': line break at column 2");
        assert!(Prefix::parse(b"%x").unwrap_err().hint().unwrap().contains("%r rank"));
    }

    #[test]
    fn a_label_is_at_most_256_bytes() {
        let fits = "x".repeat(MAX_LABEL);
        assert_eq!(label(&fits, &WHO).len(), MAX_LABEL);
        let long = "x".repeat(MAX_LABEL + 1);
        assert!(matches!(Prefix::parse(long.as_bytes()), Err(PrefixError::TooLong { len: 257, .. })));
        assert!(matches!(Prefix::parse(b"%99r%99r%99r"), Err(PrefixError::TooLong { len: 297, .. })));
        let who = Who { host: Some(&[b'h'; 255]), ..WHO };
        assert!(matches!(Prefix::parse(b"%h: ").unwrap().render(&who), Err(PrefixError::TooLong { len: 257, .. })));
    }

    proptest! {
        #[test]
        fn any_format_is_parsed_or_refused(format: Vec<u8>, host: Vec<u8>) {
            if let Ok(prefix) = Prefix::parse(&format)
                && let Ok(label) = prefix.render(&Who { host: Some(&host), ..WHO })
            {
                prop_assert!(label.as_slice().len() <= MAX_LABEL);
                prop_assert!(memchr::memchr2(b'\n', b'\r', label.as_slice()).is_none());
            }
        }

        #[test]
        fn widths_pad_and_never_cut(rank: u32, width in 1usize..=99) {
            let text = label(&format!("%{width}r"), &Who { rank: Rank::new(rank), ..WHO });
            prop_assert_eq!(text.trim_start(), rank.to_string());
            prop_assert_eq!(text.len(), width.max(rank.to_string().len()));
        }
    }
}
