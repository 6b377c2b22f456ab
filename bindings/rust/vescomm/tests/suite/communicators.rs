// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Creating, dividing and ending communicators, and what any thread may do with one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use vescomm::{CommOptions, Communicator, Error, LogLevel, Op};

use crate::support::{names_rank, open_ranks, options, ranks, Exchange, SIZES};

fn sum(comm: &Communicator, value: usize) -> usize {
    let mut data = [value as u64];
    comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
    data[0] as usize
}

#[test]
fn ranks_and_nodes_are_those_of_the_job() {
    for size in SIZES {
        let infos = ranks(size, |comm| {
            let info = comm.info().unwrap();
            assert_eq!((info.rank, info.ranks), (comm.rank(), comm.ranks()));
            assert_eq!((info.node, info.nodes, info.local_ranks), (0, 1, size));
            assert_eq!(format!("{comm:?}"), format!("rank {} of {size}", comm.rank()));
            info.local_rank
        });
        assert_eq!(infos, (0..size).collect::<Vec<_>>());
    }
}

#[test]
fn an_explicit_address_connects_the_ranks() {
    let one = Communicator::new(0, 1, "", "", &options()).unwrap();
    assert_eq!(sum(&one, 7), 7);
    one.finalize().unwrap();
    let error = Communicator::new(3, 2, "127.0.0.1:1", "a secret", &options()).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
    let error = Communicator::new(0, usize::MAX, "127.0.0.1:1", "", &options()).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
    let error = Communicator::new(0, 2, "host\0", "", &options()).unwrap_err();
    assert!(error.sentence().contains("NUL"), "{error}");
}

#[test]
fn a_communicator_is_split_by_color_and_key() {
    for size in SIZES {
        ranks(size, |comm| {
            let rank = comm.rank();
            // Even ranks in reverse order, odd ranks but the last one in order.
            let color = match rank % 2 {
                0 => Some(0),
                _ => Some(1).filter(|_| rank + 1 < size),
            };
            let key = if rank % 2 == 0 { -(rank as i32) } else { 0 };
            let part = comm.split(color, key, &CommOptions::default()).unwrap();
            assert_eq!(part.is_some(), color.is_some());
            let (part, color) = match (part, color) {
                (Some(part), Some(color)) => (part, color as usize),
                _ => return,
            };
            let in_it = |k: &usize| k % 2 == color && (color == 0 || k + 1 < size);
            let members: Vec<usize> = (0..size).filter(in_it).collect();
            let position = members.iter().position(|k| *k == rank).unwrap();
            let expected = if rank % 2 == 0 { members.len() - 1 - position } else { position };
            assert_eq!((part.rank(), part.ranks()), (expected, members.len()));
            assert_eq!(sum(&part, rank), members.iter().sum());
            part.finalize().unwrap();
        });
    }
}

#[test]
fn a_negative_color_is_no_color() {
    open_ranks(2, |comm| {
        let color = if comm.rank() == 0 { -3 } else { 3 };
        let error = comm.split(Some(color), 0, &CommOptions::default()).unwrap_err();
        assert!(error.sentence().contains("the color is -3"), "{error}");
        if comm.rank() == 0 {
            assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
        }
    });
}

#[test]
fn a_duplicate_is_for_another_thread() {
    for size in SIZES {
        ranks(size, |comm| {
            let other = comm.dup(&CommOptions::default()).unwrap();
            thread::scope(|scope| {
                let thread = scope.spawn(move || {
                    let total = (0..200).map(|i| sum(&other, i)).sum::<usize>();
                    other.finalize().unwrap();
                    total
                });
                for i in 0..200 {
                    assert_eq!(sum(comm, i), i * size);
                }
                assert_eq!(thread.join().unwrap(), (0..200).sum::<usize>() * size);
            });
        });
    }
}

#[test]
fn the_survivors_shrink_to_a_communicator_of_their_own() {
    for size in [2, 3, 5] {
        let lost = 1;
        open_ranks(size, |comm| {
            if comm.rank() == lost {
                comm.abort("the test excludes this rank").unwrap();
                return;
            }
            let error = comm.barrier().unwrap_err();
            assert!(matches!(error, Error::Aborted(_)), "{error:?}");
            assert!(names_rank(error.sentence(), lost), "{error}");
            let fewer = comm.shrink(&[lost]).unwrap();
            assert_eq!(fewer.ranks(), size - 1);
            assert_eq!(fewer.rank(), comm.rank() - usize::from(comm.rank() > lost));
            assert_eq!(sum(&fewer, 1), size - 1);
            fewer.finalize().unwrap();
            assert!(comm.barrier().is_err());
        });
    }
}

#[test]
fn any_thread_observes_progresses_and_aborts() {
    open_ranks(2, |comm| {
        let handle = comm.handle();
        if comm.rank() == 0 {
            let observed = thread::spawn(move || {
                handle.progress().unwrap();
                let metrics = handle.metrics().unwrap();
                assert!(metrics.contains("vescomm_broken") && metrics.contains("rank=\"0\""));
                assert!(handle.counters().unwrap().busy_seconds >= 0.0);
                handle.abort("another thread requests it").unwrap();
                handle
            });
            let handle = observed.join().unwrap();
            drop(comm);
            // The handle outlives the communicator.
            assert_eq!(handle.info().unwrap().ranks, 2);
            assert!(matches!(handle.progress(), Err(Error::Aborted(_))));
            return;
        }
        let mut data = [0.0f32];
        let error = comm.receive(&mut data, 0).unwrap_err();
        assert!(error.sentence().contains("another thread requests it"), "{error}");
        assert!(names_rank(error.sentence(), 0), "{error}");
    });
}

#[test]
fn a_panic_aborts_the_communicator_that_it_drops() {
    let exchange = Exchange::new(2);
    let create = |rank: usize| {
        let all_gather = |mine: &[u8], all: &mut [u8]| exchange.all_gather(rank, mine, all);
        let comm = Communicator::from_all_gather(rank, 2, all_gather, &options()).unwrap();
        exchange.all_gather(rank, &[], &mut []).unwrap(); // the other one is created too
        comm
    };
    thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let _comm = create(0);
            panic!("of the test");
        });
        let comm = create(1);
        let error = comm.barrier().unwrap_err();
        assert!(error.sentence().contains("panic") && names_rank(error.sentence(), 0), "{error}");
        assert!(panics.join().is_err());
    });
}

#[test]
fn the_callers_all_gather_may_fail_or_panic() {
    let fails = |_: &[u8], _: &mut [u8]| Err("the store is gone");
    let error = Communicator::from_all_gather(0, 2, fails, &options()).unwrap_err();
    assert!(matches!(error, Error::System(_)), "{error:?}");
    assert!(error.sentence().ends_with("the store is gone"), "{error}");

    let panics = std::panic::catch_unwind(|| {
        let panics = |_: &[u8], _: &mut [u8]| -> Result<(), String> { panic!("in the function") };
        let _ = Communicator::from_all_gather(0, 2, panics, &options());
    });
    assert_eq!(*panics.unwrap_err().downcast_ref::<&str>().unwrap(), "in the function");
}

#[test]
fn after_finalize_nothing_starts() {
    open_ranks(2, |comm| {
        comm.finalize().unwrap();
        comm.finalize().unwrap();
        assert!(matches!(comm.barrier(), Err(Error::InvalidArgument(_))));
        assert_eq!(comm.info().unwrap().ranks, 2);
    });
}

#[test]
fn a_handle_outlives_its_communicator() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let comm = Communicator::from_environment().unwrap();
    let handle = comm.handle();
    drop(comm);
    assert_eq!(handle.info().unwrap().ranks, 1);
    handle.counters().unwrap();
    assert!(handle.metrics().unwrap().contains("vescomm"));
    handle.flight_recorder_write(folder.join("outlived.json")).unwrap();
    handle.progress().unwrap();
    handle.trace_start(0).unwrap();
    handle.trace_add_span("a", "b", 0.0, 1.0).unwrap();
    let array = vescomm::RegisteredArray::<f32>::new(&handle, 4).unwrap();
    handle.abort("the test requests it").unwrap();
    assert!(matches!(handle.progress(), Err(Error::Aborted(_))));
    assert_eq!(*array, [0.0; 4]);
}

#[test]
fn traces_and_recordings_are_files() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    ranks(3, |comm| {
        comm.trace_start(0).unwrap();
        let begin = vescomm::trace_seconds();
        sum(comm, 1);
        comm.trace_add_span("a \"span\"", "compute", begin, vescomm::trace_seconds()).unwrap();
        let error = comm.trace_add_span("back", "compute", 2.0, 1.0).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
        comm.trace_write(folder.join("trace.json")).unwrap();
        comm.flight_recorder_write(folder.join("flight-%r.json")).unwrap();
        let recording =
            std::fs::read_to_string(folder.join(format!("flight-{}.json", comm.rank()))).unwrap();
        assert!(recording.contains("all_reduce"), "{recording}");
    });
    let trace = std::fs::read_to_string(folder.join("trace.json")).unwrap();
    assert_eq!(trace.matches("a \\\"span\\\"").count(), 3, "{trace}");
}

#[test]
fn the_log_goes_to_a_function_that_cannot_call_back() {
    struct PanicsAgain;
    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            panic!("the destructor of what a panic carries");
        }
    }
    // Other tests of this process log too.
    static LINES: AtomicUsize = AtomicUsize::new(0);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keep = seen.clone();
    vescomm::set_log(move |level, line| {
        let refused = Communicator::from_environment().map(drop);
        LINES.fetch_add(1, Ordering::Relaxed);
        keep.lock().unwrap().push((level, line.to_string(), refused));
        // Contained, and so is the panic of its destructor.
        std::panic::panic_any(PanicsAgain)
    })
    .unwrap();
    // A misspelt variable is a warning. It is set in the process of this test only.
    if crate::support::job::in_job() {
        let comm = Communicator::from_environment().unwrap();
        comm.finalize().unwrap();
        let seen = seen.lock().unwrap();
        let (level, line, refused) = &seen[0];
        assert_eq!(*level, LogLevel::Warn);
        assert!(line.contains("VESCOMM_MISSPELT"), "{line}");
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
        assert_eq!(seen.len(), LINES.load(Ordering::Relaxed));
        vescomm::log_to_standard_error().unwrap();
        return;
    }
    vescomm::log_to_standard_error().unwrap();
    let name = "communicators::the_log_goes_to_a_function_that_cannot_call_back";
    let environment = [("VESCOMM_MISSPELT", "1")];
    crate::support::job::Job::of_test_with(name, 1, &environment).outputs();
}
