//! Layouts and plans of worker groups, for C.
#![forbid(unsafe_code)]

use super::ffi_error::{Failure, INDEX, LENGTH, guarded};
use super::ffi_store::rl_buffer;
use super::given::Given;
use super::types::rl_bytes;
use rlaunch_plan::dispatch::workers::{Request, RequestError, WorkersPerNode};
use rlaunch_plan::dispatch::{self, DispatchError, Plan, Sharded, Share};
use rlaunch_plan::sharding::{ErrorClass, NamedSharding, Selected, ShardingError};
use std::ffi::{c_char, c_int};
use std::fmt::Write as _;
use std::sync::Arc;

type Handle<'a> = Given<'a, (*mut rl_sharding,)>;
type Texts<'a> = Given<'a, (*const rl_bytes, usize)>;
type Axes<'a> = Given<'a, (*const rl_axis, usize)>;
type Buffer<'a> = Given<'a, (*mut rl_buffer,)>;
type Words<'a> = Given<'a, (*const u32, usize)>;

/// A layout, as C holds it.
#[expect(non_camel_case_types, reason = "it is named as in the header")]
pub struct rl_sharding(NamedSharding);

/// A coordinate on a named axis.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rl_axis {
    pub(super) name: *const c_char,
    pub(super) name_len: usize,
    pub(super) index: i64,
}

fn failure(class: ErrorClass, text: String) -> Failure {
    match class {
        ErrorClass::Value => Failure::argument(text),
        ErrorClass::Index => Failure::new(INDEX, text),
        ErrorClass::Assertion => Failure::new(LENGTH, text),
    }
}

impl From<ShardingError> for Failure {
    fn from(error: ShardingError) -> Self {
        failure(error.class(), error.to_string())
    }
}

impl From<DispatchError> for Failure {
    fn from(error: DispatchError) -> Self {
        failure(error.class(), error.to_string())
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        failure(error.class(), error.to_string())
    }
}

fn text(bytes: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(bytes).map_err(|_| Failure::argument("a name is no UTF-8"))
}

fn texts<'a>(given: &Texts<'a>) -> Result<Vec<&'a str>, Failure> {
    given.many()?.into_iter().map(text).collect()
}

fn axes<'a>(given: &Axes<'a>) -> Result<Vec<(&'a str, i64)>, Failure> {
    given.axes()?.into_iter().map(|(name, index)| Ok((text(name)?, index))).collect()
}

/// The layout; `None`: NULL was given.
fn optional(sharding: &Handle<'_>) -> Result<Option<Arc<rl_sharding>>, Failure> {
    if sharding.is_null() { Ok(None) } else { sharding.share().map(Some) }
}

fn words(values: impl IntoIterator<Item = usize>) -> Vec<u8> {
    values.into_iter().flat_map(|value| u32::try_from(value).unwrap_or(u32::MAX).to_ne_bytes()).collect()
}

fn longs(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

pub(super) fn rl_sharding_open(
    sizes: Given<'_, (*const u64, usize)>,
    ranks: Given<'_, (*const i64, usize)>,
    names: Texts<'_>,
    sharding: Given<'_, (*mut *mut rl_sharding,)>,
) -> c_int {
    guarded(|| {
        let sizes = sizes.list()?.iter().map(|size| usize::try_from(*size).unwrap_or(usize::MAX)).collect();
        let names = texts(&names)?.into_iter().map(String::from).collect();
        let made = NamedSharding::new(sizes, ranks.list()?.to_vec(), names)?;
        sharding.give_share(Arc::new(rl_sharding(made)))
    })
}

pub(super) fn rl_sharding_close(sharding: Handle<'_>) -> c_int {
    guarded(|| {
        drop(sharding.take().ok_or_else(|| Failure::argument("a sharding is needed, and NULL was given"))?);
        Ok(())
    })
}

pub(super) fn rl_sharding_coords(sharding: Handle<'_>, worker: i64, coords: Buffer<'_>) -> c_int {
    guarded(|| coords.give_bytes(Some(words(sharding.share()?.0.coords(worker)?))))
}

pub(super) fn rl_sharding_by_coord(sharding: Handle<'_>, at: Axes<'_>, ranks: Buffer<'_>) -> c_int {
    guarded(|| ranks.give_bytes(Some(longs(&sharding.share()?.0.ranks_by_coord(&axes(&at)?)?))))
}

pub(super) fn rl_sharding_select(sharding: Handle<'_>, at: Axes<'_>, ranks: Buffer<'_>) -> c_int {
    guarded(|| {
        let selected = match sharding.share()?.0.select(&axes(&at)?)? {
            Selected::Rank(rank) => longs(&[rank]),
            Selected::Part(part) => longs(part.ranks()),
        };
        ranks.give_bytes(Some(selected))
    })
}

pub(super) fn rl_sharding_is_axis_zero(
    sharding: Handle<'_>,
    worker: i64,
    axes: Texts<'_>,
    is_zero: Given<'_, (*mut c_int,)>,
) -> c_int {
    guarded(|| is_zero.give(c_int::from(sharding.share()?.0.is_axis_zero(worker, &texts(&axes)?)?)))
}

/// A plan in words of 32 bits. First come the numbers of calls, of results, and of indices in a call. Each call is its worker, whether it
/// is a dummy, and its indices. The workers whose results are returned follow.
fn give_plan(to: &Buffer<'_>, plan: &Plan) -> Result<(), Failure> {
    let slice = |share: &Share| match share {
        Share::Slice(at) => at.len(),
        Share::Dummy => 0,
    };
    let width = plan.calls.iter().map(|call| slice(&call.share)).max().unwrap_or_default();
    let mut all = vec![plan.calls.len(), plan.return_from.len(), width];
    all.reserve(plan.calls.len() * (width + 2) + plan.return_from.len());
    for call in &plan.calls {
        all.push(call.worker);
        match &call.share {
            Share::Slice(at) => {
                all.push(0);
                all.extend(at);
                all.resize(all.len() + width - at.len(), 0);
            }
            Share::Dummy => {
                all.push(1);
                all.resize(all.len() + width, 0);
            }
        }
    }
    all.extend(&plan.return_from);
    to.give_bytes(Some(words(all)))
}

pub(super) fn rl_plan_sharded(
    sharding: Handle<'_>,
    workers: usize,
    split: Texts<'_>,
    same: Texts<'_>,
    once: Texts<'_>,
    dummy_calls: c_int,
    plan: Buffer<'_>,
) -> c_int {
    guarded(|| {
        let (split, same, once) = (texts(&split)?, texts(&same)?, texts(&once)?);
        let options = Sharded {
            in_sharded_axes: &split,
            replicate_on_axes: &same,
            output_is_replicated: &once,
            dummy_calls: dummy_calls != 0,
            data: None,
        };
        let sharding = optional(&sharding)?;
        give_plan(&plan, &options.plan(sharding.as_deref().map(|sharding| &sharding.0), workers)?)
    })
}

pub(super) fn rl_plan_single(sharding: Handle<'_>, workers: usize, only: Texts<'_>, plan: Buffer<'_>) -> c_int {
    guarded(|| {
        let sharding = optional(&sharding)?;
        let made = dispatch::single_data(sharding.as_deref().map(|sharding| &sharding.0), workers, &texts(&only)?)?;
        give_plan(&plan, &made)
    })
}

pub(super) fn rl_plan_multiple(
    sharding: Handle<'_>,
    workers: usize,
    only: Texts<'_>,
    has_only: c_int,
    values: usize,
    plan: Buffer<'_>,
) -> c_int {
    guarded(|| {
        let (sharding, only) = (optional(&sharding)?, texts(&only)?);
        let only = (has_only != 0).then_some(only.as_slice());
        let made = dispatch::multiple_data(sharding.as_deref().map(|sharding| &sharding.0), workers, only, values)?;
        give_plan(&plan, &made)
    })
}

/// Host and slots of each tied group, from words: the host, the number of slots, and these.
fn tied(mut words: &[u32]) -> Result<Vec<(usize, Vec<usize>)>, Failure> {
    let mut all = Vec::new();
    while let [host, count, rest @ ..] = words {
        let (slots, rest) = rest
            .split_at_checked(*count as usize)
            .ok_or_else(|| Failure::argument("a tied group has fewer slots than it announces"))?;
        all.push((*host as usize, slots.iter().map(|slot| *slot as usize).collect()));
        words = rest;
    }
    Ok(all)
}

pub(super) fn rl_plan_workers(
    slots: Words<'_>,
    per_node: Words<'_>,
    per_node_kind: u32,
    tied_groups: Words<'_>,
    has_tied: c_int,
    prefix: Given<'_, (*const c_char, usize)>,
    plan: Buffer<'_>,
) -> c_int {
    guarded(|| {
        let sizes = |words: &[u32]| -> Vec<usize> { words.iter().map(|word| *word as usize).collect() };
        let per_node = sizes(per_node.list()?);
        let workers_per_node = match (per_node_kind, per_node.as_slice()) {
            (0, _) => WorkersPerNode::All,
            (1, [each]) => WorkersPerNode::Each(*each),
            (2, _) => WorkersPerNode::Listed(per_node),
            _ => return Err(RequestError::Kind.into()),
        };
        let tied = if has_tied == 0 { None } else { Some(tied(tied_groups.list()?)?) };
        let name_prefix = text(prefix.bytes()?)?.to_owned();
        let request = Request { slots: sizes(slots.list()?), workers_per_node, tied, name_prefix };
        let mut lines = String::new();
        for worker in request.workers()? {
            let (host, slot, shard, rank) = (worker.host, worker.slot, worker.shard, worker.rank_in_shard);
            let _fits = writeln!(lines, "{host} {slot} {shard} {rank} {}", worker.name);
        }
        plan.give_bytes(Some(lines.into_bytes()))
    })
}
