//! Messages about other hosts.

use super::{error, run, run_with};
use rlaunch_protocol::travel::Resource;

#[test]
fn only_named_limits_travel() {
    assert_eq!(run("-n 1 a").reach.limits, [Resource::Core, Resource::Stack]);
    assert_eq!(run("--propagate-limits none a").reach.limits, []);
    assert_eq!(run("--propagate-limits ALL a").reach.limits, Resource::ALL);
    assert_eq!(run("--propagate-limits=NOFILE,core,nofile a").reach.limits, [Resource::Nofile, Resource::Core]);
    assert_eq!(run_with("a", &[("RLAUNCH_PROPAGATE_LIMITS", "stack")]).reach.limits, [Resource::Stack]);
    for line in ["--propagate-limits core, a", "--propagate-limits files a", "--propagate-limits '' a"] {
        assert!(error(line).contains("takes all, none, or a list of as, core, cpu"), "{line}");
    }
    assert!(error("--propagate-limits memlock a").contains("leave it out"));
}

#[test]
fn an_interface_has_a_name() {
    assert_eq!(run("-n 1 a").settings.hosts.interface, "".into());
    assert_eq!(run("--interface ib0.8001 a").settings.hosts.interface, "ib0.8001".into());
    for line in ["--interface '' a", "--interface /dev/eth0 a", "--interface averyverylongname a"] {
        assert!(error(line).contains("takes the name of a network interface"), "{line}");
    }
}
