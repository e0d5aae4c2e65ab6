//! TPU chips, as the PCI bus shows them.
//!
//! The ids are those that jax (`_src/hardware_utils.py`) and `torch_xla` (`_internal/tpu.py`) look for.

use core::fmt;

/// The PCI vendor of TPU chips.
pub const VENDOR: u16 = 0x1ae0;

/// The generation of a chip.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Generation {
    /// v2 and v3 have one id.
    V2OrV3,
    /// A chip for tests of systems.
    Plc,
    /// v4.
    V4,
    /// v5p.
    V5p,
    /// v5e.
    V5e,
    /// v6e.
    V6e,
    /// TPU7x.
    Tpu7x,
}

/// The generation of a PCI device of [`VENDOR`]; `None`: it is no TPU chip that is known.
#[must_use]
pub const fn generation(device: u16) -> Option<Generation> {
    match device {
        0x0027 => Some(Generation::V2OrV3),
        0x0056 => Some(Generation::Plc),
        0x005e => Some(Generation::V4),
        0x0062 => Some(Generation::V5p),
        0x0063 => Some(Generation::V5e),
        0x006f => Some(Generation::V6e),
        0x0076 => Some(Generation::Tpu7x),
        _ => None,
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V2OrV3 => "v2 or v3",
            Self::Plc => "plc",
            Self::V4 => "v4",
            Self::V5p => "v5p",
            Self::V5e => "v5e",
            Self::V6e => "v6e",
            Self::Tpu7x => "tpu7x",
        })
    }
}

/// Variables that Google's Kubernetes sets in the containers of a TPU host.
pub const HOST_VARIABLES: [&str; 3] = ["TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "TPU_ACCELERATOR_TYPE"];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn known_ids_have_a_generation() {
        let ids = [0x27, 0x56, 0x5e, 0x62, 0x63, 0x6f, 0x76].map(|id| generation(id).map(|of| of.to_string()));
        let names = ["v2 or v3", "plc", "v4", "v5p", "v5e", "v6e", "tpu7x"].map(|name| Some(name.to_string()));
        assert_eq!(ids, names);
        assert_eq!(generation(0x1234), None);
    }
}
