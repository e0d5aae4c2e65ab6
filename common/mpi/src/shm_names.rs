//! Names of the files that libraries make in /dev/shm. All of them have the world in them: no rank names a file that is removed.

use super::Layout;
use alloc::format;
use alloc::string::String;

/// The files of MPICH for the ranks of a host, by the name of their space of keys.
pub(super) fn of_mpich(layout: &Layout, space: &str) -> [String; 2] {
    let (hash, here) = (fowler(space.as_bytes()), layout.here);
    ["shm", "vci"].map(|kind| format!("mpich_{kind}_{hash:x}_{here}"))
}

/// The part that all names of Open MPI have: a number of the world. The first is that of version 5, the second that of 4.1.
pub(super) fn of_open_mpi(layout: &Layout) -> [String; 2] {
    let hash = jenkins(layout.name.as_bytes());
    let folded = ((hash >> 16) ^ (hash & 0xffff)) << 16;
    [folded, hash & !0x8000].map(|number| format!(".{number:x}."))
}

/// Fowler, Noll and Vo's hash of 32 bits.
fn fowler(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, b| (hash ^ u32::from(*b)).wrapping_mul(0x100_0193))
}

/// Jenkins's hash, one byte at a time.
fn jenkins(bytes: &[u8]) -> u32 {
    let mixed = bytes.iter().fold(0_u32, |hash, b| {
        let hash = hash.wrapping_add(u32::from(*b));
        let hash = hash.wrapping_add(hash << 10);
        hash ^ hash >> 6
    });
    let hash = mixed.wrapping_add(mixed << 3);
    let hash = hash ^ hash >> 11;
    hash.wrapping_add(hash << 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that MPICH 5.0.2 has made.
    #[test]
    fn names_are_those_of_mpich() {
        assert_eq!(fowler(b"kvs_rl-a32c755c1d90e1424181559ff76a9bbb-0_0"), 0xcd87_d41e);
    }

    /// Version 5.0.11 has made sm_segment.vm.0.3b7d0000.0. Version 4.1.8 has made vader_segment.vm.0.90992be4.0.
    #[test]
    fn names_of_open_mpi_have_the_number_of_the_world() {
        assert_eq!(of_open_mpi(&super::super::tests::world(1)), [".3b7d0000.", ".90992be4."]);
    }
}
