//! Names by which further frameworks know a rank: DeepSpeed, accelerate, Lightning, Horovod. Most of what they read is torchrun's.

use super::block::{Host, Sink};
use super::{Contract, Role, Var};

const fn set(name: &'static str, doc: &'static str) -> Var {
    Var::new(name, Role::Set, doc)
}

const fn gone(name: &'static str) -> Var {
    Var::new(name, Role::Removed, "Set by an outer horovodrun for its own ranks.")
}

pub(super) const CONTRACT: Contract = Contract {
    title: "DeepSpeed, accelerate, Lightning, Horovod",
    about: "DeepSpeed, accelerate and Lightning use torchrun's variables and these. Settings such as `ACCELERATE_*` pass \
            through. Horovod needs MPI or the server of horovodrun, which rlaunch does not provide.",
    vars: &[
        set("CROSS_RANK", "As GROUP_RANK, for DeepSpeed.").each_round(),
        set("CROSS_SIZE", "As GROUP_WORLD_SIZE, for DeepSpeed.").each_round(),
        gone("HOROVOD_CONTROLLER"),
        gone("HOROVOD_ELASTIC"),
        gone("HOROVOD_HOSTNAME"),
        gone("HOROVOD_RANK"),
        gone("HOROVOD_SIZE"),
        set("LOCAL_SIZE", "As LOCAL_WORLD_SIZE, for DeepSpeed.").each_round(),
        set("NODE_RANK", "As GROUP_RANK, for Lightning.").each_round(),
    ],
    families: &[gone("HOROVOD_CROSS_*"), gone("HOROVOD_GLOO_*"), gone("HOROVOD_LOCAL_*")],
};

pub(super) fn common(host: &Host<'_>, out: &mut Sink<'_>) {
    out.number("CROSS_RANK", host.node_index);
    out.number("CROSS_SIZE", host.nodes);
    out.number("LOCAL_SIZE", host.local_size);
    out.number("NODE_RANK", host.node_index);
}
