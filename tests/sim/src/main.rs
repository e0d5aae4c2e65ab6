//! Soaks: runs as many seeds as one likes.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

const USAGE: &str =
    "usage: rlaunch-sim [--standing|--hosts|--restarts|--scheduled|--slices|--worlds|--rounds] [--seeds N] [--from S]";

type Run = fn(u64) -> Result<(), String>;

fn options() -> Result<(u64, u64, Run), &'static str> {
    let (mut seeds, mut from, mut run) = (500, 0, rlaunch_sim::run as Run);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--standing" => {
                run = rlaunch_sim::run_standing;
                continue;
            }
            "--hosts" => {
                run = rlaunch_sim::run_hosts;
                continue;
            }
            "--rounds" => {
                run = rlaunch_sim::run_rounds;
                continue;
            }
            "--scheduled" => {
                run = rlaunch_sim::run_scheduled;
                continue;
            }
            "--slices" => {
                run = rlaunch_sim::run_slices;
                continue;
            }
            "--worlds" => {
                run = rlaunch_sim::run_worlds;
                continue;
            }
            "--restarts" => {
                run = rlaunch_sim::run_restarts;
                continue;
            }
            _ => {}
        }
        let value = args.next().and_then(|text| text.parse().ok()).ok_or(USAGE)?;
        match arg.as_str() {
            "--seeds" => seeds = value,
            "--from" => from = value,
            _ => return Err(USAGE),
        }
    }
    Ok((seeds, from, run))
}

fn main() -> ExitCode {
    let (seeds, from, run) = match options() {
        Ok(options) => options,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    for seed in from..from.saturating_add(seeds) {
        if let Err(report) = run(seed) {
            eprintln!("{report}");
            return ExitCode::FAILURE;
        }
    }
    match writeln!(std::io::stdout(), "{seeds} seeds from {from}: all promises held") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
