//! `rlaunch completions` and `rlaunch man`, as the shells and the formatter of manual pages read them.

use crate::census::Mercy;
use crate::place;
use crate::plan::Plan;

/// Command lines with the cursor at the end, and a word that must be offered.
const OFFERED: [(&str, &str); 7] = [
    ("rlaunch --max-resta", "--max-restarts"),
    ("rlaunch -n 2 --lab", "--label"),
    ("rlaunch -q --stdin n", "none"),
    ("rlaunch doct", "doctor"),
    ("rlaunch doctor --ssh-f", "--ssh-fast"),
    ("rlaunch completions z", "zsh"),
    ("rlaunch map --dry-r", "--dry-run"),
];

/// The output of a script in this shell; nothing where there is no such shell.
fn in_shell(shell: &str, script: &str) -> Option<String> {
    let script = format!("cat >\"$DIR/script\" <<'END'\n{script}\nEND\nHOME=\"$DIR\" exec {shell} \"$DIR/script\"");
    // zsh completes in processes of its own, and waits for none of them.
    place::has(shell).then(|| Plan::shell(&script).mercy(Mercy::All).start().code(0).out())
}

/// Each line of output has the word that belongs to its command line.
fn offers(out: &str) {
    assert!(out.lines().count() >= OFFERED.len(), "{out}");
    for ((line, word), offered) in OFFERED.iter().zip(out.lines()) {
        assert!(offered.split(' ').any(|own| own == *word), "{line}: {offered}");
    }
}

#[test]
fn bash_completes_options_commands_and_values() {
    let lines: String = OFFERED.iter().map(|(line, _)| format!("offer {line}\n")).collect();
    let script = format!(
        r#""$RL" completions bash >"$DIR/rlaunch" && . "$DIR/rlaunch" || exit 1
offer() {{
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _rlaunch
    printf '%s\n' "${{COMPREPLY[*]}}"
}}
{lines}mkdir "$DIR/sub dir" && cd "$DIR" && offer rlaunch --wdir = sub
echo "program:$(offer rlaunch -n 2 sort --max)"
complete -p rlaunch"#
    );
    let Some(out) = in_shell("bash", &script) else { return };
    offers(&out);
    assert!(out.contains("\nsub dir\nprogram:\ncomplete "), "{out}");
}

#[test]
fn fish_completes_options_commands_and_values() {
    let lines =
        OFFERED.iter().map(|(line, _)| format!("echo (complete -C \"{line}\" | string replace -r '\\t.*' '')\n"));
    let script = format!(
        "$RL completions fish >$DIR/r.fish; and source $DIR/r.fish; or exit 1\n{}\
         echo program: (complete -C 'rlaunch -n 2 sort --max-resta')",
        lines.collect::<String>()
    );
    let Some(out) = in_shell("fish", &script) else { return };
    offers(&out);
    assert!(!out.lines().last().unwrap_or_default().contains("--max-restarts"), "{out}");
}

/// The line editor completes at a terminal only.
#[test]
fn zsh_completes_options_commands_and_values() {
    let lines = OFFERED.iter().map(|(line, word)| {
        format!("zpty -w -n shell '{line}'$'\\t'\nzpty -r -m shell text '*{word}*' || exit 1\nprint -r -- {word}\nzpty -w -n shell $'\\C-u'\n")
    });
    let script = format!(
        r#"mkdir "$DIR/f" && "$RL" completions zsh >"$DIR/f/_rlaunch" || exit 1
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'fpath=($DIR/f $fpath); autoload -U compinit; compinit -u -d $DIR/dump; setopt no_list_beep; print -r RE"ADY"'
zpty -r -m shell text '*READY*' || exit 1
{}zpty -w shell exit
while zpty -r shell text; do :; done"#,
        lines.collect::<String>()
    );
    let Some(out) = in_shell("zsh", &script) else { return };
    offers(&out);
}

#[test]
fn the_manual_page_has_no_faults() {
    if !place::has("groff") {
        return;
    }
    let script = "\"$RL\" man >\"$DIR/rlaunch.1\" && groff -man -Tutf8 -P-cbou -ww \"$DIR/rlaunch.1\"";
    let done = Plan::shell(script).start().code(0);
    assert_eq!(done.err(), "", "faults");
    let text = done.out();
    for word in ["SYNOPSIS", "--max-restarts N", "EXIT STATUS", "RLAUNCH DOCTOR"] {
        assert!(text.contains(word), "{word} is missing: {text}");
    }
}
