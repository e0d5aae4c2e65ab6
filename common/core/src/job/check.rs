//! Whether the records of the job agree with each other: for tests, the simulator and the fuzzer.

use super::Job;
use alloc::format;
use alloc::string::String;

impl Job {
    /// The first disagreement among the job's own records. It holds after every event that has been handled.
    ///
    /// # Errors
    /// The two records that disagree.
    pub fn check(&self) -> Result<(), String> {
        let placement = self.facts.placement();
        for (rank, placed) in placement.ranks.with_ranks() {
            if self.facts.hosts.is_left_out(placed.node) {
                return Err(format!("rank {rank} is on {:?}, which the job has left out", placed.node));
            }
        }
        self.parts.procs.check(&self.facts)?;
        self.parts.rounds.check()
    }
}
