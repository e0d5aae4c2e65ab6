/* rlaunch.h: what a program of a job of rlaunch's can ask of it.
 *
 * Link with -lrlaunch (librlaunch.so). All functions may be called from any thread, and return 0 (RL_OK) or one of RL_E_* unless it says
 * otherwise; nothing is written through a pointer where they do not return RL_OK, unless it says otherwise. Times are milliseconds;
 * below 0: without end. Texts are UTF-8 and end with a 0 byte; bytes that could not be are given with their length. A forked child
 * speaks for nobody: all calls about a session are RL_E_FORKED there. A callback returns: no exception of C++ may leave it, and no longjmp
 * (the process would be aborted).
 */
#ifndef RLAUNCH_H
#define RLAUNCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Number of this description; rl_abi() is the library's. */
#define RL_ABI 1

/* Results. */
#define RL_OK 0
#define RL_E_ARGUMENT (-1)    /* an argument is none */
#define RL_E_NO_JOB (-2)      /* the agent of this job of several ranks is nowhere to be found */
#define RL_E_CONNECT (-3)     /* the agent cannot be reached */
#define RL_E_CLOSED (-4)      /* the connection or the session has ended */
#define RL_E_PROTOCOL (-5)    /* the agent says what this version does not understand */
#define RL_E_TIMEOUT (-6)     /* it did not come in time */
#define RL_E_REFUSED (-7)     /* it was not done, for a reason in rl_last_error() */
#define RL_E_INTERRUPTED (-8) /* the round has ended: leave the function */
#define RL_E_NOT_FOUND (-9)   /* there is no such key */
#define RL_E_TOO_LONG (-10)   /* more than a message can hold, or than the buffer */
#define RL_E_FORKED (-11)     /* this is a forked child of the process that has the session */
#define RL_E_ORDER (-12)      /* not at this moment: see the function */
#define RL_E_SYSTEM (-13)     /* the system does not allow it */
#define RL_E_PANIC (-14)      /* a mistake in the library */
#define RL_E_DISCARDED (-15)  /* the policy does not want this process any more */
#define RL_E_GIVEN_UP (-16)   /* no further round is possible */
#define RL_E_LEFT (-17)       /* this process has left: a hook has failed, or the function wanted it */
#define RL_E_INDEX (-18)      /* an index is out of range */
#define RL_E_LENGTH (-19)     /* there are more or fewer values than calls */

/* What a result means. Never NULL, never to be freed. */
const char *rl_error_text(int code);
/* All that is known of the last call of this thread that has failed: a sentence, until the next one fails. Never NULL. */
const char *rl_last_error(void);
/* RL_ABI of the library. */
uint32_t rl_abi(void);

/* A name and its value, with their lengths. */
typedef struct rl_pair {
  const char *name;
  size_t name_len;
  const char *value;
  size_t value_len;
} rl_pair;

/* Bytes with their length. */
typedef struct rl_bytes {
  const char *data;
  size_t len;
} rl_bytes;

/* How a rank came to need another round. */
#define RL_FAULT_NONE 0
#define RL_FAULT_EXCEPTION 1 /* its function has failed */
#define RL_FAULT_HANG 2      /* it did not get on */
#define RL_FAULT_ENDED 3     /* its process has ended: code or signal */
#define RL_FAULT_OVERDUE 4   /* its agent has ended it: code or signal */
#define RL_FAULT_LEFT 5      /* it takes no part any more: code is one of RL_LEAVE_* */
#define RL_FAULT_HOST_LOST 6
#define RL_FAULT_WARNED 7    /* planned: it is about to be taken away */
#define RL_FAULT_JOINED 8    /* planned: a process came (back) */
#define RL_FAULT_OVER 9      /* there is no round any more: the session has ended, text says how */

typedef struct rl_fault_info {
  uint32_t kind;         /* RL_FAULT_* */
  uint32_t initial_rank; /* whose */
  int32_t code;          /* exit code, or RL_LEAVE_*; -1: none */
  int32_t signal;        /* -1: none */
  char text[2052];       /* in words of the rank; may be empty */
} rl_fault_info;

/* What a process does in a round. */
#define RL_MODE_ACTIVE 1
#define RL_MODE_INACTIVE 2   /* it waits in reserve */
#define RL_MODE_TERMINATED 3 /* it takes no part any more: to terminate hooks */

/* A round, as one process sees it. */
typedef struct rl_round {
  uint32_t number;             /* 0 first */
  uint32_t mode;               /* RL_MODE_* */
  uint32_t rank;               /* among the healthy */
  uint32_t world_size;
  uint32_t active_rank;        /* among those that work; UINT32_MAX: none */
  uint32_t active_world_size;
  uint32_t initial_rank;       /* the number that it keeps */
  uint32_t initial_world_size;
  rl_fault_info fault;         /* what ended the round before; RL_FAULT_NONE: it is the first */
} rl_round;

/* ---- The process ---- */

/* A process among those of its job, as it was started. */
typedef struct rl_world {
  uint32_t rank; /* it keeps this number through all rounds */
  uint32_t world_size;
  uint32_t local_rank;
  uint32_t local_world_size;
  uint32_t node_index;
  uint32_t hosts;
  uint32_t generation; /* how often all processes were started again */
  char job_id[36];     /* empty outside rlaunch */
} rl_world;

/* Finds out who this process is. Outside rlaunch it is a world of one, which is said once on stderr. world may be NULL. */
int rl_init(rl_world *world);
/* Lets go of what rl_init has found. RL_E_ORDER: within rl_run. */
int rl_finalize(void);

/* ---- A function that is run again when a process of the job fails ---- */

/* Called with the round and `user` of rl_run. 0: well; anything else: it has failed. */
typedef int (*rl_function)(const rl_round *round, void *user);
/* Writes the value of key `index` (0 first) with its 0 byte to `value`, which has room for `size` bytes. 0: well. */
typedef int (*rl_key_function)(const rl_round *round, uint32_t index, char *value, size_t size, void *user);

/* Each may be NULL. In abort, finalize and the health check behind it, the round's fault is what ended it. */
typedef struct rl_hooks {
  rl_function initialize;   /* before the function, in each round; failed: another round */
  rl_function abort;        /* a round ends; on a thread of the library's, before the function is told; failed: reported */
  rl_function finalize;     /* the function was left because the round has ended; failed: this process leaves */
  rl_function health_check; /* before the function, and behind finalize; failed: this process leaves */
  rl_function completion;   /* the work is done on all; failed: reported */
  rl_function terminate;    /* this process takes no part any more; failed: reported */
  rl_key_function key;      /* values of the policy's keys, as many as the term `keys` says */
} rl_hooks;

/* The environment stays as it is between rounds: for programs with threads that call getenv at any time. */
#define RL_KEEP_ENVIRONMENT 1u

typedef struct rl_options {
  const rl_pair *terms; /* as of rl_session_register */
  size_t terms_count;
  uint32_t flags; /* RL_KEEP_ENVIRONMENT */
} rl_options;

/* Runs a function on all processes of the job that call this with the same terms, again and again until it has returned 0 on all that work.
 * Before each round RANK, WORLD_SIZE, MASTER_PORT and their like are set for it. RL_OK: the work is done, whether this process had a part in
 * it or waited in reserve. The function is to return when the round ends: it looks at rl_interrupted, pings, or polls rl_interrupt_fd. What
 * it returns then does not count. hooks and options may be NULL. One call at a time. */
int rl_run(rl_function function, const rl_hooks *hooks, void *user, const rl_options *options);

/* These are about the present call of rl_run, from any thread; RL_E_ORDER: there is none, or no round of it. */

/* The present round. */
int rl_state(rl_round *round);
/* 1: the round has ended, and the function is to return. 0: not. */
int rl_interrupted(void);
/* Waits for the end of the round: RL_E_INTERRUPTED, or RL_E_TIMEOUT. */
int rl_wait(int64_t timeout);
/* A descriptor that can be read once the round has ended. Of this round; closed when the next one begins. */
int rl_interrupt_fd(int *fd);
/* It has got on, and can be interrupted here: RL_E_INTERRUPTED: return. Once this was called in a round, silence is taken for a hang. */
int rl_ping(void);
/* From now on it may be silent for so long (-1: without end), until rl_section(0), behind which holds what held before: they nest. What is
 * open when the round ends is over with it. */
int rl_section(int64_t limit);
/* Between these the calling thread is not interrupted; they nest. RL_E_INTERRUPTED: the round has ended already, do not begin. */
int rl_atomic_begin(void);
int rl_atomic_end(void);
/* The function has failed, on whatever thread that is seen; for what reason. The round ends by it, and the function is to return.
 * RL_E_ORDER: it has returned already. */
int rl_fault(const char *text);
/* What the function returns (if it is not 0) is no restart's business: this process takes no part any more, and the others go on. */
int rl_end(void);

/* ---- The store ---- */

/* Keys and values that all processes of the job share. Threads may share one. Waits end with the round (RL_E_INTERRUPTED). */
typedef struct rl_store rl_store;

#define RL_SPACE_JOB 0        /* it outlives every host but the launcher's */
#define RL_SPACE_GENERATION 1 /* of this generation of processes, or of this round */

/* Bytes of the library's, to be given back by rl_buffer_free; data NULL: nothing is there. */
typedef struct rl_buffer {
  uint8_t *data;
  size_t len;
} rl_buffer;

void rl_buffer_free(rl_buffer *buffer);

/* Orders something of the job: to start a program as another world of it, or to end one. The bytes of the order, and of its answer, are
 * those of docs/reference/c.md. Returns when all ranks of the world run, or none. */
int rl_order(const char *words, size_t len, rl_buffer *answer);

/* *store is to be given to rl_store_close, which nobody else may use it beside. Outside rlaunch it is this process's own, which is said once on stderr. */
int rl_store_open(uint32_t space, rl_store **store);
int rl_store_close(rl_store *store);

/* RL_E_NOT_FOUND: there is no such key. */
int rl_store_get(rl_store *store, const char *key, size_t key_len, rl_buffer *value);
int rl_store_set(rl_store *store, const char *key, size_t key_len, const char *value, size_t len);
/* Adds to a number in decimal, which begins with 0; the sum. */
int rl_store_add(rl_store *store, const char *key, size_t key_len, int64_t by, int64_t *sum);
/* Adds to the end of a value; its length. */
int rl_store_append(rl_store *store, const char *key, size_t key_len, const char *more, size_t len, int64_t *new_len);
/* Sets a key if it is as expected (NULL: it does not exist). *is_set: 1, it was; its value now. is_set and now may be NULL. */
int rl_store_compare_set(rl_store *store, const char *key, size_t key_len, const rl_bytes *expected, const rl_bytes *desired, int *is_set,
                         rl_buffer *now);
/* RL_E_NOT_FOUND: there was none. */
int rl_store_delete(rl_store *store, const char *key, size_t key_len);
/* RL_E_NOT_FOUND: not all of them exist. */
int rl_store_check(rl_store *store, const rl_bytes *keys, size_t count);
/* Waits until each of them has existed. RL_E_TIMEOUT: rl_last_error names those that do not. */
int rl_store_wait(rl_store *store, const rl_bytes *keys, size_t count, int64_t timeout);
int rl_store_count(rl_store *store, int64_t *count);
/* Calls `each` for all keys that begin so, in order; until it returns another value than 0. */
int rl_store_keys(rl_store *store, const char *prefix, size_t prefix_len, int (*each)(const char *key, size_t len, void *user), void *user);
/* Queues: to the end; the first, if there is one (RL_E_NOT_FOUND); the first, when there is one; how many. */
int rl_store_push(rl_store *store, const char *queue, size_t queue_len, const char *item, size_t len);
int rl_store_pop(rl_store *store, const char *queue, size_t queue_len, rl_buffer *item);
int rl_store_take(rl_store *store, const char *queue, size_t queue_len, int64_t timeout, rl_buffer *item);
int rl_store_queue_len(rl_store *store, const char *queue, size_t queue_len, int64_t *len);
/* Waits until a key is not any more as it was at *revision (0: as it is now); its revision and value then. */
int rl_store_watch(rl_store *store, const char *key, size_t key_len, int64_t timeout, uint64_t *revision, rl_buffer *value);
/* Comes to a barrier as `own`, and waits until all of these ranks have. Then its name is free for the next one. Who was interrupted there
   has come all the same: a barrier of a round belongs in RL_SPACE_GENERATION. */
int rl_store_barrier(rl_store *store, const char *name, size_t name_len, const uint32_t *ranks, size_t count, uint32_t own, int64_t timeout);

/* ---- Sessions: rounds, step by step. For faces of other languages; C programs want rl_run. ----
 *
 * One thread, the training thread, goes through the rounds:
 *
 *   register; then for ever:
 *     next   RL_NEXT_BEGIN: set the variables of the round; then, where its mode is ACTIVE:
 *              enter, the function, exit
 *              - exit said RL_E_INTERRUPTED, or the function has failed (fault): out(...), below
 *              - it has returned: returned, and next again
 *            (INACTIVE: next again)
 *            RL_NEXT_INTERRUPT: out(...), below
 *            RL_NEXT_FINISH, RL_NEXT_DISCARDED, RL_NEXT_GIVEN_UP, RL_NEXT_REFUSED: close
 *   out(...): wait_aborted, clean up, look whether all is well; then ready, and next; or else leave, and close
 *
 * A thread of the library waits for the agent. When the round is to be left, and nobody is in atomic, it does this in order: the sockets
 * given to sockets_add and waits of stores are ended; whoever waits in wait_interrupt is woken, and has to say aborted (only with
 * RL_FOREIGN_ABORT); the thread given to signal_thread is signalled, and what waits for interrupt_fd is woken.
 */
typedef struct rl_session rl_session;

/* Somebody calls rl_session_wait_interrupt and then rl_session_aborted, for each round that is left; what comes behind waits for that. */
#define RL_FOREIGN_ABORT 1u

/* Opens the session of this process and says under which terms it takes part: names and values as docs/reference/c.md has them
 * (policy, keys, soft_timeout, ...). Does not wait for others. Outside rlaunch it is a world of one, which is said once on stderr.
 * *session is to be given to rl_session_close. */
int rl_session_register(const rl_pair *terms, size_t count, uint32_t flags, rl_session **session);

#define RL_NEXT_BEGIN 1     /* round is filled in, rl_session_env too */
#define RL_NEXT_INTERRUPT 2 /* the round is over before the function was entered, or after it had returned; again until ready or leave */
#define RL_NEXT_FINISH 3    /* the work is done */
#define RL_NEXT_DISCARDED 4 /* the policy does not want it */
#define RL_NEXT_GIVEN_UP 5  /* no round is possible any more */
#define RL_NEXT_REFUSED 6   /* it cannot take part as it has asked */

typedef struct rl_next {
  uint32_t kind;   /* RL_NEXT_* */
  rl_round round;  /* BEGIN: the new one; INTERRUPT: the one that is over, fault is what ended it; else its zeros */
  char text[2052]; /* DISCARDED, GIVEN_UP, REFUSED: why, as a sentence */
} rl_next;

/* Waits for what comes next. Only the training thread calls it, and not between enter and exit (RL_E_ORDER). */
int rl_session_next(rl_session *session, rl_next *next);

/* How many variables the round has. */
size_t rl_session_env_count(const rl_session *session);
/* One of them; value NULL: it is to be unset. Both end with a 0 byte, and stay until the next rl_session_next. */
int rl_session_env(const rl_session *session, size_t index, const char **name, const char **value);

/* The function begins. RL_E_INTERRUPTED: the round is over already, do not begin it (and do not say exit). */
int rl_session_enter(rl_session *session);
/* The function was left, however. No signal is sent from here on. RL_E_INTERRUPTED: the round is over; not the function's doing. */
int rl_session_exit(rl_session *session);

/* The function has failed by itself; type and text of what it raised. The round is over for this process with that, as if interrupted.
 * RL_E_INTERRUPTED: it was over already, and nothing is said. */
int rl_session_fault(rl_session *session, const char *text, size_t len);
/* The function has returned; RL_E_INTERRUPTED: the round is over, it does not count. */
int rl_session_returned(rl_session *session);
/* Cleaned up and healthy: another round can begin. What the keys are now, as many as the terms said. */
int rl_session_ready(rl_session *session, const rl_bytes *keys, size_t count);

#define RL_LEAVE_BASE_EXCEPTION 0 /* what is no restart's business was raised */
#define RL_LEAVE_ABORT 1          /* the program wants no further restart */
#define RL_LEAVE_UNHEALTHY 2      /* a health check has failed, or a hook that has to succeed */
/* Takes no part any more, for this reason. The others go on. */
int rl_session_leave(rl_session *session, int why, const char *text, size_t len);

/* Ends the session: whoever waits for it comes out with RL_E_CLOSED, and who pings is not asked to leave. It is still to be closed,
 * when nobody uses it any more: for who cannot have all threads stop before. */
int rl_session_end(rl_session *session);
/* Ends the session, if it has not ended, and gives it back. Whoever waits for it comes out with RL_E_CLOSED first; it must not be used any more then.
 * In a forked child it only lets go of it. */
int rl_session_close(rl_session *session);

/* Waits until a round is to be left, and what it is to be left for: once for each round. RL_E_CLOSED: the session is over. */
int rl_session_wait_interrupt(rl_session *session, rl_fault_info *fault);
/* What that had to be done is done (RL_FOREIGN_ABORT). */
int rl_session_aborted(rl_session *session);
/* Waits until that was said of the round that is to be left. RL_E_ORDER: none is. */
int rl_session_wait_aborted(rl_session *session);

/* 1: the training thread is to leave the function now: interrupted, inside, and not in atomic. 0: not. Waits for nothing. */
int rl_session_due(const rl_session *session);
/* 1: the round is to be left, wherever anybody is. Waits for nothing. */
int rl_session_interrupted(const rl_session *session);
/* A descriptor that can be read once the round is to be left. Of this round; closed when the next one begins. */
int rl_session_interrupt_fd(rl_session *session, int *fd);

/* Whether aborted is waited for, as with RL_FOREIGN_ABORT (1), or not (0): while there is nothing that the library could not end by itself. */
int rl_session_foreign_abort(rl_session *session, int on);

/* Has the library's thread send signal `signo` to thread `tid` (of gettid) of this process when the round is to be left and all before it
 * is done (with RL_FOREIGN_ABORT: aborted was said), `delay` ms later; again after 1 s, 2 s, 4 s ..., while rl_session_due is 1. tid 0: none
 * any more. */
int rl_session_signal_thread(rl_session *session, int32_t tid, int signo, int64_t delay);

/* Calls `add` (Py_AddPendingCall) once in every progress interval between enter and exit, with a function that notes that it was run:
 * then the agent hears that the process gets on. NULL: no more. `add` is called from a thread of the library's, without any lock. */
int rl_session_auto_progress(rl_session *session, int (*add)(int (*call)(void *), void *arg));
/* It has got on, and can be interrupted here: RL_E_INTERRUPTED: leave the function. Cheap. */
int rl_session_ping(rl_session *session);
/* From now on it may be silent for so long (-1: without end); 0: its own limits again. */
int rl_session_section(rl_session *session, int64_t limit);
/* Hooks of the program begin to run (1), or have come to their end (0), where no function does: behind RL_NEXT_FINISH and the like, behind
 * rl_session_leave, and before rl_session_exit. Those that take longer than hard_timeout, or than their section may, cost the process. */
int rl_session_hooks(rl_session *session, int run);

/* Between these the calling thread is not interrupted; they nest. RL_E_INTERRUPTED: the round is to be left already, do not begin. */
int rl_session_atomic_begin(rl_session *session);
int rl_session_atomic_end(rl_session *session);

/* Sockets that are shut down when the round is to be left, first of all. Remembered by descriptor and inode, so that another one that got
 * its number later is not touched. They are forgotten with the round. */
int rl_session_sockets_add(rl_session *session, int fd);
int rl_session_sockets_remove(rl_session *session, int fd);
/* Shuts them down now. How many were is written to *count, if that is not NULL. */
int rl_session_sockets_shutdown(rl_session *session, size_t *count);

/* gloo (PyTorch's transport between CPUs) may forget who waits on a connection that ends. Places in the tables of its classes for TCP are
 * given functions that note who waits; when a round ends, who still waits some milliseconds after the sockets were shut down is told to wait
 * no more. Once in a process; the second time nothing is replaced. */
typedef struct rl_gloo {
  void **wait_recv; /* UnboundBuffer: waitRecv(int *, std::chrono::milliseconds), waitSend(the same) */
  void **wait_send;
  void **connect;   /* Pair: connect(const std::vector<char> &) */
  void (*abort_recv)(void *buffer); /* what these are told by: abortWaitRecv(), abortWaitSend(), Pair: close() */
  void (*abort_send)(void *buffer);
  void (*close)(void *pair);
} rl_gloo;

int rl_session_gloo(rl_session *session, const rl_gloo *gloo);

/* ---- Worker groups: which worker is called with what ---- */

/* A layout of workers on named axes. */
typedef struct rl_sharding rl_sharding;

/* A coordinate on a named axis. */
typedef struct rl_axis {
  const char *name;
  size_t name_len;
  int64_t index;
} rl_axis;

/* A layout from the sizes of its axes, its ranks (the last axis varies first) and the names of its axes. Results: RL_E_ARGUMENT where
 * NeMo-RL raises ValueError, RL_E_INDEX for IndexError, RL_E_LENGTH for AssertionError, each with its sentence. */
int rl_sharding_open(const uint64_t *sizes, size_t size_count, const int64_t *ranks, size_t rank_count, const rl_bytes *names,
                     size_t name_count, rl_sharding **sharding);
int rl_sharding_close(rl_sharding *sharding);
/* The coordinates of a worker, as uint32_t, in the order of the axes. Buffers are freed with rl_buffer_free. */
int rl_sharding_coords(rl_sharding *sharding, int64_t worker, rl_buffer *coords);
/* The ranks at coordinates, as int64_t: sorted, and none outside of an axis. */
int rl_sharding_by_coord(rl_sharding *sharding, const rl_axis *axes, size_t count, rl_buffer *ranks);
/* The same in the order of the layout, and RL_E_INDEX outside of an axis. */
int rl_sharding_select(rl_sharding *sharding, const rl_axis *axes, size_t count, rl_buffer *ranks);
/* Whether a worker has coordinate 0 on each of these axes: 1 or 0. */
int rl_sharding_is_axis_zero(rl_sharding *sharding, int64_t worker, const rl_bytes *axes, size_t count, int *is_zero);

/* Plans of calls, as uint32_t: the numbers of calls, of results and of indices in a call; for each call the worker, 1 for a call without
 * data, and the indices of its data; the workers whose results are returned. `sharding` may be NULL where the text does not need it.
 * Sharded data: split by the axes `split`, the same for all on `same`, one result for all on `once`; other axes: coordinate 0 only. */
int rl_plan_sharded(rl_sharding *sharding, size_t workers, const rl_bytes *split, size_t split_count, const rl_bytes *same, size_t same_count,
                    const rl_bytes *once, size_t once_count, int dummy_calls, rl_buffer *plan);
/* The same data for all that have coordinate 0 on the axes `only`. */
int rl_plan_single(rl_sharding *sharding, size_t workers, const rl_bytes *only, size_t only_count, rl_buffer *plan);
/* One of `values` values for each of them. Without `has_only` there is a value for each worker. */
int rl_plan_multiple(rl_sharding *sharding, size_t workers, const rl_bytes *only, size_t only_count, int has_only, size_t values,
                     rl_buffer *plan);
/* Workers on the slots of hosts: a line `host slot shard rank-in-shard name` for each. per_node_kind 0: one for each slot, 1: the same
 * number on each host, 2: a number for each host. `tied`: for each tied group its host, the number of its slots, and these. */
int rl_plan_workers(const uint32_t *slots, size_t host_count, const uint32_t *per_node, size_t per_node_count, uint32_t per_node_kind,
                    const uint32_t *tied, size_t tied_count, int has_tied, const char *prefix, size_t prefix_len, rl_buffer *plan);

/* ---- Worker groups: calls between a controller and its workers ---- */

/* The connections of a process. One thread at a time should wait in rl_calls_next; all may send. */
typedef struct rl_calls rl_calls;

/* A worker that was connected to. */
typedef struct rl_peer {
  uint32_t peer;    /* number of the connection */
  uint32_t size;    /* workers of the group */
  uint32_t pid;     /* on its host */
  uint32_t world;   /* number of the group's world in the job; 0: not known */
  uint32_t is_near; /* 1: on this host */
  char host[256];
} rl_peer;

/* What a frame says: RL_FRAME_*, how values are encoded, a number of items, the number of the call. */
typedef struct rl_frame {
  uint32_t kind;
  uint32_t codec;
  uint32_t count;
  uint64_t call;
} rl_frame;

/* From a controller. */
#define RL_FRAME_CALL 1   /* text: the method. Parts: its arguments */
#define RL_FRAME_CANCEL 2
#define RL_FRAME_CREDIT 3 /* count more items may be sent */
#define RL_FRAME_ARENA 4  /* text: a path to shared memory of `call` bytes */
#define RL_FRAME_END 5    /* no more calls */
/* From a worker. */
#define RL_FRAME_RETURN 16
#define RL_FRAME_RAISE 17 /* texts: type, message, traceback */
#define RL_FRAME_ITEM 18
#define RL_FRAME_STOP 19
#define RL_FRAME_FREE 20  /* `call`: offset of a region that is not used any more */
#define RL_FRAME_MAPPED 21
/* Events that are no frames. */
#define RL_EVENT_OPENED 256 /* a controller has connected */
#define RL_EVENT_CLOSED 257 /* the connection has ended; bytes: why */

/* A part of a frame. Place 0: `len` bytes at `data`. Place 1: `len` bytes of the shared memory, from `offset`. */
typedef struct rl_part {
  uint32_t place;
  uint64_t offset;
  const char *data;
  size_t len;
} rl_part;

/* Something that happened. Of a frame, `bytes` is its body, and after body_len its description: the number of texts (uint32_t), each after
 * its length (uint32_t); the number of parts, for each its place (uint32_t), offset and length (uint64_t). All are little endian.
 * Of a plain frame, which has at most one text and one part, `bytes` is the text, and after text_len the part. */
typedef struct rl_event {
  uint32_t peer;
  uint32_t kind;
  uint32_t codec;
  uint32_t count;
  uint32_t is_plain;
  uint32_t text_len;
  uint64_t call;
  uint64_t body_len;
  rl_buffer bytes;
} rl_event;

int rl_calls_open(rl_calls **calls);
int rl_calls_close(rl_calls *calls);
/* A descriptor that can be read when there is something for rl_calls_next. It stays the library's. */
int rl_calls_fd(rl_calls *calls, int *fd);
/* Serves as a worker: controllers of the job find it by the name of its group. With is_far, those on other hosts too. */
int rl_calls_serve(rl_calls *calls, const char *group, size_t group_len, const char *host, size_t host_len, uint32_t rank, uint32_t size,
                   uint32_t world, int is_far);
/* Connects to a worker, as soon as it serves. */
int rl_calls_attach(rl_calls *calls, const char *group, size_t group_len, uint32_t rank, int64_t timeout, rl_peer *peer);
/* Closes a connection. */
int rl_calls_detach(rl_calls *calls, uint32_t peer);
/* Sends a frame to all of these. Bytes for which a peer has no room wait; a peer whose connection has ended gets none. */
int rl_calls_send(rl_calls *calls, const uint32_t *peers, size_t peer_count, const rl_frame *frame, const rl_bytes *texts, size_t text_count,
                  const rl_part *parts, size_t part_count);
/* The same with at most one text and one part: less work for both sides of this interface. `frame` is kind, codec, count and length of the
 * text (uint32_t each), call (uint64_t), the text, and the part: little endian, without gaps. */
int rl_calls_post(rl_calls *calls, const uint32_t *peers, size_t peer_count, const char *frame, size_t len);
/* The next event. RL_E_TIMEOUT: none came in time, or a signal did. The bytes of a frame are written to `room` if they fit there, and
 * bytes.data is NULL then. Else the caller frees them with rl_buffer_free, and no frame is plain. room may be NULL. */
int rl_calls_next(rl_calls *calls, int64_t timeout, rl_event *event, uint8_t *room, size_t size);
/* rl_calls_post to one peer, and then rl_calls_next: a worker sends its answer and waits for the next call. */
int rl_calls_answer(rl_calls *calls, uint32_t peer, const char *frame, size_t len, int64_t timeout, rl_event *event, uint8_t *room,
                    size_t size);
/* Several events at once. The call waits until `wanted` workers have returned from `call`, until anything else has come, or until 1 ms after
 * the first event. `last` is the worker that was called last, or UINT32_MAX: for up to 1 ms its answer alone ends the wait. Then `room` has the number of entries (uint64_t) and the entries, without gaps. An entry is one plain frame, or several
 * that differ by their peer only: kind, codec, count, length of the text, length of the part, number of peers (uint32_t each), call
 * (uint64_t), the peers (uint32_t each), the text, and the part. Without any entry, the next event is not plain or too large, and
 * rl_calls_next returns it. RL_E_TIMEOUT as above. */
int rl_calls_gather(rl_calls *calls, int64_t timeout, uint64_t call, size_t wanted, uint32_t last, uint8_t *room, size_t size);

#ifdef __cplusplus
}
#endif

#endif
