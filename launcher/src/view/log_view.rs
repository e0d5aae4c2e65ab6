//! The event log on stderr: which records of it the user reads while the job runs, and when it has ended. A line each, with
//! the way out below it where the user has one; and the closing report.

use super::notices::{self, By, Reported};
use super::{Tone, host_messages, path_search, phrases, report, round_messages, slice_messages};
use rlaunch_base::id::{AppIndex, NodeId, Rank};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_core::events::{Cause, Record, Tried, What};
use rlaunch_core::report::{Fate, Report};
use rlaunch_plan::hostlist::fold;
use rlaunch_protocol::master_store::{ForAgent, Holder, port_of_arguments};
use rlaunch_restart::RoundsEnd;

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

    /// The report of the records so far.
    pub(super) const fn report(&self) -> &Report {
        &self.report
    }

    /// The name of a host, as the user wrote it.
    pub(super) fn given(&self, node: NodeId) -> OsBytes {
        let hosts = self.report.start.as_ref().map(|start| start.hosts.as_slice()).unwrap_or_default();
        hosts.get(node.index()).cloned().unwrap_or_default()
    }

    /// Names of hosts as the user wrote them, as far as a line goes.
    pub(super) fn some(&self, nodes: &[NodeId]) -> String {
        host_messages::some(&self.report, nodes)
    }

    /// Names of hosts without user and port, in short.
    pub(super) fn folded(&self, nodes: &[NodeId]) -> OsBytes {
        let names: Vec<String> = nodes.iter().map(|node| self.short(*node).to_string()).collect();
        OsBytes::from(fold(names.iter().map(String::as_str)))
    }

    /// The port that the arguments of rank 0's program name.
    pub(super) fn port_of_arguments(&self) -> Option<u16> {
        port_of_arguments(&self.report.app(Rank::new(0))?.argv)
    }

    /// Whether the program may use the TCPStore, as far as its script and its arguments show.
    pub(super) fn may_use_store(&self) -> bool {
        let without_torch = Holder::Agent(ForAgent::WithoutTorch);
        self.report.start.as_ref().is_none_or(|start| start.master_store != without_torch)
            || self.port_of_arguments().is_some()
    }

    /// Whether the process of a rank has exited.
    pub(super) fn has_exited(&self, rank: Rank) -> bool {
        self.report.ranks.get(rank.index()).is_some_and(|line| matches!(line.fate, Fate::Ended { .. }))
    }

    /// Restarts of all ranks after a failure.
    pub(super) fn failures(&self) -> usize {
        self.report.restarts.iter().filter(|restarted| restarted.why.is_failure()).count()
    }

    /// Most restarts of all ranks.
    pub(super) fn max_restarts(&self) -> u32 {
        self.report.start.as_ref().map_or(0, |start| start.restarts.most)
    }
}

/// The view of the event log on stderr.
pub(crate) struct LogView {
    names: Names,
    tone: Tone,
    /// Stderr is a terminal.
    terminal: bool,
    /// Facts that are reported once.
    reported: Reported,
    /// The job ends because its output has no reader: unwritten output is no news then.
    unread: bool,
    /// Standard error of ranks goes to that of rlaunch.
    shows_stderr: bool,
    /// The program with which the job ends.
    lead: Option<AppIndex>,
}

/// A text, and the least verbose tone in which it is printed. Notes that explain how a job runs are for [`Tone::Normal`]. Messages that
/// something went wrong, or that answer the user, are for all tones.
pub(super) type Line = (Tone, String);

impl LogView {
    /// `names`: of the hosts, by node, without user and port.
    pub(crate) fn new(names: impl IntoIterator<Item = String>, tone: Tone, terminal: bool) -> Self {
        let names = Names { short: names.into_iter().collect(), report: Report::default() };
        let reported = Reported::default();
        Self { names, tone, terminal, reported, unread: false, shows_stderr: false, lead: None }
    }

    /// A host has become known.
    pub(crate) fn know(&mut self, node: NodeId, name: &str) {
        let short = &mut self.names.short;
        if short.len() <= node.index() {
            short.resize(node.index() + 1, String::new());
        }
        short.get_mut(node.index()).into_iter().for_each(|known| *known = name.into());
    }

    /// For `rlaunch clean`, or for a job; whether that would have more hosts with `--lead`.
    pub(crate) const fn of_job(mut self, cleans: bool, lead_has_more: bool) -> Self {
        (self.reported.cleans, self.reported.lead_has_more) = (cleans, lead_has_more);
        self
    }

    /// The ranks write to the standard error of rlaunch. `lead`: the program of `--lead`.
    pub(crate) const fn of_streams(mut self, shows_stderr: bool, lead: Option<AppIndex>) -> Self {
        (self.shows_stderr, self.lead) = (shows_stderr, lead);
        self
    }

    /// Whether the last words of the rank that failed stand just above the report: no other rank wrote so much meanwhile.
    fn has_stderr(&self, report: &Report) -> bool {
        let Some(Cause::Rank { rank, .. }) = report.end.as_ref().map(|end| &end.cause) else { return false };
        let leads = || {
            let lead = self.lead.and_then(|lead| report.start.as_ref()?.apps.get(lead.index()));
            lead.zip(report.app(*rank)).is_some_and(|(lead, own)| std::ptr::eq(lead, own) && own.procs == 1)
        };
        self.shows_stderr && (report.ranks.len() == 1 || leads())
    }

    /// The text of a record, with its newlines; empty: it has none in this tone. `by`: the sender of the last signal.
    pub(crate) fn text(&mut self, record: &Record, by: By) -> String {
        self.names.report.add(record);
        if matches!(record.what, What::JobEnd { .. }) {
            let report = &self.names.report;
            let mut around = path_search::look(report);
            (around.has_stderr, around.cleans) = (self.has_stderr(report), self.reported.cleans);
            let is_shown = report::is_shown(report, self.tone, self.terminal);
            let report = if is_shown { report::render(report, &around) } else { String::new() };
            return phrases::short_lines(self.reported.mpi.repeated_help(self.tone) + &report);
        }
        let lines = self.lines(record, by);
        let shown = lines.into_iter().filter(|(least, _)| self.tone >= *least);
        shown.map(|(_, line)| phrases::short_lines(format!("rlaunch: {line}\n"))).collect()
    }

    /// The lines of a record, in every tone. A new record is decided on here.
    fn lines(&mut self, record: &Record, by: By) -> Vec<Line> {
        let line = match &record.what {
            What::HostReady { hello, .. } => notices::containment(hello),
            What::WorldStart(line) => notices::crowded(line, &mut self.reported),
            What::LeftOut { is_known, .. } => {
                (!is_known).then(|| (Tone::Quiet, host_messages::left_out(&self.names.report)))
            }
            What::Slices(taken) => taken.is_news.then(|| slice_messages::taken(taken)),
            What::RankFailed { rank, node, error, tried } => match tried {
                Tried::First => None,
                Tried::Again { several_hosts } => {
                    let host = Some(*node).filter(|_| *several_hosts);
                    Some((Tone::Quiet, round_messages::unable(*rank, &self.host(host), error)))
                }
            },
            What::Signal { sig, answer } => notices::signal(*sig, *answer, by).map(|text| (Tone::Quiet, text)),
            What::Ending { cause, grace, ranks, .. } => {
                self.unread = matches!(cause, Cause::ReaderClosed(_));
                notices::ending(cause, *grace, ranks, &self.names, by)
            }
            What::Restart { .. } => Some((Tone::Quiet, notices::restart(&record.what, &self.names))),
            What::Round { node, note } => {
                let text = round_messages::line(record.generation, &self.host(*node), note, self.tone);
                Some((round_messages::least(note), text))
            }
            What::RoundsOver(given) => match &**given {
                RoundsEnd::Done => None,
                RoundsEnd::Impossible { reason, .. } => {
                    Some((Tone::Quiet, round_messages::given_up(record.generation, record.round, reason)))
                }
            },
            What::SinkLost { std, errno, end } => {
                notices::sink_lost(*std, *errno, *end).map(|text| (Tone::Quiet, text))
            }
            What::OutputEnd { lost, broken } => return notices::output_end(*lost, *broken, self.unread),
            What::News(news) => Some(notices::news(news, &self.names)),
            What::NodeNews { node, news } => {
                notices::node_news(*node, news, &self.names.given(*node), &self.names, &mut self.reported)
            }
            // The closing report has them, or they are the ordinary course of a job.
            _ => None,
        };
        line.into_iter().collect()
    }

    /// The name of a host; empty: there is only one.
    fn host(&self, node: Option<NodeId>) -> OsBytes {
        node.map(|node| self.names.short(node)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
