//! A message of rlaunch on stderr while the job runs.

use super::Report;
use crate::events::Cause;
use crate::id::{Rank, Round, Std};
use crate::os_bytes::OsBytes;
use crate::restart::RoundNote;
use crate::signal::Signal;
use crate::spec::Tier;
use crate::status::Status;
use crate::time::Span;
use crate::travel::Lowered;
use crate::wire::limit::Met;
use crate::wire::to_root::SpawnError;
use alloc::boxed::Box;

/// A message of rlaunch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sentence {
    /// The port in the ranks' environment could not be reserved against other rlaunch jobs.
    PortUnreserved {
        /// Which.
        port: u16,
    },
    /// The guarantee that nothing is left behind is not the strongest.
    Tier {
        /// Which one holds.
        tier: Tier,
        /// Why.
        note: OsBytes,
    },
    /// Ranks get less of something than they were to get.
    Lowered {
        /// The limit, and its value.
        lowered: Lowered,
        /// On these hosts.
        hosts: OsBytes,
    },
    /// Hosts of the job are the same machine.
    OneMachine {
        /// Which.
        hosts: OsBytes,
        /// Number of other machines that are several hosts as well.
        more: usize,
    },
    /// Ranks meet at another address than the one that is likely to work.
    Detour {
        /// Which.
        addr: OsBytes,
        /// The address that it replaces.
        instead_of: OsBytes,
        /// The host.
        to: OsBytes,
        /// Hosts from which it is not reached.
        hosts: OsBytes,
    },
    /// MASTER_ADDR is no address of rank 0's host, so its agent cannot hold the store there.
    StoreLeft {
        /// The address.
        addr: OsBytes,
    },
    /// No program has used the store that rlaunch holds.
    StoreUnused {
        /// Its address.
        at: OsBytes,
    },
    /// A connection from an address that no host of the job has was refused by that store. Said once.
    StoreForeign {
        /// From where.
        from: OsBytes,
    },
    /// A client of that store has met a limit, and its connection was closed. Said once for each limit.
    StoreLimit {
        /// The host that holds it.
        host: OsBytes,
        /// Which.
        met: Met,
    },
    /// The job continues without these hosts, with the knowledge about them.
    LeftOut(Box<Report>),
    /// A rank failed and, by `--on-failure continue`, the others continue. Said once.
    GoesOn {
        /// Which.
        rank: Rank,
        /// How.
        status: Status,
    },
    /// A rank was killed by a signal that rlaunch passed on. The others have the grace before the job ends.
    Spared {
        /// Which.
        rank: Rank,
        /// How.
        status: Status,
        /// When the job ends.
        end_in: Span,
    },
    /// A rank has failed, or a host was lost, and all are about to be started again.
    Restarts {
        /// Which failed first.
        rank: Rank,
        /// How.
        status: Status,
        /// Hosts were lost.
        fewer: Option<Box<Fewer>>,
        /// How often they have been started again then.
        restart: u32,
        /// How often they may be.
        most: u32,
        /// How long is waited before.
        delay: Span,
    },
    /// Ranks are not started again: again and again the same rank has failed in the same way at once.
    NoProgress {
        /// Which.
        rank: Rank,
        /// Number of times in a row.
        alike: u32,
    },
    /// Ranks are not started again: processes of the generation before remain and cannot be ended.
    NotClear,
    /// Something about rounds, the in-process restart of a function.
    Round {
        /// How often all ranks have been started again.
        generation: u32,
        /// The host of the rank that it is about first; empty: there is only one.
        host: OsBytes,
        /// The note.
        note: Box<RoundNote>,
    },
    /// No other round is possible.
    GivenUp {
        /// How often all ranks have been started again.
        generation: u32,
        /// The last one.
        round: Option<Round>,
        /// Why.
        text: OsBytes,
    },
    /// The countdown: a signal began the ending.
    Sent {
        /// The signal, as received and passed on.
        sig: Signal,
        /// Until SIGKILL.
        kill_in: Span,
    },
    /// A signal came before any rank was started.
    Unstarted {
        /// The signal.
        sig: Signal,
        /// The hosts that were waited for.
        awaited: OsBytes,
    },
    /// A signal came when all ranks had ended and were about to be started again.
    Unrestarted {
        /// The signal.
        sig: Signal,
    },
    /// Another process of a rank that has died could not be started.
    Unable {
        /// Whose.
        initial: Rank,
        /// The host, if there are several.
        host: OsBytes,
        /// Why.
        error: SpawnError,
    },
    /// The ending takes a while: what is waited for. Not said after a signal, which had its countdown.
    Waiting {
        /// Why the job ends, as far as it is known.
        cause: Cause,
        /// Until SIGKILL.
        kill_in: Span,
    },
    /// A signal came while the job was ending for another reason.
    Ending {
        /// The signal.
        sig: Signal,
        /// Until SIGKILL; `None`: it was sent.
        kill_in: Option<Span>,
    },
    /// A signal came after the last rank had ended, while its output was still being written.
    Unwritten {
        /// The signal.
        sig: Signal,
        /// After this, what is not written is dropped.
        patience: Span,
    },
    /// A host cannot be ordered to end, or does not answer: it ends by itself, at this time at the latest.
    Awaited {
        /// Its name.
        host: OsBytes,
        /// Until its lease has surely ended its ranks.
        within: Span,
    },
    /// Hosts do not answer, and the job cannot end before they have ended their ranks.
    Silent {
        /// Their names, in short.
        hosts: OsBytes,
        /// Until the leases of all of them have surely ended their ranks.
        within: Span,
    },
    /// The second signal: SIGKILL for everything.
    Killing {
        /// The signal.
        sig: Signal,
    },
    /// The third signal: rlaunch leaves, the guardian finishes the rest.
    Leaving {
        /// The signal.
        sig: Signal,
    },
    /// Our stdin could not be read to its end.
    InputFailed {
        /// errno of the read.
        errno: i32,
    },
    /// Our stdin cannot be passed on to the rank that reads it.
    InputUndelivered {
        /// errno of what its host tried.
        errno: i32,
    },
    /// Our stdout or stderr has no reader any more: the job ends.
    ReaderClosed(Std),
    /// The terminal of our stdout or stderr has hung up; the job continues without it.
    HungUp(Std),
    /// Our stdout or stderr cannot be written; the job continues without it.
    SinkFailed {
        /// Which.
        std: Std,
        /// errno of the write.
        errno: i32,
    },
    /// A log file of ranks cannot be written; the job continues.
    FileFailed {
        /// On this host.
        host: OsBytes,
        /// errno of what was tried.
        errno: i32,
        /// Which file.
        path: OsBytes,
    },
    /// Number of bytes that are missing in the log files of ranks.
    FilesLost(u64),
    /// Lines were broken because another rank waited.
    LinesBroken(u64),
    /// Bytes of output were received but not written.
    OutputLost(u64),
    /// The closing report.
    Report(Box<Report>),
}

/// The rest of a job of which hosts were lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fewer {
    /// The host by whose loss it came to that; empty: a rank had failed.
    pub by: OsBytes,
    /// Hosts that are lost by now, in short.
    pub without: OsBytes,
    /// Ranks that are left.
    pub ranks: u32,
}
