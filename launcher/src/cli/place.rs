//! Options about where ranks run.

use super::errors::CliError;
use super::mapping::{self, Listed};
use super::scan::Given;
use super::table::options;
use super::values::{self, Lookup};
use super::{binding, slices};
use rlaunch_base::nearest::nearest;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::bind::Bind;
use rlaunch_plan::hostlist::Entry;
use rlaunch_plan::place::map_by::MapBy;
use rlaunch_plan::place::{MOST_RANKS, Nodes, RankBy};

options! {
    Place, "Where to run", "placement";
    Hosts -b'H' -b'w' ["hosts", "host", "nodelist"] One("LIST"): "hosts: node[01-08], a:4,b:2 (4 and 2 slots)",
        "user@HOST, [IPv6]:4, a[1-9]!a5, ^FILE, @GROUP. A HOST",
        "alone has one slot, named twice two. With --hostfile:",
        "choose from it. Also -w, --nodelist.",
        "More: docs/reference/hostfile.md.";
    Hostfile -b'f' ["hostfile", "machinefile", "default-hostfile"] One("FILE"):
        "hosts, one a line: node01 slots=4, node02:4",
        "Also from HYDRA_HOST_FILE.";
    PerNode ["ppn", "ntasks-per-node", "nproc-per-node", "npernode", "perhost"] One("N"):
        "N ranks on each host (or: auto, cpu, gpu)",
        "Also -ppn N, --ntasks-per-node, --nproc-per-node.";
    Nodes ["nnodes", "nodes"] One("MIN[:MAX]"): "use so many of the hosts, all of them evenly",
        "With MAX, MIN is also what --min-hosts says.";
    MinHosts ["min-hosts"] One("N"): "start if N hosts are ready (default: all of them)",
        "The ranks of hosts that cannot be had are dropped,",
        "and the others numbered anew.",
        "More: docs/reference/hostfile.md.";
    Gpus ["gpus-per-rank", "gpus-per-task"] One("N"): "each rank sees N GPUs of its host, and no others",
        "Those of CUDA_VISIBLE_DEVICES, if you have set it:",
        "docs/reference/environment.md.",
        "Also --gpus-per-task N.";
    MapBy ["map-by"] One("UNIT"): "fill a host, then the next (default); or in turn",
        "slot, node, package, numa, l3, core or hwthread;",
        "also ppr:N:UNIT, seq, rankfile:FILE=F, pe-list=0,1,",
        "with :PE=N, :SPAN as in Open MPI.",
        "More: docs/reference/binding.md.";
    RankBy ["rank-by"] One("HOW"): "number ranks host by host, or in turn",
        "slot, node, fill or span (by the units of --map-by).",
        "The default is as they are mapped.";
    Slices ["slices"] One("N[,N]"): "run on N whole slices of the hostfile (slice=, id=)",
        "Of several numbers: the largest for which slices are",
        "up. Whole slices start, fail and come back.",
        "More: docs/guides/slices.md.";
    SpareSlices ["spare-slices"] One("N"): "keep N more of them ready, to replace lost ones",
        "Slices of the hostfile beyond these are spare too.";
    ScaleTimeout ["scale-timeout"] One("TIME"): "how long to wait for slices (default: 10m)",
        "Then the largest valid number that is up is taken.",
        "None is: exit code 75.";
    Grow ["grow"] One("WHEN"): "when to take more slices: next or now (default: next)",
        "next: at the next start of ranks. now: restart all",
        "ranks, 60s or more after their last start.";
    Discover ["discover"] One("CMD"): "run CMD every 10s; it prints the hosts that there are",
        "New slices join, and missing hosts are drained.",
        "CMD is for sh, and prints a hostfile.";
    Strict ["strict"] Nothing: "refuse more ranks on a host than it has slots";
    AllowPartial ["allow-partial"] Nothing: "run on some hosts of a TPU slice only",
        "libtpu waits for the other hosts without end.";
    CpusPerRank -b'c' ["cpus-per-rank", "cpus-per-task", "cpus-per-proc"] One("N"):
        "bind each rank to N cores of its own",
        "A later program may have another N.",
        "Open MPI's -c is -n here.",
        "More: docs/reference/binding.md.";
    BindTo ["bind-to", "cpu-bind"] One("UNIT"): "bind each rank to a unit of its host",
        "none, hwthread, core, l3, numa, package, or",
        "rank-list:0-3/4-7 (CPUs of local rank 0, of 1).",
        "The default is an even share of the cores.";
    ReportBindings ["report-bindings"] Nothing: "print the CPUs of each rank",
        "rlaunch map shows them without starting ranks.";
    DryRun ["dry-run"] Nothing: DRY_RUN;
    Json ["json"] Nothing: "print JSON, for programs to read",
        "With --dry-run, rlaunch map and rlaunch doctor.";
}

/// The help of `--dry-run` for a job.
pub(super) const DRY_RUN: &str = "only show where ranks would run, as rlaunch map";

/// `--ppn`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PerNode {
    /// A number of ranks.
    Ranks(u32),
    /// As many as this machine has of something; the option, for messages.
    Counted(OsBytes, Counted),
}

/// Things that can be counted on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counted {
    /// GPUs, else processors.
    Auto,
    /// Processors.
    Cpu,
    /// GPUs.
    Gpu,
}

/// An option with its value, for messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Said {
    pub(crate) option: OsBytes,
    pub(crate) value: OsBytes,
}

/// Options of each program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Own {
    /// `-H`, in their order.
    pub(crate) lists: Vec<Said>,
    /// `--hostfile`, in their order.
    pub(crate) files: Vec<Said>,
    /// `--ppn`.
    pub(crate) ppn: Option<PerNode>,
    /// `--cpus-per-rank`.
    pub(super) cores: Option<u32>,
    /// `--map-by`.
    pub(super) map_by: Option<(Said, MapBy)>,
    /// The hosts that a pool has given.
    pub(crate) granted: Vec<Entry>,
}

/// Options of the whole job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Whole {
    /// `--nnodes`.
    pub(crate) nnodes: Option<Nodes>,
    /// `--min-hosts`.
    pub(crate) min_hosts: Option<u32>,
    /// `--gpus-per-rank`.
    pub(crate) gpus: Option<u32>,
    /// `--map-by` of the first program.
    pub(crate) map_by: MapBy,
    /// The cores of each rank of each program.
    pub(super) own_cores: Vec<u32>,
    /// The file that it names, once it was read.
    pub(super) listed: Option<Listed>,
    /// `--rank-by`.
    pub(crate) rank_by: Option<RankBy>,
    /// `--slices`, `--spare-slices`, `--scale-timeout`, `--grow`, `--discover`.
    pub(crate) slices: slices::Args,
    /// `--strict`.
    pub(crate) strict: bool,
    /// `--allow-partial`.
    pub(crate) allow_partial: bool,
    /// The binding of ranks.
    pub(crate) bind: Bind,
    pub(super) dry_run: bool,
    pub(super) json: bool,
}

impl Opt {
    /// Whether each program has its own.
    pub(super) const fn is_own(self) -> bool {
        self.names_hosts() || matches!(self, Self::PerNode | Self::MapBy | Self::CpusPerRank)
    }

    /// Whether it says which hosts there are.
    pub(super) const fn names_hosts(self) -> bool {
        matches!(self, Self::Hosts | Self::Hostfile)
    }
}

impl Own {
    /// Takes what is this program's own.
    pub(super) fn take(&mut self, opt: Opt, given: Given) -> Result<(), CliError> {
        let said = Said { option: given.spelled, value: given.value };
        match opt {
            Opt::Hosts => self.lists.push(said),
            Opt::Hostfile if said.value.is_empty() => {
                let Said { option, value } = said;
                let hint = Some(format!("-H HOST,...   or   {}", values::spell(&option, "FILE")).into());
                return Err(CliError::Value { option, takes: "a file".into(), got: value, hint });
            }
            Opt::Hostfile if said.value.as_slice() == b"-" => {
                let Said { option, value } = said;
                let takes = "a file: standard input is for rank 0".into();
                let hint = format!("{}   in a shell that knows it, as bash", values::spell(&option, "<(COMMAND)"));
                return Err(CliError::Value { option, takes, got: value, hint: Some(hint.into()) });
            }
            Opt::Hostfile => self.files.push(said),
            Opt::PerNode => self.ppn = Some(per_node(&said.option, &said.value)?),
            Opt::CpusPerRank => self.cores = Some(values::count(&said.option, &said.value, binding::MOST_CORES)?),
            Opt::MapBy => {
                let map_by = mapping::map_by(&said.option, &said.value)?;
                self.map_by = Some((said, map_by));
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether other hosts may run it.
    pub(super) fn names_hosts(&self) -> bool {
        !(self.lists.is_empty() && self.files.is_empty() && self.granted.is_empty())
    }

    /// Fills in values that neither a flag nor a variable of ours gave.
    pub(super) fn fill(&mut self, env: Lookup<'_>) {
        const VARIABLE: &str = "HYDRA_HOST_FILE";
        if self.lists.is_empty() && self.files.is_empty() {
            self.files.extend(values::variable(env, VARIABLE).map(|value| Said { option: VARIABLE.into(), value }));
        }
    }
}

impl Whole {
    /// Number of hosts that are enough to start, if fewer than all are.
    pub(super) fn least(&self) -> Option<u32> {
        self.min_hosts.or(self.nnodes.filter(|nodes| nodes.min < nodes.max).map(|nodes| nodes.min))
    }

    /// Takes what is for the whole job.
    pub(super) fn take(&mut self, opt: Opt, given: &Given) -> Result<(), CliError> {
        let Given { spelled, value, .. } = given;
        match opt {
            Opt::Nodes => self.nnodes = Some(nodes(spelled, value)?),
            Opt::MinHosts => self.min_hosts = Some(values::count(spelled, value, MOST_RANKS)?),
            Opt::Gpus => self.gpus = Some(values::count(spelled, value, MOST_RANKS)?),
            Opt::RankBy => self.rank_by = Some(values::choice(spelled, value, &mapping::RANK_BY)?),
            Opt::Slices => self.slices.take_sizes(spelled, value)?,
            Opt::SpareSlices => self.slices.take_spares(spelled, value)?,
            Opt::ScaleTimeout => self.slices.take_timeout(spelled, value)?,
            Opt::Grow => self.slices.take_grow(spelled, value)?,
            Opt::Discover => self.slices.take_discover(spelled, value)?,
            Opt::Strict => self.strict = true,
            Opt::AllowPartial => self.allow_partial = true,
            Opt::BindTo => self.bind.to = binding::bind_to(spelled, value)?,
            Opt::ReportBindings => self.bind.report = true,
            Opt::DryRun => self.dry_run = true,
            Opt::Json => self.json = true,
            Opt::Hosts | Opt::Hostfile | Opt::PerNode | Opt::MapBy | Opt::CpusPerRank => {}
        }
        Ok(())
    }
}

fn per_node(option: &OsBytes, value: &OsBytes) -> Result<PerNode, CliError> {
    let words = [("auto", Counted::Auto), ("cpu", Counted::Cpu), ("gpu", Counted::Gpu)];
    if let Some((_, counted)) = words.iter().find(|(word, _)| value.as_slice() == word.as_bytes()) {
        return Ok(PerNode::Counted(option.clone(), *counted));
    }
    if value.iter().any(u8::is_ascii_alphabetic) {
        let takes = "a whole number above 0, auto, cpu or gpu".into();
        let meant = nearest(value, words.iter().map(|(word, _)| *word)).unwrap_or("4");
        let hint = Some(values::spell(option, meant).into());
        return Err(CliError::Value { option: option.clone(), takes, got: value.clone(), hint });
    }
    values::count(option, value, MOST_RANKS).map(PerNode::Ranks)
}

/// `2`, torchrun's `2:4`, srun's `2-4`.
fn nodes(option: &OsBytes, value: &OsBytes) -> Result<Nodes, CliError> {
    let mut parts = value.splitn(2, |b| matches!(b, b':' | b'-'));
    let number = |part: &[u8]| {
        let digits = std::str::from_utf8(part).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
        digits.parse::<u32>().ok().filter(|n| *n > 0)
    };
    let min = parts.next().and_then(number);
    let max = parts.next().map_or(min, number);
    match (min, max) {
        (Some(min), Some(max)) if min <= max => Ok(Nodes { min, max }),
        (Some(min), Some(max)) => Err(CliError::Value {
            option: option.clone(),
            takes: "a range MIN:MAX whose MIN is not larger than its MAX".into(),
            got: value.clone(),
            hint: Some(values::spell(option, &format!("{max}:{min}")).into()),
        }),
        _ => Err(CliError::Value {
            option: option.clone(),
            takes: "a number of hosts, or a range MIN:MAX".into(),
            got: value.clone(),
            hint: Some(format!("{}   or   {}", values::spell(option, "2"), values::spell(option, "2:4")).into()),
        }),
    }
}
