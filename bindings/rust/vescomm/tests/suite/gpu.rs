// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Device memory on the test double of CUDA and NCCL: results, and views. Ranks are threads, each
//! with a device. Without GPU_DOUBLE_FOLDER nothing is tested.

use vescomm::gpu::kernels::{
    self, Adam8bitViews, AdamW, AdamWViews, Clip, Piece, QuantisedSources, RandomBits, Sgd,
    SgdViews, SUM_WORDS,
};
use vescomm::gpu::{self, Buffer, BufferOptions, CommOptions, Memory, Placement, Stream};
use vescomm::{Bf16, Communicator, Error, Layout, Op, Tensor, Type};

use crate::support::cuda::Cuda;
use crate::support::{blocks, ranks, total};

/// Runs ranks with device communicators.
pub fn device_ranks(
    size: usize,
    options: &CommOptions,
    body: impl Fn(&gpu::Communicator<'_>, &Communicator, Cuda) + Sync,
) {
    let cuda = match Cuda::load() {
        Some(cuda) => cuda,
        None => return eprintln!("skipped: GPU_DOUBLE_FOLDER is not set"),
    };
    let (method, nccl_config) = (options.method.clone(), options.nccl_config.clone());
    ranks(size, |comm| {
        cuda.set_device(comm.rank());
        let mut options = CommOptions::default();
        options.workspace_bytes = 4096;
        options.method = method.clone();
        options.nccl_config = nccl_config.clone();
        // SAFETY: the ranks run the same body.
        let device = unsafe { gpu::Communicator::new(comm, &options) }.unwrap();
        body(&device, comm, cuda);
        device.free().unwrap();
    });
}

/// Uneven shards that begin at multiples of 16 bytes of f32; one of three ranks has none.
pub fn uneven(ranks: usize) -> Vec<i64> {
    [vec![12], vec![8, 20], vec![8, 0, 20]][ranks - 1].clone()
}

/// The elements that a rank contributes. Sums of three ranks are exact.
fn terms(rank: usize, elements: usize) -> Vec<f32> {
    (0..elements).map(|i| (1000 * (rank + 1) + i) as f32).collect()
}

fn sums(ranks: usize, elements: usize) -> Vec<f32> {
    let sum = |i: usize| (0..ranks).map(|rank| (1000 * (rank + 1) + i) as f32).sum();
    (0..elements).map(sum).collect()
}

/// The shards of all ranks, each with the elements that its rank has there.
fn gathered(counts: &[i64]) -> Vec<f32> {
    let shards = blocks(counts).into_iter().enumerate();
    shards.flat_map(|(rank, block)| terms(rank, total(counts))[block].to_vec()).collect()
}

#[test]
fn buffers_gather_and_reduce_uneven_shards() {
    for size in [1, 2, 3] {
        for placement in [Placement::Packed, Placement::Strided] {
            device_ranks(size, &CommOptions::default(), |device, comm, cuda| {
                let counts = uneven(comm.ranks());
                let (places, rank) = (blocks(&counts), comm.rank());
                let layout = Layout::from_counts(&counts).unwrap();
                let mut options = BufferOptions::default();
                options.placement = placement;
                let buffer =
                    Buffer::<f32>::with_options(device, &layout, "uneven", &options).unwrap();
                let stream = cuda.stream();
                let whole = terms(rank, total(&counts));
                let fill = || {
                    for (k, place) in places.iter().enumerate() {
                        cuda.write(buffer.shard(k).unwrap(), &whole[place.clone()]);
                    }
                };
                fill();
                buffer.all_gather_v(stream).unwrap();
                device.order_stream(Stream::legacy_default()).unwrap();
                device.wait(Stream::legacy_default()).unwrap();
                for (k, place) in places.iter().enumerate() {
                    let shard = cuda.read(buffer.shard(k).unwrap());
                    assert_eq!(shard, terms(k, whole.len())[place.clone()]);
                }
                fill();
                buffer.reduce_scatter_v(Op::Sum, stream).unwrap();
                device.wait(stream).unwrap();
                let shard = cuda.read(buffer.shard(rank).unwrap());
                assert_eq!(shard, sums(comm.ranks(), whole.len())[places[rank].clone()]);
                assert!(buffer.explain(true).unwrap().contains("reduce_scatter_v"));
                buffer.free().unwrap();
            });
        }
    }
}

#[test]
fn parts_have_the_ranks_of_their_communicator() {
    device_ranks(3, &CommOptions::default(), |device, comm, cuda| {
        let color = if comm.rank() == 1 { None } else { Some(0) };
        let host = comm.split(color, -(comm.rank() as i32), &Default::default()).unwrap();
        // SAFETY: the ranks of a part make the same calls.
        let part = unsafe { device.split(host.as_ref(), &CommOptions::default()) }.unwrap();
        let stream = cuda.stream();
        assert_eq!(part.is_none(), comm.rank() == 1);
        if let (Some(part), Some(host)) = (part, &host) {
            assert!(part.info().unwrap().derived);
            assert_eq!(host.rank(), if comm.rank() == 2 { 0 } else { 1 });
            let layout = Layout::from_counts(&[4, 8]).unwrap();
            let buffer = Buffer::<f32>::new(&part, &layout, "part").unwrap();
            let own = buffer.shard(host.rank()).unwrap();
            cuda.write(own, &vec![comm.rank() as f32; own.len()]);
            buffer.all_gather_v(stream).unwrap();
            part.wait(stream).unwrap();
            let expected: Vec<f32> = (0..12).map(|i| if i < 4 { 2.0 } else { 0.0 }).collect();
            assert_eq!(cuda.read(buffer.data().unwrap()), expected);
            buffer.free().unwrap();
            part.free().unwrap();
        }
        assert!(!device.info().unwrap().derived);
        let memory = Memory::new(device, 64).unwrap();
        let data = memory.view::<f32>(0, 1).unwrap();
        cuda.write(data, &[1.0]);
        device.all_reduce_in_place(data, Op::Sum, stream).unwrap();
        device.wait(stream).unwrap();
        assert_eq!(cuda.read(data), [3.0]);
    });
}

#[test]
fn buffers_of_several_types_are_one_group() {
    device_ranks(2, &CommOptions::default(), |device, comm, cuda| {
        let layout = Layout::from_counts(&[8, 16]).unwrap();
        let floats = Buffer::<f32>::new(device, &layout, "floats").unwrap();
        let halves = Buffer::<Bf16>::new(device, &layout, "halves").unwrap();
        let one = Bf16::from_bits(0x3F80);
        let stream = Stream::legacy_default();
        cuda.write(floats.data().unwrap(), &[comm.rank() as f32; 24]);
        cuda.write(halves.data().unwrap(), &[one; 24]);
        gpu::all_gather_v(&[&floats, &halves], stream).unwrap();
        device.wait(stream).unwrap();
        let expected: Vec<f32> = (0..24).map(|i| if i < 8 { 0.0 } else { 1.0 }).collect();
        assert_eq!(cuda.read(floats.data().unwrap()), expected);
        gpu::reduce_scatter_v(&[&floats, &halves], Op::Sum, stream).unwrap();
        device.wait(stream).unwrap();
        let own = halves.shard(comm.rank()).unwrap();
        assert_eq!(cuda.read(own), vec![Bf16::from_bits(0x4000); own.len()]);
        match gpu::all_gather_v(&[&floats, &floats], stream) {
            Err(Error::InvalidArgument(why)) => assert!(why.contains("is given twice"), "{why}"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn views_gather_and_reduce_beside_and_in_place() {
    for size in [1, 2, 3] {
        device_ranks(size, &CommOptions::default(), |device, comm, cuda| {
            let counts = uneven(comm.ranks());
            let (rank, elements) = (comm.rank(), total(&counts));
            let place = blocks(&counts)[rank].clone();
            let layout = Layout::from_counts(&counts).unwrap();
            let memory = Memory::new(device, 4096).unwrap();
            let own = memory.view::<f32>(2048, place.len()).unwrap();
            let address = cuda.malloc(4 * elements).cast::<f32>();
            // SAFETY: the memory has the elements, and is not freed.
            let whole = unsafe { device.view(address, elements) };
            let (mine, stream) = (terms(rank, elements), Stream::legacy_default());
            let (all, sum) = (gathered(&counts), &sums(comm.ranks(), elements)[place.clone()]);

            cuda.write(own, &mine[place.clone()]);
            device.all_gather_v(&layout, own, whole, stream).unwrap();
            device.wait(stream).unwrap();
            assert_eq!(cuda.read(whole), all);
            cuda.write(whole, &mine);
            device.all_gather_v_in_place(&layout, whole, stream).unwrap();
            device.wait(stream).unwrap();
            assert_eq!(cuda.read(whole), all);

            cuda.write(whole, &mine);
            device.reduce_scatter_v(&layout, whole, own, Op::Sum, stream).unwrap();
            device.wait(stream).unwrap();
            assert_eq!(cuda.read(own), sum);
            device.reduce_scatter_v_in_place(&layout, whole, Op::Sum, stream).unwrap();
            device.wait(stream).unwrap();
            assert_eq!(cuda.read(whole.part(place.clone()).unwrap()), sum);

            cuda.write(whole, &mine);
            device.broadcast(whole, comm.ranks() - 1, stream).unwrap();
            device.all_reduce_in_place(whole, Op::Max, stream).unwrap();
            device.wait(stream).unwrap();
            assert_eq!(cuda.read(whole), terms(comm.ranks() - 1, elements));
            assert!(device.explain(&layout, Type::F32, false).unwrap().contains("all_gather_v"));

            // Rank r sends k + 1 elements to rank k.
            let (rank, ranks) = (comm.rank(), comm.ranks());
            let sent: Vec<i64> = (1..=ranks as i64).collect();
            let received = vec![rank as i64 + 1; ranks];
            let element = |from, to, i| (100 * from + 10 * to + i) as f32;
            let blocks = |ends: &[(usize, usize)]| -> Vec<f32> {
                let of = |&(from, to)| (0..=to).map(move |i| element(from, to, i));
                ends.iter().flat_map(of).collect()
            };
            let to_all: Vec<_> = (0..ranks).map(|to| (rank, to)).collect();
            let from_all: Vec<_> = (0..ranks).map(|from| (from, rank)).collect();
            let (mine, expected) = (blocks(&to_all), blocks(&from_all));
            let blocks_memory = Memory::new(device, 8192).unwrap();
            let source = blocks_memory.view::<f32>(0, mine.len()).unwrap();
            let output = blocks_memory.view::<f32>(4096, expected.len()).unwrap();
            cuda.write(source, &mine);
            device.all_to_all_v(source, &sent, output, &received, stream).unwrap();
            device.wait(stream).unwrap();
            assert_eq!(cuda.read(output), expected);
            let few = device.all_to_all_v(source, &[1], output, &received, stream);
            assert_eq!(few.is_err(), ranks > 1);
            device.all_to_all_v(source, &vec![-1; ranks], output, &received, stream).unwrap_err();
            blocks_memory.free().unwrap();
            memory.free().unwrap();
        });
    }
}

#[test]
fn the_method_is_an_option() {
    let mut options = CommOptions::default();
    options.method = Some("padded".to_string());
    device_ranks(2, &options, |device, comm, _| {
        let layout = Layout::from_counts(&[4, 8]).unwrap();
        let text = device.explain(&layout, Type::F32, true).unwrap();
        assert!(text.contains("method padded"), "{text}");
        assert_eq!(device.info().unwrap().device, comm.rank() as i32);
        assert_eq!(device.info().unwrap().nccl_version, gpu::check_support().unwrap());
        device.check().unwrap();
    });
}

#[test]
fn memory_holds_several_buffers() {
    device_ranks(2, &CommOptions::default(), |device, comm, cuda| {
        let tensor = |name: &str, shape: &[i64], offset| Tensor {
            name: name.to_string(),
            shape: shape.to_vec(),
            offset,
            ..Tensor::default()
        };
        let tensors = [tensor("w", &[2, 4], 0), tensor("b", &[3], 8)];
        let layout = Layout::new(&tensors, 16, &[0, 8, 16]).unwrap();
        let options = BufferOptions::default();
        assert_eq!(Buffer::<f32>::bytes(&layout, &options).unwrap(), 64);
        let memory = Memory::new(device, 512).unwrap();
        let make =
            |offset| Buffer::<f32>::in_memory(&memory, offset, &layout, "part", &options).unwrap();
        let (first, second) = (make(0), make(256));
        let b = second.tensor(layout.find("b").unwrap()).unwrap();
        let begin = memory.view::<f32>(0, 128).unwrap();
        assert_eq!(b.as_mut_ptr(), begin.part(64 + 8..128).unwrap().as_mut_ptr());
        assert_eq!((b.len(), b.device()), (3, comm.rank() as i32));
        cuda.write(begin, &[7.0; 128]);
        assert_eq!(cuda.read(b), [7.0; 3]);
        assert!(first.tensor(2).is_err());
        assert!(first.shard(2).is_err());
    });
}

#[test]
fn wrong_views_are_refused_before_the_call() {
    device_ranks(2, &CommOptions::default(), |device, comm, cuda| {
        let layout = Layout::from_counts(&[4, 4]).unwrap();
        let memory = Memory::new(device, 4096).unwrap();
        let whole = memory.view::<f32>(0, 8).unwrap();
        let own = memory.view::<f32>(1024, 4).unwrap();
        let stream = Stream::legacy_default();
        let refused = |result: vescomm::Result<()>, says: &str| match result {
            Err(Error::InvalidArgument(why)) => assert!(why.contains(says), "{why}"),
            other => panic!("{other:?}"),
        };
        let gather = |source, output| device.all_gather_v(&layout, source, output, stream);
        refused(gather(own, own), "output has 4 elements, and 8 are needed");
        refused(gather(whole, whole), "source has 8 elements, and 4 are needed");
        refused(device.all_gather_v_in_place(&layout, own, stream), "8 are needed");
        refused(device.all_reduce(whole, own, Op::Sum, stream), "8 are needed");
        let scatter =
            |source, output| device.reduce_scatter_v(&layout, source, output, Op::Sum, stream);
        refused(scatter(own, own), "source has 4 elements, and 8 are needed");
        refused(scatter(whole, whole), "output has 8 elements, and 4 are needed");
        // SAFETY: no call accesses it.
        let null = unsafe { device.view(std::ptr::null_mut(), 4) };
        refused(gather(null, whole), "the address of source is null");
        refused(device.broadcast(whole, 2, stream), "root is 2; ranks are 0 to 1");
        refused(own.part(3..5).map(drop), "no part of a view of 4 elements");
        refused(memory.view::<f64>(4092, 1).map(drop), "do not fit");
        refused(memory.view::<u8>(u64::MAX, 2).map(drop), "do not fit");
        refused(memory.view::<f64>(4, 1).map(drop), "no multiple of 8");

        // Memory of another device: its owner would not wait for work of this one.
        let alone = Communicator::new(0, 1, "", "", &Default::default()).unwrap();
        cuda.set_device(comm.rank() + 2);
        // SAFETY: there is one rank.
        let other = unsafe { gpu::Communicator::new(&alone, &CommOptions::default()) }.unwrap();
        let elsewhere = Memory::new(&other, 32).unwrap();
        refused(gather(own, elsewhere.view(0, 8).unwrap()), "memory of device");
        refused(device.broadcast(whole, 0, stream), "call cudaSetDevice() first");
        drop(elsewhere);
        other.free().unwrap();
        alone.finalize().unwrap();
        cuda.set_device(comm.rank());
        device.broadcast(whole, 0, stream).unwrap(); // the communicator works
        device.wait(stream).unwrap();
    });
}

#[test]
fn kernels_make_a_clipped_step_of_two_ranks() {
    device_ranks(2, &CommOptions::default(), |device, comm, cuda| {
        kernels::check().unwrap();
        let memory = Memory::new(device, 4096).unwrap();
        let floats = |place| memory.view::<f32>(place, 2).unwrap();
        let (parameters, gradients, m, v) = (floats(0), floats(256), floats(512), floats(768));
        let words = memory.view::<i64>(1024, SUM_WORDS).unwrap();
        let clip = memory.view::<Clip>(2048, 1).unwrap();
        let overflow = memory.view::<i32>(2304, 1).unwrap();
        let piece = |count| [Piece { target: 0, source: 0, count }];
        let (stream, mine) = (Stream::legacy_default(), [3.0f32, 4.0][comm.rank()]);
        cuda.write(parameters, &[1.0, 1.0]);
        cuda.write(gradients, &[0.0, 2.0 * mine]);
        let mut settings = AdamW::default();
        settings.learning_rate = 0.25;
        settings.weight_decay = 0.0;
        // SAFETY: the device of this thread is that of the communicator.
        unsafe {
            let both = &piece(2);
            kernels::zero(m, both, stream).unwrap();
            kernels::scale(v, 0.0, &[], stream).unwrap();
            kernels::copy(v, m, both, stream).unwrap();
            kernels::zero(words, &piece(SUM_WORDS as i64), stream).unwrap();
            kernels::zero(overflow, &piece(1), stream).unwrap();
            kernels::unscale(gradients, 0.5, overflow, both, stream).unwrap();
            kernels::add(gradients, m, both, stream).unwrap();
            kernels::add_squares(words, gradients, both, stream).unwrap();
            device.all_reduce_in_place(words, Op::Sum, stream).unwrap();
            kernels::clip_factor(words, 1.0, 1.0, clip, stream).unwrap();
            let views = AdamWViews { parameters, gradients, m, v };
            kernels::adamw(views, &settings, Some(clip), both, stream).unwrap();
        }
        device.wait(stream).unwrap();
        let result = cuda.read(clip)[0];
        assert_eq!((result.norm, result.skip, cuda.read(overflow)[0]), (5.0, 0, 0));
        assert!((result.factor - 0.2).abs() < 1e-6, "{result:?}");
        assert!((cuda.read(m)[1] - 0.02 * mine).abs() < 1e-6);
        // The first step of a gradient that is not zero is the learning rate.
        let after = cuda.read(parameters);
        assert!(after[0] == 1.0 && (after[1] - 0.75).abs() < 1e-6, "{after:?}");
    });
}

/// A step of 2^-10 from 1, of which a bf16 is 2^-8 away below.
#[test]
fn kernels_round_bf16_stochastically() {
    device_ranks(1, &CommOptions::default(), |device, _, cuda| {
        let memory = Memory::new(device, 65536).unwrap();
        let (below, one) = (Bf16::from_bits(0x3f7f), Bf16::from_bits(0x3f80));
        let parameters = memory.view::<Bf16>(0, 4096).unwrap();
        let floats = |place| memory.view::<f32>(place, 4096).unwrap();
        let (gradients, m, v) = (floats(8192), floats(24576), floats(40960));
        let mut settings = AdamW::default();
        settings.learning_rate = 1.0 / 1024.0;
        settings.weight_decay = 0.0;
        for (random, expected) in
            [(None, 0..=0), (Some(RandomBits { stream: 7, first: 0 }), 854..=1194)]
        {
            settings.random = random;
            cuda.write(parameters, &[one; 4096]);
            cuda.write(gradients, &[1.0; 4096]);
            cuda.write(m, &[0.0; 4096]);
            cuda.write(v, &[0.0; 4096]);
            let views = AdamWViews { parameters, gradients, m, v };
            let all = [Piece { target: 0, source: 0, count: 4096 }];
            // SAFETY: the device of this thread is that of the communicator.
            unsafe {
                kernels::adamw(views, &settings, None, &all, Stream::legacy_default()).unwrap();
            }
            device.wait(Stream::legacy_default()).unwrap();
            let after = cuda.read(parameters);
            assert!(after.iter().all(|&code| code == below || code == one));
            let count = after.iter().filter(|&&code| code == below).count();
            assert!(expected.contains(&count), "{count}");
        }
    });
}

#[test]
fn kernels_make_steps_of_sgd_and_of_8bit_adamw() {
    device_ranks(1, &CommOptions::default(), |device, _, cuda| {
        let memory = Memory::new(device, 4096).unwrap();
        let floats = |place, count| memory.view::<f32>(place, count).unwrap();
        let bytes = |place| memory.view::<u8>(place, 2).unwrap();
        let (parameters, gradients, mean) = (floats(0, 2), floats(256, 2), floats(512, 2));
        let (m, v, m_scales, v_scales) =
            (bytes(768), bytes(1024), floats(1280, 2), floats(1536, 1));
        let stream = Stream::legacy_default();
        let piece = |target, source, count| [Piece { target, source, count }];
        cuda.write(parameters, &[1.0, 1.0]);
        cuda.write(gradients, &[4.0, -8.0]);
        cuda.write(mean, &[0.0, 2.0]);
        let mut sgd = Sgd::default();
        sgd.learning_rate = 0.25;
        let plain = SgdViews { parameters, gradients, momentum: None };
        let views = SgdViews { parameters, gradients, momentum: Some(mean) };
        let refused = |result: vescomm::Result<()>, says: &str| match result {
            Err(Error::InvalidArgument(why)) => assert!(why.contains(says), "{why}"),
            other => panic!("{other:?}"),
        };
        // SAFETY: the device of this thread is that of the communicator.
        unsafe {
            kernels::sgd(plain, &sgd, None, &piece(0, 0, 2), stream).unwrap();
            device.wait(stream).unwrap();
            assert_eq!(cuda.read(parameters), [0.0, 3.0]);
            sgd.momentum = 0.5;
            sgd.nesterov = true;
            kernels::sgd(views, &sgd, None, &piece(1, 0, 1), stream).unwrap();
            device.wait(stream).unwrap();
            assert_eq!(cuda.read(mean), [0.0, 5.0]);
            assert_eq!(cuda.read(parameters), [0.0, 3.0 - 0.25 * (4.0 + 2.5)]);
            refused(kernels::sgd(plain, &sgd, None, &piece(0, 0, 2), stream), "momentum is NULL");
            let short = SgdViews { momentum: Some(v_scales), ..views };
            refused(kernels::sgd(short, &sgd, None, &piece(0, 0, 2), stream), "momentum has 1");
            sgd.dampening = 0.5;
            refused(kernels::sgd(views, &sgd, None, &piece(0, 0, 2), stream), "nesterov needs");

            cuda.write(parameters, &[1.0, 1.0]);
            for codes in [m, v] {
                cuda.write(codes, &[0, 0]);
            }
            cuda.write(m_scales, &[0.0, 0.0]);
            cuda.write(v_scales, &[0.0]);
            let mut settings = AdamW::default();
            settings.learning_rate = 0.25;
            settings.weight_decay = 0.0;
            let views = Adam8bitViews { parameters, gradients, m, v, m_scales, v_scales };
            kernels::adam8bit(views, &settings, None, &piece(0, 0, 2), stream).unwrap();
            device.wait(stream).unwrap();
            // The first step is the learning rate.
            let after = cuda.read(parameters);
            assert!((after[0] - 0.75).abs() < 1e-6 && (after[1] - 1.25).abs() < 1e-6, "{after:?}");
            assert!((cuda.read(m_scales)[0] - 0.8).abs() < 1e-6);
            assert_eq!((cuda.read(m)[1], cuda.read(v)[1]), (0, 255));
            let two = [
                Piece { target: 0, source: 0, count: 1 },
                Piece { target: 1, source: 0, count: 1 },
            ];
            refused(kernels::adam8bit(views, &settings, None, &two, stream), "v_scales has 1");
        }
    });
}

#[test]
fn kernels_quantise_and_check_pieces() {
    device_ranks(1, &CommOptions::default(), |device, _, cuda| {
        let memory = Memory::new(device, 4096).unwrap();
        let (source, target) =
            (memory.view::<f32>(0, 6).unwrap(), memory.view::<f32>(256, 6).unwrap());
        let (codes, scales) =
            (memory.view::<i8>(512, 6).unwrap(), memory.view::<f32>(768, 2).unwrap());
        let stream = Stream::legacy_default();
        let values = [127.0, -127.0, 1.0, 0.0, 254.0, 2.0];
        cuda.write(source, &values);
        let piece = |target, source, count| [Piece { target, source, count }];
        let words = memory.view::<i64>(1024, SUM_WORDS).unwrap();
        let refused = |result: vescomm::Result<()>, says: &str| match result {
            Err(Error::InvalidArgument(why)) => assert!(why.contains(says), "{why}"),
            other => panic!("{other:?}"),
        };
        // SAFETY: the device of this thread is that of the communicator.
        unsafe {
            kernels::quantise(codes, scales, source, 4, stream).unwrap();
            kernels::dequantise(target, codes, scales, 4, stream).unwrap();
            device.wait(stream).unwrap();
            assert_eq!(cuda.read(codes), [127, -127, 1, 0, 127, 1]);
            assert_eq!(cuda.read(scales), [1.0, 2.0]);
            assert_eq!(cuda.read(target), values);
            // The codes of the second source begin at the third element, its scale is the second.
            let sources = QuantisedSources {
                codes,
                code_stride: 2,
                scales,
                scale_stride: 1,
                count: 2,
                block: 4,
            };
            let sum = target.part(0..3).unwrap();
            kernels::sum_quantised(sum, sources, 0.5, false, stream).unwrap();
            kernels::sum_quantised(sum, sources, 0.5, true, stream).unwrap();
            device.wait(stream).unwrap();
            assert_eq!(cuda.read(sum), [129.0, -127.0, 255.0]);
            refused(kernels::sum_quantised(target, sources, 1.0, false, stream), "codes has 6");

            let behind = "3 elements from 4 on, and target has 6";
            refused(kernels::zero(target, &piece(4, 0, 3), stream), behind);
            refused(kernels::scale(target, 2.0, &piece(4, 0, 3), stream), behind);
            refused(kernels::copy(target, source, &piece(4, 0, 3), stream), behind);
            let behind = "and source has 6";
            refused(kernels::add(target, source, &piece(0, 4, 3), stream), behind);
            refused(kernels::copy(target, source, &piece(0, i64::MAX, 3), stream), behind);
            refused(kernels::add_squares(words, source, &piece(6, 0, 1), stream), behind);
            let short = words.part(1..SUM_WORDS).unwrap();
            refused(kernels::add_squares(short, source, &[], stream), "22 are needed");
            refused(kernels::quantise(codes, scales, source, 2, stream), "scales has 2");
            let few = codes.part(0..5).unwrap();
            refused(kernels::dequantise(target, few, scales, 4, stream), "codes has 5");
            let short = AdamWViews { parameters: target, gradients: source, m: source, v: scales };
            let step = AdamW::default();
            refused(kernels::adamw(short, &step, None, &piece(0, 0, 3), stream), "v has 2");
            refused(kernels::zero(target, &piece(-1, 0, 3), stream), "-1");
        }
    });
}

#[test]
fn settings_are_passed_to_nccl() {
    let mut options = CommOptions::default();
    options.nccl_config = Some("cgaClusterSize=2,netName=IB".into());
    device_ranks(2, &options, |device, _, _| assert!(!device.info().unwrap().derived));
    if Cuda::load().is_none() {
        return;
    }
    ranks(2, |comm| {
        for (settings, says) in [
            ("cgaClusterSize=x", "cgaClusterSize is \"x\"; it must be a whole number"),
            ("netName=\0", "nccl_config"),
        ] {
            let mut options = CommOptions::default();
            options.nccl_config = Some(settings.into());
            // SAFETY: the ranks run the same body.
            let error = unsafe { gpu::Communicator::new(comm, &options) }.err().unwrap();
            assert!(error.to_string().contains(says), "{error}");
        }
    });
}
