//! The set-up of the restart machine.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_plan::rank_assign::{Policy, Source};
use rlaunch_protocol::rounds::Limits;

/// The set-up of the restart machine.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The node of each initial rank, by initial rank.
    pub ranks: Vec<NodeId>,
    /// Every node that takes part: it is notified of each round, whether it has ranks in it or not.
    pub nodes: BTreeMap<NodeId, Site>,
    /// The node where the job's ranks meet before there is any round, which is that of rank 0, and the port there.
    pub rendezvous: (NodeId, u16),
    /// An agent holds the TCPStore of the ranks, so that it does not matter which host it is on in the first round.
    pub agent_store: bool,
    /// Ranks run in a job of Slurm: each round has its layout in Slurm's words.
    pub in_slurm: bool,
    /// The number of the first round's space of the store.
    pub namespace: u32,
    /// `--assign`: it wins over the program's.
    pub policy: Option<Policy>,
    /// Reads a policy that a program has registered: words, or the text of a file.
    pub read_policy: fn(&str) -> Result<Policy, String>,
    /// Properties of ranks that are known beside their host, by initial rank.
    pub known: Vec<(Source, Vec<Option<String>>)>,
    /// The limits of the command line, which override the program's.
    pub limits: Limits,
    /// `--fault-window`: how long it is waited for more faults after the first.
    pub fault_window: Span,
    /// `--yield-within`: how long a rank may take to get to where a planned round can interrupt it.
    pub yield_within: Span,
    /// `--give-up-after`: equal failures end the rounds only after this time.
    pub give_up_after: Span,
    /// `--respawn`
    pub respawn: bool,
    /// `--respawn-timeout`: how long such a process may take to register.
    pub respawn_timeout: Span,
}

/// A host, as ranks and policies know it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Site {
    /// Its name, for `host`.
    pub name: String,
    /// Its address, for MASTER_ADDR.
    pub addr: OsBytes,
}
