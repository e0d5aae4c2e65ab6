//! The identity of this process, from the launcher's environment.

use anyhow::{Context, Result, bail, ensure};
use std::env::VarError;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

/// World: the rank of this process, and the number of ranks.
#[derive(Debug, PartialEq)]
pub(crate) struct World {
    pub(crate) rank: usize,
    pub(crate) local_rank: usize,
    pub(crate) size: usize,
    /// The address of rank 0; `None` where there is no other rank.
    pub(crate) master: Option<Master>,
}

/// MASTER_ADDR and MASTER_PORT.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Master {
    host: String,
    port: u16,
}

impl World {
    /// Reads the environment; without RANK and WORLD_SIZE this process is a world of one.
    pub(crate) fn from_environment(get: impl Fn(&str) -> Result<String, VarError>) -> Result<Self> {
        let number = |name: &str| -> Result<Option<usize>> {
            match get(name) {
                Ok(text) => {
                    Ok(Some(text.parse().with_context(|| format!("{name}={text:?} is not a number of ranks"))?))
                }
                Err(VarError::NotPresent) => Ok(None),
                Err(VarError::NotUnicode(text)) => bail!("{name}={text:?} is not a number of ranks"),
            }
        };
        let both = "a launcher sets RANK and WORLD_SIZE; unset both to train alone";
        let (rank, size) = match (number("RANK")?, number("WORLD_SIZE")?) {
            (Some(rank), Some(size)) => (rank, size),
            (None, None) => (0, 1),
            (Some(rank), None) => bail!("RANK={rank} without WORLD_SIZE: {both}"),
            (None, Some(size)) => bail!("WORLD_SIZE={size} without RANK: {both}"),
        };
        ensure!(rank < size, "RANK={rank} does not exist in a world of WORLD_SIZE={size}: ranks count from 0");
        let local_rank = number("LOCAL_RANK")?.unwrap_or(0);
        if size == 1 {
            return Ok(Self { rank, local_rank, size, master: None });
        }
        let how = format!("{size} ranks meet at MASTER_ADDR:MASTER_PORT");
        let host = get("MASTER_ADDR").with_context(|| format!("{how}, but MASTER_ADDR cannot be read"))?;
        let port = get("MASTER_PORT").with_context(|| format!("{how}, but MASTER_PORT cannot be read"))?;
        let port =
            port.parse().ok().filter(|p| *p != 0).with_context(|| format!("MASTER_PORT={port:?} is not a port"))?;
        Ok(Self { rank, local_rank, size, master: Some(Master { host, port }) })
    }

    /// How this process calls itself in its messages.
    pub(crate) fn name(&self) -> String {
        format!("rank {} of {} (local rank {})", self.rank, self.size, self.local_rank)
    }
}

impl Master {
    /// The addresses of the name, at least one.
    #[expect(clippy::disallowed_methods, reason = "unlike the launcher, a user's program resolves names as it likes")]
    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>> {
        let found: Vec<_> = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .with_context(|| format!("cannot find the address of MASTER_ADDR={:?}: try its number", self.host))?
            .collect();
        ensure!(!found.is_empty(), "MASTER_ADDR={:?} has no address: try its number", self.host);
        Ok(found)
    }
}

impl fmt::Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::World;
    use anyhow::Result;
    use std::env::VarError;

    fn world(vars: &str) -> Result<World> {
        World::from_environment(|name| {
            let value = vars.split(' ').filter_map(|var| var.split_once('=')).find(|(key, _)| *key == name);
            value.map(|(_, value)| value.to_owned()).ok_or(VarError::NotPresent)
        })
    }

    #[test]
    fn a_launcher_is_optional() {
        assert_eq!(world("").unwrap(), World { rank: 0, local_rank: 0, size: 1, master: None });
        let third = world("RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=::1 MASTER_PORT=99").unwrap();
        assert_eq!(third.name(), "rank 3 of 4 (local rank 1)");
        assert_eq!(third.master.unwrap().to_string(), "[::1]:99");
    }

    #[test]
    fn errors_name_the_variable_and_its_value() {
        let refused = |vars| format!("{:#}", world(vars).unwrap_err());
        assert!(refused("RANK=x WORLD_SIZE=2").starts_with("RANK=\"x\" is not a number"));
        assert!(refused("RANK=0").starts_with("RANK=0 without WORLD_SIZE"));
        assert!(refused("WORLD_SIZE=2").starts_with("WORLD_SIZE=2 without RANK"));
        assert!(refused("RANK=2 WORLD_SIZE=2").starts_with("RANK=2 does not exist"));
        assert!(refused("RANK=1 WORLD_SIZE=2").contains("MASTER_ADDR cannot be read"));
        assert!(
            refused("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=0").starts_with("MASTER_PORT=\"0\" is not a port")
        );
    }

    #[test]
    fn numbers_need_no_resolver() {
        let world = world("RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=99").unwrap();
        assert_eq!(world.master.unwrap().addresses().unwrap(), ["127.0.0.1:99".parse().unwrap()]);
    }
}
