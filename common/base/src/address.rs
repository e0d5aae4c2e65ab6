//! By which address the other hosts of a job find the one of rank 0 (MASTER_ADDR).
//!
//! The address at which ssh has reached it goes first: it is known to work from somewhere else. Names are never looked up, so Debian's
//! `127.0.1.1` cannot come out. Then come those of the host's interfaces, except interfaces that lead to no other host. The other hosts
//! try the result before ranks get it.

use crate::os_bytes::OsBytes;
use alloc::format;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Beginnings of the names of interfaces that containers and virtual machines of this host are behind.
const INNER: [&str; 16] = [
    "docker", "br-", "virbr", "veth", "cni", "cbr", "flannel", "cali", "lxc", "lxd", "podman", "kube", "vmnet",
    "vboxnet", "weave", "dummy",
];

/// An address of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The interface's name.
    pub name: OsBytes,
    /// The address.
    pub addr: IpAddr,
    /// The way to hosts that no other interface leads to.
    pub default: bool,
    /// Number of bits of the address that belong to its network.
    pub prefix: u8,
}

impl Interface {
    fn is_inner(&self) -> bool {
        INNER.iter().any(|start| self.name.starts_with(start.as_bytes()))
    }

    /// As others write it down. The zone of an address that is valid on one link only is ours, and may have another name on
    /// another host.
    fn text(&self) -> OsBytes {
        match self.addr {
            IpAddr::V6(v6) if is_of_link(v6) => format!("{v6}%{}", self.name).into(),
            addr @ (IpAddr::V4(_) | IpAddr::V6(_)) => format!("{addr}").into(),
        }
    }

    /// Whether an address is of its network.
    fn is_with(&self, addr: IpAddr) -> bool {
        let differ = match (self.addr, addr) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
        };
        self.prefix > 0 && differ >= u32::from(self.prefix)
    }

    /// Whether it may lead to other hosts. A bridge may be the way to them, but is not taken for it unless everything goes that way.
    fn leads_out(&self) -> bool {
        !needs_zone(self.addr) && (self.default || !self.is_inner())
    }

    /// Smaller is better.
    fn rank(&self) -> [bool; 5] {
        [self.addr.is_loopback(), needs_zone(self.addr), self.is_inner(), self.addr.is_ipv6(), !self.default]
    }
}

const fn is_of_link(addr: Ipv6Addr) -> bool {
    addr.segments()[0] & 0xffc0 == 0xfe80
}

/// Valid on one link only.
const fn needs_zone(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => is_of_link(v6),
    }
}

/// An address as sshd writes it: an IPv6 one may have a zone.
fn parse(text: &[u8]) -> Option<IpAddr> {
    let until = memchr::memchr(b'%', text).unwrap_or(text.len());
    core::str::from_utf8(text.get(..until)?).ok()?.parse().ok()
}

/// The addresses at which others find this host, the best first. `ssh` is the address at which it was reached, if it was; `alone`: there
/// are no others, so nothing is wrong with an address of its own.
#[must_use]
pub fn find(all: &[Interface], ssh: Option<&[u8]>, alone: bool) -> Vec<OsBytes> {
    let reached = ssh.and_then(parse);
    let fits = alone || reached.is_some_and(|addr| !addr.is_loopback() && !needs_zone(addr));
    let first = ssh.map(OsBytes::from).filter(|_| fits);
    let found = distinct(first.into_iter().chain(texts(usable(all, false).filter(|one| one.leads_out()))));
    if !found.is_empty() {
        return found;
    }
    // An address that only this host can use is better than none: perhaps the others are this same machine.
    distinct(texts(all.iter()).into_iter().chain(ssh.map(OsBytes::from)))
}

/// The addresses of interfaces, the best first.
fn texts<'a>(of: impl Iterator<Item = &'a Interface>) -> Vec<OsBytes> {
    let mut own: Vec<&Interface> = of.collect();
    own.sort_by_key(|one| one.rank());
    own.into_iter().map(Interface::text).collect()
}

fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// The usable addresses: where there are other hosts, a loopback address leads to none of them.
fn usable(all: &[Interface], alone: bool) -> impl Iterator<Item = &Interface> {
    all.iter().filter(move |one| alone || !one.addr.is_loopback())
}

/// The addresses of one interface; `None`: it has none that could be used. `alone`: by this host.
#[must_use]
pub fn of_interface(all: &[Interface], name: &[u8], alone: bool) -> Option<Vec<OsBytes>> {
    let own = texts(usable(all, alone).filter(|one| one.name.as_slice() == name));
    (!own.is_empty()).then_some(own)
}

/// The name of the interface by which this host's ranks talk to the others: `asked` if it has that; else the one that has the address
/// `by` which it has reached the others' meeting place, or the address of that place, or is in a network with it; else the one at which
/// this host was reached, or would be. `None`: it cannot be known.
#[must_use]
pub fn carrier<'a>(
    all: &'a [Interface],
    asked: &[u8],
    by: Option<IpAddr>,
    meeting: &[u8],
    reached: Option<&[u8]>,
) -> Option<&'a OsBytes> {
    let has = |addr: IpAddr| all.iter().find(|one| one.addr == addr);
    let met = parse(meeting).filter(|addr| !addr.is_loopback());
    let of_name = || usable(all, false).find(|one| !asked.is_empty() && one.name.as_slice() == asked);
    let near = |addr: IpAddr| usable(all, false).filter(|one| !one.is_inner()).find(|one| one.is_with(addr));
    let ssh = || reached.and_then(parse).filter(|addr| !addr.is_loopback()).and_then(has);
    let best =
        || usable(all, false).filter(|one| !one.is_inner() && !needs_zone(one.addr)).min_by_key(|one| one.rank());
    let by = || by.filter(|addr| !addr.is_loopback()).and_then(has);
    let found =
        of_name().or_else(by).or_else(|| met.and_then(has)).or_else(|| met.and_then(near)).or_else(ssh).or_else(best);
    found.map(|one| &one.name)
}

/// The first network of IPv4 that an interface is in: its address and the number of its bits.
#[must_use]
pub fn network(all: &[Interface], name: &[u8]) -> Option<(Ipv4Addr, u8)> {
    let own = usable(all, false).filter(|one| one.name.as_slice() == name);
    own.filter_map(|one| match one.addr {
        IpAddr::V4(addr) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(one.prefix.into())).unwrap_or(0);
            Some((Ipv4Addr::from_bits(addr.to_bits() & mask), one.prefix))
        }
        IpAddr::V6(_) => None,
    })
    .next()
}

/// The names of the usable interfaces, in one line.
#[must_use]
pub fn names(all: &[Interface], alone: bool) -> OsBytes {
    OsBytes::new(distinct(usable(all, alone).map(|one| one.name.as_slice())).join(&b' '))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};

    const HOST: [(&str, &str); 8] = [
        ("lo", "127.0.0.1"),
        ("docker0", "172.17.0.1"),
        ("eth1", "192.168.5.3"),
        ("eth0", "10.1.0.3"),
        ("eth0", "2001:db8::3"),
        ("ib0", "fe80::7"),
        ("br-12ab", "172.18.0.1"),
        ("lo", "::1"),
    ];

    fn interfaces() -> Vec<Interface> {
        let one = |(name, addr): &(&str, &str)| Interface {
            name: (*name).into(),
            addr: addr.parse().unwrap(),
            default: *name == "eth0",
            prefix: 24,
        };
        HOST.iter().map(one).collect()
    }

    fn first(ssh: Option<&str>, alone: bool) -> String {
        find(&interfaces(), ssh.map(str::as_bytes), alone)[0].to_string()
    }

    #[test]
    fn the_address_that_ssh_has_used_goes_first() {
        for ssh in ["192.168.5.3", "10.1.0.3", "2001:db8::3", "172.17.0.1", "203.0.113.9"] {
            assert_eq!(first(Some(ssh), false), ssh);
        }
    }

    #[test]
    fn own_address_without_use_is_not_chosen() {
        for ssh in ["127.0.0.1", "127.0.1.1", "::1", "fe80::7%ib0", "169.254.3.4"] {
            assert_eq!(first(Some(ssh), false), "10.1.0.3", "{ssh}");
            assert_eq!(first(Some(ssh), true), ssh, "for a job of one host it does");
        }
        let nothing = find(&interfaces()[..1], Some(b"127.0.0.1"), false);
        assert_eq!(nothing, [OsBytes::from("127.0.0.1")], "there is no other");
        assert_eq!(find(&interfaces()[..1], None, false), [OsBytes::from("127.0.0.1")]);
    }

    #[test]
    fn the_way_to_the_rest_of_the_world_comes_next_and_bridges_never() {
        let all = |ssh: Option<&str>| -> Vec<String> {
            find(&interfaces(), ssh.map(str::as_bytes), false).iter().map(ToString::to_string).collect()
        };
        assert_eq!(all(None), ["10.1.0.3", "192.168.5.3", "2001:db8::3"]);
        assert_eq!(all(Some("2001:db8::3")), ["2001:db8::3", "10.1.0.3", "192.168.5.3"]);
        assert_eq!(all(Some("172.17.0.1"))[..2], ["172.17.0.1", "10.1.0.3"], "but where ssh has used one");
        let mut only = interfaces();
        only.retain(|one| one.name.as_slice() != b"eth0" && one.name.as_slice() != b"eth1");
        let inner: Vec<String> = find(&only, None, false).iter().map(ToString::to_string).collect();
        assert_eq!(inner[..2], ["172.17.0.1", "172.18.0.1"], "or there is nothing else");
        only[1].default = true;
        assert_eq!(find(&only, None, false), [OsBytes::from("172.17.0.1")], "or everything goes by it");
    }

    #[test]
    fn an_interface_is_what_its_name_says() {
        let of = |name: &str| of_interface(&interfaces(), name.as_bytes(), true);
        assert_eq!(of("eth0"), Some(["10.1.0.3".into(), "2001:db8::3".into()].to_vec()));
        assert_eq!(of("ib0"), Some(["fe80::7%ib0".into()].to_vec()));
        assert_eq!(of("lo"), Some(["127.0.0.1".into(), "::1".into()].to_vec()));
        assert_eq!(of("eth"), None);
        assert_eq!(names(&interfaces(), true).to_string(), "lo docker0 eth1 eth0 ib0 br-12ab");
    }

    #[test]
    fn network_of_an_interface_is_that_of_its_first_ipv4_address() {
        let of = |name: &str| network(&interfaces(), name.as_bytes());
        assert_eq!(of("eth0"), Some((Ipv4Addr::new(10, 1, 0, 0), 24)));
        assert_eq!(of("ib0"), None);
        let mut all = interfaces();
        all[2].prefix = 32;
        assert_eq!(network(&all, b"eth1"), Some((Ipv4Addr::new(192, 168, 5, 3), 32)));
        all[2].prefix = 0;
        assert_eq!(network(&all, b"eth1"), Some((Ipv4Addr::UNSPECIFIED, 0)));
    }

    #[test]
    fn ranks_talk_by_the_interface_that_leads_to_where_they_meet() {
        let all = interfaces();
        let of = |asked: &str, meeting: &str, reached: Option<&str>| {
            carrier(&all, asked.as_bytes(), None, meeting.as_bytes(), reached.map(str::as_bytes))
                .map(ToString::to_string)
        };
        for (asked, meeting, reached, expected) in [
            ("", "192.168.5.3", None, "eth1"),
            ("", "192.168.5.77", Some("10.1.0.3"), "eth1"),
            ("", "10.9.0.1", Some("192.168.5.3"), "eth1"),
            ("", "10.9.0.1", Some("127.0.0.1"), "eth0"),
            ("", "10.9.0.1", None, "eth0"),
            ("", "172.17.0.9", None, "eth0"),
            ("", "node0", Some("192.168.5.3"), "eth1"),
            ("eth1", "10.1.0.3", Some("10.1.0.3"), "eth1"),
            ("ib7", "10.1.0.3", None, "eth0"),
            ("lo", "10.1.0.3", None, "eth0"),
        ] {
            assert_eq!(of(asked, meeting, reached).as_deref(), Some(expected), "{asked} {meeting} {reached:?}");
        }
        assert_eq!(carrier(&all[..2], b"", None, b"10.1.0.1", None), None, "a bridge to containers leads to nobody");
        let by = |asked: &[u8], by: &str| {
            carrier(&all, asked, by.parse().ok(), b"10.1.0.1", None).map(ToString::to_string).unwrap()
        };
        assert_eq!(by(b"", "192.168.5.3"), "eth1", "what has worked is known best");
        assert_eq!(by(b"", "127.0.0.1"), "eth0");
        assert_eq!(by(b"eth0", "192.168.5.3"), "eth0", "but for what was asked for");
    }

    #[test]
    fn loopback_is_not_chosen_with_other_hosts() {
        let mut all = interfaces();
        assert_eq!(of_interface(&all, b"lo", false), None);
        assert_eq!(names(&all, false).to_string(), "docker0 eth1 eth0 ib0 br-12ab");
        // But for an address that others know.
        all.push(Interface { name: "lo".into(), addr: "10.9.9.9".parse().unwrap(), default: false, prefix: 32 });
        assert_eq!(of_interface(&all, b"lo", false), Some(["10.9.9.9".into()].to_vec()));
        assert_eq!(names(&all, false).to_string(), "docker0 eth1 eth0 ib0 br-12ab lo");
    }
}
