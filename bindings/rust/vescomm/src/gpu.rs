// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Device memory, experimental: ragged collectives on the memory of GPUs, on CUDA streams.
//!
//! | | |
//! |---|---|
//! | [`Communicator`] | an NCCL communicator of the ranks of a [`Communicator`](crate::Communicator) of the host, each with its GPU |
//! | [`Buffer`] | a layout in registered device memory, with collectives in place |
//! | [`Memory`] | registered device memory, for several buffers, or for arrays |
//! | [`View`] | elements at a device address, the argument of calls |
//! | [`Stream`] | a CUDA stream of the program |
//! | [`kernels`] | operations on pieces of views |
//!
//! A call follows the earlier work of its stream, and returns before it is complete;
//! [`Communicator::wait()`] waits for it. The program allocates other memory, copies to and from the
//! host, and chooses the device (`cudaSetDevice()`) with a crate for CUDA. gpu.h, gpu_kernels.h and
//! docs/gpu.md describe everything in detail.
//!
//! ```no_run
//! # fn main() -> vescomm::Result<()> {
//! use vescomm::{gpu, Bf16, Layout, Op};
//! let comm = vescomm::Communicator::from_environment()?;
//! let layout = Layout::from_counts(&vec![1024; comm.ranks()])?;
//! // SAFETY: all ranks run this program, and make the same calls in the same order.
//! let device = unsafe { gpu::Communicator::new(&comm, &gpu::CommOptions::default()) }?;
//! let parameters = gpu::Buffer::<Bf16>::new(&device, &layout, "parameters")?;
//! let gradients = gpu::Buffer::<Bf16>::new(&device, &layout, "gradients")?;
//! let stream = gpu::Stream::legacy_default();
//! parameters.all_gather_v(stream)?;
//! // Kernels of the program use parameters.data()?.as_mut_ptr().
//! gradients.reduce_scatter_v(Op::Sum, stream)?;
//! device.wait(stream)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Safety
//!
//! Device memory is no memory of Rust: there are no slices of it, only addresses. Its contents may
//! be undefined, and safe code can leave undefined values in it. Safe code cannot make work use
//! memory that is freed:
//!
//! - Work on a stream outlives the borrows of its call. Therefore the drop of a [`Buffer`] or a
//!   [`Memory`] first waits for all work of the device. If the work hangs until the timeout, the
//!   memory leaks. A forgotten one is freed with its communicator, after the same wait.
//! - Sizes of views are compared with layouts, pieces and one another before a call, and a view
//!   belongs to one device.
//!
//! The compiler and the library cannot check the rest, so it is promised where `unsafe` is written,
//! once each: that ranks make the same calls ([`Communicator::new()`]), that calls on several
//! streams are ordered and graphs end before the memory ([`Stream::from_raw()`]), that memory of
//! the program lives long enough ([`Communicator::view()`]), and the current device of
//! [`kernels`].
//!
//! A buffer does not outlive its communicator:
//!
//! ```compile_fail,E0505
//! # fn f(device: vescomm::gpu::Communicator, layout: &vescomm::Layout) -> vescomm::Result<()> {
//! let buffer = vescomm::gpu::Buffer::<f32>::new(&device, layout, "x")?;
//! drop(device);
//! buffer.data()?;
//! # Ok(())
//! # }
//! ```
//!
//! A view does not outlive its buffer:
//!
//! ```compile_fail,E0505
//! # fn f(buffer: vescomm::gpu::Buffer<f32>) -> vescomm::Result<()> {
//! let view = buffer.data()?;
//! drop(buffer);
//! println!("{:?}", view.as_mut_ptr());
//! # Ok(())
//! # }
//! ```

mod buffer;
mod comm;
pub mod kernels;
mod memory;
mod options;
mod view;

pub use buffer::{all_gather_v, reduce_scatter_v, AnyBuffer, Buffer, BufferOptions, Placement};
pub use comm::Communicator;
pub use memory::Memory;
pub use options::{CommInfo, CommOptions};
pub use view::{Stream, View};

use vescomm_sys as sys;

use crate::error::call;
use crate::Result;

/// Tests whether device communicators can be created in this process, and loads CUDA and NCCL.
/// Returns the version of NCCL, such as 22809 for 2.28.9. [`Error::Unsupported`] states what is
/// missing.
///
/// [`Error::Unsupported`]: crate::Error::Unsupported
pub fn check_support() -> Result<i32> {
    let mut version = 0;
    // SAFETY: the output lives until the call returns.
    call(|| unsafe { sys::vescomm_gpu_check_support(&mut version) })?;
    Ok(version)
}
