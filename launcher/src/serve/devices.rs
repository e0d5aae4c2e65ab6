//! Devices of this host that one process at a time can use, and their holders, as words of the line of facts.

use super::device_files::{Holder, Site, lock_files};
use super::facts::UNKNOWN;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::tpu::TpuFacts;
use rlaunch_protocol::guard::devices::{DeviceHolder, DeviceKind, Kept, LIBTPU_LOCK, LockFound};
use rlaunch_sys::facts::host;

/// The hosts of the TPU slice that this host belongs to, by their numbers. Empty: no slice is known. The metadata server has a second.
pub(crate) fn hosts_of_slice() -> Vec<String> {
    super::tpu_facts().iter().flat_map(|facts| facts.peers.iter()).map(ToString::to_string).collect()
}

/// Most holders that are named.
const NAMED: usize = 4;

/// `chips=4/v5e`, `slice=a/0/4`, `lock=locked:4242`, and `holder=/dev/vfio/0:4242:alice:MEMORY:SECONDS:python3` for each holder. Nothing where there are no such devices.
pub(super) fn words() -> Vec<String> {
    let mut words = Vec::new();
    if let Some(site) = Site::of(DeviceKind::Auto) {
        let generation = site.chips().first().map(|(_, of)| of.to_string().replace(' ', "_")).unwrap_or_default();
        words.push(format!("chips={}/{generation}", site.chips().len()));
        words.extend(super::tpu_facts().filter(|facts| !facts.slice.is_empty()).map(|facts| slice(&facts)));
        words.extend(lock_files(&[OsBytes::from(LIBTPU_LOCK)], true).into_iter().map(|(_, found)| lock(found)));
        words.extend(holders(&site));
    }
    words.extend(holders(&Site::gpus()));
    words
}

/// `slice=NAME/WORKER/HOSTS`
fn slice(facts: &TpuFacts) -> String {
    let hosts = if facts.peers.is_empty() { UNKNOWN.to_owned() } else { facts.peers.len().to_string() };
    format!("slice={}/{}/{hosts}", facts.slice, facts.worker).replace(char::is_whitespace, "_")
}

fn lock(found: LockFound) -> String {
    match found {
        LockFound::Removed | LockFound::Unlocked => "lock=left_over".to_owned(),
        LockFound::Locked { pid } => format!("lock=locked_by_{pid}"),
        LockFound::Foreign { uid } => format!("lock=of_user_{uid}"),
        LockFound::Odd(kind) => format!("lock=is_{kind}").replace(char::is_whitespace, "_"),
        LockFound::Unknown { errno } => format!("lock=errno_{errno}"),
    }
}

fn holders(site: &Site) -> Vec<String> {
    let look = site.look("").unwrap_or_default();
    let hidden = look.hidden.iter().map(|path| format!("holder={}:?:?:?", path.display()));
    look.holders.iter().take(NAMED).map(holder).chain(hidden).collect()
}

/// A part of a word, without blanks: `%20` stands for one.
fn encoded(text: &str) -> String {
    let mut word = String::new();
    for c in text.chars() {
        match c {
            '%' => word.push_str("%25"),
            c if c.is_whitespace() => {
                c.encode_utf8(&mut [0; 4]).bytes().for_each(|b| word.push_str(&format!("%{b:02x}")))
            }
            c => word.push(c),
        }
    }
    word
}

/// The text that a part of a word encodes. A `%` without a code stays.
pub(crate) fn decoded(word: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        match after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => bytes.push(byte),
            None => bytes.push(b'%'),
        }
        let is_code = after.get(..2).is_some_and(|digits| u8::from_str_radix(digits, 16).is_ok());
        rest = if is_code { after.get(2..).unwrap_or_default() } else { after };
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The words of the line stand between blanks.
fn holder(holder: &Holder) -> String {
    let DeviceHolder { devices, pid, user, command, .. } = holder.report(Kept::Policy);
    let (memory, seconds) = host::process(pid).map_or((0, 0), |used| (used.memory, used.seconds));
    let [devices, user, command] = [devices, user, command].map(|text| encoded(&text.to_string()));
    format!("holder={devices}:{pid}:{user}:{memory}:{seconds}:{command}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_of_a_holder_is_read_back_unchanged() {
        for text in ["python3 my_train.py --x=1:2", "100% of\tit%20", "a\u{3000}b", ""] {
            let word = encoded(text);
            assert!(!word.contains(char::is_whitespace), "{word}");
            assert_eq!(decoded(&word), text);
        }
        assert_eq!(decoded("5% a%zz%2"), "5% a%zz%2");
    }
}
