//! Options about other hosts: how they are reached, and how long they live without word from us.

use super::allocation::Launcher;
use super::errors::CliError;
use super::scan::Given;
use super::table::options;
use super::{pool, values};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_plan::bootstrap::{Carrier, SrunPlan, SshOptions, Transport};
use rlaunch_protocol::settings::HostPlan;
use rlaunch_protocol::travel::Resource;

/// The default of the time that a host may take to be ready.
pub(super) const CONNECT: Span = Span::from_secs(60);
/// A shorter one would end jobs for what any network does now and then.
const SHORTEST: Span = Span::from_secs(2);

options! {
    Reach, "Other hosts", "ssh";
    Launcher ["launcher", "bootstrap"] One("WHAT"): "how agents are started there (default: auto)",
        "auto: srun in an allocation of Slurm, else ssh.",
        "local: all ranks on this host. ssh, slurm,",
        "exec:'CMD {host}' (docs/guides/ssh-cluster.md).";
    Transport ["transport"] One("WHAT"): "with srun: auto, tcp or stdio (default: auto)",
        "auto: TCP, or the streams of an srun for each",
        "host where agents cannot connect to this one.";
    Lease ["lease"] One("TIME"): "a host unheard of for so long is lost (default: 30s)",
        "It ends its ranks by itself before that. 2s at least.";
    SuspendLimit ["suspend-limit"] One("TIME"): "how long Slurm may suspend the job (default: 24h)",
        "After that its hosts count as lost.";
    Connect ["connect-timeout"] One("T"): "how long a host may take to be ready (default: 60s)";
    Prompt ["ssh-prompt"] Nothing: "let ssh ask for passwords, one host at a time";
    Fast ["ssh-fast"] Nothing: "a cheaper key exchange, where both ends have it",
        "Not safe against recordings that a later quantum",
        "computer may read.";
    AgentPath ["agent-path"] One("PATH"): "rlaunch on the hosts, where ours cannot run";
    Interface ["interface"] One("NAME"): "MASTER_ADDR: this interface of rank 0's host",
        "The default is where ssh has reached that host.",
        "Also what gloo and NCCL use, on hosts that have it.",
        "All ranks on one host meet at 127.0.0.1 anyway.";
    Limits ["propagate-limits"] One("LIST"): "limits that travel (default: core,stack)",
        "all, none, or of as,core,cpu,data,fsize,nofile,",
        "nproc,rss,stack; never that on locked memory.";
    Pool ["pool"] One("NAME"): "hosts of this pool, which are ready (rlaunch pool)",
        "As many as -n or --nnodes need, else all.",
        "More: docs/guides/pools.md.";
    Wait ["wait"] Maybe("TIME"): "wait until other jobs on the pool have ended",
        "--wait=10m: at most so long.";
    Evict ["evict"] Nothing: "end the jobs that have the pool's hosts",
        "They get SIGTERM, and this job starts after them.";
}

/// How other hosts are reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reach {
    /// `--launcher`.
    pub(crate) launcher: Launcher,
    /// `--transport`.
    pub(crate) transport: Transport,
    /// How srun is called, where it is what reaches the hosts.
    pub(crate) srun: Option<SrunPlan>,
    /// `--ssh-prompt`.
    pub(crate) prompt: bool,
    /// `--ssh-fast`.
    pub(crate) fast: bool,
    /// `--agent-path`.
    pub(crate) agent_path: Option<OsBytes>,
    /// `--connect-timeout`.
    pub(crate) limit: Span,
    /// `--propagate-limits`.
    pub(crate) limits: Vec<Resource>,
    /// `--pool`, `--wait`, `--evict`.
    pub(crate) pool: pool::Args,
}

impl Reach {
    /// The carrier of agents to the hosts. `fast` is for ssh.
    pub(crate) fn carrier(&self, fast: bool) -> Carrier {
        match (&self.srun, &self.launcher) {
            (Some(plan), _) => Carrier::Srun(plan.clone()),
            (None, Launcher::Exec(template)) => Carrier::Exec(template.clone()),
            (None, Launcher::Auto | Launcher::Local | Launcher::Ssh | Launcher::Slurm) => {
                Carrier::Ssh(SshOptions { prompt: self.prompt, fast, no_master: false })
            }
        }
    }

    /// Whether this host too gets its agent by the carrier, and not from the launcher itself.
    pub(crate) fn carries_all(&self) -> bool {
        self.srun.is_some() || matches!(self.launcher, Launcher::Exec(_))
    }
}

#[derive(Debug)]
pub(super) struct Args {
    hosts: HostPlan,
    reach: Reach,
}

impl Default for Args {
    fn default() -> Self {
        let reach = Reach {
            launcher: Launcher::Auto,
            transport: Transport::Auto,
            srun: None,
            prompt: false,
            fast: false,
            agent_path: None,
            limit: CONNECT,
            limits: Resource::USUAL.to_vec(),
            pool: pool::Args::default(),
        };
        Self { hosts: HostPlan::default(), reach }
    }
}

impl Args {
    pub(super) fn take(&mut self, opt: Opt, given: Given) -> Result<(), CliError> {
        let (option, value) = (&given.spelled, &given.value);
        match opt {
            Opt::Launcher => self.reach.launcher = Launcher::parse(option, value)?,
            Opt::Transport => self.reach.transport = transport(option, value)?,
            Opt::Lease => self.hosts.lease = values::span_from(option, value, SHORTEST)?,
            Opt::SuspendLimit => self.hosts.suspend_limit = values::span_from(option, value, SHORTEST)?,
            Opt::Connect => self.reach.limit = values::span_from(option, value, Span::from_secs(1))?,
            Opt::Prompt => self.reach.prompt = true,
            Opt::Fast => self.reach.fast = true,
            Opt::AgentPath if !value.starts_with(b"/") => {
                let hint = Some(values::spell(option, "/usr/local/bin/rlaunch").into());
                let takes = "an absolute path, which is looked for on the hosts".into();
                return Err(CliError::Value { option: given.spelled, takes, got: given.value, hint });
            }
            Opt::AgentPath => self.reach.agent_path = Some(given.value),
            Opt::Interface if !is_interface(value) => {
                return Err(CliError::Value {
                    option: given.spelled,
                    takes: "the name of a network interface".into(),
                    got: given.value,
                    hint: Some("ip -brief address   lists them".into()),
                });
            }
            Opt::Interface => self.hosts.interface = given.value,
            Opt::Limits => self.reach.limits = limits(option, value)?,
            Opt::Pool => self.reach.pool.take_pool(option, value)?,
            Opt::Wait => self.reach.pool.take_wait(option, value)?,
            Opt::Evict => self.reach.pool.take_evict(option),
        }
        Ok(())
    }

    pub(super) fn hosts(&self) -> HostPlan {
        self.hosts.clone()
    }

    pub(super) fn reach(self) -> Reach {
        self.reach
    }
}

fn transport(option: &OsBytes, value: &OsBytes) -> Result<Transport, CliError> {
    values::choice(option, value, &[("auto", Transport::Auto), ("tcp", Transport::Tcp), ("stdio", Transport::Stdio)])
}

/// As the kernel takes them: 15 bytes at most, without a blank or a slash.
fn is_interface(name: &OsBytes) -> bool {
    (1..=15).contains(&name.len()) && name.iter().all(|b| b.is_ascii_graphic() && *b != b'/')
}

/// `core,stack`, `all`, `none`; also as srun and `ulimit` spell them.
fn limits(option: &OsBytes, value: &OsBytes) -> Result<Vec<Resource>, CliError> {
    match value.to_ascii_lowercase().as_slice() {
        b"all" => return Ok(Resource::ALL.to_vec()),
        b"none" => return Ok(Vec::new()),
        _ => {}
    }
    let mut limits = Vec::new();
    for name in value.split(|b| *b == b',') {
        let Some(resource) = Resource::of_name(name) else {
            let hint = if name.eq_ignore_ascii_case(b"memlock") {
                "leave it out: how much memory may be locked is each host's own matter".into()
            } else {
                values::spell(option, "core,stack,nofile").into()
            };
            return Err(CliError::Value {
                option: option.clone(),
                takes: "all, none, or a list of as, core, cpu, data, fsize, nofile, nproc, rss and stack".into(),
                got: value.clone(),
                hint: Some(hint),
            });
        };
        if !limits.contains(&resource) {
            limits.push(resource);
        }
    }
    Ok(limits)
}
