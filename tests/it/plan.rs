//! How a case is started: which words, which environment, which descriptors.

use crate::case::Case;
use crate::census::Mercy;
use crate::place::{self, Scratch};
use crate::watch::{Fifo, Into, Watch};
use crate::{case, census};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Variables of the test's own environment that a case keeps.
const KEPT: [&str; 7] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TERM", "TMPDIR"];

/// A case to be started.
pub(crate) struct Plan {
    command: Command,
    tag: String,
    scratch: Scratch,
    events: bool,
    mercy: Mercy,
    readers: Vec<(Box<dyn Read + Send>, Into)>,
}

impl Plan {
    fn new(program: &Path) -> Self {
        let scratch = Scratch::new();
        let temporary = scratch.temporary();
        Self::tool(program, scratch).env("TMPDIR", temporary)
    }

    /// Another program, with a directory that was made for it.
    pub(crate) fn tool(program: &Path, scratch: Scratch) -> Self {
        let mut command = Command::new(program);
        let tag = place::unique();
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.env(census::TAG, &tag).env("RL", place::rlaunch()).env("DIR", scratch.dir());
        Self { command, tag, scratch, events: false, mercy: Mercy::Ours, readers: Vec::new() }
    }

    /// rlaunch itself, with these words.
    pub(crate) fn rlaunch<I: IntoIterator<Item: AsRef<OsStr>>>(words: I) -> Self {
        let mut plan = Self::new(place::rlaunch());
        plan.events = true;
        let events = plan.scratch.fifo("events");
        plan.command.arg("--events").arg(events).args(words);
        plan
    }

    /// A shell script that finds rlaunch as `$RL` and a directory of its own as `$DIR`.
    pub(crate) fn shell(script: &str) -> Self {
        let mut plan = Self::new(Path::new("sh"));
        plan.command.arg("-c").arg(script);
        plan
    }

    /// The same where no other job of this host takes cores: their names belong to a network namespace, and this one is new.
    /// A host that does not allow that runs the script as it is.
    pub(crate) fn alone(script: &str) -> Self {
        static WORDS: OnceLock<&str> = OnceLock::new();
        let words = WORDS.get_or_init(|| {
            let words = if place::is_root() { "unshare -n" } else { "unshare -Urn" };
            let may = Self::shell(&format!("{words} ip link set lo up")).start().end().exit.is_success();
            if may { words } else { "" }
        });
        if words.is_empty() {
            place::absent("a network namespace", "none can be made: jobs of other tests may hold the cores");
            return Self::shell(script);
        }
        Self::shell(&format!("exec {words} sh -c \"$ALONE\"")).env("ALONE", format!("ip link set lo up; {script}"))
    }

    /// A script for bash.
    pub(crate) fn bash(script: &str) -> Self {
        let mut plan = Self::new(Path::new("bash"));
        plan.command.arg("-c").arg(script);
        plan
    }

    /// The first rlaunch of the script writes its events for us.
    pub(crate) fn with_events(mut self) -> Self {
        self.events = true;
        let events = self.scratch.fifo("events");
        // It may run as another user.
        fs::set_permissions(&events, fs::Permissions::from_mode(0o666)).unwrap();
        self.env("RLAUNCH_EVENTS", events)
    }

    /// Whom the end of the case has to wait for.
    pub(crate) fn mercy(mut self, mercy: Mercy) -> Self {
        self.mercy = mercy;
        self
    }

    pub(crate) fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, words: I) -> Self {
        self.command.args(words);
        self
    }

    pub(crate) fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn contain(self, tier: &str) -> Self {
        self.env("RLAUNCH_CONTAIN", tier)
    }

    pub(crate) fn cwd(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    pub(crate) fn stdin(mut self, stdin: impl std::convert::Into<Stdio>) -> Self {
        self.command.stdin(stdin);
        self
    }

    /// The test writes what rlaunch reads.
    pub(crate) fn stdin_pipe(self) -> Self {
        self.stdin(Stdio::piped())
    }

    pub(crate) fn stdout(mut self, stdout: impl std::convert::Into<Stdio>) -> Self {
        self.command.stdout(stdout);
        self
    }

    pub(crate) fn stderr(mut self, stderr: impl std::convert::Into<Stdio>) -> Self {
        self.command.stderr(stderr);
        self
    }

    /// Reads the other end of a descriptor that the case was given.
    pub(crate) fn reads(mut self, from: impl Read + Send + 'static, to: Into) -> Self {
        self.readers.push((Box::new(from), to));
        self
    }

    /// The directory of the case, `$DIR` of its processes.
    pub(crate) const fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    pub(crate) fn start(mut self) -> Case {
        let watch = Watch::default();
        if self.events {
            let open =
                OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(self.scratch.path("events"));
            watch.read(Fifo(open.unwrap()), Into::Events);
        }
        let mut child = census::spawn(&mut self.command);
        watch.wait_for(Pid::from_raw(i32::try_from(child.id()).unwrap()));
        if let Some(out) = child.stdout.take() {
            watch.read(out, Into::Out);
        }
        if let Some(err) = child.stderr.take() {
            watch.read(err, Into::Err);
        }
        for (from, to) in self.readers {
            watch.read(from, to);
        }
        let words = format!("{:?}", self.command);
        // Closes the caller's descriptors, or their readers would never see an end.
        drop(self.command);
        case::Case::new(child, watch, self.tag, self.scratch, words, (self.events, self.mercy))
    }
}
