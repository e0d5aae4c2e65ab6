//! The errnos that decide something here, in one place: the pure crates have no libc, and launcher and agent ask the same questions.
//!
//! errno(3). Those below 35 have the same numbers on every architecture of Linux (include/uapi/asm-generic/errno-base.h).

/// No such file or directory.
pub const ENOENT: i32 = 2;
/// A disk fails, or a terminal hung up.
pub const EIO: i32 = 5;
/// Argument list too long.
pub const E2BIG: i32 = 7;
/// Not a format that can be executed.
pub const ENOEXEC: i32 = 8;
/// No room right now.
pub const EAGAIN: i32 = 11;
/// No memory left.
pub const ENOMEM: i32 = 12;
/// Permission denied.
pub const EACCES: i32 = 13;
/// Device or resource busy.
pub const EBUSY: i32 = 16;
/// No such device.
pub const ENODEV: i32 = 19;
/// A part of a path that should be a directory is none.
pub const ENOTDIR: i32 = 20;
/// No descriptor is left.
pub const EMFILE: i32 = 24;
/// The reader is gone.
pub const EPIPE: i32 = 32;
/// The bytes break the protocol.
pub const EPROTO: i32 = 71;
/// No interface of this host has the address (asm-generic/errno.h: x86, Arm, RISC-V, POWER).
pub const EADDRNOTAVAIL: i32 = 99;
/// Timed out (the same).
pub const ETIMEDOUT: i32 = 110;
