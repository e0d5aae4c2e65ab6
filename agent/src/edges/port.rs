//! MASTER_PORT on this host: a free port is chosen, or the port that the user gave is claimed.

use super::sandbox;
use rlaunch_base::id::JobId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_protocol::wire::to_node::PortPlan;
use rlaunch_protocol::wire::to_root::NodeRefusal;
use rlaunch_sys::port::Port;
use rlaunch_sys::port::claim::{ClaimError, claim};

/// The port that this host has to hold for the job, if any.
pub(super) fn prepare(plan: PortPlan, job: JobId) -> Result<Option<Port>, NodeRefusal> {
    match plan {
        PortPlan::None => Ok(None),
        PortPlan::Choose => sandbox::choose_port().map(Some),
        PortPlan::Claim(number) if is_of_outer_job(number) => Ok(None),
        PortPlan::Claim(number) => claim_for(number, &job.to_string()),
    }
}

fn claim_for(number: u16, job: &str) -> Result<Option<Port>, NodeRefusal> {
    match claim(number, job) {
        Ok(port) => {
            let claimed = if port.reservation.is_some() { "claimed" } else { "used without a claim" };
            tracing::debug!("port {number} was given, and is {claimed}");
            Ok(Some(port))
        }
        // The machine is in the list of hosts under two names.
        Err(ClaimError::Taken(owner)) if owner.job == job => Ok(None),
        Err(ClaimError::Taken(owner)) => {
            Err(NodeRefusal::PortTaken { port: number, job: OsBytes::from(owner.job), agent: owner.agent })
        }
        Err(ClaimError::Failed(error)) => Err(sandbox::resource(&error, "claim MASTER_PORT")),
    }
}

/// Whether rlaunch runs in a rank of another job of rlaunch, and was given that job's own port (`-x MASTER_PORT`).
fn is_of_outer_job(number: u16) -> bool {
    let outer = std::env::var("MASTER_PORT").ok().and_then(|port| port.parse().ok());
    std::env::var_os("RANK").is_some() && std::env::var_os("RLAUNCH_JOB_ID").is_some() && outer == Some(number)
}
