//! Looks at the libraries that ranks have loaded.

use super::*;

#[test]
fn libraries_of_ranks_are_looked_at_until_one_is_loaded_or_used() {
    let at = |ms: u64| Mono::from_nanos(ms * 1_000_000);
    let mut rig = Rig::new(world(2));
    let looks = |rig: &mut Rig, until: u64| {
        (0..until).step_by(5).for_each(|ms| rig.pass(at(ms)));
        core::mem::take(&mut rig.others).len()
    };
    assert_eq!(looks(&mut Rig::new(world(1)), 1_000), 0, "one rank needs no other");
    let first = looks(&mut rig, 1_000);
    assert!((8..16).contains(&first), "{first} looks in the first second");
    assert!(rig.mpi.poll_timeout() < Some(at(1_300)), "each gap is a quarter of the time before");
    rig.mpi.loaded("libmpi.so.40".into());
    rig.drain();
    assert_eq!(rig.news, [MpiNews::Loaded { library: "libmpi.so.40".into() }]);
    assert_eq!((rig.mpi.poll_timeout(), looks(&mut rig, 9_000)), (None, 0));
    let mut used = Rig::new(world(2));
    used.pass(at(1));
    used.rank(0);
    used.mpi.loaded("libmpi.so.40".into());
    used.drain();
    assert!(matches!(used.news.as_slice(), [MpiNews::Used { .. }]), "{:?}", used.news);
    assert_eq!(looks(&mut used, 1_000), 0);
}
