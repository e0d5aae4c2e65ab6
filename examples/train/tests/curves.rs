//! The built program under a hand-set environment: the promise of the example is that its curve does not depend on the number of ranks.
#![allow(clippy::disallowed_methods, reason = "the test stands in for a launcher and starts processes itself")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A port that was free a moment ago, below those that the kernel hands out by itself,
/// so that no other socket gets it meanwhile.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() * 16;
    let candidates = std::iter::repeat_with(|| 10_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000);
    let mut ports = candidates.map(|port| u16::try_from(port).unwrap());
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

/// Runs the program as `size` ranks and returns what each printed. Size 0 is a run outside any launcher.
fn run(size: usize, args: &str) -> Vec<Output> {
    let port = free_port();
    let start = |rank: usize| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
        command.args(args.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"] {
            command.env_remove(name);
        }
        if size > 0 {
            command
                .env("RANK", rank.to_string())
                .env("LOCAL_RANK", rank.to_string())
                .env("WORLD_SIZE", size.to_string());
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        }
        command.spawn().unwrap()
    };
    let ranks: Vec<_> = (0..size.max(1)).map(start).collect();
    ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect()
}

/// Rank 0's epochs as (loss, accuracy), after checking that all ranks succeeded and only rank 0 spoke.
fn curve(size: usize, args: &str) -> Vec<(f64, f64)> {
    let outputs = run(size, args);
    for (rank, output) in outputs.iter().enumerate() {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "rank {rank} of {size}: {} {errors}", output.status);
        assert_eq!(output.stdout.is_empty(), rank != 0, "rank {rank} of {size}");
    }
    let text = String::from_utf8(outputs[0].stdout.clone()).unwrap();
    let epochs = text.lines().filter(|line| line.starts_with("epoch"));
    let numbers = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((words[2], words[4], words[5]), ("loss", "held-out", "accuracy"), "{line}");
        (words[3].parse().unwrap(), words[6].parse().unwrap())
    };
    epochs.map(numbers).collect()
}

/// Sums in another order may round the last printed digit of the loss the other way.
fn assert_same(one: &[(f64, f64)], other: &[(f64, f64)], what: &str) {
    assert_eq!(one.len(), other.len(), "{what}");
    for (epoch, (a, b)) in one.iter().zip(other).enumerate() {
        assert!((a.0 - b.0).abs() < 1.5e-4 && (a.1 - b.1).abs() < 1e-9, "{what}, epoch {}: {a:?} and {b:?}", epoch + 1);
    }
}

#[test]
fn training_is_equal_with_one_two_and_four_ranks() {
    let alone = curve(1, "");
    assert_eq!(alone.len(), 20);
    assert!(alone[19].1 >= 95.0, "held-out accuracy is only {} %", alone[19].1);
    for size in [2, 4] {
        assert_same(&alone, &curve(size, ""), &format!("{size} ranks"));
    }
}

#[test]
fn batches_that_do_not_divide_and_ranks_without_images_change_nothing() {
    let alone = curve(0, "--epochs 2 --batch 50");
    assert_same(&alone, &curve(3, "--epochs 2 --batch 50"), "3 ranks, batches of 50");
    let alone = curve(0, "--epochs 1 --batch 2 --hidden 4");
    assert_same(&alone, &curve(5, "--epochs 1 --batch 2 --hidden 4"), "5 ranks, batches of 2");
    let alone = curve(0, "--epochs 2 --batch 5000");
    assert_same(&alone, &curve(2, "--epochs 2 --batch 5000"), "2 ranks, one batch");
}

#[test]
fn a_seed_gives_another_curve() {
    assert_ne!(curve(0, "--epochs 1 --seed 1"), curve(0, "--epochs 1 --seed 2"));
}

#[test]
fn mistakes_are_reported_on_standard_error() {
    let output = &run(0, "--batch none")[0];
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "train: --batch \"none\": give a number from 1 to 1000000\n");
    assert!(output.stdout.is_empty());
    let help = &run(0, "--help")[0];
    assert!(help.status.success() && help.stderr.is_empty());
    assert!(String::from_utf8_lossy(&help.stdout).contains("--epochs N"));
}
