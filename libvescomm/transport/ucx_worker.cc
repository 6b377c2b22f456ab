// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_worker.h"

#include <cstdlib>
#include <memory>

namespace vescomm {
namespace {

using Config = std::unique_ptr<ucp_config_t, decltype(&::ucp_config_release)>;

// Changes a default of UCX; what the user has set stays.
void set_default(const UcxLibrary &ucx, const Config &config, const std::string &name,
                 const char *value) {
    for (const char *prefix : {"UCX_", "VESCOMM_UCX_"})
        if (std::getenv((prefix + name).c_str()) != nullptr) return;
    ucx.check(ucx.config_modify(config.get(), name.c_str(), value),
              "UCX does not accept its option " + name + "=" + value);
}

Config read_config(const UcxLibrary &ucx) {
    ucp_config_t *read = nullptr;
    ucx.check(ucx.config_read("VESCOMM", nullptr, &read),
              "UCX cannot read its configuration; check the variables that begin with UCX_ and "
              "VESCOMM_UCX_");
    Config config(read, ucx.config_release);

    // Every peer of this transport is on another node, whatever UCX believes: containers and
    // network namespaces of one machine look local to it, and its shared memory would then be
    // chosen, or fail.
    set_default(ucx, config, "TLS", "^sm");

    // Memory is registered by us, once. The cache would watch munmap for it, see load_ucx().
    set_default(ucx, config, "RCACHE_ENABLE", "n");
    return config;
}

}  // namespace

UcxWorker::UcxWorker(const UcxLibrary &ucx, std::size_t peers) : ucx_(ucx) {
    const Config config = read_config(ucx);

    ucp_params_t context{};
    context.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
    context.features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
    context.estimated_num_eps = peers;
    ucx.check(
        ucx.init_version(UCP_API_MAJOR, UCP_API_MINOR, &context, config.get(), &context_),
        "UCX cannot be initialised; check UCX_TLS and UCX_NET_DEVICES, `ucx_info -d` lists what "
        "they may name");

    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    try {
        ucx.check(ucx.worker_create(context_, &worker, &worker_), "UCX cannot create a worker");
        ucx.check(ucx.worker_get_efd(worker_, &descriptor_), "UCX has no descriptor to sleep on");
    } catch (...) {
        destroy();
        throw;
    }
}

std::string UcxWorker::address() const {
    ucp_worker_attr_t attributes{};
    attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
    ucx_.check(ucx_.worker_query(worker_, &attributes), "UCX cannot tell the address of its worker");
    std::string address(reinterpret_cast<const char *>(attributes.address),
                        attributes.address_length);
    ucx_.worker_release_address(worker_, attributes.address);
    return address;
}

void UcxWorker::destroy_worker() noexcept {
    if (worker_ != nullptr) ucx_.worker_destroy(worker_);
    worker_ = nullptr;
    descriptor_ = -1;
}

void UcxWorker::destroy() noexcept {
    destroy_worker();
    if (context_ != nullptr) ucx_.cleanup(context_);
    context_ = nullptr;
}

}  // namespace vescomm
