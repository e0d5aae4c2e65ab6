//! Options about where ranks meet.

use super::errors::CliError;
use super::scan::Given;
use super::site::Site;
use super::table::options;
use super::{Program, Run};
use rlaunch_base::id::WorldId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::os_strings::OsStrings;
use rlaunch_plan::place::{Note, Placement};
use rlaunch_protocol::env::{Base, Export, base, glob};
use rlaunch_protocol::framework::{self, Framework, Mpi, names_tpu_library, packages};
use rlaunch_protocol::guard::devices::{CleanPolicy, DeviceKind, DevicePlan};
use rlaunch_protocol::master_store::{self, Asked, Facts, Given as Chosen, Guard, Holder, Sign};
use std::net::IpAddr;

options! {
    Store, "Where ranks meet", "rendezvous";
    MasterStore ["master-store"] One("WHO"): "who holds torch's TCPStore: auto, agent, rank0",
        "agent: rlaunch does, at MASTER_PORT, as torchrun.",
        "rank0: the port is left to the program. auto: agent,",
        "if rank 0 runs Python and its script does not set a",
        "port of its own; the store outlives rank 0 then.";
    Guard ["store-guard"] One("WHO"): "whom rlaunch's store serves (default: job)",
        "job: its processes. hosts: everybody on its hosts,",
        "other users too. off: any process that can connect.";
    Framework ["framework"] One("NAME"): "variables of other libraries: auto, jax, none",
        "jax: what jax.distributed.initialize() needs, by",
        "itself (auto) if the script imports jax, not mpi4py.";
    Mpi ["mpi"] One("WHICH"): "connect the ranks of MPI programs: auto, on, none",
        "MPICH, Intel MPI and Open MPI need nothing else.",
        "auto: not for static programs, nor for scripts that",
        "import torch or jax and not mpi4py.";
}

#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) master_store: Asked,
    pub(super) guard: Guard,
    pub(super) framework: Framework,
    pub(super) mpi: Mpi,
}

impl Args {
    pub(super) fn take(&mut self, opt: Opt, given: Given) -> Result<(), CliError> {
        match opt {
            Opt::MasterStore => {
                let values = [("auto", Asked::Auto), ("agent", Asked::Agent), ("rank0", Asked::Rank0)];
                self.master_store = choose(given, ("auto, agent or rank0", None), &values)?;
            }
            Opt::Framework => {
                let values = [("auto", Framework::Auto), ("jax", Framework::Jax), ("none", Framework::None)];
                self.framework = choose(given, ("auto, jax or none", None), &values)?;
            }
            Opt::Mpi => {
                let values = [("auto", Mpi::Auto), ("on", Mpi::On), ("none", Mpi::None)];
                self.mpi = choose(given, ("auto, on or none", Some(SERVED)), &values)?;
            }
            Opt::Guard => {
                let values = [("job", Guard::Job), ("hosts", Guard::Hosts), ("off", Guard::Off)];
                self.guard = choose(given, ("job, hosts or off", None), &values)?;
            }
        }
        Ok(())
    }
}

/// Words for those who name the protocol.
const SERVED: &str = "leave it out: PMI-1 and PMIx are both served";

/// The value that a word stands for, or an error with these words: what the option takes, and what to try.
fn choose<T: Copy>(
    given: Given,
    (takes, hint): (&'static str, Option<&'static str>),
    values: &[(&str, T)],
) -> Result<T, CliError> {
    let found = values.iter().find(|(word, _)| word.as_bytes() == given.value.as_slice()).map(|(_, value)| *value);
    let hint = hint.map(Into::into);
    found.ok_or_else(|| CliError::Value { option: given.spelled, takes: takes.into(), got: given.value, hint })
}

impl Run {
    /// The holder of the store, with this placement and the caller's environment.
    ///
    /// # Errors
    /// The agent shall, at an address that it cannot have.
    pub(crate) fn holder(&self, placement: &Placement, caller: &[&[u8]], site: &Site<'_>) -> Result<Holder, CliError> {
        let Some(first) = self.first(placement) else { return Ok(master_store::choose(Asked::Rank0, &NOBODY)) };
        let world_size = placement.only(WorldId::new(0)).world_size();
        self.holder_of(first, world_size, placement, caller, site)
    }

    /// The same for the world of another program.
    pub(super) fn holder_of(
        &self,
        first: &Program,
        world_size: u32,
        placement: &Placement,
        caller: &[&[u8]],
        site: &Site<'_>,
    ) -> Result<Holder, CliError> {
        let given = self.chosen(first, placement, caller)?;
        let argv: OsStrings = first.argv.iter().collect();
        let program = master_store::program(&argv);
        let script = script(first, site);
        let text = script.as_deref();
        let jax = self.framework.is_jax(text);
        let elsewhere = match program {
            master_store::Program::Script(path) => {
                master_store::sign_of_arguments(&argv).or_else(|| text.and_then(|text| beside(first, path, text, site)))
            }
            master_store::Program::Module(_) => master_store::sign_of_arguments(&argv),
            master_store::Program::Code(_) | master_store::Program::Other => None,
        };
        let facts = Facts { world_size, given, jax, torchrun: self.torchrun, program, text, elsewhere };
        Ok(master_store::choose(self.master_store, &facts))
    }

    /// Whether rank 0 runs a program of JAX.
    pub(crate) fn is_jax(&self, placement: &Placement, site: &Site<'_>) -> bool {
        let first = self.first(placement).filter(|_| self.framework == Framework::Auto);
        let script = first.and_then(|first| script(first, site));
        self.framework.is_jax(script.as_deref())
    }

    /// Whether no option, program, script or variable shows that the job uses TPU chips.
    pub(crate) fn needs_no_tpu(&self, caller: &[&[u8]], site: &Site<'_>) -> bool {
        const VARIABLES: [&[u8]; 3] = [b"JAX_PLATFORMS=tpu", b"PJRT_DEVICE=TPU", b"TPU_VISIBLE_"];
        let is_set = |entry: &&[u8]| VARIABLES.iter().any(|begin| entry.starts_with(begin));
        let names = |program: &Program| {
            program.words().any(names_tpu_library) || script(program, site).is_some_and(|text| names_tpu_library(&text))
        };
        let DevicePlan { kind, clean, .. } = self.settings.devices;
        let is_cleaned = self.presentation.cleans || matches!(clean, CleanPolicy::Own | CleanPolicy::All);
        let is_asked = kind != DeviceKind::Auto || is_cleaned;
        !(is_asked || self.framework == Framework::Jax || caller.iter().any(is_set) || self.programs.iter().any(names))
    }

    /// The note about a file of accelerate that sets something for the program of rank 0.
    pub(super) fn unread(&self, placement: &Placement, site: &Site<'_>) -> Option<Note> {
        let under = |name: &str, below: &str| {
            let path = (site.env)(name).filter(|path| !path.is_empty())?.into_string().ok()?;
            Some(format!("{path}/{below}"))
        };
        let home = under("HF_HOME", "")
            .or_else(|| under("XDG_CACHE_HOME", "huggingface/"))
            .or_else(|| under("HOME", ".cache/huggingface/"))?;
        let file = format!("{home}accelerate/default_config.yaml");
        if !(site.is_file)(&file.as_str().into()) {
            return None;
        }
        let first = self.first(placement)?;
        let given =
            |name: &str| (site.env)(name).is_some() || first.exports.iter().any(|own| names(own, name.as_bytes()));
        let text = (site.read)(&file.as_str().into()).ok()?;
        let settings: Vec<&str> = framework::accelerate(&String::from_utf8_lossy(&text), given).collect();
        let is_used = || script(first, site).is_some_and(|text| framework::imports(&text, b"accelerate"));
        (!settings.is_empty() && is_used()).then(|| Note::Unread { file, settings: settings.join(", ") })
    }

    /// The user's choice of the rendezvous.
    fn chosen(&self, first: &Program, placement: &Placement, caller: &[&[u8]]) -> Result<Chosen, CliError> {
        let base = base(caller.iter().copied(), &first.exports);
        let chosen = Chosen { port: base.pinned.contains(b"MASTER_PORT"), addr: base.pinned.contains(b"MASTER_ADDR") };
        self.check_port(first, &base)?;
        let addr = base.env.iter().filter_map(|entry| entry.strip_prefix(b"MASTER_ADDR=")).last();
        let Some(addr) = addr.filter(|_| chosen.addr && self.master_store == Asked::Agent) else { return Ok(chosen) };
        let alone = placement.nodes.len() < 2;
        let own = std::str::from_utf8(addr).ok().and_then(|addr| addr.parse::<IpAddr>().ok());
        if own.is_some_and(|own| is_single(own) && (alone || !own.is_loopback())) {
            return Ok(chosen);
        }
        let is_exported = first.exports.iter().any(|export| names(export, b"MASTER_ADDR"));
        let reach = if alone { "" } else { " that other hosts can use" };
        Err(CliError::Value {
            option: if is_exported { "-x MASTER_ADDR" } else { "MASTER_ADDR" }.into(),
            takes: format!("the number of an address{reach}, where --master-store agent listens").into(),
            got: addr.into(),
            hint: Some("leave it out for one that rlaunch chooses; --master-store rank0".into()),
        })
    }

    /// Checks that the agent has an address to listen at.
    fn check_port(&self, first: &Program, base: &Base) -> Result<(), CliError> {
        let port = base.env.iter().filter_map(|entry| entry.strip_prefix(b"MASTER_PORT=")).last();
        let asked = base.pinned.contains(b"MASTER_PORT") && self.master_store == Asked::Agent;
        let Some(port) = port.filter(|_| asked) else { return Ok(()) };
        let number = std::str::from_utf8(port).ok().and_then(|port| port.parse::<u16>().ok());
        if number.is_some_and(|port| port > 0) {
            return Ok(());
        }
        let is_exported = first.exports.iter().any(|export| names(export, b"MASTER_PORT"));
        Err(CliError::Value {
            option: if is_exported { "-x MASTER_PORT" } else { "MASTER_PORT" }.into(),
            takes: "a number from 1 to 65535, where --master-store agent listens".into(),
            got: port.into(),
            hint: Some("leave it out for one that rlaunch chooses; --master-store rank0".into()),
        })
    }

    /// The program of rank 0.
    pub(crate) fn first(&self, placement: &Placement) -> Option<&Program> {
        self.programs.get(placement.ranks.first()?.app.index())
    }
}

/// The text of what a program runs, if that is Python and can be read here.
fn script(program: &Program, site: &Site<'_>) -> Option<Vec<u8>> {
    let argv: OsStrings = program.argv.iter().collect();
    let mut text = match master_store::program(&argv) {
        master_store::Program::Script(path) => read(program, path, site)?,
        master_store::Program::Code(code) => code.to_vec(),
        master_store::Program::Module(_) | master_store::Program::Other => return None,
    };
    text.truncate(master_store::MOST);
    Some(text)
}

const NOBODY: Facts<'_> = Facts {
    world_size: 0,
    given: Chosen { port: false, addr: false },
    jax: false,
    torchrun: false,
    program: master_store::Program::Other,
    text: None,
    elsewhere: None,
};

/// Whether it is the address of one host: others can be listened at too, but no program connects there.
fn is_single(address: IpAddr) -> bool {
    let everybody = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || everybody)
}

/// Whether a `-x` is about this name.
fn names(export: &Export, name: &[u8]) -> bool {
    match export {
        Export::Set { name: own, .. } | Export::Take(own) => own.as_slice() == name,
        Export::Glob(pattern) => glob(pattern, name),
    }
}

/// Sign in the modules beside a script that it imports.
fn beside(program: &Program, script: &[u8], text: &[u8], site: &Site<'_>) -> Option<Sign> {
    /// Most modules that are read.
    const MODULES: usize = 64;
    let directory =
        script.iter().rposition(|b| *b == b'/').map_or(&b""[..], |at| script.get(..=at).unwrap_or_default());
    packages(text).take(MODULES).find_map(|name| {
        let mut module = read(program, &[directory, &name, b".py"].concat(), site)?;
        module.truncate(master_store::MOST);
        master_store::sign(&module)
    })
}

/// A script, from the directory that its ranks work in. A script that cannot be read here may be there.
fn read(program: &Program, path: &[u8], site: &Site<'_>) -> Option<Vec<u8>> {
    let path = match &program.wdir {
        Some(dir) if !path.starts_with(b"/") => OsBytes::new([dir.as_slice(), b"/", path].concat()),
        Some(_) | None => OsBytes::from(path),
    };
    (site.is_file)(&path).then(|| (site.read)(&path).ok()).flatten()
}
