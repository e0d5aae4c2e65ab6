//! A spawn of PMI-1 on its way: lines about each of its programs.

use super::super::Origin;
use super::super::spawn::{TOO_LONG, pair};
use super::Keys;
use alloc::vec::Vec;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_protocol::wire::frozen::client::order::{Program, Request};

/// Most bytes of a spawn.
const MOST: usize = 512 << 10;
/// The charge of a program, beside its lines.
const OF_PROGRAM: usize = 256;
const NO_SUCH_PATH: &str = "the info key path names several directories\n  try     one directory, or none";

/// The programs of a spawn.
#[derive(Debug, Default)]
pub(super) struct Spawning {
    /// Programs that were announced, and those of which all has come.
    total: u32,
    ended: u32,
    programs: Vec<Program>,
    part: Part,
    /// The info keys of all programs.
    info_keys: Vec<Vec<u8>>,
    keys: Keys,
    bytes: usize,
    wrong: Option<&'static str>,
}

/// A program of which all has not come.
#[derive(Debug, Default)]
struct Part {
    program: Program,
    name: Vec<u8>,
    path: Option<Vec<u8>>,
    info: Vec<u8>,
    preput: Vec<u8>,
}

impl Spawning {
    /// A line.
    pub(super) fn take(&mut self, name: &[u8], value: &[u8]) {
        self.bytes = self.bytes.saturating_add(name.len()).saturating_add(value.len());
        if self.bytes > MOST {
            self.wrong = Some(TOO_LONG);
            return;
        }
        let number = || core::str::from_utf8(value).ok().and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
        let part = &mut self.part;
        match name {
            b"totspawns" => self.total = number(),
            b"nprocs" => part.program.ranks = number(),
            b"execname" => part.name = value.to_vec(),
            _ if name.starts_with(b"info_key_") => {
                self.info_keys.push(value.to_vec());
                part.info = value.to_vec();
            }
            _ if name.starts_with(b"info_val_") => part.inform(value),
            _ if name.starts_with(b"preput_key_") => part.preput = value.to_vec(),
            _ if name.starts_with(b"preput_val_") => {
                self.keys.insert(core::mem::take(&mut part.preput), value.to_vec());
            }
            // The number of arguments is "argcnt".
            [b'a', b'r', b'g', b'0'..=b'9', ..] => part.program.argv.push(OsBytes::from(value)),
            _ => {}
        }
    }

    /// All about a program has come. Returns whether it is the last one.
    pub(super) fn end_part(&mut self) -> bool {
        self.bytes = self.bytes.saturating_add(OF_PROGRAM);
        match core::mem::take(&mut self.part).program() {
            _ if self.bytes > MOST => self.wrong = Some(TOO_LONG),
            Ok(program) => self.programs.push(program),
            Err(why) => self.wrong = Some(why),
        }
        self.ended = self.ended.saturating_add(1);
        self.ended >= self.total
    }

    pub(super) fn info_keys(&self) -> impl Iterator<Item = &[u8]> {
        self.info_keys.iter().map(Vec::as_slice)
    }

    /// The order, or why there is none.
    pub(super) fn finish(self) -> Result<Request, &'static str> {
        let origin = Origin::Keys(self.keys).write();
        match self.wrong {
            Some(why) => Err(why),
            None => Ok(Request { programs: self.programs, origin, ..Request::default() }),
        }
    }
}

impl Part {
    /// The value of an info key; others than these are hints of other launchers.
    fn inform(&mut self, value: &[u8]) {
        match core::mem::take(&mut self.info).as_slice() {
            b"wdir" | b"wd" => self.program.wdir = Some(OsBytes::from(value)),
            b"host" | b"hosts" | b"add-host" => {
                let names = value.split(|b| *b == b',').filter(|name| !name.is_empty());
                self.program.hosts = names.map(OsBytes::from).collect();
            }
            b"env" => self.program.env = value.split(|b| *b == b'\n').filter_map(pair).collect(),
            b"path" => self.path = Some(value.to_vec()),
            _ => {}
        }
    }

    fn program(self) -> Result<Program, &'static str> {
        let Self { mut program, mut name, path, .. } = self;
        if let Some(path) = path.filter(|path| !path.is_empty() && !name.contains(&b'/')) {
            if path.contains(&b':') {
                return Err(NO_SUCH_PATH);
            }
            name = [&path, &b"/"[..], &name].concat();
        }
        program.argv.insert(0, OsBytes::new(name));
        Ok(program)
    }
}
