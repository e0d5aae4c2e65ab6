//! Every environment variable that rlaunch sets, reads or removes: a public interface, in one registry.
//!
//! One file per contract: the names with their meaning, and beside them the code that writes the values. A test compares the
//! two; the tables of docs/reference/environment.md are generated from here ([`document`]), and another test fails when they are out of date.

mod block;
mod gpu_variables;
mod hook_variables;
mod inherit;
mod jax;
mod login_variables;
mod net;
mod ompi;
mod others;
mod own;
mod pmi;
mod python;
mod round_variables;
mod slurm;
mod spawned;
mod torch;
mod tpu;
mod tpu_lock;

pub use block::{Host, MpiHost, RankVariables, SlurmStep, common, of_rank};
pub use gpu_variables::without;
pub use hook_variables::of_command;
pub use inherit::{Base, Export, ExportError, base, glob};
pub use login_variables::{abroad, of_login, value};
pub use round_variables::OfRound;
pub use spawned::{is_name, spawned};
pub use tpu::{named_chips, without_tpu};

use alloc::string::String;
use alloc::vec::Vec;

/// The use of a variable by rlaunch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Set for every rank, in place of what the caller has.
    Set,
    /// Set where the caller has not set it.
    Default,
    /// The same; but where the caller is a rank of another job, its value is that job's, and none of the user's.
    Meeting,
    /// The caller's is a list, of which each rank gets its part where that was asked for; else it passes on.
    Narrowed,
    /// Taken out of the environment that the ranks inherit.
    Removed,
    /// Read by rlaunch; it passes on to the ranks.
    Read,
    /// Read by rlaunch and taken out: it means this launch, not one that a rank makes.
    ReadOnce,
    /// Set for commands that rlaunch runs at a restart or at the end, and for no rank.
    ForHooks,
    /// True of one host: on others the value there stands.
    Host,
    /// The same where another user logs in there.
    User,
    /// True of the host where rlaunch was started. Ranks on other hosts have none.
    LoginHost,
    /// Set on TPU hosts in place of what the environment has; elsewhere true of one host.
    Tpu,
}

impl Role {
    /// The caller's value does not reach the ranks by itself.
    const fn hides_callers(self) -> bool {
        matches!(self, Self::Set | Self::Removed | Self::ReadOnce | Self::ForHooks)
    }

    /// A contract writes it.
    const fn is_written(self) -> bool {
        matches!(self, Self::Set | Self::Default | Self::Meeting | Self::Narrowed | Self::Tpu)
    }

    /// A host other than the launcher's may know better.
    const fn is_hosts(self) -> bool {
        matches!(self, Self::Host | Self::User | Self::Tpu)
    }

    const fn in_words(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Default | Self::Meeting => "set unless you set it",
            Self::Narrowed => "yours, narrowed",
            Self::Removed => "removed",
            Self::Read => "read",
            Self::ReadOnce => "read, removed",
            Self::ForHooks => "for commands",
            Self::Host => "the host's",
            Self::User => "the user's there",
            Self::LoginHost => "stays",
            Self::Tpu => "set on TPU hosts",
        }
    }
}

/// A variable.
#[derive(Clone, Copy, Debug)]
pub struct Var {
    /// Its name; of a family its beginning and `*`.
    pub name: &'static str,
    /// Its use.
    pub role: Role,
    /// Its meaning, in one line.
    pub doc: &'static str,
    /// Whether a rank gets it anew when the program restarts a function within its processes.
    pub each_round: bool,
}

/// The variables of one convention.
#[derive(Clone, Copy, Debug)]
pub struct Contract {
    /// Whose convention it is.
    pub title: &'static str,
    /// Remarks about the whole contract.
    pub about: &'static str,
    /// The variables, sorted by name.
    pub vars: &'static [Var],
    /// Groups of variables with a common beginning, where no name above says otherwise.
    pub families: &'static [Var],
}

/// All of them.
pub const REGISTRY: [&Contract; 14] = [
    &own::CONTRACT,
    &hook_variables::CONTRACT,
    &python::CONTRACT,
    &torch::CONTRACT,
    &gpu_variables::CONTRACT,
    &net::CONTRACT,
    &jax::CONTRACT,
    &tpu_lock::CONTRACT,
    &others::CONTRACT,
    &ompi::CONTRACT,
    &pmi::CONTRACT,
    &slurm::CONTRACT,
    &tpu::CONTRACT,
    &login_variables::CONTRACT,
];

/// For each first byte the lengths of the names that begin with it, as bits. Most variables of a caller are not known here, and all of
/// them are looked up before the first rank starts: this table decides by one load.
static LENGTHS: [u64; 256] = lengths();

const fn lengths() -> [u64; 256] {
    let mut table = [0; 256];
    let mut contract = 0;
    while contract < REGISTRY.len() {
        let vars = REGISTRY[contract].vars;
        let mut var = 0;
        while var < vars.len() {
            let name = vars[var].name.as_bytes();
            assert!(name.len() < 64, "a name of 64 bytes or more needs a wider table");
            table[name[0] as usize] |= 1 << name.len();
            var += 1;
        }
        contract += 1;
    }
    table
}

/// The entry of a name; `None`: rlaunch does not use it.
#[must_use]
pub fn lookup(name: &[u8]) -> Option<&'static Var> {
    let first = *name.first()?;
    let lengths = LENGTHS.get(usize::from(first)).copied().unwrap_or_default();
    let own = || {
        REGISTRY.iter().find_map(|contract| {
            let at = contract.vars.binary_search_by(|var| var.name.as_bytes().cmp(name)).ok()?;
            contract.vars.get(at)
        })
    };
    let listed = name.len() < 64 && lengths >> name.len() & 1 == 1;
    listed.then(own).flatten().or_else(|| REGISTRY.iter().flat_map(|c| c.families).find(|family| family.covers(name)))
}

impl Var {
    const fn new(name: &'static str, role: Role, doc: &'static str) -> Self {
        Self { name, role, doc, each_round: false }
    }

    /// Marks a variable that a rank gets anew for each round.
    const fn each_round(self) -> Self {
        Self { each_round: true, ..self }
    }

    fn covers(&self, name: &[u8]) -> bool {
        self.name.as_bytes().first() == name.first()
            && self.name.strip_suffix('*').is_some_and(|start| name.starts_with(start.as_bytes()))
    }
}

/// The tables of docs/reference/environment.md. Variables that are removed for the same reason share a row.
#[must_use]
pub fn document() -> String {
    let mut text = String::new();
    for contract in REGISTRY {
        for part in ["\n## ", contract.title, "\n\n", contract.about, "\n\n| name | use | meaning |\n|---|---|---|\n"] {
            text.push_str(part);
        }
        let mut removed: Vec<(&str, String)> = Vec::new();
        for var in contract.vars.iter().chain(contract.families) {
            let row = removed.iter_mut().find(|(doc, _)| var.role == Role::Removed && *doc == var.doc);
            match row {
                Some((_, names)) => names.push_str(&["`, `", var.name].concat()),
                None if var.role == Role::Removed => removed.push((var.doc, var.name.into())),
                None => write_row(&mut text, var.name, var),
            }
        }
        for (doc, names) in removed {
            write_row(&mut text, &names, &Var::new("", Role::Removed, doc));
        }
    }
    text
}

fn write_row(text: &mut String, names: &str, var: &Var) {
    let round = if var.each_round { ", each round" } else { "" };
    for part in ["| `", names, "` | ", var.role.in_words(), round, " | ", var.doc, " |\n"] {
        text.push_str(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Tier;
    use alloc::collections::BTreeSet;
    use core::net::Ipv4Addr;
    use rlaunch_base::id::{AppIndex, JobId, LocalRank, Rank, WorldId};
    use rlaunch_base::os_strings::OsStrings;

    pub(super) const HOST: Host<'_> = Host {
        job: JobId([7; 16]),
        world_size: 8,
        local_size: 4,
        node_index: 1,
        nodes: 2,
        app: AppIndex::new(1),
        app_name: b"eval",
        app_size: 3,
        apps: 2,
        group: b"gen",
        world: WorldId::new(1),
        master_addr: b"127.0.0.1",
        master_port: 20000,
        agent_store: false,
        cpus: Some(9),
        tier: Tier::T1,
        skips_tpu_lock: true,
        socket: b"/s",
        interface: Some(b"eth0"),
        interface_asked: true,
        jax: true,
        mpi: Some(MpiHost {
            port: 4711,
            namespace: 1,
            name: b"node1",
            is_crowded: true,
            is_spawned: true,
            network: Some((Ipv4Addr::new(10, 1, 0, 0), 16)),
        }),
        local_devices: Some(2),
        restart: 0,
        max_restarts: 0,
        healthy: 9,
        round: 3,
        slurm: Some(SlurmStep { hosts: b"node[0,2]", tasks: b"4(x2)", most_tasks: 4, task_ids: b"4,5,6,7" }),
        tpu: None,
    };
    pub(super) const VALUES: RankVariables<'_> = RankVariables {
        rank: Rank::new(4_294_967_295),
        healthy: Rank::new(8),
        initial: Rank::new(7),
        local_rank: LocalRank::new(3),
        app_rank: 2,
        tied: 2,
        error_file: b"/e",
        gpus: Some((&[rlaunch_plan::gpus::CUDA, rlaunch_plan::gpus::HIP], b"6,7")),
        slurm: true,
        threads: None,
        mpi: true,
        tpu: None,
    };

    fn entries(host: &Host<'_>, pinned: &[&str]) -> Vec<String> {
        entries_of(host, &VALUES, pinned)
    }

    fn entries_of(host: &Host<'_>, values: &RankVariables<'_>, pinned: &[&str]) -> Vec<String> {
        let pinned: OsStrings = pinned.iter().collect();
        let mut own = OsStrings::default();
        of_rank(values, &pinned, &mut own);
        let shared = common(host, &pinned);
        shared.iter().chain(own.iter()).map(|e| String::from_utf8(e.to_vec()).unwrap()).collect()
    }

    fn names(role: fn(Role) -> bool) -> BTreeSet<&'static str> {
        REGISTRY.iter().flat_map(|c| c.vars).filter(|v| role(v.role)).map(|v| v.name).collect()
    }

    #[test]
    fn names_are_sorted_and_unique() {
        let mut all = BTreeSet::new();
        for contract in REGISTRY {
            assert!(contract.vars.is_sorted_by(|a, b| a.name < b.name), "{} is not sorted", contract.title);
            for var in contract.vars.iter().chain(contract.families) {
                assert!(all.insert(var.name), "{} is there twice", var.name);
                assert!(!var.doc.contains(['|', '\n']), "{}", var.name);
            }
            assert!(contract.vars.iter().all(|v| !v.name.contains('*')));
            assert!(contract.families.iter().all(|v| v.name.ends_with('*') && !v.role.is_written()));
        }
    }

    #[test]
    fn every_name_is_found() {
        for var in REGISTRY.iter().flat_map(|c| c.vars) {
            assert_eq!(lookup(var.name.as_bytes()).map(|v| v.name), Some(var.name));
        }
        for nobodys in ["", "RAN", "RANKS", "EDITOR", "P", "\u{fffd}"] {
            assert!(lookup(nobodys.as_bytes()).is_none(), "{nobodys}");
        }
    }

    #[test]
    fn set_variables_are_registered() {
        let tpu = rlaunch_plan::tpu::TpuHost::example();
        let chips = tpu.rank(LocalRank::new(1));
        let (host, values) = (Host { tpu: Some(&tpu), ..HOST }, RankVariables { tpu: Some(&chips), ..VALUES });
        let set: Vec<String> = entries_of(&host, &values, &[]);
        let written: BTreeSet<&str> = set.iter().map(|e| e.split_once('=').unwrap().0).collect();
        assert_eq!(written.len(), set.len(), "a name is set twice");
        assert_eq!(written, names(Role::is_written));
    }

    #[test]
    fn values_are_torchruns() {
        let set = entries(&HOST, &[]);
        for expected in [
            "RANK=4294967295",
            "WORLD_SIZE=8",
            "LOCAL_RANK=3",
            "LOCAL_WORLD_SIZE=4",
            "GROUP_RANK=1",
            "GROUP_WORLD_SIZE=2",
            "ROLE_NAME=eval",
            "ROLE_RANK=2",
            "ROLE_WORLD_SIZE=3",
            "RLAUNCH_APP=1",
            "RLAUNCH_APPS=2",
            "MASTER_ADDR=127.0.0.1",
            "MASTER_PORT=20000",
            "TORCHELASTIC_RESTART_COUNT=0",
            "TORCHELASTIC_USE_AGENT_STORE=False",
            "TORCHELASTIC_RUN_ID=07070707070707070707070707070707",
            "TORCHELASTIC_ERROR_FILE=/e",
            "OMP_NUM_THREADS=2",
            "RLAUNCH_TIER=t1",
            "RLAUNCH_RANK=8",
            "RLAUNCH_WORLD_SIZE=9",
            "RLAUNCH_INITIAL_RANK=7",
            "RLAUNCH_ROUND=3",
            "JAX_COORDINATOR_ADDRESS=127.0.0.1:20001",
            "OMPI_MCA_orte_hnp_uri=0.0;tcp://127.0.0.1:1",
            "NODE_RANK=1",
            "CUDA_VISIBLE_DEVICES=6,7",
            "HIP_VISIBLE_DEVICES=6,7",
            "JAX_LOCAL_DEVICE_IDS=0,1",
            "PMI_RANK=4294967295",
            "PMI_LOCAL_RANK=3",
            "PMI_SIZE=8",
            "MV2_COMM_WORLD_RANK=4294967295",
            "MV2_COMM_WORLD_LOCAL_RANK=3",
            "SLURM_PROCID=4294967295",
            "SLURM_LOCALID=3",
            "SLURM_NODEID=1",
            "SLURM_NTASKS=8",
            "SLURM_NNODES=2",
            "SLURM_TASKS_PER_NODE=4(x2)",
            "SLURM_STEP_NODELIST=node[0,2]",
            "SLURM_NTASKS_PER_NODE=4",
            "SLURM_GTIDS=4,5,6,7",
        ] {
            assert!(set.iter().any(|e| e == expected), "{expected} in {set:?}");
        }
        let set = entries_of(&Host { jax: false, mpi: None, ..HOST }, &RankVariables { mpi: false, ..VALUES }, &[]);
        assert!(
            !set.iter().any(|e| ["PMI_ID", "PMI_PORT", "PMIX", "OMPI_MCA_", "MPIR_", "I_MPI_", "JAX_"]
                .iter()
                .any(|start| e.starts_with(start))),
            "{set:?}"
        );
    }

    #[test]
    fn outside_tpu_hosts_none_of_their_variables_is_set() {
        let set = entries(&HOST, &[]);
        assert!(!set.iter().any(|e| ["TPU_", "MEGASCALE_"].iter().any(|start| e.starts_with(start))), "{set:?}");
    }

    #[test]
    fn outside_slurm_none_of_its_variables_is_set() {
        let set = entries_of(&Host { slurm: None, ..HOST }, &RankVariables { slurm: false, ..VALUES }, &[]);
        assert!(!set.iter().any(|e| e.starts_with("SLURM_")), "{set:?}");
    }

    #[test]
    fn network_of_open_mpi_is_that_of_the_interface_unless_the_user_has_another() {
        let network = |pinned: &[&str]| -> Vec<String> {
            let set = entries(&HOST, pinned);
            set.into_iter().filter(|e| e.starts_with("OMPI_MCA_btl_tcp_if_include=")).collect()
        };
        assert_eq!(network(&[]), ["OMPI_MCA_btl_tcp_if_include=10.1.0.0/16"]);
        assert_eq!(network(&["OMPI_MCA_btl_tcp_if_include"]), [""; 0]);
    }

    #[test]
    fn ranks_of_mpi_yield_where_they_are_more_than_the_processors_unless_the_user_decides() {
        const YIELDS: [&str; 3] =
            ["OMPI_MCA_mpi_oversubscribe=1", "MPIR_CVAR_ENABLE_HEAVY_YIELD=1", "I_MPI_THREAD_YIELD=3"];
        let yields = |is_crowded, pinned: &[&str]| {
            let host = Host { mpi: HOST.mpi.map(|mpi| MpiHost { is_crowded, ..mpi }), ..HOST };
            let set = entries(&host, pinned);
            YIELDS.into_iter().filter(|line| set.iter().any(|entry| entry == line)).count()
        };
        assert_eq!((yields(true, &[]), yields(false, &[])), (3, 0));
        assert_eq!(yields(true, &["OMPI_MCA_mpi_oversubscribe"]), 2);
        let base = base([&b"OMPI_MCA_mpi_oversubscribe=0"[..]].into_iter(), &[]);
        assert!(base.pinned.contains(b"OMPI_MCA_mpi_oversubscribe"), "the environment of the user decides");
    }

    #[test]
    fn interfaces_are_named_where_there_is_one_and_nccls_only_if_it_was_asked_for() {
        let named = |interface, interface_asked| -> Vec<String> {
            let set = entries(&Host { interface, interface_asked, ..HOST }, &["TP_SOCKET_IFNAME"]);
            set.into_iter().filter(|e| e.contains("_SOCKET_IFNAME=")).collect()
        };
        assert_eq!(named(Some(b"ib0"), true), ["GLOO_SOCKET_IFNAME=ib0", "NCCL_SOCKET_IFNAME==ib0"]);
        assert_eq!(named(Some(b"ib0"), false), ["GLOO_SOCKET_IFNAME=ib0"]);
        assert_eq!(named(None, true), [""; 0]);
    }

    #[test]
    fn threads_are_counted_only_where_ranks_share_a_host() {
        let count = |local_size, cpus| {
            let set = entries(&Host { local_size, cpus, ..HOST }, &[]);
            set.into_iter().find(|e| e.starts_with("OMP_NUM_THREADS="))
        };
        assert_eq!(count(1, Some(8)), None);
        assert_eq!(count(4, None), None);
        assert_eq!(count(16, Some(8)).as_deref(), Some("OMP_NUM_THREADS=1"));
    }

    #[test]
    fn a_pinned_name_is_not_set() {
        let set = entries(&HOST, &["MASTER_PORT", "RANK", "CUDA_VISIBLE_DEVICES"]);
        assert!(set.iter().any(|e| e == "CUDA_VISIBLE_DEVICES=6,7"), "what the user gave is shared out");
        assert!(!set.iter().any(|e| e.starts_with("MASTER_PORT=") || e.starts_with("RANK=")));
        assert!(set.iter().any(|e| e.starts_with("ROLE_RANK=")));
    }

    #[test]
    fn a_value_cannot_smuggle_in_a_second_entry() {
        let set = entries(&Host { master_addr: b"a\0LD_PRELOAD=x", ..HOST }, &[]);
        assert!(set.iter().any(|e| e == "MASTER_ADDR=a") && !set.iter().any(|e| e.starts_with("LD_PRELOAD")));
    }

    #[test]
    fn a_family_takes_what_no_name_claims() {
        assert_eq!(lookup(b"OMPI_COMM_WORLD_RANK").map(|v| v.role), Some(Role::Set));
        assert_eq!(lookup(b"OMPI_COMM_WORLD_NEW").map(|v| v.role), Some(Role::Removed));
        assert_eq!(lookup(b"SLURM_STEP_ID").map(|v| v.role), Some(Role::Removed));
        assert!(lookup(b"SLURM_JOB_ID").is_none() && lookup(b"OMPI_MCA_btl").is_none());
    }
}
