//! Programs of files, and the numbers of their ranks.

use super::{at_site, refused, run};
use crate::cli::Program;
use rlaunch_plan::place::Note;

#[test]
fn number_after_the_program_is_worth_a_note() {
    let notes = |line: &str| {
        let placement = at_site(0, |site| run(line).place(site)).unwrap_or_else(|error| panic!("{}", error.render()));
        placement.notes.iter().filter(|note| matches!(note, Note::PassedOn(_, n) if n.as_slice() == b"4")).count()
    };
    let lines = ["./a -n 4", "./a x -np 4 y", "-n 1 ./a -n 4", "./a -n four", "./a -n"];
    assert_eq!(lines.iter().map(|line| notes(line)).collect::<Vec<_>>(), [1, 1, 0, 0, 0]);
}

#[test]
fn programs_of_a_file_equal_programs_of_a_line_with_colons() {
    let shown = |line: &str| {
        let describe = |program: &Program| {
            let argv: Vec<_> = program.argv.iter().map(ToString::to_string).collect();
            format!("{}: {}", program.n.unwrap_or(0), argv.join("|"))
        };
        run(line).programs.iter().map(describe).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(shown("-l -configfile conf"), "1: echo|ping|20, 2: echo|pong pong");
    assert_eq!(shown("--app=conf"), "1: echo|ping|20, 2: echo|pong pong");
    assert_eq!(shown("-n 4 --multi-prog multi"), "1: echo|one|0, 1: echo|one|1, 1: two, 1: echo|one|2");
    let error = |line: &str| refused(line, &[]).unwrap_or_default();
    assert!(
        error("--app conf ./a").starts_with("error: --app takes a file that names a program, and no other program")
    );
    assert!(
        error("--app gone").starts_with("error: --app takes a file of programs (no such file"),
        "{}",
        error("--app gone")
    );
    for line in
        ["--app conf --app hosts", "--app conf --multi-prog", "-n 4 --multi-prog --app conf multi", "--app nested"]
    {
        assert!(error(line).contains(": a command line has one file of programs"), "{line}: {}", error(line));
    }
    assert!(error("-n 9 --multi-prog multi").contains("a program for each rank, and rank 4 has none"));
}
