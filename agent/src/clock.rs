//! The clock of the machines.

use rlaunch_base::time::Mono;

/// Time since the host was started, with the time in which it was suspended.
pub(crate) fn now() -> Mono {
    Mono::from_nanos(rlaunch_sys::clock::boottime())
}
