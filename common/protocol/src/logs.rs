//! Log files of ranks, in torchrun's layout: which stream of which rank goes into a file, and which is shown.
//!
//! `DIR/RUN_HOST/attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}`, N restarts of all ranks later. torchrun makes up the part
//! after RUN on every host. Here it is the job's, followed by the host's index, so that hosts that share a file system do not share a
//! file.

use alloc::format;
use alloc::vec::Vec;
use rlaunch_base::capped::Capped;
use rlaunch_base::file_pattern::{FilePattern, Writer};
use rlaunch_base::id::LocalRank;
use rlaunch_base::os_bytes::OsBytes;
use serde::{Deserialize, Serialize};

/// Most local ranks that an option names.
pub const MOST: usize = 1024;

/// Streams of a rank, as torchrun counts them: 1 is stdout, 2 stderr, 3 both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Streams(u8);

impl Streams {
    /// Neither.
    pub const NONE: Self = Self(0);

    const fn out(self) -> bool {
        self.0 & 1 != 0
    }

    const fn err(self) -> bool {
        self.0 & 2 != 0
    }

    fn parse(digits: &[u8]) -> Option<Self> {
        match digits {
            [digit @ b'0'..=b'3'] => Some(Self(*digit - b'0')),
            _ => None,
        }
    }
}

/// Streams by local rank: `-r`, `-t`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Which {
    /// The same streams of each rank.
    All(Streams),
    /// The streams of these ranks; none of others.
    Of(Capped<(u32, Streams), MOST>),
}

impl Default for Which {
    fn default() -> Self {
        Self::All(Streams::NONE)
    }
}

impl Which {
    /// `3`, or `0:1,1:2`.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        if let Some(all) = Streams::parse(text) {
            return Some(Self::All(all));
        }
        let mut of = Vec::new();
        for part in text.split(|b| *b == b',') {
            let at = memchr::memchr(b':', part)?;
            of.push((number(part.get(..at)?)?, Streams::parse(part.get(at + 1..)?)?));
        }
        one_chunk(of).map(Self::Of)
    }

    /// The streams of a rank. Of one that is named twice the last counts, as in torchrun.
    fn of(&self, rank: LocalRank) -> Streams {
        match self {
            Self::All(streams) => *streams,
            Self::Of(named) => {
                named.iter().rev().find(|(own, _)| *own == rank.get()).map_or(Streams::NONE, |(_, streams)| *streams)
            }
        }
    }

    fn named(&self) -> impl Iterator<Item = u32> {
        let named: &[(u32, Streams)] = match self {
            Self::All(_) => &[],
            Self::Of(named) => named,
        };
        named.iter().map(|(rank, _)| *rank)
    }

    /// Whether it is none of any.
    #[must_use]
    pub fn is_none(&self) -> bool {
        match self {
            Self::All(streams) => *streams == Streams::NONE,
            Self::Of(named) => named.iter().all(|(_, streams)| *streams == Streams::NONE),
        }
    }
}

/// Local ranks of which something is shown: `--local-ranks-filter`, `0,1`.
#[must_use]
pub fn shown(text: &[u8]) -> Option<Capped<u32, MOST>> {
    text.split(|b| *b == b',').map(|part| number(part.trim_ascii())).collect::<Option<Vec<u32>>>().and_then(one_chunk)
}

fn number(digits: &[u8]) -> Option<u32> {
    let text = core::str::from_utf8(digits).ok()?;
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

fn one_chunk<T>(items: Vec<T>) -> Option<Capped<T, MOST>> {
    if items.len() > MOST { None } else { Capped::chunks(items).pop() }
}

/// The destinations of the output of a program's ranks besides being shown.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Logs {
    /// The directory of the files, on every host: a path from the root. `None`: there are none.
    pub dir: Option<OsBytes>,
    /// Whether no other user may look into directories that have to be made.
    pub private: bool,
    /// The job's part of the name, before the index of the host.
    pub run: OsBytes,
    /// Streams that go into a file and nowhere else.
    pub redirects: Which,
    /// Streams that go into a file as well.
    pub tee: Which,
    /// Local ranks whose streams are shown; `None`: all.
    pub shown: Option<Capped<u32, MOST>>,
    /// Files of stdout and of stderr that `-o` and `-e` name, where ranks or hosts have different ones: from the root, as `FilePattern` takes it.
    pub files: [Option<OsBytes>; 2],
}

/// The destinations of one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Whether it is written to a file.
    pub file: bool,
    /// Whether it is sent to the launcher.
    pub shown: bool,
}

impl Way {
    /// The default destinations.
    pub const SHOWN: Self = Self { file: false, shown: true };
}

impl Logs {
    /// How the directories of a host's ranks begin: their local ranks follow.
    #[must_use]
    pub fn stem(&self, node_index: u32, restart: u32) -> Option<OsBytes> {
        let dir = self.dir.as_deref()?;
        let rest = format!("_{node_index}/attempt_{restart}/");
        let between: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
        Some(OsBytes::new([dir, between, self.run.as_slice(), rest.as_bytes()].concat()))
    }

    /// Local ranks that options name and no host has, where the most on one are `most`: each with its option.
    pub fn beyond(&self, most: u32) -> impl Iterator<Item = (&'static str, u32)> {
        let shown = self.shown.iter().flat_map(|shown| shown.iter().copied());
        let of = |option| move |rank| (option, rank);
        let all = self.redirects.named().map(of("-r")).chain(self.tee.named().map(of("-t")));
        all.chain(shown.map(of("--local-ranks-filter"))).filter(move |(_, rank)| *rank >= most)
    }

    /// The destinations of a rank's stdout and stderr.
    #[must_use]
    pub fn ways(&self, rank: LocalRank) -> [Way; 2] {
        let (redirects, tee) = (self.redirects.of(rank), self.tee.of(rank));
        let shown = self.shown.as_ref().is_none_or(|shown| shown.contains(&rank.get()));
        let [out, err] = self.files.each_ref().map(Option::is_some);
        let way = |redirected: bool, teed: bool, named: bool| Way {
            file: named || (redirected || teed) && self.dir.is_some(),
            // With both options the output is shown, as by torchrun.
            shown: shown && !named && (teed || !redirected),
        };
        [way(redirects.out(), tee.out(), out), way(redirects.err(), tee.err(), err)]
    }

    /// Whether anything goes into files.
    #[must_use]
    pub fn has_files(&self) -> bool {
        self.dir.is_some() || self.files.iter().any(Option::is_some)
    }

    /// Names of the files of a rank's stdout and stderr. `directory`: that of the rank, below [`Logs::stem`].
    #[must_use]
    pub fn names(&self, directory: Option<&[u8]>, writer: &Writer<'_>) -> [Option<OsBytes>; 2] {
        let [out, err] = &self.files;
        let name = |pattern: &Option<OsBytes>, name: &[u8]| match (pattern, directory) {
            (Some(pattern), _) => FilePattern::parse(pattern).map(|pattern| pattern.name(writer)),
            (None, Some(directory)) => Some(OsBytes::new([directory, b"/", name].concat())),
            (None, None) => None,
        };
        [name(out, b"stdout.log"), name(err, b"stderr.log")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(logs: &Logs, rank: u32) -> [(bool, bool); 2] {
        logs.ways(LocalRank::new(rank)).map(|way| (way.file, way.shown))
    }

    fn logs(redirects: &str, tee: &str, filter: &str) -> Logs {
        let which = |text: &str| Which::parse(text.as_bytes()).unwrap();
        let shown = (!filter.is_empty()).then(|| shown(filter.as_bytes()).unwrap());
        Logs {
            dir: Some("/l".into()),
            private: false,
            run: "r_1".into(),
            redirects: which(redirects),
            tee: which(tee),
            shown,
            files: [None, None],
        }
    }

    const FILE: (bool, bool) = (true, false);
    const BOTH: (bool, bool) = (true, true);
    const SHOWN: (bool, bool) = (false, true);
    const NEITHER: (bool, bool) = (false, false);

    #[test]
    fn unmatched_local_ranks_are_reported() {
        let all = logs("9:1,0:3", "1:1,2:0", "7,0");
        assert_eq!(all.beyond(2).collect::<Vec<_>>(), [("-r", 9), ("-t", 2), ("--local-ranks-filter", 7)]);
        assert_eq!(all.beyond(10).count(), 0);
        assert_eq!(logs("3", "3", "").beyond(0).count(), 0);
    }

    #[test]
    fn streams_are_named_as_by_torchrun() {
        assert_eq!(ways(&logs("0", "0", ""), 0), [SHOWN, SHOWN]);
        assert_eq!(ways(&logs("3", "0", ""), 7), [FILE, FILE]);
        assert_eq!(ways(&logs("1", "2", ""), 7), [FILE, BOTH]);
        assert_eq!(ways(&logs("3", "3", ""), 7), [BOTH, BOTH], "both are shown if both are asked for");
        let some = logs("0:1,12:2", "0:2", "");
        assert_eq!([0, 1, 12].map(|rank| ways(&some, rank)), [[FILE, BOTH], [SHOWN, SHOWN], [SHOWN, FILE]]);
        assert_eq!(ways(&logs("0:1,0:2", "0", ""), 0), [SHOWN, FILE], "the last counts");
        let some = logs("1", "2", "0, 2");
        assert_eq!([0, 1].map(|rank| ways(&some, rank)), [[FILE, BOTH], [FILE, FILE]]);
        assert_eq!(ways(&logs("0", "0", "1"), 0), [NEITHER, NEITHER]);
        assert_eq!(ways(&Logs { dir: None, ..logs("3", "0", "") }, 0), [NEITHER, NEITHER]);
        assert!(Which::parse(b"0:0,1:0").unwrap().is_none() && !Which::parse(b"0:0,1:1").unwrap().is_none());
    }

    #[test]
    fn named_files_take_a_stream_away_from_the_terminal() {
        let of = |out: &str, err: &str| {
            let file = |text: &str| Some(OsBytes::from(text)).filter(|text| !text.is_empty());
            Logs { files: [file(out), file(err)], ..logs("0", "0", "") }
        };
        let writer = Writer { group: b"", rank: rlaunch_base::id::Rank::new(3), node: 1, host: b"h" };
        let both = Logs { dir: None, ..of("/o.%t", "/e.%N") };
        assert_eq!(ways(&both, 0), [FILE, FILE]);
        assert_eq!(both.names(None, &writer), [Some("/o.3".into()), Some("/e.h".into())]);
        assert_eq!(ways(&of("", "/e.%t"), 0), [SHOWN, FILE]);
        assert_eq!(
            of("", "").names(Some(b"/d"), &writer),
            ["/d/stdout.log", "/d/stderr.log"].map(|name| Some(name.into()))
        );
        assert!(both.has_files() && !Logs { dir: None, ..logs("3", "0", "") }.has_files());
    }

    #[test]
    fn invalid_stream_names_are_refused() {
        for text in ["", "4", "33", "a", "0:4", "0:", ":1", "0:1,", "0:1;1:2", "-1:1", "+1:1", "0:1,1", "99999999999:1"]
        {
            assert_eq!(Which::parse(text.as_bytes()), None, "{text}");
        }
        for text in ["", "a", "0,", "0;1", "-1"] {
            assert_eq!(shown(text.as_bytes()), None, "{text}");
        }
        let many = (0..=MOST).map(|n| format!("{n}:1")).collect::<Vec<_>>().join(",");
        assert_eq!(Which::parse(many.as_bytes()), None);
    }

    #[test]
    fn hosts_do_not_share_directories() {
        let stem = |dir: &str| Logs { dir: Some(dir.into()), ..logs("3", "0", "") }.stem(2, 7).unwrap();
        assert_eq!(stem("/l"), "/l/r_1_2/attempt_7/".into());
        assert_eq!(stem("/"), "/r_1_2/attempt_7/".into());
    }
}
