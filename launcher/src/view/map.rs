//! The placement of ranks: `rlaunch map`, for people and for programs.

use super::phrases;
use rlaunch_base::id::{AppIndex, NodeId, Rank};
use rlaunch_base::os_bytes::{OsBytes, Visible};
use rlaunch_base::time::Span;
use rlaunch_plan::allocation::Allocation;
use rlaunch_plan::bootstrap::CarrierKind;
use rlaunch_plan::hostlist::fold_in_order;
use rlaunch_plan::place::{Node, Note, Placement};
use rlaunch_plan::slices::{SlicePlan, Slot};
use rlaunch_protocol::master_store::Holder;
use rlaunch_protocol::spec::JobSpec;
use std::fmt::Write as _;

/// Origin of the hosts of a job: the allocation, and the command that starts the agents there.
pub(crate) type Source<'a> = Option<(&'a Allocation, CarrierKind)>;

/// The settings of a job that no placement shows.
#[derive(Debug, Default)]
pub(crate) struct Settings<'a> {
    /// The options about restarts.
    pub(crate) restarts: Vec<String>,
    /// The options of other launchers that change nothing.
    pub(crate) same: &'a [OsBytes],
}

impl Settings<'_> {
    fn lines(&self) -> String {
        let mut text = String::new();
        if !self.restarts.is_empty() {
            // Writing to a String cannot fail.
            writeln!(text, "restarts: {}", self.restarts.join(" ")).unwrap_or_default();
        }
        if !self.same.is_empty() {
            let same: Vec<String> = self.same.iter().map(ToString::to_string).collect();
            writeln!(text, "without effect, as rlaunch does this anyway: {}", same.join(", ")).unwrap_or_default();
        }
        text
    }
}

/// Hosts with their ranks, the programs, and the settings. Without a program it is not known which process holds the store.
pub(crate) fn text(
    placement: &Placement,
    programs: &[&[OsBytes]],
    store: Holder,
    source: Source<'_>,
    settings: &Settings<'_>,
) -> String {
    let (ranks, hosts) = (placement.ranks.len() as u64, placement.used().count() as u64);
    let mut text = format!("{} on {}\n", phrases::count(ranks, "rank"), phrases::count(hosts, "host"));
    let lines = lines(placement);
    // No screen is wider, and a format takes no more than 65,535.
    let width = lines.iter().map(|(names, _)| names.chars().count()).max().unwrap_or(0).min(200);
    for (names, ranks) in lines {
        // Writing to a String cannot fail.
        writeln!(text, "  {names:width$}  {ranks}").unwrap_or_default();
    }
    if programs.len() > 1 && programs.iter().any(|argv| !argv.is_empty()) {
        let of: Vec<String> = (0..)
            .map(AppIndex::new)
            .take(programs.len())
            .map(|app| named(placement, &of_app(placement, app)))
            .collect();
        let width = of.iter().map(String::len).max().unwrap_or(0).min(200);
        for (argv, ranks) in programs.iter().zip(&of) {
            writeln!(text, "  {ranks:width$}  {}", phrases::command(argv.iter().map(OsBytes::as_slice)))
                .unwrap_or_default();
        }
    }
    let is_bare = programs == [&[]];
    if let ([argv], false) = (programs, is_bare) {
        writeln!(text, "command: {}", phrases::command(argv.iter().map(OsBytes::as_slice))).unwrap_or_default();
    }
    text.push_str(&settings.lines());
    if !is_bare && (placement.ranks.len() > 1 || store.is_agent()) {
        writeln!(text, "{}", self::store(store)).unwrap_or_default();
    }
    if let Some((allocation, carrier)) = source {
        writeln!(text, "hosts of {}, whose agents {carrier} starts", allocation.title()).unwrap_or_default();
    }
    text
}

/// The slices of a job, a line each: those that the largest size takes, then spare ones.
pub(crate) fn slices(placement: &Placement, plan: &SlicePlan) -> String {
    let (size, own) = (plan.sizes.largest(), placement.by_node());
    let spares = (plan.slots.len() as u64).saturating_sub(size.into());
    let hosts = plan.slots.first().map_or(0, |slot| slot.hosts.len() as u64);
    let sizes: Vec<String> = plan.sizes.as_slice().iter().map(u32::to_string).collect();
    let mut text = format!(
        "{} of {} ({}), {spares} spare\n",
        phrases::count(size.into(), "slice"),
        phrases::count(hosts, "host"),
        sizes.join(" or ")
    );
    let width = plan.slots.iter().map(|slot| slot.name.chars().count()).max().unwrap_or(0).min(200);
    for slot in plan.slots.iter().filter(|slot| !slot.name.is_empty()) {
        let names = slot.hosts.iter().map(|node| name(placement, *node));
        let ranks: Vec<Rank> = slot.hosts.iter().filter_map(|node| own.get(node.index())).flatten().copied().collect();
        let ranks = if ranks.is_empty() { "spare".to_owned() } else { phrases::ranks(&ranks) };
        writeln!(text, "  {:width$}  {}  {ranks}", slot.name, fold_in_order(names)).unwrap_or_default();
    }
    text
}

/// The same for programs, as the member `slices` of the line.
fn slices_json(placement: &Placement, plan: &SlicePlan) -> String {
    let slot = |(slot, n): (&Slot, u32)| {
        let hosts: Vec<&str> = slot.hosts.iter().map(|node| name(placement, *node)).collect();
        let (label, hosts) = (serde_json::Value::from(slot.name.as_str()), serde_json::Value::from(hosts));
        format!("{{\"slot\":{n},\"slice\":{label},\"hosts\":{hosts},\"spare\":{}}}", n >= plan.sizes.largest())
    };
    let known = plan.slots.iter().filter(|slot| !slot.name.is_empty());
    let all: Vec<String> = known.zip(0..).map(slot).collect();
    format!(",\"slices\":[{}]", all.join(","))
}

/// Fewer equal hosts than this have a line each.
const FOLDED: usize = 3;

/// How ranks follow each other from host to host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Each host has the next ranks.
    HostByHost,
    /// Each rank of a host is followed by one of the next host.
    InTurn,
}

/// The names and the ranks of each host, or of equal hosts that follow each other.
fn lines(placement: &Placement) -> Vec<(String, String)> {
    let nodes = &placement.nodes;
    let names: Vec<String> = nodes.iter().map(|node| node.host.to_string()).collect();
    let mut own: Vec<Vec<Rank>> = vec![Vec::new(); nodes.len()];
    for (rank, placed) in placement.ranks.with_ranks() {
        own.get_mut(placed.node.index()).into_iter().for_each(|ranks| ranks.push(rank));
    }
    let mut lines = Vec::new();
    let mut at = 0;
    while let (Some(node), Some(rest)) = (nodes.get(at), own.get(at..)) {
        let most = alike(nodes, at);
        let (blocks, turns) = (equal(rest, Order::HostByHost).min(most), equal(rest, Order::InTurn).min(most));
        let count = if blocks.max(turns) < FOLDED { 1 } else { blocks.max(turns) };
        let mut ranks: Vec<Rank> = rest.iter().take(count).flatten().copied().collect();
        ranks.sort_unstable();
        let mut notes: Vec<String> = Vec::new();
        // Ranks that share a slot (`--share`) count once.
        let is_crowded = node.slots != u32::MAX && node.ranks > node.slots;
        let slots =
            if is_crowded { placement.slots_used(NodeId::new(u32::try_from(at).unwrap_or(u32::MAX))) } else { 0 };
        if is_crowded && slots > node.slots {
            notes.push(format!("{} on {}", slots, phrases::count(node.slots.into(), "slot")));
        } else if count > 1 {
            notes.push(node.ranks.to_string());
        }
        notes.last_mut().filter(|_| count > 1).into_iter().for_each(|note| note.push_str(" each"));
        notes.extend((turns > blocks && count > 1).then(|| "in turn".to_owned()));
        let notes = if notes.is_empty() { String::new() } else { format!("  ({})", notes.join(", ")) };
        let own_names = names.iter().skip(at).take(count).map(String::as_str);
        // A host of a spare slice has no ranks. Neither has a host whose slots are for workers that the lead starts later.
        let is_free = ranks.is_empty() && !node.is_unknown() && node.chips.is_none();
        let words = match is_free {
            true => format!("no ranks yet, {}", phrases::count(node.slots.into(), "slot")),
            false => named(placement, &ranks) + &notes,
        };
        lines.extend((is_free || !ranks.is_empty()).then(|| (fold_in_order(own_names), words)));
        at += count;
    }
    lines
}

/// How many hosts from the first one on have as many ranks as it, in this order.
fn equal(hosts: &[Vec<Rank>], order: Order) -> usize {
    let next = |of: &[Rank], after: &[Rank]| match (order, of.last(), after) {
        (_, None, _) | (_, _, []) => false,
        (Order::HostByHost, Some(last), [first, ..]) => {
            of.len() == after.len() && is_run(of) && is_run(after) && first.get() == last.get() + 1
        }
        (Order::InTurn, ..) => of.len() == after.len() && of.iter().zip(after).all(|(a, b)| b.get() == a.get() + 1),
    };
    1 + hosts.windows(2).take_while(|pair| matches!(pair, [of, after] if next(of, after))).count()
}

/// How many hosts from this one on have as many ranks and slots.
fn alike(nodes: &[Node], at: usize) -> usize {
    let Some((first, more)) = nodes.get(at..).and_then(<[Node]>::split_first) else { return 1 };
    1 + more.iter().take_while(|node| (node.slots, node.ranks) == (first.slots, first.ranks)).count()
}

fn is_run(ranks: &[Rank]) -> bool {
    ranks.windows(2).all(|pair| matches!(pair, [a, b] if b.get() == a.get() + 1))
}

/// The holder of the store at MASTER_PORT, and the reason.
pub(crate) fn store(store: Holder) -> String {
    let who = match store {
        Holder::Agent(_) => "held by rlaunch at MASTER_PORT",
        Holder::Rank0(_) => "left to rank 0",
    };
    format!("TCPStore: {who} ({})", store.reason())
}

/// Which process was expected to hold the store, for a rank that could not connect to it.
pub(crate) fn expected(store: Holder) -> String {
    let holder = if store.is_agent() { "rlaunch" } else { "rank 0" };
    format!("{holder} was expected to hold the TCPStore at MASTER_PORT ({})", store.reason())
}

/// The place of the log files: shown if the user has not named the directory, or on request.
pub(crate) fn logs(job: &JobSpec, always: bool) -> Option<String> {
    let logs = job.apps.iter().find_map(|app| app.base.logs.as_ref()).filter(|logs| logs.private || always)?;
    let stem = OsBytes::new([logs.dir.as_deref()?, b"/", logs.run.as_slice()].concat());
    Some(format!("rlaunch: log files: {stem}_HOST/attempt_0/LOCAL_RANK\n"))
}

/// Local ranks that an option names and no host has: no other message would show that they do not exist.
pub(crate) fn beyond(job: &JobSpec) -> Option<String> {
    let logs = job.apps.iter().find_map(|app| app.base.logs.as_ref())?;
    let most = job.placement.ranks.iter().map(|placed| placed.local_rank.get()).max()? + 1;
    let named: Vec<String> =
        logs.beyond(most).map(|(option, rank)| format!("{option} names local rank {rank}")).collect();
    let has = if most == 1 { "local rank 0 only".into() } else { format!("local ranks 0-{}", most - 1) };
    (!named.is_empty()).then(|| format!("rlaunch: {}: there are {has}\n", named.join(", ")))
}

/// Ranks, by their groups where the job has some.
fn named(placement: &Placement, ranks: &[Rank]) -> String {
    if !placement.worlds.has_groups() {
        return phrases::ranks(ranks);
    }
    let group = |rank: &Rank| (placement.worlds.group(placement.world_of(*rank)), placement.in_world(*rank));
    phrases::in_groups(&ranks.iter().map(group).collect::<Vec<_>>())
}

fn of_app(placement: &Placement, app: AppIndex) -> Vec<Rank> {
    placement.ranks.with_ranks().filter(|(_, placed)| placed.app == app).map(|(rank, _)| rank).collect()
}

/// A line: `{"ranks":[{"rank":0,"host":"node0","local_rank":0,"node_index":0,"app":0}],"store":{"by":"rank0","why":"alone"}}`.
/// `apps` has the words of each program. `hosts` has the name, the slots and the ranks of each host; `slices` those of `--slices`; in an allocation `allocation` has the scheduler and its name for the job.
pub(crate) fn json(
    placement: &Placement,
    programs: &[&[OsBytes]],
    store: Holder,
    source: Source<'_>,
    slices: Option<&SlicePlan>,
) -> String {
    let mut text = String::from("{\"ranks\":[");
    for (rank, placed) in placement.ranks.with_ranks() {
        let host = name(placement, placed.node);
        let comma = if rank == Rank::new(0) { "" } else { "," };
        write!(
            text,
            "{comma}{{\"rank\":{rank},\"host\":{},\"local_rank\":{},\"node_index\":{},\"app\":{}",
            serde_json::Value::from(host),
            placed.local_rank,
            placed.node,
            placed.app
        )
        .unwrap_or_default();
        group_fields(&mut text, placement, rank);
        text.push('}');
    }
    write!(text, "],\"store\":{{\"by\":\"{}\",\"why\":\"{}\"}},\"hosts\":[", store.word(), store.code())
        .unwrap_or_default();
    for (at, node) in placement.nodes.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let (host, slots) = (serde_json::Value::from(node.host.to_string()), node.slots);
        // No number: it is not known how many processors this machine has.
        let slots = if slots == u32::MAX { "null".to_owned() } else { slots.to_string() };
        write!(text, "{comma}{{\"host\":{host},\"slots\":{slots},\"ranks\":{}}}", node.ranks).unwrap_or_default();
    }
    text.push(']');
    let argv =
        |argv: &&[OsBytes]| argv.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>();
    let apps: Vec<_> = programs.iter().map(|program| serde_json::json!({ "argv": argv(program) })).collect();
    write!(text, ",\"apps\":{}", serde_json::Value::from(apps)).unwrap_or_default();
    text.extend(slices.map(|plan| slices_json(placement, plan)));
    if let Some((allocation, carrier)) = source {
        let (scheduler, job) = (allocation.scheduler, serde_json::Value::from(allocation.job.as_str()));
        write!(text, ",\"allocation\":{{\"scheduler\":\"{scheduler}\",\"job\":{job},\"launcher\":\"{carrier}\"}}")
            .unwrap_or_default();
    }
    text.push_str("}\n");
    text
}

/// The line for programs, with the CPUs of the ranks as its last member.
pub(crate) fn with_bindings(line: String, bindings: Option<serde_json::Value>) -> String {
    match (line.strip_suffix("}\n"), bindings) {
        (Some(open), Some(bindings)) => format!("{open},\"bindings\":{bindings}}}\n"),
        _ => line,
    }
}

/// Group and number of a rank, where the job has groups.
fn group_fields(text: &mut String, placement: &Placement, rank: Rank) {
    let group = placement.worlds.group(placement.world_of(rank));
    if !group.is_empty() {
        let (group, number) = (serde_json::Value::from(String::from_utf8_lossy(group)), placement.in_world(rank));
        write!(text, ",\"group\":{group},\"group_rank\":{number}").unwrap_or_default();
    }
}

fn name(placement: &Placement, node: NodeId) -> &str {
    placement.nodes.get(node.index()).map_or("", |node| node.host.name.as_str())
}

/// Hosts and their ranks, as launchers of one allocation read them of each other.
pub(crate) fn slots_of(placement: &Placement) -> String {
    placement.nodes.iter().map(|node| format!("{} {}\n", node.host.name, node.ranks)).collect()
}

/// Ranks for each processor that are no news: a test on a small machine has as many.
const USUAL: u32 = 4;

/// Whether a note is news.
pub(crate) const fn is_news(note: &Note) -> bool {
    match note {
        Note::Oversubscribed { ranks, slots, processors: true, .. } => *ranks > slots.saturating_mul(USUAL),
        Note::Unused(_) => false,
        Note::Oversubscribed { processors: false, .. }
        | Note::OneRank(_)
        | Note::OnePerHost { .. }
        | Note::NoHosts { .. }
        | Note::Undiscovered(_)
        | Note::PassedOn(..)
        | Note::Beside { .. }
        | Note::NoTurn { .. }
        | Note::Unread { .. }
        | Note::FewerSlots { .. } => true,
    }
}

/// A note, as a line.
pub(crate) fn note(note: &Note, programs: usize) -> String {
    match note {
        Note::OneRank(app) if programs > 1 => {
            format!("rlaunch: no -n given for program {}: starting 1 rank of it\n", u64::from(app.get()) + 1)
        }
        Note::Unused(hosts) => format!("rlaunch: no ranks on {}\n", phrases::count((*hosts).into(), "host")),
        Note::OneRank(_) => "rlaunch: no -n given: starting 1 rank\n".into(),
        Note::PassedOn(_, n) => format!(
            "rlaunch: -n {n} stands after the program, which gets it as an argument\n  try     rlaunch -n {n} PROGRAM, if it is the number of ranks\n"
        ),
        Note::OnePerHost { job, hosts, tasks } => {
            let hosts = if *hosts == 1 { "its host".to_owned() } else { format!("each of its {hosts} hosts") };
            if let Some(tasks) = tasks {
                return format!(
                    "rlaunch: SLURM_NTASKS={tasks} is set without SLURM_TASKS_PER_NODE: starting 1 rank on {hosts} (-n {tasks} for as many)\n"
                );
            }
            format!("rlaunch: {job} names no number of tasks: starting 1 rank on {hosts} (-n N for another number)\n")
        }
        Note::NoHosts { set, lacks } => {
            let [set, lacks] = [set, lacks].map(|text| Visible(text.as_bytes()));
            format!("rlaunch: {set} is set without {lacks}: all ranks run on this host (--launcher local: no note)\n")
        }
        Note::Undiscovered(why) => {
            format!(
                "rlaunch: --discover gives no list of hosts, so the named hosts are used: {}\n",
                Visible(why.as_bytes())
            )
        }
        Note::Beside { taken, job } => {
            let slots = phrases::count((*taken).into(), "slot");
            format!("rlaunch: other jobs of rlaunch have {slots} of {job}; the ranks of this job share them\n")
        }
        Note::NoTurn { job } => {
            format!("rlaunch: another rlaunch is placing its ranks in {job}; ranks of both may share slots\n")
        }
        Note::Unread { file, settings } => format!(
            "rlaunch: {settings} of {} has no effect: only accelerate launch reads that file\n  try     Accelerator(...) in the script, or -x with the variables that accelerate launch sets\n",
            Visible(file.as_bytes())
        ),
        Note::FewerSlots { host, named, given, job } => {
            let given = phrases::count((*given).into(), "slot");
            format!("rlaunch: {job} gives {given} of {host}, and not the {named} that are named\n")
        }
        Note::Oversubscribed { ranks, slots, processors: true, .. } => {
            format!("rlaunch: {ranks} ranks share {}\n", phrases::count((*slots).into(), "processor"))
        }
        Note::Oversubscribed { host, ranks, slots, processors: false, others } => {
            let slots = phrases::count((*slots).into(), "slot");
            format!("rlaunch: {ranks} ranks share {slots} of {host}{}\n", and_others(*others))
        }
    }
}

/// The risk of a lease that is as short as this, with so many hosts.
pub(crate) fn short_lease(lease: Span, hosts: usize) -> Option<String> {
    (lease < Span::from_secs(5) && hosts > 16).then(|| {
        format!(
            "rlaunch: --lease {lease} on {hosts} hosts: a host that pauses for so long ends the job\n  try     --lease 5s, or longer\n"
        )
    })
}

fn and_others(others: u32) -> String {
    match others {
        0 => String::new(),
        1 => "; 1 other host has more ranks than slots, too".to_owned(),
        n => format!("; {n} other hosts have more ranks than slots, too"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_plan::hostlist;
    use rlaunch_plan::hostlist::Chips;
    use rlaunch_plan::place::{AppRequest, By, Here, Request, place};
    use rlaunch_plan::slices::{Grow, Sizes, slots};
    use rlaunch_protocol::master_store::{ForAgent, ForRank0};

    const LEFT: Holder = Holder::Rank0(ForRank0::NotPython);

    fn placed(apps: &[(u32, &str)]) -> Placement {
        let entries = |list: &str| match list {
            "" => Vec::new(),
            list => hostlist::lists([("-H", list.as_bytes())], &mut hostlist::Alone).unwrap(),
        };
        let apps = apps
            .iter()
            .map(|(n, list)| AppRequest { n: Some(*n), hosts: entries(list), ..AppRequest::default() })
            .collect();
        let here = Here { name: "me".into(), cpus: 2 };
        place(&Request {
            apps,
            here,
            map_by: By::Slot,
            rank_by: None,
            layout: rlaunch_plan::place::Layout::default(),
            nnodes: None,
            min_hosts: None,
            strict: false,
            keeps_hosts: false,
            carries_all: false,
        })
        .unwrap()
    }

    #[test]
    fn slices_have_a_line_each_and_the_rest_is_spare() {
        let mut all = placed(&[(1, "n0"), (1, "n1"), (1, "n2"), (1, "n3"), (1, "n4"), (1, "n5")]);
        for (node, (slice, id)) in
            all.nodes.iter_mut().zip([("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0), ("c", 1)])
        {
            node.chips = Some(Chips::of(slice, id, 4));
        }
        let (slots, sizes) = (slots(&all.nodes).unwrap(), Sizes::new(&[1, 2], 3).unwrap());
        let plan = SlicePlan { sizes, slots, spares: 1, timeout: Span::from_secs(1), grow: Grow::Next };
        let placement = all.of_hosts(&plan.first_hosts());
        assert_eq!(
            slices(&placement, &plan),
            "2 slices of 2 hosts (1 or 2), 1 spare\n  a  n[0-1]  ranks 0,1\n  b  n[2-3]  ranks 2,3\n  c  n[4-5]  spare\n"
        );
        let shown = text(&placement, &[], Holder::Agent(ForAgent::Python), None, &Settings::default());
        assert!(shown.starts_with("4 ranks on 4 hosts\n  n[0-3]  ranks 0-3"), "{shown}");
        let line: serde_json::Value =
            serde_json::from_str(&json(&placement, &[], Holder::Agent(ForAgent::Python), None, Some(&plan))).unwrap();
        let last = serde_json::json!({ "slot": 2, "slice": "c", "hosts": ["n4", "n5"], "spare": true });
        assert_eq!((&line["slices"][2], line["ranks"].as_array().unwrap().len()), (&last, 4));
    }

    #[test]
    fn for_people() {
        let argv = [OsBytes::from("./train"), OsBytes::from("a b")];
        assert_eq!(
            text(&placed(&[(2, "")]), &[&argv], LEFT, None, &Settings::default()),
            "2 ranks on 1 host\n  me  ranks 0,1\ncommand: ./train 'a b'\nTCPStore: left to rank 0 (it does not run Python)\n"
        );
        assert_eq!(
            text(&placed(&[(5, "a:2,bob@node1:4")]), &[&argv], LEFT, None, &Settings::default()),
            "5 ranks on 2 hosts\n  a          ranks 0,1\n  bob@node1  ranks 2-4\ncommand: ./train 'a b'\nTCPStore: left to rank 0 (it does not run Python)\n"
        );
        assert_eq!(
            text(&placed(&[(1, "a"), (3, "b")]), &[&argv, &argv[..1]], LEFT, None, &Settings::default()),
            "4 ranks on 2 hosts\n  a  rank 0\n  b  ranks 1-3  (3 on 1 slot)\n  rank 0     ./train 'a b'\n  ranks 1-3  ./train\nTCPStore: left to rank 0 (it does not run Python)\n"
        );
    }

    #[test]
    fn settings_without_a_place_have_a_line() {
        let same = ["--oversubscribe".into(), "--rdzv-backend c10d".into()];
        let settings = Settings { restarts: vec!["--max-restarts 3".into(), "--spares 1".into()], same: &same };
        let text = text(&placed(&[(2, "")]), &[&["./a".into()]], LEFT, None, &settings);
        let lines: Vec<&str> = text.lines().skip(2).take(3).collect();
        let unchanged = "without effect, as rlaunch does this anyway: --oversubscribe, --rdzv-backend c10d";
        assert_eq!(lines, ["command: ./a", "restarts: --max-restarts 3 --spares 1", unchanged]);
    }

    #[test]
    fn equal_hosts_have_one_line() {
        let hosts = |placement: &Placement| {
            let text = text(placement, &[&[]], LEFT, None, &Settings::default());
            text.lines().filter_map(|line| line.strip_prefix("  ").map(str::to_owned)).collect::<Vec<_>>()
        };
        assert_eq!(hosts(&placed(&[(64, "n[1-8]:8")])), ["n[1-8]  ranks 0-63  (8 each)"]);
        assert_eq!(hosts(&placed(&[(4, "n[1-2]:2")])), ["n1  ranks 0,1", "n2  ranks 2,3"]);
        assert_eq!(hosts(&placed(&[(8, "n3:2,n2:2,n1:2,m:2")]))[..], ["n[3,2,1],m  ranks 0-7  (2 each)"][..]);
        assert_eq!(hosts(&placed(&[(9, "n[1-3]:2,m:3")])), ["n[1-3]  ranks 0-5  (2 each)", "m       ranks 6-8"]);
        assert_eq!(hosts(&placed(&[(6, "n[1-3]:1")])), ["n[1-3]  ranks 0-5  (2 on 1 slot each)"]);
        let mut in_turn = placed(&[(6, "n[1-3]:2")]);
        for (placed, at) in in_turn.ranks.iter_mut().zip([0, 1, 2, 0, 1, 2]) {
            placed.node = NodeId::new(at);
        }
        assert_eq!(hosts(&in_turn), ["n[1-3]  ranks 0-5  (2 each, in turn)"]);
        for (placed, at) in in_turn.ranks.iter_mut().zip([0, 1, 2, 2, 1, 0]) {
            placed.node = NodeId::new(at);
        }
        assert_eq!(hosts(&in_turn), ["n1  ranks 0,5", "n2  ranks 1,4", "n3  ranks 2,3"]);
    }

    #[test]
    fn for_programs() {
        assert_eq!(
            json(
                &placed(&[(1, "bob@node0"), (1, "node1")]),
                &[&[OsBytes::from("./a"), "b c".into()]],
                Holder::Agent(ForAgent::Python),
                None,
                None
            ),
            "{\"ranks\":[{\"rank\":0,\"host\":\"node0\",\"local_rank\":0,\"node_index\":0,\"app\":0},\
             {\"rank\":1,\"host\":\"node1\",\"local_rank\":0,\"node_index\":1,\"app\":1}],\"store\":{\"by\":\"agent\",\"why\":\"python\"},\
             \"hosts\":[{\"host\":\"bob@node0\",\"slots\":1,\"ranks\":1},{\"host\":\"node1\",\"slots\":1,\"ranks\":1}],\
             \"apps\":[{\"argv\":[\"./a\",\"b c\"]}]}\n"
        );
    }

    #[test]
    fn a_short_lease_is_worth_a_line_where_there_are_many_hosts() {
        let said = |ms, hosts| short_lease(Span::from_millis(ms), hosts).is_some();
        assert_eq!([(4999, 17), (5000, 17), (4999, 16)].map(|(ms, hosts)| said(ms, hosts)), [true, false, false]);
    }

    #[test]
    fn notes() {
        let said = |apps: &[(u32, &str)]| placed(apps).notes.iter().map(|n| note(n, apps.len())).collect::<String>();
        assert_eq!(said(&[(3, "")]), "rlaunch: 3 ranks share 2 processors\n");
        assert_eq!(said(&[(3, "a:2")]), "rlaunch: 3 ranks share 2 slots of a\n");
        assert_eq!(
            said(&[(6, "a,b")]),
            "rlaunch: 3 ranks share 1 slot of a; 1 other host has more ranks than slots, too\n"
        );
        assert_eq!(note(&Note::OneRank(AppIndex::new(0)), 1), "rlaunch: no -n given: starting 1 rank\n");
        let second = note(&Note::OneRank(AppIndex::new(1)), 2);
        assert_eq!(second, "rlaunch: no -n given for program 2: starting 1 rank of it\n");
    }
}
