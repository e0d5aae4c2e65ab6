//! Sessions against an agent that is driven by hand: messages at their times, and the effects of the agent's messages.

mod broken;
mod foreign;
mod pings;
mod sections;
mod signals;

use super::monitor::OnAbort;
use super::*;
use crate::{Restart, RestartError, Store};
use rlaunch_base::id::Rank;
use rlaunch_plan::rank_assign::Mode;
use rlaunch_protocol::rank_fault::Fault;
use rlaunch_protocol::wire::frozen::client::client_round::{AgentMessage, Begin};
use rlaunch_protocol::wire::frozen::client::{self, HELLO, bye_frame, frame_len, hello};
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Sessions of one process share what it waits for: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) fn turn() -> std::sync::MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Agent {
    socket: UnixStream,
    came: Vec<u8>,
    /// Its messages about hooks so far, apart from the rest.
    hooks: Vec<(u32, bool)>,
    _turn: std::sync::MutexGuard<'static, ()>,
}

impl Agent {
    pub(crate) fn receive(&mut self) -> ClientMessage {
        let mut chunk = [0; 4096];
        loop {
            if let Some(len) = frame_len(&self.came).unwrap().filter(|len| *len <= self.came.len()) {
                let rest = self.came.split_off(len);
                let frame = std::mem::replace(&mut self.came, rest);
                match ClientMessage::parse(&frame).unwrap() {
                    ClientMessage::Hooks(round, run) => self.hooks.push((round.get(), run)),
                    said => return said,
                }
                continue;
            }
            let len = self.socket.read(&mut chunk).unwrap();
            assert!(len > 0, "the session has ended");
            self.came.extend_from_slice(&chunk[..len]);
        }
    }

    /// Receives messages about hooks, and no others, until the session is closed.
    fn receive_to_the_end(&mut self) {
        let mut rest = Vec::new();
        self.socket.read_to_end(&mut rest).unwrap();
        self.came.extend(rest);
        while let Some(len) = frame_len(&self.came).unwrap().filter(|len| *len <= self.came.len()) {
            let rest = self.came.split_off(len);
            let ClientMessage::Hooks(round, run) =
                ClientMessage::parse(&std::mem::replace(&mut self.came, rest)).unwrap()
            else {
                panic!("something else is said")
            };
            self.hooks.push((round.get(), run));
        }
    }

    fn send(&mut self, message: &AgentMessage) {
        self.socket.write_all(&message.to_frame()).unwrap();
    }

    pub(crate) fn begins(&mut self, round: u32, active: Option<u32>) {
        self.send(&AgentMessage::Begin(Begin { fault: (round > 0).then(|| fault(5)), ..begin(round, active) }));
    }

    pub(crate) fn interrupts(&mut self, round: u32) {
        self.send(&AgentMessage::Interrupt(Round::new(round), fault(5), None));
    }

    fn finishes(&mut self) {
        self.send(&AgentMessage::Finish(Round::new(0)));
    }

    fn dismisses(&mut self, why: Dismissal) {
        self.send(&AgentMessage::Dismissed(why, "enough".into()));
    }
}

fn begin(round: u32, active: Option<u32>) -> Begin {
    let env = vec![("RL_TEST_RANK".into(), active.map(|rank| rank.to_string().into()))];
    Begin {
        round: Round::new(round),
        rank: Rank::new(2),
        world_size: 4,
        active_rank: active.map(Rank::new),
        active_world_size: 3,
        initial_rank: Rank::new(7),
        initial_world_size: 9,
        fault: None,
        env,
    }
}

fn fault(initial: u32) -> Fault {
    Fault { initial: Rank::new(initial), kind: FaultKind::Exception, text: "why".into() }
}

/// A session whose `Register` was read.
fn opened(options: Options) -> (Session, Agent) {
    let turn = turn();
    let (near, socket) = UnixStream::pair().unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let terms = [("progress_interval".into(), "50ms".into())];
    let session = Session::over(Some(Arc::new(near)), &terms, options).unwrap();
    let mut agent = Agent { socket, came: Vec::new(), hooks: Vec::new(), _turn: turn };
    assert_eq!(agent.receive(), ClientMessage::Register(terms.to_vec()));
    (session, agent)
}

pub(crate) fn plain() -> (Session, Agent) {
    opened(Options { foreign: false, on_abort: None })
}

/// Has a round begun and its function entered.
fn inside(session: &Session, agent: &mut Agent, round: u32) {
    agent.begins(round, Some(1));
    assert!(matches!(session.next().unwrap(), Next::Begin(state, _) if state.number == round));
    session.enter().unwrap();
}

fn is_interrupted<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Interrupted(_)))
}

type Running<'s, T> = ScopedJoinHandle<'s, Result<Option<T>, RestartError>>;

/// Runs a function against an agent, on a thread of its own.
fn run<'s, 'e, T: Send + 's>(
    scope: &'s std::thread::Scope<'s, 'e>,
    session: &Session,
    restart: impl FnOnce() -> Restart<'static> + Send + 's,
    function: impl FnMut(&crate::Round) -> Result<T, BoxedError> + Send + 's,
) -> Running<'s, T> {
    let session = session.clone();
    let body = move || {
        let result = restart().keep_environment().rounds(&session, function);
        session.close();
        result
    };
    std::thread::Builder::new().spawn_scoped(scope, body).unwrap()
}

type BoxedError = crate::BoxError;

#[test]
fn a_function_that_returns_is_done_when_all_are() {
    let (session, mut agent) = plain();
    let saw = std::thread::scope(|scope| {
        let restart = || Restart::builder();
        let running = run(scope, &session, restart, |round| {
            let var = round.var("RL_TEST_RANK").map(<[u8]>::to_vec);
            Ok((round.state().clone(), var))
        });
        agent.begins(0, Some(1));
        assert_eq!(agent.receive(), ClientMessage::Returned(Round::new(0)));
        agent.finishes();
        running.join().unwrap().unwrap().unwrap()
    });
    let state = State {
        number: 0,
        mode: Mode::Active,
        rank: 2,
        world_size: 4,
        active_rank: Some(1),
        active_world_size: 3,
        initial_rank: 7,
        initial_world_size: 9,
        fault: None,
    };
    assert_eq!(saw, (state, Some(b"1".to_vec())));
}

#[test]
fn an_error_and_a_panic_begin_another_round_and_hooks_run_in_order() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |what: &'static str| {
        let order = Arc::clone(&order);
        move |state: &State| {
            let why = state.fault.as_ref().map(|fault| String::from_utf8_lossy(&fault.text).into_owned());
            order.lock().unwrap().push(format!("{what} {} {}", state.number, why.unwrap_or_default()));
            Ok(())
        }
    };
    let abort = note("abort");
    let on_abort: OnAbort = Box::new(move |state, cause| {
        abort(&State { fault: cause.fault().cloned(), ..state.clone() }).unwrap();
    });
    let (session, mut agent) = opened(Options { foreign: false, on_abort: Some(on_abort) });
    let hooks = [note("initialize"), note("health"), note("finalize"), note("completion"), note("terminate")];
    let value = std::thread::scope(|scope| {
        let restart = move || {
            let [initialize, health, finalize, completion, terminate] = hooks;
            let all = Restart::builder().initialize(initialize).health_check(health).finalize(finalize);
            all.completion(completion).terminate(terminate).key(|state| Ok(format!("key {}", state.number)))
        };
        let running = run(scope, &session, restart, |round| match round.number() {
            0 => Err("bad luck".into()),
            1 => panic!("worse"),
            n => Ok(n),
        });
        for (round, text) in [(0, "bad luck"), (1, "panicked: worse")] {
            agent.begins(round, Some(1));
            assert_eq!(agent.receive(), ClientMessage::Fault(Round::new(round), text.into()));
            // It needs none, and may get one.
            agent.interrupts(round);
            assert_eq!(agent.receive(), ClientMessage::Ready(Round::new(round), vec![format!("key {round}").into()]));
        }
        agent.begins(2, Some(0));
        assert_eq!(agent.receive(), ClientMessage::Returned(Round::new(2)));
        agent.finishes();
        let value = running.join().unwrap().unwrap();
        agent.receive_to_the_end();
        value
    });
    assert_eq!(value, Some(2));
    let hooks_of = |round| [(round, true), (round, false)];
    assert_eq!(agent.hooks[..6], [hooks_of(0), hooks_of(1), hooks_of(2)].concat(), "before the function");
    assert_eq!(agent.hooks[6..], [(2, true)], "after the work");
    let wanted = "initialize 0 |health 0 |abort 0 bad luck|finalize 0 bad luck|health 0 bad luck|initialize 1 why|health 1 why|\
                  abort 1 panicked: worse|finalize 1 panicked: worse|health 1 panicked: worse|initialize 2 why|health 2 why|completion 2 why";
    assert_eq!(order.lock().unwrap().join("|"), wanted);
}

#[test]
fn an_interrupt_wakes_who_waits_and_what_comes_of_it_is_no_fault() {
    let (session, mut agent) = plain();
    let (entered, inside) = mpsc::sync_channel(1);
    let value = std::thread::scope(|scope| {
        let restart = || Restart::builder();
        let running = run(scope, &session, restart, move |round| {
            entered.send(()).unwrap();
            if round.number() == 0 {
                assert!(round.token().wait(SOON), "not woken");
                assert!(round.interrupted() && round.ping().is_err() && round.atomic(|| ()).is_err());
                return Err("what an interrupt has broken".into());
            }
            Ok(round.fault().map(|fault| fault.initial.get()))
        });
        agent.begins(0, Some(1));
        inside.recv().unwrap();
        agent.interrupts(0);
        assert_eq!(agent.receive(), ClientMessage::Ready(Round::new(0), Vec::new()));
        agent.begins(1, Some(1));
        inside.recv().unwrap();
        assert_eq!(agent.receive(), ClientMessage::Returned(Round::new(1)));
        agent.finishes();
        running.join().unwrap().unwrap()
    });
    assert_eq!(value, Some(Some(5)));
}

#[test]
fn reserves_and_those_that_have_returned_make_ready_too() {
    let (session, mut agent) = plain();
    let runs = AtomicU32::new(0);
    let value = std::thread::scope(|scope| {
        let restart = || Restart::builder();
        let running = run(scope, &session, restart, |_| Ok(runs.fetch_add(1, Ordering::SeqCst)));
        agent.begins(0, None);
        agent.interrupts(0);
        assert_eq!(agent.receive(), ClientMessage::Ready(Round::new(0), Vec::new()));
        agent.begins(1, Some(0));
        assert_eq!(agent.receive(), ClientMessage::Returned(Round::new(1)));
        agent.interrupts(1);
        assert_eq!(agent.receive(), ClientMessage::Ready(Round::new(1), Vec::new()));
        agent.begins(2, None);
        agent.finishes();
        running.join().unwrap().unwrap()
    });
    assert_eq!((value, runs.load(Ordering::SeqCst)), (None, 1), "what was returned in round 1 does not count");
}

#[test]
fn a_failed_health_check_and_an_end_leave_by_themselves() {
    for ends in [false, true] {
        let (session, mut agent) = plain();
        let terminated = Arc::new(AtomicBool::new(false));
        let error = std::thread::scope(|scope| {
            let noted = Arc::clone(&terminated);
            let restart = move || {
                let restart = Restart::builder().terminate(move |state| {
                    noted.store(state.mode == Mode::Terminated, Ordering::SeqCst);
                    Ok(())
                });
                restart.health_check(move |_| if ends { Ok(()) } else { Err("too hot".into()) })
            };
            let running = run(scope, &session, restart, |round| {
                round.end();
                Err::<(), _>("no more".into())
            });
            agent.begins(0, Some(1));
            let (why, text) = match ends {
                true => (Leave::Abort, "no more"),
                false => (Leave::Unhealthy, "the health check hook has failed: too hot"),
            };
            assert_eq!(agent.receive(), ClientMessage::Leave(why, text.into()));
            running.join().unwrap().unwrap_err()
        });
        assert!(matches!(error, RestartError::Left { .. }), "{error}");
        assert!(terminated.load(Ordering::SeqCst));
        agent.receive_to_the_end();
        let (before, after) = agent.hooks.split_at(if ends { 2 } else { 1 });
        assert_eq!((before.len(), after), (agent.hooks.len() - 1, &[(0, true)][..]), "the terminate hook is reported");
    }
}

#[test]
fn a_dismissal_ends_the_call_even_within_the_function() {
    for (why, within) in [(Dismissal::Refused, false), (Dismissal::Discarded, false), (Dismissal::GivenUp, true)] {
        let (session, mut agent) = plain();
        let error = std::thread::scope(|scope| {
            let restart = || Restart::builder();
            let running = run(scope, &session, restart, |round| {
                assert!(round.token().wait(SOON));
                Err::<(), _>("interrupted".into())
            });
            if within {
                agent.begins(0, Some(1));
            }
            agent.dismisses(why);
            if within {
                assert_eq!(agent.socket.read(&mut [0; 8]).unwrap(), 0, "nothing more is said");
            }
            running.join().unwrap().unwrap_err()
        });
        let dismissal = match error {
            RestartError::Refused(text) => (Dismissal::Refused, text),
            RestartError::Discarded(text) => (Dismissal::Discarded, text),
            RestartError::GivenUp(text) => (Dismissal::GivenUp, text),
            other => panic!("{other}"),
        };
        assert_eq!(dismissal, (why, "enough".into()));
    }
}

#[test]
fn agent_that_knows_no_rounds_refuses_the_session() {
    let register = ClientMessage::Register(Vec::new()).to_frame();
    let Ok(client::ClientFrame::Unknown(unknown)) = client::ClientFrame::parse(&register) else {
        panic!("it is no ask")
    };
    let (session, mut agent) = plain();
    agent.socket.write_all(&client::answer_frame(0, &unknown.reply())).unwrap();
    let Ok(Next::Dismissed(Dismissal::Refused, text)) = session.next() else { panic!("not refused") };
    assert!(text.contains("of a version that does not"), "{text}");
    session.close();
}

#[test]
fn an_agent_that_goes_away_ends_the_function_too() {
    let (session, agent) = plain();
    let error = std::thread::scope(|scope| {
        let (entered, inside) = mpsc::sync_channel(1);
        let restart = || Restart::builder();
        let running = run(scope, &session, restart, move |round| {
            entered.send(()).unwrap();
            assert!(round.token().wait(SOON));
            Err::<(), _>("interrupted".into())
        });
        let mut agent = agent;
        agent.begins(0, Some(1));
        inside.recv().unwrap();
        agent.socket.shutdown(std::net::Shutdown::Both).unwrap();
        // The turn of the test ends with the agent: until then the session is closed.
        running.join().unwrap().unwrap_err()
    });
    assert!(matches!(&error, RestartError::Client(Error::Closed(_))), "{error}");
    assert_eq!(error.to_string().matches("has closed").count(), 1, "{error}");
}

/// The error has the reason of the agent, once, and no reason of its own.
#[test]
fn last_words_of_an_agent_are_reported() {
    let (session, mut agent) = plain();
    let why = "this client speaks version 2 of the protocol, and this agent version 1";
    agent.socket.write_all(&bye_frame(why)).unwrap();
    let error = session.next().unwrap_err();
    assert_eq!(error.to_string(), format!("the agent has closed the connection: {why}"));
    session.close();
}

#[test]
fn atomic_section_delays_the_interrupt() {
    let (session, mut agent) = plain();
    inside(&session, &mut agent, 0);
    session.atomic_begin().unwrap();
    session.atomic_begin().unwrap();
    agent.interrupts(0);
    // Others begin nothing any more, once it has come; the same thread may.
    let other = session.clone();
    let refused = std::thread::Builder::new().spawn(move || {
        while other.atomic_begin().is_ok() {
            other.atomic_end().unwrap();
            std::thread::yield_now();
        }
    });
    refused.unwrap().join().unwrap();
    session.atomic_begin().unwrap();
    for _ in 0..3 {
        assert!(!session.interrupted() && !session.due());
        session.atomic_end().unwrap();
    }
    assert!(session.token().unwrap().wait(SOON));
    assert!(session.due() && is_interrupted(session.atomic_begin()) && is_interrupted(session.exit()));
    assert!(!session.due() && session.interrupted());
    assert!(matches!(session.atomic_end(), Err(Error::Order(_))));
}

#[test]
fn an_interrupt_that_comes_with_its_round_is_not_lost_and_an_old_one_is() {
    let (session, mut agent) = plain();
    agent.begins(0, Some(1));
    agent.interrupts(0);
    assert!(matches!(session.next().unwrap(), Next::Begin(..)));
    assert!(session.token().unwrap().wait(SOON));
    assert!(is_interrupted(session.enter()));
    assert!(matches!(session.next().unwrap(), Next::Interrupt(..)));
    session.ready(Vec::new()).unwrap();
    assert_eq!(agent.receive(), ClientMessage::Ready(Round::new(0), Vec::new()));
    agent.interrupts(0);
    inside(&session, &mut agent, 1);
    assert!(!session.token().unwrap().wait(Duration::from_millis(20)) && !session.interrupted());
    session.exit().unwrap();
    session.returned().unwrap();
}

extern "C" fn runs_at_once(call: extern "C" fn(*mut std::ffi::c_void) -> i32, arg: *mut std::ffi::c_void) -> i32 {
    call(arg)
}

#[test]
fn script_is_found_inside_an_interpreter() {
    let (session, mut agent) = plain();
    session.auto_progress(Some(runs_at_once)).unwrap();
    inside(&session, &mut agent, 0);
    assert_eq!(agent.receive(), ClientMessage::Alive(Round::new(0), false));
    assert_eq!(agent.receive(), ClientMessage::Alive(Round::new(0), false));
    session.auto_progress(None).unwrap();
    session.section(None).unwrap();
    session.section(Some(Duration::ZERO)).unwrap();
    let mut last = agent.receive();
    while matches!(last, ClientMessage::Alive(..)) {
        last = agent.receive();
    }
    assert_eq!(last, ClientMessage::Section(Round::new(0), None));
    assert_eq!(agent.receive(), ClientMessage::Section(Round::new(0), Some(Span::ZERO)));
}

#[test]
fn sockets_end_with_the_round_but_not_another_one_with_the_same_number() {
    use std::os::fd::AsRawFd as _;
    let (session, mut agent) = plain();
    inside(&session, &mut agent, 0);
    let (mut near, far) = UnixStream::pair().unwrap();
    let (kept, mut other) = UnixStream::pair().unwrap();
    session.add_socket(near.as_raw_fd()).unwrap();
    session.add_socket(kept.as_raw_fd()).unwrap();
    session.remove_socket(kept.as_raw_fd()).unwrap();
    let (gone, _far) = UnixStream::pair().unwrap();
    let number = gone.as_raw_fd();
    session.add_socket(number).unwrap();
    drop(gone);
    let again = UnixStream::pair().unwrap();
    let stranger = [&again.0, &again.1].into_iter().find(|socket| socket.as_raw_fd() == number);
    assert!(session.add_socket(std::os::fd::AsFd::as_fd(&session.0.bell).as_raw_fd()).is_err(), "it is no socket");
    agent.interrupts(0);
    assert_eq!(near.read(&mut [0; 8]).unwrap(), 0);
    assert!(session.token().unwrap().wait(SOON));
    other.write_all(b"x").unwrap();
    if let Some(mut stranger) = stranger {
        stranger.set_nonblocking(true).unwrap();
        assert!(stranger.read(&mut [0; 8]).is_err(), "it was shut down");
    }
    drop(far);
}

#[test]
fn a_wait_in_a_store_ends_with_the_round() {
    let (session, mut agent) = plain();
    // An agent's front that never answers.
    let dir = std::env::temp_dir().join(format!("rlaunch-client-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let path = dir.join("agent");
    let front = UnixListener::bind(&path).unwrap();
    let store = Store::at(&path, 0);
    inside(&session, &mut agent, 0);
    let waiting = std::thread::Builder::new();
    let waiting = waiting.spawn(move || (store.wait(&[b"key"], None), store.wait(&[b"key"], None), store)).unwrap();
    let (mut asked, _) = front.accept().unwrap();
    asked.write_all(&hello(0)).unwrap();
    let mut first = [0; HELLO + 4];
    asked.read_exact(&mut first).unwrap();
    agent.interrupts(0);
    let (first, second, store) = waiting.join().unwrap();
    assert!(is_interrupted(first), "a wait that was under way");
    assert!(is_interrupted(second), "one that is begun before the function was left");
    assert!(is_interrupted(session.exit()));
    let later = std::thread::Builder::new();
    let later = later.spawn(move || store.wait(&[b"key"], None)).unwrap();
    drop(front.accept().unwrap());
    let later = later.join().unwrap();
    assert!(later.is_err() && !is_interrupted(later), "the next one asks again");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn outside_a_job_it_is_a_world_of_one_with_rounds_of_its_own() {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let alone =
        |terms: &[(OsBytes, OsBytes)]| Session::over(None, terms, Options { foreign: false, on_abort: None }).unwrap();
    let session = alone(&[]);
    let value = Restart::builder().rounds(&session, |round| match round.number() {
        0..3 => Err(format!("round {}", round.number())),
        _ => Ok((round.world_size(), round.fault().map(|fault| fault.text.to_vec()))),
    });
    session.close();
    assert_eq!(value.unwrap(), Some((1, Some(b"round 2".to_vec()))));
    let crossed = [("soft_timeout".into(), "9s".into()), ("hard_timeout".into(), "8s".into())];
    let options = Options { foreign: false, on_abort: None };
    let error = Session::over(None, &crossed, options).unwrap_err().to_string();
    assert!(error.contains("soft_timeout 9") && error.contains("hard_timeout 8"), "{error}");
    let session = alone(&[("max_rounds".into(), "3".into())]);
    let mut begun = vec![];
    let error = Restart::builder().rounds(&session, |_| {
        begun.push(Instant::now());
        Err::<(), _>("again")
    });
    session.close();
    assert!(matches!(error.unwrap_err(), RestartError::GivenUp(_)));
    assert_eq!(begun.len(), 3);
    assert!(begun[2] - begun[1] >= Duration::from_millis(100), "failures in a row have a pause between them");
    drop(turn);
}

#[test]
fn a_text_is_cut_between_characters() {
    assert_eq!(cut("ö".repeat(1500).as_bytes()), OsBytes::from("ö".repeat(1024)));
    let odd = format!("x{}", "ö".repeat(1500));
    assert_eq!(cut(odd.as_bytes()).len(), TEXT - 1);
    assert_eq!(cut(b"short"), OsBytes::from("short"));
}
