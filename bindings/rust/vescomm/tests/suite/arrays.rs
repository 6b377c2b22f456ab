// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! The results of every call on arrays, compared with results that the test computes.

use vescomm::{call, Bool, Communicator, Message, Op, RegisteredArray};

use crate::for_every_number;
use crate::support::numbers::Number;
use crate::support::{blocks, ranks, shapes, total, SIZES};

/// The element that a rank contributes at a position: from 0 to 5.
fn given<T: Number>(rank: usize, position: usize) -> T {
    T::of((3 * rank + position) % 6)
}

fn block<T: Number>(rank: usize, elements: usize) -> Vec<T> {
    (0..elements).map(|position| given(rank, position)).collect()
}

fn gathers<T: Number>(comm: &Communicator, counts: &[i64]) {
    let size = comm.ranks();
    let expected: Vec<T> =
        counts.iter().enumerate().flat_map(|(k, count)| block(k, *count as usize)).collect();
    let places = blocks(counts);
    let rank = comm.rank();
    let mine = block::<T>(rank, counts[rank] as usize);

    let mut all = vec![T::of(1); expected.len()];
    comm.all_gather_v(&mine, &mut all, counts).unwrap();
    assert_eq!(all, expected);

    let mut all = vec![T::of(1); expected.len()];
    all[places[rank].clone()].copy_from_slice(&mine);
    comm.all_gather_v_in_place(&mut all, counts).unwrap();
    assert_eq!(all, expected);

    let root = size - 1;
    let mut all = vec![T::of(1); if rank == root { expected.len() } else { 0 }];
    comm.gather_v(&mine, &mut all, counts, root).unwrap();
    let mut parts = mine.clone();
    if rank == root {
        assert_eq!(all, expected);
        let mut whole = vec![T::of(1); expected.len()];
        whole[places[rank].clone()].copy_from_slice(&mine);
        comm.gather_v_in_place(&mut whole, counts, root).unwrap();
        assert_eq!(whole, expected);
        parts.fill(T::of(1));
        comm.scatter_v(&whole, &mut parts, counts, root).unwrap();
        comm.scatter_v_in_place(&mut whole, counts, root).unwrap();
        assert_eq!(whole, expected);
    } else {
        comm.gather_v(&mine, &mut [], counts, root).unwrap();
        for _ in 0..2 {
            parts.fill(T::of(1));
            comm.scatter_v(&[], &mut parts, counts, root).unwrap();
            assert_eq!(parts, mine);
        }
    }
    assert_eq!(parts, mine);
}

#[test]
fn gathers_and_scatters_have_the_blocks_of_all_ranks() {
    for size in SIZES {
        ranks(size, |comm| {
            for counts in shapes(size) {
                gathers::<f32>(comm, &counts);
            }
            for_every_number!(gathers(comm, &[4, 0, 9, 1, 0][..size]));
        });
    }
}

#[test]
fn blocks_lie_at_the_offsets() {
    for size in SIZES {
        ranks(size, |comm| {
            let rank = comm.rank();
            // Block k has k elements, which end at 4 * (k + 1): in reverse order of ranks.
            let counts: Vec<i64> = (0..size as i64).collect();
            let offsets: Vec<i64> = (0..size as i64).map(|k| 4 * (size as i64 - k) - k).collect();
            let mut expected = vec![0u16; 4 * size];
            for (k, offset) in offsets.iter().enumerate() {
                expected[*offset as usize..][..k].fill(k as u16 + 1);
            }
            let mine = vec![rank as u16 + 1; rank];
            let mut all = vec![0u16; 4 * size];
            comm.run(call::all_gather_v(&mine, &mut all, &counts).output_offsets(&offsets))
                .unwrap();
            assert_eq!(all, expected);

            let mut all = expected.clone();
            let exchange = call::gather_v(&mine, &mut all, &counts, 0).output_offsets(&offsets);
            comm.run(exchange).unwrap();
            assert_eq!(all, expected);

            let mut back = vec![0u16; rank];
            comm.run(call::scatter_v(&all, &mut back, &counts, 0).source_offsets(&offsets))
                .unwrap();
            assert_eq!(back, mine);

            // Rank r sends r + 1 elements to each rank, from and to places in reverse order.
            let sends = vec![rank as i64 + 1; size];
            let receives: Vec<i64> = (1..=size as i64).collect();
            let from: Vec<i64> = (0..size).map(|k| ((size - 1 - k) * (rank + 1)) as i64).collect();
            let to: Vec<i64> = (0..size).map(|k| ((size - 1 - k) * size) as i64).collect();
            let source: Vec<u16> = (0..size * (rank + 1))
                .map(|at| (100 * rank + (size - 1 - at / (rank + 1))) as u16)
                .collect();
            let mut output = vec![9999u16; size * size];
            comm.run(
                call::all_to_all_v(&source, &sends, &mut output, &receives)
                    .source_offsets(&from)
                    .output_offsets(&to),
            )
            .unwrap();
            for (k, begin) in to.iter().enumerate() {
                let block = &output[*begin as usize..][..size];
                assert_eq!(block[..k + 1], vec![(100 * k + rank) as u16; k + 1]);
                assert!(block[k + 1..].iter().all(|other| *other == 9999));
            }
        });
    }
}

/// The number of ranks that contribute 1 at a position.
fn ones(size: usize, position: usize) -> usize {
    (0..size).filter(|rank| (rank + position) % 3 == 0).count()
}

fn contribution<T: Number>(rank: usize, elements: usize) -> Vec<T> {
    (0..elements).map(|position| T::of(usize::from((rank + position) % 3 == 0))).collect()
}

fn reductions<T: Number>(comm: &Communicator, counts: &[i64]) {
    let size = comm.ranks();
    let elements = total(counts);
    let sums: Vec<T> = (0..elements).map(|position| T::of(ones(size, position))).collect();
    let places = blocks(counts);
    let rank = comm.rank();
    let own = places[rank].clone();
    let mine = contribution::<T>(rank, elements);

    let mut result = vec![T::of(5); elements];
    comm.all_reduce(&mine, &mut result, Op::Sum).unwrap();
    assert_eq!(result, sums);
    let mut data = mine.clone();
    comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
    assert_eq!(data, sums);

    let mut shard = vec![T::of(5); own.len()];
    comm.reduce_scatter_v(&mine, &mut shard, counts, Op::Sum).unwrap();
    assert_eq!(shard, sums[own.clone()]);
    let mut data = mine.clone();
    comm.reduce_scatter_v_in_place(&mut data, counts, Op::Sum).unwrap();
    assert_eq!(data[own.clone()], sums[own.clone()]);
    assert_eq!(data[..own.start], mine[..own.start]);
    assert_eq!(data[own.end..], mine[own.end..]);

    let root = 1 % size;
    let mut result = vec![T::of(5); if rank == root { elements } else { 0 }];
    comm.reduce(&mine, &mut result, Op::Sum, root).unwrap();
    let mut data = mine.clone();
    comm.reduce_in_place(&mut data, Op::Sum, root).unwrap();
    if rank == root {
        assert_eq!(result, sums);
    }
    assert_eq!(data, if rank == root { &sums[..] } else { &mine[..] });

    let mut data = if rank == root { sums.clone() } else { mine };
    comm.broadcast(&mut data, root).unwrap();
    assert_eq!(data, sums);
}

#[test]
fn reductions_and_broadcasts_have_the_result_of_all_ranks() {
    for size in SIZES {
        ranks(size, |comm| {
            for counts in shapes(size) {
                reductions::<f32>(comm, &counts);
            }
            for_every_number!(reductions(comm, &[4, 0, 9, 1, 0][..size]));
        });
    }
}

#[test]
fn equal_counts_need_no_lists() {
    for size in SIZES {
        ranks(size, |comm| {
            for count in [0, 1, 7, 4096] {
                let rank = comm.rank();
                let mine = block::<i32>(rank, count);
                let expected: Vec<i32> = (0..size).flat_map(|k| block(k, count)).collect();
                let mut all = vec![9; count * size];
                comm.all_gather(&mine, &mut all).unwrap();
                assert_eq!(all, expected);

                let source = contribution::<i32>(rank, count * size);
                let mut shard = vec![9; count];
                comm.reduce_scatter(&source, &mut shard, Op::Sum).unwrap();
                let sums = (0..count).map(|at| ones(size, rank * count + at) as i32);
                assert_eq!(shard, sums.collect::<Vec<_>>());

                // Element i of the block of rank a for rank b is 100 a + 10 b + i % 10.
                let value = |a: usize, b: usize, i: usize| (100 * a + 10 * b + i % 10) as i32;
                let blocks = |make: &dyn Fn(usize, usize) -> i32| -> Vec<i32> {
                    (0..size * count).map(|at| make(at / count, at % count)).collect()
                };
                let mut output = vec![-1; size * count];
                comm.all_to_all(&blocks(&|k, i| value(rank, k, i)), &mut output).unwrap();
                assert_eq!(output, blocks(&|k, i| value(k, rank, i)));
            }
        });
    }
}

#[test]
fn every_operator_gives_its_result() {
    let size = 3;
    ranks(size, |comm| {
        let reduce = |values: [i32; 3], op| {
            let mut data = [values[comm.rank()]];
            comm.all_reduce_in_place(&mut data, op).unwrap();
            data[0]
        };
        assert_eq!(reduce([5, -2, 4], Op::Sum), 7);
        assert_eq!(reduce([5, -2, 4], Op::Average), 2);
        assert_eq!(reduce([5, -2, 4], Op::Prod), -40);
        assert_eq!(reduce([5, -2, 4], Op::Min), -2);
        assert_eq!(reduce([5, -2, 4], Op::Max), 5);
        assert_eq!(reduce([5, -2, 4], Op::PremultipliedSum(3.0)), 21);
        assert_eq!(reduce([7, 3, 6], Op::BitwiseAnd), 2);
        assert_eq!(reduce([1, 2, 8], Op::BitwiseOr), 11);
        assert_eq!(reduce([7, 3, 6], Op::BitwiseXor), 2);
        assert_eq!(reduce([7, 0, 6], Op::LogicalAnd), 0);
        assert_eq!(reduce([0, 0, 6], Op::LogicalOr), 1);
        assert_eq!(reduce([7, 3, 6], Op::LogicalXor), 1);

        let mut data = [0.5f64 * comm.rank() as f64];
        comm.all_reduce_in_place(&mut data, Op::PremultipliedSum(0.25)).unwrap();
        assert_eq!(data, [0.375]);
        let mut flags = [true, comm.rank() == 1, false].map(Bool::from);
        comm.all_reduce_in_place(&mut flags, Op::Sum).unwrap();
        assert_eq!(flags.map(bool::from), [true, true, false]);
        let mut flags = [true, comm.rank() == 1, false].map(Bool::from);
        comm.all_reduce_in_place(&mut flags, Op::LogicalAnd).unwrap();
        assert_eq!(flags.map(bool::from), [true, false, false]);
    });
}

#[test]
fn all_to_all_v_exchanges_ragged_blocks() {
    for size in SIZES {
        ranks(size, |comm| {
            let rank = comm.rank();
            // Rank a sends (a * b) % 4 elements to rank b; some are none.
            let elements = |a: usize, b: usize| ((a * b) % 4) as i64;
            let value = |a: usize, b: usize| (10 * a + b) as u64;
            let blocks = |counts: &[i64], make: &dyn Fn(usize) -> u64| -> Vec<u64> {
                let each = counts.iter().enumerate();
                each.flat_map(|(k, count)| vec![make(k); *count as usize]).collect()
            };
            let sends: Vec<i64> = (0..size).map(|k| elements(rank, k)).collect();
            let receives: Vec<i64> = (0..size).map(|k| elements(k, rank)).collect();
            let source = blocks(&sends, &|k| value(rank, k));
            let mut output = vec![0; total(&receives)];
            comm.all_to_all_v(&source, &sends, &mut output, &receives).unwrap();
            assert_eq!(output, blocks(&receives, &|k| value(k, rank)));
        });
    }
}

#[test]
fn messages_arrive_in_order() {
    for size in SIZES {
        ranks(size, |comm| {
            let right = (comm.rank() + 1) % size;
            let left = (comm.rank() + size - 1) % size;
            for elements in [0, 1, 1000, 200_000] {
                let (mine, mut its) = (vec![comm.rank() as i16; elements], vec![-1i16; elements]);
                let (number, mut its_number) = ([elements], [0u64]);
                let number = number.map(|n| n as u64);
                comm.run(call::group([
                    call::send(&mine, right),
                    call::send(&number, right),
                    call::receive(&mut its, left),
                    call::receive(&mut its_number, left),
                ]))
                .unwrap();
                assert_eq!(its, vec![left as i16; elements]);
                assert_eq!(its_number, number);
            }
            if size > 1 && comm.rank() == 0 {
                comm.send(&[1.5f32, 2.5], 1).unwrap();
            } else if comm.rank() == 1 {
                let mut pair = [0.0f32; 2];
                comm.receive(&mut pair, 0).unwrap();
                assert_eq!(pair, [1.5, 2.5]);
            }
        });
    }
}

#[test]
fn messages_have_tags() {
    for size in SIZES {
        ranks(size, |comm| {
            let right = (comm.rank() + 1) % size;
            let left = (comm.rank() + size - 1) % size;
            for elements in [1, 50_000] {
                let mine: Vec<_> =
                    (0..7).map(|tag| vec![tag + 10 * comm.rank() as i32; elements]).collect();
                comm.scope(|scope| {
                    for (tag, data) in mine.iter().enumerate() {
                        scope.start(call::send(data, right).tag(tag as i32))?;
                    }
                    for tag in (0..7).rev() {
                        let mut data = vec![-1; elements];
                        if tag % 2 == 0 {
                            comm.run(call::receive(&mut data, left).tag(tag))?;
                        } else {
                            let message = comm.receive_any(&mut data, tag)?;
                            assert_eq!(message, Message { source: left, tag, count: elements });
                        }
                        assert_eq!(data, vec![tag + 10 * left as i32; elements]);
                    }
                    Ok(())
                })
                .unwrap();
            }
            // All ranks send to rank 0, which does not know the next sender.
            let sent =
                comm.start([comm.rank()].map(|n| n as u64), |n| call::send(n, 0).tag(9)).unwrap();
            if comm.rank() == 0 {
                let mut senders: Vec<_> = (0..size)
                    .map(|_| {
                        let receive = comm.start([99u64], |n| call::receive_any(n).tag(9)).unwrap();
                        let ([number], message) = receive.receive().unwrap();
                        assert_eq!(number, message.source as u64);
                        message.source
                    })
                    .collect();
                senders.sort_unstable();
                assert_eq!(senders, (0..size).collect::<Vec<_>>());
            }
            sent.wait().unwrap();
        });
    }
}

#[test]
fn a_group_makes_all_of_its_calls() {
    for size in SIZES {
        ranks(size, |comm| {
            let mut gradients: Vec<Vec<f32>> = (0..300).map(|i| vec![i as f32; i % 9]).collect();
            let mut averages = vec![vec![1.0f64; 3]; 2];
            let sums = gradients.iter_mut().map(|one| call::all_reduce_in_place(one, Op::Sum));
            let others = averages.iter_mut().map(|one| call::all_reduce_in_place(one, Op::Average));
            let nested = call::group(others);
            comm.run(call::group(sums.chain([nested]))).unwrap();
            for (i, gradient) in gradients.iter().enumerate() {
                assert_eq!(*gradient, vec![(i * size) as f32; i % 9]);
            }
            assert_eq!(averages, vec![vec![1.0; 3]; 2]);
            comm.run(call::group([])).unwrap();
        });
    }
}

#[test]
fn registered_arrays_are_read_in_place() {
    for size in SIZES {
        let counters = ranks(size, |comm| {
            let elements = 50_000;
            let mut mine = RegisteredArray::<f32>::new(comm, elements).unwrap();
            assert!(mine.iter().all(|x| *x == 0.0));
            mine.fill(comm.rank() as f32);
            let mut all = vec![-1.0; elements * size];
            comm.all_gather(&mine, &mut all).unwrap();
            for (k, block) in all.chunks_exact(elements).enumerate() {
                assert!(block.iter().all(|x| *x == k as f32));
            }
            comm.all_reduce_in_place(&mut mine, Op::Sum).unwrap();
            assert_eq!(mine[elements - 1], (size * (size - 1) / 2) as f32);
            // It may be moved to another thread.
            let moved = std::thread::spawn(move || mine[0]).join().unwrap();
            assert_eq!(moved, (size * (size - 1) / 2) as f32);
            let empty = RegisteredArray::<f64>::new(comm, 0).unwrap();
            assert!(empty.is_empty());
            comm.counters().unwrap().bytes_registered
        });
        assert_eq!(counters.iter().all(|bytes| *bytes > 0), size > 1, "{counters:?}");
    }
}

#[test]
fn an_algorithm_can_be_named() {
    ranks(2, |comm| {
        let mut data = [1.0f32; 10];
        let sum = call::all_reduce_in_place(&mut data, Op::Sum).algorithm("no such algorithm");
        let error = comm.run(sum).unwrap_err();
        assert!(error.sentence().contains("no such algorithm"), "{error}");
        comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
        assert_eq!(data, [2.0; 10]);
    });
}
