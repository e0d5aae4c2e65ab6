//! Device files of accelerators, the processes that hold them, and the lock files of their drivers.
//!
//! A descriptor counts by the device number (`st_rdev`) of the file that it leads to. Paths would mislead. Each mount namespace may have
//! other names for the same device.

mod lockfile;
mod pci;
mod process;
mod scan;
mod site;

pub use lockfile::{LockState, OddFile, lock_state, remove_lock};
pub use pci::{PciDevice, devices_of};
pub use process::{Ancestors, JobSigns, Process, is_own_proc, user_name};
pub use scan::{Found, Scan, Targets, is_holder, scan, scan_mappings};
pub use site::{DeviceClaim, Node, claim, has_accelerators, has_shared_memory, is_busy, nvidia};
