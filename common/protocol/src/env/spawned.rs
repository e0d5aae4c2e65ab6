//! The environment of programs that a rank starts. It is that of the rank's own program, and the order replaces variables.

use super::login_variables::name_of;
use super::{Role, lookup};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::os_strings::OsStrings;

/// The environment and the pinned names of a program that a rank starts. A variable of `given` replaces the one of `env`. The last of
/// several counts. Identities of a rank stay rlaunch's own, also if the command line has pinned them.
#[must_use]
pub fn spawned(env: &OsStrings, pinned: &OsStrings, given: &[(OsBytes, OsBytes)]) -> (OsStrings, OsStrings) {
    let is_given = |name: &[u8]| given.iter().any(|(own, _)| own.as_slice() == name);
    let is_kept = |name: &[u8]| !is_given(name) && !is_identity(name);
    let mut env: OsStrings = env.iter().filter(|entry| name_of(entry).is_none_or(is_kept)).collect();
    let mut pinned: OsStrings = pinned.iter().filter(|name| is_kept(name)).collect();
    for (at, (name, value)) in given.iter().enumerate() {
        let is_last = given.iter().skip(at + 1).all(|(later, _)| later != name);
        if is_identity(name) || !is_last {
            continue;
        }
        env.push_pair(name, value);
        if lookup(name).is_some_and(|var| var.role.is_written()) {
            pinned.push(name);
        }
    }
    (env, pinned)
}

/// Whether a name can stand in an environment.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.iter().any(|byte| matches!(byte, b'=' | 0))
}

/// Variables that differ between worlds: numbers of the rank, and where its world meets.
fn is_identity(name: &[u8]) -> bool {
    lookup(name).is_some_and(|var| matches!(var.role, Role::Set | Role::Meeting))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn of(env: &[&str], pinned: &[&str], given: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let given: Vec<_> = given.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let (env, pinned) = spawned(&env.iter().collect(), &pinned.iter().collect(), &given);
        let texts = |all: &OsStrings| all.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
        (texts(&env), texts(&pinned))
    }

    #[test]
    fn given_variables_replace_those_of_the_asking_program() {
        let (env, pinned) = of(&["A=1", "B=2", "odd", "A=3"], &[], &[("A", "x=y"), ("C", ""), ("C", "5")]);
        assert_eq!((env, pinned), (["B=2", "odd", "A=x=y", "C=5"].map(String::from).to_vec(), Vec::new()));
    }

    #[test]
    fn identity_of_a_rank_is_not_given() {
        let (env, pinned) = of(
            &["RANK=7", "MASTER_PORT=1", "X=1"],
            &["RANK", "MASTER_PORT"],
            &[("MASTER_ADDR", "a"), ("RLAUNCH_RANK", "3")],
        );
        assert_eq!(
            (env, pinned),
            (["X=1"].map(String::from).to_vec(), Vec::new()),
            "neither by the command line nor by the order"
        );
    }

    #[test]
    fn given_default_wins_over_that_of_rlaunch() {
        let (env, pinned) = of(&["OMP_NUM_THREADS=1"], &["OMP_NUM_THREADS"], &[("OMP_NUM_THREADS", "4")]);
        assert_eq!(
            (env, pinned),
            (["OMP_NUM_THREADS=4"].map(String::from).to_vec(), ["OMP_NUM_THREADS"].map(String::from).to_vec())
        );
    }

    #[test]
    fn names_without_letters_or_with_an_equals_sign_are_none() {
        assert!(is_name(b"A") && is_name(b"\xff") && !is_name(b"") && !is_name(b"A=B") && !is_name(b"A\0"));
    }
}
