//! The event log on stderr: which records of it the user reads while the job runs, and when it has ended. One line each, except the
//! closing report.

use super::{Tone, host_messages, limit, news_messages, path_search, phrases, report, round_messages};
use rlaunch_core::events::{Answer, Cause, Fewer, RanksState, Record, SinkEnd, Tried, What};
use rlaunch_core::hostlist::fold;
use rlaunch_core::id::{NodeId, Std};
use rlaunch_core::os_bytes::{OsBytes, Visible};
use rlaunch_core::report::Report;
use rlaunch_core::restart::Given;
use rlaunch_core::signal::Signal;
use rlaunch_core::spec::Tier;
use rlaunch_core::time::Span;
use rlaunch_core::wire::limit::Limit;
use rlaunch_core::wire::to_root::Hello;
use std::collections::BTreeSet;

/// The sender of a signal that rlaunch got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// A key of our terminal.
    Key,
    /// Any process that may send us one.
    Sender,
}

/// Names of hosts.
pub(crate) struct Names {
    /// By node: without user and port.
    short: Vec<String>,
    /// The records so far, which have the names as the user wrote them.
    report: Report,
}

impl Names {
    /// The name of a host, without user and port.
    pub(super) fn short(&self, node: NodeId) -> OsBytes {
        self.short.get(node.index()).map(|name| OsBytes::from(name.as_str())).unwrap_or_default()
    }

    /// The name of a host, as the user wrote it.
    fn given(&self, node: NodeId) -> OsBytes {
        let hosts = self.report.start.as_ref().map(|start| start.hosts.as_slice()).unwrap_or_default();
        hosts.get(node.index()).cloned().unwrap_or_default()
    }

    /// Names of hosts as the user wrote them, as far as a line goes.
    pub(super) fn some(&self, nodes: &[NodeId]) -> String {
        host_messages::some(&self.report, nodes)
    }
}

/// The view of the event log on stderr.
pub(crate) struct Notices {
    names: Names,
    tone: Tone,
    /// Stderr is a terminal.
    terminal: bool,
    /// Limits of the store of which the user knows.
    limits: BTreeSet<Limit>,
    /// The job ends because its output has no reader: unwritten output is no news then.
    unread: bool,
}

/// A text, and the least verbose tone in which it is printed. Notes that explain how a job runs are for [`Tone::Normal`]. Messages that
/// something went wrong, or that answer the user, are for all tones.
type Line = (Tone, String);

impl Notices {
    /// `names`: of the hosts, by node, without user and port.
    pub(crate) fn new(names: impl IntoIterator<Item = String>, tone: Tone, terminal: bool) -> Self {
        let names = Names { short: names.into_iter().collect(), report: Report::default() };
        Self { names, tone, terminal, limits: BTreeSet::new(), unread: false }
    }

    /// The text of a record, with its newlines; empty: it has none in this tone. `by`: the sender of the last signal.
    pub(crate) fn text(&mut self, record: &Record, by: By) -> String {
        self.names.report.add(record);
        if matches!(record.what, What::JobEnd { .. }) {
            let report = &self.names.report;
            let around = path_search::look(report);
            let is_shown = report::is_shown(report, self.tone, self.terminal);
            return if is_shown { phrases::short_lines(report::render(report, &around)) } else { String::new() };
        }
        let lines = self.lines(record, by);
        let shown = lines.into_iter().filter(|(least, _)| self.tone >= *least);
        shown.map(|(_, line)| phrases::short_lines(format!("rlaunch: {line}\n"))).collect()
    }

    /// The lines of a record, in every tone. A new record is decided on here.
    fn lines(&mut self, record: &Record, by: By) -> Vec<Line> {
        let line = match &record.what {
            What::HostReady { hello, .. } => containment(hello),
            What::LeftOut { is_known, .. } => {
                (!is_known).then(|| (Tone::Quiet, host_messages::left_out(&self.names.report)))
            }
            What::StoreLimit { node, met, .. } => {
                let is_first = self.limits.insert(met.limit);
                is_first.then(|| (Tone::Quiet, limit::met(&self.names.given(*node), met)))
            }
            What::FileFailed { node, errno, path } => {
                Some((Tone::Quiet, file_failed(path, &self.names.given(*node), *errno)))
            }
            What::RankFailed { rank, node, error, tried } => match tried {
                Tried::First => None,
                Tried::Again { several_hosts } => {
                    let host = Some(*node).filter(|_| *several_hosts);
                    Some((Tone::Quiet, round_messages::unable(*rank, &self.host(host), error)))
                }
            },
            What::Signal { sig, answer } => signal(*sig, *answer, by).map(|text| (Tone::Quiet, text)),
            What::Ending { cause, grace, ranks, .. } => self.ending(cause, *grace, ranks, by),
            What::Restart { .. } => Some((Tone::Quiet, self.restart(&record.what))),
            What::Round { node, note } => {
                let text = round_messages::line(record.generation, &self.host(*node), note, self.tone);
                Some((round_messages::least(note), text))
            }
            What::RoundsOver(given) => match &**given {
                Given::Done => None,
                Given::Up { text, .. } => {
                    Some((Tone::Quiet, round_messages::given_up(record.generation, record.round, text)))
                }
            },
            What::SinkLost { std, errno, end } => sink_lost(*std, *errno, *end).map(|text| (Tone::Quiet, text)),
            What::OutputEnd { lost, broken } => return self.output_end(*lost, *broken),
            What::News(news) => Some(news_messages::line(news, &self.names)),
            // The closing report has them, or they are the ordinary course of a job.
            What::JobStart(_)
            | What::HostRefused { .. }
            | What::HostFailed { .. }
            | What::HostLost { .. }
            | What::HostDone { .. }
            | What::Together { .. }
            | What::StoreRefused { .. }
            | What::FileLost { .. }
            | What::RankStarted { .. }
            | What::RankExited { .. }
            | What::RankFacts { .. }
            | What::Clearing { .. }
            | What::StreamEnd { .. }
            | What::LogLost { .. }
            | What::JobEnd { .. } => None,
        };
        line.into_iter().collect()
    }

    /// The name of a host; empty: there is only one.
    fn host(&self, node: Option<NodeId>) -> OsBytes {
        node.map(|node| self.names.short(node)).unwrap_or_default()
    }

    /// The countdown, where a signal began the ending.
    fn ending(&mut self, cause: &Cause, grace: Span, ranks: &RanksState, by: By) -> Option<Line> {
        self.unread = matches!(cause, Cause::ReaderClosed(_));
        let Cause::Signal(sig) = *cause else { return None };
        let key = key(sig, by);
        let text = match ranks {
            RanksState::Exited => return None,
            RanksState::Between => format!("{key}nothing runs, and nothing is started again"),
            RanksState::NotStarted { awaited } => {
                let names: Vec<String> = awaited.iter().map(|node| self.names.short(*node).to_string()).collect();
                let awaited = host_messages::beginning(fold(names.iter().map(String::as_str)));
                format!("{key}nothing was started; still waited for: {awaited}")
            }
            RanksState::Running if grace.nanos() == 0 => format!("{key}sent {sig}, then SIGKILL"),
            RanksState::Running => {
                format!("{key}sent {sig}, SIGKILL in {}; {} again to kill now", phrases::wait(grace), verb(sig, by))
            }
        };
        Some((Tone::Quiet, text))
    }

    /// The consequence of the failure of a rank, or of the loss of a host, where all are started again.
    fn restart(&self, what: &What) -> String {
        let What::Restart { restart, rank, node, status, lost, lived: _, delay, fewer } = what else {
            return String::new();
        };
        let when = if delay.nanos() == 0 { "now".to_owned() } else { format!("in {}", phrases::wait(*delay)) };
        let (why, ranks) = match fewer.as_deref() {
            None => (format!("rank {rank} failed: {status}"), "all ranks are".to_owned()),
            Some(Fewer { without, ranks }) => {
                let are = if *ranks == 1 { "is" } else { "are" };
                let names: Vec<String> = without.iter().map(|node| self.names.short(*node).to_string()).collect();
                let without = fold(names.iter().map(String::as_str));
                let ranks = format!("without {without} {} {are}", phrases::count((*ranks).into(), "rank"));
                let by = lost.map(|_| self.names.given(*node)).unwrap_or_default();
                let why = if by.is_empty() { format!("rank {rank} failed: {status}") } else { format!("{by} is lost") };
                (why, ranks)
            }
        };
        let most = self.names.report.start.as_ref().map_or(0, |start| start.restarts.most);
        format!("{why}; {ranks} started again {when} (restart {restart} of {most})")
    }

    fn output_end(&self, lost: u64, broken: u64) -> Vec<Line> {
        let mut lines = Vec::new();
        if broken > 0 {
            let were = phrases::count_was(broken, "line");
            lines.push((Tone::Normal, format!("{were} broken because another rank waited")));
        }
        if lost > 0 && !self.unread {
            lines.push((Tone::Quiet, format!("{} of output could not be written", phrases::bytes(lost))));
        }
        lines
    }
}

/// The last words of an ssh that ended before the job did.
pub(crate) fn ssh_said(host: &str, words: &[u8]) -> String {
    let lines = words.split(|b| *b == b'\n');
    lines.map(|line| format!("rlaunch: ssh to {host}: {}\n", Visible(line))).collect()
}

/// The message about bytes of a host among the messages of its agent.
pub(crate) fn no_message(host: &str, bytes: &[u8]) -> String {
    let text =
        bytes.split(|b| b.is_ascii_control() && !b.is_ascii_whitespace()).next().unwrap_or_default().trim_ascii();
    // Of a frame that came too early, say, there is nothing to read.
    let shown = if text.is_empty() { bytes.get(..16).unwrap_or(bytes) } else { text };
    format!(
        "rlaunch: something on {host} writes among its agent's messages: '{}'; let the shell's start-up files, and what they \
         start, print nothing where no terminal is\n",
        Visible(shown)
    )
}

/// The event log cannot be written.
pub(crate) fn log_failed(errno: i32) -> String {
    format!("rlaunch: cannot write the event log: {}; the job continues without it\n", phrases::errno(errno))
}

/// The guarantee that nothing is left behind, where it is not the strongest and was not asked for.
fn containment(hello: &Hello) -> Option<Line> {
    let Hello { tier, note, usual, .. } = hello;
    let tier: Tier = *tier;
    let is_worth_it = !note.is_empty() && !usual;
    is_worth_it.then(|| (Tone::Normal, format!("containment {}: {note}", phrases::tier(tier))))
}

/// To a user who wants to end what ends.
const ENDING: &str = "the job is ending already";

/// The effect of a signal, where that of the ending does not show it.
fn signal(sig: Signal, answer: Answer, by: By) -> Option<String> {
    let (key, verb) = (key(sig, by), verb(sig, by));
    match answer {
        Answer::Noted { kill_in: Some(kill_in) } => {
            let wait = phrases::wait(kill_in);
            Some(format!("{key}{ENDING}, SIGKILL in {wait}; {verb} again to kill now"))
        }
        Answer::Noted { kill_in: None } => Some(format!("{key}{ENDING}, SIGKILL was sent")),
        Answer::Unwritten { patience } => {
            let wait = phrases::wait(patience);
            Some(format!("{key}all ranks have ended; output that nobody takes within {wait} is dropped"))
        }
        Answer::Killed => Some(format!("{key}sent SIGKILL; {verb} again to leave at once")),
        Answer::Left => Some(format!("{key}leaving now; the guardian ends what is left")),
        Answer::Ended | Answer::Forwarded | Answer::Ignored => None,
    }
}

fn sink_lost(std: Std, errno: Option<i32>, end: SinkEnd) -> Option<String> {
    let errno = errno.unwrap_or_default();
    match end {
        SinkEnd::Unread { ends_job: true } => {
            Some(format!("the reader of {} has closed it; the job ends", phrases::std(std)))
        }
        SinkEnd::Unread { ends_job: false } => None,
        SinkEnd::HungUp => {
            Some(format!("the terminal of {} has hung up; the job continues without it", phrases::std(std)))
        }
        SinkEnd::ReadFailed => Some(no_input("read on", errno)),
        SinkEnd::Undelivered => Some(no_input("passed on", errno)),
        SinkEnd::WriteFailed => {
            let errno = phrases::errno(errno);
            Some(format!("cannot write to {}: {errno}; the job continues without it", phrases::std(std)))
        }
    }
}

fn file_failed(path: &OsBytes, host: &OsBytes, errno: i32) -> String {
    format!("cannot write {path} on {host}: {}; the job continues without what is lost there", phrases::errno(errno))
}

fn no_input(what: &str, errno: i32) -> String {
    format!("standard input cannot be {what} ({}); rank 0 gets end of file here", phrases::errno(errno))
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

#[cfg(test)]
mod tests;
