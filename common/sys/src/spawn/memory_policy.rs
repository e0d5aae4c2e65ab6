//! The NUMA node from which the kernel takes the memory of a rank (`set_mempolicy(2)`).

/// The largest number of nodes that kernels are built for.
const NODES: usize = 1024;

/// Memory of one node, and of others where that node has none left.
pub(super) struct Preferred {
    mask: [u64; NODES / 64],
}

impl Preferred {
    /// Prepares the policy. `None`: this process has a policy of the user's, as of `numactl`, which ranks inherit.
    pub(super) fn new(node: u32) -> Option<Self> {
        let mut mask = [0; NODES / 64];
        *mask.get_mut((node / 64) as usize)? |= 1_u64 << (node % 64);
        let mut mode: libc::c_int = libc::MPOL_DEFAULT;
        // SAFETY: the kernel writes one int to `mode`. Null stands for no mask and no address.
        unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, 0_usize, 0_usize, 0_usize, 0_usize) };
        (mode == libc::MPOL_DEFAULT).then_some(Self { mask })
    }

    /// Sets the policy of the calling thread, and of the programs that it executes; a single system call. Returns whether the kernel did:
    /// without NUMA, or in a container that forbids it, memory still comes from the node of the CPU that touches it first.
    pub(super) fn apply(&self) -> bool {
        // The kernel takes the number of bits plus one.
        // SAFETY: `mask` has NODES bits.
        unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_PREFERRED, self.mask.as_ptr(), NODES + 1) == 0 }
    }
}
