//! Functions that C calls (`include/rlaunch.h`, which a test compares with this file). The other direction, functions of
//! C that this crate calls, is in `rlaunch_sys_client`. This file has all unsafe code of this crate.
//!
//! `ffi/exports.rs` is the list of what C can call. Arguments cross the border once, as [`Given`], whose functions read and write them as the
//! header allows. The work of a call is safe code, in the modules below, in [`error::guarded`]: panics do not cross.
//!
//! Pointers are looked at whether they are null; beyond that they, and lengths, are the callers'.
#![allow(unsafe_code, reason = "C calls these functions; every block says why it is sound")]
#![allow(unreachable_pub, reason = "C reaches what Rust does not")]

#[macro_use]
mod exports;
mod ffi_calls;
mod ffi_error;
mod ffi_sharding;
mod ffi_store;
mod ffi_world;
mod run;
mod session;
mod types;

use crate::session::AddPending;
use ffi_calls::{rl_calls, rl_event, rl_frame, rl_part, rl_peer};
use ffi_error::Failure;
use ffi_sharding::{rl_axis, rl_sharding};
use ffi_store::{rl_buffer, rl_store};
use ffi_world::rl_world;
use given::Cross as _;
use rlaunch_sys_client::gloo::rl_gloo;
use run::{rl_hooks, rl_options};
use session::rl_session;
use std::ffi::{c_char, c_int, c_void};
use types::{rl_bytes, rl_fault_info, rl_next, rl_pair, rl_round};

/// `rl_function`
type Function = unsafe extern "C" fn(round: *const rl_round, user: *mut c_void) -> c_int;
/// `rl_key_function`
type KeyFunction = unsafe extern "C" fn(*const rl_round, u32, *mut c_char, usize, *mut c_void) -> c_int;
/// The function that is called for each key.
type Each = unsafe extern "C" fn(key: *const c_char, len: usize, user: *mut c_void) -> c_int;

/// The functions that C can call, by module. Arguments that belong together, as bytes and their length, are between two semicolons.
macro_rules! exports {
    ($($room:ident { $(fn $name:ident($($($arg:ident: $kind:ty),+);*) -> $out:ty;)* })*) => { $($(
        /// # Safety
        /// As the header says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($($arg: $kind),+),*) -> $out {
            let _call = given::Call;
            $room::$name($(
                // SAFETY: the caller does as the header says, until this returns.
                unsafe { ($($arg,)+).cross(&_call) }
            ),*)
        }
    )*)* };
}

listed!(exports);

/// Arguments of C, and their permitted uses. In a module of its own: no other code can make one.
mod given {
    use super::*;
    use crate::State;
    use crate::calls::Sent;
    use rlaunch_base::os_bytes::OsBytes;
    use std::ffi::CStr;
    use std::marker::PhantomData;
    use std::sync::Arc;

    type Pairs = Vec<(OsBytes, OsBytes)>;

    /// A call from C, while it runs.
    pub(super) struct Call;

    /// Arguments that belong together, during the call that they were given to.
    pub(crate) struct Given<'a, T>(T, PhantomData<&'a ()>);

    /// The conversion of arguments at the border.
    pub(super) trait Cross {
        type Inside<'a>;
        /// # Safety
        /// They are as the header demands, while the call runs.
        unsafe fn cross<'a>(self, call: &'a Call) -> Self::Inside<'a>;
    }

    macro_rules! given {
        ($([$($free:ident)?] $kind:ty),+) => { $(impl$(<$free>)? Cross for $kind {
            type Inside<'a> = Given<'a, Self>;
            unsafe fn cross<'a>(self, _: &'a Call) -> Given<'a, Self> {
                Given(self, PhantomData)
            }
        })+ };
    }

    given!([T] (*const T,), [T] (*mut T,), [T] (*const T, usize), [T] (*mut T, usize), [] (Option<Each>, *mut c_void));
    given!([] (Option<Function>, *const rl_hooks, *mut c_void));

    macro_rules! plain {
        ($($kind:ty),+) => { $(impl Cross for ($kind,) {
            type Inside<'a> = $kind;
            unsafe fn cross(self, _: &Call) -> $kind {
                self.0
            }
        })+ };
    }

    plain!(u32, u64, i32, i64, usize, Option<AddPending>);

    /// Types that can be written for a caller, with any value.
    ///
    /// # Safety
    /// The type has no pointers that are followed, and is laid out as in the header.
    pub(crate) unsafe trait Plain {}
    macro_rules! written {
        ($($kind:ty),+) => { $(
            // SAFETY: numbers, and texts with their end; structures are `repr(C)`.
            unsafe impl Plain for $kind {}
        )+ };
    }

    written!(c_int, i64, u64, usize, rl_next, rl_round, rl_fault_info, rl_world, rl_peer);

    /// Numbers that C gives a list of.
    pub(crate) trait Number {}
    impl Number for u32 {}
    impl Number for u64 {}
    impl Number for i64 {}

    /// Types of which C holds a share.
    ///
    /// # Safety
    /// The header has it come from [`Given::give_share`] alone, and forbids its use after [`Given::take`].
    pub(crate) unsafe trait Held {
        const NAME: &str;
    }
    // SAFETY: `rl_session_register`, `rl_session_close`.
    unsafe impl Held for rl_session {
        const NAME: &str = "session";
    }
    // SAFETY: `rl_store_open`, `rl_store_close`.
    unsafe impl Held for rl_store {
        const NAME: &str = "store";
    }
    // SAFETY: `rl_calls_open`, `rl_calls_close`.
    unsafe impl Held for rl_calls {
        const NAME: &str = "set of connections";
    }
    // SAFETY: `rl_sharding_open`, `rl_sharding_close`.
    unsafe impl Held for rl_sharding {
        const NAME: &str = "sharding";
    }

    /// # Safety
    /// `first` is the first of `count`, unless it is null, for as long as the result is used.
    unsafe fn slice<'a, T>(first: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
        match (first.is_null(), count) {
            (_, 0) => Ok(&[]),
            (true, _) => Err(Failure::argument(format!("{what} of some length, and NULL was given"))),
            // SAFETY: as the caller says.
            (false, count) => Ok(unsafe { std::slice::from_raw_parts(first, count) }),
        }
    }

    /// # Safety
    /// As [`slice`].
    unsafe fn bytes<'a>(data: *const c_char, len: usize) -> Result<&'a [u8], Failure> {
        // SAFETY: as the caller says.
        unsafe { slice(data.cast(), len, "bytes are needed") }
    }

    /// # Safety
    /// As [`slice`], and what is in it as [`bytes`].
    unsafe fn pairs(first: *const rl_pair, count: usize) -> Result<Pairs, Failure> {
        // SAFETY: as the caller says.
        let all = unsafe { slice(first, count, "a list is needed") }?;
        let owned = |pair: &rl_pair| -> Result<(OsBytes, OsBytes), Failure> {
            // SAFETY: as the caller says.
            let name = unsafe { bytes(pair.name, pair.name_len) }?;
            // SAFETY: as the caller says.
            let value = unsafe { bytes(pair.value, pair.value_len) }?;
            Ok((name.into(), value.into()))
        };
        all.iter().map(owned).collect()
    }

    /// # Safety
    /// It is null, or [`Held`] and not given back.
    unsafe fn share<T: Held>(held: *const T) -> Result<Arc<T>, Failure> {
        if held.is_null() {
            return Err(Failure::argument(format!("a {} is needed, and NULL was given", T::NAME)));
        }
        // SAFETY: it came from `Arc::into_raw`, and the caller's share is still there.
        unsafe { Arc::increment_strong_count(held) };
        // SAFETY: the share that was added above.
        Ok(unsafe { Arc::from_raw(held) })
    }

    impl<'a> Given<'a, (*const c_char, usize)> {
        pub(crate) fn bytes(&self) -> Result<&'a [u8], Failure> {
            // SAFETY: given by the header's rules: so many bytes.
            unsafe { bytes(self.0.0, self.0.1) }
        }
    }

    impl<'a, T: Number> Given<'a, (*const T, usize)> {
        pub(crate) fn list(&self) -> Result<&'a [T], Failure> {
            // SAFETY: given by the header's rules: so many numbers.
            unsafe { slice(self.0.0, self.0.1, "a list is needed") }
        }
    }

    impl<'a> Given<'a, (*const rl_bytes, usize)> {
        pub(crate) fn many(&self) -> Result<Vec<&'a [u8]>, Failure> {
            // SAFETY: given by the header's rules: so many of them.
            let all = unsafe { slice(self.0.0, self.0.1, "a list is needed") }?;
            // SAFETY: the same.
            all.iter().map(|one| unsafe { bytes(one.data, one.len) }).collect()
        }
    }

    impl<'a> Given<'a, (*const rl_axis, usize)> {
        /// Names with their coordinates.
        pub(crate) fn axes(&self) -> Result<Vec<(&'a [u8], i64)>, Failure> {
            // SAFETY: given by the header's rules: so many of them.
            let all = unsafe { slice(self.0.0, self.0.1, "a list is needed") }?;
            // SAFETY: the same.
            all.iter().map(|axis| Ok((unsafe { bytes(axis.name, axis.name_len) }?, axis.index))).collect()
        }
    }

    impl<'a> Given<'a, (*const rl_part, usize)> {
        pub(crate) fn parts(&self) -> Result<Vec<Sent<'a>>, Failure> {
            // SAFETY: given by the header's rules: so many of them.
            let all = unsafe { slice(self.0.0, self.0.1, "a list is needed") }?;
            let sent = |part: &rl_part| match part.place {
                // SAFETY: the same.
                0 => Ok(Sent::Bytes(unsafe { bytes(part.data, part.len) }?)),
                1 => Ok(Sent::Arena(part.offset, part.len as u64)),
                place => Err(Failure::argument(format!("{place} is no place of a part"))),
            };
            all.iter().map(sent).collect()
        }
    }

    impl<'a> Given<'a, (*const rl_frame,)> {
        pub(crate) fn frame(&self) -> Result<&'a rl_frame, Failure> {
            // SAFETY: given by the header's rules.
            let frame = unsafe { self.0.0.as_ref() };
            frame.ok_or_else(|| Failure::argument("a frame is needed, and NULL was given"))
        }
    }

    impl Given<'_, (*mut u8, usize)> {
        pub(crate) const fn has_room(&self, len: usize) -> bool {
            !self.0.0.is_null() && len <= self.0.1
        }

        /// Copies these bytes to the caller's room, if they fit. Whether they do.
        pub(crate) fn fill(&self, parts: [&[u8]; 2]) -> bool {
            let (fits, mut to) = (self.has_room(parts[0].len().saturating_add(parts[1].len())), self.0.0);
            for part in parts.iter().filter(|_| fits) {
                // SAFETY: given by the header's rules: room for so many bytes, for this call alone; all parts fit.
                unsafe { to.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
                to = to.wrapping_add(part.len());
            }
            fits
        }
    }

    impl Given<'_, (*mut rl_event,)> {
        /// The caller frees its bytes.
        pub(crate) fn give_event(&self, event: rl_event) -> Result<(), Failure> {
            self.write(event)
        }
    }

    impl Given<'_, (*const rl_pair, usize)> {
        pub(crate) fn pairs(&self) -> Result<Pairs, Failure> {
            // SAFETY: given by the header's rules: so many of them.
            unsafe { pairs(self.0.0, self.0.1) }
        }
    }

    impl<'a> Given<'a, (*const rl_bytes,)> {
        /// `None`: NULL.
        pub(crate) fn bytes(&self) -> Result<Option<&'a [u8]>, Failure> {
            // SAFETY: given by the header's rules.
            let one = unsafe { self.0.0.as_ref() };
            // SAFETY: the same.
            one.map(|one| unsafe { bytes(one.data, one.len) }).transpose()
        }
    }

    impl Given<'_, (*const rl_options,)> {
        /// Flags and terms; `None`: NULL.
        pub(crate) fn terms(&self) -> Result<Option<(u32, Pairs)>, Failure> {
            // SAFETY: given by the header's rules.
            let Some(options) = (unsafe { self.0.0.as_ref() }) else { return Ok(None) };
            // SAFETY: the same: the terms are as many as they say.
            Ok(Some((options.flags, unsafe { pairs(options.terms, options.terms_count) }?)))
        }
    }

    impl<'a> Given<'a, (*const c_char,)> {
        pub(crate) fn text(&self) -> Result<&'a CStr, Failure> {
            if self.0.0.is_null() {
                return Err(Failure::argument("a reason is needed, and NULL was given"));
            }
            // SAFETY: given by the header's rules: it ends with 0.
            Ok(unsafe { CStr::from_ptr(self.0.0) })
        }
    }

    impl Given<'_, (*const rl_gloo,)> {
        /// From now on gloo's waits are noted, and can be ended.
        pub(crate) fn hold(&self) -> Result<(), Failure> {
            // SAFETY: given by the header's rules.
            let given = unsafe { self.0.0.as_ref() };
            let given = given.ok_or_else(|| Failure::argument("what gloo has is needed, and NULL was given"))?;
            // SAFETY: the same.
            Ok(unsafe { rlaunch_sys_client::hold(given) }?)
        }
    }

    impl<T: Held> Given<'_, (*const T,)> {
        pub(crate) fn share(&self) -> Result<Arc<T>, Failure> {
            // SAFETY: given by the header's rules.
            unsafe { share(self.0.0) }
        }
    }

    impl<T: Held> Given<'_, (*mut T,)> {
        pub(crate) fn share(&self) -> Result<Arc<T>, Failure> {
            // SAFETY: given by the header's rules.
            unsafe { share(self.0.0) }
        }

        /// The caller's share; `None`: NULL.
        pub(crate) fn take(self) -> Option<Arc<T>> {
            // SAFETY: given by the header's rules: the caller does not use it any more.
            (!self.0.0.is_null()).then(|| unsafe { Arc::from_raw(self.0.0) })
        }
    }

    impl<T> Given<'_, (*mut T,)> {
        pub(crate) fn is_null(&self) -> bool {
            self.0.0.is_null()
        }

        fn write(&self, value: T) -> Result<(), Failure> {
            if self.is_null() {
                return Err(Failure::argument("a place for the result is needed, and NULL was given"));
            }
            // SAFETY: given by the header's rules: a place for the result, and nothing that was there is to be dropped.
            unsafe { self.0.0.write(value) };
            Ok(())
        }
    }

    impl<T: Plain> Given<'_, (*mut T,)> {
        pub(crate) fn give(&self, value: T) -> Result<(), Failure> {
            self.write(value)
        }
    }

    impl<T: Held> Given<'_, (*mut *mut T,)> {
        pub(crate) fn give_share(&self, held: Arc<T>) -> Result<(), Failure> {
            if self.is_null() {
                return Err(Failure::argument(format!("a place for the {} is needed, and NULL was given", T::NAME)));
            }
            self.write(Arc::into_raw(held).cast_mut())
        }
    }

    impl Given<'_, (*mut *const c_char,)> {
        /// A text that stays where it is for as long as the header says.
        pub(crate) fn give_text(&self, text: Option<&CStr>) -> Result<(), Failure> {
            self.write(text.map_or(std::ptr::null(), CStr::as_ptr))
        }
    }

    impl Given<'_, (*mut u64,)> {
        /// Reads the caller's value.
        pub(crate) fn read(&self) -> Option<u64> {
            // SAFETY: given by the header's rules: the only place of this type, a revision, is read before it is written.
            (!self.is_null()).then(|| unsafe { self.0.0.read() })
        }
    }

    impl Given<'_, (*mut rl_buffer,)> {
        pub(crate) fn give_bytes(&self, bytes: Option<Vec<u8>>) -> Result<(), Failure> {
            if self.is_null() {
                return Err(Failure::argument("a place for the value is needed, and NULL was given"));
            }
            self.write(rl_buffer::of(bytes))
        }

        /// Frees what it was given, and takes note of that.
        pub(crate) fn free(&self) {
            // SAFETY: given by the header's rules.
            let Some(buffer) = (unsafe { self.0.0.as_mut() }) else { return };
            if !buffer.data.is_null() {
                let all = std::ptr::slice_from_raw_parts_mut(buffer.data, buffer.len + 1);
                // SAFETY: it came from `rl_buffer::of`, and is not there any more behind this.
                drop(unsafe { Box::from_raw(all) });
            }
            *buffer = rl_buffer::of(None);
        }
    }

    impl Given<'_, (Option<Each>, *mut c_void)> {
        pub(crate) fn is_null(&self) -> bool {
            self.0.0.is_none()
        }

        /// Returns the value for a key.
        pub(crate) fn call(&self, key: &[u8]) -> c_int {
            // SAFETY: a function of the caller's, with what the header says that it gets.
            self.0.0.map_or(0, |each| unsafe { each(key.as_ptr().cast(), key.len(), self.0.1) })
        }
    }

    /// A function of a program's with the pointer that it has asked for. It may be called until the `rl_run` that it was given to returns,
    /// whose [`Restart`](crate::Restart) has it, and is gone by then.
    pub(crate) struct Called<F>(F, *mut c_void);

    // SAFETY: nothing is done with the pointer here; the header says on which threads functions run.
    unsafe impl<F: Send> Send for Called<F> {}

    impl Called<Function> {
        pub(crate) fn call(&self, state: &State) -> c_int {
            let round = rl_round::of(state);
            // SAFETY: a function of the caller's, with what the header says that it gets.
            unsafe { self.0(&raw const round, self.1) }
        }
    }

    impl Called<KeyFunction> {
        pub(crate) fn call(&self, state: &State, index: u32, value: &mut [c_char]) -> c_int {
            let round = rl_round::of(state);
            // SAFETY: a function of the caller's, with what the header says that it gets.
            unsafe { self.0(&raw const round, index, value.as_mut_ptr(), value.len(), self.1) }
        }
    }

    impl Given<'_, (Option<Function>, *const rl_hooks, *mut c_void)> {
        pub(crate) fn function(&self) -> Option<Called<Function>> {
            self.0.0.map(|function| Called(function, self.0.2))
        }

        /// One of the hooks.
        pub(crate) fn hook<F>(&self, which: impl FnOnce(&rl_hooks) -> Option<F>) -> Option<Called<F>> {
            // SAFETY: given by the header's rules.
            let hooks = unsafe { self.0.1.as_ref() };
            hooks.and_then(which).map(|function| Called(function, self.0.2))
        }
    }
}

/// Uses of a session that only C has: forks, signals to threads, and invalid arguments.
#[cfg(test)]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "calls in a row, for one reason")]
mod tests {
    use super::ffi_error::{CODES, INTERRUPTED, OK};
    use super::run::is_running;
    use super::types::text;
    use super::*;
    use crate::session::Session;
    use crate::session::tests::{SOON, plain};
    use rlaunch_base::id::Round;
    use rlaunch_protocol::wire::frozen::client::client_round::ClientMessage;
    use std::ffi::CStr;
    use std::ptr::{null, null_mut};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    fn held(session: Session) -> *mut rl_session {
        Arc::into_raw(rl_session::held(session)).cast_mut()
    }

    fn code(name: &str) -> c_int {
        CODES.iter().find(|(known, ..)| *known == name).unwrap().1
    }

    fn next(session: *mut rl_session) -> rl_next {
        let mut next = rl_next { kind: 0, round: rl_round::none(), text: text(b"") };
        // SAFETY: both are there.
        assert_eq!(unsafe { rl_session_next(session, &raw mut next) }, OK);
        next
    }

    #[test]
    fn a_forked_child_speaks_for_nobody() {
        let (session, mut agent) = plain();
        let handle = held(session);
        agent.begins(0, Some(1));
        assert_eq!(next(handle).kind, 1);
        // SAFETY: the child calls nothing but what is tested, which looks first whose process it is, and leaves at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the session is there.
            let calls = unsafe { [rl_session_enter(handle), rl_session_ping(handle), rl_session_returned(handle)] };
            // SAFETY: the same.
            let due = unsafe { rl_session_due(handle) };
            // SAFETY: the same.
            let closed = unsafe { rl_session_close(handle) };
            let well = calls == [code("RL_E_FORKED"); 3] && due == 0 && closed == OK;
            // SAFETY: nothing of the parent's is run at this end.
            unsafe { libc::_exit(if well { 7 } else { 8 }) };
        }
        let mut status = 0;
        // SAFETY: it is our child, and the place is there.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 7);
        // The parent's session is as it was.
        // SAFETY: the session is there.
        assert_eq!(unsafe { rl_session_enter(handle) }, OK);
        // SAFETY: the same.
        assert_eq!(unsafe { rl_session_exit(handle) }, OK);
        // SAFETY: the same.
        assert_eq!(unsafe { rl_session_returned(handle) }, OK);
        assert_eq!(agent.receive(), ClientMessage::Returned(Round::new(0)));
        // SAFETY: it is not used behind this.
        assert_eq!(unsafe { rl_session_close(handle) }, OK);
    }

    static CAME: AtomicU32 = AtomicU32::new(0);

    extern "C" fn comes(_: c_int) {
        CAME.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn the_training_thread_is_signalled_until_it_is_out() {
        let signo = libc::SIGRTMIN() + 3;
        let handler: extern "C" fn(c_int) = comes;
        // SAFETY: the handler does nothing but count.
        unsafe { libc::signal(signo, handler as libc::sighandler_t) };
        let (session, mut agent) = plain();
        let handle = held(session);
        // SAFETY: no memory is touched.
        let tid = i32::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap();
        // SAFETY: the session is there.
        assert_eq!(unsafe { rl_session_signal_thread(handle, tid, signo, 0) }, OK);
        agent.begins(0, Some(1));
        assert_eq!(next(handle).kind, 1);
        // SAFETY: the session is there.
        assert_eq!(unsafe { rl_session_enter(handle) }, OK);
        let began = Instant::now();
        agent.interrupts(0);
        while CAME.load(Ordering::SeqCst) < 2 {
            assert!(began.elapsed() < SOON);
            std::thread::yield_now();
        }
        assert!(began.elapsed() >= Duration::from_secs(1), "again too soon");
        // SAFETY: the session is there.
        assert_eq!(unsafe { rl_session_due(handle) }, 1);
        // SAFETY: the same.
        assert_eq!(unsafe { rl_session_exit(handle) }, INTERRUPTED);
        // SAFETY: the same.
        assert_eq!(unsafe { rl_session_due(handle) }, 0);
        let after = next(handle);
        assert_eq!((after.kind, after.round.of_fault()), (2, (1, 5)));
        // SAFETY: it is not used behind this.
        assert_eq!(unsafe { rl_session_close(handle) }, OK);
    }

    #[test]
    fn invalid_argument_is_reported() {
        // SAFETY: null is what is tested.
        let none = unsafe { [rl_session_enter(null_mut()), rl_session_register(null(), 2, 0, null_mut())] };
        assert_eq!(none, [code("RL_E_ARGUMENT"); 2]);
        // SAFETY: it ends with 0, and is there until the next failure of this thread.
        let text = unsafe { CStr::from_ptr(rl_last_error()) };
        assert_eq!(text.to_str().unwrap(), "a place for the session and known flags are needed");
        // SAFETY: null is what is tested.
        assert_eq!(unsafe { [rl_session_close(null_mut()), rl_store_close(null_mut())] }, [code("RL_E_ARGUMENT"); 2]);
        // SAFETY: the same as above.
        let text = unsafe { CStr::from_ptr(rl_last_error()) };
        assert_eq!(text.to_str().unwrap(), "a store is needed, and NULL was given");
        let (session, _agent) = plain();
        let handle = held(session);
        // SAFETY: the session is there.
        let early = unsafe { [rl_session_enter(handle), rl_session_exit(handle), rl_session_returned(handle)] };
        assert_eq!(early, [code("RL_E_ORDER"); 3]);
        // SAFETY: the same.
        let wrong = unsafe { [rl_session_leave(handle, 9, null(), 0), rl_session_signal_thread(handle, 1, 99, 0)] };
        assert_eq!(wrong, [code("RL_E_ARGUMENT"); 2]);
        // SAFETY: the same.
        assert_eq!(unsafe { rl_session_signal_thread(handle, 0, 0, 0) }, OK, "none any more");
        // SAFETY: the same.
        assert_eq!(unsafe { rl_session_sockets_add(handle, -1) }, code("RL_E_SYSTEM"));
        // SAFETY: it is not used behind this.
        assert_eq!(unsafe { rl_session_close(handle) }, OK);
        assert_eq!(super::ffi_error::guarded(|| panic!("inside")), code("RL_E_PANIC"));
    }

    unsafe extern "C" fn asks(_: *const rl_round, _: u32, value: *mut c_char, _: usize, _: *mut c_void) -> c_int {
        // SAFETY: they may be called at any time.
        let is_early = unsafe { rl_interrupted() == 0 && rl_ping() != OK } && is_running();
        // SAFETY: there is room, as the header says.
        unsafe { value.write(0x78) };
        c_int::from(!is_early)
    }

    unsafe extern "C" fn works(_: *const rl_round, _: *mut c_void) -> c_int {
        // SAFETY: it may be called at any time.
        unsafe { rl_ping() }
    }

    /// Runs with so many keys.
    fn run_with(keys: &'static str, key: KeyFunction) -> c_int {
        let terms = [rl_pair::of("keys", keys)];
        let options = rl_options { terms: terms.as_ptr(), terms_count: 1, flags: 1 };
        let hooks = rl_hooks {
            initialize: None,
            abort: None,
            finalize: None,
            health_check: None,
            completion: None,
            terminate: None,
            key: Some(key),
        };
        // SAFETY: all of it is there.
        unsafe { rl_run(Some(works), &raw const hooks, null_mut(), &raw const options) }
    }

    /// Before the session is there, in the same thread.
    #[test]
    fn a_key_may_ask_whether_there_is_a_round() {
        let _turn = crate::session::tests::turn();
        assert_eq!(run_with("1", asks), OK);
        assert!(!is_running());
    }

    unsafe extern "C" fn has_none(_: *const rl_round, _: u32, _: *mut c_char, _: usize, _: *mut c_void) -> c_int {
        5
    }

    #[test]
    fn key_without_a_value_is_an_argument_error() {
        let _turn = crate::session::tests::turn();
        let result = run_with("1", has_none);
        assert_eq!(result, code("RL_E_ARGUMENT"));
        // SAFETY: it ends with 0, and is there until the next failure of this thread.
        let text = unsafe { CStr::from_ptr(rl_last_error()) };
        assert_eq!(text.to_str().unwrap(), "a key of the policy: key 0 has no value: its function has returned 5");
        // Before a function is called for any of them.
        assert_eq!(run_with("17", has_none), code("RL_E_ARGUMENT"));
        // SAFETY: the same as above.
        let text = unsafe { CStr::from_ptr(rl_last_error()) };
        assert_eq!(text.to_str().unwrap(), "keys takes at most 16, got '17'");
    }

    #[test]
    fn an_ended_session_can_be_asked_until_it_is_closed_and_ends_no_later_one() {
        let (session, agent) = plain();
        let first = held(session);
        // SAFETY: the session is there.
        let ended = unsafe { [rl_session_end(first), rl_session_end(first), rl_session_ping(first)] };
        assert_eq!(ended, [OK; 3]);
        // SAFETY: the same.
        assert_eq!(unsafe { rl_session_due(first) }, 0);
        drop(agent);
        let (session, mut agent) = plain();
        let second = held(session);
        // SAFETY: it is not used behind this.
        assert_eq!(unsafe { rl_session_close(first) }, OK);
        agent.begins(0, Some(1));
        assert_eq!(next(second).kind, 1);
        // SAFETY: it is not used behind this.
        assert_eq!(unsafe { rl_session_close(second) }, OK);
    }
}
