//! The check whether a binary has arrived intact: the checksum of POSIX `cksum`.
//!
//! Against people the owner and the modes stand: who can write the file or its directory is the user or root. The remaining causes are a
//! full disk, a power loss after a rename, a flipped bit. A CRC is made for those, and a host computes it in a fifth of the time of a
//! cryptographic hash.

use super::hash::Hash;
use alloc::format;
use alloc::string::String;
use core::fmt;
use crc::{CRC_32_CKSUM, Crc, Digest, Table};

type Slices = Table<16>;

static CRC: Crc<u32, Slices> = Crc::<u32, Slices>::new(&CRC_32_CKSUM);

/// The checksum of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sum(u32);

/// A checksum that is being computed.
pub struct Summer {
    digest: Digest<'static, u32, Slices>,
    len: u64,
}

impl Default for Summer {
    fn default() -> Self {
        Self { digest: CRC.digest(), len: 0 }
    }
}

impl Summer {
    /// More bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.len += bytes.len() as u64;
    }

    /// The checksum of all of them, and of their number: its bytes follow, the lowest first, without zeros at the end.
    #[must_use]
    pub fn finish(mut self) -> Sum {
        let len = self.len.to_le_bytes();
        let zeros = self.len.leading_zeros() as usize / 8;
        self.digest.update(len.get(..len.len() - zeros).unwrap_or_default());
        Sum(self.digest.finalize())
    }
}

impl Sum {
    /// The checksum of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut summer = Summer::default();
        summer.update(bytes);
        summer.finish()
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The sums of a binary. Agents of a step find them in the first line on stdin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sums {
    /// The hash of its bytes.
    pub hash: Hash,
    /// Their checksum.
    pub sum: Sum,
    /// The hash of its ends.
    pub ends: Hash,
}

impl Sums {
    /// Length of the line in bytes.
    pub const LENGTH: usize = 64 + 1 + 10 + 1 + 64 + 1;

    /// The line: the hash in 64 hex digits, the checksum in decimal and spaces, the hash of the ends, a newline.
    #[must_use]
    pub fn to_line(&self) -> String {
        format!("{} {:<10} {}\n", self.hash, self.sum, self.ends)
    }

    /// The hash of the ends in such a line.
    #[must_use]
    pub fn ends_of(line: &[u8; Self::LENGTH]) -> Option<Hash> {
        line.split_at_checked(Self::LENGTH - 65).and_then(|(_, ends)| Hash::parse(ends.strip_suffix(b"\n")?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn is_what_cksum_prints() {
        // printf abc | cksum; : | cksum; head -c 70000 /dev/zero | cksum
        assert_eq!(Sum::of(b"abc").to_string(), "1219131554");
        assert_eq!(Sum::of(b"").to_string(), "4294967295");
        assert_eq!(Sum::of(&alloc::vec![0; 70_000]).to_string(), "1774371287");
    }

    #[test]
    fn line_of_sums_has_one_length_and_gives_the_ends_back() {
        for sum in [Sum(0), Sum(u32::MAX)] {
            let sums = Sums { hash: Hash::of(b"binary"), sum, ends: Hash::of(b"bin ary") };
            let line = sums.to_line();
            let bytes: &[u8; Sums::LENGTH] = line.as_bytes().try_into().unwrap();
            assert_eq!(Sums::ends_of(bytes), Some(sums.ends));
            assert_eq!(line.split_whitespace().nth(1), Some(sum.0.to_string().as_str()));
        }
    }
}
