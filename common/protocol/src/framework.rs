//! The framework that a program uses, as far as its ranks need variables for it that others do not.

use alloc::vec::Vec;
use rlaunch_base::os_bytes::OsBytes;
use serde::{Deserialize, Serialize};

/// `--framework`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Framework {
    /// The framework that the script imports.
    #[default]
    Auto,
    /// JAX.
    Jax,
    /// No framework that needs variables.
    None,
}

/// `--mpi`: whether the ranks of MPI programs are connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mpi {
    /// Unless no rank can need it.
    #[default]
    Auto,
    /// In any case.
    On,
    /// Not.
    None,
}

/// The service of agents for MPI libraries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MpiService {
    /// No service.
    None,
    /// No service (`--mpi none`) for a program that has a library, which may leave files.
    Refused,
    /// For a program whose library, MPICH or Intel MPI, sleeps where ranks are more than processors.
    Served,
    /// For a program whose library is or may be Open MPI, which calls `sched_yield` there: it yields to processes of its session alone.
    Yielding,
}

/// The MPI libraries of a job, and the service for them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MpiPlan {
    /// Whether the MPI libraries of the job are served (`--mpi`).
    pub served: bool,
    /// The MPI library that a program needs, or `mpi4py`; empty: none is known.
    pub library: OsBytes,
}

impl MpiPlan {
    /// The service of agents.
    #[must_use]
    pub fn service(&self) -> MpiService {
        // The library of a wrapper, or of a program that needs it through another library, is not known: it may be Open MPI.
        let sleeps = self.library.ends_with(b".so.12");
        match (self.served, self.library.is_empty()) {
            (false, true) => MpiService::None,
            (false, false) => MpiService::Refused,
            (true, _) if sleeps => MpiService::Served,
            (true, _) => MpiService::Yielding,
        }
    }
}

/// Whether a script or an argument names a library that uses TPU chips.
#[must_use]
pub fn names_tpu_library(text: &[u8]) -> bool {
    [&b"jax"[..], b"torch_xla", b"libtpu"].iter().any(|word| memchr::memmem::find(text, word).is_some())
}

impl Framework {
    /// Whether the program of rank 0 is one of JAX. `text`: that of its script, where it can be read.
    #[must_use]
    pub fn is_jax(self, text: Option<&[u8]>) -> bool {
        match self {
            Self::Jax => true,
            Self::None => false,
            Self::Auto => text.is_some_and(|text| imports(text, b"jax") && !imports(text, b"mpi4py")),
        }
    }
}

/// Whether a file has the name of an MPI library.
#[must_use]
pub fn is_mpi_library(name: &[u8]) -> bool {
    const LIBRARIES: [&[u8]; 5] = [b"libmpi.so", b"libmpi_", b"libmpich", b"libmpicxx", b"libmpifort"];
    LIBRARIES.iter().any(|start| name.starts_with(start))
}

/// Settings of accelerate's file that the variable of `accelerate launch` would pass to ranks, without those that are given.
pub fn accelerate<'a>(file: &'a str, given: impl Fn(&str) -> bool + 'a) -> impl Iterator<Item = &'static str> + 'a {
    const SETTINGS: [(&str, &str); 4] = [
        ("mixed_precision", "ACCELERATE_MIXED_PRECISION"),
        ("fsdp_config", "ACCELERATE_USE_FSDP"),
        ("deepspeed_config", "ACCELERATE_USE_DEEPSPEED"),
        ("dynamo_config", "ACCELERATE_DYNAMO_BACKEND"),
    ];
    let is_set = move |name: &str| {
        let values = file.lines().filter_map(|line| line.split_once(':')).filter(|(own, _)| *own == name);
        let mut words = values.map(|(_, value)| value.trim().trim_matches(['\'', '"']).to_ascii_lowercase());
        words.any(|word| !matches!(word.as_str(), "no" | "{}" | "null"))
    };
    SETTINGS.into_iter().filter(move |(name, variable)| is_set(name) && !given(variable)).map(|(name, _)| name)
}

/// Whether some of the lines of a script imports a package, or a module of it.
#[must_use]
pub fn imports(script: &[u8], package: &[u8]) -> bool {
    script.split(|b| matches!(b, b'\n' | b';')).any(|line| line_imports(line.trim_ascii(), package))
}

/// Packages that the lines of a script import, without relative ones.
pub fn packages(script: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let of_line = |line: &'_ [u8]| -> Vec<_> {
        let code = line.split(|b| *b == b'#').next().unwrap_or_default();
        let (modules, most) = match (code.strip_prefix(b"import "), code.strip_prefix(b"from ")) {
            (Some(modules), _) => (modules, usize::MAX),
            (None, Some(module)) => (module, 1),
            (None, None) => return Vec::new(),
        };
        let name = |module: &'_ [u8]| {
            let word = module.trim_ascii_start();
            let end = word.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_')).unwrap_or(word.len());
            word.get(..end).map(<[u8]>::to_vec).filter(|name| !name.is_empty())
        };
        modules.split(|b| *b == b',').take(most).filter_map(name).collect()
    };
    script.split(|b| matches!(b, b'\n' | b';')).flat_map(move |line| of_line(line.trim_ascii()))
}

/// `import a, jax.numpy as np`, `from jax import ...`.
fn line_imports(line: &[u8], package: &[u8]) -> bool {
    let is_it = |module: &[u8]| {
        let name = module.trim_ascii().split(|b| b.is_ascii_whitespace()).next().unwrap_or_default();
        name.split(|b| *b == b'.').next() == Some(package)
    };
    let code = line.split(|b| *b == b'#').next().unwrap_or_default();
    match (code.strip_prefix(b"import "), code.strip_prefix(b"from ")) {
        (Some(modules), _) => modules.split(|b| *b == b',').any(is_it),
        (None, Some(module)) => is_it(module),
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_yield_in_open_mpi_and_where_the_library_is_not_known() {
        let service = |served, library: &str| MpiPlan { served, library: library.into() }.service();
        for library in ["", "libmpi.so.40", "libmpi_mpifh.so.40", "mpi4py"] {
            assert_eq!(service(true, library), MpiService::Yielding, "{library}");
        }
        for library in ["libmpi.so.12", "libmpich.so.12", "mpi4py with libmpi.so.12"] {
            assert_eq!(service(true, library), MpiService::Served, "{library}");
        }
        assert_eq!(service(false, "libmpi.so.40"), MpiService::Refused);
        assert_eq!(service(false, ""), MpiService::None);
    }

    #[test]
    fn settings_of_accelerate_that_no_variable_passes_are_found() {
        let file = "compute_environment: LOCAL_MACHINE\ndeepspeed_config: {}\nfsdp_config:\n  fsdp_offload_params: false\n\
                    mixed_precision: 'bf16'\nnum_processes: 8\n";
        let found = |given: &'static str| accelerate(file, move |name| name == given).collect::<Vec<_>>();
        assert_eq!(found(""), ["mixed_precision", "fsdp_config"]);
        assert_eq!(found("ACCELERATE_MIXED_PRECISION"), ["fsdp_config"]);
        assert_eq!(accelerate("mixed_precision: no\nother: bf16", |_| false).count(), 0);
    }

    #[test]
    fn packages_are_those_of_the_lines_that_import() {
        let text =
            b"import os, utils.dist as d\nfrom helper import a, b\nfrom . import own\nx = 1\n  import late # x\n";
        let names: Vec<Vec<u8>> = packages(text).collect();
        assert_eq!(names, [&b"os"[..], b"utils", b"helper", b"late"]);
    }

    #[test]
    fn a_script_of_jax_is_known_by_what_it_imports() {
        for text in [
            "import jax",
            "import os, jax.numpy as np\n",
            "def f():\n    from jax import random",
            "import sys; import jax",
            "#!/usr/bin/python\nfrom jax.experimental import multihost_utils  # all",
        ] {
            assert!(Framework::Auto.is_jax(Some(text.as_bytes())), "{text}");
        }
        for text in [
            "import jaxlib",
            "# import jax",
            "import numpy  # not jax",
            "from jaxtyping import Array",
            "print('import jax')",
            "import jax\nfrom mpi4py import MPI",
            "import mpi4py, jax",
            "",
        ] {
            assert!(!Framework::Auto.is_jax(Some(text.as_bytes())), "{text}");
        }
        assert!(Framework::Jax.is_jax(None) && !Framework::Auto.is_jax(None));
        assert!(!Framework::None.is_jax(Some(b"import jax")));
    }
}
