//! A connection to the agent: one request at a time.

use crate::call_guard;
use crate::kernel::send_all;
use crate::{Error, World};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use rlaunch_base::id::WorldId;
use rlaunch_protocol::wire::frozen::client::order::order_frame;
use rlaunch_protocol::wire::frozen::client::{
    Asked, FromAgent, HELLO, MAX_FRAME, Space, VERSION, frame_len, hello, parse_hello, world_frame,
};
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The path of the agent's socket; `None`: outside rlaunch.
pub(crate) fn path_from_env() -> Result<Option<PathBuf>, Error> {
    if let Some(path) = std::env::var_os("RLAUNCH_SOCKET").filter(|path| !path.is_empty()) {
        return Ok(Some(path.into()));
    }
    let world = World::quietly()?;
    let several = !world.job_id.is_empty() && world.world_size > 1;
    if several { Err(Error::NoSocket(world.world_size)) } else { Ok(None) }
}

/// The world of this process, if it is not the first one of the job.
fn world() -> Option<WorldId> {
    let number = std::env::var("RLAUNCH_WORLD").ok()?.parse().ok()?;
    Some(WorldId::new(number)).filter(|world| *world > WorldId::new(0))
}

#[derive(Debug)]
pub(crate) struct Connection {
    socket: Arc<UnixStream>,
    seq: u64,
    came: Vec<u8>,
    ended: bool,
}

impl Connection {
    pub(crate) fn open(path: &Path, rank: u32) -> Result<Self, Error> {
        let connect = |source| Error::Connect { path: path.to_owned(), source };
        // It is closed on exec.
        let socket = UnixStream::connect(path).map_err(connect)?;
        // After the job has ended, any user can make a socket of this name in /tmp. The agent is of our user, or root's.
        let user = getsockopt(&socket, PeerCredentials).map_err(|errno| connect(errno.into()))?.uid();
        if user != 0 && user != geteuid().as_raw() {
            return Err(Error::ForeignSocket { path: path.to_owned(), user });
        }
        send_all(&socket, &hello(rank))?;
        let mut first = [0; HELLO];
        if let Err(error) = (&socket).read_exact(&mut first) {
            return Err(if error.kind() == std::io::ErrorKind::UnexpectedEof {
                Error::Closed(String::new())
            } else {
                error.into()
            });
        }
        let (version, _) = parse_hello(&first).map_err(|_| Error::Malformed)?;
        if version != VERSION {
            return Err(Error::Version(version));
        }
        if let Some(world) = world() {
            send_all(&socket, &world_frame(world))?;
        }
        Ok(Self::over(socket))
    }

    /// Both have greeted.
    pub(crate) fn over(socket: UnixStream) -> Self {
        Self { socket: Arc::new(socket), seq: 0, came: Vec::new(), ended: false }
    }

    /// Returns the opened socket, for a conversation of another kind: only the hellos were exchanged.
    pub(crate) fn into_socket(self) -> Arc<UnixStream> {
        self.socket
    }

    /// Asks, and waits for the answer: the whole frame, to be read as [`FromAgent`]. With `may_end`, not beyond the end of a round.
    pub(crate) fn ask(&mut self, space: Space, words: &[u8], may_end: bool) -> Result<Vec<u8>, Error> {
        let wait = if may_end { call_guard::begin(&self.socket)? } else { None };
        let answer = self.answer(space, words);
        self.ended = wait.is_some_and(call_guard::Wait::was_ended);
        if self.ended && answer.is_err() { Err(crate::Interrupted.into()) } else { answer }
    }

    /// Whether it was ended with a round, after the last answer: no more requests can be made.
    pub(crate) const fn is_ended(&self) -> bool {
        self.ended
    }

    /// Orders something of the job, and waits for the answer.
    pub(crate) fn order(&mut self, words: &[u8]) -> Result<Vec<u8>, Error> {
        self.seq += 1;
        self.exchange(&order_frame(self.seq, words), words)
    }

    fn answer(&mut self, space: Space, words: &[u8]) -> Result<Vec<u8>, Error> {
        self.seq += 1;
        self.exchange(&Asked { seq: self.seq, space, words }.to_frame(), words)
    }

    fn exchange(&mut self, frame: &[u8], words: &[u8]) -> Result<Vec<u8>, Error> {
        if frame.len() > MAX_FRAME + 4 {
            return Err(Error::TooLong(words.len()));
        }
        // The last message of an agent is more precise than its close.
        let sent = send_all(&self.socket, frame);
        loop {
            let frame = match self.frame() {
                Err(Error::Closed(_)) => {
                    return Err(sent.err().map_or_else(|| Error::Closed(String::new()), Error::Io));
                }
                frame => frame?,
            };
            match FromAgent::parse(&frame).map_err(|_| Error::Malformed)? {
                FromAgent::Bye(why) => return Err(Error::Closed(String::from_utf8_lossy(why).into_owned())),
                FromAgent::Answer(seq, _) if seq == self.seq => return Ok(frame),
                FromAgent::Answer(..) => {}
            }
        }
    }

    fn frame(&mut self) -> Result<Vec<u8>, Error> {
        let mut chunk = [0; 16 << 10];
        loop {
            if let Some(len) = frame_len(&self.came).map_err(|_| Error::Malformed)?
                && len <= self.came.len()
            {
                let rest = self.came.split_off(len);
                return Ok(std::mem::replace(&mut self.came, rest));
            }
            match (&*self.socket).read(&mut chunk) {
                Ok(0) => return Err(Error::Closed(String::new())),
                Ok(len) => self.came.extend_from_slice(chunk.get(..len).unwrap_or_default()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Err(Error::Closed(String::new()));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn an_agent_of_another_version_is_named_and_not_talked_to() {
        let path = std::env::temp_dir().join(format!("rlaunch-client-version-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let agent = std::thread::Builder::new().spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut greeting = [0; HELLO];
            socket.read_exact(&mut greeting).unwrap();
            // The version follows the name.
            greeting[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
            std::io::Write::write_all(&mut socket, &greeting).unwrap();
            socket.read(&mut [0; 8]).unwrap()
        });
        let opened = Connection::open(&path, 0);
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(opened, Err(Error::Version(version)) if version == VERSION + 1), "{:?}", opened.err());
        assert_eq!(agent.unwrap().join().unwrap(), 0, "nothing more was said");
    }
}
