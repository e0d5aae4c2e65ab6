//! Waiting on sockets with an end: the standard library can time out a read, but neither an accept nor a whole dialogue.

use anyhow::{Context, Result, anyhow, bail};
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// How long one waits for other ranks, and what may end that before.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'a> {
    pub(crate) timeout: Duration,
    /// Whether no other rank is to be waited for any more, because the round has ended.
    pub(crate) is_over: &'a dyn Fn() -> bool,
}

impl Patience<'static> {
    /// Nothing ends it before.
    pub(crate) fn of(timeout: Duration) -> Self {
        Self { timeout, is_over: &|| false }
    }
}

/// The moment at which a wait is given up.
#[derive(Clone, Copy)]
pub(crate) struct Deadline<'a>(Instant, &'a dyn Fn() -> bool);

impl<'a> Deadline<'a> {
    pub(crate) fn of(patience: Patience<'a>) -> Self {
        Self(Instant::now() + patience.timeout, patience.is_over)
    }

    /// The earlier of this deadline and the one `span` from now.
    pub(crate) fn within(self, span: Duration) -> Self {
        Self(self.0.min(Instant::now() + span), self.1)
    }

    /// The time left, `None` once there is none.
    pub(crate) fn left(self) -> Option<Duration> {
        self.0.checked_duration_since(Instant::now()).filter(|left| !left.is_zero() && !(self.1)())
    }
}

/// The next connection, or `None` at the deadline. The connection blocks and is not delayed to fill packets.
pub(crate) fn accept(listener: &TcpListener, deadline: Deadline<'_>) -> Result<Option<(TcpStream, SocketAddr)>> {
    listener.set_nonblocking(true).context("preparing to accept")?;
    loop {
        match listener.accept() {
            Ok((stream, from)) => {
                stream.set_nonblocking(false).context("preparing an accepted connection")?;
                stream.set_nodelay(true).context("preparing an accepted connection")?;
                return Ok(Some((stream, from)));
            }
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) =>
            {
                let Some(left) = deadline.left() else { return Ok(None) };
                thread::sleep(left.min(Duration::from_millis(5)));
            }
            Err(e) => return Err(e).context("accepting a connection"),
        }
    }
}

/// A line without its end, at most `limit` bytes long. Reads nothing past it: the next bytes are for another reader.
pub(crate) fn read_line(stream: &mut TcpStream, limit: usize, deadline: Deadline<'_>) -> Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        let Some(left) = deadline.left() else { bail!("it did not finish its line in time") };
        stream.set_read_timeout(Some(left)).context("setting a deadline")?;
        match stream.read(&mut byte) {
            Ok(0) => bail!("it closed the connection without an answer"),
            Ok(_) if byte == *b"\n" => return String::from_utf8(line).context("its line is not text"),
            Ok(_) if line.len() == limit => bail!("its line is longer than {limit} bytes"),
            Ok(_) => line.push(byte[0]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(e).context("reading its line"),
        }
    }
}

/// The most likely meaning of a failed read from or write to another rank.
pub(crate) fn explain(error: io::Error, timeout: Duration) -> anyhow::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            let waited = timeout.as_secs();
            anyhow!("it was silent for {waited} s: it is stopped, stuck or cut off; --timeout waits longer")
        }
        ErrorKind::UnexpectedEof => anyhow!("it closed the connection: that rank has ended; look for its own message"),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            anyhow!("the connection broke ({error}): that rank has ended; look for its own message")
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Deadline, Patience, accept, read_line};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    fn after(timeout: Duration) -> Deadline<'static> {
        Deadline::of(Patience::of(timeout))
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, accept(&listener, after(Duration::from_secs(10))).unwrap().unwrap().0)
    }

    #[test]
    fn neighbour_never_connects() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(accept(&listener, after(Duration::from_millis(20))).unwrap().is_none());
    }

    #[test]
    fn a_line_is_read_and_nothing_more() {
        let (mut near, mut far) = pair();
        far.write_all(b"one\ntwo").unwrap();
        assert_eq!(read_line(&mut near, 3, after(Duration::from_secs(10))).unwrap(), "one");
        let mut rest = [0; 3];
        near.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"two");
    }

    #[test]
    fn lines_that_do_not_end_are_given_up() {
        let (mut near, mut far) = pair();
        far.write_all(b"endless").unwrap();
        let long = read_line(&mut near, 3, after(Duration::from_secs(10))).unwrap_err();
        assert!(long.to_string().contains("longer than 3 bytes"));
        let late = read_line(&mut near, 99, after(Duration::from_millis(20))).unwrap_err();
        assert!(late.to_string().contains("in time"));
        drop(far);
        let closed = read_line(&mut near, 99, after(Duration::from_secs(10))).unwrap_err();
        assert!(closed.to_string().contains("closed the connection"));
    }
}
