//! The kernel's word about the process of a connection: its user, and whether it has the rights of the job.

use super::MpiListener;
use super::connection::Connection;
use crate::edges::tcpstore_listener::Authorizer;
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_protocol::wire::frozen::client::{Code, Refused};
use rlaunch_sys::facts::host;
use rlaunch_sys::rights;

impl MpiListener {
    /// The user of the process that has made a connection. It is the same after the process has executed a setuid program.
    pub(super) fn user_of(&mut self, client: ClientId) -> Option<u32> {
        let Connection { socket, .. } = self.connections.get(client)?;
        self.authorizer.as_mut().and_then(|authorizer: &mut Authorizer| authorizer.user_of(socket))
    }

    /// Why a process may order nothing: it has other rights than the programs that an order starts. `None`: it may.
    pub(super) fn difference(&mut self, client: ClientId) -> Option<String> {
        let user = self.user_of(client);
        let Some(connection) = self.connections.get(client) else { return Some("it has left".to_owned()) };
        rights::difference(connection.pid(), |started| connection.has_begun(started)).or_else(|| {
            let is_ours = user == Some(host::user().0);
            (!is_ours).then(|| "its connection is of another user than the job".to_owned())
        })
    }
}

/// The answer to an order of a process that lacks the rights for it.
pub(in crate::edges) fn refused(rank: Option<Rank>, why: &str) -> Vec<u8> {
    let rank = rank.map_or_else(|| "a process".to_owned(), |rank| format!("rank {rank}"));
    let text = format!("{rank} has other rights than the job: {why}");
    let hint = b"rlaunch started with the rights of that process, or a rank with the rights of the job";
    Refused { code: Code::Other, within: None, text: text.as_bytes(), hint }.write()
}
