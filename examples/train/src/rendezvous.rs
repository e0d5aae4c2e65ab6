//! How ranks that know only MASTER_ADDR and MASTER_PORT learn each other's addresses.
//!
//! Every rank opens a listener for its ring neighbour. Rank 0 also listens at the master's address, collects one line from each other rank (who it is
//! and where it listens), and answers all with the table of addresses. Lines are text, so that a dialogue can be read with tcpdump.

use crate::net::{self, Deadline, Patience};
use crate::world::{Master, World};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// The first word of every hello, which distinguishes our ranks from strangers.
const PROTOCOL: &str = "rlaunch-example-train/1";
/// No hello is longer.
const MAX_HELLO: usize = 512;
/// How long one address or one connection that says nothing may hold up the others.
const MOMENT: Duration = Duration::from_secs(2);

/// All ranks' addresses, by rank, and the listener behind this rank's own.
pub(crate) struct Circle {
    pub(crate) listener: TcpListener,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// The first message of a rank about itself.
#[derive(Debug, PartialEq)]
struct Hello {
    rank: usize,
    size: usize,
    address: SocketAddr,
    options: String,
}

impl Hello {
    fn line(&self) -> String {
        format!("{PROTOCOL} {} {} {} {}\n", self.rank, self.size, self.address, self.options)
    }

    /// `None` for anything that no rank of this program would say.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [PROTOCOL, rank, size, address, options] = words[..] else { return None };
        let (rank, size, address) = (rank.parse().ok()?, size.parse().ok()?, address.parse().ok()?);
        Some(Self { rank, size, address, options: options.to_owned() })
    }
}

/// Meets all other ranks, or says which are missing after some time.
pub(crate) fn meet(world: &World, master: &Master, options: &str, patience: Patience<'_>) -> Result<Circle> {
    if world.rank == 0 { host(world, master, options, patience) } else { visit(world, master, options, patience) }
}

/// Rank 0's side.
fn host(world: &World, master: &Master, options: &str, patience: Patience<'_>) -> Result<Circle> {
    let (deadline, timeout) = (Deadline::of(patience), patience.timeout);
    let master_listener = TcpListener::bind(&master.addresses()?[..]).map_err(|e| {
        let hint = match e.kind() {
            ErrorKind::AddrInUse => "another program listens there: choose another MASTER_PORT",
            ErrorKind::AddrNotAvailable => "MASTER_ADDR must be an address of the host of rank 0",
            _ => "rank 0 must be able to listen at MASTER_ADDR:MASTER_PORT",
        };
        anyhow::Error::from(e).context(format!("rank 0 cannot listen at {master}: {hint}"))
    })?;
    let listener = listen(master_listener.local_addr().context("asking for the own address")?.ip())?;
    let own = listener.local_addr().context("asking for the own address")?;
    let mut peers: BTreeMap<usize, (TcpStream, SocketAddr)> = BTreeMap::new();
    while peers.len() + 1 < world.size {
        let Some((mut stream, from)) = net::accept(&master_listener, deadline)? else {
            let missing: Vec<_> =
                (1..world.size).filter(|rank| !peers.contains_key(rank)).map(|rank| rank.to_string()).collect();
            let (missing, waited) = (missing.join(", "), timeout.as_secs());
            bail!("no word from rank {missing} within {waited} s: were they started, with the same MASTER_ADDR?");
        };
        let said = net::read_line(&mut stream, MAX_HELLO, deadline.within(MOMENT));
        let Some(hello) = said.ok().and_then(|line| Hello::parse(&line)) else {
            eprintln!("train: rank 0: ignoring a connection from {from}, which is not one of our ranks");
            continue;
        };
        if let Err(error) = admit(&hello, world, options, &peers) {
            // The peer receives the reason as well. If it has closed the connection, our own message is enough.
            stream.write_all(format!("refused {error:#}\n").as_bytes()).unwrap_or_default();
            return Err(error.context(format!("the rank at {from} cannot take part")));
        }
        peers.insert(hello.rank, (stream, hello.address));
    }
    let addresses: Vec<_> = [own].into_iter().chain(peers.values().map(|(_, address)| *address)).collect();
    let table: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
    let table = format!("table {}\n", table.join(" "));
    for (rank, (stream, address)) in &mut peers {
        let what = || format!("cannot send rank {rank} at {address} the addresses of the others");
        stream.set_write_timeout(Some(timeout)).with_context(what)?;
        stream.write_all(table.as_bytes()).map_err(|e| net::explain(e, timeout)).with_context(what)?;
    }
    Ok(Circle { listener, addresses })
}

/// Refuses ranks that could not train with us, which would show up as a wrong curve or a hang much later.
fn admit(hello: &Hello, world: &World, options: &str, peers: &BTreeMap<usize, (TcpStream, SocketAddr)>) -> Result<()> {
    let (rank, size) = (hello.rank, hello.size);
    ensure!(size == world.size, "it counts {size} ranks where rank 0 counts {}: is it of another job?", world.size);
    ensure!((1..size).contains(&rank), "it calls itself rank {rank} of {size}");
    ensure!(!peers.contains_key(&rank), "rank {rank} exists twice: were two jobs given one MASTER_PORT?");
    ensure!(hello.options == options, "rank {rank} was started with {} but rank 0 with {options}", hello.options);
    Ok(())
}

/// Every other rank's side.
fn visit(world: &World, master: &Master, options: &str, patience: Patience<'_>) -> Result<Circle> {
    let (deadline, timeout) = (Deadline::of(patience), patience.timeout);
    let mut stream = knock(master, deadline, timeout)?;
    // The address by which this host reaches rank 0 is one by which its neighbours can reach it.
    let listener = listen(stream.local_addr().context("asking for the own address")?.ip())?;
    let address = listener.local_addr().context("asking for the own address")?;
    let hello = Hello { rank: world.rank, size: world.size, address, options: options.to_owned() };
    stream.write_all(hello.line().as_bytes()).context("cannot say hello to rank 0")?;
    // No address is longer than 64 bytes.
    let answer = net::read_line(&mut stream, MAX_HELLO + 64 * world.size, deadline)
        .context("rank 0 gave no list of ranks: it has ended or still waits for others; look for its own message")?;
    if let Some(reason) = answer.strip_prefix("refused ") {
        bail!("rank 0 refuses this rank: {reason}");
    }
    let addresses: Option<Vec<SocketAddr>> =
        answer.strip_prefix("table ").and_then(|table| table.split(' ').map(|address| address.parse().ok()).collect());
    match addresses {
        Some(addresses) if addresses.len() == world.size => Ok(Circle { listener, addresses }),
        _ => bail!("what listens there is not rank 0 of this job: it answered {answer:?}"),
    }
}

/// A listener for the left neighbour, at any free port.
fn listen(ip: IpAddr) -> Result<TcpListener> {
    TcpListener::bind((ip, 0)).with_context(|| format!("cannot listen at {ip} for the neighbour in the ring"))
}

/// Connects to rank 0, which may start later than this rank.
fn knock(master: &Master, deadline: Deadline<'_>, timeout: Duration) -> Result<TcpStream> {
    let addresses = master.addresses()?;
    let mut pause = Duration::from_millis(10);
    let mut last = None;
    loop {
        for address in &addresses {
            let Some(left) = deadline.left() else {
                let error = last.map_or_else(|| anyhow::anyhow!("no time was left"), anyhow::Error::from);
                let waited = timeout.as_secs();
                return Err(error.context(format!("rank 0 did not listen within {waited} s: was it started?")));
            };
            match TcpStream::connect_timeout(address, left.min(MOMENT)) {
                // Connecting again and again to a free port of this host can meet itself, where the kernel gives both ends one number.
                Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {}
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}

#[cfg(test)]
mod tests {
    use super::{Hello, meet};
    use crate::net::Patience;
    use crate::world::World;
    use anyhow::Result;
    use std::env::VarError;
    use std::io::Write;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::Duration;

    /// A port that was free a moment ago, below those that the kernel hands out by itself,
    /// so that no other socket gets it meanwhile.
    fn free_port() -> u16 {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let first = std::process::id() * 16;
        let candidates = std::iter::repeat_with(|| 10_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000);
        let mut ports = candidates.map(|port| u16::try_from(port).unwrap());
        ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
    }

    /// Starts one rank on a thread and returns its table, or its error in full.
    fn rank(
        rank: usize,
        size: usize,
        port: u16,
        options: &str,
        millis: u64,
    ) -> thread::JoinHandle<Result<Vec<SocketAddr>, String>> {
        let options = options.to_owned();
        let run = move || {
            let world = World::from_environment(|name| match name {
                "RANK" => Ok(rank.to_string()),
                "WORLD_SIZE" => Ok(size.to_string()),
                "MASTER_ADDR" => Ok("127.0.0.1".to_owned()),
                "MASTER_PORT" => Ok(port.to_string()),
                _ => Err(VarError::NotPresent),
            });
            let world = world.unwrap();
            let met =
                meet(&world, world.master.as_ref().unwrap(), &options, Patience::of(Duration::from_millis(millis)));
            met.map(|circle| circle.addresses).map_err(|error| format!("{error:#}"))
        };
        thread::Builder::new().name(format!("rank {rank}")).spawn(run).unwrap()
    }

    #[test]
    fn hello_survives_the_wire_and_strangers_are_recognised() {
        let hello = Hello { rank: 3, size: 4, address: "[::1]:7".parse().unwrap(), options: "a=1".to_owned() };
        assert_eq!(Hello::parse(hello.line().trim_end()), Some(hello));
        for line in ["", "GET / HTTP/1.1", "rlaunch-example-train/1 3 4 nowhere a=1"] {
            assert_eq!(Hello::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn all_ranks_get_one_table_though_rank_0_comes_late_and_a_stranger_early() {
        let port = free_port();
        let mut ranks: Vec<_> = (1..4).map(|r| rank(r, 4, port, "a=1", 20_000)).collect();
        thread::sleep(Duration::from_millis(50));
        ranks.push(rank(0, 4, port, "a=1", 20_000));
        if let Ok(mut stranger) = TcpStream::connect(("127.0.0.1", port)) {
            stranger.write_all(b"GET / HTTP/1.1\r\n").unwrap_or_default();
        }
        let tables: Vec<_> = ranks.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
        assert_eq!(tables[0].len(), 4);
        assert!(tables.iter().all(|table| *table == tables[0]), "{tables:?}");
    }

    #[test]
    fn missing_ranks_are_named_on_both_sides() {
        let port = free_port();
        let alone = rank(0, 3, port, "a=1", 100).join().unwrap().unwrap_err();
        assert!(alone.starts_with("no word from rank 1, 2 within"), "{alone}");
        let lost = rank(1, 2, free_port(), "a=1", 100).join().unwrap().unwrap_err();
        assert!(lost.starts_with("rank 0 did not listen within"), "{lost}");
    }

    #[test]
    fn ranks_with_other_options_receive_the_reason_of_the_refusal() {
        let port = free_port();
        let (host, peer) = (rank(0, 2, port, "a=1", 20_000), rank(1, 2, port, "a=2", 20_000));
        let (host, peer) = (host.join().unwrap().unwrap_err(), peer.join().unwrap().unwrap_err());
        assert!(host.ends_with("rank 1 was started with a=2 but rank 0 with a=1"), "{host}");
        assert!(peer.starts_with("rank 0 refuses this rank: rank 1 was started with a=2"), "{peer}");
    }

    #[test]
    fn a_port_in_use_is_said_to_be() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = rank(0, 2, taken.local_addr().unwrap().port(), "a=1", 100).join().unwrap().unwrap_err();
        assert!(error.contains("choose another MASTER_PORT"), "{error}");
    }
}
