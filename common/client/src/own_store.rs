//! The store of a process that belongs to no job: what it asks is done here.
//!
//! The machine is the same as a job's ([`Namespace`]), driven by the calling thread. A wait is at a socket, as with a job's store: so the
//! end of a round ends this wait, too.

use crate::kernel::send_all;
use crate::{Error, Interrupted, call_guard};
use rlaunch_base::id::ClientId;
use rlaunch_base::time::Mono;
use rlaunch_keyvalue::store::owner::LIMITS;
use rlaunch_keyvalue::store::{Action, Ask, Namespace, Seq, Ticket};
use rlaunch_protocol::wire::frozen::client::{Space, write_reply};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// That of this process; a forked child finds its parent's, and makes another.
static OWN: Mutex<Option<Arc<Own>>> = Mutex::new(None);

#[derive(Debug)]
pub(crate) struct Own {
    maker: u32,
    began: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    job: Namespace,
    /// The namespace of the present round.
    round: Namespace,
    next: u32,
    /// Answers that were not read yet.
    answers: BTreeMap<ClientId, Vec<u8>>,
    /// Threads to be woken for an answer.
    asleep: BTreeMap<ClientId, UnixStream>,
}

impl Inner {
    fn space(&mut self, space: Space) -> &mut Namespace {
        match space {
            Space::Job => &mut self.job,
            Space::Generation => &mut self.round,
        }
    }

    fn collect_answers(&mut self) {
        for namespace in [&mut self.job, &mut self.round] {
            while let Some(Action::Answer { ticket, answer }) = namespace.poll_action() {
                self.answers.insert(ticket.client, write_reply(&answer));
                if let Some(bell) = self.asleep.remove(&ticket.client) {
                    // A thread that has gone needs no answer, and SIGPIPE would end a program in C.
                    let _gone = send_all(&bell, &[0]);
                }
            }
        }
    }

    fn forget(&mut self, client: ClientId) {
        [&mut self.job, &mut self.round].into_iter().for_each(|namespace| namespace.gone(client));
        self.collect_answers();
        self.asleep.remove(&client);
        self.answers.remove(&client);
    }
}

/// The store of this process.
pub(crate) fn open() -> Arc<Own> {
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(own) = own.as_ref().filter(|own| own.is_ours()) {
        return Arc::clone(own);
    }
    Arc::clone(own.insert(Arc::new(Own::new())))
}

/// Another round begins: what was stored for the one before is gone.
pub(crate) fn begin_round() {
    let own = OWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(own) = own.filter(|own| own.is_ours()) {
        let mut inner = own.inner();
        inner.round.close();
        inner.collect_answers();
        inner.round = Namespace::new(LIMITS);
    }
}

impl Own {
    fn new() -> Self {
        let inner = Inner {
            job: Namespace::new(LIMITS),
            round: Namespace::new(LIMITS),
            next: 0,
            answers: BTreeMap::new(),
            asleep: BTreeMap::new(),
        };
        Self { maker: std::process::id(), began: Instant::now(), inner: Mutex::new(inner) }
    }

    fn is_ours(&self) -> bool {
        self.maker == std::process::id()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Mono {
        Mono::from_nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Asks, and waits for the answer, to be read as [`Reply`](rlaunch_protocol::wire::frozen::client::Reply).
    pub(crate) fn ask(&self, space: Space, ask: Ask<'_>) -> Result<Vec<u8>, Error> {
        // The lock of the parent may be held by a thread that the child has not.
        if !self.is_ours() {
            return Err(Error::Order(
                "this process is a fork of the one that opened the store outside rlaunch (try: open another store here)",
            ));
        }
        let client = {
            let mut inner = self.inner();
            inner.next = inner.next.wrapping_add(1);
            let client = ClientId::new(inner.next);
            let ticket = Ticket { client, seq: Seq(1) };
            inner.space(space).ask(self.now(), ticket, ask);
            inner.collect_answers();
            if let Some(answer) = inner.answers.remove(&client) {
                inner.forget(client);
                return Ok(answer);
            }
            client
        };
        let answer = self.wait(space, client);
        self.inner().forget(client);
        answer
    }

    fn wait(&self, space: Space, client: ClientId) -> Result<Vec<u8>, Error> {
        let (own, bell) = UnixStream::pair()?;
        let mut bell = Some(bell);
        let own = Arc::new(own);
        let wait = call_guard::begin(&own)?;
        loop {
            let due = {
                let mut inner = self.inner();
                let now = self.now();
                inner.space(space).handle_timeout(now);
                inner.collect_answers();
                if let Some(answer) = inner.answers.remove(&client) {
                    return Ok(answer);
                }
                inner.asleep.extend(bell.take().map(|bell| (client, bell)));
                inner.space(space).poll_timeout().map(|due| due.since(now))
            };
            // Zero would be for ever.
            let within = due.map(|due| due.duration().max(Duration::from_millis(1)));
            own.set_read_timeout(within)?;
            match (&*own).read(&mut [0]) {
                // An item that was taken for it meanwhile would be lost.
                Ok(0) if wait.is_some() => {
                    let mut inner = self.inner();
                    let answer = inner.answers.remove(&client);
                    inner.forget(client);
                    return answer.ok_or_else(|| Interrupted.into());
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use std::thread::scope;

    const SOON: Option<Duration> = Some(Duration::from_millis(20));

    fn store() -> (Arc<Own>, Store) {
        let own = Arc::new(Own::new());
        let store = Store::own(&own);
        (own, store)
    }

    /// As many as sleep in it.
    fn until_asleep(own: &Own, count: usize) {
        while own.inner().asleep.len() != count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn own_store_behaves_as_a_jobs_store() {
        let _turn = crate::session::tests::turn();
        let (own, store) = store();
        store.set(b"a", b"1").unwrap();
        assert_eq!((store.add(b"a", 41).unwrap(), store.get(b"a").unwrap()), (42, Some(b"42".to_vec())));
        assert_eq!(store.compare_set(b"b", None, b"x").unwrap(), (true, Some(b"x".to_vec())));
        assert_eq!(store.keys(b"").unwrap(), [b"a", b"b"]);
        store.wait(&[b"a", b"b"], None).unwrap();
        store.fence(b"all", [0], 0, None).unwrap();
        let late = store.wait(&[b"a", b"c"], SOON).unwrap_err();
        assert!(matches!(&late, Error::TimedOut { missing, .. } if missing.contains("'c'")), "{late}");
        let late = store.fence(b"two", [0, 1], 0, SOON).unwrap_err();
        assert!(matches!(&late, Error::TimedOut { missing, .. } if missing.contains('1')), "{late}");
        let long = store.set(b"a", &vec![0; (512 << 10) + 1]).unwrap_err();
        assert!(matches!(long, Error::Refused { .. }), "{long}");
        let inner = own.inner();
        assert!(inner.answers.is_empty() && inner.asleep.is_empty());
    }

    #[test]
    fn waiter_is_woken_by_arrival() {
        let _turn = crate::session::tests::turn();
        let (own, store) = store();
        let long = vec![7; 512 << 10];
        scope(|threads| {
            let taken = threads.spawn(|| store.take(b"queue", None).unwrap());
            let waited = threads.spawn(|| store.wait(&[b"key"], None).unwrap());
            until_asleep(&own, 2);
            store.push(b"queue", &long).unwrap();
            store.set(b"key", b"").unwrap();
            assert_eq!(taken.join().unwrap(), long);
            waited.join().unwrap();
        });
    }

    #[test]
    fn a_wait_ends_with_the_round_and_what_was_stored_for_it_too() {
        let _turn = crate::session::tests::turn();
        let own = open();
        let store = Store::own(&own);
        let round = store.in_space(Space::Generation);
        let before = store.count().unwrap();
        store.set(b"kept", b"").unwrap();
        round.set(b"gone", b"").unwrap();
        call_guard::takes_part();
        scope(|threads| {
            let waits = threads.spawn(|| round.take(b"queue", None));
            until_asleep(&own, 1);
            call_guard::end(false);
            let ended = waits.join().unwrap();
            assert!(matches!(ended, Err(Error::Interrupted(_))), "{ended:?}");
        });
        round.push(b"queue", b"for the next").unwrap();
        assert_eq!(round.queue_len(b"queue").unwrap(), 1, "nobody waits for it any more");
        call_guard::takes_no_part();
        begin_round();
        assert_eq!((store.count().unwrap(), round.count().unwrap()), (before + 1, 0));
        assert_eq!(round.queue_len(b"queue").unwrap(), 0);
        store.delete(b"kept").unwrap();
    }

    #[test]
    fn a_forked_child_makes_one_of_its_own() {
        let parent = Arc::new(Own { maker: std::process::id() + 1, ..Own::new() });
        let refused = Store::own(&parent).get(b"a").unwrap_err();
        assert!(refused.to_string().contains("fork"), "{refused}");
    }
}
