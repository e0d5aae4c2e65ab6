//! The place where the kernel wrote a core file, if it did (core(5)).

use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file's time may lie before what the clock said at that moment: file systems keep it to the tick or, some, to the
/// second.
const SLACK: u64 = 1_000_000_000;

/// A process that a signal ended with a core dump, unreaped or not.
#[derive(Clone, Copy, Debug)]
pub struct Crash<'a> {
    /// Its process id on the host.
    pub pid: u32,
    /// Its process id inside its PID namespace, where that is another: [`ns_pid`].
    pub inside: Option<u32>,
    /// The signal.
    pub signal: u8,
    /// The directory that it was started in. Where it is now cannot be asked of a zombie, so a core file named relative
    /// to a directory that it changed to itself is not found.
    pub wdir: &'a [u8],
    /// Its program, a path or only the file name.
    pub exe: &'a [u8],
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// When it was started, in nanoseconds since 1970.
    pub started: u64,
    /// When it was found to have ended, in nanoseconds since 1970.
    pub ended: u64,
}

/// The path of its core file. `None` where cores go to a program or a socket, or no file of that name, of its user or
/// root, was written while it ran.
#[must_use]
pub fn find(crash: &Crash<'_>) -> Option<Vec<u8>> {
    let pattern = fs::read("/proc/sys/kernel/core_pattern").ok()?;
    let pattern = pattern.strip_suffix(b"\n").unwrap_or(&pattern);
    let uses_pid = fs::read("/proc/sys/kernel/core_uses_pid").is_ok_and(|text| text.trim_ascii() != b"0");
    look(&expand(pattern, uses_pid, crash, &super::host::hostname())?, crash)
}

/// The process id that a process has inside its innermost PID namespace; a zombie still has it.
#[must_use]
pub fn ns_pid(pid: u32) -> Option<u32> {
    innermost(&fs::read(format!("/proc/{pid}/status")).ok()?)
}

/// `NSpid:\t4711\t12`: outermost first.
pub(super) fn innermost(status: &[u8]) -> Option<u32> {
    let list = status.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"NSpid:"))?;
    let last = list.trim_ascii().rsplit(u8::is_ascii_whitespace).next()?;
    std::str::from_utf8(last).ok()?.parse().ok()
}

/// A stretch of a core file's path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    /// These bytes.
    Text(Vec<u8>),
    /// A number that we cannot know: the second of the dump, the thread that crashed.
    Digits,
    /// A name that we cannot know.
    Name,
}

/// The path that `core_pattern` gives for this process; `None` where it names no file.
pub(super) fn expand(pattern: &[u8], uses_pid: bool, crash: &Crash<'_>, host: &[u8]) -> Option<Vec<Piece>> {
    if matches!(pattern.first(), Some(b'|' | b'@')) {
        return None;
    }
    let inside = crash.inside.unwrap_or(crash.pid);
    let names_pid = uses_pid || [b"%p", b"%P"].iter().any(|p| pattern.windows(2).any(|w| w == *p));
    let mut has_p = false;
    let mut out = Vec::new();
    let mut text = Vec::new();
    let mut bytes = pattern.iter();
    while let Some(byte) = bytes.next() {
        if *byte != b'%' {
            text.push(*byte);
            continue;
        }
        let unknown = match bytes.next() {
            // A single % at the end is dropped.
            None => break,
            Some(b'%') => {
                text.push(b'%');
                continue;
            }
            Some(b'p') => {
                has_p = true;
                put(&mut text, inside)
            }
            Some(b'P') => put(&mut text, crash.pid),
            Some(b'u') => put(&mut text, crash.uid),
            Some(b'g') => put(&mut text, crash.gid),
            Some(b's') => put(&mut text, u32::from(crash.signal)),
            Some(b'h') => put_name(&mut text, host),
            // Any thread can crash, the dump's mode, limit, second and CPU are the kernel's.
            Some(b'i' | b'I' | b't' | b'd' | b'c' | b'C') => Some(Piece::Digits),
            // A thread can rename itself: any name will do where the process id distinguishes cores.
            Some(b'e' | b'f') if names_pid => Some(Piece::Name),
            Some(b'e') => put_name(&mut text, comm(crash.exe)),
            Some(b'f') => put_name(&mut text, file_name(crash.exe)),
            // An interpreter's path, or one that a symbolic link led to: not ours to know.
            Some(b'E') => Some(Piece::Name),
            // Anything else is dropped.
            Some(_) => None,
        };
        if let Some(piece) = unknown {
            out.push(Piece::Text(std::mem::take(&mut text)));
            out.push(piece);
        }
    }
    if uses_pid && !has_p {
        text.extend_from_slice(format!(".{inside}").as_bytes());
    }
    out.push(Piece::Text(text));
    out.retain(|piece| *piece != Piece::Text(Vec::new()));
    (!out.is_empty()).then_some(out)
}

fn put(text: &mut Vec<u8>, number: u32) -> Option<Piece> {
    text.extend_from_slice(number.to_string().as_bytes());
    None
}

/// As the kernel does it: a slash in a name would be a directory.
fn put_name(text: &mut Vec<u8>, name: &[u8]) -> Option<Piece> {
    text.extend(name.iter().map(|b| if *b == b'/' { b'!' } else { *b }));
    None
}

fn file_name(exe: &[u8]) -> &[u8] {
    exe.rsplit(|b| *b == b'/').next().unwrap_or(exe)
}

/// The short name that exec gives: 15 bytes of the file name.
fn comm(exe: &[u8]) -> &[u8] {
    let name = file_name(exe);
    name.get(..15).unwrap_or(name)
}

/// The newest file that fits. Unknown parts may be in the file's name, not in that of a directory.
fn look(pieces: &[Piece], crash: &Crash<'_>) -> Option<Vec<u8>> {
    let (dir, name) = split(pieces)?;
    let dir = Path::new(std::ffi::OsStr::from_bytes(crash.wdir)).join(PathBuf::from(std::ffi::OsString::from_vec(dir)));
    let found = if let [Piece::Text(name)] = name.as_slice() {
        let path = dir.join(std::ffi::OsStr::from_bytes(name));
        fs::symlink_metadata(&path).is_ok_and(|meta| fits(&meta, crash)).then_some(path)
    } else {
        let entries = fs::read_dir(&dir).ok()?.filter_map(Result::ok);
        let named = entries.filter(|entry| matches(entry.file_name().as_bytes(), &name));
        // DirEntry::metadata does not follow symbolic links, and neither does the kernel.
        let dated = named.filter_map(|entry| {
            let meta = entry.metadata().ok().filter(|meta| fits(meta, crash))?;
            Some((written(&meta)?, entry.path()))
        });
        dated.max().map(|(_, path)| path)
    };
    Some(found?.into_os_string().into_vec())
}

/// Directory, with the slash at its end, and file name.
pub(super) fn split(pieces: &[Piece]) -> Option<(Vec<u8>, Vec<Piece>)> {
    let has_slash = |piece: &Piece| matches!(piece, Piece::Text(text) if text.contains(&b'/'));
    let Some(last) = pieces.iter().rposition(has_slash) else {
        return Some((Vec::new(), pieces.to_vec()));
    };
    if last > 0 {
        return None;
    }
    let Some((Piece::Text(text), rest)) = pieces.split_first() else { return None };
    let at = text.iter().rposition(|b| *b == b'/')? + 1;
    let (dir, name) = text.split_at_checked(at)?;
    let mut names = vec![Piece::Text(name.to_vec())];
    names.extend_from_slice(rest);
    names.retain(|piece| *piece != Piece::Text(Vec::new()));
    (!names.is_empty()).then(|| (dir.to_vec(), names))
}

/// Whether a file name is made of these pieces. Anybody may give names where cores are kept, so all ways to read one are
/// followed at once: the time is that of the name's length times the pattern's.
pub(super) fn matches(name: &[u8], pieces: &[Piece]) -> bool {
    // Where the rest may begin.
    let mut begins = vec![false; name.len() + 1];
    begins[0] = true;
    for piece in pieces {
        let mut after = vec![false; name.len() + 1];
        let mut inside = false;
        for (at, byte) in name.iter().enumerate() {
            inside = (inside || begins[at])
                && match piece {
                    Piece::Text(text) => {
                        if begins[at] && name[at..].starts_with(text) {
                            after[at + text.len()] = true;
                        }
                        false
                    }
                    Piece::Digits => byte.is_ascii_digit(),
                    Piece::Name => true,
                };
            after[at + 1] |= inside;
        }
        begins = after;
    }
    begins[name.len()]
}

/// Whether this can be what the kernel wrote for this process.
fn fits(meta: &Metadata, crash: &Crash<'_>) -> bool {
    let window = crash.started.saturating_sub(SLACK)..=crash.ended.saturating_add(SLACK);
    meta.is_file()
        && meta.len() > 0
        && (meta.uid() == crash.uid || meta.uid() == 0)
        && written(meta).is_some_and(|at| window.contains(&at))
}

/// When it was last written, in nanoseconds since 1970.
fn written(meta: &Metadata) -> Option<u64> {
    let nanos = u64::try_from(meta.mtime_nsec()).ok()?;
    u64::try_from(meta.mtime()).ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::disallowed_methods, reason = "a process that is to crash, not a rank")]

    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, SystemTime};

    /// A directory that goes away with the test.
    pub(crate) struct Temp(pub(crate) PathBuf);

    impl Temp {
        pub(crate) fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name = format!("rlaunch-facts-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let dir = std::env::temp_dir().join(name);
            fs::create_dir(&dir).unwrap();
            Self(dir)
        }

        pub(crate) fn file(&self, name: &str, text: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, text).unwrap();
            path
        }
    }

    impl Drop for Temp {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn crash(wdir: &Path) -> Crash<'_> {
        let now = crate::clock::wall();
        Crash {
            pid: 4711,
            inside: Some(12),
            signal: 11,
            wdir: wdir.as_os_str().as_bytes(),
            exe: b"/opt/bin/a-rather-long-name",
            uid: nix::unistd::geteuid().as_raw(),
            gid: 100,
            started: now,
            ended: now + 1_000_000_000,
        }
    }

    /// The expanded path, what is not known in angle brackets.
    fn shown(pattern: &str, uses_pid: bool) -> Option<String> {
        let mut crash = crash(Path::new("/w"));
        crash.uid = 1000;
        let pieces = expand(pattern.as_bytes(), uses_pid, &crash, b"no/de")?;
        let shown = pieces.iter().map(|piece| match piece {
            Piece::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Piece::Digits => "<digits>".into(),
            Piece::Name => "<name>".into(),
        });
        Some(shown.collect())
    }

    fn found(pattern: &str, crash: &Crash<'_>) -> Option<PathBuf> {
        let pieces = expand(pattern.as_bytes(), false, crash, b"node")?;
        look(&pieces, crash).map(|path| PathBuf::from(std::ffi::OsString::from_vec(path)))
    }

    #[test]
    fn patterns_are_expanded_as_the_kernel_does() {
        for (pattern, path) in [
            ("core", "core"),
            ("/c/%h/core.%p", "/c/no!de/core.12"),
            ("core.%P.%u.%g.%s", "core.4711.1000.100.11"),
            ("%e.core", "a-rather-long-n.core"),
            ("%f.core", "a-rather-long-name.core"),
            ("%e.%p", "<name>.12"),
            ("core.%t-%i", "core.<digits>-<digits>"),
            ("%E", "<name>"),
            ("100%%%", "100%"),
            ("a%Zb", "ab"),
        ] {
            assert_eq!(shown(pattern, false).as_deref(), Some(path), "{pattern}");
        }
    }

    #[test]
    fn the_pid_is_added_where_asked_for() {
        assert_eq!(shown("core", true).unwrap(), "core.12");
        assert_eq!(shown("core.%p", true).unwrap(), "core.12");
        assert_eq!(shown("core.%P", true).unwrap(), "core.4711.12");
        assert_eq!(shown("", true).unwrap(), ".12");
    }

    #[test]
    fn programs_and_sockets_leave_no_file() {
        for pattern in ["|/usr/lib/systemd/systemd-coredump %P", "@/run/coredump.socket", "@@/run/x", "", "%"] {
            assert_eq!(shown(pattern, false), None, "{pattern}");
        }
    }

    #[test]
    fn a_relative_pattern_is_in_the_working_directory() {
        let dir = Temp::new();
        let path = dir.file("core.12", b"ELF");
        assert_eq!(found("core.%p", &crash(&dir.0)), Some(path));
        assert_eq!(found("core.%P", &crash(&dir.0)), None);
        assert_eq!(found("core.%p", &crash(Path::new("/nowhere"))), None);
    }

    #[test]
    fn an_absolute_pattern_is_where_it_says() {
        let dir = Temp::new();
        let path = dir.file("core.11", b"ELF");
        let pattern = format!("{}/core.%s", dir.0.display());
        assert_eq!(found(&pattern, &crash(Path::new("/nowhere"))), Some(path));
    }

    #[test]
    fn unknown_core_name_part_is_searched() {
        let dir = Temp::new();
        let path = dir.file("renamed.12.1700000000", b"ELF");
        dir.file("renamed.13.1700000000", b"ELF");
        dir.file("renamed.12.x", b"ELF");
        dir.file("12.1", b"ELF");
        assert_eq!(found("%e.%p.%t", &crash(&dir.0)), Some(path));
        assert_eq!(found("%t/core", &crash(&dir.0)), None, "not in the name of a directory");
        assert_eq!(found("core/", &crash(&dir.0)), None);
    }

    #[test]
    fn names_are_matched_whole_and_soon() {
        let pieces = |pattern: &str| expand(pattern.as_bytes(), false, &crash(Path::new("/")), b"h").unwrap();
        for (pattern, name, fits) in [
            ("core.%E.%t", "core.a.1.2", true),
            ("core.%E.%t", "core..2", false),
            ("core.%E.%t", "core.a.2x", false),
            ("%t-%t", "12-", false),
            ("%t%t", "1", false),
            ("%t%t", "12", true),
            ("c%E", "c", false),
            ("%ta", "1a", true),
        ] {
            assert_eq!(matches(name.as_bytes(), &pieces(pattern)), fits, "{pattern} {name}");
        }
        // One way after the other would be tried for years.
        let pattern = format!("{}x", "%t".repeat(60));
        assert!(!matches(&[b'1'; 255], &pieces(&pattern)));
    }

    #[test]
    fn only_a_file_of_that_run_counts() {
        let dir = Temp::new();
        let path = dir.file("core", b"ELF");
        assert_eq!(found("core", &crash(&dir.0)), Some(path.clone()));
        for away in [-10, 10] {
            let mut crash = crash(&dir.0);
            let by = |at: u64| at.checked_add_signed(away * 1_000_000_000).unwrap();
            (crash.started, crash.ended) = (by(crash.started), by(crash.ended));
            assert_eq!(found("core", &crash), None, "{away}");
        }
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        assert_eq!(found("core", &crash(&dir.0)), None, "from an hour ago");
    }

    #[test]
    fn other_files_are_no_core_files() {
        let dir = Temp::new();
        dir.file("empty", b"");
        assert_eq!(found("empty", &crash(&dir.0)), None);
        std::os::unix::fs::symlink(dir.file("target", b"ELF"), dir.0.join("link")).unwrap();
        assert_eq!(found("link", &crash(&dir.0)), None);
        assert_eq!(found("lin%C", &crash(&dir.0)), None);
        if nix::unistd::geteuid().is_root() {
            let path = dir.file("core", b"ELF");
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
            assert_eq!(found("core", &crash(&dir.0)), None);
            let foreign = Crash { uid: 12_345, ..crash(&dir.0) };
            assert_eq!(found("core", &foreign), Some(path), "of the user that the process had");
        }
    }

    #[test]
    fn a_zombie_still_has_its_inner_pid() {
        let text = b"Name:\tx\nNStgid:\t4711\t12\nNSpid:\t4711\t12\nNSpgid:\t4711\t12\n";
        assert_eq!(innermost(text), Some(12));
        assert_eq!(innermost(b"NSpid:\t4711\n"), Some(4711));
        assert_eq!(innermost(b"NSpid:\t\nx"), None);
        assert_eq!(innermost(b""), None);

        let mut child = Command::new("true").spawn().unwrap();
        let stat = format!("/proc/{}/stat", child.id());
        while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(ns_pid(child.id()), Some(child.id()));
        child.wait().unwrap();
        assert_eq!(ns_pid(child.id()), None);
    }

    #[test]
    fn a_real_core_is_found() {
        let dir = Temp::new();
        let started = crate::clock::wall();
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -c unlimited && kill -SEGV $$"]).current_dir(&dir.0);
        let mut child = shell.spawn().unwrap();
        let pid = child.id();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGSEGV));
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        let wdir = dir.0.as_os_str().as_bytes();
        let ended = crate::clock::wall();
        let crash = Crash { pid, inside: None, signal: 11, wdir, exe: b"sh", uid, gid, started, ended };
        let written = fs::read_dir(&dir.0).unwrap().next().map(|entry| entry.unwrap().path());
        match (find(&crash), status.core_dumped()) {
            (Some(path), true) => {
                let path = std::ffi::OsStr::from_bytes(&path);
                assert!(fs::metadata(path).unwrap().len() > 0);
                // It need not be in our directory.
                fs::remove_file(path).unwrap();
            }
            (None, dumped) => {
                assert_eq!(written, None);
                println!("absent: no core file is written here (dumped: {dumped})");
            }
            (Some(path), false) => panic!("{} of a process that left none", String::from_utf8_lossy(&path)),
        }
    }
}
