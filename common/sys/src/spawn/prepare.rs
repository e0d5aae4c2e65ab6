//! Everything an exec needs, laid out beforehand: strings in arenas, pointers made only by the spawn thread.

use super::clone::{Failure, Found, Step};
use std::sync::Arc;

/// NUL-terminated strings, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Strings {
    /// Adds a string. A NUL inside cuts it, as the kernel would.
    pub fn push(&mut self, text: &[u8]) {
        self.starts.push(self.bytes.len());
        self.bytes.extend(text.iter().take_while(|b| **b != 0));
        self.bytes.push(0);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Bytes of all strings with their NULs.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// String `n` without its NUL.
    #[must_use]
    pub fn get(&self, n: usize) -> Option<&[u8]> {
        let from = *self.starts.get(n)?;
        let to = self.starts.get(n + 1).copied().unwrap_or(self.bytes.len());
        self.bytes.get(from..to.saturating_sub(1))
    }

    pub(crate) fn pointers(&self, out: &mut Vec<*const libc::c_char>) {
        out.extend(self.starts.iter().map(|at| self.bytes[*at..].as_ptr().cast::<libc::c_char>()));
    }
}

impl<'a> FromIterator<&'a [u8]> for Strings {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(items: I) -> Self {
        let mut strings = Self::default();
        items.into_iter().for_each(|item| strings.push(item));
        strings
    }
}

/// The common values of all ranks of a program.
#[derive(Debug)]
pub struct PreparedApp {
    pub(super) argv: Strings,
    pub(super) env: Strings,
    pub(super) wdir: Option<Strings>,
    pub(super) candidates: Strings,
}

impl PreparedApp {
    /// Lays out a program. Where its name holds a `/` it is that path, relative to `wdir`; else every directory of the
    /// rank's PATH is a candidate, as execvp(3) would search them.
    #[must_use]
    pub fn new<'a>(
        argv: impl IntoIterator<Item = &'a [u8]>,
        env: impl IntoIterator<Item = &'a [u8]>,
        wdir: Option<&[u8]>,
    ) -> Self {
        let argv: Strings = argv.into_iter().collect();
        let env: Strings = env.into_iter().collect();
        let program = argv.get(0).unwrap_or_default();
        let mut candidates = Strings::default();
        if program.contains(&b'/') || program.is_empty() {
            candidates.push(program);
        } else {
            let path = (0..env.len()).filter_map(|n| env.get(n)?.strip_prefix(b"PATH=")).next_back();
            for dir in path.unwrap_or(b"/bin:/usr/bin").split(|b| *b == b':') {
                let dir = if dir.is_empty() { &b"."[..] } else { dir };
                candidates.push(&[dir, b"/", program].concat());
            }
        }
        let wdir = wdir.map(|dir| [dir].into_iter().collect());
        Self { argv, env, wdir, candidates }
    }

    /// Whether the program could be started, as far as its directory and its files show.
    ///
    /// # Errors
    /// The most likely failure of the rank's start.
    pub fn check(&self) -> Result<(), Failure> {
        let wdir = self.wdir.as_ref().and_then(|dir| dir.get(0));
        if let Some(dir) = wdir {
            probe(dir, Want::Directory).map_err(|errno| self.no_directory(errno))?;
        }
        let mut best = (libc::ENOENT, self.candidates.get(0).unwrap_or_default());
        for path in (0..self.candidates.len()).filter_map(|n| self.candidates.get(n)) {
            if path.is_empty() {
                // As execve(2) says it, whatever the directory is.
                break;
            }
            let seen = self.seen_from_wdir(path);
            match probe(&seen, Want::Program) {
                Ok(()) => return Ok(()),
                // As at a start: a directory of PATH that we may not search explains nothing.
                Err(libc::EACCES) if self.is_searched() && !is_there(&seen) => {}
                Err(libc::ENOTDIR) if self.is_searched() => {}
                Err(errno) if best.0 == libc::ENOENT => best = (errno, path),
                Err(_) => {}
            }
        }
        Err(self.no_program(best.0, best.1))
    }

    /// The program could not be started: of those that were tried this one says most. A start may wait for a file server, so the look is
    /// made here, and not where waiting is not allowed.
    pub(super) fn no_program(&self, errno: i32, path: &[u8]) -> Failure {
        // A program that was searched for in vain has no place, not even the last one that was tried.
        let nowhere = path.is_empty() || (self.is_searched() && errno == libc::ENOENT);
        let found = if nowhere { Found::Nothing } else { look(&self.seen_from_wdir(path)) };
        Failure { step: Step::Exec, errno, path: path.to_vec(), found }
    }

    /// Whether it is looked for along PATH.
    fn is_searched(&self) -> bool {
        self.candidates.get(0) != self.argv.get(0)
    }

    /// Its directory could not be entered.
    pub(super) fn no_directory(&self, errno: i32) -> Failure {
        let dir = self.wdir.as_ref().and_then(|dir| dir.get(0)).unwrap_or_default();
        Failure { path: dir.to_vec(), ..Failure::of(Step::ChangeDir, errno) }
    }

    fn seen_from_wdir(&self, path: &[u8]) -> Vec<u8> {
        match self.wdir.as_ref().and_then(|dir| dir.get(0)) {
            Some(dir) if !path.starts_with(b"/") => [dir, b"/", path].concat(),
            Some(_) | None => path.to_vec(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Directory,
    Program,
}

/// Whether a path can be entered or executed; an errno if not.
fn probe(path: &[u8], want: Want) -> Result<(), i32> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
    let is_dir = std::fs::metadata(path).map_err(|e| e.raw_os_error().unwrap_or(0))?.is_dir();
    match (want, is_dir) {
        (Want::Directory, false) => return Err(libc::ENOTDIR),
        // As execve(2) says it of a directory.
        (Want::Program, true) => return Err(libc::EACCES),
        (Want::Directory, true) | (Want::Program, false) => {}
    }
    nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).map_err(|errno| errno as i32)
}

/// Whether there is something, as far as we may see.
fn is_there(path: &[u8]) -> bool {
    nix::unistd::access(path, nix::unistd::AccessFlags::F_OK).is_ok()
}

fn look(path: &[u8]) -> Found {
    use std::os::unix::ffi::OsStrExt;
    match std::fs::metadata(std::ffi::OsStr::from_bytes(path)) {
        Ok(meta) if meta.is_dir() => Found::Dir,
        Ok(meta) if meta.len() == 0 => Found::Empty,
        Ok(_) => Found::File,
        Err(_) => Found::Nothing,
    }
}

/// A rank, ready to be started.
#[derive(Debug)]
pub struct PreparedExec {
    /// Its program.
    pub app: Arc<PreparedApp>,
    /// Variables that follow the program's environment.
    pub vars: Strings,
    /// Whether it gets a pipe as standard input; otherwise /dev/null.
    pub stdin: bool,
    /// The CPUs that it may use, as bits; none: those of this process.
    pub cpus: Box<[u64]>,
    /// The NUMA node whose memory it prefers; `None`: it keeps the policy of this process.
    pub memory: Option<u32>,
    /// Whether it leads a session of its own. If not, it leads a process group in the session of this process.
    pub has_session: bool,
    /// Whether nothing else of what was asked for is wanted where this cannot be started.
    pub needed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(program: &[u8], env: &[&[u8]]) -> Vec<Vec<u8>> {
        let app = PreparedApp::new([program], env.iter().copied(), None);
        (0..app.candidates.len()).map(|n| app.candidates.get(n).unwrap().to_vec()).collect()
    }

    #[test]
    fn a_slash_means_that_path() {
        assert_eq!(candidates(b"./a", &[b"PATH=/x"]), [b"./a".to_vec()]);
        assert_eq!(candidates(b"", &[b"PATH=/x"]), [b"".to_vec()]);
    }

    #[test]
    fn empty_program_name_does_not_exist() {
        let check = |wdir: Option<&[u8]>| PreparedApp::new([&b""[..]], [&b"PATH=/"[..]], wdir).check().unwrap_err();
        for wdir in [None, Some(&b"/"[..])] {
            let Failure { step, errno, path, found: _ } = check(wdir);
            assert_eq!((step, errno, path), (Step::Exec, libc::ENOENT, Vec::new()), "{wdir:?}");
        }
    }

    #[test]
    fn a_directory_of_path_that_may_not_be_searched_explains_nothing() {
        use std::os::unix::ffi::OsStrExt as _;
        use std::os::unix::fs::PermissionsExt as _;
        let temp = crate::facts::core_file::tests::Temp::new();
        let (closed, file) = (temp.0.join("closed"), temp.file("file", b""));
        std::fs::create_dir(&closed).unwrap();
        let mode = |mode| std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o000);
        // To root nothing is closed.
        let path = [b"PATH=", closed.as_os_str().as_bytes(), b":", file.as_os_str().as_bytes(), b":/bin"].concat();
        let failure = PreparedApp::new([&b"no-such-program"[..]], [&path[..]], None).check().unwrap_err();
        mode(0o700);
        assert_eq!((failure.errno, failure.found), (libc::ENOENT, Found::Nothing));
    }

    #[test]
    fn path_is_the_ranks_own_and_the_last_one_counts() {
        let found = candidates(b"a", &[b"PATH=/x", b"Q=1", b"PATH=/y::\xff"]);
        assert_eq!(found, [b"/y/a".to_vec(), b"./a".to_vec(), b"\xff/a".to_vec()]);
        assert_eq!(candidates(b"a", &[]), [b"/bin/a".to_vec(), b"/usr/bin/a".to_vec()]);
    }
}
