//! Whether the counters and tables of the node agree with each other: for tests, the simulator and the fuzzer.

use super::Node;
use alloc::string::String;

impl Node {
    /// The first disagreement among the node's own records. It holds after every event that has been handled.
    ///
    /// # Errors
    /// The two records that disagree.
    pub fn check(&self) -> Result<(), String> {
        self.parts.procs.check()?;
        self.parts.rounds.check()
    }
}
