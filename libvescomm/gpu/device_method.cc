// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_method.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "base/error.h"
#include "gpu/device_placement.h"
#include "gpu/nccl_functions.h"

namespace vescomm::internal {
namespace {

// Sizes that the costs depend on.
struct Sizes {
    explicit Sizes(std::span<const std::uint64_t> shards)
        : ranks(static_cast<double>(shards.size())),
          sum(static_cast<double>(std::accumulate(shards.begin(), shards.end(), std::uint64_t{}))),
          largest(static_cast<double>(*std::ranges::max_element(shards))),
          smallest(static_cast<double>(*std::ranges::min_element(shards))),
          owners(static_cast<double>(
              std::ranges::count_if(shards, [](std::uint64_t bytes) { return bytes != 0; }))) {}

    double ranks, sum, largest, smallest;
    double owners;  // ranks whose shard is not empty
    bool equal() const { return largest == smallest; }
};

std::string number(std::uint64_t value) {
    return std::to_string(value);
}

// A ring of equal shards: P - 1 steps, each rank receives all but its own shard.
double ring_seconds(double ranks, double shard, const DeviceCosts &costs) {
    return costs.launch + (ranks - 1) * (costs.hop + shard / costs.link);
}

// The factor of the time of bytes in the caller's memory.
double slowness(const DeviceProblem &problem, const DeviceCosts &costs) {
    return problem.aligned ? 1 : costs.unaligned;
}

// The call that moves equal shards.
std::string uniform_call(const DeviceProblem &problem) {
    return problem.reduces ? "one ncclReduceScatter" : "one ncclAllGather";
}

// The number of bytes that are moved and belong to no shard.
std::string padding_of(const DeviceProblem &problem, std::uint64_t stride) {
    const auto &shards = problem.shard_bytes;
    const std::uint64_t sum = std::accumulate(shards.begin(), shards.end(), std::uint64_t{});
    return number(shards.size() * stride - sum) + " bytes are padding";
}

DeviceCandidate equal(const DeviceProblem &problem, const Sizes &sizes, const DeviceCosts &costs) {
    if (!sizes.equal()) return {DeviceMethod::equal, 0, false, "the shards are not of equal size"};
    if (problem.stride > problem.shard_bytes[0])
        return {DeviceMethod::equal, 0, false, "there are gaps between the shards"};
    return {DeviceMethod::equal,
            ring_seconds(sizes.ranks, sizes.largest * slowness(problem, costs), costs), true,
            uniform_call(problem) + " in place"};
}

DeviceCandidate padded_in_place(const DeviceProblem &problem, const Sizes &sizes,
                                const DeviceCosts &costs) {
    const auto stride = static_cast<double>(problem.stride);
    if (stride < sizes.largest)
        return {DeviceMethod::padded_in_place, 0, false,
                "the memory has no gaps behind the shards, so that all have the largest size"};
    return {DeviceMethod::padded_in_place,
            ring_seconds(sizes.ranks, stride * slowness(problem, costs), costs), true,
            uniform_call(problem) + " in place of " + number(problem.stride) +
                " bytes from each rank, of which " + padding_of(problem, problem.stride)};
}

DeviceCandidate padded(const DeviceProblem &problem, const Sizes &sizes, const DeviceCosts &costs) {
    const std::uint64_t needed = padded_bytes(problem.shard_bytes);
    if (needed > problem.workspace_bytes)
        return {DeviceMethod::padded, 0, false,
                "it needs a workspace of " + number(needed) + " bytes, and the communicator has " +
                    number(problem.workspace_bytes)};
    // The shards of all ranks are copied, and that of this rank a second time.
    const double seconds = ring_seconds(sizes.ranks, sizes.largest, costs) +
                           (sizes.owners + 1) * costs.copy +
                           (sizes.sum + sizes.largest) / costs.memory;
    return {DeviceMethod::padded, seconds, true,
            uniform_call(problem) + " of shards of the largest size in the workspace, of which " +
                padding_of(problem, needed / problem.shard_bytes.size()) + ", and copies"};
}

DeviceCandidate rooted(const DeviceProblem &problem, const Sizes &sizes, const DeviceCosts &costs) {
    const bool fused =
        !problem.reduces && problem.nccl_version >= nccl::version_with_fused_broadcasts;
    // Each call fills its own pipeline of P - 1 steps, unless NCCL fuses them to one ring. On the
    // slowest link all bytes pass except the smallest shard.
    const double pipelines = fused ? 1 : std::max(sizes.owners, 1.0);
    const double bytes = sizes.ranks > 1 ? sizes.sum - sizes.smallest : 0;
    const double seconds = costs.launch + pipelines * (sizes.ranks - 1) * costs.hop +
                           bytes * slowness(problem, costs) / costs.link;
    return {DeviceMethod::rooted, seconds, true,
            problem.reduces ? "a group of ncclReduce, one to each rank"
            : fused         ? "a group of ncclBroadcast, one from each rank, which NCCL fuses"
                            : "a group of ncclBroadcast, one from each rank"};
}

DeviceCandidate messages(const DeviceProblem &problem, const Sizes &sizes,
                         const DeviceCosts &costs) {
    if (problem.reduces) return {DeviceMethod::messages, 0, false, "messages do not reduce"};
    // The rank with the largest shard sends it to all others.
    const double seconds =
        costs.launch +
        (sizes.ranks - 1) *
            (costs.message + sizes.largest * slowness(problem, costs) / costs.message_link);
    return {DeviceMethod::messages, seconds, true,
            "a group of ncclSend and ncclRecv between all pairs of ranks"};
}

// Every rank reads what it needs. The rank with the largest shard reads most of a reduction.
DeviceCandidate peer(const DeviceProblem &problem, const Sizes &sizes, const DeviceCosts &costs) {
    if (problem.lone_buffer && problem.forced == name_of(DeviceMethod::peer))
        return {DeviceMethod::peer, 0, true, "nothing to read: there is one rank"};
    if (!problem.no_peers.empty()) return {DeviceMethod::peer, 0, false, problem.no_peers};
    const double bytes = problem.reduces   ? (sizes.ranks - 1) * sizes.largest
                         : sizes.ranks > 1 ? sizes.sum - sizes.smallest
                                           : 0;
    return {
        DeviceMethod::peer,
        costs.peer_launch + 2 * costs.meeting + bytes * slowness(problem, costs) / costs.peer_link,
        true,
        problem.reduces ? "a kernel that reads this rank's shard of all ranks, and sums in "
                          "their order"
                        : "a kernel that reads the shards of all ranks"};
}

// Every rank copies what it needs, a shard at a time.
DeviceCandidate copy_engine(const DeviceProblem &problem, const Sizes &sizes,
                            const DeviceCosts &costs) {
    const auto refuse = [](const std::string &why) {
        return DeviceCandidate{DeviceMethod::copy_engine, 0, false, why};
    };
    if (problem.reduces) return refuse("copy engines do not reduce");
    if (problem.lone_buffer)
        return {DeviceMethod::copy_engine, 0, true, "nothing to copy: there is one rank"};
    if (!problem.no_peers.empty()) return refuse(problem.no_peers);
    if (problem.borrowed)
        return refuse(
            "the program owns nccl_comm, and may end it while copies read windows of other ranks");
    const double seconds = 2 * (costs.peer_launch + costs.meeting) +
                           (sizes.ranks - 1) * costs.copy +
                           (sizes.sum - sizes.smallest) / costs.peer_link;
    return {DeviceMethod::copy_engine, seconds, true,
            "copies of the shards of all ranks by the copy engines, between two meetings; only if "
            "asked for by name"};
}

DeviceCandidate candidate(DeviceMethod method, const DeviceProblem &problem, const Sizes &sizes,
                          const DeviceCosts &costs) {
    switch (method) {
        case DeviceMethod::equal:
            return equal(problem, sizes, costs);
        case DeviceMethod::padded_in_place:
            return padded_in_place(problem, sizes, costs);
        case DeviceMethod::padded:
            return padded(problem, sizes, costs);
        case DeviceMethod::rooted:
            return rooted(problem, sizes, costs);
        case DeviceMethod::messages:
            return messages(problem, sizes, costs);
        case DeviceMethod::peer:
            return peer(problem, sizes, costs);
        case DeviceMethod::copy_engine:
            break;
    }
    return copy_engine(problem, sizes, costs);
}

// NCCL chooses the order in which it adds.
DeviceCandidate reproducible(DeviceCandidate one, const DeviceProblem &problem) {
    if (!problem.reproducible || !problem.reduces || one.method == DeviceMethod::peer) return one;
    return {one.method, 0, false,
            "the communicator asks for reproducible reductions, and those of NCCL are not"};
}

std::string microseconds(double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%10.1f us", seconds * 1e6);
    return text;
}

}  // namespace

std::string_view name_of(DeviceMethod method) {
    static constexpr std::string_view names[] = {
        "equal", "padded_in_place", "padded", "rooted", "messages", "peer", "copy_engine"};
    return names[static_cast<int>(method)];
}

std::uint64_t padded_bytes(std::span<const std::uint64_t> shard_bytes) {
    if (shard_bytes.empty()) return 0;
    return shard_bytes.size() * device_aligned(*std::ranges::max_element(shard_bytes));
}

void check_device_method(const std::string &name) {
    if (name.empty()) return;
    for (const DeviceMethod method : device_methods)
        if (name_of(method) == name) return;
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                "there is no method \"" + name +
                    "\"; there is: equal, padded_in_place, padded, rooted, messages, peer, "
                    "copy_engine");
}

DeviceChoice choose_device_method(const DeviceProblem &problem, const DeviceCosts &costs) {
    check_device_method(problem.forced);
    const Sizes sizes(problem.shard_bytes);
    DeviceChoice choice;
    for (const DeviceMethod method : device_methods)
        choice.candidates.push_back(
            reproducible(candidate(method, problem, sizes, costs), problem));
    std::ranges::stable_sort(choice.candidates,
                             [](const DeviceCandidate &a, const DeviceCandidate &b) {
                                 if (a.suits != b.suits) return a.suits;
                                 return a.suits && a.seconds < b.seconds;
                             });
    const auto fastest = std::ranges::find_if(choice.candidates, [](const DeviceCandidate &one) {
        return one.suits && one.by_prediction();
    });
    if (fastest == choice.candidates.end())
        throw Error(
            VESCOMM_ERROR_UNSUPPORTED,
            "the communicator asks for reproducible reductions, which method \"peer\" alone "
            "has on device memory, and it does not suit: " +
                problem.no_peers);
    const bool not_for_reductions =
        problem.reduces && problem.forced == name_of(DeviceMethod::copy_engine);
    if (problem.forced.empty() || not_for_reductions) {
        choice.method = fastest->method;
        choice.reason = "it is predicted to take the least time";
        if (not_for_reductions)
            choice.reason +=
                "; the options of the communicator ask for copy_engine, which does "
                "not reduce";
        return choice;
    }
    const DeviceCandidate &forced = *std::ranges::find_if(
        choice.candidates,
        [&](const DeviceCandidate &one) { return name_of(one.method) == problem.forced; });
    if (!forced.suits)
        throw Error(VESCOMM_ERROR_UNSUPPORTED,
                    "method \"" + problem.forced + "\" does not suit: " + forced.why);
    choice.method = forced.method;
    choice.reason = "the options of the communicator ask for it by name";
    return choice;
}

std::string to_string(const DeviceProblem &problem, const DeviceChoice &choice) {
    const auto &shards = problem.shard_bytes;
    std::string text = std::string(problem.reduces ? "reduce_scatter_v" : "all_gather_v") + " of " +
                       number(std::accumulate(shards.begin(), shards.end(), std::uint64_t{})) +
                       " bytes over " + number(shards.size()) + " ranks, shards of " +
                       number(*std::ranges::min_element(shards)) + " to " +
                       number(*std::ranges::max_element(shards)) + " bytes" +
                       (problem.aligned ? "" : ", not at multiples of 16 bytes") + "\nmethod " +
                       std::string(name_of(choice.method)) + ", because " + choice.reason +
                       "; predicted with constants that were not measured\n";
    for (const DeviceCandidate &one : choice.candidates)
        text += std::string(one.method == choice.method ? "* "
                            : one.suits                 ? "  "
                                                        : "- ") +
                (one.suits ? microseconds(one.seconds) : std::string(13, ' ')) + "  " +
                std::string(name_of(one.method)) + ": " + one.why + "\n";
    return text;
}

}  // namespace vescomm::internal
