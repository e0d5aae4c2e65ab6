//! Devices that are in use, as text: who holds them, why the holder is not ended, and the way out.

use super::host_messages::{Said, list};
use super::log_view::Line;
use super::report::host;
use super::{Tone, phrases};
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::shell::quoted;
use rlaunch_base::time::Span;
use rlaunch_core::report::{Became, Report};
use rlaunch_protocol::guard::DeviceNews;
use rlaunch_protocol::guard::devices::{DeviceHolder, Kept, LockFound, OddFile};
use rlaunch_protocol::wire::to_root::NodeRefusal;

/// Whether both refusals are about devices: they share a table.
pub(super) const fn are_both(first: &NodeRefusal, second: &NodeRefusal) -> bool {
    matches!((first, second), (NodeRefusal::Devices { .. }, NodeRefusal::Devices { .. }))
}

/// The table of the holders on all hosts, and the way out. `cleans`: for `rlaunch clean`, which starts nothing.
pub(super) fn table(report: &Report, hosts: &str, why: &NodeRefusal, cleans: bool) -> Said {
    let own = |(node, why): &(NodeId, NodeRefusal)| are_both(why, why) && !report.left_out.contains(node);
    let mut refused: Vec<(String, &NodeRefusal)> =
        report.refused.iter().filter(|entry| own(entry)).map(|(node, why)| (host(report, *node), why)).collect();
    if refused.is_empty() {
        refused.push((hosts.to_owned(), why));
    }
    let mut text = match report.asked() {
        0 | 1 => format!("the TPU of {hosts} is in use"),
        asked => format!("the TPU of {} of {} is in use", refused.len(), phrases::count(asked as u64, "host")),
    };
    let started = report.others().iter().any(|group| group.became != Became::NeverStarted);
    text.push_str(match (cleans, started) {
        (true, _) => "",
        (false, true) => "; no other rank was started",
        (false, false) => "; nothing was started",
    });
    let width = refused.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(6);
    let is_mixed = is_mixed(&refused);
    for (name, why) in &refused {
        for row in rows(why, is_mixed) {
            text.push_str(&format!("\n  {name:<width$}  {row}"));
        }
    }
    let nodes: Vec<NodeId> = report.refused.iter().filter(|entry| own(entry)).map(|(node, _)| *node).collect();
    let named = if nodes.is_empty() { hosts.to_owned() } else { list(report, &nodes) };
    (text, Some(way_out(&refused, &at(report, &named), cleans).into()))
}

/// The first holder of a host in a line, and the way out: for hosts among others that a job does not get.
pub(super) fn brief(report: &Report, hosts: &str, why: &NodeRefusal) -> Said {
    let NodeRefusal::Devices { holders, more, .. } = why else { return (String::new(), None) };
    let others = (holders.len() as u64).saturating_sub(1).saturating_add((*more).into());
    let others = if others == 0 { String::new() } else { format!(", and {}", phrases::count(others, "other process")) };
    let by = match holders.first() {
        Some(DeviceHolder { pid, user, command, .. }) => format!("process {pid} of {user}: {command}{others}"),
        None => "by a process that you may not see".to_owned(),
    };
    let hint = way_out(&[(hosts.to_owned(), why)], &at(report, hosts), false);
    (format!("the TPU of {hosts} is in use ({by})"), Some(hint.into()))
}

/// The option for these hosts; empty where the job has only the host of the launcher.
fn at(report: &Report, hosts: &str) -> String {
    let is_here = report.start.as_ref().is_none_or(|start| match start.hosts.as_slice() {
        [] => true,
        [sole] => *sole == start.host,
        _ => false,
    });
    if is_here { String::new() } else { format!(" -H {hosts}") }
}

/// Whether some holder has to be kept: then none is ended on any host. A hidden holder belongs to another user.
fn is_mixed(refused: &[(String, &NodeRefusal)]) -> bool {
    is_hidden(refused) || holders(refused).any(|holder| holder.kept != Kept::Trial)
}

/// Whether a holder cannot be seen by this user.
fn is_hidden(refused: &[(String, &NodeRefusal)]) -> bool {
    refused.iter().any(|(_, why)| matches!(why, NodeRefusal::Devices { hidden, .. } if !hidden.is_empty()))
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
        Kept::Received => "any user can have passed the TPU to it".to_owned(),
        Kept::Unit if unit.is_empty() => "in another PID namespace".to_owned(),
        Kept::Unit | Kept::Service => format!("in {unit}"),
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

/// The way out, by the holder that asks for most: if one has to be kept, none is ended.
fn way_out(refused: &[(String, &NodeRefusal)], at: &str, cleans: bool) -> String {
    let find = |kept: Kept| holders(refused).find(|holder| holder.kept == kept);
    let has = |kept: Kept| find(kept).is_some();
    if has(Kept::Trial) && !is_mixed(refused) {
        return "the same without --dry-run".to_owned();
    }
    let way = if has(Kept::Claimed) {
        "wait until the other job of rlaunch has ended".to_owned()
    } else if has(Kept::Foreign) {
        "mount the /proc of this PID namespace (unshare --mount-proc)".to_owned()
    } else if has(Kept::LivingJob) {
        "end that job of rlaunch, or wait for its end".to_owned()
    } else if let Some(DeviceHolder { pid, .. }) = find(Kept::Ancestor) {
        format!("close the TPU in process {pid} (in a notebook, restart its kernel)")
    } else if let Some(DeviceHolder { pid, .. }) = find(Kept::Unsure) {
        format!("kill {pid}, if that process uses the TPU")
    } else if let Some(DeviceHolder { unit, .. }) = find(Kept::Service) {
        format!("stop {unit}, if it uses the TPU")
    } else if has(Kept::Killed) {
        return "the same again in a minute; if the process stays, restart the host".to_owned();
    } else if has(Kept::Init) {
        "restart the container of process 1".to_owned()
    } else if has(Kept::Policy)
        && !is_hidden(refused)
        && !has(Kept::OtherUser)
        && !has(Kept::Unit)
        && !has(Kept::Received)
    {
        format!("rlaunch clean{at} --clean-devices own, to end it")
    } else {
        // Holders of other users, containers, root's holders that may have received the device, and holders that this user may not see.
        format!("as root: rlaunch clean{at} --clean-devices all, to end it")
    };
    // rlaunch clean does not take that option.
    if cleans { way } else { format!("{way}; or --devices none") }
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

/// The line of a fact, and the least verbose tone in which it is printed. `cleans`: the user has asked for it.
pub(super) fn news(news: &DeviceNews, host: &OsBytes, cleans: bool) -> Line {
    match news {
        DeviceNews::HolderEnded { devices, pid, user, command, killed } => {
            let how = if *killed { "killed" } else { "ended" };
            (Tone::Normal, format!("{how} process {pid} of {user} on {host}, which held {devices}: {command}"))
        }
        DeviceNews::LockFile { path, found: LockFound::Locked { pid }, user, command } if !user.is_empty() => {
            (Tone::Normal, format!("{path} on {host} is locked by process {pid} of {user}: {command}"))
        }
        DeviceNews::LockFile { path, found, .. } => lock_file(path, *found, host, cleans),
        DeviceNews::Held(DeviceHolder { devices, pid, user, command, kept: Kept::Ending, .. }) => {
            let line = format!("waiting for {host} to free {devices} (process {pid} of {user}: {command})");
            (Tone::Normal, line)
        }
        DeviceNews::Held(holder) => {
            let DeviceHolder { devices, pid, user, command, state, wchan, kept, .. } = holder;
            let state = format!("state {}{}", char::from(*state), waits(wchan));
            let held = if *kept == Kept::Unsure {
                format!("process {pid} of {user} on {host} may still hold {devices} ({state}): {command}")
            } else {
                format!("process {pid} of {user} on {host} still holds {devices} ({state}): {command}")
            };
            (Tone::Quiet, held)
        }
    }
}

fn lock_file(path: &OsBytes, found: LockFound, host: &OsBytes, cleans: bool) -> Line {
    // A job prints it with -v only: libtpu leaves the file after each run.
    let removed = if cleans { Tone::Normal } else { Tone::Verbose };
    let skipped = |text: String| if cleans { text } else { format!("{text}: ranks get ALLOW_MULTIPLE_LIBTPU_LOAD=1") };
    let as_root = || format!("\n  try     sudo rm {}", quoted(path));
    match found {
        LockFound::Removed => (removed, format!("removed {path} on {host}: no process had locked it")),
        LockFound::Unlocked => (Tone::Normal, format!("{path} on {host} would be removed: no process has locked it")),
        LockFound::Locked { pid: 0 } => {
            (Tone::Normal, format!("{path} on {host} is locked by a process that is not seen here"))
        }
        LockFound::Locked { pid } => (Tone::Normal, format!("{path} on {host} is locked by process {pid}")),
        LockFound::Foreign { uid } => {
            (Tone::Normal, skipped(format!("{path} on {host} belongs to user {uid}")) + &as_root())
        }
        LockFound::Odd(kind) => {
            // --lock-files may name /dev/zero or /etc.
            let is_regular = kind == OddFile::ManyNames;
            let hint = if is_regular { as_root() } else { String::new() };
            (Tone::Normal, skipped(format!("{path} on {host} is {kind}, not a lock file")) + &hint)
        }
        LockFound::Unknown { errno } => {
            (Tone::Normal, skipped(format!("cannot remove {path} on {host} ({})", phrases::errno(errno))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_base::capped::Capped;

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
    fn way_out_fits_the_reasons_to_keep_holders() {
        for (kept, way) in [
            (&[Kept::Trial, Kept::Trial][..], "the same without --dry-run"),
            (&[Kept::Policy, Kept::OtherUser], "as root: rlaunch clean -H n --clean-devices all"),
            (&[Kept::Policy, Kept::LivingJob], "end that job of rlaunch"),
            (&[Kept::Trial, Kept::OtherUser], "as root: rlaunch clean -H n --clean-devices all"),
            (&[Kept::Trial, Kept::Policy], "rlaunch clean -H n --clean-devices own"),
            (&[Kept::LivingJob], "end that job of rlaunch"),
            (&[Kept::Ancestor], "close the TPU in process 7"),
            (&[Kept::Unsure], "kill 7, if that process uses the TPU"),
            (&[Kept::Service, Kept::OtherUser], "stop , if it uses the TPU"),
            (&[Kept::Policy, Kept::Received], "as root: rlaunch clean -H n --clean-devices all"),
            (&[Kept::Killed], "the same again in a minute"),
            (&[Kept::Init], "restart the container"),
            (&[], "as root: rlaunch clean -H n --clean-devices all"),
        ] {
            let why = held(kept);
            let refused = [("n".to_owned(), &why)];
            let said = way_out(&refused, " -H n", false);
            assert!(said.starts_with(way), "{kept:?}: {said}");
            assert!(!way_out(&refused, "", true).contains("--devices none"), "clean does not take it");
        }
    }

    /// The real run would end none of them.
    #[test]
    fn hidden_holder_of_one_host_keeps_the_holders_of_all() {
        for (kept, row) in [(Kept::Trial, "would be ended, if no other holder were kept"), (Kept::Policy, "for 1m 5s")]
        {
            let (seen, hidden) = (held(&[kept]), held(&[]));
            let refused = [("n1".to_owned(), &seen), ("n2".to_owned(), &hidden)];
            assert!(rows(&seen, is_mixed(&refused)).remove(0).contains(row));
            let said = way_out(&refused, " -H n[1-2]", false);
            assert_eq!(said, "as root: rlaunch clean -H n[1-2] --clean-devices all, to end it; or --devices none");
        }
    }

    #[test]
    fn odd_file_in_place_of_lock_file_is_named_with_the_command_for_root_if_regular() {
        let said = |found, cleans| lock_file(&"/tmp/a b".into(), found, &"n1".into(), cleans).1;
        let ranks = ": ranks get ALLOW_MULTIPLE_LIBTPU_LOAD=1";
        for (kind, words, hint) in [
            (OddFile::Directory, "a directory", ""),
            (OddFile::Link, "a symbolic link", ""),
            (OddFile::Fifo, "a FIFO", ""),
            (OddFile::ManyNames, "a file with several names (hard links)", "\n  try     sudo rm '/tmp/a b'"),
            (OddFile::Other, "no regular file", ""),
        ] {
            assert_eq!(
                said(LockFound::Odd(kind), false),
                format!("/tmp/a b on n1 is {words}, not a lock file{ranks}{hint}")
            );
            assert_eq!(
                said(LockFound::Odd(kind), true),
                format!("/tmp/a b on n1 is {words}, not a lock file{hint}"),
                "no rank starts"
            );
        }
        assert!(!said(LockFound::Foreign { uid: 9 }, true).contains("ranks"));
    }

    #[test]
    fn trial_shows_whether_the_real_run_would_end_the_holder() {
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
