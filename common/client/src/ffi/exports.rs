//! The list of the functions that C can call, by module, for the macro in `ffi.rs`. A test compares it with the header.
#![forbid(unsafe_code)]

macro_rules! listed {
    ($with:ident) => {
$with! {
    ffi_error {
        fn rl_error_text(code: c_int) -> *const c_char;
        fn rl_last_error() -> *const c_char;
        fn rl_abi() -> u32;
    }
    ffi_world {
        fn rl_init(world: *mut rl_world) -> c_int;
        fn rl_finalize() -> c_int;
    }
    run {
        fn rl_run(function: Option<Function>, hooks: *const rl_hooks, user: *mut c_void; options: *const rl_options) -> c_int;
        fn rl_state(round: *mut rl_round) -> c_int;
        fn rl_interrupted() -> c_int;
        fn rl_wait(timeout: i64) -> c_int;
        fn rl_interrupt_fd(fd: *mut c_int) -> c_int;
        fn rl_ping() -> c_int;
        fn rl_section(limit: i64) -> c_int;
        fn rl_atomic_begin() -> c_int;
        fn rl_atomic_end() -> c_int;
        fn rl_fault(text: *const c_char) -> c_int;
        fn rl_end() -> c_int;
    }
    ffi_store {
        fn rl_buffer_free(buffer: *mut rl_buffer) -> ();
        fn rl_order(words: *const c_char, len: usize; answer: *mut rl_buffer) -> c_int;
        fn rl_store_open(space: u32; store: *mut *mut rl_store) -> c_int;
        fn rl_store_close(store: *mut rl_store) -> c_int;
        fn rl_store_get(store: *mut rl_store; key: *const c_char, key_len: usize; value: *mut rl_buffer) -> c_int;
        fn rl_store_set(store: *mut rl_store; key: *const c_char, key_len: usize; value: *const c_char, len: usize) -> c_int;
        fn rl_store_add(store: *mut rl_store; key: *const c_char, key_len: usize; by: i64; sum: *mut i64) -> c_int;
        fn rl_store_append(
            store: *mut rl_store; key: *const c_char, key_len: usize; more: *const c_char, len: usize; new_len: *mut i64
        ) -> c_int;
        fn rl_store_compare_set(
            store: *mut rl_store; key: *const c_char, key_len: usize; expected: *const rl_bytes; desired: *const rl_bytes;
            is_set: *mut c_int; now: *mut rl_buffer
        ) -> c_int;
        fn rl_store_delete(store: *mut rl_store; key: *const c_char, key_len: usize) -> c_int;
        fn rl_store_check(store: *mut rl_store; keys: *const rl_bytes, count: usize) -> c_int;
        fn rl_store_wait(store: *mut rl_store; keys: *const rl_bytes, count: usize; timeout: i64) -> c_int;
        fn rl_store_count(store: *mut rl_store; count: *mut i64) -> c_int;
        fn rl_store_keys(store: *mut rl_store; prefix: *const c_char, prefix_len: usize; each: Option<Each>, user: *mut c_void) -> c_int;
        fn rl_store_push(store: *mut rl_store; queue: *const c_char, queue_len: usize; item: *const c_char, len: usize) -> c_int;
        fn rl_store_pop(store: *mut rl_store; queue: *const c_char, queue_len: usize; item: *mut rl_buffer) -> c_int;
        fn rl_store_take(store: *mut rl_store; queue: *const c_char, queue_len: usize; timeout: i64; item: *mut rl_buffer) -> c_int;
        fn rl_store_queue_len(store: *mut rl_store; queue: *const c_char, queue_len: usize; len: *mut i64) -> c_int;
        fn rl_store_watch(
            store: *mut rl_store; key: *const c_char, key_len: usize; timeout: i64; revision: *mut u64; value: *mut rl_buffer
        ) -> c_int;
        fn rl_store_barrier(
            store: *mut rl_store; name: *const c_char, name_len: usize; ranks: *const u32, count: usize; own: u32; timeout: i64
        ) -> c_int;
    }
    session {
        fn rl_session_register(terms: *const rl_pair, count: usize; flags: u32; session: *mut *mut rl_session) -> c_int;
        fn rl_session_next(session: *mut rl_session; next: *mut rl_next) -> c_int;
        fn rl_session_env_count(session: *const rl_session) -> usize;
        fn rl_session_env(session: *const rl_session; index: usize; name: *mut *const c_char; value: *mut *const c_char) -> c_int;
        fn rl_session_enter(session: *mut rl_session) -> c_int;
        fn rl_session_exit(session: *mut rl_session) -> c_int;
        fn rl_session_fault(session: *mut rl_session; text: *const c_char, len: usize) -> c_int;
        fn rl_session_returned(session: *mut rl_session) -> c_int;
        fn rl_session_ready(session: *mut rl_session; keys: *const rl_bytes, count: usize) -> c_int;
        fn rl_session_leave(session: *mut rl_session; why: c_int; text: *const c_char, len: usize) -> c_int;
        fn rl_session_end(session: *mut rl_session) -> c_int;
        fn rl_session_close(session: *mut rl_session) -> c_int;
        fn rl_session_wait_interrupt(session: *mut rl_session; fault: *mut rl_fault_info) -> c_int;
        fn rl_session_aborted(session: *mut rl_session) -> c_int;
        fn rl_session_wait_aborted(session: *mut rl_session) -> c_int;
        fn rl_session_foreign_abort(session: *mut rl_session; on: c_int) -> c_int;
        fn rl_session_due(session: *const rl_session) -> c_int;
        fn rl_session_interrupted(session: *const rl_session) -> c_int;
        fn rl_session_interrupt_fd(session: *mut rl_session; fd: *mut c_int) -> c_int;
        fn rl_session_signal_thread(session: *mut rl_session; tid: i32; signo: c_int; delay: i64) -> c_int;
        fn rl_session_auto_progress(session: *mut rl_session; add: Option<AddPending>) -> c_int;
        fn rl_session_ping(session: *mut rl_session) -> c_int;
        fn rl_session_section(session: *mut rl_session; limit: i64) -> c_int;
        fn rl_session_hooks(session: *mut rl_session; run: c_int) -> c_int;
        fn rl_session_atomic_begin(session: *mut rl_session) -> c_int;
        fn rl_session_atomic_end(session: *mut rl_session) -> c_int;
        fn rl_session_sockets_add(session: *mut rl_session; fd: c_int) -> c_int;
        fn rl_session_sockets_remove(session: *mut rl_session; fd: c_int) -> c_int;
        fn rl_session_sockets_shutdown(session: *mut rl_session; count: *mut usize) -> c_int;
        fn rl_session_gloo(session: *mut rl_session; gloo: *const rl_gloo) -> c_int;
    }
    ffi_sharding {
        fn rl_sharding_open(
            sizes: *const u64, size_count: usize; ranks: *const i64, rank_count: usize; names: *const rl_bytes, name_count: usize;
            sharding: *mut *mut rl_sharding
        ) -> c_int;
        fn rl_sharding_close(sharding: *mut rl_sharding) -> c_int;
        fn rl_sharding_coords(sharding: *mut rl_sharding; worker: i64; coords: *mut rl_buffer) -> c_int;
        fn rl_sharding_by_coord(sharding: *mut rl_sharding; axes: *const rl_axis, count: usize; ranks: *mut rl_buffer) -> c_int;
        fn rl_sharding_select(sharding: *mut rl_sharding; axes: *const rl_axis, count: usize; ranks: *mut rl_buffer) -> c_int;
        fn rl_sharding_is_axis_zero(
            sharding: *mut rl_sharding; worker: i64; axes: *const rl_bytes, count: usize; is_zero: *mut c_int
        ) -> c_int;
        fn rl_plan_sharded(
            sharding: *mut rl_sharding; workers: usize; split: *const rl_bytes, split_count: usize;
            same: *const rl_bytes, same_count: usize; once: *const rl_bytes, once_count: usize; dummy_calls: c_int;
            plan: *mut rl_buffer
        ) -> c_int;
        fn rl_plan_single(
            sharding: *mut rl_sharding; workers: usize; only: *const rl_bytes, only_count: usize; plan: *mut rl_buffer
        ) -> c_int;
        fn rl_plan_multiple(
            sharding: *mut rl_sharding; workers: usize; only: *const rl_bytes, only_count: usize; has_only: c_int; values: usize;
            plan: *mut rl_buffer
        ) -> c_int;
        fn rl_plan_workers(
            slots: *const u32, host_count: usize; per_node: *const u32, per_node_count: usize; per_node_kind: u32;
            tied: *const u32, tied_count: usize; has_tied: c_int; prefix: *const c_char, prefix_len: usize; plan: *mut rl_buffer
        ) -> c_int;
    }
    ffi_calls {
        fn rl_calls_open(calls: *mut *mut rl_calls) -> c_int;
        fn rl_calls_close(calls: *mut rl_calls) -> c_int;
        fn rl_calls_fd(calls: *mut rl_calls; fd: *mut c_int) -> c_int;
        fn rl_calls_serve(
            calls: *mut rl_calls; group: *const c_char, group_len: usize; host: *const c_char, host_len: usize; rank: u32; size: u32;
            world: u32; is_far: c_int
        ) -> c_int;
        fn rl_calls_attach(
            calls: *mut rl_calls; group: *const c_char, group_len: usize; rank: u32; timeout: i64; peer: *mut rl_peer
        ) -> c_int;
        fn rl_calls_detach(calls: *mut rl_calls; peer: u32) -> c_int;
        fn rl_calls_send(
            calls: *mut rl_calls; peers: *const u32, peer_count: usize; frame: *const rl_frame; texts: *const rl_bytes, text_count: usize;
            parts: *const rl_part, part_count: usize
        ) -> c_int;
        fn rl_calls_post(
            calls: *mut rl_calls; peers: *const u32, peer_count: usize; frame: *const c_char, len: usize
        ) -> c_int;
        fn rl_calls_next(calls: *mut rl_calls; timeout: i64; event: *mut rl_event; room: *mut u8, size: usize) -> c_int;
        fn rl_calls_answer(
            calls: *mut rl_calls; peer: u32; frame: *const c_char, len: usize; timeout: i64; event: *mut rl_event; room: *mut u8,
            size: usize
        ) -> c_int;
        fn rl_calls_gather(
            calls: *mut rl_calls; timeout: i64; call: u64; wanted: usize; last: u32; room: *mut u8, size: usize
        ) -> c_int;
    }
}
    };
}
