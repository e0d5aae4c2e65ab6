//! The place of the tests: the binary, the tree, the user, the tiers, and absent things.

use crate::plan::Plan;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

/// The binary under test.
pub(crate) fn rlaunch() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| std::env::var_os("RLAUNCH_BIN").map_or_else(built, PathBuf::from))
}

/// The binary that cargo built beside the tests. Cargo does not know that they need it, so a stale one is refused here.
fn built() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let bin = tests.parent().and_then(Path::parent).unwrap().join("rlaunch");
    let time = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    let newest =
        ["agent/src", "common", "launcher/src"].into_iter().filter_map(|dir| newest_source(&root().join(dir))).max();
    assert!(
        time(&bin) > newest,
        "{} is missing, or older than its sources: cargo build, then run the tests again",
        bin.display()
    );
    bin
}

/// The time of the youngest Rust source below a directory. Unit tests are no part of the binary.
fn newest_source(dir: &Path) -> Option<SystemTime> {
    let entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        if path.file_stem().is_some_and(|name| name == "tests") {
            return None;
        }
        match path.is_dir() {
            true => newest_source(&path),
            false if path.extension().is_some_and(|end| end == "rs") => path.metadata().ok()?.modified().ok(),
            false => None,
        }
    };
    std::fs::read_dir(dir).ok()?.filter_map(entry).max()
}

/// A program that was built beside the binary under test.
pub(crate) fn beside(name: &str) -> PathBuf {
    rlaunch().with_file_name(name)
}

/// An example of the client's, if it was built.
pub(crate) fn example(name: &str) -> Option<PathBuf> {
    let found = [beside(name), rlaunch().with_file_name("examples").join(name)].into_iter().find(|path| path.is_file());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "{name} was not built");
        absent(name, "not built; cargo test --workspace builds it");
    }
    found
}

/// The tree that holds `examples`.
pub(crate) fn root() -> PathBuf {
    std::env::var_os("RLAUNCH_TEST_ROOT")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")), PathBuf::from)
}

/// The long counts are wanted.
pub(crate) fn full() -> bool {
    std::env::var_os("RLAUNCH_TEST_FULL").is_some_and(|v| v == "1")
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Says what was not run. Past the capture of the test harness: nothing is skipped in silence.
pub(crate) fn absent(what: &str, reason: &str) {
    say(&format!("absent: {what}: {reason}"));
}

/// A line on stderr, also of a test that passes.
pub(crate) fn say(line: &str) {
    std::io::stderr().lock().write_all(format!("{line}\n").as_bytes()).unwrap_or_default();
}

/// A program that a case cannot do without; false, and said, where it is missing.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "{program} is not installed");
        absent(program, "not installed");
    }
    found
}

/// A Python that has JAX, if there is one.
pub(crate) fn jax() -> Option<PathBuf> {
    std::env::var_os("RLAUNCH_JAX").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The Python package with its library in it.
pub(crate) fn client() -> Option<PathBuf> {
    let given = std::env::var_os("RLAUNCH_CLIENT").filter(|path| !path.is_empty()).map(PathBuf::from);
    given.or_else(|| {
        Some(root().join("target/client/python")).filter(|built| built.join("rlaunch/librlaunch.so").exists())
    })
}

/// A Python with a newer torch than Debian's: `bin/NAME` of a virtual environment.
pub(crate) fn newer_torch() -> Option<PathBuf> {
    std::env::var_os("RLAUNCH_TORCH").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The tiers that this user has here. A tier that `RLAUNCH_REQUIRE_TIERS` names must be among them.
pub(crate) fn tiers() -> &'static [&'static str] {
    static TIERS: OnceLock<Vec<&'static str>> = OnceLock::new();
    TIERS.get_or_init(|| {
        let required = std::env::var("RLAUNCH_REQUIRE_TIERS").unwrap_or_default();
        let mut found = Vec::new();
        for tier in ["t1", "t3"] {
            let done = Plan::rlaunch(["-n", "1", "true"]).contain(tier).start().end();
            if done.exit.is_success() {
                found.push(tier);
                continue;
            }
            let why = done.err();
            assert!(!required.split(',').any(|t| t == tier), "tier {tier} is required and absent: {why}");
            absent(tier, why.trim());
        }
        found
    })
}

/// The seed of every random choice of this run.
pub(crate) fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        let given = std::env::var("RLAUNCH_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
        say(&format!("RLAUNCH_TEST_SEED={seed}"));
        seed
    })
}

/// Steele and Vigna's SplitMix64: all that a test needs of chance.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(stream: u64) -> Self {
        Self(seed() ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.below(u64::try_from(from.len()).unwrap());
        &from[usize::try_from(at).unwrap()]
    }
}

/// A name that no other case has.
pub(crate) fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    format!("{}-{}-{now:x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A directory of a case, removed with it.
#[derive(Default)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self::inside(&std::env::temp_dir())
    }
    pub(crate) fn inside(parent: &Path) -> Self {
        let dir = parent.join(format!("rlaunch-it.{}", unique()));
        std::fs::create_dir(&dir).unwrap();
        Self(dir)
    }
    /// A second one, for files that the processes of the case leave in TMPDIR: a killed process removes nothing. It stands beside the
    /// first, because cases mount on that.
    pub(crate) fn temporary(&self) -> PathBuf {
        let dir = temporary_of(&self.0);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o1777)).unwrap();
        dir
    }
    /// Hands the directory on.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }
    /// A named pipe: what a rank or a test waits at, without a clock.
    pub(crate) fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            std::fs::remove_dir_all(&self.0).unwrap_or_default();
            std::fs::remove_dir_all(temporary_of(&self.0)).unwrap_or_default();
        }
    }
}

fn temporary_of(dir: &Path) -> PathBuf {
    let mut name = dir.as_os_str().to_owned();
    name.push(".t");
    PathBuf::from(name)
}
