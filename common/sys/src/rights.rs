//! Rights of a process, as the kernel shows them. A process that orders something of a job needs the rights that the job's programs have.

use crate::holders::started;
use std::fs;
use std::io;

/// Fields of /proc/PID/status that have to be the same: proc_pid_status(5). A process that executes a setuid program has several users.
const SAME: [&str; 8] = ["Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "Seccomp_filters", "CapInh", "CapBnd"];

/// The first difference between the rights of a process and those of a program that we start; `None`: there is none. `is_it`: whether the
/// process was started at this time, in ticks since boot. Its number may be another's by now.
#[must_use]
pub fn difference(pid: i32, is_it: impl FnOnce(u64) -> bool) -> Option<String> {
    let found = compare(pid).unwrap_or_else(|error| Some(format!("its rights cannot be read: {error}")));
    // Last: what was read before is of this process.
    found.or_else(|| (!started(pid).is_some_and(is_it)).then(|| "its process has exited".to_owned()))
}

/// The time as /proc has it: ticks since boot.
#[must_use]
pub fn ticks() -> u64 {
    /// `USER_HZ` of the kernel is 100 on all our architectures.
    const TICK_NS: u64 = 10_000_000;
    crate::clock::boottime() / TICK_NS
}

fn compare(pid: i32) -> io::Result<Option<String>> {
    let own = std::process::id();
    let [job, other] = [own.to_string(), pid.to_string()].map(|pid| fs::read_to_string(format!("/proc/{pid}/status")));
    let found = compare_status(&job?, &other?, nix::unistd::geteuid().is_root());
    if found.is_some() {
        return Ok(found);
    }
    for kind in ["user", "net"] {
        let [job, other] = [own.cast_signed(), pid].map(|pid| fs::read_link(format!("/proc/{pid}/ns/{kind}")));
        if job? != other? {
            return Ok(Some(format!("it is in another {kind} namespace than the job")));
        }
    }
    // Without a security module there is nothing to read.
    let [job, other] = [own.cast_signed(), pid].map(|pid| fs::read(format!("/proc/{pid}/attr/current")).ok());
    Ok((job != other).then(|| "a security module confines it in another way than the job".to_owned()))
}

/// The first difference between two texts of /proc/PID/status.
fn compare_status(job: &str, other: &str, is_root: bool) -> Option<String> {
    if let Some(name) = SAME.iter().copied().find(|name| value(job, name) != value(other, name)) {
        let [job, other] = [job, other].map(|status| short(value(status, name)));
        return Some(format!("its {name} is {other}, and that of the job is {job}"));
    }
    // A program of root's has all that is permitted, and one of another user's only what is ambient.
    let kept = if is_root { "CapPrm" } else { "CapAmb" };
    let is_less = capabilities(job, kept) & !capabilities(other, "CapPrm") != 0;
    is_less.then(|| "it has fewer capabilities than the job".to_owned())
}

/// The value of a field; empty: there is none.
fn value<'a>(status: &'a str, name: &str) -> &'a str {
    let fields = status.lines().filter_map(|line| line.split_once(':'));
    fields.filter(|(field, _)| *field == name).map(|(_, value)| value.trim()).next().unwrap_or_default()
}

fn capabilities(status: &str, name: &str) -> u64 {
    u64::from_str_radix(value(status, name), 16).unwrap_or(0)
}

/// A value once, if it is the same for all users or groups of a process.
fn short(value: &str) -> String {
    let words: Vec<&str> = value.split_ascii_whitespace().collect();
    match words.as_slice() {
        [] => "empty".to_owned(),
        [first, rest @ ..] if rest.iter().all(|word| word == first) => (*first).to_owned(),
        words => words.join(" "),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a process with other rights, not a rank")]
    use super::*;
    use nix::fcntl::OFlag;
    use nix::sys::stat::Mode;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    /// The difference of a process that begins like this.
    fn of(begin: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> Option<String> {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        // SAFETY: the closures of these tests make one system call each.
        unsafe { command.pre_exec(begin) };
        let mut child = command.spawn().unwrap();
        let found = difference(child.id().cast_signed(), |started| started <= ticks());
        drop(child.stdin.take());
        child.wait().unwrap();
        found
    }

    fn done(rc: libc::c_int) -> io::Result<()> {
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    #[test]
    fn process_with_our_rights_has_no_difference() {
        assert_eq!(of(|| Ok(())), None);
        let own = std::process::id().cast_signed();
        assert_eq!(difference(own, |_| false).unwrap(), "its process has exited");
        assert!(difference(-1, |_| true).unwrap().starts_with("its rights cannot be read"));
    }

    /// The status of a process with one field changed.
    fn status(changed: &str, other: &str) -> String {
        let fields = [
            ("Uid", "7\t7\t7\t7"),
            ("Gid", "8\t8\t8\t8"),
            ("Groups", "8 9 "),
            ("CapInh", "0000000000000400"),
            ("CapPrm", "0000000000000c00"),
            ("CapBnd", "000001ffffffffff"),
            ("CapAmb", "0000000000000400"),
            ("NoNewPrivs", "0"),
            ("Seccomp", "2"),
            ("Seccomp_filters", "1"),
        ];
        fields.map(|(name, own)| format!("{name}:\t{}\n", if name == changed { other } else { own })).concat()
    }

    #[test]
    fn process_with_other_rights_in_one_field_of_its_status_is_another() {
        let difference = |name, other, is_root| compare_status(&status("", ""), &status(name, other), is_root);
        assert_eq!(difference("", "", true), None);
        for (name, other, text) in [
            ("Uid", "7\t0\t0\t0", "its Uid is 7 0 0 0, and that of the job is 7"),
            ("Gid", "6\t6\t6\t6", "its Gid is 6, and that of the job is 8"),
            ("Groups", "8 ", "its Groups is 8, and that of the job is 8 9"),
            ("NoNewPrivs", "1", "its NoNewPrivs is 1, and that of the job is 0"),
            ("Seccomp", "0", "its Seccomp is 0, and that of the job is 2"),
            ("Seccomp_filters", "3", "its Seccomp_filters is 3, and that of the job is 1"),
            ("CapInh", "0", "its CapInh is 0, and that of the job is 0000000000000400"),
            ("CapBnd", "0", "its CapBnd is 0, and that of the job is 000001ffffffffff"),
        ] {
            assert_eq!(difference(name, other, true).as_deref(), Some(text));
        }
        let fewer = Some("it has fewer capabilities than the job".to_owned());
        assert_eq!([true, false].map(|is_root| difference("CapPrm", "0", is_root)), [fewer.clone(), fewer.clone()]);
        let ambient = |is_root| difference("CapPrm", "0000000000000400", is_root);
        assert_eq!([true, false].map(ambient), [fewer, None], "programs of another user keep ambient ones only");
    }

    #[test]
    fn process_that_can_gain_no_privileges_is_another() {
        // SAFETY: prctl takes integers.
        let found = of(|| done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }));
        assert_eq!(found.unwrap(), "its NoNewPrivs is 1, and that of the job is 0");
    }

    /// Only root can become another user, and have two at a time.
    #[test]
    fn process_of_another_user_group_or_namespace_is_another() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        // SAFETY: as below, numbers only.
        let user = of(|| done(unsafe { libc::setresuid(65534, 65534, 65534) }));
        assert_eq!(user.unwrap(), "its Uid is 65534, and that of the job is 0");
        // SAFETY: a process that has executed a setuid program.
        let real = of(|| done(unsafe { libc::setresuid(65534, 0, 0) }));
        assert_eq!(real.unwrap(), "its Uid is 65534 0 0 0, and that of the job is 0");
        // SAFETY: numbers only.
        let group = of(|| done(unsafe { libc::setresgid(65534, 65534, 65534) }));
        assert!(group.unwrap().starts_with("its Gid is 65534"));
        // SAFETY: CAP_SYS_ADMIN is 21.
        let bounded = of(|| done(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, 21, 0, 0, 0) }));
        assert!(bounded.unwrap().starts_with("its CapBnd is"));
        let bounds = capabilities(&fs::read_to_string("/proc/self/status").unwrap(), "CapBnd");
        let namespace = of(move || {
            // SAFETY: unshare takes flags.
            done(unsafe { libc::unshare(libc::CLONE_NEWUSER) })?;
            // The bounds of a new namespace are all capabilities.
            for lacking in (0..64).filter(|number| bounds >> number & 1 == 0) {
                // SAFETY: prctl takes integers. The kernel does not know the highest numbers.
                unsafe { libc::prctl(libc::PR_CAPBSET_DROP, lacking, 0, 0, 0) };
            }
            // Root of the namespace keeps its capabilities when it executes a program.
            let map = nix::fcntl::open(c"/proc/self/uid_map", OFlag::O_WRONLY, Mode::empty())?;
            Ok(nix::unistd::write(&map, b"0 0 1").map(drop)?)
        });
        assert_eq!(namespace.unwrap(), "it is in another user namespace than the job");
        // SAFETY: unshare takes flags.
        let network = of(|| done(unsafe { libc::unshare(libc::CLONE_NEWNET) }));
        assert_eq!(network.unwrap(), "it is in another net namespace than the job");
    }
}
