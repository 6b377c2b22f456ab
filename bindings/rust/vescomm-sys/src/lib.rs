// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! The C functions of vescomm (`vescomm.h`, on device memory `gpu.h` and `gpu_kernels.h`) and of its
//! planner (`planner.h`), as bindgen writes them. The comments of the headers describe every
//! function, its errors and its threads. The crate `vescomm` has the safe interface.
//!
//! Functions that the headers define in place (`vescomm_X_init()`, `vescomm_type_get_bytes()`) are
//! written again here.

#![allow(non_camel_case_types)]
#![warn(missing_debug_implementations)]

include!("bindings.rs");

extern "C" {
    /// For the crate `vescomm`, and in no header: this rank takes part in a collective creation
    /// that it refuses with the sentence. Returns `VESCOMM_ERROR_INVALID_ARGUMENT`.
    pub fn vescomm_comm_refuse(
        comm: *mut vescomm_comm_t,
        sentence: *const std::os::raw::c_char,
    ) -> vescomm_status_t;
}

macro_rules! initialisers {
    ($($function:ident, $structure:ident;)*) => {
        $(
            /// Returns the struct with `struct_size` set and all other members zero.
            pub fn $function() -> $structure {
                // SAFETY: zero is a value of every member: they are numbers and pointers.
                let mut made: $structure = unsafe { std::mem::zeroed() };
                made.struct_size = std::mem::size_of::<$structure>() as u32;
                made
            }
        )*
    };
}

initialisers! {
    vescomm_comm_options_init, vescomm_comm_options_t;
    vescomm_comm_info_init, vescomm_comm_info_t;
    vescomm_comm_counters_init, vescomm_comm_counters_t;
    vescomm_tensor_init, vescomm_tensor_t;
    vescomm_layout_info_init, vescomm_layout_info_t;
    vescomm_memory_options_init, vescomm_memory_options_t;
    vescomm_buffer_options_init, vescomm_buffer_options_t;
    vescomm_request_options_init, vescomm_request_options_t;
    vescomm_message_info_init, vescomm_message_info_t;
    vescomm_call_options_init, vescomm_call_options_t;
    vescomm_gpu_comm_options_init, vescomm_gpu_comm_options_t;
    vescomm_gpu_comm_info_init, vescomm_gpu_comm_info_t;
    vescomm_gpu_buffer_options_init, vescomm_gpu_buffer_options_t;
    vescomm_planner_tensor_init, vescomm_planner_tensor_t;
    vescomm_planner_options_init, vescomm_planner_options_t;
    vescomm_planner_figures_init, vescomm_planner_figures_t;
    vescomm_planner_totals_init, vescomm_planner_totals_t;
}

/// Returns the struct with `struct_size` set, type `VESCOMM_BF16`, and the other members zero.
pub fn vescomm_planner_unit_init() -> vescomm_planner_unit_t {
    vescomm_planner_unit_t {
        struct_size: std::mem::size_of::<vescomm_planner_unit_t>() as u32,
        type_: VESCOMM_BF16,
        name: std::ptr::null(),
        tensors: std::ptr::null(),
        count: 0,
    }
}

/// Returns the struct with `struct_size` set, no scaling, learning rate 1e-3, betas 0.9 and 0.999,
/// epsilon 1e-8, weight decay 1e-2, and step 1.
pub fn vescomm_gpu_adamw_options_init() -> vescomm_gpu_adamw_options_t {
    vescomm_gpu_adamw_options_t {
        struct_size: std::mem::size_of::<vescomm_gpu_adamw_options_t>() as u32,
        gradient_scale: 1.0,
        learning_rate: 1e-3,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 1e-2,
        step: 1,
        parameter_type: 0,
        stochastic: 0,
        random_stream: 0,
        random_first: 0,
    }
}

/// Returns the struct with `struct_size` set, no scaling, learning rate 1e-3, step 1, and all other
/// members zero.
pub fn vescomm_gpu_sgd_options_init() -> vescomm_gpu_sgd_options_t {
    vescomm_gpu_sgd_options_t {
        struct_size: std::mem::size_of::<vescomm_gpu_sgd_options_t>() as u32,
        gradient_scale: 1.0,
        learning_rate: 1e-3,
        momentum: 0.0,
        dampening: 0.0,
        weight_decay: 0.0,
        step: 1,
        nesterov: 0,
        decoupled: 0,
        parameter_type: 0,
        stochastic: 0,
        random_stream: 0,
        random_first: 0,
    }
}

/// Size of one element in bytes; 0 for a value that is not a type.
pub const fn vescomm_type_get_bytes(type_: vescomm_type_t) -> usize {
    match type_ {
        VESCOMM_F8E4M3 | VESCOMM_F8E5M2 | VESCOMM_I8 | VESCOMM_U8 | VESCOMM_BOOL => 1,
        VESCOMM_BF16 | VESCOMM_F16 | VESCOMM_I16 | VESCOMM_U16 => 2,
        VESCOMM_F32 | VESCOMM_I32 | VESCOMM_U32 => 4,
        VESCOMM_F64 | VESCOMM_I64 | VESCOMM_U64 | VESCOMM_C64 => 8,
        VESCOMM_C128 => 16,
        _ => 0,
    }
}
