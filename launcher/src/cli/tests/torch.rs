//! torchrun's command line.

use super::super::site::{Known, NoNodeset, Runs, Site};
use super::super::table::{self, Row};
use super::{at_site, error, plan, run, run_with, sole, with};
use rlaunch_base::id::{JobId, LocalRank};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::place::Here;
use rlaunch_protocol::env::{Export, Role as VarRole};
use rlaunch_protocol::spec::JobSpec;
use std::ffi::OsString;
use std::sync::Arc;

/// Returns the command of a program where these files are and `env` is set; and the notes about it.
fn becomes(line: &str, files: &[(&str, Runs)], env: &[(&str, &str)]) -> (String, Vec<String>) {
    let mut run = run(line);
    let runs =
        |path: &OsBytes| files.iter().find(|(name, _)| path.as_slice() == name.as_bytes()).map(|(_, runs)| *runs);
    let done = run.interpret(&Site {
        here: Here { name: "me".into(), cpus: 2 },
        units: &|_| 1,
        gpus: &|| None,
        ask: &|_, _| Ok(Vec::new()),
        read: &|_| Err(std::io::Error::from_raw_os_error(2)),
        is_file: &|_| false,
        near: &|_| None,
        runs: &runs,
        has_input: &|| false,
        directory: &|| None,
        env: &|name| env.iter().find(|(own, _)| *own == name).map(|(_, value)| OsString::from(*value)),
        groups: &Known::new(&NoNodeset),
        turn: &|_| Err(std::io::ErrorKind::Unsupported.into()),
    });
    done.unwrap();
    let words: Vec<String> = sole(&run).argv.iter().map(ToString::to_string).collect();
    (words.join(" "), run.presentation.interpreted.iter().map(ToString::to_string).collect())
}

#[test]
fn python_runs_the_same_programs_as_with_torchrun() {
    use Runs::{Itself, Never};
    let files = [
        ("train.py", Never),
        ("./run.py", Itself),
        ("run.py", Itself),
        ("w/train.py", Never),
        ("/bin/tool.py", Itself),
        ("/bin/python3", Itself),
    ];
    let env = [("PATH", "/sbin:/bin")];
    let argv = |line: &str| becomes(line, &files, &env).0;
    for (line, words) in [
        ("-n 2 train.py --lr 1", "python3 -u train.py --lr 1"),
        ("-n 2 ./run.py a", "./run.py a"),
        ("-n 2 run.py a", "python3 -u run.py a"),
        ("-n 2 tool.py a", "tool.py a"),
        ("-n 2 absent.py a", "absent.py a"),
        ("-n 2 --wdir w train.py", "python3 -u train.py"),
        ("-n 2 ./train -m x.py", "./train -m x.py"),
        ("-n 2 --no-python train.py", "train.py"),
        ("--nproc-per-node 2 ./run.py a", "python3 -u ./run.py a"),
        ("--nproc_per_node=2 absent.py", "python3 -u absent.py"),
        ("--standalone --nproc-per-node 2 ./train", "./train"),
        ("--standalone --nproc-per-node 2 python3 train.py", "python3 train.py"),
        ("--nproc-per-node 2 --no-python ./run.py", "./run.py"),
        ("-m pkg.train --lr 1", "python3 -u -m pkg.train --lr 1"),
        ("--module -n 2 pkg", "python3 -u -m pkg"),
    ] {
        assert_eq!(argv(line), words, "{line}");
    }
    assert_eq!(becomes("train.py", &files, &env).1, ["train.py is run by python3 -u (/bin/python3)"]);
    let only = [("train.py", Never), ("/bin/python", Itself)];
    assert_eq!(becomes("train.py", &only, &env).0, "python -u train.py");
    assert_eq!(becomes("-H b train.py", &only, &env).0, "python3 -u train.py", "its PATH is another");
    assert_eq!(becomes("train.py", &only, &[("PYTHON_EXEC", "/v/bin/py")]).0, "/v/bin/py -u train.py");
    assert_eq!(becomes("train.py", &only[..1], &env).0, "python3 -u train.py", "and then it is not found");
    let both = at_site(0, |site| run("-m --no-python x").interpret(site)).unwrap_err();
    assert!(both.render().starts_with("error: -m runs a module by Python"), "{}", both.render());
}

#[test]
fn torchrun_options_choose_the_agents_store() {
    let why = |line: &str| {
        let run = run(line);
        at_site(0, |site| run.holder(&run.place(site).unwrap(), &[], site)).unwrap().code()
    };
    for line in
        ["--nproc-per-node 1 a", "-n 1 --standalone a", "-n 2 --rdzv_backend c10d a", "-t 3 -n 1 a", "-m a", "-r0 a"]
    {
        assert_eq!(why(line), "torchrun", "{line}");
    }
    assert_eq!(why("--ppn 2 --nnodes 1 a"), "not_python");
    assert_eq!(why("-n 1 --log-dir x a"), "alone");
}

fn job(line: &str, env: &[(&str, &str)]) -> Arc<JobSpec> {
    let run = run_with(line, env);
    at_site(4, |site| run.into_plan(JobId([0xab; 16]), [], site)).unwrap().job
}

#[test]
fn log_files_have_torchruns_layout() {
    let logs = |line: &str| job(line, &[]).apps[0].base.logs.clone();
    assert_eq!(logs("-n 2 a"), None);
    let stem = |line: &str| {
        let logs = logs(line).unwrap();
        (logs.stem(0, 0).map(|stem| stem.to_string()), logs.private)
    };
    let id = "ab".repeat(16);
    assert_eq!(stem("--log-dir /l -n 2 a"), (Some(format!("/l/{id}_0/attempt_0/")), false));
    assert_eq!(stem("--log_dir=l -n 2 a"), (Some(format!("/home/u/l/{id}_0/attempt_0/")), false));
    assert_eq!(stem("-r 3 -n 2 a"), (Some(format!("/tmp/torchelastic_{id}/{id}_0/attempt_0/")), true));
    assert_eq!(stem("--log-dir /l --rdzv-id a/b -n 2 a"), (Some("/l/a_b_abababab_0/attempt_0/".into()), false));
    assert_eq!(stem("--log-dir /dev/null -r 3 -n 2 a"), (None, false));
    assert_eq!(stem("--local-ranks-filter 0 -n 2 a"), (None, false));
    let ways = logs("--log-dir /l -t 0:1 -r 1:3 -n 2 a").unwrap().ways(LocalRank::new(1));
    assert!(ways.iter().all(|way| way.file && !way.shown));
    for (line, said) in [
        ("-r 4 a", "-r takes 0 to 3 (1: stdout, 2: stderr, 3: both), or LOCAL_RANK:N,..., got '4'"),
        ("--tee 0:1,x a", "--tee takes 0 to 3"),
        ("--log-dir= a", "--log-dir takes a directory"),
        ("--local-ranks-filter x a", "--local-ranks-filter takes local ranks"),
        (
            "--master-port 0 a",
            "--master-port takes a port, 1 to 65535, got '0'\n  try     no --master-port: rlaunch finds",
        ),
        ("--master-port 65536 a", "--master-port takes a port, 1 to 65535"),
        ("--master-port x a", "--master-port takes a port, 1 to 65535"),
        ("--local-addr x a", "--local-addr is no option"),
        ("--node-rank 1 a", "--node-rank 1 is no option"),
    ] {
        let text = error(line);
        assert!(text.contains(said) && text.contains("\n  try "), "{line}: {text}");
    }
}

#[test]
fn rendezvous_options_of_torchrun_are_accepted() {
    let run = run("--master_addr h --master-port 7 --rdzv-id r -x MASTER_PORT=8 -n 1 a : -n 1 b");
    let set = |name: &str, value: &str| Export::Set { name: name.into(), value: value.into() };
    let all = [set("MASTER_ADDR", "h"), set("MASTER_PORT", "7"), set("TORCHELASTIC_RUN_ID", "r")];
    assert_eq!(run.programs[0].exports, [all.as_slice(), &[set("MASTER_PORT", "8")]].concat(), "-x is nearer");
    assert_eq!(run.programs[1].exports, all);
}

#[test]
fn a_rank_among_hosts_is_taken_only_where_it_is_the_first() {
    let refused = |line: &str, rank: &str| match with(line, &[("PET_NODE_RANK", rank)]) {
        Ok(_) => None,
        Err(error) => Some(error.render()),
    };
    let text = refused("--nproc-per-node 2 a", "1").expect("refused");
    assert!(
        text.starts_with("error: PET_NODE_RANK=1 (environment) is no option") && text.contains("\n  try "),
        "{text}"
    );
    let both = refused("--nproc-per-node 2 --grace x a : -n y b", "1").expect("refused");
    let errors: Vec<_> = both.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(
        matches!(errors[..], [rank, grace, n] if rank.contains("PET_NODE_RANK") && grace.contains("--grace") && n.contains("-n")),
        "{both}"
    );
    for (line, rank) in [
        ("--nproc-per-node 2 a", "0"),
        ("--nproc-per-node 2 a", ""),
        ("--nproc-per-node 2 --node_rank=0 a", "1"),
        ("-n 2 a", "1"),
    ] {
        assert_eq!(refused(line, rank), None, "{line} {rank}");
    }
}

#[test]
fn arguments_are_filled_in_only_where_torchruns_options_are_used() {
    let filled = |line: &str| plan(line).job.apps[0].base.filled;
    assert!(filled("--nproc-per-node 2 a ${local_rank}") && !filled("--nproc-per-node 2 a b"));
    assert!(!filled("-n 2 a ${local_rank}"));
}

#[test]
fn variables_of_torchrun_count_below_variables_of_rlaunch() {
    let env = [("PET_NPROC_PER_NODE", "3"), ("PET_NNODES", "1:1"), ("PET_RDZV_ID", "r"), ("PET_LOG_DIR", "/l")];
    let ranks = |line: &str, more: &[(&str, &str)]| job(line, &[&env, more].concat()).placement.ranks.len();
    assert_eq!(ranks("--standalone a", &[]), 3);
    assert_eq!(ranks("a", &[]), 1, "without torchrun's options they do not count");
    assert_eq!(ranks("-n 4 a", &[]), 4);
    assert_eq!(ranks("--standalone --ppn 2 a", &[]), 2);
    assert_eq!(ranks("--standalone a", &[("RLAUNCH_PPN", "1")]), 1);
    assert_eq!(
        job("--standalone a", &env).apps[0].base.logs.as_ref().unwrap().stem(1, 0).unwrap(),
        "/l/r_abababab_1/attempt_0/".into()
    );
    assert!(sole(&run_with("--standalone a", &[("PET_MODULE", "1"), ("PET_NO_PYTHON", "0")])).python.module);
    let both = [("PET_MODULE", "1"), ("PET_NO_PYTHON", "1")];
    let refused = at_site(4, |site| run_with("--standalone a", &both).into_plan(JobId([0xab; 16]), [], site))
        .unwrap_err()
        .render();
    assert!(
        refused.contains("PET_MODULE (environment) runs a module by Python, and PET_NO_PYTHON (environment)"),
        "{refused}"
    );
    let said = |line: &str| sole(&run_with(line, &both)).python;
    assert!(said("-m a").module && !said("-m a").no_python && !said("--no-python a").module, "options say it");
    for row in table::rows() {
        let read =
            |name: &str| rlaunch_protocol::env::lookup(name.as_bytes()).is_some_and(|var| var.role == VarRole::Read);
        assert!(super::super::torch::variable(row).is_none_or(|name| read(&name)), "{:?}", Row::typed(row));
    }
}
