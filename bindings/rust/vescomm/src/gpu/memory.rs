// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::fmt;
use std::mem::{align_of, size_of};
use std::os::raw::c_void;
use std::ptr::null_mut;

use vescomm_sys as sys;

use super::{Communicator, View};
use crate::error::{call, invalid};
use crate::{Failed, Result};

/// Device memory that is registered with NCCL, for several buffers, or for arrays.
///
/// The drop is collective, and waits for the work of the device. If a panic drops it, the host's
/// communicator is aborted first.
pub struct Memory<'d> {
    pub(super) device: &'d Communicator<'d>,
    pub(super) address: *mut c_void,
    bytes: u64,
}

impl<'d> Memory<'d> {
    /// Allocates and registers memory. `bytes` is the same on every rank. The contents are
    /// undefined. Collective.
    pub fn new(device: &'d Communicator<'_>, bytes: u64) -> Result<Memory<'d>> {
        let mut address = null_mut();
        // SAFETY: this thread alone uses the communicator; the output lives until the call returns.
        call(|| unsafe { sys::vescomm_gpu_malloc(device.raw, bytes, &mut address) })?;
        Ok(Memory { device, address, bytes })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns a view of elements. `offset_bytes` is the place of the first one, a multiple of the
    /// alignment of `T`. The elements may have any bits, so only device code gives them a value.
    pub fn view<T: Copy>(&self, offset_bytes: u64, elements: usize) -> Result<View<'_, T>> {
        let size = (size_of::<T>() as u64).checked_mul(elements as u64);
        let end = size.and_then(|size| size.checked_add(offset_bytes));
        if end.map_or(true, |end| end > self.bytes) {
            return Err(invalid(format!(
                "{elements} elements of {} bytes at byte {offset_bytes} do not fit into device \
                 memory of {} bytes",
                size_of::<T>(),
                self.bytes
            )));
        }
        if offset_bytes % align_of::<T>() as u64 != 0 {
            return Err(invalid(format!(
                "byte {offset_bytes} of device memory is no multiple of {}, the alignment of the \
                 elements",
                align_of::<T>()
            )));
        }
        let address = self.address.cast::<u8>().wrapping_add(offset_bytes as usize);
        // SAFETY: the elements lie in the memory, which the view borrows, and whose drop waits for
        // work.
        Ok(unsafe { self.device.view(address.cast(), elements) })
    }

    /// Frees the memory as a drop does, and returns the error. After an error the memory still
    /// exists. Collective.
    pub fn free(mut self) -> std::result::Result<(), Failed<Self>> {
        match self.end() {
            Ok(()) => Ok(()),
            Err(error) => Err(Failed { error, arrays: self }),
        }
    }

    fn end(&mut self) -> Result<()> {
        // SAFETY: views borrow the memory. The library waits for the work of the device before it
        // frees, and refuses while buffers exist, which may be forgotten ones.
        call(|| unsafe { sys::vescomm_gpu_mfree(self.device.raw, self.address) })?;
        self.address = null_mut();
        Ok(())
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        if !self.address.is_null() {
            self.device.comm.abort_in_panic();
            let _ = self.end();
        }
    }
}

impl fmt::Debug for Memory<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes at {:p}, {:?}", self.bytes, self.address, self.device)
    }
}
