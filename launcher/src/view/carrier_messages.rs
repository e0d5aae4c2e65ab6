//! Lines about the carriers of the agents.

use super::log_view::{Line, Names};
use super::{Tone, phrases};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::bootstrap::{CarrierEnd, CarrierNews, FallBack, Refusal};

/// The line of a fact, and the least verbose tone in which it is printed.
pub(super) fn news(news: &CarrierNews, names: &Names) -> Line {
    match news {
        CarrierNews::FellBack { nodes, why } => fell_back(&names.folded(nodes), why),
        CarrierNews::StepWaits { words } => {
            (Tone::Normal, format!("no agent has started yet; {}", phrases::last_line(words)))
        }
        CarrierNews::SrunEnded { end, words, .. } => (Tone::Quiet, srun_ended(*end, words)),
        CarrierNews::StrangerRefused { address, why } => (Tone::Quiet, stranger_refused(address, *why)),
    }
}

/// The end of srun before that of the job, with its last lines.
fn srun_ended(end: CarrierEnd, words: &OsBytes) -> String {
    let words = if words.is_empty() { String::new() } else { format!(": {words}") };
    format!("srun ended before the job ({end}){words}")
}

fn fell_back(hosts: &OsBytes, why: &FallBack) -> Line {
    match why {
        FallBack::Absent => {
            (Tone::Verbose, format!("{hosts}: rlaunch is not installed there; sending it by one srun per host"))
        }
        FallBack::Unconnected { reason } => (
            Tone::Normal,
            format!("{hosts}: agents cannot connect to this host ({reason}); using the slower streams of srun{STDIO}"),
        ),
        FallBack::Silent { waited, words } => {
            let waited = phrases::wait(*waited);
            let words = if words.is_empty() { String::new() } else { format!(" ({})", phrases::last_line(words)) };
            (
                Tone::Normal,
                format!(
                    "{hosts}: no agent has connected to this host within {waited}{words}; using the slower streams of srun{STDIO}"
                ),
            )
        }
    }
}

/// The way out where agents cannot connect.
const STDIO: &str = "\n  try     --transport stdio, which uses these streams at once";

/// A connection that is no agent's. It may be a port scan, or an attack.
fn stranger_refused(address: &OsBytes, why: Refusal) -> String {
    let why = match why {
        Refusal::TooMany => "newer connections have taken its place",
        Refusal::Silent => "it has sent no complete hello within 2 s",
        Refusal::Foreign => "it is no agent of this job",
        Refusal::UnknownHost => "it names a host that is not in this job",
        Refusal::Twice => "the agent of its host has connected before",
        Refusal::WrongKey => "it does not know the key of its host",
        Refusal::Ended => "it has ended before its hello",
    };
    format!("refused a connection from {address} to the port for agents: {why}")
}
