//! A host, from the first ssh to a connected edge: retries, failures, and their times.

use super::answer::{Answer, Finding, Place, Scanner};
use super::argv::{SshOptions, Target};
use super::carrier::{Carrier, CarrierEnd};
use super::failure::{Failure, Why};
use super::preamble::Preamble;
use super::remote_line::{LinePlan, Purpose, line};
use super::ssh_messages::{self, Trouble, Words};
use super::tcp_hello::FIRST_MESSAGE;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use rlaunch_base::machine::{Machine, earliest};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};

/// The first pause after a connection that was cut off; each further one is twice as long.
const FIRST_PAUSE: Span = Span::from_millis(250);
/// The longest.
const LONGEST_PAUSE: Span = Span::from_secs(4);
/// Attempts in all, if their connections are cut off.
const MOST_ATTEMPTS: u32 = 12;
/// Attempts in all, if their connections are closed without a reason: a limit of logins is unlikely then, as sshd would report it.
const MOST_CLOSED: u32 = 3;
/// Places that may fail before the last place is tried: three places in all.
const MOST_SKIPPED: usize = 2;
/// Time without a byte after which ssh is waiting for a host that may never answer, and is no load.
const SILENCE: Span = Span::from_secs(5);
/// How long ssh may take to end when it is asked to.
const PATIENCE: Span = Span::from_secs(1);

/// Facts about a host before it is called.
#[derive(Clone, Debug)]
pub struct DialPlan {
    /// The host.
    pub target: Target,
    /// The carrier of its agent.
    pub carrier: Carrier,
    /// The remote line.
    pub line: LinePlan,
    /// The message for the guardian there.
    pub preamble: Preamble,
    /// How long it may take, all attempts together, in time in which we ran ourselves.
    pub limit: Span,
    /// Any number: pauses of different hosts shall differ.
    pub jitter: u64,
}

/// How far a host is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Between two attempts.
    Pausing,
    /// ssh connects, authenticates, and starts the login shell.
    Connecting,
    /// The binary is being sent.
    Sending(Place),
    /// The agent of this place is being started.
    Starting(Place),
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pausing => "it cuts connections off, and is tried again",
            Self::Connecting => "ssh has not got through, or the login shell there waits for something",
            Self::Sending(_) => "the agent's binary is being sent",
            Self::Starting(Place::Named) => "what --agent-path names was started, and has not answered",
            Self::Starting(_) => "the agent has not answered",
        })
    }
}

/// Signs of a host while ssh connects: all that is known about the progress. Without its -v ssh does not say when it has connected, or
/// authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Nothing at all.
    Nothing,
    /// Something on stderr: ssh's own words, or the host's banner.
    Words,
    /// Something on stdout, which is the login shell's.
    Shell,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => {
                "nothing came from there: it is off, cut off or stands still, or the login shell there waits for something"
            }
            Self::Words => "ssh has not got through, or the login shell there waits for something",
            Self::Shell => "ssh got through; the login shell there has printed something, and waits",
        })
    }
}

/// An event of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DialEvent {
    /// The host may start.
    Start,
    /// ssh could not be started.
    NoStart {
        /// The system's number for the reason.
        errno: i32,
        /// Its words.
        said: OsBytes,
    },
    /// Bytes on ssh's stdout.
    Out(Vec<u8>),
    /// Bytes on ssh's stderr.
    Err(Vec<u8>),
    /// ssh has ended, and all that it had said was delivered.
    Ended(CarrierEnd),
    /// Answer to [`DialAction::Seal`]: the agent does not know the key.
    WrongKey,
    /// Answer to [`DialAction::Up`]: its streams cannot become an edge.
    NoEdge,
    /// The host is not needed any more.
    Cancel,
}

/// A host that is ready for its edge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Up {
    /// Whence the agent was started.
    pub place: Place,
    /// The binary had to be sent.
    pub cold: bool,
    /// The guardian's process id.
    pub pid: u32,
    /// The host's wall clock in nanoseconds, between these two of ours.
    pub wall: u64,
    /// When the guardian was written to.
    pub asked: Mono,
    /// When it had answered.
    pub answered: Mono,
    /// When it would have been too late, and what it had in all.
    pub by: (Mono, Span),
    /// Bytes of the edge that have arrived already: an agent that cannot continue reports that at once.
    pub rest: Vec<u8>,
}

/// An action for a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DialAction {
    /// Start ssh with these words.
    Start(Vec<OsBytes>),
    /// Write this to its stdin.
    Write(Vec<u8>),
    /// Write the binary to its stdin.
    SendBinary,
    /// End it and what it started: politely, or for good.
    Kill {
        /// For good.
        hard: bool,
    },
    /// Answer this first message of a handshake, with the keys of the streams.
    Seal([u8; FIRST_MESSAGE]),
    /// How far it is.
    Stage(Stage),
    /// No output has arrived since ssh was started, and for a while.
    Silent,
    /// The edge is ssh's stdin and stdout from here on.
    Up(Up),
    /// The host could not be had.
    Failed(Box<Failure>),
    /// An ssh that was up has ended, with its last words.
    Ended(CarrierEnd, OsBytes),
}

#[derive(Clone, Debug)]
enum State {
    New,
    Pausing {
        until: Mono,
        after: Trouble,
    },
    Open(Stage),
    Up,
    /// ssh is being ended, for this reason. `None`: the reason does not matter any more.
    Closing {
        why: Option<Why>,
        hard_at: Option<Mono>,
    },
    Over,
}

/// The call of one host.
#[derive(Debug)]
pub struct Dial {
    plan: DialPlan,
    state: State,
    scanner: Scanner,
    words: Words,
    skip: Vec<Place>,
    attempts: u32,
    cut_off: u32,
    closed: u32,
    cold: bool,
    is_sealed: bool,
    facts: Option<OsBytes>,
    asked: Mono,
    deadline: Option<Mono>,
    /// End of the wait for the first output of this ssh. `None`: there was some.
    silent_at: Option<Mono>,
    actions: VecDeque<DialAction>,
}

impl Dial {
    /// A host that waits for its turn.
    #[must_use]
    pub fn new(plan: DialPlan) -> Self {
        Self {
            scanner: Scanner::new(plan.preamble.job),
            plan,
            state: State::New,
            words: Words::default(),
            skip: Vec::new(),
            attempts: 0,
            cut_off: 0,
            closed: 0,
            cold: false,
            is_sealed: false,
            facts: None,
            asked: Mono::default(),
            deadline: None,
            silent_at: None,
            actions: VecDeque::new(),
        }
    }

    /// The host, as it was named.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.plan.target
    }

    /// The facts that the host has sent, if they were asked for.
    #[must_use]
    pub const fn facts(&self) -> Option<&OsBytes> {
        self.facts.as_ref()
    }

    /// How far it is.
    #[must_use]
    pub const fn stage(&self) -> Option<Stage> {
        match self.state {
            State::Pausing { .. } => Some(Stage::Pausing),
            State::Open(stage) => Some(stage),
            State::New | State::Up | State::Closing { .. } | State::Over => None,
        }
    }

    /// Excludes a span in which the launcher was suspended: it is not the host's time.
    pub fn exclude_suspension(&mut self, span: Span) {
        for at in [&mut self.deadline, &mut self.silent_at] {
            *at = at.map(|at| at + span);
        }
    }

    fn call(&mut self, now: Mono) {
        match line(&self.plan.line, &self.skip) {
            Ok(line) => {
                self.attempts += 1;
                self.is_sealed = false;
                self.silent_at = Some(now + SILENCE);
                self.scanner = Scanner::new(self.plan.preamble.job);
                self.words.clear();
                self.actions
                    .push_back(DialAction::Start(self.plan.carrier.command(&self.plan.target, line.as_bytes())));
                self.enter(Stage::Connecting);
            }
            Err(error) => self.fail(Why::Unquotable(error)),
        }
    }

    fn enter(&mut self, stage: Stage) {
        self.state = State::Open(stage);
        self.actions.push_back(DialAction::Stage(stage));
    }

    /// Ends ssh; the failure is reported when it has ended, with all of its messages.
    fn close(&mut self, now: Mono, why: Option<Why>) {
        self.actions.push_back(DialAction::Kill { hard: false });
        self.state = State::Closing { why, hard_at: Some(now + PATIENCE) };
    }

    fn fail(&mut self, why: Why) {
        let said = self.words.shown();
        // Messages of a login shell, or of a command that sshd runs in its place, may be on either stream.
        let noise = if matches!(why, Why::Shell(_)) {
            ssh_messages::last_lines(&self.scanner.noise())
        } else {
            OsBytes::default()
        };
        let both: Vec<&[u8]> =
            [&noise, &said].into_iter().map(OsBytes::as_slice).filter(|text| !text.is_empty()).collect();
        let words = OsBytes::new(both.join(&b"; "[..]));
        let (target, attempts, asked) = (self.plan.target.clone(), self.attempts, self.plan.carrier.may_prompt());
        let carrier = self.plan.carrier.kind();
        self.actions.push_back(DialAction::Failed(Box::new(Failure { target, carrier, why, words, attempts, asked })));
        self.state = State::Over;
    }

    fn read_answers(&mut self, now: Mono) {
        while let State::Open(stage) = self.state {
            match self.scanner.next_finding() {
                Finding::Nothing => return,
                Finding::Noise => self.close(now, Some(self.noise(stage))),
                Finding::Garbled(what) => self.close(now, Some(Why::Garbled(what))),
                Finding::Answer(answer) => self.answered(now, stage, answer),
            }
        }
    }

    /// The marker comes right before what is executed: what comes after it is no greeting.
    fn noise(&self, stage: Stage) -> Why {
        match (stage, &self.plan.line.named) {
            (Stage::Starting(_), Some(path)) => Why::Stranger { path: path.clone(), end: None },
            (Stage::Pausing | Stage::Connecting | Stage::Sending(_) | Stage::Starting(_), _) => Why::Noise,
        }
    }

    fn seen(&self) -> Seen {
        match (self.scanner.noise().is_empty(), self.words.is_empty()) {
            (false, _) => Seen::Shell,
            (true, false) => Seen::Words,
            (true, true) => Seen::Nothing,
        }
    }

    fn answered(&mut self, now: Mono, stage: Stage, answer: Answer) {
        self.words.logged_in();
        let misplaced = |answer: &Answer| Some(Why::Garbled(answer.to_line().into()));
        match (stage, answer) {
            (Stage::Connecting | Stage::Sending(_), Answer::Ready(place)) => {
                self.actions.push_back(DialAction::Write(self.plan.preamble.to_bytes().to_vec()));
                self.asked = now;
                self.enter(Stage::Starting(place));
            }
            (Stage::Connecting, Answer::Need(place)) => {
                self.cold = true;
                self.actions.push_back(DialAction::SendBinary);
                self.enter(Stage::Sending(place));
            }
            (Stage::Connecting, Answer::Arch(host)) => {
                self.close(now, Some(Why::Arch { host, own: self.plan.line.arch }));
            }
            (Stage::Connecting, Answer::Nowhere(list)) => self.close(now, Some(Why::Nowhere(list))),
            (Stage::Connecting, Answer::Unusable(why)) => self.close(now, Some(Why::Unusable(why))),
            (Stage::Sending(_), Answer::Spoiled(place)) => self.close(now, Some(Why::Spoiled(place))),
            (Stage::Starting(_), Answer::Refused(why)) => self.close(now, Some(Why::Declined(why))),
            (Stage::Starting(_), Answer::Facts(facts)) if self.plan.line.purpose == Purpose::Examine => {
                self.facts = Some(facts)
            }
            (Stage::Starting(_), Answer::Seal(first)) if self.lacks_seal() => {
                self.is_sealed = true;
                self.actions.push_back(DialAction::Seal(first));
            }
            (Stage::Starting(place), Answer::Up { proof, pid, wall }) => {
                if self.lacks_seal() || proof.as_slice() != self.plan.preamble.proof().as_bytes() {
                    return self.close(now, Some(Why::Impostor));
                }
                self.state = State::Up;
                self.words.ready();
                let (cold, asked) = (self.cold, self.asked);
                let by = (self.deadline.unwrap_or(now), self.plan.limit);
                let rest = self.scanner.rest().to_vec();
                self.actions.push_back(DialAction::Up(Up { place, cold, pid, wall, asked, answered: now, by, rest }));
            }
            (
                Stage::Pausing | Stage::Connecting | Stage::Sending(_) | Stage::Starting(_),
                answer @ (Answer::Ready(_)
                | Answer::Need(_)
                | Answer::Arch(_)
                | Answer::Nowhere(_)
                | Answer::Unusable(_)
                | Answer::Spoiled(_)
                | Answer::Facts(_)
                | Answer::Seal(_)
                | Answer::Up { .. }
                | Answer::Refused(_)
                | Answer::Absent(_)
                | Answer::Unconnected { .. }),
            ) => self.close(now, misplaced(&answer)),
        }
    }

    /// Whether the streams of this host have to be sealed, and are not.
    fn lacks_seal(&self) -> bool {
        self.plan.line.purpose == Purpose::Sealed && !self.is_sealed
    }

    /// The carrier ended by itself before the host was up. Other carriers than ssh have no code of their own.
    fn ended(&mut self, now: Mono, stage: Stage, end: CarrierEnd) {
        let is_ssh = matches!(self.plan.carrier, Carrier::Ssh(_));
        match (stage, end) {
            (Stage::Pausing | Stage::Connecting | Stage::Sending(_) | Stage::Starting(_), CarrierEnd::Code(255))
                if is_ssh =>
            {
                self.ssh_failed(now, end);
            }
            (Stage::Pausing | Stage::Connecting, CarrierEnd::Code(_)) if is_ssh => self.fail(Why::Shell(end)),
            (Stage::Pausing | Stage::Connecting, CarrierEnd::Code(_) | CarrierEnd::Signal(_)) => {
                self.fail(Why::Carrier(end));
            }
            (Stage::Sending(place) | Stage::Starting(place), CarrierEnd::Code(_)) => self.elsewhere(now, place, end),
            (Stage::Sending(_) | Stage::Starting(_), CarrierEnd::Signal(_)) => self.fail(Why::Carrier(end)),
        }
    }

    /// Tries another place: the file in this one could not be executed after all, as on a mount that another host has without `noexec`.
    fn elsewhere(&mut self, now: Mono, place: Place, end: CarrierEnd) {
        if let Some(path) = self.plan.line.named.clone() {
            return self.fail(Why::Stranger { path, end: Some(end) });
        }
        if self.skip.len() >= MOST_SKIPPED {
            return self.fail(Why::Agent(end));
        }
        self.skip.push(place);
        self.call(now);
    }

    fn ssh_failed(&mut self, now: Mono, end: CarrierEnd) {
        match self.words.trouble() {
            Some(trouble @ Trouble::Throttled) => self.pause(now, trouble),
            // No user types a password twice for the same answer.
            Some(trouble @ (Trouble::Closed | Trouble::Lost)) if !self.plan.carrier.may_prompt() => {
                self.closed += 1;
                self.pause(now, trouble);
            }
            Some(Trouble::MasterFull) if self.leaves_open_connection() => self.call(now),
            Some(trouble) => self.fail(Why::Login(trouble)),
            None => self.fail(Why::Carrier(end)),
        }
    }

    /// From now on no connection that is already open is used; false if none was used before.
    const fn leaves_open_connection(&mut self) -> bool {
        match &mut self.plan.carrier {
            Carrier::Ssh(SshOptions { no_master, .. }) => !core::mem::replace(no_master, true),
            Carrier::Srun(_) | Carrier::Exec(_) => false,
        }
    }

    fn pause(&mut self, now: Mono, after: Trouble) {
        self.cut_off += 1;
        let whole = FIRST_PAUSE.doubled(self.cut_off.saturating_sub(1), LONGEST_PAUSE).nanos();
        // From half of it to all of it.
        let until = now + Span::from_nanos(whole / 2 + self.random() % (whole / 2));
        let enough = self.cut_off >= MOST_ATTEMPTS || self.closed >= MOST_CLOSED;
        if enough || self.deadline.is_some_and(|deadline| until >= deadline) {
            return self.fail(Why::Login(after));
        }
        self.state = State::Pausing { until, after };
        self.actions.push_back(DialAction::Stage(Stage::Pausing));
    }

    /// splitmix64: any seed will do.
    fn random(&mut self) -> u64 {
        self.plan.jitter = self.plan.jitter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = self.plan.jitter;
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Machine for Dial {
    type Event = DialEvent;
    type Action = DialAction;

    fn handle(&mut self, now: Mono, event: DialEvent) {
        if matches!(event, DialEvent::Out(_) | DialEvent::Err(_) | DialEvent::Ended(_) | DialEvent::NoStart { .. }) {
            self.silent_at = None;
        }
        match (&self.state, event) {
            (State::New, DialEvent::Start) => {
                self.deadline = Some(now + self.plan.limit);
                self.call(now);
            }
            (State::Open(_) | State::Closing { .. }, DialEvent::NoStart { errno, said }) => {
                self.fail(Why::NoCarrier { errno, said });
            }
            (State::Open(_), DialEvent::Out(bytes)) => {
                self.scanner.push(&bytes);
                self.read_answers(now);
            }
            (State::Open(_) | State::Closing { .. } | State::Up, DialEvent::Err(bytes)) => self.words.push(&bytes),
            (State::Open(stage), DialEvent::Ended(end)) => self.ended(now, *stage, end),
            (State::Closing { why, .. }, DialEvent::Ended(_)) => match why.clone() {
                Some(why) => self.fail(why),
                None => self.state = State::Over,
            },
            (State::Up, DialEvent::Ended(end)) => {
                self.actions.push_back(DialAction::Ended(end, self.words.shown()));
                self.state = State::Over;
            }
            (State::Open(_), DialEvent::WrongKey) => self.close(now, Some(Why::Impostor)),
            (State::Up, DialEvent::NoEdge) => self.close(now, Some(Why::NoEdge)),
            (State::Open(_) | State::Up | State::Closing { .. }, DialEvent::Cancel) => self.close(now, None),
            (State::New | State::Pausing { .. }, DialEvent::Cancel) => self.state = State::Over,
            // Not its turn, or too late: ssh talks until it ends.
            (
                State::Open(_) | State::Up | State::Closing { .. } | State::Pausing { .. } | State::Over,
                DialEvent::Start,
            )
            | (State::New | State::Pausing { .. } | State::Up | State::Over, DialEvent::NoStart { .. })
            | (
                State::New | State::Pausing { .. } | State::Up | State::Closing { .. } | State::Over,
                DialEvent::Out(_),
            )
            | (
                State::New | State::Pausing { .. } | State::Open(_) | State::Closing { .. } | State::Over,
                DialEvent::NoEdge,
            )
            | (
                State::New | State::Pausing { .. } | State::Up | State::Closing { .. } | State::Over,
                DialEvent::WrongKey,
            )
            | (State::New | State::Pausing { .. } | State::Over, DialEvent::Err(_) | DialEvent::Ended(_))
            | (State::Over, DialEvent::Cancel) => {}
        }
    }

    fn handle_timeout(&mut self, now: Mono) {
        let late = self.deadline.is_some_and(|deadline| deadline <= now);
        let seen = self.seen();
        match &mut self.state {
            State::Open(stage) if late => {
                let why = Why::Late { stage: *stage, seen, limit: self.plan.limit };
                self.close(now, Some(why));
            }
            State::Open(_) if self.silent_at.is_some_and(|at| at <= now) => {
                self.silent_at = None;
                self.actions.push_back(DialAction::Silent);
            }
            State::Pausing { after, .. } if late => {
                let why = Why::Login(*after);
                self.fail(why);
            }
            State::Pausing { until, .. } if *until <= now => self.call(now),
            State::Closing { hard_at, .. } if hard_at.is_some_and(|at| at <= now) => {
                *hard_at = None;
                self.actions.push_back(DialAction::Kill { hard: true });
            }
            State::New | State::Pausing { .. } | State::Open(_) | State::Up | State::Closing { .. } | State::Over => {}
        }
    }

    fn poll_action(&mut self) -> Option<DialAction> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        match self.state {
            State::New | State::Up | State::Over => None,
            State::Open(_) => earliest(self.silent_at, self.deadline),
            State::Pausing { until, .. } => earliest(Some(until), self.deadline),
            State::Closing { hard_at, .. } => hard_at,
        }
    }
}
