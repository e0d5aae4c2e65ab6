//! Admission of the agents of a step: which connections to the launcher's port become edges.
//!
//! Each host's agent is admitted once. A second handshake for the same host is refused and reported. The secret of the step is wiped when
//! all hosts are in. A connection that takes too long, or is the oldest of too many, is closed: its agent connects again.
//!
//! The first message of an agent proves little, because an observer can repeat it. The confirmation proves that the sender has the keys.
//!
//! The owner of the sockets passes on what they bring, and asks before each step of a handshake. So it keeps no decision of its own.

use super::hash::Hash;
use super::preamble::{Preamble, Secret};
use super::tcp_hello::{EdgeKeys, HELLO, Hello, Refusal, StepPreamble};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;
use rlaunch_base::id::NodeId;
use rlaunch_base::time::{Mono, Span};
use rlaunch_base::unproven::Unproven;

/// How long a connection may take for its hello and its first message.
pub const PATIENCE: Span = Span::from_secs(2);
/// How long it may take for its confirmation.
const CONFIRMED_WITHIN: Span = Span::from_secs(10);
/// Connections at a time without a first message, and those without a confirmation.
pub const MOST: usize = 256;
/// Refusals of each kind that are reported.
const REPORTED: u32 = 3;

/// The number of a connection; never reused by an [`Admission`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Caller(u64);

impl Caller {
    /// The caller with this number.
    #[must_use]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A connection that has not shaken hands.
#[derive(Clone, Copy, Debug)]
struct Pending {
    address: IpAddr,
    until: Mono,
    hello: Option<Hello>,
}

/// A host of the step.
#[derive(Clone, Copy, Debug)]
enum Host {
    /// Its agent has not connected; what the agent will be sent.
    Awaited(Preamble),
    /// Its agent is in.
    Admitted,
}

/// A refused connection, for a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The address of its sender.
    pub address: IpAddr,
    /// The reason.
    pub why: Refusal,
    /// Whether it is among the first of its kind, which are reported.
    pub is_reported: bool,
}

/// The hosts of a step, and the connections that want to be their edges.
#[derive(Debug)]
pub struct Admission {
    step: StepPreamble,
    /// By the hash of the name.
    hosts: BTreeMap<Hash, Host>,
    awaited: usize,
    pending: Unproven<Pending>,
    refused: BTreeMap<Refusal, u32>,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl Admission {
    /// For the agents of these hosts, each with what it is sent.
    #[must_use]
    pub fn new(step: &StepPreamble, hosts: BTreeMap<Hash, Preamble>) -> Self {
        Self {
            step: *step,
            awaited: hosts.len(),
            hosts: hosts.into_iter().map(|(host, preamble)| (host, Host::Awaited(preamble))).collect(),
            pending: Unproven::new(MOST),
            refused: BTreeMap::new(),
        }
    }

    /// Whether an agent is still to come.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        self.awaited > 0
    }

    /// Whether the secret of the step is still here.
    #[must_use]
    pub fn has_secret(&self) -> bool {
        self.step.secret != Secret([0; 32])
    }

    /// The oldest connection, if too many are as far as it. The caller closes it: an agent sends its hello at once, so a flood of silent
    /// connections keeps no agent out.
    #[must_use]
    pub fn surplus(&self) -> Option<Caller> {
        self.pending.surplus().map(Caller)
    }

    /// The time of the next call of [`Self::expire`].
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        self.pending.iter().map(|(_, pending)| pending.until).min()
    }

    /// A connection from this address was accepted.
    pub fn accept(&mut self, now: Mono, address: IpAddr) -> Caller {
        Caller(self.pending.add(Pending { address, until: now + PATIENCE, hello: None }))
    }

    /// The hello of a connection is complete.
    ///
    /// # Errors
    /// The hello is none of this step, or too late. The caller closes the connection.
    pub fn greet(&mut self, caller: Caller, bytes: &[u8; HELLO]) -> Result<(), Refusal> {
        let Some(pending) = self.pending.get_mut(caller.0) else { return Err(Refusal::Ended) };
        let hello = Hello::parse(bytes).ok_or(Refusal::Foreign)?;
        if hello.job != self.step.job || hello.epoch != self.step.epoch {
            return Err(Refusal::Foreign);
        }
        pending.hello = Some(hello);
        Ok(())
    }

    /// The keys for the handshake of a connection, and what its agent is sent in the answer.
    ///
    /// # Errors
    /// The connection has sent no hello, its host is none of this step, or the host's agent is in. The caller closes it.
    pub fn keys(&self, caller: Caller) -> Result<(EdgeKeys, Preamble), Refusal> {
        let hello = self.hello(caller)?;
        match self.hosts.get(&hello.host) {
            None => Err(Refusal::UnknownHost),
            Some(Host::Admitted) => Err(Refusal::Twice),
            Some(Host::Awaited(preamble)) => Ok((EdgeKeys::derive(&self.step.secret, &hello), *preamble)),
        }
    }

    /// The first message of a connection was sealed with the key of its host, and is answered.
    pub fn answer(&mut self, now: Mono, caller: Caller) {
        self.pending.set_answered(caller.0);
        if let Some(pending) = self.pending.get_mut(caller.0) {
            pending.until = now + CONFIRMED_WITHIN;
        }
    }

    /// The sender has confirmed the answer, so it knows the key of its host: its connection is the edge.
    ///
    /// # Errors
    /// Another connection has become the edge meanwhile, or this one has expired: it is to be closed.
    pub fn admit(&mut self, caller: Caller) -> Result<NodeId, Refusal> {
        let hello = self.hello(caller)?;
        if !self.pending.is_answered(caller.0) {
            return Err(Refusal::WrongKey);
        }
        let Some(host) = self.hosts.get_mut(&hello.host) else { return Err(Refusal::UnknownHost) };
        let Host::Awaited(Preamble { node, .. }) = *host else { return Err(Refusal::Twice) };
        *host = Host::Admitted;
        self.pending.remove(caller.0);
        self.awaited = self.awaited.saturating_sub(1);
        if self.awaited == 0 {
            self.wipe();
        }
        Ok(node)
    }

    /// A connection is closed for this reason; `None`: it is not one of those that are waited for.
    pub fn refuse(&mut self, caller: Caller, why: Refusal) -> Option<Refused> {
        let address = self.pending.remove(caller.0)?.address;
        Some(self.count(address, why))
    }

    /// Connections that took too long. Each is to be refused as silent.
    #[must_use]
    pub fn expired(&self, now: Mono) -> Vec<Caller> {
        self.pending.iter().filter(|(_, pending)| pending.until <= now).map(|(caller, _)| Caller(caller)).collect()
    }

    fn hello(&self, caller: Caller) -> Result<Hello, Refusal> {
        let pending = self.pending.get(caller.0).ok_or(Refusal::Ended)?;
        pending.hello.ok_or(Refusal::Foreign)
    }

    fn count(&mut self, address: IpAddr, why: Refusal) -> Refused {
        let count = self.refused.entry(why).or_default();
        *count = count.saturating_add(1);
        Refused { address: address.to_canonical(), why, is_reported: *count <= REPORTED }
    }

    fn wipe(&mut self) {
        self.step.secret = Secret([0; 32]);
        core::hint::black_box(&self.step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use rlaunch_base::id::JobId;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn step() -> StepPreamble {
        StepPreamble { job: JobId([1; 16]), epoch: 3, port: 9, secret: Secret([5; 32]) }
    }

    fn name(node: u32) -> Hash {
        Hash::of(&node.to_le_bytes())
    }

    fn admission() -> Admission {
        let preamble = |node| Preamble {
            job: step().job,
            node: NodeId::new(node),
            secret: Secret([0; 32]),
            lease: Span::from_secs(30),
            len: 1,
            hash: Hash([0; 32]),
        };
        Admission::new(&step(), [1, 2].map(|node| (name(node), preamble(node))).into())
    }

    fn hello(node: u32) -> Hello {
        Hello { job: step().job, epoch: step().epoch, host: name(node) }
    }

    fn caller(admission: &mut Admission, node: u32) -> Caller {
        let caller = admission.accept(Mono::default(), HERE);
        admission.greet(caller, &hello(node).to_bytes()).unwrap();
        caller
    }

    #[test]
    fn each_host_is_admitted_once_and_the_last_one_wipes_the_secret() {
        let mut admission = admission();
        let (first, second) = (caller(&mut admission, 2), caller(&mut admission, 2));
        // Both have the keys: only one of them becomes the edge.
        let keys = admission.keys(first).unwrap().0;
        assert_eq!(keys.shared, admission.keys(second).unwrap().0.shared);
        assert_eq!(admission.admit(first), Err(Refusal::WrongKey), "before its first message is answered");
        [first, second].iter().for_each(|caller| admission.answer(Mono::default(), *caller));
        assert_eq!(admission.admit(first), Ok(NodeId::new(2)));
        assert_eq!(admission.admit(first), Err(Refusal::Ended));
        assert_eq!(admission.keys(second).err(), Some(Refusal::Twice));
        assert_eq!(admission.admit(second), Err(Refusal::Twice));
        assert!(admission.is_waiting() && admission.has_secret());
        let other = caller(&mut admission, 1);
        admission.answer(Mono::default(), other);
        assert_eq!(admission.admit(other), Ok(NodeId::new(1)));
        assert!(!admission.is_waiting() && !admission.has_secret());
    }

    #[test]
    fn hellos_of_others_are_refused() {
        let mut admission = admission();
        let mut greet = |hello: [u8; HELLO]| {
            let caller = admission.accept(Mono::default(), HERE);
            admission.greet(caller, &hello).and_then(|()| admission.keys(caller).map(drop))
        };
        assert_eq!(greet([b'G'; HELLO]), Err(Refusal::Foreign));
        assert_eq!(greet(Hello { epoch: 2, ..hello(1) }.to_bytes()), Err(Refusal::Foreign));
        assert_eq!(greet(Hello { job: JobId([2; 16]), ..hello(1) }.to_bytes()), Err(Refusal::Foreign));
        assert_eq!(greet(hello(9).to_bytes()), Err(Refusal::UnknownHost));
        assert_eq!(greet(hello(1).to_bytes()), Ok(()));
        let mute = admission.accept(Mono::default(), HERE);
        assert_eq!(admission.admit(mute), Err(Refusal::Foreign), "without a hello");
    }

    #[test]
    fn first_refusals_of_a_kind_are_reported() {
        let mut admission = admission();
        for n in 0..5 {
            let caller = caller(&mut admission, 1);
            let refused = admission.refuse(caller, Refusal::WrongKey).unwrap();
            assert_eq!((refused.why, refused.is_reported), (Refusal::WrongKey, n < 3));
            assert_eq!(admission.refuse(caller, Refusal::Silent), None, "it is closed");
        }
        let silent = caller(&mut admission, 1);
        assert!(admission.refuse(silent, Refusal::Silent).is_some_and(|refused| refused.is_reported));
    }

    #[test]
    fn connection_without_a_handshake_expires() {
        let mut admission = admission();
        let silent = admission.accept(Mono::default(), HERE);
        let until = Mono::default() + PATIENCE;
        let later = admission.accept(Mono::from_nanos(1), HERE);
        assert_eq!(admission.deadline(), Some(until));
        assert_eq!(admission.expired(Mono::from_nanos(until.nanos() - 1)), []);
        assert_eq!(admission.expired(until), [silent]);
        admission.refuse(silent, Refusal::Silent);
        assert_eq!(admission.greet(silent, &hello(1).to_bytes()), Err(Refusal::Ended), "too late");
        assert_eq!(admission.deadline(), Some(Mono::from_nanos(1) + PATIENCE));
        admission.greet(later, &hello(1).to_bytes()).unwrap();
        admission.answer(until, later);
        assert_eq!(admission.deadline(), Some(until + CONFIRMED_WITHIN));
        assert_eq!(admission.admit(later), Ok(NodeId::new(1)));
        assert_eq!(admission.deadline(), None);
    }

    #[test]
    fn newest_connections_stay_when_there_are_too_many() {
        let mut admission = admission();
        let agent = caller(&mut admission, 1);
        admission.answer(Mono::default(), agent);
        let silent: Vec<Caller> = (0..MOST).map(|_| admission.accept(Mono::default(), HERE)).collect();
        assert_eq!(admission.surplus(), None);
        let newest = caller(&mut admission, 2);
        assert_eq!(
            admission.surplus(),
            Some(silent[0]),
            "neither the agent that was answered, nor the one that came last"
        );
        assert!(admission.refuse(silent[0], Refusal::TooMany).is_some_and(|refused| refused.is_reported));
        assert_eq!(admission.surplus(), None);
        // An observer repeats the first message of an agent.
        let repeated: Vec<Caller> = (0..MOST).map(|_| caller(&mut admission, 1)).collect();
        repeated.iter().for_each(|caller| admission.answer(Mono::default(), *caller));
        assert_eq!(admission.surplus(), Some(agent));
        assert_eq!(admission.keys(newest).map(drop), Ok(()));
    }
}
