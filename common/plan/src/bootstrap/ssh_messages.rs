//! The messages of ssh on stderr, parsed. Its exit code is 255 for everything that goes wrong before the command runs, so its words are
//! all there is.

use super::srun::NOISE;
use alloc::vec::Vec;
use core::fmt;
use rlaunch_base::os_bytes::OsBytes;

/// Most of ssh's stderr that is kept.
pub const KEPT: usize = 4 << 10;
/// Most lines that are shown.
const SHOWN: usize = 3;

/// Reason why ssh did not get through, as far as its words show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// Too many log in at a time: worth another try.
    Throttled,
    /// An open connection takes no further session.
    MasterFull,
    /// A jump host does not forward.
    NoForwarding,
    /// No key or password was accepted.
    Denied,
    /// The account is not let in, whatever key it has.
    Barred,
    /// The connection was closed between the first word and the shell, without a reason.
    Closed,
    /// The connection broke when the shell had answered.
    Lost,
    /// The host's key is not the one that is known.
    KeyChanged,
    /// The host's key is not known.
    KeyUnknown,
    /// No such name.
    Unresolved,
    /// No process listens at the port.
    Refused,
    /// The host does not answer, or no route leads there.
    Unreachable,
    /// The user's own configuration.
    Config,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Throttled => "it cut every connection off: too many log in at a time",
            // Reported for a connection that is not shared: after a shared one, another is tried.
            Self::MasterFull => "it takes no session, on a connection of its own either",
            Self::NoForwarding => "its jump host forbids to forward connections",
            Self::Denied => "ssh was denied access",
            Self::Barred => "the account is denied access there",
            Self::Closed => "it closed the connection before the login was complete",
            Self::Lost => "the connection broke after the login, before the agent was ready",
            Self::KeyChanged => "the host's key is not the one that ssh knows",
            Self::KeyUnknown => "ssh does not know the host's key",
            Self::Unresolved => "the name does not resolve",
            Self::Refused => "nothing listens on its ssh port",
            Self::Unreachable => "it cannot be reached",
            Self::Config => "ssh refuses its configuration",
        })
    }
}

/// The message of ssh about a changed key if it ends the connection, and is not only a warning (`StrictHostKeyChecking no`).
const STRICT: [&str; 2] = ["you have requested strict checking", "Host key verification failed"];

/// Words and what they mean. The first row that is found counts: what ends the matter stands before what may be its
/// consequence.
const TABLE: &[(Trouble, &[&str])] = &[
    (
        Trouble::KeyChanged,
        &[
            "REMOTE HOST IDENTIFICATION HAS CHANGED",
            "Offending key",
            "Host key for",
            " has changed and you have requested",
        ],
    ),
    (Trouble::KeyUnknown, &["Host key verification failed", "host key is known for"]),
    (Trouble::Denied, &["Permission denied", "Too many authentication failures", "No supported authentication"]),
    (
        Trouble::MasterFull,
        &[
            "administratively prohibited",
            "Session open refused by peer",
            "mux_client_request_session",
            "session request failed",
            "connect failed: open failed",
        ],
    ),
    (Trouble::Unresolved, &["Could not resolve hostname", "Name or service not known"]),
    (
        Trouble::Config,
        &["Bad configuration option", "bad configuration options", "Bad owner or permissions", "keyword "],
    ),
    (Trouble::Throttled, &["Exceeded MaxStartups", "Not allowed at this time", "banner exchange"]),
    (Trouble::Refused, &["Connection refused"]),
    (
        Trouble::Unreachable,
        &["Connection timed out", "Operation timed out", "No route to host", "Network is unreachable", "Host is down"],
    ),
    // With a jump host these are also the last messages about a host that is down: after its own. sshd drops connections above
    // MaxStartups before it has sent its version, and every ssh names that.
    (Trouble::Throttled, &["kex_exchange_identification", "ssh_exchange_identification"]),
    // After those that a greeting which speaks of denial may stand before.
    (Trouble::Barred, &["Access denied", "access denied"]),
    // The remaining message of an account that PAM refuses (pam_access, pam_nologin), or of an sshd that was killed.
    (Trouble::Closed, &["Connection reset by", "Connection closed by"]),
];

/// The message of ssh for a broken connection: the only meaning that it can have once the host has answered. Whatever else stands on its
/// stderr then, a start-up file of the login said.
const BROKEN: &[&str] = &[
    "Connection reset by",
    "Connection closed by",
    "closed by remote host",
    "Broken pipe",
    "not responding",
    "Connection timed out",
    "Operation timed out",
    "No route to host",
    "Network is unreachable",
    "Host is down",
];

/// The begin of a line that explains more than the line by which the trouble is known: it is shown before that. Keys that are left out,
/// an agent that does not sign; the file and the line of the key that is known.
const CAUSES: &[(Trouble, &str)] = &[
    (Trouble::Denied, "Load key "),
    (Trouble::Denied, "no such identity: "),
    (Trouble::Denied, "sign_and_send_pubkey: "),
    (Trouble::KeyChanged, "Offending "),
];

/// The part of ssh's messages that is shown, searched for names: `None` for one that would drive a terminal.
fn named<'a>(words: &'a OsBytes, find: impl FnOnce(&'a str) -> Option<&'a str>) -> Option<&'a str> {
    find(core::str::from_utf8(words).ok()?).filter(|name| !name.is_empty() && !name.contains(char::is_control))
}

/// The private key that ssh leaves out because others may read it.
pub(super) fn open_key(words: &OsBytes) -> Option<&str> {
    named(words, |text| Some(text.split_once("\": bad permissions")?.0.rsplit_once("Load key \"")?.1))
}

/// The file that knows another key of the host: `Offending ED25519 key in /home/eve/.ssh/known_hosts:1`.
pub(super) fn known_hosts(words: &OsBytes) -> Option<&str> {
    named(words, |text| {
        Some(text.split_once("Offending ")?.1.split("; ").next()?.split_once(" in ")?.1.rsplit_once(':')?.0)
    })
}

/// The host whose key has changed, as that file calls it: it may be a jump host.
pub(super) fn changed_host(words: &OsBytes) -> Option<&str> {
    named(words, |text| Some(text.split_once("ost key for ")?.1.split_once(" has changed")?.0))
}

/// The last lines of what was printed, in one.
pub(super) fn last_lines(bytes: &[u8]) -> OsBytes {
    last(&lines(bytes).collect::<Vec<_>>())
}

fn last(lines: &[&[u8]]) -> OsBytes {
    OsBytes::new(lines.get(lines.len().saturating_sub(SHOWN)..).unwrap_or_default().join(&b"; "[..]))
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

/// The last bytes of ssh's stderr.
#[derive(Clone, Debug, Default)]
pub struct Words {
    kept: Vec<u8>,
    /// The host has answered.
    is_in: bool,
}

impl Words {
    /// More of them.
    pub fn push(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
        let surplus = self.kept.len().saturating_sub(KEPT);
        self.kept.drain(..surplus);
    }

    /// Whether there is no message.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Forgets them: another attempt begins.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The host has answered, so the login has succeeded: words of a login mean nothing any more.
    pub const fn logged_in(&mut self) {
        self.is_in = true;
    }

    /// Drops the messages from before the agent was ready.
    pub fn ready(&mut self) {
        self.kept.clear();
    }

    /// The meaning of the messages, if it is known.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        let says = |text: &&str| memchr::memmem::find(&self.kept, text.as_bytes()).is_some();
        if self.is_in {
            return BROKEN.iter().any(says).then_some(Trouble::Lost);
        }
        let is_over = |trouble| trouble != Trouble::KeyChanged || STRICT.iter().any(says);
        let row = TABLE.iter().find(|(trouble, texts)| is_over(*trouble) && texts.iter().any(says));
        let trouble = row.map(|(trouble, _)| *trouble)?;
        // The same words, said of a channel to the next host by `ssh -W`, which is what a ProxyJump runs.
        let forwarding = trouble == Trouble::MasterFull && says(&"stdio forwarding failed");
        Some(match (forwarding, says(&"administratively prohibited")) {
            (false, _) => trouble,
            (true, true) => Trouble::NoForwarding,
            (true, false) => Trouble::Unreachable,
        })
    }

    /// The lines that matter, in one: the first that names the trouble, after those that name its cause, or the last ones. Before an end
    /// without a reason the host may have printed one.
    #[must_use]
    pub fn shown(&self) -> OsBytes {
        // A frame around a warning says nothing that the lines below it do not.
        let is_frame = |line: &&[u8]| line.starts_with(b"@@") || (line.starts_with(b"@ ") && line.ends_with(b" @"));
        let is_noise = |line: &&[u8]| is_frame(line) || line.starts_with(NOISE.as_bytes());
        let lines: Vec<&[u8]> = lines(&self.kept).filter(|line| !is_noise(line)).collect();
        let trouble = self.trouble();
        let names_trouble = |line: &&&[u8]| {
            let says = |text: &&str| memchr::memmem::find(line, text.as_bytes()).is_some();
            let row = if trouble == Some(Trouble::NoForwarding) { Some(Trouble::MasterFull) } else { trouble };
            match row {
                Some(Trouble::Lost) => BROKEN.iter().any(says),
                row => TABLE.iter().any(|(kind, texts)| Some(*kind) == row && texts.iter().any(says)),
            }
        };
        let is_cause = |line: &&[u8]| {
            let begins = |(kind, text): &(Trouble, &str)| Some(*kind) == trouble && line.starts_with(text.as_bytes());
            CAUSES.iter().any(begins) && !names_trouble(&line)
        };
        match lines.iter().position(|line| names_trouble(&line)) {
            Some(at) if matches!(trouble, Some(Trouble::Closed | Trouble::Lost)) => {
                last(lines.get(..=at).unwrap_or_default())
            }
            Some(at) => {
                let causes = lines.iter().copied().filter(is_cause).take(SHOWN.saturating_sub(1));
                last(&causes.chain(lines.get(at).copied()).collect::<Vec<_>>())
            }
            None => last(&lines),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn words(text: &str) -> Words {
        let mut words = Words::default();
        words.push(text.as_bytes());
        words
    }

    #[test]
    fn understands_what_ssh_says() {
        for (text, trouble) in [
            ("ssh: Could not resolve hostname nope: Name or service not known\r\n", Trouble::Unresolved),
            ("root@h: Permission denied (publickey).\r\n", Trouble::Denied),
            ("kex_exchange_identification: read: Connection reset by peer\r\n", Trouble::Throttled),
            ("kex_exchange_identification: Connection closed by remote host\n", Trouble::Throttled),
            ("ssh: connect to host h port 22: Connection refused\r\n", Trouble::Refused),
            ("ssh: connect to host h port 22: No route to host\r\n", Trouble::Unreachable),
            ("ssh: connect to host h port 22: Connection timed out\r\n", Trouble::Unreachable),
            ("channel 2: open failed: administratively prohibited: open failed\n", Trouble::MasterFull),
            ("mux_client_request_session: session request failed: Session open refused by peer\n", Trouble::MasterFull),
            ("Host key verification failed.\n", Trouble::KeyUnknown),
            ("/home/u/.ssh/config line 1: Bad configuration option: foo\n", Trouble::Config),
            ("ssh_exchange_identification: Connection closed by remote host\r\n", Trouble::Throttled),
            ("Exceeded MaxStartups\nConnection closed by 10.0.0.1 port 22\n", Trouble::Throttled),
            ("Connection reset by 10.0.0.1 port 22\n", Trouble::Closed),
            ("*** access denied to strangers ***\nu@h: Permission denied (publickey).\n", Trouble::Denied),
            (
                "channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed\n\
                 kex_exchange_identification: Connection closed by remote host\n",
                Trouble::Refused,
            ),
        ] {
            assert_eq!(words(text).trouble(), Some(trouble), "{text}");
        }
        for text in ["Killed\n", ""] {
            assert_eq!(words(text).trouble(), None, "{text}");
        }
    }

    #[test]
    fn a_denied_login_that_the_server_cuts_off_is_denied() {
        let text = "Received disconnect from h: Too many authentication failures\nConnection closed by h port 22\n";
        assert_eq!(words(text).trouble(), Some(Trouble::Denied));
    }

    /// As OpenSSH 9.2 says it where PAM refuses an account.
    #[test]
    fn an_account_that_is_refused_after_its_key_was_accepted() {
        let close = "Connection closed by 10.1.1.1 port 22\n";
        let slurm = "Access denied by pam_slurm_adopt: you have no active jobs on this node";
        let said = words(&format!("{slurm}\n{close}"));
        assert_eq!((said.trouble(), said.shown()), (Some(Trouble::Barred), slurm.into()));
        let nologin = "System is going down. Unprivileged users are not permitted to log in anymore.";
        let said = words(&format!("Warning: Permanently added 'h'.\nhello\n{nologin}\n\n{close}"));
        let shown = format!("hello; {nologin}; {}", close.trim());
        assert_eq!((said.trouble(), said.shown()), (Some(Trouble::Closed), shown.as_str().into()));
    }

    /// As OpenSSH 9.2 says it through a host with `AllowTcpForwarding no`, and one with `MaxSessions 0`.
    #[test]
    fn a_jump_host_that_forbids_forwarding() {
        let channel = "channel 0: open failed: administratively prohibited: open failed";
        let rest =
            "kex_exchange_identification: Connection closed by remote host\r\nConnection closed by UNKNOWN port 65535";
        let said = words(&format!("{channel}\r\nstdio forwarding failed\r\n{rest}\r\n"));
        assert_eq!((said.trouble(), said.shown()), (Some(Trouble::NoForwarding), channel.into()));
        let none = "channel 0: open failed: connect failed: open failed\r\n";
        assert_eq!(words(none).trouble(), Some(Trouble::MasterFull));
        for why in ["No route to host", "open failed"] {
            let down = format!("channel 0: open failed: connect failed: {why}\r\nstdio forwarding failed\r\n{rest}");
            assert_eq!(words(&down).trouble(), Some(Trouble::Unreachable));
        }
    }

    #[test]
    fn a_changed_key_is_not_an_unknown_one() {
        let text = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nOffending ED25519 key in /k:1\n\
                    Host key verification failed.\n";
        assert_eq!(words(text).trouble(), Some(Trouble::KeyChanged));
    }

    /// As OpenSSH 9.2 says it with `StrictHostKeyChecking no`.
    #[test]
    fn a_changed_key_that_is_only_warned_of_hides_nothing() {
        let warning = "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n\
                       Offending ED25519 key in /home/eve/.ssh/known_hosts:1\r\n\
                       Password authentication is disabled to avoid man-in-the-middle attacks.\r\n";
        for (rest, trouble) in [
            ("eve@h: Permission denied (publickey).", Some(Trouble::Denied)),
            ("Connection closed by 10.1.1.1 port 22", Some(Trouble::Closed)),
            ("channel 0: open failed: connect failed: open failed", Some(Trouble::MasterFull)),
            (
                "mux_client_request_session: session request failed: Session open refused by peer",
                Some(Trouble::MasterFull),
            ),
            ("Exiting, you have requested strict checking.", Some(Trouble::KeyChanged)),
            ("", None),
        ] {
            assert_eq!(words(&format!("{warning}{rest}\r\n")).trouble(), trouble, "{rest}");
        }
    }

    /// As OpenSSH 9.2 says it; the two lines about ssh-keygen are Debian's.
    #[test]
    fn message_of_changed_key_shows_its_place() {
        let frame = "@".repeat(59);
        let offending = "Offending ED25519 key in /home/eve/.ssh/known_hosts:1";
        let changed = "Host key for [h]:2222 has changed and you have requested strict checking.";
        let said = words(&format!(
            "{frame}\r\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n{frame}\r\n\
             IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\r\nPlease contact your system administrator.\r\n\
             Add correct host key in /home/eve/.ssh/known_hosts to get rid of this message.\r\n{offending}\r\n  \
             remove with:\r\n  ssh-keygen -f \"/home/eve/.ssh/known_hosts\" -R \"[h]:2222\"\r\n{changed}\r\n\
             Host key verification failed.\r\n"
        ));
        let shown = said.shown();
        assert_eq!((said.trouble(), &shown), (Some(Trouble::KeyChanged), &format!("{offending}; {changed}").into()));
        assert_eq!((known_hosts(&shown), changed_host(&shown)), (Some("/home/eve/.ssh/known_hosts"), Some("[h]:2222")));
        // As OpenSSH 7.4 says it.
        let older = words(&format!("{frame}\r\n{offending}\r\nED25519 h{}", &changed[1..]));
        assert_eq!((changed_host(&older.shown()), older.trouble()), (Some("[h]:2222"), Some(Trouble::KeyChanged)));
        let other = OsBytes::from("Offending key for IP in /etc/ssh/known:12; ...");
        assert_eq!((known_hosts(&other), changed_host(&other)), (Some("/etc/ssh/known"), None));
        assert_eq!(known_hosts(&"Offending key in /a\x1b[2J:1".into()), None);
    }

    /// As OpenSSH 9.2 says it.
    #[test]
    fn message_of_ignored_key_shows_the_cause() {
        let frame = "@".repeat(59);
        let load = "Load key \"/home/eve/.ssh/id\": bad permissions";
        let denied = "eve@h: Permission denied (publickey).";
        let said = words(&format!(
            "{frame}\r\n@         WARNING: UNPROTECTED PRIVATE KEY FILE!          @\r\n{frame}\r\n\
             Permissions 0644 for '/home/eve/.ssh/id' are too open.\r\n\
             It is required that your private key files are NOT accessible by others.\r\n\
             This private key will be ignored.\r\n{load}\r\n{denied}\r\n"
        ));
        let shown = said.shown();
        assert_eq!((said.trouble(), &shown), (Some(Trouble::Denied), &format!("{load}; {denied}").into()));
        assert_eq!(open_key(&shown), Some("/home/eve/.ssh/id"));
        for other in [denied, "Load key \"/k\": invalid format; u@h: Permission denied (publickey)."] {
            assert_eq!(open_key(&other.into()), None);
        }
        // A wrong file before the one that others may read.
        let both = format!("Load key \"/a\": invalid format; {load}; {denied}");
        assert_eq!(open_key(&both.as_str().into()), Some("/home/eve/.ssh/id"));
    }

    #[test]
    fn line_that_names_the_trouble_is_shown() {
        let text = "*** welcome ***\nssh: Could not resolve hostname x: Name or service not known\r\n\n";
        assert_eq!(words(text).shown(), "ssh: Could not resolve hostname x: Name or service not known".into());
        assert_eq!(words("a\nb\n\nc\nd\n").shown(), "b; c; d".into());
    }

    /// Messages of OpenSSH 9.2, after those of a .bashrc.
    #[test]
    fn after_the_login_only_the_connection_can_have_failed() {
        let rc = "bash: /opt/env.sh: Permission denied";
        let mut said = words(&format!("{rc}\n"));
        said.logged_in();
        assert_eq!((said.trouble(), said.shown()), (None, rc.into()));
        for broken in [
            "Connection to h closed by remote host.",
            "Timeout, server h not responding.",
            "Read from remote host h: Connection reset by peer",
            "client_loop: send disconnect: Broken pipe",
        ] {
            let mut said = words(&format!("{rc}\n"));
            said.logged_in();
            said.push(format!("{broken}\r\n").as_bytes());
            assert_eq!(said.trouble(), Some(Trouble::Lost), "{broken}");
            assert_eq!(said.shown(), format!("{rc}; {broken}").as_str().into());
            said.clear();
            said.push(rc.as_bytes());
            assert_eq!(said.trouble(), Some(Trouble::Denied), "another attempt logs in anew");
        }
    }

    #[test]
    fn keeps_the_end() {
        let mut words = Words::default();
        for _ in 0..1_000 {
            words.push(b"noise noise noise\n");
        }
        words.push(b"Permission denied\n");
        assert_eq!((words.kept.len(), words.trouble()), (KEPT, Some(Trouble::Denied)));
    }
}
