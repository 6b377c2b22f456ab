// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_worker.h"

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <string_view>
#include <system_error>

namespace vescomm {
namespace {

using Config = std::unique_ptr<ucp_config_t, decltype(&::ucp_config_release)>;

// The value that the user has set for an option of UCX, or nullptr.
const char *user_value(const std::string &name) {
    const char *value = std::getenv(("VESCOMM_UCX_" + name).c_str());
    return value != nullptr ? value : std::getenv(("UCX_" + name).c_str());
}

// Changes a default of UCX; what the user has set stays. `key`: the name that ucp_config_modify()
// wants, where it is not that of the variable.
void set_default(const UcxLibrary &ucx, const Config &config, const std::string &name,
                 const char *value, const char *key = nullptr) {
    if (user_value(name) != nullptr) return;
    if (key == nullptr) key = name.c_str();
    ucx.check(ucx.config_modify(config.get(), key, value),
              "UCX does not accept its option " + name + "=" + value);
}

// Whether ucp_config_modify() wants the options of one transport without its name before them.
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

    // Every peer of this transport is on another node, whatever UCX believes: containers and
    // network namespaces of one machine look local to it, and its shared memory would then be
    // chosen, or fail. Where there is RDMA, TCP is not needed, and its listeners are open to
    // anyone: UCX 1.13 ends the process when somebody sends them 13 bytes.
    if (only_tcp()) {
        set_default(ucx, config, "TLS", "^sm");
        if (!interface.empty()) set_default(ucx, config, "NET_DEVICES", interface.c_str());
    } else {
        set_default(ucx, config, "TLS", "^sm,tcp");
    }

    // Memory is registered by us, once. The cache would watch munmap for it, see load_ucx().
    set_default(ucx, config, "RCACHE_ENABLE", "n");

    // UCX 1.13 aborts the process when a peer dies between a connect() that waits and the first
    // message behind it (an assertion in tcp_ep.c).
    set_default(ucx, config, "TCP_CONN_NB", "y", plain_keys(ucx) ? "CONN_NB" : "TCP_CONN_NB");
    return config;
}

// Over TCP the fastest way to send is the simplest one: many messages that each fill two segments
// of what Linux passes on as one (45 packets of an Ethernet), taken in by reads of up to twice as
// much. 64 MiB from two hosts to one another: messages of one segment 11.4 ms, of two 10.4, and
// 9.9 with the larger reads; of four they take 16, since they do not stay in the cache. Measured
// against rendezvous on the loopback device: 9.2 to 3.9 GB/s at 1 MiB, 6.3 to 4.3 GB/s at 64 MiB,
// 15 to 30 us for 64 KiB and back. Nothing of a message is left in UCX once it is sent, which also
// spares us the assertions that UCX 1.13 fails when a connection breaks during a rendezvous, or
// during a put (which it emulates). That it is sent is only true of what is not copied: of a
// message for which there was no room in the socket UCX keeps a copy of the rest, calls it sent,
// and sends it when it next makes progress. A rank that turns to something else makes none, and its
// peer waits.
constexpr const char *tcp_send_buffer = "128K";
constexpr const char *tcp_receive_buffer = "256K";
constexpr const char *tcp_min_not_copied = "4K";
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
    const char *devices = "/sys/class/infiniband";  // those of every vendor of RDMA
    return !std::filesystem::exists(devices, error) || std::filesystem::is_empty(devices, error);
}

UcxWorker::UcxWorker(const UcxLibrary &ucx, std::size_t peers, const std::string &interface)
    : ucx_(ucx) {
    const Config config = read_config(ucx, interface);
    // RDMA moves large messages by rendezvous, straight to their place. So does TCP if the user
    // insists.
    piece_bytes_ = only_tcp() && user_value("RNDV_THRESH") == nullptr
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
               "UCX cannot tell the address of its worker");
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
