//! The open connections of a pool: one ssh for each host, which other calls of ssh use.
//!
//! A connection that ends is dialled again after 1 s, 2 s, up to 60 s. Over each new one the host is examined: its facts may be others than
//! before, as after a reboot. Another command waits until nothing of an ended job is left there, and a third one for a warning while no job
//! has the host. Only one of them runs at a time: sshd may allow one session.

use crate::bootstrap::source::Source;
use crate::edges::now;
use crate::serve::WARNED;
use rlaunch_base::id::{JobId, NodeId};
use rlaunch_base::machine::earliest_of;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_plan::bootstrap::{IS_OPEN, SshOptions, Target, argv, connection, kept_binary};
use rlaunch_plan::metadata::{HOST_VARIABLE, PRODUCT_FILE};
use rlaunch_sys::child::{self, Child, Stand, Started};
use rlaunch_sys::epoll::ReadySet;
use rlaunch_sys::fd;
use rlaunch_sys::origin::Origin;
use rlaunch_sys::pidfd::How;
use rlaunch_sys::spawn::Strings;
use rlaunch_sys::ssh_reaper::SshReaper;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

/// The longest pause before a host is dialled again, in seconds.
const LONGEST: Span = Span::from_secs(60);
/// The pause before a host is asked again that did not answer.
const ASK_AGAIN: Span = Span::from_secs(1);
/// How often a host may fail to report its facts before its connection counts as useless.
const IN_VAIN: u32 = 3;
/// Time beyond ssh's own limit for a connection, for a host that is reached and then silent.
const LOGIN: Span = Span::from_secs(30);
/// Time for an ssh that is asked to end.
const GOODBYE: Span = Span::from_secs(3);
/// Logins at a time: a jump host takes those of all its hosts, and drops some of too many (MaxStartups).
const LOGINS: usize = 8;
/// A host that is silent for so long holds no place among them.
const SILENT: Span = Span::from_secs(3);
/// How soon a host without a place is looked at again.
const NO_PLACE: Span = Span::from_millis(50);
/// The line of a host with a metadata server.
const METADATA: &str = "rlaunch-metadata";
/// Bytes that are kept of the output of an ssh.
const KEPT: usize = 16 << 10;

/// News of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LinkNews {
    /// Its connection is open, and its facts are known.
    Up(NodeId),
    /// Its connection has ended, or could not be made.
    Lost(NodeId, OsBytes),
    /// Nothing of this job is left there.
    Empty(NodeId, JobId),
    /// The host is about to be taken away. The source of the warning.
    Warned(NodeId, OsBytes),
}

/// A question to a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    /// Its facts.
    Facts,
    /// When nothing of this job is left there.
    End(JobId),
    /// When its cloud is about to take it away. Any other question comes first.
    Warning,
}

/// The part of an ssh that a token is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Out,
    Err,
    End,
}

/// An ssh that runs.
#[derive(Debug)]
struct Running {
    child: Child,
    streams: [OwnedFd; 2],
    out: Vec<u8>,
    err: Vec<u8>,
}

/// A host.
#[derive(Debug)]
struct Link {
    target: Target,
    control: PathBuf,
    connection: Option<Running>,
    /// When it was started.
    dialled: Mono,
    is_open: bool,
    /// When the connection has to be open, or has to have ended.
    limit: Option<Mono>,
    /// When it is dialled again.
    again: Option<Mono>,
    attempts: u32,
    /// The question that is being asked.
    question: Option<(Running, Question)>,
    /// Questions for later, and not before this time.
    questions: VecDeque<Question>,
    ask_at: Option<Mono>,
    /// Questions for facts that had no answer, and the last words then.
    in_vain: u32,
    complaint: OsBytes,
    facts: OsBytes,
    /// Whether the host has a metadata server.
    has_metadata: bool,
    /// Its warnings are to be waited for.
    is_unwatched: bool,
    /// Whether a job has the host: the agent of the job receives its warnings.
    is_held: bool,
    /// Further sessions over the open connection are refused.
    is_cold: bool,
    why: OsBytes,
    is_leaving: bool,
}

/// All of them.
pub(super) struct Links {
    ssh_reaper: SshReaper,
    origin: Origin,
    options: SshOptions,
    limit: Span,
    /// The begin of a script, which finds our binary on a host.
    binary: String,
    links: BTreeMap<NodeId, Link>,
    news: VecDeque<LinkNews>,
}

impl Running {
    fn start(words: &[OsBytes], reaper: &SshReaper, origin: &Origin) -> io::Result<Self> {
        let words: Strings = words.iter().map(OsBytes::as_slice).collect();
        let Started { child, stream, stderr } = child::start(&words, None, Stand::Apart, reaper, origin)?;
        let running = Self { child, streams: [stream, stderr], out: Vec::new(), err: Vec::new() };
        running.streams.iter().try_for_each(fd::set_nonblocking)?;
        Ok(running)
    }

    fn watch(&self, set: &ReadySet, token: impl Fn(Part) -> u64) -> io::Result<()> {
        let [out, err] = &self.streams;
        set.add(out, token(Part::Out))?;
        set.add(err, token(Part::Err))?;
        set.add(&self.child.pidfd, token(Part::End))
    }

    /// Reads what is there.
    fn read(&mut self, set: &ReadySet) {
        for (stream, to) in self.streams.iter().zip([&mut self.out, &mut self.err]) {
            loop {
                match fd::read_onto(stream.as_raw_fd(), to, KEPT) {
                    Ok(1..) => {
                        let excess = to.len().saturating_sub(KEPT);
                        to.drain(..excess);
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Ok(0) | Err(_) => {
                        set.remove(stream);
                        break;
                    }
                }
            }
        }
    }

    fn forget(self, set: &ReadySet) {
        self.streams.iter().for_each(|stream| set.remove(stream));
        set.remove(&self.child.pidfd);
    }

    /// The last line of its errors.
    fn words(&self) -> OsBytes {
        let text = String::from_utf8_lossy(&self.err);
        text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().into()
    }
}

/// The command for a shell on a host. To wait for the end of a job, whose parts have a name each while they live, is our binary's work: the
/// kernel wakes it. A host without the binary looks again and again. Any user can take such a name: it counts there only while a process of
/// rlaunch runs as this user.
fn line(question: Question, binary: &str) -> Vec<u8> {
    let wait = match question {
        Question::Facts => String::new(),
        Question::Warning => return format!("/bin/sh -c '{binary}e warning'").into_bytes(),
        Question::End(job) => format!(
            "{binary}[ -r /proc/net/unix ] || exit 8; e end {job} || {{ n=0; \
             while grep -q \"@rlaunch-job-{job}-\" /proc/net/unix && grep -ls ^Name:.rlaunch- /proc/[0-9]*/status \
             | xargs grep -qs \"^Uid:.$(id -u)[^0-9]\"; do \
             n=$((n+1)); [ $n -lt 400 ] || exit 9; sleep 0.05 2>/dev/null || sleep 1; done; }}; "
        ),
    };
    let metadata = format!(
        "p=; read -r p 2>/dev/null <{PRODUCT_FILE}; case ${{{HOST_VARIABLE}:+Google}}$p in Google*) echo {METADATA};; esac; "
    );
    let facts = "read b </proc/sys/kernel/random/boot_id; echo \"rlaunch-pool $b $(uname -m)\"";
    format!("/bin/sh -c '{wait}{metadata}{facts}'").into_bytes()
}

/// The facts in the output of that command, after what a login may print.
fn facts(out: &[u8]) -> Option<OsBytes> {
    said(out, "rlaunch-pool ")
}

/// The rest of the line that begins so.
fn said(out: &[u8], begin: &str) -> Option<OsBytes> {
    let text = String::from_utf8_lossy(out);
    text.lines().find_map(|line| line.strip_prefix(begin)).map(OsBytes::from)
}

impl Links {
    pub(super) fn new(options: SshOptions, limit: Span, origin: Origin) -> io::Result<Self> {
        let (ssh_reaper, source) = (SshReaper::start()?, Source::new()?);
        let binary = kept_binary(&source.sums(), source.len, source.path.as_ref());
        Ok(Self { ssh_reaper, origin, options, limit, binary, links: BTreeMap::new(), news: VecDeque::new() })
    }

    /// A host joins. It is dialled when time passes.
    pub(super) fn add(&mut self, node: NodeId, target: Target, control: PathBuf) {
        let path = control.as_os_str().as_encoded_bytes();
        let link = Link {
            target: target.over(path.into()),
            control,
            connection: None,
            dialled: now(),
            is_open: false,
            limit: None,
            again: Some(now()),
            attempts: 0,
            question: None,
            questions: VecDeque::new(),
            ask_at: None,
            in_vain: 0,
            complaint: OsBytes::default(),
            facts: OsBytes::default(),
            has_metadata: false,
            is_unwatched: false,
            is_held: false,
            is_cold: false,
            why: OsBytes::default(),
            is_leaving: false,
        };
        self.links.insert(node, link);
    }

    /// The facts of a host, and the control socket that its job uses.
    pub(super) fn granted(&self, node: NodeId) -> (OsBytes, OsBytes) {
        let Some(link) = self.links.get(&node) else { return Default::default() };
        let control = link.control.as_os_str().as_encoded_bytes().into();
        (link.facts.clone(), if link.is_cold { OsBytes::default() } else { control })
    }

    /// A word about a host for people.
    pub(super) fn note(&self, node: NodeId) -> OsBytes {
        match self.links.get(&node) {
            Some(link) if !link.is_open => link.why.clone(),
            Some(link) if link.is_cold => "sshd refuses sessions over an open connection: jobs log in".into(),
            Some(_) | None => OsBytes::default(),
        }
    }

    /// A job gets a host.
    pub(super) fn hold(&mut self, node: NodeId) {
        if let Some(link) = self.links.get_mut(&node) {
            link.is_held = true;
        }
    }

    /// A job has ended. Reports when nothing of it is left on a host.
    pub(super) fn ask(&mut self, node: NodeId, job: JobId) {
        if let Some(link) = self.links.get_mut(&node) {
            link.is_held = false;
            link.questions.push_back(Question::End(job));
        }
    }

    /// A host leaves: its connection is closed.
    pub(super) fn close(&mut self, node: NodeId) {
        let Some(link) = self.links.get_mut(&node) else { return };
        link.is_leaving = true;
        link.again = None;
        link.questions.clear();
        link.limit = Some(now() + GOODBYE);
        let of_question = link.question.as_ref().map(|(running, _)| running);
        link.connection.iter().chain(of_question).for_each(|running| running.child.end(false));
    }

    /// Whether no connection is left.
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Ends what watches over them, once there is none.
    pub(super) fn dismiss(&mut self) {
        self.ssh_reaper.dismiss();
    }

    pub(super) fn next_news(&mut self) -> Option<LinkNews> {
        self.news.pop_front()
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        let of = |link: &Link| {
            let ask =
                if link.is_open && link.question.is_none() && !link.questions.is_empty() { link.ask_at } else { None };
            earliest_of([link.limit, link.again, ask])
        };
        earliest_of(self.links.values().map(of))
    }

    /// Does what is due. `token` names a part of the connection (`false`) or of the question (`true`) of a host.
    pub(super) fn pass(&mut self, set: &ReadySet, token: impl Fn(NodeId, bool, Part) -> u64) {
        let now = now();
        let Self { ssh_reaper, origin, options, limit, binary, links, news } = self;
        let mut logins = links.values().filter(|link| link.is_logging_in(now)).count();
        for (node, link) in links.iter_mut() {
            if link.limit.is_some_and(|at| at <= now) {
                let of_question = link.question.as_ref().map(|(running, _)| running);
                link.connection.iter().chain(of_question).for_each(|running| running.child.end(true));
                link.limit = None;
            }
            if link.again.is_some_and(|at| at <= now) && logins >= LOGINS {
                link.again = Some(now + NO_PLACE);
            }
            if link.again.is_some_and(|at| at <= now) {
                link.again = None;
                logins += 1;
                let _stale = std::fs::remove_file(&link.control);
                let seconds = (limit.millis() / 1000).max(1);
                let started = Running::start(&connection(&link.target, options, seconds), ssh_reaper, origin)
                    .and_then(|running| running.watch(set, |part| token(*node, false, part)).map(|()| running));
                match started {
                    Ok(running) => {
                        link.connection = Some(running);
                        (link.limit, link.dialled) = (Some(now + *limit + LOGIN), now);
                    }
                    Err(error) => {
                        link.lost(now, *node, rlaunch_sys::reason(&error).into());
                        news.push_back(LinkNews::Lost(*node, link.why.clone()));
                    }
                }
            }
            link.make_way();
            if let Some(question) = link.next_question(now) {
                let words = argv(&link.target, options, &line(question, binary));
                let started = Running::start(&words, ssh_reaper, origin)
                    .and_then(|running| running.watch(set, |part| token(*node, true, part)).map(|()| running));
                match started {
                    Ok(running) => link.question = Some((running, question)),
                    Err(_) => link.ask_again(now, question),
                }
            }
        }
        links.retain(|_, link| !link.is_leaving || link.connection.is_some() || link.question.is_some());
    }

    /// Something of a host's ssh is ready.
    pub(super) fn serve(&mut self, node: NodeId, is_question: bool, part: Part, set: &ReadySet) {
        let now = now();
        let Some(link) = self.links.get_mut(&node) else { return };
        if is_question {
            self.news.extend(link.serve_question(now, node, part, set));
        } else {
            self.news.extend(link.serve_connection(now, node, part, set));
        }
    }
}

impl Link {
    fn is_logging_in(&self, now: Mono) -> bool {
        self.connection.is_some() && !self.is_open && now.since(self.dialled) < SILENT
    }

    fn lost(&mut self, now: Mono, node: NodeId, why: OsBytes) {
        (self.is_open, self.limit, self.why) = (false, None, why);
        if self.is_leaving {
            return;
        }
        let pause = Span::from_secs(1).doubled(self.attempts, LONGEST);
        self.attempts = self.attempts.saturating_add(1);
        // Hosts that were lost together come back one after the other: from 80 % to 120 % of the pause.
        let mixed = u64::from(node.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.again = Some(now + Span::from_nanos(pause.nanos() / 1000 * (800 + mixed % 401)));
    }

    fn ask_again(&mut self, now: Mono, question: Question) {
        if question != Question::Warning {
            self.ask_at = Some(now + ASK_AGAIN);
            self.questions.push_front(question);
        }
    }

    /// The wait for a warning ends when the connection has other work.
    fn make_way(&self) {
        if let Some((running, Question::Warning)) = &self.question
            && (self.is_held || !self.questions.is_empty())
        {
            running.child.end(false);
        }
    }

    /// The question that can be asked now.
    fn next_question(&mut self, now: Mono) -> Option<Question> {
        if !self.is_open || self.question.is_some() || self.ask_at.is_some_and(|at| at > now) {
            return None;
        }
        self.ask_at = None;
        let may_watch = self.has_metadata && !self.is_held && !self.is_leaving;
        let next = self.questions.pop_front();
        next.or_else(|| (may_watch && std::mem::take(&mut self.is_unwatched)).then_some(Question::Warning))
    }

    fn serve_connection(&mut self, now: Mono, node: NodeId, part: Part, set: &ReadySet) -> Option<LinkNews> {
        let running = self.connection.as_mut()?;
        running.read(set);
        let has_word = running.out.windows(IS_OPEN.len()).any(|window| window == IS_OPEN.as_bytes());
        if has_word && !self.is_open && !self.is_leaving {
            (self.is_open, self.limit, self.is_cold, self.in_vain) = (true, None, false, 0);
            // A question of an earlier connection: the facts come first.
            self.questions.retain(|question| *question != Question::Facts);
            self.questions.push_front(Question::Facts);
            self.ask_at = None;
        }
        if part != Part::End {
            return None;
        }
        let how = running.child.ended()?;
        let mut words = std::mem::take(&mut self.complaint);
        if words.is_empty() {
            words = running.words();
        }
        if words.is_empty() {
            words = match how {
                How::Code(code) => format!("ssh ended with exit code {code}").into(),
                How::Signal { number, .. } => format!("ssh was ended by signal {number}").into(),
            };
        }
        if let Some(running) = self.connection.take() {
            running.forget(set);
        }
        let _gone = std::fs::remove_file(&self.control);
        if let Some((running, _)) = &self.question {
            running.child.end(false);
        }
        self.lost(now, node, words.clone());
        Some(LinkNews::Lost(node, words))
    }

    fn serve_question(&mut self, now: Mono, node: NodeId, part: Part, set: &ReadySet) -> Option<LinkNews> {
        let (running, question) = self.question.as_mut()?;
        running.read(set);
        if part != Part::End {
            return None;
        }
        let how = running.child.ended()?;
        let is_well = matches!(how, How::Code(0));
        let (found, question) = (facts(&running.out).filter(|_| is_well), *question);
        let (warning, has_metadata) = (said(&running.out, WARNED), said(&running.out, METADATA).is_some());
        let is_refused = String::from_utf8_lossy(&running.err).contains("refused by peer");
        let words = running.words();
        if let Some((running, _)) = self.question.take() {
            running.forget(set);
        }
        if !self.is_open || self.is_leaving {
            return None;
        }
        if question == Question::Warning {
            return warning.filter(|_| is_well).map(|source| LinkNews::Warned(node, source));
        }
        self.is_cold |= is_refused;
        let Some(facts) = found else {
            self.in_vain += u32::from(question == Question::Facts);
            if self.in_vain < IN_VAIN {
                self.ask_again(now, question);
            } else if let Some(connection) = &self.connection {
                self.complaint = words;
                connection.child.end(false);
            }
            return None;
        };
        (self.has_metadata, self.is_unwatched) = (has_metadata, true);
        match question {
            Question::End(job) => Some(LinkNews::Empty(node, job)),
            Question::Facts | Question::Warning => {
                (self.facts, self.attempts) = (facts, 0);
                Some(LinkNews::Up(node))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line goes through the login shell of the user, whichever that is.
    #[test]
    fn line_is_one_word_for_any_shell_and_the_answer_is_found() {
        let end = Question::End(JobId([0xab; 16]));
        for question in [Question::Facts, Question::Warning, end] {
            let text = String::from_utf8(line(question, "e() { return 127; }; ")).unwrap();
            let script = text.strip_prefix("/bin/sh -c '").and_then(|rest| rest.strip_suffix('\'')).unwrap();
            assert!(!script.contains(['\'', '!', '\n', '\\']), "{script}");
            assert_eq!(script.contains("@rlaunch-job-abababab"), question == end, "{script}");
        }
        assert_eq!(facts(b"Welcome!\nrlaunch-pool 1-2 x86_64\n"), Some("1-2 x86_64".into()));
        assert_eq!(facts(b"rlaunch-pool"), None);
    }
}
