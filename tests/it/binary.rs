//! One static file is the whole install: it needs no loader, no library and no other file to start.

use crate::census;
use crate::place;
use std::process::Command;

/// ELF's program header type of an interpreter (elf(5)).
const PT_INTERP: u32 = 3;

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

#[test]
fn the_binary_has_no_interpreter() {
    let elf = std::fs::read(place::rlaunch()).unwrap();
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
    if !place::has("nm") {
        return place::absent("symbols of the binary", "nm (binutils) is not installed");
    }
    let out = census::output(Command::new("nm").arg(place::rlaunch()));
    let symbols = String::from_utf8_lossy(&out.stdout);
    if symbols.lines().count() < 100 {
        return place::absent("symbols of the binary", "it is stripped");
    }
    for name in ["getaddrinfo", "gethostbyname", "getpwnam", "getpwuid", "getgrnam"] {
        let found = symbols.lines().find(|line| line.split(' ').next_back() == Some(name));
        assert_eq!(found, None, "a static glibc cannot look names up on every distribution");
    }
}

#[test]
fn the_binary_starts_in_an_empty_root() {
    if !place::is_root() {
        return place::absent("an empty root", "needs root");
    }
    let root = std::env::temp_dir().join(format!("rlaunch-root-{}", std::process::id()));
    std::fs::create_dir(&root).unwrap();
    std::fs::copy(place::rlaunch(), root.join("rlaunch")).unwrap();
    let out = census::output(Command::new("chroot").arg(&root).args(["/rlaunch", "--version"]));
    std::fs::remove_dir_all(&root).unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.stdout.starts_with(b"rlaunch "), "{}", String::from_utf8_lossy(&out.stdout));
}
