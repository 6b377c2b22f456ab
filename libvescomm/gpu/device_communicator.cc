// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_communicator.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "comm/agree.h"
#include "gpu/device_communicator_calls.h"
#include "gpu/nccl_config.h"
#include "gpu/relaxed_capture.h"

namespace vescomm::internal {
namespace {

// Time for the calls of other nodes to arrive after a failure.
constexpr double note_seconds = 0.5;

// A communicator that NCCL creates in a thread of its own. The thread and the one that waits for it
// take it; the first one leaves it to the other.
struct MadeByNccl {
    nccl::Config config;
    nccl::Comm comm = nullptr;
    std::atomic<bool> taken{false};
};

}  // namespace

// INVALID_ARGUMENT is none: it means that nothing has happened, and NCCL's failures break the
// communicator.
vescomm_status_t status_of(nccl::Result result) {
    return result == nccl::remote_error ? VESCOMM_ERROR_PEER_FAILED : VESCOMM_ERROR_SYSTEM;
}

const GpuLibraries &agree_on_libraries(Communicator &comm,
                                       const std::function<const GpuLibraries &()> &find) {
    const GpuLibraries *found = nullptr;
    agree(comm, "device communicator creation", comm.deadline(), [&] {
        found = &find();
        return std::string();
    });
    return *found;
}

std::unique_ptr<DeviceCommunicator> DeviceCommunicator::create(std::shared_ptr<Communicator> comm,
                                                               const Options &options,
                                                               const GpuLibraries &libraries) {
    comm->check();
    std::unique_ptr<DeviceCommunicator> made(
        new DeviceCommunicator(std::move(comm), options, libraries));
    const RelaxedCapture relaxed(libraries.cuda);
    made->connect();
    return made;
}

void DeviceCommunicator::compare_options(Deadline deadline) {
    require_same(*comm_, "device communicator creation", deadline,
                 {{"workspace_bytes", std::to_string(options_.workspace_bytes)},
                  {"min_ctas", std::to_string(options_.min_ctas)},
                  {"max_ctas", std::to_string(options_.max_ctas)},
                  {"shrinkable", std::to_string(options_.shrinkable)},
                  {"method", options_.method.empty() ? "NULL" : options_.method},
                  {"nccl_config", options_.nccl_settings.empty() ? "NULL" : options_.nccl_settings},
                  {"nccl_comm", options_.borrowed != nullptr ? "given" : "NULL"},
                  {"the version of NCCL", nccl_version_text(libraries_.nccl_version)}});
}

void DeviceCommunicator::connect() {
    Communicator &c = *comm_;
    compare_options(c.deadline());
    // The number of its device, and rank 0's id of NCCL.
    const auto ids = agree(c, "device communicator creation", c.deadline(), [&] {
        if (c.config().encryption == "yes" && c.nodes().count() > 1)
            throw Error(VESCOMM_ERROR_UNSUPPORTED,
                        "VESCOMM_ENCRYPTION=yes is set, and NCCL does not encrypt the data between "
                        "nodes; use one node, or set it to no");
        int device = -1;
        if (const auto error = libraries_.cuda.get_device(&device); error != cuda::success)
            throw Error(VESCOMM_ERROR_SYSTEM, "cudaGetDevice() failed: " + cuda_reason(error));
        if (options_.borrowed != nullptr) check_borrowed(device);
        nccl_.use_device(device);
        const std::string own = std::to_string(device) + '\n';
        if (rank() != 0 || options_.borrowed != nullptr) return own;
        nccl::UniqueId id;
        if (const auto result = libraries_.nccl.get_unique_id(&id); result != nccl::success)
            throw Error(status_of(result), "ncclGetUniqueId() failed: " + reason(result));
        return own + std::string(id.internal, sizeof id.internal);
    });
    if (options_.borrowed != nullptr) nccl_.set(options_.borrowed);
    else create_nccl(ids);
    complete();
}

void DeviceCommunicator::complete() {
    try {
        calls_ = std::make_unique<DeviceCallMatch>(comm_);
    } catch (const std::bad_alloc &) {
        comm_->run_out();  // the other ranks wait for this one
        throw;
    }
    link_peers();
    if (options_.workspace_bytes == 0) return;
    // Every rank knows whether all of them have their workspace.
    agree(*comm_, "device workspace", comm_->deadline(), [&] {
        const auto result =
            libraries_.nccl.mem_alloc(&workspace_, registered_bytes(options_.workspace_bytes));
        if (result != nccl::success)
            throw Error(VESCOMM_ERROR_OUT_OF_MEMORY,
                        "the workspace of " + std::to_string(options_.workspace_bytes) +
                            " bytes cannot be allocated: " + reason(result));
        return std::string();
    });
}

nccl::Config DeviceCommunicator::nccl_config() const {
    nccl::Config config = make_nccl_config(options_.nccl_settings, libraries_.nccl_version);
    if (options_.min_ctas != 0) config.min_ctas = options_.min_ctas;
    if (options_.max_ctas != 0) config.max_ctas = options_.max_ctas;
    return config;
}

std::string DeviceCommunicator::advice_on_devices(const std::string &why,
                                                  const std::vector<std::string> &devices) const {
    // "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"
    if (why.find("uplicate GPU") == std::string::npos) return {};
    const Nodes &nodes = comm_->nodes();
    std::string same;
    for (int first = 0; first < ranks() && same.empty(); ++first)
        for (int second = first + 1; second < ranks() && same.empty(); ++second)
            if (nodes.node_of(first) == nodes.node_of(second) &&
                devices[static_cast<std::size_t>(first)] ==
                    devices[static_cast<std::size_t>(second)])
                same = "; ranks " + std::to_string(first) + " and " + std::to_string(second) +
                       " of one node both have the current device " +
                       devices[static_cast<std::size_t>(first)];
    return same + "; call cudaSetDevice(local rank) before, so that each rank has a GPU of its own";
}

void DeviceCommunicator::create_nccl(const std::vector<std::string> &answers) {
    std::vector<std::string> devices;
    for (const std::string &answer : answers)
        devices.push_back(answer.substr(0, answer.find('\n')));
    const std::string text = answers[0].substr(std::min(devices[0].size() + 1, answers[0].size()));
    nccl::UniqueId id;
    if (text.size() != sizeof id.internal)
        throw Error(VESCOMM_ERROR_INTERNAL, "rank 0 sent an id of NCCL of the wrong size");
    std::memcpy(id.internal, text.data(), sizeof id.internal);
    const auto made = std::make_shared<MadeByNccl>();
    made->config = nccl_config();
    const char *function = "ncclCommInitRankConfig()";
    nccl::Result result = nccl::success;
    try {
        result = call_in_background(function, [made, id, ranks = ranks(), rank = rank(),
                                               nccl = libraries_.nccl](const cuda::Runtime &) {
            const auto initialised =
                nccl.comm_init_rank_config(&made->comm, ranks, id, rank, &made->config);
            // No effect on a communicator that the caller has not given up.
            if (made->taken.exchange(true) && made->comm != nullptr) nccl.comm_abort(made->comm);
            return initialised;
        });
    } catch (const std::exception &) {
        if (made->taken.exchange(true)) nccl_.set(made->comm);
        else log_leak(*comm_, "a thread", "ncclCommInitRankConfig() waits for the other ranks");
        throw;
    }
    nccl_.set(made->comm);
    if (failed(result)) {
        const std::string advice = advice_on_devices(reason(result), devices);
        if (!advice.empty()) fail_call(status_of(result), failure_of(function, result) + advice);
    }
    require(result, function);
}

void DeviceCommunicator::check_borrowed(int device) const {
    if (const std::string other = other_nccl(libraries_.nccl); !other.empty())
        throw Error(
            VESCOMM_ERROR_INVALID_ARGUMENT,
            "nccl_comm may belong to another NCCL: the program's functions of NCCL are in " +
                other +
                "; let the program and vescomm load one libnccl.so.2, or pass no nccl_comm");
    int its_ranks = -1, its_rank = -1, its_device = -1;
    for (const nccl::Result result :
         {libraries_.nccl.comm_count(options_.borrowed, &its_ranks),
          libraries_.nccl.comm_user_rank(options_.borrowed, &its_rank),
          libraries_.nccl.comm_cu_device(options_.borrowed, &its_device)})
        if (result != nccl::success)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "nccl_comm is no communicator of this NCCL, or has a call in progress: " +
                            reason(result));
    if (its_ranks == ranks() && its_rank == rank() && its_device == device) return;
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                "nccl_comm is rank " + std::to_string(its_rank) + " of " +
                    std::to_string(its_ranks) + " on device " + std::to_string(its_device) +
                    ", and the communicator is rank " + std::to_string(rank()) + " of " +
                    std::to_string(ranks()) + " on device " + std::to_string(device));
}

void DeviceCommunicator::check() {
    end_if_broken([&] { comm_->check(); });
    check_nccl();
}

void DeviceCommunicator::check_failures() {
    end_if_broken([&] { comm_->failure().check(); });
    check_nccl();
    if (calls_ && calls_->any_notes()) compare_calls();
}

void DeviceCommunicator::check_nccl() {
    const nccl::Result error = nccl_.result();
    if (failed(error)) fail_call(status_of(error), failure_text(error));
}

std::string DeviceCommunicator::failure_text(nccl::Result error) const {
    return "NCCL failed on rank " + std::to_string(rank()) + ": " + reason(error);
}

void DeviceCommunicator::begin_call(const DeviceCall &call, const ExchangeCounts &counts) {
    last_call_ = comm_->start_device_call();
    if (const std::string why = calls_->add(call, counts); !why.empty()) [[unlikely]]
        fail(VESCOMM_ERROR_MISMATCH, why);
}

void DeviceCommunicator::compare_calls() {
    if (!calls_) return;
    if (const std::string why = calls_->compare_all(); !why.empty())
        fail(VESCOMM_ERROR_MISMATCH, why);
}

void DeviceCommunicator::fail_call(vescomm_status_t status, const std::string &why) {
    compare_calls();
    // Ranks of other nodes that have failed too send their calls.
    if (calls_ && calls_->between_nodes()) {
        calls_->send_to_nodes();
        calls_->send_counts_to_nodes();
        const Deadline answers = Deadline::after(note_seconds);
        while (!answers.expired()) {
            end_if_broken([&] { comm_->try_progress(); });
            compare_calls();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    fail(status, why);
}

std::string DeviceCommunicator::late_ranks() const {
    return calls_ ? calls_->behind() : "";
}

void DeviceCommunicator::check_call(const char *function) {
    check();
    check_device(function);
}

void DeviceCommunicator::check_device(const char *function) {
    int current = -1;
    require_cuda(libraries_.cuda.get_device(&current), "cudaGetDevice()");
    if (current != device())
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    std::string(function) + ": the current device is " + std::to_string(current) +
                        ", and the communicator was created on device " + std::to_string(device()) +
                        "; call cudaSetDevice() first");
}

void DeviceCommunicator::wait(cuda::Stream stream) {
    const RelaxedCapture relaxed(libraries_.cuda);
    // The default stream is that of the current device.
    check_call("vescomm_gpu_wait");
    refuse_capture(stream, "be waited for");
    poll("the work of a stream", [&] {
        check();
        const cuda::Error error = libraries_.cuda.stream_query(stream);
        // CUDA keeps it as the last error, which the program would take for one of its own.
        if (error == cuda::not_ready) libraries_.cuda.get_last_error();
        else require_cuda(error, "cudaStreamQuery()");
        return error == cuda::success;
    });
    check();  // work may end because NCCL failed
    compare_calls();
}

void DeviceCommunicator::require(nccl::Result result, const char *function) {
    if (result == nccl::in_progress) result = settle(function);
    if (result == nccl::success) return;
    require_not_ended(function);
    fail_call(status_of(result), failure_of(function, result));
}

void DeviceCommunicator::require_not_ended(const char *function) {
    if (nccl_.watch_ended())
        fail_call(VESCOMM_ERROR_TIMEOUT,
                  "rank " + std::to_string(rank()) + " waited in " + function +
                      " until its deadline: another rank has not made the call" + late_ranks());
}

void DeviceCommunicator::copy(void *target, const void *source, std::uint64_t bytes,
                              cuda::Stream stream) {
    const char *function = "cudaMemcpyAsync()";
    cuda::Error error = cuda::success;
    launch(function, [&] {
        error = libraries_.cuda.memcpy_async(target, source, bytes, cuda::copy_device_to_device,
                                             stream);
    });
    require_cuda(error, function);
}

std::string DeviceCommunicator::failure_of(const char *function, nccl::Result result) const {
    return std::string(function) + " failed on rank " + std::to_string(rank()) + ": " +
           reason(result);
}

void DeviceCommunicator::require_cuda(cuda::Error error, const char *function) {
    if (error == cuda::success) return;
    const vescomm_status_t status =
        error == cuda::memory_allocation ? VESCOMM_ERROR_OUT_OF_MEMORY : VESCOMM_ERROR_SYSTEM;
    fail(status, std::string(function) + " failed on rank " + std::to_string(rank()) + ": " +
                     cuda_reason(error));
}

std::string DeviceCommunicator::cuda_reason(cuda::Error error) const {
    libraries_.cuda.get_last_error();
    return libraries_.cuda.get_error_string(error);
}

nccl::Result DeviceCommunicator::settle(const char *function) {
    nccl::Result result = nccl::in_progress;
    poll(function, [&] {
        result = nccl_.result();
        return result != nccl::in_progress;
    });
    return result;
}

void DeviceCommunicator::fail(vescomm_status_t status, const std::string &why) {
    comm_->fail(status, why);
    nccl_.end();
    comm_->failure().check();  // the first cause, if it was another one
    throw Error(status, why);
}

}  // namespace vescomm::internal
