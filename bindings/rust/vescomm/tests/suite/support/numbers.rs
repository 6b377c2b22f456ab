// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::fmt::Debug;

use vescomm::{Bf16, Element, C128, C64, F16, F8E4M3, F8E5M2};

/// A type that has the integers from 0 to 5.
pub trait Number: Element + PartialEq + Debug {
    fn of(value: usize) -> Self;
}

macro_rules! numbers {
    ($($type:ty: $make:expr;)*) => {
        $(
            impl Number for $type {
                fn of(value: usize) -> Self {
                    assert!(value <= 5);
                    let make: fn(usize) -> $type = $make;
                    make(value)
                }
            }
        )*
    };
}

numbers! {
    f32: |value| value as f32;
    f64: |value| value as f64;
    i8: |value| value as i8;
    u8: |value| value as u8;
    i16: |value| value as i16;
    u16: |value| value as u16;
    i32: |value| value as i32;
    u32: |value| value as u32;
    i64: |value| value as i64;
    u64: |value| value as u64;
    Bf16: |value| Bf16::from_bits([0, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0][value]);
    F16: |value| F16::from_bits([0, 0x3C00, 0x4000, 0x4200, 0x4400, 0x4500][value]);
    F8E4M3: |value| F8E4M3::from_bits([0, 0x38, 0x40, 0x44, 0x48, 0x4A][value]);
    F8E5M2: |value| F8E5M2::from_bits([0, 0x3C, 0x40, 0x42, 0x44, 0x45][value]);
    C64: |value| C64 { re: value as f32, im: -(value as f32) };
    C128: |value| C128 { re: value as f64, im: -(value as f64) };
}

/// Runs a generic function for every type of numbers.
#[macro_export]
macro_rules! for_every_number {
    ($function:ident($($argument:expr),*)) => {
        $function::<f32>($($argument),*);
        $function::<f64>($($argument),*);
        $function::<i8>($($argument),*);
        $function::<u8>($($argument),*);
        $function::<i16>($($argument),*);
        $function::<u16>($($argument),*);
        $function::<i32>($($argument),*);
        $function::<u32>($($argument),*);
        $function::<i64>($($argument),*);
        $function::<u64>($($argument),*);
        $function::<vescomm::Bf16>($($argument),*);
        $function::<vescomm::F16>($($argument),*);
        $function::<vescomm::F8E4M3>($($argument),*);
        $function::<vescomm::F8E5M2>($($argument),*);
        $function::<vescomm::C64>($($argument),*);
        $function::<vescomm::C128>($($argument),*);
    };
}
