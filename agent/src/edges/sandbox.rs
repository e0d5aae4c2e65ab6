//! The set-up before the first rank: a spawn thread, a tier of containment, a port.

use super::renew::Renewing;
use super::{Edges, port, processors};
use crate::edges::part::Base;
use crate::edges::watch::Source;
use rlaunch_base::address::{self, Interface};
use rlaunch_base::capped::Capped;
use rlaunch_base::id::JobId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_core::node::{MpiPort, NodeEvent, Processors, Sandbox};
use rlaunch_plan::gpus::{Devices, Share};
use rlaunch_plan::tpu::TpuFacts;
use rlaunch_protocol::settings::{Contain, EndingPlan, Settings, Tier};
use rlaunch_protocol::travel::{Lowered, Travel};
use rlaunch_protocol::wire::peer_identity::{Address, HOST_ADDRESSES};
use rlaunch_protocol::wire::to_node::{PortPlan, Start};
use rlaunch_protocol::wire::to_root::{Hello, NodeRefusal, Reached};
use rlaunch_sys::facts;
use rlaunch_sys::ns::{self, Init, NsError};
use rlaunch_sys::origin::{Origin, set_creation_mask};
use rlaunch_sys::port::{BLOCK, Port, choose};
use rlaunch_sys::spawn::{Outcome, SpawnPort};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;

/// Why there is no PID namespace where one could be had.
const AMD_GPUS: &str = "AMD GPUs were not tried in a PID namespace yet (--contain t1 makes one)";
const PERHAPS_GPUS: &str = "/dev cannot be read, so there may be AMD GPUs, which were not tried in a PID namespace";

/// Resources that are held until the agent ends.
#[derive(Default)]
pub(super) struct Held {
    spawn: Option<SpawnPort>,
    job: Option<JobId>,
    /// The chosen port.
    port: Option<Port>,
    /// The port that the user gave. It stays when rounds choose others.
    claim: Option<Port>,
    host: Vec<u8>,
    near: bool,
    begun: Option<Begun>,
    /// The same for the ranks of another generation.
    pub(super) renewing: Option<Renewing>,
    /// The cores of the ranks. Other jobs take others.
    cores: processors::Cores,
    /// Limits of the launcher's host that are lower here.
    lowered: Vec<Lowered>,
}

impl Held {
    pub(super) fn spawn_port(&self) -> Option<&SpawnPort> {
        self.spawn.as_ref()
    }

    /// Holds a port, in place of the one before of its kind.
    pub(super) fn hold(&mut self, port: Port) {
        let is_given = port.label.is_some();
        let held = if is_given { &mut self.claim } else { &mut self.port };
        *held = Some(port);
    }

    /// A listener at the chosen port, or at another one.
    pub(super) fn listen(&mut self, at: SocketAddr) -> io::Result<TcpListener> {
        match self.port.as_mut().filter(|port| port.number == at.port()) {
            Some(port) => port.listen(at),
            None => rlaunch_sys::port::listen(at),
        }
    }

    /// Lets ranks bind the port.
    pub(super) fn release_port(&mut self) {
        self.port.iter_mut().for_each(Port::release);
    }

    /// The job, once it is known.
    pub(super) fn job(&self) -> JobId {
        self.job.unwrap_or(JobId([0; 16]))
    }

    /// Whether the port that is to be claimed is held already.
    pub(super) fn has_claimed(&self, plan: PortPlan) -> bool {
        self.claim.as_ref().is_some_and(|port| plan == PortPlan::Claim(port.number))
    }

    /// Other jobs may have the port.
    pub(super) fn let_go_of_port(&mut self) {
        (self.port, self.claim) = (None, None);
    }

    /// Error files are on a file system of this host, which always answers.
    pub(super) fn error_files_are_near(&self) -> bool {
        self.near
    }

    /// The host's name, for labels.
    pub(super) fn host(&self) -> &[u8] {
        &self.host
    }
}

/// The request, while the spawn thread makes a namespace.
struct Begun {
    start: Arc<Start>,
    /// Why no tier by namespace is wanted; `None`: it is.
    held_back: Option<&'static str>,
    /// The spawn thread was asked for one.
    asked: bool,
}

/// Logs the processes that begin on this host, and the limits that were changed.
fn announce(base: &Base) {
    let (ranks, agent) = base.origin.nofile_limits();
    let host = String::from_utf8_lossy(&facts::host::hostname()).into_owned();
    tracing::debug!("{host}: agent {}, guardian {}", std::process::id(), std::os::unix::process::parent_id());
    tracing::debug!("limit on descriptors: {agent} for the agent, {ranks} for the ranks; nothing else is changed");
}

/// Begins to make ready: the spawn thread works meanwhile.
pub(super) fn begin(base: &mut Base, start: Arc<Start>) {
    base.pump.share(start.nodes);
    announce(base);
    match prepare(base, start) {
        Ok(begun) => base.sandbox.begun = Some(begun),
        Err(refusal) => base.events.push_back(NodeEvent::Refused(refusal)),
    }
}

/// Waits until what was begun is ready; false if nothing was.
pub(super) fn finish(edges: &mut Edges) -> bool {
    let Some(begun) = edges.base.sandbox.begun.take() else { return false };
    let event = match complete(edges, &begun) {
        Ok(sandbox) => NodeEvent::SandboxReady(sandbox),
        Err(refusal) => NodeEvent::Refused(refusal),
    };
    edges.base.events.push_back(event);
    true
}

fn prepare(base: &mut Base, start: Arc<Start>) -> Result<Begun, NodeRefusal> {
    if let Some(travel) = &start.travel {
        // Before there are threads, and before the thread that starts ranks gets the limits.
        base.sandbox.lowered = carry(&mut base.origin, travel);
    }
    if matches!(start.settings.ending.contain, Contain::T1 | Contain::Strict) && !ns::is_root() {
        // Needs a process with a single thread: before the spawn thread exists.
        ns::unshare_user().map_err(refused)?;
    }
    start_spawn_thread(base).map_err(|e| resource(&e, "start the thread that starts ranks"))?;
    // The thread needs a moment to begin: /dev is read meanwhile.
    let held_back = match start.settings.ending.contain {
        // Hosts without a chance try it too: the kernel's error is the reason that is reported.
        Contain::Auto => ns::has_untried_gpu().map_or(Some(PERHAPS_GPUS), |gpu| gpu.then_some(AMD_GPUS)),
        Contain::T1 | Contain::Strict => None,
        Contain::T3 => Some("t3 was asked for"),
    };
    if let Some(why) = held_back {
        tracing::debug!("containment t1 is not tried: {why}");
    }
    let asked = held_back.is_none() && base.sandbox.spawn.as_ref().is_some_and(|port| port.namespace().is_ok());
    Ok(Begun { start, held_back, asked })
}

/// Facts about this host that are read while the spawn thread makes a namespace.
struct HostFacts {
    processors: Option<Box<Processors>>,
    addresses: Capped<Address, HOST_ADDRESSES>,
    tpu: Option<Box<TpuFacts>>,
    machine: OsBytes,
    interfaces: Vec<Interface>,
}

impl HostFacts {
    fn find(start: &Start, cpus: u32, gpus: Option<Devices>) -> Self {
        let others = start.nodes > 1;
        Self {
            processors: start
                .settings
                .bind
                .needs_topology(start.local_size, cpus)
                .then(|| Box::new(processors::processors(gpus))),
            addresses: if start.addresses { addresses() } else { Capped::default() },
            tpu: super::tpu_facts::find(start).map(Box::new),
            machine: if others { OsBytes::new(facts::host::machine()) } else { OsBytes::default() },
            interfaces: if others { interfaces() } else { Vec::new() },
        }
    }
}

fn complete(edges: &mut Edges, begun: &Begun) -> Result<Sandbox, NodeRefusal> {
    let Begun { start, held_back, asked } = begun;
    let Settings { ending: EndingPlan { contain, .. }, bind, gpus, mpi, .. } = &*start.settings;
    let must = matches!(contain, Contain::T1 | Contain::Strict);
    // While the spawn thread makes the namespace, the rest is found out.
    let port = port::prepare(start.port, start.job);
    let (host, cpus, gpus) = (facts::host::hostname(), facts::host::cpus(), (*gpus != Share::Unset).then(devices));
    let reached = reached_by_others(edges, start, port.as_ref().ok().and_then(Option::as_ref));
    let (store, socket) = super::store::open(&edges.base).unzip();
    edges.parts.store = store;
    let error_dir = error_directory(&mut edges.base);
    edges.parts.mpi = super::mpi::open(&edges.base, mpi.service());
    let mut found = HostFacts::find(start, cpus, gpus);
    let entered = enter(&mut edges.base, *asked);
    if edges.base.watch.init.is_none() {
        edges.base.watch.watch_children().map_err(|e| resource(&e, "listen to ends of children"))?;
    }
    trace_containment(&entered, &edges.base);
    // Not before: the rollback has to know init.
    let port = port?;
    let chosen = port.as_ref().filter(|_| start.port == PortPlan::Choose);
    let note = match entered {
        Ok(()) if *contain == Contain::T3 => String::new(),
        Ok(()) => held_back.unwrap_or_default().to_owned(),
        Err(error) => do_without(&mut edges.base, error, must)?,
    };
    let init = edges.base.watch.init.as_ref().map(|init| init.pid.cast_unsigned());
    let cores = found.processors.as_mut().map(|found| processors::take_cores(found, bind, start.local_size));
    let weak = edges.base.no_subreaper.filter(|_| init.is_none()).map(no_subreaper);
    let sandbox = Sandbox {
        hello: Hello {
            tier: if init.is_some() { Tier::T1 } else { Tier::T3 },
            usual: !ns::is_root() && weak.is_none(),
            note: OsBytes::from(weak.unwrap_or(note)),
            master_port: chosen.map_or(0, |port| port.number),
            port_reserved: chosen.is_some_and(|port| port.reservation.is_some()),
            agent: std::process::id(),
            init,
            reached,
            lowered: Capped::chunks(std::mem::take(&mut edges.base.sandbox.lowered)).pop().unwrap_or_default(),
            addresses: found.addresses,
            tpu: found.tpu,
            machine: found.machine,
        },
        cpus,
        processors: found.processors,
        gpus: gpus.unwrap_or_default(),
        interfaces: found.interfaces,
        error_dir,
        devices: rlaunch_sys::devices::has_shared_memory(),
        skips_tpu_lock: false,
        socket: socket.unwrap_or_default(),
        mpi: edges
            .parts
            .mpi
            .as_ref()
            .map(|mpi| Box::new(MpiPort { port: mpi.port(), host: OsBytes::from(host.as_slice()) })),
        tpu_alone: None,
    };
    port.into_iter().for_each(|port| edges.base.sandbox.hold(port));
    (edges.base.sandbox.cores, edges.base.sandbox.host, edges.base.sandbox.job) =
        (cores.unwrap_or_default(), host, Some(start.job));
    Ok(sandbox)
}

/// The directory for error files, in which no other user can make a file. Empty: there is none, and ranks get no error file.
fn error_directory(base: &mut Base) -> OsBytes {
    let made = || base.temp_files.make_error_dir().ok().map(|dir| dir.into_os_string().into_vec());
    let dir = OsBytes::new(facts::error_file::runtime_dir().or_else(made).unwrap_or_default());
    base.sandbox.near = facts::error_file::is_near(&dir);
    dir
}

fn trace_containment(entered: &Result<(), NsError>, base: &Base) {
    match entered {
        Err(error) => tracing::debug!("containment t1 is refused: {}", why_not(error)),
        Ok(()) => match &base.watch.init {
            Some(init) => tracing::debug!("containment t1: a PID namespace with init {}", init.pid),
            None => tracing::debug!("containment t3: subreapers"),
        },
    }
}

/// The GPUs of this host.
fn devices() -> Devices {
    let facts::host::Gpus { amd, count } = facts::host::gpus();
    Devices { amd, count }
}

/// The umask and the limits of the launcher's host; returns limits that are lower here.
fn carry(origin: &mut Origin, travel: &Travel) -> Vec<Lowered> {
    set_creation_mask(travel.umask);
    let lowered = travel.limits.iter().filter_map(|limit| {
        let to = origin.limits.carry(limit.on.name(), limit.soft)?;
        Some(Lowered { on: limit.on, to })
    });
    lowered.collect()
}

/// By which addresses others reach this host, and the ports at which they can try them.
fn reached_by_others(edges: &mut Edges, start: &Start, port: Option<&Port>) -> Option<Reached> {
    let mut reached = reached(start, edges.base.lease.is_some())?;
    if let Some(key) = start.find.as_ref().and_then(|find| find.probe_key.clone()) {
        // Next to the port of the ranks: a process that keeps others from that port keeps them from this. Not at that port itself: a rank
        // of a host that knows the rendezvous earlier would find a listener that closes, where it should find none, and come back.
        let behind = |port: &Port| port.number.saturating_add(BLOCK - 1);
        let number = port.filter(|_| start.port == PortPlan::Choose).map_or(0, behind);
        reached.probe_ports = edges.parts.probes.listen(&edges.base, &key, &reached.at, number);
    }
    Some(reached)
}

/// By which addresses others reach this host; `remote`: the launcher did so by ssh.
fn reached(start: &Start, remote: bool) -> Option<Reached> {
    // The launcher's own host may be one that its user has reached by ssh.
    let ssh = if remote { connection() } else { None };
    let (at, has) = match (&start.find, &ssh) {
        (Some(_), _) => {
            find(&start.settings.hosts.interface, ssh.as_ref().map(|(_, at)| at.as_slice()), start.nodes == 1)
        }
        (None, Some((_, at))) => (vec![at.clone()], OsBytes::default()),
        (None, None) => return None,
    };
    let at = Capped::chunks(at).into_iter().next().unwrap_or_default();
    Some(Reached { from: ssh.map(|(from, _)| from).unwrap_or_default(), at, probe_ports: Capped::default(), has })
}

/// The address at which others find this host. If the interface that was asked for will not do, nowhere, and those that would: whether
/// that matters the launcher knows, when it is known whose rank 0 is.
fn find(interface: &OsBytes, ssh: Option<&[u8]>, alone: bool) -> (Vec<OsBytes>, OsBytes) {
    let all = interfaces();
    if interface.is_empty() {
        return (address::find(&all, ssh, alone), OsBytes::default());
    }
    match address::of_interface(&all, interface, alone) {
        Some(at) => (at, OsBytes::default()),
        None => (Vec::new(), address::names(&all, alone)),
    }
}

/// The interfaces of this host.
fn interfaces() -> Vec<Interface> {
    let default = facts::net::default_interface();
    let interface = |(name, addr, prefix)| Interface {
        default: default.as_ref() == Some(&name),
        name: OsBytes::from(name),
        addr,
        prefix,
    };
    facts::net::interfaces().into_iter().map(interface).collect()
}

/// The addresses of connections of this host's ranks, as others see them.
fn addresses() -> Capped<Address, HOST_ADDRESSES> {
    let all = facts::net::addresses().into_iter().filter(|(_, addr)| !addr.is_loopback());
    Capped::chunks(all.map(|(_, addr)| Address::from(addr))).into_iter().next().unwrap_or_default()
}

/// Whence this host was reached, and by which of its addresses.
fn connection() -> Option<(OsBytes, OsBytes)> {
    login().or_else(step)
}

/// In a step of Slurm: the host of srun, and the address from which the kernel would send something there. Nothing is sent.
fn step() -> Option<(OsBytes, OsBytes)> {
    let from: IpAddr = std::env::var("SLURM_LAUNCH_NODE_IPADDR").ok()?.parse().ok()?;
    let any = if from.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((from, 1)).ok()?;
    let at = socket.local_addr().ok()?.ip();
    Some((OsBytes::from(from.to_string()), OsBytes::from(at.to_string())))
}

/// sshd's SSH_CONNECTION: the client's address and port, then ours.
fn login() -> Option<(OsBytes, OsBytes)> {
    let line = std::env::var_os("SSH_CONNECTION")?.into_encoded_bytes();
    let mut words = line.split(|b| *b == b' ');
    let (from, _, at) = (words.next()?, words.next()?, words.next()?);
    Some((OsBytes::from(from), OsBytes::from(at)))
}

/// Continues without a PID namespace, and returns the reason; `must`: that is not allowed.
fn do_without(base: &mut Base, error: NsError, must: bool) -> Result<String, NodeRefusal> {
    let is_at_limit = error.source.kind() == io::ErrorKind::WouldBlock || rlaunch_sys::is_shortage(&error.source);
    if must || (error.halfway && is_at_limit) {
        return Err(refused(error));
    }
    if error.halfway {
        another_thread(base, false)?;
    }
    Ok(why_not(&error))
}

/// Why there is no PID namespace: what was tried, and what the kernel said.
fn why_not(error: &NsError) -> String {
    let errno = error.source.raw_os_error().unwrap_or(0);
    let way = if ns::is_root() { "" } else { "; --contain t1 asks for one in a user namespace" };
    format!("{}: {} (errno {errno}){way}", error.step, rlaunch_sys::reason(&error.source))
}

/// The warning for a host that refuses subreapers.
fn no_subreaper(errno: i32) -> String {
    let reason = rlaunch_sys::reason(&io::Error::from_raw_os_error(errno));
    format!("this host refuses subreapers (prctl: {reason}), so processes that leave their rank can outlive the job")
}

/// Another thread that starts ranks, with a PID namespace of their own where those before had one.
pub(super) fn another_thread(base: &mut Base, namespace: bool) -> Result<(), NodeRefusal> {
    if let Some(before) = base.sandbox.spawn.take() {
        base.watch.set.remove(before.bell());
        before.retire();
    }
    start_spawn_thread(base).map_err(|e| resource(&e, "start another thread that starts ranks"))?;
    let asked = !namespace || base.sandbox.spawn.as_ref().is_some_and(|port| port.namespace().is_ok());
    let busy = || resource(&io::Error::from(io::ErrorKind::WouldBlock), "ask for another PID namespace");
    if asked { Ok(()) } else { Err(busy()) }
}

fn start_spawn_thread(base: &mut Base) -> io::Result<()> {
    let (exits, streams) = (base.watch.set.share(), base.pump.set.share());
    let port = SpawnPort::start(base.origin, exits, streams)?;
    base.watch.add(port.bell(), Source::Spawn)?;
    base.sandbox.spawn = Some(port);
    Ok(())
}

/// Waits for the PID namespace that was asked for.
///
/// The wait is the only one of the machine's thread. It is allowed for three reasons:
/// - It happens once, before the first rank, and nothing of the job runs here that could be held up. The namespaces of later
///   generations are not waited for: `renew` completes when their answer is there.
/// - The spawn thread opens no file and no connection for it. It calls `unshare`, forks init and opens a pidfd.
/// - The spawn thread was asked before the facts of the host were collected, so the answer is there by now, or takes microseconds.
fn enter(base: &mut Base, asked: bool) -> Result<(), NsError> {
    let Some(port) = base.sandbox.spawn.as_ref().filter(|_| asked) else { return Ok(()) };
    let Some(Outcome::Namespace(init)) = port.wait() else {
        let source = io::Error::from(io::ErrorKind::BrokenPipe);
        return Err(NsError { step: "ask for a PID namespace", source, halfway: true });
    };
    adopt_init(base, *init)
}

/// Watches the init of a PID namespace that the spawn thread has made.
pub(super) fn adopt_init(base: &mut Base, init: Result<Init, NsError>) -> Result<(), NsError> {
    base.watch.watch_init(init?).map_err(|source| NsError { step: "watch init", source, halfway: true })
}

pub(super) fn choose_port() -> Result<Port, NodeRefusal> {
    let random = rlaunch_sys::random::bytes::<8>().map_err(|e| resource(&e, "get random bytes"))?;
    let port = choose(u64::from_ne_bytes(random)).inspect(|port| {
        let (first, reserved) = (port.number, if port.reservation.is_some() { "reserved" } else { "not reserved" });
        tracing::debug!("ports {first}-{} are free and {reserved}", first + (BLOCK - 1));
    });
    port.map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => NodeRefusal::NoPort,
        _ => resource(&e, "look for a free port"),
    })
}

pub(super) fn refused(error: NsError) -> NodeRefusal {
    if rlaunch_sys::is_shortage(&error.source) {
        // Another tier would not help.
        return resource(&error.source, error.step);
    }
    NodeRefusal::Contain { errno: error.source.raw_os_error().unwrap_or(0), step: OsBytes::from(error.step) }
}

pub(super) fn resource(error: &io::Error, step: &str) -> NodeRefusal {
    NodeRefusal::Resource { errno: error.raw_os_error().unwrap_or(0), step: OsBytes::from(step) }
}
