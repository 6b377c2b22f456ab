# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Types and operators of torch, as numbers of vescomm.h."""

import torch
from torch.distributed import ReduceOp

U8, U16, U32, U64, C128 = 8, 10, 12, 14, 17

_NUMBERS = {
    "float32": 1,
    "bfloat16": 2,
    "float16": 3,
    "float64": 4,
    "float8_e4m3fn": 5,
    "float8_e5m2": 6,
    "int8": 7,
    "uint8": U8,
    "int16": 9,
    "uint16": U16,
    "int32": 11,
    "uint32": U32,
    "int64": 13,
    "uint64": U64,
    "bool": 15,
    "complex64": 16,
    "complex128": C128,
}

# Types that the library reduces. Every type of torch can be moved: as an unsigned integer of its
# size if the library does not have it.
REDUCED = {getattr(torch, name): n for name, n in _NUMBERS.items() if hasattr(torch, name)}
_UNSIGNED = {1: U8, 2: U16, 4: U32, 8: U64, 16: C128}
_moved = dict(REDUCED)

SUM, AVERAGE, PRODUCT, PREMULTIPLIED_SUM, BITWISE_XOR = 0, 1, 2, 5, 8

_OPERATORS = {
    "SUM": SUM,
    "AVG": AVERAGE,
    "PRODUCT": PRODUCT,
    "MIN": 3,
    "MAX": 4,
    "PREMUL_SUM": PREMULTIPLIED_SUM,
    "BAND": 6,
    "BOR": 7,
    "BXOR": BITWISE_XOR,
}
# By number of torch. A dictionary of the enumerators themselves takes four times as long to read.
OPERATORS: list = [None] * 16
for _name, _number in _OPERATORS.items():
    OPERATORS[int(getattr(ReduceOp, _name))] = _number


def moved(dtype):
    """The number of a type whose elements are only moved."""
    try:
        return _moved[dtype]
    except KeyError:
        number = _UNSIGNED[torch.empty((), dtype=dtype).element_size()]
        _moved[dtype] = number
        return number


def _operators_of(dtype):
    """The numbers of the operators that a type has; see vescomm_op_t."""
    every = set(_OPERATORS.values())
    if dtype == torch.complex32:
        return {SUM, AVERAGE, PREMULTIPLIED_SUM}  # of its parts
    if dtype.is_complex:
        return {SUM, AVERAGE, PRODUCT, PREMULTIPLIED_SUM}
    if dtype.is_floating_point:
        return {number for number in every if number <= PREMULTIPLIED_SUM}
    return every - {AVERAGE, PREMULTIPLIED_SUM} if dtype == torch.bool else every


# A wrong operator is found here, because one that the library finds breaks a group of calls.
_OPERATORS_OF = {dtype: _operators_of(dtype) for dtype in (*REDUCED, torch.complex32)}


def reduced(tensor, op):
    """The tensor as the library reduces it, the number of its type, that of the operator, and the
    arguments of a pre-multiplied sum: () or (factor, None).
    """
    operator = OPERATORS[op.op]
    dtype = tensor.dtype
    if operator not in _OPERATORS_OF.get(dtype, ()):
        raise ValueError(
            f"vescomm: cannot reduce {dtype} with {op.op}; use another operator, or convert the "
            "tensor to another type"
        )
    number = REDUCED.get(dtype)
    if number is None:
        tensor = torch.view_as_real(tensor)
        number = REDUCED[torch.float16]
    if operator != PREMULTIPLIED_SUM:
        return tensor, number, operator, ()
    factor = op.factor
    if isinstance(factor, torch.Tensor):
        if factor.numel() != 1:
            raise ValueError(
                f"vescomm: the factor of PREMUL_SUM has {factor.numel()} elements; it must have one"
            )
        factor = factor.item()
    if factor == 0:
        raise ValueError("vescomm: the factor of PREMUL_SUM is 0; give another one")
    whole = abs(factor) < 2**63 and factor % 1 == 0
    if not whole and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(
            f"vescomm: the factor of PREMUL_SUM is {factor} for {dtype}; give a whole number of "
            "fewer than 64 bits"
        )
    return tensor, number, operator, (float(factor), None)
