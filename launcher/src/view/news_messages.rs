//! Facts that the launcher or an agent has found, in words: one line each.

use super::notices::Names;
use super::{Tone, host_messages, phrases};
use rlaunch_core::events::{Cause, JobNews};
use rlaunch_core::hostlist::fold;
use rlaunch_core::id::{NodeId, Rank};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::status::Status;
use rlaunch_core::time::Span;
use rlaunch_core::travel::Lowered;

/// The line of a fact, and the least verbose tone in which it is printed.
pub(super) fn line(news: &JobNews, names: &Names) -> (Tone, String) {
    match news {
        JobNews::PortUnreserved { port } => (Tone::Normal, port_unreserved(*port)),
        JobNews::LimitLowered { lowered, nodes } => (Tone::Normal, less(*lowered, &folded(names, nodes))),
        JobNews::OneMachine { nodes, more } => (Tone::Normal, one_machine(&names.some(nodes), *more)),
        JobNews::AddrDetour { addr, instead_of, node, missed_by } => {
            (Tone::Normal, detour(addr, instead_of, &names.short(*node), &folded(names, missed_by)))
        }
        JobNews::StoreLeft { addr } => (Tone::Normal, store_left(addr)),
        JobNews::StoreUnused { node: _, at } => (Tone::Normal, store_unused(at)),
        JobNews::StoreForeign { node: _, from } => (Tone::Normal, store_foreign(from)),
        JobNews::Continuing { rank, status } => (Tone::Quiet, format!("rank {rank} failed: {status}; {CONTINUE}")),
        JobNews::EndingDeferred { rank, status, end_in } => (Tone::Quiet, deferred(*rank, *status, *end_in)),
        JobNews::EndingAwaits { cause, kill_in } => {
            let text = format!("{}; sent SIGTERM, SIGKILL in {}", waiting(cause), phrases::wait(*kill_in));
            (Tone::Quiet, text)
        }
        JobNews::NoProgress { rank, alike } => (Tone::Quiet, no_progress(*rank, *alike)),
        JobNews::NotClear => (Tone::Quiet, NOT_CLEAR.to_owned()),
        JobNews::HostAwaited { node, within } => (Tone::Quiet, host_awaited(&names.short(*node), *within)),
        JobNews::HostsSilent { nodes, within } => (Tone::Quiet, silent(&folded(names, nodes), *within)),
        JobNews::FilesLost { bytes } => {
            (Tone::Quiet, format!("{} could not be written to log files", phrases::bytes(*bytes)))
        }
    }
}

/// The other ranks, after a failure that does not end them.
const CONTINUE: &str = "the others continue (--on-failure continue)";

const NOT_CLEAR: &str = "what is left of the ranks cannot be ended, so they are not started again";

fn folded(names: &Names, nodes: &[NodeId]) -> OsBytes {
    let names: Vec<String> = nodes.iter().map(|node| names.short(*node).to_string()).collect();
    OsBytes::from(fold(names.iter().map(String::as_str)))
}

fn port_unreserved(port: u16) -> String {
    format!("MASTER_PORT {port} is not reserved against other jobs: all names for ports are taken on this host")
}

fn store_left(addr: &OsBytes) -> String {
    format!("{addr} is no address of the host of rank 0 itself: the TCPStore is left to rank 0")
}

fn store_foreign(from: &OsBytes) -> String {
    format!(
        "{from} asked the store and was refused: no host of the job has that address; if they are translated between hosts (NAT): \
         --master-store rank0, or, where nobody else can reach that port, --store-guard off"
    )
}

fn store_unused(at: &OsBytes) -> String {
    format!("nobody uses the store at {at}; if the program sets its own port: --master-store rank0")
}

fn deferred(rank: Rank, status: Status, end_in: Span) -> String {
    let wait = phrases::wait(end_in);
    format!("rank {rank} was killed by the {status} that rlaunch passed on; the others have {wait} to finish")
}

fn no_progress(rank: Rank, alike: u32) -> String {
    format!("rank {rank} failed at once {alike} times in a row, each time in the same way: no restart will help")
}

fn host_awaited(host: &OsBytes, within: Span) -> String {
    let within = phrases::wait(within);
    format!("{host} cannot be asked any more: its lease ends its ranks, within {within} at the latest")
}

fn less(Lowered { on, to }: Lowered, hosts: &OsBytes) -> String {
    let most = phrases::limit(on, to);
    format!("limit {} is {most} on {hosts}, and not what it is here: more is not allowed there", on.name())
}

fn silent(hosts: &OsBytes, within: Span) -> String {
    let (hosts, within) = (host_messages::beginning(hosts.to_string()), phrases::wait(within));
    format!("waiting for {hosts}: nothing is heard from there, and leases end the ranks within {within} at the latest")
}

/// Whether that was meant, only the user knows.
fn one_machine(hosts: &str, more: u32) -> String {
    let more = match more {
        0 => String::new(),
        more => format!(", and so it is with {}", phrases::count(more.into(), "other machine")),
    };
    format!("{hosts} are one machine: under each name its ranks begin with LOCAL_RANK 0{more}")
}

fn detour(addr: &OsBytes, instead_of: &OsBytes, to: &OsBytes, hosts: &OsBytes) -> String {
    let hosts = host_messages::beginning(hosts.to_string());
    format!(
        "MASTER_ADDR is {addr}: {instead_of} of {to} is not reached from {hosts}; --interface NAME saves the time to find out"
    )
}

/// Why ranks are being ended; the closing report tells it all.
fn waiting(cause: &Cause) -> String {
    match cause {
        Cause::Rank { rank, status } => format!("rank {rank} failed ({status}), waiting for the others to end"),
        Cause::Timeout(limit) => format!("--timeout {} ran out, waiting for ranks to end", phrases::wait(*limit)),
        Cause::Success
        | Cause::Spawn { .. }
        | Cause::Refused { .. }
        | Cause::Unreachable { .. }
        | Cause::Signal(_)
        | Cause::ReaderClosed(_)
        | Cause::Lost { .. } => "waiting for ranks to end".into(),
    }
}
