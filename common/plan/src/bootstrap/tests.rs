//! A host at its machine: every way to answer, to fail and to hang.

use super::answer::marker;
use super::carrier::CarrierEnd;
use super::dial::{Dial, DialAction, DialEvent, DialPlan, Seen, Stage};
use super::failure::Reason;
use super::*;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use alloc::{format, vec};
use proptest::prelude::*;
use rlaunch_base::error::Hint as _;
use rlaunch_base::id::{JobId, NodeId};
use rlaunch_base::machine::Machine as _;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::patience::Looks;
use rlaunch_base::time::{Mono, Span};

const JOB: JobId = JobId([0xab; 16]);
const AT: Mono = Mono::from_nanos(1_000_000_000);

fn plan() -> DialPlan {
    let preamble = Preamble {
        job: JOB,
        node: NodeId::new(0),
        secret: Secret([5; 32]),
        lease: Span::from_secs(30),
        len: 9,
        hash: Hash([1; 32]),
    };
    DialPlan {
        target: Target::parse(b"node7", None).unwrap(),
        carrier: Carrier::Ssh(SshOptions::default()),
        line: LinePlan {
            job: JOB,
            node: NodeId::new(0),
            sums: Some(Sums { hash: Hash([1; 32]), sum: Sum::of(b"binary"), ends: Hash::of(b"ends") }),
            len: 9,
            arch: "x86_64",
            same: Some("/bin/rlaunch".into()),
            named: None,
            purpose: Purpose::Job,
        },
        preamble,
        limit: Span::from_secs(20),
        jitter: 7,
    }
}

struct Bench {
    dial: Dial,
    now: Mono,
}

impl Bench {
    fn started() -> Self {
        let mut bench = Self { dial: Dial::new(plan()), now: AT };
        let done = bench.send(DialEvent::Start);
        assert!(matches!(&done[..], [DialAction::Start(_), DialAction::Stage(Stage::Connecting)]), "{done:?}");
        bench
    }

    fn actions(&mut self) -> Vec<DialAction> {
        core::iter::from_fn(|| self.dial.poll_action()).collect()
    }

    fn send(&mut self, event: DialEvent) -> Vec<DialAction> {
        self.dial.handle(self.now, event);
        self.actions()
    }

    fn say(&mut self, answer: &Answer) -> Vec<DialAction> {
        self.send(DialEvent::Out(format!("{}{}\n", marker(JOB), answer.to_line()).into_bytes()))
    }

    fn up(&mut self) -> Vec<DialAction> {
        let proof = plan().preamble.proof().into();
        self.say(&Answer::Up { proof, pid: 77, wall: 5 })
    }

    fn end(&mut self, words: &str, code: u8) -> Vec<DialAction> {
        self.send(DialEvent::Err(words.as_bytes().to_vec()));
        self.send(DialEvent::Ended(CarrierEnd::Code(code)))
    }

    fn pass(&mut self, span: Span) -> Vec<DialAction> {
        self.now = self.now + span;
        self.dial.handle_timeout(self.now);
        self.actions()
    }

    /// The failure after ssh was asked to end and did.
    fn closed(&mut self, done: &[DialAction]) -> Why {
        assert_eq!(done.last(), Some(&DialAction::Kill { hard: false }), "{done:?}");
        failure(&self.send(DialEvent::Ended(CarrierEnd::Signal(15))))
    }
}

/// A host that srun was to reach, after srun has printed these words and ended.
fn step_ends(answered: Option<Answer>, words: &str, end: CarrierEnd) -> Vec<DialAction> {
    let carrier = Carrier::Srun(SrunPlan::default());
    let mut bench = Bench { dial: Dial::new(DialPlan { carrier, ..plan() }), now: AT };
    bench.send(DialEvent::Start);
    answered.iter().for_each(|answer| drop(bench.say(answer)));
    bench.send(DialEvent::Err(words.as_bytes().to_vec()));
    bench.send(DialEvent::Ended(end))
}

#[test]
fn a_step_that_ends_before_its_agent_is_up_is_a_failure_of_srun() {
    let down = "srun: error: Unable to create step for job 7: Protocol authentication error\n";
    for (words, code, reason, hint) in [
        (down, 1, "srun failed (exit code 1)", "srun --overlap -N1 -n1 -w node7 true, to see what srun says"),
        (
            "Unable to confirm allocation for job 1: Invalid job id specified",
            1,
            "srun failed (exit code 1)",
            "salloc or sbatch",
        ),
        ("srun: error: Slurm job 84 has expired", 1, "srun failed (exit code 1)", "salloc or sbatch"),
        ("Connection refused", 255, "srun failed (exit code 255)", "srun --overlap"),
        ("env: 'srun': No such file or directory", 127, "srun failed (exit code 127)", "put srun into PATH"),
    ] {
        let done = step_ends(None, words, CarrierEnd::Code(code));
        let [DialAction::Failed(failure)] = &done[..] else { panic!("{done:?}") };
        assert_eq!((failure.reason().as_str(), failure.said()), (reason, words.trim().into()));
        assert!(failure.hint().is_some_and(|text| text.starts_with(hint)), "{:?}", failure.hint());
    }
    let noise = "srun: cluster configuration lacks support for cpu binding\nsrun: error: no";
    let [DialAction::Failed(failure)] = &step_ends(None, noise, CarrierEnd::Code(1))[..] else { panic!("no failure") };
    assert_eq!(failure.said(), "srun: error: no".into());
    let done = step_ends(Some(Answer::Ready(Place::Cache)), "", CarrierEnd::Code(126));
    assert!(
        matches!(&done[..], [DialAction::Start(_), DialAction::Stage(Stage::Connecting)]),
        "another place: {done:?}"
    );
}

fn failure(done: &[DialAction]) -> Why {
    match done {
        [DialAction::Failed(failure)] => failure.why.clone(),
        _ => panic!("{done:?}"),
    }
}

#[test]
fn warm() {
    let mut bench = Bench::started();
    assert!(bench.send(DialEvent::Out(b"Welcome to node7\n".to_vec())).is_empty());
    let done = bench.say(&Answer::Ready(Place::Cache));
    let preamble = plan().preamble.to_bytes().to_vec();
    assert_eq!(done, [DialAction::Write(preamble), DialAction::Stage(Stage::Starting(Place::Cache))]);
    bench.now = bench.now + Span::from_millis(3);
    let by = (AT + plan().limit, plan().limit);
    let up =
        Up { place: Place::Cache, cold: false, pid: 77, wall: 5, asked: AT, answered: bench.now, by, rest: vec![] };
    assert_eq!(bench.up(), [DialAction::Up(up)]);
    assert_eq!(bench.dial.poll_timeout(), None, "an edge has no deadline of ours");
    let done = bench.end("Connection to node7 closed by remote host.\n", 255);
    assert!(matches!(&done[..], [DialAction::Ended(CarrierEnd::Code(255), words)] if words.starts_with(b"Connection")));
}

#[test]
fn cold() {
    let mut bench = Bench::started();
    let done = bench.say(&Answer::Need(Place::Tmp));
    assert_eq!(done, [DialAction::SendBinary, DialAction::Stage(Stage::Sending(Place::Tmp))]);
    bench.say(&Answer::Ready(Place::Tmp));
    assert!(matches!(&bench.up()[..], [DialAction::Up(Up { place: Place::Tmp, cold: true, .. })]));
}

#[test]
fn permanent_ssh_errors_are_reported_at_once() {
    for (words, why) in [
        ("u@node7: Permission denied (publickey).", Why::Login(Trouble::Denied)),
        ("Too many authentication failures\nConnection closed by node7", Why::Login(Trouble::Denied)),
        ("REMOTE HOST IDENTIFICATION HAS CHANGED!\nHost key verification failed.", Why::Login(Trouble::KeyChanged)),
        ("Host key verification failed.", Why::Login(Trouble::KeyUnknown)),
        ("ssh: Could not resolve hostname node7: Name or service not known", Why::Login(Trouble::Unresolved)),
        ("ssh: connect to host node7 port 22: Connection refused", Why::Login(Trouble::Refused)),
        ("ssh: connect to host node7 port 22: No route to host", Why::Login(Trouble::Unreachable)),
        ("/c line 1: Bad configuration option: x", Why::Login(Trouble::Config)),
        ("", Why::Carrier(CarrierEnd::Code(255))),
    ] {
        let done = Bench::started().end(words, 255);
        assert_eq!(failure(&done), why, "{words}");
        assert!(words.is_empty() || matches!(&done[0], DialAction::Failed(f) if !f.words.is_empty()));
    }
    let said = OsBytes::from("no such file or directory");
    let done = Bench::started().send(DialEvent::NoStart { errno: 2, said: said.clone() });
    assert_eq!(failure(&done), Why::NoCarrier { errno: 2, said });
}

#[test]
fn a_login_shell_that_exits_is_quoted() {
    let mut bench = Bench::started();
    bench.send(DialEvent::Out(b"This account is currently not available.\n".to_vec()));
    let done = bench.send(DialEvent::Ended(CarrierEnd::Code(1)));
    let [DialAction::Failed(failure)] = &done[..] else { panic!("{done:?}") };
    assert_eq!(failure.why, Why::Shell(CarrierEnd::Code(1)));
    assert_eq!(failure.words.to_string(), "This account is currently not available.");
    // sshd's Banner comes on stderr, whatever command it runs then.
    let mut bench = Bench::started();
    bench.send(DialEvent::Out(b"You may only\n\nfetch files here.\n".to_vec()));
    let done = bench.end("*** Authorized users only ***\r\n", 1);
    let [DialAction::Failed(failure)] = &done[..] else { panic!("{done:?}") };
    assert_eq!(failure.words.to_string(), "You may only; fetch files here.; *** Authorized users only ***");
}

#[test]
fn a_connection_that_is_cut_off_is_tried_again_with_growing_pauses() {
    let mut bench = Bench::started();
    let mut pauses = Vec::new();
    let throttled = "kex_exchange_identification: Connection closed by remote host\n";
    let last = loop {
        let done = bench.end(throttled, 255);
        if !matches!(done[..], [DialAction::Stage(Stage::Pausing)]) {
            break done;
        }
        let until = bench.dial.poll_timeout().unwrap();
        pauses.push(until.since(bench.now).millis());
        assert!(bench.pass(Span::from_millis(1)).is_empty(), "not before its time");
        bench.now = until;
        let done = bench.pass(Span::ZERO);
        assert!(matches!(done[..], [DialAction::Start(_), DialAction::Stage(Stage::Connecting)]), "{done:?}");
    };
    assert_eq!(failure(&last), Why::Login(Trouble::Throttled));
    assert!(pauses.len() >= 5, "{pauses:?}");
    for (at, pause) in pauses.iter().enumerate() {
        let whole = (250u64 << at).min(4_000);
        assert!((whole / 2..=whole).contains(pause), "{pauses:?}");
    }
    assert!(bench.now.since(AT) < Span::from_secs(20));
}

#[test]
fn a_connection_that_is_closed_without_a_reason_is_tried_thrice() {
    let mut bench = Bench::started();
    for _ in 0..2 {
        assert_eq!(bench.end("Connection closed by 10.1.1.1 port 22\n", 255), [DialAction::Stage(Stage::Pausing)]);
        bench.now = bench.dial.poll_timeout().unwrap();
        assert!(matches!(bench.pass(Span::ZERO)[..], [DialAction::Start(_), DialAction::Stage(Stage::Connecting)]));
    }
    let last = bench.end("Connection closed by 10.1.1.1 port 22\n", 255);
    assert_eq!(failure(&last), Why::Login(Trouble::Closed));
    let barred = Bench::started().end("Access denied by pam_slurm_adopt: no\nConnection closed by h port 22\n", 255);
    assert_eq!(failure(&barred), Why::Login(Trouble::Barred), "at once");
}

/// A start-up file of the login says what a login that failed would say.
#[test]
fn a_connection_that_breaks_after_the_login_is_tried_again() {
    let rc = "bash: /opt/env.sh: Permission denied\n";
    let broken = format!("{rc}Connection to node7 closed by remote host.\n");
    for answer in [Answer::Need(Place::Tmp), Answer::Ready(Place::Cache)] {
        let mut bench = Bench::started();
        bench.say(&answer);
        for _ in 0..2 {
            assert_eq!(bench.end(&broken, 255), [DialAction::Stage(Stage::Pausing)]);
            bench.now = bench.dial.poll_timeout().unwrap();
            assert!(matches!(bench.pass(Span::ZERO)[..], [DialAction::Start(_), DialAction::Stage(Stage::Connecting)]));
            bench.say(&answer);
        }
        assert_eq!(failure(&bench.end(&broken, 255)), Why::Login(Trouble::Lost));
        let mut bench = Bench::started();
        bench.say(&answer);
        assert_eq!(failure(&bench.end(rc, 255)), Why::Carrier(CarrierEnd::Code(255)), "its own exit code, maybe");
    }
}

#[test]
fn hosts_do_not_pause_in_step() {
    let pause = |jitter| {
        let mut dial = Dial::new(DialPlan { jitter, ..plan() });
        dial.handle(AT, DialEvent::Start);
        dial.handle(AT, DialEvent::Err(b"kex_exchange_identification: x".to_vec()));
        dial.handle(AT, DialEvent::Ended(CarrierEnd::Code(255)));
        dial.poll_timeout().unwrap()
    };
    let different: alloc::collections::BTreeSet<Mono> = (0..20).map(pause).collect();
    assert!(different.len() > 15);
}

#[test]
fn an_open_connection_that_is_full_is_gone_round_once() {
    let full = "mux_client_request_session: session request failed: Session open refused by peer\n";
    let mut bench = Bench::started();
    let done = bench.end(full, 255);
    let [DialAction::Start(words), _] = &done[..] else { panic!("{done:?}") };
    assert!(words.contains(&OsBytes::from("ControlPath=none")));
    assert_eq!(failure(&bench.end(full, 255)), Why::Login(Trouble::MasterFull));
    // That is no matter of open connections.
    let bastion = "channel 0: open failed: administratively prohibited: open failed\nstdio forwarding failed\n";
    assert_eq!(failure(&Bench::started().end(bastion, 255)), Why::Login(Trouble::NoForwarding));
}

#[test]
fn a_place_that_does_not_execute_is_left_out() {
    let mut bench = Bench::started();
    bench.say(&Answer::Ready(Place::Cache));
    let done = bench.end("sh: exec: ./agent: Permission denied\n", 126);
    let [DialAction::Start(words), _] = &done[..] else { panic!("{done:?}") };
    let line = words.last().unwrap().to_string();
    assert!(!line.contains("k=cache") && line.contains("k=tmp"), "{line}");
    bench.say(&Answer::Ready(Place::Tmp));
    bench.end("", 126);
    bench.say(&Answer::Ready(Place::Shm));
    assert_eq!(failure(&bench.end("", 126)), Why::Agent(CarrierEnd::Code(126)), "it has an end");
}

#[test]
fn named_file_that_is_no_agent_is_reported() {
    let mut named = plan();
    named.line.named = Some("/bin/true".into());
    let mut bench = Bench { dial: Dial::new(named), now: AT };
    bench.send(DialEvent::Start);
    bench.say(&Answer::Ready(Place::Named));
    let why = failure(&bench.end("", 0));
    assert_eq!(why, Why::Stranger { path: "/bin/true".into(), end: Some(CarrierEnd::Code(0)) });
    assert_eq!(
        Reason(&why, CarrierKind::Ssh).to_string(),
        "/bin/true is no rlaunch of this version, or cannot run there (exit code 0)"
    );
}

#[test]
fn host_sends_facts_only_if_they_were_asked_for() {
    let facts = Answer::Facts("cpus=2".into());
    for examine in [true, false] {
        let mut asked = plan();
        asked.line.purpose = if examine { Purpose::Examine } else { Purpose::Job };
        let mut bench = Bench { dial: Dial::new(asked), now: AT };
        bench.send(DialEvent::Start);
        bench.say(&Answer::Ready(Place::Cache));
        let done = bench.say(&facts);
        if examine {
            assert!(done.is_empty(), "{done:?}");
            assert_eq!(bench.dial.facts(), Some(&"cpus=2".into()));
            assert!(matches!(&bench.up()[..], [DialAction::Up(_)]));
        } else {
            assert_eq!(bench.closed(&done), Why::Garbled("FACTS cpus=2".into()));
        }
    }
}

#[test]
fn refusals_of_the_host_end_ssh_first() {
    for (answer, why) in [
        (Answer::Arch("aarch64".into()), Why::Arch { host: "aarch64".into(), own: "x86_64" }),
        (Answer::Nowhere("cache:full".into()), Why::Nowhere("cache:full".into())),
        (Answer::Unusable("owner".into()), Why::Unusable("owner".into())),
        (Answer::Spoiled(Place::Tmp), Why::Garbled("SPOILED tmp".into())),
    ] {
        let mut bench = Bench::started();
        let done = bench.say(&answer);
        assert_eq!(bench.closed(&done), why);
    }
    let mut bench = Bench::started();
    bench.say(&Answer::Need(Place::Tmp));
    let done = bench.say(&Answer::Spoiled(Place::Tmp));
    assert_eq!(bench.closed(&done), Why::Spoiled(Place::Tmp));
}

#[test]
fn wrong_secret_is_refused() {
    let mut bench = Bench::started();
    bench.say(&Answer::Ready(Place::Cache));
    let done = bench.say(&Answer::Up { proof: "00".into(), pid: 1, wall: 1 });
    assert_eq!(bench.closed(&done), Why::Impostor);
}

/// An agent on the streams of srun has to seal them. An agent that does not is refused.
#[test]
fn agent_on_streams_of_srun_is_up_after_its_seal_alone() {
    let line = LinePlan { purpose: Purpose::Sealed, ..plan().line };
    let start = || {
        let mut bench = Bench { dial: Dial::new(DialPlan { line: line.clone(), ..plan() }), now: AT };
        bench.send(DialEvent::Start);
        bench.say(&Answer::Ready(Place::Same));
        bench
    };
    let first = [7; tcp_hello::FIRST_MESSAGE];
    let mut bench = start();
    assert_eq!(bench.say(&Answer::Seal(first)), [DialAction::Seal(first)]);
    assert!(matches!(&bench.up()[..], [DialAction::Up(_)]));
    let mut bench = start();
    let done = bench.up();
    assert_eq!(bench.closed(&done), Why::Impostor, "without a seal");
    let mut bench = start();
    bench.say(&Answer::Seal(first));
    let done = bench.send(DialEvent::WrongKey);
    assert_eq!(bench.closed(&done), Why::Impostor, "with another key");
    let mut bench = start();
    bench.say(&Answer::Seal(first));
    let done = bench.say(&Answer::Seal(first));
    assert_eq!(bench.closed(&done), Why::Garbled(Answer::Seal(first).to_line().into()), "a second handshake");
}

/// The bytes were refused as a malformed answer, and the user did not read why the agent could not continue.
#[test]
fn bytes_after_last_answer_belong_to_the_edge() {
    let mut bench = Bench::started();
    bench.say(&Answer::Ready(Place::Cache));
    let up = Answer::Up { proof: plan().preamble.proof().into(), pid: 77, wall: 5 };
    let mut bytes = format!("{}{}\n", marker(JOB), up.to_line()).into_bytes();
    bytes.extend_from_slice(b"\0frame\n");
    let done = bench.send(DialEvent::Out(bytes));
    assert!(matches!(&done[..], [DialAction::Up(up)] if up.rest == b"\0frame\n"), "{done:?}");
}

#[test]
fn a_host_that_hangs_has_a_deadline_and_ssh_too() {
    let mut bench = Bench::started();
    assert_eq!(bench.dial.poll_timeout(), Some(AT + Span::from_secs(5)));
    assert_eq!(bench.pass(Span::from_secs(5)), [DialAction::Silent]);
    assert_eq!(bench.dial.poll_timeout(), Some(AT + Span::from_secs(20)));
    assert!(bench.pass(Span::from_secs(14)).is_empty());
    assert_eq!(bench.pass(Span::from_secs(1)), [DialAction::Kill { hard: false }]);
    assert_eq!(bench.pass(Span::from_secs(1)), [DialAction::Kill { hard: true }]);
    assert_eq!(bench.dial.poll_timeout(), None);
    let why = failure(&bench.send(DialEvent::Ended(CarrierEnd::Signal(9))));
    assert_eq!(why, Why::Late { stage: Stage::Connecting, seen: Seen::Nothing, limit: Span::from_secs(20) });
}

#[test]
fn message_of_hanging_host_shows_its_stage() {
    let late = |received: &[DialEvent]| {
        let mut bench = Bench::started();
        received.iter().for_each(|event| drop(bench.send(event.clone())));
        let done = bench.pass(Span::from_secs(20));
        Reason(&bench.closed(&done), CarrierKind::Ssh).to_string()
    };
    let banner = DialEvent::Err(b"*** Authorized users only ***\n".to_vec());
    let greeting = DialEvent::Out(b"Which group today? ".to_vec());
    assert!(late(&[]).contains(": nothing came from there: it is off, cut off or stands still, or "));
    assert!(late(core::slice::from_ref(&banner)).contains(": ssh has not got through, or the login shell"));
    assert!(late(&[banner, greeting]).contains(": ssh got through; the login shell there has printed something"));
    let ready = format!("{}{}\n", marker(JOB), Answer::Ready(Place::Named).to_line());
    assert!(
        late(&[DialEvent::Out(ready.into_bytes())]).ends_with("--agent-path names was started, and has not answered")
    );
}

#[test]
fn endless_printer_is_no_noisy_login() {
    let noisy = |named: Option<&str>| {
        let mut plan = plan();
        plan.line.named = named.map(OsBytes::from);
        let mut bench = Bench { dial: Dial::new(plan), now: AT };
        bench.send(DialEvent::Start);
        bench.send(DialEvent::Out(b"Welcome to node7\n".to_vec()));
        bench.say(&Answer::Ready(if named.is_some() { Place::Named } else { Place::Cache }));
        let done = bench.send(DialEvent::Out(b"y\n".repeat(40_000)));
        bench.closed(&done)
    };
    assert_eq!(noisy(Some("/usr/bin/yes")), Why::Stranger { path: "/usr/bin/yes".into(), end: None });
    assert_eq!(noisy(None), Why::Noise, "what we have put there is ours: it is somebody else");
}

/// Hosts were blamed for the time in which the launcher was stopped, and their answers never read.
#[test]
fn time_in_which_we_stood_still_is_not_the_hosts() {
    let mut bench = Bench::started();
    let mut looks = Looks::new(AT);
    for passed in [200, 300, 30_000, 250, 100] {
        // The gap is no silence of the host, either.
        bench.now = bench.now + Span::from_millis(passed);
        bench.dial.exclude_suspension(looks.missed(bench.now));
        assert!(bench.pass(Span::ZERO).is_empty(), "after {passed} ms");
    }
    bench.say(&Answer::Ready(Place::Cache));
    // The gap costs one step.
    let by = (AT + Span::from_secs(20) + Span::from_millis(29_750), plan().limit);
    assert_eq!(bench.dial.poll_timeout(), Some(by.0));
    assert!(matches!(&bench.up()[..], [DialAction::Up(up)] if up.by == by));
}

#[test]
fn host_with_messages_is_not_silent() {
    for event in [DialEvent::Out(b"Welcome\n".to_vec()), DialEvent::Err(b"** banner **\n".to_vec())] {
        let mut bench = Bench::started();
        bench.send(event);
        assert!(bench.pass(Span::from_secs(10)).is_empty());
    }
    // Another ssh is another matter.
    let mut bench = Bench::started();
    bench.end("kex_exchange_identification: Connection closed by remote host\n", 255);
    bench.now = bench.dial.poll_timeout().unwrap();
    bench.pass(Span::ZERO);
    assert_eq!(bench.pass(Span::from_secs(5)), [DialAction::Silent]);
}

/// The ssh was reported as ended, and it continued until the end of the job.
#[test]
fn an_ssh_that_is_of_no_use_is_ended() {
    let mut bench = Bench::started();
    bench.say(&Answer::Ready(Place::Cache));
    assert!(matches!(bench.up()[..], [DialAction::Up(_)]));
    let done = bench.send(DialEvent::NoEdge);
    assert_eq!(bench.closed(&done), Why::NoEdge);
}

#[test]
fn cancelled_is_silent() {
    let mut bench = Bench::started();
    assert_eq!(bench.send(DialEvent::Cancel), [DialAction::Kill { hard: false }]);
    assert!(bench.send(DialEvent::Ended(CarrierEnd::Signal(15))).is_empty());
}

fn events() -> impl Strategy<Value = DialEvent> {
    let line = |answer: Answer| DialEvent::Out(format!("{}{}\n", marker(JOB), answer.to_line()).into_bytes());
    let proof = OsBytes::from(plan().preamble.proof());
    prop_oneof![
        Just(DialEvent::Start),
        Just(DialEvent::Cancel),
        Just(DialEvent::NoEdge),
        Just(DialEvent::WrongKey),
        any::<i32>().prop_map(|errno| DialEvent::NoStart { errno, said: OsBytes::default() }),
        any::<u8>().prop_map(|code| DialEvent::Ended(CarrierEnd::Code(code))),
        Just(DialEvent::Ended(CarrierEnd::Code(255))),
        Just(DialEvent::Ended(CarrierEnd::Signal(9))),
        proptest::collection::vec(any::<u8>(), 0..100).prop_map(DialEvent::Out),
        Just(DialEvent::Out(vec![b'n'; 70_000])),
        Just(DialEvent::Err(b"kex_exchange_identification: read: Connection reset by peer\n".to_vec())),
        Just(DialEvent::Err(b"open failed: administratively prohibited\n".to_vec())),
        Just(line(Answer::Ready(Place::Cache))),
        Just(line(Answer::Need(Place::Tmp))),
        Just(line(Answer::Arch("arm64".into()))),
        Just(line(Answer::Seal([7; tcp_hello::FIRST_MESSAGE]))),
        Just(line(Answer::Up { proof, pid: 3, wall: 4 })),
    ]
}

proptest! {
    /// Whatever happens, there is one ssh at a time, one verdict, and always an end.
    #[test]
    fn ssh_has_one_outcome_and_ends(may_seal: bool, events in proptest::collection::vec((events(), 0u64..3_000), 0..60)) {
        let purpose = if may_seal { Purpose::Sealed } else { Purpose::Job };
        let line = LinePlan { purpose, ..plan().line };
        let mut bench = Bench { dial: Dial::new(DialPlan { line, ..plan() }), now: AT };
        let mut is_sealed = false;
        let (mut running, mut verdicts, mut cancelled) = (false, 0, false);
        let mut look = |done: Vec<DialAction>, running: &mut bool, verdicts: &mut u32| {
            for action in done {
                match action {
                    DialAction::Start(_) => {
                        assert!(!*running, "two at a time");
                        *running = true;
                    }
                    DialAction::Seal(_) => is_sealed = true,
                    DialAction::Write(_) | DialAction::SendBinary | DialAction::Kill { .. } | DialAction::Up(_) => {
                        assert!(*running, "{action:?} for no ssh");
                        assert!(is_sealed || !may_seal || !matches!(action, DialAction::Up(_)), "up without a seal");
                    }
                    DialAction::Failed(_) | DialAction::Ended(..) => {
                        assert!(!*running, "reported before its end");
                        *verdicts += 1;
                    }
                    DialAction::Stage(_) | DialAction::Silent => {}
                }
            }
        };
        let begin = bench.send(DialEvent::Start);
        look(begin, &mut running, &mut verdicts);
        for (event, pause) in events {
            let only_for_running = matches!(event, DialEvent::Out(_) | DialEvent::Err(_) | DialEvent::Ended(_) | DialEvent::NoStart { .. });
            // The edges never deliver anything of an ssh that does not run.
            if only_for_running && !running {
                continue;
            }
            if matches!(event, DialEvent::NoStart { .. }) && bench.dial.stage() != Some(Stage::Connecting) {
                continue;
            }
            running &= !matches!(event, DialEvent::Ended(_) | DialEvent::NoStart { .. });
            cancelled |= event == DialEvent::Cancel;
            let done = bench.send(event);
            look(done, &mut running, &mut verdicts);
            let done = bench.pass(Span::from_millis(pause));
            look(done, &mut running, &mut verdicts);
        }
        for _ in 0..40 {
            if running {
                running = false;
                let done = bench.send(DialEvent::Ended(CarrierEnd::Code(255)));
                look(done, &mut running, &mut verdicts);
            }
            let done = bench.pass(Span::from_secs(5));
            look(done, &mut running, &mut verdicts);
        }
        prop_assert!(!running && bench.dial.poll_timeout().is_none());
        prop_assert!(verdicts == 1 || (cancelled && verdicts == 0), "{verdicts} verdicts");
    }
}
