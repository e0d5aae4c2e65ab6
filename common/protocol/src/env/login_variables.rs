//! Variables that hold for one host only. On another than the launcher's the caller's value stays at home, and that of the login there
//! stands.

use super::{Contract, Role, Var, lookup};
use rlaunch_base::os_strings::OsStrings;

const fn host(name: &'static str, doc: &'static str) -> Var {
    Var::new(name, Role::Host, doc)
}

const fn user(name: &'static str, doc: &'static str) -> Var {
    Var::new(name, Role::User, doc)
}

pub(super) const CONTRACT: Contract = Contract {
    title: "Of each host",
    about: "On the launcher's host, ranks get your values. On other hosts, ranks get the values of the login there, if it \
            has them. Your values do not travel. `-x NAME` sends a variable to all hosts.",
    vars: &[
        host("DISPLAY", "A display."),
        user("HOME", "Home directory; that of the other user for `user@HOST`, or for a User in ssh's configuration."),
        host("HOST", "Name of the host, as some shells set it."),
        host("HOSTNAME", "The same."),
        host("KRB5CCNAME", "Kerberos tickets, often in a file of the host."),
        user("LOGNAME", "As HOME."),
        user("MAIL", "As HOME."),
        host("OLDPWD", "Of the shell."),
        host("PWD", "The directory in which the rank starts."),
        user("SHELL", "As HOME."),
        host("SHLVL", "Of the shell."),
        host("TMPDIR", "Directory for temporary files; batch systems make one per host."),
        user("USER", "As HOME."),
        host("WAYLAND_DISPLAY", "A display."),
        host("XAUTHORITY", "Of the display."),
        host("XDG_RUNTIME_DIR", "Directory of the login."),
        host("XDG_SEAT", "Of the login."),
        host("XDG_VTNR", "Of the login."),
        host("_", "Of the shell."),
    ],
    families: &[
        host("DBUS_*", "Sockets of the login."),
        host("SSH_*", "Connection of the login, and the socket of ssh-agent."),
        host("XDG_SESSION_*", "Of the login."),
    ],
};

/// Variables by which Slurm gives a step its devices on a node. In a batch script they are about the first node.
const DEVICES_OF_A_STEP: [&[u8]; 7] = [
    b"CUDA_VISIBLE_DEVICES",
    b"GPU_DEVICE_ORDINAL",
    b"HIP_VISIBLE_DEVICES",
    b"ROCR_VISIBLE_DEVICES",
    b"SLURM_JOB_GPUS",
    b"SLURM_STEP_GPUS",
    b"ZE_AFFINITY_MASK",
];

fn is_device(name: &[u8]) -> bool {
    DEVICES_OF_A_STEP.contains(&name)
}

/// The environment of ranks on a host whose login has `login`, made of the caller's, without what the user did not pin and
/// the host knows better. `wdir` is the directory in which they start.
#[must_use]
pub fn abroad(caller: &OsStrings, pinned: &OsStrings, login: &OsStrings, wdir: Option<&[u8]>) -> OsStrings {
    let who = |vars: &OsStrings| value(vars, b"LOGNAME").or_else(|| value(vars, b"USER")).map(<[u8]>::to_vec);
    let another = who(caller).zip(who(login)).is_some_and(|(caller, login)| caller != login);
    let is_of_login = |name: &[u8]| {
        let role = lookup(name).map(|var| var.role);
        // A login brings none of these: only a step does.
        let is_given = is_device(name) && value(login, name).is_some();
        (matches!(role, Some(Role::Host | Role::Tpu | Role::LoginHost))
            || (another && role == Some(Role::User))
            || is_given)
            && !pinned.contains(name)
    };
    let mut vars = OsStrings::with_capacity(caller.as_bytes().len());
    caller.iter().filter(|entry| !name_of(entry).is_some_and(is_of_login)).for_each(|entry| vars.push(entry));
    let stands = |name: &[u8]| is_of_login(name) && !(name == b"PWD" && wdir.is_some());
    login.iter().filter(|entry| name_of(entry).is_some_and(stands)).for_each(|entry| vars.push(entry));
    if let Some(dir) = wdir.filter(|_| is_of_login(b"PWD")) {
        vars.push_pair(b"PWD", dir);
    }
    vars
}

/// The variables of a host's own environment that its ranks may get. In a step of Slurm those of its devices are among them.
#[must_use]
pub fn of_login<'a>(entries: impl IntoIterator<Item = &'a [u8]> + Clone) -> OsStrings {
    let in_step = entries.clone().into_iter().any(|entry| entry.starts_with(b"SLURM_STEP_ID="));
    let is_hosts = |entry: &&[u8]| {
        let name = name_of(entry);
        name.and_then(lookup).is_some_and(|var| var.role.is_hosts()) || (in_step && name.is_some_and(is_device))
    };
    entries.into_iter().filter(is_hosts).collect()
}

pub(super) fn name_of(entry: &[u8]) -> Option<&[u8]> {
    entry.get(..memchr::memchr(b'=', entry)?).filter(|name| !name.is_empty())
}

/// The value that a program would find.
#[must_use]
pub fn value<'a>(vars: &'a OsStrings, name: &[u8]) -> Option<&'a [u8]> {
    vars.iter().find(|entry| name_of(entry) == Some(name)).and_then(|entry| entry.get(name.len() + 1..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// The list of the batch script is about another node.
    #[test]
    fn devices_are_those_of_the_step_on_each_host() {
        let caller = ["CUDA_VISIBLE_DEVICES=0,1", "ZE_AFFINITY_MASK=0"];
        let step = ["SLURM_STEP_ID=0", "CUDA_VISIBLE_DEVICES=2,3", "SLURM_STEP_GPUS=2,3"];
        assert_eq!(
            of(&caller, &[], &step, None),
            ["ZE_AFFINITY_MASK=0", "CUDA_VISIBLE_DEVICES=2,3", "SLURM_STEP_GPUS=2,3"]
        );
        assert_eq!(of(&caller, &[], &step[1..], None), caller, "a login is no step");
        let pinned = of(&caller, &["CUDA_VISIBLE_DEVICES"], &step, None);
        assert_eq!(pinned[0], "CUDA_VISIBLE_DEVICES=0,1", "-x");
    }

    fn of(caller: &[&str], pinned: &[&str], login: &[&str], wdir: Option<&[u8]>) -> Vec<alloc::string::String> {
        let (caller, pinned) = (caller.iter().collect(), pinned.iter().collect());
        let login = of_login(login.iter().map(|entry| entry.as_bytes()));
        let vars = abroad(&caller, &pinned, &login, wdir);
        vars.iter().map(|entry| alloc::string::String::from_utf8(entry.to_vec()).unwrap()).collect()
    }

    #[test]
    fn each_host_has_its_own() {
        let caller =
            ["PATH=/bin", "HOSTNAME=login", "TMPDIR=/scratch/7", "SSH_CONNECTION=a", "XDG_SESSION_ID=3", "_=x"];
        let login = ["PATH=/usr/bin", "TMPDIR=/var/tmp", "SSH_CONNECTION=b", "EDITOR=vi", "SLURMD_NODENAME=n1"];
        assert_eq!(
            of(&caller, &[], &login, None),
            ["PATH=/bin", "TMPDIR=/var/tmp", "SSH_CONNECTION=b", "SLURMD_NODENAME=n1"]
        );
        assert_eq!(
            of(&caller, &["TMPDIR", "_"], &login, None),
            ["PATH=/bin", "TMPDIR=/scratch/7", "_=x", "SSH_CONNECTION=b", "SLURMD_NODENAME=n1"],
            "what the user asked for travels"
        );
    }

    /// A host that has them passes them on neither: the computed variables describe its part of the job.
    #[test]
    fn shape_of_a_tpu_slice_stays_at_the_login_host() {
        let caller = ["TPU_TOPOLOGY=4x4", "TPU_HOST_BOUNDS=2,2,1", "TPU_CHIPS_PER_HOST_BOUNDS=2,2,1", "A=1"];
        let login = ["TPU_TOPOLOGY=2x2", "TPU_MESH_CONTROLLER_ADDRESS=h:8476"];
        assert_eq!(of(&caller, &[], &login, None), ["A=1"]);
        assert_eq!(of(&caller, &["TPU_TOPOLOGY"], &login, None), ["TPU_TOPOLOGY=4x4", "A=1"], "-x");
    }

    #[test]
    fn a_rank_knows_where_it_starts() {
        assert_eq!(of(&["PWD=/a"], &[], &["PWD=/home/u"], Some(b"/data")), ["PWD=/data"]);
        assert_eq!(of(&["PWD=/a"], &[], &["PWD=/home/u"], None), ["PWD=/home/u"]);
        assert_eq!(of(&["PWD=/a"], &["PWD"], &["PWD=/home/u"], Some(b"/data")), ["PWD=/a"]);
    }

    #[test]
    fn a_home_travels_unless_somebody_else_logs_in() {
        let caller = ["HOME=/home/u", "LOGNAME=u", "USER=u"];
        assert_eq!(of(&caller, &[], &["HOME=/root", "LOGNAME=u", "MAIL=/m"], None), caller);
        assert_eq!(of(&caller, &[], &["HOME=/home/v", "LOGNAME=v"], None), ["HOME=/home/v", "LOGNAME=v"]);
        assert_eq!(of(&caller, &["HOME"], &["HOME=/home/v", "LOGNAME=v"], None), ["HOME=/home/u", "LOGNAME=v"]);
        assert_eq!(of(&["HOME=/x"], &[], &["HOME=/home/v", "LOGNAME=v"], None), ["HOME=/x"], "the user is not known");
    }

    #[test]
    fn odd_entries_travel_as_they_are() {
        assert_eq!(of(&["=x", "nothing", ""], &[], &["=y", "more"], None), ["=x", "nothing", ""]);
    }
}
