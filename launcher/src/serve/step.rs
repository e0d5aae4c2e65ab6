//! An agent in a step of several hosts: it connects to the launcher, and has its place in the job from the answer.

use super::{PATIENCE, complain, first_lease, is_meant};
use crate::bootstrap::source;
use crate::view::phrases;
use rlaunch_agent::{AgentSetup, Edge, LeaseLine};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_net::seal::{AgentHandshake, Seal};
use rlaunch_plan::bootstrap::answer::marker;
use rlaunch_plan::bootstrap::tcp_hello::{CONFIRMATION, SECOND_MESSAGE, STEP_PREAMBLE, last_words_tag};
use rlaunch_plan::bootstrap::{AgentFacts, Answer, EdgeKeys, Hash, Hello, Preamble, Secret, StepPreamble, Sums};
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
use std::time::{Duration, Instant};

/// The variables of a task with the address of the host that runs srun (man srun, "OUTPUT ENVIRONMENT VARIABLES").
const ADDRESS: [&str; 2] = ["SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST"];

/// How long the launcher may take for its answer.
const ANSWER: Duration = Duration::from_secs(10);
/// The first pause after a connection that was closed during the handshake; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

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
    rlaunch_base::exit::LAUNCH
}

fn own_ends() -> Option<Hash> {
    source::open().and_then(|file| source::hash_of_ends(&file)).ok()
}

fn connect(step: &StepPreamble, host: &OsBytes) -> Result<Connected, String> {
    let address = ADDRESS.iter().find_map(|name| std::env::var(name).ok()?.parse::<IpAddr>().ok());
    let address = address.ok_or_else(|| format!("{} has no address", ADDRESS.join(" and ")))?;
    dial(SocketAddr::new(address, step.port), step, host)
}

/// Connects until the handshake is done: the launcher closes the oldest of too many connections.
fn dial(peer: SocketAddr, step: &StepPreamble, host: &OsBytes) -> Result<Connected, String> {
    let at_peer = |error: anyhow::Error| {
        let why = error.downcast_ref().map_or_else(|| error.to_string(), reason);
        format!("{peer}: {why}")
    };
    let hello = Hello { job: step.job, epoch: step.epoch, host: Hash::of(host) };
    let keys = EdgeKeys::derive(&step.secret, &hello);
    let until = Instant::now() + PATIENCE;
    let mut pause = FIRST_PAUSE;
    let (socket, seal, preamble) = loop {
        // The launcher listens before it sends the port: a connection that is refused here will always be.
        let socket = TcpStream::connect_timeout(&peer, PATIENCE).map_err(|error| at_peer(error.into()))?;
        match shake_hands(socket, &hello, &keys) {
            Ok(done) => break done,
            Err(error) if Instant::now() + pause >= until => return Err(at_peer(error)),
            Err(_) => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    };
    is_meant(&preamble)?;
    Ok(Connected { socket: socket.into(), seal, keys, preamble })
}

fn shake_hands(mut socket: TcpStream, hello: &Hello, keys: &EdgeKeys) -> anyhow::Result<(TcpStream, Seal, Preamble)> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(ANSWER))?;
    let (handshake, first) = AgentHandshake::begin(keys, own_facts())?;
    socket.write_all(&[&hello.to_bytes()[..], &first].concat())?;
    let mut answer = [0; SECOND_MESSAGE];
    socket.read_exact(&mut answer)?;
    let (preamble, confirmation, seal) = handshake.finish(keys, &answer)?;
    let preamble = Preamble::parse(&preamble)?;
    socket.write_all(&confirmation)?;
    socket.set_read_timeout(None)?;
    Ok((socket, seal, preamble))
}

/// The first two messages of a handshake on stdin and stdout, with the launcher that has sent this preamble. Returns the seal of the
/// streams, the guardian's, and the confirmation, which follows the next answer.
pub(super) fn seal_stdio(preamble: &Preamble) -> Result<(Box<Seal>, LastWordsSeal, [u8; CONFIRMATION]), String> {
    let keys = EdgeKeys::of_streams(preamble);
    let (handshake, first) = AgentHandshake::begin(&keys, own_facts()).map_err(|error| error.to_string())?;
    // A launcher that does not read it does not answer.
    let _unread = fd::write(1, super::spoken(preamble, &Answer::Seal(first)).as_bytes());
    let mut answer = [0; SECOND_MESSAGE];
    read(&mut answer)?;
    let (_, confirmation, seal) = handshake.finish(&keys, &answer).map_err(|error| error.to_string())?;
    Ok((Box::new(seal), LastWordsSeal { key: keys.last_words, tag: last_words_tag }, confirmation))
}

fn own_facts() -> AgentFacts {
    AgentFacts { pid: std::process::id(), wall: rlaunch_sys::clock::wall() }
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
                edge: Edge::Socket(input).sealed(Some(seal)),
                guardian,
                origin,
                temp_files,
                no_subreaper,
                lease: Some(LeaseLine::new(lease)),
            })
        }
        Err(error) => {
            let Streams::Socket(socket, _) = streams else { return complain(&phrases::shortage(&error)) };
            rlaunch_agent::refuse(node, Edge::Socket(socket).sealed(Some(seal)), &error);
            rlaunch_base::exit::LAUNCH
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_base::id::{JobId, NodeId};
    use rlaunch_base::time::Span;
    use rlaunch_net::seal;
    use rlaunch_plan::bootstrap::tcp_hello::{FIRST_MESSAGE, HELLO};
    use std::net::{Ipv4Addr, TcpListener};

    /// An agent gave up then, and its host fell back or ended the job.
    #[test]
    fn connection_that_is_closed_before_the_answer_is_made_again() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let peer = listener.local_addr().unwrap();
        let step = StepPreamble { job: JobId([1; 16]), epoch: 0, port: peer.port(), secret: Secret([5; 32]) };
        let dial = move || dial(peer, &step, &"node1".into()).map(|connected| connected.preamble);
        let agent = std::thread::Builder::new().spawn(dial).unwrap();
        for _ in 0..2 {
            drop(listener.accept().unwrap());
        }
        let (mut socket, _) = listener.accept().unwrap();
        let (mut hello, mut first, mut confirmation) = ([0; HELLO], [0; FIRST_MESSAGE], [0; CONFIRMATION]);
        socket.read_exact(&mut hello).unwrap();
        socket.read_exact(&mut first).unwrap();
        let keys = EdgeKeys::derive(&step.secret, &Hello::parse(&hello).unwrap());
        let preamble = Preamble {
            job: step.job,
            node: NodeId::new(3),
            secret: Secret([0; 32]),
            lease: Span::from_secs(30),
            len: 0,
            hash: Hash([0; 32]),
        };
        let (answer, mut seal) = seal::receive(&keys, &first).unwrap().1.answer(&keys, &preamble).unwrap();
        socket.write_all(&answer).unwrap();
        socket.read_exact(&mut confirmation).unwrap();
        seal.confirm(&confirmation).unwrap();
        assert_eq!(agent.join().unwrap(), Ok(preamble));
    }
}
