//! The addresses of this host, and which interface leads to the rest of the world. No name service is asked.

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use std::net::IpAddr;

/// The addresses of all interfaces that are up, with the interfaces' names.
#[must_use]
pub fn addresses() -> Vec<(String, IpAddr)> {
    interfaces().into_iter().map(|(name, addr, _)| (name, addr)).collect()
}

/// The same, with the lengths of their networks' prefixes.
#[must_use]
pub fn interfaces() -> Vec<(String, IpAddr, u8)> {
    let Ok(all) = getifaddrs() else { return Vec::new() };
    all.filter(|one| one.flags.contains(InterfaceFlags::IFF_UP))
        .filter_map(|one| {
            let addr = one.address?;
            let v4 = addr.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            let addr = v4.or_else(|| addr.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))?;
            let mask = one.netmask?;
            let v4 = mask.as_sockaddr_in().map(|v4| v4.ip().to_bits().leading_ones());
            let prefix = v4.or_else(|| mask.as_sockaddr_in6().map(|v6| v6.ip().to_bits().leading_ones()))?;
            Some((one.interface_name, addr, u8::try_from(prefix).ok()?))
        })
        .collect()
}

/// The interface that the default route goes by; that of the smallest metric, where there are several.
#[must_use]
pub fn default_interface() -> Option<String> {
    default_of(&std::fs::read_to_string("/proc/net/route").ok()?)
}

/// Columns of /proc/net/route: interface, destination, gateway, flags, references, uses, metric, mask.
fn default_of(table: &str) -> Option<String> {
    let route = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_default = words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000");
        let metric = words.get(6)?.parse::<u32>().ok()?;
        is_default.then(|| words.first().map(|name| (metric, (*name).to_owned()))).flatten()
    };
    table.lines().skip(1).filter_map(route).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_one_of_them() {
        let all = addresses();
        assert!(all.iter().any(|(name, addr)| name == "lo" && addr.is_loopback()), "{all:?}");
    }

    #[test]
    fn the_default_route_is_the_cheapest() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                     wlan0\t00000000\t0102A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
                     eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                     tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n\
                     eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n";
        assert_eq!(default_of(table).as_deref(), Some("eth0"));
        assert_eq!(default_of("Iface\n"), None);
    }
}
