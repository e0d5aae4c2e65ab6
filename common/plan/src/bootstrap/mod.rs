//! An agent on another host, over ssh, srun or a command of the user's: every word that is sent, every answer that is understood, and what
//! becomes of a host that does not answer. Pure: bytes, ends of processes and time come in, what to do comes out.

pub mod admission;
pub mod answer;
pub mod argv;
pub mod carrier;
pub mod carrier_event;
mod command_template;
pub mod dial;
pub mod failure;
pub mod fanout;
pub mod hash;
pub mod preamble;
mod remote_line;
pub mod srun;
pub mod srun_messages;
pub mod ssh_messages;
mod ssh_route;
mod step_dial;
pub mod sum;
pub mod tcp_hello;

#[cfg(test)]
mod tests;

pub use admission::{Admission, Caller, Refused};
pub use answer::{Answer, Finding, Place, Scanner};
pub use argv::{IS_OPEN, SshOptions, Target, TargetError, argv, connection, question};
pub use carrier::{Carrier, CarrierEnd, CarrierKind};
pub use carrier_event::{CarrierEvent, CarrierNews};
pub use command_template::{CommandTemplate, TemplateError};
pub use dial::{Dial, DialAction, DialEvent, DialPlan, Seen, Stage, Up};
pub use failure::{Failure, HostFailure, Why};
pub use fanout::{Fanout, Turn};
pub use hash::Hash;
pub use preamble::{PREAMBLE, Preamble, Secret, WIRE};
pub use remote_line::{LineError, LinePlan, Purpose, kept_binary, line};
pub use srun::{SrunPlan, Transport};
pub use ssh_messages::Trouble;
pub use ssh_route::{Kind, Way};
pub use step_dial::{FallBack, Program, StepAction, StepDial, StepEvent, StepPlan};
pub use sum::{Sum, Sums};
pub use tcp_hello::{AgentFacts, EdgeKeys, Hello, Refusal, StepPreamble};
