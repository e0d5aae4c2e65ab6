//! Processors and GPUs of other hosts, asked before ranks are placed by them: `--nproc-per-node gpu -H a,b`.
//!
//! Each is reached as doctor reaches it, all at a time, and says of itself what this machine would. Its agent is let go again; the
//! job reaches it anew, and finds the agent's binary there.

use super::show::Facts;
use super::{Finding, Rounds};
use crate::bootstrap::descriptors;
use crate::cli::{Has, Lookup, Reach, Silent};
use rlaunch_base::error::Hint as _;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::bootstrap::Target;
use rlaunch_plan::gpus::Devices;
use rlaunch_sys::origin::{self, Origin};
use rlaunch_sys::signals;
use std::ffi::OsString;

/// Returns the resources of each of these. GPUs are those that the caller's variables leave, which ranks there will have.
///
/// # Errors
/// Something of our own cannot be had.
pub(crate) fn count(
    hosts: &[Target],
    reach: &Reach,
    origin: &Origin,
    env: Lookup<'_>,
) -> Result<Vec<Result<Has, Silent>>, Silent> {
    let asked = Origin::uninterrupted(|| {
        descriptors::check(hosts.len(), origin)?;
        Rounds::new(reach, *origin)?.run(hosts, reach.fast, true)
    });
    let round = match asked {
        Ok(Ok(round)) => round,
        Ok(Err(sig)) => {
            signals::die_of(sig.get());
            // As process 1 there is no dying of it.
            origin::exit_now(sig.exit_code())
        }
        Err(error) => return Err(Silent { text: format!("{error:#}"), ..Silent::default() }),
    };
    let has = hosts.iter().zip(round.findings.values()).map(|(target, finding)| read(target, finding, env));
    Ok(has.collect())
}

fn read(target: &Target, finding: &Finding, env: Lookup<'_>) -> Result<Has, Silent> {
    let (text, words, hint) = match finding {
        Finding::Good { facts, .. } => match has(&facts.to_string(), env) {
            Some(has) => return Ok(has),
            None => (format!("{target}: the agent there does not say what it has"), OsBytes::default(), None),
        },
        Finding::Failed(failure) => {
            (failure.to_string(), failure.words.clone(), failure.hint().map(std::borrow::Cow::into_owned))
        }
        Finding::Ended { words, .. } => {
            (format!("{target}: the agent started, and ended badly"), words.clone(), Some(doctor(target)))
        }
        Finding::Open | Finding::Up { .. } => {
            (format!("{target}: it was not asked to the end"), OsBytes::default(), None)
        }
    };
    Err(Silent { host: target.to_string(), text, words, hint })
}

fn doctor(target: &Target) -> String {
    format!("rlaunch doctor -H {}", target.by_hand())
}

/// From what an agent says of its host.
fn has(facts: &str, env: Lookup<'_>) -> Option<Has> {
    let facts = Facts(facts);
    let number = |name| facts.value(name).and_then(|value| value.parse::<u32>().ok());
    let devices = Devices { amd: number("amd") == Some(1), count: number("gpus") };
    let seen = devices.seen(|name| env(name).map(OsString::into_encoded_bytes));
    let mut units = [0; 5];
    let counts = facts.value("units").unwrap_or_default().split('/').filter_map(|count| count.parse().ok());
    units.iter_mut().zip(counts).for_each(|(own, count)| *own = count);
    Some(Has { cpus: number("cpus")?, units, gpus: seen.and_then(|seen| u32::try_from(seen.len()).ok()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_resources_are_narrowed_as_for_its_ranks() {
        let of = |facts, value: Option<&str>| {
            let env = |name: &str| value.filter(|_| name == "CUDA_VISIBLE_DEVICES").map(OsString::from);
            has(facts, &env).map(|Has { cpus, gpus, .. }| (cpus, gpus))
        };
        assert_eq!(of("cpus=8 gpus=4 tier=T1", None), Some((8, Some(4))));
        assert_eq!(of("cpus=8 gpus=4", Some("0,2,7")), Some((8, Some(2))));
        assert_eq!(of("cpus=8 gpus=4 amd=1", Some("3")), Some((8, Some(1))));
        assert_eq!(of("cpus=0 gpus=?", None), Some((0, None)), "the number of GPUs is unknown");
        assert_eq!(of("gpus=4", None), None);
        assert_eq!(of("", None), None, "an agent of another build");
    }
}
