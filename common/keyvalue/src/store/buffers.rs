//! Quota for the memory that a listener holds for its clients: requests that have not arrived whole, and unread answers.
//!
//! No namespace counts a request that never ends. Without a quota, a client with many connections and a long unfinished request on each
//! takes all memory of the host.

/// Bytes of each client that are free of charge. A descriptor costs as much.
pub const FREE: usize = 4 << 10;

/// Bytes that are held for all clients of a listener, and their limit.
#[derive(Debug)]
pub struct BufferQuota {
    used: usize,
    most: usize,
}

/// One client's share of a [`BufferQuota`].
#[derive(Debug, Default)]
pub struct BufferShare(usize);

/// Error: the quota has no room for the bytes that are held for a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{used} of {most} bytes are in use for requests that have not arrived whole and answers that were not read")]
pub struct BuffersFull {
    /// Bytes that the other clients use.
    pub used: usize,
    /// The limit in bytes.
    pub most: usize,
}

impl BufferQuota {
    /// Quota of which nothing is in use.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { used: 0, most }
    }

    /// Sets the bytes that are held for a client. A share that shrinks always fits.
    ///
    /// # Errors
    /// The quota has no room for them. The share is unchanged.
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

    /// Gives back the share of a client that has left.
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
