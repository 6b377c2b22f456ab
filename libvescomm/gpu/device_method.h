// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The choice of the NCCL calls, or of the kernel, that carry out a ragged collective: NCCL has none
// with unequal counts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vescomm::internal {

enum class DeviceMethod {
    // One all-gather or reduce-scatter on the caller's memory. For equal shards.
    equal,
    // One with counts of the largest shard in the caller's memory, which has gaps behind the
    // others.
    padded_in_place,
    // One with shards of the largest size in the workspace, and copies between both.
    padded,
    // A group of one broadcast from each rank, or of one reduction to each rank.
    rooted,
    // A group of messages between all pairs of ranks. For all_gather_v.
    messages,
    // One kernel of vescomm on each rank, which reads the memory of the other ranks.
    peer,
    // Copies by the copy engines from the memory of the other ranks, between two meetings of all
    // ranks. For all_gather_v; only by name.
    copy_engine,
};
inline constexpr DeviceMethod device_methods[] = {
    DeviceMethod::equal,      DeviceMethod::padded_in_place, DeviceMethod::padded,
    DeviceMethod::rooted,     DeviceMethod::messages,        DeviceMethod::peer,
    DeviceMethod::copy_engine};

// False: kernels of vescomm and copies read the memory of the other ranks.
constexpr bool uses_nccl(DeviceMethod method) {
    return method != DeviceMethod::peer && method != DeviceMethod::copy_engine;
}

// True: the shard and the whole buffer are the arrays of one call of NCCL. Each of the two is then
// registered on all ranks or on none.
constexpr bool is_one_call_in_place(DeviceMethod method) {
    return method == DeviceMethod::equal || method == DeviceMethod::padded_in_place;
}

// "equal", "padded_in_place", "padded", "rooted", "messages", "peer",
// "copy_engine".
std::string_view name_of(DeviceMethod method);

// Everything that the choice depends on. Equal on every rank.
struct DeviceProblem {
    bool reduces = false;  // reduce_scatter_v; otherwise all_gather_v
    std::vector<std::uint64_t> shard_bytes;  // by rank
    std::uint64_t workspace_bytes = 0;
    int nccl_version = 0;
    // Name of the method to use; empty: the fastest. "copy_engine" applies to all_gather_v only.
    std::string forced;
    std::uint64_t stride = 0;  // see DevicePlacement::stride()
    bool aligned = true;  // shards begin at multiples of 16 bytes in the caller's memory
    // The reason why ranks cannot read one another's memory; empty: they can.
    std::string no_peers = "it is for device buffers";
    bool reproducible = false;  // sums must not depend on NCCL's order
    // NCCL's communicator is the program's, which may end it at any time.
    bool borrowed = false;
    bool lone_buffer = false;  // a device buffer of one rank, which has nothing to move
};

// Constants of a GPU and its links. The defaults are round numbers for 8 GPUs on NVLink 4, from
// published figures. They have not been measured by vescomm.
//
// The predicted seconds, with P ranks, shards of `sum` bytes together, of `largest` and `smallest`,
// and u = 1, or `unaligned` if shards do not begin at multiples of 16 bytes:
//
//     equal            launch + (P - 1) (hop + u largest / link)
//     padded_in_place  launch + (P - 1) (hop + u stride / link)
//     padded           launch + (P - 1) (hop + largest / link)
//                      + (shards with elements + 1) copy + (sum + largest) / memory
//     rooted           launch + pipelines (P - 1) hop + u (sum - smallest) / link
//                      pipelines: 1 if NCCL fuses them, otherwise one for each shard with elements
//     messages         launch + (P - 1) (message + u largest / message_link)
//     peer             peer_launch + 2 meeting + bytes / peer_link
//                      bytes: (P - 1) largest of reduce_scatter_v, sum - smallest of all_gather_v
//     copy_engine      2 (peer_launch + meeting) + (P - 1) copy + (sum - smallest) / peer_link
struct DeviceCosts {
    double launch = 10e-6;  // of a kernel of NCCL, in seconds
    double hop = 1e-6;  // latency of a step of a ring
    double message = 1.5e-6;  // of exchanging messages with one peer
    double copy = 2e-6;  // of starting a copy within the memory of a GPU
    double link = 360e9;  // bytes per second that a GPU sends and receives in a ring
    // Bytes per second that a GPU sends in messages. UCC measured half the speed of broadcasts
    // (openucx/ucc, pull request 347).
    double message_link = 180e9;
    double memory = 1.3e12;  // bytes per second of a copy, which reads and writes
    double peer_launch = 8e-6;  // of a kernel of vescomm that reads other ranks' memory
    double meeting = 4e-6;  // of all ranks within a kernel
    double peer_link = 300e9;  // bytes per second that a GPU reads from others
    double unaligned = 2;  // factor of the time of bytes that do not begin at multiples of 16
};

struct DeviceCandidate {
    DeviceMethod method = DeviceMethod::equal;
    double seconds = 0;  // predicted; valid if suits
    bool suits = false;
    std::string why;  // the calls, or the reason why it does not suit

    // False: it is used only if it is forced, because nothing is known about its speed.
    bool by_prediction() const { return method != DeviceMethod::copy_engine; }
};

struct DeviceChoice {
    DeviceMethod method = DeviceMethod::equal;
    std::vector<DeviceCandidate> candidates;  // the fastest first, those that do not suit last
    std::string reason;
};

// Bytes of workspace that `padded` needs: its shards are aligned.
std::uint64_t padded_bytes(std::span<const std::uint64_t> shard_bytes);

// Throws INVALID_ARGUMENT unless the name is empty or that of a method.
void check_device_method(const std::string &name);

// Throws as check_device_method(), and UNSUPPORTED if the forced method does not suit. `rooted`
// suits every problem. With "copy_engine" forced, reductions have the fastest of the other methods.
DeviceChoice choose_device_method(const DeviceProblem &problem, const DeviceCosts &costs = {});

// Several lines of text: the problem, the candidates, the reason.
std::string to_string(const DeviceProblem &problem, const DeviceChoice &choice);

}  // namespace vescomm::internal
