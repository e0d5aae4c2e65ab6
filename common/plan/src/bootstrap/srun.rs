//! The words of the srun command: a step of the job in which rlaunch runs, on one of its hosts, with nothing of the caller's
//! environment that would change it.
//!
//! Options and variables: `man srun` of Slurm 22.05. srun takes each option that is not given from a variable (`SLURM_LABELIO`,
//! `SLURM_STDINMODE`, `SLURM_EXACT`, …), so it gets few variables, and none of those.

use super::argv::Target;
use crate::hostlist::fold;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::os_bytes::OsBytes;

/// The variables that srun gets, where the caller has them: those that say who and where the user is, and which Slurm it is. The task has
/// them too, beside those that Slurm sets for it.
pub const PASSED: [&str; 14] = [
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PATH",
    "SHELL",
    "SLURM_CLUSTER_NAME",
    "SLURM_CONF",
    "SLURM_JOB_ID",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
];

/// Options of every step. `--overlap`: it takes no resources from other steps, nor waits for any. `--kill-on-bad-exit=0`, `--wait=0`,
/// `--no-kill`: the end of a rank or a host is rlaunch's matter. `--cpu-bind=none`: ranks are bound by rlaunch.
const OPTIONS: [&str; 9] = [
    "--overlap",
    "--export=ALL",
    "--kill-on-bad-exit=0",
    "--wait=0",
    "--no-kill",
    "--cpu-bind=none",
    "--mem=0",
    "--mpi=none",
    "--quiet",
];

/// Options of a step on one host, whose streams carry the messages. Without `--unbuffered` a message of the agent waits for a newline.
const ALONE: [&str; 3] = ["--unbuffered", "--nodes=1", "--ntasks=1"];

/// A line that srun 22.05 prints for `--cpu-bind=none` where the cluster binds no processors, `--quiet` or not.
pub(super) const NOISE: &str = "srun: cluster configuration lacks support for cpu binding";

/// Words of srun about a job that has ended.
pub(super) const OVER: [&str; 4] =
    ["Invalid job id specified", "already completing or completed", "has been revoked", "has expired"];

/// The stream for the messages between the launcher and agents that srun starts (`--transport`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// TCP, or srun's own streams where agents cannot connect to the launcher.
    #[default]
    Auto,
    /// The streams of an srun for each host.
    Stdio,
    /// TCP, from a step of all hosts.
    Tcp,
}

/// How srun is called.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SrunPlan {
    /// `--transport`.
    pub transport: Transport,
    /// The environment of srun, as `NAME=value`.
    pub environment: Vec<OsBytes>,
    /// The component of each host of a heterogeneous job.
    pub components: BTreeMap<String, u32>,
}

impl SrunPlan {
    /// The command for one host: `env -i`, its environment, `srun`, its options, the host, and a shell that runs the line.
    #[must_use]
    pub fn argv(&self, target: &Target, line: &[u8]) -> Vec<OsBytes> {
        let host = format!("{}", target.host());
        let mut words = self.begin();
        words.extend(ALONE.map(OsBytes::from));
        words.extend(self.component(&host).map(|component| OsBytes::from(format!("--het-group={component}"))));
        words.push(OsBytes::from(format!("--nodelist={host}")));
        words.extend(shell(line));
        words
    }

    /// The command for one step on these hosts, which are of one component, with these words for the program.
    #[must_use]
    pub fn step_argv(&self, hosts: &[String], program: impl IntoIterator<Item = OsBytes>) -> Vec<OsBytes> {
        let mut words = self.begin();
        let component = hosts.first().and_then(|host| self.component(host));
        words.extend(component.map(|component| OsBytes::from(format!("--het-group={component}"))));
        let (count, list) = (hosts.len(), fold(hosts.iter().map(String::as_str)));
        let place = [format!("--nodes={count}"), format!("--ntasks={count}"), format!("--nodelist={list}")];
        words.extend(place.map(OsBytes::from));
        words.push("--ntasks-per-node=1".into());
        words.extend(program);
        words
    }

    /// The command that prints the settings of the cluster.
    #[must_use]
    pub fn config_argv(&self) -> Vec<OsBytes> {
        let mut words: Vec<OsBytes> = ["env", "-i"].map(OsBytes::from).into();
        words.extend(self.environment.iter().cloned());
        words.extend(["scontrol", "show", "config"].map(OsBytes::from));
        words
    }

    /// The value of a variable of srun.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&[u8]> {
        self.environment.iter().find_map(|pair| pair.as_slice().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }

    /// The component of a host of a heterogeneous job.
    #[must_use]
    pub fn component(&self, host: &str) -> Option<u32> {
        self.components.get(host).copied()
    }

    fn begin(&self) -> Vec<OsBytes> {
        let mut words: Vec<OsBytes> = ["env", "-i"].map(OsBytes::from).into();
        words.extend(self.environment.iter().cloned());
        words.push("srun".into());
        words.extend(OPTIONS.map(OsBytes::from));
        words
    }
}

/// The variables of a command that begins with `env -i`, if it does, and the words of the program. They serve in the place of `env`.
#[must_use]
pub fn without_env(words: &[OsBytes]) -> (Option<&[OsBytes]>, &[OsBytes]) {
    match words {
        [env, option, rest @ ..] if env.as_slice() == b"env" && option.as_slice() == b"-i" => {
            let count = rest.iter().take_while(|word| word.as_slice().contains(&b'=')).count();
            let (pairs, program) = rest.split_at(count);
            (Some(pairs), program)
        }
        words => (None, words),
    }
}

/// A shell that runs a line.
pub(super) fn shell(line: &[u8]) -> [OsBytes; 3] {
    ["/bin/sh".into(), "-c".into(), line.into()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn a_step_gets_its_host_its_component_and_few_variables() {
        let plan = SrunPlan {
            environment: ["PATH=/opt/slurm/bin:/bin", "SLURM_JOB_ID=7"].map(OsBytes::from).into(),
            components: [("n2".to_string(), 1)].into(),
            ..SrunPlan::default()
        };
        let words = |host: &str| {
            let words = plan.argv(&Target::parse(host.as_bytes(), None).unwrap(), b"LINE");
            words.iter().map(|word| word.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            words("n1"),
            "env -i PATH=/opt/slurm/bin:/bin SLURM_JOB_ID=7 srun --overlap --export=ALL --kill-on-bad-exit=0 \
             --wait=0 --no-kill --cpu-bind=none --mem=0 --mpi=none --quiet --unbuffered --nodes=1 --ntasks=1 --nodelist=n1 /bin/sh -c LINE"
        );
        assert!(words("n2").contains(" --het-group=1 --nodelist=n2 "), "{}", words("n2"));
    }

    #[test]
    fn a_step_of_several_hosts_names_them_and_counts_them() {
        let hosts = ["n1", "n3", "n2"].map(String::from);
        let words = SrunPlan::default().step_argv(&hosts, shell(b"LINE"));
        let words = words.iter().map(|word| word.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(
            words,
            "env -i srun --overlap --export=ALL --kill-on-bad-exit=0 --wait=0 --no-kill --cpu-bind=none --mem=0 --mpi=none \
             --quiet --nodes=3 --ntasks=3 --nodelist=n[1-3] --ntasks-per-node=1 /bin/sh -c LINE"
        );
    }

    #[test]
    fn environment_of_srun_is_distinguished_from_its_words() {
        let plan = SrunPlan { environment: ["PATH=/bin", "TZ="].map(OsBytes::from).into(), ..SrunPlan::default() };
        let words = plan.config_argv();
        let (pairs, program) = without_env(&words);
        assert_eq!((pairs, program), (Some(&["PATH=/bin".into(), "TZ=".into()][..]), &words[4..]));
        assert_eq!(program.first(), Some(&OsBytes::from("scontrol")));
        let bare = SrunPlan::default().config_argv();
        assert_eq!(without_env(&bare), (Some(&[][..]), &bare[2..]));
        let ssh = ["ssh".into(), "-i".into(), "A=b".into()];
        assert_eq!(without_env(&ssh), (None, &ssh[..]));
        assert_eq!(plan.variable("TZ"), Some(&b""[..]));
        assert_eq!((plan.variable("PATH"), plan.variable("PAT")), (Some(&b"/bin"[..]), None));
    }
}
