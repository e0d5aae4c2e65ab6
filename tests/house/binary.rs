//! One static file is the whole install: it needs no loader, no library and no other file to start.

use std::io::Write as _;
use std::process::Command;

const RLAUNCH: &str = env!("CARGO_BIN_EXE_rlaunch");

/// ELF's program header type of an interpreter (elf(5)).
const PT_INTERP: u32 = 3;

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

#[test]
fn the_binary_has_no_interpreter() {
    let elf = std::fs::read(RLAUNCH).unwrap();
    assert_eq!(&elf[..5], b"\x7fELF\x02", "a 64-bit ELF file");
    let at = |offset, len| usize::try_from(number(&elf, offset, len)).unwrap();
    let (table, size, count) = (at(32, 8), at(54, 2), at(56, 2));
    assert!(count > 0);
    for header in 0..count {
        let kind = number(&elf, table + header * size, 4);
        assert_ne!(kind, u64::from(PT_INTERP), "RUSTFLAGS in the environment replace the flags of the build");
    }
}

#[test]
fn the_binary_resolves_no_names() {
    let out = Command::new("nm").arg(RLAUNCH).output().unwrap();
    let symbols = String::from_utf8_lossy(&out.stdout);
    assert!(symbols.lines().count() > 100, "the binary is stripped, or nm (binutils) is missing");
    for name in ["getaddrinfo", "gethostbyname", "getpwnam", "getpwuid", "getgrnam"] {
        let found = symbols.lines().find(|line| line.split(' ').next_back() == Some(name));
        assert_eq!(found, None, "a static glibc cannot look names up on every distribution");
    }
}

#[test]
fn the_binary_starts_in_an_empty_root() {
    if !nix::unistd::geteuid().is_root() {
        // Said past the capture of the test harness: nothing is skipped in silence.
        std::io::stderr().write_all(b"absent: an empty root: needs root\n").unwrap();
        return;
    }
    let root = std::env::temp_dir().join(format!("rlaunch-root-{}", std::process::id()));
    std::fs::create_dir(&root).unwrap();
    std::fs::copy(RLAUNCH, root.join("rlaunch")).unwrap();
    let out = Command::new("chroot").arg(&root).args(["/rlaunch", "--version"]).output().unwrap();
    std::fs::remove_dir_all(&root).unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.stdout.starts_with(b"rlaunch "), "{}", String::from_utf8_lossy(&out.stdout));
}
