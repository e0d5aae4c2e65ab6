//! Remaining connections of stores that are gone.
//!
//! torch before 2.1 has a second connection to each store, at which a thread of each rank waits for a message that never comes. From the
//! end of that on the thread goes round and round, at the cost of a processor, for as long as the rank keeps a group that was made there;
//! a model does. So connections that have never carried a byte stay until their ranks have closed them.

use std::io::ErrorKind;
use std::net::TcpStream;

/// The remaining connections of all listeners of this agent.
#[derive(Debug, Default)]
pub(in crate::edges) struct SilentConnections {
    /// How many connections have come to them.
    pub(in crate::edges) came: u64,
    silent: Vec<TcpStream>,
}

impl SilentConnections {
    /// These too, so far as there may be so many. Connections that their ranks have closed are dropped.
    pub(in crate::edges) fn keep(&mut self, others: impl Iterator<Item = TcpStream>, most: usize) {
        self.silent.retain(is_silent);
        let room = most.saturating_sub(self.silent.len());
        self.silent.extend(others.filter(is_silent).take(room));
    }
}

/// Whether it is open, and nothing has come; a read would wait.
fn is_silent(socket: &TcpStream) -> bool {
    socket.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    fn pairs(listener: &TcpListener, count: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
        let pair = |_| {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let served = listener.accept().unwrap().0;
            served.set_nonblocking(true).unwrap();
            (client, served)
        };
        (0..count).map(pair).unzip()
    }

    #[test]
    fn silent_connection_stays_until_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut clients, served) = pairs(&listener, 4);
        clients[0].write_all(b"x").unwrap();
        served[0].set_nonblocking(false).unwrap();
        served[0].peek(&mut [0]).unwrap();
        served[0].set_nonblocking(true).unwrap();
        let mut before = SilentConnections::default();
        before.keep(served.into_iter(), 2);
        assert_eq!(before.silent.len(), 2);
        for closed in [0, 3] {
            // Bytes that it has not read make a reset of its end.
            assert_eq!(clients[closed].read(&mut [0]).unwrap_or(0), 0, "one has spoken, another is one too many");
        }
        drop(clients.remove(1));
        before.keep(std::iter::empty(), 2);
        assert_eq!(before.silent.len(), 1);
        let (_others, served) = pairs(&listener, 2);
        before.keep(served.into_iter(), 9);
        assert_eq!(before.silent.len(), 3);
    }
}
