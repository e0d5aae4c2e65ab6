//! A spawn of PMIx: the order for its programs.

use super::super::spawn::{TOO_LONG, pair};
use super::super::{Cx, Origin};
use super::Parent;
use alloc::vec::Vec;
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_protocol::wire::frozen::client::order::{Program, Request};
use rlaunch_protocol::wire::pmix::App;

/// Most bytes of the arguments and variables of a spawn.
const MOST: usize = 512 << 10;

/// The order for some programs, or why there is none.
pub(super) fn request(cx: &Cx<'_>, rank: Rank, apps: &[App<'_>]) -> Result<Request, &'static str> {
    let words = apps.iter().flat_map(|app| app.argv.iter().chain(&app.env));
    if words.map(|word| word.len().saturating_add(1)).fold(0, usize::saturating_add) > MOST {
        return Err(TOO_LONG);
    }
    let world = cx.layout.name.as_bytes().to_vec();
    let origin = Origin::Parent(Parent { world, rank: rank.get() }).write();
    Ok(Request { programs: apps.iter().map(program).collect(), origin, ..Request::default() })
}

fn program(app: &App<'_>) -> Program {
    let argv = core::iter::once(&app.command).chain(app.argv.iter().skip(1));
    let text = |wanted: &[u8]| {
        app.infos
            .iter()
            .find(|(key, _)| *key == wanted)
            .and_then(|(_, value)| value.text())
            .filter(|text| !text.is_empty())
    };
    let hosts = text(b"pmix.host")
        .or(text(b"pmix.addhost"))
        .unwrap_or_default()
        .split(|b| *b == b',')
        .filter(|name| !name.is_empty());
    let wdir = text(b"pmix.wdir").or(Some(app.wdir)).filter(|dir| !dir.is_empty());
    Program {
        ranks: app.ranks,
        argv: argv.map(|word| OsBytes::from(*word)).collect::<Vec<_>>(),
        env: app.env.iter().filter_map(|line| pair(line)).collect(),
        wdir: wdir.map(OsBytes::from),
        hosts: hosts.map(OsBytes::from).collect(),
    }
}
