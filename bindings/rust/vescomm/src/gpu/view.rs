// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::fmt;
use std::marker::PhantomData;
use std::mem::size_of;
use std::ops::Range;
use std::os::raw::c_void;
use std::ptr::null_mut;

use crate::error::invalid;
use crate::Result;

/// A CUDA stream of the program. Calls put work on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    raw: *mut c_void,
}

impl Stream {
    /// The legacy default stream of the current device, which runs after and before the work of all
    /// blocking streams.
    pub const fn legacy_default() -> Stream {
        Stream { raw: null_mut() }
    }

    /// Takes a `cudaStream_t`. It stays the program's.
    ///
    /// # Safety
    ///
    /// - The stream belongs to the device of the calls that get it, and exists until their work is
    ///   complete.
    /// - Calls on one communicator and its buffers are ordered, as they share a workspace: those on
    ///   this stream come after the work of earlier calls on other streams, by events or by a wait.
    /// - If the stream is captured into a graph, the graph is not launched after an owner of memory
    ///   of the captured calls is dropped.
    pub const unsafe fn from_raw(raw: *mut c_void) -> Stream {
        Stream { raw }
    }

    /// Returns the `cudaStream_t`.
    pub const fn as_raw(self) -> *mut c_void {
        self.raw
    }
}

/// Elements at a device address. The host cannot access them.
///
/// A view borrows the owner of the memory; the views of an owner may overlap, and may be copied.
pub struct View<'a, T> {
    address: *mut T,
    elements: usize,
    device: i32,
    _memory: PhantomData<&'a ()>,
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}

impl<'a, T> View<'a, T> {
    /// # Safety
    ///
    /// As [`Communicator::view()`](crate::gpu::Communicator::view).
    pub(super) unsafe fn new(address: *mut T, elements: usize, device: i32) -> View<'a, T> {
        View { address, elements, device, _memory: PhantomData }
    }

    /// The device address of the first element. The memory may be freed when the lifetime of the
    /// view ends and the work that was put on streams before is complete.
    pub fn as_mut_ptr(self) -> *mut T {
        self.address
    }

    /// Number of elements.
    pub fn len(self) -> usize {
        self.elements
    }

    /// True if there are no elements.
    pub fn is_empty(self) -> bool {
        self.elements == 0
    }

    /// Number of the device, as `cudaGetDevice()` returns it.
    pub fn device(self) -> i32 {
        self.device
    }

    /// Returns a part of the elements.
    pub fn part(self, range: Range<usize>) -> Result<View<'a, T>> {
        if range.start > range.end || range.end > self.elements {
            return Err(invalid(format!(
                "elements {range:?} are no part of a view of {} elements",
                self.elements
            )));
        }
        // Null has no parts but empty ones.
        let address = self.address.wrapping_add(range.start);
        Ok(View { address, elements: range.end - range.start, ..self })
    }

    /// Checks the view before a call that needs `elements` elements.
    pub(super) fn check_elements(self, call: &str, name: &str, elements: usize) -> Result<()> {
        if self.elements != elements {
            return Err(invalid(format!(
                "{call}: {name} has {} elements, and {elements} are needed",
                self.elements
            )));
        }
        if self.address.is_null() && elements > 0 {
            return Err(invalid(format!("{call}: the address of {name} is null")));
        }
        Ok(())
    }

    /// Checks that the memory is that of a device.
    pub(super) fn check_device(self, call: &str, name: &str, device: i32) -> Result<()> {
        if self.device == device {
            return Ok(());
        }
        Err(invalid(format!(
            "{call}: {name} is memory of device {}, and the communicator was created on device \
             {device}",
            self.device
        )))
    }

    pub(super) fn as_void(self) -> *mut c_void {
        self.address.cast()
    }
}

impl<T> fmt::Debug for View<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} elements of {} bytes at {:p} of device {}",
            self.elements,
            size_of::<T>(),
            self.address,
            self.device
        )
    }
}
