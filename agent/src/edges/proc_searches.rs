//! Searches of /proc on a thread of their own: on a host with many processes a search takes a second and longer.
//!
//! The `files` thread must not do this work. After a long search, a file would count as one that does not answer. A file system that does
//! not answer would delay the end of sessions. The `proc` thread starts with the first search. If the kernel refuses the thread, the machine's
//! thread searches.

use super::files::Port;
use rlaunch_base::time::Span;
use rlaunch_sys::doorbell::Doorbell;
use rlaunch_sys::facts::cpu_time;
use rlaunch_sys::sessions::{self, Leaders};
use std::io;
use std::time::Duration;

enum Request {
    /// Kill all in the sessions of these leaders.
    KillSessions(Leaders),
    /// The processor time of these processes and their descendants.
    Measure(Vec<i32>),
}

enum Answer {
    KilledSessions,
    Measured(Span),
}

/// The way to the thread and back.
#[derive(Default)]
pub(super) struct ProcSearches {
    port: Option<Port<Request, Answer>>,
    killed_sessions: bool,
    measured: Option<Span>,
}

impl ProcSearches {
    /// Has all in the sessions of leaders killed; [`Self::take_killed_sessions`] follows. `watch` is given the bell that rings for it.
    pub(super) fn kill_sessions(&mut self, leaders: Leaders, watch: impl FnOnce(&Doorbell) -> io::Result<()>) {
        self.submit(Request::KillSessions(leaders), watch);
    }

    /// Whether they were killed, once.
    pub(super) const fn take_killed_sessions(&mut self) -> bool {
        std::mem::replace(&mut self.killed_sessions, false)
    }

    /// Has the processor time of processes measured; [`Self::take_measured`] has the answer.
    pub(super) fn measure(&mut self, pids: Vec<i32>, watch: impl FnOnce(&Doorbell) -> io::Result<()>) {
        self.submit(Request::Measure(pids), watch);
    }

    /// The answer, once.
    pub(super) const fn take_measured(&mut self) -> Option<Span> {
        self.measured.take()
    }

    /// Takes in what the thread has answered.
    pub(super) fn receive_answers(&mut self) {
        let answers: Vec<Answer> = self.port.iter().flat_map(Port::take_answers).collect();
        answers.iter().for_each(|answer| self.take(answer));
    }

    fn submit(&mut self, request: Request, watch: impl FnOnce(&Doorbell) -> io::Result<()>) {
        if self.port.is_none() {
            match Port::start("proc", perform).and_then(|port| watch(port.bell()).map(|()| port)) {
                Ok(port) => self.port = Some(port),
                Err(error) => tracing::debug!(%error, "no thread for searches of /proc: the machine thread searches"),
            }
        }
        let refused = match &self.port {
            Some(port) => port.pass_on(request).err(),
            None => Some(request),
        };
        if let Some(request) = refused {
            self.take(&perform(request));
        }
    }

    const fn take(&mut self, answer: &Answer) {
        match answer {
            Answer::KilledSessions => self.killed_sessions = true,
            Answer::Measured(time) => self.measured = Some(*time),
        }
    }
}

fn perform(request: Request) -> Answer {
    match request {
        Request::KillSessions(leaders) => {
            let killed = sessions::kill(&leaders);
            tracing::debug!("SIGKILL to {killed} processes in the sessions of pids {:?}", leaders.keys());
            Answer::KilledSessions
        }
        Request::Measure(pids) => {
            let times = pids.into_iter().map(cpu_time::of);
            let time = times.fold(Duration::ZERO, Duration::saturating_add);
            Answer::Measured(Span::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    /// Otherwise an unused store would never be reported.
    #[test]
    fn measurement_waits_for_the_search_before_it() {
        let (answer, held) = sync_channel::<()>(1);
        let slow = move |request| {
            if matches!(request, Request::KillSessions(_)) {
                let _ended = held.recv();
            }
            perform(request)
        };
        let mut searches = ProcSearches { port: Some(Port::start("proc", slow).unwrap()), ..ProcSearches::default() };
        searches.kill_sessions(Leaders::new(), |_| Ok(()));
        searches.measure(Vec::new(), |_| Ok(()));
        searches.receive_answers();
        assert_eq!((searches.take_killed_sessions(), searches.take_measured()), (false, None));
        answer.send(()).unwrap();
        let mut measured = None;
        while measured.is_none() {
            std::thread::yield_now();
            searches.receive_answers();
            measured = searches.take_measured();
        }
        assert_eq!((searches.take_killed_sessions(), measured), (true, Some(Span::ZERO)));
    }

    /// A host without room for another thread, or a bell that cannot be watched.
    #[test]
    fn without_a_thread_searches_are_done_at_once() {
        let mut searches = ProcSearches::default();
        let refuse = |_: &Doorbell| Err(io::Error::from_raw_os_error(28));
        searches.kill_sessions(Leaders::new(), refuse);
        searches.measure(Vec::new(), refuse);
        assert_eq!((searches.take_killed_sessions(), searches.take_measured()), (true, Some(Span::ZERO)));
    }
}
