//! Errors on the way to a host, reported by their cause: with the stand-in for ssh.

use crate::census::Mercy;
use crate::ssh::{says_all, script};

/// A stand-in that says this on stderr and fails as ssh does.
fn fails(words: &str) -> String {
    format!("behave <<'EOF'\ncat >&2 <<'END'\n{words}\nEND\nexit 255\nEOF\n")
}

#[test]
fn a_key_that_others_may_read_is_named() {
    let words = "@@@@@@@@@@@@@@@@@@@@@@@@@@\n@ WARNING: UNPROTECTED PRIVATE KEY FILE! @\n@@@@@@@@@@@@@@@@@@@@@@@@@@\n\
                 This private key will be ignored.\nLoad key \"/home/eve/.ssh/id\": bad permissions\n\
                 eve@h: Permission denied (publickey).";
    let done = script(&format!("{}\"$OURS\" doctor --ssh-fast -H h", fails(words))).start().code(125);
    says_all(&done, &["Load key \"/home/eve/.ssh/id\": bad permissions; eve@h: Permission denied"]);
    says_all(&done, &["chmod 600 /home/eve/.ssh/id"]);
    assert!(!done.out().contains("@@@"), "{}", done.out());
}

#[test]
fn denied_login_names_untried_methods() {
    let denied = fails("eve@h: Permission denied (publickey).");
    for prompt in [false, true] {
        let option = if prompt { "--ssh-prompt" } else { "" };
        let job = format!("{denied}\"$OURS\" doctor --ssh-fast {option} -H h </dev/null");
        let done = script(&job).start().code(125);
        says_all(&done, &["ssh-copy-id h, once", "ssh-add, for a key with a passphrase"]);
        assert_eq!(done.out().contains("--ssh-prompt"), !prompt, "{}", done.out());
    }
}

#[test]
fn a_changed_key_is_named_by_its_file() {
    let words = |file: &str| {
        format!(
            "@@@@@@@@@@@@@@@@@@@@@@@@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n@@@@@@@@@@@@@@@@@@@@@@@@@@\n\
             IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\nOffending RSA key in {file}:3\n\
             Host key for h has changed and you have requested strict checking.\nHost key verification failed."
        )
    };
    for (file, keygen) in [
        ("/home/eve/.ssh/known_hosts", "ssh-keygen -f /home/eve/.ssh/known_hosts -R h, then ssh h"),
        ("/etc/ssh/our hosts", "ssh-keygen -f '/etc/ssh/our hosts' -R h, then ssh h"),
    ] {
        let done = script(&format!("{}\"$OURS\" doctor --ssh-fast -H h", fails(&words(file)))).start().code(125);
        says_all(&done, &["the host's key is not the one that ssh knows", keygen]);
        says_all(&done, &[&format!("Offending RSA key in {file}:3; Host key for h has changed")]);
    }
}

#[test]
fn path_that_names_no_agent_is_reported_with_the_reason() {
    for (path, says) in [
        ("/no/where", "it is not there"),
        ("/etc", "it is a directory"),
        ("/bin/true", "/bin/true is no rlaunch of this version, or cannot run there (exit code 0)"),
        ("/usr/bin/yes", "/usr/bin/yes is no rlaunch: it was started there, and prints what no agent says"),
    ] {
        let done = script(&format!("\"$OURS\" doctor --ssh-fast -H h --agent-path {path}")).start().code(125);
        says_all(&done, &[says]);
    }
    let done = script("\"$OURS\" doctor --ssh-fast -H h --agent-path bin/rlaunch").start().code(2);
    says_all(&done, &["--agent-path takes an absolute path"]);
}

/// A start-up file starts the printer, which prints when the job runs.
#[test]
fn a_printer_in_the_background_of_a_login_shell_is_quoted() {
    let prints = "behave <<'EOF'\n\
                  { until [ -e \"$DIR/go\" ]; do sleep 0.01; done; echo 'mail for you, 3 messages'; } &\nEOF\n";
    let job = "\"$RL\" --ssh-fast --lease 2s -H h sh -c 'touch \"$DIR/go\"; exec sleep 999'";
    let done = script(&format!("{prints}{job}")).start().end_with(Mercy::LostHosts);
    let text = done.err();
    let cause = text.find("h printed unexpected text among the messages of its agent: 'mail for you, 3 messages'");
    let report = text.find("the agent on h was lost");
    assert!(cause.is_some() && cause < report, "{text}");
    says_all(&done, &["try     shell start-up files that print nothing without a terminal"]);
}

#[test]
fn interrupt_before_start_names_awaited_hosts() {
    let hangs = "behave <<'EOF'\ncase \"$*\" in *' hung '*) exec sleep 999;; esac\nEOF\n";
    let job = "\"$RL\" --ssh-fast -H ready,hung true & until grep -q ' hung ' \"$DIR/calls\" 2>/dev/null; do sleep 0.01; done; \
               kill -TERM $!; wait $!";
    let done = script(&format!("{hangs}{job}")).mercy(Mercy::LostHosts).start().code(143);
    says_all(&done, &["got SIGTERM: nothing was started; was waiting for "]);
    assert!(
        done.err().lines().any(|line| line.contains("was waiting for ") && line.contains("hung")),
        "{}",
        done.err()
    );
}
