// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Runs the examples as processes.

use crate::support::job::{example, in_job, Job};
use crate::support::SIZES;

/// The lines that gather_reduce prints, by rank.
pub fn lines_of_gather_reduce(ranks: usize) -> Vec<String> {
    let gathered: Vec<String> =
        (0..ranks).flat_map(|owner| vec![owner.to_string(); owner + 1]).collect();
    let line = |rank| format!("{} | rank {rank}: {}", gathered.join(" "), rank * ranks);
    (0..ranks).map(line).collect()
}

#[test]
fn gather_reduce_prints_the_sums() {
    for size in SIZES {
        let arguments: [&str; 0] = [];
        let outputs = Job::new(example("gather_reduce"), &arguments, size).outputs();
        for (output, line) in outputs.iter().zip(lines_of_gather_reduce(size)) {
            assert_eq!(*output, line + "\n");
        }
    }
}

#[test]
fn an_unknown_option_is_an_error() {
    let (status, output) = Job::new(example("train"), &["--foo"], 1).finish().remove(0);
    assert!(!status.success() && output.is_empty(), "{status} {output}");
}

/// The losses that train prints on rank 0.
fn losses(arguments: &[&str], ranks: usize) -> Vec<f64> {
    let outputs = Job::new(example("train"), arguments, ranks).outputs();
    assert!(outputs[1..].iter().all(|output| output.is_empty()), "{outputs:?}");
    outputs[0].lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn training_has_the_same_losses_on_any_number_of_ranks() {
    assert!(!in_job());
    let expected = losses(&["--steps", "60"], 1);
    assert_eq!(expected.len(), 7, "a line for every tenth step, and the last: {expected:?}");
    assert!(expected[6] < 0.2 * expected[0], "the loss does not fall: {expected:?}");
    let modes = ["--replicated", "--sharded"];
    let runs = (1..=3).flat_map(|size| modes.map(|mode| (size, mode)));
    for (size, mode) in runs.chain([(5, "--sharded")]) {
        let found = losses(&["--steps", "60", mode], size);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            let difference = (found - expected).abs() / expected;
            assert!(difference < 1e-3, "{mode} on {size} ranks: {found} and {expected}");
        }
    }
}
