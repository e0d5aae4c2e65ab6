//! The output of the job: streams that ended, and a stdout or stderr that cannot be written any more.

use super::Cx;
use super::facts::JobFacts;
use super::notice::Notice;
use crate::events::{Cause, JobNews, SinkEnd, What};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use rlaunch_base::errno::EIO;
use rlaunch_base::id::{ProcId, Std, StreamId};

/// The output.
#[derive(Debug)]
pub(super) struct Output {
    nohup: bool,
    ending: bool,
    lost: [bool; 3],
    /// Ended streams of processes whose start was not reported yet, and their bytes. A stream does not wait for the report of the start.
    early: BTreeMap<StreamId, u64>,
    /// Bytes that are missing in log files of ranks.
    unfiled: u64,
    /// Whether output could not be written, for another reason than a reader that left. Then the job cannot succeed.
    unwritten: bool,
}

impl Output {
    pub(super) const fn new(nohup: bool) -> Self {
        Self { nohup, ending: false, lost: [false; 3], early: BTreeMap::new(), unfiled: 0, unwritten: false }
    }

    pub(super) fn on_ending_began(&mut self) {
        self.ending = true;
    }

    /// Logs the end of a stream, or keeps it. `pending`: the start of its process was not reported yet.
    pub(super) fn stream_end(&mut self, cx: &mut Cx<'_>, stream: StreamId, total: u64, pending: bool) {
        if pending {
            self.early.insert(stream, total);
        } else {
            log_end(cx, stream, total);
        }
    }

    /// Logs the ends of the streams of a process that has started.
    pub(super) fn started(&mut self, cx: &mut Cx<'_>, proc: ProcId) {
        for stream in [Std::Out, Std::Err].map(|std| StreamId::of(proc, std)) {
            if let Some(total) = self.early.remove(&stream) {
                log_end(cx, stream, total);
            }
        }
    }

    /// Returns the ends of streams of processes whose start is not reported any more.
    pub(super) fn rest(&mut self, facts: &JobFacts) -> impl Iterator<Item = What> + use<> {
        let early = core::mem::take(&mut self.early);
        let ends: Vec<What> = early.into_iter().filter_map(|(stream, total)| end_of(facts, stream, total)).collect();
        ends.into_iter()
    }

    /// The job ends like a program whose reader has gone. Where it is ending anyway, that is not worth a line.
    pub(super) fn reader_closed(&mut self, cx: &mut Cx<'_>, std: Std) {
        if self.mark_lost(std) {
            self.close_without_reader(cx, std, None);
        }
    }

    /// A terminal that hung up is a reader that left, whether its SIGHUP reaches us or not. A program that ignores that signal wants to
    /// continue without the terminal.
    pub(super) fn hung_up(&mut self, cx: &mut Cx<'_>, std: Std) {
        if !self.mark_lost(std) {
            return;
        }
        if self.nohup {
            cx.notify(Notice::Log(What::SinkLost { std, errno: Some(EIO), end: SinkEnd::HungUp }));
        } else {
            self.close_without_reader(cx, std, Some(EIO));
        }
    }

    fn close_without_reader(&self, cx: &mut Cx<'_>, std: Std, errno: Option<i32>) {
        let end = SinkEnd::Unread { ends_job: !self.ending };
        cx.notify(Notice::Log(What::SinkLost { std, errno, end }));
        cx.notify(Notice::End(Cause::ReaderClosed(std)));
    }

    /// A rank that gets less than there was may still succeed, so the user has to know.
    pub(super) fn input_failed(&mut self, cx: &mut Cx<'_>, errno: i32) {
        let _is_first = self.report_lost_stream(cx, Std::In, errno, SinkEnd::ReadFailed);
    }

    /// The same, where the rank's host is what fails.
    pub(super) fn input_undelivered(&mut self, cx: &mut Cx<'_>, errno: i32) {
        let _is_first = self.report_lost_stream(cx, Std::In, errno, SinkEnd::Undelivered);
    }

    /// A full disk costs the output and the success, but no rank its work.
    pub(super) fn sink_failed(&mut self, cx: &mut Cx<'_>, std: Std, errno: i32) {
        self.unwritten |= self.report_lost_stream(cx, std, errno, SinkEnd::WriteFailed);
    }

    /// Records that bytes of a stream are missing in its log file.
    pub(super) fn file_lost(&mut self, cx: &mut Cx<'_>, proc: ProcId, which: Std, bytes: u64) {
        self.unfiled = self.unfiled.saturating_add(bytes);
        self.unwritten |= bytes > 0;
        if let Some(rank) = cx.facts.placement().rank_of(proc) {
            cx.notify(Notice::Log(What::FileLost { rank, std: which, bytes }));
        }
    }

    /// The bytes that are missing in log files at the end of the job, if any are.
    pub(super) fn files_lost(&self) -> Option<JobNews> {
        (self.unfiled > 0).then_some(JobNews::FilesLost { bytes: self.unfiled })
    }

    /// Whether output could not be written, for another reason than a reader that left.
    pub(super) const fn is_unwritten(&self) -> bool {
        self.unwritten
    }

    /// Reports a lost stream once. Returns whether this is its first loss.
    fn report_lost_stream(&mut self, cx: &mut Cx<'_>, std: Std, errno: i32, end: SinkEnd) -> bool {
        let is_first = self.mark_lost(std);
        if is_first {
            cx.notify(Notice::Log(What::SinkLost { std, errno: Some(errno), end }));
        }
        is_first
    }

    /// Marks a stream as lost. Returns `false` if it was lost before.
    fn mark_lost(&mut self, std: Std) -> bool {
        let [input, out, err] = &mut self.lost;
        let lost = match std {
            Std::In => input,
            Std::Out => out,
            Std::Err => err,
        };
        !core::mem::replace(lost, true)
    }
}

fn log_end(cx: &mut Cx<'_>, stream: StreamId, total: u64) {
    if let Some(end) = end_of(cx.facts, stream, total) {
        cx.notify(Notice::Log(end));
    }
}

fn end_of(facts: &JobFacts, stream: StreamId, total: u64) -> Option<What> {
    let rank = facts.placement().rank_of(stream.proc())?;
    Some(What::StreamEnd { rank, std: stream.std(), total })
}
