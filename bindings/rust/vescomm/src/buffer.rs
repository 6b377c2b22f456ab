// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::null_mut;
use std::rc::Rc;

use vescomm_sys as sys;

use crate::error::{c_string, call, invalid};
use crate::memory::{MemoryState, SealedOwner};
use crate::{Communicator, Element, Layout, Memory, NewRequest, Result, Sharing};

/// A buffer in a [`Memory`], which gives access to its elements.
pub struct Part<'c, T> {
    pub(crate) comm: &'c Communicator,
    pub(crate) raw: *mut sys::vescomm_buffer_t,
    pub(crate) state: Rc<MemoryState>,
    pub(crate) name: String,
    /// Bytes of the buffer in the memory.
    place: Range<u64>,
    tensors: usize,
    _elements: PhantomData<T>,
}

/// Places of elements in a buffer.
#[derive(Clone, Copy)]
enum Which {
    All,
    Shard,
    Tensor(usize),
}

impl<'c, T: Element> Part<'c, T> {
    fn create(
        comm: &'c Communicator,
        layout: &Layout,
        name: &str,
        state: Rc<MemoryState>,
        mut options: sys::vescomm_buffer_options_t,
    ) -> Result<Part<'c, T>> {
        let in_c = c_string("the name of a buffer", name).map_err(|error| comm.refuse(error))?;
        let info = layout.info()?;
        let bytes = (info.elements as u64).saturating_mul(T::TYPE.bytes() as u64);
        let place = options.offset_bytes..options.offset_bytes.saturating_add(bytes);
        state.check_new_place(name, &place).map_err(|error| comm.refuse(error))?;
        options.type_ = T::TYPE as i32;
        options.name = in_c.as_ptr();
        let mut raw = null_mut();
        // SAFETY: this thread alone uses the communicator; the options live until the call returns.
        call(|| unsafe {
            sys::vescomm_buffer_create(comm.raw(), layout.raw(), &options, &mut raw)
        })?;
        state.add_place(place.clone());
        Ok(Part {
            comm,
            raw,
            state,
            name: name.to_string(),
            place,
            tensors: info.tensors,
            _elements: PhantomData,
        })
    }

    /// Creates a buffer in a memory, and checks that all ranks pass the same layout and options.
    /// `offset_bytes`, a multiple of 64, is the first byte of the buffer in the memory. `name` is
    /// used in error messages and traces. An error if it overlaps another buffer of one slab for
    /// each node that this rank has acquired: another rank could write to a shard in use.
    /// Collective.
    pub fn new(
        memory: &Memory<'c>,
        layout: &Layout,
        offset_bytes: u64,
        name: &str,
    ) -> Result<Part<'c, T>> {
        let mut options = sys::vescomm_buffer_options_init();
        options.memory = memory.raw;
        options.offset_bytes = offset_bytes;
        Part::create(memory.comm, layout, name, memory.state.clone(), options)
    }

    /// Begins the creation of a request on this buffer.
    pub fn request(&self) -> NewRequest<'_, 'c, T> {
        NewRequest::new(self)
    }

    pub(crate) fn check_memory(&self, state: &Rc<MemoryState>) -> Result<()> {
        if Rc::ptr_eq(&self.state, state) {
            return Ok(());
        }
        Err(invalid(format!("buffer {:?} lies in another memory than the one given", self.name)))
    }

    pub(crate) fn shard_elements(&self) -> Result<usize> {
        self.view(Which::Shard).map(|(_, elements)| elements)
    }

    fn view(&self, which: Which) -> Result<(*mut T, usize)> {
        let mut view = sys::vescomm_view_t { data: null_mut(), elements: 0 };
        // SAFETY: the buffer exists, and the output lives until the call returns.
        call(|| unsafe {
            match which {
                Which::All => sys::vescomm_buffer_get_data(self.raw, &mut view),
                Which::Shard => sys::vescomm_buffer_get_shard(self.raw, &mut view),
                Which::Tensor(index) => sys::vescomm_buffer_get_tensor(self.raw, index, &mut view),
            }
        })?;
        if view.elements == 0 {
            return Ok((std::ptr::NonNull::dangling().as_ptr(), 0));
        }
        Ok((view.data.cast(), view.elements as usize))
    }

    /// # Safety
    ///
    /// Nothing writes the elements during 'a: a mutable borrow of the memory is needed to start a
    /// request, or to get a mutable slice. The state permits the access.
    unsafe fn slice<'a>(&self, which: Which) -> Result<&'a [T]> {
        let (data, elements) = self.view(which)?;
        // SAFETY: the library returns aligned elements, and every pattern of bits is a value.
        Ok(unsafe { std::slice::from_raw_parts(data, elements) })
    }

    /// # Safety
    ///
    /// As `slice()`, and nothing else reads the elements.
    unsafe fn slice_mut<'a>(&self, which: Which) -> Result<&'a mut [T]> {
        let (data, elements) = self.view(which)?;
        // SAFETY: as slice().
        Ok(unsafe { std::slice::from_raw_parts_mut(data, elements) })
    }

    /// # Safety
    ///
    /// The memory is borrowed for 'a. This holds for all functions below, mutably for those with
    /// _mut.
    pub(crate) unsafe fn data<'a>(&self) -> Result<&'a [T]> {
        self.state.check_read(&self.name)?;
        // SAFETY: checked; the memory is borrowed.
        unsafe { self.slice(Which::All) }
    }

    pub(crate) unsafe fn data_mut<'a>(&self) -> Result<&'a mut [T]> {
        self.state.check_write(&self.name)?;
        // SAFETY: checked; the memory is borrowed.
        unsafe { self.slice_mut(Which::All) }
    }

    pub(crate) unsafe fn shard<'a>(&self) -> Result<&'a [T]> {
        self.state.check_read_shard(&self.name, &self.place)?;
        // SAFETY: checked; the memory is borrowed.
        unsafe { self.slice(Which::Shard) }
    }

    pub(crate) unsafe fn shard_mut<'a>(&self) -> Result<&'a mut [T]> {
        self.state.check_write_shard(&self.name, &self.place)?;
        // SAFETY: checked; the memory is borrowed.
        unsafe { self.slice_mut(Which::Shard) }
    }

    pub(crate) unsafe fn tensor<'a>(&self, index: usize) -> Result<&'a [T]> {
        self.state.check_read(&self.name)?;
        // SAFETY: checked; the memory is borrowed.
        unsafe { self.slice(Which::Tensor(index)) }
    }

    pub(crate) unsafe fn tensors_mut<'a>(&self) -> Result<Vec<&'a mut [T]>> {
        self.state.check_write(&self.name)?;
        // SAFETY: checked; the memory is borrowed, and tensors of a layout do not overlap.
        (0..self.tensors).map(|index| unsafe { self.slice_mut(Which::Tensor(index)) }).collect()
    }

    /// The caller has a mutable borrow of the memory.
    pub(crate) fn acquire(&self) -> Result<()> {
        self.state.check_idle(&self.name, "acquired")?;
        self.state.released(); // also if the wait fails
                               // SAFETY: this thread alone uses the communicator.
        call(|| unsafe { sys::vescomm_buffer_acquire(self.raw) })?;
        self.state.acquired();
        Ok(())
    }

    /// The caller has a mutable borrow of the memory.
    pub(crate) fn release(&self) -> Result<()> {
        self.state.check_idle(&self.name, "released")?;
        self.state.released();
        // SAFETY: this thread alone uses the communicator.
        call(|| unsafe { sys::vescomm_buffer_release(self.raw) }).map(drop)
    }

    /// Returns the address of the first element, for programs that share the memory by rules of
    /// their own.
    pub fn as_mut_ptr(&self) -> Result<*mut T> {
        self.view(Which::All).map(|(data, _)| data)
    }
}

impl<T> Drop for Part<'_, T> {
    fn drop(&mut self) {
        // SAFETY: nothing else has the pointer; requests keep the buffer alive.
        let _ = call(|| unsafe { sys::vescomm_buffer_free(self.raw) });
    }
}

impl<T> fmt::Debug for Part<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "buffer {:?}, bytes {:?}", self.name, self.place)
    }
}

/// Memory of its own, seen through a layout: tensors and shards at stable addresses. All elements
/// are zero at first.
///
/// Every access is checked. With [`Sharing::PerRank`] the memory belongs to this rank while no
/// request runs on it. With [`Sharing::PerNode`] all ranks of the node see the same bytes: they may
/// be read after a gather until [`release()`](Buffer::release), and the own shard may be written
/// between [`acquire()`](Buffer::acquire) and the next gather. After a request has failed, the
/// buffer returns the error, because other ranks may still write to it.
///
/// ```
/// # fn main() -> vescomm::Result<()> {
/// use vescomm::{Buffer, Communicator, Layout};
/// let comm = Communicator::from_environment()?;
/// let counts: Vec<i64> = (1..=comm.ranks() as i64).collect(); // rank k owns k + 1 elements
/// let mut buffer = Buffer::<f32>::new(&comm, &Layout::from_counts(&counts)?, "parameters")?;
/// let mut gather = buffer.request().all_gather_v()?;
/// buffer.shard_mut()?.fill(comm.rank() as f32);
/// gather.start(&mut buffer)?;
/// assert!(buffer.data().is_err()); // running
/// gather.wait()?;
/// assert_eq!(buffer.data()?[0], 0.0);
/// # comm.finalize()
/// # }
/// ```
///
/// A request does not start while a slice of its memory exists:
///
/// ```compile_fail,E0502
/// # fn f(buffer: &mut vescomm::Buffer<f32>, gather: &mut vescomm::Request) -> vescomm::Result<()> {
/// let shard = buffer.shard()?;
/// gather.start(buffer)?;
/// println!("{}", shard[0]);
/// # Ok(())
/// # }
/// ```
///
/// A buffer does not outlive its communicator:
///
/// ```compile_fail,E0505
/// # fn f(comm: vescomm::Communicator, layout: &vescomm::Layout) -> vescomm::Result<()> {
/// let buffer = vescomm::Buffer::<f32>::new(&comm, layout, "x")?;
/// drop(comm);
/// buffer.data()?;
/// # Ok(())
/// # }
/// ```
pub struct Buffer<'c, T> {
    part: Part<'c, T>,
}

impl<'c, T: Element> Buffer<'c, T> {
    /// Creates a buffer with one slab for each rank, and checks that all ranks pass the same layout
    /// and name. `name` is used in error messages and traces. Collective.
    pub fn new(comm: &'c Communicator, layout: &Layout, name: &str) -> Result<Buffer<'c, T>> {
        Buffer::with_sharing(comm, layout, name, Sharing::PerRank)
    }

    /// As [`new()`](Buffer::new), with one slab for each rank or for each node.
    pub fn with_sharing(
        comm: &'c Communicator,
        layout: &Layout,
        name: &str,
        sharing: Sharing,
    ) -> Result<Buffer<'c, T>> {
        let mut options = sys::vescomm_buffer_options_init();
        options.sharing = sharing.raw();
        let part = Part::create(comm, layout, name, MemoryState::new(sharing), options)?;
        Ok(Buffer { part })
    }

    /// Begins the creation of a request on this buffer.
    pub fn request(&self) -> NewRequest<'_, 'c, T> {
        self.part.request()
    }

    /// Returns all elements. An error if a request runs, or if the memory is one slab for each node
    /// and not gathered.
    pub fn data(&self) -> Result<&[T]> {
        // SAFETY: the memory is borrowed, and mutable slices borrow it mutably.
        unsafe { self.part.data() }
    }

    /// Returns all elements. An error for one slab for each node.
    pub fn data_mut(&mut self) -> Result<&mut [T]> {
        // SAFETY: the memory is borrowed mutably.
        unsafe { self.part.data_mut() }
    }

    /// Returns the calling rank's shard.
    pub fn shard(&self) -> Result<&[T]> {
        // SAFETY: as data().
        unsafe { self.part.shard() }
    }

    /// Returns the calling rank's shard. An error for one slab for each node that is not acquired.
    pub fn shard_mut(&mut self) -> Result<&mut [T]> {
        // SAFETY: as data_mut().
        unsafe { self.part.shard_mut() }
    }

    /// Returns one tensor, a dense row-major array. [`Layout::find()`] finds its index.
    pub fn tensor(&self, index: usize) -> Result<&[T]> {
        // SAFETY: as data().
        unsafe { self.part.tensor(index) }
    }

    /// Returns all tensors, in the order of the layout. They do not overlap.
    pub fn tensors_mut(&mut self) -> Result<Vec<&mut [T]>> {
        // SAFETY: as data_mut().
        unsafe { self.part.tensors_mut() }
    }

    /// Waits until this rank may write its own shard in one slab for each node: releases the buffer
    /// on this rank, then waits until every rank of the node has released it. Needed only before
    /// writing in place; a gather from a separate source does it. Returns immediately for one slab
    /// for each rank.
    pub fn acquire(&mut self) -> Result<()> {
        self.part.acquire()
    }

    /// Declares that this rank no longer reads the gathered contents of one slab for each node, so
    /// that the next gather may overwrite them. Starting the next gather does it too; an earlier
    /// release lets faster peers proceed.
    pub fn release(&mut self) -> Result<()> {
        self.part.release()
    }

    /// Returns the address of the first element, for programs that share the memory by rules of
    /// their own. To dereference it is unsafe.
    pub fn as_mut_ptr(&mut self) -> Result<*mut T> {
        self.part.as_mut_ptr()
    }
}

impl<T> SealedOwner for Buffer<'_, T> {
    fn state(&self) -> &Rc<MemoryState> {
        &self.part.state
    }
}

impl<T> fmt::Debug for Buffer<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.part.fmt(formatter)
    }
}
