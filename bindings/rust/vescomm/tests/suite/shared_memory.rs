// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Several buffers in one memory, and one slab for each node.

use vescomm::{Buffer, Error, Layout, Memory, Op, Part, Sharing};

use crate::support::{blocks, open_ranks, ranks, ranks_with, shapes, total, SIZES};

fn refused(result: Result<(), Error>, words: &str) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
    assert!(error.sentence().contains(words), "{error} lacks {words:?}");
}

#[test]
fn buffers_lie_in_one_memory_side_by_side_or_one_after_another() {
    for size in SIZES {
        ranks(size, |comm| {
            let counts = vec![16i64; size];
            let layout = Layout::from_counts(&counts).unwrap();
            let bytes = 64 * size as u64;
            let mut memory = Memory::new(comm, 2 * bytes, Sharing::PerRank).unwrap();
            assert_eq!((memory.bytes(), memory.sharing()), (2 * bytes, Sharing::PerRank));
            let first = Part::<f32>::new(&memory, &layout, 0, "first").unwrap();
            let second = Part::<u32>::new(&memory, &layout, bytes, "second").unwrap();
            let whole =
                Part::<u8>::new(&memory, &Layout::from_counts(&vec![128; size]).unwrap(), 0, "all")
                    .unwrap();
            let mut sum = first.request().all_reduce(Op::Sum).unwrap();
            let mut gather = second.request().all_gather_v().unwrap();
            memory.data_mut(&first).unwrap().fill(1.0);
            memory.shard_mut(&second).unwrap().fill(comm.rank() as u32);
            sum.start(&mut memory).unwrap();
            refused(memory.data(&second).map(drop), "is running");
            refused(gather.start(&mut memory), "is running");
            sum.wait().unwrap();
            gather.run(&mut memory).unwrap();
            assert_eq!(memory.data(&first).unwrap(), vec![size as f32; 16 * size]);
            assert_eq!(memory.shard(&second).unwrap(), [comm.rank() as u32; 16]);
            assert_eq!(memory.tensor(&second, 0).unwrap()[16 * size - 1], size as u32 - 1);
            assert_eq!(memory.data(&whole).unwrap()[..4], (size as f32).to_ne_bytes());
            memory.tensors_mut(&whole).unwrap()[0].fill(0);
            assert_eq!(memory.data(&first).unwrap()[0], 0.0);

            let other = Memory::new(comm, 64, Sharing::PerRank).unwrap();
            refused(other.data(&first).map(drop), "another memory");
        });
    }
}

#[test]
fn a_part_must_fit_into_its_memory() {
    ranks(2, |comm| {
        let memory = Memory::new(comm, 64, Sharing::PerRank).unwrap();
        let layout = Layout::from_counts(&[16, 1]).unwrap();
        refused(Part::<f32>::new(&memory, &layout, 0, "too large").map(drop), "too large");
        comm.barrier().unwrap();
    });
}

#[test]
fn one_slab_for_each_node_is_gathered_and_released() {
    // Ranks on one node, and on two.
    for (size, nodes) in [(1, 1), (2, 1), (3, 1), (5, 1), (3, 2), (5, 2)] {
        let options = |rank: usize| {
            let mut options = crate::support::options();
            options.node = (nodes > 1).then(|| format!("node {}", rank % nodes));
            options
        };
        ranks_with(size, options, |comm| {
            let rank = comm.rank();
            for counts in shapes(size) {
                let layout = Layout::from_counts(&counts).unwrap();
                let mut buffer =
                    Buffer::<f32>::with_sharing(&comm, &layout, "shared", Sharing::PerNode)
                        .unwrap();
                let places = blocks(&counts);
                let mut gather = buffer.request().all_gather_v().unwrap();
                refused(buffer.data().map(drop), "released");
                refused(buffer.shard_mut().map(drop), "acquire()");
                for round in 0..3 {
                    let value = |k: usize| (round * 10 + k) as f32;
                    buffer.acquire().unwrap();
                    refused(buffer.data().map(drop), "acquired");
                    refused(buffer.data_mut().map(drop), "acquired");
                    buffer.shard_mut().unwrap().fill(value(rank));
                    gather.run(&mut buffer).unwrap();
                    for (k, place) in places.iter().enumerate() {
                        let block = &buffer.data().unwrap()[place.clone()];
                        assert!(block.iter().all(|x| *x == value(k)));
                    }
                    refused(buffer.data_mut().map(drop), "share it");
                    if round == 1 {
                        buffer.release().unwrap();
                        refused(buffer.data().map(drop), "released");
                    }
                }
            }
            comm.finalize().unwrap();
        });
    }
}

#[test]
fn slots_of_a_node_are_gathered_from_arrays() {
    for size in SIZES {
        ranks(size, |comm| {
            let shapes: Vec<_> = shapes(size).into_iter().filter(|one| total(one) < 2000).collect();
            let mut memory = Memory::new(comm, 8192, Sharing::PerNode).unwrap();
            let parts: Vec<Part<f32>> = shapes
                .iter()
                .map(|counts| {
                    let layout = Layout::from_counts(counts).unwrap();
                    Part::new(&memory, &layout, 0, "layer").unwrap()
                })
                .collect();
            let mut gathers: Vec<_> = parts
                .iter()
                .zip(&shapes)
                .map(|(part, counts)| {
                    let mine = vec![comm.rank() as f32; counts[comm.rank()] as usize];
                    part.request().all_gather_v_from(mine).unwrap()
                })
                .collect();
            for _ in 0..2 {
                for ((part, gather), counts) in parts.iter().zip(&mut gathers).zip(&shapes) {
                    gather.run(&mut memory).unwrap();
                    for (k, place) in blocks(counts).into_iter().enumerate() {
                        let block = &memory.data(part).unwrap()[place];
                        assert!(block.iter().all(|x| *x == k as f32));
                    }
                    memory.release(part).unwrap();
                }
            }
            // Another rank could write its shard of another buffer at the same place.
            memory.acquire(&parts[0]).unwrap();
            refused(memory.shard_mut(&parts[0]).map(drop), "another buffer overlaps it");
        });
    }
}

/// A request of another rank may write its shard of the new buffer.
#[test]
fn no_buffer_is_created_over_a_shard_in_use() {
    open_ranks(2, |comm| {
        let mut memory = Memory::new(&comm, 4096, Sharing::PerNode).unwrap();
        let (narrow, wide) = (Layout::from_counts(&[8, 8]), Layout::from_counts(&[100, 4]));
        let (narrow, wide) = (narrow.unwrap(), wide.unwrap());
        let first = Part::<f32>::new(&memory, &narrow, 0, "first").unwrap();
        memory.acquire(&first).unwrap();
        memory.shard_mut(&first).unwrap().fill(1.0);
        let shard = memory.shard(&first).unwrap();
        let beside = Part::<f32>::new(&memory, &wide, 64, "beside").unwrap();
        assert_eq!(shard, [1.0; 8]);
        let over = Part::<f32>::new(&memory, &wide, 0, "over").map(drop);
        assert_eq!(shard, [1.0; 8]);
        refused(over, "acquired");
        drop(beside);
        // All ranks have refused it for the same reason.
        comm.barrier().unwrap();
    });
}

#[test]
fn buffers_may_overlap_when_no_shard_is_in_use() {
    ranks(2, |comm| {
        let mut memory = Memory::new(comm, 4096, Sharing::PerNode).unwrap();
        let layout = Layout::from_counts(&[8, 8]).unwrap();
        let first = Part::<f32>::new(&memory, &layout, 0, "first").unwrap();
        memory.acquire(&first).unwrap();
        memory.release(&first).unwrap();
        Part::<f32>::new(&memory, &layout, 0, "second").unwrap();
        let far = Part::<f32>::new(&memory, &layout, u64::MAX - 63, "far").map(drop);
        refused(far, "far");
    });
}

#[test]
fn a_broadcast_and_writes_in_place_exclude_each_other() {
    ranks(2, |comm| {
        let layout = Layout::from_counts(&[100, 100]).unwrap();
        let mut buffer =
            Buffer::<u8>::with_sharing(comm, &layout, "shared", Sharing::PerNode).unwrap();
        let mut copy = buffer.request().broadcast(0).unwrap();
        buffer.acquire().unwrap();
        refused(buffer.shard_mut().map(drop), "broadcast");
        copy.run(&mut buffer).unwrap();
        assert_eq!(buffer.data().unwrap(), [0; 200]);
    });
}

#[test]
fn reductions_need_a_slab_for_each_rank() {
    ranks(2, |comm| {
        let layout = Layout::from_counts(&[1, 1]).unwrap();
        let buffer =
            Buffer::<f32>::with_sharing(comm, &layout, "shared", Sharing::PerNode).unwrap();
        refused(buffer.request().all_reduce(Op::Sum).map(drop), "VESCOMM_PER_RANK");
        comm.barrier().unwrap();
    });
}
