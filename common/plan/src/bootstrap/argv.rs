//! The words of the ssh command: the user's own ssh and configuration, with what would break the dialogue switched off.

use crate::hostlist::Host;
use crate::hostlist::name::{self, Flaw};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use rlaunch_base::error::Hint;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::shell::quoted;

/// Options that must hold whatever the user's configuration says: ssh takes the first value that it meets.
///
/// `IgnoreUnknown` comes before them, because ssh before 8.7 does not know all of them; and it is `*`, because it takes
/// the place of one in the user's configuration, which would then fail. The price: a mistyped option there is passed over.
///
/// After a failure only ssh's messages show what to do, and below INFO it leaves some or all of them out.
const FORCED: [&str; 10] = [
    "IgnoreUnknown=*",
    "LogLevel=INFO",
    "SessionType=default",
    "RequestTTY=no",
    "RemoteCommand=none",
    "ClearAllForwardings=yes",
    // That is none of those: with it every sshd would listen on a port for as long as the job runs.
    "ForwardX11=no",
    "ForkAfterAuthentication=no",
    "StdinNull=no",
    "ControlMaster=no",
];

/// The key exchange that is tried first with `--ssh-fast`: the default since 9.0 (sntrup761) costs both ends some 30 ms more. The caret
/// keeps all others after it, so a host without it is reached as before.
const FAST: &str = "KexAlgorithms=^curve25519-sha256,curve25519-sha256@libssh.org";

/// A host, as ssh gets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    user: Option<OsBytes>,
    host: OsBytes,
    port: Option<u16>,
    /// The control socket of a connection that is open.
    control: Option<OsBytes>,
}

/// As a list of hosts shows it: `eve@node1 (port 2222)`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match (self.port, self.host.contains(&b':')) {
            (None, _) => self.host.fmt(f),
            (Some(port), false) => write!(f, "{} (port {port})", self.host),
            (Some(port), true) => write!(f, "[{}] (port {port})", self.host),
        }
    }
}

/// A word that names no host.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{word}' is no host: {why}")]
pub struct TargetError {
    word: OsBytes,
    why: &'static str,
}

impl Hint for TargetError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some("HOST or USER@HOST, as ssh takes it; an IPv6 address with or without brackets".into())
    }
}

impl Target {
    /// From `host` or `user@host`; an IPv6 address may be in brackets. A port comes from elsewhere.
    ///
    /// # Errors
    /// A word that ssh, or the shell of a ProxyCommand, would take for something else.
    pub fn parse(word: &[u8], port: Option<u16>) -> Result<Self, TargetError> {
        let refuse = |why| Err(TargetError { word: word.into(), why });
        let (user, host) = match word.iter().rposition(|b| *b == b'@') {
            Some(at) => (word.get(..at), word.get(at + 1..).unwrap_or_default()),
            None => (None, word),
        };
        let host = host.strip_prefix(b"[").and_then(|inner| inner.strip_suffix(b"]")).unwrap_or(host);
        let (Ok(host), Ok(user)) = (str::from_utf8(host), user.map(str::from_utf8).transpose()) else {
            return refuse("it is no text");
        };
        match name::host(host).and(user.map_or(Ok(()), name::user)) {
            Ok(()) => Ok(Self { user: user.map(OsBytes::from), host: host.into(), port, control: None }),
            Err(Flaw::Missing) => refuse("a part of it is empty"),
            Err(Flaw::Dash) => refuse("it begins with a dash"),
            Err(Flaw::Character(..)) => refuse("it holds a character that no name has there"),
        }
    }

    /// A host of a list.
    ///
    /// # Errors
    /// As [`Target::parse`].
    pub fn of(host: &Host) -> Result<Self, TargetError> {
        let word = match &host.user {
            Some(user) => format!("{user}@{}", host.name),
            None => host.name.clone(),
        };
        Self::parse(word.as_bytes(), host.port)
    }

    /// The host without user and port.
    #[must_use]
    pub const fn host(&self) -> &OsBytes {
        &self.host
    }

    /// The same, over a connection that is open.
    #[must_use]
    pub fn over(self, control: OsBytes) -> Self {
        Self { control: Some(control), ..self }
    }

    /// The words after `ssh` in a call by hand: `-p 2222 eve@node1`.
    #[must_use]
    pub fn by_hand(&self) -> String {
        let port = self.port.map(|port| format!("-p {port} ")).unwrap_or_default();
        let user = self.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        port + &quoted(format!("{user}{}", self.host).as_bytes())
    }

    /// The name in ssh's file of known hosts, unless the user's configuration names it otherwise.
    #[must_use]
    pub fn known_as(&self) -> String {
        let Self { host, port, .. } = self;
        let name = port.filter(|port| *port != 22).map_or_else(|| format!("{host}"), |port| format!("[{host}]:{port}"));
        quoted(name.as_bytes())
    }

    /// The words that name it in the ssh command: port, user, `--`, host.
    pub(super) fn words(&self) -> Vec<OsBytes> {
        let mut words = Vec::new();
        if let Some(port) = self.port {
            words.extend([OsBytes::from("-p"), OsBytes::from(format!("{port}"))]);
        }
        if let Some(user) = &self.user {
            words.extend([OsBytes::from("-l"), user.clone()]);
        }
        words.extend([OsBytes::from("--"), self.host.clone()]);
        words
    }
}

/// How ssh is called.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SshOptions {
    /// `--ssh-prompt`: ssh may ask for a password.
    pub prompt: bool,
    /// `--ssh-fast`: a cheaper key exchange first.
    pub fast: bool,
    /// A connection that is already open is not used.
    pub no_master: bool,
}

/// The command: `ssh`, its options, the host, the line for the shell there.
#[must_use]
pub fn argv(target: &Target, options: &SshOptions, line: &[u8]) -> Vec<OsBytes> {
    let mut words: Vec<OsBytes> = ["ssh", "-T"].map(OsBytes::from).into();
    let mut option = |text: &str| words.extend(["-o", text].map(OsBytes::from));
    FORCED.iter().for_each(|text| option(text));
    if !options.prompt {
        option("BatchMode=yes");
    }
    if options.no_master {
        option("ControlPath=none");
    }
    if options.fast {
        option(FAST);
    }
    words.extend(over(target));
    words.extend(target.words());
    words.push(OsBytes::from(line));
    words
}

/// The option that uses an open connection. ssh logs in by itself where it cannot be used.
fn over(target: &Target) -> Vec<OsBytes> {
    let option = |path: &OsBytes| OsBytes::new([b"ControlPath=", path.as_slice()].concat());
    target.control.iter().flat_map(|path| [OsBytes::from("-o"), option(path)]).collect()
}

/// The word that ssh prints once a connection of [`connection`] can be used.
pub const IS_OPEN: &str = "rlaunch-open";

/// Options of a connection that stays open for others, below those of [`FORCED`] that fit. A connection that is dead ends after 30 s, as a
/// lease does. A command of the user's that ssh runs here is not run for it: ours reports that the connection can be used.
const CONNECTION: [&str; 14] = [
    "IgnoreUnknown=*",
    "LogLevel=INFO",
    "RequestTTY=no",
    "RemoteCommand=none",
    "ClearAllForwardings=yes",
    "ForwardX11=no",
    "ForwardAgent=no",
    "ForkAfterAuthentication=no",
    "ControlMaster=yes",
    "ControlPersist=no",
    "ServerAliveInterval=10",
    "ServerAliveCountMax=3",
    "PermitLocalCommand=yes",
    "LocalCommand=echo rlaunch-open",
];

/// The command that opens a connection for other calls of ssh, whose control socket is the target's, and holds it.
#[must_use]
pub fn connection(target: &Target, options: &SshOptions, seconds: u64) -> Vec<OsBytes> {
    let mut words: Vec<OsBytes> = ["ssh", "-T", "-N"].map(OsBytes::from).into();
    let mut option = |text: &str| words.extend(["-o", text].map(OsBytes::from));
    CONNECTION.iter().for_each(|text| option(text));
    option(&format!("ConnectTimeout={seconds}"));
    option("BatchMode=yes");
    if options.fast {
        option(FAST);
    }
    words.extend(over(target));
    words.extend(target.words());
    words
}

/// The command that says how ssh would reach a host, and connects nowhere.
#[must_use]
pub fn question(target: &Target) -> Vec<OsBytes> {
    let mut words: Vec<OsBytes> = ["ssh", "-G", "-T", "-o", "IgnoreUnknown=*"].map(OsBytes::from).into();
    words.extend(target.words());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    fn shown(word: &str, port: Option<u16>, options: &SshOptions) -> String {
        let words: Vec<String> = argv(&Target::parse(word.as_bytes(), port).unwrap(), options, b"LINE")
            .iter()
            .map(|w| w.to_string())
            .collect();
        words.join(" ")
    }

    #[test]
    fn forces_what_would_break_the_dialogue() {
        let plain = shown("node1", None, &SshOptions::default());
        assert_eq!(
            plain,
            "ssh -T -o IgnoreUnknown=* -o LogLevel=INFO -o SessionType=default -o RequestTTY=no -o RemoteCommand=none \
             -o ClearAllForwardings=yes -o ForwardX11=no -o ForkAfterAuthentication=no -o StdinNull=no \
             -o ControlMaster=no -o BatchMode=yes -- node1 LINE"
        );
        let all = SshOptions { prompt: true, fast: true, no_master: true };
        let all = shown("eve@corp@[fe80::1%eth0]", Some(2222), &all);
        assert!(!all.contains("BatchMode"), "{all}");
        assert!(all.contains("-o ControlPath=none -o KexAlgorithms=^curve25519-sha256,"), "{all}");
        assert!(all.ends_with(" -p 2222 -l eve@corp -- fe80::1%eth0 LINE"), "{all}");
    }

    #[test]
    fn open_connection_is_used_and_held() {
        let target = Target::parse(b"eve@node1", Some(22)).unwrap().over("/run/p/0".into());
        let text = |words: Vec<OsBytes>| words.iter().map(|word| word.to_string()).collect::<Vec<_>>().join(" ");
        let used = text(argv(&target, &SshOptions::default(), b"LINE"));
        assert!(used.ends_with("-o ControlPath=/run/p/0 -p 22 -l eve -- node1 LINE"), "{used}");
        let held = text(connection(&target, &SshOptions { fast: true, ..SshOptions::default() }, 60));
        assert!(held.starts_with("ssh -T -N -o IgnoreUnknown=*"), "{held}");
        assert!(
            held.contains("-o ControlMaster=yes") && held.contains(&format!("LocalCommand=echo {IS_OPEN} ")),
            "{held}"
        );
        assert!(held.ends_with(" -o ControlPath=/run/p/0 -p 22 -l eve -- node1"), "{held}");
        // The path is for ssh alone.
        assert_eq!(target.to_string(), "eve@node1 (port 22)");
    }

    #[test]
    fn by_hand_as_rlaunch_does_it() {
        for (word, port, named, by_hand, known_as) in [
            ("node1", None, "node1", "node1", "node1"),
            ("eve@node1", Some(2222), "eve@node1 (port 2222)", "-p 2222 eve@node1", "'[node1]:2222'"),
            ("node1", Some(22), "node1 (port 22)", "-p 22 node1", "node1"),
            ("CORP\\eve@node1", None, "CORP\\eve@node1", "'CORP\\eve@node1'", "node1"),
            ("[::1]", Some(23), "[::1] (port 23)", "-p 23 ::1", "'[::1]:23'"),
        ] {
            let target = Target::parse(word.as_bytes(), port).unwrap();
            let all = (target.to_string(), target.by_hand(), target.known_as());
            assert_eq!(all, (named.into(), by_hand.into(), known_as.into()));
        }
    }

    #[test]
    fn refuses_what_is_no_host() {
        for word in [
            "",
            "@h",
            "u@",
            "-oProxyCommand=x",
            "-x@h",
            "a b",
            "h;id",
            "$(id)",
            "h\n",
            "u`id`@h",
            "a'b",
            "[]",
            "$u@h",
            "u$x@h",
            "u\\@h",
            "u@@h",
        ] {
            let error = Target::parse(word.as_bytes(), None).unwrap_err();
            assert!(error.hint().is_some(), "{error}");
        }
        assert_eq!(Target::parse(b"[::1]", None).unwrap().host().as_slice(), b"::1");
    }
}
