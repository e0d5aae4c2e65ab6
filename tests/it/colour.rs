//! Colour: on terminals, and nowhere else unless it is asked for.

use crate::case::Done;
use crate::census;
use crate::place;
use crate::plan::Plan;

const RED: &str = "\u{1b}[1m\u{1b}[31m";
const CYAN: &str = "\u{1b}[36m";

/// A job of two ranks, of which one fails, in a terminal of 40 columns with these variables.
fn at_terminal(variables: &str, words: &str) -> Option<Done> {
    if !place::has("script") {
        return None;
    }
    let job = format!(
        "stty cols 40; env -u NO_COLOR -u CLICOLOR_FORCE {variables} \"$RL\" -n 2 -l --on-failure continue {words}; true"
    );
    Some(Plan::shell("exec script -qec \"$COMMAND\" /dev/null").env("COMMAND", &job).start().code(0))
}

const FAILS: &str = "sh -c 'echo hello; exit $RANK'";

#[test]
fn terminal_gets_colour() {
    let Some(done) = at_terminal("TERM=xterm LC_ALL=C", FAILS) else { return };
    let out = done.out();
    assert!(out.contains("\u{1b}[36m0: \u{1b}[0mhello") && out.contains("\u{1b}[32m1: \u{1b}[0mhello"), "{out:?}");
    assert!(out.contains(&format!("rlaunch: {RED}rank 1 failed first: exit 1 after ")), "{out:?}");
    let Some(done) = at_terminal("TERM=xterm", "./absent") else { return };
    assert!(done.out().contains(&format!("{RED}error:")), "{:?}", done.out());
    let Some(done) = at_terminal("TERM=xterm", "--labl") else { return };
    assert!(done.out().contains(&format!("{CYAN}  try     --label")), "{:?}", done.out());
}

#[test]
fn users_without_colour_get_none() {
    for (variables, option) in
        [("TERM=dumb", ""), ("TERM=xterm NO_COLOR=1", ""), ("TERM=xterm", "--color never "), ("CLICOLOR=0", "")]
    {
        let Some(done) = at_terminal(variables, &format!("{option}{FAILS}")) else { return };
        assert!(!done.out().contains('\u{1b}'), "{variables} {option}: {:?}", done.out());
    }
}

#[test]
fn pipes_and_files_get_none_unless_asked_for() {
    let done = Plan::rlaunch(["-n", "2", "-l", "--on-failure", "continue", "sh", "-c", "echo hello; exit $RANK"])
        .env("TERM", "xterm")
        .start()
        .code(1);
    assert!(!done.out().contains('\u{1b}') && !done.err().contains('\u{1b}'), "{}{}", done.out(), done.err());
    for (option, variable) in [("always", ""), ("auto", "CLICOLOR_FORCE"), ("auto", "RLAUNCH_COLOR")] {
        let plan = Plan::rlaunch(["-n", "2", "-l", "--on-failure", "continue"]);
        let plan =
            if variable == "RLAUNCH_COLOR" { plan.env(variable, "always") } else { plan.args(["--color", option]) };
        let plan = if variable == "CLICOLOR_FORCE" { plan.env(variable, "1") } else { plan };
        let done = plan.args(["sh", "-c", "echo hello; exit $RANK"]).start().code(1);
        assert!(
            done.out().contains("\u{1b}[36m0: \u{1b}[0mhello") && done.err().contains(RED),
            "{option} {variable}: {}",
            done.err()
        );
    }
    // A log file stays plain, whatever is asked for.
    let script = "exec \"$RL\" -n 2 -l --color always --log-dir \"$DIR/logs\" -r 3 sh -c 'echo hello'";
    let done = Plan::shell(script).start().code(0);
    let mut search = std::process::Command::new("grep");
    let output = census::output(search.args(["-r", "\u{1b}"]).arg(done.scratch.dir()));
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
}
