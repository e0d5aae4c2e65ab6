//! What this process may have, which is what ranks inherit.

/// A limit; `None`: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// What `ulimit` and --propagate-limits call it.
    pub name: &'static str,
    /// In force.
    pub soft: Option<u64>,
    /// How far it may be raised.
    pub hard: Option<u64>,
}

/// Those that jobs have trouble with.
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
    fn they_are_those_of_proc() {
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
