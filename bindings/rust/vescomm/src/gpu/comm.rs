// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::fmt;
use std::os::raw::c_void;
use std::ptr::{null, null_mut};

use vescomm_sys as sys;

use super::options::{CommInfo, CommOptions};
use super::{Stream, View};
use crate::comm::rank_number;
use crate::error::{call, text};
use crate::{Element, Error, Layout, Op, Result, Type};

/// An NCCL communicator of the ranks of a [`Communicator`](crate::Communicator) of the host, each
/// with its GPU.
///
/// The two fail together: if NCCL fails, the host's communicator is broken on all ranks, and if a
/// rank dies or aborts, [`wait()`](Communicator::wait) returns the first error. Wait with it instead
/// of a synchronisation of CUDA, which would wait for a dead rank forever.
///
/// It borrows the host's communicator, and stays in its thread. Its drop is collective: it waits
/// for the work of the device, and frees the memory of buffers that were forgotten. If a panic drops
/// it, the host's communicator is aborted first.
pub struct Communicator<'c> {
    pub(super) comm: &'c crate::Communicator,
    pub(super) raw: *mut sys::vescomm_gpu_comm_t,
    device: i32,
}

impl<'c> Communicator<'c> {
    /// Creates a device communicator on the current device of the calling thread. Collective. If one
    /// rank has no GPU or no NCCL, all ranks return [`Error::Unsupported`](crate::Error::Unsupported)
    /// with the number of that rank, and `comm` stays usable.
    ///
    /// # Safety
    ///
    /// NCCL does not compare the calls of ranks. Its documentation names hangs, crashes and data
    /// corruption as consequences of calls that differ. vescomm compares them and returns
    /// [`Error::Mismatch`](crate::Error::Mismatch), but NCCL may have begun them by then.
    ///
    /// - The n-th call on the communicator, its buffers and its memory is the same on every rank
    ///   that makes it: the function, the layout or the buffers, the number and type of elements,
    ///   the operator, the root; and the offset of views in a [`Memory`](super::Memory). A rank may
    ///   stop early: the others then wait until the timeout. After an error on one rank only, that
    ///   rank makes no further call on device memory.
    /// - `options.nccl_comm` is null, or an `ncclComm_t` as gpu.h describes it, which no other
    ///   thread uses and which exists until the communicator is dropped.
    pub unsafe fn new(
        comm: &'c crate::Communicator,
        options: &CommOptions,
    ) -> Result<Communicator<'c>> {
        let options = options.to_raw().map_err(|error| comm.refuse(error))?;
        let mut raw = null_mut();
        // SAFETY: this thread alone uses the communicator; the options live until the call returns.
        call(|| unsafe { sys::vescomm_gpu_comm_create(comm.raw(), &options.raw, &mut raw) })?;
        Communicator::owning(comm, raw)
    }

    fn owning(
        comm: &'c crate::Communicator,
        raw: *mut sys::vescomm_gpu_comm_t,
    ) -> Result<Communicator<'c>> {
        let mut made = Communicator { comm, raw, device: -1 };
        made.device = made.info()?.device;
        Ok(made)
    }

    /// Creates a device communicator of the ranks of `comm` from this one, through
    /// `ncclCommSplit()`; the ranks of `comm` are ranks of this one. With `None` the rank is in no
    /// new communicator, and the result is `None`. This one stays usable. If NCCL cannot split it,
    /// the call creates a new one on all ranks, as [`new()`](Communicator::new); see
    /// [`CommInfo::derived`]. Waits for the work of the device. Collective: all ranks of this
    /// communicator.
    ///
    /// # Safety
    ///
    /// As [`new()`](Communicator::new), for the calls on the result.
    pub unsafe fn split<'d>(
        &self,
        comm: Option<&'d crate::Communicator>,
        options: &CommOptions,
    ) -> Result<Option<Communicator<'d>>> {
        let options = options.to_raw().map_err(|error| self.comm.refuse(error))?;
        let part = comm.map_or(null_mut(), |comm| comm.raw());
        let mut raw = null_mut();
        // SAFETY: as new().
        call(|| unsafe { sys::vescomm_gpu_comm_split(self.raw, part, &options.raw, &mut raw) })?;
        comm.map(|comm| Communicator::owning(comm, raw)).transpose()
    }

    /// Creates a device communicator of the survivors of this one, through `ncclCommShrink()`.
    /// `survivors`: ranks of this one in its order, as
    /// [`Communicator::shrink()`](crate::Communicator::shrink) of the host returns them. After a
    /// failure, NCCL can shrink it if it was created with [`CommOptions::shrinkable`], and if
    /// nothing on it was freed since; otherwise the call creates a new one on all ranks, as
    /// [`new()`](Communicator::new); see [`CommInfo::derived`]. Collective: all survivors.
    ///
    /// # Safety
    ///
    /// As [`new()`](Communicator::new), for the calls on the result.
    pub unsafe fn shrink<'d>(
        &self,
        survivors: &'d crate::Communicator,
        options: &CommOptions,
    ) -> Result<Communicator<'d>> {
        let options = options.to_raw().map_err(|error| survivors.refuse(error))?;
        let mut raw = null_mut();
        // SAFETY: as new().
        call(|| unsafe {
            sys::vescomm_gpu_comm_shrink(self.raw, survivors.raw(), &options.raw, &mut raw)
        })?;
        Communicator::owning(survivors, raw)
    }

    /// Returns its device and the version of NCCL.
    pub fn info(&self) -> Result<CommInfo> {
        let mut info = sys::vescomm_gpu_comm_info_init();
        // SAFETY: struct_size is set.
        call(|| unsafe { sys::vescomm_gpu_comm_get_info(self.raw, &mut info) })?;
        Ok(CommInfo::from_raw(&info))
    }

    /// Returns the first failure of the communicator, also one of work that still runs.
    pub fn check(&self) -> Result<()> {
        // SAFETY: this thread alone uses the communicator.
        call(|| unsafe { sys::vescomm_gpu_comm_check(self.raw) }).map(drop)
    }

    /// Waits until the work of a stream is complete, at most the timeout, and returns early if the
    /// communicator fails.
    pub fn wait(&self, stream: Stream) -> Result<()> {
        // SAFETY: as check(); the stream exists, see Stream::from_raw().
        call(|| unsafe { sys::vescomm_gpu_wait(self.raw, stream.as_raw()) }).map(drop)
    }

    /// Makes the later work of a stream wait for the collectives so far, on whichever streams they
    /// are. The host does not wait.
    pub fn order_stream(&self, stream: Stream) -> Result<()> {
        // SAFETY: as wait().
        call(|| unsafe { sys::vescomm_gpu_order_stream(self.raw, stream.as_raw()) }).map(drop)
    }

    /// Describes how a ragged collective on a layout will run, and why. `reduces`: false for
    /// all_gather_v, true for reduce_scatter_v.
    pub fn explain(&self, layout: &Layout, elements: Type, reduces: bool) -> Result<String> {
        let mut string = null();
        // SAFETY: as check(); the string is valid until the next call of this function.
        call(|| unsafe {
            let (layout, elements) = (layout.raw(), elements as i32);
            sys::vescomm_gpu_explain(self.raw, layout, elements, reduces.into(), &mut string)
        })?;
        Ok(text(string))
    }

    /// Makes a view of device memory of the program, such as that of `cudaMalloc()`.
    ///
    /// # Safety
    ///
    /// At the address are `elements` elements, in memory of the device of this communicator. The
    /// memory is not freed before the work of all calls that get the view is complete, even if the
    /// lifetime `'a` ends earlier.
    pub unsafe fn view<'a, T>(&self, address: *mut T, elements: usize) -> View<'a, T> {
        // SAFETY: promised by the caller.
        unsafe { View::new(address, elements, self.device) }
    }

    fn check_view<T>(
        &self,
        call: &str,
        name: &str,
        view: View<'_, T>,
        elements: usize,
    ) -> Result<()> {
        view.check_device(call, name, self.device)?;
        view.check_elements(call, name, elements)
    }

    /// Elements of the shard of this rank.
    fn own_elements(&self, layout: &Layout) -> Result<usize> {
        layout.shard(self.comm.rank()).map(|shard| shard.len())
    }

    /// Gathers the shards of all ranks on all ranks. `source`: the shard of this rank. `output`: all
    /// elements of the layout. Collective.
    pub fn all_gather_v<T: Element>(
        &self,
        layout: &Layout,
        source: View<'_, T>,
        output: View<'_, T>,
        stream: Stream,
    ) -> Result<()> {
        self.check_view("gpu all_gather_v", "source", source, self.own_elements(layout)?)?;
        self.gather(layout, source.as_void(), output, stream)
    }

    /// As [`all_gather_v()`](Communicator::all_gather_v); the shard of this rank lies in its place.
    pub fn all_gather_v_in_place<T: Element>(
        &self,
        layout: &Layout,
        data: View<'_, T>,
        stream: Stream,
    ) -> Result<()> {
        self.gather(layout, null(), data, stream)
    }

    fn gather<T: Element>(
        &self,
        layout: &Layout,
        source: *const c_void,
        output: View<'_, T>,
        stream: Stream,
    ) -> Result<()> {
        self.check_view("gpu all_gather_v", "output", output, layout.info()?.elements)?;
        let (elements, output) = (T::TYPE as i32, output.as_void());
        // SAFETY: as wait(). The views have the elements of the layout, and their memory is not
        // freed before the work is complete.
        call(|| unsafe {
            let stream = stream.as_raw();
            sys::vescomm_gpu_all_gather_v(self.raw, layout.raw(), elements, source, output, stream)
        })
        .map(drop)
    }

    /// Reduces the arrays of all ranks and leaves each rank its own shard of the result. `source`:
    /// all elements of the layout, unchanged. `output`: the shard of this rank. Collective.
    pub fn reduce_scatter_v<T: Element>(
        &self,
        layout: &Layout,
        source: View<'_, T>,
        output: View<'_, T>,
        op: Op,
        stream: Stream,
    ) -> Result<()> {
        self.check_view("gpu reduce_scatter_v", "output", output, self.own_elements(layout)?)?;
        self.scatter(layout, source, output.as_void(), op, stream)
    }

    /// As [`reduce_scatter_v()`](Communicator::reduce_scatter_v), with the result in the place of
    /// the shard. The other elements are undefined afterwards.
    pub fn reduce_scatter_v_in_place<T: Element>(
        &self,
        layout: &Layout,
        data: View<'_, T>,
        op: Op,
        stream: Stream,
    ) -> Result<()> {
        self.scatter(layout, data, null_mut(), op, stream)
    }

    fn scatter<T: Element>(
        &self,
        layout: &Layout,
        source: View<'_, T>,
        output: *mut c_void,
        op: Op,
        stream: Stream,
    ) -> Result<()> {
        self.check_view("gpu reduce_scatter_v", "source", source, layout.info()?.elements)?;
        let (elements, op, source) = (T::TYPE as i32, op.raw().0, source.as_void());
        // SAFETY: as gather().
        call(|| unsafe {
            let (layout, stream) = (layout.raw(), stream.as_raw());
            sys::vescomm_gpu_reduce_scatter_v(
                self.raw, layout, elements, op, source, output, stream,
            )
        })
        .map(drop)
    }

    /// Reduces the arrays of all ranks and leaves every rank the result. Collective.
    pub fn all_reduce<T: Element>(
        &self,
        source: View<'_, T>,
        output: View<'_, T>,
        op: Op,
        stream: Stream,
    ) -> Result<()> {
        self.check_view("gpu all_reduce", "source", source, source.len())?;
        self.check_view("gpu all_reduce", "output", output, source.len())?;
        let (elements, op, count) = (T::TYPE as i32, op.raw().0, source.len() as i64);
        let (source, output) = (source.as_void(), output.as_void());
        // SAFETY: as gather().
        call(|| unsafe {
            let stream = stream.as_raw();
            sys::vescomm_gpu_all_reduce(self.raw, source, output, count, elements, op, stream)
        })
        .map(drop)
    }

    /// As [`all_reduce()`](Communicator::all_reduce), in place.
    pub fn all_reduce_in_place<T: Element>(
        &self,
        data: View<'_, T>,
        op: Op,
        stream: Stream,
    ) -> Result<()> {
        self.all_reduce(data, data, op, stream)
    }

    /// Copies the array of the root to all ranks. Collective.
    pub fn broadcast<T: Element>(
        &self,
        data: View<'_, T>,
        root: usize,
        stream: Stream,
    ) -> Result<()> {
        self.check_view("gpu broadcast", "data", data, data.len())?;
        let (elements, count, root) = (T::TYPE as i32, data.len() as i64, rank_number(root)?);
        // SAFETY: as gather().
        call(|| unsafe {
            let (data, stream) = (data.as_void(), stream.as_raw());
            sys::vescomm_gpu_broadcast(self.raw, data, count, elements, root, stream)
        })
        .map(drop)
    }

    /// Sends one block from every rank to every rank: `source_counts[k]` elements to rank k, and
    /// `output_counts[k]` from it. Blocks lie one after another. Collective.
    pub fn all_to_all_v<T: Element>(
        &self,
        source: View<'_, T>,
        source_counts: &[i64],
        output: View<'_, T>,
        output_counts: &[i64],
        stream: Stream,
    ) -> Result<()> {
        let name = "gpu all_to_all_v";
        self.check_view(name, "source", source, self.sum(name, source_counts)?)?;
        self.check_view(name, "output", output, self.sum(name, output_counts)?)?;
        // SAFETY: as gather(); there is a count for each rank.
        call(|| unsafe {
            let (from, to) = (source_counts.as_ptr(), output_counts.as_ptr());
            let (source, output, elements) = (source.as_void(), output.as_void(), T::TYPE as i32);
            let (comm, stream) = (self.raw, stream.as_raw());
            sys::vescomm_gpu_all_to_all_v(
                comm,
                source,
                from,
                null(),
                output,
                to,
                null(),
                elements,
                stream,
            )
        })
        .map(drop)
    }

    /// The sum of a list with a count for each rank.
    fn sum(&self, call: &str, counts: &[i64]) -> Result<usize> {
        let ranks = self.comm.ranks();
        if counts.len() != ranks {
            let given = counts.len();
            return Err(Error::InvalidArgument(format!(
                "{call}: there are {given} counts for {ranks} ranks"
            )));
        }
        counts
            .iter()
            .try_fold(0usize, |sum, &count| sum.checked_add(usize::try_from(count).ok()?))
            .ok_or_else(|| {
                Error::InvalidArgument(format!(
                    "{call}: counts are {counts:?}; they must be 0 or more, and their sum a usize"
                ))
            })
    }

    /// Frees the communicator as a drop does, and returns the error. Collective.
    pub fn free(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        // SAFETY: nothing else has the pointer. The library waits for the work of the device before
        // it frees memory, and leaks memory of work that hangs.
        let freed = call(|| unsafe { sys::vescomm_gpu_comm_free(self.raw) });
        // Also after an error it does not exist any more.
        self.raw = null_mut();
        freed.map(drop)
    }
}

impl Drop for Communicator<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            self.comm.abort_in_panic();
            let _ = self.end();
        }
    }
}

impl fmt::Debug for Communicator<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}, device {}", self.comm, self.device)
    }
}
