//! What other hosts say of a program: as much as this one would. ssh is a stand-in.

use crate::case::Done;
use crate::plan::Plan;
use crate::ssh::script;

/// These words on hosts, and whether any of them was called for.
fn on_hosts(before: &str, words: &str) -> Plan {
    let job =
        format!("\"$RL\" --agent-path \"$RL\" {words}; code=$?; [ ! -e \"$DIR/calls\" ] || echo called; exit $code");
    script(&format!("{before}\n{job}"))
}

/// Without notes about the machine.
fn told(done: &Done) -> String {
    done.err().split_inclusive('\n').skip_while(|line| !line.starts_with("error: ")).collect()
}

#[test]
fn a_program_that_cannot_be_started_is_the_same_mistake_everywhere() {
    let here = "cd \"$DIR\"; echo >x.py; chmod 644 x.py; cp x.py 'a b'";
    for (program, code, why, hint) in [
        ("/etc/passwd", 126, "may not be executed (permission denied)", Some("chmod +x /etc/passwd")),
        ("./x.py", 126, "may not be executed (permission denied)", Some("python3 ./x.py   or   chmod +x ./x.py")),
        ("'./a b'", 126, "may not be executed (permission denied)", Some("chmod +x './a b'")),
        ("/tmp", 126, "is a directory", None),
        ("./", 126, "is a directory", None),
    ] {
        let local = on_hosts(here, &format!("-n 1 {program} word")).start().code(code);
        let hint = hint.map(|hint| format!("  try     {hint}\n")).unwrap_or_default();
        let named = program.trim_matches('\'');
        assert_eq!(told(&local), format!("error: {named}: {why}\n{hint}"));
        let remote = on_hosts(here, &format!("-n 1 -H h {program} word")).start().code(code);
        assert_eq!(told(&remote), format!("error: {named} on h: {why}\n{hint}"));
    }
    for (program, hint) in [("''", "is a variable of your command line empty?"), ("no-such.py", "python3 no-such.py")] {
        for hosts in ["", "-H h", "-H localhost,h"] {
            let done = on_hosts(here, &format!("-n 2 {hosts} {program} word")).start().code(127);
            done.says(&format!("error: {program}")).says("no such file").says(&format!("\n  try     {hint}\n"));
        }
    }
}
