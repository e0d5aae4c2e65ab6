//! The event log of a pool (`rlaunch pool up --events`): one JSON object per line.

use crate::edges::now;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Mono;
use serde_json::{Map, Value};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;

/// The version of the schema: `"v"` of every line.
const VERSION: u32 = 1;

/// The log, if one was asked for.
pub(super) struct Events {
    file: Option<File>,
    began: Mono,
}

impl Events {
    /// Lines are added to this file.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn open(path: Option<&OsBytes>) -> io::Result<Self> {
        let open = |path: &OsBytes| OpenOptions::new().create(true).append(true).open(OsStr::from_bytes(path));
        Ok(Self { file: path.map(open).transpose()?, began: now() })
    }

    /// Adds a line. Returns why that has failed; then no other follows.
    pub(super) fn write<const N: usize>(&mut self, ev: &str, fields: [(&str, Value); N]) -> Result<(), io::Error> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut object = Map::new();
        object.insert("v".into(), VERSION.into());
        object.insert("t".into(), now().since(self.began).nanos().into());
        object.insert("wall".into(), rlaunch_sys::clock::wall().into());
        object.insert("ev".into(), ev.into());
        object.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
        // In one piece: several pools may share a file.
        let written = file.write_all(format!("{}\n", Value::from(object)).as_bytes());
        if written.is_err() {
            self.file = None;
        }
        written
    }
}
