//! The harness itself goes red when it should: without this, no green of the others means anything.

use crate::case::Case;
use crate::census::{self, Mercy};
use crate::plan::Plan;

/// A program that leaves this behind.
fn leaving(what: &str) -> Case {
    Plan::shell(&format!("{what}\nexit 0")).start()
}

#[test]
#[should_panic(expected = "left behind")]
fn a_process_that_got_away_is_noticed() {
    leaving("setsid sleep 77 </dev/null >/dev/null 2>&1 &").code(0);
}

#[test]
#[should_panic(expected = "left behind")]
fn leak_is_noticed_without_our_tag() {
    let _alone = census::alone();
    let bare = "while grep -q TEST_CASE_TAG /proc/$!/environ; do :; done";
    leaving(&format!("env -i setsid sleep 77 </dev/null >/dev/null 2>&1 &\n{bare}")).code(0);
}

#[test]
#[should_panic(expected = "left behind")]
fn leak_is_noticed_where_a_moment_is_given() {
    leaving("(sh -c 'exec sleep 77' </dev/null >/dev/null 2>&1 &)").end_with(Mercy::All);
}

#[test]
#[should_panic(expected = "left behind")]
fn a_name_of_ours_does_not_excuse_for_long() {
    leaving("cp /bin/sleep \"$DIR/rlaunch-guard\"; \"$DIR/rlaunch-guard\" 77 </dev/null >/dev/null 2>&1 &").code(0);
}

#[test]
fn a_name_of_ours_is_given_a_moment() {
    let named = "while kill -0 $! && ! grep -q agent /proc/$!/comm; do :; done 2>/dev/null";
    let script = "cp /bin/sleep \"$DIR/rlaunch-agent\"\n\"$DIR/rlaunch-agent\" 0.02 </dev/null >/dev/null 2>&1 &";
    leaving(&format!("{script}\n{named}")).code(0);
}

#[test]
#[should_panic(expected = "ended with Code(3), not Code(0)")]
fn another_exit_code_is_noticed() {
    Plan::shell("exit 3").start().code(0);
}

#[test]
#[should_panic(expected = "before it was finished")]
fn unfinished_case_is_noticed() {
    drop(Plan::shell("exec sleep 77").start());
}

#[test]
#[should_panic(expected = "does not parse")]
fn a_broken_event_log_is_noticed() {
    Plan::shell("echo '{\"v\":1,' >\"$RLAUNCH_EVENTS\"").with_events().start().code(0);
}

#[test]
#[should_panic(expected = "in mid-line")]
fn a_cut_event_log_is_noticed() {
    Plan::shell("printf '{\"v\":1}' >\"$RLAUNCH_EVENTS\"").with_events().start().code(0);
}
