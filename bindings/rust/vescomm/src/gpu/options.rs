// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::ffi::CString;
use std::os::raw::c_void;
use std::ptr::null_mut;

use vescomm_sys as sys;

use crate::error::{c_string, pointer};
use crate::Result;

/// Options of a device communicator, the same on every rank.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CommOptions {
    /// Minimum number of thread blocks of NCCL's kernels. 0: NCCL chooses.
    pub min_ctas: i32,
    /// Maximum number of thread blocks of NCCL's kernels. 0: NCCL chooses.
    pub max_ctas: i32,
    /// A failure revokes NCCL's communicator instead of aborting it, so that
    /// [`Communicator::shrink()`](super::Communicator::shrink) can use `ncclCommShrink()`. Graphs that captured its calls are
    /// not launched after the failure.
    pub shrinkable: bool,
    /// Bytes of device memory for the method "padded".
    pub workspace_bytes: u64,
    /// Method of all_gather_v and reduce_scatter_v, such as "rooted". `None`: the library chooses;
    /// "copy_engine" applies to all_gather_v only. See [`Communicator::explain()`](super::Communicator::explain).
    pub method: Option<String>,
    /// An `ncclComm_t` of the program, which outlives the communicator. Null: a new one.
    pub nccl_comm: *mut c_void,
    /// Settings of `ncclConfig_t` that are passed to NCCL, by their names there:
    /// `"cgaClusterSize=4,netName=IB"`. `None`: none.
    pub nccl_config: Option<String>,
}

impl Default for CommOptions {
    fn default() -> CommOptions {
        CommOptions {
            min_ctas: 0,
            max_ctas: 0,
            shrinkable: false,
            workspace_bytes: 0,
            method: None,
            nccl_comm: null_mut(),
            nccl_config: None,
        }
    }
}

/// Facts of a device communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommInfo {
    /// Number of its device, as `cudaGetDevice()` returned it at the creation.
    pub device: i32,
    /// Version of NCCL, such as 22809 for 2.28.9.
    pub nccl_version: i32,
    /// NCCL has created its communicator from that of a parent.
    pub derived: bool,
}

/// Options as the C functions take them, with the strings that they point to.
pub(super) struct RawOptions {
    pub raw: sys::vescomm_gpu_comm_options_t,
    _method: Option<CString>,
    _nccl_config: Option<CString>,
}

impl CommOptions {
    pub(super) fn to_raw(&self) -> Result<RawOptions> {
        let method = match &self.method {
            None => None,
            Some(name) => Some(c_string("the method", name)?),
        };
        let nccl_config = match &self.nccl_config {
            None => None,
            Some(settings) => Some(c_string("nccl_config", settings)?),
        };
        let mut raw = sys::vescomm_gpu_comm_options_init();
        raw.min_ctas = self.min_ctas;
        raw.max_ctas = self.max_ctas;
        raw.shrinkable = self.shrinkable.into();
        raw.workspace_bytes = self.workspace_bytes;
        raw.method = pointer(&method);
        raw.nccl_comm = self.nccl_comm;
        raw.nccl_config = pointer(&nccl_config);
        Ok(RawOptions { raw, _method: method, _nccl_config: nccl_config })
    }
}

impl CommInfo {
    pub(super) fn from_raw(raw: &sys::vescomm_gpu_comm_info_t) -> CommInfo {
        CommInfo { device: raw.device, nccl_version: raw.nccl_version, derived: raw.derived != 0 }
    }
}
