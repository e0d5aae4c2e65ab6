//! The process of a pool: its socket, its connections and its decisions, in one loop.

mod members;

use super::connection::{Client, OF_CLIENT};
use super::events::Events;
use super::links::{LinkNews, Links, Part};
use super::pool_directory::{FileId, PoolDirectory};
use crate::edges::now;
use rlaunch_base::id::{HoldId, NodeId};
use rlaunch_base::machine::earliest_of;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_core::pool::{HostState, Pool, PoolAction, PoolEvent};
use rlaunch_plan::hostlist::{self, Alone, Entry};
use rlaunch_protocol::wire::frozen::pool::{
    Granted, GrantedHost, HEADER, Holder, HostReport, MAX_REPLY, MAX_REQUEST, Need, PoolReply, PoolRequest, Refusal,
    VERSION, common_version,
};
use rlaunch_sys::directory_watch::DirectoryWatch;
use rlaunch_sys::epoll::{Batch, ReadySet};
use rlaunch_sys::signals::SignalFd;
use rlaunch_sys::{fd, signals, socket, unix};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::time::Duration;

/// Connections at a time. Others are closed at once.
const MOST_CLIENTS: usize = 4096;
/// How long a client may take to say what it wants.
const HELLO: Span = Span::from_secs(10);
/// How long no connection is accepted after one could not be, for lack of descriptors.
const AGAIN: Span = Span::from_secs(1);
/// Bytes that are read at a time.
const CHUNK: usize = 64 << 10;

const OF_POOL: u64 = 7;
const LISTENER: u64 = OF_POOL;
const SIGNALS: u64 = 8 | OF_POOL;
const DIRECTORY: u64 = 16 | OF_POOL;

/// The token of a part of a host's ssh.
fn token(node: NodeId, is_question: bool, part: Part) -> u64 {
    let part = match part {
        Part::Out => 0,
        Part::Err => 1,
        Part::End => 2,
    };
    (u64::from(node.get()) << 3) | (part + if is_question { 3 } else { 0 })
}

/// A host, as it was named.
struct Named {
    entry: Entry,
    name: OsBytes,
}

/// The pool's process.
pub(super) struct Server {
    set: ReadySet,
    listener: UnixListener,
    /// Until when no connection is accepted.
    paused_until: Option<Mono>,
    /// The log has the error for which none is: a line is written once for each shortage.
    is_shortage_logged: bool,
    signals: SignalFd,
    directory: PoolDirectory,
    /// The lock of the directory.
    lock: File,
    /// The file of the socket; `None`: it was removed at once.
    socket: Option<FileId>,
    /// The watch for a removed or renamed directory.
    watch: Option<DirectoryWatch>,
    events: Events,
    pool: Pool,
    links: Links,
    clients: BTreeMap<HoldId, Client>,
    next: u32,
    hosts: BTreeMap<NodeId, Named>,
    /// The slots of slices, by their names.
    slots: BTreeMap<String, u32>,
    /// The numbers of slices for jobs that name none.
    sizes: Vec<u32>,
    began: Mono,
    is_over: bool,
    /// Hosts that are about to be taken away, with the facts that they had.
    warned: BTreeMap<NodeId, OsBytes>,
    /// Hosts whose first dial has come to no end yet.
    opening: BTreeSet<NodeId>,
    /// Hosts that have left while processes of a job may have been there.
    unchecked: Vec<HostReport>,
}

impl Server {
    /// A pool whose socket is there from now on.
    ///
    /// # Errors
    /// A descriptor cannot be had, or the socket cannot be made.
    pub(super) fn new(
        (directory, lock, events): (PoolDirectory, File, Events),
        links: Links,
        (idle, sizes): (Option<Span>, Vec<u32>),
        watched: &[i32],
    ) -> io::Result<Self> {
        let set = ReadySet::new()?;
        directory.clear();
        let listener = UnixListener::bind(directory.socket())?;
        let socket = directory.socket_file();
        listener.set_nonblocking(true)?;
        set.add(&listener, LISTENER)?;
        let signals = SignalFd::new(watched)?;
        set.add(&signals, SIGNALS)?;
        let above = directory.path().parent().unwrap_or(directory.path());
        let watch = DirectoryWatch::new(&[directory.path(), above]);
        let mut server = Self {
            set,
            listener,
            paused_until: None,
            is_shortage_logged: false,
            signals,
            directory,
            lock,
            socket,
            watch: None,
            events,
            pool: Pool::new(now(), idle),
            links,
            clients: BTreeMap::new(),
            next: 0,
            hosts: BTreeMap::new(),
            slots: BTreeMap::new(),
            sizes,
            began: now(),
            is_over: false,
            warned: BTreeMap::new(),
            opening: BTreeSet::new(),
            unchecked: Vec::new(),
        };
        match watch.and_then(|watch| server.set.add(&watch, DIRECTORY).map(|()| watch)) {
            Ok(watch) => server.watch = Some(watch),
            Err(error) => server.log(&format!("the directory is not watched: {}", rlaunch_sys::reason(&error))),
        }
        Ok(server)
    }

    /// Serves until nothing more is to be done, or until every host was reached or lost once (`is_first`).
    pub(super) fn run(&mut self, is_first: bool) {
        let mut batch = Batch::with_room(64);
        loop {
            if self.set.ready(&mut batch) > 0 {
                let tokens: Vec<u64> = batch.tokens().collect();
                tokens.into_iter().for_each(|token| self.serve(token));
            }
            self.pass();
            if (self.is_over && self.links.is_empty()) || (is_first && self.opening.is_empty()) {
                return;
            }
            let deadline = self.deadline().map(|at| Duration::from_nanos(at.since(now()).nanos()));
            fd::wait_for_any(&[self.set.as_fd()], deadline);
        }
    }

    /// Ends what is left: nothing of the pool remains.
    pub(super) fn finish(mut self) {
        self.event("pool.down", []);
        self.report_unchecked();
        self.links.dismiss();
        self.directory.remove(&self.lock);
    }

    /// The number of its slices.
    pub(super) fn slice_count(&self) -> usize {
        self.slots.len()
    }

    /// Hosts that can be used, and the others with the reason.
    pub(super) fn reached(&self) -> (usize, Vec<(OsBytes, OsBytes)>) {
        let of = |node: NodeId| self.hosts.get(&node).map(|named| named.name.clone()).unwrap_or_default();
        let bad = self.pool.hosts().filter(|(_, host)| !host.is_usable());
        let bad: Vec<_> = bad.map(|(node, _)| (of(node), self.links.note(node))).collect();
        (self.pool.hosts().count() - bad.len(), bad)
    }

    /// The pool is to end.
    pub(super) fn end(&mut self, is_now: bool) {
        self.pool.handle(now(), PoolEvent::Down(is_now));
    }

    fn notify(&mut self, event: PoolEvent) {
        self.pool.handle(now(), event);
    }

    fn deadline(&self) -> Option<Mono> {
        let clients = earliest_of(self.clients.values().map(|client| client.limit));
        earliest_of([self.pool.poll_timeout(), self.links.deadline(), clients, self.paused_until])
    }

    fn log(&self, text: &str) {
        let line = format!("{:>9}  {text}\n", now().since(self.began).to_string());
        let _full = fd::write(2, line.as_bytes());
    }

    fn name(&self, node: NodeId) -> OsBytes {
        self.hosts.get(&node).map(|named| named.name.clone()).unwrap_or_default()
    }

    /// The name of a host's slice; empty: it has none.
    fn slice(&self, node: NodeId) -> OsBytes {
        self.hosts.get(&node).and_then(|named| named.entry.slice()).unwrap_or_default().into()
    }

    fn serve(&mut self, token: u64) {
        let id = u32::try_from(token >> 3).unwrap_or(u32::MAX);
        match token & 7 {
            part @ 0..=5 => {
                let kind = match part % 3 {
                    0 => Part::Out,
                    1 => Part::Err,
                    _ => Part::End,
                };
                self.links.serve(NodeId::new(id), part >= 3, kind, &self.set);
            }
            OF_CLIENT => self.serve_client(HoldId::new(id)),
            _ if token == LISTENER => self.accept(),
            _ if token == DIRECTORY => self.check_directory(),
            _ => {
                while let Some(number) = self.signals.next() {
                    if i32::from(number) != signals::HUP {
                        self.log(&format!("signal {number}: the pool ends"));
                        self.end(false);
                    }
                }
            }
        }
    }

    /// Without its socket no client can reach the pool: it ends. A lock that was removed is made again.
    fn check_directory(&mut self) {
        self.watch.iter().for_each(DirectoryWatch::clear);
        if self.directory.socket_file() == self.socket {
            if !self.directory.is_locked_by(&self.lock)
                && let Ok(Ok(lock)) = self.directory.try_take(self.began.nanos())
            {
                self.lock = lock;
                self.log("the lock file was removed, and was made again");
            }
            return;
        }
        if let Some(watch) = self.watch.take() {
            self.set.remove(&watch);
        }
        let path = self.directory.path().display().to_string();
        self.log(&format!("the socket in {path} was removed or renamed: no command reaches the pool, and it ends"));
        self.event("pool.unreachable", [("directory", path.into())]);
        self.end(false);
    }

    fn accept(&mut self) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if rlaunch_sys::is_aborted_connection(&error) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    if !std::mem::replace(&mut self.is_shortage_logged, true) {
                        self.log(&format!("no connection can be accepted: {}", rlaunch_sys::reason(&error)));
                    }
                    // A listener that stays ready must not keep this process busy.
                    self.set.pause(&self.listener, LISTENER);
                    self.paused_until = Some(now() + AGAIN);
                    return;
                }
            };
            self.is_shortage_logged = false;
            let is_ours = unix::user_of(&stream).is_ok_and(|user| user == rlaunch_sys::facts::host::user().0);
            if !is_ours || self.clients.len() >= MOST_CLIENTS || stream.set_nonblocking(true).is_err() {
                continue;
            }
            let hold = HoldId::new(self.next);
            self.next = self.next.wrapping_add(1);
            if self.set.add(&stream, Client::token(hold)).is_ok() {
                self.clients.insert(hold, Client::new(stream, now() + HELLO));
            }
        }
    }

    fn serve_client(&mut self, hold: HoldId) {
        let Some(client) = self.clients.get_mut(&hold) else { return };
        client.flush(&self.set, hold);
        let mut chunk = [0; 4096];
        loop {
            match socket::recv(&client.stream, &mut chunk) {
                Ok(n @ 1..) => client.input.extend_from_slice(chunk.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(0) | Err(_) => return self.drop_client(hold),
            }
            // A client that sends more than it may is read no further.
            if client.input.len() > MAX_REQUEST + HEADER + CHUNK {
                return self.drop_client(hold);
            }
        }
        loop {
            let Some(client) = self.clients.get_mut(&hold) else { return };
            match client.next_request() {
                Ok(Some(request)) => self.take(hold, request),
                Ok(None) => return,
                Err(()) => return self.drop_client(hold),
            }
        }
    }

    /// Adds a line to the event log.
    fn event<const N: usize>(&mut self, ev: &str, fields: [(&str, Value); N]) {
        if let Err(error) = self.events.write(ev, fields) {
            self.log(&format!("the event log cannot be written: {}", rlaunch_sys::reason(&error)));
        }
    }

    /// All hosts were reached or lost once.
    pub(super) fn log_up(&mut self) {
        let hosts: Vec<Value> = self.hosts.values().map(|named| named.name.to_string().into()).collect();
        self.event("pool.up", [("pid", std::process::id().into()), ("hosts", hosts.into())]);
    }

    fn drop_client(&mut self, hold: HoldId) {
        let job = self.pool.holds().find(|(id, _)| *id == hold).map(|(_, held)| held.job.to_string());
        if let Some(job) = job {
            self.event("job.ended", [("job", job.into())]);
        }
        if let Some(client) = self.clients.remove(&hold) {
            self.set.remove(&client.stream);
            if let Some(writable) = &client.writable {
                self.set.remove(writable);
            }
            if client.need.is_some() {
                self.pool.handle(now(), PoolEvent::Closed(hold));
            }
        }
    }

    fn take(&mut self, hold: HoldId, request: PoolRequest) {
        let Some(client) = self.clients.get_mut(&hold) else { return };
        if !client.is_greeted {
            let is_common = matches!(request, PoolRequest::Hello { min, max } if common_version(min, max).is_some());
            client.is_greeted = is_common;
            let reply = match request {
                PoolRequest::Hello { .. } if !is_common => PoolReply::Refused(Refusal::Version(VERSION)),
                _ => PoolReply::Hello { min: VERSION, max: VERSION },
            };
            return self.reply(hold, &reply);
        }
        let done = |result: Result<(), Refusal>| result.map_or_else(PoolReply::Refused, |()| PoolReply::Done);
        let reply = match request {
            // A connection has at most one hold.
            PoolRequest::Want(_) | PoolRequest::Hello { .. } if client.need.is_some() => return self.drop_client(hold),
            PoolRequest::Hello { min, max } => PoolReply::Hello { min, max },
            PoolRequest::Want(_)
            | PoolRequest::Drain(_)
            | PoolRequest::Remove(_)
            | PoolRequest::Add(_)
            | PoolRequest::Down { .. }
                if let Some(why) = client.difference() =>
            {
                PoolReply::Refused(Refusal::Rights(why.into()))
            }
            PoolRequest::Want(want) => {
                (client.need, client.limit) = (Some(want.need.clone()), None);
                let (pid, ends_within) = (client.pid, client.ends_within);
                self.pool.handle(now(), PoolEvent::Want(hold, pid, want));
                let limit = ends_within.map(|within| PoolEvent::EndsWithin(hold, within));
                return limit.into_iter().for_each(|limit| self.pool.handle(now(), limit));
            }
            PoolRequest::EndsWithin(within) => {
                client.ends_within = Some(within);
                return;
            }
            PoolRequest::Status => PoolReply::Report(self.report()),
            PoolRequest::Slices => PoolReply::Slices(self.slices()),
            PoolRequest::Drain(hosts) => done(self.drain(&hosts, false)),
            PoolRequest::Remove(hosts) => done(self.drain(&hosts, true)),
            PoolRequest::Add(lines) => {
                let entries = hostlist::files([("the hosts", lines.as_slice())], &mut Alone);
                let entries = entries.map_err(|error| Refusal::Lines(error.to_string().into()));
                done(entries.and_then(|entries| self.add(entries)))
            }
            PoolRequest::Down { is_now } => {
                // This client stays connected until the pool ends.
                (client.limit, client.awaits_end) = (None, true);
                self.log("down: the pool ends");
                self.end(is_now);
                PoolReply::Done
            }
            // Only of a host that it has, and without an answer: a job reads nothing more.
            PoolRequest::Warned(host) => return self.warned(hold, &host),
            PoolRequest::Unknown => PoolReply::Unsupported,
        };
        self.reply(hold, &reply);
    }

    /// A job reports that one of its hosts is about to be taken away. The host gets no new job until it has other facts, as after a reboot.
    fn warned(&mut self, hold: HoldId, name: &OsBytes) {
        let is_its = |node: &NodeId| self.pool.host(*node).is_some_and(|host| host.holder() == Some(hold));
        let known = self.hosts.iter().find(|(node, named)| named.name == *name && is_its(node));
        let Some((node, _)) = known else { return };
        let node = *node;
        let warned = self.host_warned(node);
        self.pool.handle(now(), warned);
    }

    fn host_warned(&mut self, node: NodeId) -> PoolEvent {
        let name = self.name(node);
        self.log(&format!("{name}: is about to be taken away"));
        self.event("host.warned", [("host", name.to_string().into())]);
        self.warned.insert(node, self.links.granted(node).0);
        PoolEvent::Warned(node, true)
    }

    fn reply(&mut self, hold: HoldId, reply: &PoolReply) {
        let Some(client) = self.clients.get_mut(&hold) else { return };
        // A client that asks on and reads no answers.
        if client.output.len() > MAX_REPLY {
            return self.drop_client(hold);
        }
        client.output.extend_from_slice(&reply.to_frame());
        client.flush(&self.set, hold);
    }

    /// Time passes, news are taken in, and decisions are carried out.
    fn pass(&mut self) {
        let late = |(hold, client): (&HoldId, &Client)| client.limit.filter(|at| *at <= now()).map(|_| *hold);
        let late: Vec<HoldId> = self.clients.iter().filter_map(late).collect();
        late.into_iter().for_each(|hold| self.drop_client(hold));
        if self.paused_until.take_if(|until| *until <= now()).is_some() {
            self.set.resume(&self.listener, LISTENER);
        }
        self.pool.handle_timeout(now());
        loop {
            self.links.pass(&self.set, token);
            let news = self.links.next_news();
            if let Some(news) = &news {
                self.take_news(news);
            }
            let mut is_idle = news.is_none();
            while let Some(action) = self.pool.poll_action() {
                is_idle = false;
                self.perform(action);
            }
            if is_idle {
                return;
            }
        }
    }

    fn take_news(&mut self, news: &LinkNews) {
        let event = match news {
            LinkNews::Up(node) => {
                self.log(&format!("{}: ready", self.name(*node)));
                self.event("host.up", [("host", self.name(*node).to_string().into())]);
                self.opening.remove(node);
                let facts = self.links.granted(*node).0;
                if self.warned.get(node).is_some_and(|before| *before != facts) {
                    self.warned.remove(node);
                    self.pool.handle(now(), PoolEvent::Warned(*node, false));
                }
                PoolEvent::Up(*node)
            }
            LinkNews::Lost(node, why) => {
                self.opening.remove(node);
                if self.pool.host(*node).is_some_and(|host| host.state() != HostState::Lost) {
                    let name = self.name(*node);
                    self.log(&format!("{name}: lost: {why}"));
                    self.event("host.lost", [("host", name.to_string().into()), ("why", why.to_string().into())]);
                }
                PoolEvent::Lost(*node)
            }
            LinkNews::Empty(node, job) => {
                let (host, job_name) = (self.name(*node).to_string(), job.to_string());
                self.event("host.empty", [("host", host.into()), ("job", job_name.into())]);
                PoolEvent::Empty(*node, *job)
            }
            LinkNews::Warned(node, source) => {
                self.log(&format!("{}: the metadata server reports: {source}", self.name(*node)));
                self.host_warned(*node)
            }
        };
        self.pool.handle(now(), event);
    }

    fn perform(&mut self, action: PoolAction) {
        match action {
            PoolAction::Grant(hold, nodes) => {
                let job =
                    self.pool.holds().find(|(id, _)| *id == hold).map(|(_, held)| (held.job, held.command.clone()));
                let Some((job, command)) = job else { return };
                self.log(&format!("job {} ({command}) has {} hosts", job.short(), nodes.len()));
                let hosts: Vec<Value> = nodes.iter().map(|node| self.name(*node).to_string().into()).collect();
                let (id, command) = (job.to_string().into(), command.to_string().into());
                self.event("job.began", [("job", id), ("command", command), ("hosts", hosts.into())]);
                nodes.iter().for_each(|node| self.links.hold(*node));
                let granted = self.granted(hold, job, &nodes);
                self.reply(hold, &PoolReply::Granted(granted));
            }
            PoolAction::Queued(hold, before) => {
                let holders = self.holders();
                self.reply(hold, &PoolReply::Queued { before, holders });
            }
            PoolAction::Busy(hold) => {
                let (holders, waiting) = (self.holders(), self.pool.waiting());
                self.last_reply(hold, &PoolReply::Busy { holders, waiting });
            }
            PoolAction::Refuse(hold, refusal) => self.last_reply(hold, &PoolReply::Refused(refusal)),
            PoolAction::End(hold, is_now) => self.end_job(hold, is_now),
            PoolAction::Watch(node, job) => self.links.ask(node, job),
            PoolAction::Close(node, job) => self.take_leave(node, job),
            PoolAction::Over => self.is_over = true,
        }
    }

    /// A job is to end: by SIGTERM, or by SIGKILL, after which its hosts end what is left.
    fn end_job(&mut self, hold: HoldId, is_now: bool) {
        let job = self.pool.holds().find(|(id, _)| *id == hold).map(|(_, held)| held.job);
        if let Some(job) = job.filter(|_| is_now) {
            self.log(&format!("job {}: its launcher is killed", job.short()));
            self.event("job.killed", [("job", job.to_string().into())]);
        }
        self.clients.get(&hold).into_iter().for_each(|client| client.end(is_now));
    }

    /// An answer to a job that gets no hosts.
    fn last_reply(&mut self, hold: HoldId, reply: &PoolReply) {
        if let Some(client) = self.clients.get_mut(&hold) {
            // The job holds no hosts.
            (client.need, client.limit) = (None, Some(now() + HELLO));
        }
        self.reply(hold, reply);
    }

    fn granted(&self, hold: HoldId, job: rlaunch_base::id::JobId, nodes: &[NodeId]) -> Granted {
        let need = self.clients.get(&hold).and_then(|client| client.need.as_ref());
        let is_sliced = matches!(need, Some(Need::Slices(_)));
        let host = |node: &NodeId| {
            let (facts, control) = self.links.granted(*node);
            let line = self.hosts.get(node).map(|named| named.entry.to_line(is_sliced)).unwrap_or_default();
            GrantedHost { line: line.into(), facts, control }
        };
        let bad = need.map(|need| self.pool.left_out(need, nodes)).unwrap_or_default();
        let left_out = bad.into_iter().map(|node| self.name(node)).collect();
        Granted { job, hosts: nodes.iter().map(host).collect(), left_out }
    }

    fn holders(&self) -> Vec<Holder> {
        let holder = |(id, hold): (HoldId, &rlaunch_core::pool::Hold)| {
            let count = self.pool.hosts().filter(|(_, host)| host.holder() == Some(id)).count();
            Holder {
                job: hold.job,
                pid: hold.pid,
                command: hold.command.clone(),
                age: now().since(hold.since),
                hosts: u32::try_from(count).unwrap_or(u32::MAX),
                is_ending: hold.is_ending,
            }
        };
        self.pool.holds().map(holder).collect()
    }
}
