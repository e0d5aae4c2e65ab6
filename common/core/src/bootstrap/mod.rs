//! An agent on another host, over the user's own ssh: every word that is sent, every answer that is understood, and what
//! becomes of a host that does not answer. Pure: bytes, ends of processes and time come in, what to do comes out.

pub mod answer;
pub mod argv;
pub mod failure;
pub mod fanout;
pub mod hash;
pub mod host;
pub mod line;
pub mod preamble;
pub mod sum;
pub mod way;
pub mod words;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Heard, Place, Scanner};
pub use argv::{SshOptions, Target, TargetError, argv, question};
pub use failure::{Failure, Why};
pub use fanout::{Fanout, Turn};
pub use hash::Hash;
pub use host::{Dial, DialAction, DialEvent, DialPlan, Seen, SshEnd, Stage, Up};
pub use line::{LineError, LinePlan, line};
pub use preamble::{PREAMBLE, Preamble, Secret, WIRE};
pub use sum::Sum;
pub use way::{Kind, Way};
pub use words::Trouble;
