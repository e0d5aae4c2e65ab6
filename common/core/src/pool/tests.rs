//! A pool: hosts that are handed out, jobs that wait, and random courses.

use super::*;
use alloc::collections::BTreeSet;
use alloc::vec;
use proptest::prelude::*;

const T0: Mono = Mono::from_nanos(1_000);
const NOT_AT_ALL: Option<Span> = Some(Span::ZERO);

fn at(seconds: u64) -> Mono {
    T0 + Span::from_secs(seconds)
}

fn hold(id: u32) -> HoldId {
    HoldId::new(id)
}

fn job(id: u32) -> JobId {
    JobId([u8::try_from(id % 256).unwrap(); 16])
}

fn nodes(ids: &[u32]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId::new).collect()
}

/// Hosts of two slots each that are up.
fn pool(hosts: u32, slice_of: impl Fn(u32) -> Option<u32>) -> Pool {
    let mut pool = Pool::new(T0, None);
    for id in 0..hosts {
        let node = pool.add(2, slice_of(id));
        pool.handle(T0, PoolEvent::Up(node));
    }
    assert_eq!(drain(&mut pool), []);
    pool
}

fn drain(pool: &mut Pool) -> Vec<PoolAction> {
    core::iter::from_fn(|| pool.poll_action()).collect()
}

fn want(id: u32, need: Need, wait: Option<Span>, evict: bool) -> PoolEvent {
    PoolEvent::Want(hold(id), id, Want { job: job(id), need, wait, evict, command: "./train".into() })
}

fn asked(pool: &mut Pool, id: u32, need: Need) -> Vec<PoolAction> {
    pool.handle(T0, want(id, need, NOT_AT_ALL, false));
    drain(pool)
}

fn granted(id: u32, hosts: &[u32]) -> Vec<PoolAction> {
    vec![PoolAction::Grant(hold(id), nodes(hosts))]
}

/// A job ends, and its hosts report that nothing of it is left.
fn end(pool: &mut Pool, id: u32, hosts: &[u32]) -> Vec<PoolAction> {
    pool.handle(T0, PoolEvent::Closed(hold(id)));
    hosts.iter().for_each(|node| pool.handle(T0, PoolEvent::Empty(NodeId::new(*node), job(id))));
    drain(pool)
}

#[test]
fn hosts_are_handed_out_in_slot_order() {
    for (need, hosts) in [
        (Need::All, &[0, 1, 2, 3][..]),
        (Need::Hosts(2), &[0, 1]),
        (Need::Ranks(3), &[0, 1]),
        (Need::Ranks(4), &[0, 1]),
        (Need::Ranks(5), &[0, 1, 2]),
        // More than all slots: the placement decides.
        (Need::Ranks(99), &[0, 1, 2, 3]),
    ] {
        assert_eq!(asked(&mut pool(4, |_| None), 1, need.clone()), granted(1, hosts), "{need:?}");
    }
}

#[test]
fn impossible_wants_are_refused() {
    let too_few = Refusal::TooFew { usable: 4, hosts: 4 };
    for (need, refusal) in [
        (Need::Hosts(0), Refusal::BadNumber),
        (Need::Ranks(0), Refusal::BadNumber),
        (Need::Slices(vec![]), Refusal::BadNumber),
        (Need::Slices(vec![2, 0]), Refusal::BadNumber),
        (Need::Slices(vec![1]), Refusal::NoSlices),
        (Need::Hosts(5), too_few.clone()),
        (Need::Hosts(1_000_000), too_few),
    ] {
        let refused = vec![PoolAction::Refuse(hold(1), refusal)];
        assert_eq!(asked(&mut pool(4, |_| None), 1, need.clone()), refused, "{need:?}");
        // Waiting does not help either.
        let mut patient = pool(4, |_| None);
        patient.handle(T0, want(1, need, None, false));
        assert_eq!(drain(&mut patient), refused);
    }
}

/// `-n 3` on two hosts of one slot each, because the third was lost, was not mentioned at all.
#[test]
fn lost_host_is_left_out_of_a_job_that_lacks_its_slots() {
    let mut pool = pool(3, |_| None);
    let lost = NodeId::new(1);
    pool.handle(T0, PoolEvent::Lost(lost));
    for (need, granted, left_out) in [
        (Need::Ranks(5), &[0, 2][..], vec![lost]),
        (Need::Ranks(4), &[0, 2], vec![]),
        (Need::All, &[0, 2], vec![lost]),
        (Need::Hosts(2), &[0, 2], vec![]),
    ] {
        assert_eq!(pool.left_out(&need, &nodes(granted)), left_out, "{need:?}");
    }
}

#[test]
fn host_is_free_when_it_is_empty_and_not_before() {
    let mut pool = pool(2, |_| None);
    assert_eq!(asked(&mut pool, 1, Need::All), granted(1, &[0, 1]));
    assert_eq!(asked(&mut pool, 2, Need::Hosts(1)), [PoolAction::Busy(hold(2))]);
    pool.handle(T0, PoolEvent::Closed(hold(1)));
    assert_eq!(drain(&mut pool), nodes(&[0, 1]).map_watch(1));
    // A job that does not wait for others waits for this.
    assert_eq!(asked(&mut pool, 3, Need::All), []);
    pool.handle(T0, PoolEvent::Empty(NodeId::new(0), job(1)));
    // The end of another job proves nothing about this one.
    pool.handle(T0, PoolEvent::Empty(NodeId::new(1), job(9)));
    assert_eq!(drain(&mut pool), []);
    pool.handle(T0, PoolEvent::Empty(NodeId::new(1), job(1)));
    assert_eq!(drain(&mut pool), granted(3, &[0, 1]));
}

#[test]
fn first_hosts_are_waited_for_while_they_get_empty_but_not_for_long() {
    let mut pool = pool(3, |_| None);
    asked(&mut pool, 1, Need::Hosts(2));
    pool.handle(T0, PoolEvent::Closed(hold(1)));
    pool.handle(T0, PoolEvent::Empty(NodeId::new(1), job(1)));
    drain(&mut pool);
    assert_eq!(asked(&mut pool, 2, Need::Hosts(2)), []);
    assert_eq!(pool.poll_timeout(), Some(T0 + ORDER_WITHIN));
    pool.handle_timeout(T0 + ORDER_WITHIN);
    assert_eq!(drain(&mut pool), granted(2, &[1, 2]), "host 0 does not get empty");
}

#[test]
fn job_that_does_not_end_in_its_time_is_killed() {
    let mut pool = pool(2, |_| None);
    asked(&mut pool, 1, Need::Hosts(1));
    pool.handle(T0, PoolEvent::EndsWithin(hold(1), Span::from_secs(9)));
    assert_eq!(pool.poll_timeout(), None);
    pool.handle(T0, want(2, Need::All, NOT_AT_ALL, true));
    pool.handle(T0, PoolEvent::EndsWithin(hold(2), Span::from_secs(5)));
    assert_eq!(drain(&mut pool), [PoolAction::End(hold(1), false), PoolAction::Queued(hold(2), 0)]);
    assert_eq!(pool.poll_timeout(), Some(at(9)));
    pool.handle_timeout(at(8));
    assert_eq!(drain(&mut pool), []);
    pool.handle_timeout(at(9));
    assert_eq!(drain(&mut pool), [PoolAction::End(hold(1), true)]);
    pool.handle_timeout(at(99));
    assert_eq!(drain(&mut pool), [], "once");
    assert_eq!(end(&mut pool, 1, &[0]).last(), granted(2, &[0, 1]).last());
    // The limit of a job that has waited is known; a pool that ends keeps it.
    pool.handle(at(100), PoolEvent::Down(false));
    assert_eq!((drain(&mut pool), pool.poll_timeout()), (vec![PoolAction::End(hold(2), false)], Some(at(105))));
    pool.handle(at(101), PoolEvent::Down(true));
    assert_eq!((drain(&mut pool), pool.poll_timeout()), (vec![PoolAction::End(hold(2), true)], None));
}

#[test]
fn job_does_not_wait_for_hosts_that_leave() {
    let mut pool = pool(2, |_| None);
    asked(&mut pool, 1, Need::Hosts(1));
    pool.handle(T0, want(2, Need::All, None, false));
    pool.handle(T0, want(3, Need::Hosts(2), None, false));
    assert_eq!(drain(&mut pool), [PoolAction::Queued(hold(2), 0), PoolAction::Queued(hold(3), 1)]);
    pool.handle(T0, PoolEvent::Drain(NodeId::new(0)));
    let few = |usable, hosts| Refusal::TooFew { usable, hosts };
    assert_eq!(drain(&mut pool), [PoolAction::Grant(hold(2), nodes(&[1])), PoolAction::Refuse(hold(3), few(1, 2))]);
    pool.handle(T0, PoolEvent::Drain(NodeId::new(1)));
    pool.handle(T0, want(4, Need::All, None, false));
    assert_eq!(drain(&mut pool), [PoolAction::Refuse(hold(4), few(0, 2))]);
}

trait Watches {
    fn map_watch(self, id: u32) -> Vec<PoolAction>;
}

impl Watches for Vec<NodeId> {
    fn map_watch(self, id: u32) -> Vec<PoolAction> {
        self.into_iter().map(|node| PoolAction::Watch(node, job(id))).collect()
    }
}

#[test]
fn host_that_does_not_get_empty_makes_a_job_without_patience_fail() {
    let mut pool = pool(1, |_| None);
    asked(&mut pool, 1, Need::All);
    pool.handle(T0, PoolEvent::Closed(hold(1)));
    asked(&mut pool, 2, Need::All);
    pool.handle_timeout(T0 + ORDER_WITHIN);
    assert_eq!(pool.poll_timeout(), Some(T0 + EMPTY_WITHIN));
    pool.handle_timeout(T0 + EMPTY_WITHIN);
    assert_eq!(drain(&mut pool), [PoolAction::Busy(hold(2))]);
}

#[test]
fn jobs_wait_in_the_order_in_which_they_came() {
    let mut pool = pool(2, |_| None);
    asked(&mut pool, 1, Need::Hosts(1));
    for (id, wait) in [(2, None), (3, None), (4, Some(Span::from_secs(5)))] {
        pool.handle(T0, want(id, Need::All, wait, false));
    }
    let queued = |id: u32, before| PoolAction::Queued(hold(id), before);
    assert_eq!(drain(&mut pool), [queued(2, 0), queued(3, 1), queued(4, 2)]);
    assert_eq!(asked(&mut pool, 5, Need::Hosts(1)), [PoolAction::Busy(hold(5))], "no job overtakes those that wait");
    pool.handle_timeout(at(5));
    assert_eq!(drain(&mut pool), [PoolAction::Busy(hold(4))]);
    let grant = PoolAction::Grant(hold(2), nodes(&[0, 1]));
    assert_eq!(end(&mut pool, 1, &[0]), [PoolAction::Watch(NodeId::new(0), job(1)), grant]);
    pool.handle(T0, PoolEvent::Closed(hold(3)));
    assert_eq!((pool.waiting(), drain(&mut pool)), (0, vec![]), "its launcher was killed while it waited");
}

#[test]
fn evicted_job_ends_first_and_only_as_many_as_needed_are() {
    let mut pool = pool(4, |_| None);
    (1..4).for_each(|id| drop(asked(&mut pool, id, Need::Hosts(1))));
    pool.handle(T0, want(7, Need::Hosts(2), NOT_AT_ALL, true));
    assert_eq!(drain(&mut pool), [PoolAction::End(hold(1), false), PoolAction::Queued(hold(7), 0)]);
    pool.handle_timeout(at(59));
    assert_eq!(drain(&mut pool), [], "a rank that ignores SIGTERM is waited for");
    pool.handle(T0, PoolEvent::Closed(hold(1)));
    assert_eq!(drain(&mut pool), [PoolAction::Watch(NodeId::new(0), job(1))]);
    pool.handle(T0, PoolEvent::Empty(NodeId::new(0), job(1)));
    assert_eq!(drain(&mut pool), granted(7, &[0, 3]));
}

#[test]
fn lost_warned_and_draining_hosts_are_left_out() {
    let mut pool = pool(4, |_| None);
    pool.handle(T0, PoolEvent::Lost(NodeId::new(0)));
    pool.handle(T0, PoolEvent::Warned(NodeId::new(1), true));
    pool.handle(T0, PoolEvent::Drain(NodeId::new(2)));
    assert_eq!(drain(&mut pool), [PoolAction::Close(NodeId::new(2), None)]);
    assert_eq!(asked(&mut pool, 1, Need::All), granted(1, &[3]));
    let few = PoolAction::Refuse(hold(2), Refusal::TooFew { usable: 1, hosts: 3 });
    assert_eq!(asked(&mut pool, 2, Need::Hosts(2)), [few]);
    // With patience the hosts may come back.
    pool.handle(T0, want(3, Need::Hosts(2), None, false));
    assert_eq!(drain(&mut pool), [PoolAction::Queued(hold(3), 0)]);
    pool.handle(T0, PoolEvent::Up(NodeId::new(0)));
    pool.handle(T0, PoolEvent::Warned(NodeId::new(1), false));
    assert_eq!(drain(&mut pool), granted(3, &[0, 1]));
}

#[test]
fn lost_host_of_a_job_is_examined_when_it_is_back() {
    let mut pool = pool(1, |_| None);
    asked(&mut pool, 1, Need::All);
    pool.handle(T0, PoolEvent::Lost(NodeId::new(0)));
    pool.handle(T0, PoolEvent::Closed(hold(1)));
    assert_eq!(drain(&mut pool), []);
    pool.handle(T0, PoolEvent::Up(NodeId::new(0)));
    assert_eq!(drain(&mut pool), [PoolAction::Watch(NodeId::new(0), job(1))]);
    assert_eq!(pool.host(NodeId::new(0)).unwrap().state(), HostState::Emptying(job(1)));
}

#[test]
fn draining_host_leaves_when_its_job_has_left() {
    let mut pool = pool(2, |_| None);
    asked(&mut pool, 1, Need::Hosts(1));
    pool.handle(T0, PoolEvent::Drain(NodeId::new(0)));
    assert_eq!(drain(&mut pool), []);
    let node = NodeId::new(0);
    assert_eq!(end(&mut pool, 1, &[0]), [PoolAction::Watch(node, job(1)), PoolAction::Close(node, None)]);
    assert_eq!(pool.add(2, None), NodeId::new(2), "a slot is never given again");
}

#[test]
fn end_of_a_pool_waits_for_its_jobs() {
    let mut pool = pool(2, |_| None);
    asked(&mut pool, 1, Need::Hosts(1));
    pool.handle(T0, want(2, Need::All, None, false));
    drain(&mut pool);
    pool.handle(T0, PoolEvent::Down(false));
    let (refuse, term) = (PoolAction::Refuse(hold(2), Refusal::Ending), PoolAction::End(hold(1), false));
    assert_eq!(drain(&mut pool), [refuse, term, PoolAction::Close(NodeId::new(1), None)]);
    assert_eq!(asked(&mut pool, 3, Need::Hosts(1)), [PoolAction::Refuse(hold(3), Refusal::Ending)]);
    pool.handle(T0, PoolEvent::Down(true));
    assert_eq!(drain(&mut pool), [PoolAction::End(hold(1), true)]);
    let node = NodeId::new(0);
    let last = [PoolAction::Watch(node, job(1)), PoolAction::Close(node, None), PoolAction::Over];
    assert_eq!(end(&mut pool, 1, &[0]), last);
}

/// A host that never reports its end, as with a stopped guardian, holds up the end of a pool for a known time.
#[test]
fn host_that_does_not_get_empty_leaves_a_pool_that_ends() {
    let node = NodeId::new(0);
    let left = [PoolAction::Close(node, Some(job(1))), PoolAction::Over];
    for (is_now, until) in [(false, 30), (true, 20)] {
        let mut pool = pool(1, |_| None);
        asked(&mut pool, 1, Need::All);
        pool.handle(T0, PoolEvent::EndsWithin(hold(1), Span::from_secs(25)));
        pool.handle(T0, PoolEvent::Down(is_now));
        pool.handle(at(5), PoolEvent::Closed(hold(1)));
        assert_eq!(drain(&mut pool).last(), Some(&PoolAction::Watch(node, job(1))));
        assert_eq!(pool.poll_timeout(), Some(at(until)), "{is_now}");
        pool.handle_timeout(at(until));
        assert_eq!(drain(&mut pool), left, "{is_now}");
    }
    // The job has ended long ago.
    let mut late = pool(1, |_| None);
    asked(&mut late, 1, Need::All);
    late.handle(T0, PoolEvent::Closed(hold(1)));
    late.handle_timeout(at(1_000));
    assert_eq!(drain(&mut late), [PoolAction::Watch(node, job(1))]);
    late.handle(at(1_000), PoolEvent::Down(false));
    assert_eq!((drain(&mut late), late.poll_timeout()), (vec![], Some(at(1_015))));
    late.handle(at(1_001), PoolEvent::Lost(node));
    assert_eq!(drain(&mut late), left, "nothing is known of a lost host");
}

#[test]
fn pool_without_a_job_ends_after_a_while() {
    let mut pool = Pool::new(T0, Some(Span::from_secs(10)));
    let node = pool.add(1, None);
    pool.handle(T0, PoolEvent::Up(node));
    asked(&mut pool, 1, Need::All);
    assert_eq!(pool.poll_timeout(), None);
    pool.handle(at(5), PoolEvent::Closed(hold(1)));
    pool.handle(at(6), PoolEvent::Empty(node, job(1)));
    drain(&mut pool);
    assert_eq!(pool.poll_timeout(), Some(at(15)));
    pool.handle_timeout(at(14));
    assert_eq!(drain(&mut pool), []);
    pool.handle_timeout(at(15));
    assert_eq!(drain(&mut pool), [PoolAction::Close(node, None), PoolAction::Over]);
}

#[test]
fn largest_valid_number_of_whole_slices_is_taken() {
    let sizes = || Need::Slices(vec![1, 2, 4]);
    let mut all = pool(8, |id| Some(id / 2));
    assert_eq!(asked(&mut all, 1, sizes()), granted(1, &[0, 1, 2, 3, 4, 5, 6, 7]));
    let mut three = pool(8, |id| Some(id / 2));
    three.handle(T0, PoolEvent::Warned(NodeId::new(2), true));
    assert_eq!(asked(&mut three, 1, sizes()), granted(1, &[0, 1, 4, 5]));
    assert_eq!(asked(&mut three, 2, sizes()), granted(2, &[6, 7]));
    assert_eq!(asked(&mut three, 3, sizes()), [PoolAction::Busy(hold(3))]);
    let few = PoolAction::Refuse(hold(4), Refusal::TooFewSlices { wanted: 4, usable: 3, slices: 4 });
    assert_eq!(asked(&mut three, 4, Need::Slices(vec![4])), [few]);
}

#[test]
fn slice_of_which_a_host_has_left_is_not_handed_out() {
    let mut pool = pool(6, |id| Some(id / 2));
    pool.handle(T0, PoolEvent::Drain(NodeId::new(2)));
    drain(&mut pool);
    assert!(pool.host(NodeId::new(2)).is_none(), "it is gone");
    assert_eq!(asked(&mut pool, 1, Need::Slices(vec![1, 2, 3])), granted(1, &[0, 1, 4, 5]));
    let few = PoolAction::Refuse(hold(2), Refusal::TooFewSlices { wanted: 3, usable: 2, slices: 2 });
    assert_eq!(asked(&mut pool, 2, Need::Slices(vec![3])), [few]);
}

#[test]
fn state_of_a_slice_is_the_one_that_keeps_it_from_jobs_the_longest() {
    let mut pool = pool(12, |id| Some(id / 2));
    let states = |pool: &Pool| pool.slices().into_values().collect::<Vec<_>>();
    assert_eq!(states(&pool), [SliceState::Free; 6]);
    asked(&mut pool, 1, Need::Slices(vec![1]));
    for (node, event) in [(2, PoolEvent::Lost as fn(NodeId) -> PoolEvent), (4, |node| PoolEvent::Warned(node, true))] {
        pool.handle(T0, event(NodeId::new(node)));
    }
    for node in [7, 8, 9] {
        pool.handle(T0, PoolEvent::Drain(NodeId::new(node)));
    }
    drain(&mut pool);
    let (held, left) = (SliceState::Held, SliceState::Incomplete);
    assert_eq!(
        states(&pool),
        [held, SliceState::Lost, SliceState::Warned, left, SliceState::Free],
        "the fifth has left"
    );
    assert_eq!(pool.slices().keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 5], "slots stay");
    // A slice that is being drained has its job still.
    pool.handle(T0, PoolEvent::Drain(NodeId::new(0)));
    assert_eq!(states(&pool).first(), Some(&held));
    assert_eq!(end(&mut pool, 1, &[0]).last(), Some(&PoolAction::Close(NodeId::new(0), None)));
    assert_eq!(states(&pool).first(), Some(&SliceState::Emptying));
}

/// More slices than there are come with no patience; fewer that can be used may.
#[test]
fn number_above_that_of_the_slices_is_refused_at_once() {
    for wait in [NOT_AT_ALL, None, Some(Span::from_secs(60))] {
        let mut pool = pool(10, |id| Some(id / 2));
        pool.handle(T0, PoolEvent::Warned(NodeId::new(2), true));
        pool.handle(T0, want(1, Need::Slices(vec![6, 8]), wait, false));
        let refusal = Refusal::TooFewSlices { wanted: 6, usable: 4, slices: 5 };
        assert_eq!(drain(&mut pool), [PoolAction::Refuse(hold(1), refusal)], "{wait:?}");
        pool.handle(T0, want(2, Need::Slices(vec![5]), wait, false));
        let refusal = PoolAction::Refuse(hold(2), Refusal::TooFewSlices { wanted: 5, usable: 4, slices: 5 });
        let waits = PoolAction::Queued(hold(2), 0);
        assert_eq!(drain(&mut pool), [if wait == NOT_AT_ALL { refusal } else { waits }], "{wait:?}");
    }
}

#[test]
fn queue_has_an_end() {
    let mut pool = pool(1, |_| None);
    asked(&mut pool, 0, Need::All);
    for id in 1..=u32::try_from(MOST_WAITING).unwrap() {
        pool.handle(T0, want(id, Need::All, None, false));
        drain(&mut pool);
    }
    pool.handle(T0, want(5_000, Need::All, None, false));
    assert_eq!(drain(&mut pool), [PoolAction::Refuse(hold(5_000), Refusal::QueueFull)]);
}

/// A step of a random course.
#[derive(Clone, Copy, Debug)]
enum Step {
    Want(u8, bool, bool),
    Closed(u8),
    Up(u8),
    Lost(u8),
    Warned(u8, bool),
    Drain(u8),
    Empty(u8),
    Time,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<u8>(), any::<bool>(), any::<bool>()).prop_map(|(n, wait, evict)| Step::Want(n, wait, evict)),
        3 => any::<u8>().prop_map(Step::Closed),
        3 => any::<u8>().prop_map(Step::Up),
        1 => any::<u8>().prop_map(Step::Lost),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(n, is)| Step::Warned(n, is)),
        1 => any::<u8>().prop_map(Step::Drain),
        6 => any::<u8>().prop_map(Step::Empty),
        1 => Just(Step::Time),
    ]
}

/// The facts that must hold, kept beside the pool.
#[derive(Default)]
struct Truth {
    /// The job of each host, until it was empty.
    used: BTreeMap<NodeId, JobId>,
    up: BTreeSet<NodeId>,
    warned: BTreeSet<NodeId>,
    draining: BTreeSet<NodeId>,
    held: BTreeMap<HoldId, Vec<NodeId>>,
    answered: BTreeSet<HoldId>,
}

impl Truth {
    fn check(&mut self, pool: &mut Pool) {
        for action in drain(pool) {
            let id = match action {
                PoolAction::Grant(id, nodes) => {
                    assert!(!nodes.is_empty() && nodes.is_sorted(), "slot order");
                    for node in &nodes {
                        assert!(self.up.contains(node) && !self.warned.contains(node), "{node} is lost or warned");
                        assert!(!self.draining.contains(node), "{node} gets no new job");
                        assert_eq!(self.used.insert(*node, job(id.get())), None, "{node} has a job already");
                    }
                    self.held.insert(id, nodes);
                    id
                }
                PoolAction::Busy(id) | PoolAction::Refuse(id, _) => id,
                PoolAction::Queued(..) | PoolAction::End(..) | PoolAction::Watch(..) | PoolAction::Close(..) => {
                    continue;
                }
                PoolAction::Over => panic!("it was not to end"),
            };
            assert!(self.answered.insert(id), "answered twice");
        }
    }
}

proptest! {
    #[test]
    fn no_host_has_two_jobs_and_none_that_is_lost_or_warned_is_handed_out(
        steps in proptest::collection::vec(step(), 1..120),
        is_sliced: bool,
    ) {
        let mut pool = Pool::new(T0, None);
        let mut truth = Truth::default();
        for id in 0..6 {
            pool.add(2, is_sliced.then_some(id / 2));
        }
        let mut next = 0;
        for (second, step) in (0..).zip(steps) {
            let node = |n: u8| NodeId::new(u32::from(n) % 6);
            let event = match step {
                Step::Want(n, is_patient, evict) => {
                    next += 1;
                    let count = u32::from(n) % 4 + 1;
                    let need = match n % 5 {
                        0 => Need::All,
                        1 => Need::Ranks(count),
                        2 if is_sliced => Need::Slices(vec![1, count]),
                        _ => Need::Hosts(count),
                    };
                    want(next, need, if is_patient { None } else { NOT_AT_ALL }, evict)
                }
                Step::Closed(n) => PoolEvent::Closed(hold(u32::from(n) % (next + 1))),
                Step::Up(n) => {
                    truth.up.insert(node(n));
                    PoolEvent::Up(node(n))
                }
                Step::Lost(n) => {
                    truth.up.remove(&node(n));
                    PoolEvent::Lost(node(n))
                }
                Step::Warned(n, is_warned) => {
                    if is_warned { truth.warned.insert(node(n)) } else { truth.warned.remove(&node(n)) };
                    PoolEvent::Warned(node(n), is_warned)
                }
                Step::Drain(n) => {
                    truth.draining.insert(node(n));
                    PoolEvent::Drain(node(n))
                }
                Step::Empty(n) => {
                    // As a host reports it: only when its job has let it go.
                    let Some(job) = truth.used.get(&node(n)).copied() else { continue };
                    if truth.held.values().any(|nodes| nodes.contains(&node(n))) { continue }
                    truth.used.remove(&node(n));
                    PoolEvent::Empty(node(n), job)
                }
                Step::Time => {
                    pool.handle_timeout(at(second));
                    truth.check(&mut pool);
                    continue;
                }
            };
            if let PoolEvent::Closed(id) = &event {
                truth.held.remove(id);
                truth.answered.insert(*id);
            }
            pool.handle(at(second), event);
            truth.check(&mut pool);
        }
        // In the end every job that wants hosts was answered, or waits.
        pool.handle_timeout(at(100_000));
        truth.check(&mut pool);
        prop_assert_eq!(pool.waiting() + u32::try_from(truth.answered.iter().filter(|id| id.get() != 0).count()).unwrap(), next);
    }
}
