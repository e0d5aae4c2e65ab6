//! Soaks: runs as many seeds as one likes.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

const USAGE: &str = "usage: rlaunch-sim [--standing] [--seeds N] [--from S]";

fn options() -> Result<(u64, u64, bool), &'static str> {
    let (mut seeds, mut from, mut standing) = (500, 0, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--standing" {
            standing = true;
            continue;
        }
        let value = args.next().and_then(|text| text.parse().ok()).ok_or(USAGE)?;
        match arg.as_str() {
            "--seeds" => seeds = value,
            "--from" => from = value,
            _ => return Err(USAGE),
        }
    }
    Ok((seeds, from, standing))
}

fn main() -> ExitCode {
    let (seeds, from, standing) = match options() {
        Ok(options) => options,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    let run = if standing { rlaunch_sim::run_standing } else { rlaunch_sim::run };
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
