//! Options about rounds: the in-process restart of a function, and who plays which role in it.

use super::errors::{CliError, is_variable};
use super::place::Said;
use super::scan::Given;
use super::site::Site;
use super::table::options;
use super::{Program, Run, assign, values};
use crate::view::phrases;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::shell::quoted;
use rlaunch_base::time::Span;
use rlaunch_plan::place::{MOST_RANKS, Placement};
use rlaunch_plan::rank_assign::{self, AssignError, Policy, Stage, World};
use rlaunch_protocol::env::base;
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::rounds::{Limits, Rounds};
use rlaunch_restart::names_slices;
use std::borrow::Cow;

/// Most rounds, and most faults of a rank, that can be asked for.
const MOST: u32 = 1_000_000_000;
/// Longest policy that a message repeats.
const SHOWN: usize = 60;

options! {
    Rounds, "Restart within processes (docs/guides/resilient-training.md)", "in-process";
    Assign ["assign"] One("POLICY"): "who is which rank after a loss: all,shift; or @FILE",
        "It goes before what the program asks for.",
        "rlaunch assign tries one.";
    Spares ["spares"] One("N"): "hold N ranks back: -n 8 --spares 2 starts 10",
        "Where -n is not given, N of those that are started.";
    SpareHosts ["spare-hosts"] One("N"): "hold the ranks of the last N hosts back";
    MaxRounds ["max-rounds"] One("N"): "so many rounds at most, the first included";
    MinWorld ["min-world"] One("N"): "not with fewer ranks";
    MinActive ["min-active"] One("N"): "not with fewer ranks that work";
    MaxRankFaults ["max-rank-faults"] One("N"): "a rank with more faults of its own is given up";
    FaultWindow ["fault-window"] One("TIME"): "wait so long for more faults first (default: 0s)";
    YieldWithin ["yield-within"] One("TIME"): "planned: ranks may go on so long (default: 30s)";
    Respawn ["respawn"] Nothing: "start a rank that has died again, to join";
    RespawnTimeout ["respawn-timeout"] One("TIME"): "it has so long to take part (default: 5m)";
}

/// A value, and how its option was spelled.
type Spelled<T> = Option<(OsBytes, T)>;

/// The options.
#[derive(Debug, Default)]
pub(super) struct Args {
    policy: Option<Said>,
    spares: Spelled<u32>,
    spare_hosts: Option<spare_hosts::SpareHosts>,
    max_rounds: Spelled<u32>,
    min_world: Spelled<u32>,
    min_active: Spelled<u32>,
    max_rank_faults: Spelled<u32>,
    fault_window: Spelled<Span>,
    yield_within: Spelled<Span>,
    respawn: Option<OsBytes>,
    respawn_timeout: Spelled<Span>,
}

impl Args {
    pub(super) fn take(&mut self, opt: Opt, Given { spelled: option, value, .. }: Given) -> Result<(), CliError> {
        let count = |most| values::count(&option, &value, most);
        let count_or_none = |most| values::count_or_none(&option, &value, most);
        match opt {
            Opt::Spares => self.spares = Some((option.clone(), count_or_none(MOST_RANKS)?)).filter(|(_, n)| *n > 0),
            Opt::SpareHosts => {
                let hosts = count_or_none(MOST_RANKS)?;
                self.spare_hosts = Some(spare_hosts::SpareHosts::new(option.clone(), hosts)).filter(|_| hosts > 0);
            }
            Opt::MaxRounds => self.max_rounds = Some((option.clone(), count(MOST)?)),
            Opt::MinWorld => self.min_world = Some((option.clone(), count(MOST_RANKS)?)),
            Opt::MinActive => self.min_active = Some((option.clone(), count(MOST_RANKS)?)),
            Opt::MaxRankFaults => self.max_rank_faults = Some((option.clone(), count_or_none(MOST)?)),
            Opt::FaultWindow => self.fault_window = Some((option.clone(), values::span(&option, &value)?)),
            Opt::YieldWithin => self.yield_within = Some((option.clone(), values::span(&option, &value)?)),
            Opt::Respawn => self.respawn = Some(option),
            Opt::RespawnTimeout => {
                let most = values::span_from(&option, &value, Span::from_secs(1))?;
                self.respawn_timeout = Some((option, most));
            }
            Opt::Assign => self.policy = Some(Said { option, value }),
        }
        Ok(())
    }

    /// Checks options that cannot go together, whatever hosts there are; ranks that are held back are ranks too.
    pub(super) fn check(&mut self, programs: &mut [Program]) -> Result<(), CliError> {
        if let (Some((spares, n)), Some(policy)) = (&self.spares, &self.policy) {
            let try_ =
                format!("max=N in the policy, where -n counts all that are started; {spares} {n} is max=N,shift");
            return Err(both(spares, &policy.option, "both say who works", Some(try_)));
        }
        let spare_hosts = self.spare_hosts.as_ref().map(spare_hosts::SpareHosts::option);
        let policy = self.policy.as_ref().map(|policy| &policy.option);
        if let (Some(hosts), Some(other)) = (spare_hosts, policy.or(self.spares.as_ref().map(|(option, _)| option))) {
            return Err(both(hosts, other, "both say who works", Some("one of the two".into())));
        }
        let held_back = self.spares.as_ref().map(|(option, _)| option).or(spare_hosts);
        if let (Some(held_back), Some((rounds, 1))) = (held_back, &self.max_rounds) {
            return Err(both(
                held_back,
                rounds,
                "what is held back for another round would never work",
                Some("one of the two".into()),
            ));
        }
        if let (Some((option, _)), None) = (&self.respawn_timeout, &self.respawn)
            && !is_variable(option)
        {
            let what = "nothing is started again".into();
            return Err(wrong(option.to_string(), what, Some("--respawn".into())));
        }
        if let (Some(respawn), Some((rounds, 1))) = (&self.respawn, &self.max_rounds) {
            return Err(both(
                respawn,
                rounds,
                "a rank that rejoined would find no round",
                Some("one of the two".into()),
            ));
        }
        if let Some(option) = self.first().filter(|_| programs.len() > 1) {
            let what =
                format!("only a job of one program restarts within its processes, and this has {}", programs.len());
            return Err(wrong(option.to_string(), what, None));
        }
        if let (Some((option, spares)), Some(program)) = (&self.spares, programs.first_mut())
            && let Some(n) = program.n
        {
            let all = n.saturating_add(*spares);
            if all > MOST_RANKS {
                let what = format!("with them the job has {all} ranks, and at most {MOST_RANKS} can be started");
                return Err(wrong(option.to_string(), what, None));
            }
            program.n = Some(all);
        }
        if let (Some(spare), Some(program)) = (&mut self.spare_hosts, programs.first_mut()) {
            // All hosts are filled: how many ranks work comes of it.
            spare.works(program.n.take());
        }
        Ok(())
    }

    /// The options that have no effect for a program that does not take part, except for started processes.
    fn in_vain(&self) -> OsBytes {
        let spares = self.spares.as_ref().map(|(option, n)| format!("{option} {n}"));
        let hosts = self.spare_hosts.as_ref().map(ToString::to_string);
        let respawn = self.respawn.as_ref().map(OsBytes::to_string);
        let all: Vec<String> = [spares, hosts, respawn].into_iter().flatten().collect();
        OsBytes::from(all.join(" and ").as_str())
    }

    /// The options that were given, as they are typed; without times, which no loss depends on.
    fn words(&self) -> Vec<String> {
        let policy = self.policy.as_ref().map(|said| values::spell(&said.option, &quoted(&said.value)));
        let hosts = self.spare_hosts.as_ref().map(ToString::to_string);
        let respawn = self.respawn.as_ref().map(OsBytes::to_string);
        let counts = [&self.spares, &self.max_rounds, &self.min_world, &self.min_active, &self.max_rank_faults];
        let counts = counts.into_iter().flatten().map(|(option, n)| values::spell(option, &n.to_string()));
        policy.into_iter().chain(hosts).chain(counts).chain(respawn).collect()
    }

    /// The first of them that was given.
    pub(super) fn first(&self) -> Option<&OsBytes> {
        let spans = [&self.fault_window, &self.yield_within, &self.respawn_timeout];
        let counts = [&self.spares, &self.max_rounds, &self.min_world, &self.min_active, &self.max_rank_faults];
        let first = counts.into_iter().find_map(|said| said.as_ref().map(|(option, _)| option));
        // A variable for how long something may take is for all jobs, and asks for nothing.
        let typed = |option: &&OsBytes| !is_variable(option);
        let span = spans.into_iter().find_map(|said| said.as_ref().map(|(option, _)| option).filter(typed));
        let hosts = self.spare_hosts.as_ref().map(spare_hosts::SpareHosts::option);
        let respawn = self.respawn.as_ref();
        self.policy.as_ref().map(|said| &said.option).or(hosts).or(first).or(respawn).or(span)
    }
}

impl Run {
    /// The settings about restarts, as options; none: nothing is started again.
    pub(crate) fn restart_words(&self) -> Vec<String> {
        let Restarts { most, delay, .. } = self.settings.restarts;
        let preempt = self.preempt_retries();
        let mut words = Vec::new();
        if most > 0 {
            words.push(format!("--max-restarts {most} --restart-delay {}", phrases::wait(delay)));
        }
        if preempt > 0 {
            words.push(format!("--preempt-retries {preempt}"));
        }
        words.extend(self.rounds.words());
        words
    }

    /// The restart options of a job with this placement.
    ///
    /// # Errors
    /// The policy is none, or no round of these ranks could ever begin.
    pub(crate) fn rounds(&self, placement: &Placement, caller: &[&[u8]], site: &Site<'_>) -> Result<Rounds, CliError> {
        let Args { policy: said, spares, spare_hosts, max_rounds, min_world, min_active, max_rank_faults, .. } =
            &self.rounds;
        let world = u32::try_from(placement.ranks.len()).unwrap_or(u32::MAX);
        let policy = match (said, spares) {
            (Some(said), _) => Some(assign::policy(said, site)?),
            (None, Some((option, n))) => Some(held_back(option, *n, world)?),
            (None, None) => spare_hosts.as_ref().map(|spare| spare.policy(placement)).transpose()?,
        };
        if let Some((option, least)) = min_world.as_ref().filter(|(_, least)| *least > world) {
            let what = format!("no round could ever begin: the job has {}", ranks(world));
            return Err(wrong(format!("{option} {least}"), what, Some(format!("-n {least}"))));
        }
        let named = match (said, spares) {
            (Some(said), _) if said.value.len() <= SHOWN => format!("{} {}", said.option, said.value),
            (Some(said), _) => said.option.to_string(),
            (None, Some((option, n))) => format!("{option} {n}"),
            (None, None) => spare_hosts.as_ref().map_or_else(|| format!("-n {world}"), ToString::to_string),
        };
        let active = match &policy {
            Some(policy) => self
                .first_active(policy, placement, caller)
                .map_err(|error| assign::refuse(&named.as_str().into(), &error))?,
            None => world,
        };
        match (active, min_active) {
            (0, _) => {
                let what = format!("of {}, no rank would be left to work from the start", ranks(world));
                return Err(wrong(named, what, None));
            }
            (active, Some((option, least))) if *least > active => {
                let what = format!("no round could ever begin: {active} of {} would work", ranks(world));
                return Err(wrong(format!("{option} {least} and {named}"), what, Some("one of the two".into())));
            }
            (1.., _) => {}
        }
        let count = |limit: &Spelled<u32>| limit.as_ref().map(|(_, n)| *n);
        let span = |time: &Spelled<Span>| time.as_ref().map(|(_, span)| *span);
        Ok(Rounds {
            policy,
            limits: Limits {
                max_rounds: count(max_rounds),
                min_world: count(min_world),
                min_active: count(min_active),
                max_rank_faults: count(max_rank_faults),
            },
            fault_window: span(&self.rounds.fault_window).unwrap_or_default(),
            yield_within: span(&self.rounds.yield_within).unwrap_or(Rounds::YIELD),
            respawn: self.rounds.respawn.is_some(),
            respawn_timeout: span(&self.rounds.respawn_timeout).unwrap_or(Rounds::RESPAWN),
            asked: self.rounds.in_vain(),
        })
    }

    /// How many work in the first round.
    fn first_active(&self, policy: &Policy, placement: &Placement, caller: &[&[u8]]) -> Result<u32, AssignError> {
        let exports = self.programs.first().map(|program| program.exports.as_slice()).unwrap_or_default();
        let env = base(caller.iter().copied(), exports).env;
        let mut world = World::new(u32::try_from(placement.ranks.len()).unwrap_or(u32::MAX));
        let are_known = placement.nodes.iter().any(|node| node.chips.is_some());
        if !are_known && names_slices(policy) {
            // TPU hosts know their slices themselves. The first round decides.
            return Ok(world.size());
        }
        rank_assign::assign(policy, &mut world, &[], &assign::Placed { placement, env: &env })?;
        Ok(world.active_size().unwrap_or_else(|| world.size()))
    }
}

/// All but so many work.
fn held_back(option: &OsBytes, spares: u32, world: u32) -> Result<Policy, CliError> {
    match world.checked_sub(spares) {
        Some(n @ 1..) => Ok(Policy::chain(vec![Stage::MaxActive(Some(n)), Stage::Shift])),
        Some(0) | None => {
            let what = format!("of {}, no rank would be left to work", ranks(world));
            Err(wrong(format!("{option} {spares}"), what, Some("a larger -n, or more hosts".into())))
        }
    }
}

fn ranks(n: u32) -> String {
    phrases::count(n.into(), "rank")
}

fn both(one: &OsBytes, other: &OsBytes, what: &str, hint: Option<String>) -> CliError {
    wrong(format!("{one} and {other}"), what.into(), hint)
}

fn wrong(at: String, what: String, hint: Option<String>) -> CliError {
    CliError::Assign { at, what, hint: hint.map(Cow::from) }
}

mod spare_hosts;
#[cfg(test)]
mod tests;
