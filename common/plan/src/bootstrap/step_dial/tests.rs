//! A step of three hosts.

use super::*;
use crate::bootstrap::tcp_hello::STEP_PREAMBLE;
use crate::bootstrap::{Hash, Purpose, Secret, Sum};
use alloc::string::ToString as _;
use alloc::vec;
use rlaunch_base::id::JobId;

const AT: Mono = Mono::from_nanos(1_000_000_000);
const JOB: JobId = JobId([3; 16]);
const LIMIT: Span = Span::from_secs(20);

fn sums() -> Sums {
    Sums { hash: Hash([1; 32]), sum: Sum::of(b"binary"), ends: Hash::of(b"ends") }
}

fn facts() -> AgentFacts {
    AgentFacts { pid: 7, wall: 9 }
}

fn node(n: u32) -> NodeId {
    NodeId::new(n)
}

struct Bench {
    dial: StepDial,
    now: Mono,
}

impl Bench {
    /// srun runs, and it is not known where the launcher listens.
    fn new(transport: Transport) -> Self {
        let line = LinePlan {
            job: JOB,
            node: node(1),
            sums: None,
            len: 9,
            arch: "x86_64",
            same: Some("/bin/rlaunch".into()),
            named: None,
            purpose: Purpose::Step,
        };
        Self::with(transport, Program::Shell(line)).0
    }

    /// A step whose program is our binary.
    fn direct() -> Self {
        let ends = Hash::of(b"ends");
        let (mut bench, words) = Self::with(Transport::Auto, Program::Binary { path: "/opt/rlaunch".into(), ends });
        let program = ["/opt/rlaunch", "agent", "direct", &JOB.to_string(), &ends.to_string()];
        assert_eq!(words[words.len() - 5..], program);
        let done = bench.handle(StepEvent::Listening(4000, None));
        assert!(matches!(&done[..], [StepAction::Write(bytes)] if bytes.len() == STEP_PREAMBLE), "{done:?}");
        bench
    }

    /// The same with this program, and the words of srun.
    fn with(transport: Transport, program: Program) -> (Self, Vec<String>) {
        let target = |n: u32| (node(n), Target::parse(format!("n{n}").as_bytes(), None).unwrap());
        let plan = StepPlan {
            hosts: (1..=3).map(target).collect(),
            srun: SrunPlan { transport, ..SrunPlan::default() },
            program,
            preamble: StepPreamble { job: JOB, epoch: 0, port: 0, secret: Secret([5; 32]) },
            limit: LIMIT,
        };
        let mut bench = Self { dial: StepDial::new(plan), now: AT };
        let done = bench.handle(StepEvent::Start);
        let [StepAction::Start(words), rest @ ..] = &done[..] else { panic!("{done:?}") };
        assert!(words.iter().any(|word| word.to_string() == "--nodelist=n[1-3]"), "{words:?}");
        assert!(rest.iter().all(|action| matches!(action, StepAction::Stage(_, Stage::Connecting))));
        (bench, words.iter().map(|word| word.to_string()).collect())
    }

    fn started(transport: Transport) -> Self {
        let mut bench = Self::new(transport);
        let done = bench.handle(StepEvent::Listening(4000, Some(sums())));
        let [StepAction::Write(bytes)] = &done[..] else { panic!("{done:?}") };
        let (line, bytes) = bytes.split_at(Sums::LENGTH);
        assert_eq!(line, sums().to_line().as_bytes());
        let sent = StepPreamble::parse(bytes.try_into().unwrap()).unwrap();
        assert_eq!((sent.port, sent.secret), (4000, Secret([5; 32])));
        bench
    }

    fn handle(&mut self, event: StepEvent) -> Vec<StepAction> {
        self.dial.handle(self.now, event);
        core::iter::from_fn(|| self.dial.poll_action()).collect()
    }

    /// Lets the time pass until the next deadline.
    fn wait(&mut self) -> Vec<StepAction> {
        self.now = self.dial.poll_timeout().expect("a deadline");
        self.dial.handle_timeout(self.now);
        core::iter::from_fn(|| self.dial.poll_action()).collect()
    }

    fn line(&mut self, answer: &Answer) -> Vec<StepAction> {
        let marker = super::super::answer::marker(JOB);
        self.handle(StepEvent::Out(format!("{marker}{}\n", answer.to_line()).into_bytes()))
    }
}

#[test]
fn each_agent_that_connects_is_up_and_the_end_of_srun_is_no_loss() {
    let mut bench = Bench::started(Transport::Auto);
    for n in [2, 1, 3] {
        let done = bench.handle(StepEvent::Connected(node(n), facts()));
        assert!(matches!(&done[..], [StepAction::Up(up, Up { pid: 7, wall: 9, .. })] if *up == node(n)), "{done:?}");
    }
    assert_eq!(bench.dial.poll_timeout(), None);
    assert_eq!(bench.handle(StepEvent::Connected(node(2), facts())), [], "a second time");
    assert_eq!(bench.handle(StepEvent::Ended(CarrierEnd::Code(0))), []);
    assert!(!bench.dial.is_busy());
}

#[test]
fn agents_that_are_connected_when_srun_ends_are_named_with_its_last_lines() {
    for end in [CarrierEnd::Signal(9), CarrierEnd::Code(1)] {
        let mut bench = Bench::started(Transport::Auto);
        (1..=3).for_each(|n| drop(bench.handle(StepEvent::Connected(node(n), facts()))));
        bench.handle(StepEvent::Err(b"srun: error: n1: task 0: Killed\n".to_vec()));
        let named = StepAction::News(CarrierNews::SrunEnded {
            nodes: [1, 2, 3].map(node).into(),
            end,
            words: "srun: error: n1: task 0: Killed".into(),
        });
        assert_eq!(bench.handle(StepEvent::Ended(end)), [named]);
    }
    let mut bench = Bench::started(Transport::Auto);
    let done = bench.handle(StepEvent::Ended(CarrierEnd::Signal(9)));
    assert!(
        !done.iter().any(|action| matches!(action, StepAction::News(CarrierNews::SrunEnded { .. }))),
        "no agent was there: {done:?}"
    );
}

#[test]
fn all_hosts_fall_back_when_no_agent_connects() {
    let mut bench = Bench::started(Transport::Auto);
    let done = bench.wait();
    assert_eq!(bench.now.since(AT), Span::from_secs(5));
    let back = |n| {
        StepAction::FallBack(
            node(n),
            FallBack::Silent { waited: Span::from_secs(5), words: OsBytes::default() },
            Span::from_secs(15),
        )
    };
    assert_eq!(done, [back(1), back(2), back(3), StepAction::Kill { hard: false }]);
    assert_eq!(bench.wait(), [StepAction::Kill { hard: true }]);
    assert_eq!(bench.handle(StepEvent::Ended(CarrierEnd::Signal(9))), []);
}

#[test]
fn words_of_srun_are_shown_where_no_agent_connects() {
    const WORDS: &str = "srun: Job 7 step creation temporarily disabled, retrying";
    let mut bench = Bench::started(Transport::Tcp);
    bench.handle(StepEvent::Err(format!("{WORDS}\n").into_bytes()));
    assert_eq!(bench.wait(), [StepAction::News(CarrierNews::StepWaits { words: WORDS.into() })]);
    assert_eq!(bench.now.since(AT), Span::from_secs(5));
    assert!(matches!(&bench.wait()[..], [StepAction::Failed(..), ..]), "once");
    let mut bench = Bench::started(Transport::Tcp);
    bench.handle(StepEvent::Err(format!("{WORDS}\n").into_bytes()));
    bench.handle(StepEvent::Connected(node(1), facts()));
    assert!(matches!(&bench.wait()[..], [StepAction::Failed(..), ..]), "an agent runs");
    let mut bench = Bench::started(Transport::Auto);
    bench.handle(StepEvent::Err(format!("{WORDS}\n").into_bytes()));
    let done = bench.wait();
    let with_words = |why: &FallBack| matches!(why, FallBack::Silent { words, .. } if words.to_string() == WORDS);
    assert!(matches!(&done[0], StepAction::FallBack(_, why, _) if with_words(why)), "{done:?}");
}

#[test]
fn a_slow_configuration_is_no_time_of_the_agents() {
    let mut bench = Bench::new(Transport::Auto);
    bench.now = AT + Span::from_secs(4);
    bench.handle(StepEvent::Listening(4000, Some(sums())));
    bench.wait();
    bench.wait();
    assert_eq!(bench.now.since(AT), Span::from_secs(9), "a quarter of the limit after the port was known");
}

#[test]
fn answers_are_read_however_much_login_files_print() {
    let mut bench = Bench::started(Transport::Auto);
    bench.handle(StepEvent::Out(vec![b'x'; 1 << 20]));
    let absent = Answer::Absent("n2".into());
    assert_eq!(bench.line(&absent), [StepAction::FallBack(node(2), FallBack::Absent, LIMIT)]);
}

#[test]
fn a_host_that_is_late_fails_when_another_has_connected() {
    for transport in [Transport::Auto, Transport::Tcp] {
        let mut bench = Bench::started(transport);
        bench.handle(StepEvent::Connected(node(1), facts()));
        let done = bench.wait();
        assert_eq!(bench.now.since(AT), LIMIT);
        let [StepAction::Failed(first, failure), StepAction::Failed(..)] = &done[..] else { panic!("{done:?}") };
        assert_eq!((*first, &failure.why), (node(2), &Why::NoConnection { port: 4000, limit: LIMIT }));
        assert!(failure.reason().contains("port 4000"));
        assert_eq!(bench.dial.poll_timeout(), None, "the others run");
    }
}

#[test]
fn a_host_without_the_binary_or_without_a_way_here_falls_back_alone() {
    let absent = Answer::Absent("n2".into());
    let unconnected = Answer::Unconnected { host: "n3".into(), why: "10.0.0.1:4000: Connection refused".into() };
    let mut bench = Bench::started(Transport::Auto);
    assert_eq!(bench.line(&Answer::Ready(Place::Same)), []);
    assert_eq!(bench.line(&absent), [StepAction::FallBack(node(2), FallBack::Absent, LIMIT)]);
    let why = FallBack::Unconnected { reason: "10.0.0.1:4000: Connection refused".into() };
    assert_eq!(bench.line(&unconnected), [StepAction::FallBack(node(3), why, LIMIT)]);
    assert_eq!(bench.line(&absent), [], "once");
    let mut bench = Bench::started(Transport::Tcp);
    for (answer, why) in
        [(absent, Why::Absent), (unconnected, Why::Unconnected("10.0.0.1:4000: Connection refused".into()))]
    {
        let done = bench.line(&answer);
        assert!(matches!(&done[..], [StepAction::Failed(_, failure)] if failure.why == why), "{done:?}");
    }
}

#[test]
fn all_hosts_fall_back_when_the_launcher_cannot_listen() {
    let mut bench = Bench::started(Transport::Auto);
    let done = bench.handle(StepEvent::NoListener("no port is free".into()));
    let back = |n| StepAction::FallBack(node(n), FallBack::Unconnected { reason: "no port is free".into() }, LIMIT);
    assert_eq!(done, [back(1), back(2), back(3), StepAction::Kill { hard: false }]);
}

#[test]
fn all_waiting_hosts_fail_with_the_words_of_srun() {
    let mut bench = Bench::started(Transport::Auto);
    bench.handle(StepEvent::Connected(node(1), facts()));
    bench.handle(StepEvent::Err(b"srun: error: Unable to create step: Job/step already completing\n".to_vec()));
    let mut done = bench.handle(StepEvent::Ended(CarrierEnd::Code(1)));
    assert!(matches!(done.pop(), Some(StepAction::News(CarrierNews::SrunEnded { nodes, .. })) if nodes == [node(1)]));
    assert_eq!(done.len(), 2);
    for action in done {
        let StepAction::Failed(_, failure) = action else { panic!("{action:?}") };
        assert_eq!(failure.why, Why::Carrier(CarrierEnd::Code(1)));
        assert!(failure.words.to_string().contains("already completing"));
    }
    let mut bench = Bench::started(Transport::Auto);
    let done = bench.handle(StepEvent::NoStart { errno: 2, said: "no such file".into() });
    assert_eq!(done.len(), 3);
}

#[test]
fn a_step_of_which_no_host_is_needed_is_ended() {
    let mut bench = Bench::started(Transport::Auto);
    assert_eq!(bench.handle(StepEvent::Cancel(node(1))), []);
    assert_eq!(bench.handle(StepEvent::Cancel(node(2))), []);
    assert_eq!(bench.handle(StepEvent::Cancel(node(3))), vec![StepAction::Kill { hard: false }]);
}

#[test]
fn a_host_on_which_srun_cannot_start_the_binary_gets_a_shell_in_another_step() {
    let mut bench = Bench::direct();
    bench.now = AT + Span::from_secs(2);
    let with_shell = |n| StepAction::WithShell(node(n), Span::from_secs(18));
    assert_eq!(bench.line(&Answer::Absent("n3".into())), [with_shell(3)], "another build");
    let exited = |hosts: &str, code: u8| {
        StepEvent::Err(format!("srun: error: {hosts}: tasks 0-1: Exited with exit code {code}\n").into_bytes())
    };
    assert_eq!(bench.handle(exited("n2", 125)), [], "an agent whose reason comes on stdout");
    bench.handle(StepEvent::Connected(node(1), facts()));
    assert_eq!(bench.handle(exited("n[1-3]", 2)), [with_shell(2)], "no file; and an agent that was up");
    assert_eq!(bench.dial.poll_timeout(), None);
    let mut bench = Bench::direct();
    let done = bench.handle(exited("n[1-3]", 2));
    assert!(matches!(&done[..], [.., StepAction::WithShell(..), StepAction::Kill { hard: false }]), "{done:?}");
    let mut bench = Bench::started(Transport::Auto);
    assert_eq!(bench.handle(exited("n[1-3]", 2)), [], "a shell has looked");
}
