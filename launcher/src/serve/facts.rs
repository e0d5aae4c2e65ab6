//! Facts about this host before a job runs on it, in one line: `rlaunch doctor` shows them.

use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::bootstrap::Place;
use rlaunch_plan::topology::Level;
use rlaunch_sys::facts::{host, limits};
use rlaunch_sys::ns;
use std::path::{Path, PathBuf};

/// The text for a number that is unknown.
pub(crate) const UNKNOWN: &str = "?";

/// `name=value` words. Numbers of bytes; of limits `soft/hard`, `-` for none.
pub(crate) fn line() -> OsBytes {
    let host::Gpus { amd, count } = host::gpus();
    let gpus = count.map_or(UNKNOWN.to_owned(), |gpus| gpus.to_string());
    let mut words = vec![format!("cpus={}", host::cpus()), format!("gpus={gpus}")];
    words.extend(amd.then(|| "amd=1".to_owned()));
    let topology = crate::bindings::processors().topology;
    words.push(format!("units={}", Level::ALL.map(|level| topology.count(level).to_string()).join("/")));
    if let Some(host::Memory { available, total, swap_free, swap_total }) = host::memory() {
        words.push(format!("memory={available}/{total} swap={swap_free}/{swap_total}"));
    }
    words.extend(host::load().map(|load| format!("load={}", load.map(|load| format!("{load:.2}")).join("/"))));
    // As `--contain auto` will choose; only while we have no threads.
    let contained = ns::is_wanted_by_auto() && ns::is_possible();
    words.push(format!("tier={}", if contained { "T1" } else { "T3" }));
    let value = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    words.extend(limits::limits().iter().map(|l| format!("{}={}/{}", l.name, value(l.soft), value(l.hard))));
    let noexec: Vec<&str> =
        places().into_iter().filter(|(_, path)| host::is_noexec(path)).map(|(name, _)| name).collect();
    words.push(format!("noexec={}", noexec.join(",")));
    words.extend(super::devices::words());
    OsBytes::from(words.join(" "))
}

/// The possible places of the agent's binary: the first directory on the way there that exists.
fn places() -> Vec<(&'static str, PathBuf)> {
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home).unwrap_or_default();
    let there = cache.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
    let places = Place::ALL.into_iter().filter_map(|place| Some((place, place.kept()?)));
    let path = |place, above: &str| if place == Place::Cache { there.to_owned() } else { above.into() };
    places.map(|(place, (above, _))| (above, path(place, above))).collect()
}
