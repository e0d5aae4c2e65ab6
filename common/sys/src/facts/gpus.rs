//! The GPUs of this host and the CPUs near each: its PCI device names them in `local_cpulist`.
//!
//! NVIDIA's programs number GPUs in the order of their PCI addresses, where all are of one model. AMD's number them in the order of the
//! driver's nodes.

use super::topology::list;
use std::fs;
use std::path::Path;

/// The devices of all PCI buses.
const PCI: &str = "/sys/bus/pci/devices";

/// A GPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Gpu {
    /// Its UUID, as the variables of CUDA and ROCr name it; empty: unknown.
    pub uuid: Vec<u8>,
    /// The CPUs near it; empty: unknown.
    pub near: Vec<u32>,
}

/// The GPUs of this host in the order of their numbers; `amd`: those of AMD's driver. Empty: the drivers do not show them.
#[must_use]
pub fn gpus(amd: bool) -> Vec<Gpu> {
    let pci = Path::new(PCI);
    match amd {
        true => of_amd(Path::new("/sys/class/kfd/kfd/topology/nodes"), pci),
        false => of_nvidia(Path::new("/proc/driver/nvidia/gpus"), Path::new("/dev"), pci),
    }
}

/// Only GPUs with a device file: a container may have a part of them.
fn of_nvidia(proc: &Path, dev: &Path, pci: &Path) -> Vec<Gpu> {
    let mut addresses = names(proc);
    addresses.sort_by_key(|name| (name.len(), name.clone()));
    let gpu = |address: &String| {
        let text = fs::read_to_string(proc.join(address).join("information")).ok()?;
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let minor: u32 = value("Device Minor:")?.parse().ok()?;
        let uuid = value("GPU UUID:").filter(|uuid| uuid.starts_with("GPU-")).unwrap_or_default();
        let near = near(&pci.join(address.to_ascii_lowercase()));
        dev.join(format!("nvidia{minor}")).exists().then(|| Gpu { uuid: uuid.into(), near })
    };
    addresses.iter().filter_map(gpu).collect()
}

/// Nodes without compute units are processors.
fn of_amd(nodes: &Path, pci: &Path) -> Vec<Gpu> {
    let mut numbers: Vec<u32> = names(nodes).iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let gpu = |number: &u32| {
        let text = fs::read_to_string(nodes.join(format!("{number}/properties"))).ok()?;
        let value = |name: &str| {
            let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok();
            text.lines().find_map(of)
        };
        value("simd_count").filter(|units| *units > 0)?;
        let unique = value("unique_id").filter(|id| *id > 0);
        let uuid = unique.map(|id| format!("GPU-{id:016x}").into_bytes()).unwrap_or_default();
        let address = value("location_id").map(|location| address(value("domain").unwrap_or(0), location));
        Some(Gpu { uuid, near: address.map(|address| near(&pci.join(address))).unwrap_or_default() })
    };
    numbers.iter().filter_map(gpu).collect()
}

/// A PCI address from the numbers of the driver: the function is that of the whole device, because the driver also counts parts of one.
fn address(domain: u64, location: u64) -> String {
    format!("{domain:04x}:{:02x}:{:02x}.0", location >> 8 & 0xff, location >> 3 & 0x1f)
}

fn near(device: &Path) -> Vec<u32> {
    list(&device.join("local_cpulist")).unwrap_or_default()
}

fn names(dir: &Path) -> Vec<String> {
    let Ok(all) = fs::read_dir(dir) else { return Vec::new() };
    all.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::topology::tests::tree;
    use super::*;

    fn gpu(uuid: &str, near: impl IntoIterator<Item = u32>) -> Gpu {
        Gpu { uuid: uuid.into(), near: near.into_iter().collect() }
    }

    #[test]
    fn nvidias_gpus_are_in_the_order_of_their_addresses() {
        let information = |uuid: &str, minor: u32| {
            format!(
                "Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nBus Location: \t 0000:07:00.0\nDevice Minor: \t {minor}\n"
            )
        };
        let files = [
            ("proc/0000:0F:00.0/information", information("GPU-b", 0)),
            ("proc/0000:07:00.0/information", information("GPU-a", 3)),
            ("proc/0000:47:00.0/information", information("GPU-????????", 2)),
            ("proc/10000:01:00.0/information", information("GPU-d", 1)),
            ("proc/0000:90:00.0/information", information("GPU-hidden", 4)),
            ("proc/0000:91:00.0/information", String::new()),
            ("dev/nvidia0", String::new()),
            ("dev/nvidia1", String::new()),
            ("dev/nvidia2", String::new()),
            ("dev/nvidia3", String::new()),
            ("pci/0000:07:00.0/local_cpulist", "0-3".into()),
            ("pci/0000:0f:00.0/local_cpulist", "0-3".into()),
            ("pci/0000:47:00.0/local_cpulist", "4-5,7".into()),
        ];
        let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
        let root = tree("nvidia", &files);
        let read = of_nvidia(&root.join("proc"), &root.join("dev"), &root.join("pci"));
        fs::remove_dir_all(root).unwrap();
        let expected = [gpu("GPU-a", 0..4), gpu("GPU-b", 0..4), gpu("GPU-????????", [4, 5, 7]), gpu("GPU-d", [])];
        assert_eq!(read, expected);
    }

    #[test]
    fn amds_gpus_are_in_the_order_of_the_nodes() {
        let properties = |simds: u32, location: u32, id: u64| {
            format!("cpu_cores_count 0\nsimd_count {simds}\nlocation_id {location}\ndomain 0\nunique_id {id}")
        };
        let files = [
            ("nodes/0/properties", properties(0, 0, 0)),
            ("nodes/10/properties", properties(208, 0xc1 << 8, 0xab12)),
            ("nodes/2/properties", properties(208, 0x83 << 8 | 1, 0)),
            ("pci/0000:c1:00.0/local_cpulist", "48-49".into()),
            ("pci/0000:83:00.0/local_cpulist", "16,80".into()),
        ];
        let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
        let root = tree("amd", &files);
        let read = of_amd(&root.join("nodes"), &root.join("pci"));
        fs::remove_dir_all(root).unwrap();
        assert_eq!(read, [gpu("", [16, 80]), gpu("GPU-000000000000ab12", [48, 49])]);
    }

    #[test]
    fn without_drivers_no_gpu_is_known() {
        let none = Path::new("/no/such/directory");
        assert_eq!((of_nvidia(none, none, none), of_amd(none, none)), (Vec::new(), Vec::new()));
    }
}
