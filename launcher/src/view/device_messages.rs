//! Devices that are in use, as text: who holds them, why the holder is not ended, and the way out.

use super::host_messages::{Said, list};
use super::log_view::Line;
use super::report::host;
use super::{Tone, phrases};
use rlaunch_core::guard::devices::{DeviceHolder, Kept, LockFound};
use rlaunch_core::id::NodeId;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::report::{Became, Report};
use rlaunch_core::time::Span;
use rlaunch_core::wire::node_news::NodeNews;
use rlaunch_core::wire::to_root::NodeRefusal;

/// Whether both refusals are about devices: they share a table.
pub(super) const fn are_both(one: &NodeRefusal, other: &NodeRefusal) -> bool {
    matches!((one, other), (NodeRefusal::Devices { .. }, NodeRefusal::Devices { .. }))
}

/// The table of the holders on all hosts, and the way out.
pub(super) fn refusal(report: &Report, hosts: &str, why: &NodeRefusal) -> Said {
    let own = |(node, why): &(NodeId, NodeRefusal)| are_both(why, why) && !report.left_out.contains(node);
    let mut refused: Vec<(String, &NodeRefusal)> =
        report.refused.iter().filter(|one| own(one)).map(|(node, why)| (host(report, *node), why)).collect();
    if refused.is_empty() {
        refused.push((hosts.to_owned(), why));
    }
    let where_ = match report.asked() {
        0 | 1 => format!("the TPU of {hosts} is in use"),
        asked => format!("the TPU of {} of {} is in use", refused.len(), phrases::count(asked as u64, "host")),
    };
    let started = report.others().iter().any(|group| group.became != Became::NeverStarted);
    let effect = if started { "no other rank was started" } else { "nothing was started" };
    let mut text = format!("{where_}; {effect}");
    let width = refused.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(6);
    // Nothing is ended on any host if one holder has to be kept.
    let is_mixed = holders(&refused).any(|holder| holder.kept != Kept::Trial);
    for (name, why) in &refused {
        for row in rows(why, is_mixed) {
            text.push_str(&format!("\n  {name:<width$}  {row}"));
        }
    }
    let nodes: Vec<NodeId> = report.refused.iter().filter(|one| own(one)).map(|(node, _)| *node).collect();
    let is_local = report.start.as_ref().is_none_or(|start| start.hosts.len() < 2);
    let at = if is_local || nodes.is_empty() { String::new() } else { format!(" -H {}", list(report, &nodes)) };
    (text, Some(way_out(&refused, &at).into()))
}

/// The holders on all hosts.
fn holders<'a>(refused: &'a [(String, &'a NodeRefusal)]) -> impl Iterator<Item = &'a DeviceHolder> {
    refused.iter().flat_map(|(_, why)| {
        let holders: &[DeviceHolder] = if let NodeRefusal::Devices { holders, .. } = why { holders } else { &[] };
        holders.iter()
    })
}

/// A line for each holder of a host. `is_mixed`: some holder has to be kept.
fn rows(why: &NodeRefusal, is_mixed: bool) -> Vec<String> {
    let NodeRefusal::Devices { holders, more, hidden } = why else { return Vec::new() };
    let mut rows: Vec<String> = holders.iter().map(|holder| row(holder, is_mixed)).collect();
    if *more > 0 {
        rows.push(format!("and {}", phrases::count(u64::from(*more), "other process")));
    }
    if !hidden.is_empty() {
        rows.push(format!("{hidden}  held by a process that you may not see; ask root: lsof {hidden}"));
    }
    rows
}

fn row(holder: &DeviceHolder, is_mixed: bool) -> String {
    let DeviceHolder { devices, pid, user, command, age, .. } = holder;
    let note = note(holder, is_mixed);
    let note = if note.is_empty() { note } else { format!("  ({note})") };
    format!("{devices}  pid {pid}  {user}  {command}  for {}{note}", long(*age))
}

/// Why a holder is not ended, where the way out does not say that.
fn note(holder: &DeviceHolder, is_mixed: bool) -> String {
    let DeviceHolder { unit, job, kept, state, wchan, .. } = holder;
    match kept {
        Kept::Init => "process 1".to_owned(),
        Kept::Ancestor => "rlaunch was started by it".to_owned(),
        Kept::LivingJob if job.is_empty() => "of a job of rlaunch".to_owned(),
        Kept::LivingJob => format!("job {job} of rlaunch"),
        Kept::Unit if unit.is_empty() => "in another PID namespace".to_owned(),
        Kept::Unit => format!("in {unit}"),
        Kept::OtherUser | Kept::Policy if unit.is_empty() => String::new(),
        Kept::OtherUser | Kept::Policy => format!("in {unit}"),
        Kept::Ending => "is being ended".to_owned(),
        Kept::Killed => format!("killed, and still there: state {}{}", char::from(*state), waits(wchan)),
        Kept::Trial if is_mixed => "would be ended, if no other holder were kept".to_owned(),
        Kept::Trial => "would be ended".to_owned(),
        Kept::Claimed => "another job of rlaunch uses the TPU".to_owned(),
        Kept::Unsure => "may hold it: the kernel does not tell which VFIO device".to_owned(),
        Kept::Foreign => "kept: /proc shows another PID namespace".to_owned(),
    }
}

fn waits(wchan: &OsBytes) -> String {
    if wchan.is_empty() { String::new() } else { format!(" in {wchan}") }
}

/// The way out, by the holder that asks for least.
fn way_out(refused: &[(String, &NodeRefusal)], at: &str) -> String {
    let find = |kept: Kept| holders(refused).find(|holder| holder.kept == kept);
    let has = |kept: Kept| find(kept).is_some();
    if has(Kept::Trial) && holders(refused).all(|holder| holder.kept == Kept::Trial) {
        return "the same without --dry-run".to_owned();
    }
    if has(Kept::Claimed) {
        return "wait until the other job of rlaunch has ended; or --devices none".to_owned();
    }
    if has(Kept::Foreign) {
        return "mount the /proc of this PID namespace (unshare --mount-proc); or --devices none".to_owned();
    }
    if has(Kept::Policy) {
        return format!("rlaunch clean{at} --clean-devices own, to end it; or --devices none");
    }
    if has(Kept::LivingJob) {
        return "end that job of rlaunch, or wait for its end; or --devices none".to_owned();
    }
    if let Some(DeviceHolder { pid, .. }) = find(Kept::Ancestor) {
        return format!("close the TPU in process {pid} (in a notebook, restart its kernel); or --devices none");
    }
    if let Some(DeviceHolder { pid, .. }) = find(Kept::Unsure) {
        return format!("kill {pid}, if that process uses the TPU; or --devices none");
    }
    if has(Kept::Killed) {
        return "the same again in a minute; if the process stays, restart the host".to_owned();
    }
    if has(Kept::Init) {
        return "restart the container of process 1; or --devices none".to_owned();
    }
    // Holders of other users, services and containers, and holders that this user may not see.
    format!("as root: rlaunch clean{at} --clean-devices all, to end it; or --devices none")
}

/// A length of time with its two largest units: `2h 10m`.
fn long(span: Span) -> String {
    let seconds = span.nanos() / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// The line of a fact about devices. `cleans`: the user has asked for it.
pub(super) fn news(news: &NodeNews, host: &OsBytes, cleans: bool) -> Option<Line> {
    match news {
        NodeNews::HolderEnded { devices, pid, user, command, killed } => {
            let how = if *killed { "killed" } else { "ended" };
            Some((Tone::Normal, format!("{how} process {pid} of {user} on {host}, which held {devices}: {command}")))
        }
        NodeNews::LockFile { path, found } => Some(lock_file(path, *found, host, cleans)),
        NodeNews::DeviceHeld(DeviceHolder { devices, pid, user, command, kept: Kept::Ending, .. }) => {
            let line = format!("waiting for {host} to free {devices} (process {pid} of {user}: {command})");
            Some((Tone::Normal, line))
        }
        NodeNews::DeviceHeld(holder) => {
            let DeviceHolder { devices, pid, user, command, state, wchan, kept, .. } = holder;
            let state = format!("state {}{}", char::from(*state), waits(wchan));
            let held = if *kept == Kept::Unsure {
                format!("process {pid} of {user} on {host} may still hold {devices} ({state}): {command}")
            } else {
                format!("process {pid} of {user} on {host} still holds {devices} ({state}): {command}")
            };
            Some((Tone::Quiet, held))
        }
        NodeNews::StoreUnused { .. }
        | NodeNews::StoreForeign { .. }
        | NodeNews::StoreRefused { .. }
        | NodeNews::StoreLimit { .. }
        | NodeNews::WarningNote(_)
        | NodeNews::FileFailed { .. }
        | NodeNews::RankBound { .. }
        | NodeNews::NotBound(_)
        | NodeNews::OneCpu { .. }
        | NodeNews::MpiUsed { .. }
        | NodeNews::MpiWaits { .. } => None,
    }
}

fn lock_file(path: &OsBytes, found: LockFound, host: &OsBytes, cleans: bool) -> Line {
    // A job prints it with -v only: libtpu leaves the file after each run.
    let removed = if cleans { Tone::Normal } else { Tone::Verbose };
    let skipped = "ranks get ALLOW_MULTIPLE_LIBTPU_LOAD=1";
    match found {
        LockFound::Removed => (removed, format!("removed {path} on {host}: no process had locked it")),
        LockFound::Unlocked => (Tone::Normal, format!("{path} on {host} would be removed: no process has locked it")),
        LockFound::Locked(0) => {
            (Tone::Normal, format!("{path} on {host} is locked by a process that is not seen here"))
        }
        LockFound::Locked(pid) => (Tone::Normal, format!("{path} on {host} is locked by process {pid}")),
        LockFound::Foreign(uid) => {
            (Tone::Normal, format!("{path} on {host} belongs to user {uid}: {skipped}\n  try     sudo rm {path}"))
        }
        LockFound::Odd => (Tone::Normal, format!("{path} on {host} is a link or no file: {skipped}")),
        LockFound::Unknown(errno) => {
            (Tone::Normal, format!("cannot remove {path} on {host}: {}; {skipped}", phrases::errno(errno)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_core::wire::capped::Capped;

    fn held(kept: &[Kept]) -> NodeRefusal {
        let holder = |kept: &Kept| DeviceHolder {
            devices: "/dev/vfio/0".into(),
            pid: 7,
            user: "alice".into(),
            command: "python3 a.py".into(),
            age: Span::from_secs(65),
            unit: OsBytes::default(),
            job: OsBytes::default(),
            kept: *kept,
            state: b'S',
            wchan: OsBytes::default(),
        };
        let hidden = if kept.is_empty() { OsBytes::from("/dev/vfio/0") } else { OsBytes::default() };
        NodeRefusal::Devices {
            holders: Capped::chunks(kept.iter().map(holder)).pop().unwrap_or_default(),
            more: 0,
            hidden,
        }
    }

    #[test]
    fn way_out_is_one_that_helps() {
        for (kept, way) in [
            (&[Kept::Trial, Kept::Trial][..], "the same without --dry-run"),
            (&[Kept::Trial, Kept::OtherUser], "as root: rlaunch clean -H n --clean-devices all"),
            (&[Kept::Trial, Kept::Policy], "rlaunch clean -H n --clean-devices own"),
            (&[Kept::LivingJob], "end that job of rlaunch"),
            (&[Kept::Ancestor], "close the TPU in process 7"),
            (&[Kept::Unsure], "kill 7, if that process uses the TPU"),
            (&[Kept::Killed], "the same again in a minute"),
            (&[Kept::Init], "restart the container"),
            (&[], "as root: rlaunch clean -H n --clean-devices all"),
        ] {
            let why = held(kept);
            let refused = [("n".to_owned(), &why)];
            assert!(way_out(&refused, " -H n").starts_with(way), "{kept:?}: {}", way_out(&refused, " -H n"));
        }
    }

    #[test]
    fn trial_tells_whether_the_real_run_would_end_the_holder() {
        let row = |kept: &[Kept], is_mixed| rows(&held(kept), is_mixed).remove(0);
        let start = "/dev/vfio/0  pid 7  alice  python3 a.py  for 1m 5s  (would be ended";
        assert_eq!(row(&[Kept::Trial], false), format!("{start})"));
        assert_eq!(row(&[Kept::Trial, Kept::OtherUser], true), format!("{start}, if no other holder were kept)"));
    }

    #[test]
    fn age_has_two_units() {
        let said = [5, 65, 7_800, 180_000].map(|seconds| long(Span::from_secs(seconds)));
        assert_eq!(said, ["5s", "1m 5s", "2h 10m", "2d 2h"]);
    }
}
