//! The place of a worker: its entry in the job's store, and the secret of its group.

use crate::{Error, Store};
use nix::ifaddrs::getifaddrs;
use rlaunch_plan::place::World;
use rlaunch_protocol::wire::frozen::calls::hello::{NONCE, Nonce, Secret};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

/// A key of a worker group.
fn key(group: &str, name: &str) -> Vec<u8> {
    [World::worker_keys(group.as_bytes()), name.into()].concat()
}

/// The entry of a worker: lines `name=value`. Readers ignore names that they do not know.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Record {
    pub(crate) rank: u32,
    /// How many workers the group has.
    pub(crate) size: u32,
    pub(crate) pid: u32,
    pub(crate) host: String,
    /// The number of the group's world in the job; 0: it is not known.
    pub(crate) world: u32,
    /// A text that all processes of one host have, and no other host.
    pub(crate) machine: String,
    /// Name of its socket, for processes of the same host.
    pub(crate) unix: String,
    /// Its addresses, for processes of other hosts.
    pub(crate) tcp: Vec<SocketAddr>,
}

impl Record {
    fn key(group: &str, rank: u32) -> Vec<u8> {
        key(group, &rank.to_string())
    }

    fn to_bytes(&self) -> Vec<u8> {
        let tcp: Vec<String> = self.tcp.iter().map(SocketAddr::to_string).collect();
        format!(
            "rank={}\nsize={}\npid={}\nhost={}\nworld={}\nmachine={}\nunix={}\ntcp={}\n",
            self.rank,
            self.size,
            self.pid,
            self.host.replace('\n', " "),
            self.world,
            self.machine,
            self.unix,
            tcp.join(",")
        )
        .into_bytes()
    }

    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut record = Self::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
            let number = || value.parse().unwrap_or_default();
            match name {
                "rank" => record.rank = number(),
                "size" => record.size = number(),
                "pid" => record.pid = number(),
                "world" => record.world = number(),
                "host" => value.clone_into(&mut record.host),
                "machine" => value.clone_into(&mut record.machine),
                "unix" => value.clone_into(&mut record.unix),
                "tcp" => record.tcp = value.split(',').filter_map(|at| at.parse().ok()).collect(),
                _ => {}
            }
        }
        record
    }

    pub(crate) fn publish(&self, store: &Store, group: &str) -> Result<(), Error> {
        store.set(&Self::key(group, self.rank), &self.to_bytes())
    }

    /// The entry of a worker, as soon as it is there.
    pub(crate) fn wait(store: &Store, group: &str, rank: u32, within: Option<Duration>) -> Result<Self, Error> {
        let key = Self::key(group, rank);
        store.wait(&[&key], within)?;
        Ok(Self::parse(&store.get(&key)?.unwrap_or_default()))
    }
}

/// The secret of a group: the first process that asks for it makes it.
pub(crate) fn secret(store: &Store, group: &str) -> Result<Secret, Error> {
    let own: [u8; 32] = random()?;
    let (_, now) = store.compare_set(&key(group, "secret"), None, &own)?;
    let bytes = now.as_deref().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    bytes.map(Secret::new).ok_or(Error::Malformed)
}

/// Bytes that no other process can guess.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn nonce() -> io::Result<Nonce> {
    random::<NONCE>()
}

/// A text that only processes on this host of this job have. The agent's socket is a file of its own on each host, also where several
/// hosts of a test share a machine.
pub(crate) fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = fs::metadata("/proc/self/ns/net").map(|file| file.ino()).unwrap_or_default();
    let socket = std::env::var_os("RLAUNCH_SOCKET").and_then(|path| fs::metadata(path).ok());
    let socket = socket.map_or((0, 0), |file| (file.dev(), file.ino()));
    format!("{}-{network}-{}-{}", boot.trim(), socket.0, socket.1)
}

/// The part of [`machine`] that processes with the same addresses have in common.
pub(crate) fn network(machine: &str) -> &str {
    machine.rsplitn(3, '-').last().unwrap_or_default()
}

/// All addresses of this host.
pub(crate) fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let all = getifaddrs()?.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|at| IpAddr::V4(at.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|at| IpAddr::V6(at.ip())))
    });
    Ok(all.collect())
}

/// The addresses of this host for the entry of a worker, those that only this host can reach last.
pub(crate) fn addresses() -> Vec<IpAddr> {
    let all = own_addresses().unwrap_or_default().into_iter();
    // A link-local address needs the name of an interface, which the other host does not know.
    let is_usable = |ip: &IpAddr| !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let all: BTreeSet<(bool, IpAddr)> = all.filter(is_usable).map(|ip| (ip.is_loopback(), ip)).collect();
    let all: Vec<IpAddr> = all.into_iter().map(|(_, ip)| ip).collect();
    // The master's address is one that other hosts reach.
    let master = std::env::var("MASTER_ADDR").ok().and_then(|addr| addr.parse::<IpAddr>().ok());
    let (first, rest): (Vec<IpAddr>, Vec<IpAddr>) = all.into_iter().partition(|ip| Some(*ip) == master);
    first.into_iter().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_of_one_network_differ_in_the_socket_only() {
        let own = machine();
        assert_eq!(network(&own), network(&format!("{own}1")));
        assert_eq!(network("a-b-c-4026531840-25-99"), "a-b-c-4026531840");
    }

    #[test]
    fn record_is_read_as_it_was_written() {
        let record = Record {
            rank: 3,
            size: 8,
            pid: 77,
            host: "node=1".into(),
            world: 2,
            machine: "a-b".into(),
            unix: "rlaunch-calls-00".into(),
            tcp: vec!["10.0.0.1:4000".parse().unwrap(), "[::1]:4000".parse().unwrap()],
        };
        assert_eq!(Record::parse(&record.to_bytes()), record);
        assert_eq!(Record::parse(b"later=1\nrank=3\n\xff"), Record { rank: 3, ..Record::default() });
    }
}
