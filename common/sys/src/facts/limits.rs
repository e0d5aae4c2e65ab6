//! The limits of this process, which ranks inherit; and limits that they get instead.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

/// The limits that can be carried from one host to another.
const NAMED: [(&str, Resource); 9] = [
    ("as", Resource::RLIMIT_AS),
    ("core", Resource::RLIMIT_CORE),
    ("cpu", Resource::RLIMIT_CPU),
    ("data", Resource::RLIMIT_DATA),
    ("fsize", Resource::RLIMIT_FSIZE),
    ("nofile", Resource::RLIMIT_NOFILE),
    ("nproc", Resource::RLIMIT_NPROC),
    ("rss", Resource::RLIMIT_RSS),
    ("stack", Resource::RLIMIT_STACK),
];

/// The soft limit of this name that is in force, if there is one of this name; `Some(None)`: no limit.
#[must_use]
pub fn soft(name: &str) -> Option<Option<u64>> {
    let (_, resource) = NAMED.iter().find(|(own, _)| *own == name)?;
    let (soft, _) = getrlimit(*resource).ok()?;
    Some((soft != RLIM_INFINITY).then_some(soft))
}

/// Soft and hard limits that ranks get in place of ours, as in [`NAMED`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried([Option<(u64, u64)>; NAMED.len()]);

impl Carried {
    /// Ranks get this soft limit (`None`: none), but no more than this host allows; then what they get instead.
    pub fn carry(&mut self, name: &str, soft: Option<u64>) -> Option<u64> {
        let at = NAMED.iter().position(|(own, _)| *own == name)?;
        let (_, resource) = NAMED.get(at)?;
        let (_, hard) = getrlimit(*resource).ok()?;
        let wanted = soft.unwrap_or(RLIM_INFINITY);
        if let Some(place) = self.0.get_mut(at) {
            *place = Some((wanted.min(hard), hard));
        }
        (hard < wanted).then_some(hard)
    }

    /// In a rank, before its exec; makes only system calls. Returns whether all could be set.
    pub(crate) fn set(&self) -> bool {
        NAMED.iter().zip(&self.0).all(|((_, resource), limit)| match limit {
            Some((soft, hard)) => setrlimit(*resource, *soft, *hard).is_ok(),
            None => true,
        })
    }
}

/// A limit; `None`: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Its name in `ulimit` and --propagate-limits.
    pub name: &'static str,
    /// In force.
    pub soft: Option<u64>,
    /// How far it may be raised.
    pub hard: Option<u64>,
}

/// The limits that jobs have trouble with.
#[must_use]
pub fn limits() -> Vec<Limit> {
    [
        ("nofile", libc::RLIMIT_NOFILE),
        ("nproc", libc::RLIMIT_NPROC),
        ("memlock", libc::RLIMIT_MEMLOCK),
        ("stack", libc::RLIMIT_STACK),
        ("core", libc::RLIMIT_CORE),
    ]
    .into_iter()
    .filter_map(|(name, resource)| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is a valid place for one limit.
        let known = unsafe { libc::getrlimit(resource, &raw mut limit) } == 0;
        let value = |value| (value != libc::RLIM_INFINITY).then_some(value);
        known.then(|| Limit { name, soft: value(limit.rlim_cur), hard: value(limit.rlim_max) })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carried_limits_are_bounded_by_the_host() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let mut carried = Carried::default();
        assert_eq!(carried.carry("nofile", Some(64)), None);
        assert_eq!(carried.0[5], Some((64, hard)));
        assert_eq!(carried.carry("nofile", None), Some(hard), "descriptors always have a limit");
        assert_eq!(carried.0[5], Some((hard, hard)));
        assert_eq!(carried.carry("memlock", Some(1)), None, "never");
        assert_eq!(carried.0.iter().flatten().count(), 1);
        assert_eq!(soft("memlock"), None);
        assert!(soft("nofile").is_some_and(|soft| soft.is_some()));
    }

    #[test]
    fn limits_match_proc() {
        let kernel = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = kernel.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let ours = limits();
        assert_eq!(ours.len(), 5);
        assert_eq!(ours[0].name, "nofile");
        assert_eq!(ours[0].soft, words[3].parse().ok());
        assert_eq!(ours[0].hard, words[4].parse().ok());
    }
}
