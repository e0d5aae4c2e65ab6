//! The inherited environment of the ranks: the caller's, byte for byte, without the identity of another launcher.

use super::login_variables::name_of;
use super::tpu::PART;
use super::{Role, Var, lookup};
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;
use rlaunch_base::error::Hint;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::os_strings::OsStrings;

/// An `-x` option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Export {
    /// `-x NAME`: the caller's value, also of a name that would be removed or set.
    Take(OsBytes),
    /// `-x NAME=value`.
    Set {
        /// Its name.
        name: OsBytes,
        /// Its value.
        value: OsBytes,
    },
    /// `-x 'NAME*'`: the same as `-x NAME` for every name that matches; `*` is any text, `?` any one byte.
    Glob(OsBytes),
}

/// A word after `-x` that names nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExportError {
    /// Nothing before `=`, or nothing at all.
    #[error("takes VAR, VAR=VALUE or a pattern like 'FOO*', got '{0}'")]
    NoName(OsBytes),
    /// A list, as srun's `--export` takes it.
    #[error("takes one variable at a time, got '{0}'")]
    List(OsBytes),
}

impl Hint for ExportError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::NoName(_) => Cow::Borrowed("-x VAR=VALUE"),
            Self::List(word) => {
                let each = word.split(|b| *b == b',').filter(|one| !one.is_empty() && *one != b"ALL");
                let flags: Vec<_> = each.map(|one| format!("-x {}", OsBytes::from(one))).collect();
                Cow::Owned(format!("{}   (the rest of the environment travels anyway)", flags.join(" ")))
            }
        })
    }
}

impl Export {
    /// Reads the word after `-x`.
    ///
    /// # Errors
    /// The word has no name, or is a list of names.
    pub fn parse(word: &[u8]) -> Result<Self, ExportError> {
        let (name, value) = match memchr::memchr(b'=', word) {
            Some(at) => (word.get(..at).unwrap_or_default(), word.get(at + 1..)),
            None => (word, None),
        };
        if name.is_empty() {
            return Err(ExportError::NoName(word.into()));
        }
        if name.contains(&b',') {
            return Err(ExportError::List(word.into()));
        }
        Ok(match value {
            Some(value) => Self::Set { name: name.into(), value: value.into() },
            None if name.iter().any(|b| matches!(b, b'*' | b'?')) => Self::Glob(name.into()),
            None => Self::Take(name.into()),
        })
    }
}

/// The environment that all ranks start from.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Base {
    /// Entries as `execve` takes them. No name that a contract writes is in it, unless it is in `pinned`.
    pub env: OsStrings,
    /// Names of contracts that the user decided: none overrides them, and no host.
    pub pinned: OsStrings,
    /// Names of `-x` that the caller does not have; worth a note.
    pub absent: Vec<OsBytes>,
    /// Names of the caller's variables for the rendezvous, which are passed on.
    pub given: Vec<OsBytes>,
    /// The same of a caller that is a rank of another job, whose ranks meet there: names that are not passed on.
    pub others: Vec<OsBytes>,
}

impl Base {
    /// A list of the caller's that is only narrowed is no decision: a host in a step may have another.
    fn pin(&mut self, name: &[u8], known: Option<&Var>) {
        if known.is_some_and(|var| var.role.is_written() && !matches!(var.role, Role::Narrowed | Role::Tpu)) {
            self.decide(name);
        }
    }

    /// A variable that the user names is set for other hosts, too.
    fn pin_named(&mut self, name: &[u8], known: Option<&Var>) {
        if known.is_some_and(|var| var.role.is_written() || var.role.is_hosts() || var.role == Role::LoginHost) {
            self.decide(name);
        }
    }

    /// Keeps the chips of a TPU host that the user has named, with the shape of that part of the host.
    fn keep_chips(&mut self) {
        let value = |entry: &[u8], name: &str| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::len);
        let is_set = |name: &&str| self.env.iter().any(|entry| value(entry, name).is_some_and(|length| length > 0));
        let set: Vec<&str> = PART.into_iter().filter(is_set).collect();
        if set.iter().any(|name| PART.iter().take(2).any(|list| list == name)) {
            set.into_iter().for_each(|name| self.decide(name.as_bytes()));
        }
    }

    fn decide(&mut self, name: &[u8]) {
        if !self.pinned.contains(name) {
            self.pinned.push(name);
        }
    }

    /// Passes on where ranks meet, if that is what the user has set. Nothing is no place.
    fn meet(&mut self, name: &[u8], var: &Var, entry: &[u8], is_rank: bool) {
        if entry.len() <= name.len().saturating_add(1) {
            return;
        }
        let names = if is_rank { &mut self.others } else { &mut self.given };
        if !names.iter().any(|known| known.as_slice() == name) {
            names.push(name.into());
        }
        if !is_rank {
            self.keep(name, Some(var), entry);
        }
    }

    /// Passes an entry on. Of a name that a contract knows only the first counts, as for `getenv`.
    fn keep(&mut self, name: &[u8], known: Option<&Var>, entry: &[u8]) {
        let is_of_tpu = known.is_some_and(|var| var.role == Role::Tpu);
        let is_again = is_of_tpu && self.env.iter().any(|entry| name_of(entry) == Some(name));
        if known.is_none() || !(is_again || self.pinned.contains(name)) {
            self.pin(name, known);
            self.env.push(entry);
        }
    }
}

/// The environment that ranks inherit from `caller`, whose entries are as the kernel gave them. An entry without `=`, or with nothing
/// before it, passes unchanged. Of several `-x` for one name the last counts; a pattern counts last.
#[must_use]
pub fn base<'a>(caller: impl Iterator<Item = &'a [u8]> + Clone, exports: &[Export]) -> Base {
    let mut base = Base::default();
    // torchrun, rlaunch and their like set it together with MASTER_ADDR and MASTER_PORT. Others (srun, mpirun) set none of them.
    let is_rank = caller.clone().any(|entry| entry.starts_with(b"RANK="));
    let mut found: Vec<bool> = exports.iter().map(|export| matches!(export, Export::Set { .. })).collect();
    for entry in caller {
        let name = match memchr::memchr(b'=', entry) {
            Some(at @ 1..) => entry.get(..at).unwrap_or_default(),
            Some(0) | None => {
                base.env.push(entry);
                continue;
            }
        };
        let known = lookup(name);
        match decide(name, exports, &mut found) {
            Some(Export::Set { .. }) => {}
            Some(Export::Take(_) | Export::Glob(_)) => {
                base.keep(name, known, entry);
                base.pin_named(name, known);
            }
            None if known.is_some_and(|var| var.role.hides_callers()) => {}
            None if let Some(var) = known.filter(|var| var.role == Role::Meeting) => {
                base.meet(name, var, entry, is_rank)
            }
            None => base.keep(name, known, entry),
        }
    }
    for (at, export) in exports.iter().enumerate() {
        match export {
            Export::Set { name, value } if last_word(name, exports) == Some(at) => {
                base.pin_named(name, lookup(name));
                base.env.push_pair(name, value);
            }
            Export::Set { .. } => {}
            Export::Take(name) | Export::Glob(name) if found.get(at) == Some(&false) => base.absent.push(name.clone()),
            Export::Take(_) | Export::Glob(_) => {}
        }
    }
    base.keep_chips();
    base
}

/// The `-x` that decides about a name which the caller has, marking all that found it.
fn decide<'a>(name: &[u8], exports: &'a [Export], found: &mut [bool]) -> Option<&'a Export> {
    let mut exact = None;
    let mut pattern = None;
    for (export, found) in exports.iter().zip(found) {
        match export {
            Export::Set { name: own, .. } if own.as_slice() == name => exact = Some(export),
            Export::Take(own) if own.as_slice() == name => {
                *found = true;
                exact = Some(export);
            }
            Export::Glob(own) if glob(own, name) => {
                *found = true;
                pattern = Some(export);
            }
            Export::Set { .. } | Export::Take(_) | Export::Glob(_) => {}
        }
    }
    exact.or(pattern)
}

/// The index of the last `-x` that spells this name. A `-x NAME` that found nothing still takes back an earlier value.
fn last_word(name: &[u8], exports: &[Export]) -> Option<usize> {
    exports.iter().rposition(|export| match export {
        Export::Set { name: own, .. } | Export::Take(own) => own.as_slice() == name,
        Export::Glob(_) => false,
    })
}

/// Whether `text` matches `pattern`: `*` is any run of bytes, `?` is any one byte. Takes time linear in both in practice, and
/// never more than their product.
#[must_use]
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, t));
                p += 1;
            }
            Some(wanted) if *wanted == b'?' || text.get(t) == Some(wanted) => {
                p += 1;
                t += 1;
            }
            Some(_) | None => {
                let Some((star, from)) = retry else { return false };
                retry = Some((star, from + 1));
                p = star + 1;
                t = from + 1;
            }
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::super::{Host, REGISTRY, RankVariables, SlurmStep, common, of_rank, without, without_tpu};
    use super::*;
    use crate::settings::Tier;
    use alloc::collections::BTreeSet;
    use alloc::string::{String, ToString};
    use alloc::vec;
    use proptest::prelude::*;
    use rlaunch_base::id::{AppIndex, JobId, LocalRank, Rank};

    fn exports(words: &[&str]) -> Vec<Export> {
        words.iter().map(|w| Export::parse(w.as_bytes()).unwrap()).collect()
    }

    fn inherit(caller: &[&[u8]], words: &[&str]) -> Base {
        base(caller.iter().copied(), &exports(words))
    }

    fn shown<T: AsRef<[u8]>>(entries: impl IntoIterator<Item = T>) -> Vec<String> {
        entries.into_iter().map(|entry| OsBytes::from(entry.as_ref()).to_string()).collect()
    }

    #[test]
    fn odd_entries_pass_as_they_are() {
        let caller: [&[u8]; 6] = [b"A=\xff\xfe=", b"no equals sign", b"=odd", b"", b"\xc3=1", b"A=2"];
        let base = inherit(&caller, &[]);
        assert_eq!(base.env, caller.iter().collect());
    }

    #[test]
    fn each_identity_of_somebody_else_is_removed() {
        for contract in REGISTRY {
            for var in contract.vars.iter().chain(contract.families) {
                let name = var.name.replace('*', "X");
                let entry = format!("{name}=1");
                let base = inherit(&[entry.as_bytes()], &[]);
                assert_eq!(base.env.is_empty(), var.role.hides_callers(), "{name}");
            }
        }
    }

    #[test]
    fn settings_of_the_user_pass() {
        for entry in [
            "OMPI_MCA_btl=self",
            "PMIX_MCA_gds=hash",
            "PMI_DEBUG=1",
            "SLURM_JOB_ID=5",
            "SLURM_JOB_NODELIST=n[1-2]",
            "SLURM_CPUS_ON_NODE=8",
            "RLAUNCH_GRACE=1s",
            "MPIR_CVAR_X=1",
            "CUDA_VISIBLE_DEVICES=0",
        ] {
            assert_eq!(shown(&inherit(&[entry.as_bytes()], &[]).env), [entry]);
        }
    }

    #[test]
    fn user_values_take_precedence() {
        let caller: [&[u8]; 4] = [b"RANK=7", b"MASTER_PORT=1", b"PMI_RANK=3", b"OMP_NUM_THREADS=6"];
        let base = inherit(&caller, &["MASTER_PORT=9", "PMI_*", "RANK", "FOO=a=b", "GONE", "NO*"]);
        assert_eq!(shown(&base.env), ["RANK=7", "PMI_RANK=3", "OMP_NUM_THREADS=6", "MASTER_PORT=9", "FOO=a=b"]);
        assert_eq!(shown(&base.pinned), ["RANK", "PMI_RANK", "OMP_NUM_THREADS", "MASTER_PORT"]);
        assert_eq!(shown(&base.absent), ["GONE", "NO*"]);
    }

    #[test]
    fn users_rendezvous_is_kept_unless_another_jobs() {
        let caller: [&[u8]; 3] = [b"MASTER_ADDR=h", b"MASTER_PORT=7", b"WORLD_SIZE=2"];
        let base = inherit(&caller, &[]);
        assert_eq!(shown(&base.env), ["MASTER_ADDR=h", "MASTER_PORT=7"]);
        assert_eq!(
            (shown(&base.pinned), shown(&base.given)),
            (shown(&base.given), shown(["MASTER_ADDR", "MASTER_PORT"]))
        );
        let rank: Vec<&[u8]> = caller.into_iter().chain([b"RANK=1".as_slice()]).collect();
        let base = inherit(&rank, &["MASTER_PORT"]);
        assert_eq!((shown(&base.env), shown(&base.pinned)), (shown(["MASTER_PORT=7"]), shown(["MASTER_PORT"])));
        assert_eq!((base.given.len(), shown(&base.others)), (0, shown(["MASTER_ADDR"])));
        let base = inherit(&[b"MASTER_PORT=", b"MASTER_PORT"], &[]);
        assert_eq!((shown(&base.env), base.pinned.is_empty(), base.given.len()), (shown(["MASTER_PORT"]), true, 0));
    }

    #[test]
    fn host_variables_are_pinned_only_if_named() {
        let caller: [&[u8]; 3] = [b"TMPDIR=/a", b"HOME=/h", b"SSH_AUTH_SOCK=/s"];
        let base = inherit(&caller, &[]);
        assert_eq!((shown(&base.env), base.pinned.is_empty()), (shown(caller), true), "here it is the caller's");
        let base = inherit(&caller, &["TMPDIR", "SSH_*", "HOSTNAME=x", "EDITOR=vi"]);
        assert_eq!(shown(&base.pinned), ["TMPDIR", "SSH_AUTH_SOCK", "HOSTNAME"]);
    }

    #[test]
    fn the_last_word_about_a_name_counts() {
        assert_eq!(shown(&inherit(&[b"A=0"], &["A=1", "A=2"]).env), ["A=2"]);
        assert_eq!(shown(&inherit(&[b"A=0"], &["A=1", "A"]).env), ["A=0"]);
        assert_eq!(shown(&inherit(&[b"A=0"], &["A", "A=1", "A*"]).env), ["A=1"]);
    }

    #[test]
    fn a_word_that_names_nothing_is_refused() {
        let error = |word: &str| Export::parse(word.as_bytes()).unwrap_err();
        assert_eq!(error("").to_string(), "takes VAR, VAR=VALUE or a pattern like 'FOO*', got ''");
        assert_eq!(error("=x").hint().unwrap(), "-x VAR=VALUE");
        let list = error("ALL,A,B=1");
        assert_eq!(list.to_string(), "takes one variable at a time, got 'ALL,A,B=1'");
        assert_eq!(list.hint().unwrap(), "-x A -x B=1   (the rest of the environment travels anyway)");
        assert_eq!(Export::parse(b"A=1,2").unwrap(), Export::Set { name: "A".into(), value: "1,2".into() });
    }

    #[test]
    fn patterns() {
        for (pattern, text, matches) in [
            ("FOO*", "FOO", true),
            ("FOO*", "FOOBAR", true),
            ("*BAR", "FOOBAR", true),
            ("F?O*R", "FOOBAR", true),
            ("*A*A*", "xAxx", false),
            ("?", "", false),
            ("**", "", true),
            ("FOO", "FOOBAR", false),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), matches, "{pattern} {text}");
        }
    }

    fn any_entry() -> impl Strategy<Value = Vec<u8>> {
        let names: Vec<&'static str> = REGISTRY.iter().flat_map(|c| c.vars).map(|v| v.name).collect();
        prop_oneof![
            proptest::collection::vec(1u8.., 0..12),
            (proptest::sample::select(names), proptest::collection::vec(1u8.., 0..4)).prop_map(|(name, value)| [
                name.as_bytes(),
                b"=",
                &value
            ]
            .concat()),
        ]
    }

    fn any_export() -> impl Strategy<Value = Export> {
        prop_oneof![
            any_entry(),
            any_entry().prop_map(|e| e.split(|b| *b == b'=').next().unwrap().to_vec()),
            Just(vec![b'*'])
        ]
        .prop_filter_map("names nothing", |word| Export::parse(&word).ok())
    }

    proptest! {
        #[test]
        fn no_name_of_a_contract_is_there_twice(
            caller in proptest::collection::vec(any_entry(), 0..40),
            exports in proptest::collection::vec(any_export(), 0..5),
        ) {
            let base = base(caller.iter().map(Vec::as_slice), &exports);
            let tpu = rlaunch_plan::tpu::TpuHost::example();
            let chips = tpu.rank(LocalRank::new(0));
            let host = Host {
                job: JobId([1; 16]), world_size: 2, local_size: 2, node_index: 0, nodes: 1, app: AppIndex::new(0),
                app_name: b"x", app_size: 2, apps: 1, group: b"g", world: rlaunch_base::id::WorldId::new(1),
                master_addr: b"::1", master_port: 1, agent_store: false, cpus: Some(4), tier: Tier::T3, skips_tpu_lock: true, socket: b"/s", interface: Some(b"e"), interface_asked: true, jax: true,
                mpi: Some(crate::env::MpiHost { port: 1, namespace: 0, name: b"h", is_crowded: true, is_spawned: true, network: Some((core::net::Ipv4Addr::LOCALHOST, 8)) }), local_devices: Some(1), restart: 0, max_restarts: 0,
                healthy: 1,
                round: 0,
                slurm: Some(SlurmStep { hosts: b"n", tasks: b"2", most_tasks: 2, task_ids: b"0,1" }),
                tpu: Some(&tpu),
            };
            let mut values = OsStrings::default();
            let names: &[&str] = &[rlaunch_plan::gpus::CUDA, rlaunch_plan::gpus::HIP];
            of_rank(&RankVariables { rank: Rank::new(0), healthy: Rank::new(0), initial: Rank::new(0), local_rank: LocalRank::new(0), app_rank: 0, tied: 2, error_file: b"x", gpus: Some((names, b"0")), slurm: true, threads: None, mpi: true, tpu: Some(&chips) }, &base.pinned, &mut values);
            let shared = common(&host, &base.pinned);
            let mut seen = BTreeSet::new();
            for entry in without_tpu(&without(&base.env, names), &base.pinned).iter().chain(shared.iter()).chain(values.iter()) {
                let Some(at @ 1..) = entry.iter().position(|b| *b == b'=') else { continue };
                if lookup(&entry[..at]).is_some_and(|var| var.role.is_written()) {
                    prop_assert!(seen.insert(entry[..at].to_vec()), "twice: {:?}", OsBytes::from(&entry[..at]));
                }
            }
            let written = REGISTRY.iter().flat_map(|c| c.vars).filter(|v| v.role.is_written()).count();
            prop_assert_eq!(seen.len(), written, "each is set by someone");
        }
    }
}
