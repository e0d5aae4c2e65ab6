//! A timer for a driver: it wakes at the earliest of all deadlines, whichever that is at the moment.

use rlaunch_base::time::Span;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that is set anew at each poll. Nothing is registered before the first deadline.
#[derive(Debug, Default)]
pub struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Ready if no time is left; else the task is woken when the time has expired.
    pub fn poll(&mut self, cx: &mut Context<'_>, left: Span) -> Poll<()> {
        if left == Span::ZERO {
            // The runtime rounds up to a millisecond: a timer for now would fire late, and for ever.
            return Poll::Ready(());
        }
        let at = Instant::now() + left.duration();
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(at)));
        timer.as_mut().reset(at);
        timer.as_mut().poll(cx)
    }
}
