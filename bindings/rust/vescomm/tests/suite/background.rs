// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Calls on arrays that run while the program continues.

use std::panic::{catch_unwind, AssertUnwindSafe};

use vescomm::{call, Barrier, Buffer, Communicator, Error, Layout, Op, RegisteredArray};

use crate::support::{names_rank, open_ranks, options, ranks, SIZES};

#[test]
fn a_call_that_owns_its_arrays_gives_them_back() {
    for size in SIZES {
        ranks(size, |comm| {
            let rank = comm.rank() as i32;
            let arrays = (vec![rank; 5000], vec![0; 5000 * size]);
            let address = arrays.1.as_ptr();
            let mut gather = comm.start(arrays, |(from, to)| call::all_gather(from, to)).unwrap();
            while !gather.test().unwrap() {
                comm.progress().unwrap();
            }
            let (_, all) = gather.wait().unwrap();
            assert_eq!(all.as_ptr(), address);
            for (k, block) in all.chunks_exact(5000).enumerate() {
                assert!(block.iter().all(|x| *x == k as i32));
            }
        });
    }
}

#[test]
fn values_of_any_type_can_hold_the_arrays() {
    struct Gradients {
        small: [f32; 3],
        registered: RegisteredArray<f64>,
        unused: String,
    }
    for size in SIZES {
        ranks(size, |comm| {
            let mut registered = RegisteredArray::new(comm, 1000).unwrap();
            registered.fill(2.0);
            let gradients = Gradients { small: [1.0; 3], registered, unused: "kept".to_string() };
            let sums = comm.start(gradients, |gradients| {
                call::group([
                    call::all_reduce_in_place(&mut gradients.small, Op::Sum),
                    call::all_reduce_in_place(&mut gradients.registered, Op::Sum),
                ])
            });
            let gradients = sums.unwrap().wait().unwrap();
            assert_eq!(gradients.small, [size as f32; 3]);
            assert!(gradients.registered.iter().all(|x| *x == 2.0 * size as f64));
            assert_eq!(gradients.unused, "kept");
        });
    }
}

/// Ranks wait on several communicators in different orders.
#[test]
fn waits_make_progress_on_other_communicators() {
    const COUNT: usize = 300_000; // several chunks, which each rank has to move
    for size in SIZES {
        ranks(size, |comm| {
            let others: Vec<_> = (0..3).map(|_| comm.dup(&options()).unwrap()).collect();
            let all: Vec<&Communicator> = others.iter().collect();
            let start = |comm| -> vescomm::Pending<'_, Vec<f32>> {
                Communicator::start(comm, vec![1.0; COUNT], |data| {
                    call::all_reduce_in_place(data, Op::Sum)
                })
                .unwrap()
            };
            let mut running: Vec<_> = others.iter().map(|comm| Some(start(comm))).collect();
            for k in 0..3 {
                let next = running[(k + comm.rank()) % 3].take().unwrap();
                let data = next.wait_with(&all).unwrap();
                assert!(data.iter().all(|x| *x == size as f32));
            }
            drop(running);
            for other in others {
                other.finalize().unwrap();
            }
        });
    }
}

#[test]
fn a_wait_reports_the_failure_of_another_communicator() {
    let late = std::sync::Barrier::new(2);
    ranks(2, |comm| {
        let broken = comm.dup(&options()).unwrap();
        let mut barrier = Barrier::new(comm).unwrap();
        if comm.rank() == 0 {
            broken.abort("to test").unwrap();
            barrier.start().unwrap();
            let error = barrier.wait_with(&[&broken]).unwrap_err();
            assert!(matches!(error, Error::Aborted(_)), "{error:?}");
            assert!(error.sentence().contains("to test"), "{error}");
            late.wait();
        } else {
            late.wait();
            barrier.start().unwrap();
        }
        barrier.wait().unwrap();
        assert!(barrier.test().unwrap());
    });
}

#[test]
fn a_scope_waits_for_its_calls() {
    for size in SIZES {
        ranks(size, |comm| {
            let mut layers = vec![vec![1.0f32; 3000]; 6];
            let mut extra = [1i64; 4];
            let value = comm
                .scope(|scope| {
                    for (index, layer) in layers.iter_mut().enumerate() {
                        layer[0] = index as f32;
                        let sum = scope.start(call::all_reduce_in_place(layer, Op::Sum))?;
                        match index {
                            1 => sum.wait()?,
                            2 => while !sum.test()? {},
                            _ => {} // the end of the scope waits for it
                        }
                    }
                    scope.start(call::group([call::all_reduce_in_place(&mut extra, Op::Sum)]))?;
                    Ok("a value")
                })
                .unwrap();
            assert_eq!(value, "a value");
            for (index, layer) in layers.iter().enumerate() {
                assert_eq!(layer[0], (index * size) as f32);
                assert!(layer[1..].iter().all(|x| *x == size as f32));
            }
            assert_eq!(extra, [size as i64; 4]);
        });
    }
}

#[test]
fn dropped_and_forgotten_calls_do_no_harm() {
    ranks(3, |comm| {
        let arrays = || vec![1.0f32; 100_000];
        let sum = |data: &mut Vec<f32>| -> f32 { data.iter().sum() };
        drop(comm.start(arrays(), |data| call::all_reduce_in_place(data, Op::Sum)).unwrap());
        let forgotten = comm.start(arrays(), |data| call::all_reduce_in_place(data, Op::Sum));
        std::mem::forget(forgotten.unwrap());
        let mut data = arrays();
        comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
        assert_eq!(sum(&mut data), 300_000.0);
    });
}

#[test]
fn a_refused_call_gives_its_arrays_back_and_has_no_effect() {
    ranks(2, |comm| {
        let arrays = (vec![1u8; 10], vec![0u8; 3]);
        let failed = comm.start(arrays, |(from, to)| call::all_gather(from, to)).unwrap_err();
        assert!(failed.error.sentence().contains("output has 3 elements, and 20 are needed"));
        assert_eq!(failed.arrays.0, vec![1; 10]);

        let mut short = [0u8; 3];
        let error = comm.scope(|scope| {
            scope.start(call::all_gather(&failed.arrays.0, &mut short))?;
            Ok(())
        });
        assert!(matches!(error, Err(Error::InvalidArgument(_))), "{error:?}");
        comm.barrier().unwrap();
    });
}

#[test]
fn a_failed_call_gives_its_arrays_back() {
    open_ranks(3, |comm| {
        if comm.rank() == 1 {
            comm.abort("the test requests it").unwrap();
            return;
        }
        let arrays = vec![comm.rank() as f32; 50_000];
        let failed = comm
            .start(arrays, |data| call::broadcast(data, 1))
            .and_then(|pending| pending.wait())
            .unwrap_err();
        assert!(matches!(failed.error, Error::Aborted(_)), "{:?}", failed.error);
        assert!(names_rank(failed.error.sentence(), 1), "{}", failed.error);
        assert_eq!(failed.arrays.len(), 50_000);
    });
}

#[test]
fn an_error_in_a_scope_waits_for_the_other_calls() {
    ranks(3, |comm| {
        let mut data = vec![1.0f32; 20_000];
        let result: vescomm::Result<()> = comm.scope(|scope| {
            scope.start(call::all_reduce_in_place(&mut data, Op::Sum))?;
            Err(Error::InvalidArgument("from the function".to_string()))
        });
        assert_eq!(result.unwrap_err().sentence(), "from the function");
        assert!(data.iter().all(|x| *x == 3.0));
    });
}

#[test]
fn a_panic_in_a_scope_aborts_the_communicator() {
    let ends = open_ranks(2, |comm| {
        let mut data = vec![1.0f32; 100_000];
        if comm.rank() == 0 {
            let panic = catch_unwind(AssertUnwindSafe(|| {
                comm.scope(|scope| -> vescomm::Result<()> {
                    scope.start(call::all_reduce_in_place(&mut data, Op::Sum))?;
                    panic!("of the test")
                })
            }));
            return panic.unwrap_err().downcast_ref::<&str>().unwrap().to_string();
        }
        // This rank waits for a call that rank 0 does not make.
        comm.receive(&mut data, 0).unwrap_err().to_string()
    });
    assert_eq!(ends[0], "of the test");
    assert!(names_rank(&ends[1], 0) && ends[1].contains("panic"), "{}", ends[1]);
}

#[test]
fn a_panic_that_drops_a_running_request_aborts_the_communicator() {
    // Each starts what rank 1 does not, and panics.
    let owned = |comm: &Communicator| {
        let _pending = comm.start(vec![0.0f32; 4], |data| call::receive(data, 1)).unwrap();
        panic!("of the test")
    };
    let barrier = |comm: &Communicator| {
        let mut barrier = Barrier::new(comm).unwrap();
        if comm.rank() == 0 {
            barrier.start().unwrap();
            panic!("of the test")
        }
    };
    let on_a_buffer = |comm: &Communicator| {
        let layout = Layout::from_counts(&[70_000, 3]).unwrap();
        let mut buffer = Buffer::<f32>::new(comm, &layout, "x").unwrap();
        let mut sum = buffer.request().all_reduce(Op::Sum).unwrap();
        if comm.rank() == 0 {
            sum.start(&mut buffer).unwrap();
            panic!("of the test")
        }
    };
    type Part<'a> = &'a (dyn Fn(&Communicator) + Sync);
    let kinds: [(Part<'_>, bool); 3] = [(&owned, false), (&barrier, true), (&on_a_buffer, true)];
    for (part, on_both) in kinds {
        let ends = open_ranks(2, |comm| {
            if comm.rank() == 0 {
                let panic = catch_unwind(AssertUnwindSafe(|| part(&comm)));
                assert_eq!(*panic.unwrap_err().downcast_ref::<&str>().unwrap(), "of the test");
                return comm.barrier().unwrap_err().to_string();
            }
            if on_both {
                part(&comm);
            }
            comm.receive(&mut [0.0f32], 0).unwrap_err().to_string()
        });
        for end in ends {
            assert!(names_rank(&end, 0) && end.contains("panic"), "{end}");
        }
    }
}

#[test]
fn a_panic_that_drops_a_complete_request_aborts_nothing() {
    ranks(2, |comm| {
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _sum = comm
                .start(vec![1.0f32; 4], |data| call::all_reduce_in_place(data, Op::Sum))
                .unwrap();
            let (mut idle, mut done) = (Barrier::new(comm).unwrap(), Barrier::new(comm).unwrap());
            done.start().unwrap();
            done.wait().unwrap();
            assert!(idle.test().unwrap());
            comm.barrier().unwrap();
            panic!("of the test")
        }));
        assert!(panic.is_err());
        let mut ones = [1];
        comm.all_reduce_in_place(&mut ones, Op::Sum).unwrap();
        assert_eq!(ones[0], 2);
    });
}
