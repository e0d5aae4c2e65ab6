//! The real libtpu and its lock file: what blocks it before `rlaunch clean`, after that, and in a rank. No chip is needed: libtpu takes the
//! lock before it looks for one.
//!
//! `RLAUNCH_LIBTPU` names a directory of Python that has it; `scripts/test --all` makes one.

use crate::jax;
use crate::place;
use crate::plan::Plan;

/// Each line: the state of the file, whether libtpu gets past it, the code of `rlaunch clean`, the file after that, libtpu again, and
/// libtpu in a rank. The path of the file is fixed, so /tmp is another one.
const STATES: &str = r#"
mount -t tmpfs -o mode=755 none /mnt && mkdir /mnt/jax /mnt/libtpu && : >/mnt/rl &&
mount --bind "$RL" /mnt/rl && mount --bind "$JAX" /mnt/jax && mount --bind "$LIBTPU" /mnt/libtpu &&
mount -t tmpfs -o mode=1777 none /tmp && cd / && ip link set lo up || exit 9
export TMPDIR=/tmp HOME=/tmp PYTHONDONTWRITEBYTECODE=1 JAX_PLATFORMS=tpu TPU_SKIP_MDS_QUERY=1 PYTHONPATH=/mnt/libtpu
lock=/tmp/libtpu_lockfile BY=
verdict() { case "$(cat)" in *"No jellyfish device found"*) echo free ;; *ABORTED*) echo blocked ;; *) echo unknown ;; esac; }
ask() { $BY "$@" /mnt/jax/bin/python -c "import jax; jax.devices()" 2>&1 | verdict; }
row() {
    before=$(ask)
    $BY /mnt/rl clean >/tmp/said 2>&1; code=$?
    cat /tmp/said >&2
    file=gone; { [ -e $lock ] || [ -L $lock ]; } && file=stays
    echo "$1: $before, clean $code, $file, $(ask), rank $(ask /mnt/rl --devices tpu -n 1)"
}
ask >/dev/null; row "left over"; mkfifo /tmp/up
python3 -c "import fcntl, time; f = open('$lock', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); open('/tmp/up', 'w').write('up\n'); time.sleep(1000)" & pid=$!
read up </tmp/up
row locked; kill $pid; wait $pid; rm -f $lock
: >/tmp/target; ln -s target $lock; row symlink; rm $lock; [ -e /tmp/target ] || echo "the target of the link is gone"
mkdir $lock; row directory; rmdir $lock
: >$lock; chmod 600 $lock; rm /tmp/said; rm -rf /tmp/tpu_logs
BY="setpriv --reuid 65534 --regid 65534 --clear-groups"; row "of another user"
"#;

const EXPECTED: &str = "\
left over: free, clean 0, gone, free, rank free
locked: blocked, clean 0, stays, blocked, rank blocked
symlink: blocked, clean 0, stays, blocked, rank free
directory: blocked, clean 0, stays, blocked, rank free
of another user: blocked, clean 0, stays, blocked, rank free
";

#[test]
fn libtpu_is_blocked_by_the_lock_files_that_rlaunch_cannot_remove_and_ranks_are_not() {
    if !place::full() {
        return;
    }
    let Some(libtpu) = std::env::var_os("RLAUNCH_LIBTPU") else {
        return place::absent("libtpu", "RLAUNCH_LIBTPU names no directory that has it");
    };
    let Some(python) = jax::python() else { return };
    if !place::is_root() || !["unshare", "setpriv", "python3", "ip"].into_iter().all(place::has) {
        return place::absent("libtpu", "needs root, for a /tmp of its own");
    }
    let jax = python.parent().and_then(std::path::Path::parent).expect("a virtual environment");
    let plan = Plan::shell("exec unshare -mn sh -c \"$STATES\"").env("STATES", STATES).env("JAX", jax);
    let done = plan.env("LIBTPU", libtpu).start().end();
    assert_eq!(done.out(), EXPECTED, "{:?}: {}", done.exit, done.err());
    done.says("is a directory, not a lock file")
        .says("belongs to user 0")
        .says("is locked by process ")
        .says("removed /tmp/libtpu_lockfile");
}
