//! The authorization for a store whose protocol has none: processes of the job may use it, as the kernel shows them.
//!
//! The kernel reports the owner of a connection's socket in microseconds; the process that holds it is found by a look through /proc. Any
//! connection can cause such a look, strangers of the same user too. Therefore one look serves all connections that wait, all looks take a
//! fifth of a processor together at most, and a thread makes them.

use crate::clock::now;
use crate::edges::part::Base;
use crate::edges::socket_searches::Owner;
use crate::edges::watch::Source;
use rlaunch_base::id::NodeId;
use rlaunch_base::time::{Mono, Span};
use rlaunch_keyvalue::listener::tcpstore::Peer;
use rlaunch_protocol::wire::peer_identity::Comer;
use rlaunch_sys::facts::host;
use rlaunch_sys::holders::{self, Finder, Found, Holders, Process};
use rlaunch_sys::namespaces;
use rlaunch_sys::sock_diag::SockDiag;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};

/// Looks for one socket: its process may fork and end while it is looked for.
const LOOKS: u8 = 3;
/// The part of the time that looks may take, as one in so many.
const SHARE: u64 = 5;
/// Time that looks may take at once after a pause, so that a single connection does not wait.
const SAVED: Span = Span::from_millis(50);
/// Most connections that are judged one by one. For more of them, the sockets of known processes are read once.
const FEW: usize = 4;
/// Most sockets that wait for a look.
const MOST_WAITING: usize = 4096;

/// Whose question it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::edges) enum Asker {
    /// The own queue of accepted connections, about its connection of this number.
    Queue(u64),
    /// Another host's.
    Host(NodeId, Comer),
}

/// A socket of this host whose process is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::edges) struct Unknown {
    pub(in crate::edges) inode: u32,
    /// Its user, if it is not the user of the ranks: a rank of root's may run as any user, but hardly any does.
    other: Option<u32>,
}

/// The subject of a look.
#[derive(Clone, Copy, Debug)]
enum Sought {
    /// A socket.
    Socket(Unknown),
    /// A socket of another network namespace, by its ends: its own, and the other.
    Ends(SocketAddr, SocketAddr),
}

impl Asker {
    /// The number of a connection of the own queue.
    pub(in crate::edges) const fn number(self) -> Option<u64> {
        match self {
            Self::Queue(number) => Some(number),
            Self::Host(..) => None,
        }
    }
}

#[derive(Debug)]
struct Inquiry {
    asker: Asker,
    sought: Sought,
    looks: u8,
}

/// Looks it up.
#[derive(Debug)]
pub(in crate::edges) struct Authorizer {
    diag: SockDiag,
    holders: Holders,
    /// Sockets that known processes hold, by inode. Present while many connections that came together are judged.
    recent: Option<BTreeMap<u32, Process>>,
    /// The agent: all of the job on this host is below it.
    above: i32,
    /// The user of the ranks; root can be any user.
    user: u32,
    open: Vec<Inquiry>,
    /// The subjects of the look that is under way.
    under_way: Vec<Inquiry>,
    known: Vec<(Asker, Option<Peer>)>,
    budget: Budget,
}

/// A look through all processes, for the thread that makes it.
#[derive(Debug)]
pub(in crate::edges) struct Look {
    above: i32,
    sought: Vec<Sought>,
}

/// The results of a look, and the time that it took.
#[derive(Debug)]
pub(in crate::edges) struct Looked(Vec<Seen>, Span);

#[derive(Clone, Copy, Debug)]
enum Seen {
    Holder(Found),
    NotFound,
    /// No process of its user is of the job.
    Stranger,
}

impl Look {
    /// Looks once for all.
    pub(in crate::edges) fn perform(self, finder: &mut Finder) -> Looked {
        let (began, Self { above, sought }) = (now(), self);
        let ends = |sought: &Sought| match sought {
            Sought::Ends(own, other) => Some((*own, *other)),
            Sought::Socket(_) => None,
        };
        let outside: Vec<(SocketAddr, SocketAddr)> = sought.iter().filter_map(ends).collect();
        let inside = if outside.is_empty() { Vec::new() } else { namespaces::inodes(above, &outside) };
        let mut inside = inside.into_iter();
        // Other users are excluded in less time than it takes to find a socket. Twice, because a process that is being forked is found with
        // its parent or after it.
        let is_stranger =
            |other: Option<u32>| other.is_some_and(|user| !(0..2).any(|_| holders::is_any_below(above, user)));
        let inode = |sought: &Sought| match sought {
            Sought::Socket(Unknown { other, .. }) if is_stranger(*other) => Err(Seen::Stranger),
            Sought::Socket(Unknown { inode, .. }) => Ok(*inode),
            Sought::Ends(..) => inside.next().flatten().ok_or(Seen::NotFound),
        };
        let inodes: Vec<Result<u32, Seen>> = sought.iter().map(inode).collect();
        let known: Vec<u32> = inodes.iter().filter_map(|inode| inode.ok()).collect();
        let mut found = finder.find(above, &known).into_iter();
        let seen = |inode: Result<u32, Seen>| match inode {
            Ok(_) => found.next().flatten().map_or(Seen::NotFound, Seen::Holder),
            Err(seen) => seen,
        };
        Looked(inodes.into_iter().map(seen).collect(), now().since(began))
    }
}

impl Authorizer {
    /// # Errors
    /// The kernel cannot be asked.
    pub(in crate::edges) fn new(now: Mono) -> io::Result<Self> {
        Ok(Self {
            diag: SockDiag::open()?,
            holders: Holders::default(),
            recent: None,
            above: i32::try_from(std::process::id()).unwrap_or(0),
            user: host::user().0,
            open: Vec::new(),
            under_way: Vec::new(),
            known: Vec::new(),
            budget: Budget { credit: SAVED.nanos(), at: now, next: now },
        })
    }

    /// Prepares for this many connections that came together.
    pub(in crate::edges) fn expect(&mut self, many: usize) {
        self.recent = (many > FEW).then(|| self.holders.recent());
    }

    /// Which process of the job has made the connection from this address of this host to `own`: known at once where it has connected
    /// before. `Err`: it is not known yet; `Ok(None)`: none has, or it has closed it already.
    pub(in crate::edges) fn judge(&mut self, own: SocketAddr, from: SocketAddr) -> Result<Option<Peer>, Unknown> {
        // An owner that cannot be found is refused.
        let owner = self.diag.owner(from, own).unwrap_or_else(|error| {
            tracing::warn!(%error, "the kernel does not tell whose a connection is");
            None
        });
        let Some(owner) = owner.filter(|owner| self.user == 0 || owner.uid == self.user) else { return Ok(None) };
        let known = match &self.recent {
            Some(recent) => recent.get(&owner.inode).copied(),
            None => self.holders.guess(owner.inode),
        };
        if let Some(process) = known {
            return Ok(Some(peer(process)));
        }
        Err(Unknown { inode: owner.inode, other: Some(owner.uid).filter(|user| *user != self.user) })
    }

    /// The user of the other end of a connection of this host.
    pub(in crate::edges) fn user_of(&mut self, socket: &TcpStream) -> Option<u32> {
        let (own, from) = (socket.local_addr().ok()?, socket.peer_addr().ok()?);
        self.diag.owner(from, own).ok()?.map(|owner| owner.uid)
    }

    /// A socket whose holder is to be looked for.
    pub(in crate::edges) fn look_for(&mut self, asker: Asker, socket: Unknown) {
        self.inquire(asker, Sought::Socket(socket));
    }

    /// A connection that comes from no address of any host: from a network namespace of the job's, or from a stranger.
    pub(in crate::edges) fn look_inside(&mut self, asker: Asker, from: SocketAddr, own: SocketAddr) {
        self.inquire(asker, Sought::Ends(from, own));
    }

    fn inquire(&mut self, asker: Asker, sought: Sought) {
        if self.open.len() < MOST_WAITING {
            self.open.push(Inquiry { asker, sought, looks: 0 });
        } else {
            self.known.push((asker, None));
        }
    }

    /// Records the owner of a connection.
    pub(in crate::edges) fn notify(&mut self, asker: Asker, peer: Option<Peer>) {
        self.known.push((asker, peer));
    }

    /// Says what is known now, and has the thread look for the rest, as far as it may.
    pub(in crate::edges) fn take_known(&mut self, owner: Owner, base: &mut Base) -> Vec<(Asker, Option<Peer>)> {
        let Base { socket_searches, watch, .. } = base;
        self.end_look(socket_searches.take(owner));
        if let Some(look) = self.begin_look(now()) {
            socket_searches.submit(owner, look, |bell| watch.add(bell, Source::SocketSearches));
            // Without a thread the answer is there.
            self.end_look(socket_searches.take(owner));
        }
        std::mem::take(&mut self.known)
    }

    /// When it may look again, if something is to be looked for.
    pub(in crate::edges) fn deadline(&self) -> Option<Mono> {
        (!self.open.is_empty() && self.under_way.is_empty()).then_some(self.budget.next)
    }

    /// The next look: one at a time.
    fn begin_look(&mut self, now: Mono) -> Option<Look> {
        if self.open.is_empty() || !self.under_way.is_empty() || !self.budget.allows(now) {
            return None;
        }
        self.under_way = std::mem::take(&mut self.open);
        Some(Look { above: self.above, sought: self.under_way.iter().map(|inquiry| inquiry.sought).collect() })
    }

    fn end_look(&mut self, looked: Option<Looked>) {
        let Some(Looked(seen, took)) = looked else { return };
        self.budget.spent(took, now());
        for (mut inquiry, seen) in std::mem::take(&mut self.under_way).into_iter().zip(seen) {
            inquiry.looks += 1;
            match seen {
                Seen::Holder(found) => {
                    self.holders.remember(found);
                    self.known.push((inquiry.asker, Some(peer(found.process))));
                }
                Seen::NotFound if inquiry.looks < LOOKS => self.open.push(inquiry),
                Seen::NotFound | Seen::Stranger => self.known.push((inquiry.asker, None)),
            }
        }
    }
}

/// The share of time that looks may take.
#[derive(Debug)]
struct Budget {
    /// In nanoseconds, at the time `at`.
    credit: u64,
    at: Mono,
    /// When there is some again.
    next: Mono,
}

impl Budget {
    fn allows(&mut self, now: Mono) -> bool {
        if now < self.next {
            return false;
        }
        let earned = now.since(self.at).nanos() / SHARE;
        (self.credit, self.at) = (self.credit.saturating_add(earned).min(SAVED.nanos()), now);
        true
    }

    fn spent(&mut self, took: Span, now: Mono) {
        let owed = took.nanos().saturating_sub(self.credit);
        self.credit = self.credit.saturating_sub(took.nanos());
        self.at = now + Span::from_nanos(owed.saturating_mul(SHARE));
        self.next = self.at;
    }
}

/// A process as a number: its pid, and enough of its start to distinguish it from an earlier process.
fn peer(process: Process) -> Peer {
    Peer(u64::from(process.pid.unsigned_abs()) << 32 | process.started & u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a process of another user, not a rank")]
    use super::*;
    use crate::edges::testing;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::fchown;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    fn now() -> Mono {
        Mono::from_nanos(rlaunch_sys::clock::boottime())
    }

    /// Root's ranks may be of any user. A user without any process in the job is excluded without a look at descriptors, as any
    /// connection could cause one.
    #[test]
    fn user_without_process_in_job_is_refused_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let client = TcpStream::connect(to).unwrap();
        let own = host::user().0;
        // A user who is not root cannot become another one, but can look at own processes as root does at others.
        let other = if own == 0 { 65534 } else { own };
        fchown(&client, Some(other), None).unwrap();
        let judge = |user| {
            let mut authorizer = Authorizer { user, ..Authorizer::new(now()).unwrap() };
            authorizer.judge(to, client.local_addr().unwrap())
        };
        assert_eq!(judge(other + 1), Ok(None), "ranks of a user who is not root are his");
        let socket = judge(0).unwrap_err();
        assert!(socket.inode > 0 && socket.other == Some(other).filter(|user| *user != 0), "{socket:?}");
        let look = || {
            let above = i32::try_from(std::process::id()).unwrap();
            let sought = vec![Sought::Socket(Unknown { other: Some(other), ..socket })];
            let Looked(seen, _) = Look { above, sought }.perform(&mut Finder::default());
            seen[0]
        };
        assert!(matches!(look(), Seen::Stranger));
        // It ends with us, whatever comes.
        let mut rank = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).uid(other).spawn().unwrap();
        assert!(!matches!(look(), Seen::Stranger), "it may be the rank's");
        drop(rank.stdin.take());
        rank.wait().unwrap();
        assert!(matches!(look(), Seen::Stranger));
    }

    #[test]
    fn looks_take_a_fifth_of_the_time_and_nobody_waits_who_comes_alone() {
        let start = Mono::from_nanos(7);
        let at = |millis: u64| start + Span::from_millis(millis);
        let mut budget = Budget { credit: SAVED.nanos(), at: start, next: start };
        let mut looked = 0;
        for now in 0..1000 {
            // Each takes 3 ms; some connection always waits.
            if budget.allows(at(now)) {
                budget.spent(Span::from_millis(3), at(now));
                looked += 3;
            }
        }
        assert!((200..=260).contains(&looked), "{looked} ms in a second");
        let after = 1000 + 5 * SAVED.nanos() / 1_000_000;
        for _ in 0..LOOKS {
            assert!(budget.allows(at(after)), "what was saved is enough for the looks of one");
            budget.spent(Span::from_millis(10), at(after));
        }
    }

    #[test]
    fn connection_without_owner_is_decided_after_some_looks() {
        let _runtime = testing::enter();
        let (mut edges, _far) = testing::edges();
        let mut authorizer = Authorizer::new(now()).unwrap();
        let of_ranks_user = |inode| Unknown { inode, other: None };
        authorizer.look_for(Asker::Queue(1), of_ranks_user(u32::MAX));
        authorizer.look_inside(Asker::Queue(2), "10.9.9.9:1".parse().unwrap(), "10.9.9.1:2".parse().unwrap());
        authorizer.notify(Asker::Queue(3), Some(Peer(5)));
        let mut known = Vec::new();
        while known.len() < 3 {
            known.extend(authorizer.take_known(Owner::Mpi, &mut edges.base));
            edges.base.socket_searches.receive_answers();
        }
        assert_eq!(known, [(Asker::Queue(3), Some(Peer(5))), (Asker::Queue(1), None), (Asker::Queue(2), None)]);
        authorizer.open.extend((0..MOST_WAITING).map(|_| Inquiry {
            asker: Asker::Queue(4),
            sought: Sought::Socket(of_ranks_user(0)),
            looks: 0,
        }));
        authorizer.look_for(Asker::Queue(5), of_ranks_user(0));
        assert_eq!(authorizer.known, [(Asker::Queue(5), None)], "they are bounded");
    }
}
