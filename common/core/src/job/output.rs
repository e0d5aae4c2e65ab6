//! What the job has to know of its output: streams that ended, and a stdout or stderr that cannot be written any more.

use super::notice::Notice;
use super::procs::rank_of;
use super::{Cx, JobAction};
use crate::errno::EIO;
use crate::events::{Cause, What};
use crate::id::{Std, StreamId};
use crate::report::Sentence;

/// The output.
#[derive(Debug)]
pub(super) struct Output {
    nohup: bool,
    ending: bool,
    lost: [bool; 3],
}

impl Output {
    pub(super) const fn new(nohup: bool) -> Self {
        Self { nohup, ending: false, lost: [false; 3] }
    }

    pub(super) fn began(&mut self) {
        self.ending = true;
    }

    pub(super) fn stream_end(&self, cx: &mut Cx<'_>, stream: StreamId, total: u64) {
        cx.tell(Notice::Log(What::StreamEnd { rank: rank_of(stream.proc()), std: stream.std(), total }));
    }

    /// The job ends like a program whose reader has gone. Where it is ending anyway, that is not worth a line.
    pub(super) fn reader_closed(&mut self, cx: &mut Cx<'_>, std: Std) {
        if self.is_lost_now(std) {
            self.nobody_reads(cx, std, None);
        }
    }

    /// A terminal that hung up is a reader that left, whether its SIGHUP reaches us or not. Who ignores that signal wants to
    /// go on without the terminal.
    pub(super) fn hung_up(&mut self, cx: &mut Cx<'_>, std: Std) {
        if !self.is_lost_now(std) {
            return;
        }
        if self.nohup {
            cx.act(JobAction::Say(Sentence::HungUp(std)));
            cx.tell(Notice::Log(What::SinkLost { std, errno: Some(EIO) }));
        } else {
            self.nobody_reads(cx, std, Some(EIO));
        }
    }

    fn nobody_reads(&self, cx: &mut Cx<'_>, std: Std, errno: Option<i32>) {
        if !self.ending {
            cx.act(JobAction::Say(Sentence::ReaderClosed(std)));
        }
        cx.tell(Notice::Log(What::SinkLost { std, errno }));
        cx.tell(Notice::End(Cause::ReaderClosed(std)));
    }

    /// A rank that gets less than there was may still succeed, so the user has to know.
    pub(super) fn input_failed(&mut self, cx: &mut Cx<'_>, errno: i32) {
        self.lose(cx, Std::In, errno, Sentence::InputFailed { errno });
    }

    /// The same, where the rank's host is what fails.
    pub(super) fn input_undelivered(&mut self, cx: &mut Cx<'_>, errno: i32) {
        self.lose(cx, Std::In, errno, Sentence::InputUndelivered { errno });
    }

    /// A full disk costs the output, not the job.
    pub(super) fn sink_failed(&mut self, cx: &mut Cx<'_>, std: Std, errno: i32) {
        self.lose(cx, std, errno, Sentence::SinkFailed { std, errno });
    }

    fn lose(&mut self, cx: &mut Cx<'_>, std: Std, errno: i32, sentence: Sentence) {
        if self.is_lost_now(std) {
            cx.act(JobAction::Say(sentence));
            cx.tell(Notice::Log(What::SinkLost { std, errno: Some(errno) }));
        }
    }

    /// Marks a sink as lost; `false` if it was.
    fn is_lost_now(&mut self, std: Std) -> bool {
        let [input, out, err] = &mut self.lost;
        let lost = match std {
            Std::In => input,
            Std::Out => out,
            Std::Err => err,
        };
        !core::mem::replace(lost, true)
    }
}
