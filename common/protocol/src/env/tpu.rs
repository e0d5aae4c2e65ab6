//! Variables of TPU hosts, for libtpu, JAX and torch_xla.
//!
//! Sources: jax (`_src/clusters/cloud_tpu_cluster.py`, `_src/hardware_utils.py`), torch_xla (`_internal/tpu.py`), ray
//! (`_private/accelerators/tpu.py`). A provider leaves values of slices that are gone after a preemption, so ours replace them.

use super::block::{Host, RankVariables, Sink};
use super::login_variables::name_of;
use super::{Contract, Role, Var, lookup};
use alloc::vec::Vec;
use rlaunch_base::os_strings::OsStrings;

const fn tpu(name: &'static str, doc: &'static str) -> Var {
    Var::new(name, Role::Tpu, doc)
}

const fn shape(name: &'static str, doc: &'static str) -> Var {
    Var::new(name, Role::LoginHost, doc)
}

pub(super) const CONTRACT: Contract = Contract {
    title: "TPU",
    about: "On hosts with TPU chips, rlaunch replaces these, and only `-x` overrides them. If you set TPU_VISIBLE_CHIPS, \
            it stays with its bounds, and rlaunch looks only at these chips. On other hosts they are variables of the host. With one rank per host, libtpu finds the chips by itself, and the variables for processes \
            and chips are not set. With one rank per chip, or two ranks on a host of four chips, they are set. \
            Variables with `stays` describe the host where you start rlaunch, and do not travel without `-x`. See \
            [TPU](../guides/tpu.md).",
    vars: &[
        tpu("CLOUD_TPU_TASK_ID", "With several ranks on a host: as TPU_WORKER_ID."),
        tpu("EXECUTOR_CALL_INDEX", "As TPU_HOST_ID."),
        tpu("EXECUTOR_CALL_SLICE", "The number of the slice in the job."),
        tpu("MEGASCALE_COORDINATOR_ADDRESS", "With several slices: the first host of the first slice, and port 8081."),
        tpu("MEGASCALE_NUM_SLICES", "With several slices: their number."),
        tpu("MEGASCALE_PORT", "With several slices: 8081."),
        tpu("MEGASCALE_SLICE_ID", "With several slices: the number of the slice in the job."),
        tpu("TPU_ACCELERATOR_TYPE", "Type of the accelerator, as `v4-16`, if known."),
        shape("TPU_CHIPS_PER_HOST_BOUNDS", "The shape of the chips of the host, as GKE sets it."),
        tpu("TPU_CHIPS_PER_PROCESS_BOUNDS", "With several ranks on a host: the shape of the chips of a rank."),
        shape("TPU_HOST_BOUNDS", "The shape of the hosts of its slice."),
        tpu("TPU_HOST_ID", "The number of the host in its slice."),
        shape("TPU_MESH_CONTROLLER_ADDRESS", "The controller of its slice."),
        shape("TPU_MESH_CONTROLLER_PORT", "As TPU_MESH_CONTROLLER_ADDRESS."),
        tpu("TPU_NAME", "The name of the slice."),
        tpu("TPU_NUM_DEVICES", "Number of chips of the host, if known."),
        tpu("TPU_PROCESS_ADDRESSES", "With several ranks on a host: addresses of the ranks of the slice."),
        tpu("TPU_PROCESS_BOUNDS", "With several ranks on a host: the shape of the ranks of the slice."),
        tpu("TPU_PROCESS_PORT", "With several ranks on a host: 8476 + the local rank."),
        tpu("TPU_SKIP_MDS_QUERY", "`1` if the hostfile describes the slice, because there may be no metadata server."),
        tpu("TPU_SLICE_NAME", "As TPU_NAME."),
        shape("TPU_TOPOLOGY", "The shape of the chips of its slice."),
        shape("TPU_TOPOLOGY_ALT", "As TPU_TOPOLOGY."),
        shape("TPU_TOPOLOGY_WRAP", "As TPU_TOPOLOGY."),
        tpu("TPU_VISIBLE_CHIPS", "With several ranks on a host: the chips of the rank."),
        tpu("TPU_VISIBLE_DEVICES", "As TPU_VISIBLE_CHIPS."),
        tpu("TPU_WORKER_HOSTNAMES", "Addresses of the hosts of the slice; `localhost` if the job has one host."),
        tpu("TPU_WORKER_ID", "The number of the rank in its slice."),
    ],
    families: &[],
};

/// The chips of a program, as a user names them for a part of a host; the first two are the list itself.
pub(super) const PART: [&str; 4] =
    ["TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES", "TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_PROCESS_BOUNDS"];

/// The chips that the user has named for a program, by their numbers on a host. Empty: none, or the list is malformed.
#[must_use]
pub fn named_chips(env: &OsStrings, pinned: &OsStrings) -> Vec<u32> {
    let list = |name: &&str| {
        let values = env.iter().filter_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        values.last().filter(|list| !list.is_empty() && pinned.contains(name.as_bytes()))
    };
    let list = PART.iter().take(2).find_map(list);
    let list = list.and_then(|list| core::str::from_utf8(list).ok()).unwrap_or_default();
    list.split(',').map(|chip| chip.trim().parse()).collect::<Result<_, _>>().unwrap_or_default()
}

/// An environment without the variables of this contract, but with those that the user pinned.
#[must_use]
pub fn without_tpu(env: &OsStrings, pinned: &OsStrings) -> OsStrings {
    let is_ours = |name: &[u8]| lookup(name).is_some_and(|var| var.role == Role::Tpu) && !pinned.contains(name);
    env.iter().filter(|entry| !name_of(entry).is_some_and(is_ours)).collect()
}

pub(super) fn common(host: &Host<'_>, out: &mut Sink<'_>) {
    let Some(tpu) = host.tpu else { return };
    for name in ["EXECUTOR_CALL_INDEX", "TPU_HOST_ID"] {
        out.number(name, tpu.worker);
    }
    out.number("EXECUTOR_CALL_SLICE", tpu.slice_number);
    for name in ["TPU_NAME", "TPU_SLICE_NAME"] {
        out.text(name, &tpu.slice);
    }
    if tpu.chips > 0 {
        out.number("TPU_NUM_DEVICES", tpu.chips);
    }
    if !tpu.accelerator_type.is_empty() {
        out.text("TPU_ACCELERATOR_TYPE", &tpu.accelerator_type);
    }
    if tpu.skips_metadata {
        out.text("TPU_SKIP_MDS_QUERY", b"1");
    }
    out.text("TPU_WORKER_HOSTNAMES", &tpu.addresses);
    if let (Some(part), Some(addresses)) = (tpu.part, tpu.process_addresses()) {
        out.text("TPU_CHIPS_PER_PROCESS_BOUNDS", part.to_text().as_bytes());
        out.text("TPU_PROCESS_ADDRESSES", addresses.as_bytes());
        if let Some(processes) = tpu.processes {
            out.text("TPU_PROCESS_BOUNDS", processes.to_text().as_bytes());
        }
    }
    if !tpu.coordinator.is_empty() {
        out.text("MEGASCALE_COORDINATOR_ADDRESS", &tpu.coordinator);
        out.text("MEGASCALE_PORT", b"8081");
        out.number("MEGASCALE_NUM_SLICES", tpu.slices);
        out.number("MEGASCALE_SLICE_ID", tpu.slice_number);
    }
}

pub(super) fn of_rank(values: &RankVariables<'_>, out: &mut Sink<'_>) {
    let Some(chips) = values.tpu else { return };
    out.number("TPU_WORKER_ID", chips.worker);
    if let Some((port, visible)) = &chips.own {
        out.number("CLOUD_TPU_TASK_ID", chips.worker);
        out.number("TPU_PROCESS_PORT", *port);
        for name in ["TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"] {
            out.text(name, visible.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::base;
    use super::*;

    #[test]
    fn chips_that_the_user_has_named_stay_with_their_shape() {
        let of = |caller: &[&str]| {
            let base = base(caller.iter().map(|entry| entry.as_bytes()), &[]);
            let kept = without_tpu(&base.env, &base.pinned).iter().count();
            (named_chips(&base.env, &base.pinned), kept)
        };
        let shape = "TPU_PROCESS_BOUNDS=1,1,1";
        assert_eq!(of(&["TPU_VISIBLE_CHIPS=2,3", shape, "TPU_NAME=a"]), (alloc::vec![2, 3], 2));
        assert_eq!(of(&["TPU_VISIBLE_DEVICES=0", shape]), (alloc::vec![0], 2));
        assert_eq!(of(&["TPU_VISIBLE_CHIPS=two", shape]), (Vec::new(), 2), "it is the user's all the same");
        assert_eq!(of(&["TPU_VISIBLE_CHIPS=", shape]), (Vec::new(), 0), "what a provider has left");
    }
}
