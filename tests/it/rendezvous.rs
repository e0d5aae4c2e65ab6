//! A MASTER_ADDR and a MASTER_PORT that the user gave: where ranks could not meet, or would meet those of another job, nothing starts.

use crate::bed::Bed;
use crate::case::Done;

/// A job on hosts of the testbed, from its login host: `$RL` with these words after the variables.
fn on_login(bed: &Bed, vars: &str, words: &str) -> crate::plan::Plan {
    let script = format!("{vars} exec \"$RL\" --ssh-fast {words} sh -c 'echo $RANK $MASTER_ADDR'");
    bed.plan("tester", "login", ["sh", "-c", &script]).with_events()
}

fn is_refused(done: &Done) {
    assert_eq!((done.out(), done.named("rank.started").count()), (String::new(), 0), "{}", done.err());
}

#[test]
fn a_master_addr_that_does_not_lead_to_rank_0s_host_is_refused_before_ranks_start() {
    let Some(bed) = Bed::up(2) else { return };
    let two = "-H node0,node1";
    for (vars, words) in [
        ("MASTER_ADDR=localhost MASTER_PORT=29500", ""),
        ("", "--master-addr localhost"),
        ("", "-x MASTER_ADDR=localhost"),
        ("", "-x MASTER_ADDR=localhost --master-store rank0"),
    ] {
        let done = on_login(&bed, vars, &format!("{two} {words}")).start().code(125);
        is_refused(&done);
        done.says(
            "error: MASTER_ADDR=localhost is a different machine on each host; rank 0 runs on node0 (10.77.1.1)\n  \
             try     leave MASTER_ADDR out",
        );
        assert!(!done.err().contains("--min-hosts"), "{}", done.err());
    }
    for addr in ["127.0.1.1", "::1"] {
        is_refused(&on_login(&bed, "", &format!("{two} -x MASTER_ADDR={addr}")).start().code(125));
    }
    for addr in ["10.77.1.2", "node1", "192.0.2.9"] {
        let done = on_login(&bed, "", &format!("{two} -x MASTER_ADDR={addr}")).start().code(125);
        is_refused(&done);
        done.says(&format!("error: MASTER_ADDR={addr} is no address of node0 (10.77.1.1), where rank 0 runs\n"));
        done.says("--master-store rank0, if that address is translated (NAT)");
    }
    let goes = |words: &str, lines: &[&str]| {
        assert_eq!(on_login(&bed, "", words).start().code(0).sorted(), lines, "{words}");
    };
    goes("-H node0,node1 --master-addr 10.77.1.1", &["0 10.77.1.1", "1 10.77.1.1"]);
    goes("-H node0,node1 --master-addr node0", &["0 node0", "1 node0"]);
    goes("-H node0,node1 --master-addr 192.0.2.9 --master-store rank0", &["0 192.0.2.9", "1 192.0.2.9"]);
    goes("-H node0 -n 1 --master-addr localhost", &["0 localhost"]);
    bed.clean(2);
    bed.down();
}
