//! Names of files with srun's patterns, as `-o` and `-e` take them: `%t` rank, `%n` index of the host, `%N` name of the host, and those
//! about the whole job ([`OF_JOB`]).
//!
//! Numbers of a rank in a group (`--group`) follow its name, as in `out.policy-3`: each group has a rank 0.
//! A number between the percent sign and the letter pads a number with zeros: `%3t`.

use crate::id::Rank;
use crate::os_bytes::OsBytes;
use alloc::format;
use alloc::vec::Vec;

/// Letters about the whole job: `%j` job, `%A` and `%a` job and index of an array, `%x` name, `%u` user, `%s` step, `%J` job and step.
const OF_JOB: &[u8] = b"jAaxusJ";

/// Most digits that a number is padded to, as in srun.
const WIDEST: u8 = 10;

/// Name of a file, with patterns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilePattern(Vec<Part>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(Vec<u8>),
    /// `%2t`: the letter, and how many digits there are at least.
    Field(Field, u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    /// A letter of [`OF_JOB`].
    Job(u8),
    Rank,
    Node,
    Host,
}

/// Process whose file is named.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// Its group; empty: none.
    pub group: &'a [u8],
    /// Its rank in the group.
    pub rank: Rank,
    /// Index of its host among those of the group.
    pub node: u32,
    /// Name of its host. The file is named after the part before the first dot, as in srun.
    pub host: &'a [u8],
}

impl Writer<'_> {
    /// A number that is its own, after the name of the group that counts so.
    fn own(&self, number: u32, width: u8) -> Vec<u8> {
        let between: &[u8] = if self.group.is_empty() { b"" } else { b"-" };
        [self.group, between, &padded(format!("{number}").as_bytes(), width)].concat()
    }
}

impl Field {
    fn of(letter: u8) -> Option<Self> {
        match letter {
            b't' => Some(Self::Rank),
            b'n' => Some(Self::Node),
            b'N' => Some(Self::Host),
            of_job => OF_JOB.contains(&of_job).then_some(Self::Job(of_job)),
        }
    }

    fn letter(self) -> char {
        match self {
            Self::Job(letter) => char::from(letter),
            Self::Rank => 't',
            Self::Node => 'n',
            Self::Host => 'N',
        }
    }
}

impl FilePattern {
    /// Pattern with this text; `None` if it is empty or has an escape that is unknown.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = memchr::memchr(b'%', rest) {
            let (before, after) = rest.split_at_checked(at)?;
            push_text(&mut parts, before);
            let escape = after.get(1..)?;
            let digits = escape.iter().take_while(|b| b.is_ascii_digit()).count();
            let (width, letter) = (escape.get(..digits)?, escape.get(digits)?);
            let width = if width.is_empty() { 0 } else { core::str::from_utf8(width).ok()?.parse::<u8>().ok()? };
            match Field::of(*letter) {
                Some(field) if width <= WIDEST => parts.push(Part::Field(field, width)),
                None if *letter == b'%' && digits == 0 => push_text(&mut parts, b"%"),
                Some(_) | None => return None,
            }
            rest = escape.get(digits + 1..)?;
        }
        push_text(&mut parts, rest);
        (!parts.is_empty()).then_some(Self(parts))
    }

    /// Pattern of the same file in this directory, if its name is a relative one.
    #[must_use]
    pub fn in_directory(mut self, directory: &[u8]) -> Self {
        if !self.is_absolute() {
            self.0.insert(0, Part::Text([directory, b"/"].concat()));
        }
        self
    }

    /// Whether its name begins at the root.
    #[must_use]
    pub fn is_absolute(&self) -> bool {
        matches!(self.0.first(), Some(Part::Text(text)) if text.starts_with(b"/"))
    }

    /// The directory that all of its files are below: the name before the first escape, without its last part.
    #[must_use]
    pub fn directory(&self) -> OsBytes {
        let is_fixed = |part: &&Part| matches!(part, Part::Text(_));
        let mut fixed = Vec::new();
        for part in self.0.iter().take_while(is_fixed) {
            match part {
                Part::Text(text) => fixed.extend_from_slice(text),
                Part::Field(..) => {}
            }
        }
        match memchr::memrchr(b'/', &fixed) {
            None => ".".into(),
            Some(at) => OsBytes::from(fixed.get(..at.max(1)).unwrap_or_default()),
        }
    }

    /// Pattern with the texts of a job for its letters about the whole job.
    #[must_use]
    pub fn of_job(self, text: impl Fn(u8) -> OsBytes) -> Self {
        let named = |part| match part {
            Part::Field(Field::Job(letter), width) => Part::Text(padded(&in_path(&text(letter)), width)),
            Part::Field(Field::Rank | Field::Node | Field::Host, _) | Part::Text(_) => part,
        };
        Self(self.0.into_iter().map(named).collect())
    }

    /// Whether ranks or hosts have different files.
    #[must_use]
    pub fn has_several(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Field(Field::Rank | Field::Node | Field::Host, _)))
    }

    /// Text that [`FilePattern::parse`] takes.
    #[must_use]
    pub fn text(&self) -> OsBytes {
        let mut text = Vec::new();
        for part in &self.0 {
            match part {
                Part::Text(own) => {
                    own.iter().for_each(|b| text.extend(if *b == b'%' { &b"%%"[..] } else { core::slice::from_ref(b) }))
                }
                Part::Field(field, 0) => text.extend(format!("%{}", field.letter()).bytes()),
                Part::Field(field, width) => text.extend(format!("%{width}{}", field.letter()).bytes()),
            }
        }
        OsBytes::new(text)
    }

    /// Name of the file of one process. A job that was not named is called 0.
    #[must_use]
    pub fn name(&self, writer: &Writer<'_>) -> OsBytes {
        let short = writer.host.split(|b| *b == b'.').next().unwrap_or_default();
        let mut name = Vec::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => name.extend_from_slice(text),
                Part::Field(Field::Rank, width) => name.extend(writer.own(writer.rank.get(), *width)),
                Part::Field(Field::Node, width) => name.extend(writer.own(writer.node, *width)),
                Part::Field(Field::Host, _) => name.extend(in_path(short)),
                Part::Field(Field::Job(_), width) => name.extend(padded(b"0", *width)),
            }
        }
        OsBytes::new(name)
    }
}

fn push_text(parts: &mut Vec<Part>, text: &[u8]) {
    match parts.last_mut() {
        Some(Part::Text(last)) => last.extend_from_slice(text),
        Some(Part::Field(..)) | None if !text.is_empty() => parts.push(Part::Text(text.to_vec())),
        Some(Part::Field(..)) | None => {}
    }
}

/// A text as a part of a path: with a slash it would lead elsewhere.
fn in_path(text: &[u8]) -> Vec<u8> {
    text.iter().map(|b| if *b == b'/' { b'_' } else { *b }).collect()
}

/// Number with zeros before it; what is no number stays as it is.
fn padded(text: &[u8], width: u8) -> Vec<u8> {
    let missing = usize::from(width).saturating_sub(text.len());
    let zeros = if text.iter().all(u8::is_ascii_digit) { missing } else { 0 };
    let mut padded = alloc::vec![b'0'; zeros];
    padded.extend_from_slice(text);
    padded
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITER: Writer<'_> = Writer { group: b"", rank: Rank::new(7), node: 2, host: b"node3.cluster.org" };

    fn of_job(letter: u8) -> OsBytes {
        if letter == b'x' { "a/b".into() } else { "42".into() }
    }

    fn name(text: &str) -> OsBytes {
        FilePattern::parse(text.as_bytes()).unwrap().of_job(of_job).name(&WRITER)
    }

    #[test]
    fn directory_ends_before_the_first_escape() {
        for (text, expected) in [
            ("x.%t", "."),
            ("logs/x.%t", "logs"),
            ("a%%/b/%j/x", "a%/b"),
            ("/x%t", "/"),
            ("%N/x", "."),
            ("/a/b%t/c", "/a"),
        ] {
            assert_eq!(FilePattern::parse(text.as_bytes()).unwrap().directory(), OsBytes::from(expected), "{text}");
        }
    }

    #[test]
    fn names_are_those_of_srun() {
        for (text, expected) in [
            ("out", "out"),
            ("out.%t", "out.7"),
            ("%j-%3t.out", "42-007.out"),
            ("%4j.%10t", "0042.0000000007"),
            ("%N/%n_%2n", "node3/2_02"),
            ("%A_%3a.%J.%s-%u", "42_042.42.42-42"),
            ("%x.%t", "a_b.7"),
            ("%5N", "node3"),
            ("100%%.%t", "100%.7"),
        ] {
            assert_eq!(name(text), expected.into(), "{text}");
        }
    }

    #[test]
    fn unknown_escapes_are_refused() {
        for text in ["", "%", "a%", "%q", "%T", "%2", "%11t", "%2%", "%999t", "%-1t"] {
            assert_eq!(FilePattern::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn text_of_a_pattern_is_read_back_as_the_same_pattern() {
        for text in ["out", "%j-%3t", "a%%b.%N", "%%t", "%A_%5a"] {
            let pattern = FilePattern::parse(text.as_bytes()).unwrap();
            assert_eq!(FilePattern::parse(&pattern.text()), Some(pattern), "{text}");
        }
        let of_job = FilePattern::parse(b"%j.%t").unwrap().of_job(|_| "5%t".into()).in_directory(b"/a%t");
        assert_eq!(FilePattern::parse(&of_job.text()).unwrap().name(&WRITER), "/a%t/5%t.7".into());
    }

    #[test]
    fn files_of_groups_have_their_names() {
        let writer = Writer { group: b"policy", ..WRITER };
        assert_eq!(FilePattern::parse(b"%3t.%n.%N").unwrap().name(&writer), "policy-007.policy-2.node3".into());
    }

    #[test]
    fn only_patterns_of_ranks_and_hosts_name_several_files() {
        let several = |text: &str| FilePattern::parse(text.as_bytes()).unwrap().has_several();
        assert!(several("%t") && several("a%n") && several("%N.out"));
        assert!(!several("out") && !several("%j.out") && !several("%%t"));
    }
}
