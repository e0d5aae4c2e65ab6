//! Files that processes have mapped: the libraries that they have loaded.

use std::fs;
use std::path::Path;

/// Most processes that one look goes through.
const MOST: usize = 256;

/// The name of a file that a process, or one below it, has mapped and that is meant. Processes of other users may hide their files.
#[must_use]
pub fn find(leader: i32, is_meant: fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let mut processes = vec![leader];
    let mut at = 0;
    while let Some(pid) = processes.get(at).copied().filter(|_| at < MOST) {
        at += 1;
        let process = Path::new("/proc").join(pid.to_string());
        let maps = fs::read(process.join("maps")).unwrap_or_default();
        let mut names = maps.split(|b| *b == b'\n').filter_map(|line| line.rsplit(|b| *b == b'/').next());
        if let Some(name) = names.find(|name| is_meant(name)) {
            return Some(name.to_vec());
        }
        for thread in fs::read_dir(process.join("task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            processes.extend(children.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a process that is looked at, not a rank")]

    use super::*;
    use std::process::Command;

    #[test]
    fn library_of_a_process_below_is_found() {
        let is_libc = |name: &[u8]| name.starts_with(b"libc.so") || name.starts_with(b"ld-");
        // The shell prints the number of the process below it, and waits for it.
        let line = "sleep 60 >/dev/null & echo $!; exec 1>&-; wait";
        let mut shell = Command::new("sh").args(["-c", line]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let below = std::io::read_to_string(shell.stdout.take().unwrap()).unwrap();
        let leader = i32::try_from(shell.id()).unwrap();
        assert!(find(leader, is_libc).is_some());
        assert_eq!(find(leader, |name| name.starts_with(b"libnowhere")), None);
        assert_eq!(find(i32::MAX, is_libc), None);
        Command::new("kill").args(["-9", below.trim()]).status().unwrap();
        shell.wait().unwrap();
    }
}
