//! The questions about one key, one after the other: when the next follows, and how long its answer may take.

use super::{Answer, Key, LONG_POLL, PATIENCE, Reading, Unusable, request};
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::time::Span;

/// The first pause after a question without a usable answer. It doubles up to the longest.
const FIRST_PAUSE: Span = Span::from_millis(500);
/// The longest pause.
const LONGEST_PAUSE: Span = Span::from_secs(30);
/// The pause after an answer without a value: the server has nothing whose change could be awaited.
const ABSENT_PAUSE: Span = Span::from_secs(60);
/// An unchanged value that comes sooner was not awaited by the server.
const TOO_SOON: Span = Span::from_secs(1);

/// The questions about one key.
#[derive(Debug)]
pub struct Watch {
    key: Key,
    /// The entity tag of the value that is known.
    etag: Option<String>,
    /// The meaning of that value. A server may change the tag of a value that it has not changed.
    known: Reading,
    /// The next question waits for a change of that value.
    waits: bool,
    /// Questions in a row without a usable answer.
    failures: u32,
}

/// A question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The connection is closed after this time.
    pub limit: Span,
}

/// The outcome of a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// An answer, after this time.
    Answered(Answer, Span),
    /// Bytes that are no answer.
    Unusable(Unusable),
    /// No answer in time, or no connection.
    Silent,
}

/// The step after an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Ask again after this pause.
    Ask(Span),
    /// Ask no more: the server refuses this host.
    Stop,
}

impl Watch {
    /// Before the first question.
    #[must_use]
    pub const fn new(key: Key) -> Self {
        Self { key, etag: None, known: Reading::None, waits: false, failures: 0 }
    }

    /// The key.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// The next question. The first one asks for the present value, others for a change of it.
    #[must_use]
    pub fn ask(&self, host: &str) -> Asked {
        let wait = self.etag.as_deref().filter(|_| self.waits).map(|etag| (etag, LONG_POLL));
        let limit = wait.map_or(PATIENCE, |(_, wait)| wait + PATIENCE);
        Asked { bytes: request(host, self.key.path(), wait), limit }
    }

    /// Takes the outcome of the question. Returns its meaning and the next step.
    #[must_use]
    pub fn on_outcome(&mut self, outcome: Outcome) -> (Reading, Next) {
        let (answer, took) = match outcome {
            Outcome::Answered(answer, took) => (answer, took),
            Outcome::Unusable(_) | Outcome::Silent => return (Reading::None, self.again()),
        };
        match answer.status {
            200 => {
                let reading = Reading::of(self.key, &answer);
                let is_changed = reading != self.known;
                let has_waited = self.waits && (is_changed || took >= TOO_SOON);
                // Without a tag the server cannot wait, and a server that does not wait must not be asked without a pause.
                let next =
                    if answer.etag.is_none() || self.waits != has_waited { self.again() } else { self.at_once() };
                (self.etag, self.known) = (answer.etag, reading.clone());
                (reading, next)
            }
            // The key has no value now. A plan that was withdrawn is no plan.
            404 => {
                (self.etag, self.known, self.waits, self.failures) = (None, Reading::None, false, 0);
                (Reading::Well, Next::Ask(ABSENT_PAUSE))
            }
            403 => (Reading::None, Next::Stop),
            // Redirects are not followed: only the server at this address is asked.
            _ => (Reading::None, self.again()),
        }
    }

    /// The value is known: the next question waits for its change.
    const fn at_once(&mut self) -> Next {
        if core::mem::replace(&mut self.waits, true) {
            self.failures = 0;
        }
        Next::Ask(Span::ZERO)
    }

    /// Nothing is known of the value now: the next question asks for it.
    fn again(&mut self) -> Next {
        self.waits = false;
        let pause = FIRST_PAUSE.doubled(self.failures, LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        Next::Ask(pause)
    }
}
