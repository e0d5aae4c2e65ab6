//! Bytes of real clients, and bytes that no client sends.

use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

/// Bytes that ranks 0 and 1 of Open MPI 5.0.11 (libpmix 5.0.11) and 4.1.8 (libpmix 3.2.5) send from `MPI_Init` to `MPI_Finalize`.
const GOLDEN: [(&[u8], &[u8]); 4] = [
    (b"5.0.11rc1", include_bytes!("../../../../../tests/golden/mpi/openmpi-5.0.11.0")),
    (b"5.0.11rc1", include_bytes!("../../../../../tests/golden/mpi/openmpi-5.0.11.1")),
    (b"3.2.5a1", include_bytes!("../../../../../tests/golden/mpi/openmpi-4.1.8.0")),
    (b"3.2.5a1", include_bytes!("../../../../../tests/golden/mpi/openmpi-4.1.8.1")),
];

/// The messages after a hello.
fn requests(mut bytes: &[u8], is_described: bool) -> Result<Vec<Request<'_>>, Malformed> {
    let mut all = Vec::new();
    while let Some(header) = Header::parse(bytes)? {
        let end = HEADER.saturating_add(header.len);
        let (Some(body), Some(rest)) = (bytes.get(HEADER..end), bytes.get(end..)) else { break };
        all.push(Request::parse(body, is_described)?);
        bytes = rest;
    }
    Ok(all)
}

#[test]
fn clients_of_three_libraries_are_understood() {
    for (number, (version, bytes)) in (0_u32..).zip(&GOLDEN) {
        let (hello, used) = Hello::parse(bytes).unwrap().unwrap();
        assert_eq!((hello.role, hello.nspace, hello.rank), (0, &b"world"[..], number % 2));
        assert_eq!((hello.version, hello.is_described), (*version, false));
        let all = requests(&bytes[used..], false).unwrap();
        let count = |is: fn(&Request<'_>) -> bool| all.iter().filter(|request| is(request)).count();
        assert_eq!(all[0], Request::JobData);
        assert_eq!(all.last(), Some(&Request::Finalize));
        assert_eq!(count(|request| matches!(request, Request::Unsupported(_))), 0, "{all:?}");
        assert!(count(|request| matches!(request, Request::Commit(_))) >= 1);
        let everyone = Proc { nspace: b"world", rank: ALL_RANKS };
        let fences = all.iter().filter(|request| **request == Request::Fence([everyone].into()));
        assert!(fences.count() >= 2, "{all:?}");
    }
    let (_, newest) = GOLDEN[0];
    let (_, used) = Hello::parse(newest).unwrap().unwrap();
    assert!(requests(&newest[used..], false).unwrap().contains(&Request::JobControl));
}

/// A help message of Open MPI 4.1.4. Open MPI 5.0.11 sends the same.
const HELP: [&[u8]; 2] = [
    include_bytes!("../../../../../tests/golden/mpi/openmpi-4.1.4.help"),
    include_bytes!("../../../../../tests/golden/mpi/openmpi-5.0.11.help"),
];
const NAME: HelpName<'_> = HelpName { file: b"help-mca-base.txt", topic: b"find-available:not-valid" };

#[test]
fn help_message_of_open_mpi_has_its_name_and_its_text() {
    for bytes in HELP {
        let [Request::Log(texts)] = &requests(bytes, false).unwrap()[..] else { panic!("no text") };
        let [LogText { text, help }] = texts[..] else { panic!("{texts:?}") };
        assert_eq!(help, Some(NAME));
        assert!(text.starts_with(b"-----") && text.ends_with(b"-----\n"), "{text:?}");
        for end in 0..bytes.len() {
            let mut cut = bytes.to_vec();
            cut[end] = 0xff;
            let _any = (requests(&bytes[..end], false).map(drop), requests(&cut, false).map(drop));
        }
    }
}

/// Open MPI that was built for debugging writes the kinds of what it packs.
#[test]
fn packed_help_message_with_kinds_is_understood() {
    let text = |text: &[u8]| {
        [&b"\x09\0\0\0\x01\x03\0\0\0"[..], &[u8::try_from(text.len() + 1).unwrap()], text, b"\0"].concat()
    };
    let flag = |is_set| [9, 0, 0, 0, 1, 7, is_set];
    let full = [&text(NAME.file)[..], &text(NAME.topic), &flag(1), &text(b"words")].concat();
    assert_eq!(log::packed(&full), Some(LogText { text: b"words", help: Some(NAME) }));
    let suppressed = [&text(NAME.file)[..], &text(NAME.topic), &flag(0)].concat();
    assert_eq!(log::packed(&suppressed), None);
    (0..full.len()).for_each(|end| assert_eq!(log::packed(&full[..end]), None));
}

#[test]
fn described_values_are_read_as_they_are_written() {
    for is_described in [false, true] {
        let proc = Proc { nspace: b"n", rank: 3 };
        let mut out = Writer::new(is_described);
        out.status(-46).string(b"text").procs([proc].into_iter()).byte_object(b"\0\x01").key_word(b"k", 7);
        let bytes = out.into_bytes();
        let mut all = Reader::new(&bytes, is_described);
        all.one(kind::STATUS).unwrap();
        assert_eq!(all.word().unwrap(), (-46_i32).cast_unsigned());
        assert_eq!(all.one_text(), Ok(&b"text"[..]));
        assert_eq!(all.counted(kind::PROC, Reader::proc), Ok([proc].into()));
        all.one(kind::BYTE_OBJECT).unwrap();
        assert_eq!(all.bytes(), Ok(&b"\0\x01"[..]));
        all.one(kind::KVAL).unwrap();
        assert_eq!(all.text(), Ok(&b"k"[..]));
        assert_eq!(all.value(), Ok(RawValue { kind: kind::UINT32, bytes: &[0, 0, 0, 7] }));
        assert!(all.is_empty());
    }
    let mut out = Writer::new(true);
    out.status(0);
    let bytes = out.into_bytes();
    assert_eq!(Reader::new(&bytes, true).one(kind::STRING), Err(Malformed::Kind(kind::STRING)));
}

#[test]
fn every_cut_and_every_flipped_byte_is_an_error_or_a_request() {
    for (_, bytes) in GOLDEN {
        for end in 0..bytes.len() {
            let _any = Hello::parse(&bytes[..end]);
        }
        let (_, used) = Hello::parse(bytes).unwrap().unwrap();
        for at in 0..bytes.len() {
            for value in [0, 0x7f, 0xff] {
                let mut bytes = bytes.to_vec();
                bytes[at] = value;
                let _any = (Hello::parse(&bytes).map(drop), requests(&bytes[used..], false).map(drop));
            }
        }
    }
}

#[test]
fn nested_and_declared_values_are_limited() {
    let array = [0, 39, 0, 39, 0, 15, 0, 0, 0, 0, 0, 0, 0, 1];
    let deep: Vec<u8> = core::iter::once(&array[..2]).chain((0..20).map(|_| &array[2..])).flatten().copied().collect();
    assert_eq!(Reader::new(&deep, false).value(), Err(Malformed::Deep));
    let endless = [0, 39, 0, 0, 0, 15, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(Reader::new(&endless, false).value(), Err(Malformed::Kind(0)));
    assert_eq!(Header::parse(&[0xff; HEADER]), Err(Malformed::Long(u32::MAX)));
    let mut hello = [0; HEADER];
    hello[8..12].copy_from_slice(&0x1_0001_u32.to_le_bytes());
    assert_eq!(Hello::parse(&hello), Err(Malformed::Long(0x1_0001)));
    hello[8..12].copy_from_slice(&0x1_0000_u32.to_le_bytes());
    assert_eq!(Hello::parse(&hello), Ok(None));
}

proptest! {
    #[test]
    fn any_bytes_are_an_error_or_a_request(bytes in proptest::collection::vec(any::<u8>(), 0..200), is_described: bool) {
        let _any = (Hello::parse(&bytes).map(drop), Request::parse(&bytes, is_described).map(drop));
        let _value = Reader::new(&bytes, is_described).value();
    }
}
