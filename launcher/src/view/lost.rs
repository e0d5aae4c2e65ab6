//! Parts of rlaunch and hosts that were lost, as text, and where to look for the reason.

use super::report::host;
use super::{host_messages, phrases};
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::shell::quoted;
use rlaunch_base::signal::Signal;
use rlaunch_core::events::{CloseReason, Lost};
use rlaunch_core::report::Report;
use rlaunch_plan::bootstrap::{CarrierEnd, CarrierKind};

/// The commands of Slurm that know why a job or step has ended.
pub(super) const ASK_SLURM: &str =
    "sacct -j $SLURM_JOB_ID or scontrol show job $SLURM_JOB_ID, for the state and the reason";

/// The pool whose end explains the loss of a host: its connections have ended.
pub(super) fn lost_pool(report: &Report, lost: Lost) -> Option<&OsBytes> {
    let is_silence = matches!(lost, Lost::NoHeartbeat | Lost::Expired | Lost::Agent(_) | Lost::AgentMute);
    report.lost_pool.as_ref().filter(|_| is_silence)
}

/// The part that was lost on a host.
pub(crate) fn on_host(report: &Report, node: NodeId, lost: Lost) -> String {
    on_hosts(report, &[node], lost)
}

/// The part that was lost on a host, or on several hosts with the same fate.
pub(super) fn on_hosts(report: &Report, nodes: &[NodeId], lost: Lost) -> String {
    let is_single = nodes.len() < 2;
    let host = match nodes {
        [node] => host(report, *node),
        nodes => host_messages::list(report, nodes),
    };
    match lost {
        Lost::Warned(source) => format!("{host} is about to be taken away: {source}"),
        Lost::Agent(why) => closed(&host, is_single, why),
        Lost::AgentEarly if is_single => format!("the agent on {host} ended before its ranks"),
        Lost::AgentEarly => format!("the agents on {host} ended before their ranks"),
        Lost::AgentMute if is_single => format!("the agent on {host} does not answer"),
        Lost::AgentMute => format!("the agents on {host} do not answer"),
        // A frozen host looks like a host that is off.
        Lost::NoHeartbeat if is_single => {
            format!(
                "lost contact with {host}: no heartbeat before its lease expired; its guardian killed its ranks, or the host is down"
            )
        }
        Lost::NoHeartbeat => format!(
            "lost contact with {host}: no heartbeat before their leases expired; their guardians killed their ranks, or the hosts are down"
        ),
        Lost::Expired if is_single => {
            format!(
                "no heartbeat from here reached {host}, or its agent was suspended; its guardian killed its ranks when its lease expired"
            )
        }
        Lost::Expired => {
            format!(
                "no heartbeat from here reached {host}, or their agents were suspended; their guardians killed their ranks when their leases expired"
            )
        }
        Lost::Starved(long) => {
            let long = phrases::wait(long);
            let killed = if is_single { "the guardian of" } else { "the guardians of" };
            let limit = suspend_limit(report);
            format!(
                "rlaunch was suspended for {long}, longer than {limit} allows; {killed} {host} killed the ranks there"
            )
        }
        Lost::Guardian if is_single => format!("the guardian on {host} was lost (it was killed or crashed)"),
        Lost::Guardian => format!("the guardians on {host} were lost (they were killed or crashed)"),
        Lost::Init => format!("the first process of the PID namespace on {host} was lost (it was killed or crashed)"),
    }
}

/// The option with the longest time that rlaunch may be suspended: schedulers announce that they suspend a job.
const fn suspend_limit(report: &Report) -> &'static str {
    if report.was_suspended { "--suspend-limit" } else { "--lease" }
}

/// An edge ended before the job did.
fn closed(host: &str, is_single: bool, why: CloseReason) -> String {
    let (agents, were) = if is_single { ("agent", "was") } else { ("agents", "were") };
    let agent = |why: &str| format!("the {agents} on {host} {were} lost ({why})");
    match why {
        CloseReason::Eof => agent("it was killed or crashed"),
        CloseReason::Malformed => agent("it sent something that is no message"),
        CloseReason::Slow => agent("it stopped reading its messages"),
        CloseReason::Failed { errno } => agent(&phrases::errno(errno)),
        CloseReason::Carrier(CarrierKind::Srun, end) => {
            format!("srun ended ({end}), and with it the {agents} on {host}")
        }
        CloseReason::Carrier(kind, CarrierEnd::Signal(number)) => match Signal::new(number) {
            Some(sig) => format!("{kind} to {host} was killed by {sig}"),
            None => format!("{kind} to {host} was killed"),
        },
        // The code of ssh itself for a lost connection, and for a command that died of a signal.
        CloseReason::Carrier(kind, CarrierEnd::Code(code)) => {
            format!("the connection to {host}, or the guardian there, was lost ({kind} exited with {code})")
        }
    }
}

/// The place of the reason of a loss that ended the job.
pub(super) fn next_step(report: &Report, node: NodeId, lost: Lost) -> Option<String> {
    let by_kernel = || format!("{}, for processes that the kernel killed", there(report, node, "dmesg -T"));
    let is_up = || format!("{}, to see whether the host is up, and since when", there(report, node, "uptime"));
    if let Some(pool) = lost_pool(report, lost) {
        return Some(format!("rlaunch pool up {pool} -H LIST"));
    }
    match lost {
        Lost::Agent(CloseReason::Eof) => {
            phrases::more_memory(rlaunch_sys::facts::limits::soft("as").flatten()).or_else(|| Some(by_kernel()))
        }
        Lost::AgentEarly | Lost::Guardian | Lost::Init => Some(by_kernel()),
        Lost::Agent(CloseReason::Malformed) => {
            Some(format!("{}, which must print nothing", there(report, node, "true")))
        }
        Lost::Agent(CloseReason::Carrier(CarrierKind::Srun, _)) => Some(ASK_SLURM.to_owned()),
        Lost::Agent(CloseReason::Carrier(_, CarrierEnd::Signal(_))) | Lost::Warned(_) => None,
        Lost::Agent(CloseReason::Slow | CloseReason::Failed { .. } | CloseReason::Carrier(_, CarrierEnd::Code(_)))
        | Lost::AgentMute
        | Lost::NoHeartbeat => Some(is_up()),
        Lost::Starved(_) if report.was_suspended => Some("a longer --suspend-limit".to_owned()),
        Lost::Expired | Lost::Starved(_) => Some("a longer --lease, if the network or a host pauses".to_owned()),
    }
}

/// The name of a host for a command, with the user and without the port.
fn name(report: &Report, node: NodeId) -> String {
    let name = host(report, node);
    name.split(' ').next().unwrap_or_default().to_owned()
}

/// A command for a host.
fn there(report: &Report, node: NodeId, command: &str) -> String {
    let name = name(report, node);
    let is_here = report.start.as_ref().is_none_or(|start| start.host == OsBytes::from(name.as_str()));
    if is_here { command.to_owned() } else { format!("ssh {} {command}", quoted(name.as_bytes())) }
}
