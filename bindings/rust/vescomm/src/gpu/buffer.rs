// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::fmt;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::ptr::{null, null_mut};

use vescomm_sys as sys;

use super::{Communicator, Memory, Stream, View};
use crate::comm::rank_number;
use crate::error::{c_string, call, text};
use crate::{Element, Failed, Layout, Op, Result};

/// The distance between the shards of a device buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// Shards follow one another as in the layout; each tensor is contiguous.
    #[default]
    Packed,
    /// Shards begin at multiples of the largest one. One call of NCCL moves them in place. Tensors
    /// with elements of several ranks are not contiguous.
    Strided,
}

/// Options of a device buffer, the same on every rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferOptions {
    /// The distance between shards.
    pub placement: Placement,
    /// False: a shard that does not begin at a multiple of 16 bytes is an error, because NCCL is
    /// several times slower there. True: shards may begin at any element.
    pub any_cuts: bool,
}

impl BufferOptions {
    fn to_raw<T: Element>(self) -> sys::vescomm_gpu_buffer_options_t {
        let mut options = sys::vescomm_gpu_buffer_options_init();
        options.type_ = T::TYPE as i32;
        options.any_cuts = self.any_cuts.into();
        options.placement = match self.placement {
            Placement::Packed => sys::VESCOMM_GPU_PACKED,
            Placement::Strided => sys::VESCOMM_GPU_STRIDED,
        };
        options
    }
}

/// A layout in device memory that is registered with NCCL once: tensors and shards at stable device
/// addresses, and collectives in place.
///
/// The drop is collective, and waits for the work of the device before it frees memory of its own.
/// If a panic drops the buffer, the host's communicator is aborted first.
pub struct Buffer<'d, T> {
    device: &'d Communicator<'d>,
    raw: *mut sys::vescomm_gpu_buffer_t,
    name: String,
    _elements: PhantomData<T>,
}

impl<'d, T: Element> Buffer<'d, T> {
    /// Creates a buffer with memory of its own, packed, and checks that all ranks pass the same
    /// layout. The contents are undefined. `name` is used in error messages. Collective.
    pub fn new(device: &'d Communicator<'_>, layout: &Layout, name: &str) -> Result<Buffer<'d, T>> {
        Buffer::with_options(device, layout, name, &BufferOptions::default())
    }

    /// As [`new()`](Buffer::new), with options.
    pub fn with_options(
        device: &'d Communicator<'_>,
        layout: &Layout,
        name: &str,
        options: &BufferOptions,
    ) -> Result<Buffer<'d, T>> {
        Buffer::create(device, layout, name, options, null_mut(), 0)
    }

    /// Creates a buffer in a memory. `offset_bytes`, a multiple of 256, is its first byte there;
    /// [`bytes()`](Buffer::bytes) returns its size. Collective.
    pub fn in_memory(
        memory: &'d Memory<'_>,
        offset_bytes: u64,
        layout: &Layout,
        name: &str,
        options: &BufferOptions,
    ) -> Result<Buffer<'d, T>> {
        Buffer::create(memory.device, layout, name, options, memory.address, offset_bytes)
    }

    fn create(
        device: &'d Communicator<'_>,
        layout: &Layout,
        name: &str,
        options: &BufferOptions,
        memory: *mut c_void,
        offset_bytes: u64,
    ) -> Result<Buffer<'d, T>> {
        let in_c =
            c_string("the name of a buffer", name).map_err(|error| device.comm.refuse(error))?;
        let mut raw_options = options.to_raw::<T>();
        raw_options.memory = memory;
        raw_options.offset_bytes = offset_bytes;
        raw_options.name = in_c.as_ptr();
        let mut raw = null_mut();
        // SAFETY: this thread alone uses the communicator; the options live until the call returns.
        call(|| unsafe {
            sys::vescomm_gpu_buffer_create(device.raw, layout.raw(), &raw_options, &mut raw)
        })?;
        Ok(Buffer { device, raw, name: name.to_string(), _elements: PhantomData })
    }

    /// Returns the bytes of device memory that a buffer needs. Needs no GPU.
    pub fn bytes(layout: &Layout, options: &BufferOptions) -> Result<u64> {
        let mut bytes = 0;
        let options = options.to_raw::<T>();
        // SAFETY: the options live until the call returns.
        call(|| unsafe { sys::vescomm_gpu_buffer_get_bytes(layout.raw(), &options, &mut bytes) })?;
        Ok(bytes)
    }

    fn view(
        &self,
        get: impl FnOnce(*mut sys::vescomm_view_t) -> sys::vescomm_status_t,
    ) -> Result<View<'_, T>> {
        let mut view = sys::vescomm_view_t { data: null_mut(), elements: 0 };
        call(|| get(&mut view))?;
        // SAFETY: the library returns elements of the buffer, which the view borrows, and whose
        // drop waits for work.
        Ok(unsafe { self.device.view(view.data.cast(), view.elements as usize) })
    }

    /// Returns all elements, with the gaps of a strided buffer.
    pub fn data(&self) -> Result<View<'_, T>> {
        // SAFETY: the buffer exists, and this thread alone uses the communicator.
        self.view(|view| unsafe { sys::vescomm_gpu_buffer_get_data(self.raw, view) })
    }

    /// Returns one tensor, a dense row-major array. [`Layout::find()`] finds its index. An error for
    /// a tensor of a strided buffer with elements of several ranks.
    pub fn tensor(&self, index: usize) -> Result<View<'_, T>> {
        // SAFETY: as data().
        self.view(|view| unsafe { sys::vescomm_gpu_buffer_get_tensor(self.raw, index, view) })
    }

    /// Returns the shard of a rank in the memory of the calling rank.
    pub fn shard(&self, rank: usize) -> Result<View<'_, T>> {
        let rank = rank_number(rank)?;
        // SAFETY: as data().
        self.view(|view| unsafe { sys::vescomm_gpu_buffer_get_shard(self.raw, rank, view) })
    }

    /// Gathers the shards of all ranks on all ranks, in place; the function
    /// [`all_gather_v()`](super::all_gather_v) takes several buffers. Collective.
    pub fn all_gather_v(&self, stream: Stream) -> Result<()> {
        all_gather_v(&[self], stream)
    }

    /// Reduces the buffers of all ranks, in place, and leaves each rank its own shard; the function
    /// [`reduce_scatter_v()`](super::reduce_scatter_v) takes several buffers. Collective.
    pub fn reduce_scatter_v(&self, op: Op, stream: Stream) -> Result<()> {
        reduce_scatter_v(&[self], op, stream)
    }

    /// Describes the memory of the buffer, and how a collective on it alone will run. `reduces`:
    /// false for all_gather_v, true for reduce_scatter_v.
    pub fn explain(&self, reduces: bool) -> Result<String> {
        let mut string = null();
        // SAFETY: as data(); the string is valid until the next call of this function.
        call(|| unsafe { sys::vescomm_gpu_buffer_explain(self.raw, reduces.into(), &mut string) })?;
        Ok(text(string))
    }

    /// Frees the buffer as a drop does, and returns the error. After an error the buffer still
    /// exists. Collective.
    pub fn free(mut self) -> std::result::Result<(), Failed<Self>> {
        match self.end() {
            Ok(()) => Ok(()),
            Err(error) => Err(Failed { error, arrays: self }),
        }
    }
}

impl<T> Buffer<'_, T> {
    fn end(&mut self) -> Result<()> {
        // SAFETY: nothing else has the pointer, and views borrow the buffer. The library waits for
        // the work of the device before it frees, and keeps memory of work that hangs.
        call(|| unsafe { sys::vescomm_gpu_buffer_free(self.raw) })?;
        self.raw = null_mut();
        Ok(())
    }
}

impl<T> Drop for Buffer<'_, T> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            self.device.comm.abort_in_panic();
            let _ = self.end();
        }
    }
}

impl<T> fmt::Debug for Buffer<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "device buffer {:?}, {:?}", self.name, self.device)
    }
}

mod sealed {
    pub trait Raw {
        #[doc(hidden)]
        fn raw(&self) -> *mut vescomm_sys::vescomm_gpu_buffer_t;
    }
}

impl<T> sealed::Raw for Buffer<'_, T> {
    fn raw(&self) -> *mut sys::vescomm_gpu_buffer_t {
        self.raw
    }
}

/// A [`Buffer`] of elements of any type.
pub trait AnyBuffer: sealed::Raw {}

impl<T> AnyBuffer for Buffer<'_, T> {}

fn pointers(buffers: &[&dyn AnyBuffer]) -> Vec<*mut sys::vescomm_gpu_buffer_t> {
    buffers.iter().map(|buffer| buffer.raw()).collect()
}

/// Gathers the shards of all ranks on all ranks, in place, in each of several buffers of one
/// communicator. All calls of NCCL are one group, which NCCL may run as one kernel. Collective.
pub fn all_gather_v(buffers: &[&dyn AnyBuffer], stream: Stream) -> Result<()> {
    let raw = pointers(buffers);
    // SAFETY: the buffers exist, and their communicator is in this thread. Their memory is not freed
    // before the work is complete; the stream exists, see Stream::from_raw().
    call(|| unsafe {
        sys::vescomm_gpu_buffer_all_gather_v(raw.as_ptr(), raw.len(), stream.as_raw())
    })
    .map(drop)
}

/// Reduces the buffers of all ranks, in place, and leaves each rank its own shard of the result, in
/// each of several buffers of one communicator. The other elements are undefined afterwards.
/// Collective.
pub fn reduce_scatter_v(buffers: &[&dyn AnyBuffer], op: Op, stream: Stream) -> Result<()> {
    let raw = pointers(buffers);
    // SAFETY: as all_gather_v().
    call(|| unsafe {
        let (buffers, op) = (raw.as_ptr(), op.raw().0);
        sys::vescomm_gpu_buffer_reduce_scatter_v(buffers, raw.len(), op, stream.as_raw())
    })
    .map(drop)
}
