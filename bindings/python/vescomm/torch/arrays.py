# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The memory of tensors as the library sees it: addresses of contiguous elements."""

import torch

# Offsets of the library are from 0 to this number of elements.
_MAX_OFFSET = 1 << 40

# Classes whose tensors have memory of their own. To find one takes less time than to ask a class.
_WITH_MEMORY = {torch.Tensor, torch.nn.Parameter}


def has_memory(tensor):
    """False: it is a wrapper of other tensors, and has no memory of its own."""
    if tensor.__class__ in _WITH_MEMORY:
        return True
    if tensor.__class__.__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        _WITH_MEMORY.add(tensor.__class__)
        return True
    try:
        return tensor.layout != torch.strided or tensor.numel() == 0 or tensor.data_ptr() != 0
    except RuntimeError:
        return False


def unwrapped(tensor):
    """The tensor with the memory: the tensor itself, or the result of a functional collective."""
    if has_memory(tensor):
        return tensor
    if hasattr(tensor, "trigger_wait"):
        return unwrapped(tensor.trigger_wait())
    raise ValueError(
        f"vescomm: a {tensor.__class__.__name__} has no memory of its own, because it wraps other "
        "tensors; pass the tensor inside, which to_local() of a DTensor returns"
    )


def _aligned(tensor):
    """True: the address of the elements is a multiple of their size, as the library requires."""
    return tensor.data_ptr() % tensor.itemsize == 0


def is_plain(tensor):
    """True: its elements lie one after another in host memory, aligned."""
    return (
        tensor.is_contiguous()
        and tensor.is_cpu
        and not tensor.is_neg()
        and not tensor.is_conj()
        and has_memory(tensor)
        # As _aligned(). Most addresses are multiples of 16 bytes, the size of the largest elements:
        # that is known without a call for the size.
        and (not (address := tensor.data_ptr()) & 15 or not address % tensor.itemsize)
    )


def contiguous(tensor, apart=False):
    """A contiguous and aligned tensor in host memory with the same elements: the tensor itself if it
    is one.

    Args:
        apart: True: a copy, which shares no memory with another tensor.
    """
    if not apart and is_plain(tensor):
        return tensor
    tensor = unwrapped(tensor)
    require_host(tensor)
    copy = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if copy.data_ptr() == tensor.data_ptr() and (apart or not _aligned(copy)):
        return copy.clone()
    return copy


def tangled(calls):
    """True: a call of a group writes memory that another call of it reads or writes.

    Such a group is made on copies: inputs have their values before the group, and outputs are
    written in the order of the calls.

    Args:
        calls: for each call the tensors that it writes, and those that it reads.
    """
    ranges = sorted(
        (tensor.data_ptr(), tensor.nbytes, number, writes)
        for number, (written, read) in enumerate(calls)
        for tensors, writes in ((written, True), (read, False))
        for tensor in tensors
        if is_plain(tensor) and tensor.nbytes
    )
    open_ranges = []  # that end after the beginning of the next one
    for begin, size, number, writes in ranges:
        open_ranges = [each for each in open_ranges if each[0] > begin]
        if any(number != other and (writes or wrote) for _, other, wrote in open_ranges):
            return True
        open_ranges.append((begin + size, number, writes))
    return False


def overlap(outputs, source, own):
    """True: contiguous tensors have bytes in common in a way that the library refuses.

    Args:
        outputs: tensors that are written.
        source: a tensor that is read.
        own: address of this rank's block in the outputs, where the source may be.
    """
    used = [*outputs] if source.data_ptr() == own else [*outputs, source]
    ranges = sorted((each.data_ptr(), each.nbytes) for each in used if each.nbytes)
    return any(a + size > b for (a, size), (b, _) in zip(ranges, ranges[1:]))


def require_host(tensor):
    if not tensor.is_cpu or tensor.layout != torch.strided:
        raise ValueError(
            f"vescomm: the tensor is {tensor.layout} on device {tensor.device}; this backend takes "
            "dense tensors of device cpu. Name a backend for the other device too, as in "
            'init_process_group("cpu:vescomm,cuda:nccl")'
        )


class Copies:
    """Copies that follow an operation, from contiguous memory to the tensors of the caller."""

    def __init__(self):
        self._pairs = []

    def __bool__(self):
        return bool(self._pairs)

    def __call__(self):
        for tensor, copy in self._pairs:
            # This may be a thread of the group. The modes of autograd belong to a thread.
            with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                _assign(tensor, copy.view_as(tensor))
        self._pairs = []

    def output(self, tensor, apart=False):
        """Contiguous memory for the elements of a tensor that is only written."""
        if not apart and is_plain(tensor):
            return tensor
        tensor = unwrapped(tensor)
        if not apart and is_plain(tensor):
            return tensor
        require_host(tensor)
        return self._add(tensor, torch.empty(tensor.shape, dtype=tensor.dtype))

    def in_place(self, tensor, apart=False):
        """Contiguous memory with the elements of a tensor that is read and written."""
        if not apart and is_plain(tensor):
            return tensor
        tensor = unwrapped(tensor)
        data = contiguous(tensor, apart)
        return data if data is tensor else self._add(tensor, data)

    def outputs(self, tensors, counts, apart=False):
        """Memory for several tensors: (address, offsets or None, tensor to keep). Offsets are None
        if the tensors follow one another.
        """
        if not apart and all(map(is_plain, tensors)):
            placed = _offsets(tensors, counts)
            if placed is not None:
                return (*placed, tensors)
        tensors = [unwrapped(tensor) for tensor in tensors]
        for tensor in tensors:
            require_host(tensor)
        flat = torch.empty(sum(counts), dtype=tensors[0].dtype)
        for tensor, part in zip(tensors, flat.split(counts)):
            self._add(tensor, part)
        return flat.data_ptr(), None, flat

    def _add(self, tensor, copy):
        self._pairs.append((tensor, copy))
        return copy


def _assign(tensor, values):
    """Copies values into a tensor. An expanded one has the same memory along a dimension: the first
    elements along it are copied.
    """
    for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if stride == 0 and size > 1:
            tensor, values = tensor.narrow(dimension, 0, 1), values.narrow(dimension, 0, 1)
    tensor.copy_(values)


def sources(tensors, counts, apart=False):
    """As Copies.outputs(), for tensors that are only read."""
    if not apart and all(map(is_plain, tensors)):
        placed = _offsets(tensors, counts)
        if placed is not None:
            return (*placed, tensors)
    flat = joined(tensors, apart)
    return flat.data_ptr(), None, flat


def joined(tensors, apart=False):
    """One contiguous tensor with the elements of all: the memory of the tensors themselves if they
    follow one another.
    """
    if not apart and all(map(is_plain, tensors)):
        counts = [tensor.numel() for tensor in tensors]
        placed = _offsets(tensors, counts)
        if placed is not None and placed[1] is None:
            first = next((each for each in tensors if each.numel()), tensors[0])
            return _Joined(first, sum(counts), tensors)
    return torch.cat([contiguous(tensor).view(-1) for tensor in tensors])


class _Joined:
    """Several tensors that follow one another in memory."""

    def __init__(self, first, count, tensors):
        self._address = first.data_ptr()
        self._count = count
        self.dtype = first.dtype
        self._tensors = tensors

    def data_ptr(self):
        return self._address

    def numel(self):
        return self._count


def _offsets(tensors, counts):
    """(address, offsets or None) of tensors whose places can be given as offsets, else None."""
    size = tensors[0].element_size()
    used = [tensor.data_ptr() for tensor, count in zip(tensors, counts) if count]
    if not used:
        return 0, None
    base = min(used)
    offsets = []
    next_place, adjacent = base, True
    for tensor, count in zip(tensors, counts):
        if not count:
            offsets.append(0)
            continue
        address = tensor.data_ptr()
        offset, rest = divmod(address - base, size)
        if rest or offset > _MAX_OFFSET:
            return None
        offsets.append(offset)
        adjacent = adjacent and address == next_place
        next_place = address + count * size
    return base, None if adjacent else offsets
