//! The stream before the edge begins: an answer is a line after a marker, and the output of a login shell before the marker is noise.

use super::tcp_hello::FIRST_MESSAGE;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use rlaunch_base::id::JobId;
use rlaunch_base::os_bytes::OsBytes;

/// Most bytes of noise.
pub const NOISE: usize = 64 << 10;
/// Longest answer.
const LONGEST: usize = 1 << 10;
/// Noise that is kept, to be shown if no answer comes.
const KEPT: usize = 1 << 10;

/// The place of an agent's binary on a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// The file that `--agent-path` names.
    Named,
    /// The path of our own binary here.
    Same,
    /// `${XDG_CACHE_HOME:-~/.cache}/rlaunch`.
    Cache,
    /// `/tmp/rlaunch-UID`.
    Tmp,
    /// `/dev/shm/rlaunch-UID`.
    Shm,
}

impl Place {
    /// All of them, in the order in which they are tried.
    pub const ALL: [Self; 5] = [Self::Named, Self::Same, Self::Cache, Self::Tmp, Self::Shm];

    /// The word for it on the wire and in reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::Same => "same",
            Self::Cache => "cache",
            Self::Tmp => "tmp",
            Self::Shm => "shm",
        }
    }

    /// The directory for a kept binary, as the host is sent it: a directory that every host has, and ours in it. `None`: it is not kept
    /// by us.
    #[must_use]
    pub const fn kept(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Named | Self::Same => None,
            Self::Cache => Some(("~/.cache", "rlaunch")),
            Self::Tmp => Some(("/tmp", "rlaunch-UID")),
            Self::Shm => Some(("/dev/shm", "rlaunch-UID")),
        }
    }

    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|place| place.word().as_bytes() == word)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The answer of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The agent of this place is being started.
    Ready(Place),
    /// The binary is wanted on stdin, for this place.
    Need(Place),
    /// Another architecture.
    Arch(OsBytes),
    /// No place can be used: each with its reason, `cache:noexec tmp:link`.
    Nowhere(OsBytes),
    /// The file that `--agent-path` names cannot be used, for this reason.
    Unusable(OsBytes),
    /// The bytes that arrived are not those that were sent.
    Spoiled(Place),
    /// The facts about the host, if they were asked for.
    Facts(OsBytes),
    /// The first message of a handshake: the agent seals its streams.
    Seal([u8; FIRST_MESSAGE]),
    /// The guardian runs, and proves that it knows the secret.
    Up {
        /// The proof.
        proof: OsBytes,
        /// Its process id.
        pid: u32,
        /// The host's wall clock in nanoseconds.
        wall: u64,
    },
    /// The guardian refuses, in its own words.
    Refused(OsBytes),
    /// In a step of several hosts: no binary that may be used is on this host.
    Absent(OsBytes),
    /// In a step of several hosts: the agent of this host cannot connect to the launcher.
    Unconnected {
        /// The host, as Slurm names it.
        host: OsBytes,
        /// Why.
        why: OsBytes,
    },
}

impl Answer {
    /// The line after the marker.
    #[must_use]
    pub fn to_line(&self) -> String {
        match self {
            Self::Ready(place) => format!("READY {place}"),
            Self::Need(place) => format!("NEED {place}"),
            Self::Arch(arch) => format!("ARCH {arch}"),
            Self::Nowhere(why) => format!("NOWHERE {why}"),
            Self::Unusable(why) => format!("UNUSABLE {why}"),
            Self::Spoiled(place) => format!("SPOILED {place}"),
            Self::Facts(facts) => format!("FACTS {facts}"),
            Self::Seal(first) => first.iter().fold("SEAL ".into(), |line: String, byte| format!("{line}{byte:02x}")),
            Self::Up { proof, pid, wall } => format!("UP {proof} {pid} {wall}"),
            Self::Refused(why) => format!("REFUSED {why}"),
            Self::Absent(host) => format!("ABSENT {host}"),
            Self::Unconnected { host, why } => format!("UNCONNECTED {host} {why}"),
        }
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let until = line.iter().position(|b| *b == b' ').unwrap_or(line.len());
        let (word, rest) = line.split_at(until);
        let rest = rest.trim_ascii();
        match word {
            b"READY" => Place::parse(rest).map(Self::Ready),
            b"NEED" => Place::parse(rest).map(Self::Need),
            b"ARCH" => Some(Self::Arch(rest.into())),
            b"NOWHERE" => Some(Self::Nowhere(rest.into())),
            b"UNUSABLE" => Some(Self::Unusable(rest.into())),
            b"SPOILED" => Place::parse(rest).map(Self::Spoiled),
            b"FACTS" => Some(Self::Facts(rest.into())),
            b"SEAL" => {
                let digits = rest.as_chunks::<2>().0.iter().map(|pair| core::str::from_utf8(pair).ok());
                let bytes = digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect::<Option<Vec<u8>>>()?;
                bytes.try_into().ok().map(Self::Seal)
            }
            b"UP" => {
                let mut words = rest.split(|b| *b == b' ');
                let proof = words.next()?.into();
                let mut number = || core::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
                Some(Self::Up { proof, pid: u32::try_from(number()?).ok()?, wall: number()? })
            }
            b"REFUSED" => Some(Self::Refused(rest.into())),
            b"ABSENT" => Some(Self::Absent(rest.into())),
            b"UNCONNECTED" => {
                let until = rest.iter().position(|b| *b == b' ')?;
                let (host, why) = rest.split_at(until);
                Some(Self::Unconnected { host: host.into(), why: why.trim_ascii().into() })
            }
            _ => None,
        }
    }
}

/// The text before every answer. It holds the job's name, so that nothing printed on another occasion is taken for it.
#[must_use]
pub fn marker(job: impl fmt::Display) -> String {
    format!("@rlaunch-{job}@ ")
}

/// The finding of a scanner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// Nothing yet.
    Nothing,
    /// An answer.
    Answer(Answer),
    /// More noise than any greeting is.
    Noise,
    /// Text after the marker that is no answer.
    Garbled(OsBytes),
}

/// Finds answers among noise.
#[derive(Debug)]
pub struct Scanner {
    marker: String,
    /// Bytes that were not parsed yet.
    unread: Vec<u8>,
    /// Bytes that turned out to be noise.
    noise: usize,
    /// The last of them.
    kept: Vec<u8>,
    /// Most bytes that are no answer.
    most_noise: usize,
}

impl Scanner {
    /// For the answers of this job.
    #[must_use]
    pub fn new(job: JobId) -> Self {
        Self { marker: marker(job), unread: Vec::new(), noise: 0, kept: Vec::new(), most_noise: NOISE }
    }

    /// For the answers of many hosts in one stream: a login file of one must not end the others, however much it prints.
    #[must_use]
    pub fn of_many(job: JobId) -> Self {
        Self { most_noise: usize::MAX, ..Self::new(job) }
    }

    /// More bytes of stdout.
    pub fn push(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// The next answer.
    pub fn next_finding(&mut self) -> Finding {
        let Some(at) = memchr::memmem::find(&self.unread, self.marker.as_bytes()) else {
            // The end may be the beginning of a marker.
            let surplus = self.unread.len().saturating_sub(self.marker.len());
            self.drop_noise(surplus);
            return if self.noise > self.most_noise { Finding::Noise } else { Finding::Nothing };
        };
        let line = self.unread.get(at + self.marker.len()..).unwrap_or_default();
        let Some(len) = memchr::memchr(b'\n', line) else {
            if line.len() <= LONGEST {
                return Finding::Nothing;
            }
            let finding = Finding::Garbled(line.get(..80).unwrap_or_default().into());
            self.drop_noise(at + self.marker.len());
            return finding;
        };
        let answer = line.get(..len).unwrap_or_default();
        let finding = Answer::parse(answer).map_or_else(|| Finding::Garbled(answer.into()), Finding::Answer);
        let end = at + self.marker.len() + len + 1;
        self.drop_noise(at);
        self.unread.drain(..(end - at).min(self.unread.len()));
        if self.noise > self.most_noise { Finding::Noise } else { finding }
    }

    /// Bytes after the last answer: they belong to the edge.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.unread
    }

    /// The end of what was printed and is no answer.
    #[must_use]
    pub fn noise(&self) -> Vec<u8> {
        let mut all = self.kept.clone();
        all.extend_from_slice(&self.unread);
        let surplus = all.len().saturating_sub(KEPT);
        all.drain(..surplus);
        all
    }

    fn drop_noise(&mut self, n: usize) {
        self.noise = self.noise.saturating_add(n);
        self.kept.extend(self.unread.drain(..n));
        let surplus = self.kept.len().saturating_sub(KEPT);
        self.kept.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    const JOB: JobId = JobId([0xab; 16]);

    fn answers() -> impl Strategy<Value = Answer> {
        let place = (0..Place::ALL.len()).prop_map(|at| Place::ALL[at]);
        let words = "[a-z:]{1,20}( [a-z:]{1,20})?";
        prop_oneof![
            place.clone().prop_map(Answer::Ready),
            place.clone().prop_map(Answer::Need),
            place.prop_map(Answer::Spoiled),
            words.prop_map(|w| Answer::Arch(w.into())),
            words.prop_map(|w| Answer::Nowhere(w.into())),
            words.prop_map(|w| Answer::Unusable(w.into())),
            words.prop_map(|w| Answer::Refused(w.into())),
            words.prop_map(|w| Answer::Facts(w.into())),
            any::<[u8; 32]>().prop_map(|half| {
                let mut first = [0; FIRST_MESSAGE];
                first[FIRST_MESSAGE - 32..].copy_from_slice(&half);
                Answer::Seal(first)
            }),
            ("[0-9a-f]{32}", any::<u32>(), any::<u64>()).prop_map(|(p, pid, wall)| Answer::Up {
                proof: p.into(),
                pid,
                wall
            }),
        ]
    }

    proptest! {
        #[test]
        fn answers_are_found_in_any_noise_and_any_cuts(
            noise in proptest::collection::vec(any::<u8>(), 0..3_000),
            sent in proptest::collection::vec(answers(), 1..4),
            cut in 1usize..200,
            rest in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut stream = noise;
            for answer in &sent {
                stream.extend_from_slice(format!("{}{}\n", marker(JOB), answer.to_line()).as_bytes());
            }
            let mut scanner = Scanner::new(JOB);
            let mut found = Vec::new();
            for piece in stream.chunks(cut) {
                scanner.push(piece);
                while let Finding::Answer(answer) = scanner.next_finding() {
                    found.push(answer);
                }
            }
            prop_assert_eq!(found, sent);
            scanner.push(&rest);
            prop_assert_eq!(scanner.rest(), &rest[..]);
        }

        #[test]
        fn never_panics(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..90), 0..20)) {
            let mut scanner = Scanner::new(JOB);
            for piece in pieces {
                scanner.push(marker(JOB).as_bytes());
                scanner.push(&piece);
                while !matches!(scanner.next_finding(), Finding::Nothing | Finding::Noise) {}
            }
        }
    }

    #[test]
    fn noise_has_an_end() {
        let mut scanner = Scanner::new(JOB);
        scanner.push(&vec![b'x'; NOISE]);
        assert_eq!(scanner.next_finding(), Finding::Nothing);
        scanner.push(format!("{}READY tmp\n", marker(JOB)).as_bytes());
        assert_eq!(scanner.next_finding(), Finding::Answer(Answer::Ready(Place::Tmp)), "64 KiB are skipped");

        let mut scanner = Scanner::new(JOB);
        scanner.push(&vec![b'x'; NOISE + 100]);
        assert_eq!(scanner.next_finding(), Finding::Noise);
        assert_eq!(scanner.noise().len(), KEPT);

        let mut scanner = Scanner::new(JOB);
        scanner.push(&vec![b'x'; NOISE + 1]);
        scanner.push(format!("{}READY tmp\n", marker(JOB)).as_bytes());
        assert_eq!(scanner.next_finding(), Finding::Noise, "also when it comes at once");
    }

    #[test]
    fn another_jobs_marker_is_noise() {
        let mut scanner = Scanner::new(JOB);
        scanner.push(format!("{}READY tmp\n", marker(JobId([1; 16]))).as_bytes());
        assert_eq!(scanner.next_finding(), Finding::Nothing);
    }

    #[test]
    fn malformed_answer_is_reported() {
        for garbled in ["READY", "READY moon", "", "UP ab 1", "UP ab x 1", "HELLO"] {
            let mut scanner = Scanner::new(JOB);
            scanner.push(format!("{}{garbled}\n", marker(JOB)).as_bytes());
            assert_eq!(scanner.next_finding(), Finding::Garbled(garbled.into()));
        }
    }
}
