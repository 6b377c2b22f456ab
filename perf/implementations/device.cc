// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/implementations/device.h"

#include <cstdlib>

#include "perf/case/collectives.h"

namespace vescomm::perf {
namespace {

constexpr unsigned non_blocking_stream = 1;  // cudaStreamNonBlocking

std::string variable(const char *name) {
    const char *value = std::getenv(name);
    return value == nullptr ? "" : value;
}

// The variables of the process are those of its first rank. Other ranks are its threads.
Communicator connect(const Worker &worker) {
    if (std::to_string(worker.rank) == variable("VESCOMM_RANK"))
        return Communicator::from_environment();
    return {worker.rank, worker.ranks, variable("VESCOMM_ADDRESS"), variable("VESCOMM_SECRET")};
}

}  // namespace

DeviceImplementation::DeviceImplementation(const Worker &worker)
    : functions_(device_functions()),
      comm_(connect(worker)),
      device_(worker.rank % count_devices()) {
    functions_.require(functions_.set_device(device_), "cudaSetDevice()");
    functions_.require(functions_.stream_create(&stream_, non_blocking_stream),
                       "cudaStreamCreateWithFlags()");
}

DeviceImplementation::~DeviceImplementation() {
    functions_.stream_destroy(stream_);
}

std::string DeviceImplementation::version() const {
    return "NCCL " + nccl_version_text(functions_.nccl_version) + ", " + device_name(device_);
}

Costs DeviceImplementation::prepare(const Case &what) {
    what_ = what;
    Costs costs;
    const Collective &row = find_collective(what.collective);
    const auto bytes = [&](Extent extent) {
        return static_cast<std::size_t>(extent.elements() * element());
    };
    host_input_.assign(bytes(row.input(what, comm_.rank())) + 1, std::byte{});
    host_output_.assign(bytes(row.output(what, comm_.rank())) + 1, std::byte{});
    try {
        place();
        create(costs);
    } catch (const Unsupported &) {
        end();
        throw;
    }
    return costs;
}

// In `whole`, shards lie at their cuts.
void DeviceImplementation::place() {
    const std::string &name = what_.collective;
    const bool gathers = name == "all_gather_v", scatters = name == "reduce_scatter_v";
    const bool exchanges = name == "all_to_all_v";
    if (exchanges && what_.in_place) throw Unsupported("all_to_all_v does not work in place");
    if (!gathers && !scatters && !exchanges && name != "all_reduce" && name != "broadcast" &&
        name != "reduce")
        throw Unsupported("it has no " + name + " on device memory");
    const auto allocated = [&](std::int64_t elements) {
        return static_cast<std::byte *>(
            allocate(static_cast<std::size_t>(elements * element()) + 16));
    };
    whole_ = allocated(what_.elements());
    if (!what_.in_place)
        part_ = allocated(exchanges             ? what_.largest_shard() * what_.ranks()
                          : gathers || scatters ? what_.largest_shard()
                                                : what_.elements());
    std::byte *shard = whole_ + what_.cuts[comm_.rank()] * element();
    source_ = gathers ? (what_.in_place ? shard : part_) : whole_;
    target_ = gathers ? whole_ : !what_.in_place ? part_ : scatters ? shard : whole_;
}

void DeviceImplementation::input_written() {
    const Extent extent = find_collective(what_.collective).input(what_, comm_.rank());
    functions_.require(
        functions_.memcpy_async(source_, host_input_.data(),
                                static_cast<std::size_t>(extent.elements() * element()),
                                cuda::copy_host_to_device, stream_),
        "cudaMemcpyAsync()");
    wait();
}

std::byte *DeviceImplementation::output() {
    const Extent extent = find_collective(what_.collective).output(what_, comm_.rank());
    functions_.require(
        functions_.memcpy_async(host_output_.data(), target_,
                                static_cast<std::size_t>(extent.elements() * element()),
                                cuda::copy_device_to_host, stream_),
        "cudaMemcpyAsync()");
    wait();
    return host_output_.data();
}

void DeviceImplementation::wait() {
    functions_.require(functions_.stream_synchronize(stream_), "cudaStreamSynchronize()");
}

void DeviceImplementation::end() {
    destroy();
    if (part_ != nullptr) release(part_);
    if (whole_ != nullptr) release(whole_);
    whole_ = part_ = source_ = target_ = nullptr;
    host_input_ = {};
    host_output_ = {};
}

}  // namespace vescomm::perf
