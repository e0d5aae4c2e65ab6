//! The launcher's first words to a host: the line for a shell, the preamble, and the answer of a handshake.

use super::Setting;
use super::source::Source;
use rlaunch_base::id::NodeId;
use rlaunch_net::seal::{self, Seal, SealError};
use rlaunch_plan::bootstrap::tcp_hello::{FIRST_MESSAGE, SECOND_MESSAGE};
use rlaunch_plan::bootstrap::{EdgeKeys, Hash, LinePlan, Preamble, Purpose, Secret};

/// The line for a shell on a host.
pub(super) fn line_plan(setting: &Setting, source: &Source, node: NodeId, purpose: Purpose) -> LinePlan {
    // srun of several hosts starts while the sums are computed.
    let sums = (purpose != Purpose::Step).then(|| source.sums());
    let (len, same, named) = (source.len, source.path.clone(), setting.agent_path.clone());
    LinePlan { job: setting.job, node, sums, len, arch: std::env::consts::ARCH, same, named, purpose }
}

/// The first bytes for a guardian.
pub(super) fn preamble_for(setting: &Setting, source: &Source, node: NodeId, secret: Secret, hash: Hash) -> Preamble {
    // Another build may have another length and hash; its version of the wire must agree.
    let is_ours = setting.agent_path.is_none();
    let (len, hash) = if is_ours { (source.len, hash) } else { (0, Hash([0; 32])) };
    Preamble { job: setting.job, node, secret, lease: setting.lease, len, hash }
}

/// The launcher's answer to the first message of a handshake on the streams of a carrier, and the seal of these streams.
pub(super) fn answer(
    setting: &Setting,
    source: &Source,
    node: NodeId,
    first: &[u8; FIRST_MESSAGE],
) -> Result<([u8; SECOND_MESSAGE], Seal), SealError> {
    let preamble = preamble_for(setting, source, node, setting.secret, source.sums().hash);
    let keys = EdgeKeys::of_streams(&preamble);
    seal::receive(&keys, first)?.1.answer(&keys, &preamble)
}
