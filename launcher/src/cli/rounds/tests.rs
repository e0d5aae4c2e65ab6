//! Options about rounds, as they come to the job.

use super::super::tests::{at_site, golden, refused, run_with};
use super::*;
use rlaunch_base::id::Rank;

fn rounds(line: &str, variables: &[(&str, &str)]) -> (u32, Rounds) {
    let run = run_with(line, variables);
    let asked = at_site(0, |site| {
        let placement = run.place(site)?;
        Ok::<_, CliError>((u32::try_from(placement.ranks.len()).unwrap(), run.rounds(&placement, &[b"RACK=r1"], site)?))
    });
    asked.unwrap_or_else(|error| panic!("{line}: {}", error.render()))
}

fn policy(line: &str) -> String {
    rounds(line, &[]).1.policy.map(|policy| policy.to_string()).unwrap_or_default()
}

#[test]
fn policy_is_read_from_command_line_or_environment() {
    assert_eq!(rounds("-n 4 ./train", &[]), (4, Rounds::default()));
    assert_eq!(policy("-n 4 --assign max=2,shift ./train"), "max=2,shift");
    assert_eq!(policy("-n 4 --assign shift ./train"), "all,shift");
    let variable = [("RLAUNCH_ASSIGN", "divisible=2,fill")];
    assert_eq!(rounds("-n 4 ./train", &variable).1.policy.unwrap().to_string(), "divisible=2,fill");
    assert_eq!(
        policy("-n 4 --assign all,shift,group(env:RACK)>=2 ./train"),
        "all,shift,group(env:RACK)>=2",
        "all have it"
    );
}

#[test]
fn spares_are_ranks_more_than_work() {
    let (ranks, asked) = rounds("-n 8 --spares 2 --min-active 8 ./train", &[]);
    assert_eq!((ranks, asked.policy.unwrap().to_string()), (10, "max=8,shift".into()));
    assert_eq!(asked.asked, "--spares 2".into());
    assert_eq!(rounds("-n 8 --spares 2 --respawn ./train", &[]).1.asked, "--spares 2 and --respawn".into());
    let (ranks, asked) = rounds("-H a:4,b:4 --spares 2 ./train", &[]);
    assert_eq!((ranks, asked.policy.unwrap().to_string()), (8, "max=6,shift".into()), "of the slots");
    assert_eq!(rounds("-n 8 --spares 0 --assign all,shift ./train", &[]).0, 8, "none are none");
}

#[test]
fn the_ranks_of_spare_hosts_wait() {
    for line in
        ["-H a:4,b:4,c:4 --spare-hosts 1", "-n 8 -H a:4,b:4,c:4 --spare-hosts 1", "-H a,b,c --ppn 4 --spare-hosts 1"]
    {
        let (ranks, asked) = rounds(&format!("{line} ./train"), &[]);
        let mut world = World::new(ranks);
        let hosts = |initial: u32| ["a", "b", "c"][initial as usize / 4].to_owned();
        let keys = ByHost(hosts);
        let policy = asked.policy.unwrap();
        rank_assign::assign(&policy, &mut world, &[], &keys).unwrap();
        assert_eq!((ranks, world.size(), world.active_size()), (12, 12, Some(8)), "{line}");
        // The host in the middle: its ranks' places are those of the spare one.
        let lost: Vec<Rank> = (4..8).map(Rank::new).collect();
        rank_assign::assign(&policy, &mut world, &lost, &keys).unwrap();
        let active: Vec<Option<u32>> = world.members().iter().map(|member| member.active_rank.map(Rank::get)).collect();
        // The last of the waiting ranks replaces the first lost rank.
        assert_eq!(active[8..], [7, 6, 5, 4].map(Some), "{line}");
    }
}

/// Three slices of two hosts with a rank each: the last host of each is spare.
#[test]
fn spare_host_replaces_only_a_host_of_the_same_slice() {
    struct Placed;
    impl rank_assign::Keys for Placed {
        fn value(&self, source: &rank_assign::Source, who: rank_assign::Numbers) -> Option<Cow<'_, str>> {
            let initial = who.initial.get();
            match source {
                rank_assign::Source::Host => Some(initial.to_string().into()),
                rank_assign::Source::Slice => Some((initial / 2).to_string().into()),
                _ => None,
            }
        }
    }
    let active = |lost: &[u32]| {
        let (ranks, asked) = rounds("-f slices --spare-hosts 1 -n 3 ./train", &[]);
        let (policy, mut world) = (asked.policy.unwrap(), World::new(ranks));
        rank_assign::assign(&policy, &mut world, &[], &Placed).unwrap();
        let lost: Vec<Rank> = lost.iter().copied().map(Rank::new).collect();
        rank_assign::assign(&policy, &mut world, &lost, &Placed).unwrap();
        world.members().iter().map(|member| member.active_rank.map(Rank::get)).collect::<Vec<_>>()
    };
    assert_eq!(active(&[]), [Some(0), None, Some(1), None, Some(2), None]);
    assert_eq!(active(&[2]), [Some(0), None, None, Some(1), Some(2), None]);
    assert_eq!(active(&[2, 3]), [Some(0), None, None, None, Some(1), None], "no host of another slice");
}

/// Ranks by host.
struct ByHost(fn(u32) -> String);

impl rank_assign::Keys for ByHost {
    fn value(&self, source: &rank_assign::Source, who: rank_assign::Numbers) -> Option<Cow<'_, str>> {
        (*source == rank_assign::Source::Host).then(|| (self.0)(who.initial.get()).into())
    }
}

#[test]
fn limits_of_rounds_equal_the_given_options() {
    let line = "-n 8 --max-rounds 3 --min-world 4 --min-active 2 --max-rank-faults 1 --fault-window 20ms --yield-within 1m ./train";
    let asked = rounds(line, &[]).1;
    let Limits { max_rounds, min_world, min_active, max_rank_faults } = asked.limits;
    assert_eq!((max_rounds, min_world, min_active, max_rank_faults), (Some(3), Some(4), Some(2), Some(1)));
    assert_eq!((asked.fault_window, asked.yield_within), (Span::from_millis(20), Span::from_secs(60)));
}

#[test]
fn respawn_timeout_is_five_minutes_by_default() {
    let asked = |line: &str| rounds(line, &[]).1;
    let plain = asked("--respawn ./train");
    assert_eq!((plain.respawn, plain.respawn_timeout), (true, Span::from_secs(300)));
    let other = asked("--respawn --respawn-timeout 2s ./train");
    assert_eq!((other.respawn, other.respawn_timeout), (true, Span::from_secs(2)));
    assert!(!asked("./train").respawn);
}

#[test]
fn variable_for_a_time_is_accepted_by_jobs_that_do_not_need_the_time() {
    for name in ["RLAUNCH_RESPAWN_TIMEOUT", "RLAUNCH_FAULT_WINDOW", "RLAUNCH_YIELD_WITHIN"] {
        for line in ["./train", "./a : ./b"] {
            assert_eq!(refused(line, &[(name, "9s")]), None, "{name} {line}");
        }
    }
    assert!(refused("./a : ./b", &[("RLAUNCH_SPARES", "1")]).is_some());
}

/// Each is refused.
const REFUSED: &[&str] = &[
    "--min-world 1 -n 1 ./a : -n 1 ./b",
    "--spare-hosts 2 -H a:2,b:2 ./train",
    "--spare-hosts 1 -n 2 ./train",
    "--spare-hosts 2 -f slices ./train",
    "--spare-hosts 1 -n 5 -f slices ./train",
    "--spare-hosts 1 -n 5 -H a:4,b:4 ./train",
    "--spare-hosts 1 --spares 1 -H a:4,b:4 ./train",
    "--spare-hosts 1 --assign all,shift -H a:4,b:4 ./train",
    "--spare-hosts 1 --max-rounds 1 -H a:4,b:4 ./train",
    "--assign ./train",
    "--assign shift,max=2 ./train",
    "--assign max=two,shift ./train",
    "--assign @gone ./train",
    "--assign @hosts ./train",
    "--assign group(host)>=3,shift,all -n 2 ./train",
    "--assign all,shift,group(host)>=3 -n 2 ./train",
    "--min-active 4 --assign max=2,shift -n 4 ./train",
    "--min-active 5 -n 4 ./train",
    "--min-active 3 --spares 2 -n 2 ./train",
    "--min-world 5 -n 4 ./train",
    "--min-world 0 ./train",
    "--max-rounds few ./train",
    "--spares 1 --assign all,shift ./train",
    "--spares 1 --max-rounds 1 ./train",
    "--max-rounds 0 ./train",
    "--assign all,shift,group(rack)>=2 ./train",
    "--assign all,shift,group(env:NONE)>=2 ./train",
    "--spares 2 -H a:2 ./train",
    "--spares 4194304 -n 4 ./train",
    "--fault-window soon ./train",
    "--respawn=later ./train",
    "--respawn-timeout 1m ./train",
    "--respawn --respawn-timeout 10ms ./train",
    "--respawn --max-rounds 1 ./train",
    "--respawn ./a : ./b",
    "--max-rounds 3 ./a : ./b",
    "./a : --max-rounds 3 ./b",
];

#[test]
fn impossible_job_is_refused_before_any_start() {
    let mut text = String::new();
    for line in REFUSED {
        let message = refused(line, &[]).unwrap_or_else(|| panic!("{line} is accepted"));
        text.push_str(&format!("$ rlaunch {line}\n{message}\n"));
    }
    golden("errors-rounds", &text);
}
