//! `rlaunch doctor`: which hosts, and how they are reached. Its options are some of a job's, and mean the same.

use super::allocation::{Named, first};
use super::errors::CliError;
use super::scan;
use super::site::Site;
use super::table::{DOCTOR, Id};
use super::values::Lookup;
use super::{Command, Reach, Scope, from_variables, help, place, reach};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::bootstrap::Target;

pub(super) const USAGE: &str = "\
Usage: rlaunch doctor [-H LIST] [OPTIONS]

Reaches every host as a job would (by srun in an allocation of Slurm, else by
ssh), starts the agent there and lets it go again. Prints what is there, or what
is wrong and what to try. Outside of an allocation, this machine is examined if
no host is named. It is examined without ssh.

";

pub(super) const OPTIONS: &[Id] = &[
    Id::Place(place::Opt::Hosts),
    Id::Place(place::Opt::Hostfile),
    Id::Place(place::Opt::Json),
    Id::Reach(reach::Opt::Launcher),
    Id::Reach(reach::Opt::Connect),
    Id::Reach(reach::Opt::Prompt),
    Id::Reach(reach::Opt::Fast),
    Id::Reach(reach::Opt::AgentPath),
    Id::Help(help::Opt::Help),
];

/// The hosts that are to be examined.
#[derive(Debug)]
pub(crate) struct Doctor {
    hosts: place::Own,
    /// For programs to read.
    pub(crate) json: bool,
    /// How the hosts are reached.
    pub(crate) reach: Reach,
}

/// Reads the words after `doctor`.
pub(super) fn parse(words: Vec<OsBytes>, env: Lookup<'_>) -> Result<Command, CliError> {
    let words = scan::mixed(words.into_iter(), &DOCTOR)?;
    if words.given.iter().any(|given| matches!(given.row.id, Id::Help(_))) {
        return Ok(Command::text(help::command_named("doctor")));
    }
    if let Some(word) = words.argv.first() {
        return Err(CliError::NoHosts { word: word.clone() });
    }
    let named = words.given.iter().any(scan::Given::names_hosts);
    let variables =
        from_variables(&words, Scope { first: true, hosts: !named, torchrun: false, is_counted: false }, env);
    let (mut hosts, mut reach) = (place::Own::default(), reach::Args::default());
    let json = words.given.iter().any(|given| given.row.id == Id::Place(place::Opt::Json));
    for given in words.given.into_iter().chain(variables) {
        if let Id::Place(opt) = given.row.id {
            hosts.take(opt, given)?;
        } else if let Id::Reach(opt) = given.row.id {
            reach.take(opt, given)?;
        }
    }
    hosts.fill(env);
    Ok(Command::Doctor(Box::new(Doctor { hosts, json, reach: reach.reach() })))
}

impl Doctor {
    /// The hosts, as arguments of ssh or srun, and whether this machine is one: ssh would reach it by a way that no job takes.
    ///
    /// # Errors
    /// A list or a file cannot be understood, or names what is no host. The allocation cannot be used.
    pub(crate) fn targets(&mut self, site: &Site<'_>) -> Result<(bool, Vec<Target>), CliError> {
        let option = first(&self.hosts.lists, &self.hosts.files);
        let target = |entry: &rlaunch_plan::hostlist::Entry| {
            Target::of(&entry.host)
                .map_err(|source| CliError::Host { option: option.clone(), source: Box::new(source) })
        };
        let launcher = &self.reach.launcher;
        let found = launcher.allocation(self.hosts.names_hosts(), site)?;
        self.reach.srun = launcher.srun(found.as_ref(), self.reach.transport, site)?;
        let named =
            Named { entries: site.hosts(&self.hosts)?, is_any: self.hosts.names_hosts(), option: option.clone() };
        let all = self.reach.launcher.hosts(found.as_ref(), named, site)?;
        let (own, others): (Vec<_>, Vec<_>) = all.iter().partition(|entry| site.here.is(&entry.host));
        let here = all.is_empty() || !own.is_empty();
        Ok((here, others.into_iter().map(target).collect::<Result<_, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::site::{Known, NoNodeset};
    use super::*;
    use rlaunch_plan::place::Here;
    use std::ffi::OsString;

    fn targets(line: &str, env: &[(&str, &str)]) -> Result<String, String> {
        let lookup = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
        let site = Site {
            here: Here { name: "me".into(), cpus: 2 },
            units: &|_| 1,
            gpus: &|| Some(0),
            ask: &|_, _| Ok(Vec::new()),
            read: &|path| match path.as_slice() {
                b"file" => Ok(b"f1 slots=2\nf2\n".to_vec()),
                _ => Err(std::io::Error::from_raw_os_error(2)),
            },
            is_file: &|path| path.as_slice() == b"file",
            near: &|_| None,
            runs: &|_| None,
            has_input: &|| false,
            directory: &|| None,
            env: &lookup,
            groups: &Known::new(&NoNodeset),
            turn: &|_| Err(std::io::ErrorKind::Unsupported.into()),
        };
        let words = line.split_whitespace().map(OsBytes::from).collect();
        let mut doctor = match parse(words, &lookup).map_err(|error| error.render())? {
            Command::Doctor(doctor) => doctor,
            Command::Answer(crate::cli::Answer::Text(text)) => return Ok(text),
            other => panic!("{other:?}"),
        };
        let (here, targets) = doctor.targets(&site).map_err(|error| error.render())?;
        let Reach { prompt, fast, agent_path, limit, srun, .. } = &doctor.reach;
        let by = if srun.is_some() { " by srun" } else { "" };
        let own = here.then(|| "(here)".to_owned());
        let hosts: Vec<String> = own.into_iter().chain(targets.iter().map(|target| target.to_string())).collect();
        Ok(format!("{}{by} {prompt} {fast} {agent_path:?} {limit}", hosts.join(",")))
    }

    #[test]
    fn hosts_are_named_as_for_a_job() {
        for (line, hosts) in [
            ("-H n[1-2],u@n3,v@n3", "n1,n2,u@n3,v@n3"),
            ("-Hn1 --hosts=n2", "n1,n2"),
            ("-w n1", "n1"),
            ("-H n1:4,n1", "n1"),
            ("--hostfile file", "f1,f2"),
            ("-f file -H f2", "f2"),
            ("-H ^file", "f1,f2"),
            ("", "(here)"),
            ("-H localhost,n1,me", "(here),n1"),
            ("-H u@localhost", "u@localhost"),
        ] {
            assert_eq!(targets(line, &[]), Ok(format!("{hosts} false false None 60.0s")), "{line}");
        }
        let all = "-H n1 --ssh-prompt --ssh_fast --agent-path /a --connect-timeout 2s";
        assert_eq!(targets(all, &[]).unwrap(), format!("n1 true true {:?} 2.0s", Some(OsBytes::from("/a"))));
    }

    #[test]
    fn variables_stand_for_options_of_doctor() {
        let env = [("RLAUNCH_HOSTS", "n1"), ("RLAUNCH_CONNECT_TIMEOUT", "5s"), ("RLAUNCH_LEASE", "1s")];
        assert_eq!(targets("", &env).as_deref(), Ok("n1 false false None 5.0s"));
        assert_eq!(targets("-H n2", &env).as_deref(), Ok("n2 false false None 5.0s"));
        assert_eq!(targets("", &[("HYDRA_HOST_FILE", "file")]).as_deref(), Ok("f1,f2 false false None 60.0s"));
    }

    #[test]
    fn hosts_of_an_allocation_are_reached_by_srun() {
        let env = [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_JOB_NODELIST", "n[1-2],me"),
            ("SLURM_NTASKS", "3"),
            ("SLURM_TASKS_PER_NODE", "1(x3)"),
        ];
        for (line, hosts) in [
            ("", "(here),n1,n2 by srun"),
            ("-H n2", "n2 by srun"),
            ("--launcher ssh -H n9", "n9"),
            ("--launcher local", "(here)"),
        ] {
            assert_eq!(targets(line, &env), Ok(format!("{hosts} false false None 60.0s")), "{line}");
        }
        let outside = targets("-H n9", &env).unwrap_err();
        assert!(outside.starts_with("error: n9 (-H) is not in Slurm job 7, whose hosts are "), "{outside}");
        let none = targets("--launcher slurm", &[]).unwrap_err();
        assert!(none.contains("needs an allocation"), "{none}");
    }

    #[test]
    fn doctor_refuses_invalid_options() {
        for (line, expected) in [
            ("-H", "error: -H needs a value: LIST\n  try     rlaunch doctor --help\n"),
            ("n1", "error: 'n1' is no option of rlaunch doctor\n  try     rlaunch doctor -H n1\n"),
            ("--lease 5s", "error: unknown option '--lease'\n  try     rlaunch doctor --help lists all options\n"),
            ("--ssh-fats -H n1", "error: unknown option '--ssh-fats'\n  try     --ssh-fast\n"),
            ("--ssh-fast=1 -H n1", "error: --ssh-fast takes no value, got '1'\n  try     --ssh-fast\n"),
            (
                "-H file",
                "error: -H takes names of hosts, but file is a file here\n  try     --hostfile file\n          -H file:1, if it is a host\n",
            ),
            (
                "-f gone",
                "error: cannot read the hostfile gone: no such file or directory\n  try     -H HOST,...   or a file with a host on each line, as: node01 slots=4\n",
            ),
        ] {
            assert_eq!(targets(line, &[]).unwrap_err(), expected, "{line}");
        }
        let least = targets("-H n1 --connect-timeout 10ms", &[]).unwrap_err();
        assert!(least.contains("at least 1.0s"), "{least}");
    }

    #[test]
    fn help_of_doctor_has_only_options_of_doctor() {
        let text = targets("-H n1 -h", &[]).unwrap();
        assert!(text.starts_with(USAGE) && text.contains("--ssh-fast") && !text.contains("--lease"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
