// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Docstrings of the calls on arrays.
#pragma once

// Arguments and guarantees that all calls share.
#define VESCOMM_CALL_END                                                                          \
    "    type: of the elements, for arrays that cannot name it: NumPy's uint16 that hold BF16.\n" \
    "        None: as the arrays say.\n"                                                          \
    "    algorithm: name of the algorithm. None: the library chooses.\n"                          \
    "    wait: False: return a Request at once. It holds the arrays, whose sources must not be\n" \
    "        changed and whose outputs must not be read until it is complete.\n"                  \
    "\n"                                                                                          \
    "Raises:\n"                                                                                   \
    "    InvalidArgumentError: the call had no effect. MismatchError, TimeoutError,\n"            \
    "    PeerFailedError, AbortedError: the communicator is broken.\n"                            \
    "\n"                                                                                          \
    "Collective: yes, same order.  Blocking: if wait, at most the timeout.  Threads: one at a\n"  \
    "time per communicator.  Since: 0.1"

namespace vescomm::python::docs {

inline constexpr const char *all_gather =
    "Gathers sources of equal size on all ranks: output holds that of rank k at k * source.size.\n"
    "\n"
    "Args:\n"
    "    source: the elements of this rank; may be its part of the output.\n"
    "    output: source.size elements for each rank.\n" VESCOMM_CALL_END;

inline constexpr const char *all_gather_v =
    "Gathers the sources of all ranks on all ranks.\n"
    "\n"
    "Args:\n"
    "    source: counts[rank] elements; may be this rank's block of the output.\n"
    "    output: gets counts[k] elements of rank k at offsets[k].\n"
    "    counts: number of elements of each rank; the same on every rank.\n"
    "    offsets: of the blocks in output, in elements. None: one after "
    "another.\n" VESCOMM_CALL_END;

inline constexpr const char *reduce_scatter =
    "Reduces the sources of all ranks and leaves each rank a block of the result, of equal size.\n"
    "\n"
    "Args:\n"
    "    source: output.size elements for each rank, by rank.\n"
    "    output: the block of this rank; may be its part of the source.\n"
    "    op: the operator; the same on every rank.\n"
    "    factor: Op.PREMULTIPLIED_SUM: of every contribution, not 0.\n" VESCOMM_CALL_END;

inline constexpr const char *reduce_scatter_v =
    "Reduces the sources of all ranks and leaves each rank its own block of the result.\n"
    "\n"
    "Args:\n"
    "    source: the elements for rank 0, then those for rank 1, and so on.\n"
    "    output: counts[rank] elements; may be this rank's block of the source.\n"
    "    counts: number of elements for each rank; the same on every rank.\n"
    "    op: the operator; the same on every rank.\n"
    "    factor: Op.PREMULTIPLIED_SUM: of every contribution, not 0.\n" VESCOMM_CALL_END;

inline constexpr const char *all_reduce =
    "Reduces the sources of all ranks and leaves every rank the same result, bit for bit.\n"
    "\n"
    "Args:\n"
    "    source: the same number of elements on every rank.\n"
    "    output: of the same size. None: the result replaces the source.\n"
    "    op: the operator; the same on every rank.\n"
    "    factor: Op.PREMULTIPLIED_SUM: of every contribution, not 0.\n" VESCOMM_CALL_END;

inline constexpr const char *reduce =
    "Reduces the sources of all ranks and leaves the root the result.\n"
    "\n"
    "Args:\n"
    "    source: the same number of elements on every rank.\n"
    "    output: of the same size; used on the root only. None: the result replaces its source.\n"
    "    root: rank that gets the result; the same on every rank.\n"
    "    op: the operator; the same on every rank.\n"
    "    factor: Op.PREMULTIPLIED_SUM: of every contribution, not 0.\n" VESCOMM_CALL_END;

inline constexpr const char *broadcast =
    "Copies the array of the root to all ranks.\n"
    "\n"
    "Args:\n"
    "    array: read on the root, written on all others; the same size on every rank.\n"
    "    root: rank whose array is copied; the same on every rank.\n" VESCOMM_CALL_END;

inline constexpr const char *gather_v =
    "Gathers the sources of all ranks on the root.\n"
    "\n"
    "Args:\n"
    "    source: counts[rank] elements.\n"
    "    output: on the root gets counts[k] elements of rank k at offsets[k]; others may pass\n"
    "        None.\n"
    "    counts: number of elements of each rank; the same on every rank.\n"
    "    root: rank that gets all blocks; the same on every rank.\n"
    "    offsets: of the blocks in output; used on the root only. None: one after "
    "another.\n" VESCOMM_CALL_END;

inline constexpr const char *scatter_v =
    "Scatters the source of the root: each rank gets its own block.\n"
    "\n"
    "Args:\n"
    "    source: on the root holds counts[k] elements for rank k at offsets[k]; others may pass\n"
    "        None.\n"
    "    output: counts[rank] elements.\n"
    "    counts: number of elements for each rank; the same on every rank.\n"
    "    root: rank that has all blocks; the same on every rank.\n"
    "    offsets: of the blocks in source; used on the root only. None: one after "
    "another.\n" VESCOMM_CALL_END;

inline constexpr const char *all_to_all =
    "Sends one block of equal size from every rank to every rank.\n"
    "\n"
    "Args:\n"
    "    source: the same number of elements for each rank, by rank.\n"
    "    output: of the same size: the elements of rank 0, then those of rank 1, and so "
    "on.\n" VESCOMM_CALL_END;

inline constexpr const char *all_to_all_v =
    "Sends one block from every rank to every rank.\n"
    "\n"
    "Args:\n"
    "    source: source_counts[k] elements for rank k at source_offsets[k].\n"
    "    source_counts: source_counts[j] on rank k must equal output_counts[k] on rank j.\n"
    "    output: gets output_counts[k] elements of rank k at output_offsets[k].\n"
    "    output_counts: number of elements of each rank.\n"
    "    source_offsets, output_offsets: None: the blocks follow one another.\n" VESCOMM_CALL_END;

inline constexpr const char *send =
    "Sends a message to one rank, which calls receive() with the same number and type of "
    "elements.\n"
    "\n"
    "Messages of one rank and tag are received in the order in which they are sent. A program "
    "must\n"
    "not rely on a send that completes before the peer receives: ranks that send to each other "
    "put\n"
    "their sends and receives in a group().\n"
    "\n"
    "Args:\n"
    "    array: the message; may be empty.\n"
    "    peer: rank of the receiver; may be the calling rank.\n"
    "    tag: from 0 to 2**31 - 1. The peer receives the message with the same tag.\n"
    "    type, wait: as in all_reduce().\n"
    "\n"
    "Raises:\n"
    "    as all_reduce().\n"
    "\n"
    "Collective: no.  Blocking: if wait, at most the timeout.  Threads: one at a time per\n"
    "communicator.  Since: 0.1";

inline constexpr const char *receive =
    "Receives a message that a rank sends with send().\n"
    "\n"
    "Args:\n"
    "    array: gets the message; of its size and type.\n"
    "    peer: rank of the sender, which may be the calling rank; or ANY_SOURCE.\n"
    "    tag: of the message.\n"
    "    type, wait: as in all_reduce().\n"
    "\n"
    "Returns:\n"
    "    as all_reduce(); if it waits for ANY_SOURCE outside a group, the Message. The message() "
    "of\n"
    "    a request returns it in all cases.\n"
    "\n"
    "Raises:\n"
    "    as all_reduce().\n"
    "\n"
    "Collective: no.  Blocking: if wait, at most the timeout.  Threads: one at a time per\n"
    "communicator.  Since: 0.1";

}  // namespace vescomm::python::docs

#undef VESCOMM_CALL_END
