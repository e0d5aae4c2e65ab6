//! PMIx: Open MPI.
//!
//! A rank may have several connections, one after the other or at a time. Its data is forgotten when a program of the
//! rank connects after the program before has ended.

mod data;
mod meetings;
mod spawning;
mod worlds;

use super::fences::{Fences, Waiter};
use super::help::HelpMessages;
use super::{Action, Broken, Cx, Layout, Origin, SpeaksFor, job_data, names, shm_names, spawn};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use data::Data;
use data::HostWanted;
pub(super) use data::{Looking, Wanted, ask_for, hand_out_far};
pub(super) use meetings::Meeting;
use meetings::{Groups, Purpose};
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_base::time::Mono;
use rlaunch_protocol::wire::frozen::client::Reply;
use rlaunch_protocol::wire::node_news::MpiWire;
use rlaunch_protocol::wire::pmix::{
    ALL_RANKS, FIRST_SPECIAL, GroupForm, HEADER, Header, Hello, LogText, Malformed, Proc, PublicRequest, Request,
    Writer, status,
};
use worlds::Worlds;
pub(super) use worlds::{OfWorld, Parent};

/// Most requests that wait for data of a rank.
const MOST_WAITING: usize = 100_000;
/// Most bytes of public values of one request, with their names: they are a request to the store.
const LONGEST_PUBLIC: usize = 256 << 10;

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    process: u64,
    rank: Option<Rank>,
    is_described: bool,
    group_form: GroupForm,
    is_finalized: bool,
    /// The rank has another process in MPI: the first request is refused.
    is_second: bool,
}

impl Session {
    /// A connection of this process.
    pub(super) fn of(process: u64) -> Self {
        Self { process, ..Self::default() }
    }

    /// The rank that it speaks for.
    pub(super) const fn rank(&self) -> Option<Rank> {
        self.rank
    }

    const fn waiter(&self, client: ClientId, tag: u32) -> Waiter {
        Waiter { client, tag, is_described: self.is_described, group_form: self.group_form }
    }
}

/// The PMIx life of a rank.
#[derive(Debug, Default)]
struct OfRank {
    /// Connections that have not finalized, and all that are open.
    inside: u32,
    open: u32,
    /// The process of those that have not finalized.
    process: u64,
    /// A connection has been lost that had not finalized.
    is_torn: bool,
    /// Names of values that it has published.
    published: BTreeSet<Vec<u8>>,
}

/// Everything about PMIx.
#[derive(Debug, Default)]
pub(super) struct Messages {
    ranks: BTreeMap<Rank, OfRank>,
    fences: Fences<Meeting>,
    data: Data,
    worlds: Worlds,
    /// Help messages of Open MPI.
    pub(super) help: HelpMessages,
    groups: Groups,
    /// The facts about the job, described and not.
    job: [Option<Vec<u8>>; 2],
}

impl Messages {
    pub(super) fn receive(
        &mut self,
        cx: &mut Cx<'_>,
        session: &mut Session,
        bytes: &[u8],
        speaks_for: &mut SpeaksFor<'_>,
    ) -> Result<usize, Broken> {
        let Some(rank) = session.rank else { return self.hello(cx, session, bytes, speaks_for) };
        let Some(header) = Header::parse(bytes)? else { return Ok(0) };
        let end = HEADER.saturating_add(header.len);
        let Some(body) = bytes.get(HEADER..end) else { return Ok(0) };
        if session.is_second {
            // Open MPI 5 would take an error in the hello for the lack of a launcher, and write into the shared memory of the rank.
            let mut out = Writer::new(session.is_described);
            out.string(b"another process");
            send(cx, session.waiter(cx.client, header.tag), out);
            return Err(Broken::Twice(rank.get()));
        }
        match Request::parse(body, session.is_described) {
            Ok(request) => self.serve(cx, session, (rank, header.tag), request)?,
            // The command is known and a value in it is not: the client gets an answer.
            Err(Malformed::Kind(_)) => {
                reply(cx, session.waiter(cx.client, header.tag), status::NOT_SUPPORTED);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(end)
    }

    fn hello(
        &mut self,
        cx: &mut Cx<'_>,
        session: &mut Session,
        bytes: &[u8],
        speaks_for: &mut SpeaksFor<'_>,
    ) -> Result<usize, Broken> {
        let process = session.process;
        let Some((hello, used)) = Hello::parse(bytes)? else { return Ok(0) };
        if hello.role != 0 || hello.nspace != cx.layout.name.as_bytes() {
            return Err(Broken::Stranger);
        }
        let rank = Rank::new(hello.rank);
        if !cx.may_speak_for(rank, speaks_for)? {
            return Ok(0);
        }
        let own = self.ranks.entry(rank).or_default();
        if own.inside > 0 && own.process != process {
            let (rank, is_described) = (Some(rank), hello.is_described);
            *session = Session { rank, is_described, is_second: true, ..Session::of(process) };
            cx.answer(Hello::answer(cx.client.get()));
            return Ok(used);
        }
        if own.open == 0 {
            *own = OfRank::default();
            self.data.forget(rank);
        }
        own.process = process;
        own.open = own.open.saturating_add(1);
        own.inside = own.inside.saturating_add(1);
        if matches!(Origin::parse(&cx.layout.origin), Some(Origin::Parent(_))) {
            self.worlds.announce(cx, rank);
        }
        cx.init_wait.come(MpiWire::Pmix, rank);
        let group_form = GroupForm::of(hello.version);
        let is_described = hello.is_described;
        *session = Session { rank: Some(rank), is_described, group_form, ..Session::of(process) };
        cx.out.push_back(Action::Cleanup { client: cx.client, names: shm_names::of_open_mpi(cx.layout) });
        cx.answer(Hello::answer(cx.client.get()));
        Ok(used)
    }

    fn serve(
        &mut self,
        cx: &mut Cx<'_>,
        session: &mut Session,
        (rank, tag): (Rank, u32),
        request: Request<'_>,
    ) -> Result<(), Broken> {
        let is_described = session.is_described;
        let waiter = session.waiter(cx.client, tag);
        let answer = match request {
            Request::JobData => {
                let mut out = Writer::new(is_described);
                out.string(cx.layout.name.as_bytes()).raw(self.job_data(cx.layout, is_described));
                send(cx, waiter, out);
                return Ok(());
            }
            Request::Abort { status, text } => {
                cx.out.push_back(Action::Abort { rank, code: status, text: text.to_vec() });
                status::SUCCESS
            }
            Request::Commit(parts) => {
                self.data.commit(cx, (rank, is_described), &parts)?;
                status::SUCCESS
            }
            Request::Fence(procs) => return self.meet(cx, rank, waiter, (Purpose::Fence, &procs)),
            Request::Connect(procs) => return self.meet(cx, rank, waiter, (Purpose::Connect, &procs)),
            Request::Disconnect(procs) => return self.meet(cx, rank, waiter, (Purpose::Disconnect, &procs)),
            Request::GroupConstruct { name, procs } => {
                return self.meet(cx, rank, waiter, (Purpose::Group(name.to_vec()), &procs));
            }
            Request::GroupDestruct { name, procs } => return self.end_group(cx, rank, waiter, (name, &procs)),
            Request::Get { of, is_immediate } => {
                self.get(cx, waiter, of, is_immediate);
                return Ok(());
            }
            Request::Spawn(apps) => {
                self.worlds.announce(cx, rank);
                spawn::note_keys(cx, rank, apps.iter().flat_map(|app| app.infos.iter().map(|(key, _)| *key)));
                match spawning::request(cx, rank, &apps) {
                    Ok(request) => spawn::begin(cx, rank, spawn::Asker::Message(waiter), request),
                    Err(why) => spawn::refuse(cx, (spawn::Asker::Message(waiter), rank), &[why.as_bytes()]),
                }
                return Ok(());
            }
            Request::Finalize => self.finalize(cx, session, rank),
            Request::Public(request) => {
                self.public(cx, rank, waiter, &request);
                return Ok(());
            }
            Request::Events => status::SUCCESS,
            Request::NoEvents => return Ok(()),
            Request::Log(texts) => {
                self.log(cx, (rank, waiter), &texts);
                return Ok(());
            }
            // The files that it names are removed if their names show this world: `shm_names`.
            Request::JobControl => {
                let mut out = Writer::new(is_described);
                out.status(status::SUCCESS).size(0);
                send(cx, waiter, out);
                return Ok(());
            }
            Request::Unsupported(_) => status::NOT_SUPPORTED,
        };
        reply(cx, waiter, answer);
        Ok(())
    }

    /// Texts for the user. A request has one help message at most.
    fn log(&mut self, cx: &mut Cx<'_>, (rank, waiter): (Rank, Waiter), texts: &[LogText<'_>]) {
        if let [LogText { text, help: Some(name) }] = texts {
            return self.help.take(cx, (rank, waiter), *name, text);
        }
        texts.iter().for_each(|text| cx.out.push_back(Action::Log { rank, text: text.text.to_vec(), help: None }));
        reply(cx, waiter, status::SUCCESS);
    }

    /// Values for all ranks of the job, by name.
    fn public(&mut self, cx: &mut Cx<'_>, rank: Rank, waiter: Waiter, request: &PublicRequest<'_>) {
        self.worlds.announce(cx, rank);
        let published = &mut self.ranks.entry(rank).or_default().published;
        match request {
            PublicRequest::Publish { values, .. }
                if values
                    .iter()
                    .flat_map(|(key, value)| [key.len(), value.bytes.len()])
                    .fold(0, usize::saturating_add)
                    > LONGEST_PUBLIC =>
            {
                reply(cx, waiter, status::OUT_OF_RESOURCE);
            }
            PublicRequest::Publish { values, is_once } => {
                published.extend(values.iter().map(|(key, _)| key.to_vec()));
                names::publish(cx, waiter, rank.get(), values, *is_once);
            }
            PublicRequest::Lookup { keys, waits } => names::lookup(cx, (rank, waiter), keys, *waits),
            PublicRequest::Unpublish(keys) => {
                let is_meant = |key: &Vec<u8>| keys.is_empty() || keys.contains(&key.as_slice());
                let meant: Vec<Vec<u8>> = published.extract_if(.., is_meant).collect();
                names::unpublish(cx, waiter, meant);
            }
        }
    }

    fn finalize(&mut self, cx: &mut Cx<'_>, session: &mut Session, rank: Rank) -> i32 {
        if !core::mem::replace(&mut session.is_finalized, true) {
            let own = self.ranks.entry(rank).or_default();
            own.inside = own.inside.saturating_sub(1);
        }
        self.excuse_finalized(cx);
        status::SUCCESS
    }

    fn job_data(&mut self, layout: &Layout, is_described: bool) -> &[u8] {
        let [plain, described] = &mut self.job;
        let known = if is_described { described } else { plain };
        known.get_or_insert_with(|| job_data::write(layout, is_described))
    }

    fn get(&mut self, cx: &mut Cx<'_>, waiter: Waiter, of: Proc<'_>, is_immediate: bool) {
        if of.nspace != cx.layout.name.as_bytes() {
            return self.get_of_world(cx, waiter, of, is_immediate);
        }
        if of.rank != ALL_RANKS {
            return self.data.get(cx, waiter, of, is_immediate);
        }
        let mut data = Writer::new(waiter.is_described);
        data.one_proc(of).raw(self.job_data(cx.layout, waiter.is_described));
        let mut out = Writer::new(waiter.is_described);
        out.status(status::SUCCESS).byte_object(&data.into_bytes());
        send(cx, waiter, out);
    }

    /// The data of ranks of another host.
    pub(super) fn take_data(&mut self, cx: &mut Cx<'_>, wanted: HostWanted, answer: &Reply<'_>) {
        self.data.take(cx, wanted, answer);
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.data.deadline()
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.data.deadline().is_some_and(|at| at <= cx.now) {
            self.data.send(cx);
        }
    }

    pub(super) fn closed(&mut self, client: ClientId, session: &Session) {
        self.fences.forget(client);
        self.data.closed(client);
        self.worlds.closed(client);
        if let Some(own) = session.rank.filter(|_| !session.is_second).and_then(|rank| self.ranks.get_mut(&rank)) {
            own.open = own.open.saturating_sub(1);
            if !session.is_finalized {
                own.inside = own.inside.saturating_sub(1);
                own.is_torn = true;
            }
        }
    }

    pub(super) fn is_inside(&self, rank: Rank) -> bool {
        self.ranks.get(&rank).is_some_and(|own| own.inside > 0 || own.is_torn)
    }

    /// Whether a process of a rank has connected.
    pub(super) fn has_come(&self, rank: Rank) -> bool {
        self.ranks.contains_key(&rank)
    }
}

pub(super) fn send(cx: &mut Cx<'_>, Waiter { client, tag, .. }: Waiter, out: Writer) {
    cx.write(client, Header::frame(client.get(), tag, &out.into_bytes()));
}

pub(super) fn reply(cx: &mut Cx<'_>, waiter: Waiter, status: i32) {
    cx.write(waiter.client, status_message(waiter, status));
}

/// An answer that is a status and no more.
pub(super) fn status_message(Waiter { client, tag, is_described, .. }: Waiter, status: i32) -> Vec<u8> {
    let mut out = Writer::new(is_described);
    out.status(status);
    Header::frame(client.get(), tag, &out.into_bytes())
}
