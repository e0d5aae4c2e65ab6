//! An agent in a step of several hosts: it connects to the launcher, and has its place in the job from the answer.

use super::{PATIENCE, complain, first_lease, is_meant};
use crate::bootstrap::source;
use crate::view::phrases;
use rlaunch_agent::{AgentSetup, Edge, LeaseLine};
use rlaunch_core::bootstrap::answer::marker;
use rlaunch_core::bootstrap::tcp_hello::{SECOND_MESSAGE, STEP_PREAMBLE, last_words_tag};
use rlaunch_core::bootstrap::{AgentFacts, Answer, EdgeKeys, Hash, Hello, Preamble, Secret, StepPreamble, Sums};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_net::seal::{AgentHandshake, Seal};
use rlaunch_sys::fd;
use rlaunch_sys::guardian::{LastWordsSeal, Remote, Streams, split_remote};
use rlaunch_sys::origin::Origin;
use rlaunch_sys::reason;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// The variables of a task with the address of the host that runs srun (man srun, "OUTPUT ENVIRONMENT VARIABLES").
const ADDRESS: [&str; 2] = ["SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST"];

/// A connection to the launcher.
struct Connected {
    socket: OwnedFd,
    seal: Seal,
    keys: EdgeKeys,
    preamble: Preamble,
}

/// The life of the agent. `kept`: a shell has read the line with the sums, and compared the checksum. `same`: a shell has compared
/// nothing but owner, modes and length.
pub(super) fn serve(kept: bool, same: bool, origin: Origin) -> u8 {
    let mut line = [0; Sums::LENGTH];
    if !kept && let Err(why) = read(&mut line) {
        return complain(&why);
    }
    join(|| !same || own_ends() == Sums::ends_of(&line), origin)
}

/// The same without a shell: srun has started this binary, which compares its ends. Its answer does not need the launcher's bytes, which
/// another version of rlaunch could not read.
pub(super) fn serve_direct(job: &OsStr, ends: &OsStr, origin: Origin) -> u8 {
    if own_ends() != Hash::parse(ends.as_bytes()) {
        return answer(OsBytes::from(job.as_bytes()), &Answer::Absent(host()));
    }
    join(|| true, origin)
}

/// Connects, if this is the binary that is meant.
fn join(is_meant: impl FnOnce() -> bool, origin: Origin) -> u8 {
    let mut bytes = [0; STEP_PREAMBLE];
    if let Err(why) = read(&mut bytes) {
        return complain(&why);
    }
    let Some(mut step) = StepPreamble::parse(&bytes) else {
        return complain("what came on stdin is not from rlaunch, or from another version of it");
    };
    bytes.fill(0);
    std::hint::black_box(&bytes);
    let host = host();
    let connected = if is_meant() {
        connect(&step, &host).map_err(|why| Answer::Unconnected { host, why: why.into() })
    } else {
        // Another build, or a file that was damaged: the launcher sends its own.
        Err(Answer::Absent(host))
    };
    // This frame lives as long as the agent does.
    step.secret = Secret([0; 32]);
    std::hint::black_box(&step);
    match connected {
        Ok(connected) => become_agent(connected, origin),
        Err(why) => answer(step.job, &why),
    }
}

fn read(bytes: &mut [u8]) -> Result<(), String> {
    fd::read_exactly(0, bytes, PATIENCE).map_err(|error| format!("no word from the launcher: {}", reason(&error)))
}

fn host() -> OsBytes {
    std::env::var_os("SLURMD_NODENAME").map(|name| OsBytes::new(name.into_vec())).unwrap_or_default()
}

fn answer(job: impl Display, answer: &Answer) -> u8 {
    // A launcher that does not read it sees that the step has ended.
    let _unread = fd::write(1, format!("{}{}\n", marker(job), answer.to_line()).as_bytes());
    rlaunch_core::exit::LAUNCH
}

fn own_ends() -> Option<Hash> {
    source::open().and_then(|file| source::hash_of_ends(&file)).ok()
}

fn connect(step: &StepPreamble, host: &OsBytes) -> Result<Connected, String> {
    let address = ADDRESS.iter().find_map(|name| std::env::var(name).ok()?.parse::<IpAddr>().ok());
    let address = address.ok_or_else(|| format!("{} has no address", ADDRESS.join(" and ")))?;
    let peer = SocketAddr::new(address, step.port);
    let at_peer = |error: std::io::Error| format!("{peer}: {}", reason(&error));
    let mut socket = TcpStream::connect_timeout(&peer, PATIENCE).map_err(at_peer)?;
    socket.set_nodelay(true).map_err(at_peer)?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(at_peer)?;
    let hello = Hello { job: step.job, epoch: step.epoch, host: Hash::of(host) };
    let keys = EdgeKeys::derive(&step.secret, &hello);
    let facts = AgentFacts { pid: std::process::id(), wall: rlaunch_sys::clock::wall() };
    let (handshake, first) = AgentHandshake::begin(&keys, facts).map_err(|error| format!("{peer}: {error}"))?;
    socket.write_all(&[&hello.to_bytes()[..], &first].concat()).map_err(at_peer)?;
    let mut answer = [0; SECOND_MESSAGE];
    socket.read_exact(&mut answer).map_err(at_peer)?;
    let (preamble, seal) = handshake.finish(&keys, &answer).map_err(|error| format!("{peer}: {error}"))?;
    let preamble = Preamble::parse(&preamble).map_err(|error| format!("{peer}: {error}"))?;
    is_meant(&preamble)?;
    socket.set_read_timeout(None).map_err(at_peer)?;
    Ok(Connected { socket: socket.into(), seal, keys, preamble })
}

fn become_agent(connected: Connected, origin: Origin) -> u8 {
    let Connected { socket, seal, keys, preamble } = connected;
    let last_words = LastWordsSeal { key: keys.last_words, tag: last_words_tag };
    let (node, seal) = (preamble.node, Box::new(seal));
    let streams = Streams::Socket(socket, last_words);
    match split_remote(&streams, (node.get(), &super::name(&preamble)), &[], first_lease(&preamble)) {
        Ok(Remote { input, guardian, lease, temp_files, no_subreaper, .. }) => {
            drop((streams, keys));
            rlaunch_agent::run(AgentSetup {
                node,
                edge: Edge::Sealed { socket: input, seal },
                guardian,
                origin,
                temp_files,
                no_subreaper,
                lease: Some(LeaseLine::new(lease)),
            })
        }
        Err(error) => {
            let Streams::Socket(socket, _) = streams else { return complain(&phrases::shortage(&error)) };
            rlaunch_agent::refuse(node, Edge::Sealed { socket, seal }, &error);
            rlaunch_core::exit::LAUNCH
        }
    }
}
