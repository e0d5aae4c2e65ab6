//! Whether the counters and tables of the machine agree with each other: for tests, the simulator and the fuzzer.

use super::membership::{Host, MemberState};
use super::{Phase, Restart};
use alloc::format;
use alloc::string::String;
use rlaunch_base::id::Rank;

impl Restart {
    /// The first disagreement among the machine's own records. It holds after every event that has been handled.
    ///
    /// # Errors
    /// The two records that disagree.
    pub fn check(&self) -> Result<(), String> {
        self.check_hosts()?;
        self.check_counters()?;
        self.check_comings()
    }

    /// Each rank is on one host, and that host knows it.
    fn check_hosts(&self) -> Result<(), String> {
        let mut known = 0;
        for (node, host) in &self.membership.hosts {
            for rank in &host.ranks {
                let at = self.membership.members.get(rank.index()).map(|member| member.node);
                if at != Some(*node) {
                    return Err(format!("rank {rank} is listed at {node:?}, and is at {at:?}"));
                }
            }
            let takes_part = |rank: &&Rank| {
                matches!(self.membership.state_of(**rank), Some(MemberState::Active | MemberState::Joining))
            };
            if host.lost
                && !matches!(self.phase, Phase::CallEnded(_))
                && let Some(rank) = host.ranks.iter().find(takes_part)
            {
                return Err(format!("rank {rank} takes part, and its host {node:?} is lost"));
            }
            if !host.ranks.is_sorted() {
                return Err(format!("the ranks of {node:?} are not in ascending order: {:?}", host.ranks));
            }
            known += host.ranks.len();
        }
        if known == self.membership.members.len() {
            return Ok(());
        }
        Err(format!("hosts list {known} ranks, and there are {}", self.membership.members.len()))
    }

    /// Counters are the number of what they count.
    fn check_counters(&self) -> Result<(), String> {
        let count = |is: fn(&Host) -> bool| self.membership.hosts.values().filter(|host| is(host)).count();
        let (counter, counted, actual) = match self.phase {
            Phase::Gathering => {
                let ranks = (0..).map(Rank::new).zip(&self.membership.members);
                let missing =
                    ranks.filter(|(rank, member)| self.is_known(*rank) && member.state != MemberState::Joining).count();
                ("missing ranks", self.missing, missing)
            }
            Phase::Draining { .. } => {
                ("awaited hosts", self.awaited_hosts, count(|host| host.interrupt_sent && !host.answered && !host.lost))
            }
            Phase::Running => ("unreturned hosts", self.unreturned, count(|host| host.active > 0 && !host.returned)),
            Phase::Waiting(_) | Phase::CallEnded(_) => return Ok(()),
        };
        if counted == actual { Ok(()) } else { Err(format!("{counter}: counted {counted}, and there are {actual}")) }
    }

    /// No process is awaited for a rank that takes part.
    fn check_comings(&self) -> Result<(), String> {
        for rank in self.comings.keys() {
            if let Some(part @ (MemberState::Active | MemberState::Joining)) = self.membership.state_of(*rank) {
                return Err(format!("a process of rank {rank} is awaited, and it takes part ({part:?})"));
            }
        }
        Ok(())
    }
}
