//! Which GPUs a rank sees, with `--gpus-per-rank`. The user's value is the list from which each rank gets its part. So it counts, and yet
//! no rank gets it unchanged.

use super::block::{RankVariables, Sink};
use super::login_variables::name_of;
use super::{Contract, Role, Var};
use rlaunch_base::os_strings::OsStrings;

pub(super) const CONTRACT: Contract = Contract {
    title: "GPUs",
    about: "Without `--gpus-per-rank`, every rank sees the GPUs that your variables allow, and uses the GPU of its \
            LOCAL_RANK, as under torchrun. With `--gpus-per-rank N`, local rank 0 sees the first N of them, local rank 1 the \
            next N, and so on. Each rank numbers its GPUs from 0. Numbers, UUIDs and MIG devices of your list keep their \
            form. In a Slurm allocation, each host uses the list that Slurm gives the step there. `-x` overrides that list.",
    vars: &[
        Var::new(
            "CUDA_VISIBLE_DEVICES",
            Role::Narrowed,
            "GPUs of the rank, out of your list. Without a list: out of all GPUs of the host.",
        ),
        Var::new(
            "HIP_VISIBLE_DEVICES",
            Role::Narrowed,
            "The same on hosts with AMD GPUs. Your value overrides CUDA_VISIBLE_DEVICES there, and ranks get both \
             variables.",
        ),
        Var::new(
            "ROCR_VISIBLE_DEVICES",
            Role::Read,
            "On hosts with AMD GPUs: rlaunch shares out the GPUs of this list. It stays as it is, and numbers \
             count within it.",
        ),
    ],
    families: &[],
};

/// An environment without these: what is written for a rank comes behind, and a program finds the first.
#[must_use]
pub fn without(env: &OsStrings, names: &[&str]) -> OsStrings {
    let is_one = |entry: &&[u8]| name_of(entry).is_some_and(|own| names.iter().any(|name| name.as_bytes() == own));
    env.iter().filter(|entry| !is_one(entry)).collect()
}

pub(super) fn of_rank(values: &RankVariables<'_>, out: &mut Sink<'_>) {
    let Some((names, list)) = values.gpus else { return };
    names.iter().for_each(|name| out.narrowed(name, list));
}
