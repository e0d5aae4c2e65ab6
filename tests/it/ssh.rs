//! Hosts with a stand-in for ssh, for cases that are hard to produce with a real sshd. The stand-in runs the remote line in a login shell
//! of the test, or misbehaves as the test demands.

use crate::case::Done;
use crate::census::Mercy;
use crate::place;
use crate::plan::Plan;
use crate::watch::Exit;
use std::path::Path;

/// `ssh` in PATH sources `$DIR/behave` and runs its last word in `$LOGIN`. `$OURS` is rlaunch under a path that no remote
/// line can name, so that it is not found there.
const STAND_IN: &str = r#"
mkdir -p "$DIR/bin" "$DIR/home" "$DIR/o'dd"; touch "$DIR/behave"
OURS="$DIR/o'dd/rlaunch"; ln "$RL" "$OURS" 2>/dev/null || cp "$RL" "$OURS"
cat >"$DIR/bin/ssh" <<'EOF'
#!/bin/sh
echo "$@" >>"$DIR/calls"
for line; do :; done
. "$DIR/behave"
exec env HOME="$DIR/home" ${LOGIN:-sh} -c "$line"
EOF
chmod 755 "$DIR/bin/ssh"; PATH="$DIR/bin:$PATH"; export PATH DIR
behave() { cat >"$DIR/behave"; }
"#;

pub(crate) fn script(script: &str) -> Plan {
    Plan::shell(&format!("{STAND_IN}\n{script}"))
}

/// The same as root with a /tmp and a /dev/shm of its own, where `$DIR` is `/mnt`.
fn with_own_places(inner: &str) -> Plan {
    // rlaunch itself may have been built below /tmp.
    let private = "cp \"$RL\" \"$DIR/rl\" && mount --bind \"$DIR\" /mnt && mount -t tmpfs none /tmp && \
                   mount -t tmpfs none /dev/shm || exit 99";
    let script = format!("{private}\nDIR=/mnt; RL=/mnt/rl; export DIR RL\n{STAND_IN}\n{inner}");
    Plan::shell("exec unshare -m --propagation private sh -c \"$SCRIPT\"").env("SCRIPT", script)
}

pub(crate) fn says_all(done: &Done, what: &[&str]) {
    let text = format!("{}{}", done.out(), done.err());
    for what in what {
        assert!(text.contains(what), "does not say {what:?}:\n{text}");
    }
}

/// rlaunch's doctor on one host, twice: the binary is sent, and is there.
const TWICE: &str = "\"$OURS\" doctor --ssh-fast -H h && \"$OURS\" doctor --ssh-fast -H h";

#[test]
fn every_login_shell_runs_the_line_despite_its_output() {
    let noise = "behave <<'EOF'\nhead -c 60000 /dev/zero | tr '\\0' n; echo; echo '*** banner ***' >&2\nEOF\n";
    for shell in ["sh", "bash", "dash", "fish", "tcsh", "zsh", "busybox sh"] {
        if !place::has(shell.split(' ').next().unwrap()) {
            continue;
        }
        let done = script(&format!("{noise}{TWICE}")).env("LOGIN", shell).start().code(0);
        says_all(&done, &["agent in cache (was sent)", "agent in cache (was there)"]);
    }
}

#[test]
fn a_host_without_a_tool_for_the_hash_lets_the_binary_check_itself() {
    let tools = "mkdir \"$DIR/few\"; for t in sh env ls id uname head mkdir mv rm chmod; do \
                 ln -s \"$(command -v $t)\" \"$DIR/few/$t\"; done\n\
                 behave <<'EOF'\nexport HOME=\"$DIR/home\" PATH=\"$DIR/few\"; exec sh -c \"$line\"\nEOF\n";
    let done = script(&format!("{tools}{TWICE}")).start().code(0);
    says_all(&done, &["agent in cache (was sent)", "agent in cache (was there)"]);
    // And it notices.
    let spoil = "for f in \"$DIR\"/home/.cache/rlaunch/agent-*; do printf X | \
                 dd of=\"$f\" bs=1 seek=$(($(stat -c %s \"$f\") - 1)) conv=notrunc 2>/dev/null; done";
    let done =
        script(&format!("{tools}\"$OURS\" doctor --ssh-fast -H h >/dev/null && {spoil}\n{TWICE}")).start().code(0);
    says_all(&done, &["(was sent)", "(was there)"]);
}

#[test]
fn planted_binary_in_cache_is_never_run() {
    let plant = "\"$OURS\" doctor --ssh-fast -H h >/dev/null || exit 9\n\
                 for f in \"$DIR\"/home/.cache/rlaunch/agent-*; do s=$(stat -c %s \"$f\"); \
                 printf '#!/bin/sh\\ntouch \"$DIR/pwned\"\\n' >\"$f\"; truncate -s $s \"$f\"; done\n\"$OURS\" doctor --ssh-fast -H h\n";
    let done = script(&format!("{plant}[ ! -e \"$DIR/pwned\" ]")).start().code(0);
    says_all(&done, &["(was sent)"]);
}

#[test]
fn a_transfer_that_is_cut_off_leaves_nothing() {
    // The shell there cleans up while rlaunch ends: a moment later, if not before.
    let cut = "behave <<'EOF'\nexport HOME=\"$DIR/home\"; head -c 100000 | sh -c \"$line\"; exit 255\nEOF\n\
               \"$OURS\" doctor --ssh-fast -H h; cd \"$DIR/home/.cache/rlaunch\" || exit 9\n\
               until [ -z \"$(ls -A)\" ]; do :; done; exit 7";
    // The process that has removed the last file has still to exit.
    let done = script(cut).start().end_with(Mercy::All);
    assert_eq!(done.exit, Exit::Code(7), "{}", done.err());
    assert!(done.out().starts_with("h: "), "{}", done.out());
}

#[test]
fn every_place_that_cannot_be_used_is_named_with_its_reason() {
    if !place::is_root() {
        return place::absent("places of the agent's binary", "needs a mount namespace");
    }
    let done = with_own_places(
        "mkdir -p home/.cache \"$DIR/home/.cache\" \"$DIR/else\"; chmod 700 \"$DIR/else\"\n\
         ln -s \"$DIR/else\" \"$DIR/home/.cache/rlaunch\"\n\
         mount -o remount,noexec /tmp; mount -o remount,size=1m /dev/shm\n\
         \"$OURS\" doctor --ssh-fast -H h; ls -A \"$DIR/else\" /tmp/rlaunch-0 /dev/shm/rlaunch-0",
    )
    .start()
    .end();
    says_all(
        &done,
        &[
            "~/.cache/rlaunch: it is a symbolic link",
            "/tmp/rlaunch-UID: programs there cannot be executed (noexec)",
            "/dev/shm/rlaunch-UID: there is no space left",
            "--agent-path",
        ],
    );
    let left = done.out().lines().any(|line| line.starts_with("agent-") || line.starts_with(".agent-"));
    assert!(!left, "something was left: {}", done.out());
}

#[test]
fn the_next_place_is_taken() {
    if !place::is_root() {
        return place::absent("places of the agent's binary", "needs a mount namespace");
    }
    let readonly =
        "mkdir \"$DIR/ro\"; mount -t tmpfs -o ro none \"$DIR/ro\"; XDG_CACHE_HOME=$DIR/ro; export XDG_CACHE_HOME\n";
    let done = with_own_places(&format!("{readonly}{TWICE}")).start().code(0);
    says_all(&done, &["agent in tmp (was sent)", "agent in tmp (was there)"]);
    let foreign = "mkdir /tmp/rlaunch-0; chown 12345 /tmp/rlaunch-0; chmod 777 /tmp/rlaunch-0\n";
    let done = with_own_places(&format!("{readonly}{foreign}{TWICE}")).start().code(0);
    says_all(&done, &["agent in shm (was sent)", "agent in shm (was there)"]);
}

#[test]
fn every_sh_and_other_peoples_tools_read_the_line() {
    if !place::is_root() {
        return place::absent("another /bin/sh", "needs a mount namespace");
    }
    let busybox = "b=$(command -v busybox); mkdir \"$DIR/few\"; for t in $($b --list); do ln -s \"$b\" \"$DIR/few/$t\"; done\n\
                   behave <<'EOF'\nexport PATH=\"$DIR/few\"\nEOF\n";
    for (sh, tools) in [("bash", ""), ("busybox", busybox)] {
        if !place::has(sh) {
            place::absent(&format!("/bin/sh from {sh}"), "it is not installed");
            continue;
        }
        let inner = format!("mount --bind \"$(command -v {sh})\" /bin/sh || exit 99\n{tools}{TWICE}");
        let done = with_own_places(&inner).start().code(0);
        says_all(&done, &["agent in cache (was sent)", "agent in cache (was there)"]);
    }
}

#[test]
fn planted_file_in_tmp_is_not_used() {
    if !place::is_root() {
        return place::absent("planted links", "needs another user and a mount namespace");
    }
    // The link leads to a directory that is ours, and right.
    let planted = "mkdir \"$DIR/ro\" \"$DIR/else\"; chmod 700 \"$DIR/else\"; mount -t tmpfs -o ro none \"$DIR/ro\"\n\
                   XDG_CACHE_HOME=$DIR/ro; export XDG_CACHE_HOME\n\
                   setpriv --reuid 12345 --clear-groups ln -s \"$DIR/else\" /tmp/rlaunch-0 || exit 99\n";
    let done =
        with_own_places(&format!("{planted}{TWICE}; ls -A \"$DIR/else\"; [ -L /tmp/rlaunch-0 ]")).start().code(0);
    says_all(&done, &["agent in shm (was sent)", "agent in shm (was there)"]);
    assert!(!done.out().contains("agent-"), "something was put behind the link: {}", done.out());
}

#[test]
fn another_architecture_is_named() {
    if !place::is_root() {
        return place::absent("another architecture", "needs a mount namespace");
    }
    let other = "printf '#!/bin/sh\\necho riscv64\\n' >\"$DIR/bin/uname\"; chmod 755 \"$DIR/bin/uname\"\n";
    // The message of a kernel since Linux 6.1; and of an older one.
    for (kernel, machine) in [("sparc64\\n", "sparc64"), ("", "riscv64")] {
        let machine = if Path::new("/proc/sys/kernel/arch").exists() { machine } else { "riscv64" };
        let says = format!(
            "printf '{kernel}' >\"$DIR/arch\"; [ ! -e /proc/sys/kernel/arch ] || \
             mount --bind \"$DIR/arch\" /proc/sys/kernel/arch || exit 99\n"
        );
        let done = with_own_places(&format!("{other}{says}\"$OURS\" doctor --ssh-fast -H h")).start().code(125);
        says_all(&done, &[&format!("its architecture is {machine}"), "--agent-path PATH"]);
    }
}

/// A user who may make a namespace without being root gets one from a job, too.
#[test]
fn tier_that_doctor_reports_is_the_tier_of_a_job() {
    if !place::is_root() || !place::has("setpriv") {
        return place::absent("a user who may make namespaces", "needs root and setpriv");
    }
    for caps in ["--bounding-set=-sys_admin", "--inh-caps=+sys_admin --ambient-caps=+sys_admin"] {
        let behave = format!(
            "chmod 755 \"$DIR\"; cp \"$RL\" \"$DIR/rlaunch\"; chmod 755 \"$DIR/rlaunch\"; behave <<'EOF'\n\
             exec setpriv --reuid 65534 --clear-groups {caps} env HOME=/nowhere sh -c \"$line\"\nEOF\n"
        );
        let doctor = "\"$RL\" doctor --ssh-fast --agent-path \"$DIR/rlaunch\" -H h";
        let job = "cd /; exec \"$RL\" --ssh-fast --agent-path \"$DIR/rlaunch\" -H h true";
        let report = script(&format!("{behave}{doctor}")).start().code(0).out();
        let ready = script(&format!("{behave}{job}")).with_events().start().code(0).event("host.ready").clone();
        let tier = ready["tier"].as_str().unwrap().to_uppercase();
        assert!(report.contains(&format!("  contain tier {tier}: ")), "{caps}: {tier}, not {report}");
    }
}

#[test]
fn agent_of_the_user_is_used_unless_other_users_may_write_the_file() {
    let done =
        script("cp \"$RL\" \"$DIR/mine\"; \"$OURS\" doctor --ssh-fast -H h --agent-path \"$DIR/mine\"").start().code(0);
    says_all(&done, &["agent as --agent-path names it (was there)"]);
    let done = script(
        "cp \"$RL\" \"$DIR/mine\"; chmod 777 \"$DIR/mine\"; \"$OURS\" doctor --ssh-fast -H h --agent-path \"$DIR/mine\"",
    );
    says_all(&done.start().code(125), &["others may write to it"]);
    let done = script("\"$OURS\" doctor --ssh-fast -H h --agent-path /no/where").start().code(125);
    says_all(&done, &["it is not there"]);
}

/// A stand-in for the tool that checks the file last exchanges the directory after the check.
#[test]
fn the_checked_binary_is_executed_where_its_directory_is_exchanged_meanwhile() {
    let exchange = "mkdir \"$DIR/at\" \"$DIR/next\" \"$DIR/tools\"; cp \"$RL\" \"$DIR/at/rlaunch\"; REAL=$(command -v $TOOL); export REAL\n\
                    printf '#!/bin/sh\\ntouch \"$DIR/pwned\"\\n' >\"$DIR/next/rlaunch\"; chmod 755 \"$DIR/next/rlaunch\"\n\
                    cat >\"$DIR/tools/$TOOL\" <<'EOF'\n#!/bin/sh\n\"$REAL\" \"$@\"\n\
                    [ ! -e \"$DIR/next\" ] || { mv \"$DIR/at\" \"$DIR/was\"; mv \"$DIR/next\" \"$DIR/at\"; }\nEOF\n\
                    chmod 755 \"$DIR/tools/$TOOL\"; behave <<'EOF'\nPATH=$DIR/tools:$PATH; export PATH\nEOF\n";
    for (tool, words, says) in [
        ("cksum", "\"$DIR/at/rlaunch\" doctor", "agent at the path that it has here (was there)"),
        ("ls", "\"$OURS\" doctor --agent-path \"$DIR/at/rlaunch\"", "agent as --agent-path names it (was there)"),
    ] {
        let job = script(&format!("{exchange}{words} --ssh-fast -H h; ls \"$DIR\"")).env("TOOL", tool);
        let done = job.start().code(0);
        assert!(!done.out().contains("pwned"), "a program that was not checked has run: {}", done.out());
        says_all(&done, &[says, "\nwas\n"]);
    }
}

#[test]
fn a_binary_that_others_can_replace_is_not_used() {
    let at = "mkdir \"$DIR/at\"; cp \"$RL\" \"$DIR/at/rlaunch\"; ln -s \"$DIR/at/rlaunch\" \"$DIR/link\"; D=$DIR/at\n";
    let (same, named) = ("\"$DIR/at/rlaunch\" doctor", "\"$OURS\" doctor --agent-path \"$DIR/link\"");
    let (used, is_named) =
        ("agent at the path that it has here (was there)", "agent as --agent-path names it (was there)");
    let refusal = "the agent that --agent-path names is not used: others own or may write to its directory /";
    let foreign = place::is_root().then_some(("chown 12345 \"$D\"", false));
    let modes = [(":", true), ("chmod 711 \"$D\"", true), ("chmod 1777 \"$D\"", true)];
    let open = [("chmod 775 \"$D\"", false), ("chmod 757 \"$D\"", false)];
    for (change, is_safe) in modes.into_iter().chain(open).chain(foreign) {
        let run = |words| script(&format!("{at}{change}\n{words} --ssh-fast -H h")).start();
        says_all(&run(same).code(0), &[if is_safe { used } else { "agent in cache (was sent)" }]);
        let done = run(named).code(if is_safe { 0 } else { 125 });
        says_all(&done, &[if is_safe { is_named } else { refusal }]);
        assert!(is_safe || done.out().contains("/at"), "{}", done.out());
    }
}

#[test]
fn ssh_in_its_own_words() {
    for (words, code, says) in [
        ("u@h: Permission denied (publickey).", 255, ["ssh was denied access", "ssh-copy-id h"]),
        ("Host key verification failed.", 255, ["ssh does not know the host's key", "to accept its key"]),
        ("ssh: Could not resolve hostname h: Name or service not known", 255, ["does not resolve", "fix the name"]),
        ("ssh: connect to host h port 22: No route to host", 255, ["cannot be reached", "whether it is up"]),
        ("what a day", 255, ["ssh failed (exit code 255)", "ssh h true"]),
        ("This account is currently not available.", 1, ["the login shell there ended at once", "ssh h true"]),
    ] {
        let done =
            script(&format!("behave <<'EOF'\necho '{words}' >&2; exit {code}\nEOF\n\"$OURS\" doctor --ssh-fast -H h"));
        let done = done.start().code(125);
        says_all(&done, &says);
        says_all(&done, &[words]);
    }
}

#[test]
fn noise_and_silence_have_an_end() {
    let done = script("behave <<'EOF'\nexec yes\nEOF\n\"$OURS\" doctor --ssh-fast -H h").start().code(125);
    says_all(&done, &["prints more than 64 KiB"]);
    let done = script("behave <<'EOF'\nexec sleep 999\nEOF\n\"$OURS\" doctor --ssh-fast -H h --connect-timeout 1s");
    says_all(
        &done.start().code(125),
        &[
            "nothing came from there: it is off, cut off or stands still, or the login shell",
            "a longer --connect-timeout",
        ],
    );
    // It does not listen to requests to end, nor does what it has started.
    let deaf = "behave <<'EOF'\ntrap '' TERM HUP; sleep 999 & wait; wait\nEOF\n";
    let done = script(&format!("{deaf}\"$OURS\" doctor --ssh-fast -H h --connect-timeout 1s")).start().code(125);
    says_all(&done, &["nothing came from there"]);
    let asks = "behave <<'EOF'\necho 'Which group today?'; sleep 999\nEOF\n";
    // Long enough for a login on a busy machine: what it prints has to come in time.
    let done = script(&format!("{asks}\"$OURS\" doctor --ssh-fast -H h --connect-timeout 8s")).start().code(125);
    says_all(&done, &["ssh got through; the login shell there has printed something, and waits"]);
}

#[test]
fn a_host_that_cuts_connections_off_is_tried_again() {
    let busy = "behave <<'EOF'\nif [ $(wc -l <\"$DIR/calls\") -lt 3 ]; then \
                echo 'kex_exchange_identification: Connection closed by remote host' >&2; exit 255; fi\nEOF\n";
    let done = script(&format!("{busy}\"$OURS\" doctor --ssh-fast -H h; wc -l <\"$DIR/calls\"")).start().code(0);
    says_all(&done, &["ready in", "\n3"]);
}

#[test]
fn advice_and_doctor_name_the_user_and_the_port() {
    let denied = "behave <<'EOF'\necho 'Permission denied (publickey).' >&2; exit 255\nEOF\n";
    let hosts = "printf 'h port=2222 user=eve\\nh user=bob\\n' >\"$DIR/hosts\"\n";
    for command in ["doctor", ""] {
        let last = if command.is_empty() { "true" } else { "" };
        let job = format!("{denied}{hosts}\"$OURS\" {command} --ssh-fast --hostfile \"$DIR/hosts\" {last}");
        let done = script(&job).start().code(125);
        says_all(&done, &["eve@h (port 2222)", "bob@h", "ssh was denied access"]);
        says_all(&done, &["ssh-copy-id -p 2222 eve@h, once", "ssh-copy-id bob@h, once"]);
    }
}

/// The message of a real sshd where PAM refuses the account.
#[test]
fn an_account_that_may_not_log_in_is_not_taken_for_a_crowd() {
    let close = "Connection closed by 10.1.1.1 port 22";
    for (words, calls, says) in [
        ("Access denied by pam_slurm_adopt: no jobs here", 1, ["the account is denied access there", "under Slurm"]),
        ("System is going down.", 3, ["it closed the connection before the login was complete", "sshd's log"]),
    ] {
        let behave = format!("behave <<'EOF'\necho '{words}' >&2; echo '{close}' >&2; exit 255\nEOF\n");
        let done = script(&format!("{behave}\"$OURS\" doctor --ssh-fast -H h; wc -l <\"$DIR/calls\"")).start().code(0);
        says_all(&done, &says);
        says_all(&done, &[words, &format!("\n{calls}\n")]);
        let tried = if calls > 1 { format!("({calls} attempts; {words}; {close})") } else { format!("({words})") };
        let job = script(&format!("{behave}\"$OURS\" --ssh-fast -H h true")).start().code(125);
        says_all(&job, &says);
        says_all(&job, &[&tried]);
    }
}

#[test]
fn an_open_connection_that_is_full_is_gone_round() {
    let full = "behave <<'EOF'\ncase \"$*\" in *ControlPath=none*) ;; *) \
                echo 'mux_client_request_session: session request failed: Session open refused by peer' >&2; exit 255;; \
                esac\nEOF\n";
    let done = script(&format!("{full}\"$OURS\" doctor --ssh-fast -H h; wc -l <\"$DIR/calls\"")).start().code(0);
    says_all(&done, &["ready in", "\n2"]);
}

#[test]
fn missing_ssh_is_reported() {
    let done =
        script("rm \"$DIR/bin/ssh\"; PATH=$DIR/bin; export PATH; \"$OURS\" doctor --ssh-fast -H h").start().code(125);
    says_all(&done, &["the command ssh cannot be started", "OpenSSH client"]);
}

#[test]
fn many_hosts_of_which_one_is_there() {
    let hosts: Vec<String> = (0..300).map(|n| format!("h{n}")).collect();
    let one = "behave <<'EOF'\ncase \"$*\" in *' h77 '*) ;; *) echo 'Connection refused' >&2; exit 255;; esac\nEOF\n";
    let done = script(&format!("{one}\"$OURS\" doctor --ssh-fast -H {}", hosts.join(","))).start().code(125);
    assert_eq!(done.out().matches("nothing listens on its ssh port").count(), 1, "hosts that fail alike are one part");
    says_all(&done, &["h0: nothing listens", "also    h[1-76,78-299]", "h77: ready in"]);
}

#[test]
fn a_doctor_lets_go_of_an_ssh_that_does_not_end_with_its_agent() {
    let stays =
        "behave <<'EOF'\ntrap '' TERM HUP; env HOME=\"$DIR/home\" sh -c \"$line\"; sleep 999 & wait; wait\nEOF\n";
    let done = script(&format!("{stays}\"$OURS\" doctor --ssh-fast -H h")).start().code(125);
    says_all(&done, &["h: the agent started, and ended badly: it did not end when it was let go"]);
}

/// The end of the connection is not noticed there, as with a cable that was cut.
#[test]
fn an_agent_that_a_doctor_cannot_let_go_ends_by_itself() {
    // The process there is started by the case itself, and not by ssh: it outlives that. `in` has no end.
    let behave = format!(
        "behave <<'EOF'\nprintf %s \"$line\" >\"$DIR/line\"; cat \"$DIR/out\" & head -c {} >\"$DIR/in\"; wait\nEOF\n",
        rlaunch_plan::bootstrap::PREAMBLE
    );
    let there = "mkfifo \"$DIR/in\" \"$DIR/out\" \"$DIR/line\"\n\
                 { line=$(cat \"$DIR/line\"); exec 9<>\"$DIR/in\"; HOME=\"$DIR/home\" sh -c \"$line\" <&9 9>&- | cat >\"$DIR/out\"; } &\n";
    let doctor = "\"$RL\" doctor --ssh-fast -H h --connect-timeout 5s; wait; exit 7";
    let done = script(&format!("{behave}{there}{doctor}")).mercy(Mercy::LostHosts).start().code(7);
    says_all(&done, &["h: the agent started, and ended badly: it did not end when it was let go"]);
}

#[test]
fn a_doctor_that_is_killed_takes_ssh_along() {
    let case = script(
        "behave <<'EOF'\necho here >&2; touch \"$DIR/ssh-runs\"; exec sleep 999\nEOF\n\
                       \"$OURS\" doctor --ssh-fast -H h & until [ -e \"$DIR/ssh-runs\" ]; do :; done; kill -KILL $!; wait $!",
    )
    .start();
    // Whom the kernel and the warden end has still to exit.
    assert_eq!(case.end_with(Mercy::All).exit, Exit::Code(137));
}

/// Neither ssh nor what it has started listens to requests to end.
#[test]
fn a_launcher_that_is_killed_takes_a_deaf_ssh_along() {
    let deaf = "behave <<'EOF'\ntrap '' TERM HUP; sleep 999 & touch \"$DIR/ssh-runs\"; wait; wait\nEOF\n";
    let job = "\"$RL\" --ssh-fast -H h true & until [ -e \"$DIR/ssh-runs\" ]; do :; done; kill -KILL $!; wait $!";
    let case = script(&format!("{deaf}{job}")).mercy(Mercy::LostHosts).start();
    assert_eq!(case.end().exit, Exit::Code(137));
}

/// On no command line, in no environment, and in nothing that is shown: as bytes, as hex, or as numbers.
#[test]
fn a_jobs_secret_is_nowhere_to_be_seen() {
    use rlaunch_plan::bootstrap::{PREAMBLE, Preamble};
    // The agent makes what it writes to non-blocking: with tee it must not share that.
    let behave = "behave <<'EOF'\ntee \"$DIR/stdin\" | sh -c \"$line\" | cat; exit\nEOF\n";
    let job = "RLAUNCH_LOG=trace \"$RL\" --events \"$DIR/log\" -H h -n 2 sh -c 'echo up; exec sleep 999'";
    let case = script(&format!("{behave}{job}")).start();
    case.says_on_stdout("up", 2);
    let dir = std::fs::read(format!("/proc/{}/environ", case.pid())).unwrap();
    let dir = dir.split(|b| *b == 0).find_map(|entry| entry.strip_prefix(b"DIR=")).unwrap();
    let dir = std::path::PathBuf::from(String::from_utf8_lossy(dir).into_owned());
    let sent = std::fs::read(dir.join("stdin")).unwrap();
    let secret = Preamble::parse(sent[..PREAMBLE].try_into().unwrap()).expect("a preamble").secret.0;
    let hex: String = secret.iter().map(|b| format!("{b:02x}")).collect();
    let decimal = format!("{secret:?}");
    let shows = |bytes: &[u8]| {
        let has = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
        has(&secret) || has(hex.as_bytes()) || has(hex.to_uppercase().as_bytes()) || has(decimal.as_bytes())
    };
    assert!(shows(&sent), "what is looked for can be found");
    let all = case.all_processes();
    assert!(all.iter().any(|p| p.comm == "rlaunch-agent") && all.iter().any(|p| p.comm == "sleep"), "{all:?}");
    for p in &all {
        for file in ["cmdline", "environ"] {
            // The files of a process that is not dumpable cannot be read.
            let seen = std::fs::read(format!("/proc/{}/{file}", p.pid)).unwrap_or_default();
            assert!(!shows(&seen), "{file} of {p:?}");
        }
    }
    assert!(!shows(&std::fs::read(dir.join("log")).unwrap()) && !shows(&std::fs::read(dir.join("calls")).unwrap()));
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(case.ours("rlaunch").expect("the launcher")),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    let done = case.end_with(Mercy::LostHosts);
    assert!(done.err().contains("TRACE") && !shows(done.err().as_bytes()) && !shows(&done.out));
}

/// The others may take longer than a lease, which is short, or people who type passwords are slow.
#[test]
fn a_host_that_is_ready_waits_for_the_others_for_longer_than_its_lease() {
    // The pause is the fault: longer than the lease, and than what a host that says nothing is waited for.
    let slow = "behave <<'EOF'\ncase \"$*\" in *' slow '*) sleep 5;; esac\nEOF\n";
    let job = "\"$RL\" --ssh-fast --lease 2s -H ready,slow sh -c 'echo $RANK'";
    let done = script(&format!("{slow}{job}")).start().code(0);
    assert_eq!(done.sorted(), ["0", "1"], "{}", done.err());
}

/// Names that a list accepts are given to ssh, and names that ssh would refuse are refused by the list: nothing in between.
#[test]
fn users_of_a_directory() {
    let job = "\"$RL\" --agent-path \"$RL\" -H 'svc$@h,eve@corp.example@h,CORP\\wim@h' echo up; grep -o -- ' -l .* -- h' \"$DIR/calls\" | sort";
    let done = script(job).start().code(0);
    assert_eq!(
        done.out(),
        "up\nup\nup\n -l CORP\\wim -- h\n -l eve@corp.example -- h\n -l svc$ -- h\n",
        "{}",
        done.err()
    );
    for command in ["doctor", "map", ""] {
        let last = if command == "doctor" { "" } else { "true" };
        let done = script(&format!("\"$OURS\" {command} -H 'a$b@h' {last}")).start().code(2);
        says_all(&done, &["-H, column 2: '$' cannot be here in a user name"]);
    }
}

/// The agent of the host has started, and receives nothing after the preamble, like one that hangs.
#[test]
fn a_host_that_is_reached_has_still_to_be_ready_in_time() {
    // The agent makes its output non-blocking: a reader there must not share that. `:` holds the pipe meanwhile.
    let hangs = format!(
        "behave <<'EOF'\ncase \"$*\" in *' hung '*) {{ head -c {}; cat >/dev/null; :; }} | HOME=\"$DIR/home\" sh -c \"$line\" | cat; \
         touch \"$DIR/over\"; exit;; esac\nEOF\n",
        rlaunch_plan::bootstrap::PREAMBLE
    );
    let job = "\"$RL\" --ssh-fast --lease 10m --connect-timeout 2s -H ready,hung";
    // No case waits for processes that the end of a connection ends.
    let run = |words: &str| script(&format!("{hangs}{job} {words}")).mercy(Mercy::LostHosts).start();
    let done = run("echo never").code(125);
    assert_eq!(done.out(), "");
    let late = "not ready within 2.0s: its agent has started, and is not heard of";
    done.says("error: 1 of 2 hosts cannot be reached; nothing was started\n").says(&format!("  hung    {late}\n"));
    // The hanging process there is ended while the job continues.
    let until = "until [ -e \"$DIR/over\" ]; do sleep 0.01; done; echo $RANK $WORLD_SIZE";
    let done = run(&format!("--min-hosts 1 sh -c '{until}'")).code(0);
    assert_eq!(done.out(), "0 1\n", "{}", done.err());
    done.says(&format!("continuing with 1 rank on 1 of 2 hosts, without hung: {late}\n"));
}

#[test]
fn bad_words_are_usage_errors() {
    for (words, says) in [
        ("doctor -H", "needs a value"),
        ("doctor -H -oProxyCommand=id", "cannot begin with"),
        ("doctor -H 'a;b'", "error: -H"),
        ("doctor --moon", "unknown option"),
        ("doctor -H h --connect-timeout soon", "--connect-timeout takes"),
    ] {
        let done = script(&format!("\"$OURS\" {words}")).start().code(2);
        says_all(&done, &[says]);
    }
    let done =
        Plan::shell("echo hello, this is not a launcher at all; exec \"$RL\" agent </dev/null").start().code(125);
    done.says("no word from the launcher");
}
