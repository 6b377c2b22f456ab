// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::env;
use std::ffi::CString;
use std::mem::{size_of_val, transmute_copy};
use std::os::raw::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use vescomm::gpu::{Stream, View};
use vescomm::Element;

extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}
const RTLD_NOW: c_int = 2;
const RTLD_GLOBAL: c_int = 0x100;

const TO_DEVICE: c_int = 1;
const TO_HOST: c_int = 2;
const NON_BLOCKING: c_uint = 1;

/// Functions of the test double of CUDA in the folder GPU_DOUBLE_FOLDER. With GPU_DOUBLE_STRICT=1 it
/// ends the process when a rule of CUDA or NCCL is broken, such as work on freed memory.
#[derive(Clone, Copy)]
pub struct Cuda {
    library: *mut c_void,
}

// SAFETY: the functions of CUDA may be called by any thread.
unsafe impl Sync for Cuda {}

impl Cuda {
    /// None if the variable is not set.
    pub fn load() -> Option<Cuda> {
        let folder = env::var("GPU_DOUBLE_FOLDER").ok()?;
        let path = CString::new(format!("{folder}/libcudart.so.13")).unwrap();
        // SAFETY: the string ends with a zero.
        let library = unsafe { dlopen(path.as_ptr(), RTLD_NOW | RTLD_GLOBAL) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        Some(Cuda { library })
    }

    /// # Safety
    ///
    /// F is the type of a pointer to the function of this name.
    unsafe fn function<F>(&self, name: &str) -> F {
        let name = CString::new(name).unwrap();
        // SAFETY: the string ends with a zero.
        let found = unsafe { dlsym(self.library, name.as_ptr()) };
        assert!(!found.is_null(), "there is no {name:?}");
        // SAFETY: promised by the caller.
        unsafe { transmute_copy(&found) }
    }

    pub fn set_device(&self, device: usize) {
        // SAFETY: as cuda_runtime_api.h declares it.
        let set: unsafe extern "C" fn(c_int) -> c_int = unsafe { self.function("cudaSetDevice") };
        assert_eq!(unsafe { set(device as c_int) }, 0);
    }

    /// A stream that the default stream does not wait for. It is not destroyed.
    pub fn stream(&self) -> Stream {
        let mut stream = null_mut();
        // SAFETY: as cuda_runtime_api.h declares it.
        let create: unsafe extern "C" fn(*mut *mut c_void, c_uint) -> c_int =
            unsafe { self.function("cudaStreamCreateWithFlags") };
        assert_eq!(unsafe { create(&mut stream, NON_BLOCKING) }, 0);
        // SAFETY: the stream stays; each test has one stream for each communicator.
        unsafe { Stream::from_raw(stream) }
    }

    fn copy(&self, to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int) {
        // SAFETY: as cuda_runtime_api.h declares it.
        let copy: unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> c_int =
            unsafe { self.function("cudaMemcpy") };
        // SAFETY: both sides have these bytes.
        assert_eq!(unsafe { copy(to, from, bytes, kind) }, 0);
    }

    pub fn write<T: Element>(&self, to: View<'_, T>, values: &[T]) {
        assert_eq!(to.len(), values.len());
        let bytes = size_of_val(values);
        self.copy(to.as_mut_ptr().cast(), values.as_ptr().cast(), bytes, TO_DEVICE);
    }

    pub fn read<T: Copy + Default>(&self, from: View<'_, T>) -> Vec<T> {
        let mut values = vec![T::default(); from.len()];
        let bytes = size_of_val(&values[..]);
        self.copy(values.as_mut_ptr().cast(), from.as_mut_ptr().cast(), bytes, TO_HOST);
        values
    }

    /// Bytes of `cudaMalloc()`, which are not freed.
    pub fn malloc(&self, bytes: usize) -> *mut c_void {
        let mut address = null_mut();
        // SAFETY: as cuda_runtime_api.h declares it.
        let malloc: unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int =
            unsafe { self.function("cudaMalloc") };
        assert_eq!(unsafe { malloc(&mut address, bytes) }, 0);
        address
    }
}
