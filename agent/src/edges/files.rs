//! Files that may be on a host that does not answer: a thread of its own looks at them, and no other part waits for it for long.
//!
//! A dead NFS server holds every process that asks it for as long as it is dead. So core files, which lie wherever the ranks work, error
//! files where $TMPDIR is not on this host's own disk or memory, and the programs of a job on several hosts with their directories are
//! never touched by the machine's thread, nor is anything looked up there to find them. The `files` thread starts with the first of them.
//! If the kernel refuses the thread, the machine's thread looks at them.

use super::check;
use super::stdin::Candidate;
use crate::clock::now;
use rlaunch_base::id::{AppIndex, ProcId};
use rlaunch_base::machine::earliest_of;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::framework::is_mpi_library;
use rlaunch_protocol::spec::AppBase;
use rlaunch_protocol::wire::to_root::SpawnError;
use rlaunch_sys::doorbell::Doorbell;
use rlaunch_sys::facts::core_file::{self, Crash};
use rlaunch_sys::facts::{error_file, input, loaded};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// How long a file system may take to answer.
const PATIENCE: Span = Span::from_secs(1);
/// Most requests to a thread that it has not answered.
const MOST_REQUESTS: usize = 1024;

/// A request to the thread.
pub(super) enum Request {
    Look(Look),
    Remove(Vec<u8>),
    Check(AppIndex, Arc<AppBase>),
    /// Whether one of these ranks waits for input.
    Waiting(Vec<Candidate>),
    /// The MPI library that this process, or one below it, has loaded.
    Library(i32),
}

/// Files that may lie on disk about a rank that ended.
pub(super) struct Look {
    pub(super) proc: ProcId,
    pub(super) error_file: Option<Vec<u8>>,
    pub(super) dump: Option<Dump>,
}

/// A rank that a signal ended with a core dump.
pub(super) struct Dump {
    pub(super) pid: u32,
    pub(super) signal: u8,
    /// As it was asked for: relative to our own, or `None` for that.
    pub(super) wdir: Option<Vec<u8>>,
    pub(super) exe: Vec<u8>,
    pub(super) started: u64,
    pub(super) ended: u64,
}

/// The finding.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Found {
    pub(super) error_file: Option<Vec<u8>>,
    pub(super) core: Option<Vec<u8>>,
    /// Whether the files are unknown: no answer came in time.
    pub(super) late: bool,
}

enum Answer {
    Looked(ProcId, Found),
    Removed,
    Checked(AppIndex, Option<SpawnError>),
    Waiting(bool),
    Library(Option<Vec<u8>>),
}

/// The way to the thread and back.
#[derive(Default)]
pub(super) struct Files {
    port: Option<Port<Request, Answer>>,
    asked: BTreeMap<ProcId, Mono>,
    found: BTreeMap<ProcId, Found>,
    checked: Vec<(AppIndex, Option<SpawnError>)>,
    /// When a look for a rank that waits is given up.
    waiting_asked: Option<Mono>,
    waiting_seen: Option<bool>,
    /// The answer of a look for an MPI library.
    library: Option<Option<Vec<u8>>>,
    /// Requests that were not answered, those that are not waited for any more included. Checks do not count: they are over
    /// before there is a rank, or the launcher gives this host up.
    under_way: usize,
    /// Since when nothing was answered.
    silent_since: Option<Mono>,
}

/// The fate of a request.
enum Submitted {
    /// The thread has it.
    Taken,
    /// The thread is held up.
    Held,
    /// There is no thread: it is done.
    Done(Answer),
}

/// The queues to a permanent thread and back, and the bell for its answers. A bounded channel of the standard library would allocate its
/// whole room at once.
pub(super) struct Port<Q, A> {
    requests: Sender<Q>,
    answers: Receiver<A>,
    /// Requests that were not answered.
    open: Cell<usize>,
    bell: Doorbell,
}

impl Files {
    /// Asks; [`Self::found`] has the answer. `watch` is given the bell that rings for it.
    pub(super) fn ask(&mut self, look: Look, watch: impl FnOnce(&Doorbell) -> io::Result<()>) {
        let proc = look.proc;
        match self.submit(Request::Look(look), watch) {
            Submitted::Taken => drop(self.asked.insert(proc, now() + PATIENCE)),
            Submitted::Held => drop(self.found.insert(proc, Found { late: true, ..Found::default() })),
            Submitted::Done(Answer::Looked(proc, found)) => drop(self.found.insert(proc, found)),
            Submitted::Done(_) => {}
        }
    }

    /// Removes a file some time before [`Self::quiet_at`].
    pub(super) fn remove(&mut self, path: Vec<u8>, watch: impl FnOnce(&Doorbell) -> io::Result<()>) {
        let _left_behind = self.submit(Request::Remove(path), watch);
    }

    /// Has a program looked at, however long that takes; [`Self::take_checked`] has the answer. False: there is no thread for
    /// it, or it has too much to do.
    pub(super) fn check(
        &mut self,
        app: AppIndex,
        base: &Arc<AppBase>,
        watch: impl FnOnce(&Doorbell) -> io::Result<()>,
    ) -> bool {
        self.has_port(watch) && self.pass_on(Request::Check(app, Arc::clone(base)))
    }

    /// Has ranks looked at that may wait for input; [`Self::take_waiting`] has the answer. Without one in time a rank counts as waiting.
    pub(super) fn look_for_waiting(
        &mut self,
        candidates: Vec<Candidate>,
        watch: impl FnOnce(&Doorbell) -> io::Result<()>,
    ) {
        match self.submit(Request::Waiting(candidates), watch) {
            Submitted::Taken => self.waiting_asked = Some(now() + PATIENCE),
            Submitted::Held => self.waiting_seen = Some(true),
            Submitted::Done(Answer::Waiting(waits)) => self.waiting_seen = Some(waits),
            Submitted::Done(_) => {}
        }
    }

    /// Has the MPI library of a process looked for; [`Self::take_library`] has the answer.
    pub(super) fn look_for_library(&mut self, pid: i32, watch: impl FnOnce(&Doorbell) -> io::Result<()>) {
        if let Submitted::Done(Answer::Library(found)) = self.submit(Request::Library(pid), watch) {
            self.library = Some(found);
        }
    }

    /// The library, if there is one, once.
    pub(super) const fn take_library(&mut self) -> Option<Option<Vec<u8>>> {
        self.library.take()
    }

    /// The answer, once.
    pub(super) const fn take_waiting(&mut self) -> Option<bool> {
        self.waiting_seen.take()
    }

    /// Whether the thread exists. Starts it if it does not.
    fn has_port(&mut self, watch: impl FnOnce(&Doorbell) -> io::Result<()>) -> bool {
        if self.port.is_none() {
            match Port::start("files", perform).and_then(|port| watch(&port.bell).map(|()| port)) {
                Ok(port) => self.port = Some(port),
                Err(error) => tracing::debug!(%error, "no thread for files: the machine thread looks at them"),
            }
        }
        self.port.is_some()
    }

    fn pass_on(&self, request: Request) -> bool {
        self.port.as_ref().is_some_and(|port| port.pass_on(request).is_ok())
    }

    fn submit(&mut self, request: Request, watch: impl FnOnce(&Doorbell) -> io::Result<()>) -> Submitted {
        if !self.has_port(watch) {
            return Submitted::Done(perform(request));
        }
        // A thread that is held up will not be faster for those that come later.
        let free = self.under_way < MOST_REQUESTS && !self.is_stuck();
        if !(free && self.pass_on(request)) {
            return Submitted::Held;
        }
        self.under_way += 1;
        self.silent_since.get_or_insert_with(now);
        Submitted::Taken
    }

    fn is_stuck(&self) -> bool {
        self.silent_since.is_some_and(|since| since + PATIENCE <= now())
    }

    /// Takes in what the thread has answered, and gives up what it has not in time.
    pub(super) fn receive_answers(&mut self) {
        let Some(port) = &self.port else { return };
        for answer in port.take_answers() {
            if let Answer::Checked(app, error) = answer {
                self.checked.push((app, error));
                continue;
            }
            self.under_way = self.under_way.saturating_sub(1);
            self.silent_since = if self.under_way == 0 { None } else { Some(now()) };
            match answer {
                Answer::Looked(proc, found) if self.asked.remove(&proc).is_some() => {
                    self.found.insert(proc, found);
                }
                Answer::Waiting(waits) if self.waiting_asked.take().is_some() => self.waiting_seen = Some(waits),
                Answer::Library(found) => self.library = Some(found),
                Answer::Looked(..) | Answer::Removed | Answer::Checked(..) | Answer::Waiting(_) => {}
            }
        }
        let late = Found { late: true, ..Found::default() };
        let (over, asked) = std::mem::take(&mut self.asked).into_iter().partition(|(_, until)| *until <= now());
        self.asked = asked;
        let over: BTreeMap<ProcId, Mono> = over;
        self.found.extend(over.into_keys().map(|proc| (proc, late.clone())));
        let expired = now();
        if self.waiting_asked.take_if(|until| *until <= expired).is_some() {
            self.waiting_seen = Some(true);
        }
    }

    /// The answer, once.
    pub(super) fn found(&mut self, proc: ProcId) -> Option<Found> {
        self.found.remove(&proc)
    }

    /// Programs that were looked at, each once, and why they could not be started.
    pub(super) fn take_checked(&mut self) -> Vec<(AppIndex, Option<SpawnError>)> {
        std::mem::take(&mut self.checked)
    }

    /// When an answer is given up.
    pub(super) fn deadline(&self) -> Option<Mono> {
        earliest_of([self.asked.values().min().copied(), self.waiting_asked])
    }

    /// Until when removals are to be waited for.
    pub(super) fn quiet_at(&self) -> Option<Mono> {
        self.silent_since.filter(|_| self.under_way > 0).map(|since| since + PATIENCE)
    }
}

impl<Q: Send + 'static, A: Send + 'static> Port<Q, A> {
    #[allow(clippy::disallowed_methods, reason = "`pass_on` bounds both queues by the number of open requests")]
    pub(super) fn start(thread: &'static str, mut perform: impl FnMut(Q) -> A + Send + 'static) -> io::Result<Self> {
        let (requests, inbox) = channel();
        let (outbox, answers) = channel();
        let bell = Doorbell::new()?;
        let thread_bell = bell.clone();
        rlaunch_sys::thread::permanent(thread, move || {
            for request in inbox {
                if outbox.send(perform(request)).is_err() {
                    return;
                }
                thread_bell.ring();
            }
        })?;
        Ok(Self { requests, answers, open: Cell::new(0), bell })
    }

    pub(super) const fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// Passes a request on, or returns it if the thread has no room.
    pub(super) fn pass_on(&self, request: Q) -> Result<(), Q> {
        if self.open.get() >= MOST_REQUESTS {
            return Err(request);
        }
        self.requests.send(request).map_err(|error| error.0)?;
        self.open.set(self.open.get() + 1);
        Ok(())
    }

    /// The answers until now.
    pub(super) fn take_answers(&self) -> impl Iterator<Item = A> + '_ {
        self.bell.clear();
        self.answers.try_iter().inspect(|_| self.open.set(self.open.get().saturating_sub(1)))
    }
}

fn perform(request: Request) -> Answer {
    match request {
        Request::Remove(path) => {
            let _no_such_file = error_file::remove(&path);
            Answer::Removed
        }
        Request::Check(app, base) => Answer::Checked(app, check::look(&base)),
        Request::Library(pid) => Answer::Library(loaded::find(pid, is_mpi_library)),
        Request::Waiting(candidates) => {
            Answer::Waiting(candidates.iter().any(|Candidate { pid, pipe }| input::is_awaited(*pid, *pipe)))
        }
        Request::Look(Look { proc, error_file, dump }) => {
            let error_file = error_file.and_then(|path| error_file::read(&path));
            let core = dump.as_ref().and_then(core_of);
            Answer::Looked(proc, Found { error_file, core, late: false })
        }
    }
}

fn core_of(dump: &Dump) -> Option<Vec<u8>> {
    let (uid, gid) = rlaunch_sys::facts::host::user();
    let Dump { pid, signal, ref wdir, ref exe, started, ended } = *dump;
    // The process is reaped only after our answer, or when the answer is no longer awaited.
    let inside = core_file::ns_pid(pid);
    let wdir = absolute(wdir.as_deref());
    core_file::find(&Crash { pid, inside, signal, wdir: &wdir, exe, uid, gid, started, ended })
}

fn absolute(wdir: Option<&[u8]>) -> Vec<u8> {
    match wdir {
        Some(dir) if dir.starts_with(b"/") => dir.to_vec(),
        dir => {
            let own = std::env::current_dir().map(|dir| dir.into_os_string().into_vec()).unwrap_or_default();
            dir.map_or(own.clone(), |dir| [&own, &b"/"[..], dir].concat())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn thread_has_a_bounded_number_of_requests() {
        let (answer, held) = sync_channel::<()>(0);
        let port = Port::start("files", move |request: usize| held.recv().map(|()| request)).unwrap();
        assert!((0..MOST_REQUESTS).all(|request| port.pass_on(request).is_ok()));
        assert_eq!(port.pass_on(7), Err(7));
        answer.send(()).unwrap();
        rlaunch_sys::fd::wait_for_any(&[port.bell.as_fd()], Some(std::time::Duration::from_secs(60)));
        assert_eq!(port.take_answers().collect::<Vec<_>>(), [Ok(0)]);
        assert_eq!((port.pass_on(8), port.pass_on(9)), (Ok(()), Err(9)));
    }

    /// A host without room for another thread, or a bell that cannot be watched.
    #[test]
    fn without_a_thread_files_are_looked_at_at_once() {
        let path = std::env::temp_dir().join(format!("rlaunch-files-{}", std::process::id()));
        std::fs::write(&path, "why").unwrap();
        let mut files = Files::default();
        let refuse = |_: &Doorbell| Err(io::Error::from_raw_os_error(28));
        let path = path.into_os_string().into_vec();
        files.ask(Look { error_file: Some(path.clone()), ..look(0) }, refuse);
        let found = Found { error_file: Some(b"why".to_vec()), ..Found::default() };
        assert_eq!(files.found(ProcId::new(0)), Some(found));
        files.remove(path.clone(), refuse);
        assert_eq!((std::fs::exists(std::ffi::OsString::from_vec(path)).unwrap(), files.quiet_at()), (false, None));
    }

    fn look(n: u32) -> Look {
        Look { proc: ProcId::new(n), error_file: Some(b"/nowhere/at/all".to_vec()), dump: None }
    }

    /// Waits for the bell or for the deadline, as the agent does.
    fn until_found(files: &mut Files, n: u32) -> Found {
        loop {
            if let Some(found) = files.found(ProcId::new(n)) {
                return found;
            }
            let wait = files.deadline().map_or(Span::ZERO, |at| at.since(now()));
            let bell = files.port.as_ref().unwrap().bell.clone();
            let wait = wait.duration() + std::time::Duration::from_millis(1);
            rlaunch_sys::fd::wait_for_any(&[bell.as_fd()], Some(wait));
            files.receive_answers();
        }
    }

    /// Otherwise the rank might wait for ever.
    #[test]
    fn rank_counts_as_waiting_for_input_when_no_answer_comes_in_time() {
        let (answer, held) = sync_channel::<()>(1);
        let port = Port::start("files", move |request| {
            let _ended = held.recv();
            perform(request)
        });
        let mut files = Files { port: Some(port.unwrap()), ..Files::default() };
        let unknown_process = || vec![Candidate { pid: i32::MAX, pipe: 1 }];
        files.look_for_waiting(unknown_process(), |_| Ok(()));
        assert_eq!(files.take_waiting(), None, "the caller does not wait");
        let until = files.deadline().unwrap();
        while now() < until {
            files.receive_answers();
            std::thread::yield_now();
        }
        files.receive_answers();
        assert_eq!((files.take_waiting(), files.take_waiting()), (Some(true), None));
        drop(answer);
        while files.quiet_at().is_some() {
            std::thread::yield_now();
            files.receive_answers();
        }
        assert_eq!(files.take_waiting(), None, "an answer that comes too late is dropped");
        files.look_for_waiting(unknown_process(), |_| Ok(()));
        while files.quiet_at().is_some() {
            std::thread::yield_now();
            files.receive_answers();
        }
        assert_eq!(files.take_waiting(), Some(false));
    }

    #[test]
    fn a_directory_is_relative_to_our_own() {
        let own = std::env::current_dir().unwrap().into_os_string().into_vec();
        assert_eq!(absolute(None), own);
        assert_eq!(absolute(Some(b"/w")), b"/w");
        assert_eq!(absolute(Some(b"w")), [&own, &b"/w"[..]].concat());
    }

    #[test]
    fn missing_file_is_not_late() {
        let mut files = Files::default();
        files.ask(look(0), |_| Ok(()));
        assert_eq!(until_found(&mut files, 0), Found::default());
        assert_eq!((files.deadline(), files.quiet_at()), (None, None));
    }

    /// A dead file system: no part waits for longer than for the first file, and the file system may come back.
    #[test]
    fn a_file_system_that_does_not_answer_delays_no_other_work() {
        let (answer, held) = sync_channel::<()>(2);
        let port = Port::start("files", move |request| {
            let _ended = held.recv();
            perform(request)
        });
        let mut files = Files { port: Some(port.unwrap()), ..Files::default() };
        let began = now();
        files.ask(look(0), |_| Ok(()));
        files.ask(look(1), |_| Ok(()));
        let late = Found { late: true, ..Found::default() };
        assert_eq!([0, 1].map(|n| until_found(&mut files, n)), [late.clone(), late.clone()]);
        let took = now().since(began);
        assert!(took >= PATIENCE, "{took}");
        files.ask(look(2), |_| Ok(()));
        assert_eq!(files.found(ProcId::new(2)), Some(late), "at once: it is known by now");
        assert!(files.quiet_at().is_some_and(|at| at <= now()));

        answer.send(()).unwrap();
        answer.send(()).unwrap();
        while files.quiet_at().is_some() {
            std::thread::yield_now();
            files.receive_answers();
        }
        assert_eq!(files.found(ProcId::new(0)), None, "too late is too late");
        files.ask(look(3), |_| Ok(()));
        answer.send(()).unwrap();
        assert_eq!(until_found(&mut files, 3), Found::default());
    }
}
