//! The file with the settings of the Slurm cluster, which srun reads too.

use rlaunch_plan::allocation::SlurmConfig;
use rlaunch_plan::bootstrap::SrunPlan;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;

/// Its place, unless `SLURM_CONF` names another.
const PATH: &str = "/etc/slurm/slurm.conf";
/// Far more than a cluster needs.
const MOST: u64 = 4 << 20;

/// Reads it. `None`: it cannot be read, or may not be that of the cluster of this job.
pub(super) fn read(plan: &SrunPlan) -> Option<SlurmConfig> {
    let cluster = plan.variable("SLURM_CLUSTER_NAME")?;
    let path = plan.variable("SLURM_CONF").unwrap_or(PATH.as_bytes());
    let mut text = String::new();
    File::open(OsStr::from_bytes(path)).ok()?.take(MOST).read_to_string(&mut text).ok()?;
    SlurmConfig::parse_file(&text, std::str::from_utf8(cluster).ok()?)
}
