//! The one line that the login shell of a host is given. It works in whatever shell that is: its only word in single
//! quotes is a script for /bin/sh that holds no quote, no `!` (csh's history), and no line end.
//!
//! The script looks for the binary where it may be, checks who owns it and what it is, and becomes the agent. Else it
//! finds a place to put it, and asks for it.

use super::answer::Place;
use super::sum::Sums;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use rlaunch_base::error::Hint;
use rlaunch_base::id::{JobId, NodeId};
use rlaunch_base::os_bytes::OsBytes;

/// The parts of the line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinePlan {
    /// The job, for the marker.
    pub job: JobId,
    /// The node, for the name of a temporary file: hosts may share a home.
    pub node: NodeId,
    /// The hash and the checksum of the binary; `None`: the host reads them on stdin, as in a step.
    pub sums: Option<Sums>,
    /// The binary's length.
    pub len: u64,
    /// The machine it is for, as `uname -m` says it.
    pub arch: &'static str,
    /// The path of our own binary here, if it can be used there too.
    pub same: Option<OsBytes>,
    /// `--agent-path`: this and nothing else.
    pub named: Option<OsBytes>,
    /// The purpose of the agent.
    pub purpose: Purpose,
}

/// The purpose of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Purpose {
    /// A job, over the stream of its carrier.
    #[default]
    Job,
    /// The same, over streams that pass through others: what the agent sends is sealed.
    Sealed,
    /// A job, after facts about the host.
    Examine,
    /// A job, in a step of several hosts: the agent connects to the launcher. Nothing is sent that is not there.
    Step,
}

impl Purpose {
    /// The word for the agent.
    const fn flag(self) -> &'static str {
        match self {
            Self::Job => "",
            Self::Sealed => "sealed",
            Self::Examine => "examine",
            Self::Step => "step",
        }
    }
}

/// A path that cannot be put into the line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the agent's path '{0}' cannot be told to every shell as it is")]
pub struct LineError(OsBytes);

impl Hint for LineError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some("an absolute path of letters, digits, spaces and . _ - + , : @ % = ~".into())
    }
}

/// `q`: the modes of files. `o`: is the directory `d` ours? Then `m` says whether only we can use the file, and `s` has its size.
const DIRECTORY: &str = concat!(
    "q() { unset TIME_STYLE; LC_ALL=C; export LC_ALL; exec ls -ldn \"$@\" 2>/dev/null; }; ",
    "o() { r=none; if [ -L \"$d\" ]; then r=link; return 1; fi; [ -d \"$d\" ] || return 1; ",
    "r=closed; cd \"$d\" 2>/dev/null || return 1; r=owner; [ -O . ] || return 1; ",
    "r=mode; set -- $(q . ./$N); case $1 in drwx------*) ;; *) return 1;; esac; ",
    "m=none; while [ $# -gt 4 ]; do case $1 in -rwx------*) m=right; s=$5; break;; esac; shift; done; }; ",
);

/// `v`: enters the directory of the file `P`, and names the file `n` from there. Can only root and we write to the file or replace it? Then
/// `s` has its size; else `r` says why not. A path can lead through directories of another user, who can put another directory into it at any
/// time. So the file is executed as `n`: the directory that was checked is the one that we are in. In a directory with the sticky bit, only the
/// owner of a file can replace it.
const FILE: &str = concat!(
    "v() { r=none; n=./${P##*/}; cd -P \"${P%/*}/\" 2>/dev/null || return 1; if [ -d \"$n\" ]; then r=dir; fi; ",
    "[ -f \"$n\" ] || return 1; r=noexec; [ -x \"$n\" ] || return 1; ",
    "set -- $(q . \"$n\"); r=above; case $1 in d????-??-*) l=link;; d????????[tT]*) l=above;; *) return 1;; esac; ",
    "[ -O . ] || [ \"$3\" = 0 ] || return 1; ",
    "while [ $# -gt 4 ]; do case $1 in [-l]?????????*) break;; esac; shift; done; ",
    "r=mode; case $1 in l*) r=$l; return 1;; -??x?-??-*) ;; *) return 1;; esac; ",
    "r=owner; [ -O \"$n\" ] || [ \"$3\" = 0 ] || return 1; s=$5; }; ",
);

/// The other checks. `c`: is the directory ours, and the file in it our binary? Else `r` has the reason. `-O` (owned by us), `-L` (a link)
/// and `ls -ldn` are in every sh and ls there is. Only the modes and the size in the output of ls are read. Each process costs the host a
/// millisecond or two, so one ls shows both. Its output is sorted: the directory comes first.
///
/// `h`: is it unspoiled? The binary checks itself where there is no cksum.
const CHECKS: &str = concat!(
    "h() { command -v cksum >/dev/null 2>&1 || { \"$1\" agent verify $H >/dev/null 2>&1; return; }; ",
    "case $(cksum <\"$1\" 2>/dev/null) in \"$C $S\"*) return 0;; esac; return 1; }; ",
    "c() { r=none; if [ -L ./$N ]; then r=link; return 1; fi; [ -f ./$N ] || return 1; ",
    "r=owner; [ -O ./$N ] || return 1; r=mode; [ $m = right ] || return 1; r=length; [ \"$s\" = $S ] || return 1; ",
    "r=noexec; [ -x ./$N ] || return 1; r=hash; h ./$N; }; ",
    "g() { echo \"${M}READY $k\"; exec \"$1\" agent $F \"$W\"; }; ",
);

/// The directory of a kept binary, in the script's words.
fn directory(place: Place) -> Option<String> {
    let (above, own) = place.kept()?;
    let above = above.replace("~/.cache", "${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}");
    Some(format!("{above}/{}", own.replace("UID", "$(id -u)")))
}

/// `d`: the directory of place `k`. Only when it is its turn: to ask who we are costs a process.
fn directories(script: &mut String) {
    script.push_str("d() { case $k in ");
    for (place, directory) in Place::ALL.into_iter().filter_map(|place| Some((place, directory(place)?))) {
        script.push_str(&format!("{place}) d={directory};; "));
    }
    script.push_str("esac; }; ");
}

/// A place to put it: a directory of ours in which a file can be as long as the binary, and be executed. An empty
/// executable file is run by sh itself, unless the mount forbids it.
const FIND: &str = concat!(
    "p() { d; if [ -L \"$d\" ]; then r=link; return 1; fi; r=readonly; ",
    "[ -d \"$d\" ] || (umask 077; mkdir -p \"$d\") 2>/dev/null || return 1; o || return 1; ",
    "r=readonly; (umask 077; : >$T) 2>/dev/null || return 1; ",
    "r=noexec; chmod 700 $T && ./$T 2>/dev/null || { rm -f $T; return 1; }; ",
    "r=full; head -c $S /dev/zero 2>/dev/null >$T && return 0; rm -f $T; return 1; }; ",
    // A second signal must not end the one that clears up after the first.
    "z() { trap \"\" 1 2 13 15; rm -f $T; }; ",
);

/// The binary arrives. A connection that breaks leaves no file: the file is removed before any other process learns of it.
const RECEIVE: &str = concat!(
    "if p; then trap z 0; trap \"exit 1\" 1 2 13 15; echo \"${M}NEED $k\"; head -c $S >$T; chmod 700 $T; ",
    "if h ./$T && mv -f $T $N; then trap - 0 1 2 13 15; F=\"$F fresh\"; g ./$N; else z; echo \"${M}SPOILED $k\"; fi; exit 0; fi; ",
    "E=\"$E $k:$r\"; ",
);

/// A step of several hosts has one stdin, so nothing can be sent to one of them.
const ABSENT: &str = "echo \"${M}ABSENT $SLURMD_NODENAME\"";

/// A path as it may stand between double quotes between single quotes, in every shell.
fn quotable(path: &[u8]) -> Option<&str> {
    let fits = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+,:@%=~ ".contains(b);
    let text = core::str::from_utf8(path).ok()?;
    (path.starts_with(b"/") && path.iter().all(fits)).then_some(text)
}

/// The line. Places in `skip` have been tried in vain.
///
/// # Errors
/// `--agent-path` names a file that cannot be quoted for any shell.
pub fn line(plan: &LinePlan, skip: &[Place]) -> Result<String, LineError> {
    let LinePlan { job, node, sums, len, arch, same, named, purpose } = plan;
    let (flag, in_step) = (purpose.flag(), *purpose == Purpose::Step);
    let mut script = format!(
        // In two parts, so that a shell that prints its input prints no marker.
        "M=@rlaunch; M=\"$M-{job}@ \"; S={len}; W=$PWD; F={flag}; E=; "
    );
    if let Some(Sums { hash, sum, .. }) = sums {
        script.push_str(&format!("H={hash}; C={sum}; N=agent-$H; T=.$N.{node}.$$; "));
    }
    script.push_str(DIRECTORY);
    script.push_str(FILE);
    script.push_str(CHECKS);
    let is_open = |place: Place| !skip.contains(&place);
    if let Some(path) = named {
        let path = quotable(path).ok_or_else(|| LineError(path.clone()))?;
        // A link in a directory of ours or root's is followed, to a file that must be safe itself.
        script.push_str(&format!(
            "P=\"{path}\"; k=named; \
             if v || {{ [ $r = link ] && P=$(readlink -f \"$n\") && v; }}; then g \"$n\"; fi; "
        ));
        script.push_str("if [ $r = above ]; then r=\"$r $PWD\"; fi; ");
        script.push_str(if in_step { ABSENT } else { "echo \"${M}UNUSABLE $r\"" });
        return Ok(wrap(&script));
    }
    // Newer kernels say what machine it is without a process (Linux 6.1, kernel/utsname_sysctl.c).
    script.push_str(&format!(
        "read -r a 2>/dev/null </proc/sys/kernel/arch || a=$(uname -m); \
         case $a in {arch}) ;; *) {}; exit 0;; esac; ",
        if in_step { ABSENT } else { "echo \"${M}ARCH $a\"" }
    ));
    if let Some(path) = same.as_deref().and_then(quotable).filter(|_| is_open(Place::Same)) {
        script.push_str(&format!(
            "P=\"{path}\"; k=same; if v && [ \"$s\" = $S ]{}; then g \"$n\"; fi; ",
            // In a step the binary compares itself, which costs no process.
            if in_step { " && F=\"$F same\"" } else { " && h \"$n\"" }
        ));
    }
    if sums.is_none() {
        script.push_str("read -r H C _; N=agent-$H; ");
    }
    directories(&mut script);
    let places = || Place::ALL.into_iter().filter(|place| place.kept().is_some() && is_open(*place));
    for place in places() {
        script.push_str(&format!("k={place}; d; if o && c; then F=\"$F kept\"; g ./$N; fi; "));
    }
    if in_step {
        script.push_str(ABSENT);
        return Ok(wrap(&script));
    }
    script.push_str(FIND);
    for place in places() {
        script.push_str(&format!("k={place}; "));
        script.push_str(RECEIVE);
    }
    script.push_str("echo \"${M}NOWHERE$E\"");
    Ok(wrap(&script))
}

/// The beginning of a script for /bin/sh: `e WORDS` is `agent WORDS` of a binary that an earlier job has left on the host, or that is there
/// anyway. Its status is 127 if there is none. The binary's hash is not computed again: only this user and root can write it.
#[must_use]
pub fn kept_binary(sums: &Sums, len: u64, same: Option<&OsBytes>) -> String {
    let Sums { hash, .. } = sums;
    let mut script = format!("S={len}; H={hash}; N=agent-$H; {DIRECTORY}{FILE}");
    script.push_str(
        "c() { if [ -L ./$N ]; then return 1; fi; [ -f ./$N ] && [ -O ./$N ] && [ $m = right ] && \
         [ \"$s\" = $S ] && [ -x ./$N ]; }; ",
    );
    directories(&mut script);
    script.push_str("f() { ");
    if let Some(path) = same.map(OsBytes::as_slice).and_then(quotable) {
        script.push_str(&format!("P=\"{path}\"; if v && [ \"$s\" = $S ]; then return 0; fi; "));
    }
    for place in Place::ALL.into_iter().filter(|place| place.kept().is_some()) {
        script.push_str(&format!("k={place}; d; if o && c; then n=./$N; return 0; fi; "));
    }
    script.push_str("return 1; }; e() { f || return 127; \"$n\" agent \"$@\"; }; ");
    script
}

/// `exec`: no login shell stays behind, idle for as long as the job runs.
fn wrap(script: &str) -> String {
    format!("exec /bin/sh -c '{script}'")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::{Hash, Sum};
    use proptest::prelude::*;

    fn plan() -> LinePlan {
        LinePlan {
            job: JobId([0xab; 16]),
            node: NodeId::new(4),
            sums: Some(Sums { hash: Hash([0xcd; 32]), sum: Sum::of(b"binary"), ends: Hash::of(b"ends") }),
            len: 2_316_608,
            arch: "x86_64",
            same: Some("/opt/r launch/bin/rlaunch".into()),
            named: None,
            purpose: Purpose::Job,
        }
    }

    /// Everything between the quotes of any login shell.
    fn inner(line: &str) -> &str {
        let inner = line.strip_prefix("exec /bin/sh -c '").and_then(|rest| rest.strip_suffix('\''));
        inner.expect("one word in single quotes")
    }

    proptest! {
        #[test]
        fn holds_nothing_that_a_login_shell_would_change(same in any::<Option<alloc::vec::Vec<u8>>>(), skip in 0usize..16) {
            let plan = LinePlan { same: same.map(OsBytes::new), ..plan() };
            let skip: alloc::vec::Vec<Place> =
                Place::ALL.into_iter().enumerate().filter(|(i, _)| skip >> i & 1 == 1).map(|(_, p)| p).collect();
            let line = line(&plan, &skip).unwrap();
            prop_assert!(inner(&line).bytes().all(|b| (b' '..=b'~').contains(&b) && !b"'!\\".contains(&b)));
        }
    }

    #[test]
    fn script_for_a_kept_binary_is_fit_for_any_shell_and_knows_all_places() {
        let plan = plan();
        let script = kept_binary(&plan.sums.unwrap(), plan.len, plan.same.as_ref());
        assert!(script.bytes().all(|b| (b' '..=b'~').contains(&b) && !b"'!\\".contains(&b)), "{script}");
        for place in ["P=\"/opt/r launch/bin/rlaunch\"", "k=cache;", "k=tmp;", "k=shm;", "agent-cdcdcd"] {
            assert!(script.replace("H=cdcdcd", "H=agent-cdcdcd").contains(place), "{place}: {script}");
        }
        assert!(script.len() < 3_000, "{} bytes", script.len());
        // A path is not executed: it may lead elsewhere by now.
        assert!(script.contains(FILE) && !script.contains("\"$P\" agent"), "{script}");
    }

    #[test]
    fn does_not_hold_its_own_marker() {
        let line = line(&plan(), &[]).unwrap();
        assert!(!line.contains(super::super::answer::marker(plan().job).trim_end()));
        assert!(line.len() < 4_096, "{} bytes", line.len());
    }

    #[test]
    fn line_names_the_directory_of_each_place() {
        let all = line(&plan(), &[]).unwrap();
        let cache = "${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/rlaunch";
        for (place, at) in [("cache", cache), ("tmp", "/tmp/rlaunch-$(id -u)"), ("shm", "/dev/shm/rlaunch-$(id -u)")] {
            assert_eq!(all.matches(&format!(" {place}) d={at};; ")).count(), 1, "{all}");
        }
    }

    #[test]
    fn a_place_that_was_tried_in_vain_is_left_out() {
        let all = line(&plan(), &[]).unwrap();
        assert!(all.contains("k=same") && all.contains("k=cache") && all.contains("k=tmp") && all.contains("k=shm;"));
        let fewer = line(&plan(), &[Place::Same, Place::Tmp]).unwrap();
        assert!(!fewer.contains("k=same") && !fewer.contains("k=tmp") && fewer.contains("k=cache"));
    }

    #[test]
    fn path_that_cannot_be_quoted_is_refused_only_if_it_was_asked_for() {
        let odd = LinePlan { same: Some("/home/o'neil/rlaunch".into()), ..plan() };
        assert!(!line(&odd, &[]).unwrap().contains("neil"));
        for path in ["/home/o'neil/rlaunch", "rlaunch", "/a/$HOME", "/a`id`", "/a\"b", "/a!b", "/a\\b", "/a\nb"] {
            let asked = LinePlan { named: Some(path.into()), ..plan() };
            assert!(line(&asked, &[]).unwrap_err().hint().is_some(), "{path}");
        }
    }
}
