/* A C program whose function survives the loss of other processes: it is run again, in this process, as a smaller world.
 *
 *   scripts/build-client
 *   cc -o resilient examples/c/resilient.c -Itarget/client -Ltarget/client -lrlaunch -Wl,-rpath,$PWD/target/client
 *   rlaunch -n 4 ./resilient
 *
 * Each rank counts to 10 together with the others. What it has reached is kept in memory from one round to the next.
 * RESILIENT_DIE=RANK:STEP has the process that was this rank first end at this step; RESILIENT_FAIL=RANK:STEP has its function fail once.
 */
#include <rlaunch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct work {
  uint32_t done; /* steps that all ranks have made */
  int failed;
};

static int has_order(const char *variable, uint32_t rank, uint32_t step) {
  unsigned wanted_rank, wanted_step;
  const char *text = getenv(variable);
  return text && sscanf(text, "%u:%u", &wanted_rank, &wanted_step) == 2 && wanted_rank == rank &&
         wanted_step == step;
}

/* Waits until all ranks of the round have reached this step. A world of one waits for no other rank. */
static int meet(rl_store *store, const rl_round *round, uint32_t step) {
  char name[32];
  if (!store) return RL_OK;
  uint32_t *ranks = calloc(round->active_world_size, sizeof *ranks);
  if (!ranks) return RL_E_SYSTEM;
  for (uint32_t rank = 0; rank < round->active_world_size; rank++) ranks[rank] = rank;
  int len = snprintf(name, sizeof name, "step %u", step);
  int result = rl_store_barrier(store, name, (size_t)len, ranks, round->active_world_size, round->active_rank, -1);
  free(ranks);
  return result;
}

/* Agrees on the next step: the step after the last one that all ranks have done. */
static int agree(rl_store *store, const rl_round *round, struct work *work) {
  char key[32];
  if (!store) return RL_OK;
  for (uint32_t rank = 0; rank < round->active_world_size; rank++) {
    rl_buffer value;
    int len = snprintf(key, sizeof key, "done %u", rank);
    rl_bytes name = {key, (size_t)len};
    if (rank == round->active_rank) {
      char text[16];
      int size = snprintf(text, sizeof text, "%u", work->done);
      int result = rl_store_set(store, key, (size_t)len, text, (size_t)size);
      if (result != RL_OK) return result;
    }
    int result = rl_store_wait(store, &name, 1, -1);
    if (result == RL_OK) result = rl_store_get(store, key, (size_t)len, &value);
    if (result != RL_OK) return result;
    uint32_t done = (uint32_t)strtoul((char *)value.data, NULL, 10);
    rl_buffer_free(&value);
    if (done < work->done) work->done = done;
  }
  return RL_OK;
}

static int train(const rl_round *round, void *user) {
  struct work *work = user;
  rl_store *store = NULL;
  /* The namespace of a round does not show keys of earlier rounds. Outside rlaunch there is no store. */
  int result = rl_store_open(RL_SPACE_GENERATION, &store);
  if (result == RL_E_NO_JOB) result = RL_OK;
  if (result == RL_OK) result = agree(store, round, work);
  if (result == RL_OK && round->active_rank == 0)
    printf("round %u: %u ranks go on at step %u\n", round->number, round->active_world_size, work->done);
  fflush(stdout);
  for (uint32_t step = work->done; result == RL_OK && step < 10; step++) {
    if (has_order("RESILIENT_DIE", round->initial_rank, step) && round->number == 0) raise(SIGKILL);
    if (has_order("RESILIENT_FAIL", round->initial_rank, step) && !work->failed) {
      work->failed = 1;
      result = rl_fault("told to fail");
      break;
    }
    result = rl_ping();
    if (result == RL_OK) result = meet(store, round, step);
    if (result == RL_OK) work->done = step + 1;
  }
  if (result != RL_OK && result != RL_E_INTERRUPTED) fprintf(stderr, "rank %u: %s\n", round->rank, rl_last_error());
  if (store) rl_store_close(store);
  return result == RL_OK && work->done < 10 ? 1 : result;
}

static int finalize(const rl_round *round, void *user) {
  struct work *work = user;
  const char *why = round->fault.text;
  printf("initial rank %u: round %u has ended behind step %u%s%s\n", round->initial_rank, round->number, work->done, *why ? ": " : "", why);
  return 0;
}

int main(void) {
  struct work work = {0, 0};
  rl_world world = {0};
  rl_hooks hooks = {0};
  hooks.finalize = finalize;
  if (rl_abi() != RL_ABI) {
    fprintf(stderr, "librlaunch.so is of another version than rlaunch.h\n");
    return 2;
  }
  int result = rl_init(&world);
  if (result == RL_OK) result = rl_run(train, &hooks, &work, NULL);
  if (result != RL_OK) {
    fprintf(stderr, "rank %u: %s: %s\n", world.rank, rl_error_text(result), rl_last_error());
    return 1;
  }
  printf("initial rank %u: all %u steps are done\n", world.rank, work.done);
  return rl_finalize() == RL_OK ? 0 : 1;
}
