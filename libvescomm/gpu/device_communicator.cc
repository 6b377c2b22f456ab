// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_communicator.h"

#include <cstring>

#include "comm/agree.h"
#include "gpu/device_communicator_calls.h"
#include "gpu/relaxed_capture.h"

namespace vescomm::internal {

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
                  {"method", options_.method},
                  {"nccl_comm", options_.borrowed != nullptr ? "given" : "NULL"},
                  {"the version of NCCL", nccl_version_text(libraries_.nccl_version)}});
}

void DeviceCommunicator::connect() {
    Communicator &c = *comm_;
    compare_options(c.deadline());
    const auto ids = agree(c, "device communicator creation", c.deadline(), [&] {
        if (c.config().encryption == "yes" && c.nodes().count() > 1)
            throw Error(VESCOMM_ERROR_UNSUPPORTED,
                        "VESCOMM_ENCRYPTION=yes is set, and NCCL does not encrypt the data between "
                        "nodes; use one node, or set it to no");
        if (const auto error = libraries_.cuda.get_device(&device_); error != cuda::success)
            throw Error(VESCOMM_ERROR_SYSTEM, "cudaGetDevice() failed: " + cuda_reason(error));
        if (options_.borrowed != nullptr) check_borrowed();
        else if (!watch_) watch_ = make_watch();
        if (rank() != 0 || options_.borrowed != nullptr) return std::string();
        nccl::UniqueId id;
        if (const auto result = libraries_.nccl.get_unique_id(&id); result != nccl::success)
            throw Error(status_of(result), "ncclGetUniqueId() failed: " + reason(result));
        return std::string(id.internal, sizeof id.internal);
    });
    if (options_.borrowed != nullptr) nccl_ = options_.borrowed;
    else create_nccl(ids[0]);
    complete();
}

void DeviceCommunicator::complete() {
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
    nccl::Config config;
    config.blocking = 1;
    if (options_.min_ctas != 0) config.min_ctas = options_.min_ctas;
    if (options_.max_ctas != 0) config.max_ctas = options_.max_ctas;
    return config;
}

void DeviceCommunicator::create_nccl(const std::string &text) {
    nccl::UniqueId id;
    if (text.size() != sizeof id.internal)
        throw Error(VESCOMM_ERROR_INTERNAL, "rank 0 sent an id of NCCL of the wrong size");
    std::memcpy(id.internal, text.data(), sizeof id.internal);
    struct Made {
        nccl::Config config;
        nccl::Comm comm = nullptr;
    };
    const auto made = std::make_shared<Made>();
    made->config = nccl_config();
    const char *function = "ncclCommInitRankConfig()";
    const nccl::Result result = call_in_background(
        function,
        [made, id, ranks = ranks(), rank = rank(), init = libraries_.nccl.comm_init_rank_config](
            const cuda::Runtime &) { return init(&made->comm, ranks, id, rank, &made->config); });
    nccl_ = made->comm;
    require(result, function);
}

std::unique_ptr<NcclWatch> DeviceCommunicator::make_watch() {
    return std::make_unique<NcclWatch>(
        comm_->config().timeout_seconds, [this] { return comm_->failure().broken(); },
        [this] {
            // After a revocation the communicator still exists.
            if (libraries_.nccl.comm_revoke != nullptr) libraries_.nccl.comm_revoke(nccl_, 0);
            else libraries_.nccl.comm_abort(nccl_);
        });
}

void DeviceCommunicator::check_borrowed() const {
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
    if (its_ranks == ranks() && its_rank == rank() && its_device == device_) return;
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                "nccl_comm is rank " + std::to_string(its_rank) + " of " +
                    std::to_string(its_ranks) + " on device " + std::to_string(its_device) +
                    ", and the communicator is rank " + std::to_string(rank()) + " of " +
                    std::to_string(ranks()) + " on device " + std::to_string(device_));
}

void DeviceCommunicator::check() {
    end_if_broken([&] { comm_->check(); });
    nccl::Result error = nccl::success;
    const nccl::Result result = libraries_.nccl.comm_get_async_error(nccl_, &error);
    if (result != nccl::success) error = result;
    if (error != nccl::success && error != nccl::in_progress)
        fail(status_of(error),
             "NCCL failed on rank " + std::to_string(rank()) + ": " + reason(error));
}

void DeviceCommunicator::check_call(const char *function) {
    check();
    check_device(function);
}

void DeviceCommunicator::check_device(const char *function) {
    int device = -1;
    require_cuda(libraries_.cuda.get_device(&device), "cudaGetDevice()");
    if (device != device_)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    std::string(function) + ": the current device is " + std::to_string(device) +
                        ", and the communicator was created on device " + std::to_string(device_) +
                        "; call cudaSetDevice() first");
}

void DeviceCommunicator::wait(cuda::Stream stream) {
    const RelaxedCapture relaxed(libraries_.cuda);
    // The default stream is that of the current device.
    check_call("vescomm_gpu_wait");
    int capture = cuda::capture_none;
    const cuda::Error queried = libraries_.cuda.stream_is_capturing(stream, &capture);
    if (queried == cuda::capture_implicit)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "the default stream cannot be waited for while a stream that it waits for is "
                    "captured into a graph: " +
                        cuda_reason(queried));
    require_cuda(queried, "cudaStreamIsCapturing()");
    if (capture != cuda::capture_none)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "a stream cannot be waited for while it is captured into a graph");
    poll("the work of a stream", [&] {
        check();
        const cuda::Error error = libraries_.cuda.stream_query(stream);
        // CUDA keeps it as the last error, which the program would take for one of its own.
        if (error == cuda::not_ready) libraries_.cuda.get_last_error();
        else require_cuda(error, "cudaStreamQuery()");
        return error == cuda::success;
    });
    check();  // work may end because NCCL failed
}

void DeviceCommunicator::require(nccl::Result result, const char *function) {
    if (result == nccl::in_progress) result = settle(function);
    if (result == nccl::success) return;
    if (watch_ && watch_->ended())
        fail(VESCOMM_ERROR_TIMEOUT, "rank " + std::to_string(rank()) + " waited in " + function +
                                        " until its deadline: another rank has not made the call");
    fail(status_of(result), std::string(function) + " failed on rank " + std::to_string(rank()) +
                                ": " + reason(result));
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
        nccl::Result error = nccl::success;
        result = libraries_.nccl.comm_get_async_error(nccl_, &error);
        if (result == nccl::success) result = error;
        return result != nccl::in_progress;
    });
    return result;
}

void DeviceCommunicator::fail(vescomm_status_t status, const std::string &why) {
    comm_->fail(status, why);
    end_nccl();
    comm_->failure().check();  // the first cause, if it was another one
    throw Error(status, why);
}

std::string DeviceCommunicator::reason(nccl::Result result) const {
    std::string text = libraries_.nccl.get_error_string(result);
    const char *last = libraries_.nccl.get_last_error(nccl_);
    if (last != nullptr && *last != '\0') text += std::string(" (") + last + ")";
    return text;
}

}  // namespace vescomm::internal
