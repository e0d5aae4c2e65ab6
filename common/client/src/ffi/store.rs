//! The store, for C: one function for each of [`Store`]'s.

use super::error::{ARGUMENT, Failure, NOT_FOUND, guarded};
use super::types::{bytes, give, list, many, rl_bytes, time};
use crate::{Space, Store};
use std::ffi::{c_char, c_int, c_void};

/// A store, as C holds it.
#[expect(non_camel_case_types, reason = "it is named as in the header")]
pub struct rl_store(Store);

/// Bytes of ours in a caller's hands.
#[repr(C)]
pub struct rl_buffer {
    data: *mut u8,
    len: usize,
}

impl rl_buffer {
    fn of(bytes: Option<Vec<u8>>) -> Self {
        let Some(bytes) = bytes else { return Self { data: std::ptr::null_mut(), len: 0 } };
        let len = bytes.len();
        // One byte more: what is empty is not NULL, and texts end.
        let mut all = bytes;
        all.push(0);
        Self { data: Box::into_raw(all.into_boxed_slice()).cast(), len }
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_buffer_free(buffer: *mut rl_buffer) {
    // SAFETY: as the caller says.
    let Some(buffer) = (unsafe { buffer.as_mut() }) else { return };
    if !buffer.data.is_null() {
        let all = std::ptr::slice_from_raw_parts_mut(buffer.data, buffer.len + 1);
        // SAFETY: it came from `rl_buffer::of`, and is not there any more behind this.
        drop(unsafe { Box::from_raw(all) });
    }
    *buffer = rl_buffer::of(None);
}

/// # Safety
/// `store` is null, or came from `rl_store_open` and was not closed.
unsafe fn with(store: *const rl_store, call: impl FnOnce(&Store) -> Result<(), Failure>) -> c_int {
    guarded(|| {
        // SAFETY: as the caller says.
        let store = unsafe { store.as_ref() };
        call(&store.ok_or_else(|| Failure::argument("a store is needed, and NULL was given"))?.0)
    })
}

/// A call about one key.
///
/// # Safety
/// As [`with`] and [`bytes`].
unsafe fn of_key(
    store: *const rl_store,
    key: *const c_char,
    len: usize,
    call: impl FnOnce(&Store, &[u8]) -> Result<(), Failure>,
) -> c_int {
    let named = |store: &Store| {
        // SAFETY: as the caller says.
        let key = unsafe { bytes(key, len) }?;
        call(store, key)
    };
    // SAFETY: as the caller says.
    unsafe { with(store, named) }
}

fn not_found() -> Failure {
    Failure::new(NOT_FOUND, "there is no such key")
}

/// Gives a value, where there is one.
///
/// # Safety
/// As [`give`].
unsafe fn give_found(to: *mut rl_buffer, value: Option<Vec<u8>>) -> Result<(), Failure> {
    let value = value.ok_or_else(not_found)?;
    // SAFETY: as the caller says.
    unsafe { give_bytes(to, Some(value)) }
}

/// # Safety
/// As [`give`].
unsafe fn give_bytes(to: *mut rl_buffer, value: Option<Vec<u8>>) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::argument("a place for the value is needed, and NULL was given"));
    }
    // SAFETY: as the caller says.
    unsafe { give(to, rl_buffer::of(value)) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_open(space: u32, store: *mut *mut rl_store) -> c_int {
    guarded(|| {
        let space = match space {
            0 => Space::Job,
            1 => Space::Generation,
            _ => return Err(Failure::argument(format!("{space} is no space"))),
        };
        if store.is_null() {
            return Err(Failure::argument("a place for the store is needed, and NULL was given"));
        }
        let opened = Box::new(rl_store(Store::from_env()?.in_space(space)));
        // SAFETY: as the caller says.
        unsafe { give(store, Box::into_raw(opened)) }
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_close(store: *mut rl_store) -> c_int {
    if store.is_null() {
        return ARGUMENT;
    }
    guarded(|| {
        // SAFETY: it came from `rl_store_open`, and the caller does not use it any more.
        drop(unsafe { Box::from_raw(store) });
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_get(
    store: *mut rl_store,
    key: *const c_char,
    key_len: usize,
    value: *mut rl_buffer,
) -> c_int {
    // SAFETY: as the caller says.
    let call = |store: &Store, key: &[u8]| unsafe { give_found(value, store.get(key)?) };
    // SAFETY: as the caller says.
    unsafe { of_key(store, key, key_len, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_set(
    store: *mut rl_store,
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    len: usize,
) -> c_int {
    // SAFETY: as the caller says.
    let call = |store: &Store, key: &[u8]| Ok(store.set(key, unsafe { bytes(value, len) }?)?);
    // SAFETY: as the caller says.
    unsafe { of_key(store, key, key_len, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_add(
    store: *mut rl_store,
    key: *const c_char,
    key_len: usize,
    by: i64,
    sum: *mut i64,
) -> c_int {
    // SAFETY: as the caller says.
    let call = |store: &Store, key: &[u8]| unsafe { give(sum, store.add(key, by)?) };
    // SAFETY: as the caller says.
    unsafe { of_key(store, key, key_len, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_append(
    store: *mut rl_store,
    key: *const c_char,
    key_len: usize,
    more: *const c_char,
    len: usize,
    new_len: *mut i64,
) -> c_int {
    let call = |store: &Store, key: &[u8]| {
        // SAFETY: as the caller says.
        let more = unsafe { bytes(more, len) }?;
        // SAFETY: as the caller says.
        unsafe { give(new_len, store.append(key, more)?) }
    };
    // SAFETY: as the caller says.
    unsafe { of_key(store, key, key_len, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_compare_set(
    store: *mut rl_store,
    key: *const c_char,
    key_len: usize,
    expected: *const rl_bytes,
    desired: *const rl_bytes,
    is_set: *mut c_int,
    now: *mut rl_buffer,
) -> c_int {
    let call = |store: &Store, key: &[u8]| {
        if desired.is_null() {
            return Err(Failure::argument("a value is needed, and NULL was given"));
        }
        // SAFETY: as the caller says.
        let expected = unsafe { many(expected, usize::from(!expected.is_null())) }?;
        // SAFETY: as the caller says.
        let desired = unsafe { many(desired, 1) }?;
        let desired = desired.first().copied().unwrap_or_default();
        let (was, value) = store.compare_set(key, expected.first().copied(), desired)?;
        if !is_set.is_null() {
            // SAFETY: as the caller says.
            unsafe { give(is_set, c_int::from(was)) }?;
        }
        // SAFETY: as the caller says.
        if now.is_null() { Ok(()) } else { unsafe { give_bytes(now, value) } }
    };
    // SAFETY: as the caller says.
    unsafe { of_key(store, key, key_len, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_delete(store: *mut rl_store, key: *const c_char, key_len: usize) -> c_int {
    let call = |store: &Store, key: &[u8]| if store.delete(key)? { Ok(()) } else { Err(not_found()) };
    // SAFETY: as the caller says.
    unsafe { of_key(store, key, key_len, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_check(store: *mut rl_store, keys: *const rl_bytes, count: usize) -> c_int {
    let call = |store: &Store| {
        // SAFETY: as the caller says.
        let keys = unsafe { many(keys, count) }?;
        if store.check(&keys)? { Ok(()) } else { Err(Failure::new(NOT_FOUND, "not all of these keys exist")) }
    };
    // SAFETY: as the caller says.
    unsafe { with(store, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_wait(
    store: *mut rl_store,
    keys: *const rl_bytes,
    count: usize,
    timeout: i64,
) -> c_int {
    // SAFETY: as the caller says.
    let call = |store: &Store| Ok(store.wait(&unsafe { many(keys, count) }?, time(timeout))?);
    // SAFETY: as the caller says.
    unsafe { with(store, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_count(store: *mut rl_store, count: *mut i64) -> c_int {
    // SAFETY: as the caller says.
    let call = |store: &Store| unsafe { give(count, store.count()?) };
    // SAFETY: as the caller says.
    unsafe { with(store, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_keys(
    store: *mut rl_store,
    prefix: *const c_char,
    prefix_len: usize,
    each: Option<unsafe extern "C" fn(key: *const c_char, len: usize, user: *mut c_void) -> c_int>,
    user: *mut c_void,
) -> c_int {
    let call = |store: &Store, prefix: &[u8]| {
        let each = each.ok_or_else(|| Failure::argument("a function is needed, and NULL was given"))?;
        for key in store.keys(prefix)? {
            // SAFETY: a function of the caller's, with what the header says that it gets.
            if unsafe { each(key.as_ptr().cast(), key.len(), user) } != 0 {
                break;
            }
        }
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { of_key(store, prefix, prefix_len, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_push(
    store: *mut rl_store,
    queue: *const c_char,
    queue_len: usize,
    item: *const c_char,
    len: usize,
) -> c_int {
    // SAFETY: as the caller says.
    let call = |store: &Store, queue: &[u8]| Ok(store.push(queue, unsafe { bytes(item, len) }?)?);
    // SAFETY: as the caller says.
    unsafe { of_key(store, queue, queue_len, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_pop(
    store: *mut rl_store,
    queue: *const c_char,
    queue_len: usize,
    item: *mut rl_buffer,
) -> c_int {
    // SAFETY: as the caller says.
    let call = |store: &Store, queue: &[u8]| unsafe { give_found(item, store.pop(queue)?) };
    // SAFETY: as the caller says.
    unsafe { of_key(store, queue, queue_len, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_take(
    store: *mut rl_store,
    queue: *const c_char,
    queue_len: usize,
    timeout: i64,
    item: *mut rl_buffer,
) -> c_int {
    // SAFETY: as the caller says.
    let call = |store: &Store, queue: &[u8]| unsafe { give_found(item, Some(store.take(queue, time(timeout))?)) };
    // SAFETY: as the caller says.
    unsafe { of_key(store, queue, queue_len, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_queue_len(
    store: *mut rl_store,
    queue: *const c_char,
    queue_len: usize,
    len: *mut i64,
) -> c_int {
    // SAFETY: as the caller says.
    let call = |store: &Store, queue: &[u8]| unsafe { give(len, store.queue_len(queue)?) };
    // SAFETY: as the caller says.
    unsafe { of_key(store, queue, queue_len, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_watch(
    store: *mut rl_store,
    key: *const c_char,
    key_len: usize,
    timeout: i64,
    revision: *mut u64,
    value: *mut rl_buffer,
) -> c_int {
    let call = |store: &Store, key: &[u8]| {
        if revision.is_null() || value.is_null() {
            return Err(Failure::argument("places for revision and value are needed, and NULL was given"));
        }
        // SAFETY: as the caller says.
        let since = Some(unsafe { revision.read() }).filter(|since| *since != 0);
        let changed = store.watch(key, since, time(timeout))?;
        // SAFETY: as the caller says.
        unsafe { give(revision, changed.revision) }?;
        // SAFETY: as the caller says.
        unsafe { give_bytes(value, changed.value) }
    };
    // SAFETY: as the caller says.
    unsafe { of_key(store, key, key_len, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_store_barrier(
    store: *mut rl_store,
    name: *const c_char,
    name_len: usize,
    ranks: *const u32,
    count: usize,
    own: u32,
    timeout: i64,
) -> c_int {
    let call = |store: &Store, name: &[u8]| {
        // SAFETY: as the caller says.
        let ranks = unsafe { list(ranks, count) }?;
        Ok(store.fence(name, ranks.iter().copied(), own, time(timeout))?)
    };
    // SAFETY: as the caller says.
    unsafe { of_key(store, name, name_len, call) }
}
