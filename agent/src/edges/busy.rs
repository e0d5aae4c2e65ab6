//! Notes for what the machine thread was busy for long. Heartbeats wait meanwhile, so work that takes long belongs on another thread.

use rlaunch_core::node::NodeAction;
use rlaunch_sys::clock;

/// Nanoseconds of a processor's time. On a host with 20,000 processes, a list of them takes several times as long.
const LONG: u64 = 5_000_000;

/// Work of the machine thread, until it is dropped. Nothing is noted without diagnostics.
pub(super) struct Busy(Option<(String, u64)>);

impl Busy {
    pub(super) fn with(what: impl FnOnce() -> String) -> Self {
        Self(tracing::enabled!(tracing::Level::DEBUG).then(|| (what(), clock::of_thread())))
    }
}

/// The name of an action, without its values.
pub(super) fn name(action: &NodeAction) -> String {
    let text = format!("{action:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some((what, began)) = self.0.take() {
            let took = clock::of_thread().saturating_sub(began);
            if took > LONG {
                tracing::debug!("the machine thread was busy for {} us: {what}", took / 1000);
            }
        }
    }
}
