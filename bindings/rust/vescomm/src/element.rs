// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::fmt;

use vescomm_sys as sys;

/// Type of the elements of a buffer or an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[non_exhaustive]
pub enum Type {
    /// `f32`.
    F32 = sys::VESCOMM_F32,
    /// [`Bf16`]: the upper half of an `f32`.
    Bf16 = sys::VESCOMM_BF16,
    /// [`F16`] of IEEE 754.
    F16 = sys::VESCOMM_F16,
    /// `f64`.
    F64 = sys::VESCOMM_F64,
    /// [`F8E4M3`]: no infinities; a value too large for it becomes NaN.
    F8E4M3 = sys::VESCOMM_F8E4M3,
    /// [`F8E5M2`]: with infinities and NaN.
    F8E5M2 = sys::VESCOMM_F8E5M2,
    /// `i8`.
    I8 = sys::VESCOMM_I8,
    /// `u8`.
    U8 = sys::VESCOMM_U8,
    /// `i16`.
    I16 = sys::VESCOMM_I16,
    /// `u16`.
    U16 = sys::VESCOMM_U16,
    /// `i32`.
    I32 = sys::VESCOMM_I32,
    /// `u32`.
    U32 = sys::VESCOMM_U32,
    /// `i64`.
    I64 = sys::VESCOMM_I64,
    /// `u64`.
    U64 = sys::VESCOMM_U64,
    /// [`Bool`]: one byte, true unless it is 0.
    Bool = sys::VESCOMM_BOOL,
    /// [`C64`]: complex, two `f32`.
    C64 = sys::VESCOMM_C64,
    /// [`C128`]: complex, two `f64`.
    C128 = sys::VESCOMM_C128,
}

impl Type {
    /// Size of one element in bytes.
    pub const fn bytes(self) -> usize {
        sys::vescomm_type_get_bytes(self as i32)
    }
}

/// A Rust type that buffers and arrays can have as elements.
///
/// `bool` is not one of them: other ranks may send any byte, and a `bool` may only be 0 or 1. Use
/// [`Bool`]. A crate with floats or complex numbers of its own can implement the trait for them.
///
/// # Safety
///
/// The library copies and reduces values of this type as elements of `TYPE`. The type must have the
/// size of `TYPE`, at least the alignment that vescomm.h states for it, no padding, and no pointer
/// or other meaning beyond its bytes. Every pattern of bits must be a value of it.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The type in which the library sees it.
    const TYPE: Type;
}

macro_rules! elements {
    ($($rust:ty => $type:ident,)*) => {
        $(
            // SAFETY: same size and form; every pattern of bits is a value.
            unsafe impl Element for $rust {
                const TYPE: Type = Type::$type;
            }
            const _: () = assert!(std::mem::size_of::<$rust>() == Type::$type.bytes());
        )*
    };
}

elements! {
    f32 => F32,
    f64 => F64,
    i8 => I8,
    u8 => U8,
    i16 => I16,
    u16 => U16,
    i32 => I32,
    u32 => U32,
    i64 => I64,
    u64 => U64,
    Bf16 => Bf16,
    F16 => F16,
    F8E4M3 => F8E4M3,
    F8E5M2 => F8E5M2,
    Bool => Bool,
    C64 => C64,
    C128 => C128,
}

macro_rules! floats_by_bits {
    ($($(#[$comment:meta])* $name:ident($bits:ty);)*) => {
        $(
            $(#[$comment])*
            ///
            /// The type has bits and no arithmetic; crates that have arithmetic convert by bits.
            #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
            #[repr(transparent)]
            pub struct $name($bits);

            impl $name {
                /// Makes a value of its bits.
                pub const fn from_bits(bits: $bits) -> Self {
                    Self(bits)
                }

                /// Returns the bits of the value.
                pub const fn to_bits(self) -> $bits {
                    self.0
                }
            }

            impl fmt::Debug for $name {
                fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                    write!(formatter, "{}({:#x})", stringify!($name), self.0)
                }
            }
        )*
    };
}

floats_by_bits! {
    /// A float of 16 bits: the upper half of an `f32`. Values are equal if their bits are.
    Bf16(u16);
    /// A float of 16 bits of IEEE 754. Values are equal if their bits are.
    F16(u16);
    /// A float of 8 bits, 4 of them exponent, without infinities. Values are equal if their bits
    /// are.
    F8E4M3(u8);
    /// A float of 8 bits, 5 of them exponent. Values are equal if their bits are.
    F8E5M2(u8);
}

/// A truth value of one byte. Every byte but 0 is true. Reductions write 1 and 0; other collectives
/// copy the byte.
///
/// ```
/// use vescomm::Bool;
/// assert!(bool::from(Bool::from(true)));
/// assert_eq!(Bool::default(), Bool::from(false));
/// ```
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Bool(u8);

impl From<bool> for Bool {
    fn from(value: bool) -> Bool {
        Bool(value.into())
    }
}

impl From<Bool> for bool {
    fn from(value: Bool) -> bool {
        value.0 != 0
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Bool) -> bool {
        bool::from(*self) == bool::from(*other)
    }
}

impl Eq for Bool {}

impl fmt::Debug for Bool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        bool::from(*self).fmt(formatter)
    }
}

/// A complex number of two `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct C64 {
    /// Real part.
    pub re: f32,
    /// Imaginary part.
    pub im: f32,
}

/// A complex number of two `f64`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct C128 {
    /// Real part.
    pub re: f64,
    /// Imaginary part.
    pub im: f64,
}
