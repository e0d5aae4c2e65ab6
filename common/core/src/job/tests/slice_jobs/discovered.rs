//! Slices that the command of `--discover` prints. Hosts can be missing in a list.

use super::*;
use crate::events::SliceNews;
use rlaunch_plan::discover::Ignored;

/// Two slices are known, and the hosts of three more are not.
fn discovering() -> Script {
    let mut spec = sliced(&[2, 4], retries());
    for node in &mut spec.placement.nodes[4..] {
        (node.host, node.chips) = (Host::named(""), None);
    }
    spec.slices.as_mut().unwrap().slots[2..].iter_mut().for_each(|slot| slot.name.clear());
    let mut s = Script::new(&spec);
    assert_eq!(s.asked, [0, 1, 2, 3].map(node));
    (0..2).for_each(|slice| slice_up(&mut s, slice));
    s.wait(61 * SECOND);
    assert_eq!(hosts(&s), [0, 1, 2, 3].map(|host| (host, false)));
    runs(&mut s);
    forget(&mut s);
    s
}

fn prints(s: &mut Script, list: &str) {
    s.event(JobEvent::Discovered(rlaunch_plan::discover::read(list.as_bytes()).unwrap()));
}

const PRINTED: &str = "n[0-1] slice=a id=0 devices=4\nn[2-3] slice=b id=0 devices=4\n";

#[test]
fn discovered_slices_get_slots_after_the_last_and_are_taken_at_the_next_start() {
    let mut s = discovering();
    prints(&mut s, PRINTED);
    assert_eq!((news(&s), s.asked.as_slice()), (vec![], &[][..]));
    let more = "x[4-5] slice=c id=0 devices=4\nx[6-7] slice=d id=0 devices=4\nx8 slice=e id=0 devices=4\n";
    prints(&mut s, &(PRINTED.to_owned() + more));
    let found = |slice: &str, nodes: [u32; 2]| {
        JobNews::Slices(SliceNews::Found {
            slice: slice.into(),
            nodes: nodes.map(node).to_vec(),
            hosts: nodes.map(|n| alloc::format!("x{n}").as_str().into()).to_vec(),
        })
    };
    assert_eq!(news(&s), [found("c", [4, 5]), found("d", [6, 7])], "a host of e is missing");
    assert_eq!(s.asked, [4, 5, 6, 7].map(node));
    let names: Vec<String> = s.known.iter().map(|(_, host)| host.name.clone()).collect();
    assert_eq!(names, ["x4", "x5", "x6", "x7"]);
    (2..4).for_each(|slice| slice_up(&mut s, slice));
    forget(&mut s);
    lose(&mut s, 2);
    [0, 1, 3].into_iter().for_each(|host| cleared(&mut s, host));
    s.wait(1500);
    assert_eq!(slices(&s), [("ac".into(), 1)]);
}

#[test]
fn host_that_is_not_printed_any_more_is_drained_until_it_is_printed_again() {
    let mut s = discovering();
    let more = "x[4-5] slice=c id=0 devices=4\n";
    prints(&mut s, &(PRINTED.to_owned() + more));
    slice_up(&mut s, 2);
    forget(&mut s);
    prints(&mut s, &(PRINTED.lines().next().unwrap().to_owned() + "\nn2 slice=b id=0 devices=4\n" + more));
    let warned = matches!(
        news(&s)[..],
        [JobNews::HostWarned { source: WarningSource::Discovery, response: Response::Ends { .. }, .. }]
    );
    assert!(warned, "{:?}", news(&s));
    assert_eq!(clears(&s), [0, 1, 2, 3]);
    (0..4).for_each(|host| cleared(&mut s, host));
    s.wait(1500);
    assert_eq!(slices(&s), [("ac".into(), 0)]);
    runs(&mut s);
    forget(&mut s);
    // The host is lost, and cannot be reached again.
    lose(&mut s, 3);
    s.wait(100 * SECOND);
    assert_eq!(s.asked, []);
    forget(&mut s);
    prints(&mut s, &(PRINTED.to_owned() + more));
    assert_eq!(news(&s), [JobNews::Slices(SliceNews::HostBack { node: node(3) })]);
    s.wait(2 * SECOND);
    assert_eq!(s.asked, [node(3)]);
    // A slice that differs is reported once.
    forget(&mut s);
    for _ in 0..3 {
        prints(&mut s, &(PRINTED.to_owned() + more + "y[0-2] slice=f id=0\n"));
    }
    let ignored = JobNews::Slices(SliceNews::Ignored { slice: "f".into(), why: Ignored::Hosts { has: 3, of: 2 } });
    assert_eq!(news(&s), [ignored]);
}

#[test]
fn host_with_a_warning_of_its_own_stays_out_when_it_is_printed_again() {
    let mut s = discovering();
    let all = PRINTED.to_owned() + "x[4-5] slice=c id=0 devices=4\n";
    prints(&mut s, &all);
    slice_up(&mut s, 2);
    prints(&mut s, &all.replace("x[4-5]", "x4"));
    s.receive_from(node(5), &ToRoot::Warned(WarningSource::Preempted));
    forget(&mut s);
    prints(&mut s, &all);
    lose(&mut s, 2);
    [0, 1, 3].into_iter().for_each(|host| cleared(&mut s, host));
    s.wait(1500);
    assert_eq!(slices(&s), []);
}
