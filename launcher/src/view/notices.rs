//! Messages of rlaunch while a job runs. One line each, and another with the way out where the user has one.

use super::log_view::{Line, Names};
use super::{
    Tone, binding, carrier_messages, device_messages, host_messages, lost, mpi_messages, phrases, preemption,
    slice_messages, store_messages,
};
use rlaunch_base::id::{NodeId, Rank, Std};
use rlaunch_base::os_bytes::{OsBytes, Visible};
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::Span;
use rlaunch_core::events::{Answer, Cause, Fewer, JobNews, Lost, RanksState, RestartCause, SinkEnd, What, WorldLine};
use rlaunch_core::report::Report;
use rlaunch_plan::bootstrap::CarrierKind;
use rlaunch_protocol::settings::OnFailure;
use rlaunch_protocol::travel::Lowered;
use rlaunch_protocol::wire::node_news::NodeNews;
use rlaunch_protocol::wire::to_root::Hello;

/// The sender of a signal that rlaunch got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// A key of our terminal.
    Key,
    /// Any process that may send us one.
    Sender,
}

/// Facts of which the user knows, and that are reported once.
#[derive(Debug, Default)]
pub(super) struct Reported {
    store: store_messages::Reported,
    pub(super) mpi: mpi_messages::Reported,
    /// Whether the note about CPUs that ranks share was printed: it is much the same on other hosts.
    shared_cpus: bool,
    /// A world had more ranks than there were free slots.
    crowded: bool,
    /// Processes that ranks had left running were named: those of other hosts are much the same.
    left_ended: bool,
    /// The job would have more hosts with `--lead`.
    pub(super) lead_has_more: bool,
    /// The user has asked for files to be removed (`rlaunch clean`).
    pub(super) cleans: bool,
}

/// The last words of an ssh or srun of one host that ended before the job did.
pub(crate) fn carrier_said(kind: CarrierKind, host: &str, words: &[u8]) -> String {
    let lines = words.split(|b| *b == b'\n');
    lines.map(|line| format!("rlaunch: {kind} to {host} printed: {}\n", Visible(line))).collect()
}

/// The message about bytes of a host among the messages of its agent.
pub(crate) fn no_message(host: &str, bytes: &[u8]) -> String {
    let text =
        bytes.split(|b| b.is_ascii_control() && !b.is_ascii_whitespace()).next().unwrap_or_default().trim_ascii();
    // A frame that came too early, say, has no text.
    let shown = if text.is_empty() { bytes.get(..16).unwrap_or(bytes) } else { text };
    format!(
        "rlaunch: {host} printed unexpected text among the messages of its agent: '{}'\n  try     shell start-up files that \
         print nothing without a terminal\n",
        Visible(shown)
    )
}

/// The event log cannot be written.
pub(crate) fn log_failed(errno: i32) -> String {
    format!("rlaunch: cannot write the event log: {}; the job continues without it\n", phrases::errno(errno))
}

/// The line of a fact, and the least verbose tone in which it is printed.
pub(super) fn news(news: &JobNews, names: &Names) -> Line {
    match news {
        JobNews::PortUnreserved { port } => (Tone::Normal, port_unreserved(*port)),
        JobNews::LimitLowered { lowered, nodes } => (Tone::Normal, less(*lowered, &names.folded(nodes))),
        JobNews::OneMachine { nodes, more } => (Tone::Normal, one_machine(&names.some(nodes), *more)),
        JobNews::AddrDetour { addr, instead_of, node, missed_by } => {
            (Tone::Normal, detour(addr, instead_of, &names.short(*node), &names.folded(missed_by)))
        }
        JobNews::StoreLeft { addr } => (Tone::Normal, store_left(addr)),
        JobNews::SchedulerSignal { scheduler, sig: Signal::TERM, .. } => {
            (Tone::Verbose, format!("{scheduler} has sent SIGTERM"))
        }
        JobNews::SchedulerSignal { scheduler, sig: Signal::TSTP, .. } => {
            (Tone::Normal, format!("{scheduler} suspends the job"))
        }
        JobNews::SchedulerSignal { scheduler, sig: Signal::CONT, .. } => {
            (Tone::Normal, format!("{scheduler} has resumed the job"))
        }
        JobNews::SchedulerSignal { scheduler, sig, .. } => {
            (Tone::Quiet, format!("{scheduler} sent {sig} (--signal or scancel -s); each rank gets it once"))
        }
        JobNews::HostWarned { node, source, response } => {
            (Tone::Quiet, preemption::warned(&names.short(*node), *source, *response))
        }
        JobNews::Carrier(news) => carrier_messages::news(news, names),
        JobNews::Continuing { rank, status } => (Tone::Quiet, continuing(names.report(), *rank, *status)),
        JobNews::LeadContinues { node, lost } => {
            (Tone::Quiet, format!("{}; {LED}", lost::on_host(names.report(), *node, *lost)))
        }
        JobNews::EndingDeferred { rank, status, end_in } => (Tone::Quiet, deferred(*rank, *status, *end_in)),
        JobNews::EndingAwaits { cause, kill_in } => {
            let text = format!("{}; sent SIGTERM, SIGKILL in {}", waiting(cause), phrases::wait(*kill_in));
            (Tone::Quiet, text)
        }
        JobNews::NoProgress { rank, alike } => (Tone::Quiet, no_progress(*rank, *alike)),
        JobNews::NotClear => (Tone::Quiet, NOT_CLEAR.to_owned()),
        JobNews::NotStartedAgain { why } => (Tone::Quiet, preemption::not_started_again(why)),
        JobNews::HostAwaited { node, within } => (Tone::Quiet, host_awaited(&names.short(*node), *within)),
        JobNews::HostsSilent { nodes, within } => (Tone::Quiet, silent(&names.folded(nodes), *within)),
        JobNews::MpiApart { ranks, library, is_served } => {
            (Tone::Quiet, mpi_messages::apart(*ranks, library, *is_served))
        }
        JobNews::Slices(news) => slice_messages::news(news, names),
        JobNews::PoolLost { pool } => {
            (Tone::Quiet, format!("the pool {pool} is gone, and its connections to the hosts with it"))
        }
        JobNews::FilesLost { bytes } => {
            (Tone::Quiet, format!("{} could not be written to log files", phrases::bytes(*bytes)))
        }
    }
}

/// The line of a fact that an agent reports, and the least verbose tone in which it is printed. `None`: only the log has it.
pub(super) fn node_news(
    node: NodeId,
    news: &NodeNews,
    host: &OsBytes,
    names: &Names,
    reported: &mut Reported,
) -> Option<Line> {
    match news {
        NodeNews::Store(news) => store_messages::news(news, host, names, &mut reported.store),
        NodeNews::FileFailed { errno, path } => Some((Tone::Quiet, file_failed(path, host, *errno))),
        NodeNews::Binding(news) => Some(binding::news(news, host, &mut reported.shared_cpus)),
        NodeNews::WarningNote(note) => Some(preemption::note(host, note)),
        NodeNews::Devices(news) => Some(device_messages::news(news, host, reported.cleans)),
        NodeNews::LeftEnded { count, pid, comm } => {
            let is_first = !core::mem::replace(&mut reported.left_ended, true);
            let tone = if is_first { Tone::Normal } else { Tone::Verbose };
            Some((tone, left_ended(host, *count, *pid, comm)))
        }
        NodeNews::Mpi(news) => mpi_messages::news(node, news, names, &mut reported.mpi),
    }
}

/// The other ranks, after a failure that does not end them.
const CONTINUE: &str = "the others continue (--on-failure continue)";
/// The same in a job that another program leads.
const LED: &str = "the others continue (--lead)";

/// The option that gives a spawned world more slots.
const LEAD: &str = "\n  try     --lead, with which all hosts of -H, the pool or the allocation are hosts of the job";

const NOT_CLEAR: &str = "some processes of the ranks cannot be killed; the ranks are not started again";

fn port_unreserved(port: u16) -> String {
    format!("MASTER_PORT {port} could not be reserved; another job on this host may use the same port")
}

fn store_left(addr: &OsBytes) -> String {
    format!("MASTER_ADDR {addr} is no address of rank 0's host; rank 0 holds the TCPStore itself")
}

fn left_ended(host: &OsBytes, count: u32, pid: u32, comm: &OsBytes) -> String {
    match count {
        1 => format!("ended a process on {host} that a rank had left running: {comm}, pid {pid}"),
        _ => format!("ended {count} processes on {host} that ranks had left running; the first: {comm}, pid {pid}"),
    }
}

/// Ranks of a world that was started meanwhile have no slots of their own. A program may start many such worlds.
pub(super) fn crowded(line: &WorldLine, reported: &mut Reported) -> Option<Line> {
    let is_first = line.is_crowded && !std::mem::replace(&mut reported.crowded, true);
    let hint = if reported.lead_has_more { LEAD } else { "" };
    let text = || format!("{} has more ranks than there are free slots: ranks share processors{hint}", line.group);
    is_first.then(|| (Tone::Normal, text()))
}

fn continuing(report: &Report, rank: Rank, status: Status) -> String {
    let is_asked_for = report.start.as_ref().is_some_and(|start| start.on_failure == OnFailure::Continue);
    let why = if is_asked_for { CONTINUE } else { LED };
    format!("{} failed: {status}; {why}", phrases::rank(report, rank))
}

fn deferred(rank: Rank, status: Status, end_in: Span) -> String {
    let wait = phrases::wait(end_in);
    format!("rank {rank} was killed by the {status} that rlaunch passed on; the others have {wait} to finish")
}

fn no_progress(rank: Rank, alike: u32) -> String {
    format!("rank {rank} failed at once {alike} times in a row in the same way; the ranks are not started again")
}

fn host_awaited(host: &OsBytes, within: Span) -> String {
    let within = phrases::wait(within);
    format!("lost contact with {host}; its lease ends its ranks within {within}")
}

fn less(Lowered { on, to }: Lowered, hosts: &OsBytes) -> String {
    let most = phrases::limit(on, to);
    format!("limit {} is {most} on {hosts}, lower than on this host: more is not allowed there", on.name())
}

fn silent(hosts: &OsBytes, within: Span) -> String {
    let (hosts, within) = (host_messages::beginning(hosts.to_string()), phrases::wait(within));
    format!("no answer from {hosts}; waiting up to {within} until leases have ended the ranks there")
}

/// Whether that was meant, only the user knows.
fn one_machine(hosts: &str, more: u32) -> String {
    let more = match more {
        0 => String::new(),
        more => format!(" ({} too)", phrases::count(more.into(), "other machine")),
    };
    format!(
        "{hosts} are names of one machine{more}; the ranks of each name begin with LOCAL_RANK 0\n  \
         try     -H NAME:SLOTS, with one name for each machine"
    )
}

fn detour(addr: &OsBytes, instead_of: &OsBytes, to: &OsBytes, hosts: &OsBytes) -> String {
    let hosts = host_messages::beginning(hosts.to_string());
    format!(
        "MASTER_ADDR is {addr}, because {hosts} cannot reach {instead_of} of {to}\n  \
         try     --interface NAME, which skips this test"
    )
}

/// The reason why ranks are being ended; the closing report has the details.
fn waiting(cause: &Cause) -> String {
    match cause {
        Cause::Rank { rank, status } => format!("rank {rank} failed ({status}), waiting for the others to end"),
        Cause::Timeout { limit } => format!("--timeout {} ran out, waiting for ranks to end", phrases::wait(*limit)),
        _ => "waiting for ranks to end".into(),
    }
}

/// The countdown, where a signal began the ending.
pub(super) fn ending(cause: &Cause, grace: Span, ranks: &RanksState, names: &Names, by: By) -> Option<Line> {
    let (sig, key) = match *cause {
        Cause::Signal(sig) => (sig, key(sig, by)),
        Cause::Scheduler { scheduler, sig } => (sig, format!("{scheduler} ends the job: ")),
        _ => return None,
    };
    let text = match ranks {
        RanksState::Exited => return None,
        RanksState::Between => format!("{key}no rank runs, and none is started again"),
        RanksState::NotStarted { awaited } => {
            let awaited = host_messages::beginning(names.folded(awaited).to_string());
            format!("{key}nothing was started; was waiting for {awaited}")
        }
        RanksState::Running if grace.nanos() == 0 => format!("{key}sent {sig}, then SIGKILL"),
        RanksState::Running if matches!(cause, Cause::Scheduler { .. }) => {
            format!("{key}{sig}, SIGKILL in {}", phrases::wait(grace))
        }
        RanksState::Running => {
            format!("{key}sent {sig}, SIGKILL in {}; {} again to kill now", phrases::wait(grace), verb(sig, by))
        }
    };
    Some((Tone::Quiet, text))
}

/// The consequence of the failure of a rank, or of the loss of a host, where all are started again.
pub(super) fn restart(what: &What, names: &Names) -> String {
    let What::Restart { restart, why, lived: _, delay, fewer } = what else {
        return String::new();
    };
    let when = if delay.nanos() == 0 { "now".to_owned() } else { format!("in {}", phrases::wait(*delay)) };
    let cause = match why {
        RestartCause::Failed { rank, node, status, lost } => {
            let by = lost.map(|_| names.given(*node)).unwrap_or_default();
            match lost {
                _ if by.is_empty() => format!("rank {rank} failed: {status}"),
                Some(Lost::Warned(_)) => format!("{by} is taken away"),
                Some(_) | None => format!("{by} is lost"),
            }
        }
        RestartCause::Grown { size, .. } => format!("{size} slices are up"),
    };
    let ranks = match fewer.as_deref() {
        None => "all ranks are".to_owned(),
        Some(Fewer { without, ranks }) => {
            let are = if *ranks == 1 { "is" } else { "are" };
            let without = names.folded(without);
            format!("without {without} {} {are}", phrases::count((*ranks).into(), "rank"))
        }
    };
    // The first start is the launch. Only failures count for --max-restarts.
    let start = restart.saturating_add(1);
    let used = match why.is_failure() {
        false => String::new(),
        true => format!("; {} of {} restarts used", names.failures().max(1), names.max_restarts()),
    };
    format!("{cause}; {ranks} started again {when} (start {start}{used})")
}

/// Missing output. `unread`: the job ends because its output has no reader, so this is no news.
pub(super) fn output_end(lost: u64, broken: u64, unread: bool) -> Vec<Line> {
    let mut lines = Vec::new();
    if broken > 0 {
        let were = phrases::count_was(broken, "line");
        lines.push((Tone::Normal, format!("{were} broken because another rank waited")));
    }
    if lost > 0 && !unread {
        lines.push((Tone::Quiet, format!("{} of output could not be written", phrases::bytes(lost))));
    }
    lines
}

/// The guarantee that nothing is left behind, where it is not the strongest and was not asked for.
pub(super) fn containment(hello: &Hello) -> Option<Line> {
    let Hello { tier, note, usual, .. } = hello;
    let is_worth_it = !note.is_empty() && !usual;
    is_worth_it.then(|| (Tone::Normal, format!("containment {}: {note}", phrases::tier(*tier))))
}

/// To a user who wants to end what ends.
const ENDING: &str = "the job is ending already";

/// The effect of a signal, where that of the ending does not show it.
pub(super) fn signal(sig: Signal, answer: Answer, by: By) -> Option<String> {
    let (key, verb) = (key(sig, by), verb(sig, by));
    match answer {
        Answer::Noted { kill_in: Some(kill_in) } => {
            let wait = phrases::wait(kill_in);
            Some(format!("{key}{ENDING}, SIGKILL in {wait}; {verb} again to kill now"))
        }
        Answer::Noted { kill_in: None } => Some(format!("{key}{ENDING}, SIGKILL was sent")),
        Answer::Unwritten { patience } => {
            let wait = phrases::wait(patience);
            Some(format!("{key}all ranks have exited; output without a reader is dropped after {wait}"))
        }
        Answer::Killed => Some(format!("{key}sent SIGKILL; {verb} again to leave at once")),
        Answer::Left => Some(format!("{key}leaving now; the guardian ends the remaining processes")),
        Answer::Ended | Answer::Forwarded | Answer::Ignored => None,
    }
}

pub(super) fn sink_lost(std: Std, errno: Option<i32>, end: SinkEnd) -> Option<String> {
    let errno = errno.unwrap_or_default();
    match end {
        SinkEnd::Unread { ends_job: true } => {
            Some(format!("the reader of {} has closed it; the job ends", phrases::std(std)))
        }
        SinkEnd::Unread { ends_job: false } => None,
        SinkEnd::HungUp => {
            Some(format!("the terminal of {} has hung up; the job continues without it", phrases::std(std)))
        }
        SinkEnd::ReadFailed => Some(no_input("read", errno)),
        SinkEnd::Undelivered => Some(no_input("passed on", errno)),
        SinkEnd::WriteFailed => {
            let errno = phrases::errno(errno);
            Some(format!("cannot write to {}: {errno}; the job continues without it", phrases::std(std)))
        }
    }
}

fn file_failed(path: &OsBytes, host: &OsBytes, errno: i32) -> String {
    format!("cannot write the log file {path} on {host}: {}; the job continues", phrases::errno(errno))
}

fn no_input(what: &str, errno: i32) -> String {
    let why = phrases::shortage(&std::io::Error::from_raw_os_error(errno));
    let hint = phrases::way_out(errno).map(|hint| format!("\n  try     {hint}")).unwrap_or_default();
    format!("standard input cannot be {what}: {why}; rank 0 gets end of file{hint}")
}

/// The user's action, where it is known.
fn key(sig: Signal, by: By) -> String {
    match (sig, by) {
        (Signal::INT, By::Key) => "Ctrl-C: ".into(),
        (Signal::QUIT, By::Key) => "Ctrl-\\: ".into(),
        (sig, By::Key | By::Sender) => format!("got {sig}: "),
    }
}

/// How it is done again.
const fn verb(sig: Signal, by: By) -> &'static str {
    match (sig, by) {
        (Signal::INT | Signal::QUIT, By::Key) => "press",
        _ => "send it",
    }
}
