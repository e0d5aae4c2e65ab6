//! A host as a line of a hostfile: a pool sends its hosts to jobs so.

use super::Entry;
use alloc::format;
use alloc::string::String;

impl Entry {
    /// Its line. `is_sliced`: with its place in a slice. A list with a part of a slice is an error.
    #[must_use]
    pub fn to_line(&self, is_sliced: bool) -> String {
        let name = &self.host.name;
        let mut line = if name.contains(':') { format!("[{name}]") } else { name.clone() };
        if let Some(user) = &self.host.user {
            line += &format!(" user={user}");
        }
        if let Some(port) = self.host.port {
            line += &format!(" port={port}");
        }
        if self.slots.is_some() || self.named > 1 {
            line += &format!(" slots={}", self.slots());
        }
        if let Some(max) = self.max_slots {
            line += &format!(" max_slots={max}");
        }
        if let Some(chips) = self.chips.as_ref().filter(|chips| is_sliced && !chips.slice.is_empty()) {
            line += &format!(" slice={} id={}", chips.slice, chips.id);
            if chips.devices > 0 {
                line += &format!(" devices={}", chips.devices);
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Alone, files};
    use alloc::string::String;
    use alloc::vec::Vec;

    #[test]
    fn line_is_read_as_the_host_that_it_was_written_for() {
        let text = "n1\nn2 slots=4 max_slots=8\nbob@gw port=2222\n[fe80::1]:2\n\
            t0 slice=a id=0 devices=4\nt1 slice=a id=1 devices=4\n";
        let read = |text: &str| files([("hosts", text.as_bytes())], &mut Alone).unwrap();
        let all = read(text);
        let lines: Vec<String> = all.iter().map(|entry| entry.to_line(true) + "\n").collect();
        assert_eq!(read(&lines.concat()), all);
        assert_eq!(all.last().unwrap().to_line(false), "t1");
    }
}
