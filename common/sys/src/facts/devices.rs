//! Processes that still hold device files of a rank that has ended.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Whether this host has devices whose memory outlives the process that has allocated it: NVIDIA's.
#[must_use]
pub fn any() -> bool {
    Path::new("/dev/nvidiactl").exists()
}

/// The sessions of which a process holds one of NVIDIA's device files. A process that cannot be looked into holds none: it is not ours.
#[must_use]
pub fn held(sessions: &BTreeSet<u32>) -> BTreeSet<u32> {
    held_below(Path::new("/proc"), sessions)
}

fn held_below(proc: &Path, sessions: &BTreeSet<u32>) -> BTreeSet<u32> {
    let mut held = BTreeSet::new();
    let Ok(all) = fs::read_dir(proc) else { return held };
    for entry in all.flatten().filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit)) {
        let Some(session) = fs::read(entry.path().join("stat")).ok().and_then(|stat| session_of(&stat)) else {
            continue;
        };
        if sessions.contains(&session) && !held.contains(&session) && holds(&entry.path().join("fd")) {
            held.insert(session);
        }
        if held.len() == sessions.len() {
            break;
        }
    }
    held
}

fn holds(descriptors: &Path) -> bool {
    let Ok(all) = fs::read_dir(descriptors) else { return false };
    let is_device = |path: &Path| path.as_os_str().as_encoded_bytes().starts_with(b"/dev/nvidia");
    all.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|path| is_device(&path)))
}

/// Field 6 of proc_pid_stat(5), after a name that may hold any character.
fn session_of(stat: &[u8]) -> Option<u32> {
    let end = stat.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_behind_the_name() {
        assert_eq!(session_of(b"12 (a) b (c) S 1 12 34 0 -1"), Some(34));
        assert_eq!(session_of(b"12 (a"), None);
        assert_eq!(session_of(b"12 (a) S 1"), None);
        let own = session_of(&fs::read("/proc/self/stat").unwrap()).unwrap();
        assert!(held(&BTreeSet::from([own])).is_empty(), "no process of a test holds a GPU");
    }

    #[test]
    fn sessions_with_a_device_are_found_among_thousands_of_processes() {
        let proc = std::env::temp_dir().join(format!("rlaunch-proc-{}", std::process::id()));
        for pid in 1..=3_000 {
            let process = proc.join(pid.to_string());
            fs::create_dir_all(process.join("fd")).unwrap();
            fs::write(process.join("stat"), format!("{pid} (a) S 1 1 {} 0 -1", pid % 100)).unwrap();
            if pid == 1_042 || pid == 2_043 {
                std::os::unix::fs::symlink("/dev/nvidia0", process.join("fd/3")).unwrap();
            }
        }
        let held = held_below(&proc, &BTreeSet::from([41, 42, 43, 5_000]));
        fs::remove_dir_all(&proc).unwrap();
        assert_eq!(held, BTreeSet::from([42, 43]));
        assert!(held_below(&proc, &BTreeSet::from([42])).is_empty(), "there is no /proc");
    }

    #[test]
    fn a_descriptor_that_leads_to_a_device_is_one() {
        let dir = std::env::temp_dir().join(format!("rlaunch-devices-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        std::os::unix::fs::symlink("/dev/null", dir.join("0")).unwrap();
        assert!(!holds(&dir));
        std::os::unix::fs::symlink("/dev/nvidia3", dir.join("7")).unwrap();
        assert!(holds(&dir));
        fs::remove_dir_all(&dir).unwrap();
        assert!(!holds(&dir));
    }
}
