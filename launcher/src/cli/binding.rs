//! Values of the options about binding.

use super::errors::CliError;
use super::values;
use rlaunch_base::cpu_set;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::bind::{BindTo, CpuList};
use rlaunch_plan::topology::Level;

/// More cores than a host has are a typing error.
pub(super) const MOST_CORES: u32 = 65_536;

/// The words of `--bind-to`; after the first words those of other launchers.
const UNITS: [(&str, Option<Level>); 14] = [
    ("none", None),
    ("hwthread", Some(Level::Hwthread)),
    ("core", Some(Level::Core)),
    ("l3", Some(Level::L3)),
    ("numa", Some(Level::Numa)),
    ("package", Some(Level::Package)),
    ("no", None),
    ("threads", Some(Level::Hwthread)),
    ("cores", Some(Level::Core)),
    ("l3cache", Some(Level::L3)),
    ("ldom", Some(Level::Numa)),
    ("ldoms", Some(Level::Numa)),
    ("socket", Some(Level::Package)),
    ("sockets", Some(Level::Package)),
];

/// `--bind-to`.
pub(super) fn bind_to(option: &OsBytes, value: &OsBytes) -> Result<BindTo, CliError> {
    const TAKES: &str = "none, hwthread, core, l3, numa, package or rank-list:CPUS/CPUS";
    let text = value.to_string().to_ascii_lowercase();
    let text = [":if-supported", ":overload-allowed"].iter().find_map(|end| text.strip_suffix(end)).unwrap_or(&text);
    // srun's verbosity, and its list of a CPU for each task.
    let text = ["v,", "verbose,", "q,", "quiet,"].iter().find_map(|word| text.strip_prefix(word)).unwrap_or(text);
    let map =
        ["map_cpu:", "map_cpu="].iter().find_map(|word| text.strip_prefix(word)).map(|list| list.replace(',', "/"));
    if let Some(lists) = map.as_deref().or_else(|| text.strip_prefix("rank-list:")) {
        let list = |text: &str| cpu_set::numbers(text).map(CpuList::Cpus);
        return lists.split('/').map(list).collect::<Result<_, _>>().map(BindTo::Lists).map_err(|error| {
            CliError::Value {
                option: option.clone(),
                takes: format!("lists of CPUs ({error})").into(),
                got: value.clone(),
                hint: Some(values::spell(option, "rank-list:0-3/4-7").into()),
            }
        });
    }
    match UNITS.iter().find(|(word, _)| *word == text) {
        Some((_, Some(level))) => Ok(BindTo::Unit(*level)),
        Some((_, None)) => Ok(BindTo::None),
        None => Err(CliError::Value {
            option: option.clone(),
            takes: TAKES.into(),
            got: value.clone(),
            hint: Some(
                values::spell(option, if text.starts_with("mask_cpu") { "rank-list:0-3/4-7" } else { "core" }).into(),
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_all_launchers() {
        let of = |text: &str| bind_to(&"--bind-to".into(), &text.into()).ok();
        assert_eq!(of("NUMA:IF-SUPPORTED"), Some(BindTo::Unit(Level::Numa)));
        assert_eq!((of("no"), of("socket")), (Some(BindTo::None), Some(BindTo::Unit(Level::Package))));
        let lists = vec![CpuList::Cpus(vec![0, 1, 2, 8]), CpuList::Cpus(vec![4])];
        assert_eq!(of("rank-list:0-2,8/4"), Some(BindTo::Lists(lists)));
        let each = |cpus: &[u32]| Some(BindTo::Lists(cpus.iter().map(|cpu| CpuList::Cpus(vec![*cpu])).collect()));
        assert_eq!((of("v,map_cpu:0,2"), of("verbose,cores")), (each(&[0, 2]), Some(BindTo::Unit(Level::Core))));
        for wrong in ["", "cpu", "mask_cpu=0x1", "rank-list:", "rank-list:0//1", "rank-list:1-0", "rank-list:70000"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
