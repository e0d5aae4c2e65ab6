//! What people type who know another launcher, or who mistype ours.

use super::{argv, at_site, run};

#[test]
fn what_others_ask_for_and_we_do_anyway_is_taken() {
    for line in [
        "--oversubscribe --allow-run-as-root -n 2 a",
        "-oversubscribe --bind-to none -n2 a",
        "--bind-to=none --cpu_bind none --gpu-bind=NONE -n 2 a",
        "--standalone --nproc_per_node=2 --run-path --monitor_interval 1 --start-method fork --no-python a",
        "--rdzv-backend c10d --rdzv_endpoint=localhost:0 --rdzv-id 7 --max_restarts=0 --node_rank 0 -n 2 a",
        "--mpi=none --kill-on-bad-exit --distribution=block -n 2 a",
        "--kill-on-bad-exit=1 --unbuffered -n 2 a",
        "-genvall -launcher ssh -n 2 a",
        "--map-by slot:OVERSUBSCRIBE -n 2 a",
    ] {
        let run = run(line);
        assert_eq!(argv(&run), ["a"], "{line}");
        assert_eq!(at_site(0, |site| run.place(site)).unwrap().seats.len(), 2, "{line}");
    }
    let run = run("--bind-to none --oversubscribe --kill-on-bad-exit -n 2 a : --allow-run-as-root b");
    let same: Vec<String> = run.presentation.same.iter().map(ToString::to_string).collect();
    assert_eq!(same, ["--bind-to none", "--oversubscribe", "--kill-on-bad-exit", "--allow-run-as-root"]);
}

#[test]
fn a_word_that_is_nearly_a_command() {
    use crate::cli::command_like;
    assert_eq!(
        ["mapp", "host", "docter", "verison"].map(|word| command_like(word.as_bytes())),
        [Some("map"), Some("hosts"), Some("doctor"), Some("version")]
    );
    assert_eq!(["train", "m", "python3", ""].map(|word| command_like(word.as_bytes())), [None; 4]);
}
