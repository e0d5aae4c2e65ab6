//! Which ends of connections are limits of the store: torch's wire has no words for them, so others have to say it.

use super::{Broken, MAX_UNREAD};
use crate::store::Refusal;
use rlaunch_protocol::wire::limit::{Limit, Met};
use rlaunch_protocol::wire::tcpstore_wire::Malformed;

impl Broken {
    /// The limit that was met, if it was one.
    #[must_use]
    pub fn met(&self) -> Option<Met> {
        match self {
            Self::Malformed(Malformed::Long(met)) => Some(met.clone()),
            Self::Refused(refusal) => of(refusal),
            Self::LongAnswer(len) => Some(unread(Limit::Answer, *len)),
            Self::Unread(len) => Some(unread(Limit::Unread, *len)),
            Self::Full { used, most } => Some(at(Limit::Bytes, b"", *used, *most)),
            Self::Malformed(Malformed::Opcode(_)) | Self::OtherProtocol(_) => None,
        }
    }
}

fn unread(limit: Limit, len: usize) -> Met {
    at(limit, b"", len, MAX_UNREAD)
}

fn at(limit: Limit, key: &[u8], has: usize, most: usize) -> Met {
    Met::at(limit, key, has as u64, most as u64)
}

fn of(refusal: &Refusal) -> Option<Met> {
    Some(match refusal {
        Refusal::LongKey { len, most } => at(Limit::Key, b"", *len, *most),
        Refusal::LongValue { key, len, most } => at(Limit::Value, key.as_slice(), *len, *most),
        Refusal::LongAnswer { len, most } => at(Limit::Answer, b"", *len, *most),
        Refusal::ManyKeys { key, most } => at(Limit::Keys, key.as_slice(), *most, *most),
        Refusal::Full { key, used, most } | Refusal::FullOfWaits { key, used, most, .. } => {
            at(Limit::Bytes, key.as_slice(), *used, *most)
        }
        Refusal::ManyWaiting { most } => at(Limit::Waits, b"", *most, *most),
        Refusal::NoNumber { .. } | Refusal::Overflow { .. } | Refusal::Reserved { .. } => return None,
        Refusal::OtherFence { .. } | Refusal::NoParticipant { .. } => return None,
        Refusal::TimedOut { .. } | Refusal::Behind { .. } | Refusal::Unread { .. } | Refusal::Gone => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_distinguished_from_other_ends() {
        let key = || "k".into();
        for (why, met) in [
            (Malformed::Long(Met::at(Limit::Key, b"k", 9, 8)).into(), Met::at(Limit::Key, b"k", 9, 8)),
            (Refusal::LongKey { len: 9, most: 8 }.into(), Met::at(Limit::Key, b"", 9, 8)),
            (Refusal::LongValue { key: key(), len: 9, most: 8 }.into(), Met::at(Limit::Value, b"k", 9, 8)),
            (Refusal::ManyKeys { key: key(), most: 8 }.into(), Met::at(Limit::Keys, b"k", 8, 8)),
            (Refusal::Full { key: key(), used: 7, most: 8 }.into(), Met::at(Limit::Bytes, b"k", 7, 8)),
            (Refusal::FullOfWaits { key: key(), more: 1, used: 7, most: 8 }.into(), Met::at(Limit::Bytes, b"k", 7, 8)),
            (Refusal::ManyWaiting { most: 8 }.into(), Met::at(Limit::Waits, b"", 8, 8)),
            (Broken::LongAnswer(9), Met::at(Limit::Answer, b"", 9, MAX_UNREAD as u64)),
            (Broken::Unread(9), Met::at(Limit::Unread, b"", 9, MAX_UNREAD as u64)),
            (Broken::Full { used: 7, most: 8 }, Met::at(Limit::Bytes, b"", 7, 8)),
        ] {
            let why: Broken = why;
            assert_eq!(why.met(), Some(met), "{why}");
        }
        for why in [Malformed::Opcode(99).into(), Broken::OtherProtocol(1), Refusal::NoNumber { key: key() }.into()] {
            let why: Broken = why;
            assert_eq!(why.met(), None, "{why}");
        }
    }
}
