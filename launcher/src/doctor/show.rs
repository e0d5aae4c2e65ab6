//! The output about a host.

use super::{Finding, Saving};
use crate::edges::now;
use crate::serve::devices::decoded;
use crate::serve::facts::UNKNOWN;
use rlaunch_base::error::Hint as _;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_plan::bootstrap::{CarrierKind, Failure, Place, Target, Up};
use rlaunch_plan::hostlist::fold;
use std::fmt::Write as _;

/// A saving below a tenth is none.
const WORTH: u64 = 10;

/// All of the report.
pub(super) fn all<'a>(
    own: Option<&OsBytes>,
    found: impl ExactSizeIterator<Item = (&'a Target, (&'a Finding, Mono))>,
    saving: Option<&Saving>,
) -> String {
    let count = found.len();
    let mut text = here(own);
    text.push_str(&hosts(found));
    text.push_str(known_limit(count));
    text.push_str(&saving.map(self::saving).unwrap_or_default());
    text
}

/// All about this machine, in lines.
pub(super) fn here(facts: Option<&OsBytes>) -> String {
    let Some(facts) = facts else { return String::new() };
    let mut text = String::from("this machine:\n");
    of_facts(&mut text, &Facts(&facts.to_string()));
    text
}

/// All about the hosts. Hosts that fail in the same way are one part.
fn hosts<'a>(found: impl Iterator<Item = (&'a Target, (&'a Finding, Mono))>) -> String {
    let mut parts: Vec<(String, String, Vec<String>)> = Vec::new();
    for (target, (finding, began)) in found {
        let text = host(target, finding, began);
        let name = target.to_string();
        // A text that two hosts share names neither of them.
        let common = text.replace(&name, "\0");
        let same = parts.iter_mut().find(|(own, ..)| !matches!(finding, Finding::Good { .. }) && *own == common);
        match same {
            Some((_, _, others)) => others.push(name),
            None => parts.push((common, text, Vec::new())),
        }
    }
    let mut all = String::new();
    for (_, text, others) in parts {
        all.push_str(&text);
        if !others.is_empty() {
            line(&mut all, "also", &fold(others.iter().map(String::as_str)));
        }
    }
    all
}

/// All about one host, in lines.
fn host(host: &Target, finding: &Finding, began: Mono) -> String {
    let mut text = String::new();
    match finding {
        Finding::Good { up, at, facts } => good(&mut text, host, up, at.since(began), facts),
        Finding::Failed(failure) => failed(&mut text, failure),
        Finding::Ended { end, words } => {
            let how = end.map_or("it did not end when it was let go".to_owned(), |end| end.to_string());
            text.push_str(&format!("{host}: the agent started, and ended badly: {how}\n"));
            line(&mut text, "ssh", &words.to_string());
        }
        Finding::Open | Finding::Up { .. } => {}
    }
    text
}

/// A limit that no guard can lift. Said where jobs would have other hosts to talk to.
fn known_limit(hosts: usize) -> &'static str {
    if hosts > 1 {
        "PyTorch's TCPStore is clear text between hosts: strangers cannot connect, but who can read the network can read it (docs/explain/security.md)\n"
    } else {
        ""
    }
}

/// The gain of --ssh-fast.
fn saving(Saving { host, without, with }: &Saving) -> String {
    let saved = without.nanos().saturating_sub(with.nanos());
    let what = if saved < without.nanos() / WORTH {
        "saves nothing there".to_owned()
    } else {
        format!("saves {} of {without} for a host by itself", Span::from_nanos(saved))
    };
    format!("--ssh-fast, tried on {host}, {what}\n")
}

fn line(text: &mut String, key: &str, value: &str) {
    if !value.is_empty() {
        // Writing to a String cannot fail.
        writeln!(text, "  {key:<7} {value}").unwrap_or_default();
    }
}

fn failed(text: &mut String, failure: &Failure) {
    text.push_str(&format!("{failure}\n"));
    let carrier = match failure.carrier {
        CarrierKind::Ssh => "ssh",
        CarrierKind::Srun => "srun",
        CarrierKind::Exec => "command",
    };
    line(text, carrier, &failure.words.to_string());
    line(text, "try", &failure.hint().unwrap_or_default());
}

fn good(text: &mut String, host: &Target, up: &Up, took: Span, facts: &OsBytes) {
    let how = if up.cold { "was sent" } else { "was there" };
    let place = match up.place {
        Place::Named => "as --agent-path names it".to_owned(),
        Place::Same => "at the path that it has here".to_owned(),
        Place::Cache | Place::Tmp | Place::Shm => format!("in {}", up.place),
    };
    // Only a binary that the user named can be for another machine than ours.
    let arch = if up.place == Place::Named { "" } else { architecture() };
    let (offset, error) = offset(up);
    text.push_str(&format!(
        "{host}: ready in {took}; agent {place} ({how}){arch}; clock {offset:+.1} ms (\u{b1} {error:.1})\n"
    ));
    let facts = facts.to_string();
    of_facts(text, &Facts(&facts));
}

fn of_facts(text: &mut String, facts: &Facts<'_>) {
    line(text, "has", &facts.has());
    line(text, "load", &facts.load());
    line(text, "contain", &facts.contain());
    line(text, "limits", &facts.limits());
    line(text, "noexec", facts.value("noexec").unwrap_or_default());
    line(text, "tpu", &facts.chips());
    for held in facts.holders() {
        line(text, "held", &held.to_string());
    }
}

const fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "; aarch64" } else { "; x86_64" }
}

/// How far the host's clock is ahead of ours, by the middle of question and answer, and how wrong that may be: milliseconds.
pub(super) fn offset(up: &Up) -> (f64, f64) {
    let trip = up.answered.since(up.asked).nanos();
    let answered = rlaunch_sys::clock::wall().saturating_sub(now().since(up.answered).nanos());
    let ahead = i128::from(up.wall) - i128::from(answered.saturating_sub(trip / 2));
    (tenths(ahead), tenths(i128::from(trip / 2)))
}

/// Nanoseconds as milliseconds with one decimal, without a negative zero.
fn tenths(nanos: i128) -> f64 {
    f64::from(i32::try_from(nanos / 100_000).unwrap_or(if nanos < 0 { i32::MIN } else { i32::MAX })) / 10.0
}

/// `name=value` words, as the agent says them.
pub(super) struct Facts<'a>(pub(super) &'a str);

impl<'a> Facts<'a> {
    pub(super) fn value(&self, name: &str) -> Option<&'a str> {
        self.0.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn has(&self) -> String {
        let number = |name| self.value(name).and_then(|value| value.parse::<u64>().ok());
        let many = |n: u64, what: &str| match n {
            0 => format!("no {what}"),
            1 => format!("1 {what}"),
            n => format!("{n} {what}s"),
        };
        let mut words = Vec::new();
        words.extend(number("cpus").map(|n| many(n, "CPU")));
        words.extend(number("gpus").map(|n| many(n, "GPU")));
        words.extend(self.value("gpus").filter(|value| *value == UNKNOWN).map(|_| "unknown GPUs".to_owned()));
        let memory = self.value("memory").and_then(|value| value.split_once('/'));
        words.extend(memory.map(|(free, all)| format!("{} of {} of memory free", size(free), size(all))));
        words.join(", ")
    }

    /// The load, and the swap space if any is in use.
    fn load(&self) -> String {
        let load = self.value("load").map(|value| format!("{} (1, 5, 15 minutes)", value.replace('/', ", ")));
        let swap = self.value("swap").and_then(|value| value.split_once('/')).filter(|(free, all)| free != all);
        let swap = swap.map(|(free, all)| format!("swap: {} of {} free", size(free), size(all)));
        load.into_iter().chain(swap).collect::<Vec<_>>().join("; ")
    }

    /// The TPU chips, and the lock file of libtpu.
    fn chips(&self) -> String {
        let Some((count, generation)) = self.value("chips").and_then(|value| value.split_once('/')) else {
            return String::new();
        };
        let of = if generation.is_empty() { String::new() } else { format!(" ({})", generation.replace('_', " ")) };
        let s = if count == "1" { "" } else { "s" };
        let slice =
            self.slice().map(|Slice { name, worker, hosts }| format!("; host {worker} of {hosts} in slice {name}"));
        let lock = self.value("lock").map(|lock| format!("; lock file {}", lock.replace('_', " ")));
        format!("{count} chip{s}{of}{}{}", slice.unwrap_or_default(), lock.unwrap_or_default())
    }

    /// The place of the host in its TPU slice.
    pub(super) fn slice(&self) -> Option<Slice<'a>> {
        let mut parts = self.value("slice")?.rsplitn(3, '/');
        let (hosts, worker, name) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Slice { name, worker, hosts })
    }

    /// The processes that hold TPU chips or GPUs.
    pub(super) fn holders(&self) -> impl Iterator<Item = Holder<'a>> + use<'a> {
        self.0.split(' ').filter_map(|word| word.strip_prefix("holder=").map(Holder::of))
    }

    /// The processes that a job can leave there.
    fn contain(&self) -> String {
        match self.value("tier") {
            Some("T1") => "tier T1: nothing outlives a job, even if all of rlaunch there is killed at once".to_owned(),
            Some("T3") => {
                "tier T3: nothing outlives a job, unless agent and guardian there are killed at once".to_owned()
            }
            Some(other) => format!("tier {other}"),
            None => String::new(),
        }
    }

    fn limits(&self) -> String {
        let shown = ["nofile", "nproc", "memlock", "stack", "core"].into_iter().filter_map(|name| {
            let (soft, hard) = self.value(name)?.split_once('/')?;
            let show = |value: &str| match (value, name) {
                ("-", _) => "unlimited".to_owned(),
                (_, "nofile" | "nproc") => value.to_owned(),
                _ => size(value),
            };
            let more = if soft == hard { String::new() } else { format!(" (up to {})", show(hard)) };
            Some(format!("{name} {}{more}", show(soft)))
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// The place of a host in its TPU slice.
pub(super) struct Slice<'a> {
    pub(super) name: &'a str,
    pub(super) worker: &'a str,
    /// `?`: unknown.
    pub(super) hosts: &'a str,
}

/// A process that holds devices: `/dev/vfio/0:4242:alice:MEMORY:SECONDS:python3%20train.py`.
pub(super) struct Holder<'a> {
    pub(super) devices: &'a str,
    /// `None`: the user of the doctor may not see the process.
    pub(super) process: Option<Process<'a>>,
}

/// A process that the user of the doctor may see.
pub(super) struct Process<'a> {
    pub(super) pid: &'a str,
    pub(super) user: String,
    pub(super) memory: &'a str,
    pub(super) seconds: &'a str,
    pub(super) command: String,
}

impl<'a> Holder<'a> {
    fn of(word: &'a str) -> Self {
        let mut parts = word.splitn(6, ':');
        let devices = parts.next().unwrap_or_default();
        let process = match (parts.next(), parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(pid), Some(user), Some(memory), Some(seconds), Some(command)) => {
                let (user, command) = (decoded(user), decoded(command));
                Some(Process { pid, user, memory, seconds, command })
            }
            _ => None,
        };
        Self { devices, process }
    }
}

impl std::fmt::Display for Holder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { devices, process } = self;
        let Some(Process { pid, user, memory, seconds, command }) = process else {
            return write!(f, "{devices} by a process that you may not see; ask root: lsof {devices}");
        };
        write!(f, "{devices} by pid {pid}, {user}: {command}")?;
        match seconds.parse() {
            Ok(seconds) if *memory != "0" => write!(f, " ({}, for {})", size(memory), Span::from_secs(seconds)),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Bytes, to be read by people.
fn size(bytes: &str) -> String {
    let Ok(bytes) = bytes.parse::<u64>() else { return bytes.to_owned() };
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if let tenths @ 10.. = bytes.saturating_mul(10) >> shift {
            return if tenths % 10 == 0 {
                format!("{} {unit}", tenths / 10)
            } else {
                format!("{}.{} {unit}", tenths / 10, tenths % 10)
            };
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_failures_are_one_part() {
        let ended = |words: &str| Finding::Ended { end: None, words: words.into() };
        let findings = [ended("n1: full"), ended("n2: full"), ended("n3: broken"), ended("n4: full")];
        let targets = ["n1", "n2", "n3", "n4"].map(|name| Target::parse(name.as_bytes(), None).unwrap());
        let text = hosts(targets.iter().zip(findings.iter().map(|finding| (finding, now()))));
        let how = "the agent started, and ended badly: it did not end when it was let go";
        assert_eq!(text, format!("n1: {how}\n  ssh     n1: full\n  also    n[2,4]\nn3: {how}\n  ssh     n3: broken\n"));
    }

    #[test]
    fn facts_are_for_people() {
        let facts = Facts(
            "cpus=2 gpus=1 memory=3221225472/4026531840 tier=T1 nofile=1024/1048576 nproc=-/- memlock=8388608/8388608 \
             core=0/- noexec=/tmp,/dev/shm",
        );
        assert_eq!(facts.has(), "2 CPUs, 1 GPU, 3 GiB of 3.7 GiB of memory free");
        assert_eq!(Facts("cpus=2 gpus=0 tier=T1").has(), "2 CPUs, no GPU");
        assert_eq!(Facts("cpus=2 gpus=? tier=T3").has(), "2 CPUs, unknown GPUs", "/dev cannot be read");
        assert_eq!(Facts("swap=0/0 load=0.50/0.25/0.10").load(), "0.50, 0.25, 0.10 (1, 5, 15 minutes)");
        let swapped = Facts("swap=1024/3072 load=9.00/8.00/7.00").load();
        assert_eq!(swapped, "9.00, 8.00, 7.00 (1, 5, 15 minutes); swap: 1 KiB of 3 KiB free");
        assert!(facts.contain().starts_with("tier T1: nothing outlives a job, even if"));
        let limits = "nofile 1024 (up to 1048576), nproc unlimited, memlock 8 MiB, core 0 (up to unlimited)";
        assert_eq!(facts.limits(), limits);
        assert_eq!(facts.value("noexec"), Some("/tmp,/dev/shm"));
        let tpu = Facts(
            "chips=4/v2_or_v3 lock=locked_by_7 slice=a/1/4 holder=/dev/vfio/0-3:7:alice:3221225472:7500:python3%20my_a.py holder=/dev/vfio/5:?:?:?",
        );
        assert_eq!(tpu.chips(), "4 chips (v2 or v3); host 1 of 4 in slice a; lock file locked by 7");
        let held: Vec<String> = tpu.holders().map(|held| held.to_string()).collect();
        assert_eq!(held[0], "/dev/vfio/0-3 by pid 7, alice: python3 my_a.py (3 GiB, for 2h05m)");
        assert_eq!(held[1], "/dev/vfio/5 by a process that you may not see; ask root: lsof /dev/vfio/5");
        assert_eq!((Facts("").has(), Facts("").limits()), (String::new(), String::new()), "an agent of another build");
    }

    #[test]
    fn a_small_saving_is_none() {
        let of = |without, with| {
            let host = "h".to_owned();
            saving(&Saving { host, without: Span::from_millis(without), with: Span::from_millis(with) })
        };
        assert_eq!(of(200, 140), "--ssh-fast, tried on h, saves 60 ms of 0.2s for a host by itself\n");
        for with in [190, 250] {
            assert_eq!(of(200, with), "--ssh-fast, tried on h, saves nothing there\n");
        }
    }
}
