//! An order of a rank, on its way from its agent to the launcher.

use rlaunch_base::id::{ClientId, Rank, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use serde::{Deserialize, Serialize};

/// Whom the answer is for: a client of an agent, and its number for the order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Asker {
    /// The client.
    pub client: ClientId,
    /// Its number.
    pub seq: u64,
}

/// An order of a rank.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RankOrder {
    /// Whom the answer is for.
    pub asker: Asker,
    /// The world of the rank.
    pub world: WorldId,
    /// Its number there; `None`: it does not say.
    pub rank: Option<Rank>,
    /// The words of the order (`frozen::client::order`).
    pub words: OsBytes,
}
