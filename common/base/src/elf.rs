//! Libraries that a program of ELF asks for.

use alloc::vec::Vec;

/// Most bytes of one table that are read.
const MOST: u64 = 1 << 20;

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const INTERPRETER: u32 = 3;
const NEEDED: u64 = 1;
const STRINGS: u64 = 5;
const STRINGS_SIZE: u64 = 10;

/// Part of a file that is mapped.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

/// Reads so many bytes of a file at an offset.
pub type Read<'a> = dyn FnMut(u64, u64) -> Option<Vec<u8>> + 'a;

/// Names of the libraries that a 64-bit little-endian program needs. Empty for any other file.
pub fn needed(read: &mut Read<'_>) -> Vec<Vec<u8>> {
    names(read).unwrap_or_default()
}

/// Whether it is a 64-bit little-endian program without a loader, so that it has no libraries.
pub fn is_static(read: &mut Read<'_>) -> bool {
    segments(read).is_some_and(|segments| segments.iter().all(|segment| segment.kind != INTERPRETER))
}

fn segments(read: &mut Read<'_>) -> Option<Vec<Segment>> {
    let header = read(0, 64)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (offset, size, count) = (word(&header, 32)?, u64::from(half(&header, 54)?), u64::from(half(&header, 56)?));
    let table = read(offset, size.checked_mul(count).filter(|bytes| *bytes <= MOST && size >= 56)?)?;
    Some(table.chunks(usize::try_from(size).ok()?).filter_map(segment).collect())
}

fn names(read: &mut Read<'_>) -> Option<Vec<Vec<u8>>> {
    let segments = segments(read)?;
    let dynamic = segments.iter().find(|segment| segment.kind == DYNAMIC)?;
    let dynamic = read(dynamic.offset, dynamic.size.min(MOST))?;
    let entries: Vec<(u64, u64)> =
        dynamic.chunks_exact(16).filter_map(|entry| Some((word(entry, 0)?, word(entry, 8)?))).collect();
    let value = |tag| entries.iter().find(|(own, _)| *own == tag).map(|(_, value)| *value);
    let (address, size) = (value(STRINGS)?, value(STRINGS_SIZE)?.min(MOST));
    let at = |segment: &&Segment| {
        segment.kind == LOAD && address.checked_sub(segment.address).is_some_and(|into| into < segment.size)
    };
    let segment = segments.iter().find(at)?;
    let strings = read(segment.offset.checked_add(address.checked_sub(segment.address)?)?, size)?;
    let name = |at: u64| strings.get(usize::try_from(at).ok()?..)?.split(|b| *b == 0).next().map(<[u8]>::to_vec);
    Some(entries.iter().filter(|(tag, _)| *tag == NEEDED).filter_map(|(_, at)| name(*at)).collect())
}

fn segment(bytes: &[u8]) -> Option<Segment> {
    let kind = u32::from_le_bytes(*bytes.first_chunk()?);
    Some(Segment { kind, offset: word(bytes, 8)?, address: word(bytes, 16)?, size: word(bytes, 32)? })
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Program with a dynamic section that needs libmpi.so.40 and libc.so.6.
    fn program() -> Vec<u8> {
        let mut file = alloc::vec![0_u8; 0x400];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut put = |at: usize, value: u64| file[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(32, 64);
        put(64, u64::from(LOAD));
        put(64 + 8, 0x100);
        put(64 + 16, 0x1100);
        put(64 + 32, 0x300);
        put(120, u64::from(DYNAMIC));
        put(120 + 8, 0x200);
        put(120 + 32, 80);
        for (n, (tag, value)) in
            [(NEEDED, 1), (NEEDED, 14), (STRINGS, 0x1200), (STRINGS_SIZE, 32), (0, 0)].into_iter().enumerate()
        {
            put(0x200 + 16 * n, tag);
            put(0x208 + 16 * n, value);
        }
        file[54..58].copy_from_slice(&[56, 0, 2, 0]);
        // The table of strings stands in the file where its address is mapped from.
        file.resize(0x500, 0);
        file.copy_within(0x200..0x250, 0x300);
        file[64 + 56 + 8..64 + 56 + 16].copy_from_slice(&0x300_u64.to_le_bytes());
        file[0x200..0x220].copy_from_slice(b"\0libmpi.so.40\0libc.so.6\0\0\0\0\0\0\0\0\0");
        file
    }

    fn of(file: &[u8]) -> Vec<Vec<u8>> {
        needed(&mut |at, size| {
            let at = usize::try_from(at).ok()?;
            file.get(at..at.checked_add(usize::try_from(size).ok()?)?).map(<[u8]>::to_vec)
        })
    }

    #[test]
    fn libraries_are_those_of_the_dynamic_section() {
        assert_eq!(of(&program()), [b"libmpi.so.40".to_vec(), b"libc.so.6".to_vec()]);
    }

    #[test]
    fn program_without_a_loader_is_static() {
        let is_static = |file: &[u8]| {
            super::is_static(&mut |at, size| {
                let at = usize::try_from(at).ok()?;
                file.get(at..at.checked_add(usize::try_from(size).ok()?)?).map(<[u8]>::to_vec)
            })
        };
        let mut file = program();
        assert!(is_static(&file));
        file[120..124].copy_from_slice(&INTERPRETER.to_le_bytes());
        assert!(!is_static(&file) && !is_static(b"#!/bin/sh\n") && !is_static(&file[..100]));
    }

    #[test]
    fn a_file_that_is_cut_or_damaged_needs_nothing() {
        let whole = program();
        for end in (0..whole.len()).step_by(7) {
            let _names = of(&whole[..end]);
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] = 0xff;
            let _names = of(&damaged);
        }
        assert_eq!(of(b"#!/bin/sh\n"), Vec::<Vec<u8>>::new());
        assert_eq!(of(&whole[..100]), Vec::<Vec<u8>>::new());
    }
}
