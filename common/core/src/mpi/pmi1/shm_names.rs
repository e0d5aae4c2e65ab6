//! Names of the files that MPICH makes in /dev/shm. MPICH derives them from the name of the space of keys and the number of the host.

use super::super::Layout;
use alloc::format;
use alloc::string::String;

/// The files of the ranks of a host, by the name of their space.
pub(super) fn of_space(layout: &Layout, space: &str) -> [String; 2] {
    let (hash, here) = (hash(space.as_bytes()), layout.here);
    ["shm", "vci"].map(|kind| format!("/dev/shm/mpich_{kind}_{hash:x}_{here}"))
}

/// Fowler, Noll and Vo's hash of 32 bits.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, b| (hash ^ u32::from(*b)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that MPICH 5.0.2 has made.
    #[test]
    fn names_are_those_of_mpich() {
        assert_eq!(hash(b"kvs_rl-a32c755c1d90e1424181559ff76a9bbb-0_0"), 0xcd87_d41e);
    }
}
