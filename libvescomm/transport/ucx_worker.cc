// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_worker.h"

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <string_view>
#include <system_error>

namespace vescomm::internal {
namespace {

using Config = std::unique_ptr<ucp_config_t, decltype(&::ucp_config_release)>;

// The value that the user has set for an option of UCX, or nullptr.
const char *user_value(const std::string &name) {
    const char *value = std::getenv(("VESCOMM_UCX_" + name).c_str());
    return value != nullptr ? value : std::getenv(("UCX_" + name).c_str());
}

// Changes a default of UCX unless the user has set the option. `key`: the name that
// ucp_config_modify() expects, if it differs from the name of the variable.
void set_default(const UcxLibrary &ucx, const Config &config, const std::string &name,
                 const char *value, const char *key = nullptr) {
    if (user_value(name) != nullptr) return;
    if (key == nullptr) key = name.c_str();
    ucx.check(ucx.config_modify(config.get(), key, value),
              "UCX does not accept its option " + name + "=" + value);
}

// True if ucp_config_modify() expects the options of one transport without the transport's name.
bool plain_keys(const UcxLibrary &ucx) {
    unsigned major = 0, minor = 0, release = 0;
    ucx.get_version(&major, &minor, &release);
    return major == 1 && minor < 17;
}

Config read_config(const UcxLibrary &ucx, const std::string &interface) {
    ucp_config_t *read = nullptr;
    ucx.check(ucx.config_read("VESCOMM", nullptr, &read),
              "UCX cannot read its configuration; check the variables that begin with UCX_ and "
              "VESCOMM_UCX_");
    Config config(read, ucx.config_release);

    // Every peer of this transport is on another node. UCX may believe otherwise: containers and
    // network namespaces of one machine look local to it, and it would choose its shared memory, or
    // fail. With RDMA, TCP is not needed, and its listeners are open to any host: UCX 1.13 ends the
    // process when it receives 13 foreign bytes.
    if (only_tcp()) {
        set_default(ucx, config, "TLS", "^sm");
        if (!interface.empty()) set_default(ucx, config, "NET_DEVICES", interface.c_str());
    } else {
        set_default(ucx, config, "TLS", "^sm,tcp");
    }

    // vescomm registers memory once. The registration cache would watch munmap() for it, see
    // load_ucx().
    set_default(ucx, config, "RCACHE_ENABLE", "n");

    // UCX 1.13 aborts the process when a peer dies between a connect() that waits and the first
    // message after it (an assertion in tcp_ep.c).
    set_default(ucx, config, "TCP_CONN_NB", "y", plain_keys(ucx) ? "CONN_NB" : "TCP_CONN_NB");
    return config;
}

// Over TCP the simplest way to send is the fastest. Every message fills two segments of the size
// that Linux passes on as one (45 Ethernet packets), and reads take up to twice as much. Measured:
//
// - 64 MiB between two hosts in both directions: messages of one segment 11.4 ms, of two 10.4 ms,
// of two with the larger reads 9.9 ms, of four 16 ms, since these do not stay in the cache.
// - On the loopback device, compared with rendezvous: 9.2 instead of 3.9 GB/s at 1 MiB, 6.3 instead
// of 4.3 GB/s at 64 MiB, 15 instead of 30 us for a 64 KiB round trip.
//
// UCX copies every message. A message that is not copied ends twice if the connection breaks while
// the socket has taken a part of it (uct_tcp_ep_sendv() in UCX 1.13 to 1.22): UCX ends the process
// by an assertion, or writes to memory of another message. A rendezvous and a put, which UCX
// emulates, fail other assertions.
constexpr const char *tcp_send_buffer = "128K";
constexpr const char *tcp_receive_buffer = "256K";
constexpr const char *tcp_min_not_copied = "inf";
constexpr std::uint64_t tcp_piece_bytes = 130'176;  // 2 * 45 * 1448, less all headers

std::uint64_t tune_for_tcp(const UcxLibrary &ucx, const Config &config) {
    const bool plain = plain_keys(ucx);
    set_default(ucx, config, "TCP_TX_SEG_SIZE", tcp_send_buffer,
                plain ? "TX_SEG_SIZE" : "TCP_TX_SEG_SIZE");
    set_default(ucx, config, "TCP_RX_SEG_SIZE", tcp_receive_buffer,
                plain ? "RX_SEG_SIZE" : "TCP_RX_SEG_SIZE");
    set_default(ucx, config, "ZCOPY_THRESH", tcp_min_not_copied);
    set_default(ucx, config, "RNDV_THRESH", "inf");
    return tcp_piece_bytes;
}

}  // namespace

bool only_tcp() {
    if (const char *transports = user_value("TLS")) {
        const std::string_view names = transports;
        return names == "tcp" || names == "tcp,self" || names == "self,tcp";
    }
    std::error_code error;
    const char *devices = "/sys/class/infiniband";  // lists the RDMA devices of all vendors
    return !std::filesystem::exists(devices, error) || std::filesystem::is_empty(devices, error);
}

UcxWorker::UcxWorker(const UcxLibrary &ucx, std::size_t peers, const std::string &interface)
    : ucx_(ucx) {
    const Config config = read_config(ucx, interface);
    over_tcp_ = only_tcp();
    // RDMA moves large messages by rendezvous, directly into the target. So does TCP if the user
    // sets RNDV_THRESH.
    piece_bytes_ = over_tcp_ && user_value("RNDV_THRESH") == nullptr
                       ? tune_for_tcp(ucx, config)
                       : std::numeric_limits<std::uint64_t>::max();

    ucp_params_t context{};
    context.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
    context.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
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
    ucx_.check(ucx_.worker_query(worker_, &attributes),
               "UCX cannot give the address of its worker");
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

}  // namespace vescomm::internal
