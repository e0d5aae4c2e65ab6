//! The settings of a Slurm cluster that rlaunch keeps to, from `scontrol show config` (man slurm.conf of 22.05).

use crate::time::Span;

/// Settings of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlurmConfig {
    /// `KillWait`: the time between SIGTERM and SIGKILL when Slurm ends a job. `None`: unknown.
    pub kill_wait: Option<Span>,
    /// `SrunPortRange`: the first and the last port on which the host of srun may listen. `None`: any.
    pub ports: Option<(u16, u16)>,
}

impl SlurmConfig {
    /// Reads the lines `NAME = VALUE` that scontrol prints. Lines that are missing or have another form leave a setting unknown.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let value = |name: &str| {
            text.lines().find_map(|line| {
                let (left, right) = line.split_once('=')?;
                (left.trim() == name).then(|| right.trim())
            })
        };
        let seconds = |value: &str| value.strip_suffix("sec")?.trim().parse().ok().map(Span::from_secs);
        let range = |value: &str| {
            let (first, last) = value.split_once('-')?;
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            // "0-0" is any.
            (first > 0 && first <= last).then_some((first, last))
        };
        Self { kill_wait: value("KillWait").and_then(seconds), ports: value("SrunPortRange").and_then(range) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_from_the_output_of_scontrol() {
        let text = "Configuration data as of 2026-01-02T03:04:05\nKillOnBadExit           = 0\n\
                    KillWait                = 30 sec\nSrunEpilog              = (null)\nSrunPortRange           = 60001-63000\n\
                    SrunProlog              = (null)\n";
        let config = SlurmConfig::parse(text);
        assert_eq!(config, SlurmConfig { kill_wait: Some(Span::from_secs(30)), ports: Some((60_001, 63_000)) });
    }

    #[test]
    fn unknown_settings_stay_unknown() {
        for text in [
            "",
            "slurm_load_ctl_conf error: Unable to contact slurm controller",
            "KillWait = soon\nSrunPortRange = 9-3",
        ] {
            assert_eq!(SlurmConfig::parse(text), SlurmConfig::default(), "{text}");
        }
        assert_eq!(SlurmConfig::parse("SrunPortRange = 0-0").ports, None);
    }
}
