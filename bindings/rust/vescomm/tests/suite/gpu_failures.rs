// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Device memory on the test double of CUDA and NCCL: ends of owners, and failures. With
//! GPU_DOUBLE_STRICT=1 the double ends the process when work uses memory that is freed.

use std::mem::forget;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Barrier;
use std::time::Duration;

use vescomm::gpu::{self, Buffer, BufferOptions, CommOptions, Memory, Placement, Stream};
use vescomm::{Communicator, Error, Layout, Op};

use crate::gpu::device_ranks;
use crate::support::cuda::Cuda;
use crate::support::job::{in_job, Job};
use crate::support::{names_rank, options, ranks_with};

/// As device_ranks(), with a timeout, and without a successful end.
fn failing_ranks(
    size: usize,
    timeout: Option<Duration>,
    body: impl Fn(&Communicator, &gpu::Communicator<'_>, Cuda) + Sync,
) {
    failing_ranks_with(size, timeout, false, body)
}

fn failing_ranks_with(
    size: usize,
    timeout: Option<Duration>,
    shrinkable: bool,
    body: impl Fn(&Communicator, &gpu::Communicator<'_>, Cuda) + Sync,
) {
    let cuda = match Cuda::load() {
        Some(cuda) => cuda,
        None => return eprintln!("skipped: GPU_DOUBLE_FOLDER is not set"),
    };
    let set = |_| {
        let mut set = options();
        set.timeout = timeout.or(set.timeout);
        set
    };
    ranks_with(size, set, |comm| {
        cuda.set_device(comm.rank());
        let mut device_options = CommOptions::default();
        device_options.shrinkable = shrinkable;
        // SAFETY: a rank stops after the first call that another one does not make.
        let device = unsafe { gpu::Communicator::new(&comm, &device_options) }.unwrap();
        body(&comm, &device, cuda);
    });
}

fn four_each(ranks: usize) -> Layout {
    Layout::from_counts(&vec![4; ranks]).unwrap()
}

#[test]
fn drops_wait_for_the_work_of_the_device() {
    device_ranks(3, &CommOptions::default(), |device, comm, cuda| {
        let layout = four_each(comm.ranks());
        let stream = cuda.stream();
        for _ in 0..4 {
            let buffer = Buffer::<f32>::new(device, &layout, "dropped").unwrap();
            let memory = Memory::new(device, 4096).unwrap();
            let data = memory.view::<f32>(0, 1024).unwrap();
            buffer.all_gather_v(stream).unwrap();
            device.all_reduce_in_place(data, Op::Sum, stream).unwrap();
        }
    });
}

#[test]
fn forgotten_owners_are_freed_with_the_communicator() {
    device_ranks(2, &CommOptions::default(), |device, comm, _| {
        let layout = four_each(comm.ranks());
        let stream = Stream::legacy_default();
        let memory = Memory::new(device, 4096).unwrap();
        let inside =
            Buffer::<f32>::in_memory(&memory, 256, &layout, "inside", &BufferOptions::default());
        let own = Buffer::<f32>::new(device, &layout, "own").unwrap();
        let inside = inside.unwrap();
        gpu::all_gather_v(&[&own, &inside], stream).unwrap();
        forget(own);
        forget(inside);
        let failed = memory.free().unwrap_err();
        assert!(failed.error.sentence().contains("used by 1 device buffer;"), "{failed}");
        // The drop of the memory is refused too, and that of the communicator frees all.
    });
}

#[test]
fn the_host_may_end_first() {
    device_ranks(2, &CommOptions::default(), |device, comm, _| {
        let buffer = Buffer::<f32>::new(device, &four_each(2), "late").unwrap();
        buffer.all_gather_v(Stream::legacy_default()).unwrap();
        comm.finalize().unwrap();
        buffer.free().unwrap();
    });
}

#[test]
fn ranks_that_differ_are_named() {
    device_ranks(3, &CommOptions::default(), |device, comm, _| {
        let counts = if comm.rank() == 2 { [4, 4, 8] } else { [4, 8, 4] };
        let layout = Layout::from_counts(&counts).unwrap();
        match Buffer::<f32>::new(device, &layout, "x") {
            Err(Error::Mismatch(why)) => assert!(names_rank(&why, 2), "{why}"),
            other => panic!("{other:?}"),
        }
        let mut options = BufferOptions::default();
        if comm.rank() == 1 {
            options.placement = Placement::Strided;
        }
        match Buffer::<f32>::with_options(device, &four_each(3), "x", &options) {
            Err(Error::Mismatch(why)) => {
                let says = "its placement is packed on rank 0 and strided on rank 1";
                assert!(why.contains(says), "{why}");
            }
            other => panic!("{other:?}"),
        }
        match Memory::new(device, 4096 * (1 + comm.rank() as u64)) {
            Err(Error::Mismatch(why)) => assert!(why.contains("bytes is 4096 on rank 0"), "{why}"),
            other => panic!("{other:?}"),
        }
        Buffer::<f32>::new(device, &four_each(3), "works").unwrap();
    });
}

#[test]
fn a_rank_that_does_not_call_is_a_timeout() {
    failing_ranks(2, Some(Duration::from_secs(1)), |comm, device, cuda| {
        let buffer = Buffer::<f32>::new(device, &four_each(2), "x").unwrap();
        let stream = cuda.stream();
        // Call 1 has created the buffer.
        let says =
            "rank 0 waited for the work of a stream until its deadline; rank 1 of this node has \
                    not made call 2 on the device communicator, which is all_gather_v of 8 f32";
        if comm.rank() == 0 {
            buffer.all_gather_v(stream).unwrap();
            match device.wait(stream) {
                Err(Error::Timeout(why)) => assert!(why.starts_with(says), "{why}"),
                other => panic!("{other:?}"),
            }
        } else {
            while device.check().is_ok() {
                std::thread::yield_now();
            }
        }
        match buffer.all_gather_v(stream) {
            Err(Error::Timeout(why)) => assert!(why.contains(says), "{why}"),
            other => panic!("{other:?}"),
        }
        buffer.free().unwrap();
    });
}

#[test]
fn a_drop_before_the_timeout_does_not_free_memory_of_running_work() {
    failing_ranks(2, Some(Duration::from_secs(1)), |comm, device, cuda| {
        let buffer = Buffer::<f32>::new(device, &four_each(2), "x").unwrap();
        if comm.rank() == 0 {
            buffer.all_gather_v(cuda.stream()).unwrap();
            let failed = buffer.free().unwrap_err();
            assert!(matches!(failed.error, Error::Timeout(_)), "{failed}");
            drop(failed.arrays);
        } else {
            while device.check().is_ok() {
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn an_abort_ends_the_waits() {
    failing_ranks(3, None, |comm, device, _| {
        let memory = Memory::new(device, 64).unwrap();
        if comm.rank() == 1 {
            comm.abort("rank 1 gives up").unwrap();
        }
        let stream = Stream::legacy_default();
        let data = memory.view::<f32>(0, 4).unwrap();
        let result =
            device.all_reduce_in_place(data, Op::Sum, stream).and_then(|()| device.wait(stream));
        match result {
            Err(Error::Aborted(why)) => assert!(why.contains("rank 1 gives up"), "{why}"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn survivors_shrink_their_devices() {
    for shrinkable in [false, true] {
        let all = Barrier::new(3);
        failing_ranks_with(3, None, shrinkable, |comm, device, cuda| {
            let buffer = Buffer::<f32>::new(device, &four_each(3), "x").unwrap();
            all.wait();
            if comm.rank() == 1 {
                comm.abort("rank 1 has ended").unwrap();
                all.wait();
                return;
            }
            let stream = cuda.stream();
            let result = buffer.all_gather_v(stream).and_then(|()| device.wait(stream));
            assert!(matches!(result, Err(Error::Aborted(_))), "{result:?}");
            let host = comm.shrink(&[1]).unwrap();
            // SAFETY: the survivors make the same calls.
            let survivors = unsafe { device.shrink(&host, &CommOptions::default()) }.unwrap();
            assert_eq!(survivors.info().unwrap().derived, shrinkable);
            let again = Buffer::<f32>::new(&survivors, &four_each(2), "x").unwrap();
            cuda.write(again.shard(host.rank()).unwrap(), &[comm.rank() as f32; 4]);
            again.all_gather_v(stream).unwrap();
            survivors.wait(stream).unwrap();
            let read = cuda.read(again.data().unwrap());
            assert_eq!(read, [0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0]);
            again.free().unwrap();
            survivors.free().unwrap();
            all.wait();
        });
    }
}

#[test]
fn a_panic_aborts_before_the_drop_waits() {
    failing_ranks(2, None, |comm, device, _| {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let buffer = Buffer::<f32>::new(device, &four_each(2), "x").unwrap();
            assert!(comm.rank() == 0, "this panic is a part of the test");
            let stream = Stream::legacy_default();
            match buffer.all_gather_v(stream).and_then(|()| device.wait(stream)) {
                Err(Error::Aborted(why)) => assert!(why.contains("a panic ended"), "{why}"),
                other => panic!("{other:?}"),
            }
        }));
        assert_eq!(panicked.is_err(), comm.rank() == 1);
    });
}

#[test]
fn a_rank_that_dies_is_named() {
    if Cuda::load().is_none() {
        return eprintln!("skipped: GPU_DOUBLE_FOLDER is not set");
    }
    if !in_job() {
        let job = Job::of_test("gpu_failures::a_rank_that_dies_is_named", 2);
        let outputs: Vec<_> = job.finish().into_iter().map(|(_, output)| output).collect();
        return assert!(outputs[0].contains("\nnamed\n"), "{outputs:?}");
    }
    let comm = Communicator::from_environment().unwrap();
    if comm.rank() == 1 {
        std::process::exit(0);
    }
    // SAFETY: rank 1 makes no call.
    match unsafe { gpu::Communicator::new(&comm, &CommOptions::default()) } {
        Err(Error::PeerFailed(why)) => {
            assert!(names_rank(&why, 1), "{why}");
            println!("\nnamed");
        }
        other => panic!("{other:?}"),
    };
}
