//! The terms of rounds that a program asks for when it registers.
//!
//! Terms travel as names and values, of which a client of another version may have more, or fewer. An agent passes them on as lines. All
//! ranks of a job ask for the same: the function runs on all of them, and one decision is made for all.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use rlaunch_base::duration;
use rlaunch_base::error::Hint;
use rlaunch_base::nearest::nearest;
use rlaunch_base::os_bytes::{OsBytes, Visible};
use rlaunch_base::time::Span;
use rlaunch_protocol::rounds::Limits;
use rlaunch_protocol::wire::round::KEYS;

/// Most bytes of all terms of a process, as lines.
pub const LONGEST: usize = 64 << 10;
/// Longest value that a message shows whole.
const SHOWN: usize = 60;

/// The field of a name, by the values that it takes.
enum Field<'a> {
    Policy(&'a mut Option<String>),
    Keys(&'a mut u32),
    Time(&'a mut Span),
    Limit(&'a mut Option<u32>, fn(&'static str, &[u8]) -> Result<u32, TermsError>),
}

/// The terms of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The policy of rank numbers, in the syntax of [`rlaunch_plan::rank_assign::parse`], or as in a file of policies.
    pub policy: Option<String>,
    /// Number of values of keys that a process sends when it is ready.
    pub keys: u32,
    /// A rank that does not make progress for so long is interrupted.
    pub soft_timeout: Span,
    /// Time after which a rank that has not left is ended.
    pub hard_timeout: Span,
    /// The same for one that is ready, and waits for others.
    pub barrier_timeout: Span,
    /// How long a rank waits for the others after its function has returned, and does not look whether it still makes progress.
    pub completion_timeout: Span,
    /// From the request to end to SIGKILL.
    pub termination_grace: Span,
    /// How often it is looked whether a rank makes progress.
    pub progress_interval: Span,
    /// When rounds end.
    pub limits: Limits,
    /// The values of its keys for the first round (`key.0`, `key.1` …). They are sent with the terms, as the process is not ready for a
    /// round before.
    pub own: Vec<OsBytes>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            policy: None,
            keys: 0,
            soft_timeout: Span::from_secs(60),
            hard_timeout: Span::from_secs(90),
            barrier_timeout: Span::from_secs(120),
            completion_timeout: Span::from_secs(120),
            termination_grace: Span::from_secs(5),
            progress_interval: Span::from_secs(1),
            limits: Limits::default(),
            own: Vec::new(),
        }
    }
}

/// The policy of a program that names none: NVRx's default.
pub const POLICY: &str = "all,shift";

/// Terms that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TermsError {
    /// A name that nothing has.
    #[error("there is no term '{name}'")]
    Unknown {
        /// The name.
        name: String,
        /// The name that was probably meant.
        near: Option<&'static str>,
    },
    /// A line that is no `NAME=value`.
    #[error("a term is NAME=value, got '{line}'")]
    NoValue {
        /// The line.
        line: String,
    },
    /// A term is there twice.
    #[error("the term '{name}' is given twice")]
    Twice {
        /// Which.
        name: &'static str,
    },
    /// A value that is none.
    #[error("{name} takes {takes}, got '{got}'")]
    Value {
        /// Whose.
        name: &'static str,
        /// The accepted values.
        takes: &'static str,
        /// The given value.
        got: String,
    },
    /// Two that have to follow each other do not.
    #[error("{less} must be less than {more}, got {less} {of_less} and {more} {of_more}")]
    Order {
        /// The one that has to be less.
        less: &'static str,
        /// Its value.
        of_less: Span,
        /// The other.
        more: &'static str,
        /// Its value.
        of_more: Span,
    },
    /// There are too many bytes.
    #[error("the terms of a process take at most {LONGEST} bytes, and these have {length}")]
    Long {
        /// How many.
        length: usize,
    },
}

impl Hint for TermsError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Unknown { near: Some(near), .. } => Some(Cow::Borrowed(near)),
            Self::Unknown { near: None, .. } => Some(format!("one of {}", names().join(", ")).into()),
            Self::NoValue { .. } => Some("soft_timeout=60s".into()),
            Self::Order { less, more, .. } => Some(format!("a smaller {less}, or a larger {more}").into()),
            Self::Twice { .. } | Self::Value { .. } => None,
            Self::Long { .. } => Some("a shorter policy, or --assign @FILE on the command line".into()),
        }
    }
}

/// Two ranks ask for different things.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The term.
    pub name: &'static str,
    /// The first value.
    pub one: String,
    /// The second value.
    pub other: String,
}

/// Names and values as lines, for the launcher. Characters that would end a line are escaped.
#[must_use]
pub fn lines(pairs: &[(OsBytes, OsBytes)]) -> OsBytes {
    let mut text = Vec::new();
    for (name, value) in pairs {
        escape(name, &mut text);
        text.push(b'=');
        escape(value, &mut text);
        text.push(b'\n');
    }
    OsBytes::new(text)
}

fn escape(bytes: &[u8], text: &mut Vec<u8>) {
    for &b in bytes {
        match b {
            b'\n' => text.extend(b"\\n"),
            b'\\' => text.extend(b"\\\\"),
            b => text.push(b),
        }
    }
}

fn unescaped(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(&b) = rest.next() {
        match b {
            b'\\' => plain.push(rest.next().map_or(b'\\', |next| if *next == b'n' { b'\n' } else { *next })),
            b => plain.push(b),
        }
    }
    plain
}

impl Terms {
    /// From lines.
    ///
    /// # Errors
    /// They cannot be read, or do not go together.
    pub fn parse(text: &[u8]) -> Result<Self, TermsError> {
        if text.len() > LONGEST {
            return Err(TermsError::Long { length: text.len() });
        }
        let mut pairs = Vec::new();
        for line in text.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            let Some(at) = line.iter().position(|b| *b == b'=') else {
                return Err(TermsError::NoValue { line: shown(line) });
            };
            let (name, value) = line.split_at(at);
            pairs.push((unescaped(name), unescaped(value.strip_prefix(b"=").unwrap_or_default())));
        }
        Self::of(pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice())))
    }

    /// From names and values, as a process registers them.
    ///
    /// # Errors
    /// The same.
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Result<Self, TermsError> {
        let mut terms = Self::default();
        let mut seen = Vec::new();
        for (name, value) in pairs {
            if terms.own.len() < KEYS && name == format!("key.{}", terms.own.len()).as_bytes() {
                terms.own.push(OsBytes::from(value));
                continue;
            }
            let Some((known, field)) = terms.fields().find(|(known, _)| known.as_bytes() == name) else {
                return Err(TermsError::Unknown { name: shown(name), near: nearest(name, names().into_iter()) });
            };
            if seen.contains(&known) {
                return Err(TermsError::Twice { name: known });
            }
            seen.push(known);
            field.set(known, value)?;
        }
        terms.check()?;
        Ok(terms)
    }

    /// All names that there are, with their fields.
    fn fields(&mut self) -> impl Iterator<Item = (&'static str, Field<'_>)> {
        [
            ("policy", Field::Policy(&mut self.policy)),
            ("keys", Field::Keys(&mut self.keys)),
            ("soft_timeout", Field::Time(&mut self.soft_timeout)),
            ("hard_timeout", Field::Time(&mut self.hard_timeout)),
            ("barrier_timeout", Field::Time(&mut self.barrier_timeout)),
            ("completion_timeout", Field::Time(&mut self.completion_timeout)),
            ("termination_grace", Field::Time(&mut self.termination_grace)),
            ("progress_interval", Field::Time(&mut self.progress_interval)),
            ("max_rounds", Field::Limit(&mut self.limits.max_rounds, above_zero)),
            ("min_world", Field::Limit(&mut self.limits.min_world, number)),
            ("min_active", Field::Limit(&mut self.limits.min_active, number)),
            ("max_rank_faults", Field::Limit(&mut self.limits.max_rank_faults, number)),
        ]
        .into_iter()
    }

    /// Whether they go together.
    ///
    /// # Errors
    /// The first two that do not, with both values.
    pub fn check(&self) -> Result<(), TermsError> {
        let Self { soft_timeout, hard_timeout, barrier_timeout, progress_interval, .. } = self;
        for (name, value) in
            [("progress_interval", progress_interval), ("completion_timeout", &self.completion_timeout)]
        {
            if *value == Span::ZERO {
                return Err(TermsError::Value { name, takes: "a time above 0", got: value.to_string() });
            }
        }
        let in_order = [
            ("progress_interval", progress_interval),
            ("soft_timeout", soft_timeout),
            ("hard_timeout", hard_timeout),
            ("barrier_timeout", barrier_timeout),
        ];
        for ((less, of_less), (more, of_more)) in in_order.into_iter().zip(in_order.into_iter().skip(1)) {
            if of_less >= of_more {
                return Err(TermsError::Order { less, of_less: *of_less, more, of_more: *of_more });
            }
        }
        Ok(())
    }

    /// The first term in which they differ from those of another process.
    #[must_use]
    pub fn differs(&self, other: &Self) -> Option<Difference> {
        let pairs = self.shown().into_iter().zip(other.shown());
        let ((name, one), (_, other)) = pairs.into_iter().find(|((_, one), (_, other))| one != other)?;
        Some(Difference { name, one, other })
    }

    fn shown(&self) -> Vec<(&'static str, String)> {
        self.clone().fields().map(|(name, field)| (name, field.shown())).collect()
    }
}

impl Field<'_> {
    fn set(self, name: &'static str, value: &[u8]) -> Result<(), TermsError> {
        match self {
            Self::Policy(policy) => *policy = Some(text(name, value)?),
            Self::Keys(count) => *count = keys(name, value)?,
            Self::Time(time) => *time = span(name, value)?,
            Self::Limit(limit, read) => *limit = Some(read(name, value)?),
        }
        Ok(())
    }

    fn shown(self) -> String {
        match self {
            Self::Policy(policy) => policy.as_deref().unwrap_or(POLICY).into(),
            Self::Keys(count) => count.to_string(),
            Self::Time(time) if time.nanos() % 1_000_000_000 == 0 => format!("{}s", time.nanos() / 1_000_000_000),
            Self::Time(time) => format!("{}ms", time.millis()),
            Self::Limit(limit, _) => limit.map_or_else(|| "none".into(), |n| n.to_string()),
        }
    }
}

fn names() -> Vec<&'static str> {
    Terms::default().fields().map(|(name, _)| name).collect()
}

fn text(name: &'static str, value: &[u8]) -> Result<String, TermsError> {
    let text = core::str::from_utf8(value).ok();
    text.map(ToString::to_string).ok_or_else(|| TermsError::Value { name, takes: "UTF-8", got: shown(value) })
}

fn span(name: &'static str, value: &[u8]) -> Result<Span, TermsError> {
    // As a span prints itself: `6 ms`.
    let tight: Vec<u8> = value.iter().copied().filter(|b| *b != b' ').collect();
    duration::parse(&tight).ok_or_else(|| TermsError::Value { name, takes: duration::TAKES, got: shown(value) })
}

fn number(name: &'static str, value: &[u8]) -> Result<u32, TermsError> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let parsed = core::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    let takes = if digits { "at most 4294967295" } else { "a whole number" };
    parsed.filter(|_| digits).ok_or_else(|| TermsError::Value { name, takes, got: shown(value) })
}

fn above_zero(name: &'static str, value: &[u8]) -> Result<u32, TermsError> {
    match number(name, value)? {
        0 => Err(TermsError::Value { name, takes: "a whole number above 0", got: "0".into() }),
        n => Ok(n),
    }
}

fn keys(name: &'static str, value: &[u8]) -> Result<u32, TermsError> {
    match number(name, value)? {
        n if n as usize > KEYS => Err(TermsError::Value { name, takes: "at most 16", got: n.to_string() }),
        n => Ok(n),
    }
}

/// A value of the program, cut where it is too long to be read.
#[must_use]
pub fn shown(value: &[u8]) -> String {
    match value.get(..SHOWN) {
        Some(cut) if value.len() > SHOWN => format!("{}...", Visible(cut)),
        Some(_) | None => Visible(value).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair(name: &str, value: &str) -> (OsBytes, OsBytes) {
        (OsBytes::from(name), OsBytes::from(value))
    }

    #[test]
    fn defaults_of_terms_match_nvrx() {
        let terms = Terms::parse(b"").unwrap();
        assert_eq!(terms, Terms::default());
        assert_eq!((terms.soft_timeout, terms.barrier_timeout), (Span::from_secs(60), Span::from_secs(120)));
        assert_eq!(Terms::default().check(), Ok(()));
    }

    #[test]
    fn every_name_is_known_and_shown() {
        let values = ["all,fill", "3", "20s", "30s", "1m", "7s", "0", "250ms", "9", "8", "7", "6"];
        let pairs: Vec<_> = names().into_iter().zip(values).map(|(name, value)| pair(name, value)).collect();
        let terms = Terms::parse(&lines(&pairs)).unwrap();
        let shown: Vec<String> = terms.shown().into_iter().map(|(_, value)| value).collect();
        assert_eq!(shown, ["all,fill", "3", "20s", "30s", "60s", "7s", "0s", "250ms", "9", "8", "7", "6"]);
        assert_eq!(Terms::of(pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))), Ok(terms));
    }

    #[test]
    fn a_policy_of_several_lines_stays_one_term() {
        let policy = "[assign.tree]\nfilter = \"cap=8\"\n[[assign.tree.layer]]\nkey = \"const:a\\\\b\"\n";
        let text = lines(&[pair("policy", policy), pair("keys", "1")]);
        assert_eq!(text.iter().filter(|b| **b == b'\n').count(), 2);
        assert_eq!(Terms::parse(&text).unwrap().policy.as_deref(), Some(policy));
    }

    #[test]
    fn wrong_terms_say_what_is_wrong() {
        for (text, error) in [
            (
                "soft_timeout=90s\n",
                "soft_timeout must be less than hard_timeout, got soft_timeout 90.0s and hard_timeout 90.0s",
            ),
            (
                "hard_timeout=3m\n",
                "hard_timeout must be less than barrier_timeout, got hard_timeout 3m00s and barrier_timeout 2m00s",
            ),
            (
                "progress_interval=60\n",
                "progress_interval must be less than soft_timeout, got progress_interval 60.0s and soft_timeout 60.0s",
            ),
            ("progress_interval=0\n", "progress_interval takes a time above 0, got '0 ms'"),
            ("completion_timeout=0\n", "completion_timeout takes a time above 0, got '0 ms'"),
            ("soft_timeout=soon\n", "soft_timeout takes a duration like 90, 90s, 1m30s, 1h or 250ms, got 'soon'"),
            ("max_rounds=0\n", "max_rounds takes a whole number above 0, got '0'"),
            ("min_world=-1\n", "min_world takes a whole number, got '-1'"),
            ("min_active=4294967296\n", "min_active takes at most 4294967295, got '4294967296'"),
            ("keys=17\n", "keys takes at most 16, got '17'"),
            ("keys=1\nkeys=1\n", "the term 'keys' is given twice"),
            ("keys\n", "a term is NAME=value, got 'keys'"),
            ("key\x1b=1\n", "there is no term 'key\\u{1b}'"),
        ] {
            assert_eq!(Terms::parse(text.as_bytes()).unwrap_err().to_string(), error);
        }
        let error = Terms::parse(&[b'x'; LONGEST + 1]).unwrap_err();
        assert_eq!(error.to_string(), "the terms of a process take at most 65536 bytes, and these have 65537");
        let near = |name: &str| Terms::parse(format!("{name}=1\n").as_bytes()).unwrap_err().hint().map(Cow::into_owned);
        assert_eq!(near("soft_timout").as_deref(), Some("soft_timeout"));
        assert!(near("frobnicate").unwrap().starts_with("one of policy, keys, "));
    }

    #[test]
    fn keys_of_a_process_are_no_matter_of_the_others() {
        let one = Terms::parse(b"keys=2\nkey.0=a\nkey.1=b=c\n").unwrap();
        assert_eq!(one.own, [OsBytes::from("a"), OsBytes::from("b=c")]);
        assert_eq!(one.differs(&Terms::parse(b"key.0=x\nkeys=2\n").unwrap()), None);
        let error = Terms::parse(b"key.1=a\n").unwrap_err();
        assert_eq!(error.to_string(), "there is no term 'key.1'");
    }

    #[test]
    fn spans_are_read_as_they_are_printed() {
        for span in [
            Span::from_millis(6),
            Span::from_millis(200),
            Span::from_secs(60),
            Span::from_secs(90),
            Span::from_secs(7260),
        ] {
            assert_eq!(super::span("soft_timeout", span.to_string().as_bytes()), Ok(span));
        }
    }

    #[test]
    fn a_difference_names_the_term_and_both_values() {
        let one = Terms::parse(b"hard_timeout=70s\n").unwrap();
        let same = Terms::parse(b"hard_timeout=1m10s\nsoft_timeout=60\npolicy=all,shift\n").unwrap();
        assert_eq!(one.differs(&same), None);
        let other = Terms::parse(b"hard_timeout=80s\nmax_rounds=3\n").unwrap();
        let wanted = Difference { name: "hard_timeout", one: "70s".into(), other: "80s".into() };
        assert_eq!(one.differs(&other), Some(wanted));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(terms) = Terms::parse(&text) {
                prop_assert_eq!(terms.check(), Ok(()));
            }
        }

        #[test]
        fn lines_hold_any_value(value in prop::collection::vec(any::<u8>(), 0..40)) {
            let text = lines(&[(OsBytes::from("policy"), OsBytes::new(value.clone()))]);
            let rest = text.strip_prefix(b"policy=").unwrap().strip_suffix(b"\n").unwrap();
            prop_assert!(!rest.contains(&b'\n'));
            prop_assert_eq!(unescaped(rest), value);
        }
    }
}
