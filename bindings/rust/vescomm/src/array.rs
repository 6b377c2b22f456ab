// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::{null_mut, NonNull};

use vescomm_sys as sys;

use crate::error::{call, Error};
use crate::{Element, Handle, Result};

/// An array that a request can own: `Vec<T>`, `Box<[T]>` or [`RegisteredArray<T>`].
///
/// # Safety
///
/// The elements keep their address and their number while the value is moved and while no function
/// but those of this trait is called, and both functions return all of them. Nothing else accesses
/// the elements.
pub unsafe trait Array: 'static {
    /// Type of the elements.
    type Element: Element;

    /// Returns the elements.
    fn as_slice(&self) -> &[Self::Element];

    /// Returns the elements.
    fn as_mut_slice(&mut self) -> &mut [Self::Element];
}

macro_rules! arrays {
    ($($array:ty),*) => {
        $(
            // SAFETY: the elements are in memory that the value owns and that is not moved with it.
            unsafe impl<T: Element> Array for $array {
                type Element = T;

                fn as_slice(&self) -> &[T] {
                    self
                }

                fn as_mut_slice(&mut self) -> &mut [T] {
                    self
                }
            }
        )*
    };
}

arrays!(Vec<T>, Box<[T]>, RegisteredArray<T>);

/// A value that may be moved while the library accesses what it owns. A move of a `Box` promises that
/// nothing else accesses its contents; a move of this does not. A drop leaks the value.
pub(crate) struct Movable<A>(MaybeUninit<A>);

impl<A> Movable<A> {
    pub(crate) fn new(value: A) -> Movable<A> {
        Movable(MaybeUninit::new(value))
    }

    pub(crate) fn get(&self) -> &A {
        // SAFETY: new() has initialised it.
        unsafe { self.0.assume_init_ref() }
    }

    pub(crate) fn get_mut(&mut self) -> &mut A {
        // SAFETY: as get().
        unsafe { self.0.assume_init_mut() }
    }

    pub(crate) fn take(self) -> A {
        // SAFETY: as get().
        unsafe { self.0.assume_init() }
    }
}

/// An array in registered memory: local peers read it where it is, without a copy in between. Calls
/// on arrays recognise it by its address; results and errors are the same as for other arrays.
///
/// It dereferences to a slice, and keeps the communicator of the C interface alive.
///
/// ```
/// # fn main() -> vescomm::Result<()> {
/// use vescomm::{Communicator, Op, RegisteredArray};
/// let comm = Communicator::from_environment()?;
/// let mut gradients = RegisteredArray::<f32>::new(&comm, 1000)?; // zeros
/// gradients.fill(1.0);
/// comm.all_reduce_in_place(&mut gradients, Op::Sum)?;
/// # comm.finalize()
/// # }
/// ```
pub struct RegisteredArray<T> {
    handle: Handle,
    data: NonNull<T>,
    elements: usize,
}

// SAFETY: it owns its elements, and vescomm_mfree() is safe for threads.
unsafe impl<T: Element> Send for RegisteredArray<T> {}
unsafe impl<T: Element> Sync for RegisteredArray<T> {}

impl<T: Element> RegisteredArray<T> {
    /// Allocates an array of zeros. Calls on this communicator, on those that it was created from,
    /// and on those that are created from them recognise it. The pages are allocated now.
    pub fn new(handle: &Handle, elements: usize) -> Result<RegisteredArray<T>> {
        let bytes = elements.checked_mul(T::TYPE.bytes()).ok_or_else(|| {
            Error::OutOfMemory(format!(
                "RegisteredArray::new: {elements} elements of {} bytes exceed the address space",
                T::TYPE.bytes()
            ))
        })?;
        let mut data = null_mut();
        // SAFETY: the output lives until the call returns.
        call(|| unsafe { sys::vescomm_malloc(handle.raw(), bytes as u64, &mut data) })?;
        let data = NonNull::new(data.cast())
            .ok_or_else(|| Error::Internal("vescomm_malloc() returned NULL".to_string()))?;
        Ok(RegisteredArray { handle: handle.clone(), data, elements })
    }
}

impl<T> Deref for RegisteredArray<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory has this number of elements on whole pages. They were zeroed, and
        // every pattern of bits is a value of an Element.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.elements) }
    }
}

impl<T> DerefMut for RegisteredArray<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as deref().
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.elements) }
    }
}

impl<T> Drop for RegisteredArray<T> {
    fn drop(&mut self) {
        // SAFETY: no operation uses the memory: a started one owns or borrows the array.
        let _ =
            call(|| unsafe { sys::vescomm_mfree(self.handle.raw(), self.data.as_ptr().cast()) });
    }
}

impl<T: fmt::Debug> fmt::Debug for RegisteredArray<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(formatter)
    }
}
