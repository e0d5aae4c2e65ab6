//! Which holders of a device may be ended before ranks are started. The decision is a pure function of the facts about a holder.
//!
//! A TPU chip can be opened by one process at a time. A process that was left behind keeps it, and the next program fails with `Device or
//! resource busy`. rlaunch ends a holder only if the policy of the user allows that and no rule protects the holder.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Span;
use serde::{Deserialize, Serialize, Serializer};

/// Most lock files of a job.
pub const LOCK_FILES: usize = 8;
/// Most chips that a user may name.
pub const CHIPS: usize = 64;
/// The lock file of libtpu.
pub const LIBTPU_LOCK: &str = "/tmp/libtpu_lockfile";

/// `--devices`: whether hosts are prepared for programs that use TPU chips.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum DeviceKind {
    /// Devices are not looked at.
    #[default]
    None,
    /// Hosts that have TPU chips are prepared.
    Auto,
    /// Every host counts as one with TPU chips.
    Tpu,
}

/// `--clean-devices`: which holders of devices are ended before ranks are started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum CleanPolicy {
    /// No holder.
    Off,
    /// The processes of jobs of rlaunch that are proved to have ended.
    #[default]
    Stale,
    /// All of this user, but services and containers.
    Own,
    /// All, also those of other users: for root. Services and containers of root are kept.
    All,
}

impl CleanPolicy {
    /// The word of the option.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Stale => "stale",
            Self::Own => "own",
            Self::All => "all",
        }
    }
}

/// The preparation of the devices of a host.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DevicePlan {
    /// Which hosts are prepared.
    pub kind: DeviceKind,
    /// Which holders are ended.
    pub clean: CleanPolicy,
    /// Lock files that are removed where no process has locked them.
    pub lock_files: Capped<OsBytes, LOCK_FILES>,
    /// Nothing is ended or removed: holders that would be are named.
    pub is_trial: bool,
    /// The chips of the job by their numbers on each host; empty: all.
    pub chips: Capped<u32, CHIPS>,
    /// The programs show no sign that they use TPU chips: the job starts beside a holder, which is named.
    pub is_optional: bool,
    /// The job may have only some hosts of a TPU slice (`--allow-partial`).
    pub allow_partial: bool,
}

impl DevicePlan {
    /// Whether there is anything to do.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        match self.kind {
            DeviceKind::None => false,
            DeviceKind::Auto | DeviceKind::Tpu => true,
        }
    }
}

/// A step of the preparation. No process is ended for a job that cannot start: all hosts look before the first of them ends holders.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DeviceStep {
    /// Search for holders. If there are none, lock files are removed.
    Look,
    /// The same, and end the holders.
    Free,
}

/// A process that holds devices of a host, as it is reported to the launcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceHolder {
    /// The device files, in short: `/dev/vfio/0-3`.
    pub devices: OsBytes,
    /// Its process id on the host.
    pub pid: u32,
    /// The name of its user.
    pub user: OsBytes,
    /// Its command line, cut.
    pub command: OsBytes,
    /// For how long it runs.
    pub age: Span,
    /// The service or container that it belongs to; empty: none.
    pub unit: OsBytes,
    /// The job of rlaunch that it belongs to; empty: none.
    pub job: OsBytes,
    /// Why it is not ended.
    pub kept: Kept,
    /// Its state, as proc_pid_stat(5) names it.
    #[serde(serialize_with = "letter")]
    pub state: u8,
    /// The place in the kernel where it waits; empty: not known.
    pub wchan: OsBytes,
}

/// A letter: as a text for people.
fn letter<S: Serializer>(letter: &u8, serializer: S) -> Result<S::Ok, S::Error> {
    if serializer.is_human_readable() { serializer.serialize_bytes(&[*letter]) } else { letter.serialize(serializer) }
}

/// The state of a lock file, after it was removed where that was possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockFound {
    /// No process had locked the file, and it was removed.
    Removed,
    /// The same, but for a trial it stays.
    Unlocked,
    /// A process has locked it. It stays.
    Locked {
        /// Its process id; 0: unknown.
        pid: u32,
    },
    /// The file belongs to another user, and no process has locked it.
    Foreign {
        /// Its user id.
        uid: u32,
    },
    /// The path is no file with a single name.
    #[serde(rename = "no_file")]
    Odd(OddFile),
    /// The file cannot be looked at or removed.
    Unknown {
        /// errno of the attempt.
        errno: i32,
    },
}

/// A kind of file that libtpu cannot lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename = "is", rename_all = "snake_case")]
pub enum OddFile {
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A FIFO.
    Fifo,
    /// A file with several names.
    ManyNames,
    /// Another kind.
    Other,
}

impl core::fmt::Display for OddFile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::Link => "a symbolic link",
            Self::Fifo => "a FIFO",
            Self::ManyNames => "a file with several names (hard links)",
            Self::Other => "no regular file",
        })
    }
}

impl LockFound {
    /// Whether libtpu must not try to take the lock: it would fail.
    #[must_use]
    pub const fn is_in_the_way(self) -> bool {
        match self {
            Self::Removed | Self::Unlocked | Self::Locked { .. } => false,
            Self::Foreign { .. } | Self::Odd(_) | Self::Unknown { .. } => true,
        }
    }
}

/// The paths of device files, in short. Numbers at the ends of equal beginnings are joined: `/dev/vfio/0-3,5`.
#[must_use]
pub fn fold_paths<'a>(paths: impl IntoIterator<Item = &'a str>) -> String {
    let mut groups: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for path in paths {
        let stem = path.trim_end_matches(|c: char| c.is_ascii_digit());
        let numbers = groups.entry(stem).or_default();
        numbers.extend(path.get(stem.len()..).and_then(|number| number.parse::<u32>().ok()));
    }
    let mut text = String::new();
    for (stem, mut numbers) in groups {
        numbers.sort_unstable();
        numbers.dedup();
        let comma = if text.is_empty() { "" } else { "," };
        let ranges: RankSet = numbers.iter().map(|number| Rank::new(*number)).collect();
        text.push_str(&format!("{comma}{stem}{ranges}"));
    }
    text
}

/// The job of rlaunch that a holder belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobState {
    /// None, as far as can be seen.
    None,
    /// The same job.
    Own,
    /// Another job that lives, or of which that is not known.
    Living,
    /// A job of which the agents have exited.
    Dead,
}

/// Facts about a process that holds devices, as far as the decision needs them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HolderFacts {
    /// Its job.
    pub job: JobState,
    /// The process has number 1.
    pub is_init: bool,
    /// The process is rlaunch itself, or an ancestor of rlaunch.
    pub is_ancestor: bool,
    /// The process and rlaunch run as the same user.
    pub is_same_user: bool,
    /// The process and rlaunch are in the same PID namespace.
    pub is_same_namespace: bool,
    /// The process belongs to another service or container than rlaunch.
    pub is_in_unit: bool,
    /// The process holds some VFIO device, and the kernel does not show which.
    pub is_unsure: bool,
    /// Another user may have opened the device, and passed the descriptor to the process.
    pub is_open_to_others: bool,
    /// /proc shows another PID namespace than that of rlaunch: its numbers are not those of rlaunch's own calls.
    pub is_foreign: bool,
}

/// Why a holder is not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// The holder is process 1.
    Init,
    /// rlaunch was started by it.
    Ancestor,
    /// The holder belongs to a job of rlaunch that lives.
    LivingJob,
    /// The holder belongs to another user.
    OtherUser,
    /// The holder belongs to a service or a container.
    Unit,
    /// The policy does not go so far.
    Policy,
    /// The holder is being ended, and its end is awaited.
    Ending,
    /// The holder was killed, and the kernel has not ended it.
    Killed,
    /// The holder would be ended, if this were no trial.
    Trial,
    /// Another job of rlaunch has claimed the device.
    Claimed,
    /// The kernel does not show which VFIO device the process holds: it may be a virtual machine with a device of its own.
    Unsure,
    /// /proc shows another PID namespace than that of rlaunch.
    Foreign,
    /// The holder is a service or container of root: another process may have passed the device to it.
    Service,
    /// The holder is another process of root that another user may have passed the device to.
    Received,
}

/// The treatment of a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Treatment {
    /// The process does not count as a holder.
    Ignore,
    /// The holder is kept, and nothing is started.
    Keep(Kept),
    /// The holder is ended.
    End,
}

/// Decides about a holder. `root`: this process may signal all others.
#[must_use]
pub const fn treat(policy: CleanPolicy, root: bool, holder: HolderFacts) -> Treatment {
    let HolderFacts { job, is_init, is_ancestor, is_same_user, is_same_namespace, is_in_unit, .. } = holder;
    if matches!(job, JobState::Own) {
        return Treatment::Ignore;
    }
    // Its numbers say nothing about processes here.
    if holder.is_foreign {
        return Treatment::Keep(Kept::Foreign);
    }
    if is_init {
        return Treatment::Keep(Kept::Init);
    }
    if is_ancestor {
        return Treatment::Keep(Kept::Ancestor);
    }
    if matches!(job, JobState::Living) {
        return Treatment::Keep(Kept::LivingJob);
    }
    if holder.is_unsure {
        return Treatment::Keep(Kept::Unsure);
    }
    let is_stale = matches!(job, JobState::Dead);
    // The way out that the user gets is `--clean-devices own`. If that would keep the holder too, its reason is reported. A process of root
    // can hold a device that it has never opened: any user can send it a descriptor.
    let own = match () {
        () if !is_same_user => Some(Kept::OtherUser),
        () if is_stale => None,
        () if root && is_in_unit => Some(Kept::Service),
        () if is_in_unit || !is_same_namespace => Some(Kept::Unit),
        () if root && holder.is_open_to_others => Some(Kept::Received),
        () => None,
    };
    match (policy, own) {
        (_, Some(Kept::Service)) => Treatment::Keep(Kept::Service),
        (CleanPolicy::All, _) if root => Treatment::End,
        (_, Some(why)) => Treatment::Keep(why),
        (CleanPolicy::Own | CleanPolicy::All, None) => Treatment::End,
        (CleanPolicy::Stale, None) if is_stale => Treatment::End,
        (CleanPolicy::Off | CleanPolicy::Stale, None) => Treatment::Keep(Kept::Policy),
    }
}

/// The service or container in the contents of /proc/PID/cgroup; empty: none.
///
/// Services end in `.service`. A user's own manager (`user@1000.service`) is none. The name of a container ends in 64 hexadecimal digits.
#[must_use]
pub fn unit_of(cgroup: &[u8]) -> OsBytes {
    let parts = cgroup.split(|b| *b == b'\n').flat_map(|line| {
        let path = line.splitn(3, |b| *b == b':').nth(2).unwrap_or_default();
        path.split(|b| *b == b'/')
    });
    let is_service = |part: &[u8]| part.ends_with(b".service") && !part.starts_with(b"user@");
    let mut found = parts.filter(|part| is_service(part) || is_container(part));
    found.next().map(shortened).unwrap_or_default()
}

fn is_container(part: &[u8]) -> bool {
    let part = part.strip_suffix(b".scope").unwrap_or(part);
    let id = part.len().checked_sub(64).and_then(|at| part.get(at..));
    id.is_some_and(|id| id.iter().all(u8::is_ascii_hexdigit))
}

/// Container tools show the first 12 digits of a name.
fn shortened(part: &[u8]) -> OsBytes {
    if !is_container(part) {
        return OsBytes::from(part);
    }
    let part = part.strip_suffix(b".scope").unwrap_or(part);
    let cut = part.len().saturating_sub(52);
    OsBytes::from(part.get(..cut).unwrap_or(part))
}

/// A process of this job that has been reaped: its devices have to be free before another process of its rank is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reaped {
    /// The session that it has led.
    pub session: u32,
    /// Its rank.
    pub rank: u32,
}

impl Reaped {
    /// Whether a process that lives is one of its descendants: it is in its session, or has its rank in its environment. `rank`: that rank,
    /// where the process belongs to this job.
    #[must_use]
    pub fn has_left(&self, session: u32, rank: Option<u32>) -> bool {
        self.session == session || rank == Some(self.rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: HolderFacts = HolderFacts {
        job: JobState::None,
        is_init: false,
        is_ancestor: false,
        is_same_user: true,
        is_same_namespace: true,
        is_in_unit: false,
        is_unsure: false,
        is_open_to_others: false,
        is_foreign: false,
    };

    /// Off, stale, own, all; then all of root.
    fn row(holder: HolderFacts) -> [Treatment; 5] {
        let [off, stale, own, all] = [CleanPolicy::Off, CleanPolicy::Stale, CleanPolicy::Own, CleanPolicy::All]
            .map(|policy| treat(policy, false, holder));
        [off, stale, own, all, treat(CleanPolicy::All, true, holder)]
    }

    #[test]
    fn each_policy_treats_each_holder_by_the_table() {
        use Treatment::{End, Ignore, Keep};
        let keep = |kept| Keep(kept);
        let dead = HolderFacts { job: JobState::Dead, ..PLAIN };
        let policy = keep(Kept::Policy);
        let [unit, other] = [Kept::Unit, Kept::OtherUser].map(keep);
        for (name, holder, expected) in [
            ("plain", PLAIN, [policy, policy, End, End, End]),
            ("dead job", dead, [policy, End, End, End, End]),
            ("dead job in a container", HolderFacts { is_same_namespace: false, ..dead }, [policy, End, End, End, End]),
            // `own` would not end these: the user gets another way out.
            ("service", HolderFacts { is_in_unit: true, ..PLAIN }, [unit, unit, unit, unit, keep(Kept::Service)]),
            ("dead job in a service", HolderFacts { is_in_unit: true, ..dead }, [policy, End, End, End, End]),
            ("container", HolderFacts { is_same_namespace: false, ..PLAIN }, [unit, unit, unit, unit, End]),
            ("other user", HolderFacts { is_same_user: false, ..PLAIN }, [other, other, other, other, End]),
            ("other's dead job", HolderFacts { is_same_user: false, ..dead }, [other, other, other, other, End]),
            ("some VFIO device", HolderFacts { is_unsure: true, ..dead }, [keep(Kept::Unsure); 5]),
            ("foreign /proc", HolderFacts { is_foreign: true, is_init: true, ..dead }, [keep(Kept::Foreign); 5]),
            ("living job", HolderFacts { job: JobState::Living, ..PLAIN }, [keep(Kept::LivingJob); 5]),
            ("ancestor", HolderFacts { is_ancestor: true, ..dead }, [keep(Kept::Ancestor); 5]),
            ("process 1", HolderFacts { is_init: true, ..dead }, [keep(Kept::Init); 5]),
            ("this job", HolderFacts { job: JobState::Own, ..PLAIN }, [Ignore; 5]),
        ] {
            assert_eq!(row(holder), expected, "{name}");
        }
    }

    #[test]
    fn holder_of_root_that_may_have_received_the_device_is_ended_by_policy_all_alone() {
        let open = HolderFacts { is_open_to_others: true, ..PLAIN };
        let of_root = |policy, holder| treat(policy, true, holder);
        for policy in [CleanPolicy::Off, CleanPolicy::Stale, CleanPolicy::Own] {
            assert_eq!(of_root(policy, open), Treatment::Keep(Kept::Received), "{policy:?}");
        }
        assert_eq!(of_root(CleanPolicy::All, open), Treatment::End);
        assert_eq!(of_root(CleanPolicy::Own, PLAIN), Treatment::End, "root alone can open the device");
        assert_eq!(of_root(CleanPolicy::Stale, HolderFacts { job: JobState::Dead, ..open }), Treatment::End);
        assert_eq!(treat(CleanPolicy::Own, false, open), Treatment::End, "a process of an ordinary user");
    }

    #[test]
    fn cgroup_names_the_service_or_container() {
        let id = "0123456789abcdef".repeat(4);
        for (text, unit) in [
            ("0::/user.slice/user-1000.slice/session-3.scope\n", ""),
            ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope\n", ""),
            ("0::/system.slice/health.service\n", "health.service"),
            ("12:pids:/\n0::/\n", ""),
            (&alloc::format!("0::/system.slice/docker-{id}.scope\n"), "docker-0123456789ab"),
            (&alloc::format!("3:cpu:/kubepods/burstable/{id}\n"), "0123456789ab"),
            ("0::/init.scope", ""),
        ] {
            assert_eq!(unit_of(text.as_bytes()), OsBytes::from(unit), "{text}");
        }
    }

    #[test]
    fn descendant_of_reaped_rank_is_known_by_session_or_rank() {
        let reaped = Reaped { session: 40, rank: 3 };
        assert!(reaped.has_left(40, None) && reaped.has_left(41, Some(3)));
        assert!(!reaped.has_left(41, None) && !reaped.has_left(41, Some(2)));
    }
}
