//! The store, for C: one function for each of [`Store`]'s.
#![forbid(unsafe_code)]

use super::Each;
use super::ffi_error::{Failure, NOT_FOUND, guarded};
use super::given::Given;
use super::types::{rl_bytes, time};
use crate::{Space, Store};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

type Handle<'a> = Given<'a, (*mut rl_store,)>;
type Bytes<'a> = Given<'a, (*const c_char, usize)>;
type Buffer<'a> = Given<'a, (*mut rl_buffer,)>;
type Shared = Result<Arc<rl_store>, Failure>;

/// A store, as C holds it.
#[expect(non_camel_case_types, reason = "it is named as in the header")]
pub struct rl_store(Store);

/// Bytes of ours in a caller's hands.
#[repr(C)]
pub struct rl_buffer {
    pub(super) data: *mut u8,
    pub(super) len: usize,
}

impl rl_buffer {
    pub(super) fn of(bytes: Option<Vec<u8>>) -> Self {
        let Some(bytes) = bytes else { return Self { data: std::ptr::null_mut(), len: 0 } };
        let len = bytes.len();
        // One byte more: what is empty is not NULL, and texts end.
        let mut all = bytes;
        all.push(0);
        Self { data: Box::into_raw(all.into_boxed_slice()).cast(), len }
    }
}

pub(super) fn rl_buffer_free(buffer: Buffer<'_>) {
    buffer.free();
}

/// Runs a call about a store.
fn with(store: Shared, call: impl FnOnce(&Store) -> Result<(), Failure>) -> c_int {
    guarded(|| call(&store?.0))
}

/// A call about one key.
fn of_key(store: Shared, key: &Bytes<'_>, call: impl FnOnce(&Store, &[u8]) -> Result<(), Failure>) -> c_int {
    with(store, |store| call(store, key.bytes()?))
}

fn not_found() -> Failure {
    Failure::new(NOT_FOUND, "there is no such key")
}

/// Gives a value, where there is one.
fn give_found(to: &Buffer<'_>, value: Option<Vec<u8>>) -> Result<(), Failure> {
    to.give_bytes(Some(value.ok_or_else(not_found)?))
}

/// An order to the job, in the words of its wire.
pub(super) fn rl_order(words: Bytes<'_>, answer: Buffer<'_>) -> c_int {
    guarded(|| answer.give_bytes(Some(crate::spawn::spawn_by_words(words.bytes()?)?)))
}

pub(super) fn rl_store_open(space: u32, store: Given<'_, (*mut *mut rl_store,)>) -> c_int {
    guarded(|| {
        let space = match space {
            0 => Space::Job,
            1 => Space::Generation,
            _ => return Err(Failure::argument(format!("{space} is no space"))),
        };
        if store.is_null() {
            return Err(Failure::argument("a place for the store is needed, and NULL was given"));
        }
        store.give_share(Arc::new(rl_store(Store::from_env()?.in_space(space))))
    })
}

pub(super) fn rl_store_close(store: Handle<'_>) -> c_int {
    guarded(|| {
        drop(store.take().ok_or_else(|| Failure::argument("a store is needed, and NULL was given"))?);
        Ok(())
    })
}

pub(super) fn rl_store_get(store: Handle<'_>, key: Bytes<'_>, value: Buffer<'_>) -> c_int {
    let call = |store: &Store, key: &[u8]| give_found(&value, store.get(key)?);
    of_key(store.share(), &key, call)
}

pub(super) fn rl_store_set(store: Handle<'_>, key: Bytes<'_>, value: Bytes<'_>) -> c_int {
    let call = |store: &Store, key: &[u8]| Ok(store.set(key, value.bytes()?)?);
    of_key(store.share(), &key, call)
}

pub(super) fn rl_store_add(store: Handle<'_>, key: Bytes<'_>, by: i64, sum: Given<'_, (*mut i64,)>) -> c_int {
    let call = |store: &Store, key: &[u8]| sum.give(store.add(key, by)?);
    of_key(store.share(), &key, call)
}

pub(super) fn rl_store_append(
    store: Handle<'_>,
    key: Bytes<'_>,
    more: Bytes<'_>,
    new_len: Given<'_, (*mut i64,)>,
) -> c_int {
    let call = |store: &Store, key: &[u8]| {
        let more = more.bytes()?;
        new_len.give(store.append(key, more)?)
    };
    of_key(store.share(), &key, call)
}

pub(super) fn rl_store_compare_set(
    store: Handle<'_>,
    key: Bytes<'_>,
    expected: Given<'_, (*const rl_bytes,)>,
    desired: Given<'_, (*const rl_bytes,)>,
    is_set: Given<'_, (*mut c_int,)>,
    now: Buffer<'_>,
) -> c_int {
    let call = |store: &Store, key: &[u8]| {
        let desired = desired.bytes()?.ok_or_else(|| Failure::argument("a value is needed, and NULL was given"))?;
        let (was, value) = store.compare_set(key, expected.bytes()?, desired)?;
        if !is_set.is_null() {
            is_set.give(c_int::from(was))?;
        }
        if now.is_null() { Ok(()) } else { now.give_bytes(value) }
    };
    of_key(store.share(), &key, call)
}

pub(super) fn rl_store_delete(store: Handle<'_>, key: Bytes<'_>) -> c_int {
    let call = |store: &Store, key: &[u8]| if store.delete(key)? { Ok(()) } else { Err(not_found()) };
    of_key(store.share(), &key, call)
}

pub(super) fn rl_store_check(store: Handle<'_>, keys: Given<'_, (*const rl_bytes, usize)>) -> c_int {
    let call = |store: &Store| {
        let keys = keys.many()?;
        if store.check(&keys)? { Ok(()) } else { Err(Failure::new(NOT_FOUND, "not all of these keys exist")) }
    };
    with(store.share(), call)
}

pub(super) fn rl_store_wait(store: Handle<'_>, keys: Given<'_, (*const rl_bytes, usize)>, timeout: i64) -> c_int {
    let call = |store: &Store| Ok(store.wait(&keys.many()?, time(timeout))?);
    with(store.share(), call)
}

pub(super) fn rl_store_count(store: Handle<'_>, count: Given<'_, (*mut i64,)>) -> c_int {
    let call = |store: &Store| count.give(store.count()?);
    with(store.share(), call)
}

pub(super) fn rl_store_keys(
    store: Handle<'_>,
    prefix: Bytes<'_>,
    each: Given<'_, (Option<Each>, *mut c_void)>,
) -> c_int {
    let call = |store: &Store, prefix: &[u8]| {
        if each.is_null() {
            return Err(Failure::argument("a function is needed, and NULL was given"));
        }
        for key in store.keys(prefix)? {
            if each.call(&key) != 0 {
                break;
            }
        }
        Ok(())
    };
    of_key(store.share(), &prefix, call)
}

pub(super) fn rl_store_push(store: Handle<'_>, queue: Bytes<'_>, item: Bytes<'_>) -> c_int {
    let call = |store: &Store, queue: &[u8]| Ok(store.push(queue, item.bytes()?)?);
    of_key(store.share(), &queue, call)
}

pub(super) fn rl_store_pop(store: Handle<'_>, queue: Bytes<'_>, item: Buffer<'_>) -> c_int {
    let call = |store: &Store, queue: &[u8]| give_found(&item, store.pop(queue)?);
    of_key(store.share(), &queue, call)
}

pub(super) fn rl_store_take(store: Handle<'_>, queue: Bytes<'_>, timeout: i64, item: Buffer<'_>) -> c_int {
    let call = |store: &Store, queue: &[u8]| give_found(&item, Some(store.take(queue, time(timeout))?));
    of_key(store.share(), &queue, call)
}

pub(super) fn rl_store_queue_len(store: Handle<'_>, queue: Bytes<'_>, len: Given<'_, (*mut i64,)>) -> c_int {
    let call = |store: &Store, queue: &[u8]| len.give(store.queue_len(queue)?);
    of_key(store.share(), &queue, call)
}

pub(super) fn rl_store_watch(
    store: Handle<'_>,
    key: Bytes<'_>,
    timeout: i64,
    revision: Given<'_, (*mut u64,)>,
    value: Buffer<'_>,
) -> c_int {
    let call = |store: &Store, key: &[u8]| {
        if revision.is_null() || value.is_null() {
            return Err(Failure::argument("places for revision and value are needed, and NULL was given"));
        }
        let since = revision.read().filter(|since| *since != 0);
        let changed = store.watch(key, since, time(timeout))?;
        revision.give(changed.revision)?;
        value.give_bytes(changed.value)
    };
    of_key(store.share(), &key, call)
}

pub(super) fn rl_store_barrier(
    store: Handle<'_>,
    name: Bytes<'_>,
    ranks: Given<'_, (*const u32, usize)>,
    own: u32,
    timeout: i64,
) -> c_int {
    let call = |store: &Store, name: &[u8]| {
        let ranks = ranks.list()?;
        Ok(store.fence(name, ranks.iter().copied(), own, time(timeout))?)
    };
    of_key(store.share(), &name, call)
}
