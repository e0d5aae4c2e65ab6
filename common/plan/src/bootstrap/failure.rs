//! Why a host could not be had: one sentence, the carrier's own words, and what to try.

use super::answer::Place;
use super::argv::Target;
use super::carrier::{CarrierEnd, CarrierKind};
use super::dial::{Seen, Stage};
use super::remote_line::LineError;
use super::srun;
use super::ssh_messages::{self, Trouble};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use rlaunch_base::errno::{EAGAIN, EMFILE, ENOENT};
use rlaunch_base::error::Hint;
use rlaunch_base::os_bytes::{OsBytes, Visible};
use rlaunch_base::shell::quoted;
use rlaunch_base::time::Span;
use serde::Serialize;

/// A host that could not be had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// As the user named it.
    pub target: Target,
    /// The carrier that was to bring the agent.
    pub carrier: CarrierKind,
    /// Why.
    pub why: Why,
    /// The messages of the carrier, or of the shell there. May be empty.
    pub words: OsBytes,
    /// How often it was tried.
    pub attempts: u32,
    /// ssh was allowed to ask (`--ssh-prompt`).
    pub asked: bool,
}

/// Why no agent could be started on a host.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct HostFailure {
    /// In our words: `name does not resolve`.
    pub why: OsBytes,
    /// In those of the program that was to reach it; empty if it said nothing.
    pub words: OsBytes,
    /// The advice for the user.
    #[serde(skip)]
    pub hint: OsBytes,
}

impl From<&Failure> for HostFailure {
    fn from(failure: &Failure) -> Self {
        Self {
            why: failure.reason().into(),
            words: failure.said(),
            hint: failure.hint().map(|hint| OsBytes::from(hint.into_owned())).unwrap_or_default(),
        }
    }
}

/// Why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// The command that was to reach the host cannot be started.
    NoCarrier {
        /// The system's number for the reason.
        errno: i32,
        /// Its words.
        said: OsBytes,
    },
    /// ssh says why.
    Login(Trouble),
    /// The carrier failed in another way.
    Carrier(CarrierEnd),
    /// The login shell ended without running our line.
    Shell(CarrierEnd),
    /// The login shell prints more than any greeting.
    Noise,
    /// Something else stood where an answer belongs.
    Garbled(OsBytes),
    /// Another architecture.
    Arch {
        /// Architecture of the host.
        host: OsBytes,
        /// Architecture of this rlaunch.
        own: &'static str,
    },
    /// There is no place for the binary: each with its reason.
    Nowhere(OsBytes),
    /// The path of `--agent-path` cannot be quoted for a shell.
    Unquotable(LineError),
    /// The file that `--agent-path` names, and the reason why it was not used.
    Unusable(OsBytes),
    /// The binary did not arrive as it was sent.
    Spoiled(Place),
    /// The agent did not start.
    Agent(CarrierEnd),
    /// The file that `--agent-path` names was executed, and is no agent.
    Stranger {
        /// The path.
        path: OsBytes,
        /// How it ended; `None`: it prints what no agent says.
        end: Option<CarrierEnd>,
    },
    /// The agent refuses, in its own words.
    Declined(OsBytes),
    /// The agent is up, and the streams of its carrier cannot be taken over here.
    NoEdge,
    /// The process that answered does not know the secret.
    Impostor,
    /// In a step of several hosts: no binary that may be used is there, and none can be sent.
    Absent,
    /// In a step of several hosts: the agent cannot connect to the launcher, for this reason.
    Unconnected(OsBytes),
    /// In a step of several hosts: its agent has not connected in time.
    NoConnection {
        /// The launcher listens there.
        port: u16,
        /// How long it had.
        limit: Span,
    },
    /// The deadline passed.
    Late {
        /// The awaited step.
        stage: Stage,
        /// The bytes that had arrived while ssh was connecting.
        seen: Seen,
        /// How long it had.
        limit: Span,
    },
}

/// The code with which `env` ends if it does not find the command.
const NOT_FOUND: u8 = 127;

/// A reason of the remote line, in words.
const fn reason(word: &[u8]) -> &'static str {
    match word {
        b"none" => "it is not there",
        b"dir" => "it is a directory",
        b"link" => "it is a symbolic link, which somebody may have planted",
        b"closed" => "it cannot be entered",
        b"owner" => "it belongs to somebody else",
        b"mode" => "others may write to it or read it",
        b"readonly" => "it cannot be written",
        b"noexec" => "programs there cannot be executed (noexec)",
        b"full" => "there is no space left",
        _ => "it cannot be used",
    }
}

fn places(f: &mut fmt::Formatter<'_>, list: &OsBytes) -> fmt::Result {
    f.write_str("no place for the agent's binary")?;
    let mut between = ": ";
    for entry in list.split(|b| *b == b' ').filter(|entry| !entry.is_empty()) {
        let until = entry.iter().position(|b| *b == b':').unwrap_or(entry.len());
        let (place, why) = entry.split_at(until);
        f.write_str(between)?;
        match Place::parse(place).and_then(Place::kept) {
            Some((above, ours)) => write!(f, "{above}/{ours}")?,
            None => f.write_str("a place")?,
        }
        write!(f, ": {}", reason(why.strip_prefix(b":").unwrap_or(why)))?;
        between = "; ";
    }
    Ok(())
}

/// A reason, with the carrier that it is about.
pub(super) struct Reason<'a>(pub(super) &'a Why, pub(super) CarrierKind);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(why, carrier) = self;
        match why {
            Why::NoCarrier { said, .. } if *carrier == CarrierKind::Exec => {
                write!(f, "{carrier} cannot be started: {said}")
            }
            Why::NoCarrier { said, .. } => write!(f, "the command {carrier} cannot be started: {said}"),
            Why::Login(trouble) => trouble.fmt(f),
            Why::Carrier(end @ CarrierEnd::Code(0)) => write!(f, "{carrier} ended without starting the agent ({end})"),
            Why::Carrier(end) => write!(f, "{carrier} failed ({end})"),
            Why::Shell(end) => write!(f, "the login shell there ended at once ({end})"),
            Why::Noise => f.write_str("the login shell there prints more than 64 KiB before it runs a command"),
            Why::Garbled(what) => write!(f, "something else is printed there where the answer belongs: '{what}'"),
            Why::Arch { host, own } => write!(f, "its architecture is {host}, and this rlaunch is for {own}"),
            Why::Nowhere(list) => places(f, list),
            Why::Unquotable(error) => error.fmt(f),
            Why::Unusable(why) => {
                f.write_str("the agent that --agent-path names is not used: ")?;
                match why.strip_prefix(b"above ") {
                    Some(dir) => {
                        write!(f, "others own or may write to its directory {} (chmod go-w)", Visible(dir))
                    }
                    None => f.write_str(reason(why)),
                }
            }
            Why::Spoiled(place) => write!(f, "the agent's binary did not arrive whole ({place})"),
            Why::Agent(end) => write!(f, "the agent did not start ({end})"),
            Why::Stranger { path, end: Some(end) } => {
                write!(f, "{path} is no rlaunch of this version, or cannot run there ({end})")
            }
            Why::Stranger { path, end: None } => {
                write!(f, "{path} is no rlaunch: it was started there, and prints what no agent says")
            }
            Why::Declined(why) => write!(f, "the agent refuses: {why}"),
            Why::NoEdge => write!(f, "the agent started, and the streams of its {carrier} cannot be taken over here"),
            Why::Impostor => f.write_str("the process that answered is not the agent that was started"),
            Why::Absent => f.write_str("this rlaunch is not on the host, and --transport tcp cannot copy it there"),
            Why::Unconnected(why) => write!(f, "its agent cannot connect to this host: {why}"),
            Why::NoConnection { port, limit } => {
                write!(f, "not ready within {limit}: its agent has not connected to port {port} of this host")
            }
            Why::Late { stage, seen, limit } => {
                write!(f, "not ready within {limit}: ")?;
                match stage {
                    Stage::Connecting if *carrier == CarrierKind::Ssh => seen.fmt(f),
                    Stage::Connecting => {
                        write!(f, "{carrier} has not started a shell there, or that waits for something")
                    }
                    Stage::Pausing | Stage::Sending(_) | Stage::Starting(_) => stage.fmt(f),
                }
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.target, Reason(&self.why, self.carrier))?;
        if self.attempts > 1 {
            write!(f, " ({} attempts)", self.attempts)?;
        }
        Ok(())
    }
}

impl Failure {
    /// The advice for a user whose ssh was denied access.
    fn to_be_let_in(&self, host: &str) -> String {
        if let Some(file) = ssh_messages::open_key(&self.words) {
            return format!("chmod 600 {}: ssh takes no key that others may read", quoted(file.as_bytes()));
        }
        let keys = format!("ssh-copy-id {host}, once; ssh-add, for a key with a passphrase");
        if self.asked { keys } else { format!("{keys}; or --ssh-prompt to type it, or a password") }
    }

    /// The advice where ssh says why.
    fn after_login(&self, trouble: Trouble) -> Cow<'static, str> {
        let (host, known_as) = (self.target.by_hand(), self.target.known_as());
        match trouble {
            Trouble::Denied => self.to_be_let_in(&host).into(),
            Trouble::Barred => {
                "ask who runs it whether you may log in there; under Slurm, only with a job of yours on it".into()
            }
            Trouble::Closed => {
                format!("ssh {host} true: if that is closed too, see sshd's log; else too many log in at a time").into()
            }
            Trouble::KeyChanged => {
                let file = ssh_messages::known_hosts(&self.words);
                let file = file.map_or_else(String::new, |file| format!("-f {} ", quoted(file.as_bytes())));
                let name = ssh_messages::changed_host(&self.words).map_or(known_as, |name| quoted(name.as_bytes()));
                let again = format!("ssh-keygen {file}-R {name}, then ssh {host}");
                format!("ask who runs it; if the host was installed anew: {again}").into()
            }
            Trouble::KeyUnknown => format!("ssh {host}, once, to accept its key").into(),
            Trouble::Unresolved => "fix the name, or give its address".into(),
            Trouble::Refused => "start sshd there, or name its port".into(),
            Trouble::Unreachable => "see whether it is up, and whether a ProxyJump leads to it".into(),
            Trouble::Throttled => {
                "raise MaxStartups in its sshd_config, or on the host that it is reached through".into()
            }
            Trouble::Config => "mend ~/.ssh/config".into(),
            Trouble::MasterFull => {
                "raise MaxSessions in its sshd_config (0 admits no session), or on the host that it is reached through"
                    .into()
            }
            Trouble::NoForwarding => {
                format!("AllowTcpForwarding and PermitOpen in its sshd_config; ssh -G {host} names the proxyjump")
                    .into()
            }
            Trouble::Lost => "see whether the host or the network between was restarted".into(),
        }
    }

    /// Whether srun reports that the job has ended.
    fn is_over(&self) -> bool {
        srun::OVER.iter().any(|text| memchr::memmem::find(&self.words, text.as_bytes()).is_some())
    }

    /// The reason, in words.
    #[must_use]
    pub fn reason(&self) -> String {
        format!("{}", Reason(&self.why, self.carrier))
    }

    /// The messages of the carrier, after the number of attempts. Not in `why`, by which hosts are grouped: a deadline that ends the attempts
    /// ends them at different numbers.
    #[must_use]
    pub fn said(&self) -> OsBytes {
        let mut said = Vec::new();
        if self.attempts > 1 {
            said.extend_from_slice(format!("{} attempts", self.attempts).as_bytes());
            if !self.words.is_empty() {
                said.extend_from_slice(b"; ");
            }
        }
        said.extend_from_slice(&self.words);
        OsBytes::new(said)
    }
}

impl Hint for Failure {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let by_hand = || self.carrier.by_hand(&self.target);
        Some(match &self.why {
            Why::NoCarrier { errno: ENOENT, .. } if self.carrier == CarrierKind::Ssh => {
                "install the OpenSSH client, or put it into PATH".into()
            }
            Why::Carrier(CarrierEnd::Code(NOT_FOUND)) | Why::NoCarrier { errno: ENOENT, .. }
                if self.carrier == CarrierKind::Srun =>
            {
                "put srun into PATH; or --launcher ssh, or --launcher local for ranks on this host".into()
            }
            Why::NoCarrier { errno: EMFILE, .. } => "a higher limit: ulimit -n".into(),
            Why::NoCarrier { errno: EAGAIN, .. } => "a higher limit: ulimit -u".into(),
            Why::NoCarrier { .. } => return None,
            Why::Login(trouble) => self.after_login(*trouble),
            Why::Carrier(_) if self.carrier == CarrierKind::Srun && self.is_over() => {
                "salloc or sbatch again: that job is over; or --launcher local".into()
            }
            Why::Carrier(_) | Why::Shell(_) | Why::Agent(_) | Why::NoEdge | Why::Impostor => {
                let purpose = format!(", to see what {} says", self.carrier);
                format!("{}{purpose}", by_hand()?).into()
            }
            Why::Noise | Why::Garbled(_) => "let the shell's start-up files print nothing where no terminal is".into(),
            Why::Arch { .. } | Why::Stranger { .. } => {
                "--agent-path PATH, of an rlaunch of this version for that architecture there".into()
            }
            Why::Nowhere(_) => "--agent-path PATH, of an rlaunch of this version there".into(),
            Why::Unquotable(error) => return error.hint(),
            Why::Unusable(_) => "a file and a directory of yours or root's that nobody else may write".into(),
            Why::Spoiled(_) => "see whether a disk or a quota is full there".into(),
            Why::Declined(_) => "the same rlaunch on both ends".into(),
            Why::Absent => "--transport auto, or --agent-path PATH, of an rlaunch of this version there".into(),
            Why::Unconnected(_) => "--transport stdio, or let the hosts of the job connect to this one".into(),
            Why::NoConnection { .. } => {
                let by_hand = by_hand().unwrap_or_default();
                format!("{by_hand}, to see where it hangs; --transport stdio; a longer --connect-timeout").into()
            }
            Why::Late { stage: Stage::Starting(Place::Named), .. } => {
                "see whether --agent-path names an rlaunch; a longer --connect-timeout".into()
            }
            Why::Late { stage, seen, .. } => {
                let nothing = *stage == Stage::Connecting && *seen == Seen::Nothing;
                let is_up = if nothing && self.carrier == CarrierKind::Ssh { "see whether it is up; " } else { "" };
                let hangs = by_hand().map_or(String::new(), |by_hand| format!("{by_hand}, to see where it hangs; "));
                format!("{is_up}{hangs}a longer --connect-timeout").into()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn advice_names_user_and_port() {
        let hint = |why| {
            let target = Target::parse(b"eve@node1", Some(2222)).unwrap();
            let words = OsBytes::default();
            Failure { target, carrier: CarrierKind::Ssh, why, words, attempts: 1, asked: false }
                .hint()
                .unwrap()
                .into_owned()
        };
        for (trouble, words) in [
            (Trouble::Denied, "ssh-copy-id -p 2222 eve@node1, once"),
            (Trouble::KeyChanged, "ssh-keygen -R '[node1]:2222', then ssh -p 2222 eve@node1"),
            (Trouble::KeyUnknown, "ssh -p 2222 eve@node1, once"),
            (Trouble::Closed, "ssh -p 2222 eve@node1 true"),
        ] {
            let hint = hint(Why::Login(trouble));
            assert!(hint.contains(words), "{hint}");
        }
        for why in
            [Why::Impostor, Why::Late { stage: Stage::Connecting, seen: Seen::Nothing, limit: Span::from_secs(1) }]
        {
            assert!(hint(why).contains("ssh -p 2222 eve@node1 true"));
        }
    }

    #[test]
    fn advice_follows_what_ssh_says() {
        let hint = |trouble, words: &str, asked| {
            let target = Target::parse(b"node1", None).unwrap();
            let why = Why::Login(trouble);
            Failure { target, carrier: CarrierKind::Ssh, why, words: words.into(), attempts: 1, asked }
                .hint()
                .unwrap()
                .into_owned()
        };
        let denied = "u@node1: Permission denied (publickey).";
        let keys = "ssh-copy-id node1, once; ssh-add, for a key with a passphrase";
        let prompt = format!("{keys}; or --ssh-prompt to type it, or a password");
        assert_eq!(hint(Trouble::Denied, denied, false), prompt);
        assert_eq!(hint(Trouble::Denied, denied, true), keys, "it was given");
        let open = format!("Load key \"/home/o'neil/id\": bad permissions; {denied}");
        let chmod = "chmod 600 '/home/o'\\''neil/id': ssh takes no key that others may read";
        assert_eq!(hint(Trouble::Denied, &open, false), chmod);
        for (file, name, keygen) in [
            ("/home/u/my keys:1", "node1", "ssh-keygen -f '/home/u/my keys:1' -R node1, then ssh node1"),
            ("/etc/known", "[jump]:2222", "ssh-keygen -f /etc/known -R '[jump]:2222', then ssh node1"),
        ] {
            let said = format!("Offending RSA key in {file}:3; Host key for {name} has changed and you have ...");
            let hint = hint(Trouble::KeyChanged, &said, false);
            assert!(hint.ends_with(&format!(": {keygen}")), "{hint}");
        }
    }

    #[test]
    fn says_how_often_it_was_tried() {
        for (attempts, words, said) in
            [(1, "cut", "cut"), (12, "cut", "12 attempts; cut"), (2, "", "2 attempts"), (0, "", "")]
        {
            let target = Target::parse(b"h", None).unwrap();
            let failure = Failure {
                target,
                carrier: CarrierKind::Ssh,
                why: Why::Noise,
                words: words.into(),
                attempts,
                asked: false,
            };
            assert_eq!(failure.said(), said.into());
        }
    }

    #[test]
    fn names_every_place_and_its_reason() {
        let why = Why::Nowhere("cache:readonly tmp:link shm:noexec".into());
        assert_eq!(
            Reason(&why, CarrierKind::Ssh).to_string(),
            "no place for the agent's binary: ~/.cache/rlaunch: it cannot be written; /tmp/rlaunch-UID: it is a symbolic \
             link, which somebody may have planted; /dev/shm/rlaunch-UID: programs there cannot be executed (noexec)"
        );
    }
}
