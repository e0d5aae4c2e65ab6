//! Memory that a listener holds for its clients: requests that have not arrived whole, and answers that were not read.
//!
//! A request that never ends is stored nowhere, so no namespace counts it. Without a limit of its own a client that opens many connections,
//! and leaves a long request unfinished on each, takes all memory of the host.

/// So many bytes of each client are not counted: a descriptor costs as much.
pub const FREE: usize = 4 << 10;

/// Bytes of all clients of a listener, and how many there may be.
#[derive(Debug)]
pub struct BufferQuota {
    used: usize,
    most: usize,
}

/// The part of it that one client has.
#[derive(Debug, Default)]
pub struct BufferShare(usize);

/// There is no room for what a client has begun to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{used} of {most} bytes are in use for requests that have not arrived whole and answers that were not read")]
pub struct BuffersFull {
    /// What others use.
    pub used: usize,
    /// What there may be.
    pub most: usize,
}

impl BufferQuota {
    /// Nothing is in use.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { used: 0, most }
    }

    /// A client has so many bytes now. A share that shrinks always fits.
    ///
    /// # Errors
    /// There is no room for them; the share stays as it was.
    pub const fn resize(&mut self, share: &mut BufferShare, bytes: usize) -> Result<(), BuffersFull> {
        let wanted = bytes.saturating_sub(FREE);
        let others = self.used.saturating_sub(share.0);
        let sum = others.saturating_add(wanted);
        if wanted > share.0 && sum > self.most {
            return Err(BuffersFull { used: others, most: self.most });
        }
        (self.used, share.0) = (sum, wanted);
        Ok(())
    }

    /// A client has left.
    pub const fn release(&mut self, share: &BufferShare) {
        self.used = self.used.saturating_sub(share.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_all_clients_together_are_limited() {
        let mut quota = BufferQuota::new(100);
        let (mut a, mut b) = (BufferShare::default(), BufferShare::default());
        assert_eq!(quota.resize(&mut a, FREE), Ok(()));
        assert_eq!((quota.used, a.0), (0, 0), "short requests are not counted");
        assert_eq!(quota.resize(&mut a, FREE + 60), Ok(()));
        assert_eq!(quota.resize(&mut b, FREE + 41), Err(BuffersFull { used: 60, most: 100 }));
        assert_eq!(quota.resize(&mut b, FREE + 40), Ok(()));
        assert_eq!(quota.resize(&mut a, FREE + 61), Err(BuffersFull { used: 40, most: 100 }));
        assert_eq!(quota.resize(&mut a, FREE + 10), Ok(()), "a request that was done gives its bytes back");
        quota.release(&b);
        assert_eq!(quota.resize(&mut a, FREE + 100), Ok(()));
        assert_eq!(quota.used, 100);
    }
}
