// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use vescomm_sys as sys;

use crate::error::invalid;
use crate::{Result, Type};

/// Operator of a reduction, applied element by element.
///
/// Floats of 16 and 8 bits are accumulated in f32 and rounded once; other types are accumulated in
/// the type of the elements. Integers wrap.
///
/// | types | operators |
/// |---|---|
/// | floats | `Sum`, `Average`, `Prod`, `Min`, `Max`, `PremultipliedSum` |
/// | integers | all |
/// | [`Bool`](crate::Bool) | `Sum` and `Max` ("or"), `Prod` and `Min` ("and"), bitwise, logical |
/// | complex | `Sum`, `Average`, `Prod`, `PremultipliedSum` |
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Op {
    /// The sum.
    Sum,
    /// The sum, multiplied by 1 / ranks; integers are divided, towards zero.
    Average,
    /// The product.
    Prod,
    /// The minimum; NaN if any contribution is NaN. -0 is less than +0.
    Min,
    /// The maximum; NaN if any contribution is NaN. -0 is less than +0.
    Max,
    /// The sum of all contributions, each multiplied by this factor first. The factor is not 0, for
    /// integers a whole number, and the same on every rank.
    PremultipliedSum(f64),
    /// A bit is 1 if it is 1 in all contributions.
    BitwiseAnd,
    /// A bit is 1 if it is 1 in any contribution.
    BitwiseOr,
    /// A bit is 1 if it is 1 in an odd number of contributions.
    BitwiseXor,
    /// 1 if all ranks contribute an element other than 0, otherwise 0.
    LogicalAnd,
    /// 1 if any rank contributes an element other than 0, otherwise 0.
    LogicalOr,
    /// 1 if an odd number of ranks contribute an element other than 0, otherwise 0.
    LogicalXor,
}

impl Op {
    /// Number of the operator, and its factor or 0.
    pub(crate) fn raw(self) -> (sys::vescomm_op_t, f64) {
        match self {
            Op::Sum => (sys::VESCOMM_SUM, 0.0),
            Op::Average => (sys::VESCOMM_AVERAGE, 0.0),
            Op::Prod => (sys::VESCOMM_PROD, 0.0),
            Op::Min => (sys::VESCOMM_MIN, 0.0),
            Op::Max => (sys::VESCOMM_MAX, 0.0),
            Op::PremultipliedSum(factor) => (sys::VESCOMM_PREMULTIPLIED_SUM, factor),
            Op::BitwiseAnd => (sys::VESCOMM_BITWISE_AND, 0.0),
            Op::BitwiseOr => (sys::VESCOMM_BITWISE_OR, 0.0),
            Op::BitwiseXor => (sys::VESCOMM_BITWISE_XOR, 0.0),
            Op::LogicalAnd => (sys::VESCOMM_LOGICAL_AND, 0.0),
            Op::LogicalOr => (sys::VESCOMM_LOGICAL_OR, 0.0),
            Op::LogicalXor => (sys::VESCOMM_LOGICAL_XOR, 0.0),
        }
    }

    /// Refuses what the library would refuse. A group must be correct before it begins, because the
    /// library cannot take back the calls of a group.
    pub(crate) fn check(self, name: &str, elements: Type) -> Result<()> {
        use Type::*;
        let exists = match self {
            Op::Sum | Op::Prod => true,
            Op::Average => elements != Bool,
            Op::PremultipliedSum(factor) => {
                if factor == 0.0 {
                    return Err(invalid(format!(
                        "{name}: the factor is 0; give Op::PremultipliedSum what to multiply by"
                    )));
                }
                let integer = matches!(elements, I8 | U8 | I16 | U16 | I32 | U32 | I64 | U64);
                // Below 2^63.
                if integer && !(factor.abs() < 9.2e18 && factor.trunc() == factor) {
                    return Err(invalid(format!(
                        "{name}: the factor is {factor}; for elements of type {elements:?} it must \
                         be a whole number of less than 9.2e18"
                    )));
                }
                elements != Bool
            }
            Op::Min | Op::Max => !matches!(elements, C64 | C128),
            _ => !matches!(elements, F32 | Bf16 | F16 | F64 | F8E4M3 | F8E5M2 | C64 | C128),
        };
        if exists {
            return Ok(());
        }
        Err(invalid(format!("{name}: elements of type {elements:?} have no operator {self:?}")))
    }
}
