//! The wire of PMI-1, as MPICH and Intel MPI speak it to their launcher: lines of `name=value`, one for each message.
//!
//! A value ends at a space that no backslash precedes. Values are kept as they came: a client that reads one removes the backslashes itself.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Longest line. The limits that clients are given keep their lines far below.
pub const MAX_LINE: usize = 16 << 10;
/// Longest name of a key-value space, key and value, as clients are sent them.
pub const LIMITS: [usize; 3] = [256, 64, 1024];

/// The ranks of a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group<'a> {
    /// All.
    World,
    /// The ranks of the caller's host.
    Node,
    /// Numbers with commas between.
    Ranks(&'a [u8]),
}

impl<'a> Group<'a> {
    fn parse(text: &'a [u8]) -> Self {
        match text {
            b"WORLD" | b"" => Self::World,
            b"NODE" => Self::Node,
            ranks => Self::Ranks(ranks),
        }
    }

    /// The numbers of a list; `None`: something in it is no number.
    #[must_use]
    pub fn numbers(list: &[u8]) -> Option<Vec<u32>> {
        list.split(|b| *b == b',').map(|word| core::str::from_utf8(word).ok()?.parse().ok()).collect()
    }
}

/// A request about a name that all ranks can look up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are those of the wire")]
pub enum NameRequest<'a> {
    Publish { service: &'a [u8], port: &'a [u8] },
    Lookup { service: &'a [u8] },
    Unpublish { service: &'a [u8] },
}

/// A message of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are those of the wire")]
pub enum Request<'a> {
    InitAck { rank: u32 },
    Init,
    GetMaxes,
    GetAppnum,
    GetUniverseSize,
    GetKvsName,
    Put { key: &'a [u8], value: &'a [u8] },
    Get { kvs: &'a [u8], key: &'a [u8] },
    Barrier { group: Option<(Group<'a>, &'a [u8])> },
    Name(NameRequest<'a>),
    Finalize,
    Abort { code: i32, text: &'a [u8] },
    Spawn,
    SpawnPart { name: &'a [u8], value: &'a [u8] },
    SpawnEnd,
    Unknown(&'a [u8]),
}

/// A line that is no message, or one without a field that it needs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// The line has no `cmd=`.
    #[error("a line does not begin with cmd=")]
    NoCommand,
    /// The line is too long.
    #[error("a line is longer than {MAX_LINE} bytes")]
    Long,
    /// A field is missing, or has a value that cannot be.
    #[error("a message lacks its field {0}")]
    Field(&'static str),
    /// A key or a value is longer than the limit that the client was sent.
    #[error("a key or value is longer than the limits that were announced")]
    Limit,
}

/// The first line of some bytes, without its end, and the number of bytes with it; `None`: not complete.
///
/// # Errors
/// The line is too long.
pub fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Malformed> {
    let window = bytes.get(..MAX_LINE.min(bytes.len())).unwrap_or_default();
    match window.iter().position(|b| *b == b'\n') {
        Some(end) => Ok(window.get(..end).map(|line| (line, end.saturating_add(1)))),
        None if bytes.len() >= MAX_LINE => Err(Malformed::Long),
        None => Ok(None),
    }
}

/// The fields of a line, in their order.
pub fn fields(line: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = line;
    core::iter::from_fn(move || {
        while let Some((b' ', after)) = rest.split_first() {
            rest = after;
        }
        let (word, after) = word(rest)?;
        rest = after;
        let at = word.iter().position(|b| *b == b'=').unwrap_or(word.len());
        Some((word.get(..at).unwrap_or_default(), word.get(at.saturating_add(1)..).unwrap_or_default()))
    })
}

/// The bytes up to the first space that is not escaped, and the rest.
fn word(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    if bytes.is_empty() {
        return None;
    }
    let mut is_escaped = false;
    let ends = |b: &u8| {
        let ends = *b == b' ' && !is_escaped;
        is_escaped = *b == b'\\' && !is_escaped;
        ends
    };
    let end = bytes.iter().position(ends).unwrap_or(bytes.len());
    bytes.split_at_checked(end)
}

/// A message, from its line.
///
/// # Errors
/// The line is no message.
pub fn parse(line: &[u8]) -> Result<Request<'_>, Malformed> {
    let (name, command) = fields(line).next().ok_or(Malformed::NoCommand)?;
    match (name, command) {
        (b"mcmd", b"spawn") => return Ok(Request::Spawn),
        (b"endcmd", _) => return Ok(Request::SpawnEnd),
        (b"cmd", _) => {}
        // A value of a spawn may have spaces.
        (name, _) if name.len() < line.len() => {
            return Ok(Request::SpawnPart {
                name,
                value: line.get(name.len().saturating_add(1)..).unwrap_or_default(),
            });
        }
        _ => return Err(Malformed::NoCommand),
    }
    let field = |wanted: &'static str| {
        let found = fields(line).find(|(name, _)| *name == wanted.as_bytes());
        found.map(|(_, value)| value).ok_or(Malformed::Field(wanted))
    };
    let capped = |wanted, most| {
        field(wanted).and_then(|value| if value.len() > most { Err(Malformed::Limit) } else { Ok(value) })
    };
    let [_, key, value] = LIMITS;
    Ok(match command {
        b"initack" => Request::InitAck { rank: number(field("pmiid")?).ok_or(Malformed::Field("pmiid"))? },
        b"init" => Request::Init,
        b"get_maxes" => Request::GetMaxes,
        b"get_appnum" => Request::GetAppnum,
        b"get_universe_size" => Request::GetUniverseSize,
        b"get_my_kvsname" => Request::GetKvsName,
        b"put" => Request::Put { key: capped("key", key)?, value: capped("value", value)? },
        b"get" => Request::Get { kvs: field("kvsname").unwrap_or_default(), key: field("key")? },
        b"barrier_in" => Request::Barrier {
            group: field("group").ok().map(|group| {
                let at = group.iter().position(|b| *b == b':').unwrap_or(group.len());
                let (ranks, tag) =
                    (group.get(..at).unwrap_or_default(), group.get(at.saturating_add(1)..).unwrap_or_default());
                (Group::parse(ranks), tag)
            }),
        },
        b"publish_name" => {
            Request::Name(NameRequest::Publish { service: field("service")?, port: capped("port", value)? })
        }
        b"lookup_name" => Request::Name(NameRequest::Lookup { service: field("service")? }),
        b"unpublish_name" => Request::Name(NameRequest::Unpublish { service: field("service")? }),
        b"finalize" => Request::Finalize,
        b"abort" => Request::Abort {
            code: field("exitcode").ok().and_then(number).unwrap_or(1),
            text: field("message").or_else(|_| field("error_msg")).unwrap_or_default(),
        },
        unknown => Request::Unknown(unknown),
    })
}

fn number<T: core::str::FromStr>(text: &[u8]) -> Option<T> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// An answer to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are those of the wire")]
pub enum Reply<'a> {
    InitAck { size: u32, rank: u32 },
    Init,
    Maxes,
    Appnum(u32),
    UniverseSize(u32),
    KvsName(&'a str),
    Put,
    Found(&'a [u8]),
    NotFound,
    Barrier { tag: Option<&'a [u8]> },
    Published,
    LookedUp(Option<&'a [u8]>),
    Unpublished,
    Finalized,
    Spawned { ranks: u32 },
    NotSpawned,
    Refused { command: &'a str, why: &'static str },
}

impl Reply<'_> {
    /// Its bytes.
    #[must_use]
    pub fn write(self) -> Vec<u8> {
        let text = match self {
            Self::InitAck { size, rank } => {
                format!("cmd=initack rc=0\ncmd=set size={size}\ncmd=set rank={rank}\ncmd=set debug=0\n")
            }
            Self::Init => String::from("cmd=response_to_init pmi_version=1 pmi_subversion=2 rc=0\n"),
            Self::Maxes => {
                let [name, key, value] = LIMITS;
                format!("cmd=maxes kvsname_max={name} keylen_max={key} vallen_max={value} rc=0\n")
            }
            Self::Appnum(app) => format!("cmd=appnum appnum={app} rc=0\n"),
            Self::UniverseSize(size) => format!("cmd=universe_size size={size} rc=0\n"),
            Self::KvsName(name) => format!("cmd=my_kvsname kvsname={name} rc=0\n"),
            Self::Put => String::from("cmd=put_result rc=0\n"),
            Self::Found(value) => return [b"cmd=get_result rc=0 found=TRUE value=", value, b"\n"].concat(),
            Self::NotFound => String::from("cmd=get_result rc=-1 msg=key_not_found value=unknown\n"),
            Self::Barrier { tag: None } => String::from("cmd=barrier_out rc=0\n"),
            Self::Barrier { tag: Some(tag) } => return [b"cmd=barrier_out tag=", tag, b" rc=0\n"].concat(),
            Self::Published => String::from("cmd=publish_result rc=0 info=ok\n"),
            Self::LookedUp(Some(port)) => return [b"cmd=lookup_result rc=0 port=", port, b"\n"].concat(),
            Self::LookedUp(None) => String::from("cmd=lookup_result rc=-1 msg=service_not_found\n"),
            Self::Unpublished => String::from("cmd=unpublish_result rc=0 info=ok\n"),
            Self::Finalized => String::from("cmd=finalize_ack rc=0\n"),
            Self::Spawned { ranks } => {
                let codes: Vec<&str> = (0..ranks).map(|_| "0").collect();
                format!("cmd=spawn_result rc=0 errcodes={}\n", codes.join(","))
            }
            // A code for each rank and rc=0 would be a success to MPICH.
            Self::NotSpawned => String::from("cmd=spawn_result rc=-1 msg=spawn_failed\n"),
            Self::Refused { command, why } => format!("cmd={command} rc=-1 msg={why}\n"),
        };
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_mpich_are_understood() {
        for (text, request) in [
            (&b"cmd=initack pmiid=3"[..], Request::InitAck { rank: 3 }),
            (b"cmd=init pmi_version=1 pmi_subversion=1", Request::Init),
            (b"cmd=get_maxes", Request::GetMaxes),
            (b"cmd=put kvsname=k key=-bcast-1-0 value=0a=b", Request::Put { key: b"-bcast-1-0", value: b"0a=b" }),
            (b"cmd=put kvsname=k key=a value=b\\ c d=e", Request::Put { key: b"a", value: b"b\\ c" }),
            (b"cmd=get kvsname=k key=PMI_process_mapping", Request::Get { kvs: b"k", key: b"PMI_process_mapping" }),
            (b"cmd=barrier_in", Request::Barrier { group: None }),
            (b"cmd=barrier_in group=NODE:7", Request::Barrier { group: Some((Group::Node, b"7")) }),
            (b"cmd=barrier_in group=0,3:1", Request::Barrier { group: Some((Group::Ranks(b"0,3"), b"1")) }),
            (b"cmd=abort exitcode=7 message=abort", Request::Abort { code: 7, text: b"abort" }),
            (b"mcmd=spawn", Request::Spawn),
            (b"arg1=a b", Request::SpawnPart { name: b"arg1", value: b"a b" }),
            (b"endcmd", Request::SpawnEnd),
            (b"cmd=new", Request::Unknown(b"new")),
        ] {
            assert_eq!(parse(text), Ok(request), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn malformed_lines_are_errors() {
        assert_eq!(parse(b""), Err(Malformed::NoCommand));
        assert_eq!(parse(b"   "), Err(Malformed::NoCommand));
        assert_eq!(parse(b"cmd"), Ok(Request::Unknown(b"")));
        assert_eq!(parse(b"cmd=put key=a"), Err(Malformed::Field("value")));
        assert_eq!(parse(b"cmd=initack pmiid=-1"), Err(Malformed::Field("pmiid")));
        let long = [&b"cmd=put key="[..], &[b'k'; 65], b" value=v"].concat();
        assert_eq!(parse(&long), Err(Malformed::Limit));
        assert_eq!(line(&[b'x'; MAX_LINE]), Err(Malformed::Long));
        assert_eq!(line(b"cmd=init"), Ok(None));
        assert_eq!(line(b"cmd=init\ncmd"), Ok(Some((&b"cmd=init"[..], 9))));
    }
}
