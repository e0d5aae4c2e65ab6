//! A MASTER_ADDR that the user gave.

use super::hosts::{OTHER, done, hello, met, ranks, starts, two};
use super::*;
use alloc::format;
use rlaunch_base::capped::Capped;
use rlaunch_protocol::master_store::{ForAgent, ForRank0, Holder};
use rlaunch_protocol::wire::to_root::Hello;

#[test]
fn an_address_of_the_users_is_used_as_it_is_and_no_agent_holds_the_store_at_anothers() {
    let holders = [
        (Holder::Rank0(ForRank0::Asked), true),
        (Holder::Rank0(ForRank0::Located), false),
        (Holder::Agent(ForAgent::Asked), false),
    ];
    for (holder, goes) in holders {
        let mut spec = two(false).with(|settings| settings.store.holder = holder);
        spec.apps[0].base.env = ["MASTER_ADDR=10.0.0.77"].iter().collect();
        spec.apps[0].base.pinned = ["MASTER_ADDR"].iter().collect();
        let mut s = Script::new(&spec);
        s.event(JobEvent::EdgeUp { node: OTHER }).event(JobEvent::EdgeUp { node: NODE });
        let ToRoot::Hello(first) = hello("10.0.0.1", "10.0.0.9", 20_000) else { unreachable!() };
        let own: core::net::IpAddr = "10.0.0.1".parse().unwrap();
        let addresses = Capped::chunks([own.into()]).remove(0);
        s.receive_from(NODE, &ToRoot::Hello(Hello { addresses, ..first })).receive_from(NODE, &ToRoot::Ready);
        s.receive_from(OTHER, &hello("10.0.0.2", "10.0.0.9", 0)).receive_from(OTHER, &ToRoot::Ready);
        let met = met(&s);
        let all = met
            .iter()
            .all(|(_, rendezvous)| rendezvous.addr.as_slice() == b"10.0.0.77" && rendezvous.port == Some(20_000));
        assert!(all && met.is_empty() != goes, "{met:?}");
        assert_eq!(ranks(&s).is_empty(), !goes);
        if !goes {
            done(&mut s, NODE, 0);
            done(&mut s, OTHER, 0);
            s.drained();
            let why = NodeRefusal::MasterAddr { addr: "10.0.0.77".into(), is_loopback: false, has: "10.0.0.1".into() };
            assert_eq!(s.cause(), Cause::Refused { node: NODE, why });
        }
    }
}

#[test]
fn a_given_address_that_does_not_lead_to_rank_0s_host_is_refused() {
    let cases = [
        ("localhost", true, true),
        ("127.0.0.1", true, true),
        ("a.localhost", true, true),
        ("two", true, false),
        ("10.0.0.2", true, false),
        ("one", false, false),
        ("10.0.0.1", false, false),
        ("a.example", false, false),
    ];
    for (addr, is_refused, is_loopback) in cases {
        let mut spec = two(false);
        spec.apps[0].base.env = [format!("MASTER_ADDR={addr}").as_str()].iter().collect();
        spec.apps[0].base.pinned = ["MASTER_ADDR"].iter().collect();
        let mut s = Script::new(&spec);
        s.event(JobEvent::EdgeUp { node: OTHER }).event(JobEvent::EdgeUp { node: NODE });
        assert!(starts(&s).iter().all(|(_, start)| start.addresses), "{addr}");
        let ToRoot::Hello(first) = hello("10.0.0.1", "10.0.0.9", 20_000) else { unreachable!() };
        let own: core::net::IpAddr = "10.0.0.1".parse().unwrap();
        let addresses = Capped::chunks([own.into()]).remove(0);
        s.receive_from(NODE, &ToRoot::Hello(Hello { addresses, ..first })).receive_from(NODE, &ToRoot::Ready);
        s.receive_from(OTHER, &hello("10.0.0.2", "10.0.0.9", 0)).receive_from(OTHER, &ToRoot::Ready);
        assert_eq!(ranks(&s).is_empty(), is_refused, "{addr}");
        if is_refused {
            done(&mut s, NODE, 0);
            done(&mut s, OTHER, 0);
            s.drained();
            let why = NodeRefusal::MasterAddr { addr: addr.into(), is_loopback, has: "10.0.0.1".into() };
            assert_eq!(s.cause(), Cause::Refused { node: NODE, why });
        }
    }
}
