//! The PCI devices of a vendor, and the device files that lead to them.

use std::fs;
use std::path::{Path, PathBuf};

/// A PCI device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PciDevice {
    /// Its address, as the name of its directory in sysfs: `0000:00:04.0`.
    pub address: String,
    /// Its id among those of its vendor.
    pub device: u16,
    /// The device files that lead to it, as sysfs has them: `/dev/vfio/N` of its IOMMU group, and `/dev/accelN`.
    pub nodes: Vec<PathBuf>,
}

/// The PCI devices of this vendor, by address. None where sysfs cannot be read.
#[must_use]
pub fn devices_of(vendor: u16) -> Vec<PciDevice> {
    devices_below(Path::new("/sys"), vendor)
}

fn devices_below(sys: &Path, vendor: u16) -> Vec<PciDevice> {
    let Ok(all) = fs::read_dir(sys.join("bus/pci/devices")) else { return Vec::new() };
    let mut found: Vec<PciDevice> = all.flatten().filter_map(|entry| device(&entry.path(), vendor)).collect();
    found.sort_by(|a, b| a.address.cmp(&b.address));
    if !found.is_empty() {
        add_accelerator_nodes(sys, &mut found);
    }
    found
}

fn device(dir: &Path, vendor: u16) -> Option<PciDevice> {
    if hexadecimal(&dir.join("vendor"))? != vendor {
        return None;
    }
    let address = dir.file_name()?.to_str()?.to_owned();
    let device = hexadecimal(&dir.join("device"))?;
    let group = fs::read_link(dir.join("iommu_group")).ok();
    let group: Option<u32> = group.and_then(|path| path.file_name()?.to_str()?.parse().ok());
    let nodes = group.map(|group| PathBuf::from(format!("/dev/vfio/{group}"))).into_iter().collect();
    Some(PciDevice { address, device, nodes })
}

/// `/sys/class/accel/accelN/device` leads to the PCI device of /dev/accelN.
fn add_accelerator_nodes(sys: &Path, found: &mut [PciDevice]) {
    let Ok(all) = fs::read_dir(sys.join("class/accel")) else { return };
    for entry in all.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| is_accelerator(name)) else { continue };
        let Ok(target) = fs::canonicalize(entry.path().join("device")) else { continue };
        let of = |found: &&mut PciDevice| target.file_name().is_some_and(|last| *last == *found.address);
        if let Some(found) = found.iter_mut().find(of) {
            found.nodes.push(PathBuf::from(format!("/dev/{name}")));
        }
    }
}

fn is_accelerator(name: &str) -> bool {
    name.strip_prefix("accel").is_some_and(|number| number.parse::<u32>().is_ok())
}

/// A number as sysfs writes it: `0x1ae0`.
fn hexadecimal(path: &Path) -> Option<u16> {
    u16::from_str_radix(fs::read_to_string(path).ok()?.trim().strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn pci(sys: &Path, address: &str, (vendor, device): (&str, &str), group: Option<u32>) {
        let dir = sys.join("bus/pci/devices").join(address);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("vendor"), format!("{vendor}\n")).unwrap();
        fs::write(dir.join("device"), format!("{device}\n")).unwrap();
        if let Some(group) = group {
            symlink(format!("../../../kernel/iommu_groups/{group}"), dir.join("iommu_group")).unwrap();
        }
    }

    fn accelerator(sys: &Path, name: &str, address: &str) {
        let dir = sys.join("class/accel").join(name);
        fs::create_dir_all(&dir).unwrap();
        symlink(format!("../../../bus/pci/devices/{address}"), dir.join("device")).unwrap();
    }

    #[test]
    fn device_files_are_those_that_sysfs_leads_to_the_vendor() {
        let sys = std::env::temp_dir().join(format!("rlaunch-pci-{}", std::process::id()));
        pci(&sys, "0000:00:05.0", ("0x1ae0", "0x0063"), Some(1));
        pci(&sys, "0000:00:04.0", ("0x1ae0", "0x005e"), None);
        pci(&sys, "0000:00:06.0", ("0x15b3", "0xc2d5"), Some(96));
        pci(&sys, "0000:00:07.0", ("0x1022", "0x1502"), None);
        accelerator(&sys, "accel0", "0000:00:04.0");
        accelerator(&sys, "accel1", "0000:00:07.0");
        accelerator(&sys, "accelerated", "0000:00:04.0");
        let found = devices_below(&sys, 0x1ae0);
        fs::remove_dir_all(&sys).unwrap();
        let device = |address: &str, device, node: &str| PciDevice {
            address: address.to_owned(),
            device,
            nodes: vec![PathBuf::from(node)],
        };
        let expected = [device("0000:00:04.0", 0x5e, "/dev/accel0"), device("0000:00:05.0", 0x63, "/dev/vfio/1")];
        assert_eq!(found, expected);
        assert_eq!(devices_below(&sys, 0x1ae0), [], "there is no sysfs");
    }
}
