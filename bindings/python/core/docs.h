// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Docstrings of the public classes of the extension module.
#pragma once

#include "docs_guarantees.h"

#define VESCOMM_REQUEST                                                                \
    "    algorithm: name of the algorithm. None: the library chooses.\n"               \
    "\n"                                                                               \
    "Returns:\n"                                                                       \
    "    A Request that has not started. It keeps the buffer alive.\n"                 \
    "\n"                                                                               \
    "Raises:\n"                                                                        \
    "    MismatchError: the ranks passed different arguments. InvalidArgumentError,\n" \
    "    UnsupportedError, OutOfMemoryError, TimeoutError, PeerFailedError.\n" VESCOMM_COLLECTIVE

namespace vescomm::python::docs {

// ---- Communicator ----

inline constexpr const char *rank = "Rank of the caller. Since: 0.1";
inline constexpr const char *ranks = "Number of ranks. Since: 0.1";
inline constexpr const char *freed = "Whether free() has been called. Since: 0.1";
inline constexpr const char *broken =
    "Whether a failure has ended the communicator for all ranks. Since: 0.1";
inline constexpr const char *metrics =
    "Returns the counters as text in the Prometheus format.\n" VESCOMM_LOCAL;
inline constexpr const char *progress =
    "Makes progress on started requests without waiting, for long computations.\n\n"
    "Raises:\n    the first error of a broken communicator.\n" VESCOMM_LOCAL;
inline constexpr const char *abort =
    "Breaks the communicator: the waits of all ranks raise AbortedError with the reason.\n\n"
    "Args:\n    reason: one sentence. None: none.\n" VESCOMM_LOCAL;
inline constexpr const char *finalize =
    "Ends the use of the communicator on all ranks. Running requests of this rank complete "
    "first.\n\n"
    "Raises:\n    TimeoutError: a rank has not called it; PeerFailedError; the first error of a\n"
    "    broken communicator.\n" VESCOMM_COLLECTIVE;
inline constexpr const char *free_comm =
    "Frees the communicator; finalizes it first if it is neither finalized nor broken.\n\n"
    "Arrays, buffers and requests stay valid until they are freed.\n\n"
    "Collective: no, once it is finalized or broken.  Blocking: as finalize().  Threads: one.\n"
    "Since: 0.1";
inline constexpr const char *barrier =
    "Waits until every rank has called it.\n\n"
    "Raises:\n    TimeoutError, PeerFailedError, MismatchError.\n" VESCOMM_COLLECTIVE;
inline constexpr const char *group_begin =
    "Begins a group: the following calls on arrays are collected until group_end(). group() is a\n"
    "context manager for both.\n" VESCOMM_ALONE;
inline constexpr const char *group_end =
    "Ends a group and runs all of its calls.\n\n"
    "Raises:\n    as the calls.\n" VESCOMM_COLLECTIVE;
inline constexpr const char *start_group_end =
    "Ends a group and starts all of its calls.\n\n"
    "Args:\n    owner: an object that owns memory of calls on addresses; the request keeps it "
    "until\n"
    "        it is complete.\n\n"
    "Returns:\n    One Request for all of them.\n\n"
    "Raises:\n    OutOfMemoryError: nothing has started, and the communicator is broken.\n\n"
    "Collective: yes, same order.  Blocking: no.  Threads: one at a time per communicator.\n"
    "Since: 0.1";
inline constexpr const char *malloc =
    "Allocates registered memory; empty() returns it as an array.\n\n"
    "Args:\n    bytes: rounded up to whole pages.\n\n"
    "Returns:\n    The address, for mfree(). It is freed at the latest with the "
    "communicator.\n" VESCOMM_LOCAL;
inline constexpr const char *mfree =
    "Frees memory of malloc(), which no operation uses any more.\n\n"
    "Raises:\n    InvalidArgumentError: no such memory begins at the address, or it belongs to an\n"
    "    array of empty().\n" VESCOMM_LOCAL;
inline constexpr const char *create_barrier =
    "Creates a barrier that can be started many times.\n\n"
    "Args:\n" VESCOMM_REQUEST;
inline constexpr const char *start_trace =
    "Starts recording spans on this rank: requests, waits, and spans of the caller.\n\n"
    "Args:\n    spans: maximum number of spans to keep. 0: 1,000,000.\n" VESCOMM_LOCAL;
inline constexpr const char *add_span =
    "Records a span of the caller; nothing if no trace was started.\n\n"
    "Args:\n    name: of the span.\n    track: row of the timeline.\n"
    "    begin, end: times of trace_seconds().\n"
    "    values: numbers and texts by name, such as bytes, which the trace shows with the "
    "span.\n" VESCOMM_LOCAL;

// ---- Request ----

inline constexpr const char *request =
    "A collective, a message, or a group of them, which can be started again when it is "
    "complete.\n\n"
    "A request that is dropped while it runs is freed, with its arrays, when it is complete. The\n"
    "collector of cycles does not see its arrays: if one refers to the request, call free().\n\n"
    "Since: 0.1";
inline constexpr const char *request_start =
    "Starts the request. Requests may overlap in time; requests on one memory must not.\n\n"
    "Raises:\n    InvalidArgumentError: it is running.\n\n"
    "Collective: yes, same order.  Blocking: no.  Threads: one at a time per communicator.\n"
    "Since: 0.1";
inline constexpr const char *request_test =
    "Makes progress, and returns whether the request is complete or was never started.\n\n"
    "Raises:\n    the first error of a broken communicator.\n" VESCOMM_LOCAL;
inline constexpr const char *request_wait =
    "Waits until the request is complete. A signal handler that raises an exception, such as that\n"
    "of Ctrl-C, ends the wait and leaves the request running.\n\n"
    "Args:\n    timeout: seconds, at steps of 0.1. None: until the communicator's timeout.\n\n"
    "Returns:\n    True; False if the timeout passed, and the request is still running.\n\n"
    "Raises:\n    TimeoutError: names the peer that did not respond. MismatchError,\n"
    "    PeerFailedError, AbortedError.\n\n"
    "Collective: no.  Blocking: yes.  Threads: safe.  Since: 0.1";
inline constexpr const char *request_wait_with =
    "Waits as wait(), and makes progress on other communicators meanwhile. Needed if ranks wait "
    "on\n"
    "several communicators in different orders.\n\n"
    "Args:\n    comms: communicators; that of the request may be among them.\n"
    "    timeout: as for wait().\n\n"
    "Returns:\n    as wait().\n\n"
    "Raises:\n    as wait(); also the first error of a broken communicator of comms. The request "
    "then\n"
    "    goes on.\n\n"
    "Collective: no.  Blocking: yes.  Threads: safe.  Since: 0.1";
inline constexpr const char *request_run = "start() and wait().\n" VESCOMM_COLLECTIVE;
inline constexpr const char *request_explain =
    "Describes how the request will run: its algorithm, the reason for the choice, its "
    "steps.\n" VESCOMM_ALONE;
inline constexpr const char *request_message =
    "Returns the message that the request has received: its sender, tag, type and count.\n\n"
    "Args:\n    index: which receive of a group, from 0; 0 for a single receive.\n\n"
    "Raises:\n    InvalidArgumentError: it is running, or has no such receive.\n" VESCOMM_LOCAL;
inline constexpr const char *request_free =
    "Frees the request and its arrays, as dropping it does.\n" VESCOMM_ALONE;

// ---- Array ----

inline constexpr const char *array =
    "An array in memory of vescomm, dense and row-major: a view of a buffer or a memory, or\n"
    "registered memory. It exports its memory, without a copy, by DLPack and the buffer protocol:\n"
    "torch.from_dlpack(array), numpy.asarray(array). The memory lives as long as any of them.\n\n"
    "Since: 0.1";
inline constexpr const char *array_address = "Address of the first element. Since: 0.1";
inline constexpr const char *array_shape = "Extents. Since: 0.1";
inline constexpr const char *array_type = "Type of the elements. Since: 0.1";
inline constexpr const char *array_size = "Number of elements. Since: 0.1";
inline constexpr const char *array_nbytes = "Size in bytes. Since: 0.1";
inline constexpr const char *array_numpy =
    "Returns a NumPy array of the same memory; needs numpy, and ml_dtypes for BF16 and "
    "F8.\n" VESCOMM_LOCAL;
inline constexpr const char *array_torch =
    "Returns a tensor of torch of the same memory; needs torch.\n" VESCOMM_LOCAL;

// ---- Memory and Buffer ----

inline constexpr const char *memory =
    "Bytes at a fixed address, mapped by the ranks of the node. Several buffers may lie in one\n"
    "memory: side by side, or at the same place at different times.\n\nSince: 0.1";
inline constexpr const char *memory_init =
    "Allocates memory on every rank; its bytes are zero.\n\n"
    "Args:\n    comm: the communicator.\n    bytes: size of a slab; the same on every rank.\n"
    "    sharing: Sharing.PER_RANK: one slab for each rank; PER_NODE: one for each node.\n\n"
    "Raises:\n    MismatchError, OutOfMemoryError, TimeoutError, "
    "PeerFailedError.\n" VESCOMM_COLLECTIVE;
inline constexpr const char *memory_data = "Returns the slab as an array of U8.\n" VESCOMM_LOCAL;
inline constexpr const char *memory_free =
    "Frees the memory when its last buffer and array are gone.\n" VESCOMM_LOCAL;

inline constexpr const char *buffer =
    "Memory seen through a layout: tensors and shards at stable addresses. Its arrays and "
    "requests\n"
    "keep it alive.\n\nSince: 0.1";
inline constexpr const char *buffer_init =
    "Creates a buffer, and checks that all ranks pass the same layout and options.\n\n"
    "Args:\n    comm: the communicator.\n    layout: must have its number of ranks.\n"
    "    type: of the elements.\n    memory: Memory that holds the buffer. None: new memory.\n"
    "    offset_bytes: first byte within the memory, a multiple of 64.\n"
    "    sharing: of new memory; with PER_NODE gathered data exists once for each node.\n"
    "    name: in error messages and traces. None: \"buffer\".\n\n"
    "Raises:\n    MismatchError: names two ranks and the first difference. InvalidArgumentError,\n"
    "    OutOfMemoryError, TimeoutError, PeerFailedError.\n" VESCOMM_COLLECTIVE;
inline constexpr const char *buffer_type = "Type of the elements. Since: 0.1";
inline constexpr const char *buffer_data = "Returns all elements as an array.\n" VESCOMM_LOCAL;
inline constexpr const char *buffer_shard =
    "Returns the shard of this rank as an array.\n" VESCOMM_LOCAL;
inline constexpr const char *buffer_tensor =
    "Returns a tensor as an array of its shape.\n\n"
    "Args:\n    which: name or index.\n\n"
    "Raises:\n    InvalidArgumentError: no tensor has this name. IndexError.\n" VESCOMM_LOCAL;
inline constexpr const char *buffer_release =
    "Declares that this rank no longer reads the gathered contents of a PER_NODE "
    "buffer.\n" VESCOMM_ALONE;
inline constexpr const char *buffer_acquire =
    "Waits until this rank may write its own shard of a PER_NODE buffer.\n\n"
    "Raises:\n    TimeoutError: names the rank that still reads. MismatchError, "
    "PeerFailedError.\n\n"
    "Collective: no.  Blocking: yes, at most the timeout.  Threads: one at a time per\n"
    "communicator.  Since: 0.1";
inline constexpr const char *buffer_free =
    "Frees the buffer when its last array and request are gone.\n" VESCOMM_LOCAL;
inline constexpr const char *create_all_gather_v =
    "Creates an all_gather_v: gathers every rank's shard into the whole buffer.\n\n"
    "Args:\n    source: this rank's shard, which is converted to the type of the buffer. None: "
    "the\n"
    "        shard is in the buffer.\n"
    "    type: of the source, if it cannot name it.\n" VESCOMM_REQUEST;
inline constexpr const char *create_reduce_scatter_v =
    "Creates a reduce_scatter_v: reduces the buffers of all ranks, and leaves each rank its "
    "shard.\n\n"
    "Args:\n    output: gets the shard, in the type of the buffer or, for floats of 16 and 8 "
    "bits,\n"
    "        in F32. None: the buffer does.\n"
    "    op: the operator.\n    factor: Op.PREMULTIPLIED_SUM: of every contribution, not 0.\n"
    "    type: of the output, if it cannot name it.\n" VESCOMM_REQUEST;
inline constexpr const char *create_all_reduce =
    "Creates an all_reduce: reduces the buffers of all ranks in place, on all ranks.\n\n"
    "Args:\n    op: the operator.\n    factor: Op.PREMULTIPLIED_SUM: of every contribution, not "
    "0.\n" VESCOMM_REQUEST;
inline constexpr const char *create_reduce =
    "Creates a reduce: reduces the buffers of all ranks in place, on the root.\n\n"
    "Args:\n    root: rank that gets the result.\n    op: the operator.\n"
    "    factor: Op.PREMULTIPLIED_SUM: of every contribution, not 0.\n" VESCOMM_REQUEST;
inline constexpr const char *create_broadcast =
    "Creates a broadcast: copies the root's buffer to the buffers of all ranks.\n\n"
    "Args:\n    root: rank whose buffer is copied.\n" VESCOMM_REQUEST;

// ---- Layout ----

inline constexpr const char *layout_ranks = "Number of shards. Since: 0.1";
inline constexpr const char *layout_elements =
    "Size of the whole buffer in elements, including padding. Since: 0.1";
inline constexpr const char *layout_padding =
    "Number of elements that belong to no tensor. Since: 0.1";
inline constexpr const char *layout_largest = "Size of the largest shard in elements. Since: 0.1";
inline constexpr const char *layout_hash =
    "Hash of the bytes of to_bytes(), the same on every platform. Since: 0.1";
inline constexpr const char *layout_to_bytes =
    "Serialises the layout; equal layouts have equal bytes on every platform. Since: 0.1";
inline constexpr const char *layout_find =
    "Returns the index of a tensor.\n\n"
    "Raises:\n    InvalidArgumentError: no tensor has this name.\n" VESCOMM_LOCAL;
inline constexpr const char *layout_shard =
    "Returns the shard of a rank as (begin, end), in elements of the buffer.\n" VESCOMM_LOCAL;
inline constexpr const char *layout_boxes =
    "Describes consecutive elements of a tensor, such as a piece, as boxes.\n\n"
    "Args:\n    tensor: name or index.\n    first: first element, counted within the tensor.\n"
    "    elements: number of elements.\n\n"
    "Returns:\n    A list of (starts, extents), with one number for each "
    "dimension.\n" VESCOMM_LOCAL;

}  // namespace vescomm::python::docs

#undef VESCOMM_REQUEST
