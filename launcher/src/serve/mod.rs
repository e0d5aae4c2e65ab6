//! `rlaunch agent`, on a host that a carrier has reached: the process becomes the guardian there, and its fork the agent.
//! Not for people: the remote line of `rlaunch_plan::bootstrap` calls it. A pool calls it to wait for the end of a job there, and for a warning.

mod cache;
pub(crate) mod devices;
pub(crate) mod facts;
mod step;

use crate::bootstrap::source;
use crate::view::phrases;
use rlaunch_agent::devices as device_files;
use rlaunch_agent::{AgentSetup, Edge, LeaseLine, metadata, tpu_facts};
use rlaunch_base::time::Span;
use rlaunch_plan::bootstrap::answer::marker;
use rlaunch_plan::bootstrap::{Answer, Hash, PREAMBLE, Preamble};
use rlaunch_sys::fd;
use rlaunch_sys::guardian::{Remote, Streams, split_remote};
use rlaunch_sys::origin::Origin;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

/// The beginning of the line that reports a warning to a pool.
pub(crate) const WARNED: &str = "rlaunch-warned ";
/// How long the launcher may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest wait for the end of a job. The pool asks again then.
const END: Duration = Duration::from_secs(600);

/// `rlaunch agent` with its words: `verify HASH`; `end JOB` and `warning` for a pool; `direct JOB ENDS`, as srun starts it; or flags for
/// the way in which it was started, and the directory that the login began in.
pub(crate) fn run(words: &[OsString], origin: Origin) -> u8 {
    match words {
        [verify, hash] if verify == "verify" => verify_own(hash.as_bytes()),
        [end, job] if end == "end" => wait_for_end(&job.to_string_lossy()),
        [warning] if warning == "warning" => wait_for_warning(),
        [direct, job, ends] if direct == "direct" => step::serve_direct(job, ends, origin),
        [flags @ .., dir] => serve(flags, Some(dir), origin),
        [] => serve(&[], None, origin),
    }
}

/// Whether our own bytes have this hash: for hosts without a tool for that.
fn verify_own(hash: &[u8]) -> u8 {
    let own = source::open().and_then(|file| source::hash(&file));
    u8::from(own.ok().is_none_or(|own| Hash::parse(hash) != Some(own)))
}

/// Waits until nothing of a job is left on this host: 0. Else it is not known, or our caller has gone.
fn wait_for_end(job: &str) -> u8 {
    let ended = fd::duplicate(0).and_then(|caller| rlaunch_sys::job_parts::wait_for_end(job, END, &caller));
    u8::from(!ended.is_ok_and(|is_ended| is_ended))
}

/// Waits until the metadata server of this host warns: 0, and the source of the warning.
fn wait_for_warning() -> u8 {
    let warned = fd::duplicate(0).and_then(metadata::wait_for_warning);
    let Ok(Some(source)) = warned else { return rlaunch_base::exit::LAUNCH };
    let _unread = fd::write(1, format!("{WARNED}{}\n", source.word()).as_bytes());
    0
}

fn serve(flags: &[OsString], dir: Option<&OsString>, origin: Origin) -> u8 {
    let is = |flag| flags.iter().any(|word| word == flag);
    // The shell is in the directory of the binary. The launcher needs a moment to learn of us and to answer.
    if is("fresh") {
        cache::prune(std::path::Path::new("."));
    }
    if is("kept")
        && let Ok(own) = source::open()
    {
        cache::refresh(&own);
    }
    if let Some(dir) = dir {
        // If the directory is gone, each program's own directory is still to come.
        let _gone = std::env::set_current_dir(dir);
    }
    if is("step") {
        return step::serve(is("kept"), is("same"), origin);
    }
    let mut bytes = [0; PREAMBLE];
    if let Err(error) = fd::read_exactly(0, &mut bytes, PATIENCE) {
        return complain(&format!("no word from the launcher: {}", rlaunch_sys::reason(&error)));
    }
    let preamble = match Preamble::parse(&bytes) {
        Ok(preamble) => preamble,
        Err(error) => return complain(&error.to_string()),
    };
    if let Some(refused) = phrases::refused_call() {
        return refuse(&preamble, &refused);
    }
    if let Err(why) = is_meant(&preamble) {
        return refuse(&preamble, &why);
    }
    if is("examine") {
        // A launcher that does not read it gets no message of ours.
        let _unread = fd::write(1, spoken(&preamble, &Answer::Facts(facts::line())).as_bytes());
    }
    let (seal, last_words, confirmation) = match is("sealed").then(|| step::seal_stdio(&preamble)).transpose() {
        Ok(None) => (None, None, None),
        Ok(Some((seal, last_words, confirmation))) => (Some(seal), Some(last_words), Some(confirmation)),
        Err(why) => return refuse(&preamble, &why),
    };
    let wall = rlaunch_sys::clock::wall();
    let up = Answer::Up { proof: preamble.proof().into(), pid: std::process::id(), wall };
    let mut hello = spoken(&preamble, &up).into_bytes();
    hello.extend(confirmation.into_iter().flatten());
    let streams = Streams::Stdio(last_words);
    match split_remote(&streams, (preamble.node.get(), &name(&preamble)), &hello, first_lease(&preamble)) {
        Ok(Remote { input, output, guardian, lease, temp_files, no_subreaper }) => rlaunch_agent::run(AgentSetup {
            node: preamble.node,
            edge: Edge::Halves { input, output }.sealed(seal),
            guardian,
            origin,
            temp_files,
            no_subreaper,
            lease: Some(LeaseLine::new(lease)),
        }),
        Err(error) => refuse(&preamble, &format!("it cannot start: {}", phrases::shortage(&error))),
    }
}

/// Whether the launcher means this binary.
fn is_meant(preamble: &Preamble) -> Result<(), String> {
    let ours = source::open().and_then(|file| file.metadata()).map_or(0, |meta| meta.len());
    if preamble.len != 0 && preamble.len != ours {
        return Err(format!("this binary has {ours} bytes, and one of {} was meant", preamble.len));
    }
    Ok(())
}

/// Until when the host may continue without word from the launcher.
fn first_lease(preamble: &Preamble) -> Option<u64> {
    (preamble.lease != Span::ZERO).then(|| rlaunch_sys::clock::boottime().saturating_add(preamble.lease.nanos()))
}

/// The name of a job's part on this host, by which a pool sees that something of it is left.
fn name(preamble: &Preamble) -> String {
    format!("{}-{}", preamble.job, preamble.node)
}

fn spoken(preamble: &Preamble, answer: &Answer) -> String {
    format!("{}{}\n", marker(preamble.job), answer.to_line())
}

fn refuse(preamble: &Preamble, why: &str) -> u8 {
    // A launcher that does not read it sees our exit code.
    let _unread = fd::write(1, spoken(preamble, &Answer::Refused(why.into())).as_bytes());
    rlaunch_base::exit::LAUNCH
}

fn complain(what: &str) -> u8 {
    let _unread = fd::write(2, format!("rlaunch agent: {what}\n").as_bytes());
    rlaunch_base::exit::LAUNCH
}
