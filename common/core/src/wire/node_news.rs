//! Facts about a host that its agent reports and by which the launcher decides nothing. Each has its line of the event log here.
//!
//! The agent makes the value, and the machines pass it on unchanged. A new fact needs a variant, a name and fields in this file, its
//! line in the launcher's view, and its row in docs/reference/events.md.

use super::capped::unreserved;
use super::limit::Met;
use crate::bind::Unbound;
use crate::guard::devices::{DeviceHolder, LockFound};
use crate::id::{NodeId, Rank};
use crate::json::Object;
use crate::os_bytes::OsBytes;
use crate::rank_set::RankSet;
use crate::warnings::WarningNote;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A fact about a host that its agent reports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeNews {
    /// No process of the job has used the store that this host holds, long after the ranks were started.
    StoreUnused {
        /// Address and port.
        at: OsBytes,
    },
    /// A connection from an address that no host of the job has was refused by that store. Reported once.
    StoreForeign {
        /// The origin of the connection.
        from: OsBytes,
    },
    /// Connections to that store were closed because no process of the job has made them.
    StoreRefused {
        /// The origin of the last of them.
        from: OsBytes,
        /// Their number since the last report.
        count: u32,
    },
    /// Clients of that store have met one of its limits, and their connections were closed.
    StoreLimit {
        /// The last of them.
        met: Met,
        /// Their number since the last report of this limit.
        count: u32,
    },
    /// A log file of ranks, or the directory for it, cannot be written. The ranks continue.
    FileFailed {
        /// errno of the attempt.
        errno: i32,
        /// The file or the directory.
        path: OsBytes,
    },
    /// The CPUs of a rank that is being started (`--report-bindings`). Lists are as the kernel writes them.
    RankBound {
        /// Which.
        rank: Rank,
        /// Whether it is bound; else it may use all that rlaunch may use.
        bound: bool,
        /// The CPUs that it may use.
        cpus: OsBytes,
        /// The cores that these are of, counted through the host.
        cores: OsBytes,
        /// The NUMA nodes that these are of, counted in the same way.
        numa: OsBytes,
    },
    /// The ranks of this host were to have a unit each, and are more than there are: they are not bound.
    NotBound(Unbound),
    /// All ranks of this host may use a single CPU only.
    OneCpu {
        /// How many they are.
        ranks: u32,
        /// Which.
        cpu: u32,
        /// How many CPUs the host has.
        online: u32,
    },
    /// A service of this host is planned, or the metadata server has a word that rlaunch does not know.
    WarningNote(WarningNote),
    /// A process that held devices was ended before ranks were started.
    HolderEnded {
        /// The devices.
        devices: OsBytes,
        /// Its process id on the host.
        pid: u32,
        /// The name of its user.
        user: OsBytes,
        /// Its command line, cut.
        command: OsBytes,
        /// The process did not obey SIGTERM and was killed.
        killed: bool,
    },
    /// A lock file was there before ranks were started.
    LockFile {
        /// Its path.
        path: OsBytes,
        /// Its state.
        found: LockFound,
        /// The name of the user whose process has locked it; empty: not locked, or not known.
        user: OsBytes,
        /// The command line of that process, cut.
        command: OsBytes,
    },
    /// A process holds devices after all ranks have exited.
    DeviceHeld(DeviceHolder),
    /// Processes that ranks had left behind are ended: all ranks have succeeded.
    LeftEnded {
        /// How many they are.
        count: u32,
        /// The process id of the first of them, on the host.
        pid: u32,
        /// Its short name.
        comm: OsBytes,
    },
    /// A rank of this host has connected to the listener for MPI libraries. Reported once for each start of the ranks.
    MpiUsed {
        /// The wire that its library speaks.
        wire: MpiWire,
    },
    /// A rank of this host has loaded an MPI library, and none has connected yet.
    MpiLoaded {
        /// The name of its file.
        library: OsBytes,
    },
    /// Ranks have waited for others in `MPI_Init` for a long time. Reported once for each start of the ranks.
    MpiWaits {
        /// Ranges of the ranks that wait.
        #[serde(deserialize_with = "unreserved")]
        waiting: Vec<(u32, u32)>,
        /// Ranges of the ranks that have not come.
        #[serde(deserialize_with = "unreserved")]
        missing: Vec<(u32, u32)>,
        /// Ranges of the missing ranks whose MPI library speaks another wire.
        #[serde(deserialize_with = "unreserved")]
        apart: Vec<(u32, u32)>,
    },
    /// A rank has waited long for a public name of PMIx, as in `MPI_Comm_connect` of Open MPI.
    MpiLookupWaits {
        /// Its number in its world.
        rank: Rank,
        /// The name.
        name: OsBytes,
    },
    /// A rank has exited with 0 after `MPI_Init` and before `MPI_Finalize`.
    MpiUnfinished {
        /// Its number in its world.
        rank: Rank,
        /// Its process id on the host.
        pid: u32,
    },
    /// Ranks of this host have sent a help message of Open MPI that was shown already.
    MpiHelp {
        /// How often, since the last report of this message.
        count: u32,
        /// The file of Open MPI that has the text.
        file: OsBytes,
        /// The part of the file.
        topic: OsBytes,
    },
}

/// Wire that an MPI library speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MpiWire {
    /// PMI-1: MPICH, Intel MPI.
    Pmi1,
    /// PMIx: Open MPI.
    Pmix,
}

impl MpiWire {
    /// Its name.
    const fn word(self) -> &'static str {
        match self {
            Self::Pmi1 => "pmi1",
            Self::Pmix => "pmix",
        }
    }
}

impl NodeNews {
    /// Writes the line of the event log.
    pub(crate) fn write_line(&self, node: NodeId, o: &mut Object<'_>) {
        o.text("ev", self.name());
        o.number("node", node.get().into());
        self.fields(o);
    }

    /// The name of its line.
    const fn name(&self) -> &'static str {
        match self {
            Self::StoreUnused { .. } => "store.unused",
            Self::StoreForeign { .. } => "store.foreign",
            Self::StoreRefused { .. } => "store.refused",
            Self::StoreLimit { .. } => "store.limit",
            Self::FileFailed { .. } => "file.failed",
            Self::RankBound { .. } => "rank.bound",
            Self::NotBound(_) => "host.not_bound",
            Self::OneCpu { .. } => "host.one_cpu",
            Self::WarningNote(_) => "host.warning_note",
            Self::HolderEnded { .. } => "device.holder_ended",
            Self::LockFile { .. } => "device.lock_file",
            Self::DeviceHeld(_) => "device.held",
            Self::LeftEnded { .. } => "host.left_ended",
            Self::MpiUsed { .. } => "mpi.used",
            Self::MpiLoaded { .. } => "mpi.loaded",
            Self::MpiWaits { .. } => "mpi.waits",
            Self::MpiLookupWaits { .. } => "mpi.lookup_waits",
            Self::MpiUnfinished { .. } => "mpi.unfinished",
            Self::MpiHelp { .. } => "mpi.help",
        }
    }

    /// The fields of its line, after the host.
    fn fields(&self, o: &mut Object<'_>) {
        match self {
            Self::StoreUnused { at } => o.bytes("at", at),
            Self::StoreForeign { from } => o.bytes("from", from),
            Self::StoreRefused { from, count } => {
                o.bytes("from", from);
                o.number("count", (*count).into());
            }
            Self::StoreLimit { met, count } => {
                o.text("limit", met.limit.name());
                o.bytes("key", &met.key);
                o.number("has", met.has);
                o.number("most", met.most);
                o.number("count", (*count).into());
            }
            Self::FileFailed { errno, path } => {
                o.signed("errno", *errno);
                o.bytes("path", path);
            }
            Self::RankBound { rank, bound, cpus, cores, numa } => {
                o.number("rank", rank.get().into());
                o.flag("bound", *bound);
                o.bytes("cpus", cpus);
                o.bytes("cores", cores);
                o.bytes("numa", numa);
            }
            Self::NotBound(unbound) => not_bound(o, *unbound),
            Self::OneCpu { ranks, cpu, online } => {
                o.number("ranks", (*ranks).into());
                o.number("cpu", (*cpu).into());
                o.number("online", (*online).into());
            }
            Self::WarningNote(WarningNote::Planned(start)) => o.number("service_at", start.0),
            Self::WarningNote(WarningNote::NoProbe(code)) => o.number("probe_exit_code", u64::from(*code)),
            Self::WarningNote(WarningNote::Unknown { path, word }) => {
                o.bytes("key", path);
                o.bytes("value", word);
            }
            Self::HolderEnded { devices, pid, user, command, killed } => {
                o.bytes("devices", devices);
                o.number("pid", (*pid).into());
                o.bytes("user", user);
                o.bytes("command", command);
                o.flag("killed", *killed);
            }
            Self::LockFile { path, found, user, command } => lock_file(o, path, *found, (user, command)),
            Self::DeviceHeld(holder) => device_holder(o, holder),
            Self::LeftEnded { count, pid, comm } => {
                o.number("count", (*count).into());
                o.number("pid", (*pid).into());
                o.bytes("comm", comm);
            }
            Self::MpiUsed { .. }
            | Self::MpiLoaded { .. }
            | Self::MpiWaits { .. }
            | Self::MpiLookupWaits { .. }
            | Self::MpiUnfinished { .. }
            | Self::MpiHelp { .. } => mpi(o, self),
        }
    }
}

/// Ranks that are not bound.
fn not_bound(o: &mut Object<'_>, Unbound { ranks, units, level }: Unbound) {
    o.number("ranks", ranks.into());
    o.number("units", units.into());
    o.text("unit", level.word());
}

/// The use of MPI.
fn mpi(o: &mut Object<'_>, news: &NodeNews) {
    if let NodeNews::MpiUsed { wire } = news {
        o.text("wire", wire.word());
    }
    if let NodeNews::MpiLoaded { library } = news {
        o.bytes("library", library);
    }
    if let NodeNews::MpiWaits { waiting, missing, apart } = news {
        o.text("waiting", &RankSet::of(waiting).to_string());
        o.text("missing", &RankSet::of(missing).to_string());
        o.text("apart", &RankSet::of(apart).to_string());
    }
    if let NodeNews::MpiLookupWaits { rank, name } = news {
        o.number("rank", rank.get().into());
        o.bytes("name", name);
    }
    if let NodeNews::MpiUnfinished { rank, pid } = news {
        o.number("rank", rank.get().into());
        o.number("pid", (*pid).into());
    }
    if let NodeNews::MpiHelp { count, file, topic } = news {
        o.number("count", (*count).into());
        o.bytes("file", file);
        o.bytes("topic", topic);
    }
}

/// `locker`: the user and the command of the process that has locked the file.
fn lock_file(o: &mut Object<'_>, path: &OsBytes, found: LockFound, locker: (&OsBytes, &OsBytes)) {
    o.bytes("path", path);
    match found {
        LockFound::Removed => o.text("state", "removed"),
        LockFound::Unlocked => o.text("state", "unlocked"),
        LockFound::Locked(pid) => {
            o.text("state", "locked");
            o.number("pid", pid.into());
            if !locker.0.is_empty() {
                o.bytes("user", locker.0);
                o.bytes("command", locker.1);
            }
        }
        LockFound::Foreign(uid) => {
            o.text("state", "foreign");
            o.number("uid", uid.into());
        }
        LockFound::Odd(_) => o.text("state", "no_file"),
        LockFound::Unknown(errno) => {
            o.text("state", "unknown");
            o.signed("errno", errno);
        }
    }
}

/// The fields of a holder of devices.
pub(crate) fn device_holder(o: &mut Object<'_>, holder: &DeviceHolder) {
    let DeviceHolder { devices, pid, user, command, age, unit, job, kept, state, wchan } = holder;
    o.bytes("devices", devices);
    o.number("pid", (*pid).into());
    o.bytes("user", user);
    o.bytes("command", command);
    o.number("age", age.nanos());
    o.bytes("unit", unit);
    o.bytes("job", job);
    o.text("kept", kept.word());
    o.bytes("state", &OsBytes::from(&[*state][..]));
    o.bytes("wchan", wchan);
}
