//! Facts of the system about a host and about the end of a process, beyond its status: evidence for the report.

pub mod core_file;
pub mod cpu_time;
pub mod error_file;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod gpus;
pub mod host;
pub mod init_state;
pub(crate) mod inner_dir;
pub mod input;
pub mod limits;
pub mod loaded;
pub mod net;
pub mod oom;
pub mod topology;

mod cgroup_memory;
