//! The facts of a TPU host: from the variables that GKE sets in its containers, from the attributes of the metadata server of a TPU VM,
//! or from the hostfile.

use super::Bounds;
use crate::hostlist::Chips;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use rlaunch_base::capped::Capped;
use rlaunch_base::os_bytes::OsBytes;
use serde::{Deserialize, Serialize};

/// Most hosts of a slice that a host names: the largest slice of v5p has 2,240 hosts.
pub const PEERS: usize = 4096;
/// Longest name that is taken over: a host name of DNS has 253 characters.
const LONGEST: usize = 255;

/// The source of the facts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FactsSource {
    /// Variables of a container in GKE (`TPU_WORKER_ID`, `TPU_WORKER_HOSTNAMES`).
    Gke,
    /// The metadata server of a TPU VM.
    Metadata,
    /// The hostfile: `slice=a id=0 devices=4`.
    Hostfile,
    /// Only the chips themselves: nothing says which slice it is.
    Devices,
}

/// The facts of a host with chips.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TpuFacts {
    /// The source of the facts.
    pub source: FactsSource,
    /// `v4-16`; empty: unknown.
    pub accelerator_type: OsBytes,
    /// Number of chips of the host; 0: unknown.
    pub chips: u32,
    /// Their shape.
    pub chips_bounds: Option<Bounds>,
    /// The shape of the hosts of the slice.
    pub host_bounds: Option<Bounds>,
    /// The name of the slice; empty: unknown.
    pub slice: OsBytes,
    /// Its number among the hosts of the slice.
    pub worker: u32,
    /// Addresses or names of the hosts of the slice, by their numbers; empty: unknown.
    pub peers: Capped<OsBytes, PEERS>,
    /// The address by which other hosts reach this one; empty: unknown.
    pub address: OsBytes,
}

/// Texts of the metadata server, below `instance/attributes/`; `None`: it has none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    /// `agent-worker-number`
    pub worker_number: Option<String>,
    /// `worker-network-endpoints`: `unknown:unknown:10.0.1.1,…` or `t1v-n-1-w-0,…`.
    pub endpoints: Option<String>,
    /// `instance-id`
    pub instance_id: Option<String>,
    /// `accelerator-type`
    pub accelerator_type: Option<String>,
    /// `tpu-env`: lines of `KEY: 'value'`.
    pub tpu_env: Option<String>,
}

impl TpuFacts {
    /// A host of which only its chips are known.
    #[must_use]
    pub fn of_chips(chips: u32) -> Self {
        Self {
            source: FactsSource::Devices,
            accelerator_type: OsBytes::default(),
            chips,
            chips_bounds: Bounds::of_chips(chips),
            host_bounds: None,
            slice: OsBytes::default(),
            worker: 0,
            peers: Capped::default(),
            address: OsBytes::default(),
        }
    }

    /// A line of the hostfile: `slice=a id=0 devices=4`.
    #[must_use]
    pub fn of_hostfile(slice: &str, worker: u32, chips: u32) -> Self {
        Self { source: FactsSource::Hostfile, slice: slice.into(), worker, ..Self::of_chips(chips) }
    }

    /// The same with the number of hosts that the slice has in the hostfile.
    #[must_use]
    pub fn of_words(chips: &Chips) -> Self {
        let hosts = u16::try_from(chips.hosts).ok().filter(|hosts| *hosts > 0);
        let host_bounds = hosts.map(|hosts| Bounds::new(1, 1, hosts));
        Self { host_bounds, ..Self::of_hostfile(&chips.slice, chips.id, chips.devices) }
    }

    /// The facts in a container of GKE. `None`: these are no variables of a TPU host.
    #[must_use]
    pub fn of_gke(env: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let worker = env("TPU_WORKER_ID")?.trim().parse().ok()?;
        // A pod that is a slice by itself has the name `localhost`, as each such pod has: it names no host and no slice.
        let peers = Some(names(&env("TPU_WORKER_HOSTNAMES")?)).filter(|peers| !is_localhost(peers)).unwrap_or_default();
        let host = env("TPU_CHIPS_PER_HOST_BOUNDS").and_then(|text| Bounds::parse(&text));
        let whole = env("TPU_TOPOLOGY").and_then(|text| Bounds::parse(&text));
        let hosts = env("TPU_HOST_BOUNDS").and_then(|text| Bounds::parse(&text));
        let chips = host.map_or(0, Bounds::count);
        // A container has no name of its slice: the name of its first host is the same for all hosts of it.
        let slice = env("TPU_NAME").map(|name| word(&name)).filter(|name| !name.is_empty());
        let slice = slice.unwrap_or_else(|| peers.first().map(|name| word(&name.to_string())).unwrap_or_default());
        let (peers, counted) = capped(peers);
        Some(Self {
            source: FactsSource::Gke,
            accelerator_type: word(&env("TPU_ACCELERATOR_TYPE").unwrap_or_default()),
            chips_bounds: host.or_else(|| Bounds::of_chips(chips)),
            host_bounds: counted.or(hosts).or_else(|| whole?.divided_by(host?)),
            slice,
            worker,
            peers,
            ..Self::of_chips(chips)
        })
    }

    /// The facts of a TPU VM. `None`: the server has no number of a worker, so this is another kind of machine.
    #[must_use]
    pub fn of_attributes(attributes: &Attributes) -> Option<Self> {
        let tpu_env = attributes.tpu_env.as_deref().unwrap_or_default();
        let of = |key: &str| setting(tpu_env, key);
        let number = attributes.worker_number.clone().or_else(|| of("WORKER_ID"))?;
        let worker = number.trim().parse().ok()?;
        let chips_bounds = of("CHIPS_PER_HOST_BOUNDS").and_then(|text| Bounds::parse(&text));
        let slice = attributes.instance_id.clone().or_else(|| of("NODE_ID")).unwrap_or_default();
        let accelerator_type = attributes.accelerator_type.clone().or_else(|| of("ACCELERATOR_TYPE"));
        let (peers, counted) = capped(attributes.endpoints.as_deref().map(endpoints).unwrap_or_default());
        Some(Self {
            source: FactsSource::Metadata,
            accelerator_type: word(accelerator_type.unwrap_or_default().trim()),
            chips_bounds,
            host_bounds: counted.or_else(|| of("HOST_BOUNDS").and_then(|text| Bounds::parse(&text))),
            slice: word(slice.trim()),
            worker,
            peers,
            ..Self::of_chips(chips_bounds.map_or(0, Bounds::count))
        })
    }

    /// The same with what the chips of the host say themselves, where nothing else does.
    #[must_use]
    pub fn with_chips(self, chips: u32) -> Self {
        let count = if self.chips == 0 { chips } else { self.chips };
        Self { chips: count, chips_bounds: self.chips_bounds.or_else(|| Bounds::of_chips(count)), ..self }
    }
}

fn is_localhost(peers: &[OsBytes]) -> bool {
    matches!(peers, [only] if only.as_slice() == b"localhost")
}

/// `10.0.1.1,10.0.1.2`
fn names(text: &str) -> Vec<OsBytes> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(short).collect()
}

/// Two formats (jax/_src/clusters/cloud_tpu_cluster.py): `name:id:address`, and names alone.
fn endpoints(text: &str) -> Vec<OsBytes> {
    let address = |entry: &str| entry.splitn(3, ':').nth(2).unwrap_or(entry).trim().to_string();
    text.split(',')
        .map(|entry| address(entry.trim()))
        .filter(|name| !name.is_empty())
        .map(|name| short(&name))
        .collect()
}

/// The names of the hosts, if all of them can be used. Else their number: the slice still has so many hosts, and the job finds their
/// addresses by itself or is refused.
fn capped(names: Vec<OsBytes>) -> (Capped<OsBytes, PEERS>, Option<Bounds>) {
    let is_name = |name: &OsBytes| name.iter().all(|b| is_plain(*b) || matches!(b, b':' | b'[' | b']' | b'%'));
    if names.len() <= PEERS && names.iter().all(is_name) {
        return (Capped::chunks(names).into_iter().next().unwrap_or_default(), None);
    }
    (Capped::default(), Some(Bounds::new(1, 1, u16::try_from(names.len()).unwrap_or(u16::MAX))))
}

/// The name of a slice or a type, as a hostfile may have it. Other text counts as unknown: it becomes the value of variables.
fn word(text: &str) -> OsBytes {
    if text.len() <= LONGEST && text.bytes().all(is_plain) { text.into() } else { OsBytes::default() }
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

fn short(name: &str) -> OsBytes {
    let mut end = name.len().min(LONGEST);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default().into()
}

/// The value of a key in lines of `KEY: 'value'`.
fn setting(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let value = value.trim().trim_matches('\'');
        (name.trim() == key && !value.is_empty()).then(|| value.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vars: &[(&str, &str)]) -> Option<TpuFacts> {
        let find = |name: &str| vars.iter().find(|(own, _)| *own == name).map(|(_, value)| value.to_string());
        TpuFacts::of_gke(&find)
    }

    fn names_of(facts: &TpuFacts) -> Vec<String> {
        facts.peers.iter().map(|peer| alloc::format!("{peer}")).collect()
    }

    #[test]
    fn containers_of_gke_say_it_in_variables() {
        let facts = of(&[
            ("TPU_WORKER_ID", "1"),
            ("TPU_WORKER_HOSTNAMES", "a-0.svc, a-1.svc"),
            ("TPU_ACCELERATOR_TYPE", "v4-16"),
            ("TPU_TOPOLOGY", "2x2x2"),
            ("TPU_CHIPS_PER_HOST_BOUNDS", "2,2,1"),
        ])
        .unwrap();
        assert_eq!((facts.worker, facts.chips, facts.slice.as_slice()), (1, 4, &b"a-0.svc"[..]));
        assert_eq!(names_of(&facts), ["a-0.svc", "a-1.svc"]);
        assert_eq!(facts.host_bounds, Some(Bounds::new(1, 1, 2)));
        assert_eq!(facts.accelerator_type.as_slice(), b"v4-16");
    }

    #[test]
    fn pod_that_is_a_slice_by_itself_names_no_slice() {
        let facts = of(&[("TPU_WORKER_ID", "0"), ("TPU_WORKER_HOSTNAMES", "localhost")]).unwrap();
        assert_eq!((facts.slice.as_slice(), facts.peers.len()), (&b""[..], 0));
        let facts = of(&[("TPU_WORKER_ID", "0"), ("TPU_WORKER_HOSTNAMES", "localhost"), ("TPU_NAME", "a")]).unwrap();
        assert_eq!(facts.slice.as_slice(), b"a");
    }

    #[test]
    fn words_that_no_hostfile_accepts_are_unknown_and_no_name_is_lost_in_silence() {
        let host = [("TPU_WORKER_ID", "0"), ("TPU_NAME", "evil name; $(x)"), ("TPU_ACCELERATOR_TYPE", "v4 16")];
        let with = |names: &str| of(&[&host[..], &[("TPU_WORKER_HOSTNAMES", names)]].concat()).unwrap();
        let facts = with("a-0,a-1");
        assert_eq!((facts.slice.as_slice(), facts.accelerator_type.is_empty()), (&b"a-0"[..], true));
        assert_eq!(names_of(&with("[fe80::1%eth0],10.0.0.1")), ["[fe80::1%eth0]", "10.0.0.1"]);
        for (names, count) in [("a-0,$(x)", 2), (alloc::vec!["a"; 20_000].join(",").as_str(), 20_000)] {
            let facts = with(names);
            assert_eq!((facts.peers.len(), facts.host_bounds.map(Bounds::count)), (0, Some(count)));
        }
    }

    #[test]
    fn variables_that_say_no_number_are_none_of_a_tpu_host() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("TPU_WORKER_ID", "0")]), None);
        assert_eq!(of(&[("TPU_WORKER_ID", "first"), ("TPU_WORKER_HOSTNAMES", "a")]), None);
    }

    #[test]
    fn chips_count_where_nothing_else_names_their_number() {
        let facts = TpuFacts::of_hostfile("a", 1, 0).with_chips(4);
        assert_eq!((facts.chips, facts.chips_bounds), (4, Bounds::parse("2,2,1")));
        let facts = TpuFacts::of_hostfile("a", 1, 8).with_chips(4);
        assert_eq!((facts.chips, facts.chips_bounds), (8, Bounds::parse("2,4,1")));
    }
}
