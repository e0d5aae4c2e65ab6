//! By which network interface ranks of several hosts talk. Gloo otherwise takes the address of the host's own name, which on Debian is
//! 127.0.1.1 and leads to no other host; `TensorPipe` does the same.

use super::block::{Host, Sink};
use super::{Contract, Role, Var};

const fn var(name: &'static str, doc: &'static str) -> Var {
    Var::new(name, Role::Default, doc)
}

pub(super) const CONTRACT: Contract = Contract {
    title: "Interfaces (gloo, TensorPipe, NCCL)",
    about: "Only for jobs with several hosts, and different on each host. The interface is the one by which the host reached \
            the address where ranks meet. If you set MASTER_ADDR, the interface is the one in the network of that address, \
            or else the one that ssh reached. `--interface NAME` selects NAME on each host that has it.",
    vars: &[
        var("GLOO_SOCKET_IFNAME", "The interface."),
        var(
            "NCCL_SOCKET_IFNAME",
            "`=` and the interface, only with `--interface`. Without it, NCCL chooses by itself.",
        ),
        var("TP_SOCKET_IFNAME", "As GLOO_SOCKET_IFNAME."),
    ],
    families: &[],
};

pub(super) fn common(host: &Host<'_>, out: &mut Sink<'_>) {
    if let Some(name) = host.interface {
        out.text("GLOO_SOCKET_IFNAME", name);
        out.text("TP_SOCKET_IFNAME", name);
        if host.interface_asked {
            // Without the sign it would be the beginning of names: eth1 is that of eth10, too.
            out.text("NCCL_SOCKET_IFNAME", &[b"=", name].concat());
        }
    }
}
