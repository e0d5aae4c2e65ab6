//! Options that are rlaunch's and, with other values, srun's: an answer names both, so that no user of srun follows torchrun's meaning.

use super::errors::CliError;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::shell::quoted;

/// Way out of srun's time limit, where `-t` takes streams; `None`: the value is none of srun's times.
pub(super) fn time(value: &[u8]) -> Option<String> {
    let is_time =
        value.first().is_some_and(u8::is_ascii_digit) && value.iter().all(|b| b.is_ascii_digit() || b":-".contains(b));
    let is_minutes = value.iter().all(u8::is_ascii_digit);
    let limit = if is_minutes { format!("{}m", OsBytes::from(value)) } else { "TIME".into() };
    is_time.then(|| format!("--timeout {limit}   for a time limit (srun)"))
}

/// srun's `-m DISTRIBUTION`, where `-m` says that the program is a module of Python.
///
/// # Errors
/// The word is a distribution, and a program follows.
pub(super) fn check_module(argv: &[OsBytes]) -> Result<(), CliError> {
    const WORDS: [&[u8]; 7] = [b"block", b"cyclic", b"fcyclic", b"plane", b"arbitrary", b"pack", b"nopack"];
    let [word, _program, ..] = argv else { return Ok(()) };
    let is_one = |part: &[u8]| WORDS.contains(&part) || part == b"*" || part.starts_with(b"plane=");
    if !word.split(|b| b":,".contains(b)).all(is_one) {
        return Ok(());
    }
    let map = if word.starts_with(b"cyclic") { "--map-by node" } else { "leave it out: --map-by slot is the default" };
    Err(CliError::Value {
        option: "-m".into(),
        takes: "a module of Python".into(),
        got: word.clone(),
        hint: Some(format!("{map}   (srun's distribution of ranks)\npython3 -m {word} ...   for the module").into()),
    })
}

/// Way out of srun's list of hosts to leave out, where `-x` takes a variable; `None`: the word looks like a variable.
/// `in_slurm`: the user is in a job of Slurm.
pub(crate) fn excluded(word: &[u8], in_slurm: bool) -> Option<String> {
    let is_name = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.[],".contains(b);
    let is_numbered = word.last().is_some_and(|b| b.is_ascii_digit() || *b == b']');
    let is_host =
        word.first().is_some_and(u8::is_ascii_lowercase) && word.iter().all(is_name) && (is_numbered || in_slurm);
    is_host.then(|| {
        let list = quoted(&[b"LIST!", word].concat());
        format!("-H {list}   takes hosts out (srun's -x)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_srun_are_distinguished_from_other_values() {
        for (value, way_out) in [("10", "10m"), ("1:00:00", "TIME"), ("1-0", "TIME"), ("5", "5m")] {
            assert_eq!(time(value.as_bytes()), Some(format!("--timeout {way_out}   for a time limit (srun)")));
        }
        for value in ["", "x", "0:1,1:2", ":1"] {
            assert_eq!(time(value.as_bytes()), None, "{value}");
        }
        let module = |line: &str| check_module(&line.split(' ').map(OsBytes::from).collect::<Vec<_>>()).is_err();
        for line in
            ["cyclic ./train", "block:cyclic ./train", "*:block ./train", "plane=2 ./train", "block,pack ./train"]
        {
            assert!(module(line), "{line}");
        }
        for line in ["cyclic", "pkg.train --lr 1", "blocks ./train", "plan ./train"] {
            assert!(!module(line), "{line}");
        }
        assert!(excluded(b"node1", false).is_some() && excluded(b"node[1-3],gpu7", false).is_some());
        assert!(excluded(b"login", true).is_some() && excluded(b"login", false).is_none());
        for word in ["PATH", "OMP_NUM_THREADS", "http_proxy", "FOO1", ""] {
            assert_eq!(excluded(word.as_bytes(), true), None, "{word}");
        }
    }
}
