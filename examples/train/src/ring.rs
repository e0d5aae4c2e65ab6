//! The all-reduce: a sum over all ranks that every rank ends up with, in which each rank talks to its two neighbours only.
//!
//! The row of numbers is cut into as many chunks as there are ranks. In the first lap each rank passes a chunk to its right and adds what comes from
//! its left, until each chunk is complete at one rank; in the second lap the complete chunks go round. Each rank sends every number about twice,
//! however many ranks there are, and all ranks end with the same bits, because each chunk was added up at one place.

use crate::net::{self, Deadline, Patience};
use crate::rendezvous::Circle;
use crate::shard::shard;
use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

/// How many numbers are written before as many are read.
///
/// All ranks write before they read, so a piece must fit into a socket's buffers, which it does many times over. Then no circle of ranks can wait for
/// each other: a rank that cannot write is at least one piece ahead of its right neighbour, and not all ranks can be ahead.
const PIECE: usize = 512;
/// The bytes of one number.
const WIDTH: usize = size_of::<f64>();

/// Ring: the place of this rank, and its links.
pub(crate) struct Ring {
    rank: usize,
    size: usize,
    links: Option<Links>,
}

struct Links {
    left: Neighbour,
    right: Neighbour,
    timeout: Duration,
}

struct Neighbour {
    rank: usize,
    address: SocketAddr,
    stream: TcpStream,
}

impl Ring {
    /// A ring of one, in which every sum is complete from the start.
    pub(crate) fn alone() -> Self {
        Self { rank: 0, size: 1, links: None }
    }

    /// Connects to the right neighbour and waits for the left one.
    pub(crate) fn close(rank: usize, circle: &Circle, patience: Patience<'_>) -> Result<Self> {
        let timeout = patience.timeout;
        let size = circle.addresses.len();
        if size < 2 {
            return Ok(Self::alone());
        }
        let right = connect(rank, (rank + 1) % size, circle, timeout)?;
        let left = await_left((rank + size - 1) % size, circle, patience)?;
        for stream in [&left.stream, &right.stream] {
            stream.set_nodelay(true).context("switching off the delay of small packets")?;
            stream.set_read_timeout(Some(timeout)).context("setting a deadline")?;
            stream.set_write_timeout(Some(timeout)).context("setting a deadline")?;
        }
        Ok(Self { rank, size, links: Some(Links { left, right, timeout }) })
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Both connections, to be ended from another thread.
    pub(crate) fn streams(&self) -> Result<Vec<TcpStream>> {
        let links = self.links.iter().flat_map(|links| [&links.left, &links.right]);
        links.map(|neighbour| neighbour.stream.try_clone().context("asking for another descriptor")).collect()
    }

    /// Replaces `values` on every rank by their sum over all ranks. All ranks must call it with rows of one length.
    pub(crate) fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        let (rank, size) = (self.rank, self.size);
        let Some(links) = &mut self.links else { return Ok(()) };
        let len = values.len();
        // The chunk `back` places before this rank.
        let chunk = |back: usize| shard(len, (rank + 2 * size - back) % size, size);
        for step in 0..size - 1 {
            links.exchange(values, chunk(step), chunk(step + 1), |own, received| *own += received)?;
        }
        for step in 0..size - 1 {
            links.exchange(values, chunk(step + size - 1), chunk(step), |own, received| *own = received)?;
        }
        Ok(())
    }
}

impl Links {
    /// Sends one part of `values` to the right while another comes in from the left and is put into place.
    fn exchange(
        &mut self,
        values: &mut [f64],
        mut send: Range<usize>,
        mut receive: Range<usize>,
        put: impl Fn(&mut f64, f64),
    ) -> Result<()> {
        let mut bytes = [0; PIECE * WIDTH];
        while !send.is_empty() || !receive.is_empty() {
            let piece = &values[take_piece(&mut send)];
            for (slot, value) in bytes.as_chunks_mut::<WIDTH>().0.iter_mut().zip(piece) {
                *slot = value.to_le_bytes();
            }
            let out = &bytes[..piece.len() * WIDTH];
            self.right.stream.write_all(out).map_err(|e| net::explain(e, self.timeout)).with_context(|| {
                format!("all-reduce: cannot send to rank {} at {}", self.right.rank, self.right.address)
            })?;

            let piece = &mut values[take_piece(&mut receive)];
            let into = &mut bytes[..piece.len() * WIDTH];
            self.left.stream.read_exact(into).map_err(|e| net::explain(e, self.timeout)).with_context(|| {
                format!("all-reduce: cannot receive from rank {} at {}", self.left.rank, self.left.address)
            })?;
            for (value, slot) in piece.iter_mut().zip(into.as_chunks::<WIDTH>().0) {
                put(value, f64::from_le_bytes(*slot));
            }
        }
        Ok(())
    }
}

/// Cuts the next piece off the front of a range.
fn take_piece(range: &mut Range<usize>) -> Range<usize> {
    let end = range.end.min(range.start + PIECE);
    let piece = range.start..end;
    range.start = end;
    piece
}

/// The first message of a rank to its right neighbour.
fn hello(rank: usize) -> String {
    format!("ring from {rank}")
}

fn connect(rank: usize, right: usize, circle: &Circle, timeout: Duration) -> Result<Neighbour> {
    let address = circle.addresses[right];
    let what = || format!("cannot reach rank {right} at {address}: has it ended, or is a firewall between the hosts?");
    // Its listener exists since before the addresses were handed out, so there is nothing to retry.
    let mut stream = TcpStream::connect_timeout(&address, timeout).with_context(what)?;
    stream.write_all(format!("{}\n", hello(rank)).as_bytes()).with_context(what)?;
    Ok(Neighbour { rank: right, address, stream })
}

fn await_left(left: usize, circle: &Circle, patience: Patience<'_>) -> Result<Neighbour> {
    let deadline = Deadline::of(patience);
    let own = circle.listener.local_addr().context("asking for the own address")?;
    while let Some((mut stream, _)) = net::accept(&circle.listener, deadline)? {
        // Any program may connect to a port. Only the neighbour sends the right hello; a silent stranger costs two seconds.
        let said = net::read_line(&mut stream, 64, deadline.within(Duration::from_secs(2)));
        if said.is_ok_and(|line| line == hello(left)) {
            return Ok(Neighbour { rank: left, address: circle.addresses[left], stream });
        }
    }
    let waited = patience.timeout.as_secs();
    bail!("rank {left} did not connect to {own} within {waited} s: has it ended, or is a firewall between the hosts?")
}

#[cfg(test)]
mod tests {
    use super::Ring;
    use crate::net::Patience;
    use crate::rendezvous::Circle;
    use std::net::{SocketAddr, TcpListener};
    use std::thread;
    use std::time::Duration;

    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Runs `body` on one thread for each rank of a ring and returns what each made.
    fn ring_of<T: Send + 'static>(size: usize, body: fn(Ring) -> T) -> Vec<T> {
        let listeners: Vec<_> = (0..size).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<SocketAddr> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
        let start = |(rank, listener)| {
            let circle = Circle { listener, addresses: addresses.clone() };
            let run = move || body(Ring::close(rank, &circle, Patience::of(TIMEOUT)).unwrap());
            thread::Builder::new().name(format!("rank {rank}")).spawn(run).unwrap()
        };
        let threads: Vec<_> = listeners.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    #[test]
    fn sums_are_complete_and_equal_on_all_ranks() {
        for size in 1..=5_usize {
            let sums = ring_of(size, |mut ring| {
                // Shorter than the ring, not divisible by it, and longer than a piece.
                [0_u32, 1, 2, 3, 7, 64, 2411, 9001].map(|len| {
                    let mut row: Vec<f64> = (0..len).map(|i| f64::from(i) + 1000.0 * ring.rank() as f64).collect();
                    ring.sum(&mut row).unwrap();
                    row
                })
            });
            let ranks_below: usize = (0..size).sum();
            for rows in &sums {
                assert_eq!(rows, &sums[0], "ranks differ in a ring of {size}");
                for row in rows {
                    for (i, value) in row.iter().enumerate() {
                        assert_eq!(*value, (i * size + 1000 * ranks_below) as f64, "element {i} of {size} ranks");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_larger_than_the_buffers_of_sockets_do_not_lock_up() {
        let sums = ring_of(3, |mut ring| {
            let mut row = vec![1.5; 4_000_000];
            ring.sum(&mut row).unwrap();
            row.iter().all(|value| *value == 4.5)
        });
        assert_eq!(sums, [true; 3]);
    }

    #[test]
    fn a_rank_that_ends_is_named() {
        let errors = ring_of(2, |mut ring| {
            if ring.rank() == 1 {
                return String::new();
            }
            let mut sum = || ring.sum(&mut [1.0; 10]);
            let error = std::iter::repeat_with(&mut sum).find_map(Result::err).unwrap();
            format!("{error:#}")
        });
        assert!(errors[0].contains("rank 1 at 127.0.0.1:") && errors[0].contains("has ended"), "{}", errors[0]);
    }

    #[test]
    fn a_neighbour_that_never_comes_is_named() {
        let listeners = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
        let addresses = listeners.each_ref().map(|l| l.local_addr().unwrap()).to_vec();
        let [listener, _silent] = listeners;
        let circle = Circle { listener, addresses };
        let error = Ring::close(0, &circle, Patience::of(Duration::from_millis(50))).err().unwrap();
        assert!(error.to_string().starts_with("rank 1 did not connect to 127.0.0.1:"), "{error:#}");
    }
}
