//! The settings of a Slurm cluster that rlaunch keeps to, from its file or from `scontrol show config` (man slurm.conf of 22.05).

use rlaunch_base::time::Span;

/// `KillWait` where the file has none.
const KILL_WAIT: Span = Span::from_secs(30);

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
        Self { kill_wait: value("KillWait").and_then(seconds), ports: value("SrunPortRange").and_then(range) }
    }

    /// Reads slurm.conf, which srun reads too. `None`: it is not known to be the whole file of this cluster, or has a value of another form.
    #[must_use]
    pub fn parse_file(text: &str, cluster: &str) -> Option<Self> {
        let mut config = Self { kill_wait: Some(KILL_WAIT), ports: None };
        let mut is_own = false;
        for line in text.lines().map(|line| line.split_once('#').map_or(line, |(before, _)| before).trim()) {
            let has = |word: &str| line.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
            if has("include") || line.ends_with('\\') {
                return None;
            }
            let Some((name, rest)) = line.split_once('=') else { continue };
            let value = rest.split_whitespace().next().unwrap_or_default();
            match name.trim_end().to_ascii_lowercase().as_str() {
                "clustername" => is_own = value.eq_ignore_ascii_case(cluster),
                "killwait" => config.kill_wait = Some(Span::from_secs(value.parse().ok()?)),
                "srunportrange" => config.ports = Some(range(value)?),
                _ => {}
            }
            // Another setting of the line is not read.
            let rest = rest.to_ascii_lowercase();
            if ["killwait", "srunportrange"].iter().any(|name| rest.contains(name)) {
                return None;
            }
        }
        is_own.then_some(config)
    }
}

fn range(value: &str) -> Option<(u16, u16)> {
    let (first, last) = value.split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    // "0-0" is any.
    (first > 0 && first <= last).then_some((first, last))
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

    #[test]
    fn settings_are_read_from_the_file_of_the_cluster() {
        let file = "# KillWait=9\nClusterName=Testbed SlurmctldHost=login\nkillwait = 5 # s\nNodeName=n[0-9] CPUs=4\n\
                    SrunPortRange=60001-63000\n";
        let config = SlurmConfig { kill_wait: Some(Span::from_secs(5)), ports: Some((60_001, 63_000)) };
        assert_eq!(SlurmConfig::parse_file(file, "testbed"), Some(config));
        let few = SlurmConfig::parse_file("ClusterName=a\n", "a");
        assert_eq!(few, Some(SlurmConfig { kill_wait: Some(Span::from_secs(30)), ports: None }));
        let other = [
            ("", "a"),
            ("ClusterName=a", "b"),
            ("ClusterName=a\nInclude more.conf", "a"),
            ("ClusterName=a\nSrunPortRange = 1-2 \\\n", "a"),
            ("ClusterName=a\nKillWait=soon", "a"),
            ("ClusterName=a KillWait=5", "a"),
            ("ClusterName=a\nSrunPortRange=9-3", "a"),
        ];
        for (text, cluster) in other {
            assert_eq!(SlurmConfig::parse_file(text, cluster), None, "{text}");
        }
    }
}
