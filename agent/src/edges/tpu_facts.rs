//! The facts of this host about its TPU chips.

use rlaunch_core::tpu::TpuFacts;
use rlaunch_core::wire::to_node::TpuRequest;

/// The words of the hostfile, else the variables of a container of GKE. `None`: this is no TPU host.
///
/// A rank that starts rlaunch has the variables of its own job. They say nothing about a job within it.
pub(super) fn find(request: &TpuRequest) -> Option<TpuFacts> {
    if let Some(given) = &request.given {
        return Some(TpuFacts::clone(given));
    }
    let env = |name: &str| std::env::var(name).ok();
    if env("RLAUNCH_JOB_ID").is_some() { None } else { TpuFacts::of_gke(&env) }
}
