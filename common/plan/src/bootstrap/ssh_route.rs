//! Which way ssh takes to a host: the hosts behind one jump host share the limit of its sshd. Only the user's configuration
//! knows, and only ssh reads that as ssh does: `ssh -G`, which connects nowhere. It is asked once for hosts of like names.

use super::argv::Target;
use alloc::vec::Vec;
use rlaunch_base::os_bytes::OsBytes;

/// Hosts that very probably are reached the same way: same user, same port, and names that differ in numbers only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Kind(OsBytes);

impl Kind {
    /// The kind of a host.
    #[must_use]
    pub fn of(target: &Target) -> Self {
        let mut shape: Vec<u8> = Vec::new();
        for word in target.words() {
            for b in word.iter().map(|b| if b.is_ascii_digit() { b'0' } else { *b }) {
                if b != b'0' || shape.last() != Some(&b'0') {
                    shape.push(b);
                }
            }
            shape.push(0);
        }
        Self(OsBytes::new(shape))
    }
}

/// How hosts are reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// Not through another sshd, as far as is known.
    Direct,
    /// Through what this word of the configuration says.
    Jump(OsBytes),
}

impl Way {
    /// From what `ssh -G` says. A ProxyCommand is a jump if it runs an ssh; other proxies do not count logins.
    #[must_use]
    pub fn parse(said: &[u8]) -> Self {
        for line in said.split(|b| *b == b'\n').map(<[u8]>::trim_ascii) {
            if let Some(jump) = value(line, b"proxyjump ") {
                return Self::Jump(jump.into());
            }
            if let Some(command) = value(line, b"proxycommand ").filter(|command| runs_ssh(command)) {
                return Self::Jump(command.into());
            }
        }
        Self::Direct
    }
}

fn value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    line.strip_prefix(name).filter(|value| *value != b"none")
}

fn runs_ssh(command: &[u8]) -> bool {
    let words = command.split(|b| b.is_ascii_whitespace() || b"\"';|&()".contains(b));
    words.into_iter().any(|word| word == b"ssh" || word.ends_with(b"/ssh"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_names_are_of_one_kind() {
        let kind = |word: &str, port| Kind::of(&Target::parse(word.as_bytes(), port).unwrap());
        for (a, b) in [("node1", "node022"), ("r1n2", "r10n33"), ("u@n1", "u@n2"), ("10.0.0.1", "10.1.20.3")] {
            assert_eq!(kind(a, None), kind(b, None), "{a} {b}");
        }
        for (a, b) in [("node1", "mode1"), ("n1", "n1-ib"), ("u@n1", "v@n1"), ("u@n1", "n1"), ("r1n2", "rn2")] {
            assert_ne!(kind(a, None), kind(b, None), "{a} {b}");
        }
        assert_ne!(kind("n1", None), kind("n1", Some(2222)));
    }

    #[test]
    fn reads_what_ssh_says_of_a_configuration() {
        for (said, way) in [
            ("user eve\nproxyjump me@b:22,c\nport 22\n", Way::Jump("me@b:22,c".into())),
            ("proxyusefdpass no\nproxycommand ssh -W %h:%p b\n", Way::Jump("ssh -W %h:%p b".into())),
            ("proxycommand exec \"/usr/bin/ssh\" b nc %h %p", Way::Jump("exec \"/usr/bin/ssh\" b nc %h %p".into())),
            ("proxycommand /usr/bin/sss_ssh_knownhostsproxy -p %p %h\n", Way::Direct),
            ("proxycommand nc -X 5 -x proxy:1080 %h %p\n", Way::Direct),
            ("proxyjump none\nproxycommand none\n", Way::Direct),
            ("hostname proxyjump\n", Way::Direct),
            ("", Way::Direct),
        ] {
            assert_eq!(Way::parse(said.as_bytes()), way, "{said}");
        }
    }
}
