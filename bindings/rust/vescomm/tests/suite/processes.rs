// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Ranks that are processes: this program, started again.

use vescomm::{Buffer, Communicator, Error, Layout, Op};

use crate::support::job::{in_job, vescomm_run, Job};
use crate::support::{names_rank, ranks, SIZES};

/// Prints a line that the job waits for. libtest prints without a newline before it.
fn say(text: &str) {
    println!("\n{text}");
}

#[test]
fn the_environment_connects_processes() {
    if in_job() {
        let comm = Communicator::from_environment().unwrap();
        let counts: Vec<i64> = (0..comm.ranks() as i64).collect();
        let mut buffer =
            Buffer::<f64>::new(&comm, &Layout::from_counts(&counts).unwrap(), "x").unwrap();
        let mut gather = buffer.request().all_gather_v().unwrap();
        buffer.shard_mut().unwrap().fill(comm.rank() as f64);
        gather.run(&mut buffer).unwrap();
        let sum: i64 = buffer.data().unwrap().iter().map(|x| *x as i64).sum();
        comm.finalize().unwrap();
        return say(&format!("sum {sum}"));
    }
    for size in SIZES {
        let expected = (0..size).map(|k| k * k).sum::<usize>();
        let job = Job::of_test("processes::the_environment_connects_processes", size);
        for output in job.outputs() {
            assert!(output.contains(&format!("\nsum {expected}\n")), "{output}");
        }
    }
}

#[test]
fn a_killed_rank_is_named_and_the_others_go_on() {
    const VICTIM: usize = 1;
    if in_job() {
        let comm = Communicator::from_environment().unwrap();
        let mut buffer =
            Buffer::<f32>::new(&comm, &Layout::from_counts(&[9000; 3]).unwrap(), "x").unwrap();
        let mut sum = buffer.request().all_reduce(Op::Sum).unwrap();
        sum.run(&mut buffer).unwrap();
        say("ready");
        let error = loop {
            if let Err(error) = sum.run(&mut buffer) {
                break error;
            }
        };
        assert!(matches!(error, Error::PeerFailed(_)), "{error:?}");
        say(&format!("error: {error}"));
        assert_eq!(comm.barrier().unwrap_err(), error);

        let fewer = comm.shrink(&[]).unwrap();
        let mut ones = [1];
        fewer.all_reduce_in_place(&mut ones, Op::Sum).unwrap();
        fewer.finalize().unwrap();
        return say(&format!("{} of {} remain", ones[0], comm.ranks()));
    }
    let name = "processes::a_killed_rank_is_named_and_the_others_go_on";
    let mut job = Job::of_test(name, 3);
    job.wait_for_line("ready");
    job.ranks[VICTIM].process.kill().unwrap();
    for (rank, (status, output)) in job.finish().into_iter().enumerate() {
        assert_eq!(status.success(), rank != VICTIM, "rank {rank}: {status} {output}");
        if rank != VICTIM {
            let error = output.lines().find_map(|line| line.strip_prefix("error: ")).unwrap();
            assert!(names_rank(error, VICTIM), "{error}");
            assert!(output.contains("\n2 of 3 remain\n"), "{output}");
        }
    }
}

/// As threads do that a program does not join.
#[test]
fn communicators_are_made_while_the_process_exits() {
    use std::os::raw::c_int;
    extern "C" {
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    fn sum() -> i32 {
        let sums = ranks(2, |comm| {
            let mut ones = [1];
            comm.all_reduce_in_place(&mut ones, Op::Sum).unwrap();
            ones[0]
        });
        sums[1]
    }
    extern "C" fn late() {
        say(&format!("sum {} at the exit", sum()));
    }
    if in_job() {
        // SAFETY: the function lives as long as the program. It is called after the destructors of
        // everything that the library makes from here on.
        assert_eq!(unsafe { atexit(late) }, 0);
        assert_eq!(sum(), 2);
        return;
    }
    let name = "processes::communicators_are_made_while_the_process_exits";
    let outputs = Job::of_test(name, 1).outputs();
    assert!(outputs[0].contains("\nsum 2 at the exit\n"), "{}", outputs[0]);
}

#[test]
fn a_panic_of_one_process_ends_the_others() {
    if in_job() {
        // The panic may end the creation on the other ranks.
        let result = Communicator::from_environment().and_then(|comm| {
            assert_ne!(comm.rank(), 2, "the panic of the test");
            comm.barrier()
        });
        return say(&format!("error: {}", result.unwrap_err()));
    }
    let job = Job::of_test("processes::a_panic_of_one_process_ends_the_others", 3);
    for (rank, (status, output)) in job.finish().into_iter().enumerate() {
        assert_eq!(status.success(), rank != 2, "rank {rank}: {status} {output}");
        if rank != 2 {
            let error = output.lines().find_map(|line| line.strip_prefix("error: ")).unwrap();
            assert!(names_rank(error, 2), "{error}");
        }
    }
}

/// Rank 2 does not wait for the others, which wait for it.
#[test]
fn an_error_of_one_process_ends_the_others() {
    if in_job() {
        let comm = Communicator::from_environment().unwrap();
        let failed = comm.rank() == 2;
        let result = comm.finalize_after(|comm| -> Result<(), Box<dyn std::error::Error>> {
            comm.barrier()?; // on other ranks it may end with the error of rank 2
            if comm.rank() == 2 {
                return Err("data.bin is missing".into());
            }
            Ok(comm.barrier()?)
        });
        let error = result.unwrap_err().to_string();
        assert!(error.contains("data.bin is missing"), "{error}");
        assert!(failed || names_rank(&error, 2), "{error}");
        return;
    }
    Job::of_test("processes::an_error_of_one_process_ends_the_others", 3).outputs();
}

#[test]
fn a_program_that_succeeds_finalizes_the_communicator() {
    let results = crate::support::open_ranks(2, |comm| {
        comm.finalize_after(|comm| comm.barrier().map(|()| comm.rank() + 7))
    });
    assert_eq!(results, [Ok(7), Ok(8)]);
    let comm = Communicator::from_environment().unwrap();
    let result = comm.finalize_after(|comm| comm.abort("the test requests it"));
    assert!(matches!(result, Err(Error::Aborted(_))), "{result:?}");
}

#[test]
fn vescomm_run_starts_the_ranks() {
    if in_job() {
        return;
    }
    let launcher = match vescomm_run() {
        Some(launcher) => launcher,
        None => return eprintln!("skipped: no vescomm-run is beside the library or on PATH"),
    };
    let example = crate::support::job::example("gather_reduce");
    let done = std::process::Command::new(launcher)
        .args(["-n", "3", "--no-prefix"])
        .arg(example)
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{output}{}", String::from_utf8_lossy(&done.stderr));
    let mut lines: Vec<_> = output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, crate::examples::lines_of_gather_reduce(3));
}
