/* The program of docs/reference/c.md. Its function begins again when a rank fails. */
#include <rlaunch.h>
#include <stdio.h>
#include <unistd.h>

static int train(const rl_round *round, void *user) {
  int *step = user;                           /* kept from round to round */
  printf("round %u: rank %u of %u\n", round->number, round->active_rank, round->active_world_size);
  fflush(stdout); /* a rank that is killed loses what it has not written */
  for (; *step < 10; ++*step) {
    if (rl_ping() == RL_E_INTERRUPTED) return RL_E_INTERRUPTED;
    usleep(100000);
  }
  return RL_OK;
}

int main(void) {
  int step = 0;
  int result = rl_run(train, NULL, &step, NULL);
  if (result != RL_OK) fprintf(stderr, "%s\n", rl_last_error());
  return result != RL_OK;
}
