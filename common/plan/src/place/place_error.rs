//! Why ranks cannot be placed as asked for.

use super::MOST_RANKS;
use crate::hostlist::Host;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use rlaunch_base::error::Hint;
use rlaunch_base::id::AppIndex;

/// Ranks that cannot be placed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlaceError {
    /// No `-n`, and all slots are taken.
    #[error("no slot is left for program {}, and no -n says how many ranks it has", shown(*app))]
    NoSlot {
        /// Which.
        app: AppIndex,
    },
    /// `--nnodes` leaves out all hosts of a program.
    #[error("no host is left for program {}: --nnodes takes the first {nodes} hosts of the job", shown(*app))]
    NoHost {
        /// Which.
        app: AppIndex,
        /// Hosts that are used.
        nodes: u32,
    },
    /// `-n 8 --ppn 2` on three hosts.
    #[error("-n {n} does not fit: {}", room(*ppn, *hosts))]
    PerNode {
        /// `-n`.
        n: u32,
        /// `--ppn`.
        ppn: u32,
        /// Hosts of the program.
        hosts: u32,
    },
    /// `max_slots`.
    #[error("{n} ranks do not fit: max_slots leaves room for {room}")]
    Max {
        /// Ranks of the program.
        n: u32,
        /// The number that fits.
        room: u32,
    },
    /// `-n 9 --nproc-per-node gpu` on hosts with eight.
    #[error("-n {n} is more than the {room} that --ppn or --map-by ppr counts on the hosts")]
    Counted {
        /// Ranks of the program.
        n: u32,
        /// The number that was counted.
        room: u32,
    },
    /// `--nnodes 4` on two hosts.
    #[error("--nnodes asks for {wanted} host{}, but there {} {have}", plural(*wanted), if *have == 1 { "is" } else { "are" })]
    TooFewHosts {
        /// The least.
        wanted: u32,
        /// The number that exists.
        have: u32,
    },
    /// `--nnodes 4` for two ranks.
    #[error("--nnodes asks for {wanted} hosts, but there are ranks for {ranks} only")]
    TooFewRanks {
        /// The least.
        wanted: u32,
        /// Ranks of the job.
        ranks: u32,
    },
    /// `--min-hosts 4` for a job on two hosts.
    #[error("--min-hosts asks for {wanted} host{}, but the job has {used}", plural(*wanted))]
    TooFewUsed {
        /// The least.
        wanted: u32,
        /// The number that has ranks.
        used: u32,
    },
    /// Two machines, and both would be this one.
    #[error("{first} and {second} would both be this machine, which is called {own}")]
    TwoHere {
        /// Its name.
        own: String,
        /// A host.
        first: String,
        /// The other.
        second: String,
    },
    /// `--strict`.
    #[error("--strict: {ranks} ranks on {slots} {}{} of {host}", if *processors { "processor" } else { "slot" }, plural(*slots))]
    Strict {
        /// The host.
        host: Host,
        /// Its ranks.
        ranks: u32,
        /// Its slots.
        slots: u32,
        /// Its slots are its processors.
        processors: bool,
    },
    /// `--rank-by fill --map-by slot`
    #[error("--rank-by fill and span number the units of hosts, and --map-by names none")]
    NoUnits,
    /// A list of the host of each rank names one that the job does not have.
    #[error("{host} is to have a rank (--map-by or SLURM_HOSTFILE), and the job does not have that host")]
    NotOfTheJob {
        /// Which.
        host: Host,
    },
    /// A list of the host of each rank is too short.
    #[error("--map-by names hosts for {lines} rank{} of program {}, which has {n}", plural(*lines), shown(*app))]
    TooFewLines {
        /// Which program.
        app: AppIndex,
        /// Its ranks.
        n: u32,
        /// Lines that are left for it.
        lines: u32,
    },
    /// `-n 5 --share gen`, and gen has 4 ranks.
    #[error("-n {n} does not fit: program {} shares the slots of {has} rank{}", shown(*app), plural(*has))]
    Share {
        /// Which program.
        app: AppIndex,
        /// Its ranks.
        n: u32,
        /// Ranks of the group whose slots it shares.
        has: u32,
    },
    /// More than there can be.
    #[error("more than {MOST_RANKS} ranks")]
    TooMany,
}

impl Hint for PlaceError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::NoSlot { .. } => "-n N, or hosts by -H, for this program too".into(),
            Self::TooFewHosts { .. } => "more hosts, as -H host1,host2; or a smaller --nnodes".into(),
            Self::NoHost { .. } => "a smaller --nnodes, or more hosts".into(),
            Self::PerNode { n, ppn, hosts } => {
                let (each, needed) = (n.div_ceil((*hosts).max(1)), n.div_ceil((*ppn).max(1)));
                format!("--ppn {each}, or {needed} hosts (-H)").into()
            }
            Self::Counted { room, .. } => format!("-n {room}, or more hosts").into(),
            Self::Max { room, .. } if *room > 0 => format!("-n {room}, or more hosts").into(),
            Self::Max { .. } => "more hosts".into(),
            Self::TooFewUsed { used, .. } => format!("--min-hosts {used}, or more hosts").into(),
            Self::TooFewRanks { wanted, .. } => format!("-n {wanted} or more").into(),
            Self::Strict { .. } => "fewer ranks, more slots, or leave --strict out".into(),
            Self::TwoHere { own, .. } => {
                format!("{own} for this machine, and the other by an address or a name of ~/.ssh/config").into()
            }
            Self::NoUnits => "--map-by package|numa|l3|core|hwthread, or --rank-by slot|node".into(),
            Self::NotOfTheJob { .. } => "-H or --hostfile with all hosts of that list".into(),
            Self::TooFewLines { lines: 1.., .. } => {
                "fewer ranks (-n), or more names of hosts in the list or file".into()
            }
            Self::TooFewLines { .. } => "more names of hosts in the list or file".into(),
            Self::Share { has, .. } => format!("-n {has}, or leave -n out").into(),
            Self::TooMany => return None,
        })
    }
}

/// People count programs from 1.
fn shown(app: AppIndex) -> u64 {
    u64::from(app.get()) + 1
}

fn plural(n: u32) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// `2 ranks on each of 3 hosts are 6`
fn room(ppn: u32, hosts: u32) -> String {
    let each = format!("{ppn} rank{}", plural(ppn));
    match hosts {
        1 => format!("{each} on 1 host"),
        hosts => format!("{each} on each of {hosts} hosts are {}", u64::from(ppn) * u64::from(hosts)),
    }
}
