// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Requests on buffers with one slab for each rank.

use vescomm::{Barrier, Bf16, Buffer, Communicator, Error, Layout, Op, RegisteredArray, Tensor};

use crate::support::{blocks, options, ranks, shapes, total, SIZES};

fn buffer<'c>(comm: &'c Communicator, counts: &[i64]) -> Buffer<'c, f32> {
    Buffer::new(comm, &Layout::from_counts(counts).unwrap(), "of the test").unwrap()
}

#[test]
fn gathers_and_reductions_in_place() {
    for size in SIZES {
        ranks(size, |comm| {
            for counts in shapes(size) {
                let mut buffer = buffer(comm, &counts);
                let places = blocks(&counts);
                let mut gather = buffer.request().all_gather_v().unwrap();
                let mut scatter = buffer.request().reduce_scatter_v(Op::Sum).unwrap();
                for round in 0..3 {
                    let value = |k: usize| (10 * round + k) as f32;
                    buffer.shard_mut().unwrap().fill(value(comm.rank()));
                    gather.run(&mut buffer).unwrap();
                    for (k, place) in places.iter().enumerate() {
                        let block = &buffer.data().unwrap()[place.clone()];
                        assert!(block.iter().all(|x| *x == value(k)));
                    }
                    scatter.run(&mut buffer).unwrap();
                    let sum = size as f32 * value(comm.rank());
                    assert!(buffer.shard().unwrap().iter().all(|x| *x == sum));
                }
            }
        });
    }
}

#[test]
fn all_reduce_reduce_and_broadcast() {
    for size in SIZES {
        ranks(size, |comm| {
            for counts in shapes(size) {
                let mut buffer = buffer(comm, &counts);
                let root = size - 1;
                let all = |buffer: &Buffer<f32>, value: usize| {
                    let data = buffer.data().unwrap();
                    assert_eq!(data.len(), total(&counts));
                    assert!(data.iter().all(|x| *x == value as f32), "{value}");
                };
                let mut sum = buffer.request().all_reduce(Op::Sum).unwrap();
                let mut max = buffer.request().reduce(Op::Max, root).unwrap();
                let mut copy = buffer.request().broadcast(root).unwrap();
                buffer.data_mut().unwrap().fill(1.0);
                sum.run(&mut buffer).unwrap();
                all(&buffer, size);
                buffer.data_mut().unwrap().fill(comm.rank() as f32);
                max.run(&mut buffer).unwrap();
                all(&buffer, comm.rank().max(if comm.rank() == root { root } else { 0 }));
                copy.run(&mut buffer).unwrap();
                all(&buffer, root);
            }
        });
    }
}

#[test]
fn requests_convert_from_and_to_arrays_that_they_own() {
    for size in SIZES {
        ranks(size, |comm| {
            for counts in shapes(size) {
                let mine = counts[comm.rank()] as usize;
                let layout = Layout::from_counts(&counts).unwrap();
                let mut weights = Buffer::<Bf16>::new(comm, &layout, "weights").unwrap();
                let mut gradients = Buffer::<Bf16>::new(comm, &layout, "gradients").unwrap();
                let masters = vec![0.0f32; mine];
                let sums = RegisteredArray::<f32>::new(comm, mine).unwrap();
                let mut gather = weights.request().all_gather_v_from(masters).unwrap();
                let mut reduce = gradients.request().reduce_scatter_v_into(sums, Op::Sum).unwrap();
                for value in [1.0f32, 2.5] {
                    gather.array_mut().unwrap().fill(value);
                    let bits = Bf16::from_bits((value.to_bits() >> 16) as u16);
                    gather.run(&mut weights).unwrap();
                    assert!(weights.data().unwrap().iter().all(|x| *x == bits));
                    gradients.data_mut().unwrap().fill(bits);
                    reduce.run(&mut gradients).unwrap();
                    assert_eq!(reduce.array().unwrap(), vec![value * size as f32; mine]);
                }
                assert_eq!(gather.into_array().unwrap(), vec![2.5; mine]);
                assert_eq!(reduce.into_array().unwrap().len(), mine);
            }
        });
    }
}

#[test]
fn a_running_request_keeps_its_elements_to_itself() {
    for size in [1, 3] {
        ranks(size, |comm| {
            let counts = vec![30_000; size];
            let mut weights = buffer(comm, &counts);
            let mut gather = weights.request().all_gather_v_from(vec![1.5f32; 30_000]).unwrap();
            let mut sum = weights.request().all_reduce(Op::Sum).unwrap();
            gather.start(&mut weights).unwrap();
            let running = |result: Result<(), Error>| {
                let error = result.unwrap_err();
                assert!(error.sentence().contains("is running"), "{error}");
            };
            running(weights.data().map(drop));
            running(weights.data_mut().map(drop));
            running(weights.shard_mut().map(drop));
            running(weights.tensor(0).map(drop));
            running(gather.array().map(drop));
            running(gather.array_mut().map(drop));
            running(gather.start(&mut weights));
            running(sum.start(&mut weights));
            running(weights.acquire());
            while !gather.test().unwrap() {}
            assert!(gather.test().unwrap());
            gather.wait().unwrap();
            assert!(weights.data().unwrap().iter().all(|x| *x == 1.5));
            sum.run(&mut weights).unwrap();
            assert_eq!(weights.data().unwrap()[0], 1.5 * size as f32);
        });
    }
}

#[test]
fn a_dropped_request_completes_and_a_forgotten_one_stays() {
    ranks(3, |comm| {
        let mut one = buffer(comm, &[10_000, 0, 20_000]);
        one.data_mut().unwrap().fill(1.0);
        let mut sum = one.request().all_reduce(Op::Sum).unwrap();
        sum.start(&mut one).unwrap();
        drop(sum);
        assert!(one.data().unwrap().iter().all(|x| *x == 3.0));

        let mut other = buffer(comm, &[10_000, 0, 20_000]);
        let mut sum = other.request().all_reduce(Op::Sum).unwrap();
        sum.start(&mut other).unwrap();
        std::mem::forget(sum);
        assert!(other.data().is_err());
    });
}

#[test]
fn requests_on_different_buffers_overlap_in_time() {
    for size in SIZES {
        ranks(size, |comm| {
            let mut buffers: Vec<_> = (1..6).map(|n| buffer(comm, &vec![n * 999; size])).collect();
            let mut requests: Vec<_> =
                buffers.iter().map(|one| one.request().all_reduce(Op::Sum).unwrap()).collect();
            for (request, buffer) in requests.iter_mut().zip(&mut buffers) {
                buffer.data_mut().unwrap().fill(1.0);
                request.start(buffer).unwrap();
            }
            for request in requests.iter_mut().rev() {
                request.wait().unwrap();
            }
            for buffer in &buffers {
                assert!(buffer.data().unwrap().iter().all(|x| *x == size as f32));
            }
        });
    }
}

#[test]
fn tensors_are_disjoint_slices_of_the_buffer() {
    let tensor = |name: &str, shape: &[i64], offset| Tensor {
        name: name.into(),
        shape: shape.into(),
        offset,
        ..Tensor::default()
    };
    ranks(2, |comm| {
        let tensors = [tensor("a", &[2, 3], 0), tensor("none", &[0], 8), tensor("b", &[4], 8)];
        let layout = Layout::new(&tensors, 12, &[0, 5, 12]).unwrap();
        let mut buffer = Buffer::<i32>::new(comm, &layout, "tensors").unwrap();
        let mut slices = buffer.tensors_mut().unwrap();
        assert_eq!(slices.iter().map(|slice| slice.len()).collect::<Vec<_>>(), [6, 0, 4]);
        slices[0].fill(1);
        slices[2].fill(2);
        assert_eq!(buffer.data().unwrap(), [1, 1, 1, 1, 1, 1, 0, 0, 2, 2, 2, 2]);
        assert_eq!(buffer.tensor(layout.find("b").unwrap()).unwrap(), [2; 4]);
        assert!(buffer.tensor(3).unwrap_err().sentence().contains("3 tensors"));
        assert_eq!(buffer.shard().unwrap().len(), if comm.rank() == 0 { 5 } else { 7 });
        assert!(!buffer.as_mut_ptr().unwrap().is_null());
    });
}

#[test]
fn a_request_explains_itself() {
    ranks(2, |comm| {
        let buffer = buffer(comm, &[100, 100]);
        let text = buffer.request().all_gather_v().unwrap().explain().unwrap();
        assert!(
            text.contains("all_gather_v of \"of the test\"") && text.contains("chosen because")
        );
    });
}

#[test]
fn a_barrier_can_be_kept() {
    for size in SIZES {
        ranks(size, |comm| {
            let mut barrier = Barrier::new(comm).unwrap();
            assert!(barrier.test().unwrap());
            for _ in 0..3 {
                barrier.start().unwrap();
                barrier.wait().unwrap();
            }
        });
    }
}

#[test]
fn different_arguments_of_a_creation_are_reported_on_all_ranks() {
    let errors = crate::support::open_ranks(3, |comm| {
        let counts = if comm.rank() == 2 { [1, 2, 4] } else { [1, 2, 3] };
        let layout = Layout::from_counts(&counts).unwrap();
        Buffer::<f32>::new(&comm, &layout, "different").map(drop).unwrap_err()
    });
    for error in errors {
        assert!(matches!(error, Error::Mismatch(_)), "{error:?}");
        assert!(crate::support::names_rank(error.sentence(), 2), "{error}");
    }
}

#[test]
fn an_array_of_the_wrong_size_is_an_error_on_all_ranks() {
    let errors = crate::support::ranks_with(
        2,
        |_| options(),
        |comm| {
            let buffer = buffer(&comm, &[4, 6]);
            let source = vec![0.0f32; 4]; // rank 1 owns 6 elements
            let failed = buffer.request().all_gather_v_from(source).unwrap_err();
            assert_eq!(failed.arrays.len(), 4);
            failed.error
        },
    );
    for error in &errors {
        assert!(error.sentence().contains("has 4 elements, and the shard of this rank"), "{error}");
    }
    assert!(matches!(errors[1], Error::InvalidArgument(_)), "{errors:?}");
    assert!(matches!(errors[0], Error::Mismatch(_)), "{errors:?}");
    assert!(crate::support::names_rank(errors[0].sentence(), 1), "{}", errors[0]);
}

#[test]
fn a_request_belongs_to_its_buffer() {
    ranks(1, |comm| {
        let (one, mut other) = (buffer(comm, &[4]), buffer(comm, &[4]));
        let mut sum = one.request().all_reduce(Op::Sum).unwrap();
        let error = sum.run(&mut other).unwrap_err();
        assert!(error.sentence().contains("another buffer"), "{error}");
    });
}

#[test]
fn after_a_failure_a_buffer_returns_the_error() {
    crate::support::open_ranks(2, |comm| {
        let mut used = buffer(&comm, &[40_000, 40_000]);
        let mut unused = buffer(&comm, &[1, 1]);
        let mut sum = used.request().all_reduce(Op::Sum).unwrap();
        if comm.rank() == 1 {
            comm.abort("the test requests it").unwrap();
            return;
        }
        let failed = sum.start(&mut used).and_then(|()| sum.wait()).unwrap_err();
        assert!(matches!(failed, Error::Aborted(_)), "{failed:?}");
        // A request that the failure kept from starting has left its buffer as it was.
        if let Err(error) = used.data() {
            assert_eq!(error, failed);
        }
        unused.data_mut().unwrap().fill(1.0);
        assert_eq!(unused.data().unwrap(), [1.0, 1.0]);
    });
}
