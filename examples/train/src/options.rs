//! The command line: a handful of numbers, each with a default that trains well.

use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

pub(crate) const HELP: &str = "\
Trains a small network on handwritten digits, data-parallel over all ranks of a job.

Usage: train [OPTIONS]

Options:
  --epochs N       passes over the training images [default: 20]
  --batch N        images per step, all ranks together [default: 64]
  --lr X           learning rate [default: 0.1]
  --seed N         seed of the first weights and of the order of images [default: 1]
  --hidden N       units of the hidden layer [default: 32]
  --timeout SECS   give up on a rank that is silent for this long [default: 60]
  --resilient      below rlaunch: go on in the same processes, as a smaller world, when a rank fails
  -h, --help       print this

Environment, set by the launcher (rlaunch, torchrun, ...):
  RANK, WORLD_SIZE, LOCAL_RANK   who this process is; without RANK it trains alone
  MASTER_ADDR, MASTER_PORT       where rank 0 listens and all others meet it

Rank 0 prints loss and held-out accuracy after each epoch. The curve does not depend on the number of ranks.
Data: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI repository (CC BY 4.0).
";

/// The parsed command line.
#[derive(Debug)]
pub(crate) enum Asked {
    Train(Options),
    Help,
}

/// How to train.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) epochs: u32,
    pub(crate) batch: usize,
    pub(crate) rate: f64,
    pub(crate) seed: u64,
    pub(crate) hidden: usize,
    pub(crate) timeout: Duration,
    pub(crate) resilient: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            epochs: 20,
            batch: 64,
            rate: 0.1,
            seed: 1,
            hidden: 32,
            timeout: Duration::from_secs(60),
            resilient: false,
        }
    }
}

impl Options {
    /// The options that all ranks must share, as one word to compare.
    pub(crate) fn agreed(&self) -> String {
        let Self { epochs, batch, rate, seed, hidden, timeout: _, resilient: _ } = self;
        format!("epochs={epochs},batch={batch},lr={rate},seed={seed},hidden={hidden}")
    }
}

/// Reads the words after the program's name.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Asked> {
    let mut options = Options::default();
    let mut args = args.map(|arg| arg.into_string().map_err(|arg| anyhow::anyhow!("{arg:?} is not UTF-8")));
    while let Some(arg) = args.next().transpose()? {
        let (name, value) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        if matches!(name, "-h" | "--help") {
            return Ok(Asked::Help);
        }
        if arg == "--resilient" {
            options.resilient = true;
            continue;
        }
        if !["--epochs", "--batch", "--lr", "--seed", "--hidden", "--timeout"].contains(&name) {
            bail!("{arg:?} is not an option of this program: see --help");
        }
        let value = match value {
            Some(value) => value,
            None => args.next().transpose()?.with_context(|| format!("{name} needs a value: see --help"))?,
        };
        match name {
            "--epochs" => options.epochs = number(name, &value, 1, 1_000_000)?,
            "--batch" => options.batch = number(name, &value, 1, 1_000_000)?,
            "--lr" => options.rate = number(name, &value, f64::MIN_POSITIVE, 1000.0)?,
            "--seed" => options.seed = number(name, &value, 0, u64::MAX)?,
            "--hidden" => options.hidden = number(name, &value, 1, 65536)?,
            _ => options.timeout = Duration::from_secs(number(name, &value, 1, 86400)?),
        }
    }
    Ok(Asked::Train(options))
}

/// A value within bounds, or an error that names the option, the value and the bounds.
fn number<T: FromStr + PartialOrd + Display>(name: &str, value: &str, least: T, most: T) -> Result<T> {
    let parsed = value.parse().ok().filter(|n| *n >= least && *n <= most);
    ensure!(parsed.is_some(), "{name} {value:?}: give a number from {least} to {most}");
    parsed.context("checked above")
}

#[cfg(test)]
mod tests {
    use super::{Asked, Options, parse};
    use anyhow::Result;
    use std::time::Duration;

    fn words(line: &str) -> Result<Asked> {
        parse(line.split_whitespace().map(Into::into))
    }

    #[test]
    fn both_spellings_of_a_value_work() {
        let Ok(Asked::Train(options)) =
            words("--epochs 3 --batch=7 --lr 0.5 --seed=9 --hidden 4 --timeout 2 --resilient")
        else {
            panic!("refused");
        };
        let timeout = Duration::from_secs(2);
        let expected = Options { epochs: 3, batch: 7, rate: 0.5, seed: 9, hidden: 4, timeout, resilient: true };
        assert_eq!(options, expected);
        assert!(matches!(words("--epochs 3 -h"), Ok(Asked::Help)));
    }

    #[test]
    fn errors_name_option_and_value() {
        let refused = |line| words(line).unwrap_err().to_string();
        assert_eq!(refused("--batch 0"), "--batch \"0\": give a number from 1 to 1000000");
        assert!(refused("--lr nan").starts_with("--lr \"nan\": give a number"));
        assert_eq!(refused("--epochs"), "--epochs needs a value: see --help");
        assert_eq!(refused("--epoch 3"), "\"--epoch\" is not an option of this program: see --help");
    }
}
