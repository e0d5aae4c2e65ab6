//! The facts about a host after its set-up, before its first rank.

use alloc::boxed::Box;
use alloc::vec::Vec;
use rlaunch_base::address::Interface;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::gpus::Devices;
use rlaunch_plan::gpus::Gpu;
use rlaunch_plan::topology::Topology;
use rlaunch_plan::tpu::TpuHost;
use rlaunch_protocol::wire::to_root::Hello;

/// The listener for MPI libraries of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MpiPort {
    /// Its port of 127.0.0.1.
    pub port: u16,
    /// The name of the host.
    pub host: OsBytes,
}

/// The facts about this node after the set-up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sandbox {
    /// The hello for the launcher.
    pub hello: Hello,
    /// CPUs that the agent may use; 0: not known.
    pub cpus: u32,
    /// Its processors, where ranks are bound by them.
    pub processors: Option<Box<Processors>>,
    /// Its GPUs, where ranks get GPU variables.
    pub gpus: Devices,
    /// Its network interfaces, where there are other hosts.
    pub interfaces: Vec<Interface>,
    /// The directory of this host for TORCHELASTIC_ERROR_FILE, without a slash at its end; empty: none.
    pub error_dir: OsBytes,
    /// There are devices whose memory outlives the process that has allocated it.
    pub devices: bool,
    /// A lock file of libtpu is in the way: a variable keeps ranks from taking it.
    pub skips_tpu_lock: bool,
    /// The socket at which this agent listens for clients of the store; empty: none.
    pub socket: OsBytes,
    /// The listener for MPI libraries.
    pub mpi: Option<Box<MpiPort>>,
    /// Its part in the slices of a job that has no other host. The driver leaves it empty.
    pub tpu_alone: Option<Box<TpuHost>>,
}

impl Sandbox {
    /// A host with four CPUs and nothing special.
    #[must_use]
    pub fn of(hello: Hello) -> Self {
        Self {
            hello,
            cpus: 4,
            processors: None,
            gpus: Devices::default(),
            interfaces: Vec::new(),
            error_dir: OsBytes::from("/tmp"),
            devices: false,
            skips_tpu_lock: false,
            socket: OsBytes::default(),
            mpi: None,
            tpu_alone: None,
        }
    }
}

/// The processors of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Processors {
    /// How they are connected.
    pub topology: Topology,
    /// Ranks get less time than their CPUs have: the host limits that for the container.
    pub has_quota: bool,
    /// Its GPUs and the CPUs near them, in the order of their numbers, where ranks have GPUs of their own.
    pub gpus: Vec<Gpu>,
}
