//! Hosts with a real sshd, private to the case: its own configuration, keys and port on loopback.

use crate::case::{Case, Done};
use crate::census::{self, Mercy};
use crate::place;
use crate::plan::Plan;
use crate::watch::Exit;
use std::io::Write as _;

/// Starts sshd as `$SSHD` and makes `ssh` use `$DIR/config`. `$OURS` is rlaunch under a path that no remote line can name. sshd takes any
/// free port: the kernel gives one, and a lost race is met by trying again.
const SSHD: &str = r#"
mkdir -p "$DIR/bin" "$DIR/o'dd" "$DIR/cache"; chmod 755 "$DIR"; chmod 700 "$DIR/cache"
OURS="$DIR/o'dd/rlaunch"; ln "$RL" "$OURS" 2>/dev/null || cp "$RL" "$OURS"
for k in host user other; do ssh-keygen -q -t ed25519 -N '' -f "$DIR/$k" || exit 98; done
cp "$DIR/user.pub" "$DIR/keys"
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
start_sshd() {
  for try in 1 2 3 4 5 6 7 8; do
    PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    cat >"$DIR/sshd_config" <<EOF
Port $PORT
ListenAddress 127.0.0.1
HostKey $DIR/host
AuthorizedKeysFile $DIR/keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
LogLevel INFO
SetEnv XDG_CACHE_HOME=$DIR/cache
$1
EOF
    # What sshd overwrites of its environment names no case: it must not outlive this one.
    setpriv --pdeathsig TERM /usr/sbin/sshd -D -e -f "$DIR/sshd_config" 2>"$DIR/sshd.log" & SSHD=$!
    until grep -q "Server listening" "$DIR/sshd.log"; do kill -0 $SSHD 2>/dev/null || continue 2; done
    return
  done
  cat "$DIR/sshd.log"; exit 97
}
start_sshd "$SSHD_MORE"
trap 'kill $SSHD; wait $SSHD' EXIT
echo "[127.0.0.1]:$PORT $(cat "$DIR/host.pub")" >"$DIR/known"
configure() {
  { cat; cat <<EOF
Host *
  HostName 127.0.0.1
  Port $PORT
  IdentityFile $DIR/user
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile $DIR/known
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
EOF
  } >"$DIR/config"; }
configure </dev/null
printf '#!/bin/sh\nexec /usr/bin/ssh -F "%s/config" "$@"\n' "$DIR" >"$DIR/bin/ssh"; chmod 755 "$DIR/bin/ssh"
PATH="$DIR/bin:$PATH"; export PATH DIR
"#;

fn with_sshd(script: &str) -> Option<Plan> {
    let tools = ["ssh", "ssh-keygen", "python3"].iter().all(|tool| place::has(tool));
    if !tools || !std::path::Path::new("/usr/sbin/sshd").is_file() {
        place::absent("a real sshd", "OpenSSH or python3 is not installed");
        return None;
    }
    Some(Plan::shell(&format!("{SSHD}\n{script}")))
}

fn says(done: &Done, what: &[&str]) {
    let text = format!("{}{}", done.out(), done.err());
    what.iter().for_each(|what| assert!(text.contains(what), "does not say {what:?}:\n{text}"));
}

#[test]
fn cold_and_warm() {
    let Some(plan) = with_sshd("\"$OURS\" doctor -H h && \"$OURS\" doctor -H a,b,c,d --ssh-fast") else { return };
    let done = plan.start().code(0);
    says(
        &done,
        &[
            "h: ready in",
            "agent in cache (was sent)",
            "; clock ",
            "  has     ",
            "  contain tier T",
            "  limits  nofile ",
        ],
    );
    says(&done, &["--ssh-fast, tried on h, saves "]);
    assert_eq!(done.out().matches("agent in cache (was there)").count(), 4, "{}", done.out());
}

#[test]
fn each_forced_option_holds_against_its_opposite() {
    let opposite = [
        "SessionType none",
        "RequestTTY force",
        "RemoteCommand echo no",
        // That port is taken.
        "LocalForward 127.0.0.1:$PORT 127.0.0.1:1\n  ExitOnForwardFailure yes",
        "ForwardX11 yes\n  ForwardX11Trusted yes",
        "ForkAfterAuthentication yes",
        "StdinNull yes",
        "ControlMaster yes\n  ControlPath $DIR/master\n  ControlPersist 60",
        "LogLevel QUIET",
        "LogLevel ERROR",
        "IgnoreUnknown Moon\n  Moon yes",
        // Mistyped: ssh by itself refuses it.
        "Moon yes",
    ];
    for option in opposite {
        let script = format!(
            "configure <<EOF\nHost *\n  {option}\nEOF\n\"$OURS\" doctor --ssh-fast -H h --connect-timeout 20s || exit\n\
             [ ! -e \"$DIR/master\" ] || {{ ssh -O exit h; exit 5; }}"
        );
        let Some(plan) = with_sshd(&script) else { return };
        says(&plan.start().code(0), &["h: ready in"]);
    }
}

/// ssh says less with each, and what is done depends on what it says.
#[test]
fn messages_of_ssh_are_read_at_any_log_level() {
    for level in ["QUIET", "FATAL", "ERROR"] {
        let script = format!("printf 'Host *\\n  LogLevel {level}\\n' | configure; \"$OURS\" doctor --ssh-fast -H h");
        let Some(plan) = with_sshd(&script) else { return };
        let done = plan.env("SSHD_MORE", "MaxSessions 0").start().code(125);
        says(&done, &["h: it takes no session, on a connection of its own either (2 attempts)\n"]);
    }
}

#[test]
fn hooks_ask_for_nothing() {
    // BatchMode: without it ssh would ask for the passphrase, or whether to accept the key; where there is no terminal, this one.
    let script = "ssh-keygen -q -p -N secret -f \"$DIR/user\"; printf 'Host *\\n  BatchMode no\\n' | configure\n\
                  printf '#!/bin/sh\\necho \"$1\" >>\"$DIR/asked\"\\n' >\"$DIR/ask\"; chmod 755 \"$DIR/ask\"\n\
                  export SSH_ASKPASS=\"$DIR/ask\" SSH_ASKPASS_REQUIRE=force DISPLAY=:9\n\
                  \"$OURS\" doctor --ssh-fast -H h; code=$?; [ ! -e \"$DIR/asked\" ] || exit 5; exit $code";
    let Some(plan) = with_sshd(script) else { return };
    says(&plan.start().code(125), &["h: ssh was denied access", "ssh-copy-id h", "Permission denied"]);
}

#[test]
fn a_wrong_key_is_denied_once_and_a_changed_host_key_never_overridden() {
    let script = "cp \"$DIR/other.pub\" \"$DIR/keys\"; \"$OURS\" doctor --ssh-fast -H h; echo \"code $?\"\n\
                  cp \"$DIR/user.pub\" \"$DIR/keys\"\n\
                  echo \"[127.0.0.1]:$PORT $(cat \"$DIR/other.pub\")\" >\"$DIR/known\"; cp \"$DIR/known\" \"$DIR/before\"\n\
                  \"$OURS\" doctor --ssh-fast -H h; echo \"code $?\"; cmp \"$DIR/known\" \"$DIR/before\" || exit 5\n\
                  : >\"$DIR/known\"; \"$OURS\" doctor --ssh-fast -H h";
    let Some(plan) = with_sshd(script) else { return };
    let done = plan.start().code(125);
    says(&done, &["h: ssh was denied access\n", "the host's key is not the one that ssh knows"]);
    says(&done, &["ssh does not know the host's key", "code 125"]);
}

/// Word for word.
#[test]
fn advice_about_keys_helps() {
    let script = "advised() { \"$OURS\" doctor --ssh-fast -H h >\"$DIR/said\"; cat \"$DIR/said\"\n\
                  eval \"$(sed -n 's/^  try .*\\(ssh-keygen .*\\), then ssh h$/\\1/p; s/^  try  *\\(chmod .*\\):.*/\\1/p' \"$DIR/said\")\"; }\n\
                  echo \"[127.0.0.1]:$PORT $(cat \"$DIR/other.pub\")\" >\"$DIR/known\"\n\
                  advised; [ ! -s \"$DIR/known\" ] || exit 5\n\
                  echo \"[127.0.0.1]:$PORT $(cat \"$DIR/host.pub\")\" >\"$DIR/known\"\n\
                  chmod 644 \"$DIR/user\"; advised; \"$OURS\" doctor --ssh-fast -H h";
    let Some(plan) = with_sshd(script) else { return };
    let done = plan.start().code(0);
    says(&done, &["Offending ED25519 key in ", ": bad permissions; ", "h: ready in"]);
}

#[test]
fn names_and_ports_that_lead_nowhere() {
    let script = "printf 'Host nobody\\n  HostName no-such-host.invalid\\nHost closed\\n  Port 1\\n' | configure\n\
                  \"$OURS\" doctor -H nobody,closed,h";
    let Some(plan) = with_sshd(script) else { return };
    let done = plan.start().code(125);
    says(&done, &["nobody: the name does not resolve", "closed: nothing listens on its ssh port", "h: ready in"]);
}

#[test]
fn an_open_connection_is_used_and_one_that_is_full_gone_round() {
    let script = "printf 'Host *\\n  ControlPath %s/master\\n' \"$DIR\" | configure\n\
                  ssh -M -N h & MASTER=$!; until ssh -O check h 2>/dev/null; do kill -0 $MASTER || exit 96; done\n\
                  cp \"$DIR/other.pub\" \"$DIR/keys\"; \"$OURS\" doctor --ssh-fast -H h || exit 5; echo shared\n\
                  ssh -O exit h 2>/dev/null; wait $MASTER; true";
    let Some(plan) = with_sshd(script) else { return };
    says(&plan.start().code(0), &["h: ready in", "shared"]);
    let script = "printf 'Host *\\n  ControlPath %s/master\\n' \"$DIR\" | configure\n\
                  mkfifo \"$DIR/hold\"; ssh -M h \"echo on >'$DIR/on'; exec cat '$DIR/hold'\" & MASTER=$!\n\
                  until [ -s \"$DIR/on\" ]; do kill -0 $MASTER || exit 96; done\n\
                  \"$OURS\" doctor --ssh-fast -H h; code=$?; : >\"$DIR/hold\"; wait $MASTER; exit $code";
    let Some(plan) = with_sshd(script) else { return };
    says(&plan.env("SSHD_MORE", "MaxSessions 1").start().code(0), &["h: ready in"]);
}

/// A pool and its jobs need only one session at a time.
#[test]
fn pool_needs_one_session_of_its_connection() {
    let script = "P=p$$; \"$OURS\" pool up $P -H h || exit 5; i=0\n\
                  while [ $i -lt 3 ]; do \"$OURS\" --pool $P -n 1 echo job $i || exit 6; i=$((i+1)); done\n\
                  \"$OURS\" pool down $P || exit 7; \"$OURS\" --pool $P true";
    let Some(plan) = with_sshd(script) else { return };
    let done = plan.env("SSHD_MORE", "MaxSessions 1").start().code(125);
    says(&done, &["is up with 1 host", "job 0\njob 1\njob 2\n", "error: there is no pool p"]);
    let Some(plan) = with_sshd("\"$OURS\" pool up p$$ -H h; code=$?; \"$OURS\" pool status; exit $code") else {
        return;
    };
    let done = plan.env("SSHD_MORE", "MaxSessions 0").start().code(125);
    says(&done, &["has no host: none was reached", "h: lost: "]);
}

#[test]
fn killed_launcher_leaves_no_process_behind_a_proxy() {
    let script = "printf 'Host *\\n  ProxyCommand sh -c \"touch %s/proxy; exec cat\"\\n' \"$DIR\" | configure\n\
                  \"$OURS\" doctor --ssh-fast -H h & until [ -e \"$DIR/proxy\" ]; do :; done; kill -KILL $!; wait $!; exit 0";
    let Some(plan) = with_sshd(script) else { return };
    assert!(plan.start().end_with(Mercy::All).exit == Exit::Code(0));
}

#[test]
fn a_proxy_that_hangs_ends_with_the_launcher() {
    // The process reads nothing, so that the end of a stream has no effect on it.
    let script = "printf 'Host *\n  ProxyCommand sh -c \"touch %s/proxy; exec sleep 999\"\n' \"$DIR\" | configure\n\
                  \"$OURS\" doctor --ssh-fast -H h & until [ -e \"$DIR/proxy\" ]; do :; done; kill -KILL $!; wait $!; exit 0";
    let Some(plan) = with_sshd(script) else { return };
    assert!(plan.start().end_with(Mercy::All).exit == Exit::Code(0));
}

/// At a terminal, with a key that has the passphrase `secret`; what the test writes to stdin is typed.
fn asked(command: &str) -> Option<Case> {
    if !place::has("script") {
        return None;
    }
    let script = format!("ssh-keygen -q -p -N secret -f \"$DIR/user\"; OURS=$OURS script -qec '{command}' /dev/null");
    Some(with_sshd(&script)?.stdin_pipe().start())
}

/// Until ssh waits for an answer: a signal between its question and its read is seen only after a key (readpassphrase(3)).
fn wait_for_the_read(case: &Case) {
    let reads = format!("{} ", nix::libc::SYS_read);
    let call = |pid| std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    census::wait_until("ssh reads", || case.ours("ssh").is_some_and(|pid| call(pid).starts_with(&reads)));
}

#[test]
fn with_prompts_each_host_asks_in_turn() {
    let Some(mut case) = asked("\"$OURS\" doctor -H a,b --ssh-prompt") else { return };
    let mut typed = case.take_stdin();
    case.says_on_stdout("Enter passphrase", 1);
    // Ctrl-Z would stop ssh alone: it asks again.
    wait_for_the_read(&case);
    typed.write_all(b"\x1a").unwrap();
    case.says_on_stdout("Enter passphrase", 2);
    typed.write_all(b"secret\n").unwrap();
    case.says_on_stdout("Enter passphrase", 3);
    typed.write_all(b"wrong\n").unwrap();
    case.says_on_stdout("Enter passphrase", 4);
    typed.write_all(b"secret\n").unwrap();
    case.until("the end", |seen| seen.exit);
    drop(typed);
    let done = case.code(0);
    says(&done, &["a: ready in", "b: ready in"]);
    assert!(!done.out().contains("secret"), "{}", done.out());
}

#[test]
fn an_interrupt_at_a_prompt_is_meant_for_all() {
    let Some(mut case) = asked("\"$OURS\" doctor -H a,b --ssh-prompt; echo code $?") else { return };
    let mut typed = case.take_stdin();
    case.says_on_stdout("Enter passphrase", 1);
    wait_for_the_read(&case);
    typed.write_all(b"\x03").unwrap();
    case.says_on_stdout("code 130", 1);
    case.until("the end", |seen| seen.exit);
    drop(typed);
    let done = case.code(0);
    assert_eq!(done.out().matches("Enter passphrase").count(), 1, "{}", done.out());
}

#[test]
fn host_that_takes_two_logins_at_a_time_gets_all_logins() {
    // The six begin together, and sshd cuts off the third one.
    let Some(plan) = with_sshd("\"$OURS\" doctor --ssh-fast -H a,b,c,d,e,f") else { return };
    let done = plan.env("SSHD_MORE", "MaxStartups 2").start().code(0);
    assert_eq!(done.out().matches(": ready in").count(), 6, "{}", done.out());
}

#[test]
fn a_jump_host_that_does_not_forward_is_named_as_that() {
    let script =
        "printf 'Host h\\n  ProxyCommand ssh -W %%h:%%p gate\\n' | configure; \"$OURS\" doctor --ssh-fast -H h";
    let Some(plan) = with_sshd(script) else { return };
    let done = plan.env("SSHD_MORE", "AllowTcpForwarding no").start().code(125);
    says(
        &done,
        &["h: its jump host forbids to forward connections\n", "administratively prohibited", "ssh -G h names"],
    );
}

#[test]
fn a_host_that_takes_no_session_is_named_as_that() {
    let Some(plan) = with_sshd("\"$OURS\" doctor --ssh-fast -H h") else { return };
    let done = plan.env("SSHD_MORE", "MaxSessions 0").start().code(125);
    says(&done, &["h: it takes no session, on a connection of its own either (2 attempts)\n", "MaxSessions"]);
}

#[test]
fn eight_at_a_time_behind_a_proxy_that_is_an_ssh() {
    // Each says when it comes and when it has been refused; 8 come before the first of them is.
    let script = "mkdir \"$DIR/live\"; cat >\"$DIR/bin/ssh\" <<'EOF'\n#!/bin/sh\n\
                  case $1 in -G) echo asked >>\"$DIR/log\"; echo 'proxycommand ssh -W %h:%p gate'; exit;; esac\n\
                  : >\"$DIR/live/$$\"; until [ -e \"$DIR/full\" ] || [ $(ls \"$DIR/live\" | wc -l) -ge 8 ]; do :; done\n\
                  : >\"$DIR/full\"; ls \"$DIR/live\" | wc -l >>\"$DIR/log\"; rm \"$DIR/live/$$\"\n\
                  echo 'Connection refused' >&2; exit 255\nEOF\n\
                  \"$OURS\" doctor -H n[1-30]; cat \"$DIR/log\" >&2";
    let Some(plan) = with_sshd(script) else { return };
    let done = plan.start().code(0);
    let log = done.err();
    let most = log.lines().filter_map(|line| line.trim().parse::<u32>().ok()).max();
    assert!(most.is_some_and(|most| most <= 8), "{log}");
    assert_eq!(log.matches("asked").count(), 1, "{log}");
    let report = done.out();
    assert_eq!(report.matches("nothing listens").count(), 1, "{report}");
    assert!(report.contains("also    n[2-30]\n"), "{report}");
}
