//! The `file` thread: it makes the log files of ranks and writes them. It may be held up for as long as a file system is.
//! If the kernel refuses the thread, the agent's machine thread does its work: slow output is better than lost output.

use rlaunch_base::id::{ProcId, StreamId};
use rlaunch_sys::doorbell::Doorbell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};

/// Most requests that were not taken.
pub(super) const ROOM: usize = 1024;

/// A request to the thread.
pub(super) enum Request {
    /// Make the directory of this process, with its parents; with a flag whether other users may not look into them.
    Make {
        proc: ProcId,
        path: Vec<u8>,
        private: bool,
    },
    /// A file, for this stream.
    Open(StreamId, Vec<u8>),
    Write(StreamId, Vec<u8>),
    Close(StreamId),
}

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The directory is there, or never will be.
    Made(ProcId),
    /// Bytes of a stream that were taken, and some of them are not in its file.
    Took {
        id: StreamId,
        bytes: usize,
        lost: usize,
    },
    /// The first thing that went wrong.
    Failed {
        errno: i32,
        path: Vec<u8>,
    },
    Closed(StreamId),
}

/// The way to the thread and back.
pub(super) struct Port {
    way: Way,
    answers: Receiver<Answer>,
    /// Without a thread: the answers that were not taken.
    kept: Vec<Answer>,
    pub(super) bell: Doorbell,
}

/// The way to the writer.
enum Way {
    /// To the thread.
    Thread(SyncSender<Request>),
    /// No thread: requests are performed at once.
    Here(Box<dyn FnMut(Request) -> Vec<Answer>>),
}

/// The way of answers.
enum Outbox {
    /// From the thread, which may wait for room.
    Waits(SyncSender<Answer>),
    /// From the agent's own thread, which takes them out after each request.
    Kept(Vec<Answer>),
}

/// Opens log files by their paths.
fn opener() -> impl FnMut(&[u8]) -> io::Result<File> + Send + 'static {
    let mut begun = BTreeSet::new();
    move |path: &[u8]| {
        // A file is emptied once. Another process of a rank continues it, and several ranks may share it.
        let first = begun.insert(path.to_vec());
        open(path, first)
    }
}

impl Port {
    pub(super) fn start() -> io::Result<Self> {
        match Self::over(opener()) {
            Ok(port) => Ok(port),
            Err(error) => {
                tracing::debug!(%error, "no thread for log files: they are written without it");
                Self::here(opener())
            }
        }
    }

    /// Without a thread.
    fn here<W: Write + 'static>(open: impl FnMut(&[u8]) -> io::Result<W> + 'static) -> io::Result<Self> {
        let (_no_thread, answers) = sync_channel(0);
        let bell = Doorbell::new()?;
        let outbox = Outbox::Kept(Vec::new());
        let mut writer = Writer { open, files: BTreeMap::new(), reported: false, outbox, bell: bell.clone() };
        let perform = move |request| {
            let _always_taken = writer.perform(request);
            writer.bell.ring();
            match &mut writer.outbox {
                Outbox::Kept(answers) => std::mem::take(answers),
                Outbox::Waits(_) => Vec::new(),
            }
        };
        Ok(Self { way: Way::Here(Box::new(perform)), answers, kept: Vec::new(), bell })
    }

    /// `open`: how files are made.
    pub(super) fn over<W: Write>(open: impl FnMut(&[u8]) -> io::Result<W> + Send + 'static) -> io::Result<Self> {
        let (requests, inbox) = sync_channel(ROOM);
        // An answer for each request, and the one that says what went wrong.
        let (outbox, answers) = sync_channel(ROOM + 1);
        let bell = Doorbell::new()?;
        let thread_bell = bell.clone();
        rlaunch_sys::thread::permanent("file", move || {
            let outbox = Outbox::Waits(outbox);
            Writer { open, files: BTreeMap::new(), reported: false, outbox, bell: thread_bell }.run(&inbox);
        })?;
        Ok(Self { way: Way::Thread(requests), answers, kept: Vec::new(), bell })
    }

    /// # Errors
    /// The thread has too much to do, or is gone.
    pub(super) fn ask(&mut self, request: Request) -> Result<(), TrySendError<Request>> {
        match &mut self.way {
            Way::Thread(requests) => requests.try_send(request),
            Way::Here(perform) => {
                self.kept.extend(perform(request));
                Ok(())
            }
        }
    }

    /// The answers that have arrived.
    pub(super) fn answers(&mut self) -> impl Iterator<Item = Answer> + '_ {
        self.bell.clear();
        std::mem::take(&mut self.kept).into_iter().chain(self.answers.try_iter())
    }
}

/// Opens a file to append to it, after emptying it if that is asked for. Makes the directory that it is in.
fn open(path: &[u8], empty: bool) -> io::Result<File> {
    let file = OsStr::from_bytes(path);
    let opened = |file| File::options().append(true).create(true).open(file);
    let begun = if empty { File::create(file).map(drop) } else { Ok(()) };
    match begun.and_then(|()| opened(file)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let directory = path.iter().rposition(|b| *b == b'/').and_then(|at| path.get(..at)).unwrap_or_default();
            rlaunch_sys::directory::make(directory, false)?;
            opened(file)
        }
        opened => opened,
    }
}

/// A file, or why there is none: then nothing of its stream is kept.
struct Opened<W> {
    path: Vec<u8>,
    file: Option<W>,
}

struct Writer<O, W> {
    open: O,
    files: BTreeMap<StreamId, Opened<W>>,
    reported: bool,
    outbox: Outbox,
    bell: Doorbell,
}

impl<W: Write, O: FnMut(&[u8]) -> io::Result<W>> Writer<O, W> {
    /// Runs until the last sender is gone. The agent is woken when there is nothing left to do, or for much that was done: not for every
    /// line.
    fn run(mut self, inbox: &Receiver<Request>) {
        const OFTEN: usize = ROOM / 4;
        let mut unrung = 0;
        loop {
            let request = match inbox.try_recv() {
                Ok(request) => request,
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    if unrung > 0 {
                        self.bell.ring();
                    }
                    unrung = 0;
                    let Ok(request) = inbox.recv() else { return };
                    request
                }
            };
            if !self.perform(request) {
                return;
            }
            unrung += 1;
            if unrung == OFTEN {
                self.bell.ring();
                unrung = 0;
            }
        }
    }

    fn perform(&mut self, request: Request) -> bool {
        match request {
            Request::Make { proc, path, private } => {
                let made = rlaunch_sys::directory::make(&path, private);
                made.err().is_none_or(|error| self.failed(&error, &path)) && self.answer(Answer::Made(proc))
            }
            Request::Open(id, path) => {
                let (file, said) = match (self.open)(&path) {
                    Ok(file) => (Some(file), true),
                    Err(error) => (None, self.failed(&error, &path)),
                };
                self.files.insert(id, Opened { path, file });
                said
            }
            Request::Write(id, bytes) => self.write(id, &bytes),
            Request::Close(id) => {
                self.files.remove(&id);
                self.answer(Answer::Closed(id))
            }
        }
    }

    fn write(&mut self, id: StreamId, bytes: &[u8]) -> bool {
        let Some(Opened { path, file }) = self.files.get_mut(&id) else { return true };
        let mut rest = bytes;
        let mut failure = None;
        while let (Some(file), false) = (file.as_mut(), rest.is_empty()) {
            match file.write(rest) {
                Ok(0) => failure = Some(io::Error::from(ErrorKind::WriteZero)),
                Ok(n) => rest = rest.get(n..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => failure = Some(error),
            }
            if failure.is_some() {
                break;
            }
        }
        let (path, lost) = (path.clone(), rest.len());
        // Later bytes are tried again: there may be room by then.
        failure.is_none_or(|error| self.failed(&error, &path))
            && self.answer(Answer::Took { id, bytes: bytes.len(), lost })
    }

    /// Says what went wrong, once.
    fn failed(&mut self, error: &io::Error, path: &[u8]) -> bool {
        tracing::debug!(%error, "a log file cannot be written");
        if std::mem::replace(&mut self.reported, true) {
            return true;
        }
        self.answer(Answer::Failed { errno: error.raw_os_error().unwrap_or(0), path: path.to_vec() })
    }

    fn answer(&mut self, answer: Answer) -> bool {
        match &mut self.outbox {
            Outbox::Waits(outbox) => outbox.send(answer).is_ok(),
            Outbox::Kept(answers) => {
                answers.push(answer);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A disk with room for so many bytes.
    struct Disk(Arc<Mutex<(usize, Vec<u8>)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().unwrap();
            let n = bytes.len().min(disk.0).min(3);
            if n == 0 {
                return Err(io::Error::from_raw_os_error(28));
            }
            disk.0 -= n;
            disk.1.extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn without_a_thread_files_are_written_at_once() {
        let disk = Arc::new(Mutex::new((5, Vec::new())));
        let writer_disk = Arc::clone(&disk);
        let mut port = Port::here(move |_| Ok(Disk(Arc::clone(&writer_disk)))).unwrap();
        for request in
            [Request::Open(id(0), b"/a".to_vec()), Request::Write(id(0), b"0123456".to_vec()), Request::Close(id(0))]
        {
            assert!(port.ask(request).is_ok());
        }
        let failed = Answer::Failed { errno: 28, path: b"/a".to_vec() };
        let took = Answer::Took { id: id(0), bytes: 7, lost: 2 };
        assert!(rlaunch_sys::fd::readable_now(&port.bell), "the agent looks for the answers");
        assert_eq!(port.answers().collect::<Vec<_>>(), [failed, took, Answer::Closed(id(0))]);
        assert_eq!(disk.lock().unwrap().1, b"01234");
    }

    fn id(n: u32) -> StreamId {
        StreamId::from_raw(4 * n + 1).unwrap()
    }

    /// As many answers as there will be.
    fn answers(port: &Port, count: usize) -> Vec<Answer> {
        port.answers.iter().take(count).collect()
    }

    #[test]
    fn full_disk_is_reported_once_and_lost_bytes_are_counted() {
        let disk = Arc::new(Mutex::new((10, Vec::new())));
        let writer_disk = Arc::clone(&disk);
        let port = Port::over(move |path| match path {
            b"/no" => Err(io::Error::from_raw_os_error(13)),
            _ => Ok(Disk(Arc::clone(&writer_disk))),
        });
        let mut port = port.unwrap();
        let took = |n, bytes, lost| Answer::Took { id: id(n), bytes, lost };
        assert!(port.ask(Request::Open(id(0), b"/a".to_vec())).is_ok());
        assert!(port.ask(Request::Write(id(0), b"0123456".to_vec())).is_ok());
        assert!(port.ask(Request::Write(id(0), b"789ab".to_vec())).is_ok());
        let failed = Answer::Failed { errno: 28, path: b"/a".to_vec() };
        assert_eq!(answers(&port, 3), [took(0, 7, 0), failed, took(0, 5, 2)]);
        assert!(port.ask(Request::Write(id(0), b"c".to_vec())).is_ok());
        assert!(port.ask(Request::Open(id(1), b"/no".to_vec())).is_ok());
        assert!(port.ask(Request::Write(id(1), b"xy".to_vec())).is_ok());
        assert_eq!(answers(&port, 2), [took(0, 1, 1), took(1, 2, 2)]);
        disk.lock().unwrap().0 = 1;
        assert!(port.ask(Request::Write(id(0), b"d".to_vec())).is_ok());
        assert!(port.ask(Request::Close(id(0))).is_ok());
        assert_eq!(answers(&port, 2), [took(0, 1, 0), Answer::Closed(id(0))], "there is room again");
        assert_eq!(disk.lock().unwrap().1, b"0123456789d");
    }
}
